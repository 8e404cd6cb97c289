//! Locks and threads: those of the standard library, or those of a scheduler that tries many interleavings
//! (feature `shuttle`, for tests).

#[cfg(feature = "shuttle")]
pub(crate) use shuttle::{
    sync::atomic::{AtomicBool, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};
use std::sync::PoisonError;
use std::time::Duration;
#[cfg(not(feature = "shuttle"))]
pub(crate) use std::{
    sync::atomic::{AtomicBool, fence},
    sync::{Condvar, Mutex, MutexGuard},
    thread,
};

/// Locks. A panic of somebody who had the lock is no reason to stop: what it guards is whole between any two steps.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification.
pub(crate) fn wait<'a, T>(condvar: &Condvar, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
    condvar.wait(guard).unwrap_or_else(PoisonError::into_inner)
}

/// Waits for a notification, so long at most. True if the time is over.
#[cfg(not(feature = "shuttle"))]
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    _mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    time: Duration,
) -> (MutexGuard<'a, T>, bool) {
    let (guard, late) = condvar.wait_timeout(guard, time).unwrap_or_else(PoisonError::into_inner);
    (guard, late.timed_out())
}

/// In a model, time is over at once or never.
#[cfg(feature = "shuttle")]
pub(crate) fn wait_for<'a, T>(
    condvar: &Condvar,
    mutex: &'a Mutex<T>,
    guard: MutexGuard<'a, T>,
    _time: Duration,
) -> (MutexGuard<'a, T>, bool) {
    use shuttle::rand::Rng;
    if shuttle::rand::thread_rng().gen_bool(0.5) {
        // Others may come in between, as if the time had passed while nobody held the lock.
        drop(guard);
        thread::yield_now();
        return (lock(mutex), true);
    }
    (wait(condvar, guard), false)
}
