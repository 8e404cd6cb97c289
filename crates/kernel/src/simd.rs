//! Vectors of four doubles, with the processor's instructions where it has them.
//!
//! Work is written once, for any [`Vector`], and [`dispatch`] runs it with the best there is. Every operation is
//! that of IEEE 754 on each of the four, so the results are the same bits with and without vectors. Loops of such work
//! are counted loops: iterators are not always inlined into functions for certain processors.

/// A way to compute with four doubles at a time.
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Every operation, as bits.
    struct All([f64; 4], [f64; 4], [f64; 4]);

    impl Work for All {
        type Out = (Vec<[u64; 4]>, u32);

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
            (all.map(bits).to_vec(), v.bits(less))
        }
    }

    proptest! {
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
