//! Processes that read the same file share blocks in memory, and the memory for them. Others are this program again, which
//! runs the test `another_process` with something to do.

#![allow(clippy::unwrap_used, clippy::panic, clippy::disallowed_methods)]

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use stead_read::{Options, Session, View, open};
use stead_store::{Engine, IoOptions};

const BLOCK: usize = 65_536;
const BUDGET: u64 = 32 << 20;
/// Blocks of the budget, and of a file that is larger.
const FITTING: usize = 512;
const MORE: usize = 700;

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options() -> Options {
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    Options { io, block: Some(BLOCK), memory: BUDGET, ..Options::default() }
}

/// What block `i` is filled with, in the version `seed` of the file.
fn byte(i: usize, seed: usize) -> u8 {
    (i * 37 + i / 256 + seed) as u8
}

fn write(path: &Path, blocks: usize, seed: usize) {
    let mut file = std::fs::File::create(path).unwrap();
    for i in 0..blocks {
        file.write_all(&vec![byte(i, seed); BLOCK]).unwrap();
    }
    file.set_modified(SystemTime::now() - Duration::from_secs(100 + seed as u64)).unwrap();
}

fn view(session: &Session, i: usize, seed: usize) -> View {
    let view = session.read((i * BLOCK) as u64, BLOCK).wait().unwrap();
    assert!(view.iter().all(|b| *b == byte(i, seed)), "block {i}");
    view
}

fn shared(session: &Session) -> String {
    session.explain().into_iter().find(|(name, _)| *name == "shared").unwrap().1
}

/// Waits until the others are as many as that.
fn see(session: &Session, others: &str) {
    wait_until(|| shared(session).contains(others));
    assert!(shared(session).contains(others), "{}", shared(session));
}

/// Another process.
struct Other(Child, BufReader<std::process::ChildStdout>);

impl Other {
    fn start(path: &Path, what: &str) -> Other {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "another_process", "--nocapture", "--test-threads=1"])
            .env("STEAD_TEST_FILE", path)
            .env("STEAD_TEST_WORK", what)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Other(child, out)
    }

    /// What it says next.
    fn says(&mut self) -> String {
        for line in (&mut self.1).lines() {
            if let Some((_, said)) = line.unwrap().split_once("says ") {
                return said.to_owned();
            }
        }
        panic!("it ended")
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().unwrap().success());
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn another_process() {
    let dir = tempfile::tempdir().unwrap();
    let (path, work) = match std::env::var_os("STEAD_TEST_FILE") {
        Some(path) => (PathBuf::from(path), std::env::var("STEAD_TEST_WORK").unwrap()),
        None => {
            write(&dir.path().join("f"), 10, 0);
            (dir.path().join("f"), "read".to_owned())
        }
    };
    let _alone = alone();
    let file = open(&path, &options()).unwrap();
    let session = file.session(..).unwrap();
    let blocks = file.len() as usize / BLOCK;
    let mut held = Vec::new();
    match &*work {
        // Everything, once.
        "read" => (0..blocks).for_each(|i| drop(view(&session, i, 0))),
        // Some, and keeps them.
        "hold" => held.extend((0..100).map(|i| view(&session, i, 0))),
        // Everything in some order, for ever.
        "always" => {
            println!("says begun");
            for i in 0.. {
                drop(view(&session, i * 101 % blocks, 0));
            }
        }
        other => panic!("{other}"),
    }
    println!("says {}", file.counts().bytes);
    if std::env::var_os("STEAD_TEST_FILE").is_some() {
        let mut line = String::new();
        std::io::stdin().read_line(&mut line).unwrap();
    }
    drop(held);
    session.close().unwrap();
}

/// Bytes of each memory that this process shares with others.
fn memories() -> Vec<u64> {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().map(|e| e.unwrap().path());
    let commons = |path: &PathBuf| {
        std::fs::read_link(path).is_ok_and(|l| l.to_string_lossy().contains("stead-commons"))
    };
    let sizes = fds.filter(commons).map(|p| std::fs::metadata(p).unwrap().blocks() * 512);
    sizes.collect()
}

/// As [`memories`], when there is one of this test alone.
fn memory() -> u64 {
    wait_until(|| memories().len() <= 1);
    memories().iter().sum()
}

fn wait_until(done: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn processes_read_each_block_once() {
    let _alone = alone();
    // One that is kept from a processor while it has the lock keeps the others from sharing, which read some alone then: not each time.
    let read: Vec<u64> = (0..5).map(|_| read_by_five()).take_while(|read| *read != WHOLE).collect();
    assert!(read.len() < 5, "{read:?} bytes were read of {WHOLE}");
}

const WHOLE: u64 = (FITTING * BLOCK) as u64;

/// Bytes that five processes read together, each of which gets all of a file.
fn read_by_five() -> u64 {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    write(&path, FITTING, 0);
    let file = open(&path, &options()).unwrap();
    let session = file.session(0..1).unwrap();
    drop(session.read(0, 1).wait().unwrap());
    let whole = file.session(..).unwrap();
    let mut others: Vec<Other> = (0..4).map(|_| Other::start(&path, "read")).collect();
    let read: u64 = others.iter_mut().map(|o| o.says().parse::<u64>().unwrap()).sum();
    // This one as well.
    (0..FITTING).for_each(|i| drop(view(&whole, i, 0)));
    let read = read + file.counts().bytes;
    see(&whole, "with 4 other processes");
    let memory = memory();
    assert!(memory > 0 && memory <= BUDGET + (1 << 20), "{memory}");
    others.into_iter().for_each(Other::end);
    see(&whole, "with no other process");
    read
}

#[test]
fn memory_is_one_for_all() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    write(&path, MORE, 0);
    let file = open(&path, &options()).unwrap();
    let session = file.session(..).unwrap();
    let mut others: Vec<Other> = (0..2).map(|_| Other::start(&path, "read")).collect();
    (0..MORE).for_each(|i| drop(view(&session, i, 0)));
    others.iter_mut().for_each(|o| drop(o.says()));
    see(&session, "with 2 other processes");
    // Each has a third of it for what it keeps.
    let part = BUDGET / 3 + 2 * BLOCK as u64;
    wait_until(|| file.counts().held <= part);
    assert!(file.counts().held <= part, "{}", file.counts().held);
    assert!(memory() <= BUDGET + (1 << 20), "{}", memory());
    others.into_iter().for_each(Other::end);
    see(&session, "with no other process");
    (0..MORE).for_each(|i| drop(view(&session, i, 0)));
}

#[test]
fn a_process_that_is_killed_takes_nothing_along() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    write(&path, MORE, 0);
    let file = open(&path, &options()).unwrap();
    let session = file.session(..).unwrap();
    for round in 0..4 {
        let mut reading = Other::start(&path, "always");
        let mut holding = Other::start(&path, "hold");
        assert_eq!(reading.says(), "begun");
        holding.says();
        (0..200).for_each(|i| drop(view(&session, (i * 31 + round) % MORE, 0)));
        reading.kill();
        holding.kill();
        (0..MORE).for_each(|i| drop(view(&session, i, 0)));
        see(&session, "with no other process");
        // All of the memory is there again.
        let held: Vec<View> = (0..FITTING - 8).map(|i| view(&session, i, 0)).collect();
        assert!(memory() >= (held.len() * BLOCK) as u64);
        assert!(memory() <= BUDGET + (1 << 20));
    }
}

#[test]
fn a_file_that_has_changed_is_another_one() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    write(&path, 100, 0);
    let mut other = Other::start(&path, "hold");
    other.says();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    for i in 0..100 {
        std::os::unix::fs::FileExt::write_all_at(
            &file,
            &vec![byte(i, 5); BLOCK],
            (i * BLOCK) as u64,
        )
        .unwrap();
    }
    file.set_modified(SystemTime::now() - Duration::from_secs(50)).unwrap();
    drop(file);
    let file = open(&path, &options()).unwrap();
    let session = file.session(..).unwrap();
    (0..100).for_each(|i| drop(view(&session, i, 5)));
    assert_eq!(file.counts().bytes, (100 * BLOCK) as u64);
    assert!(shared(&session).contains("with no other process"));
    other.kill();
}

#[test]
fn who_does_not_want_to_share_does_not() {
    let _alone = alone();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    write(&path, 10, 0);
    let file = open(&path, &Options { share: false, ..options() }).unwrap();
    let session = file.session(..).unwrap();
    (0..10).for_each(|i| drop(view(&session, i, 0)));
    assert!(shared(&session).contains("as asked for"), "{}", shared(&session));
    wait_until(|| memories().is_empty());
    assert!(memories().is_empty());
}
