//! Casts rays through one cell of the grid.

use super::camera::{Camera, Ray};
use super::empty::Empty;
use super::layers::Layer;
use super::sample::{Grid, LANES};
use super::transfer::Transfer;
use std::ops::Range;
use stead_core::{Cancel, Result};
use stead_simd::{Vector, Work, dispatch};

/// What passes a sample below this is not seen in 8 bits.
const OPAQUE: f32 = 1e-4;

/// The part of a colour that a surface keeps where the light grazes it.
const AMBIENT: f64 = 0.5;

/// How colours become light.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shading {
    /// As the colours say.
    None,
    /// By the angle between the gradient and a light behind the viewer's left shoulder.
    Gradient,
}

impl Shading {
    /// How far beyond a sample along each axis values are looked at, in voxels.
    const fn reach(self) -> f64 {
        match self {
            Shading::None => 0.0,
            Shading::Gradient => 0.5,
        }
    }

    /// Planes that a cell needs after its own: one to interpolate, and what is looked at beyond a sample on both sides.
    pub const fn halo(self) -> u64 {
        1 + (2.0 * self.reach()) as u64
    }
}

/// Planes `first..end` of a volume along `axis`, of which `voxels` holds at least those and a halo.
///
/// The cell owns the samples from its first plane to the next cell's first. Where gradients are made of values half a voxel
/// away from a sample, both are half a voxel further on, so that they need two planes after the cell's own and none before.
pub(super) struct Cell<'a> {
    pub dims: [u64; 3],
    pub axis: usize,
    pub first: u64,
    pub end: u64,
    pub voxels: &'a [f32],
    /// Distance between neighbours along each of the user's axes.
    pub strides: [usize; 3],
}

impl Cell<'_> {
    /// The box in which the cell owns all samples: half a voxel beyond the volume's own ends.
    fn bounds(&self, shading: Shading) -> ([f64; 3], [f64; 3]) {
        let (mut low, mut high) = ([-0.5; 3], self.dims.map(|d| d as f64 - 0.5));
        if self.first > 0 {
            low[self.axis] = self.first as f64 + shading.reach();
        }
        if self.end < self.dims[self.axis] {
            high[self.axis] = self.end as f64 + shading.reach();
        }
        (low, high)
    }

    /// Voxels along each of the user's axes, halo included.
    pub fn size(&self) -> [usize; 3] {
        let planes = |a: usize| self.dims[a] as usize;
        let mut size = [planes(0), planes(1), planes(2)];
        let plane: usize = (0..3).filter(|a| *a != self.axis).map(|a| size[a]).product();
        size[self.axis] = self.voxels.len() / plane.max(1);
        size
    }

    /// The axes from the one along which neighbours are farthest apart in memory to the one where they lie side by side.
    pub fn nesting(&self) -> [usize; 3] {
        if self.strides[2] == 1 { [0, 1, 2] } else { [2, 1, 0] }
    }

    /// The picture of the cell's own samples, with room in `places` to work in. A sample's place depends on the ray
    /// and the step alone.
    ///
    /// # Errors
    /// `Cancelled`, within a line of pixels.
    pub fn render(
        &self,
        view: &View<'_>,
        places: &mut Vec<f32>,
        cancel: Option<&Cancel>,
    ) -> Result<Layer> {
        self.render_with(view, &Empty::new(self, view.transfer), places, cancel)
    }

    /// [`Cell::render`], told what is empty.
    pub fn render_with(
        &self,
        view: &View<'_>,
        empty: &Empty,
        places: &mut Vec<f32>,
        cancel: Option<&Cancel>,
    ) -> Result<Layer> {
        let View { camera, transfer, step, shading } = *view;
        let (low, high) = self.bounds(shading);
        let cover = Cover::new(camera, step, empty, &(low, high));
        let Some(seen) = cover.seen else { return Ok(Layer::default()) };
        // Gradients are made of values half a voxel away.
        let reach = if shading == Shading::Gradient { (1, 1) } else { (0, 0) };
        let Some(grid) = Grid::new(self, transfer, empty, reach, places) else {
            return Ok(Layer::default());
        };
        let march = March { grid, transfer, step, light: camera.light, shading, empty, low, high };
        dispatch(Draw { march, camera, cover, seen, cancel })
    }
}

/// How a volume is looked at.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub camera: &'a Camera,
    pub transfer: &'a Transfer,
    /// Voxels from one sample to the next.
    pub step: f64,
    pub shading: Shading,
}

/// Draws a picture.
struct Draw<'a> {
    march: March<'a>,
    camera: &'a Camera,
    cover: Cover,
    /// The rectangle to draw, as [`Cover::seen`].
    seen: (usize, usize, usize, usize),
    cancel: Option<&'a Cancel>,
}

impl Work for Draw<'_> {
    type Out = Result<Layer>;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Result<Layer> {
        let (x0, x1, y0, y1) = self.seen;
        let mut layer = Layer::at(y0);
        let mut line = vec![[0.0f32; 4]; x1 - x0];
        for y in y0..y1 {
            line.fill([0.0; 4]);
            let mut x = x0;
            while x < x1 {
                let (depths, next) = self.cover.at(x, y);
                let next = next.min(x1);
                if let Some(range) = depths.range() {
                    let rays = Rays::new(&self.march, self.camera, (x..next, y), range);
                    self.march.cast(v, &rays, &depths, &mut line[x - x0..next - x0]);
                }
                x = next;
            }
            layer.push(x0, &line);
            if let Some(cancel) = self.cancel {
                cancel.check()?;
            }
        }
        Ok(layer)
    }
}

/// The rays of pixels side by side, at most [`LANES`].
struct Rays {
    /// Along each axis.
    origin: [[f64; LANES]; 3],
    direction: [[f64; LANES]; 3],
    /// Numbers of the first and the last sample of each in the cell; the first is greater if there is none.
    first: [u64; LANES],
    last: [u64; LANES],
}

impl Rays {
    #[inline(always)]
    fn new(
        march: &March<'_>,
        camera: &Camera,
        (xs, y): (Range<usize>, usize),
        range: (u64, u64),
    ) -> Rays {
        let mut rays = Rays {
            origin: [[0.0; LANES]; 3],
            direction: [[0.0; LANES]; 3],
            first: [u64::MAX; LANES],
            last: [0; LANES],
        };
        let mut turns = None;
        for (l, x) in xs.enumerate().take(LANES) {
            let ray = camera.ray(x, y);
            if turns.is_none() || camera.perspective() {
                turns = Some(Turns::of(&ray, march.step));
            }
            let Some(turns) = turns else { continue };
            for a in 0..3 {
                rays.origin[a][l] = ray.origin[a];
                rays.direction[a][l] = ray.direction[a];
            }
            if let Some((first, last)) = march.stretch(&ray, &turns, range) {
                (rays.first[l], rays.last[l]) = (first, last);
            }
        }
        rays
    }

    /// The rays of which sample `k` is in the cell, as bits.
    #[inline(always)]
    fn at(&self, k: u64) -> u32 {
        let mut bits = 0;
        for l in 0..LANES {
            bits |= u32::from(self.first[l] <= k && k <= self.last[l]) << l;
        }
        bits
    }
}

/// Samples per voxel along each axis, with the sign of the direction; 0 where a ray does not go along an axis.
#[derive(Clone, Copy)]
struct Turns([f64; 3]);

impl Turns {
    #[inline(always)]
    fn of(ray: &Ray, step: f64) -> Turns {
        let d = &ray.direction;
        let turn = |d: f64| if d == 0.0 { 0.0 } else { 1.0 / (d * step) };
        Turns([turn(d[0]), turn(d[1]), turn(d[2])])
    }

    /// Where a ray enters and leaves a box, counted in samples from its origin; `None` if it misses.
    #[inline(always)]
    fn clip(&self, ray: &Ray, low: &[f64; 3], high: &[f64; 3]) -> Option<(f64, f64)> {
        let (mut near, mut far) = (0.0f64, f64::MAX);
        for a in 0..3 {
            let (o, turn) = (ray.origin[a], self.0[a]);
            if turn == 0.0 {
                if o < low[a] || o >= high[a] {
                    return None;
                }
            } else {
                let (p, q) = ((low[a] - o) * turn, (high[a] - o) * turn);
                near = near.max(p.min(q));
                far = far.min(p.max(q));
            }
        }
        (near <= far).then_some((near, far))
    }
}

/// What a ray meets on its way through a cell.
struct March<'a> {
    grid: Grid<'a>,
    transfer: &'a Transfer,
    step: f64,
    /// Where the light comes from.
    light: [f64; 3],
    shading: Shading,
    empty: &'a Empty,
    low: [f64; 3],
    high: [f64; 3],
}

impl March<'_> {
    /// The numbers of the samples of a ray that lie in the cell, as far as they lie in `first..=last`.
    #[inline(always)]
    fn stretch(&self, ray: &Ray, turns: &Turns, (first, last): (u64, u64)) -> Option<(u64, u64)> {
        let (near, far) = turns.clip(ray, &self.low, &self.high)?;
        // Sample `k` is `k + 1/2` steps away. Whether the outermost belong to the cell is decided by their places,
        // which these bounds know but for roundings.
        const MORE: f64 = 0.01;
        let mut k = ((near + (0.5 - MORE)).max(0.0) as u64).max(first);
        let mut end = ((far - (0.5 - MORE)).max(0.0) as u64).min(last);
        let inside = |k: u64| {
            let p = ray.at((k as f64 + 0.5) * self.step);
            let within = |a: usize| p[a] >= self.low[a] && p[a] < self.high[a];
            within(0) && within(1) && within(2)
        };
        // Places grow or fall with the number, rounded or not, so that those inside have no gap. It is one step at most,
        // or there are none: a loop would be made one of vectors.
        k += u64::from(!inside(k));
        end -= u64::from(end > k && !inside(end));
        (k <= end && inside(k) && inside(end)).then_some((k, end))
    }

    /// Adds the samples of rays side by side to their pixels, front to back.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn cast<V: Vector>(&self, v: V, rays: &Rays, depths: &Depths<'_>, pixels: &mut [[f32; 4]]) {
        let (o, d) = (&rays.origin, &rays.direction);
        let origin = [load(v, &o[0]), load(v, &o[1]), load(v, &o[2])];
        let direction = [load(v, &d[0]), load(v, &d[1]), load(v, &d[2])];
        // Rays that something more can be seen of.
        let mut live = 0u32;
        let (mut begin, mut end) = (u64::MAX, 0);
        // Where all of them are in the cell.
        let (mut from, mut to) = (0, u64::MAX);
        for l in 0..pixels.len().min(LANES) {
            let (first, last) = (rays.first[l], rays.last[l]);
            if first <= last {
                live |= 1 << l;
                (begin, end) = (begin.min(first), end.max(last));
                (from, to) = (from.max(first), to.min(last));
            }
        }
        // Colours, and what passes of those behind: pairs of rays to a vector, a place for each channel.
        let mut colors = [v.splat8(0.0); LANES / 2];
        let mut through = [v.splat8(1.0); LANES / 2];
        let mut k = begin;
        while live != 0 {
            k = match depths.next(k) {
                Some(next) if next <= end => next,
                _ => break,
            };
            let active = if from <= k && k <= to { live } else { rays.at(k) & live };
            let t = v.splat((k as f64 + 0.5) * self.step);
            k += 1;
            let mut p = origin;
            for a in 0..3 {
                for h in 0..2 {
                    p[a][h] = v.add(origin[a][h], v.mul(direction[a][h], t));
                }
            }
            let spots = self.grid.locate8(v, &p);
            let mut seen = 0;
            for l in 0..LANES {
                // No part has a negative number.
                seen |= u32::from(!self.empty.hidden(spots.number[l] as usize)) << l;
            }
            seen &= active;
            if seen == 0 {
                continue;
            }
            let values = self.grid.mix8(v, &spots);
            // All but NaN.
            seen &= v.bits8(v.less8(values, v.splat8(f32::INFINITY)));
            let mut own = self.transfer.colors8(v, values, seen);
            if self.shading == Shading::Gradient {
                self.shade(v, &p, seen, &mut own);
            }
            let mut least = v.splat8(1.0);
            for m in 0..LANES / 2 {
                // A sample that is not seen adds zeros.
                colors[m] = v.add8(colors[m], v.mul8(through[m], own[m]));
                through[m] = v.mul8(through[m], v.sub8(v.splat8(1.0), v.fourths(own[m])));
                least = v.min8(least, through[m]);
            }
            let opaque = v.splat8(OPAQUE);
            if v.bits8(v.less8(least, opaque)) != 0 {
                for m in 0..LANES / 2 {
                    let bits = v.bits8(v.less8(through[m], opaque));
                    live &= !((bits & 1 | bits >> 3 & 2) << (2 * m));
                }
            }
        }
        for (pair, colors) in pixels.chunks_mut(2).zip(colors) {
            let mut both = [0.0; LANES];
            v.store8(colors, &mut both);
            pair.copy_from_slice(&both.as_chunks::<4>().0[..pair.len()]);
        }
    }

    /// Scales colours of samples by the light that falls on them.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn shade<V: Vector>(&self, v: V, p: &[[V::Four; 2]; 3], seen: u32, own: &mut [V::Eight; 4]) {
        for m in 0..LANES / 2 {
            if seen >> (2 * m) & 3 == 0 {
                continue;
            }
            let mut both = [0.0; LANES];
            v.store8(own[m], &mut both);
            for h in 0..2 {
                if both[4 * h + 3] != 0.0 {
                    let light = self.light(v, &lane(v, p, 2 * m + h));
                    for j in 0..3 {
                        both[4 * h + j] *= light;
                    }
                }
            }
            own[m] = v.load8(&both);
        }
    }

    /// The part of its colour that a sample shows: all of it where the array is flat.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn light<V: Vector>(&self, v: V, p: &[f64; 3]) -> f32 {
        // Half a voxel before the place along each axis, and half a voxel after it; two are not used.
        let mut around = [[0.0; LANES]; 3];
        for a in 0..3 {
            around[a] = [p[a]; LANES];
            around[a][a] = p[a] - 0.5;
            around[a][a + 4] = p[a] + 0.5;
        }
        let around = [load(v, &around[0]), load(v, &around[1]), load(v, &around[2])];
        let mut values = [0.0; LANES];
        v.store8(self.grid.mix8(v, &self.grid.locate8(v, &around)), &mut values);
        let (mut square, mut dot) = (0.0, 0.0);
        for a in 0..3 {
            let d = f64::from(values[a + 4]) - f64::from(values[a]);
            // Beside a hole there is no slope to be seen.
            if d.is_finite() {
                square += d * d;
                dot += d * self.light[a];
            }
        }
        if square == 0.0 {
            return 1.0;
        }
        (AMBIENT + (1.0 - AMBIENT) * (dot.abs() / square.sqrt()).min(1.0)) as f32
    }
}

/// One of eight places.
#[allow(clippy::needless_range_loop)] // See `stead_simd`.
#[inline(always)]
fn lane<V: Vector>(v: V, p: &[[V::Four; 2]; 3], l: usize) -> [f64; 3] {
    let mut place = [0.0; 3];
    for a in 0..3 {
        let mut four = [0.0; 4];
        v.store(p[a][l / 4], &mut four);
        place[a] = four[l % 4];
    }
    place
}

#[inline(always)]
fn load<V: Vector>(v: V, x: &[f64; LANES]) -> [V::Four; 2] {
    let halves = x.as_chunks::<4>().0;
    [v.load(&halves[0]), v.load(&halves[1])]
}

/// Pixels along each side of a tile.
const TILE: usize = LANES;

/// Words of bits that say at which depths of a tile something may be seen.
const WORDS: usize = 8;

/// Which samples of which rays may be seen: for each tile of pixels and each stretch of samples whether one lies in the
/// parts of a cell that are not empty.
struct Cover {
    /// The rectangle of pixels that the cell covers: first and one past the last.
    x: (usize, usize),
    y: (usize, usize),
    /// Tiles in a row of them.
    width: usize,
    /// The first sample of the first stretch, and the samples of a stretch as a power of two.
    first: u64,
    shift: u32,
    tiles: Vec<[u64; WORDS]>,
    /// The rectangle of pixels in which something may be seen.
    seen: Option<(usize, usize, usize, usize)>,
}

impl Cover {
    fn new(camera: &Camera, step: f64, empty: &Empty, bounds: &([f64; 3], [f64; 3])) -> Cover {
        // Samples are counted from half a step on; the rest is for roundings.
        let samples = |near: f64, far: f64| {
            ((near / step - 2.0).max(0.0) as u64, (far / step + 2.0).max(0.0) as u64)
        };
        let whole = camera.sight(&bounds.0, &bounds.1);
        let ((x0, x1), (y0, y1)) = (whole.x, whole.y);
        let (x1, y1) = (x1.max(x0), y1.max(y0));
        let (first, last) = samples(whole.near, whole.far);
        let bits = 64 * WORDS as u64;
        let mut shift = 0;
        while last.saturating_sub(first) >> shift >= bits {
            shift += 1;
        }
        let width = (x1 - x0).div_ceil(TILE);
        let (x, y) = ((x0, x1), (y0, y1));
        let mut cover = Cover { x, y, width, first, shift, tiles: Vec::new(), seen: None };
        if empty.all || width == 0 || y0 == y1 {
            return cover;
        }
        cover.tiles = vec![[0; WORDS]; width * (y1 - y0).div_ceil(TILE)];
        empty.each_seen(bounds, |low, high| {
            let part = camera.sight(low, high);
            let (a, b, c, d) =
                (part.x.0.max(x0), part.x.1.min(x1), part.y.0.max(y0), part.y.1.min(y1));
            if a >= b || c >= d {
                return;
            }
            let (near, far) = samples(part.near, part.far);
            let bit = |k: u64| ((k.saturating_sub(first) >> shift).min(bits - 1)) as usize;
            let (low, high) = (bit(near), bit(far));
            for row in (c - y0) / TILE..=(d - 1 - y0) / TILE {
                for t in &mut cover.tiles[row * width..][(a - x0) / TILE..=(b - 1 - x0) / TILE] {
                    for (word, w) in t[low / 64..=high / 64].iter_mut().zip(low / 64..) {
                        let from = if w == low / 64 { low % 64 } else { 0 };
                        let to = if w == high / 64 { high % 64 } else { 63 };
                        *word |= (u64::MAX >> (63 - to)) & (u64::MAX << from);
                    }
                }
            }
            let s = cover.seen.unwrap_or((a, b, c, d));
            cover.seen = Some((s.0.min(a), s.1.max(b), s.2.min(c), s.3.max(d)));
        });
        cover
    }

    /// The samples that may be seen at a pixel of the rectangle, and the first pixel after it in the row of which this
    /// does not hold.
    #[inline(always)]
    fn at(&self, x: usize, y: usize) -> (Depths<'_>, usize) {
        let (i, j) = ((x - self.x.0) / TILE, (y - self.y.0) / TILE);
        let words = &self.tiles[j * self.width + i];
        (Depths { words, first: self.first, shift: self.shift }, self.x.0 + (i + 1) * TILE)
    }
}

/// At which samples of a tile something may be seen.
struct Depths<'a> {
    words: &'a [u64; WORDS],
    first: u64,
    shift: u32,
}

impl Depths<'_> {
    /// The first and the last of those samples.
    fn range(&self) -> Option<(u64, u64)> {
        let low = self.words.iter().position(|w| *w != 0)?;
        let high = self.words.iter().rposition(|w| *w != 0)?;
        let first = 64 * low as u64 + u64::from(self.words[low].trailing_zeros());
        let last = 64 * high as u64 + 63 - u64::from(self.words[high].leading_zeros());
        Some((
            self.first + (first << self.shift),
            self.first + (last << self.shift) + ((1 << self.shift) - 1),
        ))
    }

    /// The first of those samples from `k` on, which is none before the first stretch.
    #[inline(always)]
    fn next(&self, k: u64) -> Option<u64> {
        let bit = (k - self.first) >> self.shift;
        let mut word = usize::try_from(bit / 64).ok().filter(|w| *w < WORDS)?;
        let mut rest = self.words[word] & (u64::MAX << (bit % 64));
        if rest >> (bit % 64) & 1 == 1 {
            return Some(k);
        }
        while rest == 0 {
            word += 1;
            rest = *self.words.get(word)?;
        }
        let bit = 64 * word as u64 + u64::from(rest.trailing_zeros());
        Some(self.first + (bit << self.shift))
    }
}
