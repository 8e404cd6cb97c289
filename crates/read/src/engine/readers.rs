//! The readers of a file: when one is woken or made, and what becomes of what one had begun when it ends by a defect.
//!
//! A device may keep a reader for as long as it likes, in a read or in a fault. So what is read only once a thread waits
//! for it belongs to no reader before that: any of them takes the oldest of it ([`Away`]). And when all readers have been
//! away for a while, and none came back, there are as many more, for others who wait; as many end again for each that
//! comes back after all.

use super::{Inner, Shared};
use crate::clock;
use crate::reader::Reader;
use crate::sync::{self, MutexGuard};
use crate::window::Ticket;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_core::{Error, Result};
use stead_store::Buffer;

/// Readers that are all away for so long are taken to be kept by the device.
const KEPT: Duration = Duration::from_millis(if cfg!(test) { 50 } else { 500 });
/// Who looks for them later than that has been away, too.
const LATE: Duration = Duration::from_secs(2);
/// Readers of a file at most, with those that the device keeps.
const MOST: usize = 64;

/// A block that is to be read, or is being read.
pub(crate) struct Begun {
    pub(crate) block: u64,
    /// The bytes of it that are read.
    pub(crate) from: u64,
    pub(crate) len: usize,
    /// Memory of a block that went for it. It goes where the block goes: what is counted as one block takes the memory of
    /// one, whichever reader comes to it, and when.
    pub(crate) memory: Option<Buffer>,
}

/// What readers are at.
#[derive(Default)]
pub(crate) struct Away {
    /// Readers that read, wait for the device, or hand on what has come.
    count: usize,
    /// How often one came back.
    returns: u64,
    /// When it is looked whether one has come back, and `returns` before.
    pub(super) look: Option<(Instant, u64)>,
    /// Blocks that the system was asked for, the oldest first, each of which will be there when a reader waits for it.
    pub(crate) begun: VecDeque<Begun>,
    /// Readers that were made beyond those that there should be.
    stand_ins: usize,
    /// How often some were made.
    rounds: u64,
    /// Readers that have been away since before that was last so.
    kept: usize,
}

impl Inner {
    /// A reader has come back that went in this round ([`Shared::leaves`]).
    pub(crate) fn returns(&mut self, round: u64) {
        let away = &mut self.away;
        away.count = away.count.saturating_sub(1);
        away.returns += 1;
        if round < away.rounds {
            // Nobody has to stand in for it any more. Whoever next looks for work ends ([`Shared::too_many`]).
            away.kept = away.kept.saturating_sub(1);
            away.stand_ins = away.stand_ins.min(away.kept);
        }
    }

    /// Readers that neither sleep nor are kept by the device: what comes is their work.
    pub(super) fn busy(&self) -> usize {
        self.at_work().saturating_sub(self.away.kept)
    }

    /// How many more blocks the system may be asked for, with so many in flight for each reader.
    pub(crate) fn room_to_begin(&self, depth: usize, readers: usize) -> usize {
        let most = depth.saturating_mul(self.readers.min(readers));
        // Each that is away has one of these.
        most.saturating_sub(self.away.count).max(1).saturating_sub(self.away.begun.len())
    }

    /// Readers that do not sleep.
    pub(super) fn at_work(&self) -> usize {
        self.readers.saturating_sub(self.asleep)
    }

    /// True if somebody waits, and no reader is there.
    fn misses_readers(&self) -> bool {
        // Those who sleep are called by nobody while as many are at work as should be.
        let away = self.away.count > 0 && self.away.count >= self.at_work();
        away && self.readers < MOST && !self.waiting.is_empty()
    }
}

impl Shared {
    /// A reader goes to read, to wait for the device, or to hand on what has come. Gives what it tells when it is back.
    pub(crate) fn leaves(self: &Arc<Self>, inner: &mut Inner) -> u64 {
        inner.away.count += 1;
        self.mind(inner);
        inner.away.rounds
    }

    /// True if somebody waits for what a reader could begin, and none is there.
    fn misses_readers(&self, inner: &Inner) -> bool {
        inner.misses_readers() && (!inner.away.begun.is_empty() || self.may_begin(inner))
    }

    /// Has somebody look after a while whether readers have come back, if none is there.
    fn mind(self: &Arc<Self>, inner: &mut Inner) {
        if inner.away.look.is_none() && self.misses_readers(inner) {
            let at = clock::after(KEPT);
            inner.away.look = Some((at, inner.away.returns));
            // Without a thread nobody stands in for them.
            let _ = self.look_after(inner, at);
        }
    }

    /// Looks whether readers have come back, if it is time to. Gives how many more there are to be.
    pub(super) fn look_for_readers(self: &Arc<Self>, inner: &mut Inner, now: Instant) -> usize {
        let due = inner.away.look.take_if(|(at, _)| *at <= now);
        // Who comes much too late was stopped, perhaps with all readers.
        let in_time = |at: Instant| now.saturating_duration_since(at) <= LATE;
        let none_came =
            due.is_some_and(|(at, returns)| in_time(at) && returns == inner.away.returns);
        let more = if none_came && self.misses_readers(inner) {
            inner.away.count.min(MOST - inner.readers)
        } else {
            0
        };
        if more > 0 {
            inner.away.rounds += 1;
            inner.away.kept = inner.away.count;
        }
        self.mind(inner);
        if let Some((at, _)) = inner.away.look {
            let _ = self.look_after(inner, at);
        }
        more
    }

    /// So many more readers, as those that there are do not come back.
    pub(super) fn stand_in(self: &Arc<Self>, more: usize) {
        for _ in 0..more {
            // Those that there are may still come back.
            let mut inner = self.lock();
            if inner.away.kept == 0 {
                return;
            }
            inner.away.stand_ins += 1;
            if inner.asleep > inner.called {
                inner.called += 1;
                drop(inner);
                self.work.notify_one();
                continue;
            }
            if self.start_reader(inner).is_err() {
                // There is none.
                self.count_stand_ins(&mut self.lock());
                return;
            }
        }
    }

    /// Blocks that the system was asked for, for whichever reader comes first.
    pub(crate) fn put_begun(&self, blocks: impl IntoIterator<Item = Begun>) {
        self.lock().away.begun.extend(blocks);
    }

    /// The oldest of them.
    pub(crate) fn take_begun(&self) -> Option<Begun> {
        self.lock().away.begun.pop_front()
    }

    /// A reader is about to wait for a block: others may wait for more.
    pub(crate) fn waits(self: &Arc<Self>) {
        if self.lanes.get().is_none() {
            // It goes on alone if there can be no other.
            let _ = self.call(self.lock(), true);
        }
    }

    /// True if more readers are at work than should be, so that one of them is to end.
    pub(crate) fn too_many(&self, inner: &Inner) -> bool {
        inner.at_work() > self.readers() + inner.away.stand_ins
    }

    /// A reader has ended, as there is nothing to do for it, or there are too many.
    pub(crate) fn ends(self: &Arc<Self>, inner: &mut Inner) {
        self.count_stand_ins(inner);
        self.mind(inner);
    }

    /// There are fewer readers than before: stand-ins are no more than those beyond what there should be.
    fn count_stand_ins(&self, inner: &mut Inner) {
        let more = inner.readers.saturating_sub(self.readers());
        inner.away.stand_ins = inner.away.stand_ins.min(more);
    }

    /// Wakes a reader, or makes one.
    pub(super) fn call_readers(self: &Arc<Self>, inner: MutexGuard<'_, Inner>) -> Result<()> {
        let more = self.choice.whole || inner.window.queued() >= self.depth();
        self.call(inner, more)
    }

    /// As [`Shared::call_readers`]; makes one only if there is `more` than those that there are would read.
    fn call(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>, more: bool) -> Result<()> {
        let most = self.readers() + inner.away.stand_ins;
        if inner.readers > 0 && inner.at_work() + inner.called >= most {
            // Each of those looks for more before it sleeps.
            self.mind(&mut inner);
            return Ok(());
        }
        if inner.asleep > inner.called {
            inner.called += 1;
            drop(inner);
            self.work.notify_one();
            return Ok(());
        }
        // Who begins blocks takes them, unless it has fallen.
        let left = inner.readers == 0 && !inner.away.begun.is_empty();
        let work = inner.window.has_work() || left;
        if !(work || inner.untaken.is_late())
            || (inner.readers > 0 && (inner.readers >= self.most_readers(&inner) || !more))
        {
            self.mind(&mut inner);
            return Ok(());
        }
        let first = inner.readers == 0;
        match self.start_reader(inner) {
            // Others will do it.
            Err(_) if !first => Ok(()),
            started => started,
        }
    }

    fn start_reader(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) -> Result<()> {
        inner.readers += 1;
        drop(inner);
        spawn(self.clone()).map_err(|e| {
            self.lock().readers -= 1;
            Error::io("start a reader for", self.source.path(), e)
        })
    }

    /// Readers that there may be: no more than there are blocks for them.
    fn most_readers(&self, inner: &Inner) -> usize {
        let most = self.readers();
        if inner.wanted == 0 {
            return most;
        }
        // Others, as other ranks, may ask for what lies outside all sessions.
        let asked = inner.window.queued().saturating_add(inner.window.being_read());
        most.min(usize::try_from(inner.wanted).unwrap_or(usize::MAX).max(asked))
    }

    /// A reader could not begin. If there is no other one, nobody waits for ever.
    pub(crate) fn lost(self: &Arc<Self>, error: &Error) {
        let mut inner = self.lock();
        inner.readers -= 1;
        self.count_stand_ins(&mut inner);
        if inner.readers > 0 {
            return;
        }
        // Dropped without the lock.
        let begun = std::mem::take(&mut inner.away.begun);
        let reading: Vec<u64> = inner.window.reading().collect();
        for block in reading {
            inner.window.abandon(block);
        }
        let tickets: Vec<Ticket> = inner.waiting.keys().copied().collect();
        self.fail(inner, &tickets, error);
        drop(begun);
    }

    /// A reader has ended by a defect, in the source perhaps: those who wait for blocks that it had begun fail, and another
    /// one goes on for the others. It was away since `round`.
    pub(crate) fn fell(self: &Arc<Self>, begun: &[u64], round: u64) {
        let mut inner = self.lock();
        inner.readers -= 1;
        // Where it was when it fell.
        inner.returns(round);
        self.count_stand_ins(&mut inner);
        let tickets: Vec<Ticket> =
            begun.iter().flat_map(|block| inner.window.abandon(*block)).collect();
        self.fail(inner, &tickets, &Error::internal("a reader ended by a defect"));
        let inner = self.lock();
        let none = inner.readers == 0;
        if let Err(error) = self.call_readers(inner)
            && none
        {
            self.lock().readers += 1;
            self.lost(&error);
        }
    }
}

/// A thread that reads.
fn spawn(shared: Arc<Shared>) -> std::io::Result<()> {
    #[cfg(test)]
    if tests::NO_THREADS.get() {
        return Err(std::io::ErrorKind::WouldBlock.into());
    }
    let thread = sync::thread::Builder::new().name("stead-read".to_owned());
    thread.spawn(move || Reader::run(shared)).map(drop)
}

#[cfg(test)]
#[path = "readers_tests.rs"]
mod tests;
