//! Who has which block, in memory that several processes write to: the protocol, without any system call but waiting.
//!
//! A slot is *empty*, *being read* by a process, or *ready*. A bit for each process says that it refers to the slot.
//! Slots are found, claimed and referred to under one lock; a read is finished and a reference is given back without it. So
//! what is ready and has no bit stays so while somebody has the lock, and may be claimed for another block.
//!
//! Any process may be killed at any step. Each store leaves a state that others can go on from: the lock of a process that
//! has ended is taken over, what it read is nobody's, and its bits are cleared ([`Table::reap`]). Numbers that come from the
//! memory are only used where they are within bounds.

use rustix::io::Errno;
use rustix::thread::futex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Processes at most, one bit each.
pub(super) const PROCESSES: usize = 64;
/// The place of the one that is about to join, of whom there is one at a time.
pub(super) const JOINER: usize = PROCESSES;

const MAGIC: u64 = u64::from_le_bytes(*b"stead\0co");
const VERSION: u64 = 1;
/// Numbers that say what is shared.
pub(super) const KEY: usize = 10;
/// Words before those of processes: magic number, version, bytes of a slot, slots, clock, key.
const HEAD: usize = 16;
const CLOCK: usize = 4;
/// Of each process: its number, when it began, blocks that there may be in its opinion.
const ENTRY: usize = 3;
const FIXED: usize = HEAD + ENTRY * (PROCESSES + 1);

/// Flags before those of slots: the lock, and a count of who came and went.
const BEFORE: usize = 2;
const NEWS: usize = 1;

const EMPTY: u32 = 0;
const READING: u32 = 1;
const READY: u32 = 2;
/// A block that there is not.
const NONE: u64 = u64::MAX;

/// One wait for the lock, and how many of them are made.
const LOCK_SLICE_NS: i64 = 20_000_000;
const LOCK_SLICES: usize = 10;
/// One wait for a block, and how many of them are made.
const READ_SLICE_NS: i64 = 50_000_000;
const READ_SLICES: usize = 100;

/// True if a process with this number, that began then, lives.
pub(super) type Alive<'a> = &'a dyn Fn(u64, u64) -> bool;

/// The state of a slot: two bits of kind, seven of the process that reads it, and a count of changes.
fn next(before: u32, kind: u32, owner: usize) -> u32 {
    let changes = (before >> 9).wrapping_add(1);
    (changes << 9) | ((owner as u32 & 127) << 2) | kind
}

fn kind(state: u32) -> u32 {
    state & 3
}

pub(super) fn owner(state: u32) -> usize {
    (state >> 2 & 127) as usize
}

pub(super) fn bit(process: usize) -> u64 {
    u32::try_from(process).ok().and_then(|p| 1u64.checked_shl(p)).unwrap_or(0)
}

/// Words and flags of so many slots.
pub(super) fn sizes(slots: usize) -> Option<(usize, usize)> {
    Some((
        slots.checked_mul(3)?.checked_add(FIXED)?,
        slots.checked_add(BEFORE)?.next_multiple_of(2),
    ))
}

/// What there is of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Found {
    /// It is in this slot.
    Ready(usize),
    /// It is to be read into this slot.
    Claimed(usize),
    /// Somebody reads it into a slot, whose state this is.
    Awaited(u32),
    /// There is no slot for it.
    Full,
}

/// How waiting for a block ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waited {
    /// Something has happened.
    Changed,
    /// Who reads it has ended.
    Ended(usize),
    /// Who reads it is slow.
    Late(usize),
}

/// See the module's documentation.
#[derive(Clone, Copy)]
pub(super) struct Table<'a> {
    /// The lock, the news and the states of slots.
    flags: &'a [AtomicU32],
    words: &'a [AtomicU64],
    slots: usize,
}

/// The lock, while it is held.
pub(super) struct Guard<'a> {
    lock: &'a AtomicU32,
    /// Whom it was taken from as that one has ended.
    pub(super) ended: Option<usize>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        #[cfg(test)]
        if std::thread::panicking() {
            // It plays a process that is killed.
            return;
        }
        if self.lock.fetch_and(!0xFF, Ordering::Release) & 1 != 0 {
            let _ = futex::wake(self.lock, futex::Flags::empty(), 1);
        }
    }
}

impl<'a> Table<'a> {
    /// `None` if these are not the words and flags of so many slots.
    pub(super) fn new(
        words: &'a [AtomicU64],
        flags: &'a [AtomicU32],
        slots: usize,
    ) -> Option<Table<'a>> {
        let fits = sizes(slots)? == (words.len(), flags.len()) && slots > 0;
        fits.then_some(Table { flags, words, slots })
    }

    /// Says what this is, in new memory.
    pub(super) fn found(&self, slot: u64, key: &[u64; KEY]) {
        for (i, value) in head(slot, self.slots, key) {
            self.put(i, value);
        }
    }

    /// True if it is what is looked for.
    pub(super) fn is(&self, slot: u64, key: &[u64; KEY]) -> bool {
        head(slot, self.slots, key).all(|(i, value)| self.get(i) == value)
    }

    fn get(&self, i: usize) -> u64 {
        self.words.get(i).map_or(0, |w| w.load(Ordering::Acquire))
    }

    fn put(&self, i: usize, value: u64) {
        #[cfg(test)]
        tests::step();
        if let Some(word) = self.words.get(i) {
            word.store(value, Ordering::Release);
        }
    }

    fn block_at(&self, slot: usize) -> usize {
        FIXED + slot
    }

    fn refs(&self, slot: usize) -> Option<&'a AtomicU64> {
        self.words.get(FIXED + self.slots + slot)
    }

    fn stamp_at(&self, slot: usize) -> usize {
        FIXED + 2 * self.slots + slot
    }

    fn flag(&self, slot: usize) -> Option<&'a AtomicU32> {
        self.flags.get(BEFORE + slot).filter(|_| slot < self.slots)
    }

    fn state(&self, slot: usize) -> u32 {
        self.flag(slot).map_or(EMPTY, |f| f.load(Ordering::Acquire))
    }

    fn set_state(&self, slot: usize, state: u32) {
        #[cfg(test)]
        tests::step();
        if let Some(flag) = self.flag(slot) {
            flag.store(state, Ordering::Release);
            let _ = futex::wake(flag, futex::Flags::empty(), i32::MAX.unsigned_abs());
        }
    }

    /// The process at a place: its number and when it began. `None` if there is none.
    fn process(&self, at: usize) -> Option<(u64, u64)> {
        let entry = HEAD + ENTRY * at;
        let number = self.get(entry);
        (at <= PROCESSES && number != 0).then(|| (number, self.get(entry + 1)))
    }

    /// Processes that take part: those that want blocks.
    pub(super) fn processes(&self) -> usize {
        let wants = |p: &usize| self.process(*p).is_some() && self.get(HEAD + ENTRY * p + 2) > 0;
        (0..PROCESSES).filter(wants).count()
    }

    /// The places of those that have ended; that of who joins if that one left slots.
    pub(super) fn ended(&self, alive: Alive<'_>) -> Vec<usize> {
        let ended = |p: &usize| self.process(*p).is_some_and(|(n, start)| !alive(n, start));
        let joins = |slot: usize| {
            let state = self.state(slot);
            kind(state) == READING && owner(state) == JOINER
        };
        let joiner = (0..self.slots).any(joins) && self.has_ended(JOINER, alive);
        (0..PROCESSES).filter(ended).chain(joiner.then_some(JOINER)).collect()
    }

    /// The places that have the number of a process that began then.
    pub(super) fn places_of(&self, begun: (u64, u64)) -> Vec<usize> {
        (0..PROCESSES).filter(|p| self.process(*p) == Some(begun)).collect()
    }

    /// The lock, for the process at a place. `None` if somebody who lives keeps it for long.
    pub(super) fn lock(&self, me: usize, alive: Alive<'_>) -> Option<Guard<'a>> {
        let lock = self.flags.first()?;
        let mine =
            |before: u32| ((before >> 8).wrapping_add(1) << 8) | ((me as u32 + 1) & 127) << 1;
        let (mut waited, mut slept) = (0, false);
        for _ in 0..1 << 16 {
            let now = lock.load(Ordering::Acquire);
            let holder = (now >> 1 & 127) as usize;
            // Others may wait beside one that has waited.
            let mark = u32::from(slept) | (now & 1);
            if holder == 0 {
                #[cfg(test)]
                tests::step();
                let taken = lock.compare_exchange(
                    now,
                    mine(now) | mark,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                );
                if taken.is_ok() {
                    return Some(Guard { lock, ended: None });
                }
                continue;
            }
            if now & 1 == 0 {
                let marked =
                    lock.compare_exchange(now, now | 1, Ordering::Relaxed, Ordering::Relaxed);
                if marked.is_err() {
                    continue;
                }
            }
            if waited > 0 || cfg!(test) {
                // Of those who join there is one, and what was the last one has ended.
                let last = me == JOINER && holder - 1 == JOINER;
                if last || self.has_ended(holder - 1, alive) {
                    let taken = lock.compare_exchange(
                        now | 1,
                        mine(now) | 1,
                        Ordering::Acquire,
                        Ordering::Relaxed,
                    );
                    if taken.is_ok() {
                        return Some(Guard { lock, ended: Some(holder - 1) });
                    }
                    continue;
                }
            }
            if waited >= LOCK_SLICES {
                return None;
            }
            slept = true;
            if wait(lock, now | 1, LOCK_SLICE_NS) {
                waited += 1;
            }
        }
        None
    }

    /// Takes a place. `None` if there is none.
    pub(super) fn join(&self, _: &Guard<'_>, (number, start): (u64, u64)) -> Option<usize> {
        let place = (0..PROCESSES).find(|p| self.process(*p).is_none())?;
        self.enter(place, (number, start));
        Some(place)
    }

    /// Says who has a place.
    pub(super) fn enter(&self, place: usize, (number, start): (u64, u64)) {
        let entry = HEAD + ENTRY * place;
        self.put(entry, 0);
        self.put(entry + 1, start);
        self.put(entry + 2, 0);
        self.put(entry, number);
    }

    /// A number that changes when processes come and go.
    pub(super) fn news(&self) -> u32 {
        self.flags.get(NEWS).map_or(0, |n| n.load(Ordering::Acquire))
    }

    /// Sleeps until that is another number. False if that cannot be waited for.
    pub(super) fn wait_for_news(&self, seen: u32) -> bool {
        let Some(news) = self.flags.get(NEWS) else { return false };
        let waited = futex::wait(news, futex::Flags::empty(), seen, None);
        matches!(waited, Ok(()) | Err(Errno::AGAIN | Errno::INTR))
    }

    /// Has all look who is there.
    pub(super) fn tell(&self) {
        if let Some(news) = self.flags.get(NEWS) {
            news.fetch_add(1, Ordering::AcqRel);
            let _ = futex::wake(news, futex::Flags::empty(), i32::MAX.unsigned_abs());
        }
    }

    /// Gives a place up, by who has it and refers to nothing any more.
    pub(super) fn leave(&self, me: usize) {
        self.put(HEAD + ENTRY * me, 0);
    }

    /// Blocks that there may be, as a process says; the largest number of all of them holds. True if it takes part from now
    /// on, or no longer does.
    pub(super) fn set_limit(&self, me: usize, blocks: u64) -> bool {
        let at = HEAD + ENTRY * me + 2;
        let before = self.get(at);
        self.put(at, blocks);
        (before == 0) != (blocks == 0)
    }

    fn limit(&self) -> usize {
        let said = |p: usize| self.process(p).map_or(0, |_| self.get(HEAD + ENTRY * p + 2));
        let most = (0..PROCESSES).map(said).max().unwrap_or(0);
        usize::try_from(most).unwrap_or(usize::MAX).clamp(1, self.slots)
    }

    /// True if a block is ready or is being read.
    pub(super) fn has(&self, block: u64) -> bool {
        self.find(block).is_some()
    }

    /// The slot of a block that is ready or is being read.
    fn find(&self, block: u64) -> Option<usize> {
        let there = |slot: &usize| {
            self.get(self.block_at(*slot)) == block && kind(self.state(*slot)) != EMPTY
        };
        // Where it is put if it can be, or anywhere.
        let home = usize::try_from(block % self.slots as u64).ok()?;
        Some(home).filter(there).or_else(|| (0..self.slots).find(there))
    }

    /// What there is of a block. `hold` is called with a slot that is ready or was claimed, and calls [`Table::refer`].
    pub(super) fn ask(
        &self,
        guard: &Guard<'_>,
        me: usize,
        block: u64,
        hold: impl FnOnce(usize),
    ) -> Found {
        if block == NONE {
            return Found::Full;
        }
        if let Some(slot) = self.find(block) {
            let state = self.state(slot);
            if kind(state) != READY {
                return Found::Awaited(state);
            }
            hold(slot);
            self.touch(slot);
            return Found::Ready(slot);
        }
        let used = (0..self.slots).filter(|slot| kind(self.state(*slot)) != EMPTY).count();
        let home = usize::try_from(block % self.slots as u64).unwrap_or(0);
        let is_empty = |slot: &usize| kind(self.state(*slot)) == EMPTY;
        let empty = if used < self.limit() {
            Some(home).filter(is_empty).or_else(|| (0..self.slots).find(is_empty))
        } else {
            None
        };
        let Some(slot) = empty.or_else(|| self.victim(guard)) else { return Found::Full };
        self.set_state(slot, next(self.state(slot), READING, me));
        self.put(self.block_at(slot), block);
        hold(slot);
        self.touch(slot);
        Found::Claimed(slot)
    }

    /// Claims a block that may go if there are too many, for [`Table::abandon`].
    pub(super) fn surplus(&self, guard: &Guard<'_>, me: usize) -> Option<usize> {
        let used = (0..self.slots).filter(|slot| kind(self.state(*slot)) != EMPTY).count();
        let slot = if used > self.limit() { self.victim(guard)? } else { return None };
        self.put(self.block_at(slot), NONE);
        self.set_state(slot, next(self.state(slot), READING, me));
        Some(slot)
    }

    /// The oldest block that is ready and that nobody refers to.
    fn victim(&self, _: &Guard<'_>) -> Option<usize> {
        let free = |slot: &usize| {
            let unused = self.refs(*slot).is_some_and(|refs| refs.load(Ordering::Acquire) == 0);
            unused && kind(self.state(*slot)) == READY
        };
        (0..self.slots).filter(free).min_by_key(|slot| self.get(self.stamp_at(*slot)))
    }

    fn touch(&self, slot: usize) {
        let now = self.get(CLOCK).wrapping_add(1);
        self.put(CLOCK, now);
        self.put(self.stamp_at(slot), now);
    }

    /// A process refers to a slot from now on. Under the lock.
    pub(super) fn refer(&self, slot: usize, me: usize) {
        #[cfg(test)]
        tests::step();
        if let Some(refs) = self.refs(slot) {
            refs.fetch_or(bit(me), Ordering::AcqRel);
        }
    }

    /// A process no longer refers to a slot.
    pub(super) fn unrefer(&self, slot: usize, me: usize) {
        #[cfg(test)]
        tests::step();
        if let Some(refs) = self.refs(slot) {
            refs.fetch_and(!bit(me), Ordering::AcqRel);
        }
    }

    /// A claimed slot has its bytes.
    pub(super) fn publish(&self, slot: usize, me: usize) {
        self.settle(slot, me, READY);
    }

    /// A claimed slot has no bytes, and no memory any more.
    pub(super) fn abandon(&self, slot: usize, me: usize) {
        self.settle(slot, me, EMPTY);
    }

    fn settle(&self, slot: usize, me: usize, to: u32) {
        let state = self.state(slot);
        if kind(state) == READING && owner(state) == me {
            self.set_state(slot, next(state, to, me));
        }
    }

    /// Takes out of the table what was a process that has ended. Gives the slots that it read into, which are claimed by
    /// `me` now, to take their memory away: the system may still write there.
    pub(super) fn reap(&self, _: &Guard<'_>, ended: usize, me: usize) -> Vec<usize> {
        let mut broken = Vec::new();
        for slot in 0..self.slots {
            let state = self.state(slot);
            if kind(state) == READING && owner(state) == ended {
                self.put(self.block_at(slot), NONE);
                self.set_state(slot, next(state, READING, me));
                broken.push(slot);
            }
            self.unrefer(slot, ended);
        }
        // The place of who joins may be somebody else's already.
        if ended != me && ended != JOINER {
            self.leave(ended);
            self.tell();
        }
        broken
    }

    /// The slot that a block is read into, and its state.
    pub(super) fn awaited(&self, block: u64) -> Option<(usize, u32)> {
        let slot = self.find(block)?;
        let state = self.state(slot);
        (kind(state) == READING).then_some((slot, state))
    }

    /// True if the process at a place has ended, or there is none.
    pub(super) fn has_ended(&self, at: usize, alive: Alive<'_>) -> bool {
        !self.process(at).is_some_and(|(number, start)| alive(number, start))
    }

    /// Waits until the state of a slot is another one.
    pub(super) fn wait(&self, slot: usize, state: u32, alive: Alive<'_>) -> Waited {
        let Some(flag) = self.flag(slot) else { return Waited::Changed };
        let by = owner(state);
        for _ in 0..READ_SLICES {
            if flag.load(Ordering::Acquire) != state {
                return Waited::Changed;
            }
            if wait(flag, state, READ_SLICE_NS) && self.has_ended(by, alive) {
                return Waited::Ended(by);
            }
        }
        Waited::Late(by)
    }
}

fn head(slot: u64, slots: usize, key: &[u64; KEY]) -> impl Iterator<Item = (usize, u64)> + '_ {
    let fixed = [(0, MAGIC), (1, VERSION), (2, slot), (3, slots as u64)];
    fixed.into_iter().chain(key.iter().enumerate().map(|(i, value)| (CLOCK + 1 + i, *value)))
}

/// Waits while a word has this value, so long at most. True if the time is over.
fn wait(word: &AtomicU32, value: u32, nanoseconds: i64) -> bool {
    let time = futex::Timespec { tv_sec: 0, tv_nsec: nanoseconds };
    let waited = futex::wait(word, futex::Flags::empty(), value, Some(&time));
    waited == Err(Errno::TIMEDOUT)
}

#[cfg(test)]
#[path = "table_tests.rs"]
mod tests;
