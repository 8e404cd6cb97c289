//! Syncs of files of which the rights alone have changed.

#![allow(clippy::unwrap_used)]

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Location};
use stead_stage::{Action, Means, Options, Request, Stager};

#[test]
fn a_sync_gives_rights_and_owners_and_no_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let means = Means { spaces: Spaces::default(), threads: 2, ..Means::default() };
    let stager = Stager::open(&dir.path().join("state"), means).unwrap();
    let path = |name: &str| dir.path().join(name);
    let at = |name: &str| Location::parse(path(name).to_str().unwrap(), &|_| None).unwrap();
    fs::create_dir(path("from")).unwrap();
    for name in ["a", "b", "c"] {
        fs::write(path("from").join(name), name.repeat(5000)).unwrap();
    }
    let request = Request {
        action: Action::Sync,
        sources: vec![at("from")],
        target: Some(at("to")),
        options: Options::default(),
    };
    let run = || {
        let id = stager.submit(&request).unwrap();
        stager.run(id, &Cancel::new(), None).unwrap()
    };
    run();
    let meta = |name: &str| fs::metadata(path(name)).unwrap();
    let before = (meta("to/a").ino(), meta("to/b").ino());
    fs::set_permissions(path("from/a"), PermissionsExt::from_mode(0o600)).unwrap();
    // Root alone gives files away.
    let gave = chown(path("from/b"), Some(4711), Some(4712)).is_ok();
    let status = run();
    assert_eq!((status.bytes, status.failed), (0, 0));
    assert_eq!(status.skipped, 2 - u64::from(gave));
    assert_eq!(meta("to/a").mode() & 0o7777, 0o600);
    assert_eq!((meta("to/a").ino(), meta("to/b").ino()), before);
    if gave {
        assert_eq!((meta("to/b").uid(), meta("to/b").gid()), (4711, 4712));
    }
    for name in ["a", "b", "c"] {
        let (from, to) = (meta(&format!("from/{name}")), meta(&format!("to/{name}")));
        assert_eq!((from.mtime(), from.mtime_nsec()), (to.mtime(), to.mtime_nsec()));
    }
    // And then there is nothing to do, but for the folder.
    assert_eq!((run().skipped, run().bytes), (3, 0));
}
