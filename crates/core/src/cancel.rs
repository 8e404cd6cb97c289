//! A flag that says "stop", shared by all who work on one request.

use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cancellation token: clones share one flag. Checking it costs one relaxed load.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// A token that nobody has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks everyone who holds the token to stop soon. Safe to call from a signal handler.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// True after [`Cancel::cancel`].
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// An error of kind `Cancelled` after [`Cancel::cancel`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled()) } else { Ok(()) }
    }

    /// The flag itself, for signal handlers that want to set it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }
}

/// What stops those who work on data for one request after the other: a flag for all of them, and that of the request under way.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    all: Cancel,
    current: Arc<Mutex<Option<Cancel>>>,
}

impl Stops {
    /// With this flag for all requests.
    pub fn new(all: Cancel) -> Self {
        Stops { all, current: Arc::default() }
    }

    fn current(&self) -> MutexGuard<'_, Option<Cancel>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error of kind `Cancelled` if either flag is set.
    ///
    /// # Errors
    /// That one.
    pub fn check(&self) -> Result<()> {
        self.all.check()?;
        self.current().as_ref().map_or(Ok(()), Cancel::check)
    }

    /// A request is under way with this flag until what is returned is dropped.
    pub fn during(&self, request: &Cancel) -> During<'_> {
        *self.current() = Some(request.clone());
        During(self)
    }
}

/// See [`Stops::during`].
#[derive(Debug)]
pub struct During<'s>(&'s Stops);

impl Drop for During<'_> {
    fn drop(&mut self) {
        *self.0.current() = None;
    }
}
