//! An array of the program's own is a dataset: it is given away, not copied. A Gram matrix is a list of lists.

#![allow(clippy::print_stdout)]

use stead::{ByteOrder, DType, FormatType, OpenOptions, Request, Result, Value};

fn main() -> Result<()> {
    let points: Vec<u8> = (0..1000u32)
        .flat_map(|i| [1.0, f64::from(i), f64::from(i * 7 % 13)])
        .flat_map(f64::to_ne_bytes)
        .collect();
    let options = OpenOptions {
        format: Some(FormatType::Raw),
        dtype: Some(DType::F64),
        shape: Some(vec![1000, 3]),
        byte_order: Some(ByteOrder::NATIVE),
        ..OpenOptions::default()
    };
    let data = stead::open_memory("points", points, &options)?;
    let request = Request { kernels: vec!["gram:*".into()], ..Request::default() };
    let report = stead::run(&data, &request, None)?;

    if let Some(Value::List(rows)) = report.result("gram:*").and_then(|g| g.get("matrix")) {
        for row in rows {
            if let Value::List(row) = row {
                let line: String =
                    row.iter().filter_map(Value::as_f64).map(|x| format!("{x:12.0}")).collect();
                println!("{line}");
            }
        }
    }
    Ok(())
}
