//! Ranks that fail, or are killed.

use crate::common::Barrier;
use crate::common::LONG;
use crate::job::Job;
use crate::job::Rank;
use crate::job::SHAPE;
use crate::job::array;
use crate::job::rows;
use crate::job::values;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use stead_core::Error;
use stead_core::Kind;
use stead_fabric::Fabric;
use stead_fabric::Local;
use stead_fabric::Rounds;
use stead_stream::Coupling;
use stead_stream::Writer;

#[test]
fn who_does_not_come_to_be_coupled_is_named() {
    let job = Job::new();
    for missing in [0, 2] {
        let mut fabrics: Vec<Option<Local>> =
            Local::over_nodes(&[0, 1, 2], LONG).into_iter().map(Some).collect();
        let late = fabrics[missing].take().unwrap();
        let soon = Duration::from_millis(100);
        let couple = |fabric: Local, time: Duration| -> Error {
            let spaces = job.spaces(fabric.rank());
            Coupling::new(Arc::new(fabric), "sim", &spaces, time).unwrap_err()
        };
        let told: Vec<Error> = thread::scope(|scope| {
            let others = fabrics.into_iter().flatten();
            let others: Vec<_> =
                others.map(|fabric| scope.spawn(|| couple(fabric, soon))).collect();
            others.into_iter().map(|one| one.join().unwrap()).collect()
        });
        for e in told {
            assert_eq!(e.kind(), Kind::Timeout, "{e}");
            let says = format!("rank {missing} of 3 has not come to be coupled within ");
            assert!(e.message().starts_with(&says), "{e}");
        }
        // It is not coupled with nobody when it comes.
        let e = couple(late, LONG);
        assert!(matches!(e.kind(), Kind::Timeout | Kind::Peer), "{e}");
    }
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

/// A fabric of which ranks are gone when a test says so.
struct Mortal {
    inner: Local,
    dead: Arc<AtomicUsize>,
}

impl Mortal {
    /// As an error of messages to a rank, or from it.
    fn heard_of(&self, rank: usize) -> stead_core::Result<()> {
        match self.dead.load(Ordering::Relaxed) == rank && rank != self.inner.rank() {
            true => Err(Error::new(Kind::Peer, "has not answered for 30 s").at_rank(rank)),
            false => Ok(()),
        }
    }
}

impl Fabric for Mortal {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn node_of(&self, rank: usize) -> usize {
        self.inner.node_of(rank)
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> stead_core::Result<()> {
        self.heard_of(to)?;
        self.inner.send(to, tag, bytes)
    }

    fn recv_within(
        &self,
        from: usize,
        tag: u32,
        within: Duration,
    ) -> stead_core::Result<Option<Vec<u8>>> {
        self.heard_of(from)?;
        self.inner.recv_within(from, tag, within)
    }

    fn recv_any(&self, tag: u32, within: Duration) -> stead_core::Result<Option<(usize, Vec<u8>)>> {
        self.inner.recv_any(tag, within)
    }

    fn alive(&self, rank: usize) -> stead_core::Result<()> {
        if self.dead.load(Ordering::Relaxed) == rank {
            return Err(Error::new(Kind::Peer, "it was killed").at_rank(rank));
        }
        self.inner.alive(rank)
    }

    fn ends(&self, rank: usize) -> bool {
        self.alive(rank).is_err() || self.inner.ends(rank)
    }

    fn rounds(&self) -> &Rounds {
        self.inner.rounds()
    }

    fn forget(&self, tags: std::ops::Range<u32>) {
        self.inner.forget(tags);
    }
}

/// Begins steps until it is told why there are no more.
fn until_told(mut writer: Writer) -> (Writer, Error) {
    for _ in 0..12_000 {
        match writer.begin().and_then(|_| writer.end()) {
            Ok(()) => thread::sleep(Duration::from_millis(5)),
            Err(e) => return (writer, e),
        }
    }
    panic!("nobody tells it anything");
}

#[test]
fn writers_are_told_of_one_that_was_killed_and_was_alone_on_its_node() {
    let job = Job::new();
    let dead = Arc::new(AtomicUsize::new(usize::MAX));
    let fabrics = Local::over_nodes(&[0, 1, 2], Duration::from_secs(60));
    thread::scope(|scope| {
        for (node, inner) in fabrics.into_iter().enumerate() {
            let (dead, spaces) = (dead.clone(), job.spaces(node));
            scope.spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(Mortal { inner, dead: dead.clone() });
                let coupling = Coupling::new(fabric, "sim", &spaces, LONG).unwrap();
                let rank = Rank { coupling };
                let mut writer = rank.write("sim", |_| {}).unwrap();
                for _ in 0..2 {
                    writer.begin().unwrap();
                    writer.end().unwrap();
                }
                if node == 1 {
                    dead.store(1, Ordering::Relaxed);
                    // It says nothing more.
                    std::mem::forget((writer, rank));
                    return;
                }
                let (_writer, e) = until_told(writer);
                assert_eq!(e.kind(), Kind::Peer);
                assert!(e.message().contains("writer 1 of stream 'sim', on another node"), "{e}");
            });
        }
    });
}

#[test]
fn who_leaves_because_of_another_one_is_not_the_one_that_has_failed() {
    let job = Job::new();
    let (ahead, left) = (Barrier::new(2), Barrier::new(2));
    job.run(&[("sim", 0), ("sim", 0), ("sim", 1)], |_, rank| {
        let mut writer = rank.write("sim", |_| {}).unwrap();
        match rank.coupling.rank() {
            0 => {
                for _ in 0..2 {
                    writer.begin().unwrap();
                    writer.end().unwrap();
                }
                ahead.wait();
                left.wait();
                let (writer, e) = until_told(writer);
                assert!(e.message().contains("writer 1 of stream 'sim'"), "{e}");
                writer.abandon().unwrap();
            }
            1 => {
                writer.begin().unwrap();
                writer.end().unwrap();
                ahead.wait();
                writer.close().unwrap();
                left.wait();
            }
            _ => {
                let (_writer, e) = until_told(writer);
                assert!(e.message().contains("writer 1 of stream 'sim', on another node"), "{e}");
            }
        }
    });
}

#[test]
fn who_comes_when_a_writer_has_failed_already_is_told_so() {
    let job = Job::new();
    let gone = Barrier::new(2);
    job.run(&[("sim", 0), ("sim", 1)], |_, rank| match rank.coupling.rank() {
        0 => {
            let mut writer = rank.write("sim", |_| {}).unwrap();
            writer.begin().unwrap();
            writer.abandon().unwrap();
            gone.wait();
        }
        _ => {
            gone.wait();
            // It was told to this node by now, where nobody wrote it.
            thread::sleep(Duration::from_millis(300));
            let (_writer, e) = until_told(rank.write("sim", |_| {}).unwrap());
            assert!(e.message().contains("writer 0 of stream 'sim', on another node"), "{e}");
        }
    });
}

#[test]
fn a_reader_that_loses_the_rank_of_a_writer_is_told_of_which_stream() {
    let job = Job::new();
    let dead = Arc::new(AtomicUsize::new(usize::MAX));
    let fabrics = Local::over_nodes(&[0, 1], Duration::from_secs(60));
    let put = Barrier::new(2);
    // Dropped when the reader is done, whatever it finds.
    let (done, over) = std::sync::mpsc::channel::<()>();
    let (done, over) = (Mutex::new(Some(done)), Mutex::new(over));
    thread::scope(|scope| {
        for (node, inner) in fabrics.into_iter().enumerate() {
            let (dead, spaces) = (dead.clone(), job.spaces(node));
            let (put, done, over) = (&put, &done, &over);
            scope.spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(Mortal { inner, dead: dead.clone() });
                let part = if node == 0 { "sim" } else { "ana" };
                let coupling = Coupling::new(fabric, part, &spaces, LONG).unwrap();
                let rank = Rank { coupling };
                if node == 0 {
                    let mut writer = rank.write("sim", |w| w.readers = 1).unwrap();
                    let variable = writer.define(array(&SHAPE)).unwrap();
                    writer.begin().unwrap();
                    writer
                        .put(variable, &rows(SHAPE, 0, 1), &values(0, &rows(SHAPE, 0, 1)))
                        .unwrap();
                    writer.end().unwrap();
                    put.wait();
                    let _ = over.lock().unwrap().recv();
                    return;
                }
                let _over = done.lock().unwrap().take();
                let mut reader = rank.read("sim", |_| {}).unwrap();
                let step = reader.next_step().unwrap().unwrap();
                put.wait();
                dead.store(0, Ordering::Relaxed);
                let lost = [
                    step.get("T", &rows(SHAPE, 0, 3)).unwrap_err(),
                    reader.next_step().unwrap_err(),
                    rank.read("sim", |r| r.group = "late".to_owned()).unwrap_err(),
                ];
                for e in lost {
                    assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(0)));
                    assert_eq!(
                        e.message(),
                        "has not answered for 30 s, and stream 'sim' cannot be had from its node"
                    );
                    assert!(e.hint().unwrap().contains("opened anew"), "{e:?}");
                }
                drop((step, reader));
            });
        }
    });
}
