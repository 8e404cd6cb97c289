//! What a worker asks the broker about all users together: how many transfers are under way in each dataspace in which they share something.

use crate::control::{self, Report};
use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_stage::{Means, Usage};

/// How long the broker has for an answer.
const ANSWERS_WITHIN: Duration = Duration::from_secs(5);

/// Transfers by dataspaces.
type Running = BTreeMap<String, u64>;

/// Questions, and the answers that have come.
pub(crate) struct Counts {
    control: Arc<OwnedFd>,
    asked: Mutex<Asked>,
    answered: Condvar,
}

#[derive(Default)]
struct Asked {
    last: u64,
    /// None as long as there is no answer.
    open: BTreeMap<u64, Option<Running>>,
}

impl Counts {
    pub(crate) fn new(control: Arc<OwnedFd>) -> Counts {
        Counts { control, asked: Mutex::default(), answered: Condvar::new() }
    }

    fn asked(&self) -> MutexGuard<'_, Asked> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An answer of the broker has come.
    pub(crate) fn hear(&self, ticket: u64, running: Running) {
        if let Some(open) = self.asked().open.get_mut(&ticket) {
            *open = Some(running);
        }
        self.answered.notify_all();
    }

    fn ask(&self) -> Result<Running> {
        let ticket = {
            let mut asked = self.asked();
            asked.last += 1;
            let ticket = asked.last;
            asked.open.insert(ticket, None);
            ticket
        };
        let sent = control::send(&self.control, &Report::Count { ticket }, None, true);
        let mut asked = self.asked();
        if sent.is_ok() {
            let still = |asked: &mut Asked| matches!(asked.open.get(&ticket), Some(None));
            let waited = self.answered.wait_timeout_while(asked, ANSWERS_WITHIN, still);
            asked = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let running = asked.open.remove(&ticket).flatten();
        sent?;
        running.ok_or_else(|| Error::new(Kind::Timeout, "the daemon does not answer its worker"))
    }

    /// Has what is told of dataspaces count the transfers of all users, where the daemon knows of them. What it does not tell in time is left
    /// as it is: those of this user.
    pub(crate) fn tell_of_all(&self, means: &Means, list: &mut [Usage]) {
        let Some(common) = &means.common else { return };
        let is_counted = |one: &Usage| {
            one.limit.or(one.transfers).is_some()
                && one.path.as_deref() == common.place(&one.name).ok()
        };
        if !list.iter().any(&is_counted) {
            return;
        }
        let Ok(running) = self.ask() else { return };
        for one in list {
            if is_counted(one) {
                // Of those of this user the broker hears a moment later.
                let all = running.get(&one.name).copied().unwrap_or(0);
                one.running = one.running.max(all);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::layout::Spaces;

    #[test]
    fn transfers_of_all_are_told_of_what_all_share() {
        let (ours, theirs) = control::pair().unwrap();
        let counts = Arc::new(Counts::new(Arc::new(ours)));
        let text = "[dataspace.a]\npath = \"/a\"\nlimit = \"1MB/s\"\n[dataspace.b]\npath = \"/b\"\ntransfers = 2\n\
                    [dataspace.c]\npath = \"/c\"\n";
        let common = Spaces::parse(text, &|_| None).unwrap();
        let mut spaces = common.clone();
        // Another one of that name, of the user's own.
        spaces.give("b=/mine", &|_| None).unwrap();
        let means = Means { spaces, common: Some(common), ..Means::default() };
        let usage = |name: &str, path: &str, limit, running| Usage {
            name: name.to_owned(),
            path: Some(path.to_owned()),
            limit,
            running,
            ..Usage::default()
        };
        let mut list = [
            usage("a", "/a", Some(1), 1),
            usage("b", "/mine", Some(1), 2),
            usage("c", "/c", None, 3),
        ];
        let answers = counts.clone();
        let broker = std::thread::spawn(move || {
            let Some((Report::Count { ticket }, _)) = control::report(&theirs).unwrap() else {
                panic!("another question")
            };
            let running = [("a".to_owned(), 7), ("b".to_owned(), 8), ("c".to_owned(), 9)];
            answers.hear(ticket + 1, running.iter().cloned().collect());
            answers.hear(ticket, running.into_iter().collect());
            theirs
        });
        counts.tell_of_all(&means, &mut list);
        let _theirs = broker.join().unwrap();
        assert_eq!(list.each_ref().map(|one| one.running), [7, 2, 3]);
        assert!(counts.asked().open.is_empty());
        // Nobody is asked where nothing is shared.
        counts.tell_of_all(&means, &mut list[2..]);
        assert_eq!(list[2].running, 3);
    }
}
