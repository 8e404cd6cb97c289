//! `stead stage` where a daemon does the transfers.

use crate::args::{Described, StageArgs};
use crate::stage::{
    Bar, MOST_LISTED, Told, checked, listed, nothing_waits, previewed, range, request, show,
};
use crate::{output, signals};
use std::time::Duration;
use stead::daemon::Clients;
use stead::stage::{Standing, State, Status, Watcher};
use stead::{Cancel, Error, Kind, Result};

pub fn stage(a: &StageArgs, daemon: &Clients) -> Result<()> {
    if a.list {
        let list = statuses(daemon, a.all)?;
        return match a.format {
            Described::Json => output::json(&list),
            Described::Table => output::text(&listed(&list)),
        };
    }
    if let Some(id) = a.cancel {
        return show(a.format, &daemon.ask(|d| d.cancel(id))?, daemon.node());
    }
    let ids = match (a.resume, a.wait) {
        (Some(id), _) => {
            let ids = daemon.ask(|d| d.resume(id))?;
            // With a number it is an error.
            if ids.is_empty() {
                let command = format!("stead stage --resume ID{}", on(daemon));
                crate::complain(&nothing_waits(&statuses(daemon, true)?, &command));
            }
            ids
        }
        (_, Some(id)) => vec![id],
        _ => {
            let request = request(a)?;
            if a.check {
                return checked(a.format, &daemon.ask(|d| d.check(&request))?);
            }
            if a.dry_run {
                let preview = daemon.ask(|d| d.preview(&request))?;
                return match a.format {
                    Described::Json => output::json(&preview),
                    Described::Table => output::text(&previewed(&preview)),
                };
            }
            vec![daemon.ask(|d| d.submit(&request, &a.after))?]
        }
    };
    let mut told = Told::new(a, daemon.node());
    let outcome = if a.background {
        taken(a, daemon, &ids, &mut told)
    } else {
        let cancel = Cancel::new();
        let done = signals::watch(&cancel, false)?;
        let outcome = one_by_one(a, daemon, &ids, &cancel, &mut told);
        done.cancel();
        outcome
    };
    let closed = told.end();
    outcome.and(closed)
}

fn statuses(daemon: &Clients, all: bool) -> Result<Vec<Status>> {
    let list = daemon.ask(|d| d.list(all, MOST_LISTED))?;
    Ok(list.into_iter().map(|s| s.status).collect())
}

/// Waits for these, and tells what came of each.
fn one_by_one(
    a: &StageArgs,
    daemon: &Clients,
    ids: &[i64],
    cancel: &Cancel,
    told: &mut Told<'_>,
) -> Result<()> {
    let mut bad = None;
    for id in ids.iter().copied() {
        let status = until_over(a, daemon, id, cancel)?;
        told.tell(&status)?;
        if let Err(e) = status.outcome() {
            // Of several it is none that is wrong with the command.
            let e = if ids.len() > 1 { e.of_kind(Kind::Io) } else { e };
            bad.get_or_insert(ended(&status, e, &on(daemon)));
        }
    }
    bad.map_or(Ok(()), Err)
}

/// What was not finished, as an error of the command: that somebody has stopped it is none of its own.
pub fn ended(status: &Status, e: Error, on: &str) -> Error {
    // A wrong request is one whoever has found that.
    let kind = if e.kind() == Kind::Usage { Kind::Usage } else { Kind::Io };
    let ended = Error::new(kind, e.to_string());
    let again = format!("stead stage --resume {}{on}", status.id);
    match (status.state, kind) {
        (State::Cancelled, _) => ended,
        (_, Kind::Usage) => {
            ended.with_hint(format!("ask anew; or, once what is in the way has gone: {again}"))
        }
        _ => ended.with_hint(format!("mend what is wrong, then: {again}")),
    }
}

fn taken(a: &StageArgs, daemon: &Clients, ids: &[i64], told: &mut Told<'_>) -> Result<()> {
    for id in ids {
        match a.format {
            Described::Json => told.tell(&daemon.ask(|d| d.wait(*id, Duration::ZERO))?.status)?,
            Described::Table => output::text(&format!("{id}\n"))?,
        }
    }
    Ok(())
}

/// What a command for this daemon has at its end.
fn on(daemon: &Clients) -> String {
    daemon.node().map_or(String::new(), |node| format!(" --on {node}"))
}

/// Waits for one, over the end of a daemon that comes back.
fn until_over(a: &StageArgs, daemon: &Clients, id: i64, cancel: &Cancel) -> Result<Status> {
    let bar = Bar::new(a.progress);
    let on = on(daemon);
    let ended = daemon.wait(id, None, &mut |standing| {
        if cancel.is_cancelled() {
            return Err(Error::cancelled().with_hint(format!(
                "the daemon goes on with it: stead stage --wait {id}{on}; or give it up: stead stage --cancel {id}{on}"
            )));
        }
        match (&bar, standing) {
            (Some(bar), Some(Standing { progress: Some(progress), .. })) => bar.progress(progress),
            (Some(bar), Some(Standing { status, .. })) => {
                status.waits.iter().for_each(|why| bar.waits(why));
            }
            _ => {}
        }
        Ok(())
    });
    if let Some(bar) = &bar {
        bar.end();
    }
    Ok(ended?.status)
}

/// How long it will be, or what it waits for, for people.
pub fn left(s: &Standing) -> String {
    match &s.progress {
        Some(progress) if !progress.planned => "compares".to_owned(),
        Some(progress) => range(&progress.left),
        None => s.status.waits.as_ref().map_or(String::new(), |why| format!("waits: {why}")),
    }
}
