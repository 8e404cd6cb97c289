//! Buffers that reads land in.

use crate::Source;
use std::ops::Deref;
use std::sync::Arc;

/// What O_DIRECT wants offsets, lengths and addresses to be multiples of. Devices with larger blocks are
/// rare, and they refuse the read, which is said to the user.
pub(crate) const ALIGN: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone, Copy)]
struct Page([u8; ALIGN]);

/// Owned memory, aligned to [`ALIGN`] and a multiple of it long, always initialised.
#[derive(Default)]
pub(crate) struct Pages(Vec<Page>);

impl Pages {
    /// Makes room for `len` bytes. Never gives memory back, because buffers are used again.
    pub(crate) fn grow(&mut self, len: usize) {
        let pages = len.div_ceil(ALIGN);
        if self.0.len() < pages {
            self.0.resize(pages, Page([0; ALIGN]));
        }
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: the vector holds `len` initialised pages, each exactly ALIGN bytes without padding, and
        // u8 has no alignment to ask for.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), self.0.len() * ALIGN) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`; the borrow of `self` is exclusive, and any bytes make a valid page.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), self.0.len() * ALIGN) }
    }
}

/// The bytes of a finished read: memory of its own, or a memory source's bytes as they lie.
pub struct Buffer(pub(crate) Repr);

pub(crate) enum Repr {
    Owned { pages: Pages, skip: usize, len: usize },
    Lent { source: Arc<dyn Source>, start: usize, len: usize },
}

impl Buffer {
    /// No bytes.
    pub fn empty() -> Self {
        Buffer(Repr::Owned { pages: Pages::default(), skip: 0, len: 0 })
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Owned { pages, skip, len } => &pages.as_slice()[*skip..*skip + *len],
            // A source lends the same bytes as long as it lives; `submit` checked the range.
            Repr::Lent { source, start, len } => {
                source.bytes().and_then(|b| b.get(*start..*start + *len)).unwrap_or(&[])
            }
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}
