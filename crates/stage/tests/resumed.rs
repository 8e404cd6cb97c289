//! Transfers that go on after something has changed: a source, a target, what there is room for.

#![allow(clippy::unwrap_used, clippy::print_stderr)]

use rusqlite::Connection;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use stead_core::layout::Spaces;
use stead_core::{BucketUrl, Cancel, Kind, Location, Result};
use stead_stage::{
    Action, Exists, Means, Options, Progress, Queue, Request, Stager, State, Status, Watcher,
};
use stead_store::{Bucket, Label};
use tempfile::TempDir;

struct Lab {
    dir: TempDir,
    stager: Stager,
}

fn lab() -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let means = Means { spaces: Spaces::default(), threads: 3, ..Means::default() };
    let stager = Stager::open(&dir.path().join("state"), means).unwrap();
    Lab { dir, stager }
}

impl Lab {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Names without `://` are below the folder of the test, but for those that begin with `/`.
    fn request(&self, action: Action, source: &str, target: &str) -> Request {
        let location = |text: &str| {
            let text = match text.contains("://") || text.starts_with('/') {
                true => text.to_owned(),
                false => format!("{}/{text}", self.dir.path().display()),
            };
            Location::parse(&text, &|_| None).unwrap()
        };
        Request {
            action,
            sources: vec![location(source)],
            target: Some(location(target)),
            options: Options { retries: 1, ..Options::default() },
        }
    }

    fn run(&self, id: i64) -> Result<Status> {
        self.stager.run(id, &Cancel::new(), None)
    }

    fn journal(&self) -> Connection {
        Connection::open(self.path("state/transfers.db")).unwrap()
    }

    /// Begins a transfer that ends when this is to be written down of a name.
    fn killed(&self, what: &str, request: &Request) -> i64 {
        let id = self.stager.submit(request).unwrap();
        self.run_killed(what, id);
        id
    }

    /// Does a transfer until this is to be written down of a name.
    fn run_killed(&self, what: &str, id: i64) {
        let journal = self.journal();
        let kill = format!(
            "CREATE TRIGGER kill BEFORE UPDATE OF {what} ON item BEGIN SELECT RAISE(ABORT, 'killed'); END"
        );
        journal.execute_batch(&kill).unwrap();
        let e = self.run(id).unwrap_err();
        assert!(e.to_string().contains("killed"), "{e}");
        journal.execute_batch("DROP TRIGGER kill").unwrap();
    }

    /// Does all of a transfer but for writing down that names are done, as one that is killed just then. What was a copy goes on as
    /// `then`: as a move that had not come to its source yet.
    fn killed_after_naming(&self, request: &Request, then: Action) -> i64 {
        let id = self.killed("done", request);
        let journal = self.journal();
        if then == Action::Move {
            let sql = "UPDATE transfer SET request = replace(request, '\"copy\"', '\"move\"') WHERE id = ?1";
            assert_eq!(journal.execute(sql, [id]).unwrap(), 1);
            assert_eq!(self.stager.status(id).unwrap().request.action, Action::Move);
        }
        id
    }
}

fn append(path: &Path, text: &str) {
    fs::File::options().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// What is in a file; nothing if it is not there.
fn text(path: PathBuf) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[test]
fn a_move_that_goes_on_keeps_what_was_added_to_its_source() {
    let p = lab();
    fs::write(p.path("run.log"), "one\n").unwrap();
    let copy = p.request(Action::Copy, "run.log", "to.log");
    let id = p.killed_after_naming(&copy, Action::Move);
    assert_eq!(text(p.path("to.log")), "one\n");
    append(&p.path("run.log"), "two\n");
    let status = p.run(id).unwrap();
    let both = [text(p.path("to.log")), text(p.path("run.log"))];
    assert!(both.contains(&"one\ntwo\n".to_owned()), "{both:?} {status:?}");
    // What nobody has changed goes.
    fs::write(p.path("calm.log"), "one\n").unwrap();
    let copy = p.request(Action::Copy, "calm.log", "other.log");
    let id = p.killed_after_naming(&copy, Action::Move);
    assert_eq!(p.run(id).unwrap().state, State::Finished);
    assert!(!p.path("calm.log").exists() && text(p.path("other.log")) == "one\n");
}

#[test]
fn a_move_into_a_bucket_that_goes_on_keeps_what_was_changed() {
    let p = lab();
    fs::write(p.path("run.log"), "one\n").unwrap();
    let to = "memory://resumed-moves/run.log";
    let id = p.killed_after_naming(&p.request(Action::Copy, "run.log", to), Action::Move);
    // As many bytes, and another time.
    let other = fs::metadata(p.path("run.log")).unwrap().modified().unwrap()
        + std::time::Duration::from_secs(5);
    fs::write(p.path("run.log"), "two\n").unwrap();
    fs::File::options().write(true).open(p.path("run.log")).unwrap().set_modified(other).unwrap();
    for _ in 0..2 {
        let _ = p.run(id);
    }
    let back = p.stager.submit(&p.request(Action::Copy, to, "back.log")).unwrap();
    p.run(back).unwrap();
    let both = [text(p.path("back.log")), text(p.path("run.log"))];
    assert!(both.contains(&"two\n".to_owned()), "{both:?}");
}

#[test]
fn a_name_that_a_killed_transfer_has_given_is_its_own() {
    let p = lab();
    for (to, back) in [("to.log", "to.log"), ("memory://resumed-names/run.log", "back.log")] {
        for then in [Action::Copy, Action::Move] {
            fs::write(p.path("run.log"), "one\n").unwrap();
            let id = p.killed_after_naming(&p.request(Action::Copy, "run.log", to), then);
            append(&p.path("run.log"), "two\n");
            let status = p.run(id).unwrap();
            assert_eq!(status.state, State::Finished, "{to} {then:?} {:?}", status.failures);
            assert_eq!(p.path("run.log").exists(), then == Action::Copy);
            if back != to {
                let id = p.stager.submit(&p.request(Action::Copy, to, back)).unwrap();
                p.run(id).unwrap();
                let gone = Request { target: None, ..p.request(Action::Remove, to, "") };
                p.run(p.stager.submit(&gone).unwrap()).unwrap();
            }
            assert_eq!(text(p.path(back)), "one\ntwo\n");
            fs::remove_file(p.path(back)).unwrap();
        }
    }
    // Also when its source, as it has become, went with the move, and nobody could write that down.
    for (to, back) in [("to.log", "to.log"), ("memory://resumed-twice/run.log", "back.log")] {
        fs::write(p.path("run.log"), "one\n").unwrap();
        let id = p.killed_after_naming(&p.request(Action::Copy, "run.log", to), Action::Move);
        // As many bytes, of which the plan is not told.
        fs::write(p.path("run.log"), "two\n").unwrap();
        p.run_killed("done", id);
        assert!(!p.path("run.log").exists());
        let status = p.run(id).unwrap();
        assert_eq!(status.state, State::Finished, "{to} {:?}", status.failures);
        if back != to {
            let id = p.stager.submit(&p.request(Action::Copy, to, back)).unwrap();
            p.run(id).unwrap();
        }
        assert_eq!(text(p.path(back)), "two\n");
        fs::remove_file(p.path(back)).unwrap();
    }
    // What somebody else has put there is not.
    fs::write(p.path("run.log"), "one\n").unwrap();
    let id = p.killed_after_naming(&p.request(Action::Copy, "run.log", "to.log"), Action::Move);
    append(&p.path("run.log"), "two\n");
    fs::remove_file(p.path("to.log")).unwrap();
    fs::write(p.path("to.log"), "own\n").unwrap();
    let status = p.run(id).unwrap();
    assert!(status.failures[0].error.contains("of this name already"), "{:?}", status.failures);
    assert_eq!(
        (text(p.path("to.log")), text(p.path("run.log"))),
        ("own\n".into(), "one\ntwo\n".into())
    );
}

#[test]
fn a_folder_in_which_something_failed_stays_open_for_it() {
    let p = lab();
    let (inner, file) = (p.path("from/closed/inner"), p.path("from/closed/inner/f"));
    fs::create_dir_all(&inner).unwrap();
    fs::write(p.path("from/closed/g"), b"g").unwrap();
    fs::write(&file, b"f").unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000);
    let set = |path: &Path, mode: u32| {
        fs::File::open(path).unwrap().set_modified(time).unwrap();
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    };
    let close = || {
        set(&inner, 0o555);
        set(&p.path("from/closed"), 0o555);
        set(&p.path("from"), 0o755);
    };
    let open = || set(&inner, 0o755);
    let now = || {
        ["to", "to/closed", "to/closed/inner"].map(|path| {
            let meta = fs::metadata(p.path(path)).unwrap();
            (meta.mode() & 0o777, meta.mtime())
        })
    };
    close();
    // It is planned, and then one file is gone.
    let id = p.killed("mark", &p.request(Action::Copy, "from", "to"));
    open();
    fs::rename(&file, p.path("away")).unwrap();
    close();
    let status = p.run(id).unwrap();
    assert_eq!((status.state, status.failed), (State::Failed, 1), "{:?}", status.failures);
    // What its owner may write to anyway is as it is to be.
    let [top, closed, within] = now();
    assert_eq!((top, closed.0, within.0), ((0o755, 1_000_000), 0o700, 0o700));
    open();
    fs::rename(p.path("away"), &file).unwrap();
    close();
    let status = p.run(id).unwrap();
    assert_eq!(status.state, State::Finished, "{:?}", status.failures);
    assert_eq!((status.files_done, status.bytes_done), (status.files, status.bytes));
    assert_eq!(now(), [(0o755, 1_000_000), (0o555, 1_000_000), (0o555, 1_000_000)]);
    assert_eq!(text(p.path("to/closed/inner/f")), "f");
    for path in ["from", "to"] {
        set(&p.path(path).join("closed/inner"), 0o755);
        set(&p.path(path).join("closed"), 0o755);
    }
}

#[test]
fn a_move_leaves_no_folder_behind_in_which_something_failed_at_first() {
    let Ok(other) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("NOT TESTED HERE: there is no /dev/shm");
    };
    let p = lab();
    fs::create_dir_all(p.path("from/inner")).unwrap();
    fs::write(p.path("from/inner/f"), b"f").unwrap();
    let mut request = p.request(Action::Move, "from", "to");
    let to = format!("{}/to", other.path().display());
    request.target = Some(Location::parse(&to, &|_| None).unwrap());
    let id = p.killed("mark", &request);
    fs::rename(p.path("from/inner/f"), p.path("away")).unwrap();
    assert_eq!(p.run(id).unwrap().state, State::Failed);
    fs::rename(p.path("away"), p.path("from/inner/f")).unwrap();
    let status = p.run(id).unwrap();
    assert_eq!(status.state, State::Finished, "{:?}", status.failures);
    assert_eq!(text(other.path().join("to/inner/f")), "f");
    assert!(!p.path("from").exists());
}

#[test]
fn what_a_failed_transfer_has_left_goes_before_it_is_forgotten() {
    let p = lab();
    fs::write(p.path("f"), b"f").unwrap();
    let to = "memory://resumed-forgotten/up";
    let bucket = Bucket::open(&BucketUrl::parse("memory://resumed-forgotten").unwrap()).unwrap();
    let upload = bucket.begin("up", &Label::default()).unwrap();
    bucket.part("up", &upload, 0, vec![1; 100]).unwrap();
    let journal = p.journal();
    let mark = |id: i64, text: &str| {
        let sql = "UPDATE item SET mark = ?2 WHERE transfer = ?1";
        assert_eq!(journal.execute(sql, rusqlite::params![id, text]).unwrap(), 1);
        assert_eq!(p.stager.status(id).unwrap().state, State::Failed);
    };
    let up = p.killed("done", &p.request(Action::Copy, "f", to));
    mark(up, &format!(r#"{{"upload":"{upload}","source":"","part":8388608,"parts":[null]}}"#));
    let large = p.killed("done", &p.request(Action::Copy, "f", "to/g"));
    mark(large, "[1, 2, 3, 4, 5, 6, 7, 8, 9]");
    let of = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let sql = "SELECT tag, n FROM transfer JOIN item ON transfer = id WHERE id = ?1";
    let (tag, n) = journal.query_row(sql, [large], of).unwrap();
    let begun = p.path("to").join(format!(".stead-{tag:016x}-{n:x}"));
    fs::write(&begun, b"half").unwrap();
    // Others come until the journal has no more room.
    let means = Means { spaces: Spaces::default(), ..Means::default() };
    let stager = Stager::open(&p.path("state"), means).unwrap().bounded(512 << 10);
    let queue = Queue::open(Arc::new(stager), || {}).unwrap();
    let mut other = p.request(Action::Copy, "f", "elsewhere/");
    other.sources = (0..200)
        .map(|i| p.request(Action::Copy, &format!("{i}-{}", "x".repeat(40)), "").sources.remove(0))
        .collect();
    let e = loop {
        if let Err(e) = queue.submit(&other, &[]) {
            break e;
        }
    };
    assert_eq!(e.kind(), Kind::Limit, "{e}");
    for id in [up, large] {
        assert_eq!(p.stager.status(id).unwrap_err().kind(), Kind::Usage);
    }
    assert!(!begun.exists() && p.path("to/g").exists());
    assert!(bucket.part("up", &upload, 1, vec![1; 100]).is_err());
}

#[test]
fn a_preview_knows_the_limits_that_a_transfer_is_to_keep_to() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("slow/deep")).unwrap();
    let terms =
        format!("[dataspace.slow]\npath = \"{}/slow\"\nlimit = \"64KiB\"\n", dir.path().display());
    let spaces = Spaces::parse(&terms, &|_| None).unwrap();
    let means = Means { spaces, threads: 3, ..Means::default() };
    let stager = Stager::open(&dir.path().join("state"), means).unwrap();
    let p = Lab { dir, stager };
    fs::write(p.path("f"), vec![1; 4 << 20]).unwrap();
    let takes = |target: &str, limit: Option<u64>| {
        let mut request = p.request(Action::Copy, "f", target);
        request.options.limit = limit;
        p.stager.preview(&request, &Cancel::new()).unwrap().takes
    };
    if takes("g", Some(1 << 10)).seconds < 1.0 {
        return eprintln!("NOT TESTED HERE: this file system shares blocks, which no limit is for");
    }
    for (target, limit, seconds) in [
        ("g", Some(1 << 10), 4096.0),
        ("slow/g", None, 64.0),
        ("slow://g", Some(1 << 30), 64.0),
        ("slow/deep/g", Some(1 << 10), 4096.0),
    ] {
        let takes = takes(target, limit);
        assert!(takes.low >= seconds && takes.seconds >= takes.low, "{target} {takes:?}");
        assert!(takes.high >= takes.seconds && takes.high < 2.0 * seconds, "{target} {takes:?}");
    }
    assert!(takes("g", None).seconds < 64.0);
}

#[test]
fn pauses_and_clocks_that_are_set_are_no_time_that_a_transfer_took() {
    let p = lab();
    fs::write(p.path("f"), b"f").unwrap();
    let means = Means { spaces: Spaces::default(), ..Means::default() };
    let stager = Arc::new(Stager::open(&p.path("state"), means).unwrap());
    let queue = Queue::open(stager, || {}).unwrap();
    let ids = ["a", "b"].map(|to| queue.submit(&p.request(Action::Copy, "f", to), &[]).unwrap());
    queue.set_slots(1);
    for id in ids {
        let ended = queue.wait(id, std::time::Duration::from_secs(60)).unwrap();
        assert_eq!(ended.status.state, State::Finished);
        assert!(ended.status.active > 0.0 && ended.status.resumed.is_some());
    }
    queue.set_slots(0);
    // As if they had waited for months between, or somebody had set the clock.
    p.journal().execute("UPDATE transfer SET started = started - 1e7", []).unwrap();
    for id in ids {
        let status = p.stager.status(id).unwrap();
        assert!(status.seconds(status.ended.unwrap()) < 1e6, "{status:?}");
    }
    let first = queue.submit(&p.request(Action::Copy, "f", "c"), &[]).unwrap();
    let second = queue.submit(&p.request(Action::Copy, "f", "d"), &[first]).unwrap();
    assert!(queue.left(second).unwrap().seconds < 1e6, "{:?}", queue.left(second).unwrap());
}

#[test]
fn a_journal_from_before_is_used_as_it_is() {
    let p = lab();
    fs::write(p.path("f"), b"f").unwrap();
    let id = p.stager.submit(&p.request(Action::Copy, "f", "g")).unwrap();
    assert_eq!(p.run(id).unwrap().state, State::Finished);
    let sql = "ALTER TABLE transfer DROP COLUMN active; ALTER TABLE transfer DROP COLUMN resumed";
    p.journal().execute_batch(sql).unwrap();
    let means = Means { spaces: Spaces::default(), ..Means::default() };
    let stager = Stager::open(&p.path("state"), means).unwrap();
    let status = stager.status(id).unwrap();
    assert_eq!((status.active, status.resumed), (0.0, None));
    // What took so long is known by the clock alone.
    assert_eq!(status.seconds(0.0), (status.ended.unwrap() - status.started.unwrap()).max(0.0));
}

#[test]
fn what_was_there_before_is_not_moved_again() {
    #[derive(Default)]
    struct Last(Mutex<Vec<Progress>>);
    impl Watcher for Last {
        fn progress(&self, progress: &Progress) {
            self.0.lock().unwrap().push(*progress);
        }
    }
    let p = lab();
    fs::create_dir(p.path("from")).unwrap();
    for (name, size) in [("a", 64 << 20), ("b", 6 << 20)] {
        fs::write(p.path("from").join(name), vec![1; size]).unwrap();
    }
    let mut request = p.request(Action::Copy, "from", "to");
    request.options = Options { limit: Some(512 << 20), durable: false, ..request.options };
    let id = p.killed("mark", &request);
    fs::rename(p.path("from/b"), p.path("away")).unwrap();
    assert_eq!(p.run(id).unwrap().state, State::Failed);
    fs::rename(p.path("away"), p.path("from/b")).unwrap();
    // Slow enough to tell of itself on its way.
    let slow = r#"UPDATE transfer SET request = replace(request, '536870912', '2097152')"#;
    assert_eq!(p.journal().execute(slow, []).unwrap(), 1);
    let last = Last::default();
    assert_eq!(p.stager.run(id, &Cancel::new(), Some(&last)).unwrap().state, State::Finished);
    let all = last.0.into_inner().unwrap();
    assert!(!all.is_empty());
    for progress in all {
        assert!(progress.bytes_done >= 64 << 20 && progress.moved <= 6 << 20, "{progress:?}");
        assert!(progress.rate() * progress.seconds <= (6 << 20) as f64 + 1.0);
    }
}

/// A file system that is not that of other tests' folders.
fn elsewhere(p: &Lab) -> Option<TempDir> {
    let other = tempfile::tempdir_in("/dev/shm").unwrap();
    let device = |path: &Path| fs::metadata(path).unwrap().dev();
    let is_other = device(other.path()) != device(p.dir.path());
    if !is_other {
        eprintln!("NOT TESTED HERE: there is one file system alone");
    }
    is_other.then_some(other)
}

#[test]
fn a_name_whose_file_was_saved_anew_is_no_name_of_the_new_one() {
    for action in [Action::Copy, Action::Move] {
        let p = lab();
        let Some(other) = elsewhere(&p) else { return };
        fs::create_dir(p.path("from")).unwrap();
        fs::write(p.path("from/a"), "old").unwrap();
        fs::hard_link(p.path("from/a"), p.path("from/b")).unwrap();
        let to = format!("{}/to", other.path().display());
        // It is planned, as two names of one file, and the first one is saved as editors do it.
        let id = p.killed("done", &p.request(action, "from", &to));
        let _ = fs::remove_file(format!("{to}/a"));
        fs::write(p.path("from/new"), "other").unwrap();
        fs::rename(p.path("from/new"), p.path("from/a")).unwrap();
        let status = p.run(id).unwrap();
        let (a, b) = (text(format!("{to}/a").into()), text(format!("{to}/b").into()));
        assert!(a == "other" && b != "other", "{action:?}: {a} {b}");
        // Nothing is lost: it fails, and what is there is there.
        assert_eq!((status.state, status.failed), (State::Failed, 1));
        let why = &status.failures[0].error;
        assert!(why.contains("another name of a file that changed"), "{why}");
        assert_eq!(text(p.path("from/b")), "old");
    }
}

#[test]
fn giving_up_opens_no_folder_that_others_were_not_to_see() {
    let p = lab();
    for name in ["secret", "open"] {
        fs::create_dir_all(p.path("from").join(name)).unwrap();
        fs::write(p.path("from").join(name).join("f"), "f").unwrap();
    }
    let mode = |path: &str| fs::metadata(p.path(path)).unwrap().mode() & 0o777;
    let usual = mode("from/open");
    let close = |path: &str| fs::set_permissions(p.path(path), fs::Permissions::from_mode(0o700));
    close("from/secret").unwrap();
    let id = p.killed("done", &p.request(Action::Copy, "from", "to"));
    p.stager.cancel(id).unwrap();
    assert_eq!([mode("to/secret"), mode("to/open")], [0o700, usual]);
    // What was there before is as it was.
    fs::create_dir_all(p.path("other/open")).unwrap();
    close("other/open").unwrap();
    let id = p.killed("done", &p.request(Action::Sync, "from/", "other"));
    p.stager.cancel(id).unwrap();
    assert_eq!(mode("other/open"), 0o700);
    // Whose source is gone stays closed.
    let id = p.killed("done", &p.request(Action::Copy, "from", "third"));
    fs::remove_dir_all(p.path("from")).unwrap();
    p.stager.cancel(id).unwrap();
    assert_eq!([mode("third/secret"), mode("third/open")], [0o700, 0o700]);
}

#[test]
fn an_object_that_is_to_replace_a_file_like_it_is_brought_before_it_goes() {
    let p = lab();
    let bucket = "memory://resumed-like/x";
    fs::write(p.path("x"), "right").unwrap();
    let id = p.stager.submit(&p.request(Action::Copy, "x", bucket)).unwrap();
    p.run(id).unwrap();
    // As large and as old, with other bytes: as after a loss of power.
    let time = fs::metadata(p.path("x")).unwrap().modified().unwrap();
    fs::write(p.path("x"), "wrong").unwrap();
    fs::File::options().write(true).open(p.path("x")).unwrap().set_modified(time).unwrap();
    let mut request = p.request(Action::Move, bucket, "x");
    request.options.exists = Exists::Replace;
    let id = p.killed("mark", &request);
    let status = p.run(id).unwrap();
    assert_eq!((status.state, text(p.path("x")).as_str()), (State::Finished, "right"));
}

#[test]
fn what_a_bucket_has_copied_by_itself_is_found_again() {
    let p = lab();
    let names = |n: usize| {
        [format!("memory://resumed-within/{n}/a"), format!("memory://resumed-within/{n}/b")]
    };
    let back = |from: &str| {
        let to = p.path("back");
        let _ = fs::remove_file(&to);
        let _ = p.run(p.stager.submit(&p.request(Action::Copy, from, "back")).unwrap());
        text(to)
    };
    for (n, then) in [Action::Copy, Action::Move].into_iter().enumerate() {
        let [a, b] = names(n);
        fs::write(p.path("x"), "x").unwrap();
        p.run(p.stager.submit(&p.request(Action::Copy, "x", &a)).unwrap()).unwrap();
        let id = p.killed_after_naming(&p.request(Action::Copy, &a, &b), then);
        let status = p.run(id).unwrap();
        assert_eq!(status.state, State::Finished, "{then:?} {:?}", status.failures);
        assert_eq!((back(&b).as_str(), back(&a).is_empty()), ("x", then == Action::Move));
    }
    // And when its source has gone with it.
    let [a, b] = names(2);
    p.run(p.stager.submit(&p.request(Action::Copy, "x", &a)).unwrap()).unwrap();
    let id = p.killed("done", &p.request(Action::Move, &a, &b));
    assert!(back(&a).is_empty());
    let status = p.run(id).unwrap();
    assert_eq!((status.state, back(&b).as_str()), (State::Finished, "x"), "{:?}", status.failures);
    // What somebody else has put there is none.
    let [a, b] = names(3);
    fs::write(p.path("y"), "y").unwrap();
    p.run(p.stager.submit(&p.request(Action::Copy, "x", &a)).unwrap()).unwrap();
    let id = p.killed_after_naming(&p.request(Action::Copy, &a, &b), Action::Move);
    let mut over = p.request(Action::Copy, "y", &b);
    over.options.exists = Exists::Replace;
    p.run(p.stager.submit(&over).unwrap()).unwrap();
    assert_eq!(p.run(id).unwrap().state, State::Failed);
    assert_eq!((back(&a).as_str(), back(&b).as_str()), ("x", "y"));
}

#[test]
fn a_file_of_many_names_moves_into_a_bucket() {
    let p = lab();
    fs::create_dir(p.path("from")).unwrap();
    fs::write(p.path("from/0"), "x").unwrap();
    for n in 1..6 {
        fs::hard_link(p.path("from/0"), p.path(&format!("from/{n}"))).unwrap();
    }
    let id = p.stager.submit(&p.request(Action::Move, "from", "memory://resumed-links/")).unwrap();
    let status = p.run(id).unwrap();
    assert_eq!((status.state, status.failed), (State::Finished, 0), "{:?}", status.failures);
    assert!(!p.path("from").exists());
}

#[test]
fn a_move_that_is_planned_once_more_knows_that_names_may_be_gone() {
    let p = lab();
    fs::write(p.path("a"), "a").unwrap();
    let id = p.stager.submit(&p.request(Action::Move, "a", "b")).unwrap();
    assert_eq!(p.run(id).unwrap().state, State::Finished);
    // As one that was stopped while it was planned for the second time, as no rename.
    let sql = "UPDATE transfer SET state = 'interrupted', ends = NULL WHERE id = ?1";
    p.journal().execute(sql, [id]).unwrap();
    p.journal().execute("DELETE FROM item WHERE transfer = ?1", [id]).unwrap();
    assert_eq!(p.run(id).unwrap().state, State::Finished);
    assert_eq!(text(p.path("b")), "a");
    // One that has done nothing yet has lost its source.
    let id = p.stager.submit(&p.request(Action::Move, "none", "c")).unwrap();
    assert_eq!(p.run(id).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn what_cannot_begin_is_not_under_way() {
    let p = lab();
    fs::write(p.path("a"), "a").unwrap();
    let id = p.stager.submit(&p.request(Action::Copy, "a", "b")).unwrap();
    // Of a later version, with an option that this one does not know.
    let sql = "UPDATE transfer SET state = 'running', request = replace(request, '\"retries\"', '\"later\"')";
    assert_eq!(p.journal().execute(sql, []).unwrap(), 1);
    p.run(id).unwrap_err();
    let state = || -> String {
        p.journal()
            .query_row("SELECT state FROM transfer WHERE id = ?1", [id], |row| row.get(0))
            .unwrap()
    };
    assert_eq!(state(), "interrupted");
}

#[test]
fn no_estimate_is_below_what_a_limit_allows() {
    struct Least(Cancel, Mutex<Vec<f64>>);
    impl Watcher for Least {
        fn progress(&self, p: &Progress) {
            if p.bytes_done > 0 && p.bytes_done < p.bytes {
                let least = (p.bytes - p.bytes_done) as f64 / 4e6;
                self.1.lock().unwrap().push(p.left.low.min(p.left.seconds) - least);
                // Once it has been told a few times.
                if p.seconds > 1.0 {
                    self.0.cancel();
                }
            }
        }
    }
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else {
        return eprintln!("NOT TESTED HERE: there is no memory that is a folder");
    };
    let p = lab();
    let (from, to) = (dir.path().join("f"), dir.path().join("g"));
    fs::write(&from, vec![7; 40_000_000]).unwrap();
    let mut request = p.request(Action::Copy, from.to_str().unwrap(), to.to_str().unwrap());
    request.options.limit = Some(4_000_000);
    let least = Least(Cancel::new(), Mutex::default());
    let id = p.stager.submit(&request).unwrap();
    p.stager.run(id, &least.0, Some(&least)).unwrap_err();
    let told = least.1.into_inner().unwrap();
    // A little may go at once.
    assert!(!told.is_empty() && told.iter().all(|over| *over > -0.1), "{told:?}");
}
