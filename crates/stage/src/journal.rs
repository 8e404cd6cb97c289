//! What is wanted and how far it is, in a file that survives the end of the process and of the machine.
//!
//! A transfer that was accepted is in the file before anybody is told so. Its list of names is on the device before the first
//! one is touched; from then on, what was done is written down after it was done. So whoever comes later finds at most more
//! done than is written.

mod forms;
mod kept;
mod left;
mod marks;
mod queued;
mod room;
mod strays;
mod told;

pub(crate) use queued::Head;

pub(crate) use strays::Stray;

use crate::ends::Base;
use crate::job::{Item, Task};
use crate::plan::unfinished;
use crate::request::Request;
use crate::status::State;
use crate::touch::Touched;
use forms::{FORM, Setup};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fs::{OpenOptions, Permissions};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_model::transfer::Seen;
use stead_store::FileTime;

/// How long another process may have the file.
const PATIENCE: Duration = Duration::from_secs(30);
/// Rights of its files.
const CLOSED: u32 = 0o600;
/// Bytes of what is written before the file itself that stay when it is in there.
const LOG_BYTES: i64 = 16 << 20;

/// Where paths of a transfer begin.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ends {
    pub(crate) sources: Vec<Base>,
    pub(crate) target: Option<Base>,
}

/// Sums over the names of a plan.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Totals {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    pub(crate) skipped: u64,
}

/// The journal of a node, or of a user there.
#[derive(Debug)]
pub struct Journal {
    connection: Mutex<Connection>,
    path: PathBuf,
    /// Bytes that it may have, about.
    most: AtomicU64,
    /// Bytes of these that are known to be free.
    known_room: AtomicU64,
}

/// By whom and when a transfer is asked for, what it is called in names, and what it touches as far as its request says.
pub(crate) struct By {
    pub(crate) tag: u64,
    pub(crate) user: u32,
    /// Seconds since 1970.
    pub(crate) now: f64,
    pub(crate) touched: Touched,
}

/// What the journal has of a transfer to go on with.
#[derive(Debug, Clone)]
pub(crate) struct Known {
    pub(crate) tag: u64,
    pub(crate) request: Request,
    pub(crate) state: State,
    /// Where paths begin; none before it is planned.
    pub(crate) ends: Option<Ends>,
    pub(crate) totals: Totals,
    pub(crate) done: Totals,
}

/// A transfer that has begun and not ended.
pub(crate) struct UnderWay {
    pub(crate) id: i64,
    pub(crate) tag: u64,
    pub(crate) ends: Ends,
    /// Somebody does it now, as far as it says.
    pub(crate) running: bool,
    /// Bytes of it that are still to come.
    pub(crate) left: u64,
}

fn whole(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

fn number(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

impl Journal {
    /// Opens the journal in this file, which is made if it is not there. One of an older version is brought up.
    ///
    /// # Errors
    /// `Format` for a file that is no journal, or one of a newer version; `Io` with the reason of the database.
    pub fn open(path: &Path) -> Result<Journal> {
        let failed = |e: rusqlite::Error| failure(path, "open", &e);
        // Nobody else is to know what is staged, whatever folder this is: what the database puts beside the file has its rights. One that
        // is there, or cannot be made, the database says something of.
        let _ = OpenOptions::new().write(true).create_new(true).mode(CLOSED).open(path);
        let connection = Connection::open(path).map_err(failed)?;
        connection.busy_timeout(PATIENCE).map_err(failed)?;
        connection.set_prepared_statement_cache_capacity(64);
        let connection = Mutex::new(connection);
        let (most, known_room) = (AtomicU64::new(u64::MAX), AtomicU64::new(0));
        let journal = Journal { connection, path: path.to_owned(), most, known_room };
        journal.set_up().map_err(|e| match e {
            Setup::Database(e) => failed(e),
            Setup::Form(form) => {
                let away = "name another folder by STEAD_STATE, or move the file away";
                match form {
                    None => Error::format("this file is no journal of transfers").with_hint(away),
                    Some(form) => Error::format(format!(
                        "this journal has form {form}, and this stead knows forms up to {FORM}"
                    ))
                    .with_hint(format!("a newer stead has made it: use that one, or {away}")),
                }
                .at_path(path)
            }
        })?;
        journal.close_to_others();
        Ok(journal)
    }

    /// Takes from others the rights that older versions left them. Where it may not, somebody else has given them.
    fn close_to_others(&self) {
        for end in ["", "-wal", "-shm"] {
            let mut path = self.path.as_os_str().to_owned();
            path.push(end);
            let others = |meta: &std::fs::Metadata| meta.permissions().mode() & 0o077 != 0;
            if std::fs::symlink_metadata(&path).is_ok_and(|meta| meta.is_file() && others(&meta)) {
                let _ = std::fs::set_permissions(&path, Permissions::from_mode(CLOSED));
            }
        }
    }

    fn set_up(&self) -> std::result::Result<(), Setup> {
        let mut c = self.connection();
        // What another version has made is not even opened to be written to.
        forms::look(&c)?;
        c.pragma_update(None, "journal_mode", "WAL")?;
        c.pragma_update(None, "synchronous", "NORMAL")?;
        c.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
        forms::set_up(&mut c)
    }

    fn connection(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn with<T>(
        &self,
        doing: &str,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T> {
        work(&mut self.connection()).map_err(|e| failure(&self.path, doing, &e))
    }

    /// Takes a request: it survives the end of this process from here on.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn submit(&self, request: &Request, by: &By) -> Result<i64> {
        let text = to_text(request)?;
        self.with("write to", |c| {
            c.prepare_cached(
                "INSERT INTO transfer (tag, user, request, priority, state, submitted, touches)
                 VALUES (?1, ?2, ?3, ?4, 'pending', ?5, ?6)",
            )?
            .insert(params![
                by.tag.cast_signed(),
                by.user,
                text,
                request.options.priority,
                by.now,
                by.touched.text()
            ])
        })
    }

    /// The dataspaces that a transfer touches, as far as that is known.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn touched(&self, id: i64) -> Result<Touched> {
        let text: Option<String> = self.with("read", |c| {
            c.prepare_cached("SELECT touches FROM transfer WHERE id = ?1")?
                .query_row([id], |row| row.get(0))
                .optional()
        })?;
        Ok(text.map(|text| Touched::of_text(&text)).unwrap_or_default())
    }

    /// It touches these.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn set_touched(&self, id: i64, touched: &Touched) -> Result<()> {
        self.with("write to", |c| {
            c.prepare_cached("UPDATE transfer SET touches = ?2 WHERE id = ?1 AND touches <> ?2")?
                .execute(params![id, touched.text()])
        })
        .map(|_| ())
    }

    /// The job that a transfer is of, if any.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn job(&self, id: i64) -> Result<Option<String>> {
        self.with("read", |c| {
            c.prepare_cached("SELECT name FROM job WHERE transfer = ?1")?
                .query_row([id], |row| row.get(0))
                .optional()
        })
    }

    /// When a transfer was begun first, in seconds since 1970; none of one that was not.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn began(&self, id: i64) -> Result<Option<f64>> {
        self.with("read", |c| {
            c.prepare_cached("SELECT started FROM transfer WHERE id = ?1 AND started IS NOT NULL")?
                .query_row([id], |row| row.get(0))
                .optional()
        })
    }

    /// Somebody has asked for the same anew: one that is still to be planned begins when that is done.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn begins_anew(&self, id: i64) -> Result<()> {
        self.with("write to", |c| {
            c.prepare_cached("UPDATE transfer SET started = NULL WHERE id = ?1 AND ends IS NULL")?
                .execute([id])
        })
        .map(|_| ())
    }

    /// What is known of a transfer.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; those of the database.
    pub(crate) fn known(&self, id: i64) -> Result<Known> {
        let row = self.with("read", |c| {
            c.prepare_cached(
                "SELECT tag, request, state, ends, files, bytes, skipped, files_done, bytes_done
                 FROM transfer WHERE id = ?1",
            )?
            .query_row([id], |row| {
                let totals = |files: usize, bytes: usize| {
                    Ok::<_, rusqlite::Error>(Totals {
                        files: whole(row.get(files)?),
                        bytes: whole(row.get(bytes)?),
                        skipped: 0,
                    })
                };
                Ok((
                    row.get::<_, i64>(0)?.cast_unsigned(),
                    row.get::<_, String>(1)?,
                    row.get::<_, String>(2)?,
                    row.get::<_, Option<String>>(3)?,
                    Totals { skipped: whole(row.get(6)?), ..totals(4, 5)? },
                    totals(7, 8)?,
                ))
            })
            .optional()
        })?;
        let Some((tag, request, state, ends, totals, done)) = row else {
            return Err(no_transfer(id));
        };
        Ok(Known {
            tag,
            request: self.of_text(&request)?,
            state: self.state(&state)?,
            ends: ends.map(|text| self.of_text(&text)).transpose()?,
            totals,
            done,
        })
    }

    fn of_text<T: serde::de::DeserializeOwned>(&self, text: &str) -> Result<T> {
        serde_json::from_str(text)
            .map_err(|e| Error::format(format!("the journal is damaged: {e}")).at_path(&self.path))
    }

    fn state(&self, text: &str) -> Result<State> {
        let damaged = || {
            Error::format(format!("the journal is damaged: '{}' is no state", text.escape_debug()))
                .at_path(&self.path)
        };
        State::parse(text).ok_or_else(damaged)
    }

    /// Begins a list of names anew.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn plan_begin(&self, id: i64) -> Result<()> {
        self.with("write to", |c| {
            let write = c.transaction()?;
            write.execute("DELETE FROM item WHERE transfer = ?1", [id])?;
            write.execute("UPDATE transfer SET ends = NULL WHERE id = ?1", [id])?;
            write.commit()
        })
    }

    /// Adds to the list: a part at a time, so that others get their turn.
    ///
    /// # Errors
    /// `Limit` if it has no room for them; those of the database.
    pub(crate) fn plan_add(&self, id: i64, items: &[Item]) -> Result<()> {
        self.make_room(room::Needs::Names)?;
        self.with("write to", |c| {
            let write = c.transaction()?;
            {
                let mut insert = write.prepare_cached(
                    "INSERT INTO item (transfer, n, task, origin, source, target, size, mtime, nanos, first, replaces)
                     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
                )?;
                for item in items {
                    insert.execute(params![
                        id,
                        item.n,
                        item.task.code(),
                        item.from,
                        item.source.as_os_str().as_bytes(),
                        item.target.as_os_str().as_bytes(),
                        number(item.size),
                        item.mtime.seconds,
                        item.mtime.nanos,
                        item.first,
                        item.replace,
                    ])?;
                }
            }
            write.commit()
        })
    }

    /// Ends the list. All of it is on the device when this returns.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn plan_end(&self, id: i64, ends: &Ends, totals: &Totals) -> Result<()> {
        let ends = to_text(ends)?;
        self.with("write to", |c| {
            // That is the last thing before the first name is touched.
            durably(c, |c| {
                c.prepare_cached(
                    "UPDATE transfer SET ends = ?2, files = ?3, bytes = ?4, skipped = ?5,
                       files_done = 0, bytes_done = 0, failed = 0, error = NULL WHERE id = ?1",
                )?
                .execute(params![
                    id,
                    ends,
                    number(totals.files),
                    number(totals.bytes),
                    number(totals.skipped)
                ])
            })
        })
        .map(|_| ())
    }

    /// One name of the list.
    ///
    /// # Errors
    /// `Internal` if there is none; those of the database.
    pub(crate) fn item(&self, id: i64, n: i64) -> Result<Item> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT n, task, origin, source, target, size, mtime, nanos, first, replaces FROM item
                 WHERE transfer = ?1 AND n = ?2",
            )?
            .query_row([id, n], item)
            .optional()
        })?
        .ok_or_else(|| Error::internal(format!("transfer {id} has no name {n}")))
    }

    /// These are done, and those have failed.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn done(&self, id: i64, done: &[&Item], failed: &[(&Item, &Error)]) -> Result<()> {
        self.with("write to", |c| {
            let write = c.transaction()?;
            let bytes = done.iter().fold(0u64, |bytes, item| bytes.saturating_add(item.size));
            {
                let mut update = write.prepare_cached(
                    "UPDATE item SET done = 1, mark = NULL WHERE transfer = ?1 AND n BETWEEN ?2 AND ?3",
                )?;
                // Names of a folder have numbers in a row.
                for row in done.chunk_by(|a, b| b.n == a.n.saturating_add(1)) {
                    if let (Some(first), Some(last)) = (row.first(), row.last()) {
                        update.execute([id, first.n, last.n])?;
                    }
                }
                let mut fail = write
                    .prepare_cached("UPDATE item SET done = 2, error = ?3 WHERE transfer = ?1 AND n = ?2")?;
                for (item, error) in failed {
                    fail.execute(params![id, item.n, of_item(item, error)])?;
                }
            }
            write
                .prepare_cached(
                    "UPDATE transfer SET files_done = files_done + ?2, bytes_done = CAST(bytes_done + ?3 AS INTEGER),
                       failed = failed + ?4 WHERE id = ?1",
                )?
                .execute(params![id, number(done.len() as u64), number(bytes), number(failed.len() as u64)])?;
            write.commit()
        })
    }

    /// One that is said to be under way is interrupted, with this error: it can go on.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn end_unsaid(&self, id: i64, e: &Error, now: f64) -> Result<()> {
        let why = Some(e).filter(|e| e.kind() != Kind::Cancelled);
        self.with("write to", |c| {
            c.prepare_cached(
                "UPDATE transfer SET state = 'interrupted', error = ?2, kind = ?3, ended = ?4
                 WHERE id = ?1 AND state = 'running'",
            )?
            .execute(params![id, why.map(told), why.map(|e| e.kind().name()), now])
        })
        .map(|_| ())
    }

    /// True if a name is done.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn is_done(&self, id: i64, n: i64) -> Result<bool> {
        let done: Option<i64> = self.with("read", |c| {
            c.prepare_cached("SELECT done FROM item WHERE transfer = ?1 AND n = ?2")?
                .query_row([id, n], |row| row.get(0))
                .optional()
        })?;
        Ok(done == Some(1))
    }

    /// A name is there now, and it is ours: it may be replaced.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn set_replaces(&self, id: i64, n: i64) -> Result<()> {
        self.with("write to", |c| {
            c.prepare_cached("UPDATE item SET replaces = 1 WHERE transfer = ?1 AND n = ?2")?
                .execute([id, n])
        })
        .map(|_| ())
    }

    /// A file has another size than was planned.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn resize(&self, id: i64, n: i64, size: u64, mtime: FileTime) -> Result<()> {
        self.with("write to", |c| {
            c.prepare_cached(
                "UPDATE transfer SET bytes = CAST(bytes - (SELECT size FROM item WHERE transfer = ?1 AND n = ?2) + ?3 AS INTEGER)
                 WHERE id = ?1",
            )?
            .execute(params![id, n, number(size)])?;
            c.prepare_cached(
                "UPDATE item SET size = ?3, mtime = ?4, nanos = ?5 WHERE transfer = ?1 AND n = ?2",
            )?
            .execute(params![id, n, number(size), mtime.seconds, mtime.nanos])
        })
        .map(|_| ())
    }

    /// What failed is to be tried again.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn try_failed_again(&self, id: i64) -> Result<()> {
        self.with("write to", |c| {
            c.execute(
                "UPDATE item SET done = 0, error = NULL WHERE transfer = ?1 AND done = 2",
                [id],
            )?;
            c.execute("UPDATE transfer SET failed = 0, error = NULL WHERE id = ?1", [id])
        })
        .map(|_| ())
    }

    /// Gives a transfer a state. One that is over forgets its list of names, unless it can be resumed.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn set_state(
        &self,
        id: i64,
        state: State,
        error: Option<&Error>,
        now: f64,
    ) -> Result<()> {
        self.with("write to", |c| {
            let write = c.transaction()?;
            let ended = (state.is_over() || state == State::Interrupted).then_some(now);
            write
                .prepare_cached(
                    "UPDATE transfer SET state = ?2, error = ?3, kind = ?6, ended = ?4,
                       started = CASE WHEN ?2 = 'running' AND started IS NULL THEN ?5 ELSE started END,
                       resumed = CASE WHEN ?2 = 'running' THEN ?5 ELSE resumed END
                     WHERE id = ?1",
                )?
                .execute(params![
                    id,
                    state.as_str(),
                    error.map(told),
                    ended,
                    now,
                    error.map(|e| e.kind().name())
                ])?;
            match state {
                State::Finished => queued::is_finished(&write, id)?,
                State::Failed | State::Cancelled => queued::is_in_vain(&write, id, now)?,
                _ => {}
            }
            write.commit()
        })?;
        match state {
            State::Finished | State::Cancelled => self.forget_names(id),
            _ => Ok(()),
        }
    }

    /// Somebody was at it for so many seconds more.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn was_active(&self, id: i64, seconds: f64) -> Result<()> {
        self.with("write to", |c| {
            c.prepare_cached("UPDATE transfer SET active = active + ?2 WHERE id = ?1")?
                .execute(params![id, seconds])
        })
        .map(|_| ())
    }

    /// What was seen of transfers between two tiers.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn seen(&self, pair: &str) -> Result<Seen> {
        let text: Option<String> = self.with("read", |c| {
            c.prepare_cached("SELECT seen FROM pair WHERE name = ?1")?
                .query_row([pair], |row| row.get(0))
                .optional()
        })?;
        // A hint: what cannot be read is as if nothing had been seen.
        Ok(text.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default())
    }

    /// What was seen of all pairs of tiers.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn all_seen(&self) -> Result<Vec<(String, Seen)>> {
        let rows: Vec<(String, String)> = self.with("read", |c| {
            c.prepare_cached("SELECT name, seen FROM pair ORDER BY name")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
        })?;
        let read = |text: String| serde_json::from_str(&text).unwrap_or_default();
        Ok(rows.into_iter().map(|(name, text)| (name, read(text))).collect())
    }

    /// Remembers what was seen.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn set_seen(&self, pair: &str, seen: &Seen) -> Result<()> {
        let text = to_text(seen)?;
        self.with("write to", |c| {
            c.prepare_cached("INSERT OR REPLACE INTO pair (name, seen) VALUES (?1, ?2)")?
                .execute([pair, &text])
        })
        .map(|_| ())
    }
}

fn item(row: &Row<'_>) -> rusqlite::Result<Item> {
    let path = |i: usize| -> rusqlite::Result<PathBuf> {
        Ok(PathBuf::from(OsStr::from_bytes(row.get_ref(i)?.as_blob()?)))
    };
    let code: i64 = row.get(1)?;
    Ok(Item {
        n: row.get(0)?,
        task: Task::of_code(code).ok_or(rusqlite::Error::IntegralValueOutOfRange(1, code))?,
        from: row.get(2)?,
        source: path(3)?,
        target: path(4)?,
        size: whole(row.get(5)?),
        mtime: FileTime { seconds: row.get(6)?, nanos: row.get(7)? },
        first: row.get(8)?,
        replace: row.get(9)?,
    })
}

/// Does something that is on the device when this returns, together with all that was written before.
fn durably<T>(
    c: &mut Connection,
    work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
) -> rusqlite::Result<T> {
    c.pragma_update(None, "synchronous", "FULL")?;
    let done = work(c);
    c.pragma_update(None, "synchronous", "NORMAL")?;
    done
}

fn to_text(value: &impl Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::internal(format!("no text of a record: {e}")))
}

/// An error as a line with its hint.
fn told(error: &Error) -> String {
    match error.hint() {
        Some(hint) => format!("{error} ({hint})"),
        None => error.to_string(),
    }
}

/// The same of an item, whose bytes have another name until they are whole: that one says nothing to people.
fn of_item(item: &Item, error: &Error) -> String {
    let told = told(error);
    let path = error.place().path.as_deref();
    match path.filter(|path| path.file_name().is_some_and(unfinished)) {
        Some(path) => {
            let named = path.with_file_name(item.name());
            told.replacen(&*path.to_string_lossy(), &named.to_string_lossy(), 1)
        }
        None => told,
    }
}

fn no_transfer(id: i64) -> Error {
    Error::usage(format!("there is no transfer {id}")).with_hint(
        "stead stage --list shows those of this user, stead admin transfers those of others",
    )
}

fn failure(path: &Path, doing: &str, e: &rusqlite::Error) -> Error {
    use rusqlite::ErrorCode as C;
    let (kind, hint) = match e.sqlite_error_code() {
        Some(C::DiskFull) => {
            (Kind::NoSpace, "free some space, or name another folder by STEAD_STATE")
        }
        Some(C::PermissionDenied | C::ReadOnly | C::CannotOpen) => {
            (Kind::Permission, "name a folder that can be written to by STEAD_STATE")
        }
        Some(C::DatabaseBusy | C::DatabaseLocked) => {
            (Kind::Timeout, "another process has it for long; look which one, and try again")
        }
        Some(C::DatabaseCorrupt) => {
            (Kind::Format, "move the file away; what it knew of transfers under way is lost")
        }
        _ => (
            Kind::Io,
            "the journal must lie on a file system with locks: name a folder by STEAD_STATE",
        ),
    };
    Error::new(kind, format!("cannot {doing} the journal of transfers: {e}"))
        .at_path(path)
        .with_hint(hint)
}
