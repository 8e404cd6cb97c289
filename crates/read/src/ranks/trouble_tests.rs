//! Ranks that hang, fail, close early or do several things at once, as threads.

use super::opening::{FILES, TAGS};
use super::tests::{contents, file, meet, on_ranks, small};
use super::wire::Message;
use super::*;
use crate::Options;
use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex, Weak};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_fabric::Fabric;
use stead_fabric::testing::{Between, Meddle};
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

    fn pass(&self) {
        drop(self.moved.wait_while(self.shut.lock().unwrap(), |shut| *shut).unwrap());
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
        self.pass();
        buf.copy_from_slice(&self.bytes[offset as usize..][..buf.len()]);
        Ok(())
    }
}

fn nowhere() -> Result<Arc<dyn Source>> {
    Err(Error::new(Kind::NotFound, "not here"))
}

/// Messages that were sent and that nobody has taken, of the tags of files: by rank and tag.
type Lying = Mutex<HashMap<(usize, u32), i64>>;

/// What a fabric does that counts them.
struct Count {
    rank: usize,
    lying: Arc<Lying>,
    /// While this is shut, no bytes of the file go out.
    gate: Arc<Gate>,
}

impl Meddle for Count {
    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        let of_service = tag >= FILES && tag.is_multiple_of(TAGS);
        if of_service && matches!(Message::decode(&bytes), Ok(Message::Bytes { .. })) {
            self.gate.pass();
        }
        *self.lying.lock().unwrap().entry((to, tag)).or_default() += 1;
        vec![bytes]
    }

    fn taken(&self, tag: u32, _: &[u8]) {
        *self.lying.lock().unwrap().entry((self.rank, tag)).or_default() -= 1;
    }
}

/// A fabric that counts them, and holds back bytes of the file while the gate is shut.
fn counting(inner: Arc<dyn Fabric>, lying: &Arc<Lying>, gate: &Arc<Gate>) -> Arc<dyn Fabric> {
    let (rank, lying, gate) = (inner.rank(), lying.clone(), gate.clone());
    Arc::new(Between::new(inner, Count { rank, lying, gate }))
}

fn opened() -> Arc<Gate> {
    let gate = Gate::shut(0);
    gate.open();
    gate
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
        let fabric = counting(inner, &lying, &opened());
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
    let ways: Vec<_> = (0..3).map(|_| Gate::shut(0)).collect();
    on_ranks(&[0, 1], |inner| {
        let rank = inner.rank();
        for (gate, way) in gates.iter().zip(&ways) {
            let fabric = counting(inner.clone(), &lying, way);
            let weak = Arc::downgrade(&fabric);
            let source = if rank == 1 { Ok(gate.clone() as _) } else { nowhere() };
            let file = open_source(fabric.clone(), "gate", source, &small(Engine::Auto)).unwrap();
            let session = file.session(..).unwrap();
            if rank == 0 {
                let read = session.read(0, 8 * BLOCK);
                // It has been asked for.
                a_while();
                read.cancel();
                // There are answers, which nobody wants any more, and they are long on their way.
                gate.open();
                a_while();
            }
            meet(&*inner);
            drop((session, file));
            meet(&*inner);
            a_while();
            way.open();
            drop(fabric);
            ended(&weak);
            meet(&*inner);
        }
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
        let session = file.session(..).unwrap();
        let shared = session.shared();
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
        let fabric = counting(inner, &lying, &opened());
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

/// A fabric of a rank that dies when it has sent so many messages.
struct Countdown(std::sync::atomic::AtomicI64);

impl Meddle for Countdown {
    fn check(&self) -> Result<()> {
        match self.0.load(std::sync::atomic::Ordering::SeqCst) {
            ..0 => Err(Error::new(Kind::Peer, "dead")),
            _ => Ok(()),
        }
    }

    fn send(&self, _: usize, _: u32, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        match self.0.fetch_sub(1, std::sync::atomic::Ordering::SeqCst) {
            ..=0 => vec![],
            _ => vec![bytes],
        }
    }
}

#[test]
fn a_rank_that_dies_while_all_open_or_begin_is_an_error_for_all() {
    let (_dir, path, bytes) = file(50_000);
    for dies in [0, 1, 2] {
        // At each of its messages until it has a session.
        let mut begun = 0;
        for after in 0..40 {
            let outcomes = on_ranks(&[0, 1, 1], |fabric| {
                let rank = fabric.rank();
                let fabric: Arc<dyn Fabric> = match rank == dies {
                    true => Arc::new(Between::new(fabric, Countdown(after.into()))),
                    false => fabric,
                };
                let begun = open(fabric, &path, &small(Engine::Pread))
                    .and_then(|file| file.session(..).map(|session| (file, session)));
                let Ok((file, session)) = begun else { return begun.err() };
                // What a rank has read itself needs nobody.
                let read = session.read(0, 50_000).wait().map(|view| assert!(view[..] == bytes));
                drop((session, file));
                read.err()
            });
            let told: Vec<_> = outcomes.iter().flatten().map(Error::kind).collect();
            assert!(told.iter().all(|kind| matches!(kind, Kind::Peer)), "{after} {outcomes:?}");
            begun += usize::from(told.is_empty());
        }
        assert!(begun > 0 && begun < 40, "{begun}");
    }
}

#[test]
fn a_file_that_becomes_shorter_is_an_error_for_all() {
    let (_dir, path, _) = file(400_000);
    for engine in [Engine::Auto, Engine::Pread] {
        std::fs::write(&path, contents(400_000)).unwrap();
        let told = on_ranks(&[0, 1, 1], |fabric| {
            let options = Options { ahead: false, ..small(engine) };
            let file = open(fabric.clone(), &path, &options).unwrap();
            let session = file.session(..).unwrap();
            meet(&*fabric);
            if fabric.rank() == 1 {
                std::fs::File::options().write(true).open(&path).unwrap().set_len(5000).unwrap();
            }
            meet(&*fabric);
            let read = session.read(0, 400_000).wait().map(drop);
            let close = session.close();
            meet(&*fabric);
            (read.err().map(|e| e.kind()), close.err().map(|e| e.kind()))
        });
        assert_eq!(told, [(Some(Kind::Changed), Some(Kind::Changed)); 3]);
    }
}
