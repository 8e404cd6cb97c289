//! Where fields and records end in a stretch of text.

use super::simd::{self, GROUP, Vector, Work};

/// Bytes indexed at once: with the index of common data they fit the first-level cache.
pub const STRETCH: usize = 16 << 10;

/// What quotes are in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Quotes {
    /// Ordinary bytes.
    None,
    /// Around fields: what stands between them ends nothing.
    Around(u8),
    /// The index ends at the first one.
    Stop(u8),
}

/// Ends of fields and records, relative to the start of the stretch, where a record starts.
#[derive(Debug, Default)]
pub struct Index {
    /// Places of delimiters and newlines that stand in no quotes, ascending, after a first entry of -1: field
    /// `k` lies between entries `k - 1` and `k`. Longer than `len`, with rubbish after it.
    ends: Vec<u32>,
    /// Number of entries of `ends` in use.
    len: usize,
    /// For each newline, which entry of `ends` it is. Longer than `lines`, with rubbish after it.
    newlines: Vec<u32>,
    /// Number of entries of `newlines` in use.
    lines: usize,
    /// True if quotes were met: a field may begin with one.
    pub quoted: bool,
}

impl Index {
    /// Indexes `text`, of at most [`STRETCH`] bytes. The index ends early at a quote that neither begins a
    /// field nor stands in one that a quote began.
    pub fn build(&mut self, text: &[u8], delimiter: u8, quotes: Quotes) {
        simd::dispatch(Build { index: self, text, delimiter, quotes });
    }

    /// Places of delimiters and newlines, after a first entry of -1.
    pub fn ends(&self) -> &[u32] {
        &self.ends[..self.len]
    }

    /// For each newline, which entry of `ends` it is.
    pub fn newlines(&self) -> &[u32] {
        &self.newlines[..self.lines]
    }
}

struct Build<'a> {
    index: &'a mut Index,
    text: &'a [u8],
    delimiter: u8,
    quotes: Quotes,
}

impl Work for Build<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let Build { index, text, delimiter, quotes } = self;
        // Whole groups of entries are written, whether or not all of them count.
        index.ends.resize(1 + STRETCH + GROUP, 0);
        index.newlines.resize(STRETCH + GROUP, 0);
        index.ends[0] = u32::MAX;
        index.quoted = false;
        let (mut n, mut lines) = (1, 0);
        let mut state = Between { before: 1, inside: 0 };
        let quote = match quotes {
            Quotes::None => delimiter,
            Quotes::Around(q) | Quotes::Stop(q) => q,
        };
        let (groups, rest) = text[..text.len().min(STRETCH)].as_chunks::<GROUP>();
        let mut padded = [0; GROUP];
        padded[..rest.len()].copy_from_slice(rest);
        let all = groups.iter().map(|g| (g, u64::MAX));
        let tail = (!rest.is_empty()).then_some((&padded, (1 << rest.len()) - 1));
        for (g, (group, valid)) in all.chain(tail).enumerate() {
            let at = (g * GROUP) as u32;
            let masks = vector.masks(group, delimiter, quote);
            let (mut ends, mut newlines) = (masks.ends & valid, masks.newlines & valid);
            let mut stop = false;
            if (masks.quoted || state.inside != 0) && quotes != Quotes::None {
                let found = vector.equal(group, quote) & valid;
                let outside;
                (outside, stop) = match quotes {
                    Quotes::Around(_) => state.pass(vector, found, ends),
                    _ => (before_first(found), found != 0),
                };
                index.quoted |= found != 0;
                ends &= outside;
                newlines &= outside;
            } else {
                state.before = ends >> (GROUP - 1);
            }
            let Some(slot) = index.newlines[lines..].first_chunk_mut::<GROUP>() else { return };
            lines += newlines.count_ones() as usize;
            let mut bits = newlines;
            let mut note = |s: &mut u32| {
                // All bits if there is no newline left: that entry does not count.
                let below = (bits & bits.wrapping_neg()).wrapping_sub(1);
                *s = n as u32 + (ends & below).count_ones();
                bits &= bits.wrapping_sub(1);
            };
            note(&mut slot[0]);
            let count = newlines.count_ones() as usize;
            if count > 1 {
                slot[1..4].iter_mut().for_each(&mut note);
                if count > 4 {
                    slot[4..count].iter_mut().for_each(&mut note);
                }
            }
            let Some(slot) = index.ends[n..].first_chunk_mut::<GROUP>() else { return };
            let count = ends.count_ones() as usize;
            let mut bits = ends;
            let mut put = |from: usize, to: usize| {
                for s in &mut slot[from..to] {
                    *s = at + bits.trailing_zeros();
                    bits &= bits.wrapping_sub(1);
                }
            };
            // Most groups have few ends: a fixed number of steps has no branch to mispredict.
            put(0, 8);
            if count > 8 {
                put(8, 16);
                if count > 16 {
                    put(16, GROUP);
                }
            }
            n += count;
            if stop {
                break;
            }
        }
        index.len = n;
        index.lines = lines;
    }
}

/// What stands before a group.
struct Between {
    /// 1 if the last byte is the end of a field, or of a quoted part of one.
    before: u64,
    /// All bits if it stands in quotes.
    inside: u64,
}

impl Between {
    /// Passes over a group with these quotes and ends; gives the bytes in which ends count, and true if the
    /// index ends at a quote that has no meaning.
    #[inline(always)]
    fn pass<V: Vector>(&mut self, vector: V, quotes: u64, ends: u64) -> (u64, bool) {
        let inside = vector.parity(quotes) ^ self.inside;
        let (opening, closing) = (quotes & inside, quotes & !inside);
        let ends = ends & !inside;
        // An opening quote begins a field, or doubles the closing one before it.
        let stray = opening & !((ends | closing) << 1 | self.before);
        self.before = (ends | closing) >> (GROUP - 1);
        self.inside = ((inside as i64) >> (GROUP - 1)) as u64;
        (!inside & before_first(stray), stray != 0)
    }
}

/// The bits below the lowest one that is set; all if none is.
#[inline(always)]
fn before_first(bits: u64) -> u64 {
    bits.wrapping_sub(1) & !bits
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delimited::syntax::{State, Syntax};
    use proptest::prelude::*;

    /// What the automaton of quotes says, up to the first quote that it takes for an ordinary byte.
    fn slowly(text: &[u8], quotes: Quotes) -> (Vec<u32>, Vec<u32>) {
        let quote = match quotes {
            Quotes::None => None,
            Quotes::Around(q) | Quotes::Stop(q) => Some(q),
        };
        let syntax = Syntax { delimiter: b',', quote, comment: None };
        let (mut ends, mut newlines) = (Vec::new(), Vec::new());
        let mut state = State::Record;
        for (i, b) in text.iter().enumerate() {
            let before = state;
            state = syntax.advance(state, &text[i..=i]);
            if Some(*b) == quote && (state == State::Plain || matches!(quotes, Quotes::Stop(_))) {
                break;
            }
            if (*b == b',' || *b == b'\n') && before != State::Quoted {
                if *b == b'\n' {
                    newlines.push(ends.len() as u32 + 1);
                }
                ends.push(i as u32);
            }
        }
        (ends, newlines)
    }

    proptest! {
        #[test]
        fn the_index_says_where_fields_end(
            text in proptest::collection::vec(
                prop_oneof![
                    4 => Just(&b","[..]),
                    4 => Just(&b"\n"[..]),
                    1 => Just(&b"\""[..]),
                    3 => Just(&b",\"a,\"\"\nb\","[..]),
                    8 => Just(&b"1"[..]),
                    4 => Just(&b"a text"[..]),
                ],
                0..200,
            ),
            which in 0..3,
        ) {
            let text = text.concat();
            let quotes = [Quotes::None, Quotes::Around(b'"'), Quotes::Stop(b'"')][which as usize];
            let mut index = Index::default();
            index.build(b"\n\",".repeat(50).as_slice(), b',', quotes);
            let (ends, newlines) = slowly(&text, quotes);
            index.build(&text, b',', quotes);
            prop_assert_eq!(&index.ends()[1..], &ends);
            prop_assert_eq!(index.newlines(), &newlines);
            let mut index = Index::default();
            Build { index: &mut index, text: &text, delimiter: b',', quotes }.run(simd::Scalar);
            prop_assert_eq!(&index.ends()[1..], &ends);
            prop_assert_eq!(index.newlines(), &newlines);
        }
    }
}
