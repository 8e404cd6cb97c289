//! A forked child looks at the same memory as its parent, who would use it again for other blocks once the parent no longer
//! refers to them. So what somebody has a view of at that moment stays as it is for as long as the parent has the commons.
//!
//! Other threads go on meanwhile, and get views. So all that is referred to stays until the child is there, and then only that of
//! which there was a view at some time since.

use super::Commons;
use super::seats::pause;
use std::cell::Cell;
use std::sync::{Arc, Mutex, Once, TryLockError, Weak};

/// A lock that a thread had when its process was forked stays taken in the child.
const TRIES: usize = 20;

static ALL: Mutex<Vec<Weak<Commons>>> = Mutex::new(Vec::new());

/// What stays of each until the child is there, as [`Commons::stay`] gives it.
type Stays = Vec<(Weak<Commons>, Vec<(usize, u64)>)>;

thread_local! {
    /// Of the fork that this thread is about to make.
    static STAYS: Cell<Stays> = const { Cell::new(Vec::new()) };
}

/// Sees to it for one more.
pub(super) fn watch(commons: &Arc<Commons>) {
    static HANDLER: Once = Once::new();
    HANDLER.call_once(|| {
        // SAFETY: functions that do not unwind, and none for the child.
        let _ = unsafe { libc::pthread_atfork(Some(before), Some(after), None) };
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
    stay(&all);
}

/// Keeps what is referred to, for [`after`].
pub(super) fn stay(all: &[Arc<Commons>]) {
    let own = all.iter().filter(|commons| commons.is_own());
    let stays: Stays = own.map(|commons| (Arc::downgrade(commons), commons.stay())).collect();
    // In a thread that is about to end it all stays.
    let _ = STAYS.try_with(|of| of.set(stays));
}

/// Called in the same thread of the parent, once the child is there.
pub(super) extern "C" fn after() {
    let stays = STAYS.try_with(Cell::take).unwrap_or_default();
    for (commons, unseen) in stays {
        if let Some(commons) = commons.upgrade() {
            commons.forked(&unseen);
        }
    }
}
