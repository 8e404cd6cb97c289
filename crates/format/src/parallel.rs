//! Compressed files decoded by many workers.
//!
//! Two layouts can be split without decoding what comes before: BGZF, gzip members of at most 64 KiB that
//! say their length (bgzip, `samtools`; SAM specification, section 4.1), and zstd files of many frames
//! that say their content size (`pzstd`, the seekable format; RFC 8878). Everything else, and any part of
//! a file that turns out not to be so, is decoded one chunk after the other, so that every file that
//! [`Decoder`] reads is read here too.
//!
//! A gzip member that says a wrong length in its BGZF field is an error here, although [`Decoder`], which
//! does not look at that field, reads it.
//!
//! Finding the parts reads a few bytes of each block; only that is done under the lock.

use crate::decode::{Codec, Decoder, WINDOW_LOG_MAX, broken, truncated};
use flate2::{Crc, Decompress, FlushDecompress, Status};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Result};
use stead_store::Source;

/// Decoded bytes that one chunk has at least, where more follow in parts that can be split.
const CHUNK_BYTES: u64 = 1 << 20;
/// Largest zstd frame that is decoded as one part; larger ones are decoded in turn.
const MAX_FRAME_BYTES: u64 = 16 << 20;
/// Parts of one chunk at most: parts of no content could go on for all of the file.
const MAX_PARTS: usize = 4096;
/// Largest BGZF block, decoded.
const MAX_BGZF_BYTES: u64 = 1 << 16;
/// Longest zstd frame header.
const ZSTD_HEADER: usize = 18;

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
/// Chunks are handed out in order but become ready in any order. They have any length, also none.
///
/// Memory: for each thread its chunk (1 MiB, up to 17 MiB with large zstd frames) and the compressed bytes
/// of it; that of one [`Decoder`] where the file cannot be split.
pub struct ParallelDecoder {
    source: Arc<dyn Source>,
    codec: Codec,
    splits: bool,
    state: Mutex<State>,
}

struct State {
    mode: Mode,
    index: u64,
    /// In the decoded file.
    offset: u64,
    /// Compressed bytes accounted for.
    consumed: u64,
    /// True after the last chunk and after an error.
    done: bool,
}

enum Mode {
    /// From this offset on, parts are looked for.
    Parts(u64),
    /// One chunk ahead of what is handed out, to know the last one; or why there is none.
    Stream { decoder: Box<Decoder>, ahead: Vec<u8>, failed: Option<Error> },
}

/// What is left to do for a chunk.
pub struct Work(Todo);

enum Todo {
    /// These are to be decoded.
    Parts(Vec<Part>),
    /// It lies in the buffer.
    Nothing,
    /// It cannot be had.
    Failed(Error),
}

/// A part that can be decoded by itself.
#[derive(Debug, Clone, Copy)]
struct Part {
    at: u64,
    compressed: u64,
    decoded: u64,
}

enum Found {
    Part(Part),
    /// Bytes that mean nothing, such as a skippable frame.
    Skip(u64),
    /// Only [`Decoder`] can tell.
    Stream,
    End,
}

impl ParallelDecoder {
    /// Looks at the first bytes of `source` for a way to split it.
    ///
    /// # Errors
    /// Those of the source, and `Format` if the first part is truncated.
    pub fn new(source: Arc<dyn Source>, codec: Codec) -> Result<Self> {
        let mut at = 0;
        let splits = loop {
            match find(source.as_ref(), codec, at)? {
                Found::Skip(n) => at += n,
                Found::Part(p) => break p.at + p.compressed < source.len(),
                Found::Stream | Found::End => break false,
            }
        };
        let mode = Mode::Parts(at);
        let state = Mutex::new(State { mode, index: 0, offset: 0, consumed: 0, done: false });
        Ok(ParallelDecoder { source, codec, splits, state })
    }

    /// True if threads decode at the same time; false if the format forces one after the other.
    pub fn splits(&self) -> bool {
        self.splits
    }

    /// Hands out the next chunk: the place of it, and what [`ParallelDecoder::decode`] has to do with the same
    /// `buf`, which may be at the same time as for other chunks. `None` after the last one and after one that
    /// failed. Every file has at least one chunk.
    pub fn take(&self, buf: &mut Vec<u8>) -> Option<(ChunkInfo, Work)> {
        buf.clear();
        let mut guard = self.lock();
        let state = &mut *guard;
        if state.done {
            return None;
        }
        // Stays so for the others if this fails.
        state.done = true;
        let (index, offset) = (state.index, state.offset);
        state.index += 1;
        let mut info = ChunkInfo { index, offset, compressed: 0, last: false };
        let mut parts = Vec::new();
        if let Mode::Parts(at) = state.mode {
            match self.collect(state, at, &mut parts) {
                Ok(end) => info.last = end,
                Err(e) => return Some((info, Work(Todo::Failed(e)))),
            }
        }
        let consumed = match &mut state.mode {
            Mode::Stream { decoder, ahead, failed } if parts.is_empty() => {
                if let Some(e) = failed.take() {
                    return Some((info, Work(Todo::Failed(e))));
                }
                std::mem::swap(buf, ahead);
                match fill(decoder, ahead) {
                    Ok(()) => info.last = ahead.is_empty(),
                    // What came before it is good.
                    Err(e) => *failed = Some(e),
                }
                state.offset += buf.len() as u64;
                decoder.consumed()
            }
            Mode::Stream { decoder, .. } => {
                state.offset += parts.iter().map(|p| p.decoded).sum::<u64>();
                // What it has read ahead is the next chunk's.
                decoder.consumed().min(parts.last().map_or(0, |p| p.at + p.compressed))
            }
            Mode::Parts(at) => {
                state.offset += parts.iter().map(|p| p.decoded).sum::<u64>();
                *at
            }
        };
        info.compressed = consumed.saturating_sub(state.consumed);
        state.consumed = state.consumed.max(consumed);
        state.done = info.last;
        Some((info, Work(if parts.is_empty() { Todo::Nothing } else { Todo::Parts(parts) })))
    }

    /// Brings the chunk that was handed out with `buf` into it.
    ///
    /// # Errors
    /// As [`Decoder::read`]. After it no chunk is handed out; those before it can still be decoded.
    pub fn decode(&self, work: Work, buf: &mut Vec<u8>) -> Result<()> {
        let result = match work.0 {
            Todo::Nothing => Ok(()),
            Todo::Failed(e) => Err(e),
            Todo::Parts(parts) => self.decode_parts(&parts, buf),
        };
        if result.is_err() {
            self.lock().done = true;
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds the parts of the next chunk and moves the state behind them. True if nothing follows. What cannot
    /// be read after the first part is the next chunk's failure.
    fn collect(&self, state: &mut State, mut at: u64, parts: &mut Vec<Part>) -> Result<bool> {
        let mut decoded = 0;
        let end = loop {
            let found = match find(self.source.as_ref(), self.codec, at) {
                Err(_) if !parts.is_empty() => break false,
                found => found?,
            };
            match found {
                Found::Skip(n) => at += n,
                Found::End => break true,
                Found::Part(_) if decoded >= CHUNK_BYTES || parts.len() >= MAX_PARTS => {
                    break false;
                }
                Found::Part(p) => {
                    at += p.compressed;
                    decoded += p.decoded;
                    parts.push(p);
                }
                Found::Stream => {
                    let mut decoder = Decoder::from_offset(self.source.clone(), self.codec, at)?;
                    let mut ahead = Vec::new();
                    let failed = fill(&mut decoder, &mut ahead).err();
                    state.mode = Mode::Stream { decoder: Box::new(decoder), ahead, failed };
                    return Ok(false);
                }
            }
        };
        state.mode = Mode::Parts(at);
        Ok(end)
    }

    /// Appends the content of `parts` to the empty `buf`.
    fn decode_parts(&self, parts: &[Part], buf: &mut Vec<u8>) -> Result<()> {
        let mut input = Vec::new();
        for part in parts {
            let fail = |e: Error| e.at_path(self.source.path()).at_offset(part.at);
            // `find` bounded both sizes.
            let (compressed, decoded) = (part.compressed as usize, part.decoded as usize);
            input.resize(compressed, 0);
            self.source.read_at(part.at, &mut input)?;
            let begin = buf.len();
            // One byte more, by which content that is too long shows itself.
            buf.resize(begin + decoded + 1, 0);
            let target = &mut buf[begin..];
            let n = match self.codec {
                Codec::Gzip => inflate(&input, target),
                Codec::Zstd => zstd::bulk::Decompressor::new()
                    .and_then(|mut d| d.decompress_to_buffer(&input, target))
                    .map_err(|e| broken(self.codec, &e.to_string())),
            };
            if n.map_err(fail)? != decoded {
                let why = "the content does not have the length that its header says";
                return Err(fail(broken(self.codec, why)));
            }
            buf.truncate(begin + decoded);
        }
        Ok(())
    }
}

fn fill(decoder: &mut Decoder, buf: &mut Vec<u8>) -> Result<()> {
    buf.resize(CHUNK_BYTES as usize, 0);
    let n = decoder.read(buf)?;
    buf.truncate(n);
    Ok(())
}

/// What lies at `at`.
fn find(source: &dyn Source, codec: Codec, at: u64) -> Result<Found> {
    if at >= source.len() {
        return Ok(Found::End);
    }
    let found = match codec {
        Codec::Gzip => find_bgzf(source, at)?,
        Codec::Zstd => find_zstd(source, at)?,
    };
    let len = match &found {
        Found::Part(p) => p.compressed,
        Found::Skip(n) => *n,
        Found::Stream | Found::End => 0,
    };
    if len > source.len() - at {
        return Err(truncated(codec).at_path(source.path()).at_offset(source.len()));
    }
    Ok(found)
}

/// Reads up to `N` bytes at `at`; returns how many there were.
fn peek<const N: usize>(source: &dyn Source, at: u64, out: &mut [u8; N]) -> Result<usize> {
    let n = source.len().saturating_sub(at).min(N as u64) as usize;
    if n > 0 {
        source.read_at(at, &mut out[..n])?;
    }
    Ok(n)
}

/// Length of a BGZF block's header, and of all of it, if `head` begins one as every tool writes it: the
/// length is the only extra field, and there is no name and no comment.
fn bgzf(head: &[u8]) -> Option<(usize, u64)> {
    match head {
        [0x1F, 0x8B, 8, 4, _, _, _, _, _, _, 6, 0, b'B', b'C', 2, 0, low, high, ..] => {
            let len = u64::from(u16::from_le_bytes([*low, *high])) + 1;
            (len >= 18 + 8).then_some((18, len))
        }
        _ => None,
    }
}

fn find_bgzf(source: &dyn Source, at: u64) -> Result<Found> {
    let mut head = [0; 18];
    let n = peek(source, at, &mut head)?;
    let Some((_, compressed)) = bgzf(&head[..n]) else { return Ok(Found::Stream) };
    let mut size = [0; 4];
    // A block cut off by the end of the file has no size; `find` says so.
    peek(source, at + compressed - 4, &mut size)?;
    let decoded = u64::from(u32::from_le_bytes(size));
    if decoded > MAX_BGZF_BYTES {
        return Ok(Found::Stream);
    }
    Ok(Found::Part(Part { at, compressed, decoded }))
}

fn inflate(block: &[u8], out: &mut [u8]) -> Result<usize> {
    let bad = |why: &str| broken(Codec::Gzip, why);
    let Some((head, _)) = bgzf(block) else { return Err(bad("the block changed")) };
    let (data, tail) = block[head..].split_at(block.len() - head - 8);
    let mut inflater = Decompress::new(false);
    let status =
        inflater.decompress(data, out, FlushDecompress::Finish).map_err(|e| bad(&e.to_string()))?;
    if status != Status::StreamEnd || inflater.total_in() != data.len() as u64 {
        return Err(bad("a block does not end where it should"));
    }
    // No more than `out.len()`.
    let n = inflater.total_out() as usize;
    let mut crc = Crc::new();
    crc.update(&out[..n]);
    if crc.sum().to_le_bytes() != tail[..4] {
        return Err(bad("the checksum does not match"));
    }
    Ok(n)
}

/// Walks over one zstd frame by its block headers (RFC 8878, section 3.1.1).
fn find_zstd(source: &dyn Source, at: u64) -> Result<Found> {
    let mut head = [0; ZSTD_HEADER];
    let n = peek(source, at, &mut head)?;
    if n >= 8 && matches!(head[0], 0x50..=0x5F) && head[1..4] == [0x2A, 0x4D, 0x18] {
        let len = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        return Ok(Found::Skip(8 + u64::from(len)));
    }
    // Frames of zstd before 1.0 have other headers.
    if n < 6 || head[..4] != [0x28, 0xB5, 0x2F, 0xFD] {
        return Ok(Found::Stream);
    }
    let decoded = match zstd::zstd_safe::get_frame_content_size(&head[..n]) {
        Ok(Some(size)) if size <= MAX_FRAME_BYTES => size,
        _ => return Ok(Found::Stream),
    };
    let descriptor = head[4];
    let single = descriptor & 0x20 != 0;
    if !single {
        let window = 1u64 << (10 + (head[5] >> 3));
        // `Decoder` refuses larger windows, so that it must be asked.
        if window + window / 8 * u64::from(head[5] & 7) > 1 << WINDOW_LOG_MAX {
            return Ok(Found::Stream);
        }
    }
    let content_field = match descriptor >> 6 {
        0 => u64::from(single),
        n => 1 << n,
    };
    let dictionary_field = [0, 1, 2, 4][usize::from(descriptor & 3)];
    let mut end = at + 5 + u64::from(!single) + dictionary_field + content_field;
    loop {
        let mut block = [0; 3];
        if peek(source, end, &mut block)? < 3 {
            end = u64::MAX;
            break;
        }
        let header = u32::from_le_bytes([block[0], block[1], block[2], 0]);
        end += 3 + match header >> 1 & 3 {
            1 => 1,
            3 => return Ok(Found::Stream),
            _ => u64::from(header >> 3),
        };
        if header & 1 == 1 {
            end += if descriptor & 4 != 0 { 4 } else { 0 };
            break;
        }
        // Incompressible content grows by three bytes in 128 KiB; blocks of nothing could grow without
        // bound.
        if end - at > 2 * MAX_FRAME_BYTES {
            return Ok(Found::Stream);
        }
    }
    Ok(Found::Part(Part { at, compressed: end.saturating_sub(at), decoded }))
}

#[cfg(test)]
#[path = "parallel_tests.rs"]
mod tests;
