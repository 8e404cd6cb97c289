//! The form in which an exact sum travels: sign and magnitude, without leading and trailing zeros, so that
//! equal sums are equal bytes.

use super::{BASE, ExactSum, LIMB_BITS, MAX_LIMBS, MINUS_INF, NAN, PLUS_INF};
use num_bigint::Sign;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

/// Flag: the finite part is negative.
const NEGATIVE: u8 = 8;

/// What is written.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Wire {
    flags: u8,
    first: u16,
    digits: Vec<u32>,
}

impl From<&ExactSum> for Wire {
    fn from(sum: &ExactSum) -> Wire {
        let (big, exponent) = sum.to_scaled();
        let (sign, mut digits) = big.to_u32_digits();
        let zeros = digits.iter().take_while(|d| **d == 0).count();
        digits.drain(..zeros);
        let first = if digits.is_empty() {
            0
        } else {
            (exponent - BASE) as usize / LIMB_BITS as usize + zeros
        };
        let negative = if sign == Sign::Minus { NEGATIVE } else { 0 };
        Wire { flags: sum.specials | negative, first: first as u16, digits }
    }
}

impl TryFrom<Wire> for ExactSum {
    type Error = &'static str;

    fn try_from(wire: Wire) -> Result<ExactSum, &'static str> {
        let Wire { flags, first, digits } = wire;
        if flags & !(PLUS_INF | MINUS_INF | NAN | NEGATIVE) != 0 {
            return Err("an exact sum with unknown flags");
        }
        let negative = flags & NEGATIVE != 0;
        let first = usize::from(first);
        let trimmed = match (digits.first(), digits.last()) {
            (Some(a), Some(b)) => *a != 0 && *b != 0,
            _ => first == 0 && !negative,
        };
        if !trimmed || first + digits.len() > MAX_LIMBS {
            return Err("an exact sum whose digits are not canonical");
        }
        let limbs =
            digits.iter().map(|d| if negative { -i64::from(*d) } else { i64::from(*d) }).collect();
        Ok(ExactSum { limbs, first, adds: 1, specials: flags & !NEGATIVE })
    }
}

impl Serialize for ExactSum {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        Wire::from(self).serialize(s)
    }
}

impl<'de> Deserialize<'de> for ExactSum {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        ExactSum::try_from(Wire::deserialize(d)?).map_err(D::Error::custom)
    }
}
