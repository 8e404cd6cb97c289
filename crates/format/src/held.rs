//! Arithmetic of what begins in the bytes that a rank holds.

use crate::api::Held;
use std::ops::Range;
use std::sync::Arc;
use stead_core::{Error, Result};
use stead_store::Source;

/// Those of `held`, which is sorted, that are of one source.
pub(crate) fn of_source(held: &[Held], source: usize) -> &[Held] {
    let from = held.partition_point(|h| (h.source as usize) < source);
    let to = held.partition_point(|h| h.source as usize <= source);
    &held[from..to.max(from)]
}

/// Of `count` things of `size` bytes, one after the other from offset `at` on, those whose first byte is in `bytes`.
pub(crate) fn starts(bytes: &Range<u64>, at: u64, size: u64, count: u64) -> Range<u64> {
    let first = |offset: u64| offset.saturating_sub(at).div_ceil(size.max(1)).min(count);
    first(bytes.start)..first(bytes.end)
}

/// For each source a number by which its blocks come after those of the sources before it, if they are numbered from 0 to
/// `room` of its length.
pub(crate) fn bases(
    sources: impl IntoIterator<Item = u64>,
    room: impl Fn(u64) -> u64,
) -> Result<Vec<u64>> {
    let mut next = 0u64;
    let base = |len| {
        let base = next;
        next = next.checked_add(room(len))?;
        Some(base)
    };
    let bases: Option<Vec<u64>> = sources.into_iter().map(base).collect();
    bases.ok_or_else(|| Error::limit("more bytes in one dataset than 64 bits can count"))
}

/// Fails for bytes that the sources do not have.
pub(crate) fn check(held: &[Held], sources: &[Arc<dyn Source>]) -> Result<()> {
    let fits = |h: &Held| sources.get(h.source as usize).is_some_and(|s| h.bytes.end <= s.len());
    let ordered = |w: &[Held]| (w[0].source, w[0].bytes.end) <= (w[1].source, w[1].bytes.start);
    if held.iter().all(fits) && held.windows(2).all(ordered) {
        return Ok(());
    }
    Err(Error::internal("a rank holds bytes that there are not, or not in order"))
}

/// Blocks of runs of units. Takes memory for each run, not for each block.
#[derive(Debug)]
pub(crate) struct Runs<T> {
    runs: Vec<Run<T>>,
    blocks: u64,
}

#[derive(Debug)]
struct Run<T> {
    first: u64,
    what: T,
    units: Range<u64>,
    step: u64,
}

impl<T: Copy> Runs<T> {
    pub(crate) fn new() -> Runs<T> {
        Runs { runs: Vec::new(), blocks: 0 }
    }

    /// Adds a run, in blocks of `step` units.
    pub(crate) fn push(&mut self, what: T, units: Range<u64>, step: u64) {
        let (step, count) = (step.max(1), units.end.saturating_sub(units.start));
        if count > 0 {
            self.runs.push(Run { first: self.blocks, what, units, step });
            self.blocks += count.div_ceil(step);
        }
    }

    /// Number of blocks.
    pub(crate) fn blocks(&self) -> u64 {
        self.blocks
    }

    /// Of what block `n` is, and its units.
    pub(crate) fn get(&self, n: u64) -> Option<(T, Range<u64>)> {
        let i = self.runs.partition_point(|r| r.first <= n).checked_sub(1)?;
        let run = &self.runs[i];
        let first = run.units.start.checked_add((n - run.first).checked_mul(run.step)?)?;
        let to = first.saturating_add(run.step).min(run.units.end);
        (first < to).then_some((run.what, first..to))
    }

    /// All runs.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (T, &Range<u64>)> {
        self.runs.iter().map(|r| (r.what, &r.units))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_fall_into_blocks() {
        let mut runs = Runs::new();
        runs.push('a', 5..12, 3);
        runs.push('b', 7..7, 3);
        runs.push('c', 0..1, 9);
        let all: Vec<_> = (0..=runs.blocks()).map(|n| runs.get(n)).collect();
        assert_eq!(
            all,
            [Some(('a', 5..8)), Some(('a', 8..11)), Some(('a', 11..12)), Some(('c', 0..1)), None]
        );
    }

    proptest! {
        #[test]
        fn what_begins_in_any_cut_begins_once(
            at in 0u64..20, size in 1u64..9, count in 0u64..30, cuts in prop::collection::vec(0u64..200, 0..9),
        ) {
            let mut cuts = cuts;
            cuts.extend([0, at + size * count]);
            cuts.retain(|c| *c <= at + size * count);
            cuts.sort_unstable();
            let mut seen = Vec::new();
            for w in cuts.windows(2) {
                for i in starts(&(w[0]..w[1]), at, size, count) {
                    prop_assert!((w[0]..w[1]).contains(&(at + i * size)));
                    seen.push(i);
                }
            }
            prop_assert!(seen.into_iter().eq(0..count));
        }
    }
}
