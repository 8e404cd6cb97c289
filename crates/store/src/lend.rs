//! Parts of a file in the page cache, lent to whoever wants them.

use crate::buffer::{Buffer, Repr, View};
use crate::mapped::Mapping;
use crate::queue::{cached, will_need};
use crate::{Engine, IoOptions, Source};
use std::sync::Arc;
use stead_core::Result;

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
}

impl Lender {
    /// `None` where bytes are better read: on network file systems, with an engine that was asked for by name, for
    /// direct reads, and for sources that are no files.
    pub fn new(source: &Arc<dyn Source>, options: &IoOptions) -> Option<Lender> {
        if options.direct || options.engine != Engine::Auto {
            return None;
        }
        let mapping = Mapping::new(source.file()?, source.len()).map(Arc::new)?;
        Some(Lender { mapping, source: source.clone() })
    }

    /// A view; the pages that are not cached come when they are looked at. `None` if it is not all in the file, or
    /// bytes of the file went away, so that a read will say which.
    pub fn lend(&self, offset: u64, len: usize) -> Option<Buffer> {
        if self.mapping.lost() || offset.checked_add(len as u64)? > self.source.len() {
            return None;
        }
        let start = usize::try_from(offset).ok()?;
        let view = View { mapping: self.mapping.clone(), start, len };
        Some(Buffer(Repr::Mapped { view, source: self.source.clone() }))
    }

    /// Asks the kernel to read these bytes into the page cache. Waits for nothing.
    pub fn advise(&self, offset: u64, len: usize) {
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
    /// Whatever a read of some of them gives.
    pub fn bring(&self, offset: u64, len: usize) -> Result<()> {
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if self.mapping.populate(start, len) {
            return Ok(());
        }
        // An old kernel, or bytes that cannot be had: a read says which.
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

    /// Takes bytes out of the mapping, not out of the page cache: whoever looks at them faults.
    pub fn release(&self, offset: u64, len: usize) {
        if let Ok(start) = usize::try_from(offset) {
            self.mapping.release(start, len);
        }
    }

    /// True if the first and the last of these bytes are in the page cache.
    pub fn cached(&self, offset: u64, len: usize) -> bool {
        self.source.file().is_some_and(|file| cached(file, offset, len))
    }
}
