//! Measures of read sessions, for `bench/reading.py`: one JSON object a line.

#![allow(clippy::disallowed_methods)] // It is here to take the time.

use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use stead::read::trial::{Took, Trial, Way, try_out};
use stead::read::{Options, open};
use stead::{Engine, IoOptions, Result, units};

/// Measure read sessions
#[derive(Args)]
pub struct Sessions {
    /// What to measure
    what: What,
    /// The file to read
    file: PathBuf,
    /// Numbers of tasks
    #[arg(long, value_delimiter = ',', default_value = "1024")]
    tasks: Vec<u64>,
    /// How often
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// Tasks come in no order
    #[arg(long)]
    scattered: bool,
    /// Reader threads; chosen if not given
    #[arg(long)]
    readers: Option<usize>,
    /// Bytes of a block; chosen if not given
    #[arg(long, value_parser = |s: &str| units::parse_size(s).map_err(|e| e.to_string()))]
    block: Option<u64>,
    /// Blocks in flight for a reader; chosen if not given
    #[arg(long)]
    depth: Option<usize>,
    /// Pass by the page cache
    #[arg(long)]
    direct: bool,
    /// Blocks in memory, as on network file systems
    #[arg(long)]
    pread: bool,
    /// How tasks get their bytes
    #[arg(long, value_delimiter = ',', default_value = "views,buffers,pread")]
    ways: Vec<Ways>,
    /// Seconds of the computation beside
    #[arg(long, default_value_t = 1.0)]
    seconds: f64,
    /// Threads that compute; as many as processors if not given
    #[arg(long)]
    busy: Option<u64>,
    /// Sessions that are opened and closed
    #[arg(long, default_value_t = 10_000)]
    sessions: u64,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum What {
    /// Each number of tasks, in each of the ways; the page cache is as it is
    Tasks,
    /// Input alone, a computation alone, and both at once
    Overlap,
    /// Many sessions one after the other: threads, memory and descriptors before and after
    Many,
}

#[derive(Clone, Copy, PartialEq, ValueEnum)]
enum Ways {
    /// Views of a session
    Views,
    /// Buffers that a session fills
    Buffers,
    /// No session: each task reads by itself
    Pread,
}

/// Prints what was measured.
pub fn measure(a: &Sessions, out: &mut dyn FnMut(String)) -> Result<()> {
    match a.what {
        What::Tasks => tasks(a, out),
        What::Overlap => overlap(a, out),
        What::Many => many(a, out),
    }
}

fn options(a: &Sessions) -> Options {
    Options {
        readers: a.readers,
        block: a.block.and_then(|b| usize::try_from(b).ok()),
        depth: a.depth,
        io: IoOptions {
            direct: a.direct,
            engine: if a.pread { Engine::Pread } else { Engine::Auto },
            ..IoOptions::default()
        },
        ..Options::default()
    }
}

fn run(a: &Sessions, tasks: u64, way: Way) -> Result<(Took, u64)> {
    let file = open(&a.file, &options(a))?;
    let trial = Trial { tasks, scattered: a.scattered, way, ..Trial::default() };
    let took = try_out(&file, 0..file.len(), &trial, &|_| {})?;
    Ok((took, file.counts().bytes))
}

fn line(name: &str, tasks: u64, took: &Took, fetched: u64) -> String {
    format!(
        "{{\"way\": \"{name}\", \"tasks\": {tasks}, \"seconds\": {:.6}, \"bytes\": {}, \"fetched\": {fetched}, \"sum\": {}, \"peak_bytes\": {}}}",
        took.seconds,
        took.bytes,
        took.sum,
        status("VmHWM:").unwrap_or(0),
    )
}

fn tasks(a: &Sessions, out: &mut dyn FnMut(String)) -> Result<()> {
    for _ in 0..a.runs {
        for tasks in &a.tasks {
            for way in &a.ways {
                let (name, way) = match way {
                    Ways::Views => ("views", Way::Views),
                    Ways::Buffers => ("buffers", Way::Buffers),
                    Ways::Pread => ("pread", Way::Alone),
                };
                let (took, fetched) = run(a, *tasks, way)?;
                out(line(name, *tasks, &took, fetched));
            }
        }
    }
    Ok(())
}

/// Processors of this machine.
fn cores() -> u64 {
    std::thread::available_parallelism().map_or(1, usize::from) as u64
}

/// A computation on so many processors: so many steps each. Gives its seconds.
fn compute(busy: u64, steps: u64) -> f64 {
    let begin = Instant::now();
    let total = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for core in 0..busy {
            let total = &total;
            scope.spawn(move || {
                let mut x = core + 1;
                for _ in 0..steps {
                    x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(x >> 33);
                }
                total.fetch_add(x, Ordering::Relaxed);
            });
        }
    });
    std::hint::black_box(total.into_inner());
    begin.elapsed().as_secs_f64()
}

/// The input of tasks arrives while processors compute; nobody waits for it before that is done. Tells the processor
/// seconds of the input alone, too: on processors that all compute they come on top of the computation, whoever reads.
fn overlap(a: &Sessions, out: &mut dyn FnMut(String)) -> Result<()> {
    const PROBE: u64 = 1 << 24;
    let cores = cores();
    let busy = a.busy.unwrap_or(cores).max(1);
    let steps = (a.seconds / compute(busy, PROBE).max(1e-9) * PROBE as f64) as u64;
    for _ in 0..a.runs {
        for tasks in &a.tasks {
            evict(&a.file)?;
            let before = processor_seconds();
            let (input, _) = arrive(a, *tasks, None)?;
            let processor = processor_seconds() - before;
            let alone = compute(busy, steps);
            evict(&a.file)?;
            let (both, fetched) = arrive(a, *tasks, Some((busy, steps)))?;
            out(format!(
                "{{\"tasks\": {tasks}, \"cores\": {cores}, \"busy\": {busy}, \"input\": {input:.6}, \"input_processor\": {processor:.6}, \"computation\": {alone:.6}, \"both\": {both:.6}, \"fetched\": {fetched}}}"
            ));
        }
    }
    Ok(())
}

/// What this process has used of processors, by its own count and by the kernel's for it: hundredths of a second.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The name, in brackets, may have spaces.
    let after = text.rsplit(')').next().unwrap_or_default();
    let ticks = after.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<f64>().ok());
    ticks.sum::<f64>() / 100.0
}

/// Asks for the parts of all tasks and, until they have arrived, computes. Gives the seconds of all.
fn arrive(a: &Sessions, tasks: u64, work: Option<(u64, u64)>) -> Result<(f64, u64)> {
    let begin = Instant::now();
    let file = open(&a.file, &options(a))?;
    let session = file.session(..)?;
    let share = file.len().div_ceil(tasks.max(1));
    let (left, failed) = (AtomicU64::new(tasks), AtomicBool::new(false));
    let state = std::sync::Arc::new((left, failed));
    let (send, arrived) = std::sync::mpsc::channel();
    for task in 0..tasks {
        let from = (task * share).min(file.len());
        let len = (from + share).min(file.len()) - from;
        let (state, send) = (state.clone(), send.clone());
        session.read(from, usize::try_from(len).unwrap_or(0)).then(move |answer| {
            state.1.fetch_or(answer.is_err(), Ordering::Relaxed);
            if state.0.fetch_sub(1, Ordering::Relaxed) == 1 {
                let _ = send.send(());
            }
        });
    }
    if let Some((busy, steps)) = work {
        compute(busy, steps);
    }
    let _ = arrived.recv();
    let seconds = begin.elapsed().as_secs_f64();
    if state.1.load(Ordering::Relaxed) {
        return Err(stead::Error::usage("a read failed").at_path(&a.file));
    }
    Ok((seconds, file.counts().bytes))
}

/// Takes a file out of the page cache.
fn evict(path: &Path) -> Result<()> {
    let file = std::fs::File::open(path).map_err(|e| stead::Error::io("open", path, e))?;
    file.sync_all().map_err(|e| stead::Error::io("write back", path, e))?;
    stead_store::evict(&file);
    Ok(())
}

fn many(a: &Sessions, out: &mut dyn FnMut(String)) -> Result<()> {
    let state = || {
        // Readers without work stay for half a second, who minds them for as long after that, and tell nobody when they go.
        let (_open, nothing) = std::sync::mpsc::channel::<()>();
        let _ = nothing.recv_timeout(std::time::Duration::from_millis(1500));
        let count = |folder: &str| std::fs::read_dir(folder).map_or(0, Iterator::count);
        (status("VmRSS:").unwrap_or(0), count("/proc/self/task"), count("/proc/self/fd"))
    };
    let round = |n: u64| -> Result<f64> {
        let begin = Instant::now();
        for i in 0..n {
            let file = open(&a.file, &options(a))?;
            let session = file.session(..)?;
            let at = i.wrapping_mul(0x9E37_79B9_7F4A_7C15) % file.len().saturating_sub(4096).max(1);
            drop(session.read(at, 4096.min(usize::try_from(file.len()).unwrap_or(0))).wait()?);
            session.close()?;
        }
        Ok(begin.elapsed().as_secs_f64())
    };
    round(a.sessions / 10)?;
    let before = state();
    let seconds = round(a.sessions)?;
    let after = state();
    out(format!(
        "{{\"sessions\": {}, \"seconds\": {seconds:.6}, \"resident\": [{}, {}], \"threads\": [{}, {}], \"files\": [{}, {}]}}",
        a.sessions, before.0, after.0, before.1, after.1, before.2, after.2
    ));
    Ok(())
}

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find(|l| l.starts_with(name))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib << 10)
}
