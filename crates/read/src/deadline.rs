//! What has to happen at a time: requests fail at their deadlines, even while a device holds the readers, and what was
//! kept of closed files is given up. One thread for the process, which sleeps until the next time and ends when there
//! is none.

use crate::clock;
use crate::engine::Shared;
use crate::process::PerProcess;
use crate::registry;
use std::collections::BTreeMap;
use std::io;
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
/// # Errors
/// That of the system if no thread can be had, so that deadlines cannot be kept: all is as before then.
pub(crate) fn watch(file: &Arc<Shared>, at: Instant, instead: Option<Instant>) -> io::Result<()> {
    let mut watch = lock();
    start(&mut watch)?;
    if let Some(before) = instead {
        watch.due.remove(&(before, file.id()));
    }
    watch.due.insert((at, file.id()), Due::Requests(Arc::downgrade(file)));
    see_to(watch, at);
    Ok(())
}

/// A file that is watched until `at` is no more.
pub(crate) fn unwatch(id: u64, at: Instant) {
    lock().due.remove(&(at, id));
}

/// Gives up at `at` what is kept of closed files. False if no thread can be had.
pub(crate) fn watch_kept(at: Instant) -> bool {
    let mut watch = lock();
    if start(&mut watch).is_err() {
        return false;
    }
    watch.due.insert((at, 0), Due::Kept);
    see_to(watch, at);
    true
}

/// True if what is kept of closed files is given up at `at`.
#[cfg(test)]
pub(crate) fn watches_kept(at: Instant) -> bool {
    lock().due.contains_key(&(at, 0))
}

fn lock() -> std::sync::MutexGuard<'static, Watch> {
    WATCH.get().0.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the thread, which looks at what is due once the lock is free.
fn start(watch: &mut Watch) -> io::Result<()> {
    #[cfg(test)]
    if NO_THREADS.get() {
        return Err(io::ErrorKind::WouldBlock.into());
    }
    // Models say themselves when the time has come.
    if !watch.running && !cfg!(feature = "shuttle") {
        let name = "stead-deadline".to_owned();
        std::thread::Builder::new().name(name).spawn(run)?;
        watch.running = true;
    }
    Ok(())
}

/// Something is due at `at` from now on.
fn see_to(mut watch: std::sync::MutexGuard<'_, Watch>, at: Instant) {
    if cfg!(feature = "shuttle") {
        watch.due.clear();
    } else if watch.due.first_key_value().is_some_and(|((first, _), _)| *first == at) {
        WATCH.get().1.notify_one();
    }
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

#[cfg(test)]
thread_local! {
    /// Nobody looks after deadlines for this thread, as if no other thread could be had.
    pub(crate) static NO_THREADS: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}
