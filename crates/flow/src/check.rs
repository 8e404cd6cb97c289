//! What can be said of a graph before anything runs: names, references, cycles, parameters, when each value is there; and, as far as
//! variables are declared, types and shapes.

use crate::form::Form;
use crate::graph::{Graph, Operator};
use crate::op;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use stead_core::schema::distance;
use stead_core::{Error, Result, units};
use stead_stream::{Behind, Definition, Start, is_location};

/// Nodes of one flow.
const MAX_NODES: usize = 10_000;
/// Streams that one flow reads, and those that it writes.
const MAX_STREAMS: usize = 1024;
/// Values of one flow: variables that are read, and what nodes make.
const MAX_SLOTS: usize = 100_000;

/// At which steps of the flow a value is there: the step `first`, and every so many after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The first one.
    pub first: u64,
    /// From one to the next.
    pub every: u64,
}

impl Rate {
    /// True if there is a value at this step of the flow.
    pub fn is_at(self, step: u64) -> bool {
        step.checked_sub(self.first).is_some_and(|after| after.is_multiple_of(self.every.max(1)))
    }

    /// In words.
    pub fn describe(self) -> String {
        match self {
            Rate { first: 0, every: 1 } => "each step".to_owned(),
            Rate { first, every: 1 } => format!("each step from {first}"),
            Rate { first: 0, every } => format!("every {every} steps"),
            Rate { first, every } => format!("every {every} steps from {first}"),
        }
    }
}

/// A stream that is read.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Its name in references.
    pub alias: String,
    /// Its own name.
    pub stream: String,
    /// With which step it begins.
    pub start: Start,
    /// What happens when the flow is slow.
    pub behind: Behind,
    /// Steps that the flow may be behind, and that stay for it, if it says so.
    pub queue: Option<u64>,
    /// See `queue`.
    pub keep: Option<u64>,
    /// The nodes of a pool on which it is looked for, if not on all.
    pub nodes: Option<Vec<String>>,
}

/// A value: a variable of a stream that is read, or what a node makes.
#[derive(Debug, Clone)]
pub struct Slot {
    /// How it is referred to.
    pub name: String,
    /// Of a variable, the number of its stream and its name there.
    pub leaf: Option<(usize, String)>,
    /// When it is there.
    pub rate: Rate,
}

/// A node whose inputs come before it.
#[derive(Debug, Clone)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it does.
    pub op: Operator,
    /// The slots that it works on.
    pub inputs: Vec<usize>,
    /// The first of the slots that it makes.
    pub first: usize,
    /// How many it makes.
    pub makes: usize,
}

impl Node {
    /// An error of this node, which names it.
    pub fn error(&self, e: Error) -> Error {
        retold(&e, format!("node '{}' ({}): {}", self.name, self.op.describe(), e.message()))
    }
}

/// A stream that is written.
#[derive(Debug, Clone)]
pub struct Writing {
    /// Its name.
    pub stream: String,
    /// Names of its variables and their slots.
    pub variables: Vec<(String, usize)>,
    /// When it has a step.
    pub rate: Rate,
    /// Options; those that are not said are the usual ones.
    pub keep: Option<u64>,
    /// As above.
    pub queue: Option<u64>,
    /// As above.
    pub readers: Option<u64>,
    /// As above.
    pub memory: Option<u64>,
    /// As above.
    pub persist: Option<String>,
    /// As above.
    pub spill: Option<String>,
    /// As above.
    pub spill_limit: Option<u64>,
}

/// A graph that makes sense.
#[derive(Debug, Clone)]
pub struct Checked {
    /// The name of the flow.
    pub name: String,
    /// What is read.
    pub reads: Vec<Reading>,
    /// All values: first the variables that are read.
    pub slots: Vec<Slot>,
    /// In an order in which they can be worked on: the same one for the same graph.
    pub nodes: Vec<Node>,
    /// What is written.
    pub writes: Vec<Writing>,
    /// Types and shapes of slots, as far as they are known before.
    pub forms: Vec<Option<Form>>,
}

/// Whether a node or a stream can have this name in references.
fn check_name(what: &str, name: &str) -> Result<()> {
    let fits = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 200 || !name.chars().all(fits) {
        let name: String = name.chars().take(40).flat_map(char::escape_debug).collect();
        return Err(Error::usage(format!("{what} cannot have the name '{name}'"))
            .with_hint("use letters, digits, _ and -"));
    }
    Ok(())
}

/// What is known by references.
struct Names<'g> {
    graph: &'g Graph,
    /// Numbers of streams.
    reads: HashMap<&'g str, usize>,
    /// Slots by reference.
    slots: BTreeMap<String, usize>,
}

impl Names<'_> {
    /// Which node a reference is of, if it is of one.
    fn node(&self, reference: &str) -> Option<&str> {
        let name = reference.split_once('.').map_or(reference, |(name, _)| name);
        self.graph.node.get_key_value(name).map(|(name, _)| name.as_str())
    }

    /// An error if a reference is to nothing.
    fn check(&self, reference: &str) -> Result<()> {
        let (name, rest) = match reference.split_once('.') {
            Some((name, rest)) => (name, Some(rest)),
            None => (reference, None),
        };
        if let Some(op) = self.graph.node.get(name) {
            let parts = op.parts();
            return match rest {
                None if parts.is_empty() => Ok(()),
                None => Err(Error::usage(format!("'{name}' makes several values"))
                    .with_hint(format!("say which: {name}.{}", parts.join(&format!(", {name}."))))),
                Some(part) if parts.iter().any(|p| p == part) => Ok(()),
                Some(part) if parts.is_empty() => {
                    Err(Error::usage(format!("'{name}' makes one value and has no part '{part}'"))
                        .with_hint(format!("refer to it as '{name}'")))
                }
                Some(part) => Err(Error::usage(format!("'{name}' has no part '{part}'"))
                    .with_hint(format!("its parts are {}", parts.join(", ")))),
            };
        }
        if self.reads.contains_key(name) {
            return match rest {
                Some(variable) if !variable.is_empty() => Ok(()),
                _ => Err(Error::usage(format!("'{name}' is a stream and no value"))
                    .with_hint(format!("name a variable of it: {name}.VARIABLE"))),
            };
        }
        let known = self.graph.node.keys().chain(self.graph.read.keys());
        let close = known.map(|k| (distance(k, name), k)).min().filter(|(d, _)| *d <= 2);
        let e = Error::usage(format!("there is no node and no stream '{name}' that is read"));
        Err(match close {
            Some((_, close)) => e.with_hint(format!("did you mean '{close}'?")),
            None => {
                e.with_hint("name a node, or VARIABLE of a stream under [read] as STREAM.VARIABLE")
            }
        })
    }
}

/// Checks all that can be known of a graph, and puts it in order.
///
/// # Errors
/// `Usage`, with the name of what is wrong; `Limit` for graphs that are too large.
pub fn check(graph: &Graph) -> Result<Checked> {
    if graph.node.len() > MAX_NODES {
        return Err(Error::limit(format!("a flow of {} nodes", graph.node.len()))
            .with_hint(format!("at most {MAX_NODES} are supported")));
    }
    for (what, streams) in [("reads", graph.read.len()), ("writes", graph.write.len())] {
        if streams > MAX_STREAMS {
            return Err(Error::limit(format!("a flow that {what} {streams} streams"))
                .with_hint(format!("at most {MAX_STREAMS} are supported")));
        }
    }
    check_name("a flow", &graph.name)?;
    let mut reads = Vec::new();
    let mut known = HashMap::new();
    for (alias, source) in &graph.read {
        check_name("a stream in references", alias)?;
        if graph.node.contains_key(alias) {
            return Err(Error::usage(format!(
                "'{alias}' is both a stream that is read and a node"
            ))
            .with_hint("give one of them another name; [read.NAME] may say stream = \"...\""));
        }
        known.insert(alias.as_str(), reads.len());
        let stream = source.stream.clone().unwrap_or_else(|| alias.clone());
        if !is_location(&stream) {
            stead_stream::check_name(&stream).map_err(|e| in_input(alias, e))?;
        }
        let (start, behind) = (source.start.into(), source.behind.into());
        if source.queue == Some(0) {
            let message = format!("stream '{stream}' is read with a queue of 0 steps");
            return Err(Error::usage(message)
                .with_hint("give 1 or more, or leave it out for the queue of the stream"));
        }
        let (queue, keep, nodes) = (source.queue, source.keep, source.nodes.clone());
        reads.push(Reading { alias: alias.clone(), stream, start, behind, queue, keep, nodes });
    }
    for (i, read) in reads.iter().enumerate() {
        if let Some(other) = reads.iter().take(i).find(|other| other.stream == read.stream) {
            return Err(Error::usage(format!(
                "stream '{}' is read twice, as '{}' and as '{}'",
                read.stream, other.alias, read.alias
            ))
            .with_hint("refer to its variables by one of the names"));
        }
    }
    let names = Names { graph, reads: known, slots: BTreeMap::new() };
    for (name, op) in &graph.node {
        check_name("a node", name)?;
        let place = |e: Error| in_node(name, op, e);
        for part in op.parts() {
            check_name("a part", part).map_err(place)?;
        }
        op.of().iter().try_for_each(|reference| names.check(reference)).map_err(place)?;
        op::check(op).map_err(place)?;
    }
    for (stream, output) in &graph.write {
        let place = |e: Error| in_output(stream, e);
        stead_stream::check_name(stream)
            .map_err(|e| retold(&e, format!("[write]: {}", e.message())))?;
        if output.variables.is_empty() {
            return Err(place(Error::usage("it has no variable"))
                .with_hint("name what it is to have: variables = { mean = \"mean\" }"));
        }
        output.variables.values().try_for_each(|r| names.check(r)).map_err(place)?;
        match (&output.persist, &output.spill, &output.spill_limit) {
            (Some(_), Some(_), _) => {
                return Err(place(Error::usage("a stream that is recorded spills there, too"))
                    .with_hint("give persist or spill, and not both"));
            }
            (_, None, Some(_)) => {
                return Err(place(Error::usage(
                    "there is a limit for what spills, and nothing does",
                ))
                .with_hint("give spill, too; what is recorded with persist stays"));
            }
            _ => {}
        }
        if let Some(read) = reads.iter().find(|read| read.stream == *stream) {
            return Err(Error::usage(format!(
                "stream '{stream}' is read (as '{}') and written by the same flow: that would be a cycle",
                read.alias
            ))
            .with_hint("write a stream of another name"));
        }
    }
    if graph.write.is_empty() {
        return Err(Error::usage("the flow writes no stream")
            .with_hint("say what comes out: [write.NAME] with variables = { mean = \"mean\" }"));
    }
    let order = order(&names)?;
    build(graph, names, reads, &order)
}

fn in_node(name: &str, op: &Operator, e: Error) -> Error {
    Node { name: name.to_owned(), op: op.clone(), inputs: Vec::new(), first: 0, makes: 0 }.error(e)
}

fn in_input(alias: &str, e: Error) -> Error {
    retold(&e, format!("[read.{alias}]: {}", e.message()))
}

fn in_output(stream: &str, e: Error) -> Error {
    retold(&e, format!("stream '{stream}' that is written: {}", e.message()))
}

/// An error in other words, with its hint.
pub fn retold(e: &Error, message: String) -> Error {
    let told = Error::new(e.kind(), message);
    match e.hint() {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}

/// Nodes in an order in which each comes after those that it needs; among those that could come next, the first by name.
fn order<'g>(names: &Names<'g>) -> Result<Vec<&'g str>> {
    let graph = names.graph;
    let mut waits: BTreeMap<&str, usize> = BTreeMap::new();
    let mut needed: BTreeMap<&str, Vec<&'g str>> = BTreeMap::new();
    for (name, op) in &graph.node {
        let of: BTreeSet<&str> = op.of().iter().filter_map(|r| names.node(r)).collect();
        waits.insert(name, of.len());
        let known = of.iter().filter_map(|n| graph.node.get_key_value(*n));
        known.for_each(|(n, _)| needed.entry(n.as_str()).or_default().push(name));
    }
    let mut ready: BTreeSet<&'g str> = BTreeSet::new();
    ready.extend(graph.node.keys().map(String::as_str).filter(|n| waits.get(n) == Some(&0)));
    let mut order = Vec::with_capacity(graph.node.len());
    while let Some(next) = ready.pop_first() {
        order.push(next);
        for user in needed.get(next).into_iter().flatten() {
            if let Some(left) = waits.get_mut(user) {
                *left -= 1;
                if *left == 0 {
                    ready.insert(user);
                }
            }
        }
    }
    if order.len() == graph.node.len() {
        return Ok(order);
    }
    // Whoever still waits has somebody before it that does, too: going back leads around.
    let stuck = |name: &&str| waits.get(name).is_some_and(|left| *left > 0);
    let mut path: Vec<&str> = Vec::new();
    let mut at = graph.node.keys().map(String::as_str).find(|n| stuck(n)).unwrap_or_default();
    while !path.contains(&at) {
        path.push(at);
        let of = graph.node.get(at).map(Operator::of).unwrap_or_default();
        at = of.iter().filter_map(|r| names.node(r)).find(|n| stuck(n)).unwrap_or(at);
    }
    let begin = path.iter().position(|n| *n == at).unwrap_or(0);
    let mut cycle: Vec<&str> = path.get(begin..).unwrap_or_default().to_vec();
    cycle.reverse();
    let shown: Vec<&str> = cycle.iter().take(12).copied().collect();
    let dots = if cycle.len() > shown.len() { " -> ..." } else { "" };
    let first = shown.first().copied().unwrap_or_default();
    Err(Error::usage(format!("nodes need each other: {}{dots} -> {first}", shown.join(" -> ")))
        .with_hint("a flow has no cycles: take one of the references away"))
}

fn build(
    graph: &Graph,
    mut names: Names<'_>,
    reads: Vec<Reading>,
    order: &[&str],
) -> Result<Checked> {
    let mut slots: Vec<Slot> = Vec::new();
    let mut forms: Vec<Option<Form>> = Vec::new();
    let ops = order.iter().filter_map(|name| graph.node.get(*name));
    let references = ops
        .flat_map(|op| op.of())
        .chain(graph.write.values().flat_map(|output| output.variables.values()));
    for reference in references {
        let Some((alias, variable)) = reference.split_once('.') else { continue };
        let Some(read) = names.reads.get(alias).copied() else { continue };
        if names.slots.contains_key(reference) {
            continue;
        }
        let declared = graph.read.get(alias).and_then(|s| s.variables.get(variable));
        let form = declared.map(|d| {
            let mut definition = Definition::new(variable, d.dtype, d.shape.clone());
            definition.dims.clone_from(&d.dims);
            definition.check().map_err(|e| {
                Error::usage(format!("stream '{alias}' that is read: {}", e.message()))
            })?;
            Ok(Form::of(&definition))
        });
        forms.push(form.transpose()?);
        names.slots.insert(reference.clone(), slots.len());
        let leaf = Some((read, variable.to_owned()));
        slots.push(Slot { name: reference.clone(), leaf, rate: Rate { first: 0, every: 1 } });
    }
    let mut nodes: Vec<Node> = Vec::new();
    for name in order {
        let Some(op) = graph.node.get(*name) else { continue };
        let found = |r: &String| names.slots.get(r).copied();
        let inputs: Vec<usize> = op.of().iter().filter_map(found).collect();
        let parts = op.parts();
        let node = Node {
            name: (*name).to_owned(),
            op: op.clone(),
            first: slots.len(),
            makes: parts.len().max(1),
            inputs,
        };
        if slots.len() + node.makes > MAX_SLOTS {
            return Err(Error::limit(format!("a flow of more than {MAX_SLOTS} values")));
        }
        let together = |slots: &[Slot]| -> Result<Rate> { same_rate(slots, &node.inputs) };
        let rate = together(&slots).and_then(|r| op::rate(op, r)).map_err(|e| node.error(e))?;
        let of: Option<Vec<&Form>> =
            node.inputs.iter().map(|i| forms.get(*i).and_then(Option::as_ref)).collect();
        let made = match of {
            Some(of) => {
                op::forms(op, &of).map_err(|e| node.error(e))?.into_iter().map(Some).collect()
            }
            None => vec![None; node.makes],
        };
        forms.extend(made);
        if parts.is_empty() {
            names.slots.insert((*name).to_owned(), slots.len());
            slots.push(Slot { name: (*name).to_owned(), leaf: None, rate });
        }
        for part in parts {
            let whole = format!("{name}.{part}");
            names.slots.insert(whole.clone(), slots.len());
            slots.push(Slot { name: whole, leaf: None, rate });
        }
        nodes.push(node);
    }
    let mut writes = Vec::new();
    for (stream, output) in &graph.write {
        let found =
            |(name, r): (&String, &String)| names.slots.get(r).map(|slot| (name.clone(), *slot));
        let variables: Vec<(String, usize)> = output.variables.iter().filter_map(found).collect();
        let of: Vec<usize> = variables.iter().map(|(_, slot)| *slot).collect();
        let rate = same_rate(&slots, &of).map_err(|e| in_output(stream, e))?;
        let size = |said: &Option<String>| {
            let size = said.as_deref().map(units::parse_size).transpose();
            size.map_err(|e| in_output(stream, e))
        };
        writes.push(Writing {
            stream: stream.clone(),
            variables,
            rate,
            keep: output.keep,
            queue: output.queue,
            readers: output.readers,
            memory: size(&output.memory)?,
            persist: output.persist.clone(),
            spill: output.spill.clone(),
            spill_limit: size(&output.spill_limit)?,
        });
    }
    Ok(Checked { name: graph.name.clone(), reads, slots, nodes, writes, forms })
}

/// When values that are wanted together are there.
fn same_rate(slots: &[Slot], of: &[usize]) -> Result<Rate> {
    let mut each = of.iter().filter_map(|i| slots.get(*i));
    let Some(first) = each.next() else { return Ok(Rate { first: 0, every: 1 }) };
    match each.find(|slot| slot.rate != first.rate) {
        None => Ok(first.rate),
        Some(other) => Err(Error::usage(format!(
            "its values come at different steps: '{}' {}, '{}' {}",
            first.name,
            first.rate.describe(),
            other.name,
            other.rate.describe()
        ))
        .with_hint("use the same windows and samples for them, or write two streams")),
    }
}
