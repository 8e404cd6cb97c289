//! What a worker does for administrators: it understands what they ask, has the broker do it, and keeps to what was said.

use crate::admin::{self, Change, Kept, Numbers};
use crate::clock;
use crate::control::{self, Owner, Report};
use crate::job;
use crate::log::log;
use crate::protocol::{AdminAnswer, AdminAsk, AdminSpace, Failed, JobIs, Stats};
use crate::rights;
use rustix::process::geteuid;
use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;
use stead_core::layout::{SpaceConfig, Spaces};
use stead_core::{Error, Kind, Result};
use stead_stage::Means;
use stead_store::space;

/// How long the broker has for an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// Users that a daemon tells of at most.
const MOST_TOLD: usize = 100_000;
/// Keys that say which folder is made, and how.
const OF_MAKING: [&str; 5] = ["path", "memory", "owner", "group", "mode"];

/// What the broker answers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Told {
    pub(crate) failed: Option<Failed>,
    pub(crate) users: Vec<Numbers>,
}

/// What a worker knows of what administrators have said, and how it asks the broker.
pub(crate) struct Desk {
    path: Option<PathBuf>,
    owner: Option<Owner>,
    threads: usize,
    admin: bool,
    control: Arc<OwnedFd>,
    kept: RwLock<Arc<Kept>>,
    answers: Mutex<Answers>,
    answered: Condvar,
}

#[derive(Default)]
struct Answers {
    last: u64,
    /// None as long as there is no answer.
    open: BTreeMap<u64, Option<Told>>,
}

impl Desk {
    /// `path` is the file of the broker; `admin` if the broker obeys this user.
    ///
    /// # Errors
    /// Those of reading what was said.
    pub(crate) fn open(
        path: Option<PathBuf>,
        owner: Option<Owner>,
        threads: usize,
        admin: bool,
        control: Arc<OwnedFd>,
    ) -> Result<Desk> {
        let (kept, answers, answered) = Default::default();
        let desk = Desk { path, owner, threads, admin, control, kept, answers, answered };
        desk.read()?;
        Ok(desk)
    }

    fn read(&self) -> Result<()> {
        if let Some(path) = &self.path {
            let kept = Arc::new(Kept::read(path)?);
            *self.kept.write().unwrap_or_else(PoisonError::into_inner) = kept;
        }
        Ok(())
    }

    pub(crate) fn kept(&self) -> Arc<Kept> {
        self.kept.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// What a job that is over had left in these dataspaces is gone, by what was `seen` of them. False if administrators have said something since.
    pub(crate) fn is_cleared(&self, seen: &Arc<Kept>, dataspaces: &BTreeSet<String>) -> bool {
        let mut now = self.kept.write().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&now, seen) {
            return false;
        }
        let mut kept = Kept::clone(&now);
        kept.cleared(geteuid().as_raw(), dataspaces);
        *now = Arc::new(kept);
        true
    }

    fn answers(&self) -> MutexGuard<'_, Answers> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The dataspaces and the jobs of the user, as they are now; folders that are to be made are made.
    ///
    /// # Errors
    /// Those of reading the configurations.
    pub(crate) fn means(&self) -> Result<Means> {
        let kept = self.kept();
        let user = geteuid();
        let change: space::Change<'_> = &|spaces, variable| {
            kept.overlay(spaces, variable);
            Ok(())
        };
        let spaces = match &self.owner {
            None => space::of_user_changed(change)?,
            Some(owner) => space::of_changed(&|name| owner.variable(name), change)?,
        };
        if self.makes_folders() {
            admin::make_folders(&self.system()?);
        }
        let (jobs, common) = (kept.jobs_of(user.as_raw()), Some(self.system()?));
        Ok(Means { spaces, threads: self.threads, jobs, common })
    }

    /// Administrators have said something: what transfers that are begun from now on keep to, if that can be read.
    pub(crate) fn renew(&self) -> Option<Means> {
        let means = self.read().and_then(|()| self.means());
        let failed = |e: &Error| log(&format!("goes on with what was set before: {e}"));
        means.inspect_err(failed).ok()
    }

    /// Refuses to take transfers while the node is drained.
    ///
    /// # Errors
    /// `Limit`.
    pub(crate) fn is_open(&self) -> Result<()> {
        match self.kept().drained {
            false => Ok(()),
            true => Err(Error::limit("this node is drained: it takes no transfers")
                .with_hint("stead stage --here does without the daemon; an administrator opens it: stead admin open")),
        }
    }

    /// An answer of the broker has come.
    pub(crate) fn hear(&self, ticket: u64, told: Told) {
        if let Some(open) = self.answers().open.get_mut(&ticket) {
            *open = Some(told);
        }
        self.answered.notify_all();
    }

    /// Has the broker do something.
    ///
    /// # Errors
    /// What it refuses it with; `Timeout`.
    fn ask(&self, change: Change) -> Result<Told> {
        let ticket = {
            let mut answers = self.answers();
            answers.last += 1;
            let ticket = answers.last;
            answers.open.insert(ticket, None);
            ticket
        };
        let sent = control::send(&self.control, &Report::Admin { ticket, change }, None, true);
        let mut answers = self.answers();
        if sent.is_ok() {
            let still = |answers: &mut Answers| matches!(answers.open.get(&ticket), Some(None));
            let waited = self.answered.wait_timeout_while(answers, ANSWERS_WITHIN, still);
            answers = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let told = answers.open.remove(&ticket).flatten();
        sent?;
        let late = || Error::new(Kind::Timeout, "the daemon does not answer its worker");
        let told = told.ok_or_else(late)?;
        match told.failed {
            Some(failed) => Err(failed.into()),
            None => Ok(told),
        }
    }

    /// Does what somebody asks who says that it is an administrator.
    ///
    /// # Errors
    /// `Permission` if it is none; those of what is asked.
    pub(crate) fn answer(&self, ask: AdminAsk) -> Result<AdminAnswer> {
        if !self.admin {
            return Err(admin::refused());
        }
        let change = match ask {
            AdminAsk::Dataspaces {} => return self.dataspaces(),
            AdminAsk::Jobs {} => return Ok(self.jobs()),
            AdminAsk::Stats {} => return self.stats(),
            AdminAsk::Add { name, set } => {
                if self.system()?.has(&name) {
                    return Err(Error::usage(format!("there is a dataspace '{name}' already"))
                        .with_hint("change it: stead admin dataspace update"));
                }
                let config = SpaceConfig::default().with(&name, &set)?;
                return self.put(name, config, &set, true);
            }
            AdminAsk::Update { name, set } => {
                let spaces = self.system()?;
                let config = spaces.config(&name).ok_or_else(|| none(&name))?.with(&name, &set)?;
                return self.put(name, config, &set, false);
            }
            AdminAsk::Remove { name } => {
                // What was set goes, also while the file of the system cannot be read.
                if !self.kept().has(&name) {
                    self.system()?.config(&name).ok_or_else(|| none(&name))?;
                }
                Change::Remove { name }
            }
            AdminAsk::Reset { name } => Change::Reset { name },
            AdminAsk::Job { job, user, dataspaces } => {
                let spaces = self.system()?;
                if let Some(name) = dataspaces.iter().find(|name| !spaces.has(name)) {
                    return Err(none(name));
                }
                let user = rights::user(&user)?;
                if self.owner.is_none() && user != geteuid().as_raw() {
                    return Err(Error::usage("this daemon serves one user, who has all jobs"));
                }
                Change::Job { job, user, dataspaces: dataspaces.into_iter().collect() }
            }
            AdminAsk::Unjob { job } => Change::Unjob { job },
            AdminAsk::Process { job, pid } => Change::Process { job, pid, start: job::start(pid)? },
            AdminAsk::Unprocess { pid } => Change::Unprocess { pid },
            AdminAsk::Drain {} => Change::Drained(true),
            AdminAsk::Open {} => Change::Drained(false),
        };
        self.ask(change)?;
        Ok(AdminAnswer::Done {})
    }

    /// Has the broker keep a dataspace of which these keys were `set`. Nothing is changed if its folder cannot be what it is to be.
    fn put(
        &self,
        name: String,
        config: SpaceConfig,
        set: &BTreeMap<String, String>,
        new: bool,
    ) -> Result<AdminAnswer> {
        let made = self.prepare(&name, &config, set)?;
        match self.ask(Change::Put { name, keys: config.into(), new }) {
            Ok(_) => Ok(AdminAnswer::Done {}),
            Err(e) => {
                // It may be kept all the same, if there was no answer.
                if let Some(path) = made.filter(|_| e.kind() != Kind::Timeout) {
                    let _ = std::fs::remove_dir(path);
                }
                Err(e)
            }
        }
    }

    /// Looks whether somebody is there whom the folder is for, and makes it where this worker does so: its path, if it has.
    fn prepare(
        &self,
        name: &str,
        config: &SpaceConfig,
        set: &BTreeMap<String, String>,
    ) -> Result<Option<PathBuf>> {
        let given = |key: &str| set.get(key).filter(|value| !value.is_empty());
        let unknown = |e: Error| match e.kind() {
            Kind::Usage | Kind::Permission => {
                Error::usage(format!("dataspace '{name}': {}", e.message()))
            }
            _ => e,
        };
        given("owner").map(|user| rights::user(user)).transpose().map_err(unknown)?;
        given("group").map(|group| rights::group(group)).transpose().map_err(unknown)?;
        // What else is changed needs no folder: its disk may not be there now.
        if !OF_MAKING.iter().any(|key| set.contains_key(*key)) {
            return Ok(None);
        }
        let mut one = Spaces::default();
        one.put(name, config.clone(), &|name| self.variable(name))?;
        let Some(path) = admin::made_folder(&one, name) else { return Ok(None) };
        let failed = |e: Error| e.and(&format!(", for dataspace '{name}'"));
        if self.makes_folders() {
            let made = admin::make_folder(&one, name).map_err(failed)?;
            return Ok(made.then(|| path.to_owned()));
        }
        // Root's worker makes it in a moment. What can be seen to fail is told here.
        let missing = |path: &Path| match std::fs::metadata(path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Some(e),
            _ => None,
        };
        match path.parent().and_then(missing) {
            Some(e) => Err(failed(Error::io("make the folder", path, e))),
            None => Ok(None),
        }
    }

    /// True if folders that are to be made are made by this worker.
    fn makes_folders(&self) -> bool {
        self.owner.is_none() || geteuid().is_root()
    }

    /// The dataspaces of the file of the system, for the daemon of one user, to whom they are not: what lies there others look after, too.
    ///
    /// # Errors
    /// Those of reading that file.
    pub(crate) fn of_others(&self) -> Result<Option<Spaces>> {
        match self.owner {
            None => space::of_system(&|name| self.variable(name)).map(Some),
            Some(_) => Ok(None),
        }
    }

    fn variable(&self, name: &str) -> Option<String> {
        match &self.owner {
            None => space::variable(name),
            Some(owner) => owner.variable(name),
        }
    }

    /// The dataspaces of the node as administrators have them, with the variables of this user.
    ///
    /// # Errors
    /// Those of reading the configuration of the system.
    pub(crate) fn system(&self) -> Result<Spaces> {
        admin::of_system(&self.kept(), &|name| self.variable(name))
    }

    fn dataspaces(&self) -> Result<AdminAnswer> {
        let spaces = self.system()?;
        let configs = spaces.names().filter_map(|name| Some((name, spaces.config(name)?)));
        let space = |(name, config): (&str, &SpaceConfig)| AdminSpace {
            name: name.to_owned(),
            set: config.keys().clone(),
        };
        Ok(AdminAnswer::Dataspaces(configs.map(space).collect()))
    }

    fn jobs(&self) -> AdminAnswer {
        let kept = self.kept();
        let processes = |name: &String| {
            let its = kept.processes.iter().filter(|(_, process)| process.job == *name);
            its.map(|(pid, _)| *pid).collect()
        };
        let job = |(name, job): (&String, &job::Job)| JobIs {
            job: name.clone(),
            user: job.user,
            dataspaces: job.dataspaces.iter().cloned().collect(),
            processes: processes(name),
        };
        AdminAnswer::Jobs(kept.jobs.iter().map(job).collect())
    }

    fn stats(&self) -> Result<AdminAnswer> {
        let mut users: Vec<Numbers> = Vec::new();
        let until = clock::now() + ANSWERS_WITHIN;
        while users.len() < MOST_TOLD && clock::now() < until {
            let from = match users.last().map(|last| last.user.checked_add(1)) {
                None => 0,
                Some(Some(next)) => next,
                Some(None) => break,
            };
            let more = self.ask(Change::Numbers { from })?.users;
            // They come in order, so that there is an end.
            if more.first().is_none_or(|first| first.user < from) {
                break;
            }
            users.extend(more);
        }
        Ok(AdminAnswer::Stats(Stats { drained: self.kept().drained, users }))
    }
}

fn none(name: &str) -> Error {
    Error::usage(format!("the node has no dataspace '{}'", name.escape_debug()))
        .with_hint("stead admin dataspace list shows those that there are")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(keys: &[(&str, &str)]) -> BTreeMap<String, String> {
        keys.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect()
    }

    #[test]
    fn what_cannot_be_is_refused_before_anything_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).display().to_string();
        let kept = dir.path().join("admin.json");
        std::fs::write(&kept, br#"{"dataspaces": {"nv": {"path": "rel"}}}"#).unwrap();
        let (broker, control) = control::pair().unwrap();
        let desk = Desk::open(Some(kept), None, 1, true, Arc::new(control)).unwrap();
        let answer = |ask: AdminAsk, failed: Option<Failed>| {
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let Some((Report::Admin { ticket, .. }, _)) = control::report(&broker).unwrap()
                    else {
                        panic!("something else is asked")
                    };
                    desk.hear(ticket, Told { failed, users: Vec::new() });
                });
                desk.answer(ask)
            })
        };
        let add = |name: &str, keys: &[(&str, &str)]| AdminAsk::Add {
            name: name.to_owned(),
            set: map(keys),
        };
        // One that is wrong keeps nobody from the others.
        assert!(desk.means().unwrap().spaces.place("nv").is_err());
        for (ask, kind, says) in [
            (add("n2", &[("path", "rel2")]), Kind::Usage, "dataspace 'n2': path 'rel2'"),
            (
                AdminAsk::Update { name: "nv".into(), set: map(&[("path", "s3://")]) },
                Kind::Usage,
                "dataspace 'nv': a URL of s3",
            ),
            (
                add("t1", &[("path", &at("t1")), ("owner", "no-such-user"), ("mode", "0700")]),
                Kind::Usage,
                "dataspace 't1': this node knows no user 'no-such-user'",
            ),
            (
                add("t1", &[("path", &at("t1")), ("owner", "4000000001")]),
                Kind::Usage,
                "dataspace 't1': this node knows no user 4000000001",
            ),
            (
                add("t1", &[("path", &at("t1")), ("group", "no-such-group")]),
                Kind::Usage,
                "dataspace 't1': this node knows no group 'no-such-group'",
            ),
            (
                add("t1", &[("path", &at("none/t1")), ("mode", "0700")]),
                Kind::NotFound,
                "none/t1: cannot make the folder: no such file or directory, for dataspace 't1'",
            ),
        ] {
            let e = desk.answer(ask).unwrap_err();
            assert!(e.kind() == kind && e.to_string().contains(says), "{e}");
        }
        assert!(!dir.path().join("t1").exists() && !dir.path().join("t1.new").exists());
        // The broker may refuse it all the same: then there is no folder, either.
        let made = || add("t1", &[("path", &at("t1")), ("mode", "0750")]);
        let many = Failed::from(&Error::limit("there are 1000 dataspaces already"));
        assert_eq!(answer(made(), Some(many)).unwrap_err().kind(), Kind::Limit);
        assert!(!dir.path().join("t1").exists());
        assert_eq!(answer(made(), None).unwrap(), AdminAnswer::Done {});
        assert!(dir.path().join("t1").is_dir());
        // Without a folder that is to be made nothing is looked for.
        assert!(answer(add("t2", &[("path", &at("none/t2"))]), None).is_ok());
        assert!(answer(AdminAsk::Remove { name: "nv".into() }, None).is_ok());
    }
}
