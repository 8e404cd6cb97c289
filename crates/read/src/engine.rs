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
mod readers;

use memory::Untaken;
pub(crate) use memory::{Admitted, Claim, Lanes, Urge, lendable};
use readers::Away;
pub(crate) use readers::Begun;

use crate::clock;
use crate::deadline;
use crate::neighbours::Neighbours;
#[cfg(test)]
use crate::opened::Opened;
use crate::options::{Choice, Chosen, Decision, Options, There};
use crate::profile::{self, Measured, Way};
use crate::request::Deliver;
use crate::sync::{self, AtomicBool, Condvar, Mutex, MutexGuard};
use crate::tune::{Setting, Tuner};
use crate::view::View;
use crate::window::{Held, Ticket, Window};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use stead_core::Result;
use stead_store::file::Identity;
use stead_store::{Buffer, Commons, IoOptions, Lender, Segment, Source, Tally};

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
    /// Other processes that have the same blocks, or why there are none.
    neighbours: Option<Result<Neighbours, String>>,
    /// Others who hold blocks, and how many.
    holders: OnceLock<(Weak<dyn Holders>, Arc<AtomicUsize>)>,
    choice: Choice,
    chosen: Chosen,
    /// The name of its storage, if that is known.
    tier: Option<String>,
    io: IoOptions,
    memory: u64,
    deadline: Duration,
    ahead: bool,
    /// Blocks that were in the page cache when somebody looked, one bit each: they are asked for without the lock.
    cached: Box<[AtomicU64]>,
    /// Of a mapped file, blocks that could not be had as a whole, and when somebody last tried: their first and last bytes may
    /// be in the page cache all the same.
    broken: Mutex<BTreeMap<u64, Instant>>,
    any_broken: AtomicBool,
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
    /// Readers that should be at work, and blocks that each should have in flight, as the tuner says.
    readers: AtomicUsize,
    depth: AtomicUsize,
    /// Bytes that had been read when it was last remembered what was measured.
    remembered: AtomicU64,
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
    /// Sessions that there were.
    sessions: u64,
    /// Those that are open, and how many blocks their ranges lie in, all added up.
    open: HashMap<u64, Range<u64>>,
    wanted: u64,
    pub(crate) readers: usize,
    /// Of the readers, those that sleep.
    pub(crate) asleep: usize,
    /// Of those that sleep, the ones that were called and have not come yet.
    pub(crate) called: usize,
    /// Readers that wait for room, which `starved` says too.
    pub(crate) starving: usize,
    /// Those that are not here now, and what any of them may go for.
    pub(crate) away: Away,
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
    pub(crate) source: Arc<dyn Source>,
    pub(crate) lender: Option<Lender>,
    pub(crate) segment: Option<Arc<Segment>>,
    pub(crate) neighbours: Option<Result<Neighbours, String>>,
    pub(crate) chosen: Chosen,
    pub(crate) tier: Option<String>,
    pub(crate) io: IoOptions,
    pub(crate) options: Options,
}

impl Counts {
    /// Both together.
    pub(crate) fn and(&self, other: &Counts) -> Counts {
        Counts {
            requests: self.requests + other.requests,
            at_once: self.at_once + other.at_once,
            blocks: self.blocks + other.blocks,
            bytes: self.bytes + other.bytes,
            held: self.held + other.held,
        }
    }
}

/// Bytes that could not be had are not tried again for so long.
const TRIED: Duration = Duration::from_secs(10);

/// Less is too little to be remembered.
const WORTH_NOTING: u64 = 64 << 20;

impl New {
    /// For a session over all of a source.
    ///
    /// # Errors
    /// `Usage` if the engine that was asked for is not to be had.
    #[cfg(test)]
    pub(crate) fn prepare(source: Arc<dyn Source>, options: &Options) -> Result<New> {
        let opened = Opened::look(source, options)?;
        let chosen = opened.choose(options, opened.source().len(), 0);
        Ok(opened.buffers(options, chosen))
    }

    /// With blocks that other processes may look at.
    pub(crate) fn in_segment(self, segment: Option<Arc<Segment>>) -> New {
        New { segment, ..self }
    }

    /// With blocks that other processes have, too, if they are in memory, and there is no reason against it.
    pub(crate) fn with_neighbours(self, file: Result<&Identity, &str>) -> New {
        if self.lender.is_some() {
            return self;
        }
        let block = self.chosen.choice.block;
        let neighbours = Some(Neighbours::join(file, block, &self.options));
        New { neighbours, ..self }
    }
}

impl Shared {
    /// Open once.
    pub(crate) fn new(new: New) -> Arc<Shared> {
        static IDS: AtomicU64 = AtomicU64::new(1);
        let New { source, lender, segment, neighbours, chosen, tier, io, options } = new;
        let choice = chosen.choice;
        let inner = Inner {
            window: Window::new(choice.block, choice.blocks),
            waiting: BTreeMap::new(),
            until: BTreeSet::new(),
            tickets: 0,
            sessions: 0,
            open: HashMap::new(),
            wanted: 0,
            readers: 0,
            asleep: 0,
            called: 0,
            starving: 0,
            away: Away::default(),
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
            neighbours,
            holders: OnceLock::new(),
            choice,
            chosen,
            tier,
            io,
            memory: options.memory,
            deadline: options.deadline,
            ahead: options.ahead,
            cached: (0..words).map(|_| AtomicU64::new(0)).collect(),
            broken: Mutex::new(BTreeMap::new()),
            any_broken: AtomicBool::new(false),
            handles: AtomicUsize::new(1),
            cached_ones: Tally::default(),
            others: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            own: AtomicU64::new(0),
            began: clock::now(),
            tuner: Mutex::new(Tuner::new(choice)),
            readers: AtomicUsize::new(choice.readers),
            depth: AtomicUsize::new(choice.depth),
            remembered: AtomicU64::new(0),
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
        let busy = self.lock().busy();
        let now = clock::now().saturating_duration_since(self.began);
        let mut tuner = sync::lock(&self.tuner);
        tuner.landed(bytes as u64, now, busy);
        let Setting { readers, depth } = tuner.now();
        drop(tuner);
        self.readers.store(readers, Ordering::Relaxed);
        self.depth.store(depth, Ordering::Relaxed);
    }

    /// Readers that should be at work.
    pub(crate) fn readers(&self) -> usize {
        self.readers.load(Ordering::Relaxed)
    }

    /// What is told to a session over a range, and why.
    pub(crate) fn decisions(&self, range: &Range<u64>) -> Vec<Decision> {
        let blocks = self.blocks_of(range);
        let blocks = blocks.end - blocks.start;
        let mut all = self.chosen.told(range.end - range.start, blocks);
        sync::lock(&self.tuner).tell(&mut all, blocks);
        all
    }

    /// How its bytes come.
    pub(crate) fn way(&self) -> Way {
        let whole = self.lender.as_ref().and_then(Lender::least_whole);
        Way::of(self.maps(), whole.is_some(), &self.io)
    }

    /// Remembers what was measured of the tier, if it was enough since it was last remembered. What somebody has pinned is no
    /// finding.
    pub(crate) fn remember(&self) {
        let found = sync::lock(&self.tuner).found();
        let (Some(tier), Some(found), false) = (&self.tier, found, self.choice.pinned) else {
            return;
        };
        let bytes = self.lock().bytes;
        let before = self.remembered.load(Ordering::Relaxed);
        if bytes.saturating_sub(before) < WORTH_NOTING {
            return;
        }
        self.remembered.store(bytes, Ordering::Relaxed);
        profile::note(Measured {
            tier: tier.clone(),
            way: self.way(),
            block: self.choice.block,
            readers: found.setting.readers,
            depth: found.setting.depth,
            rate: found.rate as u64,
            settled: found.settled,
        });
    }

    pub(crate) fn io(&self) -> &IoOptions {
        &self.io
    }

    pub(crate) fn segment(&self) -> Option<&Arc<Segment>> {
        self.segment.as_ref()
    }

    /// What other processes have, too.
    pub(crate) fn commons(&self) -> Option<&Arc<Commons>> {
        self.neighbours.as_ref()?.as_ref().ok().map(Neighbours::commons)
    }

    /// Whether other processes have the same blocks.
    pub(crate) fn sharing(&self) -> Option<Decision> {
        let (value, reason) = match self.neighbours.as_ref()? {
            Ok(neighbours) => {
                let others = neighbours.commons().processes().saturating_sub(1);
                let value = match others {
                    0 => "with no other process".to_owned(),
                    1 => "with 1 other process".to_owned(),
                    n => format!("with {n} other processes"),
                };
                (
                    value,
                    "processes of this user that read the file have blocks and memory together"
                        .to_owned(),
                )
            }
            Err(why) => ("with no other process".to_owned(), why.clone()),
        };
        Some(Decision { name: "shared", value, reason })
    }

    /// Blocks that it may have now.
    pub(crate) fn room(&self) -> usize {
        self.lock().window.most()
    }

    /// Who else holds blocks, and how many at a time, once.
    pub(crate) fn held_by(&self, holders: Weak<dyn Holders>, blocks: Arc<AtomicUsize>) {
        let _ = self.holders.set((holders, blocks));
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
        // Of the same moment: blocks go for answers that come, under this lock.
        let own = self.own.load(Ordering::Relaxed);
        drop(inner);
        let held = if self.maps() { 0 } else { held.saturating_mul(self.choice.block) };
        let cached_ones = self.cached_ones.total();
        let requests = cached_ones + self.others.load(Ordering::Relaxed);
        let at_once = cached_ones + self.at_once.load(Ordering::Relaxed);
        Counts { requests, at_once, blocks, bytes, held: held + own }
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
        let blocks = self.blocks_of(&bytes);
        let mut inner = self.lock();
        inner.sessions += 1;
        let id = inner.sessions;
        inner.wanted += blocks.end - blocks.start;
        inner.open.insert(id, bytes.clone());
        if self.ahead {
            inner.window.open(id, bytes);
            self.call_readers(inner).inspect_err(|_| self.end(id))?;
        }
        Ok(id)
    }

    /// Ends a session. With the last one what was measured is remembered: the program may end with the file open.
    pub(crate) fn end(&self, id: u64) {
        let mut inner = self.lock();
        if let Some(bytes) = inner.open.remove(&id) {
            let blocks = self.blocks_of(&bytes);
            inner.wanted -= blocks.end - blocks.start;
        }
        inner.window.close(id);
        let last = inner.open.is_empty();
        drop(inner);
        if last {
            self.remember();
        }
    }

    /// True if some session uses it.
    pub(crate) fn is_busy(&self) -> bool {
        !self.lock().open.is_empty()
    }

    /// How it looks to a session that begins.
    pub(crate) fn there(&self, bytes: &Range<u64>) -> There {
        let mut blocks = self.blocks_of(bytes);
        let inner = self.lock();
        let within = |open: &Range<u64>| open.start <= bytes.start && bytes.end <= open.end;
        let covers = inner.open.values().any(within)
            || blocks.all(|block| inner.window.ready(block).is_some());
        There { block: self.choice.block, busy: !inner.open.is_empty(), covers }
    }

    /// Of some that there are for a file, the one that serves a session best for which this would be chosen.
    pub(crate) fn best(
        all: &[Arc<Self>],
        chosen: &Chosen,
        bytes: &Range<u64>,
    ) -> Option<Arc<Self>> {
        if let Some(first) = all.first().filter(|first| first.maps()) {
            // There is one way to read the page cache.
            return Some(first.clone());
        }
        let best = all.iter().filter_map(|set| {
            Some((set.there(bytes).serve(chosen.choice.block, chosen.range)?, set))
        });
        let best = best.max_by_key(|(how, _)| *how);
        best.map(|(_, set)| set.clone())
    }

    /// The blocks that `len` bytes from `offset` lie in.
    fn blocks(&self, offset: u64, len: usize) -> Range<u64> {
        self.blocks_of(&(offset..offset + len as u64))
    }

    fn blocks_of(&self, bytes: &Range<u64>) -> Range<u64> {
        let size = self.choice.block;
        bytes.start / size..bytes.end.div_ceil(size).max(bytes.start / size)
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

    /// Notes whether a block of a mapped file could be had.
    fn set_broken(&self, block: u64, is: bool) {
        if !self.maps() || (!is && !self.any_broken.load(Ordering::Relaxed)) {
            return;
        }
        let mut broken = sync::lock(&self.broken);
        if is {
            broken.insert(block, clock::now());
            self.any_broken.store(true, Ordering::Relaxed);
            if let Some((word, bit)) = self.bit(block) {
                // It may have been there before.
                word.fetch_and(!bit, Ordering::Relaxed);
            }
        } else {
            broken.remove(&block);
        }
    }

    /// When somebody last tried to have a block of a mapped file, if it could not be had.
    fn broken_since(&self, block: u64) -> Option<Instant> {
        let any = self.any_broken.load(Ordering::Relaxed);
        if any { sync::lock(&self.broken).get(&block).copied() } else { None }
    }

    /// Brings a block of a mapped file into the page cache. Nobody knows whether one that could not be had can be had by now:
    /// that is tried once in a while, as a disk takes seconds to say so.
    pub(crate) fn bring(self: &Arc<Self>, lender: &Lender, begun: &Begun) {
        let Begun { block, from, len, .. } = *begun;
        let brought = match self.broken_since(block) {
            None => lender.bring(from, len),
            Some(since) if clock::now().saturating_duration_since(since) < TRIED => {
                return self.answer_alone(block);
            }
            Some(_) => lender.bring_again(from, len),
        };
        if brought.is_ok() {
            self.landed(len);
            self.arrived(block, &Kept::Cached(block), len);
        } else {
            self.failed(block);
        }
    }

    /// Looks whether a block is in the page cache.
    pub(crate) fn is_cached(&self, block: u64) -> bool {
        if self.broken_since(block).is_some() {
            return false;
        }
        let (from, len) = self.whole(block);
        let there = self.lender.as_ref().is_some_and(|l| l.cached(from, len));
        if there && let Some((word, bit)) = self.bit(block) {
            word.fetch_or(bit, Ordering::Relaxed);
        }
        there
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
