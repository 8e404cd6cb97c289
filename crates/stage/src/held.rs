//! Descriptors that transfers hold longer than they would have to. Of those that the process may have, all transfers together hold few so: what there
//! is to be opened otherwise cannot wait.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Descriptors that a process of our own has at most: more would be held by nothing.
const MOST_FILES: u64 = 1 << 16;

/// Lets this process have many descriptors, as far as the system does: what starts one often gives it a limit that a few users, or many small files,
/// reach. It is for programs of our own, as others may not stand descriptors beyond the limit that they know.
pub fn raise_files() {
    let now = getrlimit(Resource::Nofile);
    let most = now.maximum.map_or(MOST_FILES, |most| most.min(MOST_FILES));
    if now.current.is_some_and(|current| current < most) {
        // Without it fewer are served at a time.
        let _ = setrlimit(Resource::Nofile, Rlimit { current: Some(most), ..now });
    }
}

/// So many of one kind are held by all transfers of this process.
pub(crate) struct Holds {
    held: AtomicUsize,
    /// Of so many descriptors one may be held,
    one_of: u64,
    /// but for so many.
    but: u64,
    most: OnceLock<usize>,
}

/// One that is held.
pub(crate) struct Held(&'static Holds);

impl Holds {
    pub(crate) const fn new(one_of: u64, but: u64) -> Holds {
        Holds { held: AtomicUsize::new(0), one_of, but, most: OnceLock::new() }
    }

    /// So many may be held, as was found when it was asked first: it is asked for each file.
    pub(crate) fn most(&self) -> usize {
        let of = |n: u64| usize::try_from((n / self.one_of).saturating_sub(self.but));
        let found = || getrlimit(Resource::Nofile).current.map_or(Ok(usize::MAX), of);
        *self.most.get_or_init(|| found().unwrap_or(usize::MAX))
    }

    /// Holds one more; `None` if there are as many as may be.
    pub(crate) fn one(&'static self) -> Option<Held> {
        self.of(self.most())
    }

    fn of(&'static self, most: usize) -> Option<Held> {
        let room = |n: usize| (n < most).then_some(n + 1);
        self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok().map(|_| Held(self))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_held_and_room_comes_back() {
        static SOME: Holds = Holds::new(8, 1);
        let both: Vec<_> = (0..2).filter_map(|_| SOME.of(usize::MAX)).collect();
        assert!(both.len() == 2 && SOME.of(0).is_none() && SOME.of(2).is_none());
        drop(both);
        assert!(SOME.of(1).is_some());
        static NONE: Holds = Holds::new(1, u64::MAX);
        assert!(NONE.one().is_none() && SOME.most() > 0);
    }
}
