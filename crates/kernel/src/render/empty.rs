//! Which parts of a cell cannot be seen, so that rays pass them without a sample.
//!
//! Skipping never changes a bit of the picture: a part counts as empty only if every value that could be
//! interpolated in it has opacity 0, and such samples add nothing.

use super::cast::Cell;
use super::transfer::Transfer;
use stead_simd::{Vector, Work, dispatch};

/// Voxels along each side of a part.
pub(super) const SIDE: usize = 4;

/// The parts of one cell, as a grid of its own over the cell's voxels.
pub(super) struct Empty {
    /// Number of parts along each of the user's axes.
    parts: [usize; 3],
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
        let steps = [parts[1] * parts[2], parts[2], 1];
        // The axis whose neighbours are neighbours in memory is the innermost one.
        let [a, b, c] = if cell.strides[2] == 1 { [0, 1, 2] } else { [2, 1, 0] };
        let mut hidden = vec![false; parts.iter().product()];
        let (mut low, mut high) = (vec![0.0; size[c]], vec![0.0; size[c]]);
        for i in 0..parts[a] {
            for j in 0..parts[b] {
                low.fill(f32::INFINITY);
                high.fill(f32::NEG_INFINITY);
                // A sample in the last voxel's stretch of a part takes the next part's first.
                let to = |p: usize, n: usize| (p * SIDE + SIDE + 1).min(n);
                for x in i * SIDE..to(i, size[a]) {
                    for y in j * SIDE..to(j, size[b]) {
                        let at = x * cell.strides[a] + y * cell.strides[b];
                        let row = &cell.voxels[at..at + size[c]];
                        dispatch(Extend { row, low: &mut low, high: &mut high });
                    }
                }
                for k in 0..parts[c] {
                    let along = k * SIDE..to(k, size[c]);
                    let low = low[along.clone()].iter().fold(f32::INFINITY, |a, b| a.min(*b));
                    let high = high[along].iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
                    hidden[i * steps[a] + j * steps[b] + k * steps[c]] =
                        low > high || transfer.hides(low, high);
                }
            }
        }
        let all = hidden.iter().all(|h| *h);
        Empty { parts, base, hidden, all }
    }

    /// The same parts, none of which counts as empty.
    #[cfg(test)]
    pub fn seen(self) -> Empty {
        Empty { hidden: vec![false; self.hidden.len()], all: false, ..self }
    }

    /// True if a sample in this part cannot be seen. Parts are numbered with the last of the user's axes fastest.
    #[inline(always)]
    pub fn hidden(&self, part: usize) -> bool {
        self.hidden[part]
    }

    /// The numbers of a part along each axis.
    #[inline(always)]
    pub fn along(&self, part: usize) -> [usize; 3] {
        // Divisions of 32 bits are several times faster.
        let (n, b, c) = (part as u32, self.parts[1] as u32, self.parts[2] as u32);
        [(n / c / b) as usize, (n / c % b) as usize, (n % c) as usize]
    }

    /// The face of a part along an axis; infinite where the part is the last one there.
    #[inline(always)]
    pub fn face(&self, axis: usize, part: usize, upper: bool) -> f64 {
        let at = |p: usize| self.base[axis] as f64 + (p * SIDE) as f64;
        match upper {
            true if part + 1 < self.parts[axis] => at(part + 1),
            true => f64::INFINITY,
            false if part > 0 => at(part),
            false => f64::NEG_INFINITY,
        }
    }

    /// Calls `f` with the box of each part that may be seen, as far as it lies within `bounds`.
    pub fn each_seen(&self, bounds: ([f64; 3], [f64; 3]), mut f: impl FnMut([f64; 3], [f64; 3])) {
        for (n, _) in self.hidden.iter().enumerate().filter(|(_, h)| !**h) {
            let part = self.along(n);
            let low = [0, 1, 2].map(|a| self.face(a, part[a], false).max(bounds.0[a]));
            let high = [0, 1, 2].map(|a| self.face(a, part[a], true).min(bounds.1[a]));
            if (0..3).all(|a| low[a] < high[a]) {
                f(low, high);
            }
        }
    }
}

/// Extends ranges of voxels side by side to another row of them; NaN count for nothing.
struct Extend<'a> {
    row: &'a [f32],
    low: &'a mut [f32],
    high: &'a mut [f32],
}

impl Work for Extend<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let (rows, rest) = self.row.as_chunks::<8>();
        let (lows, low) = self.low.as_chunks_mut::<8>();
        let (highs, high) = self.high.as_chunks_mut::<8>();
        for i in 0..rows.len().min(lows.len()).min(highs.len()) {
            let x = v.load8(&rows[i]);
            v.store8(v.min8(x, v.load8(&lows[i])), &mut lows[i]);
            v.store8(v.max8(x, v.load8(&highs[i])), &mut highs[i]);
        }
        for i in 0..rest.len().min(low.len()).min(high.len()) {
            low[i] = if rest[i] < low[i] { rest[i] } else { low[i] };
            high[i] = if rest[i] > high[i] { rest[i] } else { high[i] };
        }
    }
}
