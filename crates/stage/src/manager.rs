//! Transfers of one node, or of one user there: taken, run, resumed, stopped for good.

use crate::changes::Changes;
use crate::clock::{self, Watch};
use crate::compare::{self, Comparer};
use crate::drive::{Drive, OBJECTS_AT_ONCE, Stopped, pair};
use crate::ends;
use crate::enough::{enough, free, shares};
use crate::given_up;
use crate::job::Item;
use crate::journal::{By, Journal, Known};
use crate::limiter;
use crate::list;
use crate::others::{Beside, Claim, Others};
use crate::place::Place;
use crate::plan::{Planned, Planner, Progressing};
use crate::remote::{self, Far, Nodes, Reach};
use crate::request::Request;
use crate::rules::{self, Jobs};
use crate::seats::Seats;
use crate::speeds::Speeds;
use crate::status::{Preview, State, Status, Watcher};
use crate::touch::{self, Bounds, Key, Touched};
use crate::turns::{Ear, Turn};
use std::collections::BTreeMap;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
use stead_core::layout::Spaces;
use stead_core::layout::spaces::Bound;
use stead_core::{Cancel, Error, Kind, Result, limits};
use stead_model::transfer::Amount;
use stead_store::space;

/// Threads that copy, unless there are to be more.
const MOST_THREADS: usize = 16;
/// How often who waits for its turn to count looks whether it is to go on.
const COUNTING: std::time::Duration = std::time::Duration::from_millis(5);

/// What transfers are done with.
#[derive(Debug, Clone, Default)]
pub struct Means {
    /// The dataspaces that locations name.
    pub spaces: Spaces,
    /// Threads that copy; 0 is as many as devices and processors here are likely to want.
    pub threads: usize,
    /// The jobs of this user, for dataspaces that are of jobs.
    pub jobs: Jobs,
    /// Those that all users of the node share, where a daemon says how much of it this process has. Without it this process has what
    /// is agreed for itself.
    pub common: Option<Spaces>,
}

/// What a transfer has had its turn for.
struct Seated {
    touched: Touched,
    /// None if a queue has seated it.
    seats: Option<Seats>,
}

/// How a plan is made.
#[derive(Clone, Copy)]
pub(crate) struct How<'a> {
    pub(crate) job: Option<&'a str>,
    /// Moves may be renames.
    pub(crate) renames: bool,
    /// It was planned before, and some of it may be done.
    pub(crate) again: bool,
    /// What cannot be read is an error: a folder, and a file that is compared.
    pub(crate) strict: bool,
    /// When it begins, in seconds since 1970.
    pub(crate) began: f64,
    /// What it has had its turn for; none for who only looks.
    pub(crate) held: Option<&'a Touched>,
    pub(crate) cancel: &'a Cancel,
}

impl<'a> How<'a> {
    /// For who only looks, now.
    pub(crate) fn looks(job: Option<&'a str>, cancel: &'a Cancel) -> How<'a> {
        let began = clock::unix();
        How { job, renames: true, again: false, strict: false, began, held: None, cancel }
    }
}

/// Takes transfers and does them, in this process.
pub struct Stager {
    journal: Journal,
    locks: PathBuf,
    means: RwLock<Arc<Means>>,
    /// Held between a look at what quotas leave and the note in the journal of what is taken of it.
    counting: Mutex<()>,
    nodes: Option<Nodes>,
    others: Option<Arc<dyn Others>>,
    pub(crate) speeds: Speeds,
}

/// Where the journal of this user lies on this host: `$STEAD_STATE`, or `$XDG_STATE_HOME/stead/HOST`, or
/// `~/.local/state/stead/HOST`. Homes are often shared by hosts; a journal is of one.
///
/// # Errors
/// `Usage` if there is no such folder to be named.
pub fn state_folder() -> Result<PathBuf> {
    let absolute =
        |name: &str| space::variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    if let Some(state) = space::variable("STEAD_STATE").map(PathBuf::from) {
        if state.is_absolute() {
            return Ok(state);
        }
        // It would be another journal in each folder.
        return Err(Error::usage(format!("STEAD_STATE is '{}'", state.display()))
            .with_hint("name the folder from the root on"));
    }
    let state =
        absolute("XDG_STATE_HOME").or_else(|| absolute("HOME").map(|h| h.join(".local/state")));
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let plain = |c: char| if c.is_ascii_alphanumeric() || "-._".contains(c) { c } else { '_' };
    let host: String = host.chars().map(plain).collect();
    match state {
        Some(state) => Ok(state.join("stead").join(host)),
        None => Err(Error::usage("there is no folder for the journal of transfers")
            .with_hint("name one by STEAD_STATE")),
    }
}

/// The oldest ones are forgotten once for so many that are taken.
const TIDY_EVERY: i64 = 256;

/// Transfers that failed and are forgotten at a time.
const FORGOTTEN: usize = 256;
/// What one of them has left, and what cannot be removed, is known for so long: then it is left to the rules of whoever has it.
const KEPT_FOR_S: f64 = 30.0 * 86_400.0;

/// A request that means the same wherever it is read: paths from the root on.
///
/// # Errors
/// `Usage` where the working directory is not text; system errors.
pub fn fixed(request: &Request) -> Result<Request> {
    Ok(Request {
        sources: request.sources.iter().map(ends::fixed).collect::<Result<_>>()?,
        target: request.target.as_ref().map(ends::fixed).transpose()?,
        ..request.clone()
    })
}

impl Stager {
    /// With the journal in this folder, which is made if it is not there.
    ///
    /// # Errors
    /// Those of [`Journal::open`], and of making the folder.
    pub fn open(state: &Path, means: Means) -> Result<Stager> {
        let locks = state.join("transfers");
        // Nobody else is to know what is staged.
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&locks).map_err(|e| {
            Error::io("make the folder", &locks, e).with_hint("name another one by STEAD_STATE")
        })?;
        let journal = Journal::open(&state.join("transfers.db"))?;
        let means = RwLock::new(Arc::new(means));
        let (counting, speeds) = (Mutex::default(), Speeds::default());
        Ok(Stager { journal, locks, means, counting, nodes: None, others: None, speeds })
    }

    /// With a journal of no more than about so many bytes: what is over is forgotten, the oldest first, and what does not fit is refused.
    #[must_use]
    pub fn bounded(self, bytes: u64) -> Stager {
        self.journal.set_most(bytes);
        self
    }

    /// With a way to other nodes, whose files may be sources then.
    #[must_use]
    pub fn reaching(self, reach: Arc<dyn Reach>) -> Stager {
        Stager { nodes: Some(Nodes::new(reach)), ..self }
    }

    /// Beside other processes that write to the dataspaces of the node: quotas of all users together count what is to come of them.
    #[must_use]
    pub fn beside(self, others: Arc<dyn Others>) -> Stager {
        Stager { others: Some(others), ..self }
    }

    /// What transfers are done with now.
    pub fn means(&self) -> Arc<Means> {
        self.means.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// From now on other dataspaces and jobs. What is under way goes on as it began, but for what transfers share.
    pub fn set_means(&self, means: Means) {
        let bounds = Bounds::of(&means);
        let before = {
            let mut now = self.means.write().unwrap_or_else(PoisonError::into_inner);
            std::mem::replace(&mut *now, Arc::new(means))
        };
        limiter::renew(&Bounds::of(&before), &bounds);
    }

    /// Takes dataspaces of whose names there are none here.
    pub fn learn(&self, others: Spaces) {
        let mut now = self.means.write().unwrap_or_else(PoisonError::into_inner);
        let mut means = Means::clone(&now);
        means.spaces.fill(others);
        *now = Arc::new(means);
    }

    /// So many copy, of files that are small so many.
    fn threads(&self) -> (usize, usize) {
        let cores = std::thread::available_parallelism().map_or(4, usize::from);
        match self.means().threads {
            // Devices want several reads at once, however few the processors are. Of a small file each thread has one, and waits
            // for its name, then for its bytes.
            0 => (cores.clamp(4, MOST_THREADS), MOST_THREADS),
            n => (n.min(limits::MAX_THREADS), n.min(limits::MAX_THREADS)),
        }
    }

    /// Takes a request. It is in the journal when this returns.
    ///
    /// # Errors
    /// Those of [`Request::check`], and of the journal.
    pub fn submit(&self, request: &Request) -> Result<i64> {
        let (request, by) = self.taken(request)?;
        let id = self.journal.submit(&request, &by)?;
        self.tidy_after(id)?;
        Ok(id)
    }

    /// Takes a request for the queue of this journal, behind these. Gives its number, and what it touches as far as its names tell. `None`,
    /// unless it is to be taken `anew`, if one of the same sources and target was stopped.
    pub(crate) fn enqueue(
        &self,
        request: &Request,
        after: &[i64],
        job: Option<&str>,
        anew: bool,
    ) -> Result<Option<(i64, Touched)>> {
        let (request, by) = self.taken(request)?;
        let enqueue = || self.journal.enqueue(&request, &by, (after, job), anew);
        // As long as what was stopped may be what is asked for, nothing is forgotten for it.
        let taken = if anew { self.with_room(enqueue)? } else { enqueue()? };
        let Some(id) = taken else { return Ok(None) };
        self.tidy_after(id)?;
        Ok(Some((id, by.touched)))
    }

    /// Checks a request that is about to be taken.
    fn taken(&self, request: &Request) -> Result<(Request, By)> {
        request.check()?;
        remote::check(request, self.nodes.is_some())?;
        let request = fixed(request)?;
        let means = self.means();
        let touched = Touched::by_names(&means.spaces, &request);
        Bounds::of(&means).check(&touched)?;
        let user = rustix::process::getuid().as_raw();
        Ok((request, By { tag: random()?, user, now: clock::unix(), touched }))
    }

    fn tidy_after(&self, id: i64) -> Result<()> {
        if id % TIDY_EVERY == 0 { self.journal.tidy() } else { Ok(()) }
    }

    pub(crate) fn locks(&self) -> &Path {
        &self.locks
    }

    pub(crate) fn nodes(&self) -> Option<&Nodes> {
        self.nodes.as_ref()
    }

    pub(crate) fn journal(&self) -> &Journal {
        &self.journal
    }

    /// What a request would do, without doing it or taking it.
    ///
    /// # Errors
    /// Those that it would fail with before it starts.
    pub fn preview(&self, request: &Request, cancel: &Cancel) -> Result<Preview> {
        self.preview_of(request, None, cancel)
    }

    /// As [`Stager::preview`], for a process of a job.
    ///
    /// # Errors
    /// As there.
    pub fn preview_of(
        &self,
        request: &Request,
        job: Option<&str>,
        cancel: &Cancel,
    ) -> Result<Preview> {
        request.check()?;
        remote::check(request, self.nodes.is_some())?;
        let mut changes = Changes::default();
        let mut note = |item: Item| {
            changes.note(&item);
            Ok(())
        };
        let planned = self.plan(request, &How::looks(job, cancel), None, &mut note)?;
        let sums = &planned.sums;
        let pair = pair(Some(&planned.source), planned.target.as_ref());
        let seen = self.speeds.of(pair.as_deref(), &self.journal)?;
        let takes = seen.takes(Amount::new(sums.totals().files, sums.bytes));
        let preview = Preview {
            files: sums.files,
            bytes: sums.bytes,
            room: sums.room,
            free: planned.target.as_ref().map(free).transpose()?.flatten(),
            others: sums.others,
            removed: sums.removed,
            skipped: sums.skipped,
            renamed: sums.renamed,
            takes: takes.at_least(self.limited(request, &planned)?),
            changes: changes.told(&planned),
        };
        enough(&planned)?;
        self.within_quota(&planned, None, &self.means(), cancel)?;
        Ok(preview)
    }

    /// Seconds that limits have a transfer take at least: its own, those of dataspaces that it touches, those that another node has told.
    fn limited(&self, request: &Request, planned: &Planned) -> Result<f64> {
        let means = self.means();
        let touched = Touched::by_names(&means.spaces, &fixed(request)?)
            .with(planned.from.iter().chain(&planned.to));
        let bounds = Bounds::of(&means);
        let shared = bounds.shared(&touched).filter_map(|(_, bound)| bound.limit);
        let far = planned.source.far().and_then(Far::limit);
        let from = planned.source.bucket();
        let to = planned.target.as_ref().and_then(Place::bucket);
        // What a file system shares, or a store copies, goes at once.
        let within =
            from.zip(to).is_some_and(|(from, to)| from.bucket().is(to.bucket())) || shares(planned);
        let moved = if within { 0 } else { planned.sums.room.min(planned.sums.bytes) };
        let slowest = shared.chain(request.options.limit).chain(far).min();
        Ok(slowest.map_or(0.0, |limit| moved as f64 / limit.max(1) as f64))
    }

    /// Makes a plan, of which each name goes to `sink`.
    ///
    /// # Errors
    /// Those of [`Planner::plan`].
    pub(crate) fn plan(
        &self,
        request: &Request,
        how: &How<'_>,
        watcher: Option<&dyn Watcher>,
        sink: &mut dyn FnMut(Item) -> Result<()>,
    ) -> Result<Planned> {
        let (means, state) = (self.means(), Progressing::default());
        let &How { job, renames, again, strict, began, cancel, .. } = how;
        let compare = match request.options.checksum {
            true => Some(Comparer::new(request, &means, self.threads(), how, watcher)?),
            false => None,
        };
        let (spaces, jobs) = (&means.spaces, &means.jobs);
        let nodes = self.nodes.as_ref();
        let touched = compare::touched(request, &means, how)?;
        let gentle = request.options.gentle || touch::gentle(spaces, &touched);
        Planner {
            spaces,
            nodes,
            request,
            job,
            jobs,
            cancel,
            gentle,
            renames,
            again,
            strict,
            began,
            compare,
            sink,
            state,
        }
        .plan()
    }

    /// Does a transfer, or what is left of it, until it ends. Gives what came of it: names that could not be done are in there. Where
    /// a dataspace has a number of transfers at a time, it waits until it may be one of them.
    ///
    /// # Errors
    /// What it failed with as a whole. `Cancelled` if it was stopped, after which it can be resumed, as after `NoSpace`; and if somebody
    /// has given it up meanwhile ([`Stager::cancel`]), after which it cannot.
    pub fn run(&self, id: i64, cancel: &Cancel, watcher: Option<&dyn Watcher>) -> Result<Status> {
        self.run_by(id, cancel, watcher, None)
    }

    /// As [`Stager::run`], for a queue in which it has had its turn for these dataspaces. If it touches others, it is put back.
    pub(crate) fn run_held(
        &self,
        id: i64,
        cancel: &Cancel,
        watcher: Option<&dyn Watcher>,
        held: &Touched,
    ) -> Result<Status> {
        self.run_by(id, cancel, watcher, Some(held))
    }

    fn run_by(
        &self,
        id: i64,
        cancel: &Cancel,
        watcher: Option<&dyn Watcher>,
        held: Option<&Touched>,
    ) -> Result<Status> {
        let turn = self.turn(id)?;
        self.run_in(&turn, id, cancel, watcher, held).inspect_err(|e| {
            // Nobody is to take for under way, and begin at once again, what has not come so far as to say how it ended. Where that cannot
            // be written, either, this error is still the one to be told.
            let _ = self.journal.end_unsaid(id, e, clock::unix());
        })
    }

    fn run_in(
        &self,
        turn: &Turn,
        id: i64,
        cancel: &Cancel,
        watcher: Option<&dyn Watcher>,
        held: Option<&Touched>,
    ) -> Result<Status> {
        // Whoever had it before was asked.
        turn.forget_asked()?;
        let known = self.journal.known(id)?;
        match known.state {
            // Who has begun it comes to it now.
            State::Cancelled => return Err(given_up::was_cancelled(id)),
            State::Finished => return Err(given_up::is_over(id, known.state)),
            _ => {}
        }
        let ear = Ear::listen(turn, cancel)?;
        let cancel = ear.cancel();
        let stopped = |e: Error| {
            e.with_hint(format!(
                "go on with it: stead stage --resume {id}; or give it up: stead stage --cancel {id}"
            ))
        };
        let mut seated = match held {
            Some(touched) => Seated { touched: touched.clone(), seats: None },
            None => match self.seat(&known, self.journal.touched(id)?, cancel, watcher) {
                Err(e) if e.kind() == Kind::Cancelled && ear.is_asked() => {
                    return Err(self.given_up(id, &known, clock::unix()));
                }
                seated => seated.map_err(stopped)?,
            },
        };
        if id % TIDY_EVERY == 0 {
            // Not while one is taken: a store may be long in answering.
            self.forget_failed(false)?;
        }
        self.journal.set_state(id, State::Running, None, clock::unix())?;
        let watch = Watch::start();
        let ended = self.drive(id, known, cancel, watcher, &mut seated);
        let now = clock::unix();
        self.journal.was_active(id, watch.seconds())?;
        match ended {
            Ok(true) => {
                let failed = self.journal.status(id)?.failed;
                let state = if failed == 0 { State::Finished } else { State::Failed };
                self.journal.set_state(id, state, None, now)?;
                self.journal.status(id)
            }
            Ok(false) => {
                self.journal.put_off(id)?;
                self.journal.status(id)
            }
            Err(e) if e.kind() == Kind::Cancelled && ear.is_asked() => {
                // It may have been planned since.
                Err(self.given_up(id, &self.journal.known(id)?, now))
            }
            Err(e) if e.kind() == Kind::Cancelled => {
                self.journal.set_state(id, State::Interrupted, None, now)?;
                Err(stopped(e))
            }
            Err(e) => {
                // A device that is full stops what can go on once it is not.
                // So it is with a node that is gone.
                let full = || {
                    Ok::<_, Error>(
                        e.kind() == Kind::NoSpace && self.journal.known(id)?.ends.is_some(),
                    )
                };
                let goes_on = e.kind() == Kind::Peer || full()?;
                let state = if goes_on { State::Interrupted } else { State::Failed };
                self.journal.set_state(id, state, Some(&e), now)?;
                Err(e)
            }
        }
    }

    /// Waits for seats in all that a transfer touches.
    fn seat(
        &self,
        known: &Known,
        touched: Touched,
        cancel: &Cancel,
        watcher: Option<&dyn Watcher>,
    ) -> Result<Seated> {
        let wanted = Bounds::of(&self.means()).seats(&touched);
        let why = why(&wanted);
        let waits = || watcher.into_iter().for_each(|watcher| watcher.waits(&why));
        let seats = Seats::take(wanted, known.request.options.priority, cancel, &waits)?;
        Ok(Seated { touched, seats: Some(seats) })
    }

    /// Drives a transfer. False if it is to wait in its queue for what it was found to touch.
    fn drive(
        &self,
        id: i64,
        known: Known,
        cancel: &Cancel,
        watcher: Option<&dyn Watcher>,
        seated: &mut Seated,
    ) -> Result<bool> {
        let (job, held) = (self.journal.job(id)?, seated.touched.clone());
        // However often it is planned: ages are those of when it was begun.
        let began = self.journal.began(id)?.unwrap_or_else(clock::unix);
        let how =
            How { again: true, began, held: Some(&held), ..How::looks(job.as_deref(), cancel) };
        let mut resumed = known.ends.is_some();
        if resumed {
            self.journal.try_failed_again(id)?;
        } else {
            // It may have ended while it was planned anew, as no rename, with names that were done before.
            let again = known.done.files > 0;
            self.planned(id, &known.request, &How { again, ..how }, watcher)?;
        }
        let mut renames = true;
        loop {
            match self.driven(id, resumed, cancel, watcher, &seated.touched) {
                Ok(()) => return Ok(true),
                Err(Stopped::Error(e)) => return Err(e),
                Err(Stopped::CannotRename) if renames => {
                    self.planned(id, &known.request, &How { renames: false, ..how }, watcher)?;
                    (renames, resumed) = (false, false);
                }
                Err(Stopped::CannotRename) => {
                    return Err(Error::internal("a rename that was not planned"));
                }
                Err(Stopped::Elsewhere(touched)) => {
                    self.journal.set_touched(id, &touched)?;
                    // Whoever has one seat and waits for another may wait for ever.
                    if seated.seats.take().is_none() {
                        return Ok(false);
                    }
                    *seated = self.seat(&known, touched, cancel, watcher)?;
                }
            }
        }
    }

    /// Plans a transfer into the journal, if the target has room for it.
    fn planned(
        &self,
        id: i64,
        request: &Request,
        how: &How<'_>,
        watcher: Option<&dyn Watcher>,
    ) -> Result<()> {
        let planned = self.plan_into(id, request, how, watcher);
        if planned.is_err() {
            // Nobody goes on with half a list. What cannot be forgotten now is when it is planned anew.
            let _ = self.journal.forget_names(id);
        }
        planned
    }

    fn plan_into(
        &self,
        id: i64,
        request: &Request,
        how: &How<'_>,
        watcher: Option<&dyn Watcher>,
    ) -> Result<()> {
        self.journal.plan_begin(id)?;
        let add = |items: &[Item]| self.with_room(|| self.journal.plan_add(id, items));
        let planned = list::write(&add, |sink| self.plan(request, how, watcher, sink))?;
        if rules::counts_renames(&planned) {
            // As a copy it is known how much it is.
            return self.planned(id, request, &How { renames: false, ..*how }, watcher);
        }
        enough(&planned)?;
        let _counting = match planned.to.iter().any(rules::Rule::has_quota) {
            true => Some(self.counting(how.cancel)?),
            false => None,
        };
        let means = self.means();
        let claims = self.within_quota(&planned, Some(id), &means, how.cancel)?;
        let touched = self.journal.touched(id)?.with(planned.from.iter().chain(&planned.to));
        self.journal.set_touched(id, &touched)?;
        self.journal.plan_end(id, &planned.ends, &planned.sums.totals())?;
        claims.into_iter().for_each(Claim::keep);
        Ok(())
    }

    /// Has other plans into dataspaces with quotas wait: one of them may have to look at all that lies there.
    ///
    /// # Errors
    /// `Cancelled`.
    fn counting(&self, cancel: &Cancel) -> Result<MutexGuard<'_, ()>> {
        loop {
            match self.counting.try_lock() {
                Ok(counting) => return Ok(counting),
                Err(TryLockError::Poisoned(e)) => return Ok(e.into_inner()),
                Err(TryLockError::WouldBlock) => cancel.check()?,
            }
            std::thread::sleep(COUNTING);
        }
    }

    /// Refuses a plan for which a quota leaves no room. What it is to have there is claimed until it is under way; without a number it is
    /// only looked at.
    fn within_quota<'a>(
        &'a self,
        planned: &Planned,
        id: Option<i64>,
        means: &'a Means,
        cancel: &Cancel,
    ) -> Result<Vec<Claim<'a>>> {
        let both = self.others.as_ref().zip(means.common.as_ref());
        let beside = both.map(|(others, common)| Beside { others, common });
        rules::within_quota(planned, &self.journal, id, beside.as_ref(), cancel)
    }

    /// Bytes that are still to come in each dataspace that is the node's and has a quota of all users together, as the journal has it.
    /// `left` gives those of a transfer that is under way, where somebody knows more.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn coming(
        &self,
        left: &dyn Fn(i64) -> Option<u64>,
    ) -> Result<BTreeMap<String, u64>> {
        let means = self.means();
        let Some(common) = &means.common else { return Ok(BTreeMap::new()) };
        let counted = means.spaces.bound().filter(|bound| {
            bound.terms.quota.is_some() && common.place(bound.name).ok() == Some(bound.place)
        });
        let counted: Vec<_> = counted.collect();
        if counted.is_empty() {
            return Ok(BTreeMap::new());
        }
        let under_way = self.journal.under_way()?;
        let of = |bound: &Bound<'_>| {
            let there = |base: &ends::Base| rules::is_of(base, bound.name, bound.place);
            let those = under_way.iter().filter(|t| t.ends.target.as_ref().is_some_and(there));
            let all = those.map(|t| left(t.id).map_or(t.left, |left| left.min(t.left)));
            (bound.name.to_owned(), all.fold(0, u64::saturating_add))
        };
        Ok(counted.iter().map(of).collect())
    }

    fn driven(
        &self,
        id: i64,
        resumed: bool,
        cancel: &Cancel,
        watcher: Option<&dyn Watcher>,
        held: &Touched,
    ) -> std::result::Result<(), Stopped> {
        let (known, means) = (self.journal.known(id)?, self.means());
        let bounds = Bounds::of(&means);
        let (threads, threads_of_small) = self.threads();
        let drive = Drive {
            journal: &self.journal,
            speeds: &self.speeds,
            id,
            known: &known,
            spaces: &means.spaces,
            bounds: &bounds,
            held,
            nodes: self.nodes.as_ref(),
            threads,
            threads_of_small,
            at_once: match means.threads {
                0 => OBJECTS_AT_ONCE,
                n => n.min(limits::MAX_THREADS),
            },
            cancel,
            watcher,
            resumed,
        };
        drive.run()
    }

    /// Does something for which the journal is to have room, which those that failed may have to make.
    pub(crate) fn with_room<T>(&self, mut work: impl FnMut() -> Result<T>) -> Result<T> {
        match work() {
            Err(e) if e.kind() == Kind::Limit => match self.forget_failed(true) {
                Ok(n) if n > 0 => work(),
                _ => Err(e),
            },
            done => done,
        }
    }

    /// Forgets some that failed, the oldest first, of all or of those that are more than are remembered; before, what they have left goes. What
    /// cannot be removed now stays known, but not for ever. Gives how many were forgotten.
    fn forget_failed(&self, all: bool) -> Result<usize> {
        let (now, mut forgotten) = (clock::unix(), 0);
        let mut answers = true;
        for (id, ended) in self.journal.failed_with_names(all, FORGOTTEN)? {
            // Somebody may go on with it just now.
            let Some(_turn) = self.try_turn(id)? else { continue };
            let known = self.journal.known(id)?;
            if known.state != State::Failed {
                continue;
            }
            if self.journal.has_marks(id)? {
                let swept = match answers {
                    true => self.sweep(id, &known),
                    false => Err(Error::new(Kind::Timeout, "a store does not answer")),
                };
                if let Err(e) = swept {
                    answers &= e.kind() != Kind::Timeout;
                    if now - ended < KEPT_FOR_S {
                        continue;
                    }
                }
            }
            self.journal.forget_failed(id)?;
            forgotten += 1;
        }
        Ok(forgotten)
    }

    /// How far a transfer is.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; those of the journal.
    pub fn status(&self, id: i64) -> Result<Status> {
        self.journal.status(id).and_then(|status| self.true_state(status))
    }

    /// Transfers, the latest first: those that are over only if `all`.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn statuses(&self, all: bool, most: usize) -> Result<Vec<Status>> {
        let list = self.journal.statuses(None, all, most)?;
        list.into_iter().map(|status| self.true_state(status)).collect()
    }

    /// Transfers that have not come to their end and that nobody does, by their turn.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn waiting(&self) -> Result<Vec<i64>> {
        let mut found = Vec::new();
        for state in [State::Running, State::Interrupted, State::Pending] {
            for id in self.journal.in_state(state, limits::MAX_SOURCES)? {
                if self.try_turn(id)?.is_some() {
                    found.push(id);
                }
            }
        }
        Ok(found)
    }

    /// Transfers of jobs that are not over, with their jobs.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn of_jobs(&self) -> Result<Vec<(i64, String)>> {
        self.journal.of_jobs()
    }

    /// Bytes a second of large files between pairs of tiers, as `ext4-254:0>tmpfs-0:30`, that transfers were seen to have.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn rates(&self) -> Result<Vec<(String, f64)>> {
        Ok(self.journal.all_seen()?.into_iter().map(|(pair, seen)| (pair, seen.rate())).collect())
    }
}

/// Why a transfer waits that wants seats in these.
pub(crate) fn why(wanted: &[(Key, usize)]) -> String {
    let of = |((name, _), most): &(Key, usize)| match most {
        1 => format!("dataspace '{name}' has one transfer at a time"),
        n => format!("dataspace '{name}' has {n} transfers at a time"),
    };
    wanted.iter().map(of).collect::<Vec<_>>().join(", ")
}

/// A number that no other transfer has.
fn random() -> Result<u64> {
    let mut bytes = [0u8; 8];
    let flags = rustix::rand::GetRandomFlags::empty();
    let n = rustix::rand::getrandom(&mut bytes[..], flags)
        .map_err(|e| Error::io("read", "/dev/urandom", e.into()))?;
    if n < bytes.len() {
        return Err(Error::internal("too few random bytes"));
    }
    Ok(u64::from_ne_bytes(bytes))
}
