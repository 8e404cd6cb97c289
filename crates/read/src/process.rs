//! What there is one of in a process, also in one that was forked: threads are not forked with it, and a lock that one
//! of them had stays taken for ever. So a forked process has things of its own.

use std::path::Path;
use std::sync::OnceLock;
use stead_core::Error;

/// The error for what a fork has left of the other process.
pub(crate) fn inherited(path: &Path) -> Error {
    Error::usage("the file was opened in another process, before a fork")
        .at_path(path)
        .with_hint("open it in each process")
}

/// A process, its parent, that one's parent, ... may each use sessions, so many in all.
const GENERATIONS: usize = 32;

/// One `T` for each process.
pub(crate) struct PerProcess<T>([OnceLock<(u32, T)>; GENERATIONS]);

impl<T: Default> PerProcess<T> {
    pub(crate) const fn new() -> Self {
        PerProcess([const { OnceLock::new() }; GENERATIONS])
    }

    /// That of this process. In the last of too many generations it is that of an ancestor.
    pub(crate) fn get(&self) -> &T {
        let me = std::process::id();
        let [first, rest @ ..] = &self.0;
        let mut slot = first.get_or_init(|| (me, T::default()));
        for next in rest {
            if slot.0 == me {
                break;
            }
            slot = next.get_or_init(|| (me, T::default()));
        }
        &slot.1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_process_finds_its_own_again() {
        static COUNT: PerProcess<AtomicUsize> = PerProcess::new();
        COUNT.get().fetch_add(1, Ordering::Relaxed);
        assert_eq!(COUNT.get().fetch_add(1, Ordering::Relaxed), 1);
        // An ancestor's lies before it.
        static LATER: PerProcess<AtomicUsize> = PerProcess::new();
        let stranger = std::process::id().wrapping_add(1);
        assert!(LATER.0[0].set((stranger, AtomicUsize::new(7))).is_ok());
        assert_eq!(LATER.get().fetch_add(1, Ordering::Relaxed), 0);
        assert_eq!(LATER.get().load(Ordering::Relaxed), 1);
    }
}
