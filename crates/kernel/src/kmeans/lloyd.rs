//! Lloyd's rounds: give each point to its nearest centre, move each centre to the mean of its points.
//!
//! Sums of coordinates are exact and means are rounded once, so the centres are the same bits for any
//! split, round after round.

use super::Plan;
use super::assign::Centres;
use super::memory::{Desk, Drift, Memory};
use super::points::Points;
use super::sums::{MOST, Sums};
use crate::exact::{ExactSum, ratio};
use crate::{Kernel, Step};
use num_bigint::BigUint;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stead_core::block::note_owner;
use stead_core::{Block, Error, Needs, Result, Value};

/// The first round, or the answer if there is no point at all.
pub fn start(plan: &Arc<Plan>, centres: Vec<f64>, dropped: u64) -> Result<Step> {
    let goal = if plan.rounds == 0 { Goal::Measure { converged: false } } else { Goal::Move };
    let drift = Drift::new(centres.len() / plan.d());
    let owner = note_owner();
    let lloyd = Lloyd { plan: plan.clone(), centres, done: 0, goal, owner, drift };
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
    /// Who made the notes about blocks that these rounds look at.
    owner: u64,
    /// How far the centres have come.
    drift: Drift,
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
    /// Sum of squared distances, once the centres are final.
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

    /// Adds a block whose points are known from the round before, or will be known in the next one. False, and nothing
    /// done, if nothing is remembered of this block.
    fn recall(&self, tally: &mut Tally, block: &Block<'_>) -> Result<bool> {
        let (rows, k, d) = (block.rows, self.k(), self.d());
        let bytes = Memory::bytes(rows, k, d);
        let Some(notes) = block.notes.filter(|_| Memory::pays(rows, k)) else { return Ok(false) };
        let known = notes.take(self.owner).and_then(|n| n.downcast::<Memory>().ok());
        let mut memory = match (known.filter(|m| m.fits(rows, k, d)), &self.goal) {
            (Some(m), _) => m,
            // Nothing comes after it.
            (None, Goal::Measure { .. }) => return Ok(false),
            (None, Goal::Move) if notes.room(bytes) => Box::new(Memory::new(rows, k, d)),
            (None, Goal::Move) => return Ok(false),
        };
        let (ids, centres) = (&self.plan.columns.ids, &mut Centres::new(&self.centres, d));
        let desk = &mut Desk::default();
        match self.goal {
            Goal::Move => {
                memory.round(block, ids, centres, &self.drift, desk)?;
                tally.sums.iter_mut().zip(&memory.sums).for_each(|(a, b)| a.merge(b));
            }
            Goal::Measure { .. } => {
                memory.measure(block, ids, centres, &self.drift, desk, &mut tally.inertia)?;
            }
        }
        tally.sizes.iter_mut().zip(&memory.sizes).for_each(|(a, b)| *a += b);
        tally.dropped += memory.dropped;
        if let Goal::Move = self.goal {
            notes.put(self.owner, memory, bytes);
        }
        Ok(true)
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
        if self.recall(tally, block)? {
            return Ok(());
        }
        let mut points = Points::default();
        let mut prepared = Centres::new(&self.centres, self.d());
        let mut work = Sums::default();
        let (mut index, mut leads) = (Vec::new(), Vec::new());
        for from in (0..block.rows).step_by(MOST) {
            let rows = from..block.rows.min(from + MOST);
            points.take(block, &self.plan.columns.ids, rows)?;
            tally.dropped += points.dropped;
            match self.goal {
                Goal::Move => {
                    prepared.assign(&points, &mut index, &mut leads);
                    work.add(&points, &index, &mut tally.sizes, &mut tally.sums);
                }
                Goal::Measure { .. } => {
                    let (index, distance) = points.nearest(&self.centres);
                    index.iter().for_each(|c| tally.sizes[*c as usize] += 1);
                    tally.inertia.add_slice(&distance);
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

    fn is_last(&self) -> bool {
        matches!(self.goal, Goal::Measure { .. })
    }

    fn finish(&self, tally: Tally) -> Result<Step> {
        if let Goal::Measure { converged } = self.goal {
            return Ok(Step::Done(self.answer(&tally, converged)));
        }
        let done = self.done + 1;
        let centres = self.moved(&tally);
        let shift: f64 =
            centres.iter().zip(&self.centres).map(|(new, old)| (new - old) * (new - old)).sum();
        // Of the centre that moved furthest.
        let furthest = centres
            .chunks_exact(self.d())
            .zip(self.centres.chunks_exact(self.d()))
            .map(|(new, old)| new.iter().zip(old).map(|(a, b)| (a - b) * (a - b)).sum::<f64>())
            .fold(0.0, f64::max);
        let still = centres == self.centres
            || shift <= self.plan.tolerance
            || self.plan.delta.is_some_and(|d| furthest.sqrt() <= d);
        let mut drift = self.drift.clone();
        drift.add(&self.centres, &centres, self.d());
        let next =
            |goal| Lloyd { plan: self.plan.clone(), centres, done, goal, owner: self.owner, drift };
        // Sizes and inertia are measured for the centres as they are now.
        Ok(Step::Next(Arc::new(if still || done == self.plan.rounds {
            next(Goal::Measure { converged: still })
        } else {
            next(Goal::Move)
        })))
    }

    fn more_passes(&self) -> bool {
        matches!(self.goal, Goal::Move)
    }

    fn state_bytes(&self, tally: &Tally) -> usize {
        let sums: usize = tally.sums.iter().map(ExactSum::bytes).sum();
        size_of::<Tally>() + 8 * tally.sizes.len() + sums
    }
}
