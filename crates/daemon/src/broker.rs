//! The broker: takes connections, hands each to the worker of its user, starts and ends workers.

use crate::admin::{self, Change, Kept, Numbers};
use crate::clock;
use crate::control::{self, Order, Owner, Report};
use crate::pool::{Asked, Pool};
use crate::protocol::Failed;
use crate::rights;
use crate::share::{Wish, shares};
use crate::socket::{listen, until};
use crate::worker::refuse;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{CWD, FlockOperation, MemfdFlags, RenameFlags, flock, renameat_with};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, lchown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_fabric::Fabric;

/// Users that are served at a time.
const MOST_WORKERS: usize = 1024;
/// Connections that a user may begin at once, and so many more each second.
const BURST: f64 = 512.0;
const PER_SECOND: f64 = 256.0;
/// How long workers have to end when the daemon does.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// A worker that ends otherwise than it should is started again after this, which doubles each time.
const AGAIN: Duration = Duration::from_secs(2);
const LONGEST_PAUSE: Duration = Duration::from_secs(600);
/// Workers that are started by themselves, at a time.
const MOST_LOOKING: usize = 16;
/// How often it is looked after children that are gone.
const LOOK: Duration = Duration::from_secs(1);
/// Users whose numbers fit into a packet.
const MOST_NUMBERS: usize = 16;
/// How often workers of all users look for what has expired.
const EXPIRES_EVERY: Duration = Duration::from_secs(3600);
/// Who does not end within this is killed: all that it has is in its journal.
const LINGERS: Duration = Duration::from_secs(120);
/// Workers of one user that end, at a time: a device that does not answer may keep them.
const MOST_ENDING: usize = 8;
/// A worker that has not told within this how much there is to do keeps others no longer from being started.
const TELLS_WITHIN: Duration = Duration::from_secs(60);
/// Packets of one worker that are read before others have their turn.
const AT_ONCE: usize = 64;
/// Where programs look for their libraries.
const LIBRARIES: &str = "LD_LIBRARY_PATH";

/// Where that is kept which administrators say, below the state.
const KEPT: &str = "admin.json";

/// How a daemon is run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Where it listens.
    pub socket: PathBuf,
    /// Where journals are: that of its user, or a folder for each user.
    pub state: PathBuf,
    /// Transfers at a time, of all users together.
    pub transfers: usize,
    /// Threads of a transfer; 0 is as many as are of use.
    pub threads: usize,
    /// What a worker is started with: a program and its arguments, which calls [`crate::work`].
    pub worker: Vec<OsString>,
    /// The name of this node; none is the one that the system has.
    pub node: Option<String>,
}

struct Worker {
    child: Child,
    control: OwnedFd,
    running: usize,
    ready: usize,
    slots: usize,
    /// When it was given one more transfer, as a number that grows.
    turn: u64,
    /// Connections that it was handed.
    handed: u64,
    /// It has told how much there is to do.
    told: bool,
    /// When it was started.
    since: Instant,
    /// It was told to end, as it has nothing to do.
    released: bool,
    /// It gets no more connections: it was told to end, or has.
    gone: bool,
    /// The user is an administrator.
    admin: bool,
    /// It has not heard what administrators have said.
    stale: bool,
    /// The name of its user; empty if the system has none.
    name: String,
}

/// A worker that ends.
struct Ending {
    user: u32,
    child: Child,
    /// When it is killed; none if it was.
    until: Option<Instant>,
}

/// When a worker is started again that ended, or could not be started.
struct Again {
    at: Instant,
    /// After which it is tried once more.
    pause: Duration,
}

impl Again {
    fn now() -> Again {
        Again { at: clock::now(), pause: AGAIN }
    }
}

/// What a user may begin, in connections.
struct Purse {
    left: f64,
    at: Instant,
}

struct Broker {
    settings: Settings,
    /// All users are served; otherwise the one who has started it.
    all: bool,
    workers: BTreeMap<u32, Worker>,
    /// Those that end: nobody waits for them, as a device that does not answer may keep them.
    ending: Vec<Ending>,
    purses: BTreeMap<u32, Purse>,
    /// Users whose workers ended although there was something to do, and when these are started again.
    again: BTreeMap<u32, Again>,
    turns: u64,
    /// What administrators have said.
    kept: Kept,
    /// What workers have told of their work, also of those that have ended.
    numbers: BTreeMap<u32, Numbers>,
    /// When all workers have looked for what has expired.
    cleared: Instant,
    node: String,
    pool: Option<Pool>,
}

/// A line for the log of the service.
pub(crate) fn log(line: &str) {
    // Where nobody reads there is nobody to be told.
    let _ = writeln!(std::io::stderr(), "steadd: {line}");
}

/// True if a daemon of this process would serve all users.
pub fn serves_all() -> bool {
    rights::may_take()
}

/// Serves until it is told to end by SIGINT or SIGTERM. `ready` is called once programs can connect.
///
/// # Errors
/// `Usage` if another daemon has the socket or the state; system errors of setting up.
pub fn serve(settings: Settings, ready: impl FnOnce()) -> Result<()> {
    start(settings, None, ready)
}

/// The same, as one of the daemons that are the ranks of this fabric: programs may ask for transfers from and on the others' nodes.
/// All ranks call this.
///
/// # Errors
/// As [`serve`]; `Usage` if two nodes have one name; `Peer` if a daemon does not come.
pub fn serve_in_pool(
    settings: Settings,
    fabric: Arc<dyn Fabric>,
    ready: impl FnOnce(),
) -> Result<()> {
    start(settings, Some(fabric), ready)
}

fn start(settings: Settings, fabric: Option<Arc<dyn Fabric>>, ready: impl FnOnce()) -> Result<()> {
    let named = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    let node = settings.node.clone().unwrap_or_else(named);
    let all = serves_all();
    let state = &settings.state;
    let mode = if all { 0o755 } else { 0o700 };
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(state)
        .map_err(|e| Error::io("make the folder", state, e))?;
    let path = state.join("steadd.lock");
    let lock = File::create(&path).map_err(|e| Error::io("lock", &path, e))?;
    flock(&lock, FlockOperation::NonBlockingLockExclusive).map_err(|_| {
        Error::usage("another daemon has this state").at_path(state).with_hint("end it first")
    })?;
    let (mut told, tells) = UnixStream::pair().map_err(|e| Error::io("make", "a pipe", e))?;
    for signal in [SIGINT, SIGTERM] {
        let tells = tells.try_clone().map_err(|e| Error::io("make", "a pipe", e))?;
        signal_hook::low_level::pipe::register(signal, tells)
            .map_err(|e| Error::io("watch signals", "this process", e))?;
    }
    told.set_nonblocking(true).map_err(|e| Error::io("set up", "a pipe", e))?;
    let kept = Kept::read(&state.join(KEPT))?;
    let pool = fabric.map(|fabric| Pool::begin(fabric, &node)).transpose()?;
    let listener = listen(&settings.socket, all)?;
    if let Some(pool) = &pool {
        log(&format!("is node '{node}' of a pool of {}", pool.nodes().len()));
    }
    log(&format!(
        "listens on {} for {}",
        settings.socket.display(),
        if all { "all users" } else { "its user" }
    ));
    ready();
    let socket = settings.socket.clone();
    let mut broker = Broker {
        settings,
        all,
        workers: BTreeMap::new(),
        ending: Vec::new(),
        purses: BTreeMap::new(),
        again: BTreeMap::new(),
        turns: 0,
        kept,
        numbers: BTreeMap::new(),
        cleared: clock::now(),
        node,
        pool,
    };
    broker.go_on();
    let done = broker.run(&listener, &mut told);
    // Nobody is to knock where nobody is.
    let _ = std::fs::remove_file(&socket);
    drop(listener);
    broker.end();
    log("has ended");
    done
}

impl Broker {
    fn run(&mut self, listener: &UnixListener, told: &mut UnixStream) -> Result<()> {
        loop {
            let (new, stop, reports, rung) = {
                let mut fds =
                    vec![PollFd::new(&*told, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
                let users: Vec<u32> = self.workers.keys().copied().collect();
                fds.extend(self.workers.values().map(|w| PollFd::new(&w.control, PollFlags::IN)));
                fds.extend(self.pool.iter().map(|p| PollFd::new(p.bell(), PollFlags::IN)));
                match poll(&mut fds, Some(&until(LOOK))) {
                    Ok(_) | Err(rustix::io::Errno::INTR) => {}
                    Err(e) => return Err(Error::io("wait for", "connections", e.into())),
                }
                let ready = |i: usize| fds.get(i).is_some_and(|fd| !fd.revents().is_empty());
                let some = users.iter().enumerate().filter(|(i, _)| ready(i + 2));
                let some = some.map(|(_, user)| *user).collect::<Vec<u32>>();
                (ready(1), ready(0), some, ready(users.len() + 2))
            };
            if stop && told.read(&mut [0u8; 16]).is_ok() {
                return Ok(());
            }
            for user in reports {
                self.hear(user);
            }
            if new {
                self.accept(listener);
            }
            if rung {
                let asked = self.pool.as_ref().map(Pool::asked);
                asked.into_iter().flatten().for_each(|asked| self.let_in(&asked));
            }
            self.bury();
            if self.cleared.elapsed() > EXPIRES_EVERY {
                self.cleared = clock::now();
                self.go_on();
            }
            self.begin_again();
            self.tell_all();
            self.divide();
        }
    }

    /// Starts the workers of all who have a journal: those with nothing to go on with end at once.
    fn go_on(&mut self) {
        if !self.all {
            self.again.insert(geteuid().as_raw(), Again::now());
            return;
        }
        // Root makes the folders that are to be made.
        if self.kept.has_spaces() || Path::new(stead_store::space::SYSTEM).exists() {
            self.again.insert(0, Again::now());
        }
        let Ok(list) = std::fs::read_dir(self.settings.state.join("users")) else { return };
        for entry in list.flatten() {
            if let Some(Ok(user)) = entry.file_name().to_str().map(str::parse::<u32>) {
                self.again.insert(user, Again::now());
            }
        }
    }

    fn begin_again(&mut self) {
        let now = clock::now();
        // A few at a time: each is a process until it has looked.
        let looks = |w: &&Worker| !w.told && w.since.elapsed() < TELLS_WITHIN;
        let looking = self.workers.values().filter(looks).count();
        let due = self.again.iter().filter(|(_, again)| again.at <= now).map(|(user, _)| *user);
        let due: Vec<u32> = due.take(MOST_LOOKING.saturating_sub(looking)).collect();
        // Who is there looks by itself.
        self.again.retain(|user, _| {
            !due.contains(user) || !self.workers.get(user).is_some_and(|w| w.told)
        });
        for user in due {
            // Until it has told what there is to do.
            if let Some(again) = self.again.get_mut(&user) {
                again.at = now + again.pause;
                again.pause = (again.pause * 2).min(LONGEST_PAUSE);
            }
            if let Err(e) = self.worker(user, rustix::process::getegid().as_raw()) {
                log(&format!("no worker for user {user}: {e}"));
            }
        }
    }

    fn accept(&mut self, listener: &UnixListener) {
        // Others are looked after between so many.
        for _ in 0..AT_ONCE {
            match listener.accept() {
                Ok((stream, _)) => self.hand(&stream),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) if e.kind() == ErrorKind::ConnectionAborted => {}
                Err(e) => {
                    log(&format!("cannot take a connection: {e}"));
                    // Too many open files, mostly: not for long, and not without a pause.
                    clock::pause(Duration::from_millis(50));
                    return;
                }
            }
        }
    }

    /// Hands a connection to the worker of its user.
    fn hand(&mut self, stream: &UnixStream) {
        let Ok(peer) = socket_peercred(stream) else { return };
        let (user, group) = (peer.uid.as_raw(), peer.gid.as_raw());
        if !self.all && peer.uid != geteuid() {
            let message = format!("this daemon serves user {} only", geteuid().as_raw());
            return refuse(stream, &Error::new(Kind::Permission, message));
        }
        if !self.may_begin(user) {
            let message = "too many connections of this user in a short time";
            return refuse(
                stream,
                &Error::limit(message).with_hint("keep one open for several questions"),
            );
        }
        self.give(user, group, stream);
    }

    /// Hands the connection of a user of another node to the worker that this user has here.
    fn let_in(&mut self, asked: &Asked) {
        let Asked { user, name, node, stream } = asked;
        if !self.all && *user != geteuid().as_raw() {
            let here = geteuid().as_raw();
            let message =
                format!("the daemon of node '{}' serves user {here} only, not {user}", self.node);
            return refuse(stream, &Error::new(Kind::Permission, message));
        }
        if !self.may_begin(*user) {
            let message = "too many connections of this user in a short time";
            return refuse(stream, &Error::limit(message).with_hint("try again in a moment"));
        }
        let group = rustix::process::getegid().as_raw();
        match self.worker(*user, group).map(|worker| worker.name.clone()) {
            Ok(here) if here == *name => self.give(*user, group, stream),
            Ok(here) => {
                let message = format!(
                    "user {user} is '{name}' on node '{node}' and '{here}' on node '{}'",
                    self.node
                );
                let hint = "nodes of a pool have the same users";
                refuse(stream, &Error::new(Kind::Permission, message).with_hint(hint));
            }
            Err(e) => {
                log(&format!("no worker for user {user}: {e}"));
                refuse(stream, &e.and(&format!(", on node '{}'", self.node)));
            }
        }
    }

    fn give(&mut self, user: u32, group: u32, stream: &UnixStream) {
        for _ in 0..2 {
            let worker = match self.worker(user, group) {
                Ok(worker) => worker,
                Err(e) => {
                    log(&format!("no worker for user {user}: {e}"));
                    return refuse(stream, &e);
                }
            };
            match control::send(&worker.control, &Order::Serve, Some(stream.as_fd()), false) {
                Ok(true) => {
                    worker.handed += 1;
                    return;
                }
                Ok(false) => {
                    let e = Error::new(Kind::Timeout, "the worker of this user has too much to do");
                    return refuse(stream, &e.with_hint("try again in a moment"));
                }
                // It has just ended; another one is started.
                Err(_) => {
                    worker.gone = true;
                    self.bury();
                }
            }
        }
        let e = Error::new(Kind::Peer, "the worker of this user ends when it begins");
        refuse(stream, &e.with_hint("the log of the daemon says why"));
    }

    fn may_begin(&mut self, user: u32) -> bool {
        let now = clock::now();
        // Who has not come for a while has a full one.
        if self.purses.len() > MOST_WORKERS {
            self.purses.retain(|_, purse| now - purse.at < Duration::from_secs(10));
        }
        let purse = self.purses.entry(user).or_insert(Purse { left: BURST, at: now });
        let more = (now - purse.at).as_secs_f64() * PER_SECOND;
        (purse.left, purse.at) = ((purse.left + more).min(BURST), now);
        purse.left -= 1.0;
        if purse.left < 0.0 {
            purse.left = 0.0;
            return false;
        }
        true
    }

    /// The worker of a user, which is started if there is none.
    fn worker(&mut self, user: u32, group: u32) -> Result<&mut Worker> {
        if !self.workers.contains_key(&user) {
            if self.workers.len() + self.ending.len() >= MOST_WORKERS {
                return Err(Error::limit(format!("{MOST_WORKERS} users are served already"))
                    .with_hint("try again in a minute"));
            }
            if self.ending.iter().filter(|one| one.user == user).count() >= MOST_ENDING {
                let message = format!("{MOST_ENDING} workers of this user do not end");
                return Err(Error::limit(message)
                    .with_hint("a device may not answer; try again once that does"));
            }
            let worker = self.start(user, group)?;
            self.workers.insert(user, worker);
        }
        let none = || Error::internal("a worker that was started is not there");
        self.workers.get_mut(&user).ok_or_else(none)
    }

    fn start(&self, user: u32, group: u32) -> Result<Worker> {
        let owner = match self.all {
            true => {
                let rights::Known { name, home, group } = rights::known(user)?;
                Some(Owner { user, group, name, home })
            }
            false => None,
        };
        let name = match &owner {
            Some(owner) => owner.name.clone(),
            None => rights::known(user).map(|known| known.name).unwrap_or_default(),
        };
        let group = owner.as_ref().map_or(group, |owner| owner.group);
        let state = self.state_of(user, group)?;
        let text = state.to_str().ok_or_else(|| {
            Error::usage("the folder of the state has a name that is no text").at_path(&state)
        })?;
        // A user's own daemon does what its user says.
        let admin = !self.all || rights::is_admin(user, group);
        let kept = self.settings.state.join(KEPT);
        let kept = kept.to_str().map(str::to_owned).unwrap_or_default();
        let (control, theirs) = control::pair()?;
        let none = || Error::usage("the daemon has no program for its workers");
        let (program, words) = self.settings.worker.split_first().ok_or_else(none)?;
        let mut command = Command::new(program);
        command.args(words).current_dir("/").process_group(0);
        command.stdin(Stdio::from(theirs)).stdout(Stdio::null());
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
            running: 0,
            ready: 0,
            slots: 0,
            turn: 0,
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
        let Some(pool) = &self.pool else { return Ok(None) };
        let failed = |e| Error::io("write", "the names of nodes", e);
        let file = rustix::fs::memfd_create("stead-nodes", MemfdFlags::CLOEXEC);
        let mut file = File::from(file.map_err(|e| failed(e.into()))?);
        let text = serde_json::to_vec(pool.nodes())
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
        let make = |path: &Path, mode: u32| match std::fs::DirBuilder::new().mode(mode).create(path)
        {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::AlreadyExists => Ok(false),
            Err(e) => Err(Error::io("make the folder", path, e)),
        };
        make(&users, 0o711)?;
        // Nothing within a folder of a user is looked at here, nor the folder itself: it may be one that does not answer. It is there
        // with its owner, or not at all.
        let (own, new) = (users.join(user.to_string()), users.join(format!("{user}.new")));
        make(&new, 0o700)?;
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

    /// Takes what a worker says, and does what it asks if its user may.
    fn hear(&mut self, user: u32) {
        let mut asked = Vec::new();
        self.listen(user, &mut asked);
        for (ticket, change) in asked {
            let (failed, users) = match self.change(user, change) {
                Ok(users) => (None, users),
                Err(e) => (Some(Failed::from(&e)), Vec::new()),
            };
            self.tell_all();
            if let Some(worker) = self.workers.get(&user) {
                // Who does not hear it asks again.
                let told = Order::Told { ticket, failed, users };
                let _ = control::send(&worker.control, &told, None, false);
            }
        }
    }

    /// Does what the worker of a user says that an administrator wants. Nothing of it is believed.
    fn change(&mut self, user: u32, change: Change) -> Result<Vec<Numbers>> {
        let Some(worker) = self.workers.get_mut(&user).filter(|worker| worker.admin) else {
            return Err(admin::refused());
        };
        // Whoever has been taken out of the group since is none any more.
        let known = |user| rights::known(user).is_ok_and(|of| rights::is_admin(user, of.group));
        worker.admin = !self.all || known(user);
        if !worker.admin {
            return Err(admin::refused());
        }
        if let Change::Numbers { from } = change {
            let of = |(user, numbers): (&u32, &Numbers)| {
                let running = self.workers.get(user).map_or(0, |worker| worker.running as u64);
                Numbers { user: *user, running, ..*numbers }
            };
            return Ok(self.numbers.range(from..).take(MOST_NUMBERS).map(of).collect());
        }
        let mut kept = self.kept.clone();
        kept.apply(change.clone())?;
        kept.write(&self.settings.state.join(KEPT))?;
        log(&format!("user {user} has set {change:?}"));
        match &change {
            // Whose jobs these were clears up; root makes folders.
            Change::Unjob { .. } => {
                let users = kept.left.keys().copied();
                self.again.extend(users.map(|user| (user, Again::now())));
            }
            Change::Put { .. } if self.all => {
                self.again.insert(0, Again::now());
            }
            _ => {}
        }
        self.kept = kept;
        self.workers.values_mut().for_each(|worker| worker.stale = true);
        Ok(Vec::new())
    }

    /// Tells all workers that administrators have said something, as soon as they can hear it.
    fn tell_all(&mut self) {
        for worker in self.workers.values_mut().filter(|worker| worker.stale) {
            let told = control::send(&worker.control, &Order::Renew, None, false);
            worker.stale = !told.unwrap_or(true);
        }
    }

    /// A user has nothing left in these dataspaces of jobs.
    fn cleared(&mut self, user: u32, dataspaces: &BTreeSet<String>) {
        if self.kept.cleared(user, dataspaces)
            && let Err(e) = self.kept.write(&self.settings.state.join(KEPT))
        {
            log(&e.to_string());
        }
    }

    fn listen(&mut self, user: u32, asked: &mut Vec<(u64, Change)>) {
        let mut cleared = None;
        self.read(user, asked, &mut cleared);
        if let Some(dataspaces) = cleared {
            self.cleared(user, &dataspaces);
        }
    }

    fn read(
        &mut self,
        user: u32,
        asked: &mut Vec<(u64, Change)>,
        cleared: &mut Option<BTreeSet<String>>,
    ) {
        let Some(worker) = self.workers.get_mut(&user) else { return };
        for _ in 0..AT_ONCE {
            let waits = crate::socket::is_readable(&worker.control, Some(Duration::ZERO));
            if !waits.unwrap_or(true) {
                return;
            }
            match control::report(&worker.control) {
                Ok(Some((Report::Load { running, ready }, _))) => {
                    worker.told = true;
                    self.again.remove(&user);
                    (worker.running, worker.ready) = (running.min(1 << 20), ready.min(1 << 20));
                }
                Ok(Some((Report::Numbers(numbers), _))) => {
                    self.numbers.insert(user, Numbers { user, ..numbers });
                }
                Ok(Some((Report::Admin { ticket, change }, _))) => asked.push((ticket, change)),
                Ok(Some((Report::Cleared { dataspaces }, _))) => {
                    cleared.get_or_insert_default().extend(dataspaces);
                }
                Ok(Some((Report::Idle { served }, _))) => {
                    // What cannot be told now is told when it says so again. Who comes from now on gets another one.
                    if served == worker.handed
                        && control::send(&worker.control, &Order::End, None, false).unwrap_or(true)
                    {
                        (worker.gone, worker.released) = (true, true);
                        return;
                    }
                }
                Ok(Some((Report::Reach { node }, Some(connection)))) => match &self.pool {
                    Some(pool) => pool.reach(user, &worker.name, &node, connection),
                    None => refuse(&connection, &crate::answers::no_pool()),
                },
                Ok(Some((Report::Reach { .. }, None))) => {}
                Ok(None) => {
                    worker.gone = true;
                    return;
                }
                Err(e) => {
                    log(&format!("the worker of user {user} is ended: {e}"));
                    let _ = worker.child.kill();
                    worker.gone = true;
                    return;
                }
            }
        }
    }

    /// Takes leave of workers that have ended, or do so.
    fn bury(&mut self) {
        let now = clock::now();
        let gone: Vec<u32> = (self.workers.iter_mut())
            .filter_map(|(user, worker)| {
                let ended = worker.gone || worker.child.try_wait().is_ok_and(|s| s.is_some());
                ended.then_some(*user)
            })
            .collect();
        for user in gone {
            let Some(worker) = self.workers.remove(&user) else { continue };
            if let Some(numbers) = self.numbers.get_mut(&user) {
                (numbers.connections, numbers.running, numbers.rate) = (0, 0, 0.0);
            }
            // It may have taken something that it has not told of.
            if !worker.released {
                let soon = Again { at: now + AGAIN, pause: AGAIN * 2 };
                self.again.entry(user).or_insert(soon);
            }
            self.ending.push(Ending { user, child: worker.child, until: Some(now + LINGERS) });
        }
        self.ending.retain_mut(|Ending { user, child, until }| match child.try_wait() {
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
    }

    /// Says how many transfers each user may have under way.
    fn divide(&mut self) {
        let wish = |w: &Worker| {
            // What was given and not yet told of is as good as under way.
            let running = w.running.max(w.slots.min(w.running + w.ready));
            Wish { running, ready: (w.running + w.ready).saturating_sub(running), turn: w.turn }
        };
        let wishes: Vec<Wish> = self.workers.values().map(wish).collect();
        let transfers = if self.kept.drained { 0 } else { self.settings.transfers };
        let all = shares(transfers, &wishes);
        for (worker, slots) in self.workers.values_mut().zip(all) {
            if worker.slots == slots {
                continue;
            }
            if control::send(&worker.control, &Order::Slots(slots), None, false).unwrap_or(false) {
                if slots > worker.slots {
                    self.turns += 1;
                    worker.turn = self.turns;
                }
                worker.slots = slots;
            }
        }
    }

    /// Ends all workers: what is under way is stopped such that it goes on later.
    fn end(&mut self) {
        // Nobody comes any more from other nodes.
        self.pool = None;
        for worker in self.workers.values() {
            // Who does not hear it hears that nobody is there any more.
            let _ = control::send(&worker.control, &Order::End, None, false);
        }
        let workers = std::mem::take(&mut self.workers);
        // Their ends of the sockets are closed: who has not heard it sees it.
        let ends =
            |(user, worker): (u32, Worker)| Ending { user, child: worker.child, until: None };
        self.ending.extend(workers.into_iter().map(ends));
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
