//! `stead read`.

use crate::args::{Described, ReadArgs};
use crate::progress::Bar;
use crate::{output, ranks, signals};
use serde::Serialize;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stead::fabric::Fabric;
use stead::read::ranks::{self as together, trial::gather};
use stead::read::{Counts, File, Options, trial};
use stead::{Cancel, Error, IoOptions, Observer, Result, Snapshot, units};

/// What `--format json` prints.
#[derive(Serialize)]
struct Report {
    path: String,
    range: [u64; 2],
    tasks: u64,
    /// Of each rank.
    threads: usize,
    #[serde(skip_serializing_if = "Option::is_none")]
    ranks: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    nodes: Option<usize>,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    /// The bytes as numbers of 64 bits, added up.
    sum: u64,
    /// By readers of this process; the rest was there already, in the page cache or in memory that others read into.
    bytes_fetched: u64,
    blocks_fetched: u64,
    requests: u64,
    requests_answered_at_once: u64,
    choices: Vec<Choice>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alone: Option<Alone>,
}

#[derive(Serialize)]
struct Choice {
    name: &'static str,
    value: String,
    reason: String,
}

/// The same tasks, each reading by itself.
#[derive(Serialize)]
struct Alone {
    seconds: f64,
    bytes_per_second: f64,
    /// Its seconds over those of the session.
    ratio: f64,
}

pub fn read(a: &ReadArgs) -> Result<()> {
    if a.alone {
        return read_on(a, None);
    }
    ranks::with(|fabric| read_on(a, fabric))
}

/// Options, and what stops the work and says that it is done.
fn prepare(a: &ReadArgs) -> Result<(Options, Cancel, Cancel)> {
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    let length = |size: Option<u64>| {
        let small = |n| usize::try_from(n).map_err(|_| Error::usage("this block is too large"));
        size.map(small).transpose()
    };
    let options = Options {
        readers: a.readers,
        block: length(a.block)?,
        depth: a.queue_depth,
        memory: a.memory,
        deadline: Duration::from_secs(a.deadline),
        ahead: !a.on_demand,
        share: !a.no_share,
        io: IoOptions { engine: a.engine.into(), direct: a.direct, ..IoOptions::default() },
    };
    Ok((options, cancel, done))
}

/// Reads, alone or as one of several ranks, of which the first one prints what all of them took.
fn read_on(a: &ReadArgs, job: Option<&Arc<dyn Fabric>>) -> Result<()> {
    let (options, cancel, done) = match (prepare(a), job) {
        (Ok(prepared), _) => prepared,
        (Err(error), None) => return Err(error),
        (Err(error), Some(fabric)) => return Err(together::refuse(&**fabric, error)),
    };
    let file = match job {
        Some(fabric) => together::open(fabric.clone(), &a.file, &options)?,
        None => stead::read::open(&a.file, &options)?,
    };
    let range = a.range.as_ref().map_or(Ok(0..file.len()), |r| r.within(file.len()));
    let range = range.map_err(|e| e.at_path(&a.file))?;
    let nodes = job.map(|f| (0..f.size()).map(|r| f.node_of(r)).collect::<Vec<_>>());
    let threads = match (a.threads, &nodes) {
        (0, Some(nodes)) => {
            let here = |node: &&usize| job.is_some_and(|f| f.node_of(f.rank()) == **node);
            processors().div_ceil(nodes.iter().filter(here).count().max(1))
        }
        (0, None) => processors(),
        (n, _) => n,
    };
    let way = if a.buffers { trial::Way::Buffers } else { trial::Way::Views };
    let scattered = a.scattered;
    let trial =
        trial::Trial { tasks: a.tasks, threads, scattered, way, cancel, ..trial::Trial::default() };
    let trial = job.map_or_else(|| trial.clone(), |f| together::trial::share(&**f, &trial));
    // Of all ranks together.
    let all = |mine| match job {
        Some(fabric) => gather(&**fabric, mine),
        None => mine,
    };
    let bar = job.is_none_or(|f| f.rank() == 0);
    let before = file.counts();
    let took = run(&file, &range, &trial, a, bar).map(|took| (took, Counts::default()));
    let (took, _) = all(took)?;
    // All ranks have what they want.
    let (_, counts) = all(Ok((took, difference(&file.counts(), &before))))?;
    let alone = if a.compare {
        let trial = trial::Trial { way: trial::Way::Alone, ..trial };
        let alone = run(&file, &range, &trial, a, bar).map(|took| (took, Counts::default()));
        let (alone, _) = all(alone)?;
        if alone.sum != took.sum {
            let message = "the session and the tasks by themselves have read different bytes";
            return Err(Error::new(stead::Kind::Changed, message).at_path(&a.file).with_hint(
                "somebody writes to the file, or the device does not give the same twice",
            ));
        }
        let ratio = alone.seconds / took.seconds.max(1e-9);
        Some(Alone { seconds: alone.seconds, bytes_per_second: rate(&alone), ratio })
    } else {
        None
    };
    done.cancel();
    let plan = file.session(range.clone())?.plan();
    if job.is_some_and(|f| f.rank() != 0) {
        return Ok(());
    }
    let report = Report {
        path: a.file.to_string_lossy().into_owned(),
        range: [range.start, range.end],
        tasks: a.tasks,
        threads,
        ranks: job.map(|f| f.size()),
        nodes: nodes.map(|nodes| nodes.into_iter().collect::<BTreeSet<_>>().len()),
        bytes: took.bytes,
        seconds: took.seconds,
        bytes_per_second: rate(&took),
        sum: took.sum,
        bytes_fetched: counts.bytes,
        blocks_fetched: counts.blocks,
        requests: counts.requests,
        requests_answered_at_once: counts.at_once,
        choices: plan
            .into_iter()
            .map(|d| Choice { name: d.name, value: d.value, reason: d.reason })
            .collect(),
        alone,
    };
    match a.format {
        Described::Json => output::json(&report),
        Described::Table => output::text(&page(&report, a.explain, &counts)),
    }
}

fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn difference(now: &Counts, before: &Counts) -> Counts {
    Counts {
        requests: now.requests - before.requests,
        at_once: now.at_once - before.at_once,
        blocks: now.blocks - before.blocks,
        bytes: now.bytes - before.bytes,
        held: now.held,
    }
}

fn rate(took: &trial::Took) -> f64 {
    took.bytes as f64 / took.seconds.max(1e-9)
}

#[allow(clippy::disallowed_methods)] // For the rate.
fn run(
    file: &File,
    range: &std::ops::Range<u64>,
    trial: &trial::Trial,
    a: &ReadArgs,
    show: bool,
) -> Result<trial::Took> {
    let bar = if show { Bar::new(a.progress) } else { None };
    let (begin, told) = (Instant::now(), AtomicU64::new(0));
    // Of several ranks, one shows how far it is with its own part.
    let part = trial.part.as_ref().map_or(1.0, |p| (p.end - p.start) as f64 / trial.tasks as f64);
    let total = ((range.end - range.start) as f64 * part) as u64;
    let hear = |bytes: u64| {
        let Some(bar) = &bar else { return };
        // Ten times a second, whoever comes by, and at the end.
        let seconds = begin.elapsed().as_secs_f64();
        let tenth = (seconds * 10.0) as u64;
        if told.fetch_max(tenth, Ordering::Relaxed) < tenth || bytes >= total {
            bar.progress(&Snapshot {
                pass: 1,
                bytes,
                total_bytes: total.max(bytes),
                rows: 0,
                seconds,
            });
        }
    };
    let took = trial::try_out(file, range.clone(), trial, &hear);
    if let Some(bar) = &bar {
        bar.clear();
    }
    took
}

fn page(r: &Report, explain: bool, counts: &Counts) -> String {
    let rate = |r: f64| format!("{}/s", units::format_size(r as u64));
    let mut rows = vec![
        (
            "read",
            format!(
                "{} by {} task(s) on {} thread(s){}",
                units::format_size(r.bytes),
                units::format_count(r.tasks),
                r.threads,
                match (r.ranks, r.nodes) {
                    (Some(ranks), Some(nodes)) =>
                        format!(" of each of {ranks} ranks on {nodes} node(s)"),
                    _ => String::new(),
                }
            ),
        ),
        ("took", format!("{}, {}", units::format_seconds(r.seconds), rate(r.bytes_per_second))),
        (
            "fetched",
            format!(
                "{} in {} block(s); the rest was there already",
                units::format_size(counts.bytes),
                units::format_count(counts.blocks)
            ),
        ),
        (
            "requests",
            format!(
                "{}, of which {} did not wait",
                units::format_count(counts.requests),
                units::format_count(counts.at_once)
            ),
        ),
    ];
    if let Some(alone) = &r.alone {
        rows.push((
            "tasks alone",
            format!(
                "{}, {}: {:.2} times as long",
                units::format_seconds(alone.seconds),
                rate(alone.bytes_per_second),
                alone.ratio
            ),
        ));
    }
    let mut s = String::new();
    for (name, text) in rows {
        s.push_str(&format!("{name:12}  {text}\n"));
    }
    if explain {
        s.push_str("\nchosen\n");
        let wide = r.choices.iter().map(|c| c.name.len()).max().unwrap_or(0);
        for c in &r.choices {
            s.push_str(&format!("  {:wide$}  {}: {}\n", c.name, c.value, c.reason));
        }
    }
    s
}
