//! Programs on several nodes: ranks of one fabric, each of which is of a part, such as the simulation or the analysis.
//!
//! All ranks make it together. From then on a thread of each answers those of other nodes who read what writers of its node have
//! put (`agent.rs`), until no rank takes part in anything any more.

use crate::agent::{self, Client};
use crate::clock;
use crate::here::Here;
use crate::home::{Home, check_name};
use crate::options::{Behind, Read, Start};
use crate::source::Source;
use crate::there::Talk;
use crate::wire::{self, Knock};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Error, Kind, Result};
use stead_fabric::{Fabric, FabricExt};

/// Of the messages with which conversations begin, and of what all ranks do together at first.
const KNOCK: u32 = 0;
const MEET: u32 = 1;
/// Of the first conversation.
const TALKS: u32 = 16;
/// Conversations at a time that a rank takes part in as an agent.
const TALKERS: usize = 8192;
/// How often it is looked whether anybody is left.
const LOOK: Duration = Duration::from_secs(1);
/// How long it is waited at first, and at last, before nodes are asked again for a stream that nobody writes yet.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(50);

/// Ranks of a program within a coupling, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// What it is called.
    pub name: String,
    /// Its ranks among all of the coupling.
    pub ranks: Vec<usize>,
}

/// See the module's documentation.
pub struct Coupling {
    inner: Arc<Inner>,
    parts: Vec<Part>,
    mine: usize,
    /// Agreed by all ranks.
    number: u64,
    /// How often this rank has written a stream of a name.
    written: Mutex<HashMap<String, u64>>,
    tags: AtomicU32,
    process: u32,
}

/// What its threads have of it.
pub(crate) struct Inner {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) home: Home,
    threads: AtomicUsize,
    is_done: AtomicBool,
}

impl fmt::Debug for Coupling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Coupling").field("parts", &self.parts).field("mine", &self.mine).finish()
    }
}

/// Which of the writers of a stream are on this node.
#[derive(Debug, Clone)]
pub(crate) struct Placed {
    /// Their ranks, in order.
    pub(crate) ranks: Vec<u64>,
    /// Which of these this one is.
    pub(crate) seat: usize,
    /// What writers on all nodes know each other by; nothing where there is one node.
    pub(crate) run: u64,
}

impl Inner {
    /// Begins a thread that takes part in a conversation.
    ///
    /// # Errors
    /// `Limit` if there are too many; system errors.
    pub(crate) fn thread(
        self: &Arc<Inner>,
        name: &str,
        work: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let inner = self.clone();
        if inner.threads.fetch_add(1, Ordering::AcqRel) >= TALKERS {
            inner.threads.fetch_sub(1, Ordering::AcqRel);
            return Err(Error::limit("too many readers of other nodes at a time"));
        }
        let begun = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            work();
            inner.threads.fetch_sub(1, Ordering::AcqRel);
        });
        begun.map(|_| ()).map_err(|e| {
            self.threads.fetch_sub(1, Ordering::AcqRel);
            Error::io("start a thread for", "readers of other nodes", e)
        })
    }

    /// Answers who knocks, until no rank takes part in anything any more.
    fn run(self: Arc<Inner>) {
        let mut done = vec![false; self.fabric.size()];
        while !self.nobody_left(&done) {
            match self.fabric.recv_any(KNOCK, LOOK) {
                Ok(Some((rank, message))) => match wire::decode::<Knock>(&message) {
                    Ok(Knock::Talk(tag)) => self.talk(Client { rank, tag }),
                    Ok(Knock::Failed { name, run, writer }) => {
                        // Who writes it here hears of it by the stream, and one that is gone needs not.
                        let _ = agent::fail(&self.home, &name, run, writer);
                    }
                    Ok(Knock::Done) => {
                        done.iter_mut().skip(rank).take(1).for_each(|done| *done = true);
                    }
                    // Nobody of this version says that; who waits for an answer has a deadline.
                    Err(_) => {}
                },
                Ok(None) => {}
                Err(_) => break,
            }
        }
    }

    fn talk(self: &Arc<Inner>, client: Client) {
        let inner = self.clone();
        let begun = self.thread("stead-agent", move || {
            agent::serve(&inner, client);
        });
        if let Err(e) = begun {
            let _ = self.fabric.send(client.rank, client.tag, wire::answer::<()>(Err(e)));
        }
    }

    fn nobody_left(&self, done: &[bool]) -> bool {
        let gone = |rank: usize| self.fabric.ends(rank) || self.fabric.alive(rank).is_err();
        self.is_done.load(Ordering::Acquire)
            && done.iter().enumerate().all(|(rank, done)| *done || gone(rank))
    }
}

/// What a rank says of itself when all meet.
type Met = (Option<String>, u64);

impl Coupling {
    /// Makes one of all ranks of a fabric, which has no other use from then on. Each says which part it is of; streams of this node are in
    /// the dataspace `memory` of these.
    ///
    /// # Errors
    /// `Usage` on all ranks if one of them gives no name for a part; `Peer` if one is gone; those of the dataspace.
    pub fn new(fabric: Arc<dyn Fabric>, part: &str, spaces: &Spaces) -> Result<Arc<Coupling>> {
        let home = check_name(part).and_then(|()| Home::open(spaces));
        let met: Met = (home.is_ok().then(|| part.to_owned()), crate::memory::token());
        let all = fabric.all_gather(MEET, wire::encode(&met)?)?;
        let all: Vec<Met> = all.iter().map(|m| wire::decode(m)).collect::<Result<_>>()?;
        let home = home?;
        let mut ranks: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (rank, (name, _)) in all.iter().enumerate() {
            let failed = || {
                let message = "a rank cannot take part in what is coupled";
                Error::new(Kind::Peer, message).at_rank(rank).with_hint("see what it has said")
            };
            ranks.entry(name.clone().ok_or_else(failed)?).or_default().push(rank);
        }
        let mine = ranks.keys().position(|name| name == part).unwrap_or(0);
        let parts = ranks.into_iter().map(|(name, ranks)| Part { name, ranks }).collect();
        let inner = Arc::new(Inner {
            fabric,
            home,
            threads: AtomicUsize::new(0),
            is_done: AtomicBool::new(false),
        });
        let number = all.first().map_or(0, |(_, number)| *number);
        let its = inner.clone();
        let thread = std::thread::Builder::new().name("stead-streams".to_owned());
        thread
            .spawn(move || its.run())
            .map_err(|e| Error::io("start a thread for", "streams of other nodes", e))?;
        let (written, tags, process) = (Mutex::default(), AtomicU32::new(0), std::process::id());
        Ok(Arc::new(Coupling { inner, parts, mine, number, written, tags, process }))
    }

    /// Takes part in the making of a coupling with an error of this rank, which comes back: the others hear that it has failed.
    pub fn refuse(fabric: &dyn Fabric, error: Error) -> Error {
        let met: Met = (None, 0);
        // What cannot be told they hear of by themselves.
        let _ = wire::encode(&met).and_then(|met| fabric.all_gather(MEET, met));
        error
    }

    /// All parts, by name.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Which of them this rank is of.
    pub fn number(&self) -> usize {
        self.mine
    }

    /// The part of this rank.
    pub fn part(&self) -> Option<&Part> {
        self.parts.get(self.mine)
    }

    /// Which rank of its part this is.
    pub fn rank(&self) -> u64 {
        let me = self.inner.fabric.rank();
        let at = self.part().and_then(|part| part.ranks.iter().position(|rank| *rank == me));
        at.map_or(0, |at| at as u64)
    }

    /// How many ranks its part has.
    pub fn ranks(&self) -> u64 {
        self.part().map_or(1, |part| part.ranks.len() as u64)
    }

    /// False in a process that was forked since.
    pub(crate) fn is_mine(&self) -> bool {
        std::process::id() == self.process
    }

    pub(crate) fn fabric(&self) -> &Arc<dyn Fabric> {
        &self.inner.fabric
    }

    pub(crate) fn home(&self) -> &Home {
        &self.inner.home
    }

    /// Says something to the agent of a rank.
    pub(crate) fn knock(&self, rank: usize, knock: &Knock) -> Result<()> {
        self.inner.fabric.send(rank, KNOCK, wire::encode(knock)?)
    }

    /// The tag of a conversation, and the next one, which no other conversation of any rank has.
    pub(crate) fn tag(&self) -> Result<u32> {
        let (rank, size) = (self.inner.fabric.rank(), self.inner.fabric.size());
        let number = u64::from(self.tags.fetch_add(1, Ordering::Relaxed));
        let tag = number.saturating_mul(size as u64).saturating_add(rank as u64);
        let tag = tag.saturating_mul(2).saturating_add(u64::from(TALKS));
        // The last ones are those of fabrics themselves.
        let tag = u32::try_from(tag).ok().filter(|tag| *tag < u32::MAX / 2);
        tag.ok_or_else(|| Error::limit("streams of other nodes were read too often by this rank"))
    }

    /// Where the writers of a stream are: the ranks of this part. The same for all of them.
    ///
    /// # Errors
    /// `Usage` if this rank is another one of them, or they are not as many.
    pub(crate) fn place(&self, name: &str, rank: u64, writers: u64) -> Result<Placed> {
        let (fabric, ranks) = (&self.inner.fabric, self.part().map_or(&[][..], |p| &p.ranks));
        if (rank, writers) != (self.rank(), self.ranks()) {
            return Err(Error::usage(format!(
                "writer {rank} of {writers} of stream '{name}' is rank {} of {} of its part",
                self.rank(),
                self.ranks()
            ))
            .with_hint("all ranks of a part write a stream, in their order"));
        }
        let node = fabric.node_of(fabric.rank());
        let here: Vec<u64> = (0u64..)
            .zip(ranks)
            .filter(|(_, rank)| fabric.node_of(**rank) == node)
            .map(|(at, _)| at)
            .collect();
        let seat = here.iter().position(|at| *at == rank);
        let seat = seat.ok_or_else(|| Error::internal("a rank is not on its own node"))?;
        let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
        let times = written.entry(name.to_owned()).or_insert(0);
        *times += 1;
        // Ranks write the streams of a name in the same order.
        let run = self.number.wrapping_add(times.wrapping_mul(0x9E37_79B9_7F4A_7C15)) | 1;
        Ok(Placed { ranks: here, seat, run })
    }

    /// Tells the other nodes that a writer of this part has ended a stream in the middle.
    pub(crate) fn failed(&self, name: &str, run: u64, writer: u64) {
        let fabric = &self.inner.fabric;
        let mut told: Vec<usize> = vec![fabric.node_of(fabric.rank())];
        for rank in self.part().map_or(&[][..], |part| &part.ranks) {
            let node = fabric.node_of(*rank);
            if !told.contains(&node) {
                told.push(node);
                // Who is gone writes nothing.
                let _ = self.knock(*rank, &Knock::Failed { name: name.to_owned(), run, writer });
            }
        }
    }

    /// On each other node, the rank that answers this one.
    fn agents(&self) -> Vec<usize> {
        let fabric = &self.inner.fabric;
        let (me, mut nodes) = (fabric.rank(), BTreeMap::<usize, Vec<usize>>::new());
        for rank in 0..fabric.size() {
            nodes.entry(fabric.node_of(rank)).or_default().push(rank);
        }
        nodes.remove(&fabric.node_of(me));
        nodes.values().filter_map(|ranks| ranks.get(me % ranks.len().max(1)).copied()).collect()
    }

    /// All writers of a stream, on whatever nodes they are, as soon as there are all of them.
    ///
    /// # Errors
    /// `Timeout` if they do not come; that of what ends the wait; those of [`Here::attach`].
    pub(crate) fn find(
        self: &Arc<Coupling>,
        name: &str,
        options: &Read,
    ) -> Result<Vec<Box<dyn Source>>> {
        check_name(name)?;
        let until = clock::after(options.timeout);
        let agents = self.agents();
        let talks = agents.iter().map(|rank| Talk::new(self, *rank, options));
        let mut talks: Vec<Option<Talk>> =
            talks.map(|talk| talk.map(Some)).collect::<Result<_>>()?;
        let mut pause = SOON;
        loop {
            let here = agent::find(self.home(), name)?.map(|(said, _)| said);
            let there = talks.iter().map(|talk| talk.as_ref().map_or(Ok(None), |t| t.find(name)));
            let there: Vec<Option<wire::Found>> = there.collect::<Result<_>>()?;
            let all = here.iter().chain(there.iter().flatten());
            let is_wanted = |found: &wire::Found| found.is_live || options.start == Start::Oldest;
            let run =
                all.clone().filter(|found| is_wanted(found)).max_by_key(|f| (f.is_live, f.created));
            let missing = match run {
                Some(run) => {
                    let here_of = here.as_ref().filter(|found| found.run == run.run);
                    let of = |f: &Option<wire::Found>| f.as_ref().is_some_and(|f| f.run == run.run);
                    let there_of: Vec<bool> = there.iter().map(of).collect();
                    let count: usize =
                        all.filter(|f| f.run == run.run).map(|f| f.ranks.len()).sum();
                    if count as u64 == run.all {
                        let open = opening(name, run.run, options);
                        match self.open(&open, here_of.is_some(), &mut talks, &there_of, options) {
                            // Somebody writes another one of the name.
                            Err(e) if e.kind() == Kind::NotFound => {
                                for (talk, agent) in talks.iter_mut().zip(&agents) {
                                    if talk.is_none() {
                                        *talk = Some(Talk::new(self, *agent, options)?);
                                    }
                                }
                            }
                            opened => return opened,
                        }
                    }
                    format!("{count} of {} writers of stream '{name}' have come", run.all)
                }
                None => {
                    format!("nobody writes a stream '{name}' on any of {} nodes", talks.len() + 1)
                }
            };
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                return Err(Error::new(Kind::Timeout, missing)
                    .with_hint("begin its writers in this job, or wait longer for them"));
            }
            options.stop.check()?;
            self.home().wait(options.stop.at_most(pause.min(left)))?;
            pause = (pause * 2).min(LATER);
        }
    }

    fn open(
        &self,
        open: &wire::Open,
        here: bool,
        talks: &mut [Option<Talk>],
        there: &[bool],
        options: &Read,
    ) -> Result<Vec<Box<dyn Source>>> {
        let mut sources: Vec<Box<dyn Source>> = Vec::new();
        if here {
            let here: Here = agent::open(self.home(), open, options)?;
            sources.push(Box::new(here));
        }
        for (talk, _) in talks.iter_mut().zip(there).filter(|(_, there)| **there) {
            if let Some(talk) = talk.take() {
                sources.push(Box::new(talk.open(open.clone())?));
            }
        }
        Ok(sources)
    }
}

fn opening(name: &str, run: u64, options: &Read) -> wire::Open {
    wire::Open {
        name: name.to_owned(),
        run,
        group: options.group.clone(),
        rank: options.rank,
        ranks: options.ranks,
        drops: options.behind == Behind::Drop,
        next: options.start == Start::Next,
    }
}

impl Drop for Coupling {
    fn drop(&mut self) {
        if !self.is_mine() {
            return;
        }
        self.inner.is_done.store(true, Ordering::Release);
        let Ok(done) = wire::encode(&Knock::Done) else { return };
        for rank in 0..self.inner.fabric.size() {
            // Who is gone need not know. This one's thread looks.
            let _ = self.inner.fabric.send(rank, KNOCK, done.clone());
        }
    }
}
