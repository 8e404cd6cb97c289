//! Buffers that reads land in.

use crate::Source;
use crate::commons::Berth;
use crate::copied::Copied;
use crate::mapped::Mapping;
use crate::segment::Slot;
use std::ops::Deref;
use std::sync::Arc;
use stead_core::{Error, Kind, Result};

/// What O_DIRECT wants offsets, lengths and addresses to be multiples of. Devices with larger blocks are
/// rare, and they refuse the read, which is said to the user.
pub(crate) const ALIGN: usize = 4096;

#[repr(C, align(4096))]
#[derive(Clone, Copy)]
pub(crate) struct Page([u8; ALIGN]);

/// Owned memory, aligned to [`ALIGN`] and a multiple of it long, always initialised.
pub(crate) enum Pages {
    Own(Vec<Page>),
    /// Other processes may look at it.
    Shared(Slot),
    /// All processes that read the file look at it.
    Common(Berth),
}

impl Default for Pages {
    fn default() -> Self {
        Pages::Own(Vec::new())
    }
}

impl Pages {
    /// Makes room for `len` bytes. Never gives memory back, because buffers are used again.
    pub(crate) fn grow(&mut self, len: usize) {
        let pages = len.div_ceil(ALIGN);
        match self {
            Pages::Own(own) if own.len() < pages => own.resize(pages, Page([0; ALIGN])),
            Pages::Own(_) => {}
            // A slot has the size it has.
            Pages::Shared(slot) if slot.as_slice().len() < len => {
                *self = Pages::Own(vec![Page([0; ALIGN]); pages]);
            }
            Pages::Common(berth) if berth.as_slice().len() < len => {
                *self = Pages::Own(vec![Page([0; ALIGN]); pages]);
            }
            Pages::Shared(_) | Pages::Common(_) => {}
        }
    }

    /// It has its bytes: others may look at them, if they are to.
    pub(crate) fn publish(&mut self) {
        if let Pages::Common(berth) = self {
            berth.publish();
        }
    }

    /// True if others may wait for its bytes.
    pub(crate) fn is_claimed(&self) -> bool {
        matches!(self, Pages::Common(berth) if berth.is_claimed())
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            // SAFETY: the vector holds `len` initialised pages, each exactly ALIGN bytes without padding, and
            // u8 has no alignment to ask for.
            Pages::Own(own) => unsafe {
                std::slice::from_raw_parts(own.as_ptr().cast(), own.len() * ALIGN)
            },
            Pages::Shared(slot) => slot.as_slice(),
            Pages::Common(berth) => berth.as_slice(),
        }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: as in `as_slice`; the borrow of `self` is exclusive, and any bytes make a valid page.
            Pages::Own(own) => unsafe {
                std::slice::from_raw_parts_mut(own.as_mut_ptr().cast(), own.len() * ALIGN)
            },
            Pages::Shared(slot) => slot.as_mut_slice(),
            Pages::Common(berth) => berth.as_mut_slice(),
        }
    }
}

/// The bytes of an extent: memory of their own, or a view of where they lie: a memory source's bytes, or a
/// file's in the page cache. The bytes of a file may change while they are looked at, as somebody writes to it.
pub struct Buffer(pub(crate) Repr);

pub(crate) enum Repr {
    Owned { pages: Pages, skip: usize, len: usize },
    Lent { source: Arc<dyn Source>, start: usize, len: usize },
    Mapped(View),
    Copied(Copied),
    Held(Box<dyn AsRef<[u8]> + Send + Sync>),
}

/// A mapping and what it is of: one thing to count references of, in a line of memory of its own.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Mapped {
    pub(crate) mapping: Arc<Mapping>,
    pub(crate) source: Arc<dyn Source>,
}

/// A part of a mapping, whose pages may be let go once it is dropped.
pub(crate) struct View {
    pub(crate) of: Arc<Mapped>,
    pub(crate) start: usize,
    pub(crate) len: usize,
}

impl Drop for View {
    fn drop(&mut self) {
        self.of.mapping.release(self.start, self.len);
    }
}

impl Buffer {
    /// No bytes.
    pub fn empty() -> Self {
        Buffer(Repr::Owned { pages: Pages::default(), skip: 0, len: 0 })
    }

    /// Bytes that somebody else keeps, until the buffer is dropped.
    pub fn held(bytes: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        Buffer(Repr::Held(Box::new(bytes)))
    }

    /// True if its memory may be read into again ([`crate::ReadQueue::recycle`]): it is nobody else's.
    pub fn can_be_used_again(&self) -> bool {
        matches!(&self.0, Repr::Owned { pages: Pages::Own(_) | Pages::Shared(_), .. })
    }

    /// True if another process has read them.
    pub fn is_others(&self) -> bool {
        matches!(&self.0, Repr::Owned { pages: Pages::Common(berth), .. } if berth.is_others())
    }

    /// Somebody has a view of them from now on who may look at it in a child that is forked, too: what processes have together is not
    /// used for other bytes then, as long as this process has it.
    pub fn add_view(&self) {
        if let Repr::Owned { pages: Pages::Common(berth), .. } = &self.0 {
            berth.add_view();
        }
    }

    /// A view that was added is gone.
    pub fn remove_view(&self) {
        if let Repr::Owned { pages: Pages::Common(berth), .. } = &self.0 {
            berth.remove_view();
        }
    }

    /// True if it is a copy of bytes that lie in the page cache, as they were.
    pub fn is_copy(&self) -> bool {
        matches!(self.0, Repr::Copied(_))
    }

    /// Fails if bytes went away while they were looked at, with the error that a read of them gives. For
    /// when they have been looked at, before anything that was made of them is believed; also in place of any
    /// error that was found in them.
    ///
    /// # Errors
    /// `Changed` if the file has become shorter; `Io` if the device could not give them.
    pub fn check(&self) -> Result<()> {
        let Repr::Mapped(view) = &self.0 else { return Ok(()) };
        let Mapped { mapping, source } = &*view.of;
        if !mapping.lost() {
            return Ok(());
        }
        // Read again, for the reason and the place. The extent may be whole and its neighbour not.
        source.check()?;
        let mut piece = vec![0; view.len.min(1 << 16)];
        for at in (view.start..view.start + view.len).step_by(1 << 16) {
            let n = (view.start + view.len - at).min(1 << 16);
            source.read_at(at as u64, &mut piece[..n])?;
            // What was lost once stays lost, so that it can still be seen.
            let seen = mapping.bytes(at, n);
            let differs = seen.iter().zip(&piece[..n]).position(|(a, b)| a != b);
            if seen.len() < n || differs.is_some() {
                let message = "bytes of the file could not be had when they were looked at";
                return Err(Error::new(Kind::Io, message)
                    .at_path(source.path())
                    .at_offset((at + differs.unwrap_or(0)) as u64)
                    .with_hint("the device gives them now; read them again"));
            }
        }
        Ok(())
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
            Repr::Mapped(view) => view.of.mapping.bytes(view.start, view.len),
            Repr::Copied(copied) => copied.bytes(),
            Repr::Held(bytes) => (**bytes).as_ref(),
        }
    }
}

impl std::fmt::Debug for Buffer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} bytes)", self.len())
    }
}
