//! From the bytes of records to columns. Pure: no I/O, no shared state.

use super::number;
use super::rows::Rows;
use super::syntax::{State, Syntax};
use memchr::memchr;
use stead_core::{Error, MISSING, Needs, Result, Schema, Span};

/// No column of that kind wants the field.
const NONE: u32 = u32::MAX;

/// What is to be done with a field.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    /// Index among the numeric columns asked for.
    pub(super) number: u32,
    /// Index among the text columns asked for.
    text: u32,
}

impl Want {
    /// True if the field is wanted as a number and not as text too.
    pub(super) fn is_number_alone(self) -> bool {
        self.number != NONE && self.text == NONE
    }
}

/// Tokens that mean "no value".
#[derive(Debug, Clone)]
pub struct Missing {
    tokens: Vec<Vec<u8>>,
    /// True if a token reads as a plain number, so that fields must be compared before they are read.
    numeric: bool,
    longest: usize,
}

impl Missing {
    /// From the tokens.
    pub fn new(tokens: Vec<Vec<u8>>) -> Self {
        Missing {
            numeric: tokens.iter().any(|t| number::plain(t).is_some()),
            longest: tokens.iter().map(Vec::len).max().unwrap_or(0),
            tokens,
        }
    }

    /// True if `field` is one of the tokens.
    #[inline]
    pub fn is(&self, field: &[u8]) -> bool {
        field.len() <= self.longest && self.tokens.iter().any(|t| t == field)
    }

    /// True if a token reads as a plain number.
    pub(super) fn is_numeric(&self) -> bool {
        self.numeric
    }

    /// The tokens.
    pub fn tokens(&self) -> &[Vec<u8>] {
        &self.tokens
    }
}

/// Where a parser stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// The byte after the last record that was taken: a record starts here.
    pub next: usize,
    /// False if the record at `next` is to be taken too but does not end within the text.
    pub complete: bool,
}

/// The part of a text that a parser works on.
#[derive(Debug, Clone, Copy)]
pub struct Piece<'a> {
    /// The bytes; a record starts at index 0.
    pub text: &'a [u8],
    /// Records that start before this index are no data: byte order mark, header.
    pub skip: usize,
    /// Of `skip`, the bytes of the byte order mark.
    pub bom: usize,
    /// Records that start before this index are taken.
    pub stop: usize,
    /// True if the file ends with the text.
    pub eof: bool,
}

/// Parses records of delimited text. One a worker; cheap to make.
#[derive(Debug)]
pub struct Parser<'s> {
    pub(super) syntax: Syntax,
    pub(super) missing: &'s Missing,
    schema: &'s Schema,
    /// One a column of the schema.
    pub(super) wants: Vec<Want>,
    /// Those of them that ask for something, with their columns.
    pub(super) wanted: Vec<(usize, Want)>,
    /// Records may be taken the fast way.
    fast: bool,
    /// Where a plain decimal begins a field, it may be read before the end of the field is known: no token reads
    /// as one, and none has the delimiter in it.
    plain: bool,
    /// Columns are asked for, so fields are looked at and counted.
    pub(super) fields: bool,
    pub(super) records: bool,
    lenient: bool,
    number_columns: usize,
    text_columns: usize,
}

/// The end of a field.
enum End {
    Delimiter,
    Newline,
    Eof,
}

impl<'s> Parser<'s> {
    /// A parser for what `needs` asks of `schema`.
    pub fn new(
        syntax: Syntax,
        missing: &'s Missing,
        schema: &'s Schema,
        needs: &Needs,
        lenient: bool,
    ) -> Result<Self> {
        let mut wants = vec![Want { number: NONE, text: NONE }; schema.columns.len()];
        let absent = || Error::internal("a column was asked for that is not in the schema");
        for (i, id) in needs.numbers.iter().enumerate() {
            wants.get_mut(*id).ok_or_else(absent)?.number = i as u32;
        }
        for (i, id) in needs.texts.iter().enumerate() {
            wants.get_mut(*id).ok_or_else(absent)?.text = i as u32;
        }
        let wanted = wants.iter().copied().enumerate();
        let wanted = wanted.filter(|(_, w)| w.number != NONE || w.text != NONE).collect();
        Ok(Parser {
            wanted,
            fast: true,
            plain: !missing.numeric && !number::in_plain(syntax.delimiter),
            syntax,
            missing,
            schema,
            wants,
            fields: !(needs.numbers.is_empty() && needs.texts.is_empty()),
            records: needs.records,
            lenient,
            number_columns: needs.numbers.len(),
            text_columns: needs.texts.len(),
        })
    }

    /// Makes `rows` ready for a block.
    pub fn begin(&self, rows: &mut Rows) {
        rows.clear(self.number_columns, self.text_columns);
    }

    /// Takes the records of `piece` that start at `from` or later into `rows`. If the last one is not
    /// complete, call again from [`Stop::next`] with more text.
    ///
    /// Errors carry offsets within the piece.
    pub fn parse(&self, piece: &Piece<'_>, from: usize, rows: &mut Rows) -> Result<Stop> {
        let stop = piece.stop.min(piece.text.len());
        let mut at = from;
        while at < stop {
            if at < piece.bom {
                // Every byte of the mark stands for itself, so that any extent may end within it.
                at += 1;
                continue;
            }
            if self.fast && at >= piece.skip {
                let next = self.stretch(piece, at, rows)?;
                if next > at {
                    at = next;
                    continue;
                }
            }
            match self.one(piece, at, rows)? {
                Some(next) => at = next,
                None => return Ok(Stop { next: at, complete: false }),
            }
        }
        Ok(Stop { next: at, complete: true })
    }

    /// Takes the record, blank line or comment at `at`, the careful way. Gives where the next one starts;
    /// `None` if this one does not end in the text.
    #[inline]
    pub(super) fn one(
        &self,
        piece: &Piece<'_>,
        at: usize,
        rows: &mut Rows,
    ) -> Result<Option<usize>> {
        let text = piece.text;
        let first = text[at];
        let blank = match first {
            b'\n' => 1,
            b'\r' if text.get(at + 1) == Some(&b'\n') => 2,
            b'\r' if at + 1 == text.len() && piece.eof => 1,
            _ => 0,
        };
        if blank > 0 {
            return Ok(Some(at + blank));
        }
        let comment = Some(first) == self.syntax.comment;
        if self.fields && at >= piece.skip && !comment {
            self.record(piece, at, rows)
        } else {
            self.skim(piece, at, rows, comment)
        }
    }

    /// To be called when all of a block is parsed, with its text.
    pub fn finish(&self, text: &[u8], rows: &mut Rows) {
        rows.finish(text);
    }

    /// Finds the end of a record without looking at its fields.
    fn skim(
        &self,
        piece: &Piece<'_>,
        at: usize,
        rows: &mut Rows,
        comment: bool,
    ) -> Result<Option<usize>> {
        let text = piece.text;
        let mut good = true;
        let end = match self.syntax.record_end(text, at, State::Record) {
            Ok(end) => end,
            Err(_) if !piece.eof => return Ok(None),
            Err(State::Quoted) => {
                if !self.lenient {
                    return Err(unclosed(at));
                }
                good = false;
                text.len()
            }
            Err(_) => text.len(),
        };
        if comment || at < piece.skip {
            return Ok(Some(end));
        }
        if good {
            self.keep(at, end, rows);
        } else {
            rows.skipped += 1;
        }
        Ok(Some(end))
    }

    fn keep(&self, at: usize, end: usize, rows: &mut Rows) {
        if self.records {
            rows.records.push(Span { start: at as u32, len: (end - at) as u32 });
        }
        rows.rows += 1;
    }

    /// Parses the record at `at`; `None` if it does not end in the text.
    fn record(&self, piece: &Piece<'_>, at: usize, rows: &mut Rows) -> Result<Option<usize>> {
        let text = piece.text;
        let (extra, moved, rounded) = (rows.extra.len(), rows.moved.len(), rows.rounded);
        rows.reserve();
        let mut column = 0;
        let mut good = true;
        let mut p = at;
        let next = loop {
            let want = self.wants.get(column).copied();
            let wanted = want.filter(|w| w.number != NONE || w.text != NONE);
            let start = p;
            let (content, content_end);
            let mut undo = false;
            if p < text.len() && Some(text[p]) == self.syntax.quote {
                let Some((close, doubled)) = self.closing(text, p + 1, piece.eof) else {
                    if !piece.eof {
                        return Ok(self.roll_back(rows, extra, moved, rounded));
                    }
                    if !self.lenient {
                        return Err(unclosed(at));
                    }
                    good = false;
                    break text.len();
                };
                p = self.field_end(text, close + 1);
                content = start + 1;
                content_end = close;
                // Bytes after the closing quote belong to the field, as they stand.
                let ends_line = text.get(p) != Some(&self.syntax.delimiter);
                let rest = if ends_line { without_return(text, close + 1, p) } else { p };
                undo = doubled || rest > close + 1;
            } else {
                if let Some(w) = wanted
                    && w.text == NONE
                    && self.plain
                    && let Some((v, n)) = number::plain(&text[p..])
                    && let Some(&b) = text.get(p + n)
                    && (b == self.syntax.delimiter || b == b'\n')
                {
                    rows.numbers[w.number as usize * rows.stride + rows.rows] = v;
                    p += n + 1;
                    column += 1;
                    if b == b'\n' {
                        break p;
                    }
                    continue;
                }
                p = self.field_end(text, p);
                content = start;
                content_end = p;
            }
            let end = match text.get(p) {
                Some(b'\n') => End::Newline,
                Some(_) => End::Delimiter,
                None if piece.eof => End::Eof,
                None => return Ok(self.roll_back(rows, extra, moved, rounded)),
            };
            if let Some(w) = wanted {
                let span = if undo {
                    self.unquote(&text[start..without_return_at(text, start, p, &end)], rows)
                } else if content == start {
                    let e = without_return_at(text, start, content_end, &end);
                    Field::Here(content, e)
                } else {
                    Field::Here(content, content_end)
                };
                let row = rows.rows;
                good &= self.value(text, start, span, w, column, row, rows)?;
            }
            column += 1;
            match end {
                End::Delimiter => p += 1,
                End::Newline => break p + 1,
                End::Eof => break p,
            }
        };
        if good && column == self.wants.len() {
            self.keep(at, next, rows);
        } else if self.lenient {
            self.roll_back(rows, extra, moved, rounded);
            rows.skipped += 1;
        } else {
            let fields = if column == 1 { "field" } else { "fields" };
            return Err(Error::data(format!(
                "this record has {column} {fields}, expected {}",
                self.wants.len()
            ))
            .at_offset(at as u64)
            .with_hint(
                "a delimiter within a field needs quotes around it; --lenient counts and skips such \
                 records",
            ));
        }
        Ok(Some(next))
    }

    /// Forgets what the record at hand has left.
    fn roll_back(
        &self,
        rows: &mut Rows,
        extra: usize,
        moved: usize,
        rounded: u64,
    ) -> Option<usize> {
        rows.extra.truncate(extra);
        rows.moved.truncate(moved);
        rows.rounded = rounded;
        None
    }

    /// The delimiter or newline that ends the unquoted field at `p`, or the end of the text.
    #[inline]
    fn field_end(&self, text: &[u8], p: usize) -> usize {
        let delimiter = self.syntax.delimiter;
        text[p..].iter().position(|b| *b == delimiter || *b == b'\n').map_or(text.len(), |n| p + n)
    }

    /// The quote that closes the field whose content begins at `p`, and whether quotes are doubled in
    /// between. `None` if the text ends before it is sure.
    fn closing(&self, text: &[u8], p: usize, eof: bool) -> Option<(usize, bool)> {
        let quote = self.syntax.quote?;
        let mut doubled = false;
        let mut i = p;
        loop {
            let q = i + memchr(quote, text.get(i..)?)?;
            match text.get(q + 1) {
                Some(b) if *b == quote => {
                    doubled = true;
                    i = q + 2;
                }
                None if !eof => return None,
                _ => return Some((q, doubled)),
            }
        }
    }

    /// The content of the field that lies between `start` and `end`, both of whose quotes lie there if it
    /// begins with one.
    #[inline]
    pub(super) fn content(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        quote: Option<u8>,
        rows: &mut Rows,
    ) -> Field {
        let field = &text[start..end];
        if quote.is_none() || field.first().copied() != quote {
            return Field::Here(start, end);
        }
        match self.closing(field, 1, true) {
            Some((close, false)) if close + 1 == field.len() => {
                Field::Here(start + 1, start + close)
            }
            _ => self.unquote(field, rows),
        }
    }

    /// Undoes the quotes of `field`, which begins with one.
    fn unquote(&self, field: &[u8], rows: &mut Rows) -> Field {
        let quote = self.syntax.quote.unwrap_or(b'"');
        let from = rows.extra.len();
        let mut quoted = true;
        let mut i = 1;
        while i < field.len() {
            let b = field[i];
            i += 1;
            if quoted && b == quote {
                if field.get(i) == Some(&quote) {
                    i += 1;
                } else {
                    quoted = false;
                    continue;
                }
            }
            rows.extra.push(b);
        }
        Field::Extra(from, rows.extra.len())
    }

    /// Stores the value of a field; false if it is bad and the scan is lenient.
    #[inline]
    #[allow(clippy::too_many_arguments)]
    pub(super) fn value(
        &self,
        text: &[u8],
        start: usize,
        field: Field,
        want: Want,
        column: usize,
        row: usize,
        rows: &mut Rows,
    ) -> Result<bool> {
        let bytes = match field {
            Field::Here(a, b) => &text[a..b],
            Field::Extra(a, b) => &rows.extra[a..b],
        };
        let missing = self.missing.is(bytes);
        if want.number != NONE {
            // Numbers are read without the blanks around them. A token that is a number, too, such as `nan`,
            // would be a value with a blank beside it and none without.
            let bare = bytes.trim_ascii();
            let none = missing || (bare.len() < bytes.len() && self.missing.is(bare));
            let parsed = if none { Some((MISSING, false)) } else { number::parse(bytes) };
            let Some((v, rounded)) = parsed else {
                if self.lenient {
                    return Ok(false);
                }
                return Err(Error::data(format!(
                    "found '{}', expected a number",
                    super::shorten(bytes)
                ))
                .at_offset(start as u64)
                .at_column(self.schema.columns[column].name.clone())
                .with_hint(
                    "--lenient counts and skips such records, --missing TOKEN says that it means no \
                     value, --column-type NAME=text makes the column text",
                ));
            };
            rows.rounded += u64::from(rounded);
            rows.numbers[want.number as usize * rows.stride + row] = v;
        }
        if want.text != NONE {
            let slot = want.text as usize * rows.stride + row;
            rows.spans[slot] = match field {
                _ if missing => Span::MISSING,
                Field::Here(a, b) => Span { start: a as u32, len: (b - a) as u32 },
                Field::Extra(a, b) => {
                    rows.moved.push((want.text as usize, row));
                    Span { start: a as u32, len: (b - a) as u32 }
                }
            };
        }
        Ok(true)
    }
}

/// Where the content of a field lies.
#[derive(Clone, Copy)]
pub(super) enum Field {
    /// In the text.
    Here(usize, usize),
    /// Among the texts whose quotes were undone.
    Extra(usize, usize),
}

/// `end` without a carriage return before it.
#[inline(always)]
pub(super) fn without_return(text: &[u8], start: usize, end: usize) -> usize {
    if end > start && text[end - 1] == b'\r' { end - 1 } else { end }
}

/// As [`without_return`], unless a delimiter follows: only a line's end has one.
fn without_return_at(text: &[u8], start: usize, at: usize, end: &End) -> usize {
    if matches!(end, End::Delimiter) { at } else { without_return(text, start, at) }
}

fn unclosed(at: usize) -> Error {
    Error::data("a quote is opened in this record and never closed")
        .at_offset(at as u64)
        .with_hint("if quotes have no meaning in this file, say --quote none")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::{ColumnInfo, ColumnKind, RecordKind};

    /// Everything that a parser leaves behind, or its error.
    fn outcome(p: &Parser<'_>, piece: &Piece<'_>, from: usize) -> impl PartialEq + std::fmt::Debug {
        let mut rows = Rows::default();
        p.begin(&mut rows);
        let stop = p.parse(piece, from, &mut rows).map_err(|e| (e.to_string(), e.place().clone()));
        if stop.is_ok() {
            p.finish(piece.text, &mut rows);
        }
        let ok = stop.is_ok();
        let column = |i: usize, all: &[f64]| -> Vec<u64> {
            all[i * rows.stride..][..rows.rows].iter().map(|v| v.to_bits()).collect()
        };
        let numbers: Vec<_> =
            (0..p.number_columns).map(|i| column(i, &rows.numbers)).filter(|_| ok).collect();
        // By what they say: text whose quotes were undone may lie in any order.
        let ids: Vec<usize> = (0..p.text_columns).collect();
        let columns = rows.columns(piece.text, &[], &ids);
        let texts: Vec<Vec<Option<Vec<u8>>>> = (0..p.text_columns)
            .map(|i| {
                let spans = &columns.spans[i * columns.stride..][..rows.rows];
                let text =
                    |s: &Span| (*s != Span::MISSING).then(|| s.of(columns.text_data).to_vec());
                spans.iter().map(text).collect()
            })
            .filter(|_| ok)
            .collect();
        let counts = (rows.rows, rows.skipped, rows.rounded);
        (stop, ok.then_some(counts), numbers, texts, rows.records.clone())
    }

    fn field() -> impl Strategy<Value = String> {
        prop_oneof![
            6 => "-?[0-9]{1,8}(\\.[0-9]{0,8})?",
            3 => "-?[0-9]{0,17}\\.?[0-9]{0,9}([eE][-+]?[0-9]{0,4})?",
            2 => "[-+.eE0-9x ]{0,18}",
            1 => Just("NA".to_string()),
            1 => Just("9007199254740993".to_string()),
            1 => "\"[0-9,\n\"]{0,5}\"",
            1 => "\"[0-9]{1,5}(,|\"\"|\n|\r)?[a-z]{0,2}\"[a-z\r]{0,2}",
            1 => "[a\",\n\r#]{0,3}",
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]

        #[test]
        fn the_fast_way_gives_what_the_careful_one_does(
            records in proptest::collection::vec(proptest::collection::vec(field(), 3), 0..30),
            odd in proptest::collection::vec((0..1000usize, any::<u8>()), 0..3),
            columns in 1..4usize,
            wanted in any::<[bool; 6]>(),
            (crlf, keep_records, lenient, eof) in any::<(bool, bool, bool, bool)>(),
            (quoted, commented, numeric) in any::<(bool, bool, bool)>(),
            (skip, stop) in (0..20usize, 0..1200usize),
            // Those that numbers have in them are delimiters as any other.
            delimiter in prop_oneof![
                3 => Just(b','), 1 => Just(b';'), 1 => Just(b'.'), 1 => Just(b'-'), 1 => Just(b'4'),
            ],
        ) {
            let end = if crlf { "\r\n" } else { "\n" };
            let between = char::from(delimiter).to_string();
            let mut text = records
                .iter()
                .map(|r| r[..columns].join(between.as_str()) + end)
                .collect::<String>()
                .into_bytes();
            for (i, b) in odd {
                if let Some(x) = text.get_mut(i) {
                    *x = b;
                }
            }
            let name = |i: usize| ColumnInfo { name: i.to_string(), kind: ColumnKind::Number };
            let schema = Schema {
                records: RecordKind::Delimited,
                columns: (0..columns).map(name).collect(),
                shape: None,
            };
            let mut tokens = vec![b"NA".to_vec(), Vec::new()];
            if numeric {
                tokens.push(b"7".to_vec());
            }
            let missing = Missing::new(tokens);
            let needs = Needs {
                rows: true,
                records: keep_records,
                numbers: (0..columns).filter(|i| wanted[*i]).collect(),
                texts: (0..columns).filter(|i| wanted[i + 3]).collect(),
                ..Needs::default()
            };
            let syntax = Syntax {
                delimiter,
                quote: quoted.then_some(b'"'),
                comment: commented.then_some(b'#'),
            };
            let fast = Parser::new(syntax, &missing, &schema, &needs, lenient).expect("parser");
            let careful =
                Parser { fast: false, ..Parser::new(syntax, &missing, &schema, &needs, lenient).expect("parser") };
            let piece = Piece { text: &text, skip, bom: 0, stop, eof };
            prop_assert_eq!(
                format!("{:?}", outcome(&fast, &piece, 0)),
                format!("{:?}", outcome(&careful, &piece, 0))
            );
        }
    }

    /// The one number of each record.
    fn numbers(text: &str, quote: Option<u8>) -> Vec<f64> {
        let schema = Schema {
            records: RecordKind::Delimited,
            columns: vec![ColumnInfo { name: "x".into(), kind: ColumnKind::Number }],
            shape: None,
        };
        let missing = Missing::new(vec![]);
        let needs = Needs { rows: true, numbers: vec![0], ..Needs::default() };
        let syntax = Syntax { delimiter: b',', quote, comment: None };
        let p = Parser::new(syntax, &missing, &schema, &needs, false).expect("parser");
        let text = text.as_bytes();
        let piece = Piece { text, skip: 0, bom: 0, stop: text.len(), eof: true };
        let mut rows = Rows::default();
        p.begin(&mut rows);
        p.parse(&piece, 0, &mut rows).expect("parsed");
        rows.numbers[..rows.rows].to_vec()
    }

    #[test]
    fn a_plus_may_be_the_first_byte_of_all() {
        for digits in 1..20 {
            let text = format!("+{}7\n", "0".repeat(digits - 1));
            assert_eq!(numbers(&text, None), [7.0], "{digits}");
        }
    }

    #[test]
    fn a_quote_may_look_like_a_digit() {
        let text = "1213\n".repeat(9);
        assert_eq!(numbers(&text, Some(b'1')), [23.0; 9]);
        assert_eq!(numbers(&text, None), [1213.0; 9]);
    }
}
