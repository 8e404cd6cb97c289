//! Words in memory that processes of one user change together: a small file in a private folder, mapped as a whole.
//!
//! [`Words::create`] makes them as a [`Draft`], which nobody else finds before it is [published](Draft::publish); others
//! [open](Words::open) them by their name. Each word is an [`AtomicU64`]. What they mean, and that they are changed in an order that
//! holds when somebody is killed in between, is up to who uses them; who reads them believes nothing that he has not checked.
//!
//! All pages are there from the beginning, so that writing never raises a signal. Looking would if somebody made the file shorter: nothing
//! in stead does, and the folder is this user's alone, whose processes trust each other in this.

use crate::segment::Map;
use crate::{AtomicFile, Folder, Meta, region, shared};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mm::ProtFlags;
use rustix::thread::futex;
use std::ffi::OsStr;
use std::fs::{File, Permissions};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::time::Duration;
use stead_core::{Error, Kind, Result};

const WORD: u64 = size_of::<AtomicU64>() as u64;

/// See the module's documentation.
pub struct Words {
    map: Map,
    file: File,
    path: PathBuf,
}

/// How a wait for a word ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// Somebody woke those who wait, or a signal came: it is to be looked again.
    Woken,
    /// The word had another value already.
    Changed,
    /// Nothing came in time; or there is no such word.
    TimedOut,
}

impl std::fmt::Debug for Words {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Words({}, {} words)", self.path.display(), self.len())
    }
}

impl Words {
    /// New words in a folder that is this user's alone, all zero, which nobody else finds before [`Draft::publish`].
    ///
    /// # Errors
    /// `NoSpace` if there is no memory; `Limit` if a process may have no such file; `Usage` without words; system errors.
    pub fn create(folder: &Folder, name: &str, words: usize) -> Result<Draft> {
        let path = folder.at(OsStr::new(name));
        if words == 0 || !is_name(name) {
            let what = if words == 0 {
                "there are no words to share"
            } else {
                "this is no name of a file"
            };
            return Err(Error::usage(what).at_path(path));
        }
        let len = (words as u64).checked_mul(WORD).filter(|len| *len <= shared::longest());
        let size = len.and_then(|len| Some((len, usize::try_from(len).ok()?)));
        let (len, size) = size.ok_or_else(|| {
            let what = format!("{words} words are more than a file may have");
            Error::limit(what).at_path(&path).with_hint("see ulimit -f")
        })?;
        // Whether the name is free counts when it is given.
        let new = folder.write_file(OsStr::new(name), false)?.only_new();
        let own = Permissions::from_mode(0o600);
        new.file().set_permissions(own).map_err(|e| Error::io("make private", &path, e))?;
        // Who tidies up sees that somebody still makes it.
        let _ = flock(new.file(), FlockOperation::NonBlockingLockExclusive);
        // What others left who were killed before they had published theirs.
        let now = Meta::of_file(new.file()).map_err(|e| Error::io("look at", &path, e))?;
        region::sweep(folder, now.mtime.seconds);
        match shared::allocate(new.file(), 0, len) {
            Ok(()) => {}
            Err(Errno::NOSPC | Errno::DQUOT | Errno::NOMEM) => {
                return Err(shared::no_room(folder, len));
            }
            Err(e) => return Err(Error::io("take memory for", path, e.into())),
        }
        let file = new.file().try_clone().map_err(|e| Error::io("open", &path, e))?;
        let words = Words::map(file, path, size)?;
        Ok(Draft { words, new })
    }

    /// The words of this name, which are no more than `most`.
    ///
    /// # Errors
    /// `NotFound`; `Permission` if they are another user's, or the name is a link; `Data` if it is no file of whole words, or longer;
    /// `NoSpace` if it has holes that there is no memory for; system errors.
    pub fn open(folder: &Folder, name: &str, most: usize) -> Result<Words> {
        let path = folder.at(OsStr::new(name));
        let file = folder.reopen_file(OsStr::new(name))?;
        let meta = shared::look_at(folder, OsStr::new(name), &file)?;
        let bound = (most as u64).saturating_mul(WORD);
        let whole = meta.size > 0 && meta.size.is_multiple_of(WORD) && meta.size <= bound;
        let size = usize::try_from(meta.size).ok().filter(|_| whole).ok_or_else(|| {
            let what = format!("{} bytes are no words, or more than {most}", meta.size);
            Error::data(what).at_path(&path)
        })?;
        if meta.room < meta.size {
            // Who writes where there is a hole would get a signal if there is no memory.
            match shared::allocate(&file, 0, meta.size) {
                Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS) => {}
                Err(Errno::NOSPC | Errno::DQUOT | Errno::NOMEM) => {
                    return Err(shared::no_room(folder, meta.size));
                }
                Err(e) => return Err(Error::io("take memory for", path, e.into())),
            }
        }
        Words::map(file, path, size)
    }

    fn map(file: File, path: PathBuf, len: usize) -> Result<Words> {
        let map = Map::new(&file, len, ProtFlags::READ | ProtFlags::WRITE);
        let map = map.map_err(|e| Error::io("map", &path, e))?;
        Ok(Words { map, file, path })
    }

    fn words(&self) -> &[AtomicU64] {
        shared::words(&self.map)
    }

    /// How many there are; never none.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> usize {
        self.words().len()
    }

    /// One of them.
    pub fn get(&self, i: usize) -> Option<&AtomicU64> {
        self.words().get(i)
    }

    /// Where they lie, for people.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// False if the file has no name any more: whoever comes now finds other ones, or none.
    pub fn has_name(&self) -> bool {
        rustix::fs::fstat(&self.file).is_ok_and(|stat| stat.st_nlink > 0)
    }

    /// Sleeps while the low half of a word is `seen`, until somebody in any process [wakes](Words::wake) those who do, so long at most.
    pub fn wait(&self, i: usize, seen: u32, timeout: Duration) -> Waited {
        let Some(word) = self.get(i) else { return Waited::TimedOut };
        let timeout = futex::Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: timeout.subsec_nanos().into(),
        };
        let waited =
            futex::wait(shared::low_half(word), futex::Flags::empty(), seen, Some(&timeout));
        match waited {
            Ok(()) | Err(Errno::INTR) => Waited::Woken,
            Err(Errno::AGAIN) => Waited::Changed,
            // Whatever else it is, who comes at once again would spin.
            Err(_) => Waited::TimedOut,
        }
    }

    /// Wakes up to `most` of those who [wait](Words::wait) for this word, in any process: how many.
    pub fn wake(&self, i: usize, most: u32) -> usize {
        let Some(word) = self.get(i) else { return 0 };
        // The system takes a signed number.
        let most = most.min(i32::MAX.unsigned_abs());
        futex::wake(shared::low_half(word), futex::Flags::empty(), most).unwrap_or(0)
    }
}

/// One step in a folder.
fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(['/', '\0'])
}

/// [`Words`] that nobody else finds yet: to be filled in. Dropped, it leaves nothing.
#[derive(Debug)]
pub struct Draft {
    words: Words,
    new: AtomicFile,
}

impl Deref for Draft {
    type Target = Words;

    fn deref(&self) -> &Words {
        &self.words
    }
}

impl Draft {
    /// Gives them their name. `None` if somebody else has been first: those of that name are to be opened.
    ///
    /// # Errors
    /// `Cancelled` in a process that was forked since; system errors.
    pub fn publish(self) -> Result<Option<Words>> {
        let Draft { words, new } = self;
        match new.commit_hint() {
            Ok(()) => {
                let _ = flock(&words.file, FlockOperation::Unlock);
                Ok(Some(words))
            }
            Err(e) if e.kind() == Kind::Usage => Ok(None),
            Err(e) => Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::Ordering::SeqCst;

    const LONG: Duration = Duration::from_secs(60);

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir_in("/dev/shm").unwrap();
        let folder = Folder::open(dir.path()).unwrap();
        (dir, folder)
    }

    fn names(dir: &tempfile::TempDir) -> Vec<String> {
        let entries = std::fs::read_dir(dir.path()).unwrap();
        entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn nobody_finds_them_before_they_are_published() {
        let (dir, folder) = folder();
        let draft = Words::create(&folder, "board", 1000).unwrap();
        assert_eq!(draft.len(), 1000);
        assert!((0..1000).all(|i| draft.get(i).unwrap().load(SeqCst) == 0));
        assert!(draft.get(1000).is_none() && draft.get(usize::MAX).is_none());
        draft.get(999).unwrap().store(u64::MAX - 5, SeqCst);
        assert_eq!(Words::open(&folder, "board", 1000).unwrap_err().kind(), Kind::NotFound);
        let words = draft.publish().unwrap().unwrap();
        assert_eq!(names(&dir), ["board"]);
        let other = Words::open(&folder, "board", 1000).unwrap();
        assert_eq!(other.get(999).unwrap().load(SeqCst), u64::MAX - 5);
        other.get(0).unwrap().fetch_add(3, SeqCst);
        assert_eq!((words.get(0).unwrap().load(SeqCst), other.len()), (3, 1000));
        let meta = folder.meta(OsStr::new("board")).unwrap().unwrap();
        assert_eq!((meta.mode, meta.size), (0o600, 8000));
        assert!(meta.room >= 8000);
        assert!(words.has_name());
        folder.remove_file(OsStr::new("board")).unwrap();
        assert!(!words.has_name() && !other.has_name());
        // One that is dropped leaves nothing.
        drop(Words::create(&folder, "board", 1).unwrap());
        assert_eq!(names(&dir), [""; 0]);
    }

    #[test]
    fn of_two_who_make_them_one_is_first() {
        let (dir, folder) = folder();
        let (a, b) =
            (Words::create(&folder, "x", 1).unwrap(), Words::create(&folder, "x", 2).unwrap());
        a.get(0).unwrap().store(1, SeqCst);
        assert!(b.publish().unwrap().is_some());
        assert!(a.publish().unwrap().is_none());
        assert!(Words::create(&folder, "x", 1).unwrap().publish().unwrap().is_none());
        assert_eq!(names(&dir), ["x"]);
        let there = Words::open(&folder, "x", 5).unwrap();
        assert_eq!((there.len(), there.get(0).unwrap().load(SeqCst)), (2, 0));
    }

    #[test]
    fn what_those_left_who_were_killed_goes() {
        let (dir, folder) = folder();
        let old = |name: &str| {
            let file = File::create(dir.path().join(name)).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
            file
        };
        drop((old(".x.stead-1-0.tmp"), old("other")));
        // One that somebody fills in at the moment, for however long.
        let draft = Words::create(&folder, "y", 1).unwrap();
        draft.file.set_modified(std::time::UNIX_EPOCH).unwrap();
        drop(Words::create(&folder, "x", 1).unwrap().publish().unwrap());
        assert!(draft.publish().unwrap().is_some());
        let mut names = names(&dir);
        names.sort();
        assert_eq!(names, ["other", "x", "y"]);
    }

    #[test]
    fn what_cannot_be_is_told() {
        let (dir, folder) = folder();
        let made = |words| Words::create(&folder, "x", words).unwrap_err();
        assert_eq!(made(0).kind(), Kind::Usage);
        assert_eq!(made(usize::MAX).kind(), Kind::Limit);
        let full = made(1 << 50);
        assert_eq!(full.kind(), Kind::NoSpace, "{full}");
        assert_eq!(full.place().path.as_deref(), Some(dir.path()));
        assert!(full.hint().unwrap().contains("[dataspace.memory]"), "{full:?}");
        for name in ["", ".", "..", "a/b", "/x", "a\0b"] {
            assert_eq!(Words::create(&folder, name, 1).unwrap_err().kind(), Kind::Usage, "{name}");
        }
        assert_eq!(names(&dir), [""; 0]);
        let kind = |name: &str| Words::open(&folder, name, 8).unwrap_err().kind();
        let file = |name: &str, len| {
            File::create(dir.path().join(name)).unwrap().set_len(len).unwrap();
            kind(name)
        };
        assert_eq!(kind("none"), Kind::NotFound);
        for len in [0, 7, 9, 72, 1 << 40] {
            assert_eq!(file("odd", len), Kind::Data, "{len}");
        }
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        std::os::unix::fs::symlink("odd", dir.path().join("link")).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("pipe"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        assert_eq!((kind("link"), kind("pipe")), (Kind::Permission, Kind::Data));
        Words::open(&folder, "folder", 8).unwrap_err();
        // One with holes gets its pages.
        File::create(dir.path().join("hole")).unwrap().set_len(64).unwrap();
        let words = Words::open(&folder, "hole", 8).unwrap();
        assert!(folder.meta(OsStr::new("hole")).unwrap().unwrap().room >= 64);
        words.get(7).unwrap().store(1, SeqCst);
    }

    #[test]
    fn who_waits_is_woken_through_another_mapping() {
        let (_dir, folder) = folder();
        let words = Arc::new(Words::create(&folder, "x", 600).unwrap().publish().unwrap().unwrap());
        let other = Words::open(&folder, "x", 600).unwrap();
        // Only the low half counts.
        let word = other.get(513).unwrap();
        word.store(7 << 32 | 5, SeqCst);
        assert_eq!(words.wait(513, 6, LONG), Waited::Changed);
        assert_eq!(words.wait(513, 5, Duration::from_millis(1)), Waited::TimedOut);
        assert_eq!(words.wait(513, 5, Duration::ZERO), Waited::TimedOut);
        assert_eq!(words.wait(600, 0, LONG), Waited::TimedOut);
        assert_eq!((words.wake(600, 1), words.wake(513, u32::MAX)), (0, 0));
        let waiting: Vec<_> = (0..3)
            .map(|_| {
                let words = words.clone();
                std::thread::spawn(move || words.wait(513, 5, Duration::MAX))
            })
            .collect();
        // Each of them is woken once: as many as are told, and no other word's.
        let mut woken = 0;
        for _ in 0..60_000 {
            assert_eq!(other.wake(512, u32::MAX), 0);
            let some = other.wake(513, 1);
            assert!(some <= 1);
            woken += some;
            if woken == 3 {
                break;
            }
            // They may not wait yet: nobody here ever hears of it.
            assert_eq!(words.wait(0, 0, Duration::from_millis(1)), Waited::TimedOut);
        }
        assert_eq!(woken, 3);
        for thread in waiting {
            assert_eq!(thread.join().unwrap(), Waited::Woken);
        }
    }

    const CHILD: &str = "STEAD_TEST_WORDS";

    /// What the other process does in the test below.
    #[test]
    fn another_process() {
        let Some(path) = std::env::var_os(CHILD) else { return };
        let words = Words::open(&Folder::open(Path::new(&path)).unwrap(), "x", 8).unwrap();
        let (ask, answer) = (words.get(0).unwrap(), words.get(1).unwrap());
        for turn in 1..=100u32 {
            while ask.load(SeqCst) != u64::from(turn) {
                assert_ne!(words.wait(0, turn - 1, LONG), Waited::TimedOut);
            }
            answer.store(u64::from(turn), SeqCst);
            words.wake(1, 1);
        }
    }

    #[test]
    fn processes_wake_each_other() {
        let (dir, folder) = folder();
        let words = Words::create(&folder, "x", 8).unwrap().publish().unwrap().unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "words::tests::another_process", "--nocapture"])
            .stdout(std::process::Stdio::null())
            .env(CHILD, dir.path())
            .spawn()
            .unwrap();
        for turn in 1..=100u32 {
            words.get(0).unwrap().store(u64::from(turn), SeqCst);
            words.wake(0, 1);
            while words.get(1).unwrap().load(SeqCst) != u64::from(turn) {
                assert_ne!(words.wait(1, turn - 1, LONG), Waited::TimedOut, "turn {turn}");
            }
        }
        assert!(child.wait().unwrap().success());
    }
}
