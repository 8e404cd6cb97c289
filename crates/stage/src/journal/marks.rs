//! How far files are that are not whole, and what was made of them.

use super::{Journal, durably};
use rusqlite::{Connection, OptionalExtension, params};
use stead_core::Result;

impl Journal {
    /// A file is there so far; with nothing, it is begun anew, and that is on the device when this returns: what is there of it by then is
    /// no part of it.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn set_mark(&self, id: i64, n: i64, mark: Option<&str>) -> Result<()> {
        let set = |c: &mut Connection| {
            c.prepare_cached("UPDATE item SET mark = ?3 WHERE transfer = ?1 AND n = ?2")?
                .execute(params![id, n, mark])
                .map(|_| ())
        };
        self.with("write to", |c| if mark.is_none() { durably(c, set) } else { set(c) })
    }

    /// The same of several files; on the device when this returns, if `durable`.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn set_marks(&self, id: i64, marks: &[(i64, String)], durable: bool) -> Result<()> {
        if marks.is_empty() {
            return Ok(());
        }
        let set = |c: &mut Connection| {
            let write = c.transaction()?;
            {
                let mut update = write
                    .prepare_cached("UPDATE item SET mark = ?3 WHERE transfer = ?1 AND n = ?2")?;
                for (n, mark) in marks {
                    update.execute(params![id, n, mark])?;
                }
            }
            write.commit()
        };
        self.with("write to", |c| if durable { durably(c, set) } else { set(c) })
    }

    /// The mark of a file, if it has one.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn mark(&self, id: i64, n: i64) -> Result<Option<String>> {
        let text: Option<Option<String>> = self.with("read", |c| {
            c.prepare_cached("SELECT mark FROM item WHERE transfer = ?1 AND n = ?2")?
                .query_row([id, n], |row| row.get(0))
                .optional()
        })?;
        Ok(text.flatten())
    }
}
