//! Values between voxels.

use super::cast::Cell;
use super::empty::{Empty, SIDE, around};
use super::transfer::Transfer;
use std::ops::Range;
use stead_simd::Vector;

/// Samples that are worked on side by side.
pub(super) const LANES: usize = 8;
/// Voxels that 32-bit indices can count, and voxels along an axis.
pub(super) const MOST: u64 = 1 << 30;

/// Voxels of a cell as places in the table of colours, ready to be sampled.
///
/// The last voxel of each row stands there twice, and so do the last row and the last plane: so each voxel has a next
/// one along each axis, at the same distance everywhere.
pub(super) struct Grid<'a> {
    places: &'a [f32],
    /// The last voxel of the volume along each of the user's axes.
    last: [f64; 3],
    /// The axis along which the cell is a part of the volume, its first voxel there, and the number of the last one
    /// from there.
    axis: usize,
    base: f64,
    end: f64,
    /// Distance between neighbours in `places` along each of the user's axes.
    strides: [usize; 3],
    /// Distance between parts of [`Empty`] along each axis.
    parts: [usize; 3],
}

impl<'a> Grid<'a> {
    /// Finds the places of the voxels that samples may be made of, in `places`; the others are left as they are. `reach`
    /// is how far values are taken beyond the samples themselves: voxels before and after.
    ///
    /// `None` if the cell has no voxels, or more than can be.
    pub fn new(
        cell: &Cell<'_>,
        transfer: &Transfer,
        empty: &Empty,
        reach: (usize, usize),
        places: &'a mut Vec<f32>,
    ) -> Option<Grid<'a>> {
        let size = cell.size();
        let [a, b, c] = cell.nesting();
        let (row, rows) = (size[c].checked_add(1)?, size[b].checked_add(1)?);
        let plane = row.checked_mul(rows)?;
        let len = plane.checked_mul(size[a].checked_add(1)?)?;
        let none = size.contains(&0) || cell.dims.iter().any(|d| *d > MOST);
        if none || len as u64 > MOST {
            return None;
        }
        if places.len() < len {
            places.resize(len, f32::NAN);
        }
        let mut strides = [1; 3];
        (strides[a], strides[b]) = (plane, row);
        let mut fill = Fill { empty, reach, parts: empty.parts[c], runs: Vec::new(), of: None };
        for x in 0..=size[a] {
            for y in 0..=size[b] {
                let along = |v: usize, axis: usize| around(v, empty.parts[axis], reach);
                let (i, j) = (along(x, a), along(y, b));
                let from =
                    x.min(size[a] - 1) * cell.strides[a] + y.min(size[b] - 1) * cell.strides[b];
                let values = &cell.voxels[from..from + size[c]];
                let to = &mut places[x * plane + y * row..][..row];
                for run in fill.runs((i, empty.steps[a]), (j, empty.steps[b])) {
                    let end = run.end.min(size[c]);
                    transfer.places(&values[run.start..end], &mut to[run.start..end]);
                    if run.end > size[c] {
                        to[size[c]] = to[size[c] - 1];
                    }
                }
            }
        }
        Some(Grid {
            places: &places[..len],
            last: cell.dims.map(|d| d as f64 - 1.0),
            axis: cell.axis,
            base: cell.first as f64,
            end: (size[cell.axis] - 1) as f64,
            strides,
            parts: empty.steps,
        })
    }

    /// Where the samples at eight places lie. Coordinates are given along each axis.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    pub fn locate8<V: Vector>(&self, v: V, p: &[[V::Four; 2]; 3]) -> Spots<V> {
        let zero = v.splat(0.0);
        let mut at = [zero; 2];
        let mut number = [zero; 2];
        let mut f = [v.splat8(0.0); 3];
        for a in 0..3 {
            let (last, stride) = (v.splat(self.last[a]), v.splat(self.strides[a] as f64));
            let (side, parts) = (v.splat(1.0 / SIDE as f64), v.splat(self.parts[a] as f64));
            let mut rest = [zero; 2];
            for h in 0..2 {
                // Constant beyond the outermost voxels.
                let q = v.min(v.max(p[a][h], zero), last);
                let i = v.floor(q);
                rest[h] = v.sub(q, i);
                // Along the other axes the cell has all voxels.
                let local = if a == self.axis {
                    v.min(v.max(v.sub(i, v.splat(self.base)), zero), v.splat(self.end))
                } else {
                    i
                };
                // Products and sums of integers far below 2^53 are exact.
                at[h] = v.add(at[h], v.mul(local, stride));
                number[h] = v.add(number[h], v.mul(v.floor(v.mul(local, side)), parts));
            }
            f[a] = v.narrow(rest[0], rest[1]);
        }
        Spots { at: integers8(v, at), f, number: integers8(v, number) }
    }

    /// The values at eight places, trilinear. The nesting follows the user's axes.
    #[inline(always)]
    pub fn mix8<V: Vector>(&self, v: V, s: &Spots<V>) -> V::Eight {
        let [x, y, _] = self.strides;
        let a = self.pair(v, s, 0);
        let b = self.pair(v, s, y);
        let c = self.pair(v, s, x);
        let d = self.pair(v, s, x + y);
        let (low, high) = (between(v, a, b, s.f[1]), between(v, c, d, s.f[1]));
        between(v, low, high, s.f[0])
    }

    /// Between the eight voxels that lie `step` after the spots and the next ones along the last axis.
    #[inline(always)]
    fn pair<V: Vector>(&self, v: V, s: &Spots<V>, step: usize) -> V::Eight {
        let next = step + self.strides[2];
        between(v, self.eight(v, &s.at, step), self.eight(v, &s.at, next), s.f[2])
    }

    /// Eight voxels. `step` is a sum of some of the strides, each taken once.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn eight<V: Vector>(&self, v: V, at: &[i32; LANES], step: usize) -> V::Eight {
        let mut out = [0.0; LANES];
        for l in 0..LANES {
            // SAFETY: along each axis `locate8` stays between the first and the last voxel of the cell, and one step
            // further is a place too, as `new` has made them; no index is negative, and all fit 32 bits.
            out[l] = unsafe { *self.places.get_unchecked(at[l] as usize + step) };
        }
        v.load8(&out)
    }
}

/// Which stretches of a row of voxels matter.
struct Fill<'a> {
    empty: &'a Empty,
    reach: (usize, usize),
    /// Parts in a row.
    parts: usize,
    runs: Vec<Range<usize>>,
    /// The parts that `runs` is of.
    of: Option<(Range<usize>, Range<usize>)>,
}

impl Fill<'_> {
    /// The stretches, of which no two overlap, of a row that the parts in these planes and rows of parts matter to; the
    /// distances between those are given too. A stretch may end one voxel beyond the row.
    fn runs(&mut self, a: (Range<usize>, usize), b: (Range<usize>, usize)) -> &[Range<usize>] {
        if self.of.as_ref().is_some_and(|(i, j)| *i == a.0 && *j == b.0) {
            return &self.runs;
        }
        self.runs.clear();
        let last = self.parts - 1;
        let rows = a.0.clone().flat_map(|i| b.0.clone().map(move |j| i * a.1 + j * b.1));
        let rows: Vec<&[bool]> = rows.map(|n| self.empty.row(n, self.parts)).collect();
        for k in 0..self.parts {
            if rows.iter().all(|r| r[k]) {
                continue;
            }
            let start = (k * SIDE).saturating_sub(self.reach.0);
            // The last part is a shorter one, maybe.
            let end = if k == last { usize::MAX } else { (k + 1) * SIDE + 1 + self.reach.1 };
            match self.runs.last_mut() {
                Some(r) if r.end >= start => r.end = end,
                _ => self.runs.push(start..end),
            }
        }
        self.of = Some((a.0, b.0));
        &self.runs
    }
}

#[inline(always)]
fn integers8<V: Vector>(v: V, x: [V::Four; 2]) -> [i32; LANES] {
    let ([a, b, c, d], [e, f, g, h]) = (v.integers(x[0]), v.integers(x[1]));
    [a, b, c, d, e, f, g, h]
}

/// `a + (b - a) * f`. A function, as closures are not compiled for the processor's instructions.
#[inline(always)]
fn between<V: Vector>(v: V, a: V::Eight, b: V::Eight, f: V::Eight) -> V::Eight {
    v.add8(a, v.mul8(v.sub8(b, a), f))
}

/// Where eight samples lie.
pub(super) struct Spots<V: Vector> {
    /// Index of the voxel before it along each axis.
    at: [i32; LANES],
    /// How far it lies between that one and the next.
    f: [V::Eight; 3],
    /// Numbers of their parts.
    pub number: [i32; LANES],
}
