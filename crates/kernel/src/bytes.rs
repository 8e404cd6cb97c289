//! Kernels over the bytes and the number of records: `lines`, `rows`, `digits`, `entropy`.
//!
//! `digits` and `entropy` read one histogram of the 256 byte values, which they share when both are
//! asked for; `digits` alone counts no other bytes. Everything accumulated here is an integer, so any split gives the same counts; entropy
//! is computed once, at the end, from the counts.

mod digits;
mod histogram;

use crate::cells::RowCounts;
use crate::{Built, Context, Info, Kernel, Many, Spec, Step};
use histogram::{Pairs, histogram_with};
use serde::{Deserialize, Serialize};
use stead_core::{Block, Error, Needs, Result, Value};

/// About `lines`.
pub const LINES: Info = Info {
    name: "lines",
    summary: "number of lines",
    usage: "lines",
    definition: "Number of newline bytes, plus one for each file that ends in a line without newline. \
        Header lines count. With --where or --by: the lines of the records kept, headers not. On \
        fixed-length records and arrays the bytes are taken as they are: newline bytes, plus one if the \
        last byte of a file is something else. An empty file has 0 lines, and so has a byte order mark alone. Quoted newlines inside one \
        delimited record count, as they do for 'wc -l'; 'rows' counts records.",
    error: "exact",
    cost: "one vectorised pass over the bytes (tens of GB/s on one core, the storage is the bound); 8 bytes of state",
    source: "POSIX.1-2017, 3.206 Line and 3.195 Incomplete Line",
    examples: &["lines"],
};

/// About `rows`.
pub const ROWS: Info = Info {
    name: "rows",
    summary: "number of records",
    usage: "rows",
    definition: "Number of records: data rows of delimited text (headers do not count, a quoted newline \
        does not end a record), lines of text, fixed-length records, rows of a 2-d array, elements of any \
        other array. With --where or --by: the records kept. 0 for empty input.",
    error: "exact",
    cost: "nothing beyond finding the records; 8 bytes of state",
    source: "RFC 4180 for the records of delimited text",
    examples: &["rows"],
};

/// About `digits`.
pub const DIGITS: Info = Info {
    name: "digits",
    summary: "how often each of the digits 0-9 stands in the bytes",
    usage: "digits",
    definition: "A map from '0' to '9' to the number of bytes with that ASCII value, over all bytes of \
        the files (decompressed), headers too. With --where or --by: over the bytes of the records kept.",
    error: "exact",
    cost: "one vectorised pass over the bytes, more than 10 GB/s on one core with AVX2; 80 bytes of state. \
        Together with 'entropy' it costs nothing beyond that",
    source: "ASCII (ANSI X3.4-1986)",
    examples: &["digits"],
};

/// About `entropy`.
pub const ENTROPY: Info = Info {
    name: "entropy",
    summary: "Shannon entropy of the bytes, in bits a byte",
    usage: "entropy",
    definition: "H = -sum p log2 p over the 256 byte values, p being the share of a value among all bytes \
        of the files (decompressed), headers too. Between 0 (one value only, or no bytes at all) and 8 \
        (all values equally often). With --where or --by: of the bytes of the records kept. Order-0: \
        bytes are counted one by one, so a repeated sequence does not lower it.",
    error: "relative error below 2e-15: the counts are exact, each term is good to a few units in the \
        last place (log1p where p is near 1), and the sum is compensated",
    cost: "one pass over the bytes, shared with 'digits': about 5 GB/s on one core for ASCII, 3 GB/s for other \
        bytes; 2 KiB of state, and 256 KiB to work in where blocks are large",
    source: "Shannon, A Mathematical Theory of Communication, Bell Syst. Tech. J. 27 (1948)",
    examples: &["entropy"],
};

/// Makes `lines`.
pub fn build_lines(spec: &Spec, _: &Context<'_>) -> Result<Built> {
    takes_nothing(spec)?;
    Ok(Built {
        key: "lines".into(),
        kernel: std::sync::Arc::new(Lines),
        pick: None,
        level: 0,
        rows: None,
    })
}

/// Makes `rows`.
pub fn build_rows(spec: &Spec, _: &Context<'_>) -> Result<Built> {
    takes_nothing(spec)?;
    Ok(Built {
        key: "rows".into(),
        kernel: std::sync::Arc::new(Rows),
        pick: None,
        level: 0,
        rows: None,
    })
}

/// Makes `digits`.
pub fn build_digits(spec: &Spec, _: &Context<'_>) -> Result<Built> {
    takes_nothing(spec)?;
    let kernel = std::sync::Arc::new(Digits);
    Ok(Built { key: HISTOGRAM.into(), kernel, pick: Some("digits"), level: 0, rows: None })
}

/// Makes `entropy`.
pub fn build_entropy(spec: &Spec, _: &Context<'_>) -> Result<Built> {
    takes_nothing(spec)?;
    let kernel = std::sync::Arc::new(ByteHistogram);
    Ok(Built { key: HISTOGRAM.into(), kernel, pick: Some("entropy"), level: 1, rows: None })
}

/// The key that `digits` and `entropy` share.
const HISTOGRAM: &str = "byte histogram";

fn takes_nothing(spec: &Spec) -> Result<()> {
    spec.only_options(&[])?;
    match spec.args.first() {
        None => Ok(()),
        Some(a) => Err(spec.error(format!("it takes no argument, and '{a}' was given"))),
    }
}

/// Counts lines.
struct Lines;

impl Kernel for Lines {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { bytes: true, ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, lines: &mut u64, block: &Block<'_>) -> Result<()> {
        for run in block.runs() {
            *lines += newlines(run);
        }
        // Only the last block of a file can end in the middle of a line, and after a filter only if
        // the record that does was kept.
        let kept = block.whole
            || block
                .records
                .last()
                .is_some_and(|s| s.start as usize + s.len as usize == block.text.len());
        let text = block.text.get(block.mark..).unwrap_or_default();
        if block.last && kept && text.last().is_some_and(|b| *b != b'\n') {
            *lines += 1;
        }
        Ok(())
    }

    fn merge(&self, lines: &mut u64, other: u64) -> Result<()> {
        *lines = lines.saturating_add(other);
        Ok(())
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, lines: u64) -> Result<Step> {
        Ok(Step::Done(Value::Int(lines)))
    }
}

fn newlines(bytes: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', bytes).count() as u64
}

/// Counts records.
struct Rows;

impl Kernel for Rows {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { rows: true, ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, rows: &mut u64, block: &Block<'_>) -> Result<()> {
        *rows += block.rows as u64;
        Ok(())
    }

    fn merge(&self, rows: &mut u64, other: u64) -> Result<()> {
        *rows = rows.saturating_add(other);
        Ok(())
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, rows: u64) -> Result<Step> {
        Ok(Step::Done(Value::Int(rows)))
    }

    fn many(self: std::sync::Arc<Self>) -> Box<dyn Many> {
        Box::new(RowCounts::default())
    }
}

/// Counts digits.
struct Digits;

impl Kernel for Digits {
    type State = [u64; 10];

    fn needs(&self) -> Needs {
        Needs { bytes: true, ..Needs::default() }
    }

    fn init(&self) -> [u64; 10] {
        [0; 10]
    }

    fn update(&self, counts: &mut [u64; 10], block: &Block<'_>) -> Result<()> {
        block.runs().for_each(|run| digits::count(counts, run));
        Ok(())
    }

    fn merge(&self, counts: &mut [u64; 10], other: [u64; 10]) -> Result<()> {
        counts.iter_mut().zip(other).for_each(|(a, b)| *a = a.saturating_add(b));
        Ok(())
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, counts: [u64; 10]) -> Result<Step> {
        Ok(Step::Done(Value::map([("digits", digits_value(&counts))])))
    }
}

fn digits_value(counts: &[u64; 10]) -> Value {
    let digits = ('0'..='9').map(|d| d.to_string());
    Value::Map(digits.zip(counts.map(Value::Int)).collect())
}

/// The histogram that `digits` and `entropy` read.
struct ByteHistogram;

/// A histogram.
#[derive(Serialize, Deserialize)]
struct Counts {
    /// 256 of them.
    counts: Vec<u64>,
    /// To work in.
    #[serde(skip)]
    pairs: Option<Pairs>,
}

impl Kernel for ByteHistogram {
    type State = Counts;

    fn needs(&self) -> Needs {
        Needs { bytes: true, ..Needs::default() }
    }

    fn init(&self) -> Counts {
        Counts { counts: vec![0; 256], pairs: None }
    }

    fn update(&self, state: &mut Counts, block: &Block<'_>) -> Result<()> {
        let Ok(counts) = <&mut [u64; 256]>::try_from(state.counts.as_mut_slice()) else {
            return Err(malformed());
        };
        block.runs().for_each(|run| histogram_with(counts, run, &mut state.pairs));
        Ok(())
    }

    fn merge(&self, state: &mut Counts, other: Counts) -> Result<()> {
        state.counts.iter_mut().zip(other.counts).for_each(|(a, b)| *a = a.saturating_add(b));
        Ok(())
    }

    fn check(&self, state: &Counts) -> Result<()> {
        if state.counts.len() == 256 { Ok(()) } else { Err(malformed()) }
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, state: Counts) -> Result<Step> {
        let Ok(counts) = <&[u64; 256]>::try_from(state.counts.as_slice()) else {
            return Err(malformed());
        };
        let digits = std::array::from_fn(|d| counts[usize::from(b'0') + d]);
        Ok(Step::Done(Value::map([
            ("digits", digits_value(&digits)),
            ("entropy", Value::Float(entropy(counts))),
        ])))
    }

    fn state_bytes(&self, state: &Counts) -> usize {
        256 * 8 + state.pairs.as_ref().map_or(0, |_| Pairs::BYTES)
    }
}

fn malformed() -> Error {
    Error::format("a byte histogram from another rank does not have 256 counts")
}

/// Entropy in bits a byte of the distribution `counts`; 0 if it is empty.
fn entropy(counts: &[u64; 256]) -> f64 {
    let n = counts.iter().fold(0u64, |n, c| n.saturating_add(*c));
    let total = n as f64;
    let (mut sum, mut lost) = (0.0f64, 0.0f64);
    for c in counts.iter().filter(|c| **c > 0) {
        let p = *c as f64 / total;
        // Near p = 1 the logarithm loses what p was rounded by; the rest (n - c) is known exactly.
        let log = if p > 0.5 {
            libm::log1p((n - c) as f64 / -total) * std::f64::consts::LOG2_E
        } else {
            libm::log2(p)
        };
        // Neumaier's compensated sum: all terms have one sign.
        let term = p * -log;
        let t = sum + term;
        lost += if sum >= term { (sum - t) + term } else { (term - t) + sum };
        sum = t;
    }
    // A single value gives -0.0; entropy is not negative.
    (sum + lost).max(0.0) + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::laws;
    use proptest::prelude::*;
    use stead_core::{RecordKind, Schema, block::Selection, block::Span};

    fn built(spec: &str) -> Built {
        let schema = Schema { records: RecordKind::Lines, columns: vec![], shape: None };
        let context = Context { schema: &schema, path: None, grouped: false };
        crate::registry::build(&Spec::parse(spec).expect("spec"), &context).expect("build")
    }

    fn run(spec: &str, blocks: &[Block<'_>]) -> Value {
        let b = built(spec);
        let v = laws::check(b.kernel, blocks);
        b.pick.map_or(v.clone(), |p| v.get(p).cloned().expect("member"))
    }

    /// One file, cut at the given places.
    fn cut<'a>(text: &'a [u8], mut at: Vec<usize>) -> Vec<Block<'a>> {
        at.iter_mut().for_each(|a| *a %= text.len() + 1);
        at.extend([0, text.len()]);
        at.sort_unstable();
        let n = at.len() - 1;
        at.windows(2)
            .enumerate()
            .map(|(i, w)| Block {
                seq: i as u64,
                offset: w[0] as u64,
                text: &text[w[0]..w[1]],
                // The block that holds the end of the file is its last one.
                last: i + 1 == n || w[1] == text.len(),
                ..Block::empty()
            })
            .filter(|b| !b.text.is_empty())
            .collect()
    }

    #[test]
    fn lines_count_as_people_count() {
        for (text, n) in [
            ("", 0),
            ("\n", 1),
            ("a", 1),
            ("a\n", 1),
            ("a\nb", 2),
            ("a\r\n\r\nb\r\n", 3),
            ("\n\n\n", 3),
        ] {
            let b = cut(text.as_bytes(), vec![]);
            assert_eq!(run("lines", &b), Value::Int(n), "{text:?}");
        }
        // A byte order mark alone is no line.
        for (text, n) in [("\u{feff}", 0), ("\u{feff}a", 1), ("\u{feff}\na", 2)] {
            let b = Block { text: text.as_bytes(), mark: 3, last: true, ..Block::empty() };
            assert_eq!(run("lines", &[b]), Value::Int(n), "{text:?}");
        }
        // Two files without a final newline have two last lines.
        let one = Block { text: b"a\nb", last: true, ..Block::empty() };
        let two = Block { source: 1, text: b"c", last: true, ..Block::empty() };
        assert_eq!(run("lines", &[one, two]), Value::Int(3));
    }

    #[test]
    fn a_filter_leaves_the_lines_of_its_records() {
        let b = Block {
            rows: 3,
            last: true,
            text: b"h\na\nb\nc",
            records: &[
                Span { start: 2, len: 2 },
                Span { start: 4, len: 2 },
                Span { start: 6, len: 1 },
            ],
            ..Block::empty()
        };
        for (keep, n) in [(&[0u32, 1, 2][..], 3), (&[2], 1), (&[0, 1], 2), (&[], 0)] {
            let mut s = Selection::default();
            assert_eq!(run("lines", &[b.select(keep, &mut s)]), Value::Int(n), "{keep:?}");
            let mut s = Selection::default();
            let rows = run("rows", &[b.select(keep, &mut s)]);
            assert_eq!(rows, Value::Int(keep.len() as u64));
            let mut s = Selection::default();
            let left = b.select(keep, &mut s);
            let bytes: usize = left.runs().map(<[u8]>::len).sum();
            assert_eq!(bytes, keep.iter().map(|i| b.record(*i as usize).len()).sum::<usize>());
        }
    }

    #[test]
    fn rows_are_the_records() {
        assert_eq!(run("rows", &[]), Value::Int(0));
        let b = |rows| Block { rows, ..Block::empty() };
        assert_eq!(run("rows", &[b(3), b(0), b(4)]), Value::Int(7));
    }

    #[test]
    fn digits_and_entropy_share_one_kernel() {
        let (d, e) = (built("digits"), built("entropy"));
        assert_eq!(d.key, e.key);
        // The one of entropy answers for both.
        assert!(d.level < e.level);
        let text = b"2024-01-31 17:00:00\n".repeat(500);
        let v = run("digits", &cut(&text, vec![777, 4444]));
        assert_eq!(v.get("0"), Some(&Value::Int(3000)));
        assert_eq!(v.get("9"), Some(&Value::Int(0)));
        let all = laws::check(e.kernel, &cut(&text, vec![]));
        assert_eq!(all.get("digits"), Some(&v));
    }

    #[test]
    fn entropy_of_known_distributions() {
        let close = |text: &[u8], want: f64| {
            let got = run("entropy", &cut(text, vec![])).as_f64().expect("float");
            assert!((got - want).abs() <= 2e-15 * want, "{got} is not {want}");
        };
        close(b"", 0.0);
        close(b"aaaa", 0.0);
        close(b"ab", 1.0);
        close(&(0..=255u8).collect::<Vec<_>>().repeat(40), 8.0);
        close(b"aaab", 2.0 - 0.75 * 3f64.log2());
        assert!(run("entropy", &cut(b"aa", vec![])).as_f64().is_some_and(|h| h.is_sign_positive()));
    }

    #[test]
    fn a_rare_byte_keeps_its_relative_accuracy() {
        let mut counts = [0u64; 256];
        (counts[0], counts[1]) = (1_000_000_000_000, 1);
        // mpmath: -(p log2 p + q log2 q) for q = 1/(10^12 + 1).
        let want = 4.130_583_217_949_673e-11;
        let got = entropy(&counts);
        assert!((got / want - 1.0).abs() < 2e-15, "{got:e}");
    }

    #[test]
    fn arguments_are_refused() {
        let schema = Schema { records: RecordKind::Lines, columns: vec![], shape: None };
        let context = Context { schema: &schema, path: None, grouped: false };
        for s in ["lines:x", "rows:a=1", "digits:x", "entropy:base=2"] {
            let spec = Spec::parse(s).expect("spec");
            assert!(crate::registry::build(&spec, &context).is_err(), "{s}");
        }
    }

    #[test]
    fn a_malformed_state_is_an_error() {
        let short = |n| Counts { counts: vec![1; n], pairs: None };
        assert!(Kernel::check(&ByteHistogram, &short(3)).is_err());
        assert!(Kernel::check(&ByteHistogram, &Kernel::init(&ByteHistogram)).is_ok());
        assert!(Kernel::finish(&ByteHistogram, short(0)).is_err());
    }

    proptest! {
        #[test]
        fn any_split_gives_the_same(
            text in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'7'), any::<u8>()], 0..300),
            at in proptest::collection::vec(any::<usize>(), 0..6),
        ) {
            let whole = cut(&text, vec![]);
            let parts = cut(&text, at);
            for spec in ["lines", "digits", "entropy"] {
                prop_assert_eq!(run(spec, &whole), run(spec, &parts));
            }
            let lines = String::from_utf8_lossy(&text).lines().count() as u64;
            prop_assert_eq!(run("lines", &parts), Value::Int(lines));
        }
    }
}
