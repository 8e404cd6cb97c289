//! The points of a block, and the nearest of some centres to each of them.

use std::ops::Range;
use stead_core::{Block, Error, Result};
use stead_simd::{Vector, Work, dispatch};

/// Points that are worked on side by side.
pub const LANES: usize = 8;

/// The complete points of a block, or of a part of one: rows without a missing, NaN or infinite coordinate.
#[derive(Default)]
pub struct Points {
    /// Coordinates of [`LANES`] points at a time: coordinate `j` of point `p` is
    /// `tiles[p / LANES * stride + j][p % LANES]`. The last tile is filled up with zeros, and so are the places
    /// after the last coordinate.
    tiles: Vec<[f64; LANES]>,
    /// Row of each point in the block.
    pub rows: Vec<u32>,
    /// Number of coordinates.
    d: usize,
    /// The same, up to a multiple of four.
    stride: usize,
    /// Of each coordinate the largest magnitude.
    largest: Vec<f64>,
    /// Rows left out.
    pub dropped: u64,
}

impl Points {
    /// Takes the columns `ids` of a block. Cost: one copy.
    pub fn of(block: &Block<'_>, ids: &[usize]) -> Result<Points> {
        let mut points = Points::default();
        points.take(block, ids, 0..block.rows)?;
        Ok(points)
    }

    /// Takes other points instead: some rows of a block.
    pub fn take(&mut self, block: &Block<'_>, ids: &[usize], rows: Range<usize>) -> Result<()> {
        let mut columns: Vec<&[f64]> = ids.iter().map(|i| block.numbers(*i)).collect();
        if columns.iter().any(|c| c.len() != block.rows) {
            return Err(Error::internal("a block came without the columns of its points"));
        }
        columns.iter_mut().for_each(|c| *c = &c[rows.clone()]);
        // A block has fewer than 2^32 rows: its offsets are 32-bit.
        let first = rows.start as u32;
        self.fill(&columns, |i| first + i);
        Ok(())
    }

    /// Takes other points instead: the rows of a block that have these numbers, ascending.
    pub fn take_some(&mut self, block: &Block<'_>, ids: &[usize], rows: &[u32]) -> Result<()> {
        let mut values = Vec::with_capacity(ids.len() * rows.len());
        for id in ids {
            let column = block.numbers(*id);
            if column.len() != block.rows {
                return Err(Error::internal("a block came without the columns of its points"));
            }
            values.extend(rows.iter().map(|r| column[*r as usize]));
        }
        let n = rows.len();
        let columns: Vec<&[f64]> = (0..ids.len()).map(|j| &values[j * n..][..n]).collect();
        self.fill(&columns, |i| rows[i as usize]);
        Ok(())
    }

    /// Takes the points of columns, `row(i)` being the row of the one at `i`.
    fn fill(&mut self, columns: &[&[f64]], row: impl Fn(u32) -> u32) {
        let n = columns.first().map_or(0, |c| c.len());
        self.d = columns.len();
        self.stride = columns.len().next_multiple_of(4);
        self.largest.clear();
        self.rows.clear();
        self.dropped = 0;
        if dispatch(Fill { columns, points: self }) {
            self.rows.extend((0..n as u32).map(row));
            return;
        }
        // Some are incomplete: the others move together.
        let mut whole = vec![true; n];
        for c in columns {
            whole.iter_mut().zip(*c).for_each(|(w, x)| *w &= x.is_finite());
        }
        let kept = || whole.iter().zip(0u32..).filter(|(w, _)| **w).map(|(_, i)| i);
        let copies: Vec<Vec<f64>> =
            columns.iter().map(|c| kept().map(|i| c[i as usize]).collect()).collect();
        let columns: Vec<&[f64]> = copies.iter().map(Vec::as_slice).collect();
        self.largest.clear();
        dispatch(Fill { columns: &columns, points: self });
        self.rows.extend(kept().map(row));
        self.dropped = (n - self.rows.len()) as u64;
    }

    /// Takes some points of others instead, by their numbers there.
    pub fn take_of(&mut self, others: &Points, which: &[u32]) {
        let stride = others.stride;
        (self.d, self.stride, self.dropped) = (others.d, stride, 0);
        self.largest.clone_from(&others.largest);
        self.rows.clear();
        self.rows.extend(which.iter().map(|p| others.rows[*p as usize]));
        self.tiles.clear();
        self.tiles.resize(which.len().div_ceil(LANES) * stride, [0.0; LANES]);
        for (i, p) in which.iter().enumerate() {
            let from = &others.tiles[*p as usize / LANES * stride..][..stride];
            for (to, from) in self.tiles[i / LANES * stride..][..stride].iter_mut().zip(from) {
                to[i % LANES] = from[*p as usize % LANES];
            }
        }
    }

    /// Mirrors all points at the origin.
    pub fn negate(&mut self) {
        self.tiles.as_flattened_mut().iter_mut().for_each(|x| *x = -*x);
    }

    /// Coordinates of eight points at a time, [`Points::stride`] for each eight.
    pub fn tiles(&self) -> &[[f64; LANES]] {
        &self.tiles
    }

    /// Places of a tile.
    pub fn stride(&self) -> usize {
        self.stride
    }

    /// Number of coordinates.
    pub fn d(&self) -> usize {
        self.d
    }

    /// Of each coordinate the largest magnitude.
    pub fn largest(&self) -> &[f64] {
        &self.largest
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Coordinate `j` of point `p`.
    #[inline]
    pub fn get(&self, p: usize, j: usize) -> f64 {
        self.tiles[p / LANES * self.stride + j][p % LANES]
    }

    /// All coordinates of point `p`; a negative zero becomes zero.
    pub fn coordinates(&self, p: usize) -> Vec<f64> {
        (0..self.d).map(|j| self.get(p, j) + 0.0).collect()
    }

    /// For each point the number of the nearest centre and the squared distance to it. `centres` holds
    /// `d` coordinates for each; with none, all distances are infinite.
    ///
    /// The squared distance is the sum of the squared differences, added in the order of the
    /// columns and rounded after each operation; of centres at the same distance the first wins. So
    /// each point's answer is the same wherever it is computed, and for any number of lanes.
    pub fn nearest(&self, centres: &[f64]) -> (Vec<u32>, Vec<f64>) {
        let mut index = Vec::with_capacity(self.len().next_multiple_of(LANES));
        let mut distance = Vec::with_capacity(self.len().next_multiple_of(LANES));
        if self.d > 0 {
            let (index, distance) = (&mut index, &mut distance);
            dispatch(Nearest { points: self, centres, index, distance });
        }
        index.truncate(self.len());
        distance.truncate(self.len());
        (index, distance)
    }

    /// The squared distance of each point to its centre, number `index[p]` of `centres`: that of
    /// [`Points::nearest`].
    pub fn distances(&self, centres: &[f64], index: &[u32], distance: &mut Vec<f64>) {
        let d = self.d;
        distance.clear();
        let tiles = self.tiles.chunks_exact(self.stride.max(1));
        for (tile, index) in tiles.zip(index[..self.len()].chunks(LANES)) {
            let mut sum = [0.0; LANES];
            for (l, c) in index.iter().enumerate() {
                let centre = &centres[*c as usize * d..][..d];
                for (x, at) in tile.iter().zip(centre) {
                    let difference = x[l] - at;
                    sum[l] += difference * difference;
                }
            }
            distance.extend_from_slice(&sum[..index.len()]);
        }
    }
}

/// The nearest centre of one point of a tile, and the squared distance: what [`Points::nearest`] says.
pub fn nearest_of(tile: &[[f64; LANES]], lane: usize, centres: &[f64], d: usize) -> (u32, f64) {
    let mut best = (0, f64::INFINITY);
    for (c, centre) in (0u32..).zip(centres.chunks_exact(d)) {
        let mut sum = 0.0;
        for (x, at) in tile.iter().zip(centre) {
            let difference = x[lane] - at;
            sum += difference * difference;
        }
        if sum < best.1 {
            best = (c, sum);
        }
    }
    best
}

struct Nearest<'a> {
    points: &'a Points,
    centres: &'a [f64],
    index: &'a mut Vec<u32>,
    distance: &'a mut Vec<f64>,
}

impl Work for Nearest<'_> {
    type Out = ();

    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn run<V: Vector>(self, v: V) {
        let d = self.points.d;
        for tile in self.points.tiles.chunks_exact(self.points.stride) {
            let tile = &tile[..d];
            let mut best = [v.splat(f64::INFINITY); 2];
            // Numbers below 2^16 as doubles, so that both are selected by the same mask.
            let mut which = [v.splat(0.0); 2];
            for c in 0..self.centres.len() / d {
                let centre = &self.centres[c * d..][..d];
                let mut sum = [v.splat(0.0); 2];
                for j in 0..d {
                    let (halves, at) = (tile[j].as_chunks::<4>().0, v.splat(centre[j]));
                    for h in 0..2 {
                        let difference = v.sub(v.load(&halves[h]), at);
                        sum[h] = v.add(sum[h], v.mul(difference, difference));
                    }
                }
                for h in 0..2 {
                    let nearer = v.less(sum[h], best[h]);
                    best[h] = v.select(nearer, sum[h], best[h]);
                    which[h] = v.select(nearer, v.splat(c as f64), which[h]);
                }
            }
            for h in 0..2 {
                let mut out = [0.0; 4];
                v.store(best[h], &mut out);
                self.distance.extend_from_slice(&out);
                v.store(which[h], &mut out);
                self.index.extend_from_slice(&[
                    out[0] as u32,
                    out[1] as u32,
                    out[2] as u32,
                    out[3] as u32,
                ]);
            }
        }
    }
}

/// Fills the tiles with points whose coordinates are `columns`. False if one is not finite.
struct Fill<'a> {
    columns: &'a [&'a [f64]],
    points: &'a mut Points,
}

impl Work for Fill<'_> {
    type Out = bool;

    #[allow(clippy::needless_range_loop)] // See `stead_simd`.
    #[inline(always)]
    fn run<V: Vector>(self, v: V) -> bool {
        let Points { tiles, stride, largest, .. } = self.points;
        let (n, stride) = (self.columns.first().map_or(0, |c| c.len()), *stride);
        tiles.resize(n.div_ceil(LANES) * stride, [0.0; LANES]);
        // Nothing of the points before may stay behind, in the last tile and after the last coordinate.
        let end = tiles.len();
        if !n.is_multiple_of(LANES) {
            tiles[end - stride..].fill([0.0; LANES]);
        }
        for j in self.columns.len()..stride {
            tiles.iter_mut().skip(j).step_by(stride).for_each(|t| *t = [0.0; LANES]);
        }
        // Zero as long as all are finite.
        let mut odd = v.splat(0.0);
        let zero = v.splat(0.0);
        for (j, column) in self.columns.iter().enumerate() {
            let mut most = zero;
            for t in 0..n / LANES {
                let from = column[t * LANES..][..LANES].as_chunks::<4>().0;
                let to = tiles[t * stride + j].as_chunks_mut::<4>().0;
                for h in 0..2 {
                    let x = v.load(&from[h]);
                    v.store(x, &mut to[h]);
                    odd = v.add(odd, v.mul(x, zero));
                    most = v.max(v.max(x, v.sub(zero, x)), most);
                }
            }
            let mut out = [0.0; 4];
            v.store(most, &mut out);
            let mut most = out.iter().fold(0.0f64, |a, b| a.max(*b));
            for i in n / LANES * LANES..n {
                tiles[i / LANES * stride + j][i % LANES] = column[i];
                odd = v.add(odd, v.splat(column[i] * 0.0));
                most = most.max(column[i].abs());
            }
            largest.push(most);
        }
        let mut out = [0.0; 4];
        v.store(odd, &mut out);
        out.iter().all(|x| *x == 0.0)
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::{Columns, MISSING, Span};

    /// A table of numbers as one block.
    pub struct Table {
        pub ids: Vec<usize>,
        pub numbers: Vec<f64>,
        pub records: Vec<Span>,
        pub rows: usize,
        pub first: u64,
    }

    /// Points as rows, the first of which is record number `first` of its file.
    pub fn table(points: &[Vec<f64>], d: usize, first: u64) -> Table {
        Table {
            ids: (0..d).collect(),
            numbers: (0..d).flat_map(|j| points.iter().map(move |p| p[j])).collect(),
            records: (0..points.len()).map(|i| Span { start: 8 * i as u32, len: 8 }).collect(),
            rows: points.len(),
            first,
        }
    }

    impl Table {
        pub fn block(&self, source: u32) -> Block<'_> {
            Block {
                source,
                offset: 8 * self.first,
                rows: self.rows,
                records: &self.records,
                columns: Columns {
                    number_ids: &self.ids,
                    numbers: &self.numbers,
                    stride: self.rows,
                    ..Columns::default()
                },
                ..Block::empty()
            }
        }
    }

    #[test]
    fn incomplete_points_are_left_out() {
        let nan = f64::NAN;
        let t = table(
            &[
                vec![1.0, 2.0],
                vec![nan, 0.0],
                vec![0.0, MISSING],
                vec![f64::INFINITY, 1.0],
                vec![3.0, -0.0],
            ],
            2,
            0,
        );
        let p = Points::of(&t.block(0), &[0, 1]).expect("points");
        assert_eq!((p.rows.as_slice(), p.dropped), (&[0, 4][..], 3));
        assert_eq!(p.coordinates(0), [1.0, 2.0]);
        assert!(p.coordinates(1)[1].is_sign_positive());
        assert!(Points::of(&t.block(0), &[0, 5]).is_err());
    }

    #[test]
    fn ties_go_to_the_first_centre() {
        let t = table(&[vec![0.0], vec![1.0]], 1, 0);
        let p = Points::of(&t.block(0), &[0]).expect("points");
        let (i, d) = p.nearest(&[1.0, -1.0, 1.0]);
        assert_eq!((i, d), (vec![0, 0], vec![1.0, 0.0]));
        assert_eq!(p.nearest(&[]).1, [f64::INFINITY; 2]);
    }

    proptest! {
        #[test]
        fn the_nearest_is_the_nearest(
            d in 1usize..5,
            values in proptest::collection::vec(-3i32..4, 0..120),
            centres in proptest::collection::vec(-3.0f64..3.0, 0..30),
        ) {
            let points: Vec<Vec<f64>> = values
                .chunks_exact(d).map(|c| c.iter().map(|x| f64::from(*x)).collect()).collect();
            let centres = &centres[..centres.len() / d * d];
            let t = table(&points, d, 0);
            let p = Points::of(&t.block(0), &(0..d).collect::<Vec<_>>()).expect("points");
            let (index, distance) = p.nearest(centres);
            for (i, point) in points.iter().enumerate() {
                let mut best = (0u32, f64::INFINITY);
                for (c, centre) in centres.chunks(d).enumerate() {
                    let mut s = 0.0;
                    for j in 0..d {
                        s += (point[j] - centre[j]) * (point[j] - centre[j]);
                    }
                    if s < best.1 {
                        best = (c as u32, s);
                    }
                }
                prop_assert_eq!((index[i], distance[i].to_bits()), (best.0, best.1.to_bits()));
            }
        }
    }
}
