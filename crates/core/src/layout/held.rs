//! Walks over a layout: the pieces of a range, the ranges of a holder.

use super::{Layout, Piece};
use crate::{Error, Result};
use std::ops::Range;

/// The pieces of a range of a file. See [`Layout::pieces`].
#[derive(Debug, Clone)]
pub struct Pieces<'a> {
    layout: &'a Layout,
    rest: Range<u64>,
}

impl<'a> Pieces<'a> {
    pub(super) fn new(layout: &'a Layout, range: Range<u64>) -> Pieces<'a> {
        Pieces { layout, rest: range.start..range.end.min(layout.length) }
    }

    /// The piece at the beginning of what is left.
    fn first(&self) -> Option<Piece> {
        let offset = self.rest.start;
        if offset >= self.rest.end {
            return None;
        }
        let i = self.layout.stripe_at(offset)?;
        let stripe = self.layout.stripe(i);
        Some(Piece {
            part: self.layout.part_of(i),
            at: self.layout.within(i) + (offset - stripe.start),
            offset,
            len: stripe.end.min(self.rest.end) - offset,
        })
    }
}

impl Iterator for Pieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let mut piece = self.first()?;
        self.rest.start += piece.len;
        if self.layout.parts.len() == 1 {
            piece.len += self.rest.end - self.rest.start;
            self.rest.start = self.rest.end;
            return Some(piece);
        }
        while let Some(more) = self.first() {
            if more.part != piece.part || more.at != piece.at + piece.len {
                break;
            }
            piece.len += more.len;
            self.rest.start += more.len;
        }
        Some(piece)
    }
}

/// The pieces of a range of a part. See [`Layout::part_pieces`].
#[derive(Debug, Clone)]
pub struct PartPieces<'a> {
    layout: &'a Layout,
    part: usize,
    rest: Range<u64>,
}

impl<'a> PartPieces<'a> {
    pub(super) fn new(layout: &'a Layout, part: usize, range: Range<u64>) -> PartPieces<'a> {
        let length = layout.parts.get(part).map_or(0, |p| p.length);
        PartPieces { layout, part, rest: range.start..range.end.min(length) }
    }
}

impl Iterator for PartPieces<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        let at = self.rest.start;
        if at >= self.rest.end {
            return None;
        }
        let offset = self.layout.offset(self.part, at)?;
        let stripe = self.layout.stripe_around(offset)?;
        let len = (stripe.end - offset).min(self.rest.end - at);
        self.rest.start += len;
        Some(Piece { part: self.part, at, offset, len })
    }
}

/// The ranges of a file that a holder has. See [`Layout::held`] and [`Layout::held_by`].
#[derive(Debug, Clone)]
pub struct Held<'a> {
    layout: &'a Layout,
    stripes: Mine,
    /// Which of the holder's stripes are left.
    left: Range<u64>,
}

/// The stripes of some parts, in the order of the file.
#[derive(Debug, Clone)]
enum Mine {
    /// `parts` is sorted; stripe `k` is `parts[k mod m] + (k / m) n`.
    Even { parts: Vec<u64>, n: u64 },
    /// The stripes themselves.
    Cut(Vec<u32>),
}

impl Mine {
    fn get(&self, k: u64) -> u64 {
        match self {
            Mine::Even { parts, n } => {
                let m = parts.len() as u64;
                parts[(k % m) as usize] + k / m * n
            }
            Mine::Cut(stripes) => usize::try_from(k)
                .ok()
                .and_then(|k| stripes.get(k))
                .map_or(u64::MAX, |i| u64::from(*i)),
        }
    }
}

impl<'a> Held<'a> {
    pub(super) fn new(
        layout: &'a Layout,
        parts: &[usize],
        k: usize,
        of: usize,
    ) -> Result<Held<'a>> {
        if k >= of {
            return Err(Error::usage(format!("holder {k} of {of}; they count from 0")));
        }
        let n = layout.parts.len();
        let mut parts = parts.to_vec();
        parts.sort_unstable();
        if let Some(twice) = parts.windows(2).find(|w| w[0] == w[1]) {
            return Err(Error::usage(format!("part {} is named twice", twice[0])));
        }
        if let Some(beyond) = parts.last().filter(|p| **p >= n) {
            return Err(Error::usage(format!("part {beyond} of {n}; they count from 0")));
        }
        let (stripes, count) = match &layout.stripes {
            _ if parts.is_empty() => (Mine::Cut(Vec::new()), 0),
            super::Stripes::Even(_) => {
                let (all, n) = (layout.stripes(), n as u64);
                let parts: Vec<u64> = parts.iter().map(|p| *p as u64).collect();
                let last = parts.iter().filter(|p| **p < all % n).count() as u64;
                let count = all / n * parts.len() as u64 + last;
                (Mine::Even { parts, n }, count)
            }
            super::Stripes::Cut(cut) => {
                let mut mine: Vec<u32> = Vec::new();
                parts.iter().for_each(|p| mine.extend_from_slice(&cut.of_part[*p]));
                mine.sort_unstable();
                let count = mine.len() as u64;
                (Mine::Cut(mine), count)
            }
        };
        let bound = |k: usize| (u128::from(count) * k as u128 / of as u128) as u64;
        Ok(Held { layout, stripes, left: bound(k)..bound(k + 1) })
    }

    /// Number of stripes that are left.
    pub fn stripes(&self) -> u64 {
        self.left.end - self.left.start
    }
}

impl Iterator for Held<'_> {
    type Item = Range<u64>;

    fn next(&mut self) -> Option<Range<u64>> {
        let mut found: Option<Range<u64>> = None;
        while self.left.start < self.left.end {
            let stripe = self.layout.stripe(self.stripes.get(self.left.start));
            match &mut found {
                _ if stripe.is_empty() => {}
                Some(range) if stripe.start == range.end => range.end = stripe.end,
                Some(_) => break,
                None => found = Some(stripe),
            }
            self.left.start += 1;
        }
        found
    }
}
