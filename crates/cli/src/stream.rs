//! `stead stream`: streams of this node and of the pool, for people who look after them.

use crate::args::{Asked, Described, StreamArgs, StreamVerb};
use crate::{output, signals, table};
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead::daemon::StreamNodes;
use stead::stream::{
    Attribute, Basis, Behind, Budget, Definition, Description, Explanation, Giver, Group, Home,
    Missed, Nodes, Peer, Presence, Progress, Pull, Read, Reader, Recording, Spaces, Step, Survey,
    Taker, dataspaces, recordings,
};
use stead::{Cancel, Error, Kind, Result, units};

/// Ranges of steps in a row of a table.
const RANGES: usize = 3;
/// So often it is looked whether somebody wants it to end.
const LOOK: Duration = Duration::from_millis(200);

pub fn stream(a: &StreamArgs) -> Result<()> {
    let spaces = dataspaces()?;
    match &a.what {
        StreamVerb::Ls { location: Some(location), format, .. } => {
            recorded(location, &recordings(location, &spaces)?, *format)
        }
        StreamVerb::Ls { location: None, asked, format } => ls(&survey(spaces, asked), *format),
        StreamVerb::Show { name, asked, format } => {
            let told = survey(spaces, asked).describe(name)?;
            match format {
                Described::Json => output::json(&told),
                Described::Table => {
                    let pages: Vec<String> =
                        std::iter::once(&told.first).chain(&told.others).map(page).collect();
                    output::text(&(pages.join("\n") + &notes(&told.missed)))
                }
            }
        }
        StreamVerb::Explain { name, readers, asked, format } => {
            let told = survey(spaces, asked).explain(name, *readers)?;
            match format {
                Described::Json => output::json(&told),
                Described::Table => output::text(&explained(&told)),
            }
        }
        StreamVerb::Watch { name, steps, queue, timeout, format } => {
            let timeout = Duration::from_secs(*timeout);
            // So that several may look at the same time.
            let group = format!("stead-stream-watch-{}", std::process::id());
            let home = Home::open(&spaces)?;
            let usual = Read { spaces, timeout, nodes: StreamNodes::usual(), ..Read::default() };
            let options = Read { group, behind: Behind::Drop, queue: *queue, ..usual };
            watch(&home, name, &options, steps.unwrap_or(u64::MAX), *format)
        }
        StreamVerb::Rm { name, force, nodes, all_nodes, timeout, format } => {
            let here = nodes.is_empty() && !all_nodes;
            let asked = Asked { nodes: nodes.clone(), here, timeout: *timeout };
            rm(&survey(spaces, &asked), name, *force, *format)
        }
    }
}

/// Removes a stream on the nodes that are asked, and tells on which if others may be.
fn rm(survey: &Survey, name: &str, force: bool, format: Described) -> Result<()> {
    let told = survey.remove(name, force)?;
    if told.found.is_empty() {
        return Err(Error::new(Kind::NotFound, format!("there is no stream '{name}'")));
    }
    match format {
        Described::Json => output::json(&told)?,
        Described::Table if survey.nodes.is_none() => {}
        Described::Table => {
            let removed = |on: &stead::stream::Listed| match &on.node {
                Some(node) => format!("stream '{name}' was removed on node {node}\n"),
                None => format!("stream '{name}' was removed\n"),
            };
            output::text(&told.found.iter().map(removed).collect::<String>())?;
        }
    }
    let kept = |missed: &Missed| match &missed.node {
        Some(node) => format!("not on node {node}: {}", missed.error),
        None => missed.to_string(),
    };
    match &told.missed[..] {
        [] => Ok(()),
        missed => {
            let kept: Vec<String> = missed.iter().map(kept).collect();
            let kept = kept.join("; ");
            let message = format!("stream '{name}' was not removed everywhere: {kept}");
            Err(Error::new(Kind::Peer, message))
        }
    }
}

/// Of the nodes that are asked; of this one alone there are no others.
fn survey(spaces: Spaces, asked: &Asked) -> Survey {
    let only = asked.nodes.clone();
    let nodes: Option<Arc<dyn Nodes>> = match (asked.here, only.is_empty()) {
        (true, _) => None,
        (false, true) => StreamNodes::usual(),
        (false, false) => Some(Arc::new(StreamNodes::default().only(only.clone()))),
    };
    let timeout = Duration::from_secs(asked.timeout);
    Survey { spaces, nodes, only, timeout, ..Survey::default() }
}

/// Which nodes have not answered.
fn notes(missed: &[Missed]) -> String {
    missed.iter().map(|missed| format!("\n{missed}\n")).collect()
}

fn state(told: &Progress) -> String {
    match told {
        Progress::Live => "live".to_owned(),
        Progress::Ended => "ended".to_owned(),
        Progress::Failed { writer } => format!("failed: writer {writer}"),
        Progress::Removed => "removed".to_owned(),
    }
}

fn here(peers: &[Peer]) -> usize {
    peers.iter().filter(|peer| peer.presence == Presence::Here).count()
}

/// A stream in a list, as JSON has it.
#[derive(Serialize)]
#[serde(untagged)]
enum Listed {
    Told(Box<Description>),
    /// One that cannot be looked at, and why.
    Odd {
        name: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        node: Option<String>,
        error: String,
    },
    /// A node of which nothing is told.
    Missed(Missed),
}

fn ls(survey: &Survey, format: Described) -> Result<()> {
    let (mut all, mut odd) = (Vec::new(), String::new());
    let asked = survey.describe_all()?;
    for (of, told) in asked.found {
        match told {
            Ok(told) => all.push(Listed::Told(Box::new(told))),
            Err(e) => {
                let (name, node) = (of.name, of.node);
                let at = node.as_ref().map_or_else(String::new, |node| format!(" of node {node}"));
                odd += &format!("stream '{name}'{at} cannot be shown: {e}\n");
                odd += &e.hint().map_or_else(String::new, |hint| format!("  hint: {hint}\n"));
                all.push(Listed::Odd { name, node, error: e.to_string() });
            }
        }
    }
    if format == Described::Json {
        all.extend(asked.missed.into_iter().map(Listed::Missed));
        return output::json(&all);
    }
    let notes = notes(&asked.missed);
    if all.is_empty() {
        return output::text(&format!("there are no streams\n{notes}"));
    }
    let told = all.iter().filter_map(|one| match one {
        Listed::Told(told) => Some(&**told),
        Listed::Odd { .. } | Listed::Missed(_) => None,
    });
    let told: Vec<&Description> = told.collect();
    if told.is_empty() {
        return output::text(&(odd + &notes));
    }
    // Where there is a pool, nodes have names.
    let is_pool = told.iter().any(|told| told.node.is_some());
    let row = |told: &&Description| {
        let row = vec![
            told.name.clone(),
            told.node.clone().unwrap_or_default(),
            state(&told.state),
            told.complete.to_string(),
            format!("{} of {}", here(&told.writers), told.writers.len()),
            here(&told.readers).to_string(),
            format!("{} of {}", units::format_size(told.used), units::format_size(told.memory)),
        ];
        in_pool(row, is_pool)
    };
    let header = vec!["stream", "node", "state", "steps", "writers", "readers", "memory"];
    let header = in_pool(header, is_pool);
    let mut page = table::plain(&header, told.iter().map(row).collect());
    let budgets: BTreeMap<Option<&str>, Budget> =
        told.iter().filter_map(|told| Some((told.node.as_deref(), told.budget?))).collect();
    for (node, budget) in budgets {
        let at = node.map_or_else(String::new, |node| format!(" on node {node}"));
        page += &format!("\nall streams of this user{at}: {}\n", of_budget(budget));
    }
    if !odd.is_empty() {
        page += &format!("\n{odd}");
    }
    output::text(&(page + &notes))
}

/// A row, with the node in it where there is a pool.
fn in_pool<T>(mut row: Vec<T>, is_pool: bool) -> Vec<T> {
    if !is_pool {
        row.remove(1);
    }
    row
}

fn of_budget(budget: Budget) -> String {
    format!("{} of {} of memory", units::format_size(budget.used), units::format_size(budget.most))
}

/// How many steps a reader was given, and which the newest ones are.
fn had(peer: &Peer) -> String {
    let range = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    let newest = peer.had_ranges.len().saturating_sub(RANGES);
    let said: Vec<String> = peer.had_ranges.iter().skip(newest).map(range).collect();
    let before = if newest > 0 || peer.had_before > 0 { "..., " } else { "" };
    match said.is_empty() {
        true => peer.had.to_string(),
        false => format!("{} ({before}{})", peer.had, said.join(", ")),
    }
}

fn recorded(location: &str, all: &[Recording], format: Described) -> Result<()> {
    if format == Described::Json {
        return output::json(&all);
    }
    if all.is_empty() {
        return output::text(&format!("no streams were recorded in {location}\n"));
    }
    let row = |told: &Recording| {
        let whole = match &told.damage {
            Some(damage) => format!("damaged: {damage}"),
            None if told.is_whole => "whole".to_owned(),
            None => state(&told.state),
        };
        let (name, steps) = (told.name.clone(), told.steps.to_string());
        vec![told.location.clone(), name, steps, units::format_size(told.bytes), whole]
    };
    let header = ["location", "stream", "steps", "bytes", "state"];
    output::text(&table::plain(&header, all.iter().map(row).collect()))
}

fn page(told: &Description) -> String {
    let steps = match (told.steps.first(), told.steps.last()) {
        (Some(first), Some(last)) => {
            format!("{} complete, {} there ({first} to {last})", told.complete, told.steps.len())
        }
        _ => format!("{} complete, none there", told.complete),
    };
    let mut facts =
        vec![vec!["state".to_owned(), state(&told.state)], vec!["steps".to_owned(), steps]];
    if let Some(damage) = &told.damage {
        facts.insert(1, vec!["damaged".to_owned(), damage.clone()]);
    }
    if let Some(node) = &told.node {
        facts.insert(0, vec!["node".to_owned(), node.clone()]);
    }
    let elsewhere = told.all_writers.saturating_sub(told.writers.len() as u64);
    if elsewhere > 0 {
        facts.push(vec!["writers on other nodes".to_owned(), elsewhere.to_string()]);
    }
    // Of a stream that is in files, nobody waits for anybody.
    let is_recorded = told.queue == 0;
    let more = [
        vec!["kept".to_owned(), told.keep.to_string()],
        vec!["queued at most".to_owned(), told.queue.to_string()],
        vec![
            "memory".to_owned(),
            format!("{} of {}", units::format_size(told.used), units::format_size(told.memory)),
        ],
        vec!["at most so far".to_owned(), units::format_size(told.peak)],
    ];
    match is_recorded {
        true => facts.push(vec!["in files".to_owned(), units::format_size(told.used)]),
        false => facts.extend(more),
    }
    if let Some(budget) = told.budget {
        facts.push(vec!["all streams of this user".to_owned(), of_budget(budget)]);
    }
    let presence = |peer: &Peer| match peer.presence {
        Presence::Awaited => "awaited",
        Presence::Here => "here",
        Presence::Left => "has closed it",
        Presence::Died => "has died",
    };
    let common = |peer: &Peer| {
        let process = match (peer.process, peer.is_elsewhere, peer.node) {
            (None, ..) => "-".to_owned(),
            (Some(number), false, _) => number.to_string(),
            (Some(number), true, None) => format!("{number} on another node"),
            (Some(number), true, Some(node)) => format!("{number} on node {node}"),
        };
        [peer.rank.to_string(), process, presence(peer).to_owned()]
    };
    let writers = told.writers.iter().map(|peer| {
        let more = [
            peer.step.to_string(),
            units::format_size(peer.bytes),
            units::format_size(peer.memory),
            format!("{:.3} s", peer.waited_s),
            format!("{:.3} s", peer.copy_cpu_s),
        ];
        common(peer).into_iter().chain(more).collect()
    });
    let readers = told.readers.iter().map(|peer| {
        let group = peer.group.clone().unwrap_or_default();
        let more = [
            peer.step.to_string(),
            had(peer),
            peer.dropped.to_string(),
            units::format_size(peer.bytes),
            units::format_size(peer.memory),
            format!("{:.3} s", peer.waited_s),
            format!("{:.3} s", peer.copy_cpu_s),
        ];
        std::iter::once(group).chain(common(peer)).chain(more).collect()
    });
    let mut page = table::plain(&["stream", &told.name], facts);
    if !told.variables.is_empty() {
        page += "\n";
        let header = ["variable", "type", "shape", "dimensions", "units"];
        page += &table::left(&header, told.variables.iter().take(SHOWN).map(variable).collect());
        page += &rest(told.variables.len(), "variables");
    }
    page += "\n";
    let header = ["writer", "process", "", "steps", "put", "memory", "waited", "copies took"];
    page += &table::plain(&header, writers.collect());
    if !told.groups.is_empty() {
        page += "\n";
        let header = ["group", "ranks", "behind", "queue", "keep"];
        page += &table::plain(&header, told.groups.iter().map(|of| group(of, told)).collect());
    }
    if !told.readers.is_empty() {
        page += "\n";
        let header = [
            "readers",
            "rank",
            "process",
            "",
            "next",
            "had",
            "dropped",
            "copied",
            "looked at",
            "waited",
            "copies took",
        ];
        page += &table::plain(&header, readers.collect());
    }
    page
}

/// A row of the table of groups: the numbers that they go by, their own or the stream's.
fn group(of: &Group, told: &Description) -> Vec<String> {
    let behind = match of.behind {
        Behind::Block => "block",
        Behind::Drop => "drop",
        Behind::Spill => "spill",
    };
    let queue = of.queue.unwrap_or(told.queue).to_string();
    vec![of.group.clone(), of.ranks.to_string(), behind.to_owned(), queue, of.keep.to_string()]
}

/// A row of the table of variables.
fn variable(of: &Definition) -> Vec<String> {
    let shape: Vec<String> = of.shape.iter().map(u64::to_string).collect();
    let units = match of.attributes.get("units") {
        Some(Attribute::Text(units)) => units.clone(),
        _ => String::new(),
    };
    vec![of.name.clone(), of.dtype.to_string(), shape.join(" x "), of.dims.join(", "), units]
}

/// Rows of a table for people; all are in JSON.
const SHOWN: usize = 60;

fn explained(told: &Explanation) -> String {
    let Some(step) = told.step else {
        return format!(
            "no step of stream '{}' is there: nothing is known of its arrays\n{}",
            told.name,
            notes(&told.missed)
        );
    };
    let size = units::format_size;
    let mut page = format!(
        "What readers will get of a step of stream '{}' like step {step}: {} of {} writers on {}\n",
        told.name,
        size(told.bytes),
        told.writers.len(),
        on(&told.writers)
    );
    if told.elsewhere > 0 {
        page += &format!(
            "{} more writers are on other nodes: see there what they give\n",
            told.elsewhere
        );
    }
    if told.readers.is_empty() {
        return page
            + "nobody reads it: --readers N tells what so many would get\n"
            + &warned(told);
    }
    let basis = |taker: &Taker| match taker.basis {
        Basis::Step(step) if taker.unknown > 0 => {
            format!("step {step}, but for {} gets more", taker.unknown)
        }
        Basis::Step(step) => format!("what it got of step {step}"),
        Basis::Rows => "assumed: its rows".to_owned(),
        Basis::Nothing => "it gets nothing".to_owned(),
    };
    let process = |taker: &Taker| match (taker.process, taker.is_elsewhere, taker.node) {
        (None, ..) => "-".to_owned(),
        (Some(number), false, _) => number.to_string(),
        (Some(number), true, None) => format!("{number} on another node"),
        (Some(number), true, Some(node)) => format!("{number} on node {node}"),
    };
    let row = |taker: &Taker| {
        vec![
            taker.group.clone(),
            taker.rank.to_string(),
            process(taker),
            taker.boxes.to_string(),
            size(taker.copied),
            size(taker.looked),
            basis(taker),
        ]
    };
    let header = ["readers", "rank", "process", "boxes", "copied", "looked at", "by"];
    page += "\n";
    page += &table::plain(&header, told.readers.iter().take(SHOWN).map(row).collect());
    page += &rest(told.readers.len(), "readers");
    let mut pulls: Vec<&Pull> = told.pulls.iter().collect();
    if pulls.len() > SHOWN {
        pulls.sort_by_key(|pull| std::cmp::Reverse(pull.copied.saturating_add(pull.looked)));
    }
    let row = |pull: &&Pull| {
        let how = match (pull.copied, pull.looked, pull.is_sent) {
            (.., true) => "sent",
            (0, ..) => "look",
            (_, 0, _) => "copy",
            _ => "copy and look",
        };
        let runs = if pull.runs > 0 { pull.runs.to_string() } else { "-".to_owned() };
        vec![
            pull.group.clone(),
            pull.rank.to_string(),
            pull.writer.to_string(),
            size(pull.copied.saturating_add(pull.looked)),
            how.to_owned(),
            runs,
        ]
    };
    let header = ["readers", "rank", "from writer", "bytes", "how", "pieces"];
    page += "\n";
    page += &table::plain(&header, pulls.iter().take(SHOWN).map(row).collect());
    page += &rest(pulls.len(), "pairs");
    page +=
        &format!("\n{} copied and {} looked at in a step\n", size(told.copied), size(told.looked));
    if let Some(multiple) = told.multiple {
        page += &format!(
            "up to {} steps in memory, and the copies: {multiple:.1} times the bytes of a step\n",
            told.steps
        );
    }
    page + &warned(told)
}

fn rest(all: usize, what: &str) -> String {
    match all.saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!("and {more} {what} more: --format json has all\n"),
    }
}

fn warned(told: &Explanation) -> String {
    let warnings = told.warnings.iter();
    let said: String =
        warnings.map(|w| format!("\n{}: {}\n  {}\n", w.kind, w.message, w.hint)).collect();
    said + &notes(&told.missed)
}

/// The nodes that writers are on.
fn on(writers: &[Giver]) -> String {
    let nodes: BTreeSet<&str> = writers.iter().filter_map(|giver| giver.node.as_deref()).collect();
    match nodes.len() {
        0 => "this node".to_owned(),
        1..=8 => format!("node {}", nodes.into_iter().collect::<Vec<_>>().join(", node ")),
        many => format!("{many} nodes"),
    }
}

/// What was done in the whole stream, on this node, since the line before.
#[derive(Debug, Clone, Copy, Default, Serialize)]
struct Done {
    /// Bytes that readers have copied, and those that they have looked at.
    copied: u64,
    looked: u64,
    /// Seconds of processors that copies of writers and readers have taken.
    copy_cpu_s: f64,
    /// Seconds that writers have waited for others.
    writers_waited_s: f64,
    /// The most memory that arrays have taken at a time, since the beginning, and how many steps like this one that is.
    peak: u64,
    peak_steps: Option<f64>,
}

impl Done {
    fn of(told: &Description) -> Done {
        let sum = |of: fn(&Peer) -> u64| told.readers.iter().map(of).fold(0, u64::saturating_add);
        let all = told.writers.iter().chain(&told.readers);
        Done {
            copied: sum(|peer| peer.bytes),
            looked: sum(|peer| peer.memory),
            copy_cpu_s: all.map(|peer| peer.copy_cpu_s).sum(),
            writers_waited_s: told.writers.iter().map(|peer| peer.waited_s).sum(),
            peak: told.peak,
            peak_steps: None,
        }
    }

    /// Since another time, at a step of so many bytes. Readers that are forgotten have taken theirs along.
    fn since(self, before: Done, bytes: u64) -> Done {
        Done {
            copied: self.copied.saturating_sub(before.copied),
            looked: self.looked.saturating_sub(before.looked),
            copy_cpu_s: (self.copy_cpu_s - before.copy_cpu_s).max(0.0),
            writers_waited_s: (self.writers_waited_s - before.writers_waited_s).max(0.0),
            peak: self.peak,
            peak_steps: (bytes > 0).then(|| self.peak as f64 / bytes as f64),
        }
    }
}

/// A step, as JSON has it.
#[derive(Serialize)]
struct Row<'a> {
    step: u64,
    dropped: u64,
    /// Seconds since 1970.
    completed: f64,
    bytes: u64,
    variables: Vec<&'a Definition>,
    /// Nothing if the stream has gone meanwhile.
    report: Option<Done>,
}

#[allow(clippy::disallowed_methods)]
fn watch(home: &Home, name: &str, options: &Read, most: u64, format: Described) -> Result<()> {
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    let options = &Read { stop: cancel.clone().into(), ..options.clone() };
    let reader = Reader::open(name, options)?;
    let (mut before, mut out) = (Done::default(), output::Stream::new());
    for _ in 0..most {
        let begun = Instant::now();
        let step = loop {
            cancel.check()?;
            if let Some(step) = reader.next_part(LOOK)? {
                break step;
            }
            if reader.is_over() {
                done.cancel();
                return Ok(());
            }
            if begun.elapsed() > options.timeout {
                let message = format!("no step of stream '{name}' has become complete");
                return Err(Error::new(Kind::Timeout, message)
                    .with_hint("see what its writers do: stead stream show"));
            }
        };
        let now = home.describe(name).ok().map(|told| Done::of(&told));
        let text = line(&step, now.map(|now| now.since(before, step.bytes())), format)?;
        match out.text(&text).and_then(|()| out.flush()) {
            // Whoever read it has had enough.
            Err(_) if out.is_gone() => break,
            wrote => wrote?,
        }
        before = now.unwrap_or(before);
    }
    done.cancel();
    Ok(())
}

fn line(step: &Step, report: Option<Done>, format: Described) -> Result<String> {
    let completed = step.completed_at() as f64 / 1e9;
    if format == Described::Json {
        let row = Row {
            step: step.number(),
            dropped: step.dropped(),
            completed,
            bytes: step.bytes(),
            variables: step.variables().collect(),
            report,
        };
        return serde_json::to_string(&row)
            .map(|text| text + "\n")
            .map_err(|e| Error::internal(format!("cannot write JSON: {e}")));
    }
    let shown = |d: &Definition| {
        let shape: Vec<String> = d.shape.iter().map(u64::to_string).collect();
        format!("{} {}[{}]", d.name, d.dtype, shape.join(", "))
    };
    let few: Vec<String> = step.variables().take(6).map(shown).collect();
    let more = step.variables().count().saturating_sub(few.len());
    let more = if more > 0 { format!(", and {more} more") } else { String::new() };
    let dropped = match step.dropped() {
        0 => String::new(),
        n => format!("  ({n} before it had gone)"),
    };
    let (number, bytes) = (step.number(), units::format_size(step.bytes()));
    let date = units::format_date(completed as i64);
    let done = report.map_or_else(String::new, |done| {
        let (copied, looked) = (units::format_size(done.copied), units::format_size(done.looked));
        let peak =
            done.peak_steps.map_or_else(String::new, |n| format!(", memory up to {n:.1} steps"));
        let waited = match done.writers_waited_s {
            waited if waited >= 0.001 => format!(", writers waited {waited:.3} s"),
            _ => String::new(),
        };
        format!(
            "  (copied {copied}, looked at {looked}, copies took {:.3} s{waited}{peak})",
            done.copy_cpu_s
        )
    });
    let few = few.join(", ");
    Ok(format!("step {number:<6} {date}  {bytes:>10}  {few}{more}{dropped}{done}\n"))
}
