//! The lock of a board. It has the process that holds it in its word, so that others take it over when that one has ended.

use super::{Board, LOCK};
use crate::words::{Alive, Who, Words};
use std::time::Duration;

/// One wait, and how many of them are made.
const SLICE: Duration = Duration::from_millis(20);
const SLICES: usize = 500;
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
        let (mut slept, mut waited) = (0, 0);
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
            if waited > 0 && !alive(holder) {
                if words.swap_if(LOCK, now | WAITS, me.word() | WAITS) {
                    let guard = Guard { words };
                    self.mend(&guard);
                    return Ok(guard);
                }
                continue;
            }
            if waited >= SLICES {
                return Err(holder);
            }
            slept = WAITS;
            words.sleep(LOCK, (now | WAITS) as u32, SLICE);
            waited += 1;
        }
        Err(Who::of(words.get(LOCK) & !WAITS))
    }
}
