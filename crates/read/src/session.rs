//! Files and the sessions over them: what programs use.

use crate::buffers::Buffers;
use crate::engine::{Counts, Shared};
use crate::opened::Opened;
use crate::options::{Decision, Options};
use crate::ranks::group::{Group, Joint};
use crate::registry::{self, MaybeKey};
use crate::request::{Finish, Pending, Read, ReadInto};
use crate::within::Within;
use std::ops::{Bound, Range, RangeBounds};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use stead_core::{Error, Result};
use stead_store::{FileSource, Source};

/// A file that is open for sessions. Clones are the same file.
#[derive(Clone)]
pub struct File(Arc<Handle>);

struct Handle {
    source: Arc<dyn Source>,
    /// As the user named it.
    path: PathBuf,
    by: By,
}

/// Who reads it.
enum By {
    Us(Box<Buffers>),
    /// All ranks that have it open.
    Ranks(Box<Group>),
}

/// A range of a file that many read. Readers fetch it ahead; requests come in any order, overlap, repeat, and come
/// from any thread. It may be shared by reference or [`Arc`].
pub struct Session {
    file: File,
    /// What its bytes are read into: by this rank, if there are several.
    shared: Arc<Shared>,
    /// What ranks have together.
    joint: Option<Arc<Joint>>,
    /// What this rank reads ahead for it.
    ahead: Vec<u64>,
    start: u64,
    end: u64,
}

/// Opens a file for reading. It is never created or written to. How it is read is chosen when a session begins.
///
/// # Errors
/// `NotFound`, `Permission`, `Io`; `Usage` for what cannot be read at any offset, as directories and pipes, and for an
/// engine that is not to be had.
pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<File> {
    let path = path.as_ref();
    let source = FileSource::open(path)?;
    let key = registry::key(&source, options);
    File::new(Arc::new(source), path.to_owned(), options, key)
}

/// As [`open`], for any source of bytes.
///
/// # Errors
/// `Usage` for an engine that is not to be had.
pub fn open_source(source: Arc<dyn Source>, options: &Options) -> Result<File> {
    let path = source.path().to_owned();
    File::new(source, path, options, Err(None))
}

impl File {
    fn new(
        source: Arc<dyn Source>,
        path: PathBuf,
        options: &Options,
        key: MaybeKey,
    ) -> Result<File> {
        let opened = Opened::look(source.clone(), options)?;
        let by = By::Us(Box::new(Buffers::new(opened, options, key)));
        Ok(File(Arc::new(Handle { source, path, by })))
    }

    /// One that several ranks have open.
    pub(crate) fn of_ranks(group: Group, path: PathBuf) -> File {
        let source = group.source();
        File(Arc::new(Handle { source, path, by: By::Ranks(Box::new(group)) }))
    }

    /// Number of bytes, fixed when it was opened.
    pub fn len(&self) -> u64 {
        self.0.source.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Its name.
    pub fn path(&self) -> PathBuf {
        self.0.path.clone()
    }

    /// Begins a session over a range of bytes and, unless told otherwise, to read it ahead. Offsets of its reads
    /// are those of the file. For a file of [`crate::ranks::open`] all ranks begin the same session.
    ///
    /// # Errors
    /// `Usage` if the range does not lie within the file, or is not that of other ranks; `Io` if no thread can be
    /// started; `Peer` if a rank is gone.
    pub fn session(&self, range: impl RangeBounds<u64>) -> Result<Session> {
        let range = self.bounds(range);
        let group = match &self.0.by {
            By::Us(buffers) => {
                let Range { start, end } = range?;
                let (shared, id) = buffers.begin(&(start..end))?;
                let (file, ahead) = (self.clone(), vec![id]);
                return Ok(Session { file, shared, joint: None, ahead, start, end });
            }
            By::Ranks(group) => group,
        };
        let (joint, Range { start, end }) = group.begin(range)?;
        let (file, shared, ahead) = (self.clone(), joint.main().clone(), Vec::new());
        let parts = joint.own_parts(start..end);
        let mut session = Session { file, shared, joint: Some(joint), ahead, start, end };
        for part in parts {
            session.ahead.push(session.shared.begin(part)?);
        }
        Ok(session)
    }

    /// Takes part in [`File::session`] of a file of [`crate::ranks::open`] with an error of this rank alone, as arguments
    /// that make no sense: all others get one too, and none waits for this rank. Returns the error.
    pub fn refuse_session(&self, error: Error) -> Error {
        match &self.0.by {
            // That others are gone is no matter here.
            By::Ranks(group) => {
                group.begin(Err(error)).err().unwrap_or_else(|| Error::internal("refused"))
            }
            By::Us(_) => error,
        }
    }

    /// Checks a range.
    fn bounds(&self, range: impl RangeBounds<u64>) -> Result<Range<u64>> {
        let len = self.len();
        let start = match range.start_bound() {
            Bound::Included(n) => *n,
            Bound::Excluded(n) => n.saturating_add(1),
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(n) => n.saturating_add(1),
            Bound::Excluded(n) => *n,
            Bound::Unbounded => len,
        };
        if start > end && start <= len {
            let message = format!("a session over bytes {start} to {end} ends before it begins");
            return Err(Error::usage(message).at_path(self.path()).at_offset(start));
        }
        if start > end || end > len {
            let message =
                format!("a session over bytes {start} to {end} goes past the end at {len}");
            return Err(Error::usage(message).at_path(self.path()).at_offset(end));
        }
        Ok(start..end)
    }

    /// The sets of buffers that it has.
    #[cfg(test)]
    pub(crate) fn sets(&self) -> Vec<Arc<Shared>> {
        match &self.0.by {
            By::Us(buffers) => buffers.sets(),
            By::Ranks(group) => group.sets(),
        }
    }

    /// Fills a buffer without any session: no readers, no buffers of ours. Of a file of [`crate::ranks::open`], a rank that
    /// does not have it asks the others for what a session has covered.
    ///
    /// # Errors
    /// Those of a read; `Internal` past the end; on a rank that does not have the file, `Usage` for what no session covers.
    pub fn read_alone(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match &self.0.by {
            By::Us(_) => self.0.source.read_at(offset, buffer),
            By::Ranks(group) => group.read_alone(offset, buffer),
        }
    }

    /// As programs do that know nothing of sessions: the system's read, into the buffer as it lies.
    pub(crate) fn read_plainly(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        match self.0.source.file() {
            Some(file) => file
                .read_exact_at(buffer, offset)
                .map_err(|e| Error::io("read", self.path(), e).at_offset(offset)),
            None => self.read_alone(offset, buffer),
        }
    }

    /// What was done for all sessions so far.
    pub fn counts(&self) -> Counts {
        match &self.0.by {
            By::Us(buffers) => buffers.counts(),
            By::Ranks(group) => group.counts(),
        }
    }
}

impl Session {
    /// The first byte and the one after the last.
    pub fn range(&self) -> Range<u64> {
        self.start..self.end
    }

    /// Its file.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// The session as it is, for requests with a deadline of their own: `session.within(second).read_into(offset,
    /// buffer)`. `None` is that of the options.
    pub fn within(&self, deadline: impl std::convert::Into<Option<Duration>>) -> Within<'_> {
        Within::new(self, deadline.into())
    }

    /// Asks for `len` bytes at `offset` of the file. Views share memory where they can: the page cache, or a block.
    /// Costs about a microsecond where the bytes are there already.
    ///
    /// The answer is an error of kind `Usage` if they do not lie within the session.
    pub fn read(&self, offset: u64, len: usize) -> Read {
        Within::new(self, None).read(offset, len)
    }

    /// Fills `buffer` from `offset` and gives it back.
    pub fn read_into<B: AsMut<[u8]> + Send + 'static>(
        &self,
        offset: u64,
        buffer: B,
    ) -> ReadInto<B> {
        Within::new(self, None).read_into(offset, buffer)
    }

    /// Asks for several ranges at once: pairs of offset and length.
    pub fn read_many(&self, ranges: &[(u64, usize)]) -> Vec<Read> {
        Within::new(self, None).read_many(ranges)
    }

    /// Asks for `count` pieces of `len` bytes, whose starts are `stride` bytes apart, and puts them one after the other.
    ///
    /// The answer is an error of kind `Usage` if the pieces overlap or do not lie within the session.
    pub fn read_strided(
        &self,
        offset: u64,
        len: usize,
        stride: usize,
        count: usize,
    ) -> ReadInto<Vec<u8>> {
        Within::new(self, None).read_strided(offset, len, stride, count)
    }

    /// What was chosen, and why.
    pub fn plan(&self) -> Vec<Decision> {
        let shared = &self.shared;
        let (value, reason) = if shared.maps() {
            ("the page cache", "all processes share it; views are parts of a mapping")
        } else {
            (
                "blocks in memory",
                "a network file system, direct reads, an engine by name, or no file",
            )
        };
        let mut all = shared.decisions(&self.range());
        let decision =
            |name, value: String, reason: &str| Decision { name, value, reason: reason.to_owned() };
        all.push(decision("bytes", value.to_owned(), reason));
        let budget = shared.choice().blocks.to_string();
        all.push(decision(
            "blocks at most",
            budget,
            "what the memory holds; half of it is read ahead",
        ));
        all.extend(shared.sharing());
        if let Some(joint) = &self.joint {
            all.extend(joint.plan(&self.range()));
        }
        all
    }

    /// As [`Session::plan`], as pairs of a name and a text.
    pub fn explain(&self) -> Vec<(&'static str, String)> {
        let text = |d: Decision| (d.name, format!("{}: {}", d.value, d.reason));
        self.plan().into_iter().map(text).collect()
    }

    /// Ends it and says whether the file is still what it was. Views stay valid, and reads that wait are answered.
    ///
    /// # Errors
    /// `Changed` if somebody wrote to the file.
    pub fn close(self) -> Result<()> {
        self.check()
    }

    /// Says whether the file is still what it was.
    ///
    /// # Errors
    /// `Changed` if somebody wrote to it.
    pub fn check(&self) -> Result<()> {
        self.file.0.source.check()
    }

    #[cfg(test)]
    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Any request, with a deadline of its own if there is one.
    pub(crate) fn ask<T: Send + 'static, F: Finish<T> + 'static>(
        &self,
        offset: u64,
        len: usize,
        deadline: Option<Duration>,
        finish: impl FnOnce() -> F,
    ) -> Pending<T> {
        match offset.checked_add(len as u64) {
            Some(end) if offset >= self.start && end <= self.end => {
                let Some(joint) = &self.joint else {
                    return self.shared.ask(offset, len, deadline, finish());
                };
                let engine = joint.engine(offset..end);
                let asked = engine.ask(offset, len, deadline, finish());
                joint.asked(!matches!(asked, Pending::Waiting(_)));
                asked
            }
            _ => self.outside(offset, len),
        }
    }

    pub(crate) fn outside<T>(&self, offset: u64, len: usize) -> Pending<T> {
        let (start, end) = (self.start, self.end);
        let message = format!("{len} bytes do not lie within the session, bytes {start} to {end}");
        let error = self.refusal(message, offset);
        let error = match start {
            0 => error,
            _ => error.with_hint("offsets are those of the file, whatever the session begins with"),
        };
        Pending::Ready(Some(Err(error)))
    }

    pub(crate) fn refusal(&self, message: String, offset: u64) -> Error {
        Error::usage(message).at_path(self.file.path()).at_offset(offset)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        for id in &self.ahead {
            match &self.file.0.by {
                By::Us(buffers) => buffers.end(&self.shared, *id),
                By::Ranks(_) if self.shared.is_inherited() => {}
                By::Ranks(_) => self.shared.end(*id),
            }
        }
    }
}
