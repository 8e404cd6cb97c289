//! Fails requests whose time is over, even while a device holds the readers. One thread for all files of the
//! process, which sleeps until the next deadline and ends when there is none.

use crate::clock;
use crate::engine::Shared;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Instant;

struct Watch {
    /// Files with requests that wait, and a time before which none of them is over.
    files: Vec<(Weak<Shared>, Instant)>,
    running: bool,
}

static WATCH: Mutex<Watch> = Mutex::new(Watch { files: Vec::new(), running: false });
static SOONER: Condvar = Condvar::new();

/// Looks after the requests of a file; the first of them is over at `at`.
///
/// False if no thread can be had, so that deadlines cannot be kept.
pub(crate) fn watch(file: &Arc<Shared>, at: Instant) -> bool {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    watch.files.push((Arc::downgrade(file), at));
    if watch.running {
        SOONER.notify_one();
        return true;
    }
    let name = "stead-deadline".to_owned();
    watch.running = std::thread::Builder::new().name(name).spawn(run).is_ok();
    watch.running
}

fn run() {
    let mut watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        let now = clock::now();
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut watch.files).into_iter().partition(|(_, at)| *at <= now);
        watch.files = later;
        if !due.is_empty() {
            // Callbacks of users run without the lock.
            drop(watch);
            let files = due.into_iter().filter_map(|(file, _)| file.upgrade());
            let next: Vec<_> =
                files.filter_map(|file| file.expire(now).map(|at| (file, at))).collect();
            watch = WATCH.lock().unwrap_or_else(PoisonError::into_inner);
            watch.files.extend(next.iter().map(|(file, at)| (Arc::downgrade(file), *at)));
            continue;
        }
        watch.files.retain(|(file, _)| file.strong_count() > 0);
        let Some(at) = watch.files.iter().map(|(_, at)| *at).min() else {
            watch.running = false;
            return;
        };
        let left = at.saturating_duration_since(now);
        watch = SOONER.wait_timeout(watch, left).unwrap_or_else(PoisonError::into_inner).0;
    }
}
