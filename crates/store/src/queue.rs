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

use crate::buffer::{Buffer, Mapped, Pages, Repr};
use crate::cache::{cached, will_need};
use crate::commons::{Asked, Commons};
use crate::file::check_range;
use crate::flight::Flight;
use crate::segment::Segment;
use crate::uring::Ring;
use crate::{Engine, IoOptions, Source};
use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;
use stead_core::{Error, Result, limits};

#[path = "queue_reads.rs"]
mod reads;
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

    /// True if what is submitted, and is not in the page cache, is read whether somebody waits for it or not. Finds out whether
    /// the kernel has io_uring if nobody has asked before.
    pub fn reads_by_itself(&mut self, source: &Arc<dyn Source>) -> bool {
        source.file().is_some() && source.bytes().is_none() && self.depth > 1 && self.has_ring()
    }

    fn has_ring(&mut self) -> bool {
        if matches!(self.ring, Lazy::Untried) {
            self.ring =
                Ring::new(self.depth).map_or(Lazy::Unavailable, |r| Lazy::Ready(Box::new(r)));
        }
        matches!(self.ring, Lazy::Ready(_))
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
        let (source, offset) = self.piece(source, offset, len);
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

    /// Where the bytes lie. Blocks that processes have together are known by their place in the whole.
    fn piece<'s>(
        &self,
        source: &'s Arc<dyn Source>,
        offset: u64,
        len: usize,
    ) -> (&'s Arc<dyn Source>, u64) {
        if len == 0 || self.commons.is_some() {
            return (source, offset);
        }
        source.piece(offset, len as u64).unwrap_or((source, offset))
    }

    /// Asks the kernel to read an extent into the page cache, for whoever submits it later. Does nothing
    /// where that has no sense: for direct reads, for bytes in memory, for what is cached already, and for what another
    /// process has or reads.
    pub fn advise(&self, source: &Arc<dyn Source>, offset: u64, len: usize) {
        let (source, offset) = self.piece(source, offset, len);
        if let Some(file) = source.file()
            && !self.direct
            && len > 0
            && source.bytes().is_none()
            && !self.commons.as_ref().is_some_and(|commons| commons.has(offset, len))
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

    /// Frees spare buffers, all but those that extents which were submitted have still to be read into: the queue then has no
    /// more memory than those have, and what was taken from it.
    pub fn free_spare(&mut self) {
        let lacks = |s: &&Slot| {
            let waits = matches!(s.state, State::Waiting | State::Cached | State::Awaited);
            s.pages.is_none() && (waits || matches!(s.state, State::WaitingDirect(_)))
        };
        let lacking = self.slots.iter().filter(lacks).count();
        self.spare.truncate(lacking);
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
