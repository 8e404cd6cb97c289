//! Names of one file, of which the target has some already.

#![allow(clippy::unwrap_used)]

use rusqlite::Connection;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use stead_core::{Cancel, Location, Result};
use stead_stage::{Action, Exists, Means, Options, Request, Stager, State, Status};
use tempfile::TempDir;

struct Lab {
    dir: TempDir,
    stager: Stager,
}

fn lab() -> Lab {
    let dir = tempfile::tempdir().unwrap();
    let means = Means { threads: 2, ..Means::default() };
    let stager = Stager::open(&dir.path().join("state"), means).unwrap();
    fs::create_dir(dir.path().join("from")).unwrap();
    Lab { dir, stager }
}

impl Lab {
    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// What lies in `from` comes to `to`.
    fn request(&self, action: Action, exists: Exists) -> Request {
        let location = |name: &str| {
            let text = format!("{}/{name}", self.dir.path().display());
            Location::parse(&text, &|_| None).unwrap()
        };
        let options = Options { exists, ..Options::default() };
        Request { action, sources: vec![location("from/")], target: Some(location("to")), options }
    }

    fn run(&self, request: &Request) -> Result<Status> {
        let id = self.stager.submit(request)?;
        self.stager.run(id, &Cancel::new(), None)
    }

    fn ino(&self, name: &str) -> u64 {
        fs::metadata(self.path(name)).unwrap().ino()
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }
}

#[test]
fn another_name_of_a_file_that_stays_is_a_name_of_it() {
    for (action, exists) in [
        (Action::Sync, Exists::Refuse),
        (Action::Copy, Exists::Skip),
        (Action::Copy, Exists::Newer),
    ] {
        let p = lab();
        fs::write(p.path("from/a"), "bytes").unwrap();
        fs::write(p.path("from/z"), "alone").unwrap();
        p.run(&p.request(Action::Copy, Exists::Refuse)).unwrap();
        let before = p.ino("to/a");
        fs::create_dir(p.path("from/d")).unwrap();
        for name in ["from/b", "from/d/c"] {
            fs::hard_link(p.path("from/a"), p.path(name)).unwrap();
        }
        let status = p.run(&p.request(action, exists)).unwrap();
        let inos = ["to/a", "to/b", "to/d/c"].map(|name| p.ino(name));
        assert_eq!(inos, [before; 3], "{action:?} {exists:?}");
        assert_eq!((status.state, status.bytes, status.failed), (State::Finished, 0, 0));
        assert_eq!((status.files_done, status.skipped), (status.files, 2), "{status:?}");
        // All of them stay now.
        let again = p.run(&p.request(action, exists)).unwrap();
        assert_eq!((again.bytes, again.skipped), (0, 4), "{again:?}");
        assert_eq!(p.ino("to/b"), before);
    }
}

#[test]
fn what_stays_and_is_no_copy_gets_no_other_name() {
    let p = lab();
    fs::create_dir(p.path("to")).unwrap();
    fs::write(p.path("from/a"), "new").unwrap();
    fs::write(p.path("to/a"), "old").unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(5);
    fs::File::options().write(true).open(p.path("to/a")).unwrap().set_modified(time).unwrap();
    for name in ["from/b", "from/c"] {
        fs::hard_link(p.path("from/a"), p.path(name)).unwrap();
    }
    let status = p.run(&p.request(Action::Copy, Exists::Skip)).unwrap();
    assert_eq!((status.state, status.skipped), (State::Finished, 1));
    assert_eq!(["a", "b", "c"].map(|name| p.text(&format!("to/{name}"))), ["old", "new", "new"]);
    assert!(p.ino("to/b") == p.ino("to/c") && p.ino("to/b") != p.ino("to/a"));
}

#[test]
fn a_move_removes_a_name_once_it_is_one_of_what_stays() {
    let p = lab();
    fs::write(p.path("from/a"), "bytes").unwrap();
    p.run(&p.request(Action::Copy, Exists::Refuse)).unwrap();
    fs::hard_link(p.path("from/a"), p.path("from/b")).unwrap();
    // It takes the place of another one, so that it is no rename.
    fs::write(p.path("to/b"), "other bytes").unwrap();
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(5);
    fs::File::options().write(true).open(p.path("to/b")).unwrap().set_modified(time).unwrap();
    let status = p.run(&p.request(Action::Move, Exists::Newer)).unwrap();
    assert_eq!((status.state, status.failed), (State::Finished, 0), "{status:?}");
    assert_eq!(p.ino("to/a"), p.ino("to/b"));
    // What stays in the target stays in the source.
    assert!(p.path("from/a").exists() && !p.path("from/b").exists());
}

#[test]
fn what_has_changed_since_it_was_to_stay_gets_no_other_name() {
    let p = lab();
    fs::write(p.path("from/a"), "bytes").unwrap();
    p.run(&p.request(Action::Copy, Exists::Refuse)).unwrap();
    fs::hard_link(p.path("from/a"), p.path("from/b")).unwrap();
    fs::write(p.path("from/new"), "new").unwrap();
    // It ends when it is to be written down that the file is there, which is before links are made.
    let request = p.request(Action::Sync, Exists::Refuse);
    let id = p.stager.submit(&request).unwrap();
    let journal = Connection::open(p.path("state/transfers.db")).unwrap();
    let kill = "CREATE TRIGGER kill BEFORE UPDATE OF done ON item BEGIN SELECT RAISE(ABORT, 'killed'); END";
    journal.execute_batch(kill).unwrap();
    let e = p.stager.run(id, &Cancel::new(), None).unwrap_err();
    assert!(e.to_string().contains("killed") && !p.path("to/b").exists(), "{e}");
    journal.execute_batch("DROP TRIGGER kill").unwrap();
    fs::write(p.path("to/a"), "somebody's own").unwrap();
    let status = p.stager.run(id, &Cancel::new(), None).unwrap();
    assert_eq!((status.state, status.failed), (State::Failed, 1), "{status:?}");
    assert!(status.failures[0].error.contains("changed since"), "{:?}", status.failures);
    assert!(!p.path("to/b").exists() && p.text("to/a") == "somebody's own");
    // Anew, all of it is as it is to be.
    let status = p.run(&request).unwrap();
    assert_eq!((status.state, status.failed), (State::Finished, 0), "{status:?}");
    assert!(
        p.ino("to/a") == p.ino("to/b") && p.text("to/a") == "bytes" && p.text("to/new") == "new"
    );
}
