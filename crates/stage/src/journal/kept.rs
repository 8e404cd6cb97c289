//! What users keep, and whom they let read it; and which transfers are of jobs.

use super::Journal;
use super::room::Needs;
use crate::keep::Persisted;
use rusqlite::params;
use std::collections::BTreeMap;
use stead_core::Result;

impl Journal {
    /// Keeps something, until a time in seconds since 1970 or for ever.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn keep(&self, path: &str, location: &str, until: Option<f64>) -> Result<()> {
        self.make_room(Needs::Note)?;
        self.with("write to", |c| {
            c.prepare_cached(
                "INSERT INTO kept (path, location, until) VALUES (?1, ?2, ?3)
                 ON CONFLICT (path) DO UPDATE SET location = ?2, until = ?3",
            )?
            .execute(params![path, location, until])
        })?;
        Ok(())
    }

    /// Keeps something no longer, by its path or as it was named; false if it was not kept.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn keep_no_longer(&self, path: &str, location: &str) -> Result<bool> {
        let gone = self.with("write to", |c| {
            c.prepare_cached("DELETE FROM kept WHERE path = ?1 OR location = ?2")?
                .execute([path, location])
        })?;
        Ok(gone > 0)
    }

    /// Notes that a user may read something, or may no longer; false if that was so.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn share(&self, path: &str, location: &str, user: u32, may: bool) -> Result<bool> {
        if may {
            self.make_room(Needs::Note)?;
        }
        let changed = self.with("write to", |c| match may {
            true => c
                .prepare_cached(
                    "INSERT OR IGNORE INTO shared (path, user, location) VALUES (?1, ?2, ?3)",
                )?
                .execute(params![path, user, location]),
            false => c
                .prepare_cached("DELETE FROM shared WHERE path = ?1 AND user = ?2")?
                .execute(params![path, user]),
        })?;
        Ok(changed > 0)
    }

    /// All that is kept or shared, by its path.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn persisted(&self) -> Result<Vec<Persisted>> {
        let (kept, shared) = self.with("read", |c| {
            let kept: Vec<(String, String, Option<f64>)> = c
                .prepare_cached("SELECT path, location, until FROM kept")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<rusqlite::Result<_>>()?;
            let shared: Vec<(String, String, u32)> = c
                .prepare_cached("SELECT path, location, user FROM shared ORDER BY user")?
                .query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?
                .collect::<rusqlite::Result<_>>()?;
            Ok((kept, shared))
        })?;
        let one = |path: &str, location: &str| Persisted {
            location: location.to_owned(),
            path: path.to_owned(),
            kept: false,
            until: None,
            left: None,
            shared: Vec::new(),
        };
        let mut all = BTreeMap::new();
        for (path, location, until) in kept {
            let found = all.entry(path.clone()).or_insert_with(|| one(&path, &location));
            (found.kept, found.until) = (true, until);
        }
        for (path, location, user) in shared {
            all.entry(path.clone()).or_insert_with(|| one(&path, &location)).shared.push(user);
        }
        Ok(all.into_values().collect())
    }

    /// Transfers of jobs that are not over, with their jobs.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn of_jobs(&self) -> Result<Vec<(i64, String)>> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT id, name FROM job JOIN transfer ON id = transfer
                 WHERE state IN ('pending', 'running', 'interrupted')",
            )?
            .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
        })
    }
}
