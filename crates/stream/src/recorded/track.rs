//! What one writer has recorded.

use super::form::{self, ENTRY, Entry, Head, Opening, Recorded};
use super::spot::{self, Card};
use crate::memory::is_alive;
use crate::threads;
use crate::words::Who;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Kind, Result, limits};
use stead_store::{Folder, process};

/// Entries after the last one that is right, at the end of an index: what a machine that lost its power has left of those on their way.
const TORN: u64 = 1 << 12;
/// Bytes of what a writer says of a step.
const MOST_SAID: u64 = 4 << 30;
/// Chunks that are read at once, and looked at while they are in the caches.
const AT_ONCE: usize = 4;

/// The files of a writer.
#[derive(Debug)]
struct Pair {
    index: File,
    data: File,
}

/// How far a writer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Steps that are recorded.
    pub(crate) steps: u64,
    /// It has closed the stream, or given it up, after so many steps.
    pub(crate) closed: Option<(u64, bool)>,
    /// Entries of steps and of the end that were looked at.
    entries: u64,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Track {
    folder: Folder,
    pub(crate) rank: u64,
    opening: Opening,
    /// Its process, if this machine can tell of it.
    process: Option<Who>,
    index_path: PathBuf,
    pub(crate) data_path: PathBuf,
    /// `None` where there are too many writers for all files to be open.
    pair: Option<Arc<Pair>>,
    /// Steps may be recorded in any order, and not all are: behind which entry the next one was found.
    near: Option<AtomicU64>,
    progress: Mutex<Progress>,
}

/// The head of a step, and what its entry says.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) entry: Recorded,
    bytes: Vec<u8>,
}

impl Page {
    /// What is in it, which was looked at when it was read.
    pub(crate) fn head(&self) -> Option<Head<'_>> {
        Head::decode(&self.bytes, self.entry.sum)
    }
}

impl Track {
    /// Of a writer; `None` if it has not begun to record.
    ///
    /// # Errors
    /// `Format` for files of something else; system errors.
    pub(crate) fn open(folder: &Folder, rank: u64, card: &Card) -> Result<Option<Track>> {
        let name = spot::index(rank);
        let index = match folder.open_file(&name) {
            Err(e) if e.kind() == Kind::NotFound => return Ok(None),
            index => index?,
        };
        let index_path = folder.at(&name);
        let mut opening = [0; ENTRY];
        if length(&index, &index_path)? < ENTRY as u64 {
            return Ok(None);
        }
        index.read_exact_at(&mut opening, 0).map_err(|e| Error::io("read", &index_path, e))?;
        let odd = |why: &str| {
            Err(Error::format(why).at_path(&index_path).with_hint(
                "it was changed, or is of another stream: the steps of the folder cannot be read",
            ))
        };
        let opening = match Opening::decode(&opening) {
            Some(o) if (o.run, o.rank, o.writers) == (card.run(), rank, card.writers) => o,
            Some(_) => return odd("this is of another run of a stream than the others"),
            // All zero where it is not yet written.
            None if opening == [0; ENTRY] => return Ok(None),
            None => return odd("this is no index of recorded steps"),
        };
        let data = spot::data(rank);
        let data_path = folder.at(&data);
        let few = card.writers <= limits::MAX_OPEN_TRACKS;
        let pair = match few {
            true => Some(Arc::new(Pair { index, data: folder.open_file(&data)? })),
            false => None,
        };
        let here = opening.host != 0 && process::host().is_ok_and(|host| host == opening.host);
        Ok(Some(Track {
            folder: folder.clone(),
            rank,
            opening,
            process: here.then(|| Who::of(opening.who)),
            index_path,
            data_path,
            pair,
            near: card.spills.then(AtomicU64::default),
            progress: Mutex::default(),
        }))
    }

    fn pair(&self) -> Result<Arc<Pair>> {
        if let Some(pair) = &self.pair {
            return Ok(pair.clone());
        }
        let index = self.folder.open_file(&spot::index(self.rank))?;
        let data = self.folder.open_file(&spot::data(self.rank))?;
        Ok(Arc::new(Pair { index, data }))
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of its process, wherever that is.
    pub(crate) fn number(&self) -> u32 {
        Who::of(self.opening.who).number
    }

    /// True if its process has ended. One of another machine is not known to have.
    pub(crate) fn has_died(&self) -> bool {
        self.process.is_some_and(|who| !is_alive(who))
    }

    /// Bytes that were written.
    pub(crate) fn bytes(&self) -> Result<u64> {
        length(&self.pair()?.data, &self.data_path)
    }

    /// True if it is known to have recorded more steps than this number. Costs nothing.
    pub(crate) fn is_past(&self, step: u64) -> bool {
        self.progress().steps > step
    }

    /// How far it is now.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn look(&self) -> Result<Progress> {
        let known = *self.progress();
        if known.closed.is_some() {
            return Ok(known);
        }
        let pair = self.pair()?;
        let entries = (length(&pair.index, &self.index_path)? / ENTRY as u64).saturating_sub(1);
        if entries <= known.entries {
            return Ok(known);
        }
        let data = length(&pair.data, &self.data_path)?;
        let mut now = known;
        for n in (known.entries.max(entries.saturating_sub(TORN))..entries).rev() {
            // Those at the end may be on their way, or torn.
            match self.decode(&pair, n)? {
                Some(Entry::Step(r)) if r.offset.checked_add(r.len).is_some_and(|e| e <= data) => {
                    now = Progress { steps: n + 1, closed: None, entries: n + 1 };
                }
                Some(Entry::Closed { steps, fails }) => {
                    now = Progress { steps: n, closed: Some((steps, fails)), entries: n + 1 };
                }
                _ => continue,
            }
            break;
        }
        let mut progress = self.progress();
        if now.entries > progress.entries {
            *progress = now;
        }
        Ok(*progress)
    }

    /// An error if a writer that has closed the stream has recorded more than its file of data has now. Costs a look at some entries.
    ///
    /// # Errors
    /// `Format` for a file that is cut off; system errors.
    pub(crate) fn reaches(&self) -> Result<()> {
        let Progress { steps, closed: Some(_), .. } = self.look()? else { return Ok(()) };
        let pair = self.pair()?;
        let data = length(&pair.data, &self.data_path)?;
        let is_there = |n: u64| -> Result<bool> {
            let entry = self.entry(&pair, n)?;
            Ok(entry.offset.checked_add(entry.len).is_some_and(|end| end <= data))
        };
        let Some(last) = steps.checked_sub(1) else { return Ok(()) };
        if is_there(last)? {
            return Ok(());
        }
        // Files only grow: where one is cut off, all steps behind that are.
        let (mut first, mut cut) = (0, last);
        while first < cut {
            let middle = first + (cut - first) / 2;
            match is_there(middle)? {
                true => first = middle + 1,
                false => cut = middle,
            }
        }
        let step = self.entry(&pair, first)?.step;
        let message = format!(
            "what writer {} has recorded is cut off: step {step} and those after it are not all there",
            self.rank
        );
        Err(Error::format(message)
            .at_path(&self.data_path)
            .at_offset(data)
            .with_hint("the file was changed or cut off, or the device has errors"))
    }

    fn decode(&self, pair: &Pair, n: u64) -> Result<Option<Entry>> {
        let mut bytes = [0; ENTRY];
        let at = n.saturating_add(1).saturating_mul(ENTRY as u64);
        match pair.index.read_exact_at(&mut bytes, at) {
            Ok(()) => Ok(Entry::decode(&bytes, self.opening.run)),
            Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(Error::io("read", &self.index_path, e)),
        }
    }

    fn entry(&self, pair: &Pair, n: u64) -> Result<Recorded> {
        match self.decode(pair, n)? {
            Some(Entry::Step(recorded)) => Ok(recorded),
            _ => Err(self.confused(n)),
        }
    }

    /// Where a step is; `None` if it is not recorded.
    ///
    /// # Errors
    /// `Format` if the index is damaged; system errors.
    pub(crate) fn find(&self, step: u64) -> Result<Option<Recorded>> {
        if let Some(near) = &self.near {
            return self.search(step, near);
        }
        if !self.is_past(step) && self.look()?.steps <= step {
            return Ok(None);
        }
        let entry = self.entry(&*self.pair()?, step)?;
        match entry.step == step {
            true => Ok(Some(entry)),
            false => Err(self.confused(step)),
        }
    }

    /// Looks at one entry after the other, from one on that is likely.
    fn search(&self, step: u64, near: &AtomicU64) -> Result<Option<Recorded>> {
        let steps = self.look()?.steps;
        let pair = self.pair()?;
        let first = near.load(Ordering::Relaxed).min(steps);
        for n in (first..steps).chain(0..first) {
            let entry = self.entry(&pair, n)?;
            if entry.step == step {
                near.store(n + 1, Ordering::Relaxed);
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    fn confused(&self, n: u64) -> Error {
        let message = format!("what this says of recorded steps is damaged, at entry {n}");
        Error::format(message)
            .at_path(&self.index_path)
            .at_offset(n.saturating_add(1).saturating_mul(ENTRY as u64))
            .with_hint("the file was changed, or the device has errors")
    }

    fn damaged(&self, step: u64, at: u64) -> Error {
        let rank = self.rank;
        Error::format(format!("what writer {rank} has recorded of step {step} is damaged"))
            .at_path(&self.data_path)
            .at_offset(at)
            .with_hint("the file was changed or cut off, or the device has errors")
    }

    /// Bytes of the file of data, as they are there.
    fn read(&self, pair: &Pair, step: u64, at: u64, to: &mut [u8]) -> Result<()> {
        pair.data.read_exact_at(to, at).map_err(|e| match e.kind() {
            std::io::ErrorKind::UnexpectedEof => self.damaged(step, at),
            _ => Error::io("read", &self.data_path, e).at_offset(at),
        })
    }

    /// Chunks from this place on, which are as these checksums say. Many are read by several threads.
    fn chunks(
        &self,
        pair: &Pair,
        step: u64,
        at: u64,
        to: &mut [u8],
        sums: &[[u8; 8]],
    ) -> Result<()> {
        const LEN: usize = AT_ONCE * form::CHUNK as usize;
        let threads = threads::of_use(to.len(), 0, 1);
        let parts = Mutex::new(to.chunks_mut(LEN).zip(sums.chunks(AT_ONCE)).enumerate());
        let failed: Mutex<Option<(u64, Error)>> = Mutex::default();
        let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
        let work = || {
            while let Some((n, (to, sums))) = next() {
                let at = at.saturating_add((n * LEN) as u64);
                let read = self.read(pair, step, at, to).and_then(|()| {
                    if form::is_whole(to, sums) { Ok(()) } else { Err(self.damaged(step, at)) }
                });
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if let Err(e) = read
                    && failed.as_ref().is_none_or(|(first, _)| at < *first)
                {
                    *failed = Some((at, e));
                }
                // All before the first one that fails have been begun by now.
                if failed.is_some() {
                    return;
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // What a thread that does not begin would have read is read by the others.
                let _ = std::thread::Builder::new().spawn_scoped(scope, work);
            }
            work();
        });
        match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, e)) => Err(e),
            None => Ok(()),
        }
    }

    /// So many bytes, of which the file has to have as many.
    fn some(&self, pair: &Pair, step: u64, (at, len): (u64, u64)) -> Result<Vec<u8>> {
        let fits = at
            .checked_add(len)
            .is_some_and(|end| length(&pair.data, &self.data_path).is_ok_and(|there| end <= there));
        let len = usize::try_from(len).ok().filter(|_| fits);
        let mut bytes = Vec::new();
        let len = len.ok_or_else(|| self.damaged(step, at))?;
        bytes
            .try_reserve_exact(len)
            .map_err(|_| Error::limit(format!("no memory for what is said of step {step}")))?;
        bytes.resize(len, 0);
        self.read(pair, step, at, &mut bytes)?;
        Ok(bytes)
    }

    /// What is said of a step.
    ///
    /// # Errors
    /// `Format` if it is damaged; system errors.
    pub(crate) fn page(&self, entry: Recorded) -> Result<Page> {
        if entry.len > MOST_SAID {
            return Err(self.damaged(entry.step, entry.offset));
        }
        let bytes = self.some(&*self.pair()?, entry.step, (entry.offset, entry.len))?;
        let page = Page { entry, bytes };
        match page.head() {
            Some(_) => Ok(page),
            None => Err(self.damaged(entry.step, entry.offset)),
        }
    }

    /// Definitions, as bytes.
    ///
    /// # Errors
    /// As [`Track::page`].
    pub(crate) fn definitions(&self, step: u64, place: (u64, u64)) -> Result<Vec<u8>> {
        if place.1 > limits::MAX_DEFINITIONS_BYTES as u64 {
            return Err(self.damaged(step, place.0));
        }
        self.some(&*self.pair()?, step, place)
    }

    /// Opens the file of data, to read parts of blocks.
    pub(crate) fn blocks(&self) -> Result<Blocks<'_>> {
        Ok(Blocks { track: self, pair: self.pair()?, bytes: Vec::new() })
    }
}

fn length(file: &File, path: &std::path::Path) -> Result<u64> {
    file.metadata().map(|meta| meta.len()).map_err(|e| Error::io("look at", path, e))
}

/// Reads parts of blocks, into memory that is used again.
pub(crate) struct Blocks<'t> {
    track: &'t Track,
    pair: Arc<Pair>,
    bytes: Vec<u8>,
}

impl Blocks<'_> {
    /// What was read last, with what was read before it.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Bytes of a block of `len` bytes that begins at `offset`, from some of it to others, and how many were read before them. Chunks are
    /// read whole, and looked at with the checksums of the block.
    ///
    /// # Errors
    /// `Format` if they are not what was recorded; system errors.
    pub(crate) fn read(
        &mut self,
        step: u64,
        (offset, len): (u64, u64),
        sums: &[[u8; 8]],
        wanted: std::ops::Range<u64>,
    ) -> Result<(&[u8], usize)> {
        let first = wanted.start / form::CHUNK;
        let from = first * form::CHUNK;
        let to = len.min(wanted.end.next_multiple_of(form::CHUNK));
        let at = offset.saturating_add(from);
        let damaged = || self.track.damaged(step, at);
        let sized = |n: u64| usize::try_from(n).map_err(|_| damaged());
        let whole = sized(to.saturating_sub(from))?;
        let sums = sums.get(sized(first)?..sized(form::chunks(to))?).ok_or_else(damaged)?;
        let within = sized(wanted.start - from)?..sized(wanted.end - from)?;
        if self.bytes.capacity() < whole {
            // Pages that the system has cleared are not cleared again.
            self.bytes = vec![0; whole];
        }
        self.bytes.resize(whole, 0);
        self.track.chunks(&self.pair, step, at, &mut self.bytes, sums)?;
        self.bytes.truncate(within.end);
        let bytes = self.bytes.get(within.clone());
        Ok((bytes.ok_or_else(|| self.track.damaged(step, at))?, within.start))
    }
}
