//! The nearest centre of each point, without its distance.
//!
//! `|c|^2 - 2 x.c` is the squared distance to centre `c` but for `|x|^2`, which is the same for all centres. It takes one
//! multiply-add a coordinate and centre where the distance takes three operations, but it is rounded otherwise.
//! So it decides only where the two least lie further apart than both ways can be wrong; for the other points (ties, mostly)
//! the distances themselves decide. The answer is that of [`Points::nearest`], to the last tie.

use super::points::{LANES, Points, nearest_of};
use crate::simd::{Vector, Work, dispatch};

/// Centres that are worked on side by side.
const SIDE: usize = 4;
/// Squares beyond this may overflow in one of the ways: the distances decide.
const LARGE: f64 = 1e300;
/// Differences below this may be underflow.
const SMALL: f64 = 1e-290;

/// Centres, ready to be compared with points.
pub struct Centres<'a> {
    /// Coordinates, one centre after the other.
    centres: &'a [f64],
    d: usize,
    /// `-2 c[j]` of four centres at `group * d + j`.
    twice: Vec<[f64; SIDE]>,
    /// `|c|^2` of four centres; infinite where there are no more.
    squares: Vec<[f64; SIDE]>,
    largest: f64,
    /// What both ways can be wrong by, in units of `|x|^2 + largest`.
    doubt: f64,
}

impl<'a> Centres<'a> {
    /// `centres` holds `d` coordinates for each, and at least one.
    pub fn new(centres: &'a [f64], d: usize) -> Self {
        let groups = (centres.len() / d).div_ceil(SIDE);
        let mut twice = vec![[0.0; SIDE]; groups * d];
        let mut squares = vec![[f64::INFINITY; SIDE]; groups];
        let mut largest = 0.0f64;
        for (i, centre) in centres.chunks_exact(d).enumerate() {
            for (j, x) in centre.iter().enumerate() {
                twice[i / SIDE * d + j][i % SIDE] = -2.0 * x;
            }
            let square: f64 = centre.iter().map(|x| x * x).sum();
            squares[i / SIDE][i % SIDE] = square;
            largest = largest.max(square);
        }
        // Each way has d + 2 roundings of terms that are at most 2 (|x|^2 + |c|^2) in all, for two centres, and
        // |c|^2 has d: less than 10 (d + 2) half units. More than that, for those of this bound itself.
        let doubt = 16.0 * (d as f64 + 4.0) * (f64::EPSILON / 2.0);
        Centres { centres, d, twice, squares, largest, doubt }
    }

    /// For each point the number of the nearest centre.
    pub fn assign(&self, points: &Points, index: &mut Vec<u32>) {
        index.clear();
        dispatch(Assign { centres: self, points, index });
        index.truncate(points.len());
    }
}

struct Assign<'a> {
    centres: &'a Centres<'a>,
    points: &'a Points,
    index: &'a mut Vec<u32>,
}

impl Work for Assign<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let c = self.centres;
        for tile in self.points.tiles().chunks_exact(self.points.stride()) {
            let (mut which, sure) = tile_of(v, &tile[..c.d], c);
            if sure != (1 << LANES) - 1 {
                for (l, w) in which.iter_mut().enumerate().filter(|(l, _)| sure >> l & 1 == 0) {
                    *w = nearest_of(tile, l, c.centres, c.d).0;
                }
            }
            self.index.extend_from_slice(&which);
        }
    }
}

/// The nearest centre of eight points, and a bit for each for which that is sure.
#[allow(clippy::needless_range_loop)] // See `simd`.
#[inline(always)]
fn tile_of<V: Vector>(v: V, tile: &[[f64; LANES]], c: &Centres<'_>) -> ([u32; LANES], u32) {
    let infinite = v.splat(f64::INFINITY);
    let (mut best, mut second) = ([infinite; 2], [infinite; 2]);
    let mut which = [v.splat(0.0); 2];
    for g in 0..c.squares.len() {
        let twice = &c.twice[g * c.d..][..tile.len()];
        let square = &c.squares[g];
        let mut scores = [[v.splat(0.0); 2]; SIDE];
        for i in 0..SIDE {
            scores[i] = [v.splat(square[i]); 2];
        }
        for j in 0..tile.len() {
            let halves = tile[j].as_chunks::<4>().0;
            let (low, high) = (v.load(&halves[0]), v.load(&halves[1]));
            for i in 0..SIDE {
                let k = v.splat(twice[j][i]);
                scores[i] = [v.about(k, low, scores[i][0]), v.about(k, high, scores[i][1])];
            }
        }
        for i in 0..SIDE {
            // At most 2^16 centres.
            let number = v.splat((SIDE * g + i) as f64);
            for h in 0..2 {
                let nearer = v.less(scores[i][h], best[h]);
                second[h] = v.min(v.max(best[h], scores[i][h]), second[h]);
                best[h] = v.min(scores[i][h], best[h]);
                which[h] = v.select(nearer, number, which[h]);
            }
        }
    }
    let mut size = [v.splat(c.largest); 2];
    for j in 0..tile.len() {
        let halves = tile[j].as_chunks::<4>().0;
        for h in 0..2 {
            let x = v.load(&halves[h]);
            size[h] = v.about(x, x, size[h]);
        }
    }
    let mut index = [0; LANES];
    let mut sure = 0;
    for h in 0..2 {
        let bound = v.about(size[h], v.splat(c.doubt), v.splat(SMALL));
        let apart = v.bits(v.less(bound, v.sub(second[h], best[h])));
        let safe = v.bits(v.less(size[h], v.splat(LARGE)));
        sure |= (apart & safe) << (4 * h);
        let mut numbers = [0.0; 4];
        v.store(which[h], &mut numbers);
        for l in 0..4 {
            index[4 * h + l] = numbers[l] as u32;
        }
    }
    (index, sure)
}

#[cfg(test)]
mod tests {
    use super::super::points::tests::table;
    use super::*;
    use crate::simd::Portable;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_same_as_by_distances(
            d in 1usize..7,
            values in proptest::collection::vec(-3i32..4, 0..150),
            centres in proptest::collection::vec(-3i32..4, 1..60),
            scale in prop_oneof![Just(1.0), Just(0.1), Just(1e160), Just(1e-160), Just(1e308), Just(5e-324)],
            offset in prop_oneof![Just(0.0), Just(1e9), Just(-0.3)],
        ) {
            let at = |x: &i32| f64::from(*x) * scale + offset;
            let points: Vec<Vec<f64>> =
                values.chunks_exact(d).map(|c| c.iter().map(at).collect()).collect();
            let centres: Vec<f64> = centres.iter().map(at).map(|x| x.clamp(f64::MIN, f64::MAX)).collect();
            let centres = &centres[..centres.len() / d * d];
            prop_assume!(!centres.is_empty());
            let t = table(&points, d, 0);
            let p = Points::of(&t.block(0), &(0..d).collect::<Vec<_>>()).expect("points");
            let mut index = Vec::new();
            let prepared = Centres::new(centres, d);
            prepared.assign(&p, &mut index);
            prop_assert_eq!(&index, &p.nearest(centres).0);
            index.clear();
            Assign { centres: &prepared, points: &p, index: &mut index }.run(Portable);
            index.truncate(p.len());
            prop_assert_eq!(&index, &p.nearest(centres).0);
        }
    }
}
