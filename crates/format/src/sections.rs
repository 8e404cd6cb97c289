//! Scanning files of sections: bytes, or records of one length with fields at fixed places.
//!
//! Each section falls into blocks by arithmetic alone, as in `grid`, which reads files of one section whose elements are
//! all of one type. Columns that a section does not have are missing in its rows, and a section is not read if nobody
//! asks for something that it has.

use crate::api::{Progress, Scan, ScanOptions, Share, Worker};
use crate::convert;
use crate::fields::{self, Run};
use crate::held::{self, Runs};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::{Block, ByteOrder, Columns, DType, Error, MISSING, Result, Span, Value, limits};
use stead_store::queue::describe;
use stead_store::{Buffer, ReadQueue, Source};

/// Bytes that are worth a read, whatever the chunk is.
const PIECE_BYTES: u64 = 64 << 10;

/// A part of a file.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    /// Index of the file.
    pub source: usize,
    /// First byte.
    pub offset: u64,
    /// Number of bytes or records; that they lie within the file has been checked.
    pub count: u64,
    pub content: Content,
}

#[derive(Debug, Clone)]
pub(crate) enum Content {
    /// Bytes that are no records: headers.
    Bytes,
    Records(Arc<Records>),
}

/// How the records of a section look.
#[derive(Debug)]
pub(crate) struct Records {
    /// Bytes of one, more than none.
    pub bytes: u64,
    pub byte_order: ByteOrder,
    /// Where each column of the schema lies; `None` for those that are not there, or are text.
    pub places: Vec<Option<Place>>,
    /// The value of every text column is the same in all rows of the section: this part of that text.
    pub text: &'static [u8],
    pub value: Span,
}

/// Where a number lies in a record.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place {
    pub offset: usize,
    pub dtype: DType,
}

/// A section as it is scanned. Its blocks have the numbers `first..first + blocks`.
struct Planned {
    section: Section,
    first: u64,
    blocks: u64,
    /// Bytes or records of one block.
    step: u64,
    /// What blocks that are numbered by their place are numbered from.
    base: u64,
    /// The bytes are looked at.
    reads: bool,
    /// What is taken out of records.
    runs: Vec<Run>,
    /// Of the columns asked for, those that the section does not have.
    missing: Vec<usize>,
}

impl Planned {
    fn unit_bytes(&self) -> u64 {
        match &self.section.content {
            Content::Bytes => 1,
            Content::Records(r) => r.bytes,
        }
    }

    /// First unit of a block and how many it has.
    fn units(&self, block: u64) -> (u64, u64) {
        let first = (block - self.first) * self.step;
        (first, self.step.min(self.section.count - first))
    }
}

pub(crate) struct SectionScan {
    sources: Vec<Arc<dyn Source>>,
    sections: Vec<Planned>,
    options: ScanOptions,
    /// What begins in bytes that this rank holds, if that is its share: the sections with their units. Blocks are then
    /// counted here.
    held: Option<Runs<usize>>,
    /// The next block's number; blocks from `end` on are not ours.
    next: AtomicU64,
    begin: u64,
    end: u64,
    total_bytes: u64,
    /// Workers so far. No one says how many will come; until then `cores` stands for them.
    workers: AtomicU64,
    cores: u64,
    progress: Progress,
}

impl SectionScan {
    /// Plans the scan. Reads nothing.
    ///
    /// # Errors
    /// `Usage` if something is asked for that records of fields do not give.
    pub(crate) fn new(
        sources: &[Arc<dyn Source>],
        sections: Vec<Section>,
        options: &ScanOptions,
    ) -> Result<Self> {
        let needs = &options.needs;
        if needs.brick.is_some() || needs.matrix {
            return Err(Error::usage("records of fields are no array"));
        }
        let mut planned = Vec::with_capacity(sections.len());
        let mut first = 0u64;
        for section in sections {
            let plan = plan(section, first, options)?;
            first = first
                .checked_add(plan.blocks)
                .ok_or_else(|| Error::limit("more blocks than 64 bits can count"))?;
            planned.push(plan);
        }
        let (held, mine) = match &options.share {
            Share::Even { rank, size } => (None, Share::of(first, *rank, *size)),
            Share::Held(all) => {
                held::check(all, sources)?;
                let bases = held::bases(sources.iter().map(|s| s.len()), |len| len)?;
                let mut runs = Runs::new();
                for (i, p) in planned.iter_mut().enumerate() {
                    let s = &p.section;
                    p.base = bases.get(s.source).copied().unwrap_or(0);
                    if p.blocks == 0 {
                        continue;
                    }
                    for h in held::of_source(all, s.source) {
                        let units = held::starts(&h.bytes, s.offset, p.unit_bytes(), s.count);
                        runs.push(i, units, p.step);
                    }
                }
                let blocks = 0..runs.blocks();
                (Some(runs), blocks)
            }
        };
        let mut scan = SectionScan {
            sources: sources.to_vec(),
            sections: planned,
            options: options.clone(),
            held,
            next: AtomicU64::new(mine.start),
            begin: mine.start,
            end: mine.end,
            total_bytes: 0,
            workers: AtomicU64::new(0),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            progress: Progress::default(),
        };
        let bytes = |p: &Planned| {
            let upto = |n: u64| {
                n.saturating_sub(p.first).min(p.blocks).saturating_mul(p.step).min(p.section.count)
            };
            if p.reads { (upto(mine.end) - upto(mine.start)) * p.unit_bytes() } else { 0 }
        };
        scan.total_bytes = match &scan.held {
            None => scan.sections.iter().map(bytes).fold(0, u64::saturating_add),
            Some(runs) => runs
                .iter()
                .map(|(i, units)| (&scan.sections[i], units.end - units.start))
                .map(|(p, units)| if p.reads { units * p.unit_bytes() } else { 0 })
                .fold(0, u64::saturating_add),
        };
        Ok(scan)
    }

    /// The section that block `n` is of, and its first unit and how many it has.
    fn job(&self, n: u64) -> Option<(usize, u64, u64)> {
        if let Some(held) = &self.held {
            return held.get(n).map(|(i, units)| (i, units.start, units.end - units.start));
        }
        // Sections of no blocks have the number of the next one, which comes after them.
        let i = self.sections.partition_point(|s| s.first <= n).checked_sub(1)?;
        let (first, count) = self.sections[i].units(n);
        Some((i, first, count))
    }

    /// What block `n`, which begins at `offset` of its file, is called: by its place among all blocks, or, since no rank
    /// knows how many others have, by that of its first byte.
    fn seq(&self, section: &Planned, n: u64, offset: u64) -> u64 {
        if self.held.is_some() { section.base + offset } else { n }
    }

    /// Blocks that a worker may hold: as many as the queue is deep, but near the end no more than leave
    /// some for the others. Never none.
    fn ahead(&self) -> usize {
        let left = self.end.saturating_sub(self.next.load(Ordering::Relaxed));
        let fair = left / (2 * self.workers.load(Ordering::Relaxed).max(self.cores));
        let depth = self.options.io.depth.max(1);
        usize::try_from(fair).unwrap_or(depth).clamp(1, depth)
    }

    /// True if no block of its file comes after one that ends with unit `end` of a section.
    fn is_last(&self, section: usize, end: u64) -> bool {
        let of = |s: &Planned| s.section.source;
        let s = &self.sections[section];
        end == s.section.count
            && self.sections[section + 1..]
                .iter()
                .take_while(|next| of(next) == of(s))
                .all(|next| next.blocks == 0)
    }
}

/// Blocks of a section, and what is taken out of them.
fn plan(section: Section, first: u64, options: &ScanOptions) -> Result<Planned> {
    let needs = &options.needs;
    let chunk = options.chunk.clamp(1, limits::MAX_CHUNK) as u64;
    let count = section.count;
    let Content::Records(records) = &section.content else {
        let blocks = if needs.bytes { count.div_ceil(chunk) } else { 0 };
        return Ok(Planned {
            section,
            first,
            blocks,
            step: chunk,
            base: 0,
            reads: true,
            runs: Vec::new(),
            missing: Vec::new(),
        });
    };
    let (mut runs, mut missing): (Vec<Run>, _) = (Vec::new(), Vec::new());
    for (slot, id) in needs.numbers.iter().enumerate() {
        let place = records.places.get(*id).ok_or_else(|| {
            Error::usage(format!("a column beyond the {} of these records", records.places.len()))
        })?;
        match place {
            None => missing.push(slot),
            Some(p) => Run::add(&mut runs, p.dtype, p.offset, slot),
        }
    }
    let row = records.bytes.max(1);
    let wide = row.max(8 * needs.numbers.len() as u64);
    let step = (chunk / wide).max(chunk.min(PIECE_BYTES) / row).max(1);
    Ok(Planned {
        reads: needs.bytes || !runs.is_empty(),
        // At least one, so that every file has a last block.
        blocks: count.div_ceil(step).max(1),
        section,
        first,
        step,
        base: 0,
        runs,
        missing,
    })
}

impl Scan for SectionScan {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        self.workers.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(SectionWorker {
            scan: self,
            queue: ReadQueue::new(&self.options.io)?,
            ahead: VecDeque::new(),
            held: Buffer::empty(),
            numbers: Vec::new(),
            records: Vec::new(),
            values: Vec::new(),
        }))
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn plan(&self) -> Vec<(String, Value)> {
        let read = self.sections.iter().filter(|s| s.reads && s.blocks > 0).count();
        let mut entries = vec![
            ("blocks".to_string(), Value::Int(self.end - self.begin)),
            ("sections_read".into(), Value::Int(read as u64)),
            ("columns_read".into(), Value::Int(self.options.needs.numbers.len() as u64)),
        ];
        entries.extend(
            describe(&self.options.io).into_iter().map(|(k, v)| (k.to_string(), Value::Text(v))),
        );
        entries
    }
}

struct SectionWorker<'s> {
    scan: &'s SectionScan,
    queue: ReadQueue,
    /// Blocks that come next, with their sections and units, in the order of the reads in the queue.
    ahead: VecDeque<(u64, usize, u64, u64)>,
    /// The bytes of the block that was handed out last.
    held: Buffer,
    numbers: Vec<f64>,
    records: Vec<Span>,
    /// Values of the text columns.
    values: Vec<Span>,
}

impl SectionWorker<'_> {
    /// Takes blocks and submits their reads until the queue is full.
    fn look_ahead(&mut self) -> Result<()> {
        let scan = self.scan;
        while !self.queue.is_full() && self.ahead.len() < scan.ahead() {
            let n = scan.next.fetch_add(1, Ordering::Relaxed);
            // The counter stays far from overflow: workers stop asking soon after the end.
            let job = (n < scan.end).then(|| scan.job(n)).flatten();
            let Some((i, first, count)) = job else { break };
            let s = &scan.sections[i];
            if s.reads && count > 0 {
                let offset = s.section.offset + first * s.unit_bytes();
                let len = usize::try_from(count * s.unit_bytes())
                    .map_err(|_| Error::internal("a block beyond the memory"))?;
                self.queue.submit(0, &scan.sources[s.section.source], offset, len)?;
            }
            self.ahead.push_back((n, i, first, count));
        }
        Ok(())
    }

    /// Places of `rows` records of `bytes` bytes; of records that are not read they have no length.
    fn places(&mut self, rows: usize, bytes: u64, reads: bool) {
        // At most some tens of bytes; blocks have fewer than 2^30.
        let (bytes, len) = (bytes as u32, if reads { bytes as u32 } else { 0 });
        // The same in each block of a section, so they are mostly written once.
        let fits = |s: &[Span]| match s {
            [] => true,
            [one] => one.len == len,
            [_, second, ..] => second.len == len && second.start == bytes,
        };
        if !fits(&self.records) {
            self.records.clear();
        }
        let known = self.records.len();
        self.records.extend((known..rows).map(|r| Span { start: r as u32 * bytes, len }));
    }
}

impl Worker for SectionWorker<'_> {
    fn next(&mut self) -> Result<Option<Block<'_>>> {
        let scan = self.scan;
        scan.options.cancel.check()?;
        let held = std::mem::replace(&mut self.held, Buffer::empty());
        self.queue.recycle(held)?;
        self.look_ahead()?;
        let Some((n, i, first, count)) = self.ahead.pop_front() else { return Ok(None) };
        let s = &scan.sections[i];
        let needs = &scan.options.needs;
        let offset = s.section.offset + first * s.unit_bytes();
        let mut block = Block {
            // There are at most limits::MAX_SOURCES files.
            source: s.section.source as u32,
            seq: scan.seq(s, n, offset),
            offset,
            last: scan.is_last(i, first + count),
            ..Block::empty()
        };
        if s.reads && count > 0 {
            Progress::add(&scan.progress.bytes, count * s.unit_bytes());
            let Some(done) = self.queue.next()? else {
                return Err(Error::internal("a block without its read"));
            };
            self.held = done.buffer;
        }
        block.columns.number_ids = &needs.numbers;
        block.columns.text_ids = &needs.texts;
        let Content::Records(records) = &s.section.content else {
            return Ok(Some(Block { text: &self.held, ..block }));
        };
        Progress::add(&scan.progress.rows, count);
        let rows =
            usize::try_from(count).map_err(|_| Error::internal("a block beyond the memory"))?;
        if needs.records {
            self.places(rows, records.bytes, s.reads);
            block.records = &self.records[..rows];
        }
        if s.reads && (needs.bytes || needs.records) {
            block.text = &self.held;
        }
        block.rows = rows;
        let stride = convert::column_stride(rows);
        if !needs.numbers.is_empty() {
            self.numbers.resize(stride * needs.numbers.len(), 0.0);
            let (out, bytes) = (&mut self.numbers, records.bytes as usize);
            let rounded =
                fields::gather(&s.runs, records.byte_order, &self.held, bytes, stride, out);
            Progress::add(&scan.progress.rounded, rounded);
            for slot in &s.missing {
                self.numbers[slot * stride..][..rows].fill(MISSING);
            }
        }
        if !needs.texts.is_empty() {
            // Of all text columns in all rows the same.
            if self.values.first().is_some_and(|v| *v != records.value) {
                self.values.clear();
            }
            self.values.resize(stride * needs.texts.len(), records.value);
        }
        block.columns = Columns {
            numbers: &self.numbers,
            spans: &self.values,
            text_data: records.text,
            stride,
            ..block.columns
        };
        Ok(Some(block))
    }
}
