//! First centres, drawn so that the draw does not depend on the split.
//!
//! A point's luck is a hash of the seed and of where its record lies: its file and its offset there. So
//! every rank can draw for its own points, and the best draw of all wins. A row number within a block
//! would not do: it depends on where blocks begin. That is why seeding asks for the records' places,
//! which arrays give as well as text.

use super::lloyd;
use super::points::Points;
use super::{Plan, Start};
use crate::{Kernel, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Result};

/// The pass that draws the first centres, or the first of them.
pub fn first_step(plan: Arc<Plan>) -> Arc<dyn crate::AnyKernel> {
    match plan.start {
        Start::PlusPlus => Arc::new(PlusPlus { plan, centres: Vec::new() }),
        Start::Random | Start::First => Arc::new(Smallest { plan }),
    }
}

/// Where a record lies: the same in every split.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Place {
    source: u32,
    offset: u64,
}

fn place(block: &Block<'_>, points: &Points, p: usize) -> Result<Place> {
    match block.records.get(points.rows[p] as usize) {
        Some(s) => Ok(Place { source: block.source, offset: block.offset + u64::from(s.start) }),
        None => Err(Error::internal("a block came without the places of its records")),
    }
}

/// 64 random bits for a point in a round: the finaliser of SplitMix64 over each word in turn.
pub fn luck(seed: u64, round: u64, at: Place) -> u64 {
    let mut h = 0x9E37_79B9_7F4A_7C15u64;
    for word in [seed, round, u64::from(at.source), at.offset] {
        h = (h ^ word).wrapping_add(0x9E37_79B9_7F4A_7C15);
        h = (h ^ (h >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        h = (h ^ (h >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        h ^= h >> 31;
    }
    h
}

fn other_dimensions() -> Error {
    Error::format("a centre from another rank has other dimensions")
}

/// Strictly between 0 and 1, in steps of 2^-52.
fn uniform(luck: u64) -> f64 {
    ((luck >> 12) as f64 + 0.5) * (-52f64).exp2()
}

/// Draws one centre: a point with probability proportional to the squared distance to the nearest of
/// the centres so far, or any point alike if there is none yet.
///
/// Of independent exponential times with rates `w`, that of point `i` is the shortest with probability
/// `w_i / sum w` exactly. `-ln(u) / w` is such a time for uniform `u`, so the largest `ln(u) / w` wins.
struct PlusPlus {
    plan: Arc<Plan>,
    centres: Vec<f64>,
}

/// The winner so far.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Winner {
    score: f64,
    place: Place,
    point: Vec<f64>,
}

impl Winner {
    fn loses_to(&self, score: f64, place: Place) -> bool {
        score > self.score || (score == self.score && place < self.place)
    }
}

/// What a drawing pass has seen.
#[derive(Default, Serialize, Deserialize)]
struct Draw {
    winner: Option<Winner>,
    dropped: u64,
}

impl Kernel for PlusPlus {
    type State = Draw;

    fn needs(&self) -> Needs {
        Needs { records: true, ..self.plan.columns.needs() }
    }

    fn init(&self) -> Draw {
        Draw::default()
    }

    fn update(&self, state: &mut Draw, block: &Block<'_>) -> Result<()> {
        let points = Points::of(block, &self.plan.columns.ids)?;
        state.dropped += points.dropped;
        let round = (self.centres.len() / self.plan.d()) as u64;
        let (_, distance) = points.nearest(&self.centres);
        for (p, d2) in distance.into_iter().enumerate() {
            let weight = if round == 0 { 1.0 } else { d2 };
            if weight == 0.0 {
                continue;
            }
            let place = place(block, &points, p)?;
            // Not the system's logarithm, which may differ between hosts in the last bit.
            let score = libm::log(uniform(luck(self.plan.seed, round, place))) / weight;
            if state.winner.as_ref().is_none_or(|w| w.loses_to(score, place)) {
                state.winner = Some(Winner { score, place, point: points.coordinates(p) });
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut Draw, other: Draw) -> Result<()> {
        state.dropped = state.dropped.saturating_add(other.dropped);
        if let Some(o) = other.winner
            && state.winner.as_ref().is_none_or(|w| w.loses_to(o.score, o.place))
        {
            state.winner = Some(o);
        }
        Ok(())
    }

    fn check(&self, state: &Draw) -> Result<()> {
        match &state.winner {
            Some(w) if w.point.len() != self.plan.d() => Err(other_dimensions()),
            _ => Ok(()),
        }
    }

    fn finish(&self, state: Draw) -> Result<Step> {
        let mut centres = self.centres.clone();
        // Without a winner every point is a centre already: fewer distinct points than centres.
        let full = match state.winner {
            Some(w) => {
                centres.extend(w.point);
                centres.len() == self.plan.k * self.plan.d()
            }
            None => true,
        };
        if full {
            return lloyd::start(&self.plan, centres, state.dropped);
        }
        Ok(Step::Next(Arc::new(PlusPlus { plan: self.plan.clone(), centres })))
    }

    fn more_passes(&self) -> bool {
        true
    }

    fn state_bytes(&self, _: &Draw) -> usize {
        size_of::<Draw>() + 8 * self.plan.d()
    }
}

/// Takes the `k` distinct points with the smallest rank: their luck, or where they lie.
struct Smallest {
    plan: Arc<Plan>,
}

/// Luck and place; the luck is 0 for all if the first points are wanted.
type Rank = (u64, Place);

/// Candidates. Whatever belongs to the `k` smallest of all belongs to the `k` smallest of any part that
/// holds it, so only those are kept.
#[derive(Default, Serialize, Deserialize)]
struct Ranked {
    /// Smallest rank of each distinct point (as bits), up to twice as many as wanted.
    points: BTreeMap<Vec<u64>, Rank>,
    /// Points that do not rank below this are not among the `k` smallest.
    bar: Option<Rank>,
    dropped: u64,
}

impl Smallest {
    fn offer(&self, state: &mut Ranked, point: Vec<u64>, rank: Rank) {
        let best = state.points.entry(point).or_insert(rank);
        *best = rank.min(*best);
        if state.points.len() > 2 * self.plan.k {
            self.prune(state);
        }
    }

    fn prune(&self, state: &mut Ranked) {
        let mut ranks: Vec<Rank> = state.points.values().copied().collect();
        if ranks.len() > self.plan.k {
            let (_, bar, _) = ranks.select_nth_unstable(self.plan.k);
            let bar = *bar;
            state.points.retain(|_, r| *r < bar);
            state.bar = Some(bar);
        }
    }
}

impl Kernel for Smallest {
    type State = Ranked;

    fn needs(&self) -> Needs {
        Needs { records: true, ..self.plan.columns.needs() }
    }

    fn init(&self) -> Ranked {
        Ranked::default()
    }

    fn update(&self, state: &mut Ranked, block: &Block<'_>) -> Result<()> {
        let points = Points::of(block, &self.plan.columns.ids)?;
        state.dropped += points.dropped;
        for p in 0..points.len() {
            let place = place(block, &points, p)?;
            let luck = match self.plan.start {
                Start::First => 0,
                _ => luck(self.plan.seed, 0, place),
            };
            let rank = (luck, place);
            if self.plan.start == Start::First && state.bar.is_some_and(|b| rank >= b) {
                // Those after it in the block lie further still.
                break;
            }
            if state.bar.is_none_or(|b| rank < b) {
                let point = points.coordinates(p).into_iter().map(f64::to_bits).collect();
                self.offer(state, point, rank);
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut Ranked, other: Ranked) -> Result<()> {
        state.dropped = state.dropped.saturating_add(other.dropped);
        for (point, rank) in other.points {
            if state.bar.is_none_or(|b| rank < b) {
                self.offer(state, point, rank);
            }
        }
        Ok(())
    }

    fn check(&self, state: &Ranked) -> Result<()> {
        if state.points.len() > 2 * self.plan.k {
            return Err(Error::format(
                "there are more candidates from another rank than it may keep",
            ));
        }
        if state.points.keys().any(|p| p.len() != self.plan.d()) {
            return Err(other_dimensions());
        }
        Ok(())
    }

    fn finish(&self, mut state: Ranked) -> Result<Step> {
        self.prune(&mut state);
        let mut points: Vec<(Rank, Vec<u64>)> =
            state.points.into_iter().map(|(p, r)| (r, p)).collect();
        points.sort_unstable();
        let centres = points.into_iter().flat_map(|(_, p)| p).map(f64::from_bits).collect();
        lloyd::start(&self.plan, centres, state.dropped)
    }

    fn more_passes(&self) -> bool {
        true
    }

    fn state_bytes(&self, state: &Ranked) -> usize {
        let point = 8 * self.plan.d() + 64;
        size_of::<Ranked>() + state.points.len() * point
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn luck_is_uniform_and_differs_between_places_and_rounds() {
        let at = |offset| Place { source: 0, offset };
        let n = 20_000;
        let mean = (0..n).map(|i| uniform(luck(7, 0, at(8 * i)))).sum::<f64>() / n as f64;
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        let mut all: Vec<u64> = (0..100)
            .flat_map(|i| (0..10).flat_map(move |r| (0..3).map(move |s| luck(s, r, at(i)))))
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 3000);
        assert!(uniform(0) > 0.0 && uniform(u64::MAX) < 1.0);
    }

    #[test]
    fn the_race_is_won_in_proportion_to_the_weights() {
        // Weights 1, 4, 9 win 1/14, 4/14, 9/14 of the races.
        let mut wins = [0u32; 3];
        let n = 30_000;
        for seed in 0..n {
            let score = |i: usize| {
                let u = uniform(luck(seed, 1, Place { source: 0, offset: i as u64 }));
                u.ln() / [1.0, 4.0, 9.0][i]
            };
            let best = (0..3).max_by(|a, b| score(*a).total_cmp(&score(*b))).expect("three");
            wins[best] += 1;
        }
        for (w, want) in wins.iter().zip([1.0, 4.0, 9.0]) {
            let share = f64::from(*w) / n as f64;
            assert!((share - want / 14.0).abs() < 0.01, "{share} is not {want}/14");
        }
    }
}
