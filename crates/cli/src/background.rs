//! `stead flow` where a daemon runs the flow.

use crate::args::{Described, FlowRunArgs};
use crate::flow::ran;
use crate::{handed, output, signals, table};
use std::time::Duration;
use stead::daemon::{Clients, FlowOptions, FlowStanding, FlowState};
use stead::flow::Graph;
use stead::{Cancel, Error, Kind, Result};

/// The daemon of this node, or of another one.
fn daemon(on: Option<&str>) -> Result<Clients> {
    Clients::open_on(None, on)?.ok_or_else(|| {
        handed::none()
            .with_hint("start one: stead daemon; stead flow run without --background does without")
    })
}

pub fn begin(a: &FlowRunArgs) -> Result<()> {
    let graph = Graph::load(&a.file)?;
    let options = FlowOptions {
        threads: a.threads,
        memory: Some(a.memory),
        steps: a.steps,
        timeout: Some(a.timeout as f64),
    };
    let begun = daemon(a.on.as_deref())?.ask(|d| d.begin_flow(&graph, &options));
    let begun = begun.map_err(|e| e.at_path(&a.file))?;
    match a.format {
        Described::Json => output::json(&begun),
        Described::Table => output::text(&format!("{}\n", begun.flow)),
    }
}

pub fn list(all: bool, on: Option<&str>, format: Described) -> Result<()> {
    let list = daemon(on)?.ask(|d| d.flows(all))?;
    match format {
        Described::Json => output::json(&list),
        Described::Table => output::text(&page(&list)),
    }
}

pub fn wait(flow: i64, timeout: Option<u64>, on: Option<&str>, format: Described) -> Result<()> {
    let daemon = daemon(on)?;
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    let at = on.map_or(String::new(), |node| format!(" --on {node}"));
    let standing = daemon.wait_flow(flow, timeout.map(Duration::from_secs), &mut |_| {
        cancel.check().map_err(|_| {
            Error::cancelled().with_hint(format!(
                "the daemon goes on with it: stead flow wait {flow}{at}; or give it up: stead flow cancel {flow}{at}"
            ))
        })
    });
    done.cancel();
    let standing = standing?;
    // That somebody has given it up is no end of this command.
    let report = standing.outcome().map_err(|e| match standing.state {
        FlowState::Cancelled => Error::new(Kind::Io, e.to_string()),
        _ => e,
    });
    match format {
        Described::Json => {
            output::json(&standing)?;
            report.map(|_| ())
        }
        Described::Table => output::text(&ran(report?)),
    }
}

pub fn cancel(flow: i64, on: Option<&str>, format: Described) -> Result<()> {
    let standing = daemon(on)?.ask(|d| d.cancel_flow(flow))?;
    match format {
        Described::Json => output::json(&standing),
        Described::Table => output::text(&format!("flow {flow} is {}\n", standing.state.name())),
    }
}

fn page(list: &[FlowStanding]) -> String {
    let rows = list.iter().map(|one| {
        vec![
            one.flow.to_string(),
            one.name.clone(),
            one.state.name().to_owned(),
            one.steps.to_string(),
            format!("{:.1} s", one.seconds),
            one.reads.join(", "),
            one.writes.join(", "),
            match (one.state, &one.error) {
                (FlowState::Failed, Some(e)) => e.message.clone(),
                _ => String::new(),
            },
        ]
    });
    let head = ["flow", "name", "state", "steps", "ran", "reads", "writes", "why"];
    table::left(&head, rows.collect())
}
