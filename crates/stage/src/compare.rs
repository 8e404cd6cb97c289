//! Files of one size, compared by what is in them, for plans: each side is read where it lies, and what is held against each other are
//! checksums. Between nodes no byte of a file travels.
//!
//! They are read as files are copied: by pieces, which threads take, past the page cache, no faster than a limit allows.

use crate::bytes::{Fault, Room, Source};
use crate::clock::Watch;
use crate::copy::{Means, lock};
use crate::drive::{OBJECTS_AT_ONCE, are_small};
use crate::job::{Item, Task};
use crate::limiter::{Limiter, flows};
use crate::manager::{self, How};
use crate::pace::Pace;
use crate::place::Place;
use crate::remote::{Far, Told, Wanted};
use crate::request::{Action, Request};
use crate::serve::Serve;
use crate::status::{Progress, Watcher};
use crate::sum::{PIECE, Sum, pieces_of};
use crate::touch::{self, Bounds, Touched};
use crate::unnamed::Unnamed;
use crate::work::{self, Carries, Carry, Track};
use std::cell::{Cell, OnceCell};
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use stead_core::{Cancel, Error, Kind, Result, limits};
use stead_model::transfer::Remaining;
use stead_store::device::Device;
use stead_store::{Bucket, FileTime, Folder, Meta, Object, What};

/// Files that are compared together.
const TOGETHER: usize = 2048;

/// One side of a file, open.
enum Side {
    Here(Source, Meta, PathBuf),
    /// As the other node has told it; none of a file of one piece, for which one question is enough. So it is with an object.
    Far(Far, OsString, Option<Box<Told>>),
    Object(Bucket, String, Option<Object>),
}

/// What ends a comparison: the file is another one, for whatever reason.
fn other(path: PathBuf) -> Error {
    Error::new(Kind::Changed, "this is another file than on the other side").at_path(path)
}

impl Side {
    fn open(place: &Place, name: &OsStr, size: u64) -> Result<Side> {
        let (path, several) = (place.at(name), pieces_of(size) > 1);
        let is = |meta: &Meta| meta.what == What::File && meta.size == size;
        match place {
            Place::Folder(folder) => {
                let file = folder.open_file(name)?;
                let meta = Meta::of_file(&file).map_err(|e| Error::io("look at", &path, e))?;
                if !is(&meta) {
                    return Err(other(path));
                }
                let mut source = Source::new(file, &meta);
                source.choose();
                Ok(Side::Here(source, meta, path))
            }
            Place::Far(far) => {
                let told = match several {
                    true => Some(far.looked_at(name)?),
                    false => None,
                };
                match told {
                    Some((meta, _)) if !is(&meta) => Err(other(path)),
                    told => {
                        let told = told.map(|(_, told)| Box::new(told));
                        Ok(Side::Far(far.clone(), name.to_owned(), told))
                    }
                }
            }
            Place::Bucket(prefix) => {
                let key = prefix.key(Path::new(name))?;
                let object = match several {
                    true => prefix.bucket().head(&key)?.filter(|object| object.size == size),
                    false => None,
                };
                if several && object.is_none() {
                    return Err(other(path));
                }
                Ok(Side::Object(prefix.bucket().clone(), key, object))
            }
        }
    }

    /// The checksum of what lies between two places of a file of so many bytes.
    fn sum(&self, of: Range<u64>, size: u64, room: &mut Room, means: &Means<'_>) -> Result<u64> {
        match self {
            Side::Here(source, _, path) => {
                let failed =
                    |fault: Fault| fault.told("read", path.clone(), || other(path.clone()));
                source.each(of, room, means.pace, means.cancel, &mut |_| Ok(()), &failed)
            }
            Side::Far(far, name, seen) => {
                let wanted = Wanted {
                    range: of,
                    seen: seen.as_deref(),
                    careful: false,
                    attributes: false,
                    gentle: means.pace.is_some(),
                };
                let (sum, told) = far.sum(name, &wanted)?;
                match told.meta().is_some_and(|meta| meta.size == size) {
                    true => Ok(sum),
                    false => Err(other(far.shown().join(name))),
                }
            }
            Side::Object(bucket, key, seen) => {
                let (bytes, now) = bucket.get(key, of, seen.as_ref())?;
                if now.size != size {
                    return Err(other(bucket.shown(key)));
                }
                let mut sum = Sum::new();
                sum.bytes(&bytes);
                Ok(sum.finish())
            }
        }
    }

    /// False if a file of this node has changed since it was opened: of others each answer says so.
    fn stays(&self) -> Result<bool> {
        match self {
            Side::Here(source, meta, path) => {
                let now = Meta::of_file(source.file());
                Ok(now.map_err(|e| Error::io("look at", path, e))?.same(meta))
            }
            Side::Far(..) | Side::Object(..) => Ok(true),
        }
    }
}

/// A file that both sides have, and that is compared; nothing is brought.
struct Compare {
    track: Track,
    from: Place,
    to: Place,
    opened: Mutex<Option<Arc<(Side, Side)>>>,
}

impl Compare {
    fn new(from: &Place, to: &Place, file: &Pair) -> Compare {
        let item = Item {
            n: 0,
            task: Task::File,
            from: 0,
            source: PathBuf::from(&file.name),
            target: PathBuf::from(&file.there),
            size: file.size,
            mtime: FileTime::default(),
            first: -1,
            replace: false,
        };
        let track = Track::new(item, pieces_of(file.size));
        Compare { track, from: from.clone(), to: to.clone(), opened: Mutex::new(None) }
    }

    fn both(&self) -> Result<Arc<(Side, Side)>> {
        let mut opened = lock(&self.opened);
        if let Some(both) = &*opened {
            return Ok(both.clone());
        }
        let item = self.track.item();
        let name = item.source.as_os_str();
        let from = Side::open(&self.from, name, item.size)?;
        let both = Arc::new((from, Side::open(&self.to, item.name(), item.size)?));
        *opened = Some(both.clone());
        Ok(both)
    }

    fn differs(&self) -> Error {
        other(self.to.at(self.track.item().name()))
    }
}

impl Carry for Compare {
    fn track(&self) -> &Track {
        &self.track
    }

    fn try_piece(&self, number: u64, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let (from, size) = (number * PIECE, self.track.item().size);
        let end = (from + PIECE).min(size);
        means.limiter.take(usize::try_from(end - from).unwrap_or(0), means.cancel)?;
        let both = self.both()?;
        if both.0.sum(from..end, size, room, means)? != both.1.sum(from..end, size, room, means)? {
            return Err(self.differs());
        }
        self.track.count(end - from, true, means);
        Ok(())
    }

    fn finish(&self, _: &mut Room, _: &Means<'_>) -> Result<()> {
        let both = self.both()?;
        if both.0.stays()? && both.1.stays()? { Ok(()) } else { Err(self.differs()) }
    }

    fn close(&self, _: bool) {
        *lock(&self.opened) = None;
    }

    fn folder(&self) -> Option<&Folder> {
        None
    }

    // All that comes of it is what is known then.
    fn name(&self) -> Result<()> {
        Ok(())
    }

    fn leave(&self) -> Result<()> {
        Ok(())
    }

    fn abandon(&self) -> Result<()> {
        Ok(())
    }
}

/// A file by its names in the folders of both sides, with the size that it has on both.
pub(crate) struct Pair {
    pub(crate) name: OsString,
    pub(crate) there: OsString,
    pub(crate) size: u64,
}

/// How many files and bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Amount {
    files: u64,
    bytes: u64,
}

/// Compares the files of a plan.
pub(crate) struct Comparer<'a> {
    /// What cannot be read is an error.
    strict: bool,
    cancel: &'a Cancel,
    watcher: Option<&'a dyn Watcher>,
    /// As many threads; as many for small files; as many where a side is elsewhere.
    threads: [usize; 3],
    gentle: bool,
    limiter: Limiter,
    pace: OnceCell<Option<Pace>>,
    watch: Watch,
    done: Cell<Amount>,
    all: Cell<Amount>,
    told_at: Cell<f64>,
}

/// What a plan touches: what it has had its turn for, or what names tell.
pub(crate) fn touched(request: &Request, means: &manager::Means, how: &How<'_>) -> Result<Touched> {
    match how.held {
        Some(held) => Ok(held.clone()),
        None => Ok(Touched::by_names(&means.spaces, &manager::fixed(request)?)),
    }
}

impl<'a> Comparer<'a> {
    /// With so many threads, and for small files so many.
    ///
    /// # Errors
    /// `Usage` where the working directory is not text.
    pub(crate) fn new(
        request: &Request,
        means: &manager::Means,
        (large, small): (usize, usize),
        how: &How<'a>,
        watcher: Option<&'a dyn Watcher>,
    ) -> Result<Comparer<'a>> {
        // Of what a transfer has had no turn for there may never be a part.
        let touched = touched(request, means, how)?;
        let (bounds, looks) = (Bounds::of(means), how.held.is_none());
        let shared = flows(&bounds, &touched, !looks);
        // Who only looks has no part of what others on the node share, and is no faster than all of them may be.
        let common = bounds.shared(&touched).filter(|(_, bound)| looks && bound.is_common);
        let own = common.filter_map(|(_, bound)| bound.limit).chain(request.options.limit).min();
        let elsewhere = match means.threads {
            0 => OBJECTS_AT_ONCE,
            n => n.min(limits::MAX_THREADS),
        };
        Ok(Comparer {
            strict: how.strict,
            cancel: how.cancel,
            watcher,
            threads: [large, small, elsewhere],
            gentle: request.options.gentle || touch::gentle(&means.spaces, &touched),
            limiter: Limiter::new(own, shared),
            pace: OnceCell::new(),
            watch: Watch::start(),
            done: Cell::default(),
            all: Cell::default(),
            told_at: Cell::new(0.0),
        })
    }

    /// The node that has the sources lets no more bytes a second be read.
    pub(crate) fn keep_to(&mut self, limit: u64) {
        self.limiter.keep_to(limit);
    }

    /// True of those files that have the same bytes in both folders, in order. What cannot be read, or changes meanwhile, has other ones:
    /// whoever copies it says why. Where that is all that is asked, what cannot be read is an error.
    ///
    /// # Errors
    /// `Cancelled`; those of a store, and of another node, that does not answer.
    pub(crate) fn are_same(&self, from: &Place, to: &Place, files: &[Pair]) -> Result<Vec<bool>> {
        let mut all = self.all.get();
        all.files += files.len() as u64;
        all.bytes = files.iter().fold(all.bytes, |n, file| n.saturating_add(file.size));
        self.all.set(all);
        let elsewhere = [from, to].iter().any(|place| !matches!(place, Place::Folder(_)));
        let device = |place: &Place| place.folder().ok().and_then(Device::of);
        let gentle = self.gentle || from.far().is_some_and(Far::is_gentle);
        let pace = self
            .pace
            .get_or_init(|| gentle.then(|| Pace::new(device(from), device(to), self.threads[0])));
        let (clones, serve) = (AtomicBool::new(false), Serve::new(false));
        let mut same = Vec::with_capacity(files.len());
        for some in files.chunks(TOGETHER) {
            let new = |file: &Pair| Box::new(Compare::new(from, to, file)) as Box<dyn Carry>;
            let compared: Carries = some.iter().map(new).collect();
            let [bytes, kept, whole] = [0; 3].map(AtomicU64::new);
            let means = Means {
                limiter: &self.limiter,
                pace: pace.as_ref(),
                cancel: self.cancel,
                sync_each: false,
                verify: false,
                bytes: &bytes,
                kept: &kept,
                careful: false,
                files: &whole,
                clones: &clones,
                serve: &serve,
                unnamed: &Unnamed::new(),
                forget: &|_| Ok(()),
            };
            let threads = match (elsewhere, gentle) {
                (true, _) => self.threads[2],
                (_, false) if are_small(&compared) => self.threads[1],
                _ => self.threads[0],
            };
            work::copy(&compared, threads, gentle, &means, &mut || {
                self.tell(bytes.load(Ordering::Relaxed));
            });
            self.cancel.check()?;
            for one in &compared {
                same.push(match one.track().take_error() {
                    None => true,
                    Some(e) if self.is_of_file(&e, from, to) => false,
                    Some(e) => return Err(e),
                });
            }
            let Amount { files, bytes } = self.done.get();
            // Of those that differ the rest is read no more.
            let bytes = some.iter().fold(bytes, |n, file| n.saturating_add(file.size));
            self.done.set(Amount { files: files + some.len() as u64, bytes });
            // Small ones are compared before anybody looks.
            self.tell(0);
        }
        Ok(same)
    }

    /// True of an error that is about one file, which is another one then.
    fn is_of_file(&self, e: &Error, from: &Place, to: &Place) -> bool {
        let of_store = from.bucket().or(to.bucket()).is_some();
        match e.kind() {
            Kind::Changed | Kind::NotFound => true,
            Kind::Permission => !self.strict,
            // A store that fails does so with the next one, too.
            Kind::Io | Kind::Usage => !self.strict && !of_store,
            _ => false,
        }
    }

    /// Tells who watches how far it is, now and then.
    fn tell(&self, bytes: u64) {
        let now = self.watch.seconds();
        let Some(watcher) = self.watcher else { return };
        if now - self.told_at.get() < work::LOOK.as_secs_f64() {
            return;
        }
        self.told_at.set(now);
        let (done, all) = (self.done.get(), self.all.get());
        watcher.progress(&Progress {
            action: Action::Sync,
            files_done: done.files,
            files: all.files,
            bytes_done: done.bytes.saturating_add(bytes).min(all.bytes),
            bytes: all.bytes,
            planned: false,
            seconds: now,
            moved: 0,
            left: Remaining::default(),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Options;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicUsize;
    use stead_core::Location;
    use stead_core::layout::Spaces;

    /// Notes how far it was told to be, and stops it at once if it is to.
    #[derive(Default)]
    struct Noted {
        told: AtomicUsize,
        last: Mutex<Option<Progress>>,
        stops: Option<Cancel>,
    }

    impl Watcher for Noted {
        fn progress(&self, progress: &Progress) {
            self.told.fetch_add(1, Ordering::Relaxed);
            *lock(&self.last) = Some(*progress);
            if let Some(cancel) = &self.stops {
                cancel.cancel();
            }
        }
    }

    struct Both {
        dir: tempfile::TempDir,
    }

    impl Both {
        fn new() -> Both {
            let dir = tempfile::tempdir().unwrap();
            for name in ["from", "to"] {
                std::fs::create_dir(dir.path().join(name)).unwrap();
            }
            Both { dir }
        }

        fn write(&self, name: &str, bytes: &[u8]) {
            std::fs::write(self.dir.path().join(name), bytes).unwrap();
        }

        fn place(&self, name: &str) -> Place {
            Place::Folder(Folder::open(&self.dir.path().join(name)).unwrap())
        }

        fn request(&self, options: Options) -> Request {
            let at = |name: &str| {
                let path = self.dir.path().join(name).display().to_string();
                Location::parse(&path, &|_| None).unwrap()
            };
            let (sources, target) = (vec![at("from")], Some(at("to")));
            Request { action: Action::Sync, sources, target, options }
        }

        fn comparer<'a>(
            &self,
            options: Options,
            strict: bool,
            cancel: &'a Cancel,
            watcher: Option<&'a dyn Watcher>,
        ) -> Comparer<'a> {
            let request = self.request(options);
            let means = manager::Means::default();
            let how = How { strict, ..How::looks(None, cancel) };
            Comparer::new(&request, &means, (3, 3), &how, watcher).unwrap()
        }

        fn same(&self, strict: bool, files: &[(&str, u64)]) -> Result<Vec<bool>> {
            let cancel = Cancel::new();
            let comparer = self.comparer(Options::default(), strict, &cancel, None);
            comparer.are_same(&self.place("from"), &self.place("to"), &pairs(files))
        }
    }

    fn pairs(files: &[(&str, u64)]) -> Vec<Pair> {
        let of = |(name, size): &(&str, u64)| Pair {
            name: OsString::from(name),
            there: OsString::from(name),
            size: *size,
        };
        files.iter().map(of).collect()
    }

    #[test]
    fn files_are_told_apart_by_what_is_in_them() {
        let b = Both::new();
        let size = 2 * PIECE + 4321;
        let mut large: Vec<u8> = (0..size as usize).map(|i| (i / 3 % 251) as u8).collect();
        b.write("from/large", &large);
        b.write("to/large", &large);
        b.write("from/other", &large);
        *large.last_mut().unwrap() ^= 1;
        b.write("to/other", &large);
        b.write("from/small", b"abc");
        b.write("to/small", b"abd");
        b.write("from/twin", b"abc");
        b.write("to/twin", b"abc");
        // Zeros that nobody has written are as those that somebody has.
        let hole = File::create(b.dir.path().join("from/hole")).unwrap();
        hole.write_all_at(b"end", PIECE + 100_000).unwrap();
        hole.set_len(size).unwrap();
        let mut zeros = vec![0; size as usize];
        zeros[(PIECE + 100_000) as usize..][..3].copy_from_slice(b"end");
        b.write("to/hole", &zeros);
        let files = [("large", size), ("other", size), ("small", 3), ("twin", 3), ("hole", size)];
        let same = b.same(false, &files).unwrap();
        assert_eq!(same, [true, false, false, true, true]);
    }

    #[test]
    fn what_cannot_be_read_is_another_file_unless_that_is_what_is_asked() {
        let b = Both::new();
        b.write("from/gone", b"abc");
        b.write("from/longer", b"abc");
        b.write("to/longer", b"abcd");
        b.write("from/folder", b"abc");
        std::fs::create_dir(b.dir.path().join("to/folder")).unwrap();
        let files = [("gone", 3), ("longer", 3), ("folder", 3)];
        assert_eq!(b.same(false, &files).unwrap(), [false; 3]);
        // It came and went: there is something else by now.
        assert_eq!(b.same(true, &files[..2]).unwrap(), [false; 2]);
        if rustix::process::geteuid().is_root() {
            return;
        }
        b.write("from/closed", b"abc");
        b.write("to/closed", b"abc");
        let path = b.dir.path().join("to/closed");
        let none = std::os::unix::fs::PermissionsExt::from_mode(0o000);
        std::fs::set_permissions(path, none).unwrap();
        let files = [("closed", 3)];
        assert_eq!(b.same(false, &files).unwrap(), [false]);
        let e = b.same(true, &files).unwrap_err();
        assert_eq!(e.kind(), Kind::Permission, "{e}");
    }

    #[test]
    fn who_watches_is_told_and_may_stop_it() {
        let b = Both::new();
        let all = vec![7; 4 << 20];
        for name in ["from/a", "to/a"] {
            b.write(name, &all);
        }
        let cancel = Cancel::new();
        let noted = Noted { stops: Some(cancel.clone()), ..Noted::default() };
        // So slowly that it is told before it is done.
        let slow = Options { limit: Some(1 << 20), ..Options::default() };
        let comparer = b.comparer(slow, false, &cancel, Some(&noted));
        let files = [("a", 4 << 20), ("a", 4 << 20), ("a", 4 << 20)];
        let e = comparer.are_same(&b.place("from"), &b.place("to"), &pairs(&files)).unwrap_err();
        assert_eq!(e.kind(), Kind::Cancelled, "{e}");
        assert!(noted.told.load(Ordering::Relaxed) > 0);
        let last = lock(&noted.last).unwrap();
        assert_eq!((last.planned, last.files, last.bytes, last.moved), (false, 3, 12 << 20, 0));
        assert!(last.bytes_done <= last.bytes && last.left == Remaining::default());
    }

    #[test]
    fn who_watches_is_told_of_small_files_of_many_folders() {
        let b = Both::new();
        for name in ["from/a", "to/a"] {
            b.write(name, b"small");
        }
        let (cancel, noted, watch) = (Cancel::new(), Noted::default(), Watch::start());
        let comparer = b.comparer(Options::default(), false, &cancel, Some(&noted));
        let (from, to, files) = (b.place("from"), b.place("to"), pairs(&[("a", 5)]));
        while watch.seconds() < 5.0 && noted.told.load(Ordering::Relaxed) < 3 {
            assert_eq!(comparer.are_same(&from, &to, &files).unwrap(), [true]);
        }
        assert!(noted.told.load(Ordering::Relaxed) >= 3);
    }

    #[test]
    fn nobody_waits_for_a_part_of_what_others_share_that_never_comes() {
        let b = Both::new();
        for name in ["from/a", "to/a"] {
            b.write(name, b"small");
        }
        let path = b.dir.path().display();
        let text = format!("[dataspace.shared]\npath = '{path}'\nlimit = \"1GB\"\n");
        let spaces = || Spaces::parse(&text, &|_| None).unwrap();
        let (spaces, common) = (spaces(), Some(spaces()));
        let means = manager::Means { spaces, common, ..manager::Means::default() };
        let (cancel, request) = (Cancel::new(), b.request(Options::default()));
        let same = |held: Option<&Touched>| {
            let how = How { held, ..How::looks(None, &cancel) };
            let comparer = Comparer::new(&request, &means, (3, 3), &how, None).unwrap();
            let same = comparer.are_same(&b.place("from"), &b.place("to"), &pairs(&[("a", 5)]));
            assert_eq!(same.unwrap(), [true]);
            comparer.limiter.is_bound()
        };
        // It was agreed after the transfer had its turn; who only looks keeps to what all may have together.
        assert!(!same(Some(&Touched::default())) && same(None));
    }

    #[test]
    fn another_node_may_have_it_slower() {
        let b = Both::new();
        let all = vec![7; 40_000];
        for name in ["from/a", "to/a"] {
            b.write(name, &all);
        }
        let (cancel, watch) = (Cancel::new(), Watch::start());
        let mut comparer = b.comparer(Options::default(), false, &cancel, None);
        comparer.keep_to(100_000);
        let files = pairs(&[("a", 40_000); 3]);
        let same = comparer.are_same(&b.place("from"), &b.place("to"), &files).unwrap();
        // The last one waits for two others.
        assert!(same == [true; 3] && watch.seconds() > 0.6, "{}", watch.seconds());
    }
}
