//! Files without a name, which get one when they are whole.

use crate::Folder;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, linkat, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use stead_core::{Error, Result};

/// False once a file could get a name by its path alone.
static BY_ITSELF: AtomicBool = AtomicBool::new(true);

impl Folder {
    /// Makes a new file without a name, which goes when it is closed unless it was [given](Folder::name_file) one; `None` where the file system
    /// has no such files.
    ///
    /// # Errors
    /// System errors.
    pub fn unnamed_file(&self, mode: u32) -> Result<Option<File>> {
        let flags = OFlags::RDWR | OFlags::TMPFILE | OFlags::CLOEXEC;
        match openat(self, ".", flags, Mode::from_raw_mode(mode)) {
            Ok(file) => Ok(Some(File::from(file))),
            // What file systems say, and systems, that do not know the flag.
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::ISDIR | Errno::INVAL) => Ok(None),
            Err(e) => Err(Error::io("make a file in", self.shown(), e.into())),
        }
    }

    /// Gives a file that is open one more name, here. One that had names and lost all of them gets none.
    ///
    /// # Errors
    /// `Usage` if the name is taken; system errors otherwise.
    pub fn name_file(&self, file: impl AsFd, name: &OsStr) -> Result<()> {
        let file = file.as_fd();
        let named = match BY_ITSELF.load(Ordering::Relaxed) {
            // It is also what a folder that is gone says.
            true => by_itself(self, file, name).or_else(|e| match e {
                Errno::NOENT => by_path(self, file, name)
                    .inspect(|()| BY_ITSELF.store(false, Ordering::Relaxed)),
                e => Err(e),
            }),
            false => by_path(self, file, name),
        };
        named.map_err(|e| self.failed("give the name to", name, e))
    }
}

/// Since Linux 6.10 who has opened it may, before only who may do anything.
fn by_itself(folder: &Folder, file: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    linkat(file, "", folder, name, AtFlags::EMPTY_PATH)
}

/// Where there is a /proc; it takes longer.
fn by_path(folder: &Folder, file: BorrowedFd<'_>, name: &OsStr) -> rustix::io::Result<()> {
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    linkat(CWD, path, folder, name, AtFlags::SYMLINK_FOLLOW)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use stead_core::Kind;

    #[test]
    fn a_file_gets_a_name_by_itself_or_by_its_path() {
        let dir = tempfile::tempdir().unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        let Some(mut file) = folder.unnamed_file(0o600).unwrap() else { return };
        file.write_all(b"whole").unwrap();
        let seen = || std::fs::read_dir(dir.path()).unwrap().count();
        assert_eq!(seen(), 0);
        by_path(&folder, file.as_fd(), OsStr::new("a")).unwrap();
        // Where that cannot be, the other way is gone.
        let itself = by_itself(&folder, file.as_fd(), OsStr::new("b"));
        folder.name_file(&file, OsStr::new("c")).unwrap();
        assert_eq!(seen(), 2 + usize::from(itself.is_ok()));
        assert_eq!(std::fs::read(dir.path().join("a")).unwrap(), b"whole");
        let taken = folder.name_file(&file, OsStr::new("a")).unwrap_err();
        assert_eq!(taken.kind(), Kind::Usage);
        let gone = folder.make(OsStr::new("d"), true).unwrap().0;
        folder.remove_folder(OsStr::new("d")).unwrap();
        assert_eq!(gone.name_file(&file, OsStr::new("e")).unwrap_err().kind(), Kind::NotFound);
    }
}
