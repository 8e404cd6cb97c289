//! Blocks kept in memory for the later passes of iterative kernels.
//!
//! Some kernels say that another pass will follow, and from the second pass on it is known that there are
//! kernels that go round. If all that they need is numbers (and the places of records), the filtered blocks of
//! that pass are kept, and the passes after it are fed from memory: no reading, no parsing, no filtering. A
//! dataset whose numbers do not fit the budget is read again in every pass; where that shows early, little is kept until then.
//! What the budget leaves is for notes that kernels make about blocks.

use crate::pass::Keep;
use std::mem::{size_of, size_of_val};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use stead_core::block::{Note, Notes};
use stead_core::{Block, Columns, Needs, Result, Span, Value};
use stead_format::{Progress, Scan, Worker};

/// Blocks of one pass. As a [`Scan`] it hands them out again.
pub struct Cache {
    needs: Needs,
    /// Bytes that it may take.
    budget: u64,
    used: Arc<AtomicU64>,
    /// Nothing else takes of the budget, so that it can be foreseen whether it will do.
    alone: bool,
    /// Set when the budget was too small: nothing is kept then.
    full: AtomicBool,
    blocks: Mutex<Vec<Kept>>,
}

struct Kept {
    source: u32,
    seq: u64,
    offset: u64,
    last: bool,
    rows: usize,
    records: Vec<Span>,
    numbers: Vec<f64>,
    notes: Pinned,
    /// That it takes, but for notes.
    bytes: u64,
}

/// The part of the budget that must be taken before it is foreseen whether all will fit.
const SEEN: u64 = 16;

impl Drop for Kept {
    fn drop(&mut self) {
        let notes = self.notes.notes.get_mut().unwrap_or_else(PoisonError::into_inner);
        let notes: u64 = notes.iter().map(|(_, _, bytes)| *bytes as u64).sum();
        self.notes.used.fetch_sub(self.bytes + notes, Ordering::Relaxed);
    }
}

/// Notes about one block.
#[derive(Debug)]
struct Pinned {
    /// Who made each, and the bytes that it takes.
    notes: Mutex<Vec<(u64, Note, usize)>>,
    budget: u64,
    /// Shared by all blocks, which take from it too.
    used: Arc<AtomicU64>,
}

impl Notes for Pinned {
    fn take(&self, owner: u64) -> Option<Note> {
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        let at = notes.iter().position(|n| n.0 == owner)?;
        let (_, note, bytes) = notes.swap_remove(at);
        self.used.fetch_sub(bytes as u64, Ordering::Relaxed);
        Some(note)
    }

    fn room(&self, bytes: usize) -> bool {
        self.used.load(Ordering::Relaxed).saturating_add(bytes as u64) <= self.budget
    }

    fn put(&self, owner: u64, note: Note, bytes: usize) {
        let size = bytes as u64;
        if self.used.fetch_add(size, Ordering::Relaxed).saturating_add(size) > self.budget {
            self.used.fetch_sub(size, Ordering::Relaxed);
            return;
        }
        let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
        notes.push((owner, note, bytes));
    }
}

impl Cache {
    /// A cache for blocks that satisfy `needs`, if it can be one.
    pub fn new(needs: &Needs, budget: u64) -> Option<Cache> {
        Cache::beside(needs, budget, Arc::default()).map(|cache| Cache { alone: true, ..cache })
    }

    /// One of several that take so many bytes together, of which they have `used` some.
    pub fn beside(needs: &Needs, budget: u64, used: Arc<AtomicU64>) -> Option<Cache> {
        let numbers_only =
            !needs.bytes && needs.brick.is_none() && !needs.matrix && needs.texts.is_empty();
        (numbers_only && !needs.numbers.is_empty()).then(|| Cache {
            needs: needs.clone(),
            budget,
            used,
            alone: false,
            full: AtomicBool::new(false),
            blocks: Mutex::new(Vec::new()),
        })
    }

    /// What was kept, ready to be scanned; `None` if it was not all.
    pub fn ready(self) -> Option<Kepts> {
        if self.full.into_inner() {
            return None;
        }
        let mut blocks = self.blocks.into_inner().unwrap_or_else(PoisonError::into_inner);
        blocks.sort_by_key(|b| b.seq);
        Some(Kepts { needs: self.needs, blocks })
    }

    /// What is kept is let go, and nothing more is kept.
    fn give_up(&self) {
        self.full.store(true, Ordering::Relaxed);
        self.lock().clear();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Kept>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keep for Cache {
    /// Keeps a copy of `block`, unless the budget has been reached.
    fn keep(&self, block: &Block<'_>) -> Result<()> {
        if self.full.load(Ordering::Relaxed) {
            return Ok(());
        }
        let values = block.rows * self.needs.numbers.len();
        let records = if self.needs.records { block.records } else { &[] };
        let bytes = values * size_of::<f64>() + size_of_val(records);
        let bytes = (bytes + size_of::<Kept>()) as u64;
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes > self.budget {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            self.give_up();
            return Ok(());
        }
        let mut numbers = Vec::with_capacity(values);
        for id in &self.needs.numbers {
            numbers.extend_from_slice(block.numbers(*id));
        }
        let kept = Kept {
            source: block.source,
            seq: block.seq,
            offset: block.offset,
            last: block.last,
            rows: block.rows,
            records: records.to_vec(),
            numbers,
            notes: Pinned {
                notes: Mutex::new(Vec::new()),
                budget: self.budget,
                used: self.used.clone(),
            },
            bytes,
        };
        self.lock().push(kept);
        Ok(())
    }

    /// Gives up when blocks are of a size of which all would take twice the budget.
    fn hears(&self, part: f64) {
        if !self.alone || self.full.load(Ordering::Relaxed) {
            return;
        }
        let (used, budget) = (self.used.load(Ordering::Relaxed), self.budget);
        if used > budget / SEEN && used as f64 > 2.0 * budget as f64 * part {
            self.give_up();
        }
    }
}

/// All blocks of a pass, in file order.
pub struct Kepts {
    needs: Needs,
    blocks: Vec<Kept>,
}

impl Kepts {
    /// True if kernels with these needs can be fed from here.
    pub fn serves(&self, needs: &Needs) -> bool {
        self.needs.includes(needs)
    }

    /// A pass over the blocks.
    pub fn scan(&self) -> KeptScan<'_> {
        Kepts::scan_of([self])
    }

    /// A pass over the blocks of several.
    pub fn scan_of<'k>(all: impl IntoIterator<Item = &'k Kepts>) -> KeptScan<'k> {
        let blocks: Vec<_> =
            all.into_iter().flat_map(|k| k.blocks.iter().map(|b| (&k.needs, b))).collect();
        let total = blocks.iter().map(|(_, b)| b.numbers_bytes()).sum();
        KeptScan { blocks, next: AtomicU64::new(0), progress: Progress::default(), total }
    }
}

impl Kept {
    fn numbers_bytes(&self) -> u64 {
        (self.numbers.len() * size_of::<f64>()) as u64
    }
}

/// A pass over kept blocks.
pub struct KeptScan<'k> {
    blocks: Vec<(&'k Needs, &'k Kept)>,
    next: AtomicU64,
    progress: Progress,
    total: u64,
}

impl Scan for KeptScan<'_> {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(KeptWorker(self)))
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn total_bytes(&self) -> u64 {
        self.total
    }

    fn plan(&self) -> Vec<(String, Value)> {
        Vec::new()
    }
}

struct KeptWorker<'s>(&'s KeptScan<'s>);

impl Worker for KeptWorker<'_> {
    fn next(&mut self) -> Result<Option<Block<'_>>> {
        let scan = self.0;
        let i = scan.next.fetch_add(1, Ordering::Relaxed);
        let Some((needs, b)) = usize::try_from(i).ok().and_then(|i| scan.blocks.get(i)) else {
            return Ok(None);
        };
        Progress::add(&scan.progress.bytes, b.numbers_bytes());
        Progress::add(&scan.progress.rows, b.rows as u64);
        Ok(Some(Block {
            source: b.source,
            seq: b.seq,
            offset: b.offset,
            last: b.last,
            rows: b.rows,
            records: &b.records,
            columns: Columns {
                number_ids: &needs.numbers,
                numbers: &b.numbers,
                stride: b.rows,
                ..Columns::default()
            },
            notes: Some(&b.notes),
            ..Block::empty()
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seq: u64, values: &[f64]) -> Block<'_> {
        Block {
            seq,
            rows: values.len(),
            columns: Columns {
                number_ids: &[3],
                numbers: values,
                stride: values.len(),
                ..Columns::default()
            },
            ..Block::empty()
        }
    }

    #[test]
    fn blocks_come_back_in_order() {
        let needs = Needs { numbers: vec![3], ..Needs::default() };
        let cache = Cache::new(&needs, 10_000).expect("cache");
        cache.keep(&block(5, &[5.0, 6.0])).expect("kept");
        cache.keep(&block(2, &[2.0])).expect("kept");
        let kepts = cache.ready().expect("all kept");
        assert!(kepts.serves(&needs));
        assert!(!kepts.serves(&Needs { records: true, ..needs.clone() }));
        let scan = kepts.scan();
        let mut worker = scan.worker().expect("worker");
        let mut seen = Vec::new();
        while let Some(b) = worker.next().expect("next") {
            seen.push((b.seq, b.numbers(3).to_vec()));
        }
        assert_eq!(seen, [(2, vec![2.0]), (5, vec![5.0, 6.0])]);
    }

    #[test]
    fn blocks_of_which_all_would_be_too_many_are_not_kept() {
        let needs = Needs { numbers: vec![3], ..Needs::default() };
        let cache = |alone| Cache { alone, ..Cache::new(&needs, 16_000).expect("cache") };
        let used = |cache: &Cache| {
            cache.keep(&block(1, &[1.0; 100])).expect("kept");
            cache.hears(0.1);
            cache.keep(&block(2, &[1.0; 100])).expect("kept");
            cache.hears(0.1);
            cache.used.load(Ordering::Relaxed)
        };
        let fits = cache(true);
        assert!(used(&fits) > 1600 && fits.ready().is_some());
        let long = cache(true);
        assert!(used(&long) > 1600);
        long.hears(0.01);
        assert_eq!(used(&long), 0);
        assert!(long.ready().is_none());
        let beside = cache(false);
        assert!(used(&beside) > 1600);
        beside.hears(0.01);
        assert!(beside.ready().is_some());
    }

    #[test]
    fn notes_stay_with_their_block_and_in_the_budget() {
        let needs = Needs { numbers: vec![3], ..Needs::default() };
        let cache = Cache::new(&needs, 2000).expect("cache");
        cache.keep(&block(1, &[1.0])).expect("kept");
        cache.keep(&block(2, &[2.0])).expect("kept");
        let kepts = cache.ready().expect("all kept");
        let notes = |i: usize| -> &dyn Notes { &kepts.blocks[i].notes };
        notes(0).put(7, Box::new("first"), 100);
        notes(1).put(7, Box::new("second"), 100);
        notes(1).put(8, Box::new("other"), 100);
        assert!(notes(0).room(500) && !notes(0).room(2000));
        notes(0).put(9, Box::new("too large"), 2000);
        assert!(notes(0).take(9).is_none() && notes(0).room(500));
        let text = |i, owner| notes(i).take(owner).and_then(|n| n.downcast_ref::<&str>().copied());
        assert_eq!(
            [text(0, 7), text(1, 7), text(1, 8)],
            [Some("first"), Some("second"), Some("other")]
        );
        assert_eq!(text(0, 7), None);
    }

    #[test]
    fn several_take_no_more_than_one_may_and_give_it_back() {
        let needs = Needs { numbers: vec![3], ..Needs::default() };
        let used = Arc::new(AtomicU64::new(0));
        let beside = || Cache::beside(&needs, 1000, used.clone()).expect("cache");
        let (first, second) = (beside(), beside());
        first.keep(&block(1, &[1.0; 50])).expect("no error");
        let taken = used.load(Ordering::Relaxed);
        assert!((400..1000).contains(&taken));
        second.keep(&block(2, &[1.0; 10])).expect("no error");
        second.keep(&block(3, &[1.0; 50])).expect("no error");
        assert!(second.ready().is_none());
        assert_eq!(used.load(Ordering::Relaxed), taken, "what is not kept takes nothing");
        let kepts = first.ready().expect("kept");
        kepts.blocks[0].notes.put(7, Box::new("note"), 100);
        assert_eq!(used.load(Ordering::Relaxed), taken + 100);
        let third = beside();
        third.keep(&block(4, &[4.0])).expect("no error");
        let third = third.ready().expect("kept");
        let all: Vec<u64> =
            Kepts::scan_of([&kepts, &third]).blocks.iter().map(|b| b.1.seq).collect();
        assert_eq!(all, [1, 4]);
        drop((kepts, third));
        assert_eq!(used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn what_does_not_fit_is_not_kept() {
        let needs = Needs { numbers: vec![3], ..Needs::default() };
        let cache = Cache::new(&needs, 100).expect("cache");
        cache.keep(&block(1, &[0.0; 50])).expect("no error");
        assert!(cache.ready().is_none());
        assert!(Cache::new(&Needs { bytes: true, ..needs }, 100).is_none());
    }
}
