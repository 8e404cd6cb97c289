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

/// Planes `first..end` of a volume along `axis`, of which `voxels` holds at least those and a halo.
///
/// The cell owns the samples from half a voxel after its first plane to half a voxel after the next
/// cell's first. So the values half a voxel away from a sample, of which gradients are made, need two
/// planes after the cell's own and none before.
pub(super) struct Cell<'a> {
    pub dims: [u64; 3],
    pub axis: usize,
    pub first: u64,
    pub end: u64,
    /// As places in the table of colours ([`Transfer::places`]).
    pub voxels: &'a [f32],
    /// Distance between neighbours along each of the user's axes.
    pub strides: [usize; 3],
}

impl Cell<'_> {
    /// The box in which the cell owns all samples: half a voxel beyond the volume's own ends.
    fn bounds(&self) -> ([f64; 3], [f64; 3]) {
        let (mut low, mut high) = ([-0.5; 3], self.dims.map(|d| d as f64 - 0.5));
        if self.first > 0 {
            low[self.axis] = self.first as f64 + 0.5;
        }
        if self.end < self.dims[self.axis] {
            high[self.axis] = self.end as f64 + 0.5;
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

    /// The picture of the cell's own samples. A sample's place depends on the ray and the step alone.
    ///
    /// # Errors
    /// `Cancelled`, within a line of pixels.
    pub fn render(
        &self,
        camera: &Camera,
        transfer: &Transfer,
        step: f64,
        shading: Shading,
        cancel: Option<&Cancel>,
    ) -> Result<Layer> {
        let empty = Empty::new(self, transfer);
        self.render_with(camera, transfer, step, shading, &empty, cancel)
    }

    /// [`Cell::render`], told what is empty.
    pub fn render_with(
        &self,
        camera: &Camera,
        transfer: &Transfer,
        step: f64,
        shading: Shading,
        empty: &Empty,
        cancel: Option<&Cancel>,
    ) -> Result<Layer> {
        let (low, high) = self.bounds();
        let cover = Cover::new(camera, step, empty, (low, high));
        let (Some(grid), Some(seen)) = (Grid::new(self), cover.seen) else {
            return Ok(Layer::default());
        };
        let (x, y, width, height) = (seen.0, seen.2, seen.1 - seen.0, seen.3 - seen.2);
        let mut layer = Layer { x, y, width, height, pixels: vec![[0.0f32; 4]; width * height] };
        let march = March { grid, transfer, step, light: camera.light, shading, empty, low, high };
        dispatch(Draw { march, camera, cover, layer: &mut layer, cancel })?;
        Ok(layer.trimmed())
    }
}

/// Draws a picture.
struct Draw<'a> {
    march: March<'a>,
    camera: &'a Camera,
    cover: Cover,
    layer: &'a mut Layer,
    cancel: Option<&'a Cancel>,
}

impl Work for Draw<'_> {
    type Out = Result<()>;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Result<()> {
        let Layer { x: x0, y: y0, width, .. } = *self.layer;
        for (y, line) in (y0..).zip(self.layer.pixels.chunks_exact_mut(width)) {
            let mut x = x0;
            while x < x0 + width {
                let (range, next) = self.cover.at(x, y);
                let next = next.min(x0 + width);
                if let Some(range) = range {
                    let rays = Rays::new(&self.march, self.camera, (x..next, y), range);
                    self.march.cast(v, &rays, &mut line[x - x0..next - x0]);
                }
                x = next;
            }
            if let Some(cancel) = self.cancel {
                cancel.check()?;
            }
        }
        Ok(())
    }
}

/// The rays of pixels side by side, at most [`LANES`].
struct Rays {
    /// Along each axis.
    origin: [[f64; LANES]; 3],
    direction: [[f64; LANES]; 3],
    turns: [Turns; LANES],
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
            turns: [Turns([0.0; 3]); LANES],
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
            rays.turns[l] = turns;
            if let Some((first, last)) = march.stretch(&ray, &turns, range) {
                (rays.first[l], rays.last[l]) = (first, last);
            }
        }
        rays
    }

    fn ray(&self, l: usize) -> Ray {
        let of = |v: &[[f64; LANES]; 3]| [v[0][l], v[1][l], v[2][l]];
        Ray { origin: of(&self.origin), direction: of(&self.direction) }
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
        // Places grow or fall with the number, rounded or not, so that those inside have no gap.
        while k <= end && !inside(k) {
            k += 1;
        }
        while end > k && !inside(end) {
            end -= 1;
        }
        (k <= end).then_some((k, end))
    }

    /// Adds the samples of rays side by side to their pixels, front to back.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn cast<V: Vector>(&self, v: V, rays: &Rays, pixels: &mut [[f32; 4]]) {
        let (o, d) = (&rays.origin, &rays.direction);
        let origin = [load(v, &o[0]), load(v, &o[1]), load(v, &o[2])];
        let direction = [load(v, &d[0]), load(v, &d[1]), load(v, &d[2])];
        // Rays that something more can be seen of.
        let mut live = (0..pixels.len().min(LANES))
            .fold(0u32, |m, l| m | u32::from(rays.first[l] <= rays.last[l]) << l);
        let mut through = [1.0f32; LANES];
        let mut k = rays.first.iter().fold(u64::MAX, |a, b| a.min(*b));
        while live != 0 {
            let active = rays.at(k) & live;
            if active == 0 {
                // Those that begin later.
                let later = (0..LANES).filter(|l| live >> l & 1 == 1 && rays.first[*l] > k);
                match later.map(|l| rays.first[l]).min() {
                    Some(first) => k = first,
                    None => return,
                }
                continue;
            }
            let t = v.splat((k as f64 + 0.5) * self.step);
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
                k = self.skip(rays, k, active, live, &spots.number);
                continue;
            }
            let mut values = [0.0; LANES];
            v.store8(self.grid.mix8(v, &spots), &mut values);
            while seen != 0 {
                let l = seen.trailing_zeros() as usize;
                seen &= seen - 1;
                if values[l].is_nan() {
                    continue;
                }
                let mut c = self.transfer.color(values[l]);
                if c[3] == 0.0 {
                    continue;
                }
                if self.shading == Shading::Gradient {
                    let light = self.light(&rays.ray(l).at((k as f64 + 0.5) * self.step));
                    for c in &mut c[..3] {
                        *c *= light;
                    }
                }
                let pixel = &mut pixels[l];
                for j in 0..4 {
                    pixel[j] += through[l] * c[j];
                }
                through[l] *= 1.0 - c[3];
                if through[l] < OPAQUE {
                    live &= !(1 << l);
                }
            }
            k += 1;
        }
    }

    /// The number of the next sample that any of the rays can be seen at, none of the active ones being seen at `k`.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn skip(&self, rays: &Rays, k: u64, active: u32, live: u32, parts: &[i32; LANES]) -> u64 {
        let mut next = u64::MAX;
        for l in 0..LANES {
            if active >> l & 1 == 1 {
                next = next.min(self.leave(&rays.ray(l), &rays.turns[l], parts[l] as usize));
            } else if live >> l & 1 == 1 && rays.first[l] > k {
                next = next.min(rays.first[l]);
            }
        }
        next.max(k + 1)
    }

    /// A sample number at which the ray is surely still within this part or at most one step beyond, so that no
    /// sample outside of it is passed over.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn leave(&self, ray: &Ray, turns: &Turns, part: usize) -> u64 {
        let mut far = f64::INFINITY;
        let part = self.empty.along(part);
        for a in 0..3 {
            let turn = turns.0[a];
            let face = self.empty.face(a, part[a], turn > 0.0);
            if turn != 0.0 {
                far = far.min((face - ray.origin[a]) * turn);
            }
        }
        // Infinite at the end of the volume, where the cast saturates and the ray ends.
        (far - 1.0).max(0.0) as u64
    }

    /// The part of its colour that a sample shows: all of it where the array is flat.
    #[inline(always)]
    fn light(&self, p: &[f64; 3]) -> f32 {
        let (mut square, mut dot) = (0.0, 0.0);
        for a in 0..3 {
            let (mut q, mut r) = (*p, *p);
            q[a] -= 0.5;
            r[a] += 0.5;
            let d = f64::from(self.grid.sample(&r)) - f64::from(self.grid.sample(&q));
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

#[inline(always)]
fn load<V: Vector>(v: V, x: &[f64; LANES]) -> [V::Four; 2] {
    let halves = x.as_chunks::<4>().0;
    [v.load(&halves[0]), v.load(&halves[1])]
}

/// Pixels along each side of a tile.
const TILE: usize = LANES;

/// Which samples of which rays may be seen: for each tile of pixels the range of numbers of samples in the parts of a
/// cell that are not empty.
struct Cover {
    /// The rectangle of pixels that the cell covers: first and one past the last.
    x: (usize, usize),
    y: (usize, usize),
    /// Tiles in a row of them.
    width: usize,
    tiles: Vec<(u64, u64)>,
    /// The rectangle of pixels in which something may be seen.
    seen: Option<(usize, usize, usize, usize)>,
}

impl Cover {
    fn new(camera: &Camera, step: f64, empty: &Empty, bounds: ([f64; 3], [f64; 3])) -> Cover {
        let (x0, x1, y0, y1) = camera.cover(bounds.0, bounds.1);
        let (x1, y1) = (x1.max(x0), y1.max(y0));
        let width = (x1 - x0).div_ceil(TILE);
        let mut cover = Cover { x: (x0, x1), y: (y0, y1), width, tiles: Vec::new(), seen: None };
        if empty.all || width == 0 || y0 == y1 {
            return cover;
        }
        cover.tiles = vec![(u64::MAX, 0); width * (y1 - y0).div_ceil(TILE)];
        empty.each_seen(bounds, |low, high| {
            let (a, b, c, d) = camera.cover(low, high);
            let (a, b, c, d) = (a.max(x0), b.min(x1), c.max(y0), d.min(y1));
            if a >= b || c >= d {
                return;
            }
            let (near, far) = camera.depth(low, high);
            let first = (near / step - 2.0).max(0.0) as u64;
            let last = (far / step + 2.0) as u64;
            for row in (c - y0) / TILE..=(d - 1 - y0) / TILE {
                for t in &mut cover.tiles[row * width..][(a - x0) / TILE..=(b - 1 - x0) / TILE] {
                    *t = (t.0.min(first), t.1.max(last));
                }
            }
            let s = cover.seen.unwrap_or((a, b, c, d));
            cover.seen = Some((s.0.min(a), s.1.max(b), s.2.min(c), s.3.max(d)));
        });
        cover
    }

    /// The range of samples that may be seen at a pixel of the rectangle, and the first pixel after it in the row of which
    /// this does not hold.
    #[inline(always)]
    fn at(&self, x: usize, y: usize) -> (Option<(u64, u64)>, usize) {
        let (i, j) = ((x - self.x.0) / TILE, (y - self.y.0) / TILE);
        let (first, last) = self.tiles[j * self.width + i];
        ((first <= last).then_some((first, last)), self.x.0 + (i + 1) * TILE)
    }
}
