//! Answers for each group, of the rows that a filter keeps: how late do flights arrive that left late, by carrier?
//! A grouped result is a map from group to answer. Missing values are left out.

#![allow(clippy::print_stdout)]

use stead::{Request, Result, Value};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "flights.csv".into());
    let flights = stead::open(&[path])?;
    let request = Request {
        kernels: vec!["rows".into(), "mean:arr_delay".into()],
        filter: Some("dep_delay > 60 and origin = 'JFK'".into()),
        by: vec!["carrier".into()],
        ..Request::default()
    };
    let report = stead::run(&flights, &request, None)?;

    if let Some(Value::Map(rows)) = report.result("rows") {
        for (carrier, n) in rows {
            let mean = report.result("mean:arr_delay").and_then(|m| m.get(carrier));
            // A group without any value has no mean: then it is null.
            if let (Value::Int(n), Some(Value::Float(mean))) = (n, mean) {
                println!("{carrier}  {n:>5}  {mean:>7.2}");
            }
        }
    }
    Ok(())
}
