//! Rounding exact numbers once: integers scaled by a power of two, quotients and square roots of quotients.

use num_bigint::{BigInt, BigUint, Sign};
use num_integer::Integer;
use num_traits::{ToPrimitive, Zero};

/// `value * 2^exponent` rounded to the nearest double, ties to even; subnormals are rounded once too, and
/// what lies beyond the range is infinite. Zero is `+0.0`.
pub fn round_scaled(value: &BigInt, exponent: i64) -> f64 {
    with_sign(value.sign(), round(value.magnitude(), exponent, false))
}

/// `num / den * 2^exponent` correctly rounded. NaN if `den` is zero.
pub fn round_ratio(num: &BigInt, den: &BigUint, exponent: i64) -> f64 {
    if den.is_zero() {
        return f64::NAN;
    }
    if num.sign() == Sign::NoSign {
        return 0.0;
    }
    // 66 bits of quotient and a remainder decide every rounding.
    let shift = shift_for(num, den, 66);
    let (quotient, rest) = quotient(num.magnitude(), den, shift);
    with_sign(num.sign(), round(&quotient, exponent.saturating_sub(shift as i64), rest))
}

/// The square root of `num / den * 2^exponent`, correctly rounded. NaN if the quotient is negative or
/// `den` is zero.
pub fn round_sqrt_ratio(num: &BigInt, den: &BigUint, exponent: i64) -> f64 {
    if den.is_zero() || num.sign() == Sign::Minus {
        return f64::NAN;
    }
    if num.sign() == Sign::NoSign {
        return 0.0;
    }
    // The root has half as many bits, and the exponent must be even.
    let mut shift = shift_for(num, den, 134);
    if exponent.saturating_sub(shift as i64).rem_euclid(2) == 1 {
        shift += 1;
    }
    let (quotient, rest) = quotient(num.magnitude(), den, shift);
    let root = quotient.sqrt();
    let rest = rest || &root * &root != quotient;
    round(&root, exponent.saturating_sub(shift as i64) / 2, rest)
}

fn with_sign(sign: Sign, magnitude: f64) -> f64 {
    if sign == Sign::Minus { -magnitude } else { magnitude }
}

/// The shift with which `num / den` has at least `bits` bits before the point.
fn shift_for(num: &BigInt, den: &BigUint, bits: u64) -> u64 {
    (den.bits() + bits).saturating_sub(num.bits())
}

/// `floor(num * 2^shift / den)`, and whether something was cut off.
fn quotient(num: &BigUint, den: &BigUint, shift: u64) -> (BigUint, bool) {
    let (quotient, rest) = (num << shift).div_rem(den);
    (quotient, !rest.is_zero())
}

/// `value * 2^exponent` to the nearest double. `rest` tells that the true value is a little larger, by less
/// than the lowest bit; `value` must then have more than 54 bits.
fn round(value: &BigUint, exponent: i64, rest: bool) -> f64 {
    let bits = value.bits();
    if bits == 0 {
        return 0.0;
    }
    let top = exponent.saturating_add(bits as i64 - 1);
    if top > 1023 {
        return f64::INFINITY;
    }
    if top < -1075 {
        return 0.0;
    }
    // The exponent of the last bit that a double near this value has.
    let last = (top - 52).max(-1074);
    let cut = last - exponent;
    let significand = if cut <= 0 {
        (value << cut.unsigned_abs()).to_u64().unwrap_or(0)
    } else {
        let cut = cut.unsigned_abs();
        let kept = (value >> cut).to_u64().unwrap_or(0);
        // Bit `cut - 1` is worth one half.
        let half = value.bit(cut - 1);
        let more = rest || value.trailing_zeros().is_some_and(|z| z < cut - 1);
        kept + u64::from(half && (more || kept & 1 == 1))
    };
    // With the leading bit added to the exponent field this is right for normals, for subnormals, and for
    // a carry into the next binade or to infinity.
    f64::from_bits((((last + 1074) as u64) << 52) + significand)
}
