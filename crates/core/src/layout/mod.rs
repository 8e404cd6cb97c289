//! Which node holds which bytes of one file: the layout of a distributed dataset.
//!
//! A file of `length` bytes is cut into **stripes**, and each stripe lies on one **part**: a file of its own in a
//! dataspace of a node. Unless the layout says otherwise, stripe *i* is on part *i* mod *n*, and a part is its stripes
//! one after the other.
//!
//! ```text
//! file   | 0 | 1 | 2 | 3 | 4 |      stripe = 4 MiB, 3 parts
//! part 0 | 0 | 3 |   part 1 | 1 | 4 |   part 2 | 2 |
//! ```
//!
//! ```
//! use stead_core::layout::{Layout, Part};
//!
//! let parts = ["node1", "node2"].map(|n| Part::new(n, "flights/0"));
//! let layout = Layout::even("flights.csv", 10, 4, parts.to_vec())?;
//! assert_eq!(layout.locate(9), Some((0, 5)));
//! assert_eq!(layout.held(&[0])?.collect::<Vec<_>>(), [0..4, 8..10]);
//! assert_eq!(Layout::parse(&layout.to_string())?, layout);
//! # Ok::<(), stead_core::Error>(())
//! ```
//!
//! All of it is arithmetic: nothing here opens a file or knows which node this is. [`nodes`] reads lists of nodes as
//! Slurm writes them, [`Dataspace`] the names of dataspaces, [`PerProcess`] names like `out.%r.bin`. The text form is
//! TOML; `docs/layouts.md` describes it.

mod build;
mod describe;
mod held;
pub mod nodes;
mod per_process;
mod space;
pub mod spaces;
mod terms;
mod text;

#[cfg(test)]
mod tests;

pub use build::aligned;
pub use describe::{LayoutDescription, NodeDescription, PartDescription};
pub use held::{Held, PartPieces, Pieces};
pub use per_process::PerProcess;
pub(crate) use space::check_space;
pub use space::{Dataspace, check_relative};
pub use spaces::Spaces;
pub use terms::{SpaceConfig, Terms};

use crate::{Error, Kind, Result, limits};
use std::ops::Range;

/// How the names of layout files end.
pub const SUFFIX: &str = ".stead-layout.toml";

/// The folder that the parts of a file have in their dataspaces. It is not called as the file is: that may lie there, too.
pub fn parts_folder(name: &str) -> String {
    format!("{name}.parts")
}

/// A file of a dataset that lies on several nodes.
///
/// Lengths of parts sum to the length of the file; offsets of all bytes in their parts are less than 2^63.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    name: String,
    length: u64,
    stripes: Stripes,
    parts: Vec<Part>,
}

/// The part of a file that lies in one dataspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The node that has it, by host name.
    pub node: String,
    /// The dataspace of that node. `None`: `path` is one of its file system.
    pub space: Option<String>,
    /// Path within the dataspace; without one an absolute path, or one beside the layout file.
    pub path: String,
    /// Bytes.
    pub length: u64,
    /// Of the bytes of the part, if somebody took it.
    pub checksum: Option<Checksum>,
}

impl Part {
    /// A part of a length that is not known yet, outside dataspaces.
    pub fn new(node: impl Into<String>, path: impl Into<String>) -> Part {
        Part { node: node.into(), space: None, path: path.into(), length: 0, checksum: None }
    }

    /// The same part in dataspace `space`.
    pub fn within(self, space: impl Into<String>) -> Part {
        Part { space: Some(space.into()), ..self }
    }
}

/// A checksum with the name of its algorithm, written `xxh3:0123456789abcdef`. What algorithms there are, who takes and
/// compares them knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// Lower-case letters, digits and `-`.
    pub algorithm: String,
    /// The sum; at most 64 bytes.
    pub digest: Vec<u8>,
}

/// How a file is cut.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Stripes {
    /// Each stripe but the last has so many bytes; stripe `i` is on part `i` mod `n`.
    Even(u64),
    /// Stripes that end where records end.
    Cut(Cut),
}

/// Stripes of any length. Some may be empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cut {
    /// Where each stripe begins; ascending, the first at 0. The last one ends with the file.
    starts: Vec<u64>,
    /// Where each stripe begins in its part.
    within: Vec<u64>,
    /// The part of each stripe.
    on: Vec<u32>,
    /// The stripes of each part, ascending.
    of_part: Vec<Vec<u32>>,
    /// `on` is not `i` mod `n`, and is written.
    placed: bool,
}

/// Contiguous bytes of a file that are contiguous in one part, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Index of the part.
    pub part: usize,
    /// First byte in the part.
    pub at: u64,
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes; not 0.
    pub len: u64,
}

impl Layout {
    /// Name of the file that the parts make up.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Bytes of the file.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// The parts; at least one.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Bytes of a stripe, if all but the last have the same number.
    pub fn stripe_size(&self) -> Option<u64> {
        match self.stripes {
            Stripes::Even(size) => Some(size),
            Stripes::Cut(_) => None,
        }
    }

    /// Number of stripes; at most [`limits::MAX_STRIPES`].
    pub fn stripes(&self) -> u64 {
        match &self.stripes {
            Stripes::Even(size) => self.length.div_ceil(*size),
            Stripes::Cut(cut) => cut.starts.len() as u64,
        }
    }

    /// The bytes of stripe `i`; empty beyond the last one.
    pub fn stripe(&self, i: u64) -> Range<u64> {
        let start = |i: u64| match &self.stripes {
            Stripes::Even(size) => i.saturating_mul(*size).min(self.length),
            Stripes::Cut(cut) => {
                let i = usize::try_from(i).ok();
                i.and_then(|i| cut.starts.get(i)).copied().unwrap_or(self.length)
            }
        };
        start(i)..start(i.saturating_add(1))
    }

    /// The part that stripe `i` is on.
    pub fn part_of(&self, i: u64) -> usize {
        match &self.stripes {
            Stripes::Even(_) => (i % self.parts.len() as u64) as usize,
            Stripes::Cut(cut) => {
                let i = usize::try_from(i).ok();
                i.and_then(|i| cut.on.get(i)).map_or(0, |p| *p as usize)
            }
        }
    }

    /// The stripe in which a byte of the file is.
    fn stripe_at(&self, offset: u64) -> Option<u64> {
        if offset >= self.length {
            return None;
        }
        Some(match &self.stripes {
            Stripes::Even(size) => offset / size,
            // Of stripes that begin at one byte all but the last are empty.
            Stripes::Cut(cut) => cut.starts.partition_point(|s| *s <= offset) as u64 - 1,
        })
    }

    /// Where stripe `i` begins in its part.
    fn within(&self, i: u64) -> u64 {
        match &self.stripes {
            Stripes::Even(size) => i / self.parts.len() as u64 * size,
            Stripes::Cut(cut) => {
                let i = usize::try_from(i).ok();
                i.and_then(|i| cut.within.get(i)).copied().unwrap_or(0)
            }
        }
    }

    /// Part and offset in the part of a byte of the file; `None` beyond its end. Costs a division, or a search among the
    /// cuts.
    pub fn locate(&self, offset: u64) -> Option<(usize, u64)> {
        let i = self.stripe_at(offset)?;
        Some((self.part_of(i), self.within(i) + (offset - self.stripe(i).start)))
    }

    /// The offset in the file of byte `at` of a part; `None` beyond its end. The inverse of [`Layout::locate`].
    pub fn offset(&self, part: usize, at: u64) -> Option<u64> {
        if at >= self.parts.get(part)?.length {
            return None;
        }
        Some(match &self.stripes {
            Stripes::Even(size) => {
                let i = at / size * self.parts.len() as u64 + part as u64;
                i * size + at % size
            }
            Stripes::Cut(cut) => {
                let mine = cut.of_part.get(part)?;
                let k = mine.partition_point(|i| cut.within[*i as usize] <= at).checked_sub(1)?;
                let i = mine[k] as usize;
                cut.starts[i] + (at - cut.within[i])
            }
        })
    }

    /// The pieces of which `range` of the file consists, in the order of the file. Bytes beyond the end are left out.
    /// Neighbouring stripes of one part are one piece if they are neighbours there, too.
    pub fn pieces(&self, range: Range<u64>) -> Pieces<'_> {
        Pieces::new(self, range)
    }

    /// The pieces of which `range` of a part consists, in the order of the part, none longer than a stripe. Bytes beyond its end
    /// are left out.
    pub fn part_pieces(&self, part: usize, range: Range<u64>) -> PartPieces<'_> {
        PartPieces::new(self, part, range)
    }

    /// The bytes of the stripe in which a byte of the file is.
    pub fn stripe_around(&self, offset: u64) -> Option<Range<u64>> {
        self.stripe_at(offset).map(|i| self.stripe(i))
    }

    /// The ranges of the file that lie on `parts`, in the order of the file; neighbouring stripes are one range. No part
    /// may be given twice.
    pub fn held(&self, parts: &[usize]) -> Result<Held<'_>> {
        Held::new(self, parts, 0, 1)
    }

    /// As [`Layout::held`], for one of several ranks that share `parts`, as those of a node do: rank `k` of `of` has the
    /// `k`th of `of` runs of stripes, which have the same number of stripes but for one. All their ranges together are
    /// those of `held`.
    pub fn held_by(&self, parts: &[usize], k: usize, of: usize) -> Result<Held<'_>> {
        Held::new(self, parts, k, of)
    }

    /// The nodes and the parts that each has, in the order in which they are first named.
    pub fn nodes(&self) -> Vec<(&str, Vec<usize>)> {
        let mut found = std::collections::HashMap::new();
        let mut nodes: Vec<(&str, Vec<usize>)> = Vec::new();
        for (i, part) in self.parts.iter().enumerate() {
            let at = *found.entry(part.node.as_str()).or_insert_with(|| {
                nodes.push((&part.node, Vec::new()));
                nodes.len() - 1
            });
            nodes[at].1.push(i);
        }
        nodes
    }

    /// Compares a part with the length of the file that was found in its place.
    ///
    /// # Errors
    /// `Format`, with the node, the path and both lengths.
    pub fn verify(&self, part: usize, found: u64) -> Result<()> {
        let p = self.parts.get(part).ok_or_else(|| {
            Error::internal(format!("part {part} of a layout of {}", self.parts.len()))
        })?;
        if p.length == found {
            return Ok(());
        }
        let message = format!(
            "part {part} of '{}', {} on {}, has {found} bytes in place of {}",
            self.name,
            p.path,
            p.home(),
            p.length
        );
        Err(Error::new(Kind::Format, message)
            .with_hint("it was cut off or overwritten; put the file over the nodes again"))
    }
}

impl Part {
    /// Where it is: `nvme@node1`, or `node1` outside dataspaces.
    pub fn home(&self) -> String {
        match &self.space {
            Some(space) => format!("{space}@{}", self.node),
            None => self.node.clone(),
        }
    }
}

/// The first lengths that are too much of something: they keep all sums below 2^63.
fn too_many(what: &str, n: usize, most: usize) -> Result<()> {
    if n <= most {
        return Ok(());
    }
    Err(Error::limit(format!("a layout of {n} {what}; at most {most} are supported")))
}

/// Most bytes of a file: offsets are signed to the operating system and in TOML.
const MOST_BYTES: u64 = i64::MAX as u64;

const _: () = assert!(limits::MAX_PARTS <= u32::MAX as usize);
const _: () = assert!(limits::MAX_STRIPES <= u32::MAX as u64);
