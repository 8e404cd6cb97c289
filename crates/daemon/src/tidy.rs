//! What a worker clears up by itself: transfers of jobs that are over, what these have left, what has expired.

use crate::answers::Office;
use crate::clock;
use crate::control::{self, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use stead_core::Result;

/// Clears up once. What cannot be done now is done the next time.
pub(crate) fn once(office: &Office, control: &OwnedFd) {
    let log = |e: stead_core::Error| crate::broker::log(&format!("cannot clear up: {e}"));
    // A transfer that goes on would bring back what is removed.
    if let Err(e) = give_up(office) {
        return log(e);
    }
    if let Err(e) = clear_jobs(office, control) {
        log(e);
    }
    if let Err(e) = expire(office) {
        log(e);
    }
}

/// Gives up transfers whose job is over.
fn give_up(office: &Office) -> Result<()> {
    let stager = office.queue.stager();
    let means = stager.means();
    for (id, job) in stager.of_jobs()? {
        if !means.jobs.contains_key(&job) {
            // It may have ended just now.
            if let Err(e) = office.queue.cancel(id)
                && !stager.status(id)?.state.is_over()
            {
                return Err(e);
            }
        }
    }
    Ok(())
}

/// Removes what jobs that are over have left.
fn clear_jobs(office: &Office, control: &OwnedFd) -> Result<()> {
    let desk = &office.desk;
    let user = rustix::process::geteuid().as_raw();
    let Some(left) = desk.kept().left.get(&user).cloned() else { return Ok(()) };
    // By what administrators say: a user's own file may give their names to other folders.
    let spaces = desk.system()?;
    let mut cleared = BTreeSet::new();
    for name in left {
        let of_jobs = spaces.terms(&name).is_some_and(|terms| terms.jobs);
        let again = desk.kept().jobs_of(user).values().any(|job| job.contains(&name));
        if let (true, false, Ok(path)) = (of_jobs, again, spaces.folder(&name))
            && Path::new(path).is_dir()
        {
            office.queue.stager().clear(Path::new(path), None, &office.ending)?;
        }
        cleared.insert(name);
    }
    control::send(control, &Report::Cleared { dataspaces: cleared }, None, true).map(|_| ())
}

/// Removes what has expired.
fn expire(office: &Office) -> Result<()> {
    let (system, means) = (office.desk.system()?, office.queue.stager().means());
    let mut all: BTreeMap<&str, u64> = BTreeMap::new();
    for spaces in [&means.spaces, &system] {
        for name in spaces.names() {
            if let (Some(expires), Ok(path)) =
                (spaces.terms(name).and_then(|terms| terms.expires), spaces.folder(name))
            {
                all.insert(path, expires);
            }
        }
    }
    let now = clock::unix();
    for (path, seconds) in all {
        if Path::new(path).is_dir() {
            let before = Some(now - seconds as f64);
            office.queue.stager().clear(Path::new(path), before, &office.ending)?;
        }
    }
    Ok(())
}

/// Clears up whenever something has changed, and every so often, until the worker ends.
pub(crate) fn watch(office: &Office, control: &OwnedFd, bell: &crate::worker::Bell) {
    let mut last = None;
    while !office.ending.is_cancelled() {
        let rung = bell.wait();
        let due = last.is_none_or(|at: std::time::Instant| at.elapsed() > EVERY);
        if rung || due {
            last = Some(clock::now());
            once(office, control);
            office.tidy.store(true, std::sync::atomic::Ordering::Release);
        }
    }
}

/// How often it is looked for what has expired.
const EVERY: std::time::Duration = std::time::Duration::from_secs(600);
