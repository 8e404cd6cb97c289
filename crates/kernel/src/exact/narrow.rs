//! An exact sum in 128 bits, for as long as it fits.
//!
//! A million groups want a million small sums. Values of like size, which those of a column mostly are, add up within
//! one fixed window of bits; whoever holds a [`Narrow`] goes on with an [`ExactSum`] when a value does not fit.

use super::{ExactSum, parts};

/// Bits of the window below the lowest bit of the first value.
const BELOW: i64 = 32;
/// How far up a value may be shifted: its 53 bits then leave 2 for the sum.
const MOST_SHIFT: i64 = 72;
/// Exponents for which a result is neither infinite nor subnormal, and so only scaled.
const PLAIN: std::ops::RangeInclusive<i64> = -900..=800;

/// `sum * 2^exponent`, exactly. No exponent, no values but zeros.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Narrow {
    /// The halves of a 128-bit integer, which would ask for twice the alignment.
    high: i64,
    low: u64,
    exponent: Option<i16>,
}

impl Narrow {
    fn sum(&self) -> i128 {
        i128::from(self.high) << 64 | i128::from(self.low)
    }

    fn set(&mut self, sum: i128) {
        (self.high, self.low) = ((sum >> 64) as i64, sum as u64);
    }

    /// Adds a value that is neither infinite nor NaN. False if it does not fit: nothing has changed then.
    #[inline]
    pub(crate) fn add(&mut self, v: f64) -> bool {
        let (negative, significand, exponent) = parts(v);
        if significand == 0 {
            return true;
        }
        let unit = match self.exponent {
            Some(e) => i64::from(e),
            None => {
                // Between -1106 and 939.
                self.exponent = Some((exponent - BELOW) as i16);
                exponent - BELOW
            }
        };
        let shift = exponent - unit;
        if !(0..=MOST_SHIFT).contains(&shift) {
            return false;
        }
        let value = i128::from(significand) << shift;
        match self.sum().checked_add(if negative { -value } else { value }) {
            Some(sum) => {
                self.set(sum);
                true
            }
            None => false,
        }
    }

    /// Adds another sum. False if it does not fit: nothing has changed then.
    pub(crate) fn merge(&mut self, other: &Narrow) -> bool {
        let (Some(a), Some(b)) = (self.exponent, other.exponent) else {
            if self.exponent.is_none() {
                *self = *other;
            }
            return true;
        };
        let unit = a.min(b);
        let scaled = |sum: i128, e: i16| {
            let shift = u32::from(e.abs_diff(unit));
            let up = sum.checked_shl(shift).unwrap_or(0);
            (up.checked_shr(shift) == Some(sum)).then_some(up)
        };
        match (scaled(self.sum(), a), scaled(other.sum(), b)) {
            (Some(x), Some(y)) => match x.checked_add(y) {
                Some(sum) => {
                    self.set(sum);
                    self.exponent = Some(unit);
                    true
                }
                None => false,
            },
            _ => false,
        }
    }

    /// The same sum, with room for everything.
    pub(crate) fn widen(&self) -> ExactSum {
        let mut wide = ExactSum::new();
        if let Some(e) = self.exponent {
            let size = self.sum().unsigned_abs();
            let negative = self.high < 0;
            wide.add_scaled(negative, size as u64, i64::from(e));
            wide.add_scaled(negative, (size >> 64) as u64, i64::from(e) + 64);
        }
        wide
    }

    /// The sum rounded once to the nearest double. `None` if that takes more care.
    pub(crate) fn to_f64(self) -> Option<f64> {
        match (self.sum(), self.exponent) {
            (0, _) | (_, None) => Some(0.0),
            // Conversion rounds to the nearest, ties to even.
            (sum, Some(e)) => Some(sum as f64 * power(i64::from(e))?),
        }
    }

    /// The sum divided by `n`, rounded once to the nearest double. `None` if that takes more care.
    pub(crate) fn over(self, n: u64) -> Option<f64> {
        let sum = self.sum();
        let e = i64::from(self.exponent.unwrap_or(0));
        if sum == 0 || n == 0 {
            return (n > 0).then_some(0.0);
        }
        // The quotient has more than 63 bits, so that the last of them, which may be noise, decides no more than
        // that there is a rest.
        let size = sum.unsigned_abs();
        let up = size.leading_zeros();
        let (size, n) = (size << up, u128::from(n));
        let quotient = (size / n) | u128::from(size % n != 0);
        let x = quotient as f64 * power(e - i64::from(up))?;
        Some(if sum < 0 { -x } else { x })
    }
}

/// `2^e`, if that is far from the ends of the range.
fn power(e: i64) -> Option<f64> {
    PLAIN.contains(&e).then(|| f64::from_bits(((e + 1023) as u64) << 52))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exact::ratio;
    use num_bigint::BigUint;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            6 => (-100_000i32..100_000).prop_map(|i| f64::from(i) / 100.0),
            3 => -1e6..1e6f64,
            1 => Just(0.0),
            1 => Just(-0.0),
            1 => any::<f64>().prop_filter("finite", |x| x.is_finite()),
            1 => (0u64..1 << 56).prop_map(f64::from_bits),
            1 => (-1.0..1.0f64).prop_map(|x| x * f64::MAX),
        ]
    }

    fn narrow(values: &[f64], wide: &mut ExactSum) -> Narrow {
        let mut n = Narrow::default();
        values.iter().for_each(|v| {
            if n.add(*v) {
                wide.add(*v);
            }
        });
        n
    }

    proptest! {
        #[test]
        fn what_fits_is_exact(
            a in prop::collection::vec(value(), 0..40),
            b in prop::collection::vec(value(), 0..40),
            n in prop_oneof![1u64..50, any::<u64>()],
        ) {
            let (mut of_a, mut of_b) = (ExactSum::new(), ExactSum::new());
            let (mut x, y) = (narrow(&a, &mut of_a), narrow(&b, &mut of_b));
            prop_assert_eq!(&x.widen(), &of_a);
            if x.merge(&y) {
                of_a.merge(&of_b);
            }
            prop_assert_eq!(&x.widen(), &of_a);
            if let Some(f) = x.to_f64() {
                prop_assert_eq!(f.to_bits(), of_a.to_f64().to_bits());
            }
            if n > 0 && let Some(f) = x.over(n) {
                let (sum, e) = of_a.to_scaled();
                let want = ratio::round_ratio(&sum, &BigUint::from(n), e);
                prop_assert_eq!(f.to_bits(), want.to_bits());
            }
        }

        #[test]
        fn columns_of_like_values_fit(a in prop::collection::vec(1e-3..1e6f64, 0..400)) {
            let mut all = ExactSum::new();
            let n = narrow(&a, &mut all);
            let mut want = ExactSum::new();
            want.add_slice(&a);
            prop_assert_eq!(all, want);
            prop_assert!(n.to_f64().is_some() && n.over(7).is_some());
        }
    }

    #[test]
    fn what_does_not_fit_changes_nothing() {
        let mut n = Narrow::default();
        assert!(n.add(1.0) && !n.add(1e-30) && !n.add(1e30) && n.add(0.5));
        assert_eq!(n.to_f64(), Some(1.5));
        let mut far = Narrow::default();
        assert!(far.add(1e200) && !n.merge(&far));
        assert_eq!((n.to_f64(), n.over(3)), (Some(1.5), Some(0.5)));
        // As large as can be, until it overflows.
        let mut n = Narrow::default();
        assert!(n.add(1.0));
        let times = (0..).take_while(|_| n.add((1u64 << 40) as f64 * 1.9)).count();
        assert!(times > 1);
        assert_eq!(n.to_f64(), Some((times as f64).mul_add((1u64 << 40) as f64 * 1.9, 1.0)));
    }
}
