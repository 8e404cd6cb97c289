//! Storage ranks: what each of them does with a job.

use super::head::Head;
use super::wire::{ASKS, Ask, ORDERS, Order, frame, open};
use super::{Job, LOOK, Role, Roles, Serving, there};
use crate::engine::{refuse, run_for};
use crate::outputs::Carried;
use crate::pass::{Observer, Snapshot, caught};
use crate::report::Report;
use crate::request::Request;
use crate::spread::{Here, open_as};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use stead_core::{Cancel, DType, Error, Kind, Result, View, limits};
use stead_fabric::{Fabric, Subset};
use stead_format::{Compression, Dataset, FormatType, Held, Holding, OpenOptions, Share};
use stead_store::Viewed;

/// What a storage rank has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Served {
    /// What was run here.
    pub runs: u64,
    /// Of these, what was run by this rank alone.
    pub alone: u64,
    /// Of these, what has failed.
    pub failed: u64,
}

/// Does what compute ranks ask for, until all of them have said goodbye or are gone. Each storage rank calls it, and no compute
/// rank does: these make a [`Client`](super::Client). Nothing else uses `fabric` meanwhile.
///
/// # Errors
/// `Usage` on a compute rank, and if there is none; `Cancelled` if this or another storage rank was stopped; `Peer` if the first
/// storage rank is gone, on the others. What an ask fails with is told to who has asked.
pub fn serve(fabric: Arc<dyn Fabric>, roles: &Roles, here: &Here, how: &Serving) -> Result<Served> {
    serve_by(fabric, roles, here, how, limits::SMALL_JOB_BYTES)
}

/// As [`serve`]; the first storage rank alone runs over so many bytes.
pub(super) fn serve_by(
    fabric: Arc<dyn Fabric>,
    roles: &Roles,
    here: &Here,
    how: &Serving,
    few: u64,
) -> Result<Served> {
    let me = fabric.rank();
    if roles.size() != fabric.size() {
        return Err(Error::usage("roles of other ranks than those of this fabric"));
    }
    if roles.of(me) == Role::Compute {
        return Err(Error::usage(format!("rank {me} is a compute rank, and has nothing to serve"))
            .with_hint("storage ranks serve, compute ranks ask"));
    }
    if roles.compute().is_empty() {
        return Err(Error::usage("all ranks are storage ranks: nobody would ask").with_hint(
            "start ranks on other nodes, too, or run together on all of them: stead run, run_on",
        ));
    }
    let crew = Arc::new(Subset::new(fabric.clone(), roles.storage().to_vec())?);
    let rank = Storage { fabric, crew, roles, here, how, torn: AtomicBool::new(false) };
    if rank.crew.rank() == 0 { Head::new(&rank, few).serve() } else { rank.follow() }
}

/// A storage rank.
pub struct Storage<'s> {
    pub fabric: Arc<dyn Fabric>,
    /// All storage ranks.
    pub crew: Arc<Subset>,
    pub roles: &'s Roles,
    pub here: &'s Here,
    pub how: &'s Serving,
    /// A run has ended by a panic between two steps of all ranks: they are no longer at the same one.
    torn: AtomicBool,
}

/// Watches a run, where nobody wants to know how far it is.
struct Looks<'s>(&'s Storage<'s>);

impl Observer for Looks<'_> {
    fn progress(&self, _: &Snapshot) {
        self.0.look();
    }

    fn looks(&self) -> bool {
        false
    }

    fn waits(&self) {
        self.0.look();
    }
}

impl Storage<'_> {
    /// Looks for signals.
    pub fn look(&self) {
        if let Some(look) = &self.how.look {
            look();
        }
    }

    /// What others than the head do: what the head says.
    fn follow(&self) -> Result<Served> {
        let head = self.roles.storage().first().copied().unwrap_or_default();
        let mut served = Served::default();
        let mut stopping = None;
        let mut last = Ok(());
        loop {
            self.look();
            if stopping.is_none()
                && let Err(e) = self.how.cancel.check()
            {
                stopping = Some(self.stop(head, e));
            }
            let within = if last.is_ok() { LOOK } else { Duration::ZERO };
            // Of the head alone; but it may be long until it says something.
            let Some((from, order)) = self.fabric.recv_any(ORDERS, within)? else {
                // What it has said before is looked for once more.
                last.map_err(|e| self.gone(e))?;
                last = there(&*self.fabric, head);
                continue;
            };
            if from != head {
                continue;
            }
            match open::<Order>(&order) {
                Ok((Order::Run, job)) => {
                    let job = Job::decode(job);
                    served.runs += 1;
                    let ran = self.together(job, &self.how.cancel, &Looks(self));
                    served.failed += u64::from(ran.is_err());
                    if let Some(e) = ran.err().filter(|_| self.is_torn()) {
                        return Err(self.stop(head, e));
                    }
                }
                Ok((Order::End, _)) => return stopping.map_or(Ok(served), Err),
                // The head would wait for this rank.
                Err(e) => return Err(self.stop(head, e)),
            }
        }
    }

    /// Tells the head that this rank cannot go on.
    fn stop(&self, head: usize, why: Error) -> Error {
        if let Ok(bye) = frame(&Ask::Bye, &[]) {
            let _ = self.fabric.send(head, ASKS, bye);
        }
        why
    }

    fn gone(&self, e: Error) -> Error {
        self.roles.named(e)
    }

    /// All storage ranks together.
    pub fn together(
        &self,
        job: Result<Job>,
        cancel: &Cancel,
        observer: &dyn Observer,
    ) -> Result<(Report, Carried)> {
        let crew: Arc<dyn Fabric> = self.crew.clone();
        let mut ended = false;
        let ran = caught(|| {
            let ran = self.run(&crew, job, cancel, observer);
            ended = true;
            ran
        });
        if !ended {
            self.torn.store(true, Ordering::Relaxed);
        }
        ran.map_err(|e| self.roles.named(self.crew.outside(e)))
    }

    /// True if nothing can be run together any more.
    pub fn is_torn(&self) -> bool {
        self.torn.load(Ordering::Relaxed)
    }

    fn run(
        &self,
        crew: &Arc<dyn Fabric>,
        job: Result<Job>,
        cancel: &Cancel,
        observer: &dyn Observer,
    ) -> Result<(Report, Carried)> {
        // All have the same one: it is malformed for all, if it is.
        let job = job?;
        let options = if job.view.is_some() { plain(&job.open) } else { job.open.clone() };
        let dataset = open_as(self.here, crew, &job.inputs, &options, cancel)?;
        let mine =
            self.request(&job, cancel).and_then(|request| Ok((seen(dataset, &job)?, request)));
        match mine {
            Ok((dataset, request)) => run_for(&**crew, &dataset, &request, Some(observer)),
            Err(e) => Err(refuse(&**crew, e)),
        }
    }

    /// The request that a job is here. An operation that is not known is this rank's to tell of.
    pub fn request(&self, job: &Job, cancel: &Cancel) -> Result<Request> {
        let made = self.how.request(job, cancel);
        made.map_err(|e| if e.place().rank.is_some() { e } else { self.here(e) })
    }

    /// An error of this rank, as the crew knows it.
    fn here(&self, e: Error) -> Error {
        e.at_rank(self.crew.rank()).at_host(&self.here.host)
    }

    /// An error of something that this rank has done alone. What is wrong with the data or the request is so on any rank.
    pub fn alone(&self, e: Error) -> Error {
        let e = match e.kind() {
            Kind::NotFound
            | Kind::Permission
            | Kind::Changed
            | Kind::NoSpace
            | Kind::Io
            | Kind::Internal
                if e.place().rank.is_none() =>
            {
                self.here(e)
            }
            _ => e,
        };
        self.roles.named(self.crew.outside(e))
    }
}

/// A file as nothing but bytes, from where these options find it.
pub fn plain(options: &OpenOptions) -> OpenOptions {
    OpenOptions {
        dataspaces: options.dataspaces.clone(),
        format: Some(FormatType::Raw),
        dtype: Some(DType::U8),
        compression: Some(Compression::None),
        ..OpenOptions::default()
    }
}

/// What a job sees of a dataset.
///
/// # Errors
/// `Usage` for a view of several files, or of more than there is; `Changed` if the file is not as long as it was to who asks;
/// those of the format.
pub fn seen(dataset: Dataset, job: &Job) -> Result<Dataset> {
    let Some(view) = &job.view else { return Ok(dataset) };
    let [source] = dataset.sources() else {
        return Err(Error::usage(format!("a view of {} files", dataset.sources().len()))
            .with_hint("name one file: a view says what is seen of one"));
    };
    let here = source.len();
    if let Some(bytes) = job.file_bytes.filter(|bytes| *bytes != here) {
        let message = format!("the file has {here} bytes here, and {bytes} where it was opened");
        return Err(Error::new(Kind::Changed, message).at_path(source.path()).with_hint(
            "ranks share the files of a file system that all of them see; if somebody writes to it, wait",
        ));
    }
    let viewed = Viewed::new(source.clone(), view.clone())?;
    let viewed = Dataset::from_sources(vec![Arc::new(viewed)], &job.open)?;
    match dataset.holding() {
        Some(holding) => Ok(viewed.held_so(near(holding, view)?)),
        None => Ok(viewed),
    }
}

/// What a rank has of a view, of what it has of the file.
fn near(holding: &Holding, view: &View) -> Result<Holding> {
    let share = match &holding.share {
        Share::Held(held) => {
            let part = |h: &Held| {
                let bytes = view.before(h.bytes.start)..view.before(h.bytes.end);
                Held { source: h.source, bytes }
            };
            Share::held(held.iter().map(part))?
        }
        all @ Share::Even { .. } => all.clone(),
    };
    Ok(Holding { share, ..holding.clone() })
}
