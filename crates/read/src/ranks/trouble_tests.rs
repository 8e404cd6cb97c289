//! Ranks that hang, fail, close early or do several things at once, as threads.

use super::tests::{contents, file, meet, on_ranks, small};
use super::*;
use crate::Options;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_fabric::Fabric;
use stead_store::{Engine, Source};

const BLOCK: usize = 4096;

/// A source that gives nothing while it is shut.
#[derive(Debug)]
struct Gate {
    bytes: Vec<u8>,
    shut: Mutex<bool>,
    moved: Condvar,
}

impl Gate {
    fn shut(blocks: usize) -> Arc<Gate> {
        let bytes = contents(blocks * BLOCK);
        Arc::new(Gate { bytes, shut: Mutex::new(true), moved: Condvar::new() })
    }

    fn open(&self) {
        *self.shut.lock().unwrap() = false;
        self.moved.notify_all();
    }
}

impl Source for Gate {
    fn path(&self) -> &std::path::Path {
        std::path::Path::new("gate")
    }
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        drop(self.moved.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
        buf.copy_from_slice(&self.bytes[offset as usize..][..buf.len()]);
        Ok(())
    }
}

fn nowhere() -> Result<Arc<dyn Source>> {
    Err(Error::new(Kind::NotFound, "not here"))
}

/// Messages that were sent and that nobody has taken, of the tags of files: by rank and tag.
type Lying = Mutex<HashMap<(usize, u32), i64>>;

/// A fabric that counts them.
struct Counting {
    inner: Arc<dyn Fabric>,
    lying: Arc<Lying>,
}

impl Counting {
    fn took<T>(&self, tag: u32, taken: Result<Option<T>>) -> Result<Option<T>> {
        if let Ok(Some(_)) = &taken {
            *self.lying.lock().unwrap().entry((self.rank(), tag)).or_default() -= 1;
        }
        taken
    }
}

impl Fabric for Counting {
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
    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        *self.lying.lock().unwrap().entry((to, tag)).or_default() += 1;
        self.inner.send(to, tag, bytes)
    }
    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.took(tag, self.inner.recv_within(from, tag, within))
    }
    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.took(tag, self.inner.recv_any(tag, within))
    }
    fn alive(&self, rank: usize) -> Result<()> {
        self.inner.alive(rank)
    }
}

/// Until the threads of a fabric have ended.
fn ended(fabric: &Weak<dyn Fabric>) {
    while fabric.upgrade().is_some() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Time for what should not happen.
fn a_while() {
    std::thread::sleep(Duration::from_millis(200));
}

#[test]
fn a_node_that_hangs_keeps_nobody_from_the_others() {
    let gate = Gate::shut(64);
    on_ranks(&[0, 1, 2], |fabric| {
        let rank = fabric.rank();
        let source: Result<Arc<dyn Source>> = match rank {
            0 => nowhere(),
            1 => Ok(gate.clone()),
            _ => Gate::shut(64).open_one(),
        };
        let file = open_source(fabric.clone(), "gate", source, &small(Engine::Auto)).unwrap();
        let session = file.session(..).unwrap();
        if rank == 0 {
            // The first half is of the rank that hangs.
            let read = |block: usize| session.read((block * BLOCK) as u64, BLOCK);
            let hang: Vec<_> = (0..32).map(read).collect();
            for block in 32..64 {
                let view = read(block).wait().unwrap();
                assert!(view[..] == gate.bytes[block * BLOCK..][..BLOCK]);
            }
            assert!(hang.iter().all(|r| !r.is_ready()));
            gate.open();
            for (block, read) in hang.into_iter().enumerate() {
                assert!(read.wait().unwrap()[..] == gate.bytes[block * BLOCK..][..BLOCK]);
            }
        }
        meet(&*fabric);
    });
}

impl Gate {
    /// As a source that is open.
    fn open_one(self: Arc<Self>) -> Result<Arc<dyn Source>> {
        self.open();
        Ok(self)
    }
}

#[test]
fn reads_that_wait_are_answered_though_all_have_closed_the_file() {
    let gate = Gate::shut(8);
    on_ranks(&[0, 1], |fabric| {
        let source = if fabric.rank() == 1 { Ok(gate.clone() as _) } else { nowhere() };
        let file = open_source(fabric, "gate", source, &small(Engine::Auto)).unwrap();
        let session = file.session(..).unwrap();
        let read = session.read(5000, 9000);
        drop((session, file));
        a_while();
        gate.open();
        assert!(read.wait().unwrap()[..] == gate.bytes[5000..14_000]);
    });
}

#[test]
fn views_outlive_what_ranks_say_to_each_other() {
    let lying: Arc<Lying> = Arc::default();
    on_ranks(&[0, 1], |inner| {
        let source = if inner.rank() == 1 { Gate::shut(8).open_one() } else { nowhere() };
        let fabric: Arc<dyn Fabric> = Arc::new(Counting { inner, lying: lying.clone() });
        let weak = Arc::downgrade(&fabric);
        let file = open_source(fabric, "gate", source, &small(Engine::Auto)).unwrap();
        let session = file.session(..).unwrap();
        let view = session.read(5000, 9000).wait().unwrap();
        drop((session, file));
        // A far engine with a view keeps its fabric; its service is over all the same.
        if view.len() == 9000 {
            let over = || lying.lock().unwrap().values().all(|n| *n == 0);
            while !over() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(view[..] == contents(8 * BLOCK)[5000..14_000]);
        drop(view);
        ended(&weak);
    });
}

#[test]
fn no_answer_is_left_lying() {
    let lying: Arc<Lying> = Arc::default();
    let gates: Vec<_> = (0..3).map(|_| Gate::shut(8)).collect();
    on_ranks(&[0, 1], |inner| {
        let rank = inner.rank();
        let fabric: Arc<dyn Fabric> = Arc::new(Counting { inner, lying: lying.clone() });
        let weak = Arc::downgrade(&fabric);
        for gate in &gates {
            let source = if rank == 1 { Ok(gate.clone() as _) } else { nowhere() };
            let file = open_source(fabric.clone(), "gate", source, &small(Engine::Auto)).unwrap();
            let session = file.session(..).unwrap();
            if rank == 0 {
                let read = session.read(5000, 1000);
                // It has been asked for.
                a_while();
                read.cancel();
            }
            drop((session, file));
            meet(&*fabric);
            a_while();
            gate.open();
        }
        drop(fabric);
        ended(&weak);
    });
    let lying = lying.lock().unwrap();
    assert!(lying.values().all(|n| *n == 0), "{lying:?}");
}

#[test]
fn sessions_of_two_files_begin_at_the_same_time() {
    let (_dir, one, a) = file(100_000);
    let (_dir2, two, b) = file(90_000);
    on_ranks(&[0, 1, 1], |fabric| {
        let f = open(fabric.clone(), &one, &small(Engine::Auto)).unwrap();
        let g = open(fabric, &two, &small(Engine::Auto)).unwrap();
        std::thread::scope(|scope| {
            for (file, bytes, step) in [(&f, &a, 7), (&g, &b, 11)] {
                scope.spawn(move || {
                    for i in 0..60 {
                        let (from, to) = (i * step, 80_000 + i * step);
                        let session = file.session(from..to).unwrap();
                        let view = session.read(from, 100).wait().unwrap();
                        assert!(view[..] == bytes[from as usize..][..100]);
                    }
                });
            }
        });
    });
}

#[test]
fn what_one_rank_refuses_all_hear_of() {
    let (_dir, path, bytes) = file(10_000);
    on_ranks(&[0, 1, 0], |fabric| {
        let e = if fabric.rank() == 1 {
            refuse(&*fabric, Error::usage("there is no such engine"))
        } else {
            let e = open(fabric.clone(), &path, &small(Engine::Auto)).err().unwrap();
            assert_eq!(e.place().rank, Some(1));
            e
        };
        assert_eq!((e.kind(), e.message()), (Kind::Usage, "there is no such engine"));
        let file = open(fabric, &path, &small(Engine::Auto)).unwrap();
        let session = file.session(..).unwrap();
        assert!(session.read(0, 10_000).wait().unwrap()[..] == bytes);
    });
}

#[test]
fn many_ranks_of_a_node_stay_within_its_memory() {
    let (_dir, path, _) = file(20_000_000);
    let memory = 16 << 20;
    on_ranks(&[0; 16], |fabric| {
        let options = Options { block: Some(2 << 20), memory, ..small(Engine::Pread) };
        let file = open(fabric, &path, &options).unwrap();
        let shared = file.shared();
        // Four of them read, into what they share; some of it is for what each gets from others.
        assert!(shared.memory() <= memory / 4, "{}", shared.memory());
        assert!(shared.choice().block * 4 <= memory / 2 / 16, "{}", shared.choice().block);
    });
}

#[test]
fn a_rank_that_is_asked_for_much_still_gets_its_own_answers() {
    let gate = Gate::shut(160);
    let lying: Arc<Lying> = Arc::default();
    on_ranks(&[0, 1], |inner| {
        let rank = inner.rank();
        let fabric = Arc::new(Counting { inner, lying: lying.clone() });
        let source = if rank == 0 { Ok(gate.clone() as _) } else { Gate::shut(160).open_one() };
        let options =
            Options { readers: Some(50), memory: 4 << 20, ahead: false, ..small(Engine::Auto) };
        let file = open_source(fabric.clone(), "gate", source, &options).unwrap();
        let session = file.session(..).unwrap();
        let read = |block: usize| session.read((block * BLOCK) as u64, BLOCK);
        let right = |block: usize, bytes: &[u8]| bytes == &gate.bytes[block * BLOCK..][..BLOCK];
        if rank == 1 {
            // More than are answered at a time, of a rank that cannot answer.
            let asked: Vec<_> = (0..70).map(read).collect();
            a_while();
            meet(&*fabric);
            meet(&*fabric);
            gate.open();
            for (block, read) in asked.into_iter().enumerate() {
                assert!(right(block, &read.wait().unwrap()));
            }
        } else {
            meet(&*fabric);
            for block in 100..150 {
                assert!(right(block, &read(block).wait().unwrap()));
            }
            meet(&*fabric);
        }
        meet(&*fabric);
    });
}
