//! `stead admin`: what administrators say to the daemon.

use crate::args::{AdminArgs, AdminVerb, Described, JobVerb, ProcessVerb, SpaceVerb};
use crate::daemon::{connect, there};
use crate::stage::{MOST_LISTED, Told, listed_beside, nothing_waits};
use crate::{output, signals, table};
use std::time::Duration;
use stead::daemon::{AdminAnswer, AdminAsk, AdminSpace, Client, JobIs, Stats, user_number};
use stead::stage::Status;
use stead::{Cancel, Error, Kind, Result, units};

/// How often it is looked whether a daemon that is drained still does something.
const LOOK: Duration = Duration::from_millis(200);
/// Of many users one after the other the daemon may have to be asked again, so often, when some time has passed.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);

pub fn admin(a: &AdminArgs) -> Result<()> {
    let mut daemon = connect(None)?;
    let ask = match &a.what {
        AdminVerb::Dataspace(verb) => match verb {
            SpaceVerb::Add { name, set } => {
                AdminAsk::Add { name: name.clone(), set: set.iter().cloned().collect() }
            }
            SpaceVerb::Update { name, set } => {
                AdminAsk::Update { name: name.clone(), set: set.iter().cloned().collect() }
            }
            SpaceVerb::Remove { name } => AdminAsk::Remove { name: name.clone() },
            SpaceVerb::Reset { name } => AdminAsk::Reset { name: name.clone() },
            SpaceVerb::List { format } => {
                let AdminAnswer::Dataspaces(list) = daemon.admin(AdminAsk::Dataspaces {})? else {
                    return odd();
                };
                return show(*format, &list, |list| spaces(list));
            }
        },
        AdminVerb::Job(verb) => match verb {
            JobVerb::Add { job, user, dataspaces } => {
                let (job, user) = (job.clone(), user.clone());
                AdminAsk::Job { job, user, dataspaces: dataspaces.clone() }
            }
            JobVerb::Remove { job } => AdminAsk::Unjob { job: job.clone() },
            JobVerb::List { format } => {
                let AdminAnswer::Jobs(list) = daemon.admin(AdminAsk::Jobs {})? else {
                    return odd();
                };
                return show(*format, &list, |list| jobs(list));
            }
        },
        AdminVerb::Process(verb) => match verb {
            ProcessVerb::Add { job, pid } => AdminAsk::Process { job: job.clone(), pid: *pid },
            ProcessVerb::Remove { pid } => AdminAsk::Unprocess { pid: *pid },
        },
        AdminVerb::Drain { wait } => {
            daemon.admin(AdminAsk::Drain {})?;
            return if *wait { until_drained(&mut daemon) } else { Ok(()) };
        }
        AdminVerb::Open => AdminAsk::Open {},
        AdminVerb::Stats { format } => return show(*format, &stats_of(&mut daemon)?, stats),
        AdminVerb::Transfers { user: Some(user), all, format } => {
            let user = user_number(user)?;
            let list = there(managed(user)?)?.list(*all, MOST_LISTED).map_err(shown)?;
            let whose = |status| Whose { user, status };
            let list: Vec<Whose> = list.into_iter().map(|s| whose(s.status)).collect();
            return show(*format, &list, |list| transfers(list));
        }
        AdminVerb::Transfers { user: None, all, format } => {
            let (list, bad) = transfers_of_all(&stats_of(&mut daemon)?, *all)?;
            show(*format, &list, |list| transfers(list))?;
            return bad.map_or(Ok(()), Err);
        }
        AdminVerb::Cancel { user, ids, format } => {
            let mut theirs = there(managed(user_number(user)?)?)?;
            return tell(ids, *format, |id| theirs.cancel(id));
        }
        AdminVerb::Resume { user, ids, format } => return resume(user, ids, *format),
    };
    daemon.admin(ask).map(|_| ())
}

fn odd<T>() -> Result<T> {
    Err(Error::format("the daemon answers something else than it was asked for"))
}

fn stats_of(daemon: &mut Client) -> Result<Stats> {
    match daemon.admin(AdminAsk::Stats {})? {
        AdminAnswer::Stats(stats) => Ok(stats),
        _ => odd(),
    }
}

/// A transfer, and whose it is.
#[derive(serde::Serialize)]
struct Whose {
    user: u32,
    #[serde(flatten)]
    status: Status,
}

/// The daemon as it is for the transfers of a user.
fn managed(user: u32) -> Result<Option<Client>> {
    let mut tries = 0;
    loop {
        match Client::manage(None, user) {
            Err(e) if e.kind() == Kind::Limit && tries < TRIES => {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            found => return found.map_err(shown),
        }
    }
}

/// An error as it may be shown: what is told of others has names that these have chosen.
pub fn shown(e: Error) -> Error {
    let shown = Error::new(e.kind(), output::plain(e.to_string().as_ref()));
    match e.hint() {
        Some(hint) => shown.with_hint(output::plain(hint.as_ref())),
        None => shown,
    }
}

/// Of several things that went wrong the first one is the error of the command, and the others are told at once.
fn note(bad: &mut Option<Error>, e: Error) {
    match bad {
        None => *bad = Some(e),
        Some(_) => crate::complain(&e),
    }
}

/// The transfers of all users, and what went wrong.
fn transfers_of_all(stats: &Stats, all: bool) -> Result<(Vec<Whose>, Option<Error>)> {
    let (mut list, mut bad) = (Vec::new(), None);
    for user in stats.users.iter().map(|numbers| numbers.user) {
        let theirs = match managed(user) {
            Ok(found) => there(found)?.list(all, MOST_LISTED).map_err(shown),
            // All that there was of this user has been taken away since.
            Err(e) if e.kind() == Kind::NotFound => continue,
            Err(e) => Err(e),
        };
        match theirs {
            Ok(theirs) => list.extend(theirs.into_iter().map(|s| Whose { user, status: s.status })),
            Err(e) => note(&mut bad, e.and(&format!(" (user {user})"))),
        }
    }
    Ok((list, bad))
}

fn transfers(list: &[Whose]) -> String {
    listed_beside(&["user"], list.iter().map(|one| (vec![one.user.to_string()], &one.status)))
}

/// Does something with each of these, and tells what has come of it.
fn tell(ids: &[i64], format: Described, mut each: impl FnMut(i64) -> Result<Status>) -> Result<()> {
    let (mut told, mut bad) = (Told::several(format), None);
    for id in ids.iter().copied() {
        match each(id) {
            Ok(status) => told.tell(&status)?,
            Err(e) => note(&mut bad, shown(e)),
        }
    }
    told.end()?;
    bad.map_or(Ok(()), Err)
}

fn resume(user: &str, ids: &[i64], format: Described) -> Result<()> {
    let mut theirs = there(managed(user_number(user)?)?)?;
    if !ids.is_empty() {
        return tell(ids, format, |id| {
            theirs.resume(Some(id))?;
            Ok(theirs.wait(id, Duration::ZERO)?.status)
        });
    }
    let ids = theirs.resume(None).map_err(shown)?;
    if ids.is_empty() {
        let list = theirs.list(true, MOST_LISTED).map_err(shown)?;
        let list: Vec<Status> = list.into_iter().map(|s| s.status).collect();
        let command = format!("stead admin resume --user {user} ID");
        crate::complain(&nothing_waits(&list, &command));
    }
    tell(&ids, format, |id| Ok(theirs.wait(id, Duration::ZERO)?.status))
}

fn until_drained(daemon: &mut Client) -> Result<()> {
    let cancel = Cancel::new();
    let done = signals::watch(&cancel, false)?;
    while stats_of(daemon)?.users.iter().any(|user| user.running > 0) {
        cancel.check()?;
        std::thread::sleep(LOOK);
    }
    done.cancel();
    Ok(())
}

fn show<T: serde::Serialize>(
    format: Described,
    what: &T,
    page: impl Fn(&T) -> String,
) -> Result<()> {
    match format {
        Described::Json => output::json(what),
        Described::Table => output::text(&page(what)),
    }
}

fn spaces(list: &[AdminSpace]) -> String {
    let row = |space: &AdminSpace| {
        let set = space.set.iter().map(|(key, value)| format!("{key}={value}"));
        vec![space.name.clone(), set.collect::<Vec<_>>().join(" ")]
    };
    table::plain(&["dataspace", "what is agreed"], list.iter().map(row).collect())
}

fn jobs(list: &[JobIs]) -> String {
    let row = |job: &JobIs| {
        let pids: Vec<String> = job.processes.iter().map(u32::to_string).collect();
        vec![job.job.clone(), job.user.to_string(), job.dataspaces.join(","), pids.join(",")]
    };
    table::plain(&["job", "user", "dataspaces", "processes"], list.iter().map(row).collect())
}

fn stats(stats: &Stats) -> String {
    let row = |n: &stead::daemon::Numbers| {
        vec![
            n.user.to_string(),
            n.connections.to_string(),
            n.running.to_string(),
            n.waiting.to_string(),
            n.finished.to_string(),
            n.failed.to_string(),
            units::format_size(n.bytes),
            format!("{}/s", units::format_size(n.rate as u64)),
        ]
    };
    let heads =
        ["user", "connections", "running", "waiting", "finished", "failed", "moved", "rate"];
    let state = if stats.drained { "drained: no transfers are taken\n" } else { "" };
    state.to_owned() + &table::plain(&heads, stats.users.iter().map(row).collect())
}
