//! Parts of a file in the page cache, lent to whoever wants them.

use crate::beside::{self, Stopped};
use crate::buffer::{Buffer, Mapped, Repr, View};
use crate::cache::{cached, resident, will_need};
use crate::copied::{Copied, LEAST_COPIED, MOST_COPIED, MOST_COPIED_SMALL};
use crate::mapped::{MOST_ENTERED, Mapping, PIECE, Populated};
use crate::stray::Strays;
use crate::stream::{Step, Stream};
use crate::stripe::{self, Apart, STRIPES};
use crate::{Engine, IoOptions, Source};
use rustix::fs::Advice;
use std::fs::File;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
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
    /// The system says what the page cache has of the file.
    tells: bool,
    /// Faults read huge pages.
    whole: bool,
    stream: Stream,
    strays: Strays,
    /// Small parts that are asked for in no order are better copied.
    copies: AtomicBool,
    /// The last piece that was to be entered lies in small pages.
    small: AtomicBool,
}

/// Parts that are smaller are read by themselves, not with the huge page around them.
const WORTH_WHOLE: usize = PIECE / 2;
/// Where pieces lie in small pages, one of so many is looked at to see whether they still do: that is not for nothing.
const STILL_SMALL: usize = 16;
/// Smaller files may be resident as a whole, whatever is asked for.
const WORTH_COPIES: u64 = 64 << 20;

impl Lender {
    /// `None` where bytes are better read: on network file systems, with an engine that was asked for by name, for
    /// direct reads, and for sources that are no files.
    pub fn new(source: &Arc<dyn Source>, options: &IoOptions) -> Option<Lender> {
        if options.direct || options.engine != Engine::Auto {
            return None;
        }
        let file = source.file()?;
        let mut mapping = Mapping::new(file, source.len())?;
        // Only then can it be seen what is there without bringing small pages.
        let tells = resident(file, 0).is_some();
        let whole = tells && has_large_folios(file) && mapping.read_whole_pieces();
        let mapping = Arc::new(mapping);
        let lent = |_| Apart(Arc::new(Mapped { mapping: mapping.clone(), source: source.clone() }));
        let lent = Box::new(std::array::from_fn(lent));
        Some(Lender {
            mapping,
            source: source.clone(),
            lent,
            tells,
            whole,
            stream: Stream::default(),
            strays: Strays::default(),
            copies: AtomicBool::new(source.len() > WORTH_COPIES),
            small: AtomicBool::new(false),
        })
    }

    /// If [`Lender::bring`] reads huge pages: so many bytes or more are best read by that alone. Each thread that waits has
    /// 2 MiB in flight then, in one piece, and [`Lender::advise`] does nothing.
    pub fn least_whole(&self) -> Option<u64> {
        self.whole.then_some(WORTH_WHOLE as u64)
    }

    /// A view; the pages that are not cached come when they are looked at. Small parts of large files are copies if they
    /// are in no order or in pages of 4 KiB: that is faster then, and a thread has no more than 4 MiB of them. `None` if it
    /// is not all in the file, or bytes of the file went away, so that a read will say which.
    pub fn lend(&self, offset: u64, len: usize) -> Option<Buffer> {
        if self.mapping.lost() || offset.checked_add(len as u64)? > self.source.len() {
            return None;
        }
        let start = usize::try_from(offset).ok()?;
        if let Some(copied) = self.copy(start, len) {
            return Some(Buffer(Repr::Copied(copied)));
        }
        let of = self.lent[stripe::mine()].0.clone();
        Some(Buffer(Repr::Mapped(View { of, start, len })))
    }

    /// A copy, where that is better than to look at the mapping.
    fn copy(&self, start: usize, len: usize) -> Option<Copied> {
        let step = self.stream.next(start, len);
        if let Step::Enters(piece) = step {
            self.enter(piece);
        }
        if len > MOST_COPIED_SMALL || !self.copies.load(Relaxed) {
            return None;
        }
        if len >= PIECE {
            // Nobody else has looked how it lies.
            self.enter(start / PIECE);
        }
        let small = self.small.load(Relaxed);
        let least = if self.source.len() > MOST_ENTERED as u64 { 0 } else { LEAST_COPIED };
        let stray = step == Step::Strays
            && (least..=MOST_COPIED).contains(&len)
            && self.strays.note(start / PIECE);
        let better = stray || (small && len >= LEAST_COPIED);
        if !better {
            return None;
        }
        let copied = Copied::of(self.source.file()?, start as u64, len);
        copied.inspect_err(|_| self.copies.store(false, Relaxed)).ok().flatten()
    }

    /// Enters a piece into the mapping, if it is in the page cache.
    fn enter(&self, piece: usize) {
        if self.small.load(Relaxed) && !piece.is_multiple_of(STILL_SMALL) {
            return;
        }
        let from = piece.saturating_mul(PIECE) as u64;
        let len = self.source.len().saturating_sub(from).min(PIECE as u64) as usize;
        if len > 0 && self.cached(from, len) {
            let there =
                |at: usize| self.source.file().is_some_and(|file| cached(file, at as u64, 1));
            let there: Option<&dyn Fn(usize) -> bool> =
                if self.tells { None } else { Some(&there) };
            self.small.store(!self.mapping.enter(piece, len, there), Relaxed);
        }
    }

    /// Asks the kernel to read these bytes into the page cache, unless they are best read as huge pages. Waits for nothing.
    pub fn advise(&self, offset: u64, len: usize) {
        if !(self.whole && len >= WORTH_WHOLE) {
            self.ask(offset, len);
        }
    }

    /// Asks the kernel to read these bytes into the page cache, in pages of whatever size. Waits for nothing.
    pub fn ask(&self, offset: u64, len: usize) {
        if let Some(file) = self.source.file()
            && len > 0
        {
            will_need(file, offset, len);
        }
    }

    /// Waits until these bytes are in the page cache, and enters them into the mapping, so that whoever looks at them
    /// does not have to wait or to fault. Nothing is copied.
    ///
    /// # Errors
    /// `Io` if the page cache cannot have some of them, or of others in the same huge page: a disk has then tried for seconds,
    /// some three times. [`Lender::read_beside`] may have them, and [`Lender::bring_again`] find more.
    pub fn bring(&self, offset: u64, len: usize) -> Result<()> {
        match self.populate(offset, len) {
            Populated::There => Ok(()),
            Populated::Untold => self.read_all(offset, len),
            Populated::Lost => {
                let error = Error::new(Kind::Io, "the page cache cannot have some of these bytes");
                Err(error.at_path(self.source.path()).at_offset(offset))
            }
        }
    }

    /// As [`Lender::bring`], of bytes that could not be had when somebody last tried: they may lie beside what is bad, or be
    /// readable by now. A bad sector is asked for once.
    ///
    /// # Errors
    /// `Io` where some of them are bad; whatever a read of some of them gives; `Io` if reads have them, and the page cache
    /// does not.
    pub fn bring_again(&self, offset: u64, len: usize) -> Result<()> {
        if let Some(file) = self.source.file()
            && let Some(Err((at, cause))) = beside::look(file, offset, len)
        {
            return Err(Error::io("read", self.source.path(), cause).at_offset(at));
        }
        // Reads bring smaller pieces, and these bytes without what is bad.
        self.forget(offset, len);
        self.read_all(offset, len)?;
        self.bring(offset, len)
    }

    fn populate(&self, offset: u64, len: usize) -> Populated {
        self.mapping.populate(usize::try_from(offset).unwrap_or(usize::MAX), len)
    }

    fn read_all(&self, offset: u64, len: usize) -> Result<()> {
        let mut piece = vec![0; len.min(1 << 16)];
        let end = offset.saturating_add(len as u64);
        let mut at = offset;
        while at < end {
            let n = piece.len().min(usize::try_from(end - at).unwrap_or(usize::MAX));
            self.source.read_at(at, &mut piece[..n])?;
            at += n as u64;
        }
        Ok(())
    }

    /// As a read of the source, of bytes that the page cache is known not to have: it is not asked first.
    ///
    /// # Errors
    /// Those of a read.
    pub fn read_beside(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let read = self.source.file().and_then(|file| beside::fill(file, offset, buf));
        match read {
            Some(Ok(())) => Ok(()),
            Some(Err(Stopped { done, cause: Some(cause) })) => {
                let at = offset.saturating_add(done as u64);
                Err(Error::io("read", self.source.path(), cause).at_offset(at))
            }
            // What is not in the file, and where there is no other way.
            Some(Err(Stopped { cause: None, .. })) | None => self.source.read_at(offset, buf),
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FileSource;
    use std::os::unix::fs::FileExt;

    /// Pieces of a file that is large.
    const PIECES: usize = 200;

    fn byte(at: usize) -> u8 {
        (at / PIECE * 7 + at % PIECE / 4096 * 31 + at % 251) as u8
    }

    /// With so many bytes at the start of each piece, in the page cache; all others are holes.
    fn lender(pieces: usize, has: usize) -> (tempfile::TempDir, File, Lender) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
        file.set_len((pieces * PIECE) as u64).unwrap();
        for from in (0..pieces).map(|i| i * PIECE) {
            let bytes: Vec<u8> = (from..from + has).map(byte).collect();
            file.write_all_at(&bytes, from as u64).unwrap();
        }
        let source: Arc<dyn Source> = Arc::new(FileSource::open(&path).unwrap());
        let lender = Lender::new(&source, &IoOptions::default()).unwrap();
        (dir, file, lender)
    }

    /// So many places in no order, within 8 KiB from the start of their piece.
    fn places(pieces: usize, count: usize) -> impl Iterator<Item = usize> {
        (0..count).map(move |i| i * 77 % pieces * PIECE + i * 7919 % 8192)
    }

    #[test]
    fn small_parts_in_no_order_are_copies_and_others_are_not() {
        let (_dir, _file, lender) = lender(PIECES, MOST_COPIED + 8193);
        for (len, copied) in [
            (48, false),
            (LEAST_COPIED - 1, false),
            (LEAST_COPIED, true),
            (50_000, true),
            (MOST_COPIED, true),
            (MOST_COPIED + 1, false),
        ] {
            let mut copies = 0;
            for at in places(PIECES, 400) {
                let bytes = lender.lend(at as u64, len).unwrap();
                assert!(bytes.iter().zip(at..).all(|(b, at)| *b == byte(at)), "{at}, {len}");
                assert_eq!(bytes.len(), len);
                bytes.check().unwrap();
                copies += usize::from(bytes.is_copy());
            }
            assert!(if copied { copies > 390 } else { copies == 0 }, "{len}: {copies}");
        }
        let in_order = (0..PIECES * PIECE / LEAST_COPIED).map(|i| (i * LEAST_COPIED) as u64);
        let copies = in_order.filter(|at| lender.lend(*at, LEAST_COPIED).unwrap().is_copy());
        assert!(copies.count() < 4);
    }

    #[test]
    fn in_small_pages_what_is_not_tiny_is_copied_in_any_order() {
        let (_dir, _file, lender) = lender(40, 3 * LEAST_COPIED);
        lender.small.store(true, Relaxed);
        for (len, copied) in [(48, 0), (LEAST_COPIED, 40), (MOST_COPIED_SMALL + 1, 0)] {
            let views =
                (0..40).map(|i| (i * PIECE + 5000, lender.lend((i * PIECE + 5000) as u64, len)));
            let copies = views.filter_map(|(at, bytes)| bytes.map(|bytes| (at, bytes))).filter(
                |(at, bytes)| {
                    let has = bytes.len().min(LEAST_COPIED);
                    assert!(
                        bytes[..has].iter().zip(*at..).all(|(b, at)| *b == byte(at)),
                        "{at}, {len}"
                    );
                    bytes.is_copy()
                },
            );
            assert_eq!(copies.count(), copied, "{len}");
        }
    }

    #[test]
    fn of_huge_files_the_smallest_parts_are_copies_too() {
        let pieces = MOST_ENTERED / PIECE + 1;
        let (_dir, _file, lender) = lender(pieces, 8192 + 48);
        let copies = places(pieces, 1000).filter(|at| {
            let bytes = lender.lend(*at as u64, 48).unwrap();
            assert!(bytes.iter().zip(*at..).all(|(b, at)| *b == byte(at)), "{at}");
            bytes.is_copy()
        });
        assert!(copies.count() > 990);
    }

    #[test]
    fn copies_that_are_kept_do_not_grow_for_ever() {
        let (_dir, _file, lender) = lender(PIECES, LEAST_COPIED + 8192);
        let kept: Vec<(usize, Buffer)> = places(PIECES, 2000)
            .map(|at| (at, lender.lend(at as u64, LEAST_COPIED).unwrap()))
            .collect();
        let copies = kept.iter().filter(|(_, b)| b.is_copy()).count();
        assert!((1..=256).contains(&copies), "{copies}");
        for (at, bytes) in &kept {
            assert!(bytes.iter().zip(*at..).all(|(b, at)| *b == byte(at)), "{at}");
        }
    }

    #[test]
    fn nothing_is_copied_of_files_that_may_be_resident() {
        let pieces = WORTH_COPIES as usize / PIECE;
        let (_dir, _file, lender) = lender(pieces, LEAST_COPIED + 8192);
        let views = places(pieces, 300).map(|at| lender.lend(at as u64, LEAST_COPIED).unwrap());
        assert_eq!(views.filter(Buffer::is_copy).count(), 0);
    }

    #[test]
    fn what_went_away_is_said_of_copies_as_of_views() {
        let (_dir, file, lender) = lender(PIECES, LEAST_COPIED + 8192);
        let kept: Vec<Buffer> =
            places(PIECES, 20).map(|at| lender.lend(at as u64, LEAST_COPIED).unwrap()).collect();
        file.set_len(100).unwrap();
        for (bytes, at) in kept.iter().zip(places(PIECES, 20)).filter(|(b, _)| b.is_copy()) {
            assert!(bytes.check().is_ok() && bytes.iter().zip(at..).all(|(b, at)| *b == byte(at)));
        }
        for at in places(PIECES, 50).skip(20) {
            // Before the first look at the mapping it does not know.
            match lender.lend(at as u64, LEAST_COPIED) {
                Some(bytes) => {
                    assert!(!bytes.is_copy() && bytes.iter().all(|b| *b == 0), "{at}");
                    bytes.check().unwrap_err();
                }
                None => assert!(lender.mapping.lost()),
            }
        }
    }
}
