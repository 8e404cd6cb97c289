//! `stead stage` and `stead df`.

mod bar;
mod told;

pub use bar::Bar;
pub use told::{Told, checked, nothing_waits, show};

use crate::args::{Described, DfArgs, ExistsArg, StageArgs};
use crate::{handed, output, signals, table};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use stead::daemon::{Clients, learn, nobody};
use stead::stage::{
    Action, BucketUrl, Does, Exists, Location, Means, Options, Preview, Remaining, Request, Stager,
    State, Status, Usage, Watcher, dataspaces, location, raise_files, state_folder, usage,
};
use stead::{Cancel, Error, Kind, Result, units};

/// Transfers that are listed.
pub const MOST_LISTED: usize = 1000;
/// Names of a kind that are shown of what would be done.
const MOST_SHOWN: usize = 20;

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
    let far = node.is_some() || a.names.iter().any(is_far);
    let bucket = bucket && !far;
    // A check may read for hours, and nobody is to wait so long for one answer of a daemon, unless that alone reaches both sides.
    let check = a.check && !far;
    let own = a.here || bucket || check || !a.dataspace.is_empty() || a.threads > 0;
    let daemon = if own { None } else { Clients::open_on(None, node.as_deref())? };
    if let Some(daemon) = daemon {
        return handed::stage(a, &daemon);
    }
    if a.background || !a.after.is_empty() {
        return Err(nobody().with_hint(match own {
            true => "--dataspace and --threads are for transfers that this command does itself",
            false => "start one: stead daemon, or leave out --background and --after",
        }));
    }
    if node.is_some() && !own {
        return Err(nobody().with_hint(
            "daemons that are a pool reach other nodes: mpirun stead daemon --pool; a file of such a name here is ./NAME",
        ));
    }
    here(a, own)
}

/// True if something of it is in a bucket: by its URL, or by the name of a dataspace that is one.
fn is_of_bucket(a: &StageArgs) -> bool {
    let here = a.names.iter().filter_map(|name| location(name).ok()).filter(|at| at.node.is_none());
    let named: Vec<String> = here.filter_map(|at| at.space).collect();
    if named.iter().any(|name| BucketUrl::is_of_all_nodes(name)) {
        return true;
    }
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
    let (_, sources, target) = named(a)?;
    if let Some(target) = target {
        return Ok(target.node);
    }
    let nodes: BTreeSet<_> = sources.into_iter().map(|source| source.node).collect();
    match nodes.len() {
        1 => Ok(nodes.into_iter().next().flatten()),
        _ => Err(Error::usage("these lie on several nodes").with_hint("remove them node by node")),
    }
}

/// Does it by itself; although there may be a daemon if `own`.
fn here(a: &StageArgs, own: bool) -> Result<()> {
    // What a command about the same transfer has at its end: a daemon has others of these numbers.
    let end = if own { " --here" } else { "" };
    raise_files();
    let stager = stager(&a.dataspace, a.threads)?;
    if a.list {
        let list = stager.statuses(a.all, MOST_LISTED)?;
        return match a.format {
            Described::Json => output::json(&list),
            Described::Table => output::text(&listed(&list)),
        };
    }
    if let Some(id) = a.cancel {
        // What there is of it is to be found; where that cannot be, it says so itself.
        let _ = stager.status(id).and_then(|status| knows(a, &stager, &status.request));
        return show(a.format, &stager.cancel(id)?, None);
    }
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    if let Some(id) = a.wait {
        let status = waited(a, &stager, id, &cancel, end)?;
        done.cancel();
        show(a.format, &status, None)?;
        return status.outcome().map_err(|e| handed::ended(&status, e, end));
    }
    let ids = match a.resume {
        Some(Some(id)) => vec![stager.resumable(id)?.id],
        Some(None) => {
            let ids = stager.waiting()?;
            if ids.is_empty() {
                let list = stager.statuses(true, MOST_LISTED)?;
                crate::complain(&nothing_waits(&list, &format!("stead stage --resume ID{end}")));
            }
            ids
        }
        None => {
            let request = request(a)?;
            knows(a, &stager, &request)?;
            if a.check {
                let bar = Bar::new(a.progress);
                let watcher = bar.as_ref().map(|bar| bar as &dyn Watcher);
                let found = stager.check(&request, &cancel, watcher);
                if let Some(bar) = &bar {
                    bar.end();
                }
                done.cancel();
                return checked(a.format, &found?);
            }
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
    let mut told = Told::new(a, None);
    let outcome = one_by_one(a, &stager, &ids, &cancel, &mut told, end);
    done.cancel();
    let closed = told.end();
    outcome.and(closed)
}

/// Has it know the dataspaces that administrators have set, unless it is to do without the daemon.
fn knows(a: &StageArgs, stager: &Stager, request: &Request) -> Result<()> {
    if a.here { Ok(()) } else { learn(stager, request) }
}

/// Does these, and tells what came of each.
fn one_by_one(
    a: &StageArgs,
    stager: &Stager,
    ids: &[i64],
    cancel: &Cancel,
    told: &mut Told<'_>,
    end: &str,
) -> Result<()> {
    let (mut failed, mut given_up) = (None, None);
    let several = ids.len() > 1;
    for id in ids.iter().copied() {
        let bar = Bar::new(a.progress);
        let known = stager.status(id).and_then(|status| knows(a, stager, &status.request));
        let watcher = bar.as_ref().map(|b| b as &dyn Watcher);
        let ended = known.and_then(|()| stager.run(id, cancel, watcher));
        if let Some(bar) = &bar {
            bar.end();
        }
        let status = match ended {
            Ok(status) => status,
            // Somebody has given it up: that is told as of any that could not be done.
            Err(e) if e.kind() == Kind::Cancelled && !cancel.is_cancelled() => {
                let status = stager.status(id)?;
                told.tell(&status)?;
                let e = handed::ended(&status, e, end);
                if !several {
                    return Err(e);
                }
                crate::complain(&e);
                given_up.get_or_insert(id);
                continue;
            }
            Err(e) => {
                let e = match e.kind() {
                    Kind::Cancelled => stopped(e, id, end),
                    _ => e,
                };
                // By itself it is told by its error alone.
                if told.is_list()
                    && let Ok(status) = stager.status(id)
                {
                    told.tell(&status)?;
                }
                // Of several, each gets its turn.
                if !several || e.kind() == Kind::Cancelled {
                    return Err(e);
                }
                crate::complain(&e);
                failed.get_or_insert(id);
                continue;
            }
        };
        told.tell(&status)?;
        if status.state == State::Failed {
            failed.get_or_insert(id);
        }
    }
    match (failed, given_up) {
        (None, None) => Ok(()),
        (None, Some(id)) => Err(Error::new(Kind::Io, format!("transfer {id} was cancelled"))),
        (Some(id), _) => {
            Err(Error::new(Kind::Io, format!("not all of transfer {id} could be done"))
                .with_hint(format!("mend what is wrong, then: stead stage --resume {id}{end}")))
        }
    }
}

/// What this command has stopped, and what may become of it.
fn stopped(e: Error, id: i64, end: &str) -> Error {
    e.with_hint(format!(
        "go on with it: stead stage --resume {id}{end}; or give it up: stead stage --cancel {id}{end}"
    ))
}

/// Waits for a transfer that another process does.
fn waited(a: &StageArgs, stager: &Stager, id: i64, cancel: &Cancel, end: &str) -> Result<Status> {
    let bar = Bar::new(a.progress);
    let ended = stager.wait(id, None, &mut |status| {
        if cancel.is_cancelled() {
            return Err(Error::cancelled().with_hint(format!(
                "whoever does it goes on: stead stage --wait {id}{end}; or give it up: stead stage --cancel {id}{end}"
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

/// What is done with what, and where to.
fn named(a: &StageArgs) -> Result<(Action, Vec<Location>, Option<Location>)> {
    let action = match (a.moves, a.sync || a.check, a.remove) {
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
    Ok((action, names, target))
}

/// What is asked for. The standard input may be a part of it: once.
pub fn request(a: &StageArgs) -> Result<Request> {
    let (action, sources, target) = named(a)?;
    Ok(Request {
        action,
        sources,
        target,
        options: Options {
            exists: match a.exists {
                ExistsArg::Refuse => Exists::Refuse,
                ExistsArg::Replace => Exists::Replace,
                ExistsArg::Skip => Exists::Skip,
                ExistsArg::Newer => Exists::Newer,
            },
            delete: a.delete,
            max_delete: a.max_delete,
            checksum: a.checksum,
            verify: a.verify,
            skip_special: a.skip_special,
            durable: !a.no_sync,
            gentle: a.gentle,
            limit: a.limit,
            priority: a.priority,
            retries: a.retries,
            exclude: left_out(a)?,
            include: a.include.clone(),
            min_size: a.min_size,
            max_size: a.max_size,
            min_age: a.min_age,
            max_age: a.max_age,
            files: a
                .files_from
                .as_deref()
                .map(|from| listed_names(from, a.null))
                .transpose()?
                .unwrap_or_default(),
        },
    })
}

/// What is left out, as it was given and as a file says.
fn left_out(a: &StageArgs) -> Result<Vec<String>> {
    /// Bytes of such a file.
    const LONGEST: u64 = 1 << 20;
    let mut all = a.exclude.clone();
    if let Some(path) = &a.exclude_from {
        let failed = |e| Error::io("read", path, e);
        let file = std::fs::File::open(path).map_err(failed)?;
        let mut text = String::new();
        file.take(LONGEST + 1).read_to_string(&mut text).map_err(failed)?;
        if text.len() as u64 > LONGEST {
            return Err(Error::limit("a file of patterns is longer than 1 MiB").at_path(path));
        }
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        all.extend(lines.map(str::to_owned));
    }
    Ok(all)
}

/// The names that a file has, or the standard input. There are some.
fn listed_names(from: &Path, null: bool) -> Result<Vec<String>> {
    /// Bytes of such a file.
    const LONGEST: u64 = 64 << 20;
    let mut text = String::new();
    match from.as_os_str() == "-" {
        true => std::io::stdin().lock().take(LONGEST + 1).read_to_string(&mut text),
        false => std::fs::File::open(from)
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text)),
    }
    .map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => {
            Error::usage("a list of names is UTF-8 text").at_path(from)
        }
        _ => Error::io("read", from, e),
    })?;
    if text.len() as u64 > LONGEST {
        return Err(Error::limit("a list of names is longer than 64 MiB").at_path(from));
    }
    let names: Vec<&str> = if null { text.split('\0').collect() } else { text.lines().collect() };
    let names: Vec<String> =
        names.into_iter().filter(|name| !name.is_empty()).map(str::to_owned).collect();
    if names.is_empty() {
        // All of the source would be meant.
        return Err(match from.as_os_str() == "-" {
            true => Error::usage("the standard input lists no name"),
            false => Error::usage("no name is listed").at_path(from),
        });
    }
    Ok(names)
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
    let mut page: String = rows.iter().map(|(key, value)| format!("{key:6}  {value}\n")).collect();
    // What would be lost is looked at before.
    let told =
        [(Does::Unread, "cannot be read"), (Does::Remove, "removed"), (Does::Replace, "replaced")];
    for (does, what) in told {
        let names: Vec<&str> =
            p.changes.iter().filter(|c| c.does == does).map(|c| c.path.as_str()).collect();
        let shown = names.get(..MOST_SHOWN).unwrap_or(&names);
        if !shown.is_empty() {
            page += &format!("\n{what}:\n");
        }
        for name in shown {
            page += &format!("  {}\n", name.escape_debug());
        }
        if names.len() > shown.len() {
            page += "  and more: --format json has up to 500 of a kind\n";
        }
    }
    page
}

pub fn listed(list: &[Status]) -> String {
    listed_beside(&[], list.iter().map(|s| (Vec::new(), s)))
}

/// The same, with other columns before.
pub fn listed_beside<'a>(
    heads: &[&str],
    list: impl Iterator<Item = (Vec<String>, &'a Status)>,
) -> String {
    let row = |(mut cells, s): (Vec<String>, &Status)| {
        cells.extend([
            s.id.to_string(),
            s.state.as_str().to_owned(),
            action(&s.request).to_owned(),
            output::plain(names(&s.request).as_ref()),
            format!("{}/{}", s.files_done, s.files),
            format!("{} of {}", units::format_size(s.bytes_done), units::format_size(s.bytes)),
            output::plain(s.waits.as_deref().unwrap_or_default().as_ref()),
        ]);
        cells
    };
    let rows: Vec<Vec<String>> = list.map(row).collect();
    if rows.is_empty() {
        return "no transfers\n".to_owned();
    }
    let own = ["id", "state", "action", "what", "names", "bytes", "waits"];
    table::plain(&[heads, own.as_slice()].concat(), rows)
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

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::args::{Cli, Verb};
    use clap::Parser;

    #[test]
    fn options_of_the_command_are_those_of_the_request() {
        let read = |more: &[&str]| {
            let mut words = vec!["stead", "stage", "a", "b"];
            words.extend_from_slice(more);
            match Cli::try_parse_from(words).unwrap().verb {
                Verb::Stage(args) => request(&args).unwrap().options,
                _ => panic!("another verb"),
            }
        };
        assert_eq!(read(&[]), Options::default());
        let given = read(&["--retries", "7", "--priority", "-2", "--no-sync"]);
        assert_eq!(
            given,
            Options { retries: 7, priority: -2, durable: false, ..Options::default() }
        );
        assert_eq!(read(&["--retries", "0"]).retries, 0);
    }
}
