//! What transfers leave out or refuse, and what they say of it.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Kind, Location, Result};
use stead_stage::tree::{Depth, Tree};
use stead_stage::{Action, Does, Means, Options, Request, Stager, State, Status};
use tempfile::TempDir;

struct Place {
    dir: TempDir,
    stager: Stager,
    spaces: Spaces,
}

fn place() -> Place {
    let dir = tempfile::tempdir().unwrap();
    let mut spaces = Spaces::default();
    fs::create_dir(dir.path().join("space")).unwrap();
    spaces.give(&format!("memory={}/space", dir.path().display()), &|_| None).unwrap();
    let means = Means { spaces: spaces.clone(), threads: 2, ..Means::default() };
    let stager = Stager::open(&dir.path().join("state"), means).unwrap();
    Place { dir, stager, spaces }
}

impl Place {
    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn location(&self, text: &str) -> Location {
        let text = match text.contains("://") || text.starts_with('/') {
            true => text.to_owned(),
            false => format!("{}/{text}", self.dir.path().display()),
        };
        Location::parse(&text, &|_| None).unwrap()
    }

    fn request(&self, action: Action, source: &str, target: Option<&str>) -> Request {
        let target = target.map(|target| self.location(target));
        let sources = vec![self.location(source)];
        Request { action, sources, target, options: Options::default() }
    }

    fn run(&self, request: &Request) -> Result<Status> {
        let id = self.stager.submit(request)?;
        self.stager.run(id, &Cancel::new(), None)
    }

    fn error(&self, action: Action, source: &str, target: Option<&str>) -> Error {
        self.run(&self.request(action, source, target)).unwrap_err()
    }

    fn names(&self, at: &str) -> Result<Vec<String>> {
        let mut names = Vec::new();
        Tree::new(self.spaces.clone()).look(&self.location(at), Depth::All, &mut |entry| {
            names.push(entry.name.into_string().unwrap());
            Ok(())
        })?;
        Ok(names)
    }
}

fn write(path: &Path) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, "x").unwrap();
}

#[test]
fn the_memory_of_streams_is_left_out_and_never_removed() {
    let place = place();
    let board = place.path("space/.streams-5/sim/board");
    write(&board);
    write(&place.path("space/field"));
    fs::create_dir(place.path("empty")).unwrap();
    assert_eq!(place.names("memory://").unwrap(), ["field"]);
    place.run(&place.request(Action::Copy, "memory://", Some("copy"))).unwrap();
    assert!(place.path("copy/field").exists() && !place.path("copy/.streams-5").exists());
    // Named by itself, or with what lies above it.
    for action in [Action::Copy, Action::Move, Action::Sync] {
        for name in ["memory://.streams-5", "memory://.streams-5/sim/board", "memory://.s*"] {
            let e = place.error(action, name, Some("new"));
            assert!(e.kind() == Kind::Usage && e.message().contains("streams"), "{name}: {e}");
        }
        assert!(
            place
                .error(action, "copy", Some("memory://.streams-5/x"))
                .message()
                .contains("streams")
        );
    }
    for name in ["memory://.streams-5", "memory://.streams-5/sim", "space"] {
        assert!(place.error(Action::Remove, name, None).message().contains("streams"), "{name}");
    }
    assert!(place.names("memory://.streams-5").unwrap_err().message().contains("streams"));
    assert!(place.names("memory://.s*").unwrap_err().message().contains("streams"));
    let tree = Tree::new(place.spaces.clone());
    assert!(tree.list("memory", Path::new("")).is_ok());
    assert!(tree.list("memory", Path::new(".streams-5")).is_err());
    // What else lies there goes.
    let options = Options { delete: true, ..Options::default() };
    let sync = place.request(Action::Sync, "empty/", Some("memory://"));
    let request = Request { options, ..sync };
    let preview = place.stager.preview(&request, &Cancel::new()).unwrap();
    assert_eq!((preview.removed, preview.changes.len()), (1, 1), "{:?}", preview.changes);
    place.run(&request).unwrap();
    assert!(board.exists() && !place.path("space/field").exists());
    write(&place.path("space/field"));
    place.run(&place.request(Action::Remove, "space/", None)).unwrap();
    assert!(board.exists() && !place.path("space/field").exists());
    write(&place.path("space/field"));
    place.run(&place.request(Action::Move, "space/", Some("moved"))).unwrap();
    assert!(board.exists() && place.path("moved/field").exists());
}

/// As nobody, whom the system keeps out, as it does not root. Folders of tests are open to all.
fn as_nobody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let nobody = || {
            let nobody = rustix::process::Uid::from_raw(65534);
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            work()
        };
        scope.spawn(nobody).join().unwrap()
    })
}

fn allow(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_folder_that_may_not_be_read_can_be_left_out() {
    let place = place();
    allow(place.dir.path(), 0o755);
    write(&place.path("run/ok/f"));
    write(&place.path("run/a[1]/locked/f"));
    fs::create_dir(place.path("to")).unwrap();
    allow(&place.path("run/a[1]/locked"), 0);
    let sync = place.request(Action::Sync, "run", Some("to/run"));
    let check = |request: &Request| as_nobody(|| place.stager.check(request, &Cancel::new(), None));
    let e = check(&sync).unwrap_err();
    let hint = e.hint().unwrap();
    assert_eq!(e.kind(), Kind::Permission);
    let pattern = hint.split('\'').nth(1).unwrap();
    let options = Options { exclude: vec![pattern.to_owned()], ..Options::default() };
    let without = Request { options, ..sync };
    let preview = as_nobody(|| place.stager.preview(&without, &Cancel::new())).unwrap();
    assert_eq!((preview.files, preview.others), (1, 3), "{pattern}");
    assert_eq!(check(&without).unwrap().missing, 4, "{pattern}");
    allow(&place.path("run/a[1]/locked"), 0o700);
}

/// Two folders of a tree are closed to who stages it: one to who lists it, one to who goes through it.
fn half_closed() -> (Place, Stager) {
    let place = place();
    write(&place.path("run/ok/f"));
    write(&place.path("run/in/locked/f"));
    write(&place.path("run/in/seen/f"));
    fs::create_dir(place.path("to")).unwrap();
    let path = place.dir.path().to_owned();
    for folder in ["", "run", "run/ok", "run/in", "to"] {
        allow(&path.join(folder), 0o777);
    }
    allow(&place.path("run/ok/f"), 0o644);
    allow(&place.path("run/in/locked"), 0);
    allow(&place.path("run/in/seen"), 0o744);
    let means = Means { spaces: place.spaces.clone(), threads: 2, ..Means::default() };
    let own = as_nobody(|| Stager::open(&path.join("own"), means)).unwrap();
    (place, own)
}

#[test]
fn of_folders_that_may_not_be_read_it_is_told_and_the_rest_is_brought() {
    let (place, own) = half_closed();
    let locked = |mode| {
        allow(&place.path("run/in/locked"), mode);
        allow(&place.path("run/in/seen"), if mode == 0 { 0o744 } else { mode });
        if mode != 0 {
            for name in ["run/in/locked/f", "run/in/seen/f"] {
                allow(&place.path(name), 0o644);
            }
        }
    };
    let run = |id: i64| as_nobody(|| own.run(id, &Cancel::new(), None)).unwrap();
    let begin = |request: &Request| as_nobody(|| own.submit(request)).unwrap();
    let copy = place.request(Action::Copy, "run", Some("to/run"));
    let preview = as_nobody(|| own.preview(&copy, &Cancel::new())).unwrap();
    let unread: Vec<&str> = preview
        .changes
        .iter()
        .filter(|c| c.does == Does::Unread)
        .map(|c| c.path.as_str())
        .collect();
    assert_eq!(unread.len(), 2, "{:?}", preview.changes);
    assert!(
        unread.iter().any(|path| path.ends_with("/run/in/locked") && !path.contains("/to/")),
        "{unread:?}"
    );
    let id = begin(&copy);
    let status = run(id);
    assert_eq!((status.state, status.failures.len()), (State::Failed, 2), "{status:?}");
    for failure in &status.failures {
        assert!(
            failure.error.contains("denied") && failure.error.contains("run/in/"),
            "{failure:?}"
        );
    }
    assert!(place.path("to/run/ok/f").exists() && place.path("to/run/in").is_dir());
    assert!(!place.path("to/run/in/locked/f").exists());
    // Who goes on with it has no other plan, and says so.
    locked(0o755);
    let status = run(id);
    assert_eq!((status.state, status.failures.len()), (State::Failed, 2), "{status:?}");
    assert!(status.failures[0].error.contains("when it was planned"), "{status:?}");
    // What the target has below such a folder stays: nobody knows whether the source has it.
    let options = Options { delete: true, ..Options::default() };
    let sync = Request { options, ..place.request(Action::Sync, "run/", Some("to/run")) };
    assert_eq!(run(begin(&sync)).state, State::Finished);
    assert!(place.path("to/run/in/locked/f").exists() && place.path("to/run/in/seen/f").exists());
    locked(0);
    let status = run(begin(&sync));
    assert_eq!((status.state, status.failures.len()), (State::Failed, 2), "{status:?}");
    assert!(place.path("to/run/in/locked/f").exists() && place.path("to/run/in/seen/f").exists());
    locked(0o755);
}

#[test]
fn what_is_moved_leaves_folders_that_may_not_be_read() {
    let (place, own) = half_closed();
    // Of a tree in which something is left out each name goes by itself, also within a file system.
    let options = Options { exclude: vec!["none".to_owned()], ..Options::default() };
    let request = Request { options, ..place.request(Action::Move, "run", Some("to/run")) };
    let id = as_nobody(|| own.submit(&request)).unwrap();
    let status = as_nobody(|| own.run(id, &Cancel::new(), None)).unwrap();
    assert_eq!((status.state, status.failures.len()), (State::Failed, 2), "{status:?}");
    assert!(place.path("to/run/ok/f").exists() && !place.path("run/ok").exists());
    assert!(place.path("run/in/locked/f").exists() && place.path("run/in/seen/f").exists());
    for folder in ["run/in/locked", "run/in/seen"] {
        allow(&place.path(folder), 0o755);
    }
}

#[test]
fn a_file_that_cannot_be_made_is_told_by_its_name() {
    let place = place();
    write(&place.path("f"));
    // Nothing can be made there, whoever asks.
    let status = place.run(&place.request(Action::Copy, "f", Some("/proc/zz"))).unwrap();
    let error = &status.failures[0].error;
    assert!(error.starts_with("/proc/zz: ") && !error.contains(".stead-"), "{error}");
}

#[test]
fn links_are_told_as_what_they_are() {
    let place = place();
    write(&place.path("f"));
    write(&place.path("run/f"));
    symlink("nowhere", place.path("dangling")).unwrap();
    symlink("/etc", place.path("space/out")).unwrap();
    let of = |source: &str, target: &str| place.error(Action::Copy, source, Some(target));
    let dangling = of("dangling", "new");
    assert_eq!(dangling.kind(), Kind::NotFound);
    assert!(dangling.message().contains("a link to something that is not there"), "{dangling}");
    assert!(of("f", "memory://out/").message().contains("this is a link"));
    assert!(place.names("memory://out/").unwrap_err().message().contains("this is a link"));
    let file = of("f", "run/f/");
    assert!(!file.message().contains("several"), "{file}");
    let folder = of("run", "f");
    assert!(folder.message().contains("a folder is to get its name"), "{folder}");
}

#[test]
fn what_lies_in_a_folder_that_is_moved_is_moved_once() {
    let place = place();
    for name in ["g/1", "g/a/2", "g/a/b/c/3"] {
        write(&place.path(name));
    }
    fs::create_dir(place.path("out")).unwrap();
    let status = place.run(&place.request(Action::Move, "g/**", Some("out/"))).unwrap();
    assert_eq!((status.state, status.failed), (State::Finished, 0), "{status:?}");
    for name in ["out/1", "out/a/2", "out/a/b/c/3"] {
        assert!(place.path(name).exists(), "{name}");
    }
    assert_eq!(fs::read_dir(place.path("out")).unwrap().count(), 2);
}

#[test]
fn where_no_path_leads_does_not_keep_the_rest() {
    let place = place();
    write(&place.path("deep/ok"));
    let mut here = stead_store::Folder::open(&place.path("deep")).unwrap();
    for _ in 0..230 {
        here = here.make(std::ffi::OsStr::new("a-folder-of-a-tree"), false).unwrap().0;
    }
    let status = place.run(&place.request(Action::Copy, "deep", Some("new"))).unwrap();
    assert_eq!(status.state, State::Failed, "{status:?}");
    assert!(place.path("new/ok").exists());
    assert!(status.failures.iter().all(|f| f.error.contains("too long")), "{status:?}");
}

#[test]
fn what_says_that_it_is_empty_and_is_not_is_refused() {
    let place = place();
    let status = place.run(&place.request(Action::Copy, "/proc/version", Some("v"))).unwrap();
    assert_eq!((status.state, status.failed), (State::Failed, 1), "{status:?}");
    assert!(status.failures[0].error.contains("says that it is empty"), "{status:?}");
    fs::write(place.path("empty"), b"").unwrap();
    place.run(&place.request(Action::Copy, "empty", Some("e"))).unwrap();
    assert_eq!(fs::metadata(place.path("e")).unwrap().len(), 0);
}
