//! Strings of which every match holds at least one: where none of them stands, nothing need be looked at.
//!
//! A regular expression without a string at its start makes the engine look at every byte with an automaton.
//! Most have a string somewhere inside (`[a-z]+ing\b`), which a vectorised search finds at the speed of memory; only
//! the records around it are then given to the engine. After `grep-regex` of ripgrep.

use regex_automata::{MatchKind, meta, util::prefilter::Prefilter};
use regex_syntax::hir::literal::{Extractor, Seq};
use regex_syntax::hir::{Hir, HirKind};
use std::cmp::Reverse;

/// More strings are searched for no faster than the automaton runs.
const MOST: usize = 64;
/// Shorter strings stand everywhere.
const SHORTEST: usize = 2;
/// What is longer finds no fewer places.
const LONG: usize = 6;

/// A search for the strings, if there are any worth it. `regex` is made of `hir`; if `alone`, it looks at one record
/// after the other, so that what it finds strings with itself is of little use.
pub fn prefilter(hir: &Hir, regex: &meta::Regex, alone: bool) -> Option<Prefilter> {
    let needles = required(hir)?;
    if regex.is_accelerated() && !alone {
        // By what the matches start with, and then it need not look for the record; or by something inside.
        let first = prefixes(std::slice::from_ref(hir));
        if shortest(&needles) < LONG.div_ceil(2)
            || first.is_some_and(|f| rank(&f) >= rank(&needles))
        {
            return None;
        }
    }
    Prefilter::new(MatchKind::LeftmostFirst, &needles)
}

/// The best set of strings of which every match holds one.
fn required(hir: &Hir) -> Option<Vec<Vec<u8>>> {
    match hir.kind() {
        HirKind::Concat(parts) => {
            let mut best = None;
            for i in 0..parts.len() {
                best = better(best, prefixes(&parts[i..]));
                best = better(best, required(&parts[i]));
            }
            best
        }
        HirKind::Alternation(ways) => {
            let mut all = Vec::new();
            for way in ways {
                all.extend(required(way)?);
            }
            good(all)
        }
        HirKind::Repetition(r) if r.min > 0 => required(&r.sub),
        HirKind::Capture(c) => required(&c.sub),
        HirKind::Literal(_) | HirKind::Class(_) => prefixes(std::slice::from_ref(hir)),
        HirKind::Repetition(_) | HirKind::Look(_) | HirKind::Empty => None,
    }
}

/// Strings of which one stands at the start of whatever matches `parts`.
fn prefixes(parts: &[Hir]) -> Option<Vec<Vec<u8>>> {
    let mut seq: Seq = Extractor::new().extract(&Hir::concat(parts.to_vec()));
    seq.optimize_for_prefix_by_preference();
    good(seq.literals()?.iter().map(|l| l.as_bytes().to_vec()).collect())
}

fn good(mut needles: Vec<Vec<u8>>) -> Option<Vec<Vec<u8>>> {
    needles.sort();
    needles.dedup();
    let fine = !needles.is_empty() && needles.len() <= MOST && shortest(&needles) >= SHORTEST;
    fine.then_some(needles)
}

fn shortest(needles: &[Vec<u8>]) -> usize {
    needles.iter().map(Vec::len).min().unwrap_or(0)
}

/// Greater for sets that stand in fewer places: longer strings first, then fewer of them.
fn rank(needles: &[Vec<u8>]) -> (usize, Reverse<usize>, usize) {
    let n = shortest(needles);
    (n.min(LONG), Reverse(needles.len()), n)
}

fn better(a: Option<Vec<Vec<u8>>>, b: Option<Vec<Vec<u8>>>) -> Option<Vec<Vec<u8>>> {
    match (a, b) {
        (Some(a), Some(b)) => Some(if rank(&b) > rank(&a) { b } else { a }),
        (a, b) => a.or(b),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(pattern: &str) -> Option<Vec<String>> {
        let hir = regex_syntax::ParserBuilder::new().utf8(false).build().parse(pattern).unwrap();
        let text = |n: Vec<u8>| String::from_utf8(n).unwrap();
        required(&hir).map(|n| n.into_iter().map(text).collect())
    }

    #[test]
    fn every_match_holds_one_of_the_strings() {
        for (pattern, want) in [
            (r"[a-z]+ing\b", Some(vec!["ing"])),
            (r"\w+needle\w*", Some(vec!["needle"])),
            ("[0-9]{9}q.*needle", Some(vec!["needle"])),
            (".(ab|cde)+x", Some(vec!["ab", "cde"])),
            ("(?i).*ab.*", Some(vec!["AB", "Ab", "aB", "ab"])),
            (r"\d+(one|two)\d|\s+three", Some(vec!["one", "three", "two"])),
            (r"\w+(ab)*", None),
            (r"\w+(ab)?c", None),
            (r"\w+|needle", None),
            (r"\w+x\w+", None),
            ("", None),
            (r"^\d+$", None),
        ] {
            let want = want.map(|w| w.into_iter().map(String::from).collect::<Vec<_>>());
            assert_eq!(of(pattern), want, "{pattern}");
        }
    }
}
