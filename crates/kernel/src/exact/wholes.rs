//! The fast way of many values into exact sums of their first four powers: as whole numbers of one unit.
//!
//! Of the doubles of a chunk nearly all are whole multiples, below 2^61, of one unit: those that are smaller than the largest one by eight
//! binades at most, and smaller ones with fewer digits. Powers of whole numbers are products of 64-bit ones, and what carries over from limb
//! to limb is an instruction of its own. What is no multiple of the unit comes again with the largest of what is left, so that a few
//! very large values, as those that stand for none, do not keep others from it; the rest goes value by value.

use super::powers::PLAIN;
use super::{ExactSum, FRACTION, SPECIAL};
use stead_simd::{Vector, Work, dispatch};

/// Values handled at once.
pub(super) const CHUNK: usize = 1024;
/// Bits of a whole number beyond those of a double: 61 in all, so that sums of products stay in their limbs.
const MORE: i32 = 8;
/// Bits of whole numbers whose powers are short: a chunk of fourth powers fits 128.
const SHORT: u32 = 29;
/// How often what is left of a chunk is looked at again.
const ROUNDS: usize = 3;
/// Fewer values are not worth a look.
const FEW: usize = 16;

/// Adds the powers of those values that are whole numbers of a unit; gives how many of `values`, which are [`CHUNK`] at most, these are
/// not, and has those, in their order, in front of `rest`.
pub(super) fn add(sums: [&mut ExactSum; 4], values: &[f64], rest: &mut [f64; CHUNK]) -> usize {
    let [sum, squares, cubes, fourths] = sums;
    let mut wholes = [0; CHUNK];
    let mut of = &mut rest[..values.len()];
    of.copy_from_slice(values);
    for _ in 0..ROUNDS {
        let Some(top) = top(of).filter(|_| of.len() >= FEW) else { break };
        let wholes = &mut wholes[..of.len()];
        let found = dispatch(Wholes { values: of, top, wholes });
        if found.others == of.len() as u64 {
            break;
        }
        // The exponent of the unit.
        let unit = top as i64 - 1075 - i64::from(MORE);
        let low = found.bits.trailing_zeros().min(63);
        let (powers, unit) = match found.bits >> low < 1 << SHORT {
            true => (short(wholes, low), unit + i64::from(low)),
            false => (long(wholes), unit),
        };
        signed(sum, powers.sum, unit);
        signed(squares, powers.squares, 2 * unit);
        signed(cubes, powers.cubes, 3 * unit);
        signed(fourths, powers.fourths, 4 * unit);
        let mut left = 0;
        if found.others > 0 {
            for (i, whole) in wholes.iter().enumerate() {
                let v = of[i];
                if *whole == 0 && v != 0.0 {
                    of[left] = v;
                    left += 1;
                }
            }
        }
        of = &mut of[..left];
    }
    of.len()
}

/// Adds a number in two's complement, its lowest limb first, times `2^exponent`.
fn signed<const N: usize>(to: &mut ExactSum, mut limbs: [u64; N], exponent: i64) {
    let negative = limbs.last().is_some_and(|top| top.cast_signed() < 0);
    if negative {
        limbs = limbs.map(|limb| !limb);
        let mut one = [0; N];
        one[0] = 1;
        plus(&mut limbs, one);
    }
    for (limb, at) in limbs.into_iter().zip(0i64..).filter(|(limb, _)| *limb != 0) {
        to.add_scaled(negative, limb, exponent + 64 * at);
    }
}

/// The exponent field of the largest value, if that is neither too large nor too small. Values beyond `2^PLAIN` are for others, as
/// infinities and NaN are.
fn top(values: &[f64]) -> Option<u64> {
    struct Largest<'a>(&'a [f64]);
    impl Work for Largest<'_> {
        type Out = i64;

        #[inline(always)]
        fn run<V: Vector>(self, _: V) -> i64 {
            const END: i64 = (1023 + PLAIN as i64) << 52;
            let mut most = 0;
            for v in self.0 {
                let bits = (v.to_bits() & (u64::MAX >> 1)).cast_signed();
                let bits = if bits < END { bits } else { 0 };
                most = if bits > most { bits } else { most };
            }
            most
        }
    }
    let field = dispatch(Largest(values)).cast_unsigned() >> 52;
    (field > (1023 - PLAIN) as u64).then_some(field)
}

/// Finds the whole numbers among values; all others, and zeros, have 0 in their place.
struct Wholes<'a> {
    values: &'a [f64],
    /// The exponent field of the largest one.
    top: u64,
    wholes: &'a mut [i64],
}

struct Found {
    /// Values that are no whole numbers.
    others: u64,
    /// All bits that a whole number has.
    bits: u64,
}

impl Work for Wholes<'_> {
    type Out = Found;

    #[inline(always)]
    fn run<V: Vector>(self, _: V) -> Found {
        let (mut others, mut all) = (0, 0);
        for (whole, v) in self.wholes.iter_mut().zip(self.values) {
            let bits = v.to_bits();
            let digits = (bits & FRACTION | (FRACTION + 1)) << MORE;
            // Of what is larger than the largest this wraps, and no digits are left; nor are there of numbers below 2^-1022.
            let down = self.top.wrapping_sub(bits >> 52 & SPECIAL);
            let size = if down < 64 { digits >> (down & 63) } else { 0 };
            let is_whole = size << (down & 63) == digits;
            let size = if is_whole { size } else { 0 };
            let sign = bits.cast_signed() >> 63;
            *whole = (size.cast_signed() ^ sign) - sign;
            all |= size;
            others += u64::from(!is_whole & (*v != 0.0));
        }
        Found { others, bits: all }
    }
}

/// The sums of four powers of whole numbers, in two's complement: limbs of 64 bits, the lowest first.
struct Powers {
    sum: [u64; 2],
    squares: [u64; 3],
    cubes: [u64; 4],
    fourths: [u64; 5],
}

/// Powers of numbers of which all bits but [`SHORT`] from this one on are zero, in units of that bit.
fn short(of: &[i64], low: u32) -> Powers {
    let (mut sum, mut squares, mut cubes, mut fourths) = (0i64, 0u128, 0i128, 0u128);
    for x in of {
        let x = x >> low;
        let square = x * x;
        sum += x;
        squares += square as u128;
        cubes += i128::from(square) * i128::from(x);
        fourths += times(square as u64, square as u64);
    }
    let wide = |x: i128| [x as u64, (x >> 64) as u64, (x >> 127) as u64, (x >> 127) as u64, 0];
    let (a, b) = (wide(sum.into()), wide(squares.cast_signed()));
    let (c, d) = (wide(cubes), wide(fourths.cast_signed()));
    Powers {
        sum: [a[0], a[1]],
        squares: [b[0], b[1], b[2]],
        cubes: [c[0], c[1], c[2], c[3]],
        fourths: d,
    }
}

/// Powers of numbers below 2^61.
fn long(of: &[i64]) -> Powers {
    // Each loop has so few sums that there are registers for them. With carries from limb to limb compilers do not take these for work of
    // vectors, which have no products of so many bits.
    let (mut low, mut high, mut negative) = (0u64, 0i64, 0);
    for x in of {
        low += x.cast_unsigned() & 0xFFFF_FFFF;
        high += x >> 32;
        negative += (x >> 63).cast_unsigned() & 1;
    }
    let sum = (i128::from(high) << 32) + i128::from(low);
    let (mut squares, mut cubes) = ([0; 3], [negative, 0, 0, 0]);
    for x in of {
        let (sign, size) = ((x >> 63).cast_unsigned(), x.unsigned_abs());
        let (low, high) = halves(times(size, size));
        plus(&mut squares, [low, high, 0]);
        let (first, more) = halves(times(low, size));
        let (second, third) = halves(times(high, size) + u128::from(more));
        // And one for each that is negative.
        plus(&mut cubes, [first ^ sign, second ^ sign, third ^ sign, sign]);
    }
    let mut fourths = [0; 5];
    for x in of {
        let size = x.unsigned_abs();
        let (low, high) = halves(times(size, size));
        let (first, more) = halves(times(low, low));
        let (second, more) = halves((times(low, high) << 1) + u128::from(more));
        let (third, fourth) = halves(times(high, high) + u128::from(more));
        plus(&mut fourths, [first, second, third, fourth, 0]);
    }
    Powers { sum: [sum as u64, (sum >> 64) as u64], squares, cubes, fourths }
}

#[inline(always)]
fn times(a: u64, b: u64) -> u128 {
    u128::from(a) * u128::from(b)
}

/// The lower and the upper half.
#[inline(always)]
fn halves(x: u128) -> (u64, u64) {
    (x as u64, (x >> 64) as u64)
}

#[inline(always)]
fn plus<const N: usize>(sum: &mut [u64; N], x: [u64; N]) {
    let mut carry = false;
    for (sum, x) in sum.iter_mut().zip(x) {
        let (both, over) = sum.overflowing_add(x);
        let (both, more) = both.overflowing_add(u64::from(carry));
        (*sum, carry) = (both, over | more);
    }
}
