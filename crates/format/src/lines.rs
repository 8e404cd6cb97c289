//! Lines of text without columns: logs and whatever has no better structure.
//!
//! Every line is a record, blank ones too; its terminator belongs to it. A byte order mark belongs to the
//! text but to no record.

use crate::delimited::parse::{Piece, Stop};
use crate::delimited::rows::Rows;
use crate::options::Compression;
use memchr::{memchr, memchr_iter, memrchr};
use stead_core::{RecordKind, Schema, Span};

/// Lines of text.
#[derive(Debug, Clone)]
pub struct Lines {
    /// No columns.
    pub schema: Schema,
    /// How the files are compressed, if it is not to be detected.
    pub compression: Option<Compression>,
}

impl Lines {
    /// The format.
    pub fn new(compression: Option<Compression>) -> Self {
        let schema = Schema { records: RecordKind::Lines, columns: Vec::new(), shape: None };
        Lines { schema, compression }
    }
}

/// Finds where the last line of `piece` ends that starts before its stop, and nothing else: for scans of
/// bytes alone.
pub(crate) fn cut(piece: &Piece<'_>, from: usize) -> Stop {
    let text = piece.text;
    let stop = piece.stop.min(text.len());
    if stop <= from {
        return Stop { next: from, complete: true };
    }
    match memchr(b'\n', &text[stop - 1..]) {
        Some(n) => Stop { next: stop + n, complete: true },
        None if piece.eof => Stop { next: text.len(), complete: true },
        None => {
            let line = memrchr(b'\n', &text[from..stop]).map_or(from, |n| from + n + 1);
            Stop { next: line, complete: false }
        }
    }
}

/// Takes the lines of `piece` that start at `from` or later into `rows`, as spans if `spans` is set.
pub(crate) fn parse(piece: &Piece<'_>, from: usize, spans: bool, rows: &mut Rows) -> Stop {
    let text = piece.text;
    let stop = piece.stop.min(text.len());
    let mut at = from.max(piece.bom.min(stop));
    if !spans {
        let stop = cut(piece, at);
        if stop.next > at {
            rows.rows += memchr_iter(b'\n', &text[at..stop.next]).count();
            rows.rows += usize::from(stop.complete && text[stop.next - 1] != b'\n');
        }
        return stop;
    }
    while at < stop {
        let end = match memchr(b'\n', &text[at..]) {
            Some(n) => at + n + 1,
            None if piece.eof => text.len(),
            None => return Stop { next: at, complete: false },
        };
        if spans {
            rows.records.push(Span { start: at as u32, len: (end - at) as u32 });
        }
        rows.rows += 1;
        at = end;
    }
    Stop { next: at, complete: true }
}
