//! Readers by themselves: what they do when they end in other ways than they should, and whom they wake.

use super::*;
use crate::engine::New;
use crate::options::Options;
use crate::registry;
use crate::request::Read;
use stead_core::{Error, Kind};
use stead_store::faulty::{Faults, FaultySource};
use stead_store::{Engine, FileSource, IoOptions, MemorySource};

const BLOCK: usize = 4096;

fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i / BLOCK * 31 + i % 251) as u8).collect()
}

/// A file of eight blocks, and what is in it.
fn shared() -> (tempfile::TempDir, Arc<Shared>, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    let bytes = contents(8 * BLOCK);
    std::fs::write(&path, &bytes).unwrap();
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    let options = Options {
        block: Some(BLOCK),
        readers: Some(2),
        depth: Some(4),
        ahead: false,
        memory: 1 << 20,
        io,
        ..Options::default()
    };
    let source = Arc::new(FileSource::open(&path).unwrap());
    (dir, registry::open_source(source, &options).unwrap(), bytes)
}

#[test]
fn what_was_given_up_before_is_not_taken_for_another_block() {
    let (_dir, shared, bytes) = shared();
    let mut reader = Reader::new(&shared).unwrap();
    // Begun, and forgotten after an error of the queue.
    for block in [0, 1] {
        reader.queue.submit(block, shared.source(), block * BLOCK as u64, BLOCK).unwrap();
    }
    let mut inner = shared.lock();
    assert!(inner.window.ask(1, 3, BLOCK as u64).is_none());
    assert!(matches!(inner.window.take(), Next::Read(3, _)));
    drop(inner);
    reader.begin(vec![(3, 3 * BLOCK as u64..4 * BLOCK as u64)], Vec::new());
    reader.land();
    let inner = shared.lock();
    let Some(Kept::Block(block)) = inner.window.ready(3) else {
        panic!("the block is not there");
    };
    assert!(block[..] == bytes[3 * BLOCK..4 * BLOCK]);
    assert!(inner.window.ready(0).is_none() && inner.window.ready(1).is_none());
    drop(inner);
    registry::close(&shared);
}

#[test]
fn without_io_uring_no_reader_has_blocks_for_itself_that_it_does_not_read() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, contents(8 * BLOCK)).unwrap();
    let options = Options {
        block: Some(BLOCK),
        readers: Some(1),
        depth: Some(4),
        ahead: false,
        ..Options::default()
    };
    let source: Arc<dyn stead_store::Source> = Arc::new(FileSource::open(&path).unwrap());
    // As on a network file system.
    let new = New { lender: None, ..New::prepare(source, &options).unwrap() };
    let shared = registry::open_new(new);
    shared.lock().readers = 1;
    let ask = |at: u64| Read(shared.ask(at, 50, None, crate::finish::AsView::new(at, 50)));
    let reads = [0, 1, 2, 3].map(|block| ask(block * BLOCK as u64));
    stead_store::faulty::forbid_io_uring(true);
    let mut reader = Reader::new(&shared).unwrap();
    let Todo::Begin(blocks, gone) = reader.next() else { panic!("there is something to begin") };
    // Others may read all of them if the first one takes long.
    reader.begin(blocks, gone);
    assert_eq!((reader.flying.len(), shared.lock().away.begun.len()), (0, 4));
    for _ in 0..4 {
        reader.land();
    }
    stead_store::faulty::forbid_io_uring(false);
    assert!(reads.iter().all(Read::is_ready));
    drop(reads);
    shared.lock().readers = 0;
    registry::close(&shared);
}

#[test]
fn requests_outlive_a_reader_while_there_are_others() {
    let (_dir, shared, _) = shared();
    // Two readers that never come to it.
    shared.lock().readers = 2;
    let read = Read(shared.ask(100, 50, None, crate::finish::AsView::new(100, 50)));
    let error = Error::new(Kind::Io, "no queue");
    shared.lost(&error);
    assert!(!read.is_ready());
    shared.lost(&error);
    let e = read.wait().unwrap_err();
    assert_eq!((e.kind(), e.message(), e.place().offset), (Kind::Io, "no queue", Some(100)));
    registry::close(&shared);
}

#[test]
fn who_waits_for_what_another_reader_brings_goes_on_after_a_defect() {
    let (_dir, shared, _) = shared();
    // Two readers that never come to it.
    shared.lock().readers = 2;
    let ask = |at: u64| Read(shared.ask(at, 50, None, crate::finish::AsView::new(at, 50)));
    let (first, second) = (ask(100), ask(BLOCK as u64 + 100));
    let mut inner = shared.lock();
    let took = |next| matches!(next, Next::Read(..));
    assert!(took(inner.window.take()) && took(inner.window.take()));
    drop(inner);
    shared.fell(&[0], 0);
    let e = first.wait().unwrap_err();
    assert_eq!((e.kind(), e.place().offset), (Kind::Internal, Some(100)));
    assert!(!second.is_ready());
    shared.lock().readers = 0;
    registry::close(&shared);
}

/// Does something while a thread sleeps as a reader does that has found no room, and must wake.
fn wakes(shared: &Arc<Shared>, work: impl FnOnce()) {
    shared.starved.store(true, Ordering::SeqCst);
    let (send, receive) = std::sync::mpsc::channel();
    let theirs = shared.clone();
    let sleeper = std::thread::spawn(move || {
        let inner = theirs.lock();
        send.send(()).unwrap();
        let patience = Duration::from_secs(60);
        !sync::wait_for(&theirs.work, &theirs.inner, inner, patience).1
    });
    receive.recv().unwrap();
    // It sleeps once it gives up the lock.
    drop(shared.lock());
    work();
    assert!(sleeper.join().unwrap());
}

#[test]
fn who_wants_a_read_no_more_wakes_those_without_room() {
    let (_dir, shared, _) = shared();
    shared.lock().readers = 2;
    let read = shared.ask(100, 50, None, crate::finish::AsView::new(100, 50));
    wakes(&shared, || drop(read));
    shared.lock().readers = 0;
    registry::close(&shared);
}

#[test]
fn a_block_that_fails_leaves_its_room_to_others() {
    let faults = Faults { bad_byte: Some(5000), ..Faults::default() };
    let source = FaultySource::new(Arc::new(MemorySource::new("m", contents(8 * BLOCK))), faults);
    let options = Options { block: Some(BLOCK), readers: Some(1), ..Options::default() };
    let shared = registry::open_source(Arc::new(source), &options).unwrap();
    shared.lock().readers = 1;
    let read = Read(shared.ask(4990, 50, None, crate::finish::AsView::new(4990, 50)));
    assert!(matches!(shared.lock().window.take(), Next::Read(1, _)));
    let mut reader = Reader::new(&shared).unwrap();
    reader.begin(vec![(1, BLOCK as u64..2 * BLOCK as u64)], Vec::new());
    wakes(&shared, || reader.land());
    assert_eq!(read.wait().unwrap_err().kind(), Kind::Io);
    shared.lock().readers = 0;
    registry::close(&shared);
}

#[test]
fn a_pinned_depth_is_in_flight_of_huge_pages_too() {
    const PIECE: usize = 2 << 20;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, contents(4 * PIECE)).unwrap();
    let file = std::fs::File::open(&path).unwrap();
    file.sync_all().unwrap();
    let options = Options {
        block: Some(PIECE),
        readers: Some(1),
        depth: Some(3),
        ahead: false,
        ..Options::default()
    };
    let source = Arc::new(FileSource::open(&path).unwrap());
    let shared = registry::open_source(source, &options).unwrap();
    // Where there is no mapping it is read in another way.
    assert!(shared.maps());
    stead_store::evict(&file);
    shared.lock().readers = 1;
    let ask = |at: u64| Read(shared.ask(at, 50, None, crate::finish::AsView::new(at, 50)));
    let reads = [0, 1, 2, 3].map(|block| ask((block * PIECE + 7) as u64));
    let mut reader = Reader::new(&shared).unwrap();
    let Todo::Begin(blocks, gone) = reader.next() else { panic!("there is something to begin") };
    assert!(blocks.iter().map(|b| b.0).eq([0, 1, 2]), "{blocks:?}");
    reader.begin(blocks, gone);
    // They come while it waits for none of them.
    let patience = crate::clock::after(Duration::from_secs(60));
    while ![0, 1, 2].iter().all(|block| shared.is_cached(*block)) {
        assert!(crate::clock::now() < patience, "nothing is in flight");
        std::thread::sleep(Duration::from_millis(1));
    }
    for _ in 0..3 {
        reader.land();
    }
    assert_eq!(reads.each_ref().map(Read::is_ready), [true, true, true, false]);
    drop(reads);
    shared.lock().readers = 0;
    registry::close(&shared);
}
