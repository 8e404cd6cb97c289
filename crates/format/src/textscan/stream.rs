//! Decompressed files: chunks in order, cut after their last whole record.

use crate::decode::Codec;
use crate::delimited::syntax::{State, Syntax};
use crate::parallel::ParallelDecoder;
use memchr::{memchr, memrchr};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use stead_core::{Cancel, Error, Result};
use stead_store::Source;

/// A file being decoded, shared by the workers that parse it.
pub struct Stream {
    decoder: ParallelDecoder,
    syntax: Syntax,
    max_record: usize,
    turn: Mutex<Turn>,
    changed: Condvar,
}

/// What passes from chunk to chunk.
#[derive(Default)]
struct Turn {
    /// The chunk that is next.
    next: u64,
    /// The start of a record that did not end in the chunks before.
    carry: Vec<u8>,
    /// The state at the end of `carry`.
    state: State,
    /// A worker stopped with a chunk in its hands.
    failed: bool,
}

/// What a chunk became.
#[derive(Debug, Clone, Copy)]
pub struct Cut {
    /// Number of the chunk.
    pub index: u64,
    /// Offset in the decoded file of the text.
    pub offset: u64,
    /// Compressed bytes that the chunk took.
    pub compressed: u64,
    /// True if the file ends with the text.
    pub last: bool,
}

impl Stream {
    /// Opens a file.
    pub fn open(
        source: Arc<dyn Source>,
        codec: Codec,
        syntax: Syntax,
        max_record: usize,
    ) -> Result<Stream> {
        Ok(Stream {
            decoder: ParallelDecoder::new(source, codec)?,
            syntax,
            max_record,
            turn: Mutex::default(),
            changed: Condvar::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The next chunk as whole records in `text`, which may be none; `None` after the last chunk. `chunk`
    /// is a buffer to decode into. Decoding may run at the same time as that of other chunks; only the
    /// search for the last record's end goes from chunk to chunk.
    pub fn next(
        &self,
        chunk: &mut Vec<u8>,
        text: &mut Vec<u8>,
        cancel: &Cancel,
    ) -> Result<Option<Cut>> {
        let result = self.step(chunk, text, cancel);
        if result.is_err() {
            self.lock().failed = true;
            self.changed.notify_all();
        }
        result
    }

    fn step(
        &self,
        chunk: &mut Vec<u8>,
        text: &mut Vec<u8>,
        cancel: &Cancel,
    ) -> Result<Option<Cut>> {
        let Some(info) = self.decoder.next_chunk(chunk)? else { return Ok(None) };
        let plain = self.syntax.comment.is_none()
            && self.syntax.quote.is_none_or(|q| memchr(q, chunk).is_none());
        let mut turn = self.lock();
        while turn.next != info.index {
            if turn.failed {
                return Err(Error::cancelled());
            }
            cancel.check()?;
            turn = self
                .changed
                .wait_timeout(turn, super::CANCEL_CHECK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        let offset = info.offset - turn.carry.len() as u64;
        text.clear();
        if info.last {
            text.append(&mut turn.carry);
            text.extend_from_slice(chunk);
        } else {
            let (end, state) = self.last_end(chunk, turn.state, plain);
            if let Some(end) = end {
                text.append(&mut turn.carry);
                text.extend_from_slice(&chunk[..end]);
            }
            turn.carry.extend_from_slice(&chunk[end.unwrap_or(0)..]);
            turn.state = state;
            if turn.carry.len() > self.max_record {
                let start = info.offset + chunk.len() as u64 - turn.carry.len() as u64;
                return Err(super::too_long(self.max_record as u64).at_offset(start));
            }
        }
        turn.next += 1;
        drop(turn);
        self.changed.notify_all();
        Ok(Some(Cut { index: info.index, offset, compressed: info.compressed, last: info.last }))
    }

    /// The byte after the last record that ends in `chunk`, and the state at the end of it. `plain`: there
    /// is no quote and no comment in it.
    fn last_end(&self, chunk: &[u8], state: State, plain: bool) -> (Option<usize>, State) {
        if plain {
            let end = if state == State::Quoted { None } else { memrchr(b'\n', chunk) };
            return (end.map(|n| n + 1), self.syntax.advance(state, chunk));
        }
        let (mut end, mut at, mut state) = (None, 0, state);
        loop {
            match self.syntax.record_end(chunk, at, state) {
                Ok(n) => {
                    (end, at, state) = (Some(n), n, State::Record);
                }
                Err(s) => return (end, if at == chunk.len() { state } else { s }),
            }
        }
    }
}
