//! How often ranks have done something together.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Counts, by tag, what this rank has done together with all others ([`crate::FabricExt`]): each frame has its round, so
/// that one which comes after the others have given up is not taken for one of the next round.
///
/// It belongs to what carries the messages: where two fabrics share that, they share it too, or their messages are kept
/// apart.
#[derive(Debug, Default)]
pub struct Rounds {
    /// What is counted from, for each tag.
    from: u64,
    of: Mutex<HashMap<u32, Arc<Mutex<Round>>>>,
}

/// What is known of the rounds of a tag.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// How many there were, the one that is under way among them.
    pub(crate) number: u64,
    /// Frames of later rounds, which came before this rank was there: of each sender and tag one at most.
    ahead: HashMap<(usize, u32), Vec<u8>>,
}

impl Round {
    /// A frame of a rank that came too early before.
    pub(crate) fn take(&mut self, from: usize, tag: u32) -> Option<Vec<u8>> {
        self.ahead.remove(&(from, tag))
    }

    /// Keeps a frame that came too early.
    pub(crate) fn keep(&mut self, from: usize, tag: u32, frame: Vec<u8>) {
        self.ahead.insert((from, tag), frame);
    }
}

impl Rounds {
    /// Counts from a number on. Where ranks come together for a while only, and each time with a higher number, what is left
    /// of the last time is that of rounds that were given up.
    pub fn counted_from(from: u64) -> Rounds {
        Rounds { from, ..Rounds::default() }
    }

    /// The rounds of a tag, to be locked for as long as one of them takes: threads of a rank come one after the other.
    pub(crate) fn of(&self, tag: u32) -> Arc<Mutex<Round>> {
        let round = || Arc::new(Mutex::new(Round { number: self.from, ..Round::default() }));
        lock(&self.of).entry(tag).or_insert_with(round).clone()
    }

    /// Nothing is done together with these tags any more.
    pub fn forget(&self, tags: &Range<u32>) {
        lock(&self.of).retain(|tag, _| !tags.contains(tag));
    }
}

/// A count is whole whatever became of who changed it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
