//! A forked child looks at the same memory as its parent, who would use it again for other blocks once the parent no longer
//! refers to them. So what is referred to at that moment stays as it is for as long as the parent has the commons.

use super::Commons;
use super::seats::pause;
use std::sync::{Arc, Mutex, Once, TryLockError, Weak};

/// A lock that a thread had when its process was forked stays taken in the child.
const TRIES: usize = 20;

static ALL: Mutex<Vec<Weak<Commons>>> = Mutex::new(Vec::new());

/// Sees to it for one more.
pub(super) fn watch(commons: &Arc<Commons>) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: a function that does not unwind, and none for what comes after.
        let _ = unsafe { libc::pthread_atfork(Some(before), None, None) };
    });
    if let Some(mut all) = all() {
        all.retain(|c| c.strong_count() > 0);
        all.push(Arc::downgrade(commons));
    }
}

fn all() -> Option<std::sync::MutexGuard<'static, Vec<Weak<Commons>>>> {
    for _ in 0..TRIES {
        match ALL.try_lock() {
            Ok(all) => return Some(all),
            Err(TryLockError::Poisoned(all)) => return Some(all.into_inner()),
            Err(TryLockError::WouldBlock) => pause(),
        }
    }
    None
}

/// Called in the thread that forks, before it does.
extern "C" fn before() {
    let all: Vec<Arc<Commons>> =
        all().iter().flat_map(|all| all.iter()).filter_map(Weak::upgrade).collect();
    // Perhaps the last who have one, so without the lock.
    all.iter().filter(|commons| commons.is_own()).for_each(|commons| commons.stay());
}
