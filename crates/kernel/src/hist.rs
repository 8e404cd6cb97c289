//! Histograms with bins of equal width, bin for bin those of `numpy.histogram`.

use crate::columns::Chosen;
use crate::extremes::Range;
use crate::{Built, Context, Info, Kernel, Spec, Step};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Result, Value, is_missing};
use stead_simd::{Vector, Work, dispatch};

/// Most bins.
const MAX_BINS: usize = 1_000_000;

/// `hist`
pub const INFO: Info = Info {
    name: "hist",
    summary: "histogram with bins of equal width",
    usage: "hist:COLUMN[,bins=10][,min=A][,max=B]",
    definition: "Counts of the values in `bins` (1 to 1000000) bins of equal width from min to max, as \
        numpy.histogram counts them: a bin holds its left edge, the last one both, and edges are those of \
        numpy.linspace to the last bit. An end that is not given is the smallest or largest finite value, \
        found in a pass before; if both ends are equal they move apart by 0.5 each; no finite value at all \
        gives 0 to 1. Values outside are counted as `below` and `above` (infinities too), missing values \
        and NaN as `missing` and `nan`.",
    error: "none: every value is in the bin between whose edges it lies",
    cost: "about 1.5 ns a value, and a pass of 0.2 ns before it if an end is not given; 8 bytes a bin",
    source: "numpy.histogram, numpy.linspace (NumPy 2)",
    examples: &["hist:arr_delay", "hist:x,bins=100", "hist:x,bins=20,min=0,max=1"],
};

/// The first round, where an end is to be found.
#[derive(Debug)]
struct FindRange {
    column: Chosen,
    bins: usize,
    min: Option<f64>,
    max: Option<f64>,
}

impl Kernel for FindRange {
    type State = Range;

    fn needs(&self) -> Needs {
        self.column.needs()
    }

    fn init(&self) -> Range {
        Range::default()
    }

    fn update(&self, state: &mut Range, block: &Block<'_>) -> Result<()> {
        self.column.ids.iter().for_each(|id| state.add_finite_slice(block.numbers(*id)));
        Ok(())
    }

    fn merge(&self, state: &mut Range, other: Range) -> Result<()> {
        state.merge(&other);
        Ok(())
    }

    fn more_passes(&self) -> bool {
        true
    }

    fn finish(&self, state: Range) -> Result<Step> {
        let (low, high) = state.ends().unwrap_or(match (self.min, self.max) {
            (Some(a), _) => (a, a + 1.0),
            (_, Some(b)) => (b - 1.0, b),
            _ => (0.0, 1.0),
        });
        let (low, high) = (self.min.unwrap_or(low), self.max.unwrap_or(high));
        // One end was given, and all values lie beyond it.
        let (low, high) = match (self.min, self.max) {
            (Some(a), None) => (a, high.max(a)),
            (None, Some(b)) => (low.min(b), b),
            _ => (low, high),
        };
        Ok(Step::Next(Arc::new(Hist::new(self.column.clone(), self.bins, low, high)?)))
    }
}

/// The counting round.
#[derive(Debug)]
struct Hist {
    column: Chosen,
    /// Strictly ascending, one more than there are bins.
    edges: Vec<f64>,
}

/// Values whose bins are guessed together.
const PART: usize = 256;

/// Guesses bins; true if all values lie between the ends.
struct Guess<'a> {
    values: &'a [f64],
    low: f64,
    high: f64,
    /// Bins for each unit.
    scale: f64,
    guesses: &'a mut [i32; PART],
}

impl Work for Guess<'_> {
    type Out = bool;

    #[inline(always)]
    fn run<V: Vector>(self, _: V) -> bool {
        let mut outside = 0;
        for (guess, v) in self.guesses.iter_mut().zip(self.values) {
            let v = *v;
            // What is outside goes to some bin here and is not counted in it.
            let x = if v >= self.low && v <= self.high { v } else { self.low };
            outside += u64::from(!(v >= self.low && v <= self.high));
            // At most a million, and a bit more by rounding, unless the scale overflowed.
            *guess = ((x - self.low) * self.scale) as i32;
        }
        outside == 0
    }
}

/// What was counted.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Counts {
    /// One a bin; empty as long as nothing was counted.
    bins: Vec<u64>,
    below: u64,
    above: u64,
    missing: u64,
    nan: u64,
}

impl Hist {
    fn new(column: Chosen, bins: usize, low: f64, high: f64) -> Result<Hist> {
        let (low, high) = if low == high { (low - 0.5, high + 0.5) } else { (low, high) };
        if !(high - low).is_finite() {
            return Err(Error::data(format!("the range from {low:e} to {high:e} is too wide"))
                .with_hint("give min= and max=, less than 1.8e308 apart"));
        }
        // As numpy.linspace computes it, step by step.
        let delta = high - low;
        let step = delta / bins as f64;
        let mut edges: Vec<f64> = (0..bins)
            .map(|i| {
                let i = i as f64;
                low + if step == 0.0 { i / bins as f64 * delta } else { i * step }
            })
            .collect();
        edges.push(high);
        if edges.windows(2).any(|w| w[0] >= w[1]) {
            return Err(Error::data(format!(
                "there are too few doubles between {low:e} and {high:e} for {bins} bins"
            ))
            .with_hint("ask for fewer bins, or give a wider range with min= and max="));
        }
        Ok(Hist { column, edges })
    }

    fn bins(&self) -> usize {
        self.edges.len() - 1
    }

    /// Counts at most [`PART`] values.
    fn count(&self, values: &[f64], state: &mut Counts) {
        let bins = self.bins();
        let (low, high) = (self.edges[0], self.edges[bins]);
        let mut guesses = [0; PART];
        let (width, n) = (high - low, bins as f64);
        let inside = dispatch(Guess { values, low, high, scale: n / width, guesses: &mut guesses });
        if !(n / width).is_finite() {
            for (guess, v) in guesses.iter_mut().zip(values) {
                *guess = ((v - low) / width * n) as i32;
            }
        }
        // Arithmetic finds the bin up to one, or more where edges are the smallest subnormals; the edges decide.
        let edges = &self.edges[..];
        for (v, guess) in values.iter().copied().zip(guesses) {
            if !(inside || v >= low && v <= high) {
                state.below += u64::from(v < low);
                state.above += u64::from(v > high);
                state.missing += u64::from(is_missing(v));
                state.nan += u64::from(v.is_nan() && !is_missing(v));
                continue;
            }
            let mut i = usize::try_from(guess).unwrap_or(0).min(bins - 1);
            if v < edges[i] || v >= edges[i + 1] {
                while i > 0 && v < edges[i] {
                    i -= 1;
                }
                while i + 1 < bins && v >= edges[i + 1] {
                    i += 1;
                }
            }
            state.bins[i] += 1;
        }
    }
}

impl Kernel for Hist {
    type State = Counts;

    fn needs(&self) -> Needs {
        self.column.needs()
    }

    fn init(&self) -> Counts {
        Counts::default()
    }

    fn update(&self, state: &mut Counts, block: &Block<'_>) -> Result<()> {
        state.bins.resize(self.bins(), 0);
        for id in &self.column.ids {
            for chunk in block.numbers(*id).chunks(PART) {
                self.count(chunk, state);
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut Counts, other: Counts) -> Result<()> {
        state.bins.resize(self.bins(), 0);
        for (a, b) in state.bins.iter_mut().zip(&other.bins) {
            *a = a.saturating_add(*b);
        }
        for (a, b) in [
            (&mut state.below, other.below),
            (&mut state.above, other.above),
            (&mut state.missing, other.missing),
            (&mut state.nan, other.nan),
        ] {
            *a = a.saturating_add(b);
        }
        Ok(())
    }

    fn check(&self, state: &Counts) -> Result<()> {
        if state.bins.is_empty() || state.bins.len() == self.bins() {
            return Ok(());
        }
        Err(Error::format("a histogram of other bins came from another rank"))
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, mut state: Counts) -> Result<Step> {
        state.bins.resize(self.bins(), 0);
        Ok(Step::Done(Value::map([
            ("edges", Value::floats(self.edges.iter().copied())),
            ("counts", Value::List(state.bins.into_iter().map(Value::Int).collect())),
            ("below", Value::Int(state.below)),
            ("above", Value::Int(state.above)),
            ("missing", Value::Int(state.missing)),
            ("nan", Value::Int(state.nan)),
        ])))
    }

    fn state_bytes(&self, state: &Counts) -> usize {
        size_of::<Counts>() + state.bins.capacity() * size_of::<u64>()
    }
}

/// Makes `hist`.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    spec.only_options(&["bins", "min", "max"])?;
    let column = Chosen::of(spec, context)?;
    if !column.single {
        return Err(spec.error("it takes one column"));
    }
    let bins = spec.parse_option("bins", 10usize)?;
    if !(1..=MAX_BINS).contains(&bins) {
        return Err(spec.error(format!("bins={bins} is not between 1 and {MAX_BINS}")));
    }
    let end = |key: &str| -> Result<Option<f64>> {
        if spec.option(key).is_none() {
            return Ok(None);
        }
        let v = spec.parse_option(key, 0.0f64)?;
        if v.is_finite() { Ok(Some(v)) } else { Err(spec.error(format!("{key} must be finite"))) }
    };
    match (end("min")?, end("max")?) {
        (Some(a), Some(b)) if a > b => Err(spec.error("min is larger than max")),
        (Some(a), Some(b)) => Ok(Built::alone(spec, Hist::new(column, bins, a, b)?)),
        (min, max) => Ok(Built::alone(spec, FindRange { column, bins, min, max })),
    }
}

#[cfg(test)]
mod tests {
    use crate::moments::tests::{ask, block, refuses};
    use stead_core::{MISSING, Value};

    fn counts(v: &Value) -> Vec<u64> {
        let Some(Value::List(l)) = v.get("counts") else { panic!("{v:?}") };
        l.iter().map(|i| i.as_f64().expect("count") as u64).collect()
    }

    #[test]
    fn values_on_edges_go_as_numpy_sends_them() {
        // numpy.histogram([i / 10 for i in range(11)], 10, (0, 1)): 0.3 lies below the edge 3 * 0.1.
        let data: Vec<f64> = (0..=10).map(|i| f64::from(i) / 10.0).collect();
        let v = ask("hist:x,min=0,max=1", &[block(&data)]);
        assert_eq!(counts(&v), [1, 1, 2, 0, 1, 2, 1, 0, 1, 2]);
        assert_eq!(ask("hist:x", &[block(&data)]), v);
    }

    #[test]
    fn the_edges_decide_among_the_smallest_subnormals() {
        // Edges 0..=9 and 13 times the smallest double: arithmetic alone is some bins off.
        let data: Vec<f64> = (0..=13).map(f64::from_bits).collect();
        let v = ask("hist:x", &[block(&data)]);
        assert_eq!(counts(&v), [1, 1, 1, 1, 1, 1, 1, 1, 1, 5]);
    }

    #[test]
    fn everything_is_counted_once() {
        let data = [1.0, 2.0, MISSING, f64::NAN, -f64::INFINITY, f64::INFINITY, -0.5, 9.0];
        let blocks: Vec<_> = data.chunks(3).map(block).collect();
        let v = ask("hist:x,bins=2,min=0,max=2", &blocks);
        assert_eq!(counts(&v), [0, 2]);
        for (key, n) in [("below", 2), ("above", 2), ("missing", 1), ("nan", 1)] {
            assert_eq!(v.get(key), Some(&Value::Int(n)), "{key}");
        }
        assert_eq!(counts(&ask("hist:x,bins=2", &blocks)), [3, 1]);
    }

    #[test]
    fn ranges_of_one_value_of_none_and_too_small() {
        let v = ask("hist:x,bins=2", &[block(&[5.0, 5.0])]);
        assert_eq!(v.get("edges"), Some(&Value::floats([4.5, 5.0, 5.5])));
        assert_eq!(counts(&v), [0, 2]);
        let v = ask("hist:x,bins=1", &[]);
        assert_eq!(v.get("edges"), Some(&Value::floats([0.0, 1.0])));
        assert_eq!(counts(&ask("hist:x,bins=1,min=7", &[block(&[1.0])])), [0]);
        for bad in [
            "hist:x,bins=0",
            "hist:x,bins=1000001",
            "hist:x,min=2,max=1",
            "hist:x,min=nan",
            "hist:x,min=-1e308,max=1e308",
            "hist:x,bins=10,min=1,max=1.0000000000000002",
            "hist:*",
        ] {
            assert!(refuses(bad), "{bad}");
        }
    }
}
