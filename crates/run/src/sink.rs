//! Output of map kernels: blocks are mapped in any order and written in file order.
//!
//! Blocks come to a worker with ascending numbers, and all workers take from one queue, so a block may be
//! written once every other worker is past it (or finished). What has to wait is kept in memory up to a
//! budget and then in a spill file; nobody waits for anybody, so nothing can lock up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Block, Error, Result, limits};
use stead_format::{Held, npy};
use stead_kernel::{Sink, SinkHeader};
use stead_store::AtomicFile;

/// An output file that takes blocks in any order.
pub struct Ordered {
    header: SinkHeader,
    /// Bytes of the header in the file.
    start: u64,
    /// Bytes that may wait in memory.
    budget: usize,
    /// What begins in these is this rank's, if the data lie between those of others.
    held: Option<Arc<[Held]>>,
    inner: Mutex<Inner>,
}

/// Output of neighbouring blocks of this rank, between which no other rank has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Number of the first block.
    pub seq: u64,
    /// Bytes.
    pub len: u64,
}

struct Inner {
    file: AtomicFile,
    /// Bytes written after the header.
    body: u64,
    /// Output that waits, by block number.
    waiting: BTreeMap<u64, Waiting>,
    /// Bytes of `waiting` that are in memory.
    held: usize,
    /// For each worker the last block it delivered; `None` before the first, `u64::MAX` when finished.
    reached: Vec<Option<u64>>,
    /// Where output waits that does not fit in memory.
    spill: Option<(AtomicFile, u64)>,
    path: PathBuf,
    /// What was written of each stretch of the data; nothing where they are not in stretches.
    runs: Vec<Run>,
    /// Where the last one is from, and the number of its last block.
    last: Option<(Whence, u64)>,
    /// Checksum of the output of blocks, where there are runs.
    sum: u32,
}

struct Waiting {
    whence: Whence,
    out: Out,
}

/// What of the data a block is of.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Whence {
    /// The stretch of the data.
    stretch: usize,
    /// What its numbers begin with: those of bytes beside the rows of an array come after all rows of all ranks.
    origin: u64,
}

enum Out {
    Held(Vec<u8>),
    Spilled { offset: u64, len: usize },
}

/// What a pass has written: the output, or one rank's part of it.
pub struct Part {
    /// The name that the output will have.
    pub path: PathBuf,
    pub file: AtomicFile,
    header: SinkHeader,
    /// Bytes before the output of blocks: of the header, which the first rank has.
    pub start: u64,
    /// Bytes of the output of blocks.
    pub body: u64,
    /// Where it goes between the output of other ranks, in ascending order, if the data lie between theirs.
    pub runs: Vec<Run>,
    /// CRC-32C of the output of blocks, if it has runs.
    pub sum: u32,
}

impl Part {
    /// Ends the file, which is whole then and has to be given its name. `body` is the length of all parts together.
    pub fn end(self, body: u64) -> Result<AtomicFile> {
        match &self.header {
            SinkHeader::Bytes(_) => {}
            SinkHeader::Npy { row } => {
                let size = row.iter().product::<u64>().max(1) * 8;
                let mut shape = vec![body / size];
                shape.extend_from_slice(row);
                let header = npy::header(&shape, false);
                if header.len() != reserved(row) {
                    return Err(Error::internal("the array's header does not fit its place"));
                }
                self.file.write_at(0, &header)?;
            }
            SinkHeader::NpyShape { shape, .. } => {
                if body != shape.iter().product::<u64>() * 8 {
                    return Err(Error::internal(
                        "the mapped array has not the shape it should have",
                    ));
                }
            }
        }
        Ok(self.file)
    }
}

impl Ordered {
    /// For the output of all blocks, or of those of the first of several ranks.
    pub fn create(
        sink: &Sink,
        mut file: AtomicFile,
        workers: usize,
        budget: usize,
    ) -> Result<Ordered> {
        match &sink.header {
            SinkHeader::Bytes(b) => file.write_all(b)?,
            SinkHeader::Npy { row } => file.write_all(&vec![b' '; reserved(row)])?,
            SinkHeader::NpyShape { shape, fortran } => {
                file.write_all(&npy::header(shape, *fortran))?
            }
        }
        Ok(Self::on(sink, file, workers, budget))
    }

    /// For the output of the blocks of another rank.
    pub fn part_of(sink: &Sink, workers: usize, budget: usize) -> Result<Ordered> {
        Ok(Self::on(sink, AtomicFile::scratch(&sink.path)?, workers, budget))
    }

    /// For the output of blocks that begin in what this rank holds, which is a part of its own. The first one has the header.
    pub fn of_held(
        sink: &Sink,
        file: AtomicFile,
        (workers, budget): (usize, usize),
        held: Arc<[Held]>,
        first: bool,
    ) -> Result<Ordered> {
        let ordered = match first {
            true => Self::create(sink, file, workers, budget)?,
            false => Self::on(sink, file, workers, budget),
        };
        Ok(Ordered { held: Some(held), ..ordered })
    }

    fn on(sink: &Sink, file: AtomicFile, workers: usize, budget: usize) -> Ordered {
        let start = file.written();
        Ordered {
            header: sink.header.clone(),
            start,
            budget,
            held: None,
            inner: Mutex::new(Inner {
                file,
                body: 0,
                waiting: BTreeMap::new(),
                held: 0,
                reached: vec![None; workers],
                spill: None,
                path: sink.path.clone(),
                runs: Vec::new(),
                last: None,
                sum: 0,
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the output of a block from `worker`.
    pub fn push(&self, worker: usize, block: &Block<'_>, out: Vec<u8>) -> Result<()> {
        let place = (block.source, block.offset);
        let stretch = self.held.as_ref().map_or(0, |held| {
            // One more than that of its index; a block begins in one.
            held.partition_point(|h| (h.source, h.bytes.start) <= place)
        });
        let mut inner = self.lock();
        inner.reached[worker] = Some(block.seq);
        if !out.is_empty() {
            inner.held += out.len();
            let whence = Whence { stretch, origin: block.seq.wrapping_sub(block.offset) };
            let waiting = Waiting { whence, out: Out::Held(out) };
            if inner.waiting.insert(block.seq, waiting).is_some() {
                return Err(Error::internal("two blocks have one number"));
            }
        }
        inner.write_ready(self.held.is_some())?;
        inner.spill_above(self.budget)
    }

    /// Says that `worker` will push nothing more.
    pub fn finished(&self, worker: usize) -> Result<()> {
        let mut inner = self.lock();
        inner.reached[worker] = Some(u64::MAX);
        inner.write_ready(self.held.is_some())
    }

    /// What was written, when all have said that they push nothing more.
    pub fn end(self) -> Result<Part> {
        let mut inner = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        inner.reached.fill(Some(u64::MAX));
        inner.write_ready(self.held.is_some())?;
        let Inner { path, file, body, runs, sum, .. } = inner;
        Ok(Part { path, file, header: self.header, start: self.start, body, runs, sum })
    }
}

/// The error for output that lies in more pieces than a layout lists.
pub fn too_many_runs() -> Error {
    let what = format!(
        "the output is in more than {} pieces between those of other ranks, more than a layout has",
        limits::MAX_CUTS
    );
    Error::limit(what).with_hint(
        "put the data over the nodes in larger stripes, or get them to one place and run over that",
    )
}

/// Space for a header whose first length is known only at the end. Headers are padded to 64 bytes, and
/// with at most one further dimension every length fits 128.
fn reserved(row: &[u64]) -> usize {
    let mut shape = vec![u64::MAX];
    shape.extend_from_slice(row);
    npy::header(&shape, false).len()
}

impl Inner {
    /// Writes what no other worker can come before.
    fn write_ready(&mut self, in_runs: bool) -> Result<()> {
        let Some(sure) = self.reached.iter().copied().min().flatten() else { return Ok(()) };
        while let Some(entry) = self.waiting.first_entry() {
            if *entry.key() > sure {
                break;
            }
            let (seq, Waiting { whence, out }) = entry.remove_entry();
            let out = match out {
                Out::Held(out) => {
                    self.held -= out.len();
                    out
                }
                Out::Spilled { offset, len } => {
                    let mut out = vec![0; len];
                    match &self.spill {
                        Some((spill, _)) => spill.read_at(offset, &mut out)?,
                        None => return Err(Error::internal("the spill file is gone")),
                    }
                    out
                }
            };
            self.file.write_all(&out)?;
            self.body += out.len() as u64;
            if in_runs {
                self.note(seq, whence, &out)?;
            }
        }
        Ok(())
    }

    /// Notes where output goes that was written.
    fn note(&mut self, seq: u64, whence: Whence, out: &[u8]) -> Result<()> {
        self.sum = crc32c::crc32c_append(self.sum, out);
        let len = out.len() as u64;
        // Between consecutive numbers there is no block of another rank: those of a compressed file are, of one rank.
        let goes_on =
            self.last.is_some_and(|(last, n)| last == whence || n.checked_add(1) == Some(seq));
        if let Some(run) = self.runs.last_mut().filter(|_| goes_on) {
            run.len += len;
        } else if self.runs.len() > limits::MAX_CUTS {
            return Err(too_many_runs());
        } else {
            self.runs.push(Run { seq, len });
        }
        self.last = Some((whence, seq));
        Ok(())
    }

    /// Moves the latest waiting output to disk until the rest fits the budget.
    fn spill_above(&mut self, budget: usize) -> Result<()> {
        if self.held <= budget {
            return Ok(());
        }
        if self.spill.is_none() {
            self.spill = Some((self.file.scratch_beside()?, 0));
        }
        let Some((file, end)) = &mut self.spill else { return Ok(()) };
        for w in self.waiting.values_mut().rev() {
            if let Out::Held(out) = &w.out {
                let (offset, len) = (*end, out.len());
                file.write_all(out)?;
                *end += len as u64;
                self.held -= len;
                w.out = Out::Spilled { offset, len };
                if self.held <= budget / 2 {
                    break;
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seq: u64, source: u32, offset: u64) -> Block<'static> {
        Block { seq, source, offset, ..Block::empty() }
    }

    fn written(workers: usize, budget: usize, pushes: &[(usize, u64)]) -> String {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("out.txt");
        let sink = Sink { path: path.clone(), header: SinkHeader::Bytes(b"h ".to_vec()) };
        let file = AtomicFile::create(&path).expect("file");
        let o = Ordered::create(&sink, file, workers, budget).expect("create");
        for (w, seq) in pushes {
            o.push(*w, &block(*seq, 0, 0), format!("{seq} ").into_bytes()).expect("push");
        }
        for w in 0..workers {
            o.finished(w).expect("finished");
        }
        let part = o.end().expect("end");
        let body = part.body;
        part.end(body).and_then(AtomicFile::commit).expect("commit");
        assert_eq!(
            std::fs::read_dir(dir.path()).expect("dir").count(),
            1,
            "only the output is left"
        );
        std::fs::read_to_string(path).expect("read")
    }

    #[test]
    fn output_comes_in_block_order_within_any_budget() {
        for budget in [0, 1, 5, 1000] {
            let s = written(3, budget, &[(1, 7), (2, 3), (2, 4), (0, 0), (1, 12), (0, 2), (0, 9)]);
            assert_eq!(s, "h 0 2 3 4 7 9 12 ", "budget {budget}");
        }
    }

    #[test]
    fn a_sink_that_is_not_committed_leaves_nothing() {
        let dir = tempfile::tempdir().expect("dir");
        let sink = Sink { path: dir.path().join("o"), header: SinkHeader::Bytes(vec![]) };
        let file = AtomicFile::create(&sink.path).expect("file");
        let o = Ordered::create(&sink, file, 1, 0).expect("create");
        o.push(0, &block(5, 0, 0), vec![1, 2, 3]).expect("push");
        drop(o);
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 0);
    }

    #[test]
    fn bytes_that_come_after_all_rows_are_runs_of_their_own() {
        let dir = tempfile::tempdir().expect("dir");
        let sink = Sink { path: dir.path().join("o"), header: SinkHeader::Bytes(Vec::new()) };
        let held: Arc<[Held]> = [Held { source: 0, bytes: 0..100 }].into();
        let file = AtomicFile::create(&sink.path).expect("file");
        let o = Ordered::of_held(&sink, file, (1, 1000), held, true).expect("ordered");
        // Rows at their places in the file, bytes behind all rows: those of other ranks come between. Then a compressed file, whose
        // blocks are counted.
        for (seq, offset) in [(0, 0), (40, 40), (1000, 0), (1050, 50), (2000, 0), (2001, 70)] {
            o.push(0, &block(seq, 0, offset), vec![b'x']).expect("push");
        }
        let run = |seq, len| Run { seq, len };
        assert_eq!(o.end().expect("end").runs, [run(0, 2), run(1000, 2), run(2000, 2)]);
    }

    #[test]
    fn output_of_held_bytes_is_in_runs_of_stretches() {
        let dir = tempfile::tempdir().expect("dir");
        let sink = Sink { path: dir.path().join("o"), header: SinkHeader::Bytes(b"head".to_vec()) };
        let held = |source, bytes| Held { source, bytes };
        let held: Arc<[Held]> = [held(0, 0..10), held(0, 20..30), held(2, 0..5)].into();
        for first in [true, false] {
            let file = AtomicFile::create(&sink.path).expect("file");
            let o = Ordered::of_held(&sink, file, (2, 3), held.clone(), first).expect("ordered");
            let push = |w, seq, source, offset, out: &str| {
                o.push(w, &block(seq, source, offset), out.as_bytes().to_vec()).expect("push");
            };
            push(0, 4, 0, 4, "b");
            push(1, 0, 0, 0, "a");
            push(1, 25, 0, 25, "");
            push(0, 20, 0, 29, "cc");
            push(0, 100, 2, 0, "ddd");
            push(1, 104, 2, 4, "e");
            let part = o.end().expect("end");
            let run = |seq, len| Run { seq, len };
            assert_eq!(part.runs, [run(0, 2), run(20, 2), run(100, 4)]);
            let start = if first { 4 } else { 0 };
            assert_eq!((part.start, part.body, part.sum), (start, 8, crc32c::crc32c(b"abccddde")));
            let mut bytes = vec![0; 8];
            part.file.read_at(start, &mut bytes).expect("read");
            assert_eq!(bytes, b"abccddde");
        }
    }
}
