//! The processes of users: started, spoken to, taken leave of.

use super::Settings;
use super::admins::KEPT;
use super::names::Found;
use super::sharing::Part;
use crate::clock;
use crate::control::{self, Order, Owner};
use crate::log::log;
use crate::notify;
use crate::socket::make_folder;
use rustix::fs::{CWD, MemfdFlags, RenameFlags, renameat_with};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::lchown;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use stead_core::{Error, Result};

/// Users that are served at a time.
const MOST_WORKERS: usize = 1024;
/// How long workers have to end when the daemon does.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// A worker that ends otherwise than it should is started again after this, which doubles each time.
const AGAIN: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Workers that are started by themselves, at a time.
const MOST_LOOKING: usize = 16;
/// Who does not end within this is killed: all that it has is in its journal.
const LINGERS: Duration = Duration::from_secs(120);
/// Workers of one user that end, at a time: a device that does not answer may keep them.
const MOST_ENDING: usize = 8;
/// A worker that has not told within this how much there is to do keeps others no longer from being started.
const TELLS_WITHIN: Duration = Duration::from_secs(60);
/// Where programs look for their libraries.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// A worker as it is spoken to.
pub(super) struct Worker {
    child: Child,
    pub(super) control: OwnedFd,
    /// What it was told that it may do, and does.
    pub(super) part: Part,
    /// Connections that it was handed.
    pub(super) handed: u64,
    /// It has told how much there is to do.
    pub(super) told: bool,
    /// When it was started.
    since: Instant,
    /// It was told to end, as it has nothing to do.
    pub(super) released: bool,
    /// It gets no more connections: it was told to end, or has.
    pub(super) gone: bool,
    /// The user is an administrator.
    pub(super) admin: bool,
    /// It has not heard what administrators have said.
    pub(super) stale: bool,
    /// The name of its user; empty if the system has none.
    pub(super) name: String,
}

impl Worker {
    /// Ends one that says what nobody understands.
    pub(super) fn kill(&mut self) {
        let _ = self.child.kill();
        self.gone = true;
    }
}

/// When a worker is started again that ended, or could not be started.
struct Again {
    at: Instant,
    /// After which it is tried once more.
    pause: Duration,
}

/// One that ends: nobody waits for it, as a device that does not answer may keep it.
struct Ending {
    user: u32,
    child: Child,
    part: Part,
    /// When it is killed; none if it was.
    until: Option<Instant>,
}

/// All of them.
pub(super) struct Workers {
    settings: Settings,
    /// All users are served; otherwise the one who has started the daemon.
    all: bool,
    node: String,
    /// The names of the nodes of the pool.
    pool: Option<Vec<String>>,
    pub(super) here: BTreeMap<u32, Worker>,
    ending: Vec<Ending>,
    /// Users whose workers ended although there was something to do, and when these are started again.
    again: BTreeMap<u32, Again>,
}

impl Workers {
    pub(super) fn new(
        settings: Settings,
        all: bool,
        node: String,
        pool: Option<Vec<String>>,
    ) -> Workers {
        let (here, ending, again) = Default::default();
        Workers { settings, all, node, pool, here, ending, again }
    }

    /// Has the worker of a user look whether there is something to do, soon.
    pub(super) fn wake(&mut self, user: u32) {
        self.again.insert(user, Again { at: clock::now(), pause: AGAIN });
    }

    /// The same now, if it was to look later.
    pub(super) fn hasten(&mut self, user: u32) {
        if let Some(again) = self.again.get_mut(&user) {
            again.at = clock::now();
        }
    }

    /// It has told what there is to do.
    pub(super) fn has_looked(&mut self, user: u32) {
        self.again.remove(&user);
    }

    /// Users whose workers are to be started now: a few at a time, as each is a process until it has looked.
    pub(super) fn due(&mut self) -> Vec<u32> {
        let now = clock::now();
        let looks = |w: &&Worker| !w.told && w.since.elapsed() < TELLS_WITHIN;
        let looking = self.here.values().filter(looks).count();
        let due = self.again.iter().filter(|(_, again)| again.at <= now).map(|(user, _)| *user);
        let due: Vec<u32> = due.take(MOST_LOOKING.saturating_sub(looking)).collect();
        // Who is there looks by itself.
        let here = &self.here;
        self.again.retain(|user, _| !due.contains(user) || !here.get(user).is_some_and(|w| w.told));
        for user in &due {
            // Until it has told what there is to do.
            if let Some(again) = self.again.get_mut(user) {
                again.at = now + again.pause;
                again.pause = (again.pause * 2).min(LONGEST_PAUSE);
            }
        }
        due
    }

    /// Starts the worker of a user who has none.
    ///
    /// # Errors
    /// `Limit` if there are too many; those of starting a process.
    pub(super) fn start(&mut self, user: u32, group: u32, found: Option<Found>) -> Result<()> {
        if self.here.len() + self.ending.len() >= MOST_WORKERS {
            return Err(Error::limit(format!("{MOST_WORKERS} users are served already"))
                .with_hint("try again in a minute"));
        }
        if self.ending.iter().filter(|one| one.user == user).count() >= MOST_ENDING {
            let message = format!("{MOST_ENDING} workers of this user do not end");
            return Err(Error::limit(message)
                .with_hint("a device may not answer; try again once that does"));
        }
        let worker = self.begin(user, group, found)?;
        self.here.insert(user, worker);
        Ok(())
    }

    fn begin(&self, user: u32, group: u32, found: Option<Found>) -> Result<Worker> {
        // A user's own daemon does what its user says.
        let admin = !self.all || found.as_ref().is_some_and(|found| found.is_admin);
        let name = found.as_ref().map(|found| found.known.name.clone()).unwrap_or_default();
        let owner = match (self.all, found) {
            (false, _) => None,
            (true, Some(found)) => {
                let known = found.known;
                Some(Owner { user, group: known.group, name: known.name, home: known.home })
            }
            (true, None) => return Err(Error::internal("a user whom nobody knows")),
        };
        let group = owner.as_ref().map_or(group, |owner| owner.group);
        let state = self.state_of(user, group)?;
        let text = state.to_str().ok_or_else(|| {
            Error::usage("the folder of the state has a name that is no text").at_path(&state)
        })?;
        let kept = self.settings.state.join(KEPT);
        let kept = kept.to_str().map(str::to_owned).unwrap_or_default();
        let (control, theirs) = control::pair()?;
        let none = || Error::usage("the daemon has no program for its workers");
        let (program, words) = self.settings.worker.split_first().ok_or_else(none)?;
        let mut command = Command::new(program);
        command.args(words).current_dir("/").process_group(0);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
        // Only the daemon says when it is ready.
        command.env_remove(notify::SOCKET);
        if self.all {
            // Nothing of a user is looked at, such as a home, before the rights of that user are taken.
            command.env_clear().env("PATH", "/usr/bin:/bin");
            // A command with MPI may find its libraries by it.
            if let (Some(path), true) = (std::env::var_os(LIBRARIES), self.pool.is_some()) {
                command.env(LIBRARIES, path);
            }
        }
        let child = command.spawn().map_err(|e| Error::io("start a worker", program, e))?;
        let mut worker = Worker {
            child,
            control,
            part: Part::default(),
            handed: 0,
            told: false,
            since: clock::now(),
            released: false,
            gone: false,
            admin,
            stale: false,
            name,
        };
        let begin = Order::Begin {
            state: text.to_owned(),
            threads: self.settings.threads,
            journal: self.settings.journal,
            rights: owner,
            kept,
            admin,
            node: self.node.clone(),
        };
        let sent = self.names().and_then(|names| {
            control::send(&worker.control, &begin, names.as_ref().map(AsFd::as_fd), false)
        });
        if let Err(e) = sent {
            // It is not to stay behind.
            let _ = worker.child.kill();
            let _ = worker.child.wait();
            return Err(e);
        }
        Ok(worker)
    }

    /// The names of the nodes of the pool, in a file that has no name: there may be many.
    fn names(&self) -> Result<Option<File>> {
        let Some(nodes) = &self.pool else { return Ok(None) };
        let failed = |e| Error::io("write", "the names of nodes", e);
        let file = rustix::fs::memfd_create("stead-nodes", MemfdFlags::CLOEXEC);
        let mut file = File::from(file.map_err(|e| failed(e.into()))?);
        let text = serde_json::to_vec(nodes)
            .map_err(|e| Error::internal(format!("no text of nodes: {e}")))?;
        file.write_all(&text).map_err(failed)?;
        Ok(Some(file))
    }

    /// The folder of a user's journal: of the user's own, whom nobody else lets in.
    fn state_of(&self, user: u32, group: u32) -> Result<PathBuf> {
        if !self.all {
            return Ok(self.settings.state.clone());
        }
        let users = self.settings.state.join("users");
        make_folder(&users, 0o711)?;
        // Nothing within a folder of a user is looked at here, nor the folder itself: it may be one that does not answer. It is there
        // with its owner, or not at all.
        let (own, new) = (users.join(user.to_string()), users.join(format!("{user}.new")));
        make_folder(&new, 0o700)?;
        lchown(&new, Some(user), Some(group)).map_err(|e| Error::io("give its user", &new, e))?;
        match renameat_with(CWD, &new, CWD, &own, RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(rustix::io::Errno::EXIST) => {
                std::fs::remove_dir(&new).map_err(|e| Error::io("remove", &new, e))?;
            }
            Err(e) => return Err(Error::io("make the folder", &own, e.into())),
        }
        Ok(own)
    }

    /// Transfers of all users that are under way, by the dataspaces that they touch.
    pub(super) fn running(&self) -> impl Iterator<Item = (&str, usize)> {
        let here = self.here.values().map(|worker| &worker.part);
        here.chain(self.ending.iter().map(|one| &one.part)).flat_map(Part::running_in)
    }

    /// Takes leave of workers that have ended, or do so; of these users.
    pub(super) fn bury(&mut self) -> Vec<u32> {
        let now = clock::now();
        let gone: Vec<u32> = (self.here.iter_mut())
            .filter_map(|(user, worker)| {
                let ended = worker.gone || worker.child.try_wait().is_ok_and(|s| s.is_some());
                ended.then_some(*user)
            })
            .collect();
        for user in &gone {
            let Some(worker) = self.here.remove(user) else { continue };
            // It may have taken something that it has not told of.
            if !worker.released {
                let soon = Again { at: now + AGAIN, pause: AGAIN * 2 };
                self.again.entry(*user).or_insert(soon);
            }
            let Worker { child, part, .. } = worker;
            self.ending.push(Ending { user: *user, child, part, until: Some(now + LINGERS) });
        }
        self.ending.retain_mut(|Ending { user, child, until, .. }| match child.try_wait() {
            Ok(None) => {
                if until.take_if(|until| *until <= now).is_some() {
                    log(&format!("the worker of user {user} does not end; it is killed"));
                    let _ = child.kill();
                }
                true
            }
            Ok(Some(status)) if status.success() => false,
            Ok(Some(status)) => {
                log(&format!("the worker of user {user} has ended: {status}"));
                false
            }
            Err(_) => false,
        });
        gone
    }

    /// Those that serve, with what they may do, and what those had that are ending.
    pub(super) fn parts(&mut self) -> (Vec<(&OwnedFd, &mut Part)>, Vec<&Part>) {
        let here = self.here.values_mut().map(|worker| (&worker.control, &mut worker.part));
        (here.collect(), self.ending.iter().map(|one| &one.part).collect())
    }

    /// Ends all of them: what is under way is stopped such that it goes on later.
    pub(super) fn end(&mut self) {
        for worker in self.here.values_mut() {
            // Who does not hear it hears that nobody is there any more.
            let _ = control::send(&worker.control, &Order::End, None, false);
        }
        // Their ends of the sockets are closed: who has not heard it sees it.
        for (user, worker) in std::mem::take(&mut self.here) {
            let Worker { child, part, .. } = worker;
            self.ending.push(Ending { user, child, part, until: None });
        }
        let until = clock::now() + ENDS_WITHIN;
        loop {
            self.bury();
            if self.ending.is_empty() {
                return;
            }
            if clock::now() >= until {
                break;
            }
            clock::pause(Duration::from_millis(10));
        }
        for Ending { user, child, .. } in &mut self.ending {
            log(&format!("the worker of user {user} does not end; it is killed"));
            // The system takes care of what is left of it.
            let _ = child.kill();
        }
    }
}
