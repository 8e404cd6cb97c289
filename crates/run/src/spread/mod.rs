//! Files whose parts lie on several nodes, as sources.
//!
//! A `Spread` is one file. What lies here is read from its part, whole stretches of it in place of the file
//! ([`Source::piece`]); the rest is asked for at a rank of the node that has it (`service`). Who scans asks for what begins
//! in its own stretches, so that nothing moves but the ends of records. `opening` finds who has what.

mod apart;
mod opening;
mod service;
#[cfg(test)]
mod tests;

pub use opening::{Here, open, open_apart, open_as, open_on};
pub(crate) use opening::{are_files, layouts_of};
pub(crate) use service::AHEAD;

use service::{Ask, Came, Link};
use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stead_core::layout::{Layout, Piece};
use stead_core::{Error, Result, Stops};
use stead_store::{Buffer, Source};

/// Bytes that are asked for at a time.
const WINDOW: u64 = 1 << 20;
/// Bytes whose newlines are counted at a time: a slow device reads them long before a deadline.
const COUNTED: u64 = 64 << 20;
/// Pieces that are read one by one; of more, each part is read once.
const FEW: usize = 8;

/// One file: its parts, as far as they are here, and who has the others.
#[derive(Debug)]
struct Whole {
    /// Its name, beside the layout.
    path: PathBuf,
    /// The layout file, if there is one.
    described: Option<PathBuf>,
    layout: Layout,
    /// The parts that this rank reaches.
    parts: Vec<Option<Arc<dyn Source>>>,
    /// The group of ranks that has each part.
    homes: Vec<usize>,
}

impl Whole {
    /// Reads the pieces of `range` on the parts `of`, which are here, one after the other, or each at its place in the range.
    fn read_pieces(
        &self,
        range: &Range<u64>,
        of: &dyn Fn(usize) -> bool,
        one_after_the_other: bool,
        buf: &mut [u8],
    ) -> Result<()> {
        let pieces = || self.layout.pieces(range.clone()).filter(|p| of(p.part));
        let source = |part: usize| {
            let source = self.parts.get(part).and_then(Option::as_ref);
            source.ok_or_else(|| Error::internal(format!("part {part} is not here")))
        };
        let mut next = 0;
        // Pieces lie within the buffer's length, which fits usize.
        let mut target = |p: &Piece| {
            let at = if one_after_the_other { next } else { (p.offset - range.start) as usize };
            next += p.len as usize;
            at..at + p.len as usize
        };
        let room = || Error::internal("pieces of a file are longer than they should be");
        if pieces().take(FEW + 1).count() <= FEW {
            return pieces().try_for_each(|p| {
                let to = buf.get_mut(target(&p)).ok_or_else(room)?;
                source(p.part)?.read_at(p.at, to)
            });
        }
        // Stripes of a part are neighbours in it, so that what a range has of it is one stretch.
        let mut stretches = BTreeMap::<usize, Range<u64>>::new();
        for p in pieces() {
            let s = stretches.entry(p.part).or_insert(p.at..p.at);
            s.end = s.end.max(p.at + p.len);
        }
        let mut bytes = BTreeMap::new();
        for (part, s) in stretches {
            let mut stretch = vec![0; (s.end - s.start).min(range.end - range.start) as usize];
            source(part)?.read_at(s.start, &mut stretch)?;
            bytes.insert(part, (s.start, stretch));
        }
        for p in pieces() {
            let (start, stretch) = bytes.get(&p.part).ok_or_else(room)?;
            let from = (p.at - start) as usize;
            let from = stretch.get(from..from + p.len as usize).ok_or_else(room)?;
            buf.get_mut(target(&p)).ok_or_else(room)?.copy_from_slice(from);
        }
        Ok(())
    }

    /// Appends the bytes of `range` that lie on the parts `of`, which are here, one after the other. At most [`WINDOW`] of them.
    fn append(
        &self,
        range: &Range<u64>,
        of: &dyn Fn(usize) -> bool,
        to: &mut Vec<u8>,
    ) -> Result<()> {
        let mine = self.layout.pieces(range.clone()).filter(|p| of(p.part));
        let from = to.len();
        to.resize(from + mine.map(|p| p.len as usize).sum::<usize>(), 0);
        self.read_pieces(range, of, true, to.get_mut(from..).unwrap_or_default())
    }

    /// Newlines in those bytes of `range` that lie on the parts `of`, which are here.
    fn newlines(
        &self,
        range: Range<u64>,
        of: &dyn Fn(usize) -> bool,
        stops: &Stops,
    ) -> Result<u64> {
        let (mut at, mut lines, mut bytes) = (range.start, 0, Vec::new());
        while at < range.end {
            stops.check()?;
            let end = range.end.min(at + WINDOW);
            bytes.clear();
            self.append(&(at..end), of, &mut bytes)?;
            lines += bytes.iter().filter(|c| **c == b'\n').count() as u64;
            at = end;
        }
        Ok(lines)
    }
}

/// See the module's documentation.
#[derive(Debug)]
struct Spread {
    whole: Arc<Whole>,
    /// Index of the file in the dataset.
    index: u32,
    /// To those who have the other parts; `None` if all are here.
    link: Option<Arc<Link>>,
}

impl Spread {
    fn is_here(&self, part: usize) -> bool {
        self.whole.parts.get(part).is_some_and(Option::is_some)
    }

    /// What of a range is to be asked for.
    fn asks(&self, range: &Range<u64>) -> Vec<Ask> {
        let whole = &self.whole;
        let mut asks = BTreeMap::<usize, Ask>::new();
        for p in whole.layout.pieces(range.clone()).filter(|p| !self.is_here(p.part)) {
            let group = whole.homes.get(p.part).copied().unwrap_or(usize::MAX);
            let ask = asks.entry(group).or_insert(Ask { group, start: p.offset, end: 0, bytes: 0 });
            ask.end = p.offset + p.len;
            ask.bytes += p.len as usize;
        }
        asks.into_values().collect()
    }

    /// At most [`WINDOW`] bytes.
    fn window(&self, range: &Range<u64>, buf: &mut [u8]) -> Result<()> {
        let whole = &self.whole;
        let here = |part: usize| self.is_here(part);
        let asks = self.asks(range);
        if asks.is_empty() {
            return whole.read_pieces(range, &here, false, buf);
        }
        let link = self.link.as_ref().ok_or_else(|| Error::internal("a part is nowhere"))?;
        let came = link.fetch(self.index, range, &asks, &mut || {
            // While they are under way.
            whole.read_pieces(range, &here, false, buf)
        })?;
        for (ask, bytes) in asks.iter().zip(&came) {
            let mut rest = bytes.as_ref();
            let of = |p: &Piece| !here(p.part) && whole.homes.get(p.part) == Some(&ask.group);
            for p in whole.layout.pieces(range.clone()).filter(of) {
                let at = (p.offset - range.start) as usize;
                let both = rest.split_at_checked(p.len as usize);
                let (Some((bytes, more)), Some(to)) = (both, buf.get_mut(at..at + p.len as usize))
                else {
                    return Err(Error::internal("an answer has another length"));
                };
                to.copy_from_slice(bytes);
                rest = more;
            }
        }
        Ok(())
    }
}

impl Spread {
    /// Newlines in `range`: each is counted where it lies.
    fn count(&self, link: &Link, range: Range<u64>) -> Result<u64> {
        let whole = &self.whole;
        let here = |part: usize| whole.parts.get(part).is_some_and(Option::is_some);
        let (mut at, to, mut lines) = (range.start, range.end.min(self.len()), 0u64);
        while at < to {
            let end = to.min(at + COUNTED);
            let mut asks = BTreeMap::<usize, Ask>::new();
            for p in whole.layout.pieces(at..end).filter(|p| !here(p.part)) {
                let group = whole.homes.get(p.part).copied().unwrap_or(usize::MAX);
                asks.entry(group).or_insert(Ask { group, start: at, end, bytes: size_of::<u64>() });
            }
            let (asks, mut mine): (Vec<Ask>, u64) = (asks.into_values().collect(), 0);
            let theirs = link.newlines(self.index, &asks, &mut || {
                mine = whole.newlines(at..end, &here, link.stops())?;
                Ok(())
            })?;
            lines = lines.saturating_add(theirs).saturating_add(mine);
            at = end;
        }
        Ok(lines)
    }
}

impl Source for Spread {
    fn path(&self) -> &Path {
        &self.whole.path
    }

    fn len(&self) -> u64 {
        self.whole.layout.length()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let fits = offset.checked_add(buf.len() as u64).is_some_and(|end| end <= self.len());
        if !fits {
            return Err(Error::internal("a read past the end").at_path(self.path()));
        }
        let mut at = offset;
        for window in buf.chunks_mut(WINDOW as usize) {
            let end = at + window.len() as u64;
            self.window(&(at..end), window)?;
            at = end;
        }
        Ok(())
    }

    fn lend(&self, offset: u64, len: usize) -> Option<Result<Buffer>> {
        let end = offset.checked_add(len as u64).filter(|end| *end <= self.len())?;
        if len as u64 > WINDOW {
            return None;
        }
        // What is one answer needs no copy.
        let (window, asks) = (offset..end, self.asks(&(offset..end)));
        let link = self
            .link
            .as_ref()
            .filter(|_| matches!(asks[..], [Ask { bytes, .. }] if bytes == len))?;
        let came = link.fetch(self.index, &window, &asks, &mut || Ok(()));
        let one = |mut came: Vec<Came>| {
            came.pop().map(Buffer::held).ok_or_else(|| Error::internal("an answer is missing"))
        };
        Some(came.and_then(one))
    }

    fn ahead(&self, offset: u64, len: usize) {
        let Some(link) = &self.link else { return };
        let end = offset.saturating_add(len as u64).min(self.len());
        let mut at = offset;
        while at < end {
            let window = at..end.min(at + WINDOW);
            at = window.end;
            let asks = self.asks(&window);
            if !asks.is_empty() && !link.begin(self.index, &window, &asks) {
                // No room: the rest is asked for when it is wanted.
                return;
            }
        }
    }

    fn forget(&self, bytes: Range<u64>) {
        self.link.iter().for_each(|link| link.forget(self.index, &bytes));
    }

    fn check(&self) -> Result<()> {
        self.whole.parts.iter().flatten().try_for_each(|part| part.check())
    }

    fn piece(&self, offset: u64, len: u64) -> Option<(&Arc<dyn Source>, u64)> {
        let end = offset.checked_add(len)?;
        let piece = self.whole.layout.pieces(offset..end).next().filter(|p| p.len == len)?;
        Some((self.whole.parts.get(piece.part)?.as_ref()?, piece.at))
    }

    fn newlines(&self, range: Range<u64>) -> Option<Result<u64>> {
        let link = self.link.as_ref()?;
        Some(self.count(link, range))
    }

    fn files(&self) -> Vec<PathBuf> {
        let parts = self.whole.parts.iter().flatten().flat_map(|p| p.files());
        parts.chain(self.whole.described.clone()).chain([self.whole.path.clone()]).collect()
    }
}
