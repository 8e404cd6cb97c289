//! One pass over the data: workers pull blocks, filter them and update their own states.

use crate::clock::Watch;
use crate::news::{At, Far, News};
use crate::sink::Ordered;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Block, Cancel, Error, Kind, Result, Selection};
use stead_format::{Progress, Scan};
use stead_kernel::{AnyKernel, AnyState, expr};

/// What a run looks like from outside, now. On rank 0 of several it is of all of them, on the others of their own share.
#[derive(Debug, Clone, Copy)]
pub struct Snapshot {
    /// The pass, from 1.
    pub pass: u64,
    /// Bytes read in this pass.
    pub bytes: u64,
    /// Bytes that this pass will read.
    pub total_bytes: u64,
    /// Records read in this pass.
    pub rows: u64,
    /// Seconds since this pass began.
    pub seconds: f64,
}

/// Someone who watches a run.
pub trait Observer: Sync {
    /// Called about ten times a second, and once at the end of each pass, from the thread that called
    /// [`crate::run`].
    fn progress(&self, snapshot: &Snapshot);

    /// False if nobody looks at the snapshots: other ranks need not tell how far they are.
    fn looks(&self) -> bool {
        true
    }

    /// Called about ten times a second while this rank waits for others.
    fn waits(&self) {}
}

/// A kernel of this pass and its output file, if it writes one.
pub struct Active {
    pub kernel: Arc<dyn AnyKernel>,
    pub sink: Option<Ordered>,
}

/// What a pass needs to know.
pub struct Pass<'a> {
    pub active: &'a [Active],
    pub threads: usize,
    /// Bytes that all states of all threads may take.
    pub states: u64,
    pub number: u64,
    pub observer: Option<&'a dyn Observer>,
    pub cancel: &'a Cancel,
    /// What other ranks tell.
    pub news: &'a News<'a>,
}

/// Where the blocks of a pass come from and where they go besides the kernels.
struct Feed<'a> {
    scan: &'a dyn Scan,
    filter: Option<&'a expr::Filter>,
    keep: Option<&'a dyn Keep>,
}

/// Where filtered blocks go besides the kernels: into memory for the passes to come, or to other ranks.
pub trait Keep: Sync {
    /// Takes a block of a worker; an error ends the pass.
    fn keep(&self, block: &Block<'_>) -> Result<()>;

    /// Hears what part of all bytes has been scanned, where no filter makes parts differ.
    fn hears(&self, _part: f64) {}
}

/// How often the thread that waits for workers looks around.
const LOOK: Duration = Duration::from_millis(100);
/// How many of these looks pass before rank 0 is told again how far this rank is.
const TELL_EVERY: u64 = 10;

/// How often a worker weighs its states, in blocks.
const WEIGH_EVERY: u64 = 16;

/// State of a pass that its workers share.
struct Shared {
    /// Where the earliest failure so far is, if there was one: workers go on up to it, so that the error that
    /// is told does not depend on who was first.
    failed: Mutex<Option<At>>,
    /// True once `failed` is set.
    stop: AtomicBool,
    /// Records that passed the filter.
    kept: AtomicU64,
    /// Bytes of each worker's states when it last looked, and behind them those of `total`.
    weights: Vec<AtomicU64>,
    /// States that workers have handed in because they grew.
    total: Mutex<Option<Vec<AnyState>>>,
    running: Mutex<usize>,
    ended: Condvar,
}

impl Pass<'_> {
    /// Runs the pass over the blocks of `scan` that `filter` lets through, copies of which go to `keep`.
    /// Returns the merged states and the number of records that passed the filter.
    pub fn run(
        &self,
        scan: &dyn Scan,
        filter: Option<&expr::Filter>,
        keep: Option<&dyn Keep>,
    ) -> Result<(Vec<AnyState>, u64)> {
        let feed = &Feed { scan, filter, keep };
        let shared = Shared {
            failed: Mutex::new(None),
            stop: AtomicBool::new(false),
            kept: AtomicU64::new(0),
            weights: (0..=self.threads).map(|_| AtomicU64::new(0)).collect(),
            total: Mutex::new(None),
            running: Mutex::new(self.threads),
            ended: Condvar::new(),
        };
        let results: Vec<Result<Vec<AnyState>>> = std::thread::scope(|scope| {
            let handles: Vec<_> = (0..self.threads)
                .map(|i| {
                    let shared = &shared;
                    std::thread::Builder::new()
                        .name(format!("stead-{i}"))
                        .spawn_scoped(scope, move || self.guarded(feed, shared, i))
                })
                .collect();
            let started = handles.iter().filter(|h| h.is_ok()).count();
            *lock(&shared.running) -= self.threads - started;
            self.watch(scan, &shared);
            handles
                .into_iter()
                .enumerate()
                .map(|(i, h)| match h {
                    Ok(h) => h.join().unwrap_or_else(|_| Err(Error::internal("a worker died"))),
                    // One worker is enough to do all the work; a missing one is only slower.
                    Err(_) if started > 0 && i > 0 => Ok(Vec::new()),
                    Err(e) => Err(Error::io("start a thread", "", e)),
                })
                .collect()
        });
        let mut states = shared.total.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut error: Option<Error> = None;
        for result in results {
            match result {
                Ok(s) if s.is_empty() => {}
                Ok(s) => match &mut states {
                    None => states = Some(s),
                    Some(total) => {
                        for ((a, t), s) in self.active.iter().zip(total.iter_mut()).zip(s) {
                            caught(|| a.kernel.merge(t, s))?;
                        }
                    }
                },
                Err(e) => error = Some(worse(error, e)),
            }
        }
        match error {
            Some(e) => Err(e),
            None => {
                let states =
                    states.unwrap_or_else(|| self.active.iter().map(|a| a.kernel.init()).collect());
                Ok((states, shared.kept.load(Ordering::Relaxed)))
            }
        }
    }

    /// Waits for the workers and tells the observer, and other ranks, meanwhile.
    fn watch(&self, scan: &dyn Scan, shared: &Shared) {
        let watch = Watch::start();
        let far = |done: bool| {
            let p = scan.progress();
            let total = scan.total_bytes();
            let bytes = p.bytes.load(Ordering::Relaxed);
            let bytes = if done { total } else { bytes.min(total) };
            Far { bytes, total, rows: p.rows.load(Ordering::Relaxed), done }
        };
        let snapshot = |done: bool| {
            if let Some(o) = self.observer {
                let (mine, others) = (far(done), self.news.others());
                o.progress(&Snapshot {
                    pass: self.number,
                    bytes: mine.bytes.saturating_add(others.bytes),
                    total_bytes: mine.total.saturating_add(others.total),
                    rows: mine.rows.saturating_add(others.rows),
                    seconds: watch.seconds(),
                });
            }
        };
        for turn in 0u64.. {
            let running = lock(&shared.running);
            let (running, _) = shared
                .ended
                .wait_timeout_while(running, LOOK, |running| *running > 0)
                .unwrap_or_else(PoisonError::into_inner);
            if *running == 0 {
                break;
            }
            drop(running);
            if self.news.hear(Duration::ZERO)
                && let Some(at) = self.news.stopped()
            {
                let mut failed = lock(&shared.failed);
                *failed = Some(failed.map_or(at, |f| f.min(at)));
                shared.stop.store(true, Ordering::Relaxed);
            }
            if turn.is_multiple_of(TELL_EVERY) {
                self.news.far(far(false));
            }
            snapshot(false);
        }
        self.news.far(far(true));
        // Whoever looks at rank 0 sees all ranks come to their ends.
        let stopped = || shared.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled();
        while self.news.is_watched_here() && !self.news.others().done && !stopped() {
            self.news.hear(LOOK);
            snapshot(true);
        }
        snapshot(true);
    }

    /// A worker whose panic becomes an error.
    fn guarded(&self, feed: &Feed<'_>, shared: &Shared, index: usize) -> Result<Vec<AnyState>> {
        let result = catch_unwind(AssertUnwindSafe(|| self.work(feed, shared, index)))
            .unwrap_or_else(|_| Err(Error::internal("a worker panicked")));
        // Who was stopped, was stopped by somebody else's failure or by the caller, and all see that.
        if let Err(e) = &result
            && e.kind() != Kind::Cancelled
        {
            let at = e.order();
            let mut failed = lock(&shared.failed);
            *failed = Some(failed.map_or(at, |f| f.min(at)));
            shared.stop.store(true, Ordering::Relaxed);
        }
        *lock(&shared.running) -= 1;
        shared.ended.notify_all();
        result
    }

    fn work(&self, feed: &Feed<'_>, shared: &Shared, index: usize) -> Result<Vec<AnyState>> {
        let mut worker = feed.scan.worker()?;
        let mut states: Vec<AnyState> = self.active.iter().map(|a| a.kernel.init()).collect();
        let mut keep = Vec::new();
        let mut scratch = expr::Scratch::default();
        let mut selection = Selection::default();
        let mut blocks = 0u64;
        while let Some(block) = worker.next()? {
            self.cancel.check()?;
            if shared.stop.load(Ordering::Relaxed) {
                let here = (Some(block.source), Some(block.offset));
                if lock(&shared.failed).is_none_or(|f| f < here) {
                    return Err(Error::cancelled());
                }
                // Only an earlier failure matters now.
                continue;
            }
            let block = match feed.filter {
                None => block,
                Some(filter) => {
                    keep.clear();
                    filter.eval(&block, &mut scratch, &mut keep)?;
                    block.select(&keep, &mut selection)
                }
            };
            Progress::add(&shared.kept, block.rows as u64);
            if let Some(keep) = feed.keep {
                keep.keep(&block)?;
                if let (None, all @ 1..) = (feed.filter, feed.scan.total_bytes()) {
                    let bytes = feed.scan.progress().bytes.load(Ordering::Relaxed);
                    keep.hears(bytes as f64 / all as f64);
                }
            }
            let block = Block { cancel: Some(self.cancel), ..block };
            self.update(&mut states, &block, index).inspect_err(|e| {
                if e.kind() == Kind::Cancelled {
                    // A kernel's own will to stop: nothing that comes earlier matters more.
                    *lock(&shared.failed) = Some((None, None));
                    shared.stop.store(true, Ordering::Relaxed);
                }
            })?;
            blocks += 1;
            if blocks.is_multiple_of(WEIGH_EVERY) {
                self.weigh(shared, &mut states, index)?;
            }
        }
        for a in self.active {
            if let Some(sink) = &a.sink {
                sink.finished(index)?;
            }
        }
        self.weigh(shared, &mut states, index)?;
        Ok(states)
    }

    fn update(&self, states: &mut [AnyState], block: &Block<'_>, index: usize) -> Result<()> {
        for (a, s) in self.active.iter().zip(states) {
            a.kernel.update(s, block)?;
            if let Some(sink) = &a.sink {
                let mut out = Vec::new();
                a.kernel.map(block, &mut out)?;
                sink.push(index, block, out)?;
            }
        }
        Ok(())
    }

    /// Hands states that have grown to the shared total, where what several workers hold alike (groups,
    /// neighbouring bricks) becomes one. Fails when all states outgrow their part of the memory budget.
    fn weigh(&self, shared: &Shared, states: &mut [AnyState], index: usize) -> Result<()> {
        let bytes = |states: &[AnyState]| -> u64 {
            self.active.iter().zip(states).map(|(a, s)| a.kernel.state_bytes(s) as u64).sum()
        };
        let mut mine = bytes(states);
        if mine > self.states / (2 * self.threads as u64) {
            let mut total = lock(&shared.total);
            let fresh = || self.active.iter().map(|a| a.kernel.init()).collect();
            let total = total.get_or_insert_with(fresh);
            for ((a, t), s) in self.active.iter().zip(total.iter_mut()).zip(states.iter_mut()) {
                let full = std::mem::replace(s, a.kernel.init());
                a.kernel.merge(t, full)?;
            }
            shared.weights[self.threads].store(bytes(total), Ordering::Relaxed);
            mine = 0;
        }
        shared.weights[index].store(mine, Ordering::Relaxed);
        let all: u64 = shared.weights.iter().map(|w| w.load(Ordering::Relaxed)).sum();
        too_large(all, self.states)
    }
}

/// An error if states of so many bytes are more than they may be.
pub fn too_large(bytes: u64, most: u64) -> Result<()> {
    if bytes <= most {
        return Ok(());
    }
    Err(Error::limit(format!(
        "the kernels' states take {}, more than their quarter of the memory budget",
        stead_core::units::format_size(bytes)
    ))
    .with_hint("raise --memory, group by a column with fewer values or ask for fewer results"))
}

/// What a kernel does on the thread that called: its panic, too, becomes an error, which other ranks can be told. They would
/// wait for a rank that unwinds while its process lives.
pub fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(Error::internal("a kernel panicked")))
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Of two errors the one to report: a cause before the stop it led to, then the earlier place.
fn worse(a: Option<Error>, b: Error) -> Error {
    let Some(a) = a else { return b };
    match (a.kind() == Kind::Cancelled, b.kind() == Kind::Cancelled) {
        (true, false) => b,
        (false, true) => a,
        _ if b.order() < a.order() => b,
        _ => a,
    }
}
