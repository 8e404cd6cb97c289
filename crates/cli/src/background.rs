//! `stead flow` where a daemon runs the flow.

use crate::admin::shown;
use crate::args::{Described, FlowOf, FlowRunArgs};
use crate::flow::ran;
use crate::{output, signals, table};
use std::time::Duration;
use stead::daemon::{Clients, FlowOptions, FlowStanding, FlowState, nobody, user_number};
use stead::flow::Graph;
use stead::{Cancel, Error, Kind, Result};

/// The daemon of this node, or of another one, as it is for the flows of this user, or as administrators have it for those of others.
fn of(whose: &FlowOf) -> Result<Clients> {
    let daemon = daemon(whose.on.as_deref())?;
    match &whose.user {
        Some(user) => daemon.manage(user_number(user)?).map_err(shown),
        None => Ok(daemon),
    }
}

fn daemon(on: Option<&str>) -> Result<Clients> {
    Clients::open_on(None, on)?.ok_or_else(|| {
        nobody()
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

pub fn list(all: bool, whose: &FlowOf, format: Described) -> Result<()> {
    let list = of(whose)?.ask(|d| d.flows(all))?;
    match format {
        Described::Json => output::json(&list),
        Described::Table => output::text(&page(&list)),
    }
}

pub fn wait(flow: i64, timeout: Option<u64>, whose: &FlowOf, format: Described) -> Result<()> {
    let daemon = of(whose)?;
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    let said = [("on", &whose.on), ("user", &whose.user)];
    let said = said.iter().filter_map(|(name, of)| Some(format!(" --{name} {}", of.as_ref()?)));
    let at: String = said.collect();
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
        _ => shown(e),
    });
    match format {
        Described::Json => {
            output::json(&standing)?;
            report.map(|_| ())
        }
        Described::Table => output::text(&ran(report?)),
    }
}

pub fn cancel(flow: i64, whose: &FlowOf, format: Described) -> Result<()> {
    let standing = of(whose)?.ask(|d| d.cancel_flow(flow))?;
    match format {
        Described::Json => output::json(&standing),
        Described::Table => output::text(&format!("flow {flow} is {}\n", standing.state.name())),
    }
}

fn page(list: &[FlowStanding]) -> String {
    let rows = list.iter().map(|one| {
        vec![
            one.flow.to_string(),
            output::plain(one.name.as_ref()),
            one.state.name().to_owned(),
            one.steps.to_string(),
            format!("{:.1} s", one.seconds),
            output::plain(one.reads.join(", ").as_ref()),
            output::plain(one.writes.join(", ").as_ref()),
            match (one.state, &one.error) {
                (FlowState::Failed, Some(e)) => output::plain(e.message.as_ref()),
                _ => String::new(),
            },
        ]
    });
    let head = ["flow", "name", "state", "steps", "ran", "reads", "writes", "why"];
    table::left(&head, rows.collect())
}
