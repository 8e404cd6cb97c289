//! Which steps each reader was given: ranges of them, of which the newest ones are kept. How many there were before them is known from the
//! number of all.
//!
//! A reader alone changes its words, without the lock: first what a range is, and then that it is there.

use super::Board;
use crate::words::Words;

/// Of the words of a reader: ranges that it has begun so far.
pub(super) const R_RANGES: usize = 16;
/// Where they lie: each by its first step and the one after its last, where the one so many before it was.
const FIRST: usize = 20;
const PLACES: usize = 14;
/// Words of a reader.
pub(super) const READER: usize = FIRST + 2 * PLACES;

/// Ranges that are told: where the oldest one lies the next one may be begun just now.
const TOLD: u64 = PLACES as u64 - 1;
/// So often it is looked again where ranges were begun meanwhile.
const AGAIN: usize = 16;

fn place(at: usize, range: u64) -> usize {
    at + FIRST + 2 * (range % PLACES as u64) as usize
}

impl<W: Words> Board<W> {
    /// The reader whose words these are was given a step, after all that it was given before.
    pub(super) fn note_given(&self, at: usize, step: u64) {
        let ranges = self.get(at + R_RANGES);
        let (next, last) = (place(at, ranges), place(at, ranges.wrapping_sub(1)));
        if ranges > 0 && self.get(last + 1) == step {
            self.put(last + 1, step.saturating_add(1));
            return;
        }
        self.put(next, step);
        self.put(next + 1, step.saturating_add(1));
        self.put(at + R_RANGES, ranges.wrapping_add(1));
    }

    /// First and last steps of the newest ranges, in order.
    pub(super) fn ranges(&self, at: usize) -> Vec<(u64, u64)> {
        for _ in 0..AGAIN {
            let ranges = self.get(at + R_RANGES);
            let there = (ranges.saturating_sub(TOLD)..ranges).map(|range| place(at, range));
            let told = there.map(|place| (self.get(place), self.get(place + 1)));
            let told = told.filter(|(first, end)| first < end);
            let told: Vec<(u64, u64)> = told.map(|(first, end)| (first, end - 1)).collect();
            if self.get(at + R_RANGES) == ranges {
                return told;
            }
        }
        Vec::new()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{heap_of, reader_of};
    use crate::describe::peer;

    #[test]
    fn which_steps_a_reader_was_given_is_told_by_ranges() {
        let heap = heap_of(1);
        let (board, reader) = reader_of(&heap);
        let told = || {
            let peer = peer(board.readers().remove(0));
            (peer.had, peer.had_before, peer.had_ranges)
        };
        assert_eq!(told(), (0, 0, vec![]));
        (3..8).for_each(|step| board.count_given(reader, step, 0));
        assert_eq!(told(), (5, 0, vec![(3, 7)]));
        board.count_given(reader, 10, 2);
        board.count_given(reader, 11, 0);
        assert_eq!(told(), (7, 0, vec![(3, 7), (10, 11)]));
        // Of many the newest are told, and how many there were before.
        (20..50).for_each(|n| board.count_given(reader, 2 * n, 1));
        let newest: Vec<(u64, u64)> = (37..50).map(|n| (2 * n, 2 * n)).collect();
        assert_eq!(told(), (37, 24, newest));
    }
}
