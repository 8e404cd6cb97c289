//! The end of the interpreter. It ends threads that ask for its lock then, amid the frames of this library, which ends the process:
//! threads other than the main one do not ask any more, and stay where they are.

use crate::fork;
use crate::request::is_main_thread;
use pyo3::prelude::*;
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};

/// The interpreter is about to end.
static OVER: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this is the main thread, since so many forks.
    static MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// It is about to end. Called by the main thread.
pub fn begin() {
    OVER.store(true, Ordering::SeqCst);
}

/// True once it is about to end.
pub fn has_begun() -> bool {
    OVER.load(Ordering::SeqCst)
}

/// True in the main thread, whose the signals are.
pub fn is_main(py: Python<'_>) -> bool {
    let now = fork::generation();
    if let Some((_, main)) = MAIN.get().filter(|(then, _)| *then == now) {
        return main;
    }
    let main = is_main_thread(py).unwrap_or(true);
    MAIN.set(Some((now, main)));
    main
}

/// The same without the interpreter's lock, of threads that have had it. Those of this library are none.
pub fn is_known_as_main() -> bool {
    MAIN.get().is_some_and(|(_, main)| main)
}

/// For threads of the interpreter that are about to take its lock again.
fn stay_at_the_end() {
    while MAIN.get().is_some_and(|(_, main)| !main) && has_begun() {
        std::thread::park();
    }
}

/// Works without the interpreter's lock.
pub fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> T + Send) -> T {
    is_main(py);
    py.detach(|| {
        let done = work();
        stay_at_the_end();
        done
    })
}

/// Works with the interpreter's lock, which this thread has not. A thread of this library may have it until the interpreter ends in earnest:
/// what is registered to be called at its end works as ever.
pub fn attached<T>(work: impl FnOnce(Python<'_>) -> T) -> T {
    stay_at_the_end();
    if let Some(done) = Python::try_attach(work) {
        return done;
    }
    loop {
        std::thread::park();
    }
}
