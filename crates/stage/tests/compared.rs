//! Syncs: what is compared by what is in it, and how much is removed at most.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};
use stead_core::{Cancel, Kind, Location, Result};
use stead_stage::{Action, Does, Is, Means, Options, Request, Stager, Status};
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
fn what_differs_is_told_and_nothing_is_changed() {
    let p = Place::new();
    p.make("from/new/file", b"new");
    p.make("to/own/file", b"own");
    std::os::unix::fs::symlink("there", p.path("from/link")).unwrap();
    std::os::unix::fs::symlink("elsewhere", p.path("to/link")).unwrap();
    let before = p.time("to/deep/large");
    let names = |request: &Request| {
        let found = p.stager.check(request, &Cancel::new(), None).unwrap();
        let to = format!("{}/to/", p.dir.path().display());
        let of = |is: Is| -> Vec<String> {
            let those = found.names.iter().filter(|name| name.is == is);
            let mut all: Vec<String> =
                those.map(|name| name.path.strip_prefix(&to).unwrap().to_owned()).collect();
            all.sort();
            all
        };
        let counts = (found.same, found.differ, found.missing, found.only);
        (counts, [of(Is::Differ), of(Is::Missing), of(Is::Only)])
    };
    let mut check = p.sync("from", "to");
    // Whatever the request says of how it is compared, and of what is removed.
    check.options.checksum = false;
    let (counts, [differ, missing, only]) = names(&check);
    assert_eq!(counts, (3, 2, 2, 2));
    assert_eq!(differ, ["deep/large", "link"]);
    assert_eq!(missing, ["new", "new/file"]);
    assert_eq!(only, ["own", "own/file"]);
    assert_eq!(p.time("to/deep/large"), before);
    assert!(!p.path("to/new").exists() && p.path("to/own/file").exists());
    assert!(p.stager.statuses(true, 10).unwrap().is_empty());
    // What is left out is on neither side, and what is listed is looked for alone.
    check.options.exclude = ["own", "new", "link", "large"].map(str::to_owned).to_vec();
    assert_eq!(names(&check).0, (3, 0, 0, 0));
    check.options.exclude.clear();
    check.options.files = ["small", "new"].map(str::to_owned).to_vec();
    assert_eq!(names(&check).0, (1, 0, 2, 0));
    // A file in place of a folder is missing, and the folder only there.
    let p = Place::new();
    fs::remove_file(p.path("to/small")).unwrap();
    p.make("to/small/x", b"");
    let found = p.stager.check(&p.sync("from", "to"), &Cancel::new(), None).unwrap();
    assert_eq!((found.same, found.differ, found.missing, found.only), (2, 1, 1, 2));
    // Where nothing is, all of it is missing; and where there is no source, that is no difference.
    let found = p.stager.check(&p.sync("from", "none"), &Cancel::new(), None).unwrap();
    assert_eq!((found.same, found.missing, found.only), (0, 6, 0));
    let e = p.stager.check(&p.sync("none", "to"), &Cancel::new(), None).unwrap_err();
    assert_eq!(e.kind(), Kind::NotFound, "{e}");
    let copy = Request { action: Action::Copy, ..p.sync("from", "to") };
    let copy = Request { options: Options::default(), ..copy };
    assert_eq!(p.stager.check(&copy, &Cancel::new(), None).unwrap_err().kind(), Kind::Usage);
}

#[test]
fn names_that_trees_have_in_common_are_the_same() {
    let p = Place::new();
    std::os::unix::fs::symlink("nowhere", p.path("from/dangles")).unwrap();
    for name in ["dangles", "deep/large"] {
        let _ = fs::remove_file(p.path("to").join(name));
        fs::hard_link(p.path("from").join(name), p.path("to").join(name)).unwrap();
    }
    let found = p.stager.check(&p.sync("from", "to"), &Cancel::new(), None).unwrap();
    assert!(found.is_same() && found.same == 5, "{found:?}");
    assert_eq!(p.run(&p.sync("from/", "to")).unwrap().skipped, 5);
}

#[test]
fn a_tree_is_not_held_against_itself() {
    let p = Place::new();
    let e = p.stager.check(&p.sync("from/", "from"), &Cancel::new(), None).unwrap_err();
    assert_eq!(e.kind(), Kind::Usage, "{e}");
}

#[test]
fn differences_are_counted_beyond_those_that_are_named() {
    let p = Place::new();
    for n in 0..600 {
        p.make(&format!("from/many/{n}"), b"x");
    }
    let found = p.stager.check(&p.sync("from/many", "none"), &Cancel::new(), None).unwrap();
    assert_eq!((found.missing, found.names.len()), (601, 501));
}

#[test]
fn no_more_is_removed_than_may_be() {
    let p = Place::new();
    for name in ["to/own/a", "to/own/b", "to/c"] {
        p.make(name, b"own");
    }
    // In the way of a file: it would go, too.
    fs::remove_file(p.path("to/small")).unwrap();
    p.make("to/small/in", b"own");
    let mut sync = p.sync("from/", "to");
    (sync.options.delete, sync.options.max_delete) = (true, Some(5));
    for done in [p.stager.preview(&sync, &Cancel::new()).map(drop), p.run(&sync).map(drop)] {
        let e = done.unwrap_err();
        assert!(e.kind() == Kind::Limit && e.message().contains("6 name(s) of the target"), "{e}");
        assert!(p.path("to/own/a").exists() && p.path("to/small/in").exists());
        assert_eq!(p.time("to/none"), p.time("from/none"));
    }
    // Of what nobody removes nothing is said.
    assert_eq!(p.stager.check(&sync, &Cancel::new(), None).unwrap().only, 6);
    sync.options.max_delete = Some(6);
    let status = p.run(&sync).unwrap();
    assert!(status.failed == 0 && !p.path("to/own").exists() && p.path("to/small").is_file());
    sync.options.max_delete = Some(0);
    assert_eq!(p.run(&sync).unwrap().files, 1, "the folder alone");
    sync.options.delete = false;
    assert_eq!(p.run(&sync).unwrap_err().kind(), Kind::Usage);
}

#[test]
fn only_syncs_compare() {
    let p = Place::new();
    let mut copy = p.sync("from/", "to");
    copy.action = Action::Copy;
    let e = p.run(&copy).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("only a sync compares"), "{e}");
}
