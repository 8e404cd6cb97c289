//! Which part of which file is whose: units of work, numbered in file order.

use super::Layout;
use super::head::{self, Head};
use crate::api::ScanOptions;
use crate::decode::Codec;
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
#[derive(Debug, Clone, Copy)]
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
    /// True if no unit of the same file comes before it.
    pub fresh: bool,
}

impl Plan {
    /// Plans this rank's share. Reads the start of each of its files. `looks`: no unit is for more than a look at its quotes.
    pub fn new(
        layout: &Layout,
        sources: &[Arc<dyn Source>],
        options: &ScanOptions,
        looks: bool,
    ) -> Result<Plan> {
        let chunk = options.chunk as u64;
        let total: u64 = sources.iter().fold(0, |n, s| n.saturating_add(s.len()));
        let mine = options.share.of(total);
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

    fn push(&mut self, mut part: Part, bytes: u64) {
        part.first_unit = self.units;
        self.units += part.units;
        self.bytes += bytes;
        self.parts.push(part);
    }

    /// Unit `number`, if there is one.
    pub fn unit(&self, number: u64, chunk: u64) -> Option<Unit> {
        if number >= self.units {
            return None;
        }
        let index = self.parts.partition_point(|p| p.first_unit <= number).checked_sub(1)?;
        let part = &self.parts[index];
        let i = number - part.first_unit;
        let (offset, len) = if part.codec.is_some() {
            (0, part.source.len())
        } else {
            let offset = (part.first_extent + i) * chunk;
            (offset, chunk.min(part.source.len() - offset))
        };
        Some(Unit {
            number,
            part: index,
            extent: Extent { source: part.index, offset, len },
            seq: part.seq + part.first_extent + i,
            ahead: i < part.ahead,
            fresh: part.first_extent + i == 0,
        })
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
