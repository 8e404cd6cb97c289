//! Opens a file with everything detected, asks three questions of one scan, and reads the answers.

#![allow(clippy::print_stdout)]

use stead::{Request, Result, Value};

fn main() -> Result<()> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "flights.csv".into());
    let flights = stead::open(&[path])?;
    let request = Request {
        kernels: ["rows", "mean:arr_delay", "max:arr_delay"].map(String::from).to_vec(),
        ..Request::default()
    };
    let report = stead::run(&flights, &request, None)?;

    if let Some(Value::Int(n)) = report.result("rows") {
        println!("rows  {n}");
    }
    for (label, spec) in [("mean", "mean:arr_delay"), ("max", "max:arr_delay")] {
        match report.result(spec).and_then(Value::as_f64) {
            Some(x) if label == "mean" => println!("mean  {x:.6}"),
            Some(x) => println!("{label}   {x}"),
            None => println!("{label}  nothing"),
        }
    }
    Ok(())
}
