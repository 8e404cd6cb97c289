//! `stead describe`.

use crate::args::{DescribeArgs, Described};
use crate::output;
use crate::table::{inline, new_table};
use std::path::{Path, PathBuf};
use stead::layout::{Layout, LayoutDescription, SUFFIX};
use stead::{ColumnKind, Description, RecordKind, Result, units};

/// Columns of the sample that fit a screen; the rest is in the list of columns.
const SAMPLE_COLUMNS: usize = 12;
/// Columns and files that are listed one by one.
const LISTED: usize = 100;

pub fn describe(a: &DescribeArgs) -> Result<()> {
    if let Some(path) = layout(&a.source.inputs) {
        let d = stead::layout::read(&path)?.describe()?;
        return match a.format {
            Described::Json => output::json(&d),
            Described::Table => output::text(&layout_page(&d)),
        };
    }
    let d = a.source.open()?.describe(a.rows)?;
    match a.format {
        Described::Json => output::json(&d),
        Described::Table => output::text(&page(&d)),
    }
}

/// The layout that is meant: the one that is named, or that of a file which is not there itself.
fn layout(inputs: &[String]) -> Option<PathBuf> {
    let [input] = inputs else { return None };
    let path = Path::new(input);
    if path.file_name().and_then(|n| n.to_str()).is_some_and(Layout::is_name) {
        return Some(path.to_path_buf());
    }
    let beside = PathBuf::from(format!("{input}{SUFFIX}"));
    (!path.exists() && beside.is_file()).then_some(beside)
}

fn layout_page(d: &LayoutDescription) -> String {
    let stripes = units::format_count(d.stripes);
    let stripes = match d.stripe {
        Some(stripe) => format!("{stripes} of {}", units::format_size(stripe)),
        None => format!("{stripes} that end where records end"),
    };
    let facts = [
        ("layout of", d.name.clone()),
        (
            "size",
            format!("{} ({} bytes)", units::format_size(d.bytes), units::format_count(d.bytes)),
        ),
        ("stripes", stripes),
    ];
    let mut s: String = facts.iter().map(|(key, value)| format!("{key:9}  {value}\n")).collect();
    let percent = |share: f64| format!("{:.1} %", 100.0 * share);
    let mut t = new_table();
    t.set_header(["node", "parts", "bytes", "share"]);
    for n in d.nodes.iter().take(LISTED) {
        let parts = units::format_count(n.parts as u64);
        t.add_row([n.node.clone(), parts, units::format_count(n.bytes), percent(n.share)]);
    }
    s.push_str(&format!("\nnodes\n{t}\n"));
    more(&mut s, d.nodes.len());
    let mut t = new_table();
    t.set_header(["part", "node", "space", "path", "bytes", "stripes", "share", "checksum"]);
    for (i, p) in d.parts.iter().enumerate().take(LISTED) {
        t.add_row([
            i.to_string(),
            p.node.clone(),
            p.space.clone().unwrap_or_default(),
            p.path.clone(),
            units::format_count(p.bytes),
            units::format_count(p.stripes),
            percent(p.share),
            p.checksum.clone().unwrap_or_default(),
        ]);
    }
    s.push_str(&format!("\nparts\n{t}\n"));
    more(&mut s, d.parts.len());
    s
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
