//! Transfers that wait for their turn, and threads that do them: so many at a time, by priority, some after others.
//!
//! What waits is in the journal, so that whoever opens it after the end of the process goes on with it.

mod share;
mod turn;

pub use share::{Kind, Load, Share};

use crate::clock;
use crate::given_up::{self, STOPS_WITHIN};
use crate::journal::Head;
use crate::limiter;
use crate::manager::{Means, Stager};
use crate::moving::Moving;
use crate::request::{Action, Request};
use crate::status::{Progress, State, Status};
use crate::touch::{Bounds, Touched};
use serde::{Deserialize, Serialize};
use share::Turns;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use stead_core::{Error, Result};

/// Whoever cannot look at the journal tries again after this.
const AGAIN: Duration = Duration::from_secs(1);
/// How often it is looked for what nobody does.
const LOOKS_EVERY: Duration = Duration::from_secs(60);
/// Sets of dataspaces of which it is remembered that more waits which touches them.
const MOST_FULL: usize = 64;
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
    /// What may be under way.
    turns: Turns,
    running: BTreeMap<i64, Running>,
    /// Said to be under way, and not yet begun.
    beginning: Option<Head>,
    /// Ended, and not yet taken note of.
    ended: Vec<i64>,
    /// Counts whatever changes.
    changes: u64,
    /// All slots are taken, and that more waits which touches these is known.
    full: BTreeSet<Touched>,
    stopped: bool,
    /// Said to be under way, and not here: in a process that may be about to end.
    strays: Vec<i64>,
    /// Being stopped, to be given up.
    cancelling: Vec<i64>,
}

/// A transfer that is under way.
#[derive(Clone)]
struct Running {
    moving: Arc<Moving>,
    /// What it has had its turn for.
    touched: Arc<Touched>,
}

/// How far a transfer is that waits or is under way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Standing {
    /// As the journal has it.
    pub status: Status,
    /// How far it is, if it is under way and has said so.
    pub progress: Option<Progress>,
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
            now.full.clear();
        }
        self.changed.notify_all();
    }

    /// One more waits. Nobody is woken for it who could not begin it, nor be told anything new of it: who submits many is not to wait
    /// for that each time.
    fn more(&self, touched: Touched) {
        {
            let mut now = self.now();
            now.changes += 1;
            if now.full.contains(&touched) {
                return;
            }
            if now.running.len() >= now.slots() && now.full.len() < MOST_FULL {
                now.full.insert(touched);
            }
        }
        self.changed.notify_all();
    }

    /// Begins what may be begun.
    fn begin(self: &Arc<Shared>) -> Result<()> {
        let journal = self.stager.journal();
        loop {
            if self.now().may_begin_nothing() {
                return Ok(());
            }
            let (bounds, heads) = (Bounds::of(&self.stager.means()), journal.heads(1)?);
            // Whoever is told of the load hears of it with the share by which it was chosen.
            let Some(head) = self.now().choose(&bounds, heads) else { return Ok(()) };
            let id = head.id;
            let begun = match journal.claim(id, clock::unix()) {
                Ok(true) => Moving::begin_held(&self.stager, id, head.touched.clone()).map(Some),
                // Somebody has cancelled it just now.
                Ok(false) => Ok(None),
                Err(e) => Err(e),
            };
            let mut before = None;
            let shared = Arc::downgrade(self);
            match begun {
                Ok(Some(moving)) => {
                    let (moving, touched) = (Arc::new(moving), head.touched);
                    let running = Running { moving: moving.clone(), touched };
                    self.change(|now| {
                        now.beginning = None;
                        before = now.running.insert(id, running);
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
        let here = |id: &i64| now.is_here(*id);
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
                    if now.running.get(&id).is_some_and(|one| one.moving.has_ended()) {
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

    /// So many transfers at a time from now on, whatever they touch. Those that are under way go on.
    pub fn set_slots(&self, slots: usize) {
        self.shared.change(|now| now.turns = Turns::All(slots));
    }

    /// From now on other dataspaces and jobs: what waits is looked at by these.
    pub fn set_means(&self, means: Means) {
        self.shared.stager.set_means(means);
        self.shared.change(|_| {});
    }

    /// From now on what others have left to it. Those that are under way go on.
    pub fn set_share(&self, share: Share) {
        limiter::share(&Bounds::of(&self.shared.stager.means()), &share.rates);
        self.shared.change(|now| now.turns = Turns::Shared(share));
    }

    /// Takes a request, to be done once these are finished. It is in the journal when this returns. If the same was interrupted, by a
    /// device that was full for example, that goes on, and its number is given.
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
        let stager = &self.shared.stager;
        let taken = match stager.enqueue(request, after, job, request.action == Action::Remove) {
            Ok(Some(taken)) => taken,
            Err(e) if e.kind() != stead_core::Kind::Limit => return Err(e),
            // The same was stopped, or there is no room for more: what was stopped needs none.
            _ => {
                if let Some(id) = stager.requeue_same(request, after, job)? {
                    self.shared.change(|_| {});
                    return Ok(id);
                }
                let odd = || Error::internal("a request that is not taken anew");
                stager.enqueue(request, after, job, true)?.ok_or_else(odd)?
            }
        };
        let (id, touched) = taken;
        self.shared.more(touched);
        Ok(id)
    }

    /// Has one done again that was interrupted or has failed, or that nobody has in the queue.
    ///
    /// # Errors
    /// `Usage` if it is finished or cancelled; those of the journal.
    pub fn resume(&self, id: i64) -> Result<()> {
        let held = self.shared.now().running.get(&id).cloned();
        if let Some(one) = held.filter(|one| !one.moving.has_ended()) {
            // The journal says how it has ended a moment before it has.
            if !self.shared.stager.journal().status(id)?.state.rests() {
                return Ok(());
            }
            // Of how that was the journal is asked.
            let _ = one.moving.wait(Some(STOPS_WITHIN));
        }
        self.shared.stager.note_end(id)?;
        if !self.shared.stager.journal().requeue(id)? {
            let state = self.standing(id)?.status.state;
            if matches!(state, State::Finished | State::Cancelled) {
                return Err(given_up::is_over(id, state));
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
            if let Some(Running { moving, .. }) = running {
                self.shared.now().cancelling.push(id);
                moving.stop();
                // How it ended is asked of the journal.
                if let Ok(None) = moving.wait(Some(STOPS_WITHIN)) {
                    // Nobody goes on with it once it has stopped.
                    self.shared.stager.journal().leave_queue(id)?;
                    self.shared.change(|now| now.cancelling.retain(|other| *other != id));
                    return Err(Error::new(
                        stead_core::Kind::Timeout,
                        format!("transfer {id} does not stop"),
                    )
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
        if status.state == State::Pending {
            let waits = self.waits(id)?;
            return Ok(Standing { status: Status { waits, ..status }, progress: None });
        }
        if !matches!(status.state, State::Running | State::Interrupted) {
            return Ok(Standing { status, progress: None });
        }
        let (own, soon, moving) = {
            let now = self.shared.now();
            let moving = now.running.get(&id).map(|one| one.moving.clone());
            let own = now.is_here(id);
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
            false => {
                let status = self.shared.stager.status(status.id)?;
                Ok(Standing { status, progress: None })
            }
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

    /// Transfers, the latest first; those that are over only if `all`.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn statuses(&self, all: bool, most: usize) -> Result<Vec<Standing>> {
        let list = self.shared.stager.journal().statuses(None, all, most)?;
        list.into_iter().map(|status| self.own(status)).collect()
    }

    /// Those that were interrupted, and that nobody goes on with by himself: by their turn.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn interrupted(&self) -> Result<Vec<i64>> {
        let mut ids = Vec::new();
        for (id, is_said_to_run) in self.shared.stager.journal().interrupted()? {
            if !is_said_to_run || self.shared.stager.is_free(id)? {
                ids.push(id);
            }
        }
        let now = self.shared.now();
        // Those that are about to be cancelled, or to go on.
        ids.retain(|id| {
            !now.is_here(*id) && !now.cancelling.contains(id) && !now.strays.contains(id)
        });
        Ok(ids)
    }

    /// Bytes that are still to come in each dataspace of the node that has a quota of all users together.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn coming(&self) -> Result<BTreeMap<String, u64>> {
        let running = self.shared.now().running.clone();
        // Of files that are not whole the journal knows nothing yet.
        let left = |id: i64| {
            let progress = running.get(&id).and_then(|one| one.moving.progress());
            progress.filter(|p| p.planned).map(|p| p.bytes.saturating_sub(p.bytes_done))
        };
        self.shared.stager.coming(&left)
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
        let running = self.under_way();
        running.iter().filter_map(|moving| moving.progress()).map(|p| p.rate()).sum()
    }

    fn under_way(&self) -> Vec<Arc<Moving>> {
        self.shared.now().running.values().map(|one| one.moving.clone()).collect()
    }

    /// Whom it does the transfers by.
    pub fn stager(&self) -> &Arc<Stager> {
        &self.shared.stager
    }

    /// Stops what is under way, such that it goes on when the journal is opened again, and begins nothing any more.
    pub fn end(&self) {
        self.shared.change(|now| now.stopped = true);
        let running = self.under_way();
        running.iter().for_each(|moving| moving.stop());
        // How they ended is in the journal.
        running.iter().for_each(|moving| drop(moving.wait(Some(STOPS_WITHIN))));
    }
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
