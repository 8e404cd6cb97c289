//! Vectors of 256 bits of x86-64.

use crate::past::{AHEAD, LINE, TURN};
use crate::{Bytes, GROUP, Lanes, MOST, Masks, Two, Vector, Work};
use std::arch::x86_64::*;

/// AVX2, fused multiply-add and what came with them. A value of it exists only where the processor has them.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// The token, if the processor has it all.
    #[inline]
    pub fn get() -> Option<Avx2> {
        let has = is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("bmi1")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("lzcnt")
            && is_x86_feature_detected!("popcnt")
            && is_x86_feature_detected!("pclmulqdq");
        has.then_some(Avx2(()))
    }

    /// Does `work`, compiled for these instructions.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Out {
        #[target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt,pclmulqdq")]
        fn run<W: Work>(work: W, vector: Avx2) -> W::Out {
            work.run(vector)
        }
        // SAFETY: `self` exists, so the processor has the features.
        unsafe { run(work, self) }
    }

    /// Copies whole turns to where a line begins: see [`crate::copy_past_caches`].
    pub(crate) fn copy_past_caches(self, from: &[u8], to: &mut [u8], then: &[u8]) {
        #[target_feature(enable = "avx2")]
        fn turns(from: &[[u8; TURN]], to: &mut [[u8; TURN]], then: &[[u8; TURN]]) {
            for (i, (from_turn, to)) in from.iter().zip(to).enumerate() {
                // Not what lies behind: it is of something else.
                let ahead = from.get(i + AHEAD).or_else(|| then.get(i + AHEAD - from.len()));
                for line in (0..TURN).step_by(LINE) {
                    if let Some(ahead) = ahead {
                        _mm_prefetch::<_MM_HINT_NTA>(ahead.as_ptr().wrapping_add(line).cast());
                    }
                    let (from, to) = (from_turn.as_ptr().wrapping_add(line), to.as_mut_ptr());
                    // SAFETY: a line of both turns, in two halves; the loads need no alignment, and that of the target was looked at.
                    unsafe {
                        let low = _mm256_loadu_si256(from.cast());
                        let high = _mm256_loadu_si256(from.add(LINE / 2).cast());
                        _mm256_stream_si256(to.add(line).cast(), low);
                        _mm256_stream_si256(to.add(line + LINE / 2).cast(), high);
                    }
                }
            }
            // Others see these bytes in the order of what is written after them.
            _mm_sfence();
        }
        if !to.as_ptr().addr().is_multiple_of(LINE) {
            return to.copy_from_slice(from);
        }
        let (from, _) = from.as_chunks();
        let (to, _) = to.as_chunks_mut();
        let (then, _) = then.as_chunks();
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe { turns(from, to, then) }
    }
}

/// One intrinsic that looks at nothing but its operands.
macro_rules! with {
    ($self:ident, $e:expr) => {{
        let Avx2(()) = $self;
        // SAFETY: `self` exists, so the processor has AVX2 and FMA.
        unsafe { $e }
    }};
}

impl Vector for Avx2 {
    type Four = __m256d;

    #[inline(always)]
    fn splat(self, x: f64) -> __m256d {
        with!(self, _mm256_set1_pd(x))
    }

    #[inline(always)]
    fn load(self, from: &[f64; 4]) -> __m256d {
        // SAFETY: `self` exists, so the processor has AVX2; four doubles are read from an array of four, and
        // need no alignment.
        unsafe { _mm256_loadu_pd(from.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m256d, to: &mut [f64; 4]) {
        // SAFETY: `self` exists, so the processor has AVX2; four doubles are written to an array of four, and
        // need no alignment.
        unsafe { _mm256_storeu_pd(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn add(self, a: __m256d, b: __m256d) -> __m256d {
        with!(self, _mm256_add_pd(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m256d, b: __m256d) -> __m256d {
        with!(self, _mm256_sub_pd(a, b))
    }

    #[inline(always)]
    fn mul(self, a: __m256d, b: __m256d) -> __m256d {
        with!(self, _mm256_mul_pd(a, b))
    }

    #[inline(always)]
    fn fma(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d {
        with!(self, _mm256_fmadd_pd(a, b, c))
    }

    #[inline(always)]
    fn about(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d {
        self.fma(a, b, c)
    }

    #[inline(always)]
    fn min(self, a: __m256d, b: __m256d) -> __m256d {
        with!(self, _mm256_min_pd(a, b))
    }

    #[inline(always)]
    fn max(self, a: __m256d, b: __m256d) -> __m256d {
        with!(self, _mm256_max_pd(a, b))
    }

    #[inline(always)]
    fn less(self, a: __m256d, b: __m256d) -> __m256d {
        with!(self, _mm256_cmp_pd::<_CMP_LT_OQ>(a, b))
    }

    #[inline(always)]
    fn select(self, mask: __m256d, a: __m256d, b: __m256d) -> __m256d {
        with!(self, _mm256_blendv_pd(b, a, mask))
    }

    #[inline(always)]
    fn bits(self, mask: __m256d) -> u32 {
        // The upper 28 bits are zero.
        with!(self, _mm256_movemask_pd(mask)) as u32
    }

    #[inline(always)]
    fn floor(self, a: __m256d) -> __m256d {
        with!(self, _mm256_floor_pd(a))
    }

    #[inline(always)]
    fn integers(self, a: __m256d) -> [i32; 4] {
        let mut out = [0; 4];
        // SAFETY: `self` exists, so the processor has AVX2; four integers are written to an array of four, and
        // need no alignment.
        unsafe { _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_cvttpd_epi32(a)) };
        out
    }

    type Eight = __m256;

    #[inline(always)]
    fn splat8(self, x: f32) -> __m256 {
        with!(self, _mm256_set1_ps(x))
    }

    #[inline(always)]
    fn load8(self, from: &[f32; 8]) -> __m256 {
        // SAFETY: `self` exists, so the processor has AVX2; eight floats are read from an array of eight, and
        // need no alignment.
        unsafe { _mm256_loadu_ps(from.as_ptr()) }
    }

    #[inline(always)]
    fn store8(self, v: __m256, to: &mut [f32; 8]) {
        // SAFETY: `self` exists, so the processor has AVX2; eight floats are written to an array of eight, and
        // need no alignment.
        unsafe { _mm256_storeu_ps(to.as_mut_ptr(), v) }
    }

    #[inline(always)]
    fn narrow(self, low: __m256d, high: __m256d) -> __m256 {
        with!(self, _mm256_set_m128(_mm256_cvtpd_ps(high), _mm256_cvtpd_ps(low)))
    }

    #[inline(always)]
    fn add8(self, a: __m256, b: __m256) -> __m256 {
        with!(self, _mm256_add_ps(a, b))
    }

    #[inline(always)]
    fn mul8(self, a: __m256, b: __m256) -> __m256 {
        with!(self, _mm256_mul_ps(a, b))
    }

    #[inline(always)]
    fn sub8(self, a: __m256, b: __m256) -> __m256 {
        with!(self, _mm256_sub_ps(a, b))
    }

    #[inline(always)]
    fn about8(self, a: __m256, b: __m256, c: __m256) -> __m256 {
        with!(self, _mm256_fmadd_ps(a, b, c))
    }

    #[inline(always)]
    fn min8(self, a: __m256, b: __m256) -> __m256 {
        with!(self, _mm256_min_ps(a, b))
    }

    #[inline(always)]
    fn max8(self, a: __m256, b: __m256) -> __m256 {
        with!(self, _mm256_max_ps(a, b))
    }

    #[inline(always)]
    fn less8(self, a: __m256, b: __m256) -> __m256 {
        with!(self, _mm256_cmp_ps::<_CMP_LT_OQ>(a, b))
    }

    #[inline(always)]
    fn select8(self, mask: __m256, a: __m256, b: __m256) -> __m256 {
        with!(self, _mm256_blendv_ps(b, a, mask))
    }

    #[inline(always)]
    fn bits8(self, mask: __m256) -> u32 {
        // The upper 24 bits are zero.
        with!(self, _mm256_movemask_ps(mask)) as u32
    }

    #[inline(always)]
    fn floor8(self, a: __m256) -> __m256 {
        with!(self, _mm256_floor_ps(a))
    }

    #[inline(always)]
    fn integers8(self, a: __m256) -> [i32; 8] {
        let mut out = [0; 8];
        // SAFETY: `self` exists, so the processor has AVX2; eight integers are written to an array of eight, and
        // need no alignment.
        unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), _mm256_cvttps_epi32(a)) };
        out
    }

    #[inline(always)]
    fn fours(self, low: &[f32; 4], high: &[f32; 4]) -> __m256 {
        // SAFETY: `self` exists, so the processor has AVX2; four floats are read from arrays of four, and need no
        // alignment.
        unsafe { _mm256_set_m128(_mm_loadu_ps(high.as_ptr()), _mm_loadu_ps(low.as_ptr())) }
    }

    #[inline(always)]
    fn splats(self, low: f32, high: f32) -> __m256 {
        with!(self, _mm256_set_m128(_mm_set1_ps(high), _mm_set1_ps(low)))
    }

    #[inline(always)]
    fn fourths(self, a: __m256) -> __m256 {
        with!(self, _mm256_permute_ps::<0xFF>(a))
    }

    type Lanes = Avx2;

    #[inline(always)]
    fn lanes(self) -> Avx2 {
        self
    }

    type Pair = Two<Avx2>;

    #[inline(always)]
    fn pair(self) -> Two<Avx2> {
        Two(self)
    }

    #[inline(always)]
    fn avx2(self) -> Option<Avx2> {
        Some(self)
    }
}

impl Lanes for Avx2 {
    type V = __m256d;
    const N: usize = 4;

    #[inline(always)]
    fn splat(self, v: f64) -> __m256d {
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe { _mm256_set1_pd(v) }
    }

    #[inline(always)]
    fn load(self, values: &[f64]) -> __m256d {
        let values: [f64; 4] = values.first_chunk().copied().unwrap_or([0.0; 4]);
        // SAFETY: `self` exists, so the processor has AVX2; the array has four values, and the load needs
        // no alignment.
        unsafe { _mm256_loadu_pd(values.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m256d) -> [f64; MOST] {
        let mut values = [0.0; MOST];
        // SAFETY: `self` exists, so the processor has AVX2; the array has room for eight values, and the
        // store needs no alignment.
        unsafe { _mm256_storeu_pd(values.as_mut_ptr(), v) };
        values
    }

    #[inline(always)]
    fn add(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe { _mm256_add_pd(a, b) }
    }

    #[inline(always)]
    fn sub(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe { _mm256_sub_pd(a, b) }
    }

    #[inline(always)]
    fn mul_add(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d {
        // SAFETY: `self` exists, so the processor has fused multiplication.
        unsafe { _mm256_fmadd_pd(a, b, c) }
    }

    #[inline(always)]
    fn or(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe { _mm256_or_pd(a, b) }
    }

    #[inline(always)]
    fn larger(self, a: __m256d, b: __m256d) -> __m256d {
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe {
            let sign = _mm256_set1_epi64x(i64::MIN);
            let a = _mm256_andnot_si256(sign, _mm256_castpd_si256(a));
            let b = _mm256_andnot_si256(sign, _mm256_castpd_si256(b));
            // Of the halves on their own, the upper ones are those of the larger magnitude.
            _mm256_castsi256_pd(_mm256_max_epu32(a, b))
        }
    }
}

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

impl Bytes for Avx2 {
    #[inline(always)]
    fn masks(self, group: &[u8; GROUP], delimiter: u8, quote: u8) -> Masks {
        let [a, b] = halves(group);
        // SAFETY: `self` exists, so the processor has AVX2.
        unsafe {
            let find = |x: __m256i, byte: u8| _mm256_cmpeq_epi8(x, _mm256_set1_epi8(byte as i8));
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
}
