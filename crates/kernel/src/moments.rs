//! Count, sum, mean, variance and standard deviation: one shared kernel, exact until the last rounding.

mod cell;

pub use cell::Cell;

use crate::cells::{ByColumn, Cells};
use crate::columns::{Chosen, Only};
use crate::exact::{ExactSum, add_with_squares, ratio};
use crate::many::Many;
use crate::{Built, Context, Info, Kernel, Spec, Step};
use num_bigint::{BigInt, BigUint};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Result, Value, is_missing};

const SOURCE: &str = "R. M. Neal, 'Fast exact summation using small and large superaccumulators', arXiv:1505.05571 (2015)";

/// `count`
pub const COUNT: Info = Info {
    name: "count",
    summary: "number of values that are not missing",
    usage: "count:COLUMN[,COLUMN...] | count:*",
    definition: "The number of rows in which the column has a value. NaN and infinities are values. \
        0 for no rows. One column gives an integer, several (or * for all numeric ones) a map by name.",
    error: "none",
    cost: "one pass, about 0.3 ns a value; 8 bytes a column",
    source: "-",
    examples: &["count:arr_delay", "count:x,y", "count:*"],
};

/// `sum`
pub const SUM: Info = Info {
    name: "sum",
    summary: "sum, correctly rounded",
    usage: "sum:COLUMN[,COLUMN...] | sum:*",
    definition: "The sum of all values that are not missing, computed exactly and rounded once to the \
        nearest double (ties to even), so that 1e308 + -1e308 + 1e-308 is 1e-308. NaN, or infinities of both \
        signs, give NaN; a sum beyond the range of doubles is infinite. 0.0 for no values; a sum of exactly \
        zero is +0.0. Several columns (or *) give a map by name.",
    error: "half a unit in the last place: the double nearest to the true sum, whatever the split or order",
    cost: "one pass, about 0.4 ns a value; at most 1.1 KB a column",
    source: SOURCE,
    examples: &["sum:distance", "sum:x,y", "sum:*"],
};

/// `mean`
pub const MEAN: Info = Info {
    name: "mean",
    summary: "arithmetic mean, correctly rounded",
    usage: "mean:COLUMN[,COLUMN...] | mean:*",
    definition: "The exact sum of the values that are not missing, divided by their number, rounded once \
        to the nearest double. Missing values are neither added nor counted; NaN propagates; the mean of \
        values whose sum is beyond the range of doubles is still right. No value gives null. Several \
        columns (or *) give a map by name.",
    error: "half a unit in the last place, whatever the split or order",
    cost: "one pass, about 0.4 ns a value; at most 1.1 KB a column",
    source: SOURCE,
    examples: &["mean:arr_delay", "mean:x,y,z", "mean:*"],
};

/// `var`
pub const VAR: Info = Info {
    name: "var",
    summary: "variance, correctly rounded",
    usage: "var:COLUMN[,COLUMN...][,ddof=1] | var:*",
    definition: "(n sum(x^2) - sum(x)^2) / (n (n - ddof)) with exact sums, rounded once to the nearest \
        double. ddof is 1 (the unbiased estimate, as in pandas and R) or 0 (of the population, as in NumPy). \
        Missing values are left out; a NaN or an infinity gives NaN; fewer than ddof + 1 values give null. \
        Several columns (or *) give a map by name.",
    error: "half a unit in the last place, whatever the split or order; no cancellation",
    cost: "one pass, about 0.8 ns a value (the sum is included); at most 2.2 KB a column",
    source: SOURCE,
    examples: &["var:arr_delay", "var:x,ddof=0", "var:*"],
};

/// `std`
pub const STD: Info = Info {
    name: "std",
    summary: "standard deviation, correctly rounded",
    usage: "std:COLUMN[,COLUMN...][,ddof=1] | std:*",
    definition: "The square root of the exact variance (see var), rounded once to the nearest double. \
        Missing values, NaN, infinities and too few values as for var.",
    error: "half a unit in the last place, whatever the split or order",
    cost: "one pass, about 0.8 ns a value (sum and variance are included); at most 2.2 KB a column",
    source: SOURCE,
    examples: &["std:arr_delay", "std:x,ddof=0", "std:*"],
};

/// How much is accumulated: also the level at which the registry lets requests share a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Order {
    /// The number of values.
    Count,
    /// And their sum.
    Sum,
    /// And the sum of their squares.
    Squares,
}

/// Counts, exact sums and exact sums of squares of columns. The result is a map with a member for each
/// statistic that the order allows: `count`, `sum`, `mean`, `var`, `var0`, `std`, `std0` (`0`: ddof=0).
#[derive(Debug)]
pub struct Moments {
    columns: Chosen,
    order: Order,
    only: Only,
}

/// The sums of one column.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Sums {
    /// Values that are not missing.
    count: u64,
    /// Their sum.
    sum: ExactSum,
    /// The sum of their squares.
    squares: ExactSum,
}

impl Sums {
    /// Adds values; missing ones are skipped.
    pub(crate) fn add(&mut self, values: &[f64], order: Order) {
        if order == Order::Count {
            self.count += values.iter().map(|v| u64::from(!is_missing(*v))).sum::<u64>();
            return;
        }
        self.count += match order {
            Order::Squares => add_with_squares(&mut self.sum, &mut self.squares, values),
            _ => self.sum.add_slice(values),
        };
    }

    /// Adds the sums of other values.
    pub(crate) fn merge(&mut self, other: &Sums) {
        self.count = self.count.saturating_add(other.count);
        self.sum.merge(&other.sum);
        self.squares.merge(&other.squares);
    }

    /// Bytes that they take.
    fn bytes(&self) -> usize {
        size_of::<u64>() + self.sum.bytes() + self.squares.bytes()
    }

    /// The exact mean, rounded; null for no values.
    pub(crate) fn mean(&self) -> Value {
        if self.count == 0 {
            return Value::Null;
        }
        Value::Float(self.sum.special().unwrap_or_else(|| {
            let (sum, exponent) = self.sum.to_scaled();
            ratio::round_ratio(&sum, &BigUint::from(self.count), exponent)
        }))
    }

    /// The exact variance as `num / den * 2^exponent`; NaN (`None`) if a value is not finite.
    fn variance(&self, ddof: u64) -> Option<(BigInt, BigUint, i64)> {
        if self.sum.special().is_some() || self.squares.special().is_some() {
            return None;
        }
        let (sum, e1) = self.sum.to_scaled();
        let (squares, e2) = self.squares.to_scaled();
        // Both terms in units of the smaller exponent.
        let exponent = (2 * e1).min(e2);
        let squares = (squares * self.count) << (e2 - exponent).unsigned_abs();
        let square = (&sum * &sum) << (2 * e1 - exponent).unsigned_abs();
        let den = BigUint::from(self.count) * BigUint::from(self.count - ddof);
        Some((squares - square, den, exponent))
    }

    /// The exact variance, rounded by one of the functions of [`ratio`]; null for too few values.
    pub(crate) fn spread(&self, ddof: u64, round: fn(&BigInt, &BigUint, i64) -> f64) -> Value {
        if self.count <= ddof {
            return Value::Null;
        }
        Value::Float(self.variance(ddof).map_or(f64::NAN, |(n, d, e)| round(&n, &d, e)))
    }
}

impl Kernel for Moments {
    type State = Vec<Sums>;

    fn needs(&self) -> Needs {
        self.columns.needs()
    }

    fn init(&self) -> Vec<Sums> {
        vec![Sums::default(); self.columns.ids.len()]
    }

    fn update(&self, state: &mut Vec<Sums>, block: &Block<'_>) -> Result<()> {
        for (sums, id) in state.iter_mut().zip(&self.columns.ids) {
            sums.add(block.numbers(*id), self.order);
        }
        Ok(())
    }

    fn merge(&self, state: &mut Vec<Sums>, other: Vec<Sums>) -> Result<()> {
        for (a, b) in state.iter_mut().zip(&other) {
            a.merge(b);
        }
        Ok(())
    }

    fn check(&self, state: &Vec<Sums>) -> Result<()> {
        if state.len() == self.columns.ids.len() {
            return Ok(());
        }
        Err(Error::format("a state of other columns came from another rank"))
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, state: Vec<Sums>) -> Result<Step> {
        self.answer(&state.into_iter().map(Cell::from).collect::<Vec<_>>()).map(Step::Done)
    }

    fn state_bytes(&self, state: &Vec<Sums>) -> usize {
        state.iter().map(Sums::bytes).sum()
    }

    fn many(self: Arc<Self>) -> Box<dyn Many> {
        Box::new(Cells::new(self))
    }

    fn only(&self, members: &[&'static str]) -> Option<Moments> {
        let only = Only::these(members);
        Some(Moments { columns: self.columns.clone(), order: self.order, only })
    }
}

impl ByColumn for Moments {
    type Part = Sums;
    type Cell = Cell;

    fn columns(&self) -> &[usize] {
        &self.columns.ids
    }

    fn cell(&self) -> Cell {
        Cell::default()
    }

    #[inline]
    fn add(&self, cell: &mut Cell, value: f64) -> usize {
        cell.add(value, self.order)
    }

    fn add_all(&self, cell: &mut Cell, values: &[f64]) -> usize {
        cell.add_all(values, self.order)
    }

    fn join(&self, cell: &mut Cell, other: Cell) -> usize {
        cell.merge(other)
    }

    #[inline]
    fn glance(&self, cell: &Cell) -> u64 {
        cell.glance()
    }

    fn part(&self, cell: &Cell) -> Sums {
        cell.sums()
    }

    fn of_part(&self, part: Sums) -> Cell {
        part.into()
    }

    fn beside(&self, cell: &Cell) -> usize {
        cell.beside()
    }

    fn answer(&self, cells: &[Cell]) -> Result<Value> {
        let each = |f: &dyn Fn(&Cell) -> Value| self.columns.value(cells.iter().map(f));
        let members: &[&'static str] = match self.order {
            Order::Count => &["count"],
            Order::Sum => &["count", "sum", "mean"],
            Order::Squares => &["count", "sum", "mean", "var", "var0", "std", "std0"],
        };
        Ok(self.only.answer(members, |member| match member {
            "count" => each(&Cell::count),
            "sum" => each(&Cell::sum),
            "mean" => each(&Cell::mean),
            "var" => each(&|c| c.spread(1, ratio::round_ratio)),
            "var0" => each(&|c| c.spread(0, ratio::round_ratio)),
            "std" => each(&|c| c.spread(1, ratio::round_sqrt_ratio)),
            _ => each(&|c| c.spread(0, ratio::round_sqrt_ratio)),
        }))
    }
}

fn built(
    spec: &Spec,
    context: &Context<'_>,
    order: Order,
    pick: &'static str,
    options: &[&str],
) -> Result<Built> {
    spec.only_options(options)?;
    let columns = Chosen::of(spec, context)?;
    Ok(Built {
        key: format!("moments:{}", columns.key()),
        rows: by_rows::of(&columns, order, context),
        kernel: Arc::new(Moments { columns, order, only: Only::default() }),
        pick: Some(pick),
        level: order as u32,
    })
}

/// Makes `count`.
pub fn count(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    built(spec, context, Order::Count, "count", &[])
}

/// Makes `sum`.
pub fn sum(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    built(spec, context, Order::Sum, "sum", &[])
}

/// Makes `mean`.
pub fn mean(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    built(spec, context, Order::Sum, "mean", &[])
}

/// Makes `var`.
pub fn var(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    spread(spec, context, ["var0", "var"])
}

/// Makes `std`.
pub fn std(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    spread(spec, context, ["std0", "std"])
}

fn spread(spec: &Spec, context: &Context<'_>, picks: [&'static str; 2]) -> Result<Built> {
    let ddof = spec.parse_option("ddof", 1usize)?;
    let Some(pick) = picks.get(ddof) else {
        return Err(spec.error("ddof is 0 or 1"));
    };
    built(spec, context, Order::Squares, pick, &["ddof"])
}

mod by_rows;
#[cfg(test)]
pub(crate) mod tests;
