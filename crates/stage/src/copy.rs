//! One file from here to there: its bytes, by pieces that threads take, and what belongs to it.

use crate::asked::Asked;
use crate::bytes::{Fault, Room, Source, Target, is_big, sum_of};
use crate::commit;
use crate::job::{Item, Mark};
use crate::limiter::Limiter;
use crate::meta;
use crate::pace::Pace;
use crate::serve::{SERVED, Serve};
use crate::sum::{PIECE, Sum, Sums, pieces_of};
use crate::unnamed::{Nameless, Unnamed};
use crate::work::{Carry, Track};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Cancel, Error, Kind, Result};
use stead_store::{Folder, Meta, tier};

/// A file of so many bytes is begun where it was left.
pub(crate) const LEAST_MARKED: u64 = 256 << 20;

/// Of files of so many bytes at most the device is asked ahead; larger ones keep it busy by themselves.
const MOST_ASKED: u64 = 128 << 10;

/// Files of so many bytes at most have no name until they are whole; larger ones take long enough to be seen on their way.
const MOST_UNNAMED: u64 = 128 << 10;

/// What all copies of a transfer share.
pub(crate) struct Means<'a> {
    pub(crate) limiter: &'a Limiter,
    /// Where it gives way to others.
    pub(crate) pace: Option<&'a Pace>,
    pub(crate) cancel: &'a Cancel,
    /// Each file is durable before it is whole.
    pub(crate) sync_each: bool,
    pub(crate) verify: bool,
    /// Bytes that are there.
    pub(crate) bytes: &'a AtomicU64,
    /// Of these, those that nobody has moved: they were there, or file systems share them.
    pub(crate) kept: &'a AtomicU64,
    /// A source is not read while a change of it might go unseen: it is removed after.
    pub(crate) careful: bool,
    /// Files that are whole.
    pub(crate) files: &'a AtomicU64,
    /// False once the file systems have said that they share no blocks.
    pub(crate) clones: &'a AtomicBool,
    /// Whether a file system is asked to copy by itself.
    pub(crate) serve: &'a Serve,
    pub(crate) unnamed: &'a Unnamed,
    /// Forgets, durably, how far the file of this number was: it is begun anew.
    pub(crate) forget: &'a (dyn Fn(i64) -> Result<()> + Sync),
}

/// A file that is being copied.
pub(crate) struct Copy {
    track: Track,
    source: Folder,
    target: Folder,
    temporary: OsString,
    mark: Option<Mark>,
    opened: Mutex<Opened>,
    sums: Mutex<Sums>,
    /// The source when its last byte was read.
    seen: Mutex<Option<Meta>>,
    /// The target when it was whole, where that is to be known.
    made: Mutex<Option<Meta>>,
    /// The target, if it has no name yet.
    nameless: Mutex<Option<Nameless>>,
}

enum Opened {
    Not,
    /// The source, of which the device was asked for all bytes.
    Asked(Asked),
    /// All is said in `failed`.
    Never,
    Is(Arc<Pair>),
}

/// Both files, open.
struct Pair {
    from: Source,
    to: Target,
    meta: Meta,
    /// Both have the same blocks: there is nothing to copy.
    cloned: bool,
    /// The file system is asked to copy, as long as it does.
    served: AtomicBool,
    /// Some bytes were copied that nobody has seen.
    unseen: AtomicBool,
}

impl Pair {
    /// What was written is known by what the source has alone.
    fn has_no_sum(&self) -> bool {
        self.cloned || self.unseen.load(Ordering::Relaxed)
    }
}

pub(crate) fn lock<T>(m: &Mutex<T>) -> MutexGuard<'_, T> {
    m.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An error of which the next try may be free.
pub(crate) fn may_pass(e: &Error) -> bool {
    const PASSING: [Errno; 8] = [
        Errno::IO,
        Errno::AGAIN,
        Errno::STALE,
        Errno::TIMEDOUT,
        Errno::NOMEM,
        Errno::NFILE,
        Errno::MFILE,
        Errno::BUSY,
    ];
    // Of a store, or another node, that has not answered, or not well.
    matches!(e.kind(), Kind::Changed | Kind::Timeout | Kind::Peer)
        || e.os_code().is_some_and(|code| PASSING.iter().any(|p| p.raw_os_error() == code))
}

impl Copy {
    pub(crate) fn new(
        item: Item,
        source: Folder,
        target: Folder,
        temporary: OsString,
        mark: Option<Mark>,
    ) -> Copy {
        let (pieces, sums) = (pieces_of(item.size), Sums::new(item.size));
        Copy {
            track: Track::new(item, pieces),
            source,
            target,
            temporary,
            mark,
            opened: Mutex::new(Opened::Not),
            sums: Mutex::new(sums),
            seen: Mutex::new(None),
            made: Mutex::new(None),
            nameless: Mutex::new(None),
        }
    }

    fn item(&self) -> &Item {
        self.track.item()
    }

    fn source_path(&self) -> PathBuf {
        self.source.at(self.item().source.file_name().unwrap_or_default())
    }

    fn target_path(&self) -> PathBuf {
        self.target.at(self.item().name())
    }

    /// Both files, which the first one to ask opens; `None` if that has failed for somebody else.
    fn pair(&self, means: &Means<'_>) -> Result<Option<Arc<Pair>>> {
        let mut opened = lock(&self.opened);
        if let Opened::Is(pair) = &*opened {
            return Ok(Some(pair.clone()));
        }
        let from = match std::mem::replace(&mut *opened, Opened::Never) {
            Opened::Asked(from) => from.taken(),
            Opened::Not => self.open_source()?,
            _ => return Ok(None),
        };
        let pair = Arc::new(self.open(from, means)?);
        *opened = Opened::Is(pair.clone());
        Ok(Some(pair))
    }

    fn open_source(&self) -> Result<File> {
        self.source.open_file(self.item().source.file_name().unwrap_or_default())
    }

    fn open(&self, from: File, means: &Means<'_>) -> Result<Pair> {
        let look = |e| Error::io("look at", self.source_path(), e);
        let meta = Meta::of_file(&from).map_err(look)?;
        if meta.what != stead_store::What::File || meta.size != self.item().size {
            return Err(self.changed());
        }
        if means.careful {
            settled(&from, &meta, means.cancel)?;
        }
        says_its_size(&from, &meta, self.source_path())?;
        let (to, begun) = self.open_target(&meta, means)?;
        let write = |e: Errno| self.cannot_write(e.into());
        let big = is_big(meta.size);
        let (from, to) = (Source::new(from, &meta), Target::new(to));
        let (served, unseen) = (AtomicBool::new(false), AtomicBool::new(false));
        let mut pair = Pair { from, to, meta, cloned: false, served, unseen };
        if begun.is_none() && big && means.clones.load(Ordering::Relaxed) {
            match rustix::fs::ioctl_ficlone(pair.to.file(), pair.from.file()) {
                Ok(()) => pair.cloned = true,
                // Only of this file: its length, or its attributes.
                Err(Errno::INVAL | Errno::TXTBSY | Errno::PERM) => {}
                Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(write(e)),
                Err(e) => {
                    means.serve.no_clone(e);
                    means.clones.store(false, Ordering::Relaxed);
                }
            }
        }
        if pair.cloned {
            return Ok(pair);
        }
        if begun.is_none() && big && means.serve.wants(pair.from.file(), pair.to.file()) {
            pair.served.store(true, Ordering::Relaxed);
            return Ok(pair);
        }
        if let Some(mark) = begun {
            lock(&self.sums).begin(mark.prefix / PIECE, mark.sum);
            self.track.count(mark.prefix, true, means);
        }
        let sparse = pair.from.is_sparse();
        let prepared = pair.to.prepare(meta.size, sparse, begun.is_some());
        prepared.map_err(|e| self.cannot_write(e))?;
        pair.from.choose();
        Ok(pair)
    }

    /// The temporary file: the one that was begun, if its mark is of this source and it is there, or a new one.
    fn open_target(&self, meta: &Meta, means: &Means<'_>) -> Result<(Arc<File>, Option<Mark>)> {
        let whole = |mark: &Mark| mark.prefix > 0 && mark.prefix.is_multiple_of(PIECE);
        let same = |mark: &Mark| {
            (mark.dev, mark.ino, mark.size) == (meta.dev, meta.ino, meta.size)
                && (mark.mtime, mark.ctime) == (meta.mtime, meta.ctime)
        };
        let mode = meta::begins_as(meta, &self.target);
        if let Some(mark) = self.mark.filter(|m| whole(m) && same(m) && m.prefix <= meta.size)
            && let Some(to) = commit::begun(&self.target, &self.temporary, mark.prefix, mode)
        {
            return Ok((Arc::new(to), Some(mark)));
        }
        if meta.size <= MOST_UNNAMED
            && !self.item().replace
            && let Some(nameless) = means.unnamed.create(&self.target, mode)?
        {
            let file = nameless.file();
            *lock(&self.nameless) = Some(nameless);
            return Ok((file, None));
        }
        let marked = self.mark.is_some();
        let to = self.track.create(&self.target, &self.temporary, mode, marked, means)?;
        Ok((Arc::new(to), None))
    }

    /// Copies what is between two places, and gives its checksum, if all of it was seen.
    fn bytes(
        &self,
        pair: &Pair,
        from: u64,
        end: u64,
        room: &mut Room,
        means: &Means<'_>,
    ) -> Result<Option<u64>> {
        let mut sum = Sum::new();
        let (mut at, mut seen) = (from, true);
        while at < end {
            let data = pair.from.next(at, end).map_err(|fault| self.cannot_read(fault))?;
            if data.start > at {
                sum.hole(data.start - at);
                self.track.count(data.start - at, true, means);
            }
            at = data.start;
            while at < data.end {
                let served = pair.served.load(Ordering::Relaxed);
                let most = match served {
                    true => SERVED,
                    false => pair.from.at_once(pair.to.is_padded()),
                };
                let len = usize::try_from(data.end - at).unwrap_or(most).min(most);
                means.limiter.take(len, means.cancel)?;
                let turn = means.pace.map(|pace| pace.begin(means.cancel)).transpose()?;
                if served {
                    let done = means.serve.copy(pair.from.file(), pair.to.file(), at, len);
                    let done = done.map_err(|e| self.cannot_copy(e).at_offset(at))?;
                    if done == 0 {
                        // From here on it is read and written.
                        pair.served.store(false, Ordering::Relaxed);
                        continue;
                    }
                    pair.unseen.store(true, Ordering::Relaxed);
                    seen = false;
                    if let Some(turn) = turn {
                        turn.moved(done as u64, pair.from.is_cold());
                    }
                    at += done as u64;
                    self.track.count(done as u64, false, means);
                    continue;
                }
                pair.from.read(at, len, room).map_err(|fault| self.cannot_read(fault))?;
                sum.bytes(room.first(len));
                let written = pair.to.write_room(at, len, room);
                written.map_err(|e| self.cannot_write(e).at_offset(at))?;
                if let Some(turn) = turn {
                    turn.moved(len as u64, pair.from.is_cold());
                }
                at += len as u64;
                self.track.count(len as u64, false, means);
            }
        }
        Ok(seen.then(|| sum.finish()))
    }

    fn cannot_copy(&self, e: Errno) -> Error {
        match e {
            Errno::NOSPC | Errno::DQUOT | Errno::FBIG => self.cannot_write(e.into()),
            _ => Error::io("copy", self.source_path(), e.into()),
        }
    }

    fn cannot_read(&self, fault: Fault) -> Error {
        fault.told("read", self.source_path(), || self.changed())
    }

    /// Reads the target back from its device.
    fn verify(&self, pair: &Pair, room: &mut Room, means: &Means<'_>) -> Result<()> {
        stead_store::evict(pair.to.file());
        let mut sum = |file: &File| {
            sum_of(file, pair.meta.size, room, means.cancel)
                .map_err(|fault| fault.told("read back", self.target_path(), || self.differs()))
        };
        let there = sum(pair.to.file())?;
        let meant = if pair.has_no_sum() { sum(pair.from.file())? } else { self.sum() };
        if there == meant { Ok(()) } else { Err(self.differs()) }
    }

    /// The checksum of all pieces.
    fn sum(&self) -> u64 {
        lock(&self.sums).whole()
    }

    fn changed(&self) -> Error {
        Error::new(Kind::Changed, "the file changed while it was copied")
            .at_path(self.source_path())
            .with_hint("stage it again when nobody writes to it")
    }

    fn differs(&self) -> Error {
        Error::new(Kind::Io, "what was written is not what is read back")
            .at_path(self.target_path())
            .with_hint("the device or the memory of this node may be failing; the file was not given its name")
    }

    fn cannot_write(&self, e: std::io::Error) -> Error {
        let e = Error::io("write", self.target_path(), e);
        match e.kind() {
            Kind::NoSpace => e.with_hint("free some space, then resume the transfer"),
            _ => e,
        }
    }
}

impl Carry for Copy {
    fn track(&self) -> &Track {
        &self.track
    }

    fn ask_ahead(&self) {
        let size = self.item().size;
        let mut opened = lock(&self.opened);
        if matches!(&*opened, Opened::Not)
            && (1..=MOST_ASKED).contains(&size)
            && let Some(from) = Asked::of(|| self.open_source(), size as usize)
        {
            *opened = Opened::Asked(from);
        }
    }

    fn try_piece(&self, number: u64, room: &mut Room, means: &Means<'_>) -> Result<()> {
        means.cancel.check()?;
        let Some(pair) = self.pair(means)? else { return Ok(()) };
        let from = number * PIECE;
        let end = (from + PIECE).min(self.item().size);
        if lock(&self.sums).has(number) {
            return Ok(());
        }
        if pair.cloned {
            self.track.count(end - from, true, means);
            return Ok(());
        }
        if let Some(sum) = self.bytes(&pair, from, end, room, means)? {
            lock(&self.sums).put(number, sum);
        }
        Ok(())
    }

    fn finish(&self, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let Some(pair) = self.pair(means)? else { return Ok(()) };
        let after = Meta::of_file(pair.from.file())
            .map_err(|e| Error::io("look at", self.source_path(), e))?;
        if !after.same(&pair.meta) {
            return Err(self.changed());
        }
        if pair.to.is_padded() || pair.from.is_sparse() {
            pair.to.file().set_len(pair.meta.size).map_err(|e| self.cannot_write(e))?;
        }
        meta::give(pair.from.file(), &pair.meta, pair.to.file(), &self.target_path())?;
        if means.sync_each || means.verify {
            pair.to.sync_all().map_err(|e| self.cannot_write(e))?;
        }
        if means.verify {
            self.verify(&pair, room, means)?;
        }
        *lock(&self.seen) = Some(pair.meta);
        if means.careful || !self.item().replace {
            // It costs less while the file is open. What cannot be looked at is asked for by its name.
            *lock(&self.made) = Meta::of_file(pair.to.file()).ok();
        }
        means.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self, whole: bool) {
        // A large file that is not whole is marked before it is closed.
        if whole || !self.is_marked() {
            *lock(&self.opened) = Opened::Never;
        }
        if !whole {
            *lock(&self.nameless) = None;
        }
    }

    fn is_marked(&self) -> bool {
        self.item().size >= LEAST_MARKED
    }

    fn mark(&self) -> Result<Option<String>> {
        let pair = match &*lock(&self.opened) {
            Opened::Is(pair) if !pair.cloned => pair.clone(),
            _ => return Ok(None),
        };
        let Some((there, sum)) = lock(&self.sums).durable() else { return Ok(None) };
        pair.to.sync_data().map_err(|e| self.cannot_write(e))?;
        lock(&self.sums).mark(there);
        let Meta { dev, ino, size, mtime, ctime, .. } = pair.meta;
        let prefix = there * PIECE;
        Ok(Some(Mark { dev, ino, size, mtime, ctime, prefix, sum }.text()))
    }

    fn folder(&self) -> Option<&Folder> {
        Some(&self.target)
    }

    fn made(&self) -> Option<Meta> {
        *lock(&self.made)
    }

    fn name(&self) -> Result<()> {
        match lock(&self.nameless).take() {
            Some(nameless) => nameless.name(&self.target, self.item().name()),
            None => commit::name(&self.target, &self.temporary, self.item()),
        }
    }

    fn leave(&self) -> Result<()> {
        let seen = *lock(&self.seen);
        seen.map_or(Ok(()), |seen| commit::leave(&self.source, self.item(), &seen))
    }

    fn abandon(&self) -> Result<()> {
        match lock(&self.nameless).take() {
            // It goes with its descriptor.
            Some(_) => Ok(()),
            None => self.target.remove_file(&self.temporary).map(drop),
        }
    }
}

/// Refuses a file that has bytes and says that it has none, as those do that the system makes when they are read.
pub(crate) fn says_its_size(file: &File, meta: &Meta, path: PathBuf) -> Result<()> {
    if meta.size > 0 {
        return Ok(());
    }
    match std::os::unix::fs::FileExt::read_at(file, &mut [0], 0) {
        Ok(0) => Ok(()),
        Ok(_) => Err(Error::usage("this file says that it is empty, and is not")
            .at_path(path)
            .with_hint("what the system makes when it is read, as in /proc, is no data to stage: cat it into a file")),
        Err(e) => Err(Error::io("read", path, e)),
    }
}

/// Waits until a later change of a file would give it another time: file systems know seconds, or ticks of a clock.
pub(crate) fn settled(file: &File, meta: &Meta, cancel: &Cancel) -> Result<()> {
    let name = tier::name_of(file).unwrap_or_default();
    let fine = ["ext4-", "xfs-", "btrfs-", "tmpfs-", "f2fs-", "zfs-", "bcachefs-"];
    let grain = if fine.iter().any(|of| name.starts_with(of)) { 0.02 } else { 2.0 };
    let changed = meta.ctime.seconds as f64 + f64::from(meta.ctime.nanos) * 1e-9;
    // A clock that was set, here or on a server, is no reason to wait for long.
    let mut left = (changed + grain - crate::clock::unix()).min(grain);
    while left > 0.0 {
        cancel.check()?;
        let turn = left.min(0.1);
        std::thread::sleep(std::time::Duration::from_secs_f64(turn));
        left -= turn;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::Task;
    use crate::work::{self, Carries};
    use std::os::unix::fs::{FileExt, MetadataExt};
    use std::path::Path;

    /// A copy of a file of one folder to another, by another name.
    fn copy_of(from: &Path, to: &Path, names: [&str; 2], n: i64) -> Copy {
        let meta = Meta::of_file(File::open(from.join(names[0])).unwrap()).unwrap();
        let (size, mtime) = (meta.size, meta.mtime);
        let [source, target] = names.map(PathBuf::from);
        let item = Item {
            n,
            task: Task::File,
            from: 0,
            source,
            target,
            size,
            mtime,
            first: -1,
            replace: true,
        };
        let (source, target) = (Folder::open(from).unwrap(), Folder::open(to).unwrap());
        Copy::new(item, source, target, format!(".stead-1-{n}").into(), None)
    }

    /// What copies need; gives bytes and files that were counted, too.
    fn with_means<T>(verify: bool, work: impl FnOnce(&Means<'_>) -> T) -> (T, u64, u64) {
        let (limiter, serve, cancel) =
            (Limiter::new(None, Vec::new()), Serve::new(true), Cancel::new());
        let [bytes, kept, files] = [0; 3].map(AtomicU64::new);
        let means = Means {
            limiter: &limiter,
            pace: None,
            cancel: &cancel,
            sync_each: false,
            verify,
            bytes: &bytes,
            kept: &kept,
            careful: false,
            files: &files,
            clones: &AtomicBool::new(false),
            serve: &serve,
            unnamed: &Unnamed::new(),
            forget: &|_| Ok(()),
        };
        let done = work(&means);
        (done, bytes.load(Ordering::Relaxed), files.load(Ordering::Relaxed))
    }

    /// Copies a file between two folders, as a file system is asked to; gives whether some bytes were copied that nobody has seen.
    fn served(from: &Path, to: &Path, verify: bool) -> bool {
        let copy = copy_of(from, to, ["f", "g"], 1);
        let size = copy.item().size;
        let (pair, bytes, files) = with_means(verify, |means| {
            // Looked at from outside, before all of it is over.
            let pair = copy.pair(means).unwrap().unwrap();
            let copies: Carries = vec![Box::new(copy)];
            work::copy(&copies, 3, false, means, &mut || {});
            assert!(copies[0].track().take_error().is_none());
            copies[0].name().unwrap();
            pair
        });
        assert_eq!((bytes, files), (size, 1));
        pair.has_no_sum()
    }

    #[test]
    fn what_a_device_was_asked_for_comes_by_itself_and_is_copied() {
        let dir = tempfile::tempdir().unwrap();
        let [from, to] = ["from", "to"].map(|name| dir.path().join(name));
        [&from, &to].into_iter().for_each(|folder| std::fs::create_dir(folder).unwrap());
        let sizes = [5000, 1, 0, MOST_ASKED as usize, MOST_ASKED as usize + 1, 700, 701, 702, 703];
        let is_there = |file: &File| stead_store::resident_share(file, 1, 1) > 0.0;
        let mut tells = true;
        for (i, size) in sizes.iter().enumerate() {
            let file = File::create(from.join(i.to_string())).unwrap();
            file.write_all_at(&vec![i as u8 + 1; *size], 0).unwrap();
            file.sync_all().unwrap();
            // Not every system does.
            tells &= *size == 0 || is_there(&file);
            stead_store::evict(&file);
        }
        let names: Vec<[String; 2]> = (0..9).map(|i| [i.to_string(), format!("to{i}")]).collect();
        let copies: Vec<Copy> = (0..)
            .zip(&names)
            .map(|(n, [source, target])| copy_of(&from, &to, [source, target], n))
            .collect();
        copies.iter().for_each(|copy| copy.ask_ahead());
        let watch = crate::clock::Watch::start();
        for (copy, size) in copies.iter().zip(sizes) {
            let opened = lock(&copy.opened);
            let asked = (1..=MOST_ASKED as usize).contains(&size);
            assert_eq!(matches!(&*opened, Opened::Asked(_)), asked, "{size}");
            let Opened::Asked(asked) = &*opened else { continue };
            // Nobody reads it, and yet it comes.
            while tells && !is_there(asked.file()) {
                assert!(watch.seconds() < 20.0, "{size} bytes do not come");
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        // It is another one meanwhile, or none, and that is told.
        std::fs::write(from.join("5"), "shorter").unwrap();
        std::fs::remove_file(from.join("2")).unwrap();
        let copies: Carries = copies.into_iter().map(|c| Box::new(c) as Box<dyn Carry>).collect();
        let ((), bytes, files) =
            with_means(true, |means| work::copy(&copies, 2, false, means, &mut || {}));
        for (i, (copy, size)) in copies.iter().zip(sizes).enumerate() {
            let failed = copy.track().take_error().map(|e| e.kind());
            let meant = [(2, Kind::NotFound), (5, Kind::Changed)];
            assert_eq!(failed, meant.iter().find(|(n, _)| *n == i).map(|(_, kind)| *kind), "{i}");
            if failed.is_none() {
                copy.name().unwrap();
                let there = std::fs::read(to.join(format!("to{i}"))).unwrap();
                assert!(there == vec![i as u8 + 1; size], "{i}");
            }
        }
        let whole: usize = sizes.iter().sum::<usize>() - sizes[5];
        assert_eq!((bytes, files), (whole as u64, 7));
    }

    #[test]
    fn what_a_file_system_copies_by_itself_is_what_was_there() {
        let dirs = [tempfile::tempdir().ok(), tempfile::tempdir_in("/dev/shm").ok()];
        let mut seen = Vec::new();
        for from in dirs.iter().flatten() {
            let file = File::create(from.path().join("f")).unwrap();
            let all: Vec<u8> = (0..20usize << 20).map(|i| (i / 3 + i / 65_536) as u8).collect();
            file.write_all_at(&all, 0).unwrap();
            // A hole of some length, more, and a hole at the end.
            file.write_all_at(b"more", 40 << 20).unwrap();
            file.set_len((50 << 20) + 123).unwrap();
            for to in dirs.iter().flatten() {
                for verify in [false, true] {
                    let same = from.path() == to.path();
                    seen.push((same, served(from.path(), to.path(), verify)));
                    let (f, g) = (from.path().join("f"), to.path().join("g"));
                    assert!(std::fs::read(f).unwrap() == std::fs::read(&g).unwrap());
                    let holes = std::fs::metadata(&g).unwrap().blocks() * 512;
                    assert!(holes < 30 << 20, "{holes} bytes");
                }
            }
        }
        // Between file systems most kernels refuse, and it is read and written; within one of these they do it.
        assert!(seen.iter().any(|(same, unseen)| *same && *unseen), "{seen:?}");
    }
}
