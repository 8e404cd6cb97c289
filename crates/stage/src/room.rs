//! What quotas of dataspaces leave for files that are written without a transfer.
//!
//! What lies in a dataspace is looked at once for many files: what each of them takes is subtracted, and given back by those that
//! do not come to be. Nobody is refused by an old look.

use crate::clock::Watch;
use crate::rules::{self, Left, Rule};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Cancel, Result};

/// After so long it is looked anew what lies in a dataspace.
const FRESH_S: f64 = 5.0;

/// What is left in the dataspaces that a program writes to, by their names and places.
#[derive(Debug, Default)]
pub(crate) struct Rooms(Mutex<BTreeMap<(String, String), Room>>);

#[derive(Debug)]
struct Room {
    left: u64,
    looked: Watch,
    /// Of files that are written and have no name yet.
    open: u64,
}

fn key(rule: &Rule) -> (String, String) {
    (rule.name.clone(), rule.place.clone())
}

impl Rooms {
    fn all(&self) -> MutexGuard<'_, BTreeMap<(String, String), Room>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes so many bytes of one of them: from the last look, or from a new one if that leaves too little.
    ///
    /// # Errors
    /// `NoSpace` if a new look leaves too little; those of looking.
    fn take(&self, rule: &Rule, bytes: u64, cancel: &Cancel) -> Result<()> {
        if let Some(room) = self.all().get_mut(&key(rule))
            && room.looked.seconds() < FRESH_S
            && let Some(left) = room.left.checked_sub(bytes)
        {
            (room.left, room.open) = (left, room.open.saturating_add(bytes));
            return Ok(());
        }
        // This may take long: others go on meanwhile.
        let all = rules::left(rule, 0, &|_| false, cancel)?;
        let mut rooms = self.all();
        let room = rooms.entry(key(rule)).or_insert_with(|| Room {
            left: 0,
            looked: Watch::start(),
            open: 0,
        });
        let all: Vec<Left> = all.into_iter().map(|left| left.with_open(room.open)).collect();
        room.left = all.iter().map(Left::bytes).min().unwrap_or(u64::MAX);
        room.looked = Watch::start();
        all.iter().try_for_each(|left| left.refuse(rule, bytes))?;
        room.left = room.left.saturating_sub(bytes);
        room.open = room.open.saturating_add(bytes);
        Ok(())
    }

    /// A file of so many bytes has its name, and lies there for everybody.
    fn has_come(&self, rule: &Rule, bytes: u64) {
        if let Some(room) = self.all().get_mut(&key(rule)) {
            room.open = room.open.saturating_sub(bytes);
        }
    }

    fn give_back(&self, rule: &Rule, bytes: u64) {
        if let Some(room) = self.all().get_mut(&key(rule)) {
            room.left = room.left.saturating_add(bytes);
            room.open = room.open.saturating_sub(bytes);
        }
    }
}

/// What one file takes. Dropped, it is given back, unless it was [kept](Taken::keep).
#[derive(Debug)]
pub(crate) struct Taken {
    rooms: Arc<Rooms>,
    /// Those with quotas that the file lies in.
    rules: Vec<Rule>,
    bytes: u64,
    cancel: Cancel,
}

impl Taken {
    /// Nothing yet, of the quotas of these.
    pub(crate) fn none(rooms: &Arc<Rooms>, rules: Vec<Rule>, cancel: &Cancel) -> Taken {
        let rules = rules.into_iter().filter(Rule::has_quota).collect();
        Taken { rooms: rooms.clone(), rules, bytes: 0, cancel: cancel.clone() }
    }

    /// True if there is a quota.
    pub(crate) fn is_bound(&self) -> bool {
        !self.rules.is_empty()
    }

    /// The file is to have so many bytes, if it has not yet.
    ///
    /// # Errors
    /// `NoSpace` if a quota leaves less, after a look at what is there now; those of looking.
    pub(crate) fn grow_to(&mut self, bytes: u64) -> Result<()> {
        let more = bytes.saturating_sub(self.bytes);
        if more == 0 {
            return Ok(());
        }
        for (i, rule) in self.rules.iter().enumerate() {
            if let Err(e) = self.rooms.take(rule, more, &self.cancel) {
                self.rules.iter().take(i).for_each(|before| self.rooms.give_back(before, more));
                return Err(e);
            }
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The file has come to be.
    pub(crate) fn keep(mut self) {
        for rule in std::mem::take(&mut self.rules) {
            self.rooms.has_come(&rule, self.bytes);
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.rules.iter().for_each(|rule| self.rooms.give_back(rule, self.bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ends::Base;
    use std::path::Path;
    use stead_core::Kind;
    use stead_core::layout::Spaces;

    #[test]
    fn what_is_left_is_shared_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_str().unwrap();
        let text = format!("[dataspace.s]\npath = \"{path}\"\nuser_quota = \"100kB\"\n");
        let spaces = Spaces::parse(&text, &|_| None).unwrap();
        let base = Base::Space("s".into(), path.into());
        let place = base.open(&spaces, None, &Cancel::new()).unwrap();
        let rules = || rules::of(&spaces, &base, &place, Path::new("f"));
        let (rooms, cancel) = (Arc::new(Rooms::default()), Cancel::new());
        let new = || Taken::none(&rooms, rules(), &cancel);
        let (mut one, mut two) = (new(), new());
        assert!(one.is_bound());
        one.grow_to(60_000).unwrap();
        // Nothing of it lies there yet, and what was taken counts, also when it is looked anew.
        one.grow_to(10).unwrap();
        assert_eq!(one.bytes, 60_000);
        let full = |done: Result<()>| {
            let e = done.unwrap_err();
            assert!(e.kind() == Kind::NoSpace && e.to_string().contains("dataspace 's'"), "{e}");
        };
        full(two.grow_to(60_000));
        assert_eq!(two.bytes, 0);
        drop(one);
        two.grow_to(60_000).unwrap();
        two.grow_to(90_000).unwrap();
        full(new().grow_to(20_000));
        // What has come lies there, and counts once.
        std::fs::write(dir.path().join("g"), vec![1; 60_000]).unwrap();
        let others = Arc::new(Rooms::default());
        let new = || Taken::none(&others, rules(), &cancel);
        let mut three = new();
        three.grow_to(20_000).unwrap();
        full(new().grow_to(30_000));
        three.keep();
        new().grow_to(30_000).unwrap();
        full(new().grow_to(60_000));
        // Who would be refused by what was seen before is not, if that has gone.
        std::fs::remove_file(dir.path().join("g")).unwrap();
        new().grow_to(90_000).unwrap();
    }

    #[test]
    fn without_a_quota_nothing_is_looked_at() {
        let mut none = Taken::none(&Arc::default(), Vec::new(), &Cancel::new());
        none.grow_to(u64::MAX).unwrap();
        assert!(!none.is_bound());
    }
}
