//! What files of a process share: buffers of the same file, and the budget of memory.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use stead_read::{File, Options, open, open_source};
use stead_store::{Engine, IoOptions, MemorySource};

const LEN: usize = 300_000;

/// They share what is one for the process.
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Blocks in memory.
fn options() -> Options {
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    Options { io, block: Some(65_536), ..Options::default() }
}

fn write(path: &Path, byte: u8, seconds_ago: u64) {
    std::fs::write(path, vec![byte; LEN]).unwrap();
    let file = std::fs::File::options().write(true).open(path).unwrap();
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds_ago)).unwrap();
}

fn read_all(file: &File, byte: u8) {
    let session = file.session(..).unwrap();
    let got = session.read_into(0, vec![0; LEN]).wait().unwrap();
    assert!(got.iter().all(|b| *b == byte));
    session.close().unwrap();
}

#[test]
fn the_same_file_is_read_once() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    write(&path, 1, 100);
    let a = open(&path, &options()).unwrap();
    read_all(&a, 1);
    assert_eq!(a.counts().bytes, LEN as u64);
    // By another name, while it is open.
    let other = dir.path().join("g");
    std::fs::hard_link(&path, &other).unwrap();
    let b = open(&other, &options()).unwrap();
    read_all(&b, 1);
    assert_eq!(b.counts().bytes, LEN as u64);
    assert_eq!(b.path(), other);
    // Other options are other buffers.
    let c = open(&path, &Options { block: Some(4096), ..options() }).unwrap();
    assert_eq!(c.counts().bytes, 0);
    drop(c);
    drop(a);
    read_all(&b, 1);
    assert_eq!(b.counts().bytes, LEN as u64);
}

#[test]
fn a_file_that_changed_is_read_anew() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    write(&path, 1, 100);
    let a = open(&path, &options()).unwrap();
    read_all(&a, 1);
    write(&path, 2, 50);
    let b = open(&path, &options()).unwrap();
    assert_eq!(b.counts().bytes, 0);
    read_all(&b, 2);
    // Changed a moment ago: its time stamp may not tell the next change. So it stays, however long this takes.
    write(&path, 3, 0);
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::now() + Duration::from_secs(3600)).unwrap();
    let c = open(&path, &options()).unwrap();
    read_all(&c, 3);
    let d = open(&path, &options()).unwrap();
    assert_eq!(d.counts().bytes, 0);
}

#[test]
fn memory_is_for_all_files_together() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    const MIB: usize = 1 << 20;
    let budget = 64 << 20;
    let options = Options { block: Some(MIB), memory: budget, ..Options::default() };
    let data: Arc<[u8]> = vec![7; 40 * MIB].into();
    let file = || {
        let source = MemorySource::new("m", data.clone());
        open_source(Arc::new(source), &options).unwrap()
    };
    let read = |file: &File| {
        let session = file.session(..).unwrap();
        for at in (0..data.len()).step_by(MIB) {
            assert!(session.read(at as u64, MIB).wait().unwrap().iter().all(|b| *b == 7));
        }
    };
    let held = |files: &[File]| files.iter().map(|f| f.counts().held).sum::<u64>();
    let first = file();
    read(&first);
    // One alone has it all.
    assert_eq!(first.counts().held, data.len() as u64);
    let mut files = vec![first];
    for n in 2..=4u64 {
        files.push(file());
        files.iter().for_each(read);
        assert!(held(&files) <= budget, "{n}: {}", held(&files));
        assert!(files.iter().all(|f| f.counts().held <= budget / n), "{n}");
    }
    files.truncate(1);
    read(&files[0]);
    assert_eq!(held(&files), data.len() as u64);
}

/// What the program does with the answers to all it has asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Taken {
    InOrder,
    Backwards,
    Scattered,
    /// By looking which is there.
    Polled,
}

#[test]
fn answers_that_nobody_takes_do_not_fill_the_memory() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let data: Vec<u8> = (0..16 << 20).map(|i: u32| (i / 13) as u8).collect();
    let (block, budget, count) = (16_384u64, 1u64 << 18, 1600usize);
    // Across blocks; within one, most of it; a few bytes of each; longer than half of the budget.
    let dense = |i: usize| (i * 10_000, 10_000 + i % 7 * 1000);
    let within = |i: usize| (i % 1024 * 16_384, 16_384 - i % 5);
    let sparse = |i: usize| (i % 1024 * 16_384 + i, 50);
    let long = |i: usize| (i * 10_000, if i.is_multiple_of(100) { 200_000 } else { 1000 });
    for part in [dense, within, sparse, long] {
        let longest = (0..count).map(|i| part(i).1).max().unwrap() as u64;
        for taken in [Taken::InOrder, Taken::Backwards, Taken::Scattered, Taken::Polled] {
            let options = Options {
                block: Some(block as usize),
                memory: budget,
                readers: Some(1),
                ..Options::default()
            };
            let source = MemorySource::new("m", data.clone());
            let file = open_source(Arc::new(source), &options).unwrap();
            let session = file.session(..).unwrap();
            // Blocks and answers, the block out of which the reader copies, and the answer that is waited for.
            let most = budget + block + longest;
            let held = |i: usize| {
                let held = file.counts().held;
                assert!(held <= most, "{taken:?} {i}: {held} of {most}");
            };
            let mut reads: Vec<_> =
                (0..count).map(|i| (i, session.read(part(i).0 as u64, part(i).1))).collect();
            match taken {
                Taken::Backwards => reads.reverse(),
                Taken::Scattered => {
                    reads.sort_by_key(|(i, _)| (*i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15))
                }
                Taken::InOrder | Taken::Polled => {}
            }
            let take = |i: usize, read: stead_read::Read| {
                let (from, len) = part(i);
                assert!(read.wait().unwrap()[..] == data[from..from + len], "{taken:?} {i}");
                held(i);
            };
            while taken == Taken::Polled && !reads.is_empty() {
                for (i, read) in std::mem::take(&mut reads) {
                    held(i);
                    if read.is_ready() { take(i, read) } else { reads.push((i, read)) }
                }
                std::thread::sleep(Duration::from_micros(50));
            }
            reads.into_iter().for_each(|(i, read)| take(i, read));
        }
    }
}

#[test]
fn strided_reads_leave_out_what_they_do_not_need() {
    let _alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let data: Vec<u8> = (0..8 << 20).map(|i: u32| (i / 13) as u8).collect();
    let options = Options { block: Some(4096), ahead: false, ..Options::default() };
    let source = MemorySource::new("m", data.clone());
    let file = open_source(Arc::new(source), &options).unwrap();
    let session = file.session(..).unwrap();
    let got = session.read_strided(4090, 10, 1 << 20, 8).wait().unwrap();
    let due: Vec<u8> = (0..8).flat_map(|i| data[4090 + (i << 20)..][..10].to_vec()).collect();
    assert!(got == due);
    assert_eq!(file.counts().blocks, 16);
}
