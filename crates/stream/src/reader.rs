//! The reading end of a stream.

use crate::clock;
use crate::here::Here;
use crate::options::Read;
use crate::pool;
use crate::recorded::{self, Replay};
use crate::report::{Gets, ReaderReport, nanoseconds, seconds};
use crate::source::{Coming, Source};
use crate::step::{Known, Step};
use crate::trail::Trail;
use crate::turn::Turn;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};

/// Steps that somebody has, each with how many have it.
type Held = HashMap<u64, usize>;

/// What a reader and its steps share.
#[derive(Debug)]
pub(crate) struct Shared {
    name: String,
    /// Writers of each node.
    pub(crate) sources: Vec<Box<dyn Source>>,
    held: Mutex<Held>,
    /// One thread at a time waits for the next step.
    turn: Turn,
    /// The step that comes next.
    next: AtomicU64,
    /// What definitions are together.
    merged: Mutex<Option<Arc<Known>>>,
    pub(crate) threads: usize,
    /// Steps are passed over that the group is further behind by than it says.
    passes: bool,
    timeout: Duration,
    process: u32,
    /// What was got of all steps.
    pub(crate) gets: Gets,
    /// Steps that were given, those that had gone before, and nanoseconds that were waited for steps.
    given: [AtomicU64; 3],
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// One more has a step. False if it is not there.
    fn hold(&self, step: u64) -> Result<bool> {
        self.hold_in(&mut locked(&self.held), step)
    }

    /// The same of the step that comes next: from then on who lets it go is done with it. Who does so just before, as another thread may, is
    /// not: it stays where a group has agreed on it.
    fn take(&self, step: u64) -> Result<bool> {
        let mut held = locked(&self.held);
        self.next.store(step.saturating_add(1), Ordering::Relaxed);
        self.hold_in(&mut held, step)
    }

    fn hold_in(&self, held: &mut Held, step: u64) -> Result<bool> {
        if let Some(count) = held.get_mut(&step) {
            *count += 1;
            return Ok(true);
        }
        for (i, source) in self.sources.iter().enumerate() {
            match source.hold(step) {
                Ok(true) => {}
                not => {
                    self.sources.iter().take(i).for_each(|s| s.let_go(step, false));
                    return not;
                }
            }
        }
        held.insert(step, 1);
        Ok(true)
    }

    /// One fewer has a step.
    pub(crate) fn let_go(&self, step: u64) {
        // In a process that was forked since a thread that is not there may have this locked.
        if std::process::id() != self.process {
            return;
        }
        let mut held = locked(&self.held);
        let Some(count) = held.get_mut(&step) else { return };
        *count -= 1;
        if *count == 0 {
            held.remove(&step);
            let is_done = step < self.next.load(Ordering::Relaxed);
            self.sources.iter().for_each(|source| source.let_go(step, is_done));
        }
    }

    /// These sources look at a step that the reader does not get, unless somebody has it.
    fn give_back(&self, step: u64, sources: &[Box<dyn Source>]) {
        let held = locked(&self.held);
        if !held.contains_key(&step) {
            sources.iter().for_each(|source| source.let_go(step, false));
        }
    }

    /// The first step from this one on that all sources have. With `passes` each of them may pass over some, but none is passed over for
    /// what another one has: else two nodes whose writers are at different steps would be asked in turn for ever.
    fn coming(&self, from: u64, passes: bool, until: Instant) -> Result<Coming> {
        let mut step = from;
        'all: loop {
            let passes = passes && step == from;
            if self.sources.len() > 1 {
                self.sources.iter().try_for_each(|source| source.expect(step, passes, until))?;
            }
            for (i, source) in self.sources.iter().enumerate() {
                let before = self.sources.get(..i).unwrap_or(&[]);
                let passes = passes && step == from;
                match source
                    .next(step, passes, until)
                    .inspect_err(|_| self.give_back(step, before))?
                {
                    Coming::Step(next) if next == step => {}
                    Coming::Step(next) if i == 0 => {
                        step = next;
                        // The others hear that those before it are done with: ranks may wait for that there, and this one for them here.
                        let first = self.sources.get(..1).unwrap_or(&[]);
                        let mut others = self.sources.iter().skip(1);
                        others
                            .try_for_each(|other| other.expect(step, false, until))
                            .inspect_err(|_| self.give_back(step, first))?;
                    }
                    Coming::Step(next) => {
                        // Writers of this node have let those before go.
                        self.give_back(step, before);
                        step = next;
                        continue 'all;
                    }
                    Coming::Over(None) => {
                        self.give_back(step, before);
                        return self.ending(step, i, until);
                    }
                    nothing => {
                        self.give_back(step, before);
                        return Ok(nothing);
                    }
                }
            }
            return Ok(Coming::Step(step));
        }
    }

    /// Writers of a node have closed the stream, and there is no such step: all others are to do so, too.
    fn ending(&self, step: u64, of: usize, until: Instant) -> Result<Coming> {
        for (i, source) in self.sources.iter().enumerate().filter(|(i, _)| *i != of) {
            match source.next(step, false, until)? {
                Coming::Over(None) => {}
                Coming::Step(more) => {
                    self.give_back(more, self.sources.get(i..=i).unwrap_or(&[]));
                    let name = &self.name;
                    let message = format!(
                        "writers of stream '{name}' have closed it before those of another node, which have ended step {more}"
                    );
                    return Err(Error::new(Kind::Peer, message)
                        .with_hint("all writers are to end the same steps"));
                }
                other => return Ok(other),
            }
        }
        Ok(Coming::Over(None))
    }

    /// This step is given, after so long, to who has the turn. Nanoseconds of the wait come back.
    fn give(&self, step: u64, dropped: u64, waited: Duration) -> u64 {
        let (waited, [steps, gone, sum]) = (nanoseconds(waited), &self.given);
        steps.fetch_add(1, Ordering::Relaxed);
        gone.fetch_add(dropped, Ordering::Relaxed);
        sum.fetch_add(waited, Ordering::Relaxed);
        self.sources.iter().for_each(|source| source.given(step, dropped, waited));
        waited
    }

    pub(crate) fn merged(&self) -> MutexGuard<'_, Option<Arc<Known>>> {
        locked(&self.merged)
    }

    /// A process that was forked has no part in it.
    fn check(&self) -> Result<()> {
        if std::process::id() == self.process {
            return Ok(());
        }
        let message = format!("stream '{}' was opened before this process was forked", self.name);
        Err(Error::usage(message).with_hint("open it in the process that uses it"))
    }
}

/// Reads a stream, step by step or any step that is still there. All that it gives looks at the memory of writers of this node, and
/// stays as it is as long as it is had.
#[derive(Debug)]
pub struct Reader {
    shared: Arc<Shared>,
    is_over: AtomicBool,
}

impl Reader {
    /// Takes the place of a rank of a group of readers of the stream `name`, and waits for the stream if nobody writes it yet. A name with a
    /// `/` in it is a folder in which steps were [recorded](crate::Written::persist), or still are: they are read as those of a stream,
    /// from the first one on, and nobody waits for who reads them.
    ///
    /// # Errors
    /// `NotFound` if nothing was recorded in a folder; `Timeout` if nobody writes it; `Usage` if somebody else is this rank, or others say
    /// something else of the group, or it keeps and queues more steps than the stream has slots for; `Limit` if this process may have no more files open.
    pub fn open(name: &str, options: &Read) -> Result<Reader> {
        Reader::find(name, options).map_err(Error::of_open_files)
    }

    fn find(name: &str, options: &Read) -> Result<Reader> {
        options.check()?;
        if recorded::is_location(name) {
            return Ok(Reader::of(name, vec![Box::new(Replay::open(name, options)?)], options));
        }
        let found: Option<Vec<Box<dyn Source>>> = match (&options.coupling, &options.nodes) {
            (Some(coupling), _) => Some(coupling.find(name, options)?),
            (None, Some(nodes)) => pool::find(nodes, name, options)?,
            (None, None) => None,
        };
        let sources: Vec<Box<dyn Source>> = match found {
            Some(found) => found,
            None if options.is_recorded() => vec![Box::new(Trail::open(name, options)?)],
            None => vec![Box::new(Here::open(name, options)?)],
        };
        Ok(Reader::of(name, sources, options))
    }

    fn of(name: &str, sources: Vec<Box<dyn Source>>, options: &Read) -> Reader {
        let first = sources.iter().map(|source| source.position()).max().unwrap_or(0);
        let shared = Shared {
            name: name.to_owned(),
            sources,
            held: Mutex::default(),
            turn: Turn::default(),
            next: AtomicU64::new(first),
            merged: Mutex::default(),
            threads: options.threads,
            passes: options.passes(),
            timeout: options.timeout,
            process: std::process::id(),
            gets: Gets::default(),
            given: Default::default(),
        };
        Reader { shared: Arc::new(shared), is_over: AtomicBool::new(false) }
    }

    /// The next step, as soon as all writers have ended it; `None` when they have closed the stream. The one before is done with.
    ///
    /// # Errors
    /// `Peer` if a writer has ended in the middle, after all steps that are complete; `Timeout`; `Limit` if this process may have no more files
    /// open: the step is passed over then, and [`Reader::at`] has it while it is there.
    pub fn next_step(&mut self) -> Result<Option<Step>> {
        match self.wait_until(clock::after(self.shared.timeout))? {
            Some(step) => Ok(Some(step)),
            None if self.is_over() => Ok(None),
            None => Err(self.late()),
        }
    }

    /// As [`Reader::next_step`], for so long at most: `None` also if there is no step yet, and [`Reader::is_over`] tells which it is.
    ///
    /// # Errors
    /// As [`Reader::next_step`], but for `Timeout`.
    pub fn next_step_within(&mut self, time: Duration) -> Result<Option<Step>> {
        self.next_within(time)
    }

    /// As [`Reader::next_step_within`], for threads that share the reader: each step goes to one of them.
    ///
    /// # Errors
    /// As [`Reader::next_step_within`].
    pub fn next_within(&self, time: Duration) -> Result<Option<Step>> {
        self.wait_until(clock::after(time))
    }

    /// True after the last step was given, and none will come.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    fn wait_until(&self, until: Instant) -> Result<Option<Step>> {
        let shared = &self.shared;
        shared.check()?;
        let Some(turn) = shared.turn.take(until) else { return Ok(None) };
        let from = shared.next.load(Ordering::Relaxed);
        let (begun, mut ask) = (clock::now(), from);
        loop {
            match shared.coming(ask, shared.passes, until) {
                Ok(Coming::Step(step)) => {
                    if !shared.take(step)? {
                        // It went when another thread let it go, and is as one that went before.
                        ask = step + 1;
                        if clock::now() >= until {
                            return Ok(None);
                        }
                        continue;
                    }
                    let waited = shared.give(step, step - from, begun.elapsed());
                    drop(turn);
                    return Step::new(shared.clone(), step, step - from, waited).map(Some);
                }
                Ok(Coming::Nothing) => return Ok(None),
                Ok(Coming::Over(why)) => {
                    self.is_over.store(true, Ordering::Release);
                    return why.map_or(Ok(None), Err);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// This very step, as soon as it is complete, with this variable in it. The reader is done with those before it.
    ///
    /// # Errors
    /// `NotFound` if it has gone, the stream ends before it, or it has no such variable; `Timeout`; as [`Reader::next_step`].
    pub fn wait_for(&self, variable: &str, step: u64, time: Duration) -> Result<Step> {
        let until = clock::after(time);
        let found = self.wait_for_step(step, until)?;
        found.variable(variable)?;
        Ok(found)
    }

    fn wait_for_step(&self, step: u64, until: Instant) -> Result<Step> {
        let shared = &self.shared;
        shared.check()?;
        let Some(turn) = shared.turn.take(until) else { return Err(self.late()) };
        if step < shared.next.load(Ordering::Relaxed) {
            drop(turn);
            return self.at(step);
        }
        shared.next.store(step, Ordering::Relaxed);
        let begun = clock::now();
        match shared.coming(step, false, until)? {
            Coming::Step(came) if came == step => {
                if shared.take(step)? {
                    let waited = shared.give(step, 0, begun.elapsed());
                    drop(turn);
                    return Step::new(shared.clone(), step, 0, waited);
                }
                Err(self.not_there(step)?)
            }
            Coming::Step(other) => {
                shared.give_back(other, &shared.sources);
                Err(self.not_there(step)?)
            }
            Coming::Nothing => Err(self.late()),
            Coming::Over(Some(why)) => Err(why),
            Coming::Over(None) => {
                let name = &shared.name;
                let message = format!("stream '{name}' has ended before step {step}");
                Err(Error::new(Kind::NotFound, message)
                    .with_hint("its writers have closed it; read the steps that it has"))
            }
        }
    }

    /// How long it waits for anybody.
    pub(crate) fn timeout(&self) -> Duration {
        self.shared.timeout
    }

    /// That the next step did not come in time, and whom it waits for.
    pub fn late(&self) -> Error {
        let step = self.shared.next.load(Ordering::Relaxed);
        let behind: Vec<String> =
            self.shared.sources.iter().flat_map(|source| source.late(step)).take(8).collect();
        let name = &self.shared.name;
        let mut message = format!("step {step} of stream '{name}' has not come");
        if !behind.is_empty() {
            message += &format!(": {}", behind.join(", "));
        }
        Error::new(Kind::Timeout, message).with_hint(
            "is somebody stopped, or waiting for something else? a longer timeout can be given",
        )
    }

    /// A step that is still there, whether it was given or not.
    ///
    /// # Errors
    /// `NotFound` if it is not, or not yet complete.
    pub fn at(&self, step: u64) -> Result<Step> {
        let shared = &self.shared;
        shared.check()?;
        if shared.hold(step)? {
            return Step::new(shared.clone(), step, 0, 0);
        }
        Err(self.not_there(step)?)
    }

    /// What it has done so far, and the memory of the stream.
    pub fn report(&self) -> ReaderReport {
        let shared = &self.shared;
        let [copies, copied, looked, fetched, copying] = shared.gets.get();
        let [steps, dropped, waited] = &shared.given;
        ReaderReport {
            steps: steps.load(Ordering::Relaxed),
            dropped: dropped.load(Ordering::Relaxed),
            copies,
            copied,
            looked,
            fetched,
            copy_cpu_s: seconds(copying),
            waited_s: seconds(waited.load(Ordering::Relaxed)),
            memory: shared.sources.iter().find_map(|source| source.memory()),
        }
    }

    fn not_there(&self, step: u64) -> Result<Error> {
        let there = self.steps()?;
        let said = match (there.first(), there.last()) {
            (Some(first), Some(last)) => format!("those from {first} to {last} are"),
            _ => "none is".to_owned(),
        };
        let name = &self.shared.name;
        Ok(Error::new(
            Kind::NotFound,
            format!("step {step} of stream '{name}' is not there: {said}"),
        )
        .with_hint("writers say with `keep` how many steps stay, and readers how many of those that they have had"))
    }

    /// The steps that are there now.
    ///
    /// # Errors
    /// `Timeout` if somebody keeps the stream locked.
    pub fn steps(&self) -> Result<Vec<u64>> {
        let mut all: Option<Vec<u64>> = None;
        for source in &self.shared.sources {
            let its = source.steps()?;
            all = Some(match all {
                None => its,
                Some(all) => all.into_iter().filter(|step| its.contains(step)).collect(),
            });
        }
        Ok(all.unwrap_or_default())
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        // Steps and arrays of it may be had for longer: what they look at stays, and nobody waits for this reader.
        if self.shared.check().is_ok() {
            self.shared.sources.iter().for_each(|source| source.done());
        }
    }
}
