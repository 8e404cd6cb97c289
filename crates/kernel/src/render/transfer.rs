//! From values to colours and opacities, as a table.

use stead_core::Error;
use stead_simd::{Vector, Work, dispatch};

/// Entries of the table less one.
const STEPS: usize = 1024;

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
        let table = (0..=STEPS)
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
        let (min, width) = (min as f32, max - min);
        let scale = if width > 0.0 { (STEPS as f64 / width).min(f64::from(f32::MAX)) } else { 0.0 };
        Transfer { min, scale: scale as f32, table }
    }

    /// Values as places in the table, beyond its ends too; NaN for what is not finite. A greater value has no
    /// lower place. They stand in `places` then, alone.
    pub fn places(&self, values: &[f32], places: &mut Vec<f32>) {
        places.resize(values.len(), 0.0);
        dispatch(Place { transfer: self, values, places });
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

    /// True if no value that is interpolated between those at places from `low` to `high` can be seen.
    pub fn hides(&self, low: f32, high: f32) -> bool {
        if low == high {
            return self.color(low)[3] == 0.0;
        }
        // Three interpolations may pass the ends by their roundings.
        let slack = low.abs().max(high.abs()) * (1.0 / (1 << 20) as f32);
        let entry = |at: f32| at.clamp(0.0, STEPS as f32);
        // Opacities between two entries lie between theirs.
        let clear = |i: usize| self.table[i.min(STEPS)][3] == 0.0;
        (entry(low - slack) as usize..=entry(high + slack).ceil() as usize).all(clear)
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
        // Finite, and so are the differences of two.
        const FAR: f32 = 1e30;
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
            let (x, at) = (rest[i], (rest[i] - min) * scale);
            let at = if flat { STEPS as f32 / 2.0 } else { at.clamp(-FAR, FAR) };
            last[i] = if x.is_finite() { at } else { f32::NAN };
        }
    }
}
