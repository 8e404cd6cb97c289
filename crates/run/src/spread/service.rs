//! Bytes that ranks get from each other. A thread of each rank takes what comes, and others read from the parts that are there
//! and answer, so that a slow device keeps neither answers to this rank nor those from another part waiting.

use super::{COUNTED, WINDOW, Whole};
use crate::clock::Watch;
use crate::pass::caught;
use serde::{Deserialize, Serialize};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result, Stops};
use stead_fabric::{Fabric, kinds};
use stead_format::Traffic;

/// Reads of this rank that wait for others, each of a window.
const WINDOWS: usize = 16;
/// Threads that read for others.
const READERS: usize = 2;
/// Questions of each rank that wait for these threads; who keeps to its windows never has so many.
const MOST_WAITING: usize = 4 * WINDOWS;
/// Windows that were asked for ahead, and are not wanted yet: so many that a link is busy while some of them have still to be
/// agreed on by MPI, and that each of several nodes has to give some.
pub(crate) const AHEAD: usize = 2 * WINDOWS;
/// How often who waits looks whether the run is stopped and the other rank lives.
const LOOK: Duration = Duration::from_millis(100);
/// How often the thread looks whether anybody is left, once this rank wants nothing more.
const LEFT: Duration = Duration::from_secs(2);

/// What ranks say to each other.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Message {
    /// The pieces of `offset..offset + len` that lie on parts of a group.
    Ask {
        id: u64,
        source: u32,
        group: u64,
        offset: u64,
        len: u64,
    },
    /// They come behind it.
    Bytes {
        id: u64,
    },
    Failed {
        id: u64,
        kind: u8,
        message: String,
        hint: Option<String>,
        path: Option<String>,
        offset: Option<u64>,
        line: Option<u64>,
    },
    /// This rank wants nothing more.
    Bye,
    /// As `Ask`, for the number of newlines in them.
    Count {
        id: u64,
        source: u32,
        group: u64,
        offset: u64,
        len: u64,
    },
    Counted {
        id: u64,
        newlines: u64,
    },
}

/// What is wanted of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Bytes,
    /// How many newlines there are: a number of 64 bits.
    Newlines,
}

/// A question of another rank.
struct Question {
    from: usize,
    id: u64,
    source: u32,
    group: u64,
    offset: u64,
    len: u64,
    want: Want,
}

/// Questions that wait for a thread.
#[derive(Default)]
struct Questions {
    waiting: VecDeque<Question>,
    /// None will come any more.
    closed: bool,
}

impl Message {
    fn encode(&self) -> Vec<u8> {
        // Nothing in it can fail to be encoded.
        postcard::to_stdvec(self).unwrap_or_default()
    }
}

/// What is asked for at a group of ranks: its pieces of `start..end`, so many bytes in all.
pub(super) struct Ask {
    pub(super) group: usize,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) bytes: usize,
}

/// What came of one.
type Answer = Result<Came>;

/// Bytes of an answer, in the message that brought them.
pub(super) struct Came {
    message: Vec<u8>,
    /// Where they begin.
    start: usize,
    /// Whose message it was.
    fabric: Arc<dyn Fabric>,
}

impl Drop for Came {
    fn drop(&mut self) {
        self.fabric.give_back(std::mem::take(&mut self.message));
    }
}

impl AsRef<[u8]> for Came {
    fn as_ref(&self) -> &[u8] {
        self.message.get(self.start..).unwrap_or_default()
    }
}

/// A question under way.
struct Asked {
    id: u64,
    rank: usize,
    coming: Receiver<Answer>,
}

/// Questions of a window that nobody waits for yet.
struct Begun {
    asked: Vec<Asked>,
}

/// The ranks that have the parts of a dataset, for one of them. Others are told when it is dropped.
pub(super) struct Link {
    service: Arc<Service>,
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Link(rank {} of {})", self.service.fabric.rank(), self.service.fabric.size())
    }
}

struct Service {
    fabric: Arc<dyn Fabric>,
    tag: u32,
    hosts: Vec<String>,
    /// The ranks of each group.
    groups: Vec<Vec<usize>>,
    files: Vec<Arc<Whole>>,
    stops: Stops,
    traffic: Arc<Traffic>,
    ids: AtomicU64,
    /// What was asked for before it is wanted: by source and bytes.
    ahead: Mutex<HashMap<(u32, u64, u64), Begun>>,
    waiting: Mutex<HashMap<u64, (usize, SyncSender<Answer>)>>,
    /// Windows that may still be asked for.
    room: Mutex<usize>,
    freed: Condvar,
    questions: Mutex<Questions>,
    asked: Condvar,
}

/// What holds is whole whatever became of who changed it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Link {
    /// Starts the threads that take what comes and answer.
    pub(super) fn start(
        fabric: Arc<dyn Fabric>,
        tag: u32,
        hosts: Vec<String>,
        groups: Vec<Vec<usize>>,
        files: Vec<Arc<Whole>>,
        stops: Stops,
        traffic: Arc<Traffic>,
    ) -> Result<Link> {
        let service = Arc::new(Service {
            fabric,
            tag,
            hosts,
            groups,
            files,
            stops,
            traffic,
            ids: AtomicU64::new(0),
            ahead: Mutex::default(),
            waiting: Mutex::default(),
            room: Mutex::new(WINDOWS),
            freed: Condvar::new(),
            questions: Mutex::default(),
            asked: Condvar::new(),
        });
        let start = |name: &str, work: fn(&Service)| {
            let (its, thread) = (service.clone(), std::thread::Builder::new().name(name.into()));
            let started = thread.spawn(move || work(&its));
            started.map(drop).map_err(|e| Error::io("start a thread for", "parts", e))
        };
        let readers = (0..READERS).try_for_each(|_| start("stead-answers", Service::answer));
        let all = readers.and_then(|()| start("stead-parts", Service::run));
        // Those that have started go.
        all.inspect_err(|_| service.close())?;
        Ok(Link { service })
    }

    /// Asks for what a window of a file is to be made of, which is wanted later. False if there is no room for it; what else
    /// goes wrong, [`Link::fetch`] says.
    pub(super) fn begin(&self, source: u32, window: &Range<u64>, asks: &[Ask]) -> bool {
        self.service.begin(source, window, asks)
    }

    /// What was asked for ahead, and begins in these bytes or beside them, is waited for no more.
    pub(super) fn forget(&self, source: u32, bytes: &Range<u64>) {
        self.service.forget(source, bytes);
    }

    /// Asks for what a window of a file is to be made of, unless that was done, does `meanwhile`, and waits for it.
    ///
    /// # Errors
    /// `Peer` if a rank is gone or does not answer in time, its own error if it cannot read, `Cancelled`: with rank and host.
    pub(super) fn fetch(
        &self,
        source: u32,
        window: &Range<u64>,
        asks: &[Ask],
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Came>> {
        self.service.fetch(source, Some(window), asks, Want::Bytes, meanwhile)
    }

    /// As [`Link::fetch`], for the number of newlines in the pieces of all groups together.
    ///
    /// # Errors
    /// As [`Link::fetch`].
    pub(super) fn newlines(
        &self,
        source: u32,
        asks: &[Ask],
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<u64> {
        let came = self.service.fetch(source, None, asks, Want::Newlines, meanwhile)?;
        let number = |n: &Came| n.as_ref().first_chunk().map_or(0, |n| u64::from_le_bytes(*n));
        Ok(came.iter().map(number).fold(0, u64::saturating_add))
    }

    /// What stops those who wait.
    pub(super) fn stops(&self) -> &Stops {
        &self.service.stops
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        for rank in 0..self.service.fabric.size() {
            // Who is gone need not know.
            let _ = self.service.fabric.send(rank, self.service.tag, Message::Bye.encode());
        }
    }
}

/// A place among the windows under way.
struct Room<'s>(&'s Service);

impl Drop for Room<'_> {
    fn drop(&mut self) {
        *lock(&self.0.room) += 1;
        self.0.freed.notify_one();
    }
}

impl Service {
    fn room(&self) -> Result<Room<'_>> {
        let mut room = lock(&self.room);
        while *room == 0 {
            self.stops.check()?;
            let waited = self.freed.wait_timeout(room, LOOK);
            room = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *room -= 1;
        Ok(Room(self))
    }

    fn begin(&self, source: u32, window: &Range<u64>, asks: &[Ask]) -> bool {
        let key = (source, window.start, window.end);
        let mut ahead = lock(&self.ahead);
        if ahead.len() >= AHEAD {
            return false;
        }
        if let Entry::Vacant(place) = ahead.entry(key) {
            let mut begun = Begun { asked: Vec::with_capacity(asks.len()) };
            for ask in asks {
                match self.ask(source, ask, Want::Bytes) {
                    Ok(asked) => begun.asked.push(asked),
                    Err(_) => {
                        self.drop_answers(&begun);
                        return true;
                    }
                }
            }
            place.insert(begun);
        }
        true
    }

    /// Answers that still come come to nobody.
    fn drop_answers(&self, begun: &Begun) {
        let mut waiting = lock(&self.waiting);
        begun.asked.iter().for_each(|asked| drop(waiting.remove(&asked.id)));
    }

    fn forget(&self, source: u32, bytes: &Range<u64>) {
        // A read may begin a byte before its records.
        let near = |start: u64| start.saturating_add(1) >= bytes.start && start <= bytes.end;
        let mut ahead = lock(&self.ahead);
        let left: Vec<_> =
            ahead.keys().filter(|(of, start, _)| *of == source && near(*start)).copied().collect();
        for key in left {
            ahead.remove(&key).iter().for_each(|begun| self.drop_answers(begun));
        }
    }

    fn fetch(
        &self,
        source: u32,
        window: Option<&Range<u64>>,
        asks: &[Ask],
        want: Want,
        meanwhile: &mut dyn FnMut() -> Result<()>,
    ) -> Result<Vec<Came>> {
        let begun = window.and_then(|w| lock(&self.ahead).remove(&(source, w.start, w.end)));
        let _room = if begun.is_none() { Some(self.room()?) } else { None };
        let mut under_way = Vec::with_capacity(asks.len());
        let mut began = Ok(());
        match begun {
            Some(begun) => under_way = begun.asked,
            None => {
                for ask in asks {
                    match self.ask(source, ask, want) {
                        Ok(asked) => under_way.push(asked),
                        Err(e) => {
                            began = Err(self.about(e, source, ask));
                            break;
                        }
                    }
                }
            }
        }
        let came = began.and_then(|()| meanwhile()).and_then(|()| {
            let wait = |(asked, ask): (&Asked, &Ask)| {
                self.wait(asked, ask, want).map_err(|e| self.about(e, source, ask))
            };
            under_way.iter().zip(asks).map(wait).collect()
        });
        // Answers that still come come to nobody.
        let mut waiting = lock(&self.waiting);
        under_way.iter().for_each(|asked| drop(waiting.remove(&asked.id)));
        came
    }

    /// With what was asked for.
    fn about(&self, e: Error, source: u32, ask: &Ask) -> Error {
        let e = match e.place().rank.and_then(|rank| self.hosts.get(rank)) {
            Some(host) if e.place().host.is_none() => e.at_host(host),
            _ => e,
        };
        match self.files.get(source as usize) {
            Some(file) if e.place().path.is_none() => e.at_path(&file.path).at_offset(ask.start),
            _ => e,
        }
    }

    fn ask(&self, source: u32, ask: &Ask, want: Want) -> Result<Asked> {
        let ranks = self.groups.get(ask.group).filter(|ranks| !ranks.is_empty());
        let ranks = ranks.ok_or_else(|| Error::internal("no rank has a part"))?;
        // All of them reach the same parts, and share the questions, window by window.
        let turn = self.fabric.rank() as u64 + ask.start / WINDOW;
        let rank = ranks[(turn % ranks.len() as u64) as usize];
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (answer, coming) = mpsc::sync_channel(1);
        lock(&self.waiting).insert(id, (rank, answer));
        let (group, offset, len) = (ask.group as u64, ask.start, ask.end - ask.start);
        let message = match want {
            Want::Bytes => Message::Ask { id, source, group, offset, len },
            Want::Newlines => Message::Count { id, source, group, offset, len },
        };
        if let Err(e) = self.fabric.send(rank, self.tag, message.encode()) {
            lock(&self.waiting).remove(&id);
            return Err(match e.kind() {
                Kind::Peer => gone(rank, ask, e.message()),
                _ if e.place().rank.is_none() => e.at_rank(rank),
                _ => e,
            });
        }
        Ok(Asked { id, rank, coming })
    }

    fn wait(&self, asked: &Asked, ask: &Ask, want: Want) -> Answer {
        let (rank, watch) = (asked.rank, Watch::start());
        let deadline = self.fabric.deadline();
        let gone = |why: &str| gone(rank, ask, why);
        let came = loop {
            match asked.coming.recv_timeout(LOOK) {
                Ok(answer) => break answer?,
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(gone("messages between ranks have ended"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
            self.stops.check()?;
            if let Err(e) = self.fabric.alive(rank) {
                // The answer may have come just before.
                match asked.coming.try_recv() {
                    Ok(answer) => break answer?,
                    Err(_) => return Err(gone(e.message())),
                }
            }
            if watch.seconds() > deadline.as_secs_f64() {
                let message = format!("they did not come within {} s", deadline.as_secs());
                return Err(gone(&message));
            }
        };
        let len = came.as_ref().len();
        if len != ask.bytes {
            return Err(Error::format("an answer has another length than it should").at_rank(rank));
        }
        if want == Want::Bytes {
            Traffic::add(&self.traffic.fetched, len);
        }
        Ok(came)
    }

    /// The thread that takes what comes.
    fn run(&self) {
        self.take_all();
        self.close();
        // Those who wait hear that nothing comes any more.
        lock(&self.waiting).clear();
        self.fabric.forget(self.tag..self.tag + 1);
    }

    /// Lets the threads that read go.
    fn close(&self) {
        lock(&self.questions).closed = true;
        self.asked.notify_all();
    }

    fn take_all(&self) {
        let mut left: HashSet<usize> = (0..self.fabric.size()).collect();
        let me = self.fabric.rank();
        while !left.is_empty() {
            match self.fabric.recv_any(self.tag, LEFT) {
                Ok(Some((from, frame))) => match postcard::take_from_bytes::<Message>(&frame) {
                    Ok((Message::Bye, _)) => drop(left.remove(&from)),
                    Ok((message, rest)) => {
                        let start = frame.len() - rest.len();
                        let fabric = self.fabric.clone();
                        self.heard(from, message, Came { message: frame, start, fabric });
                    }
                    // Who has sent it waits for an answer in vain, until its deadline.
                    Err(_) => {}
                },
                Ok(None) if left.contains(&me) => {}
                Ok(None) => left.retain(|rank| self.fabric.alive(*rank).is_ok()),
                Err(_) => break,
            }
        }
    }

    /// A thread that reads for others.
    fn answer(&self) {
        loop {
            let mut questions = lock(&self.questions);
            let question = loop {
                if questions.closed {
                    return;
                }
                match questions.waiting.pop_front() {
                    Some(question) => break question,
                    // It is closed when no rank is left that could ask.
                    None => {
                        let waited = self.asked.wait(questions);
                        questions = waited.unwrap_or_else(PoisonError::into_inner);
                    }
                }
            };
            drop(questions);
            let Question { from, id, .. } = question;
            let answer = caught(|| self.read(&question)).unwrap_or_else(|e| failed(id, &e));
            // Who is gone needs no answer.
            let _ = self.fabric.send(from, self.tag, answer);
        }
    }

    /// Leaves a question to the threads that read.
    fn leave(&self, question: Question) {
        let (from, id) = (question.from, question.id);
        let mut questions = lock(&self.questions);
        let most = MOST_WAITING.saturating_mul(self.fabric.size());
        if questions.waiting.len() < most {
            questions.waiting.push_back(question);
            drop(questions);
            self.asked.notify_one();
            return;
        }
        drop(questions);
        let e = Error::limit(format!("more than {most} questions for parts at a time"));
        let _ = self.fabric.send(from, self.tag, failed(id, &e));
    }

    fn heard(&self, from: usize, message: Message, behind: Came) {
        let (id, answer) = match message {
            Message::Bye => return,
            Message::Ask { id, source, group, offset, len } => {
                let want = Want::Bytes;
                return self.leave(Question { from, id, source, group, offset, len, want });
            }
            Message::Count { id, source, group, offset, len } => {
                let want = Want::Newlines;
                return self.leave(Question { from, id, source, group, offset, len, want });
            }
            Message::Counted { id, newlines } => {
                let (message, fabric) = (newlines.to_le_bytes().to_vec(), self.fabric.clone());
                (id, Ok(Came { message, start: 0, fabric }))
            }
            Message::Bytes { id } => (id, Ok(behind)),
            Message::Failed { id, kind, message, hint, path, offset, line } => {
                let mut e = Error::new(kinds::kind(kind), message).at_rank(from);
                if let Some(hint) = hint {
                    e = e.with_hint(hint);
                }
                if let Some(path) = path {
                    e = e.at_path(path);
                }
                // Of that path, and not of the file that it is a part of.
                if let Some(offset) = offset {
                    e = e.at_offset(offset);
                }
                if let Some(line) = line {
                    e = e.at_line(line);
                }
                (id, Err(e))
            }
        };
        let mut waiting = lock(&self.waiting);
        if waiting.get(&id).is_some_and(|(rank, _)| *rank == from)
            && let Some((_, waits)) = waiting.remove(&id)
        {
            // Who has given up is not there any more.
            let _ = waits.try_send(answer);
        }
    }

    /// The answer to what another rank asks for, from the parts that are here.
    fn read(&self, question: &Question) -> Result<Vec<u8>> {
        let Question { id, source, group, offset, len, want, .. } = *question;
        let odd = || Error::format("another rank asks for what there is not");
        let most = if want == Want::Bytes { WINDOW } else { COUNTED };
        let file = self.files.get(source as usize).ok_or_else(odd)?;
        let end = offset.checked_add(len).filter(|end| *end <= file.layout.length());
        let range = offset..end.filter(|_| len <= most).ok_or_else(odd)?;
        let of = |part: usize| file.homes.get(part).is_some_and(|home| *home as u64 == group);
        if want == Want::Newlines {
            let newlines = file.newlines(range, &of, &self.stops)?;
            return Ok(Message::Counted { id, newlines }.encode());
        }
        // Bytes are read to where they are sent from.
        let head = Message::Bytes { id }.encode();
        let mut answer = self.fabric.memory(head.len() + len as usize);
        answer.extend_from_slice(&head);
        file.append(&range, &of, &mut answer)?;
        Traffic::add(&self.traffic.served, answer.len() - head.len());
        Ok(answer)
    }
}

/// The error for bytes of a rank that does not give them.
fn gone(rank: usize, ask: &Ask, why: &str) -> Error {
    let what = format!("bytes {} to {} of the file are there, and {why}", ask.start, ask.end);
    Error::new(Kind::Peer, what).at_rank(rank)
}

/// An error as it goes to who has asked.
fn failed(id: u64, e: &Error) -> Vec<u8> {
    let path = e.place().path.as_ref().map(|p| p.display().to_string());
    let hint = e.hint().map(str::to_owned);
    let (kind, message) = (kinds::number(e.kind()), e.message().to_owned());
    let (offset, line) = (e.place().offset, e.place().line);
    Message::Failed { id, kind, message, hint, path, offset, line }.encode()
}
