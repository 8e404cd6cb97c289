//! The kernel `kmeans`: clusters of points, by Lloyd's algorithm.
//!
//! `seed` draws the first centres, `lloyd` moves them; `assign` finds the nearest centres and `points` their
//! distances, `sums` adds up the clusters. Every round is a pass over the data. Where blocks stay in memory between passes,
//! `memory` is kept with them, so that a round looks at few points; it changes no bit.

mod assign;
mod lloyd;
mod memory;
mod points;
mod seed;
mod sums;

use crate::columns::Chosen;
use crate::{Built, Context, Info, Spec};
use std::sync::Arc;
use stead_core::{Result, limits};

/// About `kmeans`.
pub const INFO: Info = Info {
    name: "kmeans",
    summary: "clusters of points (Lloyd's algorithm)",
    usage: "kmeans[:COL,COL..][,k=20][,tol=1e-4][,delta=D][,rounds=300][,seed=0][,init=kmeans++|random|first]",
    definition: "Splits the points whose coordinates are the given columns ('*', or none given: all numeric \
        columns) into k clusters. A round gives each point to the nearest centre (squared Euclidean \
        distance, of equal ones the first centre) and moves each centre to the mean of its points; an \
        empty cluster keeps its centre. It ends when no centre moves, when the squared moves of all centres \
        add up to at most tol (in squared units of the data: scale the columns first, see 'normalize'), when with \
        delta no centre moves further than delta (in units of the data; tol is then 0 if it is not given), or after 'rounds' rounds; then one more pass measures sizes and inertia for the final centres.\n\
        init=kmeans++: each centre is a point drawn with probability proportional to the squared distance \
        to the nearest centre before it, the first one uniformly. random: k distinct points drawn uniformly \
        among the records. first: the first k distinct points of the files. The draw depends on the seed \
        and on where records lie in their files, not on how the work is split.\n\
        Points with a missing, NaN or infinite coordinate are left out and counted ('dropped'). With fewer \
        distinct points than k there are fewer centres. No points: no centres, inertia 0.\n\
        Result: {centroids, columns, sizes, inertia, rounds, converged, dropped}.",
    error: "centres are correctly rounded means of their points; squared distances have a relative error \
        below (d+2) 2^-53 each and their sum, the inertia, adds none but one last rounding. Squares overflow \
        for differences beyond 1e154. Bit-identical for any split. A local optimum, as always with Lloyd: try several seeds",
    cost: "a pass a round; kmeans++ takes k passes to begin with, random and first take one. Time n k d a \
        round, about 0.07 ns each and 10 ns for each point of 10 columns; where the points stay in memory between passes, a \
        round looks only at points whose nearest centre may have changed, for 8 bytes a point more; memory about 100 \
        bytes k d for each worker",
    source: "Lloyd, IEEE Trans. Inf. Theory 28 (1982); Arthur & Vassilvitskii, k-means++, SODA 2007; drawn as \
        in Efraimidis & Spirakis, Inf. Process. Lett. 97 (2006)",
    examples: &[
        "kmeans:x,y,k=20,tol=1e-3",
        "kmeans:k=8,init=random,seed=7",
        "kmeans:'*',k=3,delta=0.01,rounds=50",
    ],
};

/// Most centres.
const MAX_K: usize = 1 << 16;
/// Most centres times columns: each is an exact sum.
const MAX_SUMS: usize = 1 << 20;

/// How first centres are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Start {
    PlusPlus,
    Random,
    First,
}

/// What was asked for.
#[derive(Debug)]
struct Plan {
    /// The coordinates.
    columns: Chosen,
    k: usize,
    /// Sum of squared moves at which the rounds end.
    tolerance: f64,
    /// Move of each centre at which the rounds end.
    delta: Option<f64>,
    rounds: usize,
    seed: u64,
    start: Start,
}

impl Plan {
    /// Number of coordinates, at least one.
    fn d(&self) -> usize {
        self.columns.ids.len()
    }
}

/// Makes `kmeans`.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    spec.only_options(&["k", "tol", "delta", "rounds", "seed", "init"])?;
    let args: Vec<&str> = match spec.args.as_slice() {
        [] => vec!["*"],
        names => names.iter().map(String::as_str).collect(),
    };
    let columns = Chosen::numbers(spec, &args, context)?;
    let d = columns.ids.len();
    let k = spec.parse_option("k", 20usize)?;
    if k == 0 || k > MAX_K || k.saturating_mul(d) > MAX_SUMS {
        return Err(spec.error(format!(
            "k={k} is not between 1 and {} for {d} columns",
            MAX_K.min(MAX_SUMS / d),
        )));
    }
    let from_zero = |key: &str, default: f64| -> Result<f64> {
        let v = spec.parse_option(key, default)?;
        if v.is_finite() && v >= 0.0 {
            return Ok(v);
        }
        Err(spec.error(format!("{key}={v} is not a number from 0 up")))
    };
    let delta = spec.option("delta").map(|_| from_zero("delta", 0.0)).transpose()?;
    let tolerance = from_zero("tol", if delta.is_some() { 0.0 } else { 1e-4 })?;
    let rounds = spec.parse_option("rounds", 300usize)?;
    // The passes of the seeding and the last one count too.
    let most = limits::MAX_ROUNDS - MAX_K - 2;
    if rounds > most {
        return Err(spec.error(format!("rounds={rounds} is more than {most}")));
    }
    let start = match spec.option("init").unwrap_or("kmeans++") {
        "kmeans++" => Start::PlusPlus,
        "random" => Start::Random,
        "first" => Start::First,
        other => {
            return Err(spec.error(format!("init={other} is not one of kmeans++, random, first")));
        }
    };
    let seed = spec.parse_option("seed", 0u64)?;
    let plan = Plan { columns, k, tolerance, delta, rounds, seed, start };
    let kernel = seed::first_step(Arc::new(plan));
    Ok(Built { key: spec.text.clone(), kernel, pick: None, level: 0, rows: None })
}

#[cfg(test)]
mod tests;
