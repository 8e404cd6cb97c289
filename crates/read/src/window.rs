//! Which blocks of a file are there, who waits for which, and what is read next.
//!
//! A pure state machine: no threads, no reads, no clock. Whoever drives it holds it under one lock and does what
//! it says. A block is *absent*, *queued* (somebody waits for it), *reading*, or *ready*.
//!
//! - Blocks that somebody waits for go before those that are read ahead.
//! - Sessions read ahead in the order of the file, in turns. What was read ahead and not yet asked for takes at most
//!   half of the budget, and is not given up for more of its kind.
//! - At most `most` blocks are counted as reading or ready. To begin another one, a ready block that nobody has a
//!   view of is forgotten: first those that were asked for as a whole, the oldest first.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;

/// Names a request.
pub(crate) type Ticket = u64;

/// What a ready block holds.
pub(crate) trait Held {
    /// True while somebody outside has a view of it, so that it must stay.
    fn lent(&self) -> bool;
}

#[derive(Debug)]
enum State<H> {
    Queued,
    Reading,
    Ready(H),
}

#[derive(Debug)]
struct Block<H> {
    state: State<H>,
    /// Requests that wait for it.
    waiters: Vec<Ticket>,
    /// Bytes of it that were asked for, all requests together.
    asked: u64,
    /// Bytes of it that open sessions may still ask for.
    expected: u64,
    /// When it was last asked for or came.
    stamp: u64,
    /// It takes part in the budget.
    counted: bool,
}

impl<H> Block<H> {
    /// Read, or being read, for somebody who did not ask yet.
    fn ahead(&self) -> bool {
        self.counted && self.asked < self.expected
    }

    fn free(&self) -> bool
    where
        H: Held,
    {
        matches!(&self.state, State::Ready(held) if !held.lent())
    }
}

/// A range of bytes that is read ahead.
#[derive(Debug)]
struct Session {
    bytes: Range<u64>,
    /// Next block to look at.
    next: u64,
}

/// What a reader should do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Next<H> {
    /// Read this block. What was forgotten to make room for it comes along, for its memory.
    Read(u64, Option<H>),
    /// Somebody waits, but all room is taken by blocks that are being read or looked at.
    Full,
    /// Nothing to do.
    Idle,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Window<H> {
    /// Bytes of a block.
    size: u64,
    /// Counted blocks at most.
    most: usize,
    blocks: HashMap<u64, Block<H>>,
    counted: usize,
    /// Of the counted ones, those read ahead.
    ahead: usize,
    demand: VecDeque<u64>,
    sessions: BTreeMap<u64, Session>,
    /// The session whose turn it is.
    turn: u64,
    clock: u64,
}

impl<H: Held> Window<H> {
    /// Blocks of `size` bytes, `most` of them at a time (at least one).
    pub(crate) fn new(size: u64, most: usize) -> Self {
        Window {
            size: size.max(1),
            most: most.max(1),
            blocks: HashMap::new(),
            counted: 0,
            ahead: 0,
            demand: VecDeque::new(),
            sessions: BTreeMap::new(),
            turn: 0,
            clock: 0,
        }
    }

    /// Begins to read `bytes` ahead, for the session `id`.
    pub(crate) fn open(&mut self, id: u64, bytes: Range<u64>) {
        let next = bytes.start / self.size;
        self.sessions.insert(id, Session { bytes, next });
        self.expect_anew();
    }

    /// Reads nothing more ahead for it. What is there stays for others.
    pub(crate) fn close(&mut self, id: u64) {
        self.sessions.remove(&id);
        self.expect_anew();
    }

    /// The block if it is there.
    pub(crate) fn ready(&self, block: u64) -> Option<&H> {
        match self.blocks.get(&block) {
            Some(Block { state: State::Ready(held), .. }) => Some(held),
            _ => None,
        }
    }

    /// True if nothing is known about a block, so that it pays to look whether it is there already.
    pub(crate) fn unknown(&self, block: u64) -> bool {
        !self.blocks.contains_key(&block)
    }

    /// Notes that a block is there without having been read, and takes no memory of the budget.
    pub(crate) fn found(&mut self, block: u64, held: H) {
        if self.unknown(block) {
            self.insert(block, State::Ready(held));
        }
    }

    /// Asks for `bytes` bytes of a block. `None` if `ticket` has to wait for it.
    pub(crate) fn ask(&mut self, ticket: Ticket, block: u64, bytes: u64) -> Option<&H> {
        if self.unknown(block) {
            self.insert(block, State::Queued);
            self.demand.push_back(block);
        }
        let stamp = self.tick();
        let waits = !matches!(self.blocks.get(&block)?.state, State::Ready(_));
        self.change(block, |b| {
            b.asked = b.asked.saturating_add(bytes);
            b.stamp = stamp;
            if waits {
                b.waiters.push(ticket);
            }
        });
        self.ready(block)
    }

    /// `ticket` no longer waits for a block. Nobody reads what nobody waits for.
    pub(crate) fn cancel(&mut self, ticket: Ticket, block: u64) {
        let Some(b) = self.blocks.get_mut(&block) else { return };
        b.waiters.retain(|t| *t != ticket);
        if b.waiters.is_empty() && matches!(b.state, State::Queued) {
            self.blocks.remove(&block);
            self.demand.retain(|d| *d != block);
        }
    }

    /// What to read now.
    pub(crate) fn take(&mut self) -> Next<H> {
        if let Some(block) = self.demand.front().copied() {
            let Some(room) = self.room(true) else { return Next::Full };
            self.demand.pop_front();
            self.begin(block);
            return Next::Read(block, room);
        }
        // Half is for what is demanded meanwhile, and for views that are held.
        if self.ahead >= self.most.div_ceil(2) {
            return Next::Idle;
        }
        let Some(block) = self.look_ahead() else { return Next::Idle };
        let Some(room) = self.room(false) else { return Next::Idle };
        self.insert(block, State::Reading);
        self.begin(block);
        Next::Read(block, room)
    }

    /// A block came. Returns who waited for it.
    pub(crate) fn arrived(&mut self, block: u64, held: H) -> Vec<Ticket> {
        let stamp = self.tick();
        let mut waiters = Vec::new();
        self.change(block, |b| {
            b.state = State::Ready(held);
            b.stamp = stamp;
            waiters = std::mem::take(&mut b.waiters);
        });
        waiters
    }

    /// A block could not be read; it is not tried again before somebody asks. Returns who waited for it.
    pub(crate) fn failed(&mut self, block: u64) -> Vec<Ticket> {
        for session in self.sessions.values_mut() {
            if session.next == block {
                session.next += 1;
            }
        }
        self.remove(block).map(|b| b.waiters).unwrap_or_default()
    }

    /// Counted blocks: reading and ready.
    pub(crate) fn counted(&self) -> usize {
        self.counted
    }

    /// Blocks that somebody waits for and nobody reads yet.
    pub(crate) fn queued(&self) -> usize {
        self.demand.len()
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    fn insert(&mut self, block: u64, state: State<H>) {
        let stamp = self.tick();
        let expected = self.expected(block);
        let waiters = Vec::new();
        let b = Block { state, waiters, asked: 0, expected, stamp, counted: false };
        self.blocks.insert(block, b);
    }

    fn begin(&mut self, block: u64) {
        self.counted += 1;
        self.change(block, |b| {
            b.state = State::Reading;
            b.counted = true;
        });
    }

    /// Changes a block and keeps the number of those read ahead.
    fn change(&mut self, block: u64, change: impl FnOnce(&mut Block<H>)) {
        let Some(b) = self.blocks.get_mut(&block) else { return };
        let before = b.ahead();
        change(b);
        let after = b.ahead();
        self.ahead = self.ahead + usize::from(after) - usize::from(before);
    }

    /// Bytes of a block that the session with most of them covers.
    fn expected(&self, block: u64) -> u64 {
        let from = block * self.size;
        let to = from.saturating_add(self.size);
        let covered = |s: &Session| s.bytes.end.min(to).saturating_sub(s.bytes.start.max(from));
        self.sessions.values().map(covered).max().unwrap_or(0)
    }

    fn expect_anew(&mut self) {
        let names: Vec<u64> = self.blocks.keys().copied().collect();
        for block in names {
            let expected = self.expected(block);
            self.change(block, |b| b.expected = expected);
        }
    }

    /// The next block that some session wants and nobody has. It stays the next one until somebody has it.
    fn look_ahead(&mut self) -> Option<u64> {
        for _ in 0..self.sessions.len() {
            let turn = self.turn;
            let after = self.sessions.range_mut(turn..).next().map(|(id, _)| *id);
            let id = after.or_else(|| self.sessions.keys().next().copied())?;
            self.turn = id.wrapping_add(1);
            let session = self.sessions.get_mut(&id)?;
            let end = session.bytes.end.div_ceil(self.size);
            while session.next < end && self.blocks.contains_key(&session.next) {
                session.next += 1;
            }
            if session.next < end {
                return Some(session.next);
            }
        }
        None
    }

    /// Room for one more block: `Some(None)` if there is some, `Some(Some(_))` if a block had to go.
    fn room(&mut self, demanded: bool) -> Option<Option<H>> {
        if self.counted < self.most {
            return Some(None);
        }
        let may_go = |b: &Block<H>| b.counted && b.free() && (demanded || !b.ahead());
        let victim = self
            .blocks
            .iter()
            .filter(|(_, b)| may_go(b))
            .min_by_key(|(_, b)| (b.ahead(), b.stamp))
            .map(|(n, _)| *n)?;
        Some(self.forget(victim))
    }

    fn forget(&mut self, block: u64) -> Option<H> {
        match self.remove(block)?.state {
            State::Ready(held) => Some(held),
            State::Queued | State::Reading => None,
        }
    }

    fn remove(&mut self, block: u64) -> Option<Block<H>> {
        let b = self.blocks.remove(&block)?;
        self.counted -= usize::from(b.counted);
        self.ahead -= usize::from(b.ahead());
        Some(b)
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
