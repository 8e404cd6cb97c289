//! A set of ranges, as few as there can be.

use std::collections::BTreeMap;
use std::ops::Range;

/// Ranges that are not empty, do not touch, and are found by their start.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ranges {
    ends: BTreeMap<u64, u64>,
    sum: u64,
}

impl Ranges {
    /// The range `0..n`.
    pub(crate) fn all(n: u64) -> Ranges {
        let mut ranges = Ranges::default();
        ranges.insert(0..n);
        ranges
    }

    /// One range.
    pub(crate) fn of(range: Range<u64>) -> Ranges {
        let mut ranges = Ranges::default();
        ranges.insert(range);
        ranges
    }

    /// What is in both, in order.
    pub(crate) fn common(&self, other: &Ranges) -> Vec<Range<u64>> {
        let (mut mine, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        let mut common = Vec::new();
        while let (Some(a), Some(b)) = (mine.peek().cloned(), theirs.peek().cloned()) {
            let both = a.start.max(b.start)..a.end.min(b.end);
            if !both.is_empty() {
                common.push(both);
            }
            if a.end <= b.end {
                mine.next()
            } else {
                theirs.next()
            };
        }
        common
    }

    /// Length of all together.
    pub(crate) fn sum(&self) -> u64 {
        self.sum
    }

    pub(crate) fn first(&self) -> Option<Range<u64>> {
        self.ends.first_key_value().map(|(s, e)| *s..*e)
    }

    pub(crate) fn last(&self) -> Option<Range<u64>> {
        self.ends.last_key_value().map(|(s, e)| *s..*e)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = Range<u64>> {
        self.ends.iter().map(|(s, e)| *s..*e)
    }

    /// Adds a range of which nothing is there yet.
    pub(crate) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        self.sum += range.end - range.start;
        let (mut start, mut end) = (range.start, range.end);
        if let Some((s, e)) = self.ends.range(..start).next_back().map(|(s, e)| (*s, *e))
            && e == start
        {
            start = s;
        }
        if let Some(e) = self.ends.remove(&end) {
            end = e;
        }
        self.ends.insert(start, end);
    }

    /// Takes a range out, if all of it is there.
    pub(crate) fn remove(&mut self, range: Range<u64>) -> bool {
        let found = self.ends.range(..=range.start).next_back().map(|(s, e)| (*s, *e));
        let Some((start, end)) = found.filter(|(_, e)| *e >= range.end && !range.is_empty()) else {
            return false;
        };
        self.ends.remove(&start);
        if start < range.start {
            self.ends.insert(start, range.start);
        }
        if range.end < end {
            self.ends.insert(range.end, end);
        }
        self.sum -= range.end - range.start;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_set_of_ranges_is_a_set_of_numbers(steps in prop::collection::vec((any::<bool>(), 0..40u64, 0..8u64), 1..60)) {
            let mut ranges = Ranges::default();
            let mut there = [false; 50];
            for (add, start, len) in steps {
                let range = start..start + len;
                let of = &mut there[start as usize..(start + len) as usize];
                if add {
                    if of.iter().any(|b| *b) { continue }
                    of.fill(true);
                    ranges.insert(range);
                } else {
                    let all = !of.is_empty() && of.iter().all(|b| *b);
                    if all { of.fill(false) }
                    prop_assert_eq!(ranges.remove(range), all);
                }
                prop_assert_eq!(ranges.sum(), there.iter().filter(|b| **b).count() as u64);
                let listed: Vec<u64> = ranges.iter().flatten().collect();
                let expected: Vec<u64> = (0..50).filter(|i| there[*i as usize]).collect();
                prop_assert_eq!(listed, expected);
                let ends: Vec<Range<u64>> = ranges.iter().collect();
                prop_assert!(ends.windows(2).all(|w| w[0].end < w[1].start));
                prop_assert_eq!(ranges.first(), ends.first().cloned());
                prop_assert_eq!(ranges.last(), ends.last().cloned());
                let mut other = Ranges::of(7..19);
                other.insert(30..31);
                let common: Vec<u64> = ranges.common(&other).into_iter().flatten().collect();
                let both = |i: &u64| there[*i as usize] && ((7..19).contains(i) || *i == 30);
                prop_assert_eq!(common, (0..50).filter(both).collect::<Vec<u64>>());
            }
        }
    }
}
