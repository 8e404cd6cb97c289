//! The forms that a journal had: one of an older version is brought up to the form of this one, all of it or nothing.

use rusqlite::{Connection, Transaction, TransactionBehavior};

/// The form of the file. One of a newer form is refused, and never changed.
///
/// Whoever changes the schema so that what is there does not fit it any more raises this, adds the step to `STEPS`, and keeps a
/// journal of the form before beside the tests (`tests/data`).
pub(super) const FORM: i64 = 2;
/// So says the head of the file whose it is.
const APPLICATION: i64 = 0x5374_6561;

/// To take a transfer is to write two pages: that of its row, and that of the index of those that could be done (`ready_by`, by the
/// dataspaces that they touch), or of those that are in no queue (`loose`). So no other index has those that wait, and nothing counts
/// them: what was ever taken has the numbers from 1 on, as the last one is never forgotten.
const SCHEMA: &str = "
CREATE TABLE transfer (
  id INTEGER PRIMARY KEY,
  tag INTEGER NOT NULL,
  user INTEGER NOT NULL,
  request TEXT NOT NULL,
  priority INTEGER NOT NULL,
  queued INTEGER NOT NULL DEFAULT 0, held INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL,
  submitted REAL NOT NULL, started REAL, ended REAL,
  ends TEXT,
  files INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
  files_done INTEGER NOT NULL DEFAULT 0, bytes_done INTEGER NOT NULL DEFAULT 0,
  skipped INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  error TEXT, kind TEXT,
  touches TEXT NOT NULL DEFAULT ''
);
CREATE INDEX ready_by ON transfer (touches, priority DESC, id) WHERE state = 'pending' AND queued = 1 AND held = 0;
CREATE INDEX loose ON transfer (priority DESC, id) WHERE state = 'pending' AND queued = 0;
CREATE INDEX by_state ON transfer (state, id) WHERE state <> 'pending';
CREATE TABLE item (
  transfer INTEGER NOT NULL, n INTEGER NOT NULL, task INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0,
  origin INTEGER NOT NULL, source BLOB NOT NULL, target BLOB NOT NULL,
  size INTEGER NOT NULL, mtime INTEGER NOT NULL, nanos INTEGER NOT NULL,
  first INTEGER NOT NULL, replaces INTEGER NOT NULL, mark TEXT, error TEXT,
  PRIMARY KEY (transfer, n)
) WITHOUT ROWID;
CREATE TABLE needs (
  transfer INTEGER NOT NULL, other INTEGER NOT NULL, PRIMARY KEY (transfer, other)
) WITHOUT ROWID;
CREATE INDEX needed ON needs (other);
CREATE TABLE total (
  state TEXT PRIMARY KEY, transfers INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO total VALUES ('pending', 0, 0, 0), ('running', 0, 0, 0), ('interrupted', 0, 0, 0),
  ('finished', 0, 0, 0), ('failed', 0, 0, 0), ('cancelled', 0, 0, 0);
CREATE TRIGGER goes_on AFTER UPDATE OF state, files_done, bytes_done ON transfer BEGIN
  UPDATE total SET transfers = transfers - 1, files = files - OLD.files_done, bytes = bytes - OLD.bytes_done
    WHERE state = OLD.state;
  UPDATE total SET transfers = transfers + 1, files = files + NEW.files_done, bytes = bytes + NEW.bytes_done
    WHERE state = NEW.state;
END;
CREATE TABLE pair (name TEXT PRIMARY KEY, seen TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE job (transfer INTEGER PRIMARY KEY, name TEXT NOT NULL);
CREATE TABLE kept (path TEXT PRIMARY KEY, location TEXT NOT NULL, until REAL) WITHOUT ROWID;
CREATE TABLE shared (
  path TEXT NOT NULL, user INTEGER NOT NULL, location TEXT NOT NULL, PRIMARY KEY (path, user)
) WITHOUT ROWID;
CREATE TABLE stray (n INTEGER PRIMARY KEY AUTOINCREMENT, url TEXT NOT NULL, key TEXT NOT NULL, asked REAL NOT NULL);
";

/// How one form becomes the next: the first one is that of form 1.
const STEPS: [fn(&Connection) -> rusqlite::Result<()>; FORM as usize - 1] = [from_1];

/// Why a file is not taken.
pub(super) enum Setup {
    Database(rusqlite::Error),
    /// Of this form, or no journal.
    Form(Option<i64>),
}

impl From<rusqlite::Error> for Setup {
    fn from(e: rusqlite::Error) -> Setup {
        match e.sqlite_error_code() {
            Some(rusqlite::ErrorCode::NotADatabase) => Setup::Form(None),
            _ => Setup::Database(e),
        }
    }
}

/// Looks what form a file has, without writing to it.
///
/// # Errors
/// As [`set_up`].
pub(super) fn look(c: &Connection) -> Result<i64, Setup> {
    let pragma = |name: &str| c.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    match (pragma("application_id")?, pragma("user_version")?) {
        (0, 0) => {
            let tables: i64 =
                c.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            if tables == 0 { Ok(0) } else { Err(Setup::Form(None)) }
        }
        (APPLICATION, form @ 1..=FORM) => Ok(form),
        (APPLICATION, form) => Err(Setup::Form(Some(form))),
        _ => Err(Setup::Form(None)),
    }
}

/// Makes a new file a journal, and one of an older form one of this form: at once, or not at all.
///
/// # Errors
/// Of one that is no journal, or has a form that is not known; those of the database.
pub(super) fn set_up(c: &mut Connection) -> Result<(), Setup> {
    let write = Transaction::new(c, TransactionBehavior::Immediate)?;
    match look(&write)? {
        0 => {
            write.execute_batch(SCHEMA)?;
            write.pragma_update(None, "application_id", APPLICATION)?;
        }
        form => {
            let done = usize::try_from(form - 1).unwrap_or(0);
            for step in STEPS.iter().skip(done) {
                step(&write)?;
            }
        }
    }
    add_columns(&write)?;
    write.pragma_update(None, "user_version", FORM)?;
    Ok(write.commit()?)
}

/// Adds what a journal of this form may lack: whoever knows nothing of these columns leaves them as they are.
fn add_columns(c: &Connection) -> rusqlite::Result<()> {
    for (column, form) in [("active", "REAL NOT NULL DEFAULT 0"), ("resumed", "REAL")] {
        let sql = "SELECT count(*) FROM pragma_table_info('transfer') WHERE name = ?1";
        if c.query_row(sql, [column], |row| row.get::<_, i64>(0))? == 0 {
            c.execute_batch(&format!("ALTER TABLE transfer ADD COLUMN {column} {form}"))?;
        }
    }
    Ok(())
}

/// Form 1 counted those that wait, had an index of all by their state, and grew: tables and columns came to it one by one.
fn from_1(c: &Connection) -> rusqlite::Result<()> {
    let count = |sql: &str| c.query_row(sql, [], |row| row.get::<_, i64>(0));
    for (column, what) in [
        ("queued", "INTEGER NOT NULL DEFAULT 0"),
        ("held", "INTEGER NOT NULL DEFAULT 0"),
        ("kind", "TEXT"),
        ("touches", "TEXT NOT NULL DEFAULT ''"),
    ] {
        let has =
            format!("SELECT count(*) FROM pragma_table_info('transfer') WHERE name = '{column}'");
        if count(&has)? == 0 {
            c.execute_batch(&format!("ALTER TABLE transfer ADD COLUMN {column} {what}"))?;
        }
    }
    let counted = count("SELECT count(*) FROM sqlite_schema WHERE name = 'total'")? > 0;
    c.execute_batch(
        "DROP TRIGGER IF EXISTS comes; DROP TRIGGER IF EXISTS goes_on;
         DROP INDEX IF EXISTS by_state; DROP INDEX IF EXISTS ready; DROP INDEX IF EXISTS ready_by;",
    )?;
    c.execute_batch(
        "CREATE TABLE IF NOT EXISTS needs (
           transfer INTEGER NOT NULL, other INTEGER NOT NULL, PRIMARY KEY (transfer, other)
         ) WITHOUT ROWID;
         CREATE INDEX IF NOT EXISTS needed ON needs (other);
         CREATE TABLE IF NOT EXISTS total (
           state TEXT PRIMARY KEY, transfers INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL
         ) WITHOUT ROWID;
         CREATE TABLE IF NOT EXISTS job (transfer INTEGER PRIMARY KEY, name TEXT NOT NULL);
         CREATE TABLE IF NOT EXISTS kept (path TEXT PRIMARY KEY, location TEXT NOT NULL, until REAL) WITHOUT ROWID;
         CREATE TABLE IF NOT EXISTS shared (
           path TEXT NOT NULL, user INTEGER NOT NULL, location TEXT NOT NULL, PRIMARY KEY (path, user)
         ) WITHOUT ROWID;
         CREATE TABLE IF NOT EXISTS stray (
           n INTEGER PRIMARY KEY AUTOINCREMENT, url TEXT NOT NULL, key TEXT NOT NULL, asked REAL NOT NULL
         );
         CREATE INDEX ready_by ON transfer (touches, priority DESC, id) WHERE state = 'pending' AND queued = 1 AND held = 0;
         CREATE INDEX loose ON transfer (priority DESC, id) WHERE state = 'pending' AND queued = 0;
         CREATE INDEX by_state ON transfer (state, id) WHERE state <> 'pending';",
    )?;
    if !counted {
        c.execute_batch(
            "WITH all_states(state) AS (VALUES ('pending'), ('running'), ('interrupted'), ('finished'), ('failed'), ('cancelled'))
             INSERT INTO total SELECT a.state, count(t.id), coalesce(sum(t.files_done), 0), coalesce(sum(t.bytes_done), 0)
               FROM all_states a LEFT JOIN transfer t ON t.state = a.state GROUP BY a.state",
        )?;
    }
    // The first journals had dataspaces by their names alone, and not where these were: such a transfer is planned anew.
    c.execute(r#"UPDATE transfer SET ends = NULL WHERE ends LIKE '%"Space":"%'"#, [])?;
    // Those that wait are all that were ever taken, the numbers up to the last, without those of other states.
    c.execute_batch(
        "UPDATE total SET transfers = (SELECT count(*) FROM transfer WHERE state = 'pending')
           - (SELECT coalesce(max(id), 0) FROM transfer) WHERE state = 'pending';
         CREATE TRIGGER goes_on AFTER UPDATE OF state, files_done, bytes_done ON transfer BEGIN
           UPDATE total SET transfers = transfers - 1, files = files - OLD.files_done, bytes = bytes - OLD.bytes_done
             WHERE state = OLD.state;
           UPDATE total SET transfers = transfers + 1, files = files + NEW.files_done, bytes = bytes + NEW.bytes_done
             WHERE state = NEW.state;
         END;
         UPDATE sqlite_sequence SET seq = (SELECT coalesce(max(id), 0) FROM transfer) WHERE name = 'transfer';",
    )
}

#[cfg(test)]
mod tests {
    use super::super::Journal;
    use super::*;
    use crate::ends::Base;
    use crate::status::State;
    use rusqlite::params;
    use std::path::Path;
    use stead_core::Kind;

    /// What form 1 was when it was first written, and what came to it.
    const FIRST: &str = "
CREATE TABLE transfer (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tag INTEGER NOT NULL,
  user INTEGER NOT NULL,
  request TEXT NOT NULL,
  priority INTEGER NOT NULL,
  state TEXT NOT NULL,
  submitted REAL NOT NULL, started REAL, ended REAL,
  ends TEXT,
  files INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
  files_done INTEGER NOT NULL DEFAULT 0, bytes_done INTEGER NOT NULL DEFAULT 0,
  skipped INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  error TEXT
);
CREATE INDEX by_state ON transfer (state, priority DESC, id);
CREATE TABLE item (
  transfer INTEGER NOT NULL, n INTEGER NOT NULL, task INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0,
  origin INTEGER NOT NULL, source BLOB NOT NULL, target BLOB NOT NULL,
  size INTEGER NOT NULL, mtime INTEGER NOT NULL, nanos INTEGER NOT NULL,
  first INTEGER NOT NULL, replaces INTEGER NOT NULL, mark TEXT, error TEXT,
  PRIMARY KEY (transfer, n)
) WITHOUT ROWID;
CREATE TABLE pair (name TEXT PRIMARY KEY, seen TEXT NOT NULL) WITHOUT ROWID;
";

    /// What it was in the end, without what had come to it by then in files that were older.
    const LAST: &str = "
CREATE TABLE transfer (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  tag INTEGER NOT NULL,
  user INTEGER NOT NULL,
  request TEXT NOT NULL,
  priority INTEGER NOT NULL,
  queued INTEGER NOT NULL DEFAULT 0, held INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL,
  submitted REAL NOT NULL, started REAL, ended REAL,
  ends TEXT,
  files INTEGER NOT NULL DEFAULT 0, bytes INTEGER NOT NULL DEFAULT 0,
  files_done INTEGER NOT NULL DEFAULT 0, bytes_done INTEGER NOT NULL DEFAULT 0,
  skipped INTEGER NOT NULL DEFAULT 0, failed INTEGER NOT NULL DEFAULT 0,
  error TEXT, kind TEXT
);
CREATE INDEX by_state ON transfer (state, priority DESC, id);
CREATE TABLE item (
  transfer INTEGER NOT NULL, n INTEGER NOT NULL, task INTEGER NOT NULL, done INTEGER NOT NULL DEFAULT 0,
  origin INTEGER NOT NULL, source BLOB NOT NULL, target BLOB NOT NULL,
  size INTEGER NOT NULL, mtime INTEGER NOT NULL, nanos INTEGER NOT NULL,
  first INTEGER NOT NULL, replaces INTEGER NOT NULL, mark TEXT, error TEXT,
  PRIMARY KEY (transfer, n)
) WITHOUT ROWID;
CREATE TABLE needs (
  transfer INTEGER NOT NULL, other INTEGER NOT NULL, PRIMARY KEY (transfer, other)
) WITHOUT ROWID;
CREATE INDEX needed ON needs (other);
CREATE INDEX ready ON transfer (priority DESC, id) WHERE state = 'pending' AND queued = 1 AND held = 0;
CREATE TABLE total (
  state TEXT PRIMARY KEY, transfers INTEGER NOT NULL, files INTEGER NOT NULL, bytes INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO total VALUES ('pending', 0, 0, 0), ('running', 0, 0, 0), ('interrupted', 0, 0, 0),
  ('finished', 0, 0, 0), ('failed', 0, 0, 0), ('cancelled', 0, 0, 0);
CREATE TRIGGER comes AFTER INSERT ON transfer BEGIN
  UPDATE total SET transfers = transfers + 1 WHERE state = NEW.state;
END;
CREATE TRIGGER goes_on AFTER UPDATE OF state, files_done, bytes_done ON transfer BEGIN
  UPDATE total SET transfers = transfers - 1, files = files - OLD.files_done, bytes = bytes - OLD.bytes_done
    WHERE state = OLD.state;
  UPDATE total SET transfers = transfers + 1, files = files + NEW.files_done, bytes = bytes + NEW.bytes_done
    WHERE state = NEW.state;
END;
CREATE TABLE pair (name TEXT PRIMARY KEY, seen TEXT NOT NULL) WITHOUT ROWID;
";

    fn of_form_1(schema: &str, path: &Path) {
        let c = Connection::open(path).unwrap();
        c.execute_batch(schema).unwrap();
        let request = r#"{"action":"copy","sources":["/a"],"target":"/b"}"#;
        for (id, state) in [(1, "finished"), (3, "interrupted"), (4, "pending"), (5, "pending")] {
            c.execute(
                "INSERT INTO transfer (id, tag, user, request, priority, state, submitted) VALUES (?1, 7, 0, ?2, 0, ?3, 1.0)",
                params![id, request, state],
            )
            .unwrap();
        }
        c.pragma_update(None, "user_version", 1).unwrap();
        c.pragma_update(None, "application_id", APPLICATION).unwrap();
    }

    fn count(journal: &Journal) -> Vec<(State, u64)> {
        let totals = journal.totals().unwrap();
        totals.iter().filter(|t| t.transfers > 0).map(|t| (t.state, t.transfers)).collect()
    }

    #[test]
    fn an_older_form_is_brought_up() {
        for schema in [FIRST, LAST] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("j.db");
            of_form_1(schema, &path);
            let journal = Journal::open(&path).unwrap();
            let all = journal.statuses(None, true, 10).unwrap();
            assert_eq!(all.iter().map(|s| s.id).collect::<Vec<_>>(), [5, 4, 3, 1]);
            let counted = [(State::Finished, 1), (State::Interrupted, 1), (State::Pending, 2)];
            assert_eq!(count(&journal), counted);
            assert!(journal.heads(9).unwrap().is_empty());
            assert!(journal.requeue(4).unwrap());
            let heads = journal.heads(9).unwrap();
            assert_eq!(heads.iter().map(|head| head.id).collect::<Vec<_>>(), [4]);
            assert!(journal.claim(4, 2.0).unwrap());
            journal.set_state(4, State::Finished, None, 3.0).unwrap();
            drop(journal);
            let journal = Journal::open(&path).unwrap();
            let counted = [(State::Finished, 2), (State::Interrupted, 1), (State::Pending, 1)];
            assert_eq!(count(&journal), counted);
        }
    }

    #[test]
    fn transfers_of_the_first_journals_are_planned_anew_in_dataspaces() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.db");
        of_form_1(FIRST, &path);
        let c = Connection::open(&path).unwrap();
        let first = r#"{"sources":[{"Path":"/a"},{"Space":"nvme"}],"target":{"Space":"nvme"}}"#;
        let last = r#"{"sources":[{"Space":["nvme","/n"]}],"target":null}"#;
        for (id, ends) in [(1, last), (3, first)] {
            c.execute("UPDATE transfer SET ends = ?2 WHERE id = ?1", params![id, ends]).unwrap();
        }
        drop(c);
        let journal = Journal::open(&path).unwrap();
        assert!(journal.known(3).unwrap().ends.is_none());
        let ends = journal.known(1).unwrap().ends.unwrap();
        assert_eq!(ends.sources, [Base::Space("nvme".into(), "/n".into())]);
    }

    #[test]
    fn a_newer_form_is_refused_and_left_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("j.db");
        drop(Journal::open(&path).unwrap());
        let c = Connection::open(&path).unwrap();
        c.pragma_update(None, "journal_mode", "DELETE").unwrap();
        c.pragma_update(None, "user_version", FORM + 1).unwrap();
        drop(c);
        let before = std::fs::read(&path).unwrap();
        let e = Journal::open(&path).unwrap_err();
        assert!(e.kind() == Kind::Format && e.to_string().contains("form 3"), "{e}");
        assert!(e.hint().unwrap().contains("newer"), "{e}");
        assert_eq!(std::fs::read(&path).unwrap(), before);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
