//! The points of a block, and the nearest of some centres to each of them.

use stead_core::{Block, Error, Result};

/// Points that are worked on side by side.
pub const LANES: usize = 8;

/// The complete points of a block: rows without a missing, NaN or infinite coordinate.
pub struct Points {
    /// Coordinates of [`LANES`] points at a time: coordinate `j` of point `p` is
    /// `tiles[p / LANES * d + j][p % LANES]`. The last tile is filled up with zeros.
    tiles: Vec<[f64; LANES]>,
    /// Row of each point in the block.
    pub rows: Vec<u32>,
    /// Number of coordinates.
    d: usize,
    /// Rows left out.
    pub dropped: u64,
}

impl Points {
    /// Takes the columns `ids` of a block. Cost: one copy.
    pub fn of(block: &Block<'_>, ids: &[usize]) -> Result<Points> {
        let d = ids.len();
        let columns: Vec<&[f64]> = ids.iter().map(|i| block.numbers(*i)).collect();
        if columns.iter().any(|c| c.len() != block.rows) {
            return Err(Error::internal("a block came without the columns of its points"));
        }
        let mut whole = vec![true; block.rows];
        for c in &columns {
            whole.iter_mut().zip(*c).for_each(|(w, x)| *w &= x.is_finite());
        }
        // A block has fewer than 2^32 rows: its offsets are 32-bit.
        let rows: Vec<u32> =
            whole.iter().enumerate().filter(|(_, w)| **w).map(|(i, _)| i as u32).collect();
        let mut tiles = vec![[0.0; LANES]; rows.len().div_ceil(LANES) * d];
        for (rows, tile) in rows.chunks(LANES).zip(tiles.chunks_mut(d.max(1))) {
            for (lanes, column) in tile.iter_mut().zip(&columns) {
                lanes.iter_mut().zip(rows).for_each(|(x, row)| *x = column[*row as usize]);
            }
        }
        let dropped = (block.rows - rows.len()) as u64;
        Ok(Points { tiles, rows, d, dropped })
    }

    /// Number of points.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Coordinate `j` of point `p`.
    #[inline]
    pub fn get(&self, p: usize, j: usize) -> f64 {
        self.tiles[p / LANES * self.d + j][p % LANES]
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
    /// each point's answer is the same wherever it is computed, and for any number of lanes. This is
    /// the loop that a hand-vectorised version has to replace.
    pub fn nearest(&self, centres: &[f64]) -> (Vec<u32>, Vec<f64>) {
        let mut index = Vec::with_capacity(self.tiles.len());
        let mut distance = Vec::with_capacity(self.tiles.len());
        for tile in self.tiles.chunks_exact(self.d.max(1)) {
            let mut best = [f64::INFINITY; LANES];
            // As wide as the distances, so that both are selected by the same mask.
            let mut which = [0u64; LANES];
            for (c, centre) in centres.chunks_exact(self.d.max(1)).enumerate() {
                let mut sum = [0.0; LANES];
                for (lanes, at) in tile.iter().zip(centre) {
                    for l in 0..LANES {
                        let difference = lanes[l] - at;
                        sum[l] += difference * difference;
                    }
                }
                for l in 0..LANES {
                    let nearer = sum[l] < best[l];
                    best[l] = if nearer { sum[l] } else { best[l] };
                    which[l] = if nearer { c as u64 } else { which[l] };
                }
            }
            distance.extend_from_slice(&best);
            index.extend(which.map(|c| c as u32));
        }
        index.truncate(self.len());
        distance.truncate(self.len());
        (index, distance)
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
