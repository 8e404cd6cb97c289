//! A pass in which both those that have the data and those that ask compute.
//!
//! The first rank keeps the balance (`keeper`). Every rank asks it for a chunk, computes a state for it, and asks whether that
//! counts, before it adds it to its own: a chunk that one side is slow with is given to the other one, too, and counts once. So
//! the states that come together at the end are of each byte once, and the answer is that of any other place.
//!
//! What a storage rank holds is one range of bytes here, whatever it is in files (`Holdings`). The rank takes chunks from its
//! beginning, those that ask take them from its end.

mod keeper;

use crate::clock::Watch;
use crate::news::News;
use crate::pass::{Active, Observer, Pass, Snapshot};
use keeper::Keeper;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stead_core::{Cancel, Error, Kind, Result};
use stead_fabric::Fabric;
use stead_format::{Dataset, Held, ScanOptions, Share, States};
use stead_kernel::AnyState;
use stead_kernel::expr::Filter;

/// Tags of what ranks say to the keeper, and of what it says: of each run two.
const TAGS: u32 = 0x5600_0000;
const MOST_TAGS: u64 = 1 << 19;
/// How often who waits looks around.
const LOOK: Duration = Duration::from_millis(100);
/// Stretches that ranks may hold together: all ranks know all of them.
pub const MOST_STRETCHES: u64 = 1 << 16;

/// What each rank holds, as one range of bytes.
#[derive(Debug, Clone, Default)]
pub struct Holdings {
    of: Vec<Vec<Held>>,
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
    pub fn new(told: Vec<Told>) -> Result<Holdings> {
        let held = |(source, start, end): (u32, u64, u64)| {
            let bad = || Error::format("what another rank holds is malformed");
            (start < end).then_some(Held { source, bytes: start..end }).ok_or_else(bad)
        };
        let of = |told: Told| told.into_iter().map(held).collect::<Result<Vec<Held>>>();
        Ok(Holdings { of: told.into_iter().map(of).collect::<Result<_>>()? })
    }

    /// Bytes that a rank holds.
    pub fn len(&self, rank: usize) -> u64 {
        let held = self.of.get(rank).map_or(&[][..], Vec::as_slice);
        held.iter().fold(0, |n, h| n.saturating_add(h.bytes.end - h.bytes.start))
    }

    /// Chunks of what a rank holds begin and end at multiples of this.
    pub fn granule(&self, rank: usize) -> u64 {
        let len = self.len(rank);
        len.div_ceil(MOST_GRANULES).max((len / LEAST_GRANULES).clamp(1, GRANULE))
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
    /// What is there to do?
    Ask,
    /// There is a state for a chunk: does it count?
    Done(u64),
    /// This rank has failed: there is no need to go on.
    Over,
}

/// What the keeper says.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Tell {
    /// Compute on a part of what `rank` holds.
    Chunk { id: u64, rank: u32, start: u64, end: u64 },
    /// Whether it counts.
    Counts { id: u64, counts: bool },
    /// Somebody else has done this: no need to go on with it.
    Drop { id: u64 },
    /// There is nothing left to do.
    Finished,
}

fn encode(pass: u64, said: &impl Serialize) -> Vec<u8> {
    // Nothing in it can fail to be encoded.
    postcard::to_stdvec(&(pass, said)).unwrap_or_default()
}

/// What was said in this pass; nothing for what is left of others.
fn decode<'b, T: Deserialize<'b>>(pass: u64, word: &'b [u8]) -> Option<T> {
    let (of, said): (u64, T) = postcard::from_bytes(word).ok()?;
    (of == pass).then_some(said)
}

/// How a run is split.
#[derive(Debug, Clone)]
pub struct Split {
    /// What each rank holds.
    pub holdings: Holdings,
    /// Of each rank whether it has data.
    pub storage: Vec<bool>,
    /// What was predicted: how much of the data those who ask compute on, and the seconds.
    pub asked_share: f64,
    pub seconds: f64,
}

/// A pass that is split, for this rank.
pub struct Splitting<'s> {
    pub split: &'s Split,
    pub fabric: &'s dyn Fabric,
    pub dataset: &'s Dataset,
    /// The run, among those of rank 0's process.
    pub run: u64,
    pub options: ScanOptions,
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

/// The keeper's tag, and that of its answers.
fn tags(run: u64) -> (u32, u32) {
    let at = TAGS + 2 * (run % MOST_TAGS) as u32;
    (at, at + 1)
}

/// Nothing of this run is listened to any more.
pub fn forget(fabric: &dyn Fabric, run: u64) {
    let (asks, _) = tags(run);
    fabric.forget(asks..asks + 2);
}

impl Splitting<'_> {
    /// Computes chunks until there are none.
    ///
    /// # Errors
    /// The earliest of this rank; `Cancelled` if it was stopped. Others hear of it.
    pub fn run(&self) -> Result<Sum> {
        let news = News::new(self.fabric, self.run, self.pass, false).in_no_order();
        if self.fabric.rank() != 0 {
            return self.work(&news, &AtomicU64::new(0)).inspect_err(|_| {
                // If it does not come, the first rank is gone.
                let _ = self.say(&Say::Over);
            });
        }
        let (stop, counted) = (AtomicBool::new(false), AtomicU64::new(0));
        let keeper = Keeper::new(self.fabric, self.split, tags(self.run), self.pass);
        std::thread::scope(|scope| {
            let (stop, counted) = (&stop, &counted);
            let thread = std::thread::Builder::new().name("stead-keeper".into());
            let kept = thread
                .spawn_scoped(scope, move || keeper.keep(stop, counted))
                .map_err(|e| Error::io("start a thread for", "chunks", e))?;
            let mine = self.work(&news, counted);
            // Errors in the data come here when all chunks are done, others at once.
            stop.store(mine.is_err(), Ordering::Relaxed);
            let failed = || Err(Error::internal("who gives chunks to ranks has died"));
            kept.join().unwrap_or_else(|_| failed())?;
            mine
        })
    }

    /// Asks for chunks, and computes.
    fn work(&self, news: &News<'_>, counted: &AtomicU64) -> Result<Sum> {
        let mut sum = Sum {
            states: self.active.iter().map(|a| a.kernel.init()).collect(),
            counters: [0; 6],
            uncounted: 0,
            plan: Vec::new(),
        };
        let mut trouble: Option<Error> = None;
        let (watch, mut over) = (Watch::start(), false);
        while !over {
            self.say(&Say::Ask)?;
            let Tell::Chunk { id, rank, start, end } = self.hear(news)? else { break };
            let held = self.split.holdings.pieces(rank as usize, &(start..end));
            let passed_over = match (news.stopped(), held.first()) {
                (Some(at), Some(h)) => at <= (Some(h.source), Some(h.bytes.start)),
                (_, None) => true,
                (None, _) => false,
            };
            let heard = Heard::default();
            let done = match passed_over {
                true => Ok(None),
                false => self.chunk(id, held, news, (&watch, counted), &heard).map(Some),
            };
            self.cancel.check()?;
            if let Err(e) = &done
                && !heard.dropped()
                && !matches!(e.kind(), Kind::Data | Kind::Format | Kind::Cancelled)
            {
                news.failed(e);
                return done.map(|_| sum);
            }
            over = heard.over.load(Ordering::Relaxed);
            let mut counts = false;
            if !over {
                self.say(&Say::Done(id))?;
                loop {
                    match self.hear(news)? {
                        Tell::Counts { id: of, counts: so } if of == id => {
                            counts = so;
                            break;
                        }
                        Tell::Finished => {
                            over = true;
                            break;
                        }
                        _ => {}
                    }
                }
            }
            match done {
                Ok(Some(theirs)) if counts => self.add(&mut sum, theirs, end - start)?,
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

    fn say(&self, what: &Say) -> Result<()> {
        self.fabric.send(0, tags(self.run).0, encode(self.pass, what))
    }

    /// Waits for the keeper, as long as it lives and nobody stops the run.
    fn hear(&self, news: &News<'_>) -> Result<Tell> {
        loop {
            let heard = self.fabric.recv_within(0, tags(self.run).1, LOOK)?;
            if let Some(told) = heard.as_deref().and_then(|word| decode(self.pass, word)) {
                return Ok(told);
            }
            self.cancel.check()?;
            if heard.is_none() {
                self.observer.iter().for_each(|o| o.waits());
                self.fabric.alive(0)?;
            }
            if news.hear(Duration::ZERO) && news.stopped() == Some((None, None)) {
                return Err(Error::cancelled());
            }
        }
    }

    /// What one chunk gives.
    fn chunk(
        &self,
        id: u64,
        held: Vec<Held>,
        news: &News<'_>,
        (watch, counted): (&Watch, &AtomicU64),
        heard: &Heard,
    ) -> Result<Sum> {
        let stop = Cancel::new();
        let mut options = self.options.clone();
        options.before = self.states.map(|states| states.at(&held)).transpose()?;
        options.share = Share::Held(held.into());
        options.cancel = stop.clone();
        let scan = self.dataset.scan(&options)?;
        let listening = Listening { splitting: self, id, stop: &stop, heard, watch, counted };
        let pass = Pass {
            active: self.active,
            threads: self.threads,
            states: self.most_states,
            number: self.pass,
            observer: Some(&listening),
            cancel: &stop,
            news,
        };
        let (states, kept) = pass.run(scan.as_ref(), self.filter, None)?;
        for source in self.dataset.sources() {
            source.check()?;
        }
        let p = scan.progress();
        let get = |c: &AtomicU64| c.load(Ordering::Relaxed);
        Ok(Sum {
            states,
            counters: [get(&p.bytes), get(&p.rows), kept, get(&p.skipped), get(&p.rounded), 0],
            uncounted: u64::from(!scan.counts_rows()),
            plan: scan.plan(),
        })
    }

    fn add(&self, sum: &mut Sum, theirs: Sum, bytes: u64) -> Result<()> {
        for ((a, mine), theirs) in self.active.iter().zip(&mut sum.states).zip(theirs.states) {
            a.kernel.merge(mine, theirs)?;
        }
        for (mine, theirs) in sum.counters.iter_mut().zip(theirs.counters) {
            *mine = mine.saturating_add(theirs);
        }
        sum.counters[5] = sum.counters[5].saturating_add(bytes);
        sum.uncounted |= theirs.uncounted;
        if sum.plan.is_empty() {
            sum.plan = theirs.plan;
        }
        Ok(())
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
    splitting: &'l Splitting<'l>,
    id: u64,
    stop: &'l Cancel,
    heard: &'l Heard,
    watch: &'l Watch,
    counted: &'l AtomicU64,
}

impl Observer for Listening<'_> {
    fn progress(&self, now: &Snapshot) {
        let s = self.splitting;
        let (_, answers) = tags(s.run);
        while let Ok(Some(word)) = s.fabric.recv_within(0, answers, Duration::ZERO) {
            match decode(s.pass, &word) {
                Some(Tell::Drop { id }) if id == self.id => &self.heard.dropped,
                Some(Tell::Finished) => &self.heard.over,
                // Nothing else comes now: there was no question.
                _ => continue,
            }
            .store(true, Ordering::Relaxed);
            self.stop.cancel();
        }
        if s.cancel.is_cancelled() {
            self.stop.cancel();
        }
        if let Some(observer) = s.observer {
            let bytes = self.counted.load(Ordering::Relaxed).max(now.bytes);
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
