//! One at a time, and who waits for that does not wait for ever.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What one at a time may do.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// Somebody's turn, until this is dropped.
#[derive(Debug)]
pub(crate) struct Taken<'t>(&'t Turn);

impl Turn {
    /// Waits for it for so long at most; none if others had it until then.
    pub(crate) fn take(&self, most: Duration) -> Option<Taken<'_>> {
        let waited = self.free.wait_timeout_while(self.is_taken(), most, |taken| *taken);
        let (mut taken, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!std::mem::replace(&mut *taken, true)).then(|| Taken(self))
    }

    fn is_taken(&self) -> MutexGuard<'_, bool> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.is_taken() = false;
        self.0.free.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_comes_second_waits_for_the_first_and_no_longer_than_it_wants() {
        let turn = Turn::default();
        let first = turn.take(Duration::ZERO).unwrap();
        assert!(turn.take(Duration::from_millis(1)).is_none());
        std::thread::scope(|scope| {
            let second = scope.spawn(|| turn.take(Duration::from_secs(60)).is_some());
            drop(first);
            assert!(second.join().unwrap());
        });
        assert!(turn.take(Duration::ZERO).is_some());
    }
}
