//! The places that this process has, in any table. A program that is run by `execve` is the same process to all others as the
//! one before it, and only it knows which places are not its own.

use super::seats::pause;
use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, TryLockError};

/// A lock that a thread had when its process was forked stays taken in the child.
const TRIES: usize = 20;

/// Process, memory, place.
type Places = Option<HashSet<(u32, u64, usize)>>;

static OWN: Mutex<Places> = Mutex::new(None);

fn own() -> Option<MutexGuard<'static, Places>> {
    for _ in 0..TRIES {
        match OWN.try_lock() {
            Ok(own) => return Some(own),
            Err(TryLockError::Poisoned(own)) => return Some(own.into_inner()),
            Err(TryLockError::WouldBlock) => pause(),
        }
    }
    None
}

/// It has a place. False if that cannot be noted.
pub(super) fn add(memory: u64, place: usize) -> bool {
    let Some(mut own) = own() else { return false };
    own.get_or_insert_default().insert((std::process::id(), memory, place));
    true
}

/// It gives a place up, by `leave`.
pub(super) fn remove(memory: u64, place: usize, leave: impl FnOnce()) {
    let own = own();
    leave();
    if let Some(mut own) = own {
        own.get_or_insert_default().remove(&(std::process::id(), memory, place));
    }
}

/// Of places that have the number of this process, those that are not its own.
pub(super) fn others(memory: u64, places: Vec<usize>) -> Vec<usize> {
    let Some(own) = own() else { return Vec::new() };
    let has = |place: &usize| {
        own.as_ref().is_some_and(|own| own.contains(&(std::process::id(), memory, *place)))
    };
    places.into_iter().filter(|place| !has(place)).collect()
}
