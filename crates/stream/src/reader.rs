//! The reading end of a stream.

use crate::board::{self, Group, Next, State, Taken};
use crate::clock;
use crate::head;
use crate::home::{self, Home};
use crate::index::Definitions;
use crate::memory::{is_alive, me};
use crate::options::Read;
use crate::party::{Party, Seen};
use crate::step::{Known, Step};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_store::arena::{Neighbours, Place, View};

/// Steps of this process that somebody has, each with how many have it.
type Held = Mutex<HashMap<u64, usize>>;

/// What a reader and its steps share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) party: Party,
    pub(crate) seat: board::Reader,
    neighbours: Neighbours,
    held: Held,
    /// The step that comes next.
    next: AtomicU64,
    /// Definitions of each writer, as they were last.
    known: Mutex<HashMap<usize, (u64, Arc<Definitions>)>>,
    /// What they are together.
    merged: Mutex<Option<Arc<Known>>>,
    pub(crate) threads: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// One more has a step, under the lock of the board. False if it is not there.
    fn hold(&self, guard: &board::Guard<'_, crate::memory::Shared>, step: u64) -> bool {
        let mut held = locked(&self.held);
        let count = held.entry(step).or_insert(0);
        if *count == 0 && !self.party.board.hold(guard, self.seat, step) {
            held.remove(&step);
            return false;
        }
        *held.entry(step).or_insert(0) += 1;
        true
    }

    /// One fewer has a step.
    pub(crate) fn let_go(&self, step: u64) {
        if !self.party.is_mine() {
            return;
        }
        let Ok(guard) = self.party.lock() else { return };
        let mut held = locked(&self.held);
        let count = held.get_mut(&step).map(|count| {
            *count -= 1;
            *count
        });
        if count == Some(0) {
            held.remove(&step);
            let Party { board, .. } = &self.party;
            board.let_go(&guard, self.seat, step);
            if step < self.next.load(Ordering::Relaxed) {
                board.advance(&guard, self.seat, step + 1);
            }
        }
    }

    /// Bytes of an array of a writer.
    pub(crate) fn look(&self, writer: usize, place: &Place) -> Result<View> {
        self.look_at(&head::prefix(writer), writer, place)
    }

    /// Bytes of what a writer says.
    pub(crate) fn hear(&self, writer: usize, place: &Place) -> Result<View> {
        self.look_at(&head::said(writer), writer, place)
    }

    fn look_at(&self, prefix: &str, writer: usize, place: &Place) -> Result<View> {
        self.neighbours.look(prefix, place).map_err(|e| match e.kind() {
            Kind::NotFound => Error::new(
                Kind::Peer,
                format!("the memory of writer {writer} of stream '{}' is gone", self.party.name),
            )
            .with_hint("somebody has removed the stream"),
            _ => e,
        })
    }

    /// What a writer says of its variables, which it seldom says anew.
    pub(crate) fn definitions(
        &self,
        writer: usize,
        place: &Place,
        hash: u64,
    ) -> Result<Arc<Definitions>> {
        let known = locked(&self.known).get(&writer).cloned();
        if let Some((_, definitions)) = known.filter(|(known, _)| *known == hash) {
            return Ok(definitions);
        }
        // Ranks of a program often say the same.
        let same = locked(&self.known).values().find(|(known, _)| *known == hash).cloned();
        let definitions = match same {
            Some((_, definitions)) => definitions,
            None => {
                let bytes = self.hear(writer, place)?;
                if Definitions::hash_of(&bytes) != hash {
                    let message = format!("what writer {writer} says of its variables is damaged");
                    return Err(Error::format(message));
                }
                Arc::new(Definitions::decode(&bytes).map_err(|e| e.at_rank(writer))?)
            }
        };
        locked(&self.known).insert(writer, (hash, definitions.clone()));
        Ok(definitions)
    }

    pub(crate) fn merged(&self) -> MutexGuard<'_, Option<Arc<Known>>> {
        locked(&self.merged)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The last one who looks at anything of it.
        if !self.party.is_mine() {
            return;
        }
        if let Ok(guard) = self.party.lock() {
            let Party { name, home, board, .. } = &self.party;
            board.detach(&guard, self.seat);
            home.leave(name, board, &guard);
        }
    }
}

/// Reads a stream, step by step or any step that is still there. All that it gives looks at the memory of writers, and stays as it is as
/// long as it is had.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    is_over: AtomicBool,
}

impl Reader {
    /// Takes the place of a rank of a group of readers of the stream `name`, and waits for the stream if nobody writes it yet.
    ///
    /// # Errors
    /// `Timeout` if nobody does; `Usage` if somebody else is this rank, or others say something else of the group.
    pub fn open(name: &str, options: &Read) -> Result<Reader> {
        let home = Home::open(&options.spaces)?;
        let (me, until) = (me()?, clock::after(options.timeout));
        let group = Group {
            name: &options.group,
            size: options.ranks,
            rule: options.rule(),
            from: options.from(),
        };
        let over = options.start == crate::options::Start::Oldest;
        loop {
            let found = home.find(name, over, until, &options.stop)?;
            let guard = home::lock(name, &found.board, me)?;
            found.board.reap(&guard, &is_alive);
            if !over && found.board.state() != State::Live {
                drop(guard);
                continue;
            }
            let attached = found.board.attach(&guard, group, options.rank, me, &is_alive);
            drop(guard);
            let seat = attached.map_err(|taken| no_reader(name, options, &taken))?;
            let neighbours = Neighbours::new(&found.folder);
            let waits = (options.timeout, &options.stop);
            let party = Party::new(name, home, found, me, waits);
            let next = AtomicU64::new(party.board.position(seat));
            let shared = Shared {
                party,
                seat,
                neighbours,
                held: Mutex::default(),
                next,
                known: Mutex::default(),
                merged: Mutex::default(),
                threads: options.threads,
            };
            return Ok(Reader { shared: Arc::new(shared), is_over: AtomicBool::new(false) });
        }
    }

    /// The next step, as soon as all writers have ended it; `None` when they have closed the stream. The one before is done with.
    ///
    /// # Errors
    /// `Peer` if a writer has ended in the middle, after all steps that are complete; `Timeout`.
    pub fn next_step(&mut self) -> Result<Option<Step>> {
        let until = self.shared.party.deadline();
        match self.wait_until(until)? {
            Some(step) => Ok(Some(step)),
            None if self.is_over() => Ok(None),
            None => Err(self.late()),
        }
    }

    /// As [`Reader::next_step`], for so long at most: `None` also if there is no step yet, and [`Reader::is_over`] tells which it is.
    ///
    /// # Errors
    /// As [`Reader::next_step`], but for `Timeout`.
    pub fn next_step_within(&mut self, time: Duration) -> Result<Option<Step>> {
        self.next_within(time)
    }

    /// As [`Reader::next_step_within`], for threads that share the reader: each step goes to one of them.
    ///
    /// # Errors
    /// As [`Reader::next_step_within`].
    pub fn next_within(&self, time: Duration) -> Result<Option<Step>> {
        self.wait_until(clock::after(time))
    }

    /// True after the last step was given, and none will come.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn wait_until(&self, until: Instant) -> Result<Option<Step>> {
        let shared = &self.shared;
        let board = &shared.party.board;
        loop {
            let seen = Seen::Reader(board.seen_by_readers());
            let guard = shared.party.lock()?;
            // Those before are done with, whether they are still looked at or not.
            let next = shared.next.load(Ordering::Relaxed);
            board.advance(&guard, shared.seat, next);
            match board.next(&guard, shared.seat, next) {
                Next::Step { step, dropped } => {
                    shared.hold(&guard, step);
                    // Under the lock: no other thread is given it, too.
                    shared.next.store(step + 1, Ordering::Relaxed);
                    drop(guard);
                    return Step::new(shared.clone(), step, dropped).map(Some);
                }
                Next::Over(state) => {
                    drop(guard);
                    self.is_over.store(true, Ordering::Release);
                    return match shared.party.over(state) {
                        Some(error) => Err(error),
                        None => Ok(None),
                    };
                }
                Next::Wait => {
                    drop(guard);
                    if clock::now() >= until {
                        return Ok(None);
                    }
                    match shared.party.wait(seen, until, String::new) {
                        Err(e) if e.kind() == Kind::Timeout => return Ok(None),
                        waited => waited?,
                    }
                }
            }
        }
    }

    /// That the next step did not come in time, and whom it waits for.
    pub fn late(&self) -> Error {
        let step = self.shared.next.load(Ordering::Relaxed);
        let board = &self.shared.party.board;
        let behind = (0..board.writers()).map(|w| board.writer(w)).filter(|seat| seat.step <= step);
        let said: Vec<String> = behind
            .take(8)
            .map(|seat| match seat.standing {
                board::Standing::Awaited => format!("writer {} has not come", seat.rank),
                _ => format!("writer {} (process {}) has not", seat.rank, seat.who.number),
            })
            .collect();
        let name = &self.shared.party.name;
        let message = format!("step {step} of stream '{name}' is not ended: {}", said.join(", "));
        Error::new(Kind::Timeout, message).with_hint(
            "is somebody stopped, or waiting for something else? a longer timeout can be given",
        )
    }

    /// A step that is still there, whether it was given or not.
    ///
    /// # Errors
    /// `NotFound` if it is not, or not yet complete.
    pub fn at(&self, step: u64) -> Result<Step> {
        let shared = &self.shared;
        let guard = shared.party.lock()?;
        if shared.hold(&guard, step) {
            drop(guard);
            return Step::new(shared.clone(), step, 0);
        }
        let there = shared.party.board.steps();
        drop(guard);
        let said = match (there.first(), there.last()) {
            (Some(first), Some(last)) => format!("those from {first} to {last} are"),
            _ => "none is".to_owned(),
        };
        let name = &shared.party.name;
        Err(Error::new(
            Kind::NotFound,
            format!("step {step} of stream '{name}' is not there: {said}"),
        )
        .with_hint("writers say with `keep` how many steps stay"))
    }

    /// The steps that are there now.
    ///
    /// # Errors
    /// `Timeout` if somebody keeps the stream locked.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let _guard = self.shared.party.lock()?;
        Ok(self.shared.party.board.steps())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Steps and arrays of it may be had for longer: what they look at stays, and nobody waits for this reader.
        if self.shared.party.is_mine()
            && let Ok(guard) = self.shared.party.lock()
        {
            self.shared.party.board.advance(&guard, self.shared.seat, u64::MAX);
        }
    }
}

fn no_reader(name: &str, options: &Read, taken: &Taken) -> Error {
    let Read { group, rank, ranks, .. } = options;
    let is = |how: String| {
        Error::usage(format!("rank {rank} of the readers '{group}' of stream '{name}' {how}"))
    };
    match taken {
        Taken::By(who) => is(format!("is process {} already", who.number))
            .with_hint("give each rank a number of its own, or the group another name"),
        Taken::Other(size, _) if size != ranks => {
            is(format!("says that there are {ranks}, and others say {size}"))
                .with_hint("all ranks of a group say how many they are")
        }
        Taken::Other(..) => {
            is("says something else than others of what happens when they are behind".to_owned())
                .with_hint("all ranks of a group say the same")
        }
        Taken::Full => is("finds no place".to_owned())
            .with_hint("there may be 64 groups and 1024 readers at a time on a node"),
        _ => is(format!("is none of {ranks}, or the name of the group is longer than 64 bytes")),
    }
}
