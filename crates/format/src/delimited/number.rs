//! Numbers written as text.
//!
//! Plain decimals take a path of their own: with at most 2^53 in their digits and at most 22 of them after
//! the point, digits and power of ten are both exact in f64, so one division rounds correctly (W. D.
//! Clinger, "How to read floating point numbers accurately", PLDI 1990). All else goes to `fast_float2`,
//! which is correctly rounded too.

/// Powers of ten that f64 holds exactly.
const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

/// Integers up to here are exact in f64.
const EXACT: u64 = 1 << 53;

/// A plain decimal such as `-123.456` at the start of `text`, and how many bytes it takes. `None` if it
/// is none, or if it needs more care. What follows is for the caller to look at.
#[inline]
pub fn plain(text: &[u8]) -> Option<(f64, usize)> {
    let negative = text.first() == Some(&b'-');
    let start = usize::from(negative);
    let mut i = start;
    let mut digits: u64 = 0;
    while let Some(d) = text.get(i).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
        digits = digits.wrapping_mul(10).wrapping_add(u64::from(d));
        i += 1;
    }
    let whole = i - start;
    let mut places = 0;
    if text.get(i) == Some(&b'.') {
        i += 1;
        let point = i;
        while let Some(d) = text.get(i).map(|b| b.wrapping_sub(b'0')).filter(|d| *d < 10) {
            digits = digits.wrapping_mul(10).wrapping_add(u64::from(d));
            i += 1;
        }
        places = i - point;
    }
    let count = whole + places;
    // 19 digits cannot wrap 64 bits.
    if count == 0 || count > 19 || digits > EXACT {
        return None;
    }
    let v = digits as f64 / POWERS[places];
    Some((if negative { -v } else { v }, i))
}

/// True for the bytes that [`plain`] takes for a part of the number.
pub fn in_plain(byte: u8) -> bool {
    byte.is_ascii_digit() || matches!(byte, b'-' | b'.')
}

/// `digits / 10^places`, if it is exact but for one rounding.
#[inline(always)]
pub(super) fn scaled(digits: u64, places: isize) -> Option<f64> {
    let power = *POWERS.get(places.unsigned_abs())?;
    if digits > EXACT {
        return None;
    }
    // Below 2^63, so that the conversion is one instruction.
    let v = digits as i64 as f64;
    Some(if places < 0 { v * power } else { v / power })
}

/// The number that all of `field` says; spaces around it and a leading `+` are allowed. The second value
/// is true if it is an integer that f64 does not hold and that was rounded.
pub fn parse(field: &[u8]) -> Option<(f64, bool)> {
    let field = field.trim_ascii();
    if let Some((v, n)) = plain(field)
        && n == field.len()
    {
        return Some((v, false));
    }
    let digits = match field {
        [b'+', rest @ ..] if !matches!(rest.first(), Some(b'+' | b'-')) => rest,
        _ => field,
    };
    let v: f64 = fast_float2::parse(digits).ok()?;
    Some((v, v.abs() >= EXACT as f64 && is_rounded(digits, v)))
}

/// True if `digits` is an integer and `v` is another one.
fn is_rounded(digits: &[u8], v: f64) -> bool {
    let digits = digits.strip_prefix(b"-").unwrap_or(digits);
    if !digits.iter().all(u8::is_ascii_digit) {
        return false;
    }
    // Beyond 128 bits there is no integer type to compare with; such numbers count as rounded.
    std::str::from_utf8(digits)
        .ok()
        .and_then(|s| s.parse::<u128>().ok())
        .is_none_or(|exact| v.abs() as u128 != exact)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_as_people_write_them() {
        for (s, v) in [
            ("0", 0.0),
            ("-0", -0.0),
            (" 12 ", 12.0),
            ("+1.5", 1.5),
            (".5", 0.5),
            ("5.", 5.0),
            ("1e3", 1000.0),
            ("-1E-3", -0.001),
            ("inf", f64::INFINITY),
            ("-Infinity", f64::NEG_INFINITY),
            ("1e400", f64::INFINITY),
            ("5e-324", 5e-324),
            ("0.1", 0.1),
            ("123456789012345678901234567890", 1.2345678901234568e29),
        ] {
            assert_eq!(parse(s.as_bytes()).map(|x| x.0.to_bits()), Some(v.to_bits()), "{s}");
        }
        assert!(parse(b"nan").is_some_and(|x| x.0.is_nan() && !stead_core::is_missing(x.0)));
        for s in ["", " ", "-", "+", ".", "1,5", "1 2", "abc", "1x", "--1", "+-1", "0x10", "1e"] {
            assert!(parse(s.as_bytes()).is_none(), "{s}");
        }
    }

    #[test]
    fn plain_decimals_have_their_bytes_and_no_others() {
        for byte in 0..=u8::MAX {
            // At the start, and after a digit.
            let taken = [[byte, b'5', 0], [b'5', byte, b'5']].iter().any(|text| {
                let end = text.iter().position(|b| *b == byte).map_or(0, |at| at + 1);
                plain(text).is_some_and(|(_, n)| n >= end)
            });
            assert_eq!(in_plain(byte), taken, "{byte}");
        }
    }

    #[test]
    fn rounded_integers_are_told() {
        for (s, rounded) in [
            ("9007199254740992", false),
            ("9007199254740993", true),
            ("-9007199254740993", true),
            ("9007199254740994", false),
            ("99999999999999999999999999999999999999999999999", true),
            ("9007199254740993.0", false),
            ("1e300", false),
            ("0.1", false),
        ] {
            assert_eq!(parse(s.as_bytes()).map(|x| x.1), Some(rounded), "{s}");
        }
    }

    proptest! {
        #[test]
        fn decimals_are_the_nearest_floats(s in "-?[0-9]{0,20}(\\.[0-9]{0,20})?") {
            let mine = parse(s.as_bytes()).map(|x| x.0.to_bits());
            prop_assert_eq!(mine, s.parse::<f64>().ok().map(f64::to_bits));
        }

        #[test]
        fn floats_come_back(v: f64) {
            let s = format!("{v}");
            let mine = parse(s.as_bytes()).map(|x| x.0);
            prop_assert!(mine.is_some_and(|m| m.to_bits() == v.to_bits() || m.is_nan() && v.is_nan()));
        }
    }
}
