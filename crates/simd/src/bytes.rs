//! What vectors do with bytes.

/// Bytes looked at together.
pub const GROUP: usize = 64;

/// Which bytes of a group are what: bit `i` for byte `i`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Masks {
    /// Delimiters and newlines.
    pub ends: u64,
    /// Newlines.
    pub newlines: u64,
    /// True if there is a quote.
    pub quoted: bool,
}

/// A way to look at bytes.
pub trait Bytes: Copy {
    /// The bytes of `group` that are `delimiter`, newline or `quote`.
    fn masks(self, group: &[u8; GROUP], delimiter: u8, quote: u8) -> Masks;

    /// The bytes of `group` that are `byte`: bit `i` for byte `i`.
    fn equal(self, group: &[u8; GROUP], byte: u8) -> u64;

    /// For each bit, whether the number of bits up to it, itself included, is odd.
    #[inline(always)]
    fn parity(self, bits: u64) -> u64 {
        let mut x = bits;
        let mut k = 1;
        while k < 64 {
            x ^= x << k;
            k *= 2;
        }
        x
    }

    /// Which of the last `len` bytes of `window` are no digits: bit `i` for byte `i`. `len` is 1 to 16.
    fn others(self, window: &[u8; 16], len: usize) -> u32;

    /// The number that the last `len` bytes of `window` say, all of them digits but the one at index `point`,
    /// which is left out; `point` is 16 if all are digits.
    fn digits(self, window: &[u8; 16], len: usize, point: usize) -> u64;
}
