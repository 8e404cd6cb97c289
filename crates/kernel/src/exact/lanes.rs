//! Vectors of doubles, for the loops of exact sums.
//!
//! What is computed is defined by [`Scalar`]. All results of these loops are exact, so that it does not matter
//! how many lanes there are and whether a product is rounded before it is added.

/// A way to compute with several doubles at once.
pub trait Lanes: Copy {
    /// Some doubles.
    type V: Copy;
    /// How many; at most [`MOST`].
    const N: usize;

    /// `v` in all lanes.
    fn splat(self, v: f64) -> Self::V;

    /// The first `N` values, of which there must be so many: zeros if not.
    fn load(self, values: &[f64]) -> Self::V;

    /// The values, and zeros behind them.
    fn store(self, v: Self::V) -> [f64; MOST];

    /// `a + b`.
    fn add(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a - b`.
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;

    /// `a * b + c`, where product and sum are exact.
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;

    /// All bits of both.
    fn or(self, a: Self::V, b: Self::V) -> Self::V;

    /// The larger magnitude, up to the lower half of its bits.
    fn larger(self, a: Self::V, b: Self::V) -> Self::V;
}

/// Most lanes.
pub const MOST: usize = 8;

/// Something to be done with [`Lanes`]. Implement with `#[inline(always)]`, so that it is compiled for the
/// processor's instructions.
pub trait Work {
    /// What comes out.
    type Out;

    /// Does it.
    fn run<L: Lanes>(self, lanes: L) -> Self::Out;
}

/// Does `work` with the best lanes there are.
#[inline]
pub fn dispatch<W: Work>(work: W) -> W::Out {
    #[cfg(target_arch = "x86_64")]
    if let Some(lanes) = x86::Avx2::get() {
        return lanes.dispatch(work);
    }
    work.run(Scalar)
}

/// Arrays, of which compilers make what vectors there always are.
#[derive(Debug, Clone, Copy)]
pub struct Scalar;

impl Scalar {
    #[inline(always)]
    fn each(a: [f64; 4], b: [f64; 4], f: impl Fn(f64, f64) -> f64) -> [f64; 4] {
        [f(a[0], b[0]), f(a[1], b[1]), f(a[2], b[2]), f(a[3], b[3])]
    }
}

impl Lanes for Scalar {
    type V = [f64; 4];
    const N: usize = 4;

    #[inline(always)]
    fn splat(self, v: f64) -> [f64; 4] {
        [v; 4]
    }

    #[inline(always)]
    fn load(self, values: &[f64]) -> [f64; 4] {
        values.first_chunk().copied().unwrap_or_default()
    }

    #[inline(always)]
    fn store(self, v: [f64; 4]) -> [f64; MOST] {
        [v[0], v[1], v[2], v[3], 0.0, 0.0, 0.0, 0.0]
    }

    #[inline(always)]
    fn add(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        Scalar::each(a, b, |a, b| a + b)
    }

    #[inline(always)]
    fn sub(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        Scalar::each(a, b, |a, b| a - b)
    }

    #[inline(always)]
    fn mul_add(self, a: [f64; 4], b: [f64; 4], c: [f64; 4]) -> [f64; 4] {
        self.add(Scalar::each(a, b, |a, b| a * b), c)
    }

    #[inline(always)]
    fn or(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        Scalar::each(a, b, |a, b| f64::from_bits(a.to_bits() | b.to_bits()))
    }

    #[inline(always)]
    fn larger(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        let bits = |v: f64| v.to_bits() & (u64::MAX >> 1);
        Scalar::each(a, b, |a, b| f64::from_bits(bits(a).max(bits(b))))
    }
}

/// Twice as many lanes.
#[derive(Debug, Clone, Copy)]
pub struct Two<L>(pub L);

impl<L: Lanes> Lanes for Two<L> {
    type V = (L::V, L::V);
    const N: usize = 2 * L::N;

    #[inline(always)]
    fn splat(self, v: f64) -> Self::V {
        (self.0.splat(v), self.0.splat(v))
    }

    #[inline(always)]
    fn load(self, values: &[f64]) -> Self::V {
        (self.0.load(values), self.0.load(values.get(L::N..).unwrap_or(&[])))
    }

    #[inline(always)]
    fn store(self, v: Self::V) -> [f64; MOST] {
        let (mut all, high) = (self.0.store(v.0), self.0.store(v.1));
        all[L::N..2 * L::N].copy_from_slice(&high[..L::N]);
        all
    }

    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        (self.0.add(a.0, b.0), self.0.add(a.1, b.1))
    }

    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        (self.0.sub(a.0, b.0), self.0.sub(a.1, b.1))
    }

    #[inline(always)]
    fn mul_add(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        (self.0.mul_add(a.0, b.0, c.0), self.0.mul_add(a.1, b.1, c.1))
    }

    #[inline(always)]
    fn or(self, a: Self::V, b: Self::V) -> Self::V {
        (self.0.or(a.0, b.0), self.0.or(a.1, b.1))
    }

    #[inline(always)]
    fn larger(self, a: Self::V, b: Self::V) -> Self::V {
        (self.0.larger(a.0, b.0), self.0.larger(a.1, b.1))
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Lanes, MOST, Work};
    use std::arch::x86_64::*;

    /// AVX2 and fused multiplication. A value of it exists only where the processor has them.
    #[derive(Debug, Clone, Copy)]
    pub struct Avx2(());

    impl Avx2 {
        /// The token, if the processor has it all.
        #[inline]
        pub fn get() -> Option<Avx2> {
            let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
            has.then_some(Avx2(()))
        }

        /// Does `work`, compiled for these instructions.
        #[inline]
        pub fn dispatch<W: Work>(self, work: W) -> W::Out {
            #[target_feature(enable = "avx2,fma")]
            fn run<W: Work>(work: W, lanes: Avx2) -> W::Out {
                work.run(lanes)
            }
            // SAFETY: `self` exists, so the processor has the features.
            unsafe { run(work, self) }
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
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::x86::Avx2;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn vectors_compute_what_scalars_do(a: [f64; 4], b: [f64; 4], small: [i32; 4]) {
            let Some(l) = Avx2::get() else { return Ok(()) };
            let (x, y) = (l.load(&a), l.load(&b));
            let bits = |v: [f64; MOST]| v.map(|v| if v.is_nan() { u64::MAX } else { v.to_bits() });
            let want = |v| bits(Scalar.store(v));
            prop_assert_eq!(bits(l.store(l.add(x, y))), want(Scalar.add(a, b)));
            prop_assert_eq!(bits(l.store(l.sub(x, y))), want(Scalar.sub(a, b)));
            prop_assert_eq!(bits(l.store(l.or(x, y))), want(Scalar.or(a, b)));
            let upper = |v: [f64; MOST]| v.map(|v| v.to_bits() >> 32);
            let larger = Scalar.store(Scalar.larger(a, b));
            prop_assert_eq!(upper(l.store(l.larger(x, y))), upper(larger));
            let small = small.map(|v| f64::from(v >> 8));
            let s = l.load(&small);
            prop_assert_eq!(bits(l.store(l.mul_add(s, s, s))), want(Scalar.mul_add(small, small, small)));
            let both = [a, b].concat();
            let two = Two(l).load(&both);
            prop_assert_eq!(bits(Two(l).store(two)).to_vec(), both.iter().map(|v| bits([*v; MOST])[0]).collect::<Vec<_>>());
            let sum = Two(l).store(Two(l).add(two, two));
            prop_assert_eq!(bits(sum)[..4].to_vec(), want(Scalar.add(a, a))[..4].to_vec());
            prop_assert_eq!(bits(sum)[4..].to_vec(), want(Scalar.add(b, b))[..4].to_vec());
        }
    }
}
