//! How often each of the 256 byte values stands in some bytes.
//!
//! A processor stores about once a cycle, so the bound is one counter a cycle. ASCII has few pairs of bytes that
//! are frequent, so their counters stay in the first-level cache: there one counter is for two bytes, and the
//! pairs are taken apart at the end. Other bytes are counted one by one. Which of the two it is shows while the
//! bytes are counted: looking at them before would wait for memory, and counting would not.

/// Below this many bytes the sub-tables cost more than they gain.
const SMALL: usize = 2048;
/// Below this many bytes the table of pairs costs more than it gains.
const LARGE: usize = 128 << 10;
/// Bytes that are counted in one way.
const PIECE: usize = 4 << 10;
/// The first bytes say how the first piece is counted.
const FIRST: usize = 64;
/// After other bytes than ASCII so many pieces are counted one by one: were it fewer, pieces of either kind in turn
/// would each be counted in the wrong way.
const WARY: u32 = 4;
/// The highest bits of eight bytes.
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Counters of pairs: one for the bytes `a`, `b` stands at `a + 256 b`.
#[derive(Clone)]
pub struct Pairs(Box<[u32; 1 << 16]>);

impl Pairs {
    /// Bytes that it takes.
    pub const BYTES: usize = 4 << 16;

    fn new() -> Option<Pairs> {
        vec![0; 1 << 16].into_boxed_slice().try_into().ok().map(Pairs)
    }

    /// Counts the pairs of `words`; gives all words in one.
    fn add(&mut self, words: &[[u8; 8]]) -> u64 {
        let mut all = 0;
        for w in words {
            let w = u64::from_le_bytes(*w);
            all |= w;
            self.0[(w & 0xFFFF) as usize] += 1;
            self.0[(w >> 16 & 0xFFFF) as usize] += 1;
            self.0[(w >> 32 & 0xFFFF) as usize] += 1;
            self.0[(w >> 48) as usize] += 1;
        }
        all
    }

    /// Takes the pairs apart. `ascii`: only those of ASCII can be there.
    fn empty_into(&mut self, counts: &mut [u64; 256], ascii: bool) {
        let values = if ascii { 128 } else { 256 };
        for second in 0..values {
            let row = &mut self.0[256 * second..][..values];
            counts[second] += row.iter().map(|n| u64::from(*n)).sum::<u64>();
            counts.iter_mut().zip(&*row).for_each(|(c, n)| *c += u64::from(*n));
            row.fill(0);
        }
    }
}

/// Counters of single bytes. Equal bytes in a row would make each increment wait for the store of the one before,
/// so eight tables take turns, fed from 8-byte loads. They (8 KiB) stay in the first-level cache.
struct Singles([[u32; 256]; 8]);

impl Singles {
    fn new() -> Singles {
        Singles([[0; 256]; 8])
    }

    /// Counts the bytes of `words`; gives all words in one.
    fn add(&mut self, words: &[[u8; 8]]) -> u64 {
        let mut all = 0;
        let tables = &mut self.0;
        for w in words {
            let w = u64::from_le_bytes(*w);
            all |= w;
            tables[0][(w & 0xFF) as usize] += 1;
            tables[1][(w >> 8 & 0xFF) as usize] += 1;
            tables[2][(w >> 16 & 0xFF) as usize] += 1;
            tables[3][(w >> 24 & 0xFF) as usize] += 1;
            tables[4][(w >> 32 & 0xFF) as usize] += 1;
            tables[5][(w >> 40 & 0xFF) as usize] += 1;
            tables[6][(w >> 48 & 0xFF) as usize] += 1;
            tables[7][(w >> 56) as usize] += 1;
        }
        all
    }

    fn add_to(&self, counts: &mut [u64; 256]) {
        for (i, count) in counts.iter_mut().enumerate() {
            *count += self.0.iter().map(|t| u64::from(t[i])).sum::<u64>();
        }
    }
}

/// Adds the bytes of `data` to `counts`. `pairs` is made when it first pays and is empty between calls.
pub fn histogram_with(counts: &mut [u64; 256], data: &[u8], pairs: &mut Option<Pairs>) {
    if data.len() < LARGE {
        return histogram(counts, data);
    }
    if pairs.is_none() {
        *pairs = Pairs::new();
    }
    let Some(pairs) = pairs else { return histogram(counts, data) };
    let (words, rest) = data.as_chunks::<8>();
    rest.iter().for_each(|b| counts[usize::from(*b)] += 1);
    let mut wary = if data[..FIRST].is_ascii() { 0 } else { WARY };
    // A counter grows by at most half of the bytes: no overflow of 32 bits.
    for part in words.chunks((1 << 30) / 8) {
        let mut singles = Singles::new();
        // What is in the pairs.
        let mut plain = true;
        for piece in part.chunks(PIECE / 8) {
            // Neighbours are alike: the next piece is counted as this one would have been best.
            let all = if wary == 0 {
                let all = pairs.add(piece);
                plain &= all & HIGH == 0;
                all
            } else {
                singles.add(piece)
            };
            wary = if all & HIGH == 0 { wary.saturating_sub(1) } else { WARY };
        }
        pairs.empty_into(counts, plain);
        singles.add_to(counts);
    }
}

/// Adds the bytes of `data` to `counts`.
pub fn histogram(counts: &mut [u64; 256], data: &[u8]) {
    if data.len() < SMALL {
        data.iter().for_each(|b| counts[usize::from(*b)] += 1);
        return;
    }
    let (words, rest) = data.as_chunks::<8>();
    rest.iter().for_each(|b| counts[usize::from(*b)] += 1);
    // One sub-table entry grows by at most an eighth of the piece: no overflow of 32 bits.
    for part in words.chunks((1 << 30) / 8) {
        let mut singles = Singles::new();
        singles.add(part);
        singles.add_to(counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(data: &[u8]) {
        let mut want = [0u64; 256];
        data.iter().for_each(|b| want[usize::from(*b)] += 1);
        let mut got = [0u64; 256];
        histogram(&mut got, data);
        assert_eq!(got, want);
        let (mut twice, mut pairs) = ([0u64; 256], None);
        histogram_with(&mut twice, data, &mut pairs);
        histogram_with(&mut twice, data, &mut pairs);
        assert_eq!(twice, want.map(|n| 2 * n));
    }

    #[test]
    fn pieces_of_text_and_of_anything_mix() {
        let mut data = b"12,ab\n".repeat(60_000);
        check(&data);
        // Pieces that are no ASCII, alone and in a row, and a length that is no multiple of anything.
        data[100_000] = 0xFF;
        data[200_000..220_000].fill(0xC3);
        data.truncate(300_007);
        check(&data);
        // The first bytes are not like what follows, either way.
        data[0] = 0x80;
        check(&data);
        let mut data: Vec<u8> = (0..=255u8).collect::<Vec<_>>().repeat(1000);
        data[..64].fill(b'a');
        check(&data);
        check(&vec![0; 200_000]);
        check(&(0..=255u8).collect::<Vec<_>>().repeat(1000));
    }

    proptest! {
        #[test]
        fn bytes_are_counted(
            data in proptest::collection::vec(any::<u8>(), 0..9000), times in 1usize..60,
            ascii in any::<bool>(),
        ) {
            let data: Vec<u8> = data.repeat(times);
            check(&if ascii { data.iter().map(|b| b & 0x7F).collect() } else { data });
        }
    }
}
