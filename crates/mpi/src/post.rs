//! What the threads of a program and the progress thread share: the queue of what is to be sent, the mailbox, and
//! who is waited for.

use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_fabric::Mailbox;

/// Senders wait while more bytes than these are on their way.
const OUT: usize = 64 << 20;
/// Messages of no more bytes than these never wait: what ranks ask, and say when they are done.
const SMALL: usize = 4 << 10;

/// How long the interest in a rank lasts after somebody has asked for it.
pub(crate) const INTEREST: Duration = Duration::from_secs(3);

pub(crate) struct Post {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) mailbox: Mailbox,
    inner: Mutex<Inner>,
    /// The progress thread has something to do.
    work: Condvar,
    /// Something was sent, or the thread has ended.
    moved: Condvar,
}

#[derive(Default)]
struct Inner {
    queue: VecDeque<Letter>,
    /// Bytes in the queue or given to MPI and not yet gone.
    out: usize,
    /// Ranks that somebody waits for, and until when that is believed.
    watched: HashMap<usize, Instant>,
    /// The program is done with the fabric.
    closing: bool,
    /// MPI ends.
    stopping: bool,
    /// The progress thread has heard of it.
    heard: bool,
    /// How often the progress thread came for orders.
    rounds: u64,
    /// MPI no longer waits for others.
    given_up: bool,
    /// The progress thread makes no further call.
    ended: bool,
}

/// Something to send.
pub(crate) struct Letter {
    pub(crate) to: usize,
    pub(crate) tag: u32,
    pub(crate) bytes: Vec<u8>,
}

/// What the progress thread is to do now.
pub(crate) struct Orders {
    pub(crate) letters: VecDeque<Letter>,
    pub(crate) watched: Vec<usize>,
    pub(crate) closing: bool,
    pub(crate) stopping: bool,
}

impl Post {
    pub(crate) fn new(rank: usize, size: usize) -> Post {
        Post {
            rank,
            size,
            mailbox: Mailbox::default(),
            inner: Mutex::default(),
            work: Condvar::new(),
            moved: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues a message. Waits while too much is on its way, up to `deadline`.
    pub(crate) fn send(&self, letter: Letter, deadline: Duration) -> Result<()> {
        if letter.to >= self.size {
            return Err(Error::internal(format!("there is no rank {}", letter.to)));
        }
        self.mailbox.alive(letter.to)?;
        if letter.to == self.rank {
            self.mailbox.put(self.rank, letter.tag, letter.bytes);
            return Ok(());
        }
        let large = letter.bytes.len() > SMALL;
        let full = |i: &mut Inner| large && i.out > OUT && !i.ended;
        let (mut inner, waited) = self
            .moved
            .wait_timeout_while(self.lock(), deadline, full)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let message = format!("messages did not go out within {} s", deadline.as_secs());
            return Err(Error::new(Kind::Peer, message).at_rank(letter.to));
        }
        if inner.ended {
            return Err(Error::usage("MPI has ended")
                .with_hint("close what communicates before MPI_Finalize"));
        }
        inner.out += letter.bytes.len();
        inner.queue.push_back(letter);
        drop(inner);
        self.work.notify_one();
        Ok(())
    }

    /// So many bytes have gone.
    pub(crate) fn sent(&self, bytes: usize) {
        let mut inner = self.lock();
        inner.out = inner.out.saturating_sub(bytes);
        drop(inner);
        self.moved.notify_all();
    }

    /// Somebody waits for a rank.
    pub(crate) fn watch(&self, rank: usize, now: Instant) {
        let mut inner = self.lock();
        let before = inner.watched.insert(rank, now + INTEREST);
        if before.is_none_or(|until| until < now) {
            drop(inner);
            self.work.notify_one();
        }
    }

    /// What there is to do. With nothing to send, waits for that, but no longer than `most`.
    pub(crate) fn orders(&self, most: Duration, now: Instant) -> Orders {
        let mut inner = self.lock();
        inner.rounds += 1;
        let news = inner.stopping && !inner.heard || inner.given_up;
        inner.heard |= inner.stopping;
        if !most.is_zero() && inner.queue.is_empty() && !news {
            inner = self.work.wait_timeout(inner, most).unwrap_or_else(PoisonError::into_inner).0;
            inner.heard |= inner.stopping;
        }
        inner.watched.retain(|_, until| *until >= now);
        Orders {
            letters: std::mem::take(&mut inner.queue),
            watched: inner.watched.keys().copied().collect(),
            closing: inner.closing,
            stopping: inner.stopping,
        }
    }

    /// The program is done with the fabric.
    pub(crate) fn close(&self) {
        self.lock().closing = true;
        self.work.notify_one();
    }

    /// MPI ends: the progress thread is to make its last call, which it does when all ranks are that far.
    pub(crate) fn stop(&self) {
        self.lock().stopping = true;
        self.work.notify_one();
    }

    /// The progress thread is to make no further round, whatever others do.
    pub(crate) fn give_up(&self) {
        self.lock().given_up = true;
        self.work.notify_one();
    }

    /// True if the progress thread is to make no further round.
    pub(crate) fn is_given_up(&self) -> bool {
        self.lock().given_up
    }

    /// How often the progress thread came for orders.
    pub(crate) fn rounds(&self) -> u64 {
        self.lock().rounds
    }

    /// Waits for the last call of the progress thread: false if it was not made in that time.
    pub(crate) fn wait(&self, most: Duration) -> bool {
        let waited = self.moved.wait_timeout_while(self.lock(), most, |i| !i.ended);
        !waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
    }

    /// The progress thread has made its last call.
    pub(crate) fn ended(&self) {
        for rank in (0..self.size).filter(|r| *r != self.rank) {
            self.mailbox.gone(rank, "MPI has ended here");
        }
        self.lock().ended = true;
        self.moved.notify_all();
    }
}
