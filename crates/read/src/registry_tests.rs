//! What is kept of closed files, in a process of its own: files of other tests would take the place of it.

use super::*;
use std::process::Command;
use std::time::SystemTime;

const ALONE: &str = "STEAD_TEST_KEPT";
const BLOCK: usize = 4096;

/// Runs one of these tests in a process of its own. True if this is that.
fn is_alone(name: &str) -> bool {
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("registry::tests::{name}"), "--nocapture"]).env(ALONE, "1");
    let out = child.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success(), "{said}{}", String::from_utf8_lossy(&out.stderr));
    assert!(said.contains("1 passed"), "{said}");
    false
}

/// A file that was not changed a moment ago.
fn file(dir: &tempfile::TempDir) -> std::path::PathBuf {
    let path = dir.path().join("f");
    std::fs::write(&path, vec![7; 8 * BLOCK]).unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000)).unwrap();
    path
}

fn options() -> Options {
    let io = IoOptions { engine: Engine::Pread, ..IoOptions::default() };
    Options { block: Some(BLOCK), memory: 1 << 20, ahead: false, io, ..Options::default() }
}

/// Reads three blocks of a file and closes it. Gives what they were read into.
fn read(path: &std::path::Path) -> Arc<Shared> {
    let file = crate::open(path, &options()).unwrap();
    let session = file.session(..).unwrap();
    for block in 0..3 {
        drop(session.read(block * BLOCK as u64, BLOCK).wait().unwrap());
    }
    let shared = session.shared().clone();
    drop((session, file));
    ended(&shared);
    shared
}

/// Waits for the readers of a closed file, one of which may have the last block still in its hands.
fn ended(shared: &Arc<Shared>) {
    let patience = clock::after(Duration::from_secs(60));
    while shared.lock().readers > 0 {
        assert!(clock::now() < patience, "readers do not end");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn kept() -> Option<Instant> {
    with(|r| r.kept.as_ref().map(|(_, until)| *until))
}

#[test]
fn blocks_of_a_closed_file_go_when_their_time_is_over() {
    if !is_alone("blocks_of_a_closed_file_go_when_their_time_is_over") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    let before = clock::now();
    let shared = read(&path);
    let until = kept().expect("nothing is kept");
    assert!(before + KEEP <= until && until <= clock::after(KEEP));
    assert!(crate::deadline::watches_kept(until));
    // They are there as long as that, and no longer.
    give_up(until - Duration::from_nanos(1));
    assert_eq!((kept(), shared.counts().held, holders()), (Some(until), 3 * BLOCK as u64, 1));
    give_up(until);
    assert_eq!((kept(), shared.counts().held, holders()), (None, 0, 0));

    // Who opens it in time has them.
    let shared = read(&path);
    let until = kept().unwrap();
    let again = crate::open(&path, &options()).unwrap();
    let session = again.session(..).unwrap();
    assert!(Arc::ptr_eq(session.shared(), &shared) && kept().is_none());
    give_up(until);
    assert_eq!(shared.counts().held, 3 * BLOCK as u64);
    drop((session, again));
    ended(&shared);

    // Its time begins anew, and what was set for the first time does not end it.
    let later = kept().unwrap();
    assert!(later > until);
    give_up(until);
    assert_eq!((kept(), shared.counts().held), (Some(later), 3 * BLOCK as u64));
    give_up(later);
    assert_eq!((kept(), shared.counts().held), (None, 0));
}

#[test]
fn what_other_files_do_not_find_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f");
    std::fs::write(&path, vec![7; BLOCK]).unwrap();
    // A moment ago, however long this takes.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(4_000_000_000)).unwrap();
    let why = |options: &Options| {
        let file = crate::open(&path, options).unwrap();
        let plan = file.session(..).unwrap().plan();
        let found = plan.into_iter().find(|d| d.name == "shared");
        found.map(|d| (d.value, d.reason))
    };
    let alone = |why: &str| Some(("with no other process".to_owned(), why.to_owned()));
    let large = Options { memory: 64 << 20, ..options() };
    assert_eq!(why(&large), alone("the file changed a moment ago"));
    assert_eq!(why(&Options { share: false, ..large.clone() }), alone("as asked for"));
    assert_eq!(why(&options()), alone("so little memory is not shared"));
    // Blocks of the page cache are everybody's.
    assert_eq!(why(&Options { block: Some(BLOCK), ..Options::default() }), None);
}
