//! A flag that says "stop", shared by all who work on one request.

use crate::{Error, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
