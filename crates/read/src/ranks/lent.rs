//! Blocks of this rank that others look at: who has which, so that they stay until they are given back.
//!
//! A neighbour gets a *loan* in place of bytes: where they lie in the segment of this rank, and a number by which it gives
//! them back. A loan holds a view, as a task of this rank would. Loans of others take at most [`lendable`] of the blocks, so that
//! this rank can always read more; beyond that neighbours get bytes. Where blocks run out all the same, neighbours are asked
//! to give back what they only keep. If this rank may have fewer blocks later on, what is lent stays so, and a quarter of
//! those is left to it beside.

use crate::clock;
use crate::engine::lendable;
use crate::view::View;
use std::collections::{BTreeSet, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_store::Segment;

/// A rank is asked for what it only keeps no more often, unless it has given something back meanwhile.
const PRESS: Duration = Duration::from_millis(250);

pub(crate) struct Lent {
    segment: Arc<Segment>,
    inner: Mutex<Inner>,
    /// Blocks of which there are loans, to be looked at without the lock.
    count: Arc<AtomicUsize>,
}

#[derive(Default)]
struct Inner {
    next: u64,
    loans: HashMap<u64, Loan>,
    /// How many loans there are of each block, by its place.
    blocks: HashMap<u64, usize>,
    /// Ranks that were asked to give back what they only keep, and when, and have not given anything back since.
    pressed: HashMap<usize, Instant>,
    /// Somebody was refused, or waits for what is lent, since this was looked at.
    short: bool,
    /// Nothing is lent any more.
    ended: bool,
}

struct Loan {
    to: usize,
    at: u64,
    /// Keeps the block.
    _view: View,
}

impl Inner {
    /// Takes a loan out of the books. Its view is to be dropped without the lock, as that may wake readers.
    fn close(&mut self, number: u64) -> Option<Loan> {
        let loan = self.loans.remove(&number)?;
        if let Some(count) = self.blocks.get_mut(&loan.at) {
            *count -= 1;
            if *count == 0 {
                self.blocks.remove(&loan.at);
            }
        }
        Some(loan)
    }
}

impl Lent {
    pub(crate) fn new(segment: Arc<Segment>) -> Lent {
        Lent { segment, inner: Mutex::default(), count: Arc::default() }
    }

    /// Blocks of which there are loans, now and later.
    pub(crate) fn count(&self) -> Arc<AtomicUsize> {
        self.count.clone()
    }

    fn note(&self, inner: &Inner) {
        self.count.store(inner.blocks.len(), Ordering::SeqCst);
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lends a view, of which this rank may have `blocks` blocks in memory. Gives the number of the loan and the place of the
    /// bytes in the segment; `None` if they do not lie there, or too much is lent.
    pub(crate) fn lend(&self, to: usize, view: &View, blocks: usize) -> Option<(u64, u64)> {
        let at = self.segment.offset_of(view)?;
        let mut inner = self.lock();
        if inner.ended {
            return None;
        }
        if !inner.blocks.contains_key(&at) && inner.blocks.len() >= lendable(blocks) {
            inner.short = true;
            return None;
        }
        inner.next += 1;
        let number = inner.next;
        inner.loans.insert(number, Loan { to, at, _view: view.clone() });
        *inner.blocks.entry(at).or_insert(0) += 1;
        self.note(&inner);
        Some((number, at))
    }

    /// A rank gives loans back. Numbers of loans that it does not have are passed over.
    pub(crate) fn take_back(&self, from: usize, numbers: impl Iterator<Item = u64>) {
        let mut inner = self.lock();
        inner.pressed.remove(&from);
        let mut closed = Vec::new();
        for number in numbers {
            if inner.loans.get(&number).is_some_and(|loan| loan.to == from) {
                closed.extend(inner.close(number));
            }
        }
        self.note(&inner);
        drop(inner);
        drop(closed);
    }

    /// Ranks that have loans and are to be asked now to give back what they only keep.
    pub(crate) fn press(&self) -> Vec<usize> {
        let now = clock::now();
        let mut inner = self.lock();
        let holders: BTreeSet<usize> = inner.loans.values().map(|loan| loan.to).collect();
        let due = |rank: &usize| {
            let last = inner.pressed.get(rank);
            last.is_none_or(|at| now.saturating_duration_since(*at) >= PRESS)
        };
        let ranks: Vec<usize> = holders.into_iter().filter(due).collect();
        inner.pressed.extend(ranks.iter().map(|rank| (*rank, now)));
        inner.short |= !inner.loans.is_empty();
        ranks
    }

    /// Ranks that have loans.
    pub(crate) fn holders(&self) -> BTreeSet<usize> {
        self.lock().loans.values().map(|loan| loan.to).collect()
    }

    /// True if somebody wanted more room since this was last asked.
    pub(crate) fn was_short(&self) -> bool {
        std::mem::take(&mut self.lock().short)
    }

    /// Nothing more will be heard of a rank. If nobody there looks at anything any more (`ended`), its blocks are as good as
    /// given back; else their memory is not used again, and is not counted any more.
    pub(crate) fn lose(&self, rank: usize, ended: bool) {
        let mut inner = self.lock();
        let of_rank = |(number, loan): (&u64, &Loan)| (loan.to == rank).then_some(*number);
        let numbers: Vec<u64> = inner.loans.iter().filter_map(of_rank).collect();
        let closed: Vec<Loan> = numbers.into_iter().filter_map(|n| inner.close(n)).collect();
        self.note(&inner);
        drop(inner);
        for loan in closed {
            if !ended {
                self.segment.retire(loan.at);
            }
            drop(loan);
        }
    }

    /// Nothing more will be heard of anybody.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        for rank in self.holders() {
            self.lose(rank, false);
        }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        // However messages ended, neighbours may still look.
        self.end();
    }
}
