//! Exact sums of the first four powers of values, and the moments that follow from them.
//!
//! Pébay's formulas merge moments of parts with a rounding error each; with the exact sums of powers there is nothing to be lost on the
//! way, and what is left is one rounding of a quotient of whole numbers, whatever the order and the split.

use super::{ExactSum, parts, ratio, wholes};
use num_bigint::{BigInt, BigUint};
use num_integer::Integer;
use serde::{Deserialize, Serialize};
use stead_core::is_missing;

/// Values between `2^-PLAIN` and `2^PLAIN` have squares that two doubles hold exactly.
pub(super) const PLAIN: i32 = 200;
/// Twice the lowest bit of a double, three and four times: that of cubes and of fourth powers.
const LOWEST: i64 = -1074;
/// Bytes that cubes and fourth powers can have in units of the lowest bit, and so many of them as can be counted.
const MOST_ODD: usize = 1100;

/// The number of values, and the exact sums of their first four powers. Missing values are skipped; infinities and NaN make the
/// moments NaN, but for a mean that is infinite. As bytes it is what others can merge; whatever comes from them is looked at.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(try_from = "Wire", into = "Wire")]
pub struct PowerSums {
    count: u64,
    sum: ExactSum,
    squares: ExactSum,
    cubes: ExactSum,
    fourths: ExactSum,
    /// Cubes and fourth powers of very large and very small values, in units of the lowest bit that they can have.
    odd: Option<Box<(BigInt, BigInt)>>,
}

/// The form in which they travel.
#[derive(Debug, Serialize, Deserialize)]
struct Wire {
    count: u64,
    sums: [ExactSum; 4],
    /// As whole numbers with a sign, the lowest byte first.
    odd: Option<(Vec<u8>, Vec<u8>)>,
}

impl From<PowerSums> for Wire {
    fn from(of: PowerSums) -> Wire {
        let PowerSums { count, sum, squares, cubes, fourths, odd } = of;
        let bytes =
            |odd: Box<(BigInt, BigInt)>| (odd.0.to_signed_bytes_le(), odd.1.to_signed_bytes_le());
        Wire { count, sums: [sum, squares, cubes, fourths], odd: odd.map(bytes) }
    }
}

impl TryFrom<Wire> for PowerSums {
    type Error = &'static str;

    fn try_from(wire: Wire) -> Result<PowerSums, &'static str> {
        let Wire { count, sums: [sum, squares, cubes, fourths], odd } = wire;
        if odd.as_ref().is_some_and(|(a, b)| a.len().max(b.len()) > MOST_ODD) {
            return Err("sums of powers that no doubles have");
        }
        let number = |bytes: Vec<u8>| BigInt::from_signed_bytes_le(&bytes);
        let odd = odd.map(|(a, b)| Box::new((number(a), number(b))));
        Ok(PowerSums { count, sum, squares, cubes, fourths, odd })
    }
}

impl PowerSums {
    /// Adds values; missing ones are skipped.
    ///
    /// Cost: some 5 ns a value where nearly all of each thousand lie within nine binades, or have few digits, as whole numbers and decimals
    /// of which some thousand are one; that of [`PowerSums::add`] where they do not.
    pub fn add_slice(&mut self, values: &[f64]) {
        let mut rest = [0.0; wholes::CHUNK];
        for values in values.chunks(wholes::CHUNK) {
            let sums = [&mut self.sum, &mut self.squares, &mut self.cubes, &mut self.fourths];
            let left = wholes::add(sums, values, &mut rest);
            self.count = self.count.saturating_add((values.len() - left) as u64);
            rest.iter().take(left).for_each(|v| self.add(*v));
        }
    }

    /// Adds a value; a missing one is skipped.
    ///
    /// Cost: some 40 ns.
    pub fn add(&mut self, v: f64) {
        if is_missing(v) {
            return;
        }
        self.count = self.count.saturating_add(1);
        self.sum.add(v);
        self.squares.add_product(v, v);
        let size = v.abs();
        if size == 0.0 || !v.is_finite() {
            return;
        }
        if (2f64.powi(-PLAIN)..2f64.powi(PLAIN)).contains(&size) {
            let high = v * v;
            let low = v.mul_add(v, -high);
            self.cubes.add_product(high, v);
            self.cubes.add_product(low, v);
            self.fourths.add_product(high, high);
            self.fourths.add_product(2.0 * high, low);
            self.fourths.add_product(low, low);
            return;
        }
        let (negative, significand, exponent) = parts(v);
        let m = BigInt::from(significand);
        let square = &m * &m;
        let up = |power: i64| power * (exponent - LOWEST);
        let (cube, fourth) = ((&square * &m) << up(3), (&square * &square) << up(4));
        let odd = self.odd.get_or_insert_default();
        if negative {
            odd.0 -= cube;
        } else {
            odd.0 += cube;
        }
        odd.1 += fourth;
    }

    /// Adds the sums of other values.
    pub fn merge(&mut self, other: &PowerSums) {
        self.count = self.count.saturating_add(other.count);
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
        self.cubes.merge(&other.cubes);
        self.fourths.merge(&other.fourths);
        if let Some(theirs) = &other.odd {
            let odd = self.odd.get_or_insert_default();
            odd.0 += &theirs.0;
            odd.1 += &theirs.1;
        }
    }

    /// The mean, and the second, third and fourth central moment (of the population: divided by the number of values), each
    /// rounded once. NaN for no values.
    pub fn moments(&self) -> [f64; 4] {
        if self.count == 0 {
            return [f64::NAN; 4];
        }
        if let Some(special) = self.sum.special() {
            return [special, f64::NAN, f64::NAN, f64::NAN];
        }
        let sums = [&self.sum, &self.squares, &self.cubes, &self.fourths].map(ExactSum::to_scaled);
        let odd = self.odd.as_deref();
        let lowest = if odd.is_some() { LOWEST } else { i64::MAX };
        // The k-th sum in units of 2^(k unit): all of them are whole then.
        let unit = sums
            .iter()
            .zip(1i64..)
            .map(|((_, exponent), k)| exponent.div_floor(&k))
            .fold(lowest, i64::min);
        let whole = |k: i64| {
            let at = usize::try_from(k - 1).unwrap_or(0);
            let (sum, exponent) = sums.get(at).cloned().unwrap_or_default();
            let sum = sum << (exponent - k * unit);
            match (odd, k) {
                (Some(odd), 3) => sum + (&odd.0 << (k * (LOWEST - unit))),
                (Some(odd), 4) => sum + (&odd.1 << (k * (LOWEST - unit))),
                _ => sum,
            }
        };
        let [a, b, c, d] = [1, 2, 3, 4].map(whole);
        let n = BigInt::from(self.count);
        let (n2, a2) = (&n * &n, &a * &a);
        let n3 = &n2 * &n;
        let second = &n * &b - &a2;
        let third = &n2 * &c - 3 * (&n * &a * &b) + 2 * (&a2 * &a);
        let fourth = &n3 * &d - 4 * (&n2 * &a * &c) + 6 * (&n * &a2 * &b) - 3 * (&a2 * &a2);
        let count = BigUint::from(self.count);
        let over = |top: &BigInt, power: u32| {
            ratio::round_ratio(top, &count.pow(power), i64::from(power) * unit)
        };
        [over(&a, 1), over(&second, 2), over(&third, 3), over(&fourth, 4)]
    }
}

/// The quotient of whole numbers, rounded once to the nearest double. NaN if `n` is zero.
pub fn over(sum: i128, n: u64) -> f64 {
    ratio::round_ratio(&BigInt::from(sum), &BigUint::from(n), 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By sums of fractions, as the definitions say: differences from the mean first.
    fn slowly(values: &[f64]) -> [f64; 4] {
        let units: Vec<BigInt> = values
            .iter()
            .map(|v| {
                let (negative, m, e) = parts(*v);
                let unit = BigInt::from(m) << (e - LOWEST);
                if negative { -unit } else { unit }
            })
            .collect();
        let n = BigInt::from(values.len());
        let total: BigInt = units.iter().sum();
        let central = |k: u32| {
            let sum: BigInt = units.iter().map(|u| (u * &n - &total).pow(k)).sum();
            let den = BigUint::from(values.len()).pow(k + 1);
            ratio::round_ratio(&sum, &den, LOWEST * i64::from(k))
        };
        let mean = ratio::round_ratio(&total, &BigUint::from(values.len()), LOWEST);
        [mean, central(2), central(3), central(4)]
    }

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            4 => -1e3..1e3f64,
            1 => prop::num::f64::NORMAL | prop::num::f64::SUBNORMAL | prop::num::f64::ZERO,
            1 => (-1e3..1e3f64).prop_map(|x| x + 1e9),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn moments_are_rounded_once_whatever_the_split(
            values in prop::collection::vec(value(), 1..40), cut in 0usize..40,
        ) {
            let (left, right) = values.split_at(cut.min(values.len()));
            let mut a = PowerSums::default();
            let mut b = PowerSums::default();
            right.iter().for_each(|v| a.add(*v));
            left.iter().for_each(|v| b.add(*v));
            // What is merged may have come from elsewhere, as bytes.
            let travelled = postcard::from_bytes(&postcard::to_stdvec(&b).unwrap()).unwrap();
            a.merge(&travelled);
            let bits = |m: [f64; 4]| m.map(f64::to_bits);
            prop_assert_eq!(bits(a.moments()), bits(slowly(&values)));
        }
    }

    /// Values as simulations have them, of a few binades or of many, with holes, with what stands for no value, with infinities.
    fn field() -> impl Strategy<Value = Vec<f64>> {
        let one = (0u8..8, 1u32..1100, any::<u64>());
        one.prop_map(|(sort, len, seed)| {
            let mut state = seed;
            let mut next = move || {
                state =
                    state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
                (state >> 11) as f64 / (1u64 << 53) as f64
            };
            let mut value = || match (sort, (next() * 100.0) as u32) {
                (0, _) => (next() * 2000.0).floor() - 300.0,
                (1, 0..3) => stead_core::MISSING,
                (2, 0..3) => 1e20,
                (3, _) => (next() - 0.5) * 2f64.powi((next() * 600.0) as i32 - 300),
                (4, 0..3) => -1e300 * next(),
                (5, 0..50) => {
                    if next() < 0.5 {
                        -0.0
                    } else {
                        0.0
                    }
                }
                (6, _) => (next() * 1e4).floor() / 100.0,
                (7, 0..3) => 5e-324,
                _ => next() - 0.4,
            };
            (0..len).map(|_| value()).collect()
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn many_values_at_once_are_as_many_one_by_one(values in field(), special in 0u8..12) {
            let mut values = values;
            match special {
                0 => values.push(f64::INFINITY),
                1 => values.push(f64::NAN),
                _ => (),
            }
            let (mut fast, mut slow) = (PowerSums::default(), PowerSums::default());
            fast.add_slice(&values);
            values.iter().for_each(|v| slow.add(*v));
            prop_assert_eq!(fast.count, slow.count);
            let bits = |sums: &PowerSums| sums.moments().map(f64::to_bits);
            prop_assert_eq!(bits(&fast), bits(&slow));
            if fast.sum.special().is_none() && fast.odd.is_none() && slow.odd.is_none() {
                prop_assert_eq!(&fast.sum, &slow.sum);
                prop_assert_eq!(&fast.squares, &slow.squares);
                prop_assert_eq!(&fast.cubes, &slow.cubes);
                prop_assert_eq!(&fast.fourths, &slow.fourths);
            }
        }
    }

    #[test]
    fn the_largest_whole_numbers_fit() {
        // All bits of as many as there are in a chunk.
        let values: Vec<f64> = [-1.0, 1.0, 1.0]
            .repeat(3000)
            .into_iter()
            .map(|sign| sign * (2f64.powi(53) - 1.0) * 256.0)
            .collect();
        let (mut fast, mut slow) = (PowerSums::default(), PowerSums::default());
        fast.add_slice(&values);
        values.iter().for_each(|v| slow.add(*v));
        assert_eq!(fast.fourths, slow.fourths);
        assert_eq!(fast.cubes, slow.cubes);
        assert_eq!(fast.moments().map(f64::to_bits), slow.moments().map(f64::to_bits));
    }

    #[test]
    fn what_is_no_number_is_told() {
        let mut sums = PowerSums::default();
        assert!(sums.moments().iter().all(|m| m.is_nan()));
        sums.add(stead_core::MISSING);
        assert!(sums.moments()[0].is_nan());
        sums.add(3.0);
        assert_eq!(sums.moments(), [3.0, 0.0, 0.0, 0.0]);
        sums.add(f64::INFINITY);
        assert_eq!(sums.moments()[0], f64::INFINITY);
        assert!(sums.moments()[1].is_nan());
    }

    #[test]
    fn sums_that_no_doubles_have_are_refused() {
        let wire = |len| Wire {
            count: 1,
            sums: Default::default(),
            odd: Some((vec![1; len], vec![0x7F; len])),
        };
        let read = |wire: &Wire| {
            postcard::from_bytes::<PowerSums>(&postcard::to_stdvec(wire).unwrap()).is_ok()
        };
        assert!(read(&wire(MOST_ODD)) && !read(&wire(MOST_ODD + 1)));
        // The largest that there are: 2^60 of the largest double would have a few bits more.
        let mut sums = PowerSums::default();
        (0..1000).for_each(|_| sums.add(-f64::MAX));
        assert!(Wire::from(sums.clone()).odd.unwrap().1.len() + 8 < MOST_ODD);
        assert!(read(&Wire::from(sums)));
    }

    #[test]
    fn whole_numbers_are_divided_with_one_rounding() {
        assert_eq!(over(7, 2), 3.5);
        assert_eq!(over(-(1i128 << 100) - 1, 1), -(2f64.powi(100)));
        assert_eq!(over((1 << 53) + 1, 1), 9007199254740992.0);
        assert!(over(1, 0).is_nan());
    }
}
