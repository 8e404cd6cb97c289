//! `stead run`.

use crate::args::{Format, RunArgs};
use crate::progress::Bar;
use crate::{output, ranks, signals, table};
use std::sync::Arc;
use stead::fabric::Fabric;
use stead::{Cancel, Error, IoOptions, Observer, OpenOptions, Report, Request, Result, units};

pub fn run(a: &RunArgs) -> Result<()> {
    if a.alone {
        return run_on(a, None);
    }
    ranks::with(|fabric| run_on(a, fabric))
}

/// The request, and what says that the work is done.
fn prepare(a: &RunArgs, ranks: bool) -> Result<(Request, Cancel)> {
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, ranks)?;
    let mut request = Request {
        kernels: a.kernels.clone(),
        filter: a.filter.clone(),
        by: a.by.clone(),
        threads: a.threads,
        memory: a.memory,
        lenient: a.lenient,
        outputs: a.plot.iter().cloned().collect(),
        place: a.place.unwrap_or_default(),
        io: IoOptions { engine: a.engine.into(), direct: a.direct, ..IoOptions::default() },
        cancel,
        ..Request::default()
    };
    if let Some(depth) = a.queue_depth {
        request.io.depth = depth;
    }
    if let Some(chunk) = a.chunk {
        request.chunk =
            usize::try_from(chunk).map_err(|_| Error::usage("this chunk is too large"))?;
    }
    Ok((request, done))
}

/// Runs, alone or as one of several ranks, of which the first one prints what all of them found.
fn run_on(a: &RunArgs, fabric: Option<&Arc<dyn Fabric>>) -> Result<()> {
    let (request, done) = match (prepare(a, fabric.is_some()), fabric) {
        (Ok(prepared), _) => prepared,
        (Err(error), None) => return Err(error),
        (Err(error), Some(fabric)) => return Err(stead::ranks::refuse(&**fabric, error)),
    };
    let inputs = &a.source.inputs;
    let options = OpenOptions { storage_hosts: a.storage_hosts.clone(), ..a.source.options() };
    let dataset = match fabric {
        None => stead::open_with(inputs, &options)?,
        Some(fabric) => stead::ranks::open_on(fabric, inputs, &options, &request.cancel)?,
    };
    let fabric = fabric.map(|f| &**f);
    let first = fabric.is_none_or(|f| f.rank() == 0);
    let bar = if first { Bar::new(a.progress) } else { None };
    let observer = bar.as_ref().map(|b| b as &dyn Observer);
    let result = match fabric {
        Some(fabric) => stead::run_on(fabric, &dataset, &request, observer),
        None => stead::run(&dataset, &request, observer),
    };
    if let Some(bar) = &bar {
        bar.clear();
    }
    let report = result?;
    // What remains to be done looks at no flag.
    done.cancel();
    let shown = if first { show(a, &report) } else { Ok(()) };
    match fabric {
        Some(fabric) => stead::ranks::agree(fabric, shown),
        None => shown,
    }
}

/// Draws and prints a report.
fn show(a: &RunArgs, report: &Report) -> Result<()> {
    if let Some(path) = &a.plot {
        let svg = stead::plot::svg(report)?;
        stead::write_file(path, svg.as_bytes())?;
    }
    match a.format {
        Format::Json => output::json(report),
        Format::Csv => output::text(&table::csv(report)),
        Format::Table => {
            let mut s = crate::results_text(report);
            if a.explain {
                s.push_str(&explain(report));
            }
            output::text(&s)
        }
    }?;
    if a.explain && a.format == Format::Csv {
        use std::io::Write;
        let _ = write!(std::io::stderr(), "{}", explain(report));
    }
    if report.metrics.rows_skipped > 0 && a.format != Format::Json {
        use std::io::Write;
        let n = report.metrics.rows_skipped;
        let were = if n == 1 { "record was skipped; it" } else { "records were skipped; they" };
        let _ = writeln!(
            std::io::stderr(),
            "stead: {} {were} could not be read",
            units::format_count(n)
        );
    }
    if report.metrics.integers_rounded > 0 && a.format != Format::Json {
        use std::io::Write;
        let n = report.metrics.integers_rounded;
        let were = if n == 1 { "integer beyond 2^53 was" } else { "integers beyond 2^53 were" };
        let _ = writeln!(
            std::io::stderr(),
            "stead: {} {were} rounded to the nearest 64-bit float",
            units::format_count(n)
        );
    }
    Ok(())
}

/// The plan and what it took, for people.
pub fn explain(r: &Report) -> String {
    let (p, m) = (&r.plan, &r.metrics);
    let mut rows: Vec<(String, String)> = vec![
        (
            "dataset".into(),
            format!("{} file(s), {}, {}", p.files, units::format_size(p.bytes), p.format),
        ),
        (
            "means".into(),
            format!(
                "{} thread(s) with {} vectors, extents of {}, at most {} of memory",
                p.threads,
                p.vectors,
                units::format_size(p.chunk_bytes as u64),
                units::format_size(p.memory_bytes)
            ),
        ),
    ];
    if p.ranks > 1 {
        let read = |n: u64| units::format_size(n);
        let bytes = m.ranks.iter().map(|r| r.bytes_read);
        rows.push((
            "ranks".into(),
            format!(
                "{} on {} node(s), each read {} to {}; {} sent between them",
                p.ranks,
                p.nodes,
                read(bytes.clone().min().unwrap_or(0)),
                read(bytes.max().unwrap_or(0)),
                read(m.bytes_sent)
            ),
        ));
        if m.bytes_fetched > 0 {
            let of_data = read(m.bytes_fetched);
            rows.push(("moved".into(), format!("{of_data} of the data, from rank to rank")));
        }
    }
    if let Some(placing) = &p.place {
        rows.extend(crate::place::rows(placing));
    }
    for (k, v) in &p.scan {
        rows.push((k.clone(), table::inline(v)));
    }
    if let Some(f) = &p.filter {
        rows.push(("where".into(), f.clone()));
    }
    if !p.by.is_empty() {
        rows.push(("by".into(), p.by.join(", ")));
    }
    for k in &p.kernels {
        let mut reads = Vec::new();
        if !k.columns.is_empty() {
            reads.push(format!("columns {}", k.columns.join(", ")));
        }
        if k.bytes {
            reads.push("bytes".into());
        }
        if reads.is_empty() {
            reads.push("records".into());
        }
        let passes = if k.passes > 1 { format!(", {} passes", k.passes) } else { String::new() };
        rows.push((
            "kernel".into(),
            format!("{} <- {}{passes}", k.answers.join(" + "), reads.join(", ")),
        ));
    }
    rows.push((
        "took".into(),
        format!(
            "{} ({} of processors), {} read at {}/s, {:.2} core-seconds per GB",
            units::format_seconds(m.seconds),
            units::format_seconds(m.cpu_seconds),
            units::format_size(m.bytes_read),
            units::format_size(m.bytes_per_second as u64),
            m.core_seconds_per_gb
        ),
    ));
    let counts = match (m.rows, m.rows_kept) {
        (Some(rows), Some(kept)) => format!(
            "{} read, {} kept, {} skipped",
            units::format_count(rows),
            units::format_count(kept),
            units::format_count(m.rows_skipped)
        ),
        _ => "not counted: the kernels look at bytes alone".into(),
    };
    rows.push(("rows".into(), format!("{counts}; {} pass(es)", m.passes)));
    rows.push(("peak memory".into(), units::format_size(m.peak_memory_bytes)));
    let wide = rows.iter().map(|(k, _)| k.len()).max().unwrap_or(0);
    let mut s = String::from("\nplan\n");
    for (k, v) in rows {
        s.push_str(&format!("  {k:wide$}  {v}\n"));
    }
    s
}
