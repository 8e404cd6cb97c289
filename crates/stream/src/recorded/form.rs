//! What files of recorded steps consist of.
//!
//! Each writer has two: `RANK.data` has, for each step, the arrays that it has put, and then a *head*: where its definitions are, its
//! blocks, and a checksum of every 64 KiB of each. `RANK.index` says who writes, and then has an *entry* for each step, all of
//! 64 bytes and with a checksum. Both only grow. Numbers are little-endian; arrays are as the writer's processor has them, as in memory.
//!
//! Nothing of it is believed before its checksum was looked at, and then used within bounds only: whoever can write a file can make a
//! checksum, too.

use crate::index::Place;
use crc_fast::{CrcAlgorithm, checksum};

/// Bytes that a checksum is of, from the beginning of a block on.
pub const CHUNK: u64 = 64 << 10;
/// Bytes of the opening of an index, and of each of its entries.
pub const ENTRY: usize = 64;

/// The form is its last byte.
const MAGIC: u64 = u64::from_le_bytes(*b"stead\0r\x01");
/// Words of a head before its blocks.
const HEAD: usize = 4;

pub(super) fn sum(bytes: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, bytes)
}

/// The checksum of the first words of an entry, mixed with the run, so that none of another run is taken for one.
fn sealed(words: [u64; 7], run: u64) -> [u8; ENTRY] {
    let mut bytes = [0; ENTRY];
    let mut eights = bytes.chunks_exact_mut(8);
    for (to, word) in eights.by_ref().zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    let seal = sum(bytes.get(..ENTRY - 8).unwrap_or(&[])) ^ run;
    if let Some(last) = bytes.last_chunk_mut::<8>() {
        *last = seal.to_le_bytes();
    }
    bytes
}

/// The words of an entry, if its checksum is right.
fn unsealed(bytes: &[u8], run: Option<u64>) -> Option<[u64; 7]> {
    let bytes = bytes.first_chunk::<ENTRY>()?;
    let [words @ .., seal] = bytes.as_chunks::<8>().0 else { return None };
    let words: &[[u8; 8]; 7] = words.try_into().ok()?;
    let words = words.map(u64::from_le_bytes);
    let run = run.unwrap_or(words[1]);
    (sum(bytes.get(..ENTRY - 8)?) ^ run == u64::from_le_bytes(*seal)).then_some(words)
}

/// Who writes an index: its first 64 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opening {
    /// The run of the stream, which all of its writers say.
    pub run: u64,
    /// Which of the writers it is.
    pub rank: u64,
    /// How many there are.
    pub writers: u64,
    /// The machine, since it was started; 0 if it does not tell.
    pub host: u64,
    /// The process on it.
    pub who: u64,
}

impl Opening {
    /// As bytes.
    pub fn encode(&self) -> [u8; ENTRY] {
        let Opening { run, rank, writers, host, who } = *self;
        sealed([MAGIC, run, rank, writers, host, who, 0], run)
    }

    /// What [`Opening::encode`] wrote; `None` of other bytes.
    pub fn decode(bytes: &[u8]) -> Option<Opening> {
        let [magic, run, rank, writers, host, who, _] = unsealed(bytes, None)?;
        (magic == MAGIC && rank < writers).then_some(Opening { run, rank, writers, host, who })
    }
}

/// What an entry of an index says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entry {
    /// A step was recorded.
    Step(Recorded),
    /// There are no more: so many steps the writer has ended, and it has closed the stream, or given it up.
    Closed {
        /// Steps that it has ended, recorded or not.
        steps: u64,
        /// It was in the middle of one, or had an error.
        fails: bool,
    },
}

/// Where a step lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recorded {
    /// Its number.
    pub step: u64,
    /// Where its head is in the file of data.
    pub offset: u64,
    /// Bytes of the head.
    pub len: u64,
    /// Bytes of the arrays.
    pub bytes: u64,
    /// When the writer ended it, in nanoseconds since 1970.
    pub at: u64,
    /// The checksum of the head.
    pub sum: u64,
}

const STEP: u64 = 1;
const CLOSED: u64 = 2;
const FAILED: u64 = 3;

impl Entry {
    /// As bytes of the index of a run.
    pub fn encode(&self, run: u64) -> [u8; ENTRY] {
        let words = match *self {
            Entry::Step(Recorded { step, offset, len, bytes, at, sum }) => {
                [STEP, step, offset, len, bytes, at, sum]
            }
            Entry::Closed { steps, fails } => {
                [if fails { FAILED } else { CLOSED }, steps, 0, 0, 0, 0, 0]
            }
        };
        sealed(words, run)
    }

    /// What [`Entry::encode`] wrote; `None` of other bytes.
    pub fn decode(bytes: &[u8], run: u64) -> Option<Entry> {
        let [what, step, offset, len, bytes, at, sum] = unsealed(bytes, Some(run))?;
        match what {
            STEP => Some(Entry::Step(Recorded { step, offset, len, bytes, at, sum })),
            CLOSED | FAILED => Some(Entry::Closed { steps: step, fails: what == FAILED }),
            _ => None,
        }
    }
}

/// What a writer says of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head<'h> {
    /// Where its definitions lie in the file of data, and what they hash to.
    pub definitions: (u64, u64),
    /// See there.
    pub hash: u64,
    /// Its blocks, whose places are in the file of data.
    pub blocks: &'h [u8],
    /// Checksums of the chunks of all blocks, in their order.
    pub sums: &'h [[u8; 8]],
}

impl<'h> Head<'h> {
    /// As bytes, and their checksum.
    pub fn encode(
        definitions: (u64, u64),
        hash: u64,
        blocks: &[u8],
        sums: &[u64],
    ) -> (Vec<u8>, u64) {
        let mut bytes = Vec::with_capacity(8 * (HEAD + sums.len()) + blocks.len());
        for word in [definitions.0, definitions.1, hash, blocks.len() as u64] {
            bytes.extend_from_slice(&word.to_le_bytes());
        }
        bytes.extend_from_slice(blocks);
        sums.iter().for_each(|sum| bytes.extend_from_slice(&sum.to_le_bytes()));
        let all = sum(&bytes);
        (bytes, all)
    }

    /// The checksum that a head of these bytes has.
    pub fn sum(bytes: &[u8]) -> u64 {
        sum(bytes)
    }

    /// What [`Head::encode`] wrote, if it has this checksum.
    pub fn decode(bytes: &'h [u8], sum: u64) -> Option<Head<'h>> {
        if self::sum(bytes) != sum {
            return None;
        }
        let (words, rest) = bytes.split_first_chunk::<{ 8 * HEAD }>()?;
        let [at, len, hash, blocks] = words.as_chunks::<8>().0 else { return None };
        let [at, len, hash, blocks] = [at, len, hash, blocks].map(|word| u64::from_le_bytes(*word));
        let (blocks, sums) = rest.split_at_checked(usize::try_from(blocks).ok()?)?;
        let (sums, more) = sums.as_chunks::<8>();
        more.is_empty().then_some(Head { definitions: (at, len), hash, blocks, sums })
    }
}

/// How many checksums bytes have.
pub fn chunks(len: u64) -> u64 {
    len.div_ceil(CHUNK)
}

/// The checksums of a block.
pub fn sums(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.chunks(CHUNK as usize).map(sum)
}

/// True if chunks, from one that these checksums begin with, are as they were.
pub fn is_whole(bytes: &[u8], sums: &[[u8; 8]]) -> bool {
    self::sums(bytes).eq(sums.iter().map(|sum| u64::from_le_bytes(*sum)))
}

/// Where the next block begins after so many bytes: large ones on a page, small ones on a line of the caches.
pub fn aligned(at: u64, len: u64) -> Option<u64> {
    at.checked_next_multiple_of(if len >= CHUNK { 4096 } else { 64 })
}

/// In a file of data.
pub fn place(offset: u64, len: u64) -> Place {
    Place { segment: 0, offset, len }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        let opening = Opening { run: 77, rank: 2, writers: 3, host: 5, who: 6 };
        assert_eq!(Opening::decode(&opening.encode()), Some(opening));
        assert_eq!(Opening::decode(&Opening { rank: 3, ..opening }.encode()), None);
        let step = Recorded { step: 4, offset: 4096, len: 100, bytes: 8, at: 9, sum: 1 };
        for entry in [Entry::Step(step), Entry::Closed { steps: 5, fails: false }] {
            let bytes = entry.encode(77);
            assert_eq!(Entry::decode(&bytes, 77), Some(entry));
            assert_eq!(Entry::decode(&bytes, 78), None);
            for i in 0..ENTRY {
                let mut bytes = bytes;
                bytes[i] ^= 4;
                assert_eq!(Entry::decode(&bytes, 77), None, "{i}");
            }
        }
        assert_eq!(Entry::decode(&[0; ENTRY], 0), None);
        assert_eq!(Entry::decode(&opening.encode(), 77), None);
    }

    proptest! {
        #[test]
        fn heads_are_read_as_they_were_written(
            at in any::<(u64, u64)>(), hash in any::<u64>(), blocks in prop::collection::vec(any::<u8>(), 0..200),
            sums in prop::collection::vec(any::<u64>(), 0..20), cut in any::<prop::sample::Index>(), flip in any::<prop::sample::Index>(),
        ) {
            let (mut bytes, sum) = Head::encode(at, hash, &blocks, &sums);
            let head = Head::decode(&bytes, sum).unwrap();
            prop_assert_eq!((head.definitions, head.hash, head.blocks), (at, hash, &blocks[..]));
            let read: Vec<u64> = head.sums.iter().map(|s| u64::from_le_bytes(*s)).collect();
            prop_assert_eq!(&read, &sums);
            prop_assert!(Head::decode(&bytes[..cut.index(bytes.len())], sum).is_none());
            let flip = flip.index(bytes.len());
            bytes[flip] ^= 1;
            prop_assert!(Head::decode(&bytes, sum).is_none());
        }

        #[test]
        fn any_bytes_are_looked_at(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (Opening::decode(&bytes), Entry::decode(&bytes, 1));
            // With a checksum that is right.
            let _ = Head::decode(&bytes, sum(&bytes));
        }
    }

    #[test]
    fn chunks_are_checked_from_any_of_them_on() {
        let bytes: Vec<u8> = (0..3 * CHUNK + 5).map(|i| (i / 7) as u8).collect();
        let all: Vec<[u8; 8]> = sums(&bytes).map(u64::to_le_bytes).collect();
        assert_eq!(all.len() as u64, chunks(bytes.len() as u64));
        assert!(is_whole(&bytes, &all) && is_whole(&bytes[CHUNK as usize..], &all[1..]));
        assert!(!is_whole(&bytes, &all[1..]) && !is_whole(&bytes[1..], &all));
        assert_eq!((chunks(0), chunks(1), chunks(CHUNK), chunks(CHUNK + 1)), (0, 1, 1, 2));
        assert_eq!(
            (aligned(1, 8), aligned(1, CHUNK), aligned(u64::MAX, 1)),
            (Some(64), Some(4096), None)
        );
    }
}
