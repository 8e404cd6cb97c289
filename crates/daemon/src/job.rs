//! Jobs of a node: whose they are, what they may use, and which processes are of them.

use crate::admin::{Change, Kept};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use stead_core::layout::SpaceConfig;
use stead_core::{Error, Kind, Result};

/// Jobs of a node at a time.
const MOST_JOBS: usize = 1000;
/// Processes of all of them that were named.
const MOST_PROCESSES: usize = 10_000;
/// Dataspaces of one.
const MOST_SPACES: usize = 100;
/// Parents of a process that are looked at.
const MOST_PARENTS: usize = 64;

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Job {
    pub(crate) user: u32,
    pub(crate) dataspaces: BTreeSet<String>,
}

/// A process of a job, and those that it begins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Process {
    pub(crate) job: String,
    /// When it began, as the kernel counts: another process may get its number.
    pub(crate) start: u64,
}

/// Which start of the machine this is.
pub(crate) fn boot() -> String {
    let id = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

/// The parent of a process, and when it began; none if it is not there.
fn look(pid: u32) -> Option<(u32, u64)> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // Its name may have anything in it, and ends at the last bracket.
    let mut fields = stat.rsplit_once(") ")?.1.split(' ');
    let parent = fields.nth(1)?.parse().ok()?;
    Some((parent, fields.nth(17)?.parse().ok()?))
}

/// When a process began.
///
/// # Errors
/// `NotFound`.
pub(crate) fn start(pid: u32) -> Result<u64> {
    let none = || Error::new(Kind::NotFound, format!("there is no process {pid}"));
    look(pid).map(|(_, start)| start).ok_or_else(none)
}

/// The job that a process is of, by itself or by one that has begun it; one of this user only.
pub(crate) fn of_process(kept: &Kept, pid: u32, user: u32) -> Option<String> {
    if kept.processes.is_empty() {
        return None;
    }
    let mut pid = pid;
    for _ in 0..MOST_PARENTS {
        let (parent, start) = look(pid)?;
        let known = kept.processes.get(&pid).filter(|process| process.start == start);
        if let Some(process) = known
            && kept.jobs.get(&process.job).is_some_and(|job| job.user == user)
        {
            return Some(process.job.clone());
        }
        if parent <= 1 {
            return None;
        }
        pid = parent;
    }
    None
}

fn check_name(job: &str) -> Result<()> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match (1..=64).contains(&job.len()) && job.chars().all(plain) {
        true => Ok(()),
        false => Err(Error::usage(format!("'{}' is no name of a job", job.escape_debug()))
            .with_hint("letters, digits, '.', '_' and '-', 64 of them at most")),
    }
}

/// Does what an administrator says of jobs.
///
/// # Errors
/// `Usage` for what makes no sense, `Limit`.
pub(crate) fn apply(kept: &mut Kept, change: Change) -> Result<()> {
    match change {
        Change::Job { job, user, dataspaces } => {
            check_name(&job)?;
            for name in &dataspaces {
                SpaceConfig::default().with(name, &[("path".into(), "/x".into())].into())?;
            }
            if kept.jobs.get(&job).is_some_and(|known| known.user != user) {
                return Err(Error::usage(format!("job {job} is another user's"))
                    .with_hint("remove it first: stead admin job remove"));
            }
            if dataspaces.len() > MOST_SPACES {
                return Err(Error::limit(format!("a job has {MOST_SPACES} dataspaces at most")));
            }
            if kept.jobs.len() >= MOST_JOBS && !kept.jobs.contains_key(&job) {
                return Err(Error::limit(format!("there are {MOST_JOBS} jobs already")));
            }
            kept.jobs.insert(job, Job { user, dataspaces });
        }
        Change::Unjob { job } => {
            let none = || Error::usage(format!("there is no job {}", job.escape_debug()));
            let Job { user, dataspaces } = kept.jobs.remove(&job).ok_or_else(none)?;
            kept.processes.retain(|_, process| process.job != job);
            let others = kept.jobs.values().filter(|other| other.user == user);
            let used: BTreeSet<&String> = others.flat_map(|other| &other.dataspaces).collect();
            let left = dataspaces.iter().filter(|name| !used.contains(name)).cloned();
            kept.left.entry(user).or_default().extend(left);
            kept.left.retain(|_, spaces| !spaces.is_empty());
        }
        Change::Process { job, pid, start } => {
            if !kept.jobs.contains_key(&job) {
                return Err(Error::usage(format!("there is no job {}", job.escape_debug()))
                    .with_hint("add it first: stead admin job add JOB --user USER"));
            }
            if kept.processes.len() >= MOST_PROCESSES {
                // Those that have ended make room.
                kept.processes.retain(|pid, p| look(*pid).is_some_and(|(_, s)| s == p.start));
            }
            if kept.processes.len() >= MOST_PROCESSES {
                return Err(Error::limit(format!(
                    "{MOST_PROCESSES} processes are of jobs already"
                )));
            }
            kept.processes.insert(pid, Process { job, start });
        }
        Change::Unprocess { pid } => {
            let none = || Error::usage(format!("process {pid} was not named for a job"));
            kept.processes.remove(&pid).ok_or_else(none)?;
        }
        _ => return Err(Error::internal("a change that is none of jobs")),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_of_the_job_of_their_parents() {
        let (me, user) = (std::process::id(), 7);
        let mut kept = Kept::default();
        let job = |job: &str, user| Change::Job {
            job: job.into(),
            user,
            dataspaces: ["s".to_owned()].into(),
        };
        kept.apply(job("12", user)).unwrap();
        kept.apply(job("13", 8)).unwrap();
        assert!(kept.apply(job("12", 8)).is_err());
        let begun = start(me).unwrap();
        let process = |job: &str, start| Change::Process { job: job.into(), pid: me, start };
        let mut child = std::process::Command::new("cat")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let of = |kept: &Kept, user| {
            [me, child.id()].map(|pid| of_process(kept, pid, user)).map(|j| j.unwrap_or_default())
        };
        assert_eq!(of(&kept, user), ["", ""]);
        kept.apply(process("12", begun)).unwrap();
        assert_eq!(
            (of(&kept, user), of(&kept, 8)),
            (["12".into(), "12".into()], Default::default())
        );
        // Another process that had the number.
        kept.apply(process("12", begun + 1)).unwrap();
        assert_eq!(of(&kept, user), ["", ""]);
        kept.apply(process("12", begun)).unwrap();
        kept.apply(Change::Unjob { job: "12".into() }).unwrap();
        assert_eq!(of(&kept, user), ["", ""]);
        assert_eq!(kept.left[&user], ["s".to_owned()].into());
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
