//! What becomes of the bytes that a request asked for: a view, or a filled buffer.

use crate::engine::{Claim, Shared};
use crate::request::{Finish, Piece};
use crate::room::Room;
use crate::view::View;
use std::ops::Range;
use std::sync::Arc;
use stead_core::{Error, Result};

/// The page cache has pieces of a file of so many bytes at most, and one bad byte takes all of a piece with it.
const AROUND: u64 = 2 << 20;

/// Bytes of a mapped file that the page cache did not have when they were asked for, and all that lies in the same pieces.
#[derive(Default)]
pub(crate) struct Beside(Vec<Range<u64>>);

impl Beside {
    /// Takes note of what has come of a block, from `at` of the file.
    fn note(&mut self, at: u64, piece: &Piece<'_>) {
        let Piece::Bytes(bytes) = piece else { return };
        let end = at.saturating_add(bytes.len() as u64);
        let from = at - at % AROUND;
        let to = end.checked_next_multiple_of(AROUND).unwrap_or(u64::MAX);
        match self.0.last_mut() {
            Some(last) if last.start <= from && from <= last.end => last.end = last.end.max(to),
            _ => self.0.push(from..to),
        }
    }

    fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads bytes of the file: what the page cache did not have past it, and all others as they are always read.
    fn read(&mut self, shared: &Arc<Shared>, offset: u64, to: &mut [u8]) -> Result<()> {
        // Blocks come in any order.
        if !self.0.is_sorted_by_key(|range| range.start) {
            self.0.sort_unstable_by_key(|range| range.start);
        }
        let end = offset.saturating_add(to.len() as u64);
        let (mut at, mut rest) = (offset, to);
        let mut next = |to: u64, beside: bool, at: &mut u64| {
            let len = to.min(end).saturating_sub(*at);
            // Within the buffer, so it fits usize.
            let (part, left) = std::mem::take(&mut rest).split_at_mut(len as usize);
            rest = left;
            let read = if part.is_empty() { Ok(()) } else { read(shared, beside, *at, part) };
            *at += len;
            read
        };
        for range in self.0.iter().filter(|range| range.end > offset) {
            next(range.start, false, &mut at)?;
            next(range.end, true, &mut at)?;
        }
        next(end, false, &mut at)
    }
}

/// A view.
pub(crate) struct AsView {
    offset: u64,
    len: usize,
    got: Got,
    /// Memory for bytes of several blocks.
    claim: Option<Claim>,
    beside: Beside,
}

enum Got {
    Nothing,
    View(View),
    Own(Own),
    Failed(Error),
}

/// Memory of its own, counted until the answer is taken.
struct Own {
    bytes: Room,
    _claim: Claim,
}

impl AsView {
    pub(crate) fn new(offset: u64, len: usize) -> Self {
        AsView { offset, len, got: Got::Nothing, claim: None, beside: Beside::default() }
    }
}

impl Finish<View> for AsView {
    fn claims(&self) -> bool {
        true
    }

    fn admit(&mut self, claim: Claim) -> Option<Claim> {
        // Bytes that came before it have memory already.
        if matches!(self.got, Got::Own(_)) { Some(claim) } else { self.claim.replace(claim) }
    }

    fn piece(&mut self, shared: &Arc<Shared>, at: u64, piece: Piece<'_>) {
        if let Piece::Block(block, start, len) = piece
            && len == self.len
        {
            self.got = Got::View(View::block(shared.clone(), block.clone(), start, len));
            return;
        }
        if shared.maps() {
            self.beside.note(at, &piece);
            return;
        }
        let Some(bytes) = piece.bytes() else { return };
        if matches!(self.got, Got::Nothing) {
            // What could not be read as a block was not foreseen.
            self.got = Room::new(self.len).map_or_else(Got::Failed, |bytes| {
                let claim = self.claim.take();
                let _claim = claim.unwrap_or_else(|| shared.claim_beyond(self.len as u64));
                Got::Own(Own { bytes, _claim })
            });
        }
        if let Got::Own(own) = &mut self.got {
            put(&mut own.bytes, (at - self.offset) as usize, bytes);
        }
    }

    fn pins(&self) -> bool {
        matches!(self.got, Got::View(_))
    }

    fn let_go(&mut self, claim: Claim) -> (Option<View>, Option<Claim>) {
        let Got::View(view) = &self.got else { return (None, Some(claim)) };
        // Without memory for a copy it stays where it is.
        let Ok(mut bytes) = Room::new(self.len) else { return (None, Some(claim)) };
        bytes.copy_from_slice(view);
        match std::mem::replace(&mut self.got, Got::Own(Own { bytes, _claim: claim })) {
            Got::View(view) => (Some(view), None),
            Got::Nothing | Got::Own(_) | Got::Failed(_) => (None, None),
        }
    }

    fn finish(&mut self, shared: &Arc<Shared>) -> Result<View> {
        if self.len == 0 {
            return Ok(View::own(Room::new(0)?));
        }
        if shared.maps() {
            if self.beside.is_none()
                && let Some(view) = shared.lend(self.offset, self.len)
            {
                return Ok(view);
            }
            // A look at them may find zeros. A read says which bytes went away, and has those beside a bad one.
            let mut own = Room::new(self.len)?;
            self.beside.read(shared, self.offset, &mut own)?;
            return Ok(View::own(own));
        }
        match std::mem::replace(&mut self.got, Got::Nothing) {
            Got::View(view) => Ok(view),
            Got::Own(own) => Ok(View::own(own.bytes)),
            Got::Failed(error) => Err(error),
            Got::Nothing => Err(Error::internal("a read was answered without its bytes")),
        }
    }
}

/// A buffer of the caller, filled from its start.
pub(crate) struct Into<B> {
    offset: u64,
    len: usize,
    /// `None` once it was given back.
    buffer: Option<B>,
    beside: Beside,
}

impl<B: AsMut<[u8]>> Into<B> {
    /// `buffer` has `len` bytes at least.
    pub(crate) fn new(offset: u64, len: usize, buffer: B) -> Self {
        Into { offset, len, buffer: Some(buffer), beside: Beside::default() }
    }
}

impl<B: AsMut<[u8]> + Send> Finish<B> for Into<B> {
    fn piece(&mut self, shared: &Arc<Shared>, at: u64, piece: Piece<'_>) {
        if shared.maps() {
            self.beside.note(at, &piece);
        } else if let Some(bytes) = piece.bytes()
            && let Some(buffer) = &mut self.buffer
        {
            put(buffer.as_mut(), (at - self.offset) as usize, bytes);
        }
    }

    fn is_later(&self, shared: &Shared) -> bool {
        shared.maps()
    }

    fn finish(&mut self, shared: &Arc<Shared>) -> Result<B> {
        let Some(mut buffer) = self.buffer.take() else {
            return Err(Error::internal("a read was answered twice"));
        };
        if shared.maps() {
            let Some(target) = buffer.as_mut().get_mut(..self.len) else {
                return Err(Error::usage("the buffer of this read became shorter"));
            };
            self.beside.read(shared, self.offset, target)?;
        }
        Ok(buffer)
    }
}

/// Equal pieces at equal distances, one after the other.
pub(crate) struct Strided {
    pub(crate) offset: u64,
    /// Bytes of a piece, at most `stride`.
    pub(crate) len: usize,
    pub(crate) stride: usize,
    pub(crate) out: Vec<u8>,
    pub(crate) beside: Beside,
}

impl Strided {
    /// Takes the pieces that lie in these bytes, which begin at `at` bytes from the first piece.
    fn gather(&mut self, at: usize, bytes: &[u8]) {
        let end = at + bytes.len();
        for piece in at / self.stride..end.div_ceil(self.stride) {
            let from = (piece * self.stride).max(at);
            let to = (piece * self.stride + self.len).min(end);
            if from < to {
                let target = piece * self.len + (from - piece * self.stride);
                put(&mut self.out, target, &bytes[from - at..to - at]);
            }
        }
    }
}

impl Finish<Vec<u8>> for Strided {
    fn wants(&self, part: &Range<u64>) -> bool {
        let stride = self.stride as u64;
        let within = (part.start - self.offset) % stride;
        within < self.len as u64 || within + (part.end - part.start) > stride
    }

    fn needs(&self, part: &Range<u64>) -> Range<u64> {
        let (len, stride) = (self.len as u64, self.stride as u64);
        let within = (part.start - self.offset) % stride;
        let (from, left) = if within < len { (0, len - within) } else { (stride - within, len) };
        let from = part.start.saturating_add(from).min(part.end);
        from..from.saturating_add(left).min(part.end)
    }

    fn piece(&mut self, shared: &Arc<Shared>, at: u64, piece: Piece<'_>) {
        if shared.maps() {
            self.beside.note(at, &piece);
        } else if let Some(bytes) = piece.bytes() {
            self.gather((at - self.offset) as usize, bytes);
        }
    }

    fn is_later(&self, shared: &Shared) -> bool {
        shared.maps()
    }

    fn finish(&mut self, shared: &Arc<Shared>) -> Result<Vec<u8>> {
        if shared.maps() && !self.out.is_empty() {
            let span = (self.out.len() / self.len - 1) * self.stride + self.len;
            let whole = self.beside.is_none();
            let view = if whole { shared.lend(self.offset, span) } else { None };
            let whole = view.is_some_and(|view| {
                self.gather(0, &view);
                // It may be bytes between the pieces that went away.
                view.check().is_ok()
            });
            for piece in 0..if whole { 0 } else { self.out.len() / self.len } {
                let at = self.offset + (piece * self.stride) as u64;
                let target = &mut self.out[piece * self.len..][..self.len];
                self.beside.read(shared, at, target)?;
            }
        }
        Ok(std::mem::take(&mut self.out))
    }
}

/// Reads bytes of a mapped file, past the page cache if that does not have them.
fn read(shared: &Arc<Shared>, beside: bool, offset: u64, to: &mut [u8]) -> Result<()> {
    match shared.lender() {
        Some(lender) if beside => lender.read_beside(offset, to),
        _ => shared.source().read_at(offset, to),
    }
}

#[cfg(test)]
#[path = "finish_tests.rs"]
mod tests;

fn put(to: &mut [u8], at: usize, bytes: &[u8]) {
    if let Some(to) = to.get_mut(at..at + bytes.len()) {
        to.copy_from_slice(bytes);
    }
}
