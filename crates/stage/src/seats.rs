//! So many transfers at a time in each dataspace: all that one touches have a seat for it, or it waits and takes none.
//!
//! Who waits is asked in order, and who cannot go holds up only those behind who touch the same: the first one who waits for a
//! dataspace without a free seat keeps one where there are some, so that two dataspaces are free for it one day. Nobody has one seat
//! and waits for another.

use crate::touch::Key;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Cancel, Result};

/// Free seats, as those who wait ask for them in order.
#[derive(Debug, Clone)]
pub(crate) struct Free<K> {
    /// Without an entry there are as many as anybody wants.
    seats: BTreeMap<K, usize>,
    /// Those without a free one, for which somebody waits.
    awaited: BTreeSet<K>,
}

impl<K: Ord + Clone> Free<K> {
    pub(crate) fn new(seats: BTreeMap<K, usize>) -> Free<K> {
        Free { seats, awaited: BTreeSet::new() }
    }

    /// Takes a seat of each, or none.
    pub(crate) fn take<'k>(&mut self, wanted: impl Iterator<Item = &'k K> + Clone) -> bool
    where
        K: 'k,
    {
        let none = |key: &&K| self.seats.get(*key) == Some(&0);
        let full: Vec<&K> = wanted.clone().filter(none).collect();
        if !full.is_empty() {
            if full.iter().any(|key| self.awaited.contains(*key)) {
                return false;
            }
            self.awaited.extend(full.into_iter().cloned());
        }
        let goes = wanted.clone().all(|key| self.seats.get(key) != Some(&0));
        for key in wanted {
            if let Some(seats) = self.seats.get_mut(key) {
                *seats = seats.saturating_sub(1);
            }
        }
        goes
    }
}

/// Who waits: a larger priority first, then who came first.
type Place = (Reverse<i32>, u64);

/// Transfers of this process that nobody else seats.
#[derive(Debug, Default)]
struct Here {
    taken: BTreeMap<Key, usize>,
    waiting: BTreeMap<Place, Vec<(Key, usize)>>,
    last: u64,
}

static HERE: Mutex<Option<Here>> = Mutex::new(None);
static CHANGED: Condvar = Condvar::new();

/// Who waits looks so often whether it is to stop.
const LOOK: Duration = Duration::from_millis(100);

fn here() -> MutexGuard<'static, Option<Here>> {
    HERE.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Here {
    fn may_go(&self, who: Place) -> bool {
        let mut seats: BTreeMap<Key, usize> = BTreeMap::new();
        for (key, most) in self.waiting.values().flatten() {
            let free = most.saturating_sub(self.taken.get(key).copied().unwrap_or(0));
            seats.entry(key.clone()).and_modify(|n| *n = free.min(*n)).or_insert(free);
        }
        let mut free = Free::new(seats);
        for (other, wanted) in &self.waiting {
            let goes = free.take(wanted.iter().map(|(key, _)| key));
            if *other == who {
                return goes;
            }
        }
        false
    }
}

/// Seats of a transfer of this process, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Seats(Vec<Key>);

impl Seats {
    /// Waits for seats: those of a larger priority first, then who came first. `waits` is called if there is none at once.
    ///
    /// # Errors
    /// `Cancelled`.
    pub(crate) fn take(
        wanted: Vec<(Key, usize)>,
        priority: i32,
        cancel: &Cancel,
        waits: &dyn Fn(),
    ) -> Result<Seats> {
        if wanted.is_empty() {
            return Ok(Seats::default());
        }
        let keys: Vec<Key> = wanted.iter().map(|(key, _)| key.clone()).collect();
        let mut now = here();
        let me = {
            let all = now.get_or_insert_default();
            all.last += 1;
            let me = (Reverse(priority), all.last);
            all.waiting.insert(me, wanted);
            me
        };
        let mut told = false;
        loop {
            let stopped = cancel.check();
            let all = now.get_or_insert_default();
            if stopped.is_ok() && !all.may_go(me) {
                if !told {
                    told = true;
                    drop(now);
                    waits();
                    now = here();
                    continue;
                }
                now = CHANGED.wait_timeout(now, LOOK).unwrap_or_else(PoisonError::into_inner).0;
                continue;
            }
            all.waiting.remove(&me);
            if stopped.is_ok() {
                keys.iter().for_each(|key| *all.taken.entry(key.clone()).or_default() += 1);
            }
            drop(now);
            // Who comes next may go, too.
            CHANGED.notify_all();
            return stopped.map(|()| Seats(keys));
        }
    }
}

impl Drop for Seats {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        {
            let mut now = here();
            let all = now.get_or_insert_default();
            for key in &self.0 {
                if let Some(n) = all.taken.get_mut(key) {
                    *n = n.saturating_sub(1);
                }
            }
            all.taken.retain(|_, n| *n > 0);
        }
        CHANGED.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn free(seats: &[(&'static str, usize)]) -> Free<&'static str> {
        Free::new(seats.iter().copied().collect())
    }

    #[test]
    fn who_waits_holds_up_nobody_who_touches_others() {
        let mut all = free(&[("x", 0), ("y", 2)]);
        assert!(!all.take(["x"].iter()));
        assert!(all.take(["y"].iter()) && all.take(["z"].iter()) && all.take([].iter()));
        assert!(all.take(["y"].iter()) && !all.take(["y"].iter()));
        // The first one who waits for one keeps the others for itself; those behind it do not.
        let mut all = free(&[("x", 0), ("y", 2)]);
        assert!(!all.take(["x", "y"].iter()) && !all.take(["x", "y"].iter()));
        assert!(all.take(["y"].iter()) && !all.take(["y"].iter()));
    }

    fn key(name: &str) -> Key {
        (name.to_owned(), "seats-test".to_owned())
    }

    #[test]
    fn no_more_than_there_are_seats_and_no_deadlock() {
        let (most, now) = ([("a", 2), ("b", 1)], [AtomicUsize::new(0), AtomicUsize::new(0)]);
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            for i in 0..24 {
                let (now, cancel) = (&now, &cancel);
                scope.spawn(move || {
                    let mut mine: Vec<usize> =
                        [vec![0, 1], vec![1, 0], vec![0], vec![1]][i % 4].clone();
                    let wanted = mine.iter().map(|j| (key(most[*j].0), most[*j].1)).collect();
                    let seats = Seats::take(wanted, i as i32 % 3, cancel, &|| {}).unwrap();
                    mine.sort_unstable();
                    for &j in &mine {
                        assert!(now[j].fetch_add(1, Ordering::SeqCst) < most[j].1);
                    }
                    std::thread::sleep(Duration::from_millis(2));
                    for j in mine {
                        now[j].fetch_sub(1, Ordering::SeqCst);
                    }
                    drop(seats);
                });
            }
        });
        assert!(here().as_ref().unwrap().taken.keys().all(|(_, of)| of != "seats-test"));
    }

    #[test]
    fn who_is_stopped_leaves_its_place_and_who_is_urgent_goes_first() {
        let one = || vec![(key("one"), 1)];
        let cancel = Cancel::new();
        let first = Seats::take(one(), 0, &cancel, &|| {}).unwrap();
        let stopped = Cancel::new();
        let waits = || stopped.cancel();
        assert!(Seats::take(one(), 9, &stopped, &waits).is_err());
        let (tells, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let mut waiting = Vec::new();
            for priority in [0, 5] {
                let (tells, cancel) = (tells.clone(), &cancel);
                let (at, here) = std::sync::mpsc::channel();
                waiting.push(scope.spawn(move || {
                    let seats = Seats::take(one(), priority, cancel, &|| at.send(()).unwrap());
                    tells.send(priority).unwrap();
                    drop(seats.unwrap());
                }));
                here.recv().unwrap();
            }
            drop(first);
        });
        assert_eq!((told.recv().unwrap(), told.recv().unwrap()), (5, 0));
    }
}
