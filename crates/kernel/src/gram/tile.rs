//! The inner loop of the Gram matrix: rows of doubles into tiles of sums that stay in registers.
//!
//! Every sum is one chain of fused multiply-adds in the order of the rows, and vectors run over columns. So the
//! sums are the same bits whatever the width of a vector, and without vectors.

/// A tile is at most so many columns wide.
const WIDE: usize = 8;
/// And half of it, for the last columns.
const HALF: usize = 4;

/// The distance of rows in a buffer that [`add`] takes: room for whole vectors behind the last column. More, where
/// rows a power of two apart would fall into the same places of the cache.
pub fn stride(width: usize) -> usize {
    let n = width.next_multiple_of(HALF);
    if n > 64 && n.is_multiple_of(32) { n + WIDE } else { n }
}

/// The distance of rows of the sums.
pub fn sums_stride(width: usize) -> usize {
    width.next_multiple_of(WIDE)
}

/// Adds to `sums` the products of each two of `width` columns over `rows` rows that lie `stride` apart in `values`, with
/// room for a whole vector behind the last one. The row for column `i` begins at `i * sums_stride(width)`; what stands below
/// the diagonal, and beyond the last column, has no meaning.
///
/// Over the rows of one call each sum is a chain of fused multiply-adds that begins with zero; its end is added.
pub fn add(values: &[f64], stride: usize, rows: usize, width: usize, sums: &mut [f64]) {
    if rows == 0 || width == 0 {
        return;
    }
    // What the tiles rely on.
    assert!(stride >= width);
    assert!(values.len() >= (rows - 1) * stride + width.next_multiple_of(HALF));
    assert!(sums.len() >= width * sums_stride(width));
    let panel = Panel { values, stride, rows, width };
    #[cfg(target_arch = "x86_64")]
    if let Some(v) = x86::Avx2::get() {
        return v.run(panel, sums);
    }
    panel.add(Portable, sums);
}

/// Rows, with enough values for whole vectors behind the last column of each.
#[derive(Clone, Copy)]
struct Panel<'a> {
    values: &'a [f64],
    stride: usize,
    rows: usize,
    width: usize,
}

/// Four doubles side by side.
trait Vector: Copy {
    type Four: Copy;
    fn zero(self) -> Self::Four;
    /// # Safety
    /// Four doubles can be read from `from`.
    unsafe fn load(self, from: *const f64) -> Self::Four;
    /// # Safety
    /// Four doubles can be written to `to`.
    unsafe fn store(self, to: *mut f64, v: Self::Four);
    fn splat(self, x: f64) -> Self::Four;
    fn add(self, a: Self::Four, b: Self::Four) -> Self::Four;
    /// `a * b + c`, rounded once.
    fn fma(self, a: Self::Four, b: Self::Four, c: Self::Four) -> Self::Four;
}

#[derive(Clone, Copy)]
struct Portable;

impl Vector for Portable {
    type Four = [f64; 4];

    #[inline(always)]
    fn zero(self) -> [f64; 4] {
        [0.0; 4]
    }

    #[inline(always)]
    unsafe fn load(self, from: *const f64) -> [f64; 4] {
        // SAFETY: as the caller promises; an array of doubles is aligned as a double is.
        unsafe { *from.cast() }
    }

    #[inline(always)]
    unsafe fn store(self, to: *mut f64, v: [f64; 4]) {
        // SAFETY: as the caller promises; an array of doubles is aligned as a double is.
        unsafe { *to.cast() = v }
    }

    #[inline(always)]
    fn splat(self, x: f64) -> [f64; 4] {
        [x; 4]
    }

    #[inline(always)]
    fn add(self, a: [f64; 4], b: [f64; 4]) -> [f64; 4] {
        [0, 1, 2, 3].map(|i| a[i] + b[i])
    }

    #[inline(always)]
    fn fma(self, a: [f64; 4], b: [f64; 4], c: [f64; 4]) -> [f64; 4] {
        [0, 1, 2, 3].map(|i| a[i].mul_add(b[i], c[i]))
    }
}

impl Panel<'_> {
    /// Goes over the tiles on and above the diagonal.
    #[inline(always)]
    fn add<V: Vector>(self, v: V, sums: &mut [f64]) {
        let mut j = 0;
        while j < self.width {
            let wide = self.width - j > HALF;
            let end = self.width.min(j + if wide { WIDE } else { HALF });
            let mut i = 0;
            while i < end {
                i += if wide {
                    match end - i {
                        1 => self.tile::<V, 1, 2>(v, i, j, sums),
                        2 => self.tile::<V, 2, 2>(v, i, j, sums),
                        3 => self.tile::<V, 3, 2>(v, i, j, sums),
                        // Two tiles of four use the registers better than six and two, or five and three.
                        4 | 7 | 8 => self.tile::<V, 4, 2>(v, i, j, sums),
                        5 => self.tile::<V, 5, 2>(v, i, j, sums),
                        _ => self.tile::<V, 6, 2>(v, i, j, sums),
                    }
                } else {
                    match end - i {
                        1 => self.tile::<V, 1, 1>(v, i, j, sums),
                        2 => self.tile::<V, 2, 1>(v, i, j, sums),
                        3 => self.tile::<V, 3, 1>(v, i, j, sums),
                        4 => self.tile::<V, 4, 1>(v, i, j, sums),
                        5 => self.tile::<V, 5, 1>(v, i, j, sums),
                        6 => self.tile::<V, 6, 1>(v, i, j, sums),
                        7 => self.tile::<V, 7, 1>(v, i, j, sums),
                        8 => self.tile::<V, 8, 1>(v, i, j, sums),
                        9 => self.tile::<V, 9, 1>(v, i, j, sums),
                        _ => self.tile::<V, 10, 1>(v, i, j, sums),
                    }
                };
            }
            j = end;
        }
    }

    /// Columns `i..i + M` by the `4 * N` columns from `j` on. Returns `M`.
    #[inline(always)]
    fn tile<V: Vector, const M: usize, const N: usize>(
        self,
        v: V,
        i: usize,
        j: usize,
        sums: &mut [f64],
    ) -> usize {
        let mut totals = [[v.zero(); N]; M];
        // SAFETY: `add` has checked that each of `rows` rows, `stride` apart, is followed by values up to a multiple
        // of `HALF` columns: `i + M <= width`, and `j + 4 * N` is at most that multiple. The sums have `width` rows
        // of a multiple of `WIDE`, and `j + 4 * N` is at most that.
        unsafe {
            let mut row = self.values.as_ptr();
            for k in 0..self.rows {
                let mut right = [v.zero(); N];
                for (n, r) in right.iter_mut().enumerate() {
                    *r = v.load(row.add(j + 4 * n));
                }
                for (m, totals) in totals.iter_mut().enumerate() {
                    let left = v.splat(*row.add(i + m));
                    for (t, r) in totals.iter_mut().zip(&right) {
                        *t = v.fma(left, *r, *t);
                    }
                }
                if k + 1 < self.rows {
                    row = row.add(self.stride);
                }
            }
            for (m, totals) in totals.iter().enumerate() {
                for (n, t) in totals.iter().enumerate() {
                    let at = sums.as_mut_ptr().add((i + m) * sums_stride(self.width) + j + 4 * n);
                    v.store(at, v.add(v.load(at), *t));
                }
            }
        }
        M
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{Panel, Vector};
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

        /// [`Panel::add`], compiled for these instructions.
        pub fn run(self, panel: Panel<'_>, sums: &mut [f64]) {
            #[target_feature(enable = "avx2,fma")]
            fn run(panel: Panel<'_>, vector: Avx2, sums: &mut [f64]) {
                panel.add(vector, sums);
            }
            // SAFETY: `self` exists, so the processor has the features.
            unsafe { run(panel, self, sums) }
        }
    }

    // SAFETY, of all blocks below: `self` exists, so the processor has AVX2 and FMA; memory is as the caller promises,
    // and needs no alignment.
    impl Vector for Avx2 {
        type Four = __m256d;

        #[inline(always)]
        fn zero(self) -> __m256d {
            // SAFETY: see above.
            unsafe { _mm256_setzero_pd() }
        }

        #[inline(always)]
        unsafe fn load(self, from: *const f64) -> __m256d {
            // SAFETY: see above.
            unsafe { _mm256_loadu_pd(from) }
        }

        #[inline(always)]
        unsafe fn store(self, to: *mut f64, v: __m256d) {
            // SAFETY: see above.
            unsafe { _mm256_storeu_pd(to, v) }
        }

        #[inline(always)]
        fn splat(self, x: f64) -> __m256d {
            // SAFETY: see above.
            unsafe { _mm256_set1_pd(x) }
        }

        #[inline(always)]
        fn add(self, a: __m256d, b: __m256d) -> __m256d {
            // SAFETY: see above.
            unsafe { _mm256_add_pd(a, b) }
        }

        #[inline(always)]
        fn fma(self, a: __m256d, b: __m256d, c: __m256d) -> __m256d {
            // SAFETY: see above.
            unsafe { _mm256_fmadd_pd(a, b, c) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn every_path_is_a_chain_in_the_order_of_the_rows(
            width in 1usize..40,
            rows in 0usize..20,
            more in 0usize..3,
            seed in proptest::collection::vec(-1e3f64..1e3, 101),
        ) {
            let stride = stride(width) + more;
            let values: Vec<f64> = (0..rows * stride).map(|i| seed[i % 101] * (i as f64).sqrt()).collect();
            let lines = sums_stride(width);
            let start: Vec<f64> = (0..width * lines).map(|i| seed[i % 101]).collect();
            let (mut got, mut portable) = (start.clone(), start.clone());
            add(&values, stride, rows, width, &mut got);
            if rows > 0 {
                Panel { values: &values, stride, rows, width }.add(Portable, &mut portable);
            }
            for i in 0..width {
                for j in i..width {
                    let chain = (0..rows).fold(0.0f64, |s, r| {
                        values[r * stride + i].mul_add(values[r * stride + j], s)
                    });
                    let at = i * lines + j;
                    let want = if rows > 0 { start[at] + chain } else { start[at] };
                    prop_assert_eq!(got[at].to_bits(), want.to_bits());
                    prop_assert_eq!(portable[at].to_bits(), want.to_bits());
                }
            }
        }
    }

    #[test]
    fn wide_rows_are_not_a_power_of_two_apart() {
        assert_eq!([1, 8, 10, 64, 128, 510, 512].map(stride), [4, 8, 12, 64, 136, 520, 520]);
    }
}
