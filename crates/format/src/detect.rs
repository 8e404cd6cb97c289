//! What a text file is: delimiter, quotes, header, kinds of columns, from its first bytes.
//!
//! A delimiter is believed if (nearly) all records of the sample have the same number of fields by it,
//! more than one. Text in which none does is lines. A header is believed if a column of numbers begins
//! with something else, or, where all columns are text, if the first record is unlike all others: its
//! fields are unique and never come again.

use crate::delimited::Delimited;
use crate::delimited::fields::{self, Field};
use crate::delimited::number;
use crate::delimited::parse::Missing;
use crate::delimited::syntax::Syntax;
use crate::options::{ColumnType, FormatType, Header, OpenOptions, Quote};
use memchr::memchr;
use std::collections::{HashMap, HashSet};
use stead_core::{ColumnInfo, ColumnKind, Error, RecordKind, Result, Schema, limits};

/// Records of the sample that are looked at.
const MOST_RECORDS: usize = 2000;
/// Delimiters that are tried, the likeliest first.
const DELIMITERS: [u8; 5] = [b',', b'\t', b';', b'|', b' '];
/// Of a sample's records, how many may have another number of fields (one in so many).
const ODD_ONES: usize = 50;

/// The start of a text file.
#[derive(Debug, Clone, Copy)]
pub struct Sample<'a> {
    /// Bytes without the byte order mark.
    pub text: &'a [u8],
    /// True if the file ends with them.
    pub eof: bool,
}

type Records<'a> = Vec<Vec<Field<'a>>>;

/// What the records after the first one say of a column.
#[derive(Clone)]
struct Seen {
    /// Something stands in it.
    any: bool,
    /// Only numbers do, in records of the right width.
    numbers: bool,
    /// What the first record has there never comes again.
    unlike: bool,
}

/// The records of a sample, summed up without keeping them: this is most of what a short run takes.
struct Survey<'a> {
    first: Vec<Field<'a>>,
    columns: Vec<Seen>,
    /// The first record is the only one.
    alone: bool,
}

impl<'a> Sample<'a> {
    /// The fields of the first records.
    fn records(&self, syntax: &Syntax) -> Records<'a> {
        self.raw(syntax).map(|r| fields::split(syntax, r)).collect()
    }

    /// The first records as they are.
    fn raw(&self, syntax: &Syntax) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        fields::records(&self.plain(syntax), self.text, self.eof).take(MOST_RECORDS).map(|(_, r)| r)
    }

    /// The syntax without a quote that does not occur.
    fn plain(&self, syntax: &Syntax) -> Syntax {
        Syntax { quote: syntax.quote.filter(|q| memchr(*q, self.text).is_some()), ..*syntax }
    }

    /// Looks at the first records; `None` if there are none.
    fn survey(&self, syntax: &Syntax, missing: &Missing) -> Option<Survey<'a>> {
        let syntax = self.plain(syntax);
        let mut records = self.raw(&syntax);
        let first = fields::split(&syntax, records.next()?);
        let mut columns = vec![Seen { any: false, numbers: true, unlike: true }; first.len()];
        let mut alone = true;
        let mut fields = Vec::new();
        for r in records {
            alone = false;
            fields.clear();
            fields::split_into(&syntax, r, &mut fields);
            let whole = fields.len() == first.len();
            for ((c, f), name) in columns.iter_mut().zip(&fields).zip(&first) {
                c.any = c.any || !missing.is(f);
                c.unlike = c.unlike && f != name;
                c.numbers = c.numbers && (!whole || is_number(f, missing));
            }
        }
        Some(Survey { first, columns, alone })
    }

    /// True if there are bytes that text does not have.
    pub fn is_binary(&self) -> bool {
        let odd = |b: u8| (b < 9) | ((14..32).contains(&b) & (b != 27));
        // So few at a time that eight bits count them, which is vectorised.
        let some = |c: &[u8]| usize::from(c.iter().map(|b| u8::from(odd(*b))).sum::<u8>());
        let n: usize = self.text.chunks(128).map(some).sum();
        memchr(0, self.text).is_some() || n * 20 > self.text.len()
    }
}

/// Delimited text as it is in `sample`; `None` if it is lines. `asked`: the user or the name of the file
/// says that it is delimited.
pub fn delimited(
    sample: &Sample<'_>,
    options: &OpenOptions,
    asked: Option<FormatType>,
) -> Result<Option<Delimited>> {
    let Some(syntax) = dialect(sample, options, asked) else { return Ok(None) };
    let missing = Missing::new(options.missing_tokens());
    let Some(survey) = sample.survey(&syntax, &missing) else {
        return if asked.is_none() {
            Ok(None)
        } else if sample.eof {
            Err(Error::format("empty file: there is no record in it"))
        } else {
            Err(Error::format(format!(
                "the first {} bytes hold no whole record",
                sample.text.len()
            ))
            .with_hint("a quote that is never closed can be the reason (--quote none); if this is no delimited text, say --type lines"))
        };
    };
    let first = &survey.first;
    if first.len() > limits::MAX_COLUMNS {
        return Err(Error::limit(format!(
            "{} columns; at most {} are supported",
            first.len(),
            limits::MAX_COLUMNS
        )));
    }
    let header = match options.header {
        Header::Yes => true,
        Header::No => false,
        Header::Auto => survey.has_header(&missing),
    };
    let header_fields: Vec<String> = if header {
        first.iter().map(|f| String::from_utf8_lossy(f).trim().to_string()).collect()
    } else {
        Vec::new()
    };
    let kinds = survey.columns.iter().zip(first).map(|(c, f)| {
        // The first record is data too where it is no header.
        if c.numbers && (header || is_number(f, &missing)) {
            ColumnKind::Number
        } else {
            ColumnKind::Text
        }
    });
    let names = names(&header_fields, first.len(), options)?;
    let columns =
        names.into_iter().zip(kinds).map(|(name, kind)| ColumnInfo { name, kind }).collect();
    let mut schema = Schema { records: RecordKind::Delimited, columns, shape: None };
    for (name, t) in &options.column_types {
        let i = schema.column(name)?;
        schema.columns[i].kind = match t {
            ColumnType::Number => ColumnKind::Number,
            ColumnType::Text => ColumnKind::Text,
        };
    }
    Ok(Some(Delimited {
        syntax,
        header,
        header_fields,
        missing,
        schema,
        compression: options.compression,
    }))
}

fn names(header: &[String], width: usize, options: &OpenOptions) -> Result<Vec<String>> {
    if let Some(names) = &options.names {
        if names.len() != width {
            return Err(Error::usage(format!(
                "{} column names were given, but the first record has {width} fields",
                names.len()
            )));
        }
        let mut seen = HashSet::new();
        if let Some(n) = names.iter().find(|n| !seen.insert(n.as_str())) {
            return Err(Error::usage(format!("two columns are to have the name '{n}'"))
                .with_hint("give each column its own name"));
        }
        return Ok(names.clone());
    }
    let names = (0..width).map(|i| match header.get(i) {
        Some(n) if !n.is_empty() => n.clone(),
        _ => i.to_string(),
    });
    Ok(told_apart(names.collect()))
}

/// A name that comes again gets a number, as in pandas: `a`, `a.1`, `a.2`.
fn told_apart(mut names: Vec<String>) -> Vec<String> {
    let all: HashSet<String> = names.iter().cloned().collect();
    let mut seen: HashSet<String> = HashSet::with_capacity(names.len());
    let mut next: HashMap<String, u64> = HashMap::new();
    for name in &mut names {
        if seen.contains(name) {
            let n = next.entry(name.clone()).or_insert(0);
            let fresh = loop {
                *n += 1;
                let fresh = format!("{name}.{n}");
                if !all.contains(&fresh) && !seen.contains(&fresh) {
                    break fresh;
                }
            };
            *name = fresh;
        }
        seen.insert(name.clone());
    }
    names
}

/// Finds the bytes with a role.
fn dialect(
    sample: &Sample<'_>,
    options: &OpenOptions,
    asked: Option<FormatType>,
) -> Option<Syntax> {
    let quotes: &[Option<u8>] = match options.quote {
        Quote::Byte(b) => &[Some(b)],
        Quote::None => &[None],
        Quote::Auto => &[Some(b'"'), None],
    };
    let given = match asked {
        Some(FormatType::Tsv) => Some(b'\t'),
        _ => options.delimiter,
    };
    for quote in quotes {
        let syntax = |delimiter| Syntax { delimiter, quote: *quote, comment: options.comment };
        if let Some(d) = given {
            // A quote that is never closed makes no record of the sample: then quotes mean nothing.
            if quote.is_none() || sample.raw(&syntax(d)).next().is_some() || quotes.len() == 1 {
                return Some(syntax(d));
            }
            continue;
        }
        if quotes.len() > 1 && quote.is_none() && memchr(b'"', sample.text).is_none() {
            // All was said with the quote that does not occur.
            continue;
        }
        let best = DELIMITERS
            .iter()
            .filter_map(|d| consistency(sample, &syntax(*d)).map(|c| (c, *d)))
            // The first of equal ones wins.
            .rev()
            .max_by(|a, b| a.0.total_cmp(&b.0));
        if let Some((_, d)) = best {
            return Some(syntax(d));
        }
    }
    let quote = quotes[0];
    let comma = Syntax { delimiter: b',', quote, comment: options.comment };
    if asked.is_some() {
        return Some(comma);
    }
    // One number a line is a column.
    let missing = Missing::new(options.missing_tokens());
    let records = sample.records(&comma);
    let number =
        |r: &Vec<Field<'_>>| r.len() == 1 && (missing.is(&r[0]) || number::parse(&r[0]).is_some());
    let column = records.len() >= 2 && records[1..].iter().all(number);
    column.then_some(comma)
}

/// How much a delimiter is to be believed; `None`: not at all.
fn consistency(sample: &Sample<'_>, syntax: &Syntax) -> Option<f64> {
    let plain = sample.plain(syntax);
    let mut widths = sample.raw(&plain).map(|r| fields::count(&plain, r));
    let width = widths.next()?;
    if width < 2 {
        return None;
    }
    let (mut n, mut odd) = (1, 0);
    for w in widths {
        n += 1;
        odd += usize::from(w != width);
    }
    if n < 2 || odd * ODD_ONES > n {
        return None;
    }
    if syntax.delimiter == b' ' {
        // Words have spaces between them too: believe them only between numbers.
        let records = sample.records(syntax);
        let numbers = |r: &Vec<Field<'_>>| r.iter().filter(|f| number::parse(f).is_some()).count();
        let all: usize = records[1..].iter().map(numbers).sum();
        if odd > 0 || all * 2 < (n - 1) * width {
            return None;
        }
    }
    // An even count first, then many fields.
    let even = 1.0 - odd as f64 / n as f64;
    Some(even * 1000.0 + (width as f64).min(100.0) / 100.0)
}

impl Survey<'_> {
    fn has_header(&self, missing: &Missing) -> bool {
        let first = &self.first;
        let said = |f: &Field<'_>| !missing.is(f) && !f.trim_ascii().is_empty();
        if first.iter().any(|f| said(f) && number::parse(f).is_some()) {
            return false;
        }
        if self.alone {
            return first.iter().all(said);
        }
        if first.iter().zip(&self.columns).any(|(name, c)| said(name) && c.any && c.numbers) {
            return true;
        }
        let mut unique = HashSet::new();
        first.iter().all(|f| said(f) && f.len() <= 64 && unique.insert(f))
            && self.columns.iter().all(|c| c.unlike)
    }
}

fn is_number(f: &Field<'_>, missing: &Missing) -> bool {
    missing.is(f) || missing.is(f.trim_ascii()) || number::parse(f).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(u8, bool, String)> {
        let sample = Sample { text: text.as_bytes(), eof: true };
        let d = delimited(&sample, &OpenOptions::default(), None).unwrap()?;
        let kinds = d.schema.columns.iter().map(|c| match c.kind {
            ColumnKind::Text => format!("{}:t", c.name),
            _ => format!("{}:n", c.name),
        });
        Some((d.syntax.delimiter, d.header, kinds.collect::<Vec<_>>().join(" ")))
    }

    fn is(delimiter: char, header: bool, columns: &str) -> Option<(u8, bool, String)> {
        Some((delimiter as u8, header, columns.into()))
    }

    #[test]
    fn columns_of_one_name_are_told_apart() {
        let names = |s: &str| told_apart(s.split(' ').map(String::from).collect()).join(" ");
        assert_eq!(names("a b c"), "a b c");
        assert_eq!(names("a a b a"), "a a.1 b a.2");
        assert_eq!(names("a a a.1"), "a a.2 a.1");
    }

    #[test]
    fn dialects_are_found() {
        assert_eq!(found("a,b\n1,x\n2,y\n"), is(',', true, "a:n b:t"));
        assert_eq!(found("a;b\n1,5;x\n2,7;y\n"), is(';', true, "a:t b:t"));
        assert_eq!(found("1\t2\n3\tNA\n"), is('\t', false, "0:n 1:n"));
        assert_eq!(found("x|y|z\n\n1||q\r\n"), is('|', true, "x:n y:n z:t"));
        assert_eq!(found("1.5 2.5 3\n4 5 6\n"), is(' ', false, "0:n 1:n 2:n"));
        assert_eq!(
            found("name,at\n\"a,b\",2013-01-01 10:00\n\"c\",2013-01-02 11:00\n"),
            is(',', true, "name:t at:t")
        );
        assert_eq!(found("n\n1\n2\n"), is(',', true, "n:n"));
        assert_eq!(found("1\n2\n"), is(',', false, "0:n"));
        assert_eq!(found("a,b\nb,a\na,a\n"), is(',', false, "0:t 1:t"));
        assert_eq!(found(",a\n0,5\n1,6\n"), is(',', true, "0:n a:n"));
    }

    #[test]
    fn logs_are_lines() {
        for text in [
            "",
            "\n\n",
            "one line, with a comma\n",
            "2024-01-01 10:00:00 INFO start\n2024-01-01 10:00:01 WARN a, b, c\n",
            "Jan 1 host a b\nJan 2 host c d\n",
            "a \"quote\nb\n",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn types_and_names_can_be_declared() {
        let sample = Sample { text: b"a,b\n1,2\n", eof: true };
        let mut o = OpenOptions {
            column_types: vec![("b".into(), ColumnType::Text)],
            ..Default::default()
        };
        let d = delimited(&sample, &o, None).unwrap().unwrap();
        assert_eq!(d.schema.columns[1].kind, ColumnKind::Text);
        o.column_types = vec![("zz".into(), ColumnType::Text)];
        assert!(delimited(&sample, &o, None).is_err());
        o.column_types.clear();
        o.names = Some(vec!["only".into()]);
        assert!(delimited(&sample, &o, None).is_err());
        o.names = Some(vec!["p".into(), "q".into()]);
        let d = delimited(&sample, &o, None).unwrap().unwrap();
        assert_eq!(d.schema.columns[1].name, "q");
    }
}
