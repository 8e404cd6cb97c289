//! An object into a file: by ranges into the temporary file, which gets its name as any other does.

use crate::bytes::{Room, Target, sum_of};
use crate::commit;
use crate::copy::{LEAST_MARKED, Means, lock};
use crate::job::{Item, Mark};
use crate::meta;
use crate::place::{Prefix, number};
use crate::sum::{PIECE, Sum, Sums, pieces_of};
use crate::up;
use crate::work::{Carry, Track};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use stead_core::{Error, Kind, Result};
use stead_store::{Bucket, FileTime, Folder, Object};

/// The object, as it was when it was first asked for, and the file.
struct Pair {
    object: Object,
    to: Target,
}

/// An object that becomes a file.
pub(crate) struct Down {
    track: Track,
    bucket: Bucket,
    key: String,
    target: Folder,
    temporary: OsString,
    begun: Option<Mark>,
    opened: Mutex<Option<Arc<Pair>>>,
    /// The object when all of it had been read.
    seen: Mutex<Option<Object>>,
    sums: Mutex<Sums>,
}

impl Down {
    pub(crate) fn new(
        item: Item,
        source: &Prefix,
        target: Folder,
        temporary: OsString,
        begun: Option<Mark>,
    ) -> Result<Down> {
        let key = source.key(Path::new(item.source.file_name().unwrap_or_default()))?;
        let (pieces, sums) = (pieces_of(item.size), Sums::new(item.size));
        Ok(Down {
            track: Track::new(item, pieces),
            bucket: source.bucket().clone(),
            key,
            target,
            temporary,
            begun,
            opened: Mutex::new(None),
            seen: Mutex::new(None),
            sums: Mutex::new(sums),
        })
    }

    fn item(&self) -> &Item {
        self.track.item()
    }

    fn target_path(&self) -> PathBuf {
        self.target.at(self.item().name())
    }

    fn changed(&self) -> Error {
        Error::new(Kind::Changed, "the object changed while it was copied")
            .at_path(self.bucket.shown(&self.key))
            .with_hint("stage it again when nobody writes to it")
    }

    fn cannot_write(&self, e: std::io::Error) -> Error {
        let e = Error::io("write", self.target_path(), e);
        match e.kind() {
            Kind::NoSpace => e.with_hint("free some space, then resume the transfer"),
            _ => e,
        }
    }

    /// The object and the file, which the first one to ask opens.
    fn pair(&self, means: &Means<'_>) -> Result<Arc<Pair>> {
        let mut opened = lock(&self.opened);
        if let Some(pair) = &*opened {
            return Ok(pair.clone());
        }
        let gone =
            || Error::new(Kind::NotFound, "no such object").at_path(self.bucket.shown(&self.key));
        let object = self.bucket.head(&self.key)?.ok_or_else(gone)?;
        let pair = self.open(object, means)?;
        *opened = Some(pair.clone());
        Ok(pair)
    }

    fn open(&self, object: Object, means: &Means<'_>) -> Result<Arc<Pair>> {
        if object.size != self.item().size {
            return Err(self.changed());
        }
        let of = self.mark_of(&object, 0, 0);
        let goes_on = |mark: &Mark| {
            let same = Mark { prefix: mark.prefix, sum: mark.sum, ..of } == *mark;
            same && mark.prefix.is_multiple_of(PIECE) && mark.prefix <= object.size
        };
        if let Some(mark) = self.begun.filter(goes_on)
            && let Some(to) = commit::begun(&self.target, &self.temporary, mark.prefix, 0o600)
        {
            lock(&self.sums).begin(mark.prefix / PIECE, mark.sum);
            self.track.count(mark.prefix, true, means);
            return self.prepared(object, Target::new(to), true);
        }
        let was_begun = self.begun.is_some();
        let to = self.track.create(&self.target, &self.temporary, 0o600, was_begun, means)?;
        self.prepared(object, Target::new(to), false)
    }

    fn prepared(&self, object: Object, mut to: Target, begun: bool) -> Result<Arc<Pair>> {
        to.prepare(object.size, false, begun).map_err(|e| self.cannot_write(e))?;
        Ok(Arc::new(Pair { object, to }))
    }

    fn mark_of(&self, object: &Object, prefix: u64, sum: u64) -> Mark {
        Mark {
            dev: number(object.tag.as_deref().unwrap_or_default()),
            ino: number(&self.key),
            size: object.size,
            mtime: object.modified,
            ctime: FileTime::default(),
            prefix,
            sum,
        }
    }

    fn write(
        &self,
        pair: &Pair,
        number: u64,
        bytes: &[u8],
        room: &mut Room,
        means: &Means<'_>,
    ) -> Result<()> {
        let mut sum = Sum::new();
        sum.bytes(bytes);
        let at = number * PIECE;
        let turn = means.pace.map(|pace| pace.begin(means.cancel)).transpose()?;
        pair.to.write(at, bytes, room).map_err(|e| self.cannot_write(e).at_offset(at))?;
        if let Some(turn) = turn {
            turn.moved(bytes.len() as u64, false);
        }
        lock(&self.sums).put(number, sum.finish());
        self.track.count(bytes.len() as u64, false, means);
        Ok(())
    }
}

/// Reads a file back from its device, and compares it with the sum that it is to have.
///
/// # Errors
/// `Io` if it is another one; system errors.
pub(crate) fn read_back(
    to: &Target,
    size: u64,
    meant: u64,
    path: &Path,
    room: &mut Room,
    means: &Means<'_>,
) -> Result<()> {
    let differs = || {
        Error::new(Kind::Io, "what was written is not what is read back").at_path(path).with_hint(
            "the device or the memory of this node may be failing; the file was not given its name",
        )
    };
    stead_store::evict(to.file());
    let there = sum_of(to.file(), size, room, means.cancel);
    let there = there.map_err(|fault| fault.told("read back", path.to_owned(), differs))?;
    if there == meant { Ok(()) } else { Err(differs()) }
}

impl Carry for Down {
    fn track(&self) -> &Track {
        &self.track
    }

    fn try_piece(&self, number: u64, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let (from, size) = (number * PIECE, self.item().size);
        let end = (from + PIECE).min(size);
        if self.track.pieces() == 1 {
            means.limiter.take(usize::try_from(size).unwrap_or(0), means.cancel)?;
            // One question is enough for a small one.
            let (bytes, object) = self.bucket.get(&self.key, 0..size, None)?;
            let pair = self.open(object, means)?;
            *lock(&self.opened) = Some(pair.clone());
            return self.write(&pair, 0, &bytes, room, means);
        }
        let pair = self.pair(means)?;
        if lock(&self.sums).has(number) {
            return Ok(());
        }
        means.limiter.take(usize::try_from(end - from).unwrap_or(0), means.cancel)?;
        let (bytes, _) = self.bucket.get(&self.key, from..end, Some(&pair.object))?;
        self.write(&pair, number, &bytes, room, means)
    }

    fn finish(&self, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let pair = self.pair(means)?;
        pair.to.file().set_len(pair.object.size).map_err(|e| self.cannot_write(e))?;
        meta::give_new(pair.to.file(), pair.object.changed(), &self.target_path())?;
        if means.sync_each || means.verify {
            pair.to.sync_all().map_err(|e| self.cannot_write(e))?;
        }
        if means.verify {
            let sum = lock(&self.sums).whole();
            read_back(&pair.to, pair.object.size, sum, &self.target_path(), room, means)?;
        }
        *lock(&self.seen) = Some(pair.object.clone());
        means.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self, whole: bool) {
        // A large file that is not whole is marked before it is closed.
        if whole || !self.is_marked() {
            *lock(&self.opened) = None;
        }
    }

    fn is_marked(&self) -> bool {
        self.item().size >= LEAST_MARKED
    }

    fn mark(&self) -> Result<Option<String>> {
        let Some(pair) = lock(&self.opened).clone() else { return Ok(None) };
        let Some((there, sum)) = lock(&self.sums).durable() else { return Ok(None) };
        pair.to.sync_data().map_err(|e| self.cannot_write(e))?;
        lock(&self.sums).mark(there);
        Ok(Some(self.mark_of(&pair.object, there * PIECE, sum).text()))
    }

    fn folder(&self) -> Option<&Folder> {
        Some(&self.target)
    }

    fn name(&self) -> Result<()> {
        commit::name(&self.target, &self.temporary, self.item())
    }

    fn leave(&self) -> Result<()> {
        let seen = lock(&self.seen).clone();
        seen.map_or(Ok(()), |seen| up::leave(&self.bucket, &self.key, &seen))
    }

    fn abandon(&self) -> Result<()> {
        self.target.remove_file(&self.temporary).map(drop)
    }
}
