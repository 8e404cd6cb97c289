//! Syncs that go by what is in files.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use stead_core::{Cancel, Kind, Location, Result};
use stead_stage::{Action, Does, Means, Options, Request, Stager, Status};
use tempfile::TempDir;

const LARGE: usize = 20_000_003;

struct Place {
    dir: TempDir,
    stager: Stager,
}

impl Place {
    /// Two trees that are the same, but for one file of the same size and time, and one of another time.
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let means = Means { threads: 3, ..Means::default() };
        let stager = Stager::open(&dir.path().join("state"), means).unwrap();
        let p = Place { dir, stager };
        let large: Vec<u8> = (0..LARGE).map(|i| (i / 5 % 253) as u8).collect();
        for at in ["from", "to"] {
            p.make(&format!("{at}/small"), b"small");
            p.make(&format!("{at}/none"), b"");
            p.make(&format!("{at}/deep/large"), &large);
            p.make(&format!("{at}/deep/late"), b"late");
        }
        let mut other = large;
        other[LARGE - 1] ^= 1;
        p.make("to/deep/large", &other);
        for name in ["small", "none", "deep/large", "deep/late"] {
            p.date(&format!("from/{name}"), 1000);
            p.date(&format!("to/{name}"), if name == "deep/late" { 2000 } else { 1000 });
        }
        p
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn make(&self, name: &str, bytes: &[u8]) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn date(&self, name: &str, seconds: u64) {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_500_000_000 + seconds);
        fs::File::options().write(true).open(self.path(name)).unwrap().set_modified(time).unwrap();
    }

    fn time(&self, name: &str) -> SystemTime {
        fs::metadata(self.path(name)).unwrap().modified().unwrap()
    }

    fn sync(&self, from: &str, to: &str) -> Request {
        let at = |name: &str| {
            Location::parse(&format!("{}/{name}", self.dir.path().display()), &|_| None).unwrap()
        };
        Request {
            action: Action::Sync,
            sources: vec![at(from)],
            target: Some(at(to)),
            options: Options { checksum: true, ..Options::default() },
        }
    }

    fn run(&self, request: &Request) -> Result<Status> {
        let id = self.stager.submit(request)?;
        self.stager.run(id, &Cancel::new(), None)
    }
}

#[test]
fn files_of_one_size_are_the_same_if_their_bytes_are() {
    let p = Place::new();
    let late = p.time("to/deep/late");
    let mut sync = p.sync("from/", "to");
    // By its time it is the other file that differs.
    sync.options.checksum = false;
    let replaced = |request: &Request| -> Vec<String> {
        let preview = p.stager.preview(request, &Cancel::new()).unwrap();
        let changes = preview.changes.into_iter().filter(|change| change.does == Does::Replace);
        changes.map(|change| change.path.rsplit('/').next().unwrap().to_owned()).collect()
    };
    assert_eq!(replaced(&sync), ["late"]);
    sync.options.checksum = true;
    assert_eq!(replaced(&sync), ["large"]);
    let status = p.run(&sync).unwrap();
    assert_eq!((status.bytes_done, status.skipped), (LARGE as u64, 3));
    assert!(
        fs::read(p.path("from/deep/large")).unwrap() == fs::read(p.path("to/deep/large")).unwrap()
    );
    // What has the same bytes keeps its time.
    assert_eq!(p.time("to/deep/late"), late);
    assert_eq!(p.run(&sync).unwrap().bytes_done, 0);
    // Of another size it is copied, whatever its beginning is.
    p.make("to/small", b"small and more");
    assert_eq!(p.run(&sync).unwrap().bytes_done, 5);
}

#[test]
fn a_file_that_is_named_by_itself_is_compared_too() {
    let p = Place::new();
    p.make("to/other", b"SMALL");
    p.date("to/other", 1000);
    assert_eq!(p.run(&p.sync("from/small", "to/small")).unwrap().skipped, 1);
    assert_eq!(p.run(&p.sync("from/none", "to/none")).unwrap().skipped, 1);
    assert_eq!(p.run(&p.sync("from/small", "to/other")).unwrap().bytes_done, 5);
    assert_eq!(fs::read(p.path("to/other")).unwrap(), b"small");
}

#[test]
fn what_is_left_out_is_not_read() {
    let p = Place::new();
    let mut sync = p.sync("from/", "to");
    sync.options.exclude = vec!["large".to_owned()];
    // It would take minutes.
    sync.options.limit = Some(100_000);
    assert_eq!(p.run(&sync).unwrap().bytes_done, 0);
    sync.options.exclude.clear();
    let cancel = Cancel::new();
    let stops = cancel.clone();
    let stopped = std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            stops.cancel();
        });
        p.stager.preview(&sync, &cancel).unwrap_err()
    });
    assert_eq!(stopped.kind(), Kind::Cancelled, "{stopped}");
}

#[test]
fn only_syncs_compare() {
    let p = Place::new();
    let mut copy = p.sync("from/", "to");
    copy.action = Action::Copy;
    let e = p.run(&copy).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("only a sync compares"), "{e}");
}
