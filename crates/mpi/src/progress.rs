//! The thread that makes all calls of a fabric.
//!
//! A message is a head, which has its bytes too if they are few, and else a body of one transfer. Both travel with tags of
//! their own on a communicator of our own, so that they come in order. Heads of other sorts ask whether a rank still
//! answers, say that it does, and say good-bye.

use crate::clock;
use crate::pace::{self, Awaited};
use crate::post::{Letter, Post};
use crate::raw::{Comm, Flight};
use crate::silence::{Silence, Verdict};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Error, Result};

const HEADS: i32 = 1;
const BODIES: i32 = 2;
/// Bytes of a head.
const HEAD: usize = 24;
/// Messages that long travel with their head. With it they stay well below the least that MPIs send at once, 4 KiB with what they put
/// before it: of a head that is longer the rest comes only when its sender is asked for it, and one whose sender has stopped by
/// then keeps the heads of all others waiting.
const INLINE: usize = (3 << 10) - HEAD;

/// Rooms for heads that come.
const ROOMS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Sort {
    Inline = 0,
    Body = 1,
    Ask = 2,
    Answer = 3,
    Bye = 4,
    Fin = 5,
}

/// Where a message belongs.
type Name = (u64, u32);

fn head(sort: Sort, (channel, tag): Name, len: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + INLINE);
    bytes.extend_from_slice(&(sort as u32).to_le_bytes());
    bytes.extend_from_slice(&tag.to_le_bytes());
    bytes.extend_from_slice(&channel.to_le_bytes());
    bytes.extend_from_slice(&(len as u64).to_le_bytes());
    bytes
}

/// Sort, name, length and the bytes that came along.
fn parse(bytes: &[u8]) -> Option<(Sort, Name, usize, &[u8])> {
    let (sort, rest) = bytes.split_first_chunk()?;
    let (tag, rest) = rest.split_first_chunk()?;
    let (channel, rest) = rest.split_first_chunk()?;
    let (len, rest) = rest.split_first_chunk()?;
    let sort = match u32::from_le_bytes(*sort) {
        0 => Sort::Inline,
        1 => Sort::Body,
        2 => Sort::Ask,
        3 => Sort::Answer,
        4 => Sort::Bye,
        5 => Sort::Fin,
        _ => return None,
    };
    let name = (u64::from_le_bytes(*channel), u32::from_le_bytes(*tag));
    Some((sort, name, usize::try_from(u64::from_le_bytes(*len)).ok()?, rest))
}

/// A message on its way to here.
enum Coming {
    Body(Name, Flight),
    Whole(Name, Vec<u8>),
}

/// What is known of another rank.
struct Peer {
    /// In the order in which they were sent.
    coming: VecDeque<Coming>,
    /// It has said good-bye.
    bye: bool,
    /// It is in MPI_Finalize.
    fin: bool,
    /// Everybody here knows that.
    ended: bool,
    gone: bool,
}

impl Peer {
    /// It wants nothing more and all that it has sent is here, or it is gone.
    fn over(&self) -> bool {
        self.gone || (self.waits_for_nothing() && self.coming.is_empty())
    }

    /// It leaves as soon as it hears the same of us: what is sent to it after that may find nobody, and never be gone.
    fn waits_for_nothing(&self) -> bool {
        self.bye || self.fin
    }
}

/// Whose turn it is to call MPI. In MPI_Finalize some MPIs no longer keep threads apart, and there may be several fabrics.
static TURN: Mutex<()> = Mutex::new(());

pub(crate) struct Progress {
    comm: Comm,
    post: Arc<Post>,
    peers: Vec<Peer>,
    /// Rooms for heads, which fill them in order.
    rooms: VecDeque<Flight>,
    /// Receiver, bytes that senders wait for, and the transfer.
    going: Vec<(usize, usize, Flight)>,
    silence: Silence,
    /// All others were told that we want nothing more.
    said: bool,
}

impl Progress {
    pub(crate) fn new(comm: Comm, post: Arc<Post>, silence: Duration) -> Progress {
        let peer =
            || Peer { coming: VecDeque::new(), bye: false, fin: false, ended: false, gone: false };
        let peers = (0..post.size).map(|_| peer()).collect();
        let silence = Silence::new(post.size, silence, clock::now());
        let (rooms, going) = (VecDeque::new(), Vec::new());
        Progress { comm, post, peers, rooms, going, silence, said: false }
    }

    /// Until everybody is done with the fabric, or MPI ends.
    pub(crate) fn run(mut self) {
        let mut moved = clock::now();
        let mut pause = Duration::ZERO;
        let (mut said_bye, mut said_fin) = (false, false);
        // To be said in time by all, so that all know of it or none does.
        let mut together = true;
        loop {
            let mut orders = self.post.orders(pause, clock::now());
            let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
            // Who begins to wait often waits for what comes at once.
            let mut busy = !orders.letters.is_empty() || orders.begun;
            for letter in orders.letters {
                self.dispatch(letter);
            }
            busy |= self.flush();
            busy |= self.collect();
            if orders.closing && !said_bye {
                said_bye = true;
                self.tell(Sort::Bye);
            }
            // Ranks that come to the end first go on to answer the others: all come there.
            if orders.stopping && !said_fin {
                said_fin = true;
                if !said_bye {
                    together = false;
                    self.tell(Sort::Fin);
                }
            }
            if said_bye || said_fin {
                let left: Vec<usize> = self.others().filter(|r| !self.peers[*r].over()).collect();
                if left.is_empty() {
                    // Nothing that is waited for is in what does not go, as to somebody who was killed.
                    let idle = clock::now().saturating_duration_since(moved);
                    let stuck = !self.going.is_empty();
                    if !stuck || idle > self.silence.limit() {
                        together &= !stuck;
                        break;
                    }
                }
                orders.watched.extend(left.iter().filter(|_| said_fin));
            }
            if self.post.is_given_up() {
                break;
            }
            // Who is to get much is waited for, too: one that is stopped must not keep the others from being sent to.
            orders
                .watched
                .extend(self.going.iter().filter(|going| going.1 > 0).map(|going| going.0));
            let now = clock::now();
            self.look_after(&orders.watched, now);
            drop(turn);
            if busy {
                moved = now;
            } else if now.saturating_duration_since(moved) > pace::QUIET {
                self.post.spares.free();
            }
            let awaited = match (orders.expected, orders.listened || said_fin) {
                (true, _) => Awaited::Somebody,
                (false, true) => Awaited::Anybody,
                (false, false) => Awaited::Nobody,
            };
            pause = self.pause(now.saturating_duration_since(moved), awaited);
        }
        let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
        // All that would call MPI when it is dropped.
        self.going.clear();
        self.rooms.clear();
        self.peers.iter_mut().for_each(|peer| peer.coming.clear());
        // It is for all ranks together: one that is gone, or was in MPI_Finalize before, does not take part. Who has said
        // good-bye does, but may be stopped since: where MPI waits for it, that is not to keep other fabrics waiting.
        let turn = if said_fin {
            Some(turn)
        } else {
            drop(turn);
            None
        };
        let all = |rank: usize| self.peers[rank].bye && !self.peers[rank].fin;
        if together && said_bye && !self.post.is_given_up() && self.others().all(all) {
            self.post.leave();
            let _ = self.comm.free();
        }
        drop(turn);
    }

    fn others(&self) -> impl Iterator<Item = usize> + use<> {
        let rank = self.post.rank;
        (0..self.post.size).filter(move |r| *r != rank)
    }

    fn tell(&mut self, sort: Sort) {
        self.others().for_each(|rank| self.signal(rank, sort));
        self.said = true;
    }

    /// We have told each other that nothing more is wanted.
    fn is_parted_from(&self, rank: usize) -> bool {
        self.said && self.peers.get(rank).is_some_and(Peer::waits_for_nothing)
    }

    /// How long to sleep when nothing has moved for `idle`.
    fn pause(&self, idle: Duration, awaited: Awaited) -> Duration {
        let moving = !self.going.is_empty() || self.peers.iter().any(|p| !p.coming.is_empty());
        let pause = pace::pause(idle, moving, awaited);
        if pause.is_zero() {
            // MPI moves bytes only while it is called; others may run.
            std::thread::yield_now();
        }
        pause
    }

    /// A rank is gone: nothing will come from it or go to it.
    fn lose(&mut self, rank: usize, why: &str) {
        self.post.boxes.gone(rank, why);
        let Some(peer) = self.peers.get_mut(rank) else { return };
        peer.gone = true;
        peer.coming.clear();
        let post = &self.post;
        self.going.retain(|(to, bytes, _)| {
            if *to == rank {
                post.sent(rank, *bytes);
            }
            *to != rank
        });
    }

    fn fails(&mut self, rank: usize, error: &Error) {
        self.lose(rank, error.message());
    }

    fn begin(&mut self, to: usize, counts: usize, tag: i32, bytes: Vec<u8>) -> Result<()> {
        let flight = self.comm.send(to, tag, bytes)?;
        self.going.push((to, counts, flight));
        Ok(())
    }

    fn dispatch(&mut self, letter: Letter) {
        let Letter { to, channel, tag, bytes } = letter;
        let name = (channel, tag);
        let len = bytes.len();
        if self.peers[to].gone || self.is_parted_from(to) {
            self.post.sent(to, len);
            return;
        }
        let begun = if len <= INLINE {
            let mut whole = head(Sort::Inline, name, len);
            whole.extend_from_slice(&bytes);
            self.begin(to, len, HEADS, whole)
        } else {
            self.begin(to, 0, HEADS, head(Sort::Body, name, len))
                .and_then(|()| self.begin(to, len, BODIES, bytes))
        };
        if let Err(error) = begun {
            self.post.sent(to, len);
            self.fails(to, &error);
        }
    }

    /// Sends a head without a message.
    fn signal(&mut self, to: usize, sort: Sort) {
        // Who has said good-bye waits for ours.
        let peer = &self.peers[to];
        if to == self.post.rank || peer.gone && !peer.bye || self.is_parted_from(to) {
            return;
        }
        if let Err(error) = self.begin(to, 0, HEADS, head(sort, (0, 0), 0)) {
            self.fails(to, &error);
        }
    }

    /// Takes note of what has gone. True if bytes of a message have: signs of life keep nobody awake.
    fn flush(&mut self) -> bool {
        let mut lost = Vec::new();
        let mut moved = false;
        let post = &self.post;
        // Whoever asks for one moves all. Bodies go one after the other, so that those behind one that has not gone are not asked for.
        let mut stuck = Vec::new();
        self.going.retain_mut(|(to, bytes, flight)| {
            let large = *bytes > INLINE;
            if large && stuck.contains(to) {
                return true;
            }
            match flight.done() {
                Ok(false) if large => stuck.push(*to),
                Ok(false) => {}
                Ok(true) => {
                    moved |= *bytes > 0;
                    post.sent(*to, *bytes);
                    post.spares.keep(flight.bytes());
                    return false;
                }
                Err(error) => {
                    post.sent(*to, *bytes);
                    lost.push((*to, error));
                    return false;
                }
            }
            true
        });
        for (rank, error) in &lost {
            self.fails(*rank, error);
        }
        moved || !lost.is_empty()
    }

    /// Takes what has come. True if something has.
    ///
    /// Heads come into rooms that are kept ready: not all MPIs let threads probe at the same time.
    fn collect(&mut self) -> bool {
        let mut any = false;
        loop {
            match self.next_head() {
                Ok(Some((from, bytes))) => {
                    let opened = match self.peers.get(from) {
                        Some(peer) if !peer.gone => self.open(from, &bytes),
                        _ => Ok(true),
                    };
                    match opened {
                        Ok(says) => any |= says,
                        Err(error) => self.fails(from, &error),
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    // MPI does not say whose fault it is.
                    self.others().for_each(|rank| self.fails(rank, &error));
                    break;
                }
            }
        }
        for from in 0..self.peers.len() {
            if !self.peers[from].coming.is_empty() {
                match self.advance(from) {
                    Ok(moved) => any |= moved,
                    Err(error) => self.fails(from, &error),
                }
            }
            let peer = &mut self.peers[from];
            // It goes on to answer others, and asks for nothing more.
            if peer.fin && !peer.ended && peer.coming.is_empty() {
                peer.ended = true;
                self.post.boxes.end(from);
            }
            if peer.bye && !peer.gone && peer.coming.is_empty() {
                peer.gone = true;
                self.post.boxes.gone(from, "the rank has ended early");
            }
        }
        any
    }

    /// The next head and its sender.
    fn next_head(&mut self) -> Result<Option<(usize, Vec<u8>)>> {
        while self.rooms.len() < ROOMS {
            self.rooms.push_back(self.comm.expect(HEADS, HEAD + INLINE)?);
        }
        let Some((from, len)) = self.rooms.front_mut().map(Flight::come).transpose()?.flatten()
        else {
            return Ok(None);
        };
        let mut bytes = self.rooms.pop_front().map(|mut room| room.bytes()).unwrap_or_default();
        bytes.truncate(len);
        Ok(Some((from, bytes)))
    }

    /// Bodies become messages, and messages are put into the mailbox, in their order.
    fn advance(&mut self, from: usize) -> Result<bool> {
        let peer = &mut self.peers[from];
        let mut moved = false;
        // Those behind a body that is not here have to wait for it anyway.
        while let Some(next) = peer.coming.pop_front() {
            let ((channel, tag), bytes) = match next {
                Coming::Whole(name, bytes) => (name, bytes),
                Coming::Body(name, mut flight) => {
                    if !flight.done()? {
                        peer.coming.push_front(Coming::Body(name, flight));
                        break;
                    }
                    moved = true;
                    (name, flight.bytes())
                }
            };
            self.post.boxes.put(from, channel, tag, bytes);
        }
        if moved {
            self.silence.heard(from, clock::now());
        }
        Ok(moved)
    }

    /// Does what a head says.
    /// True if it says more than that its rank lives.
    fn open(&mut self, from: usize, bytes: &[u8]) -> Result<bool> {
        let malformed = || Error::format("a message is malformed");
        let (sort, name, len, rest) = parse(bytes).ok_or_else(malformed)?;
        self.silence.heard(from, clock::now());
        let peer = &mut self.peers[from];
        match sort {
            Sort::Inline if rest.len() == len => {
                peer.coming.push_back(Coming::Whole(name, rest.to_vec()));
            }
            Sort::Inline => return Err(malformed()),
            Sort::Body => {
                let room = self.post.spares.room(len)?;
                let body = self.comm.recv(from, BODIES, room)?;
                peer.coming.push_back(Coming::Body(name, body));
            }
            Sort::Ask => self.signal(from, Sort::Answer),
            Sort::Answer => {}
            // Nothing else will come but bodies of what was announced.
            Sort::Bye => peer.bye = true,
            Sort::Fin => peer.fin = true,
        }
        Ok(!matches!(sort, Sort::Ask | Sort::Answer))
    }

    /// Asks ranks that are waited for whether they answer, and gives up those that have not for too long.
    fn look_after(&mut self, watched: &[usize], now: Instant) {
        let (me, peers) = (self.post.rank, &self.peers);
        let there = |rank: &usize| *rank != me && peers.get(*rank).is_some_and(|peer| !peer.gone);
        let verdicts = self.silence.look(watched.iter().copied().filter(there), now);
        for verdict in verdicts {
            match verdict {
                Verdict::Ask(rank) => self.signal(rank, Sort::Ask),
                Verdict::Gone(rank) => {
                    let s = self.silence.limit().as_secs();
                    self.lose(rank, &format!("the rank has not answered for {s} s"));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_read_as_they_were_written() {
        let mut bytes = head(Sort::Inline, (1 << 40, 7), 3);
        bytes.extend_from_slice(b"abc");
        let (sort, name, len, rest) = parse(&bytes).unwrap();
        assert!(sort == Sort::Inline);
        assert_eq!((name, len, rest), ((1 << 40, 7), 3, &b"abc"[..]));
        assert!(parse(&bytes[..HEAD - 1]).is_none());
        assert!(parse(&[9; HEAD]).is_none());
    }

    #[test]
    fn heads_with_all_that_travels_with_them_are_sent_at_once() {
        let whole = head(Sort::Inline, (1 << 40, 7), INLINE).capacity();
        // 4 KiB are the least of MPIs, and have room for what they put before it.
        assert!((HEAD + INLINE..4000).contains(&whole), "{whole} bytes");
    }
}
