//! Which blocks of a file are there, who waits for which, and what is read next.
//!
//! A pure state machine: no threads, no reads, no clock. Whoever drives it holds it under one lock and does what
//! it says. A block is *absent*, *queued* (somebody waits for it), *reading*, or *ready*.
//!
//! - Blocks that somebody waits for go before those that are read ahead.
//! - Sessions read ahead in the order of the file, in turns. What was read ahead and not yet asked for takes at most
//!   half of the budget, and is not given up for more of its kind.
//! - At most `most` blocks are reading or ready. To begin another one, a ready block that nobody has a view of is
//!   forgotten: first those that were asked for as a whole, the oldest first.
//!
//! Each step takes logarithmic time in the number of blocks, requests and sessions.

use crate::served::Served;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
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
    waiters: BTreeSet<Ticket>,
    /// Bytes of it that were asked for, all requests together.
    asked: u64,
    /// Bytes of it that open sessions may still ask for.
    expected: u64,
    /// When it was last asked for or came.
    stamp: u64,
}

/// Names a ready block in the order in which blocks are given up.
type Turn = (bool, u64, u64);

impl<H> Block<H> {
    /// Read, or being read, for somebody who did not ask yet.
    fn ahead(&self) -> bool {
        !matches!(self.state, State::Queued) && self.asked < self.expected
    }

    /// Its place among those that may be given up.
    fn turn(&self, name: u64) -> Option<Turn> {
        matches!(self.state, State::Ready(_)).then_some((self.ahead(), self.stamp, name))
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
    /// Read this block. One that was forgotten to make room for it comes along, for its memory.
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
    /// Blocks at most that are reading or ready.
    most: usize,
    blocks: HashMap<u64, Block<H>>,
    /// Of the blocks, those that somebody waits for and nobody reads.
    queued: usize,
    /// Of the blocks, those that are reading or ready, for somebody who did not ask yet.
    ahead: usize,
    /// The ready ones in the order in which they are given up.
    ready: BTreeSet<Turn>,
    /// Queued blocks in the order in which they were asked for, and some that are queued no longer.
    demand: VecDeque<u64>,
    sessions: HashMap<u64, Session>,
    /// The ranges of sessions, and how many have each.
    ranges: BTreeMap<(u64, u64), usize>,
    /// The sessions with something left to be read ahead.
    reading: BTreeSet<u64>,
    /// Blocks that came by demand and went again, which are not read ahead any more; kept while something is.
    served: Served,
    /// The session whose turn it is.
    turn: u64,
    clock: u64,
}

/// Sessions that are looked at for what may still be asked of a block. With more of them around it, a block may be
/// given up sooner than it should, and is read again.
const LOOKED_AT: usize = 64;

impl<H: Held> Window<H> {
    /// Blocks of `size` bytes, `most` of them at a time (at least one).
    pub(crate) fn new(size: u64, most: usize) -> Self {
        Window {
            size: size.max(1),
            most: most.max(1),
            blocks: HashMap::new(),
            queued: 0,
            ahead: 0,
            ready: BTreeSet::new(),
            demand: VecDeque::new(),
            sessions: HashMap::new(),
            ranges: BTreeMap::new(),
            reading: BTreeSet::new(),
            served: Served::default(),
            turn: 0,
            clock: 0,
        }
    }

    /// Begins to read `bytes` ahead, for the session `id`.
    pub(crate) fn open(&mut self, id: u64, bytes: Range<u64>) {
        self.close(id);
        if bytes.is_empty() {
            return;
        }
        let next = bytes.start / self.size;
        self.served.remove(next, bytes.end.div_ceil(self.size));
        let range = (bytes.start, bytes.end);
        self.sessions.insert(id, Session { bytes, next });
        self.reading.insert(id);
        let count = self.ranges.entry(range).or_insert(0);
        *count += 1;
        if *count == 1 {
            self.expect_anew(range);
        }
    }

    /// Reads nothing more ahead for it. What is there stays for others.
    pub(crate) fn close(&mut self, id: u64) {
        let Some(session) = self.sessions.remove(&id) else { return };
        self.has_read_ahead(id);
        let range = (session.bytes.start, session.bytes.end);
        let Some(count) = self.ranges.get_mut(&range) else { return };
        *count -= 1;
        if *count == 0 {
            self.ranges.remove(&range);
            self.expect_anew(range);
        }
    }

    /// From now on so many blocks at most (at least one); those that are too many and may go are handed out.
    pub(crate) fn set_most(&mut self, most: usize) -> Vec<H> {
        self.most = most.max(1);
        let mut gone = Vec::new();
        while self.counted() > self.most {
            let Some(victim) = self.victim(true) else { break };
            gone.extend(self.forget(victim));
        }
        gone
    }

    /// Blocks at most.
    pub(crate) fn most(&self) -> usize {
        self.most
    }

    /// As [`Window::set_most`], but those that are too many go when others need the room.
    pub(crate) fn limit(&mut self, most: usize) {
        self.most = most.max(1);
    }

    /// True if so many could go that at most `most` are left.
    pub(crate) fn may_shrink_to(&self, most: usize) -> bool {
        let surplus = self.counted().saturating_sub(most);
        let free = |(_, _, name): &&Turn| self.ready(*name).is_some_and(|held| !held.lent());
        self.ready.iter().filter(free).take(surplus).count() == surplus
    }

    /// Forgets a block if it is ready and nobody has a view of it.
    pub(crate) fn drop_free(&mut self, block: u64) -> Option<H> {
        let free = self.ready(block).is_some_and(|held| !held.lent());
        if free { self.forget(block) } else { None }
    }

    /// Blocks that are being read.
    pub(crate) fn being_read(&self) -> usize {
        self.counted() - self.ready.len()
    }

    /// True if some block is being read.
    pub(crate) fn is_reading(&self) -> bool {
        self.being_read() > 0
    }

    /// Drops all blocks that may go, and hands them out.
    pub(crate) fn clear(&mut self) -> Vec<H> {
        let mut gone = Vec::new();
        while let Some(victim) = self.victim(true) {
            gone.extend(self.forget(victim));
        }
        gone
    }

    /// Forgets some blocks that are ready and that nobody has a view of, of those for which `which` is true, in the order in
    /// which they are given up.
    pub(crate) fn give_up(&mut self, most: usize, which: impl Fn(u64) -> bool) -> Vec<H> {
        let free = |name: &u64| self.ready(*name).is_some_and(|held| !held.lent());
        let names = self.ready.iter().map(|(_, _, name)| *name);
        let names: Vec<u64> = names.filter(|name| which(*name) && free(name)).take(most).collect();
        names.into_iter().filter_map(|name| self.forget(name)).collect()
    }

    /// A block that is being read does not come. Returns who waited for it.
    pub(crate) fn abandon(&mut self, block: u64) -> Vec<Ticket> {
        let reading = |b: &Block<H>| matches!(b.state, State::Reading);
        if self.blocks.get(&block).is_some_and(reading) {
            self.done_with(block)
        } else {
            Vec::new()
        }
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

    /// True if there is something that a reader might do.
    pub(crate) fn has_work(&self) -> bool {
        self.queued > 0 || (!self.reading.is_empty() && self.ahead < self.most.div_ceil(2))
    }

    /// Asks for `bytes` bytes of a block. `None` if `ticket` has to wait for it.
    pub(crate) fn ask(&mut self, ticket: Ticket, block: u64, bytes: u64) -> Option<&H> {
        if self.unknown(block) {
            self.insert(block, State::Queued);
            self.queued += 1;
            self.demand.push_back(block);
        }
        let stamp = self.tick();
        self.change(block, |b| {
            b.asked = b.asked.saturating_add(bytes);
            b.stamp = stamp;
            if !matches!(b.state, State::Ready(_)) {
                b.waiters.insert(ticket);
            }
        });
        self.ready(block)
    }

    /// `ticket` no longer waits for a block. Nobody reads what nobody waits for.
    pub(crate) fn cancel(&mut self, ticket: Ticket, block: u64) {
        let Some(b) = self.blocks.get_mut(&block) else { return };
        if b.waiters.remove(&ticket) && b.waiters.is_empty() && matches!(b.state, State::Queued) {
            self.remove(block);
            // It stays in the queue of demand until its turn, or until there are too many of its kind.
            self.tidy_demand();
        }
    }

    /// What to read now.
    pub(crate) fn take(&mut self) -> Next<H> {
        while let Some(block) = self.demand.front().copied() {
            let next = self.take_this(block);
            if !matches!(next, Next::Full) {
                self.demand.pop_front();
            }
            if !matches!(next, Next::Idle) {
                return next;
            }
        }
        // Half is for what is demanded meanwhile, and for views that are held.
        if self.ahead >= self.most.div_ceil(2) {
            return Next::Idle;
        }
        let Some((id, block)) = self.look_ahead() else { return Next::Idle };
        let Some(room) = self.room(false) else { return Next::Idle };
        if let Some(session) = self.sessions.get_mut(&id) {
            session.next += 1;
        }
        self.insert(block, State::Reading);
        Next::Read(block, room)
    }

    /// As [`Window::take`], of the blocks that somebody waits for and that `may` be read now. Reads nothing ahead.
    pub(crate) fn take_of(&mut self, may: impl Fn(u64) -> bool) -> Next<H> {
        while self.demand.front().is_some_and(|block| !self.is_queued(*block)) {
            self.demand.pop_front();
        }
        let first = self.demand.iter().copied().find(|block| self.is_queued(*block) && may(*block));
        let next = first.map_or(Next::Idle, |block| self.take_this(block));
        self.tidy_demand();
        next
    }

    /// True if there is a block that somebody waits for, that nobody reads, and that `may` be read now.
    pub(crate) fn demands(&self, may: impl Fn(u64) -> bool) -> bool {
        self.demand.iter().any(|block| self.is_queued(*block) && may(*block))
    }

    /// Blocks that are being read.
    pub(crate) fn reading(&self) -> impl Iterator<Item = u64> + '_ {
        let reading = |(_, b): &(&u64, &Block<H>)| matches!(b.state, State::Reading);
        self.blocks.iter().filter(reading).map(|(name, _)| *name)
    }

    /// Forgets those that are queued no longer, if they are many.
    fn tidy_demand(&mut self) {
        if self.demand.len() > 2 * self.queued + 64 {
            let blocks = &self.blocks;
            self.demand.retain(|d| blocks.get(d).is_some_and(|b| matches!(b.state, State::Queued)));
        }
    }

    /// True if somebody waits for a block and nobody reads it.
    fn is_queued(&self, block: u64) -> bool {
        self.blocks.get(&block).is_some_and(|b| matches!(b.state, State::Queued))
    }

    /// True if `ticket` waits for a block and nobody reads it.
    pub(crate) fn is_queued_for(&self, ticket: Ticket, block: u64) -> bool {
        let queued = |b: &Block<H>| matches!(b.state, State::Queued) && b.waiters.contains(&ticket);
        self.blocks.get(&block).is_some_and(queued)
    }

    /// Bytes of a block that were asked for, all requests together.
    pub(crate) fn asked(&self, block: u64) -> u64 {
        self.blocks.get(&block).map_or(0, |b| b.asked)
    }

    /// Reads this block if it is queued.
    fn take_this(&mut self, block: u64) -> Next<H> {
        if !self.is_queued(block) {
            return Next::Idle;
        }
        let Some(room) = self.room(true) else { return Next::Full };
        self.queued -= 1;
        self.change(block, |b| b.state = State::Reading);
        Next::Read(block, room)
    }

    /// A block came. Returns who waited for it.
    pub(crate) fn arrived(&mut self, block: u64, held: H) -> Vec<Ticket> {
        let reading = |b: &Block<H>| matches!(b.state, State::Reading);
        if !self.blocks.get(&block).is_some_and(reading) {
            // It was given up meanwhile.
            return Vec::new();
        }
        let stamp = self.tick();
        let mut waiters = BTreeSet::new();
        self.change(block, |b| {
            b.state = State::Ready(held);
            b.stamp = stamp;
            waiters = std::mem::take(&mut b.waiters);
        });
        waiters.into_iter().collect()
    }

    /// A block could not be read, or is there without memory of ours: nothing needs to be known about it, and it is
    /// not read again before somebody asks. Returns who waited for it.
    pub(crate) fn done_with(&mut self, block: u64) -> Vec<Ticket> {
        self.remove(block).map(|b| b.waiters.into_iter().collect()).unwrap_or_default()
    }

    /// Blocks that are reading or ready.
    pub(crate) fn counted(&self) -> usize {
        self.blocks.len() - self.queued
    }

    /// Blocks that somebody waits for and nobody reads yet.
    pub(crate) fn queued(&self) -> usize {
        self.queued
    }

    fn tick(&mut self) -> u64 {
        self.clock += 1;
        self.clock
    }

    /// `Queued` ones are counted by whoever inserts them.
    fn insert(&mut self, block: u64, state: State<H>) {
        let stamp = self.tick();
        let expected = self.expected(block);
        let b = Block { state, waiters: BTreeSet::new(), asked: 0, expected, stamp };
        self.ahead += usize::from(b.ahead());
        self.blocks.insert(block, b);
    }

    /// Changes a block, and what is counted and ordered with it.
    fn change(&mut self, block: u64, change: impl FnOnce(&mut Block<H>)) {
        let Some(b) = self.blocks.get_mut(&block) else { return };
        let (ahead, turn) = (b.ahead(), b.turn(block));
        change(b);
        self.ahead = self.ahead + usize::from(b.ahead()) - usize::from(ahead);
        let now = b.turn(block);
        if turn != now {
            if let Some(turn) = turn {
                self.ready.remove(&turn);
            }
            self.ready.extend(now);
        }
    }

    /// Bytes of a block that the session with most of them covers.
    fn expected(&self, block: u64) -> u64 {
        let from = block * self.size;
        let to = from.saturating_add(self.size);
        let before = self.ranges.range(..(to, 0)).rev().take(LOOKED_AT);
        before.map(|((a, b), _)| to.min(*b).saturating_sub(from.max(*a))).max().unwrap_or(0)
    }

    /// The part of a block that sessions cover; all of it if there are none.
    pub(crate) fn covered(&self, block: u64) -> Range<u64> {
        let from = block.saturating_mul(self.size);
        let to = from.saturating_add(self.size);
        let sessions = self.ranges.range(..(to, 0)).rev().take(LOOKED_AT);
        let parts = sessions.map(|((a, b), _)| from.max(*a)..to.min(*b)).filter(|p| !p.is_empty());
        let all = parts.reduce(|a, b| a.start.min(b.start)..a.end.max(b.end));
        all.unwrap_or(from..to)
    }

    /// Sessions over a range have come or gone.
    fn expect_anew(&mut self, (from, to): (u64, u64)) {
        let within = from / self.size..to.div_ceil(self.size);
        let names: Vec<u64> = if within.end - within.start < self.blocks.len() as u64 {
            within.filter(|b| self.blocks.contains_key(b)).collect()
        } else {
            self.blocks.keys().copied().filter(|b| within.contains(b)).collect()
        };
        for block in names {
            let expected = self.expected(block);
            self.change(block, |b| b.expected = expected);
        }
    }

    /// The next block that some session wants and nobody has, in turns.
    fn look_ahead(&mut self) -> Option<(u64, u64)> {
        loop {
            let after = self.reading.range(self.turn..).next();
            let id = after.or_else(|| self.reading.first()).copied()?;
            self.turn = id.wrapping_add(1);
            let session = self.sessions.get_mut(&id)?;
            let end = session.bytes.end.div_ceil(self.size);
            while session.next < end {
                session.next = match self.served.end(session.next) {
                    Some(next) => next,
                    None if self.blocks.contains_key(&session.next) => session.next + 1,
                    None => break,
                };
            }
            if session.next < end {
                return Some((id, session.next));
            }
            self.has_read_ahead(id);
        }
    }

    /// Nothing more is to be read ahead for a session.
    fn has_read_ahead(&mut self, id: u64) {
        self.reading.remove(&id);
        if self.reading.is_empty() {
            self.served.clear();
        }
    }

    /// Room for one more block: `Some(None)` if there is some, `Some(Some(_))` if a block had to go.
    fn room(&mut self, demanded: bool) -> Option<Option<H>> {
        let mut gone = None;
        // A block that is queued is not counted yet.
        while self.counted() >= self.most {
            let victim = self.victim(demanded)?;
            gone = self.forget(victim);
        }
        Some(gone)
    }

    /// True if all blocks there may be are lent, so that nobody can read another one, however fast the device is.
    pub(crate) fn is_lent(&self) -> bool {
        let most = self.counted() >= self.most;
        most && self.reading().next().is_none() && self.victim(true).is_none()
    }

    /// A block that may go.
    fn victim(&self, demanded: bool) -> Option<u64> {
        let mut may_go = self.ready.iter().take_while(|(ahead, ..)| demanded || !ahead);
        let free = |name: &u64| self.ready(*name).is_some_and(|held| !held.lent());
        may_go.find_map(|(_, _, name)| free(name).then_some(*name))
    }

    fn forget(&mut self, block: u64) -> Option<H> {
        let b = self.remove(block)?;
        if !b.ahead() && !self.reading.is_empty() {
            self.served.add(block);
        }
        match b.state {
            State::Ready(held) => Some(held),
            State::Queued | State::Reading => None,
        }
    }

    fn remove(&mut self, block: u64) -> Option<Block<H>> {
        let b = self.blocks.remove(&block)?;
        self.queued -= usize::from(matches!(b.state, State::Queued));
        self.ahead -= usize::from(b.ahead());
        if let Some(turn) = b.turn(block) {
            self.ready.remove(&turn);
        }
        Some(b)
    }
}

#[cfg(test)]
#[path = "window_tests.rs"]
mod tests;
