//! Parts of a file in the page cache, lent to whoever wants them.

use crate::buffer::{Buffer, Mapped, Repr, View};
use crate::mapped::{Mapping, PIECE, Populated};
use crate::queue::{cached, resident, will_need};
use crate::stream::Stream;
use crate::stripe::{self, Apart, STRIPES};
use crate::{Engine, IoOptions, Source};
use rustix::fs::Advice;
use std::fs::File;
use std::num::NonZeroU64;
use std::sync::{Arc, OnceLock};
use stead_core::{Error, Kind, Result};

/// A file of a local file system, mapped as a whole, for views that may outlive any queue.
///
/// ```
/// use std::sync::Arc;
/// use stead_store::{FileSource, IoOptions, Lender, Source};
///
/// # let dir = tempfile::tempdir().unwrap();
/// # let path = dir.path().join("f");
/// std::fs::write(&path, b"hello world")?;
/// let source: Arc<dyn Source> = Arc::new(FileSource::open(&path).unwrap());
/// if let Some(lender) = Lender::new(&source, &IoOptions::default()) {
///     assert_eq!(&lender.lend(6, 5).unwrap()[..], b"world");
/// }
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Lender {
    mapping: Arc<Mapping>,
    source: Arc<dyn Source>,
    /// What views hold of these two: another reference for other threads, or each view would make them wait.
    lent: Box<[Apart<Arc<Mapped>>; STRIPES]>,
    /// Faults read huge pages.
    whole: bool,
    stream: Stream,
}

/// Parts that are smaller are read by themselves, not with the huge page around them.
const WORTH_WHOLE: usize = PIECE / 2;

impl Lender {
    /// `None` where bytes are better read: on network file systems, with an engine that was asked for by name, for
    /// direct reads, and for sources that are no files.
    pub fn new(source: &Arc<dyn Source>, options: &IoOptions) -> Option<Lender> {
        if options.direct || options.engine != Engine::Auto {
            return None;
        }
        let file = source.file()?;
        let mapping = Mapping::new(file, source.len()).map(Arc::new)?;
        // Only then can it be seen what is there without bringing small pages.
        let tells = resident(file, 0).is_some();
        let whole = tells && has_large_folios(file) && mapping.read_whole_pieces();
        let lent = |_| Apart(Arc::new(Mapped { mapping: mapping.clone(), source: source.clone() }));
        let lent = Box::new(std::array::from_fn(lent));
        Some(Lender { mapping, source: source.clone(), lent, whole, stream: Stream::default() })
    }

    /// If [`Lender::bring`] reads huge pages: so many bytes or more are best read by that alone. Each thread that waits has
    /// 2 MiB in flight then, in one piece, and [`Lender::advise`] does nothing.
    pub fn least_whole(&self) -> Option<u64> {
        self.whole.then_some(WORTH_WHOLE as u64)
    }

    /// A view; the pages that are not cached come when they are looked at. `None` if it is not all in the file, or
    /// bytes of the file went away, so that a read will say which.
    pub fn lend(&self, offset: u64, len: usize) -> Option<Buffer> {
        if self.mapping.lost() || offset.checked_add(len as u64)? > self.source.len() {
            return None;
        }
        let start = usize::try_from(offset).ok()?;
        if let Some(piece) = self.stream.next(start, len) {
            self.enter(piece);
        }
        let of = self.lent[stripe::mine()].0.clone();
        Some(Buffer(Repr::Mapped(View { of, start, len })))
    }

    /// Enters a piece into the mapping, if it is in the page cache.
    fn enter(&self, piece: usize) {
        let from = piece.saturating_mul(PIECE) as u64;
        let len = self.source.len().saturating_sub(from).min(PIECE as u64) as usize;
        if len > 0 && self.cached(from, len) {
            self.mapping.touch(piece * PIECE, len);
        }
    }

    /// Asks the kernel to read these bytes into the page cache. Waits for nothing.
    pub fn advise(&self, offset: u64, len: usize) {
        if let Some(file) = self.source.file()
            && len > 0
            && !(self.whole && len >= WORTH_WHOLE)
        {
            will_need(file, offset, len);
        }
    }

    /// Waits until these bytes are in the page cache, and enters them into the mapping, so that whoever looks at them
    /// does not have to wait or to fault. Nothing is copied.
    ///
    /// # Errors
    /// Whatever a read of some of them gives; `Io` if reads have them, and the page cache does not.
    pub fn bring(&self, offset: u64, len: usize) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        let first = self.mapping.populate(start, len);
        if first == Populated::There {
            return Ok(());
        }
        if first == Populated::Lost {
            // Reads bring smaller pieces, of which fewer lie beside what is bad.
            self.forget(offset, len);
        }
        let mut piece = vec![0; len.min(1 << 16)];
        let end = offset.saturating_add(len as u64);
        let mut at = offset;
        while at < end {
            let n = piece.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            self.source.read_at(at, &mut piece[..n])?;
            at += n as u64;
        }
        if first == Populated::Lost && self.mapping.populate(start, len) == Populated::Lost {
            let error = Error::new(Kind::Io, "the page cache cannot have bytes that reads have");
            return Err(error.at_path(self.source.path()).at_offset(offset));
        }
        Ok(())
    }

    /// Takes the pieces that these bytes lie in out of the page cache, as far as nobody uses them.
    fn forget(&self, offset: u64, len: usize) {
        const WHOLE: u64 = PIECE as u64;
        let from = offset - offset % WHOLE;
        let to = offset.saturating_add(len as u64).div_ceil(WHOLE).saturating_mul(WHOLE);
        if let Some(file) = self.source.file() {
            // Only a hint.
            let _ = rustix::fs::fadvise(file, from, NonZeroU64::new(to - from), Advice::DontNeed);
        }
    }

    /// Takes bytes out of the mapping, not out of the page cache: whoever looks at them faults.
    pub fn release(&self, offset: u64, len: usize) {
        if let Ok(start) = usize::try_from(offset) {
            self.mapping.release(start, len);
        }
    }

    /// True if the first and the last of these bytes are in the page cache.
    pub fn cached(&self, offset: u64, len: usize) -> bool {
        if !self.whole {
            return self.source.file().is_some_and(|file| cached(file, offset, len));
        }
        // Even a read that does not wait has the kernel read ahead, in smaller pages.
        let last = offset.saturating_add((len as u64).saturating_sub(1));
        let holds = |at| usize::try_from(at).is_ok_and(|at| self.mapping.holds(at));
        holds(last) && holds(offset)
    }
}

/// True if files there can have huge pages in the page cache: ext4 since Linux 6.16, XFS for longer, but before that
/// the system does not say with one voice whose files it tells about.
fn has_large_folios(file: &File) -> bool {
    static LINUX: OnceLock<(u32, u32)> = OnceLock::new();
    let linux = *LINUX.get_or_init(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        let mut numbers =
            release.split(|c: char| !c.is_ascii_digit()).map(|n| n.parse().unwrap_or(0));
        (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
    });
    let magic = rustix::fs::fstatfs(file).map_or(0, |s| s.f_type as u64 & 0xFFFF_FFFF);
    match magic {
        0x5846_5342 | 0xEF53 => linux >= (6, 16),
        _ => false,
    }
}
