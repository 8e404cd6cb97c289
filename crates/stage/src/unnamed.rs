//! Small files that have no name until they are whole: nobody sees them before, and whoever is killed leaves nothing of them.
//!
//! They stay open until they get their name, and so hold a descriptor each: where a process may have few, or the file system has no such files, they have
//! temporary names as others do. What takes the place of something has one, too, since a file without a name cannot.

use crate::held::{Held, Holds};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stead_core::{Error, Kind, Result};
use stead_store::Folder;

/// Files that are held: those of two batches, where a process may have as many descriptors as systems let it.
static UNNAMED: Holds = Holds::new(4, 128);

/// Whether files of a transfer are made so.
#[derive(Clone)]
pub(crate) struct Unnamed(Arc<AtomicBool>);

/// A file without a name.
pub(crate) struct Nameless {
    file: Arc<File>,
    all: Unnamed,
    _held: Held,
}

impl Unnamed {
    pub(crate) fn new() -> Unnamed {
        Unnamed(Arc::new(AtomicBool::new(true)))
    }

    /// Makes one that is to get its name in this folder; none where it is to have a temporary name.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn create(&self, folder: &Folder, mode: u32) -> Result<Option<Nameless>> {
        if !self.0.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let Some(held) = UNNAMED.one() else { return Ok(None) };
        let Some(file) = folder.unnamed_file(mode)? else {
            self.0.store(false, Ordering::Relaxed);
            return Ok(None);
        };
        Ok(Some(Nameless { file: Arc::new(file), all: self.clone(), _held: held }))
    }
}

impl Nameless {
    pub(crate) fn file(&self) -> Arc<File> {
        self.file.clone()
    }

    /// Gives it its name.
    ///
    /// # Errors
    /// `Usage` if something has it; one that may pass where the system does not let it have one, after which files have temporary names; system
    /// errors otherwise.
    pub(crate) fn name(self, folder: &Folder, name: &OsStr) -> Result<()> {
        let named = folder.name_file(&*self.file, name);
        let cannot = |e: &Error| {
            let full =
                matches!(e.os_code().map(Errno::from_raw_os_error), Some(Errno::IO | Errno::ROFS));
            !full && !matches!(e.kind(), Kind::Usage | Kind::NoSpace)
        };
        named.map_err(|e| match cannot(&e) {
            true => {
                self.all.0.store(false, Ordering::Relaxed);
                Error::io("give the name to", folder.at(name), Errno::AGAIN.into())
            }
            false => e,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn nobody_sees_a_file_before_it_has_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, all) = (Folder::open(dir.path()).unwrap(), Unnamed::new());
        let make = || all.create(&folder, 0o640).unwrap();
        let Some(file) = make() else { return };
        (&*file.file()).write_all(b"whole").unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        file.name(&folder, OsStr::new("f")).unwrap();
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"whole");
        // What has the name keeps it, and a file that gets none is gone.
        let e = make().unwrap().name(&folder, OsStr::new("f")).unwrap_err();
        assert_eq!(e.kind(), Kind::Usage);
        drop(make());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        assert_eq!(std::fs::read(dir.path().join("f")).unwrap(), b"whole");
    }

    #[test]
    fn where_files_cannot_get_names_so_the_next_ones_have_temporary_ones() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("d");
        std::fs::create_dir(&inner).unwrap();
        let (folder, all) = (Folder::open(&inner).unwrap(), Unnamed::new());
        let Some(file) = all.create(&folder, 0o600).unwrap() else { return };
        std::fs::remove_dir(&inner).unwrap();
        let e = file.name(&folder, OsStr::new("f")).unwrap_err();
        assert!(crate::copy::may_pass(&e), "{e}");
        let other = Folder::open(dir.path()).unwrap();
        assert!(all.create(&other, 0o600).unwrap().is_none());
    }
}
