//! The header of a Tipsy file, and what follows from it and the length of the file.
//!
//! | bytes | |
//! |---|---|
//! | 0-7 | time, `f64` |
//! | 8-11 | number of all particles, `u32` |
//! | 12-15 | number of dimensions: 3; its bytes tell their order |
//! | 16-27 | numbers of gas, dark and star particles, `u32` each |
//! | 28-31 | not there in old files; else 0, or the bits 32-39 of the four numbers, one byte each |
//!
//! The header does not say whether it has the last four bytes, whether they count, and how long positions and
//! velocities are. The length of the file does: for given numbers no two variants have the same, so a header is
//! believed only if one of them fits to the byte.

use super::record::{self, Field};
use crate::api::Share;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use stead_core::{ByteOrder, DType, Error, Result};
use stead_store::Source;

/// Longest header.
pub const HEADER_BYTES: usize = 32;
/// Header of old files.
const SHORT_BYTES: usize = 28;
const DIMENSIONS: u32 = 3;

/// A kind of particles. A file has all of one kind in one piece, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Species {
    /// Gas, or any fluid (SPH).
    Gas,
    /// Dark matter.
    Dark,
    /// Stars.
    Star,
}

impl Species {
    /// All kinds, in the order of the file.
    pub const ALL: [Species; 3] = [Species::Gas, Species::Dark, Species::Star];

    /// The name used in options, columns and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Species::Gas => "gas",
            Species::Dark => "dark",
            Species::Star => "star",
        }
    }

    pub(super) const fn index(self) -> usize {
        match self {
            Species::Gas => 0,
            Species::Dark => 1,
            Species::Star => 2,
        }
    }
}

impl fmt::Display for Species {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Species {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        Species::ALL.into_iter().find(|k| k.name() == s).ok_or_else(|| {
            Error::usage(format!("unknown species '{s}'")).with_hint("use one of gas dark star")
        })
    }
}

/// What a file is.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Time of the snapshot; in cosmological runs the scale factor.
    pub time: f64,
    /// Big in "standard" files, little in "native" ones.
    pub byte_order: ByteOrder,
    /// 28 or 32.
    pub bytes: u64,
    /// Type of positions, `f32` or `f64`; all else but velocities is `f32`.
    pub positions: DType,
    /// Type of velocities, `f32` or `f64`.
    pub velocities: DType,
    /// Number of particles of each species.
    pub(super) counts: [u64; 3],
}

/// A task's records of one species.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part {
    /// Number of the first one within its species.
    pub first: u64,
    /// How many.
    pub count: u64,
    /// Offset of the first one in the file.
    pub offset: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

impl Part {
    /// The bytes of the file that it lies in.
    pub fn range(&self) -> Range<u64> {
        self.offset..self.offset + self.bytes
    }
}

impl Header {
    /// A header of 32 bytes, for who writes a file. More particles than 40 bits count are refused.
    ///
    /// # Errors
    /// `Usage` for such numbers, and for types other than `f32` and `f64`, or `f64` for velocities alone.
    pub fn new(
        time: f64,
        counts: [u64; 3],
        byte_order: ByteOrder,
        positions: DType,
        velocities: DType,
    ) -> Result<Header> {
        let known = [(DType::F32, DType::F32), (DType::F64, DType::F32), (DType::F64, DType::F64)];
        if !known.contains(&(positions, velocities)) {
            return Err(Error::usage(format!(
                "no Tipsy file has positions of {positions} and velocities of {velocities}"
            )));
        }
        let sum = counts.iter().try_fold(0u64, |n, c| n.checked_add(*c));
        if sum.is_none_or(|n| n >> 40 != 0) {
            return Err(Error::usage("more particles than the 40 bits of a Tipsy header count"));
        }
        let bytes = HEADER_BYTES as u64;
        Ok(Header { time, byte_order, bytes, positions, velocities, counts })
    }

    /// Reads the header of `source`.
    ///
    /// # Errors
    /// `Format`, with path and offset, if it is none or does not fit the length of the file.
    pub fn read(source: &dyn Source) -> Result<Header> {
        let mut start = [0; HEADER_BYTES];
        let n = usize::try_from(source.len()).unwrap_or(HEADER_BYTES).min(HEADER_BYTES);
        source.read_at(0, &mut start[..n])?;
        Header::parse(&start[..n], source.len()).map_err(|e| e.at_path(source.path()))
    }

    /// Reads the header from the first bytes of a file of `len` bytes; more than 32 are not looked at.
    ///
    /// # Errors
    /// As [`Header::read`], without the path.
    pub fn parse(start: &[u8], len: u64) -> Result<Header> {
        let Some(head) = start.first_chunk::<SHORT_BYTES>() else {
            return Err(Error::format("truncated Tipsy file: it ends in its header")
                .at_offset(len)
                .with_hint("the file was not written or copied to its end; make it again"));
        };
        let raw = |at: usize| [head[at], head[at + 1], head[at + 2], head[at + 3]];
        let byte_order = if u32::from_be_bytes(raw(12)) == DIMENSIONS {
            ByteOrder::Big
        } else if u32::from_le_bytes(raw(12)) == DIMENSIONS {
            ByteOrder::Little
        } else {
            return Err(Error::format(
                "this is no Tipsy file: its number of dimensions is not 3 in either byte order",
            )
            .at_offset(12)
            .with_hint("name its format, for example --type raw"));
        };
        let word = |raw: [u8; 4]| match byte_order {
            ByteOrder::Big => u32::from_be_bytes(raw),
            ByteOrder::Little => u32::from_le_bytes(raw),
        };
        let low = [8, 16, 20, 24].map(|at| u64::from(word(raw(at))));
        let eight = [0, 1, 2, 3, 4, 5, 6, 7].map(|at| head[at]);
        let time = match byte_order {
            ByteOrder::Big => f64::from_be_bytes(eight),
            ByteOrder::Little => f64::from_le_bytes(eight),
        };
        let mut consistent = None;
        for (bytes, [all, counts @ ..]) in readings(low, start.get(28..32), word) {
            // Of 40 bits each, so nothing overflows.
            if counts.iter().sum::<u64>() != all {
                continue;
            }
            consistent.get_or_insert(counts);
            for (positions, velocities) in
                [(DType::F32, DType::F32), (DType::F64, DType::F32), (DType::F64, DType::F64)]
            {
                let h = Header { time, byte_order, bytes, positions, velocities, counts };
                if h.file_bytes() == Some(len) {
                    return Ok(h);
                }
            }
        }
        Err(match consistent {
            None => Error::format(format!(
                "this is no Tipsy file: its header counts {} particles, but {} of gas, {} dark and {} stars",
                low[0], low[1], low[2], low[3]
            ))
            .at_offset(8)
            .with_hint("name its format, for example --type raw"),
            Some(counts) => mismatch(counts, len).at_offset(16),
        })
    }

    /// True if these are the first bytes of a Tipsy file of `len` bytes with particles in it.
    pub fn detect(start: &[u8], len: u64) -> bool {
        Header::parse(start, len).is_ok_and(|h| h.particles() > 0)
    }

    /// The bytes of the header, as a writer puts them.
    pub fn encode(&self) -> Vec<u8> {
        let [gas, dark, star] = self.counts;
        let counts = [self.particles(), gas, dark, star];
        // Byte 0 of the last word is the lowest one: those of all particles come last in big-endian files.
        let high = counts.iter().rev().fold(0u32, |w, n| w << 8 | u32::from((n >> 32) as u8));
        // What is cut off here is in the last word.
        let words = [counts[0] as u32, DIMENSIONS, gas as u32, dark as u32, star as u32, high];
        let mut out = match self.byte_order {
            ByteOrder::Big => self.time.to_be_bytes().to_vec(),
            ByteOrder::Little => self.time.to_le_bytes().to_vec(),
        };
        for w in words {
            out.extend(match self.byte_order {
                ByteOrder::Big => w.to_be_bytes(),
                ByteOrder::Little => w.to_le_bytes(),
            });
        }
        out.truncate(if self.bytes < HEADER_BYTES as u64 { SHORT_BYTES } else { HEADER_BYTES });
        out
    }

    /// Number of particles of a species.
    pub fn count(&self, species: Species) -> u64 {
        self.counts[species.index()]
    }

    /// Number of all particles.
    pub fn particles(&self) -> u64 {
        self.counts.iter().fold(0, |n, c| n.saturating_add(*c))
    }

    /// What is in a record of a species, in the order of the file.
    pub fn fields(&self, species: Species) -> Vec<Field> {
        record::fields(species, self.positions, self.velocities)
    }

    /// Bytes of one record of a species.
    pub fn record_bytes(&self, species: Species) -> u64 {
        record::bytes(species, self.positions, self.velocities)
    }

    /// Offset of the first record of a species.
    pub fn offset(&self, species: Species) -> u64 {
        let before = Species::ALL.into_iter().take(species.index());
        // The length of the file was found to be the sum of all.
        before.fold(self.bytes, |n, k| {
            n.saturating_add(self.count(k).saturating_mul(self.record_bytes(k)))
        })
    }

    /// Length of the file, if 64 bits can count it.
    pub fn file_bytes(&self) -> Option<u64> {
        Species::ALL.into_iter().try_fold(self.bytes, |n, k| {
            n.checked_add(self.count(k).checked_mul(self.record_bytes(k))?)
        })
    }

    /// The whole records of a species that are task `task`'s of `tasks`: together the tasks have each once, in order,
    /// and their numbers differ by one at most. There may be more tasks than records.
    ///
    /// # Errors
    /// `Usage` if there is no such task.
    pub fn part(&self, species: Species, task: usize, tasks: usize) -> Result<Part> {
        if task >= tasks {
            return Err(Error::usage(format!("there is no task {task} of {tasks}"))
                .with_hint("tasks are numbered from 0"));
        }
        let records = Share::of(self.count(species), task, tasks);
        let size = self.record_bytes(species);
        let count = records.end - records.start;
        Ok(Part {
            first: records.start,
            count,
            // Within the file, whose length was checked.
            offset: self.offset(species) + records.start * size,
            bytes: count * size,
        })
    }
}

/// How a header can be read: its length, and the numbers of all particles, gas, dark and stars.
fn readings(
    low: [u64; 4],
    rest: Option<&[u8]>,
    word: impl Fn([u8; 4]) -> u32,
) -> impl Iterator<Item = (u64, [u64; 4])> {
    let (short, long) = (SHORT_BYTES as u64, HEADER_BYTES as u64);
    let rest: Option<[u8; 4]> = rest.and_then(|r| r.try_into().ok());
    let high = |bytes: [u8; 4]| {
        let mut counts = low;
        counts.iter_mut().zip(bytes).for_each(|(n, b)| *n |= u64::from(b) << 32);
        counts
    };
    // Most writers make one number of the four bytes, some put them as they are.
    let with_rest = rest.map(|r| [low, high(word(r).to_le_bytes()), high(r)]);
    let with_rest = with_rest.into_iter().flatten().map(move |counts| (long, counts));
    std::iter::once((short, low)).chain(with_rest)
}

fn mismatch([gas, dark, star]: [u64; 3], len: u64) -> Error {
    let single = Header {
        time: 0.0,
        byte_order: ByteOrder::Big,
        bytes: HEADER_BYTES as u64,
        positions: DType::F32,
        velocities: DType::F32,
        counts: [gas, dark, star],
    };
    let (what, takes) = match single.file_bytes() {
        Some(n) if n <= len => ("odd", format!("take {n} bytes, or more with double positions")),
        Some(n) => ("truncated", format!("take at least {n} bytes")),
        None => ("truncated", "take more bytes than 64 bits count".into()),
    };
    Error::format(format!(
        "{what} Tipsy file: {gas} gas, {dark} dark and {star} star particles {takes}; the file has {len}"
    ))
    .with_hint("the file was not written or copied to its end, or holds more than a snapshot")
}
