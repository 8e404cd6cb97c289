//! Exact sums of the products of each two of some columns.
//!
//! The columns of a chunk of rows are cut into pieces of few bits, as in [`super::pieces`], but each of them once for all
//! of its products: with `x = a + b + c` and `y = d + e` the sum of `x y` is that of `ad`, `ae + bd`, `be + cd` and `ce`,
//! where a product of two pieces has so few bits that a lane's worth of them adds up exactly in double arithmetic. That is
//! a product of matrices with one row a piece, in fused multiply-adds at their full rate (K. Ozaki, T. Ogita, S. Oishi,
//! S. M. Rump, "Error-free transformations of matrix multiplication by using fast routines of matrix multiplication and
//! its applications", Numer. Algorithms 59(1), 2012). The lanes of a chunk are then integers of 53 bits, which are added
//! up as such; a handful of them a pair goes to the limbs.
//!
//! Columns whose exponents lie too far apart in a chunk have no such pieces: their products are added one by one.

use super::{ExactSum, SPECIAL, pieces};
use stead_simd::{Vector, Work, dispatch};

/// Rows that are handled at once: 128 for each of four lanes.
pub(crate) const ROWS: usize = 512;
/// Bits of the first piece: 128 products of two of them are at most 2^53.
const FIRST_BITS: i32 = 23;
/// Bits of each other piece, with its sign: what is left is at most half of the unit before it.
const BITS: i32 = 24;
/// Bits of the only piece: a lane then is taken in two turns at least, and 64 of its products with first pieces are at
/// most 2^53, and in four with another only piece, and so are 32 of those.
const ONLY_BITS: i32 = 24;
/// Most pieces of a column.
const MOST: usize = 4;
/// Values by which the number of pieces is chosen.
const PROBE: usize = 32;
/// The largest value lies between `2^-MOST_EXPONENT` and `2^MOST_EXPONENT`: then no product of pieces overflows or
/// underflows.
const MOST_EXPONENT: i32 = 400;
/// Vectors of a chunk are a multiple of so many: a tile of few pieces takes them in turn, for more additions at a time.
const TURNS: usize = 4;

/// Sums are added up as multiples of 2^27 units and what is left.
const HIGH_BITS: i32 = 27;

/// The products of fewer rows are added one by one.
const SHORT: usize = 8;

type Four = [f64; 4];

/// The columns of a chunk of rows in pieces. Its memory is used again: up to 16 KiB a column.
#[derive(Debug)]
pub(crate) struct Products {
    columns: Vec<Column>,
}

#[derive(Debug, Default)]
struct Column {
    /// Four rows of the first piece, of the second one, ..., then the next four rows. Longer than it has to be, with
    /// rubbish at its end.
    pieces: Vec<Four>,
    way: Way,
    /// The largest exponent field.
    field: u64,
    /// Pieces of the chunk before this one, of which this one has as many, if they are enough.
    pieces_before: usize,
}

#[derive(Debug, Default, Clone, Copy)]
enum Way {
    /// All values are zero.
    #[default]
    Zero,
    Pieces(Pieces),
    /// Not to be cut.
    Whole,
}

/// `count` pieces in `len` vectors. The first piece counts units of two to the power of `unit`.
#[derive(Debug, Clone, Copy)]
struct Pieces {
    count: usize,
    len: usize,
    unit: i32,
}

impl Products {
    /// For so many columns.
    pub(crate) fn new(columns: usize) -> Self {
        Products { columns: (0..columns).map(|_| Column::default()).collect() }
    }

    /// Adds the products of each two columns, of up to [`ROWS`] rows, to `sums`: the upper triangle, row by row. False,
    /// with nothing done, if a value is infinite, NaN or missing.
    pub(crate) fn add(&mut self, columns: &[&[f64]], sums: &mut [ExactSum]) -> bool {
        for (cut, values) in self.columns.iter_mut().zip(columns) {
            cut.field = pieces::exponent(values);
            if cut.field == SPECIAL {
                return false;
            }
        }
        for (cut, values) in self.columns.iter_mut().zip(columns) {
            cut.cut(values);
        }
        let mut sums = sums.iter_mut();
        for (i, (left, a)) in self.columns.iter().zip(columns).enumerate() {
            for ((right, b), sum) in self.columns[i..].iter().zip(&columns[i..]).zip(&mut sums) {
                match (left.way, right.way) {
                    (Way::Zero, _) | (_, Way::Zero) => {}
                    (Way::Whole, _) | (_, Way::Whole) => {
                        a.iter().zip(*b).for_each(|(x, y)| sum.add_product(*x, *y));
                    }
                    (Way::Pieces(a), Way::Pieces(b)) => {
                        let square = std::ptr::eq(left, right);
                        // It does not matter which is left.
                        let (a, b, left, right) = if a.count <= b.count {
                            (a, b, left, right)
                        } else {
                            (b, a, right, left)
                        };
                        let (left, right) = (&left.pieces[..a.len], &right.pieces[..b.len]);
                        let counts = (a.count, b.count);
                        let unit = a.unit + b.unit;
                        // A power of two within 2^(2 * 424).
                        let grid = f64::from_bits(((1023 + unit) as u64) << 52) * MAGIC;
                        let weights = dispatch(Tile { left, right, counts, square, grid });
                        for (k, w) in weights.iter().enumerate().filter(|(_, w)| **w != 0) {
                            let exponent = i64::from(unit - BITS * k as i32);
                            sum.add_scaled(*w < 0, w.unsigned_abs(), exponent);
                        }
                    }
                }
            }
        }
        true
    }
}

impl Column {
    fn cut(&mut self, values: &[f64]) {
        let top = self.field as i32 - 1022;
        self.way = Way::Whole;
        if self.field == 0 && values.iter().all(|v| *v == 0.0) {
            self.way = Way::Zero;
        }
        let rows = SHORT..=ROWS;
        if self.field == 0 || top.abs() > MOST_EXPONENT || !rows.contains(&values.len()) {
            return;
        }
        let vectors = values.len().div_ceil(4);
        let padded = vectors.next_multiple_of(TURNS);
        if self.pieces.len() < MOST * padded {
            self.pieces.resize(MOST * padded, [0.0; 4]);
        }
        let out = &mut self.pieces;
        let unit = |count: usize| top - if count == 1 { ONLY_BITS } else { FIRST_BITS };
        let probe = &values[..values.len().min(PROBE)];
        let Some(count) = (self.pieces_before.max(1)..=MOST).find(|n| {
            let known = *n == self.pieces_before;
            (known || cut(*n, probe, unit(*n), out)) && cut(*n, values, unit(*n), out)
        }) else {
            return;
        };
        self.pieces[count * vectors..count * padded].fill([0.0; 4]);
        self.way = Way::Pieces(Pieces { count, len: count * padded, unit: unit(count) });
        self.pieces_before = count;
    }
}

/// Cuts values into `count` pieces, the first of them in units of two to the power of `unit`; false if something is left.
fn cut(count: usize, values: &[f64], unit: i32, out: &mut [Four]) -> bool {
    match count {
        1 => cut_in::<1>(values, unit, out),
        2 => cut_in::<2>(values, unit, out),
        3 => cut_in::<3>(values, unit, out),
        _ => cut_in::<MOST>(values, unit, out),
    }
}

/// As [`cut`], in `P` pieces.
fn cut_in<const P: usize>(values: &[f64], unit: i32, out: &mut [Four]) -> bool {
    let grids: [f64; P] = std::array::from_fn(|k| {
        // 1.5 2^52 units: the exponent lies between 1075 - 400 - 24 - 3 * 24 and 1075 + 400.
        f64::from_bits(((1075 + unit - BITS * k as i32) as u64) << 52 | 1 << 51)
    });
    dispatch(Cut { values, grids, out: out.as_chunks_mut::<P>().0 })
}

struct Cut<'a, const P: usize> {
    values: &'a [f64],
    grids: [f64; P],
    out: &'a mut [[Four; P]],
}

impl<const P: usize> Work for Cut<'_, P> {
    type Out = bool;

    // Counted loops: iterators are not always inlined into functions for certain processors.
    #[allow(clippy::needless_range_loop)]
    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        let mut grids = [v.splat(0.0); P];
        for k in 0..P {
            grids[k] = v.splat(self.grids[k]);
        }
        let (whole, rest) = self.values.as_chunks::<4>();
        let mut last = [0.0; 4];
        last[..rest.len()].copy_from_slice(rest);
        let (mut least, mut most) = (v.splat(0.0), v.splat(0.0));
        let n = self.values.len().div_ceil(4).min(self.out.len());
        for i in 0..n {
            let mut rest = v.load(if i < whole.len() { &whole[i] } else { &last });
            for k in 0..P {
                let piece = v.sub(v.add(rest, grids[k]), grids[k]);
                v.store(piece, &mut self.out[i][k]);
                rest = v.sub(rest, piece);
            }
            least = v.min(least, rest);
            most = v.max(most, rest);
        }
        v.bits(v.less(least, most)) == 0
    }
}

/// The sums of the products of pieces of two columns.
struct Tile<'a> {
    left: &'a [Four],
    right: &'a [Four],
    /// Of pieces on the left, which are no more than those on the right.
    counts: (usize, usize),
    /// Both are the same column.
    square: bool,
    /// `1.5 2^52 2^27` units of the products of the first pieces.
    grid: f64,
}

/// For each sum of the numbers of two pieces, their products in units of theirs, of at most 2^57.
type Weights = [i64; 2 * MOST - 1];

impl Work for Tile<'_> {
    type Out = Weights;

    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> Weights {
        let Tile { left: a, right: b, counts, square, grid } = self;
        match (square, counts) {
            (true, (1, _)) => tile::<V, 1, 1, 0, 1, 4, true>(v, a, b, grid),
            (true, (2, _)) => tile::<V, 2, 2, 0, 2, 2, true>(v, a, b, grid),
            (true, (3, _)) => tile::<V, 3, 3, 0, 3, 1, true>(v, a, b, grid),
            (true, _) => tile::<V, 4, 4, 0, 4, 1, true>(v, a, b, grid),
            (_, (1, 1)) => tile::<V, 1, 1, 0, 1, 4, false>(v, a, b, grid),
            (_, (1, 2)) => tile::<V, 1, 2, 0, 1, 4, false>(v, a, b, grid),
            (_, (1, 3)) => tile::<V, 1, 3, 0, 1, 2, false>(v, a, b, grid),
            (_, (1, 4)) => tile::<V, 1, 4, 0, 1, 2, false>(v, a, b, grid),
            (_, (2, 2)) => tile::<V, 2, 2, 0, 2, 2, false>(v, a, b, grid),
            (_, (2, 3)) => tile::<V, 2, 3, 0, 2, 1, false>(v, a, b, grid),
            (_, (2, 4)) => tile::<V, 2, 4, 0, 2, 1, false>(v, a, b, grid),
            (_, (3, 3)) => tile::<V, 3, 3, 0, 3, 1, false>(v, a, b, grid),
            (_, (3, 4)) => tile::<V, 3, 4, 0, 3, 1, false>(v, a, b, grid),
            // Sixteen sums leave no register for the pieces.
            _ => {
                let low = tile::<V, 4, 4, 0, 2, 1, false>(v, a, b, grid);
                let high = tile::<V, 4, 4, 2, 4, 1, false>(v, a, b, grid);
                std::array::from_fn(|k| low[k] + high[k])
            }
        }
    }
}

/// `1.5 2^52 2^27`
const MAGIC: f64 = (3u64 << 51) as f64 * (1u64 << HIGH_BITS) as f64;

/// How many of the units of a piece make one of the piece before.
const STEP: f64 = 1.0 / (1u64 << BITS) as f64;

/// A [`Tile`] of the pieces `FROM..TO` of `M` by `N` pieces, `TURNS` vectors in turn.
// Counted loops: iterators are not always inlined into functions for certain processors.
#[allow(clippy::needless_range_loop)]
#[inline(always)]
fn tile<
    V: Vector,
    const M: usize,
    const N: usize,
    const FROM: usize,
    const TO: usize,
    const TURNS: usize,
    const SQUARE: bool,
>(
    v: V,
    left: &[Four],
    right: &[Four],
    mut grid: f64,
) -> Weights {
    let left = left.as_chunks::<M>().0.as_chunks::<TURNS>().0;
    let right = right.as_chunks::<N>().0.as_chunks::<TURNS>().0;
    let mut sums = [[[v.splat(0.0); N]; M]; TURNS];
    for i in 0..left.len().min(right.len()) {
        for t in 0..TURNS {
            let mut b = [v.splat(0.0); N];
            for n in 0..N {
                b[n] = v.load(&right[i][t][n]);
            }
            for m in FROM..TO {
                let a = v.load(&left[i][t][m]);
                for n in if SQUARE { m } else { 0 }..N {
                    sums[t][m][n] = v.about(a, b[n], sums[t][m][n]);
                }
            }
        }
    }
    let mut weights = [0; 2 * MOST - 1];
    let mut scale = MAGIC / grid;
    for k in 0..M + N - 1 {
        let h = v.splat(grid);
        let (mut high, mut low) = (v.splat(0.0), v.splat(0.0));
        for m in FROM..TO {
            for n in if SQUARE { m } else { 0 }..N {
                if m + n != k {
                    continue;
                }
                for t in 0..TURNS {
                    let x = sums[t][m][n];
                    // Two different pieces of one column meet twice.
                    let x = if SQUARE && m != n { v.add(x, x) } else { x };
                    let upper = v.sub(v.add(x, h), h);
                    high = v.add(high, upper);
                    low = v.add(low, v.sub(x, upper));
                }
            }
        }
        let mut lanes = [[0.0; 4]; 2];
        v.store(high, &mut lanes[0]);
        v.store(low, &mut lanes[1]);
        for [a, b, c, d] in lanes {
            weights[k] += (((a + b) + (c + d)) * scale) as i64;
        }
        scale /= STEP;
        grid *= STEP;
    }
    weights
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::MISSING;
    use stead_simd::Vectors;

    /// Product by product.
    fn slowly(columns: &[Vec<f64>]) -> Vec<ExactSum> {
        let mut sums = Vec::new();
        for (i, a) in columns.iter().enumerate() {
            for b in &columns[i..] {
                let mut sum = ExactSum::new();
                a.iter().zip(b).for_each(|(x, y)| sum.add_product(*x, *y));
                sums.push(sum);
            }
        }
        sums
    }

    /// Chunk by chunk, so that a chunk finds the buffers of the one before.
    fn quickly(columns: &[Vec<f64>], rows: usize) -> Vec<ExactSum> {
        let mut products = Products::new(columns.len());
        let mut sums = vec![ExactSum::new(); columns.len() * (columns.len() + 1) / 2];
        for from in (0..columns[0].len()).step_by(rows) {
            let chunk: Vec<&[f64]> =
                columns.iter().map(|c| &c[from..c.len().min(from + rows)]).collect();
            assert!(products.add(&chunk, &mut sums));
        }
        sums
    }

    /// Values that come in one to four pieces, in none, and in more than there can be.
    fn values() -> impl Strategy<Value = Vec<f64>> {
        let n = 1500;
        let of = |v: BoxedStrategy<f64>| prop::collection::vec(v, n);
        prop_oneof![
            of((0..1i64 << 24).prop_map(|v| v as f64).boxed()),
            of((-(1i64 << 24) + 1..1 << 24).prop_map(|v| v as f64 * 2f64.powi(300)).boxed()),
            of((0..1i64 << 34).prop_map(|v| v as f64).boxed()),
            of((1..250_000i64).prop_map(|v| v as f64 / 1000.0).boxed()),
            of((-1.0..1.0f64).boxed()),
            of((-1.0..1.0f64, 0..30i32).prop_map(|(v, e)| v * 2f64.powi(-e)).boxed()),
            of((-1.0..1.0f64, -900..300i32).prop_map(|(v, e)| v * 2f64.powi(e)).boxed()),
            // The largest sums of pieces that there are.
            of(Just(16_777_215.0).boxed()),
            of(Just(f64::from_bits(0x3FEF_FFFF_FFFF_FFFF)).boxed()),
            of(prop::sample::select(vec![8_388_607.5, -8_388_607.75, 1e-9]).boxed()),
            of(prop::sample::select(vec![0.0, -0.0]).boxed()),
            of(prop::sample::select(vec![0.0, 5e-324, -1e-310]).boxed()),
            of(prop::sample::select(vec![1e200, -1e308, 1.0, 5e-324]).boxed()),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(60))]

        #[test]
        fn chunks_give_what_products_one_by_one_do(
            columns in prop::collection::vec(values(), 1..5),
            rows in 1..1500usize,
            chunk in prop_oneof![Just(ROWS), 1..ROWS],
        ) {
            let columns: Vec<Vec<f64>> = columns.iter().map(|c| c[..rows].to_vec()).collect();
            prop_assert_eq!(quickly(&columns, chunk), slowly(&columns));
        }

        #[test]
        fn every_path_gives_the_same_sums(a in values(), b in values()) {
            let mut columns = [Column::default(), Column::default()];
            let (a, b) = (&a[..ROWS], &b[..ROWS]);
            for (column, values) in columns.iter_mut().zip([a, b]) {
                column.field = pieces::exponent(values);
                column.cut(values);
            }
            let [Way::Pieces(m), Way::Pieces(n)] = [columns[0].way, columns[1].way] else {
                return Ok(());
            };
            let [left, right] = [&columns[0].pieces[..m.len], &columns[1].pieces[..n.len]];
            let (left, right, counts) = if m.count <= n.count {
                (left, right, (m.count, n.count))
            } else {
                (right, left, (n.count, m.count))
            };
            let grid = 2f64.powi(m.unit + n.unit) * MAGIC;
            let of = |v: Vectors| v.run(Tile { left, right, counts, square: false, grid });
            let all: Vec<Weights> = Vectors::all().into_iter().map(of).collect();
            prop_assert!(all.iter().all(|w| *w == all[0]));
        }
    }

    #[test]
    fn what_is_not_finite_is_left_to_others() {
        for v in [MISSING, f64::NAN, f64::INFINITY] {
            let mut sums = vec![ExactSum::new(); 3];
            let mut products = Products::new(2);
            assert!(!products.add(&[&[1.0, 2.0], &[v, 3.0]], &mut sums));
            assert!(sums.iter().all(|s| *s == ExactSum::new()));
        }
    }
}
