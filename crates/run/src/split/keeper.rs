//! Who gives chunks to ranks: a thread of the first rank, with a balance for what each storage rank holds.

use super::{Say, Split, Tell, decode, encode};
use crate::clock::Watch;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use stead_core::Result;
use stead_fabric::Fabric;
use stead_model::{Balance, BalanceOptions, Chunk, Next, Side, Verdict};

/// How long it listens before it looks whether a rank that waits can go on, and at most every so many of these whether all live.
const LOOK: Duration = Duration::from_millis(20);
const LIVE_EVERY: u32 = 50;
/// Largest chunk, where granules are no larger.
const MOST: u64 = 64 << 20;

/// A chunk that a rank has.
struct Given {
    to: usize,
    /// Index of the balance.
    of: usize,
    side: Side,
    chunk: Chunk,
}

/// See the module's documentation.
pub struct Keeper<'k> {
    fabric: &'k dyn Fabric,
    asks: u32,
    answers: u32,
    pass: u64,
    storage: &'k [bool],
    /// Of each storage rank that holds something.
    balances: Vec<(usize, Balance)>,
    given: BTreeMap<u64, Given>,
    next_id: u64,
    waiting: BTreeSet<usize>,
    /// Ranks that were told that there is nothing left.
    finished: BTreeSet<usize>,
}

impl<'k> Keeper<'k> {
    pub fn new(
        fabric: &'k dyn Fabric,
        split: &'k Split,
        (asks, answers): (u32, u32),
        pass: u64,
    ) -> Keeper<'k> {
        let balance = |rank: usize| {
            let (len, granule) = (split.holdings.len(rank), split.holdings.granule(rank));
            let options = BalanceOptions {
                host_share: split.asked_share,
                seconds: split.seconds,
                align: granule,
                least: granule,
                most: MOST.max(granule),
                ..BalanceOptions::default()
            };
            (len > 0).then(|| (rank, Balance::new(len, options)))
        };
        Keeper {
            fabric,
            asks,
            answers,
            pass,
            storage: &split.storage,
            balances: (0..split.storage.len()).filter_map(balance).collect(),
            given: BTreeMap::new(),
            next_id: 0,
            waiting: BTreeSet::new(),
            finished: BTreeSet::new(),
        }
    }

    /// Until all ranks know that nothing is left, or it is to stop, as when a rank is gone. `counted` are bytes that are done.
    pub fn keep(mut self, stop: &AtomicBool, counted: &AtomicU64) -> Result<()> {
        let watch = Watch::start();
        for turn in 0u32.. {
            if self.finished.len() >= self.storage.len() {
                break;
            }
            if stop.load(Ordering::Relaxed) {
                for rank in 0..self.storage.len() {
                    self.tell(rank, &Tell::Finished);
                }
                break;
            }
            if let Some((from, word)) = self.fabric.recv_any(self.asks, LOOK)? {
                match decode(self.pass, &word) {
                    Some(Say::Ask) => drop(self.waiting.insert(from)),
                    Some(Say::Done(id)) => self.done(from, id, watch.seconds()),
                    // Of one that knows already that nothing is left, all are done.
                    Some(Say::Over) => stop.store(true, Ordering::Relaxed),
                    None => {}
                }
                counted.store(self.counted(), Ordering::Relaxed);
            }
            for rank in self.waiting.clone() {
                self.serve(rank, watch.seconds());
            }
            if turn.is_multiple_of(LIVE_EVERY) {
                // The run ends with an error at the next step; there is no need to come to the end before.
                let lost = (0..self.storage.len())
                    .any(|rank| !self.finished.contains(&rank) && self.fabric.alive(rank).is_err());
                stop.fetch_or(lost, Ordering::Relaxed);
            }
        }
        Ok(())
    }

    fn counted(&self) -> u64 {
        let of = |b: &Balance| Side::BOTH.iter().map(|s| b.counted(*s)).sum::<u64>();
        self.balances.iter().map(|(_, b)| of(b)).sum()
    }

    fn tell(&self, rank: usize, what: &Tell) {
        // Who is gone is found out where it matters.
        let _ = self.fabric.send(rank, self.answers, encode(self.pass, what));
    }

    fn side(&self, rank: usize) -> Side {
        if self.storage.get(rank) == Some(&true) { Side::Storage } else { Side::Host }
    }

    /// Gives a rank that waits something to do, if there is anything.
    fn serve(&mut self, rank: usize, now: f64) {
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
            match balance.next(side, now) {
                Next::Chunk(chunk) => {
                    let (id, holder) = (self.next_id, *holder as u32);
                    self.next_id += 1;
                    self.given.insert(id, Given { to: rank, of, side, chunk });
                    self.waiting.remove(&rank);
                    let (start, end) = (chunk.start, chunk.end);
                    return self.tell(rank, &Tell::Chunk { id, rank: holder, start, end });
                }
                Next::Wait { .. } => finished = false,
                Next::Finished => {}
            }
        }
        if finished {
            self.waiting.remove(&rank);
            self.finished.insert(rank);
            self.tell(rank, &Tell::Finished);
        }
    }

    /// A rank has a state for a chunk. Whoever else is at some of it need not go on if this one counts.
    fn done(&mut self, rank: usize, id: u64, now: f64) {
        let mine = self.given.get(&id).is_some_and(|g| g.to == rank);
        let Some(given) = self.given.remove(&id).filter(|_| mine) else {
            return self.tell(rank, &Tell::Counts { id, counts: false });
        };
        let verdict = match self.balances.get_mut(given.of) {
            Some((_, balance)) => balance.done(given.side, given.chunk, now),
            None => Verdict::Drop,
        };
        let counts = verdict == Verdict::Count;
        self.tell(rank, &Tell::Counts { id, counts });
        if counts {
            let (start, end) = (given.chunk.start, given.chunk.end);
            let vain = |g: &Given| g.of == given.of && g.chunk.start < end && start < g.chunk.end;
            let late = self.given.iter().filter(|(_, g)| vain(g));
            late.for_each(|(id, g)| self.tell(g.to, &Tell::Drop { id: *id }));
        }
    }
}
