//! Quantiles from a sketch that is a histogram over truncated doubles, and exact ones in further passes.
//!
//! A double without its last mantissa bits names a bucket; counts of buckets add up, so the sketch is
//! the same for any split. `exact` then counts, within the bucket that holds the quantile, by the next 16
//! bits in each further pass, until all bits are known.

use crate::columns::Chosen;
use crate::extremes::{Range, from_key, order_key};
use crate::{Built, Context, Info, Kernel, Spec, Step};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Result, Value, is_missing};

/// Mantissa bits kept at most.
const MAX_BITS: u32 = 14;
/// Bits learnt in each pass of `exact`.
const STEP_BITS: u32 = 16;
/// Quantiles asked for at most.
const MAX_QUANTILES: usize = 1000;
/// Shorter blocks are counted straight into the map.
const SHORT: usize = 512;
/// Pages (of one binade each) of the dense counter of a long block.
const MAX_PAGES: usize = 64;

/// `quantile`
pub const INFO: Info = Info {
    name: "quantile",
    summary: "quantiles, from a mergeable sketch or exact",
    usage: "quantile:COLUMN[,q=0.5][,error=0.0009765625][,exact]",
    definition: "The smallest value v such that at least the part q of the values is not larger than v \
        (numpy.quantile with method inverted_cdf), for each q (separated by ';' where there are several: \
        the answer is then a map by q). Missing values are skipped; a NaN makes the answer NaN; no value \
        gives null. The sketch keeps the leading bits of the values; `exact` finds the value to the last bit \
        in up to four more passes.",
    error: "with the sketch, the answer is the value of exactly that rank cut towards zero by a relative \
        error of at most `error` (2^-10 unless given, 2^-14 at best; below 2^-1022 the error is absolute, \
        2^-1022 * error), and it lies between the smallest and the largest value; integers up to 2048 are \
        exact. With `exact`: none",
    cost: "one pass, about 5 to 9 ns a value; some 30 KB for each binade that the data span. exact: up to \
        four more passes of about 2 ns",
    source: "C. Masson, J. E. Rim, H. K. Lee, 'DDSketch', PVLDB 12(12), 2019, with exact logarithmic \
        buckets by truncation",
    examples: &[
        "quantile:arr_delay",
        "quantile:x,q=0.25;0.5;0.99",
        "quantile:x,q=0.999,error=1e-4",
        "quantile:x,q=0.5,exact",
    ],
};

/// What was asked for.
#[derive(Debug, Clone)]
struct Request {
    column: Chosen,
    /// The quantiles, as written and as numbers.
    quantiles: Vec<(String, f64)>,
    exact: bool,
}

impl Request {
    fn value(&self, answers: impl IntoIterator<Item = Value>) -> Value {
        let mut answers = answers.into_iter();
        match self.quantiles.as_slice() {
            [_] => answers.next().unwrap_or(Value::Null),
            all => Value::Map(all.iter().map(|(t, _)| t.clone()).zip(answers).collect()),
        }
    }
}

/// The double's order as an unsigned number: its leading bits name the buckets.
#[inline(always)]
fn unsigned_key(v: f64) -> u64 {
    (order_key(v) as u64) ^ (1 << 63)
}

/// The double of an [`unsigned_key`].
fn of_unsigned(key: u64) -> f64 {
    from_key((key ^ (1 << 63)) as i64)
}

/// The sketch.
#[derive(Debug)]
struct Sketch {
    request: Request,
    /// Mantissa bits kept.
    bits: u32,
}

/// Counts of buckets.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Buckets {
    counts: BTreeMap<u32, u64>,
    range: Range,
}

impl Sketch {
    fn shift(&self) -> u32 {
        52 - self.bits
    }

    /// Counts a long block into pages, one a binade, and the pages into the map.
    fn count_long(&self, values: &[f64], buckets: &mut Buckets) {
        let mut pages: Vec<u32> = Vec::new();
        // Number of the page of a binade, from 1.
        let mut places = [0u16; 4096];
        let mut binades: Vec<usize> = Vec::new();
        let (bits, shift) = (self.bits, self.shift());
        let mask = (1usize << bits) - 1;
        let mut flush = |pages: &mut Vec<u32>, binades: &mut Vec<usize>, places: &mut [u16]| {
            for (page, binade) in pages.chunks_exact(mask + 1).zip(binades.iter()) {
                for (i, n) in page.iter().enumerate().filter(|(_, n)| **n != 0) {
                    let bucket = ((binade << bits) | i) as u32;
                    *buckets.counts.entry(bucket).or_default() += u64::from(*n);
                }
                places[*binade] = 0;
            }
            pages.clear();
            binades.clear();
        };
        let mut range = Range::default();
        // Pages count in 32 bits.
        for part in values.chunks(1 << 30) {
            for v in part.iter().filter(|v| !is_missing(**v)) {
                range.add(*v);
                if v.is_nan() {
                    continue;
                }
                let bucket = (unsigned_key(*v) >> shift) as usize;
                let binade = bucket >> bits;
                if places[binade] == 0 {
                    if binades.len() == MAX_PAGES {
                        flush(&mut pages, &mut binades, &mut places);
                    }
                    binades.push(binade);
                    places[binade] = binades.len() as u16;
                    pages.resize(binades.len() << bits, 0);
                }
                pages[((usize::from(places[binade]) - 1) << bits) | (bucket & mask)] += 1;
            }
            flush(&mut pages, &mut binades, &mut places);
        }
        buckets.range.merge(&range);
    }
}

/// The rank, from 1, of quantile `q` among `n` values, with the rounding of `q n` that NumPy has.
fn rank(q: f64, n: u64) -> u64 {
    ((q * n as f64).ceil() as u64).clamp(1, n)
}

/// The key under which the value of a rank is counted, and its rank among those of the same key.
fn find<K: Copy>(counts: impl IntoIterator<Item = (K, u64)>, rank: u64) -> Option<(K, u64)> {
    let mut left = rank;
    for (key, n) in counts {
        if left <= n {
            return Some((key, left));
        }
        left -= n;
    }
    None
}

fn lost<T>() -> Result<T> {
    Err(Error::data("the data changed between two passes, or a state is malformed"))
}

impl Kernel for Sketch {
    type State = Buckets;

    fn needs(&self) -> Needs {
        self.request.column.needs()
    }

    fn init(&self) -> Buckets {
        Buckets::default()
    }

    fn update(&self, state: &mut Buckets, block: &Block<'_>) -> Result<()> {
        for id in &self.request.column.ids {
            let values = block.numbers(*id);
            if values.len() >= SHORT {
                self.count_long(values, state);
                continue;
            }
            for v in values.iter().filter(|v| !is_missing(**v)) {
                state.range.add(*v);
                if !v.is_nan() {
                    let bucket = (unsigned_key(*v) >> self.shift()) as u32;
                    *state.counts.entry(bucket).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut Buckets, other: Buckets) -> Result<()> {
        for (bucket, n) in other.counts {
            let count = state.counts.entry(bucket).or_default();
            *count = count.saturating_add(n);
        }
        state.range.merge(&other.range);
        Ok(())
    }

    fn check(&self, state: &Buckets) -> Result<()> {
        match state.counts.last_key_value() {
            Some((k, _)) if u64::from(*k) > u64::MAX >> self.shift() => {
                Err(Error::format("a sketch of another error came from another rank"))
            }
            _ => Ok(()),
        }
    }

    fn more_passes(&self) -> bool {
        self.request.exact
    }

    fn is_last(&self) -> bool {
        !self.request.exact
    }

    fn finish(&self, state: Buckets) -> Result<Step> {
        let none = |v: Value| {
            Ok(Step::Done(self.request.value(self.request.quantiles.iter().map(|_| v.clone()))))
        };
        if state.range.nan {
            return none(Value::Float(f64::NAN));
        }
        let Some((low, high)) = state.range.ends() else { return none(Value::Null) };
        let total = state.counts.values().fold(0u64, |a, b| a.saturating_add(*b));
        let mut targets = Vec::new();
        for (_, q) in &self.request.quantiles {
            let counts = state.counts.iter().map(|(k, n)| (*k, *n));
            let Some((bucket, rank)) = find(counts, rank(*q, total.max(1))) else { return lost() };
            targets.push(Target { prefix: u64::from(bucket), rank });
        }
        let shift = self.shift();
        if self.request.exact {
            return Ok(Step::Next(Arc::new(Refine {
                request: self.request.clone(),
                targets,
                unknown: shift,
            })));
        }
        let answers = targets.iter().map(|t| {
            let first = t.prefix << shift;
            // The end nearer to zero: the lower one of positive values, the upper one of negative values.
            let key = if first >> 63 == 1 { first } else { first | ((1 << shift) - 1) };
            let v = of_unsigned(key);
            // In the order that tells -0.0 from +0.0.
            Value::Float(from_key(order_key(v).clamp(order_key(low), order_key(high))))
        });
        Ok(Step::Done(self.request.value(answers)))
    }

    fn state_bytes(&self, state: &Buckets) -> usize {
        // A tree holds some 24 bytes for each entry of 12.
        size_of::<Buckets>() + 24 * state.counts.len()
    }
}

/// A value that is looked for.
#[derive(Debug, Clone, Copy)]
struct Target {
    /// The leading bits of its key, as far as they are known.
    prefix: u64,
    /// Its rank, from 1, among the values with these leading bits.
    rank: u64,
}

/// A further pass: counts the next bits of the values whose leading bits are those of a target.
#[derive(Debug)]
struct Refine {
    request: Request,
    targets: Vec<Target>,
    /// How many bits are not known yet.
    unknown: u32,
}

impl Refine {
    /// Bits unknown after this pass.
    fn left(&self) -> u32 {
        self.unknown.saturating_sub(STEP_BITS)
    }
}

impl Kernel for Refine {
    /// For each target, counts by the next bits.
    type State = Vec<BTreeMap<u16, u64>>;

    fn needs(&self) -> Needs {
        self.request.column.needs()
    }

    fn init(&self) -> Self::State {
        vec![BTreeMap::new(); self.targets.len()]
    }

    fn update(&self, state: &mut Self::State, block: &Block<'_>) -> Result<()> {
        let (unknown, left) = (self.unknown, self.left());
        let mask = (1u64 << (unknown - left)) - 1;
        for v in self.request.column.ids.iter().flat_map(|id| block.numbers(*id)) {
            let key = unsigned_key(*v);
            for (target, counts) in self.targets.iter().zip(state.iter_mut()) {
                // Missing values and NaN have prefixes that no target has.
                if key >> unknown == target.prefix && !v.is_nan() {
                    *counts.entry(((key >> left) & mask) as u16).or_default() += 1;
                }
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut Self::State, other: Self::State) -> Result<()> {
        for (mine, theirs) in state.iter_mut().zip(other) {
            for (bits, n) in theirs {
                let count = mine.entry(bits).or_default();
                *count = count.saturating_add(n);
            }
        }
        Ok(())
    }

    fn check(&self, state: &Self::State) -> Result<()> {
        if state.len() == self.targets.len() {
            return Ok(());
        }
        Err(Error::format("a state of other quantiles came from another rank"))
    }

    fn is_last(&self) -> bool {
        self.left() == 0
    }

    fn finish(&self, state: Self::State) -> Result<Step> {
        let left = self.left();
        let mut targets = Vec::new();
        for (target, counts) in self.targets.iter().zip(state) {
            let Some((bits, rank)) = find(counts, target.rank) else { return lost() };
            let prefix = (target.prefix << (self.unknown - left)) | u64::from(bits);
            targets.push(Target { prefix, rank });
        }
        if left == 0 {
            let answers = targets.iter().map(|t| Value::Float(of_unsigned(t.prefix)));
            return Ok(Step::Done(self.request.value(answers)));
        }
        let request = self.request.clone();
        Ok(Step::Next(Arc::new(Refine { request, targets, unknown: left })))
    }

    fn state_bytes(&self, state: &Self::State) -> usize {
        state.iter().map(|c| size_of_val(c) + 24 * c.len()).sum()
    }
}

/// Makes `quantile`.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    spec.only_options(&["q", "error", "exact"])?;
    let exact = spec.flag("exact");
    let args: Vec<&str> = spec.args.iter().map(String::as_str).filter(|a| *a != "exact").collect();
    let column = Chosen::numbers(spec, &args, context)?;
    if !column.single {
        return Err(spec.error("it takes one column"));
    }
    let quantiles = spec.option("q").unwrap_or("0.5").split(';').map(|text| {
        let text = text.trim();
        match text.parse::<f64>() {
            Ok(q) if (0.0..=1.0).contains(&q) => Ok((text.to_string(), q)),
            _ => Err(spec.error(format!("q={text} is not a number from 0 to 1"))),
        }
    });
    let quantiles = quantiles.collect::<Result<Vec<_>>>()?;
    if quantiles.len() > MAX_QUANTILES {
        return Err(spec.error(format!("more than {MAX_QUANTILES} quantiles")));
    }
    let error = spec.parse_option("error", 1.0 / 1024.0)?;
    let Some(bits) = (1..=MAX_BITS).find(|b| 0.5f64.powi(*b as i32) <= error) else {
        return Err(spec.error(format!("error={error} is below 2^-{MAX_BITS}; ask for 'exact'")));
    };
    Ok(Built::alone(spec, Sketch { request: Request { column, quantiles, exact }, bits }))
}

#[cfg(test)]
mod tests {
    use crate::moments::tests::{ask, block, refuses};
    use proptest::prelude::*;
    use stead_core::{MISSING, Value};

    #[test]
    fn ranks_are_those_of_the_inverted_cdf() {
        let data: Vec<f64> = (1..=10).rev().map(f64::from).collect();
        let blocks: Vec<_> = data.chunks(3).map(block).collect();
        for (q, want) in
            [("0", 1.0), ("0.1", 1.0), ("0.11", 2.0), ("0.5", 5.0), ("0.51", 6.0), ("1", 10.0)]
        {
            assert_eq!(ask(&format!("quantile:x,q={q}"), &blocks), Value::Float(want), "{q}");
            assert_eq!(ask(&format!("quantile:x,q={q},exact"), &blocks), Value::Float(want), "{q}");
        }
        let many = ask("quantile:x,q=0;1", &blocks);
        assert_eq!(many, Value::map([("0", Value::Float(1.0)), ("1", Value::Float(10.0))]));
    }

    #[test]
    fn special_values() {
        let inf = f64::INFINITY;
        assert_eq!(ask("quantile:x", &[block(&[MISSING])]), Value::Null);
        assert!(ask("quantile:x", &[block(&[1.0, f64::NAN])]).as_f64().is_some_and(f64::is_nan));
        for exact in ["", ",exact"] {
            let q = |q: &str| ask(&format!("quantile:x,q={q}{exact}"), &[block(&[-inf, 0.0, inf])]);
            assert_eq!(q("0"), Value::Float(-inf));
            assert_eq!(q("0.5"), Value::Float(0.0));
            assert_eq!(q("1"), Value::Float(inf));
        }
        for bad in ["quantile:x,q=2", "quantile:x,q=", "quantile:x,error=1e-9", "quantile:*"] {
            assert!(refuses(bad), "{bad}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn within_the_error_of_the_order_statistic(
            some in prop::collection::vec(prop_oneof![
                any::<u64>().prop_map(f64::from_bits).prop_filter("number", |v| !v.is_nan()),
                -1e3..1e3f64,
            ], 1..300),
            repeat in 1usize..8,
            q in 0.0..1.0f64,
        ) {
            let data = some.repeat(repeat);
            let mut sorted = data.clone();
            sorted.sort_by(f64::total_cmp);
            let rank = ((q * sorted.len() as f64).ceil() as usize).max(1);
            let want = sorted[rank - 1];
            let blocks: Vec<_> = data.chunks(700).map(block).collect();
            let exact = ask(&format!("quantile:x,q={q},exact"), &blocks).as_f64();
            prop_assert_eq!(exact.map(f64::to_bits), Some(want.to_bits()));
            let near = ask(&format!("quantile:x,q={q}"), &blocks).as_f64().expect("number");
            let bound = if want.is_finite() { want.abs() / 1024.0 + f64::MIN_POSITIVE } else { 0.0 };
            prop_assert!(near == want || (near - want).abs() <= bound, "{} {}", near, want);
        }
    }
}
