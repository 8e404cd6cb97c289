//! Checksums: CRC-64/NVME, which notices all errors of few bits and of bursts, runs at memory speed, is what S3 keeps of objects,
//! and can be put together from those of pieces, so that threads take a file apart.

use crc_fast::{CrcAlgorithm, Digest};
use std::collections::BTreeMap;
use std::ops::Range;

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// Holes of so many bytes are summed up as bytes: that takes no longer than to join sums.
const LEAST_JOINED: u64 = 256 << 10;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes of a file that one thread copies at a time.
pub(crate) const PIECE: u64 = 8 << 20;

/// So many pieces a file has.
pub(crate) fn pieces_of(size: u64) -> u64 {
    size.div_ceil(PIECE).max(1)
}

/// Checksums of what is there of a file. A file may have any number of pieces, such as one that is a hole of exabytes: what lies side by
/// side is one.
pub(crate) struct Sums {
    size: u64,
    /// Pieces that are there, by the first one: the one behind the last, and the sum of all. Between two are some that are not.
    there: BTreeMap<u64, (u64, u64)>,
    /// So many are known to be durable.
    marked: u64,
}

impl Sums {
    /// Of a file of so many bytes.
    pub(crate) fn new(size: u64) -> Sums {
        Sums { size, there: BTreeMap::new(), marked: 0 }
    }

    /// So many pieces were there before, durable, with this sum together.
    pub(crate) fn begin(&mut self, pieces: u64, sum: u64) {
        self.there = BTreeMap::from([(0, (pieces, sum))]);
        self.marked = pieces;
    }

    /// How many pieces are there from the beginning on, and their sum.
    fn first(&self) -> (u64, u64) {
        self.there.get(&0).copied().unwrap_or_default()
    }

    /// True if nothing is to be done for this piece any more: it is there, and so are all before it.
    pub(crate) fn has(&self, number: u64) -> bool {
        number < self.first().0
    }

    /// A piece is there, which was not.
    pub(crate) fn put(&mut self, number: u64, sum: u64) {
        let (mut first, mut next, mut sum) = (number, number + 1, sum);
        let before = self.there.range(..number).next_back().map(|(at, of)| (*at, *of));
        if let Some((at, (_, before))) = before.filter(|(_, (next, _))| *next == number) {
            self.there.remove(&at);
            (first, sum) = (at, joined(before, sum, self.bytes(number..next)));
        }
        if let Some((end, after)) = self.there.remove(&next) {
            sum = joined(sum, after, self.bytes(next..end));
            next = end;
        }
        self.there.insert(first, (next, sum));
    }

    fn bytes(&self, pieces: Range<u64>) -> u64 {
        let at = |piece: u64| piece.saturating_mul(PIECE).min(self.size);
        at(pieces.end) - at(pieces.start)
    }

    /// How many pieces are there from the beginning on, and their sum, if that is neither all nor what was known to be durable.
    pub(crate) fn durable(&self) -> Option<(u64, u64)> {
        Some(self.first()).filter(|(to, _)| *to < pieces_of(self.size) && *to > self.marked)
    }

    /// True if some are known to be durable, or may be made so.
    pub(crate) fn is_begun(&self) -> bool {
        self.marked > 0 || self.durable().is_some()
    }

    /// So many are durable.
    pub(crate) fn mark(&mut self, pieces: u64) {
        self.marked = pieces;
    }

    /// The sum of the whole file, once all of it is there.
    pub(crate) fn whole(&self) -> u64 {
        self.first().1
    }
}

/// The checksum of bytes and holes that come in order.
pub(crate) struct Sum {
    /// Of what came before those that `digest` has.
    before: u64,
    digest: Digest,
    in_digest: u64,
}

impl Sum {
    pub(crate) fn new() -> Sum {
        Sum { before: 0, digest: Digest::new(ALGORITHM), in_digest: 0 }
    }

    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.in_digest += bytes.len() as u64;
    }

    /// So many zeros, which nobody has read.
    pub(crate) fn hole(&mut self, len: u64) {
        if len <= LEAST_JOINED {
            let mut left = len;
            while left > 0 {
                let zeros = &ZEROS[..usize::try_from(left).unwrap_or(ZEROS.len()).min(ZEROS.len())];
                self.bytes(zeros);
                left -= zeros.len() as u64;
            }
            return;
        }
        self.before = joined(self.finish(), zeros(len), len);
        (self.digest, self.in_digest) = (Digest::new(ALGORITHM), 0);
    }

    pub(crate) fn finish(&self) -> u64 {
        joined(self.before, self.digest.finalize(), self.in_digest)
    }
}

/// The polynomial, as sums are written: the highest bit is of x^0.
const POLYNOMIAL: u64 = 0x9a6c_9329_ac4b_c9b5;
/// What a sum is multiplied by if 2^i bytes follow: x to the power of 8 times as many.
const FOLLOW: [u64; 64] = {
    let (mut powers, mut i) = ([1 << (63 - 8); 64], 1);
    while i < powers.len() {
        powers[i] = product(powers[i - 1], powers[i - 1]);
        i += 1;
    }
    powers
};

/// Of two polynomials, modulo that of the sums.
const fn product(a: u64, mut b: u64) -> u64 {
    let (mut product, mut i) = (0, 64);
    while i > 0 {
        i -= 1;
        // Without branches: nobody could foresee where they go.
        product ^= b & (a >> i & 1).wrapping_neg();
        b = (b >> 1) ^ (POLYNOMIAL & (b & 1).wrapping_neg());
    }
    product
}

/// The sum of two pieces, the second of which has so many bytes. The sum of no bytes is 0. Less than a microsecond where that is a power
/// of two, as of pieces; the function of `crc_fast` takes 200 of them.
pub(crate) fn joined(first: u64, second: u64, len: u64) -> u64 {
    let digits = FOLLOW.iter().enumerate().filter(|(i, _)| len >> i & 1 == 1);
    digits.fold(first, |sum, (_, power)| product(sum, *power)) ^ second
}

/// The sum of zeros, in as many steps as their number has digits.
fn zeros(len: u64) -> u64 {
    const BLOCK: [u8; 4096] = [0; 4096];
    let size = BLOCK.len() as u64;
    let rest = usize::try_from(len % size).unwrap_or(0);
    let (mut sum, mut of) = (crc_fast::checksum(ALGORITHM, &BLOCK[..rest]), rest as u64);
    let (mut power, mut length) = (crc_fast::checksum(ALGORITHM, &BLOCK), size);
    let mut blocks = len / size;
    while blocks > 0 {
        if blocks % 2 == 1 {
            sum = joined(power, sum, of);
            of += length;
        }
        blocks /= 2;
        if blocks > 0 {
            power = joined(power, power, length);
            length *= 2;
        }
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn it_is_the_checksum_that_others_have() {
        let mut sum = Sum::new();
        assert_eq!(sum.finish(), 0);
        // The catalogue of parametrised CRC algorithms: CRC-64/NVME, check value.
        sum.bytes(b"123456789");
        assert_eq!(sum.finish(), 0xae8b_1486_0a79_9888);
    }

    #[test]
    fn holes_are_zeros() {
        for len in [0, 1, 4095, 4096, 4097, 3 * 4096, 1 << 20, (1 << 20) + 17] {
            assert_eq!(zeros(len as u64), crc_fast::checksum(ALGORITHM, &vec![0; len]), "{len}");
        }
        // Of an exabyte, at once.
        assert_ne!(zeros(1 << 60), 0);
    }

    #[test]
    fn a_file_of_exabytes_takes_little_memory() {
        let mut sums = Sums::new(i64::MAX as u64);
        assert_eq!(pieces_of(i64::MAX as u64), 1 << 40);
        let of = Sum::new().finish();
        // One thread hangs, and others go on.
        (1..100_000).for_each(|number| sums.put(number, of));
        assert!(sums.there.len() == 1 && !sums.has(0) && sums.durable().is_none());
        sums.put(0, of);
        assert!(sums.there.len() == 1 && sums.has(99_999) && !sums.has(100_000));
        assert_eq!(sums.durable().map(|(pieces, _)| pieces), Some(100_000));
        let last = pieces_of(sums.size) - 1;
        sums.put(last, of);
        assert_eq!((sums.there.len(), sums.bytes(last..last + 1)), (2, PIECE - 1));
    }

    #[test]
    fn pieces_come_in_any_order() {
        let size = 2 * PIECE + 5;
        let (mut whole, mut sums) = (Sum::new(), Sums::new(size));
        let piece = |byte: u8, len: u64| {
            let mut sum = Sum::new();
            sum.bytes(&vec![byte; len as usize]);
            sum.finish()
        };
        for (byte, len) in [(1, PIECE), (2, PIECE), (3, 5)] {
            whole.bytes(&vec![byte; len as usize]);
        }
        assert_eq!(sums.durable(), None);
        sums.put(2, piece(3, 5));
        assert_eq!(sums.durable(), None);
        sums.put(0, piece(1, PIECE));
        assert_eq!(sums.durable(), Some((1, piece(1, PIECE))));
        sums.mark(1);
        assert!(sums.has(0) && !sums.has(1) && sums.durable().is_none());
        sums.put(1, piece(2, PIECE));
        // All of it needs no mark.
        assert_eq!((sums.durable(), sums.whole()), (None, whole.finish()));
        // Gone on with.
        let mut again = Sums::new(size);
        again.begin(1, piece(1, PIECE));
        assert!(again.has(0) && !again.has(1));
        again.put(1, piece(2, PIECE));
        again.put(2, piece(3, 5));
        assert_eq!(again.whole(), whole.finish());
        assert_eq!((pieces_of(0), Sums::new(0).whole()), (1, 0));
    }

    proptest! {
        #[test]
        fn pieces_make_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..500),
            cuts in proptest::collection::vec((0usize..500, prop_oneof![0u64..10_000, 262_000u64..262_300, 1_000_000u64..4_200_000]), 0..4),
        ) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let (mut one, mut all, mut at, mut pieces) = (Sum::new(), Vec::new(), 0, 0);
            for (cut, hole) in cuts {
                let cut = cut.clamp(at, bytes.len());
                let mut piece = Sum::new();
                for sum in [&mut one, &mut piece] {
                    sum.bytes(&bytes[at..cut]);
                    sum.hole(hole);
                }
                pieces = joined(pieces, piece.finish(), (cut - at) as u64 + hole);
                all.extend_from_slice(&bytes[at..cut]);
                all.resize(all.len() + hole as usize, 0);
                at = cut;
            }
            prop_assert_eq!(one.finish(), crc_fast::checksum(ALGORITHM, &all));
            prop_assert_eq!(pieces, one.finish());
        }
    }
}
