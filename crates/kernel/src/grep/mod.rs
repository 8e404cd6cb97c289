//! The kernel `grep`: records that hold a fixed string or match a regular expression.

mod literals;
pub mod pattern;
pub mod search;

use crate::{Built, Context, Info, Kernel, Sink, SinkHeader, Spec, Step};
use pattern::{Pattern, Records, Syntax};
use search::{Layout, Search};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use stead_core::{Block, Error, Needs, RecordKind, Result, Value, limits};

/// About `grep`.
pub const INFO: Info = Info {
    name: "grep",
    summary: "records that match a regular expression or hold a fixed string",
    usage: "grep:'PATTERN'[,fixed][,ignore_case][,invert][,lines][,max=N][,out=PATH]",
    definition: "Counts the records in which PATTERN matches. Records are lines, rows of delimited text \
        (not the header), fixed-length records or items of an array. The syntax is that of the Rust \
        'regex' crate (as in ripgrep): Unicode classes, no backreferences; a|b searches for several \
        patterns at once; invalid UTF-8 never matches '.' or a class, (?-u:\\xFF) matches raw bytes.\n\
        A match lies within one record. In text it also lies within one line, so \\s and [^x] do not \
        match a newline, ^ and $ are the start and the end of a line, and $ holds before \\n and before \
        \\r\\n. In fixed-length records and arrays ^ and $ are the start and the end of the record, and \
        '.' matches any character but \\n unless (?s) is given.\n\
        fixed: PATTERN is taken as it is. ignore_case: upper and lower case are the same. invert: the \
        records that do not match. lines: also the first records themselves, as {count, lines: [{source, \
        offset, text}]}, in file order, max of them (1000); text has no line end, invalid UTF-8 is shown \
        as U+FFFD, and more than 4096 bytes are shortened with a mark. out=PATH: writes all matching \
        records there, whole and in order; a last line without newline gets one. Without 'lines' the \
        result is the number. Quote a PATTERN that has a comma or '=' in it.",
    error: "exact",
    cost: "the buffer is searched as a whole and record ends are looked for around matches only: GB/s on \
        one core for literals and rare matches, linear in the data for every pattern; out searches \
        twice. Compiled pattern at most 64 MiB; with 'lines' at most max lines of 4 KiB",
    source: "POSIX.1-2017 grep; the search after A. Gallant, ripgrep (2016) and the crate regex-automata",
    examples: &[
        "grep:ERROR",
        "grep:'ERROR.*disk'",
        "grep:'a,b',fixed,lines,max=20",
        "grep:'^#',invert",
    ],
};

/// Most lines that a result may carry.
const MAX_LINES: usize = 1_000_000;
/// Longest text of one line in a result.
const MAX_TEXT: usize = 4096;

/// Makes `grep`.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    const QUOTE: &str =
        "a pattern that has a comma or '=' in it needs its own quotes: -k \"grep:'a=b,c'\"";
    spec.only_options(&["max", "out", "fixed", "ignore_case", "invert", "lines"])
        .map_err(|e| e.with_hint(QUOTE))?;
    let Some(text) = spec.args.first() else {
        return Err(spec.error("it needs a pattern").with_hint(QUOTE));
    };
    const FLAGS: [&str; 4] = ["fixed", "ignore_case", "invert", "lines"];
    let mut on = [false; 4];
    for (i, flag) in FLAGS.iter().enumerate() {
        // Not `Spec::flag`: the pattern itself may be the word 'lines'.
        on[i] = spec.args[1..].iter().any(|a| a == flag) || spec.parse_option(flag, false)?;
    }
    if let Some(a) = spec.args[1..].iter().find(|a| !FLAGS.contains(&a.as_str())) {
        let e = spec.error(format!("'{a}' is not one of {}", FLAGS.join(", ")));
        return Err(e.with_hint(QUOTE));
    }
    let [fixed, ignore_case, invert, lines] = on;
    let max = spec.parse_option("max", limits::DEFAULT_MATCHES)?;
    if max > MAX_LINES {
        let e = spec.error(format!("max={max} is more than {MAX_LINES}"));
        return Err(e.with_hint("write the records to a file with out=PATH"));
    }
    let layout = match context.schema.records {
        RecordKind::Lines => Layout::Lines,
        RecordKind::Delimited => Layout::LineSpans,
        RecordKind::Fixed(_) | RecordKind::Items | RecordKind::Fields => Layout::Binary,
    };
    let records = if layout == Layout::Binary { Records::Binary } else { Records::Lines };
    let pattern = Pattern::new(text, Syntax { fixed, ignore_case }, records)?;
    let out = match spec.option("out") {
        Some("") => return Err(spec.error("out= needs a path")),
        Some(_) if context.grouped => {
            return Err(spec.error("out= does not go together with groups"));
        }
        o => o.map(PathBuf::from),
    };
    let search = Search { pattern, layout, invert };
    let keep = if lines { Some(max) } else { None };
    Ok(Built::alone(spec, Grep { search, keep, out }))
}

struct Grep {
    search: Search,
    /// How many matching records the result carries; `None`: only the count is wanted.
    keep: Option<usize>,
    out: Option<PathBuf>,
}

/// What a pass has found.
#[derive(Serialize, Deserialize, Default)]
pub struct Found {
    count: u64,
    /// The first ones of all that were seen, by `(source, offset)`, ascending.
    lines: Vec<Line>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    source: u32,
    offset: u64,
    text: String,
}

impl Line {
    fn place(&self) -> (u32, u64) {
        (self.source, self.offset)
    }
}

impl Kernel for Grep {
    type State = Found;

    fn needs(&self) -> Needs {
        // Where every line is a record, the search finds their ends itself.
        let records = self.search.layout != Layout::Lines;
        Needs { bytes: true, records, ..Needs::default() }
    }

    fn init(&self) -> Found {
        Found::default()
    }

    fn update(&self, state: &mut Found, block: &Block<'_>) -> Result<()> {
        let keep = self.keep.unwrap_or(0);
        // Lines beyond the last one of a full state would be dropped again at once.
        let bar = if keep > 0 && state.lines.len() == keep {
            state.lines.last().map(Line::place)
        } else {
            None
        };
        let mut lines = Vec::new();
        let count = &mut state.count;
        self.search.each(block, &mut |r| {
            *count += 1;
            let place = (block.source, block.offset + r.start as u64);
            if lines.len() < keep && bar.is_none_or(|b| place < b) {
                let text = show(&block.text[r], self.search.layout);
                lines.push(Line { source: place.0, offset: place.1, text });
            }
        });
        self.join(&mut state.lines, lines);
        Ok(())
    }

    fn merge(&self, state: &mut Found, other: Found) -> Result<()> {
        state.count = state.count.saturating_add(other.count);
        self.join(&mut state.lines, other.lines);
        Ok(())
    }

    fn check(&self, state: &Found) -> Result<()> {
        let ascending = state.lines.is_sorted_by_key(Line::place);
        if ascending && state.lines.len() <= self.keep.unwrap_or(0) {
            return Ok(());
        }
        Err(Error::format("lines from another rank are too many or out of order"))
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, state: Found) -> Result<Step> {
        let count = Value::Int(state.count);
        if self.keep.is_none() {
            return Ok(Step::Done(count));
        }
        let lines = state.lines.into_iter().map(|l| {
            Value::map([
                ("source", Value::Int(u64::from(l.source))),
                ("offset", Value::Int(l.offset)),
                ("text", Value::Text(l.text)),
            ])
        });
        Ok(Step::Done(Value::map([("count", count), ("lines", Value::List(lines.collect()))])))
    }

    fn state_bytes(&self, state: &Found) -> usize {
        let text: usize = state.lines.iter().map(|l| l.text.capacity()).sum();
        size_of::<Found>() + state.lines.capacity() * size_of::<Line>() + text
    }

    fn sink(&self) -> Option<Sink> {
        let path = self.out.clone()?;
        Some(Sink { path, header: SinkHeader::Bytes(Vec::new()) })
    }

    fn map(&self, block: &Block<'_>, out: &mut Vec<u8>) -> Result<()> {
        self.search.each(block, &mut |r| {
            out.extend_from_slice(&block.text[r]);
            // Or the first line of the next file would go on in this one.
            if self.search.layout != Layout::Binary && out.last().is_some_and(|b| *b != b'\n') {
                out.push(b'\n');
            }
        });
        Ok(())
    }
}

impl Grep {
    /// Merges two ascending lists and keeps the first ones.
    fn join(&self, mine: &mut Vec<Line>, theirs: Vec<Line>) {
        let in_order = match (mine.last(), theirs.first()) {
            (Some(a), Some(b)) => a.place() < b.place(),
            _ => true,
        };
        mine.extend(theirs);
        if !in_order {
            mine.sort_by_key(Line::place);
        }
        mine.truncate(self.keep.unwrap_or(0));
    }
}

/// A record as text: no line end, no invalid UTF-8, not too long.
fn show(record: &[u8], layout: Layout) -> String {
    let mut text = record;
    if layout != Layout::Binary {
        text = text.strip_suffix(b"\n").unwrap_or(text);
        text = text.strip_suffix(b"\r").unwrap_or(text);
    }
    if text.len() <= MAX_TEXT {
        return String::from_utf8_lossy(text).into_owned();
    }
    let mut end = MAX_TEXT;
    // Not in the middle of a character: at most three continuation bytes follow its first one.
    while end > MAX_TEXT - 3 && text[end] & 0xC0 == 0x80 {
        end -= 1;
    }
    format!("{} [... {} bytes more]", String::from_utf8_lossy(&text[..end]), text.len() - end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use std::sync::Arc;
    use stead_core::{Schema, Span};

    fn make(spec: &str, records: RecordKind) -> Result<Built> {
        let schema = Schema { records, columns: vec![], shape: None };
        let context = Context { schema: &schema, path: None, grouped: false };
        crate::registry::build(&Spec::parse(spec)?, &context)
    }

    fn kernel(spec: &str) -> Arc<dyn crate::AnyKernel> {
        make(spec, RecordKind::Lines).expect("build").kernel
    }

    /// Two files of lines, one block for every `size` lines.
    fn blocks(files: &[&'static str], size: usize) -> Vec<Block<'static>> {
        let mut v = vec![];
        for (source, text) in files.iter().enumerate() {
            let mut offset = 0;
            let lines: Vec<&str> = text.split_inclusive('\n').collect();
            for part in lines.chunks(size) {
                let len: usize = part.iter().map(|l| l.len()).sum();
                v.push(Block {
                    source: source as u32,
                    offset: offset as u64,
                    rows: part.len(),
                    text: &text.as_bytes()[offset..offset + len],
                    ..Block::empty()
                });
                offset += len;
            }
        }
        v
    }

    const LOGS: [&str; 2] =
        ["ok 1\nERROR disk 7\nok\nerror net\r\n", "ERROR cpu\n\nok ERROR disk, again"];

    #[test]
    fn counts_and_first_lines_do_not_depend_on_the_split() {
        for size in [1, 2, 5, 100] {
            let b = blocks(&LOGS, size);
            for (spec, n) in [
                ("grep:ERROR", 3),
                ("grep:error,ignore_case", 4),
                ("grep:'ERROR.*disk'", 2),
                ("grep:'^$'", 1),
                ("grep:'net$'", 1),
                ("grep:'disk,',fixed", 1),
                ("grep:ERROR,invert", 4),
                ("grep:lines", 0),
            ] {
                assert_eq!(laws::check(kernel(spec), &b), Value::Int(n), "{spec}");
            }
            let v = laws::check(kernel("grep:ERROR,lines,max=2"), &b);
            assert_eq!(v.get("count"), Some(&Value::Int(3)));
            let line = |source, offset, text: &str| {
                Value::map([
                    ("source", Value::Int(source)),
                    ("offset", Value::Int(offset)),
                    ("text", Value::Text(text.into())),
                ])
            };
            let want = vec![line(0, 5, "ERROR disk 7"), line(1, 0, "ERROR cpu")];
            assert_eq!(v.get("lines"), Some(&Value::List(want)));
        }
        assert_eq!(laws::check(kernel("grep:x"), &[]), Value::Int(0));
        let v = laws::check(kernel("grep:ERROR,lines,max=0"), &blocks(&LOGS, 2));
        assert_eq!(v.get("lines"), Some(&Value::List(vec![])));
    }

    #[test]
    fn a_byte_order_mark_is_in_no_line() {
        let text = "\u{feff}a 1\n\na 2".as_bytes();
        // In one block, and cut in the middle and at its end.
        for cuts in [&[0, 11][..], &[0, 1, 3, 11], &[0, 2, 7, 11], &[0, 1, 2, 3, 7, 8, 11]] {
            let blocks = cuts.windows(2).map(|w| Block {
                offset: w[0] as u64,
                text: &text[w[0]..w[1]],
                mark: 3usize.saturating_sub(w[0]).min(w[1] - w[0]),
                ..Block::empty()
            });
            let blocks: Vec<Block<'_>> = blocks.collect();
            for (spec, lines) in [
                ("grep:'',lines", &[(3, "a 1"), (7, ""), (8, "a 2")][..]),
                ("grep:'^a',lines", &[(3, "a 1"), (8, "a 2")]),
                ("grep:'\\A$',lines", &[(7, "")]),
                ("grep:'a',invert,lines", &[(7, "")]),
                ("grep:'2',fixed,invert,lines", &[(3, "a 1"), (7, "")]),
            ] {
                let found = laws::check(kernel(spec), &blocks);
                let line = |(at, text): &(u64, &str)| {
                    Value::map([
                        ("source", Value::Int(0)),
                        ("offset", Value::Int(*at)),
                        ("text", Value::Text((*text).into())),
                    ])
                };
                let want = Value::List(lines.iter().map(line).collect());
                assert_eq!(found.get("lines"), Some(&want), "{spec} {cuts:?}");
            }
            let (k, mut out) = (kernel("grep:'',out=x.log"), vec![]);
            blocks.iter().for_each(|b| k.map(b, &mut out).expect("map"));
            assert_eq!(out, b"a 1\n\na 2\n", "{cuts:?}");
        }
    }

    #[test]
    fn matching_records_are_written_whole() {
        let k = kernel("grep:ERROR,out=x.log");
        assert_eq!(k.sink().map(|s| s.path), Some("x.log".into()));
        let mut out = vec![];
        for b in blocks(&LOGS, 2) {
            k.map(&b, &mut out).expect("map");
        }
        assert_eq!(out, b"ERROR disk 7\nERROR cpu\nok ERROR disk, again\n");
    }

    #[test]
    fn long_and_invalid_lines_are_shown_safely() {
        assert_eq!(show(b"a\xFFb\r\n", Layout::Lines), "a\u{FFFD}b");
        let long = "é".repeat(5000);
        for cut in 0..4 {
            let text = format!("{}{long}", "x".repeat(cut));
            let s = show(text.as_bytes(), Layout::Lines);
            assert!(!s.contains('\u{FFFD}') && s.ends_with("bytes more]"), "{cut}");
            assert!(s.len() < 4200);
        }
        assert_eq!(show(b"ab\n", Layout::Binary), "ab\n");
    }

    #[test]
    fn fixed_length_records_are_matched_one_by_one() {
        let k = make("grep:'^ab$',lines", RecordKind::Fixed(2)).expect("build").kernel;
        let records: Vec<Span> = (0..3).map(|i| Span { start: 2 * i, len: 2 }).collect();
        let b = Block { rows: 3, text: b"xab\nab", records: &records, ..Block::empty() };
        assert_eq!(laws::check(k, &[b]).get("count"), Some(&Value::Int(1)));
    }

    #[test]
    fn wrong_specifications_say_what_to_do() {
        for s in [
            "grep",
            "grep:a=b",
            "grep:a,b",
            "grep:'('",
            "grep:x,max=9999999",
            "grep:x,max=-1",
            "grep:x,out=",
            "grep:x,fixed=maybe",
        ] {
            let e = make(s, RecordKind::Lines).err().unwrap_or_else(|| panic!("{s}"));
            assert!(e.hint().is_some(), "{s}: {e}");
        }
    }
}
