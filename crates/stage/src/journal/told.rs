//! What the journal tells of transfers.

use super::{Journal, UnderWay, no_transfer, number, whole};
use crate::status::{Failure, State, Status};
use rusqlite::params;
use stead_core::Result;

/// Errors of single names that are told.
const MOST_FAILURES: u64 = 100;

/// A row of the list, before its texts are read.
struct Status2 {
    id: i64,
    times: (f64, Option<f64>, Option<f64>),
    active: (f64, Option<f64>),
    files: (u64, u64),
    bytes: (u64, u64),
    others: (u64, u64),
    error: (Option<String>, Option<String>),
}

impl Journal {
    /// How far a transfer is.
    ///
    /// # Errors
    /// `Usage` if there is none of this number; those of the database.
    pub fn status(&self, id: i64) -> Result<Status> {
        self.list("id = ?1", params![id], 1)?.pop().ok_or_else(|| no_transfer(id))
    }

    /// Transfers of a user, or of all, the latest first; those that are over only if `all`.
    ///
    /// # Errors
    /// Those of the database.
    pub fn statuses(&self, user: Option<u32>, all: bool, most: usize) -> Result<Vec<Status>> {
        self.list(
            "(?1 IS NULL OR user = ?1) AND (?2 OR state IN ('pending', 'running', 'interrupted'))",
            params![user, all],
            most,
        )
    }

    fn list(
        &self,
        which: &str,
        given: &[&dyn rusqlite::ToSql],
        most: usize,
    ) -> Result<Vec<Status>> {
        let sql = format!(
            "SELECT id, request, state, submitted, started, ended, files, files_done, bytes, bytes_done,
               skipped, failed, error, kind, active, resumed FROM transfer WHERE {which} ORDER BY id DESC LIMIT {most}"
        );
        type Text = (String, String);
        let rows: Vec<(Status2, Text)> = self.with("read", |c| {
            c.prepare_cached(&sql)?
                .query_map(given, |row| {
                    let texts = (row.get(1)?, row.get(2)?);
                    let numbers = [6, 7, 8, 9, 10, 11].map(|i| row.get::<_, i64>(i).map(whole));
                    let [files, files_done, bytes, bytes_done, skipped, failed] = numbers;
                    let rest = Status2 {
                        id: row.get(0)?,
                        times: (row.get(3)?, row.get(4)?, row.get(5)?),
                        active: (row.get(14)?, row.get(15)?),
                        files: (files?, files_done?),
                        bytes: (bytes?, bytes_done?),
                        others: (skipped?, failed?),
                        error: (row.get(12)?, row.get(13)?),
                    };
                    Ok((rest, texts))
                })?
                .collect()
        })?;
        rows.into_iter()
            .map(|(row, (request, state))| {
                Ok(Status {
                    id: row.id,
                    request: self.of_text(&request)?,
                    state: self.state(&state)?,
                    submitted: row.times.0,
                    started: row.times.1,
                    ended: row.times.2,
                    active: row.active.0,
                    resumed: row.active.1,
                    files: row.files.0,
                    files_done: row.files.1,
                    bytes: row.bytes.0,
                    bytes_done: row.bytes.1,
                    skipped: row.others.0,
                    failed: row.others.1,
                    failures: match row.others.1 {
                        0 => Vec::new(),
                        _ => self.failures(row.id)?,
                    },
                    error: row.error.0,
                    kind: row.error.1,
                    waits: None,
                })
            })
            .collect()
    }

    fn failures(&self, id: i64) -> Result<Vec<Failure>> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT source, error FROM item WHERE transfer = ?1 AND done = 2 ORDER BY n LIMIT ?2",
            )?
            .query_map(params![id, number(MOST_FAILURES)], |row| {
                let path: Vec<u8> = row.get(0)?;
                Ok(Failure {
                    path: String::from_utf8_lossy(&path).into_owned(),
                    error: row.get::<_, Option<String>>(1)?.unwrap_or_default(),
                })
            })?
            .collect()
        })
    }

    /// Transfers that have been planned and are not over.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn under_way(&self) -> Result<Vec<UnderWay>> {
        let rows: Vec<(i64, i64, String, bool, i64)> = self.with("read", |c| {
            c.prepare_cached(
                "SELECT id, tag, ends, state = 'running', max(bytes - bytes_done, 0) FROM transfer
                 WHERE state <> 'pending' AND state IN ('running', 'interrupted') AND ends IS NOT NULL",
            )?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?)))?
            .collect()
        })?;
        rows.into_iter()
            .map(|(id, tag, ends, running, left)| {
                let (tag, ends) = (tag.cast_unsigned(), self.of_text(&ends)?);
                Ok(UnderWay { id, tag, ends, running, left: whole(left) })
            })
            .collect()
    }

    /// The transfers that say that they are in this state, by their turn; none of those that a queue does.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn in_state(&self, state: State, most: usize) -> Result<Vec<i64>> {
        // Each way has its index.
        let which = match state {
            State::Pending => "state = 'pending' AND ?1 = 'pending'",
            _ => "state <> 'pending' AND state = ?1",
        };
        self.with("read", |c| {
            c.prepare_cached(&format!(
                "SELECT id FROM transfer WHERE {which} AND queued = 0 ORDER BY priority DESC, id LIMIT ?2"
            ))?
            .query_map(params![state.as_str(), number(most as u64)], |row| row.get(0))?
            .collect()
        })
    }
}
