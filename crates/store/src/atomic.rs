//! Files that appear whole or not at all.

use crate::JointFile;
use crate::going;
use rustix::fs::{AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata, Permissions};
use std::io::{ErrorKind, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Kind, Result};

/// Temporary files of this process that were neither committed nor removed yet, and which process that is: those of the process that
/// it was forked from are not its own.
static PENDING: Mutex<(u32, Vec<Name>)> = Mutex::new((0, Vec::new()));
static NUMBER: AtomicU64 = AtomicU64::new(0);
/// The longest name that common file systems take, in bytes.
const NAME_MAX: usize = 255;

/// So many bytes are on their way to the device before the next ones are written, so that the commit has little to wait for.
const BEGIN_BYTES: u64 = 8 << 20;

/// A name in a folder that is open, or in the working directory.
#[derive(Debug, Clone)]
struct Name {
    folder: Option<Arc<OwnedFd>>,
    path: PathBuf,
}

impl Name {
    fn folder(&self) -> BorrowedFd<'_> {
        self.folder.as_ref().map_or(CWD, |folder| folder.as_fd())
    }

    fn remove(&self) {
        let _ = rustix::fs::unlinkat(self.folder(), &self.path, AtFlags::empty());
    }

    fn is(&self, other: &Name) -> bool {
        let same = match (&self.folder, &other.folder) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b),
            (a, b) => a.is_none() && b.is_none(),
        };
        same && self.path == other.path
    }

    /// The folder, to make names in it durable; `None` where it may be written and not read, so that nobody can.
    fn open_folder(&self) -> std::io::Result<Option<OwnedFd>> {
        let parent = self.path.parent().filter(|p| !p.as_os_str().is_empty());
        let parent = parent.unwrap_or(Path::new("."));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::openat(self.folder(), parent, flags, Mode::empty()) {
            Ok(folder) => Ok(Some(folder)),
            Err(Errno::ACCESS) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }
}

/// What new bytes keep of the rights of those that they replace: not that others run them as their owner.
const RIGHTS: u32 = 0o777;

/// A file that is written under a hidden temporary name in its own directory and gets its real name, in
/// place of whatever had it, when it is whole.
///
/// Dropped without [`AtomicFile::commit`], it leaves nothing, but for the copy that a process has which was forked since: that is nothing
/// of the file. The descriptor is closed on exec.
#[derive(Debug)]
pub struct AtomicFile {
    /// As the user named it.
    path: PathBuf,
    /// Where the name leads, links followed: what is replaced.
    target: Name,
    /// In the same directory as `target`; in `PENDING` as long as `self` lives.
    temporary: Name,
    file: File,
    /// The rights of the file that is replaced.
    rights: Option<Permissions>,
    /// No file is replaced.
    new: bool,
    /// The temporary name is no longer in `PENDING`, and there.
    named: bool,
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
        let dir = match target.parent() {
            Some(p) if !p.as_os_str().is_empty() => p.to_owned(),
            _ => PathBuf::from("."),
        };
        let target = Name { folder: None, path: target };
        Self::beside(path, target, old.map(|m| m.permissions()), &dir)
    }

    /// As [`AtomicFile::create`], in a folder that is open, whatever its name leads to by now. `shown` is what errors name.
    /// There must be no file `name` yet, neither now nor at the commit.
    ///
    /// # Errors
    /// `Usage` if there is one; system errors otherwise.
    pub fn create_in(folder: &Arc<OwnedFd>, name: &OsStr, shown: PathBuf) -> Result<Self> {
        let dir = shown.parent().unwrap_or(Path::new(".")).to_owned();
        if rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
            return Err(exists(&shown));
        }
        let target = Name { folder: Some(folder.clone()), path: PathBuf::from(name) };
        Ok(Self::beside(shown, target, None, &dir)?.only_new())
    }

    /// As [`AtomicFile::create_in`], in place of a file of this name, if there is one. No link is followed.
    ///
    /// # Errors
    /// `Permission` if the name is a link; `Usage` if it is neither free nor a file's; system errors otherwise.
    pub fn replace_in(folder: &Arc<OwnedFd>, name: &OsStr, shown: PathBuf) -> Result<Self> {
        let dir = shown.parent().unwrap_or(Path::new(".")).to_owned();
        let old = match rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(there) => match FileType::from_raw_mode(there.st_mode) {
                FileType::RegularFile => Some(Permissions::from_mode(there.st_mode & RIGHTS)),
                FileType::Symlink => {
                    return Err(Error::new(
                        Kind::Permission,
                        "this is a link, which is not followed",
                    )
                    .at_path(shown)
                    .with_hint("remove the link, or name where it leads"));
                }
                _ => {
                    return Err(Error::usage("cannot write: this is no regular file")
                        .at_path(shown)
                        .with_hint("name a file to be created or replaced"));
                }
            },
            Err(Errno::NOENT) => None,
            Err(e) => return Err(Error::io("look at", shown, e.into())),
        };
        let target = Name { folder: Some(folder.clone()), path: PathBuf::from(name) };
        Self::beside(shown, target, old, &dir)
    }

    /// The file as it is written, for those who write by themselves.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn beside(path: PathBuf, target: Name, old: Option<Permissions>, dir: &Path) -> Result<Self> {
        let Some(name) = target.path.file_name() else {
            return Err(Error::usage("this does not name a file").at_path(&path));
        };
        // Whoever else writes to the file opens it by its name, which the rights of the old one may not allow.
        let mode = old.as_ref().map_or(0o666, |p| p.mode() & RIGHTS | 0o600);
        loop {
            let n = NUMBER.fetch_add(1, Ordering::Relaxed);
            let temporary = target.path.with_file_name(temporary_name(name, n));
            let temporary = Name { folder: target.folder.clone(), path: temporary };
            let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            match rustix::fs::openat(
                temporary.folder(),
                &temporary.path,
                flags,
                // From its beginning on: what others open they read for as long as they like.
                Mode::from_raw_mode(mode),
            ) {
                Ok(file) => {
                    pending().1.push(temporary.clone());
                    let this = AtomicFile {
                        path,
                        target,
                        temporary,
                        file: File::from(file),
                        rights: old,
                        new: false,
                        named: false,
                        end: 0,
                        begun: 0,
                    };
                    if this.rights.is_some() {
                        this.set_rights(Permissions::from_mode(mode))?;
                    }
                    return Ok(this);
                }
                // Left by a killed process whose number came round again; take the next one.
                Err(Errno::EXIST) => {}
                Err(e) => return Err(cannot_create(&path, dir, e.into())),
            }
        }
    }

    fn set_rights(&self, rights: Permissions) -> Result<()> {
        let failed = |e| Error::io("set the permissions of", &self.path, e);
        self.file.set_permissions(rights).map_err(failed)
    }

    /// The same file, which replaces none: if there is one of its name at the commit, that is an error.
    #[must_use]
    pub fn only_new(self) -> Self {
        let mut this = self;
        this.new = true;
        this
    }

    /// A file for work in progress on the file system of `path`, in the same directory. It has no name, so that nothing is
    /// left of it however the process ends, and none to get: it is not for [`AtomicFile::commit`].
    ///
    /// # Errors
    /// As [`AtomicFile::create`].
    pub fn scratch(path: impl Into<PathBuf>) -> Result<Self> {
        Self::create(path)?.without_name()
    }

    /// As [`AtomicFile::scratch`], in the directory of this file.
    ///
    /// # Errors
    /// As [`AtomicFile::create`].
    pub fn scratch_beside(&self) -> Result<Self> {
        let dir = self.path.parent().unwrap_or(Path::new(".")).to_owned();
        Self::beside(self.path.clone(), self.target.clone(), None, &dir)?.without_name()
    }

    fn without_name(self) -> Result<Self> {
        let this = self;
        rustix::fs::unlinkat(this.temporary.folder(), &this.temporary.path, AtFlags::empty())
            .map_err(|e| this.failed("make", e.into()))?;
        forget(&this.temporary);
        Ok(this)
    }

    /// The name that the file has now, under which other processes find it: see [`crate::JointFile`].
    pub fn temporary(&self) -> &Path {
        &self.temporary.path
    }

    /// Opens the file anew by its temporary name: on network file systems it then sees what other hosts have written.
    ///
    /// # Errors
    /// As [`JointFile::again`].
    pub fn again(&self) -> Result<JointFile> {
        JointFile::of(&self.path, &self.temporary.path, &self.file)
    }

    /// Takes room for `len` bytes, so that a device without it says so now. Where the file system cannot, the file only gets
    /// this length.
    ///
    /// # Errors
    /// As [`AtomicFile::write_all`].
    pub fn allocate(&self, len: u64) -> Result<()> {
        if len == 0 {
            return Ok(());
        }
        match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, len) {
            Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {
                self.file.set_len(len).map_err(|e| self.failed("write", e))
            }
            done => done.map_err(|e| self.failed("write", e.into())),
        }
    }

    /// Has the system begin to write what was written to these bytes to the device, so that a commit has less to wait for.
    pub fn begin(&self, offset: u64, len: u64) {
        crate::cache::begin_writing(&self.file, offset, len);
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
            self.begin(self.begun, waiting);
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
            .map_err(|e| Error::io("read back", &self.temporary.path, e).at_offset(offset))
    }

    /// Makes the bytes durable, then the name.
    ///
    /// # Errors
    /// `Usage` if the name is taken and must not be ([`AtomicFile::only_new`]); `Cancelled` after [`remove_unfinished`], and in a process
    /// that was forked since. On any
    /// error the old file, if there was one, is as it was, and the temporary one is gone.
    pub fn commit(self) -> Result<()> {
        Self::commit_all(vec![self])
    }

    /// As [`AtomicFile::commit`], for files that belong together: no name is given before the bytes of all are durable, so that
    /// a device which is full leaves none of them.
    ///
    /// # Errors
    /// As [`AtomicFile::commit`]. If a name cannot be given, those before it have theirs. If names cannot be made durable, those
    /// that replace no file ([`AtomicFile::only_new`]) are taken back; the others stay.
    pub fn commit_all(mut files: Vec<AtomicFile>) -> Result<()> {
        // Opened first: once names are given there is little left that can fail.
        let mut folders = Vec::new();
        for (i, file) in files.iter().enumerate() {
            let same = |other: &AtomicFile| {
                other.target.path.parent() == file.target.path.parent()
                    && other.target.folder().as_raw_fd() == file.target.folder().as_raw_fd()
            };
            if !files[..i].iter().any(same) {
                let folder = file.target.open_folder();
                folders.push((i, folder.map_err(|e| file.failed("open the directory of", e))?));
            }
        }
        for file in &files {
            file.settle()?;
            file.sync()?;
        }
        Self::name(&mut files)?;
        for (i, folder) in folders {
            if let Err(e) = folder.map_or(Ok(()), sync_folder) {
                files.iter().filter(|file| file.new).for_each(|file| file.target.remove());
                return Err(files[i].failed("sync the directory of", e.into()));
            }
        }
        Ok(())
    }

    /// As [`AtomicFile::commit`], without waiting for the device: for hints, which may be lost or empty after the machine failed.
    ///
    /// # Errors
    /// As [`AtomicFile::commit`].
    pub fn commit_hint(self) -> Result<()> {
        self.settle()?;
        Self::name(&mut [self])
    }

    fn settle(&self) -> Result<()> {
        let rights = self.rights.as_ref().map(|rights| rights.mode() & RIGHTS);
        rights.map_or(Ok(()), |mode| self.set_rights(Permissions::from_mode(mode)))
    }

    fn name(files: &mut [AtomicFile]) -> Result<()> {
        if !forget_all(files) {
            return Err(Error::cancelled());
        }
        // From here on the names are ours alone: who removes what is unfinished finds all of them or none.
        files.iter_mut().for_each(|file| file.named = true);
        for file in files {
            file.rename()?;
            file.named = false;
        }
        Ok(())
    }

    fn rename(&self) -> Result<()> {
        let (from, to) = (&self.temporary, &self.target);
        let failed = |e: Errno| match e {
            Errno::EXIST => exists(&self.path),
            e => self.failed("rename", e.into()),
        };
        if self.new {
            let flags = RenameFlags::NOREPLACE;
            let done =
                rustix::fs::renameat_with(from.folder(), &from.path, to.folder(), &to.path, flags);
            // Some network file systems do not know the flag.
            if !matches!(done, Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP)) {
                return done.map_err(failed);
            }
            if rustix::fs::statat(to.folder(), &to.path, AtFlags::SYMLINK_NOFOLLOW).is_ok() {
                return Err(exists(&self.path));
            }
        }
        rustix::fs::renameat(from.folder(), &from.path, to.folder(), &to.path).map_err(failed)
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
        if self.named || forget(&self.temporary) {
            self.temporary.remove();
        }
    }
}

/// Removes the temporary files of every [`AtomicFile`] that this process has not committed: for programs
/// that end without running destructors, such as on a second Ctrl-C. Files that are just getting their names get them.
/// Not for signal handlers (it locks).
pub fn remove_unfinished() {
    for name in pending().1.drain(..) {
        name.remove();
    }
}

/// Removes a file, if it is there, and makes that durable.
///
/// # Errors
/// System errors; the file may be there or gone, or be there again after the machine failed.
pub fn remove_durably(path: &Path) -> Result<()> {
    let failed = |e: std::io::Error| Error::io("remove", path, e);
    match std::fs::remove_file(path) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(failed(e)),
        _ => {}
    }
    let folder = Name { folder: None, path: path.to_owned() }.open_folder().map_err(failed)?;
    folder.map_or(Ok(()), sync_folder).map_err(|e| failed(e.into()))
}

fn pending() -> MutexGuard<'static, (u32, Vec<Name>)> {
    let mut pending = PENDING.lock().unwrap_or_else(PoisonError::into_inner);
    let process = std::process::id();
    if pending.0 != process {
        *pending = (process, Vec::new());
    }
    pending
}

/// True if `name` was still pending.
fn forget(name: &Name) -> bool {
    let mut pending = pending();
    let list = &mut pending.1;
    let found = list.iter().position(|n| n.is(name));
    if let Some(i) = found {
        list.swap_remove(i);
    }
    found.is_some()
}

/// True if all of them were still pending; else they are as they were.
fn forget_all(files: &[AtomicFile]) -> bool {
    let mut pending = pending();
    let list = &mut pending.1;
    let mine = |name: &Name| files.iter().any(|f| f.temporary.is(name));
    if list.iter().filter(|name| mine(name)).count() < files.len() {
        return false;
    }
    list.retain(|name| !mine(name));
    true
}

/// Makes the names in a folder durable. Some network file systems cannot; names are there all the same.
pub(crate) fn sync_folder(folder: impl AsFd) -> std::result::Result<(), Errno> {
    match rustix::fs::fsync(&folder) {
        Err(Errno::INVAL | Errno::NOTSUP) => Ok(()),
        done => done.and_then(|()| going::check(&folder)),
    }
}

fn exists(path: &Path) -> Error {
    Error::usage("there is a file of this name already")
        .at_path(path)
        .with_hint("remove it, or replace it with --force")
}

fn cannot_create(path: &Path, dir: &Path, e: std::io::Error) -> Error {
    let kind = e.kind();
    let e = Error::io("create", path, e);
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

/// True of the name of a file that is being written, or was when its process ended.
pub fn is_temporary(name: &OsStr) -> bool {
    let name = name.as_encoded_bytes();
    let Some(rest) = name.strip_prefix(b".").and_then(|name| name.strip_suffix(b".tmp")) else {
        return false;
    };
    let mark = b".stead-";
    // A long name has made room for it: the mark is all there is.
    let at = rest.windows(mark.len()).rposition(|part| part == mark);
    let numbers = at.map(|at| &rest[at + mark.len()..]);
    let digits = |b: &u8| b.is_ascii_digit() || *b == b'-';
    numbers.is_some_and(|numbers| !numbers.is_empty() && numbers.iter().all(digits))
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
    use std::fs::OpenOptions;

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
        let mut other = f.scratch_beside().unwrap();
        other.write_all(b"another").unwrap();
        f.read_at(0, &mut back[..2]).unwrap();
        assert!(&back[..2] == b"on" && listing(dir.path()).is_empty());
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

    #[test]
    fn new_bytes_are_not_run_as_the_owner_of_the_old_ones() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::write(&path, b"old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o6755)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let f = AtomicFile::create(&path).unwrap();
        assert_eq!(mode(f.temporary()), 0o755);
        f.commit().unwrap();
        assert_eq!(mode(&path), 0o755);
    }

    #[test]
    fn a_file_that_nobody_may_write_to_can_be_written_under_its_temporary_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        std::fs::write(&path, b"old").unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o444)).unwrap();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        let mut f = AtomicFile::create(&path).unwrap();
        // Other ranks open it so.
        assert_eq!(mode(f.temporary()), 0o644);
        f.write_all(b"new").unwrap();
        f.commit().unwrap();
        assert_eq!((mode(&path), std::fs::read(&path).unwrap()), (0o444, b"new".to_vec()));
    }

    #[test]
    fn of_several_files_none_is_named_if_one_cannot_be_whole() {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let mut f = AtomicFile::create(dir.path().join(name)).unwrap();
            f.write_all(name.as_bytes()).unwrap();
            f
        };
        let mut bad = make("b");
        // A pipe cannot be made durable: it stands in for a device that fails when it is to.
        bad.file = File::from(OwnedFd::from(std::io::pipe().unwrap().1));
        AtomicFile::commit_all(vec![make("a"), bad, make("c")]).unwrap_err();
        assert!(listing(dir.path()).is_empty());
        AtomicFile::commit_all(vec![make("a"), make("c")]).unwrap();
        assert_eq!(listing(dir.path()), ["a", "c"]);
    }

    #[test]
    fn what_was_removed_as_unfinished_is_a_stop() {
        let dir = tempfile::tempdir().unwrap();
        let f = AtomicFile::create(dir.path().join("out")).unwrap();
        // As `remove_unfinished` does, which would take the files of other tests, too.
        assert!(forget(&f.temporary));
        f.temporary.remove();
        assert_eq!(f.commit().unwrap_err().kind(), Kind::Cancelled);
        assert!(listing(dir.path()).is_empty());
    }

    #[test]
    fn a_new_file_replaces_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let mut f = AtomicFile::create(&path).unwrap().only_new();
        f.write_all(b"mine").unwrap();
        std::fs::write(&path, b"theirs").unwrap();
        assert_eq!(f.commit().unwrap_err().kind(), Kind::Usage);
        assert_eq!(std::fs::read(&path).unwrap(), b"theirs");
        assert_eq!(listing(dir.path()), ["out"]);
    }

    #[test]
    fn room_is_taken_before_the_bytes_come() {
        let dir = tempfile::tempdir().unwrap();
        let f = AtomicFile::create(dir.path().join("out")).unwrap();
        f.allocate(0).unwrap();
        f.allocate(10_000).unwrap();
        f.write_at(9_000, b"x").unwrap();
        f.commit().unwrap();
        assert_eq!(std::fs::metadata(dir.path().join("out")).unwrap().len(), 10_000);
    }

    #[test]
    fn what_replaces_a_private_file_is_private_from_its_beginning_on() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        std::fs::write(&path, b"x").unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let (mut seen, mut open) = (0, 0);
                while !over.load(Ordering::Relaxed) {
                    for entry in std::fs::read_dir(dir.path()).unwrap().flatten() {
                        let Ok(meta) = entry.metadata() else { continue };
                        seen += u32::from(entry.file_name() != "secret");
                        open += u32::from(meta.permissions().mode() & 0o077 != 0);
                    }
                }
                (seen, open)
            });
            for _ in 0..5000 {
                drop(AtomicFile::create(&path).unwrap());
            }
            over.store(true, Ordering::Relaxed);
            let (_, open) = watch.join().unwrap();
            assert_eq!(open, 0);
        });
    }
}
