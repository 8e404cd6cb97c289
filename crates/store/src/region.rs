//! Memory that programs and transfers share, by a name.
//!
//! A region is a file in memory (tmpfs) that a program maps: what it writes there is what a transfer of `memory://NAME` reads, in
//! this process, another one or a daemon, and it stays when the program has ended, until it is removed. The folder of all regions of a
//! user is a dataspace that everybody has, and that no other user can look into.
//!
//! A region has its pages from the beginning on, so that writing to it never fails: there is an error before, or none. The system does
//! not notice when mapped memory is written, so [`Region::touch`], or letting it go, says that it was.

use crate::atomic::is_temporary;
use crate::segment::Map;
use crate::space::Root;
use crate::{Folder, Meta, What};
use rustix::fs::{
    CWD, FallocateFlags, FlockOperation, Mode, OFlags, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT,
    flock,
};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use std::ffi::OsStr;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use stead_core::layout::{Spaces, check_relative};
use stead_core::units::format_size;
use stead_core::{Error, Kind, Result};

/// What has no name for so many seconds, and is nobody's, was left.
const LEFT_FOR_S: i64 = 60;

/// The dataspace that regions lie in.
pub const SPACE: &str = "memory";
const STREAMS: &str = ".streams-";

/// What the folder in [`SPACE`] is called that the streams of a user lie in: no region, and nothing that transfers touch.
pub fn folder_of_streams(user: u32) -> String {
    format!("{STREAMS}{user}")
}

/// True of a name that [`folder_of_streams`] gives.
pub fn is_of_streams(name: &OsStr) -> bool {
    let user = name.as_encoded_bytes().strip_prefix(STREAMS.as_bytes());
    user.is_some_and(|user| !user.is_empty() && user.iter().all(u8::is_ascii_digit))
}

/// The folder of the regions of this user, unless [`SPACE`] is configured.
pub fn folder() -> String {
    format!("/dev/shm/stead-{}", rustix::process::geteuid().as_raw())
}

/// Opens a folder that is this user's alone, and makes it if it is not there.
///
/// # Errors
/// `Permission` if it is somebody else's, or open to others; system errors.
pub(crate) fn private(path: &Path) -> Result<OwnedFd> {
    let hint = "let [dataspace.memory] of stead.toml name a folder of your own in memory";
    match rustix::fs::mkdirat(CWD, path, Mode::from_raw_mode(0o700)) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(e) => return Err(Error::io("make", path, e.into()).with_hint(hint)),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let failed = |e: Errno| Error::io("open", path, e.into()).with_hint(hint);
    let folder = rustix::fs::openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
    let meta = Meta::of_file(&folder).map_err(|e| Error::io("look at", path, e))?;
    if meta.uid == rustix::process::geteuid().as_raw() && meta.mode & 0o077 == 0 {
        return Ok(folder);
    }
    Err(Error::new(Kind::Permission, "this folder is not private to this user")
        .at_path(path)
        .with_hint(hint))
}

/// Memory with a name, mapped: what a program writes there is what a transfer of `memory://NAME` reads, in this process, another one or
/// a daemon. It stays when the program has ended, until it is removed.
pub struct Region {
    name: String,
    path: PathBuf,
    file: File,
    /// None of an empty one.
    map: Option<Map>,
}

impl std::fmt::Debug for Region {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Region({}, {} bytes)", self.name, self.len())
    }
}

impl Region {
    /// Makes a region of `len` bytes, all zero. `name` is a path in the dataspace [`SPACE`].
    ///
    /// # Errors
    /// `Usage` if there is one of the name, without bytes, for names that are none; `NoSpace` if there is not as much memory;
    /// `Limit` if a process may have no such file; those of [`Root::open`].
    pub fn create(spaces: &Spaces, name: &str, len: u64) -> Result<Region> {
        check_relative(name)?;
        let root = Root::open(spaces, SPACE)?;
        let path = root.shown(name);
        if len == 0 {
            return Err(Error::usage("a region has at least one byte").at_path(path));
        }
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if isize::try_from(len).is_err() || most.is_some_and(|most| len > most) {
            // A larger file than the process may have raises a signal.
            let message = format!("{} are more than a file may have", format_size(len));
            return Err(Error::limit(message).at_path(path).with_hint("see ulimit -f"));
        }
        let stat = rustix::fs::fstatvfs(root.folder());
        let stat = stat.map_err(|e| Error::io("look at", &path, e.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        if free < len {
            return Err(no_room(&path, len, free));
        }
        let new = root.create(name)?;
        // Memory takes its time: whoever is killed meanwhile leaves it without a name, and this lock tells that it is not so.
        let _ = flock(new.file(), FlockOperation::NonBlockingLockExclusive);
        let now = Meta::of_file(new.file()).map_err(|e| Error::io("look at", &path, e))?;
        let beside = Path::new(name).parent().unwrap_or(Path::new(""));
        root.folder().below(beside).iter().for_each(|folder| sweep(folder, now.mtime.seconds));
        new.allocate(len)?;
        let file = new.file().try_clone().map_err(|e| Error::io("open", &path, e))?;
        new.commit_hint()?;
        Region::map(name, path, file, len)
    }

    /// Maps a region that is there: one that was made, or a file that a transfer brought.
    ///
    /// # Errors
    /// `NotFound`; `Usage` for what is no file; `NoSpace` if it has holes that there is no memory for; those of [`Root::open`].
    pub fn open(spaces: &Spaces, name: &str) -> Result<Region> {
        check_relative(name)?;
        let root = Root::open(spaces, SPACE)?;
        let whole = Path::new(name);
        let path = root.shown(name);
        let gone = |e: Error| match e.kind() {
            Kind::NotFound => {
                Error::new(Kind::NotFound, "there is no region of this name").at_path(&path)
            }
            _ => e,
        };
        let folder = root.folder().below(whole.parent().unwrap_or(Path::new(""))).map_err(gone)?;
        let file = folder.reopen_file(whole.file_name().unwrap_or_default()).map_err(gone)?;
        let meta = Meta::of_file(&file).map_err(|e| Error::io("look at", &path, e))?;
        if meta.what != What::File {
            return Err(Error::usage("this is no region").at_path(path));
        }
        if meta.room < meta.size {
            // Who writes where there is a hole would get a signal if there is no memory.
            match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, meta.size) {
                Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {}
                Err(e) => return Err(Error::io("take memory for", &path, e.into())),
            }
        }
        Region::map(name, path, file, meta.size)
    }

    fn map(name: &str, path: PathBuf, file: File, len: u64) -> Result<Region> {
        let map = match usize::try_from(len) {
            Ok(0) => None,
            Ok(len) => {
                let map = Map::new(&file, len, ProtFlags::READ | ProtFlags::WRITE);
                Some(map.map_err(|e| Error::io("map", &path, e))?)
            }
            Err(_) => return Err(Error::limit("a region of more than memory has").at_path(path)),
        };
        Ok(Region { name: name.to_owned(), path, file, map })
    }

    /// What it is called, as an end of a transfer: `memory://NAME`.
    pub fn location(&self) -> String {
        format!("{SPACE}://{}", self.name.replace('$', "$$"))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.bytes().len())
    }

    /// True if it has none: of an empty file that a transfer brought.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What is there. Whoever else has it mapped may change it at any time.
    pub fn bytes(&self) -> &[u8] {
        self.map.as_ref().map_or(&[], Map::bytes)
    }

    /// The same, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.map.as_mut().map_or(&mut [], Map::bytes_mut)
    }

    /// Where it begins, with a page; dangling if it is empty. For those who share it in ways that are not those of Rust.
    pub fn start(&self) -> *mut u8 {
        self.map.as_ref().map_or(std::ptr::dangling_mut(), Map::start)
    }

    /// Says that its bytes were changed: `--sync` and `--exists newer` go by the time of change. Letting it go says so, too.
    ///
    /// # Errors
    /// System errors.
    pub fn touch(&self) -> Result<()> {
        let nothing = Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT };
        let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
        let times = Timestamps { last_access: nothing, last_modification: now };
        rustix::fs::futimens(&self.file, &times)
            .map_err(|e| Error::io("set the time of", &self.path, e.into()))
    }

    /// Removes a region; memory goes with the last one who has it mapped. False if it was not there.
    ///
    /// # Errors
    /// System errors.
    pub fn remove(spaces: &Spaces, name: &str) -> Result<bool> {
        check_relative(name)?;
        let root = Root::open(spaces, SPACE)?;
        let whole = Path::new(name);
        let there = match root.folder().below(whole.parent().unwrap_or(Path::new(""))) {
            Ok(folder) => folder.meta(whole.file_name().unwrap_or_default())?.is_some(),
            Err(e) if e.kind() == Kind::NotFound => false,
            Err(e) => return Err(e),
        };
        root.remove(name)?;
        Ok(there)
    }

    /// All regions, with their bytes, in order.
    ///
    /// # Errors
    /// System errors.
    pub fn list(spaces: &Spaces) -> Result<Vec<(String, u64)>> {
        let mut all = Vec::new();
        below(&Root::open(spaces, SPACE)?.folder(), "", &mut all)?;
        all.sort();
        Ok(all)
    }
}

impl AsFd for Region {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // Whether it was written nobody knows.
        let _ = self.touch();
    }
}

/// Removes what those have left in a folder who were killed while they made memory with a name: nobody else finds it.
pub(crate) fn sweep(folder: &Folder, now: i64) {
    let Ok(names) = folder.names(1 << 12) else { return };
    for name in names.filter_map(Result::ok).flatten() {
        if !is_temporary(&name) {
            continue;
        }
        let Ok(file) = folder.open_file(&name) else { continue };
        let old = Meta::of_file(&file).is_ok_and(|meta| {
            meta.what == What::File && now.saturating_sub(meta.mtime.seconds) > LEFT_FOR_S
        });
        if old && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            // What is somebody else's stays.
            let _ = folder.remove_file(&name);
        }
    }
}

fn no_room(path: &Path, len: u64, free: u64) -> Error {
    let (len, free) = (format_size(len), format_size(free));
    Error::new(Kind::NoSpace, format!("a region of {len}, and {free} of memory are free here"))
        .at_path(path)
        .with_hint("remove regions that nobody needs, or have the file system made larger")
}

fn below(folder: &Folder, path: &str, all: &mut Vec<(String, u64)>) -> Result<()> {
    for names in folder.names(1 << 12)? {
        for name in names? {
            // What is not text no region is called; what is hidden is on its way.
            let Some(text) = name.to_str().filter(|text| !text.starts_with('.')) else { continue };
            let whole = format!("{path}{text}");
            match folder.meta(&name)? {
                Some(meta) if meta.what == What::File => all.push((whole, meta.size)),
                Some(meta) if meta.what == What::Folder => {
                    below(&folder.enter(&name)?, &format!("{whole}/"), all)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaces(dir: &Path) -> Spaces {
        let mut spaces = Spaces::default();
        spaces.imply(SPACE, dir.join("own").to_str().unwrap());
        spaces
    }

    #[test]
    fn the_folder_of_streams_is_told_by_its_name() {
        let is = |name: &str| is_of_streams(OsStr::new(name));
        assert!(is(&folder_of_streams(0)) && is(&folder_of_streams(u32::MAX)));
        assert!(
            ![".streams-", ".streams-a", ".streams-1a", "streams-1", ".streams"].map(is)[..]
                .contains(&true)
        );
    }

    #[test]
    fn regions_are_made_found_and_removed() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let spaces = spaces(dir.path());
        let mut region = Region::create(&spaces, "a/b$c", 10_000).unwrap();
        assert_eq!((region.len(), region.location()), (10_000, "memory://a/b$$c".into()));
        assert!(region.bytes().iter().all(|b| *b == 0));
        region.bytes_mut()[9_999] = 7;
        // Another one sees it, and it is a file as any other, with all its pages.
        let mut other = Region::open(&spaces, "a/b$c").unwrap();
        assert_eq!((other.bytes()[9_999], std::fs::read(region.path()).unwrap()[9_999]), (7, 7));
        other.bytes_mut()[0] = 8;
        assert_eq!(region.bytes()[0], 8);
        assert!(Meta::of_file(&region).unwrap().room >= 10_000);
        assert_eq!(Region::list(&spaces).unwrap(), [("a/b$c".to_owned(), 10_000)]);
        let again = Region::create(&spaces, "a/b$c", 1).unwrap_err();
        assert_eq!(again.kind(), Kind::Usage);
        assert!(Region::remove(&spaces, "a/b$c").unwrap());
        assert!(!Region::remove(&spaces, "a/b$c").unwrap());
        assert_eq!((region.bytes()[0], Region::list(&spaces).unwrap()), (8, vec![]));
        assert_eq!(Region::open(&spaces, "a/b$c").unwrap_err().kind(), Kind::NotFound);
        let mode = Meta::of_file(Root::open(&spaces, SPACE).unwrap().folder()).unwrap().mode;
        assert_eq!(mode, 0o700);
    }

    #[test]
    fn what_cannot_be_is_told_before() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let spaces = spaces(dir.path());
        let kind = |name: &str, len| Region::create(&spaces, name, len).unwrap_err().kind();
        assert_eq!(kind("x", 0), Kind::Usage);
        assert_eq!(kind("x", 1 << 60), Kind::NoSpace);
        assert_eq!(kind("x", u64::MAX), Kind::Limit);
        for out in ["../x", "/x", "a/../../x", ""] {
            assert_eq!(kind(out, 1), Kind::Usage, "{out}");
            assert_eq!(Region::open(&spaces, out).unwrap_err().kind(), Kind::Usage, "{out}");
            assert_eq!(Region::remove(&spaces, out).unwrap_err().kind(), Kind::Usage, "{out}");
        }
        assert_eq!(Region::list(&spaces).unwrap(), []);
        std::os::unix::fs::symlink("/dev/null", dir.path().join("own/l")).unwrap();
        assert_eq!(Region::open(&spaces, "l").unwrap_err().kind(), Kind::Permission);
        // Holes and empty files of others.
        File::create(dir.path().join("own/hole")).unwrap().set_len(1 << 20).unwrap();
        File::create(dir.path().join("own/empty")).unwrap();
        let region = Region::open(&spaces, "hole").unwrap();
        assert!(Meta::of_file(&region).unwrap().room >= 1 << 20);
        assert!(Region::open(&spaces, "empty").unwrap().is_empty());
    }

    #[test]
    fn a_folder_of_others_is_none() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let spaces = spaces(dir.path());
        std::fs::create_dir(dir.path().join("own")).unwrap();
        let open = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(dir.path().join("own"), open).unwrap();
        assert_eq!(Region::list(&spaces).unwrap_err().kind(), Kind::Permission);
        std::fs::remove_dir(dir.path().join("own")).unwrap();
        std::os::unix::fs::symlink("/dev/shm", dir.path().join("own")).unwrap();
        Region::list(&spaces).unwrap_err();
    }

    #[test]
    fn letting_go_says_that_it_was_changed() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let spaces = spaces(dir.path());
        let region = Region::create(&spaces, "x", 1).unwrap();
        let old = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1);
        let path = region.path().to_owned();
        File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        drop(region);
        assert!(std::fs::metadata(&path).unwrap().modified().unwrap() > old);
    }

    #[test]
    fn what_those_left_who_were_killed_goes() {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let spaces = spaces(dir.path());
        drop(Region::create(&spaces, "d/x", 1).unwrap());
        let made = |name: &str| File::create(dir.path().join("own/d").join(name)).unwrap();
        let old = |name: &str| {
            let file = made(name);
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
            file
        };
        let under_way = old(".y.stead-1-0.tmp");
        flock(&under_way, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop((old(".y.stead-1-1.tmp"), made(".y.stead-1-2.tmp"), old(".other")));
        drop(Region::create(&spaces, "d/z", 1).unwrap());
        let mut names: Vec<String> = (std::fs::read_dir(dir.path().join("own/d")).unwrap())
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, [".other", ".y.stead-1-0.tmp", ".y.stead-1-2.tmp", "x", "z"]);
    }

    #[test]
    fn one_that_is_configured_goes_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut spaces = spaces(dir.path());
        assert!(spaces.has(SPACE) && spaces.names().next().is_none());
        spaces.give(&format!("memory={}", dir.path().display()), &|_| None).unwrap();
        assert_eq!(spaces.place(SPACE).unwrap(), dir.path().to_str().unwrap());
        let region = Region::create(&spaces, "x", 5).unwrap();
        assert_eq!(region.path(), dir.path().join("x"));
    }
}
