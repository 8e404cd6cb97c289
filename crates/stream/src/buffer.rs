//! Memory for arrays that a program makes before it has a writer.

use crate::home::Home;
use stead_core::{Error, Result};
use stead_store::arena::Loose;

/// Memory that is of no stream yet. [`Writer::put_buffer`](crate::Writer::put_buffer) puts it without a copy, in any writer of this user's
/// streams that has the same dataspace `memory`, as often as one likes. Dropped, it goes when no step has it; or is lent again, so that who
/// makes one for each step has no new pages after the first steps.
///
/// What was put is the readers': it is to be read only until its steps have gone, also by who has an address of it. Before it is put it
/// counts for the memory of no stream. It is gone with its process, whatever ends that, but for steps that have it.
#[derive(Debug)]
pub struct Buffer(Loose);

impl Home {
    /// Memory of `bytes` bytes, with its pages, aligned to 64 bytes at least: at first whatever was there before. Costs fresh pages, which take as
    /// long as a copy does, unless there is memory of this size that was given back.
    ///
    /// Less than 64 KiB is not worth the while, and is copied when it is put; so is what is beyond a quarter of the files that this process may
    /// have open, and all of it on file systems without files that have no name.
    ///
    /// # Errors
    /// `NoSpace` if there is not as much memory; `Limit` if this process may have no such file, or no more files or mappings.
    pub fn empty(&self, bytes: u64) -> Result<Buffer> {
        let len = usize::try_from(bytes).unwrap_or(usize::MAX);
        Loose::new(self.folder(), len).map(Buffer).map_err(Error::of_open_files)
    }
}

impl Buffer {
    /// How many bytes it has.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        self.0.as_slice()
    }

    /// The same, to be written; `None` while a step has it that it was put into without a copy, and for good if its writer has gone before that
    /// step. Steps that have gone are noticed when their writer does something.
    pub fn bytes_mut(&mut self) -> Option<&mut [u8]> {
        self.0.as_mut_slice()
    }

    pub(crate) fn memory(&self) -> &Loose {
        &self.0
    }
}
