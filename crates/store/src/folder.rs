//! Open folders, and what is done with the names in them: for those who copy trees of files.
//!
//! Nothing here follows a link. Names are bytes, as the system has them; paths in errors are for people.

use crate::atomic::{AtomicFile, sync_folder};
use crate::going;
use rustix::fs::{
    AtFlags, FileType, FlockOperation, Mode, OFlags, RenameFlags, ResolveFlags, Statx, StatxFlags,
    makedev,
};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use stead_core::{Error, Kind, Result};

/// What a name in a folder leads to, without following it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum What {
    /// A regular file.
    File,
    /// A folder.
    Folder,
    /// A symbolic link.
    Link,
    /// A pipe, a socket or a device.
    Special,
}

/// A time of the file system, to the nanosecond. Times before 1970 are negative seconds with positive nanoseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileTime {
    /// Seconds since 1970.
    pub seconds: i64,
    /// 0 to 999,999,999.
    pub nanos: u32,
}

/// What the system tells of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Meta {
    /// What it is.
    pub what: What,
    /// Length in bytes; of a link, of its text.
    pub size: u64,
    /// Bytes that the file system has given it: fewer than `size` where it has holes.
    pub room: u64,
    /// Rights, with the bits for set-user-id, set-group-id and sticky.
    pub mode: u32,
    /// The user whose it is.
    pub uid: u32,
    /// The group whose it is.
    pub gid: u32,
    /// The device that it is on.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
    /// How many names it has.
    pub links: u64,
    /// When its bytes changed last.
    pub mtime: FileTime,
    /// When anything of it changed last.
    pub ctime: FileTime,
}

/// The bits of [`Meta::mode`].
const RIGHTS: u32 = 0o7777;

impl Meta {
    #[allow(clippy::unnecessary_cast)] // The types of these fields are other ones on other systems.
    fn of(s: &rustix::fs::Stat) -> Meta {
        let time = |seconds, nanos| FileTime { seconds, nanos };
        Meta {
            what: match FileType::from_raw_mode(s.st_mode) {
                FileType::RegularFile => What::File,
                FileType::Directory => What::Folder,
                FileType::Symlink => What::Link,
                _ => What::Special,
            },
            size: s.st_size as u64,
            room: (s.st_blocks as u64).saturating_mul(512),
            mode: s.st_mode as u32 & RIGHTS,
            uid: s.st_uid,
            gid: s.st_gid,
            dev: s.st_dev as u64,
            ino: s.st_ino as u64,
            links: s.st_nlink as u64,
            mtime: time(s.st_mtime as i64, s.st_mtime_nsec as u32),
            ctime: time(s.st_ctime as i64, s.st_ctime_nsec as u32),
        }
    }

    /// Of a file that is open.
    ///
    /// # Errors
    /// System errors, without a path.
    pub fn of_file(file: impl AsFd) -> std::io::Result<Meta> {
        Ok(Meta::of(&rustix::fs::fstat(file)?))
    }

    /// True if it is the same file with the same bytes, as far as the system can tell.
    pub fn same(&self, other: &Meta) -> bool {
        let of = |m: &Meta| (m.dev, m.ino, m.size, m.mtime, m.ctime);
        of(self) == of(other)
    }

    /// As [`Meta::same`] of what was seen `before`, also if names of it went since, which changes its `ctime`.
    pub fn same_but_names(&self, before: &Meta) -> bool {
        let of = |m: &Meta| (m.dev, m.ino, m.size, m.mtime);
        self.same(before) || (of(self) == of(before) && self.links < before.links)
    }
}

/// A folder that is open: it stays the same whatever its name leads to by now.
#[derive(Debug, Clone)]
pub struct Folder {
    fd: Arc<OwnedFd>,
    shown: PathBuf,
}

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl AsFd for Folder {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A file that somebody has locked. It is given back when this is dropped, also where a process that was forked since has it open, and goes
/// with its process.
#[derive(Debug)]
pub struct Locked(File);

impl Drop for Locked {
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// What was tried of which name, as an error. `at` is that name's path.
fn failed(doing: &str, at: PathBuf, e: Errno) -> Error {
    match e {
        Errno::LOOP => Error::new(
            Kind::Permission,
            "there is a link on the way, which might lead out of the folder",
        )
        .at_path(at)
        .with_hint("name files that lie in folders without links, or name where the link leads"),
        Errno::EXIST | Errno::NOTEMPTY => {
            Error::usage("there is something of this name already").at_path(at)
        }
        Errno::NOTDIR => {
            Error::usage("there is a file, or a link, where a folder is needed").at_path(at)
        }
        e => Error::io(doing, at, e.into()),
    }
}

impl Folder {
    /// Of a descriptor; `shown` is what errors name.
    pub(crate) fn new(fd: Arc<OwnedFd>, shown: PathBuf) -> Folder {
        Folder { fd, shown }
    }

    /// The descriptor itself.
    pub(crate) fn into_fd(self) -> Arc<OwnedFd> {
        self.fd
    }

    /// Opens a folder as anybody would: links in its path are followed.
    ///
    /// # Errors
    /// `NotFound`, `Usage` if it is no folder, `Permission`; system errors otherwise.
    pub fn open(path: &Path) -> Result<Folder> {
        let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
        match rustix::fs::open(path, FOLDER, Mode::empty()) {
            // One that may be passed through and not listed, as folders of users often are.
            Err(Errno::ACCESS) => rustix::fs::open(path, FOLDER | OFlags::PATH, Mode::empty()),
            opened => opened,
        }
        .map(|fd| Folder { fd: Arc::new(fd), shown: path.to_owned() })
        .map_err(|e| match e {
            Errno::NOTDIR => Error::usage("this is no folder").at_path(path),
            e => Error::io("open", path, e.into()),
        })
    }

    /// Where it was found, for people.
    pub fn shown(&self) -> &Path {
        &self.shown
    }

    /// The path of a name in it, for people.
    pub fn at(&self, name: &OsStr) -> PathBuf {
        self.shown.join(name)
    }

    pub(crate) fn failed(&self, doing: &str, name: &OsStr, e: Errno) -> Error {
        failed(doing, self.at(name), e)
    }

    /// A folder below this one. No step of the path is a link, none leads up; the empty path is this folder.
    ///
    /// # Errors
    /// `Usage` for a path that is not below, or where something else is in the way; `NotFound`; `Permission` for links;
    /// system errors otherwise.
    pub fn below(&self, path: &Path) -> Result<Folder> {
        if path.as_os_str().is_empty() {
            return Ok(self.clone());
        }
        steps(path).map_err(|e| e.at_path(self.shown.join(path)))?;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let shown = || self.shown.join(path);
        let opened = loop {
            match rustix::fs::openat2(&self.fd, path, FOLDER, Mode::empty(), how) {
                // A rename somewhere while it looked.
                Err(Errno::AGAIN | Errno::INTR) => {}
                opened => break opened,
            }
        };
        match opened {
            Ok(fd) => Ok(Folder { fd: Arc::new(fd), shown: shown() }),
            // Linux before 5.6, and sandboxes that do not know the call.
            Err(Errno::NOSYS | Errno::PERM | Errno::INVAL) => self.step_by_step(path),
            // Which of both it is, the steps tell.
            Err(Errno::NOTDIR) => self.step_by_step(path),
            Err(e) => Err(failed("open", shown(), e)),
        }
    }

    fn step_by_step(&self, path: &Path) -> Result<Folder> {
        let mut here = self.clone();
        for step in path.components() {
            here = here.enter(step.as_os_str())?;
        }
        Ok(here)
    }

    /// The folder of this name in it.
    ///
    /// # Errors
    /// As [`Folder::below`].
    pub fn enter(&self, name: &OsStr) -> Result<Folder> {
        let opened = rustix::fs::openat(&self.fd, name, FOLDER | OFlags::NOFOLLOW, Mode::empty());
        match opened {
            Ok(fd) => Ok(Folder { fd: Arc::new(fd), shown: self.at(name) }),
            // Linux says so of links to folders, too.
            Err(Errno::NOTDIR) if self.meta(name)?.is_some_and(|meta| meta.what == What::Link) => {
                Err(self.failed("open", name, Errno::LOOP))
            }
            Err(e) => Err(self.failed("open", name, e)),
        }
    }

    /// The folder of this name in it, which is made if it is not there: for the owner alone if `private`.
    ///
    /// # Errors
    /// As [`Folder::below`]. The second is true if it was made.
    pub fn make(&self, name: &OsStr, private: bool) -> Result<(Folder, bool)> {
        let mode = Mode::from_raw_mode(if private { 0o700 } else { 0o777 });
        let made = match rustix::fs::mkdirat(&self.fd, name, mode) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(e) => return Err(self.failed("make the folder", name, e)),
        };
        Ok((self.enter(name)?, made))
    }

    /// The folder of this path below it, made with those on the way if they are not there, durably.
    ///
    /// # Errors
    /// As [`Folder::below`].
    pub fn make_below(&self, path: &Path) -> Result<Folder> {
        match self.below(path) {
            Err(e) if e.kind() == Kind::NotFound => {
                let mut here = self.clone();
                for step in path.components() {
                    let (next, made) = here.make(step.as_os_str(), false)?;
                    if made {
                        here.sync()?;
                    }
                    here = next;
                }
                Ok(here)
            }
            found => found,
        }
    }

    /// What the system tells of this folder.
    ///
    /// # Errors
    /// System errors.
    pub fn own_meta(&self) -> Result<Meta> {
        Meta::of_file(&self.fd).map_err(|e| Error::io("look at", &self.shown, e))
    }

    /// Bytes that this user may still write here, as far as the file system tells.
    ///
    /// # Errors
    /// System errors.
    pub fn free(&self) -> Result<u64> {
        let stat = rustix::fs::fstatvfs(&self.fd)
            .map_err(|e| Error::io("look at the room of", &self.shown, e.into()))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    /// Device and number of the folders that what is `path` in this one lies in, from that one up, as far as they can be looked at: what
    /// cannot cannot be walked through, either. None if the folder is not where it was found.
    pub fn ancestors(&self, path: &Path) -> Vec<(u64, u64)> {
        let Ok(base) = std::fs::canonicalize(&self.shown) else { return Vec::new() };
        let whole = base.join(path);
        let of = |path: &Path| std::fs::symlink_metadata(path).map(|m| (m.dev(), m.ino())).ok();
        whole.ancestors().skip(1).filter_map(of).collect()
    }

    /// What the system tells of a name; `None` if it is not there.
    ///
    /// # Errors
    /// System errors.
    pub fn meta(&self, name: &OsStr) -> Result<Option<Meta>> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(Some(Meta::of(&stat))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.failed("look at", name, e)),
        }
    }

    /// As [`Folder::meta`], of what lies on this device alone: who serves another one that is mounted there may never answer, and is not asked.
    ///
    /// # Errors
    /// System errors.
    pub fn meta_on(&self, name: &OsStr, dev: u64) -> Result<Option<Meta>> {
        // What the system knows already has the device.
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        let known = rustix::fs::statx(&self.fd, name, flags, StatxFlags::empty());
        let other = |known: &Statx| makedev(known.stx_dev_major, known.stx_dev_minor) != dev;
        match known {
            Ok(known) if other(&known) => Ok(None),
            Err(Errno::NOENT) => Ok(None),
            // Some sandboxes have no such call.
            Ok(_) | Err(_) => Ok(self.meta(name)?.filter(|meta| meta.dev == dev)),
        }
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// `NotFound`, `Permission`, for links too; system errors otherwise.
    pub fn open_file(&self, name: &OsStr) -> Result<File> {
        // Without NONBLOCK the open of a pipe waits for a writer.
        let flags =
            OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
        // That it is read is nobody's business, where the system lets us say so: of our own files.
        match rustix::fs::openat(&self.fd, name, flags | OFlags::NOATIME, Mode::empty()) {
            Err(Errno::PERM) => rustix::fs::openat(&self.fd, name, flags, Mode::empty()),
            opened => opened,
        }
        .map(File::from)
        .map_err(|e| self.failed("open", name, e))
    }

    /// Makes a new file with this mode, of which the mask of the process may take some.
    ///
    /// # Errors
    /// `Usage` if the name is taken; system errors otherwise.
    pub fn create_file(&self, name: &OsStr, mode: u32) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags, Mode::from_raw_mode(mode))
            .map(File::from)
            .map_err(|e| self.failed("create", name, e))
    }

    /// Opens a file to go on writing to it.
    ///
    /// # Errors
    /// As [`Folder::open_file`].
    pub fn reopen_file(&self, name: &OsStr) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        rustix::fs::openat(&self.fd, name, flags, Mode::empty())
            .map(File::from)
            .map_err(|e| self.failed("open", name, e))
    }

    /// Locks a file, unless somebody else has: `None` then. Waits for nobody.
    ///
    /// # Errors
    /// As [`Folder::open_file`].
    pub fn lock_if_free(&self, name: &OsStr) -> Result<Option<Locked>> {
        let file = self.reopen_file(name)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Locked(file))),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(e) => Err(self.failed("lock", name, e)),
        }
    }

    /// A new file, which appears as a whole or not at all: in place of one that has the name, or where none has it if `new`.
    ///
    /// # Errors
    /// Those of [`AtomicFile::create_in`] and [`AtomicFile::replace_in`].
    pub fn write_file(&self, name: &OsStr, new: bool) -> Result<AtomicFile> {
        match new {
            true => AtomicFile::create_in(&self.fd, name, self.at(name)),
            false => AtomicFile::replace_in(&self.fd, name, self.at(name)),
        }
    }

    /// The text of a link.
    ///
    /// # Errors
    /// System errors.
    pub fn read_link(&self, name: &OsStr) -> Result<OsString> {
        rustix::fs::readlinkat(&self.fd, name, Vec::new())
            .map(|text| OsString::from_vec(text.into_bytes()))
            .map_err(|e| self.failed("read the link", name, e))
    }

    /// Makes a link with this text.
    ///
    /// # Errors
    /// `Usage` if the name is taken; system errors otherwise.
    pub fn make_link(&self, text: &OsStr, name: &OsStr) -> Result<()> {
        rustix::fs::symlinkat(text, &self.fd, name)
            .map_err(|e| self.failed("make the link", name, e))
    }

    /// Gives a file of `from` one more name, here.
    ///
    /// # Errors
    /// `Usage` if the name is taken; system errors otherwise.
    pub fn link(&self, from: &Folder, old: &OsStr, name: &OsStr) -> Result<()> {
        rustix::fs::linkat(&from.fd, old, &self.fd, name, AtFlags::empty())
            .map_err(|e| self.failed("link", name, e))
    }

    /// Gives what is `old` here the name `name` in `to`. What has that name is replaced, at once, or the name must be free.
    ///
    /// # Errors
    /// `Usage` if the name is taken and must be free; system errors otherwise.
    pub fn rename(&self, old: &OsStr, to: &Folder, name: &OsStr, replace: bool) -> Result<()> {
        let failed = |e| to.failed("give the name to", name, e);
        if !replace {
            let flags = RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&self.fd, old, &to.fd, name, flags) {
                // Some network file systems do not know the flag.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => {}
                done => return done.map_err(failed),
            }
            return self.name_new(old, to, name);
        }
        rustix::fs::renameat(&self.fd, old, &to.fd, name).map_err(failed)
    }

    /// Gives a name that must be free, where renaming does not look at that: as a second name, which does, and the first one goes.
    fn name_new(&self, old: &OsStr, to: &Folder, name: &OsStr) -> Result<()> {
        let failed = |e| to.failed("give the name to", name, e);
        match rustix::fs::linkat(&self.fd, old, &to.fd, name, AtFlags::empty()) {
            Ok(()) => {
                return rustix::fs::unlinkat(&self.fd, old, AtFlags::empty()).map_err(failed);
            }
            Err(e @ Errno::EXIST) => return Err(failed(e)),
            // A folder has one name; and some file systems know no second ones.
            Err(_) => {}
        }
        if to.meta(name)?.is_some() {
            return Err(failed(Errno::EXIST));
        }
        rustix::fs::renameat(&self.fd, old, &to.fd, name).map_err(failed)
    }

    /// As [`Folder::rename`] within this file system; false if `to` is on another one.
    ///
    /// # Errors
    /// As [`Folder::rename`].
    pub fn rename_if_near(
        &self,
        old: &OsStr,
        to: &Folder,
        name: &OsStr,
        replace: bool,
    ) -> Result<bool> {
        if self.own_meta()?.dev != to.own_meta()?.dev {
            return Ok(false);
        }
        match self.rename(old, to, name, replace) {
            // Mounts of one file system, and projects with quotas of their own.
            Err(e) if e.os_code() == Some(Errno::XDEV.raw_os_error()) => Ok(false),
            done => done.map(|()| true),
        }
    }

    /// Removes a file or a link. False if it was not there.
    ///
    /// # Errors
    /// System errors.
    pub fn remove_file(&self, name: &OsStr) -> Result<bool> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(e) => Err(self.failed("remove", name, e)),
        }
    }

    /// Removes an empty folder. False if it was not there.
    ///
    /// # Errors
    /// `Usage` if it is not empty; system errors otherwise.
    pub fn remove_folder(&self, name: &OsStr) -> Result<bool> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::REMOVEDIR) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(Errno::NOTEMPTY | Errno::EXIST) => {
                Err(Error::usage("the folder is not empty").at_path(self.at(name)))
            }
            Err(e) => Err(self.failed("remove", name, e)),
        }
    }

    /// Makes the names in it durable.
    ///
    /// # Errors
    /// System errors.
    pub fn sync(&self) -> Result<()> {
        match sync_folder(&self.fd) {
            // Nobody may who may not read it.
            Err(Errno::BADF) => Ok(()),
            done => done.map_err(|e| Error::io("sync", &self.shown, e.into())),
        }
    }

    /// Makes all that lies on its file system durable.
    ///
    /// # Errors
    /// System errors.
    pub fn sync_all(&self) -> Result<()> {
        rustix::fs::syncfs(&self.fd)
            .and_then(|()| going::check(&self.fd))
            .map_err(|e| Error::io("sync", &self.shown, e.into()))
    }

    /// The names in it, but `.` and `..`, `most` at a time, in the order of their numbers on the device, which is that in
    /// which they are read fastest. Names that come and go meanwhile may be there or not.
    ///
    /// # Errors
    /// System errors.
    pub fn names(&self, most: usize) -> Result<Names> {
        let dir = rustix::fs::Dir::read_from(&self.fd)
            .map_err(|e| Error::io("list", &self.shown, e.into()))?;
        Ok(Names { dir, shown: self.shown.clone(), most: most.max(1) })
    }
}

/// See [`Folder::names`].
pub struct Names {
    dir: rustix::fs::Dir,
    shown: PathBuf,
    most: usize,
}

impl Iterator for Names {
    type Item = Result<Vec<OsString>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut found = Vec::new();
        while found.len() < self.most {
            match self.dir.read() {
                None => break,
                Some(Ok(entry)) => {
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        found.push((entry.ino(), OsStr::from_bytes(name).to_owned()));
                    }
                }
                Some(Err(e)) => return Some(Err(Error::io("list", &self.shown, e.into()))),
            }
        }
        if found.is_empty() {
            return None;
        }
        found.sort_unstable();
        Some(Ok(found.into_iter().map(|(_, name)| name).collect()))
    }
}

/// Refuses paths that do not stay below where they start.
///
/// # Errors
/// `Usage`.
pub(crate) fn steps(path: &Path) -> Result<()> {
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
    if path.components().all(plain) {
        return Ok(());
    }
    Err(Error::usage("this path leads out of the folder that it starts from")
        .with_hint("write it without '..' and without a '/' at its beginning"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn name(text: &str) -> &OsStr {
        OsStr::new(text)
    }

    #[test]
    fn a_file_is_locked_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let root = Folder::open(dir.path()).unwrap();
        let e = root.lock_if_free(name("f")).unwrap_err();
        assert_eq!(e.kind(), Kind::NotFound);
        drop(root.create_file(name("f"), 0o600).unwrap());
        let locked = root.lock_if_free(name("f")).unwrap();
        assert!(locked.is_some() && root.lock_if_free(name("f")).unwrap().is_none());
        // Whoever else has it open.
        let Some(Locked(file)) = &locked else { return };
        let other = file.try_clone().unwrap();
        drop(locked);
        assert!(root.lock_if_free(name("f")).unwrap().is_some());
        drop(other);
        assert!(root.free().is_ok());
    }

    #[test]
    fn names_are_made_listed_renamed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let root = Folder::open(dir.path()).unwrap();
        let (a, made) = root.make(name("a"), true).unwrap();
        assert!(made && !root.make(name("a"), true).unwrap().1);
        assert_eq!(root.meta(name("a")).unwrap().unwrap().mode, 0o700);
        let odd = OsStr::from_bytes(b"no\xfftext\n");
        a.create_file(odd, 0o600).unwrap().write_all(b"hello").unwrap();
        assert_eq!(a.create_file(odd, 0o600).unwrap_err().kind(), Kind::Usage);
        let meta = a.meta(odd).unwrap().unwrap();
        assert_eq!((meta.what, meta.size, meta.links), (What::File, 5, 1));
        a.link(&a, odd, name("second")).unwrap();
        assert_eq!(a.meta(odd).unwrap().unwrap().links, 2);
        a.make_link(name("../x"), name("link")).unwrap();
        assert_eq!(a.read_link(name("link")).unwrap(), "../x");
        let mut names: Vec<_> = a.names(2).unwrap().map(|n| n.unwrap()).collect();
        assert_eq!(names.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        let mut names: Vec<_> = names.drain(..).flatten().collect();
        names.sort();
        assert_eq!(names, [name("link"), odd, name("second")]);
        let b = root.make_below(Path::new("b/c")).unwrap();
        a.rename(name("second"), &b, name("z"), false).unwrap();
        assert_eq!(a.rename(odd, &b, name("z"), false).unwrap_err().kind(), Kind::Usage);
        a.rename(name("link"), &b, name("z"), true).unwrap();
        assert_eq!(b.meta(name("z")).unwrap().unwrap().what, What::Link);
        assert_eq!(root.remove_folder(name("b")).unwrap_err().kind(), Kind::Usage);
        assert!(b.remove_file(name("z")).unwrap() && !b.remove_file(name("z")).unwrap());
        let in_b = root.below(Path::new("b")).unwrap();
        assert!(in_b.remove_folder(name("c")).unwrap() && !in_b.remove_folder(name("c")).unwrap());
        root.sync().unwrap();
    }

    #[test]
    fn no_path_leads_out_and_no_link_is_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir_all(inside.join("deep/deeper")).unwrap();
        std::fs::create_dir_all(&outside).unwrap();
        std::fs::write(outside.join("secret"), b"x").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("folder")).unwrap();
        std::os::unix::fs::symlink(outside.join("secret"), inside.join("file")).unwrap();
        std::os::unix::fs::symlink("/proc/self/cwd", inside.join("magic")).unwrap();
        let root = Folder::open(&inside).unwrap();
        root.below(Path::new("deep/deeper")).unwrap();
        for path in ["folder", "magic", "deep/../folder", "..", "/etc", "../out", "./deep/.."] {
            let e = root.below(Path::new(path)).unwrap_err();
            assert!(matches!(e.kind(), Kind::Permission | Kind::Usage), "{path}: {e}");
            root.make_below(Path::new(path)).unwrap_err();
            let steps = root.step_by_step(Path::new(path));
            assert!(path.contains("..") || path == "/etc" || steps.is_err(), "{path}");
        }
        assert_eq!(root.enter(name("folder")).unwrap_err().kind(), Kind::Permission);
        assert_eq!(root.open_file(name("file")).unwrap_err().kind(), Kind::Permission);
        assert_eq!(root.reopen_file(name("file")).unwrap_err().kind(), Kind::Permission);
        assert_eq!(root.make(name("folder"), false).unwrap_err().kind(), Kind::Permission);
        let deep = root.below(Path::new("deep")).unwrap();
        let by_steps = root.step_by_step(Path::new("deep")).unwrap();
        assert_eq!(deep.own_meta().unwrap(), by_steps.own_meta().unwrap());
        assert_eq!(root.below(Path::new("none")).unwrap_err().kind(), Kind::NotFound);
        std::fs::write(inside.join("plain"), b"x").unwrap();
        assert_eq!(root.below(Path::new("plain/x")).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn holes_and_times_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        File::create(&path).unwrap().set_len(1 << 20).unwrap();
        let root = Folder::open(dir.path()).unwrap();
        let before = root.meta(name("f")).unwrap().unwrap();
        assert!(before.size == 1 << 20 && before.room < 1 << 20);
        assert!(before.same(&root.meta(name("f")).unwrap().unwrap()));
        let time = std::time::UNIX_EPOCH - std::time::Duration::from_nanos(1_500_000_000);
        File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        let after = root.meta(name("f")).unwrap().unwrap();
        assert_eq!(after.mtime, FileTime { seconds: -2, nanos: 500_000_000 });
        assert!(!before.same(&after) && before.mtime > after.mtime);
    }

    #[test]
    fn a_name_that_must_be_free_is_given_once_also_without_the_systems_help() {
        let dir = tempfile::tempdir().unwrap();
        let root = Folder::open(dir.path()).unwrap();
        for round in 0..200 {
            for which in ["a", "b"] {
                std::fs::write(dir.path().join(which), which).unwrap();
            }
            let given: Vec<bool> = std::thread::scope(|scope| {
                let give = |which| {
                    let root = &root;
                    scope.spawn(move || root.name_new(name(which), root, name("to")).is_ok())
                };
                let both = [give("a"), give("b")];
                both.map(|one| one.join().unwrap()).to_vec()
            });
            assert_eq!(given.iter().filter(|done| **done).count(), 1, "{round}");
            let to = std::fs::read_to_string(dir.path().join("to")).unwrap();
            let (first, other) = if given[0] { ("a", "b") } else { ("b", "a") };
            assert_eq!(to, first);
            assert!(!dir.path().join(first).exists() && dir.path().join(other).exists());
            std::fs::remove_file(dir.path().join("to")).unwrap();
        }
        // A folder has one name at all times.
        std::fs::create_dir_all(dir.path().join("folder/in")).unwrap();
        root.name_new(name("folder"), &root, name("moved")).unwrap();
        assert!(dir.path().join("moved/in").exists() && !dir.path().join("folder").exists());
        assert_eq!(root.name_new(name("b"), &root, name("moved")).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn a_file_is_the_same_when_a_name_of_it_went() {
        let dir = tempfile::tempdir().unwrap();
        let root = Folder::open(dir.path()).unwrap();
        std::fs::write(dir.path().join("f"), b"x").unwrap();
        std::fs::hard_link(dir.path().join("f"), dir.path().join("g")).unwrap();
        let look = || root.meta(name("f")).unwrap().unwrap();
        let before = look();
        std::fs::remove_file(dir.path().join("g")).unwrap();
        assert!(look().same_but_names(&before));
        std::fs::hard_link(dir.path().join("f"), dir.path().join("g")).unwrap();
        let two = look();
        std::fs::write(dir.path().join("f"), b"xx").unwrap();
        std::fs::remove_file(dir.path().join("g")).unwrap();
        assert!(!look().same_but_names(&two));
    }
}
