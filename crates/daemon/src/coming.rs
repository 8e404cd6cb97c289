//! What a worker says of the bytes that are still to come in dataspaces with a quota, and what it hears of those of other users.

use crate::control::{self, Report};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_stage::Others;

/// How long the broker has for an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(20);

/// What was said to the broker and heard of it.
pub(crate) struct Coming {
    control: Arc<OwnedFd>,
    said: Mutex<Said>,
    answered: Condvar,
}

#[derive(Default)]
struct Said {
    /// Wanted, and not yet under way, by dataspaces.
    wanted: BTreeMap<String, u64>,
    /// What the broker was told last.
    told: BTreeMap<String, u64>,
    last: u64,
    /// None as long as there is no answer.
    open: BTreeMap<u64, Option<u64>>,
}

impl Said {
    fn wanted(&self, name: &str) -> u64 {
        self.wanted.get(name).copied().unwrap_or(0)
    }

    fn unwant(&mut self, name: &str, bytes: u64) {
        if let Some(wanted) = self.wanted.get_mut(name) {
            *wanted = wanted.saturating_sub(bytes);
        }
        self.wanted.retain(|_, bytes| *bytes > 0);
    }
}

impl Coming {
    pub(crate) fn new(control: Arc<OwnedFd>) -> Coming {
        Coming { control, said: Mutex::default(), answered: Condvar::new() }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn say(&self, said: &mut Said, ticket: u64, name: &str, bytes: u64) -> Result<()> {
        let report = Report::Coming { ticket, name: name.to_owned(), bytes };
        control::send(&self.control, &report, None, true)?;
        said.told.insert(name.to_owned(), bytes);
        Ok(())
    }

    /// Tells the broker what is to come by now, where that is something new: once also where nothing is.
    ///
    /// # Errors
    /// Those of counting, and of the connection.
    pub(crate) fn tell(&self, count: impl FnOnce() -> Result<BTreeMap<String, u64>>) -> Result<()> {
        // Nothing is wanted or settled between the count and the word of it.
        let mut said = self.said();
        let mut now = count()?;
        for name in said.told.keys() {
            now.entry(name.clone()).or_default();
        }
        for (name, bytes) in now {
            let bytes = bytes.saturating_add(said.wanted(&name));
            if said.told.get(&name) != Some(&bytes) {
                self.say(&mut said, 0, &name, bytes)?;
            }
        }
        Ok(())
    }

    /// An answer of the broker has come.
    pub(crate) fn hear(&self, ticket: u64, bytes: u64) {
        if let Some(open) = self.said().open.get_mut(&ticket) {
            *open = Some(bytes);
        }
        self.answered.notify_all();
    }
}

impl Others for Coming {
    fn claim(&self, name: &str, own: u64, more: u64) -> Result<u64> {
        let mut said = self.said();
        said.last += 1;
        let ticket = said.last;
        said.open.insert(ticket, None);
        let wanted = said.wanted(name).saturating_add(more);
        said.wanted.insert(name.to_owned(), wanted);
        let sent = self.say(&mut said, ticket, name, own.saturating_add(wanted));
        if sent.is_ok() {
            let still = |said: &mut Said| matches!(said.open.get(&ticket), Some(None));
            let waited = self.answered.wait_timeout_while(said, ANSWERS_WITHIN, still);
            said = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let theirs = said.open.remove(&ticket).flatten();
        sent?;
        theirs.ok_or_else(|| Error::new(Kind::Timeout, "the daemon does not answer its worker"))
    }

    fn settle(&self, name: &str, own: u64, more: u64) {
        let mut said = self.said();
        said.unwant(name, more);
        let bytes = own.saturating_add(said.wanted(name));
        // Who does not hear it has ended, and this one is about to.
        let _ = self.say(&mut said, 0, name, bytes);
    }
}
