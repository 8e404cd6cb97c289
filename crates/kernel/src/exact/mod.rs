//! Sums without rounding error.
//!
//! An [`ExactSum`] holds the exact value of a sum of doubles, and of products of two doubles, as one
//! long fixed-point number. Nothing is rounded until [`ExactSum::to_f64`] rounds once, so the answer does
//! not depend on order, split, threads or ranks. [`ratio`] rounds quotients and square roots of such sums
//! just as once.
//!
//! The number is kept in 32-bit limbs that lie in 64-bit integers: the upper half of each limb takes the
//! carries, which are propagated only every 2^28 additions (the small superaccumulator of Neal). Only
//! the limbs that the data touch are kept, some five of them for common data, so that a state per group
//! stays small. Long slices do not go to the limbs value by value: `pieces` first adds thousands of values,
//! or of their squares, exactly in plain double arithmetic, with the processor's vectors.
//!
//! R. M. Neal, "Fast exact summation using small and large superaccumulators", arXiv:1505.05571, 2015.

pub(crate) mod narrow;
mod pieces;
pub mod powers;
pub(crate) mod products;
pub mod ratio;
pub(crate) mod rows;
mod wholes;
mod wire;

use num_bigint::{BigInt, BigUint};
use stead_core::is_missing;

/// The exponent of the lowest bit of limb 0: below the smallest product of two doubles, 2^-2148.
const BASE: i64 = -2176;
/// Bits of payload of a limb.
const LIMB_BITS: u32 = 32;
/// Limbs up to the largest sum: 2^60 products below 2^2048 each.
const MAX_LIMBS: usize = ((2048 + 64 - BASE) as usize).div_ceil(LIMB_BITS as usize) + 1;
/// Additions after which carries are propagated. Each changes a limb by less than 2^32.
const CARRY_EVERY: u32 = 1 << 28;
/// The low 32 bits of a limb.
const MASK: i64 = (1 << LIMB_BITS) - 1;
/// The exponent field of infinities and NaN.
const SPECIAL: u64 = 0x7FF;
/// The bits of a double's fraction.
const FRACTION: u64 = (1 << 52) - 1;

const PLUS_INF: u8 = 1;
const MINUS_INF: u8 = 2;
const NAN: u8 = 4;

/// The exact sum of up to 2^60 doubles or products of two doubles.
///
/// Missing values are skipped. Infinities and NaN follow IEEE 754: a NaN, or infinities of both signs,
/// make the sum NaN. A sum of exactly zero is `+0.0`, also where every value was `-0.0`.
///
/// Two sums of the same values compare equal and serialise to the same bytes, in whatever order the values
/// came. Memory: 8 bytes for each 32 bits between the lowest and the highest bit that was touched, at most
/// 1.1 KB.
#[derive(Debug, Clone, Default)]
pub struct ExactSum {
    /// `limbs[k]` counts units of `2^(32 (first + k) + BASE)`. Every limb lies within +-2^62.
    limbs: Vec<i64>,
    /// Index of `limbs[0]`; of no meaning if there is none.
    first: usize,
    /// Bound on the additions since carries were propagated, in units of 2^32 to each limb.
    adds: u32,
    /// Which of `PLUS_INF`, `MINUS_INF`, `NAN` were met.
    specials: u8,
}

/// Sign, significand and the exponent of its lowest bit of a finite double.
#[inline(always)]
fn parts(v: f64) -> (bool, u64, i64) {
    let bits = v.to_bits();
    let field = (bits >> 52) & SPECIAL;
    // Subnormals have the exponent of the smallest normals and no leading bit.
    let significand = (bits & FRACTION) | (u64::from(field != 0) << 52);
    (bits >> 63 != 0, significand, field.max(1) as i64 - 1075)
}

impl ExactSum {
    /// The sum of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value; a missing one is skipped.
    ///
    /// Cost: some 3 ns; [`ExactSum::add_slice`] is faster.
    #[inline]
    pub fn add(&mut self, v: f64) {
        if v.is_finite() {
            self.add_finite(v);
        } else {
            self.add_special(v);
        }
    }

    /// Adds values, skipping missing ones, and returns how many were *not* missing.
    ///
    /// Cost: a third of a nanosecond a value where the exponents lie within some 80 binades of each other in
    /// each run of two thousand values; that of [`ExactSum::add`] where they do not.
    pub fn add_slice(&mut self, values: &[f64]) -> u64 {
        pieces::add_slice(self, values)
    }

    /// Adds `a * b` without rounding it. The product with a missing value is skipped.
    pub fn add_product(&mut self, a: f64, b: f64) {
        if !(a.is_finite() && b.is_finite()) {
            if !is_missing(a) && !is_missing(b) {
                self.add_special(a * b);
            }
            return;
        }
        let (na, ma, ea) = parts(a);
        let (nb, mb, eb) = parts(b);
        if ma == 0 || mb == 0 {
            return;
        }
        let product = u128::from(ma) * u128::from(mb);
        let negative = na != nb;
        self.add_scaled(negative, product as u64, ea + eb);
        self.add_scaled(negative, (product >> 64) as u64, ea + eb + 64);
    }

    /// Adds the exact squares of values, skipping missing ones.
    ///
    /// Cost: about twice [`ExactSum::add_slice`], where the exponents lie within some 35 binades.
    pub fn add_square_slice(&mut self, values: &[f64]) {
        pieces::add_square_slice(self, values);
    }

    /// Adds another sum.
    pub fn merge(&mut self, other: &ExactSum) {
        self.specials |= other.specials;
        if other.limbs.is_empty() {
            return;
        }
        self.cover(other.first, other.first + other.limbs.len() + 1);
        // A limb's upper half goes to the next limb, so that no limb can grow past its bounds.
        self.note(4);
        let at = other.first - self.first;
        for (k, v) in other.limbs.iter().enumerate() {
            self.limbs[at + k] += v & MASK;
            self.limbs[at + k + 1] += v >> LIMB_BITS;
        }
    }

    /// The sum rounded once to the nearest double, ties to even; infinite where it lies beyond the range.
    pub fn to_f64(&self) -> f64 {
        if let Some(v) = self.special() {
            return v;
        }
        let (big, exponent) = self.to_scaled();
        ratio::round_scaled(&big, exponent)
    }

    /// The infinity or NaN that the sum is, if it is one.
    pub fn special(&self) -> Option<f64> {
        match self.specials {
            0 => None,
            PLUS_INF => Some(f64::INFINITY),
            MINUS_INF => Some(f64::NEG_INFINITY),
            _ => Some(f64::NAN),
        }
    }

    /// The finite part of the sum exactly: `(i, e)` for `i * 2^e`. Infinities and NaN are told by
    /// [`ExactSum::special`] alone.
    pub fn to_scaled(&self) -> (BigInt, i64) {
        let mut sum = self.clone();
        sum.carry();
        let exponent = BASE + i64::from(LIMB_BITS) * sum.first as i64;
        let Some((top, low)) = sum.limbs.split_last() else { return (BigInt::ZERO, 0) };
        let digits: Vec<u32> = low.iter().map(|v| (v & MASK) as u32).collect();
        let big = (BigInt::from(*top) << (low.len() * LIMB_BITS as usize))
            + BigInt::from(BigUint::from_slice(&digits));
        (big, exponent)
    }

    /// Bytes that the sum takes, for memory budgets.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.limbs.capacity() * size_of::<i64>()
    }

    /// Adds a value that is neither infinite nor NaN.
    #[inline]
    fn add_finite(&mut self, v: f64) {
        let (negative, significand, exponent) = parts(v);
        if significand != 0 {
            self.add_scaled(negative, significand, exponent);
        }
    }

    /// Notes an infinity or NaN.
    #[cold]
    fn add_special(&mut self, v: f64) {
        if v.is_nan() {
            if !is_missing(v) {
                self.specials |= NAN;
            }
        } else {
            self.specials |= if v > 0.0 { PLUS_INF } else { MINUS_INF };
        }
    }

    /// Adds `significand * 2^exponent`, for exponents of doubles and of their products.
    #[inline]
    fn add_scaled(&mut self, negative: bool, significand: u64, exponent: i64) {
        let position = (exponent - BASE) as usize;
        let index = position / LIMB_BITS as usize;
        let wide = u128::from(significand) << (position % LIMB_BITS as usize);
        if index < self.first || index + 3 > self.first + self.limbs.len() {
            self.cover(index, index + 3);
        }
        self.note(1);
        // Two's complement negation without a branch: the signs of data are not predictable.
        let sign = -i64::from(negative);
        let at = index - self.first;
        if let Some([a, b, c]) = self.limbs.get_mut(at..at + 3) {
            *a += ((wide as i64 & MASK) ^ sign) - sign;
            *b += (((wide >> 32) as i64 & MASK) ^ sign) - sign;
            *c += (((wide >> 64) as i64) ^ sign) - sign;
        }
    }

    /// Counts additions, and propagates carries when it is time.
    #[inline]
    fn note(&mut self, n: u32) {
        self.adds += n;
        if self.adds >= CARRY_EVERY {
            self.carry();
            self.adds = n;
        }
    }

    /// Makes limbs `from..to` part of the window.
    #[cold]
    fn cover(&mut self, from: usize, to: usize) {
        if self.limbs.is_empty() {
            self.first = from;
        }
        let (first, end) = (self.first.min(from), (self.first + self.limbs.len()).max(to));
        let mut limbs = Vec::with_capacity(end - first);
        limbs.resize(self.first - first, 0);
        limbs.append(&mut self.limbs);
        limbs.resize(end - first, 0);
        (self.limbs, self.first) = (limbs, first);
    }

    /// Propagates carries: afterwards every limb but the last lies in `0..2^32`, and the last one within
    /// +-2^40.
    fn carry(&mut self) {
        let mut carry = 0;
        let Some((top, low)) = self.limbs.split_last_mut() else { return };
        for v in low {
            *v += carry;
            carry = *v >> LIMB_BITS;
            *v &= MASK;
        }
        *top += carry;
        let rest = *top;
        if rest.unsigned_abs() >= 1 << 40 {
            *top = rest & MASK;
            self.limbs.push(rest >> LIMB_BITS);
        }
        self.adds = 0;
    }
}

/// Adds values to `sum` and their squares to `squares`, skipping missing ones, and returns how many were *not*
/// missing. The same as [`ExactSum::add_slice`] and [`ExactSum::add_square_slice`] at the price of the latter.
pub fn add_with_squares(sum: &mut ExactSum, squares: &mut ExactSum, values: &[f64]) -> u64 {
    pieces::add_both(sum, squares, values)
}

impl PartialEq for ExactSum {
    /// True if both are the same number, however they came to it.
    fn eq(&self, other: &Self) -> bool {
        wire::Wire::from(self) == wire::Wire::from(other)
    }
}

#[cfg(test)]
mod tests;
