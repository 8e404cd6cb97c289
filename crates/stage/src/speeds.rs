//! How fast pairs of tiers are: what the journal has of transfers that have ended, and what is seen of those that are under way in this
//! process, which is newer.

use crate::journal::Journal;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use stead_core::Result;
use stead_model::transfer::Seen;

/// What is seen of the pairs that something is under way between.
#[derive(Debug, Default)]
pub(crate) struct Speeds(Mutex<BTreeMap<String, Now>>);

#[derive(Debug, Default)]
struct Now {
    under_way: usize,
    /// By whichever of them was the last one to say so.
    seen: Option<Seen>,
}

impl Speeds {
    /// What is known of a pair; nothing of none.
    ///
    /// # Errors
    /// Those of the journal.
    pub(crate) fn of(&self, pair: Option<&str>, journal: &Journal) -> Result<Seen> {
        let Some(pair) = pair else { return Ok(Seen::default()) };
        let now = self.now().get(pair).and_then(|now| now.seen);
        now.map_or_else(|| journal.seen(pair), Ok)
    }

    /// Somebody who moves something between a pair, and says how fast that is until it is over.
    pub(crate) fn begin(&self, pair: &str) -> Under<'_> {
        self.now().entry(pair.to_owned()).or_default().under_way += 1;
        Under { speeds: self, pair: pair.to_owned() }
    }

    fn now(&self) -> MutexGuard<'_, BTreeMap<String, Now>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A transfer that is under way.
#[derive(Debug)]
pub(crate) struct Under<'a> {
    speeds: &'a Speeds,
    pair: String,
}

impl Under<'_> {
    pub(crate) fn pair(&self) -> &str {
        &self.pair
    }

    /// So fast it is.
    pub(crate) fn tell(&self, seen: Seen) {
        if let Some(now) = self.speeds.now().get_mut(&self.pair) {
            now.seen = Some(seen);
        }
    }
}

impl Drop for Under<'_> {
    fn drop(&mut self) {
        let mut all = self.speeds.now();
        if let Some(now) = all.get_mut(&self.pair) {
            now.under_way -= 1;
            if now.under_way == 0 {
                all.remove(&self.pair);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::pair;
    use crate::place::Place;
    use crate::{Action, Means, Options, Request, Stager};
    use stead_core::{Cancel, Location};
    use stead_model::transfer::Amount;
    use stead_store::Folder;

    fn seen(bytes: u64) -> Seen {
        let mut seen = Seen::default();
        seen.note(Amount::new(1, bytes), 1.0);
        seen
    }

    #[test]
    fn what_is_under_way_is_newer_than_what_has_ended() {
        let dir = tempfile::tempdir().unwrap();
        let journal = Journal::open(&dir.path().join("transfers.db")).unwrap();
        let speeds = Speeds::default();
        let of = |pair| speeds.of(Some(pair), &journal).unwrap();
        journal.set_seen("a>b", &seen(1)).unwrap();
        assert_eq!((of("a>b"), of("b>a")), (seen(1), Seen::default()));
        let (one, other) = (speeds.begin("a>b"), speeds.begin("a>b"));
        // Nothing was seen of it yet.
        assert_eq!(of("a>b"), seen(1));
        one.tell(seen(2));
        other.tell(seen(3));
        assert_eq!((of("a>b"), of("b>a")), (seen(3), Seen::default()));
        drop(other);
        assert_eq!(of("a>b"), seen(3));
        drop(one);
        assert_eq!(of("a>b"), seen(1));
        assert_eq!(speeds.of(None, &journal).unwrap(), Seen::default());
    }
    #[test]
    fn what_would_be_done_takes_as_long_as_what_is_under_way_shows() {
        let dir = tempfile::tempdir().unwrap();
        let at =
            |name: &str| Location::parse(&dir.path().join(name).display().to_string(), &|_| None);
        std::fs::write(dir.path().join("a"), vec![1; 1 << 20]).unwrap();
        let stager = Stager::open(&dir.path().join("state"), Means::default()).unwrap();
        let request = Request {
            action: Action::Copy,
            sources: vec![at("a").unwrap()],
            target: Some(at("b").unwrap()),
            options: Options::default(),
        };
        let takes = || stager.preview(&request, &Cancel::new()).unwrap().takes.seconds;
        assert!(takes() < 0.1);
        let place = Place::Folder(Folder::open(dir.path()).unwrap());
        let under = stager.speeds.begin(&pair(Some(&place), Some(&place)).unwrap());
        // A file a second.
        under.tell(seen(1 << 16));
        assert!((0.9..1.1).contains(&takes()), "{}", takes());
        drop(under);
        assert!(takes() < 0.1);
    }
}
