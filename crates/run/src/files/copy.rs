//! Threads that copy parts, piece by piece.

use crate::clock::Watch;
use crate::news::{Far, News};
use crate::pass::{Observer, Snapshot, caught};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Error, Result};
use stead_fabric::Fabric;

/// Bytes that a thread copies at a time: they stay in the second-level cache between the read, the checksum and the write.
pub const CHUNK: u64 = 1 << 20;

const LOOK: Duration = Duration::from_millis(100);
/// How many of these looks pass before rank 0 is told again how far this rank is.
const TELL_EVERY: u64 = 10;

/// Copies a chunk and gives its checksum: of which part, from which byte on, with a buffer of its length.
pub type Work<'w> = &'w (dyn Fn(usize, u64, &mut [u8]) -> Result<u32> + Sync);

/// How this rank copies.
pub struct Copier<'a> {
    pub threads: usize,
    pub cancel: &'a Cancel,
    pub news: &'a News<'a>,
    /// To look whether the others live.
    pub fabric: &'a dyn Fabric,
    pub observer: Option<&'a dyn Observer>,
}

struct Shared {
    /// Number of the first chunk that nobody has taken.
    next: AtomicU64,
    bytes: AtomicU64,
    stop: AtomicBool,
    failed: Mutex<Option<Error>>,
    running: Mutex<usize>,
    ended: Condvar,
}

impl Copier<'_> {
    /// Copies parts of these lengths. `work` is called by several threads, for each chunk of each part once. Gives the
    /// checksum of each part.
    ///
    /// # Errors
    /// The first of `work`; `Cancelled` if this rank or another one is to stop.
    pub fn run(&self, lengths: &[u64], work: Work<'_>) -> Result<Vec<u32>> {
        let mut ends = Vec::with_capacity(lengths.len());
        let mut chunks = 0u64;
        for length in lengths {
            chunks += length.div_ceil(CHUNK);
            ends.push(chunks);
        }
        let sums: Vec<AtomicU32> = (0..chunks).map(|_| AtomicU32::new(0)).collect();
        // A part of no bytes ends where the one before it does.
        let place = |chunk: u64| {
            let part = ends.partition_point(|end| *end <= chunk);
            let first = if part == 0 { 0 } else { ends[part - 1] };
            let at = (chunk - first) * CHUNK;
            (part, at, (lengths[part] - at).min(CHUNK))
        };
        let threads = self.threads.clamp(1, usize::try_from(chunks.max(1)).unwrap_or(usize::MAX));
        let shared = Shared {
            next: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            failed: Mutex::default(),
            running: Mutex::new(threads),
            ended: Condvar::new(),
        };
        let one = || {
            let mut buffer =
                vec![
                    0;
                    usize::try_from(CHUNK.min(lengths.iter().copied().max().unwrap_or(0)))
                        .unwrap_or(0)
                ];
            while !shared.stop.load(Ordering::Relaxed) {
                self.cancel.check()?;
                let chunk = shared.next.fetch_add(1, Ordering::Relaxed);
                if chunk >= chunks {
                    break;
                }
                let (part, at, len) = place(chunk);
                let len = usize::try_from(len).unwrap_or(0);
                let sum = work(part, at, &mut buffer[..len])?;
                sums[usize::try_from(chunk).unwrap_or(0)].store(sum, Ordering::Relaxed);
                shared.bytes.fetch_add(len as u64, Ordering::Relaxed);
            }
            Ok(())
        };
        let guarded = || {
            if let Err(e) = caught(one) {
                shared.stop.store(true, Ordering::Relaxed);
                lock(&shared.failed).get_or_insert(e);
            }
            *lock(&shared.running) -= 1;
            shared.ended.notify_all();
        };
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(guarded);
            }
            self.watch(&shared, lengths.iter().sum());
        });
        if let Some(e) = lock(&shared.failed).take() {
            return Err(e);
        }
        if shared.stop.load(Ordering::Relaxed) {
            return Err(Error::cancelled());
        }
        let mut whole = vec![0; lengths.len()];
        for (chunk, sum) in (0..chunks).zip(&sums) {
            let (part, _, len) = place(chunk);
            let len = usize::try_from(len).unwrap_or(0);
            whole[part] = crc32c::crc32c_combine(whole[part], sum.load(Ordering::Relaxed), len);
        }
        Ok(whole)
    }

    /// An error if rank 0 is gone, or, on rank 0, which tells the others, any of them.
    fn others_live(&self) -> Result<()> {
        match self.fabric.rank() {
            0 => (1..self.fabric.size()).try_for_each(|rank| self.fabric.alive(rank)),
            _ => self.fabric.alive(0),
        }
    }

    /// Tells how far all are, until the threads have ended, and on rank 0, if somebody looks, until all ranks have.
    fn watch(&self, shared: &Shared, total: u64) {
        let watch = Watch::start();
        let far = |done| Far { bytes: shared.bytes.load(Ordering::Relaxed), total, rows: 0, done };
        let show = || {
            if let Some(o) = self.observer {
                let (mine, others) = (far(false), self.news.others());
                o.progress(&Snapshot {
                    pass: 1,
                    bytes: mine.bytes.saturating_add(others.bytes),
                    total_bytes: total.saturating_add(others.total),
                    rows: 0,
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
            if self.news.hear(Duration::ZERO) {
                shared.stop.store(true, Ordering::Relaxed);
            }
            if turn.is_multiple_of(TELL_EVERY) {
                self.news.far(far(false));
                if let Err(e) = self.others_live() {
                    shared.stop.store(true, Ordering::Relaxed);
                    lock(&shared.failed).get_or_insert(e);
                }
            }
            show();
        }
        self.news.far(far(true));
        let stopped = || shared.stop.load(Ordering::Relaxed) || self.cancel.is_cancelled();
        while self.news.is_watched_here() && !self.news.others().done && !stopped() {
            self.news.hear(LOOK);
            show();
        }
        show();
    }
}

fn lock<T>(m: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}
