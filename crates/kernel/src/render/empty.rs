//! Which parts of a cell cannot be seen, so that rays pass them without a sample.
//!
//! Skipping never changes a bit of the picture: a part counts as empty only if every value that could be
//! interpolated in it has opacity 0, and such samples add nothing.

use super::cast::Cell;
use super::transfer::Transfer;
use std::ops::Range;
use stead_simd::{Vector, Work, dispatch};

/// Voxels along each side of a part.
pub(super) const SIDE: usize = 4;

/// The parts of one cell, as a grid of its own over the cell's voxels.
pub(super) struct Empty {
    /// Number of parts along each of the user's axes.
    pub parts: [usize; 3],
    /// Distance between neighbours' numbers along each of the user's axes: parts lie as the voxels do.
    pub steps: [usize; 3],
    /// First voxel of the cell along each axis.
    base: [u64; 3],
    hidden: Vec<bool>,
    /// True if not one part can be seen.
    pub all: bool,
}

impl Empty {
    /// Looks at every voxel once, and at those on the parts' faces again.
    pub fn new(cell: &Cell<'_>, transfer: &Transfer) -> Empty {
        let mut base = [0; 3];
        base[cell.axis] = cell.first;
        let size = cell.size();
        let parts = size.map(|n| n.div_ceil(SIDE));
        let [a, b, c] = cell.nesting();
        let mut steps = [1; 3];
        (steps[a], steps[b]) = (parts[b] * parts[c], parts[c]);
        let mut hidden = Vec::with_capacity(parts.iter().product());
        let (mut low, mut high) = (vec![0.0; size[c]], vec![0.0; size[c]]);
        for i in 0..parts[a] {
            for j in 0..parts[b] {
                low.fill(f32::INFINITY);
                high.fill(f32::NEG_INFINITY);
                // A sample in the last voxel's stretch of a part takes the next part's first.
                let to = |p: usize, n: usize| (p * SIDE + SIDE + 1).min(n);
                for x in i * SIDE..to(i, size[a]) {
                    let from = x * cell.strides[a] + j * SIDE * cell.strides[b];
                    let rows = to(j, size[b]) - j * SIDE;
                    let rows = &cell.voxels[from..from + rows * size[c]];
                    dispatch(Extend { rows, low: &mut low, high: &mut high });
                }
                for k in 0..parts[c] {
                    let (mut least, mut most) = (f32::INFINITY, f32::NEG_INFINITY);
                    for v in k * SIDE..to(k, size[c]) {
                        least = if low[v] < least { low[v] } else { least };
                        most = if high[v] > most { high[v] } else { most };
                    }
                    hidden.push(transfer.hides_values(least, most));
                }
            }
        }
        let all = hidden.iter().all(|h| *h);
        Empty { parts, steps, base, hidden, all }
    }

    /// The same parts, none of which counts as empty.
    #[cfg(test)]
    pub fn seen(self) -> Empty {
        Empty { hidden: vec![false; self.hidden.len()], all: false, ..self }
    }

    /// True if a sample in this part cannot be seen.
    #[inline(always)]
    pub fn hidden(&self, part: usize) -> bool {
        self.hidden[part]
    }

    /// A row of parts from this one on, along the axis whose neighbours have neighbouring numbers.
    pub fn row(&self, first: usize, len: usize) -> &[bool] {
        &self.hidden[first..first + len]
    }

    /// Calls `f` with the box of each part that may be seen, as far as it lies within `bounds`.
    pub fn each_seen(
        &self,
        bounds: &([f64; 3], [f64; 3]),
        mut f: impl FnMut(&[f64; 3], &[f64; 3]),
    ) {
        let face = |a: usize, part: usize| self.ends(a, part, bounds);
        for i in 0..self.parts[0] {
            let x = face(0, i);
            for j in 0..self.parts[1] {
                let y = face(1, j);
                for k in 0..self.parts[2] {
                    let n = i * self.steps[0] + j * self.steps[1] + k * self.steps[2];
                    let z = face(2, k);
                    if !self.hidden[n] && x.0 < x.1 && y.0 < y.1 && z.0 < z.1 {
                        f(&[x.0, y.0, z.0], &[x.1, y.1, z.1]);
                    }
                }
            }
        }
    }

    /// Both faces of a part along an axis: those of the bounds where the part is an outermost one.
    fn ends(&self, axis: usize, part: usize, bounds: &([f64; 3], [f64; 3])) -> (f64, f64) {
        let at = |p: usize| self.base[axis] as f64 + (p * SIDE) as f64;
        let (low, high) = (bounds.0[axis], bounds.1[axis]);
        let first = if part > 0 { at(part).max(low) } else { low };
        let last = if part + 1 < self.parts[axis] { at(part + 1).min(high) } else { high };
        (first, last)
    }
}

/// The parts that a voxel matters to, along one axis of `parts`: those with samples that take it. `reach` is how far
/// values are taken beyond a part's samples: before its first voxel, and after the one that follows its last.
pub(super) fn around(voxel: usize, parts: usize, reach: (usize, usize)) -> Range<usize> {
    let first = voxel.saturating_sub(SIDE + reach.1).div_ceil(SIDE);
    first..((voxel + reach.0) / SIDE + 1).min(parts)
}

/// Extends ranges of voxels side by side to other rows of them, which lie in one piece; NaN count for nothing.
struct Extend<'a> {
    rows: &'a [f32],
    low: &'a mut [f32],
    high: &'a mut [f32],
}

impl Work for Extend<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let (lows, low) = self.low.as_chunks_mut::<8>();
        let (highs, high) = self.high.as_chunks_mut::<8>();
        let len = lows.len() * 8 + low.len();
        for row in self.rows.chunks_exact(len.max(1)) {
            let (row, rest) = row.as_chunks::<8>();
            for i in 0..row.len().min(lows.len()).min(highs.len()) {
                let x = v.load8(&row[i]);
                v.store8(v.min8(x, v.load8(&lows[i])), &mut lows[i]);
                v.store8(v.max8(x, v.load8(&highs[i])), &mut highs[i]);
            }
            for i in 0..rest.len().min(low.len()).min(high.len()) {
                low[i] = if rest[i] < low[i] { rest[i] } else { low[i] };
                high[i] = if rest[i] > high[i] { rest[i] } else { high[i] };
            }
        }
    }
}
