//! Runs a flow: reads steps of streams, does what nodes do, writes steps of streams.

use crate::check::{Checked, Node, Reading, Writing, check, retold};
use crate::division::{self, Division, Near};
use crate::form::Form;
use crate::graph::{Graph, Operator};
use crate::live;
use crate::meet::{Now, Share, meet};
use crate::op::{self, Function, History, Job, Work};
use crate::origin::{Origin, Origins};
use crate::plan::{self, Active, Plan, is_shared};
use crate::ranks::{self, Ranks};
use crate::value::{Tile, Value, bytes_of};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::units::format_size;
use stead_core::{Bounds, Cancel, Error, Kind, Result, limits};
use stead_stream::{Coupling, Nodes, Read, Reader, Step, Stop, Writer, Written, covered};

/// Functions of a program, by the names that graphs have for them.
pub type Functions = BTreeMap<String, Function>;

/// A rank that fails waits so long for those that have not come yet, which would be told of it by nobody.
const LATE: Duration = Duration::from_secs(10);

/// Blocks of one variable that are looked at where they lie; more are copied together.
const MAX_TILES: usize = 4096;

/// How a flow is run. All ranks say the same, but for their rank.
#[derive(Debug, Clone)]
pub struct Options {
    /// The dataspaces, of which `memory` is where streams lie.
    pub spaces: Spaces,
    /// Which of the processes that share the work this is, from 0 on.
    pub rank: u64,
    /// How many there are.
    pub ranks: u64,
    /// Threads of this one; 0 is as many as there are processors.
    pub threads: usize,
    /// Bytes that values may take which are made here, and copies of what lies on other nodes.
    pub memory: u64,
    /// So many steps, if the streams that are read have more.
    pub steps: Option<u64>,
    /// How long to wait for anybody.
    pub timeout: Duration,
    /// What ends a wait before that, and the flow.
    pub stop: Stop,
    /// Programs on several nodes of which this is one: all ranks of a part run the flow.
    pub coupling: Option<Arc<Coupling>>,
    /// Other nodes on which what is read may be written, as a reader has them.
    pub nodes: Option<Arc<dyn Nodes>>,
    /// Where it is said how many steps it has had, while it runs.
    pub told: Option<Arc<AtomicU64>>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            spaces: Spaces::default(),
            rank: 0,
            ranks: 1,
            threads: 0,
            memory: limits::DEFAULT_MEMORY,
            steps: None,
            timeout: Duration::from_secs(limits::PEER_DEADLINE_S),
            stop: Stop::default(),
            coupling: None,
            nodes: None,
            told: None,
        }
    }
}

/// What a flow has done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Steps of the streams that were read.
    pub steps: u64,
    /// Steps that went before they came to the flow, which may be behind.
    pub dropped: u64,
    /// Steps of one of several streams that were passed over, because another has no step of that number.
    pub unpaired: u64,
    /// Bytes of it that have come from other nodes.
    pub fetched: u64,
    /// What was written.
    pub streams: Vec<Sent>,
}

/// What was written of one stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sent {
    /// Its name.
    pub stream: String,
    /// Its steps.
    pub steps: u64,
    /// Bytes of the arrays that this rank has put.
    pub bytes: u64,
}

/// A graph that was checked, and the functions that it needs.
#[derive(Clone)]
pub struct Flow {
    checked: Arc<Checked>,
    functions: Arc<Functions>,
}

impl std::fmt::Debug for Flow {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Flow").field("checked", &self.checked).finish_non_exhaustive()
    }
}

impl Flow {
    /// Checks a graph.
    ///
    /// # Errors
    /// Those of [`check`]; `Usage` if there is no function of a name that it has.
    pub fn new(graph: &Graph, functions: Functions) -> Result<Flow> {
        let checked = check(graph)?;
        for node in &checked.nodes {
            if let Operator::Map { function, .. } = &node.op
                && !functions.contains_key(function)
            {
                return Err(node.error(op::unknown(function)));
            }
        }
        Ok(Flow { checked: Arc::new(checked), functions: Arc::new(functions) })
    }

    /// What is known of it.
    pub fn checked(&self) -> &Checked {
        &self.checked
    }

    /// Runs until one of the streams that are read has ended. Readers of what it writes then see an end, too; of what fails they are told.
    ///
    /// # Errors
    /// Those of streams; `Usage` for variables that a node cannot work on; `Limit`; those of functions. `Cancelled` if it was stopped.
    pub fn run(&self, options: &Options) -> Result<Report> {
        if options.rank >= options.ranks {
            let (rank, ranks) = (options.rank, options.ranks);
            return Err(Error::usage(format!("rank {rank} of {ranks}; they count from 0 on")));
        }
        let (mut outputs, mut ranks) = (Vec::new(), None);
        let done = self.with(options, &mut outputs, &mut ranks);
        match done {
            Ok(Progress { steps, dropped, unpaired, fetched }) => {
                let mut streams = Vec::new();
                ranks.map_or(Ok(()), Ranks::close)?;
                for output in outputs {
                    let Sending { writer, stream, steps, bytes } = output;
                    writer.close()?;
                    streams.push(Sent { stream, steps, bytes });
                }
                Ok(Report { steps, dropped, unpaired, fetched, streams })
            }
            Err(mut e) => {
                let last = ranks.as_ref().map(Ranks::writer);
                let last = last.or(outputs.last().map(|output| &output.writer));
                if let Some(writer) = last
                    && !matches!(e.kind(), Kind::Timeout | Kind::Cancelled)
                    && let Err(ended) = writer.wait_for_writers(options.timeout.min(LATE))
                    && ended.kind() == Kind::Cancelled
                {
                    e = ended;
                }
                if let Some(ranks) = ranks {
                    ranks.abandon();
                }
                // Nobody reads a part of a step for the whole; that they cannot be told changes nothing.
                for output in outputs {
                    let _ = output.writer.abandon();
                }
                Err(e)
            }
        }
    }

    /// The same of all ranks of a coupling that has one part: each of them gets what all have done, or the first error of any. `options.rank`
    /// and `ranks` are those of the coupling.
    ///
    /// What is read is written by programs that were begun by themselves. It is found on the nodes of the coupling, or else by `options.nodes`.
    ///
    /// # Errors
    /// As [`Flow::run`]; `Peer` if a rank is gone.
    pub fn run_with(&self, coupling: &Arc<Coupling>, options: &Options) -> Result<Report> {
        let (rank, ranks) = (coupling.rank(), coupling.ranks());
        let coupled = Some(coupling.clone());
        let options = Options { rank, ranks, coupling: coupled, ..options.clone() };
        let mut all = coupling.agree(self.run(&options))?.into_iter();
        let mut report = all.next().ok_or_else(odd)?;
        for one in all {
            report.fetched = report.fetched.saturating_add(one.fetched);
            for (sum, sent) in report.streams.iter_mut().zip(one.streams) {
                sum.bytes = sum.bytes.saturating_add(sent.bytes);
            }
        }
        Ok(report)
    }

    /// The same by a thread of its own, in the program that writes what it reads, or in any other.
    ///
    /// # Errors
    /// System errors: no thread can be begun.
    pub fn run_in_background(&self, options: &Options) -> Result<Running> {
        let cancel = Cancel::new();
        let (mine, theirs) = (cancel.clone(), options.stop.clone());
        let stop = Stop::when(move || {
            mine.check()?;
            theirs.check()
        });
        let (flow, options) = (self.clone(), Options { stop, ..options.clone() });
        let thread = thread::Builder::new()
            .name("stead-flow".to_owned())
            .spawn(move || flow.run(&options))
            .map_err(|e| Error::io("begin a thread for", "a flow", e))?;
        Ok(Running { cancel, thread: Some(thread) })
    }

    /// Checks what there is to read already. What a coupling reads from memory lies where that has its streams.
    fn look_ahead(&self, options: &Options) -> Result<()> {
        if options.steps.is_some() {
            // The last step that is there may come after those that are wanted.
            return Ok(());
        }
        self.checked.ahead(&options.spaces, options.coupling.is_none())
    }

    fn with(
        &self,
        options: &Options,
        outputs: &mut Vec<Sending>,
        ranks: &mut Option<Ranks>,
    ) -> Result<Progress> {
        let checked = &*self.checked;
        // Of several ranks the others are told what is wrong by what all write, and so it is there first.
        if options.ranks == 1 {
            self.look_ahead(options)?;
        }
        // Nothing is made for one that was stopped before it has begun.
        options.stop.check()?;
        for write in &checked.writes {
            let writer = Writer::open(&write.stream, &written(write, options))?;
            outputs.push(Sending { writer, stream: write.stream.clone(), steps: 0, bytes: 0 });
        }
        if is_shared(checked, options.ranks) || is_apart(options) {
            *ranks = Some(Ranks::open(checked, options)?);
        }
        if options.ranks > 1 {
            self.look_ahead(options)?;
        }
        let mut readers = Vec::new();
        for read in &checked.reads {
            let options = self::read(&checked.name, read, options)?;
            readers.push(Reader::open(&read.stream, &options)?);
        }
        let threads = match options.threads {
            0 => thread::available_parallelism().map_or(1, usize::from),
            n => n.min(limits::MAX_THREADS),
        };
        let nodes = checked.nodes.iter().map(|_| History::default()).collect();
        let origins = Origins::new(checked);
        let (plan, division, histories) = (None, None, nodes);
        let mut state =
            State { flow: self, options, threads, plan, division, histories, origins, ranks };
        let mut all = Progress::default();
        while options.steps.is_none_or(|most| all.steps < most) && !readers.is_empty() {
            let Some(steps) = next(&mut readers, &mut all)? else {
                return all.ended(checked);
            };
            state.step(all.steps, &steps, outputs)?;
            let fetched = steps.iter().map(|step| step.report().fetched);
            all.fetched = fetched.fold(all.fetched, u64::saturating_add);
            all.steps += 1;
            if let Some(told) = &options.told {
                told.store(all.steps, Ordering::Relaxed);
            }
        }
        Ok(all)
    }
}

/// How far it has come: as [`Report`] has it.
#[derive(Debug, Default)]
struct Progress {
    steps: u64,
    dropped: u64,
    unpaired: u64,
    fetched: u64,
}

impl Progress {
    /// A stream has ended. That streams were there which have no step in common is no end, but a mistake.
    fn ended(self, checked: &Checked) -> Result<Progress> {
        if self.steps > 0 || self.unpaired == 0 {
            return Ok(self);
        }
        let names: Vec<&str> = checked.reads.iter().map(|read| read.stream.as_str()).collect();
        let message = format!(
            "streams {} have no step of the same number: {} were passed over",
            names.join(", "),
            self.unpaired
        );
        Err(Error::data(message).with_hint(
            "steps of several streams go together by their numbers; are these of the same run?",
        ))
    }
}

/// The next steps, one of each stream and all of the same number: who is behind comes up to the others. `None` if a stream has ended.
fn next(readers: &mut [Reader], all: &mut Progress) -> Result<Option<Vec<Step>>> {
    let mut steps: Vec<Option<Step>> = readers.iter().map(|_| None).collect();
    loop {
        let number = |step: &Option<Step>| step.as_ref().map(Step::number);
        let furthest = steps.iter().filter_map(number).max().unwrap_or(0);
        let behind = |step: &Option<Step>| number(step).is_none_or(|n| n < furthest);
        let mut is_found = true;
        for (reader, place) in readers.iter_mut().zip(&mut steps).filter(|(_, s)| behind(s)) {
            is_found = false;
            // Let go before the next one is waited for: its writers may need the room.
            all.unpaired = all.unpaired.saturating_add(u64::from(place.take().is_some()));
            let Some(step) = reader.next_step()? else {
                let left = steps.iter().filter(|step| step.is_some()).count() as u64;
                all.unpaired = all.unpaired.saturating_add(left);
                return Ok(None);
            };
            all.dropped = all.dropped.saturating_add(step.dropped());
            *place = Some(step);
        }
        if is_found {
            return Ok(Some(steps.into_iter().flatten().collect()));
        }
    }
}

fn written(write: &Writing, options: &Options) -> Written {
    let usual = Written::default();
    Written {
        spaces: options.spaces.clone(),
        rank: options.rank,
        writers: options.ranks,
        keep: write.keep.unwrap_or(usual.keep),
        queue: write.queue.unwrap_or(usual.queue),
        memory: write.memory.unwrap_or(usual.memory),
        readers: write.readers.unwrap_or(usual.readers),
        timeout: options.timeout,
        stop: options.stop.clone(),
        coupling: options.coupling.clone(),
        persist: write.persist.clone(),
        spill: write.spill.clone(),
        spill_limit: write.spill_limit,
    }
}

/// How a stream is read. Who names nodes of a pool looks for it there, whatever ranks he has beside him.
fn read(name: &str, read: &Reading, options: &Options) -> Result<Read> {
    let nodes = match (&read.nodes, &options.nodes) {
        (None, nodes) => nodes.clone(),
        (Some(only), Some(nodes)) => Some(nodes.among(only.clone())),
        (Some(only), None) if only.is_empty() => None,
        (Some(_), None) => {
            let message = format!("stream '{}' is looked for on nodes of a pool", read.stream);
            return Err(Error::usage(message).with_hint("the program gives none: Options::nodes"));
        }
    };
    Ok(Read {
        spaces: options.spaces.clone(),
        group: name.to_owned(),
        rank: options.rank,
        ranks: options.ranks,
        start: read.start,
        behind: read.behind,
        queue: read.queue,
        keep: read.keep,
        timeout: options.timeout,
        stop: options.stop.clone(),
        threads: options.threads,
        coupling: options.coupling.clone().filter(|_| read.nodes.is_none()),
        nodes,
    })
}

/// A stream that is being written.
struct Sending {
    writer: Writer,
    stream: String,
    steps: u64,
    bytes: u64,
}

/// A flow that runs in a thread. Dropped, it is stopped.
#[derive(Debug)]
pub struct Running {
    cancel: Cancel,
    thread: Option<thread::JoinHandle<Result<Report>>>,
}

impl Running {
    /// Has it end soon: readers of what it writes are told that it was given up.
    pub fn stop(&self) {
        self.cancel.cancel();
    }

    /// True once it has ended.
    pub fn is_over(&self) -> bool {
        self.thread.as_ref().is_none_or(thread::JoinHandle::is_finished)
    }

    /// Waits until it has ended.
    ///
    /// # Errors
    /// Those of [`Flow::run`].
    pub fn join(mut self) -> Result<Report> {
        self.wait()
    }

    fn wait(&mut self) -> Result<Report> {
        let Some(thread) = self.thread.take() else {
            return Err(Error::usage("it was waited for before"));
        };
        thread.join().unwrap_or_else(|_| Err(Error::internal("a flow panicked")))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
        if self.thread.is_some() {
            let _ = self.wait();
        }
    }
}

/// What there is while it runs.
struct State<'f> {
    flow: &'f Flow,
    options: &'f Options,
    threads: usize,
    plan: Option<Plan>,
    division: Option<Division>,
    /// Of each node.
    histories: Vec<History>,
    /// Of windows and samples, if there are some.
    origins: Option<Origins>,
    /// The other ranks, if they may work together.
    ranks: &'f mut Option<Ranks>,
}

fn odd() -> Error {
    Error::internal("a value that a flow does not have")
}

impl State<'_> {
    /// One step of all streams that are read.
    fn step(&mut self, now: u64, steps: &[Step], outputs: &mut [Sending]) -> Result<()> {
        self.know(now, steps)?;
        let (checked, plan) = (&*self.flow.checked, self.plan.as_ref().ok_or_else(odd)?);
        let Active { here, anywhere, mut uses } = plan.active(checked, now);
        let numbers: Vec<u64> = steps.iter().map(Step::number).collect();
        let mut values: Vec<Option<Value>> = vec![None; checked.slots.len()];
        // What is copied from other nodes stays until the end of the step.
        let mut memory = Memory { all: self.options.memory, taken: plan.bytes };
        let leaves = checked.slots.iter().enumerate();
        for (slot, (source, name)) in leaves.filter_map(|(i, s)| Some((i, s.leaf.as_ref()?))) {
            let wanted = plan.wanted.get(slot).and_then(Option::as_ref);
            let used = uses.get(slot).is_some_and(|n| *n > 0);
            if let (Some(bounds), true, Some(step)) = (wanted, used, steps.get(*source)) {
                let value = leaf(step, name, bounds, &mut memory);
                let value = value.map_err(|e| self.in_variable(*source, step, name, e))?;
                if let Some(place) = values.get_mut(slot) {
                    *place = Some(value);
                }
            }
        }
        let now = Now { step: now, numbers: &numbers, plan, checked, threads: self.threads };
        let left = memory.all.saturating_sub(memory.taken);
        // What this rank has of nodes on which all work, until it is needed.
        let mut shares: Vec<Share> = Vec::new();
        let each = checked.nodes.iter().zip(&mut self.histories).zip(&plan.work);
        let active = here.into_iter().zip(anywhere);
        for (i, (((node, history), work), (here, anywhere))) in each.zip(active).enumerate() {
            self.options.stop.check()?;
            let made = |share: &Share| checked.nodes.get(share.node).map(|node| node.first);
            let waits = || shares.iter().filter_map(made).any(|slot| node.inputs.contains(&slot));
            let weight: usize = shares.iter().map(Share::weight).sum();
            // All ranks meet at the same places.
            if anywhere && (weight >= ranks::AT_ONCE || waits()) {
                meet(&now, std::mem::take(&mut shares), &mut values, self.ranks, left)?;
            }
            if !here {
                continue;
            }
            let inputs = inputs(plan, i, node, &values)?;
            let of = plan::of(node, &plan.forms)?;
            if let op::Share::Part(part) = work {
                let mine = op::begin(&node.op, &of, part.as_ref(), &inputs, self.threads);
                let mine = mine.map_err(|e| node.error(e))?;
                shares.push(Share::new(i, mine, inputs));
            } else {
                let functions = &self.flow.functions;
                let rate = checked.slots.get(node.first).map(|slot| slot.rate);
                let is_due = rate.is_some_and(|rate| rate.is_at(now.step));
                let mut work = Work { threads: self.threads, functions, history, is_due };
                let (made, wanted) = (now.made(node), now.wanted(node)?);
                let job = Job { of: &of, made: &made, wanted };
                let made = op::compute(&node.op, &job, &inputs, &mut work);
                let made = made.map_err(|e| node.error(e))?;
                for (place, value) in values.iter_mut().skip(node.first).zip(made) {
                    *place = value;
                }
            }
            // What nobody needs any more goes.
            for slot in &node.inputs {
                if let Some(left) = uses.get_mut(*slot) {
                    *left = left.saturating_sub(1);
                    if *left == 0
                        && let Some(place) = values.get_mut(*slot)
                    {
                        *place = None;
                    }
                }
            }
        }
        if !shares.is_empty() {
            meet(&now, shares, &mut values, self.ranks, left)?;
        }
        let origins = self.origins.as_mut().map(|all| all.step(checked, now.step, &numbers));
        let origins = origins.unwrap_or_default();
        for ((write, shares), output) in checked.writes.iter().zip(&plan.shares).zip(outputs) {
            if write.rate.is_at(now.step) {
                send(&now, write, shares, &values, &origins, output, self.threads)?;
            }
        }
        Ok(())
    }

    fn in_variable(&self, source: usize, step: &Step, name: &str, e: Error) -> Error {
        let stream = self.flow.checked.reads.get(source).map_or("", |read| read.stream.as_str());
        let number = step.number();
        let said =
            format!("variable '{name}' of stream '{stream}' in step {number}: {}", e.message());
        retold(&e, said)
    }

    /// Looks what the variables are, and plans anew if they are others than before.
    fn know(&mut self, now: u64, steps: &[Step]) -> Result<()> {
        let checked = &*self.flow.checked;
        let mut leaves = Vec::new();
        let mut is_same = self.plan.is_some();
        for (slot, leaf) in checked.slots.iter().map(|s| &s.leaf).enumerate() {
            let Some((source, name)) = leaf else { continue };
            let step = steps.get(*source).ok_or_else(odd)?;
            let definition = step.variable(name).map_err(|e| {
                let stream = checked.reads.get(*source).map_or("", |read| read.stream.as_str());
                Error::new(e.kind(), format!("stream '{stream}': {}", e.message()))
            })?;
            let form = Form::of(definition);
            let declared = checked.forms.get(slot).and_then(Option::as_ref);
            if let Some(declared) = declared.filter(|said| !live::is_as_said(&form, said)) {
                let e = live::unlike(&form, declared);
                return Err(self.in_variable(*source, step, name, e));
            }
            let before = self.plan.as_ref().and_then(|plan| plan.leaves.get(slot));
            is_same = is_same && before == Some(&form);
            leaves.push(form);
        }
        if is_same {
            return Ok(());
        }
        let division = self.divide(&leaves, steps)?;
        let plan = Plan::new(checked, leaves, &division, self.options.memory)?;
        if let Some(before) = &self.plan {
            for node in &checked.nodes {
                let Operator::Window { steps, .. } = node.op else { continue };
                let form =
                    |plan: &Plan| node.inputs.first().and_then(|i| plan.forms.get(*i)).cloned();
                let same = |a: &Form, b: &Form| (a.dtype, &a.shape) == (b.dtype, &b.shape);
                if let (Some(was), Some(is)) = (form(before), form(&plan))
                    && !same(&was, &is)
                    && steps > 1
                {
                    return Err(node.error(Error::usage(format!(
                        "its value was {} and is {} in step {now}: they have no window together",
                        was.describe(),
                        is.describe()
                    ))));
                }
            }
        }
        self.plan = Some(plan);
        Ok(())
    }

    /// How ranks divide what they read: by where it lies at the first step, and so from then on, since windows have what they had.
    fn divide(&mut self, leaves: &[Form], steps: &[Step]) -> Result<Division> {
        if let Some(division) = &self.division {
            return Ok(division.clone());
        }
        let (rank, ranks) = (self.options.rank, self.options.ranks);
        let division = match self.ranks.as_mut().filter(|_| is_apart(self.options)) {
            Some(others) => {
                let checked = &self.flow.checked;
                let near = near(checked, leaves, steps)?;
                let wholes = plan::wholes(checked, leaves, ranks)?;
                let mut mine = division::said(&near, ranks);
                mine.extend(wholes.iter().map(|(_, boxes)| division::held(&near, boxes)));
                let all = others.compare(&mine)?;
                let nodes: Vec<usize> = wholes.into_iter().map(|(node, _)| node).collect();
                let division = division::division(&near, rank, &all, &nodes);
                division.ok_or_else(ranks::others_run_another)?
            }
            None => Division::plain(rank, ranks),
        };
        Ok(self.division.insert(division).clone())
    }
}

/// True if ranks are on several nodes.
fn is_apart(options: &Options) -> bool {
    options.ranks > 1 && options.coupling.as_ref().is_some_and(|coupling| coupling.is_apart())
}

/// What of the arrays that are read lies on this node.
fn near(checked: &Checked, leaves: &[Form], steps: &[Step]) -> Result<Vec<Near>> {
    let names = checked.slots.iter().filter_map(|slot| slot.leaf.as_ref());
    let one = |((source, name), form): (&(usize, String), &Form)| {
        let parts = steps.get(*source).ok_or_else(odd)?.parts_here(name)?;
        Ok(Near { shape: form.shape.clone(), size: form.dtype.size() as u64, parts })
    };
    names.zip(leaves).map(one).collect()
}

/// What a node works on: boxes of values.
fn inputs(plan: &Plan, i: usize, node: &Node, values: &[Option<Value>]) -> Result<Vec<Value>> {
    let of = plan::of(node, &plan.forms)?;
    let needs = plan.needs.get(i).ok_or_else(odd)?;
    let mut inputs = Vec::with_capacity(of.len());
    for ((slot, form), need) in node.inputs.iter().zip(&of).zip(needs) {
        inputs.push(match (need, values.get(*slot).and_then(Option::as_ref)) {
            (Some(need), Some(value)) => value.within(need),
            (None, _) => {
                let none = vec![0; form.shape.len()];
                Value { dtype: form.dtype, bounds: Bounds::new(&none, &none)?, tiles: Vec::new() }
            }
            (Some(_), None) => return Err(odd()),
        });
    }
    Ok(inputs)
}

/// What a flow may have, and has.
struct Memory {
    all: u64,
    taken: u64,
}

/// A box of a variable: where it lies, if all of it is on this node, else copied together.
fn leaf(step: &Step, name: &str, bounds: &Bounds, memory: &mut Memory) -> Result<Value> {
    let dtype = step.variable(name)?.dtype;
    let whole = |tiles| Value { dtype, bounds: bounds.clone(), tiles };
    if bounds.is_empty() {
        return Ok(whole(Vec::new()));
    }
    if let Some(array) = step.view(name, bounds)? {
        return Ok(whole(vec![Tile::there(array)]));
    }
    let parts = step.parts(name)?;
    let parts: Vec<Bounds> = parts
        .iter()
        .filter_map(|(_, part)| part.intersection(bounds))
        .take(MAX_TILES + 1)
        .collect();
    let total = parts.iter().fold(0u64, |sum, part| sum.saturating_add(part.elements()));
    // Where blocks lie over each other, the stream says whose elements count.
    let apart = total == bounds.elements() && covered(bounds, parts.iter()).is_ok();
    if apart && parts.len() <= MAX_TILES {
        let mut tiles = Vec::with_capacity(parts.len());
        for part in &parts {
            match step.view(name, part)? {
                Some(array) => tiles.push(Tile::there(array)),
                None => break,
            }
        }
        if tiles.len() == parts.len() {
            return Ok(whole(tiles));
        }
    }
    let bytes = bytes_of(bounds, dtype)? as u64;
    let taken = memory.taken.saturating_add(bytes);
    if taken > memory.all {
        return Err(Error::limit(format!(
            "{} of it would be copied together or from other nodes, and of the {} that the flow has {} are taken",
            format_size(bytes),
            format_size(memory.all),
            format_size(memory.taken)
        ))
        .with_hint("give it more memory, or more ranks"));
    }
    memory.taken = taken;
    Ok(whole(vec![Tile::there(step.get(name, bounds)?)]))
}

/// Writes a step.
fn send(
    now: &Now<'_>,
    write: &Writing,
    shares: &[Option<Bounds>],
    values: &[Option<Value>],
    origins: &[Option<Arc<Origin>>],
    output: &mut Sending,
    threads: usize,
) -> Result<()> {
    let mut variables = Vec::with_capacity(shares.len());
    for ((name, slot), share) in write.variables.iter().zip(shares) {
        let mut definition = now.plan.forms.get(*slot).ok_or_else(odd)?.definition(name);
        if let Some(Some(origin)) = origins.get(*slot) {
            definition.attributes.extend(origin.attributes(&now.checked.reads));
        }
        variables.push((output.writer.define(definition)?, *slot, share));
    }
    output.writer.begin()?;
    for (variable, slot, share) in variables {
        let Some(share) = share else { continue };
        let value = values.get(slot).and_then(Option::as_ref).ok_or_else(odd)?;
        let mut room = output.writer.empty(variable, share)?;
        value.within(share).gather_into(room.bytes_mut(), threads)?;
        output.bytes = output.bytes.saturating_add(room.bytes().len() as u64);
        output.writer.put_room(room)?;
    }
    output.writer.end()?;
    output.steps += 1;
    Ok(())
}
