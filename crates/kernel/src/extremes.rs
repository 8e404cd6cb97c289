//! Smallest and largest value, in one shared kernel.

use crate::columns::Chosen;
use crate::{Built, Context, Info, Kernel, Spec, Step};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Result, Value, is_missing};

/// `min`
pub const MIN: Info = Info {
    name: "min",
    summary: "smallest value",
    usage: "min:COLUMN[,COLUMN...] | min:*",
    definition: "The smallest value that is not missing; -0.0 is smaller than +0.0. NaN propagates, \
        infinities are values. No value gives null. Several columns (or *) give a map by name.",
    error: "none",
    cost: "one pass, about 1.5 ns a value; 24 bytes a column",
    source: "-",
    examples: &["min:arr_delay", "min:x,y", "min:*"],
};

/// `max`
pub const MAX: Info = Info {
    name: "max",
    summary: "largest value",
    usage: "max:COLUMN[,COLUMN...] | max:*",
    definition: "The largest value that is not missing; -0.0 is smaller than +0.0. NaN propagates, \
        infinities are values. No value gives null. Several columns (or *) give a map by name.",
    error: "none",
    cost: "one pass, about 1.5 ns a value; 24 bytes a column",
    source: "-",
    examples: &["max:arr_delay", "max:x,y", "max:*"],
};

/// An integer that orders as the double does, with `-0.0` before `+0.0`. Its own inverse on bits.
#[inline(always)]
pub(crate) fn order_key(v: f64) -> i64 {
    let bits = v.to_bits() as i64;
    bits ^ ((bits >> 63) as u64 >> 1) as i64
}

/// The double of an [`order_key`].
#[inline(always)]
pub(crate) fn from_key(key: i64) -> f64 {
    f64::from_bits((key ^ ((key >> 63) as u64 >> 1) as i64) as u64)
}

/// The range of some values, as order keys.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Range {
    low: i64,
    high: i64,
    /// True if a NaN was met. It is not part of the range.
    pub(crate) nan: bool,
}

impl Default for Range {
    fn default() -> Self {
        Range { low: i64::MAX, high: i64::MIN, nan: false }
    }
}

impl Range {
    /// Extends the range to a value; NaN is noted, missing values must have been left out.
    #[inline(always)]
    pub(crate) fn add(&mut self, v: f64) {
        if v.is_nan() {
            self.nan = true;
        } else {
            let key = order_key(v);
            self.low = self.low.min(key);
            self.high = self.high.max(key);
        }
    }

    /// Extends the range to another one.
    pub(crate) fn merge(&mut self, other: &Range) {
        self.low = self.low.min(other.low);
        self.high = self.high.max(other.high);
        self.nan |= other.nan;
    }

    /// Smallest and largest value but NaN, if there is one.
    pub(crate) fn ends(&self) -> Option<(f64, f64)> {
        (self.low <= self.high).then(|| (from_key(self.low), from_key(self.high)))
    }

    fn value(&self, end: fn((f64, f64)) -> f64) -> Value {
        match self.ends() {
            _ if self.nan => Value::Float(f64::NAN),
            Some(ends) => Value::Float(end(ends)),
            None => Value::Null,
        }
    }
}

/// Ranges of columns. The result has the members `min` and `max`.
#[derive(Debug)]
pub struct Extremes {
    columns: Chosen,
}

impl Kernel for Extremes {
    type State = Vec<Range>;

    fn needs(&self) -> Needs {
        self.columns.needs()
    }

    fn init(&self) -> Vec<Range> {
        vec![Range::default(); self.columns.ids.len()]
    }

    fn update(&self, state: &mut Vec<Range>, block: &Block<'_>) -> Result<()> {
        for (range, id) in state.iter_mut().zip(&self.columns.ids) {
            let mut r = *range;
            for v in block.numbers(*id) {
                if !is_missing(*v) {
                    r.add(*v);
                }
            }
            *range = r;
        }
        Ok(())
    }

    fn merge(&self, state: &mut Vec<Range>, other: Vec<Range>) -> Result<()> {
        state.iter_mut().zip(&other).for_each(|(a, b)| a.merge(b));
        Ok(())
    }

    fn check(&self, state: &Vec<Range>) -> Result<()> {
        if state.len() == self.columns.ids.len() {
            return Ok(());
        }
        Err(Error::format("a state of other columns came from another rank"))
    }

    fn finish(&self, state: Vec<Range>) -> Result<Step> {
        let each = |end| self.columns.value(state.iter().map(|r| r.value(end)));
        Ok(Step::Done(Value::map([("min", each(|e| e.0)), ("max", each(|e| e.1))])))
    }

    fn state_bytes(&self, state: &Vec<Range>) -> usize {
        size_of_val(state.as_slice())
    }
}

fn built(spec: &Spec, context: &Context<'_>, pick: &'static str) -> Result<Built> {
    spec.only_options(&[])?;
    let columns = Chosen::of(spec, context)?;
    let key = format!("extremes:{}", columns.key());
    Ok(Built { key, kernel: Arc::new(Extremes { columns }), pick: Some(pick), level: 0 })
}

/// Makes `min`.
pub fn min(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    built(spec, context, "min")
}

/// Makes `max`.
pub fn max(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    built(spec, context, "max")
}

#[cfg(test)]
mod tests {
    use crate::moments::tests::{ask, block};
    use stead_core::{MISSING, Value};

    #[test]
    fn ends_of_a_column() {
        let bits = |v: Value| v.as_f64().map(f64::to_bits);
        let blocks = [block(&[3.0, MISSING]), block(&[-7.5, f64::INFINITY])];
        assert_eq!(ask("min:x", &blocks), Value::Float(-7.5));
        assert_eq!(ask("max:x", &blocks), Value::Float(f64::INFINITY));
        let zeros = [block(&[0.0]), block(&[-0.0])];
        assert_eq!(bits(ask("min:x", &zeros)), Some((-0.0f64).to_bits()));
        assert_eq!(bits(ask("max:x", &zeros)), Some(0));
        assert_eq!(ask("min:x", &[block(&[MISSING])]), Value::Null);
        let nan = [block(&[1.0, f64::NAN]), block(&[-f64::INFINITY])];
        assert!(ask("max:x", &nan).as_f64().is_some_and(f64::is_nan));
        let tiny = [block(&[5e-324, -5e-324])];
        assert_eq!(ask("min:x", &tiny), Value::Float(-5e-324));
    }
}
