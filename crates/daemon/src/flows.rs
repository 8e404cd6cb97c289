//! Flows that the worker of a user runs: operators between streams, for programs that do not wait for them.
//!
//! They are in the memory of the worker alone. A flow is work on streams, whose steps go on whether it is there or not: begun again after the
//! end of a daemon it would leave out what went by, and nobody would know.

mod number;
mod told;

pub use told::{FlowAsk, FlowOptions, FlowStanding, FlowState};

use crate::clock;
use crate::protocol::Failed;
use number::Last;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Cancel, Error, Kind, Location, Result};
use stead_flow::{Flow, Functions, Graph, Operator, Options, Report};
use stead_stage::{Jobs, Means, fixed_location, keep_to_jobs};
use stead_store::space;
use stead_stream::Nodes;

/// Flows of a user that run at a time.
const MOST_RUNNING: usize = 16;
/// Those that are over and told of still, for no longer than this.
const MOST_OVER: usize = 64;
const TOLD_FOR: Duration = Duration::from_secs(3600);
/// One that is given up is to end within this,
const ENDS_WITHIN: Duration = Duration::from_secs(30);
/// all of a job that is over within this, before what it has left is removed,
const GOES_WITHIN: Duration = Duration::from_secs(10);
/// and all of a worker that ends within this, beside its transfers, for all of which the broker waits longer.
const LEAVES_WITHIN: Duration = Duration::from_secs(5);
/// Bytes of a name of a folder, and streams of each flow that are told of.
const MOST_NAME: usize = 4096;
const MOST_TOLD: usize = 64;

/// The graph with paths from the root on, whatever the folder is in which it is asked for.
///
/// # Errors
/// Those of names.
pub(crate) fn fixed(graph: &Graph) -> Result<Graph> {
    let mut graph = graph.clone();
    for named in graph.locations() {
        let mut at = Location::parse(named, &space::variable)?;
        if at.space.is_none() && at.node.is_none() {
            at.path = upwards(at.path)?;
        }
        *named = fixed_location(&at)?.written();
    }
    Ok(graph)
}

/// A path without `..` at its beginning, which leads up from the folder that the process is in: the system knows that one without links.
fn upwards(path: String) -> Result<String> {
    let mut rest = Path::new(&path).components().peekable();
    if rest.peek() != Some(&Component::ParentDir) {
        return Ok(path);
    }
    let here = |e| Error::io("find", "the current folder", e);
    let mut folder = std::env::current_dir().map_err(here)?;
    while rest.next_if_eq(&Component::ParentDir).is_some() {
        folder.pop();
    }
    let whole = folder.join(rest.collect::<PathBuf>()).into_os_string().into_string();
    whole.map_err(|_| Error::usage("the current folder has a name that is no text"))
}

/// Who begins a flow, and with what.
pub(crate) struct Begun<'b> {
    pub(crate) graph: Graph,
    pub(crate) options: FlowOptions,
    /// The job of the program that asks.
    pub(crate) job: Option<&'b str>,
    /// What is agreed of the user's dataspaces.
    pub(crate) means: &'b Means,
    /// Other nodes of the pool.
    pub(crate) nodes: Arc<dyn Nodes>,
}

/// The flows of a user.
pub(crate) struct Flows {
    all: Mutex<All>,
    changed: Condvar,
}

struct All {
    last: Last,
    flows: BTreeMap<i64, One>,
    /// The worker ends: none is begun any more.
    is_closed: bool,
}

/// A flow.
struct One {
    name: String,
    reads: Vec<String>,
    writes: Vec<String>,
    job: Option<String>,
    begun: f64,
    since: Instant,
    steps: Arc<AtomicU64>,
    cancel: Cancel,
    /// When it ended, and with what.
    over: Option<(Instant, Result<Report>)>,
}

impl One {
    /// True if the job that it is of is over.
    fn is_left_of(&self, jobs: &Jobs) -> bool {
        self.job.as_ref().is_some_and(|job| !jobs.contains_key(job))
    }

    fn standing(&self, flow: i64) -> FlowStanding {
        let (until, outcome) = match &self.over {
            None => (clock::now(), None),
            Some((at, outcome)) => (*at, Some(outcome)),
        };
        let state = match outcome {
            None => FlowState::Running,
            Some(Ok(_)) => FlowState::Finished,
            Some(Err(e)) if e.kind() == Kind::Cancelled && self.cancel.is_cancelled() => {
                FlowState::Cancelled
            }
            Some(Err(_)) => FlowState::Failed,
        };
        let failed = outcome.and_then(|outcome| outcome.as_ref().err());
        FlowStanding {
            flow,
            name: self.name.clone(),
            reads: self.reads.clone(),
            writes: self.writes.clone(),
            state,
            job: self.job.clone(),
            begun: self.begun,
            seconds: until.saturating_duration_since(self.since).as_secs_f64(),
            steps: self.steps.load(Ordering::Relaxed),
            report: outcome.and_then(|outcome| outcome.as_ref().ok()).cloned(),
            error: failed.filter(|_| state == FlowState::Failed).map(Failed::from),
        }
    }
}

impl All {
    fn running(&self) -> usize {
        self.flows.values().filter(|one| one.over.is_none()).count()
    }

    /// Forgets what is not told of any more.
    fn tidy(&mut self) {
        let is_told = |one: &One| one.over.as_ref().is_none_or(|(at, _)| at.elapsed() < TOLD_FOR);
        self.flows.retain(|_, one| is_told(one));
        let over = self.flows.iter().filter(|(_, one)| one.over.is_some());
        let mut over: Vec<(Instant, i64)> =
            over.filter_map(|(n, one)| one.over.as_ref().map(|(at, _)| (*at, *n))).collect();
        over.sort_unstable();
        for (_, number) in over.iter().take(over.len().saturating_sub(MOST_OVER)) {
            self.flows.remove(number);
        }
    }

    fn one(&self, flow: i64) -> Result<&One> {
        self.flows.get(&flow).ok_or_else(|| {
            Error::usage(format!("there is no flow {flow}")).with_hint(
                "stead flow list --all shows those of this user; what is over is told of for an hour, and ends with its daemon",
            )
        })
    }
}

impl Flows {
    /// None, of the user whose state is in this folder.
    pub(crate) fn new(state: &Path) -> Flows {
        let all = All { last: Last::open(state), flows: BTreeMap::new(), is_closed: false };
        Flows { all: Mutex::new(all), changed: Condvar::new() }
    }

    fn all(&self) -> MutexGuard<'_, All> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins a flow, in a thread of its own.
    ///
    /// # Errors
    /// `Usage` for what makes no sense or needs functions; `Permission` for dataspaces of jobs; `Limit` if too many run.
    pub(crate) fn begin(self: &Arc<Flows>, begun: Begun<'_>) -> Result<FlowStanding> {
        let Begun { mut graph, options, job, means, nodes } = begun;
        for named in graph.locations() {
            let at = Location::parse(named, &space::variable)?;
            crate::answers::from_root(&at)?;
            let leads_up = Path::new(&at.path).components().any(|one| one == Component::ParentDir);
            if leads_up || at.path.len() > MOST_NAME {
                let why = if leads_up { "has '..' in it" } else { "is too long" };
                return Err(
                    Error::usage(format!("'{at}' {why}")).with_hint("name the folder itself")
                );
            }
            keep_to_jobs(means, job, &at)?;
        }
        if let Some(function) = graph.node.values().find_map(function) {
            let message = format!(
                "the flow calls the function '{function}' of a program or a library, and the daemon runs no code of others"
            );
            return Err(Error::usage(message).with_hint(
                "run it in a process of its own: stead flow run, without --background",
            ));
        }
        let flow = Flow::new(&graph, Functions::new())?;
        let (memory, timeout) = options.wanted()?;
        let (cancel, steps) = (Cancel::new(), Arc::new(AtomicU64::new(0)));
        let options = Options {
            spaces: means.spaces.clone(),
            threads: options.threads,
            memory,
            steps: options.steps,
            timeout,
            stop: cancel.clone().into(),
            nodes: Some(nodes),
            told: Some(steps.clone()),
            ..Options::default()
        };
        let reads = graph.read.iter().map(|(name, of)| of.stream.as_ref().unwrap_or(name));
        let one = One {
            name: graph.name.clone(),
            // Who has more knows them.
            reads: reads.take(MOST_TOLD).cloned().collect(),
            writes: graph.write.keys().take(MOST_TOLD).cloned().collect(),
            job: job.map(str::to_owned),
            begun: clock::unix(),
            since: clock::now(),
            steps,
            cancel,
            over: None,
        };
        let mut all = self.all();
        all.tidy();
        if all.is_closed {
            return Err(Error::new(Kind::Peer, "the daemon ends"));
        }
        if all.running() >= MOST_RUNNING {
            let message = format!("{MOST_RUNNING} flows of this user run already");
            return Err(Error::limit(message).with_hint("wait until one has ended, or cancel one"));
        }
        let number = all.last.next();
        let flows = self.clone();
        std::thread::Builder::new()
            .name("stead-flow".into())
            .spawn(move || {
                let done = catch_unwind(AssertUnwindSafe(|| flow.run(&options)));
                let done = done.unwrap_or_else(|_| Err(Error::internal("the flow panicked")));
                // What it has of other nodes and in memory is let go before anybody hears that it has ended.
                drop((flow, options));
                flows.ended(number, done);
            })
            .map_err(|e| Error::new(Kind::Limit, format!("no thread for a flow: {e}")))?;
        let standing = one.standing(number);
        all.flows.insert(number, one);
        Ok(standing)
    }

    fn ended(&self, number: i64, done: Result<Report>) {
        if let Some(one) = self.all().flows.get_mut(&number) {
            one.over = Some((clock::now(), done));
        }
        self.changed.notify_all();
    }

    /// How far a flow is, as soon as it is over, or after so long.
    ///
    /// # Errors
    /// `Usage` if there is none of this number.
    pub(crate) fn wait(&self, flow: i64, most: Duration) -> Result<FlowStanding> {
        let until = clock::now() + most;
        let mut all = self.all();
        loop {
            let one = all.one(flow)?;
            let left = until.saturating_duration_since(clock::now());
            if one.over.is_some() || left.is_zero() {
                return Ok(one.standing(flow));
            }
            all = self.changed.wait_timeout(all, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Gives a flow up; readers of what it writes are told. One that is over stays as it is.
    ///
    /// # Errors
    /// `Usage` if there is none of this number, or it is over; `Timeout` if it does not end.
    pub(crate) fn cancel(&self, flow: i64) -> Result<FlowStanding> {
        {
            let all = self.all();
            let one = all.one(flow)?;
            if one.over.is_some() {
                let state = one.standing(flow).state.name();
                return Err(Error::usage(format!("flow {flow} is over: it is {state}")));
            }
            one.cancel.cancel();
        }
        let standing = self.wait(flow, ENDS_WITHIN)?;
        match standing.state {
            FlowState::Running => {
                let message = format!("flow {flow} does not end: a step of it takes long");
                Err(Error::new(Kind::Timeout, message).with_hint("it ends after that step"))
            }
            _ => Ok(standing),
        }
    }

    /// Gives up those of jobs that are over.
    pub(crate) fn keep_to(&self, jobs: &Jobs) {
        let all = self.all();
        all.flows.values().filter(|one| one.is_left_of(jobs)).for_each(|one| one.cancel.cancel());
    }

    /// The same, and waits for their end: false if one goes on.
    pub(crate) fn have_kept_to(&self, jobs: &Jobs) -> bool {
        self.keep_to(jobs);
        self.have_ended(GOES_WITHIN, |all| {
            !all.flows.values().any(|one| one.over.is_none() && one.is_left_of(jobs))
        })
    }

    /// Waits until that is so of all flows, no longer than this.
    fn have_ended(&self, most: Duration, is_so: impl Fn(&All) -> bool) -> bool {
        let waited = self.changed.wait_timeout_while(self.all(), most, |all| !is_so(all));
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The latest first; those that are over only if `over`.
    pub(crate) fn list(&self, over: bool) -> Vec<FlowStanding> {
        let mut all = self.all();
        all.tidy();
        let told = all.flows.iter().rev().filter(|(_, one)| over || one.over.is_none());
        told.map(|(number, one)| one.standing(*number)).collect()
    }

    /// True as long as there is something to tell of: the worker is not to end.
    pub(crate) fn is_used(&self) -> bool {
        let mut all = self.all();
        all.tidy();
        !all.flows.is_empty()
    }

    /// How many run.
    pub(crate) fn running(&self) -> usize {
        self.all().running()
    }

    /// Gives up all of them, and begins no more.
    pub(crate) fn close(&self) {
        let mut all = self.all();
        all.is_closed = true;
        all.flows.values().for_each(|one| one.cancel.cancel());
    }

    /// Waits for the end of all of them, as long as may be.
    pub(crate) fn leave(&self) {
        self.have_ended(LEAVES_WITHIN, |all| all.running() == 0);
    }
}

/// The function that a node calls, if it calls one.
fn function(node: &Operator) -> Option<&str> {
    match node {
        Operator::Map { function, .. } => Some(function),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(over: Option<Result<Report>>) -> One {
        One {
            name: "f".to_owned(),
            reads: vec!["sim".to_owned()],
            writes: Vec::new(),
            job: Some("12".to_owned()),
            begun: 1.5,
            since: clock::now(),
            steps: Arc::new(AtomicU64::new(3)),
            cancel: Cancel::new(),
            over: over.map(|done| (clock::now(), done)),
        }
    }

    fn flows(all: impl IntoIterator<Item = One>) -> (tempfile::TempDir, Flows) {
        let dir = tempfile::tempdir().unwrap();
        let flows = Flows::new(dir.path());
        for one in all {
            let mut all = flows.all();
            let number = all.last.next();
            all.flows.insert(number, one);
        }
        (dir, flows)
    }

    fn done() -> Report {
        Report { steps: 3, dropped: 0, unpaired: 0, fetched: 0, streams: Vec::new() }
    }

    #[test]
    fn the_latest_are_told_of_and_those_that_run() {
        let over = (0..MOST_OVER + 5).map(|_| one(Some(Ok(done()))));
        let (_dir, flows) = flows([one(None)].into_iter().chain(over).chain([one(None)]));
        let all: Vec<i64> = flows.list(true).iter().map(|told| told.flow).collect();
        let last = MOST_OVER as i64 + 7;
        assert_eq!(
            (all.len(), all[0], all[MOST_OVER], all[MOST_OVER + 1]),
            (MOST_OVER + 2, last, 7, 1)
        );
        assert_eq!(flows.list(false).iter().map(|told| told.flow).collect::<Vec<_>>(), [last, 1]);
        assert!(flows.is_used() && flows.running() == 2);
        assert_eq!(flows.wait(2, Duration::ZERO).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn what_has_become_of_a_flow_is_told() {
        let failed = Error::new(Kind::Peer, "it is gone").with_hint("begin it anew");
        let given_up = one(Some(Err(Error::cancelled())));
        given_up.cancel.cancel();
        let all = [one(None), one(Some(Ok(done()))), one(Some(Err(failed))), given_up];
        let (_dir, flows) = flows(all);
        let told = |n| flows.wait(n, Duration::ZERO).unwrap();
        assert_eq!(
            (told(1).state, told(1).steps, told(1).job.as_deref()),
            (FlowState::Running, 3, Some("12"))
        );
        assert_eq!(told(1).outcome().unwrap_err().kind(), Kind::Timeout);
        assert_eq!((told(2).state, told(2).outcome().unwrap()), (FlowState::Finished, &done()));
        let e = told(3).outcome().unwrap_err();
        assert_eq!(
            (told(3).state, e.kind(), e.hint()),
            (FlowState::Failed, Kind::Peer, Some("begin it anew"))
        );
        assert_eq!((told(4).state, told(4).error.clone()), (FlowState::Cancelled, None));
        assert_eq!(told(4).outcome().unwrap_err().kind(), Kind::Cancelled);
        assert_eq!(flows.cancel(2).unwrap_err().kind(), Kind::Usage);
        // Whoever waits hears of the end at once.
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| flows.wait(1, Duration::from_secs(600)));
            flows.ended(1, Ok(done()));
            assert_eq!(waits.join().unwrap().unwrap().state, FlowState::Finished);
        });
    }

    #[test]
    fn flows_of_jobs_that_are_over_are_given_up() {
        let (_dir, flows) = flows([one(None), One { job: None, ..one(None) }]);
        flows.keep_to(&Jobs::from([("12".to_owned(), Default::default())]));
        let is_given_up = |n: i64| flows.all().flows[&n].cancel.is_cancelled();
        assert!(!is_given_up(1) && !is_given_up(2));
        flows.keep_to(&Jobs::default());
        assert!(is_given_up(1) && !is_given_up(2));
        // What it has left is removed once it has ended.
        std::thread::scope(|scope| {
            let ends = scope.spawn(|| flows.have_kept_to(&Jobs::default()));
            flows.ended(1, Err(Error::cancelled()));
            assert!(ends.join().unwrap());
        });
        flows.close();
        assert!(is_given_up(2));
        flows.ended(2, Err(Error::cancelled()));
        flows.leave();
    }

    #[test]
    fn paths_lead_up_from_the_current_folder_alone() {
        let here = std::env::current_dir().unwrap();
        let up = here.parent().unwrap().join("run").display().to_string();
        assert_eq!(upwards("../run".to_owned()).unwrap(), up);
        assert_eq!(upwards("../../".repeat(99)).unwrap(), "/");
        for same in ["run", "/a/../b", "a/../b", "."] {
            assert_eq!(upwards(same.to_owned()).unwrap(), same);
        }
    }

    #[test]
    fn paths_are_those_from_the_root_on() {
        let graph = Graph::parse(
            "[read.a]\nstream = \"run/a\"\n[read.b]\nstream = \"other\"\n[read.c]\nstream = \"nvme://x$$y/\"\n\
             [write.w]\nvariables = { x = \"a.x\" }\npersist = \"/p\"\n[write.v]\nvariables = { x = \"a.x\" }\nspill = \"auto\"\n",
        )
        .unwrap();
        let fixed = fixed(&graph).unwrap();
        let here = std::env::current_dir().unwrap().display().to_string();
        let stream = |name: &str| fixed.read[name].stream.clone().unwrap();
        assert_eq!(stream("a"), format!("{here}/run/a"));
        assert_eq!((stream("b"), stream("c")), ("other".to_owned(), "nvme://x$$y/".to_owned()));
        assert_eq!(fixed.write["w"].persist.as_deref(), Some("/p"));
        assert_eq!(fixed.write["v"].spill.as_deref(), Some("auto"));
    }

    #[test]
    fn odd_options_are_refused() {
        let wanted = |options: FlowOptions| options.wanted();
        let usual = Options::default();
        assert_eq!(wanted(FlowOptions::default()).unwrap(), (usual.memory, usual.timeout));
        for timeout in [-1.0, f64::NAN, f64::INFINITY, 1e300] {
            let options = FlowOptions { timeout: Some(timeout), ..FlowOptions::default() };
            assert_eq!(wanted(options).unwrap_err().kind(), Kind::Usage, "{timeout}");
        }
        for memory in [0, u64::MAX] {
            let options = FlowOptions { memory: Some(memory), ..FlowOptions::default() };
            assert_eq!(wanted(options).unwrap_err().kind(), Kind::Usage, "{memory}");
        }
    }
}
