//! What a worker clears up by itself: transfers and flows of jobs that are over, what these have left, what has expired.

use crate::answers::Office;
use crate::clock;
use crate::control::{self, Report};
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::Path;
use stead_core::{Error, Kind, Result};
use stead_stage::{Over, dataspace_of, is_cleared};

/// The times of files are behind the clock by so much at most.
const TICK_S: f64 = 0.05;
/// What was changed a moment ago is looked at again so often.
const TRIES: usize = 3;

/// Clears up once. What cannot be done now is done the next time: false if that is to be soon.
fn once(office: &Office, control: &OwnedFd) -> bool {
    let log = |e: stead_core::Error| match e.kind() {
        // Whoever begins next does the rest.
        Kind::Cancelled => {}
        _ => crate::log::log(&format!("cannot clear up: {e}")),
    };
    // A flow or a transfer that goes on would bring back what is removed.
    if !office.flows.have_kept_to(&office.jobs()) {
        return false;
    }
    if let Err(e) = give_up(office) {
        log(e);
        return true;
    }
    if let Err(e) = clear_jobs(office, control) {
        log(e);
    }
    if let Err(e) = expire(office) {
        log(e);
    }
    true
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
    let seen = desk.kept();
    let Some(left) = seen.left.get(&user) else { return Ok(()) };
    // By what administrators say: a user's own file may give their names to other folders.
    let spaces = desk.system()?;
    let mut cleared = BTreeSet::new();
    for name in left {
        let terms = spaces.terms(name);
        let of_jobs = terms.is_some_and(|terms| terms.jobs);
        let owner = terms.and_then(|terms| terms.owner.as_deref());
        let gone = match spaces.folder(name) {
            Ok(path) if of_jobs && Path::new(path).is_dir() => {
                clear_job(office, user, name, (Path::new(path), owner))?
            }
            _ => true,
        };
        if gone {
            cleared.insert(name.clone());
        }
    }
    // Whoever has said something meanwhile has it looked at once more.
    if cleared.is_empty() || !desk.is_cleared(&seen, &cleared) {
        return Ok(());
    }
    control::send(control, &Report::Cleared { dataspaces: cleared }, None, true).map(|_| ())
}

/// Removes what a user has in a dataspace of jobs. False if something has stayed: that of the next job, which may begin at any time
/// and goes with that, or what was changed this very moment.
fn clear_job(office: &Office, user: u32, name: &str, path: (&Path, Option<&str>)) -> Result<bool> {
    let named = || office.desk.kept().jobs_of(user).values().any(|job| job.contains(name));
    let goes_on = || {
        office.ending.check()?;
        if named() { Err(Error::cancelled()) } else { Ok(()) }
    };
    for _ in 0..TRIES {
        if named() {
            return Ok(false);
        }
        let before = clock::unix() - TICK_S;
        let times = (before, office.calendar.time());
        match office.queue.stager().clear(path, Over::Job, times, &goes_on) {
            Ok(done) if done.young == 0 => return Ok(true),
            Ok(_) => clock::pause(std::time::Duration::from_secs_f64(2.0 * TICK_S)),
            Err(_) if named() => return Ok(false),
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

/// Removes what has expired.
fn expire(office: &Office) -> Result<()> {
    let (system, means) = (office.desk.system()?, office.queue.stager().means());
    // Each daemon clears what is its own, and knows what is kept there: that of the system its dataspaces, and a user's those that are no others'.
    let others = office.desk.of_others()?;
    let all_spaces = [others.is_some().then_some(&means.spaces), Some(&system)];
    let mut all: BTreeMap<&str, (u64, Option<&str>)> = BTreeMap::new();
    for spaces in all_spaces.into_iter().flatten() {
        for name in spaces.names() {
            let terms = spaces.terms(name).and_then(|terms| Some((terms.expires?, terms)));
            if let (Some((expires, terms)), Ok(path)) = (terms, spaces.folder(name)) {
                all.insert(path, (expires, terms.owner.as_deref()));
            }
        }
    }
    if let Some(others) = others {
        let is_theirs = |path: &str| {
            let path = std::fs::canonicalize(path);
            path.is_ok_and(|path| dataspace_of(&others, &path, &is_cleared).is_some())
        };
        all.retain(|path, _| !is_theirs(path));
    }
    let now = office.calendar.time();
    for (path, (seconds, owner)) in all {
        let path = Path::new(path);
        if path.is_dir() {
            let (before, goes_on) = (now - seconds as f64, || office.ending.check());
            let done =
                office.queue.stager().clear((path, owner), Over::Time, (before, now), &goes_on);
            match done {
                // Others are cleared none the less.
                Err(e) if e.kind() == Kind::Permission => {
                    crate::log::log(&format!("what has expired stays: {e}"));
                }
                done => drop(done?),
            }
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
            let done = once(office, control);
            last = done.then(clock::now);
            office.tidy.store(done, std::sync::atomic::Ordering::Release);
        }
    }
}

/// How often it is looked for what has expired.
const EVERY: std::time::Duration = std::time::Duration::from_secs(600);
