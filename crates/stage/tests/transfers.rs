//! Transfers from end to end, over real files.

#![allow(clippy::unwrap_used, clippy::print_stderr, clippy::panic)]

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::hash::{Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Kind, Location, Result};
use stead_stage::{
    Action, Exists, Means, Moving, Options, Progress, Request, Stager, State, Status, Watcher,
};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
    stager: Stager,
}

fn place() -> Place {
    place_in(tempfile::tempdir().unwrap())
}

fn place_of_copies() -> Place {
    place_in(common::dir_of_copies())
}

fn place_in(dir: TempDir) -> Place {
    let mut spaces = Spaces::default();
    fs::create_dir(dir.path().join("space")).unwrap();
    spaces.give(&format!("s={}/space", dir.path().display()), &|_| None).unwrap();
    let means = Means { spaces, threads: 3, ..Means::default() };
    let stager = Stager::open(&dir.path().join("state"), means).unwrap();
    Place { dir, stager }
}

impl Place {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Names without `://` are below the folder of the test.
    fn request(&self, action: Action, sources: &[&str], target: Option<&str>) -> Request {
        let location = |text: &str| {
            let text = match text.contains("://") {
                true => text.to_owned(),
                false => format!("{}/{text}", self.dir.path().display()),
            };
            Location::parse(&text, &|_| None).unwrap()
        };
        Request {
            action,
            sources: sources.iter().map(|s| location(s)).collect(),
            target: target.map(location),
            options: Options::default(),
        }
    }

    fn run(&self, request: &Request) -> Result<Status> {
        let id = self.stager.submit(request)?;
        self.stager.run(id, &Cancel::new(), None)
    }

    fn copy(&self, source: &str, target: &str) -> Result<Status> {
        self.run(&self.request(Action::Copy, &[source], Some(target)))
    }
}

/// A tree with one of everything that a copy keeps.
fn tree(at: &Path) {
    fs::create_dir_all(at.join("a/b/empty")).unwrap();
    let bytes =
        |n: usize, k: usize| (0..n).map(|i| (i * k / 7 + i / 4096) as u8).collect::<Vec<u8>>();
    for (i, size) in
        [0, 1, 4095, 4096, 4097, 300_000, 1 << 20, (1 << 20) + 1, 9_000_001].into_iter().enumerate()
    {
        fs::write(at.join(format!("a/f{i}")), bytes(size, 3 + i)).unwrap();
    }
    let odd = at.join("a/b").join(OsStr::from_bytes(b"no\xfftext\n*"));
    fs::write(&odd, b"odd").unwrap();
    fs::hard_link(at.join("a/f5"), at.join("a/b/again")).unwrap();
    symlink("../f1", at.join("a/b/link")).unwrap();
    symlink("/nowhere", at.join("a/dangling")).unwrap();
    let sparse = fs::File::create(at.join("sparse")).unwrap();
    sparse.set_len(40 << 20).unwrap();
    sparse.write_all_at(b"in the middle", (20 << 20) + 77).unwrap();
    fs::set_permissions(at.join("a/f2"), fs::Permissions::from_mode(0o640)).unwrap();
    fs::set_permissions(at.join("a/b"), fs::Permissions::from_mode(0o750)).unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::new(1_234_567_890, 123_456_789);
    fs::File::options().write(true).open(at.join("a/f3")).unwrap().set_modified(time).unwrap();
    fs::File::open(at.join("a/b/empty")).unwrap().set_modified(time).unwrap();
}

/// Of a name: rights, time, a hash of its bytes, the first name of the same file.
type Picture = BTreeMap<String, (u32, i64, i64, u64, Option<String>)>;

/// What a copy is to have of a tree: names with kind, rights, time, bytes, and which names are one file.
fn picture(at: &Path) -> Picture {
    let mut all = BTreeMap::new();
    let mut first: BTreeMap<(u64, u64), String> = BTreeMap::new();
    let mut left = vec![at.to_owned()];
    let mut paths = Vec::new();
    while let Some(dir) = left.pop() {
        for entry in fs::read_dir(&dir).unwrap() {
            let path = entry.unwrap().path();
            if path.symlink_metadata().unwrap().is_dir() {
                left.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let meta = path.symlink_metadata().unwrap();
        let name = format!("{:?}", path.strip_prefix(at).unwrap());
        let bytes = if meta.is_symlink() {
            fs::read_link(&path).unwrap().as_os_str().as_bytes().to_vec()
        } else if meta.is_dir() {
            Vec::new()
        } else {
            fs::read(&path).unwrap()
        };
        let same = (meta.is_file() && meta.nlink() > 1)
            .then(|| first.entry((meta.dev(), meta.ino())).or_insert_with(|| name.clone()).clone());
        let mut hash = std::hash::DefaultHasher::new();
        bytes.hash(&mut hash);
        all.insert(name, (meta.mode(), meta.mtime(), meta.mtime_nsec(), hash.finish(), same));
    }
    all
}

/// Nothing that only transfers know is left.
fn assert_tidy(at: &Path) {
    for name in picture(at).keys() {
        assert!(!name.contains(".stead-"), "{name}");
    }
}

#[test]
fn a_tree_is_copied_with_all_that_belongs_to_it() {
    let p = place();
    tree(&p.path("from"));
    for (target, verify, durable) in [("to", false, true), ("s://deep/er", true, false)] {
        let mut request = p.request(Action::Copy, &["from"], Some(target));
        request.options = Options { verify, durable, ..Options::default() };
        let status = p.run(&request).unwrap();
        assert_eq!((status.state, status.failed, status.skipped), (State::Finished, 0, 0));
        assert_eq!(status.files, status.files_done);
        assert_eq!(status.bytes, status.bytes_done);
        let to = if target == "to" { p.path("to") } else { p.path("space/deep/er") };
        assert_eq!(picture(&p.path("from")), picture(&to));
        let holes = to.join("sparse").metadata().unwrap();
        assert!(holes.blocks() * 512 < 1 << 20, "{} blocks", holes.blocks());
    }
}

#[test]
fn where_things_go_is_as_the_names_say() {
    let p = place();
    fs::create_dir_all(p.path("d/e")).unwrap();
    fs::write(p.path("f"), b"f").unwrap();
    fs::write(p.path("d/e/g"), b"g").unwrap();
    fs::create_dir(p.path("there")).unwrap();
    // A new name; into a folder that is there; into one that is named with a '/'.
    p.copy("f", "new").unwrap();
    p.copy("f", "there").unwrap();
    p.copy("f", "made/on/the/way/").unwrap();
    p.copy("d", "tree").unwrap();
    p.copy("d", "there").unwrap();
    p.copy("d/", "contents").unwrap();
    p.copy("d/e/*", "globbed").unwrap();
    for path in [
        "new",
        "there/f",
        "made/on/the/way/f",
        "tree/e/g",
        "there/d/e/g",
        "contents/e/g",
        "globbed/g",
    ] {
        assert!(p.path(path).is_file(), "{path}");
    }
    let both = p.request(Action::Copy, &["f", "d/e/g"], Some("two"));
    p.run(&both).unwrap();
    assert!(p.path("two/f").is_file() && p.path("two/g").is_file());
    let twice = p.request(Action::Copy, &["f", "new", "there/f"], Some("three"));
    assert!(p.run(&twice).unwrap_err().message().contains("two sources"));
    assert!(!p.path("three").exists());
    // A link that is named is followed, one within a tree is not.
    symlink(p.path("f"), p.path("d/l")).unwrap();
    p.copy("d/l", "followed").unwrap();
    assert!(p.path("followed").symlink_metadata().unwrap().is_file());
}

#[test]
fn what_is_there_is_left_replaced_or_refused_as_is_wanted() {
    let p = place();
    let time = |path: &str, s: u64| {
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(s);
        fs::File::options().write(true).open(p.path(path)).unwrap().set_modified(time).unwrap();
    };
    for (exists, source_time, want) in [
        (Exists::Replace, 5, &b"new"[..]),
        (Exists::Skip, 5, b"old"),
        (Exists::Newer, 5, b"old"),
        (Exists::Newer, 15, b"new"),
    ] {
        fs::write(p.path("f"), b"new").unwrap();
        fs::write(p.path("g"), b"old").unwrap();
        time("f", source_time);
        time("g", 10);
        let mut request = p.request(Action::Copy, &["f"], Some("g"));
        assert_eq!(p.run(&request).unwrap_err().kind(), Kind::Usage);
        assert_eq!(fs::read(p.path("g")).unwrap(), b"old");
        request.options.exists = exists;
        p.run(&request).unwrap();
        assert_eq!(fs::read(p.path("g")).unwrap(), want, "{exists:?}");
    }
    assert!(p.copy("f", "f").unwrap_err().message().contains("the same"));
    fs::create_dir(p.path("d")).unwrap();
    fs::write(p.path("d/f"), b"x").unwrap();
    assert!(p.copy("d", "d/e").unwrap_err().message().contains("into itself"));
    assert!(p.copy("d/", "d").unwrap_err().message().contains("into itself"));
    let file_to_folder = p.request(Action::Copy, &["d/"], Some("f"));
    assert_eq!(p.run(&file_to_folder).unwrap_err().kind(), Kind::Usage);
    assert_tidy(p.dir.path());
}

#[test]
fn a_sync_changes_what_differs_and_nothing_else() {
    let p = place();
    tree(&p.path("from"));
    let mut request = p.request(Action::Sync, &["from"], Some("to"));
    p.run(&request).unwrap();
    assert_eq!(picture(&p.path("from")), picture(&p.path("to")));
    let ino = |path: &str| p.path(path).symlink_metadata().unwrap().ino();
    let before = ino("to/a/f4");
    let again = p.run(&request).unwrap();
    assert!(again.bytes == 0 && again.skipped >= 10, "{again:?}");
    assert_eq!(ino("to/a/f4"), before);
    // Others come, go, and change their kind.
    fs::write(p.path("from/a/f0"), b"longer").unwrap();
    fs::write(p.path("to/a/more"), b"x").unwrap();
    fs::create_dir_all(p.path("to/gone/deep")).unwrap();
    fs::write(p.path("to/gone/deep/f"), b"x").unwrap();
    fs::remove_file(p.path("from/a/f1")).unwrap();
    fs::create_dir(p.path("from/a/f1")).unwrap();
    fs::write(p.path("from/a/f1/inner"), b"y").unwrap();
    assert_eq!(p.run(&request).unwrap_err().kind(), Kind::Usage);
    request.options.delete = true;
    p.run(&request).unwrap();
    assert_eq!(picture(&p.path("from")), picture(&p.path("to")));
}

#[test]
fn a_move_leaves_nothing_behind_and_loses_nothing() {
    let p = place();
    tree(&p.path("from"));
    let whole = picture(&p.path("from"));
    // Within a file system it is a rename.
    let status = p.run(&p.request(Action::Move, &["from"], Some("to"))).unwrap();
    assert_eq!((status.files, status.bytes), (1, 0));
    assert!(!p.path("from").exists());
    assert_eq!(picture(&p.path("to")), whole);
    // Into a tree that is there, names are moved one by one.
    fs::create_dir_all(p.path("there/to/a")).unwrap();
    fs::write(p.path("there/to/own"), b"own").unwrap();
    p.run(&p.request(Action::Move, &["to"], Some("there"))).unwrap();
    assert!(!p.path("to").exists());
    let mut got = picture(&p.path("there/to"));
    assert!(got.remove("\"own\"").is_some());
    // The folder that was there keeps what it had.
    let strip = |mut all: Picture| {
        all.remove("\"a\"");
        all
    };
    assert_eq!(strip(got), strip(whole));
    assert_tidy(p.dir.path());
}

#[test]
fn to_another_file_system_and_back() {
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("NOT TESTED HERE: there is no /dev/shm");
    };
    let p = place();
    tree(&p.path("from"));
    let whole = picture(&p.path("from"));
    let there = Location::parse(&format!("{}/to", other.path().display()), &|_| None).unwrap();
    let mut request = p.request(Action::Move, &["from"], Some("x"));
    request.target = Some(there.clone());
    p.run(&request).unwrap();
    assert!(!p.path("from").exists());
    let attributes = picture(&other.path().join("to"));
    assert_eq!(attributes, whole);
    let mut back = p.request(Action::Move, &["x"], Some("back"));
    back.sources = vec![there];
    p.run(&back).unwrap();
    assert_eq!(picture(&p.path("back")), whole);
    assert_eq!(fs::read_dir(other.path()).unwrap().count(), 0);
}

#[test]
fn what_is_removed_is_gone_and_its_neighbours_are_not() {
    let p = place();
    tree(&p.path("from"));
    fs::write(p.path("outside"), b"x").unwrap();
    symlink(p.path("outside"), p.path("from/a/out")).unwrap();
    symlink(p.dir.path(), p.path("from/a/up")).unwrap();
    let status = p.run(&p.request(Action::Remove, &["from/a"], None)).unwrap();
    assert!(status.files > 15 && status.state == State::Finished);
    assert!(
        !p.path("from/a").exists() && p.path("from/sparse").exists() && p.path("outside").exists()
    );
    let gone = p.request(Action::Remove, &["from/a"], None);
    assert_eq!(p.run(&gone).unwrap_err().kind(), Kind::NotFound);
    assert_eq!(p.run(&p.request(Action::Remove, &["s://"], None)).unwrap_err().kind(), Kind::Usage);
    fs::write(p.path("space/x"), b"x").unwrap();
    p.run(&p.request(Action::Remove, &["s://*"], None)).unwrap();
    assert_eq!(fs::read_dir(p.path("space")).unwrap().count(), 0);
}

#[test]
fn nothing_leads_out_of_a_dataspace() {
    let p = place();
    fs::create_dir(p.path("outside")).unwrap();
    fs::write(p.path("outside/secret"), b"x").unwrap();
    symlink(p.path("outside"), p.path("space/door")).unwrap();
    fs::write(p.path("f"), b"f").unwrap();
    for (source, target) in
        [("s://door/secret", "stolen"), ("f", "s://door/planted"), ("f", "s://door/")]
    {
        let e = p.copy(source, target).unwrap_err();
        assert!(matches!(e.kind(), Kind::Permission | Kind::Usage), "{source} {target}: {e}");
    }
    assert_eq!(fs::read_dir(p.path("outside")).unwrap().count(), 1);
    assert!(!p.path("stolen").exists());
    // A link within is a link.
    p.copy("s://door", "copied").unwrap();
    assert!(p.path("copied").is_symlink());
}

#[test]
fn special_files_are_refused_or_left_out() {
    let p = place();
    fs::create_dir(p.path("from")).unwrap();
    fs::write(p.path("from/f"), b"f").unwrap();
    let pipe = p.path("from/pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let mut request = p.request(Action::Copy, &["from"], Some("to"));
    assert!(p.run(&request).unwrap_err().hint().unwrap().contains("--skip-special"));
    assert!(!p.path("to").exists());
    request.options.skip_special = true;
    assert_eq!(p.run(&request).unwrap().skipped, 1);
    assert!(p.path("to/f").is_file() && !p.path("to/pipe").exists());
}

#[test]
fn what_cannot_be_done_is_told_and_the_rest_is_done() {
    if rustix::process::geteuid().is_root() {
        return eprintln!("NOT TESTED HERE: root may read everything");
    }
    let p = place();
    fs::create_dir(p.path("from")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(p.path("from").join(name), name).unwrap();
    }
    fs::set_permissions(p.path("from/b"), fs::Permissions::from_mode(0o000)).unwrap();
    let status = p.copy("from", "to").unwrap();
    assert_eq!((status.state, status.failed), (State::Failed, 1));
    assert!(status.failures[0].path.ends_with('b'), "{:?}", status.failures);
    assert!(p.path("to/a").is_file() && p.path("to/c").is_file() && !p.path("to/b").exists());
    fs::set_permissions(p.path("from/b"), fs::Permissions::from_mode(0o600)).unwrap();
    let status = p.stager.run(status.id, &Cancel::new(), None).unwrap();
    assert_eq!(status.state, State::Finished);
    assert_eq!(picture(&p.path("from")), picture(&p.path("to")));
}

/// Stops a transfer once so many bytes have gone.
struct Stop(Cancel, u64);

impl Watcher for Stop {
    fn progress(&self, progress: &Progress) {
        assert!(progress.left.low <= progress.left.seconds && progress.left.high.is_finite());
        if progress.bytes_done >= self.1 {
            self.0.cancel();
        }
    }
}

#[test]
fn a_transfer_that_was_stopped_goes_on_where_it_was() {
    let p = place_of_copies();
    fs::create_dir(p.path("from")).unwrap();
    // Larger than what begins anew, and slow enough to be stopped in the middle.
    let big: Vec<u8> = (0..300usize << 20).map(|i| (i / 3 + i / 65_536) as u8).collect();
    fs::write(p.path("from/big"), &big).unwrap();
    fs::write(p.path("from/small"), b"small").unwrap();
    let mut request = p.request(Action::Copy, &["from"], Some("to"));
    request.options.limit = Some(40 << 20);
    request.options.durable = false;
    let id = p.stager.submit(&request).unwrap();
    let cancel = Cancel::new();
    let e = p.stager.run(id, &cancel, Some(&Stop(cancel.clone(), 100 << 20))).unwrap_err();
    assert!(e.kind() == Kind::Cancelled && e.hint().unwrap().contains("--resume"), "{e}");
    let status = p.stager.status(id).unwrap();
    assert_eq!(status.state, State::Interrupted);
    assert!(!p.path("to/big").exists());
    assert_eq!(p.stager.waiting().unwrap(), [id]);
    assert_eq!(p.stager.same(&request).unwrap(), Some(id));
    // It does not begin anew: a byte of what is there is another one from now on.
    let there = fs::read_dir(p.path("to")).unwrap().map(|entry| entry.unwrap().path());
    let begun: Vec<_> = there.filter(|path| path.metadata().unwrap().len() > 5).collect();
    let [begun] = &begun[..] else { panic!("{begun:?}") };
    let file = fs::File::options().write(true).open(begun).unwrap();
    file.write_all_at(&[!big[0]], 0).unwrap();
    common::hasten(&p.path("state"), 40 << 20);
    let status = p.stager.run(id, &Cancel::new(), None).unwrap();
    assert_eq!((status.state, status.bytes_done), (State::Finished, status.bytes));
    let mut got = fs::read(p.path("to/big")).unwrap();
    assert_eq!(got[0], !big[0]);
    got[0] = big[0];
    assert!(got == big);
    assert_tidy(&p.path("to"));
}

#[test]
fn a_transfer_that_is_given_up_leaves_nothing_half() {
    let p = place_of_copies();
    let big = vec![7u8; 300 << 20];
    fs::write(p.path("big"), &big).unwrap();
    let mut request = p.request(Action::Copy, &["big"], Some("to/"));
    request.options.limit = Some(20 << 20);
    request.options.durable = false;
    let id = p.stager.submit(&request).unwrap();
    let cancel = Cancel::new();
    /// Says when something is on its way.
    struct Moves(AtomicBool);
    impl Watcher for Moves {
        fn progress(&self, progress: &Progress) {
            self.0.fetch_or(progress.bytes_done > 20 << 20, Ordering::Relaxed);
        }
    }
    let moves = Moves(AtomicBool::new(false));
    std::thread::scope(|scope| {
        let running = scope.spawn(|| p.stager.run(id, &cancel, Some(&moves)));
        while !moves.0.load(Ordering::Relaxed) && !running.is_finished() {
            std::thread::yield_now();
        }
        // Nobody else does it meanwhile.
        assert_eq!(p.stager.run(id, &Cancel::new(), None).unwrap_err().kind(), Kind::Usage);
        assert_eq!(p.stager.cancel(id).unwrap().state, State::Cancelled);
        let e = running.join().unwrap().unwrap_err();
        assert!(e.kind() == Kind::Cancelled && e.message().contains("was cancelled"), "{e}");
        // It alone was stopped, and not what its caller does besides.
        assert!(!cancel.is_cancelled());
    });
    assert!(p.stager.cancel(id).unwrap_err().message().contains("cancelled already"));
    assert_eq!(fs::read_dir(p.path("to")).unwrap().count(), 0);
    let over = p.stager.resumable(id).unwrap_err();
    assert!(over.kind() == Kind::Usage && over.message().contains("cancelled already"), "{over}");
    assert_eq!(p.stager.status(999).unwrap_err().kind(), Kind::Usage);
}

#[test]
fn who_comes_to_it_after_it_was_given_up_is_told_so() {
    let p = place();
    fs::write(p.path("one"), b"one").unwrap();
    let request = p.request(Action::Copy, &["one"], Some("to"));
    let id = p.stager.submit(&request).unwrap();
    assert_eq!(p.stager.resumable(id).unwrap().state, State::Pending);
    // As by another process, before the thread that is to do it comes to it.
    assert_eq!(p.stager.cancel(id).unwrap().state, State::Cancelled);
    let e = p.stager.run(id, &Cancel::new(), None).unwrap_err();
    assert!(e.kind() == Kind::Cancelled && e.message().contains("was cancelled"), "{e}");
    assert!(!p.path("to").exists());
}

#[test]
fn a_thread_does_it_meanwhile() {
    let p = place_of_copies();
    fs::write(p.path("f"), vec![3; 40 << 20]).unwrap();
    let mut request = p.request(Action::Copy, &["f"], Some("g"));
    request.options.limit = Some(1 << 20);
    let stager = std::sync::Arc::new(p.stager);
    let id = stager.submit(&request).unwrap();
    let moving = Moving::begin(&stager, id).unwrap();
    assert!(moving.wait(Some(std::time::Duration::from_millis(1))).unwrap().is_none());
    let (told, heard) = std::sync::mpsc::channel();
    let again = told.clone();
    moving.then(move || told.send(1).unwrap());
    moving.stop();
    for _ in 0..2 {
        let e = moving.wait(None).unwrap_err();
        assert!(e.kind() == Kind::Cancelled && e.hint().unwrap().contains("--resume"), "{e}");
    }
    moving.then(move || again.send(2).unwrap());
    // Who comes just as it ends may be told before those who waited.
    let mut both = [heard.recv().unwrap(), heard.recv().unwrap()];
    both.sort_unstable();
    assert_eq!(both, [1, 2]);
    assert!(moving.has_ended() && moving.id() == id);
    // Dropped, it is stopped; another one goes on.
    drop(Moving::begin(&stager, id).unwrap());
    common::hasten(&p.dir.path().join("state"), 1 << 20);
    let moving = Moving::begin(&stager, id).unwrap();
    let status = moving.wait(None).unwrap().unwrap();
    assert_eq!((status.state, status.bytes_done), (State::Finished, 40 << 20));
    assert!(p.dir.path().join("g").is_file());
    let none = Moving::begin(&stager, 99).unwrap();
    assert_eq!(none.wait(None).unwrap_err().kind(), Kind::Usage);
}

/// Stops a transfer at its first sign, and gives its number.
fn interrupted(p: &Place, request: &Request, after: u64) -> i64 {
    let id = p.stager.submit(request).unwrap();
    let cancel = Cancel::new();
    let e = p.stager.run(id, &cancel, Some(&Stop(cancel.clone(), after))).unwrap_err();
    assert_eq!(e.kind(), Kind::Cancelled);
    id
}

#[test]
fn a_sync_never_removes_what_it_is_to_copy() {
    let p = place();
    fs::create_dir_all(p.path("e/sub")).unwrap();
    fs::write(p.path("e/sub/f"), b"f").unwrap();
    fs::create_dir(p.path("b")).unwrap();
    fs::write(p.path("b/g"), b"g").unwrap();
    let sync = |sources: &[&str], target| {
        let mut request = p.request(Action::Sync, sources, Some(target));
        request.options.delete = true;
        p.run(&request).unwrap_err()
    };
    let e = sync(&["e/sub/"], "e/");
    assert!(e.message().contains("the source lies in what would be removed"), "{e}");
    let e = sync(&["e/sub/", "b/"], "d/");
    assert!(e.message().contains("several"), "{e}");
    assert!(p.path("e/sub/f").exists() && p.path("b/g").exists());
    // Two folders whose files have the same names.
    fs::write(p.path("b/f"), b"other").unwrap();
    let both = p.request(Action::Move, &["e/sub/", "b/"], Some("d/"));
    assert!(p.run(&both).unwrap_err().message().contains("two sources"));
}

#[test]
fn what_only_looks_like_the_copy_is_not_taken_for_it() {
    let p = place_of_copies();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    for (dir, byte) in [("from", 1u8), ("to", 2)] {
        fs::create_dir(p.path(dir)).unwrap();
        for i in 0..20 {
            let path = p.path(&format!("{dir}/f{i:02}"));
            fs::write(&path, vec![byte; 1 << 20]).unwrap();
            fs::File::options().write(true).open(&path).unwrap().set_modified(time).unwrap();
        }
    }
    let mut request = p.request(Action::Move, &["from/"], Some("to"));
    request.options.exists = Exists::Replace;
    request.options.limit = Some(15 << 20);
    let id = interrupted(&p, &request, 1);
    let status = p.stager.run(id, &Cancel::new(), None).unwrap();
    assert_eq!(status.state, State::Finished);
    for i in 0..20 {
        assert!(fs::read(p.path(&format!("to/f{i:02}"))).unwrap() == vec![1; 1 << 20], "{i}");
        assert!(!p.path(&format!("from/f{i:02}")).exists());
    }
}

#[test]
fn what_came_after_the_plan_is_not_removed() {
    let p = place();
    fs::create_dir(p.path("r")).unwrap();
    for i in 0..3000 {
        fs::write(p.path(&format!("r/{i}")), b"old").unwrap();
    }
    // Stopped before anything: all of it is left to do.
    let request = p.request(Action::Remove, &["r"], None);
    let id = p.stager.submit(&request).unwrap();
    struct Soon(Cancel);
    impl Watcher for Soon {
        fn progress(&self, _: &Progress) {
            self.0.cancel();
        }
    }
    let cancel = Cancel::new();
    let stopped = p.stager.run(id, &cancel, Some(&Soon(cancel.clone())));
    if stopped.is_ok() {
        return eprintln!("NOT TESTED HERE: it was over before it could be stopped");
    }
    fs::remove_dir_all(p.path("r")).unwrap();
    fs::create_dir(p.path("r")).unwrap();
    for i in 0..3000 {
        fs::write(p.path(&format!("r/{i}")), b"new").unwrap();
    }
    let status = p.stager.run(id, &Cancel::new(), None).unwrap();
    assert_eq!(status.state, State::Failed);
    // Of files that are left, or, if all had gone, of their folder.
    let kept = |f: &str| f.contains("changed after") || f.contains("not empty");
    assert!(status.failures.iter().all(|f| kept(&f.error)), "{:?}", status.failures);
    assert_eq!(fs::read_dir(p.path("r")).unwrap().count(), 3000);
}

#[test]
fn a_name_of_a_file_that_failed_is_none_of_what_was_there() {
    if rustix::process::geteuid().is_root() {
        return eprintln!("NOT TESTED HERE: root may read everything");
    }
    let p = place();
    fs::create_dir_all(p.path("from")).unwrap();
    fs::write(p.path("from/x"), b"new").unwrap();
    fs::hard_link(p.path("from/x"), p.path("from/y")).unwrap();
    fs::set_permissions(p.path("from/x"), fs::Permissions::from_mode(0o000)).unwrap();
    let status = p.copy("from", "to").unwrap();
    assert_eq!((status.state, status.failed), (State::Failed, 2));
    assert!(!p.path("to/x").exists() && !p.path("to/y").exists());
}

#[test]
fn a_dataspace_that_is_another_folder_by_now_is_another_place() {
    let p = place_of_copies();
    fs::write(p.path("f"), vec![1; 40 << 20]).unwrap();
    let mut request = p.request(Action::Copy, &["f"], Some("s://"));
    request.options.limit = Some(20 << 20);
    let id = interrupted(&p, &request, 1);
    fs::create_dir(p.path("other")).unwrap();
    let mut spaces = Spaces::default();
    spaces.give(&format!("s={}/other", p.dir.path().display()), &|_| None).unwrap();
    let other =
        Stager::open(&p.path("state"), Means { spaces, threads: 2, ..Means::default() }).unwrap();
    assert_eq!(other.same(&request).unwrap(), None);
    let e = other.run(id, &Cancel::new(), None).unwrap_err();
    assert!(e.message().contains("when this transfer began"), "{e}");
    assert_eq!(p.stager.run(id, &Cancel::new(), None).unwrap().state, State::Finished);
    assert!(p.path("space/f").exists() && !p.path("other/f").exists());
}

#[test]
fn a_sync_that_was_interrupted_is_planned_anew() {
    let p = place_of_copies();
    fs::create_dir(p.path("from")).unwrap();
    fs::write(p.path("from/f"), vec![1; 20 << 20]).unwrap();
    let mut request = p.request(Action::Sync, &["from"], Some("to"));
    request.options.limit = Some(20 << 20);
    let id = interrupted(&p, &request, 1);
    fs::write(p.path("from/late"), b"late").unwrap();
    assert_eq!(p.stager.same(&request).unwrap(), None);
    assert_eq!(p.stager.status(id).unwrap().state, State::Cancelled);
    assert_tidy(&p.path("to"));
    request.options.limit = None;
    p.run(&request).unwrap();
    assert_eq!(picture(&p.path("from")), picture(&p.path("to")));
}

#[test]
fn a_preview_changes_nothing_and_says_what_would() {
    let p = place();
    tree(&p.path("from"));
    fs::create_dir_all(p.path("to/a")).unwrap();
    fs::write(p.path("to/a/stale"), b"x").unwrap();
    let mut request = p.request(Action::Sync, &["from"], Some("to"));
    request.options.delete = true;
    let before = picture(p.dir.path());
    let preview = p.stager.preview(&request, &Cancel::new()).unwrap();
    let after = picture(p.dir.path());
    let own = |all: &Picture| all.keys().filter(|k| !k.starts_with("\"state")).count();
    assert_eq!(own(&before), own(&after));
    assert_eq!((preview.files, preview.removed, preview.skipped), (11, 1, 0));
    assert!(preview.room < preview.bytes && preview.free.unwrap() > preview.room);
    assert!(preview.takes.seconds > 0.0 && preview.takes.high >= preview.takes.seconds);
}

#[test]
fn a_journal_of_something_else_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("transfers.db"), vec![b'x'; 5000]).unwrap();
    let e = Stager::open(dir.path(), Means::default()).err().unwrap();
    assert!(e.kind() == Kind::Format && e.hint().unwrap().contains("STEAD_STATE"), "{e}");
    assert_eq!(fs::read(dir.path().join("transfers.db")).unwrap(), vec![b'x'; 5000]);
}

#[test]
fn quotas_refuse_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().canonicalize().unwrap();
    fs::create_dir(at.join("space")).unwrap();
    fs::create_dir(at.join("other")).unwrap();
    fs::create_dir(at.join("jobs")).unwrap();
    fs::write(at.join("f"), vec![7; 200_000]).unwrap();
    let text = format!(
        "[dataspace.s]\npath = \"{0}/space\"\nuser_quota = 500000\n\
         [dataspace.j]\npath = \"{0}/jobs\"\njobs = true\n",
        at.display()
    );
    let mut spaces = Spaces::parse(&text, &|_| None).unwrap();
    // Another folder by the same name changes nothing for the one before.
    spaces.give(&format!("s={}/other", at.display()), &|_| None).unwrap();
    let means = Means { spaces, threads: 2, ..Means::default() };
    let stager = Stager::open(&at.join("state"), means).unwrap();
    let p = Place { dir, stager };
    let run = |action, source: &str, target: &str| {
        let id = p.stager.submit(&p.request(action, &[source], Some(target))).unwrap();
        p.stager.run(id, &Cancel::new(), None)
    };
    run(Action::Copy, "f", "space/a").unwrap();
    run(Action::Copy, "f", "space/b").unwrap();
    let e = run(Action::Copy, "f", "space/c").unwrap_err();
    assert_eq!(e.kind(), Kind::NoSpace, "{e}");
    assert!(e.message().contains("dataspace 's'") && e.message().contains("each user"), "{e}");
    let preview = p.request(Action::Copy, &["f"], Some("space/deep/c"));
    assert_eq!(p.stager.preview(&preview, &Cancel::new()).unwrap_err().kind(), Kind::NoSpace);
    // A rename brings bytes, too; within the dataspace it brings none.
    assert_eq!(run(Action::Move, "f", "space/c").unwrap_err().kind(), Kind::NoSpace);
    run(Action::Move, "space/b", "space/d").unwrap();
    run(Action::Copy, "f", "s://c").unwrap();
    let mut names: Vec<_> =
        fs::read_dir(p.path("space")).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["a", "d"]);
    assert!(p.path("f").exists() && p.path("other/c").exists());
    // Dataspaces of jobs, by name and by path, as sources and as targets.
    fs::write(p.path("jobs/x"), b"x").unwrap();
    for (source, target) in [("f", "j://f"), ("f", "jobs/f"), ("jobs/x", "x"), ("j://x", "x")] {
        let e = run(Action::Copy, source, target).unwrap_err();
        assert!(e.kind() == Kind::Permission && e.message().contains("'j'"), "{source}: {e}");
    }
    let usage = stead_stage::usage(&p.stager, &Cancel::new()).unwrap();
    let found: Vec<_> =
        usage.iter().map(|u| (&*u.name, &*u.kind, u.jobs, u.error.is_some())).collect();
    assert_eq!(found, [("j", "node", true, false), ("s", "node", false, false)]);
}

#[test]
fn a_quota_has_room_again_for_what_takes_the_place_of_what_goes() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().canonicalize().unwrap();
    let text = format!("[dataspace.s]\npath = \"{}/space\"\nuser_quota = 500000\n", at.display());
    for folder in ["space/t", "new"] {
        fs::create_dir_all(at.join(folder)).unwrap();
    }
    fs::write(at.join("space/t/old"), vec![1; 300_000]).unwrap();
    fs::write(at.join("space/kept"), vec![1; 100_000]).unwrap();
    fs::write(at.join("new/new"), vec![2; 350_000]).unwrap();
    let spaces = Spaces::parse(&text, &|_| None).unwrap();
    let means = Means { spaces, threads: 2, ..Means::default() };
    let stager = Stager::open(&at.join("state"), means).unwrap();
    let p = Place { dir, stager };
    let mut request = p.request(Action::Sync, &["new"], Some("space/t"));
    let e = p.stager.preview(&request, &Cancel::new()).unwrap_err();
    assert!(e.kind() == Kind::NoSpace && !e.message().contains("removed first"), "{e}");
    request.options.delete = true;
    p.run(&request).unwrap();
    assert!(!p.path("space/t/old").exists());
    assert_eq!(fs::metadata(p.path("space/t/new")).unwrap().len(), 350_000);
    // Of what stays there is none.
    fs::write(p.path("new/more"), vec![3; 450_000]).unwrap();
    fs::remove_file(p.path("new/new")).unwrap();
    let e = p.stager.preview(&request, &Cancel::new()).unwrap_err();
    assert!(e.kind() == Kind::NoSpace && e.message().contains("of them are removed first"), "{e}");
    assert!(p.path("space/t/new").exists());
}

#[test]
fn a_file_of_exabytes_without_bytes_is_begun_and_stopped() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { return };
    let p = place_in(dir);
    // As large as a file of the system can be: nothing has room for as much as a note about each of its pieces.
    fs::File::create(p.path("hole")).unwrap().set_len(i64::MAX as u64).unwrap();
    fs::write(p.path("small"), b"x").unwrap();
    let both = p.request(Action::Copy, &["hole", "hole", "small"], Some("space/"));
    assert_eq!(p.run(&both).unwrap_err().kind(), Kind::Usage, "twice the same name");
    fs::hard_link(p.path("hole"), p.path("second")).unwrap();
    fs::File::create(p.path("other")).unwrap().set_len(i64::MAX as u64).unwrap();
    fs::File::create(p.path("third")).unwrap().set_len(i64::MAX as u64).unwrap();
    let all = ["hole", "second", "other", "third", "small"];
    let id = p.stager.submit(&p.request(Action::Copy, &all, Some("space/"))).unwrap();
    let cancel = Cancel::new();
    struct Stops<'c>(&'c Cancel);
    impl Watcher for Stops<'_> {
        fn progress(&self, progress: &Progress) {
            if progress.bytes_done > 1 << 30 {
                self.0.cancel();
            }
        }
    }
    let e = p.stager.run(id, &cancel, Some(&Stops(&cancel))).unwrap_err();
    assert_eq!(e.kind(), Kind::Cancelled, "{e}");
    let status = p.stager.cancel(id).unwrap();
    assert_eq!((status.state, status.bytes), (State::Cancelled, i64::MAX as u64));
    assert_eq!(fs::read_dir(p.path("space")).unwrap().count(), 0);
}
