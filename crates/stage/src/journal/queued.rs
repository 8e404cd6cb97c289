//! Transfers that wait for their turn, and for each other.

use super::room::Needs;
use super::{By, Journal, no_transfer, number, to_text, whole};
use crate::queue::Totals;
use crate::request::Request;
use crate::status::State;
use crate::touch::Touched;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use std::sync::Arc;
use stead_core::{Error, Result};

/// Those that nothing keeps from being done. There is an index of them by their turn.
const READY: &str = "FROM transfer WHERE state = 'pending' AND queued = 1 AND held = 0";

/// How many are in a state, in a row of `total`: those that wait are all that were ever taken, without those that went on.
const TRANSFERS: &str = "transfers + CASE state WHEN 'pending' THEN (SELECT coalesce(max(id), 0) FROM transfer) ELSE 0 END";

/// Sets of dataspaces that transfers which wait touch, as far as they are looked at.
const MOST_KINDS: usize = 1000;

/// One that could be done.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(crate) id: i64,
    pub(crate) touched: Arc<Touched>,
}

/// Those of [`Journal::stopped`], by the text of the request.
fn stopped(c: &Connection, text: &str) -> rusqlite::Result<Vec<i64>> {
    // By parts, and not as a whole: another version may have had other options.
    c.prepare_cached(
        "SELECT id FROM transfer WHERE state <> 'pending' AND state IN ('running', 'interrupted')
           AND (state = 'interrupted' OR queued = 0)
           AND json_extract(request, '$.sources') = json_extract(?1, '$.sources')
           AND json_extract(request, '$.target') = json_extract(?1, '$.target') ORDER BY id DESC",
    )?
    .query_map([text], |row| row.get(0))?
    .collect()
}

impl Journal {
    /// Takes a request for the queue of this journal, behind these. `None`, unless it is to be taken `anew`, if one of the same sources and
    /// target was [stopped](Journal::stopped), which is looked at together with it: by itself that takes a third of this.
    ///
    /// # Errors
    /// `Usage` if one of them is not there or will never be finished; `Limit` if there is no room for it; those of the database.
    pub(crate) fn enqueue(
        &self,
        request: &Request,
        by: &By,
        (after, job): (&[i64], Option<&str>),
        anew: bool,
    ) -> Result<Option<i64>> {
        let text = to_text(request)?;
        self.make_room(Needs::Transfer(text.len()))?;
        let taken = self.with("write to", |c| {
            // From its beginning on: nobody writes between what is looked at and what is written.
            let write = c.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if !anew && !stopped(&write, &text)?.is_empty() {
                return Ok(Ok(None));
            }
            let needs = match unfinished(&write, after)? {
                Ok(needs) => needs,
                Err(never) => return Ok(Err(never)),
            };
            let id = write
                .prepare_cached(
                    "INSERT INTO transfer (tag, user, request, priority, state, submitted, queued, held, touches)
                     VALUES (?1, ?2, ?3, ?4, 'pending', ?5, 1, ?6, ?7)",
                )?
                .insert(params![
                    by.tag.cast_signed(),
                    by.user,
                    text,
                    request.options.priority,
                    by.now,
                    number(needs.len() as u64),
                    by.touched.text()
                ])?;
            if let Some(job) = job {
                write
                    .prepare_cached("INSERT INTO job (transfer, name) VALUES (?1, ?2)")?
                    .execute(params![id, job])?;
            }
            is_behind(&write, id, &needs)?;
            write.commit()?;
            Ok(Ok(Some(id)))
        })?;
        taken.map_err(never)
    }

    /// Transfers whose sources and target are those of this request, that were interrupted, or say that they are under way and are in
    /// no queue: the latest first.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn stopped(&self, request: &Request) -> Result<Vec<i64>> {
        let text = to_text(request)?;
        self.with("read", |c| stopped(c, &text))
    }

    /// Puts one that was interrupted into the queue, behind these. False if it is not interrupted any more, or one of these waits for it.
    ///
    /// # Errors
    /// As [`Journal::enqueue`].
    pub(crate) fn go_on(&self, id: i64, after: &[i64]) -> Result<bool> {
        for other in after {
            if *other == id || self.before(*other, usize::MAX)?.contains(&id) {
                return Ok(false);
            }
        }
        let done = self.with("write to", |c| {
            let write = c.transaction()?;
            let needs = match unfinished(&write, after)? {
                Ok(needs) => needs,
                Err(never) => return Ok(Err(never)),
            };
            let n = write
                .prepare_cached(
                    "UPDATE transfer SET state = 'pending', queued = 1, held = ?2, ended = NULL, error = NULL
                     WHERE id = ?1 AND state = 'interrupted'",
                )?
                .execute([id, number(needs.len() as u64)])?;
            if n > 0 {
                is_behind(&write, id, &needs)?;
            }
            write.commit()?;
            Ok(Ok(n > 0))
        })?;
        done.map_err(never)
    }

    /// The first ones of those that could be done, by their turn: up to `each` of those that touch the same dataspaces.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn heads(&self, each: usize) -> Result<Vec<Head>> {
        // What there is of each is asked for by itself: where many wait for one dataspace, others are found at once.
        let kinds: Vec<String> = self.with("read", |c| {
            c.prepare_cached(&format!(
                "WITH RECURSIVE kind(text) AS (SELECT min(touches) {READY} UNION ALL
                   SELECT (SELECT min(touches) {READY} AND touches > kind.text) FROM kind WHERE kind.text IS NOT NULL)
                 SELECT kind.text FROM kind WHERE kind.text IS NOT NULL LIMIT {MOST_KINDS}"
            ))?
            .query_map([], |row| row.get(0))?
            .collect()
        })?;
        let mut all: Vec<(i64, i64, Head)> = Vec::new();
        for kind in &kinds {
            let touched = Arc::new(Touched::of_text(kind));
            let some: Vec<(i64, i64)> = self.with("read", |c| {
                c.prepare_cached(&format!(
                    "SELECT id, priority {READY} AND touches = ?1 ORDER BY priority DESC, id LIMIT ?2"
                ))?
                .query_map(params![kind, number(each as u64)], |row| Ok((row.get(0)?, row.get(1)?)))?
                .collect()
            })?;
            all.extend(
                some.into_iter()
                    .map(|(id, priority)| (-priority, id, Head { id, touched: touched.clone() })),
            );
        }
        all.sort_by_key(|(priority, id, _)| (*priority, *id));
        Ok(all.into_iter().map(|(_, _, head)| head).collect())
    }

    /// How many could be done now that touch these dataspaces, counted up to `most`.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn ready(&self, touched: &Touched, most: usize) -> Result<usize> {
        let n: i64 = self.with("read", |c| {
            c.prepare_cached(&format!(
                "SELECT count(*) FROM (SELECT 1 {READY} AND touches = ?1 LIMIT ?2)"
            ))?
            .query_row(params![touched.text(), number(most as u64)], |row| row.get(0))
        })?;
        Ok(usize::try_from(n).unwrap_or(0))
    }

    /// Takes one that waits, to do it. False if it does not wait any more.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn claim(&self, id: i64, now: f64) -> Result<bool> {
        let n = self.with("write to", |c| {
            c.prepare_cached(
                "UPDATE transfer SET state = 'running', ended = NULL, error = NULL,
                   started = CASE WHEN started IS NULL THEN ?2 ELSE started END, resumed = ?2
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

    /// True if a queue does it.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn is_queued(&self, id: i64) -> Result<bool> {
        let queued: Option<bool> = self.with("read", |c| {
            c.prepare_cached("SELECT queued FROM transfer WHERE id = ?1")?
                .query_row([id], |row| row.get(0))
                .optional()
        })?;
        Ok(queued == Some(true))
    }

    /// Puts one back that is under way and has not begun to move anything: it waits as if it had never been begun.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn put_off(&self, id: i64) -> Result<()> {
        self.with("write to", |c| {
            c.prepare_cached(
                "UPDATE transfer SET state = 'pending', started = NULL, resumed = NULL
                 WHERE id = ?1 AND state = 'running' AND queued = 1",
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

    /// How many of those that could be done come before this one, by the dataspaces that they touch.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn ahead_of(&self, id: i64) -> Result<Vec<(Touched, u64)>> {
        let rows: Vec<(String, i64)> = self.with("read", |c| {
            let mine: i32 = c
                .prepare_cached("SELECT priority FROM transfer WHERE id = ?1")?
                .query_row([id], |row| row.get(0))?;
            c.prepare_cached(&format!(
                "SELECT touches, count(*) {READY} AND (priority > ?2 OR (priority = ?2 AND id < ?1))
                 GROUP BY touches LIMIT {MOST_KINDS}"
            ))?
            .query_map(params![id, mine], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
        })?;
        Ok(rows.into_iter().map(|(text, n)| (Touched::of_text(&text), whole(n))).collect())
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

    /// Seconds that the last ones were under way, on average; none before one has ended. When they began and ended is not it: a clock may
    /// be set, and between both they may have waited for long.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn mean_seconds(&self) -> Result<Option<f64>> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT avg(active) FROM (SELECT active FROM transfer
                   WHERE state <> 'pending' AND state = 'finished' AND queued = 1 AND active > 0 ORDER BY id DESC LIMIT 20)",
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
            c.prepare_cached(&format!("SELECT {TRANSFERS} FROM total WHERE state = 'pending'"))?
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
            c.prepare_cached(&format!(
                "SELECT state, {TRANSFERS}, files, CAST(bytes AS INTEGER) FROM total ORDER BY state"
            ))?
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

    /// Those that were interrupted, or say that they are under way and are in no queue, which is told with each: by their turn.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn interrupted(&self) -> Result<Vec<(i64, bool)>> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT id, state = 'running' FROM transfer WHERE state <> 'pending' AND state IN ('running', 'interrupted')
                   AND (state = 'interrupted' OR queued = 0) ORDER BY priority DESC, id",
            )?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
        })
    }

    /// Those of the queue that are said to be under way, and if `interrupted` those that were interrupted.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn queued_begun(&self, interrupted: bool) -> Result<Vec<i64>> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT id FROM transfer WHERE state <> 'pending' AND state IN ('running', 'interrupted')
                   AND queued = 1 AND (state = 'running' OR ?1)",
            )?
            .query_map([interrupted], |row| row.get(0))?
            .collect()
        })
    }
}

/// One that will never be finished, and its state; none if it is not there.
type Never = (i64, Option<String>);

fn never((other, state): Never) -> Error {
    match state {
        None => no_transfer(other),
        Some(state) => {
            Error::usage(format!("transfer {other}, which is to come before, is {state}"))
                .with_hint("it will never be finished: do that anew first")
        }
    }
}

/// Of these, those that are still to be finished.
fn unfinished(
    c: &Connection,
    after: &[i64],
) -> rusqlite::Result<std::result::Result<Vec<i64>, Never>> {
    let mut needs = Vec::new();
    for other in after {
        let state: Option<String> = c
            .prepare_cached("SELECT state FROM transfer WHERE id = ?1")?
            .query_row([other], |row| row.get(0))
            .optional()?;
        match state.as_deref().map(State::parse) {
            Some(Some(State::Finished)) => {}
            Some(Some(State::Failed | State::Cancelled)) | None => return Ok(Err((*other, state))),
            Some(_) => needs.push(*other),
        }
    }
    needs.sort_unstable();
    needs.dedup();
    Ok(Ok(needs))
}

/// It is to come after these.
fn is_behind(c: &Connection, id: i64, needs: &[i64]) -> rusqlite::Result<()> {
    for other in needs {
        c.prepare_cached("INSERT INTO needs (transfer, other) VALUES (?1, ?2)")?
            .execute([id, *other])?;
    }
    Ok(())
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
