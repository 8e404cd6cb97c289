//! Streams of other nodes whose daemons are a pool: what programs that were begun by themselves read each other's streams by.
//!
//! The daemons give connections; what goes over them is what ranks of a coupling say to each other. Each reader has two to every node
//! that writers of its stream are on, which a [`Switchboard`] there puts together by a number that the reader has drawn. By one of them it
//! has looked for the stream there; to nodes that do not have it, it keeps none but at first, and where these are few.

use crate::agent::{self, Client};
use crate::board::Board;
use crate::clock;
use crate::find::{self, Others};
use crate::here;
use crate::home::Home;
use crate::line::Line;
use crate::memory::{Shared, token};
use crate::options::{Patience, Read};
use crate::several::AT_ONCE;
use crate::source::Source;
use crate::there::{self, Talk};
use crate::wire::{self, Ask, Found, Sought};
use crate::wired::{self, Wired};
use std::cell::OnceCell;
use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Kind, Result};

/// Nodes that are asked for a stream.
pub(crate) const MOST_NODES: usize = 1024;
/// How long it is waited at first, and at last, before nodes are asked again for a stream that nobody writes yet.
const SOON: Duration = Duration::from_millis(5);
/// And at first where they are asked by connections that are there.
const VERY_SOON: Duration = Duration::from_millis(2);
/// So long these are kept after the search has begun.
const KEEPS: Duration = Duration::from_secs(1);
const LATER: Duration = Duration::from_millis(500);
/// How long it is waited at last before it is looked again whether there is a pool.
const SELDOM: Duration = Duration::from_secs(2);
/// It is waited for so long for each node that is asked: daemons let a user begin so many connections in a second, and no more.
const FOR_EACH: Duration = Duration::from_millis(10);
/// So long a daemon of this node has to tell which nodes there are, where a stream is looked for elsewhere meanwhile.
const NAMES_WITHIN: Duration = Duration::from_secs(1);
/// A node that has not answered within this is asked anew.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);
/// Connections for errands that wait for what is asked with them, and readers at a time.
const MOST_WAITING: usize = 256;
/// Bytes of what a reader asks at once: names, and places in arrays.
const MOST_ASKED: u64 = 1 << 20;
const MOST_READERS: usize = 1024;
/// Who has what is asked to come with errands comes at once.
const COMES_WITHIN: Duration = Duration::from_secs(60);

/// What a connection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// For errands.
    Errands,
    /// For what is asked: about streams, and for a place among the readers of one, which is given once the connection for errands is there.
    Asks,
}

/// The nodes of a pool, as one of them has them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// This one; `None` where there is no daemon.
    pub here: Option<String>,
    /// The others that may have streams. None where there is no pool.
    pub others: Vec<String>,
}

/// Other nodes, as a program reaches them.
pub trait Nodes: fmt::Debug + Send + Sync {
    /// Which there are.
    ///
    /// # Errors
    /// Those of asking; `NotFound` if one is named that there is not; `Timeout`, and that of what ends the wait.
    fn names(&self, patience: &Patience) -> Result<Names>;

    /// True if somebody has named them: it is an error then if they cannot be reached.
    fn are_named(&self) -> bool;

    /// A connection to the [`Switchboard`] of a node, for this way of the conversation that has this number. These bytes are what is said
    /// by it first: they go with what asks for it, and not only when the node has answered that. Where it is tried again they do, too.
    ///
    /// # Errors
    /// `Peer` if it is gone; `Limit` if there are too many connections, now; `Timeout`, and that of what ends the wait.
    fn connect(
        &self,
        node: &str,
        number: u64,
        way: Way,
        first: &[u8],
        patience: &Patience,
    ) -> Result<UnixStream>;

    /// The same, but that no others than these are asked.
    fn among(&self, names: Vec<String>) -> Arc<dyn Nodes>;
}

/// A connection for errands, until what is asked is there as well.
#[derive(Debug)]
struct Waiting {
    number: u64,
    errands: UnixStream,
    /// Who has not come by then will not.
    until: Instant,
}

impl Waiting {
    /// True if nobody comes for it any more.
    fn is_over(&self) -> bool {
        // Nothing is said by it before it was taken, but a farewell.
        let says = || {
            self.errands.set_nonblocking(true)?;
            let read = (&self.errands).read(&mut [0; 1]);
            self.errands.set_nonblocking(false)?;
            read
        };
        self.until <= clock::now() || !says().is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
    }
}

/// Answers readers of other nodes about the streams of this one, for one user.
#[derive(Debug)]
pub struct Switchboard {
    /// Those that came first before the others.
    waiting: Mutex<VecDeque<Waiting>>,
    readers: AtomicUsize,
    ending: Cancel,
}

impl Switchboard {
    /// Until that is cancelled.
    pub fn new(ending: Cancel) -> Switchboard {
        Switchboard { waiting: Mutex::default(), readers: AtomicUsize::new(0), ending }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Waiting>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the connection for errands of a conversation, until who has one of the [same number](Switchboard::serve) takes a place.
    ///
    /// # Errors
    /// `Usage` if there is one of this number; `Limit` if too many wait, none of which is over.
    pub fn keep(&self, number: u64, errands: UnixStream) -> Result<()> {
        let mut waiting = self.waiting();
        // Who comes again has lost the one before.
        waiting.retain(|other| other.number != number || !other.is_over());
        if waiting.iter().any(|other| other.number == number) {
            return Err(Error::usage("there is a conversation of this number already"));
        }
        if waiting.len() >= MOST_WAITING {
            waiting.retain(|other| !other.is_over());
        }
        if waiting.len() >= MOST_WAITING {
            return Err(Error::limit("too many readers of other nodes come at a time")
                .with_hint("try again in a moment"));
        }
        waiting.push_back(Waiting { number, errands, until: clock::after(COMES_WITHIN) });
        Ok(())
    }

    /// The connection for errands that has come before what is asked.
    ///
    /// # Errors
    /// `Usage` if none of this number has; `Limit` if there are too many readers.
    fn take(&self, number: u64) -> Result<UnixStream> {
        let none = || Error::usage("there is no connection for errands of this number");
        let mut waiting = self.waiting();
        let at = waiting.iter().position(|other| other.number == number).ok_or_else(none)?;
        let Waiting { errands, .. } = waiting.remove(at).ok_or_else(none)?;
        drop(waiting);
        if self.readers.load(Ordering::Acquire) >= MOST_READERS {
            return Err(Error::limit("too many readers of other nodes at a time")
                .with_hint("try again when others have ended"));
        }
        Ok(errands)
    }

    /// Answers who asks by this connection about streams in these dataspaces, until it says farewell, is gone, or all is to end. Who has sent
    /// one for errands of this number before may take a place among readers.
    ///
    /// # Errors
    /// Those of the dataspace `memory`.
    pub fn serve(&self, asks: UnixStream, number: u64, spaces: &Spaces) -> Result<()> {
        let home = Home::open(spaces)?;
        let ending = || Some(self.ending.clone());
        let line = |stream| Wired::new(stream, "of a reader".to_owned(), MOST_ASKED, ending());
        let (asks, present) = (line(asks)?, OnceCell::new());
        let errands = || -> Result<Arc<dyn Line>> {
            let errands = Arc::new(line(self.take(number)?)?);
            present.get_or_init(|| Present::new(&self.readers));
            Ok(errands)
        };
        let thread = |name: &str, work: Box<dyn FnOnce() + Send>| {
            let begun = std::thread::Builder::new().name(name.to_owned()).spawn(work);
            begun
                .map(drop)
                .map_err(|e| Error::io("start a thread for", "readers of other nodes", e))
        };
        let errands = &errands;
        let client = Client { asks: &asks, errands, whose: None, thread: &thread, settles: None };
        agent::serve(&home, &client);
        // Nobody takes a place by it any more.
        self.waiting().retain(|other| other.number != number);
        Ok(())
    }
}

/// Counts a reader as long as it is served.
struct Present<'r>(&'r AtomicUsize);

impl Present<'_> {
    fn new(readers: &AtomicUsize) -> Present<'_> {
        readers.fetch_add(1, Ordering::AcqRel);
        Present(readers)
    }
}

impl Drop for Present<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// A connection by which a node is asked, and the number of the conversation that it may become.
type Asking = (u64, Box<Wired>);

/// Nodes of the pool that are asked.
struct Asked<'n> {
    nodes: &'n Arc<dyn Nodes>,
    /// Their names, once they are known.
    names: OnceLock<Vec<String>>,
    /// What nodes were asked by that are asked again soon.
    kept: Mutex<HashMap<usize, Asking>>,
    /// Ranks that ask at the same time.
    ranks: u64,
    /// None is kept from then on, nor where there are too many.
    until: Instant,
    are_too_many: AtomicBool,
}

impl<'n> Asked<'n> {
    fn new(nodes: &'n Arc<dyn Nodes>, names: OnceLock<Vec<String>>, ranks: u64) -> Asked<'n> {
        let (kept, until) = (Mutex::default(), clock::after(KEEPS));
        Asked { nodes, names, kept, ranks, until, are_too_many: AtomicBool::new(false) }
    }

    fn names(&self) -> &[String] {
        self.names.get().map_or(&[], Vec::as_slice)
    }

    fn node(&self, which: usize) -> Result<&String> {
        self.names().get(which).ok_or_else(|| Error::internal("there is no such node"))
    }

    /// True where connections are kept: there are few of them for all programs of a user, and to make one takes several processes far longer
    /// than to answer by one.
    fn keeps(&self) -> bool {
        let all = (self.names().len() as u64).saturating_mul(self.ranks);
        let are_few = all <= AT_ONCE as u64 && !self.are_too_many.load(Ordering::Acquire);
        are_few && clock::now() < self.until
    }

    /// Parts with those that are kept.
    fn let_go(&self) {
        let kept: Vec<Asking> = self.kept().drain().map(|(_, kept)| kept).collect();
        kept.iter().for_each(|(_, line)| there::part(&**line));
    }

    fn kept(&self) -> MutexGuard<'_, HashMap<usize, Asking>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn line(
        &self,
        which: usize,
        (number, way): (u64, Way),
        first: &[u8],
        patience: &Patience,
    ) -> Result<Box<Wired>> {
        let node = self.node(which)?;
        let stream = self.nodes.connect(node, number, way, first, patience).inspect_err(|e| {
            // Others, or this one for what matters more, have need of them.
            if e.kind() == Kind::Limit {
                self.are_too_many.store(true, Ordering::Release);
                self.let_go();
            }
        })?;
        Wired::new(stream, node.to_owned(), u64::MAX, None).map(Box::new)
    }
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        self.let_go();
    }
}

impl Others for Asked<'_> {
    fn len(&self) -> usize {
        self.names().len()
    }

    fn name(&self, which: usize) -> String {
        self.names().get(which).map_or_else(|| "a node".to_owned(), |name| format!("node '{name}'"))
    }

    fn look(&self, which: usize, who: &Sought, patience: &Patience) -> Result<Option<Found>> {
        let patience = patience.at_most(ANSWERS_WITHIN);
        let ask = wire::encode(&Ask::Find(who.clone()))?;
        let kept = self.kept().remove(&which);
        let (number, line) = match kept {
            Some((number, line)) => {
                line.send(ask)?;
                (number, line)
            }
            None => {
                let (number, first) = (token(), wired::said(&ask));
                (number, self.line(which, (number, Way::Asks), &first, &patience)?)
            }
        };
        let found = there::answered(&*line, &who.name, &patience)?;
        match self.keeps() {
            true => drop(self.kept().insert(which, (number, line))),
            false => there::part(&*line),
        }
        Ok(found)
    }

    fn talk(
        &self,
        which: usize,
        stream: &str,
        options: &Read,
        patience: &Patience,
    ) -> Result<Talk> {
        let patience = patience.at_most(ANSWERS_WITHIN);
        let line = |number, way| self.line(which, (number, way), &[], &patience);
        let kept = self.kept().remove(&which);
        let (number, asks) = match kept {
            Some(kept) => kept,
            None => {
                let number = token();
                (number, line(number, Way::Asks)?)
            }
        };
        Ok(Talk::new(stream, asks, line(number, Way::Errands)?, options))
    }

    fn may_miss(&self, _: usize, error: &Error) -> bool {
        // Its daemon has ended, or does not serve this user, or is of another version.
        matches!(error.kind(), Kind::Peer | Kind::Permission | Kind::Timeout | Kind::NotFound)
    }

    fn is_full(&self, _: usize, error: &Error) -> bool {
        error.kind() == Kind::Limit
    }

    fn pauses(&self) -> (Duration, Duration) {
        let many = u32::try_from(self.len()).unwrap_or(u32::MAX);
        let soon = if self.keeps() { VERY_SOON } else { SOON };
        (soon, LATER.max(FOR_EACH.saturating_mul(many)))
    }

    fn hint(&self) -> &'static str {
        "begin its writers, as this user, or wait longer for them"
    }
}

/// Nodes of a pool, for a reader that looks in its job as well: it is not known at first whether there is one, and its nodes are asked more
/// seldom, and only when the job has been.
pub(crate) struct Beside<'n> {
    asked: Asked<'n>,
    pace: Mutex<Pace>,
}

/// When the pool is asked.
struct Pace {
    /// For its nodes, and then these for the stream: not before that, and after what pause the next time.
    next: Instant,
    pause: Duration,
    /// It was asked for its nodes.
    was_asked: bool,
    /// Why these are not known.
    why: Option<Error>,
}

impl<'n> Beside<'n> {
    pub(crate) fn new(nodes: &'n Arc<dyn Nodes>, ranks: u64) -> Beside<'n> {
        let pace = Pace { next: clock::now(), pause: SOON, was_asked: false, why: None };
        Beside { asked: Asked::new(nodes, OnceLock::new(), ranks), pace: Mutex::new(pace) }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The nodes that are known.
    pub(crate) fn others(&self) -> &dyn Others {
        &self.asked
    }

    /// True once it was asked which nodes there are.
    pub(crate) fn are_known(&self) -> bool {
        self.pace().was_asked
    }

    /// True if nodes are to be asked for the stream now; they are not, then, for a while.
    pub(crate) fn is_due(&self) -> bool {
        let mut pace = self.pace();
        let now = clock::now();
        if self.asked.len() == 0 || now < pace.next {
            return false;
        }
        let longest = self.asked.pauses().1;
        pace.next = clock::after(pace.pause);
        pace.pause = (pace.pause * 2).min(longest);
        true
    }

    /// Asks which nodes there are, now and then until there are some.
    ///
    /// # Errors
    /// `NotFound` if one is named that there is not; that of what ends the wait.
    pub(crate) fn renew(&self, patience: &Patience) -> Result<()> {
        let mut pace = self.pace();
        if self.asked.len() > 0 || clock::now() < pace.next {
            return Ok(());
        }
        let asked = self.asked.nodes.names(&patience.at_most(NAMES_WITHIN));
        pace.was_asked = true;
        pace.why = None;
        match asked.and_then(few_enough) {
            Ok(names) if names.is_empty() => {}
            Ok(names) => {
                // Nobody else sets them.
                let _ = self.asked.names.set(names);
                (pace.next, pace.pause) = (clock::now(), SOON);
                return Ok(());
            }
            Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Usage | Kind::Cancelled) => {
                return Err(e);
            }
            // What is in the job is found without it.
            Err(e) => pace.why = Some(e),
        }
        pace.next = clock::after(pace.pause);
        pace.pause = (pace.pause * 2).min(SELDOM);
        Ok(())
    }

    /// What it is called after the nodes of the job, for errors.
    pub(crate) fn all(&self) -> String {
        let pace = self.pace();
        match (self.asked.len(), &pace.why) {
            (0, Some(why)) => format!(", and a pool was not asked: {}", why.message()),
            (0, None) if pace.was_asked => ", and there is no pool of daemons here".to_owned(),
            (0, None) => String::new(),
            (many, _) => format!(", or on {many} of the pool"),
        }
    }
}

/// The names of nodes that are asked for a stream.
fn few_enough(names: Names) -> Result<Vec<String>> {
    match names.others.len() {
        0..=MOST_NODES => Ok(names.others),
        many => Err(Error::limit(format!(
            "{many} nodes are too many to be asked for a stream, of which at most {MOST_NODES} are"
        ))
        .with_hint("name the nodes that its writers are on")),
    }
}

/// That not all writers of a stream are on this node, and there is no pool.
fn few(name: &str, said: &Found) -> Error {
    let (count, all) = (said.ranks.len(), said.all);
    let message = format!("{count} of {all} writers of stream '{name}' have come");
    Error::new(Kind::Timeout, message).with_hint(
        "those on other nodes are found by daemons that are a pool: mpirun stead daemon --pool",
    )
}

/// All writers of a stream, on this node or on those of the pool, as soon as there are all of them. Nothing where
/// all of it is on this node. As long as there is no pool, it is looked again whether there is one.
///
/// # Errors
/// Those of [`find::find`]; `Limit` if the pool is too large to be asked as a whole.
pub(crate) fn find(
    nodes: &Arc<dyn Nodes>,
    name: &str,
    options: &Read,
) -> Result<Option<Vec<Box<dyn Source>>>> {
    let home = Home::open(&options.spaces)?;
    let patience = Patience::new(options.timeout, options.stop.clone());
    let mut pause = SOON;
    let names = loop {
        // What is written here, all of it, is not looked for elsewhere.
        let here = agent::find(&home, &Sought::of(name, options))?.map(|(said, _)| said);
        let is_whole = |said: &Found| said.ranks.len() as u64 == said.all;
        if here.as_ref().is_some_and(|said| said.is_live && is_whole(said)) {
            return Ok(None);
        }
        let is_over = patience.left().is_zero();
        let missing = match nodes.names(&patience) {
            Ok(names) if names.others.is_empty() => None,
            // Others of this user ask as well.
            Err(e) if e.kind() == Kind::Limit && !is_over => {
                patience.check()?;
                home.watch()?.wait(patience.share().min(LATER));
                continue;
            }
            // No daemon has begun, or it ends just now.
            Err(e) if e.kind() == Kind::Peer && !is_over => Some(e),
            names => break names?,
        };
        // There is no pool, or none yet: whoever begins it may do so after its readers.
        let until = patience.end().min(clock::after(pause));
        let all = |board: &Board<Shared>| {
            here::is_for(board, options) && board.writers() as u64 == board.agreed().all
        };
        match home.find(name, all, until, &options.stop) {
            Err(e) if e.kind() == Kind::Timeout && patience.left().is_zero() => {
                let few = here.map(|said| few(name, &said));
                return Err(missing.or(few).unwrap_or(e));
            }
            Err(e) if e.kind() == Kind::Timeout => pause = (pause * 2).min(SELDOM),
            found => return found.map(|_| None),
        }
    };
    let others = Asked::new(nodes, few_enough(names)?.into(), options.ranks);
    find::find(&home, name, options, &others, patience.end()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_that_wait_those_go_whose_readers_are_gone() {
        let board = Switchboard::new(Cancel::new());
        let mut theirs = VecDeque::new();
        for number in 0..MOST_WAITING as u64 {
            let (ours, other) = UnixStream::pair().unwrap();
            board.keep(number, ours).unwrap();
            theirs.push_back(other);
        }
        let pair = || UnixStream::pair().unwrap();
        // All who wait are there: each finds what it has brought.
        let (one, more) = (pair(), pair());
        assert_eq!(board.keep(7, one.0).unwrap_err().kind(), Kind::Usage);
        assert_eq!(board.keep(1 << 40, more.0).unwrap_err().kind(), Kind::Limit);
        drop(board.take(1).unwrap());
        assert_eq!(board.take(1).unwrap_err().kind(), Kind::Usage);
        // The first one has gone.
        drop(theirs.pop_front());
        for number in [1 << 41, 1 << 42] {
            let (ours, other) = pair();
            board.keep(number, ours).unwrap();
            theirs.push_back(other);
        }
        assert_eq!(board.take(0).unwrap_err().kind(), Kind::Usage);
        (2..MOST_WAITING as u64).for_each(|number| drop(board.take(number).unwrap()));
        for number in [1 << 41, 1 << 42] {
            drop(board.take(number).unwrap());
        }
    }

    #[test]
    fn a_connection_for_errands_goes_with_who_might_have_taken_a_place() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut spaces = Spaces::default();
        spaces.imply("memory", dir.path().join("own").to_str().unwrap());
        let board = Switchboard::new(Cancel::new());
        let pair = || UnixStream::pair().unwrap();
        let ((errands, theirs), (asks, _)) = (pair(), pair());
        board.keep(7, errands).unwrap();
        board.serve(asks, 7, &spaces).unwrap();
        assert_eq!(board.take(7).unwrap_err().kind(), Kind::Usage);
        assert_eq!((&theirs).read(&mut [0]).unwrap(), 0);
        // Who comes again with the number of one that is lost is not refused.
        let ((lost, other), (again, _there)) = (pair(), pair());
        board.keep(8, lost).unwrap();
        drop(other);
        board.keep(8, again).unwrap();
    }

    #[test]
    fn who_has_sent_no_connection_for_errands_is_answered_and_gets_no_place() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut spaces = Spaces::default();
        spaces.imply("memory", dir.path().join("own").to_str().unwrap());
        let written = crate::Written { spaces: spaces.clone(), ..crate::Written::default() };
        let _writer = crate::Writer::open("sim", &written).unwrap();
        let board = Switchboard::new(Cancel::new());
        let (asks, mine) = UnixStream::pair().unwrap();
        let line = Wired::new(mine, "n1".into(), u64::MAX, None).unwrap();
        let patience = Patience::new(Duration::from_secs(60), crate::Stop::default());
        std::thread::scope(|scope| {
            scope.spawn(|| board.serve(asks, 7, &spaces).unwrap());
            let who = Sought::of("sim", &Read::default());
            line.send(wire::encode(&Ask::Find(who.clone())).unwrap()).unwrap();
            let found: Option<Found> = there::answered(&line, "sim", &patience).unwrap();
            let open = wire::Open::of(&who, found.unwrap().run, &Read::default());
            line.send(wire::encode(&Ask::Open(Box::new(open))).unwrap()).unwrap();
            let e = there::answered::<u64>(&line, "sim", &patience).unwrap_err();
            assert!(e.kind() == Kind::Usage && e.message().contains("no connection"), "{e}");
            there::part(&line);
        });
        assert!(Home::open(&spaces).unwrap().describe("sim").unwrap().readers.is_empty());
    }
}
