//! From pixels to rays. Axes are the user's: axis 0 points up, elevation 0 looks along the horizon.

/// How the volume is looked at.
#[derive(Debug, Clone)]
pub(super) struct Camera {
    pub width: usize,
    pub height: usize,
    centre: [f64; 3],
    forward: [f64; 3],
    right: [f64; 3],
    up: [f64; 3],
    /// Where the light comes from: from the viewer, up and to the left. Of length 1.
    pub light: [f64; 3],
    /// Length of a pixel at the centre, in voxels.
    pixel: f64,
    /// From the first sample's plane (or the eye) to the centre.
    distance: f64,
    perspective: bool,
}

/// A half-line: samples lie at `origin + direction * t`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ray {
    pub origin: [f64; 3],
    pub direction: [f64; 3],
}

/// What part of the picture a box may cover.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sight {
    /// First and one past the last column and row.
    pub x: (usize, usize),
    pub y: (usize, usize),
    /// Bounds on the distance from the rays' origins at which they meet it.
    pub near: f64,
    pub far: f64,
}

impl Ray {
    #[inline(always)]
    pub fn at(&self, t: f64) -> [f64; 3] {
        let (o, d) = (&self.origin, &self.direction);
        [o[0] + d[0] * t, o[1] + d[1] * t, o[2] + d[2] * t]
    }
}

impl Camera {
    /// `azimuth` and `elevation` in degrees. Angles of sine 1/4 hold the whole volume at zoom 1.
    pub fn new(
        size: (usize, usize),
        dims: [u64; 3],
        azimuth: f64,
        elevation: f64,
        zoom: f64,
        perspective: bool,
    ) -> Camera {
        let (width, height) = size;
        let n = dims.map(|d| d.max(1) as f64);
        let radius = 0.5 * (n[0] * n[0] + n[1] * n[1] + n[2] * n[2]).sqrt();
        // Software sine and cosine: the same on every machine.
        let turn = |d: f64| (libm::sin(d.to_radians()), libm::cos(d.to_radians()));
        let ((sa, ca), (se, ce)) = (turn(azimuth), turn(elevation));
        let distance = if perspective { 4.0 * radius } else { radius };
        // A sphere seen from 4 radii away fills a disc of 4 / sqrt(15) radii at its centre.
        let half = if perspective { radius * 4.0 / 15f64.sqrt() } else { radius };
        let (forward, right) = ([-se, -ce * sa, -ce * ca], [0.0, ca, -sa]);
        let up = [ce, -se * sa, -se * ca];
        Camera {
            width,
            height,
            centre: n.map(|n| (n - 1.0) / 2.0),
            forward,
            right,
            up,
            // 2, 1 and 2 thirds: a vector of length 1.
            light: [0, 1, 2].map(|a| (2.0 * up[a] - right[a] - 2.0 * forward[a]) / 3.0),
            pixel: 2.0 * half / (zoom * width.min(height) as f64),
            distance,
            perspective,
        }
    }

    /// False if all rays have one direction.
    pub fn perspective(&self) -> bool {
        self.perspective
    }

    /// True if the ray of a pixel does not go down along an axis.
    pub fn goes_up(&self, x: usize, y: usize, axis: usize) -> bool {
        if self.perspective {
            return self.ray(x, y).direction[axis] >= 0.0;
        }
        self.forward[axis] >= 0.0
    }

    /// True if what is further along an axis is seen further up.
    pub fn rises(&self, axis: usize) -> bool {
        self.up[axis] > 0.0
    }

    /// The ray of the middle of a pixel.
    #[inline(always)]
    pub fn ray(&self, x: usize, y: usize) -> Ray {
        let sx = (x as f64 + 0.5 - self.width as f64 / 2.0) * self.pixel;
        let sy = (self.height as f64 / 2.0 - y as f64 - 0.5) * self.pixel;
        let (mut back, mut side, mut origin) = ([0.0; 3], [0.0; 3], [0.0; 3]);
        for a in 0..3 {
            back[a] = self.centre[a] - self.forward[a] * self.distance;
            side[a] = self.right[a] * sx + self.up[a] * sy;
            origin[a] = back[a] + side[a];
        }
        if !self.perspective {
            return Ray { origin, direction: self.forward };
        }
        let d = [0, 1, 2].map(|a| self.forward[a] * self.distance + side[a]);
        let length = (d[0] * d[0] + d[1] * d[1] + d[2] * d[2]).sqrt();
        Ray { origin: back, direction: d.map(|v| v / length) }
    }

    /// The part of the picture that a box may cover.
    pub fn sight(&self, low: &[f64; 3], high: &[f64; 3]) -> Sight {
        let (x, y, near, far) =
            if self.perspective { self.corners(low, high) } else { self.shadow(low, high) };
        // A pixel of margin each side; the casts saturate.
        let cut = |v: f64, n: usize| (v.max(0.0) as usize).min(n);
        Sight {
            x: (cut(x.0.floor() - 1.0, self.width), cut(x.1.ceil() + 1.0, self.width)),
            y: (cut(y.0.floor() - 1.0, self.height), cut(y.1.ceil() + 1.0, self.height)),
            near,
            far,
        }
    }

    /// Bounds of a box along the picture's axes in pixels, and on the way to it, if all rays have one direction: each is
    /// a sum of what the axes add.
    fn shadow(&self, low: &[f64; 3], high: &[f64; 3]) -> ((f64, f64), (f64, f64), f64, f64) {
        let along = |v: &[f64; 3]| {
            let mut ends = (0.0, 0.0);
            for a in 0..3 {
                let (p, q) = (v[a] * (low[a] - self.centre[a]), v[a] * (high[a] - self.centre[a]));
                ends = (ends.0 + p.min(q), ends.1 + p.max(q));
            }
            ends
        };
        let (x, y, z) = (along(&self.right), along(&self.up), along(&self.forward));
        let (w, h) = (self.width as f64 / 2.0, self.height as f64 / 2.0);
        (
            (x.0 / self.pixel + w, x.1 / self.pixel + w),
            (h - y.1 / self.pixel, h - y.0 / self.pixel),
            z.0 + self.distance,
            z.1 + self.distance,
        )
    }

    /// As [`Camera::shadow`], for rays from one eye.
    fn corners(&self, low: &[f64; 3], high: &[f64; 3]) -> ((f64, f64), (f64, f64), f64, f64) {
        let (mut x, mut y) = ((f64::MAX, f64::MIN), (f64::MAX, f64::MIN));
        let (mut near, mut far) = (f64::INFINITY, 0.0f64);
        for corner in 0..8 {
            let p = [0, 1, 2]
                .map(|a| (if corner >> a & 1 == 1 { high[a] } else { low[a] }) - self.centre[a]);
            let dot = |v: [f64; 3]| p[0] * v[0] + p[1] * v[1] + p[2] * v[2];
            let along = self.distance + dot(self.forward);
            let shrink = self.distance / along.max(self.distance * 1e-3);
            let sx = dot(self.right) * shrink / self.pixel + self.width as f64 / 2.0;
            let sy = self.height as f64 / 2.0 - dot(self.up) * shrink / self.pixel;
            x = (x.0.min(sx), x.1.max(sx));
            y = (y.0.min(sy), y.1.max(sy));
            // No way to a point is shorter than the one along the middle.
            near = near.min(along);
            let eye = [0, 1, 2].map(|a| p[a] + self.forward[a] * self.distance);
            far = far.max((eye[0] * eye[0] + eye[1] * eye[1] + eye[2] * eye[2]).sqrt());
        }
        (x, y, near, far)
    }
}
