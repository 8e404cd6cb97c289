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
    /// Bytes of the byte order mark that the file begins with.
    mark: u64,
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
    /// The first chunk that will not come: a worker stopped with it in its hands. Those before it do come, so that
    /// the error that is told is the first one in the file, whoever was faster.
    failed: Option<u64>,
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

/// Tells all who wait for a chunk that it will not come, on every way out but the good one.
struct Failing<'s> {
    /// `None` on the good one.
    stream: Option<&'s Stream>,
    /// The chunk; 0 as long as that is not known.
    chunk: u64,
}

impl Drop for Failing<'_> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream {
            let mut turn = stream.lock();
            turn.failed = Some(turn.failed.map_or(self.chunk, |f| f.min(self.chunk)));
            drop(turn);
            stream.changed.notify_all();
        }
    }
}

impl Stream {
    /// Opens a file that begins with a byte order mark of `mark` bytes.
    pub fn open(
        source: Arc<dyn Source>,
        codec: Codec,
        syntax: Syntax,
        max_record: usize,
        mark: usize,
    ) -> Result<Stream> {
        Ok(Stream {
            decoder: ParallelDecoder::new(source, codec)?,
            syntax,
            max_record,
            mark: mark as u64,
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
        let mut failing = Failing { stream: Some(self), chunk: 0 };
        let result = self.step(chunk, text, cancel, &mut failing.chunk);
        if result.is_ok() {
            failing.stream = None;
        }
        result
    }

    fn step(
        &self,
        chunk: &mut Vec<u8>,
        text: &mut Vec<u8>,
        cancel: &Cancel,
        number: &mut u64,
    ) -> Result<Option<Cut>> {
        let Some((info, work)) = self.decoder.take(chunk) else { return Ok(None) };
        *number = info.index;
        let decoded = self.decoder.decode(work, chunk);
        let plain = self.syntax.comment.is_none()
            && self.syntax.quote.is_none_or(|q| memchr(q, chunk).is_none());
        let mut turn = self.lock();
        while turn.next != info.index {
            if turn.failed.is_some_and(|f| f < info.index) {
                return Err(Error::cancelled());
            }
            cancel.check()?;
            turn = self
                .changed
                .wait_timeout(turn, super::CANCEL_CHECK)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        // Not before its turn: an error in an earlier chunk comes first.
        decoded.map_err(|e| e.in_order(info.offset))?;
        let offset = info.offset - turn.carry.len() as u64;
        text.clear();
        if info.last {
            text.append(&mut turn.carry);
            text.extend_from_slice(chunk);
        } else {
            // The first field begins after the mark, and with it the quote that it may begin with. The first chunks
            // may end within the mark.
            let mark = self.mark.saturating_sub(info.offset).min(chunk.len() as u64) as usize;
            let (end, state) = self.last_end(&chunk[mark..], turn.state, plain);
            let end = end.map(|n| mark + n);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::path::Path;
    use std::sync::atomic::{AtomicBool, Ordering};
    use stead_store::MemorySource;

    /// Panics at the first long read after it was armed.
    #[derive(Debug)]
    struct Broken(MemorySource, AtomicBool);

    impl Source for Broken {
        fn path(&self) -> &Path {
            self.0.path()
        }

        fn len(&self) -> u64 {
            self.0.len()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            if buf.len() > 100 && self.1.swap(false, Ordering::Relaxed) {
                panic!("as if by a defect");
            }
            self.0.read_at(offset, buf)
        }
    }

    #[test]
    fn nobody_waits_for_a_chunk_that_a_panic_took() {
        let mut text: Vec<u8> =
            (0..1u32 << 20).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 / 2 + 10).collect();
        text[1 << 19] = b'\n';
        let frame = zstd::bulk::compress(&text, 1).expect("compressed");
        let source = MemorySource::new("f.zst", frame.repeat(3));
        let source = Arc::new(Broken(source, AtomicBool::new(false)));
        let stream =
            Stream::open(source.clone(), Codec::Zstd, Syntax::LINES, 4 << 20, 0).expect("stream");
        let next = || stream.next(&mut Vec::new(), &mut Vec::new(), &Cancel::new());
        source.1.store(true, Ordering::Relaxed);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(next)).is_err());
        // The chunk after it.
        assert_eq!(next().map(|_| ()).map_err(|e| e.kind()), Err(stead_core::Kind::Cancelled));
    }

    /// Holds a long read at the start of the file back until the last byte but some was read too.
    #[derive(Debug)]
    struct Slow {
        bytes: MemorySource,
        /// Reads that begin here or later let the first one go.
        late: u64,
        met: (Mutex<bool>, Condvar),
    }

    impl Source for Slow {
        fn path(&self) -> &Path {
            self.bytes.path()
        }

        fn len(&self) -> u64 {
            self.bytes.len()
        }

        fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
            let (met, changed) = &self.met;
            if buf.len() > 100 && offset == 0 {
                let mut met = met.lock().expect("lock");
                while !*met {
                    met = changed.wait(met).expect("lock");
                }
            } else if buf.len() > 100 && offset >= self.late {
                *met.lock().expect("lock") = true;
                changed.notify_all();
            }
            self.bytes.read_at(offset, buf)
        }
    }

    #[test]
    fn chunks_before_a_bad_one_come_however_slow_they_are() {
        let text = |seed: u32| {
            let byte = |i: u32| (i.wrapping_mul(2_654_435_761) >> 24) as u8 / 2 + 10;
            let mut text: Vec<u8> = (0..1u32 << 20).map(|i| byte(i ^ seed)).collect();
            text.push(b'\n');
            text
        };
        let texts: Vec<Vec<u8>> = (0..4).map(text).collect();
        let mut file = Vec::new();
        let mut starts = Vec::new();
        for t in &texts {
            starts.push(file.len() as u64);
            let mut frame = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("encoder");
            frame.include_checksum(true).expect("checksum");
            frame.set_pledged_src_size(Some(t.len() as u64)).expect("size");
            frame.write_all(t).expect("compressed");
            file.extend(frame.finish().expect("compressed"));
        }
        // The checksums of the last two.
        let end = file.len();
        file[starts[3] as usize - 1] ^= 1;
        file[end - 1] ^= 1;
        let source = Slow {
            bytes: MemorySource::new("f.zst", file),
            late: starts[2],
            met: (Mutex::new(false), Condvar::new()),
        };
        let stream = Stream::open(Arc::new(source), Codec::Zstd, Syntax::LINES, 4 << 20, 0);
        let stream = stream.expect("stream");
        let (came, errors) = (Mutex::new(Vec::new()), Mutex::new(Vec::new()));
        let work = || {
            let mut text = Vec::new();
            loop {
                match stream.next(&mut Vec::new(), &mut text, &Cancel::new()) {
                    Ok(Some(cut)) => came.lock().expect("lock").push((cut.index, text.clone())),
                    Ok(None) => return,
                    Err(e) => return errors.lock().expect("lock").push(e),
                }
            }
        };
        std::thread::scope(|s| (0..4).for_each(|_| drop(s.spawn(work))));
        let came = came.into_inner().expect("lock");
        assert_eq!(came.len(), 2);
        for (i, t) in came {
            assert!(t == texts[i as usize], "chunk {i}");
        }
        let mut errors = errors.into_inner().expect("lock");
        errors.retain(|e| e.kind() != stead_core::Kind::Cancelled);
        let first = errors.iter().min_by_key(|e| e.order()).expect("an error");
        let decoded = (texts[0].len() + texts[1].len()) as u64;
        assert_eq!(first.order().1, Some(decoded));
        assert_eq!(first.place().offset, Some(starts[2]));
    }
}
