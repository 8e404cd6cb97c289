//! Patterns made fit for searching a whole buffer of records at once.
//!
//! Where records are lines, the pattern is rewritten on the level of its syntax tree so that a match in
//! a buffer of many lines is always a match inside one line: classes lose the newline (`\s`, `[^"]`),
//! `^`, `\A` hold after a newline and `$`, `\z` before one (or before `\r\n`). So a search never runs
//! over a line's end, which also keeps patterns such as `"[^"]*"` from scanning to the end of the buffer
//! again for every quote. It is what ripgrep does in its crate `grep-regex`.

use super::literals;
use memchr::{memchr, memmem, memrchr};
use regex_automata::{Anchored, Input, Span, meta, util::prefilter::Prefilter};
use regex_syntax::{
    ParserBuilder,
    hir::{
        Class, ClassBytes, ClassBytesRange, ClassUnicode, ClassUnicodeRange, Hir, HirKind, Look,
    },
};
use stead_core::{Error, Result, limits};

/// What a pattern is matched against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Records {
    /// Text whose records end in newlines.
    Lines,
    /// Binary records: any byte may be anywhere in them.
    Binary,
}

/// How to read a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Syntax {
    /// A string to be found as it is, not a regular expression.
    pub fixed: bool,
    /// Upper and lower case are the same (Unicode simple case folding).
    pub ignore_case: bool,
}

/// A compiled pattern.
#[derive(Debug, Clone)]
pub struct Pattern {
    engine: Engine,
    /// True if many binary records may be searched at once: matches are short and look at nothing
    /// outside themselves.
    pub across: bool,
}

#[derive(Debug, Clone)]
enum Engine {
    Literal(Box<memmem::Finder<'static>>),
    /// An expression, and a search for places that it may match at.
    Regex(meta::Regex, Option<Prefilter>),
}

/// Longest possible match with which binary records are searched many at a time: a match that crosses
/// the end of its record has then cost at most this much in vain.
const MAX_ACROSS: usize = 256;

impl Pattern {
    /// Compiles `pattern`.
    pub fn new(pattern: &str, syntax: Syntax, records: Records) -> Result<Pattern> {
        if syntax.fixed && !syntax.ignore_case {
            if records == Records::Lines && pattern.contains('\n') {
                return Err(newline());
            }
            let finder = memmem::Finder::new(pattern.as_bytes()).into_owned();
            return Ok(Pattern { engine: Engine::Literal(Box::new(finder)), across: true });
        }
        let escaped;
        let source = if syntax.fixed {
            escaped = regex_syntax::escape(pattern);
            &escaped
        } else {
            pattern
        };
        let hir = ParserBuilder::new()
            .utf8(false)
            .case_insensitive(syntax.ignore_case)
            .multi_line(records == Records::Lines)
            .build()
            .parse(source)
            .map_err(|e| {
                Error::usage(format!("the pattern is not a regular expression: {e}")).with_hint(
                    "add the flag 'fixed' to search for the text as it is, or escape with \\",
                )
            })?;
        let hir = if records == Records::Lines { within_lines(hir)? } else { hir };
        let properties = hir.properties();
        let across = properties.look_set().is_empty()
            && properties.maximum_len().is_some_and(|n| n <= MAX_ACROSS);
        let regex = meta::Regex::builder()
            .configure(
                meta::Config::new()
                    .utf8_empty(false)
                    .nfa_size_limit(Some(limits::MAX_REGEX_BYTES))
                    .which_captures(regex_automata::nfa::thompson::WhichCaptures::Implicit),
            )
            .build_from_hir(&hir)
            .map_err(|e| match e.size_limit() {
                Some(n) => Error::limit(format!(
                    "the compiled pattern would take more than {}",
                    stead_core::units::format_size(n as u64)
                ))
                .with_hint(
                    "use smaller repetitions such as {1,20}, or (?-u:\\w) for ASCII classes",
                ),
                None => Error::usage(format!("the pattern cannot be compiled: {e}")),
            })?;
        let prefilter = literals::prefilter(&hir, &regex, records == Records::Binary);
        Ok(Pattern { engine: Engine::Regex(regex, prefilter), across })
    }

    /// For text: a position in the first line of `text[from..]` with a match, its end included. `from` is the
    /// start of a line.
    #[inline]
    pub fn hit(&self, text: &[u8], from: usize) -> Option<usize> {
        match &self.engine {
            Engine::Literal(f) => f.find(text.get(from..)?).map(|i| from + i),
            Engine::Regex(r, None) => r
                .search_half(&Input::new(text).range(from..).anchored(Anchored::No).earliest(true))
                .map(|m| m.offset()),
            Engine::Regex(r, Some(p)) => {
                let mut from = from;
                loop {
                    let at = p.find(text, Span::from(from..text.len()))?.start;
                    let start = memrchr(b'\n', &text[from..at]).map_or(from, |i| from + i + 1);
                    let end = memchr(b'\n', &text[at..]).map_or(text.len(), |i| at + i);
                    if r.is_match(Input::new(text).range(start..end)) {
                        return Some(at);
                    }
                    from = (end + 1).min(text.len());
                }
            }
        }
    }

    /// For binary records: where the next record that may match has one of its bytes, the search for which
    /// begins at `from`. `None` in place of the search if there is no way to tell.
    #[inline]
    pub fn candidate(&self, text: &[u8], from: usize) -> Option<Option<usize>> {
        match &self.engine {
            Engine::Regex(_, Some(p)) => {
                Some(p.find(text, Span::from(from..text.len())).map(|s| s.start))
            }
            _ => None,
        }
    }

    /// The leftmost match in `text[from..]`.
    #[inline]
    pub fn find(&self, text: &[u8], from: usize) -> Option<(usize, usize)> {
        match &self.engine {
            Engine::Literal(f) => {
                let start = from + f.find(text.get(from..)?)?;
                Some((start, start + f.needle().len()))
            }
            Engine::Regex(r, _) => {
                let m = r.find(Input::new(text).range(from..))?;
                Some((m.start(), m.end()))
            }
        }
    }

    /// True if `record` holds a match.
    #[inline]
    pub fn is_match(&self, record: &[u8]) -> bool {
        match &self.engine {
            Engine::Literal(f) => f.find(record).is_some(),
            Engine::Regex(r, _) => r.is_match(record),
        }
    }
}

fn newline() -> Error {
    Error::usage("the pattern has a newline, but a match lies within one line")
        .with_hint("search for the parts with a|b, or give the data another --type")
}

/// Rewrites an expression so that it matches within lines only. Recursion is bounded by the parser's
/// own limit of nesting.
fn within_lines(hir: Hir) -> Result<Hir> {
    Ok(match hir.into_kind() {
        HirKind::Empty => Hir::empty(),
        HirKind::Literal(l) if l.0.contains(&b'\n') => return Err(newline()),
        HirKind::Literal(l) => Hir::literal(l.0),
        HirKind::Class(Class::Unicode(mut c)) => {
            c.difference(&ClassUnicode::new([ClassUnicodeRange::new('\n', '\n')]));
            Hir::class(Class::Unicode(c))
        }
        HirKind::Class(Class::Bytes(mut c)) => {
            c.difference(&ClassBytes::new([ClassBytesRange::new(b'\n', b'\n')]));
            Hir::class(Class::Bytes(c))
        }
        HirKind::Look(Look::Start | Look::StartLF) => Hir::look(Look::StartLF),
        HirKind::Look(Look::End | Look::EndLF) => {
            // The carriage return of `\r\n` belongs to the line's end.
            let cr = regex_syntax::hir::Repetition {
                min: 0,
                max: Some(1),
                greedy: true,
                sub: Box::new(Hir::literal(*b"\r")),
            };
            Hir::concat(vec![Hir::repetition(cr), Hir::look(Look::EndLF)])
        }
        HirKind::Look(l) => Hir::look(l),
        HirKind::Repetition(mut r) => {
            r.sub = Box::new(within_lines(*r.sub)?);
            Hir::repetition(r)
        }
        HirKind::Capture(c) => within_lines(*c.sub)?,
        HirKind::Concat(v) => Hir::concat(v.into_iter().map(within_lines).collect::<Result<_>>()?),
        HirKind::Alternation(v) => {
            Hir::alternation(v.into_iter().map(within_lines).collect::<Result<_>>()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: Syntax = Syntax { fixed: false, ignore_case: false };

    fn lines(p: &str) -> Pattern {
        Pattern::new(p, PLAIN, Records::Lines).expect("pattern")
    }

    #[test]
    fn a_match_never_leaves_its_line() {
        assert_eq!(lines(r"a\s+b").find(b"a\nb", 0), None);
        assert_eq!(lines(r#""[^"]*""#).find(b"\"x\ny\"", 0), None);
        assert_eq!(lines(r"(?s)a.*b").find(b"a\nb a-b", 0), Some((4, 7)));
        assert_eq!(lines(r"\Ab\z").find(b"a\nb\nc", 0), Some((2, 3)));
        assert_eq!(lines(r"(?-m)^b$").find(b"a\nb\r\nc", 0), Some((2, 4)));
    }

    #[test]
    fn bad_patterns_are_usage_errors() {
        for p in ["(", "a{2,1}", "[z-a]", r"\q", "a\nb", r"a\nb"] {
            let e = Pattern::new(p, PLAIN, Records::Lines).expect_err(p);
            assert_eq!(e.kind(), stead_core::Kind::Usage, "{p}");
        }
        let e = Pattern::new(r"(\w{1000}){1000}", PLAIN, Records::Lines).expect_err("size");
        assert_eq!(e.kind(), stead_core::Kind::Limit);
        assert!(Pattern::new(r"a\nb", PLAIN, Records::Binary).is_ok());
    }

    #[test]
    fn fixed_strings_are_taken_as_they_are() {
        let fixed = |ignore_case| {
            let s = Syntax { fixed: true, ignore_case };
            Pattern::new("a.B", s, Records::Lines).expect("pattern")
        };
        assert_eq!(fixed(false).find(b"axB a.b a.B", 0), Some((8, 11)));
        assert_eq!(fixed(true).find(b"axB a.b a.B", 0), Some((4, 7)));
    }
}
