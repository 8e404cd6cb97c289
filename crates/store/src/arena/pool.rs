//! Which ranges of the segments are free, and which of these have pages.

use std::collections::{BTreeMap, BTreeSet};

/// Bytes of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) segment: u64,
    pub(super) at: u64,
    pub(super) len: u64,
}

impl Range {
    fn end(&self) -> u64 {
        self.at + self.len
    }
}

/// A set of bytes, by ranges. Two that touch are one.
#[derive(Debug, Default)]
struct Set {
    /// The length of each, by its segment and where it begins.
    by_place: BTreeMap<(u64, u64), u64>,
    /// The same, by length first.
    by_len: BTreeSet<(u64, u64, u64)>,
    total: u64,
}

impl Set {
    fn put(&mut self, range: Range) {
        if range.len > 0 {
            self.by_place.insert((range.segment, range.at), range.len);
            self.by_len.insert((range.len, range.segment, range.at));
            self.total += range.len;
        }
    }

    fn cut(&mut self, range: Range) {
        if self.by_place.remove(&(range.segment, range.at)).is_some() {
            self.by_len.remove(&(range.len, range.segment, range.at));
            self.total -= range.len;
        }
    }

    /// The last range that begins at or before a byte.
    fn before(&self, segment: u64, at: u64) -> Option<Range> {
        let (&(_, at), &len) = self.by_place.range((segment, 0)..=(segment, at)).next_back()?;
        Some(Range { segment, at, len })
    }

    /// The range that a byte is in.
    fn around(&self, segment: u64, at: u64) -> Option<Range> {
        self.before(segment, at).filter(|range| at < range.end())
    }

    /// Adds bytes that are not in it.
    fn add(&mut self, range: Range) {
        let Range { segment, mut at, .. } = range;
        let mut end = range.end();
        if let Some(left) = self.before(segment, at).filter(|left| left.end() == at) {
            at = left.at;
            self.cut(left);
        }
        if let Some(&len) = self.by_place.get(&(segment, end)) {
            self.cut(Range { segment, at: end, len });
            end += len;
        }
        self.put(Range { segment, at, len: end - at });
    }

    /// Takes out those of these bytes that are in it.
    fn remove(&mut self, range: Range) {
        let Range { segment, at, len } = range;
        if len == 0 {
            return;
        }
        let end = range.end();
        let first = self.around(segment, at);
        let others = self.by_place.range((segment, at)..(segment, end));
        let others = others.map(|(&(segment, at), &len)| Range { segment, at, len });
        let mut touched: Vec<Range> = others.collect();
        touched.extend(first.filter(|first| first.at < at));
        for old in touched {
            self.cut(old);
            self.put(Range { segment, at: old.at, len: at.saturating_sub(old.at) });
            self.put(Range { segment, at: end, len: old.end().saturating_sub(end) });
        }
    }

    /// Bytes of these that are in it.
    fn overlap(&self, range: Range) -> u64 {
        let Range { segment, at, .. } = range;
        let end = range.end();
        let first = self.around(segment, at).filter(|first| first.at < at);
        let first = first.map_or(0, |first| first.end().min(end) - at);
        let others = self.by_place.range((segment, at)..(segment, end));
        first + others.map(|(&(_, at), &len)| (at + len).min(end) - at).sum::<u64>()
    }

    /// The shortest one of this length or more.
    fn best(&self, len: u64) -> Option<Range> {
        let &(len, segment, at) = self.by_len.range((len, 0, 0)..).next()?;
        Some(Range { segment, at, len })
    }

    fn longest(&self) -> Option<Range> {
        self.by_len.last().map(|&(len, segment, at)| Range { segment, at, len })
    }

    fn last(&self) -> Option<Range> {
        let (&(segment, at), &len) = self.by_place.last_key_value()?;
        Some(Range { segment, at, len })
    }
}

/// What is to be given back to the system.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Surplus {
    /// A segment in which nothing is used. It is no longer part of the pool.
    Segment(u64),
    /// Pages. Nobody gets these bytes before [`Pool::settle`].
    Pages(Range),
}

/// See the module's documentation. All ranges are whole pages.
#[derive(Debug, Default)]
pub(super) struct Pool {
    /// The length of each segment.
    segments: BTreeMap<u64, u64>,
    /// All that nobody has.
    free: Set,
    /// Those of `free` that have pages.
    warm: Set,
    /// Bytes that somebody has. All have pages, or get them now.
    lent: u64,
}

impl Pool {
    /// Bytes that have pages.
    pub(super) fn held(&self) -> u64 {
        self.lent + self.warm.total
    }

    /// Bytes that somebody has.
    pub(super) fn lent(&self) -> u64 {
        self.lent
    }

    /// One more segment, without pages.
    pub(super) fn grow(&mut self, segment: u64, len: u64) {
        self.segments.insert(segment, len);
        self.free.add(Range { segment, at: 0, len });
    }

    /// So many bytes, and how many of them have no pages; `None` if there is no such range.
    pub(super) fn take(&mut self, len: u64) -> Option<(Range, u64)> {
        let at = |range: Range| Range { len, ..range };
        let range = match self.warm.best(len) {
            Some(warm) => at(warm),
            None => self.beside_warm(len).or_else(|| self.free.best(len).map(at))?,
        };
        let warm = self.warm.overlap(range);
        self.warm.remove(range);
        self.free.remove(range);
        self.lent += len;
        Some((range, len - warm))
    }

    /// Around the longest range that has pages and is too short.
    fn beside_warm(&self, len: u64) -> Option<Range> {
        let warm = self.warm.longest()?;
        let free = self.free.around(warm.segment, warm.at).filter(|free| free.len >= len)?;
        Some(Range { at: warm.at.min(free.end() - len), len, ..free })
    }

    /// Bytes that somebody had are free, and have their pages.
    pub(super) fn give_back(&mut self, range: Range) {
        self.lent -= range.len;
        self.free.add(range);
        self.warm.add(range);
    }

    /// What is to be given up so that no more than `keep` bytes that are free have pages, one after the other.
    pub(super) fn surplus(&mut self, keep: u64) -> Option<Surplus> {
        let excess = self.warm.total.checked_sub(keep).filter(|excess| *excess > 0)?;
        // From the end, so that what is used comes to lie together at the beginning.
        let Range { segment, at, len } = self.warm.last()?;
        if let Some(whole) = self.empty(segment)
            && self.warm.overlap(whole) <= excess
        {
            return Some(self.forget(whole));
        }
        let cut = excess.min(len);
        let range = Range { segment, at: at + len - cut, len: cut };
        self.warm.remove(range);
        self.free.remove(range);
        Some(Surplus::Pages(range))
    }

    /// Bytes of [`Pool::surplus`], or some that could not get their pages, can be had again. Their segment, if nothing is left in it.
    pub(super) fn settle(&mut self, range: Range, has_pages: bool) -> Option<Surplus> {
        self.free.add(range);
        if has_pages {
            self.warm.add(range);
            return None;
        }
        let whole = self.empty(range.segment)?;
        (self.warm.overlap(whole) == 0).then(|| self.forget(whole))
    }

    /// Somebody had these bytes and has no use for them.
    pub(super) fn unlend(&mut self, len: u64) {
        self.lent -= len;
    }

    /// All of a segment of which nothing is used, unless it is the only one: that would be made anew soon.
    fn empty(&self, segment: u64) -> Option<Range> {
        let &len = self.segments.get(&segment).filter(|_| self.segments.len() > 1)?;
        let whole = Range { segment, at: 0, len };
        (self.free.around(segment, 0) == Some(whole)).then_some(whole)
    }

    fn forget(&mut self, whole: Range) -> Surplus {
        self.warm.remove(whole);
        self.free.remove(whole);
        self.segments.remove(&whole.segment);
        Surplus::Segment(whole.segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Bytes one by one.
    fn bytes(set: &Set) -> BTreeSet<(u64, u64)> {
        let of = |(&(segment, at), &len): (&(u64, u64), &u64)| {
            (at..at + len).map(move |byte| (segment, byte))
        };
        set.by_place.iter().flat_map(of).collect()
    }

    fn check(set: &Set, wanted: &BTreeSet<(u64, u64)>) {
        assert_eq!(&bytes(set), wanted);
        assert_eq!(set.total, wanted.len() as u64);
        let lens: BTreeSet<_> = set.by_place.iter().map(|(&(s, at), &len)| (len, s, at)).collect();
        assert_eq!(set.by_len, lens);
        // No two touch, so each is as long as can be.
        for (&(segment, at), &len) in &set.by_place {
            assert!(len > 0 && !wanted.contains(&(segment, at + len)));
            assert!(at == 0 || !wanted.contains(&(segment, at - 1)));
        }
    }

    proptest! {
        #[test]
        fn a_set_is_what_a_set_of_bytes_is(
            steps in prop::collection::vec((any::<bool>(), 0u64..3, 0u64..40, 0u64..20), 1..60)
        ) {
            let (mut set, mut model) = (Set::default(), BTreeSet::new());
            for (adds, segment, at, len) in steps {
                let range = Range { segment, at, len };
                let these: BTreeSet<_> = (at..at + len).map(|byte| (segment, byte)).collect();
                let there = these.intersection(&model).count() as u64;
                prop_assert_eq!(set.overlap(range), there);
                if !adds {
                    set.remove(range);
                    model = model.difference(&these).copied().collect();
                } else if there == 0 {
                    set.add(range);
                    model.extend(these);
                }
                check(&set, &model);
                prop_assert_eq!(set.around(segment, at).is_some(), model.contains(&(segment, at)));
                let enough = set.by_place.values().filter(|l| **l >= len).min();
                prop_assert_eq!(set.best(len).map(|range| range.len), enough.copied());
                prop_assert_eq!(set.longest().map(|r| r.len), set.by_place.values().max().copied());
            }
        }

        /// What is lent never overlaps, and what is kept with pages is no more than is wanted.
        #[test]
        fn a_pool_lends_each_byte_once(
            steps in prop::collection::vec((0u8..4, 1u64..30, any::<prop::sample::Index>()), 1..120),
            keep in 0u64..60,
        ) {
            let mut pool = Pool::default();
            let (mut lent, mut pages) = (Vec::<Range>::new(), BTreeSet::new());
            let mut segments = 0..;
            for (what, len, which) in steps {
                if what > 0 {
                    let longest = pool.warm.longest().map_or(0, |range| range.len);
                    let (range, cold) = pool.take(len).unwrap_or_else(|| {
                        pool.grow(segments.next().unwrap(), 50);
                        pool.take(len).unwrap()
                    });
                    prop_assert_eq!(range.len, len);
                    let these = (range.at..range.end()).map(|byte| (range.segment, byte));
                    let without = these.clone().filter(|byte| !pages.contains(byte)).count() as u64;
                    prop_assert_eq!(cold, without);
                    // What has pages comes first.
                    prop_assert!(cold == 0 || longest < len);
                    for other in &lent {
                        let apart = range.end() <= other.at || other.end() <= range.at;
                        prop_assert!(apart || range.segment != other.segment);
                    }
                    pages.extend(these);
                    lent.push(range);
                } else if !lent.is_empty() {
                    pool.give_back(lent.swap_remove(which.index(lent.len())));
                    while let Some(surplus) = pool.surplus(keep) {
                        let Surplus::Pages(range) = surplus else {
                            let Surplus::Segment(gone) = surplus else { unreachable!() };
                            pages.retain(|(segment, _)| *segment != gone);
                            continue;
                        };
                        pages.retain(|(segment, byte)| {
                            *segment != range.segment || !(range.at..range.end()).contains(byte)
                        });
                        if let Some(Surplus::Segment(gone)) = pool.settle(range, false) {
                            prop_assert!(pages.iter().all(|(segment, _)| *segment != gone));
                        }
                    }
                    prop_assert!(pool.warm.total <= keep);
                }
                prop_assert_eq!(pool.held(), pages.len() as u64);
                prop_assert_eq!(pool.lent(), lent.iter().map(|range| range.len).sum::<u64>());
            }
            for range in lent.drain(..) {
                pool.give_back(range);
            }
            let all: u64 = pool.segments.values().sum();
            prop_assert_eq!((pool.free.total, pool.free.by_place.len()), (all, pool.segments.len()));
            // Without any that are kept, one segment is left, without pages.
            while let Some(surplus) = pool.surplus(0) {
                if let Surplus::Pages(range) = surplus {
                    pool.settle(range, false);
                }
            }
            prop_assert_eq!(pool.held(), 0);
            prop_assert!(pool.segments.len() <= 1);
        }
    }

    #[test]
    fn what_grows_lies_around_pages_that_are_there() {
        let mut pool = Pool::default();
        pool.grow(0, 100);
        let (first, cold) = pool.take(10).unwrap();
        assert_eq!((first.at, cold), (0, 10));
        let (second, _) = pool.take(40).unwrap();
        pool.give_back(second);
        // Forty of the sixty are there.
        assert_eq!(pool.take(60).map(|(range, cold)| (range.at, cold)), Some((10, 20)));
        pool.give_back(first);
        assert_eq!(pool.take(41), None);
        assert_eq!(pool.take(30).map(|(range, cold)| (range.at, cold)), Some((70, 30)));
        assert_eq!(pool.take(10).map(|(range, cold)| (range.at, cold)), Some((0, 0)));
    }

    #[test]
    fn pages_that_could_not_be_given_up_are_counted() {
        let mut pool = Pool::default();
        pool.grow(0, 100);
        let (range, _) = pool.take(30).unwrap();
        pool.give_back(range);
        let Some(Surplus::Pages(pages)) = pool.surplus(10) else { panic!() };
        assert_eq!((pages.at, pages.len, pool.held()), (10, 20, 10));
        // Meanwhile nobody gets them.
        assert_eq!(pool.take(80), None);
        assert_eq!(pool.settle(pages, true), None);
        assert_eq!((pool.held(), pool.take(30).unwrap().1), (30, 0));
    }
}
