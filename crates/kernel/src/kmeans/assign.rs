//! The nearest centre of each point, without its distance.
//!
//! `|c|^2 - 2 x.c` is the squared distance to centre `c` but for `|x|^2`, which is the same for all centres. It takes one
//! multiply-add a coordinate and centre where the distance takes three operations, and floats will do for it
//! mostly; but it is rounded otherwise. So it decides only where the two least lie further apart than both ways can be
//! wrong; for the other points (ties, mostly) the distances themselves decide. The answer is that of
//! [`Points::nearest`], to the last tie.

use super::points::{LANES, Points, nearest_of};
use stead_simd::{Vector, Work, dispatch};

/// Centres that are worked on side by side.
const SIDE: usize = 4;
/// Tiles of points that are worked on side by side, in floats.
const PAIR: usize = 2;
/// Squares beyond this may overflow in one of the ways: the distances decide.
const LARGE: f64 = 1e300;
const LARGE_FLOAT: f32 = 1e37;
/// Differences below this may be underflow.
const SMALL: f64 = 1e-290;
const SMALL_FLOAT: f32 = 1e-30;
/// The part of a lead that is told: what is computed in floats may be too large by a few of their roundings.
const TOLD: f32 = 1.0 - 1e-5;
/// Of how many points one may be too close to call in floats before doubles take over.
const DOUBTFUL: usize = 16;

/// Centres, ready to be compared with points.
pub struct Centres<'a> {
    /// Coordinates, one centre after the other.
    centres: &'a [f64],
    d: usize,
    /// In doubles, as they are.
    plain: Scores<f64>,
    /// In floats, from `origin`; not used if points were too close to call in them.
    rough: Option<Scores<f32>>,
    /// The mean of the centres.
    origin: Vec<f64>,
    /// Coordinates of points in floats, from `origin`.
    floats: Vec<[f32; LANES]>,
    /// Points that were too close to call.
    close: Vec<usize>,
}

/// What centres are compared by.
struct Scores<T> {
    /// `-2 c[j]` of four centres at `group * d + j`.
    twice: Vec<[T; SIDE]>,
    /// `|c|^2` of four centres; infinite where there are no more.
    squares: Vec<[T; SIDE]>,
    largest: T,
    /// What both ways can be wrong by, in units of `|x|^2 + largest`.
    doubt: T,
}

impl<'a> Centres<'a> {
    /// `centres` holds `d` coordinates for each, and at least one.
    pub fn new(centres: &'a [f64], d: usize) -> Self {
        let (k, groups) = (centres.len() / d, (centres.len() / d).div_ceil(SIDE));
        let mut plain = Scores {
            twice: vec![[0.0; SIDE]; groups * d],
            squares: vec![[f64::INFINITY; SIDE]; groups],
            largest: 0.0f64,
            // Each way has d + 2 roundings of terms that are at most 2 (|x|^2 + |c|^2) in all, for two centres,
            // and |c|^2 has d: less than 10 (d + 2) half units. More than that, for those of this bound itself.
            doubt: 16.0 * (d as f64 + 4.0) * (f64::EPSILON / 2.0),
        };
        let mut rough = Scores {
            twice: vec![[0.0; SIDE]; groups * d],
            squares: vec![[f32::INFINITY; SIDE]; groups],
            largest: 0.0f32,
            // The same, and one rounding more of each coordinate.
            doubt: 16.0 * (d as f32 + 6.0) * (f32::EPSILON / 2.0),
        };
        let origin: Vec<f64> =
            (0..d).map(|j| centres.chunks_exact(d).map(|c| c[j] / k as f64).sum()).collect();
        for (i, centre) in centres.chunks_exact(d).enumerate() {
            let (mut square, mut near) = (0.0, 0.0f32);
            for (j, x) in centre.iter().enumerate() {
                plain.twice[i / SIDE * d + j][i % SIDE] = -2.0 * x;
                square += x * x;
                let x = (x - origin[j]) as f32;
                rough.twice[i / SIDE * d + j][i % SIDE] = -2.0 * x;
                near += x * x;
            }
            plain.squares[i / SIDE][i % SIDE] = square;
            plain.largest = plain.largest.max(square);
            rough.squares[i / SIDE][i % SIDE] = near;
            // A NaN, of an origin that overflows, is to count as too large.
            rough.largest =
                rough.largest.max(if near < LARGE_FLOAT { near } else { f32::INFINITY });
        }
        let rough = (rough.largest < LARGE_FLOAT).then_some(rough);
        Centres { centres, d, plain, rough, origin, floats: Vec::new(), close: Vec::new() }
    }

    /// Coordinates of all centres.
    pub fn all(&self) -> &'a [f64] {
        self.centres
    }

    /// For each point the number of the nearest centre, and its lead: no other centre is nearer than the nearest one
    /// plus that much, by the true distances. As long as a lead is positive, the distances as [`Points::nearest`]
    /// rounds them have the same least one: there is more in it than their roundings. It is never more than 0, or it is
    /// NaN, where that is not sure.
    pub fn assign(&mut self, points: &Points, index: &mut Vec<u32>, leads: &mut Vec<f32>) {
        let Centres { centres, d, plain, rough, origin, floats, close } = self;
        if let Some(scores) = rough {
            index.clear();
            leads.clear();
            close.clear();
            dispatch(Rough { scores, origin, points, floats, index, leads, close });
            index.truncate(points.len());
            leads.truncate(points.len());
            close.retain(|p| *p < points.len());
            if close.len() <= points.len() / DOUBTFUL {
                for p in close.iter() {
                    let tile = &points.tiles()[p / LANES * points.stride()..];
                    index[*p] = nearest_of(&tile[..*d], p % LANES, centres, *d).0;
                }
                return;
            }
            // Doubles do less in vain.
            *rough = None;
        }
        index.clear();
        leads.clear();
        dispatch(Plain { scores: plain, centres, points, index, leads });
        index.truncate(points.len());
        leads.truncate(points.len());
    }
}

struct Plain<'a> {
    scores: &'a Scores<f64>,
    centres: &'a [f64],
    points: &'a Points,
    index: &'a mut Vec<u32>,
    leads: &'a mut Vec<f32>,
}

impl Work for Plain<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let d = self.points.d();
        for tile in self.points.tiles().chunks_exact(self.points.stride()) {
            let (mut which, leads, sure) = plain_tile(v, &tile[..d], self.scores);
            if sure != (1 << LANES) - 1 {
                for (l, w) in which.iter_mut().enumerate().filter(|(l, _)| sure >> l & 1 == 0) {
                    *w = nearest_of(&tile[..d], l, self.centres, d).0;
                }
            }
            self.index.extend_from_slice(&which);
            self.leads.extend_from_slice(&leads);
        }
    }
}

/// The nearest centre of eight points, its lead, and a bit for each for which it is sure.
#[allow(clippy::needless_range_loop)] // See `stead_simd`.
#[inline(always)]
fn plain_tile<V: Vector>(
    v: V,
    tile: &[[f64; LANES]],
    c: &Scores<f64>,
) -> ([u32; LANES], [f32; LANES], u32) {
    let infinite = v.splat(f64::INFINITY);
    let (mut best, mut second) = ([infinite; 2], [infinite; 2]);
    let mut which = [v.splat(0.0); 2];
    for g in 0..c.squares.len() {
        let twice = &c.twice[g * tile.len()..][..tile.len()];
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
    let (mut index, mut leads) = ([0; LANES], [0.0; LANES]);
    let mut sure = 0;
    for h in 0..2 {
        let bound = v.about(size[h], v.splat(c.doubt), v.splat(SMALL));
        let mut out = [[0.0; 4]; 4];
        v.store(best[h], &mut out[0]);
        v.store(second[h], &mut out[1]);
        v.store(size[h], &mut out[2]);
        v.store(bound, &mut out[3]);
        for l in 0..4 {
            let [best, second, size, bound] = [out[0][l], out[1][l], out[2][l], out[3][l]];
            // The difference of two squares over the sum of their roots, which is at most that of twice their sum.
            let squares = 2.0 * (size - c.largest) + best + second + 4.0 * bound;
            let lead = (second - best - 2.0 * bound) / (2.0 * squares).sqrt();
            // Floats below the normal ones are too coarse to round down to.
            let told = if lead < f64::from(f32::MIN_POSITIVE) { 0.0 } else { lead as f32 * TOLD };
            leads[4 * h + l] = if size < LARGE { told } else { f32::NAN };
        }
        let apart = v.bits(v.less(bound, v.sub(second[h], best[h])));
        let safe = v.bits(v.less(size[h], v.splat(LARGE)));
        sure |= (apart & safe) << (4 * h);
        let mut numbers = [0.0; 4];
        v.store(which[h], &mut numbers);
        for l in 0..4 {
            index[4 * h + l] = numbers[l] as u32;
        }
    }
    (index, leads, sure)
}

struct Rough<'a> {
    scores: &'a Scores<f32>,
    origin: &'a [f64],
    points: &'a Points,
    floats: &'a mut Vec<[f32; LANES]>,
    index: &'a mut Vec<u32>,
    leads: &'a mut Vec<f32>,
    close: &'a mut Vec<usize>,
}

impl Work for Rough<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let (d, stride) = (self.points.d(), self.points.stride());
        let tiles = self.points.tiles();
        self.floats.resize(PAIR * d, [0.0; LANES]);
        for pair in tiles.chunks(PAIR * stride) {
            // The last tile may be alone: then what lies beside it is rubbish, and left out below.
            let n = pair.len() / stride;
            for t in 0..n {
                narrow(v, &pair[t * stride..][..d], self.origin, &mut self.floats[t * d..][..d]);
            }
            let (which, leads, sure) = rough_pair(v, &self.floats[..], self.scores);
            for t in 0..n {
                let mut numbers = [0; LANES];
                for l in 0..LANES {
                    numbers[l] = which[t][l] as u32;
                    if sure[t] >> l & 1 == 0 {
                        self.close.push(self.index.len() + l);
                    }
                }
                self.index.extend_from_slice(&numbers);
                self.leads.extend_from_slice(&leads[t]);
            }
        }
    }
}

/// A tile in floats.
#[inline(always)]
fn narrow<V: Vector>(v: V, tile: &[[f64; LANES]], origin: &[f64], out: &mut [[f32; LANES]]) {
    for j in 0..tile.len().min(origin.len()).min(out.len()) {
        let (halves, at) = (tile[j].as_chunks::<4>().0, v.splat(origin[j]));
        let (low, high) = (v.sub(v.load(&halves[0]), at), v.sub(v.load(&halves[1]), at));
        v.store8(v.narrow(low, high), &mut out[j]);
    }
}

/// As [`plain_tile`], for two tiles in floats, one after the other.
#[allow(clippy::needless_range_loop)] // See `stead_simd`.
#[inline(always)]
fn rough_pair<V: Vector>(
    v: V,
    tiles: &[[f32; LANES]],
    c: &Scores<f32>,
) -> ([[f32; LANES]; PAIR], [[f32; LANES]; PAIR], [u32; PAIR]) {
    let d = tiles.len() / PAIR;
    let (first, other) = tiles.split_at(d);
    let other = &other[..d];
    let infinite = v.splat8(f32::INFINITY);
    let (mut best, mut second) = ([infinite; PAIR], [infinite; PAIR]);
    let mut which = [v.splat8(0.0); PAIR];
    for g in 0..c.squares.len() {
        let twice = &c.twice[g * d..][..d];
        let square = &c.squares[g];
        let mut scores = [[v.splat8(0.0); PAIR]; SIDE];
        for i in 0..SIDE {
            scores[i] = [v.splat8(square[i]); PAIR];
        }
        for j in 0..d {
            let (a, b) = (v.load8(&first[j]), v.load8(&other[j]));
            for i in 0..SIDE {
                let k = v.splat8(twice[j][i]);
                scores[i] = [v.about8(k, a, scores[i][0]), v.about8(k, b, scores[i][1])];
            }
        }
        for i in 0..SIDE {
            // At most 2^16 centres, which floats hold exactly.
            let number = v.splat8((SIDE * g + i) as f32);
            for h in 0..PAIR {
                let nearer = v.less8(scores[i][h], best[h]);
                second[h] = v.min8(v.max8(best[h], scores[i][h]), second[h]);
                best[h] = v.min8(scores[i][h], best[h]);
                which[h] = v.select8(nearer, number, which[h]);
            }
        }
    }
    let mut size = [v.splat8(c.largest); PAIR];
    for j in 0..d {
        let (a, b) = (v.load8(&first[j]), v.load8(&other[j]));
        size = [v.about8(a, a, size[0]), v.about8(b, b, size[1])];
    }
    let (mut index, mut leads, mut sure) = ([[0.0; LANES]; PAIR], [[0.0; LANES]; PAIR], [0; PAIR]);
    for h in 0..PAIR {
        let bound = v.about8(size[h], v.splat8(c.doubt), v.splat8(SMALL_FLOAT));
        let mut out = [[0.0; LANES]; 4];
        v.store8(best[h], &mut out[0]);
        v.store8(second[h], &mut out[1]);
        v.store8(size[h], &mut out[2]);
        v.store8(bound, &mut out[3]);
        for l in 0..LANES {
            let [best, second, size, bound] = [out[0][l], out[1][l], out[2][l], out[3][l]];
            let squares = 2.0 * (size - c.largest) + best + second + 4.0 * bound;
            let lead = (second - best - 2.0 * bound) / (2.0 * squares).sqrt() * TOLD;
            leads[h][l] = if size < LARGE_FLOAT { lead } else { f32::NAN };
        }
        let apart = v.bits8(v.less8(bound, v.sub8(second[h], best[h])));
        let safe = v.bits8(v.less8(size[h], v.splat8(LARGE_FLOAT)));
        sure[h] = apart & safe;
        v.store8(which[h], &mut index[h]);
    }
    (index, leads, sure)
}

#[cfg(test)]
mod tests {
    use super::super::points::tests::table;
    use super::*;
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseError;
    use stead_simd::Portable;

    /// Leads beside what distances in doubles say, where those neither overflow nor underflow.
    fn no_more_than_true(
        points: &Points,
        centres: &[f64],
        index: &[u32],
        leads: &[f32],
    ) -> Result<(), TestCaseError> {
        for i in 0..points.len() {
            let p = points.coordinates(i);
            let far = |c: &[f64]| c.iter().zip(&p).fold(0.0f64, |h, (a, b)| h.hypot(a - b));
            let mut all: Vec<f64> = centres.chunks_exact(points.d()).map(far).collect();
            let own = all.remove(index[i] as usize);
            let next = all.into_iter().fold(f64::INFINITY, f64::min);
            let fine = f64::from(leads[i]) <= (next - own).max(0.0) || leads[i].is_nan();
            prop_assert!(fine, "{} of {own} and {next}", leads[i]);
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn the_same_as_by_distances(
            d in 1usize..7,
            values in proptest::collection::vec(-3i32..4, 0..150),
            centres in proptest::collection::vec(-3i32..4, 1..60),
            scale in prop_oneof![Just(1.0), Just(0.1), Just(1e160), Just(1e-45), Just(1e-160), Just(1e308), Just(5e-324)],
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
            let want = p.nearest(centres).0;
            let mut prepared = Centres::new(centres, d);
            let mut leads = Vec::new();
            prepared.assign(&p, &mut index, &mut leads);
            prop_assert_eq!(&index, &want);
            no_more_than_true(&p, centres, &index, &leads)?;
            prepared.rough = None;
            prepared.assign(&p, &mut index, &mut leads);
            prop_assert_eq!(&index, &want);
            no_more_than_true(&p, centres, &index, &leads)?;
            index.clear();
            leads.clear();
            let scores = &prepared.plain;
            Plain { scores, centres, points: &p, index: &mut index, leads: &mut leads }.run(Portable);
            index.truncate(p.len());
            prop_assert_eq!(&index, &want);
            // What floats are sure of is so.
            if let Some(scores) = Centres::new(centres, d).rough {
                let (mut close, mut floats, origin) = (vec![], vec![], &prepared.origin);
                let (mut index, mut leads) = (vec![], vec![]);
                let (floats, index, close) = (&mut floats, &mut index, &mut close);
                Rough { scores: &scores, origin, points: &p, floats, index, leads: &mut leads, close }.run(Portable);
                for (i, w) in want.iter().enumerate() {
                    prop_assert!(close.contains(&i) || index[i] == *w);
                }
            }
        }
    }
}
