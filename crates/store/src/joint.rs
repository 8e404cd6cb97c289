//! Files that several processes, maybe on several hosts, write together.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use stead_core::{Error, Kind, Result};

/// An [`AtomicFile`](crate::AtomicFile) of another process, found by its temporary name. Whoever made it gives it its real
/// name, or removes it.
#[derive(Debug)]
pub struct JointFile {
    /// As the user named it.
    path: PathBuf,
    temporary: PathBuf,
    file: File,
}

impl JointFile {
    /// Opens the file that is `temporary` now and will be `path`, if it begins with `mark`: so another file of that name on
    /// another file system is told from it.
    ///
    /// # Errors
    /// `Usage` if it is not there, or another one; system errors otherwise.
    pub fn open(path: &Path, temporary: &Path, mark: &[u8]) -> Result<JointFile> {
        let other = || {
            Error::usage("another rank writes here, and this one does not see its file")
                .at_path(path)
                .with_hint("what several ranks write together must be on a file system that all of them see")
        };
        let file = match OpenOptions::new().read(true).write(true).open(temporary) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Err(other()),
            Err(e) => return Err(Error::io("open", path, e)),
        };
        let mut found = vec![0; mark.len()];
        match file.read_exact_at(&mut found, 0) {
            Ok(()) if found == mark => {
                Ok(JointFile { path: path.to_owned(), temporary: temporary.to_owned(), file })
            }
            _ => Err(other()),
        }
    }

    /// The file that has the name `temporary` now, if it is `file`.
    pub(crate) fn of(path: &Path, temporary: &Path, file: &File) -> Result<JointFile> {
        let failed = |e| Error::io("open", path, e);
        let again = OpenOptions::new().read(true).write(true).open(temporary).map_err(failed)?;
        let place = |f: &File| f.metadata().map(|m| (m.dev(), m.ino())).map_err(failed);
        if place(&again)? != place(file)? {
            return Err(Error::new(Kind::Changed, "another file has its temporary name")
                .at_path(path)
                .with_hint("run again when nobody writes to the directory"));
        }
        Ok(JointFile { path: path.to_owned(), temporary: temporary.to_owned(), file: again })
    }

    /// Opens the file anew: on network file systems it then sees what other hosts have written and closed.
    ///
    /// # Errors
    /// `Changed` if another file has the name now; system errors otherwise.
    pub fn again(&self) -> Result<JointFile> {
        Self::of(&self.path, &self.temporary, &self.file)
    }

    /// Writes `bytes` at `offset`.
    ///
    /// # Errors
    /// `NoSpace` if the device or the quota is full; `Io` otherwise.
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let failed = |e| Error::io("write", &self.path, e).at_offset(offset);
        self.file.write_all_at(bytes, offset).map_err(failed)
    }

    /// Makes what was written visible to other hosts, and durable.
    ///
    /// # Errors
    /// As [`JointFile::write_at`].
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| Error::io("write", &self.path, e))
    }

    /// Removes the temporary name, for whoever made it has ended.
    pub fn remove(&self) {
        let _ = std::fs::remove_file(&self.temporary);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::AtomicFile;

    #[test]
    fn a_file_is_written_by_two() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut first = AtomicFile::create(&path).unwrap();
        first.write_at(0, b"mark").unwrap();
        first.sync().unwrap();
        let second = JointFile::open(&path, first.temporary(), b"mark").unwrap();
        first.clear().unwrap();
        first.write_all(b"here and").unwrap();
        second.write_at(8, b" there").unwrap();
        second.sync().unwrap();
        second.again().unwrap().write_at(0, b"H").unwrap();
        first.again().unwrap().write_at(5, b"A").unwrap();
        first.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"Here And there");
    }

    #[test]
    fn another_file_is_no_joint_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let first = AtomicFile::create(&path).unwrap();
        for mark in [&b"mark"[..], b"else"] {
            let e = JointFile::open(&path, first.temporary(), mark).unwrap_err();
            assert_eq!(e.kind(), Kind::Usage);
            first.write_at(0, b"mark").unwrap();
        }
        let gone = first.temporary().to_owned();
        drop(first);
        assert_eq!(JointFile::open(&path, &gone, b"mark").unwrap_err().kind(), Kind::Usage);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
