//! Programs on several nodes: ranks of one fabric, each of which is of a part, such as the simulation or the analysis.
//!
//! All ranks make it together, and who does not come is named (`meeting.rs`). From then on a thread of each answers those of other nodes
//! who read what writers of its node have put (`agent.rs`), until no rank takes part in anything any more.

use crate::agent::{self, Client};
use crate::clock;
use crate::find::{self, Others};
use crate::home::{Home, check_name};
use crate::line::Line;
use crate::meeting;
use crate::options::{Patience, Read};
use crate::pool::Beside;
use crate::ranks::{ToAgent, ToReader};
use crate::source::Source;
use crate::there::{self, Talk, lost};
use crate::wire::{self, Ask, Found, Knock, Settle};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Error, Kind, Result};
use stead_fabric::{Fabric, FabricExt};

/// Of the messages with which conversations begin, and of what all ranks do together at first.
const KNOCK: u32 = 0;
const MEET: u32 = 1;
/// Of what all ranks do together at last.
const AGREE: u32 = 2;
/// Of who has come, and of what is said of that.
pub(crate) const COME: u32 = 4;
pub(crate) const CAME: u32 = 5;
/// Of the first conversation.
const TALKS: u32 = 16;
/// Of answers in a conversation, beside its tag. The last ones of all are those of fabrics themselves.
pub(crate) const ANSWER: u32 = 1 << 30;
/// Conversations at a time that a rank takes part in as an agent.
const TALKERS: usize = 8192;
/// How often it is looked whether anybody is left.
const LOOK: Duration = Duration::from_secs(1);
/// Of the other writers of a stream so many are looked at then, each time other ones: all ranks together look at all of them.
const LOOKED_AT: usize = 8;
/// Runs of streams that have failed elsewhere, of which is known.
const BROKEN: usize = 256;
/// So many choices of runs are remembered, and names of groups are no longer.
const SETTLED: usize = 1024;
const GROUP: usize = 64;
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
    /// How often this rank has written a stream of a name, and how often it has begun to read one for a group.
    written: Mutex<HashMap<String, u64>>,
    read: Mutex<HashMap<(String, String), u64>>,
    tags: AtomicU32,
    process: u32,
}

/// What its threads have of it.
pub(crate) struct Inner {
    pub(crate) fabric: Arc<dyn Fabric>,
    pub(crate) home: Home,
    /// The ranks of the part that this one is of.
    part: Vec<usize>,
    /// Streams that this rank writes now, and their runs.
    writing: Mutex<Vec<(String, u64)>>,
    /// Runs of streams that a writer of another node has ended in the middle, the last ones, and which writer: who begins to write one
    /// here may come after it was told.
    broken: Mutex<VecDeque<(String, u64, u64)>>,
    /// Which runs of streams groups of its part read, if it is the first rank of the part; the oldest choice first.
    settled: Mutex<VecDeque<Settle>>,
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
        let mut watch = Watch::default();
        while !self.nobody_left(&done) {
            match self.fabric.recv_any(KNOCK, LOOK) {
                Ok(Some((rank, message))) => match wire::decode::<Knock>(&message) {
                    Ok(Knock::Talk(tag)) => self.talk(rank, tag),
                    Ok(Knock::Failed { name, run, writer }) => {
                        // Noted first: the stream may be there a moment later.
                        let mut broken = self.broken();
                        if broken.len() >= BROKEN {
                            broken.pop_front();
                        }
                        broken.push_back((name.clone(), run, writer));
                        drop(broken);
                        // Who writes it here hears of it by the stream, and one that is gone needs not.
                        let _ = agent::fail(&self.home, &name, run, writer);
                    }
                    Ok(Knock::Done) => {
                        done.iter_mut().skip(rank).take(1).for_each(|done| *done = true);
                    }
                    // Nobody of this version says that; who waits for an answer has a deadline.
                    Err(_) => {}
                },
                // All that was said until now was heard: who is gone without a farewell has died.
                Ok(None) => self.look(&done, &mut watch),
                Err(_) => break,
            }
        }
    }

    fn broken(&self) -> MutexGuard<'_, VecDeque<(String, u64, u64)>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn writing(&self) -> MutexGuard<'_, Vec<(String, u64)>> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks whether others who write what this rank writes are gone, on nodes where perhaps nobody is left to tell it.
    fn look(&self, done: &[bool], watch: &mut Watch) {
        let writing = self.writing().clone();
        if writing.is_empty() {
            return;
        }
        let (me, size) = (self.fabric.rank(), self.part.len());
        let mine = self.part.iter().position(|rank| *rank == me).unwrap_or(0);
        for _ in 0..LOOKED_AT.min(size) {
            watch.last = (watch.last + 1) % size.max(1);
            let at = (mine + watch.last) % size.max(1);
            let Some(rank) = self.part.get(at).copied() else { continue };
            let is_done = done.get(rank).is_some_and(|done| *done);
            // Of this node the system tells who has ended.
            if is_done || self.fabric.node_of(rank) == self.fabric.node_of(me) {
                continue;
            }
            // A farewell may be on its way just now: it is there when this is looked at again.
            if self.fabric.alive(rank).is_err() && !watch.missed.insert(rank) {
                for (name, run) in &writing {
                    let _ = agent::fail(&self.home, name, *run, at as u64);
                    self.failed(name, *run, at as u64);
                }
                // It is told once.
                self.writing().retain(|other| !writing.contains(other));
                return;
            }
        }
    }

    /// Tells the other nodes that a writer of this part has ended a stream in the middle.
    fn failed(&self, name: &str, run: u64, writer: u64) {
        let fabric = &self.fabric;
        let mut told: Vec<usize> = vec![fabric.node_of(fabric.rank())];
        for rank in &self.part {
            let node = fabric.node_of(*rank);
            if !told.contains(&node) && fabric.alive(*rank).is_ok() {
                let knock = Knock::Failed { name: name.to_owned(), run, writer };
                // Who is gone writes nothing, and tells nobody of its node.
                let sent = wire::encode(&knock).and_then(|knock| fabric.send(*rank, KNOCK, knock));
                told.extend(sent.is_ok().then_some(node));
            }
        }
    }

    fn talk(self: &Arc<Inner>, rank: usize, tag: u32) {
        let inner = self.clone();
        let begun = self.thread("stead-agent", move || {
            let line = |tag| ToReader { inner: inner.clone(), rank, tag };
            let (asks, errands): (_, Arc<dyn Line>) = (line(tag), Arc::new(line(tag + 1)));
            let errands = &|| Ok(errands.clone());
            let thread = |name: &str, work: Box<dyn FnOnce() + Send>| inner.thread(name, work);
            let node = inner.fabric.node_of(rank) as u64;
            let whose = Some((node, rank as u64));
            let settles = |said: &Settle| inner.settle(said);
            let settles: Option<&agent::Settles<'_>> = Some(&settles);
            let client = Client { asks: &asks, errands, whose, thread: &thread, settles };
            agent::serve(&inner.home, &client);
        });
        if let Err(e) = begun {
            let _ = self.fabric.send(rank, tag | ANSWER, wire::answer::<()>(Err(e)));
        }
    }

    /// Which run of a stream a group reads: the one that is asked for first. It is answered at once, whoever else has not come yet.
    fn settle(&self, said: &Settle) -> u64 {
        let mut settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let is_it =
            |of: &&mut Settle| (&of.name, &of.group, of.nth) == (&said.name, &said.group, said.nth);
        if let Some(of) = settled.iter_mut().find(is_it) {
            if said.gone == Some(of.run) {
                of.run = said.run;
            }
            return of.run;
        }
        if check_name(&said.name).is_ok() && said.group.len() <= GROUP {
            if settled.len() >= SETTLED {
                settled.pop_front();
            }
            settled.push_back(said.clone());
        }
        said.run
    }

    fn nobody_left(&self, done: &[bool]) -> bool {
        let gone = |rank: usize| self.fabric.ends(rank) || self.fabric.alive(rank).is_err();
        self.is_done.load(Ordering::Acquire)
            && done.iter().enumerate().all(|(rank, done)| *done || gone(rank))
    }
}

/// What a rank has seen of others.
#[derive(Debug, Default)]
struct Watch {
    /// How far behind this one in its part the rank is that was looked at last.
    last: usize,
    /// Ranks that were gone when they were looked at.
    missed: HashSet<usize>,
}

/// What a rank says of itself when all meet.
type Met = (Option<String>, u64);

/// What each rank says of itself, as bytes.
fn meet(fabric: &dyn Fabric, mine: &Met, timeout: Duration) -> Result<Vec<Vec<u8>>> {
    meeting::all_come(fabric, timeout)?;
    fabric.all_gather(MEET, wire::encode(mine)?)
}

impl Coupling {
    /// Makes one of all ranks of a fabric, which has no other use from then on. Each says which part it is of; streams of this node are in
    /// the dataspace `memory` of these. All ranks are to come within `timeout`.
    ///
    /// # Errors
    /// `Usage` on all ranks if one of them gives no name for a part; `Timeout` if one has not come, with its number; `Peer` if one is
    /// gone; those of the dataspace.
    pub fn new(
        fabric: Arc<dyn Fabric>,
        part: &str,
        spaces: &Spaces,
        timeout: Duration,
    ) -> Result<Arc<Coupling>> {
        let home = check_name(part).and_then(|()| Home::open(spaces));
        let met: Met = (home.is_ok().then(|| part.to_owned()), crate::memory::token());
        let all = meet(&*fabric, &met, timeout)?;
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
        let part = ranks.get(part).cloned().unwrap_or_default();
        let parts = ranks.into_iter().map(|(name, ranks)| Part { name, ranks }).collect();
        let inner = Arc::new(Inner {
            fabric,
            home,
            part,
            writing: Mutex::default(),
            broken: Mutex::default(),
            settled: Mutex::default(),
            threads: AtomicUsize::new(0),
            is_done: AtomicBool::new(false),
        });
        let number = all.first().map_or(0, |(_, number)| *number);
        let its = inner.clone();
        let thread = std::thread::Builder::new().name("stead-streams".to_owned());
        thread
            .spawn(move || its.run())
            .map_err(|e| Error::io("start a thread for", "streams of other nodes", e))?;
        let (written, read) = (Mutex::default(), Mutex::default());
        let (tags, process) = (AtomicU32::new(0), std::process::id());
        Ok(Arc::new(Coupling { inner, parts, mine, number, written, read, tags, process }))
    }

    /// Takes part in the making of a coupling with an error of this rank, which comes back: the others hear that it has failed.
    pub fn refuse(fabric: &dyn Fabric, timeout: Duration, error: Error) -> Error {
        // What cannot be told they hear of by themselves.
        let _ = meet(fabric, &(None, 0), timeout);
        error
    }

    /// That somebody gives an end of a stream dataspaces of its own beside a coupling, which has said where streams lie.
    pub fn own_dataspaces() -> Error {
        Error::usage("dataspaces are those of the coupling")
            .with_hint("give them to the coupling when it is made, and none beside it")
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

    /// True if ranks of its part are on several nodes.
    pub fn is_apart(&self) -> bool {
        let mut nodes = self.inner.part.iter().map(|rank| self.inner.fabric.node_of(*rank));
        let first = nodes.next();
        nodes.any(|node| Some(node) != first)
    }

    /// What each of all ranks has, in their order; or, on all of them, the first error of any: rather what has failed than that others hear of
    /// it. All ranks call this as often as each other.
    ///
    /// # Errors
    /// That one; `Peer` if a rank is gone.
    pub fn agree<T: Serialize + DeserializeOwned>(&self, mine: Result<T>) -> Result<Vec<T>> {
        let (said, own) = match mine {
            Ok(mine) => (wire::answer(Ok(mine)), None),
            Err(e) => (wire::failed(&e), Some(e)),
        };
        // That others are gone is less than what has failed here.
        let all = self.inner.fabric.all_gather(AGREE, said).map_err(|e| own.unwrap_or(e))?;
        let mut each = Vec::with_capacity(all.len());
        let mut failed: Option<Error> = None;
        for (rank, said) in all.iter().enumerate() {
            match wire::heard(said).and_then(wire::decode) {
                Ok(one) => each.push(one),
                Err(e) => {
                    let is_cause = e.kind() != Kind::Peer;
                    if failed.as_ref().is_none_or(|f| is_cause && f.kind() == Kind::Peer) {
                        failed = Some(e.at_rank(rank));
                    }
                }
            }
        }
        failed.map_or(Ok(each), Err)
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

    /// The tag of a conversation, and the next one, which no other conversation has that this rank has begun. What comes back has them, and
    /// [`ANSWER`]: it is not mixed up with what this rank is asked by others, who begin theirs with the same ones.
    pub(crate) fn tag(&self) -> Result<u32> {
        let number = self.tags.fetch_add(1, Ordering::Relaxed);
        tag_of(number).ok_or_else(|| {
            // It is not to begin anew.
            self.tags.store(ANSWER, Ordering::Relaxed);
            Error::limit("streams of other nodes were read too often by this rank")
        })
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
        self.inner.failed(name, run, writer);
    }

    /// This rank writes a run of a stream, which is there, from now on: others who do are looked after, and if one of another node has ended it
    /// in the middle before, that is made known here.
    pub(crate) fn writes(&self, name: &str, run: u64) {
        self.inner.writing().push((name.to_owned(), run));
        let is = |broken: &&(String, u64, u64)| (broken.0.as_str(), broken.1) == (name, run);
        let by = self.inner.broken().iter().find(is).map(|(_, _, writer)| *writer);
        if let Some(writer) = by {
            let _ = agent::fail(&self.inner.home, name, run, writer);
        }
    }

    /// It does so no longer.
    pub(crate) fn has_written(&self, name: &str, run: u64) {
        self.inner.writing().retain(|(other, of)| (other.as_str(), *of) != (name, run));
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

    /// All writers of a stream, as soon as there are all of them: on whatever nodes of the job they are, or on those of a pool.
    ///
    /// # Errors
    /// Those of [`find::find`].
    pub(crate) fn find(
        self: &Arc<Coupling>,
        name: &str,
        options: &Read,
    ) -> Result<Vec<Box<dyn Source>>> {
        let agents = self.agents();
        let talks = agents.iter().map(|_| Mutex::default()).collect();
        // Who reads alone agrees with nobody.
        let is_group =
            options.ranks > 1 && (options.rank, options.ranks) == (self.rank(), self.ranks());
        let key = (name.to_owned(), options.group.clone());
        let nth = is_group.then(|| self.read().get(&key).copied().unwrap_or(0));
        let agents = Agents { coupling: self, agents, talks, options, nth };
        let pool = options.nodes.as_ref().map(|nodes| Beside::new(nodes, options.ranks));
        let others = Wide { agents, pool };
        let found = find::find(self.home(), name, options, &others, clock::after(options.timeout))?;
        if is_group {
            *self.read().entry(key).or_insert(0) += 1;
        }
        Ok(found)
    }

    fn read(&self) -> MutexGuard<'_, HashMap<(String, String), u64>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tag of a conversation of this number.
fn tag_of(number: u32) -> Option<u32> {
    let tag = number.checked_mul(2)?.checked_add(TALKS)?;
    (tag < ANSWER - 1).then_some(tag)
}

/// Ranks that answer one of another node.
struct Agents<'c> {
    coupling: &'c Arc<Coupling>,
    agents: Vec<usize>,
    /// Conversations that were begun: who looks for a stream opens it by the same one.
    talks: Vec<Mutex<Option<Talk>>>,
    options: &'c Read,
    /// How often the group of all ranks of the part has read a stream of the name before; nothing of any other group.
    nth: Option<u64>,
}

impl Agents<'_> {
    fn rank(&self, which: usize) -> Result<usize> {
        let none = || Error::internal("there is no such node");
        self.agents.get(which).copied().ok_or_else(none)
    }

    fn begin(&self, which: usize, stream: &str, options: &Read) -> Result<Talk> {
        let (rank, tag) = (self.rank(which)?, self.coupling.tag()?);
        let line = |tag| ToAgent { coupling: self.coupling.clone(), rank, tag };
        self.coupling.knock(rank, &Knock::Talk(tag)).map_err(|e| lost(e, stream))?;
        Ok(Talk::new(stream, Box::new(line(tag)), Box::new(line(tag + 1)), options))
    }
}

impl Others for Agents<'_> {
    fn len(&self) -> usize {
        self.agents.len()
    }

    fn name(&self, which: usize) -> String {
        self.rank(which).map_or_else(|_| "a node".to_owned(), |rank| format!("rank {rank}"))
    }

    fn look(&self, which: usize, who: &wire::Sought, patience: &Patience) -> Result<Option<Found>> {
        let Some(talk) = self.talks.get(which) else { return Ok(None) };
        let mut talk = talk.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = match talk.take() {
            Some(kept) => kept,
            None => self.begin(which, &who.name, self.options)?,
        };
        talk.insert(kept).find(who, patience)
    }

    fn settle(
        &self,
        stream: &str,
        run: u64,
        gone: Option<u64>,
        patience: &Patience,
    ) -> Result<Option<u64>> {
        let Some(nth) = self.nth else { return Ok(None) };
        let (coupling, group) = (self.coupling, self.options.group.clone());
        let said = Settle { name: stream.to_owned(), group, nth, run, gone };
        let first = coupling.inner.part.first().copied().unwrap_or(0);
        if first == coupling.fabric().rank() {
            return Ok(Some(coupling.inner.settle(&said)));
        }
        let tag = coupling.tag()?;
        let line = ToAgent { coupling: coupling.clone(), rank: first, tag };
        let asked = coupling
            .knock(first, &Knock::Talk(tag))
            .and_then(|()| there::once(&line, stream, &Ask::Settle(said), patience));
        match asked {
            // Who is gone settles nothing, and reads nothing.
            Err(e) if e.kind() == Kind::Peer => Ok(None),
            Err(e) if e.kind() == Kind::Timeout => {
                let message = format!(
                    "the first rank of the part does not answer which stream '{stream}' all of its ranks read"
                );
                Err(Error::new(Kind::Timeout, message)
                    .at_rank(first)
                    .with_hint("is it stopped? see what became of it"))
            }
            run => run.map(Some),
        }
    }

    fn talk(&self, which: usize, stream: &str, options: &Read, _: &Patience) -> Result<Talk> {
        // One by which it is being asked just now is none to open it by.
        let kept = self.talks.get(which).and_then(|talk| talk.try_lock().ok()?.take());
        kept.map_or_else(|| self.begin(which, stream, options), Ok)
    }

    fn may_miss(&self, _: usize, _: &Error) -> bool {
        false
    }

    fn is_full(&self, _: usize, _: &Error) -> bool {
        false
    }

    fn pauses(&self) -> (Duration, Duration) {
        (SOON, LATER)
    }

    fn hint(&self) -> &'static str {
        "begin its writers in this job or on its nodes, or wait longer for them; those on other nodes are found by daemons that are a pool"
    }
}

/// Nodes of the job, and after them those of a pool.
struct Wide<'c> {
    agents: Agents<'c>,
    pool: Option<Beside<'c>>,
}

impl Wide<'_> {
    /// Whose one of them is, and which it is there.
    fn of(&self, which: usize) -> (&dyn Others, usize) {
        match (which.checked_sub(self.agents.len()), &self.pool) {
            (Some(which), Some(pool)) => (pool.others(), which),
            _ => (&self.agents, which),
        }
    }
}

impl Others for Wide<'_> {
    fn len(&self) -> usize {
        self.agents.len() + self.pool.as_ref().map_or(0, |pool| pool.others().len())
    }

    fn renew(&self, patience: &Patience) -> Result<()> {
        self.pool.as_ref().map_or(Ok(()), |pool| pool.renew(patience))
    }

    fn are_known(&self) -> bool {
        self.pool.as_ref().is_none_or(Beside::are_known)
    }

    fn due(&self) -> Range<usize> {
        match &self.pool {
            Some(pool) if pool.is_due() => 0..self.len(),
            _ => 0..self.agents.len(),
        }
    }

    fn name(&self, which: usize) -> String {
        let (of, which) = self.of(which);
        of.name(which)
    }

    fn all(&self) -> String {
        let Some(pool) = &self.pool else { return self.agents.all() };
        let job = match self.agents.len() {
            0 => "this node".to_owned(),
            many => format!("this node, or on {many} more of the job"),
        };
        job + &pool.all()
    }

    fn look(&self, which: usize, who: &wire::Sought, patience: &Patience) -> Result<Option<Found>> {
        let (of, which) = self.of(which);
        of.look(which, who, patience)
    }

    fn talk(
        &self,
        which: usize,
        stream: &str,
        options: &Read,
        patience: &Patience,
    ) -> Result<Talk> {
        let (of, which) = self.of(which);
        of.talk(which, stream, options, patience)
    }

    fn settle(
        &self,
        stream: &str,
        run: u64,
        gone: Option<u64>,
        patience: &Patience,
    ) -> Result<Option<u64>> {
        self.agents.settle(stream, run, gone, patience)
    }

    fn may_miss(&self, which: usize, error: &Error) -> bool {
        let (of, which) = self.of(which);
        of.may_miss(which, error)
    }

    fn is_full(&self, which: usize, error: &Error) -> bool {
        let (of, which) = self.of(which);
        of.is_full(which, error)
    }

    fn pauses(&self) -> (Duration, Duration) {
        self.agents.pauses()
    }

    fn hint(&self) -> &'static str {
        self.agents.hint()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_has_millions_of_conversations_however_many_ranks_there_are() {
        let tags: Vec<Option<u32>> = [0, 1, 500_000_000, 1 << 29, ANSWER].map(tag_of).to_vec();
        assert_eq!(tags, [Some(TALKS), Some(TALKS + 2), Some(1_000_000_016), None, None]);
        assert!(tags.into_iter().flatten().all(|tag| (tag | ANSWER) < u32::MAX / 2));
    }
}
