//! Where fields and records end in a stretch of text.

use super::simd::{self, GROUP, Masks, Vector, Work};

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
        let mut found =
            Found { ends: &mut index.ends, len: 1, newlines: &mut index.newlines, lines: 0 };
        let mut between = Between { before: 1, inside: 0, quoted: false };
        let quote = match quotes {
            Quotes::None => delimiter,
            Quotes::Around(q) | Quotes::Stop(q) => q,
        };
        let quoting = quotes != Quotes::None;
        let (groups, rest) = text[..text.len().min(STRETCH)].as_chunks::<GROUP>();
        let mut at = 0;
        let mut stop = false;
        for group in groups {
            let mut masks = vector.masks(group, delimiter, quote);
            if quoting && (masks.quoted || between.inside != 0) {
                stop = between.pass(vector.equal(group, quote), quotes, vector, &mut masks);
            } else {
                between.before = masks.ends >> (GROUP - 1);
            }
            found.put(at, masks.ends, masks.newlines);
            if stop {
                break;
            }
            at += GROUP as u32;
        }
        if !stop && !rest.is_empty() {
            let mut padded = [0; GROUP];
            padded[..rest.len()].copy_from_slice(rest);
            let valid = (1 << rest.len()) - 1;
            let mut masks = vector.masks(&padded, delimiter, quote);
            masks.ends &= valid;
            masks.newlines &= valid;
            if quoting && (masks.quoted || between.inside != 0) {
                let among = vector.equal(&padded, quote) & valid;
                between.pass(among, quotes, vector, &mut masks);
            }
            found.put(at, masks.ends, masks.newlines);
        }
        (index.len, index.lines) = (found.len, found.lines);
        index.quoted = between.quoted;
    }
}

/// The entries of an [`Index`] that is being built.
struct Found<'a> {
    ends: &'a mut [u32],
    len: usize,
    newlines: &'a mut [u32],
    lines: usize,
}

impl Found<'_> {
    /// Notes the ends and newlines of the group at `at`.
    #[inline(always)]
    fn put(&mut self, at: u32, ends: u64, newlines: u64) {
        // The slices are long enough for what `STRETCH` bytes have, and a group more.
        let Some(slot) = self.newlines[self.lines..].first_chunk_mut::<GROUP>() else { return };
        // Most groups have no newline or one: the first is noted in any case, and counts if there is one.
        slot[0] = (before_first(newlines) & ends).count_ones() + self.len as u32;
        let count = newlines.count_ones() as usize;
        self.lines += count;
        if count > 1 {
            let mut bits = newlines;
            for s in &mut slot[1..count] {
                bits &= bits - 1;
                *s = (before_first(bits) & ends).count_ones() + self.len as u32;
            }
        }
        let Some(slot) = self.ends[self.len..].first_chunk_mut::<GROUP>() else { return };
        let count = ends.count_ones() as usize;
        self.len += count;
        // Most groups have few ends: a fixed number of steps has no branch to mispredict.
        let bits = places(at, ends, &mut slot[..8]);
        if count > 8 {
            let bits = places(at, bits, &mut slot[8..16]);
            if count > 16 {
                places(at, bits, &mut slot[16..]);
            }
        }
    }
}

/// The places of the first bits that are set, one for each slot; gives the bits that are left.
#[inline(always)]
fn places(at: u32, mut bits: u64, slots: &mut [u32]) -> u64 {
    for s in slots {
        *s = at + bits.trailing_zeros();
        bits &= bits.wrapping_sub(1);
    }
    bits
}

/// What stands before a group.
struct Between {
    /// 1 if the last byte is the end of a field, or of a quoted part of one.
    before: u64,
    /// All bits if it stands in quotes.
    inside: u64,
    /// True if quotes were met.
    quoted: bool,
}

impl Between {
    /// Passes over a group with these quotes; only ends that count stay in the masks. True if the index ends at
    /// a quote that has no meaning.
    #[inline(never)]
    fn pass<V: Vector>(
        &mut self,
        among: u64,
        quotes: Quotes,
        vector: V,
        masks: &mut Masks,
    ) -> bool {
        self.quoted |= among != 0;
        let (outside, stop) = match quotes {
            Quotes::Around(_) => {
                let inside = vector.parity(among) ^ self.inside;
                let (opening, closing) = (among & inside, among & !inside);
                let ends = masks.ends & !inside;
                // An opening quote begins a field, or doubles the closing one before it.
                let stray = opening & !((ends | closing) << 1 | self.before);
                self.before = (ends | closing) >> (GROUP - 1);
                self.inside = ((inside as i64) >> (GROUP - 1)) as u64;
                (!inside & before_first(stray), stray != 0)
            }
            Quotes::Stop(_) => (before_first(among), among != 0),
            Quotes::None => (u64::MAX, false),
        };
        masks.ends &= outside;
        masks.newlines &= outside;
        stop
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
            for vectors in stead_simd::Vectors::all() {
                let mut index = Index::default();
                vectors.run(Build { index: &mut index, text: &text, delimiter: b',', quotes });
                prop_assert_eq!(&index.ends()[1..], &ends, "{}", vectors.name());
                prop_assert_eq!(index.newlines(), &newlines, "{}", vectors.name());
            }
        }
    }
}
