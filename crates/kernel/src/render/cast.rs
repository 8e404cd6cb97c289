//! Casts rays through one cell of the grid.

use super::camera::Camera;
use super::layers::Layer;
use super::transfer::Transfer;

/// What passes a sample below this is not seen in 8 bits.
const OPAQUE: f32 = 1e-4;

/// Planes `first..end` of a volume along `axis`, of which `voxels` holds at least those and a halo.
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
            low[self.axis] = self.first as f64;
        }
        if self.end < self.dims[self.axis] {
            high[self.axis] = self.end as f64;
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

    /// The picture of the cell's own samples. A sample's place depends on the ray and the step alone.
    pub fn render(&self, camera: &Camera, transfer: &Transfer, step: f64) -> Layer {
        let finite = || self.voxels.iter().copied().filter(|v| v.is_finite());
        let (low, high) = (finite().fold(f32::MAX, f32::min), finite().fold(f32::MIN, f32::max));
        if low > high || transfer.hides(f64::from(low), f64::from(high)) {
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
            let begin = (near / step - 1.5).max(0.0) as u64;
            let end = (far / step + 1.5) as u64;
            let mut through = 1.0f32;
            for k in begin..=end {
                let p = ray.at((k as f64 + 0.5) * step);
                if (0..3).any(|a| p[a] < low[a] || p[a] >= high[a]) {
                    continue;
                }
                let v = self.sample(p);
                if !v.is_finite() {
                    continue;
                }
                let c = transfer.color(v);
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
