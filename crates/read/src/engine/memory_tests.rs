//! Who gets memory, and when, with readers that are played here.

use super::*;
use crate::engine::New;
use crate::finish::AsView;
use crate::options::Options;
use crate::registry;
use crate::request::{Finish, Pending, Piece, Read};
use crate::view::View;
use std::path::Path;
use std::time::Duration;
use stead_core::Result;
use stead_store::{FileSource, MemorySource, ReadQueue, Segment, Source};

const BLOCK: u64 = 4096;

/// A source of 16 blocks, of which four may be in memory, and a reader that is nobody.
fn shared() -> Arc<Shared> {
    let source = Arc::new(MemorySource::new("m", vec![7; 16 * BLOCK as usize]));
    let options = Options {
        block: Some(BLOCK as usize),
        memory: 4 * BLOCK,
        readers: Some(1),
        ahead: false,
        ..Options::default()
    };
    let shared = Shared::new(New::prepare(source, &options).unwrap());
    shared.lock().readers = 1;
    shared
}

fn end(shared: &Arc<Shared>) {
    shared.lock().readers = 0;
    registry::close(shared);
}

fn ask(shared: &Arc<Shared>, offset: u64, len: usize) -> Pending<View> {
    shared.ask(offset, len, None, AsView::new(offset, len))
}

fn ticket(read: &Pending<View>) -> Ticket {
    let Pending::Waiting(wait) = read else { panic!("it does not wait") };
    wait.ticket
}

/// Begins to read the next block.
fn begin(shared: &Arc<Shared>) -> u64 {
    let Next::Read(block, _) = shared.take(&mut shared.lock()) else { panic!("nothing to read") };
    block
}

/// What a reader does with a block that it has begun.
fn bring(shared: &Arc<Shared>, block: u64) {
    let mut queue = ReadQueue::new(shared.io()).unwrap();
    let (from, len) = shared.whole(block);
    queue.submit(block, shared.source(), from, len).unwrap();
    let buffer = queue.next().unwrap().unwrap().buffer;
    shared.arrived(block, &Kept::Block(Arc::new(buffer)), len);
}

#[test]
fn an_answer_that_was_taken_takes_part_in_nothing() {
    let shared = shared();
    let mut read = Read(ask(&shared, 10, 50));
    let block = begin(&shared);
    bring(&shared, block);
    assert_eq!(shared.lock().untaken.len(), 1);
    assert_eq!(read.wait_for(Duration::ZERO).unwrap().unwrap().len(), 50);
    // It is kept, in a list perhaps.
    assert_eq!(shared.lock().untaken.len(), 0);
    drop(read);
    end(&shared);
}

#[test]
fn a_read_that_hangs_does_not_keep_those_who_wait() {
    let shared = shared();
    let held: Vec<_> = (0..4).map(|i| ask(&shared, i * BLOCK, BLOCK as usize)).collect();
    let begun: Vec<u64> = (0..4).map(|_| begin(&shared)).collect();
    begun[..3].iter().for_each(|block| bring(&shared, *block));
    let late = ask(&shared, 9 * BLOCK, 10);
    shared.urge(ticket(&late), Urge::Stands);
    assert!(matches!(shared.take(&mut shared.lock()), Next::Full));
    // What is being read may leave room, but not for ever.
    assert!(shared.alone(&mut shared.lock(), false).is_none());
    let alone = shared.alone(&mut shared.lock(), true).map(|(ticket, _, block, _)| (ticket, block));
    assert_eq!(alone, Some((ticket(&late), 9)));
    drop((held, late));
    end(&shared);
}

#[test]
fn memory_of_an_answer_is_counted_once() {
    let shared = shared();
    let mut all = shared.claim_beyond(100);
    let part = all.split(60);
    assert_eq!(shared.own(), 100);
    drop(part);
    assert_eq!(shared.own(), 40);
    drop(all);
    // Bytes that came before its turn have memory already.
    let mut answer = AsView::new(0, 50);
    answer.piece(&shared, 0, Piece::Bytes(&[7; 20]));
    let unused = answer.admit(shared.claim_beyond(50));
    assert!(unused.is_some());
    drop(unused);
    assert_eq!(shared.own(), 50);
    drop(answer);
    assert_eq!(shared.own(), 0);
    end(&shared);
}

#[test]
fn who_takes_what_was_read_ahead_has_more_read_after_all_readers_went() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![7; 16 * BLOCK as usize]).unwrap();
    let options = Options { block: Some(BLOCK as usize), ahead: false, ..Options::default() };
    let source = Arc::new(FileSource::open(&path).unwrap());
    let shared = registry::open_source(source, &options).unwrap();
    assert!(shared.maps());
    let mut inner = shared.lock();
    inner.window.open(1, 0..16 * BLOCK);
    assert!(inner.window.ask(1, 0, BLOCK).is_none());
    assert!(matches!(inner.window.take(), Next::Read(0, _)));
    inner.window.arrived(0, Kept::Cached(0));
    assert!(inner.window.has_work() && inner.readers == 0);
    drop(inner);
    assert!(matches!(ask(&shared, 0, 10), Pending::Ready(Some(Ok(_)))));
    let patience = clock::after(Duration::from_secs(60));
    while shared.lock().window.has_work() {
        assert!(clock::now() < patience, "nobody reads on");
        std::thread::sleep(Duration::from_millis(1));
    }
    registry::close(&shared);
}

/// Each read takes its time, so that several are under way.
#[derive(Debug)]
struct Slow(u64);

impl Source for Slow {
    fn path(&self) -> &Path {
        Path::new("slow")
    }

    fn len(&self) -> u64 {
        self.0 * BLOCK
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        std::thread::sleep(Duration::from_micros(300));
        buf.fill((offset / BLOCK) as u8);
        Ok(())
    }
}

#[test]
fn blocks_take_no_more_memory_than_is_counted_however_slowly_they_come() {
    const BLOCKS: u64 = 200;
    const MOST: u64 = 8;
    for (readers, depth, ahead) in [(1, 4, true), (2, 4, true), (4, 1, true), (4, 2, false)] {
        let options = Options {
            block: Some(BLOCK as usize),
            memory: MOST * BLOCK,
            readers: Some(readers),
            depth: Some(depth),
            ahead,
            ..Options::default()
        };
        let segment = Segment::new(BLOCK as usize, BLOCKS as usize).unwrap();
        let new = New::prepare(Arc::new(Slow(BLOCKS)), &options).unwrap();
        let shared = registry::open_new(new.in_segment(Some(segment.clone())));
        let session = shared.begin(0..BLOCKS * BLOCK).unwrap();
        std::thread::scope(|scope| {
            for task in 0..3 {
                let shared = &shared;
                scope.spawn(move || {
                    for i in 0..BLOCKS - 1 {
                        let block = (i + task * BLOCKS / 3) % (BLOCKS - 1);
                        // Of two blocks at times, which takes memory for the answer.
                        let len = [10, BLOCK, BLOCK + 10][(i % 3) as usize];
                        let view = Read(ask(shared, block * BLOCK, len as usize)).wait().unwrap();
                        assert_eq!(view[9], block as u8);
                    }
                });
            }
        });
        let most = segment.most_in_use() as u64;
        assert!(most <= MOST, "{most} of {MOST}: {readers} readers, depth {depth}");
        shared.end(session);
        registry::close(&shared);
    }
}
