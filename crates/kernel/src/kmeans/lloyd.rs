//! Lloyd's rounds: give each point to its nearest centre, move each centre to the mean of its points.
//!
//! Sums of coordinates are exact and means are rounded once, so the centres are the same bits for any
//! split, round after round.

use super::Plan;
use super::points::Points;
use crate::exact::{ExactSum, ratio};
use crate::{Kernel, Step};
use num_bigint::BigUint;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Result, Value};

/// The first round, or the answer if there is no point at all.
pub fn start(plan: &Arc<Plan>, centres: Vec<f64>, dropped: u64) -> Result<Step> {
    let goal = if plan.rounds == 0 { Goal::Measure { converged: false } } else { Goal::Move };
    let lloyd = Lloyd { plan: plan.clone(), centres, done: 0, goal };
    if lloyd.centres.is_empty() {
        let tally = Tally { dropped, ..Tally::default() };
        return Ok(Step::Done(lloyd.answer(&tally, true)));
    }
    Ok(Step::Next(Arc::new(lloyd)))
}

struct Lloyd {
    plan: Arc<Plan>,
    /// Coordinates of the centres, one centre after the other.
    centres: Vec<f64>,
    /// Rounds done before this pass.
    done: usize,
    goal: Goal,
}

enum Goal {
    /// A round.
    Move,
    /// The centres are final: sizes and inertia are to be those of just these centres.
    Measure { converged: bool },
}

/// What a pass sums up for each cluster.
#[derive(Default, Serialize, Deserialize)]
struct Tally {
    sizes: Vec<u64>,
    /// Sum of coordinate `j` of cluster `c` at `c * d + j`.
    sums: Vec<ExactSum>,
    /// Sum of squared distances.
    inertia: ExactSum,
    dropped: u64,
}

impl Lloyd {
    fn d(&self) -> usize {
        self.plan.d()
    }

    fn k(&self) -> usize {
        self.centres.len() / self.d()
    }

    fn answer(&self, tally: &Tally, converged: bool) -> Value {
        let centroids = self.centres.chunks_exact(self.d()).map(|c| Value::floats(c.to_vec()));
        let columns = self.plan.columns.names.iter().cloned().map(Value::Text);
        Value::map([
            ("centroids", Value::List(centroids.collect())),
            ("columns", Value::List(columns.collect())),
            ("sizes", Value::List(tally.sizes.iter().copied().map(Value::Int).collect())),
            ("inertia", Value::Float(tally.inertia.to_f64())),
            ("rounds", Value::Int(self.done as u64)),
            ("converged", Value::Bool(converged)),
            ("dropped", Value::Int(tally.dropped)),
        ])
    }

    /// The means of the clusters; an empty cluster keeps its centre.
    fn moved(&self, tally: &Tally) -> Vec<f64> {
        let mut centres = self.centres.clone();
        let clusters = centres.chunks_exact_mut(self.d()).zip(tally.sums.chunks_exact(self.d()));
        for ((centre, sums), size) in clusters.zip(&tally.sizes) {
            if *size == 0 {
                continue;
            }
            for (x, sum) in centre.iter_mut().zip(sums) {
                let (total, exponent) = sum.to_scaled();
                *x = ratio::round_ratio(&total, &BigUint::from(*size), exponent);
            }
        }
        centres
    }
}

impl Kernel for Lloyd {
    type State = Tally;

    fn needs(&self) -> Needs {
        self.plan.columns.needs()
    }

    fn init(&self) -> Tally {
        let sums = match self.goal {
            Goal::Move => vec![ExactSum::new(); self.centres.len()],
            Goal::Measure { .. } => Vec::new(),
        };
        Tally { sizes: vec![0; self.k()], sums, ..Tally::default() }
    }

    fn update(&self, tally: &mut Tally, block: &Block<'_>) -> Result<()> {
        let points = Points::of(block, &self.plan.columns.ids)?;
        tally.dropped += points.dropped;
        let (index, distance) = points.nearest(&self.centres);
        tally.inertia.add_slice(&distance);
        // Points in the order of their clusters: each cluster's values make one slice for the exact
        // sum, which is many times faster than adding them one by one.
        let mut starts = vec![0usize; self.k() + 1];
        index.iter().for_each(|c| starts[*c as usize + 1] += 1);
        for c in 0..self.k() {
            tally.sizes[c] += starts[c + 1] as u64;
            starts[c + 1] += starts[c];
        }
        if matches!(self.goal, Goal::Measure { .. }) {
            return Ok(());
        }
        let mut next = starts.clone();
        let mut order = vec![0usize; points.len()];
        for (p, c) in index.iter().enumerate() {
            let at = &mut next[*c as usize];
            order[*at] = p;
            *at += 1;
        }
        let mut values = vec![0.0; points.len()];
        for j in 0..self.d() {
            values.iter_mut().zip(&order).for_each(|(v, p)| *v = points.get(*p, j));
            for c in 0..self.k() {
                let own = &values[starts[c]..starts[c + 1]];
                if !own.is_empty() {
                    tally.sums[c * self.d() + j].add_slice(own);
                }
            }
        }
        Ok(())
    }

    fn merge(&self, tally: &mut Tally, other: Tally) -> Result<()> {
        tally.sizes.iter_mut().zip(other.sizes).for_each(|(a, b)| *a = a.saturating_add(b));
        tally.sums.iter_mut().zip(&other.sums).for_each(|(a, b)| a.merge(b));
        tally.inertia.merge(&other.inertia);
        tally.dropped = tally.dropped.saturating_add(other.dropped);
        Ok(())
    }

    fn check(&self, tally: &Tally) -> Result<()> {
        let sums = match self.goal {
            Goal::Move => self.centres.len(),
            Goal::Measure { .. } => 0,
        };
        if (tally.sizes.len(), tally.sums.len()) == (self.k(), sums) {
            return Ok(());
        }
        Err(Error::format("a state from another rank has another number of clusters"))
    }

    fn finish(&self, tally: Tally) -> Result<Step> {
        if let Goal::Measure { converged } = self.goal {
            return Ok(Step::Done(self.answer(&tally, converged)));
        }
        let done = self.done + 1;
        let centres = self.moved(&tally);
        let shift: f64 =
            centres.iter().zip(&self.centres).map(|(new, old)| (new - old) * (new - old)).sum();
        let same = centres == self.centres;
        let next = |goal| Lloyd { plan: self.plan.clone(), centres, done, goal };
        Ok(if same {
            // The tally is already that of the final centres.
            Step::Done(next(Goal::Move).answer(&tally, true))
        } else if shift <= self.plan.tolerance {
            Step::Next(Arc::new(next(Goal::Measure { converged: true })))
        } else if done == self.plan.rounds {
            Step::Next(Arc::new(next(Goal::Measure { converged: false })))
        } else {
            Step::Next(Arc::new(next(Goal::Move)))
        })
    }

    fn state_bytes(&self, tally: &Tally) -> usize {
        let sums: usize = tally.sums.iter().map(ExactSum::bytes).sum();
        size_of::<Tally>() + 8 * tally.sizes.len() + sums
    }
}
