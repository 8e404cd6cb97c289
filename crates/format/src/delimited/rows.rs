//! What a parser makes of records: spans and columns, in buffers that are used again.

use super::index::Index;
use super::simd::Form;
use stead_core::{Columns, Span};

/// Parsed records of one block.
#[derive(Debug, Default)]
pub struct Rows {
    /// Number of rows.
    pub rows: usize,
    /// Records that were skipped because they could not be read.
    pub skipped: u64,
    /// Integers that were rounded.
    pub rounded: u64,
    /// Where the records lie, if they were asked for.
    pub records: Vec<Span>,
    /// Column-major values; column `i` begins at `i * stride`.
    pub(super) numbers: Vec<f64>,
    /// Column-major text values.
    pub(super) spans: Vec<Span>,
    /// Rows for which there is room in every column.
    pub(super) stride: usize,
    /// Text that is not in the block as such because quotes had to be undone.
    pub(super) extra: Vec<u8>,
    /// Indices in `spans`, as column and row, of values that lie in `extra`.
    pub(super) moved: Vec<(usize, usize)>,
    /// The block's text followed by `extra`, if there is any of it.
    arena: Vec<u8>,
    /// For each numeric column the form that its numbers had last in this block.
    pub(super) forms: Vec<Form>,
    /// Where fields end in the stretch of text at hand.
    pub(super) index: Index,
    number_columns: usize,
    text_columns: usize,
}

impl Rows {
    /// Rows for which there is room at first, where there are few columns.
    const FIRST_STRIDE: usize = 256;
    /// Values for which there is room at first: wide tables have few rows in a block.
    const FIRST_VALUES: usize = 1 << 16;

    /// Empties it and makes it ready for so many columns.
    pub fn clear(&mut self, number_columns: usize, text_columns: usize) {
        self.rows = 0;
        self.skipped = 0;
        self.rounded = 0;
        self.records.clear();
        self.extra.clear();
        self.moved.clear();
        self.arena.clear();
        self.forms.clear();
        self.forms.resize(number_columns, Form::ALL[0]);
        self.number_columns = number_columns;
        self.text_columns = text_columns;
        if self.stride == 0 {
            let columns = (number_columns + text_columns).max(1);
            self.stride = (Self::FIRST_VALUES / columns).clamp(1, Self::FIRST_STRIDE);
        }
        self.numbers.resize(number_columns * self.stride, 0.0);
        self.spans.resize(text_columns * self.stride, Span::MISSING);
    }

    /// Makes room for one more row.
    #[inline]
    pub(super) fn reserve(&mut self) {
        if self.rows == self.stride {
            self.grow();
        }
    }

    /// Makes room for `n` more rows.
    pub(super) fn reserve_rows(&mut self, n: usize) {
        // Rows without columns are counted without room for them.
        while self.stride.saturating_sub(self.rows) < n {
            self.grow();
        }
    }

    #[cold]
    fn grow(&mut self) {
        let (old, new) = (self.stride, self.stride * 2);
        self.numbers.resize(self.number_columns * new, 0.0);
        self.spans.resize(self.text_columns * new, Span::MISSING);
        // From the last column to the first, so that nothing is written over that is still needed.
        for c in (1..self.number_columns).rev() {
            self.numbers.copy_within(c * old..(c + 1) * old, c * new);
        }
        for c in (1..self.text_columns).rev() {
            self.spans.copy_within(c * old..(c + 1) * old, c * new);
        }
        self.stride = new;
    }

    /// To be called when all of the block is parsed: values from `extra` get their place behind `text`.
    pub(super) fn finish(&mut self, text: &[u8]) {
        if self.moved.is_empty() {
            return;
        }
        self.arena.extend_from_slice(text);
        self.arena.extend_from_slice(&self.extra);
        for (column, row) in &self.moved {
            self.spans[column * self.stride + row].start += text.len() as u32;
        }
    }

    /// The columns, for a block with this text.
    pub fn columns<'a>(
        &'a self,
        text: &'a [u8],
        number_ids: &'a [usize],
        text_ids: &'a [usize],
    ) -> Columns<'a> {
        Columns {
            number_ids,
            numbers: &self.numbers,
            text_ids,
            spans: &self.spans,
            text_data: if self.arena.is_empty() { text } else { &self.arena },
            stride: self.stride,
        }
    }

    /// Bytes that the buffers take.
    pub fn capacity(&self) -> usize {
        self.numbers.capacity() * 8
            + (self.spans.capacity() + self.records.capacity()) * 8
            + self.extra.capacity()
            + self.arena.capacity()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_tables_take_no_more_room_than_narrow_ones() {
        let mut rows = Rows::default();
        for (numbers, texts) in [(1, 0), (90_000, 10_000), (300, 0), (0, 0)] {
            rows = Rows { stride: 0, ..rows };
            rows.clear(numbers, texts);
            assert!(rows.stride > 0);
            assert!((numbers + texts) * rows.stride <= (numbers + texts).max(1 << 16));
            let before = rows.stride;
            for row in 0..3 * before {
                rows.reserve();
                (0..numbers).for_each(|c| rows.numbers[c * rows.stride + row] = (c + row) as f64);
                rows.rows += 1;
                if numbers > 300 {
                    break;
                }
            }
            let kept = |c: usize, row: usize| rows.numbers[c * rows.stride + row];
            for row in 0..rows.rows {
                assert!((0..numbers).all(|c| kept(c, row) == (c + row) as f64));
            }
        }
    }
}
