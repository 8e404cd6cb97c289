//! Exact sums of columns whose values lie row by row, without taking the columns out of the rows.
//!
//! The method is that of `pieces`. A lane is a column here: it has grids of its own, below the largest of its values in the
//! rows at hand, and sums of pieces of its own. The rows are read twice, once for the largest values and, while
//! they still are in the cache, once for the pieces. Columns with missing values, infinities or NaN, and those whose exponents
//! lie too far apart, are taken out after all and added as any slice is.

use super::ExactSum;
use super::pieces::{self, PRODUCT_BITS, SUM_BITS, Stored, grids};
use stead_simd::{Lanes, Vector, Work, dispatch};

/// Rows that are added at once: as many pieces as a lane can add exactly.
const ROWS: usize = 512;
/// Rows by which the number of pieces is chosen.
const PROBE: usize = 32;
/// The largest value of a column lies between `2^-MOST_EXPONENT` and `2^MOST_EXPONENT`, or is zero.
const MOST_EXPONENT: i32 = 400;
/// Fewest columns of a row.
pub const LEAST_WIDTH: usize = stead_simd::MOST;
/// Most pieces, and most products of two of them.
const PIECES: usize = 4;
const PRODUCTS: usize = 10;

/// What a column is added to.
pub struct Totals<'a> {
    /// The number of the column.
    pub column: usize,
    /// Values that are not missing.
    pub count: &'a mut u64,
    /// Their sum.
    pub sum: &'a mut ExactSum,
    /// The sum of their squares, if it is wanted.
    pub squares: Option<&'a mut ExactSum>,
}

/// Adds the rows of a matrix: all columns of the first row, then those of the second, `width` each, at least
/// [`LEAST_WIDTH`]. `totals` are in ascending order of columns, each at most once, and all want squares or none does.
///
/// Cost: 0.3 ns a value of all columns, from the second-level cache; 0.8 with squares.
pub fn add_rows(values: &[f64], width: usize, totals: &mut [Totals<'_>]) {
    let mut place = vec![None; width];
    for (i, t) in totals.iter().enumerate() {
        if let Some(p) = place.get_mut(t.column) {
            *p = Some(i);
        }
    }
    let most = vec![0.0; width];
    if width >= LEAST_WIDTH {
        dispatch(Add { values, width, place: &place, totals, most, minus: -1.0 });
    }
}

struct Add<'a, 't> {
    values: &'a [f64],
    width: usize,
    /// Which totals a column has.
    place: &'a [Option<usize>],
    totals: &'a mut [Totals<'t>],
    /// The largest magnitude of each column.
    most: Vec<f64>,
    /// -1, which compilers must not know, lest they make a plain subtraction of it.
    minus: f64,
}

/// Sums of pieces and of products, for each lane.
struct Sums {
    sums: [Stored; PIECES],
    products: [Stored; PRODUCTS],
    /// What is left of the values: all bits that are.
    left: Stored,
}

impl Work for Add<'_, '_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(mut self, v: V) {
        if self.totals.first().is_some_and(|t| t.squares.is_some()) {
            self.all(v.lanes(), true);
        } else {
            self.all(v.pair(), false);
        }
    }
}

impl Add<'_, '_> {
    #[inline(always)]
    fn all<L: Lanes>(&mut self, l: L, squares: bool) {
        let bits = if squares { PRODUCT_BITS } else { SUM_BITS };
        let most_pieces = if squares { PIECES } else { 3 };
        // The number of pieces that was enough for the rows before; none yet.
        let mut enough = vec![0; self.width.div_ceil(L::N)];
        for rows in self.values.chunks(ROWS * self.width) {
            largest(l, rows, self.width, &mut self.most);
            for (g, enough) in enough.iter_mut().enumerate() {
                // The last group begins earlier if there are not enough columns.
                let at = (g * L::N).min(self.width - L::N);
                let own = g * L::N - at..L::N;
                if self.place[at..at + L::N][own.clone()].iter().all(Option::is_none) {
                    continue;
                }
                let (mut grid, mut odd) = ([[0.0; stead_simd::MOST]; PIECES], 0u32);
                for lane in 0..L::N {
                    let field = (self.most[at + lane].to_bits() >> 52 & super::SPECIAL) as i32;
                    // Zeros have no largest value and take any grid. What subnormals there are will be left.
                    let top = if field == 0 { 0 } else { field - 1022 };
                    let sure = top.abs() <= MOST_EXPONENT;
                    odd |= u32::from(!sure) << lane;
                    let own: [f64; PIECES] = grids(if sure { top } else { 0 }, bits);
                    for (all, one) in grid.iter_mut().zip(own) {
                        all[lane] = one;
                    }
                }
                let mut probing = *enough == 0;
                *enough = (*enough).max(1);
                let (sums, failed) = loop {
                    let n = if probing { (PROBE * self.width).min(rows.len()) } else { rows.len() };
                    let some = Some(&rows[..n]).filter(|_| n > 0).unwrap_or(rows);
                    let (w, m) = (self.width, self.minus);
                    let sums = match (squares, *enough) {
                        (false, 1) => cut_1(l, some, w, at, &grid, m),
                        (false, 2) => cut_2(l, some, w, at, &grid, m),
                        (false, _) => cut_3(l, some, w, at, &grid, m),
                        (true, 1) => squares_1(l, some, w, at, &grid, m),
                        (true, 2) => squares_2(l, some, w, at, &grid, m),
                        (true, 3) => squares_3(l, some, w, at, &grid, m),
                        (true, _) => squares_4(l, some, w, at, &grid, m),
                    };
                    let mut failed = 0u32;
                    for lane in 0..L::N {
                        failed |= u32::from(sums.left[lane] != 0.0) << lane;
                    }
                    let enough_for_all = failed & !odd == 0;
                    if !enough_for_all && *enough < most_pieces {
                        *enough += 1;
                    } else if probing {
                        probing = false;
                    } else {
                        break (sums, failed | odd);
                    }
                };
                self.give(rows, at, own, &sums, (*enough, failed));
            }
        }
    }

    /// Adds what was found for the columns from `at` on, of lanes `own`. Of those that failed nothing is known.
    #[inline(never)]
    fn give(
        &mut self,
        rows: &[f64],
        at: usize,
        own: std::ops::Range<usize>,
        found: &Sums,
        (pieces, failed): (usize, u32),
    ) {
        let mut column = Vec::new();
        for lane in own {
            let Some(t) = self.place[at + lane].and_then(|i| self.totals.get_mut(i)) else {
                continue;
            };
            if failed >> lane & 1 == 1 {
                column.clear();
                column.extend(rows.iter().skip(at + lane).step_by(self.width));
                *t.count += match &mut t.squares {
                    Some(squares) => pieces::add_both(t.sum, squares, &column),
                    None => pieces::add_slice(t.sum, &column),
                };
                continue;
            }
            *t.count += (rows.len() / self.width) as u64;
            found.sums[..pieces].iter().for_each(|s| t.sum.add_finite(s[lane]));
            let Some(squares) = &mut t.squares else { continue };
            let mut products = found.products.iter();
            for i in 0..pieces {
                for (j, product) in (i..pieces).zip(&mut products) {
                    // Every product of two different pieces stands for two.
                    let twice = if i == j { 1.0 } else { 2.0 };
                    squares.add_finite(product[lane] * twice);
                }
            }
        }
    }
}

/// The largest magnitude of each column, up to the lower half of its bits.
#[inline(always)]
fn largest<L: Lanes>(l: L, rows: &[f64], width: usize, most: &mut [f64]) {
    most.fill(0.0);
    let mut row = 0;
    // Four rows at once, so that the largest ones are loaded and stored less often.
    while row < rows.len() {
        let four = &rows[row..rows.len().min(row + 4 * width)];
        let mut at = 0;
        while at < width {
            at = at.min(width - L::N);
            let mut m = l.load(&most[at..]);
            if four.len() == 4 * width {
                let a = l.larger(l.load(&four[at..]), l.load(&four[width + at..]));
                let b = l.larger(l.load(&four[2 * width + at..]), l.load(&four[3 * width + at..]));
                m = l.larger(m, l.larger(a, b));
            } else {
                let mut from = at;
                while from < four.len() {
                    m = l.larger(m, l.load(&four[from..]));
                    from += width;
                }
            }
            let out = l.store(m);
            most[at..at + L::N].copy_from_slice(&out[..L::N]);
            at += L::N;
        }
        row += 4 * width;
    }
}

/// Makes a function that cuts the columns from `at` on into pieces. See `pieces`.
macro_rules! cut {
    ($name:ident $multiplies:literal; $($k:literal $piece:ident $sum:ident)*; $($n:literal $a:ident $b:ident $product:ident)*) => {
        #[inline(always)]
        fn $name<L: Lanes>(
            l: L,
            rows: &[f64],
            width: usize,
            at: usize,
            grid: &[[f64; stead_simd::MOST]; PIECES],
            minus: f64,
        ) -> Sums {
            let (mut left, minus) = (l.splat(0.0), l.splat(minus));
            $(let mut $sum = l.load(&grid[$k]);)*
            $(let mut $product = l.splat(0.0);)*
            let mut from = at;
            while from < rows.len() {
                let rest = l.load(&rows[from..]);
                $(
                    let next = l.add($sum, rest);
                    let $piece = l.sub(next, $sum);
                    // The units that multiply have time where there are no products.
                    let rest =
                        if $multiplies { l.sub(rest, $piece) } else { l.mul_add($piece, minus, rest) };
                    $sum = next;
                )*
                $($product = l.mul_add($a, $b, $product);)*
                left = l.or(left, rest);
                from += width;
            }
            let mut sums = [[0.0; stead_simd::MOST]; PIECES];
            $(sums[$k] = l.store(l.sub($sum, l.load(&grid[$k])));)*
            #[allow(unused_mut)] // Where there are none.
            let mut products = [[0.0; stead_simd::MOST]; PRODUCTS];
            $(products[$n] = l.store($product);)*
            Sums { sums, products, left: l.store(left) }
        }
    };
}

cut!(cut_1 false; 0 a sa;);
cut!(cut_2 false; 0 a sa 1 b sb;);
cut!(cut_3 false; 0 a sa 1 b sb 2 c sc;);
cut!(squares_1 true; 0 a sa; 0 a a aa);
cut!(squares_2 true; 0 a sa 1 b sb; 0 a a aa 1 a b ab 2 b b bb);
cut!(squares_3 true; 0 a sa 1 b sb 2 c sc; 0 a a aa 1 a b ab 2 a c ac 3 b b bb 4 b c bc 5 c c cc);
cut!(squares_4 true; 0 a sa 1 b sb 2 c sc 3 d sd;
    0 a a aa 1 a b ab 2 a c ac 3 a d ad 4 b b bb 5 b c bc 6 b d bd 7 c c cc 8 c d cd 9 d d dd);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::{MISSING, is_missing};
    use stead_simd::Vectors;

    fn value() -> impl Strategy<Value = f64> {
        prop_oneof![
            20 => -1.0..1.0f64,
            10 => (-1000i32..1000).prop_map(f64::from),
            2 => any::<f64>(),
            1 => Just(MISSING),
            1 => prop_oneof![Just(f64::NAN), Just(f64::INFINITY), Just(5e-324), Just(1e300)],
        ]
    }

    proptest! {
        #[test]
        fn columns_of_rows_are_added_exactly(
            width in LEAST_WIDTH..21,
            some in prop::collection::vec(value(), 1..60),
            plain in prop::collection::vec(-1.0..1.0f64, 7),
            wild in 0..4,
            rows in 0usize..1300,
            skip in 0usize..5,
            squares: bool,
        ) {
            // Columns of tame values, of wild ones, of zeros, of integers.
            let of = |r: usize, c: usize| match (c + wild as usize) % 4 {
                0 => plain[(r * 31 + c) % plain.len()] * (1.0 + r as f64),
                1 if wild > 0 => some[(r * 7 + c) % some.len()],
                2 => 0.0 * r as f64,
                _ => ((r * 17 + c) % 1000) as f64 - 300.0,
            };
            let values: Vec<f64> = (0..rows * width).map(|i| of(i / width, i % width)).collect();
            let columns: Vec<usize> = (0..width).filter(|c| skip == 0 || c % skip == 0).collect();
            for vectors in Vectors::all() {
                let mut found = vec![(0, ExactSum::new(), ExactSum::new()); columns.len()];
                let mut totals: Vec<Totals<'_>> = found
                    .iter_mut()
                    .zip(&columns)
                    .map(|((count, sum, s), column)| {
                        Totals { column: *column, count, sum, squares: squares.then_some(s) }
                    })
                    .collect();
                let mut place = vec![None; width];
                columns.iter().enumerate().for_each(|(i, c)| place[*c] = Some(i));
                let most = vec![7.0; width];
                vectors.run(Add { values: &values, width, place: &place, totals: &mut totals, most, minus: -1.0 });
                for ((count, sum, square), c) in found.iter().zip(&columns) {
                    let (mut n, mut want, mut wants) = (0, ExactSum::new(), ExactSum::new());
                    for r in 0..rows {
                        let v = values[r * width + c];
                        n += u64::from(!is_missing(v));
                        want.add(v);
                        if squares {
                            wants.add_product(v, v);
                        }
                    }
                    prop_assert!(*count == n && *sum == want && *square == wants, "column {c}");
                }
            }
        }
    }
}
