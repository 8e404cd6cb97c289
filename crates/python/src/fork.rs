//! Processes that were forked: threads and locks stay with the parent, so that its sessions are of no use in the child.

use crate::errors::raise;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};
use stead::Error;

/// Forks between this process and the first one.
static GENERATION: AtomicU32 = AtomicU32::new(0);

/// Called in the child after each fork.
#[pyfunction]
pub fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// Tells what was made in this process from what was inherited.
pub fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// # Errors
/// `Usage` for a read session that was begun before a fork.
pub fn check(born: u32) -> PyResult<()> {
    refuse(
        born,
        "this read session was begun",
        "begin one in each process; they share what is read all the same",
    )
}

/// # Errors
/// `Usage`, with what it is and what to do, for what was made before a fork.
pub fn refuse(born: u32, what: &str, hint: &'static str) -> PyResult<()> {
    if born == generation() {
        return Ok(());
    }
    Err(raise(Error::usage(format!("{what} in another process, before a fork")).with_hint(hint)))
}

/// Drops what may take long to end without the interpreter's lock.
pub fn end<T: Send>(what: T) {
    let mut what = Some(what);
    // Without an interpreter it is dropped here.
    let _ = Python::try_attach(|py| py.detach(|| drop(what.take())));
}
