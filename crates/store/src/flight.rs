//! A read that is under way: where in its buffer the bytes land, and how far it has come.

use crate::buffer::{ALIGN, Buffer, Pages, Repr};
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

/// A read that may come in pieces, aligned outwards if it is direct.
pub(crate) struct Flight {
    pub(crate) pages: Pages,
    /// Where in `pages` the read lands. A byte has the same place within a page in the buffer and in the
    /// file: processors that copy strings by microcode are four times slower otherwise (AMD Zen 3: from
    /// page offset 4095 to 0).
    pad: usize,
    /// The O_DIRECT descriptor; the source's own if `None`.
    pub(crate) direct: Option<Arc<File>>,
    /// Where the read begins: at or before the extent.
    pub(crate) start: u64,
    /// Bytes from `start` to ask for.
    span: usize,
    /// Bytes from `start` that must arrive; less than `span` where the file ends.
    needed: usize,
    /// Bytes to keep; the next piece goes here.
    pub(crate) done: usize,
    /// Bytes that had arrived, for telling a short read from the end of the file.
    reached: usize,
}

/// What came of a part of a read.
#[derive(PartialEq)]
pub(crate) enum Piece {
    More,
    Whole,
    Ended,
}

impl Flight {
    /// Of these bytes of a file, into `pages`.
    pub(crate) fn new(pages: Pages, direct: Option<Arc<File>>, offset: u64, len: usize) -> Flight {
        let within = (offset % ALIGN as u64) as usize;
        let (pad, skip) = if direct.is_some() { (0, within) } else { (within, 0) };
        let needed = skip + len;
        let span = if direct.is_some() { needed.next_multiple_of(ALIGN) } else { needed };
        let mut flight = Flight {
            pages,
            pad,
            direct,
            start: offset - skip as u64,
            span,
            needed,
            done: 0,
            reached: 0,
        };
        flight.pages.grow(pad + span);
        flight
    }

    /// Where what has not been read yet will land.
    pub(crate) fn target(&mut self) -> &mut [u8] {
        &mut self.pages.as_mut_slice()[self.pad + self.done..self.pad + self.span]
    }

    /// Some bytes more have come.
    pub(crate) fn arrived(&mut self, n: usize) -> Piece {
        let total = self.done + n;
        if total >= self.needed {
            return Piece::Whole;
        }
        if n == 0 || total <= self.reached {
            return Piece::Ended;
        }
        self.reached = total;
        // A direct read goes on at a multiple of the block size.
        self.done = if self.direct.is_some() { total - total % ALIGN } else { total };
        Piece::More
    }

    /// The `len` bytes that were asked for.
    pub(crate) fn bytes(&self, len: usize) -> &[u8] {
        &self.pages.as_slice()[self.skip(len)..][..len]
    }

    fn skip(&self, len: usize) -> usize {
        self.pad + self.needed - len
    }

    /// The `len` bytes that were asked for, once they are there.
    pub(crate) fn into_buffer(self, len: usize) -> Buffer {
        let skip = self.skip(len);
        Buffer(Repr::Owned { pages: self.pages, skip, len })
    }
}

/// Reads piece by piece. `Ok(false)` if the file ends too early; the error number otherwise.
pub(crate) fn read_direct(flight: &mut Flight) -> std::result::Result<bool, i32> {
    loop {
        let at = flight.start + flight.done as u64;
        let Some(file) = flight.direct.clone() else { return Ok(false) };
        let n = match file.read_at(flight.target(), at) {
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            Err(e) => return Err(e.raw_os_error().unwrap_or(0)),
        };
        match flight.arrived(n) {
            Piece::Whole => return Ok(true),
            Piece::Ended => return Ok(false),
            Piece::More => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_put_together() {
        let direct = Some(Arc::new(File::open("/dev/null").unwrap()));
        let mut f = Flight::new(Pages::default(), direct, 5000, 10_000);
        assert_eq!((f.start, f.needed, f.span), (4096, 10_904, 12_288));
        assert!(f.arrived(4096) == Piece::More && f.done == 4096);
        assert!(f.arrived(100) == Piece::More && f.done == 4096);
        // The same bytes once more: the file ends here.
        assert!(f.arrived(100) == Piece::Ended);
        assert!(f.arrived(8000) == Piece::Whole);
        let mut f = Flight::new(Pages::default(), None, 5000, 10);
        assert!(f.arrived(9) == Piece::More && f.arrived(0) == Piece::Ended);
    }
}
