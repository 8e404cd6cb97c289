//! Exact sums of the coordinates of each cluster, at the speed of plain ones.
//!
//! Adding and subtracting a power of two splits a coordinate into a multiple of a fixed unit and a remainder, both
//! exactly. The units are such that the multiples of all points at hand add up exactly in doubles, in any
//! order, so points go to the sums of their clusters one by one; the remainders are split once more in the same way.
//! What is left then, almost always nothing, is added exactly on its own. See `exact::pieces` for the method.

use super::points::{LANES, Points};
use crate::exact::ExactSum;
use stead_simd::{Vector, Work, dispatch};

/// Points whose sums are kept in doubles.
pub const MOST: usize = 2048;
/// Exponents of coordinates for which no unit overflows or underflows.
const EXPONENTS: std::ops::Range<u64> = 1023 - 900..1023 + 900;

/// The sums of the points at hand.
#[derive(Default)]
pub struct Sums {
    /// Multiples of the large unit and of the small one, of four coordinates of a cluster at a time.
    totals: Vec<[[f64; 4]; 2]>,
    /// Points in each cluster.
    counts: Vec<u32>,
}

impl Sums {
    /// Adds the points, number `i` of them to cluster `index[i]`. There are at most [`MOST`]. The sum of
    /// coordinate `j` of cluster `c` is `sums[c * d + j]`.
    pub fn add(
        &mut self,
        points: &Points,
        index: &[u32],
        sizes: &mut [u64],
        sums: &mut [ExactSum],
    ) {
        let (d, quads) = (points.d(), points.stride() / 4);
        self.counts.resize(sizes.len(), 0);
        self.totals.resize(sizes.len() * quads, [[0.0; 4]; 2]);
        index.iter().for_each(|c| self.counts[*c as usize] += 1);
        match units(points) {
            Some(units) => {
                dispatch(Add { points, index, units: &units, totals: &mut self.totals, sums })
            }
            None => {
                for (p, c) in index.iter().enumerate() {
                    for j in 0..d {
                        sums[*c as usize * d + j].add(points.get(p, j));
                    }
                }
            }
        }
        let clusters = self.counts.iter_mut().zip(sizes).zip(self.totals.chunks_exact_mut(quads));
        for (c, ((count, size), totals)) in clusters.enumerate() {
            if *count == 0 {
                continue;
            }
            *size += u64::from(std::mem::take(count));
            for j in 0..d {
                let own = &mut totals[j / 4];
                let sum = &mut sums[c * d + j];
                sum.add(std::mem::take(&mut own[0][j % 4]));
                sum.add(std::mem::take(&mut own[1][j % 4]));
            }
        }
    }
}

/// What splits four coordinates: by the large unit and by the small one.
type Units = [[f64; 4]; 2];

/// The powers of two that split the coordinates of these points; `None` if they would not be normal numbers.
fn units(points: &Points) -> Option<Vec<Units>> {
    let mut units = vec![[[0.0; 4]; 2]; points.stride() / 4];
    for (j, largest) in points.largest().iter().enumerate() {
        if *largest == 0.0 {
            continue;
        }
        let exponent = largest.to_bits() >> 52;
        if !EXPONENTS.contains(&exponent) {
            return None;
        }
        // More than twice the sum of 2048 magnitudes, each below the next power of two.
        let large = exponent + 13;
        // A remainder is at most 2^-53 of that, and there are 2048 again.
        let small = large - 53 + 12;
        units[j / 4][0][j % 4] = f64::from_bits(large << 52);
        units[j / 4][1][j % 4] = f64::from_bits(small << 52);
    }
    Some(units)
}

struct Add<'a> {
    points: &'a Points,
    index: &'a [u32],
    units: &'a [Units],
    totals: &'a mut [[[f64; 4]; 2]],
    sums: &'a mut [ExactSum],
}

impl Work for Add<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(mut self, v: V) {
        let quads = self.units.len();
        let d = self.points.d();
        for (tile, index) in
            self.points.tiles().chunks_exact(4 * quads).zip(self.index.chunks(LANES))
        {
            let (units, totals) = (self.units, &mut *self.totals);
            // With the number known there are no loops, and the units stay in registers.
            let rough = match quads {
                1 => add_tile::<V, 1>(v, tile, index, units, totals),
                2 => add_tile::<V, 2>(v, tile, index, units, totals),
                3 => add_tile::<V, 3>(v, tile, index, units, totals),
                4 => add_tile::<V, 4>(v, tile, index, units, totals),
                _ => add_tile::<V, 0>(v, tile, index, units, totals),
            };
            if rough {
                self.rest(tile, index, d);
            }
        }
    }
}

/// Adds eight points of `4 * Q` coordinates, or any number of them if `Q` is 0. True if something is left of one of them.
#[allow(clippy::needless_range_loop)] // See `stead_simd`.
#[inline(always)]
fn add_tile<V: Vector, const Q: usize>(
    v: V,
    tile: &[[f64; LANES]],
    index: &[u32],
    units: &[Units],
    totals: &mut [[[f64; 4]; 2]],
) -> bool {
    let zero = v.splat(0.0);
    let (mut least, mut most) = (zero, zero);
    let quads = if Q == 0 { units.len() } else { Q };
    let (tile, units) = (&tile[..4 * quads], &units[..quads]);
    for l in 0..index.len().min(LANES) {
        let own = &mut totals[index[l] as usize * quads..][..quads];
        for q in 0..quads {
            let four = &tile[4 * q..4 * q + 4];
            let x = v.load(&[four[0][l], four[1][l], four[2][l], four[3][l]]);
            let (large, small) = (v.load(&units[q][0]), v.load(&units[q][1]));
            let high = v.sub(v.add(x, large), large);
            let rest = v.sub(x, high);
            let low = v.sub(v.add(rest, small), small);
            let rest = v.sub(rest, low);
            let [a, b] = &mut own[q];
            v.store(v.add(v.load(a), high), a);
            v.store(v.add(v.load(b), low), b);
            least = v.min(rest, least);
            most = v.max(rest, most);
        }
    }
    v.bits(v.less(least, most)) != 0
}

impl Add<'_> {
    /// Adds what is left of eight points.
    #[cold]
    fn rest(&mut self, tile: &[[f64; LANES]], index: &[u32], d: usize) {
        for (l, c) in index.iter().enumerate() {
            for j in 0..d {
                let [large, small] = self.units[j / 4].map(|u| u[j % 4]);
                let x = tile[j][l];
                let rest = x - ((x + large) - large);
                let rest = rest - ((rest + small) - small);
                if rest != 0.0 {
                    self.sums[*c as usize * d + j].add(rest);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::points::tests::table;
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn sums_are_exact(
            d in 1usize..10,
            values in proptest::collection::vec(
                prop_oneof![-1e3..1e3, Just(0.0), Just(1e-30), Just(-5e-324), -1e-8..1e-8],
                0..400,
            ),
            huge in prop_oneof![4 => Just(1.0), 1 => Just(1e290), 1 => Just(1e-290)],
            k in 1usize..5,
        ) {
            let points: Vec<Vec<f64>> =
                values.chunks_exact(d).map(|c| c.iter().map(|x| x * huge).collect()).collect();
            let t = table(&points, d, 0);
            let p = Points::of(&t.block(0), &(0..d).collect::<Vec<_>>()).expect("points");
            let index: Vec<u32> = (0..points.len()).map(|i| (i * i % k) as u32).collect();
            let mut work = Sums::default();
            // Twice, as nothing may be left behind by the first time.
            let (mut sizes, mut sums) = (vec![0; k], vec![ExactSum::new(); k * d]);
            work.add(&p, &index, &mut sizes, &mut sums);
            work.add(&p, &index, &mut sizes, &mut sums);
            let (mut counts, mut want) = (vec![0; k], vec![ExactSum::new(); k * d]);
            for (point, c) in points.iter().zip(&index) {
                counts[*c as usize] += 2;
                for (j, x) in point.iter().enumerate() {
                    want[*c as usize * d + j].add(*x);
                    want[*c as usize * d + j].add(*x);
                }
            }
            prop_assert_eq!(sizes, counts);
            prop_assert!(sums == want);
        }
    }

    #[test]
    fn a_full_group_of_the_largest_values_is_exact() {
        // All ones, so that every sum is as large as it can be.
        let x = f64::from_bits((1023 << 52) | ((1 << 52) - 1));
        let points = vec![vec![x]; MOST];
        let t = table(&points, 1, 0);
        let p = Points::of(&t.block(0), &[0]).expect("points");
        let (mut sizes, mut sums) = (vec![0], vec![ExactSum::new()]);
        Sums::default().add(&p, &vec![0; MOST], &mut sizes, &mut sums);
        assert_eq!((sizes[0], sums[0].to_f64()), (MOST as u64, x * MOST as f64));
    }
}
