//! Which records of a block match.
//!
//! Like ripgrep, the search runs over the whole buffer and looks for record ends only around matches:
//! where few records match, most are never looked at one by one.

use super::pattern::Pattern;
use std::ops::Range;
use stead_core::{Block, Span};

/// How to find the records that match.
#[derive(Debug, Clone)]
pub struct Search {
    /// What to look for.
    pub pattern: Pattern,
    /// How records lie in a block.
    pub layout: Layout,
    /// The records without a match are wanted instead.
    pub invert: bool,
}

/// How records lie in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// A record is a line and every line is one: no spans are needed.
    Lines,
    /// Records are one or more lines (quoted newlines) and have spans.
    LineSpans,
    /// Binary records with spans.
    Binary,
}

impl Search {
    /// Calls `found` with the place in `block.text` of every wanted record, terminator included, in
    /// ascending order.
    pub fn each(&self, block: &Block<'_>, found: &mut dyn FnMut(Range<usize>)) {
        if self.layout == Layout::Lines && block.whole {
            let text = block.text.get(block.mark..).unwrap_or_default();
            return self.lines(text, &mut |r| found(r.start + block.mark..r.end + block.mark));
        }
        if !self.invert && self.nowhere(block) {
            return;
        }
        // Neighbouring records are searched together; what lies between (a header, records that a
        // filter dropped) is not looked at.
        let mut rest = block.records;
        while let Some(first) = rest.first() {
            let mut end = range(first).end;
            let mut n = 1;
            while let Some(next) = rest.get(n).filter(|s| s.start as usize == end) {
                end = range(next).end;
                n += 1;
            }
            let (run, after) = rest.split_at(n);
            rest = after;
            let text = &block.text[first.start as usize..end];
            if self.layout == Layout::Binary {
                self.binary(text, run, found);
            } else {
                self.spans(text, run, found);
            }
        }
    }

    /// True if one look at the text shows that no binary record matches, whichever they are.
    fn nowhere(&self, block: &Block<'_>) -> bool {
        let (Some(first), Some(last)) = (block.records.first(), block.records.last()) else {
            return true;
        };
        let text = &block.text[first.start as usize..range(last).end];
        self.layout == Layout::Binary
            && self.pattern.across
            && match self.pattern.candidate(text, 0) {
                Some(place) => place.is_none(),
                None => self.pattern.find(text, 0).is_none(),
            }
    }

    fn lines(&self, text: &[u8], found: &mut dyn FnMut(Range<usize>)) {
        let mut at = 0;
        while at < text.len() {
            let Some(hit) = self.pattern.hit(text, at).filter(|h| inside(text, *h)) else { break };
            let start = memchr::memrchr(b'\n', &text[at..hit]).map_or(at, |i| at + i + 1);
            let end = memchr::memchr(b'\n', &text[hit..]).map_or(text.len(), |i| hit + i + 1);
            if self.invert {
                each_line(text, at..start, found);
            } else {
                found(start..end);
            }
            at = end;
        }
        if self.invert {
            each_line(text, at..text.len(), found);
        }
    }

    /// `text` is exactly the bytes of `run`.
    fn spans(&self, text: &[u8], run: &[Span], found: &mut dyn FnMut(Range<usize>)) {
        let base = run[0].start as usize;
        let mut i = 0;
        while i < run.len() {
            let from = run[i].start as usize - base;
            let Some(hit) = self.pattern.hit(text, from).filter(|h| inside(text, *h)) else {
                break;
            };
            // A hit at the very end belongs to the last record: it has no newline.
            let k = record_at(run, i, base + hit).min(run.len() - 1);
            self.report(run, i..k, k, found);
            i = k + 1;
        }
        self.report(run, i..run.len(), run.len(), found);
    }

    /// As `spans`, where a match may cross the end of its record and then is none.
    fn binary(&self, text: &[u8], run: &[Span], found: &mut dyn FnMut(Range<usize>)) {
        let base = run[0].start as usize;
        if !self.pattern.across || self.pattern.candidate(b"", 0).is_some() {
            return self.one_by_one(text, run, found);
        }
        let mut i = 0;
        let mut from = 0;
        // Records from `done` on are not reported yet.
        let mut done = 0;
        while i < run.len() {
            let Some((s, e)) = self.pattern.find(text, from) else { break };
            let k = record_at(run, i, base + s);
            let Some(span) = run.get(k) else { break };
            let r = range(span);
            let (start, end) = (r.start - base, r.end - base);
            // No match starts before `s`; one that starts there and leaves the record may hide a
            // shorter one.
            if e <= end || self.pattern.is_match(&text[start..end]) {
                self.report(run, done..k, k, found);
                done = k + 1;
            }
            i = k + 1;
            from = end;
        }
        self.report(run, done..run.len(), run.len(), found);
    }

    /// As `binary`, for patterns that must see each record alone.
    fn one_by_one(&self, text: &[u8], run: &[Span], found: &mut dyn FnMut(Range<usize>)) {
        let base = run[0].start as usize;
        let mut i = 0;
        while i < run.len() {
            let from = run[i].start as usize - base;
            let k = match self.pattern.candidate(text, from) {
                None => i,
                Some(None) => break,
                Some(Some(at)) => record_at(run, i, base + at).min(run.len() - 1),
            };
            let r = range(&run[k]);
            let hit = self.pattern.is_match(&text[r.start - base..r.end - base]);
            let to = if hit { k } else { k + 1 };
            self.report(run, i..to, if hit { k } else { run.len() }, found);
            i = k + 1;
        }
        self.report(run, i..run.len(), run.len(), found);
    }

    /// Reports record `k`, or, if the search is inverted, the records before it that did not match.
    fn report(
        &self,
        run: &[Span],
        without: Range<usize>,
        k: usize,
        found: &mut dyn FnMut(Range<usize>),
    ) {
        if self.invert {
            run[without].iter().for_each(|s| found(range(s)));
        } else if let Some(s) = run.get(k) {
            found(range(s));
        }
    }
}

/// False for a match of nothing after the last newline, which is in no line.
fn inside(text: &[u8], hit: usize) -> bool {
    hit < text.len() || text.last().is_some_and(|b| *b != b'\n')
}

/// The first record from `i` on that ends after `position`.
fn record_at(run: &[Span], i: usize, position: usize) -> usize {
    i + run[i..].partition_point(|s| range(s).end <= position)
}

fn range(s: &Span) -> Range<usize> {
    let start = s.start as usize;
    start..start + s.len as usize
}

fn each_line(text: &[u8], part: Range<usize>, found: &mut dyn FnMut(Range<usize>)) {
    let mut at = part.start;
    for i in memchr::memchr_iter(b'\n', &text[part.clone()]) {
        found(at..part.start + i + 1);
        at = part.start + i + 1;
    }
    if at < part.end {
        found(at..part.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grep::pattern::{Records, Syntax};
    use proptest::prelude::*;
    use stead_core::block::Selection;

    fn search(p: &str, layout: Layout, syntax: Syntax, invert: bool) -> Search {
        let records = if layout == Layout::Binary { Records::Binary } else { Records::Lines };
        Search { pattern: Pattern::new(p, syntax, records).expect("pattern"), layout, invert }
    }

    fn spans_of_lines(text: &[u8]) -> Vec<Span> {
        let mut v = vec![];
        each_line(text, 0..text.len(), &mut |r| {
            v.push(Span { start: r.start as u32, len: r.len() as u32 });
        });
        v
    }

    fn found(s: &Search, b: &Block<'_>) -> Vec<Range<usize>> {
        let mut v = vec![];
        s.each(b, &mut |r| v.push(r));
        v
    }

    /// Record by record, with the plain `regex` crate.
    fn oracle(p: &str, syntax: Syntax, binary: bool, record: &[u8]) -> bool {
        let p = if syntax.fixed { regex::escape(p) } else { p.to_string() };
        let re = regex::bytes::RegexBuilder::new(&p)
            .case_insensitive(syntax.ignore_case)
            .build()
            .expect("regex");
        if binary {
            return re.is_match(record);
        }
        let line = record.strip_suffix(b"\n").unwrap_or(record);
        re.is_match(line) || line.strip_suffix(b"\r").is_some_and(|l| re.is_match(l))
    }

    const PATTERNS: &[&str] = &[
        "a",
        "ab|ba",
        "^a",
        "b$",
        "^$",
        "$",
        "",
        r"\s",
        r"a\s*b",
        r"\bab\b",
        "[^b]b",
        "a.b",
        ".*",
        "a{2,3}",
        r"\w+-",
        "x*",
        r"\B",
        "^a*$",
        r"(?-u:\xFF)",
        "é",
        "(a|b)+-",
        r"\Aa",
        r"b\z",
        "(?i)A",
        r"[[:^alpha:]]",
        r"\w+ab\b",
        r"[ab]+-a",
        "a*(ab|-b)$",
        r"(?i)\w+AB",
        r"^\w+ba",
        r"\b[a-]+bb?a",
    ];

    fn text() -> impl Strategy<Value = Vec<u8>> {
        let piece = prop_oneof![
            3 => Just(&b"a"[..]), 3 => Just(&b"b"[..]), 2 => Just(&b"-"[..]), 3 => Just(&b"\n"[..]),
            1 => Just(&b"\r\n"[..]), 1 => Just(&b" "[..]), 1 => Just("é".as_bytes()),
            1 => Just(&b"\xFF"[..]), 1 => Just(&b"AB"[..]),
        ];
        proptest::collection::vec(piece, 0..60).prop_map(|v| v.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(600))]
        #[test]
        fn the_same_as_record_by_record(
            text in text(),
            p in proptest::sample::select(PATTERNS),
            fixed in any::<bool>(), ignore_case in any::<bool>(), invert in any::<bool>(),
            size in 1usize..7,
            keep in proptest::collection::vec(any::<bool>(), 64),
        ) {
            let syntax = Syntax { fixed, ignore_case };
            let lines = spans_of_lines(&text);
            let pieces: Vec<Span> = (0..text.len() / size)
                .map(|i| Span { start: (i * size) as u32, len: size as u32 })
                .collect();
            for (layout, records) in [
                (Layout::Lines, &lines), (Layout::LineSpans, &lines), (Layout::Binary, &pieces),
            ] {
                let s = search(p, layout, syntax, invert);
                let b = Block { rows: records.len(), text: &text, records, ..Block::empty() };
                let wanted = |r: &Range<usize>| {
                    oracle(p, syntax, layout == Layout::Binary, &text[r.clone()]) != invert
                };
                let want: Vec<_> = records.iter().map(range).filter(wanted).collect();
                prop_assert_eq!(found(&s, &b), want, "{:?}", layout);
                let rows: Vec<u32> = (0..records.len() as u32)
                    .filter(|i| keep[*i as usize % keep.len()])
                    .collect();
                let mut scratch = Selection::default();
                let left = b.select(&rows, &mut scratch);
                let want: Vec<_> =
                    rows.iter().map(|i| range(&records[*i as usize])).filter(wanted).collect();
                prop_assert_eq!(found(&s, &left), want, "{:?} after a filter", layout);
            }
        }
    }

    #[test]
    fn headers_are_not_records_and_quoted_newlines_do_not_end_one() {
        let text = b"key,ERROR\n1,\"ok\nERROR\"\n2,ok\n";
        let records = [Span { start: 10, len: 13 }, Span { start: 23, len: 5 }];
        let b = Block { rows: 2, text, records: &records, ..Block::empty() };
        let plain = Syntax { fixed: false, ignore_case: false };
        let s = search("ERROR", Layout::LineSpans, plain, false);
        assert_eq!(found(&s, &b), vec![10..23; 1]);
        let s = search("ERROR", Layout::LineSpans, plain, true);
        assert_eq!(found(&s, &b), vec![23..28; 1]);
    }

    #[test]
    fn a_match_across_binary_records_is_none() {
        let records: Vec<Span> = (0..3).map(|i| Span { start: 4 * i, len: 4 }).collect();
        let b = Block { rows: 3, text: b"xxabcdxxabcd", records: &records, ..Block::empty() };
        let fixed = Syntax { fixed: true, ignore_case: false };
        assert_eq!(found(&search("abcd", Layout::Binary, fixed, false), &b), vec![8..12; 1]);
        assert_eq!(found(&search("abcd", Layout::Binary, fixed, true), &b), [0..4, 4..8]);
        // The leftmost match crosses; a shorter alternative does not.
        let plain = Syntax { fixed: false, ignore_case: false };
        assert_eq!(found(&search("xabcd|ab", Layout::Binary, plain, false), &b), [0..4, 8..12]);
    }
}
