//! Sees that small views come in no order.

use crate::stripe::{self, Apart, STRIPES};
use std::sync::{Mutex, OnceLock};

/// For each thread, where its views were. Only a hint.
#[derive(Debug, Default)]
pub(crate) struct Strays([Apart<OnceLock<Box<Mutex<Way>>>>; STRIPES]);

/// What one thread has looked at, in pieces of the file.
#[derive(Debug)]
struct Way {
    last: usize,
    /// Views in a row that were nowhere near the one before, up to [`LOST`].
    far: u8,
    /// Views so far.
    time: u32,
    /// How often views were in some pieces of late, and the age of that: see [`Way::is_busy`].
    often: [(u32, u8); SLOTS],
}

/// So many views away from each other are in no order.
const LOST: u8 = 4;
/// Pieces with this number in common are taken for one.
const SLOTS: usize = 256;
/// Of so many views as are an age, these are many for one piece: it is entered, and all others find it so.
const AGE: u32 = 1024;
const BUSY: u8 = 16;

impl Strays {
    /// Takes note of a view in a piece. True if it is one of many in no order, and few are near it.
    pub(crate) fn note(&self, piece: usize) -> bool {
        let way = self.0[stripe::mine()].0.get_or_init(Box::default);
        // Never waited for: two threads that share it, or one that a fork has left behind.
        way.try_lock().is_ok_and(|mut way| way.note(piece))
    }
}

impl Default for Way {
    fn default() -> Self {
        Way { last: usize::MAX, far: 0, time: 0, often: [(0, 0); SLOTS] }
    }
}

impl Way {
    fn note(&mut self, piece: usize) -> bool {
        let near = piece.abs_diff(self.last) <= 1;
        self.last = piece;
        self.far = if near { 0 } else { (self.far + 1).min(LOST) };
        let busy = self.is_busy(piece);
        self.far == LOST && !busy
    }

    /// Counts a view. True if there are many of this piece; with each age the count of those before is halved.
    fn is_busy(&mut self, piece: usize) -> bool {
        self.time = self.time.wrapping_add(1);
        let now = self.time / AGE;
        let (age, count) = &mut self.often[piece % SLOTS];
        *count = count.checked_shr(now.wrapping_sub(*age)).unwrap_or(0).saturating_add(1);
        *age = now;
        *count >= BUSY
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these views are strays.
    fn strays(places: impl Iterator<Item = usize>) -> usize {
        let strays = Strays::default();
        places.filter(|piece| strays.note(*piece)).count()
    }

    #[test]
    fn views_in_some_order_are_no_strays() {
        assert_eq!(strays(0..5000), 0);
        assert_eq!(strays((0..5000).rev()), 0);
        assert_eq!(strays((0..5000).map(|i| i / 64)), 0);
        // One far away now and then.
        assert_eq!(strays((0..5000).map(|i| if i % 3 == 0 { i * 7919 } else { 5 })), 0);
    }

    #[test]
    fn views_in_no_order_are_strays_unless_they_are_of_few_pieces() {
        let random = |pieces: usize| {
            (0..100_000usize)
                .map(move |i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32)
                .map(move |n| n % pieces)
        };
        assert!(strays(random(1024)) > 95_000, "{}", strays(random(1024)));
        assert!(strays(random(1 << 20)) > 95_000);
        assert!(strays(random(32)) < 1000, "{}", strays(random(32)));
        // Nine of ten in few, the others anywhere: those are strays, and hardly any of the few.
        let mixed =
            random(1 << 20).enumerate().map(|(i, n)| if i % 10 == 0 { 1000 + n } else { n % 32 });
        let found = strays(mixed);
        assert!((3000..11_000).contains(&found), "{found}");
    }

    #[test]
    fn what_was_busy_is_so_no_longer_after_a_while() {
        let mut way = Way::default();
        let busy: Vec<bool> = (0..100).map(|_| way.is_busy(7)).collect();
        assert_eq!(busy.iter().position(|b| *b), Some(BUSY as usize - 1));
        for i in 0..8 * AGE as usize {
            way.is_busy(100 + i % 128);
        }
        assert!(!way.is_busy(7));
    }
}
