//! One file from here to there: its bytes, by pieces that threads take, and what belongs to it.

use crate::commit;
use crate::job::{Item, Mark};
use crate::limiter::Limiter;
use crate::meta;
use crate::pace::Pace;
use crate::sum::{PIECE, Sum, Sums};
use crate::work::{Carry, Track};
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Cancel, Error, Kind, Result};
use stead_store::{Aligned, Folder, Meta, resident_share, tier};

/// Bytes of a read past the page cache: enough for the device to be busy.
const DIRECT: usize = 2 << 20;
/// Bytes of a read through it: they stay in the second-level cache between read, checksum and write.
const CACHED: usize = 256 << 10;
/// Files of fewer bytes go through the page cache.
const LEAST_DIRECT: u64 = 1 << 20;
/// A file of so many bytes is begun where it was left.
pub(crate) const LEAST_MARKED: u64 = 256 << 20;
/// What reads and writes past the page cache want to be multiples of.
const ALIGN: u64 = 4096;

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
}

/// The memory of a thread that copies.
pub(crate) struct Room(Aligned);

impl Room {
    pub(crate) fn new() -> Room {
        Room(Aligned::new(DIRECT))
    }
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
}

enum Opened {
    Not,
    /// All is said in `failed`.
    Never,
    Is(Arc<Pair>),
}

/// Both files, open.
struct Pair {
    from: File,
    to: File,
    meta: Meta,
    /// The source has holes.
    sparse: bool,
    /// Both have the same blocks: there is nothing to copy.
    cloned: bool,
    /// Writes go past the page cache.
    padded: bool,
    from_direct: AtomicBool,
    /// What is read of the source comes from its device.
    cold: bool,
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
        let pieces = item.size.div_ceil(PIECE).max(1);
        Copy {
            track: Track::new(item, pieces),
            source,
            target,
            temporary,
            mark,
            opened: Mutex::new(Opened::Not),
            sums: Mutex::new(Sums::new(pieces)),
            seen: Mutex::new(None),
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
        match &*opened {
            Opened::Is(pair) => return Ok(Some(pair.clone())),
            Opened::Never => return Ok(None),
            Opened::Not => *opened = Opened::Never,
        }
        let pair = Arc::new(self.open(means)?);
        *opened = Opened::Is(pair.clone());
        Ok(Some(pair))
    }

    fn open(&self, means: &Means<'_>) -> Result<Pair> {
        let name = self.item().source.file_name().unwrap_or_default();
        let from = self.source.open_file(name)?;
        let look = |e| Error::io("look at", self.source_path(), e);
        let meta = Meta::of_file(&from).map_err(look)?;
        if meta.what != stead_store::What::File || meta.size != self.item().size {
            return Err(self.changed());
        }
        if means.careful {
            settled(&from, &meta, means.cancel)?;
        }
        let (to, begun) = self.open_target(&meta)?;
        let write = |e: Errno| self.cannot_write(e.into());
        let big = meta.size >= LEAST_DIRECT;
        let mut pair = Pair {
            sparse: meta.room < meta.size,
            cloned: false,
            padded: false,
            from_direct: AtomicBool::new(false),
            cold: true,
            from,
            to,
            meta,
        };
        if begun.is_none() && big && means.clones.load(Ordering::Relaxed) {
            match rustix::fs::ioctl_ficlone(&pair.to, &pair.from) {
                Ok(()) => pair.cloned = true,
                // Only of this file: its length, or its attributes.
                Err(Errno::INVAL | Errno::TXTBSY | Errno::PERM) => {}
                Err(e @ (Errno::NOSPC | Errno::DQUOT | Errno::IO)) => return Err(write(e)),
                Err(_) => means.clones.store(false, Ordering::Relaxed),
            }
        }
        if pair.cloned {
            return Ok(pair);
        }
        if let Some(mark) = begun {
            let done = usize::try_from(mark.prefix / PIECE).unwrap_or(0);
            let mut sums = lock(&self.sums);
            (sums.begun, sums.marked) = ((done, mark.sum), done);
            drop(sums);
            self.track.count(mark.prefix, true, means);
        }
        if big {
            self.prepare(&mut pair, begun.is_some())?;
        }
        Ok(pair)
    }

    /// The temporary file: the one that was begun, if its mark is of this source and it is there, or a new one.
    fn open_target(&self, meta: &Meta) -> Result<(File, Option<Mark>)> {
        let whole = |mark: &Mark| mark.prefix > 0 && mark.prefix.is_multiple_of(PIECE);
        let same = |mark: &Mark| {
            (mark.dev, mark.ino, mark.size) == (meta.dev, meta.ino, meta.size)
                && (mark.mtime, mark.ctime) == (meta.mtime, meta.ctime)
        };
        if let Some(mark) = self.mark.filter(|m| whole(m) && same(m) && m.prefix <= meta.size)
            && let Ok(to) = self.target.reopen_file(&self.temporary)
            && Meta::of_file(&to).is_ok_and(|there| there.size >= mark.prefix && there.links == 1)
        {
            return Ok((to, Some(mark)));
        }
        Ok((commit::create(&self.target, &self.temporary, meta::begins_as(meta))?, None))
    }

    /// Takes room, and chooses how to read and write.
    fn prepare(&self, pair: &mut Pair, begun: bool) -> Result<()> {
        let size = pair.meta.size;
        let cannot = |e: Errno| self.cannot_write(e.into());
        if pair.sparse {
            rustix::fs::ftruncate(&pair.to, size).map_err(cannot)?;
        } else if !begun && !tier::is_memory(&pair.to) {
            // A device without room says so now.
            match rustix::fs::fallocate(&pair.to, FallocateFlags::empty(), 0, size) {
                Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {}
                Err(e) => return Err(cannot(e)),
            }
        }
        if !tier::is_memory(&pair.to) && direct(&pair.to, true) {
            pair.padded = true;
        }
        let cold = !tier::is_memory(&pair.from) && resident_share(&pair.from, size, 16) < 0.5;
        pair.cold = cold;
        if cold && direct(&pair.from, true) {
            pair.from_direct.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Copies what is between two places, and gives its checksum.
    fn bytes(
        &self,
        pair: &Pair,
        from: u64,
        end: u64,
        room: &mut Room,
        means: &Means<'_>,
    ) -> Result<u64> {
        let mut sum = Sum::new();
        let mut at = from;
        while at < end {
            let data = if pair.sparse { self.next_data(pair, at, end)? } else { at..end };
            if data.start > at {
                sum.hole(data.start - at);
                self.track.count(data.start - at, true, means);
            }
            at = data.start;
            while at < data.end {
                let past = pair.padded || pair.from_direct.load(Ordering::Relaxed);
                let most = if past { DIRECT } else { CACHED };
                let len = usize::try_from(data.end - at).unwrap_or(most).min(most);
                means.limiter.take(len, means.cancel)?;
                let turn = means.pace.map(|pace| pace.begin(means.cancel)).transpose()?;
                self.read(pair, at, len, room)?;
                sum.bytes(&room.0[..len]);
                let written = if pair.padded {
                    let whole = len.next_multiple_of(ALIGN as usize);
                    room.0[len..whole].fill(0);
                    whole
                } else {
                    len
                };
                self.write(pair, at, &room.0[..written])?;
                if let Some(turn) = turn {
                    turn.moved(len as u64, pair.cold);
                }
                at += len as u64;
                self.track.count(len as u64, false, means);
            }
        }
        Ok(sum.finish())
    }

    /// The next bytes that the source has, from `at` on; nothing at `end` if there are none.
    fn next_data(&self, pair: &Pair, at: u64, end: u64) -> Result<std::ops::Range<u64>> {
        let failed = |e: Errno| Error::io("read", self.source_path(), e.into()).at_offset(at);
        let start = match rustix::fs::seek(&pair.from, SeekFrom::Data(at)) {
            Ok(start) => (start - start % ALIGN).max(at),
            Err(Errno::NXIO) => return Ok(end..end),
            Err(Errno::INVAL) => return Ok(at..end),
            Err(e) => return Err(failed(e)),
        };
        if start >= end {
            return Ok(end..end);
        }
        let stop = match rustix::fs::seek(&pair.from, SeekFrom::Hole(start)) {
            Ok(stop) => stop.next_multiple_of(ALIGN).min(end),
            Err(Errno::INVAL) => end,
            // It became shorter, which the read finds out.
            Err(Errno::NXIO) => end,
            Err(e) => return Err(failed(e)),
        };
        Ok(start..stop.max(start + 1).min(end))
    }

    fn read(&self, pair: &Pair, at: u64, len: usize, room: &mut Room) -> Result<()> {
        let mut done = 0;
        while done < len {
            let past = pair.from_direct.load(Ordering::Relaxed);
            let asked = if past { len.next_multiple_of(ALIGN as usize) } else { len };
            let through = || {
                pair.from_direct.store(false, Ordering::Relaxed);
                direct(&pair.from, false);
            };
            match pair.from.read_at(&mut room.0[done..asked], at + done as u64) {
                Ok(0) => return Err(self.changed()),
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // Blocks larger than ours, or a file system that changed its mind.
                Err(e) if past && e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    through()
                }
                Err(e) => {
                    let at = at + done as u64;
                    return Err(Error::io("read", self.source_path(), e).at_offset(at));
                }
            }
            // It ended within a block: at the end of a file that became shorter, as the page cache will tell.
            if past && done < len && !done.is_multiple_of(ALIGN as usize) {
                done -= done % ALIGN as usize;
                through();
            }
        }
        Ok(())
    }

    fn write(&self, pair: &Pair, at: u64, bytes: &[u8]) -> Result<()> {
        match pair.to.write_all_at(bytes, at) {
            Err(e) if pair.padded && e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                // For good, and for all threads: what they write padded is cut in the end.
                direct(&pair.to, false);
                pair.to.write_all_at(bytes, at)
            }
            done => done,
        }
        .map_err(|e| self.cannot_write(e).at_offset(at))
    }

    /// Reads the target back from its device.
    fn verify(&self, pair: &Pair, room: &mut Room, means: &Means<'_>) -> Result<()> {
        stead_store::evict(&pair.to);
        let mut both = [&pair.to, &pair.from].into_iter().take(if pair.cloned { 2 } else { 1 });
        let mut sum_of = |file: &File| {
            let (mut sum, mut at) = (Sum::new(), 0);
            while at < pair.meta.size {
                means.cancel.check()?;
                let len = usize::try_from(pair.meta.size - at).unwrap_or(DIRECT).min(DIRECT);
                let asked = len.next_multiple_of(ALIGN as usize);
                let path = || self.target_path();
                match file.read_at(&mut room.0[..asked], at) {
                    Ok(0) => return Err(self.differs()),
                    Ok(n) => {
                        let n = n.min(len);
                        sum.bytes(&room.0[..n]);
                        at += n as u64;
                    }
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(e) => return Err(Error::io("read back", path(), e).at_offset(at)),
                }
            }
            Ok(sum.finish())
        };
        let there = both.next().map_or(Ok(0), &mut sum_of)?;
        let meant = match both.next() {
            Some(from) => sum_of(from)?,
            None => self.sum(),
        };
        if there == meant { Ok(()) } else { Err(self.differs()) }
    }

    /// The checksum of all pieces.
    fn sum(&self) -> u64 {
        let sums = lock(&self.sums);
        sums.of(sums.pieces.len(), self.item().size)
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

    fn try_piece(&self, number: u64, room: &mut Room, means: &Means<'_>) -> Result<()> {
        means.cancel.check()?;
        let Some(pair) = self.pair(means)? else { return Ok(()) };
        let from = number * PIECE;
        let end = (from + PIECE).min(self.item().size);
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        if at < lock(&self.sums).begun.0 {
            return Ok(());
        }
        let sum = match pair.cloned {
            true => {
                self.track.count(end - from, true, means);
                0
            }
            false => self.bytes(&pair, from, end, room, means)?,
        };
        if let Some(slot) = lock(&self.sums).pieces.get_mut(at) {
            *slot = Some(sum);
        }
        Ok(())
    }

    fn finish(&self, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let Some(pair) = self.pair(means)? else { return Ok(()) };
        let after =
            Meta::of_file(&pair.from).map_err(|e| Error::io("look at", self.source_path(), e))?;
        if !after.same(&pair.meta) {
            return Err(self.changed());
        }
        if pair.padded || pair.sparse {
            pair.to.set_len(pair.meta.size).map_err(|e| self.cannot_write(e))?;
        }
        meta::give(&pair.from, &pair.meta, &pair.to, &self.target_path())?;
        if means.sync_each || means.verify {
            pair.to.sync_all().map_err(|e| self.cannot_write(e))?;
        }
        if means.verify {
            self.verify(&pair, room, means)?;
        }
        *lock(&self.seen) = Some(pair.meta);
        means.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self, whole: bool) {
        // A large file that is not whole is marked before it is closed.
        if whole || !self.is_marked() {
            *lock(&self.opened) = Opened::Never;
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
        let Some((there, sum)) = lock(&self.sums).join(self.item().size) else { return Ok(None) };
        pair.to.sync_data().map_err(|e| self.cannot_write(e))?;
        lock(&self.sums).marked = there;
        let Meta { dev, ino, size, mtime, ctime, .. } = pair.meta;
        let prefix = there as u64 * PIECE;
        Ok(Some(Mark { dev, ino, size, mtime, ctime, prefix, sum }.text()))
    }

    fn folder(&self) -> Option<&Folder> {
        Some(&self.target)
    }

    fn name(&self) -> Result<()> {
        commit::name(&self.target, &self.temporary, self.item())
    }

    fn leave(&self) -> Result<()> {
        let seen = *lock(&self.seen);
        seen.map_or(Ok(()), |seen| commit::leave(&self.source, self.item(), &seen))
    }

    fn abandon(&self) -> Result<()> {
        self.target.remove_file(&self.temporary).map(drop)
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

/// Reads and writes of a file go past the page cache from now on, or through it. False if that cannot be.
fn direct(file: &File, on: bool) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(file) else { return false };
    let flags = if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    rustix::fs::fcntl_setfl(file, flags).is_ok()
}
