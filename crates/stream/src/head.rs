//! What a writer has of a step, as one piece of its memory: where its definitions are, and its blocks.

use crate::index::Place;

/// Bytes before the blocks.
const HEAD: usize = 32;

/// What the memory of the arrays of a writer is called.
pub(crate) fn prefix(writer: usize) -> String {
    format!("w{writer}")
}

/// And that of what it says.
pub(crate) fn said(writer: usize) -> String {
    format!("s{writer}")
}

pub(crate) fn encode(definitions: &Place, hash: u64, blocks: &[u8]) -> Vec<u8> {
    let Place { segment, offset, len } = definitions;
    let mut bytes = Vec::with_capacity(HEAD + blocks.len());
    for word in [*segment, *offset, *len, hash] {
        bytes.extend_from_slice(&word.to_le_bytes());
    }
    bytes.extend_from_slice(blocks);
    bytes
}

/// Where definitions are, their hash, and the blocks. `None` for what is no such thing.
pub(crate) fn decode(bytes: &[u8]) -> Option<(Place, u64, &[u8])> {
    let (head, blocks) = bytes.split_first_chunk::<HEAD>()?;
    let [segment, offset, len, hash] = head.as_chunks::<8>().0 else { return None };
    let [segment, offset, len, hash] = [segment, offset, len, hash].map(|w| u64::from_le_bytes(*w));
    Some((Place { segment, offset, len }, hash, blocks))
}
