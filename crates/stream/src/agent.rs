//! What stands for readers of other nodes where writers are: it takes their places, looks at steps for them, and sends parts of arrays.
//!
//! A reader has two threads here: one answers what it asks, and may wait for a step; the other one sends parts meanwhile.

use crate::clock;
use crate::coupling::Inner;
use crate::gather::Plan;
use crate::here::Here;
use crate::home::{self, Home};
use crate::memory::{is_alive, me};
use crate::options::{Behind, Read, Start};
use crate::source::{Coming, Source, Told};
use crate::wire::{self, Ask, Errand, Wanted};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Bounds, Error, Kind, Result};

/// How often it is looked whether who asks is still there.
const LOOK: Duration = Duration::from_secs(1);
/// A wait for a step is no longer, whatever is asked for.
const LONGEST: Duration = Duration::from_secs(10);

/// Whom an agent stands for: a rank, and the tag of what it asks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Client {
    pub(crate) rank: usize,
    pub(crate) tag: u32,
}

/// A place among readers, and what is held for who has it.
#[derive(Debug)]
struct Seat {
    here: Here,
    /// How often each step is held, and what writers say of it.
    held: Mutex<HashMap<u64, (u64, Arc<Told>)>>,
}

impl Seat {
    fn held(&self) -> MutexGuard<'_, HashMap<u64, (u64, Arc<Told>)>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Looks at a step once more, and tells what writers say of it: what of it `known` has is left out.
    fn hold(&self, step: u64, known: &mut HashSet<u64>) -> Result<Option<wire::Told>> {
        let mut held = self.held();
        if !held.contains_key(&step) && !self.here.hold(step)? {
            return Ok(None);
        }
        let told = (|| {
            let ((at, bytes), mut said) = (self.here.facts(step), Vec::new());
            let (mut mine, mut now) = (Vec::new(), HashSet::new());
            for writer in 0..self.here.writers() {
                let (told, raw) = self.here.blocks(step, writer)?;
                let is_known = known.contains(&raw.hash) || now.contains(&raw.hash);
                let definitions = match is_known {
                    true => None,
                    false => Some(self.here.raw_definitions(writer, &raw)?.to_vec()),
                };
                now.insert(raw.hash);
                let (rank, hash, blocks) = (told.rank, raw.hash, raw.blocks().to_vec());
                said.push(wire::Said { rank, hash, definitions, blocks });
                mine.push(told);
            }
            *known = now;
            Ok((Told { at, bytes, said: mine }, wire::Told { at, bytes, said }))
        })();
        match told {
            Ok((mine, told)) => {
                held.entry(step).or_insert_with(|| (0, Arc::new(mine))).0 += 1;
                Ok(Some(told))
            }
            Err(e) => {
                if !held.contains_key(&step) {
                    self.here.let_go(step, false);
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
                self.here.let_go(step, is_done);
            }
        }
    }

    /// The bytes of a part of a block, after those for what is said of them.
    fn part(&self, inner: &Inner, wanted: &Wanted) -> Result<Vec<u8>> {
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
        let Some(view) = self.here.look(writer, &block.place)? else { return Err(none()) };
        let plan = Plan::new(&block.bounds, &part, definition.dtype.size())?;
        let len = plan.bytes();
        let mut bytes = inner.fabric.memory(wire::HEAD + len);
        bytes.resize(wire::HEAD, 0);
        match plan.one_run().and_then(|run| view.get(run)) {
            Some(run) => bytes.extend_from_slice(run),
            None => {
                bytes.resize(wire::HEAD + len, 0);
                let to = bytes.get_mut(wire::HEAD..).unwrap_or(&mut []);
                plan.copy(&view, to)?;
            }
        }
        self.here.count(len as u64, 0);
        Ok(bytes)
    }
}

/// The stream of a name on this node.
pub(crate) fn find(home: &Home, name: &str) -> Result<Option<(wire::Found, home::Found)>> {
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
        created: board.created(),
    };
    Ok(Some((said, found)))
}

/// A writer of another node has ended a run of a stream in the middle: those of this node do, too.
pub(crate) fn fail(home: &Home, name: &str, run: u64, writer: u64) -> Result<()> {
    let Some((_, found)) = find(home, name)?.filter(|(said, _)| said.run == run) else {
        return Ok(());
    };
    let guard = home::lock(name, &found.board, me()?)?;
    found.board.fail_elsewhere(&guard, writer);
    Ok(())
}

/// Takes a place for a reader in a run of a stream.
///
/// # Errors
/// `NotFound` if it is another run by now.
pub(crate) fn open(home: &Home, open: &wire::Open, options: &Read) -> Result<Here> {
    let name = &open.name;
    let another = || {
        Error::new(Kind::NotFound, format!("stream '{name}' is another one than it was"))
            .with_hint("read it anew")
    };
    let (said, found) = find(home, name)?.ok_or_else(another)?;
    if said.run != open.run {
        return Err(another());
    }
    Here::attach(name, home.clone(), found, options)?.map_err(|_| another())
}

impl wire::Open {
    /// What a reader says of itself, on this node.
    fn options(&self) -> Read {
        Read {
            spaces: Spaces::default(),
            group: self.group.clone(),
            rank: self.rank,
            ranks: self.ranks,
            start: if self.next { Start::Next } else { Start::Oldest },
            behind: if self.drops { Behind::Drop } else { Behind::Block },
            ..Read::default()
        }
    }
}

/// Answers a reader until it says farewell, or is gone.
pub(crate) fn serve(inner: &Arc<Inner>, client: Client) {
    let mut seat: Option<Arc<Seat>> = None;
    let mut known = HashSet::new();
    while let Some(message) = next(inner, client.rank, client.tag) {
        let answer = match wire::decode::<Ask>(&message) {
            Ok(Ask::Bye) => break,
            Ok(Ask::Find(name)) => {
                wire::answer(find(&inner.home, &name).map(|found| found.map(|(said, _)| said)))
            }
            Ok(Ask::Open(asked)) => wire::answer(begin(inner, client, &asked, &mut seat)),
            Ok(Ask::Next(from, milliseconds)) => {
                let none = || wire::astray("nothing was opened");
                let seat = seat.as_ref().ok_or_else(none);
                wire::answer(seat.and_then(|seat| coming(seat, from, milliseconds, &mut known)))
            }
            Err(e) => wire::answer::<()>(Err(e)),
        };
        if inner.fabric.send(client.rank, client.tag, answer).is_err() {
            break;
        }
    }
}

/// The next message of a client; `None` if there will be none.
fn next(inner: &Inner, rank: usize, tag: u32) -> Option<Vec<u8>> {
    loop {
        match inner.fabric.recv_within(rank, tag, LOOK) {
            Ok(Some(message)) => return Some(message),
            Ok(None) if inner.fabric.ends(rank) => return None,
            Ok(None) => {}
            Err(_) => return None,
        }
    }
}

/// Takes a place, and begins to run errands for who has it.
fn begin(
    inner: &Arc<Inner>,
    client: Client,
    asked: &wire::Open,
    seat: &mut Option<Arc<Seat>>,
) -> Result<u64> {
    if seat.is_some() {
        return Err(wire::astray("it was opened before"));
    }
    let here = open(&inner.home, asked, &asked.options())?;
    let position = here.position();
    let new = Arc::new(Seat { here, held: Mutex::default() });
    let (its, theirs) = (inner.clone(), new.clone());
    inner.thread("stead-parts", move || run_errands(&its, client, &theirs))?;
    *seat = Some(new);
    Ok(position)
}

fn coming(
    seat: &Seat,
    from: u64,
    milliseconds: u64,
    known: &mut HashSet<u64>,
) -> Result<wire::Next> {
    let until = clock::after(Duration::from_millis(milliseconds).min(LONGEST));
    loop {
        match seat.here.next(from, until)? {
            Coming::Nothing => return Ok(wire::Next::Nothing),
            Coming::Over(error) => {
                return Ok(wire::Next::Over(error.as_ref().map(wire::Failure::of)));
            }
            // An errand may have let it go just then.
            Coming::Step(step) => {
                if let Some(told) = seat.hold(step, known)? {
                    return Ok(wire::Next::Step(step, told));
                }
            }
        }
    }
}

fn run_errands(inner: &Arc<Inner>, client: Client, seat: &Seat) {
    while let Some(message) = next(inner, client.rank, client.tag + 1) {
        let answer = match wire::decode::<Errand>(&message) {
            Ok(Errand::Bye) => break,
            Ok(Errand::LetGo(step, is_done)) => {
                seat.let_go(step, is_done);
                continue;
            }
            Ok(Errand::Enough) => {
                seat.here.done();
                continue;
            }
            Ok(Errand::Part(wanted)) => wire::parcel(seat.part(inner, &wanted)),
            Ok(Errand::Hold(step)) => wire::answer(seat.hold(step, &mut HashSet::new())),
            Ok(Errand::Steps) => wire::answer(seat.here.steps()),
            Ok(Errand::Late(step)) => wire::answer(Ok(seat.here.late(step))),
            Err(e) => wire::answer::<()>(Err(e)),
        };
        if inner.fabric.send(client.rank, client.tag + 1, answer).is_err() {
            break;
        }
    }
}
