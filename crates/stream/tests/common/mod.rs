//! Streams in a folder of their own, for the tests beside this folder.

// Each of these tests takes what it needs of it.
#![allow(dead_code)]

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Condvar, Mutex};
use std::time::Duration;
use stead_core::Bounds;
use stead_core::layout::Spaces;
use stead_stream::{Home, Read, Written};

/// For what is to come, however busy the machine is.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// As that of the standard library, but for a thread that never comes, as it has failed: the test is to say so, not to wait for ever.
pub(crate) struct Barrier {
    threads: usize,
    came: Mutex<usize>,
    all: Condvar,
}

impl Barrier {
    pub(crate) fn new(threads: usize) -> Barrier {
        Barrier { threads, came: Mutex::default(), all: Condvar::new() }
    }

    pub(crate) fn wait(&self) {
        let mut came = self.came.lock().unwrap();
        *came += 1;
        let all = came.next_multiple_of(self.threads);
        self.all.notify_all();
        // They may have waited for something else for as long.
        let waited = self.all.wait_timeout_while(came, 2 * LONG, |came| *came < all).unwrap();
        drop(waited.0);
        assert!(!waited.1.timed_out(), "another thread has not come");
    }
}

/// A folder in memory.
pub(crate) fn dir() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

/// The dataspace `memory` in this folder.
pub(crate) fn memory(at: &Path) -> Spaces {
    let mut spaces = Spaces::default();
    spaces.imply("memory", at.to_str().unwrap());
    spaces
}

pub(crate) fn written(spaces: &Spaces) -> Written {
    Written { spaces: spaces.clone(), timeout: LONG, ..Written::default() }
}

pub(crate) fn read(spaces: &Spaces) -> Read {
    Read { spaces: spaces.clone(), timeout: LONG, ..Read::default() }
}

/// A folder in memory, as the dataspace `memory`.
pub(crate) struct Place {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) spaces: Spaces,
}

impl Place {
    pub(crate) fn new() -> Place {
        let dir = dir();
        let spaces = memory(&dir.path().join("own"));
        Place { dir, spaces }
    }

    pub(crate) fn written(&self) -> Written {
        written(&self.spaces)
    }

    pub(crate) fn read(&self) -> Read {
        read(&self.spaces)
    }

    pub(crate) fn home(&self) -> Home {
        Home::open(&self.spaces).unwrap()
    }

    /// What there is: folders of streams.
    pub(crate) fn left(&self) -> Vec<String> {
        left(&self.dir.path().join("own"))
    }

    /// Files of a stream.
    pub(crate) fn files(&self, stream: &str) -> Vec<String> {
        let streams = std::fs::read_dir(self.dir.path().join("own")).unwrap().next().unwrap();
        names(&streams.unwrap().path().join(stream))
    }
}

/// Folders of streams in a dataspace.
pub(crate) fn left(memory: &Path) -> Vec<String> {
    let of_users = std::fs::read_dir(memory).unwrap().map(|folder| folder.unwrap().path());
    let mut all: Vec<String> = of_users.flat_map(|folder| names(&folder)).collect();
    all.sort();
    all
}

fn names(folder: &Path) -> Vec<String> {
    let files = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn bounds(start: &[u64], count: &[u64]) -> Bounds {
    Bounds::new(start, count).unwrap()
}

/// Waits until something is so, which its test looks at then: no longer than a machine may take for it that is busy.
pub(crate) fn wait_until(is: impl Fn() -> bool) {
    for _ in 0..12_000 {
        if is() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What a child of a test is told by.
const CHILD: &str = "STEAD_TEST_STREAM";

/// This program again, whose test `another_process` does something else then.
pub(crate) fn child(what: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "another_process", "--nocapture", "--test-threads=1"])
        .env(CHILD, what)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// What it is to do; nothing where it is a test like others.
pub(crate) fn told() -> Option<String> {
    std::env::var(CHILD).ok()
}

/// Waits until a process says so, or ends.
pub(crate) fn says(child: &mut Child, what: &str) -> bool {
    let out = BufReader::new(child.stdout.as_mut().unwrap());
    out.lines().map_while(Result::ok).any(|line| line.trim_end().ends_with(what))
}
