//! Checksums: CRC-64/NVME, which notices all errors of few bits and of bursts, runs at memory speed, is what S3 keeps of objects,
//! and can be put together from those of pieces, so that threads take a file apart.

use crc_fast::{CrcAlgorithm, Digest};

const ALGORITHM: CrcAlgorithm = CrcAlgorithm::Crc64Nvme;

/// Holes of so many bytes are summed up as bytes: that takes less than to join sums.
const LEAST_JOINED: u64 = 4 << 20;
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes of a file that one thread copies at a time.
pub(crate) const PIECE: u64 = 8 << 20;

/// Checksums of what is there.
pub(crate) struct Sums {
    /// So many pieces at the beginning were there before, with this sum together.
    pub(crate) begun: (usize, u64),
    pub(crate) pieces: Vec<Option<u64>>,
    /// So many are known to be durable.
    pub(crate) marked: usize,
}

impl Sums {
    pub(crate) fn new(pieces: u64) -> Sums {
        let pieces = vec![None; usize::try_from(pieces).unwrap_or(0)];
        Sums { begun: (0, 0), pieces, marked: 0 }
    }

    /// Pieces from the beginning on that are there.
    fn there(&self) -> usize {
        let of = self.pieces.get(self.begun.0..).unwrap_or_default();
        self.begun.0 + of.iter().take_while(|sum| sum.is_some()).count()
    }

    /// What is there from the beginning on, with its sum, if that is neither all nor what was there before. What is joined once
    /// is not joined again.
    pub(crate) fn join(&mut self, size: u64) -> Option<(usize, u64)> {
        let there = self.there();
        if there >= self.pieces.len() || there <= self.marked {
            return None;
        }
        self.begun = (there, self.of(there, size));
        Some(self.begun)
    }

    /// The sum of the first pieces of a file of this size.
    pub(crate) fn of(&self, pieces: usize, size: u64) -> u64 {
        let of = self.pieces.get(self.begun.0..pieces).unwrap_or_default();
        (self.begun.0 as u64..).zip(of).fold(self.begun.1, |all, (i, sum)| {
            joined(all, sum.unwrap_or(0), (size - i * PIECE).min(PIECE))
        })
    }
}

/// The checksum of bytes and holes that come in order.
pub(crate) struct Sum {
    /// Of what came before those that `digest` has; none if that is nothing.
    before: Option<u64>,
    digest: Digest,
    in_digest: u64,
}

impl Sum {
    pub(crate) fn new() -> Sum {
        Sum { before: None, digest: Digest::new(ALGORITHM), in_digest: 0 }
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
        self.before = Some(joined(self.finish(), zeros(len), len));
        (self.digest, self.in_digest) = (Digest::new(ALGORITHM), 0);
    }

    pub(crate) fn finish(&self) -> u64 {
        match self.before {
            Some(before) => joined(before, self.digest.finalize(), self.in_digest),
            // To join two sums takes a tenth of a millisecond: a small file has one.
            None => self.digest.finalize(),
        }
    }
}

/// The sum of two pieces, the second of which has so many bytes. The sum of no bytes is 0.
pub(crate) fn joined(first: u64, second: u64, len: u64) -> u64 {
    match len {
        0 => first,
        len => crc_fast::checksum_combine(ALGORITHM, first, second, len),
    }
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

    proptest! {
        #[test]
        fn pieces_make_the_whole(
            bytes in proptest::collection::vec(any::<u8>(), 0..500),
            cuts in proptest::collection::vec((0usize..500, prop_oneof![0u64..10_000, 4_190_000u64..4_200_000]), 0..4),
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
