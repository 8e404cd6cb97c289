//! The inner loop of the Gram matrix: rows of doubles into tiles of sums that stay in registers.
//!
//! Every sum is one chain of fused multiply-adds in the order of the rows, and vectors run over columns. So the
//! sums are the same bits whatever the width of a vector, and without vectors.

use stead_simd::{Vector, Work, dispatch};

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
    dispatch(Add { panel: Panel { values, stride, rows, width }, sums });
}

struct Add<'a> {
    panel: Panel<'a>,
    sums: &'a mut [f64],
}

impl Work for Add<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        self.panel.add(v, self.sums);
    }
}

/// Rows, with enough values for whole vectors behind the last column of each.
#[derive(Clone, Copy)]
struct Panel<'a> {
    values: &'a [f64],
    stride: usize,
    rows: usize,
    width: usize,
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
    // Counted loops: iterators are not always inlined into functions for certain processors.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn tile<V: Vector, const M: usize, const N: usize>(
        self,
        v: V,
        i: usize,
        j: usize,
        sums: &mut [f64],
    ) -> usize {
        let mut totals = [[v.splat(0.0); N]; M];
        // SAFETY: `add` has checked that each of `rows` rows, `stride` apart, is followed by values up to a multiple
        // of `HALF` columns: `i + M <= width`, and `j + 4 * N` is at most that multiple. The sums have `width` rows
        // of a multiple of `WIDE`, and `j + 4 * N` is at most that. Arrays of doubles are aligned as doubles are.
        unsafe {
            let mut row = self.values.as_ptr();
            for k in 0..self.rows {
                let mut right = [v.splat(0.0); N];
                for n in 0..N {
                    right[n] = v.load(&*row.add(j + 4 * n).cast());
                }
                for m in 0..M {
                    let left = v.splat(*row.add(i + m));
                    for n in 0..N {
                        totals[m][n] = v.fma(left, right[n], totals[m][n]);
                    }
                }
                if k + 1 < self.rows {
                    row = row.add(self.stride);
                }
            }
            for m in 0..M {
                for n in 0..N {
                    let at = sums.as_mut_ptr().add((i + m) * sums_stride(self.width) + j + 4 * n);
                    let at = &mut *at.cast();
                    v.store(v.add(v.load(at), totals[m][n]), at);
                }
            }
        }
        M
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_simd::Portable;

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
