//! Bytes that a request got.

use crate::engine::Shared;
use crate::room::Room;
use std::ops::{Deref, Range};
use std::sync::Arc;
use stead_core::Result;
use stead_store::Buffer;

/// Bytes of a file, counted by reference: clones and parts share them. While it lives, so does the block it lies in,
/// which takes room in the budget of the file.
///
/// The bytes of a file in the page cache are those that it has at the moment of looking; see [`View::check`].
#[derive(Clone)]
pub struct View {
    bytes: Arc<Bytes>,
    part: Range<usize>,
}

/// Where the bytes of a view lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// In the page cache.
    Cache,
    /// In a block, which cannot be used for other bytes meanwhile.
    Block,
    /// In memory of the view's own.
    Own,
}

enum Bytes {
    /// As the store has it: a mapping, or memory.
    Lent(Buffer),
    /// Within a block in memory.
    Block(Lease),
    /// Of its own.
    Own(Room),
}

/// A block that must stay.
struct Lease {
    /// `None` only while it is dropped.
    block: Option<Arc<Buffer>>,
    start: usize,
    shared: Arc<Shared>,
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(block) = self.block.take() {
            block.remove_view();
        }
        self.shared.let_go();
    }
}

impl View {
    pub(crate) fn lent(buffer: Buffer) -> View {
        let part = 0..buffer.len();
        View { bytes: Arc::new(Bytes::Lent(buffer)), part }
    }

    pub(crate) fn own(bytes: Room) -> View {
        let part = 0..bytes.len();
        View { bytes: Arc::new(Bytes::Own(bytes)), part }
    }

    /// `len` bytes of a block from `start`.
    pub(crate) fn block(shared: Arc<Shared>, block: Arc<Buffer>, start: usize, len: usize) -> View {
        block.add_view();
        let lease = Lease { block: Some(block), start, shared };
        View { bytes: Arc::new(Bytes::Block(lease)), part: 0..len }
    }

    /// A part of it that shares its bytes; what lies beyond its end is left out.
    pub fn slice(&self, part: Range<usize>) -> View {
        let start = part.start.min(self.part.len());
        let end = part.end.clamp(start, self.part.len());
        View { bytes: self.bytes.clone(), part: self.part.start + start..self.part.start + end }
    }

    /// Where the bytes lie.
    pub fn place(&self) -> Place {
        match &*self.bytes {
            Bytes::Lent(buffer) if buffer.is_copy() => Place::Own,
            Bytes::Lent(_) => Place::Cache,
            Bytes::Block(_) => Place::Block,
            Bytes::Own(_) => Place::Own,
        }
    }

    /// Fails if the file became shorter while its bytes were looked at: they may have been zeros.
    ///
    /// # Errors
    /// `Changed`, or `Io` if the device could not give them.
    pub fn check(&self) -> Result<()> {
        match &*self.bytes {
            Bytes::Lent(buffer) => buffer.check(),
            Bytes::Block(lease) => lease.block.as_ref().map_or(Ok(()), |block| block.check()),
            Bytes::Own(_) => Ok(()),
        }
    }
}

impl Deref for View {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        let all: &[u8] = match &*self.bytes {
            Bytes::Lent(buffer) => buffer,
            Bytes::Own(bytes) => bytes,
            Bytes::Block(lease) => match &lease.block {
                Some(block) => &block[lease.start..],
                None => &[],
            },
        };
        &all[self.part.clone()]
    }
}

impl AsRef<[u8]> for View {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "View({} bytes)", self.len())
    }
}
