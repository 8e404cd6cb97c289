//! The bytes that a worker looks at: an extent, and more where its last record needs more.

use stead_core::{Error, Result};
use stead_store::{Buffer, Source};

/// Bytes of a file from some offset on.
#[derive(Default)]
pub struct Window {
    /// Offset in the file of the first byte.
    pub base: u64,
    /// As it came from the queue.
    read: Option<Buffer>,
    /// A copy with more after it, in use if `widened`.
    wide: Vec<u8>,
    widened: bool,
}

impl Window {
    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match &self.read {
            _ if self.widened => &self.wide,
            Some(b) => b,
            None => &[],
        }
    }

    /// Offset in the file of the byte after the last one.
    pub fn end(&self) -> u64 {
        self.base + self.bytes().len() as u64
    }

    /// Makes it hold `read`, which begins at `base`.
    pub fn load(&mut self, base: u64, read: Buffer) {
        self.base = base;
        self.read = Some(read);
    }

    /// Empties it; gives back the buffer that it held. A copy of more than `keep` bytes is freed.
    pub fn unload(&mut self, keep: usize) -> Option<Buffer> {
        self.widened = false;
        if self.wide.capacity() > keep {
            self.wide = Vec::new();
        }
        self.read.take()
    }

    /// Fails if bytes went away since they came.
    pub fn check(&self) -> Result<()> {
        self.read.as_ref().map_or(Ok(()), Buffer::check)
    }

    /// Reads on up to offset `to`, dropping what lies before index `from`.
    pub fn widen(&mut self, source: &dyn Source, from: usize, to: u64) -> Result<()> {
        if self.widened {
            self.wide.drain(..from);
        } else {
            self.wide.clear();
            if let Some(b) = &self.read {
                self.wide.extend_from_slice(&b[from..]);
            }
            self.widened = true;
        }
        self.base += from as u64;
        let have = self.wide.len();
        let want = usize::try_from(to - self.base)
            .map_err(|_| Error::limit("a block does not fit in memory"))?;
        // No more than is needed: records may take hundreds of megabytes.
        self.wide.reserve_exact(want - have);
        self.wide.resize(want, 0);
        source.read_at(self.base + have as u64, &mut self.wide[have..])
    }
}
