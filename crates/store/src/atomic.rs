//! Files that appear whole or not at all.

use rustix::fs::Advice;
use std::ffi::OsString;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{ErrorKind, Seek, Write};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Result};

/// Temporary files of this process that were neither committed nor removed yet.
static PENDING: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// The longest name that common file systems take, in bytes.
const NAME_MAX: usize = 255;

/// So many bytes are on their way to the device before the next ones are written, so that the commit has little to wait for.
const BEGIN_BYTES: u64 = 8 << 20;

/// A file that is written under a hidden temporary name in its own directory and gets its real name, in
/// place of whatever had it, when it is whole.
///
/// Dropped without [`AtomicFile::commit`], it leaves nothing. The descriptor is closed on exec.
#[derive(Debug)]
pub struct AtomicFile {
    /// As the user named it.
    path: PathBuf,
    /// Where the name leads, links followed: what is replaced.
    target: PathBuf,
    /// In the same directory as `target`; in `PENDING` as long as `self` lives.
    temporary: PathBuf,
    file: File,
    /// Bytes written by [`AtomicFile::write_all`], which is where it goes on.
    end: u64,
    /// Bytes that the system was asked to begin to write to the device.
    begun: u64,
}

impl AtomicFile {
    /// Creates the temporary file. Nothing with the name `path` is touched before the commit.
    ///
    /// # Errors
    /// `Usage` if `path` is a directory, a device or a pipe, or names no file; system errors otherwise.
    pub fn create(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let (target, old) = resolve(&path)?;
        let Some(name) = target.file_name() else {
            return Err(Error::usage("this does not name a file").at_path(&path));
        };
        loop {
            let n = NUMBER.fetch_add(1, Ordering::Relaxed);
            let temporary = target.with_file_name(temporary_name(name, n));
            match OpenOptions::new().read(true).write(true).create_new(true).open(&temporary) {
                Ok(file) => {
                    pending().push(temporary.clone());
                    let this = AtomicFile { path, target, temporary, file, end: 0, begun: 0 };
                    if let Some(old) = old {
                        this.file
                            .set_permissions(old.permissions())
                            .map_err(|e| Error::io("set the permissions of", &this.path, e))?;
                    }
                    return Ok(this);
                }
                // Left by a killed process whose number came round again; take the next one.
                Err(e) if e.kind() == ErrorKind::AlreadyExists => {}
                Err(e) => return Err(cannot_create(&path, &target, e)),
            }
        }
    }

    /// A file for work in progress on the file system of `path`, in the same directory. It has no name, so that nothing is
    /// left of it however the process ends, and none to get: it is not for [`AtomicFile::commit`].
    ///
    /// # Errors
    /// As [`AtomicFile::create`].
    pub fn scratch(path: impl Into<PathBuf>) -> Result<Self> {
        let this = Self::create(path)?;
        std::fs::remove_file(&this.temporary).map_err(|e| this.failed("make", e))?;
        forget(&this.temporary);
        Ok(this)
    }

    /// The name that the file has now, under which other processes find it: see [`crate::JointFile`].
    pub fn temporary(&self) -> &Path {
        &self.temporary
    }

    /// Empties the file.
    ///
    /// # Errors
    /// System errors.
    pub fn clear(&mut self) -> Result<()> {
        self.file.set_len(0).map_err(|e| self.failed("write", e))?;
        self.file.rewind().map_err(|e| self.failed("write", e))?;
        (self.end, self.begun) = (0, 0);
        Ok(())
    }

    /// Makes what was written so far visible to other hosts, and durable.
    ///
    /// # Errors
    /// As [`AtomicFile::write_all`].
    pub fn sync(&self) -> Result<()> {
        self.file.sync_all().map_err(|e| self.failed("write", e))
    }

    /// The name the file will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes written by [`AtomicFile::write_all`] so far.
    pub fn written(&self) -> u64 {
        self.end
    }

    /// Appends `bytes`.
    ///
    /// # Errors
    /// `NoSpace` if the device or the quota is full; `Io` otherwise.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        self.file.write_all(bytes).map_err(|e| self.failed("write", e).at_offset(self.end))?;
        self.end += bytes.len() as u64;
        let waiting = self.end - self.begun;
        if waiting >= BEGIN_BYTES {
            // A hint that Linux answers by beginning to write; pages on their way stay in the cache meanwhile.
            let _ = rustix::fs::fadvise(
                &self.file,
                self.begun,
                NonZeroU64::new(waiting),
                Advice::DontNeed,
            );
            self.begun = self.end;
        }
        Ok(())
    }

    /// Writes `bytes` at `offset` and leaves the place where [`AtomicFile::write_all`] goes on. Threads
    /// may do it at the same time.
    ///
    /// # Errors
    /// As [`AtomicFile::write_all`].
    pub fn write_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(bytes, offset).map_err(|e| self.failed("write", e).at_offset(offset))
    }

    /// Fills `buf` from `offset` of what was written: for files that hold work in progress.
    pub fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        self.file
            .read_exact_at(buf, offset)
            .map_err(|e| Error::io("read back", &self.temporary, e).at_offset(offset))
    }

    /// Makes the bytes durable, then the name.
    ///
    /// # Errors
    /// On any error the old file, if there was one, is as it was, and the temporary one is gone.
    pub fn commit(self) -> Result<()> {
        self.file.sync_all().map_err(|e| self.failed("write", e))?;
        self.rename()?;
        let parent = self.target.parent().filter(|p| !p.as_os_str().is_empty());
        let dir = parent.unwrap_or(Path::new("."));
        match File::open(dir).and_then(|d| d.sync_all()) {
            // Some network file systems cannot sync directories; the name is there all the same.
            Err(e) if !matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::Unsupported) => {
                Err(self.failed("sync the directory of", e))
            }
            _ => Ok(()),
        }
    }

    /// As [`AtomicFile::commit`], without waiting for the device: for hints, which may be lost or empty after the machine failed.
    ///
    /// # Errors
    /// As [`AtomicFile::commit`].
    pub fn commit_hint(self) -> Result<()> {
        self.rename()
    }

    fn rename(&self) -> Result<()> {
        std::fs::rename(&self.temporary, &self.target).map_err(|e| self.failed("rename", e))?;
        forget(&self.temporary);
        Ok(())
    }

    fn failed(&self, doing: &str, e: std::io::Error) -> Error {
        let full = matches!(e.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded);
        let e = Error::io(doing, &self.path, e);
        if full {
            e.with_hint("free some space or write elsewhere; nothing half-written was left")
        } else {
            e
        }
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        // After a commit the name is no longer pending, and the temporary file is the real one.
        if forget(&self.temporary) {
            let _ = std::fs::remove_file(&self.temporary);
        }
    }
}

/// Removes the temporary files of every [`AtomicFile`] that this process has not committed: for programs
/// that end without running destructors, such as on a second Ctrl-C. Not for signal handlers (it locks).
pub fn remove_unfinished() {
    for path in pending().drain(..) {
        let _ = std::fs::remove_file(path);
    }
}

fn pending() -> MutexGuard<'static, Vec<PathBuf>> {
    PENDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// True if `path` was still pending.
fn forget(path: &Path) -> bool {
    let mut list = pending();
    let found = list.iter().position(|p| p == path);
    if let Some(i) = found {
        list.swap_remove(i);
    }
    found.is_some()
}

fn cannot_create(path: &Path, target: &Path, e: std::io::Error) -> Error {
    let kind = e.kind();
    let e = Error::io("create", path, e);
    let dir = match target.parent() {
        Some(p) if !p.as_os_str().is_empty() => p,
        _ => Path::new("."),
    };
    match kind {
        ErrorKind::NotFound => e.with_hint(format!("there is no directory '{}'", dir.display())),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => e.with_hint(format!(
            "files cannot be made in '{}'; name one in another directory",
            dir.display()
        )),
        _ => e,
    }
}

/// What would be replaced: links are followed, so that a link stays a link.
fn resolve(path: &Path) -> Result<(PathBuf, Option<Metadata>)> {
    // /dev/stdout and its like may lead to a regular file, which would be replaced behind its writer's back.
    let system = |dir| path.starts_with(dir) && !path.starts_with("/dev/shm");
    if system("/dev") || system("/proc") {
        return Err(Error::usage("cannot write: this is a device, not a file")
            .at_path(path)
            .with_hint("name a file to be created or replaced"));
    }
    match std::fs::metadata(path) {
        Ok(m) if m.is_file() => {
            let target = std::fs::canonicalize(path).map_err(|e| Error::io("open", path, e))?;
            Ok((target, Some(m)))
        }
        Ok(m) => {
            let what = if m.is_dir() { "a directory" } else { "no regular file" };
            Err(Error::usage(format!("cannot write: this is {what}"))
                .at_path(path)
                .with_hint("name a file to be created or replaced"))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => {
            if std::fs::symlink_metadata(path).is_ok() {
                return Err(Error::usage("cannot write: this is a link that leads nowhere")
                    .at_path(path)
                    .with_hint("remove the link or name another file"));
            }
            if path.as_os_str().as_encoded_bytes().ends_with(b"/") {
                return Err(Error::usage("cannot write: this names a directory, not a file")
                    .at_path(path)
                    .with_hint("add a file name"));
            }
            Ok((path.to_path_buf(), None))
        }
        Err(e) => Err(Error::io("create", path, e)),
    }
}

fn temporary_name(name: &std::ffi::OsStr, n: u64) -> OsString {
    let tail = format!(".stead-{}-{n}.tmp", std::process::id());
    let room = NAME_MAX.saturating_sub(tail.len() + 1);
    let mut out = OsString::from(".");
    if name.len() <= room {
        out.push(name);
    }
    out.push(tail);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use stead_core::Kind;

    fn listing(dir: &Path) -> Vec<String> {
        let mut v: Vec<_> = std::fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        v.sort();
        v
    }

    #[test]
    fn a_file_appears_whole() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::write(&path, b"old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).unwrap();
        let mut f = AtomicFile::create(&path).unwrap();
        f.write_all(b"????world").unwrap();
        f.write_at(0, b"hey ").unwrap();
        f.write_all(b"!").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(f.written(), 10);
        f.commit().unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"hey world!");
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o640);
        assert_eq!(listing(dir.path()), ["out"]);
    }

    #[test]
    fn a_dropped_file_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut f = AtomicFile::create(&path).unwrap();
        f.write_all(b"half").unwrap();
        assert_eq!(listing(dir.path()).len(), 1);
        drop(f);
        assert!(listing(dir.path()).is_empty());
    }

    #[test]
    fn scratch_has_no_name_and_can_be_written_and_read() {
        let dir = tempfile::tempdir().unwrap();
        let mut f = AtomicFile::scratch(dir.path().join("out")).unwrap();
        assert!(listing(dir.path()).is_empty());
        f.write_all(b"in progress").unwrap();
        let mut back = [0; 8];
        f.read_at(3, &mut back).unwrap();
        assert_eq!(&back, b"progress");
        f.clear().unwrap();
        f.write_all(b"on").unwrap();
        assert!(f.read_at(0, &mut back).is_err() && f.written() == 2);
    }

    #[test]
    fn links_are_written_through_and_long_names_work() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("real"), b"old").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        let mut f = AtomicFile::create(&link).unwrap();
        f.write_all(b"new").unwrap();
        f.commit().unwrap();
        assert!(std::fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(std::fs::read(dir.path().join("real")).unwrap(), b"new");
        let long = dir.path().join("n".repeat(255));
        AtomicFile::create(&long).unwrap().commit().unwrap();
        assert!(long.exists());
    }

    #[test]
    fn what_is_no_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let kind = |p: PathBuf| AtomicFile::create(p).unwrap_err().kind();
        assert_eq!(kind(dir.path().into()), Kind::Usage);
        assert_eq!(kind(dir.path().join("new/")), Kind::Usage);
        assert_eq!(kind("/dev/null".into()), Kind::Usage);
        assert_eq!(kind(dir.path().join("no/dir")), Kind::NotFound);
        assert!(listing(dir.path()).is_empty());
    }

    #[test]
    fn a_full_device_is_said_so() {
        // /dev/full takes no byte; it stands in for a file system without space.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut f = AtomicFile::create(&path).unwrap();
        f.file = full;
        let e = f.write_all(b"x").unwrap_err();
        assert_eq!(e.kind(), Kind::NoSpace);
        drop(f);
        assert!(listing(dir.path()).is_empty());
    }
}
