//! Parts of a file in the page cache, lent to whoever wants them.

use crate::buffer::{Buffer, Repr, View};
use crate::mapped::Mapping;
use crate::queue::cached;
use crate::{Engine, IoOptions, Source};
use std::sync::Arc;

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

    /// True if the first and the last of these bytes are in the page cache.
    pub fn cached(&self, offset: u64, len: usize) -> bool {
        self.source.file().is_some_and(|file| cached(file, offset, len))
    }
}
