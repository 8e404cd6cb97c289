//! The fast way through records without quotes: an index of where fields end, then column by column.
//!
//! A stretch of text is indexed ([`Index`]). Runs of records that have no quote, the right number of fields
//! and nothing odd about them are taken column by column, so that columns nobody asked for cost no more than
//! their part of the index. Every other record goes to [`Parser::one`], the careful way, and so do the
//! records of a run in which some value is none: the careful way knows what to say and where. Both ways
//! give the same.

use super::index::{Index, STRETCH};
use super::number;
use super::parse::{Field, Parser, Piece, Want, without_return};
use super::rows::Rows;
use super::simd::{self, Vector, Work};
use stead_core::{Result, Span};

/// Records of a stretch that are taken together.
#[derive(Clone, Copy)]
struct Run<'a> {
    text: &'a [u8],
    /// Where in `text` the stretch begins.
    base: usize,
    /// Ends of fields; the first one is the end of the field before the run.
    ends: &'a [u32],
    /// Number of records.
    len: usize,
    /// Fields of each.
    fields: usize,
}

impl Run<'_> {
    /// Where field `column` of record `row` lies, without a carriage return at the record's end.
    #[inline(always)]
    fn field(&self, row: usize, column: usize) -> (usize, usize) {
        let k = row * self.fields + column;
        let start = self.base + self.ends[k].wrapping_add(1) as usize;
        let end = self.base + self.ends[k + 1] as usize;
        let last = column + 1 == self.fields;
        (start, if last { without_return(self.text, start, end) } else { end })
    }
}

impl Parser<'_> {
    /// Takes records from `at` on, up to the end of a stretch. Gives where it stopped, which is `at` if the
    /// record there is longer than a stretch or does not end in the text.
    pub(super) fn stretch(&self, piece: &Piece<'_>, at: usize, rows: &mut Rows) -> Result<usize> {
        let mut index = std::mem::take(&mut rows.index);
        let (delimiter, fields) =
            if self.fields { (self.syntax.delimiter, self.wants.len()) } else { (b'\n', 1) };
        let text = &piece.text[at..piece.text.len().min(at + STRETCH)];
        index.build(text, delimiter, self.syntax.quote);
        let result = self.walk(piece, at, &index, fields, rows);
        rows.index = index;
        result
    }

    fn walk(
        &self,
        piece: &Piece<'_>,
        base: usize,
        index: &Index,
        fields: usize,
        rows: &mut Rows,
    ) -> Result<usize> {
        let text = piece.text;
        let ends = index.ends();
        let newlines = &index.newlines[..];
        let stop = piece.stop.min(text.len());
        // The record at hand starts at `start`, its first field is entry `first` of `ends`.
        let (mut start, mut first) = (base, 1);
        // The next newline and the next quote.
        let (mut r, mut q) = (0, 0);
        while r < newlines.len() && start < stop {
            while index.quotes.get(q).is_some_and(|n| base + (*n as usize) < start) {
                q += 1;
            }
            let quote = index.quotes.get(q).map_or(usize::MAX, |n| base + *n as usize);
            let (from, run_first) = (start, first);
            let mut run = 0;
            while let Some(last) = newlines.get(r).map(|k| *k as usize) {
                let end = base + ends[last] as usize;
                let odd = last + 1 - first != fields
                    || end > quote
                    || fields == 1 && (end == start || end == start + 1 && text[start] == b'\r')
                    || self.syntax.comment == Some(text[start]);
                if odd || start >= stop {
                    break;
                }
                run += 1;
                r += 1;
                start = end + 1;
                first = last + 1;
            }
            if run > 0 {
                let run = Run { text, base, ends: &ends[run_first - 1..first], len: run, fields };
                if !self.take_run(&run, rows) {
                    let mut at = from;
                    while at < start {
                        // Every record of a run ends in it.
                        let Some(next) = self.one(piece, at, rows)? else { return Ok(at) };
                        at = next;
                    }
                }
            }
            if r < newlines.len() && start < stop {
                let Some(next) = self.one(piece, start, rows)? else { return Ok(start) };
                start = next;
                while let Some(k) =
                    newlines.get(r).filter(|k| base + (ends[**k as usize] as usize) < start)
                {
                    first = *k as usize + 1;
                    r += 1;
                }
            }
        }
        Ok(start)
    }

    /// Takes the records of a run; false, with nothing taken, if some value is none.
    fn take_run(&self, run: &Run<'_>, rows: &mut Rows) -> bool {
        let (row, rounded) = (rows.rows, rows.rounded);
        rows.reserve_rows(run.len);
        for (column, want) in &self.wanted {
            if !self.take_column(run, *column, *want, rows) {
                rows.rounded = rounded;
                return false;
            }
        }
        if self.records {
            rows.records.extend((0..run.len).map(|i| {
                let start = run.base + run.ends[i * run.fields].wrapping_add(1) as usize;
                let end = run.base + run.ends[(i + 1) * run.fields] as usize + 1;
                Span { start: start as u32, len: (end - start) as u32 }
            }));
        }
        rows.rows = row + run.len;
        true
    }

    fn take_column(&self, run: &Run<'_>, column: usize, want: Want, rows: &mut Rows) -> bool {
        let row = rows.rows;
        let quick = want.is_number_alone() && !self.missing.is_numeric();
        let mut i = 0;
        while i < run.len {
            if quick {
                let from = want.number as usize * rows.stride + row;
                let out = &mut rows.numbers[from..from + run.len];
                i = simd::dispatch(Numbers { run: *run, column, from: i, out });
                if i == run.len {
                    break;
                }
            }
            let (start, end) = run.field(i, column);
            let field = Field::Here(start, end);
            if !matches!(self.value(run.text, start, field, want, column, row + i, rows), Ok(true))
            {
                return false;
            }
            i += 1;
        }
        true
    }
}

/// Reads the numbers of a column from record `from` on; gives the first record whose field needs more care.
struct Numbers<'a> {
    run: Run<'a>,
    column: usize,
    from: usize,
    out: &'a mut [f64],
}

impl Work for Numbers<'_> {
    type Out = usize;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> usize {
        let Numbers { run, column, from, out } = self;
        for (i, out) in out.iter_mut().enumerate().skip(from) {
            let (start, end) = run.field(i, column);
            match decimal(vector, run.text, start, end) {
                Some(v) => *out = v,
                None => return i,
            }
        }
        run.len
    }
}

/// The number that `text[start..end]` says, if it is a decimal of at most 16 bytes after its sign, with or
/// without an exponent, and exact by Clinger's argument (see [`number`]). It reads 16 bytes that end with the
/// field.
#[inline(always)]
fn decimal<V: Vector>(vector: V, text: &[u8], start: usize, end: usize) -> Option<f64> {
    let negative = *text.get(start)? == b'-';
    let start = start + usize::from(negative);
    let (digits, places) = match mantissa(vector, text, start, end)? {
        Ok((digits, places)) => (digits, places as isize),
        Err(others) => {
            // The last byte that is no digit is the exponent's mark or its sign.
            let last = end - 16 + (31 - others.leading_zeros()) as usize;
            let sign = text[last];
            let mark = last - usize::from(matches!(sign, b'+' | b'-'));
            let exponent = &text[last + 1..end];
            if mark <= start || text[mark] | 0x20 != b'e' || !(1..=3).contains(&exponent.len()) {
                return None;
            }
            let ten = exponent.iter().fold(0, |n, b| 10 * n + isize::from(*b as i8 - b'0' as i8));
            let (digits, places) = mantissa(vector, text, start, mark)?.ok()?;
            (digits, places as isize - if sign == b'-' { -ten } else { ten })
        }
    };
    let v = number::scaled(digits, places)?;
    Some(if negative { -v } else { v })
}

/// The digits of a plain decimal without sign and how many of them stand after the point; or which of the 16
/// bytes before `end` are neither digits nor its only point.
#[inline(always)]
fn mantissa<V: Vector>(
    vector: V,
    text: &[u8],
    start: usize,
    end: usize,
) -> Option<Result<(u64, usize), u32>> {
    let len = end.checked_sub(start)?;
    let window: &[u8; 16] = text.get(end.checked_sub(16)?..end)?.first_chunk()?;
    if len == 0 || len > 16 {
        return None;
    }
    let others = vector.others(window, len);
    if others == 0 {
        return Some(Ok((vector.digits(window, len, 16), 0)));
    }
    let point = others.trailing_zeros() as usize;
    if others & (others - 1) != 0 || window[point & 15] != b'.' {
        return Some(Err(others));
    }
    if len == 1 {
        return None;
    }
    Some(Ok((vector.digits(window, len, point), 15 - point)))
}
