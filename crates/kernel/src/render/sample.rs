//! Values between voxels.

use super::cast::Cell;
use super::empty::SIDE;
use stead_simd::Vector;

/// Samples that are worked on side by side.
pub(super) const LANES: usize = 8;
/// Voxels that 32-bit indices can count, and voxels along an axis.
pub(super) const MOST: u64 = 1 << 30;

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
    /// Number of its part.
    #[cfg(test)]
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
        let fits = most < cell.voxels.len() && cell.voxels.len() as u64 <= MOST;
        (fits && cell.dims.iter().all(|d| *d <= MOST)).then_some(Grid {
            voxels: cell.voxels,
            last: cell.dims.map(|d| d as f64 - 1.0),
            base,
            end,
            strides: cell.strides,
            parts: [parts[1] * parts[2], parts[2], 1],
        })
    }

    /// Where the sample at `p` lies; `p` is finite.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    pub fn locate(&self, p: &[f64; 3]) -> Spot {
        let mut s = Spot {
            at: 0,
            up: [0; 3],
            f: [0.0; 3],
            #[cfg(test)]
            number: 0,
        };
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
            #[cfg(test)]
            {
                s.number += local / SIDE * self.parts[a];
            }
        }
        s
    }

    /// Trilinear. The nesting follows the user's axes.
    #[inline(always)]
    fn mix(&self, s: &Spot) -> f32 {
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

    /// Where the samples at eight places lie: what [`Grid::locate`] says. Coordinates are given along each axis.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    pub fn locate8<V: Vector>(&self, v: V, p: &[[V::Four; 2]; 3]) -> Spots<V> {
        let zero = v.splat(0.0);
        let mut at = [zero; 2];
        let mut number = [zero; 2];
        let mut f = [v.splat8(0.0); 3];
        let mut up = [[0; LANES]; 3];
        for a in 0..3 {
            let (last, base) = (v.splat(self.last[a]), v.splat(self.base[a] as f64));
            let (end, stride) = (v.splat(self.end[a] as f64), v.splat(self.strides[a] as f64));
            let (side, parts) = (v.splat(1.0 / SIDE as f64), v.splat(self.parts[a] as f64));
            let mut rest = [zero; 2];
            for h in 0..2 {
                let q = v.min(v.max(p[a][h], zero), last);
                let i = v.floor(q);
                rest[h] = v.sub(q, i);
                let local = v.min(v.max(v.sub(i, base), zero), end);
                // Products and sums of integers far below 2^53 are exact.
                at[h] = v.add(at[h], v.mul(local, stride));
                number[h] = v.add(number[h], v.mul(v.floor(v.mul(local, side)), parts));
                let step = v.integers(v.select(v.less(local, end), stride, zero));
                up[a][4 * h..4 * h + 4].copy_from_slice(&step);
            }
            f[a] = v.narrow(rest[0], rest[1]);
        }
        Spots { at: integers8(v, at), up, f, number: integers8(v, number) }
    }

    /// The values at eight places, as [`Grid::sample`] gives them.
    #[inline(always)]
    pub fn mix8<V: Vector>(&self, v: V, s: &Spots<V>) -> V::Eight {
        let [x, y, _] = &s.up;
        let next = plus(&s.at, x);
        let a = self.pair(v, &s.at, s);
        let b = self.pair(v, &plus(&s.at, y), s);
        let c = self.pair(v, &next, s);
        let d = self.pair(v, &plus(&next, y), s);
        let (low, high) = (between(v, a, b, s.f[1]), between(v, c, d, s.f[1]));
        between(v, low, high, s.f[0])
    }

    /// Between eight voxels and the next ones along the last axis.
    #[inline(always)]
    fn pair<V: Vector>(&self, v: V, at: &[i32; LANES], s: &Spots<V>) -> V::Eight {
        between(v, self.eight(v, at), self.eight(v, &plus(at, &s.up[2])), s.f[2])
    }

    /// Eight voxels.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn eight<V: Vector>(&self, v: V, at: &[i32; LANES]) -> V::Eight {
        let mut out = [0.0; LANES];
        for l in 0..LANES {
            // SAFETY: as in `mix`; no index is negative, and all fit 32 bits.
            out[l] = unsafe { *self.voxels.get_unchecked(at[l] as usize) };
        }
        v.load8(&out)
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

#[allow(clippy::needless_range_loop)] // See `stead_simd`.
#[inline(always)]
fn plus(a: &[i32; LANES], b: &[i32; LANES]) -> [i32; LANES] {
    let mut out = *a;
    for l in 0..LANES {
        out[l] += b[l];
    }
    out
}

/// Where eight samples lie, as in [`Spot`].
pub(super) struct Spots<V: Vector> {
    at: [i32; LANES],
    up: [[i32; LANES]; 3],
    f: [V::Eight; 3],
    /// Numbers of their parts.
    pub number: [i32; LANES],
}
