//! What is left to do of a list of names.

use super::{Journal, item, number, whole};
use crate::job::{Item, Task};
use rusqlite::params;
use std::collections::HashMap;
use stead_core::Result;

impl Journal {
    /// How many names are left of each task.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn tasks_left(&self, id: i64) -> Result<HashMap<Task, u64>> {
        let counted: Vec<(i64, i64)> = self.with("read", |c| {
            c.prepare_cached(
                "SELECT task, count(*) FROM item WHERE transfer = ?1 AND done = 0 GROUP BY task",
            )?
            .query_map([id], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
        })?;
        let known = |(code, n): (i64, i64)| Task::of_code(code).map(|task| (task, whole(n)));
        Ok(counted.into_iter().filter_map(known).collect())
    }

    /// What is left to do of these tasks, from number `from` on, or below `from` in reverse: at most so many.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn left(
        &self,
        id: i64,
        tasks: &[Task],
        from: i64,
        reverse: bool,
        most: usize,
    ) -> Result<Vec<Item>> {
        self.not_done(id, tasks, from, reverse, most, "done = 0")
    }

    /// As [`Journal::left`], in order, with those that have failed.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn not_whole(
        &self,
        id: i64,
        tasks: &[Task],
        from: i64,
        most: usize,
    ) -> Result<Vec<Item>> {
        self.not_done(id, tasks, from, false, most, "done <> 1")
    }

    /// Names that have failed, in order, from number `from` on: at most so many.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn failed(&self, id: i64, from: i64, most: usize) -> Result<Vec<Item>> {
        self.not_done(id, &Task::ALL, from, false, most, "done = 2")
    }

    fn not_done(
        &self,
        id: i64,
        tasks: &[Task],
        from: i64,
        reverse: bool,
        most: usize,
        which: &str,
    ) -> Result<Vec<Item>> {
        let codes: Vec<String> = tasks.iter().map(|t| t.code().to_string()).collect();
        let (beyond, order) = if reverse { ("<", "DESC") } else { (">=", "ASC") };
        let sql = format!(
            "SELECT n, task, origin, source, target, size, mtime, nanos, first, replaces FROM item
             WHERE transfer = ?1 AND n {beyond} ?2 AND {which} AND task IN ({}) ORDER BY n {order} LIMIT ?3",
            codes.join(",")
        );
        self.with("read", |c| {
            c.prepare_cached(&sql)?
                .query_map(params![id, from, number(most as u64)], item)?
                .collect::<rusqlite::Result<Vec<Item>>>()
        })
    }
}
