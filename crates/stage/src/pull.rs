//! A file of another node into one of this: by ranges into the temporary file, which gets its name as any other does.

use crate::bytes::{Room, Target};
use crate::commit;
use crate::copy::{LEAST_MARKED, Means, lock};
use crate::down::read_back;
use crate::job::{Item, Mark};
use crate::meta;
use crate::remote::{Attributes, Far, Part, Question, Told, Wanted};
use crate::sum::{PIECE, Sum, Sums, pieces_of};
use crate::work::{Carry, Track, stops_all};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use stead_core::{Error, Kind, Result};
use stead_store::{Folder, Meta, What};

/// A file of another node that becomes one here.
pub(crate) struct Pull {
    track: Track,
    source: Far,
    target: Folder,
    temporary: OsString,
    begun: Option<Mark>,
    opened: Mutex<Option<Arc<Pair>>>,
    sums: Mutex<Sums>,
    /// What the other node has told with the first piece.
    attributes: Mutex<Option<Attributes>>,
    /// The source when all of it had been read.
    seen: Mutex<Option<Told>>,
}

/// The source, as it was when it was first asked for, and the file.
struct Pair {
    /// As the other node has told it; none for a file of one piece that has not come.
    told: Option<Told>,
    to: Target,
}

impl Pull {
    pub(crate) fn new(
        item: Item,
        source: Far,
        target: Folder,
        temporary: OsString,
        begun: Option<Mark>,
    ) -> Pull {
        let (pieces, sums) = (pieces_of(item.size), Sums::new(item.size));
        Pull {
            track: Track::new(item, pieces),
            source,
            target,
            temporary,
            begun,
            opened: Mutex::new(None),
            sums: Mutex::new(sums),
            attributes: Mutex::new(None),
            seen: Mutex::new(None),
        }
    }

    fn item(&self) -> &Item {
        self.track.item()
    }

    fn source_name(&self) -> &OsStr {
        self.item().source.file_name().unwrap_or_default()
    }

    fn source_path(&self) -> PathBuf {
        self.source.shown().join(self.source_name())
    }

    fn target_path(&self) -> PathBuf {
        self.target.at(self.item().name())
    }

    fn changed(&self) -> Error {
        self.source.changed(self.source_name())
    }

    fn cannot_write(&self, e: std::io::Error) -> Error {
        let e = Error::io("write", self.target_path(), e);
        match e.kind() {
            Kind::NoSpace => e.with_hint("free some space, then resume the transfer"),
            _ => e,
        }
    }

    fn meta_of(&self, told: &Told) -> Result<Meta> {
        let meta = self.source.meta_of(told);
        let odd = || Error::format("the other node tells of no file").at_path(self.source_path());
        let meta = meta.ok_or_else(odd)?;
        match meta.what == What::File && meta.size == self.item().size {
            true => Ok(meta),
            false => Err(self.changed()),
        }
    }

    /// The source and the file, which the first one to ask opens.
    fn pair(&self, means: &Means<'_>) -> Result<Arc<Pair>> {
        let mut opened = lock(&self.opened);
        if let Some(pair) = &*opened {
            return Ok(pair.clone());
        }
        let pair = Arc::new(match self.track.pieces() {
            // One question is enough for a small one.
            1 => {
                let was_begun = self.begun.is_some();
                let to =
                    self.track.create(&self.target, &self.temporary, 0o600, was_begun, means)?;
                // Whether it has holes nobody has told.
                self.prepared(None, to, true, false)?
            }
            _ => {
                let (_, told) = self.source.looked_at(self.source_name())?;
                self.open(told, means)?
            }
        });
        *opened = Some(pair.clone());
        Ok(pair)
    }

    fn open(&self, told: Told, means: &Means<'_>) -> Result<Pair> {
        let meta = self.meta_of(&told)?;
        let of = mark_of(&meta, 0, 0);
        let goes_on = |mark: &Mark| {
            let same = Mark { prefix: mark.prefix, sum: mark.sum, ..of } == *mark;
            same && mark.prefix.is_multiple_of(PIECE) && mark.prefix <= meta.size
        };
        if let Some(mark) = self.begun.filter(goes_on)
            && let Some(to) = commit::begun(&self.target, &self.temporary, mark.prefix, 0o600)
        {
            lock(&self.sums).begin(mark.prefix / PIECE, mark.sum);
            self.track.count(mark.prefix, true, means);
            return self.prepared(Some(told), to, meta.room < meta.size, true);
        }
        let was_begun = self.begun.is_some();
        let to = self.track.create(&self.target, &self.temporary, 0o600, was_begun, means)?;
        self.prepared(Some(told), to, meta.room < meta.size, false)
    }

    fn prepared(&self, told: Option<Told>, to: File, sparse: bool, begun: bool) -> Result<Pair> {
        let mut to = Target::new(to);
        to.prepare(self.item().size, sparse, begun).map_err(|e| self.cannot_write(e))?;
        Ok(Pair { told, to })
    }
}

fn mark_of(meta: &Meta, prefix: u64, sum: u64) -> Mark {
    let Meta { dev, ino, size, mtime, ctime, .. } = *meta;
    Mark { dev, ino, size, mtime, ctime, prefix, sum }
}

impl Carry for Pull {
    fn track(&self) -> &Track {
        &self.track
    }

    fn try_piece(&self, number: u64, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let (from, size) = (number * PIECE, self.item().size);
        let end = (from + PIECE).min(size);
        let pair = self.pair(means)?;
        if lock(&self.sums).has(number) {
            return Ok(());
        }
        // Before it is asked: the other node is not kept waiting.
        means.limiter.take(usize::try_from(end - from).unwrap_or(0), means.cancel)?;
        let wanted = Wanted {
            range: from..end,
            seen: pair.told.as_ref(),
            careful: means.careful,
            attributes: number == 0,
            gentle: means.pace.is_some(),
        };
        let turn = means.pace.map(|pace| pace.begin(means.cancel)).transpose()?;
        let mut sum = Sum::new();
        let mut told = self.source.read(self.source_name(), wanted, &mut |at, part| {
            means.cancel.check()?;
            let len = match part {
                Part::Bytes(bytes) => {
                    let wrote = pair.to.write(at, bytes, room);
                    wrote.map_err(|e| self.cannot_write(e).at_offset(at))?;
                    sum.bytes(bytes);
                    bytes.len() as u64
                }
                Part::Hole(len) => {
                    sum.hole(len);
                    len
                }
            };
            self.track.count(len, matches!(part, Part::Hole(_)), means);
            Ok(())
        })?;
        if let Some(turn) = turn {
            // What is read is of a device of the other node, which looks after that itself.
            turn.moved(end - from, false);
        }
        self.meta_of(&told)?;
        if let Some(attributes) = told.attributes.take() {
            *lock(&self.attributes) = Some(attributes);
        }
        *lock(&self.seen) = Some(told);
        lock(&self.sums).put(number, sum.finish());
        Ok(())
    }

    fn finish(&self, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let pair = self.pair(means)?;
        let seen = lock(&self.seen).clone().or_else(|| pair.told.clone());
        let meta = self.meta_of(&seen.ok_or_else(|| self.changed())?)?;
        let attributes = lock(&self.attributes).take();
        let attributes = match attributes {
            Some(attributes) => attributes,
            // The first piece was there before.
            None => {
                let (now, attributes) = self.source.attributes(self.source_name())?;
                if !now.same(&meta) {
                    return Err(self.changed());
                }
                attributes
            }
        };
        // A hole at the end, and one of a file that was begun before.
        pair.to.file().set_len(meta.size).map_err(|e| self.cannot_write(e))?;
        meta::give_told(&attributes, &meta, pair.to.file(), &self.target_path())?;
        if means.sync_each || means.verify {
            pair.to.sync_all().map_err(|e| self.cannot_write(e))?;
        }
        if means.verify {
            let sum = lock(&self.sums).whole();
            read_back(&pair.to, meta.size, sum, &self.target_path(), room, means)?;
        }
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

    fn keeps(&self, e: &Error) -> bool {
        // One whose node is gone goes on when that is back, if there is something to go on with.
        let is_begun = || match lock(&self.opened).is_some() {
            true => lock(&self.sums).is_begun(),
            false => self.begun.is_some(),
        };
        self.is_marked() && (stops_all(e) || e.kind() == Kind::Peer && is_begun())
    }

    fn mark(&self) -> Result<Option<String>> {
        let Some(pair) = lock(&self.opened).clone() else { return Ok(None) };
        let Some(told) = &pair.told else { return Ok(None) };
        let Some((there, sum)) = lock(&self.sums).durable() else { return Ok(None) };
        pair.to.sync_data().map_err(|e| self.cannot_write(e))?;
        lock(&self.sums).mark(there);
        Ok(Some(mark_of(&self.meta_of(told)?, there * PIECE, sum).text()))
    }

    fn folder(&self) -> Option<&Folder> {
        Some(&self.target)
    }

    fn name(&self) -> Result<()> {
        commit::name(&self.target, &self.temporary, self.item())
    }

    fn leave(&self) -> Result<()> {
        let Some(seen) = lock(&self.seen).clone() else { return Ok(()) };
        self.source.remove(self.source_name(), |base, path| Question::Remove {
            base,
            path,
            folder: false,
            seen: Some(seen),
            mtime: None,
        })
    }

    fn abandon(&self) -> Result<()> {
        self.target.remove_file(&self.temporary).map(drop)
    }
}
