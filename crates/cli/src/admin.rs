//! `stead admin`: what administrators say to the daemon.

use crate::args::{AdminArgs, AdminVerb, Described, JobVerb, ProcessVerb, SpaceVerb};
use crate::daemon::connect;
use crate::{output, signals, table};
use std::time::Duration;
use stead::daemon::{AdminAnswer, AdminAsk, AdminSpace, Client, JobIs, Stats};
use stead::{Cancel, Error, Result, units};

/// How often it is looked whether a daemon that is drained still does something.
const LOOK: Duration = Duration::from_millis(200);

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
