//! A file of this node or of another one, or an object of another place, into a bucket: at once, in parts, or by the store itself.
//!
//! An object is there as a whole or not at all, so there is no temporary name. What is larger than a part goes up in parts, which
//! the store keeps under the number of the upload; the journal has that number before the first part goes, and which parts are
//! there, so that who resumes a transfer goes on with them, and who gives it up has the store forget them. Of a file of another node
//! each part is asked for when it is its turn, and is of the file that was looked at first, or an error.

use crate::bytes::{self, Room};
use crate::clock;
use crate::commit;
use crate::copy::{Means, lock, says_its_size, settled};
use crate::job::Item;
use crate::journal::Journal;
use crate::pace::Pace;
use crate::place::{Place, Prefix};
use crate::remote::{Far, Part, Question, Told, Wanted};
use crate::sum::PIECE;
use crate::work::{Carry, Track};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use stead_core::{Cancel, Error, Kind, Result, units};
use stead_store::{Bucket, Folder, Label, Meta, Object, What};

/// Parts that stores take of an object.
const MOST_PARTS: u64 = 10_000;
/// Bytes of a part at most: all of it is in memory while it is sent.
const MOST_PART: u64 = 1 << 30;
/// What the journal has of a copy that the store is asked for.
const WITHIN: &str = "within";
/// Bytes that stores copy by themselves at once.
const MOST_COPIED: u64 = 5 << 30;

/// Bytes of the parts of an object of this size: all have as many, and there are no more than stores take.
pub(crate) fn part_of(size: u64) -> u64 {
    size.div_ceil(MOST_PARTS).next_multiple_of(1 << 20).max(PIECE)
}

/// Where bytes come from, as it was when it was opened.
enum Source {
    File(Folder, bytes::Source, Meta),
    Object(Bucket, String, Object),
    /// As the other node has told it.
    Far(Far, Box<Told>, Meta),
}

/// A source as it was, without the open file, of which a process may have few.
enum Seen {
    File(Folder, Meta),
    Object(Bucket, String, Object),
    Far(Far, Told),
}

/// What the journal has of an upload.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upload {
    pub(crate) upload: String,
    /// What it is of.
    source: String,
    /// Bytes of a part.
    part: u64,
    /// What the parts are called that are there.
    parts: Vec<Option<String>>,
}

impl Upload {
    /// The upload of a mark; none if it is one of something else.
    pub(crate) fn of_text(text: &str) -> Option<Upload> {
        serde_json::from_str(text).ok()
    }

    fn text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|e| Error::internal(format!("a mark as text: {e}")))
    }

    fn there(&self) -> usize {
        self.parts.iter().flatten().count()
    }
}

/// A file that is brought into a bucket.
pub(crate) struct Up {
    track: Track,
    place: Place,
    bucket: Bucket,
    key: String,
    mark: String,
    part: u64,
    verify: bool,
    careful: bool,
    /// The transfer gives way to others.
    pub(crate) gentle: bool,
    /// The store copies it by itself, from this key.
    within: Option<String>,
    /// A try before this one may have asked for that.
    again: AtomicBool,
    source: Mutex<Option<Arc<Source>>>,
    /// What it was when all of it had been read.
    seen: Mutex<Option<Seen>>,
    upload: Mutex<Option<Upload>>,
    /// So many parts are in the journal.
    marked: Mutex<usize>,
}

/// What tells an object that a transfer has put from all others.
pub(crate) fn mark_of(tag: u64, item: &Item) -> String {
    format!("{tag:016x}-{:x}", item.n)
}

impl Up {
    pub(crate) fn new(
        item: Item,
        place: Place,
        target: &Prefix,
        tag: u64,
        verify: bool,
        careful: bool,
    ) -> Result<Up> {
        let key = target.key(Path::new(item.name()))?;
        let (bucket, mark) = (target.bucket().clone(), mark_of(tag, &item));
        let within = match &place {
            Place::Bucket(from) if from.bucket().is(&bucket) && item.size <= MOST_COPIED => {
                Some(from.key(Path::new(item.source.file_name().unwrap_or_default()))?)
            }
            _ => None,
        };
        let part = part_of(item.size);
        if within.is_none() && part > MOST_PART {
            let size = units::format_size;
            let message = format!(
                "a file of {}, and an object that is sent in parts has {} at most",
                size(item.size),
                size(MOST_PARTS * MOST_PART)
            );
            return Err(Error::limit(message)
                .at_path(place.at(item.source.file_name().unwrap_or_default()))
                .with_hint("pack it in several files, and stage these"));
        }
        let pieces = if within.is_some() { 1 } else { item.size.div_ceil(part).max(1) };
        Ok(Up {
            track: Track::new(item, pieces),
            place,
            bucket,
            key,
            mark,
            part,
            verify,
            careful,
            gentle: false,
            within,
            again: AtomicBool::new(false),
            source: Mutex::new(None),
            seen: Mutex::new(None),
            upload: Mutex::new(None),
            marked: Mutex::new(0),
        })
    }

    fn item(&self) -> &Item {
        self.track.item()
    }

    fn source_name(&self) -> &OsStr {
        self.item().source.file_name().unwrap_or_default()
    }

    fn shown(&self) -> PathBuf {
        self.bucket.shown(&self.key)
    }

    /// True if a try before this one may have had the store make the copy, by what the journal has of the file.
    pub(crate) fn was_begun(begun: Option<&str>) -> bool {
        begun == Some(WITHIN)
    }

    /// Begins an upload in parts, if it is to have any, or goes on with the one that was begun, if it is of the same source. What
    /// is given is for the journal, before the first part goes, with the number of the note that one was asked for.
    pub(crate) fn begin(
        &self,
        begun: Option<&str>,
        journal: &Journal,
        cancel: &Cancel,
    ) -> Result<Option<(String, i64)>> {
        self.again.store(Up::was_begun(begun), Ordering::Relaxed);
        let begun = begun.and_then(Upload::of_text);
        let parted = self.within.is_none() && self.track.pieces() > 1;
        let source = match parted || begun.is_some() {
            true => self.source(cancel)?,
            false => return Ok(None),
        };
        let parts = usize::try_from(self.track.pieces()).unwrap_or(0);
        if let Some(begun) = begun {
            let same = (&begun.source, begun.part, begun.parts.len())
                == (&source.number(), self.part, parts);
            if same && parted {
                *lock(&self.marked) = begun.there();
                *lock(&self.upload) = Some(begun);
                return Ok(None);
            }
            self.bucket.abort(&self.key, &begun.upload)?;
        }
        if !parted {
            return Ok(None);
        }
        let note = journal.note_stray(self.bucket.name(), &self.key, clock::unix())?;
        let upload = self.bucket.begin(&self.key, &self.label(&source));
        if let Err(e) = &upload
            && !matches!(e.kind(), Kind::Timeout | Kind::Cancelled)
        {
            // The store has answered: there is none.
            journal.forget_stray(note)?;
        }
        let upload = upload?;
        let parts = vec![None; parts];
        let upload = Upload { upload, source: source.number(), part: self.part, parts };
        let text = upload.text()?;
        *lock(&self.upload) = Some(upload);
        Ok(Some((text, note)))
    }

    fn label(&self, source: &Source) -> Label {
        let mtime = match source {
            Source::File(_, _, meta) | Source::Far(_, _, meta) => meta.mtime,
            Source::Object(_, _, object) => object.changed(),
        };
        Label { mtime, mark: self.mark.clone() }
    }

    /// The source, which the first one to ask opens.
    fn source(&self, cancel: &Cancel) -> Result<Arc<Source>> {
        let mut source = lock(&self.source);
        if let Some(source) = &*source {
            return Ok(source.clone());
        }
        let name = self.source_name();
        let opened = match &self.place {
            Place::Far(far) => {
                let (meta, told) = far.looked_at(name)?;
                if meta.what != What::File || meta.size != self.item().size {
                    return Err(self.changed());
                }
                Source::Far(far.clone(), Box::new(told), meta)
            }
            Place::Folder(folder) => {
                let file = folder.open_file(name)?;
                let look = |e| Error::io("look at", folder.at(name), e);
                let meta = Meta::of_file(&file).map_err(look)?;
                if meta.what != What::File || meta.size != self.item().size {
                    return Err(self.changed());
                }
                says_its_size(&file, &meta, folder.at(name))?;
                if self.careful {
                    settled(&file, &meta, cancel)?;
                }
                let mut file = bytes::Source::new(file, &meta);
                file.choose();
                Source::File(folder.clone(), file, meta)
            }
            Place::Bucket(prefix) => {
                let key = prefix.key(Path::new(name))?;
                let gone =
                    || Error::new(Kind::NotFound, "no such object").at_path(self.place.at(name));
                let object = prefix.bucket().head(&key)?.ok_or_else(gone)?;
                if object.size != self.item().size {
                    return Err(self.changed());
                }
                Source::Object(prefix.bucket().clone(), key, object)
            }
        };
        let opened = Arc::new(opened);
        *source = Some(opened.clone());
        Ok(opened)
    }

    fn read(
        &self,
        source: &Source,
        from: u64,
        end: u64,
        room: &mut Room,
        cancel: &Cancel,
        pace: Option<&Pace>,
    ) -> Result<Vec<u8>> {
        let begin = || pace.map(|pace| pace.begin(cancel)).transpose();
        match source {
            Source::File(_, file, _) => {
                let mut bytes = Vec::with_capacity(usize::try_from(end - from).unwrap_or(0));
                let mut at = from;
                while at < end {
                    let most = file.at_once(false);
                    let len = usize::try_from(end - at).unwrap_or(most).min(most);
                    let (name, turn) = (self.source_name(), begin()?);
                    file.read(at, len, room).map_err(|fault| {
                        fault.told("read", self.place.at(name), || self.changed())
                    })?;
                    bytes.extend_from_slice(room.first(len));
                    if let Some(turn) = turn {
                        turn.moved(len as u64, file.is_cold());
                    }
                    at += len as u64;
                }
                Ok(bytes)
            }
            Source::Object(bucket, key, object) => {
                let _turn = begin()?;
                bucket.get(key, from..end, Some(object)).map(|(bytes, _)| bytes)
            }
            Source::Far(far, told, _) => {
                let _turn = begin()?;
                self.ask(far, told, from, end, cancel)
            }
        }
    }

    /// Bytes of a file of another node: a part may be of more than one answer has. An empty one is asked about, too.
    fn ask(&self, far: &Far, told: &Told, from: u64, end: u64, cancel: &Cancel) -> Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(usize::try_from(end - from).unwrap_or(0));
        let mut at = from;
        loop {
            let to = (at + PIECE).min(end);
            let (seen, careful) = (Some(told), self.careful);
            let gentle = self.gentle;
            let wanted = Wanted { range: at..to, seen, careful, attributes: false, gentle };
            far.read(self.source_name(), wanted, &mut |_, part| {
                cancel.check()?;
                match part {
                    Part::Bytes(part) => bytes.extend_from_slice(part),
                    Part::Hole(len) => {
                        bytes.resize(bytes.len() + usize::try_from(len).unwrap_or(0), 0);
                    }
                }
                Ok(())
            })?;
            at = to;
            if at >= end {
                return Ok(bytes);
            }
        }
    }

    /// An error if a file of this node changed; of what others have each answer is of what was looked at.
    fn unchanged(&self, source: &Source) -> Result<()> {
        let Source::File(_, file, meta) = source else { return Ok(()) };
        let look = |e| Error::io("look at", self.place.at(self.source_name()), e);
        let after = Meta::of_file(file.file()).map_err(look)?;
        if after.same(meta) { Ok(()) } else { Err(self.changed()) }
    }

    fn changed(&self) -> Error {
        Error::new(Kind::Changed, "the file changed while it was copied")
            .at_path(self.place.at(self.source_name()))
            .with_hint("stage it again when nobody writes to it")
    }

    /// Refuses to replace what was not to be replaced. Not needed where the store does that itself.
    fn free(&self) -> Result<()> {
        if self.item().replace {
            return Ok(());
        }
        match self.bucket.head(&self.key)? {
            Some(there) if there.mark.as_ref() != Some(&self.mark) => {
                Err(Error::usage("there is something of this name already").at_path(self.shown()))
            }
            _ => Ok(()),
        }
    }

    /// True if the object that is there is the one that this transfer was to put there, of the source as it is now.
    fn is_ours(&self, source: &Source) -> Result<bool> {
        let label = self.label(source);
        Ok(self.bucket.head(&self.key)?.is_some_and(|there| {
            there.mark.as_ref() == Some(&self.mark)
                && there.size == self.item().size
                && commit::same_time(label.mtime, there.changed())
        }))
    }

    /// True if the store has made the copy before, that a try of this transfer asked for.
    fn is_copied(&self, source: &Source) -> Result<bool> {
        let Source::Object(_, _, from) = source else { return Ok(false) };
        // What nobody has marked may be anybody's.
        let marked = |there: &Object| {
            from.mark.is_some() && (&there.mark, there.mtime) == (&from.mark, from.mtime)
        };
        let tagged = |there: &Object| from.tag.is_some() && there.tag == from.tag;
        let like = |there: &Object| there.size == from.size && (marked(there) || tagged(there));
        let again = self.again.load(Ordering::Relaxed);
        Ok(again && self.bucket.head(&self.key)?.as_ref().is_some_and(like))
    }

    /// An upload of which the store knows nothing any more is begun anew.
    fn lost(&self, e: Error) -> Error {
        match e.kind() {
            Kind::NotFound => Error::new(
                Kind::Changed,
                "the store does not have this upload, or not all parts of it as they were sent",
            )
            .at_path(self.shown())
            .with_hint("it is begun anew; see the rules of the bucket for unfinished uploads"),
            _ => e,
        }
    }

    /// Reads the object back, and the source again.
    fn read_back(
        &self,
        source: &Source,
        room: &mut Room,
        cancel: &Cancel,
        pace: Option<&Pace>,
    ) -> Result<()> {
        let (size, mut at) = (self.item().size, 0);
        while at < size {
            cancel.check()?;
            let end = (at + PIECE).min(size);
            let there = self.bucket.get(&self.key, at..end, None)?.0;
            if there != self.read(source, at, end, room, cancel, pace)? {
                return Err(Error::new(Kind::Io, "what was written is not what is read back")
                    .at_path(self.shown())
                    .at_offset(at)
                    .with_hint("the memory of this node or the way to the store may be failing; stage it again with --exists replace"));
            }
            at = end;
        }
        Ok(())
    }

    fn at_once(&self, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let source = self.source(means.cancel)?;
        let size = self.item().size;
        match &self.within {
            Some(from) => {
                match self.free() {
                    // By a try of it of which no answer came, or nobody has written down.
                    Err(e) if e.kind() == Kind::Usage && self.is_copied(&source)? => {}
                    free => free.and_then(|()| self.bucket.copy(from, &self.key))?,
                }
                self.track.count(size, true, means);
            }
            None => {
                let bytes = self.read(&source, 0, size, room, means.cancel, means.pace)?;
                self.unchanged(&source)?;
                let (label, replace) = (self.label(&source), self.item().replace);
                match self.bucket.put(&self.key, bytes, &label, replace) {
                    // A try of it of which no answer came may have been the one.
                    Err(e) if e.kind() == Kind::Usage && !self.is_ours(&source)? => return Err(e),
                    Err(e) if e.kind() == Kind::Usage => {}
                    done => done?,
                }
                self.track.count(size, false, means);
            }
        }
        Ok(())
    }
}

impl Source {
    /// What tells it from all others, and from itself after a change.
    fn number(&self) -> String {
        match self {
            Source::File(_, _, m) | Source::Far(_, _, m) => {
                let time = |t: stead_store::FileTime| format!("{}.{:09}", t.seconds, t.nanos);
                let times = format!("{} {}", time(m.mtime), time(m.ctime));
                format!("{} {} {} {times}", m.dev, m.ino, m.size)
            }
            Source::Object(_, _, object) => {
                let time = (object.modified.seconds, object.modified.nanos);
                format!("{} {time:?} {}", object.size, object.tag.as_deref().unwrap_or_default())
            }
        }
    }
}

impl Carry for Up {
    fn track(&self) -> &Track {
        &self.track
    }

    fn try_piece(&self, number: u64, room: &mut Room, means: &Means<'_>) -> Result<()> {
        means.cancel.check()?;
        let (from, size) = (number * self.part, self.item().size);
        let end = if self.within.is_some() { size } else { (from + self.part).min(size) };
        let at = usize::try_from(number).unwrap_or(usize::MAX);
        let upload = match &*lock(&self.upload) {
            Some(begun) if begun.parts.get(at).is_some_and(Option::is_some) => {
                self.track.count(end - from, true, means);
                return Ok(());
            }
            begun => begun.as_ref().map(|begun| begun.upload.clone()),
        };
        if self.within.is_none() {
            means.limiter.take(usize::try_from(end - from).unwrap_or(0), means.cancel)?;
        }
        let Some(upload) = upload else { return self.at_once(room, means) };
        let source = self.source(means.cancel)?;
        let bytes = self.read(&source, from, end, room, means.cancel, means.pace)?;
        let part = self.bucket.part(&self.key, &upload, at, bytes).map_err(|e| self.lost(e))?;
        if let Some(slot) = lock(&self.upload).as_mut().and_then(|u| u.parts.get_mut(at)) {
            *slot = Some(part);
        }
        self.track.count(end - from, false, means);
        Ok(())
    }

    fn finish(&self, room: &mut Room, means: &Means<'_>) -> Result<()> {
        let source = self.source(means.cancel)?;
        self.unchanged(&source)?;
        if self.verify && self.within.is_none() && !self.is_marked() {
            self.read_back(&source, room, means.cancel, means.pace)?;
        }
        *lock(&self.seen) = Some(match &*source {
            Source::File(folder, _, meta) => Seen::File(folder.clone(), *meta),
            Source::Object(bucket, key, object) => {
                Seen::Object(bucket.clone(), key.clone(), object.clone())
            }
            Source::Far(far, told, _) => Seen::Far(far.clone(), Told::clone(told)),
        });
        means.files.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    fn close(&self, _: bool) {
        *lock(&self.source) = None;
    }

    fn is_marked(&self) -> bool {
        lock(&self.upload).is_some()
    }

    fn keeps(&self, e: &Error) -> bool {
        // The parts of a file whose node is gone stay until it is back.
        let kinds = [Kind::NoSpace, Kind::Cancelled, Kind::Internal, Kind::Timeout, Kind::Peer];
        self.is_marked() && kinds.contains(&e.kind())
    }

    fn mark(&self) -> Result<Option<String>> {
        let upload = lock(&self.upload);
        let Some(upload) = &*upload else { return Ok(None) };
        let mut marked = lock(&self.marked);
        if upload.there() <= *marked {
            return Ok(None);
        }
        *marked = upload.there();
        upload.text().map(Some)
    }

    fn is_begun(&self) -> Option<&'static str> {
        self.within.as_ref().map(|_| WITHIN)
    }

    fn folder(&self) -> Option<&Folder> {
        None
    }

    fn name(&self) -> Result<()> {
        let Some(upload) = lock(&self.upload).clone() else { return Ok(()) };
        self.free()?;
        let parts: Option<Vec<String>> = upload.parts.into_iter().collect();
        let parts = parts.ok_or_else(|| Error::internal("an upload without all of its parts"))?;
        if let Err(e) = self.bucket.complete(&self.key, &upload.upload, parts) {
            // It may have been done, and the answer lost.
            let source = self.source(&Cancel::new())?;
            if !self.is_ours(&source)? {
                return Err(self.lost(e));
            }
        }
        if self.verify {
            // Ctrl-C is heard by the bucket.
            let cancel = Cancel::new();
            self.read_back(&*self.source(&cancel)?, &mut Room::new(), &cancel, None)?;
        }
        Ok(())
    }

    fn leave(&self) -> Result<()> {
        match &*lock(&self.seen) {
            Some(Seen::File(folder, meta)) => commit::leave(folder, self.item(), meta),
            Some(Seen::Object(bucket, key, object)) => leave(bucket, key, object),
            Some(Seen::Far(far, told)) => {
                let seen = Some(told.clone());
                far.remove(self.source_name(), |base, path| Question::Remove {
                    base,
                    path,
                    folder: false,
                    seen,
                    mtime: None,
                })
            }
            None => Ok(()),
        }
    }

    fn abandon(&self) -> Result<()> {
        match &*lock(&self.upload) {
            Some(upload) => self.bucket.abort(&self.key, &upload.upload),
            None => Ok(()),
        }
    }
}

/// Removes an object that has been copied, if it is still what was.
///
/// # Errors
/// `Changed` if it is not; those of the store.
pub(crate) fn leave(bucket: &Bucket, key: &str, seen: &Object) -> Result<()> {
    match bucket.head(key)? {
        Some(now) if now.same(seen) => {
            let failed = bucket.delete(&[key.to_owned()])?.pop();
            failed.map_or(Ok(()), |(_, e)| Err(e))
        }
        Some(_) => Err(Error::new(Kind::Changed, "the object changed after it was copied")
            .at_path(bucket.shown(key))
            .with_hint("both are there; stage it again when nobody writes to it")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_as_many_as_stores_take() {
        for (size, part) in [(0, PIECE), (1, PIECE), (80 << 30, 9 << 20), (5 << 40, 525 << 20)] {
            assert_eq!(part_of(size), part, "{size}");
        }
        for size in [1, PIECE, PIECE + 1, (80 << 30) - 1, 5 << 40] {
            assert!(size.div_ceil(part_of(size)) <= MOST_PARTS);
        }
    }

    #[test]
    fn what_no_store_takes_is_refused_before_memory_is_taken() {
        use crate::manager::{Means, Stager};
        use crate::request::{Action, Options, Request};
        let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
        let file = std::fs::File::create(dir.path().join("hole")).unwrap();
        file.set_len(i64::MAX as u64).unwrap();
        std::fs::write(dir.path().join("small"), b"x").unwrap();
        let mut spaces = stead_core::layout::Spaces::default();
        let name = dir.path().file_name().unwrap().to_str().unwrap().replace('.', "");
        spaces.give(&format!("b=memory://{name}/below"), &|_| None).unwrap();
        let means = Means { spaces, ..Means::default() };
        let stager = Stager::open(&dir.path().join("state"), means).unwrap();
        let at = |text: &str| stead_core::Location::parse(text, &|_| None).unwrap();
        let sources = ["hole", "small"].map(|name| at(dir.path().join(name).to_str().unwrap()));
        let options = Options::default();
        let target = Some(at("b://into/"));
        let request = Request { action: Action::Copy, sources: sources.to_vec(), target, options };
        let id = stager.submit(&request).unwrap();
        let status = stager.run(id, &Cancel::new(), None).unwrap();
        assert_eq!((status.files_done, status.failed), (1, 1), "{:?}", status.failures);
        let why = &status.failures[0].error;
        assert!(why.contains("sent in parts") && why.contains("hole"), "{why}");
    }

    #[test]
    fn marks_of_uploads_are_text_and_back() {
        let upload = Upload {
            upload: "id".into(),
            source: "1 2 3".into(),
            part: PIECE,
            parts: vec![Some("\"tag\"".into()), None],
        };
        assert_eq!(Upload::of_text(&upload.text().unwrap()), Some(upload));
        assert_eq!(Upload::of_text("[1, 2, 3]"), None);
    }
}
