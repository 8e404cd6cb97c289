//! Tries a session: so many tasks read a range, each its own part, and look at every byte. For administrators who
//! want to know what a file system gives, for choosing options, and for benchmarks.

use crate::clock;
use crate::request::{Read, ReadInto};
use crate::session::{File, Session};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Result, limits};

/// How tasks get their bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Way {
    /// Views of a session.
    #[default]
    Views,
    /// Buffers of their own, filled by a session.
    Buffers,
    /// Without a session: each reads its part by itself, as naive programs do.
    Alone,
}

/// A trial.
#[derive(Debug, Clone, Default)]
pub struct Trial {
    /// Tasks, each with an equal part of the range (a multiple of 8 bytes); some have none if there are few bytes.
    pub tasks: u64,
    /// Threads on which the tasks run, one after the other; 0 is one for each processor.
    pub threads: usize,
    /// Tasks come in no order, in place of that of the file.
    pub scattered: bool,
    /// How they get their bytes.
    pub way: Way,
    /// Of the tasks, by their number in the order in which they come, those that run here; all if it is `None`.
    pub part: Option<Range<u64>>,
    /// Stops it.
    pub cancel: Cancel,
}

/// What it took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Took {
    /// Bytes that were looked at.
    pub bytes: u64,
    /// From the first request to the last byte.
    pub seconds: f64,
    /// Sum of the bytes as 64-bit numbers, the same for any number of tasks and every way.
    pub sum: u64,
}

/// Requests that a thread has under way, and bytes of them: tasks ask before others have their answer. Those that have
/// it at once go on, as tasks of a runtime do.
const UNDER_WAY: u64 = 64;
const BYTES_UNDER_WAY: u64 = 16 << 20;
/// Bytes of a thread between two that are told of.
const TOLD: u64 = 1 << 20;
/// How often who waits for an answer looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(100);

/// Runs a trial over a range of a file. `progress` hears how many bytes have come, from any thread, now and then.
///
/// # Errors
/// Those of the session and its reads; `Cancelled`.
pub fn try_out(
    file: &File,
    range: Range<u64>,
    trial: &Trial,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Took> {
    let begin = clock::now();
    let session = file.session(range.clone())?;
    let tasks = trial.tasks.max(1);
    let part = trial.part.clone().unwrap_or(0..tasks);
    let work = Work {
        session: &session,
        trial,
        tasks,
        share: (range.end - range.start).div_ceil(tasks).next_multiple_of(8),
        range,
        step: step(tasks, trial.scattered),
        next: Apart(AtomicU64::new(part.start)),
        done: Apart(AtomicU64::new(0)),
        end: part.end,
        sum: AtomicU64::new(0),
        failed: AtomicBool::new(false),
        failure: Mutex::new(None),
        progress,
    };
    let threads = match trial.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let run = || {
        if let Err(error) = work.run() {
            work.failure.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
            work.failed.store(true, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        let most = usize::try_from(tasks).unwrap_or(usize::MAX).min(limits::MAX_THREADS);
        for _ in 1..threads.min(most) {
            // With fewer than were asked for it takes longer.
            if std::thread::Builder::new().spawn_scoped(scope, run).is_err() {
                break;
            }
        }
        run();
    });
    let Work { done, sum, failure, .. } = work;
    if let Some(error) = failure.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let seconds = clock::now().duration_since(begin).as_secs_f64();
    session.close()?;
    Ok(Took { bytes: done.0.into_inner(), seconds, sum: sum.into_inner() })
}

/// A line of memory of its own: what all threads write to, beside what they only read.
#[repr(align(128))]
struct Apart(AtomicU64);

struct Work<'a> {
    session: &'a Session,
    trial: &'a Trial,
    tasks: u64,
    /// Bytes of a task.
    share: u64,
    range: Range<u64>,
    /// Task `i * step` of all comes as number `i`.
    step: u64,
    next: Apart,
    done: Apart,
    /// Numbers from here on are not of this trial.
    end: u64,
    sum: AtomicU64,
    failed: AtomicBool,
    failure: Mutex<Option<Error>>,
    progress: &'a (dyn Fn(u64) + Sync),
}

/// Memory of a task. It begins with a page, as what `malloc` gives begins 16 bytes after one, and some processors copy to
/// there at a fraction of their speed; whoever fills it is to have the same.
#[derive(Default)]
struct Memory {
    bytes: Vec<u8>,
    from: usize,
    len: usize,
}

impl Memory {
    /// So many bytes from now on, whatever they are.
    fn fit(&mut self, len: usize) {
        const PAGE: usize = 4096;
        if self.bytes.len() < len + PAGE {
            self.bytes = vec![0; len + PAGE];
            self.from = self.bytes.as_ptr().addr().wrapping_neg() % PAGE;
        }
        self.len = len;
    }
}

impl AsMut<[u8]> for Memory {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.len]
    }
}

/// A request of a task.
enum Asked {
    View(Read),
    Into(ReadInto<Memory>, usize),
    Alone(u64, usize),
}

impl Asked {
    fn is_ready(&self) -> bool {
        match self {
            Asked::View(read) => read.is_ready(),
            Asked::Into(read, _) => read.is_ready(),
            Asked::Alone(..) => true,
        }
    }
}

impl Work<'_> {
    fn run(&self) -> Result<()> {
        let mut asked = VecDeque::new();
        let mut spare: Vec<Memory> = Vec::new();
        let mut sum = 0u64;
        let mut untold = 0;
        let under_way = match self.trial.way {
            Way::Alone => 1,
            Way::Views | Way::Buffers => {
                (BYTES_UNDER_WAY / self.share.max(1)).clamp(1, UNDER_WAY) as usize
            }
        };
        loop {
            self.goes_on()?;
            let mut ready = None;
            while ready.is_none() && asked.len() < under_way {
                let number = self.next.0.fetch_add(1, Ordering::Relaxed);
                if number >= self.end.min(self.tasks) {
                    break;
                }
                let new = self.ask(number, &mut spare)?;
                if new.is_ready() {
                    ready = Some(new);
                } else {
                    asked.push_back(new);
                }
            }
            let there = ready.is_some();
            let Some(first) = ready.or_else(|| asked.pop_front()) else { break };
            let (part, bytes) = match first {
                Asked::View(mut read) => {
                    let view =
                        if there { read.wait() } else { self.come(|time| read.wait_for(time)) }?;
                    let part = words(&view);
                    view.check()?;
                    (part, view.len())
                }
                Asked::Into(mut read, len) => {
                    let mut buffer =
                        if there { read.wait() } else { self.come(|time| read.wait_for(time)) }?;
                    let part = words(buffer.as_mut());
                    spare.push(buffer);
                    (part, len)
                }
                Asked::Alone(offset, len) => {
                    let mut buffer = spare.pop().unwrap_or_default();
                    buffer.fit(len);
                    self.session.file().read_plainly(offset, buffer.as_mut())?;
                    let part = words(buffer.as_mut());
                    spare.push(buffer);
                    (part, len)
                }
            };
            sum = sum.wrapping_add(part);
            untold += bytes as u64;
            if untold >= TOLD {
                self.tell(std::mem::take(&mut untold));
            }
        }
        self.tell(untold);
        self.sum.fetch_add(sum, Ordering::Relaxed);
        Ok(())
    }

    /// An error if the trial is to end.
    fn goes_on(&self) -> Result<()> {
        if self.trial.cancel.is_cancelled() || self.failed.load(Ordering::Relaxed) {
            return Err(Error::new(Kind::Cancelled, "the trial was stopped"));
        }
        Ok(())
    }

    /// Waits for an answer, as long as the trial goes on: a device that hangs keeps nobody from stopping it.
    fn come<T>(&self, mut wait: impl FnMut(Duration) -> Option<Result<T>>) -> Result<T> {
        loop {
            if let Some(answer) = wait(LOOK) {
                return answer;
            }
            self.goes_on()?;
        }
    }

    /// So many bytes more have come.
    fn tell(&self, bytes: u64) {
        let done = self.done.0.fetch_add(bytes, Ordering::Relaxed) + bytes;
        (self.progress)(done);
    }

    fn ask(&self, number: u64, spare: &mut Vec<Memory>) -> Result<Asked> {
        // Both are below the number of tasks.
        let product = u128::from(number) * u128::from(self.step) % u128::from(self.tasks);
        let task = u64::try_from(product).unwrap_or(0);
        let at = self.share.saturating_mul(task).saturating_add(self.range.start);
        let from = at.min(self.range.end);
        let to = from.saturating_add(self.share).min(self.range.end);
        let len = usize::try_from(to - from)
            .map_err(|_| Error::usage("the part of a task does not fit memory; take more tasks"))?;
        Ok(match self.trial.way {
            Way::Views => Asked::View(self.session.read(from, len)),
            Way::Buffers => {
                let mut buffer = spare.pop().unwrap_or_default();
                buffer.fit(len);
                Asked::Into(self.session.read_into(from, buffer), len)
            }
            Way::Alone => Asked::Alone(from, len),
        })
    }
}

/// A number without a common divisor with that of the tasks, near its golden section.
fn step(tasks: u64, scattered: bool) -> u64 {
    let divisor = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    if !scattered {
        return 1;
    }
    let golden = (tasks as f64 * 0.618_033_988_75) as u64;
    (golden.max(1)..=tasks).find(|s| divisor(*s, tasks) == 1).unwrap_or(1)
}

/// The sum of the numbers of 8 bytes; what is left at the end is filled with zeros.
fn words(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let (eights, words) = words.as_chunks::<8>();
    let mut sums = [0u64; 8];
    for eight in eights {
        for (sum, word) in sums.iter_mut().zip(eight) {
            *sum = sum.wrapping_add(u64::from_le_bytes(*word));
        }
    }
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let left = words.iter().chain(std::iter::once(&last));
    let left = left.fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    sums.iter().fold(left, |sum, s| sum.wrapping_add(*s))
}
