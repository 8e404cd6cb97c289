//! Sources that are open before their turn comes, so that the device is asked for their bytes ahead.

use crate::held::{Held, Holds};
use std::fs::File;
use stead_core::Result;

/// Sources that are held.
static ASKED: Holds = Holds::new(8, 0);

/// A source of which the device was asked for the first bytes.
pub(crate) struct Asked {
    file: File,
    _held: Held,
}

impl Asked {
    /// Opens a source and has the device asked for so many bytes of it, without waiting. `None` if too many are held, or it cannot be
    /// opened, which who opens it next is told.
    pub(crate) fn of(open: impl FnOnce() -> Result<File>, len: usize) -> Option<Asked> {
        let held = ASKED.one()?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_one_that_cannot_be_opened_nor_one_that_was_taken_is_held_for_good() {
        for _ in 0..ASKED.most().min(10_000) + 10 {
            assert!(Asked::of(|| Err(stead_core::Error::usage("no")), 1).is_none());
            let asked = Asked::of(|| Ok(File::open("/dev/null").unwrap()), 1).unwrap();
            assert!(asked.taken().metadata().is_ok());
        }
    }
}
