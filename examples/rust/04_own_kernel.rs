//! A kernel of one's own: which flight of each month was the longest, and how many were longer than six hours? A state
//! is made for each thread, blocks are added to it, states are merged, and the last one says the result. What is
//! written here works with filters, groups and any number of threads, and the answer does not depend on how the work
//! was split.

#![allow(clippy::print_stdout)]

use stead::kernels::{Block, Kernel, Needs, Own, Step};
use stead::{Error, Request, Result, Value};

struct LongFlights {
    column: usize,
    limit: f64,
}

impl Kernel for LongFlights {
    /// The longest, and how many were long. It travels between ranks, so it is plain data.
    type State = (f64, u64);

    fn needs(&self) -> Needs {
        Needs { numbers: vec![self.column], ..Needs::default() }
    }

    fn init(&self) -> Self::State {
        (0.0, 0)
    }

    fn update(&self, state: &mut Self::State, block: &Block<'_>) -> Result<()> {
        // A missing value is a NaN: it is not greater than anything.
        for minutes in block.numbers(self.column) {
            if *minutes < 0.0 {
                return Err(Error::data("a flight of negative length"));
            }
            state.0 = state.0.max(*minutes);
            state.1 += u64::from(*minutes > self.limit);
        }
        Ok(())
    }

    fn merge(&self, state: &mut Self::State, other: Self::State) -> Result<()> {
        state.0 = state.0.max(other.0);
        state.1 += other.1;
        Ok(())
    }

    fn finish(&self, state: Self::State) -> Result<Step> {
        let result =
            Value::map([("longest", Value::Float(state.0)), ("long", Value::Int(state.1))]);
        Ok(Step::Done(result))
    }
}

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "flights.csv".into());
    let flights = stead::open(&[path])?;
    let kernel = Own::new("long flights", |context| {
        Ok(LongFlights { column: context.schema.number("air_time")?, limit: 360.0 })
    });
    let request = Request { own: vec![kernel], by: vec!["month".into()], ..Request::default() };
    let report = stead::run(&flights, &request, None)?;

    if let Some(Value::Map(months)) = report.result("long flights") {
        for (month, found) in months {
            if let (Some(Value::Float(longest)), Some(Value::Int(n))) =
                (found.get("longest"), found.get("long"))
            {
                println!("{month:>2}  {longest:>4.0}  {n:>5}");
            }
        }
    }
    Ok(())
}
