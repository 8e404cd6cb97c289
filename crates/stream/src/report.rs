//! What was done so far: by a writer, by a reader, for one step. Counted where it is done, and put together when somebody asks.

use crate::board::{Board, Needed};
use crate::words::Words;
use serde::Serialize;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stead_store::process;

/// Copies of fewer bytes are not timed: to look at the clock would take as long.
const FEW: usize = 64 << 10;
/// Whom a writer has waited for: so many are told.
const WHO: usize = 32;

/// What a step has cost a reader so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepReport {
    /// Its number.
    pub step: u64,
    /// Steps before it that went before the reader came to them.
    pub dropped: u64,
    /// Bytes of the arrays that writers have put into it.
    pub bytes: u64,
    /// Boxes that were copied; the others are looked at.
    pub copies: u64,
    /// Bytes that were copied from writers of this node.
    pub copied: u64,
    /// Bytes that are looked at where they lie.
    pub looked: u64,
    /// Bytes that have come from other nodes.
    pub fetched: u64,
    /// Seconds of processors that copies have taken: those of 64 KiB or more.
    pub copy_cpu_s: f64,
    /// Seconds that were waited for the step.
    pub waited_s: f64,
    /// The most memory that arrays of the stream have taken on this node at a time, as a multiple of what the writers here have put into
    /// this step. Where none are here, that of the nodes which it comes from, as it was when they told of the step. `None` if they have put
    /// nothing, and of steps that are read from a folder.
    pub peak_steps: Option<f64>,
}

/// What a reader has done so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReaderReport {
    /// Steps that it was given.
    pub steps: u64,
    /// Steps that went before it came to them.
    pub dropped: u64,
    /// Boxes that were copied; the others are, or were, looked at.
    pub copies: u64,
    /// Bytes that were copied from writers of this node.
    pub copied: u64,
    /// Bytes that are, or were, looked at where they lie.
    pub looked: u64,
    /// Bytes that have come from other nodes.
    pub fetched: u64,
    /// Seconds of processors that copies have taken: those of 64 KiB or more.
    pub copy_cpu_s: f64,
    /// Seconds that were waited for steps.
    pub waited_s: f64,
    /// The memory of the stream on this node; `None` if it has no writers here.
    pub memory: Option<MemoryReport>,
}

/// What a writer has done so far.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WriterReport {
    /// Which of the writers it is.
    pub rank: u64,
    /// Steps that it has ended.
    pub steps: u64,
    /// Bytes that it has put into them.
    pub put: u64,
    /// Bytes of these that were copied; others were made in their place.
    pub copied: u64,
    /// Seconds of processors that copies have taken: those of 64 KiB or more.
    pub copy_cpu_s: f64,
    /// Seconds that it has waited for others.
    pub waited_s: f64,
    /// For whom, the longest first.
    pub waits: Vec<Wait>,
    /// The last step that it has ended.
    pub last: Option<StepPut>,
    /// The memory of the stream on this node.
    pub memory: MemoryReport,
}

/// A step that a writer has ended.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct StepPut {
    /// Its number.
    pub step: u64,
    /// Bytes that the writer has put into it.
    pub put: u64,
    /// Bytes of these that were copied.
    pub copied: u64,
    /// Seconds of processors that copies have taken: those of 64 KiB or more.
    pub copy_cpu_s: f64,
    /// Seconds that the writer has waited for others since the step before.
    pub waited_s: f64,
}

/// What a writer has waited for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Wait {
    /// Who it was, or what.
    pub who: String,
    /// How often.
    pub times: u64,
    /// How long, in all.
    pub waited_s: f64,
}

/// The memory that arrays of a stream take on this node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MemoryReport {
    /// Bytes that they may take.
    pub most: u64,
    /// Those that they take now.
    pub used: u64,
    /// The most that they have taken at a time.
    pub peak: u64,
    /// Bytes of a step on average.
    pub step: u64,
    /// How often `step` goes into `peak`; `None` before there is one.
    pub peak_steps: Option<f64>,
}

impl MemoryReport {
    pub(crate) fn of<W: Words>(board: &Board<W>) -> MemoryReport {
        let writers = || (0..board.writers()).map(|writer| board.writer(writer));
        let put = writers().map(|seat| seat.bytes).fold(0, u64::saturating_add);
        let steps = writers().map(|seat| seat.step).max().unwrap_or(0);
        let (step, peak) = (put.checked_div(steps).unwrap_or(0), board.peak());
        MemoryReport {
            most: board.agreed().memory,
            used: board.used(),
            peak,
            step,
            peak_steps: (step > 0).then(|| peak as f64 / step as f64),
        }
    }
}

pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    nanoseconds as f64 * 1e-9
}

pub(crate) fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Copies so many bytes, and adds the time of a processor that this takes to a sum of nanoseconds, if it is much.
pub(crate) fn timed<T>(bytes: usize, sum: &AtomicU64, copy: impl FnOnce() -> T) -> T {
    if bytes < FEW {
        return copy();
    }
    let before = process::thread_time();
    let done = copy();
    let took = process::thread_time().saturating_sub(before);
    sum.fetch_add(nanoseconds(took), Ordering::Relaxed);
    done
}

/// What was got, of one step or of all.
#[derive(Debug, Default)]
pub(crate) struct Gets {
    /// Boxes of which something was copied.
    pub(crate) copies: AtomicU64,
    pub(crate) copied: AtomicU64,
    pub(crate) looked: AtomicU64,
    pub(crate) fetched: AtomicU64,
    /// Nanoseconds.
    pub(crate) copying: AtomicU64,
}

impl Gets {
    /// Of one box.
    pub(crate) fn add(&self, copied: u64, looked: u64, fetched: u64, copying: u64) {
        let sums = [
            (&self.copies, u64::from(copied > 0 || fetched > 0)),
            (&self.copied, copied),
            (&self.looked, looked),
            (&self.fetched, fetched),
            (&self.copying, copying),
        ];
        for (sum, more) in sums {
            if more > 0 {
                sum.fetch_add(more, Ordering::Relaxed);
            }
        }
    }

    /// Copies; bytes copied, looked at and fetched; and the nanoseconds of copying.
    pub(crate) fn get(&self) -> [u64; 5] {
        [&self.copies, &self.copied, &self.looked, &self.fetched, &self.copying]
            .map(|sum| sum.load(Ordering::Relaxed))
    }
}

/// Why a writer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Groups of readers are to come.
    Groups,
    /// This rank of a group is to have had a step.
    Reader(Needed),
    /// Somebody is to look no longer at a step.
    Held,
    /// Other writers are to end a step.
    Writers,
    /// Other streams of the user are to give memory back.
    Others,
    /// Steps are to be recorded.
    Recorder,
}

impl Cause {
    fn is(&self, other: &Cause) -> bool {
        match (self, other) {
            (Cause::Reader(a), Cause::Reader(b)) => a.is_of(b),
            (a, b) => a == b,
        }
    }
}

/// What a writer counts.
#[derive(Debug, Default)]
pub(crate) struct Puts {
    all: Put,
    /// Since the last step was ended.
    now: Put,
    last: Option<(u64, Put)>,
    steps: u64,
    waits: Vec<(Cause, u64, u64)>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Put {
    put: u64,
    copied: u64,
    copying: u64,
    waited: u64,
}

impl Puts {
    pub(crate) fn put(&mut self, bytes: u64) {
        self.now.put = self.now.put.saturating_add(bytes);
    }

    pub(crate) fn copied(&mut self, bytes: u64, copying: u64) {
        self.now.copied = self.now.copied.saturating_add(bytes);
        self.now.copying = self.now.copying.saturating_add(copying);
    }

    pub(crate) fn waited(&mut self, cause: Cause, time: Duration) {
        let took = nanoseconds(time);
        self.now.waited = self.now.waited.saturating_add(took);
        let known = self.waits.iter_mut().find(|(known, ..)| known.is(&cause));
        if let Some((_, times, sum)) = known {
            (*times, *sum) = (*times + 1, sum.saturating_add(took));
        } else if self.waits.len() < WHO {
            // Of more it is not told who they were.
            self.waits.push((cause, 1, took));
        }
    }

    /// A step was ended: nanoseconds of waits and of copies so far.
    pub(crate) fn end(&mut self, step: u64) -> (u64, u64) {
        let now = std::mem::take(&mut self.now);
        self.all = self.with(now);
        self.last = Some((step, now));
        self.steps += 1;
        (self.all.waited, self.all.copying)
    }

    fn with(&self, now: Put) -> Put {
        let Put { put, copied, copying, waited } = self.all;
        Put {
            put: put.saturating_add(now.put),
            copied: copied.saturating_add(now.copied),
            copying: copying.saturating_add(now.copying),
            waited: waited.saturating_add(now.waited),
        }
    }

    pub(crate) fn report<W: Words>(&self, rank: u64, board: &Board<W>) -> WriterReport {
        // Waits for a step that is not ended yet are told, too.
        let waited = self.with(self.now).waited;
        let Put { put, copied, copying, .. } = self.all;
        let mut waits = self.waits.clone();
        waits.sort_by_key(|(_, _, sum)| std::cmp::Reverse(*sum));
        let who = |cause: &Cause| match cause {
            Cause::Groups => "groups of readers that had not come".to_owned(),
            Cause::Reader(needed) => {
                format!("rank {} of the readers '{}'", needed.rank, board.group_of(needed))
            }
            Cause::Held => "steps that somebody looked at".to_owned(),
            Cause::Writers => "other writers".to_owned(),
            Cause::Others => "memory of other streams".to_owned(),
            Cause::Recorder => "what records steps".to_owned(),
        };
        let told = |(cause, times, sum): &(Cause, u64, u64)| Wait {
            who: who(cause),
            times: *times,
            waited_s: seconds(*sum),
        };
        WriterReport {
            rank,
            steps: self.steps,
            put,
            copied,
            copy_cpu_s: seconds(copying),
            waited_s: seconds(waited),
            waits: waits.iter().map(told).collect(),
            last: self.last.map(|(step, last)| StepPut {
                step,
                put: last.put,
                copied: last.copied,
                copy_cpu_s: seconds(last.copying),
                waited_s: seconds(last.waited),
            }),
            memory: MemoryReport::of(board),
        }
    }
}
