//! What is remembered of the points of a block from round to round.
//!
//! A point whose nearest centre leads by more than centres have moved since keeps it: by the triangle inequality no other
//! one can have come nearer. In later rounds that is most points, and they cost a look at two numbers (G. Hamerly,
//! "Making k-means even faster", SDM 2010; one bound here, the lead, in place of two). Sums of clusters change by the
//! points that change their cluster. They are exact, so that what was added can be taken away again, and the sum
//! is to the last bit what it would be without it.

use super::assign::Centres;
use super::points::Points;
use super::sums::{MOST, Sums};
use crate::exact::ExactSum;
use std::ops::Range;
use stead_core::{Block, Result};

/// Of the points of one block: their clusters, and the sums of these.
pub struct Memory {
    rows: Vec<Known>,
    /// True before the first round.
    fresh: bool,
    /// Rows left out.
    pub dropped: u64,
    /// Points in each cluster.
    pub sizes: Vec<u64>,
    /// Sum of coordinate `j` of cluster `c` at `c * d + j`.
    pub sums: Vec<ExactSum>,
}

/// What is known of a row.
#[derive(Clone, Copy)]
struct Known {
    /// The nearest centre; of no meaning for rows left out.
    centre: u32,
    /// As long as the drift of its centre is below this, the row need not be looked at; infinite for rows left out.
    until: f32,
}

/// How far centres have come since the first round.
#[derive(Clone)]
pub struct Drift {
    /// For each centre a bound on what all rounds together may have taken from its lead: its own moves, and those of the
    /// other centre that moved furthest.
    total: Vec<f64>,
    /// The same, rounded.
    rounded: Vec<f32>,
}

impl Drift {
    /// Of `k` centres that have not moved.
    pub fn new(k: usize) -> Self {
        Drift { total: vec![0.0; k], rounded: vec![0.0; k] }
    }

    /// Adds a round.
    pub fn add(&mut self, old: &[f64], new: &[f64], d: usize) {
        let square = |(a, b): (&f64, &f64)| (a - b) * (a - b);
        let far = |(a, b): (&[f64], &[f64])| a.iter().zip(b).map(square).sum::<f64>().sqrt();
        let moves: Vec<f64> = old.chunks_exact(d).zip(new.chunks_exact(d)).map(far).collect();
        let most = |but: usize| {
            let others = moves.iter().enumerate().filter(|(i, _)| *i != but);
            others.fold((usize::MAX, 0.0), |m, (i, x)| if *x > m.1 { (i, *x) } else { m })
        };
        let (first, most_of_all) = most(usize::MAX);
        let (_, next) = most(first);
        for (c, own) in moves.iter().enumerate() {
            let other = if c == first { next } else { most_of_all };
            // More than it is by far more than the roundings of it, and of distances to centres that far away.
            let more = (own + other) * (1.0 + 1e-6);
            self.total[c] = (self.total[c] + more) * (1.0 + f64::EPSILON);
            self.rounded[c] = self.total[c] as f32;
        }
    }
}

/// Where a round works.
#[derive(Default)]
pub struct Desk {
    points: Points,
    moved: Points,
    sums: Sums,
    index: Vec<u32>,
    leads: Vec<f32>,
    due: Vec<u32>,
    changed: Vec<u32>,
    clusters: Vec<u32>,
    distances: Vec<f64>,
}

impl Memory {
    /// True if it is worth its memory: `k` centres of `d` coordinates, and so many rows.
    pub fn pays(rows: usize, k: usize) -> bool {
        // An exact sum takes about 128 bytes, and a quarter of what the points take may be spent.
        rows >= 64 * k
    }

    /// Of points of which nothing is known.
    pub fn new(rows: usize, k: usize, d: usize) -> Self {
        Memory {
            rows: vec![Known { centre: 0, until: f32::NEG_INFINITY }; rows],
            fresh: true,
            dropped: 0,
            sizes: vec![0; k],
            sums: vec![ExactSum::new(); k * d],
        }
    }

    /// Bytes that one takes, about.
    pub fn bytes(rows: usize, k: usize, d: usize) -> usize {
        rows * size_of::<Known>() + k * (size_of::<u64>() + 128 * d)
    }

    /// True if it is one for so many rows and centres.
    pub fn fits(&self, rows: usize, k: usize, d: usize) -> bool {
        (self.rows.len(), self.sizes.len(), self.sums.len()) == (rows, k, k * d)
    }

    /// Finds the nearest centre of all points anew, and the sums of the clusters.
    pub fn round(
        &mut self,
        block: &Block<'_>,
        ids: &[usize],
        centres: &mut Centres<'_>,
        drift: &Drift,
        desk: &mut Desk,
    ) -> Result<()> {
        for from in (0..block.rows).step_by(MOST) {
            let rows = from..block.rows.min(from + MOST);
            self.assign(block, ids, rows, centres, drift, desk)?;
            let Desk { points, moved, sums, index, changed, clusters, .. } = &mut *desk;
            if self.fresh {
                self.dropped += points.dropped;
                sums.add(points, index, &mut self.sizes, &mut self.sums);
                continue;
            }
            if changed.is_empty() {
                continue;
            }
            moved.take_of(points, changed);
            let to: Vec<u32> = changed.iter().map(|p| index[*p as usize]).collect();
            sums.add(moved, &to, &mut self.sizes, &mut self.sums);
            moved.negate();
            let mut left = vec![0; self.sizes.len()];
            sums.add(moved, clusters, &mut left, &mut self.sums);
            self.sizes.iter_mut().zip(left).for_each(|(n, left)| *n -= left);
        }
        self.fresh = false;
        Ok(())
    }

    /// Counts the points of each cluster and adds their squared distances from its centre, without sums of clusters.
    pub fn measure(
        &mut self,
        block: &Block<'_>,
        ids: &[usize],
        centres: &mut Centres<'_>,
        drift: &Drift,
        desk: &mut Desk,
        inertia: &mut ExactSum,
    ) -> Result<()> {
        self.sizes.fill(0);
        self.dropped = 0;
        for from in (0..block.rows).step_by(MOST) {
            let rows = from..block.rows.min(from + MOST);
            self.assign(block, ids, rows.clone(), centres, drift, desk)?;
            let Desk { points, index, distances, .. } = &mut *desk;
            points.take(block, ids, rows)?;
            self.dropped += points.dropped;
            index.clear();
            index.extend(points.rows.iter().map(|r| self.rows[*r as usize].centre));
            index.iter().for_each(|c| self.sizes[*c as usize] += 1);
            points.distances(centres.all(), index, distances);
            inertia.add_slice(distances);
        }
        Ok(())
    }

    /// Finds the nearest centre of those of some rows that must be looked at. These are `desk.points` then, with their
    /// centres in `desk.index`; those that changed are `desk.changed`, and had `desk.clusters` before.
    fn assign(
        &mut self,
        block: &Block<'_>,
        ids: &[usize],
        rows: Range<usize>,
        centres: &mut Centres<'_>,
        drift: &Drift,
        desk: &mut Desk,
    ) -> Result<()> {
        let Desk { points, index, leads, due, changed, clusters, .. } = desk;
        changed.clear();
        clusters.clear();
        let due = self.due(rows.clone(), &drift.rounded, due);
        if 2 * due.len() > rows.len() {
            points.take(block, ids, rows.clone())?;
            if self.fresh {
                // Rows that are left out never are due again.
                self.rows[rows].fill(Known { centre: 0, until: f32::INFINITY });
            }
        } else {
            points.take_some(block, ids, due)?;
        }
        centres.assign(points, index, leads);
        for ((p, row), (c, lead)) in (0u32..).zip(&points.rows).zip(index.iter().zip(&*leads)) {
            let known = &mut self.rows[*row as usize];
            // Rounded down, where it is not negative and so of no meaning.
            let until = (f64::from(*lead) + drift.total[*c as usize]) * (1.0 - f64::EPSILON);
            known.until = until as f32;
            if known.centre != *c {
                changed.push(p);
                clusters.push(known.centre);
                known.centre = *c;
            }
        }
        Ok(())
    }

    /// The rows that must be looked at, in a buffer for them.
    fn due<'d>(&self, rows: Range<usize>, drift: &[f32], buffer: &'d mut Vec<u32>) -> &'d [u32] {
        buffer.resize(MOST, 0);
        let mut n = 0;
        for (row, known) in (rows.start as u32..).zip(&self.rows[rows]) {
            // There are as many places as rows. Written each time, so that there is nothing to guess.
            if let Some(place) = buffer.get_mut(n) {
                *place = row;
            }
            let bound = drift.get(known.centre as usize).copied().unwrap_or(f32::NAN);
            // A NaN is not less.
            let sure = bound < known.until;
            n += usize::from(!sure);
        }
        &buffer[..n]
    }
}
