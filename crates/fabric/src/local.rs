//! Ranks as threads of one process.

use crate::Fabric;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead_core::{Error, Kind, Result, limits};

/// One rank of a group of threads. Dropping it tells the others that it is gone.
pub struct Local {
    rank: usize,
    group: Arc<Group>,
    deadline: Duration,
}

struct Group {
    boxes: Vec<Mailbox>,
}

#[derive(Default)]
struct Mailbox {
    inner: Mutex<Inner>,
    arrived: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Messages that wait, by sender and tag. No entry is an empty queue.
    messages: HashMap<(usize, u32), VecDeque<Vec<u8>>>,
    /// Ranks that will send nothing more.
    gone: Vec<usize>,
}

impl Mailbox {
    /// A panicking peer leaves the queues whole: every change is one push or pop.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Local {
    /// A fabric of one rank.
    pub fn single() -> Local {
        Local {
            rank: 0,
            group: Arc::new(Group { boxes: vec![Mailbox::default()] }),
            deadline: Duration::from_secs(limits::PEER_DEADLINE_S),
        }
    }

    /// `size` ranks, at least one, to be given to one thread each.
    pub fn group(size: usize) -> Vec<Local> {
        Self::group_with_deadline(size, Duration::from_secs(limits::PEER_DEADLINE_S))
    }

    /// As [`Local::group`]; a rank that waits longer than `deadline` for a message gets an error.
    pub fn group_with_deadline(size: usize, deadline: Duration) -> Vec<Local> {
        let size = size.max(1);
        let group = Arc::new(Group { boxes: (0..size).map(|_| Mailbox::default()).collect() });
        (0..size).map(|rank| Local { rank, group: group.clone(), deadline }).collect()
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        for b in &self.group.boxes {
            b.lock().gone.push(self.rank);
            b.arrived.notify_all();
        }
    }
}

impl Fabric for Local {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.group.boxes.len()
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        let Some(b) = self.group.boxes.get(to) else {
            return Err(Error::internal(format!("there is no rank {to}")));
        };
        let mut inner = b.lock();
        if inner.gone.contains(&to) {
            return Err(Error::new(Kind::Peer, "the rank has ended early").at_rank(to));
        }
        inner.messages.entry((self.rank, tag)).or_default().push_back(bytes);
        b.arrived.notify_all();
        Ok(())
    }

    fn recv(&self, from: usize, tag: u32) -> Result<Vec<u8>> {
        if from >= self.size() {
            return Err(Error::internal(format!("there is no rank {from}")));
        }
        let b = &self.group.boxes[self.rank];
        let key = (from, tag);
        let (mut inner, timeout) = b
            .arrived
            .wait_timeout_while(b.lock(), self.deadline, |i| {
                !i.messages.contains_key(&key) && !i.gone.contains(&from)
            })
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = inner.messages.get_mut(&key) {
            let message = queue.pop_front();
            if queue.is_empty() {
                inner.messages.remove(&key);
            }
            if let Some(message) = message {
                return Ok(message);
            }
        }
        Err(if timeout.timed_out() {
            Error::new(Kind::Peer, format!("no message within {} s", self.deadline.as_secs()))
        } else {
            Error::new(Kind::Peer, "the rank has ended early")
        }
        .at_rank(from))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn local_conforms() {
        for size in [1, 2, 3, 4, 7, 8] {
            crate::conformance::check(Local::group(size));
        }
    }

    #[test]
    fn a_rank_that_ends_is_an_error_not_a_hang() {
        let mut ranks = Local::group(2);
        drop(ranks.pop());
        let e = ranks[0].recv(1, 7).expect_err("gone");
        assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(1)));
        assert!(ranks[0].send(1, 7, vec![]).is_err());
    }

    #[test]
    fn a_silent_rank_is_an_error_after_the_deadline() {
        let ranks = Local::group_with_deadline(2, Duration::from_millis(20));
        assert_eq!(ranks[0].recv(1, 0).expect_err("silent").kind(), Kind::Peer);
    }
}
