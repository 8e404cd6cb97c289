//! Mailboxes by channel: each file of a communicator has one, so that nothing of a file, or of one that could not be
//! opened, comes to another one or stays behind.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Kind, Result};
use stead_fabric::Mailbox;

/// Channels that another rank may be ahead of this one: all make them together, one after the other.
const AHEAD: u64 = 1024;

/// See the module's documentation.
#[derive(Default)]
pub(crate) struct Boxes(Mutex<Inner>);

#[derive(Default)]
struct Inner {
    /// Of channels that are open here, or will be.
    boxes: HashMap<u64, Arc<Mailbox>>,
    /// Those from here on were not opened yet.
    next: u64,
    /// Ranks that will send nothing more, and why.
    gone: HashMap<usize, String>,
    /// Ranks whose programs have come to their ends: they answer, and ask for nothing more.
    ended: HashSet<usize>,
}

impl Inner {
    fn of(&mut self, channel: u64) -> &Arc<Mailbox> {
        let gone = &self.gone;
        self.boxes.entry(channel).or_insert_with(|| {
            let mailbox = Mailbox::default();
            gone.iter().for_each(|(rank, why)| mailbox.gone(*rank, why));
            Arc::new(mailbox)
        })
    }
}

impl Boxes {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first channel that was not opened yet.
    pub(crate) fn next(&self) -> u64 {
        self.lock().next
    }

    /// Opens a channel, the next one or one after it.
    pub(crate) fn open(&self, channel: u64) -> Arc<Mailbox> {
        let mut inner = self.lock();
        let mailbox = inner.of(channel).clone();
        // What came for those in between, which nobody opens.
        let (from, to) = (inner.next, channel);
        inner.boxes.retain(|channel, _| !(from..to).contains(channel));
        inner.next = from.max(channel.saturating_add(1));
        mailbox
    }

    /// Nobody takes anything of a channel any more.
    pub(crate) fn close(&self, channel: u64) {
        self.lock().boxes.remove(&channel);
    }

    /// A message came. Those of channels that were closed go.
    pub(crate) fn put(&self, from: usize, channel: u64, tag: u32, bytes: Vec<u8>) {
        let mut inner = self.lock();
        let early = channel >= inner.next && channel - inner.next < AHEAD;
        let mailbox = match inner.boxes.get(&channel) {
            Some(mailbox) => mailbox.clone(),
            None if early => inner.of(channel).clone(),
            None => return,
        };
        drop(inner);
        mailbox.put(from, tag, bytes);
    }

    /// A rank will send nothing more, in no channel. The first reason is kept.
    pub(crate) fn gone(&self, rank: usize, why: &str) {
        let mut inner = self.lock();
        inner.gone.entry(rank).or_insert_with(|| why.to_owned());
        for mailbox in inner.boxes.values() {
            mailbox.gone(rank, why);
        }
    }

    /// The program of a rank has come to its end, and all that it has sent is here.
    pub(crate) fn end(&self, rank: usize) {
        self.lock().ended.insert(rank);
    }

    /// True if it has, or is gone.
    pub(crate) fn ends(&self, rank: usize) -> bool {
        let inner = self.lock();
        inner.ended.contains(&rank) || inner.gone.contains_key(&rank)
    }

    /// An error of kind `Peer` if a rank is gone.
    pub(crate) fn alive(&self, rank: usize) -> Result<()> {
        match self.lock().gone.get(&rank) {
            Some(why) => Err(Error::new(Kind::Peer, why.as_str()).at_rank(rank)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn held(boxes: &Boxes) -> usize {
        boxes.lock().boxes.len()
    }

    #[test]
    fn messages_come_to_their_channel_or_to_nobody() {
        let boxes = Boxes::default();
        let first = boxes.open(0);
        // Of a rank that is ahead, and of one that says what makes no sense.
        for channel in [1, 3, AHEAD, AHEAD + 1, u64::MAX] {
            boxes.put(1, channel, 7, vec![channel as u8]);
        }
        assert_eq!((held(&boxes), boxes.next()), (4, 1));
        boxes.put(1, 0, 7, vec![0]);
        let taken = |of: &Mailbox| of.take(None, 7, Duration::ZERO).unwrap();
        assert_eq!(taken(&first), Some((1, vec![0])));
        // All have agreed on the third one.
        let third = boxes.open(3);
        assert_eq!(taken(&third), Some((1, vec![3])));
        assert_eq!((held(&boxes), boxes.next()), (3, 4));
        boxes.close(0);
        for channel in 0..3 {
            boxes.put(1, channel, 7, vec![9]);
        }
        assert_eq!((held(&boxes), taken(&first), third.lying()), (2, None, 0));
    }

    #[test]
    fn who_is_gone_is_so_in_all_channels() {
        let boxes = Boxes::default();
        let before = boxes.open(0);
        boxes.put(1, 2, 7, vec![5]);
        boxes.gone(1, "it has ended");
        boxes.gone(1, "again");
        assert!(boxes.alive(0).is_ok());
        for mailbox in [before, boxes.open(1), boxes.open(2)] {
            assert_eq!(mailbox.alive(1).unwrap_err().message(), "it has ended");
        }
        assert_eq!(boxes.alive(1).unwrap_err().kind(), Kind::Peer);
    }

    #[test]
    fn whose_program_has_ended_is_there_yet() {
        let boxes = Boxes::default();
        assert!(!boxes.ends(1));
        boxes.end(1);
        assert!(boxes.ends(1) && !boxes.ends(2) && boxes.alive(1).is_ok());
        boxes.gone(2, "it was killed");
        assert!(boxes.ends(2));
    }
}
