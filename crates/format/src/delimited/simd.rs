//! Vector code: which bytes of a group have a role, and what a run of digits says.
//!
//! What is computed is defined by [`Scalar`]; `Avx2` computes the same with fewer instructions. Work is
//! written once, for any [`Vector`], and [`dispatch`] runs it with the best one that the processor has.

use super::fields_of::Fields;

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

/// A way to compute.
pub trait Vector: Copy {
    /// The bytes of `group` that are `delimiter`, newline or `quote`.
    fn masks(self, group: &[u8; GROUP], delimiter: u8, quote: u8) -> Masks;

    /// The bytes of `group` that are `byte`: bit `i` for byte `i`.
    fn equal(self, group: &[u8; GROUP], byte: u8) -> u64;

    /// For each bit, whether the number of bits up to it, itself included, is odd.
    fn parity(self, bits: u64) -> u64 {
        (0..6).fold(bits, |x, k| x ^ (x << (1 << k)))
    }

    /// Which of the last `len` bytes of `window` are no digits: bit `i` for byte `i`. `len` is 1 to 16.
    fn others(self, window: &[u8; 16], len: usize) -> u32;

    /// The number that the last `len` bytes of `window` say, all of them digits but the one at index `point`,
    /// which is left out; `point` is 16 if all are digits.
    fn digits(self, window: &[u8; 16], len: usize, point: usize) -> u64;

    /// Reads the first fields as long as they are plain decimals of this form and exact by Clinger's argument;
    /// gives how many that were. None are where there is no faster way than one after the other.
    fn decimals(self, fields: &Fields<'_>, form: Form, out: &mut [f64]) -> usize {
        let _ = (fields, form, out);
        0
    }
}

/// Something to be done with a [`Vector`]. Implement with `#[inline(always)]`, so that it is compiled for the
/// processor's instructions.
pub trait Work {
    /// What comes out.
    type Out;

    /// Does it.
    fn run<V: Vector>(self, vector: V) -> Self::Out;
}

/// Does `work` with the best vectors there are.
#[inline]
pub fn dispatch<W: Work>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    if let Some(v) = x86::Avx2::get() {
        return v.dispatch(work);
    }
    work.run(Scalar)
}

/// No vectors: eight bytes at a time in general registers.
#[derive(Debug, Clone, Copy)]
pub struct Scalar;

/// One bit for each of eight bytes that is `byte`.
#[inline(always)]
fn equal(eight: u64, byte: u8) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    let x = eight ^ (u64::from(byte) * 0x0101_0101_0101_0101);
    // The top bit of each byte that is zero, exactly: no carry crosses bytes.
    let zero = !(((x & LOW) + LOW) | x | LOW);
    // Gathers the top bits.
    (zero >> 7).wrapping_mul(0x0102_0408_1020_4080) >> 56
}

impl Vector for Scalar {
    #[inline(always)]
    fn masks(self, group: &[u8; GROUP], delimiter: u8, quote: u8) -> Masks {
        let mut m = Masks { ends: 0, newlines: 0, quoted: false };
        for (i, eight) in group.as_chunks::<8>().0.iter().enumerate() {
            let eight = u64::from_le_bytes(*eight);
            let newlines = equal(eight, b'\n');
            m.newlines |= newlines << (8 * i);
            m.ends |= (newlines | equal(eight, delimiter)) << (8 * i);
            m.quoted |= equal(eight, quote) != 0;
        }
        m
    }

    #[inline(always)]
    fn equal(self, group: &[u8; GROUP], byte: u8) -> u64 {
        let eights = group.as_chunks::<8>().0.iter().enumerate();
        eights.fold(0, |m, (i, x)| m | equal(u64::from_le_bytes(*x), byte) << (8 * i))
    }

    #[inline(always)]
    fn others(self, window: &[u8; 16], len: usize) -> u32 {
        (16 - len..16).fold(0, |m, i| m | u32::from(!window[i].is_ascii_digit()) << i)
    }

    #[inline(always)]
    fn digits(self, window: &[u8; 16], len: usize, point: usize) -> u64 {
        (16 - len..16).filter(|i| *i != point).fold(0u64, |n, i| {
            n.wrapping_mul(10).wrapping_add(u64::from(window[i].wrapping_sub(b'0')))
        })
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::super::fields_of::Fields;
    use super::super::four;
    use super::{Form, GROUP, Masks, Vector, Work};
    use std::arch::x86_64::*;

    /// AVX2 and what came with it. A value of it exists only where the processor has them.
    #[derive(Debug, Clone, Copy)]
    pub struct Avx2(());

    /// For each place of the point: the bytes before it move up by one. Without a point all stay.
    const CLOSE: [[u8; 16]; 17] = {
        let mut table = [[0; 16]; 17];
        let mut point = 0;
        while point <= 16 {
            let mut i = 0;
            while i < 16 {
                let moved = if i == 0 { 0x80 } else { i as u8 - 1 };
                table[point][i] = if point < 16 && i <= point { moved } else { i as u8 };
                i += 1;
            }
            point += 1;
        }
        table
    };

    /// For each length: all bits of the last so many bytes.
    const LAST: [[u8; 16]; 17] = {
        let mut table = [[0; 16]; 17];
        let mut len = 0;
        while len <= 16 {
            let mut i = 16 - len;
            while i < 16 {
                table[len][i] = 0xFF;
                i += 1;
            }
            len += 1;
        }
        table
    };

    impl Avx2 {
        /// The token, if the processor has it all.
        #[inline]
        pub fn get() -> Option<Avx2> {
            let has = is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
                && is_x86_feature_detected!("pclmulqdq");
            has.then_some(Avx2(()))
        }

        /// Does `work`, compiled for these instructions.
        #[inline]
        pub fn dispatch<W: Work>(self, work: W) -> W::Out {
            #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
            fn run<W: Work>(work: W, vector: Avx2) -> W::Out {
                work.run(vector)
            }
            // SAFETY: `self` exists, so the processor has the features.
            unsafe { run(work, self) }
        }
    }

    /// The two halves of a group.
    #[inline(always)]
    fn halves(group: &[u8; GROUP]) -> [__m256i; 2] {
        // SAFETY: 32 bytes each are read from the two halves of an array of 64, without alignment; only those
        // who have an `Avx2` call this.
        unsafe {
            let at = group.as_ptr();
            [_mm256_loadu_si256(at.cast()), _mm256_loadu_si256(at.add(32).cast())]
        }
    }

    /// The top bits of 64 bytes. SAFETY: the processor must have AVX2.
    #[inline(always)]
    unsafe fn mask(a: __m256i, b: __m256i) -> u64 {
        // SAFETY: as the caller promises.
        let (a, b) = unsafe { (_mm256_movemask_epi8(a) as u32, _mm256_movemask_epi8(b) as u32) };
        u64::from(a) | u64::from(b) << 32
    }

    #[inline(always)]
    fn load(bytes: &[u8; 16]) -> __m128i {
        // SAFETY: 16 bytes are read from an array of 16; the load needs no alignment, and SSE2 is part of
        // x86-64.
        unsafe { _mm_loadu_si128(bytes.as_ptr().cast()) }
    }

    impl Vector for Avx2 {
        #[inline(always)]
        fn masks(self, group: &[u8; GROUP], delimiter: u8, quote: u8) -> Masks {
            let [a, b] = halves(group);
            // SAFETY: `self` exists, so the processor has AVX2.
            unsafe {
                let find =
                    |x: __m256i, byte: u8| _mm256_cmpeq_epi8(x, _mm256_set1_epi8(byte as i8));
                let (na, nb) = (find(a, b'\n'), find(b, b'\n'));
                let ea = _mm256_or_si256(na, find(a, delimiter));
                let eb = _mm256_or_si256(nb, find(b, delimiter));
                let quotes = _mm256_or_si256(find(a, quote), find(b, quote));
                Masks {
                    ends: mask(ea, eb),
                    newlines: mask(na, nb),
                    quoted: _mm256_testz_si256(quotes, quotes) == 0,
                }
            }
        }

        #[inline(always)]
        fn equal(self, group: &[u8; GROUP], byte: u8) -> u64 {
            let [a, b] = halves(group);
            // SAFETY: `self` exists, so the processor has AVX2.
            unsafe {
                let byte = _mm256_set1_epi8(byte as i8);
                mask(_mm256_cmpeq_epi8(a, byte), _mm256_cmpeq_epi8(b, byte))
            }
        }

        #[inline(always)]
        fn parity(self, bits: u64) -> u64 {
            // SAFETY: `self` exists, so the processor has carry-less multiplication.
            unsafe {
                let all = _mm_set1_epi8(-1);
                let product = _mm_clmulepi64_si128::<0>(_mm_set_epi64x(0, bits as i64), all);
                _mm_cvtsi128_si64(product) as u64
            }
        }

        #[inline(always)]
        fn others(self, window: &[u8; 16], len: usize) -> u32 {
            let x = load(window);
            // SAFETY: `self` exists, so the processor has AVX2 and all SSE before it.
            let digits = unsafe {
                let d = _mm_sub_epi8(x, _mm_set1_epi8(b'0' as i8));
                _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_min_epu8(d, _mm_set1_epi8(9)), d)) as u32
            };
            !digits & (0xFFFF << (16 - len)) & 0xFFFF
        }

        #[inline(always)]
        fn digits(self, window: &[u8; 16], len: usize, point: usize) -> u64 {
            let x = load(window);
            let close = load(&CLOSE[point]);
            let last = load(&LAST[len - usize::from(point < 16)]);
            // SAFETY: `self` exists, so the processor has AVX2 and all SSE before it.
            let halves = unsafe {
                let d = _mm_sub_epi8(x, _mm_set1_epi8(b'0' as i8));
                let d = _mm_and_si128(_mm_shuffle_epi8(d, close), last);
                // Pairs of digits, of pairs, of fours: tens and ones, hundreds and ones, ...
                let two = _mm_maddubs_epi16(d, _mm_set1_epi16(0x010A));
                let four = _mm_madd_epi16(two, _mm_set1_epi32(0x0001_0064));
                let four = _mm_packus_epi32(four, four);
                let eight = _mm_madd_epi16(four, _mm_set1_epi32(0x0001_2710));
                _mm_cvtsi128_si64(eight) as u64
            };
            (halves & 0xFFFF_FFFF) * 100_000_000 + (halves >> 32)
        }

        #[inline(always)]
        fn decimals(self, fields: &Fields<'_>, form: Form, out: &mut [f64]) -> usize {
            // SAFETY: `self` exists, so the processor has AVX2.
            unsafe {
                match form {
                    Form::Narrow => four::narrow(fields, out),
                    Form::Minus => four::minus(fields, out),
                    Form::Wide => four::wide(fields, out),
                    Form::ShortScientific => four::short_scientific(fields, out),
                    Form::LongScientific => four::long_scientific(fields, out),
                }
            }
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::x86::Avx2;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn vectors_compute_what_scalars_do(
            bytes in proptest::collection::vec(
                prop_oneof![Just(b','), Just(b'\n'), Just(b'"'), b'0'..=b'9', any::<u8>()],
                GROUP,
            ),
            digits in proptest::collection::vec(b'0'..=b'9', 16),
            len in 1..=16usize,
            point in 0..=16usize,
        ) {
            let Some(v) = Avx2::get() else { return Ok(()) };
            let group: [u8; GROUP] = bytes.try_into().expect("64 bytes");
            prop_assert_eq!(v.masks(&group, b',', b'"'), Scalar.masks(&group, b',', b'"'));
            let quotes = v.equal(&group, b'"');
            prop_assert_eq!(quotes, Scalar.equal(&group, b'"'));
            prop_assert_eq!(v.parity(quotes), Scalar.parity(quotes));
            let window: &[u8; 16] = group.first_chunk().expect("16 bytes");
            prop_assert_eq!(v.others(window, len), Scalar.others(window, len));
            let mut window: [u8; 16] = digits.try_into().expect("16 bytes");
            let point = if point < 16 - len { 16 } else { point };
            if point < 16 {
                window[point] = b'.';
            }
            prop_assert_eq!(v.digits(&window, len, point), Scalar.digits(&window, len, point));
        }
    }

    #[test]
    fn all_bytes_are_told_apart() {
        for b in 0..=255u8 {
            let mut group = [b; GROUP];
            group[63] = b.wrapping_add(1);
            let m = Scalar.masks(&group, b',', b'"');
            let want = |x: u8| (0..GROUP).fold(0u64, |m, i| m | u64::from(group[i] == x) << i);
            assert_eq!(m.newlines, want(b'\n'));
            assert_eq!(m.ends, want(b'\n') | want(b','));
            assert_eq!(m.quoted, want(b'"') != 0);
            assert_eq!(Scalar.equal(&group, b'"'), want(b'"'));
        }
        for bits in [0u64, 1, 1 << 63, 0b1011_0010, u64::MAX] {
            let odd = |i: u32| (bits << (63 - i)).count_ones() % 2 == 1;
            let want = (0..64).fold(0, |m, i| m | u64::from(odd(i)) << i);
            assert_eq!(Scalar.parity(bits), want);
        }
    }
}
