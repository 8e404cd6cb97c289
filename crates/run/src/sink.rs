//! Output of map kernels: blocks are mapped in any order and written in file order.
//!
//! Blocks come to a worker with ascending numbers, and all workers take from one queue, so a block may be
//! written once every other worker is past it (or finished). What has to wait is kept in memory up to a
//! budget and then in a spill file; nobody waits for anybody, so nothing can lock up.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Result};
use stead_format::npy;
use stead_kernel::{Sink, SinkHeader};
use stead_store::AtomicFile;

/// An output file that takes blocks in any order.
pub struct Ordered {
    header: SinkHeader,
    /// Bytes of the header in the file.
    start: u64,
    /// Bytes that may wait in memory.
    budget: usize,
    inner: Mutex<Inner>,
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
}

enum Waiting {
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

    fn on(sink: &Sink, file: AtomicFile, workers: usize, budget: usize) -> Ordered {
        let start = file.written();
        Ordered {
            header: sink.header.clone(),
            start,
            budget,
            inner: Mutex::new(Inner {
                file,
                body: 0,
                waiting: BTreeMap::new(),
                held: 0,
                reached: vec![None; workers],
                spill: None,
                path: sink.path.clone(),
            }),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the output of block `seq` from `worker`.
    pub fn push(&self, worker: usize, seq: u64, out: Vec<u8>) -> Result<()> {
        let mut inner = self.lock();
        inner.reached[worker] = Some(seq);
        if !out.is_empty() {
            inner.held += out.len();
            if inner.waiting.insert(seq, Waiting::Held(out)).is_some() {
                return Err(Error::internal("two blocks have one number"));
            }
        }
        inner.write_ready()?;
        inner.spill_above(self.budget)
    }

    /// Says that `worker` will push nothing more.
    pub fn finished(&self, worker: usize) -> Result<()> {
        let mut inner = self.lock();
        inner.reached[worker] = Some(u64::MAX);
        inner.write_ready()
    }

    /// What was written, when all have said that they push nothing more.
    pub fn end(self) -> Result<Part> {
        let mut inner = self.inner.into_inner().unwrap_or_else(PoisonError::into_inner);
        inner.reached.fill(Some(u64::MAX));
        inner.write_ready()?;
        let Inner { path, file, body, .. } = inner;
        Ok(Part { path, file, header: self.header, start: self.start, body })
    }
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
    fn write_ready(&mut self) -> Result<()> {
        let Some(sure) = self.reached.iter().copied().min().flatten() else { return Ok(()) };
        while let Some(entry) = self.waiting.first_entry() {
            if *entry.key() > sure {
                break;
            }
            let out = match entry.remove() {
                Waiting::Held(out) => {
                    self.held -= out.len();
                    out
                }
                Waiting::Spilled { offset, len } => {
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
        }
        Ok(())
    }

    /// Moves the latest waiting output to disk until the rest fits the budget.
    fn spill_above(&mut self, budget: usize) -> Result<()> {
        if self.held <= budget {
            return Ok(());
        }
        if self.spill.is_none() {
            self.spill = Some((AtomicFile::scratch(&self.path)?, 0));
        }
        let Some((file, end)) = &mut self.spill else { return Ok(()) };
        for w in self.waiting.values_mut().rev() {
            if let Waiting::Held(out) = w {
                let (offset, len) = (*end, out.len());
                file.write_all(out)?;
                *end += len as u64;
                self.held -= len;
                *w = Waiting::Spilled { offset, len };
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

    fn written(workers: usize, budget: usize, pushes: &[(usize, u64)]) -> String {
        let dir = tempfile::tempdir().expect("dir");
        let path = dir.path().join("out.txt");
        let sink = Sink { path: path.clone(), header: SinkHeader::Bytes(b"h ".to_vec()) };
        let file = AtomicFile::create(&path).expect("file");
        let o = Ordered::create(&sink, file, workers, budget).expect("create");
        for (w, seq) in pushes {
            o.push(*w, *seq, format!("{seq} ").into_bytes()).expect("push");
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
        o.push(0, 5, vec![1, 2, 3]).expect("push");
        drop(o);
        assert_eq!(std::fs::read_dir(dir.path()).expect("dir").count(), 0);
    }
}
