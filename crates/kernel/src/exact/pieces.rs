//! The fast way of a long slice into exact sums: values are cut into pieces of few bits.
//!
//! All values of a chunk are cut at the same places of their binary digits, from the highest bit of the
//! largest one down: `x = a + b + c` with `a` a multiple of some power of two, `b` of a smaller one, and so
//! on. A piece has so few bits that a lane's worth of pieces, or of products of two of them, adds up exactly
//! in double arithmetic. So the sum of the values is that of their pieces, and
//! `x^2 = aa + 2ab + (2ac + bb) + 2bc + cc`: additions and multiplications that round nothing, which any
//! vector unit does in any order with the same result. A few numbers a chunk then go to the limbs.
//!
//! The number of pieces is as small as the values allow: one for integers, two or three for decimals, more
//! if their exponents lie far apart. Whether it was enough shows at the end: the bits of what is left are
//! collected. A chunk for which no number of pieces is enough goes value by value.
//!
//! A sum of pieces that are multiples of `u` begins at `1.5 2^52 u`. What changes when `x` is added to it is `x`
//! rounded to a multiple of `u`, exactly: its piece (S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point
//! summation part I", SIAM J. Sci. Comput. 31(1), 2008, section 3; J. Demmel, H. D. Nguyen, "Parallel
//! reproducible summation", IEEE Trans. Comput. 64(7), 2015).

use super::{ExactSum, SPECIAL};
use stead_core::is_missing;
use stead_simd::{Lanes, MOST, Vector, Work, dispatch};

/// Values handled at once: 512 for each of four lanes, or fewer for each of more.
const CHUNK: usize = 2048;
/// Bits of a piece that is only added: 512 of them change a sum by less than a quarter of where it begins.
pub(super) const SUM_BITS: i32 = 41;
/// Bits of a piece that is multiplied: 512 products fit.
pub(super) const PRODUCT_BITS: i32 = 22;
/// Shorter slices are added one by one.
const SHORT: usize = 32;
/// Values by which the number of pieces is chosen.
const PROBE: usize = 32;
/// The largest value lies between `2^-MOST_EXPONENT` and `2^MOST_EXPONENT`: then neither sums nor products
/// of pieces overflow or underflow.
const MOST_EXPONENT: i32 = 400;

/// Adds values to `sum`; gives how many are not missing.
pub(super) fn add_slice(sum: &mut ExactSum, values: &[f64]) -> u64 {
    if values.len() < SHORT {
        values.iter().for_each(|v| sum.add(*v));
        return present(values);
    }
    each_chunk(values, |chunk| match chunk {
        Chunk::Special(v) => sum.add_special(v),
        Chunk::Finite(values, field) => {
            if !sum_of(sum, values, field) {
                values.iter().for_each(|v| sum.add_finite(*v));
            }
        }
    })
}

/// How many values are not missing.
fn present(values: &[f64]) -> u64 {
    values.iter().map(|v| u64::from(!is_missing(*v))).sum()
}

/// Adds the squares of values to `squares`.
pub(super) fn add_square_slice(squares: &mut ExactSum, values: &[f64]) {
    // Its sum costs little beside its squares.
    add_both(&mut ExactSum::new(), squares, values);
}

/// Adds values to `sum` and their squares to `squares`; gives how many are not missing.
pub(super) fn add_both(sum: &mut ExactSum, squares: &mut ExactSum, values: &[f64]) -> u64 {
    if values.len() < SHORT {
        values.iter().for_each(|v| {
            sum.add(*v);
            squares.add_product(*v, *v);
        });
        return present(values);
    }
    each_chunk(values, |chunk| match chunk {
        Chunk::Special(v) => {
            sum.add_special(v);
            squares.add_special(v * v);
        }
        Chunk::Finite(values, field) => {
            if !squares_of(sum, squares, values, field) {
                if !sum_of(sum, values, field) {
                    values.iter().for_each(|v| sum.add_finite(*v));
                }
                values.iter().for_each(|v| squares.add_product(*v, *v));
            }
        }
    })
}

/// A part of a slice.
enum Chunk<'a> {
    /// At most [`CHUNK`] values that are neither infinite nor NaN, and their largest exponent field.
    Finite(&'a [f64], u64),
    /// An infinity, or a NaN that is not missing.
    Special(f64),
}

/// Gives all values but missing ones to `f`; counts them.
fn each_chunk(values: &[f64], mut f: impl FnMut(Chunk<'_>)) -> u64 {
    let mut count = 0;
    let mut finite = Vec::new();
    for chunk in values.chunks(CHUNK) {
        count += chunk.len() as u64;
        let field = exponent(chunk);
        if field != SPECIAL {
            f(Chunk::Finite(chunk, field));
            continue;
        }
        finite.resize(chunk.len(), 0.0);
        let (missing, others) = dispatch(Holes { values: chunk, finite: &mut finite });
        count -= missing;
        if others > 0 {
            let special = chunk.iter().filter(|v| !v.is_finite() && !is_missing(**v));
            special.for_each(|v| f(Chunk::Special(*v)));
        }
        f(Chunk::Finite(&finite, exponent(&finite)));
    }
    count
}

/// Copies finite values, and zeros for others; counts missing values and those others.
struct Holes<'a> {
    values: &'a [f64],
    finite: &'a mut [f64],
}

impl Work for Holes<'_> {
    type Out = (u64, u64);

    #[inline(always)]
    fn run<V: Vector>(self, _: V) -> (u64, u64) {
        let (mut missing, mut finite) = (0, 0);
        for (out, v) in self.finite.iter_mut().zip(self.values) {
            let good = v.to_bits() >> 52 & SPECIAL != SPECIAL;
            *out = if good { *v } else { 0.0 };
            finite += u64::from(good);
            missing += u64::from(is_missing(*v));
        }
        (missing, self.values.len() as u64 - finite - missing)
    }
}

/// The largest exponent field.
pub(super) fn exponent(values: &[f64]) -> u64 {
    struct Largest<'a>(&'a [f64]);
    impl Work for Largest<'_> {
        type Out = u64;

        #[inline(always)]
        fn run<V: Vector>(self, v: V) -> u64 {
            self.largest(v.lanes())
        }
    }
    impl Largest<'_> {
        #[inline(always)]
        fn largest<L: Lanes>(self, l: L) -> u64 {
            let mut most = [l.splat(0.0); 4];
            let mut whole = self.0.chunks_exact(4 * L::N);
            for v in &mut whole {
                for i in 0..4 {
                    most[i] = l.larger(most[i], l.load(&v[i * L::N..]));
                }
            }
            let most = l.larger(l.larger(most[0], most[1]), l.larger(most[2], most[3]));
            let all = l.store(most).into_iter().chain(whole.remainder().iter().copied());
            all.fold(0, |m, v| m.max(v.to_bits() >> 52 & SPECIAL))
        }
    }
    dispatch(Largest(values))
}

/// The exponent `e` of `2^e` above all magnitudes, if pieces can be cut below it. Zeros alone have none, and
/// need none: `Some(None)`.
fn top(values: &[f64], field: u64) -> Option<Option<i32>> {
    if field == 0 {
        return values.iter().all(|v| *v == 0.0).then_some(None);
    }
    let top = field as i32 - 1022;
    (top.abs() <= MOST_EXPONENT).then_some(Some(top))
}

/// `1.5 2^52 u` for the grids `u` of pieces of `bits` bits below `2^top`. What the first piece leaves is at most half of
/// its unit, so that each further piece has a bit more for as large a number of units.
pub(super) fn grids<const P: usize>(top: i32, bits: i32) -> [f64; P] {
    std::array::from_fn(|k| {
        let k = k as i32;
        let field = 1023 + 52 + top - bits * (k + 1) - k;
        // Between 1023 + 52 - 400 - 3 * 42 and 1023 + 52 + 400: a normal number.
        f64::from_bits((field as u64) << 52 | 1 << 51)
    })
}

/// Adds finite values; false, with nothing done, if there is no number of pieces for them.
fn sum_of(sum: &mut ExactSum, values: &[f64], field: u64) -> bool {
    let top = match top(values, field) {
        None => return false,
        Some(None) => return true,
        Some(Some(top)) => top,
    };
    let probe = &values[..values.len().min(PROBE)];
    sum_in::<1>(sum, probe, values, top)
        || sum_in::<2>(sum, probe, values, top)
        || sum_in::<3>(sum, probe, values, top)
}

/// As [`sum_of`], in `P` pieces.
fn sum_in<const P: usize>(sum: &mut ExactSum, probe: &[f64], values: &[f64], top: i32) -> bool
where
    for<'a> Cut<'a, P, 0>: Work<Out = Option<([Stored; P], [Stored; 0])>>,
{
    let grids = grids::<P>(top, SUM_BITS);
    if dispatch(Cut::<P, 0> { values: probe, grids, minus: -1.0 }).is_none() {
        return false;
    }
    let Some((sums, [])) = dispatch(Cut::<P, 0> { values, grids, minus: -1.0 }) else {
        return false;
    };
    sums.as_flattened().iter().for_each(|v| sum.add_finite(*v));
    true
}

/// Adds finite values and their squares; false, with nothing done, if there is no number of pieces for them.
fn squares_of(sum: &mut ExactSum, squares: &mut ExactSum, values: &[f64], field: u64) -> bool {
    let top = match top(values, field) {
        None => return false,
        Some(None) => return true,
        Some(Some(top)) => top,
    };
    let probe = &values[..values.len().min(PROBE)];
    squares_in::<1, 1>(sum, squares, probe, values, top)
        || squares_in::<2, 3>(sum, squares, probe, values, top)
        || squares_in::<3, 6>(sum, squares, probe, values, top)
        || squares_in::<4, 10>(sum, squares, probe, values, top)
}

/// As [`squares_of`], in `P` pieces.
fn squares_in<const P: usize, const Q: usize>(
    sum: &mut ExactSum,
    squares: &mut ExactSum,
    probe: &[f64],
    values: &[f64],
    top: i32,
) -> bool
where
    for<'a> Cut<'a, P, Q>: Work<Out = Option<([Stored; P], [Stored; Q])>>,
{
    let grids = grids::<P>(top, PRODUCT_BITS);
    if dispatch(Cut::<P, Q> { values: probe, grids, minus: -1.0 }).is_none() {
        return false;
    }
    let Some((sums, products)) = dispatch(Cut::<P, Q> { values, grids, minus: -1.0 }) else {
        return false;
    };
    sums.as_flattened().iter().for_each(|v| sum.add_finite(*v));
    let mut products = products.iter();
    for i in 0..P {
        for (j, lanes) in (i..P).zip(&mut products) {
            // Every product of two different pieces stands for two.
            let twice = if i == j { 1.0 } else { 2.0 };
            lanes.iter().for_each(|v| squares.add_finite(*v * twice));
        }
    }
    true
}

pub(super) type Stored = [f64; MOST];

/// The last values, which are fewer than there are lanes, and zeros behind them.
#[inline(always)]
fn padded(rest: &[f64]) -> Option<Stored> {
    let mut last = [0.0; MOST];
    last.get_mut(..rest.len())?.copy_from_slice(rest);
    (!rest.is_empty()).then_some(last)
}

/// True if every lane is zero.
#[inline(always)]
fn is_zero<L: Lanes>(l: L, v: L::V) -> bool {
    l.store(v).iter().all(|v| *v == 0.0)
}

/// The sums of `P` pieces, and of `Q` products of them; `None` if the pieces are not all of the values.
struct Cut<'a, const P: usize, const Q: usize> {
    values: &'a [f64],
    grids: [f64; P],
    /// -1, which compilers must not know, lest they make a plain subtraction of it.
    minus: f64,
}

/// Implements a [`Cut`], with a variable, so a register, for each sum. (Loops over arrays of vectors, and
/// closures, keep compilers from doing that.)
macro_rules! cut {
    (<$p:literal, $q:literal> $($k:literal $piece:ident $grid:ident $sum:ident)*; $($a:ident $b:ident $product:ident)*) => {
        impl Work for Cut<'_, $p, $q> {
            type Out = Option<([Stored; $p], [Stored; $q])>;

            #[inline(always)]
            fn run<V: Vector>(self, v: V) -> Self::Out {
                // Without products there are registers for two vectors at a time.
                if $q == 0 { self.cut(v.pair()) } else { self.cut(v.lanes()) }
            }
        }

        impl Cut<'_, $p, $q> {
            #[inline(always)]
            fn cut<L: Lanes>(self, l: L) -> <Self as Work>::Out {
                let (zero, minus) = (l.splat(0.0), l.splat(self.minus));
                let mut left = zero;
                $(let $grid = l.splat(self.grids[$k]);)*
                $(let mut $sum = $grid;)*
                $(let mut $product = zero;)*
                let mut whole = self.values.chunks_exact(L::N);
                let mut last = None;
                loop {
                    let rest = match (whole.next(), &last) {
                        (Some(v), _) => l.load(v),
                        (None, None) => {
                            last = padded(whole.remainder());
                            match &last {
                                Some(v) => l.load(v),
                                None => break,
                            }
                        }
                        (None, Some(_)) => break,
                    };
                    $(
                        let next = l.add($sum, rest);
                        let $piece = l.sub(next, $sum);
                        // The units that multiply have time where there are no products.
                        let rest =
                            if $q == 0 { l.mul_add($piece, minus, rest) } else { l.sub(rest, $piece) };
                        $sum = next;
                    )*
                    $($product = l.mul_add($a, $b, $product);)*
                    left = l.or(left, rest);
                }
                if !is_zero(l, left) {
                    return None;
                }
                Some(([$(l.store(l.sub($sum, $grid))),*], [$(l.store($product)),*]))
            }
        }
    };
}

cut!(<1, 0> 0 a ga sa;);
cut!(<2, 0> 0 a ga sa 1 b gb sb;);
cut!(<3, 0> 0 a ga sa 1 b gb sb 2 c gc sc;);
cut!(<1, 1> 0 a ga sa; a a aa);
cut!(<2, 3> 0 a ga sa 1 b gb sb; a a aa a b ab b b bb);
cut!(<3, 6> 0 a ga sa 1 b gb sb 2 c gc sc; a a aa a b ab a c ac b b bb b c bc c c cc);
cut!(<4, 10> 0 a ga sa 1 b gb sb 2 c gc sc 3 d gd sd;
    a a aa a b ab a c ac a d ad b b bb b c bc b d bd c c cc c d cd d d dd);
