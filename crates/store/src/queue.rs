//! Reads in flight: one worker's queue of extents.
//!
//! A worker submits the extents that it will want next and takes them back in the same order. Meanwhile
//! up to `depth` of them are read. How depends on where the bytes are:
//!
//! | bytes | engine `auto` |
//! |---|---|
//! | in memory already ([`Source::bytes`]) | lent, without a copy |
//! | in the page cache, 256 KiB or more, of a local file system | a view of a mapping of the file |
//! | in the page cache | `pread` when the extent is taken, so that it lands in a cache-warm buffer |
//! | on the device | io_uring when it is submitted; where the kernel has none, read-ahead is asked for |
//!
//! Whether an extent is cached is found by reading a byte of each end without waiting. `uring` skips the
//! question, `pread` uses neither io_uring nor mappings. Any failed or odd completion is read again with
//! [`Source::read_at`], which either succeeds or says what is wrong and where, so that all engines give
//! the same errors.
//!
//! ```
//! use std::sync::Arc;
//! use stead_store::{IoOptions, MemorySource, ReadQueue, Source};
//!
//! let source: Arc<dyn Source> = Arc::new(MemorySource::new("greeting", b"hello world"));
//! let mut queue = ReadQueue::new(&IoOptions::default())?;
//! queue.submit(7, &source, 6, 5)?;
//! while let Some(done) = queue.next()? {
//!     assert_eq!((done.tag, &done.buffer[..]), (7, &b"world"[..]));
//!     queue.recycle(done.buffer)?;
//! }
//! # Ok::<(), stead_core::Error>(())
//! ```

use crate::beside::open_direct;
use crate::buffer::{ALIGN, Buffer, Mapped, Pages, Repr, View};
use crate::commons::{Asked, Commons};
use crate::file::check_range;
use crate::mapped::Mapping;
use crate::segment::Segment;
use crate::uring::Ring;
use crate::{Engine, IoOptions, Source};
use rustix::fs::Advice;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, IoSliceMut};
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use stead_core::{Error, Result, limits};

#[path = "queue_common.rs"]
mod together;

use together::common;

/// What will be done with these options, for a plan: engine, queue depth, whether reads are direct.
pub fn describe(options: &IoOptions) -> Vec<(&'static str, String)> {
    let engine = match (options.engine, options.direct) {
        (Engine::Auto, false) => "mapped where cached, io_uring elsewhere",
        (Engine::Auto, true) | (Engine::Uring, _) => "io_uring",
        (Engine::Pread, _) => "pread",
    };
    let depth = options.depth.clamp(1, limits::MAX_QUEUE_DEPTH);
    let direct = if options.direct { "yes" } else { "no" };
    vec![("engine", engine.into()), ("queue depth", depth.to_string()), ("direct", direct.into())]
}

/// A finished read.
#[derive(Debug)]
pub struct Completed {
    /// As given to [`ReadQueue::submit`].
    pub tag: u64,
    /// The bytes: exactly as many as were asked for.
    pub buffer: Buffer,
}

/// Extents in flight, for one worker. See the module's documentation.
///
/// Memory: at most `depth` buffers in flight and as many spare ones. Dropping the queue waits for the
/// reads that the kernel still works on.
pub struct ReadQueue {
    /// In the order of submission.
    slots: VecDeque<Slot>,
    /// Number of the front slot; numbers are dense and name reads in the ring.
    first: u64,
    /// Of `slots`, how many hold a buffer or will get one from the kernel.
    flying: usize,
    depth: usize,
    engine: Engine,
    direct: bool,
    ring: Lazy,
    spare: Vec<Pages>,
    /// Where buffers lie, as long as there is room.
    segment: Option<Arc<Segment>>,
    /// Blocks that processes have together.
    commons: Option<Arc<Commons>>,
    /// The last file opened with O_DIRECT and the address of the source it belongs to. The source is
    /// held, so no other one can come to lie at that address.
    reopened: Option<Of<Arc<File>>>,
    /// The last file that was to be mapped, as above; `None` inside if it cannot or must not be.
    mapped: Option<Of<Option<Arc<Mapped>>>>,
}

/// Something that was made of a source.
type Of<T> = (Arc<dyn Source>, T);

/// Shorter extents are copied sooner than mapped.
const LEAST_MAPPED: usize = 256 << 10;

enum Lazy {
    Untried,
    Ready(Box<Ring>),
    Unavailable,
}

struct Slot {
    tag: u64,
    source: Arc<dyn Source>,
    offset: u64,
    len: usize,
    state: State,
    /// Where it is to be read if that is decided.
    pages: Option<Pages>,
}

enum State {
    /// Read when it is taken.
    Waiting,
    /// In the page cache: mapped or read when it is taken.
    Cached,
    /// Read through this descriptor when it is taken.
    WaitingDirect(Arc<File>),
    /// The kernel writes to the buffer: it must not be touched, moved or freed.
    Flying(Flight),
    /// The buffer holds the bytes.
    Landed(Flight),
    /// The kernel gave an error, or less than there should be.
    Failed(Flight, i32),
    /// It was taken before others that were submitted earlier; the slot keeps their numbers dense.
    Taken,
    /// Another process has read it.
    Lent(Buffer),
    /// Another process reads it.
    Awaited,
    /// It could not be read.
    Lost(Error),
}

/// A read that may come in pieces, aligned outwards if it is direct.
struct Flight {
    pages: Pages,
    /// Where in `pages` the read lands. A byte has the same place within a page in the buffer and in the
    /// file: processors that copy strings by microcode are four times slower otherwise (AMD Zen 3: from
    /// page offset 4095 to 0).
    pad: usize,
    /// The O_DIRECT descriptor; the source's own if `None`.
    direct: Option<Arc<File>>,
    /// Where the read begins: at or before the extent.
    start: u64,
    /// Bytes from `start` to ask for.
    span: usize,
    /// Bytes from `start` that must arrive; less than `span` where the file ends.
    needed: usize,
    /// Bytes to keep; the next piece goes here.
    done: usize,
    /// Bytes that had arrived, for telling a short read from the end of the file.
    reached: usize,
}

#[derive(PartialEq)]
enum Piece {
    More,
    Whole,
    Ended,
}

impl Flight {
    fn new(pages: Pages, direct: Option<Arc<File>>, offset: u64, len: usize) -> Flight {
        let within = (offset % ALIGN as u64) as usize;
        let (pad, skip) = if direct.is_some() { (0, within) } else { (within, 0) };
        let needed = skip + len;
        let span = if direct.is_some() { needed.next_multiple_of(ALIGN) } else { needed };
        let mut flight = Flight {
            pages,
            pad,
            direct,
            start: offset - skip as u64,
            span,
            needed,
            done: 0,
            reached: 0,
        };
        flight.pages.grow(pad + span);
        flight
    }

    /// Where what has not been read yet will land.
    fn target(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_slice()[self.pad + self.done..self.pad + self.span]
    }

    fn arrived(&mut self, n: usize) -> Piece {
        let total = self.done + n;
        if total >= self.needed {
            return Piece::Whole;
        }
        if n == 0 || total <= self.reached {
            return Piece::Ended;
        }
        self.reached = total;
        // A direct read goes on at a multiple of the block size.
        self.done = if self.direct.is_some() { total - total % ALIGN } else { total };
        Piece::More
    }

    /// The `len` bytes that were asked for.
    fn bytes(&self, len: usize) -> &[u8] {
        &self.pages.as_slice()[self.skip(len)..][..len]
    }

    fn skip(&self, len: usize) -> usize {
        self.pad + self.needed - len
    }

    fn into_buffer(self, len: usize) -> Buffer {
        let skip = self.skip(len);
        Buffer(Repr::Owned { pages: self.pages, skip, len })
    }
}

impl ReadQueue {
    /// A queue. `depth` is kept within 1 and [`limits::MAX_QUEUE_DEPTH`].
    ///
    /// # Errors
    /// `Usage` if io_uring was asked for by name and the kernel does not offer it.
    pub fn new(options: &IoOptions) -> Result<Self> {
        let depth = options.depth.clamp(1, limits::MAX_QUEUE_DEPTH);
        let ring = match options.engine {
            Engine::Auto => Lazy::Untried,
            Engine::Pread => Lazy::Unavailable,
            Engine::Uring => Lazy::Ready(Box::new(Ring::new(depth).map_err(|e| {
                Error::usage(format!("io_uring cannot be used here: {e}")).with_hint(
                    "the kernel or the container forbids it; use the engine 'auto' or 'pread'",
                )
            })?)),
        };
        Ok(ReadQueue {
            slots: VecDeque::new(),
            first: 0,
            flying: 0,
            depth,
            engine: options.engine,
            direct: options.direct,
            ring,
            spare: Vec::new(),
            segment: None,
            commons: None,
            reopened: None,
            mapped: None,
        })
    }

    /// As [`ReadQueue::new`], with buffers in memory that other processes may look at, as long as there is room.
    ///
    /// # Errors
    /// As [`ReadQueue::new`].
    pub fn new_in(options: &IoOptions, segment: Option<Arc<Segment>>) -> Result<Self> {
        let mut queue = Self::new(options)?;
        queue.segment = segment;
        Ok(queue)
    }

    /// Extents submitted and not yet taken.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// True if nothing was submitted that has not been taken.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// True if `depth` extents are in the queue. More may be submitted; they are read when taken.
    pub fn is_full(&self) -> bool {
        self.slots.len() >= self.depth
    }

    /// True if the extent that was submitted last is being read at this moment, and will be there without
    /// anybody asking for it.
    pub fn reads_ahead(&self) -> bool {
        let busy = |s: &Slot| matches!(s.state, State::Flying(_) | State::Landed(_));
        self.slots.back().is_some_and(busy)
    }

    /// The bytes of the extent at `index` of the queue if a read has brought them already. Waits for nothing.
    pub fn landed(&self, index: usize) -> Option<&[u8]> {
        match self.slots.get(index) {
            Some(Slot { state: State::Landed(flight), len, .. }) => Some(flight.bytes(*len)),
            _ => None,
        }
    }

    /// Waits until another read has landed. False if the first extent needs no waiting for.
    ///
    /// # Errors
    /// `Io` if the kernel's queue fails.
    pub fn wait(&mut self) -> Result<bool> {
        let waits = matches!(self.slots.front(), Some(Slot { state: State::Flying(_), .. }));
        if waits {
            self.harvest(true)?;
        }
        Ok(waits)
    }

    /// Takes note of the reads that have landed by now. Waits for nothing.
    ///
    /// # Errors
    /// `Internal` for a defect.
    pub fn poll(&mut self) -> Result<()> {
        if self.flying > 0 { self.harvest(false) } else { Ok(()) }
    }

    /// Queues the read of `len` bytes at `offset`.
    ///
    /// # Errors
    /// `Internal` for an extent outside the source; `Usage` if O_DIRECT was asked for and the file system
    /// does not offer it. Errors of the read itself come from [`ReadQueue::next`].
    pub fn submit(
        &mut self,
        tag: u64,
        source: &Arc<dyn Source>,
        offset: u64,
        len: usize,
    ) -> Result<()> {
        check_range(source.path(), offset, len, source.len())?;
        let mut pages = None;
        let asked = self.commons.as_ref().map(|commons| commons.ask(offset, len));
        let state = match asked {
            Some(Asked::Ready(berth)) => State::Lent(common(berth, len)),
            Some(Asked::Awaited) => State::Awaited,
            Some(Asked::Read(berth)) => {
                pages = Some(Pages::Common(berth));
                self.start(source, offset, len, &mut pages)?
            }
            Some(Asked::Alone) | None => self.start(source, offset, len, &mut pages)?,
        };
        self.slots.push_back(Slot { tag, source: source.clone(), offset, len, state, pages });
        Ok(())
    }

    /// Asks the kernel to read an extent into the page cache, for whoever submits it later. Does nothing
    /// where that has no sense: for direct reads, for bytes in memory, and for what is cached already.
    pub fn advise(&self, source: &Arc<dyn Source>, offset: u64, len: usize) {
        if let Some(file) = source.file()
            && !self.direct
            && len > 0
            && source.bytes().is_none()
            && !cached(file, offset, len)
        {
            will_need(file, offset, len);
        }
    }

    /// The next extent in the order of submission; `None` if there is none. Waits for it.
    ///
    /// # Errors
    /// Those of [`Source::read_at`]. The other extents can still be taken.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Completed>> {
        if matches!(self.slots.front(), Some(Slot { state: State::Awaited, .. })) {
            // Nobody waits for others who wait for it.
            self.settle_claims()?;
        }
        while self.wait()? {}
        self.take(0).transpose().map_err(|(_, error)| error)
    }

    /// As [`ReadQueue::next`], but the first extent that has landed, whatever was submitted before it: one that the device
    /// keeps for long does not bar the others. What goes wrong with an extent comes with its tag.
    ///
    /// # Errors
    /// `Io` if the kernel's queue fails.
    pub fn next_landed(&mut self) -> Result<Option<(u64, Result<Buffer>)>> {
        let there = |s: &Slot| {
            matches!(s.state, State::Landed(_) | State::Failed(..) | State::Cached)
                || matches!(s.state, State::Lent(_) | State::Lost(_))
        };
        let mut index = 0;
        while let Some(first) = self.slots.front() {
            let (flies, awaited) =
                (matches!(first.state, State::Flying(_)), matches!(first.state, State::Awaited));
            if !flies && !awaited {
                break;
            }
            if let Some(landed) = self.slots.iter().position(there) {
                index = landed;
                break;
            }
            if awaited {
                // Nobody waits for others who wait for it.
                self.settle_claims()?;
                index = self.slots.iter().position(there).unwrap_or(0);
                break;
            }
            self.harvest(true)?;
        }
        let taken = self.take(index);
        Ok(taken.map(|taken| match taken {
            Ok(done) => (done.tag, Ok(done.buffer)),
            Err((tag, error)) => (tag, Err(error)),
        }))
    }

    /// Takes an extent that is not in flight out of the queue.
    fn take(&mut self, index: usize) -> Option<std::result::Result<Completed, (u64, Error)>> {
        let slot = self.slots.get_mut(index)?;
        let (tag, source, offset, len) = (slot.tag, slot.source.clone(), slot.offset, slot.len);
        let state = std::mem::replace(&mut slot.state, State::Taken);
        let pages = slot.pages.take();
        let is_taken = |s: &Slot| matches!(s.state, State::Taken);
        while self.slots.front().is_some_and(is_taken) {
            self.slots.pop_front();
            self.first += 1;
        }
        while self.slots.back().is_some_and(is_taken) {
            self.slots.pop_back();
        }
        let buffer = self.finish(state, source, offset, len, pages);
        Some(buffer.map(|buffer| Completed { tag, buffer }).map_err(|error| (tag, error)))
    }

    /// The bytes of an extent that was taken.
    fn finish(
        &mut self,
        state: State,
        source: Arc<dyn Source>,
        offset: u64,
        len: usize,
        pages: Option<Pages>,
    ) -> Result<Buffer> {
        let flight = match state {
            State::Waiting if source.bytes().is_some() || len == 0 => {
                // The range lies within the bytes, so it fits usize.
                let lent = Repr::Lent { source, start: offset as usize, len };
                return Ok(Buffer(lent));
            }
            State::Waiting if let Some(lent) = source.lend(offset, len) => {
                let buffer = lent?;
                if buffer.len() != len {
                    let error = Error::internal("a source has lent another number of bytes");
                    return Err(error.at_path(source.path()).at_offset(offset));
                }
                return Ok(buffer);
            }
            State::Cached if let Some(view) = self.view(&source, offset, len) => {
                return Ok(Buffer(Repr::Mapped(view)));
            }
            State::Lent(buffer) => return Ok(buffer),
            State::Lost(error) => return Err(error),
            State::Awaited => return self.await_other(&source, offset, len),
            state => self.bring(&source, offset, len, state, pages)?,
        };
        Ok(flight.into_buffer(len))
    }

    /// Reads what has not been read yet.
    fn bring(
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

    /// Gives a buffer back, to be read into again.
    ///
    /// # Errors
    /// Those of [`Buffer::check`].
    pub fn recycle(&mut self, buffer: Buffer) -> Result<()> {
        buffer.check()?;
        if let Repr::Owned { pages, .. } = buffer.0 {
            self.keep(pages);
        }
        Ok(())
    }

    /// Frees spare buffers, all but so many.
    pub fn keep_spare(&mut self, most: usize) {
        self.spare.truncate(most);
    }

    /// An extent where it lies; `None` if it is better read.
    fn view(&mut self, source: &Arc<dyn Source>, offset: u64, len: usize) -> Option<View> {
        if self.engine != Engine::Auto || len < LEAST_MAPPED {
            return None;
        }
        if !self.mapped.as_ref().is_some_and(|(known, _)| Arc::ptr_eq(known, source)) {
            let mapping = Mapping::new(source.file()?, source.len()).map(Arc::new);
            let mapped =
                mapping.map(|mapping| Arc::new(Mapped { mapping, source: source.clone() }));
            self.mapped = Some((source.clone(), mapped));
        }
        // Once it has lost bytes it is of no use any more: reads say what is wrong and where.
        let of = self.mapped.as_ref()?.1.as_ref().filter(|m| !m.mapping.lost())?.clone();
        let start = usize::try_from(offset).ok()?;
        Some(View { of, start, len })
    }

    fn keep(&mut self, pages: Pages) {
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

    fn spare(&mut self) -> Pages {
        let kept = self.spare.pop();
        let taken = || self.segment.as_ref()?.take().map(Pages::Shared);
        kept.or_else(taken).unwrap_or_default()
    }

    /// Decides how an extent is read and begins to.
    fn start(
        &mut self,
        source: &Arc<dyn Source>,
        offset: u64,
        len: usize,
        place: &mut Option<Pages>,
    ) -> Result<State> {
        let Some(file) = source.file().filter(|_| len > 0 && source.bytes().is_none()) else {
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
        if matches!(self.ring, Lazy::Untried) {
            self.ring =
                Ring::new(self.depth).map_or(Lazy::Unavailable, |r| Lazy::Ready(Box::new(r)));
        }
        let number = self.first + self.slots.len() as u64;
        let pages = place.take().unwrap_or_else(|| self.spare());
        let Lazy::Ready(ring) = &mut self.ring else {
            if pages.is_claimed() {
                *place = Some(pages);
            } else {
                self.keep(pages);
            }
            if direct.is_none() {
                will_need(file, offset, len);
            }
            return Ok(wait(direct));
        };
        if direct.is_none() {
            // Or the reads in flight, each a part of the file, look random to the kernel, and it reads little
            // at a time.
            will_need(file, offset, len);
        }
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
    fn harvest(&mut self, wait: bool) -> Result<()> {
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
    fn reopen(&mut self, source: &Arc<dyn Source>, file: &File) -> Result<Arc<File>> {
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

/// Reads piece by piece. `Ok(false)` if the file ends too early; the error number otherwise.
fn read_direct(flight: &mut Flight) -> std::result::Result<bool, i32> {
    loop {
        let at = flight.start + flight.done as u64;
        let Some(file) = flight.direct.clone() else { return Ok(false) };
        let n = match file.read_at(flight.target(), at) {
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e.raw_os_error().unwrap_or(0)),
        };
        match flight.arrived(n) {
            Piece::Whole => return Ok(true),
            Piece::Ended => return Ok(false),
            Piece::More => {}
        }
    }
}

/// True if the first and the last byte of an extent can be had without waiting for a device.
pub(crate) fn cached(file: &File, offset: u64, len: usize) -> bool {
    let there = |at: u64| {
        // A read that does not wait begins to read ahead, a page at a time, where there is nothing.
        if resident(file, at) == Some(false) {
            return false;
        }
        let mut byte = [0];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        let mut target = [IoSliceMut::new(&mut byte)];
        matches!(rustix::io::preadv2(file.as_fd(), &mut target, at, flags), Ok(1))
    };
    // The end first: files are read and forgotten from their start on.
    there(offset + (len as u64).saturating_sub(1)) && there(offset)
}

/// Takes a file out of the page cache, as far as nobody uses it; for measuring.
pub fn evict(file: &File) {
    // Only a hint.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// True if the page of a byte is in the page cache, or on its way there; nothing is read. `None` where the system does not
/// tell: before Linux 6.5, and about files of others that we may not write to.
pub(crate) fn resident(file: &File, at: u64) -> Option<bool> {
    #[repr(C)]
    struct Part {
        offset: u64,
        len: u64,
    }
    // The same number on all processors; `libc` has it for some.
    const CACHESTAT: libc::c_long = 451;
    // Pages: cached, dirty, being written back, evicted, recently evicted.
    let (part, mut pages) = (Part { offset: at, len: 1 }, [0u64; 5]);
    // SAFETY: the descriptor is open, and both are as the system has them (`struct cachestat_range`, `struct cachestat`).
    let done =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const part, &raw mut pages, 0) };
    (done == 0).then_some(pages[0] > 0)
}

/// Asks for read-ahead.
pub(crate) fn will_need(file: &File, offset: u64, len: usize) {
    // Only a hint: what it does not bring, pread does.
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(len as u64), Advice::WillNeed);
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
