//! How often each of the 256 byte values stands in some bytes.
//!
//! A processor stores about once a cycle, so the bound is one counter a cycle. ASCII has few pairs of bytes that
//! are frequent, so their counters stay in the first-level cache: there one counter is for two bytes, and the
//! pairs are taken apart at the end. Other bytes are counted one by one.

/// Below this many bytes the sub-tables cost more than they gain.
const SMALL: usize = 2048;
/// Below this many bytes the table of pairs costs more than it gains.
const LARGE: usize = 128 << 10;
/// Bytes that are counted in one way: they are still in the first-level cache when they are looked at again.
const PIECE: usize = 16 << 10;

/// Counters of pairs: one for the bytes `a`, `b` stands at `a + 256 b`.
#[derive(Clone)]
pub struct Pairs(Box<[u32; 1 << 16]>);

impl Pairs {
    /// Bytes that it takes.
    pub const BYTES: usize = 4 << 16;

    fn new() -> Option<Pairs> {
        vec![0; 1 << 16].into_boxed_slice().try_into().ok().map(Pairs)
    }

    /// Takes the pairs apart. Only those of ASCII can be there.
    fn empty_into(&mut self, counts: &mut [u64; 256]) {
        for second in 0..128 {
            let row = &mut self.0[256 * second..][..128];
            counts[second] += row.iter().map(|n| u64::from(*n)).sum::<u64>();
            counts.iter_mut().zip(&*row).for_each(|(c, n)| *c += u64::from(*n));
            row.fill(0);
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
    // A pair's counter grows by at most half of it: no overflow of 32 bits.
    for part in data.chunks(1 << 30) {
        for piece in part.chunks(PIECE) {
            let (words, rest) = piece.as_chunks::<8>();
            if !piece.is_ascii() {
                histogram(counts, piece);
                continue;
            }
            for w in words {
                let w = u64::from_le_bytes(*w);
                pairs.0[(w & 0xFFFF) as usize] += 1;
                pairs.0[(w >> 16 & 0xFFFF) as usize] += 1;
                pairs.0[(w >> 32 & 0xFFFF) as usize] += 1;
                pairs.0[(w >> 48) as usize] += 1;
            }
            rest.iter().for_each(|b| counts[usize::from(*b)] += 1);
        }
        pairs.empty_into(counts);
    }
}

/// Adds the bytes of `data` to `counts`.
///
/// Equal bytes in a row would make each increment wait for the store of the one before, so eight
/// tables take turns, fed from 8-byte loads. The tables (8 KiB) stay in the first-level cache.
pub fn histogram(counts: &mut [u64; 256], data: &[u8]) {
    if data.len() < SMALL {
        data.iter().for_each(|b| counts[usize::from(*b)] += 1);
        return;
    }
    // One sub-table entry grows by at most an eighth of the piece: no overflow of 32 bits.
    for piece in data.chunks(1 << 30) {
        let mut tables = [[0u32; 256]; 8];
        let (words, rest) = piece.as_chunks::<8>();
        for w in words {
            let w = u64::from_le_bytes(*w);
            tables[0][(w & 0xFF) as usize] += 1;
            tables[1][(w >> 8 & 0xFF) as usize] += 1;
            tables[2][(w >> 16 & 0xFF) as usize] += 1;
            tables[3][(w >> 24 & 0xFF) as usize] += 1;
            tables[4][(w >> 32 & 0xFF) as usize] += 1;
            tables[5][(w >> 40 & 0xFF) as usize] += 1;
            tables[6][(w >> 48 & 0xFF) as usize] += 1;
            tables[7][(w >> 56) as usize] += 1;
        }
        for b in rest {
            counts[usize::from(*b)] += 1;
        }
        for (i, count) in counts.iter_mut().enumerate() {
            *count += tables.iter().map(|t| u64::from(t[i])).sum::<u64>();
        }
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
        // One piece that is no ASCII, and a length that is no multiple of anything.
        data[100_000] = 0xFF;
        data.truncate(300_007);
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
