//! Uploads that were begun, and of which no answer has come so far.

use super::Journal;
use rusqlite::params;
use stead_core::Result;

/// An upload that may be there, of which nobody knows the number.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Stray {
    pub(crate) n: i64,
    /// The bucket.
    pub(crate) url: String,
    pub(crate) key: String,
    /// When the store was asked to begin it, in seconds since 1970.
    pub(crate) asked: f64,
}

impl Journal {
    /// Notes that a store is about to be asked to begin an upload.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn note_stray(&self, url: &str, key: &str, now: f64) -> Result<i64> {
        self.with("write to", |c| {
            c.prepare_cached("INSERT INTO stray (url, key, asked) VALUES (?1, ?2, ?3)")?
                .insert(params![url, key, now])
        })
    }

    /// Keeps the number of an upload that has come, with the file that it is of.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn set_upload(&self, id: i64, n: i64, mark: &str, stray: i64) -> Result<()> {
        self.with("write to", |c| {
            let write = c.transaction()?;
            write.execute(
                "UPDATE item SET mark = ?3 WHERE transfer = ?1 AND n = ?2",
                params![id, n, mark],
            )?;
            write.execute("DELETE FROM stray WHERE n = ?1", [stray])?;
            write.commit()
        })
    }

    /// There is none, or it is gone.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn forget_stray(&self, n: i64) -> Result<()> {
        self.with("write to", |c| c.prepare_cached("DELETE FROM stray WHERE n = ?1")?.execute([n]))
            .map(|_| ())
    }

    /// Those that were asked for before this time, the oldest ones first.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn strays(&self, before: f64, most: usize) -> Result<Vec<Stray>> {
        self.with("read", |c| {
            c.prepare_cached(
                "SELECT n, url, key, asked FROM stray WHERE asked < ?1 ORDER BY n LIMIT ?2",
            )?
            .query_map(params![before, most as i64], |row| {
                let (n, url, key, asked) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
                Ok(Stray { n, url, key, asked })
            })?
            .collect()
        })
    }

    /// True if a file of a transfer has an upload of this number.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn has_upload(&self, number: &str) -> Result<bool> {
        self.with("read", |c| {
            c.query_row(
                "SELECT EXISTS (SELECT 1 FROM item WHERE mark IS NOT NULL AND instr(mark, ?1) > 0)",
                [number],
                |row| row.get(0),
            )
        })
    }
}
