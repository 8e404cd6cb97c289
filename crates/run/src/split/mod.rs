//! A pass in which both those that have the data and those that ask compute.
//!
//! The first rank without data, which is not the slow one, keeps the balance (`keeper`). Every rank asks it for a chunk, computes a
//! state for it, and asks whether that counts, before it adds it to its own: a chunk that one side is slow with is given to the
//! other one, too, and counts once. So the states that come together at the end are of each byte once, and the answer is that of
//! any other place. A rank has two chunks at a time: while one waits for bytes or for the keeper, the other is computed on.
//!
//! Each pass is balanced anew. What a rank needs of a chunk for the passes to come it keeps, as far as memory goes (`kept`), and
//! says so: in the next pass it gets that first, many chunks at a time, and then those that others have and are slow with, which
//! it fetches and keeps, too. Sums are exact, so it does not matter who has had a chunk when.
//!
//! What a storage rank holds is one range of bytes here, whatever it is in files (`Holdings`). The rank takes chunks from its
//! beginning, those that ask take them from its end.

mod keeper;
mod kept;

use crate::cache::{Cache, Kepts};
use crate::clock::Watch;
use crate::news::News;
use crate::pass::{Active, Keep, Observer, Pass, Snapshot, caught, too_large};
pub use keeper::LEAST_SECONDS as LEAST_CHUNK_S;
use keeper::{Balances, Keeper};
use kept::Kept;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Needs, Result, limits};
use stead_fabric::Fabric;
use stead_format::{Dataset, Held, ScanOptions, Share, States};
use stead_kernel::AnyState;
use stead_kernel::expr::Filter;

/// Tags of what ranks say to the keeper, and of what it says to each of their workers. Each frame has the run and the pass.
const ASKS: u32 = 0x5600_0000;
const ANSWERS: u32 = ASKS + 1;
/// Chunks that a rank has at a time: each with a worker of its own.
const WORKERS: u8 = 2;
/// How often who waits looks around.
const LOOK: Duration = Duration::from_millis(100);
/// Stretches that ranks may hold together: all ranks know all of them.
pub const MOST_STRETCHES: u64 = 1 << 16;

/// What each rank holds, as one range of bytes.
#[derive(Debug, Clone, Default)]
pub struct Holdings {
    of: Vec<Vec<Held>>,
    /// Bytes that are computed on together or not at all; 0 if any can be taken apart.
    unit: u64,
}

/// One stretch on its way: source, first byte, and the byte after the last one.
pub type Told = Vec<(u32, u64, u64)>;

impl Holdings {
    /// For other ranks.
    pub fn tell(held: &[Held]) -> Told {
        held.iter().map(|h| (h.source, h.bytes.start, h.bytes.end)).collect()
    }

    /// Of what all ranks have told.
    ///
    /// # Errors
    /// `Format` for what cannot be held.
    pub fn new(told: Vec<Told>, lengths: &[u64]) -> Result<Holdings> {
        let bad = || Error::format("what another rank holds is malformed");
        let held = |(source, start, end): (u32, u64, u64)| {
            let within = lengths.get(source as usize).is_some_and(|len| start < end && end <= *len);
            within.then_some(Held { source, bytes: start..end }).ok_or_else(bad)
        };
        let of = |told: Told| {
            let held = told.into_iter().map(held).collect::<Result<Vec<Held>>>()?;
            let ordered = held
                .windows(2)
                .all(|w| (w[0].source, w[0].bytes.end) <= (w[1].source, w[1].bytes.start));
            if ordered { Ok(held) } else { Err(bad()) }
        };
        Ok(Holdings { of: told.into_iter().map(of).collect::<Result<_>>()?, unit: 0 })
    }

    /// Chunks are of so many bytes, or several times that.
    pub fn in_units(self, unit: u64) -> Holdings {
        Holdings { unit, ..self }
    }

    /// Bytes that all hold together.
    pub fn total(&self) -> u64 {
        (0..self.of.len()).fold(0, |n, rank| n.saturating_add(self.len(rank)))
    }

    /// Bytes that a rank holds.
    pub fn len(&self, rank: usize) -> u64 {
        let held = self.of.get(rank).map_or(&[][..], Vec::as_slice);
        held.iter().fold(0, |n, h| n.saturating_add(h.bytes.end - h.bytes.start))
    }

    /// Chunks of what a rank holds begin and end at multiples of this.
    pub fn granule(&self, rank: usize) -> u64 {
        let len = self.len(rank);
        let granule = len.div_ceil(MOST_GRANULES).max((len / LEAST_GRANULES).clamp(1, GRANULE));
        // A chunk of less than a unit has one or none, and takes all or no time.
        if self.unit > 0 { granule.max(self.unit).next_multiple_of(self.unit) } else { granule }
    }

    /// The stretches of a part of what a rank holds.
    fn pieces(&self, rank: usize, part: &Range<u64>) -> Vec<Held> {
        let mut before = 0u64;
        let mut pieces = Vec::new();
        for h in self.of.get(rank).map_or(&[][..], Vec::as_slice) {
            let len = h.bytes.end - h.bytes.start;
            let within = |at: u64| h.bytes.start + at.clamp(before, before + len) - before;
            let bytes = within(part.start)..within(part.end);
            if bytes.start < bytes.end {
                pieces.push(Held { source: h.source, bytes });
            }
            before += len;
        }
        pieces
    }

    /// All that a rank holds, cut at its granules: where chunks may begin.
    pub fn cut(&self, rank: usize) -> Share {
        let (len, granule) = (self.len(rank), self.granule(rank));
        let part = |i: u64| self.pieces(rank, &(i * granule..((i + 1) * granule).min(len)));
        Share::Held((0..len.div_ceil(granule)).flat_map(part).collect::<Vec<_>>().into())
    }
}

/// Granules of what a rank holds.
const MOST_GRANULES: u64 = 4096;
const LEAST_GRANULES: u64 = 64;
const GRANULE: u64 = 1 << 20;

/// What ranks say to the keeper.
#[derive(Debug, Serialize, Deserialize)]
enum Say {
    /// What is there to do for this worker?
    Ask(u8),
    /// There is a state for a chunk: does it count? And what is there to do next? It is `kept` for later passes.
    Done { id: u64, kept: bool },
    /// This rank has failed: there is no need to go on.
    Over,
}

/// What the keeper says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Tell {
    /// Compute on a part of what `rank` holds, which may be kept.
    Chunk { id: u64, rank: u32, start: u64, end: u64, keep: bool },
    /// Whether it counts.
    Counts { id: u64, counts: bool },
    /// Somebody else has done this: no need to go on with it.
    Drop { id: u64 },
    /// There is nothing left to do.
    Finished,
    /// Somebody has failed: there is no need to go on.
    Stop,
}

/// Which run, of those of the first rank's process, and which pass.
type Turn = (u64, u64);

fn encode(turn: Turn, said: &impl Serialize) -> Vec<u8> {
    // Nothing in it can fail to be encoded.
    postcard::to_stdvec(&(turn, said)).unwrap_or_default()
}

/// What was said in this pass of this run; nothing for what is left of others.
fn decode<'b, T: Deserialize<'b>>(turn: Turn, word: &'b [u8]) -> Option<T> {
    let (of, said): (Turn, T) = postcard::from_bytes(word).ok()?;
    (of == turn).then_some(said)
}

/// How a run is split.
#[derive(Debug, Default)]
pub struct Split {
    /// What each rank holds.
    pub holdings: Holdings,
    /// Of each rank whether it has data.
    pub storage: Vec<bool>,
    /// What was predicted: how much of the data those who ask compute on, and the seconds of a pass.
    pub asked_share: f64,
    pub seconds: f64,
    /// What the keeper knows from pass to pass, and what this rank has in memory.
    pub balances: Balances,
    pub kept: Kept,
}

impl Split {
    /// That all that is held was computed on.
    pub fn check(&self, done: u64) -> Result<()> {
        if done == self.holdings.total() {
            return Ok(());
        }
        Err(Error::internal("not all chunks of the data were computed on"))
    }

    /// The rank that gives chunks to all.
    fn keeper(&self) -> usize {
        self.storage.iter().position(|has| !has).unwrap_or(0)
    }
}

/// A pass that is split, for this rank.
pub struct Splitting<'s> {
    pub split: &'s Split,
    pub fabric: &'s dyn Fabric,
    pub dataset: &'s Dataset,
    /// The run, among those of rank 0's process.
    pub run: u64,
    pub options: ScanOptions,
    /// What kernels need in later passes, and bytes that it may take.
    pub later: Needs,
    pub most_kept: u64,
    /// States of quotes at all granules, if they matter.
    pub states: Option<&'s States>,
    pub filter: Option<&'s Filter>,
    pub active: &'s [Active],
    pub threads: usize,
    pub most_states: u64,
    pub pass: u64,
    pub observer: Option<&'s dyn Observer>,
    pub cancel: &'s Cancel,
}

/// What a rank has made of its chunks.
pub struct Sum {
    pub states: Vec<AnyState>,
    /// Bytes, rows, kept, skipped, rounded, and bytes of chunks that count.
    pub counters: [u64; 6],
    /// 1 if rows are not counted.
    pub uncounted: u64,
    pub plan: Vec<(String, stead_core::Value)>,
}

impl Splitting<'_> {
    /// Computes chunks until there are none.
    ///
    /// # Errors
    /// The earliest of this rank; `Cancelled` if it was stopped. Others hear of it.
    pub fn run(&self) -> Result<Sum> {
        let news = News::new(self.fabric, self.run, self.pass, false).in_no_order();
        let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (stop, counted) = (&stop, &counted);
            let start = |name: &str| std::thread::Builder::new().name(name.into());
            let kept = (self.fabric.rank() == self.split.keeper()).then(|| {
                let keep =
                    move || Keeper::new(self.fabric, self.split, self.turn()).keep(stop, counted);
                start("stead-keeper")
                    .spawn_scoped(scope, keep)
                    .map_err(|e| Error::io("start a thread for", "chunks", e))
            });
            let kept = kept.transpose()?;
            let mine = self.workers(&news, counted);
            if let Some(kept) = kept {
                // Errors in the data come here when all chunks are done, others at once. Others may have stopped it, too.
                stop.fetch_or(mine.is_err(), Ordering::Relaxed);
                let failed = || Err(Error::internal("who gives chunks to ranks has died"));
                kept.join().unwrap_or_else(|_| failed())?;
            } else if mine.is_err() {
                // If it does not come, the keeper is gone.
                let _ = self.say(&Say::Over);
            }
            mine
        })
    }

    /// All workers of this rank.
    fn workers(&self, news: &News<'_>, counted: &AtomicU64) -> Result<Sum> {
        let failed = &AtomicBool::new(false);
        let work = |number: u8| {
            let worker = Worker { splitting: self, number, news, counted, failed };
            caught(|| worker.work()).inspect_err(|e| {
                // Who has found an error in the data has come to the end, and others may find an earlier one.
                failed.fetch_or(!is_of_data(e), Ordering::Relaxed);
            })
        };
        let sums = std::thread::scope(|scope| {
            let others: Vec<_> = (1..WORKERS)
                .map(|number| {
                    let thread = std::thread::Builder::new().name("stead-chunks".into());
                    thread.spawn_scoped(scope, move || work(number))
                })
                .collect();
            // The keeper waits for all of them.
            failed.fetch_or(others.iter().any(|o| o.is_err()), Ordering::Relaxed);
            let mut sums = vec![work(0)];
            sums.extend(others.into_iter().map(|other| match other {
                Ok(thread) => {
                    thread.join().unwrap_or_else(|_| Err(Error::internal("a worker died")))
                }
                Err(e) => Err(Error::io("start a thread for", "chunks", e)),
            }));
            sums
        });
        let (mut all, mut trouble): (Option<Sum>, Option<Error>) = (None, None);
        for sum in sums {
            match (sum, &mut all) {
                (Err(e), _) => trouble = Some(earlier(trouble, e)),
                (Ok(sum), None) => all = Some(sum),
                (Ok(sum), Some(all)) => caught(|| self.add(all, sum, self.most_states))?,
            }
        }
        match (trouble, all) {
            (Some(e), _) => Err(e),
            (None, Some(sum)) => Ok(sum),
            (None, None) => Err(Error::internal("nobody has worked")),
        }
    }

    fn say(&self, what: &Say) -> Result<()> {
        self.fabric.send(self.split.keeper(), ASKS, encode(self.turn(), what))
    }

    fn turn(&self) -> Turn {
        (self.run, self.pass)
    }

    /// Adds states up, which may have so many bytes.
    fn add(&self, sum: &mut Sum, theirs: Sum, most: u64) -> Result<()> {
        for ((a, mine), theirs) in self.active.iter().zip(&mut sum.states).zip(theirs.states) {
            a.kernel.merge(mine, theirs)?;
        }
        for (mine, theirs) in sum.counters.iter_mut().zip(theirs.counters) {
            *mine = mine.saturating_add(theirs);
        }
        sum.uncounted |= theirs.uncounted;
        if sum.plan.is_empty() {
            sum.plan = theirs.plan;
        }
        let states = self.active.iter().zip(&sum.states);
        too_large(states.map(|(a, s)| a.kernel.state_bytes(s) as u64).sum(), most)
    }
}

/// One of the workers of a rank.
struct Worker<'w> {
    splitting: &'w Splitting<'w>,
    number: u8,
    news: &'w News<'w>,
    counted: &'w AtomicU64,
    /// Another worker of this rank has failed.
    failed: &'w AtomicBool,
}

impl Worker<'_> {
    /// Asks for chunks, and computes.
    fn work(&self) -> Result<Sum> {
        let (splitting, news) = (self.splitting, self.news);
        let mut sum = Sum {
            states: splitting.active.iter().map(|a| a.kernel.init()).collect(),
            counters: [0; 6],
            uncounted: 0,
            plan: Vec::new(),
        };
        let mut trouble: Option<Error> = None;
        let (watch, mut over) = (Watch::start(), false);
        let mut asked = false;
        while !over {
            if !std::mem::replace(&mut asked, true) {
                splitting.say(&Say::Ask(self.number))?;
            }
            let (id, given) = match self.hear()? {
                Tell::Chunk { id, rank, start, end, keep } => {
                    (id, Given { rank, part: start..end, keep })
                }
                Tell::Finished => break,
                // Of an earlier chunk, or that there is no need to go on.
                told => {
                    over = told == Tell::Stop;
                    continue;
                }
            };
            asked = false;
            let held = splitting.split.holdings.pieces(given.rank as usize, &given.part);
            let passed_over = match (news.stopped(), held.first()) {
                (Some(at), Some(h)) => at <= (Some(h.source), Some(h.bytes.start)),
                (_, None) => true,
                (None, _) => false,
            };
            let heard = Heard::default();
            let done = match passed_over {
                true => Ok(None),
                false => self.chunk(id, &given, held, &watch, &heard).map(Some),
            };
            splitting.cancel.check()?;
            if let Err(e) = &done
                && !heard.dropped()
                && !is_of_data(e)
                && e.kind() != Kind::Cancelled
            {
                news.failed(e);
                return done.map(|_| sum);
            }
            over = heard.over.load(Ordering::Relaxed);
            let mut counts = false;
            let (done, kept) = match done {
                Ok(Some((sum, kept))) => (Ok(Some(sum)), kept),
                Ok(None) => (Ok(None), None),
                Err(e) => (Err(e), None),
            };
            if !over {
                let has = kept.is_some() || splitting.split.kept.has(given.rank, &given.part);
                splitting.say(&Say::Done { id, kept: has })?;
                asked = true;
                loop {
                    match self.hear()? {
                        Tell::Counts { id: of, counts: so } if of == id => {
                            counts = so;
                            break;
                        }
                        Tell::Finished | Tell::Stop => {
                            over = true;
                            break;
                        }
                        _ => {}
                    }
                }
            }
            match done {
                Ok(Some(theirs)) if counts => {
                    kept.into_iter().for_each(|k| splitting.split.kept.put(&given, k));
                    splitting.add(&mut sum, theirs, splitting.most_states / u64::from(WORKERS))?;
                }
                // What was given up, and what does not matter any more.
                Ok(_) => {}
                Err(_) if heard.dropped() => {}
                Err(e) => {
                    news.failed(&e);
                    trouble = Some(earlier(trouble, e));
                }
            }
        }
        match (trouble, news.stopped()) {
            (Some(e), _) => Err(e),
            // Another rank says why.
            (None, Some(_)) => Err(Error::cancelled()),
            (None, None) if over => Err(Error::cancelled()),
            (None, None) => Ok(sum),
        }
    }

    /// Whether the run is over for all of this rank, whatever comes.
    fn check(&self) -> Result<()> {
        self.splitting.cancel.check()?;
        // Who has failed says why.
        if self.failed.load(Ordering::Relaxed) { Err(Error::cancelled()) } else { Ok(()) }
    }

    /// Waits for the keeper, as long as it lives and nobody stops the run.
    fn hear(&self) -> Result<Tell> {
        let (s, keeper) = (self.splitting, self.splitting.split.keeper());
        loop {
            let heard = s.fabric.recv_within(keeper, self.answers(), LOOK)?;
            if let Some(told) = heard.as_deref().and_then(|word| decode(s.turn(), word)) {
                return Ok(told);
            }
            self.check()?;
            if heard.is_none() {
                self.observer().iter().for_each(|o| o.waits());
                s.fabric.alive(keeper)?;
            }
            if self.news.hear(Duration::ZERO) && self.news.stopped() == Some((None, None)) {
                return Err(Error::cancelled());
            }
        }
    }

    /// What the keeper says to this worker comes with this tag.
    fn answers(&self) -> u32 {
        ANSWERS + u32::from(self.number)
    }

    /// Who watches the run hears of it from one thread.
    fn observer(&self) -> Option<&dyn Observer> {
        self.splitting.observer.filter(|_| self.number == 0)
    }

    /// What one chunk gives, and what is to be kept of it.
    fn chunk(
        &self,
        id: u64,
        given: &Given,
        held: Vec<Held>,
        watch: &Watch,
        heard: &Heard,
    ) -> Result<(Sum, Option<Kepts>)> {
        let (s, stop) = (self.splitting, Cancel::new());
        let bytes = held.iter().map(|h| h.bytes.end - h.bytes.start).sum();
        // Workers share what the rank may use.
        let workers = usize::from(WORKERS);
        let listening = Listening { worker: self, id, stop: &stop, heard, watch };
        let pass = Pass {
            active: s.active,
            threads: s.threads.div_ceil(workers).max(1),
            states: s.most_states / workers as u64,
            number: s.pass,
            observer: Some(&listening),
            cancel: &stop,
            news: self.news,
        };
        if let Some(kept) = s.split.kept.get(given, &s.later) {
            let (states, rows) =
                pass.run(&Kepts::scan_of(kept.iter().map(|k| &**k)), None, None)?;
            let counters = [0, rows, rows, 0, 0, bytes];
            return Ok((Sum { states, counters, uncounted: 0, plan: Vec::new() }, None));
        }
        let mut options = s.options.clone();
        options.before = s.states.map(|states| states.at(&held)).transpose()?;
        options.share = Share::Held(held.into());
        let _leftovers = Leftovers { dataset: s.dataset, share: options.share.clone() };
        options.cancel = stop.clone();
        if s.threads < workers {
            options.chunk = (options.chunk / workers).max(limits::MIN_CHUNK);
        }
        let room = || s.split.kept.room(&s.later, s.most_kept);
        // Rows that go by stretches or cells are others than those that begin in the chunk, which later passes may look at.
        let by_rows = !options.needs.matrix && options.needs.brick.is_none();
        let cache = (given.keep && by_rows).then(room).flatten();
        let scan = s.dataset.scan(&options)?;
        let (states, kept) =
            pass.run(scan.as_ref(), s.filter, cache.as_ref().map(|c| c as &dyn Keep))?;
        for source in s.dataset.sources() {
            source.check()?;
        }
        let p = scan.progress();
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        let sum = Sum {
            states,
            counters: [get(&p.bytes), get(&p.rows), kept, get(&p.skipped), get(&p.rounded), bytes],
            uncounted: u64::from(!scan.counts_rows()),
            plan: scan.plan(),
        };
        Ok((sum, cache.and_then(Cache::ready)))
    }
}

/// A chunk as the keeper gives it: a part of what a rank holds.
pub struct Given {
    pub rank: u32,
    pub part: Range<u64>,
    /// It may be kept.
    pub keep: bool,
}

/// It is one of the data, which the earliest of is told.
fn is_of_data(e: &Error) -> bool {
    let (source, _) = e.order();
    matches!(e.kind(), Kind::Data | Kind::Format) || (e.kind() == Kind::Limit && source.is_some())
}

/// Bytes of which nothing is waited for any more once this goes.
pub struct Leftovers<'l> {
    pub dataset: &'l Dataset,
    pub share: Share,
}

impl Drop for Leftovers<'_> {
    fn drop(&mut self) {
        let Share::Held(held) = &self.share else { return };
        for h in held.iter() {
            let source = self.dataset.sources().get(h.source as usize);
            source.iter().for_each(|s| s.forget(h.bytes.clone()));
        }
    }
}

/// Of two errors the one to tell.
fn earlier(a: Option<Error>, b: Error) -> Error {
    let order = |e: &Error| (e.kind() == Kind::Cancelled, e.order());
    match a {
        Some(a) if order(&a) <= order(&b) => a,
        _ => b,
    }
}

/// What was heard while a chunk was computed on.
#[derive(Default)]
struct Heard {
    dropped: AtomicBool,
    over: AtomicBool,
}

impl Heard {
    /// Its state is not needed.
    fn dropped(&self) -> bool {
        self.dropped.load(Ordering::Relaxed) || self.over.load(Ordering::Relaxed)
    }
}

/// Hears, while a chunk is computed on, that it was done by somebody else or that the run is stopped.
struct Listening<'l> {
    worker: &'l Worker<'l>,
    id: u64,
    stop: &'l Cancel,
    heard: &'l Heard,
    watch: &'l Watch,
}

impl Observer for Listening<'_> {
    fn progress(&self, now: &Snapshot) {
        let (s, keeper) = (self.worker.splitting, self.worker.splitting.split.keeper());
        let answers = self.worker.answers();
        while let Ok(Some(word)) = s.fabric.recv_within(keeper, answers, Duration::ZERO) {
            match decode(s.turn(), &word) {
                Some(Tell::Drop { id }) if id == self.id => &self.heard.dropped,
                Some(Tell::Finished | Tell::Stop) => &self.heard.over,
                // Nothing else comes now: there was no question.
                _ => continue,
            }
            .store(true, Ordering::Relaxed);
            self.stop.cancel();
        }
        if self.worker.check().is_err() {
            self.stop.cancel();
        }
        if let Some(observer) = self.worker.observer() {
            let bytes = self.worker.counted.load(Ordering::Relaxed).max(now.bytes);
            let total = s.dataset.total_bytes();
            let seconds = self.watch.seconds();
            observer.progress(&Snapshot {
                pass: s.pass,
                bytes: bytes.min(total),
                total_bytes: total,
                rows: now.rows,
                seconds,
            });
        }
    }
}

#[cfg(test)]
mod tests;
