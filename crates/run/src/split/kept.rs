//! What a rank has in memory of a split: blocks of chunks that it has computed on before.

use super::Given;
use crate::cache::{Cache, Kepts};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use stead_core::Needs;

/// Pieces by the rank that holds them and their first byte, with the byte after the last one.
type Pieces = BTreeMap<(u32, u64), (u64, Arc<Kepts>)>;

/// See the module's documentation.
#[derive(Default)]
pub struct Kept {
    pieces: Mutex<Pieces>,
    /// Bytes that all of them take.
    used: Arc<AtomicU64>,
}

impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Kept({} bytes)", self.used.load(std::sync::atomic::Ordering::Relaxed))
    }
}

impl Kept {
    /// For blocks of one chunk, within what all chunks may take.
    pub fn room(&self, needs: &Needs, most: u64) -> Option<Cache> {
        Cache::beside(needs, most, self.used.clone())
    }

    pub fn put(&self, given: &Given, kepts: Kepts) {
        let mut pieces = self.lock();
        pieces.insert((given.rank, given.part.start), (given.part.end, Arc::new(kepts)));
    }

    /// All of a part, if it is here and serves these needs.
    pub fn get(&self, given: &Given, needs: &Needs) -> Option<Vec<Arc<Kepts>>> {
        let all = pieces(&self.lock(), given.rank, &given.part)?;
        all.iter().all(|kepts| kepts.serves(needs)).then_some(all)
    }

    /// True if all of a part is here.
    pub fn has(&self, rank: u32, part: &Range<u64>) -> bool {
        pieces(&self.lock(), rank, part).is_some()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Pieces> {
        self.pieces.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pieces that a part is made of, if all are here.
fn pieces(all: &Pieces, rank: u32, part: &Range<u64>) -> Option<Vec<Arc<Kepts>>> {
    let (mut at, mut found) = (part.start, Vec::new());
    for ((_, start), (end, kepts)) in all.range((rank, part.start)..(rank, part.end)) {
        if *start != at || *end > part.end {
            return None;
        }
        found.push(kepts.clone());
        at = *end;
    }
    (at == part.end).then_some(found)
}
