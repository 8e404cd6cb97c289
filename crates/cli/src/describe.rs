//! `stead describe`.

use crate::args::{DescribeArgs, Described};
use crate::output;
use stead::Result;

pub fn describe(a: &DescribeArgs) -> Result<()> {
    let d = a.source.open()?.describe(a.rows)?;
    match a.format {
        Described::Json => output::json(&d),
        Described::Table => output::text(&format!("{d:?}\n")),
    }
}
