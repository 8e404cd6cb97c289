//! Streams whose writers and readers are on several nodes: threads of one process, each node with a memory of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::thread;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Bounds, DType, Kind};
use stead_fabric::{Fabric, Local};
use stead_stream::{Behind, Coupling, Definition, Read, Reader, Start, Writer, Written};

/// Nodes with ranks, each in a thread.
struct Job {
    dir: tempfile::TempDir,
}

/// What a rank has.
struct Rank {
    coupling: Arc<Coupling>,
}

impl Rank {
    fn write(&self, name: &str, more: impl FnOnce(&mut Written)) -> stead_core::Result<Writer> {
        let mut options = Written {
            rank: self.coupling.rank(),
            writers: self.coupling.ranks(),
            timeout: Duration::from_secs(60),
            coupling: Some(self.coupling.clone()),
            ..Written::default()
        };
        more(&mut options);
        Writer::open(name, &options)
    }

    fn read(&self, name: &str, more: impl FnOnce(&mut Read)) -> stead_core::Result<Reader> {
        let mut options = Read {
            rank: self.coupling.rank(),
            ranks: self.coupling.ranks(),
            timeout: Duration::from_secs(60),
            coupling: Some(self.coupling.clone()),
            ..Read::default()
        };
        more(&mut options);
        Reader::open(name, &options)
    }
}

impl Job {
    fn new() -> Job {
        Job { dir: tempfile::tempdir_in("/dev/shm").unwrap() }
    }

    fn spaces(&self, node: usize) -> Spaces {
        let mut spaces = Spaces::default();
        spaces.imply("memory", self.dir.path().join(format!("{node}")).to_str().unwrap());
        spaces
    }

    /// Runs ranks, of which each is of a part and on a node, to their ends.
    fn run(&self, ranks: &[(&str, usize)], work: impl Fn(&str, Rank) + Send + Sync) {
        let nodes: Vec<usize> = ranks.iter().map(|(_, node)| *node).collect();
        let fabrics = Local::over_nodes(&nodes, Duration::from_secs(60));
        thread::scope(|scope| {
            for ((part, node), fabric) in ranks.iter().zip(fabrics) {
                let (work, spaces) = (&work, self.spaces(*node));
                scope.spawn(move || {
                    let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                    let coupling = Coupling::new(fabric, part, &spaces).unwrap();
                    work(part, Rank { coupling });
                });
            }
        });
    }

    /// Folders of streams that are left on a node, when agents have had time to go.
    fn left(&self, node: usize) -> Vec<String> {
        let left = || -> Vec<String> {
            let streams = std::fs::read_dir(self.dir.path().join(format!("{node}"))).unwrap();
            let folders = streams.flat_map(|f| std::fs::read_dir(f.unwrap().path()).unwrap());
            folders.map(|f| f.unwrap().file_name().into_string().unwrap()).collect()
        };
        for _ in 0..2000 {
            if left().is_empty() {
                break;
            }
            thread::sleep(Duration::from_millis(10));
        }
        left()
    }
}

fn array(shape: &[u64]) -> Definition {
    Definition::new("T", DType::U64, shape)
}

fn bounds(start: &[u64], count: &[u64]) -> Bounds {
    Bounds::new(start, count).unwrap()
}

/// What is at a place of a step.
fn value(step: u64, y: u64, x: u64) -> u64 {
    step * 1_000_000 + y * 1000 + x
}

fn values(step: u64, of: &Bounds) -> Vec<u8> {
    let ys = of.start()[0]..of.end(0);
    let at = |y: u64| (of.start()[1]..of.end(1)).map(move |x| value(step, y, x));
    ys.flat_map(at).flat_map(u64::to_le_bytes).collect()
}

/// Rows of so many, for a rank of so many.
fn rows(shape: [u64; 2], rank: u64, ranks: u64) -> Bounds {
    let (from, to) = (shape[0] * rank / ranks, shape[0] * (rank + 1) / ranks);
    bounds(&[from, 0], &[to - from, shape[1]])
}

fn columns(shape: [u64; 2], rank: u64, ranks: u64) -> Bounds {
    let (from, to) = (shape[1] * rank / ranks, shape[1] * (rank + 1) / ranks);
    bounds(&[0, from], &[shape[0], to - from])
}

const SHAPE: [u64; 2] = [60, 700];

fn write_all(rank: &Rank, steps: u64, more: impl FnOnce(&mut Written)) {
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

fn read_all(rank: &Rank, more: impl FnOnce(&mut Read)) -> Vec<u64> {
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

#[test]
fn what_writers_of_some_nodes_put_readers_of_others_get() {
    let layouts: [&[(&str, usize)]; 5] = [
        &[("sim", 0), ("ana", 1)],
        &[("sim", 0), ("sim", 0), ("sim", 1), ("ana", 2), ("ana", 3)],
        // Some are on the nodes of writers.
        &[("sim", 0), ("ana", 0), ("sim", 1), ("ana", 1), ("ana", 2)],
        &[("sim", 2), ("sim", 1), ("sim", 0), ("ana", 0), ("ana", 0)],
        &[("ana", 0), ("sim", 0), ("sim", 0)],
    ];
    for ranks in layouts {
        let job = Job::new();
        job.run(ranks, |part, rank| match part {
            "sim" => write_all(&rank, 5, |w| w.readers = 1),
            _ => assert_eq!(read_all(&rank, |_| {}), [0, 1, 2, 3, 4]),
        });
        for (_, node) in ranks {
            assert_eq!(job.left(*node), [""; 0], "{ranks:?}");
        }
    }
}

#[test]
fn parts_larger_than_a_message_come_whole() {
    let shape = [3, 1 << 20];
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| w.readers = 1).unwrap();
            let variable = writer.define(array(&shape)).unwrap();
            let mine = columns(shape, rank.coupling.rank(), 2);
            writer.begin().unwrap();
            writer.put(variable, &mine, &values(0, &mine)).unwrap();
            writer.end().unwrap();
            writer.close().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            let step = reader.next_step().unwrap().unwrap();
            let parts = step.parts("T").unwrap();
            assert_eq!(parts.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1]);
            for wanted in [bounds(&[0, 0], &shape), bounds(&[1, 5], &[2, 1_000_000])] {
                let got = step.get("T", &wanted).unwrap();
                assert!(!got.is_view());
                assert!(got.bytes() == values(0, &wanted));
            }
            assert!(step.view("T", &bounds(&[0, 0], &[1, 1])).unwrap().is_none());
        }
    });
}

#[test]
fn writers_wait_for_readers_of_other_nodes_or_do_not() {
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2), ("look", 3)], |part, rank| match part {
        "sim" => write_all(&rank, 40, |w| (w.readers, w.queue) = (2, 1)),
        "ana" => assert_eq!(read_all(&rank, |_| {}), (0..40).collect::<Vec<_>>()),
        _ => {
            let mut reader = rank
                .read("sim", |r| (r.group, r.behind) = ("look".to_owned(), Behind::Drop))
                .unwrap();
            let (mut sum, mut had) = (0, 0);
            while let Some(step) = reader.next_step().unwrap() {
                thread::sleep(Duration::from_millis(5));
                let whole = bounds(&[0, 0], &SHAPE);
                assert_eq!(step.get("T", &whole).unwrap().bytes(), values(step.number(), &whole));
                (sum, had) = (sum + step.dropped(), had + 1);
            }
            assert!(sum + had <= 40 && had > 0, "{sum} {had}");
        }
    });
}

#[test]
fn steps_that_stay_can_be_had_again_and_what_is_had_stays() {
    let job = Job::new();
    let (over, told) = std::sync::mpsc::channel::<()>();
    let told = std::sync::Mutex::new(told);
    job.run(&[("sim", 0), ("ana", 1)], |part, rank| match part {
        "sim" => {
            write_all(&rank, 6, |w| (w.keep, w.readers) = (3, 1));
            told.lock().unwrap().recv().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            let first = reader.next_step().unwrap().unwrap();
            let again = reader.at(0).unwrap();
            drop(first);
            for n in 1..6 {
                assert_eq!(reader.next_step().unwrap().unwrap().number(), n);
            }
            assert!(reader.next_step().unwrap().is_none() && reader.is_over());
            // Held all the time; 3 to 5 are kept; 1 and 2 went.
            let mine = bounds(&[3, 3], &[2, 2]);
            assert_eq!(again.get("T", &mine).unwrap().bytes(), values(0, &mine));
            assert_eq!(reader.steps().unwrap(), [0, 3, 4, 5]);
            assert_eq!(reader.at(4).unwrap().get("T", &mine).unwrap().bytes(), values(4, &mine));
            let error = reader.at(2).unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound);
            assert!(error.message().contains("from 0 to 5"), "{error}");
            over.send(()).unwrap();
        }
    });
}

#[test]
fn who_fails_on_another_node_is_named() {
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| (w.readers, w.queue) = (1, 1)).unwrap();
            let variable = writer.define(array(&SHAPE)).unwrap();
            let (me, mine) = (rank.coupling.rank(), rows(SHAPE, rank.coupling.rank(), 2));
            for step in 0..2 {
                writer.begin().unwrap();
                writer.put(variable, &mine, &values(step, &mine)).unwrap();
                writer.end().unwrap();
            }
            match me {
                0 => {
                    // It hears of the other one, whose node it is not on.
                    let error = loop {
                        match writer.begin().and_then(|_| writer.end()) {
                            Ok(()) => thread::sleep(Duration::from_millis(5)),
                            Err(e) => break e,
                        }
                    };
                    assert_eq!(error.kind(), Kind::Peer);
                    assert!(
                        error.message().contains("writer 1 of stream 'sim', on another node"),
                        "{error}"
                    );
                }
                _ => {
                    // The two before are complete then.
                    writer.begin().unwrap();
                    writer.abandon().unwrap();
                }
            }
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            for n in 0..2 {
                assert_eq!(reader.next_step().unwrap().unwrap().number(), n);
            }
            let error = loop {
                match reader.next_step() {
                    Err(e) => break e,
                    Ok(step) => assert!(step.is_none(), "a step that is not whole"),
                }
            };
            assert_eq!(error.kind(), Kind::Peer);
            assert!(error.message().contains("writer 1 of stream 'sim'"), "{error}");
        }
    });
}

#[test]
fn waits_for_other_nodes_have_an_end() {
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| {
        let soon = Duration::from_millis(100);
        match (part, rank.coupling.rank()) {
            ("sim", 0) => {
                let mut writer = rank.write("sim", |w| w.timeout = soon).unwrap();
                writer.begin().unwrap();
                writer.end().unwrap();
            }
            ("sim", _) => {}
            _ => {
                let error = rank.read("other", |r| r.timeout = soon).unwrap_err();
                assert_eq!(error.kind(), Kind::Timeout);
                assert!(error.message().contains("on any of 3 nodes"), "{error}");
            }
        }
    });
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| {
        let soon = Duration::from_millis(200);
        match (part, rank.coupling.rank()) {
            ("sim", 0) => {
                let _writer = rank.write("part", |_| {}).unwrap();
                thread::sleep(Duration::from_millis(400));
            }
            ("sim", _) => {}
            _ => {
                let error = rank.read("part", |r| r.timeout = soon).unwrap_err();
                assert_eq!(error.kind(), Kind::Timeout);
                let said = error.message();
                assert!(said.contains("1 of 2 writers of stream 'part' have come"), "{error}");
            }
        }
    });
}

#[test]
fn several_streams_and_runs_of_one_name() {
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| match part {
        "sim" => {
            for _ in 0..5 {
                write_all(&rank, 3, |w| w.readers = 1);
            }
        }
        _ => {
            for _ in 0..5 {
                assert_eq!(read_all(&rank, |r| r.start = Start::Oldest), [0, 1, 2]);
            }
        }
    });
}
