//! Missing values.
//!
//! A missing value is a quiet NaN with a payload of its own, the one that R uses for `NA`. It takes
//! no second array, and a kernel that does not care sees a NaN. A NaN that was computed or read as a
//! number is *not* missing: it is a value, and it propagates.

/// The bits of a missing value: R's `NA_real_` made quiet.
pub const MISSING_BITS: u64 = 0x7FF8_0000_0000_07A2;

/// A missing value.
pub const MISSING: f64 = f64::from_bits(MISSING_BITS);

/// True for [`MISSING`], whether quiet or signalling as R writes it, and for no other NaN.
#[inline(always)]
pub fn is_missing(v: f64) -> bool {
    v.to_bits() & !(1 << 51) & !(1 << 63) == 0x7FF0_0000_0000_07A2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_payload_is_missing() {
        assert!(is_missing(MISSING));
        assert!(is_missing(f64::from_bits(0x7FF0_0000_0000_07A2)));
        assert!(!is_missing(f64::NAN));
        assert!(!is_missing(-f64::NAN));
        assert!(!is_missing(f64::INFINITY));
        assert!(!is_missing(0.0));
    }
}
