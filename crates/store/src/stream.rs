//! Sees that small views come in the order of the file, whatever threads ask for them.
//!
//! Threads that fault at the same moment in pages that the kernel keeps as one wait for each other, asleep, for longer than
//! the fault takes; and the views of tasks that come one after the other lie in the same pages. So one thread enters each
//! piece for all, while they look at the one before it.

use crate::mapped::PIECE;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Where one stream of views is. Only a hint: threads may overtake each other between any two steps.
#[derive(Debug, Default)]
pub(crate) struct Stream {
    /// Pieces before this one were entered; 0 if there is no stream.
    entered: AtomicUsize,
    /// Where there may be one: four times the piece of the last view outside the stream, and how many came before it in
    /// the same piece or the one before.
    guess: AtomicUsize,
}

/// What a view is to the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A part of it, or too large to be.
    Follows,
    /// As that, and the caller is to enter this piece now.
    Enters(usize),
    /// None of it.
    Strays,
}

/// So many views in a row are a stream.
const IN_A_ROW: usize = 3;
/// Views so many pieces behind the last one that was entered are late ones of the same stream.
const LATE: usize = 8;

impl Stream {
    /// Takes note of a view.
    pub(crate) fn next(&self, start: usize, len: usize) -> Step {
        if len == 0 || len >= PIECE {
            return Step::Follows;
        }
        let piece = start.saturating_add(len - 1) / PIECE;
        let entered = self.entered.load(Relaxed);
        if piece + 1 < entered && piece + LATE >= entered {
            return Step::Follows;
        }
        if entered > 0 && piece + 1 == entered {
            let first = self.entered.compare_exchange(entered, entered + 1, Relaxed, Relaxed);
            return first.map_or(Step::Follows, Step::Enters);
        }
        let guess = self.guess.load(Relaxed);
        let (last, count) = (guess / 4, guess % 4);
        let count = if guess > 0 && (piece == last || piece == last + 1) { count + 1 } else { 1 };
        self.guess.store(piece.saturating_mul(4) + count, Relaxed);
        if count < IN_A_ROW {
            return Step::Strays;
        }
        self.guess.store(0, Relaxed);
        self.entered.store(piece + 2, Relaxed);
        Step::Enters(piece + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pieces that views of `len` bytes at these places have entered.
    fn entered(stream: &Stream, len: usize, places: impl Iterator<Item = usize>) -> Vec<usize> {
        let entered = |at| match stream.next(at, len) {
            Step::Enters(piece) => Some(piece),
            Step::Follows | Step::Strays => None,
        };
        places.filter_map(entered).collect()
    }

    #[test]
    fn each_piece_is_entered_once_before_the_first_view_of_it() {
        for len in [48, 4096, 32 << 10, 1 << 20, PIECE - 8] {
            let stream = Stream::default();
            let mut last = None;
            for at in (0..20 * PIECE).step_by(len) {
                let piece = (at + len - 1) / PIECE;
                if let Step::Enters(new) = stream.next(at, len) {
                    assert_eq!(new, piece + 1, "{len}");
                    assert!(last.is_none_or(|l| l + 1 == new), "{len}: {last:?}, {new}");
                    last = Some(new);
                }
                // The first ones are not known to be a stream.
                assert!(piece < 4 || last == Some(piece + 1), "{len} at {at}");
            }
        }
    }

    #[test]
    fn views_out_of_order_enter_nothing_and_late_ones_end_no_stream() {
        let stream = Stream::default();
        let places = (0..5000).map(|i| i * 7919 % 1000 * PIECE + i % 3 * 1000);
        assert_eq!(entered(&stream, 4096, places), [0usize; 0]);
        let places = (0..2000usize).map(|i| (i ^ 5) * (32 << 10));
        let pieces = entered(&stream, 32 << 10, places);
        assert!(pieces.windows(2).all(|w| w[0] + 1 == w[1]) && pieces.len() > 25, "{pieces:?}");
        // Views that no piece is ahead of.
        assert_eq!(entered(&stream, PIECE, (0..100).map(|i| i * PIECE)), [0usize; 0]);
        assert_eq!(entered(&stream, 0, (0..100).map(|i| i * 100)), [0usize; 0]);
        assert_eq!(stream.next(usize::MAX - 8, 8), Step::Strays);
    }

    #[test]
    fn another_stream_takes_over() {
        let stream = Stream::default();
        entered(&stream, 1000, (0..3 * PIECE).step_by(1000));
        let again = entered(&stream, 1000, (50 * PIECE..52 * PIECE + 5000).step_by(1000));
        assert_eq!(again, [51, 52, 53]);
    }
}
