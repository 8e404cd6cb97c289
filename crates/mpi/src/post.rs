//! What the threads of a program and the progress thread share: the queue of what is to be sent, the mailboxes, and
//! who is waited for.

use crate::boxes::Boxes;
use std::collections::{HashMap, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_fabric::Spares;

/// Senders wait while more bytes than these are on their way, unless there are few to their receiver: one that takes nothing is not
/// to keep others from being sent to. What is on its way is memory of each rank beside what it sends: no more than keeps a link busy.
const OUT: usize = 8 << 20;
/// So many to a receiver are few.
const SHARE: usize = 4 << 20;
/// While more than these are on their way, as where several take nothing, senders wait for whomever it is.
const MOST: usize = 32 << 20;
/// Bytes of messages that are over which are kept for the next ones: as many as go out at a time.
const KEPT: usize = OUT;
/// Messages of no more bytes than these never wait: what ranks ask, and say when they are done.
const SMALL: usize = 4 << 10;

/// How long the interest in a rank lasts after somebody has asked for it.
pub(crate) const INTEREST: Duration = Duration::from_secs(3);

pub(crate) struct Post {
    pub(crate) rank: usize,
    pub(crate) size: usize,
    pub(crate) boxes: Boxes,
    pub(crate) spares: Spares,
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
    /// Those of each receiver that has some.
    out_to: HashMap<usize, usize>,
    /// Ranks that somebody wants to know alive, and until when that is believed.
    watched: HashMap<usize, Instant>,
    /// Somebody waits for a message of one of them, and until when that is believed.
    expected: Option<Instant>,
    /// Somebody waits for whoever says something, and until when that is believed.
    listened: Option<Instant>,
    /// Somebody has begun to wait for a message since the progress thread came for orders.
    begun: bool,
    /// The program is done with the fabric.
    closing: bool,
    /// MPI ends.
    stopping: bool,
    /// The progress thread has heard of it.
    heard: bool,
    /// How often the progress thread came for orders.
    rounds: u64,
    /// For how long it has not, as those have seen who ask whether ranks live.
    still: Still,
    /// MPI no longer waits for others.
    given_up: bool,
    /// The progress thread is in its last call, for which MPI may wait for others.
    leaving: bool,
    /// The progress thread makes no further call.
    ended: bool,
}

impl Inner {
    /// True if too much is on its way for more to this receiver.
    fn is_full(&self, to: usize) -> bool {
        let theirs = self.out_to.get(&to).copied().unwrap_or(0);
        self.out > MOST || self.out > OUT && theirs > SHARE
    }
}

/// What is seen of a thread that makes rounds.
#[derive(Default)]
struct Still {
    rounds: u64,
    seen: Option<Instant>,
    time: Duration,
}

/// No more than this counts between two looks: who looks may have been stopped together with the thread.
const STEP: Duration = Duration::from_secs(1);

impl Still {
    fn look(&mut self, rounds: u64, now: Instant) -> Duration {
        let since = self.seen.map_or(Duration::ZERO, |seen| now.saturating_duration_since(seen));
        self.time =
            if rounds == self.rounds { self.time + since.min(STEP) } else { Duration::ZERO };
        (self.rounds, self.seen) = (rounds, Some(now));
        self.time
    }
}

/// Something to send.
pub(crate) struct Letter {
    pub(crate) to: usize,
    pub(crate) channel: u64,
    pub(crate) tag: u32,
    pub(crate) bytes: Vec<u8>,
}

/// What the progress thread is to do now.
pub(crate) struct Orders {
    pub(crate) letters: VecDeque<Letter>,
    pub(crate) watched: Vec<usize>,
    /// Somebody waits for a message of one of them.
    pub(crate) expected: bool,
    /// Somebody waits for whoever says something.
    pub(crate) listened: bool,
    /// Somebody has begun to wait for a message, which may be there soon.
    pub(crate) begun: bool,
    pub(crate) closing: bool,
    pub(crate) stopping: bool,
}

impl Post {
    pub(crate) fn new(rank: usize, size: usize) -> Post {
        Post {
            rank,
            size,
            boxes: Boxes::default(),
            spares: Spares::new(KEPT),
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
        self.boxes.alive(letter.to)?;
        if letter.to == self.rank {
            self.boxes.put(self.rank, letter.channel, letter.tag, letter.bytes);
            return Ok(());
        }
        let (to, len) = (letter.to, letter.bytes.len());
        let full = |i: &mut Inner| len > SMALL && i.is_full(to) && !i.ended;
        let (mut inner, waited) = self
            .moved
            .wait_timeout_while(self.lock(), deadline, full)
            .unwrap_or_else(PoisonError::into_inner);
        if waited.timed_out() {
            let message = format!("messages did not go out within {} s", deadline.as_secs());
            return Err(Error::new(Kind::Peer, message).at_rank(to));
        }
        if inner.ended {
            return Err(Error::usage("MPI has ended")
                .with_hint("close what communicates before MPI_Finalize"));
        }
        inner.out += len;
        *inner.out_to.entry(to).or_default() += len;
        inner.queue.push_back(letter);
        drop(inner);
        self.work.notify_one();
        Ok(())
    }

    /// So many bytes to a receiver have gone.
    pub(crate) fn sent(&self, to: usize, bytes: usize) {
        let mut inner = self.lock();
        inner.out = inner.out.saturating_sub(bytes);
        if let Some(theirs) = inner.out_to.get_mut(&to) {
            *theirs = theirs.saturating_sub(bytes);
            if *theirs == 0 {
                inner.out_to.remove(&to);
            }
        }
        drop(inner);
        self.moved.notify_all();
    }

    /// Somebody wants to know whether a rank lives.
    pub(crate) fn watch(&self, rank: usize, now: Instant) {
        let mut inner = self.lock();
        let before = inner.watched.insert(rank, now + INTEREST);
        if before.is_none_or(|until| until < now) {
            drop(inner);
            self.work.notify_one();
        }
    }

    /// For how long the progress thread has not come for orders: MPI has not returned from a call. Who waits for a message looks
    /// many times in a second.
    pub(crate) fn still(&self, now: Instant) -> Duration {
        let mut inner = self.lock();
        let rounds = inner.rounds;
        if inner.ended { Duration::ZERO } else { inner.still.look(rounds, now) }
    }

    /// Somebody begins to wait for a message of a rank.
    pub(crate) fn expect(&self, rank: usize, now: Instant) {
        let mut inner = self.lock();
        inner.watched.insert(rank, now + INTEREST);
        inner.expected = Some(now + INTEREST);
        inner.begun = true;
        drop(inner);
        self.work.notify_one();
    }

    /// Somebody waits for a message of any rank. Who goes on listening wakes nobody: perhaps there is none for long.
    pub(crate) fn listen(&self, now: Instant) {
        let mut inner = self.lock();
        let before = inner.listened.replace(now + INTEREST);
        if before.is_none_or(|until| until < now) {
            inner.begun = true;
            drop(inner);
            self.work.notify_one();
        }
    }

    /// What there is to do. With nothing to send, waits for that, but no longer than `most`.
    pub(crate) fn orders(&self, most: Duration, now: Instant) -> Orders {
        let mut inner = self.lock();
        inner.rounds += 1;
        let news = inner.stopping && !inner.heard || inner.given_up || inner.begun;
        inner.heard |= inner.stopping;
        if !most.is_zero() && inner.queue.is_empty() && !news {
            inner = self.work.wait_timeout(inner, most).unwrap_or_else(PoisonError::into_inner).0;
            inner.heard |= inner.stopping;
        }
        inner.watched.retain(|_, until| *until >= now);
        Orders {
            letters: std::mem::take(&mut inner.queue),
            watched: inner.watched.keys().copied().collect(),
            expected: inner.expected.is_some_and(|until| until >= now),
            listened: inner.listened.is_some_and(|until| until >= now),
            begun: std::mem::take(&mut inner.begun),
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

    /// The progress thread makes its last call, for which MPI may wait for others in its own way.
    pub(crate) fn leave(&self) {
        self.lock().leaving = true;
    }

    /// True if it has begun that.
    pub(crate) fn is_leaving(&self) -> bool {
        self.lock().leaving
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
            self.boxes.gone(rank, "MPI has ended here");
        }
        self.lock().ended = true;
        self.moved.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const LONG: Duration = Duration::from_secs(60);

    #[allow(clippy::disallowed_methods)]
    fn now() -> Instant {
        Instant::now()
    }

    fn letter(bytes: usize) -> Letter {
        Letter { to: 1, channel: 0, tag: 7, bytes: vec![0; bytes] }
    }

    #[test]
    fn small_messages_go_while_much_is_on_its_way() {
        let post = Post::new(0, 2);
        post.send(letter(OUT + 1), LONG).unwrap();
        // What ranks ask must not wait for what they get.
        post.send(letter(SMALL), LONG).unwrap();
        let e = post.send(letter(SMALL + 1), Duration::from_millis(1)).unwrap_err();
        assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(1)));
        assert_eq!(post.orders(Duration::ZERO, now()).letters.len(), 2);
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| post.send(letter(SMALL + 1), LONG));
            post.sent(1, OUT + 1);
            waits.join().unwrap().unwrap();
        });
        post.ended();
        assert_eq!(post.send(letter(1), LONG).unwrap_err().kind(), Kind::Peer);
    }

    #[test]
    fn who_takes_nothing_keeps_no_other_receiver_waiting() {
        let post = Post::new(0, 100);
        let goes =
            |to, bytes| post.send(Letter { to, ..letter(bytes) }, Duration::from_millis(1)).is_ok();
        assert!(goes(1, OUT + 1) && !goes(1, SMALL + 1));
        // Others get their share at a time,
        assert!(goes(2, SHARE) && goes(2, SMALL + 1) && !goes(2, SMALL + 1));
        post.sent(2, SHARE);
        assert!(goes(2, SHARE) && !goes(2, SMALL + 1));
        // until there is too much in all.
        let more = (3..100).take_while(|to| goes(*to, SHARE)).count();
        assert_eq!(more, (MOST - OUT) / SHARE - 1);
        assert!(!goes(99, SMALL + 1) && goes(99, SMALL));
        post.sent(1, OUT + 1);
        assert!(goes(99, SMALL + 1));
    }

    #[test]
    fn the_thread_hears_once_that_mpi_ends_and_then_sleeps() {
        let post = Post::new(0, 2);
        post.stop();
        // At once, whatever it was to wait.
        assert!(post.orders(LONG, now()).stopping);
        // From then on as long as it is told.
        let begun = now();
        let nap = Duration::from_millis(20);
        assert!(post.orders(nap, now()).stopping);
        assert!(now().duration_since(begun) >= nap);
        assert_eq!(post.rounds(), 2);
        // Whoever waits no longer wakes it for good.
        post.give_up();
        post.orders(LONG, now());
        assert!(!post.wait(Duration::from_millis(1)));
        post.ended();
        assert!(post.wait(LONG));
    }

    #[test]
    fn ranks_are_watched_for_a_while_after_they_were_asked_for() {
        let post = Post::new(0, 3);
        let begun = now();
        post.watch(2, begun);
        let orders = post.orders(Duration::ZERO, begun + INTEREST);
        // Nobody waits for a message of it.
        assert_eq!((orders.watched, orders.expected), (vec![2], false));
        let later = begun + INTEREST + Duration::from_millis(1);
        assert!(post.orders(Duration::ZERO, later).watched.is_empty());
    }

    #[test]
    fn the_thread_hears_of_each_wait_that_begins() {
        let post = Post::new(0, 2);
        // Also if it knows of somebody who waits for that rank.
        post.watch(1, now());
        assert!(!post.orders(Duration::ZERO, now()).begun);
        for _ in 0..2 {
            post.expect(1, now());
            // At once, whatever it was to wait.
            assert!(post.orders(LONG, now()).begun);
            let orders = post.orders(Duration::ZERO, now());
            assert_eq!((orders.begun, orders.watched, orders.expected), (false, vec![1], true));
            assert!(!orders.listened);
        }
        // Who listens is heard of when it begins, and not when it goes on.
        let begun = now();
        let later = begun + INTEREST + Duration::from_millis(1);
        post.listen(begun);
        assert!(post.orders(LONG, begun).begun);
        post.listen(begun);
        let orders = post.orders(Duration::ZERO, begun + INTEREST);
        assert_eq!((orders.begun, orders.listened), (false, true));
        assert!(!post.orders(Duration::ZERO, later).listened);
        post.listen(later);
        assert!(post.orders(LONG, later).begun);
    }

    #[test]
    fn a_call_that_does_not_return_is_seen() {
        let (post, begun) = (Post::new(0, 2), now());
        let after = |ms: u64| begun + Duration::from_millis(ms);
        assert!((0..100).all(|i| post.still(after(i * 100)) == Duration::from_millis(i * 100)));
        // The whole job was suspended for an hour.
        assert_eq!(post.still(after(3_600_000)), Duration::from_millis(10_900));
        post.orders(Duration::ZERO, begun);
        assert_eq!(post.still(after(3_600_100)), Duration::ZERO);
        assert_eq!(post.still(after(3_600_200)), Duration::from_millis(100));
        post.ended();
        assert_eq!(post.still(after(3_600_300)), Duration::ZERO);
    }

    #[test]
    fn what_a_rank_sends_itself_is_there() {
        let post = Post::new(1, 2);
        let mailbox = post.boxes.open(0);
        post.send(letter(3), LONG).unwrap();
        assert_eq!(mailbox.take(Some(1), 7, Duration::ZERO).unwrap(), Some((1, vec![0; 3])));
        assert!(post.send(Letter { to: 2, ..letter(1) }, LONG).is_err());
    }
}
