//! The threads that answer other ranks for one file, and the requests of this rank that others answer.
//!
//! They sleep until a message comes. So a rank that computes serves others all the same, and they need not wait for it.

use super::borrowed::{Answer, Payload};
use super::group::Map;
use super::sharing::{Found, Sharing};
use super::wire::Message;
use crate::clock;
use crate::engine::{Holders, Shared};
use crate::finish::AsView;
use crate::registry;
use crate::request::Read;
use crate::view::View;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_fabric::Fabric;
use stead_store::Buffer;

/// Requests of other ranks that are being answered at a time; the rest waits. They take memory, each as much as it
/// asks for, which is bounded too.
const SERVED: usize = 32;
/// Requests that may wait. A rank asks for a few at a time, so that it takes many thousands of ranks to come here.
const LATER: usize = 1 << 16;
/// How often the thread looks whether anybody is left when nothing comes.
const LOOK: Duration = Duration::from_secs(2);
/// The same while reads of this rank still wait, though nobody will ask for more.
const SOON: Duration = Duration::from_millis(50);
/// Blocks that are given back at a time to a rank that wants room. One that wants more asks again.
const PRESSED: usize = 8;
/// How often who waits for a rank asks whether it is there.
const ASK: Duration = Duration::from_millis(250);

/// See the module's documentation.
pub(crate) struct Service {
    fabric: Arc<dyn Fabric>,
    tag: u32,
    /// The engine for the file itself, if this rank can open it, and whether it reads for others.
    near: Option<(Arc<Shared>, bool)>,
    deadline: Duration,
    room: Room,
    slots: Mutex<HashMap<u64, Slot>>,
    ids: AtomicU64,
    /// The file is closed: its far engine, of which requests may still wait, and until when answers to nobody are
    /// waited for.
    leaving: Mutex<Option<(Weak<Shared>, Instant)>>,
    serving: Mutex<Serving>,
    /// To the thread that sends.
    answers: mpsc::Sender<Out>,
    /// Memory that ranks of this node share.
    sharing: Option<Sharing>,
    /// The engine that asks others, which may keep what they have lent, and who has what.
    far: OnceLock<(Weak<Shared>, Arc<Map>)>,
    /// This rank wants nothing more.
    done: AtomicBool,
    /// Bytes that came from other ranks.
    fetched: AtomicU64,
}

/// What others may ask for.
#[derive(Clone, Copy)]
pub(crate) struct Room {
    /// Bytes at a time: those of a block.
    pub(crate) block: u64,
    /// Bytes of answers under way, though one is always allowed.
    pub(crate) memory: u64,
}

/// A request of this rank whose answer has not come.
struct Slot {
    rank: usize,
    /// Who waits for it, if somebody still does.
    answer: Option<SyncSender<Result<Answer>>>,
}

/// Requests of others.
#[derive(Default)]
struct Serving {
    /// That are being answered, and their bytes.
    now: usize,
    bytes: u64,
    later: VecDeque<Request>,
    /// Somebody begins those that wait.
    beginning: bool,
}

struct Request {
    to: usize,
    id: u64,
    offset: u64,
    len: usize,
    /// Whoever asks can look at the memory of this rank.
    lend: bool,
}

impl Serving {
    /// The next request to begin with, if there is room for its answer.
    fn next(&mut self, memory: u64) -> Option<Request> {
        let len = self.later.front()?.len as u64;
        if self.now >= SERVED || (self.now > 0 && self.bytes.saturating_add(len) > memory) {
            return None;
        }
        self.now += 1;
        self.bytes += len;
        self.later.pop_front()
    }

    fn answered(&mut self, len: usize) {
        self.now -= 1;
        self.bytes -= len as u64;
    }
}

/// What the thread that sends is to do.
pub(crate) enum Out {
    /// Send an answer to a rank, of which so many bytes of the file were asked for.
    Answer(usize, Vec<u8>, usize),
    /// Give loans back to a rank.
    Returns(usize),
    /// Ask a rank for what it only keeps.
    Press(usize),
    /// Give back what is only kept of a rank.
    Relieve(usize),
    /// End.
    End,
}

/// Tells all ranks that this one wants nothing more of a file.
pub(crate) fn say_done(fabric: &dyn Fabric, tag: u32) {
    for rank in 0..fabric.size() {
        // Who is gone need not know.
        let _ = fabric.send(rank, tag, Message::Done.encode());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Service {
    /// Starts the thread, which closes the near engine at its end.
    pub(crate) fn start(
        fabric: Arc<dyn Fabric>,
        tag: u32,
        near: Option<(Arc<Shared>, bool)>,
        deadline: Duration,
        room: Room,
        found: Option<Found>,
    ) -> Result<Arc<Service>> {
        let (answers, coming) = mpsc::channel();
        let sharing = found.map(|found| Sharing::new(found, answers.clone()));
        let service = Arc::new(Service {
            fabric,
            tag,
            near,
            deadline,
            room,
            slots: Mutex::default(),
            ids: AtomicU64::new(0),
            leaving: Mutex::default(),
            serving: Mutex::default(),
            answers,
            sharing,
            far: OnceLock::new(),
            done: AtomicBool::new(false),
            fetched: AtomicU64::new(0),
        });
        if let Some((near, _)) = &service.near {
            let holders: Weak<Service> = Arc::downgrade(&service);
            let lent = service.sharing.as_ref().map(Sharing::lent).unwrap_or_default();
            near.held_by(holders, lent);
        }
        let failed = |e| Error::io("start a thread for", "messages", e);
        let its = service.clone();
        let thread = std::thread::Builder::new().name("stead-answers".to_owned());
        thread.spawn(move || its.send_answers(&coming)).map_err(failed)?;
        let its = service.clone();
        let thread = std::thread::Builder::new().name("stead-ranks".to_owned());
        if let Err(e) = thread.spawn(move || its.run()) {
            let _ = service.answers.send(Out::End);
            return Err(failed(e));
        }
        Ok(service)
    }

    /// Bytes that came from other ranks so far.
    pub(crate) fn fetched(&self) -> u64 {
        self.fetched.load(Ordering::Relaxed)
    }

    /// Memory that ranks of this node share.
    pub(crate) fn sharing(&self) -> Option<&Sharing> {
        self.sharing.as_ref()
    }

    /// The engine that asks others, once.
    pub(crate) fn asked_by(&self, far: &Arc<Shared>, map: Arc<Map>) {
        let _ = self.far.set((Arc::downgrade(far), map));
    }

    /// This rank asks for nothing more by way of `far`, which is closed. Others hear of it when no read of it waits. The
    /// thread ends when no rank wants anything more.
    pub(crate) fn leave(&self, far: &Arc<Shared>) {
        *lock(&self.leaving) = Some((Arc::downgrade(far), clock::after(self.deadline)));
        self.say_done();
    }

    /// Nothing was ever asked for.
    pub(crate) fn give_up(&self) {
        *lock(&self.leaving) = Some((Weak::new(), clock::now()));
        self.say_done();
    }

    /// Says that this rank wants nothing more, once that is so. True while it is leaving and has not said it.
    fn say_done(&self) -> bool {
        let Some((far, until)) = lock(&self.leaving).clone() else { return false };
        if self.done.load(Ordering::SeqCst) {
            return false;
        }
        if far.upgrade().is_some_and(|far| far.is_waited_for()) {
            return true;
        }
        let mut slots = lock(&self.slots);
        // Answers that nobody waits for are taken all the same, so that they lie in no mailbox: but not for ever.
        if slots.values().any(|slot| slot.answer.is_some() || until > clock::now()) {
            let ranks: HashSet<usize> = slots.values().map(|slot| slot.rank).collect();
            drop(slots);
            let gone: HashSet<usize> =
                ranks.into_iter().filter(|rank| self.fabric.alive(*rank).is_err()).collect();
            slots = lock(&self.slots);
            slots.retain(|_, slot| slot.answer.is_some() || !gone.contains(&slot.rank));
            if !slots.is_empty() {
                return true;
            }
        }
        // No request begins after this.
        let said = self.done.swap(true, Ordering::SeqCst);
        drop(slots);
        if !said {
            say_done(&*self.fabric, self.tag);
        }
        false
    }

    /// Gets bytes from the rank that reads them. Waits, up to the deadline.
    pub(crate) fn fetch(&self, rank: usize, offset: u64, into: &mut [u8]) -> Result<()> {
        let answer = self.ask(rank, offset, into.len(), false)?;
        into.copy_from_slice(answer.bytes());
        Ok(())
    }

    /// As [`Service::fetch`], to look at: where they lie in the memory of a neighbour, or in the message.
    pub(crate) fn borrow(&self, rank: usize, offset: u64, len: usize) -> Result<Buffer> {
        let lend = self.sharing.as_ref().is_some_and(|s| s.with(rank));
        Ok(match self.ask(rank, offset, len, lend)? {
            Answer::Bytes(payload) => Buffer::held(payload),
            Answer::Lent(loan) => {
                loan.prepare();
                Buffer::held(loan)
            }
        })
    }

    fn ask(&self, rank: usize, offset: u64, len: usize, lend: bool) -> Result<Answer> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (answer, coming) = mpsc::sync_channel(1);
        let mut slots = lock(&self.slots);
        if self.done.load(Ordering::SeqCst) {
            return Err(Error::new(Kind::Cancelled, "the file is closed").at_offset(offset));
        }
        slots.insert(id, Slot { rank, answer: Some(answer) });
        drop(slots);
        let ask = Message::Ask { id, offset, len: len as u64, lend };
        if let Err(error) = self.fabric.send(rank, self.tag, ask.encode()) {
            lock(&self.slots).remove(&id);
            return Err(error);
        }
        let got = self.wait(rank, offset, len, &coming);
        // The answer may still come, to nobody.
        if let Some(slot) = lock(&self.slots).get_mut(&id) {
            slot.answer = None;
        }
        got
    }

    /// Waits for an answer.
    fn wait(
        &self,
        rank: usize,
        offset: u64,
        len: usize,
        coming: &mpsc::Receiver<Result<Answer>>,
    ) -> Result<Answer> {
        let until = clock::after(self.deadline);
        let answer = loop {
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                let message = format!("{len} bytes did not come in time");
                return Err(Error::new(Kind::Timeout, message).at_rank(rank).at_offset(offset));
            }
            match coming.recv_timeout(left.min(ASK)) {
                Ok(answer) => break answer.map_err(|e| e.at_rank(rank).at_offset(offset))?,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let message = "messages between ranks have ended";
                    return Err(Error::new(Kind::Peer, message).at_rank(rank).at_offset(offset));
                }
            }
            if let Err(gone) = self.fabric.alive(rank) {
                // The answer may have come just before.
                match coming.try_recv() {
                    Ok(Ok(answer)) => break answer,
                    _ => return Err(gone.at_offset(offset)),
                }
            }
        };
        if answer.bytes().len() != len {
            return Err(Error::internal("an answer has another length").at_rank(rank));
        }
        if let Answer::Bytes(_) = answer {
            self.fetched.fetch_add(len as u64, Ordering::Relaxed);
        }
        Ok(answer)
    }

    fn run(self: Arc<Self>) {
        let mut done = vec![false; self.fabric.size()];
        let mut looked = clock::now();
        while !self.nobody_left(&done) {
            if let Some(sharing) = &self.sharing
                && clock::now().saturating_duration_since(looked) >= LOOK
            {
                sharing.look(&*self.fabric);
                looked = clock::now();
            }
            let look = if self.say_done() { SOON } else { LOOK };
            match self.fabric.recv_any(self.tag, look) {
                Ok(Some((from, bytes))) => match Message::decode(&bytes) {
                    Ok(Message::Ask { id, offset, len, lend }) => {
                        self.serve(from, id, offset, len, lend);
                    }
                    Ok(Message::Bytes { id, .. }) => {
                        self.answer(from, id, Ok(Answer::Bytes(Payload(bytes))));
                    }
                    Ok(Message::Fail { id, kind, text }) => {
                        self.answer(from, id, Err(Error::new(kind, text)));
                    }
                    Ok(Message::Lend { id, number, at, len }) => {
                        let loan = self.sharing.as_ref();
                        let loan = loan.and_then(|s| s.accept(from, number, at, len));
                        let wrong = || Error::format("a loan of another rank is malformed");
                        self.answer(from, id, loan.map(Answer::Lent).ok_or_else(wrong));
                    }
                    Ok(Message::Return { numbers }) => {
                        if let Some(sharing) = &self.sharing {
                            sharing.take_back(from, numbers.iter());
                        }
                    }
                    Ok(Message::Press) => {
                        // It may copy, which the thread that takes messages has no time for.
                        if self.sharing.as_ref().is_some_and(|s| s.with(from)) {
                            let _ = self.answers.send(Out::Relieve(from));
                        }
                    }
                    Ok(Message::Done) => done.iter_mut().skip(from).take(1).for_each(|d| *d = true),
                    // Nobody of this version says that; the asker's deadline will pass.
                    Err(_) => {}
                },
                Ok(None) => {}
                Err(_) => break,
            }
        }
        let _ = self.answers.send(Out::End);
        if let Some(sharing) = &self.sharing {
            sharing.end();
        }
        // Messages that came too late for anybody, and that will.
        while let Ok(Some(_)) = self.fabric.recv_any(self.tag, Duration::ZERO) {}
        self.fabric.forget(self.tag..self.tag.saturating_add(1));
        // Who still waits hears of it by a channel without a sender.
        lock(&self.slots).clear();
        if let Some((near, _)) = &self.near {
            registry::close(near);
        }
    }

    /// True if this rank is done and each other one is done or gone.
    fn nobody_left(&self, done: &[bool]) -> bool {
        self.done.load(Ordering::SeqCst)
            && (0..done.len()).all(|rank| done[rank] || self.fabric.alive(rank).is_err())
    }

    /// Gives back some of what a rank has lent and nobody looks at. Where this rank is short of room itself, answers that
    /// nobody has taken and that are small become copies.
    fn give_up_what_is_kept(&self, owner: usize) {
        let Some((far, map)) = self.far.get() else { return };
        if let Some(far) = far.upgrade() {
            far.relieve();
            far.give_up(PRESSED, |offset| map.reader(offset) == Some(owner));
        }
    }

    fn answer(&self, from: usize, id: u64, answer: Result<Answer>) {
        let mut slots = lock(&self.slots);
        // Of whom it was asked.
        let asked = slots.get(&id).is_some_and(|slot| slot.rank == from);
        let slot = if asked { slots.remove(&id) } else { None };
        drop(slots);
        if let Some(Slot { answer: Some(slot), .. }) = slot {
            // Room for one answer, and only one is sent; who waited may be gone.
            let _ = slot.try_send(answer);
        }
    }

    /// Answers a request when its bytes are there.
    fn serve(self: &Arc<Self>, to: usize, id: u64, offset: u64, len: u64, lend: bool) {
        let refuse = |error: Error| {
            let fail = Message::Fail { id, kind: error.kind(), text: error.message() };
            let _ = self.fabric.send(to, self.tag, fail.encode());
        };
        let Some((near, true)) = &self.near else {
            return refuse(Error::internal("a rank that reads nothing was asked for bytes"));
        };
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let end = offset.checked_add(len as u64);
        if len as u64 > self.room.block || end.is_none_or(|end| end > near.source().len()) {
            return refuse(Error::usage("the bytes that a rank asked for are not in the file"));
        }
        let mut serving = lock(&self.serving);
        if serving.later.len() >= LATER {
            drop(serving);
            return refuse(Error::limit("a rank is asked for too much at a time"));
        }
        serving.later.push_back(Request { to, id, offset, len, lend });
        drop(serving);
        self.begin_more();
    }

    /// Begins requests that wait, as many as may be. The thread that takes messages never waits here: the next message may
    /// be what tasks of this rank need before they give back the room that the requests wait for.
    fn begin_more(self: &Arc<Self>) {
        let mut serving = lock(&self.serving);
        // Whoever does it looks again before it stops.
        if std::mem::replace(&mut serving.beginning, true) {
            return;
        }
        while let Some(request) = serving.next(self.room.memory) {
            drop(serving);
            self.begin(request);
            serving = lock(&self.serving);
        }
        serving.beginning = false;
    }

    fn begin(self: &Arc<Self>, Request { to, id, offset, len, lend }: Request) {
        let Some((near, _)) = &self.near else { return };
        let service = self.clone();
        let read = Read(near.ask(offset, len, None, AsView::new(offset, len)));
        read.then(move |view| {
            let answer = view.and_then(|view| {
                if lend && let Some(loan) = service.lend(to, id, &view) {
                    return Ok(loan);
                }
                let answer = Message::Bytes { id, bytes: &view }.encode();
                view.check().map(|()| answer)
            });
            let answer = answer.unwrap_or_else(|error| {
                Message::Fail { id, kind: error.kind(), text: error.message() }.encode()
            });
            // This may be a reader's thread, which must not wait for a slow network.
            if service.answers.send(Out::Answer(to, answer, len)).is_err() {
                service.answered(len);
            }
        });
    }

    fn answered(self: &Arc<Self>, len: usize) {
        lock(&self.serving).answered(len);
        self.begin_more();
    }

    /// A loan of bytes to a rank, as a message.
    fn lend(&self, to: usize, id: u64, view: &View) -> Option<Vec<u8>> {
        let (near, _) = self.near.as_ref()?;
        let (number, at) = self.sharing.as_ref()?.lend(to, view, near.room())?;
        Some(Message::Lend { id, number, at, len: view.len() as u64 }.encode())
    }

    fn send_answers(self: Arc<Self>, coming: &mpsc::Receiver<Out>) {
        while let Ok(out) = coming.recv() {
            // Who is gone needs nothing.
            match out {
                Out::Answer(to, answer, len) => {
                    let loan = match Message::decode(&answer) {
                        Ok(Message::Lend { number, .. }) => Some(number),
                        _ => None,
                    };
                    let sent = self.fabric.send(to, self.tag, answer);
                    if let (Err(_), Some(number), Some(sharing)) = (sent, loan, &self.sharing) {
                        sharing.undo(to, number);
                    }
                    self.answered(len);
                }
                Out::Returns(to) => {
                    let due = self.sharing.as_ref().map_or_else(Vec::new, |s| s.due(to));
                    let _ = self.fabric.send(to, self.tag, Message::give_back(&due));
                }
                Out::Press(to) => {
                    let _ = self.fabric.send(to, self.tag, Message::Press.encode());
                }
                Out::Relieve(owner) => self.give_up_what_is_kept(owner),
                Out::End => break,
            }
        }
    }
}

impl Holders for Service {
    fn press(&self) {
        for rank in self.sharing.as_ref().map_or_else(Vec::new, Sharing::press) {
            let _ = self.answers.send(Out::Press(rank));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_under_way_are_bounded_by_number_and_by_bytes() {
        let mut serving = Serving::default();
        let ask = |len| Request { to: 0, id: 0, offset: 0, len, lend: false };
        serving.later.extend([5000, 400, 600, 1].map(ask));
        // One is allowed, however long.
        assert_eq!(serving.next(1000).map(|r| r.len), Some(5000));
        assert!(serving.next(1000).is_none());
        serving.answered(5000);
        assert_eq!(serving.next(1000).map(|r| r.len), Some(400));
        assert_eq!(serving.next(1000).map(|r| r.len), Some(600));
        assert!(serving.next(1000).is_none());
        serving.answered(400);
        assert_eq!(serving.next(1000).map(|r| r.len), Some(1));
        assert!(serving.next(1000).is_none());
        serving.later.extend((0..SERVED).map(|_| ask(0)));
        let begun = std::iter::from_fn(|| serving.next(1000)).count();
        assert_eq!((serving.now, begun), (SERVED, SERVED - 2));
    }
}
