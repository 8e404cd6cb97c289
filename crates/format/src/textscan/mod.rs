//! Scans of text: extents or decompressed streams to blocks of whole records.
//!
//! **Plain files** are cut into extents of `chunk` bytes that workers take from one queue. A record belongs
//! to the extent in which it starts; the worker reads as much after the extent as its last record needs.
//! Where quotes have no meaning, the first record of an extent begins after its first newline. Otherwise
//! the worker computes what the extent does to the automaton of quotes and learns from the
//! [`chain::Chain`] in which state it begins. A rank whose share begins within a file is told in which state
//! ([`quotes`]), or looks at the quotes of what lies before it; that is one more read of those bytes, at memory speed. Where a
//! rank has bytes of its own and asks others for the rest, extents are cut from the start of each stretch that it holds, and no
//! more is read beforehand: one byte before a stretch, and what its last record has after it, are asked for when they are needed.
//!
//! Scans of bytes alone ([`stead_core::Needs::only_bytes`]) do not look for records: blocks are whole lines, quoted
//! or not, and nothing but their last newline is searched.
//!
//! **Compressed files** are decoded in order, by whoever holds the stream, up to the last whole record;
//! the records are parsed outside. Several files are decoded at once.
//!
//! Memory of one worker: the extents in flight (`chunk` times the queue depth), the longest record, and
//! the parsed columns.

pub mod chain;
pub mod head;
mod plan;
pub mod quotes;
mod stream;
mod window;
mod worker;

use crate::api::{Progress, Scan, ScanOptions, Worker};
use crate::delimited::Delimited;
use crate::delimited::parse::Parser;
use crate::delimited::syntax::Syntax;
use crate::lines::Lines;
use chain::Chain;
use plan::Plan;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result, Value, limits};
use stead_store::Source;
use stead_store::queue::describe;
use stream::Stream;
use worker::TextWorker;

/// How often a waiting worker looks whether it was cancelled: nothing wakes it for that.
const CANCEL_CHECK: Duration = Duration::from_millis(50);

/// How records lie in text.
#[derive(Debug, Clone)]
pub enum Layout {
    /// Every line is one.
    Lines(Lines),
    /// Delimited text.
    Delimited(Arc<Delimited>),
}

impl Layout {
    /// The bytes with a role.
    pub fn syntax(&self) -> Syntax {
        match self {
            Layout::Lines(_) => Syntax::LINES,
            Layout::Delimited(d) => d.syntax,
        }
    }

    /// The bytes that decide where a scan with these options cuts blocks.
    pub(crate) fn cutting(&self, options: &ScanOptions) -> Syntax {
        if options.needs.only_bytes() { Syntax::LINES } else { self.syntax() }
    }
}

/// A scan of text files.
pub struct TextScan {
    layout: Layout,
    options: ScanOptions,
    plan: Plan,
    /// The next unit to be taken.
    next: AtomicU64,
    /// Units below were asked for ahead, if the scan is chained.
    advised: AtomicU64,
    /// Workers made so far.
    workers: AtomicU64,
    chain: Chain,
    /// Compressed files that are being decoded, by the index of their part.
    streams: Mutex<BTreeMap<usize, Arc<Stream>>>,
    progress: Progress,
}

impl TextScan {
    /// Plans the scan: reads the start of each file of this rank's share.
    ///
    /// # Errors
    /// `Usage` if a chunk and the longest record do not fit 32-bit offsets together.
    pub fn new(
        layout: Layout,
        sources: &[Arc<dyn Source>],
        options: &ScanOptions,
    ) -> Result<TextScan> {
        Self::planned(layout, sources, options, false)
    }

    /// A scan that gives no blocks: it only looks what the share does to quotes.
    pub(crate) fn looking(
        layout: Layout,
        sources: &[Arc<dyn Source>],
        options: &ScanOptions,
    ) -> Result<TextScan> {
        Self::planned(layout, sources, options, true)
    }

    fn planned(
        layout: Layout,
        sources: &[Arc<dyn Source>],
        options: &ScanOptions,
        looks: bool,
    ) -> Result<TextScan> {
        if options.chunk == 0 || options.chunk > limits::MAX_CHUNK {
            return Err(Error::usage(format!(
                "an extent must have 1 to {} bytes",
                limits::MAX_CHUNK
            )));
        }
        // A block is an extent and the rest of its last record, and texts whose quotes were undone lie
        // behind it once more.
        let most = (1 << 31) - options.chunk;
        if options.max_record == 0 || options.max_record > most {
            return Err(Error::usage(format!("the longest record must have 1 to {most} bytes"))
                .with_hint("offsets within a block have 32 bits"));
        }
        let plan = Plan::new(&layout, sources, options, looks)?;
        Ok(TextScan {
            layout,
            options: options.clone(),
            plan,
            next: AtomicU64::new(0),
            advised: AtomicU64::new(0),
            workers: AtomicU64::new(0),
            chain: Chain::after(options.before.as_ref().map(|b| b.first()).unwrap_or_default()),
            streams: Mutex::default(),
            progress: Progress::default(),
        })
    }

    /// True if workers must tell each other where quotes are open.
    fn is_chained(&self) -> bool {
        !self.syntax().is_simple()
    }

    /// By what blocks are cut: lines, if nobody asks for records.
    fn syntax(&self) -> Syntax {
        self.layout.cutting(&self.options)
    }

    fn take(&self) -> Option<plan::Unit> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.plan.unit(number, self.options.chunk as u64)
    }

    /// Begins to decode the file of part `index`.
    fn open_stream(&self, index: usize) -> Result<Arc<Stream>> {
        let part = &self.plan.parts[index];
        let codec = part.codec.ok_or_else(|| Error::internal("a plain file is no stream"))?;
        let (syntax, most) = (self.syntax(), self.options.max_record);
        let stream = Stream::open(part.source.clone(), codec, syntax, most, part.head.bom);
        let stream = Arc::new(stream.map_err(|e| e.at_source(part.index))?);
        self.streams().insert(index, stream.clone());
        Ok(stream)
    }

    /// A stream that somebody else decodes, of part `from` or later.
    fn join_stream(&self, from: usize) -> Option<(usize, Arc<Stream>)> {
        self.streams().range(from..).next().map(|(i, s)| (*i, s.clone()))
    }

    /// Says that nothing is left of a stream.
    fn close_stream(&self, index: usize) {
        self.streams().remove(&index);
    }

    fn streams(&self) -> std::sync::MutexGuard<'_, BTreeMap<usize, Arc<Stream>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn parser(&self) -> Result<Option<Parser<'_>>> {
        match &self.layout {
            Layout::Lines(_) => Ok(None),
            Layout::Delimited(_) if self.options.needs.only_bytes() => Ok(None),
            Layout::Delimited(d) => Parser::new(
                d.syntax,
                &d.missing,
                &d.schema,
                &self.options.needs,
                self.options.lenient,
            )
            .map(Some),
        }
    }
}

impl Scan for TextScan {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(TextWorker::new(self)?))
    }

    fn counts_rows(&self) -> bool {
        !self.options.needs.only_bytes()
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn total_bytes(&self) -> u64 {
        self.plan.bytes
    }

    fn plan(&self) -> Vec<(String, Value)> {
        let o = &self.options;
        let columns = match &self.layout {
            Layout::Lines(_) => Vec::new(),
            Layout::Delimited(d) => {
                let mut ids: Vec<usize> =
                    o.needs.numbers.iter().chain(&o.needs.texts).copied().collect();
                ids.sort_unstable();
                ids.dedup();
                ids.iter()
                    .filter_map(|i| d.schema.columns.get(*i))
                    .map(|c| Value::Text(c.name.clone()))
                    .collect()
            }
        };
        let mut entries = vec![
            ("files".to_string(), Value::Int(self.plan.parts.len() as u64)),
            ("extents".into(), Value::Int(self.plan.units)),
            ("extent_bytes".into(), Value::Int(o.chunk as u64)),
        ];
        entries.extend(describe(&o.io).into_iter().map(|(k, v)| (k.to_string(), Value::Text(v))));
        entries.push(("columns_parsed".into(), Value::List(columns)));
        entries
    }
}

/// The error for a record that is too long.
fn too_long(most: u64) -> Error {
    let most = stead_core::units::format_size(most);
    Error::new(Kind::Limit, format!("the record that starts here is longer than {most}")).with_hint(
        "a record may take a quarter of --memory: raise it if the file is what you think it is; a quote \
         that is never closed makes one record of many lines (--quote none if quotes have no meaning)",
    )
}
