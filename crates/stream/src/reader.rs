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
    /// What each source looks at for whoever waits on.
    looks: Mutex<Vec<Option<u64>>>,
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
        for source in &self.sources {
            match source.hold(step) {
                Ok(true) => {}
                not => {
                    // Those after it may look at one that comes next.
                    self.sources.iter().for_each(|s| s.let_go(step, false));
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
    /// what another one has: else two nodes whose writers are at different steps would be asked in turn for ever. For who waits `on` when there is
    /// nothing sources look on at what they have: it may be gone by then, and the others never have what comes after it at the same time.
    fn coming(&self, from: u64, passes: bool, until: Instant, on: bool) -> Result<Coming> {
        let mut looks = Looks::new(self);
        let mut step = looks.resumed(from).unwrap_or(from);
        'all: loop {
            let passes = passes && step == from;
            if self.sources.len() > 1 {
                self.sources.iter().try_for_each(|source| source.expect(step, passes, until))?;
            }
            for (i, source) in self.sources.iter().enumerate() {
                let passes = passes && step == from;
                match source.next(step, passes, until)? {
                    Coming::Step(next) if next == step => looks.at(i, step),
                    Coming::Step(next) => {
                        // Its writers have let those before go: nobody is given what the others look at.
                        looks.at(i, next);
                        step = next;
                        if i > 0 {
                            continue 'all;
                        }
                        // The others hear that those before it are done with: ranks may wait for that there, and this one for them here.
                        let mut others = self.sources.iter().skip(1);
                        others.try_for_each(|other| other.expect(step, false, until))?;
                    }
                    Coming::Over(None) => {
                        looks.let_go_but(None);
                        return self.ending(step, i, until);
                    }
                    Coming::Nothing if on => {
                        looks.stay();
                        return Ok(Coming::Nothing);
                    }
                    nothing => return Ok(nothing),
                }
            }
            looks.keep();
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

/// At which step each source looks for who asks what comes next. What is not given is let go of, however that ends.
struct Looks<'s> {
    shared: &'s Shared,
    steps: Vec<Option<u64>>,
}

impl Looks<'_> {
    fn new(shared: &Shared) -> Looks<'_> {
        let mut steps = std::mem::take(&mut *locked(&shared.looks));
        steps.resize(shared.sources.len(), None);
        Looks { shared, steps }
    }

    /// The step that some sources look at still, if it is one that may come.
    fn resumed(&mut self, from: u64) -> Option<u64> {
        let step = self.steps.iter().flatten().copied().max().filter(|step| *step >= from);
        self.let_go_but(step);
        step
    }

    /// Whoever waits asks again, and finds it as it is.
    fn stay(mut self) {
        *locked(&self.shared.looks) = std::mem::take(&mut self.steps);
    }

    /// A source looks at this step, and none at another one.
    fn at(&mut self, source: usize, step: u64) {
        self.let_go_but(Some(step));
        if let Some(at) = self.steps.get_mut(source) {
            *at = Some(step);
        }
    }

    fn let_go_but(&mut self, step: Option<u64>) {
        for (source, at) in self.shared.sources.iter().zip(&mut self.steps) {
            if let Some(other) = at.take_if(|at| Some(*at) != step) {
                self.shared.give_back(other, std::slice::from_ref(source));
            }
        }
    }

    /// The step is given.
    fn keep(mut self) {
        self.steps.clear();
    }
}

impl Drop for Looks<'_> {
    fn drop(&mut self) {
        self.let_go_but(None);
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
            looks: Mutex::default(),
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
        match self.wait_until(clock::after(self.shared.timeout), false)? {
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
        self.wait_until(clock::after(time), false)
    }

    /// As [`Reader::next_within`], for a part of a longer wait: what some nodes have of the next step, and others have not yet, stays until
    /// the next part. The last part is no such one.
    ///
    /// # Errors
    /// As [`Reader::next_step_within`].
    pub fn next_part(&self, time: Duration) -> Result<Option<Step>> {
        self.wait_until(clock::after(time), true)
    }

    /// True after the last step was given, and none will come.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }

    /// For who waits no longer, and has waited by [parts](Reader::next_part): what nodes have kept for the next part goes. One of several
    /// threads that wait has the others ask anew.
    pub fn rest(&self) {
        if self.shared.check().is_ok()
            && let Some(_turn) = self.shared.turn.take(clock::now())
        {
            drop(Looks::new(&self.shared));
        }
    }

    fn wait_until(&self, until: Instant, on: bool) -> Result<Option<Step>> {
        let shared = &self.shared;
        shared.check()?;
        let Some(turn) = shared.turn.take(until) else { return Ok(None) };
        let from = shared.next.load(Ordering::Relaxed);
        let (begun, mut ask) = (clock::now(), from);
        loop {
            match shared.coming(ask, shared.passes, until, on) {
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
        self.wait_for_step(variable, step, clock::after(time), false)
    }

    /// As [`Reader::wait_for`], for a part of a longer wait, as [`Reader::next_part`] is.
    ///
    /// # Errors
    /// As [`Reader::wait_for`].
    pub fn wait_for_part(&self, variable: &str, step: u64, time: Duration) -> Result<Step> {
        self.wait_for_step(variable, step, clock::after(time), true)
    }

    fn wait_for_step(&self, variable: &str, step: u64, until: Instant, on: bool) -> Result<Step> {
        let found = self.very_step(step, until, on)?;
        found.variable(variable)?;
        Ok(found)
    }

    fn very_step(&self, step: u64, until: Instant, on: bool) -> Result<Step> {
        let shared = &self.shared;
        shared.check()?;
        let Some(turn) = shared.turn.take(until) else { return Err(self.late()) };
        if step < shared.next.load(Ordering::Relaxed) {
            drop(turn);
            return self.at(step);
        }
        shared.next.store(step, Ordering::Relaxed);
        // No other one than this.
        let mut looks = Looks::new(shared);
        looks.let_go_but(Some(step));
        looks.stay();
        let begun = clock::now();
        match shared.coming(step, false, until, on)? {
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
            drop(Looks::new(&self.shared));
            self.shared.sources.iter().for_each(|source| source.done());
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::home::Home;
    use crate::{Behind, Definition, Writer, Written};
    use stead_core::layout::Spaces;
    use stead_core::{Bounds, DType};

    /// Bytes of a step.
    const LEN: u64 = 64 << 10;

    /// Writers on two nodes, each with a memory of its own that has room for a few steps, and a reader for which they do not wait.
    struct Nodes {
        homes: [Home; 2],
        writers: Vec<Writer>,
        reader: Reader,
        _dir: tempfile::TempDir,
    }

    impl Nodes {
        fn new() -> Nodes {
            let dir = tempfile::tempdir_in("/dev/shm").unwrap();
            let spaces = ["a", "b"].map(|node| {
                let mut spaces = Spaces::default();
                spaces.imply("memory", dir.path().join(node).to_str().unwrap());
                spaces
            });
            let writers = Vec::from_iter(spaces.iter().map(|spaces| {
                let (spaces, timeout) = (spaces.clone(), Duration::from_secs(5));
                let written =
                    Written { spaces, timeout, memory: 6 * LEN, keep: 0, ..Written::default() };
                let mut writer = Writer::open("sim", &written).unwrap();
                writer.define(Definition::new("T", DType::U8, [LEN])).unwrap();
                writer
            }));
            let of = |spaces: &Spaces| Read {
                spaces: spaces.clone(),
                behind: Behind::Drop,
                ..Read::default()
            };
            let here =
                |spaces| Box::new(Here::open("sim", &of(spaces)).unwrap()) as Box<dyn Source>;
            let sources = spaces.iter().map(here).collect();
            let reader = Reader::of("sim", sources, &of(&spaces[0]));
            let homes = spaces.each_ref().map(|spaces| Home::open(spaces).unwrap());
            Nodes { homes, writers, reader, _dir: dir }
        }

        /// A writer ends all steps before this one.
        fn end(&mut self, node: usize, before: u64) {
            let writer = &mut self.writers[node];
            while writer.step() < before {
                writer.begin().unwrap();
                let whole = Bounds::new([0], [LEN]).unwrap();
                writer.put(0, &whole, &vec![7; LEN as usize]).unwrap();
                writer.end().unwrap();
            }
        }

        fn next(&self) -> Option<u64> {
            let step = self.reader.next_within(Duration::ZERO).unwrap();
            step.map(|step| step.number())
        }

        /// Steps that the reader looks at on a node, of those before this one.
        fn held(&self, node: usize, before: u64) -> Vec<u64> {
            let board = self.homes[node].get("sim").unwrap().board;
            (0..before).filter(|step| !board.holders(*step).is_empty()).collect()
        }
    }

    #[test]
    fn a_step_that_one_node_has_and_another_one_has_not_yet_is_let_go() {
        let mut nodes = Nodes::new();
        nodes.end(0, 9);
        nodes.end(1, 10);
        assert_eq!(nodes.next(), None);
        assert_eq!([0, 1].map(|node| nodes.held(node, 20)), [[0; 0]; 2]);
        for node in [0, 1] {
            nodes.end(node, 12);
        }
        let step = nodes.reader.next_within(Duration::ZERO).unwrap().unwrap();
        assert_eq!((step.number(), step.dropped()), (11, 11));
        assert_eq!([0, 1].map(|node| nodes.held(node, 20)), [[11]; 2]);
        drop(step);
        assert_eq!([0, 1].map(|node| nodes.held(node, 20)), [[0; 0]; 2]);
    }

    #[test]
    fn a_step_that_one_node_has_stays_for_who_waits_on() {
        // The one ahead is so by two steps all the time, and keeps one.
        for (ahead, then) in
            [0, 1].into_iter().flat_map(|ahead| [0, 1, 2].map(|then| (ahead, then)))
        {
            let mut nodes = Nodes::new();
            let part = |nodes: &Nodes, on| {
                let next = match on {
                    true => nodes.reader.next_part(Duration::ZERO),
                    false => nodes.reader.next_within(Duration::ZERO),
                };
                next.unwrap().map(|step| step.number())
            };
            for last in 0..4 {
                nodes.end(ahead, 8 + 2 * last + 1);
                nodes.end(1 - ahead, 6 + 2 * last + 1);
                assert_eq!(part(&nodes, last == 3), None);
            }
            // As far as the other one was.
            nodes.end(ahead, 17);
            nodes.end(1 - ahead, 15);
            assert_eq!((part(&nodes, true), nodes.held(ahead, 20)), (Some(14), vec![]));
            // Who waits no longer, or for another one, keeps nothing.
            nodes.end(ahead, 19);
            nodes.end(1 - ahead, 16);
            assert_eq!((part(&nodes, true), nodes.held(ahead, 20)), (None, vec![18]));
            match then {
                0 => assert_eq!(part(&nodes, false), None),
                1 => assert!(nodes.reader.wait_for_part("T", 25, Duration::ZERO).is_err()),
                _ => nodes.reader.rest(),
            }
            assert_eq!(nodes.held(ahead, 20), [0; 0]);
        }
    }

    #[test]
    fn who_waits_for_what_a_node_has_not_yet_keeps_no_writer_of_another_one_waiting() {
        // Whichever of the nodes is asked first.
        for ahead in [0, 1] {
            let mut nodes = Nodes::new();
            for round in 0..20 {
                nodes.end(1 - ahead, 2 * round + 1);
                nodes.end(ahead, 2 * round + 2);
                assert_eq!(nodes.next(), None);
            }
            nodes.end(1 - ahead, 40);
            assert_eq!(nodes.next(), Some(39));
        }
    }
}
