//! How the extents of a queue are read: by io_uring, by `pread`, or where they lie in the page cache.

use super::{Lazy, ReadQueue, Slot, State};
use crate::beside::open_direct;
use crate::buffer::{Mapped, Pages, View};
use crate::cache::{cached, will_need};
use crate::flight::{Flight, Piece, read_direct};
use crate::mapped::Mapping;
use crate::process::pause;
use crate::{Engine, Source};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, TryLockError, Weak};
use stead_core::{Error, Result};

/// Shorter extents are copied sooner than mapped.
const LEAST_MAPPED: usize = 256 << 10;

impl ReadQueue {
    /// Reads what has not been read yet.
    pub(super) fn bring(
        &mut self,
        source: &Arc<dyn Source>,
        offset: u64,
        len: usize,
        state: State,
        pages: Option<Pages>,
    ) -> Result<Flight> {
        let mut flight = match state {
            State::WaitingDirect(file) => {
                let pages = pages.unwrap_or_else(|| self.spare());
                let mut flight = Flight::new(pages, Some(file), offset, len);
                match read_direct(&mut flight) {
                    Ok(true) => flight,
                    Ok(false) => self.again(source, offset, len, flight, 0)?,
                    Err(errno) => self.again(source, offset, len, flight, errno)?,
                }
            }
            State::Landed(flight) => {
                self.flying -= 1;
                flight
            }
            State::Failed(flight, errno) => {
                self.flying -= 1;
                self.again(source, offset, len, flight, errno)?
            }
            State::Flying(_) | State::Taken => {
                return Err(Error::internal("took a read that is still in flight"));
            }
            _ => {
                let pages = pages.unwrap_or_else(|| self.spare());
                let mut flight = Flight::new(pages, None, offset, len);
                self.read(source, offset, &mut flight)?;
                flight
            }
        };
        flight.pages.publish();
        Ok(flight)
    }

    /// An extent where it lies; `None` if it is better read.
    pub(super) fn view(
        &mut self,
        source: &Arc<dyn Source>,
        offset: u64,
        len: usize,
    ) -> Option<View> {
        if self.engine != Engine::Auto || len < LEAST_MAPPED {
            return None;
        }
        if !self.mapped.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, source)) {
            self.mapped = Some((source.clone(), mapped(source)));
        }
        // Once it has lost bytes it is of no use any more: reads say what is wrong and where.
        let of = self.mapped.as_ref()?.1.as_ref().filter(|m| !m.mapping.lost())?.clone();
        let start = usize::try_from(offset).ok()?;
        Some(View { of, start, len })
    }

    pub(super) fn keep(&mut self, pages: Pages) {
        let useful = match &pages {
            // The segment had no room; it may have some now.
            Pages::Own(_) => self.segment.is_none(),
            Pages::Shared(slot) => !slot.is_retired(),
            Pages::Common(_) => false,
        };
        if useful && self.spare.len() < self.depth {
            self.spare.push(pages);
        }
    }

    pub(super) fn spare(&mut self) -> Pages {
        let kept = self.spare.pop();
        let taken = || self.segment.as_ref()?.take().map(Pages::Shared);
        kept.or_else(taken).unwrap_or_default()
    }

    /// Decides how an extent is read and begins to.
    pub(super) fn start(
        &mut self,
        source: &Arc<dyn Source>,
        offset: u64,
        len: usize,
        place: &mut Option<Pages>,
    ) -> Result<State> {
        let Some(file) = source.file().filter(|_| len > 0 && source.bytes().is_none()) else {
            if len > 0 && self.depth > 1 {
                source.ahead(offset, len);
            }
            return Ok(State::Waiting);
        };
        let direct = if self.direct { Some(self.reopen(source, file)?) } else { None };
        let wait = |direct: Option<Arc<File>>| direct.map_or(State::Waiting, State::WaitingDirect);
        let ask = direct.is_some() || self.engine == Engine::Uring;
        if !ask && cached(file, offset, len) {
            return Ok(State::Cached);
        }
        if self.flying >= self.depth || self.depth == 1 {
            return Ok(wait(direct));
        }
        if direct.is_none() {
            // Or the reads in flight, each a part of the file, look random to the kernel, and it reads little
            // at a time.
            will_need(file, offset, len);
        }
        if !self.has_ring() {
            return Ok(wait(direct));
        }
        let number = self.first + self.slots.len() as u64;
        let pages = place.take().unwrap_or_else(|| self.spare());
        let Lazy::Ready(ring) = &mut self.ring else { return Ok(wait(direct)) };
        let mut flight = Flight::new(pages, direct, offset, len);
        let raw = flight.direct.as_ref().map_or(file.as_raw_fd(), |d| d.as_raw_fd());
        let start = flight.start;
        let target = flight.target();
        // SAFETY: the slot keeps the buffer untouched and the source (hence the descriptor) alive until
        // the completion with this number was harvested; `drop` waits for that too.
        unsafe { ring.read(number, raw, target, start) };
        self.flying += 1;
        Ok(State::Flying(flight))
    }

    /// Looks at all completions that are there, after it has waited for one if `wait` is set.
    pub(super) fn harvest(&mut self, wait: bool) -> Result<()> {
        let Lazy::Ready(ring) = &mut self.ring else {
            return Err(Error::internal("a read is in flight without a ring"));
        };
        if wait {
            ring.wait().map_err(|e| Error::io("wait for reads of", "io_uring", e))?;
        }
        while let Some((number, result)) = ring.completion() {
            let slot = number
                .checked_sub(self.first)
                .and_then(|i| usize::try_from(i).ok())
                .and_then(|i| self.slots.get_mut(i));
            let Some(slot) = slot else {
                return Err(Error::internal("io_uring completed a read that nobody asked for"));
            };
            let State::Flying(mut flight) = std::mem::replace(&mut slot.state, State::Waiting)
            else {
                return Err(Error::internal("io_uring completed a read twice"));
            };
            slot.state = match usize::try_from(result) {
                Err(_) => State::Failed(flight, -result),
                Ok(n) => match flight.arrived(n) {
                    Piece::Whole => {
                        flight.pages.publish();
                        State::Landed(flight)
                    }
                    Piece::Ended => State::Failed(flight, 0),
                    Piece::More => {
                        let file = flight.direct.as_deref().or(slot.source.file());
                        match file.map(|f| f.as_raw_fd()) {
                            None => State::Failed(flight, 0),
                            Some(raw) => {
                                let at = flight.start + flight.done as u64;
                                let target = flight.target();
                                // SAFETY: as in `start`.
                                unsafe { ring.read(number, raw, target, at) };
                                State::Flying(flight)
                            }
                        }
                    }
                },
            };
        }
        Ok(())
    }

    /// Reads an extent that an engine could not.
    fn again(
        &mut self,
        source: &Arc<dyn Source>,
        offset: u64,
        len: usize,
        flight: Flight,
        errno: i32,
    ) -> Result<Flight> {
        if flight.direct.is_some() && errno == rustix::io::Errno::INVAL.raw_os_error() {
            return Err(refused(source).at_offset(offset));
        }
        let mut flight = Flight::new(flight.pages, None, offset, len);
        self.read(source, offset, &mut flight)?;
        Ok(flight)
    }

    fn read(&mut self, source: &Arc<dyn Source>, offset: u64, flight: &mut Flight) -> Result<()> {
        let result = source.read_at(offset, flight.target());
        if result.is_err() {
            let pages = std::mem::take(&mut flight.pages);
            self.keep(pages);
        }
        result
    }

    /// The descriptor of the same file with O_DIRECT.
    pub(super) fn reopen(&mut self, source: &Arc<dyn Source>, file: &File) -> Result<Arc<File>> {
        if let Some((known, direct)) = &self.reopened
            && Arc::ptr_eq(known, source)
        {
            return Ok(direct.clone());
        }
        let direct = open_direct(file).map_err(|e| {
            if e == rustix::io::Errno::INVAL {
                refused(source)
            } else {
                Error::io("open for direct reads", source.path(), e.into())
            }
        })?;
        let direct = Arc::new(direct);
        self.reopened = Some((source.clone(), direct.clone()));
        Ok(direct)
    }
}

/// What queues of this process have mapped: one mapping of a source for all.
pub(super) static MAPPED: Mutex<Vec<Weak<Mapped>>> = Mutex::new(Vec::new());

/// A lock that a thread had when its process was forked stays taken in the child. No thread has this one for longer than it takes
/// to go over a list.
const TRIES: usize = 3;

/// The lock of [`MAPPED`]; without it each queue has a mapping of its own.
fn all_mapped() -> Option<MutexGuard<'static, Vec<Weak<Mapped>>>> {
    for again in 0..TRIES {
        if again > 0 {
            pause();
        }
        match MAPPED.try_lock() {
            Ok(all) => return Some(all),
            Err(TryLockError::Poisoned(all)) => return Some(all.into_inner()),
            Err(TryLockError::WouldBlock) => {}
        }
    }
    None
}

/// The mapping of a source; `None` if it cannot or must not be.
fn mapped(source: &Arc<dyn Source>) -> Option<Arc<Mapped>> {
    let file = source.file()?;
    if let Some(known) = known(source, None) {
        return Some(known);
    }
    // Not under the lock, as the file system may have to be waited for.
    let mapping = Arc::new(Mapping::new(file, source.len())?.of_queues());
    let mapped = Arc::new(Mapped { mapping, source: source.clone() });
    // Another queue may have been first.
    known(source, Some(&mapped)).or(Some(mapped))
}

/// What others have mapped of a source. They find `new` from now on if there is nothing.
fn known(source: &Arc<dyn Source>, new: Option<&Arc<Mapped>>) -> Option<Arc<Mapped>> {
    let mut all = all_mapped()?;
    let there: Vec<Arc<Mapped>> = all.iter().filter_map(Weak::upgrade).collect();
    let known = there.iter().find(|m| Arc::ptr_eq(&m.source, source)).cloned();
    if let (None, Some(new)) = (&known, new) {
        all.retain(|m| m.strong_count() > 0);
        all.push(Arc::downgrade(new));
    }
    drop(all);
    // Perhaps the last who have one: it takes its time to let go of that, so without the lock.
    drop(there);
    known
}

impl Drop for ReadQueue {
    fn drop(&mut self) {
        let flying = |s: &Slot| matches!(s.state, State::Flying(_));
        while self.slots.iter().any(flying) {
            if let Lazy::Ready(ring) = &mut self.ring {
                ring.cancel();
            }
            if self.harvest(true).is_err() {
                // The kernel may still write to these buffers, so they must never be freed.
                std::mem::forget(std::mem::take(&mut self.slots));
            }
        }
    }
}

fn refused(source: &Arc<dyn Source>) -> Error {
    Error::usage("the file system does not offer direct reads (O_DIRECT) of this file")
        .at_path(source.path())
        .with_hint("run without direct I/O")
}
