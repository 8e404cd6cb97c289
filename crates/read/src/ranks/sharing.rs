//! Ranks of one node that read a file into memory, not by way of the page cache, read it into memory that all of them can
//! look at: the neighbours of the rank that reads a block get a view of it in place of its bytes.
//!
//! Whether that works is found when the file is opened: each rank announces a segment ([`stead_store::Segment`]), and maps
//! those of its neighbours. A rank lends to those whose segment it has mapped, so that it sees when their process ends; all
//! others (another user or namespace, no `/proc`) get messages.

use super::borrowed::{Loan, Returns};
use super::lent::Lent;
use super::service::Out;
use crate::view::View;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use stead_fabric::Fabric;
use stead_store::{Announcement, Neighbour, Segment};

/// What is known when all ranks have said whether they share memory.
pub(crate) struct Found {
    segment: Arc<Segment>,
    neighbours: HashMap<usize, Arc<Neighbour>>,
}

impl Found {
    /// `said` is what each rank announced.
    pub(crate) fn new(
        segment: Option<Arc<Segment>>,
        here: &[bool],
        said: impl Iterator<Item = Option<Announcement>>,
    ) -> Option<Found> {
        let segment = segment?;
        let neighbours: HashMap<_, _> = said
            .enumerate()
            .filter(|(rank, _)| here.get(*rank) == Some(&true))
            .filter_map(|(rank, said)| Some((rank, Arc::new(Neighbour::open(&said?).ok()?))))
            .collect();
        (!neighbours.is_empty()).then_some(Found { segment, neighbours })
    }
}

/// What one rank has of the memory of its node.
pub(crate) struct Sharing {
    neighbours: HashMap<usize, Arc<Neighbour>>,
    lent: Lent,
    back: Arc<Returns>,
    /// Bytes that this rank has looked at in the memory of others.
    borrowed: AtomicU64,
}

impl Sharing {
    pub(crate) fn new(found: Found, sender: Sender<Out>) -> Sharing {
        Sharing {
            neighbours: found.neighbours,
            lent: Lent::new(found.segment),
            back: Arc::new(Returns::new(sender)),
            borrowed: AtomicU64::new(0),
        }
    }

    /// True if this rank can look at the memory of that one, which may lend it.
    pub(crate) fn with(&self, rank: usize) -> bool {
        self.neighbours.contains_key(&rank)
    }

    pub(crate) fn borrowed(&self) -> u64 {
        self.borrowed.load(Ordering::Relaxed)
    }

    /// Ranks that can look at each other's memory, as far as this one knows, itself among them.
    pub(crate) fn ranks(&self) -> usize {
        self.neighbours.len()
    }

    /// Lends a view to a rank that can look at it: the number of the loan and the place of its bytes.
    pub(crate) fn lend(&self, to: usize, view: &View, blocks: usize) -> Option<(u64, u64)> {
        if self.with(to) { self.lent.lend(to, view, blocks) } else { None }
    }

    /// What was lent to this rank; `None` if it cannot be looked at, which nobody should have thought. Then it is given back.
    pub(crate) fn accept(&self, owner: usize, number: u64, at: u64, len: u64) -> Option<Loan> {
        let bytes = |n: &&Arc<Neighbour>| n.bytes(at, usize::try_from(len).ok()?).map(<[u8]>::len);
        let neighbour = self.neighbours.get(&owner);
        let Some((neighbour, len)) = neighbour.and_then(|n| Some((n.clone(), bytes(&n)?))) else {
            self.back.give(owner, number);
            return None;
        };
        self.borrowed.fetch_add(len as u64, Ordering::Relaxed);
        Some(Loan { neighbour, owner, number, at, len, back: self.back.clone() })
    }

    /// Blocks of this rank that others have, now and later.
    pub(crate) fn lent(&self) -> Arc<AtomicUsize> {
        self.lent.count()
    }

    /// Loans that are to be given back to a rank.
    pub(crate) fn due(&self, owner: usize) -> Vec<u64> {
        self.back.take(owner)
    }

    /// A loan that could not be told of.
    pub(crate) fn undo(&self, to: usize, number: u64) {
        self.lent.take_back(to, std::iter::once(number));
    }

    /// A rank gives loans back.
    pub(crate) fn take_back(&self, from: usize, numbers: impl Iterator<Item = u64>) {
        self.lent.take_back(from, numbers);
    }

    /// Ranks that are to be asked for what they only keep.
    pub(crate) fn press(&self) -> Vec<usize> {
        self.lent.press()
    }

    /// Looks whether those who have loans are still there.
    pub(crate) fn look(&self, fabric: &dyn Fabric) {
        let holders = self.lent.holders();
        let short = !holders.is_empty() && self.lent.was_short();
        for rank in holders {
            let ended = self.neighbours.get(&rank).is_some_and(|n| n.has_ended());
            // Who is silent may look at its views all the same. It is asked only if somebody wants the room.
            if ended || (short && fabric.alive(rank).is_err()) {
                self.lent.lose(rank, ended);
            }
        }
    }

    /// Messages have ended.
    pub(crate) fn end(&self) {
        self.lent.end();
    }
}

/// How the memory of a node is divided where blocks are in memory: bytes for what a rank reads itself, and for what it has
/// of others. Ranks that read nothing need none of the first. Blocks of others that are looked at where they lie take no
/// memory here, and what all ranks together keep of them is to be less than what one rank that reads may lend: so the second
/// is smaller than half, if no other node has a part of the file.
pub(crate) fn budgets(memory: u64, neighbours: u64, readers: u64, one_node: bool) -> (u64, u64) {
    let far = memory / neighbours.max(1) / if one_node { 3 } else { 2 };
    // A process with two files, which these are, gives each half of the larger budget.
    (memory / readers.max(1), far)
}

/// A segment for a rank that reads blocks of so many bytes, or none; without slots if it reads nothing, so that others know it.
pub(crate) fn segment(block: u64, memory: u64, reads: bool) -> Option<Arc<Segment>> {
    let blocks = usize::try_from(memory / block.max(1)).ok()?.max(2);
    // Those that somebody may look at of whom nothing is heard any more are never used again. Slots take memory only when
    // they are used.
    let count = if reads { blocks.saturating_mul(2).saturating_add(8) } else { 0 };
    Segment::new(usize::try_from(block).ok()?, count).ok()
}
