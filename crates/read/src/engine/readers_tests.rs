//! Readers that the device keeps.

use super::*;
use crate::engine::Lanes;
use crate::finish::AsView;
use crate::options::Options;
use crate::registry;
use crate::request::Read;
use crate::window::Next;
use std::cell::Cell;
use std::path::Path;
use std::sync::{Condvar, Mutex};
use stead_core::Kind;
use stead_store::Source;

thread_local! {
    /// Nobody who calls readers from this thread gets one.
    pub(super) static NO_THREADS: Cell<bool> = const { Cell::new(false) };
}

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 40;

/// Blocks before this one come once they are let go.
#[derive(Debug, Default)]
struct Device {
    kept: u64,
    let_go: (Mutex<bool>, Condvar),
}

impl Source for Device {
    fn path(&self) -> &Path {
        Path::new("device")
    }

    fn len(&self) -> u64 {
        BLOCKS * BLOCK
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let block = offset / BLOCK;
        if block < self.kept {
            let guard = self.let_go.0.lock().unwrap();
            drop(self.let_go.1.wait_while(guard, |let_go| !*let_go).unwrap());
        }
        buf.fill(block as u8);
        Ok(())
    }
}

impl Device {
    fn let_go(&self) {
        *self.let_go.0.lock().unwrap() = true;
        self.let_go.1.notify_all();
    }
}

fn open(kept: u64, readers: usize, depth: usize) -> (Arc<Device>, Arc<Shared>) {
    let device = Arc::new(Device { kept, ..Device::default() });
    let options = Options {
        block: Some(BLOCK as usize),
        readers: Some(readers),
        depth: Some(depth),
        ahead: false,
        memory: BLOCKS * BLOCK,
        ..Options::default()
    };
    let shared = registry::open_source(device.clone(), &options).unwrap();
    (device, shared)
}

fn ask(shared: &Arc<Shared>, block: u64, deadline: Option<Duration>) -> Read {
    Read(shared.ask(block * BLOCK, 10, deadline, AsView::new(block * BLOCK, 10)))
}

fn gives(mut read: Read, block: u64) {
    let view = read.wait_for(Duration::from_secs(60)).expect("it is barred").unwrap();
    assert_eq!(view[..], [block as u8; 10]);
}

#[test]
fn who_comes_behind_what_the_device_keeps_is_answered() {
    for (kept, readers, depth) in [(1, 1, 1), (1, 1, 8), (3, 2, 2), (10, 4, 1), (20, 1, 16)] {
        let (device, shared) = open(kept, readers, depth);
        let late = ask(&shared, 0, Some(Duration::from_millis(600)));
        let hangs: Vec<_> = (0..kept).map(|block| ask(&shared, block, None)).collect();
        let others: Vec<_> = (kept..kept + 5).map(|b| (b, ask(&shared, b, None))).collect();
        for (block, read) in others {
            gives(read, block);
        }
        assert_eq!(late.wait().unwrap_err().kind(), Kind::Timeout);
        // One that comes when those who helped have ended, or not.
        gives(ask(&shared, 39, None), 39);
        assert!(hangs.iter().all(|read| !read.is_ready()));
        device.let_go();
        for (block, read) in hangs.into_iter().enumerate() {
            gives(read, block as u64);
        }
        registry::close(&shared);
    }
}

#[test]
fn a_request_that_nobody_would_end_at_its_deadline_fails_at_once() {
    let (device, shared) = open(1, 1, 1);
    let soon = Some(Duration::from_millis(100));
    crate::deadline::NO_THREADS.set(true);
    let mut read = ask(&shared, 0, soon);
    crate::deadline::NO_THREADS.set(false);
    let answer = read.wait_for(Duration::from_secs(60)).expect("it has no deadline");
    assert_eq!(answer.unwrap_err().kind(), Kind::Io);
    // Nobody reads for it, and the next one is as ever.
    assert_eq!(shared.lock().readers, 0);
    assert_eq!(ask(&shared, 0, soon).wait().unwrap_err().kind(), Kind::Timeout);
    gives(ask(&shared, 5, None), 5);
    device.let_go();
    registry::close(&shared);
}

#[test]
fn readers_are_not_more_than_there_may_be_and_end_when_the_device_lets_go() {
    let (device, shared) = open(30, 1, 2);
    let hangs: Vec<_> = (0..30).map(|block| ask(&shared, block, None)).collect();
    for _ in 0..20 {
        // As if the time had come.
        shared.expire(clock::after(KEPT));
        std::thread::yield_now();
    }
    assert!(shared.lock().readers <= MOST);
    device.let_go();
    for (block, read) in hangs.into_iter().enumerate() {
        gives(read, block as u64);
    }
    registry::close(&shared);
    let gone = |_| {
        std::thread::sleep(Duration::from_millis(5));
        let inner = shared.lock();
        (inner.readers, inner.away.count) == (0, 0)
    };
    assert!((0..10_000).any(gone));
}

/// Four readers that should be four, and a request that none of them has come to; the threads are only numbers.
fn four_readers() -> (Arc<Shared>, Read) {
    let (_, shared) = open(0, 4, 1);
    shared.lock().readers = 4;
    let read = ask(&shared, 0, None);
    (shared, read)
}

/// All readers go, and the time comes at which they are missed. Gives when they went, and how many more there are.
fn all_go(shared: &Arc<Shared>, inner: &mut Inner, new: usize) -> (u64, usize) {
    let rounds: Vec<u64> = (0..new).map(|_| shared.leaves(inner)).collect();
    assert!(rounds.iter().all(|round| *round == rounds[0]));
    let more = shared.look_for_readers(inner, clock::after(2 * KEPT));
    inner.readers += more;
    inner.away.stand_ins += more;
    (rounds[0], more)
}

#[test]
fn those_who_stand_in_go_when_the_device_lets_go_though_there_is_work() {
    let (shared, read) = four_readers();
    let mut inner = shared.lock();
    let (first, more) = all_go(&shared, &mut inner, 4);
    assert_eq!(more, 4);
    // They are kept, too.
    let (second, more) = all_go(&shared, &mut inner, 4);
    assert_eq!(more, 8);
    for (left, round) in [first; 4].into_iter().chain([second; 4]).enumerate() {
        inner.returns(round);
        while shared.too_many(&inner) {
            inner.readers -= 1;
            shared.ends(&mut inner);
        }
        // Four that are not kept.
        assert_eq!((inner.readers, inner.busy()), (4 + 7 - left, 4));
    }
    assert_eq!(inner.away.stand_ins, 0);
    // One that went after that is nobody that was replaced.
    let last = shared.leaves(&mut inner);
    inner.returns(last);
    assert_eq!((inner.readers, inner.busy()), (4, 4));
    inner.readers = 0;
    drop(inner);
    drop(read);
    registry::close(&shared);
}

#[test]
fn what_comes_from_those_who_stand_in_is_measured() {
    let (shared, read) = four_readers();
    all_go(&shared, &mut shared.lock(), 4);
    assert_eq!(shared.lock().at_work(), 8);
    assert_eq!(shared.lock().busy(), 4);
    let found = |shared: &Arc<Shared>| sync::lock(&shared.tuner).found();
    assert_eq!(found(&shared), None);
    for _ in 0..100 {
        std::thread::sleep(Duration::from_micros(10));
        shared.landed(BLOCK as usize);
    }
    assert!(found(&shared).is_some());
    shared.lock().readers = 0;
    drop(read);
    registry::close(&shared);
}

#[test]
fn who_could_not_begin_to_stand_in_is_not_counted() {
    let (shared, read) = four_readers();
    all_go(&shared, &mut shared.lock(), 4);
    for left in (1..4).rev() {
        shared.lost(&Error::internal("no queue"));
        assert_eq!(shared.lock().away.stand_ins, left);
    }
    assert!(!read.is_ready());
    shared.lock().readers = 0;
    drop(read);
    registry::close(&shared);
}

#[test]
fn without_threads_nobody_is_counted_as_standing_in() {
    let (shared, read) = four_readers();
    let mut inner = shared.lock();
    let _rounds = [0; 4].map(|_| shared.leaves(&mut inner));
    let more = shared.look_for_readers(&mut inner, clock::after(2 * KEPT));
    // Nobody is missed meanwhile, as time passes here.
    inner.away.count = 0;
    drop(inner);
    NO_THREADS.set(true);
    shared.stand_in(more);
    NO_THREADS.set(false);
    let mut inner = shared.lock();
    assert_eq!((more, inner.readers, inner.away.stand_ins), (4, 4, 0));
    inner.readers = 0;
    drop(inner);
    drop(read);
    registry::close(&shared);
}

#[test]
fn who_was_stopped_with_all_readers_does_not_miss_them() {
    let (shared, read) = four_readers();
    let mut inner = shared.lock();
    let rounds: Vec<u64> = (0..4).map(|_| shared.leaves(&mut inner)).collect();
    let late = inner.away.look.unwrap().0 + LATE + Duration::from_secs(10);
    assert_eq!(shared.look_for_readers(&mut inner, late), 0);
    // It looks again, and finds that they have not come back since.
    let at = inner.away.look.expect("nobody looks again").0;
    assert_eq!(shared.look_for_readers(&mut inner, at), 4);
    rounds.into_iter().for_each(|round| inner.returns(round));
    inner.readers = 0;
    drop(inner);
    drop(read);
    registry::close(&shared);
}

#[test]
fn nobody_stands_in_where_no_more_may_be_read_of_a_place() {
    for places in [1, 2] {
        let (_, shared) = open(0, 1, 1);
        shared.set_lanes(Lanes { of: Box::new(move |at| (at / BLOCK) as usize % places), most: 1 });
        shared.lock().readers = 1;
        let hangs = ask(&shared, 0, None);
        let mut inner = shared.lock();
        assert!(matches!(shared.take(&mut inner), Next::Read(0, _)));
        drop(inner);
        let waits = ask(&shared, 1, None);
        let mut inner = shared.lock();
        shared.leaves(&mut inner);
        let more = shared.look_for_readers(&mut inner, clock::after(2 * KEPT));
        assert_eq!((more, inner.away.look.is_some()), (places - 1, places > 1), "{places}");
        inner.readers = 0;
        drop(inner);
        drop((hangs, waits));
        registry::close(&shared);
    }
}

#[test]
fn who_sleeps_stands_in_before_others_are_made() {
    let (_, shared) = open(0, 1, 1);
    // As after one came back that had been replaced.
    let mut inner = shared.lock();
    (inner.readers, inner.asleep) = (2, 1);
    drop(inner);
    let read = ask(&shared, 0, None);
    let mut inner = shared.lock();
    shared.leaves(&mut inner);
    assert_eq!(shared.look_for_readers(&mut inner, clock::after(2 * KEPT)), 1);
    // Nobody is missed meanwhile, as time passes here.
    inner.away.count = 0;
    drop(inner);
    shared.stand_in(1);
    let mut inner = shared.lock();
    assert_eq!((inner.readers, inner.called, inner.away.stand_ins), (2, 1, 1));
    (inner.readers, inner.asleep, inner.called) = (0, 0, 0);
    drop(inner);
    drop(read);
    registry::close(&shared);
}
