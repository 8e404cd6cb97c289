//! Which blocks were read for somebody, wholly asked for, and forgotten again: reading them ahead would be in vain. A set
//! of numbers, as ranges that do not touch.

use std::collections::BTreeMap;

/// With so many ranges it begins anew: some blocks may then be read twice.
const MOST: usize = 1 << 16;

#[derive(Debug, Default)]
pub(crate) struct Served {
    /// Start and end of each.
    ranges: BTreeMap<u64, u64>,
}

impl Served {
    pub(crate) fn add(&mut self, block: u64) {
        if self.end(block).is_some() {
            return;
        }
        if self.ranges.len() >= MOST {
            self.clear();
        }
        let end = self.ranges.remove(&(block + 1)).unwrap_or(block + 1);
        match self.ranges.range_mut(..block).next_back() {
            Some((_, before)) if *before == block => *before = end,
            _ => drop(self.ranges.insert(block, end)),
        }
    }

    /// The end of the range that has this block.
    pub(crate) fn end(&self, block: u64) -> Option<u64> {
        let (_, end) = self.ranges.range(..=block).next_back()?;
        (*end > block).then_some(*end)
    }

    /// Takes blocks out.
    pub(crate) fn remove(&mut self, from: u64, to: u64) {
        if from >= to {
            return;
        }
        while let Some((start, end)) = self.ranges.range(..to).next_back().map(|(s, e)| (*s, *e)) {
            if end <= from {
                return;
            }
            self.ranges.remove(&start);
            if end > to {
                self.ranges.insert(to, end);
            }
            if start < from {
                self.ranges.insert(start, from);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..40u64, 0..10u64), 0..200)) {
            let (mut served, mut set) = (Served::default(), BTreeSet::new());
            for (add, at, len) in steps {
                if add {
                    served.add(at);
                    set.insert(at);
                } else {
                    served.remove(at, at + len);
                    set.retain(|b| !(at..at + len).contains(b));
                }
                for block in 0..50 {
                    let end = set.contains(&block).then(|| (block..).find(|b| !set.contains(b)).unwrap());
                    prop_assert_eq!(served.end(block), end);
                }
            }
        }
    }

    #[test]
    fn it_stays_small() {
        let mut served = Served::default();
        for block in 0..3 * MOST as u64 {
            served.add(2 * block);
            assert!(served.ranges.len() <= MOST);
        }
    }
}
