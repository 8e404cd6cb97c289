//! Vectors of four doubles or eight floats, with the processor's instructions where it has them.
//!
//! Work is written once, for any [`Vector`], and [`dispatch`] runs it with the best there is. Every operation is
//! that of IEEE 754 on each place, so the results are the same bits with and without vectors. Loops of such work
//! are counted loops, and there are no closures in it: neither those nor iterators are always inlined into functions for
//! certain processors.

/// A way to compute with four doubles or eight floats at a time.
pub trait Vector: Copy {
    /// Four doubles, or four masks.
    type Four: Copy;

    /// All four are `x`.
    fn splat(self, x: f64) -> Self::Four;
    /// From memory.
    fn load(self, from: &[f64; 4]) -> Self::Four;
    /// To memory.
    fn store(self, v: Self::Four, to: &mut [f64; 4]);
    /// `a + b`
    fn add(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a - b`
    fn sub(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a * b`
    fn mul(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Four, b: Self::Four, c: Self::Four) -> Self::Four;
    /// `a * b + c`, rounded once or twice, whichever is fast: for estimates.
    fn about(self, a: Self::Four, b: Self::Four, c: Self::Four) -> Self::Four;
    /// `a` where it is less than `b`, else `b`.
    fn min(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a` where it is greater than `b`, else `b`.
    fn max(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// A mask of where `a` is less than `b`.
    fn less(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a` where the mask is set, else `b`.
    fn select(self, mask: Self::Four, a: Self::Four, b: Self::Four) -> Self::Four;
    /// Bit `i` for place `i` of a mask.
    fn bits(self, mask: Self::Four) -> u32;
    /// The largest integers that are not greater; all lie within those of 32 bits.
    fn floor(self, a: Self::Four) -> Self::Four;
    /// Integers within those of 32 bits.
    fn integers(self, a: Self::Four) -> [i32; 4];

    /// Eight floats, or eight masks. What is done with them is as with doubles.
    type Eight: Copy;

    /// All eight are `x`.
    fn splat8(self, x: f32) -> Self::Eight;
    /// From memory.
    fn load8(self, from: &[f32; 8]) -> Self::Eight;
    /// To memory.
    fn store8(self, v: Self::Eight, to: &mut [f32; 8]);
    /// Eight doubles, rounded.
    fn narrow(self, low: Self::Four, high: Self::Four) -> Self::Eight;
    /// `a + b`
    fn add8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a * b`
    fn mul8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a - b`
    fn sub8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a * b + c`, rounded once or twice, whichever is fast: for estimates.
    fn about8(self, a: Self::Eight, b: Self::Eight, c: Self::Eight) -> Self::Eight;
    /// `a` where it is less than `b`, else `b`.
    fn min8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a` where it is greater than `b`, else `b`.
    fn max8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// A mask of where `a` is less than `b`.
    fn less8(self, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// `a` where the mask is set, else `b`.
    fn select8(self, mask: Self::Eight, a: Self::Eight, b: Self::Eight) -> Self::Eight;
    /// Bit `i` for place `i` of a mask.
    fn bits8(self, mask: Self::Eight) -> u32;
}

/// Something to be done with a [`Vector`]. Implement with `#[inline(always)]`, so that it is compiled for the
/// processor's instructions.
pub trait Work {
    /// What comes out.
    type Out;

    /// Does it.
    fn run<V: Vector>(self, v: V) -> Self::Out;
}

/// Does `work` with the best vectors there are.
#[inline]
pub fn dispatch<W: Work>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    if let Some(v) = x86::Avx2::get() {
        return v.dispatch(work);
    }
    work.run(Portable)
}

/// Arrays, of which the compiler makes what vectors it can. What the others do is defined here.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

/// All bits: a mask that is set.
const SET: f64 = f64::from_bits(u64::MAX);

const SET8: f32 = f32::from_bits(u32::MAX);

#[inline(always)]
fn each8(f: impl Fn(usize) -> f32) -> [f32; 8] {
    [f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7)]
}

#[inline(always)]
fn each(f: impl Fn(usize) -> f64) -> [f64; 4] {
    [f(0), f(1), f(2), f(3)]
}

impl Vector for Portable {
    type Four = [f64; 4];

    #[inline(always)]
    fn splat(self, x: f64) -> [f64; 4] {
        [x; 4]
    }

    #[inline(always)]
    fn load(self, from: &[f64; 4]) -> [f64; 4] {
        *from
    }

    #[inline(always)]
    fn store(self, v: [f64; 4], to: &mut [f64; 4]) {
        *to = v;
    }

    #[inline(always)]
    fn add(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn sub(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn mul(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn fma(self, a: [f64; 4], b: [f64; 4], c: [f64; 4]) -> [f64; 4] {
        each(|i| a[i].mul_add(b[i], c[i]))
    }

    #[inline(always)]
    fn about(self, a: [f64; 4], b: [f64; 4], c: [f64; 4]) -> [f64; 4] {
        if cfg!(target_arch = "aarch64") {
            return self.fma(a, b, c);
        }
        each(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn min(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn less(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| if a[i] < b[i] { SET } else { 0.0 })
    }

    #[inline(always)]
    fn select(self, mask: [f64; 4], a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        each(|i| if mask[i].to_bits() >> 63 != 0 { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn bits(self, mask: [f64; 4]) -> u32 {
        (0..4).fold(0, |m, i| m | ((mask[i].to_bits() >> 63) as u32) << i)
    }

    #[inline(always)]
    fn floor(self, a: [f64; 4]) -> [f64; 4] {
        each(|i| a[i].floor())
    }

    #[inline(always)]
    fn integers(self, a: [f64; 4]) -> [i32; 4] {
        [a[0] as i32, a[1] as i32, a[2] as i32, a[3] as i32]
    }

    type Eight = [f32; 8];

    #[inline(always)]
    fn splat8(self, x: f32) -> [f32; 8] {
        [x; 8]
    }

    #[inline(always)]
    fn load8(self, from: &[f32; 8]) -> [f32; 8] {
        *from
    }

    #[inline(always)]
    fn store8(self, v: [f32; 8], to: &mut [f32; 8]) {
        *to = v;
    }

    #[inline(always)]
    fn narrow(self, low: [f64; 4], high: [f64; 4]) -> [f32; 8] {
        each8(|i| if i < 4 { low[i] as f32 } else { high[i - 4] as f32 })
    }

    #[inline(always)]
    fn add8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn mul8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| a[i] * b[i])
    }

    #[inline(always)]
    fn sub8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| a[i] - b[i])
    }

    #[inline(always)]
    fn about8(self, a: [f32; 8], b: [f32; 8], c: [f32; 8]) -> [f32; 8] {
        if cfg!(target_arch = "aarch64") {
            return each8(|i| a[i].mul_add(b[i], c[i]));
        }
        each8(|i| a[i] * b[i] + c[i])
    }

    #[inline(always)]
    fn min8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn max8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn less8(self, a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| if a[i] < b[i] { SET8 } else { 0.0 })
    }

    #[inline(always)]
    fn select8(self, mask: [f32; 8], a: [f32; 8], b: [f32; 8]) -> [f32; 8] {
        each8(|i| if mask[i].to_bits() >> 31 != 0 { a[i] } else { b[i] })
    }

    #[inline(always)]
    fn bits8(self, mask: [f32; 8]) -> u32 {
        (0..8).fold(0, |m, i| m | (mask[i].to_bits() >> 31) << i)
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Vector, Work};
    use std::arch::x86_64::*;

    /// AVX2 and fused multiply-add. A value of it exists only where the processor has both.
    #[derive(Debug, Clone, Copy)]
    pub struct Avx2(());

    impl Avx2 {
        /// The token, if the processor has them.
        #[inline]
        pub fn get() -> Option<Avx2> {
            let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            has.then_some(Avx2(()))
        }

        /// Does `work`, compiled for these instructions.
        #[inline]
        pub fn dispatch<W: Work>(self, work: W) -> W::Out {
            #[target_feature(enable = "avx2,fma")]
            fn run<W: Work>(work: W, vector: Avx2) -> W::Out {
                work.run(vector)
            }
            // SAFETY: `self` exists, so the processor has the features.
            unsafe { run(work, self) }
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every operation, as bits.
    struct All([f64; 4], [f64; 4], [f64; 4]);

    impl Work for All {
        type Out = (Vec<[u64; 4]>, u32, Vec<[u32; 8]>, u32);

        #[inline(always)]
        fn run<V: Vector>(self, v: V) -> Self::Out {
            let (a, b, c) = (v.load(&self.0), v.load(&self.1), v.load(&self.2));
            let less = v.less(a, b);
            let all = [
                v.add(a, b),
                v.sub(a, b),
                v.mul(a, b),
                v.fma(a, b, c),
                v.min(a, b),
                v.max(a, b),
                v.select(less, a, c),
                v.splat(self.0[0]),
            ];
            let bits = |x: V::Four| {
                let mut out = [0.0; 4];
                v.store(x, &mut out);
                // Which NaN comes out of two is not the same everywhere.
                out.map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() })
            };
            // Floats of the doubles' sizes, and beyond their range.
            let (x, y) = (v.narrow(a, b), v.narrow(c, a));
            let less8 = v.less8(x, y);
            let all8 = [
                x,
                v.sub8(x, y),
                v.add8(x, y),
                v.mul8(x, y),
                v.min8(x, y),
                v.max8(x, y),
                v.select8(less8, x, y),
                v.splat8(self.0[0] as f32),
                v.load8(&[1.5; 8]),
            ];
            let bits8 = |x: V::Eight| {
                let mut out = [0.0; 8];
                v.store8(x, &mut out);
                out.map(|x| if x.is_nan() { f32::NAN.to_bits() } else { x.to_bits() })
            };
            (all.map(bits).to_vec(), v.bits(less), all8.map(bits8).to_vec(), v.bits8(less8))
        }
    }

    /// Integers of numbers in their range.
    struct Whole([f64; 4]);

    impl Work for Whole {
        type Out = ([f64; 4], [i32; 4]);

        #[inline(always)]
        fn run<V: Vector>(self, v: V) -> Self::Out {
            let floor = v.floor(v.load(&self.0));
            let mut out = [0.0; 4];
            v.store(floor, &mut out);
            (out, v.integers(floor))
        }
    }

    proptest! {
        #[test]
        fn integers_are_found(a in proptest::array::uniform4(-2e9..2e9)) {
            prop_assert_eq!(dispatch(Whole(a)), Whole(a).run(Portable));
            prop_assert_eq!(dispatch(Whole(a)).1, a.map(|a| a.floor() as i32));
        }

        #[test]
        fn vectors_compute_what_arrays_do(
            a in any::<[f64; 4]>(),
            b in any::<[f64; 4]>(),
            c in any::<[f64; 4]>(),
            same in 0usize..5,
        ) {
            let mut b = b;
            b[..same.min(4)].copy_from_slice(&a[..same.min(4)]);
            prop_assert_eq!(dispatch(All(a, b, c)), All(a, b, c).run(Portable));
        }
    }
}
