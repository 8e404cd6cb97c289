//! `stead stage` and `stead df`.

use crate::args::{Described, DfArgs, ExistsArg, StageArgs, When};
use crate::{handed, output, signals, table};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::collections::BTreeSet;
use std::io::IsTerminal;
use stead::daemon::Clients;
use stead::stage::{
    Action, BucketUrl, Exists, Means, Options, Preview, Progress, Remaining, Request, Stager,
    State, Status, Usage, Watcher, dataspaces, location, state_folder, usage,
};
use stead::{Cancel, Error, Kind, Result, units};

/// Transfers that are listed.
pub const MOST_LISTED: usize = 1000;
/// Transfers shorter than this show nothing.
const PATIENCE_S: f64 = 0.5;

fn stager(given: &[String], threads: usize) -> Result<Stager> {
    let mut spaces = dataspaces()?;
    for one in given {
        spaces.give(one, &|name| std::env::var(name).ok())?;
    }
    Stager::open(&state_folder()?, Means { spaces, threads, ..Means::default() })
}

pub fn stage(a: &StageArgs) -> Result<()> {
    // A daemon knows nothing of what this command alone is told,
    // nor of credentials in its environment.
    let bucket = !a.background && is_of_bucket(a);
    let node = match &a.on {
        Some(node) => Some(node.clone()),
        None => node_of(a)?,
    };
    // What lies on another node only daemons bring.
    let is_far = |name: &String| location(name).is_ok_and(|at| at.node.is_some());
    let bucket = bucket && node.is_none() && !a.names.iter().any(is_far);
    let own = a.here || bucket || !a.dataspace.is_empty() || a.threads > 0;
    let daemon = if own { None } else { Clients::open_on(None, node.as_deref())? };
    if let Some(daemon) = daemon {
        return handed::stage(a, &daemon);
    }
    if a.background || !a.after.is_empty() {
        return Err(handed::none().with_hint(match own {
            true => "--dataspace and --threads are for transfers that this command does itself",
            false => "start one: stead daemon, or leave out --background and --after",
        }));
    }
    if node.is_some() && !own {
        return Err(handed::none().with_hint(
            "daemons that are a pool reach other nodes: mpirun stead daemon --pool; a file of such a name here is ./NAME",
        ));
    }
    here(a)
}

/// True if something of it is in a bucket: by its URL, or by the name of a dataspace that is one.
fn is_of_bucket(a: &StageArgs) -> bool {
    if a.names.iter().any(|name| BucketUrl::is_meant(name)) {
        return true;
    }
    let here = a.names.iter().filter_map(|name| location(name).ok()).filter(|at| at.node.is_none());
    let named: Vec<String> = here.filter_map(|at| at.space).collect();
    // Where they cannot be read, whoever does it says why.
    let spaces = if named.is_empty() { None } else { dataspaces().ok() };
    let is_bucket = |name: &String| {
        spaces.as_ref().and_then(|s| s.place(name).ok()).is_some_and(BucketUrl::is_meant)
    };
    named.iter().any(is_bucket)
}

/// The node that is to do it, if that is said: a transfer is done where its target is, and what is removed where it lies.
fn node_of(a: &StageArgs) -> Result<Option<String>> {
    if a.names.is_empty() {
        return Ok(None);
    }
    let request = request(a)?;
    if let Some(target) = request.target {
        return Ok(target.node);
    }
    let nodes: BTreeSet<_> = request.sources.into_iter().map(|source| source.node).collect();
    match nodes.len() {
        1 => Ok(nodes.into_iter().next().flatten()),
        _ => Err(Error::usage("these lie on several nodes").with_hint("remove them node by node")),
    }
}

fn here(a: &StageArgs) -> Result<()> {
    let stager = stager(&a.dataspace, a.threads)?;
    if a.list {
        let list = stager.statuses(a.all, MOST_LISTED)?;
        return match a.format {
            Described::Json => output::json(&list),
            Described::Table => output::text(&listed(&list)),
        };
    }
    if let Some(id) = a.cancel {
        return show(a, &stager.cancel(id)?, None);
    }
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    if let Some(id) = a.wait {
        let status = waited(a, &stager, id, &cancel)?;
        done.cancel();
        show(a, &status, None)?;
        return status.outcome().map_err(|e| handed::ended(&status, e, ""));
    }
    let ids = match a.resume {
        Some(Some(id)) => vec![stager.resumable(id)?.id],
        Some(None) => stager.waiting()?,
        None => {
            let request = request(a)?;
            if a.dry_run {
                let preview = stager.preview(&request, &cancel)?;
                done.cancel();
                return match a.format {
                    Described::Json => output::json(&preview),
                    Described::Table => output::text(&previewed(&preview)),
                };
            }
            // The same command again goes on with what it began.
            vec![match stager.same(&request)? {
                Some(id) => id,
                None => stager.submit(&request)?,
            }]
        }
    };
    let (mut failed, mut given_up) = (None, None);
    let several = ids.len() > 1;
    for id in ids {
        let bar = Bar::new(a.progress);
        let ended = stager.run(id, &cancel, bar.as_ref().map(|b| b as &dyn Watcher));
        if let Some(bar) = &bar {
            bar.end();
        }
        let status = match ended {
            Ok(status) => status,
            // Somebody has given it up: that is told as of any that could not be done.
            Err(e) if e.kind() == Kind::Cancelled && !cancel.is_cancelled() => {
                let status = stager.status(id)?;
                show(a, &status, None)?;
                let e = handed::ended(&status, e, "");
                if !several {
                    return Err(e);
                }
                crate::complain(&e);
                given_up.get_or_insert(id);
                continue;
            }
            // Of several, each gets its turn.
            Err(e) if several && e.kind() != Kind::Cancelled => {
                crate::complain(&e);
                failed.get_or_insert(id);
                continue;
            }
            Err(e) => return Err(e),
        };
        show(a, &status, None)?;
        if status.state == State::Failed {
            failed.get_or_insert(id);
        }
    }
    done.cancel();
    match (failed, given_up) {
        (None, None) => Ok(()),
        (None, Some(id)) => Err(Error::new(Kind::Io, format!("transfer {id} was cancelled"))),
        (Some(id), _) => {
            Err(Error::new(Kind::Io, format!("not all of transfer {id} could be done"))
                .with_hint(format!("mend what is wrong, then: stead stage --resume {id}")))
        }
    }
}

/// Waits for a transfer that another process does.
fn waited(a: &StageArgs, stager: &Stager, id: i64, cancel: &Cancel) -> Result<Status> {
    let bar = Bar::new(a.progress);
    let ended = stager.wait(id, None, &mut |status| {
        if cancel.is_cancelled() {
            return Err(Error::cancelled().with_hint(format!(
                "whoever does it goes on: stead stage --wait {id}; or give it up: stead stage --cancel {id}"
            )));
        }
        if let Some(bar) = &bar {
            bar.far(status);
        }
        Ok(())
    });
    if let Some(bar) = &bar {
        bar.end();
    }
    ended
}

pub fn request(a: &StageArgs) -> Result<Request> {
    let action = match (a.moves, a.sync, a.remove) {
        (true, ..) => Action::Move,
        (_, true, _) => Action::Sync,
        (.., true) => Action::Remove,
        _ => Action::Copy,
    };
    let mut names = a.names.iter().map(|name| location(name)).collect::<Result<Vec<_>>>()?;
    let target = match action {
        Action::Remove => None,
        _ if names.len() < 2 => {
            return Err(Error::usage("a source and a target are needed")
                .with_hint("stead stage SOURCE... TARGET; stead stage --help has examples"));
        }
        _ => names.pop(),
    };
    Ok(Request {
        action,
        sources: names,
        target,
        options: Options {
            exists: match a.exists {
                ExistsArg::Refuse => Exists::Refuse,
                ExistsArg::Replace => Exists::Replace,
                ExistsArg::Skip => Exists::Skip,
                ExistsArg::Newer => Exists::Newer,
            },
            delete: a.delete,
            verify: a.verify,
            skip_special: a.skip_special,
            durable: !a.no_sync,
            gentle: a.gentle,
            limit: a.limit,
            priority: a.priority,
            ..Options::default()
        },
    })
}

/// `node` is that of the daemon, if it was named.
pub fn show(a: &StageArgs, status: &Status, node: Option<&str>) -> Result<()> {
    match a.format {
        Described::Json => output::json(status),
        Described::Table => output::text(&page(status, node)),
    }
}

pub fn names(request: &Request) -> String {
    let first = request.sources.first().map(ToString::to_string).unwrap_or_default();
    let more = match request.sources.len() {
        0 | 1 => String::new(),
        n => format!(" and {} more", n - 1),
    };
    match &request.target {
        Some(target) => format!("{first}{more} -> {target}"),
        None => format!("{first}{more}"),
    }
}

pub fn action(request: &Request) -> &'static str {
    match request.action {
        Action::Copy => "copy",
        Action::Move => "move",
        Action::Sync => "sync",
        Action::Remove => "remove",
    }
}

fn page(s: &Status, node: Option<&str>) -> String {
    let seconds = s.seconds(s.ended.unwrap_or(s.submitted));
    let mut rows = vec![
        (action(&s.request), names(&s.request)),
        (
            "state",
            match node {
                Some(node) => format!("{}, transfer {} of node {node}", s.state.as_str(), s.id),
                None => format!("{}, transfer {}", s.state.as_str(), s.id),
            },
        ),
        (
            "done",
            format!(
                "{} of {} name(s), {} of {}{}",
                s.files_done,
                s.files,
                units::format_size(s.bytes_done),
                units::format_size(s.bytes),
                match s.skipped {
                    0 => String::new(),
                    n => format!(", {n} left as they were"),
                }
            ),
        ),
    ];
    if s.started.is_some() {
        let rate = (s.bytes_done as f64 / seconds.max(1e-9)) as u64;
        let rate = match s.bytes_done {
            0 => String::new(),
            _ => format!(", {}/s", units::format_size(rate)),
        };
        rows.push(("took", format!("{}{rate}", units::format_seconds(seconds))));
    }
    if let Some(waits) = &s.waits {
        rows.push(("waits", waits.clone()));
    }
    for failure in &s.failures {
        rows.push(("failed", failure.error.clone()));
    }
    let more = s.failed.saturating_sub(s.failures.len() as u64);
    if more > 0 {
        rows.push(("failed", format!("and {more} more")));
    }
    if let Some(error) = &s.error {
        rows.push(("error", error.clone()));
    }
    rows.iter().map(|(key, value)| format!("{key:6}  {value}\n")).collect()
}

pub fn range(takes: &Remaining) -> String {
    let time = units::format_seconds;
    format!("{} ({} to {})", time(takes.seconds), time(takes.low), time(takes.high))
}

pub fn previewed(p: &Preview) -> String {
    let size = units::format_size;
    let mut rows = vec![("files", format!("{}, {}", p.files, size(p.bytes)))];
    let mut count = |what: &'static str, n: u64| {
        if n > 0 {
            rows.push((what, n.to_string()));
        }
    };
    count("other", p.others);
    count("rename", p.renamed);
    count("remove", p.removed);
    count("leave", p.skipped);
    if let Some(free) = p.free {
        rows.push(("room", format!("{} of {} that are free", size(p.room), size(free))));
    }
    rows.push(("takes", range(&p.takes)));
    rows.iter().map(|(key, value)| format!("{key:6}  {value}\n")).collect()
}

pub fn listed(list: &[Status]) -> String {
    if list.is_empty() {
        return "no transfers\n".to_owned();
    }
    let rows = list.iter().map(|s| {
        vec![
            s.id.to_string(),
            s.state.as_str().to_owned(),
            action(&s.request).to_owned(),
            names(&s.request),
            format!("{}/{}", s.files_done, s.files),
            format!("{} of {}", units::format_size(s.bytes_done), units::format_size(s.bytes)),
            s.waits.clone().unwrap_or_default(),
        ]
    });
    table::plain(&["id", "state", "action", "what", "names", "bytes", "waits"], rows.collect())
}

pub fn df(a: &DfArgs) -> Result<()> {
    let own = a.here || !a.dataspace.is_empty();
    let list = match if own { None } else { Clients::open(None)? } {
        Some(daemon) => daemon.ask(stead::daemon::Client::spaces)?,
        None => usage(&stager(&a.dataspace, 0)?, &Cancel::new())?,
    };
    if a.format == Described::Json {
        return output::json(&list);
    }
    output::text(&used(&list))
}

/// Dataspaces as a table.
pub fn used(list: &[Usage]) -> String {
    let size = |bytes: Option<u64>| bytes.map_or("-".to_owned(), units::format_size);
    let rate = |rate: f64| match rate {
        r if r > 0.0 => format!("{}/s", units::format_size(r as u64)),
        _ => "-".to_owned(),
    };
    // Those that leave less to this user.
    let quota = |u: &Usage| {
        let both = [u.quota.zip(u.quota_used), u.user_quota.zip(u.user_quota_used)];
        let least =
            both.into_iter().flatten().min_by_key(|(quota, used)| quota.saturating_sub(*used));
        least.map_or("-".to_owned(), |(quota, used)| {
            format!("{} of {}", units::format_size(used), units::format_size(quota))
        })
    };
    let row = |u: &Usage| {
        vec![
            u.name.clone(),
            u.error.clone().or_else(|| u.path.clone()).unwrap_or_default(),
            u.kind.clone(),
            u.tier.clone().unwrap_or_else(|| "-".to_owned()),
            size(u.size),
            size(u.used),
            size(u.free),
            quota(u),
            u.transfers.map_or(u.running.to_string(), |most| format!("{} of {most}", u.running)),
            match (u.limit, u.gentle) {
                (Some(limit), true) => format!("{}/s, gentle", units::format_size(limit)),
                (Some(limit), false) => format!("{}/s", units::format_size(limit)),
                (None, true) => "gentle".to_owned(),
                (None, false) => "-".to_owned(),
            },
            rate(u.read_rate),
            rate(u.write_rate),
        ]
    };
    let heads = [
        "dataspace",
        "folder",
        "kind",
        "tier",
        "size",
        "used",
        "free",
        "quota",
        "running",
        "limit",
        "reads",
        "writes",
    ];
    table::plain(&heads, list.iter().map(row).collect())
}

/// A bar with rate and remaining time.
pub struct Bar(ProgressBar);

impl Bar {
    pub fn new(when: When) -> Option<Bar> {
        let terminal = std::io::stderr().is_terminal();
        let wanted = match when {
            When::Always => true,
            When::Never => false,
            When::Auto => terminal,
        };
        wanted.then(|| {
            let target = match terminal {
                true => ProgressDrawTarget::stderr_with_hz(10),
                // Into a file or a pipe there is no redrawing.
                false => ProgressDrawTarget::hidden(),
            };
            let bar = ProgressBar::with_draw_target(None, target);
            if let Ok(style) = ProgressStyle::with_template(
                "{wide_bar:.cyan/dim} {bytes}/{total_bytes}  {binary_bytes_per_sec}  {msg}",
            ) {
                bar.set_style(style);
            }
            Bar(bar)
        })
    }
}

impl Bar {
    pub fn end(&self) {
        self.0.finish_and_clear();
    }

    /// How far one is that another process does, as it has written it down.
    fn far(&self, s: &Status) {
        self.0.set_length(s.bytes);
        self.0.set_position(s.bytes_done);
        self.0.set_message(format!("{}/{} names", s.files_done, s.files));
    }
}

impl Watcher for Bar {
    fn progress(&self, p: &Progress) {
        if p.seconds < PATIENCE_S {
            return;
        }
        self.0.set_length(p.bytes);
        self.0.set_position(p.bytes_done);
        self.0.set_message(format!("{}/{} names, {} left", p.files_done, p.files, range(&p.left)));
    }

    fn waits(&self, why: &str) {
        self.0.set_message(format!("waits: {why}"));
    }

    fn retry(&self, error: &Error) {
        self.0.println(format!("stead: tried again: {error}"));
    }
}
