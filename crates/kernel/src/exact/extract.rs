//! The fast way of a long slice into an exact sum: leading bits first, in plain double arithmetic.
//!
//! Adding and subtracting a power of two `sigma` splits every value into its multiple of `2^-53 sigma` and a
//! remainder, both exactly. If `sigma` exceeds twice the sum of the magnitudes, the multiples add up
//! exactly in double arithmetic, in any order, and so in vector registers. One such sum per level and
//! thousand values goes to the limbs. Remainders go the same way at the next level; after the last level the
//! few that are not zero are added one by one.
//!
//! S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point summation part I", SIAM J. Sci. Comput. 31(1),
//! 2008, lemma 3.3.

use super::{ExactSum, SPECIAL};
use stead_core::is_missing;

/// Values handled at once: 8 KiB, a quarter of the first-level cache.
const BLOCK: usize = 1024;
/// Independent partial sums, for the latency of additions and the width of vectors.
const LANES: usize = 16;
/// Shorter slices are added one by one.
const SHORT: usize = 24;
/// Levels of extraction before the remainders are added one by one.
const LEVELS: usize = 4;
/// Sums of magnitudes beyond this take the slow path: `sigma` must not overflow.
const HUGE: f64 = f64::from_bits((1023 + 1000) << 52);
/// 2^-53.
const EPS: f64 = f64::EPSILON / 2.0;
/// Squares of magnitudes between these, and their rounding errors, neither overflow nor underflow.
const SQUARE_MIN: f64 = f64::from_bits((1023 - 400) << 52);
const SQUARE_MAX: f64 = f64::from_bits((1023 + 400) << 52);

pub(super) fn add_slice(sum: &mut ExactSum, values: &[f64]) -> u64 {
    if values.len() < SHORT {
        values.iter().for_each(|v| sum.add(*v));
        return values.iter().filter(|v| !is_missing(**v)).count() as u64;
    }
    let mut buffer = [0.0; BLOCK];
    let mut present = 0;
    for chunk in values.chunks(BLOCK) {
        let finite = load(chunk, &mut buffer, |v| sum.add_special(v));
        present += finite.present;
        add_buffer(sum, &mut buffer[..finite.padded], finite.magnitude);
    }
    present
}

pub(super) fn add_square_slice(sum: &mut ExactSum, values: &[f64]) {
    let mut high = [0.0; BLOCK];
    let mut low = [0.0; BLOCK];
    for chunk in values.chunks(BLOCK) {
        let finite = load(chunk, &mut high, |v| sum.add_special(v * v));
        let n = finite.padded;
        if chunk.len() < SHORT || !squares_are_safe(&high[..n], finite.magnitude) {
            high[..n].iter().for_each(|v| sum.add_product(*v, *v));
            continue;
        }
        let magnitude = square(&mut high[..n], &mut low[..n]);
        add_buffer(sum, &mut high[..n], magnitude);
        add_buffer(sum, &mut low[..n], magnitude * EPS);
    }
}

/// What [`load`] found.
struct Loaded {
    /// Values that were not missing, infinite or NaN ones included.
    present: u64,
    /// Length of the buffer in use, a multiple of `LANES`, padded with zeros.
    padded: usize,
    /// The sum of magnitudes, up to a relative error of 2^-42; may be infinite.
    magnitude: f64,
}

/// Copies the finite values of a chunk to the buffer and gives the others to `special`.
fn load(chunk: &[f64], buffer: &mut [f64; BLOCK], mut special: impl FnMut(f64)) -> Loaded {
    let padded = |n: usize| n.next_multiple_of(LANES).min(BLOCK);
    let mut n = chunk.len();
    buffer[..n].copy_from_slice(chunk);
    buffer[n..padded(n)].fill(0.0);
    let mut magnitude = magnitudes(&buffer[..padded(n)]);
    let mut present = n as u64;
    if !magnitude.is_finite() {
        n = 0;
        for v in chunk {
            if (v.to_bits() >> 52) & SPECIAL == SPECIAL {
                // A missing value stays missing under what `special` may do to it.
                if is_missing(*v) {
                    present -= 1;
                } else {
                    special(*v);
                }
            } else {
                buffer[n] = *v;
                n += 1;
            }
        }
        buffer[n..padded(n)].fill(0.0);
        magnitude = magnitudes(&buffer[..padded(n)]);
    }
    Loaded { present, padded: padded(n), magnitude }
}

/// The sum of magnitudes. Infinite or NaN if a value is, or on overflow.
fn magnitudes(buffer: &[f64]) -> f64 {
    let mut lanes = [0.0f64; LANES];
    for v in buffer.chunks_exact(LANES) {
        for i in 0..LANES {
            lanes[i] += v[i].abs();
        }
    }
    lanes.iter().sum()
}

/// Adds finite values with a sum of magnitudes of about `magnitude` (or less). Leaves rubbish in the buffer.
fn add_buffer(sum: &mut ExactSum, buffer: &mut [f64], magnitude: f64) {
    let mut bound = magnitude;
    if bound < HUGE {
        for _ in 0..LEVELS {
            // At least twice the bound, and a normal number.
            let sigma = f64::from_bits(((bound.to_bits() >> 52) + 2) << 52);
            let (total, rest) = extract(buffer, sigma);
            sum.add_finite(total);
            if rest << 1 == 0 {
                return;
            }
            // Two bounds on what is left: half a unit of the grid each, and the largest exponent that the
            // bits of all of them allow.
            let field = ((rest >> 52) & SPECIAL) + 1;
            let largest = f64::from_bits(field.min(SPECIAL - 1) << 52);
            bound = largest.min(sigma * EPS) * BLOCK as f64;
        }
    }
    buffer.iter().for_each(|v| sum.add_finite(*v));
}

/// Splits off the multiples of `2^-53 sigma` and returns their exact sum, and all bits of the remainders,
/// which are left in the buffer, or-ed together.
fn extract(buffer: &mut [f64], sigma: f64) -> (f64, u64) {
    let mut totals = [0.0f64; LANES];
    let mut rests = [0u64; LANES];
    for v in buffer.chunks_exact_mut(LANES) {
        for i in 0..LANES {
            let part = (v[i] + sigma) - sigma;
            totals[i] += part;
            v[i] -= part;
            rests[i] |= v[i].to_bits();
        }
    }
    (totals.iter().sum(), rests.iter().fold(0, |a, b| a | b))
}

/// True if no square, and no rounding error of one, can overflow or underflow.
fn squares_are_safe(values: &[f64], magnitude: f64) -> bool {
    let tiny: u64 =
        values.iter().map(|v| u64::from(v.abs() < SQUARE_MIN) & u64::from(*v != 0.0)).sum();
    magnitude < SQUARE_MAX && tiny == 0
}

/// Replaces values by their rounded squares, puts the rounding errors into `low`, and returns the sum of
/// the rounded squares. Dekker's product with Veltkamp's split: no fused multiply-add is needed.
fn square(high: &mut [f64], low: &mut [f64]) -> f64 {
    const SPLIT: f64 = 134_217_729.0; // 2^27 + 1
    let mut lanes = [0.0f64; LANES];
    for (h, l) in high.chunks_exact_mut(LANES).zip(low.chunks_exact_mut(LANES)) {
        for i in 0..LANES {
            let x = h[i];
            let c = SPLIT * x;
            let a = c - (c - x);
            let b = x - a;
            let p = x * x;
            l[i] = ((a * a - p) + 2.0 * (a * b)) + b * b;
            h[i] = p;
            lanes[i] += p;
        }
    }
    lanes.iter().sum()
}
