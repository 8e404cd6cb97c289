//! The lock of a board. It has the process that holds it in its word, so that others take it over when that one has ended.

use super::{Board, LOCK};
use crate::clock;
use crate::words::{Alive, Who, Words};
use std::time::Duration;

/// One wait at most, and all of them together: one that is woken and finds others quicker has not waited for long.
const SLICE: Duration = Duration::from_millis(20);
const IN_ALL: Duration = Duration::from_secs(10);
/// Attempts that fail since others are quicker.
const TRIES: usize = 1 << 20;
/// Somebody sleeps until it is free: the highest bit of the number of a process, which is none of it.
const WAITS: u64 = 1 << 31;

/// The lock, while it is held.
pub(crate) struct Guard<'a, W: Words> {
    words: &'a W,
}

impl<W: Words> Drop for Guard<'_, W> {
    fn drop(&mut self) {
        #[cfg(test)]
        if std::thread::panicking() {
            // It plays a process that is killed.
            return;
        }
        for _ in 0..TRIES {
            let now = self.words.get(LOCK);
            if self.words.swap_if(LOCK, now, 0) {
                if now & WAITS != 0 {
                    self.words.wake(LOCK);
                }
                return;
            }
        }
    }
}

impl<W: Words> Board<W> {
    /// The lock. What somebody has left unfinished who had it and has ended is mended.
    ///
    /// # Errors
    /// Whoever keeps it for ten seconds.
    pub(crate) fn lock(&self, me: Who, alive: Alive<'_>) -> Result<Guard<'_, W>, Who> {
        let words = &self.words;
        // Others may sleep beside one that has.
        let (mut slept, mut until) = (0, None);
        for _ in 0..TRIES {
            let now = words.get(LOCK);
            let holder = Who::of(now & !WAITS);
            if now & !WAITS == 0 {
                #[cfg(test)]
                super::tests::step();
                if words.swap_if(LOCK, now, me.word() | (now & WAITS) | slept) {
                    return Ok(Guard { words });
                }
                continue;
            }
            if now & WAITS == 0 && !words.swap_if(LOCK, now, now | WAITS) {
                continue;
            }
            if until.is_some() && !alive(holder) {
                if words.swap_if(LOCK, now | WAITS, me.word() | WAITS) {
                    let guard = Guard { words };
                    self.mend(&guard);
                    return Ok(guard);
                }
                continue;
            }
            if clock::now() >= *until.get_or_insert_with(|| clock::after(IN_ALL)) {
                return Err(holder);
            }
            slept = WAITS;
            words.sleep(LOCK, (now | WAITS) as u32, SLICE);
        }
        Err(Who::of(words.get(LOCK) & !WAITS))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::{Heap, heap_of, reader_of};
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};

    /// The lock goes from one live process to another whenever somebody waits for it, so many times.
    struct Busy<'h> {
        heap: &'h Heap,
        left: AtomicU64,
    }

    fn who(number: u32) -> Who {
        Who { number, start: 7 }
    }

    impl Words for Busy<'_> {
        fn len(&self) -> usize {
            self.heap.len()
        }

        fn get(&self, i: usize) -> u64 {
            self.heap.get(i)
        }

        fn put(&self, i: usize, word: u64) {
            self.heap.put(i, word);
        }

        fn swap_if(&self, i: usize, old: u64, new: u64) -> bool {
            self.heap.swap_if(i, old, new)
        }

        fn sleep(&self, i: usize, _: u32, _: Duration) {
            let left = self.left.fetch_sub(1, Ordering::Relaxed);
            self.put(i, if left > 1 { who(100 + left as u32 % 2).word() } else { 0 });
        }

        fn wake(&self, _: usize) {}
    }

    #[test]
    fn who_is_slower_than_others_has_not_waited_for_long() {
        let heap = heap_of(1);
        // A board is founded there.
        let _ = reader_of(&heap);
        let board = Board::open(Busy { heap: &heap, left: AtomicU64::new(5000) }).unwrap();
        board.words.put(LOCK, who(100).word());
        assert!(board.lock(who(1), &|_| true).is_ok());
    }
}
