//! Runs a program over a block, a batch of rows at a time.
//!
//! A batch is small enough that all registers stay in the first-level cache, and long enough that the
//! cost of choosing an instruction is spread over many rows.

use super::parse::Compare;
use super::program::{FALSE, Find, Number, Op, Program, TRUE, Text, UNKNOWN, Unary};
use stead_core::{Block, MISSING, Span, TextColumn, is_missing};

/// Rows of a batch.
const BATCH: usize = 1024;

/// Buffers of an evaluation, to be reused from block to block.
#[derive(Debug, Default)]
pub struct Scratch {
    numbers: Vec<Vec<f64>>,
    texts: Vec<Texts>,
    truths: Vec<Vec<u8>>,
}

/// A register of texts that were made, not found in the block.
#[derive(Debug, Default)]
struct Texts {
    data: Vec<u8>,
    /// Start and end in `data`; `None` if missing.
    ranges: Vec<Option<(usize, usize)>>,
}

/// Numbers of one batch.
#[derive(Clone, Copy)]
enum Numbers<'a> {
    Slice(&'a [f64]),
    Constant(f64),
}

/// Texts of one batch.
#[derive(Clone, Copy)]
enum Strings<'a> {
    Column(TextColumn<'a>, usize),
    Constant(&'a [u8]),
    Made(&'a Texts),
}

impl<'a> Strings<'a> {
    #[inline]
    fn get(&self, i: usize) -> Option<&'a [u8]> {
        match self {
            Strings::Column(c, base) => c.get(base + i),
            Strings::Constant(t) => Some(t),
            Strings::Made(t) => t.ranges[i].map(|(a, b)| &t.data[a..b]),
        }
    }
}

/// `f` of two columns of numbers.
#[inline(always)]
fn zip<T>(to: &mut Vec<T>, n: usize, a: Numbers<'_>, b: Numbers<'_>, f: impl Fn(f64, f64) -> T) {
    to.clear();
    match (a, b) {
        (Numbers::Slice(a), Numbers::Slice(b)) => {
            to.extend(a.iter().zip(b).map(|(a, b)| f(*a, *b)));
        }
        (Numbers::Slice(a), Numbers::Constant(b)) => to.extend(a.iter().map(|a| f(*a, b))),
        (Numbers::Constant(a), Numbers::Slice(b)) => to.extend(b.iter().map(|b| f(a, *b))),
        (Numbers::Constant(a), Numbers::Constant(b)) => to.extend((0..n).map(|_| f(a, b))),
    }
}

/// `f` of one column of numbers.
#[inline(always)]
fn map<T>(to: &mut Vec<T>, n: usize, a: Numbers<'_>, f: impl Fn(f64) -> T) {
    zip(to, n, a, Numbers::Constant(0.0), |a, _| f(a));
}

fn truth(yes: bool) -> u8 {
    if yes { TRUE } else { FALSE }
}

#[inline(always)]
fn compare(to: &mut Vec<u8>, n: usize, a: Numbers<'_>, b: Numbers<'_>, f: Compare) {
    // The comparison is a constant in each arm, so that each arm becomes a plain vector loop.
    macro_rules! arms {
        ($($c:ident)*) => {
            match f {
                $(Compare::$c => zip(to, n, a, b, |a, b| {
                    let t = truth(Compare::$c.of_numbers(a, b));
                    if is_missing(a) | is_missing(b) { UNKNOWN } else { t }
                }),)*
            }
        };
    }
    arms!(Eq Ne Lt Le Gt Ge);
}

/// Three-valued truth of a test of two texts.
fn test(
    to: &mut Vec<u8>,
    n: usize,
    a: Strings<'_>,
    b: Strings<'_>,
    f: impl Fn(&[u8], &[u8]) -> bool,
) {
    to.clear();
    to.extend((0..n).map(|i| match (a.get(i), b.get(i)) {
        (Some(a), Some(b)) => truth(f(a, b)),
        _ => UNKNOWN,
    }));
}

/// Three-valued truth of a test of one text.
fn test_one(to: &mut Vec<u8>, n: usize, a: Strings<'_>, f: impl Fn(&[u8]) -> bool) {
    test(to, n, a, Strings::Constant(&[]), |a, _| f(a));
}

/// Characters of UTF-8; in other bytes, those that do not continue a character.
pub(super) fn characters(t: &[u8]) -> usize {
    t.iter().filter(|b| **b & 0xC0 != 0x80).count()
}

/// Appends `t` in lower case: by Unicode if it is UTF-8, else its ASCII letters only.
pub(super) fn push_lower(t: &[u8], out: &mut Vec<u8>) {
    if !t.is_ascii()
        && let Ok(s) = std::str::from_utf8(t)
    {
        out.extend_from_slice(s.to_lowercase().as_bytes());
        return;
    }
    out.extend(t.iter().map(u8::to_ascii_lowercase));
}

/// True if `x` is in the ascending `list`, where 0 and -0 are equal.
pub(super) fn contains(list: &[f64], x: f64) -> bool {
    if list.len() <= 8 {
        return list.contains(&x);
    }
    let i = list.partition_point(|v| *v < x);
    list.get(i).is_some_and(|v| *v == x)
}

/// Appends the rows of `block` for which the program's answer is true.
pub(super) fn run(
    program: &Program,
    block: &Block<'_>,
    rows: u32,
    scratch: &mut Scratch,
    keep: &mut Vec<u32>,
) {
    let rows = rows as usize;
    scratch.numbers.resize_with(program.numbers.max(scratch.numbers.len()), Vec::new);
    scratch.texts.resize_with(program.texts.max(scratch.texts.len()), Texts::default);
    scratch.truths.resize_with(program.truths.max(scratch.truths.len()), Vec::new);
    for base in (0..rows).step_by(BATCH) {
        let batch = Batch { program, block, base, n: BATCH.min(rows - base) };
        for op in &program.ops {
            batch.step(op, scratch);
        }
        for (i, t) in scratch.truths[program.answer].iter().enumerate() {
            if *t == TRUE {
                // `rows` came from a u32.
                keep.push((base + i) as u32);
            }
        }
    }
}

struct Batch<'a> {
    program: &'a Program,
    block: &'a Block<'a>,
    base: usize,
    n: usize,
}

impl Batch<'_> {
    fn numbers<'s>(&'s self, a: Number, scratch: &'s Scratch) -> Numbers<'s> {
        match a {
            Number::Constant(x) => Numbers::Constant(x),
            Number::Register(r) => Numbers::Slice(&scratch.numbers[r]),
            Number::Column(id) => {
                Numbers::Slice(&self.block.numbers(id)[self.base..self.base + self.n])
            }
        }
    }

    fn strings<'s>(&'s self, a: Text, scratch: &'s Scratch) -> Strings<'s> {
        match a {
            Text::Constant(i) => Strings::Constant(&self.program.constants[i]),
            Text::Register(r) => Strings::Made(&scratch.texts[r]),
            Text::Column(id) => {
                let none = TextColumn { data: &[], spans: &[] as &[Span] };
                Strings::Column(self.block.texts(id).unwrap_or(none), self.base)
            }
        }
    }

    fn step(&self, op: &Op, s: &mut Scratch) {
        let n = self.n;
        match op {
            Op::Unary { f, a, to } => self.fill_numbers(s, *to, |s, out| {
                let a = self.numbers(*a, s);
                match f {
                    // The payload of a missing value goes through both untouched.
                    Unary::Negate => map(out, n, a, |x| -x),
                    Unary::Abs => map(out, n, a, f64::abs),
                    f => map(out, n, a, |x| if is_missing(x) { MISSING } else { f.of(x) }),
                }
            }),
            Op::Binary { f, a, b, to } => self.fill_numbers(s, *to, |s, out| {
                let (a, b) = (self.numbers(*a, s), self.numbers(*b, s));
                use super::program::Binary::*;
                macro_rules! arms {
                    ($($c:ident)*) => {
                        match f {
                            $($c => zip(out, n, a, b, |a, b| {
                                let r = $c.of(a, b);
                                // Which NaN an operation passes on is up to the machine.
                                if is_missing(a) | is_missing(b) { MISSING } else { r }
                            }),)*
                        }
                    };
                }
                arms!(Add Subtract Multiply Divide Remainder Min Max);
            }),
            Op::Len { a, to } => self.fill_numbers(s, *to, |s, out| {
                let a = self.strings(*a, s);
                out.clear();
                out.extend((0..n).map(|i| a.get(i).map_or(MISSING, |t| characters(t) as f64)));
            }),
            Op::Lower { a, to } => {
                let mut out = std::mem::take(&mut s.texts[*to]);
                out.data.clear();
                out.ranges.clear();
                let a = self.strings(*a, s);
                for i in 0..n {
                    let range = a.get(i).map(|t| {
                        let start = out.data.len();
                        push_lower(t, &mut out.data);
                        (start, out.data.len())
                    });
                    out.ranges.push(range);
                }
                s.texts[*to] = out;
            }
            Op::CompareNumbers { f, a, b, to } => self.fill_truths(s, *to, |s, out| {
                compare(out, n, self.numbers(*a, s), self.numbers(*b, s), *f);
            }),
            Op::CompareTexts { f, a, b, to } => self.fill_truths(s, *to, |s, out| {
                test(out, n, self.strings(*a, s), self.strings(*b, s), |a, b| f.of_texts(a, b));
            }),
            Op::InNumbers { a, list, to } => self.fill_truths(s, *to, |s, out| {
                map(out, n, self.numbers(*a, s), |x| {
                    if is_missing(x) { UNKNOWN } else { truth(contains(list, x)) }
                });
            }),
            Op::InTexts { a, list, to } => self.fill_truths(s, *to, |s, out| {
                test_one(out, n, self.strings(*a, s), |t| {
                    list.binary_search_by(|v| v.as_slice().cmp(t)).is_ok()
                });
            }),
            Op::MissingNumber { a, to } => self.fill_truths(s, *to, |s, out| {
                map(out, n, self.numbers(*a, s), |x| truth(is_missing(x)));
            }),
            Op::MissingText { a, to } => self.fill_truths(s, *to, |s, out| {
                let a = self.strings(*a, s);
                out.clear();
                out.extend((0..n).map(|i| truth(a.get(i).is_none())));
            }),
            Op::Match { a, regex, to } => self.fill_truths(s, *to, |s, out| {
                test_one(out, n, self.strings(*a, s), |t| regex.is_match(t));
            }),
            Op::Find { how, a, b, to } => self.fill_truths(s, *to, |s, out| {
                test(out, n, self.strings(*a, s), self.strings(*b, s), |a, b| match how {
                    Find::Starts => a.starts_with(b),
                    Find::Ends => a.ends_with(b),
                    Find::Contains => memchr::memmem::find(a, b).is_some(),
                });
            }),
            Op::FindConstant { a, finder, to } => self.fill_truths(s, *to, |s, out| {
                test_one(out, n, self.strings(*a, s), |t| finder.find(t).is_some());
            }),
            Op::Not { a, to } => self.fill_truths(s, *to, |s, out| {
                out.clear();
                out.extend(s.truths[*a].iter().map(|a| TRUE - a));
            }),
            Op::And { a, b, to } => self.fill_truths(s, *to, |s, out| {
                out.clear();
                out.extend(s.truths[*a].iter().zip(&s.truths[*b]).map(|(a, b)| *a.min(b)));
            }),
            Op::Or { a, b, to } => self.fill_truths(s, *to, |s, out| {
                out.clear();
                out.extend(s.truths[*a].iter().zip(&s.truths[*b]).map(|(a, b)| *a.max(b)));
            }),
        }
    }

    /// Takes register `to` out while it is filled, so that the others can be read.
    fn fill_numbers(&self, s: &mut Scratch, to: usize, f: impl FnOnce(&Scratch, &mut Vec<f64>)) {
        let mut out = std::mem::take(&mut s.numbers[to]);
        f(s, &mut out);
        s.numbers[to] = out;
    }

    fn fill_truths(&self, s: &mut Scratch, to: usize, f: impl FnOnce(&Scratch, &mut Vec<u8>)) {
        let mut out = std::mem::take(&mut s.truths[to]);
        f(s, &mut out);
        s.truths[to] = out;
    }
}
