//! A worker's way through the extents of plain files.

use super::TextScan;
use super::chain::Link;
use super::plan::{Part, Unit};
use crate::api::{Progress, Worker};
use crate::delimited::parse::{Parser, Piece};
use crate::delimited::rows::Rows;
use crate::delimited::syntax::State;
use std::collections::VecDeque;
use stead_core::{Block, Error, Kind, Result};
use stead_store::{Buffer, IoOptions, ReadQueue};

/// One worker.
pub struct ExtentWorker<'s> {
    scan: &'s TextScan,
    parser: Option<Parser<'s>>,
    queue: ReadQueue,
    /// Units in `queue`, in its order.
    taken: VecDeque<Unit>,
    /// No unit is left in the scan.
    drained: bool,
    rows: Rows,
    /// The last extent read, kept until its block is no longer lent out.
    window: Window,
}

/// Bytes of a file from some offset on.
#[derive(Default)]
struct Window {
    /// Offset in the file of the first byte.
    base: u64,
    /// As it came from the queue.
    read: Option<Buffer>,
    /// A copy with more after it, in use if `widened`.
    wide: Vec<u8>,
    widened: bool,
}

impl Window {
    fn bytes(&self) -> &[u8] {
        match &self.read {
            _ if self.widened => &self.wide,
            Some(b) => b,
            None => &[],
        }
    }

    fn end(&self) -> u64 {
        self.base + self.bytes().len() as u64
    }

    /// Reads on up to offset `to`, dropping what lies before index `from`.
    fn widen(&mut self, part: &Part, from: usize, to: u64) -> Result<()> {
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
        self.wide.resize(want, 0);
        part.source.read_at(self.base + have as u64, &mut self.wide[have..])
    }
}

impl<'s> ExtentWorker<'s> {
    pub fn new(scan: &'s TextScan) -> Result<Self> {
        let mut io: IoOptions = scan.options.io;
        if scan.is_chained() {
            // An extent that is taken and not yet looked at makes others wait: take one at a time.
            io.depth = 1;
        }
        Ok(ExtentWorker {
            scan,
            parser: scan.parser()?,
            queue: ReadQueue::new(&io)?,
            taken: VecDeque::new(),
            drained: false,
            rows: Rows::default(),
            window: Window::default(),
        })
    }

    /// Bytes read after each extent at once, to save a second read for most last records.
    fn slop(&self) -> u64 {
        (self.scan.options.chunk as u64 / 128).min(16 << 10)
    }

    /// Reads the next extent into the window.
    fn read(&mut self) -> Result<Option<Unit>> {
        while !self.drained && !self.queue.is_full() {
            let Some(unit) = self.scan.take() else {
                self.drained = true;
                break;
            };
            self.taken.push_back(unit);
            let part = &self.scan.plan.parts[unit.part];
            let start = unit.extent.offset.saturating_sub(1);
            let after = if unit.ahead { 0 } else { self.slop() };
            let end = unit.extent.end().saturating_add(after).min(part.source.len());
            self.queue
                .submit(unit.number, &part.source, start, (end - start) as usize)
                .map_err(|e| e.at_source(part.index))?;
        }
        let Some(unit) = self.taken.pop_front() else { return Ok(None) };
        if let Some(b) = self.window.read.take() {
            self.queue.recycle(b);
        }
        self.window.widened = false;
        if self.window.wide.capacity() > 8 * self.scan.options.chunk {
            // A giant record passed; do not keep its memory.
            self.window.wide = Vec::new();
        }
        let done = self.queue.next().map_err(|e| e.at_source(unit.extent.source))?;
        let done = done.ok_or_else(|| Error::internal("a read got lost"))?;
        self.window.base = unit.extent.offset.saturating_sub(1);
        self.window.read = Some(done.buffer);
        Progress::add(&self.scan.progress.bytes, unit.extent.len);
        Ok(Some(unit))
    }

    /// Index in the window at which the first record of the extent starts; `None` if none does.
    fn first_record(&self, unit: &Unit) -> Result<Option<usize>> {
        let part = &self.scan.plan.parts[unit.part];
        let bytes = self.window.bytes();
        let start = (unit.extent.offset - self.window.base) as usize;
        let end = start + unit.extent.len as usize;
        let bom = part.head.bom as u64;
        let syntax = self.scan.layout.syntax();
        let in_mark = bom.saturating_sub(unit.extent.offset).min(unit.extent.len) as usize;
        let state = if self.scan.is_chained() {
            let transition = syntax.transition(&bytes[start + in_mark..end]);
            let link = Link { transition, fresh: unit.fresh, wanted: !unit.ahead };
            self.scan.chain.publish(unit.number, link);
            if unit.ahead {
                return Ok(None);
            }
            self.scan.chain.start(unit.number, &self.scan.options.cancel)?
        } else if start == 0 || bytes[start - 1] == b'\n' {
            State::Record
        } else {
            State::Plain
        };
        if state == State::Record || unit.extent.offset <= bom {
            return Ok(Some(start));
        }
        Ok(syntax.record_end(&bytes[..end], start, state).ok().filter(|n| *n < end))
    }

    /// Parses the records of the extent; gives where in the window its block lies, `None` if it is empty.
    fn parse(&mut self, unit: &Unit, first: usize) -> Result<std::ops::Range<usize>> {
        let part = &self.scan.plan.parts[unit.part];
        let len = part.source.len();
        let mut first = first;
        let offset = self.window.base + first as u64;
        if let Some(p) = &self.parser {
            p.begin(&mut self.rows);
        } else {
            self.rows.clear(0, 0);
        }
        let mut from = 0;
        loop {
            let text = &self.window.bytes()[first..];
            let rel = |to: u64| to.saturating_sub(offset).min(text.len() as u64) as usize;
            let piece = Piece {
                text,
                skip: part.head.data_start.saturating_sub(offset) as usize,
                bom: (part.head.bom as u64).saturating_sub(offset) as usize,
                stop: rel(unit.extent.end()),
                eof: self.window.end() == len,
            };
            let stop = match &self.parser {
                Some(p) => p.parse(&piece, from, &mut self.rows),
                None => {
                    let spans = self.scan.options.needs.records;
                    Ok(crate::lines::parse(&piece, from, spans, &mut self.rows))
                }
            };
            let stop = stop.map_err(|e| settle(e, unit.extent.source, offset))?;
            if stop.complete {
                let end = stop.next;
                if let Some(p) = &self.parser {
                    p.finish(&text[..end], &mut self.rows);
                }
                return Ok(first..first + end);
            }
            from = stop.next;
            let record = offset + from as u64;
            let have = self.window.end() - record;
            let most = self.scan.options.max_record as u64;
            if have > most {
                return Err(too_long(most).at_source(unit.extent.source).at_offset(record));
            }
            self.scan.options.cancel.check()?;
            let more = have.saturating_mul(2).clamp(4096, most + 1);
            let to = (record + more).max(self.window.end() + 1).min(len);
            self.window.widen(part, first, to).map_err(|e| e.at_source(unit.extent.source))?;
            first = 0;
        }
    }

    fn advance(&mut self) -> Result<Option<(Unit, std::ops::Range<usize>)>> {
        loop {
            self.scan.options.cancel.check()?;
            let Some(unit) = self.read()? else { return Ok(None) };
            let Some(first) = self.first_record(&unit)? else { continue };
            let range = self.parse(&unit, first)?;
            if !range.is_empty() {
                return Ok(Some((unit, range)));
            }
        }
    }
}

impl Worker for ExtentWorker<'_> {
    fn next(&mut self) -> Result<Option<Block<'_>>> {
        let advanced = match self.advance() {
            Ok(a) => a,
            Err(e) => {
                self.scan.chain.fail();
                return Err(e);
            }
        };
        let Some((unit, range)) = advanced else { return Ok(None) };
        let part = &self.scan.plan.parts[unit.part];
        let offset = self.window.base + range.start as u64;
        let progress = &self.scan.progress;
        Progress::add(&progress.rows, self.rows.rows as u64);
        Progress::add(&progress.skipped, self.rows.skipped);
        Progress::add(&progress.rounded, self.rows.rounded);
        let text = &self.window.bytes()[range];
        let needs = &self.scan.options.needs;
        Ok(Some(Block {
            source: unit.extent.source,
            seq: unit.seq,
            offset,
            last: offset + text.len() as u64 == part.source.len(),
            rows: self.rows.rows,
            text,
            records: &self.rows.records,
            columns: self.rows.columns(text, &needs.numbers, &needs.texts),
            ..Block::empty()
        }))
    }
}

impl Drop for ExtentWorker<'_> {
    fn drop(&mut self) {
        // Extents that this worker took and nobody will look at now.
        if !self.taken.is_empty() || std::thread::panicking() {
            self.scan.chain.fail();
        }
    }
}

/// Turns an offset within a block into one within the file.
pub(super) fn settle(e: Error, source: u32, offset: u64) -> Error {
    let e = match e.place().offset {
        Some(o) => e.at_offset(offset + o),
        None => e,
    };
    e.at_source(source)
}

/// The error for a record that is too long.
pub(super) fn too_long(most: u64) -> Error {
    Error::new(
        Kind::Limit,
        format!(
            "the record that starts here is longer than {}",
            stead_core::units::format_size(most)
        ),
    )
    .with_hint("a quote that is never closed makes one record of many lines; if quotes have no meaning here, say --quote none")
}
