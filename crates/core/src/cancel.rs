//! A flag that says "stop", shared by all who work on one request.

use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A cancellation token: clones share one flag. Checking it costs one relaxed load, and one more for each token above it.
#[derive(Debug, Clone, Default)]
pub struct Cancel {
    flag: Arc<AtomicBool>,
    above: Option<Arc<Cancel>>,
}

impl Cancel {
    /// A token that nobody has cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// A token of its own for a part of the work: it is cancelled with this one, and this one not with it.
    #[must_use]
    pub fn below(&self) -> Cancel {
        Cancel { flag: Arc::default(), above: Some(Arc::new(self.clone())) }
    }

    /// Asks everyone who holds the token to stop soon. Safe to call from a signal handler.
    pub fn cancel(&self) {
        self.flag.store(true, Ordering::Relaxed);
    }

    /// True after [`Cancel::cancel`], of this token or of one above it.
    pub fn is_cancelled(&self) -> bool {
        self.flag.load(Ordering::Relaxed)
            || self.above.as_ref().is_some_and(|above| above.is_cancelled())
    }

    /// An error of kind `Cancelled` after [`Cancel::cancel`].
    pub fn check(&self) -> Result<()> {
        if self.is_cancelled() { Err(Error::cancelled()) } else { Ok(()) }
    }

    /// The flag itself, for signal handlers that want to set it.
    pub fn flag(&self) -> Arc<AtomicBool> {
        self.flag.clone()
    }
}

/// What stops those who work on data for one request after the other: a flag for all of them, and that of each request under way.
#[derive(Debug, Clone, Default)]
pub struct Stops {
    all: Cancel,
    current: Arc<Mutex<Current>>,
}

/// Requests under way, mostly one, by numbers that are not used again.
#[derive(Debug, Default)]
struct Current {
    next: u64,
    requests: Vec<(u64, Cancel)>,
}

impl Stops {
    /// With this flag for all requests.
    pub fn new(all: Cancel) -> Self {
        Stops { all, current: Arc::default() }
    }

    fn current(&self) -> MutexGuard<'_, Current> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An error of kind `Cancelled` if the flag for all is set, or that of each request under way: what is read for several at once
    /// is read as long as one of them wants it.
    ///
    /// # Errors
    /// That one.
    pub fn check(&self) -> Result<()> {
        self.all.check()?;
        let requests = &self.current().requests;
        if !requests.is_empty() && requests.iter().all(|(_, request)| request.is_cancelled()) {
            return Err(Error::cancelled());
        }
        Ok(())
    }

    /// A request is under way with this flag until what is returned is dropped.
    pub fn during(&self, request: &Cancel) -> During<'_> {
        let mut current = self.current();
        let number = current.next;
        current.next += 1;
        current.requests.push((number, request.clone()));
        During(self, number)
    }
}

/// See [`Stops::during`].
#[derive(Debug)]
pub struct During<'s>(&'s Stops, u64);

impl Drop for During<'_> {
    fn drop(&mut self) {
        self.0.current().requests.retain(|(number, _)| *number != self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_stopped_with_the_whole_and_the_whole_not_with_a_part() {
        let all = Cancel::new();
        let (a, b) = (all.below(), all.below());
        a.cancel();
        assert!(a.check().is_err() && a.clone().is_cancelled());
        assert!(all.check().is_ok() && b.check().is_ok());
        let deep = b.below();
        all.cancel();
        assert!(b.is_cancelled() && deep.check().is_err());
    }

    #[test]
    fn what_several_requests_read_is_read_as_long_as_one_of_them_goes_on() {
        let (all, a, b) = (Cancel::new(), Cancel::new(), Cancel::new());
        let stops = Stops::new(all.clone());
        let first = stops.during(&a);
        let second = stops.during(&b);
        a.cancel();
        assert!(stops.check().is_ok());
        drop(second);
        assert!(stops.check().is_err());
        drop(first);
        assert!(stops.check().is_ok());
        all.cancel();
        assert!(stops.check().is_err());
    }
}
