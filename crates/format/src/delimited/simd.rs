//! Numbers in fields, several at once, with the vectors that have a faster way for it than one after the other.

use super::fields_of::Fields;
pub use stead_simd::{GROUP, Masks, Vector, Work, dispatch};

/// What fields may look like that are read several at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// At most 8 bytes, without exponent.
    Narrow,
    /// As that, or a minus before 8 bytes.
    Minus,
    /// At most 16 bytes, without exponent.
    Wide,
    /// As `Minus`, before an exponent of one or two digits.
    ShortScientific,
    /// As `Wide`, before an exponent of one or two digits.
    LongScientific,
}

impl Form {
    /// All of them, in the order in which they are to be tried.
    pub const ALL: [Form; 5] =
        [Form::Narrow, Form::Minus, Form::Wide, Form::ShortScientific, Form::LongScientific];
}

/// Reads the first fields as long as they are plain decimals of this form and exact by Clinger's argument;
/// gives how many that were. None are where there is no faster way than one after the other.
#[inline(always)]
pub fn decimals<V: Vector>(vector: V, fields: &Fields<'_>, form: Form, out: &mut [f64]) -> usize {
    #[cfg(target_arch = "x86_64")]
    if vector.avx2().is_some() {
        use super::four;
        // SAFETY: the token exists, so the processor has AVX2.
        return unsafe {
            match form {
                Form::Narrow => four::narrow(fields, out),
                Form::Minus => four::minus(fields, out),
                Form::Wide => four::wide(fields, out),
                Form::ShortScientific => four::short_scientific(fields, out),
                Form::LongScientific => four::long_scientific(fields, out),
            }
        };
    }
    let _ = (vector, fields, form, out);
    0
}
