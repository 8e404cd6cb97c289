//! `stead read`.

use crate::args::{Described, ReadArgs};
use crate::progress::Bar;
use crate::{output, signals};
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use stead::read::{Counts, File, Options, trial};
use stead::{Cancel, Error, IoOptions, Observer, Result, Snapshot, units};

/// What `--format json` prints.
#[derive(Serialize)]
struct Report {
    path: String,
    range: [u64; 2],
    tasks: u64,
    threads: usize,
    bytes: u64,
    seconds: f64,
    bytes_per_second: f64,
    /// The bytes as numbers of 64 bits, added up.
    sum: u64,
    /// By readers; the rest was in the page cache.
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
    let cancel = Cancel::new();
    let done = signals::watch(&cancel)?;
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
        io: IoOptions { engine: a.engine.into(), direct: a.direct, ..IoOptions::default() },
        ..Options::default()
    };
    let file = stead::read::open(&a.file, &options)?;
    let range = a.range.as_ref().map_or(Ok(0..file.len()), |r| r.within(file.len()))?;
    let threads = match a.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let way = if a.buffers { trial::Way::Buffers } else { trial::Way::Views };
    let trial = trial::Trial { tasks: a.tasks, threads, scattered: a.scattered, way, cancel };
    let before = file.counts();
    let took = run(&file, &range, &trial, a)?;
    let counts = file.counts();
    let alone = if a.compare {
        let trial = trial::Trial { way: trial::Way::Alone, ..trial };
        let alone = run(&file, &range, &trial, a)?;
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
    let report = Report {
        path: a.file.to_string_lossy().into_owned(),
        range: [range.start, range.end],
        tasks: a.tasks,
        threads,
        bytes: took.bytes,
        seconds: took.seconds,
        bytes_per_second: rate(&took),
        sum: took.sum,
        bytes_fetched: counts.bytes - before.bytes,
        blocks_fetched: counts.blocks - before.blocks,
        requests: counts.requests - before.requests,
        requests_answered_at_once: counts.at_once - before.at_once,
        choices: plan
            .into_iter()
            .map(|d| Choice { name: d.name, value: d.value, reason: d.reason })
            .collect(),
        alone,
    };
    match a.format {
        Described::Json => output::json(&report),
        Described::Table => output::text(&page(&report, a.explain, &difference(&counts, &before))),
    }
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
) -> Result<trial::Took> {
    let bar = Bar::new(a.progress);
    let (begin, told) = (Instant::now(), AtomicU64::new(0));
    let total = range.end - range.start;
    let hear = |bytes: u64| {
        let Some(bar) = &bar else { return };
        // Ten times a second, whoever comes by, and at the end.
        let seconds = begin.elapsed().as_secs_f64();
        let tenth = (seconds * 10.0) as u64;
        if told.fetch_max(tenth, Ordering::Relaxed) < tenth || bytes == total {
            bar.progress(&Snapshot { pass: 1, bytes, total_bytes: total, rows: 0, seconds });
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
                "{} by {} task(s) on {} thread(s)",
                units::format_size(r.bytes),
                units::format_count(r.tasks),
                r.threads
            ),
        ),
        ("took", format!("{}, {}", units::format_seconds(r.seconds), rate(r.bytes_per_second))),
        (
            "fetched",
            format!(
                "{} in {} block(s); the rest was in the page cache",
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
