//! One thread at a time, and others that wait for it with an end.

use crate::clock;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Instant;

/// See the module's documentation.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    is_taken: Mutex<bool>,
    over: Condvar,
}

/// Somebody's turn, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'t>(&'t Turn);

impl Turn {
    /// Waits for it; `None` if it has not come until then.
    pub(crate) fn take(&self, until: Instant) -> Option<Taken<'_>> {
        let mut is_taken = self.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        while *is_taken {
            let left = until.saturating_duration_since(clock::now());
            if left.is_zero() {
                return None;
            }
            let waited = self.over.wait_timeout(is_taken, left);
            is_taken = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        *is_taken = true;
        Some(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.over.notify_one();
    }
}
