//! Values between voxels.

use super::cast::Cell;
use super::empty::SIDE;

/// Voxels of a cell, ready to be sampled.
pub(super) struct Grid<'a> {
    voxels: &'a [f32],
    /// The last voxel of the volume along each of the user's axes.
    last: [f64; 3],
    /// First voxel of the cell, and the number of the last one from there.
    base: [i64; 3],
    end: [usize; 3],
    strides: [usize; 3],
    /// Distance between parts of [`super::empty::Empty`] along each axis.
    parts: [usize; 3],
}

/// Where a sample lies.
pub(super) struct Spot {
    /// Index of the voxel before it along each axis.
    at: usize,
    /// Distance from there to the voxel after it; 0 beyond the outermost.
    up: [usize; 3],
    /// How far it lies between both.
    f: [f32; 3],
    /// Numbers of the part along each axis.
    pub part: [usize; 3],
    /// And in all.
    pub number: usize,
}

impl<'a> Grid<'a> {
    /// `None` if there are fewer voxels than the cell says.
    pub fn new(cell: &Cell<'a>) -> Option<Grid<'a>> {
        let size = cell.size();
        let end = size.map(|n| n.checked_sub(1));
        let end = [end[0]?, end[1]?, end[2]?];
        let mut most = (0..3).map(|a| end[a].checked_mul(cell.strides[a]));
        let most = most.try_fold(0usize, |n, m| n.checked_add(m?))?;
        let mut base = [0; 3];
        base[cell.axis] = i64::try_from(cell.first).ok()?;
        let parts = size.map(|n| n.div_ceil(SIDE));
        (most < cell.voxels.len()).then_some(Grid {
            voxels: cell.voxels,
            last: cell.dims.map(|d| d as f64 - 1.0),
            base,
            end,
            strides: cell.strides,
            parts: [parts[1] * parts[2], parts[2], 1],
        })
    }

    /// Where the sample at `p` lies; `p` is finite.
    #[allow(clippy::needless_range_loop)] // See `simd`.
    #[inline(always)]
    pub fn locate(&self, p: &[f64; 3]) -> Spot {
        let mut s = Spot { at: 0, up: [0; 3], f: [0.0; 3], part: [0; 3], number: 0 };
        for a in 0..3 {
            // Constant beyond the outermost voxels.
            let q = p[a].max(0.0).min(self.last[a]);
            // SAFETY: `q` is between 0 and the number of voxels along an axis, which is far below 2^63.
            let i: i64 = unsafe { q.to_int_unchecked() };
            s.f[a] = (q - i as f64) as f32;
            // A voxel before the first one would become a very large number, and so the last one.
            let local = ((i - self.base[a]) as usize).min(self.end[a]);
            s.at += local * self.strides[a];
            s.up[a] = if local < self.end[a] { self.strides[a] } else { 0 };
            s.part[a] = local / SIDE;
            s.number += local / SIDE * self.parts[a];
        }
        s
    }

    /// Trilinear. The nesting follows the user's axes.
    #[inline(always)]
    pub fn mix(&self, s: &Spot) -> f32 {
        // SAFETY: along each axis `locate` stays at or before `end`, the last voxel, also one step up; the sum of the
        // last voxels' indices is less than the number of voxels, as `new` has checked.
        let v = |i: usize| unsafe { *self.voxels.get_unchecked(s.at + i) };
        let [x, y, z] = s.up;
        let mix = |a: f32, b: f32, f: f32| a + (b - a) * f;
        let (a, b) = (mix(v(0), v(z), s.f[2]), mix(v(y), v(y + z), s.f[2]));
        let (c, d) = (mix(v(x), v(x + z), s.f[2]), mix(v(x + y), v(x + y + z), s.f[2]));
        mix(mix(a, b, s.f[1]), mix(c, d, s.f[1]), s.f[0])
    }

    /// The value at `p`.
    #[inline(always)]
    pub fn sample(&self, p: &[f64; 3]) -> f32 {
        self.mix(&self.locate(p))
    }
}
