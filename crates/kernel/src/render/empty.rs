//! Which parts of a cell cannot be seen, so that rays pass them without a sample.
//!
//! Skipping never changes a bit of the picture: a part counts as empty only if every value that could be
//! interpolated in it has opacity 0, and such samples add nothing.

use super::cast::Cell;
use super::transfer::Transfer;

/// Voxels along each side of a part.
const SIDE: usize = 8;

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
        let mut hidden = Vec::with_capacity(parts.iter().product());
        for i in 0..parts[0] {
            for j in 0..parts[1] {
                for k in 0..parts[2] {
                    let from = [i, j, k].map(|p| p * SIDE);
                    // A sample in the last voxel's stretch of a part takes the next part's first.
                    let to = [0, 1, 2].map(|a| (from[a] + SIDE + 1).min(size[a]));
                    let (low, high) = cell.range(from, to);
                    hidden.push(low > high || transfer.hides(f64::from(low), f64::from(high)));
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

    /// True if a sample at `p`, which is in the cell, cannot be seen.
    #[inline]
    pub fn hides(&self, p: [f64; 3]) -> bool {
        let [i, j, k] = self.part(p);
        self.hidden[(i * self.parts[1] + j) * self.parts[2] + k]
    }

    /// The part in which a sample lies.
    #[inline]
    fn part(&self, p: [f64; 3]) -> [usize; 3] {
        [0, 1, 2].map(|a| {
            // Positions before the first voxel saturate at 0.
            let i = (p[a] as u64).saturating_sub(self.base[a]) as usize / SIDE;
            i.min(self.parts[a] - 1)
        })
    }

    /// The faces of the part around `p`; infinite where the part is the last one along an axis.
    pub fn faces(&self, p: [f64; 3]) -> ([f64; 3], [f64; 3]) {
        let (mut low, mut high) = ([f64::NEG_INFINITY; 3], [f64::INFINITY; 3]);
        let at = self.part(p);
        for a in 0..3 {
            if at[a] > 0 {
                low[a] = self.base[a] as f64 + (at[a] * SIDE) as f64;
            }
            if at[a] + 1 < self.parts[a] {
                high[a] = self.base[a] as f64 + ((at[a] + 1) * SIDE) as f64;
            }
        }
        (low, high)
    }
}
