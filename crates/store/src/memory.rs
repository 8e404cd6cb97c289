//! Memory as a source.

use crate::{Source, file::check_range};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_core::Result;

/// Bytes in memory: `Vec<u8>`, `Arc<[u8]>`, `&'static [u8]` or whatever else lends bytes. Nothing is
/// copied, neither here nor by the scans.
#[derive(Clone)]
pub struct MemorySource {
    name: PathBuf,
    /// Lends the same bytes every time it is asked.
    data: Arc<dyn AsRef<[u8]> + Send + Sync>,
}

impl MemorySource {
    /// `name` stands in errors where a file's path would.
    pub fn new(
        name: impl Into<PathBuf>,
        data: impl AsRef<[u8]> + Send + Sync + 'static,
    ) -> MemorySource {
        MemorySource { name: name.into(), data: Arc::new(data) }
    }

    fn slice(&self) -> &[u8] {
        (*self.data).as_ref()
    }
}

impl fmt::Debug for MemorySource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemorySource({}, {} bytes)", self.name.display(), self.slice().len())
    }
}

impl Source for MemorySource {
    fn path(&self) -> &Path {
        &self.name
    }

    fn len(&self) -> u64 {
        self.slice().len() as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(&self.name, offset, buf.len(), self.len())?;
        // Within the slice, so it fits usize.
        let start = offset as usize;
        buf.copy_from_slice(&self.slice()[start..start + buf.len()]);
        Ok(())
    }

    fn bytes(&self) -> Option<&[u8]> {
        Some(self.slice())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lends_its_bytes() {
        let a: Arc<[u8]> = Arc::from(&b"abc"[..]);
        let s = MemorySource::new("a", a.clone());
        assert_eq!(s.bytes().map(<[u8]>::as_ptr), Some(a.as_ptr()));
        let mut b = [0; 2];
        s.read_at(1, &mut b).unwrap();
        assert_eq!(&b, b"bc");
        assert!(s.read_at(2, &mut b).is_err());
        assert!(MemorySource::new("e", Vec::new()).is_empty());
    }
}
