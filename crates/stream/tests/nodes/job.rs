//! Nodes of a job, and arrays of which each element tells what it is.

use crate::common;
use crate::common::LONG;
use crate::common::bounds;
use crate::common::memory;
use crate::common::wait_until;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use stead_core::Bounds;
use stead_core::DType;
use stead_core::Error;
use stead_core::Kind;
use stead_core::layout::Spaces;
use stead_fabric::Fabric;
use stead_fabric::Local;
use stead_stream::Coupling;
use stead_stream::Definition;
use stead_stream::Read;
use stead_stream::Reader;
use stead_stream::Writer;
use stead_stream::Written;

/// The error of somebody who gives up, and was given time enough to hear this of the other nodes: more and more of it, as they answer in
/// their own time.
pub(crate) fn given_up<T: std::fmt::Debug>(
    wait: impl Fn(Duration) -> stead_core::Result<T>,
    says: &str,
) -> Error {
    let mut time = Duration::from_millis(500);
    loop {
        let e = wait(time).unwrap_err();
        assert_eq!(e.kind(), Kind::Timeout, "{e}");
        if e.message().contains(says) {
            return e;
        }
        assert!(time < Duration::from_secs(100), "{e}");
        time *= 2;
    }
}

/// Nodes with ranks, each in a thread.
pub(crate) struct Job {
    pub(crate) dir: tempfile::TempDir,
}

/// What a rank has.
pub(crate) struct Rank {
    pub(crate) coupling: Arc<Coupling>,
}

impl Rank {
    pub(crate) fn write(
        &self,
        name: &str,
        more: impl FnOnce(&mut Written),
    ) -> stead_core::Result<Writer> {
        let mut options = Written {
            rank: self.coupling.rank(),
            writers: self.coupling.ranks(),
            timeout: LONG,
            coupling: Some(self.coupling.clone()),
            ..Written::default()
        };
        more(&mut options);
        Writer::open(name, &options)
    }

    pub(crate) fn read(
        &self,
        name: &str,
        more: impl FnOnce(&mut Read),
    ) -> stead_core::Result<Reader> {
        let mut options = Read {
            rank: self.coupling.rank(),
            ranks: self.coupling.ranks(),
            timeout: LONG,
            coupling: Some(self.coupling.clone()),
            ..Read::default()
        };
        more(&mut options);
        Reader::open(name, &options)
    }
}

impl Job {
    pub(crate) fn new() -> Job {
        Job { dir: common::dir() }
    }

    pub(crate) fn spaces(&self, node: usize) -> Spaces {
        memory(&self.memory(node))
    }

    /// Runs ranks, of which each is of a part and on a node, to their ends.
    pub(crate) fn run(&self, ranks: &[(&str, usize)], work: impl Fn(&str, Rank) + Send + Sync) {
        let nodes: Vec<usize> = ranks.iter().map(|(_, node)| *node).collect();
        let fabrics = Local::over_nodes(&nodes, LONG);
        thread::scope(|scope| {
            for ((part, node), fabric) in ranks.iter().zip(fabrics) {
                let (work, spaces) = (&work, self.spaces(*node));
                scope.spawn(move || {
                    let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                    let coupling = Coupling::new(fabric, part, &spaces, LONG).unwrap();
                    work(part, Rank { coupling });
                });
            }
        });
    }

    fn memory(&self, node: usize) -> PathBuf {
        self.dir.path().join(format!("{node}"))
    }

    /// Folders of streams that are left on a node, when agents have had time to go.
    pub(crate) fn left(&self, node: usize) -> Vec<String> {
        let left = || common::left(&self.memory(node));
        wait_until(|| left().is_empty());
        left()
    }
}

pub(crate) fn array(shape: &[u64]) -> Definition {
    Definition::new("T", DType::U64, shape)
}

/// What is at a place of a step.
pub(crate) fn value(step: u64, y: u64, x: u64) -> u64 {
    step * 1_000_000 + y * 1000 + x
}

pub(crate) fn values(step: u64, of: &Bounds) -> Vec<u8> {
    let ys = of.start()[0]..of.end(0);
    let at = |y: u64| (of.start()[1]..of.end(1)).map(move |x| value(step, y, x));
    ys.flat_map(at).flat_map(u64::to_le_bytes).collect()
}

/// Rows of so many, for a rank of so many.
pub(crate) fn rows(shape: [u64; 2], rank: u64, ranks: u64) -> Bounds {
    let (from, to) = (shape[0] * rank / ranks, shape[0] * (rank + 1) / ranks);
    bounds(&[from, 0], &[to - from, shape[1]])
}

pub(crate) fn columns(shape: [u64; 2], rank: u64, ranks: u64) -> Bounds {
    let (from, to) = (shape[1] * rank / ranks, shape[1] * (rank + 1) / ranks);
    bounds(&[0, from], &[shape[0], to - from])
}

pub(crate) const SHAPE: [u64; 2] = [60, 700];

pub(crate) fn write_all(rank: &Rank, steps: u64, more: impl FnOnce(&mut Written)) {
    let mut writer = rank.write("sim", more).unwrap();
    let variable = writer.define(array(&SHAPE)).unwrap();
    let mine = rows(SHAPE, rank.coupling.rank(), rank.coupling.ranks());
    for step in 0..steps {
        writer.begin().unwrap();
        writer.put(variable, &mine, &values(step, &mine)).unwrap();
        writer.end().unwrap();
    }
    writer.close().unwrap();
}

pub(crate) fn read_all(rank: &Rank, more: impl FnOnce(&mut Read)) -> Vec<u64> {
    let mut reader = rank.read("sim", more).unwrap();
    let mine = columns(SHAPE, rank.coupling.rank(), rank.coupling.ranks());
    let mut had = Vec::new();
    while let Some(step) = reader.next_step().unwrap() {
        let got = step.get("T", &mine).unwrap();
        assert_eq!(got.bytes(), values(step.number(), &mine), "step {}", step.number());
        assert_eq!(step.bytes(), SHAPE[0] * SHAPE[1] * 8);
        had.push(step.number());
    }
    had
}
