//! Where fields and records end in a stretch of text, by bytes alone: quotes are only noted.

use super::simd::{self, GROUP, Vector, Work};

/// Bytes indexed at once: with the index of common data they fit the first-level cache.
pub const STRETCH: usize = 16 << 10;

/// Ends of fields and records, relative to the start of the stretch.
#[derive(Debug, Default)]
pub struct Index {
    /// Places of delimiters and newlines, ascending, after a first entry of -1: field `k` lies between entries
    /// `k - 1` and `k`. Longer than `len`, with rubbish after it.
    ends: Vec<u32>,
    /// Number of entries of `ends` in use.
    len: usize,
    /// For each newline, which entry of `ends` it is.
    pub newlines: Vec<u32>,
    /// Places of quotes, ascending.
    pub quotes: Vec<u32>,
}

impl Index {
    /// Indexes `text`, of at most [`STRETCH`] bytes.
    pub fn build(&mut self, text: &[u8], delimiter: u8, quote: Option<u8>) {
        simd::dispatch(Build { index: self, text, delimiter, quote });
    }

    /// Places of delimiters and newlines, after a first entry of -1.
    pub fn ends(&self) -> &[u32] {
        &self.ends[..self.len]
    }
}

struct Build<'a> {
    index: &'a mut Index,
    text: &'a [u8],
    delimiter: u8,
    quote: Option<u8>,
}

impl Work for Build<'_> {
    type Out = ();

    #[inline(always)]
    fn run<V: Vector>(self, vector: V) {
        let Build { index, text, delimiter, quote } = self;
        // Whole groups of entries are written, whether or not all of them count.
        index.ends.resize(1 + STRETCH + GROUP, 0);
        index.ends[0] = u32::MAX;
        index.newlines.clear();
        index.quotes.clear();
        let (byte, quoting) = quote.map_or((0, 0), |q| (q, u64::MAX));
        let mut n = 1;
        let (groups, rest) = text[..text.len().min(STRETCH)].as_chunks::<GROUP>();
        let mut padded = [0; GROUP];
        padded[..rest.len()].copy_from_slice(rest);
        let all = groups.iter().map(|g| (g, u64::MAX));
        let tail = (!rest.is_empty()).then_some((&padded, (1 << rest.len()) - 1));
        for (g, (group, valid)) in all.chain(tail).enumerate() {
            let at = (g * GROUP) as u32;
            let masks = vector.masks(group, delimiter, byte);
            let ends = masks.ends & valid;
            let mut newlines = masks.newlines & valid;
            while newlines != 0 {
                let below = (newlines & newlines.wrapping_neg()) - 1;
                index.newlines.push(n as u32 + (ends & below).count_ones());
                newlines &= newlines - 1;
            }
            let mut quotes = masks.quotes & valid & quoting;
            while quotes != 0 {
                index.quotes.push(at + quotes.trailing_zeros());
                quotes &= quotes - 1;
            }
            let count = ends.count_ones() as usize;
            let Some(slot) = index.ends[n..].first_chunk_mut::<GROUP>() else { return };
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
        }
        index.len = n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_index_says_where_bytes_are(
            text in proptest::collection::vec(
                prop_oneof![Just(b','), Just(b'\n'), Just(b'"'), Just(b'1'), any::<u8>()],
                0..400,
            ),
            quoted: bool,
        ) {
            let quote = quoted.then_some(b'"');
            let mut index = Index::default();
            index.build(b"\n\",".repeat(50).as_slice(), b',', quote);
            index.build(&text, b',', quote);
            let at = |f: &dyn Fn(u8) -> bool| -> Vec<u32> {
                (0..text.len()).filter(|i| f(text[*i])).map(|i| i as u32).collect()
            };
            prop_assert_eq!(&index.ends()[1..], at(&|b| b == b',' || b == b'\n'));
            let newlines: Vec<u32> =
                index.newlines.iter().map(|k| index.ends()[*k as usize]).collect();
            prop_assert_eq!(newlines, at(&|b| b == b'\n'));
            prop_assert_eq!(&index.quotes, &at(&|b| Some(b) == quote));
        }
    }
}
