//! Transfers that wait for their turn, and threads that do them: so many at a time, by priority, some after others.
//!
//! What waits is in the journal, so that whoever opens it after the end of the process goes on with it.

use crate::clock;
use crate::manager::Stager;
use crate::moving::Moving;
use crate::request::Request;
use crate::status::{Progress, State, Status};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Result};
use stead_model::transfer::Remaining;

/// Whoever cannot look at the journal tries again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// How long a transfer that is cancelled has for what it is in the middle of.
const STOPS_WITHIN: Duration = Duration::from_secs(60);
/// How long the sources of a transfer that waits are looked at to say how long it will take.
const LOOKS_FOR: Duration = Duration::from_secs(2);
/// Of what is to come before a transfer, so many are counted.
const MOST_BEFORE: usize = 1000;
/// So many of these look at a time.
const MOST_LOOKING: usize = 4;
/// How often it is looked for what nobody does.
const LOOKS_EVERY: Duration = Duration::from_secs(60);
/// A transfer that begins while it is cancelled is stopped again, so often.
const TRIES: u32 = 10;

/// The queue of a journal. Dropped, it stops what is under way, such that it goes on when the journal is opened again.
pub struct Queue {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    stager: Arc<Stager>,
    now: Mutex<Now>,
    changed: Condvar,
    /// Threads that look how large a transfer is.
    looking: Arc<AtomicUsize>,
    /// Called when there is more or less to do.
    told: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Now {
    /// So many at a time.
    slots: usize,
    running: HashMap<i64, Arc<Moving>>,
    /// Said to be under way, and not yet begun.
    beginning: Option<i64>,
    /// Ended, and not yet taken note of.
    ended: Vec<i64>,
    /// Counts whatever changes.
    changes: u64,
    /// All slots are taken, and that more waits is known.
    full: bool,
    stopped: bool,
    /// Said to be under way, and not here: in a process that may be about to end.
    strays: Vec<i64>,
    /// Being stopped, to be given up.
    cancelling: Vec<i64>,
}

/// How far a transfer is that waits or is under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// As the journal has it.
    pub status: Status,
    /// How far it is, if it is under way and has said so.
    pub progress: Option<Progress>,
}

/// How much there is to do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Load {
    /// Under way.
    pub running: usize,
    /// Could be begun now, counted up to a number.
    pub ready: usize,
}

/// Transfers of one state, as sums.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Totals {
    /// The state.
    pub state: State,
    /// How many there are.
    pub transfers: u64,
    /// Names that they have done.
    pub files_done: u64,
    /// Bytes that they have moved.
    pub bytes_done: u64,
}

impl Shared {
    fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, what: impl FnOnce(&mut Now)) {
        {
            let mut now = self.now();
            what(&mut now);
            now.changes += 1;
            now.full = false;
        }
        self.changed.notify_all();
    }

    /// One more waits. Nobody is woken for it who could not begin it: who submits many is not to wait for that each time.
    fn more(&self) {
        {
            let mut now = self.now();
            now.changes += 1;
            if now.full {
                return;
            }
            now.full = now.running.len() >= now.slots;
        }
        self.changed.notify_all();
    }

    /// Begins what may be begun.
    fn begin(self: &Arc<Shared>) -> Result<()> {
        let journal = self.stager.journal();
        loop {
            {
                let now = self.now();
                if now.stopped || now.running.len() >= now.slots {
                    return Ok(());
                }
            }
            let Some(id) = journal.next_queued()? else { return Ok(()) };
            self.now().beginning = Some(id);
            let begun = match journal.claim(id, clock::unix()) {
                Ok(true) => Moving::begin(&self.stager, id).map(Some),
                // Somebody has cancelled it just now.
                Ok(false) => Ok(None),
                Err(e) => Err(e),
            };
            let mut before = None;
            let shared = Arc::downgrade(self);
            match begun {
                Ok(Some(moving)) => {
                    let moving = Arc::new(moving);
                    self.change(|now| {
                        now.beginning = None;
                        before = now.running.insert(id, moving.clone());
                    });
                    moving.then(move || {
                        if let Some(shared) = shared.upgrade() {
                            shared.change(|now| now.ended.push(id));
                        }
                    });
                }
                Ok(None) => self.now().beginning = None,
                Err(e) => {
                    self.now().beginning = None;
                    journal.put_back(id)?;
                    return Err(e);
                }
            }
            // Its end takes the lock.
            drop(before);
        }
    }

    /// Takes over what another process has left.
    fn gather(&self) -> Result<()> {
        let strays = self.now().strays.clone();
        let (journal, mut left, mut failed) = (self.stager.journal(), Vec::new(), Ok(()));
        for id in strays {
            match self.stager.is_free(id) {
                Ok(true) => failed = failed.and(journal.put_back(id)),
                Ok(false) => left.push(id),
                Err(e) => {
                    left.push(id);
                    failed = failed.and(Err(e));
                }
            }
        }
        self.now().strays = left;
        failed
    }

    /// Looks for those that are said to be under way, and are not here; at first also for those that were interrupted. Later it is
    /// a full device that interrupts, or somebody who wants it.
    fn look_for_strays(&self, first: bool) -> Result<()> {
        let begun = self.stager.journal().queued_begun(first)?;
        let mut now = self.now();
        let here = |id: &i64| now.running.contains_key(id) || now.beginning == Some(*id);
        let mut strays: Vec<i64> = begun.into_iter().filter(|id| !here(id)).collect();
        strays.extend(&now.strays);
        strays.sort_unstable();
        strays.dedup();
        now.strays = strays;
        Ok(())
    }

    fn work(self: &Arc<Shared>) {
        let mut watch = clock::Watch::start();
        loop {
            let (ended, seen) = {
                let mut now = self.now();
                let ids = std::mem::take(&mut now.ended);
                let mut ended = Vec::new();
                for id in ids {
                    // It may have been begun once more meanwhile.
                    if now.running.get(&id).is_some_and(|moving| moving.has_ended()) {
                        ended.extend(now.running.remove(&id));
                    }
                }
                (ended, now.changes)
            };
            // Their threads have told that they end: nothing is waited for.
            let some = !ended.is_empty();
            drop(ended);
            let mut looked = Ok(());
            if some || watch.seconds() > LOOKS_EVERY.as_secs_f64() {
                // What ended without a word in the journal, and what other processes have left meanwhile.
                looked = self.look_for_strays(false);
                watch = clock::Watch::start();
            }
            let begun = looked.and_then(|()| self.gather()).and_then(|()| self.begin());
            (self.told)();
            if some {
                self.change(|_| {});
            }
            let now = self.now();
            if now.stopped {
                return;
            }
            // Whatever has changed since it was looked at is looked at again.
            let still = |now: &mut Now| now.changes == seen && !now.stopped;
            let most = match begun.is_err() || !now.strays.is_empty() {
                true => AGAIN,
                false => LOOKS_EVERY,
            };
            drop(self.changed.wait_timeout_while(now, most, still));
        }
    }
}

impl Queue {
    /// Goes on with what waits in the journal of `stager`, nothing at a time before [`Queue::set_slots`]. `told` is called by a thread
    /// of the queue when there is more or less to do: it is not to be kept waiting.
    ///
    /// # Errors
    /// Those of the journal; system errors of beginning a thread.
    pub fn open(stager: Arc<Stager>, told: impl Fn() + Send + Sync + 'static) -> Result<Queue> {
        let (now, changed) = (Mutex::default(), Condvar::new());
        let (looking, told) = (Arc::default(), Box::new(told));
        let shared = Arc::new(Shared { stager, now, changed, looking, told });
        shared.look_for_strays(true)?;
        // What cannot be taken over now is later.
        let _ = shared.gather();
        let its = shared.clone();
        let thread = std::thread::Builder::new()
            .name("stead-queue".into())
            .spawn(move || its.work())
            .map_err(|e| Error::io("start a thread", "this process", e))?;
        Ok(Queue { shared, thread: Some(thread) })
    }

    /// So many transfers at a time from now on. Those that are under way go on.
    pub fn set_slots(&self, slots: usize) {
        self.shared.change(|now| now.slots = slots);
    }

    /// Takes a request, to be done once these are finished. It is in the journal when this returns.
    ///
    /// # Errors
    /// Those of [`Stager::submit`]; `Usage` if one of `after` is not there or will never be finished.
    pub fn submit(&self, request: &Request, after: &[i64]) -> Result<i64> {
        self.submit_of(request, after, None)
    }

    /// As [`Queue::submit`], for a process of a job.
    ///
    /// # Errors
    /// As there.
    pub fn submit_of(&self, request: &Request, after: &[i64], job: Option<&str>) -> Result<i64> {
        let id = self.shared.stager.take(request, Some(after), job)?;
        self.shared.more();
        Ok(id)
    }

    /// Has one done again that was interrupted or has failed, or that nobody has in the queue.
    ///
    /// # Errors
    /// `Usage` if it is finished or cancelled; those of the journal.
    pub fn resume(&self, id: i64) -> Result<()> {
        let held = self.shared.now().running.get(&id).cloned();
        if held.is_some_and(|moving| !moving.has_ended()) {
            return Ok(());
        }
        if !self.shared.stager.journal().requeue(id)? {
            let state = self.standing(id)?.status.state;
            if matches!(state, State::Finished | State::Cancelled) {
                let state = state.as_str();
                return Err(Error::usage(format!("transfer {id} is {state} already")));
            }
        }
        self.shared.change(|_| {});
        Ok(())
    }

    /// Stops a transfer and gives it up, whether it waits or is under way.
    ///
    /// # Errors
    /// `Usage` if it is over; `Timeout` if it does not stop; those of [`Stager::cancel`].
    pub fn cancel(&self, id: i64) -> Result<Status> {
        let mut tries = 0;
        let done = loop {
            let running = self.shared.now().running.get(&id).cloned();
            if let Some(moving) = running {
                self.shared.now().cancelling.push(id);
                moving.stop();
                // How it ended is asked of the journal.
                if let Ok(None) = moving.wait(Some(STOPS_WITHIN)) {
                    // Nobody goes on with it once it has stopped.
                    self.shared.stager.journal().leave_queue(id)?;
                    self.shared.change(|now| now.cancelling.retain(|other| *other != id));
                    return Err(Error::new(Kind::Timeout, format!("transfer {id} does not stop"))
                        .with_hint("a device may not answer; cancel it again once that does"));
                }
            }
            let done = self.shared.stager.cancel(id);
            // It was begun just now.
            let begun = || self.shared.now().running.contains_key(&id);
            if done.is_ok() || tries == TRIES || !begun() {
                break done;
            }
            tries += 1;
        };
        self.shared.change(|now| now.cancelling.retain(|other| *other != id));
        done
    }

    /// How far a transfer is.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; those of the journal.
    pub fn standing(&self, id: i64) -> Result<Standing> {
        self.own(self.shared.stager.journal().status(id)?)
    }

    /// With what this queue knows of a transfer: whether it does it, and how far it is.
    fn own(&self, status: Status) -> Result<Standing> {
        let id = status.id;
        if !matches!(status.state, State::Running | State::Interrupted) {
            return Ok(Standing { status, progress: None });
        }
        let (own, soon, moving) = {
            let now = self.shared.now();
            let moving = now.running.get(&id).cloned();
            let own = moving.is_some() || now.beginning == Some(id);
            (own, now.cancelling.contains(&id) || now.strays.contains(&id), moving)
        };
        if soon {
            // It is about to be cancelled, or to go on.
            return Ok(Standing {
                status: Status { state: State::Running, ..status },
                progress: None,
            });
        }
        if status.state == State::Interrupted {
            return Ok(Standing { status, progress: None });
        }
        let progress = moving.and_then(|m| m.progress());
        match own {
            true => Ok(Standing { status, progress }),
            // Another process does it, or has ended without a word; or it has ended just now.
            false => Ok(Standing { status: self.shared.stager.status(status.id)?, progress: None }),
        }
    }

    /// Waits until nothing more happens with a transfer, for no longer than this, and says how far it is.
    ///
    /// # Errors
    /// Those of [`Queue::standing`].
    pub fn wait(&self, id: i64, most: Duration) -> Result<Standing> {
        let watch = clock::Watch::start();
        loop {
            let seen = self.shared.now().changes;
            let standing = self.standing(id)?;
            let left = most.saturating_sub(Duration::from_secs_f64(watch.seconds()));
            if standing.status.state.rests() || left.is_zero() {
                return Ok(standing);
            }
            let now = self.shared.now();
            if now.stopped {
                return Ok(standing);
            }
            let still = |now: &mut Now| now.changes == seen && !now.stopped;
            drop(self.shared.changed.wait_timeout_while(now, left, still));
        }
    }

    /// Seconds until a transfer has ended: those before it, its turn, and itself.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn left(&self, id: i64) -> Result<Remaining> {
        let Standing { status, progress } = self.standing(id)?;
        if let Some(progress) = progress {
            return Ok(progress.left);
        }
        if status.state.is_over() {
            return Ok(Remaining::default());
        }
        let journal = self.shared.stager.journal();
        let mean = journal.mean_seconds()?;
        let needs = journal.before(id, MOST_BEFORE)?;
        let before = match needs.first() {
            None => self.turn_of(id, mean)?,
            // One after the other: what is to come first has its turn, too.
            Some(_) => {
                let first = needs.last().copied().unwrap_or(id);
                let mut before = self.turn_of(first, mean)?;
                for other in &needs {
                    let moving = self.shared.now().running.get(other).cloned();
                    let left = moving.and_then(|m| m.progress()).map(|p| p.left);
                    before = sum(before, left.unwrap_or_else(|| guess(1.0, mean)));
                }
                before
            }
        };
        Ok(sum(before, self.itself(&status, mean)))
    }

    /// Seconds until it is the turn of one that waits for nothing else.
    fn turn_of(&self, id: i64, mean: Option<f64>) -> Result<Remaining> {
        let (slots, running) = {
            let now = self.shared.now();
            (now.slots.max(1), now.running.clone())
        };
        if running.contains_key(&id) {
            return Ok(Remaining::default());
        }
        let mut before = Remaining::default();
        for left in running.values().filter_map(|m| m.progress()).map(|p| p.left) {
            before = sum(before, left);
        }
        let ahead = self.shared.stager.journal().ahead_of(id)? as f64;
        if running.len() < slots && ahead == 0.0 {
            return Ok(Remaining::default());
        }
        let (before, by) = (sum(before, guess(ahead, mean)), slots as f64);
        Ok(Remaining { seconds: before.seconds / by, low: before.low / by, high: before.high })
    }

    /// What a transfer that waits will take, from a look at its sources that is no longer than some seconds.
    fn itself(&self, status: &Status, mean: Option<f64>) -> Remaining {
        let (stager, cancel) = (self.shared.stager.clone(), Cancel::new());
        let (request, token) = (status.request.clone(), cancel.clone());
        let (send, receive) = std::sync::mpsc::sync_channel(1);
        let looking = self.shared.looking.clone();
        let thread = std::thread::Builder::new().name("stead-preview".into());
        // A device that does not answer keeps them.
        let looks = match looking.fetch_add(1, Ordering::Relaxed) < MOST_LOOKING {
            true => thread.spawn(move || {
                // Nobody may wait for it any more.
                let _ = send.send(stager.preview(&request, &token));
                looking.fetch_sub(1, Ordering::Relaxed);
            }),
            false => {
                looking.fetch_sub(1, Ordering::Relaxed);
                Err(std::io::ErrorKind::WouldBlock.into())
            }
        };
        let preview = looks.ok().and_then(|_| receive.recv_timeout(LOOKS_FOR).ok());
        cancel.cancel();
        match preview {
            Some(Ok(preview)) => preview.takes,
            // More than can be looked at in so short a time, or something that it will fail with.
            Some(Err(_)) => Remaining::default(),
            None => {
                let mean = mean.unwrap_or(60.0);
                Remaining { seconds: mean, low: 0.0, high: mean * 10.0 }
            }
        }
    }

    /// Transfers, the latest first; those that are over only if `all`.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn statuses(&self, all: bool, most: usize) -> Result<Vec<Standing>> {
        let list = self.shared.stager.journal().statuses(None, all, most)?;
        list.into_iter().map(|status| self.own(status)).collect()
    }

    /// How much there is to do, of what waits no more than `most`.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn load(&self, most: usize) -> Result<Load> {
        let ready = self.shared.stager.journal().ready(most)?;
        let now = self.shared.now();
        // What others have left is about to be ready.
        Ok(Load { running: now.running.len(), ready: ready + now.strays.len() })
    }

    /// How many wait for their turn or for others.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn waiting(&self) -> Result<u64> {
        self.shared.stager.journal().count_queued()
    }

    /// What there is in the journal, by state.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn totals(&self) -> Result<Vec<Totals>> {
        self.shared.stager.journal().totals()
    }

    /// Bytes a second of all that is under way.
    pub fn rate(&self) -> f64 {
        let running: Vec<_> = self.shared.now().running.values().cloned().collect();
        let rate =
            |p: Progress| if p.seconds > 0.0 { p.bytes_done as f64 / p.seconds } else { 0.0 };
        running.iter().filter_map(|moving| moving.progress()).map(rate).sum()
    }

    /// So many transfers at a time.
    pub fn slots(&self) -> usize {
        self.shared.now().slots
    }

    /// Whom it does the transfers by.
    pub fn stager(&self) -> &Arc<Stager> {
        &self.shared.stager
    }

    /// Stops what is under way, such that it goes on when the journal is opened again, and begins nothing any more.
    pub fn end(&self) {
        self.shared.change(|now| now.stopped = true);
        let running: Vec<_> = self.shared.now().running.values().cloned().collect();
        running.iter().for_each(|moving| moving.stop());
        // How they ended is in the journal.
        running.iter().for_each(|moving| drop(moving.wait(Some(STOPS_WITHIN))));
    }
}

/// So many that nobody has looked at: taken to be as those before.
fn guess(transfers: f64, mean: Option<f64>) -> Remaining {
    match mean {
        Some(mean) => Remaining {
            seconds: transfers * mean,
            low: transfers * mean / 4.0,
            high: transfers * mean * 4.0,
        },
        None => Remaining { seconds: transfers, low: 0.0, high: transfers * 60.0 },
    }
}

fn sum(a: Remaining, b: Remaining) -> Remaining {
    Remaining { seconds: a.seconds + b.seconds, low: a.low + b.low, high: a.high + b.high }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.shared.change(|now| now.stopped = true);
        if let Some(thread) = self.thread.take() {
            // One that panicked has nothing to say.
            let _ = thread.join();
        }
        self.end();
    }
}
