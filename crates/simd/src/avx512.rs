//! Vectors of 512 bits of x86-64, and those of 256 bits with what came with them: masks and twice as many registers.
//!
//! Whatever needs no wider vectors is AVX2, compiled for these instructions.

use crate::past::{AHEAD, LINE, TURN};
use crate::{Avx2, Bytes, GROUP, Lanes, MOST, Masks, Vector, Work};
use std::arch::x86_64::*;

/// AVX-512 (F, BW, DQ, VL) and all of [`Avx2`]. A value of it exists only where the processor has them.
#[derive(Debug, Clone, Copy)]
pub struct Avx512(Avx2);

impl Avx512 {
    /// The token, if the processor has it all.
    #[inline]
    pub fn get() -> Option<Avx512> {
        let has = is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512dq")
            && is_x86_feature_detected!("avx512vl");
        Avx2::get().filter(|_| has).map(Avx512)
    }

    /// Does `work`, compiled for these instructions.
    #[inline]
    pub fn run<W: Work>(self, work: W) -> W::Out {
        #[target_feature(
            enable = "avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi1,bmi2,lzcnt,popcnt,pclmulqdq"
        )]
        fn run<W: Work>(work: W, vector: Avx512) -> W::Out {
            work.run(vector)
        }
        // SAFETY: `self` exists, so the processor has the features.
        unsafe { run(work, self) }
    }

    /// Copies whole turns to where a line begins: see [`crate::copy_past_caches`].
    pub(crate) fn copy_past_caches(self, from: &[u8], to: &mut [u8], then: &[u8]) {
        #[target_feature(enable = "avx512f")]
        fn turns(from: &[[u8; TURN]], to: &mut [[u8; TURN]], then: &[[u8; TURN]]) {
            for (i, (from_turn, to)) in from.iter().zip(to).enumerate() {
                // Not what lies behind: it is of something else.
                let ahead = from.get(i + AHEAD).or_else(|| then.get(i + AHEAD - from.len()));
                for line in (0..TURN).step_by(LINE) {
                    if let Some(ahead) = ahead {
                        _mm_prefetch::<_MM_HINT_NTA>(ahead.as_ptr().wrapping_add(line).cast());
                    }
                    let (from, to) = (from_turn.as_ptr().wrapping_add(line), to.as_mut_ptr());
                    // SAFETY: a line of both turns; the load needs no alignment, and that of the target was looked at.
                    unsafe {
                        _mm512_stream_si512(to.add(line).cast(), _mm512_loadu_si512(from.cast()));
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
        // SAFETY: `self` exists, so the processor has AVX-512.
        unsafe { turns(from, to, then) }
    }
}

/// One intrinsic that looks at nothing but its operands.
macro_rules! with {
    ($self:ident, $e:expr) => {{
        let Avx512(_) = $self;
        // SAFETY: `self` exists, so the processor has AVX-512.
        unsafe { $e }
    }};
}

/// Operations as [`Avx2`] does them.
macro_rules! as_avx2 {
    ($of:ident: $($name:ident($($a:ident: $t:ty),*) $(-> $r:ty)?;)*) => {
        $(
            #[inline(always)]
            fn $name(self, $($a: $t),*) $(-> $r)? {
                $of::$name(self.0 $(, $a)*)
            }
        )*
    };
}

impl Vector for Avx512 {
    type Four = __m256d;
    type Eight = __m256;
    type Lanes = Avx512;
    type Pair = Avx512;

    as_avx2! { Vector:
        splat(x: f64) -> __m256d;
        load(from: &[f64; 4]) -> __m256d;
        store(v: __m256d, to: &mut [f64; 4]);
        add(a: __m256d, b: __m256d) -> __m256d;
        sub(a: __m256d, b: __m256d) -> __m256d;
        mul(a: __m256d, b: __m256d) -> __m256d;
        fma(a: __m256d, b: __m256d, c: __m256d) -> __m256d;
        about(a: __m256d, b: __m256d, c: __m256d) -> __m256d;
        min(a: __m256d, b: __m256d) -> __m256d;
        max(a: __m256d, b: __m256d) -> __m256d;
        less(a: __m256d, b: __m256d) -> __m256d;
        select(mask: __m256d, a: __m256d, b: __m256d) -> __m256d;
        bits(mask: __m256d) -> u32;
        floor(a: __m256d) -> __m256d;
        integers(a: __m256d) -> [i32; 4];
        splat8(x: f32) -> __m256;
        load8(from: &[f32; 8]) -> __m256;
        store8(v: __m256, to: &mut [f32; 8]);
        narrow(low: __m256d, high: __m256d) -> __m256;
        add8(a: __m256, b: __m256) -> __m256;
        mul8(a: __m256, b: __m256) -> __m256;
        sub8(a: __m256, b: __m256) -> __m256;
        about8(a: __m256, b: __m256, c: __m256) -> __m256;
        min8(a: __m256, b: __m256) -> __m256;
        max8(a: __m256, b: __m256) -> __m256;
        less8(a: __m256, b: __m256) -> __m256;
        select8(mask: __m256, a: __m256, b: __m256) -> __m256;
        bits8(mask: __m256) -> u32;
        floor8(a: __m256) -> __m256;
        integers8(a: __m256) -> [i32; 8];
        fours(low: &[f32; 4], high: &[f32; 4]) -> __m256;
        splats(low: f32, high: f32) -> __m256;
        fourths(a: __m256) -> __m256;
    }

    #[inline(always)]
    fn lanes(self) -> Avx512 {
        self
    }

    #[inline(always)]
    fn pair(self) -> Avx512 {
        self
    }

    #[inline(always)]
    fn avx2(self) -> Option<Avx2> {
        Some(self.0)
    }

    #[inline(always)]
    fn avx512(self) -> Option<Avx512> {
        Some(self)
    }
}

impl Lanes for Avx512 {
    type V = __m512d;
    const N: usize = 8;

    #[inline(always)]
    fn splat(self, v: f64) -> __m512d {
        with!(self, _mm512_set1_pd(v))
    }

    #[inline(always)]
    fn load(self, values: &[f64]) -> __m512d {
        let values: [f64; 8] = values.first_chunk().copied().unwrap_or([0.0; 8]);
        // SAFETY: `self` exists, so the processor has AVX-512; the array has eight values, and the load needs no
        // alignment.
        unsafe { _mm512_loadu_pd(values.as_ptr()) }
    }

    #[inline(always)]
    fn store(self, v: __m512d) -> [f64; MOST] {
        let mut values = [0.0; MOST];
        // SAFETY: `self` exists, so the processor has AVX-512; the array has room for eight values, and the store
        // needs no alignment.
        unsafe { _mm512_storeu_pd(values.as_mut_ptr(), v) };
        values
    }

    #[inline(always)]
    fn add(self, a: __m512d, b: __m512d) -> __m512d {
        with!(self, _mm512_add_pd(a, b))
    }

    #[inline(always)]
    fn sub(self, a: __m512d, b: __m512d) -> __m512d {
        with!(self, _mm512_sub_pd(a, b))
    }

    #[inline(always)]
    fn mul_add(self, a: __m512d, b: __m512d, c: __m512d) -> __m512d {
        with!(self, _mm512_fmadd_pd(a, b, c))
    }

    #[inline(always)]
    fn or(self, a: __m512d, b: __m512d) -> __m512d {
        with!(self, _mm512_or_pd(a, b))
    }

    #[inline(always)]
    fn larger(self, a: __m512d, b: __m512d) -> __m512d {
        with!(self, {
            let magnitude = _mm512_set1_epi64(i64::MAX);
            let a = _mm512_and_si512(_mm512_castpd_si512(a), magnitude);
            let b = _mm512_and_si512(_mm512_castpd_si512(b), magnitude);
            _mm512_castsi512_pd(_mm512_max_epu64(a, b))
        })
    }
}

/// A group, in one vector.
#[inline(always)]
fn load(vector: Avx512, group: &[u8; GROUP]) -> __m512i {
    let Avx512(_) = vector;
    // SAFETY: `vector` exists, so the processor has AVX-512; 64 bytes are read from an array of 64, without alignment.
    unsafe { _mm512_loadu_si512(group.as_ptr().cast()) }
}

impl Bytes for Avx512 {
    #[inline(always)]
    fn masks(self, group: &[u8; GROUP], delimiter: u8, quote: u8) -> Masks {
        let newlines = self.equal(group, b'\n');
        Masks {
            ends: newlines | self.equal(group, delimiter),
            newlines,
            quoted: self.equal(group, quote) != 0,
        }
    }

    #[inline(always)]
    fn equal(self, group: &[u8; GROUP], byte: u8) -> u64 {
        let group = load(self, group);
        with!(self, _mm512_cmpeq_epi8_mask(group, _mm512_set1_epi8(byte as i8)))
    }

    as_avx2! { Bytes:
        parity(bits: u64) -> u64;
        others(window: &[u8; 16], len: usize) -> u32;
        digits(window: &[u8; 16], len: usize, point: usize) -> u64;
    }
}
