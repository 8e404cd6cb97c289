//! Journals of every version that was given out are taken up. Those of `tests/data` have three transfers of a daemon: one that is
//! finished, one that a full device has interrupted in the middle, and one that waits for this one. `form-2.db` was written by the version
//! that had that form first; `make_journals.py` has made those of the others of it.

#![allow(clippy::unwrap_used)]

use rusqlite::Connection;
use std::fs::{self, File, FileTimes, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use stead_stage::{Means, Queue, Stager, State};

const LONG: Duration = Duration::from_secs(60);
/// Where all of it lay.
const WAS: &str = "/tmp/stead-golden";

/// A name of the transfer that was interrupted: its path, and size and time of the source.
type Row = (Vec<u8>, i64, i64, i64);

fn bytes(path: &Path, size: i64) -> Vec<u8> {
    let name = path.display().to_string().into_bytes();
    name.into_iter().cycle().take(usize::try_from(size).unwrap()).collect()
}

/// Has a journal be about this folder, where all is made that it tells of: the sources, and what was there of the target.
fn moved_to(at: &Path, journal: &Connection) {
    for column in ["request", "ends", "error"] {
        let sql = format!("UPDATE transfer SET {column} = replace({column}, ?1, ?2)");
        journal.execute(&sql, [WAS, at.to_str().unwrap()]).unwrap();
    }
    let sql = "SELECT source, size, mtime, nanos FROM item WHERE transfer = 2 ORDER BY n";
    let row = |row: &rusqlite::Row<'_>| -> rusqlite::Result<Row> {
        Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
    };
    let mut rows = journal.prepare(sql).unwrap();
    let rows: Vec<Row> = rows.query_map([], row).unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), 4);
    for folder in ["from", "small/new"] {
        fs::create_dir_all(at.join(folder)).unwrap();
    }
    // The folder gets its time at last.
    for (source, size, seconds, nanos) in rows.into_iter().rev() {
        let source = String::from_utf8(source).unwrap();
        let path = at.join(&source);
        if path.is_dir() {
            assert_eq!(source, "from");
        } else {
            fs::write(&path, bytes(Path::new(&source), size)).unwrap();
        }
        let since = Duration::new(seconds.try_into().unwrap(), nanos.try_into().unwrap());
        let changed = FileTimes::new().set_modified(SystemTime::UNIX_EPOCH + since);
        File::open(&path).unwrap().set_times(changed).unwrap();
    }
    for done in ["a0", "a1"] {
        fs::copy(at.join("from").join(done), at.join("small/new").join(done)).unwrap();
    }
    let tag = "SELECT tag FROM transfer WHERE id = 2";
    let tag: i64 = journal.query_row(tag, [], |row| row.get(0)).unwrap();
    let begun = at.join(format!("small/new/.stead-{:016x}-3", tag.cast_unsigned()));
    fs::write(begun, vec![0; 19_398_656]).unwrap();
}

#[test]
fn journals_of_older_versions_are_taken_up_and_go_on() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    let mut all: Vec<_> = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|end| end == "db"));
    all.sort();
    assert_eq!(all.len(), 4);
    for path in all {
        let shown = path.display();
        // There was no queue when that one was written, nor were kinds of errors.
        let is_first = path.ends_with("form-1-first.db");
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().canonicalize().unwrap().join("at");
        fs::copy(&path, dir.path().join("transfers.db")).unwrap();
        moved_to(&at, &Connection::open(dir.path().join("transfers.db")).unwrap());
        let open = || Arc::new(Stager::open(dir.path(), Means::default()).unwrap());
        let stager = open();
        let all = stager.statuses(true, 10).unwrap();
        let of: Vec<_> = all.iter().map(|s| (s.id, s.state, s.files_done, s.files)).collect();
        let expected =
            [(3, State::Pending, 0, 0), (2, State::Interrupted, 2, 4), (1, State::Finished, 1, 1)];
        assert_eq!(of, expected, "{shown}");
        assert_eq!(all[1].kind.as_deref(), (!is_first).then_some("no-space"));
        assert!(all[1].request.options.limit == Some(8 << 20) && all[0].request.options.gentle);
        assert!(all[1].seconds(0.0) > 1.0 && all[1].seconds(0.0) < 1.2, "{shown}: {:?}", all[1]);
        // They go on, and need not take their time.
        let hastened = "UPDATE transfer SET request =
                          replace(replace(request, '8388608', 'null'), '\"gentle\":true', '\"gentle\":false')";
        let journal = Connection::open(dir.path().join("transfers.db")).unwrap();
        assert_eq!(journal.execute(hastened, []).unwrap(), 3);
        drop(journal);
        let queue = Queue::open(stager, || {}).unwrap();
        queue.set_slots(1);
        for id in [2, 3] {
            if is_first {
                queue.resume(id).unwrap();
            }
            let ended = queue.wait(id, LONG).unwrap().status;
            assert_eq!(ended.state, State::Finished, "{shown}: {ended:?}");
            let done = (ended.files_done, ended.bytes_done);
            let all = if id == 2 { (4, 20_973_520) } else { (1, 20_971_520) };
            assert_eq!(done, all, "{shown}: {ended:?}");
            ended.outcome().unwrap();
        }
        queue.end();
        drop(queue);
        for (from, to) in
            [("a0", "small/new/a0"), ("a1", "small/new/a1"), ("g", "small/new/g"), ("g", "later")]
        {
            let (from, to) = (at.join("from").join(from), at.join(to));
            assert!(
                fs::read(&from).unwrap() == fs::read(&to).unwrap(),
                "{shown}: {}",
                to.display()
            );
            let modified = |path: &Path| path.metadata().unwrap().modified().unwrap();
            // What was copied here is of the test.
            assert!(modified(&from) == modified(&to) || to.ends_with("a0") || to.ends_with("a1"));
        }
        let left: Vec<_> = fs::read_dir(at.join("small/new")).unwrap().collect();
        assert_eq!(left.len(), 3, "{shown}: {left:?}");
        let stager = open();
        assert_eq!(stager.statuses(false, 10).unwrap().len(), 0);
        let all = stager.statuses(true, 10).unwrap();
        assert!(all.len() == 3 && all.iter().all(|s| s.state == State::Finished), "{shown}");
    }
}

#[test]
fn a_journal_is_closed_to_others_whatever_its_folder_is() {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
    let files = ["", "-wal", "-shm"].map(|end| dir.path().join(format!("transfers.db{end}")));
    let modes =
        || files.each_ref().map(|path| fs::metadata(path).unwrap().permissions().mode() & 0o777);
    let first = Stager::open(dir.path(), Means::default()).unwrap();
    assert_eq!(modes(), [0o600; 3]);
    // So is one of an older version, also while that has it open.
    for path in &files {
        fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    }
    let second = Stager::open(dir.path(), Means::default()).unwrap();
    assert_eq!(modes(), [0o600; 3]);
    drop((first, second));
}
