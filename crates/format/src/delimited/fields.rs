//! The fields of single records, for headers, detection and display: simple rather than fast.

use super::syntax::{State, Syntax};
use memchr::{memchr, memchr_iter};
use std::borrow::Cow;

/// A field without its quotes: a copy only where they had to be undone.
pub type Field<'a> = Cow<'a, [u8]>;

/// The fields of the record at the start of `text`, unquoted. `text` is one record with or without its
/// terminator.
pub fn split<'a>(syntax: &Syntax, text: &'a [u8]) -> Vec<Field<'a>> {
    let mut fields = Vec::new();
    split_into(syntax, text, &mut fields);
    fields
}

/// As [`split`], behind what `fields` holds.
pub fn split_into<'a>(syntax: &Syntax, text: &'a [u8], fields: &mut Vec<Field<'a>>) {
    let text = text.strip_suffix(b"\n").unwrap_or(text);
    let text = text.strip_suffix(b"\r").unwrap_or(text);
    let mut i = 0;
    loop {
        let start = i;
        let mut content = Vec::new();
        let quoted = i < text.len() && Some(text[i]) == syntax.quote;
        if quoted {
            i += 1;
            while i < text.len() {
                let b = text[i];
                i += 1;
                if Some(b) == syntax.quote {
                    if i < text.len() && Some(text[i]) == syntax.quote {
                        i += 1;
                    } else {
                        break;
                    }
                }
                content.push(b);
            }
        }
        let rest = i;
        i += memchr(syntax.delimiter, &text[i..]).unwrap_or(text.len() - i);
        if quoted {
            content.extend_from_slice(&text[rest..i]);
            fields.push(Cow::Owned(content));
        } else {
            fields.push(Cow::Borrowed(&text[start..i]));
        }
        if i >= text.len() {
            return;
        }
        i += 1;
    }
}

/// How many fields [`split`] gives.
pub fn count(syntax: &Syntax, text: &[u8]) -> usize {
    if syntax.quote.is_some_and(|q| memchr(q, text).is_some()) {
        return split(syntax, text).len();
    }
    1 + memchr_iter(syntax.delimiter, text).count()
}

/// The records of `text`: the bytes of each, terminator included. Blank lines and comments are left out,
/// and so is a last record that does not end, unless the file ends with it (`eof`).
pub fn records<'a>(
    syntax: &Syntax,
    text: &'a [u8],
    eof: bool,
) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
    let syntax = *syntax;
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() {
            let start = at;
            let end = match syntax.record_end(text, at, State::Record) {
                Ok(end) => end,
                Err(_) if eof => text.len(),
                Err(_) => return None,
            };
            at = end;
            let record = &text[start..end];
            let blank = matches!(record, b"\n" | b"\r\n" | b"\r");
            if !blank && (syntax.comment.is_none() || record.first().copied() != syntax.comment) {
                return Some((start, record));
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CSV: Syntax = Syntax { delimiter: b',', quote: Some(b'"'), comment: Some(b'#') };

    #[test]
    fn records_and_fields() {
        let text = b"# c \"\n\na,\"b\"\"\n,\",\r\n\r\n\"x\"y\nlast";
        let all: Vec<Vec<Field<'_>>> =
            records(&CSV, text, true).map(|(_, r)| split(&CSV, r)).collect();
        assert_eq!(
            all,
            [
                vec![b"a".to_vec(), b"b\"\n,".to_vec(), b"".to_vec()],
                vec![b"xy".to_vec()],
                vec![b"last".to_vec()]
            ]
        );
        assert_eq!(records(&CSV, text, false).count(), 2);
        for r in [&b"a,b,"[..], b"", b"\n", b",\r\n", b"\"a,b\",c\n", b"\"", b"a\"b,c", b"\"a\","] {
            assert_eq!(count(&CSV, r), split(&CSV, r).len(), "{r:?}");
        }
    }
}
