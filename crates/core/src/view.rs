//! What of a file is seen: a pattern of stretches that repeats, as the file views of MPI-IO say it.

use crate::{Error, Result, limits};
use std::ops::Range;

/// Bytes of a file: from a displacement on, a tile of so many bytes repeats without end, of which some runs are seen, one
/// after the other. Of what is seen so, some bytes are skipped and some are meant.
///
/// It takes memory for each run of one tile, however often that repeats.
///
/// ```
/// # use stead_core::View;
/// // Of records of 16 bytes the last 4, from the third record on, five times.
/// let view = View::new(0, 16, vec![(12, 4)], 2 * 4, 5 * 4)?;
/// let seen: Vec<u64> = view.pieces(0..view.len()).map(|p| p.at).collect();
/// assert_eq!(seen, [44, 60, 76, 92, 108]);
/// # Ok::<(), stead_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct View {
    displacement: u64,
    /// Bytes of a tile.
    extent: u64,
    /// Where the runs of a tile begin, and how long they are: in order, none empty, no two of them touch.
    runs: Vec<(u64, u64)>,
    /// For each run, how many bytes of the tile are seen before it.
    before: Vec<u64>,
    /// Bytes of a tile that are seen; at least 1, unless nothing is meant.
    seen: u64,
    skip: u64,
    bytes: u64,
    /// Where the last one that is meant ends in the file.
    end: u64,
}

/// Bytes that lie one after the other both in the file and in a view of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Where they begin in the file.
    pub at: u64,
    /// And in the view.
    pub offset: u64,
    /// How many.
    pub len: u64,
}

impl View {
    /// From `displacement` on, tiles of `extent` bytes with `runs`: where each begins in the tile, and its length. Of what is
    /// seen so, `bytes` bytes are meant, after the first `skip`.
    ///
    /// Runs ascend and do not overlap. Empty ones are left out, those that touch become one.
    ///
    /// # Errors
    /// `Usage` for runs that descend or overlap, in one tile or with those of the next one, where bytes are meant and none
    /// are seen, and for places beyond 64 bits; `Limit` above [`limits::MAX_VIEW_RUNS`] runs.
    pub fn new(
        displacement: u64,
        extent: u64,
        runs: Vec<(u64, u64)>,
        skip: u64,
        bytes: u64,
    ) -> Result<View> {
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for (at, len) in runs.into_iter().filter(|(_, len)| *len > 0) {
            let end = at.checked_add(len).ok_or_else(beyond)?;
            match joined.last_mut() {
                Some((from, run)) if *from + *run == at => *run = end - *from,
                Some((from, run)) if *from + *run > at => {
                    return Err(Error::usage(format!(
                        "the runs of a view descend or overlap: one ends at byte {}, the next one begins at {at}",
                        *from + *run
                    ))
                    .with_hint("give them in the order of the file, each byte once"));
                }
                _ => joined.push((at, len)),
            }
            if joined.len() > limits::MAX_VIEW_RUNS {
                return Err(Error::limit(format!(
                    "a view has more than {} runs in one repetition",
                    limits::MAX_VIEW_RUNS
                ))
                .with_hint(
                    "say how it repeats: the pattern of one row or record, and its extent",
                ));
            }
        }
        let (first, last) = (joined.first().copied(), joined.last().copied());
        if let (Some((from, _)), Some((at, len))) = (first, last)
            && at + len - from > extent
        {
            return Err(Error::usage(format!(
                "the runs of a view span {} bytes and repeat after {extent}, so that they overlap",
                at + len - from
            ))
            .with_hint("the extent is the distance from one repetition to the next"));
        }
        if first.is_none() && bytes > 0 {
            return Err(Error::usage(format!("{bytes} bytes of a view that has none"))
                .with_hint("a view has at least one run that is not empty"));
        }
        let mut seen = 0u64;
        let mut before = Vec::with_capacity(joined.len());
        for (_, len) in &joined {
            before.push(seen);
            // No more than the extent.
            seen += len;
        }
        let mut view =
            View { displacement, extent, runs: joined, before, seen, skip, bytes, end: 0 };
        if bytes > 0 {
            let end = skip.checked_add(bytes).ok_or_else(beyond)?;
            view.end = view.place(end - 1).and_then(|at| at.checked_add(1)).ok_or_else(beyond)?;
        }
        Ok(view)
    }

    /// The bytes `start..start + bytes` of a file.
    ///
    /// # Errors
    /// As [`View::new`].
    pub fn stretch(start: u64, bytes: u64) -> Result<View> {
        View::new(start, bytes, vec![(0, bytes)], 0, bytes)
    }

    /// Number of bytes that are meant.
    pub fn len(&self) -> u64 {
        self.bytes
    }

    /// True if none are.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where the last one of them ends in the file; 0 if there is none.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// What it was made of: displacement, extent, runs of a tile, bytes that are skipped, and bytes that are meant. Runs that
    /// touch have become one.
    pub fn parts(&self) -> (u64, u64, &[(u64, u64)], u64, u64) {
        (self.displacement, self.extent, &self.runs, self.skip, self.bytes)
    }

    /// Those of its bytes that a file of `length` bytes has: what is read at the end of a file.
    pub fn within(&self, length: u64) -> View {
        if self.end <= length {
            return self.clone();
        }
        // How many bytes that are seen lie before the end of the file: they ascend.
        let (mut low, mut high) = (0, self.bytes);
        while low < high {
            let middle = low + (high - low) / 2;
            let there = self.place(self.skip + middle).is_some_and(|at| at < length);
            (low, high) = if there { (middle + 1, high) } else { (low, middle) };
        }
        let last = low.checked_sub(1).and_then(|last| self.place(self.skip + last));
        View { bytes: low, end: last.map_or(0, |at| at + 1), ..self.clone() }
    }

    /// Where the byte of the pattern is that has `n` before it; `None` beyond 64 bits.
    fn place(&self, n: u64) -> Option<u64> {
        let (tile, rest) = (n.checked_div(self.seen)?, n % self.seen);
        let run = self.before.partition_point(|b| *b <= rest).checked_sub(1)?;
        let within = self.runs.get(run)?.0 + (rest - self.before.get(run)?);
        tile.checked_mul(self.extent)?.checked_add(within)?.checked_add(self.displacement)
    }

    /// How many bytes of the view lie before byte `at` of the file: for what begins in a part of the file, the part of the view.
    pub fn before(&self, at: u64) -> u64 {
        let Some((first, _)) = self.runs.first() else { return 0 };
        let Some(at) = at.checked_sub(self.displacement).and_then(|at| at.checked_sub(*first))
        else {
            return 0;
        };
        // Runs that begin are no further apart than a tile is long, so that there is one if anything is seen.
        let (tile, rest) = (at / self.extent, at % self.extent);
        let run = self.runs.partition_point(|(from, _)| from - first <= rest).saturating_sub(1);
        let within =
            |(before, (from, len)): (&u64, &(u64, u64))| before + (rest - (from - first)).min(*len);
        let rest = self.before.get(run).zip(self.runs.get(run)).map_or(0, within);
        // More than 64 bits can count is more than there is.
        let seen = tile.checked_mul(self.seen).and_then(|n| n.checked_add(rest));
        seen.unwrap_or(u64::MAX).saturating_sub(self.skip).min(self.bytes)
    }

    /// Where the bytes `range` of the view lie, in their order, as few pieces as there are. What is beyond its end is left out.
    pub fn pieces(&self, range: Range<u64>) -> Pieces<'_> {
        let end = range.end.min(self.bytes);
        Pieces { view: self, next: range.start.min(end), end }
    }

    /// Of the bytes from `offset` on, those that lie in one run.
    fn run(&self, offset: u64, end: u64) -> Option<Seen> {
        let n = self.skip.checked_add(offset)?;
        let rest = n.checked_rem(self.seen)?;
        let run = self.before.partition_point(|b| *b <= rest).checked_sub(1)?;
        let left = if self.is_plain() {
            end - offset
        } else {
            self.before.get(run)? + self.runs.get(run)?.1 - rest
        };
        Some(Seen { at: self.place(n)?, offset, len: left.min(end - offset) })
    }

    /// True if tiles are nothing but one run after the other.
    fn is_plain(&self) -> bool {
        self.seen == self.extent
    }
}

fn beyond() -> Error {
    Error::usage("a view reaches beyond what 64 bits can count")
}

/// See [`View::pieces`].
#[derive(Debug)]
pub struct Pieces<'v> {
    view: &'v View,
    next: u64,
    end: u64,
}

impl Iterator for Pieces<'_> {
    type Item = Seen;

    fn next(&mut self) -> Option<Seen> {
        if self.next >= self.end {
            return None;
        }
        let mut piece = self.view.run(self.next, self.end)?;
        self.next += piece.len;
        // The last run of a tile may touch the first one of the next.
        while self.next < self.end {
            let more = self.view.run(self.next, self.end)?;
            if more.at != piece.at + piece.len {
                break;
            }
            piece.len += more.len;
            self.next += more.len;
        }
        Some(piece)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use proptest::prelude::*;

    #[test]
    fn a_stretch_is_one_piece() {
        let view = View::stretch(7, 1 << 40).unwrap();
        assert_eq!((view.len(), view.end()), (1 << 40, 7 + (1 << 40)));
        let pieces: Vec<Seen> = view.pieces(5..u64::MAX).collect();
        assert_eq!(pieces, [Seen { at: 12, offset: 5, len: (1 << 40) - 5 }]);
        // So are tiles that follow each other, however many.
        let view = View::new(3, 8, vec![(0, 5), (5, 3)], 1, 1 << 50).unwrap();
        assert_eq!(view.pieces(0..1 << 50).count(), 1);
        let none = View::stretch(9, 0).unwrap();
        assert!(none.is_empty() && none.end() == 0 && none.pieces(0..9).count() == 0);
    }

    #[test]
    fn what_is_no_view_is_refused() {
        let most = u64::MAX;
        for (displacement, extent, runs, skip, bytes, says) in [
            (0, 10, vec![(4, 2), (0, 2)], 0, 1, "descend or overlap"),
            (0, 10, vec![(0, 3), (2, 2)], 0, 1, "descend or overlap"),
            (0, 10, vec![(0, 3), (9, 2)], 0, 1, "span 11 bytes and repeat after 10"),
            (0, 0, vec![(5, 1)], 0, 1, "span 1 bytes and repeat after 0"),
            (0, 10, vec![], 0, 1, "a view that has none"),
            (0, 10, vec![(3, 0)], 0, 1, "a view that has none"),
            (0, most, vec![(most, 1)], 0, 1, "64 bits"),
            (most, 1, vec![(0, 1)], 0, 1, "64 bits"),
            (1, most, vec![(0, 1)], 1, 1, "64 bits"),
            (0, 2, vec![(0, 1)], most - 1, 1, "64 bits"),
            (0, 1, vec![(0, 1)], most, 1, "64 bits"),
        ] {
            let e = View::new(displacement, extent, runs, skip, bytes).unwrap_err();
            assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
        }
        let many = |n: usize| (0..n as u64).map(|i| (2 * i, 1)).collect::<Vec<_>>();
        let most = limits::MAX_VIEW_RUNS;
        assert!(View::new(0, 1 << 40, many(most), 0, 1).is_ok());
        let e = View::new(0, 1 << 40, many(most + 1), 0, 1).unwrap_err();
        assert_eq!(e.kind(), Kind::Limit);
        assert!(View::new(9, 0, vec![], 3, 0).unwrap().is_empty());
    }

    /// Gaps and lengths of runs, what comes after the last one, and the rest.
    fn any() -> impl Strategy<Value = (u64, Vec<(u64, u64)>, u64, u64, u64)> {
        let runs = prop::collection::vec((0u64..4, 0u64..5), 1..6);
        (0u64..20, runs, 0u64..4, 0u64..30, 0u64..60)
    }

    proptest! {
        #[test]
        fn views_are_what_a_list_of_all_bytes_is(
            (displacement, runs, rest, skip, bytes) in any(), from in 0u64..70, len in 0u64..70, length in 0u64..150,
        ) {
            let mut at = 0;
            let mut placed = Vec::new();
            for (gap, len) in runs {
                placed.push((at + gap, len));
                at += gap + len;
            }
            let extent = at + rest;
            let sees = placed.iter().any(|(_, len)| *len > 0);
            let view = View::new(displacement, extent, placed.clone(), skip, bytes);
            prop_assert_eq!(view.is_ok(), sees || bytes == 0);
            let Ok(view) = view else { return Ok(()) };
            // Byte by byte.
            let naive: Vec<u64> = if sees {
                let tile = |t: u64| {
                    let of = placed.iter().flat_map(|(at, len)| *at..*at + *len);
                    of.map(move |b| displacement + t * extent + b).collect::<Vec<_>>()
                };
                (0..).flat_map(tile).skip(skip as usize).take(bytes as usize).collect()
            } else {
                Vec::new()
            };
            prop_assert_eq!(view.end(), naive.last().map_or(0, |last| last + 1));
            for at in [0, from, from + len, length, view.end(), u64::MAX] {
                let before = naive.iter().filter(|b| **b < at).count() as u64;
                prop_assert_eq!(view.before(at), before, "before {}", at);
            }
            let to = from + len;
            let pieces: Vec<Seen> = view.pieces(from..to).collect();
            let mine: Vec<u64> = pieces.iter().flat_map(|p| p.at..p.at + p.len).collect();
            let want: Vec<u64> =
                naive.iter().copied().skip(from as usize).take(len as usize).collect();
            prop_assert_eq!(&mine, &want);
            // In order, one after the other in the view, and no two that touch in the file.
            let mut offset = from.min(bytes);
            for p in &pieces {
                prop_assert_eq!(p.offset, offset);
                offset += p.len;
            }
            prop_assert!(pieces.windows(2).all(|w| w[0].at + w[0].len < w[1].at));
            // The end of a file cuts it.
            let cut = view.within(length);
            let there: Vec<u64> = naive.iter().copied().filter(|at| *at < length).collect();
            let mine: Vec<u64> = cut.pieces(0..bytes).flat_map(|p| p.at..p.at + p.len).collect();
            prop_assert_eq!(&mine, &there);
            prop_assert_eq!((cut.len(), cut.end()), (there.len() as u64, there.last().map_or(0, |l| l + 1)));
            // What it was made of makes it again.
            let (displacement, extent, runs, skip, bytes) = view.parts();
            prop_assert_eq!(&View::new(displacement, extent, runs.to_vec(), skip, bytes).unwrap(), &view);
        }
    }
}
