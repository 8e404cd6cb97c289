//! A source: bytes with a length, read at any offset.

use crate::Buffer;
use std::fmt::Debug;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_core::{Result, limits};

/// Bytes that do not change while they are read. Errors carry the path and the offset.
pub trait Source: Send + Sync + Debug {
    /// The name that users know it by.
    fn path(&self) -> &Path;

    /// Number of bytes, fixed when the source was opened.
    fn len(&self) -> u64;

    /// True if there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` from `offset`, or fails. A source that has become shorter is an error of kind
    /// `Changed`; reading past [`Source::len`] is a defect of the caller and an error too.
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()>;

    /// Fails with kind `Changed` if the bytes are no longer those that were there when the source was
    /// opened, as far as that can be told; for the end of a scan. A file that only grew is no failure.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The file behind it, for engines that want its descriptor.
    fn file(&self) -> Option<&File> {
        None
    }

    /// Bytes that somebody else has in memory and lends, in place of a read: exactly `len`, or the error. Waits for them.
    /// `None` if they are to be read.
    fn lend(&self, _offset: u64, _len: usize) -> Option<Result<Buffer>> {
        None
    }

    /// Says that these bytes are going to be read, just so: for sources whose bytes come from far away, which then may be on
    /// their way already. Waits for nothing; what goes wrong, the read says.
    fn ahead(&self, _offset: u64, _len: usize) {}

    /// Nobody is going to read these bytes any more, whatever [`Source::ahead`] was told of them.
    fn forget(&self, _bytes: Range<u64>) {}

    /// Another source in which these bytes, more than none, lie one after the other, and where: a part of a file that lies in
    /// several. Who reads asks this before anything else, so that parts are read as files are.
    fn piece(&self, _offset: u64, _len: u64) -> Option<(&Arc<dyn Source>, u64)> {
        None
    }

    /// The source that all bytes of this one are from, in whatever order: one that is the same has the same bytes.
    fn origin(&self) -> Option<&Arc<dyn Source>> {
        None
    }

    /// How many newlines there are in these bytes, where somebody else has them and counts. `None` if they are to be read.
    fn newlines(&self, _range: Range<u64>) -> Option<Result<u64>> {
        None
    }

    /// The files that it is made of: none of them may be written to.
    fn files(&self) -> Vec<PathBuf> {
        vec![self.path().to_path_buf()]
    }

    /// The bytes themselves, where they lie in memory anyway.
    fn bytes(&self) -> Option<&[u8]> {
        None
    }
}

/// How bytes get from files to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Engine {
    /// io_uring where the kernel has it and it pays, `pread` otherwise.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// `pread`.
    Pread,
}

/// How to read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IoOptions {
    /// Which engine.
    pub engine: Engine,
    /// Reads in flight for each worker.
    pub depth: usize,
    /// Pass by the page cache (O_DIRECT).
    pub direct: bool,
}

impl Default for IoOptions {
    fn default() -> Self {
        IoOptions { engine: Engine::Auto, depth: limits::DEFAULT_QUEUE_DEPTH, direct: false }
    }
}
