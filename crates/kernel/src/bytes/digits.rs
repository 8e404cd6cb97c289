//! How often each of the ten digits stands in some bytes, as fast as they come from memory.
//!
//! A vector of bytes is turned into numbers of which the low half names a digit and the highest bit says
//! that it is none. Five table look-ups give two counters of four bits each, one look-up for two digits; they
//! are emptied into counters of eight bits every 15 vectors and into those of 64 bits every 255. What is computed
//! is defined by [`scalar`].

use super::histogram::histogram;
use stead_simd::{Vector, Work, dispatch};

/// Adds to `counts` how often '0' to '9' stand in `data`.
pub fn count(counts: &mut [u64; 10], data: &[u8]) {
    dispatch(Count(counts, data));
}

struct Count<'a>(&'a mut [u64; 10], &'a [u8]);

impl Work for Count<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let Count(counts, data) = self;
        #[cfg(target_arch = "x86_64")]
        if v.avx2().is_some() {
            // SAFETY: the token exists, so the processor has AVX2.
            return unsafe { x86::count(counts, data) };
        }
        #[cfg(target_arch = "aarch64")]
        if v.neon().is_some() {
            // SAFETY: the token exists, so the processor has NEON.
            return unsafe { arm::count(counts, data) };
        }
        let _ = v;
        scalar(counts, data);
    }
}

/// One byte after the other.
fn scalar(counts: &mut [u64; 10], data: &[u8]) {
    let mut all = [0; 256];
    histogram(&mut all, data);
    counts.iter_mut().zip(&all[usize::from(b'0')..]).for_each(|(c, n)| *c += n);
}

/// Vectors after which counters of four bits are full.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const NIBBLES: usize = 15;
/// Vectors after which counters of eight bits are full.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
const BYTES: usize = NIBBLES * 17;

#[cfg(target_arch = "aarch64")]
mod arm {
    use super::{BYTES, NIBBLES};
    use std::arch::aarch64::*;

    /// As with AVX2, but that look-ups beyond a table of 16 give zero, so that other bytes need no highest bit.
    #[target_feature(enable = "neon")]
    pub fn count(counts: &mut [u64; 10], data: &[u8]) {
        let zero = vdupq_n_u8(0);
        // Digit 2k in the low half of a byte, 2k+1 in the high one.
        let mut tables = [zero; 5];
        for (k, table) in tables.iter_mut().enumerate() {
            let mut bytes = [0u8; 16];
            (bytes[2 * k], bytes[2 * k + 1]) = (1, 16);
            // SAFETY: 16 bytes are read from an array of 16.
            *table = unsafe { vld1q_u8(bytes.as_ptr()) };
        }
        let mut sums = [vdupq_n_u64(0); 10];
        let (vectors, rest) = data.as_chunks::<16>();
        for many in vectors.chunks(BYTES) {
            let mut bytes = [zero; 10];
            for few in many.chunks(NIBBLES) {
                let mut nibbles = [zero; 5];
                for v in few {
                    // SAFETY: 16 readable bytes; the load asks for no alignment.
                    let v = unsafe { vld1q_u8(v.as_ptr()) };
                    // 0 to 9 for digits.
                    let v = veorq_u8(v, vdupq_n_u8(0x30));
                    for (n, t) in nibbles.iter_mut().zip(tables) {
                        *n = vaddq_u8(*n, vqtbl1q_u8(t, v));
                    }
                }
                for (k, n) in nibbles.into_iter().enumerate() {
                    bytes[2 * k] = vaddq_u8(bytes[2 * k], vandq_u8(n, vdupq_n_u8(0x0F)));
                    bytes[2 * k + 1] = vaddq_u8(bytes[2 * k + 1], vshrq_n_u8::<4>(n));
                }
            }
            for (s, b) in sums.iter_mut().zip(bytes) {
                *s = vpadalq_u32(*s, vpaddlq_u16(vpaddlq_u8(b)));
            }
        }
        for (c, s) in counts.iter_mut().zip(sums) {
            *c += vaddvq_u64(s);
        }
        for b in rest.iter().filter(|b| b.is_ascii_digit()) {
            counts[usize::from(b - b'0')] += 1;
        }
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{BYTES, NIBBLES};
    use std::arch::x86_64::*;

    #[target_feature(enable = "avx2")]
    pub fn count(counts: &mut [u64; 10], data: &[u8]) {
        // Digit 2k in the low half of a byte, 2k+1 in the high one.
        let tables: [__m256i; 5] = std::array::from_fn(|k| {
            let at = |i: usize| match i {
                _ if i == 2 * k => 1,
                _ if i == 2 * k + 1 => 16,
                _ => 0i8,
            };
            _mm256_broadcastsi128_si256(_mm_setr_epi8(
                at(0),
                at(1),
                at(2),
                at(3),
                at(4),
                at(5),
                at(6),
                at(7),
                at(8),
                at(9),
                0,
                0,
                0,
                0,
                0,
                0,
            ))
        });
        let low = _mm256_set1_epi8(0x0F);
        let zero = _mm256_setzero_si256();
        let mut sums = [zero; 10];
        let (vectors, rest) = data.as_chunks::<32>();
        for many in vectors.chunks(BYTES) {
            let mut bytes = [zero; 10];
            for few in many.chunks(NIBBLES) {
                let mut nibbles = [zero; 5];
                for v in few {
                    // SAFETY: 32 readable bytes; the load asks for no alignment.
                    let v = unsafe { _mm256_loadu_si256(v.as_ptr().cast()) };
                    // 0x70 to 0x79 for digits, 0x7A to 0x7F where the tables are 0, or the highest bit.
                    let v = _mm256_xor_si256(v, _mm256_set1_epi8(0x30));
                    let v = _mm256_adds_epu8(v, _mm256_set1_epi8(0x70));
                    for (n, t) in nibbles.iter_mut().zip(tables) {
                        *n = _mm256_add_epi8(*n, _mm256_shuffle_epi8(t, v));
                    }
                }
                for (k, n) in nibbles.into_iter().enumerate() {
                    let even = _mm256_and_si256(n, low);
                    let odd = _mm256_and_si256(_mm256_srli_epi16::<4>(n), low);
                    bytes[2 * k] = _mm256_add_epi8(bytes[2 * k], even);
                    bytes[2 * k + 1] = _mm256_add_epi8(bytes[2 * k + 1], odd);
                }
            }
            for (s, b) in sums.iter_mut().zip(bytes) {
                *s = _mm256_add_epi64(*s, _mm256_sad_epu8(b, zero));
            }
        }
        for (c, s) in counts.iter_mut().zip(sums) {
            *c += (_mm256_extract_epi64::<0>(s) + _mm256_extract_epi64::<1>(s)) as u64;
            *c += (_mm256_extract_epi64::<2>(s) + _mm256_extract_epi64::<3>(s)) as u64;
        }
        for b in rest.iter().filter(|b| b.is_ascii_digit()) {
            counts[usize::from(b - b'0')] += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(data: &[u8]) {
        let (mut got, mut slow, mut want) = ([1; 10], [1; 10], [1; 10]);
        count(&mut got, data);
        for vectors in stead_simd::Vectors::all() {
            let mut each = [1; 10];
            vectors.run(Count(&mut each, data));
            assert_eq!(each, got, "{}", vectors.name());
        }
        scalar(&mut slow, data);
        data.iter().filter(|b| b.is_ascii_digit()).for_each(|b| want[usize::from(b - b'0')] += 1);
        assert_eq!((got, slow), (want, want));
    }

    #[test]
    fn no_counter_overflows_and_no_other_byte_counts() {
        // Counters are emptied every 15 and every 255 vectors.
        for n in [0, 1, 31, 32, 33, 15 * 32, 16 * 32 + 5, 255 * 32, 256 * 32 + 7, 40_000] {
            for b in [b'0', b'1', b'8', b'9', b'/', b':', 0, b'p', 0xB0, 0xFF] {
                check(&vec![b; n]);
            }
            check(&(0..n).map(|i| i as u8).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn any_bytes(data in proptest::collection::vec(
            prop_oneof![3 => b'0'..=b'9', 1 => any::<u8>()], 0..20_000)) {
            check(&data);
        }
    }
}
