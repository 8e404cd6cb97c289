//! Transfers that wait for their turn, and for each other.

use super::{Journal, no_transfer, number, to_text, whole};
use crate::queue::Totals;
use crate::request::Request;
use crate::status::State;
use rusqlite::{Connection, OptionalExtension, params};
use stead_core::{Error, Result};

/// Those that nothing keeps from being done. There is an index of them by their turn.
const READY: &str = "FROM transfer WHERE state = 'pending' AND queued = 1 AND held = 0";

impl Journal {
    /// Takes a request for the queue of this journal, behind these.
    ///
    /// # Errors
    /// `Usage` if one of them is not there or will never be finished; those of the database.
    pub(crate) fn enqueue(
        &self,
        request: &Request,
        (tag, user, now): (u64, u32, f64),
        after: &[i64],
        job: Option<&str>,
    ) -> Result<i64> {
        let text = to_text(request)?;
        let taken = self.with("write to", |c| {
            let write = c.transaction()?;
            let mut needs = Vec::new();
            for other in after {
                let state: Option<String> = write
                    .prepare_cached("SELECT state FROM transfer WHERE id = ?1")?
                    .query_row([other], |row| row.get(0))
                    .optional()?;
                match state.as_deref().map(State::parse) {
                    Some(Some(State::Finished)) => {}
                    Some(Some(State::Failed | State::Cancelled)) | None => {
                        return Ok(Err((*other, state)));
                    }
                    Some(_) => needs.push(*other),
                }
            }
            needs.sort_unstable();
            needs.dedup();
            let id = write
                .prepare_cached(
                    "INSERT INTO transfer (tag, user, request, priority, state, submitted, queued, held)
                     VALUES (?1, ?2, ?3, ?4, 'pending', ?5, 1, ?6)",
                )?
                .insert(params![
                    tag.cast_signed(),
                    user,
                    text,
                    request.options.priority,
                    now,
                    number(needs.len() as u64)
                ])?;
            if let Some(job) = job {
                write
                    .prepare_cached("INSERT INTO job (transfer, name) VALUES (?1, ?2)")?
                    .execute(params![id, job])?;
            }
            for other in needs {
                write
                    .prepare_cached("INSERT INTO needs (transfer, other) VALUES (?1, ?2)")?
                    .execute([id, other])?;
            }
            write.commit()?;
            Ok(Ok(id))
        })?;
        taken.map_err(|(other, state)| match state {
            None => no_transfer(other),
            Some(state) => {
                Error::usage(format!("transfer {other}, which is to come before, is {state}"))
                    .with_hint("it will never be finished: do that anew first")
            }
        })
    }

    /// The next one to do.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn next_queued(&self) -> Result<Option<i64>> {
        self.with("read", |c| {
            c.prepare_cached(&format!("SELECT id {READY} ORDER BY priority DESC, id LIMIT 1"))?
                .query_row([], |row| row.get(0))
                .optional()
        })
    }

    /// Takes one that waits, to do it. False if it does not wait any more.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn claim(&self, id: i64, now: f64) -> Result<bool> {
        let n = self.with("write to", |c| {
            c.prepare_cached(
                "UPDATE transfer SET state = 'running', ended = NULL, error = NULL,
                   started = CASE WHEN started IS NULL THEN ?2 ELSE started END
                 WHERE id = ?1 AND state = 'pending' AND queued = 1 AND held = 0",
            )?
            .execute(params![id, now])
        })?;
        Ok(n > 0)
    }

    /// Puts one into the queue that was interrupted or has failed, or that is in no queue. False if it is none of that.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn requeue(&self, id: i64) -> Result<bool> {
        let n = self.with("write to", |c| {
            c.prepare_cached(
                "UPDATE transfer SET state = 'pending', queued = 1, ended = NULL, error = NULL
                 WHERE id = ?1 AND (state IN ('interrupted', 'failed') OR (state = 'pending' AND queued = 0))",
            )?
            .execute([id])
        })?;
        Ok(n > 0)
    }

    /// Puts one back that is said to be under way, or was interrupted, and that nobody does.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn put_back(&self, id: i64) -> Result<()> {
        self.with("write to", |c| {
            c.prepare_cached(
                "UPDATE transfer SET state = 'pending', ended = NULL
                 WHERE id = ?1 AND state IN ('running', 'interrupted') AND queued = 1",
            )?
            .execute([id])
        })
        .map(|_| ())
    }

    /// Nobody goes on with this one by himself.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn leave_queue(&self, id: i64) -> Result<()> {
        self.with("write to", |c| {
            c.prepare_cached("UPDATE transfer SET queued = 0 WHERE id = ?1")?.execute([id])
        })
        .map(|_| ())
    }

    /// How many could be done now, counted up to `most`.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn ready(&self, most: usize) -> Result<usize> {
        let n: i64 = self.with("read", |c| {
            c.prepare_cached(&format!("SELECT count(*) FROM (SELECT 1 {READY} LIMIT ?1)"))?
                .query_row([number(most as u64)], |row| row.get(0))
        })?;
        Ok(usize::try_from(n).unwrap_or(0))
    }

    /// How many of those that could be done come before this one.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn ahead_of(&self, id: i64) -> Result<u64> {
        let n: i64 = self.with("read", |c| {
            let mine: i32 = c
                .prepare_cached("SELECT priority FROM transfer WHERE id = ?1")?
                .query_row([id], |row| row.get(0))?;
            c.prepare_cached(&format!(
                "SELECT count(*) {READY} AND (priority > ?2 OR (priority = ?2 AND id < ?1))"
            ))?
            .query_row(params![id, mine], |row| row.get(0))
        })?;
        Ok(whole(n))
    }

    /// What is to come before this one, and what before that, as far as it is not over: the latest first, no more than `most`.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn before(&self, id: i64, most: usize) -> Result<Vec<i64>> {
        self.with("read", |c| {
            c.prepare_cached(
                "WITH RECURSIVE earlier(id) AS (SELECT other FROM needs WHERE transfer = ?1
                   UNION SELECT n.other FROM needs n JOIN earlier e ON n.transfer = e.id)
                 SELECT id FROM earlier ORDER BY id DESC LIMIT ?2",
            )?
            .query_map(params![id, number(most as u64)], |row| row.get(0))?
            .collect()
        })
    }

    /// Seconds that the last ones took, on average; none before one has ended.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn mean_seconds(&self) -> Result<Option<f64>> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT avg(ended - started) FROM (SELECT ended, started FROM transfer
                   WHERE state = 'finished' AND queued = 1 AND ended >= started ORDER BY id DESC LIMIT 20)",
            )?
            .query_row([], |row| row.get(0))
        })
    }

    /// How many wait for their turn or for others.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn count_queued(&self) -> Result<u64> {
        let n: i64 = self.with("read", |c| {
            c.prepare_cached("SELECT transfers FROM total WHERE state = 'pending'")?
                .query_row([], |row| row.get(0))
        })?;
        Ok(whole(n))
    }

    /// Sums over the transfers of each state; those that were forgotten since are still counted.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn totals(&self) -> Result<Vec<Totals>> {
        let rows: Vec<(String, [i64; 3])> = self.with("read", |c| {
            c.prepare_cached(
                "SELECT state, transfers, files, CAST(bytes AS INTEGER) FROM total ORDER BY state",
            )?
            .query_map([], |row| Ok((row.get(0)?, [row.get(1)?, row.get(2)?, row.get(3)?])))?
            .collect()
        })?;
        rows.into_iter()
            .map(|(state, [transfers, files, bytes])| {
                Ok(Totals {
                    state: self.state(&state)?,
                    transfers: whole(transfers),
                    files_done: whole(files),
                    bytes_done: whole(bytes),
                })
            })
            .collect()
    }

    /// Those of the queue that are said to be under way, and if `interrupted` those that were interrupted.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn queued_begun(&self, interrupted: bool) -> Result<Vec<i64>> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT id FROM transfer WHERE queued = 1
                   AND (state = 'running' OR (state = 'interrupted' AND ?1))",
            )?
            .query_map([interrupted], |row| row.get(0))?
            .collect()
        })
    }
}

/// Others wait for this one no more.
pub(super) fn is_finished(c: &Connection, id: i64) -> rusqlite::Result<()> {
    c.prepare_cached(
        "UPDATE transfer SET held = held - 1 WHERE id IN (SELECT transfer FROM needs WHERE other = ?1)",
    )?
    .execute([id])?;
    c.prepare_cached("DELETE FROM needs WHERE other = ?1")?.execute([id])?;
    Ok(())
}

/// What was to come after this one is cancelled, and what was to come after that.
pub(super) fn is_in_vain(c: &Connection, id: i64, now: f64) -> rusqlite::Result<()> {
    const LATER: &str = "WITH RECURSIVE later(id) AS (SELECT transfer FROM needs WHERE other = ?1
       UNION SELECT n.transfer FROM needs n JOIN later l ON n.other = l.id)";
    c.prepare_cached(&format!(
        "{LATER} UPDATE transfer SET state = 'cancelled', ended = ?2, held = 0,
           error = 'transfer ' || ?1 || ', which was to come before, was not finished'
         WHERE state = 'pending' AND id IN (SELECT id FROM later)"
    ))?
    .execute(params![id, now])?;
    c.prepare_cached(&format!(
        "{LATER} DELETE FROM needs WHERE transfer IN (SELECT id FROM later)"
    ))?
    .execute([id])?;
    c.prepare_cached("DELETE FROM needs WHERE transfer = ?1")?.execute([id])?;
    Ok(())
}
