//! Messages that have come for one rank and wait to be taken.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::ops::Range;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result};

/// What came for one rank. Implementations of [`crate::Fabric`] put messages in, receivers wait for them here.
#[derive(Default)]
pub struct Mailbox {
    inner: Mutex<Inner>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Sender and bytes, in the order of their coming. No entry is an empty queue.
    messages: HashMap<u32, VecDeque<(usize, Vec<u8>)>>,
    /// Ranks that will send nothing more, and why.
    gone: HashMap<usize, String>,
    /// Tags that nobody will ask for any more: first ones, and the one after the last of each run. Runs do not touch.
    over: BTreeMap<u32, u32>,
}

impl Inner {
    fn is_over(&self, tag: u32) -> bool {
        self.over.range(..=tag).next_back().is_some_and(|(_, end)| tag < *end)
    }

    fn forget(&mut self, tags: Range<u32>) {
        self.messages.retain(|tag, _| !tags.contains(tag));
        let Range { mut start, mut end } = tags;
        while let Some((&from, &to)) = self.over.range(..=end).next_back()
            && to >= start
        {
            self.over.remove(&from);
            (start, end) = (start.min(from), end.max(to));
        }
        if start < end {
            self.over.insert(start, end);
        }
    }

    fn take(&mut self, from: Option<usize>, tag: u32) -> Option<(usize, Vec<u8>)> {
        let queue = self.messages.get_mut(&tag)?;
        let at = match from {
            Some(rank) => queue.iter().position(|(sender, _)| *sender == rank)?,
            None => 0,
        };
        let message = queue.remove(at);
        if queue.is_empty() {
            self.messages.remove(&tag);
        }
        message
    }
}

impl Mailbox {
    /// A panicking peer leaves the queues whole: every change is one push or pop.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message came.
    pub fn put(&self, from: usize, tag: u32, bytes: Vec<u8>) {
        let mut inner = self.lock();
        if inner.is_over(tag) {
            return;
        }
        inner.messages.entry(tag).or_default().push_back((from, bytes));
        drop(inner);
        self.arrived.notify_all();
    }

    /// Nobody will ask for messages with these tags: those that are here go, and those that come are dropped. Tags are best
    /// used up in their order: each run of them takes a few bytes.
    pub fn forget(&self, tags: Range<u32>) {
        self.lock().forget(tags);
    }

    /// Number of messages that nobody has taken.
    pub fn lying(&self) -> usize {
        self.lock().messages.values().map(VecDeque::len).sum()
    }

    /// A rank will send nothing more. What came from it before can still be taken. The first reason is kept.
    pub fn gone(&self, rank: usize, why: &str) {
        self.lock().gone.entry(rank).or_insert_with(|| why.to_owned());
        self.arrived.notify_all();
    }

    /// An error of kind `Peer` if a rank is gone.
    pub fn alive(&self, rank: usize) -> Result<()> {
        match self.lock().gone.get(&rank) {
            Some(why) => Err(Error::new(Kind::Peer, why.as_str()).at_rank(rank)),
            None => Ok(()),
        }
    }

    /// Waits for a message of a rank, or of any; `None` if there is none within that time.
    ///
    /// # Errors
    /// `Peer` if the rank that was named is gone and has left no message.
    pub fn take(
        &self,
        from: Option<usize>,
        tag: u32,
        within: Duration,
    ) -> Result<Option<(usize, Vec<u8>)>> {
        let mut taken = None;
        let mut gone = None;
        let waited = self.arrived.wait_timeout_while(self.lock(), within, |inner| {
            taken = inner.take(from, tag);
            if taken.is_none()
                && let Some(rank) = from
            {
                gone = inner.gone.get(&rank).map(|why| (rank, why.clone()));
            }
            taken.is_none() && gone.is_none()
        });
        drop(waited);
        match gone {
            Some((rank, why)) if taken.is_none() => Err(Error::new(Kind::Peer, why).at_rank(rank)),
            _ => Ok(taken),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_taken_by_tag_and_sender_in_order() {
        let b = Mailbox::default();
        for (from, tag, byte) in [(0, 1, 1), (1, 1, 2), (0, 1, 3), (1, 2, 4)] {
            b.put(from, tag, vec![byte]);
        }
        let now = Duration::ZERO;
        assert_eq!(b.take(Some(1), 1, now).unwrap(), Some((1, vec![2])));
        assert_eq!(b.take(None, 1, now).unwrap(), Some((0, vec![1])));
        assert_eq!(b.take(None, 1, now).unwrap(), Some((0, vec![3])));
        assert_eq!(b.take(None, 1, now).unwrap(), None);
        b.gone(1, "it has ended");
        assert_eq!(b.take(Some(1), 2, now).unwrap(), Some((1, vec![4])));
        assert_eq!(b.take(Some(1), 2, now).unwrap_err().kind(), Kind::Peer);
        assert_eq!((b.alive(1).is_err(), b.alive(0).is_ok()), (true, true));
        // Of any rank, a rank that is gone is no error.
        assert_eq!(b.take(None, 2, now).unwrap(), None);
    }

    #[test]
    fn what_is_forgotten_goes_and_comes_no_more() {
        let b = Mailbox::default();
        let says = |tag| {
            b.put(0, tag, vec![1]);
            b.take(None, tag, Duration::ZERO).unwrap().is_some()
        };
        for tag in 0..20 {
            b.put(1, tag, vec![tag as u8]);
        }
        // Runs that touch, overlap, lie apart, are empty, or are there already.
        for (tags, left, runs) in [
            (4..8, 16, 1),
            (12..14, 14, 2),
            (8..10, 12, 2),
            (9..13, 10, 1),
            (5..6, 10, 1),
            (17..17, 10, 1),
            (17..30, 7, 2),
            (0..18, 0, 1),
        ] {
            b.forget(tags.clone());
            assert_eq!((b.lying(), b.lock().over.len()), (left, runs), "{tags:?}");
        }
        assert!((0..30).all(|tag| !says(tag)) && says(30));
        assert_eq!(b.lying(), 0);
        // As files are opened and closed.
        for tag in (40..40_000).step_by(4) {
            b.forget(tag..tag + 4);
        }
        b.forget(u32::MAX - 1..u32::MAX);
        assert_eq!(b.lock().over.len(), 3);
        assert!(!says(39_999) && says(u32::MAX) && !says(u32::MAX - 1));
    }
}
