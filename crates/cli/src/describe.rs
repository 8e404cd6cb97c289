//! `stead describe`.

use crate::args::{DescribeArgs, Described};
use crate::output;
use crate::table::{inline, new_table};
use stead::{ColumnKind, Description, RecordKind, Result, units};

/// Columns of the sample that fit a screen; the rest is in the list of columns.
const SAMPLE_COLUMNS: usize = 12;
/// Columns and files that are listed one by one.
const LISTED: usize = 100;

pub fn describe(a: &DescribeArgs) -> Result<()> {
    let d = a.source.open()?.describe(a.rows)?;
    match a.format {
        Described::Json => output::json(&d),
        Described::Table => output::text(&page(&d)),
    }
}

pub fn page(d: &Description) -> String {
    let mut facts: Vec<(String, String)> = vec![("format".into(), d.format.clone())];
    facts.extend(d.details.iter().map(|(k, v)| (k.replace('_', " "), inline(v))));
    facts.push((
        "records".into(),
        match d.records {
            RecordKind::Lines => "lines".into(),
            RecordKind::Delimited => "rows".into(),
            RecordKind::Fixed(n) => format!("{} each", units::format_size(n)),
            RecordKind::Items => "items of the array".into(),
            RecordKind::Fields => "records of fields".into(),
        },
    ));
    if d.compression != "none" {
        facts.push(("compression".into(), d.compression.clone()));
    }
    facts.push((
        "size".into(),
        format!(
            "{} in {} file(s), {} extent(s)",
            units::format_size(d.bytes),
            units::format_count(d.files.len() as u64),
            units::format_count(d.extents)
        ),
    ));
    let wide = facts.iter().map(|(k, _)| k.len()).max().unwrap_or(0);
    let mut s = String::new();
    for (k, v) in facts {
        s.push_str(&format!("{k:wide$}  {v}\n"));
    }
    if d.files.len() > 1 {
        s.push_str("\nfiles\n");
        for f in d.files.iter().take(LISTED) {
            s.push_str(&format!("  {}  {}\n", f.path, units::format_size(f.bytes)));
        }
        more(&mut s, d.files.len());
    }
    if !d.columns.is_empty() {
        s.push_str("\ncolumns\n");
        let wide = d.columns.iter().take(LISTED).map(|c| c.name.chars().count()).max().unwrap_or(0);
        for (i, c) in d.columns.iter().enumerate().take(LISTED) {
            let kind = match c.kind {
                ColumnKind::Number => "number".to_string(),
                ColumnKind::Binary(t) => t.to_string(),
                ColumnKind::Text => "text".to_string(),
            };
            s.push_str(&format!("  {i:>3}  {:wide$}  {kind}\n", c.name));
        }
        more(&mut s, d.columns.len());
    }
    if !d.rows.is_empty() {
        let mut t = new_table();
        if !d.columns.is_empty() {
            let mut header: Vec<String> =
                d.columns.iter().take(SAMPLE_COLUMNS).map(|c| c.name.clone()).collect();
            if d.columns.len() > SAMPLE_COLUMNS {
                header.push("...".into());
            }
            t.set_header(header);
        }
        for row in &d.rows {
            let mut cells: Vec<String> = row.iter().take(SAMPLE_COLUMNS).cloned().collect();
            if row.len() > SAMPLE_COLUMNS {
                cells.push("...".into());
            }
            t.add_row(cells);
        }
        s.push_str(&format!("\nfirst rows\n{t}\n"));
    }
    s
}

fn more(s: &mut String, n: usize) {
    if n > LISTED {
        s.push_str(&format!("  ... {} in all\n", units::format_count(n as u64)));
    }
}
