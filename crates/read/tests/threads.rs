//! What sessions leave behind, in a process where nobody else does anything.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::time::{Duration, Instant};
use stead_read::{Options, open};
use stead_store::{Engine, IoOptions};

fn entries(of: &str) -> usize {
    std::fs::read_dir(of).unwrap().count()
}

/// Threads of the system end a moment after they have nothing more to do.
fn falls_to(most: usize, of: &str) {
    let patience = Instant::now() + Duration::from_secs(60);
    while entries(of) > most {
        assert!(Instant::now() < patience, "{} in {of}, not {most}", entries(of));
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn sessions_leave_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![7; 100_000]).unwrap();
    let (threads, files) = ("/proc/self/task", "/proc/self/fd");
    let before = (entries(threads), entries(files));
    let cache =
        Options { block: Some(4096), memory: 65_536, readers: Some(2), ..Options::default() };
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    for options in [cache.clone(), Options { io, ..cache }] {
        for i in 0..2000u64 {
            let file = open(&path, &options).unwrap();
            let session = file.session(..).unwrap();
            assert_eq!(session.read(i * 40, 1000).wait().unwrap().len(), 1000);
            session.close().unwrap();
            drop(file);
            if i % 100 == 0 {
                // The thread that looks after deadlines stays.
                falls_to(before.0 + 1, threads);
            }
        }
    }
    falls_to(before.0 + 1, threads);
    falls_to(before.1, files);
}
