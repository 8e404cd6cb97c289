//! Casts rays through one cell of the grid.

use super::camera::{Camera, Ray};
use super::empty::Empty;
use super::layers::Layer;
use super::transfer::Transfer;

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

    /// The least and the greatest finite voxel of a box within [`Cell::size`]; the first is greater than
    /// the second if there is none.
    pub fn range(&self, from: [usize; 3], to: [usize; 3]) -> (f32, f32) {
        let (mut low, mut high) = (f32::MAX, f32::MIN);
        // The axis whose neighbours are neighbours in memory is the innermost one.
        let order = if self.strides[2] == 1 { [0, 1, 2] } else { [2, 1, 0] };
        for i in from[order[0]]..to[order[0]] {
            for j in from[order[1]]..to[order[1]] {
                let row = i * self.strides[order[0]] + j * self.strides[order[1]];
                for v in &self.voxels[row + from[order[2]]..row + to[order[2]]] {
                    let finite = v.is_finite();
                    low = low.min(if finite { *v } else { low });
                    high = high.max(if finite { *v } else { high });
                }
            }
        }
        (low, high)
    }

    /// Trilinear, constant beyond the outermost voxels. The nesting follows the user's axes.
    #[inline]
    fn sample(&self, p: [f64; 3]) -> f64 {
        let (mut lo, mut hi, mut f) = ([0usize; 3], [0usize; 3], [0.0; 3]);
        for a in 0..3 {
            let last = self.dims[a] - 1;
            let q = p[a].clamp(0.0, last as f64);
            let i = (q as u64).min(last);
            f[a] = q - i as f64;
            let base = if a == self.axis { self.first } else { 0 };
            lo[a] = (i - base) as usize * self.strides[a];
            hi[a] = ((i + 1).min(last) - base) as usize * self.strides[a];
        }
        let v = |i: usize, j: usize, k: usize| f64::from(self.voxels[i + j + k]);
        let mix = |a: f64, b: f64, f: f64| a + (b - a) * f;
        let row = |i: usize, j: usize| mix(v(i, j, lo[2]), v(i, j, hi[2]), f[2]);
        let plane = |i: usize| mix(row(i, lo[1]), row(i, hi[1]), f[1]);
        mix(plane(lo[0]), plane(hi[0]), f[0])
    }

    /// The part of its colour that a sample shows: all of it where the array is flat.
    fn light(&self, p: [f64; 3], light: [f64; 3]) -> f32 {
        let (mut square, mut dot) = (0.0, 0.0);
        for a in 0..3 {
            let (mut q, mut r) = (p, p);
            q[a] -= 0.5;
            r[a] += 0.5;
            let d = self.sample(r) - self.sample(q);
            // Beside a hole there is no slope to be seen.
            if d.is_finite() {
                square += d * d;
                dot += d * light[a];
            }
        }
        if square == 0.0 {
            return 1.0;
        }
        (AMBIENT + (1.0 - AMBIENT) * (dot.abs() / square.sqrt()).min(1.0)) as f32
    }

    /// The picture of the cell's own samples. A sample's place depends on the ray and the step alone.
    pub fn render(
        &self,
        camera: &Camera,
        transfer: &Transfer,
        step: f64,
        shading: Shading,
    ) -> Layer {
        self.render_with(camera, transfer, step, shading, &Empty::new(self, transfer))
    }

    /// [`Cell::render`], told what is empty.
    pub fn render_with(
        &self,
        camera: &Camera,
        transfer: &Transfer,
        step: f64,
        shading: Shading,
        empty: &Empty,
    ) -> Layer {
        if empty.all {
            return Layer::default();
        }
        let (low, high) = self.bounds();
        let (x0, x1, y0, y1) = camera.cover(low, high);
        if x0 >= x1 || y0 >= y1 {
            return Layer::default();
        }
        let mut pixels = vec![[0.0f32; 4]; (x1 - x0) * (y1 - y0)];
        for (i, pixel) in pixels.iter_mut().enumerate() {
            let ray = camera.ray(x0 + i % (x1 - x0), y0 + i / (x1 - x0));
            let Some((near, far)) = ray.clip(low, high) else { continue };
            // A sample more on each side: whether it belongs to the cell is decided by its place.
            let mut k = (near / step - 1.5).max(0.0) as u64;
            let end = (far / step + 1.5) as u64;
            let mut through = 1.0f32;
            while k <= end {
                let p = ray.at((k as f64 + 0.5) * step);
                k += 1;
                if (0..3).any(|a| p[a] < low[a] || p[a] >= high[a]) {
                    continue;
                }
                if empty.hides(p) {
                    k = k.max(leave(&ray, empty.faces(p), step));
                    continue;
                }
                let v = self.sample(p);
                if !v.is_finite() {
                    continue;
                }
                let mut c = transfer.color(v);
                if c[3] == 0.0 {
                    continue;
                }
                if shading == Shading::Gradient {
                    let light = self.light(p, camera.light);
                    (0..3).for_each(|j| c[j] *= light);
                }
                for j in 0..4 {
                    pixel[j] += through * c[j];
                }
                through *= 1.0 - c[3];
                if through < OPAQUE {
                    break;
                }
            }
        }
        Layer { x: x0, y: y0, width: x1 - x0, height: y1 - y0, pixels }.trimmed()
    }
}

/// A sample number at which the ray is surely still within these faces or at most one step beyond, so
/// that no sample outside of them is passed over.
fn leave(ray: &Ray, (low, high): ([f64; 3], [f64; 3]), step: f64) -> u64 {
    let mut far = f64::INFINITY;
    for a in 0..3 {
        let face = if ray.direction[a] > 0.0 { high[a] } else { low[a] };
        if ray.direction[a] != 0.0 {
            far = far.min((face - ray.origin[a]) / ray.direction[a]);
        }
    }
    // Infinite at the end of the volume, where the cast saturates and the ray ends.
    (far / step - 1.0).max(0.0) as u64
}
