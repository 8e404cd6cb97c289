//! Sources that are open before their turn comes, so that the device is asked for their bytes ahead. Of the descriptors that the process may
//! have, all transfers together hold few so: what there is to be opened otherwise cannot wait.

use rustix::process::{Resource, getrlimit};
use std::fs::File;
use std::sync::atomic::{AtomicUsize, Ordering};
use stead_core::Result;

/// Of so many descriptors one may be held by a source of which the device was asked.
const ONE_OF: u64 = 8;

/// Sources that are held.
static HELD: AtomicUsize = AtomicUsize::new(0);

/// A source of which the device was asked for the first bytes.
pub(crate) struct Asked {
    file: File,
    _held: Held,
}

/// One of [`HELD`].
struct Held;

impl Held {
    fn of(most: usize) -> Option<Held> {
        let room = |n: usize| (n < most).then_some(n + 1);
        HELD.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).ok().map(|_| Held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        HELD.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Asked {
    /// Opens a source and has the device asked for so many bytes of it, without waiting. `None` if too many are held, or it cannot be
    /// opened, which who opens it next is told.
    pub(crate) fn of(open: impl FnOnce() -> Result<File>, len: usize) -> Option<Asked> {
        let held = Held::of(most())?;
        let file = open().ok()?;
        stead_store::will_need(&file, 0, len);
        Some(Asked { file, _held: held })
    }

    /// The file, whose turn has come.
    pub(crate) fn taken(self) -> File {
        self.file
    }

    #[cfg(test)]
    pub(crate) fn file(&self) -> &File {
        &self.file
    }
}

fn most() -> usize {
    let most = getrlimit(Resource::Nofile).current;
    most.map_or(usize::MAX, |n| usize::try_from(n / ONE_OF).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_are_held_and_room_comes_back() {
        let both: Vec<_> = (0..2).filter_map(|_| Held::of(usize::MAX)).collect();
        assert!(both.len() == 2 && Held::of(0).is_none() && Held::of(2).is_none());
        drop(both);
        // Neither one that cannot be opened nor one that was taken is held for good.
        for _ in 0..most().min(10_000) + 10 {
            assert!(Asked::of(|| Err(stead_core::Error::usage("no")), 1).is_none());
            let asked = Asked::of(|| Ok(File::open("/dev/null").unwrap()), 1).unwrap();
            assert!(asked.taken().metadata().is_ok());
        }
    }
}
