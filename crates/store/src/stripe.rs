//! What many threads touch at every request, kept apart for each: cores that write to the same line of memory wait for it
//! in turn, and everything that they have under way with them.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// Threads beyond that share.
pub(crate) const STRIPES: usize = 16;

/// A line of memory of its own (two: processors fetch pairs).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Apart<T>(pub(crate) T);

/// The number of this thread, below [`STRIPES`].
pub(crate) fn mine() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    // A thread that ends may drop views after what is its own.
    let known = MINE.try_with(Cell::get).unwrap_or(0);
    if known != usize::MAX {
        return known;
    }
    let new = NEXT.fetch_add(1, Relaxed) % STRIPES;
    let _ = MINE.try_with(|m| m.set(new));
    new
}

/// A number that threads add to without waiting for each other.
#[derive(Debug, Default)]
pub struct Tally([Apart<AtomicU64>; STRIPES]);

impl Tally {
    /// Adds one.
    pub fn count(&self) {
        self.0[mine()].0.fetch_add(1, Relaxed);
    }

    /// What all have added; of what is added at this moment some.
    pub fn total(&self) -> u64 {
        self.0.iter().map(|n| n.0.load(Relaxed)).fold(0, u64::wrapping_add)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_threads_are_counted() {
        let tally = Tally::default();
        std::thread::scope(|s| {
            for _ in 0..3 * STRIPES {
                s.spawn(|| (0..1000).for_each(|_| tally.count()));
            }
        });
        assert_eq!(tally.total(), 3 * STRIPES as u64 * 1000);
        assert!(mine() < STRIPES && mine() == mine());
    }
}
