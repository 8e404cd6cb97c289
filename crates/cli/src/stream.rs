//! `stead stream`: streams of this node, for people who look after them.

use crate::args::{Described, StreamArgs, StreamVerb};
use crate::{output, signals, table};
use serde::Serialize;
use std::time::{Duration, Instant};
use stead::stream::{
    Behind, Definition, Description, Home, Peer, Presence, Progress, Read, Reader, Step, dataspaces,
};
use stead::{Cancel, Error, Kind, Result, units};

/// So often it is looked whether somebody wants it to end.
const LOOK: Duration = Duration::from_millis(200);

pub fn stream(a: &StreamArgs) -> Result<()> {
    let spaces = dataspaces()?;
    match &a.what {
        StreamVerb::Ls { format } => ls(&Home::open(&spaces)?, *format),
        StreamVerb::Show { name, format } => {
            let told = Home::open(&spaces)?.describe(name)?;
            match format {
                Described::Json => output::json(&told),
                Described::Table => output::text(&page(&told)),
            }
        }
        StreamVerb::Watch { name, steps, timeout, format } => {
            let timeout = Duration::from_secs(*timeout);
            // So that several may look at the same time.
            let group = format!("stead-stream-watch-{}", std::process::id());
            let options = Read { spaces, group, behind: Behind::Drop, timeout, ..Read::default() };
            watch(name, &options, steps.unwrap_or(u64::MAX), *format)
        }
        StreamVerb::Rm { name, force } => match Home::open(&spaces)?.remove(name, *force)? {
            true => Ok(()),
            false => Err(Error::new(Kind::NotFound, format!("there is no stream '{name}'"))),
        },
    }
}

fn state(told: &Description) -> String {
    match told.state {
        Progress::Live => "live".to_owned(),
        Progress::Ended => "ended".to_owned(),
        Progress::Failed { writer } => format!("failed: writer {writer}"),
        Progress::Removed => "removed".to_owned(),
    }
}

fn here(peers: &[Peer]) -> usize {
    peers.iter().filter(|peer| peer.presence == Presence::Here).count()
}

fn ls(home: &Home, format: Described) -> Result<()> {
    // One may go while others are looked at.
    let all: Vec<Description> =
        home.list()?.iter().filter_map(|name| home.describe(name).ok()).collect();
    if format == Described::Json {
        return output::json(&all);
    }
    if all.is_empty() {
        return output::text("there are no streams\n");
    }
    let row = |told: &Description| {
        vec![
            told.name.clone(),
            state(told),
            told.complete.to_string(),
            format!("{} of {}", here(&told.writers), told.writers.len()),
            here(&told.readers).to_string(),
            format!("{} of {}", units::format_size(told.used), units::format_size(told.memory)),
        ]
    };
    let header = ["stream", "state", "steps", "writers", "readers", "memory"];
    output::text(&table::plain(&header, all.iter().map(row).collect()))
}

fn page(told: &Description) -> String {
    let steps = match (told.steps.first(), told.steps.last()) {
        (Some(first), Some(last)) => {
            format!("{} complete, {} there ({first} to {last})", told.complete, told.steps.len())
        }
        _ => format!("{} complete, none there", told.complete),
    };
    let facts = vec![
        vec!["state".to_owned(), state(told)],
        vec!["steps".to_owned(), steps],
        vec!["kept".to_owned(), told.keep.to_string()],
        vec!["queued at most".to_owned(), told.queue.to_string()],
        vec![
            "memory".to_owned(),
            format!("{} of {}", units::format_size(told.used), units::format_size(told.memory)),
        ],
    ];
    let presence = |peer: &Peer| match peer.presence {
        Presence::Awaited => "awaited",
        Presence::Here => "here",
        Presence::Left => "has closed it",
        Presence::Died => "has died",
    };
    let common = |peer: &Peer| {
        let process = peer.process.map_or_else(|| "-".to_owned(), |number| number.to_string());
        [peer.rank.to_string(), process, presence(peer).to_owned()]
    };
    let writers = told.writers.iter().map(|peer| {
        let more = [
            peer.step.to_string(),
            units::format_size(peer.bytes),
            units::format_size(peer.memory),
        ];
        common(peer).into_iter().chain(more).collect()
    });
    let readers = told.readers.iter().map(|peer| {
        let group = peer.group.clone().unwrap_or_default();
        let more = [
            peer.step.to_string(),
            peer.had.to_string(),
            peer.dropped.to_string(),
            units::format_size(peer.bytes),
            units::format_size(peer.memory),
        ];
        std::iter::once(group).chain(common(peer)).chain(more).collect()
    });
    let mut page = table::plain(&["stream", &told.name], facts);
    page += "\n";
    page += &table::plain(&["writer", "process", "", "steps", "put", "memory"], writers.collect());
    if !told.readers.is_empty() {
        page += "\n";
        let header =
            ["readers", "rank", "process", "", "next", "had", "dropped", "copied", "looked at"];
        page += &table::plain(&header, readers.collect());
    }
    page
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
}

#[allow(clippy::disallowed_methods)]
fn watch(name: &str, options: &Read, most: u64, format: Described) -> Result<()> {
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    let mut reader = open(name, options, &cancel)?;
    for _ in 0..most {
        let begun = Instant::now();
        let step = loop {
            cancel.check()?;
            if let Some(step) = reader.next_step_within(LOOK)? {
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
        output::text(&line(&step, format)?)?;
    }
    done.cancel();
    Ok(())
}

/// Waits for the stream, and for who wants it to end.
#[allow(clippy::disallowed_methods)]
fn open(name: &str, options: &Read, cancel: &Cancel) -> Result<Reader> {
    let begun = Instant::now();
    loop {
        cancel.check()?;
        let left = options.timeout.saturating_sub(begun.elapsed());
        let soon = Read { timeout: LOOK.min(left), ..options.clone() };
        match Reader::open(name, &soon) {
            Err(e) if e.kind() == Kind::Timeout && !left.is_zero() => {}
            opened => return opened,
        }
    }
}

fn line(step: &Step, format: Described) -> Result<String> {
    let completed = step.completed_at() as f64 / 1e9;
    if format == Described::Json {
        let row = Row {
            step: step.number(),
            dropped: step.dropped(),
            completed,
            bytes: step.bytes(),
            variables: step.variables().collect(),
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
    Ok(format!("step {number:<6} {date}  {bytes:>10}  {}{more}{dropped}\n", few.join(", ")))
}
