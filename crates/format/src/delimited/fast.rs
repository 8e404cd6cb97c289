//! The fast way through records: an index of where fields end, then column by column.
//!
//! A stretch of text is indexed ([`Index`]). Runs of records that have the right number of fields and nothing
//! odd about them are taken column by column, so that columns nobody asked for cost no more than their part
//! of the index. Every other record goes to [`Parser::one`], the careful way, and so do the records of a run
//! in which some value is none: the careful way knows what to say and where. Both ways give the same.
//!
//! Numbers are read four at a time ([`simd::decimals`]), in the form that those before them in the column had; what has no
//! such form is read one at a time, and what is no plain decimal goes to the careful way.

use super::fields_of::{Ends, Fields};
use super::index::{Index, Quotes, STRETCH};
use super::number;
use super::parse::{Parser, Piece, Want, without_return};
use super::rows::Rows;
use super::simd::{self, Form, Vector, Work};
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
    /// The byte around fields, if there is such a one in the run.
    quote: Option<u8>,
    /// Carriage returns may stand before newlines.
    returns: bool,
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

    /// Ends of the fields of a column that says numbers, without carriage returns and quotes, if there are any.
    fn bare(&self, column: usize) -> Option<Vec<u32>> {
        let last = self.returns && column + 1 == self.fields;
        if !last && self.quote.is_none() {
            return None;
        }
        let bare = (0..self.len).flat_map(|row| {
            let (mut start, mut end) = self.field(row, column);
            let around =
                |at: usize| self.quote.is_some() && self.text.get(at).copied() == self.quote;
            if end >= start + 2 && around(start) && around(end - 1) {
                (start, end) = (start + 1, end - 1);
            }
            [(start - self.base).wrapping_sub(1) as u32, (end - self.base) as u32]
        });
        Some(bare.collect())
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
        let quotes = match self.syntax.quote {
            None => Quotes::None,
            // A quote in a comment means nothing.
            Some(q) if self.syntax.comment.is_some() => Quotes::Stop(q),
            Some(q) => Quotes::Around(q),
        };
        index.build(text, delimiter, quotes);
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
        let newlines = index.newlines();
        let stop = piece.stop.min(text.len());
        let quote = self.syntax.quote.filter(|_| index.quoted);
        // All that matters is the number of fields: no record starts at the stop or beyond it.
        let reach = ends.last().map_or(base, |e| base + *e as usize);
        let quick = fields > 1 && self.syntax.comment.is_none() && reach < stop;
        // The record at hand starts at `start`, its first field is entry `first` of `ends`, and `r` is the next
        // newline.
        let (mut start, mut first, mut r) = (base, 1, 0);
        while r < newlines.len() && start < stop {
            let (from, run_first) = (start, first);
            let mut run = 0;
            if quick {
                // The same newline of as many records as there are, one `fields` ends after the other.
                let regular = newlines[r..].iter().enumerate();
                let last = first + fields - 1;
                run = regular.take_while(|(i, k)| **k as usize == last + i * fields).count();
                if run > 0 {
                    r += run;
                    first += run * fields;
                    start = base + ends[first - 1] as usize + 1;
                }
            }
            while !quick && let Some(last) = newlines.get(r).map(|k| *k as usize) {
                let end = base + ends[last] as usize;
                let odd = last + 1 - first != fields
                    || fields == 1 && (end == start || end == start + 1 && text[start] == b'\r')
                    || self.syntax.comment.is_some_and(|c| c == text[start]);
                if odd || start >= stop {
                    break;
                }
                run += 1;
                r += 1;
                start = end + 1;
                first = last + 1;
            }
            if run > 0 {
                let ends = &ends[run_first - 1..first];
                let returns = start >= 2 && text[start - 2] == b'\r';
                let run = Run { text, base, ends, len: run, fields, quote, returns };
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
        let (extra, moved) = (rows.extra.len(), rows.moved.len());
        rows.reserve_rows(run.len);
        let checked = simd::dispatch(Check(run));
        for (column, want) in &self.wanted {
            if !self.take_column(run, &checked, *column, *want, rows) {
                rows.rounded = rounded;
                rows.extra.truncate(extra);
                rows.moved.truncate(moved);
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

    fn take_column(
        &self,
        run: &Run<'_>,
        checked: &Ends<'_>,
        column: usize,
        want: Want,
        rows: &mut Rows,
    ) -> bool {
        let row = rows.rows;
        // A quote that numbers are written with could be part of one.
        let apart = run.quote.is_none_or(|q| !(q.is_ascii_digit() || b"+-.eE".contains(&q)));
        let quick = want.is_number_alone() && !self.missing.is_numeric() && apart;
        let bare = if quick { run.bare(column) } else { None };
        let fields = match &bare {
            Some(ends) => Ends::new(run.text, run.base, ends).column(0, 2),
            None => checked.column(column, run.fields),
        };
        let mut i = 0;
        while i < run.len {
            if quick {
                let from = want.number as usize * rows.stride + row;
                let out = &mut rows.numbers[from..from + run.len];
                let form = &mut rows.forms[want.number as usize];
                i = simd::dispatch(Numbers { fields, from: i, out, form });
                if i == run.len {
                    break;
                }
            }
            let (start, end) = run.field(i, column);
            let field = self.content(run.text, start, end, run.quote, rows);
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
    fields: Fields<'a>,
    from: usize,
    out: &'a mut [f64],
    /// The form that the column had last, which is tried first.
    form: &'a mut Form,
}

/// Looks at all ends of a run once, so that nobody has to look at each again.
struct Check<'r, 'a>(&'r Run<'a>);

impl<'a> Work for Check<'_, 'a> {
    type Out = Ends<'a>;

    #[inline(always)]
    fn run<V: Vector>(self, _: V) -> Ends<'a> {
        Ends::new(self.0.text, self.0.base, self.0.ends)
    }
}

impl Work for Numbers<'_> {
    type Out = usize;

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) -> usize {
        let Numbers { fields, mut from, out, form } = self;
        while from < out.len() {
            let rest = fields.skip(from);
            let mut n = simd::decimals(vector, &rest, *form, &mut out[from..]);
            if n == 0 {
                for f in Form::ALL {
                    n = simd::decimals(vector, &rest, f, &mut out[from..]);
                    if n > 0 {
                        *form = f;
                        break;
                    }
                }
            }
            from += n;
            // The last ones, or four of which one stopped it. If all are numbers it was its form.
            for _ in 0..4.min(out.len() - from) {
                let Some((start, end)) = fields.get(from) else { return from };
                match decimal(vector, fields.text(), start, end) {
                    Some(v) => out[from] = v,
                    None => return from,
                }
                from += 1;
            }
        }
        from
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
            // A sign may be the very first byte of the text: then there is no mark before it.
            let mark = last.checked_sub(usize::from(matches!(sign, b'+' | b'-')))?;
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
