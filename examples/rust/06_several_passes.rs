//! A kernel that reads the data several times: the median delay at each airport, to the minute. The first pass finds
//! the least and the greatest value; each one that follows counts how many values lie in the lower half of what is
//! left, and goes on with the half that holds the median. What was found so far stands in the kernel, what is being
//! counted in the state.

#![allow(clippy::print_stdout)]

use std::sync::Arc;
use stead::kernels::{Block, Kernel, Needs, Own, Step, is_missing};
use stead::{Request, Result, Value};

/// The first pass: the number of values, the least and the greatest.
struct Ends {
    column: usize,
}

/// Another pass: how many values are no greater than the middle?
struct Half {
    column: usize,
    values: u64,
    least: f64,
    greatest: f64,
}

impl Half {
    fn middle(&self) -> f64 {
        ((self.least + self.greatest) / 2.0).floor()
    }

    /// The answer, or the pass that comes next.
    fn step(self) -> Step {
        match self.least < self.greatest {
            true => Step::Next(Arc::new(self)),
            false => Step::Done(Value::Float(self.least)),
        }
    }
}

fn values(column: usize, block: &Block<'_>) -> impl Iterator<Item = f64> {
    block.numbers(column).iter().copied().filter(|x| !is_missing(*x))
}

impl Kernel for Ends {
    type State = (u64, f64, f64);

    fn needs(&self) -> Needs {
        Needs { numbers: vec![self.column], ..Needs::default() }
    }

    fn init(&self) -> Self::State {
        (0, f64::INFINITY, f64::NEG_INFINITY)
    }

    fn update(&self, state: &mut Self::State, block: &Block<'_>) -> Result<()> {
        for x in values(self.column, block) {
            *state = (state.0 + 1, state.1.min(x), state.2.max(x));
        }
        Ok(())
    }

    fn merge(&self, state: &mut Self::State, other: Self::State) -> Result<()> {
        *state = (state.0 + other.0, state.1.min(other.1), state.2.max(other.2));
        Ok(())
    }

    fn finish(&self, (values, least, greatest): Self::State) -> Result<Step> {
        Ok(Half { column: self.column, values, least, greatest }.step())
    }

    /// What this pass reads is worth keeping for the next ones.
    fn more_passes(&self) -> bool {
        true
    }
}

impl Kernel for Half {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { numbers: vec![self.column], ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, below: &mut u64, block: &Block<'_>) -> Result<()> {
        let middle = self.middle();
        *below += values(self.column, block).filter(|x| *x <= middle).count() as u64;
        Ok(())
    }

    fn merge(&self, below: &mut u64, other: u64) -> Result<()> {
        *below += other;
        Ok(())
    }

    fn finish(&self, below: u64) -> Result<Step> {
        let (least, greatest) = match below >= self.values.div_ceil(2) {
            true => (self.least, self.middle()),
            false => (self.middle() + 1.0, self.greatest),
        };
        Ok(Half { least, greatest, ..*self }.step())
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "flights.csv".into());
    let flights = stead::open(&[path])?;
    let median =
        Own::new("median", |context| Ok(Ends { column: context.schema.number("arr_delay")? }));
    let request = Request { own: vec![median], by: vec!["origin".into()], ..Request::default() };
    let report = stead::run(&flights, &request, None)?;

    if let Some(Value::Map(airports)) = report.result("median") {
        for (airport, minutes) in airports {
            if let Value::Float(minutes) = minutes {
                println!("{airport} {minutes}");
            }
        }
    }
    Ok(())
}
