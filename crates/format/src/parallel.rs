//! Compressed files decoded by many workers.

use crate::decode::{Codec, Decoder};
use std::sync::{Arc, Mutex, PoisonError};
use stead_core::Result;
use stead_store::Source;

/// Decoded bytes that one chunk has at least, but for the last one.
const CHUNK_BYTES: usize = 1 << 20;

/// Where a chunk lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkInfo {
    /// Running number: chunk `i + 1` goes on where chunk `i` ends.
    pub index: u64,
    /// Offset of the chunk's first byte in the decoded file.
    pub offset: u64,
    /// Compressed bytes that the chunk took, for progress.
    pub compressed: u64,
    /// True if no chunk follows.
    pub last: bool,
}

/// A decoder that any number of threads ask for chunks.
///
/// Chunks are handed out in order but become ready in any order.
pub struct ParallelDecoder {
    state: Mutex<State>,
}

struct State {
    decoder: Decoder,
    next: Vec<u8>,
    index: u64,
    offset: u64,
    consumed: u64,
    done: bool,
}

impl ParallelDecoder {
    /// Looks at the first bytes of `source` for a way to split it.
    pub fn new(source: Arc<dyn Source>, codec: Codec) -> Result<Self> {
        let decoder = Decoder::new(source, codec)?;
        let state =
            State { decoder, next: Vec::new(), index: 0, offset: 0, consumed: 0, done: false };
        Ok(ParallelDecoder { state: Mutex::new(state) })
    }

    /// True if threads decode at the same time; false if the format forces one after the other.
    pub fn splits(&self) -> bool {
        false
    }

    /// Replaces the content of `buf` by the next chunk; `None` after the last one. An empty file has one
    /// empty chunk.
    ///
    /// # Errors
    /// As [`Decoder::read`]. After an error every thread gets `None`.
    pub fn next_chunk(&self, buf: &mut Vec<u8>) -> Result<Option<ChunkInfo>> {
        let mut guard = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let s = &mut *guard;
        buf.clear();
        if s.done {
            return Ok(None);
        }
        // Marks the end for the others if this fails.
        s.done = true;
        if s.index == 0 {
            fill(&mut s.decoder, &mut s.next)?;
        }
        std::mem::swap(buf, &mut s.next);
        fill(&mut s.decoder, &mut s.next)?;
        let consumed = s.decoder.consumed();
        let info = ChunkInfo {
            index: s.index,
            offset: s.offset,
            compressed: consumed - s.consumed,
            last: s.next.is_empty(),
        };
        s.done = info.last;
        s.index += 1;
        s.offset += buf.len() as u64;
        s.consumed = consumed;
        Ok(Some(info))
    }
}

fn fill(decoder: &mut Decoder, buf: &mut Vec<u8>) -> Result<()> {
    buf.resize(CHUNK_BYTES, 0);
    let n = decoder.read(buf)?;
    buf.truncate(n);
    Ok(())
}
