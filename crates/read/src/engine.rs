//! What all sessions of one file share: the window of blocks, the requests that wait, the readers.
//!
//! Where the file can be mapped, blocks are brought into the page cache, which all processes of the machine
//! share, and views are parts of the mapping: no memory is taken and nothing is copied. Elsewhere (network file
//! systems, direct reads, sources that are no files), blocks are kept in memory within the budget.
//!
//! One lock guards the window and the requests. No function of users is called under it, and no other lock is taken
//! under it but that of deadlines. Requests have locks of their own, under which this one is not taken.

use crate::clock;
use crate::deadline;
use crate::options::{Choice, Decision, Known, Options};
use crate::profile::{self, Measured};
use crate::reader::Reader;
use crate::request::{Deliver, Finish, Pending, Piece, Request, Wait};
use crate::sync::{self, AtomicBool, Condvar, Mutex, MutexGuard, fence};
use crate::tune::Tuner;
use crate::view::View;
use crate::window::{Held, Next, Ticket, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result, limits};
use stead_store::{Buffer, Engine, IoOptions, Lender, ReadQueue, Source, Tier};

/// What the window holds of a block.
#[derive(Clone)]
pub(crate) enum Kept {
    /// This one is in the page cache.
    Cached(u64),
    /// Here.
    Block(Arc<Buffer>),
}

impl Held for Kept {
    fn lent(&self) -> bool {
        matches!(self, Kept::Block(block) if Arc::strong_count(block) > 1)
    }
}

pub(crate) struct Shared {
    id: u64,
    source: Arc<dyn Source>,
    lender: Option<Lender>,
    choice: Choice,
    decisions: Vec<Decision>,
    /// The name of its storage, if that is known.
    tier: Option<String>,
    io: IoOptions,
    memory: u64,
    deadline: Duration,
    ahead: bool,
    /// Blocks that were in the page cache when somebody looked, one bit each: they are asked for without the lock.
    cached: Box<[AtomicU64]>,
    /// How many have the file open. Nobody asks for anything more when it is zero.
    handles: AtomicUsize,
    requests: AtomicU64,
    at_once: AtomicU64,
    /// Bytes of answers, copied out of blocks, that nobody has taken.
    own: AtomicU64,
    began: Instant,
    tuner: Mutex<Tuner>,
    /// Blocks that a reader should have in flight, as the tuner says.
    depth: AtomicUsize,
    pub(crate) inner: Mutex<Inner>,
    /// Something to read, or room.
    pub(crate) work: Condvar,
    /// A reader waits for views to be dropped.
    pub(crate) starved: AtomicBool,
}

pub(crate) struct Inner {
    pub(crate) window: Window<Kept>,
    pub(crate) waiting: BTreeMap<Ticket, Waiting>,
    /// The deadlines of those that wait.
    until: BTreeSet<(Instant, Ticket)>,
    /// Of those that wait, the ones that somebody waits for at this moment.
    urged: BTreeSet<Ticket>,
    tickets: Ticket,
    sessions: u64,
    pub(crate) readers: usize,
    /// Of the readers, those that sleep.
    pub(crate) asleep: usize,
    /// Readers that wait for room, which `starved` says too.
    pub(crate) starving: usize,
    /// When the deadlines of requests are looked after next.
    watched: Option<Instant>,
    /// Where blocks are in memory: requests whose answer may hold one and that nobody has taken yet.
    untaken: BTreeMap<Ticket, Weak<dyn Deliver>>,
    blocks: u64,
    bytes: u64,
}

pub(crate) struct Waiting {
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
    /// Bytes in memory now: of blocks, also those that are being read, and of answers that nobody has taken. No blocks
    /// where views are of the page cache.
    pub held: u64,
}

/// All that is needed for new buffers, looked at and found possible.
pub(crate) struct New {
    source: Arc<dyn Source>,
    lender: Option<Lender>,
    choice: Choice,
    decisions: Vec<Decision>,
    tier: Option<String>,
    io: IoOptions,
    options: Options,
}

/// Less is too little to be remembered.
const WORTH_NOTING: u64 = 64 << 20;

impl New {
    /// # Errors
    /// `Usage` if the engine that was asked for is not to be had.
    pub(crate) fn prepare(source: Arc<dyn Source>, options: &Options) -> Result<New> {
        let tier = Tier::of(&*source);
        let name = tier.as_ref().map(|t| t.name.clone());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let measured = profile::of(name.as_deref(), options.io.direct);
        let known = Known { len: source.len(), cores, tier, measured };
        let (choice, decisions) = options.choose(&known);
        let io = IoOptions { depth: choice.most_depth, ..options.io };
        if options.io.engine != Engine::Auto {
            drop(ReadQueue::new(&io)?);
        }
        let lender = Lender::new(&source, &io);
        Ok(New { source, lender, choice, decisions, tier: name, io, options: options.clone() })
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> u64 {
        self.choice.block
    }
}

impl Shared {
    /// Open once.
    pub(crate) fn new(new: New) -> Arc<Shared> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let New { source, lender, choice, decisions, tier, io, options } = new;
        let flying = choice.depth.saturating_mul(choice.readers);
        let most = choice.most_depth.saturating_mul(choice.readers);
        let tuner = Tuner::new(flying, most, options.depth.is_some());
        let inner = Inner {
            window: Window::new(choice.block, choice.blocks),
            waiting: BTreeMap::new(),
            until: BTreeSet::new(),
            urged: BTreeSet::new(),
            tickets: 0,
            sessions: 0,
            readers: 0,
            asleep: 0,
            starving: 0,
            watched: None,
            untaken: BTreeMap::new(),
            blocks: 0,
            bytes: 0,
        };
        let blocks = source.len().div_ceil(choice.block);
        let words = if lender.is_some() { blocks.div_ceil(64) } else { 0 };
        Arc::new(Shared {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            source,
            lender,
            choice,
            decisions,
            tier,
            io,
            memory: options.memory,
            deadline: options.deadline,
            ahead: options.ahead,
            cached: (0..words).map(|_| AtomicU64::new(0)).collect(),
            handles: AtomicUsize::new(1),
            requests: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            own: AtomicU64::new(0),
            began: clock::now(),
            tuner: Mutex::new(tuner),
            depth: AtomicUsize::new(choice.depth),
            inner: Mutex::new(inner),
            work: Condvar::new(),
            starved: AtomicBool::new(false),
        })
    }

    /// Names it among all of the process.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    pub(crate) fn choice(&self) -> Choice {
        self.choice
    }

    /// Blocks that a reader should have in flight.
    pub(crate) fn depth(&self) -> usize {
        self.depth.load(Ordering::Relaxed)
    }

    /// A reader has nothing to do.
    pub(crate) fn pause(&self) {
        sync::lock(&self.tuner).pause();
    }

    /// A block came from the device.
    pub(crate) fn landed(&self, bytes: usize) {
        let now = clock::now().saturating_duration_since(self.began);
        let mut tuner = sync::lock(&self.tuner);
        tuner.landed(bytes as u64, now);
        let flying = tuner.flying();
        drop(tuner);
        self.depth.store(flying.div_ceil(self.choice.readers).max(1), Ordering::Relaxed);
    }

    /// What was chosen, and why.
    pub(crate) fn decisions(&self) -> Vec<Decision> {
        let mut all = self.decisions.clone();
        let best = sync::lock(&self.tuner).best();
        if let Some((flying, rate)) = best
            && let Some(depth) = all.iter_mut().find(|d| d.name == "queue depth")
        {
            let rate = stead_core::units::format_size(rate as u64);
            depth.value = flying.div_ceil(self.choice.readers).to_string();
            depth.reason = format!("{}; read so with {rate}/s", depth.reason);
        }
        all
    }

    /// Remembers what was measured of the tier, if it was enough.
    pub(crate) fn remember(&self) {
        let best = sync::lock(&self.tuner).best();
        let (Some(tier), Some((flying, rate))) = (&self.tier, best) else { return };
        if self.lock().bytes >= WORTH_NOTING {
            profile::note(Measured {
                tier: tier.clone(),
                direct: self.io.direct,
                block: self.choice.block,
                flying,
                rate: rate as u64,
            });
        }
    }

    pub(crate) fn io(&self) -> &IoOptions {
        &self.io
    }

    pub(crate) fn lender(&self) -> Option<&Lender> {
        self.lender.as_ref()
    }

    /// True if views are parts of a mapping.
    pub(crate) fn maps(&self) -> bool {
        self.lender.is_some()
    }

    /// True if blocks are in memory, of which there is a budget.
    pub(crate) fn holds_blocks(&self) -> bool {
        !self.maps()
    }

    /// Bytes that it may have if nobody else has any.
    pub(crate) fn memory(&self) -> u64 {
        self.memory
    }

    pub(crate) fn counts(&self) -> Counts {
        let inner = self.lock();
        let (blocks, bytes, held) = (inner.blocks, inner.bytes, inner.window.counted() as u64);
        drop(inner);
        let held = if self.maps() { 0 } else { held.saturating_mul(self.choice.block) };
        let requests = self.requests.load(Ordering::Relaxed);
        let held = held + self.own.load(Ordering::Relaxed);
        Counts { requests, at_once: self.at_once.load(Ordering::Relaxed), blocks, bytes, held }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        sync::lock(&self.inner)
    }

    /// One more has it open.
    pub(crate) fn join(&self) {
        self.handles.fetch_add(1, Ordering::SeqCst);
    }

    /// One has closed it. True if that was the last one.
    pub(crate) fn leave(&self) -> bool {
        self.handles.fetch_sub(1, Ordering::SeqCst) == 1
    }

    /// True if nobody has it open.
    pub(crate) fn is_closed(&self) -> bool {
        self.handles.load(Ordering::SeqCst) == 0
    }

    /// After the last one has left: readers end, requests that wait are answered first.
    pub(crate) fn close(&self) {
        // A reader that looks whether somebody has it open does so with the lock, and sleeps before it lets it go.
        drop(self.lock());
        self.work.notify_all();
    }

    /// Drops the blocks that nobody has a view of.
    pub(crate) fn clear(&self) {
        let gone = self.lock().window.clear();
        drop(gone);
    }

    /// So many bytes of blocks from now on, and some in any case.
    pub(crate) fn set_share(&self, bytes: u64) {
        let bytes = bytes.max(limits::LEAST_SESSION_MEMORY).min(self.memory);
        let most = usize::try_from(bytes / self.choice.block).unwrap_or(usize::MAX);
        let gone = self.lock().window.set_most(most);
        drop(gone);
        self.work.notify_all();
    }

    /// Begins a session and, unless told otherwise, to read it ahead. Gives its number.
    pub(crate) fn begin(self: &Arc<Self>, bytes: Range<u64>) -> Result<u64> {
        // What was in the page cache once may have gone.
        for word in &self.cached {
            word.store(0, Ordering::Relaxed);
        }
        let mut inner = self.lock();
        inner.sessions += 1;
        let id = inner.sessions;
        if self.ahead {
            inner.window.open(id, bytes);
            self.call_readers(inner).inspect_err(|_| self.end(id))?;
        }
        Ok(id)
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: u64) {
        self.lock().window.close(id);
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
    pub(crate) fn whole(&self, block: u64) -> (u64, usize) {
        let from = block * self.choice.block;
        // A block is no longer than `usize`: `limits::MAX_READ_BLOCK`.
        (from, (self.source.len().saturating_sub(from)).min(self.choice.block) as usize)
    }

    fn bit(&self, block: u64) -> Option<(&AtomicU64, u64)> {
        let word = self.cached.get(usize::try_from(block / 64).ok()?)?;
        Some((word, 1 << (block % 64)))
    }

    /// True if a block was in the page cache when somebody looked.
    pub(crate) fn was_cached(&self, block: u64) -> bool {
        self.bit(block).is_some_and(|(word, bit)| word.load(Ordering::Relaxed) & bit != 0)
    }

    /// Looks whether a block is in the page cache.
    pub(crate) fn is_cached(&self, block: u64) -> bool {
        let (from, len) = self.whole(block);
        let there = self.lender.as_ref().is_some_and(|l| l.cached(from, len));
        if there && let Some((word, bit)) = self.bit(block) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        there
    }

    /// Asks for bytes that lie within the file. `finish` makes the answer when they are there.
    pub(crate) fn ask<T: Send + 'static>(
        self: &Arc<Self>,
        offset: u64,
        len: usize,
        deadline: Option<Duration>,
        finish: impl Finish<T> + 'static,
    ) -> Pending<T> {
        self.requests.fetch_add(1, Ordering::Relaxed);
        let blocks = self.blocks(offset, len);
        if len == 0 || self.find(&blocks, |block| finish.wants(&self.overlap(block, offset, len))) {
            self.at_once.fetch_add(1, Ordering::Relaxed);
            return Pending::there(self, finish);
        }
        let mut inner = self.lock();
        inner.tickets += 1;
        let ticket = inner.tickets;
        let mut there = Vec::new();
        let mut missing = 0;
        for block in blocks.filter(|b| !self.was_cached(*b)) {
            let part = self.overlap(block, offset, len);
            if !finish.wants(&part) {
                continue;
            }
            match inner.window.ask(ticket, block, part.end - part.start) {
                Some(Kept::Cached(_)) => {}
                Some(Kept::Block(bytes)) => there.push((block, bytes.clone())),
                None => missing += 1,
            }
        }
        self.at_once.fetch_add(u64::from(missing == 0), Ordering::Relaxed);
        if missing == 0 && there.is_empty() {
            // What was consumed may have made room for more to be read ahead.
            let more = inner.asleep > 0 && inner.window.has_work();
            drop(inner);
            if more {
                self.work.notify_one();
            }
            return Pending::there(self, finish);
        }
        let request = Arc::new(Request::new(offset, len, missing + there.len(), Box::new(finish)));
        if self.holds_blocks() {
            let weak: Weak<Request<T>> = Arc::downgrade(&request);
            inner.untaken.insert(ticket, weak);
        }
        if missing > 0 {
            let until = clock::after(deadline.unwrap_or(self.deadline));
            inner.until.insert((until, ticket));
            inner.waiting.insert(ticket, Waiting { request: request.clone(), until });
            self.look_after(&mut inner, until);
        }
        if let Err(error) = self.call_readers(inner) {
            self.cancel(ticket);
            request.fail(self, error);
        }
        for (block, bytes) in there {
            self.give(&*request, block, &Kept::Block(bytes));
            self.let_go();
        }
        Pending::Waiting(Wait { shared: self.clone(), request, ticket })
    }

    /// Has a thread look after a deadline, unless it looks sooner anyway.
    fn look_after(self: &Arc<Self>, inner: &mut Inner, until: Instant) {
        if inner.watched.is_none_or(|at| until < at) && deadline::watch(self, until, inner.watched)
        {
            inner.watched = Some(until);
        }
    }

    /// True if all these blocks are in the page cache. Looks at those that nothing is known about.
    fn find(&self, blocks: &Range<u64>, wanted: impl Fn(u64) -> bool) -> bool {
        if !self.maps() {
            return false;
        }
        let mut unknown: Vec<u64> =
            blocks.clone().filter(|b| !self.was_cached(*b) && wanted(*b)).collect();
        if unknown.is_empty() {
            return true;
        }
        let all = unknown.len();
        let inner = self.lock();
        unknown.retain(|b| inner.window.unknown(*b));
        drop(inner);
        let found = unknown.iter().filter(|b| self.is_cached(**b)).count();
        found == all
    }

    /// Wakes a reader, or makes one.
    fn call_readers(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) -> Result<()> {
        if inner.asleep > 0 {
            drop(inner);
            self.work.notify_one();
            return Ok(());
        }
        if !inner.window.has_work()
            || (inner.readers > 0
                && (inner.readers >= self.choice.readers || inner.window.queued() < self.depth()))
        {
            return Ok(());
        }
        inner.readers += 1;
        let first = inner.readers == 1;
        drop(inner);
        let shared = self.clone();
        let thread = sync::thread::Builder::new().name("stead-read".to_owned());
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

    /// Gives a block to a request. True if the request is answered.
    fn give(self: &Arc<Self>, request: &dyn Deliver, block: u64, kept: &Kept) -> bool {
        let (offset, len) = request.range();
        let part = self.overlap(block, offset, len);
        match kept {
            Kept::Cached(_) => request.deliver(self, part.start, Piece::Cached),
            Kept::Block(bytes) => {
                let start = (part.start - block * self.choice.block) as usize;
                let len = (part.end - part.start) as usize;
                request.deliver(self, part.start, Piece::Block(bytes, start, len))
            }
        }
    }

    /// The requests of tickets; those that wait for more blocks stay.
    fn requests(inner: &Inner, tickets: &[Ticket]) -> Vec<(Ticket, Arc<dyn Deliver>)> {
        let request = |t: &Ticket| inner.waiting.get(t).map(|w| (*t, w.request.clone()));
        tickets.iter().filter_map(request).collect()
    }

    /// Readers have fetched a block.
    pub(crate) fn arrived(self: &Arc<Self>, block: u64, kept: &Kept, bytes: usize) {
        let mut inner = self.lock();
        inner.blocks += 1;
        inner.bytes += bytes as u64;
        let tickets = inner.window.arrived(block, kept.clone());
        let requests = Self::requests(&inner, &tickets);
        drop(inner);
        self.answer(requests, |request| self.give(request, block, kept));
    }

    /// A reader has ended by an error or a defect, in the source perhaps: nobody waits for ever. `others` may do its
    /// work, if there are any.
    pub(crate) fn lost(self: &Arc<Self>, error: &Error, others: bool) {
        let mut inner = self.lock();
        inner.readers -= 1;
        if others && inner.readers > 0 {
            return;
        }
        inner.window.abandon();
        let requests: Vec<_> = inner.waiting.values().map(|w| w.request.clone()).collect();
        let tickets: Vec<Ticket> = inner.waiting.keys().copied().collect();
        for ticket in tickets {
            self.drop_ticket(&mut inner, ticket);
        }
        drop(inner);
        for request in requests {
            let error = Error::new(error.kind(), error.message().to_owned());
            request.fail(self, error.at_path(self.source.path()).at_offset(request.range().0));
        }
    }

    /// A block is in the page cache without having been read.
    pub(crate) fn found(self: &Arc<Self>, block: u64) {
        let mut inner = self.lock();
        let tickets = inner.window.done_with(block);
        let requests = Self::requests(&inner, &tickets);
        drop(inner);
        self.answer(requests, |request| self.give(request, block, &Kept::Cached(block)));
    }

    /// A block could not be read as a whole: each request gets its own bytes, or its own error.
    pub(crate) fn failed(self: &Arc<Self>, block: u64) {
        let mut inner = self.lock();
        let tickets = inner.window.done_with(block);
        let requests = Self::requests(&inner, &tickets);
        drop(inner);
        self.answer(requests, |request| {
            let (offset, len) = request.range();
            let part = self.overlap(block, offset, len);
            let mut bytes = vec![0; (part.end - part.start) as usize];
            match self.source.read_at(part.start, &mut bytes) {
                Ok(()) => request.deliver(self, part.start, Piece::Bytes(&bytes)),
                Err(error) => {
                    request.fail(self, error);
                    true
                }
            }
        });
    }

    /// Does something with requests that says which of them are answered, and forgets these.
    fn answer(
        &self,
        requests: Vec<(Ticket, Arc<dyn Deliver>)>,
        mut give: impl FnMut(&dyn Deliver) -> bool,
    ) {
        for (ticket, request) in requests {
            if give(&*request) {
                self.answered(ticket, &*request);
            }
        }
    }

    fn answered(&self, ticket: Ticket, request: &dyn Deliver) {
        let taken = request.taken();
        let mut inner = self.lock();
        if taken {
            inner.untaken.remove(&ticket);
        }
        self.drop_ticket(&mut inner, ticket);
    }

    /// Copies answers that nobody has taken out of their blocks, so that these can be used for others: tasks may
    /// ask for all they will ever want before they take the first answer.
    pub(crate) fn relieve(&self) {
        let inner = self.lock();
        let untaken: Vec<_> = inner.untaken.values().filter_map(Weak::upgrade).collect();
        drop(inner);
        for request in untaken {
            request.let_go();
        }
    }

    fn drop_ticket(&self, inner: &mut Inner, ticket: Ticket) {
        if let Some(waiting) = inner.waiting.remove(&ticket) {
            inner.until.remove(&(waiting.until, ticket));
            inner.urged.remove(&ticket);
            let (offset, len) = waiting.request.range();
            for block in self.blocks(offset, len) {
                inner.window.cancel(ticket, block);
            }
        }
    }

    /// A request is not wanted any more, or its answer was taken.
    pub(crate) fn cancel(&self, ticket: Ticket) {
        let mut inner = self.lock();
        inner.untaken.remove(&ticket);
        self.drop_ticket(&mut inner, ticket);
    }

    /// Fails the requests that are over, and has somebody look after the others.
    pub(crate) fn expire(self: &Arc<Self>, now: Instant) {
        let mut inner = self.lock();
        inner.watched = None;
        let mut over = Vec::new();
        while let Some((until, ticket)) = inner.until.first().copied().filter(|(u, _)| *u <= now) {
            over.extend(inner.waiting.get(&ticket).map(|w| (ticket, w.request.clone())));
            self.drop_ticket(&mut inner, ticket);
            // If it was not known any more.
            inner.until.remove(&(until, ticket));
        }
        if let Some((until, _)) = inner.until.first().copied() {
            self.look_after(&mut inner, until);
        }
        let lent = inner.window.counted();
        drop(inner);
        let held = self.starved.load(Ordering::Relaxed);
        for (ticket, request) in over {
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
            self.answered(ticket, &*request);
        }
    }

    /// Somebody waits for a request at this moment.
    pub(crate) fn urge(&self, ticket: Ticket) {
        if self.maps() {
            return;
        }
        let mut inner = self.lock();
        if inner.waiting.contains_key(&ticket) {
            inner.urged.insert(ticket);
        }
        drop(inner);
        self.let_go();
    }

    /// Takes note of so many bytes of an answer that nobody has taken.
    pub(crate) fn keep(&self, bytes: usize) {
        self.own.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    /// They were taken, or nobody wants them.
    pub(crate) fn kept_no_more(&self, bytes: usize) {
        self.own.fetch_sub(bytes as u64, Ordering::SeqCst);
        self.let_go();
    }

    /// What a reader should do next. With more answers than the budget that nobody takes, only what somebody waits for at
    /// this moment is read.
    pub(crate) fn take(&self, inner: &mut Inner) -> Next<Kept> {
        if inner.window.queued() == 0 || self.own.load(Ordering::SeqCst) <= self.memory {
            return inner.window.take();
        }
        let block = inner.urged.iter().find_map(|ticket| {
            let (offset, len) = inner.waiting.get(ticket)?.request.range();
            self.blocks(offset, len).find(|block| inner.window.is_queued(*block))
        });
        block.map_or(Next::Full, |block| inner.window.take_this(block))
    }

    /// A reader no longer waits for room.
    pub(crate) fn fed(&self, inner: &mut Inner) {
        inner.starving -= 1;
        if inner.starving == 0 {
            self.starved.store(false, Ordering::SeqCst);
        }
    }

    /// A view was dropped, or a block is no longer held for the moment of handing it on.
    pub(crate) fn let_go(&self) {
        // A reader that found all blocks lent has said so before it looked for the last time.
        fence(Ordering::SeqCst);
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

impl Drop for Shared {
    fn drop(&mut self) {
        // Nobody waits any more.
        let watched = sync::lock(&self.inner).watched;
        if let Some(at) = watched {
            deadline::unwatch(self.id, at);
        }
    }
}
