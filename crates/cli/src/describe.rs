//! `stead describe`.

use crate::args::{DescribeArgs, Described};
use crate::table::{inline, new_table};
use crate::{output, ranks};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead::fabric::Fabric;
use stead::layout::{Layout, LayoutDescription, SUFFIX};
use stead::{Cancel, ColumnKind, Description, Error, Kind, RecordKind, Result, units};

/// Columns of the sample that fit a screen; the rest is in the list of columns.
const SAMPLE_COLUMNS: usize = 12;
/// Columns, files and layouts that are listed one by one.
const LISTED: usize = 100;

pub fn describe(a: &DescribeArgs) -> Result<()> {
    if a.alone {
        return describe_on(a, None);
    }
    ranks::with(|fabric| describe_on(a, fabric))
}

/// Describes, alone or as one of several ranks, of which the first one looks and prints. The others give it what lies with them.
fn describe_on(a: &DescribeArgs, fabric: Option<&Arc<dyn Fabric>>) -> Result<()> {
    let (inputs, options) = (&a.source.inputs, a.source.options());
    let Some(fabric) = fabric else {
        let opened = a.source.open();
        return show(a, opened.and_then(|data| data.describe(a.rows)));
    };
    let opened = stead::ranks::open_on(fabric, inputs, &options, &Cancel::new());
    let (data, failed) = match opened {
        Err(e) if e.kind() == Kind::Peer => return Err(e),
        Err(e) => (None, Some(e)),
        Ok(data) => (Some(data), None),
    };
    let shown = match (fabric.rank(), &data, failed) {
        (0, _, Some(e)) => show(a, Err(e)),
        (0, Some(data), None) => show(a, data.describe(a.rows)),
        _ => Ok(()),
    };
    // Until then the others give the first rank what lies with them.
    let done = stead::ranks::agree(&**fabric, shown);
    drop(data);
    done
}

/// A layout, and the file that it is of.
#[derive(Serialize)]
struct Spread<'s> {
    #[serde(flatten)]
    layout: &'s LayoutDescription,
    /// If all parts could be reached.
    data: Option<&'s Description>,
    /// Why not.
    not_read: Option<String>,
}

/// The layouts of a folder, besides its data.
#[derive(Serialize)]
struct Folder<'s> {
    #[serde(flatten)]
    data: Option<&'s Description>,
    layouts: &'s [Listed],
}

/// A layout in a folder.
#[derive(Serialize)]
struct Listed {
    path: String,
    /// `None` if it cannot be read.
    name: Option<String>,
    bytes: Option<u64>,
    parts: usize,
    nodes: Vec<String>,
    /// Why it cannot be read.
    error: Option<String>,
}

/// Prints what is known of the data, and of layouts, which say something of data that cannot be read, too.
fn show(a: &DescribeArgs, data: Result<Description>) -> Result<()> {
    if data.as_ref().is_err_and(|e| matches!(e.kind(), Kind::Cancelled | Kind::Internal)) {
        return data.map(drop);
    }
    if let Some(path) = layout(&a.source.inputs) {
        let d = stead::layout::read(&path)?.describe()?;
        let (data, not_read) = match data {
            Ok(data) => (Some(data), None),
            Err(e) => (None, Some(e)),
        };
        if a.format == Described::Json {
            let not_read = not_read.map(|e| e.to_string());
            return output::json(&Spread { layout: &d, data: data.as_ref(), not_read });
        }
        let mut s = layout_page(&d);
        if let Some(data) = &data {
            s.push_str(&format!("\ndata\n{}", page(data)));
        }
        if let Some(e) = &not_read {
            s.push_str(&format!("\nthe data were not read: {e}\n"));
        }
        return output::text(&s);
    }
    let layouts = match &a.source.inputs[..] {
        [dir] if Path::new(dir).is_dir() => listed(Path::new(dir))?,
        _ => Vec::new(),
    };
    if layouts.is_empty() {
        let d = data?;
        return match a.format {
            Described::Json => output::json(&d),
            Described::Table => output::text(&page(&d)),
        };
    }
    // There may be nothing else.
    let data = match data {
        Err(e) if e.kind() == Kind::NotFound => None,
        data => Some(data?),
    };
    if a.format == Described::Json {
        return output::json(&Folder { data: data.as_ref(), layouts: &layouts });
    }
    let mut s = data.as_ref().map_or_else(String::new, |d| format!("{}\n", page(d)));
    let mut t = new_table();
    t.set_header(["layout of", "bytes", "parts", "nodes"]);
    for l in layouts.iter().take(LISTED) {
        let bytes = l.bytes.map(units::format_count).unwrap_or_default();
        match &l.error {
            Some(e) => t.add_row([l.path.as_str(), "", "", e.as_str()]),
            None => t.add_row([
                l.name.as_deref().unwrap_or_default(),
                &bytes,
                &l.parts.to_string(),
                &stead::layout::nodes::fold(&l.nodes),
            ]),
        };
    }
    s.push_str(&format!("layouts\n{t}\n"));
    more(&mut s, layouts.len());
    output::text(&s)
}

/// The layouts of a folder, in the order of their names.
fn listed(dir: &Path) -> Result<Vec<Listed>> {
    let failed = |e| Error::io("list", dir, e);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(dir).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let name = path.file_name().and_then(|n| n.to_str());
        if name.is_some_and(|n| Layout::is_name(n) && !n.starts_with('.')) && path.is_file() {
            paths.push(path);
        }
    }
    paths.sort();
    let one = |path: PathBuf| {
        let read = stead::layout::read(&path).and_then(|layout| layout.describe());
        let (d, error) = match read {
            Ok(d) => (Some(d), None),
            Err(e) => (None, Some(e.message().to_owned())),
        };
        Listed {
            path: path.display().to_string(),
            bytes: d.as_ref().map(|d| d.bytes),
            parts: d.as_ref().map_or(0, |d| d.parts.len()),
            nodes: d.iter().flat_map(|d| d.nodes.iter().map(|n| n.node.clone())).collect(),
            name: d.map(|d| d.name),
            error,
        }
    };
    Ok(paths.into_iter().map(one).collect())
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
