//! The memory that a [board](crate::board) lies in, as the protocol sees it: numbers that several processes change, and sleep
//! until they change. Apart from it so that tests can run the protocol under a scheduler.

use std::time::Duration;

/// Numbers in order, all of them atomics. There is none past the last: it is zero, and cannot be changed.
pub(crate) trait Words: Sync {
    /// How many there are.
    fn len(&self) -> usize;

    /// What was put there before is seen, too.
    fn get(&self, i: usize) -> u64;

    fn put(&self, i: usize, value: u64);

    /// Puts `new` where `old` is. False if there is something else.
    fn swap_if(&self, i: usize, old: u64, new: u64) -> bool;

    /// Sleeps while the low half of a word is `seen`, until somebody wakes those who do, or the time is over; or ends for no reason.
    fn sleep(&self, i: usize, seen: u32, time: Duration);

    /// Wakes all who sleep there.
    fn wake(&self, i: usize);
}

/// A process: its number, and the low half of when it began, since numbers come again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Who {
    pub(crate) number: u32,
    pub(crate) start: u32,
}

impl Who {
    /// In one word; never zero for a process.
    pub(crate) fn word(self) -> u64 {
        (u64::from(self.start) << 32) | u64::from(self.number)
    }

    pub(crate) fn of(word: u64) -> Who {
        Who { number: word as u32, start: (word >> 32) as u32 }
    }
}

/// True of a process that is not known to have ended.
pub(crate) type Alive<'a> = &'a dyn Fn(Who) -> bool;
