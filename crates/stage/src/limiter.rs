//! No more bytes a second than somebody wants.

use crate::clock::Watch;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Result};

/// Shared by the threads of a transfer.
#[derive(Debug)]
pub(crate) struct Limiter {
    per_second: Option<f64>,
    watch: Watch,
    /// When, on the watch, the bytes that were taken so far will have gone.
    free: Mutex<f64>,
}

/// Bytes may go early by so much: threads take turns.
const AHEAD_S: f64 = 0.05;
/// Who waits looks so often whether it is to stop.
const LOOK: Duration = Duration::from_millis(50);

impl Limiter {
    pub(crate) fn new(per_second: Option<u64>) -> Limiter {
        Limiter {
            per_second: per_second.map(|n| n.max(1) as f64),
            watch: Watch::start(),
            free: Mutex::new(0.0),
        }
    }

    /// True if there is a limit.
    pub(crate) fn is_bound(&self) -> bool {
        self.per_second.is_some()
    }

    /// Waits until so many bytes may go.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(crate) fn take(&self, bytes: usize, cancel: &Cancel) -> Result<()> {
        let Some(per_second) = self.per_second else { return cancel.check() };
        let turn = {
            let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
            // What nobody has used is not saved up.
            let from = free.max(self.watch.seconds() - AHEAD_S);
            *free = from + bytes as f64 / per_second;
            from
        };
        loop {
            cancel.check()?;
            let wait = turn - self.watch.seconds();
            if wait <= 0.0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_secs_f64(wait).min(LOOK));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_no_faster_than_they_may() {
        let limiter = Limiter::new(Some(10_000_000));
        let watch = Watch::start();
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| (0..10).for_each(|_| limiter.take(100_000, &cancel).unwrap()));
            }
        });
        // 4 MB at 10 MB/s; the last one goes when those before it have.
        assert!(watch.seconds() > 0.3, "{}", watch.seconds());
        cancel.cancel();
        assert!(
            limiter.take(1 << 40, &cancel).is_err() && Limiter::new(None).take(1, &cancel).is_err()
        );
    }
}
