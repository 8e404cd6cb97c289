//! Sessions that nobody uses cost no processor time, whatever they wait for, and their threads end. Alone in its process.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};
use stead_core::Result;
use stead_read::{File, Options, Session, open, open_source};
use stead_store::{Engine, IoOptions, Source};

/// Gives nothing while it is shut.
#[derive(Debug)]
struct Stuck(Mutex<bool>, Condvar);

impl Source for Stuck {
    fn path(&self) -> &Path {
        Path::new("stuck")
    }

    fn len(&self) -> u64 {
        1 << 20
    }

    fn read_at(&self, _: u64, buf: &mut [u8]) -> Result<()> {
        drop(self.1.wait_while(self.0.lock().unwrap(), |shut| *shut).unwrap());
        buf.fill(7);
        Ok(())
    }
}

/// Nanoseconds that all threads of this process were on a processor.
fn spent() -> u64 {
    let of = |thread: std::fs::DirEntry| {
        let told = std::fs::read_to_string(thread.path().join("schedstat")).unwrap_or_default();
        told.split_whitespace().next().map_or(0, |n| n.parse::<u64>().unwrap())
    };
    std::fs::read_dir("/proc/self/task").unwrap().flatten().map(of).sum()
}

/// Threads that read, each with what it does: `S` if it sleeps.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let told = tasks.filter_map(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).ok()?;
        let (name, rest) = stat.split_once('(')?.1.rsplit_once(") ")?;
        name.starts_with("stead-read").then(|| rest.chars().take(1).collect())
    });
    told.collect()
}

fn until(what: &str, mut is: impl FnMut() -> bool) {
    let patience = Instant::now() + Duration::from_secs(60);
    while !is() {
        assert!(Instant::now() < patience, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn nobody_pays_for_sessions_that_wait() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![7; 8 << 20]).unwrap();
    let pread = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    let in_memory =
        Options { io: pread, block: Some(65_536), memory: 1 << 20, ..Options::default() };
    let read_all = |file: &File| -> Session {
        let session = file.session(..).unwrap();
        assert_eq!(session.read_into(0, vec![0; 8 << 20]).wait().unwrap(), vec![7; 8 << 20]);
        session
    };
    // Everything was read; the page cache, and blocks in memory, of which views hold all there may be.
    let cached = open(&path, &Options::default()).unwrap();
    let blocks = open(&path, &in_memory).unwrap();
    let kept = (read_all(&cached), read_all(&blocks));
    let held: Vec<_> = (0..16).map(|i| kept.1.read(i << 16, 10).wait().unwrap()).collect();
    let starved = kept.1.read(100 << 16, 10);
    // Requests that wait for a device: in a thread, by a function, and looked at by nobody.
    let stuck = Arc::new(Stuck(Mutex::new(true), Condvar::new()));
    let file = open_source(stuck.clone(), &Options::default()).unwrap();
    let session = Arc::new(file.session(..).unwrap());
    let waiting = session.clone();
    let thread = std::thread::spawn(move || waiting.read(5, 10).wait().unwrap().len());
    session.read(100, 10).then(|answer| assert!(answer.is_ok()));
    let late = session.within(Duration::from_secs(500)).read(300_000, 10);
    // And ten that nobody asks for anything.
    let idle: Vec<_> = (0..10)
        .map(|i| {
            let options = if i % 2 == 0 { Options::default() } else { in_memory.clone() };
            let file = open(&path, &Options { ahead: i % 3 == 0, ..options }).unwrap();
            (file.session(..).unwrap(), file)
        })
        .collect();
    // Until all that is read ahead is there.
    let counts = || idle.iter().map(|(_, file)| file.counts().bytes).sum::<u64>();
    let mut last = u64::MAX;
    until("it reads on and on", || {
        std::thread::sleep(Duration::from_millis(300));
        let now = counts();
        // One that others keep from a processor does not sleep.
        let sleep = threads().iter().all(|state| state == "S");
        std::mem::replace(&mut last, now) == now && sleep
    });
    let before = spent();
    std::thread::sleep(Duration::from_millis(1200));
    let spent = spent().saturating_sub(before);
    assert!(spent < 30_000_000, "{spent} ns of the processor in 1.2 s of nothing");
    assert!(!starved.is_ready() && !late.is_ready());

    *stuck.0.lock().unwrap() = false;
    stuck.1.notify_all();
    assert_eq!((thread.join().unwrap(), late.wait().unwrap().len()), (10, 10));
    drop(held);
    assert_eq!(starved.wait().unwrap()[..], [7; 10]);
    drop((kept, idle, session, file, cached, blocks));
    until("threads stay", || threads().is_empty());
}
