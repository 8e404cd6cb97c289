//! Scanning files whose records all have the same length: arrays and fixed records.
//!
//! Each file falls into blocks by arithmetic alone: first the bytes before the data, then runs of rows,
//! and after them, where the columns of a 2-d array lie apart from each other (Fortran order), the
//! file's bytes once more for those who asked for bytes. Blocks have numbers, a worker takes the next
//! one, and nothing has to be searched or stored.
//!
//! What a block carries:
//!
//! | layout | columns | bytes, records |
//! |---|---|---|
//! | rows in one piece | with the rows | with the rows; for bytes, the head in blocks of no rows before them |
//! | columns apart | read column by column | bytes in blocks of no rows after the others; records are places of no bytes |
//!
//! Both give a matrix to whom it is asked for: rows in one piece lend their bytes if these are the `f64` of this machine.

use crate::api::{Held, Progress, Scan, ScanOptions, Share, Worker};
use crate::convert;
use crate::held::{self, Runs};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use stead_core::block::{Matrix, brick_planes, stretch_rows};
use stead_core::{
    Block, Brick, ByteOrder, Columns, DType, Error, Needs, Order, Result, Span, Value, limits,
};
use stead_store::queue::describe;
use stead_store::{Buffer, ReadQueue, Source};

/// Bytes that one block of a column-by-column read may take in all.
const SPLIT_BYTES: u64 = 64 << 20;
/// Shortest piece of one column worth a read of its own.
const PIECE_BYTES: u64 = 64 << 10;

/// How the rows lie in one file.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Layout {
    /// Bytes before the first row.
    pub head: u64,
    /// Number of rows; 0 if they would be empty.
    pub rows: u64,
    /// Bytes of one row; `head + rows * row_bytes` is the length of the file.
    pub row_bytes: u64,
    /// What is in the rows; `None` if that is nobody's business.
    pub elements: Option<Elements>,
}

/// What is in the rows of an array.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Elements {
    pub dtype: DType,
    pub byte_order: ByteOrder,
    /// Number of columns; a row has one element of each.
    pub columns: usize,
    /// True if each column lies in one piece, one after the other, and not the rows.
    pub apart: bool,
    /// Shape of a 3-d array, slowest dimension first in the file, and how the user counts.
    pub grid: Option<([u64; 3], Order)>,
}

/// One file of the scan. Its blocks have the numbers `first..first + heads + runs + tails`.
struct Part {
    source: Arc<dyn Source>,
    layout: Layout,
    first: u64,
    /// Blocks of bytes before the rows.
    heads: u64,
    /// Blocks of rows; at least one, so that every file has a last block.
    runs: u64,
    /// Rows of one block.
    step: u64,
    /// Blocks of bytes after the rows.
    tails: u64,
    /// What blocks that are numbered by their place are numbered from.
    base: u64,
}

/// What blocks are made of.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Heads,
    Rows,
    Tails,
}

/// What one block covers.
#[derive(Debug, Clone, Copy)]
enum Job {
    Bytes { offset: u64, len: u64 },
    Rows { first: u64, rows: u64 },
}

pub(crate) struct GridScan {
    parts: Vec<Part>,
    options: ScanOptions,
    /// Bytes of a block of bytes.
    chunk: u64,
    /// False if rows are only counted.
    reads: bool,
    /// Columns that are read where they lie apart.
    apart: Vec<usize>,
    /// What begins in bytes that this rank holds, if that is its share: the parts with their bytes or rows. Blocks are then
    /// counted here.
    held: Option<Runs<(usize, Kind)>>,
    /// The next block's number; blocks from `end` on are not ours.
    next: AtomicU64,
    begin: u64,
    end: u64,
    total_bytes: u64,
    /// Workers so far. No one says how many will come; until then `cores` stands for them.
    workers: AtomicU64,
    cores: u64,
    /// Bricks and stretches do not follow the chunk, so fewer are read ahead where they are larger.
    most_ahead: usize,
    progress: Progress,
}

impl GridScan {
    /// Plans the scan. Reads nothing.
    ///
    /// # Errors
    /// `Usage` if something is asked for that the layout cannot give; `Limit` if one row or one cell of
    /// the brick grid is too large for a block.
    pub(crate) fn new(
        files: Vec<(Arc<dyn Source>, Layout)>,
        options: &ScanOptions,
    ) -> Result<Self> {
        let needs = &options.needs;
        let bytes = needs.bytes || needs.records;
        let chunk = options.chunk.clamp(1, limits::MAX_CHUNK) as u64;
        let width = |l: &Layout| l.elements.as_ref().map_or(0, |e| e.columns);
        let apart = if needs.matrix {
            (0..files.iter().map(|(_, l)| width(l)).max().unwrap_or(0)).collect()
        } else {
            needs.numbers.clone()
        };
        let mut parts = Vec::with_capacity(files.len());
        let mut first = 0u64;
        for (source, layout) in files {
            let step = plan(&layout, options, chunk).map_err(|e| e.at_path(source.path()))?;
            let apart = layout.elements.as_ref().is_some_and(|e| e.apart);
            // Who asks for records alone sees no more than those, however long the head is.
            let heads = if needs.bytes && !apart { layout.head.div_ceil(chunk) } else { 0 };
            let tails = if needs.bytes && apart { source.len().div_ceil(chunk) } else { 0 };
            let runs = layout.rows.div_ceil(step).max(1);
            parts.push(Part { source, layout, first, heads, runs, step, tails, base: 0 });
            let blocks = [heads, runs, tails].into_iter().try_fold(first, u64::checked_add);
            first = blocks.ok_or_else(|| Error::limit("more blocks than 64 bits can count"))?;
        }
        let (held, mine) = match &options.share {
            Share::Even { rank, size } => (None, Share::of(first, *rank, *size)),
            Share::Held(all) => {
                let runs = what_begins(&mut parts, all, needs, chunk)?;
                let blocks = 0..runs.blocks();
                (Some(runs), blocks)
            }
        };
        let (begin, end) = (mine.start, mine.end);
        let mut scan = GridScan {
            parts,
            options: options.clone(),
            chunk,
            reads: bytes || needs.brick.is_some() || needs.matrix || !needs.numbers.is_empty(),
            apart,
            held,
            next: AtomicU64::new(begin),
            begin,
            end,
            total_bytes: 0,
            workers: AtomicU64::new(0),
            cores: std::thread::available_parallelism().map_or(1, |n| n.get() as u64),
            most_ahead: usize::MAX,
            progress: Progress::default(),
        };
        if needs.brick.is_some() || needs.matrix {
            let block = |p: &Part| p.step.saturating_mul(p.layout.row_bytes);
            let largest = scan.parts.iter().map(block).max().unwrap_or(0).max(1);
            let queue = chunk.saturating_mul(options.io.depth.max(1) as u64);
            scan.most_ahead = usize::try_from(queue / largest).unwrap_or(usize::MAX).max(1);
        }
        scan.total_bytes = match &scan.held {
            None => scan.parts.iter().map(|p| scan.part_bytes(p, begin, end)).fold(0, add),
            Some(runs) => runs
                .iter()
                .map(|((i, kind), units)| scan.job_bytes(&scan.parts[i], kind.job(units.clone())))
                .fold(0, add),
        };
        Ok(scan)
    }

    /// Bytes that the blocks `begin..end` of a file stand for: arithmetic, as there may be very many.
    fn part_bytes(&self, part: &Part, begin: u64, end: u64) -> u64 {
        // Of one kind of block, `count` of them from `first` on, how many units of `step` are in range.
        let units = |first: u64, count: u64, step: u64, total: u64| {
            let after = |n: u64| n.saturating_sub(first).min(count).saturating_mul(step).min(total);
            after(end) - after(begin)
        };
        let runs = part.first + part.heads;
        let row = self.job_bytes(part, Job::Rows { first: 0, rows: 1 });
        units(runs, part.runs, part.step, part.layout.rows)
            .saturating_mul(row)
            .saturating_add(units(part.first, part.heads, self.chunk, part.layout.head))
            .saturating_add(units(runs + part.runs, part.tails, self.chunk, part.source.len()))
    }

    /// The file and the content of block `n`.
    fn job(&self, n: u64) -> Option<(usize, Job)> {
        if let Some(held) = &self.held {
            return held.get(n).map(|((i, kind), units)| (i, kind.job(units)));
        }
        let i = self.parts.partition_point(|p| p.first <= n).checked_sub(1)?;
        let part = &self.parts[i];
        let bytes = |k: u64, total: u64| {
            let offset = k * self.chunk;
            Job::Bytes { offset, len: self.chunk.min(total - offset) }
        };
        let k = n - part.first;
        let job = if k < part.heads {
            bytes(k, part.layout.head)
        } else if k < part.heads + part.runs {
            let first = (k - part.heads) * part.step;
            Job::Rows { first, rows: part.step.min(part.layout.rows - first) }
        } else {
            bytes(k - part.heads - part.runs, part.source.len())
        };
        Some((i, job))
    }

    /// Blocks that a worker may hold: as many as the queue is deep, but near the end no more than leave
    /// some for the others. Never none.
    fn ahead(&self) -> usize {
        let left = self.end.saturating_sub(self.next.load(Ordering::Relaxed));
        let fair = left / (2 * self.workers.load(Ordering::Relaxed).max(self.cores));
        let depth = self.options.io.depth.max(1);
        usize::try_from(fair).unwrap_or(depth).clamp(1, self.most_ahead.min(depth))
    }

    /// What a block is called, and whether it is the last one of its file.
    fn place(&self, part: &Part, n: u64, job: Job) -> (u64, bool) {
        if self.held.is_none() {
            return (n, n + 1 == part.first + part.heads + part.runs + part.tails);
        }
        // No rank knows how many blocks others have, so they are called by the place of their first byte.
        match job {
            Job::Bytes { offset, len } if part.tails > 0 => {
                let file = part.source.len();
                (part.base + file + offset, offset + len == file)
            }
            Job::Bytes { offset, .. } => (part.base + offset, false),
            Job::Rows { first, rows } => {
                let seq = part.base + part.layout.place(first);
                (seq, part.tails == 0 && first + rows == part.layout.rows)
            }
        }
    }

    /// Bytes of the file that the block stands for, halo not counted twice.
    fn job_bytes(&self, part: &Part, job: Job) -> u64 {
        match (job, &part.layout.elements) {
            (Job::Bytes { len, .. }, _) => len,
            (Job::Rows { .. }, _) if !self.reads => 0,
            (Job::Rows { rows, .. }, Some(e)) if e.apart => {
                rows * (e.dtype.size() * self.apart.len()) as u64
            }
            (Job::Rows { rows, .. }, _) => rows * part.layout.row_bytes,
        }
    }
}

impl Kind {
    /// A block of these bytes or rows.
    fn job(self, units: Range<u64>) -> Job {
        let (first, count) = (units.start, units.end - units.start);
        match self {
            Kind::Rows => Job::Rows { first, rows: count },
            Kind::Heads | Kind::Tails => Job::Bytes { offset: first, len: count },
        }
    }
}

impl Layout {
    /// The first byte of a row; where columns lie apart, of its element in the first one.
    fn place(&self, row: u64) -> u64 {
        self.head + row * self.pace()
    }

    /// Bytes from that byte to that of the next row.
    fn pace(&self) -> u64 {
        match &self.elements {
            Some(e) if e.apart => e.dtype.size() as u64,
            _ => self.row_bytes,
        }
    }
}

/// What of the parts begins in the bytes that a rank holds. Rows that are handed out together, as stretches of a matrix and
/// cells of bricks are, are those of the rank that holds the first byte of the first one.
fn what_begins(
    parts: &mut [Part],
    all: &[Held],
    needs: &Needs,
    chunk: u64,
) -> Result<Runs<(usize, Kind)>> {
    let sources: Vec<Arc<dyn Source>> = parts.iter().map(|p| p.source.clone()).collect();
    held::check(all, &sources)?;
    // Bytes that come after the rows are numbered from the length of the file on.
    let bases = held::bases(sources.iter().map(|s| s.len()), |len| 2 * len)?;
    let mut runs = Runs::new();
    for (i, (part, base)) in parts.iter_mut().zip(bases).enumerate() {
        part.base = base;
        let (layout, step) = (&part.layout, part.step);
        let mine = held::of_source(all, i);
        if part.heads > 0 {
            let head = |h: &Held| h.bytes.start.min(layout.head)..h.bytes.end.min(layout.head);
            mine.iter().for_each(|h| runs.push((i, Kind::Heads), head(h), chunk));
        }
        let together = match &layout.elements {
            _ if needs.brick.is_some() => step,
            Some(e) if needs.matrix => stretch_rows(e.columns),
            _ => 1,
        };
        let (rows, size) = (layout.rows, layout.pace().saturating_mul(together));
        for h in mine {
            let begun = held::starts(&h.bytes, layout.head, size, rows.div_ceil(together));
            let row = |k: u64| k.saturating_mul(together).min(rows);
            runs.push((i, Kind::Rows), row(begun.start)..row(begun.end), step);
        }
        if part.tails > 0 {
            mine.iter().for_each(|h| runs.push((i, Kind::Tails), h.bytes.clone(), chunk));
        }
    }
    Ok(runs)
}

fn add(a: u64, b: u64) -> u64 {
    a.saturating_add(b)
}

/// Rows of one block of a file.
fn plan(layout: &Layout, options: &ScanOptions, chunk: u64) -> Result<u64> {
    let needs = &options.needs;
    let columns = layout.elements.as_ref().map_or(0, |e| e.columns);
    if needs.numbers.iter().any(|c| *c >= columns) {
        return Err(Error::usage(match columns {
            0 => "these records have no columns".to_string(),
            n => format!("a column beyond the {n} of this array was asked for"),
        }));
    }
    if !needs.texts.is_empty() {
        return Err(Error::usage("binary columns cannot be used as text")
            .with_hint("use a kernel that takes numbers, or make text of the array first"));
    }
    let max = (limits::MAX_CHUNK as u64).min(options.max_record as u64);
    let large = |what: &str, bytes: u64, hint: &str| {
        let size = stead_core::units::format_size;
        Error::limit(format!("{what} takes {}, and a block at most {}", size(bytes), size(max)))
            .with_hint(hint)
    };
    if let Some(halo) = needs.brick {
        let Some((shape, _)) = layout.elements.as_ref().and_then(|e| e.grid) else {
            return Err(Error::usage("this kernel needs a 3-d array, and this is none")
                .with_hint("'stead describe' shows the shape; raw arrays take it from --shape"));
        };
        let plane = shape[1].saturating_mul(shape[2]);
        let planes = brick_planes(shape);
        let cell =
            planes.saturating_add(halo).saturating_mul(plane).saturating_mul(layout.row_bytes);
        if cell > max {
            let hint = "raise --memory, a quarter of which is for a block, or reorder the array so that \
                        its longest dimension is the slowest one";
            return Err(large("one cell of planes", cell, hint));
        }
        return Ok((planes * plane).max(1));
    }
    // Whole stretches, if they matter.
    let whole = |step: u64| match needs.matrix {
        true => (step / stretch_rows(columns)).max(1) * stretch_rows(columns),
        false => step,
    };
    if let Some(e) = layout.elements.as_ref().filter(|e| e.apart) {
        if needs.records && needs.bytes {
            return Err(Error::usage(
                "the rows of a 2-d array in Fortran order do not lie in one piece, so their bytes \
                 cannot be looked at row by row",
            )
            .with_hint("save the array in C order for this: numpy.ascontiguousarray"));
        }
        let size = e.dtype.size() as u64;
        let read = if needs.matrix { columns } else { needs.numbers.len() };
        let row = size * read.max(1) as u64;
        return Ok(whole((chunk / row).max(PIECE_BYTES / size).min(SPLIT_BYTES / row).max(1)));
    }
    if layout.row_bytes > max {
        return Err(large(
            "one record",
            layout.row_bytes,
            "check the shape of the array, or the record length",
        ));
    }
    // Small elements grow to eight bytes, and those are to stay in the cache as well.
    let row = layout.row_bytes.max(1);
    let wide = row.max(8 * needs.numbers.len() as u64);
    Ok(whole((chunk / wide).max(chunk.min(PIECE_BYTES) / row).max(1)))
}

impl Scan for GridScan {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        self.workers.fetch_add(1, Ordering::Relaxed);
        Ok(Box::new(GridWorker {
            scan: self,
            queue: ReadQueue::new(&self.options.io)?,
            ahead: VecDeque::new(),
            held: Buffer::empty(),
            numbers: Vec::new(),
            spans: Vec::new(),
            voxels: Vec::new(),
            values: Vec::new(),
            ends: Vec::new(),
        }))
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    fn plan(&self) -> Vec<(String, Value)> {
        let mut entries = vec![
            ("blocks".to_string(), Value::Int(self.end - self.begin)),
            ("block_rows".into(), Value::Int(self.parts.first().map_or(0, |p| p.step))),
            ("columns_read".into(), Value::Int(self.options.needs.numbers.len() as u64)),
        ];
        entries.extend(
            describe(&self.options.io).into_iter().map(|(k, v)| (k.to_string(), Value::Text(v))),
        );
        entries
    }
}

struct GridWorker<'s> {
    scan: &'s GridScan,
    queue: ReadQueue,
    /// Blocks whose reads are in the queue, in the same order.
    ahead: VecDeque<(u64, usize, Job)>,
    /// The bytes of the block that was handed out last.
    held: Buffer,
    numbers: Vec<f64>,
    spans: Vec<Span>,
    voxels: Vec<f32>,
    /// Rows of a matrix that could not be lent.
    values: Vec<f64>,
    ends: Vec<u32>,
}

impl GridWorker<'_> {
    /// Takes blocks and submits their reads until the queue is full.
    fn look_ahead(&mut self) -> Result<()> {
        let scan = self.scan;
        while !self.queue.is_full() && self.ahead.len() < scan.ahead() {
            let n = scan.next.fetch_add(1, Ordering::Relaxed);
            // The counter stays far from overflow: workers stop asking soon after the end.
            let Some((i, job)) = (n < scan.end).then(|| scan.job(n)).flatten() else { break };
            let part = &scan.parts[i];
            let layout = &part.layout;
            match (job, &layout.elements) {
                (Job::Bytes { offset, len }, _) => self.submit(&part.source, offset, len)?,
                (Job::Rows { .. }, _) if !scan.reads => {}
                (Job::Rows { first, rows }, Some(e)) if e.apart => {
                    let size = e.dtype.size() as u64;
                    for c in &scan.apart {
                        let offset = layout.head + (*c as u64 * layout.rows + first) * size;
                        self.submit(&part.source, offset, rows * size)?;
                    }
                }
                (Job::Rows { first, rows }, e) => {
                    let offset = layout.head + first * layout.row_bytes;
                    let rows = rows + scan.halo(e.as_ref(), first + rows);
                    self.submit(&part.source, offset, rows * layout.row_bytes)?;
                }
            }
            self.ahead.push_back((n, i, job));
        }
        Ok(())
    }

    fn submit(&mut self, source: &Arc<dyn Source>, offset: u64, len: u64) -> Result<()> {
        let len = usize::try_from(len).map_err(|_| Error::internal("a block beyond the memory"))?;
        self.queue.submit(0, source, offset, len)
    }

    fn take(&mut self) -> Result<Buffer> {
        match self.queue.next()? {
            Some(done) => Ok(done.buffer),
            None => Err(Error::internal("a block without its read")),
        }
    }

    /// Reads a block's columns, each from its own place.
    fn take_apart(&mut self, e: &Elements, rows: usize) -> Result<()> {
        let columns = self.scan.apart.len();
        self.numbers.resize(rows * columns, 0.0);
        for i in 0..columns {
            let bytes = self.take()?;
            let out = &mut self.numbers[i * rows..][..rows];
            let rounded = convert::to_f64(e.dtype, e.byte_order, &bytes, out);
            Progress::add(&self.scan.progress.rounded, rounded);
            self.queue.recycle(bytes)?;
        }
        if self.scan.options.needs.matrix {
            convert::interleave(&self.numbers, rows, &mut self.values);
        }
        Ok(())
    }
}

impl GridScan {
    /// Elements of the planes after a block that ends at element `end`, if bricks are asked for.
    fn halo(&self, e: Option<&Elements>, end: u64) -> u64 {
        match e.and_then(|e| e.grid).zip(self.options.needs.brick) {
            Some(((shape, _), halo)) => {
                let plane = shape[1] * shape[2];
                halo.saturating_mul(plane).min((shape[0] * plane).saturating_sub(end))
            }
            None => 0,
        }
    }
}

impl Worker for GridWorker<'_> {
    fn next(&mut self) -> Result<Option<Block<'_>>> {
        let scan = self.scan;
        scan.options.cancel.check()?;
        let held = std::mem::replace(&mut self.held, Buffer::empty());
        self.queue.recycle(held)?;
        self.look_ahead()?;
        let Some((n, i, job)) = self.ahead.pop_front() else { return Ok(None) };
        let part = &scan.parts[i];
        let layout = &part.layout;
        let needs = &scan.options.needs;
        Progress::add(&scan.progress.bytes, scan.job_bytes(part, job));
        let (seq, last) = scan.place(part, n, job);
        let mut block = Block {
            // There are at most limits::MAX_SOURCES files.
            source: i as u32,
            seq,
            last,
            ..Block::empty()
        };
        let (first, count) = match job {
            Job::Bytes { offset, .. } => {
                self.held = self.take()?;
                return Ok(Some(Block { offset, text: &self.held, ..block }));
            }
            Job::Rows { first, rows } => (first, rows),
        };
        Progress::add(&scan.progress.rows, count);
        let rows =
            usize::try_from(count).map_err(|_| Error::internal("a block beyond the memory"))?;
        block.rows = rows;
        block.offset = layout.head + first * layout.row_bytes;
        block.columns.number_ids = &needs.numbers;
        block.columns.stride = rows;
        if !scan.reads {
            return Ok(Some(block));
        }
        if needs.matrix {
            let width = layout.elements.as_ref().map_or(0, |e| e.columns);
            let stretch = stretch_rows(width) as usize;
            self.ends.clear();
            // A block has fewer than 2^32 rows.
            self.ends.extend((0..rows).step_by(stretch).map(|r| (r + stretch).min(rows) as u32));
        }
        if let Some(e) = layout.elements.as_ref().filter(|e| e.apart) {
            // A row of such an array lies nowhere in one piece; its place is that of its first element.
            let size = e.dtype.size();
            block.offset = layout.head + first * size as u64;
            self.take_apart(e, rows)?;
            if needs.records {
                self.spans.clear();
                self.spans
                    .extend((0..rows).map(|r| Span { start: r as u32 * size as u32, len: 0 }));
                block.records = &self.spans;
            }
            block.columns.number_ids = &scan.apart;
            block.columns.numbers = &self.numbers;
            let (values, width, ends) = (self.values.as_slice(), e.columns, self.ends.as_slice());
            block.matrix = needs.matrix.then_some(Matrix { values, width, ends });
            return Ok(Some(block));
        }
        self.held = self.take()?;
        let row_bytes = layout.row_bytes as usize;
        let own = &self.held[..rows * row_bytes];
        if needs.bytes || needs.records {
            block.text = own;
        }
        if needs.records {
            // The same in each block, so they are written once: searches run at the rate of memory.
            let len = row_bytes as u32;
            if self.spans.first().is_some_and(|s| s.len != len) {
                self.spans.clear();
            }
            let known = self.spans.len();
            self.spans.extend((known..rows).map(|r| Span { start: r as u32 * len, len }));
            block.records = &self.spans[..rows];
        }
        let Some(e) = &layout.elements else { return Ok(Some(block)) };
        if !needs.numbers.is_empty() {
            let (columns, rounded) = columns(e, own, row_bytes, &needs.numbers, &mut self.numbers);
            // Where all columns are read they are counted below.
            Progress::add(&scan.progress.rounded, if needs.matrix { 0 } else { rounded });
            block.columns = Columns { number_ids: &needs.numbers, ..columns };
        }
        if needs.matrix {
            let all = if rows > 0 { own } else { &[] };
            let (values, rounded) = in_place(e, all, &mut self.values);
            Progress::add(&scan.progress.rounded, rounded);
            block.matrix = Some(Matrix { values, width: e.columns, ends: &self.ends });
        }
        if let Some((shape, order)) = e.grid.filter(|_| needs.brick.is_some() && rows > 0) {
            let plane = (shape[1] * shape[2]) as usize;
            let native = e.dtype == DType::F32 && e.byte_order == ByteOrder::NATIVE;
            let voxels = match bytemuck::try_cast_slice(&self.held) {
                Ok(voxels) if native => voxels,
                _ => {
                    self.voxels.resize(self.held.len() / row_bytes, 0.0);
                    convert::to_f32(e.dtype, e.byte_order, &self.held, &mut self.voxels);
                    &self.voxels
                }
            };
            block.brick = Some(Brick {
                shape,
                order,
                first: first / plane as u64,
                planes: rows / plane,
                voxels,
            });
        }
        Ok(Some(block))
    }
}

/// All elements in the order in which they lie: the bytes themselves where they are aligned `f64` of this
/// machine, else converted into `scratch`.
fn in_place<'a>(e: &Elements, bytes: &'a [u8], scratch: &'a mut Vec<f64>) -> (&'a [f64], u64) {
    if e.dtype == DType::F64
        && e.byte_order == ByteOrder::NATIVE
        && let Ok(numbers) = bytemuck::try_cast_slice(bytes)
    {
        return (numbers, 0);
    }
    scratch.resize(bytes.len() / e.dtype.size(), 0.0);
    let rounded = convert::to_f64(e.dtype, e.byte_order, bytes, scratch);
    (scratch, rounded)
}

/// The columns of whole rows.
fn columns<'a>(
    e: &Elements,
    bytes: &'a [u8],
    row_bytes: usize,
    ids: &[usize],
    scratch: &'a mut Vec<f64>,
) -> (Columns<'a>, u64) {
    let rows = bytes.len() / row_bytes.max(1);
    if e.columns == 1 {
        let (numbers, rounded) = in_place(e, bytes, scratch);
        return (Columns { numbers, stride: rows, ..Columns::default() }, rounded);
    }
    let stride = convert::column_stride(rows);
    scratch.resize(stride * ids.len(), 0.0);
    let rounded = convert::gather(e.dtype, e.byte_order, bytes, row_bytes, ids, stride, scratch);
    (Columns { numbers: scratch, stride, ..Columns::default() }, rounded)
}

#[cfg(test)]
#[path = "grid_tests.rs"]
mod tests;
