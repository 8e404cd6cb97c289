//! Blocks: what a format makes of extents and what kernels work on.
//!
//! A block is a run of whole records of one file. It carries the bytes, where the records lie in them,
//! and the columns that somebody asked for, as `f64`. Kernels see blocks and never files. A block never
//! splits a record, a fixed-length item or a cell of the brick grid, whatever the extents are.
//!
//! Two kinds of content must not be mixed up: the *text* is every byte of the file exactly once over all
//! blocks (header lines and array headers too), so that byte kernels see what `wc` or `ent` would see;
//! the *records* are the data rows. After a filter the text is only the bytes of the records kept.

use crate::{Cancel, Order};
use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};

/// What a kernel asks of a block. The scan provides the union of all kernels' needs and no more.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// The bytes ([`Block::runs`]).
    pub bytes: bool,
    /// How many records there are ([`Block::rows`]); known too where records or columns are asked for.
    pub rows: bool,
    /// Where records lie in the bytes ([`Block::records`]). Who looks at them ([`Block::record`]) asks for the bytes too:
    /// blocks that stay in memory between passes, and data that have no bytes, give no more than places.
    pub records: bool,
    /// Columns as numbers (schema indices, [`Block::numbers`]).
    pub numbers: Vec<usize>,
    /// Columns as text (schema indices, [`Block::texts`]).
    pub texts: Vec<usize>,
    /// Bricks of a 3-d array, with so many planes after their own: what values between the last plane and the next ones take.
    pub brick: Option<u64>,
    /// The rows of a 2-d array of numbers ([`Block::matrix`]).
    pub matrix: bool,
    /// Blocks, and states to merge, in the order of the data, for merging that is associative and does not commute: each rank
    /// works with one thread, and ranks with data that lie between those of others cannot.
    pub order: bool,
}

impl Needs {
    /// True if nobody looks at records: neither at their number nor at what is in them. Text then needs
    /// no more structure than lines, and [`Block::rows`] may be 0.
    pub fn only_bytes(&self) -> bool {
        !(self.rows || self.records || self.brick.is_some() || self.matrix)
            && self.numbers.is_empty()
            && self.texts.is_empty()
    }

    /// Adds what `other` needs. Column lists stay sorted and unique.
    pub fn add(&mut self, other: &Needs) {
        self.bytes |= other.bytes;
        self.rows |= other.rows;
        self.records |= other.records;
        self.brick = self.brick.max(other.brick);
        self.matrix |= other.matrix;
        self.order |= other.order;
        for (mine, theirs) in [(&mut self.numbers, &other.numbers), (&mut self.texts, &other.texts)]
        {
            mine.extend_from_slice(theirs);
            mine.sort_unstable();
            mine.dedup();
        }
    }

    /// True if who has this has all that `other` needs.
    pub fn includes(&self, other: &Needs) -> bool {
        let mut all = self.clone();
        all.add(other);
        all == *self
    }
}

/// A part of a block's buffer. Lengths include the record's terminator where records are lines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// First byte.
    pub start: u32,
    /// Number of bytes.
    pub len: u32,
}

impl Span {
    /// The span of a missing text value.
    pub const MISSING: Span = Span { start: 0, len: u32::MAX };

    /// The bytes of the span; empty for [`Span::MISSING`] and for spans that are only a place.
    #[inline]
    pub fn of(self, data: &[u8]) -> &[u8] {
        if self.len == 0 || self.len == u32::MAX {
            &[]
        } else {
            &data[self.start as usize..][..self.len as usize]
        }
    }
}

/// One text column of a block: spans into `data` (which is the block's own text unless quotes had to be
/// undone).
#[derive(Debug, Clone, Copy)]
pub struct TextColumn<'a> {
    /// What the spans point into.
    pub data: &'a [u8],
    /// One span a row.
    pub spans: &'a [Span],
}

impl<'a> TextColumn<'a> {
    /// The value of row `i`; `None` if it is missing.
    #[inline]
    pub fn get(&self, i: usize) -> Option<&'a [u8]> {
        let s = self.spans[i];
        (s.len != u32::MAX).then(|| s.of(self.data))
    }
}

/// Planes of a 3-d array, whole in the two fastest dimensions: `planes` own planes from `first`, and a halo of as many
/// planes after them as were asked for ([`Needs::brick`]), or more; fewer where the array ends.
#[derive(Debug, Clone, Copy)]
pub struct Brick<'a> {
    /// Shape of the whole array, slowest dimension first as it lies in the file.
    pub shape: [u64; 3],
    /// C: `shape` is as the user gave it. Fortran: it is reversed.
    pub order: Order,
    /// First own plane (along `shape[0]`).
    pub first: u64,
    /// Number of own planes.
    pub planes: usize,
    /// `(planes + halo) * shape[1] * shape[2]` voxels.
    pub voxels: &'a [f32],
}

/// Planes in one cell of the brick grid: a function of the shape alone, so that every split cuts at the
/// same planes. Blocks of bricks begin at multiples of it.
pub fn brick_planes(shape: [u64; 3]) -> u64 {
    // Large enough that the halo is little of what is read, small enough that workers share the work.
    const CELL_VOXELS: u64 = 1 << 22;
    (CELL_VOXELS / shape[1].saturating_mul(shape[2]).max(1)).clamp(1, 16)
}

/// Rows of a 2-d array as they lie in it, cut into stretches.
///
/// A stretch is [`stretch_rows`] rows by their number in the file, the last one fewer; a filter leaves out rows of it.
/// No stretch is ever split between two blocks, so that what is computed within one does not depend on the
/// extents.
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a> {
    /// All columns of the first row, then those of the second: `rows * width` values.
    pub values: &'a [f64],
    /// Number of columns, those of the schema.
    pub width: usize,
    /// Where each stretch ends: the number of the row after its last one, ascending, the last the block's number of rows.
    pub ends: &'a [u32],
}

/// Rows in one stretch of a 2-d array with `width` columns: a function of the shape alone.
pub fn stretch_rows(width: usize) -> u64 {
    // Large enough that what is done once a stretch costs little, small enough for a second-level cache.
    const STRETCH_VALUES: u64 = 1 << 17;
    (STRETCH_VALUES / (width as u64).max(1).next_power_of_two()).clamp(64, 8192)
}

/// Columns of a block, found by schema index. Column number `i` of a kind is the `i`-th stretch of
/// `stride` values.
#[derive(Debug, Clone, Copy, Default)]
pub struct Columns<'a> {
    /// Schema indices of the numeric columns, ascending.
    pub number_ids: &'a [usize],
    /// Their values, missing ones as [`crate::MISSING`].
    pub numbers: &'a [f64],
    /// Schema indices of the text columns, ascending.
    pub text_ids: &'a [usize],
    /// Their values as spans of `text_data`.
    pub spans: &'a [Span],
    /// What the spans point into: the block's text, or a copy where quotes had to be undone.
    pub text_data: &'a [u8],
    /// Distance from one column to the next, at least the number of rows.
    pub stride: usize,
}

/// What a kernel remembers of a block.
pub type Note = Box<dyn Any + Send>;

/// What kernels remember of a block that comes again in later passes. Only a help: a note may be gone the next time.
pub trait Notes: Sync + std::fmt::Debug {
    /// Takes the note out that `owner` put in. Owners number themselves with [`note_owner`].
    fn take(&self, owner: u64) -> Option<Note>;
    /// True if there is memory for a note of so many bytes.
    fn room(&self, bytes: usize) -> bool;
    /// Keeps a note that takes so many bytes, or drops it if there is no memory for it.
    fn put(&self, owner: u64, note: Note, bytes: usize);
}

/// A number that no other owner of notes in this process has.
pub fn note_owner() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Whole records of one file.
#[derive(Debug, Clone, Copy)]
pub struct Block<'a> {
    /// Index of the file in the dataset.
    pub source: u32,
    /// Running number of the block over the whole scan: blocks in file order have ascending numbers.
    pub seq: u64,
    /// Offset in the (decompressed) file of `text[0]`.
    pub offset: u64,
    /// True for the last block of a file.
    pub last: bool,
    /// True if `text` is all the block's bytes; false if a filter or a grouping left only `records`.
    pub whole: bool,
    /// Number of records; 0 if nobody asked ([`Needs::only_bytes`]) and it is not known anyway.
    pub rows: usize,
    /// The buffer that holds the block's bytes; may be empty if nobody asked for bytes.
    pub text: &'a [u8],
    /// How many bytes `text` begins with that are of a byte order mark: of the file, and of no record.
    pub mark: usize,
    /// Where the records lie in `text`; empty if nobody asked.
    pub records: &'a [Span],
    /// The columns asked for.
    pub columns: Columns<'a>,
    /// The brick, if one was asked for.
    pub brick: Option<Brick<'a>>,
    /// The rows of a 2-d array, if they were asked for.
    pub matrix: Option<Matrix<'a>>,
    /// Where kernels leave notes for later passes, if this very block, with the same rows, comes again in them.
    pub notes: Option<&'a dyn Notes>,
    /// What says that nobody wants the answer any more, for kernels that work on a block for long.
    pub cancel: Option<&'a Cancel>,
}

impl<'a> Block<'a> {
    /// An empty block, to be filled by struct update.
    pub fn empty() -> Self {
        Block {
            source: 0,
            seq: 0,
            offset: 0,
            last: false,
            whole: true,
            rows: 0,
            text: &[],
            mark: 0,
            records: &[],
            columns: Columns::default(),
            brick: None,
            matrix: None,
            notes: None,
            cancel: None,
        }
    }

    /// Numeric column with schema index `id`, one value a row.
    ///
    /// Empty if the kernel did not ask for it in its [`Needs`].
    pub fn numbers(&self, id: usize) -> &'a [f64] {
        match self.columns.number_ids.binary_search(&id) {
            Ok(i) => &self.columns.numbers[i * self.columns.stride..][..self.rows],
            Err(_) => &[],
        }
    }

    /// Text column with schema index `id`, if it was asked for.
    pub fn texts(&self, id: usize) -> Option<TextColumn<'a>> {
        let i = self.columns.text_ids.binary_search(&id).ok()?;
        Some(TextColumn {
            data: self.columns.text_data,
            spans: &self.columns.spans[i * self.columns.stride..][..self.rows],
        })
    }

    /// The bytes of record `i`, terminator included. Only for who asked for bytes and records.
    pub fn record(&self, i: usize) -> &'a [u8] {
        self.records[i].of(self.text)
    }

    /// The bytes of the block as maximal contiguous runs: one run where nothing was filtered out.
    pub fn runs(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (text, records, whole) = (self.text, self.records, self.whole);
        let mut i = 0;
        std::iter::from_fn(move || {
            if whole {
                i += 1;
                return (i == 1 && !text.is_empty()).then_some(text);
            }
            let first = *records.get(i)?;
            let mut end = first.start + first.len;
            i += 1;
            while let Some(next) = records.get(i).filter(|s| s.start == end) {
                end += next.len;
                i += 1;
            }
            Some(&text[first.start as usize..end as usize])
        })
    }

    /// This block with only the rows in `keep` (ascending row numbers). `scratch` holds the copies.
    ///
    /// Cost: one copy of the kept values.
    pub fn select<'s>(&self, keep: &[u32], scratch: &'s mut Selection) -> Block<'s>
    where
        'a: 's,
    {
        let Selection { records, numbers, spans, values, ends } = scratch;
        records.clear();
        if !self.records.is_empty() {
            records.extend(keep.iter().map(|i| self.records[*i as usize]));
        }
        numbers.clear();
        for id in self.columns.number_ids {
            let column = self.numbers(*id);
            numbers.extend(keep.iter().map(|i| column[*i as usize]));
        }
        spans.clear();
        for id in self.columns.text_ids {
            if let Some(column) = self.texts(*id) {
                spans.extend(keep.iter().map(|i| column.spans[*i as usize]));
            }
        }
        let matrix = self.matrix.map(|m| {
            values.clear();
            for i in keep {
                values.extend_from_slice(&m.values[*i as usize * m.width..][..m.width]);
            }
            ends.clear();
            // As many ends as rows are at most 2^32, and so are those before any of them.
            ends.extend(m.ends.iter().map(|e| keep.partition_point(|i| i < e) as u32));
            Matrix { values, ends, ..m }
        });
        Block {
            whole: false,
            rows: keep.len(),
            matrix,
            notes: None,
            records,
            columns: Columns { numbers, spans, stride: keep.len(), ..self.columns },
            ..*self
        }
    }
}

/// Buffers of [`Block::select`], to be reused from block to block.
#[derive(Debug, Default)]
pub struct Selection {
    records: Vec<Span>,
    numbers: Vec<f64>,
    spans: Vec<Span>,
    values: Vec<f64>,
    ends: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block() -> Block<'static> {
        Block {
            rows: 4,
            text: b"h\na,1\nb,2\nc,3\nd,4\n",
            records: &[
                Span { start: 2, len: 4 },
                Span { start: 6, len: 4 },
                Span { start: 10, len: 4 },
                Span { start: 14, len: 4 },
            ],
            columns: Columns {
                number_ids: &[1],
                numbers: &[1.0, 2.0, 3.0, 4.0],
                text_ids: &[0],
                spans: &[
                    Span { start: 2, len: 1 },
                    Span { start: 6, len: 1 },
                    Span::MISSING,
                    Span { start: 14, len: 1 },
                ],
                text_data: b"h\na,1\nb,2\nc,3\nd,4\n",
                stride: 4,
            },
            ..Block::empty()
        }
    }

    #[test]
    fn selecting_keeps_rows_and_joins_runs() {
        let mut s = Selection::default();
        let b = block();
        assert_eq!(b.runs().collect::<Vec<_>>(), [b.text]);
        let b = b.select(&[0, 1, 3], &mut s);
        assert_eq!(b.rows, 3);
        assert_eq!(b.numbers(1), [1.0, 2.0, 4.0]);
        assert_eq!(b.texts(0).and_then(|t| t.get(2)), Some(&b"d"[..]));
        assert_eq!(b.runs().collect::<Vec<_>>(), [&b"a,1\nb,2\n"[..], b"d,4\n"]);
        assert!(b.numbers(0).is_empty());
        let b = block().select(&[2], &mut s).rows;
        assert_eq!(b, 1);
    }

    #[test]
    fn selecting_keeps_rows_in_their_stretches() {
        let values: Vec<f64> = (0..12).map(f64::from).collect();
        let m = Matrix { values: &values, width: 2, ends: &[2, 4, 6] };
        let b = Block { rows: 6, matrix: Some(m), ..Block::empty() };
        let mut s = Selection::default();
        let m = b.select(&[1, 4, 5], &mut s).matrix.expect("a matrix");
        assert_eq!(
            (m.values, m.width, m.ends),
            (&[2.0, 3.0, 8.0, 9.0, 10.0, 11.0][..], 2, &[1, 1, 3][..])
        );
        assert_eq!(
            [0, 1, 10, 64, 512, 1 << 20].map(stretch_rows),
            [8192, 8192, 8192, 2048, 256, 64]
        );
    }

    #[test]
    fn the_brick_grid_depends_on_the_shape_alone() {
        assert_eq!(brick_planes([300, 300, 300]), 16);
        assert_eq!(brick_planes([1024, 1024, 1024]), 4);
        assert_eq!(brick_planes([7, 5000, 5000]), 1);
        assert_eq!(brick_planes([7, 0, 0]), 16);
    }
}
