//! The broker: takes connections, hands each to the worker of its user, and has the workers share what the node does.
//!
//! It is one loop, which waits for nobody: `door` knows who may come in, `names` who users are, `workers` has their processes, `admins`
//! what administrators have said, `wanted` what they still want, and `sharing` what each worker may do.

mod admins;
mod door;
mod names;
pub(crate) mod sharing;
mod wanted;
mod workers;

use crate::clock;
use crate::control::{self, Order, Report};
use crate::log::log;
use crate::notify;
use crate::pool::{Asked, Pool};
use crate::refuse::refuse;
use crate::rights;
use crate::socket::{listen, make_folder, until};
use admins::{Admins, KEPT};
use door::{Door, Guest};
use names::{Found, Names};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{FlockOperation, flock};
use rustix::net::sockopt::socket_peercred;
use rustix::process::geteuid;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_fabric::Fabric;
use wanted::Wanted;
use workers::Workers;

/// How often it is looked after children that are gone.
const LOOK: Duration = Duration::from_secs(1);
/// How often workers of all users look for what has expired.
const EXPIRES_EVERY: Duration = Duration::from_secs(3600);
/// Packets of one worker that are read before others have their turn.
const AT_ONCE: usize = 64;

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
    /// Bytes of each user's journal.
    pub journal: u64,
    /// What a worker is started with: a program and its arguments, which calls [`crate::work`].
    pub worker: Vec<OsString>,
    /// The name of this node; none is the one that the system has.
    pub node: Option<String>,
}

struct Broker {
    /// All users are served; otherwise the one who has started it.
    all: bool,
    state: PathBuf,
    transfers: usize,
    node: String,
    door: Door,
    names: Names,
    workers: Workers,
    admins: Admins,
    /// What the workers of these users want, to be done once the system has said that they are administrators.
    wanted: Vec<(u32, Wanted)>,
    /// Counts what was given to workers.
    turns: u64,
    /// When all workers have looked for what has expired.
    cleared: Instant,
    pool: Option<Pool>,
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
    stead_stage::raise_files();
    let state = &settings.state;
    let mode = if all { 0o755 } else { 0o700 };
    make_folder(state, mode)?;
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
    let admins = Admins::open(state.join(KEPT))?;
    let pool = fabric.map(|fabric| Pool::begin(fabric, &node)).transpose()?;
    let names = Names::new()?;
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
    notify::tell(notify::READY);
    let socket = settings.socket.clone();
    let nodes = pool.as_ref().map(|pool| pool.nodes().to_vec());
    let mut broker = Broker {
        all,
        state: settings.state.clone(),
        transfers: settings.transfers,
        node: node.clone(),
        door: Door::default(),
        names,
        workers: Workers::new(settings, all, node, nodes),
        admins,
        wanted: Vec::new(),
        turns: 0,
        cleared: clock::now(),
        pool,
    };
    broker.go_on();
    let done = broker.run(&listener, &mut told);
    notify::tell(notify::STOPPING);
    // Nobody is to knock where nobody is.
    let _ = std::fs::remove_file(&socket);
    drop(listener);
    // Nobody comes any more from other nodes.
    broker.pool = None;
    broker.workers.end();
    log("has ended");
    done
}

/// What there is to be heard.
struct Heard {
    stop: bool,
    new: bool,
    named: bool,
    rung: bool,
    reports: Vec<u32>,
}

impl Broker {
    fn run(&mut self, listener: &UnixListener, told: &mut UnixStream) -> Result<()> {
        loop {
            let heard = self.listen(listener, told)?;
            if heard.stop && told.read(&mut [0u8; 16]).is_ok() {
                return Ok(());
            }
            for user in heard.reports {
                self.hear(user);
            }
            if heard.new {
                self.accept(listener);
            }
            if heard.rung {
                let asked = self.pool.as_ref().map(Pool::asked);
                asked.into_iter().flatten().for_each(|asked| self.let_in(asked));
            }
            if heard.named {
                self.names.hear().into_iter().for_each(|user| self.workers.hasten(user));
            }
            // Those who wait for a name have it by now, or wait no longer.
            self.door.waiting().into_iter().for_each(|guest| self.seat(guest));
            self.grant_all();
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

    /// Waits until there is something to do.
    fn listen(&self, listener: &UnixListener, told: &UnixStream) -> Result<Heard> {
        let of = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
        let mut fds = vec![of(told.as_fd()), of(listener.as_fd()), of(self.names.bell().as_fd())];
        let users: Vec<u32> = self.workers.here.keys().copied().collect();
        fds.extend(self.workers.here.values().map(|worker| of(worker.control.as_fd())));
        fds.extend(self.pool.iter().map(|pool| of(pool.bell().as_fd())));
        match poll(&mut fds, Some(&until(LOOK))) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(Error::io("wait for", "connections", e.into())),
        }
        let ready = |i: usize| fds.get(i).is_some_and(|fd| !fd.revents().is_empty());
        let some = users.iter().enumerate().filter(|(i, _)| ready(i + 3));
        let reports = some.map(|(_, user)| *user).collect();
        let (stop, new, named, rung) = (ready(0), ready(1), ready(2), ready(users.len() + 3));
        Ok(Heard { stop, new, named, rung, reports })
    }

    /// Starts the workers of all who have a journal: those with nothing to go on with end at once.
    fn go_on(&mut self) {
        if !self.all {
            return self.workers.wake(geteuid().as_raw());
        }
        // Root makes the folders that are to be made.
        if self.admins.kept().has_spaces() || Path::new(stead_store::space::SYSTEM).exists() {
            self.workers.wake(0);
        }
        self.users().into_iter().for_each(|user| self.workers.wake(user));
    }

    /// Users of a daemon for all who have a journal, by the names of the folders alone: one of these may not answer.
    fn users(&self) -> Vec<u32> {
        let Ok(list) = std::fs::read_dir(self.state.join("users")) else { return Vec::new() };
        let of = |name: OsString| name.to_str().and_then(|name| name.parse::<u32>().ok());
        list.flatten().filter_map(|entry| of(entry.file_name())).collect()
    }

    fn begin_again(&mut self) {
        for user in self.workers.due() {
            // Whose name is not known yet has its turn when it is.
            if let Err(e) = self.worker(user, rustix::process::getegid().as_raw()) {
                log(&format!("no worker for user {user}: {e}"));
            }
        }
    }

    fn accept(&mut self, listener: &UnixListener) {
        // Others are looked after between so many.
        for _ in 0..AT_ONCE {
            match listener.accept() {
                Ok((stream, _)) => self.meet(stream),
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

    /// Looks whose a connection is.
    fn meet(&mut self, stream: UnixStream) {
        let Ok(peer) = socket_peercred(&stream) else { return };
        let (user, group) = (peer.uid.as_raw(), peer.gid.as_raw());
        if !self.all && peer.uid != geteuid() {
            let message = format!("this daemon serves user {} only", geteuid().as_raw());
            return refuse(&stream, &Error::new(Kind::Permission, message));
        }
        if let Err(e) = self.door.may_begin(user) {
            return refuse(&stream, &e);
        }
        self.seat(Guest { user, group, from: None, by: None, stream });
    }

    /// Looks after a connection of a user of another node.
    fn let_in(&mut self, asked: Asked) {
        let Asked { user, name, node, stream } = asked;
        if !self.all && user != geteuid().as_raw() {
            let here = geteuid().as_raw();
            let message =
                format!("the daemon of node '{}' serves user {here} only, not {user}", self.node);
            return refuse(&stream, &Error::new(Kind::Permission, message));
        }
        if let Err(e) = self.door.may_begin(user) {
            return refuse(&stream, &e);
        }
        let group = rustix::process::getegid().as_raw();
        self.seat(Guest { user, group, from: Some((name, node)), by: None, stream });
    }

    /// Hands a connection to the worker of its user, or has it wait until the system has said who that is.
    fn seat(&mut self, guest: Guest) {
        for _ in 0..2 {
            match self.worker(guest.user, guest.group) {
                Ok(true) => {}
                Ok(false) => {
                    if let Err((guest, e)) = self.door.wait(guest) {
                        refuse(&guest.stream, &e);
                    }
                    return;
                }
                Err(e) => {
                    // What one user may have a thousand times a second is not written down each time.
                    if e.kind() != Kind::Limit {
                        log(&format!("no worker for user {}: {e}", guest.user));
                    }
                    let e = match (&guest.from, guest.by) {
                        (Some(_), _) => e.and(&format!(", on node '{}'", self.node)),
                        // The administrator may: there is no such user.
                        (None, Some(_)) if e.kind() == Kind::Permission => {
                            Error::new(Kind::NotFound, e.message())
                        }
                        _ => e,
                    };
                    return refuse(&guest.stream, &e);
                }
            }
            let Some(worker) = self.workers.here.get_mut(&guest.user) else { break };
            if let Some((name, node)) = &guest.from
                && *name != worker.name
            {
                let message = format!(
                    "user {} is '{name}' on node '{node}' and '{}' on node '{}'",
                    guest.user, worker.name, self.node
                );
                let hint = "nodes of a pool have the same users";
                let e = Error::new(Kind::Permission, message).with_hint(hint);
                return refuse(&guest.stream, &e);
            }
            let serve = Order::Serve { managed: guest.by.is_some() };
            match control::send(&worker.control, &serve, Some(guest.stream.as_fd()), false) {
                Ok(true) => {
                    worker.handed += 1;
                    if let Some(by) = guest.by {
                        let whose = format!("the transfers of user {}", guest.user);
                        log(&format!("administrator {by} looks after {whose}"));
                    }
                    return;
                }
                Ok(false) => {
                    let e = Error::new(Kind::Timeout, "the worker of this user has too much to do");
                    return refuse(&guest.stream, &e.with_hint("try again in a moment"));
                }
                // It has just ended; another one is started.
                Err(_) => {
                    worker.gone = true;
                    self.bury();
                }
            }
        }
        let e = Error::new(Kind::Peer, "the worker of this user ends when it begins");
        refuse(&guest.stream, &e.with_hint("the log of the daemon says why"));
    }

    /// Starts the worker of a user if there is none. False as long as the system has not said who that is.
    fn worker(&mut self, user: u32, group: u32) -> Result<bool> {
        if self.workers.here.contains_key(&user) {
            return Ok(true);
        }
        let found: Option<Found> = match (self.all, &self.pool) {
            (true, _) => match self.names.who(user)? {
                None => return Ok(false),
                found => found,
            },
            // Of its own user a daemon wants to know the name alone, for other nodes, and may do without.
            (false, Some(_)) => match self.names.who(user) {
                Ok(None) => return Ok(false),
                found => found.ok().flatten(),
            },
            (false, None) => None,
        };
        // What is agreed may be something else by now, as it will be for the worker.
        self.admins.look();
        self.workers.start(user, group, found).map(|()| true)
    }

    /// Takes what a worker says, and does what it asks if its user may.
    fn hear(&mut self, user: u32) {
        let mut said = Said::default();
        self.read(user, &mut said);
        if !said.cleared.is_empty() {
            self.admins.cleared(user, &said.cleared);
        }
        self.count(user, &said.counts);
        said.wanted.into_iter().for_each(|wanted| self.want(user, wanted));
        self.grant_all();
    }

    /// Says how many transfers of all users are under way in each dataspace.
    fn count(&self, user: u32, tickets: &[u64]) {
        let Some(worker) = self.workers.here.get(&user).filter(|_| !tickets.is_empty()) else {
            return;
        };
        let running = self.admins.counted(self.workers.running());
        for ticket in tickets {
            // Who does not hear it goes without.
            let counted = Order::Counted { ticket: *ticket, running: running.clone() };
            let _ = control::send(&worker.control, &counted, None, false);
        }
    }

    /// Tells all workers that administrators have said something, as soon as they can hear it.
    fn tell_all(&mut self) {
        for worker in self.workers.here.values_mut().filter(|worker| worker.stale) {
            let told = control::send(&worker.control, &Order::Renew, None, false);
            worker.stale = !told.unwrap_or(true);
        }
    }

    fn read(&mut self, user: u32, said: &mut Said) {
        for _ in 0..AT_ONCE {
            let Some(worker) = self.workers.here.get_mut(&user) else { return };
            let waits = crate::socket::is_readable(&worker.control, Some(Duration::ZERO));
            if !waits.unwrap_or(true) {
                return;
            }
            match control::report(&worker.control) {
                Ok(Some((Report::Load { seen, kinds, next }, _))) => {
                    worker.told = true;
                    worker.part.hear(seen, kinds, &next);
                    self.workers.has_looked(user);
                }
                Ok(Some((Report::Numbers(numbers), _))) => self.admins.note(user, numbers),
                Ok(Some((Report::Admin { ticket, change }, _))) => {
                    said.wanted.push(Wanted::Change(ticket, change));
                }
                Ok(Some((Report::Manage { user }, Some(connection)))) => {
                    said.wanted.push(Wanted::Manage(user, connection));
                }
                Ok(Some((Report::Coming { ticket, name, bytes }, _))) => {
                    let bytes = self.admins.coming(user, &name, bytes);
                    if ticket > 0 {
                        // Who does not hear it asks again.
                        let others = Order::Others { ticket, bytes };
                        let _ = control::send(&worker.control, &others, None, false);
                    }
                }
                Ok(Some((Report::Count { ticket }, _))) => said.counts.push(ticket),
                Ok(Some((Report::Cleared { dataspaces }, _))) => said.cleared.extend(dataspaces),
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
                Ok(Some((Report::Reach { .. } | Report::Manage { .. }, None))) => {}
                Ok(None) => {
                    worker.gone = true;
                    return;
                }
                Err(e) => {
                    log(&format!("the worker of user {user} is ended: {e}"));
                    return worker.kill();
                }
            }
        }
    }

    /// Takes leave of workers that have ended, or do so.
    fn bury(&mut self) {
        for user in self.workers.bury() {
            self.admins.has_ended(user);
        }
    }

    /// Says what each worker may do.
    fn divide(&mut self) {
        let transfers = if self.admins.kept().drained { 0 } else { self.transfers };
        let (here, leaving) = self.workers.parts();
        let (controls, mut parts): (Vec<_>, Vec<_>) = here.into_iter().unzip();
        let send = |i: usize, order: &Order| {
            let control = controls.get(i).copied();
            control.is_some_and(|to| control::send(to, order, None, false).unwrap_or(false))
        };
        sharing::divide(
            transfers,
            self.admins.tiers(),
            &mut parts,
            &leaving,
            &mut self.turns,
            send,
        );
    }
}

/// What a worker asks of its broker, besides what it does.
#[derive(Default)]
struct Said {
    wanted: Vec<Wanted>,
    cleared: BTreeSet<String>,
    /// Questions how many transfers there are.
    counts: Vec<u64>,
}
