//! Delimited text: RFC 4180 with any delimiter, CRLF or LF, and what files in the wild make of it.
//!
//! - A field that begins with a quote ends with the next quote that is not doubled; bytes after it up to
//!   the delimiter belong to the field as they stand. A quote elsewhere in a field is an ordinary byte.
//! - A record ends with LF or CRLF outside quotes, or with the file. Blank lines are skipped, and so are
//!   comment lines where a comment prefix is set. A byte order mark is skipped.
//! - A record with another number of fields than the first one is an error with its line, or is counted
//!   and skipped by a lenient scan. Fields are counted where columns are asked for; a scan that only wants
//!   to know where records lie does not look into them.
//! - Numbers are decimals with or without exponent, `inf`, `infinity` and `nan` in any case, a leading `+`
//!   and spaces around them. Missing tokens may have spaces around them in columns of numbers; in columns of
//!   text they are compared as they stand. What is neither a number nor a missing token is an error with its place.

mod fast;
pub mod fields;
mod fields_of;
#[cfg(target_arch = "x86_64")]
mod four;
mod index;
pub mod number;
pub mod parse;
pub mod rows;
mod simd;
pub mod syntax;

use crate::options::Compression;
use parse::Missing;
use stead_core::{Schema, Value};
use syntax::Syntax;

/// Delimited text.
#[derive(Debug, Clone)]
pub struct Delimited {
    /// The bytes with a role.
    pub syntax: Syntax,
    /// True if the first record of every file names the columns.
    pub header: bool,
    /// The fields of the first file's header, to which those of the others must be equal.
    pub header_fields: Vec<String>,
    /// Tokens that mean "no value".
    pub missing: Missing,
    /// The columns.
    pub schema: Schema,
    /// How the files are compressed, if it is not to be detected.
    pub compression: Option<Compression>,
}

impl Delimited {
    /// What was detected or chosen, for `stead describe`.
    pub fn details(&self) -> Vec<(String, Value)> {
        let byte = |b: u8| Value::Text((b as char).to_string());
        let mut d = vec![
            ("delimiter".to_string(), byte(self.syntax.delimiter)),
            ("quote".to_string(), self.syntax.quote.map_or(Value::Null, byte)),
            ("header".to_string(), Value::Bool(self.header)),
        ];
        if let Some(c) = self.syntax.comment {
            d.push(("comment".to_string(), byte(c)));
        }
        let tokens = self.missing.tokens();
        let tokens = tokens.iter().map(|t| Value::Text(String::from_utf8_lossy(t).into_owned()));
        d.push(("missing".to_string(), Value::List(tokens.collect())));
        d
    }
}

/// Bytes for an error message: at most 40 of them, control characters escaped, invalid UTF-8 replaced.
pub(crate) fn shorten(bytes: &[u8]) -> String {
    shorten_to(bytes, 40)
}

/// As [`shorten`], with at most `most` bytes.
pub(crate) fn shorten_to(bytes: &[u8], most: usize) -> String {
    let cut = &bytes[..bytes.len().min(most)];
    let mut s: String = String::from_utf8_lossy(cut)
        .chars()
        .flat_map(|c| {
            let escape = c.is_control();
            let plain = (!escape).then_some(c);
            plain.into_iter().chain(escape.then(|| c.escape_default()).into_iter().flatten())
        })
        .collect();
    if bytes.len() > most {
        s.push_str("...");
    }
    s
}
