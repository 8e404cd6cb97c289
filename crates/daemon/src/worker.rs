//! The worker of a user: a process with the rights of that user, which has the user's journal and does the transfers.

use crate::admin::Numbers;
use crate::administer::{Desk, Told};
use crate::answers::{Here, Office, serve};
use crate::calendar::Calendar;
use crate::clock;
use crate::coming::Coming;
use crate::control::{self, Handed, Order, Report};
use crate::counts::Counts;
use crate::flows::Flows;
use crate::log::log;
use crate::reach::ByBroker;
use crate::refuse::refuse;
use crate::rights;
use crate::socket::is_readable;
use crate::tidy;
use crate::turn::Turn;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Result};
use stead_stage::{Load, Queue, Share, Stager, State};
use stead_store::space;
use stead_stream::Switchboard;

/// Bytes of the names of all nodes.
const MOST_NAMES_BYTES: usize = 32 << 20;
/// Connections of a user at a time.
const MOST_CONNECTIONS: usize = 256;
/// Those of administrators who look after the transfers of a user. They are counted apart: neither keeps the other out.
const MOST_MANAGED: usize = 16;
/// Who has had nothing to do for so long ends.
const IDLE: Duration = Duration::from_secs(60);
/// How often it is looked whether there is something to do.
const LOOK: Duration = Duration::from_secs(5);
/// Between two reports to the broker.
const PAUSE: Duration = Duration::from_millis(10);
/// Between two reports of how much was done.
const COUNTS_EVERY: Duration = Duration::from_secs(1);
/// Transfers that are counted as ready: more nobody does at a time.
const MOST_READY: usize = 1024;
/// How long a worker that cannot work tells its users why.
const TELLS: Duration = Duration::from_secs(5);

/// Says when somebody is to look.
#[derive(Default)]
pub(crate) struct Bell {
    rung: Mutex<bool>,
    heard: Condvar,
}

impl Bell {
    fn ring(&self) {
        *self.rung.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.heard.notify_one();
    }

    /// Waits until it is rung, for a few seconds; true if it was.
    pub(crate) fn wait(&self) -> bool {
        self.wait_within(LOOK)
    }

    fn wait_within(&self, most: Duration) -> bool {
        let rung = self.rung.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.heard.wait_timeout_while(rung, most, |rung| !*rung);
        std::mem::take(&mut *waited.unwrap_or_else(PoisonError::into_inner).0)
    }
}

/// Does what the broker at the other end of the standard input says, until it has nothing more to say.
///
/// # Errors
/// Those of the connection to the broker, of taking rights, of the journal.
pub fn work() -> Result<()> {
    let control = std::io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|e| Error::io("use", "the standard input", e))?;
    let begin = control::receive::<Order>(&control)
        .map_err(|e| e.with_hint("a worker is started by the daemon, not by hand: stead daemon"))?;
    let Some((Order::Begin { state, threads, journal, rights, kept, admin, node }, names)) = begin
    else {
        return Err(Error::usage("the daemon has not said whose worker this is"));
    };
    let names = names.and_then(Handed::any);
    if let Some(owner) = &rights {
        // What the daemon was started with, such as sockets of MPI, is none of its users'.
        let keep = [control.as_raw_fd(), names.as_ref().map_or(-1, AsRawFd::as_raw_fd)];
        // The environment is what the daemon has given. Once it has the rights of another user the system does not tell any more.
        let _ = space::has_rights_of_others();
        rights::take(owner.user, owner.group, &keep)?;
        // Nothing there is looked at before.
        space::set_home(Path::new(&owner.home));
    }
    let control = Arc::new(control);
    let nodes = names.map(nodes).transpose()?.unwrap_or_else(|| vec![node.clone()]).into();
    let here = Here { node, nodes, control: control.clone() };
    let desk = Desk::open(Some(kept.into()), rights, threads, admin, control.clone());
    match desk.and_then(|desk| open(Path::new(&state), journal, desk, here)) {
        Ok((office, bell)) => run(&control, office, &bell),
        Err(e) => {
            tell(&control, &e);
            Err(e)
        }
    }
}

/// The names of nodes that a file has.
fn nodes(names: OwnedFd) -> Result<Vec<String>> {
    let failed = |e| Error::io("read", "the names of nodes", e);
    let (file, mut text) = (std::fs::File::from(names), Vec::new());
    let size = usize::try_from(file.metadata().map_err(failed)?.len()).unwrap_or(0);
    text.resize(size.min(MOST_NAMES_BYTES), 0);
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut text, 0).map_err(failed)?;
    serde_json::from_slice(&text)
        .map_err(|e| Error::format(format!("the names of nodes are not understood: {e}")))
}

fn open(state: &Path, journal: u64, desk: Desk, here: Here) -> Result<(Arc<Office>, Arc<Bell>)> {
    let coming = Arc::new(Coming::new(here.control.clone()));
    let stager = Stager::open(state, desk.means()?)?.bounded(journal);
    let mut stager = stager.beside(coming.clone());
    if here.nodes.len() > 1 {
        stager = stager.reaching(Arc::new(ByBroker::new(here.control.clone())));
    }
    let stager = Arc::new(stager);
    let bell = Arc::new(Bell::default());
    let rings = bell.clone();
    let queue = Queue::open(stager, move || rings.ring())?;
    let ending = Cancel::new();
    let office = Office {
        queue,
        streams: Switchboard::new(ending.clone()),
        flows: Arc::new(Flows::new(state)),
        connections: AtomicUsize::new(0),
        managed: AtomicUsize::new(0),
        taken: AtomicUsize::new(0),
        large: Turn::default(),
        lasting: Turn::default(),
        ending,
        desk,
        coming,
        counts: Counts::new(here.control.clone()),
        tidy: AtomicBool::new(false),
        calendar: Calendar::open(state),
        here,
    };
    Ok((Arc::new(office), bell))
}

/// Tells whoever comes why nothing is done.
fn tell(control: &OwnedFd, e: &Error) {
    let until = clock::now() + TELLS;
    while let left = until.saturating_duration_since(clock::now())
        && !left.is_zero()
        && is_readable(control, Some(left)).unwrap_or(false)
    {
        let Ok(Some((order, connection))) = control::receive::<Order>(control) else { return };
        if let (Order::Serve { .. }, Some(stream)) = (order, connection.and_then(Handed::stream)) {
            refuse(&stream, e);
        }
    }
}

fn run(control: &Arc<OwnedFd>, office: Arc<Office>, bell: &Arc<Bell>) -> Result<()> {
    let reporter = {
        let (control, office, bell) = (control.clone(), office.clone(), bell.clone());
        std::thread::Builder::new()
            .name("stead-report".into())
            .spawn(move || report(&control, &office, &bell))
            .map_err(|e| Error::io("start a thread", "this process", e))?
    };
    // The first look is at once.
    let tidies = Arc::new(Bell::default());
    tidies.ring();
    let tidier = {
        let (control, office, bell) = (control.clone(), office.clone(), tidies.clone());
        std::thread::Builder::new()
            .name("stead-tidy".into())
            .spawn(move || tidy::watch(&office, &control, &bell))
            .map_err(|e| Error::io("start a thread", "this process", e))?
    };
    let done = obey(control, &office, &tidies);
    office.ending.cancel();
    bell.ring();
    tidies.ring();
    // Readers of what they write are told, while transfers are stopped.
    office.flows.close();
    // It stops within a file.
    let _ = tidier.join();
    // Connections that are open still have it.
    office.queue.end();
    office.flows.leave();
    // It sends nothing that nobody takes: the other end is read, or gone.
    let _ = reporter.join();
    done
}

/// Tells the broker how much there is to do, when that changes.
fn report(control: &OwnedFd, office: &Office, bell: &Bell) {
    let (mut last, mut numbers, mut told) = (None, Numbers::default(), clock::now());
    while !office.ending.is_cancelled() {
        let load = office.queue.load(MOST_READY);
        if let Ok(load) = load
            && last.as_ref() != Some(&load)
        {
            last = Some(load.clone());
            let Load { seen, kinds, next, .. } = load;
            if control::send(control, &Report::Load { seen, kinds, next }, None, true).is_err() {
                return;
            }
        }
        // What cannot be counted now is told the next time.
        let _ = office.coming.tell(|| office.queue.coming());
        // To count takes longer than to look.
        let counts = numbers == Numbers::default() || told.elapsed() > COUNTS_EVERY;
        if counts
            && let Ok(now) = count(office)
            && now != numbers
        {
            (numbers, told) = (now, clock::now());
            if control::send(control, &Report::Numbers(now), None, true).is_err() {
                return;
            }
        }
        // Many changes in a row are told as one.
        clock::pause(PAUSE);
        // What was not counted now is counted then, also if nothing happens any more.
        bell.wait_within(if counts { LOOK } else { COUNTS_EVERY });
    }
}

/// How much was done.
fn count(office: &Office) -> Result<Numbers> {
    let mut numbers = Numbers {
        user: rustix::process::geteuid().as_raw(),
        connections: office.connections.load(Ordering::Relaxed) as u64,
        rate: office.queue.rate(),
        ..Numbers::default()
    };
    for of in office.queue.totals()? {
        match of.state {
            State::Running => numbers.running += of.transfers,
            State::Pending | State::Interrupted => numbers.waiting += of.transfers,
            State::Finished => numbers.finished += of.transfers,
            State::Failed => numbers.failed += of.transfers,
            State::Cancelled => {}
        }
        numbers.bytes += of.bytes_done;
    }
    Ok(numbers)
}

fn obey(control: &OwnedFd, office: &Arc<Office>, tidies: &Bell) -> Result<()> {
    let (mut served, mut since) = (0u64, clock::now());
    loop {
        // The journal is asked last: connections come often.
        let has_work = || office.queue.load(1).map(|load| load.running + load.ready > 0);
        let busy = office.connections.load(Ordering::Relaxed) > 0
            || office.managed.load(Ordering::Relaxed) > 0
            || office.flows.is_used()
            || !office.tidy.load(Ordering::Acquire)
            || has_work()?;
        if busy {
            since = clock::now();
        } else if served == 0 || since.elapsed() > IDLE {
            // One that nobody has asked for was to look whether there is something to go on with.
            since = clock::now();
            control::send(control, &Report::Idle { served }, None, true)?;
        }
        if !is_readable(control, Some(LOOK))? {
            continue;
        }
        match control::receive::<Order>(control)? {
            None | Some((Order::End, _)) => return Ok(()),
            Some((Order::Share { number, kinds, rates, full }, _)) => {
                let kinds = kinds.into_iter().collect();
                office.queue.set_share(Share { number, kinds, rates, full });
            }
            Some((Order::Renew, _)) => {
                if let Some(means) = office.desk.renew() {
                    office.queue.set_means(means);
                }
                office.tidy.store(false, Ordering::Release);
                tidies.ring();
            }
            Some((Order::Told { ticket, failed, users }, _)) => {
                office.desk.hear(ticket, Told { failed, users });
            }
            Some((Order::Others { ticket, bytes }, _)) => office.coming.hear(ticket, bytes),
            Some((Order::Counted { ticket, running }, _)) => office.counts.hear(ticket, running),
            Some((Order::Serve { managed }, connection)) => {
                served += 1;
                since = clock::now();
                match connection.and_then(Handed::stream) {
                    Some(stream) => connect(stream, office, managed),
                    // The program sees that it is closed, and comes again.
                    None => crate::log::log("a connection was lost: too many open files"),
                }
            }
            Some(_) => return Err(Error::internal("an order that a worker does not know")),
        }
    }
}

/// Counts a connection as long as it is there.
struct Connected {
    office: Arc<Office>,
    managed: bool,
}

impl Connected {
    /// How many there are of its sort.
    fn count(&self) -> &AtomicUsize {
        match self.managed {
            true => &self.office.managed,
            false => &self.office.connections,
        }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.count().fetch_sub(1, Ordering::Relaxed);
    }
}

fn connect(stream: UnixStream, office: &Arc<Office>, managed: bool) {
    let connected = Connected { office: office.clone(), managed };
    let (whose, most) = match managed {
        true => ("administrators have", MOST_MANAGED),
        false => ("this user has", MOST_CONNECTIONS),
    };
    if connected.count().fetch_add(1, Ordering::Relaxed) >= most {
        let of = if managed { " about transfers of this user" } else { "" };
        let e = Error::limit(format!("{whose} {most} connections{of} already"))
            .with_hint("close some, or ask for several transfers by one");
        return refuse(&stream, &e);
    }
    let thread = std::thread::Builder::new().name("stead-answers".into()).stack_size(512 << 10);
    let begun = thread.spawn(move || {
        // The program was told, or is gone.
        let _ = serve(stream, &connected.office, managed);
    });
    // Without a thread the connection is closed.
    if let Err(e) = begun {
        let e = Error::new(Kind::Limit, format!("no thread for a connection: {e}"));
        log(&e.to_string());
    }
}
