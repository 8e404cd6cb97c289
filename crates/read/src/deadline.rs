//! What has to happen at a time: requests fail at their deadlines, even while a device holds the readers, and what was
//! kept of closed files is given up. One thread for the process, which sleeps until the next time and ends when there
//! is none.

use crate::clock;
use crate::engine::Shared;
use crate::process::PerProcess;
use crate::registry;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

/// What is due.
enum Due {
    /// Deadlines of requests of a file.
    Requests(Weak<Shared>),
    /// Blocks of closed files.
    Kept,
}

#[derive(Default)]
struct Watch {
    /// Ordered by time; the number is that of the file, 0 for closed files.
    due: BTreeMap<(Instant, u64), Due>,
    running: bool,
}

static WATCH: PerProcess<(Mutex<Watch>, Condvar)> = PerProcess::new();

/// Looks after the requests of a file at `at`, in place of `instead`.
///
/// False if no thread can be had, so that deadlines cannot be kept.
pub(crate) fn watch(file: &Arc<Shared>, at: Instant, instead: Option<Instant>) -> bool {
    let mut watch = lock();
    if let Some(before) = instead {
        watch.due.remove(&(before, file.id()));
    }
    watch.due.insert((at, file.id()), Due::Requests(Arc::downgrade(file)));
    see_to(watch, at)
}

/// A file that is watched until `at` is no more.
pub(crate) fn unwatch(id: u64, at: Instant) {
    lock().due.remove(&(at, id));
}

/// Gives up at `at` what is kept of closed files. False if no thread can be had.
pub(crate) fn watch_kept(at: Instant) -> bool {
    let mut watch = lock();
    watch.due.insert((at, 0), Due::Kept);
    see_to(watch, at)
}

/// True if what is kept of closed files is given up at `at`.
#[cfg(test)]
pub(crate) fn watches_kept(at: Instant) -> bool {
    lock().due.contains_key(&(at, 0))
}

fn lock() -> std::sync::MutexGuard<'static, Watch> {
    WATCH.get().0.lock().unwrap_or_else(PoisonError::into_inner)
}

fn see_to(mut watch: std::sync::MutexGuard<'_, Watch>, at: Instant) -> bool {
    if cfg!(feature = "shuttle") {
        // Models say themselves when the time has come.
        watch.due.clear();
        return true;
    }
    if watch.running {
        if watch.due.first_key_value().is_some_and(|((first, _), _)| *first == at) {
            WATCH.get().1.notify_one();
        }
        return true;
    }
    let name = "stead-deadline".to_owned();
    watch.running = std::thread::Builder::new().name(name).spawn(run).is_ok();
    watch.running
}

fn run() {
    let mut watch = lock();
    while let Some(((at, _), _)) = watch.due.first_key_value() {
        let now = clock::now();
        if *at > now {
            let left = at.saturating_duration_since(now);
            let sooner = &WATCH.get().1;
            watch = sooner.wait_timeout(watch, left).unwrap_or_else(PoisonError::into_inner).0;
            continue;
        }
        let Some((_, due)) = watch.due.pop_first() else { break };
        // Functions of users are called without the lock.
        drop(watch);
        match due {
            Due::Kept => registry::give_up(now),
            Due::Requests(file) => {
                if let Some(file) = file.upgrade() {
                    file.expire(now);
                }
            }
        }
        watch = lock();
    }
    watch.running = false;
}
