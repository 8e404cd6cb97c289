//! What all sessions of one file share: the window of blocks, the requests that wait, the readers.
//!
//! Readers are threads that begin when there is something to read and end when there has been nothing for a while.
//! They sleep otherwise. Each keeps some blocks in flight, takes the oldest, and gives it to who waits for it.
//!
//! Where the file can be mapped, blocks are brought into the page cache, which all processes of the machine
//! share, and views are parts of the mapping: no memory is taken and nothing is copied. Elsewhere (network file
//! systems, direct reads, sources that are no files), blocks are kept in memory within the budget.

use crate::clock;
use crate::deadline;
use crate::options::{Choice, Options};
use crate::request::{Deliver, Finish, Pending, Piece, Request, Wait};
use crate::view::View;
use crate::window::{Held, Next, Ticket, Window};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_store::{Buffer, IoOptions, Lender, ReadQueue, Source};

/// How long a reader without work stays.
const LINGER: Duration = Duration::from_millis(500);

/// What the window holds of a block.
#[derive(Clone)]
pub(crate) enum Kept {
    /// It is in the page cache.
    Cached,
    /// Here.
    Block(Arc<Buffer>),
}

impl Held for Kept {
    fn lent(&self) -> bool {
        matches!(self, Kept::Block(block) if Arc::strong_count(block) > 1)
    }
}

pub(crate) struct Shared {
    source: Arc<dyn Source>,
    lender: Option<Lender>,
    choice: Choice,
    io: IoOptions,
    deadline: Duration,
    ahead: bool,
    inner: Mutex<Inner>,
    /// Something to read, or room.
    work: Condvar,
    /// A reader waits for views to be dropped.
    starved: AtomicBool,
}

struct Inner {
    window: Window<Kept>,
    waiting: HashMap<Ticket, Waiting>,
    tickets: Ticket,
    readers: usize,
    /// Of the readers, those that sleep.
    asleep: usize,
    /// When the deadlines of requests are looked after next.
    watched: Option<Instant>,
    /// Requests with an answer that nobody has taken yet and that holds a block.
    untaken: HashMap<Ticket, Weak<dyn Deliver>>,
    /// Nobody will ask for anything more.
    closed: bool,
    counts: Counts,
}

struct Waiting {
    request: Arc<dyn Deliver>,
    until: Instant,
}

/// What was done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests.
    pub requests: u64,
    /// Of these, answered without waiting.
    pub at_once: u64,
    /// Blocks that readers fetched.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Shared {
    /// # Errors
    /// `Usage` if the engine that was asked for is not to be had.
    pub(crate) fn new(source: Arc<dyn Source>, options: &Options) -> Result<Arc<Shared>> {
        let choice = options.choose(source.len());
        let io = IoOptions { depth: choice.depth, ..options.io };
        drop(ReadQueue::new(&io)?);
        let lender = Lender::new(&source, &io);
        let inner = Inner {
            window: Window::new(choice.block, choice.blocks),
            waiting: HashMap::new(),
            tickets: 0,
            readers: 0,
            asleep: 0,
            watched: None,
            untaken: HashMap::new(),
            closed: false,
            counts: Counts::default(),
        };
        Ok(Arc::new(Shared {
            source,
            lender,
            choice,
            io,
            deadline: options.deadline,
            ahead: options.ahead,
            inner: Mutex::new(inner),
            work: Condvar::new(),
            starved: AtomicBool::new(false),
        }))
    }

    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    pub(crate) fn choice(&self) -> Choice {
        self.choice
    }

    /// True if views are parts of a mapping.
    pub(crate) fn maps(&self) -> bool {
        self.lender.is_some()
    }

    pub(crate) fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to read ahead for a session.
    pub(crate) fn begin(self: &Arc<Self>, id: u64, bytes: Range<u64>) -> Result<()> {
        if !self.ahead {
            return Ok(());
        }
        let mut inner = self.lock();
        inner.window.open(id, bytes);
        self.call_readers(inner)
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: u64) {
        self.lock().window.close(id);
    }

    /// Nobody will ask for anything more: readers end, requests that wait are answered first.
    pub(crate) fn close(&self) {
        let mut inner = self.lock();
        inner.closed = true;
        drop(inner);
        self.work.notify_all();
    }

    /// The blocks that `len` bytes from `offset` lie in.
    fn blocks(&self, offset: u64, len: usize) -> Range<u64> {
        let size = self.choice.block;
        offset / size..(offset + len as u64).div_ceil(size)
    }

    /// Where a range and a block overlap.
    fn overlap(&self, block: u64, offset: u64, len: usize) -> Range<u64> {
        let from = block * self.choice.block;
        offset.max(from)..(offset + len as u64).min(from + self.choice.block)
    }

    /// Bytes of a block that are in the file.
    fn whole(&self, block: u64) -> (u64, usize) {
        let from = block * self.choice.block;
        // A block is no longer than `usize`: `limits::MAX_READ_BLOCK`.
        (from, (self.source.len().saturating_sub(from)).min(self.choice.block) as usize)
    }

    /// Asks for bytes that lie within the file. `finish` makes the answer when they are there.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        deadline: Option<Duration>,
        finish: Box<dyn Finish<T>>,
    ) -> Pending<T> {
        if len == 0 {
            return Pending::Ready(Some(finish.finish(self)));
        }
        let blocks = self.blocks(offset, len);
        self.find(&blocks);
        let mut inner = self.lock();
        inner.counts.requests += 1;
        inner.tickets += 1;
        let ticket = inner.tickets;
        let mut there = Vec::new();
        let mut missing = 0;
        for block in blocks {
            let part = self.overlap(block, offset, len);
            match inner.window.ask(ticket, block, part.end - part.start) {
                Some(Kept::Cached) => {}
                Some(Kept::Block(bytes)) => there.push((block, bytes.clone())),
                None => missing += 1,
            }
        }
        if missing == 0 && there.is_empty() {
            inner.counts.at_once += 1;
            let reads_ahead = inner.asleep > 0;
            drop(inner);
            if reads_ahead {
                // What was consumed may have made room for more to be read ahead.
                self.work.notify_one();
            }
            return Pending::Ready(Some(finish.finish(self)));
        }
        inner.counts.at_once += u64::from(missing == 0);
        let request = Arc::new(Request::new(offset, len, missing + there.len(), finish));
        if missing > 0 {
            let until = clock::after(deadline.unwrap_or(self.deadline));
            inner.waiting.insert(ticket, Waiting { request: request.clone(), until });
            if inner.watched.is_none_or(|at| until < at) && deadline::watch(self, until) {
                inner.watched = Some(until);
            }
        }
        if let Err(error) = self.call_readers(inner) {
            self.cancel(ticket);
            request.fail(self, error);
        }
        for (block, bytes) in there {
            self.give(&*request, block, &Kept::Block(bytes));
        }
        if !self.maps() {
            let request: Arc<dyn Deliver> = request.clone();
            self.note_untaken(&[(ticket, request)]);
        }
        Pending::Waiting(Wait { shared: self.clone(), request, ticket })
    }

    /// Takes note of blocks that nobody read and that are in the page cache all the same.
    fn find(&self, blocks: &Range<u64>) {
        let Some(lender) = &self.lender else { return };
        let inner = self.lock();
        let unknown: Vec<u64> = blocks.clone().filter(|b| inner.window.unknown(*b)).collect();
        drop(inner);
        let cached = |block: &u64| {
            let (from, len) = self.whole(*block);
            lender.cached(from, len)
        };
        let found: Vec<u64> = unknown.into_iter().filter(cached).collect();
        if !found.is_empty() {
            let mut inner = self.lock();
            for block in found {
                inner.window.found(block, Kept::Cached);
            }
        }
    }

    /// Wakes a reader, or makes one.
    fn call_readers(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) -> Result<()> {
        if inner.asleep > 0 {
            drop(inner);
            self.work.notify_one();
            return Ok(());
        }
        if inner.readers > 0
            && (inner.readers >= self.choice.readers || inner.window.queued() < self.choice.depth)
        {
            return Ok(());
        }
        inner.readers += 1;
        let first = inner.readers == 1;
        drop(inner);
        let shared = self.clone();
        let thread = std::thread::Builder::new().name("stead-read".to_owned());
        match thread.spawn(move || Reader::run(shared)) {
            Ok(_) => Ok(()),
            Err(e) => {
                self.lock().readers -= 1;
                // Others will do it.
                if !first {
                    return Ok(());
                }
                Err(Error::io("start a reader for", self.source.path(), e))
            }
        }
    }

    /// Gives a block to a request.
    fn give(self: &Arc<Self>, request: &dyn Deliver, block: u64, kept: &Kept) {
        let (offset, len) = request.range();
        let part = self.overlap(block, offset, len);
        match kept {
            Kept::Cached => request.deliver(self, part.start, Piece::Cached),
            Kept::Block(bytes) => {
                let start = (part.start - block * self.choice.block) as usize;
                let len = (part.end - part.start) as usize;
                request.deliver(self, part.start, Piece::Block(bytes, start, len));
            }
        }
    }

    /// Takes the requests of tickets; those that wait for more blocks stay.
    fn requests(&self, inner: &Inner, tickets: &[Ticket]) -> Vec<(Ticket, Arc<dyn Deliver>)> {
        let request = |t: &Ticket| inner.waiting.get(t).map(|w| (*t, w.request.clone()));
        tickets.iter().filter_map(request).collect()
    }

    fn arrived(self: &Arc<Self>, block: u64, kept: Kept, bytes: usize) {
        let mut inner = self.lock();
        inner.counts.blocks += 1;
        inner.counts.bytes += bytes as u64;
        let tickets = inner.window.arrived(block, kept.clone());
        let requests = self.requests(&inner, &tickets);
        drop(inner);
        for (_, request) in &requests {
            self.give(&**request, block, &kept);
        }
        if !self.maps() {
            self.note_untaken(&requests);
        }
        self.forget(&requests);
    }

    /// A block could not be read as a whole: each request gets its own bytes, or its own error.
    fn failed(self: &Arc<Self>, block: u64) {
        let mut inner = self.lock();
        let tickets = inner.window.failed(block);
        let requests = self.requests(&inner, &tickets);
        drop(inner);
        for (_, request) in &requests {
            let (offset, len) = request.range();
            let part = self.overlap(block, offset, len);
            let mut bytes = vec![0; (part.end - part.start) as usize];
            match self.source.read_at(part.start, &mut bytes) {
                Ok(()) => request.deliver(self, part.start, Piece::Bytes(&bytes)),
                Err(error) => request.fail(self, error),
            }
        }
        self.forget(&requests);
    }

    /// Notes which of these requests hold blocks that nobody looks at yet.
    fn note_untaken(&self, requests: &[(Ticket, Arc<dyn Deliver>)]) {
        let mut inner = self.lock();
        for (ticket, request) in requests {
            if request.holds() {
                inner.untaken.insert(*ticket, Arc::downgrade(request));
            }
        }
    }

    /// Copies answers that nobody has taken out of their blocks, so that these can be used for others: tasks may
    /// ask for all they will ever want before they take the first answer. True if there were any.
    fn relieve(&self) -> bool {
        let untaken = std::mem::take(&mut self.lock().untaken);
        let mut any = false;
        for request in untaken.values().filter_map(Weak::upgrade) {
            any |= request.let_go();
        }
        any
    }

    /// Forgets the requests among these that are answered.
    fn forget(&self, requests: &[(Ticket, Arc<dyn Deliver>)]) {
        let answered = requests.iter().filter(|(_, r)| r.answered()).map(|(t, _)| *t);
        let answered: Vec<Ticket> = answered.collect();
        let mut inner = self.lock();
        for ticket in answered {
            self.drop_ticket(&mut inner, ticket);
        }
    }

    fn drop_ticket(&self, inner: &mut Inner, ticket: Ticket) {
        if let Some(waiting) = inner.waiting.remove(&ticket) {
            let (offset, len) = waiting.request.range();
            for block in self.blocks(offset, len) {
                inner.window.cancel(ticket, block);
            }
        }
    }

    /// A request is not wanted any more.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let mut inner = self.lock();
        inner.untaken.remove(&ticket);
        self.drop_ticket(&mut inner, ticket);
    }

    /// Fails the requests that are over; when the next one is, if any waits.
    pub(crate) fn expire(self: &Arc<Self>, now: Instant) -> Option<Instant> {
        let mut inner = self.lock();
        let over: Vec<Ticket> =
            inner.waiting.iter().filter(|(_, w)| w.until <= now).map(|(t, _)| *t).collect();
        let requests = self.requests(&inner, &over);
        for ticket in over {
            self.drop_ticket(&mut inner, ticket);
        }
        let next = inner.waiting.values().map(|w| w.until).min();
        inner.watched = next;
        let lent = inner.window.counted();
        drop(inner);
        let held = self.starved.load(Ordering::Relaxed);
        for (_, request) in requests {
            let (offset, len) = request.range();
            let message = format!("{len} bytes did not come in time");
            let error =
                Error::new(Kind::Timeout, message).at_path(self.source.path()).at_offset(offset);
            let error = if held {
                error.with_hint(format!(
                    "views hold all {lent} blocks of the budget; drop some, or allow more memory"
                ))
            } else {
                error.with_hint("the device is slow or gone; a longer deadline may help")
            };
            request.fail(self, error);
        }
        next
    }

    /// A view was dropped.
    pub(crate) fn returned(&self) {
        if self.starved.load(Ordering::SeqCst) {
            drop(self.lock());
            self.work.notify_all();
        }
    }

    /// A part of the mapping.
    pub(crate) fn lend(&self, offset: u64, len: usize) -> Option<View> {
        self.lender.as_ref()?.lend(offset, len).map(View::lent)
    }
}

/// One reader thread.
struct Reader {
    shared: Arc<Shared>,
    queue: ReadQueue,
    /// In flight, in order.
    flying: VecDeque<u64>,
}

impl Reader {
    fn run(shared: Arc<Shared>) {
        let Ok(queue) = ReadQueue::new(&shared.io) else {
            // `Shared::new` has tried it, so that this does not happen but for a lack of memory.
            shared.lock().readers -= 1;
            return;
        };
        let mut reader = Reader { shared, queue, flying: VecDeque::new() };
        while reader.fill() {
            reader.land();
        }
    }

    /// Submits as much as may be in flight. False if this reader should end.
    fn fill(&mut self) -> bool {
        let shared = self.shared.clone();
        let mut inner = shared.lock();
        loop {
            let mut begun = Vec::new();
            let mut gone = Vec::new();
            let mut full = false;
            while self.flying.len() + begun.len() < shared.choice.depth {
                match inner.window.take() {
                    Next::Read(block, room) => {
                        begun.push(block);
                        gone.extend(room);
                    }
                    Next::Full => {
                        full = true;
                        break;
                    }
                    Next::Idle => break,
                }
            }
            if !begun.is_empty() {
                drop(inner);
                self.submit(begun, gone);
                return true;
            }
            if !self.flying.is_empty() {
                return true;
            }
            if full {
                drop(inner);
                let relieved = shared.relieve();
                inner = shared.lock();
                if relieved {
                    continue;
                }
            }
            if full && !shared.starved.swap(true, Ordering::SeqCst) {
                // A view may have been dropped before that was said.
                fence(Ordering::SeqCst);
                continue;
            }
            if inner.closed && inner.waiting.is_empty() {
                inner.readers -= 1;
                return false;
            }
            inner.asleep += 1;
            let (woken, late) =
                shared.work.wait_timeout(inner, LINGER).unwrap_or_else(PoisonError::into_inner);
            inner = woken;
            inner.asleep -= 1;
            if late.timed_out() && !full {
                inner.readers -= 1;
                return false;
            }
            if full {
                shared.starved.store(false, Ordering::SeqCst);
            }
        }
    }

    fn submit(&mut self, blocks: Vec<u64>, gone: Vec<Kept>) {
        for kept in gone {
            if let Kept::Block(block) = kept
                && let Some(buffer) = Arc::into_inner(block)
            {
                // Memory of its own: there is nothing to check.
                let _ = self.queue.recycle(buffer);
            }
        }
        for block in blocks {
            let (from, len) = self.shared.whole(block);
            match self.queue.submit(block, &self.shared.source, from, len) {
                Ok(()) => self.flying.push_back(block),
                Err(_) => self.shared.failed(block),
            }
        }
    }

    /// Waits for the oldest one.
    fn land(&mut self) {
        let Some(block) = self.flying.pop_front() else { return };
        match self.queue.next() {
            Ok(Some(done)) => {
                let bytes = done.buffer.len();
                if self.shared.maps() {
                    // It has served to bring the bytes into the page cache.
                    match self.queue.recycle(done.buffer) {
                        Ok(()) => self.shared.arrived(block, Kept::Cached, bytes),
                        Err(_) => self.shared.failed(block),
                    }
                } else {
                    self.shared.arrived(block, Kept::Block(Arc::new(done.buffer)), bytes);
                }
            }
            Ok(None) | Err(_) => self.shared.failed(block),
        }
    }
}
