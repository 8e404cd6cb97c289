//! Finds the writers of a stream, on whatever nodes they are.
//!
//! Nodes are asked at the same time, as many as a few threads can, and again and again until there are all writers. One that does not
//! answer keeps nobody from what the others say: it is asked on, beside them, and missed only if its writers are.

use crate::agent;
use crate::clock;
use crate::home::{Home, check_name};
use crate::options::{Patience, Read, Start};
use crate::several::{AT_ONCE, each};
use crate::source::Source;
use crate::there::{Talk, There};
use crate::wire::{self, Found};
use std::collections::{HashSet, VecDeque};
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Cancel, Error, Kind, Result};

/// Those that have not answered within this are not waited for by what the others say of a stream that is whole.
const SOON: Duration = Duration::from_secs(1);
/// So long it is waited, at most, where there are too many connections.
const FULL: Duration = Duration::from_millis(50);
/// So often a connection is asked for again before all that a reader has is given up for a while.
const TRIES: u32 = 4;

/// Other nodes on which writers may be, each with an agent to talk to. Two of them may be the same node, which is reached by two ways.
pub(crate) trait Others: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// Looks whether there are more of them, where that may be so. None goes.
    ///
    /// # Errors
    /// Those that no wait mends.
    fn renew(&self, _: &Patience) -> Result<()> {
        Ok(())
    }

    /// True once it is known which there are.
    fn are_known(&self) -> bool {
        true
    }

    /// Those that are to be asked in a round which begins now, where some are asked more seldom than others.
    fn due(&self) -> Range<usize> {
        0..self.len()
    }

    /// What one of them is called, for errors.
    fn name(&self, which: usize) -> String;

    /// What all of them are called, with this node, for errors: the stream is looked for on them.
    fn all(&self) -> String {
        format!("any of {} nodes", self.len() + 1)
    }

    /// Asks one of them whether it has a stream. Nothing of it stays for long that others may want, such as a connection.
    fn look(&self, which: usize, who: &wire::Sought, patience: &Patience) -> Result<Option<Found>>;

    /// Begins to talk to the agent of one of them about a stream.
    fn talk(&self, which: usize, stream: &str, options: &Read, patience: &Patience)
    -> Result<Talk>;

    /// Which run of a stream all ranks of the reader's group read, if they have to agree: this one, unless another one was said before that
    /// is not the one that is `gone`. `None` where there is nobody to agree with.
    ///
    /// # Errors
    /// `Timeout` if who is asked does not answer.
    fn settle(
        &self,
        _stream: &str,
        _run: u64,
        _gone: Option<u64>,
        _: &Patience,
    ) -> Result<Option<u64>> {
        Ok(None)
    }

    /// True for an error by which the node is only left out, as one that writers may not be on, and asked again.
    fn may_miss(&self, which: usize, error: &Error) -> bool;

    /// True for an error by which nodes cannot be asked until others have been: there are too many connections now.
    fn is_full(&self, which: usize, error: &Error) -> bool;

    /// How long it is waited at first, and at last, before they are asked again.
    fn pauses(&self) -> (Duration, Duration);

    /// What is to be done if there are no writers.
    fn hint(&self) -> &'static str;
}

/// What is known of a node.
#[derive(Debug, Clone, Default)]
struct Node {
    /// It waits to be asked, or is being asked.
    is_open: bool,
    /// How often it has answered, or was left out, since the search began.
    heard: u64,
    /// What it has said last.
    said: Option<Found>,
    /// Why it was left out last.
    missed: Option<Missed>,
}

/// Why a node was not reached, and what is to be done where there are too many connections.
#[derive(Debug, Clone)]
struct Missed {
    why: String,
    hint: Option<String>,
}

impl Missed {
    fn of(error: &Error, which: usize, others: &dyn Others) -> Missed {
        let hint = error.hint().filter(|_| others.is_full(which, error)).map(str::to_owned);
        Missed { why: error.message().to_owned(), hint }
    }
}

/// What is known of all nodes.
#[derive(Debug, Default)]
struct Known {
    nodes: Vec<Node>,
    /// Those that are to be asked.
    queue: VecDeque<usize>,
    /// Those that were asked together last.
    round: Vec<usize>,
    /// What ends the search.
    failed: Option<Error>,
    is_done: bool,
}

/// A search that goes on.
struct Search<'s> {
    others: &'s dyn Others,
    who: &'s wire::Sought,
    patience: Patience,
    known: Mutex<Known>,
    changed: Condvar,
    /// For looks that nobody waits for any more.
    ending: Cancel,
}

impl Search<'_> {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks nodes, one after the other, until the search is over.
    fn work(&self) {
        let patience = Patience::until(self.patience.end(), &self.ending.clone().into());
        let mut known = self.known();
        loop {
            if known.is_done {
                return;
            }
            let Some(which) = known.queue.pop_front() else {
                known = self.changed.wait(known).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            drop(known);
            let said = self.others.look(which, self.who, &patience);
            known = self.known();
            if let Some(e) = said.as_ref().err().filter(|e| self.others.is_full(which, e)) {
                for node in known.nodes.iter_mut().skip(which).take(1) {
                    node.missed = Some(Missed::of(e, which, self.others));
                }
                known.queue.push_back(which);
                let slept = self.changed.wait_timeout(known, self.patience.left().min(FULL));
                known = slept.unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            let is_done = known.is_done;
            let node = known.nodes.get_mut(which);
            let failed = node.and_then(|node| {
                (node.is_open, node.heard) = (false, node.heard.saturating_add(1));
                let (said, missed, failed) = match said {
                    Ok(said) => (said, None, None),
                    Err(e) if self.others.may_miss(which, &e) => {
                        (None, Some(Missed::of(&e, which, self.others)), None)
                    }
                    Err(e) => (None, None, Some(e)),
                };
                (node.said, node.missed) = (said, missed);
                failed
            });
            if !is_done && known.failed.is_none() {
                known.failed = failed;
            }
            self.changed.notify_all();
        }
    }

    /// Has all nodes asked that are due and not being asked, and waits for their answers, but no longer than [`SOON`].
    fn round(&self) -> Result<Vec<Node>> {
        let due = self.others.due();
        let mut known = self.known();
        if known.nodes.len() < self.others.len() {
            known.nodes.resize(self.others.len(), Node::default());
        }
        let idle = known.nodes.iter().enumerate();
        let idle = idle.filter(|(which, node)| !node.is_open && due.contains(which));
        let idle: Vec<usize> = idle.map(|(which, _)| which).collect();
        known.round = idle;
        for which in known.round.clone() {
            known.nodes.iter_mut().skip(which).take(1).for_each(|node| node.is_open = true);
            known.queue.push_back(which);
        }
        self.changed.notify_all();
        let soon = self.patience.at_most(SOON);
        loop {
            if let Some(e) = known.failed.take() {
                return Err(e);
            }
            let is_open = |which: &usize| known.nodes.get(*which).is_some_and(|n| n.is_open);
            if soon.left().is_zero() || !known.round.iter().any(is_open) {
                return Ok(known.nodes.clone());
            }
            soon.check()?;
            let waited = self.changed.wait_timeout(known, soon.share());
            known = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// A node is not reached, for now.
    fn miss(&self, which: usize, why: &Error) {
        let mut known = self.known();
        for node in known.nodes.iter_mut().skip(which).take(1) {
            (node.said, node.missed) = (None, Some(Missed::of(why, which, self.others)));
        }
    }

    /// What these nodes have said is true no more.
    fn forget(&self, of: &[usize]) {
        let mut known = self.known();
        for which in of {
            known.nodes.iter_mut().skip(*which).take(1).for_each(|node| node.said = None);
        }
    }

    /// Which nodes were not reached, and why, for an error.
    fn missed(&self) -> Option<Missed> {
        let known = self.known();
        let silent = known.nodes.iter().position(|node| node.heard == 0 && node.missed.is_none());
        let silent = silent.map(|which| Missed {
            why: format!("{} has not answered", self.others.name(which)),
            hint: None,
        });
        silent.or_else(|| known.nodes.iter().find_map(|node| node.missed.clone()))
    }
}

/// Ends a search when it is dropped.
struct Over<'a, 's>(&'a Search<'s>);

impl Drop for Over<'_, '_> {
    fn drop(&mut self) {
        self.0.ending.cancel();
        self.0.known().is_done = true;
        self.0.changed.notify_all();
    }
}

/// All writers of a stream, as soon as there are all of them.
///
/// # Errors
/// `Timeout` if they do not come; that of what ends the wait; those of [`agent::open`].
pub(crate) fn find(
    home: &Home,
    name: &str,
    options: &Read,
    others: &dyn Others,
    until: Instant,
) -> Result<Vec<Box<dyn Source>>> {
    check_name(name)?;
    let who = wire::Sought::of(name, options);
    let nodes = vec![Node::default(); others.len()];
    let search = Search {
        others,
        who: &who,
        patience: Patience::until(until, &options.stop),
        known: Mutex::new(Known { nodes, ..Known::default() }),
        changed: Condvar::new(),
        ending: Cancel::new(),
    };
    let searching = &search;
    std::thread::scope(|scope| {
        let _over = Over(searching);
        let begin = || {
            let thread = std::thread::Builder::new().name("stead-looks".to_owned());
            let begun = thread.spawn_scoped(scope, move || searching.work());
            begun
                .map(drop)
                .map_err(|e| Error::io("start a thread for", "streams of other nodes", e))
        };
        seek(home, name, options, searching, &begin)
    })
}

/// What nodes say, each once: one that is reached by two ways says the same by both, and it is the first one that counts. With it, which of the
/// others it is; nothing of this one.
fn distinct<'n>(here: Option<&'n Found>, nodes: &'n [Node]) -> Vec<(Option<usize>, &'n Found)> {
    let (mut all, mut known) = (Vec::new(), HashSet::new());
    let here = here.map(|found| (None, found));
    let there = nodes.iter().enumerate();
    let there = there.filter_map(|(which, node)| Some((Some(which), node.said.as_ref()?)));
    for (which, found) in here.into_iter().chain(there) {
        if !found.ranks.iter().any(|rank| known.contains(&(found.run, *rank))) {
            known.extend(found.ranks.iter().map(|rank| (found.run, *rank)));
            all.push((which, found));
        }
    }
    all
}

/// The run that all ranks of a group read, where others have said so.
struct Settled {
    run: u64,
    /// How often each node had answered then.
    since: Vec<u64>,
}

impl Settled {
    fn new(run: u64, nodes: &[Node]) -> Settled {
        Settled { run, since: nodes.iter().map(|node| node.heard).collect() }
    }

    /// True if all nodes were asked since, and have answered: a question that was under way then is none of these.
    fn was_asked_for(&self, nodes: &[Node]) -> bool {
        let since = |which: usize| self.since.get(which).copied().unwrap_or(0);
        nodes.iter().enumerate().all(|(which, node)| node.heard >= since(which).saturating_add(2))
    }
}

fn seek(
    home: &Home,
    name: &str,
    options: &Read,
    search: &Search<'_>,
    begin: &dyn Fn() -> Result<()>,
) -> Result<Vec<Box<dyn Source>>> {
    let Search { others, who, patience, .. } = search;
    let (mut pause, longest) = others.pauses();
    let (mut threads, mut settled, mut watch) = (0, None::<Settled>, None);
    loop {
        while threads < others.len().min(AT_ONCE) {
            begin()?;
            threads += 1;
        }
        let here = agent::find(home, who)?.map(|(said, _)| said);
        let nodes = search.round()?;
        let is_heard = others.are_known() && nodes.iter().all(|node| node.heard > 0);
        let answers = distinct(here.as_ref(), &nodes);
        let is_wanted =
            |found: &&Found| found.is_live || found.awaits || options.start != Start::Next;
        let wanted = || answers.iter().map(|(_, found)| *found).filter(is_wanted);
        let newest = || wanted().max_by_key(|found| (found.is_live, found.created));
        let (run, gone) = match &settled {
            None => (newest(), None),
            Some(of) => match wanted().find(|found| found.run == of.run) {
                // What the others have chosen is not there any more.
                None if is_heard && of.was_asked_for(&nodes) => (newest(), Some(of.run)),
                found => (found, None),
            },
        };
        let missing = match run {
            Some(run) => {
                let is_it = |(_, found): &&(Option<usize>, &Found)| found.run == run.run;
                let of_run = || answers.iter().filter(is_it);
                let count: usize = of_run().map(|(_, found)| found.ranks.len()).sum();
                // One that is over may not be the last one of the name: who has not answered may know another one.
                if count as u64 == run.all && (run.is_live || is_heard) {
                    let is_settled = settled.as_ref().is_some_and(|of| of.run == run.run);
                    let chosen = match is_settled {
                        true => None,
                        false => others.settle(name, run.run, gone, patience)?,
                    };
                    if let Some(chosen) = chosen {
                        settled = Some(Settled::new(chosen, &nodes));
                    }
                    if chosen.is_none_or(|chosen| chosen == run.run) {
                        let asked = wire::Open::of(who, run.run, options);
                        let is_here = of_run().any(|(which, _)| which.is_none());
                        let there: Vec<usize> = of_run().filter_map(|(which, _)| *which).collect();
                        match open(home, &asked, is_here, &there, search, options) {
                            Ok(Some(sources)) => return Ok(sources),
                            // Not all could be reached, for now.
                            Ok(None) => {}
                            // Somebody writes another one of the name.
                            Err(e) if e.kind() == Kind::NotFound => search.forget(&there),
                            Err(e) => return Err(e),
                        }
                    }
                }
                format!("{count} of {} writers of stream '{name}' have come on", run.all)
            }
            None if settled.is_some() => {
                format!("the stream '{name}' that others of the group read is not found on")
            }
            None => format!("nobody writes a stream '{name}' on"),
        };
        let left = patience.left();
        if left.is_zero() {
            let missing = format!("{missing} {}", others.all());
            let (missing, hint) = match search.missed() {
                Some(Missed { why, hint }) => {
                    (format!("{missing}, and not all were reached: {why}"), hint)
                }
                None => (missing, None),
            };
            let hint = hint.unwrap_or_else(|| others.hint().to_owned());
            return Err(Error::new(Kind::Timeout, missing).with_hint(hint));
        }
        options.stop.check()?;
        others.renew(patience)?;
        let sees = match &watch {
            Some(watch) => watch,
            None => watch.insert(home.watch()?),
        };
        sees.wait(options.stop.at_most(pause.min(left)));
        // Half as long again: what comes meanwhile is found before it has been looked for much longer than it took to come.
        pause = (pause * 3 / 2).min(longest);
    }
}

/// Begins to talk to these nodes, at the same time. One that takes no more connections now is asked again a few times: others may have used up
/// what there is for a moment, as this one itself does where there are many.
fn talk_to(
    there: &[usize],
    name: &str,
    search: &Search<'_>,
    options: &Read,
) -> Result<Vec<(usize, Result<Talk>)>> {
    let Search { others, patience, .. } = search;
    let talk = |which: usize, patience: &Patience| {
        let mut tries = 0;
        loop {
            match others.talk(which, name, options, patience) {
                Err(e) if others.is_full(which, &e) && tries < TRIES => {
                    patience.check()?;
                    clock::pause(patience.share().min(FULL));
                    tries += 1;
                }
                talk => return talk,
            }
        }
    };
    if let [one] = there {
        return Ok(vec![(*one, talk(*one, patience))]);
    }
    let at = |n: usize, patience: &Patience| match there.get(n) {
        Some(which) => talk(*which, patience),
        None => Err(Error::internal("there is no such node")),
    };
    let ((), talks) = each(there.len(), patience, at, || ())?;
    let silent = |which: usize| {
        Err(Error::new(Kind::Timeout, format!("{} has not answered", others.name(which))))
    };
    let talks = there.iter().copied().zip(talks);
    Ok(talks.map(|(which, talk)| (which, talk.unwrap_or_else(|| silent(which)))).collect())
}

/// Takes a place for the reader wherever there are writers. Nothing if one of these nodes cannot be reached now: no place is taken then, unless
/// one of them ends in the middle; it is given back.
fn open(
    home: &Home,
    asked: &wire::Open,
    here: bool,
    there: &[usize],
    search: &Search<'_>,
    options: &Read,
) -> Result<Option<Vec<Box<dyn Source>>>> {
    let Search { others, patience, .. } = search;
    let mut talks = Vec::with_capacity(there.len());
    for (which, talk) in talk_to(there, &asked.who.name, search, options)? {
        match talk {
            Ok(talk) => talks.push((which, talk)),
            Err(e) if others.may_miss(which, &e) || others.is_full(which, &e) => {
                search.miss(which, &e);
                return Ok(None);
            }
            Err(e) => return Err(e),
        }
    }
    // The connection by which a node was asked for the stream may have ended since.
    let is_lost = |which: usize, e: &Error| {
        let is_lost = e.kind() == Kind::Peer && others.may_miss(which, e);
        if is_lost {
            search.miss(which, e);
        }
        is_lost
    };
    let mut sources: Vec<Box<dyn Source>> = Vec::new();
    if here {
        sources.push(agent::open(home, asked, options, None)?.into_source());
    }
    // All of them are asked before the first one answers.
    for (which, talk) in &talks {
        match talk.open(asked.clone()) {
            Err(e) if is_lost(*which, &e) => return Ok(None),
            asked => asked?,
        }
    }
    for (which, talk) in talks {
        let there: There = match talk.opened(patience) {
            Err(e) if is_lost(which, &e) => return Ok(None),
            answer => answer??,
        };
        sources.push(Box::new(there));
    }
    Ok(Some(sources))
}
