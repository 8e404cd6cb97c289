//! How many bytes a journal may have: what is over is forgotten, the oldest first, and what would go beyond that is refused.

use super::Journal;
use crate::status::State;
use rusqlite::TransactionBehavior;
use std::sync::atomic::Ordering;
use stead_core::{Error, Result, units};

/// Transfers that are over and are remembered.
const MOST_OVER: i64 = 10_000;
/// Transfers that are looked up to be forgotten, at a time.
const TOGETHER: i64 = 256;
/// Names that are forgotten at a time, so that others get their turn.
const NAMES: i64 = 20_000;
/// And so many where they are all.
const AT_ONCE: i64 = 1 << 20;

/// What needs room.
#[derive(Debug, Clone, Copy)]
pub(super) enum Needs {
    /// A transfer that is asked for, by a text of so many bytes.
    Transfer(usize),
    /// The list of names of one.
    Names,
    /// A note of what is kept or shared.
    Note,
}

impl Journal {
    /// From now on it has no more than about so many bytes.
    pub(crate) fn set_most(&self, bytes: u64) {
        self.most.store(bytes, Ordering::Relaxed);
        self.known_room.store(0, Ordering::Relaxed);
    }

    /// True if this fits into what was found free before: to look each time takes a third of what it takes to take a transfer.
    fn has_room(&self, needs: Needs) -> bool {
        let Needs::Transfer(text) = needs else {
            // Nobody knows how much it will be.
            self.known_room.store(0, Ordering::Relaxed);
            return false;
        };
        // Its row and those of indexes, in pages that may be half empty, and where it begins once that is known.
        let bytes = (text as u64).saturating_mul(4).saturating_add(4096);
        let left = |room: u64| room.checked_sub(bytes);
        self.known_room.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left).is_ok()
    }

    /// Bytes that are in use: what was forgotten is used again before the file grows.
    fn in_use(&self) -> Result<u64> {
        let bytes: i64 = self.with("read", |c| {
            c.prepare_cached(
                "SELECT (page_count - freelist_count) * page_size
                 FROM pragma_page_count(), pragma_freelist_count(), pragma_page_size()",
            )?
            .query_row([], |row| row.get(0))
        })?;
        Ok(super::whole(bytes))
    }

    /// Makes room, if there is none, by forgetting what is over.
    ///
    /// # Errors
    /// `Limit` if there is none then; those of the database.
    pub(super) fn make_room(&self, needs: Needs) -> Result<()> {
        let most = self.most.load(Ordering::Relaxed);
        if most == u64::MAX || self.has_room(needs) {
            return Ok(());
        }
        let used = self.in_use()?;
        if used < most {
            if matches!(needs, Needs::Transfer(_)) {
                // Others may write to it, too.
                self.known_room.store((most - used) / 4, Ordering::Relaxed);
            }
            return Ok(());
        }
        // Somewhat more, so that it is not looked for each time.
        while self.in_use()? >= most - most / 8 {
            let oldest = self.over("ASC LIMIT ?1", TOGETHER)?;
            if oldest.is_empty() {
                break;
            }
            for id in oldest {
                self.forget(id)?;
                if self.in_use()? < most - most / 8 {
                    break;
                }
            }
        }
        if self.in_use()? < most {
            return Ok(());
        }
        let size = units::format_size(most);
        let (message, hint) = match needs {
            Needs::Transfer(_) | Needs::Note => {
                let waiting = self.count_queued()?;
                let message = format!(
                    "the journal of this user has {size}, and what is not over fills it: {waiting} transfer(s) wait"
                );
                (message, "wait until some have ended, or cancel some")
            }
            Needs::Names => (
                format!("the names of this transfer do not fit into the journal, which has {size}"),
                "stage parts of it, one after the other",
            ),
        };
        let more = "an administrator gives more: stead daemon --journal SIZE";
        Err(Error::limit(message).with_hint(format!("{hint}; {more}")))
    }

    /// Transfers that are over and may be forgotten, in this order; not the last one of all, whose number would be given again. One that
    /// failed may have left something, which nobody finds without its names: it is forgotten when it has none any more.
    fn over(&self, order: &str, n: i64) -> Result<Vec<i64>> {
        let [a, b, c] = [State::Finished, State::Failed, State::Cancelled].map(State::as_str);
        self.with("read", |db| {
            db.prepare_cached(&format!(
                "SELECT id FROM transfer WHERE state <> 'pending' AND state IN ('{a}', '{b}', '{c}')
                   AND id < (SELECT max(id) FROM transfer)
                   AND (state <> '{b}' OR NOT EXISTS (SELECT 1 FROM item WHERE transfer = id)) ORDER BY id {order}"
            ))?
            .query_map([n], |row| row.get(0))?
            .collect()
        })
    }

    /// Those that failed and still have names, the oldest first, with when they ended: of all, or of those that are more than are remembered.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn failed_with_names(&self, all: bool, most: usize) -> Result<Vec<(i64, f64)>> {
        let [a, b, c] = [State::Finished, State::Failed, State::Cancelled].map(State::as_str);
        let newest = if all { 0 } else { MOST_OVER };
        self.with("read", |db| {
            db.prepare_cached(&format!(
                "SELECT id, coalesce(ended, submitted) FROM transfer WHERE state <> 'pending' AND state = '{b}'
                   AND id < (SELECT max(id) FROM transfer)
                   AND id <= (SELECT id FROM transfer WHERE state <> 'pending' AND state IN ('{a}', '{b}', '{c}')
                              ORDER BY id DESC LIMIT 1 OFFSET ?1)
                   AND EXISTS (SELECT 1 FROM item WHERE transfer = id) ORDER BY id LIMIT ?2"
            ))?
            .query_map([newest, super::number(most as u64)], |row| Ok((row.get(0)?, row.get(1)?)))?
            .collect()
        })
    }

    /// True if something of a transfer may lie where it was to go: parts of an upload, or the beginning of a large file.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn has_marks(&self, id: i64) -> Result<bool> {
        self.with("read", |c| {
            c.query_row(
                "SELECT EXISTS (SELECT 1 FROM item WHERE transfer = ?1 AND done <> 1 AND mark IS NOT NULL)",
                [id],
                |row| row.get(0),
            )
        })
    }

    /// Forgets a transfer that failed, of which nothing is left.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn forget_failed(&self, id: i64) -> Result<()> {
        self.forget(id)
    }

    /// Forgets the oldest of those that are over, if there are many.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn tidy(&self) -> Result<()> {
        self.over("DESC LIMIT -1 OFFSET ?1", MOST_OVER)?
            .into_iter()
            .try_for_each(|id| self.forget(id))
    }

    /// Forgets a transfer that is over.
    fn forget(&self, id: i64) -> Result<()> {
        self.forget_names(id)?;
        self.with("write to", |c| {
            let write = c.transaction()?;
            write.execute("DELETE FROM job WHERE transfer = ?1", [id])?;
            write.execute("DELETE FROM transfer WHERE id = ?1", [id])?;
            write.commit()
        })
    }

    /// Forgets the list of names of a transfer.
    ///
    /// # Errors
    /// Those of the database.
    pub(crate) fn forget_names(&self, id: i64) -> Result<()> {
        // Without a condition the pages go as a whole, and no row is looked at; of more of them others would wait for long.
        let alone = self.with("write to", |c| {
            let write = c.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let alone: bool = write
                .prepare_cached(
                    "SELECT NOT EXISTS (SELECT 1 FROM item WHERE transfer < ?1)
                       AND NOT EXISTS (SELECT 1 FROM item WHERE transfer > ?1)
                       AND NOT EXISTS (SELECT 1 FROM item WHERE transfer = ?1 AND n > ?2)",
                )?
                .query_row([id, AT_ONCE], |row| row.get(0))?;
            if alone {
                write.prepare_cached("DELETE FROM item")?.execute([])?;
            }
            write.commit().map(|()| alone)
        })?;
        if alone {
            return Ok(());
        }
        while self.with("write to", |c| {
            c.prepare_cached(
                "DELETE FROM item WHERE transfer = ?1 AND n IN
                   (SELECT n FROM item WHERE transfer = ?1 LIMIT ?2)",
            )?
            .execute([id, NAMES])
        })? > 0
        {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Action, Options, Request};
    use stead_core::{Kind, Location};

    const MOST: u64 = 1 << 20;

    fn journal(dir: &std::path::Path) -> Journal {
        let journal = Journal::open(&dir.join("j.db")).unwrap();
        journal.set_most(MOST);
        journal
    }

    fn take(journal: &Journal) -> Result<i64> {
        let location = |text: &str| Location::parse(text, &|_| None).unwrap();
        let request = Request {
            action: Action::Copy,
            sources: (0..200).map(|i| location(&format!("/{i}/{}", "x".repeat(40)))).collect(),
            target: Some(location("/to")),
            options: Options::default(),
        };
        let by = super::super::By { tag: 1, user: 1, now: 1.0, touched: Default::default() };
        Ok(journal.enqueue(&request, &by, (&[], None), true)?.unwrap())
    }

    #[test]
    fn what_is_over_gives_way_and_what_waits_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let journal = journal(dir.path());
        let first = take(&journal).unwrap();
        let second = take(&journal).unwrap();
        for id in [first, second] {
            journal.set_state(id, State::Finished, None, 2.0).unwrap();
        }
        let e = loop {
            match take(&journal) {
                Ok(_) => assert!(journal.in_use().unwrap() < 2 * MOST),
                Err(e) => break e,
            }
        };
        assert_eq!(e.kind(), Kind::Limit);
        assert!(
            e.to_string().contains("1.0 MiB") && e.hint().unwrap().contains("--journal"),
            "{e}"
        );
        // Those that are over went first.
        assert!(journal.known(first).is_err() && journal.known(second).is_err());
        let waiting = journal.count_queued().unwrap();
        assert!(waiting > 20, "{waiting}");
        assert!(
            journal.keep("/a", "/a", None).is_err() && journal.share("/a", "/a", 1, true).is_err()
        );
        // What was kept is still let go.
        journal.share("/a", "/a", 1, false).unwrap();
        // As some end, others are taken, and the oldest of those goes first.
        let last = waiting as i64 + 2;
        journal.set_state(last, State::Finished, None, 3.0).unwrap();
        journal.set_state(last - 1, State::Cancelled, None, 3.0).unwrap();
        journal.set_state(last - 2, State::Failed, None, 3.0).unwrap();
        assert_eq!(take(&journal).unwrap(), last + 1);
        assert!(journal.known(last - 2).is_err());
        // The last one is there, whose number would be given again.
        assert!(journal.known(last).is_ok());
    }

    #[test]
    fn many_that_are_over_are_forgotten_without_a_bound_too() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("j.db")).unwrap();
        let ids = [take(&journal).unwrap(), take(&journal).unwrap()];
        for id in ids {
            journal.set_state(id, State::Finished, None, 2.0).unwrap();
        }
        journal.tidy().unwrap();
        assert!(ids.iter().all(|id| journal.known(*id).is_ok()));
        // The last one is not among those that go.
        assert_eq!(journal.over("ASC LIMIT ?1", TOGETHER).unwrap(), ids[..1]);
        journal.forget(ids[0]).unwrap();
        assert!(journal.known(ids[0]).is_err() && journal.make_room(Needs::Note).is_ok());
        assert_eq!(take(&journal).unwrap(), ids[1] + 1);
    }

    #[test]
    fn those_that_wait_are_counted_by_the_numbers_of_all() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("j.db")).unwrap();
        let mut seed = 7u64;
        for turn in 1..=400 {
            // Numbers of a linear congruence (Knuth, MMIX).
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let id = (seed >> 33) as i64 % turn + 1;
            match (seed >> 20) % 8 {
                0..3 => drop(take(&journal).unwrap()),
                3 => drop(journal.claim(id, 1.0)),
                4 => drop(journal.put_back(id)),
                5 | 6 => {
                    let ends =
                        [State::Finished, State::Failed, State::Interrupted, State::Cancelled];
                    let _ = journal.set_state(id, ends[turn as usize % 4], None, 2.0);
                }
                _ => journal
                    .over("ASC LIMIT ?1", 2)
                    .unwrap()
                    .into_iter()
                    .for_each(|id| journal.forget(id).unwrap()),
            }
            let counted: i64 = journal
                .with("read", |c| {
                    c.query_row(
                        "SELECT count(*) FROM transfer WHERE state = 'pending'",
                        [],
                        |row| row.get(0),
                    )
                })
                .unwrap();
            assert_eq!(journal.count_queued().unwrap(), counted as u64, "turn {turn}");
        }
        let totals = journal.totals().unwrap();
        let last = take(&journal).unwrap();
        assert_eq!(totals.iter().map(|t| t.transfers).sum::<u64>() as i64, last - 1);
    }
}
