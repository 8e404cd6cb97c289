//! Loose memory that nobody has, with its pages, for who wants some next: a fresh page costs as much as a copy.
//!
//! What an arena took in last counts among the pages that it keeps, and goes when it keeps fewer; all else is bounded by
//! [`limits::LOOSE_KEEP_FREE`]. It goes with the process.

use super::Inner;
use super::loose::Memory;
use crate::shared;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use stead_core::limits;

/// One for each generation of processes: a child may have inherited a lock that nobody there will give up.
static KEPT: [Mutex<Vec<Kept>>; 16] = [const { Mutex::new(Vec::new()) }; 16];

/// What is longer than asked for is lent if it is no more than this part longer: its pages are taken as a whole.
const LONGER: u64 = 8;

struct Kept {
    memory: Memory,
    /// Whose pages it is among.
    arena: Option<Weak<Inner>>,
}

impl Kept {
    fn is_of(&self, arena: &Arc<Inner>) -> bool {
        self.arena.as_ref().is_some_and(|of| std::ptr::eq(of.as_ptr(), Arc::as_ptr(arena)))
    }

    /// It is no longer among the pages of its arena.
    fn into_memory(self) -> Memory {
        if let Some(arena) = self.arena.and_then(|arena| arena.upgrade()) {
            arena.loose_spare.fetch_sub(self.memory.len(), Ordering::Relaxed);
        }
        self.memory
    }
}

/// `None` where nobody would be told of a fork.
fn all() -> Option<MutexGuard<'static, Vec<Kept>>> {
    let kept = KEPT.get(shared::generation()? as usize % KEPT.len())?;
    Some(kept.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Keeps memory that nobody has, if somebody may want it; the oldest goes for it.
pub(super) fn keep(mut memory: Memory) {
    if !memory.is_of_use() {
        return;
    }
    let arena = memory.adopter();
    let of = arena.as_ref().map(Arc::downgrade);
    let len = memory.len();
    {
        let Some(mut kept) = all() else { return };
        if let Some(arena) = &arena {
            arena.loose_spare.fetch_add(len, Ordering::Relaxed);
        }
        kept.push(Kept { memory, arena: of });
    }
    match arena {
        Some(arena) => {
            arena.trim(arena.keep_free.load(Ordering::Relaxed));
            if arena.is_closed() {
                // Meanwhile: it keeps nothing.
                let_go_of(&arena, 0);
            }
        }
        None => trim_others(),
    }
}

/// Memory of a folder, of so many bytes or some more.
pub(super) fn take(at: (u64, u64), len: u64) -> Option<Memory> {
    let most = len.saturating_add(len / LONGER);
    loop {
        let mut kept = all()?;
        let fits =
            |of: &Kept| of.memory.at() == Some(at) && (len..=most).contains(&of.memory.len());
        // Of those of one length the one that was used last.
        let best = kept.iter().enumerate().rev().filter(|(_, of)| fits(of));
        let best = best.min_by_key(|(_, of)| of.memory.len()).map(|(i, _)| i)?;
        let taken = kept.remove(best).into_memory();
        drop(kept);
        // The stream may be gone by whose name alone it could have got another one.
        if taken.is_of_use() {
            return Some(taken);
        }
    }
}

/// The oldest goes of what is counted among the pages of an arena, until it keeps no more than so many bytes of them.
pub(super) fn let_go_of(arena: &Arc<Inner>, keep: u64) {
    loop {
        let Some(mut kept) = all() else { return };
        if arena.loose_spare.load(Ordering::Relaxed) <= keep {
            return;
        }
        let Some(oldest) = kept.iter().position(|of| of.is_of(arena)) else { return };
        let gone = kept.remove(oldest).into_memory();
        // It takes its time to let go, so without the lock.
        drop(kept);
        drop(gone);
    }
}

/// The oldest goes of what is of no arena that still lends.
fn trim_others() {
    let is_other = |of: &Kept| {
        let arena = of.arena.as_ref().and_then(Weak::upgrade);
        arena.is_none_or(|arena| arena.is_closed())
    };
    loop {
        let Some(mut kept) = all() else { return };
        let others = kept.iter().filter(|of| is_other(of));
        if others.map(|of| of.memory.len()).sum::<u64>() <= limits::LOOSE_KEEP_FREE {
            return;
        }
        let Some(oldest) = kept.iter().position(is_other) else { return };
        let gone = kept.remove(oldest).into_memory();
        drop(kept);
        drop(gone);
    }
}

/// All of it goes: somebody has no room.
pub(super) fn clear() {
    let Some(mut kept) = all() else { return };
    let gone: Vec<Kept> = std::mem::take(&mut *kept);
    drop(kept);
    gone.into_iter().for_each(|of| drop(of.into_memory()));
}

/// Bytes that are kept here, of this folder.
#[cfg(test)]
pub(super) fn bytes(at: (u64, u64)) -> u64 {
    let kept = all().unwrap();
    kept.iter().filter(|of| of.memory.at() == Some(at)).map(|of| of.memory.len()).sum()
}
