//! Memory where blocks are in memory: how many there may be, and answers that nobody has taken.

use super::{Inner, Kept, Shared};
use crate::sync::fence;
use crate::window::{Next, Ticket};
use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::Ordering;
use stead_core::limits;

/// Places that blocks come from: only so many reads of each are under way at a time, so that one that hangs does not
/// keep all readers.
pub(crate) struct Lanes {
    /// The place of the block that begins at an offset.
    pub(crate) of: Box<dyn Fn(u64) -> usize + Send + Sync>,
    /// Reads of one place at a time.
    pub(crate) most: usize,
}

impl Shared {
    /// Says where blocks come from, before anybody asks for one.
    pub(crate) fn set_lanes(&self, lanes: Lanes) {
        let _ = self.lanes.set(lanes);
    }

    /// So many bytes of blocks from now on, and some in any case.
    pub(crate) fn set_share(&self, bytes: u64) {
        let bytes = bytes.max(limits::LEAST_SESSION_MEMORY).min(self.memory);
        let most = usize::try_from(bytes / self.choice.block).unwrap_or(usize::MAX);
        let gone = self.lock().window.set_most(most);
        drop(gone);
        self.work.notify_all();
    }

    /// Drops the blocks that nobody has a view of.
    pub(crate) fn clear(&self) {
        let gone = self.lock().window.clear();
        drop(gone);
    }

    /// Copies answers that nobody has taken out of their blocks, so that these can be used for others: tasks may
    /// ask for all they will ever want before they take the first answer.
    pub(crate) fn relieve(&self) {
        if let Some(holders) = self.holders.get().and_then(Weak::upgrade) {
            holders.press();
        }
        let inner = self.lock();
        let untaken: Vec<_> = inner.untaken.values().filter_map(Weak::upgrade).collect();
        drop(inner);
        for request in untaken {
            request.let_go();
        }
    }

    /// Somebody waits for a request at this moment.
    pub(crate) fn urge(&self, ticket: Ticket) {
        if self.maps() {
            return;
        }
        let mut inner = self.lock();
        if inner.waiting.contains_key(&ticket) {
            inner.urged.insert(ticket);
        }
        drop(inner);
        self.let_go();
    }

    /// Takes note of so many bytes of an answer that nobody has taken.
    pub(crate) fn keep(&self, bytes: usize) {
        self.own.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    /// They were taken, or nobody wants them.
    pub(crate) fn kept_no_more(&self, bytes: usize) {
        self.own.fetch_sub(bytes as u64, Ordering::SeqCst);
        self.let_go();
    }

    /// What a reader should do next. With more answers than the budget that nobody takes, only what somebody waits for at
    /// this moment is read.
    pub(crate) fn take(&self, inner: &mut Inner) -> Next<Kept> {
        let urged = inner.window.queued() > 0 && self.own.load(Ordering::SeqCst) > self.memory;
        match (self.lanes.get(), urged) {
            (None, false) => inner.window.take(),
            (None, true) => self.take_urged(inner, |_| true),
            (Some(lanes), _) => {
                let lane = |block: u64| (lanes.of)(block.saturating_mul(self.choice.block));
                let mut busy: BTreeMap<usize, usize> = BTreeMap::new();
                inner.window.reading().for_each(|b| *busy.entry(lane(b)).or_default() += 1);
                let may = |b| busy.get(&lane(b)).is_none_or(|reads| *reads < lanes.most);
                if urged { self.take_urged(inner, may) } else { inner.window.take_of(may) }
            }
        }
    }

    fn take_urged(&self, inner: &mut Inner, may: impl Fn(u64) -> bool) -> Next<Kept> {
        let block = inner.urged.iter().find_map(|ticket| {
            let (offset, len) = inner.waiting.get(ticket)?.request.range();
            self.blocks(offset, len).find(|b| inner.window.is_queued(*b) && may(*b))
        });
        block.map_or(Next::Full, |block| inner.window.take_this(block))
    }

    /// A reader no longer waits for room.
    pub(crate) fn fed(&self, inner: &mut Inner) {
        inner.starving -= 1;
        if inner.starving == 0 {
            self.starved.store(false, Ordering::SeqCst);
        }
    }

    /// A view was dropped, or a block is no longer held for the moment of handing it on.
    pub(crate) fn let_go(&self) {
        // A reader that found all blocks lent has said so before it looked for the last time.
        fence(Ordering::SeqCst);
        if self.starved.load(Ordering::SeqCst) {
            drop(self.lock());
            self.work.notify_all();
        }
    }
}
