//! Models of sessions under a scheduler that tries many interleavings of all threads: consumers, readers, deadlines,
//! views that come and go, files that close. A lost wake-up, a deadlock or a wrong byte in any of them is a failure,
//! which prints the schedule.
//!
//! Time does not pass here: waits that have an end come to it at random, and deadlines when the model says so.

#![allow(clippy::unwrap_used, clippy::panic)]

use crate::clock;
use crate::{File, Options, Session, open_source};
use shuttle::rand::Rng;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::{Config, Runner, thread};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;
use stead_core::Kind;
use stead_store::faulty::{Faults, FaultySource};
use stead_store::{MemorySource, Source};

const LEN: usize = 5 * 4096;

fn bytes() -> Vec<u8> {
    (0..LEN).map(|i| (i / 7 + i) as u8).collect()
}

/// Blocks of a page, so many of them in memory, so many readers.
fn file(blocks: u64, readers: usize, ahead: bool, faults: Faults) -> File {
    let source = Arc::new(MemorySource::new("m", bytes()));
    let source: Arc<dyn Source> = Arc::new(FaultySource::new(source, faults));
    let options = Options {
        block: Some(4096),
        memory: blocks * 4096,
        readers: Some(readers),
        depth: Some(2),
        ahead,
        ..Options::default()
    };
    open_source(source, &options).unwrap()
}

fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    let config = || {
        let mut config = Config::new();
        config.stack_size = 1 << 18;
        config
    };
    let times =
        |n: usize| std::env::var("STEAD_MODELS").ok().and_then(|t| t.parse().ok()).unwrap_or(n);
    Runner::new(RandomScheduler::new(times(400)), config()).run(model.clone());
    Runner::new(PctScheduler::new(3, times(200)), config()).run(model);
}

fn reads(session: &Session, from: usize, len: usize) {
    let view = session.read(from as u64, len).wait().unwrap();
    assert!(view[..] == bytes()[from..from + len]);
}

#[test]
fn consumers_get_their_bytes_and_all_threads_end() {
    check(|| {
        let file = file(4, 2, true, Faults::default());
        let session = Arc::new(file.session(..).unwrap());
        let consumers: Vec<_> = (0..2)
            .map(|i| {
                let session = session.clone();
                thread::spawn(move || {
                    reads(&session, i * 9000, 5000);
                    let got = session.read_into(100, vec![0; 9000]).wait().unwrap();
                    assert!(got == bytes()[100..9100]);
                })
            })
            .collect();
        for c in consumers {
            c.join().unwrap();
        }
    });
}

#[test]
fn views_come_and_go_while_others_wait_for_room() {
    check(|| {
        let file = file(2, 2, true, Faults::default());
        let session = Arc::new(file.session(..).unwrap());
        let other = session.clone();
        // Each holds a view of one block, and both need more than there is room for.
        let consumer = thread::spawn(move || {
            for block in [0, 2, 4] {
                let view = other.read(block * 4096, 4096).wait().unwrap();
                thread::yield_now();
                drop(view);
            }
        });
        for block in [4, 1] {
            let view = session.read(block * 4096, 10).wait().unwrap();
            assert!(view[..] == bytes()[block as usize * 4096..][..10]);
        }
        consumer.join().unwrap();
    });
}

/// What a program does whose user loses patience: all blocks are lent, a read is given up, and then the views go.
#[test]
fn who_gives_up_waiting_for_room_leaves_it_to_the_next() {
    check(|| {
        let file = file(2, 1, false, Faults::default());
        let session = Arc::new(file.session(..).unwrap());
        let held: Vec<_> = (0..2).map(|i| session.read(i * 4096, 10).wait().unwrap()).collect();
        let holder = thread::spawn(move || {
            thread::yield_now();
            drop(held);
        });
        let mut late = session.read(4 * 4096, 10);
        if shuttle::rand::thread_rng().gen_bool(0.5) {
            let mut cx = Context::from_waker(Waker::noop());
            drop(Pin::new(&mut late).poll(&mut cx));
        } else if let Some(view) = late.wait_for(Duration::from_millis(1)) {
            assert!(view.unwrap()[..] == bytes()[4 * 4096..][..10]);
        }
        late.cancel();
        reads(&session, 3 * 4096, 10);
        holder.join().unwrap();
    });
}

#[test]
fn all_may_be_asked_for_before_anything_is_taken() {
    check(|| {
        let file = file(2, 1, false, Faults::default());
        let session = file.session(..).unwrap();
        let all: Vec<_> = (0..5).map(|i| session.read(i * 4096, 100)).collect();
        for (i, read) in all.into_iter().enumerate().rev() {
            assert!(read.wait().unwrap()[..] == bytes()[i * 4096..][..100]);
        }
    });
}

#[test]
fn answers_that_fill_the_memory_wait_for_those_who_want_them() {
    check(|| {
        let file = file(2, 2, false, Faults::default());
        let session = file.session(..).unwrap();
        let all: Vec<_> = (0..4).map(|i| session.read(i * 4096 + 1, 4096)).collect();
        for (i, read) in all.into_iter().enumerate().rev() {
            assert!(read.wait().unwrap()[..] == bytes()[i * 4096 + 1..][..4096]);
        }
    });
}

#[test]
fn whatever_is_taken_first_the_memory_holds() {
    check(|| {
        let (blocks, readers) = (2, 2);
        let file = file(blocks, readers, false, Faults::default());
        let session = Arc::new(file.session(..).unwrap());
        // Within a block, all of one, across blocks, and longer than half of the budget.
        let parts =
            [(10, 100), (4096, 4096), (8000, 1000), (2000, 9000), (12_300, 50), (16_000, 800)];
        let consumers: Vec<_> = (0..2)
            .map(|_| {
                let session = session.clone();
                thread::spawn(move || {
                    let mut reads: Vec<_> =
                        parts.iter().map(|(at, n)| (*at, *n, session.read(*at, *n))).collect();
                    while !reads.is_empty() {
                        let at = shuttle::rand::thread_rng().gen_range(0..reads.len());
                        let (at, n, read) = reads.swap_remove(at);
                        let view = read.wait().unwrap();
                        assert!(view[..] == bytes()[at as usize..][..n]);
                        // What the budget has, a block for each reader, an answer for each that waits.
                        let held = session.file().counts().held;
                        assert!(held <= blocks * 4096 + readers as u64 * 4096 + 2 * 9000, "{held}");
                    }
                })
            })
            .collect();
        for c in consumers {
            c.join().unwrap();
        }
    });
}

#[test]
fn functions_get_answers_for_which_there_is_no_memory() {
    check(|| {
        let file = file(2, 2, false, Faults::default());
        let session = file.session(..).unwrap();
        let (send, receive) = shuttle::sync::mpsc::channel();
        let mut parts = vec![(0, 20_000), (4096, 4096), (1, 19_999), (8000, 1000), (100, 12_000)];
        for (at, n) in parts.clone() {
            let send = send.clone();
            session.read(at, n).then(move |answer| {
                let view = answer.unwrap();
                assert!(view[..] == bytes()[at as usize..][..n]);
                send.send((at, n)).unwrap();
            });
        }
        for _ in 0..parts.len() {
            let got = receive.recv().unwrap();
            parts.retain(|part| *part != got);
        }
        assert!(parts.is_empty());
    });
}

#[test]
fn what_is_cancelled_leaves_others_alone() {
    check(|| {
        let file = file(2, 2, false, Faults::default());
        let session = Arc::new(file.session(..).unwrap());
        let other = session.clone();
        let canceller = thread::spawn(move || {
            for block in 0..4u64 {
                let read = other.read(block * 4096, 5000.min(LEN - block as usize * 4096));
                if shuttle::rand::thread_rng().gen_bool(0.5) {
                    read.cancel();
                } else {
                    drop(read.wait().unwrap());
                }
            }
        });
        for block in [0usize, 3, 1] {
            reads(&session, block * 4096, 4096);
        }
        canceller.join().unwrap();
    });
}

#[test]
fn deadlines_and_answers_race_and_one_of_them_wins() {
    check(|| {
        let file = file(2, 1, false, Faults::default());
        let session = Arc::new(file.session(..).unwrap());
        let shared = session.shared().clone();
        let clock = thread::spawn(move || {
            for _ in 0..3 {
                shared.expire(clock::after(Duration::from_secs(1_000_000)));
                thread::yield_now();
            }
        });
        for block in 0..4usize {
            match session.read(block as u64 * 4096, 4096).wait() {
                Ok(view) => assert!(view[..] == bytes()[block * 4096..][..4096]),
                Err(e) => assert_eq!(e.kind(), Kind::Timeout),
            }
        }
        clock.join().unwrap();
        // Those that were over take no room.
        reads(&session, 100, 9000);
    });
}

#[test]
fn functions_are_called_though_everything_is_closed() {
    check(|| {
        let (send, receive) = shuttle::sync::mpsc::channel();
        {
            let file = file(2, 1, true, Faults::default());
            let session = file.session(..).unwrap();
            for block in 0..3u64 {
                let send = send.clone();
                session.read(block * 4096, 5000).then(move |answer| {
                    send.send((block, answer.unwrap().to_vec())).unwrap();
                });
            }
        }
        drop(send);
        for _ in 0..3 {
            let (block, got) = receive.recv().unwrap();
            assert!(got == bytes()[block as usize * 4096..][..5000]);
        }
        assert!(receive.recv().is_err());
    });
}

#[test]
fn functions_may_ask_again() {
    check(|| {
        let file = file(2, 1, false, Faults::default());
        let session = Arc::new(file.session(..).unwrap());
        let (send, receive) = shuttle::sync::mpsc::channel();
        let again = session.clone();
        session.read(0, 10).then(move |first| {
            drop(first.unwrap());
            again.read(3 * 4096, 10).then(move |second| {
                send.send(second.unwrap().to_vec()).unwrap();
            });
        });
        assert!(receive.recv().unwrap() == bytes()[3 * 4096..][..10]);
    });
}

#[test]
fn bad_bytes_are_the_error_of_those_who_want_them() {
    check(|| {
        let faults = Faults { bad_byte: Some(5000), ..Faults::default() };
        let file = file(3, 2, true, faults);
        let session = Arc::new(file.session(..).unwrap());
        let other = session.clone();
        let unlucky = thread::spawn(move || {
            assert_eq!(other.read(4990, 20).wait().unwrap_err().kind(), Kind::Io);
        });
        reads(&session, 4096, 800);
        reads(&session, 6000, 6000);
        unlucky.join().unwrap();
    });
}

/// A device that keeps its first block for as long as it is told to.
#[derive(Debug)]
struct Keeps(crate::sync::Mutex<bool>, crate::sync::Condvar);

impl Source for Keeps {
    fn path(&self) -> &std::path::Path {
        std::path::Path::new("keeps")
    }

    fn len(&self) -> u64 {
        LEN as u64
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> stead_core::Result<()> {
        let mut keeps = crate::sync::lock(&self.0);
        while offset == 0 && *keeps {
            keeps = crate::sync::wait(&self.1, keeps);
        }
        buf.copy_from_slice(&bytes()[offset as usize..][..buf.len()]);
        Ok(())
    }
}

#[test]
fn others_are_answered_while_the_device_keeps_all_readers() {
    check(|| {
        let device = Keeps(crate::sync::Mutex::new(true), crate::sync::Condvar::new());
        let device = Arc::new(device);
        let options = Options {
            block: Some(4096),
            memory: 4 * 4096,
            readers: Some(1),
            depth: Some(2),
            ahead: false,
            ..Options::default()
        };
        let file = open_source(device.clone(), &options).unwrap();
        let session = file.session(..).unwrap();
        let first = session.read(10, 10);
        let (shared, done) = (session.shared().clone(), Arc::new(crate::sync::Mutex::new(false)));
        let over = done.clone();
        let clock = thread::spawn(move || {
            while !*crate::sync::lock(&over) {
                // Long enough for readers to be missed, and before the deadline.
                shared.expire(clock::after(Duration::from_secs(1)));
                thread::yield_now();
            }
        });
        for block in [1, 3] {
            reads(&session, block * 4096, 10);
        }
        *crate::sync::lock(&done) = true;
        clock.join().unwrap();
        assert!(!first.is_ready());
        *crate::sync::lock(&device.0) = false;
        device.1.notify_all();
        assert!(first.wait().unwrap()[..] == bytes()[10..20]);
    });
}

#[test]
fn sessions_come_and_go() {
    check(|| {
        let file = file(2, 2, true, Faults::default());
        let others: Vec<_> = (0..2)
            .map(|i: usize| {
                let file = file.clone();
                thread::spawn(move || {
                    let session = file.session(i as u64 * 4096..).unwrap();
                    reads(&session, 2 * 4096, 4096);
                    session.close().unwrap();
                })
            })
            .collect();
        reads(&file.session(..).unwrap(), 0, LEN);
        drop(file);
        for o in others {
            o.join().unwrap();
        }
    });
}
