//! A worker's way through extents and streams.

use super::chain::Link;
use super::plan::{Part, Unit};
use super::stream::Stream;
use super::window::Window;
use super::{TextScan, too_long};
use crate::api::{Progress, Worker};
use crate::delimited::parse::{Parser, Piece, Stop};
use crate::delimited::rows::Rows;
use crate::delimited::syntax::State;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use stead_core::{Block, Error, Result};
use stead_store::ReadQueue;

/// Bytes read at least when a record goes on after its extent.
const FIRST_TAIL: u64 = 4096;
/// Bytes read after each extent at once, at most.
const MOST_SLOP: u64 = 16 << 10;

/// One worker.
pub struct TextWorker<'s> {
    scan: &'s TextScan,
    parser: Option<Parser<'s>>,
    queue: ReadQueue,
    /// Units taken and not yet worked on. All but the last are extents, and these are in `queue`.
    taken: VecDeque<Unit>,
    /// The unit that is worked on, or was last.
    current: u64,
    /// Units below this number are published in the chain, as far as they are this worker's.
    published: u64,
    /// No unit is left in the scan.
    drained: bool,
    /// The stream that this worker helps with, and its part.
    stream: Option<(usize, Arc<Stream>)>,
    /// The last part that this worker had to do with: blocks come in file order.
    reached: usize,
    rows: Rows,
    /// The last extent, kept until its block is no longer lent out.
    window: Window,
    /// The last whole records of a stream.
    text: Vec<u8>,
    /// To decode into.
    chunk: Vec<u8>,
}

/// Where the next block lies.
struct Ready {
    part: usize,
    seq: u64,
    offset: u64,
    last: bool,
    /// In the window, or in `text` if it comes from a stream.
    range: Range<usize>,
    streamed: bool,
}

impl<'s> TextWorker<'s> {
    pub fn new(scan: &'s TextScan) -> Result<Self> {
        scan.workers.fetch_add(1, Ordering::Relaxed);
        Ok(TextWorker {
            scan,
            parser: scan.parser()?,
            queue: ReadQueue::new(&scan.options.io)?,
            taken: VecDeque::new(),
            current: 0,
            published: 0,
            drained: false,
            stream: None,
            reached: 0,
            rows: Rows::default(),
            window: Window::default(),
            text: Vec::new(),
            chunk: Vec::new(),
        })
    }

    /// An error about the extent that was looked at last.
    fn at_part(&self, e: Error) -> Error {
        e.at_source(self.part(self.reached).index)
    }

    fn part(&self, index: usize) -> &'s Part {
        &self.scan.plan.parts[index]
    }

    /// Takes units as long as reads may be put in flight. A stream ends that: it takes long.
    fn take(&mut self) -> Result<()> {
        let streamed = |u: &Unit, s: &Self| s.part(u.part).codec.is_some();
        // In a chain, an extent that is taken and not yet looked at makes others wait: only those are taken
        // beforehand that are read meanwhile and looked at as soon as they come.
        let ahead = |s: &Self| s.taken.is_empty() || !s.scan.is_chained() || s.queue.reads_ahead();
        while !self.drained
            && !self.queue.is_full()
            && !self.taken.back().is_some_and(|u| streamed(u, self))
            && ahead(self)
        {
            let Some(unit) = self.scan.take() else {
                self.drained = true;
                break;
            };
            let part = self.part(unit.part);
            if part.codec.is_some() {
                if self.scan.is_chained() {
                    // The file after it begins afresh.
                    let transition = self.scan.syntax().transition(b"");
                    let link = Link { transition, begins: unit.begins, wanted: false };
                    self.scan.chain.publish(unit.number, link);
                }
                self.taken.push_back(unit);
                continue;
            }
            let start = unit.extent.offset - unit.lead();
            // Saves a second read for most last records.
            let slop = (self.scan.options.chunk as u64 / 64).min(MOST_SLOP);
            let after = if unit.ahead { 0 } else { slop };
            let end = unit.extent.end().saturating_add(after).min(unit.near.end);
            let number = unit.number;
            self.taken.push_back(unit);
            self.queue
                .submit(number, &part.source, start, (end - start) as usize)
                .map_err(|e| e.at_source(part.index))?;
            if self.scan.is_chained() && !self.queue.reads_ahead() {
                self.read_ahead(number);
            }
        }
        Ok(())
    }

    /// Has the extents read that will be taken after unit `number` by this worker and all others.
    fn read_ahead(&mut self, number: u64) {
        let scan = self.scan;
        let depth = scan.options.io.depth as u64;
        if depth < 2 {
            return;
        }
        // The first ones to take units ask for all up to the distance; later ones for one more each.
        let distance = depth.saturating_mul(scan.workers.load(Ordering::Relaxed));
        let to = number.saturating_add(distance);
        let from = scan.advised.fetch_max(to, Ordering::Relaxed).max(number + 1);
        for n in from..to {
            let Some(unit) = scan.plan.unit(n, scan.options.chunk as u64) else { break };
            let part = self.part(unit.part);
            if part.codec.is_none() {
                let len = unit.extent.len as usize;
                self.queue.advise(&part.source, unit.extent.offset, len);
            }
        }
    }

    fn advance(&mut self) -> Result<Option<Ready>> {
        loop {
            self.scan.options.cancel.check()?;
            if let Some(read) = self.window.unload(8 * self.scan.options.chunk) {
                self.queue.recycle(read).map_err(|e| self.at_part(e))?;
            }
            if let Some((part, stream)) = self.stream.clone() {
                if let Some(ready) = self.streamed(part, &stream)? {
                    return Ok(Some(ready));
                }
                self.scan.close_stream(part);
                self.stream = None;
            }
            self.take()?;
            if self.scan.is_chained() {
                self.publish_landed();
                while self.queue.wait()? {
                    self.publish_landed();
                }
            }
            let Some(unit) = self.taken.pop_front() else {
                self.stream = self.scan.join_stream(self.reached);
                if let Some((part, _)) = &self.stream {
                    self.reached = *part;
                    continue;
                }
                return Ok(None);
            };
            self.reached = unit.part;
            self.current = unit.number;
            if self.part(unit.part).codec.is_some() {
                self.stream = Some((unit.part, self.scan.open_stream(unit.part)?));
                continue;
            }
            if let Some(ready) = self.extent(&unit)? {
                return Ok(Some(ready));
            }
        }
    }

    /// The next records of a stream; `None` at its end.
    fn streamed(&mut self, part: usize, stream: &Stream) -> Result<Option<Ready>> {
        let source = self.part(part).index;
        loop {
            let cancel = &self.scan.options.cancel;
            let cut = stream
                .next(&mut self.chunk, &mut self.text, cancel)
                .map_err(|e| e.at_source(source))?;
            let Some(cut) = cut else { return Ok(None) };
            Progress::add(&self.scan.progress.bytes, cut.compressed);
            if cut.last {
                self.part(part).source.check().map_err(|e| e.at_source(source))?;
            }
            if self.text.is_empty() {
                continue;
            }
            self.begin();
            let text = std::mem::take(&mut self.text);
            // Records end where the text does, so that is the end of a file to the parser.
            let piece = self.piece(part, &text, cut.offset, text.len(), true);
            let stop = self.parse(&piece, 0);
            if let (Some(p), Ok(_)) = (&self.parser, &stop) {
                p.finish(&text, &mut self.rows);
            }
            self.text = text;
            stop.map_err(|e| settle(e, source, cut.offset))?;
            return Ok(Some(Ready {
                part,
                seq: self.part(part).seq + cut.index,
                offset: cut.offset,
                last: cut.last,
                range: 0..self.text.len(),
                streamed: true,
            }));
        }
    }

    /// The records of an extent; `None` if none starts in it.
    fn extent(&mut self, unit: &Unit) -> Result<Option<Ready>> {
        let done = self.queue.next().map_err(|e| e.at_source(unit.extent.source))?;
        let done = done.ok_or_else(|| Error::internal("a read got lost"))?;
        self.window.load(unit.extent.offset - unit.lead(), done.buffer);
        Progress::add(&self.scan.progress.bytes, unit.extent.len);
        let source = &self.part(unit.part).source;
        if unit.extent.end() == source.len() {
            source.check().map_err(|e| e.at_source(unit.extent.source))?;
        }
        let Some(first) = self.first_record(unit)? else { return Ok(None) };
        let range = self.records(unit, first)?;
        let offset = self.window.base + range.start as u64;
        let end = self.window.base + range.end as u64;
        let last = end == source.len();
        let ready = Ready { part: unit.part, seq: unit.seq, offset, last, range, streamed: false };
        Ok((!ready.range.is_empty()).then_some(ready))
    }

    /// Publishes what the extents do to the automaton that are read and not yet taken from the queue, in
    /// their order as far as there is no gap.
    fn publish_landed(&mut self) {
        for (i, unit) in self.taken.iter().enumerate() {
            if unit.number < self.published {
                continue;
            }
            let Some(bytes) = self.queue.landed(i) else { break };
            self.publish(unit, bytes);
            self.published = unit.number + 1;
        }
    }

    /// Publishes what an extent does to the automaton. `bytes` begin where its window does.
    fn publish(&self, unit: &Unit, bytes: &[u8]) {
        let start = unit.lead() as usize;
        let end = start + unit.extent.len as usize;
        let transition = self.scan.syntax().transition(&bytes[start + self.in_mark(unit)..end]);
        let link = Link { transition, begins: unit.begins, wanted: !unit.ahead };
        self.scan.chain.publish(unit.number, link);
    }

    /// Bytes of the extent that belong to the byte order mark.
    fn in_mark(&self, unit: &Unit) -> usize {
        let bom = self.part(unit.part).head.bom as u64;
        bom.saturating_sub(unit.extent.offset).min(unit.extent.len) as usize
    }

    /// The state in which an extent begins.
    fn state(&mut self, unit: &Unit) -> Result<State> {
        loop {
            let known = self.scan.chain.start(unit.number, &self.scan.options.cancel)?;
            if let Some(state) = known {
                return Ok(state);
            }
            self.queue.poll()?;
            self.publish_landed();
        }
    }

    /// The byte before an extent. One that this rank does not hold is asked for.
    fn byte_before(&self, unit: &Unit) -> Result<Option<u8>> {
        let Some(at) = unit.extent.offset.checked_sub(1) else { return Ok(None) };
        if unit.lead() > 0 {
            return Ok(self.window.bytes().first().copied());
        }
        let mut byte = [0];
        let source = &self.part(unit.part).source;
        source.read_at(at, &mut byte).map_err(|e| e.at_source(unit.extent.source))?;
        Ok(Some(byte[0]))
    }

    /// Index in the window at which the first record of the extent starts; `None` if none does.
    fn first_record(&mut self, unit: &Unit) -> Result<Option<usize>> {
        let start = (unit.extent.offset - self.window.base) as usize;
        let end = start + unit.extent.len as usize;
        let bom = self.part(unit.part).head.bom as u64;
        let state = if self.scan.is_chained() {
            if unit.number >= self.published {
                self.publish(unit, self.window.bytes());
                self.published = unit.number + 1;
            }
            if unit.ahead {
                return Ok(None);
            }
            self.state(unit)?
        } else if self.byte_before(unit)?.is_none_or(|b| b == b'\n') {
            State::Record
        } else {
            State::Plain
        };
        // Every byte of the mark may begin a block of records.
        let marked = unit.extent.offset <= bom && !self.scan.options.needs.only_bytes();
        if state == State::Record || marked {
            return Ok(Some(start));
        }
        let bytes = self.window.bytes();
        Ok(self.scan.syntax().record_end(&bytes[..end], start, state).ok().filter(|n| *n < end))
    }

    /// Parses the records that start in the extent, the first of them at index `first` of the window.
    /// Reads on where the last one does. Gives where in the window they lie.
    fn records(&mut self, unit: &Unit, mut first: usize) -> Result<Range<usize>> {
        let source = &self.part(unit.part).source;
        let offset = self.window.base + first as u64;
        self.begin();
        let mut from = 0;
        loop {
            // Lent out for the time of parsing, which needs the rest of `self`.
            let window = std::mem::take(&mut self.window);
            let text = &window.bytes()[first..];
            let stop = unit.extent.end().saturating_sub(offset).min(text.len() as u64) as usize;
            let piece = self.piece(unit.part, text, offset, stop, window.end() == source.len());
            let stop = self.parse(&piece, from);
            if let (Some(p), Ok(Stop { next, complete: true })) = (&self.parser, &stop) {
                p.finish(&text[..*next], &mut self.rows);
            }
            self.window = window;
            let stop = stop.map_err(|e| settle(e, unit.extent.source, offset))?;
            if stop.complete {
                return Ok(first..first + stop.next);
            }
            from = stop.next;
            let record = offset + from as u64;
            let have = self.window.end() - record;
            let most = self.scan.options.max_record as u64;
            if have > most {
                return Err(too_long(most).at_source(unit.extent.source).at_offset(record));
            }
            self.scan.options.cancel.check()?;
            let want = have.saturating_mul(2).max(FIRST_TAIL).min(most.saturating_add(1));
            let to = (record + want).min(source.len());
            self.window
                .widen(source.as_ref(), first, to)
                .map_err(|e| e.at_source(unit.extent.source))?;
            first = 0;
        }
    }

    fn begin(&mut self) {
        match &self.parser {
            Some(p) => p.begin(&mut self.rows),
            None => self.rows.clear(0, 0),
        }
    }

    fn piece<'t>(
        &self,
        part: usize,
        text: &'t [u8],
        offset: u64,
        stop: usize,
        eof: bool,
    ) -> Piece<'t> {
        let head = &self.part(part).head;
        // Beyond the text it does not matter how far.
        let rel = |to: u64| to.saturating_sub(offset).min(text.len() as u64) as usize;
        Piece { text, skip: rel(head.data_start), bom: rel(head.bom as u64), stop, eof }
    }

    fn parse(&mut self, piece: &Piece<'_>, from: usize) -> Result<Stop> {
        match &self.parser {
            Some(p) => p.parse(piece, from, &mut self.rows),
            None if self.scan.options.needs.only_bytes() => Ok(crate::lines::cut(piece, from)),
            None => {
                let spans = self.scan.options.needs.records;
                Ok(crate::lines::parse(piece, from, spans, &mut self.rows))
            }
        }
    }
}

impl Worker for TextWorker<'_> {
    fn next(&mut self) -> Result<Option<Block<'_>>> {
        let ready = match self.advance() {
            Ok(Some(ready)) => ready,
            Ok(None) => return Ok(None),
            Err(e) => {
                self.scan.chain.fail(self.current);
                // What was found in bytes that went away is not in the file.
                self.window.check().map_err(|e| self.at_part(e))?;
                return Err(e);
            }
        };
        let progress = &self.scan.progress;
        Progress::add(&progress.rows, self.rows.rows as u64);
        Progress::add(&progress.skipped, self.rows.skipped);
        Progress::add(&progress.rounded, self.rows.rounded);
        let bytes = if ready.streamed { &self.text } else { self.window.bytes() };
        let text = &bytes[ready.range];
        let mark = (self.part(ready.part).head.bom as u64).saturating_sub(ready.offset);
        let needs = &self.scan.options.needs;
        Ok(Some(Block {
            source: self.part(ready.part).index,
            seq: ready.seq,
            offset: ready.offset,
            last: ready.last,
            rows: self.rows.rows,
            text,
            mark: mark.min(text.len() as u64) as usize,
            records: &self.rows.records,
            columns: self.rows.columns(text, &needs.numbers, &needs.texts),
            ..Block::empty()
        }))
    }
}

impl Drop for TextWorker<'_> {
    fn drop(&mut self) {
        // Extents that this worker took and nobody will look at now.
        if std::thread::panicking() {
            self.scan.chain.fail(self.current);
        } else if let Some(unit) = self.taken.front() {
            self.scan.chain.fail(unit.number);
        }
    }
}

/// Turns an offset within a block into one within the file.
fn settle(e: Error, source: u32, offset: u64) -> Error {
    let e = match e.place().offset {
        Some(o) => e.at_offset(offset + o),
        None => e,
    };
    e.at_source(source)
}
