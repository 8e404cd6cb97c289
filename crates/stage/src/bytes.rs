//! The bytes of a file, as they are read and as they are written: past the page cache where that is no detour.
//!
//! A copy within a node has both ends; of a transfer between nodes each has one of them, and what comes from a bucket has the
//! second. All choose in the same way, so that no transfer takes the memory that programs have files in.

use crate::pace::Pace;
use crate::remote::Part;
use crate::sum::Sum;
use rustix::fs::{Advice, FallocateFlags, OFlags, SeekFrom};
use rustix::io::Errno;
use std::fs::File;
use std::num::NonZeroU64;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use stead_core::{Cancel, Error};
use stead_store::{Aligned, Meta, resident_share, tier};

/// Bytes of a read past the page cache: enough for the device to be busy.
pub(crate) const DIRECT: usize = 2 << 20;
/// Bytes of a read through it: they stay in the second-level cache between read, checksum and write.
const CACHED: usize = 256 << 10;
/// Files of fewer bytes go through the page cache.
const LEAST_DIRECT: u64 = 1 << 20;
/// What reads and writes past the page cache want to be multiples of.
pub(crate) const ALIGN: u64 = 4096;

/// The memory of a thread that copies: as much as was asked for, and never more than [`DIRECT`]. Who copies small files alone does not have a huge
/// page cleared for them.
pub(crate) struct Room(Option<Aligned>);

impl Room {
    pub(crate) fn new() -> Room {
        Room(None)
    }

    /// Sees to it that so many bytes and the rest of their last block can be in it; what was in it before may be gone.
    fn hold(&mut self, len: usize) {
        if self.0.as_ref().is_none_or(|held| held.len() < len) {
            self.0 = Some(Aligned::new(if len <= CACHED { CACHED } else { DIRECT }));
        }
    }

    /// Its first bytes.
    pub(crate) fn first(&self, len: usize) -> &[u8] {
        self.0.as_ref().and_then(|held| held.get(..len)).unwrap_or_default()
    }

    /// The same, to be filled.
    pub(crate) fn first_mut(&mut self, len: usize) -> &mut [u8] {
        self.hold(len);
        self.0.as_mut().and_then(|held| held.get_mut(..len)).unwrap_or_default()
    }
}

/// Why bytes did not come.
#[derive(Debug)]
pub(crate) enum Fault {
    /// The file has become shorter.
    Shorter,
    /// The system says so, of this place.
    System(std::io::Error, u64),
    /// Whoever wanted them wants them no more.
    Stopped(Error),
}

impl Fault {
    /// As an error of who does something with a file, which has become shorter if that is said so.
    pub(crate) fn told(self, doing: &str, path: PathBuf, shorter: impl FnOnce() -> Error) -> Error {
        match self {
            Fault::Shorter => shorter(),
            Fault::System(e, at) => Error::io(doing, path, e).at_offset(at),
            Fault::Stopped(e) => e,
        }
    }
}

/// True of files that are large enough to be read and written past the page cache.
pub(crate) fn is_big(size: u64) -> bool {
    size >= LEAST_DIRECT
}

/// A file that is read.
pub(crate) struct Source {
    file: File,
    size: u64,
    /// It has holes.
    sparse: bool,
    /// What is read comes from its device.
    cold: bool,
    direct: AtomicBool,
}

impl Source {
    /// Through the page cache; see [`Source::choose`].
    pub(crate) fn new(file: File, meta: &Meta) -> Source {
        let sparse = meta.room < meta.size;
        Source { file, size: meta.size, sparse, cold: true, direct: AtomicBool::new(false) }
    }

    /// Chooses how to read it: past the page cache what is not in it.
    pub(crate) fn choose(&mut self) {
        if !is_big(self.size) {
            return;
        }
        self.cold = !tier::is_memory(&self.file) && resident_share(&self.file, self.size, 16) < 0.5;
        if self.cold && direct(&self.file, true) {
            self.direct.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn is_sparse(&self) -> bool {
        self.sparse
    }

    pub(crate) fn is_cold(&self) -> bool {
        self.cold
    }

    /// Bytes to read at a time; `past` if they are written past the page cache.
    pub(crate) fn at_once(&self, past: bool) -> usize {
        if past || self.direct.load(Ordering::Relaxed) { DIRECT } else { CACHED }
    }

    /// The next bytes that it has, from `at` on; nothing at `end` if there are none.
    pub(crate) fn next(&self, at: u64, end: u64) -> Result<Range<u64>, Fault> {
        if !self.sparse {
            return Ok(at..end);
        }
        let failed = |e: Errno| Fault::System(e.into(), at);
        let start = match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(start) => (start - start % ALIGN).max(at),
            Err(Errno::NXIO) => return Ok(end..end),
            Err(Errno::INVAL) => return Ok(at..end),
            Err(e) => return Err(failed(e)),
        };
        if start >= end {
            return Ok(end..end);
        }
        let stop = match rustix::fs::seek(&self.file, SeekFrom::Hole(start)) {
            Ok(stop) => stop.next_multiple_of(ALIGN).min(end),
            Err(Errno::INVAL) => end,
            // It became shorter, which the read finds out.
            Err(Errno::NXIO) => end,
            Err(e) => return Err(failed(e)),
        };
        Ok(start..stop.max(start + 1).min(end))
    }

    /// Reads what lies between two places, in order, holes as what they are, and gives its checksum.
    ///
    /// # Errors
    /// Those of reading, as `failed` tells them; those of `to`; `Cancelled`.
    pub(crate) fn each(
        &self,
        of: Range<u64>,
        room: &mut Room,
        pace: Option<&Pace>,
        cancel: &Cancel,
        to: &mut dyn FnMut(Part<'_>) -> Result<(), Error>,
        failed: &dyn Fn(Fault) -> Error,
    ) -> Result<u64, Error> {
        let (mut sum, mut at) = (Sum::new(), of.start);
        while at < of.end {
            cancel.check()?;
            let data = self.next(at, of.end).map_err(failed)?;
            if data.start > at {
                sum.hole(data.start - at);
                to(Part::Hole(data.start - at))?;
            }
            at = data.start;
            while at < data.end {
                cancel.check()?;
                let most = self.at_once(false);
                let len = usize::try_from(data.end - at).unwrap_or(most).min(most);
                let turn = pace.map(|pace| pace.begin(cancel)).transpose()?;
                self.read(at, len, room).map_err(failed)?;
                if let Some(turn) = turn {
                    turn.moved(len as u64, self.is_cold());
                }
                sum.bytes(room.first(len));
                to(Part::Bytes(room.first(len)))?;
                at += len as u64;
            }
        }
        Ok(sum.finish())
    }

    /// Reads so many bytes, at most as many as there is room for.
    pub(crate) fn read(&self, at: u64, len: usize, room: &mut Room) -> Result<(), Fault> {
        room.hold(len);
        let mut done = 0;
        while done < len {
            let past = self.direct.load(Ordering::Relaxed);
            let asked = if past { len.next_multiple_of(ALIGN as usize) } else { len };
            let through = || {
                self.direct.store(false, Ordering::Relaxed);
                direct(&self.file, false);
            };
            match self.file.read_at(&mut room.first_mut(asked)[done..], at + done as u64) {
                Ok(0) => return Err(Fault::Shorter),
                Ok(n) => done += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                // Blocks larger than ours, or a file system that changed its mind.
                Err(e) if past && e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                    through();
                }
                Err(e) => return Err(Fault::System(e, at + done as u64)),
            }
            // It ended within a block: at the end of a file that became shorter, as the page cache will tell.
            if past && done < len && !done.is_multiple_of(ALIGN as usize) {
                done -= done % ALIGN as usize;
                through();
            }
        }
        // What was not in memory before, and cannot be read past it, is not to stay there.
        if self.cold && is_big(self.size) && !self.direct.load(Ordering::Relaxed) {
            let _ =
                rustix::fs::fadvise(&self.file, at, NonZeroU64::new(len as u64), Advice::DontNeed);
        }
        Ok(())
    }
}

/// A file that is written.
pub(crate) struct Target {
    file: Arc<File>,
    /// Writes go past the page cache, in whole blocks: the file is cut in the end.
    padded: bool,
    /// The system has said that some of it is not on the device, which it says once.
    lost: AtomicBool,
}

impl Target {
    /// Through the page cache; see [`Target::prepare`].
    pub(crate) fn new(file: impl Into<Arc<File>>) -> Target {
        Target { file: file.into(), padded: false, lost: AtomicBool::new(false) }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    pub(crate) fn is_padded(&self) -> bool {
        self.padded
    }

    /// Makes its bytes durable.
    ///
    /// # Errors
    /// System errors; after one of them always, as nobody knows then what there is.
    pub(crate) fn sync_data(&self) -> std::io::Result<()> {
        self.synced(|| self.file.sync_data())
    }

    /// Makes all of it durable.
    ///
    /// # Errors
    /// As [`Target::sync_data`].
    pub(crate) fn sync_all(&self) -> std::io::Result<()> {
        self.synced(|| self.file.sync_all())
    }

    fn synced(&self, sync: impl FnOnce() -> std::io::Result<()>) -> std::io::Result<()> {
        if self.lost.load(Ordering::Acquire) {
            return Err(Errno::IO.into());
        }
        sync().inspect_err(|_| self.lost.store(true, Ordering::Release))
    }

    /// Takes room for so many bytes, and chooses how to write. Of a file with holes no room is taken; one that was `begun` has it.
    ///
    /// # Errors
    /// System errors: a device without room says so now.
    pub(crate) fn prepare(&mut self, size: u64, sparse: bool, begun: bool) -> std::io::Result<()> {
        if !is_big(size) {
            return Ok(());
        }
        let memory = tier::is_memory(&self.file);
        if sparse {
            rustix::fs::ftruncate(&self.file, size)?;
        } else if !begun && !memory {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), 0, size) {
                Ok(()) | Err(Errno::NOTSUP | Errno::NOSYS | Errno::INVAL) => {}
                Err(e) => return Err(e.into()),
            }
        }
        self.padded = !memory && direct(&self.file, true);
        Ok(())
    }

    /// Writes the first bytes of a room, which begin at a multiple of [`ALIGN`] of the file.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn write_room(&self, at: u64, len: usize, room: &mut Room) -> std::io::Result<()> {
        if !self.padded {
            return self.file.write_all_at(room.first(len), at);
        }
        let whole = len.next_multiple_of(ALIGN as usize);
        room.first_mut(whole)[len..].fill(0);
        match self.file.write_all_at(room.first(whole), at) {
            Err(e) if e.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
                // For good, and for all threads: what they write padded is cut in the end.
                direct(&self.file, false);
                self.file.write_all_at(room.first(len), at)
            }
            done => done,
        }
    }

    /// Writes bytes that lie anywhere.
    ///
    /// # Errors
    /// As [`Target::write_room`].
    pub(crate) fn write(&self, at: u64, bytes: &[u8], room: &mut Room) -> std::io::Result<()> {
        if !self.padded {
            return self.file.write_all_at(bytes, at);
        }
        let mut to = at;
        for some in bytes.chunks(DIRECT) {
            room.first_mut(some.len()).copy_from_slice(some);
            self.write_room(to, some.len(), room)?;
            to += some.len() as u64;
        }
        Ok(())
    }
}

/// The checksum of the first bytes of a file: as its device has them, if it is read past the page cache or not in it.
pub(crate) fn sum_of(
    file: &File,
    size: u64,
    room: &mut Room,
    cancel: &Cancel,
) -> Result<u64, Fault> {
    let (mut sum, mut at) = (Sum::new(), 0);
    while at < size {
        cancel.check().map_err(Fault::Stopped)?;
        let len = usize::try_from(size - at).unwrap_or(DIRECT).min(DIRECT);
        match file.read_at(room.first_mut(len.next_multiple_of(ALIGN as usize)), at) {
            Ok(0) => return Err(Fault::Shorter),
            Ok(n) => {
                sum.bytes(room.first(n.min(len)));
                at += n.min(len) as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(e) => return Err(Fault::System(e, at)),
        }
    }
    Ok(sum.finish())
}

/// Reads and writes of a file go past the page cache from now on, or through it. False if that cannot be.
fn direct(file: &File, on: bool) -> bool {
    let Ok(flags) = rustix::fs::fcntl_getfl(file) else { return false };
    let flags = if on { flags | OFlags::DIRECT } else { flags - OFlags::DIRECT };
    rustix::fs::fcntl_setfl(file, flags).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn big(len: usize) -> Vec<u8> {
        (0..len).map(|i| (i / 7 % 251) as u8).collect()
    }

    /// Pages of a file that are in memory, of so many; nothing where the system does not tell.
    fn there(path: &std::path::Path, len: u64) -> f64 {
        resident_share(&File::open(path).unwrap(), len, 64)
    }

    #[test]
    fn what_is_not_in_memory_is_not_brought_there() {
        let dir = tempfile::tempdir().unwrap();
        let (path, len) = (dir.path().join("f"), 9_000_001usize);
        let bytes = big(len);
        std::fs::write(&path, &bytes).unwrap();
        let file = File::open(&path).unwrap();
        file.sync_all().unwrap();
        if tier::is_memory(&file) {
            return;
        }
        assert!(there(&path, len as u64) > 0.5);
        stead_store::evict(&file);
        let meta = Meta::of_file(&file).unwrap();
        let mut source = Source::new(file, &meta);
        source.choose();
        let mut room = Room::new();
        let mut read = Vec::new();
        while read.len() < len {
            let some = (len - read.len()).min(source.at_once(false));
            source.read(read.len() as u64, some, &mut room).unwrap();
            read.extend_from_slice(room.first(some));
        }
        assert!(read == bytes && source.is_cold());
        assert!(there(&path, len as u64) < 0.1, "{}", there(&path, len as u64));
        // And what is written does not stay there.
        let to = dir.path().join("t");
        let mut target =
            Target::new(File::options().create_new(true).read(true).write(true).open(&to).unwrap());
        target.prepare(len as u64, false, false).unwrap();
        target.write(0, &bytes, &mut room).unwrap();
        target.file().set_len(len as u64).unwrap();
        assert!(std::fs::read(&to).unwrap() == bytes);
    }

    #[test]
    fn bytes_at_odd_places_come_right() {
        let dir = tempfile::tempdir().unwrap();
        let open = |name: &str| {
            let at = dir.path().join(name);
            File::options().create_new(true).read(true).write(true).open(at).unwrap()
        };
        let bytes = big(3_000_000);
        let mut target = Target::new(open("t"));
        target.prepare(bytes.len() as u64, true, false).unwrap();
        let mut room = Room::new();
        // As of a node that sends as many bytes at a time as it likes.
        let mut at = 0;
        for some in bytes.chunks(333_333) {
            target.write(at, some, &mut room).unwrap();
            at += some.len() as u64;
        }
        target.file().set_len(at).unwrap();
        assert!(std::fs::read(dir.path().join("t")).unwrap() == bytes);
    }

    #[test]
    fn what_the_device_has_not_written_is_not_taken_for_written_later() {
        let target = Target::new(tempfile::tempfile().unwrap());
        target.sync_data().unwrap();
        assert!(target.synced(|| Err(Errno::IO.into())).is_err());
        // The system has told that once, and would be content from here on.
        assert!(target.file().sync_all().is_ok());
        assert!(target.sync_data().is_err() && target.sync_all().is_err());
    }
}
