//! What stands for readers of other nodes where writers are: it takes their places, looks at steps for them, and sends parts of arrays.
//!
//! A reader has two threads here: one answers what it asks, and may wait for a step; the other one sends parts meanwhile.

use crate::board::Elsewhere;
use crate::clock;
use crate::describe::Shown;
use crate::gather::Plan;
use crate::here::Here;
use crate::home::{self, Home};
use crate::line::Line;
use crate::memory::{is_alive, me};
use crate::noted::Got;
use crate::options::{Behind, Read, Start};
use crate::report;
use crate::source::{Coming, Part, Said, Source, Told, Which};
use crate::trail::Trail;
use crate::wire::{self, Ask, Errand, Lags, Starts, Wanted};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::layout::Spaces;
use stead_core::{Bounds, Error, Kind, Result};

/// How often it is looked whether who asks is still there.
const LOOK: Duration = Duration::from_secs(1);
/// So long it is waited, at most, for errands to let steps go that were sent before the next step was asked for: parts that others get by the
/// same line may be before them.
const BEFORE: Duration = Duration::from_millis(100);
/// A wait for a step is no longer, whatever is asked for.
const LONGEST: Duration = Duration::from_secs(10);

/// Whom an agent stands for.
pub(crate) struct Client<'c> {
    /// What it asks comes by this line.
    pub(crate) asks: &'c dyn Line,
    /// And errands by that one, once it has a place.
    pub(crate) errands: &'c dyn Fn() -> Result<Arc<dyn Line>>,
    /// The node and the rank of the reader in its job, where it is one of a job.
    pub(crate) whose: Option<(u64, u64)>,
    /// Begins a thread of this name.
    pub(crate) thread: &'c Begin<'c>,
    /// Says which run of a stream a group of its job reads, where it is one of a job.
    pub(crate) settles: Option<&'c Settles<'c>>,
}

/// Which run of a stream a group reads.
pub(crate) type Settles<'c> = dyn Fn(&wire::Settle) -> u64 + 'c;

/// Begins a thread.
pub(crate) type Begin<'c> = dyn Fn(&str, Box<dyn FnOnce() + Send>) -> Result<()> + 'c;

/// A place among the readers of this node, of which some have steps from files, too.
#[derive(Debug)]
pub(crate) enum Place {
    Memory(Box<Here>),
    Files(Box<Trail>),
}

impl Place {
    pub(crate) fn into_source(self) -> Box<dyn Source> {
        match self {
            Place::Memory(here) => here,
            Place::Files(trail) => trail,
        }
    }

    fn source(&self) -> &dyn Source {
        match self {
            Place::Memory(here) => &**here,
            Place::Files(trail) => &**trail,
        }
    }

    fn here(&self) -> &Here {
        match self {
            Place::Memory(here) => here,
            Place::Files(trail) => trail.here(),
        }
    }

    /// True of a step that is held in memory.
    fn is_in_memory(&self, step: u64) -> bool {
        match self {
            Place::Memory(_) => true,
            Place::Files(trail) => trail.is_in_memory(step),
        }
    }
}

/// A place among readers, and what is held for who has it.
#[derive(Debug)]
struct Seat {
    place: Place,
    /// How often each step is held, and what writers say of it.
    held: Mutex<HashMap<u64, (u64, Arc<Told>)>>,
    /// How many errands to let a step go were run; all that there will be when no more are.
    gone: Mutex<u64>,
    more_gone: Condvar,
}

impl Seat {
    fn new(place: Place) -> Seat {
        let (held, gone, more_gone) = (Mutex::default(), Mutex::default(), Condvar::new());
        Seat { place, held, gone, more_gone }
    }

    /// So many more errands to let a step go were run.
    fn have_gone(&self, more: u64) {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        *gone = gone.saturating_add(more);
        drop(gone);
        self.more_gone.notify_all();
    }

    /// Waits until so many were. They were sent before what is being answered now, but by the line of errands, which another thread hears:
    /// a step that is still held when writers learn that its reader is past it is in memory beside the next one that they begin. Who holds
    /// steps on purpose has sent nothing, and so is not waited for.
    fn hear_of_those_before(&self, gone: u64, most: Duration) {
        let heard = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        // What does not come in time is heard when it comes.
        let _ = self.more_gone.wait_timeout_while(heard, most.min(BEFORE), |heard| *heard < gone);
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, (u64, Arc<Told>)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a step once more, and tells what writers say of it: what of it `known` has is left out.
    fn hold(&self, step: u64, known: &mut HashSet<u64>) -> Result<Option<wire::Told>> {
        let mut held = self.held();
        if !held.contains_key(&step) && !self.place.source().hold(step)? {
            return Ok(None);
        }
        let told = match self.place.is_in_memory(step) {
            true => in_memory(self.place.here(), step, known),
            false => {
                let peak = self.place.here().peak();
                self.place.source().told(step).and_then(|told| in_files(&told, peak, known))
            }
        };
        match told {
            Ok((mine, told)) => {
                held.entry(step).or_insert_with(|| (0, Arc::new(mine))).0 += 1;
                Ok(Some(told))
            }
            Err(e) => {
                if !held.contains_key(&step) {
                    self.place.source().let_go(step, false);
                }
                Err(e)
            }
        }
    }

    fn let_go(&self, step: u64, is_done: bool) {
        let mut held = self.held();
        if let Some((times, _)) = held.get_mut(&step) {
            *times -= 1;
            if *times == 0 {
                held.remove(&step);
                self.place.source().let_go(step, is_done);
            }
        }
    }

    /// The bytes of a part of a block, after those for what is said of them.
    fn part(&self, line: &dyn Line, wanted: &Wanted) -> Result<Vec<u8>> {
        let none = || wire::astray("a part of a block that there is not");
        let told = self.held().get(&wanted.step).map(|(_, told)| told.clone()).ok_or_else(none)?;
        let writer = usize::try_from(wanted.writer).map_err(|_| none())?;
        let said = told.said.get(writer).ok_or_else(none)?;
        let number = usize::try_from(wanted.number).map_err(|_| none())?;
        let block = said.blocks.get(number).ok_or_else(none)?;
        let definition = said.definitions.get(block.variable).ok_or_else(none)?;
        let part = Bounds::new(&wanted.start, &wanted.count)?;
        if part.ndim() != block.bounds.ndim() || !block.bounds.contains(&part) {
            return Err(none());
        }
        let which = Which { step: wanted.step, writer, number };
        let source = self.place.source();
        let view = source.look(which, &block.place)?;
        let read = match (&view, source.fetch()) {
            (Some(_), _) => None,
            (None, Some(mut files)) => {
                files.ask(which, &part)?;
                Some(files.hear()?)
            }
            (None, None) => return Err(none()),
        };
        let copying = AtomicU64::new(0);
        let plan = Plan::new(&block.bounds, &part, definition.dtype.size())?;
        let len = plan.bytes();
        let mut bytes = line.memory(wire::HEAD + len);
        bytes.resize(wire::HEAD, 0);
        let run = match (&view, &read) {
            (Some(view), _) => plan.one_run().and_then(|run| view.get(run)),
            (None, read) => read.as_ref().map(Part::bytes),
        };
        report::timed(len, &copying, || match (run, &view) {
            (Some(run), _) => {
                bytes.extend_from_slice(run);
                Ok(len)
            }
            (None, view) => {
                bytes.resize(wire::HEAD + len, 0);
                let view = view.as_deref().unwrap_or(&[]);
                plan.copy(view, bytes.get_mut(wire::HEAD..).unwrap_or(&mut []))
            }
        })?;
        let (name, bounds, copied) = (definition.name.as_str(), &part, len as u64);
        let got = Got { name, bounds, is_fixed: false, copied, looked: 0 };
        self.place.here().count_got(wanted.step, &got, copying.into_inner(), true);
        Ok(bytes)
    }
}

/// What writers say of a step, to be gone by and to be sent.
type Both = (Told, wire::Told);

/// Of a step that is in memory: what they have said is sent as it is.
fn in_memory(here: &Here, step: u64, known: &mut HashSet<u64>) -> Result<Both> {
    let ((at, bytes), peak, mut said) = (here.facts(step), here.peak(), Vec::new());
    let (mut mine, mut now) = (Vec::new(), HashSet::new());
    for writer in 0..here.writers() {
        let (told, raw) = here.blocks(step, writer)?;
        let is_known = known.contains(&raw.hash) || now.contains(&raw.hash);
        let definitions = match is_known {
            true => None,
            false => Some(here.raw_definitions(writer, &raw)?.to_vec()),
        };
        now.insert(raw.hash);
        let (rank, hash, blocks) = (told.rank, raw.hash, raw.blocks().to_vec());
        said.push(wire::Said { rank, hash, definitions, blocks });
        mine.push(told);
    }
    *known = now;
    Ok((Told { at, bytes, peak, said: mine }, wire::Told { at, bytes, peak, said }))
}

/// Of a step that was read from files, beside the most memory that steps have taken.
fn in_files(told: &Told, peak: u64, known: &mut HashSet<u64>) -> Result<Both> {
    let Told { at, bytes, said, .. } = told;
    let (mut sent, mut now) = (Vec::with_capacity(said.len()), HashSet::new());
    for Said { rank, definitions, blocks } in said {
        let hash = definitions.hash();
        let is_known = known.contains(&hash) || now.contains(&hash);
        let all = if is_known { None } else { Some(definitions.encode()?) };
        now.insert(hash);
        let blocks = definitions.encode_blocks(blocks)?;
        sent.push(wire::Said { rank: *rank, hash, definitions: all, blocks });
    }
    *known = now;
    let mine = Told { at: *at, bytes: *bytes, peak, said: said.clone() };
    Ok((mine, wire::Told { at: *at, bytes: *bytes, peak, said: sent }))
}

/// The stream of a name on this node.
pub(crate) fn find(home: &Home, who: &wire::Sought) -> Result<Option<(wire::Found, home::Found)>> {
    let name = &who.name;
    let found = match home.get(name) {
        Err(e) if e.kind() == Kind::NotFound => return Ok(None),
        found => found?,
    };
    let board = &found.board;
    let guard = home::lock(name, board, me()?)?;
    board.reap(&guard, &is_alive);
    drop(guard);
    let said = wire::Found {
        run: match board.agreed().run {
            0 => board.token(),
            run => run,
        },
        all: board.agreed().all,
        ranks: (0..board.writers()).map(|writer| board.rank_of(writer)).collect(),
        is_live: board.state() == crate::board::State::Live,
        awaits: board.awaits(&who.group, who.ranks, who.rank),
        created: board.created(),
    };
    Ok(Some((said, found)))
}

/// A writer of another node has ended a run of a stream in the middle: those of this node do, too.
pub(crate) fn fail(home: &Home, name: &str, run: u64, writer: u64) -> Result<()> {
    let who = wire::Sought::of(name, &Read::default());
    let Some((_, found)) = find(home, &who)?.filter(|(said, _)| said.run == run) else {
        return Ok(());
    };
    let guard = home::lock(name, &found.board, me()?)?;
    found.board.fail_elsewhere(&guard, writer);
    Ok(())
}

/// Takes a place for a reader in a run of a stream, of this node or `elsewhere`.
///
/// # Errors
/// `NotFound` if it is another run by now; `Usage` if it is to have steps from files, and there are none.
pub(crate) fn open(
    home: &Home,
    open: &wire::Open,
    options: &Read,
    elsewhere: Option<Elsewhere>,
) -> Result<Place> {
    let name = &open.who.name;
    let another = || {
        Error::new(Kind::NotFound, format!("stream '{name}' is another one than it was"))
            .with_hint("read it anew")
    };
    let (said, found) = find(home, &open.who)?.ok_or_else(another)?;
    if said.run != open.run {
        return Err(another());
    }
    let place = match options.is_recorded() {
        true => {
            let until = clock::after(options.timeout);
            let trail = Trail::attach(name, home.clone(), found, until, options, elsewhere)?;
            trail.map(|trail| Place::Files(Box::new(trail)))
        }
        false => {
            let here = Here::attach(name, home.clone(), found, options, elsewhere)?;
            here.map(|here| Place::Memory(Box::new(here)))
        }
    };
    place.map_err(|_| another())
}

impl wire::Sought {
    pub(crate) fn of(name: &str, options: &Read) -> wire::Sought {
        let Read { group, rank, ranks, .. } = options;
        wire::Sought { name: name.to_owned(), group: group.clone(), rank: *rank, ranks: *ranks }
    }
}

impl wire::Open {
    /// What a reader says of itself.
    pub(crate) fn of(who: &wire::Sought, run: u64, options: &Read) -> wire::Open {
        wire::Open {
            who: who.clone(),
            run,
            starts: match options.start {
                Start::Oldest => Starts::Oldest,
                Start::Next => Starts::Next,
                Start::First => Starts::First,
            },
            lags: match options.behind {
                Behind::Block => Lags::Block,
                Behind::Drop => Lags::Drop,
                Behind::Spill => Lags::Spill,
            },
            queue: options.queue,
            keep: options.keep.unwrap_or(0),
            timeout_ms: u64::try_from(options.timeout.as_millis()).unwrap_or(u64::MAX),
            process: std::process::id(),
        }
    }

    /// The same, on this node.
    fn options(&self) -> Read {
        Read {
            spaces: Spaces::default(),
            group: self.who.group.clone(),
            rank: self.who.rank,
            ranks: self.who.ranks,
            start: match self.starts {
                Starts::Oldest => Start::Oldest,
                Starts::Next => Start::Next,
                Starts::First => Start::First,
            },
            behind: match self.lags {
                Lags::Block => Behind::Block,
                Lags::Drop => Behind::Drop,
                Lags::Spill => Behind::Spill,
            },
            queue: self.queue,
            keep: Some(self.keep),
            timeout: Duration::from_millis(self.timeout_ms),
            ..Read::default()
        }
    }
}

/// Answers a reader, or who only looks after streams and has no place, until it says farewell, or is gone.
pub(crate) fn serve(home: &Home, client: &Client<'_>) {
    let mut seat: Option<Arc<Seat>> = None;
    let mut known = HashSet::new();
    while let Some(message) = next(client.asks) {
        let answer = match wire::decode::<Ask>(&message) {
            Ok(Ask::Bye) => return,
            Ok(Ask::Open(asked)) => wire::answer(begin(home, client, &asked, &mut seat)),
            Ok(Ask::Next(from, passes, milliseconds, gone)) => {
                let none = || wire::astray("nothing was opened");
                let seat = seat.as_ref().ok_or_else(none);
                let time = Duration::from_millis(milliseconds).min(LONGEST);
                wire::answer(seat.and_then(|seat| {
                    let until = clock::after(time);
                    // Who wants to know at once what is there is not kept waiting for that.
                    seat.hear_of_those_before(gone, time);
                    coming(seat, (from, passes), until, &mut known)
                }))
            }
            Ok(Ask::Settle(said)) => {
                let none = || wire::astray("it is one of no job");
                wire::answer(client.settles.map(|settles| settles(&said)).ok_or_else(none))
            }
            // Of its own job nobody removes streams by this.
            Ok(Ask::Remove(name, force)) if client.whose.is_none() => {
                wire::answer(home.remove(&name, force))
            }
            Ok(ask) => looked_for(home, ask),
            Err(e) => wire::answer::<()>(Err(e)),
        };
        if client.asks.send(answer).is_err() {
            break;
        }
    }
    // It has said no farewell.
    if let Some(seat) = seat {
        seat.place.here().lose();
    }
}

/// Answers what is asked without a place among readers.
fn looked_for(home: &Home, ask: Ask) -> Vec<u8> {
    let bytes = match ask {
        Ask::Find(who) => wire::answer(find(home, &who).map(|found| found.map(|(said, _)| said))),
        Ask::List => wire::answer(home.list()),
        Ask::Describe(name) => wire::answer(home.describe(&name).and_then(Shown::of)),
        Ask::Explain(name, more) => wire::answer(home.share(&name, more)),
        Ask::Open(_) | Ask::Next(..) | Ask::Settle(_) | Ask::Remove(..) | Ask::Bye => {
            wire::answer::<()>(Err(wire::astray("this line is not for that")))
        }
    };
    if bytes.len() as u64 <= wire::MOST_TOLD {
        return bytes;
    }
    wire::failed(
        &Error::limit("there is more to be told of it than is sent to another node")
            .with_hint("look at it on that node: stead stream show"),
    )
}

/// The next message of a client; `None` if there will be none.
fn next(line: &dyn Line) -> Option<Vec<u8>> {
    loop {
        match line.recv_within(LOOK) {
            Ok(Some(message)) => return Some(message),
            Ok(None) if line.ends() => return None,
            Ok(None) => {}
            Err(_) => return None,
        }
    }
}

/// Takes a place, and begins to run errands for who has it.
fn begin(
    home: &Home,
    client: &Client<'_>,
    asked: &wire::Open,
    seat: &mut Option<Arc<Seat>>,
) -> Result<u64> {
    if seat.is_some() {
        return Err(wire::astray("it was opened before"));
    }
    let (node, rank) = client.whose.unzip();
    let elsewhere = Elsewhere { node, rank, process: asked.process };
    let options = asked.options();
    options.check()?;
    let line = (client.errands)()?;
    let place = open(home, asked, &options, Some(elsewhere))?;
    let position = place.source().position();
    let new = Arc::new(Seat::new(place));
    let its = new.clone();
    (client.thread)("stead-parts", Box::new(move || run_errands(&*line, &its)))?;
    *seat = Some(new);
    Ok(position)
}

fn coming(
    seat: &Seat,
    (mut from, passes): (u64, bool),
    until: Instant,
    known: &mut HashSet<u64>,
) -> Result<wire::Next> {
    loop {
        match seat.place.source().next(from, passes, until)? {
            Coming::Nothing => return Ok(wire::Next::Nothing),
            Coming::Over(error) => {
                return Ok(wire::Next::Over(error.as_ref().map(wire::Failure::of)));
            }
            // An errand may have let it go just then.
            Coming::Step(step) => {
                if let Some(told) = seat.hold(step, known)? {
                    return Ok(wire::Next::Step(step, told));
                }
                from = step + 1;
                if clock::now() >= until {
                    return Ok(wire::Next::Nothing);
                }
            }
        }
    }
}

fn run_errands(line: &dyn Line, seat: &Seat) {
    while let Some(message) = next(line) {
        let answer = match wire::decode::<Errand>(&message) {
            Ok(Errand::Bye) => break,
            Ok(Errand::LetGo(step, is_done)) => {
                seat.let_go(step, is_done);
                seat.have_gone(1);
                continue;
            }
            Ok(Errand::Given(step, dropped, waited)) => {
                seat.place.source().given(step, dropped, waited);
                continue;
            }
            Ok(Errand::Enough) => {
                seat.place.source().done();
                continue;
            }
            Ok(Errand::Past(step)) => {
                // Of one that has steps from files, too, nobody else waits for that.
                if let Place::Memory(here) = &seat.place {
                    here.advance(step);
                }
                continue;
            }
            Ok(Errand::Part(wanted)) => wire::parcel(seat.part(line, &wanted)),
            Ok(Errand::Hold(step)) => wire::answer(seat.hold(step, &mut HashSet::new())),
            Ok(Errand::Steps) => wire::answer(seat.place.source().steps()),
            Ok(Errand::Late(step)) => wire::answer(Ok(seat.place.source().late(step))),
            Err(e) => wire::answer::<()>(Err(e)),
        };
        if line.send(answer).is_err() {
            break;
        }
    }
    // Nobody is kept waiting for errands that nobody runs.
    seat.have_gone(u64::MAX);
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::panic)]
mod tests {
    use super::*;
    use crate::wired::Wired;
    use crate::{Writer, Written};
    use std::os::unix::net::UnixStream;

    const LONG: Duration = Duration::from_secs(60);

    /// A stream in a folder of its own, that has these steps, all of which stay.
    fn stream(steps: u64) -> (tempfile::TempDir, Home, Writer, Read) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let mut spaces = Spaces::default();
        spaces.imply("memory", dir.path().join("own").to_str().unwrap());
        let written = Written { spaces: spaces.clone(), keep: 10, ..Written::default() };
        let mut writer = Writer::open("sim", &written).unwrap();
        for _ in 0..steps {
            writer.begin().unwrap();
            writer.end().unwrap();
        }
        let read = Read { spaces: spaces.clone(), timeout: LONG, ..Read::default() };
        (dir, Home::open(&spaces).unwrap(), writer, read)
    }

    fn asked(home: &Home, read: &Read) -> wire::Open {
        let who = wire::Sought::of("sim", read);
        let (said, _) = find(home, &who).unwrap().unwrap();
        wire::Open::of(&who, said.run, read)
    }

    #[test]
    fn it_is_waited_for_steps_that_are_let_go_only_while_they_are_on_their_way() {
        let (_dir, home, _writer, read) = stream(1);
        let elsewhere = Elsewhere { node: None, rank: None, process: 1 };
        let place = open(&home, &asked(&home, &read), &read, Some(elsewhere)).unwrap();
        let seat = Seat::new(place);
        let wait = |gone, most| {
            let begun = clock::now();
            seat.hear_of_those_before(gone, most);
            begun.elapsed()
        };
        // Nothing was sent; who asks what is there now waits for nothing.
        wait(0, LONG);
        wait(1, Duration::ZERO);
        // What does not come is not waited for without an end.
        assert!((BEFORE..LONG).contains(&wait(1, LONG)));
        std::thread::scope(|scope| {
            scope.spawn(|| seat.have_gone(1));
            wait(1, LONG);
        });
        seat.have_gone(1);
        // All of them are known: of those that were enough there are some within less than the wait, however busy the machine is.
        assert!((0..20).map(|_| wait(2, LONG)).min().unwrap() < BEFORE);
        // No more will come.
        seat.have_gone(u64::MAX);
        assert!((0..20).map(|_| wait(u64::MAX, LONG)).min().unwrap() < BEFORE);
    }

    #[test]
    fn steps_that_were_let_go_go_before_the_next_one_is_given() {
        let (_dir, home, _writer, read) = stream(3);
        let line = || {
            let (a, b) = UnixStream::pair().unwrap();
            let wired = |end| Wired::new(end, "n1".into(), u64::MAX, None).unwrap();
            (wired(a), wired(b))
        };
        let ((asks, asked_by), (errands, errands_by)) = (line(), line());
        let its = home.clone();
        let serving = std::thread::spawn(move || {
            let thread = |_: &str, work: Box<dyn FnOnce() + Send>| {
                std::thread::spawn(work);
                Ok(())
            };
            let errands: Arc<dyn Line> = Arc::new(errands_by);
            let (whose, settles, errands) = (None, None, &|| Ok(errands.clone()));
            let client = Client { asks: &asked_by, errands, whose, thread: &thread, settles };
            serve(&its, &client);
        });
        let open = Ask::Open(Box::new(asked(&home, &read)));
        asks.send(wire::encode(&open).unwrap()).unwrap();
        wire::heard(&asks.recv_within(LONG).unwrap().unwrap()).unwrap();
        let next = |step: u64, gone: u64| {
            asks.send(wire::encode(&Ask::Next(step, false, 10_000, gone)).unwrap()).unwrap();
        };
        let comes = |time: Duration| {
            let answer = asks.recv_within(time).unwrap()?;
            match wire::decode(wire::heard(&answer).unwrap()).unwrap() {
                wire::Next::Step(step, _) => Some(step),
                other => panic!("{other:?}"),
            }
        };
        next(0, 0);
        assert_eq!(comes(LONG), Some(0));
        // It was let go, which is not heard yet.
        let begun = clock::now();
        next(1, 1);
        let early = comes(Duration::from_millis(20));
        assert!(early.is_none() || begun.elapsed() >= BEFORE);
        errands.send(wire::encode(&Errand::LetGo(0, true)).unwrap()).unwrap();
        assert_eq!(early.or_else(|| comes(LONG)), Some(1));
        // The one that is held on purpose stays, and keeps nobody waiting.
        next(2, 1);
        assert_eq!(comes(LONG), Some(2));
        let board = home.get("sim").unwrap().board;
        assert_eq!([0, 1, 2].map(|step| board.holders(step).len()), [0, 1, 1]);
        asks.send(wire::encode(&Ask::Bye).unwrap()).unwrap();
        errands.send(wire::encode(&Errand::Bye).unwrap()).unwrap();
        serving.join().unwrap();
    }
}
