//! From values to colours and opacities, as a table.

use stead_core::Error;
use stead_simd::{Vector, Work, dispatch};

/// Entries of the table less one.
const STEPS: usize = 1024;

/// The greatest place. Finite, and so are the differences of two.
const FAR: f32 = 1e30;

/// Where two entries without colour stand, behind the others.
const NOWHERE: usize = STEPS + 1;

/// Colour maps: points from low to high, evenly spaced.
pub(super) const MAPS: [(&str, &[[f32; 3]]); 4] = [
    ("gray", &[[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]),
    ("hot", &[[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]),
    ("cool", &[[0.0, 1.0, 1.0], [1.0, 0.0, 1.0]]),
    (
        "viridis",
        &[
            [0.267, 0.005, 0.329],
            [0.230, 0.322, 0.546],
            [0.128, 0.567, 0.551],
            [0.369, 0.789, 0.383],
            [0.993, 0.906, 0.144],
        ],
    ),
];

/// Premultiplied colours over the normalised value.
#[derive(Debug, Clone)]
pub(super) struct Transfer {
    /// What is 0 in the table, and entries for a unit of the values; no entries if all values are one.
    min: f32,
    scale: f32,
    table: Vec<[f32; 4]>,
    /// For each entry the number of the first one from there on that can be seen.
    seen: Vec<usize>,
}

fn ramp(points: &[(f64, f64)], u: f64) -> f64 {
    let i = points.partition_point(|p| p.0 <= u);
    match (i.checked_sub(1).and_then(|i| points.get(i)), points.get(i)) {
        (Some(a), Some(b)) => a.1 + (b.1 - a.1) * ((u - a.0) / (b.0 - a.0)),
        (Some(a), None) => a.1,
        (None, Some(b)) => b.1,
        (None, None) => 0.0,
    }
}

/// Reads `0:0;0.5:0.1;1:0.8`.
pub(super) fn points(text: &str) -> Result<Vec<(f64, f64)>, Error> {
    let bad = || {
        Error::usage(format!("opacity '{text}' is not valid")).with_hint(
            "write ascending VALUE:OPACITY points, all between 0 and 1: '0:0;0.5:0.1;1:0.8'",
        )
    };
    let mut out: Vec<(f64, f64)> = Vec::new();
    for part in text.split(';') {
        let (u, a) = part.split_once(':').ok_or_else(bad)?;
        let read = |s: &str| s.trim().parse().ok().filter(|v| (0.0..=1.0).contains(v));
        let (u, a): (f64, f64) = (read(u).ok_or_else(bad)?, read(a).ok_or_else(bad)?);
        if out.last().is_some_and(|p| p.0 >= u) {
            return Err(bad());
        }
        out.push((u, a));
    }
    Ok(out)
}

impl Transfer {
    /// Opacities are for a length of one voxel; the table holds them for one step.
    pub fn new(min: f64, max: f64, colors: &[[f32; 3]], opacity: &[(f64, f64)], step: f64) -> Self {
        let last = colors.len() - 1;
        let mut table: Vec<[f32; 4]> = (0..=STEPS)
            .map(|i| {
                let u = i as f64 / STEPS as f64;
                let a = 1.0 - libm::pow(1.0 - ramp(opacity, u), step);
                let at = u * last as f64;
                // Between 0 and the number of points.
                let k = (at as usize).min(last.saturating_sub(1));
                let f = at - k as f64;
                let c = |j: usize| {
                    let (p, q) = (f64::from(colors[k][j]), f64::from(colors[(k + 1).min(last)][j]));
                    ((p + (q - p) * f) * a) as f32
                };
                [c(0), c(1), c(2), a as f32]
            })
            .collect();
        let mut seen = vec![usize::MAX; table.len()];
        let mut next = usize::MAX;
        for (i, (c, seen)) in table.iter().zip(&mut seen).enumerate().rev() {
            next = if c[3] == 0.0 { next } else { i };
            *seen = next;
        }
        table.extend([[0.0; 4]; 2]);
        let (min, width) = (min as f32, max - min);
        let scale = if width > 0.0 { (STEPS as f64 / width).min(f64::from(f32::MAX)) } else { 0.0 };
        Transfer { min, scale: scale as f32, table, seen }
    }

    /// Values as places in the table, beyond its ends too; NaN for what is not finite. A greater value has no
    /// lower place. There are as many `places` as values.
    pub fn places(&self, values: &[f32], places: &mut [f32]) {
        dispatch(Place { transfer: self, values, places });
    }

    /// True if no value that is interpolated between those from `low` to `high` can be seen; values that are not finite
    /// cannot. `low` is above `high` if there are none.
    pub fn hides_values(&self, low: f32, high: f32) -> bool {
        if low > high || low == f32::INFINITY || high == f32::NEG_INFINITY {
            return true;
        }
        self.hides(self.place(low), self.place(high))
    }

    /// The place of one value; for an infinite one the end that is nearer.
    fn place(&self, value: f32) -> f32 {
        if self.scale == 0.0 {
            return STEPS as f32 / 2.0;
        }
        ((value - self.min) * self.scale).clamp(-FAR, FAR)
    }

    /// The colour at a place of the table.
    #[inline(always)]
    pub fn color(&self, place: f32) -> [f32; 4] {
        let at = place.clamp(0.0, STEPS as f32);
        // Signed 32-bit numbers are what the processor converts to.
        let i = (at as i32).min(STEPS as i32 - 1);
        let f = at - i as f32;
        let i = i.max(0) as usize;
        let (p, q) = (&self.table[i], &self.table[i + 1]);
        let mix = |j: usize| p[j] + (q[j] - p[j]) * f;
        [mix(0), mix(1), mix(2), mix(3)]
    }

    /// The colours at eight places, two to a vector: none where the bit of `seen` is not set.
    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    pub fn colors8<V: Vector>(&self, v: V, places: V::Eight, seen: u32) -> [V::Eight; 4] {
        let at = v.max8(v.min8(places, v.splat8(STEPS as f32)), v.splat8(0.0));
        let entry = v.floor8(v.min8(at, v.splat8(STEPS as f32 - 1.0)));
        let (mut f, entries) = ([0.0; 8], v.integers8(entry));
        v.store8(v.sub8(at, entry), &mut f);
        let mut colors = [v.splat8(0.0); 4];
        for m in 0..4 {
            let l = 2 * m;
            let (a, b) = (entries[l], entries[l + 1]);
            let [p, q] = self.entries(if seen >> l & 1 == 1 { a as usize } else { NOWHERE });
            let [r, s] = self.entries(if seen >> (l + 1) & 1 == 1 { b as usize } else { NOWHERE });
            let (from, to) = (v.fours(p, r), v.fours(q, s));
            let f = v.splats(f[l], f[l + 1]);
            colors[m] = v.add8(from, v.mul8(v.sub8(to, from), f));
        }
        colors
    }

    /// An entry and the next one.
    #[inline(always)]
    fn entries(&self, i: usize) -> [&[f32; 4]; 2] {
        [&self.table[i], &self.table[i + 1]]
    }

    /// True if no value that is interpolated between those at places from `low` to `high` can be seen.
    fn hides(&self, low: f32, high: f32) -> bool {
        if low == high {
            return self.color(low)[3] == 0.0;
        }
        // Three interpolations may pass the ends by their roundings.
        let slack = low.abs().max(high.abs()) * (1.0 / (1 << 20) as f32);
        let entry = |at: f32| at.clamp(0.0, STEPS as f32);
        // Opacities between two entries lie between theirs.
        let (first, last) = (entry(low - slack) as usize, entry(high + slack).ceil() as usize);
        self.seen[first.min(STEPS)] > last
    }
}

/// Finds the places of values.
struct Place<'a> {
    transfer: &'a Transfer,
    values: &'a [f32],
    places: &'a mut [f32],
}

impl Work for Place<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let Transfer { min, scale, .. } = *self.transfer;
        let flat = scale == 0.0;
        let (least, times) = (v.splat8(min), v.splat8(scale));
        let (low, high) = (v.splat8(-FAR), v.splat8(FAR));
        let middle = v.splat8(STEPS as f32 / 2.0);
        let (values, rest) = self.values.as_chunks::<8>();
        let (places, last) = self.places.as_chunks_mut::<8>();
        for i in 0..values.len().min(places.len()) {
            let x = v.load8(&values[i]);
            let at = v.mul8(v.sub8(x, least), times);
            let at = if flat { middle } else { v.max8(v.min8(at, high), low) };
            // Zero, or NaN of what is not finite.
            v.store8(v.add8(at, v.sub8(x, x)), &mut places[i]);
        }
        for i in 0..rest.len().min(last.len()) {
            // As above: -0 becomes 0.
            let at = self.transfer.place(rest[i]) + 0.0;
            last[i] = if rest[i].is_finite() { at } else { f32::NAN };
        }
    }
}
