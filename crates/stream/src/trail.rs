//! A stream of which steps are in files, too: a reader that begins before what memory has, or is behind, has them from there, and goes on
//! in memory as soon as that has the next one.
//!
//! Of a stream with `spill` a step stays in files until all readers of such groups are done with it: a reader that still holds one says
//! that it is done with those before it only.

use crate::board::Elsewhere;
use crate::here::{Here, IsOver, is_for};
use crate::home::{self, Found, Home};
use crate::noted::Got;
use crate::options::{Read, Start};
use crate::recorded::{self, Replay};
use crate::report::MemoryReport;
use crate::source::{Coming, Fetch, Source, Told, Which};
use crate::{clock, index::Place};
use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_store::arena::View;
use stead_store::{Folder, Watch};

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Trail {
    name: String,
    here: Here,
    replay: Replay,
    first: u64,
    /// Steps that the group has had which stay, none of them before the first one.
    keep: u64,
    held: Mutex<Held>,
    /// How long it is waited for a step that is on its way to files: less than a reader of another node waits for the answer.
    patience: Duration,
}

/// Steps that the reader looks at.
#[derive(Debug, Default)]
struct Held {
    memory: HashSet<u64>,
    files: BTreeSet<u64>,
}

impl Trail {
    /// Takes the place of a rank of a group, as [`Here::open`].
    pub(crate) fn open(name: &str, options: &Read) -> Result<Trail> {
        let home = Home::open(&options.spaces)?;
        let until = clock::after(options.timeout);
        loop {
            let found = home.find(name, |board| is_for(board, options), until, &options.stop)?;
            let agreed = found.board.agreed();
            if agreed.all != agreed.writers {
                let message = format!(
                    "a reader of stream '{name}', which is of several nodes, cannot {}",
                    what(options)
                );
                return Err(Error::usage(message)
                    .with_hint("couple the programs, or read the folder that it is recorded in"));
            }
            if let Ok(trail) = Trail::attach(name, home.clone(), found, until, options, None)? {
                return Ok(trail);
            }
        }
    }

    /// Takes a place in a stream that was found: it has the writers of this node, and what these have recorded.
    ///
    /// # Errors
    /// `Usage` if it is not recorded; `Timeout` if no writer has said where until then; those of [`Here::attach`].
    pub(crate) fn attach(
        name: &str,
        home: Home,
        found: Found,
        until: Instant,
        options: &Read,
        elsewhere: Option<Elsewhere>,
    ) -> Result<std::result::Result<Trail, IsOver>> {
        let agreed = found.board.agreed();
        if agreed.record == 0 {
            let what = what(options);
            let message =
                format!("a reader cannot {what} of stream '{name}', which is not recorded");
            return Err(Error::usage(message).with_hint("write it with persist= or spill="));
        }
        let run = if agreed.run == 0 { found.board.token() } else { agreed.run };
        // Who cannot read it takes no place: writers that wait for readers would begin.
        let (at, card) = where_it_is(name, &found.folder, until, options)?;
        if card.run() != run {
            let message =
                format!("steps of stream '{name}' are recorded no more: others are in their place");
            return Err(Error::new(Kind::Peer, message).at_path(at.shown()));
        }
        if options.start == Start::First && card.spills {
            let message = format!("the first steps of stream '{name}' are not kept");
            return Err(Error::usage(message)
                .with_hint("write it with persist=, or begin with the oldest step"));
        }
        let Ok(here) = Here::attach(name, home, found, options, elsewhere)? else {
            return Ok(Err(IsOver));
        };
        let ranks = (0..here.writers()).map(|writer| here.rank_of(writer)).collect();
        let replay = Replay::of(name, at, card, &options.stop).of_ranks(ranks);
        let first = if options.start == Start::First { 0 } else { here.position() };
        let (name, held) = (name.to_owned(), Mutex::default());
        let patience = options.timeout / 2;
        let keep = options.keep.unwrap_or(0);
        Ok(Ok(Trail { name, here, replay, first, keep, held, patience }))
    }

    /// The place that it has among readers of memory.
    pub(crate) fn here(&self) -> &Here {
        &self.here
    }

    /// True of a step that is held in memory.
    pub(crate) fn is_in_memory(&self, step: u64) -> bool {
        self.held().memory.contains(&step)
    }

    /// The steps before this one that are done with: none that may go from files while it is looked at.
    fn done_with(&self, held: &Held, before: u64) -> u64 {
        let first = held.files.first().filter(|_| self.replay.spills());
        first.map_or(before, |first| before.min(*first))
    }

    /// The first step that stays for the reader: one that it has had and keeps, or the next one.
    fn first_kept(&self) -> u64 {
        let next = self.here.position();
        next.saturating_sub(self.keep).max(self.first.min(next))
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a complete step that has gone from memory until it is in files, if it is to be: memory is not kept for those that are
    /// on their way there.
    fn settle(&self, step: u64) -> Result<()> {
        if !self.replay.spills() && step < self.here.complete() {
            self.replay.wait(step, clock::after(self.patience))?;
        }
        Ok(())
    }

    /// A step that has gone from memory, from files.
    fn recorded(&self, step: u64, until: Instant) -> Result<Coming> {
        let lost = || {
            let message =
                format!("step {step} of stream '{}' has gone and was not recorded", self.name);
            Error::new(Kind::Peer, message).with_hint("see what its writers have said")
        };
        if self.replay.spills() {
            // It went because all had recorded it.
            return if self.replay.has(step)? { Ok(Coming::Step(step)) } else { Err(lost()) };
        }
        match self.replay.wait(step, until)? {
            Coming::Over(None) => Err(lost()),
            coming => Ok(coming),
        }
    }
}

/// What a reader wants that needs files.
fn what(options: &Read) -> &'static str {
    match options.start {
        Start::First => "start with the first step",
        _ => "be behind and have all steps",
    }
}

/// The folder that a stream is recorded in, as soon as a writer has said so.
fn where_it_is(
    name: &str,
    folder: &Folder,
    until: Instant,
    options: &Read,
) -> Result<(Folder, recorded::Card)> {
    loop {
        let watch = Watch::new(folder)?;
        // What is not there any more is no stream that there is not.
        let lost = |e: Error| match e.kind() {
            Kind::NotFound => {
                let message = format!("what was recorded of stream '{name}' is gone");
                Error::new(Kind::Peer, message).with_hint("somebody has removed the folder")
            }
            _ => e,
        };
        if let Some(at) = recorded::told(folder).map_err(lost)? {
            let card = recorded::card(&at).map_err(lost)?;
            return Ok((at, card));
        }
        options.stop.check()?;
        let left = until.saturating_duration_since(clock::now());
        if left.is_zero() || home::look(folder)?.is_none() {
            let message = format!("no writer of stream '{name}' has said where it is recorded");
            return Err(Error::new(Kind::Timeout, message).with_hint("see what they have said"));
        }
        watch.wait(options.stop.at_most(left));
    }
}

impl Source for Trail {
    fn position(&self) -> u64 {
        self.first
    }

    fn expect(&self, _: u64, _: bool, _: Instant) -> Result<()> {
        Ok(())
    }

    fn next(&self, from: u64, _: bool, until: Instant) -> Result<Coming> {
        let done = |advance: &dyn Fn(u64)| {
            // None is held meanwhile that would not be counted.
            let held = self.held();
            advance(self.done_with(&held, from));
        };
        match self.here.next_exactly(from, until, done)? {
            Some(coming) => {
                if let Coming::Step(step) = coming {
                    self.held().memory.insert(step);
                }
                Ok(coming)
            }
            None => self.recorded(from, until),
        }
    }

    fn hold(&self, step: u64) -> Result<bool> {
        if self.here.hold(step)? {
            self.held().memory.insert(step);
            return Ok(true);
        }
        {
            let mut held = self.held();
            if held.files.contains(&step) {
                return Ok(true);
            }
            if self.replay.spills() && step < self.first_kept() {
                // It may be gone at any time.
                return Ok(false);
            }
            held.files.insert(step);
        }
        let found = self.settle(step).and_then(|()| self.replay.hold(step));
        if !matches!(found, Ok(true)) {
            self.held().files.remove(&step);
        }
        found
    }

    fn let_go(&self, step: u64, is_done: bool) {
        let mut held = self.held();
        if held.memory.remove(&step) {
            let is_done = is_done && self.done_with(&held, step + 1) == step + 1;
            drop(held);
            return self.here.let_go(step, is_done);
        }
        held.files.remove(&step);
        let before = self.done_with(&held, step + 1);
        drop(held);
        self.replay.let_go(step, is_done);
        if is_done {
            self.here.advance(before);
        }
    }

    fn steps(&self) -> Result<Vec<u64>> {
        let complete = self.here.complete();
        let here = self.here.steps()?;
        if self.replay.spills() {
            let mut all: BTreeSet<u64> = here.into_iter().collect();
            for step in self.first_kept()..self.here.position().min(complete) {
                if !all.contains(&step) && self.replay.has(step)? {
                    all.insert(step);
                }
            }
            return Ok(all.into_iter().collect());
        }
        // Those before it are in files by then.
        if let Some(gone) = (0..complete).rev().find(|step| !here.contains(step)) {
            self.settle(gone)?;
        }
        let mut all: BTreeSet<u64> = self.replay.steps()?.into_iter().collect();
        all.extend(here);
        Ok(all.into_iter().collect())
    }

    fn told(&self, step: u64) -> Result<Arc<Told>> {
        let is_here = self.is_in_memory(step);
        if is_here { self.here.told(step) } else { self.replay.told(step) }
    }

    fn late(&self, step: u64) -> Vec<String> {
        match self.here.late(step) {
            late if late.is_empty() => self.replay.late(step),
            late => late,
        }
    }

    fn look(&self, block: Which, place: &Place) -> Result<Option<View>> {
        let is_here = self.is_in_memory(block.step);
        if is_here { self.here.look(block, place) } else { Ok(None) }
    }

    fn fetch(&self) -> Option<Box<dyn Fetch + '_>> {
        self.replay.fetch()
    }

    fn count(&self, step: u64, got: &Got<'_>, copying: u64) {
        self.here.count(step, got, copying);
    }

    fn given(&self, step: u64, dropped: u64, waited: u64) {
        self.here.given(step, dropped, waited);
    }

    fn memory(&self) -> Option<MemoryReport> {
        self.here.memory()
    }

    fn done(&self) {
        // Arrays that were had from files were copied; those that are still looked at are in memory.
        let before = self.done_with(&self.held(), u64::MAX);
        self.here.advance(before);
    }
}
