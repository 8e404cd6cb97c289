//! Contiguous bytes of one file of a dataset.

/// `len` bytes from `offset` of the dataset's file number `source`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Extent {
    /// Index of the file in the dataset.
    pub source: u32,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub len: u64,
}

impl Extent {
    /// The byte after the last one.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.len)
    }
}
