//! Who gives chunks to ranks: a thread of the first rank, with a balance for what each storage rank holds.

use super::{ANSWERS, ASKS, Say, Split, Tell, Turn, WORKERS, decode, encode};
use crate::clock::Watch;
use crate::pass::caught;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::Result;
use stead_fabric::Fabric;
use stead_model::{Balance, BalanceOptions, Chunk, Next, Side, Verdict};

/// How long it listens before it looks whether a rank that waits can go on, and at most every so many of these whether all live.
const LOOK: Duration = Duration::from_millis(20);
const LIVE_EVERY: u32 = 50;
/// Largest chunk, where granules are no larger.
const MOST: u64 = 64 << 20;

/// A chunk takes at least so long, as predicted, and is no more than this part of all: to ask for one takes a while, too.
pub const LEAST_SECONDS: f64 = 0.004;
const LEAST_CHUNKS: u64 = 32;

/// The smallest chunk of `len` bytes.
fn least(len: u64, granule: u64, seconds: f64) -> u64 {
    let worth = len as f64 / seconds.max(1e-9) * LEAST_SECONDS;
    (worth as u64).min(len / LEAST_CHUNKS).max(granule)
}

/// A rank, and one of its workers.
type To = (usize, u8);

/// A chunk that a worker has.
struct Given {
    to: To,
    /// Index of the balance.
    of: usize,
    side: Side,
    chunk: Chunk,
}

/// Of each storage rank that holds something: what is known of both sides from pass to pass, and who has what in memory.
#[derive(Debug, Default)]
pub struct Balances(Mutex<Vec<(usize, Balance)>>);

impl Balances {
    /// Those of a pass that begins.
    fn begin(&self, split: &Split) -> MutexGuard<'_, Vec<(usize, Balance)>> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !all.is_empty() {
            all.iter_mut().for_each(|(_, balance)| balance.again());
            return all;
        }
        let balance = |rank: usize| {
            let (len, granule) = (split.holdings.len(rank), split.holdings.granule(rank));
            let options = BalanceOptions {
                host_share: split.asked_share,
                seconds: split.seconds,
                align: granule,
                least: least(len, granule, split.seconds),
                most: MOST.max(granule),
                ..BalanceOptions::default()
            };
            (len > 0).then(|| (rank, Balance::new(len, options)))
        };
        *all = (0..split.storage.len()).filter_map(balance).collect();
        all
    }
}

/// See the module's documentation.
pub struct Keeper<'k> {
    fabric: &'k dyn Fabric,
    turn: Turn,
    storage: &'k [bool],
    balances: MutexGuard<'k, Vec<(usize, Balance)>>,
    given: BTreeMap<u64, Given>,
    next_id: u64,
    waiting: BTreeSet<To>,
    /// Those that were told that there is nothing left.
    finished: BTreeSet<To>,
}

impl<'k> Keeper<'k> {
    pub fn new(fabric: &'k dyn Fabric, split: &'k Split, turn: Turn) -> Keeper<'k> {
        Keeper {
            fabric,
            turn,
            storage: &split.storage,
            balances: split.balances.begin(split),
            given: BTreeMap::new(),
            next_id: 0,
            waiting: BTreeSet::new(),
            finished: BTreeSet::new(),
        }
    }

    /// Until all ranks know that nothing is left, or it is to stop. `counted` are bytes that are done.
    ///
    /// # Errors
    /// `Peer` if a rank is gone.
    pub fn keep(mut self, stop: &AtomicBool, counted: &AtomicU64) -> Result<()> {
        // Whatever becomes of it: nobody waits for who is not there.
        caught(|| self.until(stop, counted))
            .inspect_err(|_| self.all().for_each(|to| self.tell(to, &Tell::Stop)))
    }

    fn until(&mut self, stop: &AtomicBool, counted: &AtomicU64) -> Result<()> {
        let watch = Watch::start();
        for turn in 0u32.. {
            if self.all().all(|to| self.finished.contains(&to)) {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                self.all().for_each(|to| self.tell(to, &Tell::Stop));
                break;
            }
            if let Some((from, word)) = self.fabric.recv_any(ASKS, LOOK)? {
                match decode(self.turn, &word) {
                    Some(Say::Ask(worker)) if worker < WORKERS => {
                        self.waiting.insert((from, worker));
                    }
                    // No worker of this program.
                    Some(Say::Ask(_)) => {}
                    Some(Say::Done { id, kept }) => self.done(from, id, kept, watch.seconds()),
                    // Of one that knows already that nothing is left, all are done.
                    Some(Say::Over) => stop.store(true, Ordering::Relaxed),
                    None => {}
                }
                counted.store(self.counted(), Ordering::Relaxed);
            }
            for to in self.waiting.clone() {
                self.serve(to, watch.seconds());
            }
            if turn.is_multiple_of(LIVE_EVERY) {
                for (rank, _) in self.all().filter(|to| !self.finished.contains(to)) {
                    self.fabric.alive(rank)?;
                }
            }
        }
        Ok(())
    }

    fn counted(&self) -> u64 {
        let of = |b: &Balance| Side::BOTH.iter().map(|s| b.counted(*s)).sum::<u64>();
        self.balances.iter().map(|(_, b)| of(b)).sum()
    }

    /// All workers of all ranks.
    fn all(&self) -> impl Iterator<Item = To> + use<> {
        (0..self.storage.len()).flat_map(|rank| (0..WORKERS).map(move |worker| (rank, worker)))
    }

    fn tell(&self, (rank, worker): To, what: &Tell) {
        // Who is gone is found out where it matters.
        let tag = ANSWERS + u32::from(worker);
        let _ = self.fabric.send(rank, tag, encode(self.turn, what));
    }

    fn side(&self, rank: usize) -> Side {
        if self.storage.get(rank) == Some(&true) { Side::Storage } else { Side::Host }
    }

    /// Gives a worker that waits something to do, if there is anything.
    fn serve(&mut self, to: To, now: f64) {
        let (rank, _) = to;
        let side = self.side(rank);
        // Who has data works on them. Who asks helps where most is left to do.
        let mut order: Vec<usize> = (0..self.balances.len())
            .filter(|i| side == Side::Host || self.balances[*i].0 == rank)
            .collect();
        let left = |i: &usize| self.balances[*i].1.left_s(now);
        order.sort_by(|a, b| left(b).total_cmp(&left(a)));
        let mut finished = true;
        for of in order {
            let (holder, balance) = &mut self.balances[of];
            match balance.next_of(side, rank, now) {
                Next::Chunk(chunk) => {
                    let (id, holder) = (self.next_id, *holder as u32);
                    let keep = balance.is_piece(chunk);
                    self.next_id += 1;
                    self.given.insert(id, Given { to, of, side, chunk });
                    self.waiting.remove(&to);
                    let (start, end) = (chunk.start, chunk.end);
                    return self.tell(to, &Tell::Chunk { id, rank: holder, start, end, keep });
                }
                Next::Wait { .. } => finished = false,
                Next::Finished => {}
            }
        }
        if finished {
            self.waiting.remove(&to);
            self.finished.insert(to);
            self.tell(to, &Tell::Finished);
        }
    }

    /// A rank has a state for a chunk, and wants another one. Whoever else is at some of it need not go on if this one counts.
    fn done(&mut self, rank: usize, id: u64, kept: bool, now: f64) {
        if self.given.get(&id).is_none_or(|g| g.to.0 != rank) {
            // Chunks that were given stay until their worker has said this: nobody of this program says it.
            return;
        }
        let Some(given) = self.given.remove(&id) else { return };
        let verdict = match self.balances.get_mut(given.of) {
            Some((_, balance)) => balance.done(given.side, given.chunk, now),
            None => Verdict::Drop,
        };
        let counts = verdict == Verdict::Count;
        self.tell(given.to, &Tell::Counts { id, counts });
        self.waiting.insert(given.to);
        if counts {
            if let Some((_, balance)) = self.balances.get_mut(given.of).filter(|_| kept) {
                balance.keep(given.side, rank, given.chunk);
            }
            let (start, end) = (given.chunk.start, given.chunk.end);
            let vain = |g: &Given| g.of == given.of && g.chunk.start < end && start < g.chunk.end;
            let late = self.given.iter().filter(|(_, g)| vain(g));
            late.for_each(|(id, g)| self.tell(g.to, &Tell::Drop { id: *id }));
        }
    }
}
