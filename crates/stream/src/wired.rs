//! Lines over connections that somebody else has made, such as daemons that are a pool: each message is its length, in eight bytes with
//! the lowest first, and its bytes.

use crate::clock;
use crate::gather::PART;
use crate::line::{Line, forked};
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use stead_core::{Cancel, Error, Kind, Result};
use stead_fabric::Spares;

/// Bytes before each message.
const HEAD: usize = 8;
/// Memory is taken for so many bytes that have not come: whoever says that there will be more has to send them.
const TRUSTED: usize = 4 << 20;
/// Bytes of messages that are over which are kept for the next ones: as many as a reader has on their way.
const KEPT: usize = 4 << 20;
/// Whoever takes nothing for so long is gone.
const TAKEN_WITHIN: Duration = Duration::from_secs(120);

/// What has come of a message.
#[derive(Debug, Default)]
struct Coming {
    head: [u8; HEAD],
    of_head: usize,
    /// As much of it as there is memory for yet, of which so many bytes are here.
    body: Vec<u8>,
    have: usize,
}

/// A line over a connection.
#[derive(Debug)]
pub(crate) struct Wired {
    stream: UnixStream,
    /// Whose other end it is, for errors.
    node: String,
    sending: Mutex<()>,
    coming: Mutex<Coming>,
    spares: Spares,
    /// Bytes of a message that comes, at most.
    most: u64,
    /// Nothing more is to be done for who is there.
    ending: Option<Cancel>,
    process: u32,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Wired {
    /// Over a connection whose other end is on this node; it ends when that is cancelled. Whoever sends messages of more than `most` bytes
    /// is not heard any further.
    pub(crate) fn new(
        stream: UnixStream,
        node: String,
        most: u64,
        ending: Option<Cancel>,
    ) -> Result<Wired> {
        let set = stream
            .set_nonblocking(false)
            .and_then(|()| stream.set_write_timeout(Some(TAKEN_WITHIN)));
        set.map_err(|e| Error::io("set up", "a connection", e))?;
        let (sending, coming, spares) = (Mutex::default(), Mutex::default(), Spares::new(KEPT));
        let process = std::process::id();
        Ok(Wired { stream, node, sending, coming, spares, most, ending, process })
    }

    fn gone(&self, why: &str) -> Error {
        Error::new(Kind::Peer, format!("node '{}' has {why} in the middle of a stream", self.node))
            .with_hint("its daemon, or the connection to it, has ended: open the stream anew")
    }

    /// Reads some bytes of what is there before this time; none if nothing is, or a signal comes, by which who waits may be told to stop.
    fn some(&self, to: &mut [u8], until: Instant) -> Result<usize> {
        loop {
            let left = until.saturating_duration_since(clock::now());
            // No time at all would be for ever.
            let time = left.max(Duration::from_micros(1));
            let set = self.stream.set_read_timeout(Some(time));
            set.map_err(|e| Error::io("wait for", "a connection", e))?;
            match (&self.stream).read(to) {
                Ok(0) => return Err(self.gone("closed the connection")),
                Ok(n) => return Ok(n),
                Err(e) if e.kind() == ErrorKind::Interrupted => return Ok(0),
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    if left.is_zero() {
                        return Ok(0);
                    }
                }
                Err(e) => return Err(self.gone(&format!("ended ({e})"))),
            }
        }
    }
}

impl Coming {
    /// Reads on. False if nothing came in time.
    fn read(&mut self, line: &Wired, until: Instant) -> Result<bool> {
        if self.of_head < HEAD {
            let n = line.some(self.head.get_mut(self.of_head..).unwrap_or(&mut []), until)?;
            self.of_head += n;
            return Ok(n > 0);
        }
        let len = Some(u64::from_le_bytes(self.head)).filter(|len| *len <= line.most);
        let len = len.and_then(|len| usize::try_from(len).ok());
        let len = len.ok_or_else(|| line.gone("sent what is no message"))?;
        if self.have == self.body.len() {
            let more = len.saturating_sub(self.have).min(TRUSTED.max(self.have));
            if self.have == 0 {
                self.body = line.spares.room(more)?;
            } else {
                let room = self.body.try_reserve(more);
                room.map_err(|_| Error::limit(format!("there is no memory for {len} bytes")))?;
                self.body.resize(self.have + more, 0);
            }
        }
        let n = line.some(self.body.get_mut(self.have..).unwrap_or(&mut []), until)?;
        self.have += n;
        Ok(n > 0)
    }

    /// The message, if all of it has come.
    fn whole(&mut self) -> Option<Vec<u8>> {
        let is_whole = self.of_head == HEAD && u64::from_le_bytes(self.head) == self.have as u64;
        is_whole.then(|| {
            (self.of_head, self.have) = (0, 0);
            std::mem::take(&mut self.body)
        })
    }
}

/// A message, as it goes over a connection.
pub(crate) fn said(message: &[u8]) -> Vec<u8> {
    [&(message.len() as u64).to_le_bytes()[..], message].concat()
}

/// Writes all of these, at once where there is room: who waits for a message is not to wake up for its head alone.
fn write_all(mut to: &UnixStream, mut parts: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !parts.is_empty() {
        match to.write_vectored(parts) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(n) => IoSlice::advance_slices(&mut parts, n),
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

impl Line for Wired {
    fn send(&self, message: Vec<u8>) -> Result<()> {
        self.check()?;
        let _one = locked(&self.sending);
        let head = (message.len() as u64).to_le_bytes();
        let sent = write_all(&self.stream, &mut [IoSlice::new(&head), IoSlice::new(&message)]);
        self.spares.keep(message);
        sent.map_err(|e| {
            // A part of it may be there: nothing behind it can be told from it.
            let _ = self.stream.shutdown(std::net::Shutdown::Both);
            self.gone(&format!("ended ({e})"))
        })
    }

    fn recv_within(&self, time: Duration) -> Result<Option<Vec<u8>>> {
        let until = clock::after(time);
        let mut coming = locked(&self.coming);
        loop {
            // Whoever goes on asking is to hear of it, too.
            if self.ends() {
                return Err(self.gone("ended"));
            }
            if let Some(message) = coming.whole() {
                return Ok(Some(message));
            }
            if !coming.read(self, until)? {
                self.rest();
                return Ok(None);
            }
        }
    }

    /// A part comes through two daemons and waits for a turn of each: of more and smaller ones there is more on the way until the next is asked
    /// for. With half of 1 MiB a link of 1 Gb/s brought 113 MB/s to each of two hosts, with all of it 107; with a quarter no more than with half.
    fn part(&self) -> usize {
        PART / 2
    }

    fn memory(&self, len: usize) -> Vec<u8> {
        // Without memory there is no room in it: whoever adds to it finds out.
        self.spares.empty(len).unwrap_or_default()
    }

    fn give_back(&self, message: Vec<u8>) {
        self.spares.keep(message);
    }

    /// A reader has a line to each of many nodes.
    fn rest(&self) {
        self.spares.free();
    }

    fn ends(&self) -> bool {
        self.ending.as_ref().is_some_and(Cancel::is_cancelled)
    }

    fn check(&self) -> Result<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(forked()) }
    }

    fn by(&self, error: Error) -> Error {
        let message = format!("{} (node '{}')", error.message(), self.node);
        let told = Error::new(error.kind(), message);
        match error.hint() {
            Some(hint) => told.with_hint(hint),
            None => told,
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn pair() -> (Wired, UnixStream) {
        let (a, b) = UnixStream::pair().unwrap();
        (Wired::new(a, "n1".into(), u64::MAX, None).unwrap(), b)
    }

    #[test]
    fn messages_come_whole_and_in_order() {
        let (line, other) = pair();
        let other = Wired::new(other, "n2".into(), u64::MAX, None).unwrap();
        let large: Vec<u8> = (0..9_000_001u32).map(|i| (i % 251) as u8).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for message in [&b""[..], b"a", &large, b"", b"end"] {
                    other.send(message.to_vec()).unwrap();
                }
            });
            for message in [&b""[..], b"a", &large, b"", b"end"] {
                let came = line.recv_within(Duration::from_secs(60)).unwrap().unwrap();
                assert!(came == message);
            }
        });
        assert!(line.recv_within(Duration::from_millis(1)).unwrap().is_none());
        drop(other);
        let e = line.recv_within(Duration::from_secs(60)).unwrap_err();
        assert_eq!(e.kind(), Kind::Peer);
        assert!(e.to_string().contains("'n1'"), "{e}");
        assert_eq!(line.send(vec![1]).unwrap_err().kind(), Kind::Peer);
    }

    #[test]
    fn memory_of_messages_is_used_again() {
        const LEN: usize = 1 << 20;
        let (line, other) = pair();
        let other = Wired::new(other, "n2".into(), u64::MAX, None).unwrap();
        let comes = |n: u8| {
            let mut message = other.memory(LEN);
            let at = message.as_ptr().addr();
            message.resize(LEN, n);
            let came = std::thread::scope(|scope| {
                scope.spawn(|| other.send(message).unwrap());
                line.recv_within(Duration::from_secs(60)).unwrap().unwrap()
            });
            assert!(came.len() == LEN && came.iter().all(|byte| *byte == n));
            let both = (at, came.as_ptr().addr());
            line.give_back(came);
            both
        };
        let first = comes(1);
        assert_eq!((comes(2), comes(3)), (first, first));
        // Memory that is kept has more room than is asked for here.
        let less = || line.memory(LEN - 4096);
        let kept = less();
        assert_eq!((kept.len(), kept.capacity()), (0, LEN));
        // Nothing comes for a while, or is to come.
        line.give_back(kept);
        assert!(line.recv_within(Duration::from_millis(1)).unwrap().is_none());
        assert_eq!(less().capacity(), LEN - 4096);
        comes(4);
        line.rest();
        assert_eq!(less().capacity(), LEN - 4096);
    }

    #[test]
    fn what_comes_in_pieces_is_waited_for() {
        let (line, mut other) = pair();
        let bytes = [&3u64.to_le_bytes()[..], b"abc", &1u64.to_le_bytes(), b"d"].concat();
        for (i, byte) in bytes.iter().enumerate() {
            let came = line.recv_within(Duration::ZERO).unwrap();
            assert!(came == (i == 11).then(|| b"abc".to_vec()), "{i}");
            other.write_all(&[*byte]).unwrap();
            // As much as there is, without waiting for more.
            if i != 10 && i != 19 {
                assert!(line.recv_within(Duration::ZERO).unwrap().is_none(), "{i}");
            }
        }
        assert_eq!(line.recv_within(Duration::ZERO).unwrap().unwrap(), b"d");
    }

    #[test]
    fn a_length_that_nobody_sends_takes_no_memory() {
        let (line, mut other) = pair();
        other.write_all(&(u64::MAX >> 1).to_le_bytes()).unwrap();
        other.write_all(&[7; 100]).unwrap();
        assert!(line.recv_within(Duration::from_millis(20)).unwrap().is_none());
        assert!(locked(&line.coming).body.capacity() <= 2 * TRUSTED);
        drop(other);
        assert!(line.recv_within(Duration::from_secs(60)).is_err());
    }

    #[test]
    fn a_message_that_is_too_long_is_not_waited_for() {
        let (a, mut other) = UnixStream::pair().unwrap();
        let line = Wired::new(a, "n1".into(), 1000, None).unwrap();
        other.write_all(&[&1000u64.to_le_bytes()[..], &[1; 1000]].concat()).unwrap();
        assert_eq!(line.recv_within(Duration::from_secs(60)).unwrap().unwrap(), [1; 1000]);
        other.write_all(&1001u64.to_le_bytes()).unwrap();
        let e = line.recv_within(Duration::from_secs(60)).unwrap_err();
        assert!(e.to_string().contains("no message"), "{e}");
    }
}
