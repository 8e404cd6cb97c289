//! What all sessions of one file share: the window of blocks, the requests that wait, the readers.
//!
//! Where the file can be mapped, blocks are brought into the page cache, which all processes of the machine
//! share, and views are parts of the mapping: no memory is taken and nothing is copied. Elsewhere (network file
//! systems, direct reads, sources that are no files), blocks are kept in memory within the budget.
//!
//! One lock guards the window and the requests. No function of users is called under it, and no other lock is taken
//! under it but that of deadlines. Requests have locks of their own, under which this one is not taken.

mod answer;
mod memory;

use memory::Untaken;
pub(crate) use memory::{Admitted, Claim, Lanes, Urge};

use crate::clock;
use crate::deadline;
use crate::options::{Choice, Decision, Known, Options};
use crate::profile::{self, Measured};
use crate::reader::Reader;
use crate::registry;
use crate::request::Deliver;
use crate::sync::{self, AtomicBool, Condvar, Mutex, MutexGuard};
use crate::tune::Tuner;
use crate::view::View;
use crate::window::{Held, Ticket, Window};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_store::{Buffer, Engine, IoOptions, Lender, ReadQueue, Segment, Source, Tally, Tier};

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
    /// The process that has the readers.
    process: u32,
    source: Arc<dyn Source>,
    lender: Option<Lender>,
    /// Where blocks lie if other processes look at them, too.
    segment: Option<Arc<Segment>>,
    /// Others who hold blocks.
    holders: OnceLock<Weak<dyn Holders>>,
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
    /// Requests that were answered from the page cache, and all others.
    cached_ones: Tally,
    others: AtomicU64,
    /// Of the others, answered without waiting.
    at_once: AtomicU64,
    /// Bytes of answers that are no views and that nobody has taken, from when their memory was claimed.
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
    /// Where blocks come from, if from several places that may be slow or gone each for itself.
    lanes: OnceLock<Lanes>,
}

/// Others who hold blocks, and may give some back.
pub(crate) trait Holders: Send + Sync {
    /// All blocks are held, and somebody waits for another one. Does not wait.
    fn press(&self);
}

pub(crate) struct Inner {
    pub(crate) window: Window<Kept>,
    pub(crate) waiting: BTreeMap<Ticket, Waiting>,
    /// The deadlines of those that wait.
    until: BTreeSet<(Instant, Ticket)>,
    tickets: Ticket,
    sessions: u64,
    pub(crate) readers: usize,
    /// Of the readers, those that sleep.
    pub(crate) asleep: usize,
    /// Of those that sleep, the ones that were called and have not come yet.
    pub(crate) called: usize,
    /// Readers that wait for room, which `starved` says too.
    pub(crate) starving: usize,
    /// When the deadlines of requests are looked after next.
    watched: Option<Instant>,
    /// Bytes of memory that it may have now.
    share: u64,
    /// Where blocks are in memory: requests whose answers nobody has taken yet.
    pub(crate) untaken: Untaken,
    blocks: u64,
    bytes: u64,
}

pub(crate) struct Waiting {
    request: Arc<dyn Deliver>,
    until: Instant,
    /// When somebody last said that he waits for it.
    urged: Option<u64>,
    /// When somebody last looked whether it is answered.
    looked: Option<u64>,
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
    segment: Option<Arc<Segment>>,
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
        let lender = Lender::new(&source, &options.io);
        let whole = lender.as_ref().and_then(Lender::least_whole);
        let others = if lender.is_some() { 0 } else { registry::holders() };
        let known = Known { len: source.len(), cores, others, whole, tier, measured };
        let (choice, decisions) = options.choose(&known);
        let io = IoOptions { depth: choice.most_depth, ..options.io };
        if options.io.engine != Engine::Auto {
            drop(ReadQueue::new(&io)?);
        }
        if io.direct {
            see_direct(&source, &io)?;
        }
        let (segment, options) = (None, options.clone());
        Ok(New { source, lender, segment, choice, decisions, tier: name, io, options })
    }

    /// With blocks that other processes may look at.
    pub(crate) fn in_segment(self, segment: Option<Arc<Segment>>) -> New {
        New { segment, ..self }
    }

    /// True if views will be parts of a mapping.
    pub(crate) fn maps(&self) -> bool {
        self.lender.is_some()
    }

    /// Bytes of a block.
    pub(crate) fn block(&self) -> u64 {
        self.choice.block
    }
}

/// A file system that has no direct reads says so at the first one.
fn see_direct(source: &Arc<dyn Source>, io: &IoOptions) -> Result<()> {
    if source.file().is_none() || source.is_empty() {
        return Ok(());
    }
    let mut queue = ReadQueue::new(io)?;
    queue.submit(0, source, 0, usize::try_from(source.len()).map_or(4096, |len| len.min(4096)))?;
    match queue.next() {
        Err(error) if error.kind() == Kind::Usage => Err(error),
        // Other errors are those of whoever asks for these bytes.
        _ => Ok(()),
    }
}

impl Shared {
    /// Open once.
    pub(crate) fn new(new: New) -> Arc<Shared> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let New { source, lender, segment, choice, decisions, tier, io, options } = new;
        let flying = choice.depth.saturating_mul(choice.readers);
        let most = choice.most_depth.saturating_mul(choice.readers);
        let tuner = Tuner::new(flying, most, options.depth.is_some());
        let inner = Inner {
            window: Window::new(choice.block, choice.blocks),
            waiting: BTreeMap::new(),
            until: BTreeSet::new(),
            tickets: 0,
            sessions: 0,
            readers: 0,
            asleep: 0,
            called: 0,
            starving: 0,
            watched: None,
            share: options.memory,
            untaken: Untaken::default(),
            blocks: 0,
            bytes: 0,
        };
        let blocks = source.len().div_ceil(choice.block);
        let words = if lender.is_some() { blocks.div_ceil(64) } else { 0 };
        Arc::new(Shared {
            id: IDS.fetch_add(1, Ordering::Relaxed),
            process: std::process::id(),
            source,
            lender,
            segment,
            holders: OnceLock::new(),
            choice,
            decisions,
            tier,
            io,
            memory: options.memory,
            deadline: options.deadline,
            ahead: options.ahead,
            cached: (0..words).map(|_| AtomicU64::new(0)).collect(),
            handles: AtomicUsize::new(1),
            cached_ones: Tally::default(),
            others: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            own: AtomicU64::new(0),
            began: clock::now(),
            tuner: Mutex::new(tuner),
            depth: AtomicUsize::new(choice.depth),
            inner: Mutex::new(inner),
            work: Condvar::new(),
            starved: AtomicBool::new(false),
            lanes: OnceLock::new(),
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

    pub(crate) fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.as_ref()
    }

    /// Blocks that it may have now.
    pub(crate) fn room(&self) -> usize {
        self.lock().window.most()
    }

    /// Who else holds blocks, once.
    pub(crate) fn held_by(&self, holders: Weak<dyn Holders>) {
        let _ = self.holders.set(holders);
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
        let cached_ones = self.cached_ones.total();
        let requests = cached_ones + self.others.load(Ordering::Relaxed);
        let at_once = cached_ones + self.at_once.load(Ordering::Relaxed);
        let held = held + self.own.load(Ordering::Relaxed);
        Counts { requests, at_once, blocks, bytes, held }
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

    /// True if somebody waits for an answer.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.lock().waiting.is_empty()
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
    pub(crate) fn overlap(&self, block: u64, offset: u64, len: usize) -> Range<u64> {
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

    /// A reader is about to wait for a block: others may wait for more.
    pub(crate) fn waits(self: &Arc<Self>) {
        if self.choice.whole {
            // It goes on alone if there can be no other.
            let _ = self.call_readers(self.lock());
        }
    }

    /// Wakes a reader, or makes one.
    fn call_readers(self: &Arc<Self>, mut inner: MutexGuard<'_, Inner>) -> Result<()> {
        if inner.asleep > inner.called {
            inner.called += 1;
            drop(inner);
            self.work.notify_one();
            return Ok(());
        }
        let more = self.choice.whole || inner.window.queued() >= self.depth();
        if !(inner.window.has_work() || inner.untaken.is_late())
            || (inner.readers > 0 && (inner.readers >= self.choice.readers || !more))
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
