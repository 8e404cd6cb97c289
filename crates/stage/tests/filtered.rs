//! Transfers that leave names out.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::path::{Path, PathBuf};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Kind, Location, Result};
use stead_stage::{
    Action, Does, Means, Options, Progress, Request, Stager, State, Status, Watcher,
};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
    stager: Stager,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        let means = Means { spaces: Spaces::default(), threads: 2, ..Means::default() };
        let stager = Stager::open(&dir.path().join("state"), means).unwrap();
        let p = Place { dir, stager };
        for name in [
            "a.h5",
            "a.tmp",
            "core",
            ".hid.tmp",
            "logs/l1",
            "deep/b.h5",
            "deep/core",
            "deep/logs/l2",
        ] {
            p.make(&format!("from/{name}"));
        }
        fs::create_dir(p.path("from/empty")).unwrap();
        p
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn make(&self, name: &str) {
        let path = self.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }

    fn request(&self, action: Action, exclude: &[&str], include: &[&str]) -> Request {
        let at = |name: &str| {
            Location::parse(&format!("{}/{name}", self.dir.path().display()), &|_| None).unwrap()
        };
        let all = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        Request {
            action,
            sources: vec![at("from/")],
            target: Some(at("to")),
            options: Options { exclude: all(exclude), include: all(include), ..Options::default() },
        }
    }

    fn run(&self, request: &Request) -> Result<Status> {
        let id = self.stager.submit(request)?;
        self.stager.run(id, &Cancel::new(), None)
    }

    /// What lies below a folder, folders with a `/` behind them.
    fn names(&self, at: &str) -> Vec<String> {
        fn walk(root: &Path, at: &Path, all: &mut Vec<String>) {
            for entry in fs::read_dir(at).unwrap() {
                let path = entry.unwrap().path();
                let name = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
                if path.is_dir() {
                    all.push(name + "/");
                    walk(root, &path, all);
                } else {
                    all.push(name);
                }
            }
        }
        let (root, mut all) = (self.path(at), Vec::new());
        walk(&root, &root, &mut all);
        all.sort();
        all
    }
}

#[test]
fn what_is_excluded_does_not_come() {
    let p = Place::new();
    p.run(&p.request(Action::Copy, &["*.tmp", "/core", "logs/"], &[])).unwrap();
    assert_eq!(p.names("to"), ["a.h5", "deep/", "deep/b.h5", "deep/core", "empty/"]);
}

#[test]
fn what_is_included_comes_alone_with_the_folders_that_it_lies_in() {
    let p = Place::new();
    for name in ["x/y/z.h5", "x/y/none/v", "x/none/deep/v", "none/v"] {
        p.make(&format!("from/{name}"));
    }
    let status = p.run(&p.request(Action::Copy, &["deep/"], &["*.h5", "l?"])).unwrap();
    assert_eq!(p.names("to"), ["a.h5", "logs/", "logs/l1", "x/", "x/y/", "x/y/z.h5"]);
    // The target, three folders and three files.
    assert_eq!((status.files, status.files_done), (7, 7));
}

#[test]
fn a_sync_leaves_alone_what_is_left_out_on_both_sides() {
    let p = Place::new();
    for name in ["own.tmp", "old/x", "old/keep.tmp", "old/in/y", "gone/z", "logs/theirs", "a.h5/x"]
    {
        p.make(&format!("to/{name}"));
    }
    let mut request = p.request(Action::Sync, &["*.tmp", "logs/"], &[]);
    request.options.delete = true;
    let preview = p.stager.preview(&request, &Cancel::new()).unwrap();
    let mut removed: Vec<String> = preview
        .changes
        .iter()
        .filter(|change| change.does == Does::Remove)
        .map(|change| change.path.strip_prefix(p.path("to").to_str().unwrap()).unwrap().to_owned())
        .collect();
    removed.sort();
    assert_eq!(removed, ["/a.h5", "/a.h5/x", "/gone", "/gone/z", "/old/in", "/old/in/y", "/old/x"]);
    assert_eq!(preview.removed, 7);
    p.run(&request).unwrap();
    let wanted = [
        "a.h5",
        "core",
        "deep/",
        "deep/b.h5",
        "deep/core",
        "empty/",
        "logs/",
        "logs/theirs",
        "old/",
        "old/keep.tmp",
        "own.tmp",
    ];
    assert_eq!(p.names("to"), wanted);
    // Where it is in the way of something, that is said.
    p.make("to/core.d/x.tmp");
    p.make("from/core.d");
    let e = p.run(&request).unwrap_err();
    assert!(
        e.kind() == Kind::Usage && e.message().contains("this is a folder, and something else"),
        "{e}"
    );
}

#[test]
fn what_is_named_is_left_out_by_its_last_part() {
    let p = Place::new();
    let named = |sources: &[&str], exclude: &[&str], include: &[&str]| {
        let at = |name: &str| p.dir.path().join(name).display().to_string();
        let location = |name: &&str| Location::parse(&at(name), &|_| None).unwrap();
        let sources = sources.iter().map(location).collect();
        Request { sources, ..p.request(Action::Copy, exclude, include) }
    };
    fs::create_dir(p.path("to")).unwrap();
    // By a pattern of ours, or of a shell.
    p.run(&named(&["from/*"], &["*.tmp", "/core", "logs/"], &[])).unwrap();
    assert_eq!(p.names("to"), ["a.h5", "deep/", "deep/b.h5", "empty/"]);
    fs::remove_dir_all(p.path("to")).unwrap();
    fs::create_dir(p.path("to")).unwrap();
    p.run(&named(&["from/a.h5", "from/a.tmp", "from/core", "from/deep"], &[], &["*.h5"])).unwrap();
    assert_eq!(p.names("to"), ["a.h5", "deep/", "deep/b.h5"]);
    let e = p.run(&named(&["from/a.tmp", "from/core"], &[], &["*.h5"])).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("all that is named"), "{e}");
}

#[test]
fn a_move_leaves_what_is_left_out_where_it_is() {
    let p = Place::new();
    let status = p.run(&p.request(Action::Move, &["*.tmp", "deep/logs/"], &[])).unwrap();
    assert_eq!((status.failed, status.bytes_done), (0, status.bytes));
    let there = ["a.h5", "core", "deep/", "deep/b.h5", "deep/core", "empty/", "logs/", "logs/l1"];
    assert_eq!(p.names("to"), there);
    let left = [".hid.tmp", "a.tmp", "deep/", "deep/logs/", "deep/logs/l2"];
    assert_eq!(p.names("from"), left);
    // With its own name, into a folder that is there: file by file, as names.
    let p = Place::new();
    fs::create_dir(p.path("to")).unwrap();
    let number =
        |name: &str| std::os::unix::fs::MetadataExt::ino(&fs::metadata(p.path(name)).unwrap());
    let before = number("from/deep/b.h5");
    let mut request = p.request(Action::Move, &[], &["*.h5"]);
    request.sources[0].inside = false;
    let preview = p.stager.preview(&request, &Cancel::new()).unwrap();
    assert_eq!((preview.renamed, preview.files), (2, 0));
    p.run(&request).unwrap();
    assert_eq!(p.names("to"), ["from/", "from/a.h5", "from/deep/", "from/deep/b.h5"]);
    assert_eq!(number("to/from/deep/b.h5"), before);
    let left = [
        ".hid.tmp",
        "a.tmp",
        "core",
        "deep/",
        "deep/core",
        "deep/logs/",
        "deep/logs/l2",
        // Nothing that is meant lay in it, so that it was not made there.
        "empty/",
        "logs/",
        "logs/l1",
    ];
    assert_eq!(p.names("from"), left);
}

#[test]
fn files_are_taken_by_their_size_and_age() {
    let p = Place::new();
    let day = std::time::Duration::from_secs(86_400);
    let date = |name: &str, days: u32| {
        let time = std::time::SystemTime::now() - day * days;
        let file = fs::File::options().write(true).open(p.path(name)).unwrap();
        file.set_modified(time).unwrap();
    };
    fs::write(p.path("from/deep/large"), [0u8; 5000]).unwrap();
    fs::write(p.path("from/core"), [0u8; 100]).unwrap();
    for (name, days) in [("a.h5", 1), ("core", 3), ("deep/large", 3), ("deep/core", 9)] {
        date(&format!("from/{name}"), days);
    }
    let measured = |action, sizes: (Option<u64>, Option<u64>), ages: (Option<u64>, Option<u64>)| {
        let mut request = p.request(action, &[], &[]);
        let seconds = |days: u64| days * 86_400;
        (request.options.min_size, request.options.max_size) = sizes;
        request.options.min_age = ages.0.map(seconds);
        request.options.max_age = ages.1.map(seconds);
        request
    };
    p.run(&measured(Action::Copy, (Some(100), None), (None, None))).unwrap();
    assert_eq!(p.names("to"), ["core", "deep/", "deep/large"]);
    fs::remove_dir_all(p.path("to")).unwrap();
    p.run(&measured(Action::Copy, (None, Some(5000)), (Some(2), Some(4)))).unwrap();
    assert_eq!(p.names("to"), ["core", "deep/", "deep/large"]);
    // A sync leaves on the target what is left out there or here.
    p.make("to/own/new");
    p.make("to/own/old");
    date("to/own/old", 3);
    p.make("to/deep/core");
    date("to/deep/core", 3);
    let mut sync = measured(Action::Sync, (None, None), (Some(2), Some(4)));
    sync.options.delete = true;
    p.run(&sync).unwrap();
    // Of the source's file of nine days nobody speaks: its name stays, and so does what has it.
    assert_eq!(p.names("to"), ["core", "deep/", "deep/core", "deep/large", "own/", "own/new"]);
    assert_eq!(fs::read(p.path("to/deep/core")).unwrap(), b"to/deep/core");
    // A move takes what is old, and nothing else.
    fs::remove_dir_all(p.path("to")).unwrap();
    p.run(&measured(Action::Move, (None, None), (Some(2), None))).unwrap();
    assert_eq!(p.names("to"), ["core", "deep/", "deep/core", "deep/large"]);
    let left = [
        ".hid.tmp",
        "a.h5",
        "a.tmp",
        "deep/",
        "deep/b.h5",
        "deep/logs/",
        "deep/logs/l2",
        "empty/",
        "logs/",
        "logs/l1",
    ];
    assert_eq!(p.names("from"), left);
    // What is named and is too new is no mistake; a size that no file has is one.
    let mut named = measured(Action::Move, (None, None), (Some(2), None));
    named.sources[0] = Location {
        path: format!("{}/a.h5", named.sources[0].path),
        inside: false,
        ..named.sources[0].clone()
    };
    assert_eq!(p.run(&named).unwrap().files, 0);
    assert!(p.path("from/a.h5").exists());
    let e = p.run(&measured(Action::Copy, (Some(2), Some(1)), (None, None))).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("--min-size"), "{e}");
}

#[test]
fn ages_are_those_of_when_a_transfer_was_begun_however_often_it_is_planned() {
    let p = Place::new();
    let hours = |n: u64| std::time::Duration::from_secs(n * 3600);
    let file = fs::File::options().write(true).open(p.path("from/a.h5")).unwrap();
    file.set_modified(std::time::SystemTime::now() - hours(3)).unwrap();
    // Whoever began it was killed two hours ago, before it was planned.
    let begun = |to: &str| {
        let mut request = p.request(Action::Copy, &[], &[]);
        request.options.min_age = Some(2 * 3600);
        let target =
            Location { path: p.path(to).display().to_string(), ..request.sources[0].clone() };
        request.target = Some(Location { inside: false, ..target });
        let id = p.stager.submit(&request).unwrap();
        let then = "UPDATE transfer SET state = 'interrupted', started = strftime('%s', 'now') - 7200 WHERE id = ?1";
        let journal = rusqlite::Connection::open(p.path("state/transfers.db")).unwrap();
        assert_eq!(journal.execute(then, [id]).unwrap(), 1);
        (id, request)
    };
    let (id, _) = begun("to");
    assert_eq!(p.stager.run(id, &Cancel::new(), None).unwrap().bytes_done, 0);
    assert!(!p.path("to/a.h5").exists());
    // Who asks for the same now means what is as old by now.
    let (id, request) = begun("anew");
    assert_eq!(p.stager.same(&request).unwrap(), Some(id));
    p.stager.run(id, &Cancel::new(), None).unwrap();
    assert_eq!(p.names("anew"), ["a.h5"]);
}

/// Writes a file anew as soon as files are compared.
struct Writes(PathBuf);

impl Watcher for Writes {
    fn progress(&self, progress: &Progress) {
        if !progress.planned {
            fs::write(&self.0, "anew").unwrap();
        }
    }
}

#[test]
fn what_was_too_old_is_not_removed_where_somebody_writes_it_anew() {
    let p = Place::new();
    let then = std::time::SystemTime::now() - std::time::Duration::from_secs(9 * 86_400);
    let old = |name: &str, bytes: &[u8]| {
        fs::create_dir_all(p.path(name).parent().unwrap()).unwrap();
        fs::write(p.path(name), bytes).unwrap();
        let file = fs::File::options().write(true).open(p.path(name)).unwrap();
        file.set_modified(then).unwrap();
    };
    let large = vec![1; 300_000];
    for name in ["from/deep/x", "from/deep/y", "to/deep/x", "to/deep/y"] {
        old(name, &large);
    }
    for name in ["to/gone", "to/live"] {
        old(name, b"own");
    }
    let mut sync = p.request(Action::Sync, &[], &[]);
    // So slowly that somebody is told of it. What is only there was seen before.
    let limit = Some(1 << 20);
    let min_age = Some(86_400);
    sync.options = Options { delete: true, checksum: true, min_age, limit, ..sync.options };
    let id = p.stager.submit(&sync).unwrap();
    let status = p.stager.run(id, &Cancel::new(), Some(&Writes(p.path("to/live")))).unwrap();
    assert_eq!((status.state, status.failed), (State::Failed, 1), "{status:?}");
    assert!(status.failures[0].error.contains("changed after it was to be"), "{status:?}");
    assert!(!p.path("to/gone").exists() && fs::read(p.path("to/live")).unwrap() == b"anew");
}

#[test]
fn removals_are_of_all_that_is_named() {
    let p = Place::new();
    let mut remove = p.request(Action::Remove, &["*.tmp"], &[]);
    remove.target = None;
    let e = p.run(&remove).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("only copies, moves and"), "{e}");
    let e = p.run(&p.request(Action::Copy, &["["], &[])).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("is no pattern"), "{e}");
}

#[test]
fn what_is_listed_comes_alone_with_the_folders_that_it_lies_in() {
    let p = Place::new();
    fs::create_dir(p.path("from/logs/empty")).unwrap();
    let listed = |action, files: &[&str], exclude: &[&str]| {
        let mut request = p.request(action, exclude, &[]);
        request.options.files = files.iter().map(|name| (*name).to_owned()).collect();
        request
    };
    // Nothing else is looked at: it could not be copied.
    rustix::fs::mknodat(
        rustix::fs::CWD,
        p.path("from/deep/pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let files = ["deep/b.h5", "./deep/logs/l2", "logs/", "a.h5"];
    let status = p.run(&listed(Action::Copy, &files, &[])).unwrap();
    let all = [
        "a.h5",
        "deep/",
        "deep/b.h5",
        "deep/logs/",
        "deep/logs/l2",
        "logs/",
        "logs/empty/",
        "logs/l1",
    ];
    assert_eq!(p.names("to"), all);
    assert_eq!(status.files_done, 9);
    // Patterns are about these, too; what is the same is left.
    fs::write(p.path("from/core"), b"longer").unwrap();
    let status = p.run(&listed(Action::Sync, &["a.h5", "core", "a.tmp"], &["*.tmp"])).unwrap();
    assert_eq!(status.skipped, 1);
    assert_eq!(p.names("to").len(), all.len() + 1);
    for (name, kind, what) in [
        ("none", Kind::NotFound, "which is listed"),
        ("deep/none/x", Kind::NotFound, "which is listed"),
        ("core/x", Kind::Usage, "a name in it is listed"),
        ("../from", Kind::Usage, "no name below a source"),
    ] {
        let e = p.run(&listed(Action::Sync, &["a.h5", name], &[])).unwrap_err();
        assert!(e.kind() == kind && e.to_string().contains(what), "{name}: {e}");
    }
    // With its own name if it is named so, and of a file nothing is listed.
    let mut whole = listed(Action::Copy, &["deep/core"], &[]);
    whole.sources[0].inside = false;
    p.run(&whole).unwrap();
    assert_eq!(fs::read(p.path("to/from/deep/core")).unwrap(), b"from/deep/core");
    whole.sources[0] =
        Location { path: format!("{}/a.h5", whole.sources[0].path), ..whole.sources[0].clone() };
    let e = p.run(&whole).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.to_string().contains("no folder"), "{e}");
}
