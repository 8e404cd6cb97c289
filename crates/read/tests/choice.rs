//! What is chosen for sessions of different ranges over one file, and how little is read beyond them.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use stead_core::Kind;
use stead_read::{File, Options, Session, open, open_source};
use stead_store::{Engine, IoOptions, Source};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const LEN: u64 = 8 << 30;

/// Files of a process share its memory.
fn alone() -> MutexGuard<'static, ()> {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Many GiB that are nowhere: what is read of them is counted.
#[derive(Debug, Default)]
struct Counting {
    read: AtomicU64,
    reads: AtomicU64,
    longest: AtomicU64,
}

fn byte(at: u64) -> u8 {
    (at ^ (at >> 12)) as u8
}

impl Source for Counting {
    fn path(&self) -> &Path {
        Path::new("counting")
    }
    fn len(&self) -> u64 {
        LEN
    }
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> stead_core::Result<()> {
        self.read.fetch_add(buf.len() as u64, Ordering::SeqCst);
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.longest.fetch_max(buf.len() as u64, Ordering::SeqCst);
        buf.iter_mut().zip(offset..).for_each(|(b, at)| *b = byte(at));
        Ok(())
    }
}

impl Counting {
    fn read(&self) -> u64 {
        self.read.load(Ordering::SeqCst)
    }
}

fn counting() -> (Arc<Counting>, File) {
    let source = Arc::new(Counting::default());
    (source.clone(), open_source(source, &Options::default()).unwrap())
}

fn plan(session: &Session, name: &str) -> (String, String) {
    let found = session.plan().into_iter().find(|d| d.name == name).unwrap();
    (found.value, found.reason)
}

fn block(session: &Session) -> String {
    plan(session, "block").0
}

/// Asks for all of it, in parts.
fn take(session: &Session) {
    let range = session.range();
    let step = 100_000;
    for from in range.clone().step_by(step) {
        let len = step.min((range.end - from) as usize);
        let view = session.read(from, len).wait().unwrap();
        assert_eq!(view.len(), len);
        assert!(view.iter().zip(from..).step_by(997).all(|(b, at)| *b == byte(at)));
    }
}

/// A file of which only its length is on the disk, changed so many seconds ago.
fn sparse(len: u64, ago: i64) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse");
    let file = std::fs::File::create(&path).unwrap();
    file.set_len(len).unwrap();
    let time = Duration::from_secs(ago.unsigned_abs());
    let now = SystemTime::now();
    file.set_modified(if ago < 0 { now + time } else { now - time }).unwrap();
    (dir, path)
}

#[test]
fn little_more_is_read_than_the_session() {
    let _alone = alone();
    for (from, len) in [
        (0, 100),
        (70_000, 1),
        (65_535, 2),
        (1234, 300 * KIB),
        (LEN - 5, 5),
        (LEN / 2 - 7, MIB),
        (3 * MIB + 1, 5 * MIB),
        (MIB - 1, 60 * MIB),
    ] {
        let (source, file) = counting();
        let session = file.session(from..from + len).unwrap();
        take(&session);
        let read = source.read();
        let most = len + (len / 8).max(2 * 64 * KIB);
        assert!(read >= len && read <= most, "{len} at {from}: {read}");
        session.close().unwrap();
    }
}

#[test]
fn a_header_does_not_spoil_the_body() {
    let _alone = alone();
    // The header's session is closed, or goes on.
    for goes_on in [false, true] {
        let (source, file) = counting();
        let header = file.session(..KIB).unwrap();
        assert_eq!(header.read(0, 1000).wait().unwrap()[0], byte(0));
        assert_eq!((source.read(), block(&header)), (64 * KIB, "64.0 KiB".into()));
        assert_eq!(plan(&header, "readers").0, "1");
        let header = goes_on.then_some(header);
        let body = file.session(KIB..LEN).unwrap();
        assert_eq!(body.read(5 * MIB, 10).wait().unwrap().len(), 10);
        assert_eq!(block(&body), "2.0 MiB");
        assert_eq!(source.longest.load(Ordering::SeqCst), 2 * MIB);
        if let Some(header) = header {
            assert_eq!(block(&header), "64.0 KiB");
            assert_eq!(header.read(500, 500).wait().unwrap().len(), 500);
        }
        // A small part of what is read anyway is no session of another kind.
        let part = file.session(5 * MIB..5 * MIB + 100).unwrap();
        assert_eq!(block(&part), "2.0 MiB");
        assert!(plan(&part, "block").1.ends_with("earlier session, of 8.0 GiB"));
        assert_eq!(file.counts().requests, if goes_on { 3 } else { 2 });
        assert!(file.counts().bytes >= 2 * MIB + 64 * KIB);
    }
}

#[test]
fn the_memory_of_a_header_is_given_back_when_it_is_closed() {
    let _alone = alone();
    let (_, file) = counting();
    let header = file.session(..KIB).unwrap();
    take(&header);
    let body = file.session(KIB..65 * MIB).unwrap();
    take(&body);
    let both = file.counts().held;
    header.close().unwrap();
    let counts = file.counts();
    assert_eq!((both - counts.held, counts.blocks), (64 * KIB, 1 + 65));
}

#[test]
fn sets_of_one_file_share_the_little_memory_it_has() {
    let _alone = alone();
    let options = Options { memory: 16 * MIB, ahead: false, ..Options::default() };
    let (_dir, path) = sparse(200 * MIB, 100);
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    let source = Arc::new(Counting::default());
    let files = [
        open_source(source, &options).unwrap(),
        open(&path, &Options { io, ..options.clone() }).unwrap(),
    ];
    for file in files {
        let small = file.session(..MIB).unwrap();
        let large = file.session(MIB..).unwrap();
        assert_ne!(block(&small), block(&large));
        let take = |session: &Session, most: u64| {
            for from in session.range().take(most as usize).step_by(64 << 10) {
                assert_eq!(session.read(from, 10).wait().unwrap().len(), 10);
            }
            file.counts().held
        };
        take(&small, MIB);
        let held = take(&large, 24 * MIB);
        assert!((8 * MIB..=16 * MIB).contains(&held), "{held}");
        // What the other one had comes back.
        drop(small);
        let held = take(&large, 24 * MIB);
        assert!((15 * MIB..=16 * MIB).contains(&held), "{held}");
    }
}

#[test]
fn a_header_costs_nothing_of_what_is_kept_of_a_closed_file() {
    let _alone = alone();
    let (_dir, path) = sparse(96 * MIB, 100);
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    let options =
        Options { memory: 64 * MIB, share: false, ahead: false, io, ..Options::default() };
    let (last, len) = (80 * MIB..96 * MIB, 16 << 20);
    let file = open(&path, &options).unwrap();
    let session = file.session(last.clone()).unwrap();
    session.read(last.start, len).wait().unwrap();
    drop((session, file));
    let file = open(&path, &options).unwrap();
    let header = file.session(..4096).unwrap();
    header.read(0, 4096).wait().unwrap();
    drop(header);
    let of_header = file.counts().bytes;
    assert!(of_header <= MIB, "{of_header}");
    // What was done by the buffers that are kept counts when they are found again, and there is nothing more to do.
    let session = file.session(last.clone()).unwrap();
    assert_eq!(file.counts().bytes, of_header + 16 * MIB);
    session.read(last.start, len).wait().unwrap();
    assert_eq!(file.counts().bytes, of_header + 16 * MIB);
}

#[test]
fn what_lies_in_memory_is_found_by_sessions_of_other_sizes() {
    let _alone = alone();
    let (source, file) = counting();
    let whole = file.session(..64 * MIB).unwrap();
    take(&whole);
    whole.close().unwrap();
    let read = source.read();
    assert_eq!(read, 64 * MIB);
    for range in [5 * MIB..5 * MIB + 1000, 0..40 * MIB, 7..9, 10 * MIB..12 * MIB] {
        take(&file.session(range).unwrap());
    }
    assert_eq!(source.read(), read);
    // Beside it, little is read of what nobody has.
    take(&file.session(100 * MIB..100 * MIB + 1000).unwrap());
    assert_eq!(source.read(), read + 64 * KIB);
    // And what there was is there still.
    take(&file.session(..64 * MIB).unwrap());
    assert_eq!(source.read(), read + 64 * KIB);
}

#[test]
fn large_ranges_have_large_blocks_and_small_ones_few_readers() {
    let _alone = alone();
    // One that may have changed just now: nobody shares what others have of it.
    let (_dir, path) = sparse(100 << 30, -1000);
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    let in_memory = Options { io, ahead: false, ..Options::default() };
    for (len, expected) in [
        (0, "64.0 KiB"),
        (1, "64.0 KiB"),
        (MIB, "64.0 KiB"),
        (2 * MIB, "128.0 KiB"),
        (20 * MIB, "256.0 KiB"),
        (64 * MIB, "1.0 MiB"),
        (100 << 30, "2.0 MiB"),
    ] {
        let session = open(&path, &in_memory).unwrap().session(..len).unwrap();
        assert_eq!(block(&session), expected, "{len}");
        let (readers, reason) = plan(&session, "readers");
        if len <= 64 * KIB {
            assert_eq!(readers, "1", "{len}: {reason}");
        }
    }
    // In the page cache blocks are those of the file, whoever comes first.
    let file = open(&path, &Options { ahead: false, ..Options::default() }).unwrap();
    let small = file.session(..100).unwrap();
    let (readers, reason) = plan(&small, "readers");
    assert_eq!(readers, "1", "{reason}");
    let large = file.session(..).unwrap();
    assert_eq!(block(&large), "2.0 MiB");
    if plan(&small, "bytes").0 == "the page cache" {
        assert_eq!(block(&small), "2.0 MiB");
        assert!(!plan(&large, "block").1.contains("earlier"), "{:?}", plan(&large, "block"));
    } else {
        assert_eq!(block(&small), "64.0 KiB");
    }
}

#[test]
fn a_file_without_a_session_has_done_nothing() {
    let _alone = alone();
    let (source, file) = counting();
    assert_eq!((file.len(), file.is_empty()), (LEN, false));
    assert_eq!(file.counts(), stead_read::Counts::default());
    let mut first = [0; 10];
    file.read_alone(4096, &mut first).unwrap();
    assert_eq!(first[0], byte(4096));
    // One that fails to begin is none.
    let e = file.session(5..LEN + 1).err().unwrap();
    assert_eq!(e.kind(), Kind::Usage);
    assert_eq!(file.counts(), stead_read::Counts::default());
    assert_eq!((source.read(), source.reads.load(Ordering::SeqCst)), (10, 1));
    drop(file.clone());
    let empty = file.session(7..7).unwrap();
    assert!(empty.read(7, 0).wait().unwrap().is_empty());
    assert_eq!(empty.read(7, 1).wait().unwrap_err().kind(), Kind::Usage);
    assert_eq!(source.read(), 10);
    drop(file);
    empty.close().unwrap();
}

#[test]
fn first_sessions_that_begin_at_once_share_what_they_read() {
    let _alone = alone();
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    let options = Options { io, ..Options::default() };
    for _ in 0..10 {
        let (_dir, path) = sparse(16 * MIB, 1000);
        let files: Vec<File> = (0..2).map(|_| open(&path, &options).unwrap()).collect();
        let barrier = std::sync::Barrier::new(4);
        std::thread::scope(|s| {
            for i in 0..4 {
                let (files, barrier) = (&files, &barrier);
                s.spawn(move || {
                    let file = files[i % 2].clone();
                    barrier.wait();
                    let session = file.session(..).unwrap();
                    for from in (0..16 * MIB).step_by(100_000) {
                        let len = 100_000.min((16 * MIB - from) as usize);
                        assert!(session.read(from, len).wait().unwrap().iter().all(|b| *b == 0));
                    }
                    // Others still use it.
                    barrier.wait();
                    assert_eq!(file.counts().bytes, 16 * MIB);
                });
            }
        });
    }
}

#[test]
fn sessions_of_all_sizes_on_many_threads_get_their_bytes() {
    let _alone = alone();
    let (source, file) = counting();
    std::thread::scope(|s| {
        for thread in 0..6u64 {
            let file = &file;
            s.spawn(move || {
                for i in 0..60u64 {
                    let from = (thread * 7 + i * 13) * 4096;
                    let len = 100 << ((thread + i * 5) % 17);
                    let session = file.session(from..from + len).unwrap();
                    let view = session.read(from, len as usize).wait().unwrap();
                    assert_eq!(view[0], byte(from));
                    session.close().unwrap();
                }
            });
        }
    });
    let counts = file.counts();
    assert_eq!(counts.requests, 360);
    assert_eq!(counts.bytes, source.read());
}
