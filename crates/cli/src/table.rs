//! Results as tables for people and as comma-separated values.

use crate::chart;
use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, presets};
use stead::{Report, Value, units};

/// Longest list that is shown in full.
const SHOWN: usize = 20;

/// A number as people read it: at most 10 significant digits, no trailing zeros.
fn number(v: f64) -> String {
    if !v.is_finite() {
        return if v.is_nan() {
            "NaN".into()
        } else if v > 0.0 {
            "inf".into()
        } else {
            "-inf".into()
        };
    }
    if v == v.trunc() && v.abs() < 1e15 {
        return format!("{v:.1}");
    }
    let magnitude = v.abs().log10().floor() as i32;
    if (-5..15).contains(&magnitude) {
        let digits = (9 - magnitude).max(0) as usize;
        let s = format!("{v:.digits$}");
        if s.contains('.') { s.trim_end_matches('0').trim_end_matches('.').to_string() } else { s }
    } else {
        format!("{v:.9e}")
    }
}

/// A value on one line.
pub fn inline(v: &Value) -> String {
    match v {
        Value::Null => "-".into(),
        Value::Bool(b) => if *b { "yes" } else { "no" }.into(),
        Value::Int(i) => units::format_count(*i),
        Value::Float(f) => number(*f),
        Value::Text(t) if t.is_empty() => "''".into(),
        Value::Text(t) => t.clone(),
        Value::List(l) => {
            let mut parts: Vec<String> = l.iter().take(SHOWN).map(inline).collect();
            if l.len() > SHOWN {
                parts.push(format!("... {} in all", units::format_count(l.len() as u64)));
            }
            parts.join(", ")
        }
        Value::Map(m) => {
            m.iter().map(|(k, v)| format!("{k}={}", inline(v))).collect::<Vec<_>>().join(", ")
        }
    }
}

/// A value in full for machines: floats read back to the same bits.
fn exact(v: &Value) -> String {
    match v {
        Value::Null => String::new(),
        Value::Int(i) => i.to_string(),
        Value::Float(f) => serde_json::to_string(&Value::Float(*f))
            .unwrap_or_default()
            .trim_matches('"')
            .to_string(),
        Value::Bool(b) => b.to_string(),
        Value::Text(t) => t.clone(),
        Value::List(_) | Value::Map(_) => serde_json::to_string(v).unwrap_or_default(),
    }
}

fn scalar(v: &Value) -> bool {
    !matches!(v, Value::List(_) | Value::Map(_))
}

/// A list of lists of equal length, or of maps with equal keys.
fn is_table(v: &Value) -> bool {
    let Value::List(rows) = v else { return false };
    !rows.is_empty()
        && (rows.iter().all(|r| matches!(r, Value::List(_)))
            || rows.iter().all(|r| matches!(r, Value::Map(_))))
}

pub fn new_table() -> Table {
    let mut t = Table::new();
    // One rule below the header: rows are told apart by their lines alone.
    let style = presets::NOTHING.header_separator(LineStyle::none().fill('─').junction('─'));
    t.load_style(style).set_content_arrangement(ContentArrangement::Dynamic);
    t
}

fn right(t: &mut Table, from: usize) {
    for c in t.column_iter_mut().skip(from) {
        c.set_cell_alignment(CellAlignment::Right);
    }
}

/// A table whose first column is a name and whose others are numbers.
pub fn plain(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut t = new_table();
    t.set_header(header.to_vec());
    rows.into_iter().for_each(|row| {
        t.add_row(row);
    });
    right(&mut t, 1);
    format!("{t}\n")
}

/// A table of texts.
pub fn left(header: &[&str], rows: Vec<Vec<String>>) -> String {
    let mut t = new_table();
    t.set_header(header.to_vec());
    rows.into_iter().for_each(|row| {
        t.add_row(row);
    });
    // What is empty at the ends of lines is no part of them.
    let lines: Vec<String> = t.to_string().lines().map(|l| l.trim_end().to_owned()).collect();
    lines.join("\n") + "\n"
}

/// All results as tables.
pub fn results(report: &Report) -> String {
    let mut out = String::new();
    let grouped = !report.plan.by.is_empty();
    if grouped {
        let (wide, long): (Vec<_>, Vec<_>) = report
            .results
            .iter()
            .partition(|(_, v)| matches!(v, Value::Map(m) if m.iter().all(|(_, v)| scalar(v))));
        if !wide.is_empty() {
            out.push_str(&groups(report, &wide));
        }
        for (spec, v) in long {
            if let Value::Map(m) = v {
                for (group, v) in m {
                    out.push_str(&section(&format!("{spec} [{group}]"), v, false));
                }
            }
        }
        return out;
    }
    let (flat, deep): (Vec<_>, Vec<_>) = report.results.iter().partition(|(_, v)| scalar(v));
    if !flat.is_empty() {
        let mut t = new_table();
        t.set_header(["kernel", "result"]);
        for (spec, v) in flat {
            t.add_row([spec.clone(), inline(v)]);
        }
        right(&mut t, 1);
        out.push_str(&format!("{t}\n"));
    }
    for (spec, v) in deep {
        let charted = chart::titles(report).any(|t| t == *spec);
        if charted && spec.starts_with("digits") {
            continue;
        }
        out.push_str(&section(spec, v, charted));
    }
    out
}

/// One row a group, one column a kernel.
fn groups(report: &Report, results: &[&(String, Value)]) -> String {
    let mut t = new_table();
    let mut header = vec![report.plan.by.join(",")];
    header.extend(results.iter().map(|(s, _)| s.clone()));
    t.set_header(header);
    for (i, key) in group_keys(results).into_iter().enumerate() {
        let mut row = vec![key.to_string()];
        row.extend(
            results.iter().map(|(_, v)| of_group(v, i, key).map(inline).unwrap_or_default()),
        );
        t.add_row(row);
    }
    right(&mut t, 1);
    format!("{t}\n")
}

fn group_keys<'a>(results: &[&'a (String, Value)]) -> Vec<&'a str> {
    match results.first() {
        Some((_, Value::Map(m))) => m.iter().map(|(k, _)| k.as_str()).collect(),
        _ => Vec::new(),
    }
}

/// The result of the group `key`, which is the `i`th of every kernel: they all see the same rows.
fn of_group<'a>(v: &'a Value, i: usize, key: &str) -> Option<&'a Value> {
    match v {
        Value::Map(m) => match m.get(i) {
            Some((k, v)) if k == key => Some(v),
            _ => v.get(key),
        },
        _ => None,
    }
}

/// A structured result: its single values in one table, its tables below.
fn section(title: &str, v: &Value, charted: bool) -> String {
    let mut out = format!("\n{title}\n");
    match v {
        Value::Map(m) => {
            let mut t = new_table();
            // What a chart below shows need not stand here as well.
            let drawn = |k: &str| charted && matches!(k, "edges" | "counts");
            for (k, v) in m.iter().filter(|(k, v)| !is_table(v) && !drawn(k)) {
                t.add_row([k.clone(), inline(v)]);
            }
            if t.row_count() > 0 {
                out.push_str(&format!("{t}\n"));
            }
            let columns = match v.get("columns") {
                Some(Value::List(c)) => c.iter().map(inline).collect(),
                _ => Vec::new(),
            };
            for (k, v) in m.iter().filter(|(_, v)| is_table(v)) {
                out.push_str(&format!("{k}\n{}\n", matrix(v, &columns)));
            }
        }
        v if is_table(v) => out.push_str(&format!("{}\n", matrix(v, &[]))),
        v => out.push_str(&format!("{}\n", inline(v))),
    }
    out
}

fn matrix(v: &Value, columns: &[String]) -> Table {
    let mut t = new_table();
    let Value::List(rows) = v else { return t };
    for (i, row) in rows.iter().enumerate().take(200) {
        match row {
            Value::List(cells) => {
                if i == 0 && columns.len() == cells.len() {
                    t.set_header(columns);
                }
                t.add_row(cells.iter().map(inline));
            }
            Value::Map(cells) => {
                if i == 0 {
                    t.set_header(cells.iter().map(|(k, _)| k.clone()));
                }
                t.add_row(cells.iter().map(|(_, v)| inline(v)));
            }
            other => {
                t.add_row([inline(other)]);
            }
        }
    }
    if rows.len() > 200 {
        t.add_row([format!("... {} in all", units::format_count(rows.len() as u64))]);
    }
    t
}

/// Comma-separated values. By groups: one row a group, one column for each grouping column and each kernel,
/// results that are no single value as JSON. Otherwise rows `kernel,item,value`.
pub fn csv(report: &Report) -> String {
    let mut out = String::new();
    let row = |out: &mut String, cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|c| quoted(c)).collect();
        out.push_str(&cells.join(","));
        out.push('\n');
    };
    if !report.plan.by.is_empty() {
        let wide: Vec<&(String, Value)> = report.results.iter().collect();
        let by = &report.plan.by;
        row(&mut out, &by.iter().chain(wide.iter().map(|(s, _)| s)).cloned().collect::<Vec<_>>());
        for (i, key) in group_keys(&wide).into_iter().enumerate() {
            // The texts of several columns come joined and quoted already.
            out.push_str(&if by.len() > 1 { key.to_string() } else { quoted(key) });
            out.push(',');
            let value = |(_, v): &&(String, Value)| of_group(v, i, key).map(exact);
            row(&mut out, &wide.iter().map(|r| value(r).unwrap_or_default()).collect::<Vec<_>>());
        }
        return out;
    }
    row(&mut out, &["kernel".into(), "item".into(), "value".into()]);
    for (spec, v) in &report.results {
        flatten(v, String::new(), &mut |item, v| {
            row(&mut out, &[spec.clone(), item.to_string(), exact(v)]);
        });
    }
    out
}

fn flatten(v: &Value, path: String, each: &mut impl FnMut(&str, &Value)) {
    let join = |k: &str| if path.is_empty() { k.to_string() } else { format!("{path}.{k}") };
    match v {
        Value::Map(m) => m.iter().for_each(|(k, v)| flatten(v, join(k), each)),
        Value::List(l) => {
            l.iter().enumerate().for_each(|(i, v)| flatten(v, join(&i.to_string()), each))
        }
        v => each(&path, v),
    }
}

fn quoted(s: &str) -> String {
    if s.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", s.replace('"', "\"\""))
    } else {
        s.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_for_people_and_exact_for_machines() {
        assert_eq!(number(0.1 + 0.2), "0.3");
        assert_eq!(number(6.895376757), "6.895376757");
        assert_eq!(number(1e300), "1.000000000e300");
        assert_eq!(number(42.0), "42.0");
        assert_eq!(exact(&Value::Float(0.1 + 0.2)), "0.30000000000000004");
        assert_eq!(exact(&Value::Float(f64::NAN)), "NaN");
        assert_eq!(quoted("a,\"b"), "\"a,\"\"b\"");
    }
}
