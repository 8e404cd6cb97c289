//! Which part of which file is whose: units of work, numbered in file order.

use super::Layout;
use super::head::{self, Head};
use crate::api::{Held, ScanOptions, Share};
use crate::decode::Codec;
use crate::delimited::syntax::State;
use crate::held;
use std::ops::Range;
use std::sync::Arc;
use stead_core::{Error, Extent, Result};
use stead_store::Source;

/// Block numbers set aside for a compressed file, whose length is not known.
const STREAM_BLOCKS: u64 = 1 << 40;

/// A file with work for this rank.
#[derive(Debug)]
pub struct Part {
    /// The file.
    pub source: Arc<dyn Source>,
    /// Its index in the dataset.
    pub index: u32,
    /// Its start.
    pub head: Head,
    /// How it is compressed.
    pub codec: Option<Codec>,
    /// Number of this part's first unit.
    pub first_unit: u64,
    /// Number of units: extents, or one if the file is compressed.
    pub units: u64,
    /// Of the units, how many at the start are only looked at for their quotes: they are another rank's.
    pub ahead: u64,
    /// Extent of the file that the first unit is.
    pub first_extent: u64,
    /// Number of the first block of the file.
    pub seq: u64,
    /// The bytes that this rank holds, if these are its share; extents are then cut from the start of each.
    pub held: Vec<Run>,
}

/// Bytes that a rank holds.
#[derive(Debug)]
pub struct Run {
    /// The first of the part's units that is of them.
    unit: u64,
    bytes: Range<u64>,
    /// The state of quotes in which they begin, as far as that matters.
    state: State,
}

/// The units of one rank.
#[derive(Debug, Default)]
pub struct Plan {
    /// Files with work, in order.
    pub parts: Vec<Part>,
    /// Number of units.
    pub units: u64,
    /// Bytes that will be read, as they lie in the files.
    pub bytes: u64,
}

/// One unit of work.
#[derive(Debug, Clone)]
pub struct Unit {
    /// Its number.
    pub number: u64,
    /// Index of the part.
    pub part: usize,
    /// The bytes; all of the file if it is compressed.
    pub extent: Extent,
    /// Number of its block.
    pub seq: u64,
    /// True if it is another rank's and only its quotes matter.
    pub ahead: bool,
    /// The state of quotes in which it begins, where that does not follow from the unit before it.
    pub begins: Option<State>,
    /// Where the bytes that this rank reaches without asking another one begin and end: those at most are read beforehand.
    pub near: Range<u64>,
}

impl Unit {
    /// Bytes that are read before the extent, to see whether a record begins with it: one, if there is one at hand.
    pub fn lead(&self) -> u64 {
        u64::from(self.extent.offset > self.near.start)
    }
}

impl Plan {
    /// Plans this rank's share. Reads the start of each of its files. `looks`: no unit is for more than a look at its quotes.
    pub fn new(
        layout: &Layout,
        sources: &[Arc<dyn Source>],
        options: &ScanOptions,
        looks: bool,
    ) -> Result<Plan> {
        let (rank, size) = match &options.share {
            Share::Even { rank, size } => (*rank, *size),
            Share::Held(all) => return Plan::held(layout, sources, options, looks, all),
        };
        let chunk = options.chunk as u64;
        let total: u64 = sources.iter().fold(0, |n, s| n.saturating_add(s.len()));
        let mine = Share::of(total, rank, size);
        let chained = !layout.cutting(options).is_simple();
        let mut plan = Plan::default();
        let (mut offset, mut seq) = (0u64, 0u64);
        for (index, source) in sources.iter().enumerate() {
            let index =
                u32::try_from(index).map_err(|_| Error::limit("too many files in one dataset"))?;
            let len = source.len();
            // A unit is the rank's in whose share its first byte lies.
            let begin = mine.start.saturating_sub(offset).min(len);
            let end = mine.end.saturating_sub(offset).min(len);
            offset = offset.saturating_add(len);
            // Other ranks' files matter for the numbers of blocks alone.
            if len == 0 {
                continue;
            }
            let at = |e: Error| e.at_source(index);
            let codec = layout.codec(source).map_err(at)?;
            let part = |head, first_extent, units, ahead| Part {
                source: source.clone(),
                index,
                head,
                codec,
                first_unit: 0,
                units,
                ahead,
                first_extent,
                seq,
                held: Vec::new(),
            };
            if codec.is_some() {
                if begin == 0 && end > 0 && !looks {
                    let head = layout.head(source, codec, options.max_record).map_err(at)?;
                    plan.push(part(head, 0, 1, 0), len);
                }
                seq += STREAM_BLOCKS;
                continue;
            }
            let (first, after) = (begin.div_ceil(chunk), end.div_ceil(chunk));
            if first < after {
                let head = layout.head(source, codec, options.max_record).map_err(at)?;
                // What lies before the share is looked at, unless that was done.
                let before = if chained && !looks && options.before.is_none() { first } else { 0 };
                let from = first - before;
                let ahead = if looks { after - from } else { before };
                let bytes = (after * chunk).min(len) - from * chunk;
                plan.push(part(head, from, after - from, ahead), bytes);
            }
            seq += len.div_ceil(chunk);
        }
        Ok(plan)
    }

    /// As [`Plan::new`], for what begins in the bytes that this rank holds.
    fn held(
        layout: &Layout,
        sources: &[Arc<dyn Source>],
        options: &ScanOptions,
        looks: bool,
        all: &[Held],
    ) -> Result<Plan> {
        held::check(all, sources)?;
        let chunk = options.chunk as u64;
        let chained = !layout.cutting(options).is_simple();
        // No rank knows how many blocks others have, so they are called by the place of their first byte.
        let bases = held::bases(sources.iter().map(|s| s.len()), |len| len.max(STREAM_BLOCKS))?;
        let mut before = options.before.as_ref().map(|b| b.each().iter());
        let mut plan = Plan::default();
        for (at, (source, seq)) in sources.iter().zip(bases).enumerate() {
            let index =
                u32::try_from(at).map_err(|_| Error::limit("too many files in one dataset"))?;
            let mine = held::of_source(all, at);
            let Some(first) = mine.first() else { continue };
            let at = |e: Error| e.at_source(index);
            let codec = layout.codec(source).map_err(at)?;
            let mut part = Part {
                source: source.clone(),
                index,
                head: Head::default(),
                codec,
                first_unit: 0,
                units: 0,
                ahead: 0,
                first_extent: 0,
                seq,
                held: Vec::new(),
            };
            let mut bytes = 0;
            if codec.is_some() {
                if first.bytes.start > 0 || looks {
                    continue;
                }
                (part.units, bytes) = (1, source.len());
            }
            for h in mine.iter().filter(|_| codec.is_none()) {
                let mut state = State::Record;
                if chained && !looks {
                    let known = before.as_mut().and_then(Iterator::next).copied();
                    state = known.ok_or_else(|| {
                        Error::internal("in which state of quotes held bytes begin is not known")
                    })?;
                }
                let len = h.bytes.end - h.bytes.start;
                part.held.push(Run { unit: part.units, bytes: h.bytes.clone(), state });
                part.units += len.div_ceil(chunk);
                bytes += len;
            }
            part.head = layout.head(source, codec, options.max_record).map_err(at)?;
            part.ahead = if looks { part.units } else { 0 };
            plan.push(part, bytes);
        }
        Ok(plan)
    }

    fn push(&mut self, mut part: Part, bytes: u64) {
        part.first_unit = self.units;
        self.units += part.units;
        self.bytes += bytes;
        self.parts.push(part);
    }

    /// The bytes that this rank holds of files that are not compressed, in their order.
    pub fn stretches(&self) -> Vec<Held> {
        let of = |p: &Part| {
            let source = p.index;
            p.held.iter().map(|r| Held { source, bytes: r.bytes.clone() }).collect::<Vec<_>>()
        };
        self.parts.iter().flat_map(of).collect()
    }

    /// Unit `number`, if there is one.
    pub fn unit(&self, number: u64, chunk: u64) -> Option<Unit> {
        if number >= self.units {
            return None;
        }
        let index = self.parts.partition_point(|p| p.first_unit <= number).checked_sub(1)?;
        let part = &self.parts[index];
        let i = number - part.first_unit;
        let whole = part.source.len();
        let unit = |offset, len| Unit {
            number,
            part: index,
            extent: Extent { source: part.index, offset, len },
            seq: part.seq,
            ahead: i < part.ahead,
            begins: None,
            near: 0..whole,
        };
        let fresh = |offset: u64| (offset == 0).then_some(State::Record);
        if part.codec.is_some() {
            return Some(Unit { begins: fresh(0), ..unit(0, whole) });
        }
        if !part.held.is_empty() {
            let run = &part.held[part.held.partition_point(|r| r.unit <= i).checked_sub(1)?];
            let offset = run.bytes.start + (i - run.unit) * chunk;
            let begins = (offset == run.bytes.start).then_some(run.state);
            let seq = part.seq + offset;
            let cut = unit(offset, chunk.min(run.bytes.end - offset));
            return Some(Unit { seq, begins, near: run.bytes.clone(), ..cut });
        }
        let extent = part.first_extent + i;
        let offset = extent * chunk;
        let cut = unit(offset, chunk.min(whole - offset));
        Some(Unit { seq: part.seq + extent, begins: fresh(offset), ..cut })
    }
}

impl Layout {
    /// How a file is compressed, by its first bytes or as the user said.
    pub fn codec(&self, source: &Arc<dyn Source>) -> Result<Option<Codec>> {
        let said = match self {
            Layout::Lines(l) => l.compression,
            Layout::Delimited(d) => d.compression,
        };
        Codec::chosen(source.as_ref(), said)
    }

    /// Reads the start of a file.
    pub fn head(
        &self,
        source: &Arc<dyn Source>,
        codec: Option<Codec>,
        max_record: usize,
    ) -> Result<Head> {
        let header = matches!(self, Layout::Delimited(d) if d.header);
        head::read(&self.syntax(), header, max_record, |n| head::first_bytes(source, codec, n))
            .map_err(|e| e.at_path(source.path()))
    }
}
