//! One tunnel: the bytes of a connection, from a socket of this node to the daemon of another one and back.
//!
//! Each direction has a window: who sends more than was passed on at the other end is not listened to. So a program that does not
//! read keeps nobody waiting but the one that writes to it.

use super::TAG;
use super::word::{self, CHUNK, HEAD, Word};
use crate::refuse::refuse;
use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Result};
use stead_fabric::Fabric;

/// Bytes on their way in one direction, at most.
pub(crate) const WINDOW: usize = 2 << 20;
/// After so many bytes that were passed on the other end is told.
const TELL_AFTER: usize = WINDOW / 4;
/// So many bytes are sent in the memory that they were read into, which may be four times as many; fewer are copied to some of their own.
const LARGE: usize = CHUNK / 4;
/// Fewer are added to those that wait before them: many words of few bytes would take much more memory than the bytes.
const SMALL: usize = 4 << 10;
const STACK: usize = 128 << 10;

/// Which tunnel it is: ranks number those that they open.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Key {
    /// The rank at the other end.
    pub(super) peer: usize,
    /// It was opened here.
    pub(super) mine: bool,
    pub(super) number: u64,
}

pub(super) struct Tunnel {
    pub(super) key: Key,
    pub(super) user: u32,
    stream: UnixStream,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Not,
    /// The other end has closed it: what has come goes out.
    Soon,
    Now,
}

struct State {
    /// Bytes that may be sent.
    credit: usize,
    /// What has come and is to go out, each behind the head of its word.
    queue: VecDeque<Vec<u8>>,
    queued: usize,
    ends: Ends,
    /// Something has come from the other end.
    heard: bool,
}

impl Tunnel {
    pub(super) fn new(key: Key, user: u32, stream: UnixStream) -> Tunnel {
        let state = State {
            credit: WINDOW,
            queue: VecDeque::new(),
            queued: 0,
            ends: Ends::Not,
            heard: false,
        };
        Tunnel { key, user, stream, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Begins its threads. `first` is what is said before anything else; `then` is called when it has ended.
    ///
    /// # Errors
    /// System errors, of threads.
    pub(super) fn begin(
        self: &Arc<Self>,
        fabric: &Arc<dyn Fabric>,
        first: Option<Vec<u8>>,
        then: impl FnOnce() + Send + 'static,
    ) -> Result<()> {
        let named = |name: &str| std::thread::Builder::new().name(name.into()).stack_size(STACK);
        let failed = |e| Error::io("start a thread for", "a tunnel", e);
        let out = {
            let (tunnel, fabric) = (self.clone(), fabric.clone());
            named("stead-tunnel-out").spawn(move || tunnel.pass_out(&*fabric)).map_err(failed)?
        };
        let (tunnel, of) = (self.clone(), fabric.clone());
        let taking = named("stead-tunnel-in").spawn(move || {
            match first.map_or(Ok(()), |first| of.send(tunnel.key.peer, TAG, first)) {
                Ok(()) => tunnel.take_in(&*of),
                Err(e) => tunnel.lose(&e),
            }
            let _ = out.join();
            then();
        });
        taking.map(drop).map_err(|e| {
            self.end();
            failed(e)
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn word(&self, word: &Word<'_>) -> Vec<u8> {
        word::write(self.key.mine, self.key.number, word)
    }

    /// The word with so many bytes that were read behind its head.
    fn data(&self, mut read: Vec<u8>, n: usize) -> Vec<u8> {
        read.truncate(HEAD + n);
        word::head_of_data(&mut read, self.key.mine, self.key.number);
        read
    }

    fn say(&self, fabric: &dyn Fabric, word: &Word<'_>) -> Result<()> {
        fabric.send(self.key.peer, TAG, self.word(word))
    }

    /// From the socket to the other end, as long as there is room there.
    fn take_in(&self, fabric: &dyn Fabric) {
        // Most say little by it.
        let mut room = vec![0; HEAD + LARGE];
        while let Some(credit) = self.credit() {
            let most = HEAD + credit.min(room.len() - HEAD);
            match (&self.stream).read(room.get_mut(HEAD..most).unwrap_or_default()) {
                Ok(n) if n > 0 => {
                    let mut state = self.state();
                    state.credit = state.credit.saturating_sub(n);
                    // What comes after the other end has closed it nobody takes.
                    let taken = state.ends == Ends::Not;
                    drop(state);
                    if !taken {
                        continue;
                    }
                    let bytes = match n < LARGE {
                        true => self.word(&Word::Data(room.get(HEAD..HEAD + n).unwrap_or(&[]))),
                        false => match fabric.room(HEAD + CHUNK) {
                            Ok(next) => self.data(std::mem::replace(&mut room, next), n),
                            Err(e) => {
                                crate::log::log(&e.to_string());
                                break;
                            }
                        },
                    };
                    if fabric.send(self.key.peer, TAG, bytes).is_err() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                _ => break,
            }
        }
        // Who was told by the other end need not tell it.
        let tells = std::mem::replace(&mut self.state().ends, Ends::Now) == Ends::Not;
        if tells {
            self.end();
            let _ = self.say(fabric, &Word::Close);
        }
    }

    /// Bytes that may be sent, once there are some; none if it has ended.
    fn credit(&self) -> Option<usize> {
        let waits = |state: &mut State| state.ends == Ends::Not && state.credit == 0;
        let state = self.changed.wait_while(self.state(), waits);
        let state = state.unwrap_or_else(PoisonError::into_inner);
        match state.ends {
            Ends::Now => None,
            // The end of the socket is waited for.
            Ends::Soon => Some(CHUNK),
            Ends::Not => Some(state.credit),
        }
    }

    /// From the other end to the socket.
    fn pass_out(&self, fabric: &dyn Fabric) {
        let mut passed = 0;
        let mut taken = true;
        while let Some(bytes) = self.next() {
            let data = bytes.get(HEAD..).unwrap_or_default();
            if taken && (&self.stream).write_all(data).is_err() {
                taken = false;
                // Whoever takes in sees the end, too, and tells it.
                let _ = self.stream.shutdown(Shutdown::Both);
            }
            // What nobody takes counts, too: the other end may wait for room, and would for good if its program has ended as well.
            passed += data.len();
            fabric.give_back(bytes);
            if passed >= TELL_AFTER {
                let more = u32::try_from(passed).unwrap_or(u32::MAX);
                if self.say(fabric, &Word::Credit(more)).is_err() {
                    break;
                }
                passed = 0;
            }
        }
        // Wakes whoever takes in.
        let _ = self.stream.shutdown(Shutdown::Both);
    }

    fn next(&self) -> Option<Vec<u8>> {
        let waits = |state: &mut State| state.ends == Ends::Not && state.queue.is_empty();
        let state = self.changed.wait_while(self.state(), waits);
        let mut state = state.unwrap_or_else(PoisonError::into_inner);
        if state.ends == Ends::Now {
            return None;
        }
        let bytes = state.queue.pop_front()?;
        state.queued -= bytes.len() - HEAD;
        Some(bytes)
    }

    /// A word with data has come. False if it is more than there is room for.
    pub(super) fn put(&self, bytes: Vec<u8>) -> bool {
        let mut state = self.state();
        if state.ends != Ends::Not {
            return true;
        }
        let len = bytes.len().saturating_sub(HEAD);
        if state.queued + len > WINDOW {
            return false;
        }
        state.heard = true;
        state.queued += len;
        let fits = |last: &&mut Vec<u8>| len < SMALL && last.len() + len <= HEAD + CHUNK;
        match (state.queue.back_mut().filter(fits), bytes.get(HEAD..)) {
            (Some(last), Some(data)) => last.extend_from_slice(data),
            _ => state.queue.push_back(bytes),
        }
        drop(state);
        self.changed.notify_all();
        true
    }

    /// The other end has passed on so many bytes. False if there are no more such.
    pub(super) fn give_credit(&self, more: u32) -> bool {
        let mut state = self.state();
        let credit = state.credit.saturating_add(more as usize);
        if credit > WINDOW {
            return false;
        }
        state.credit = credit;
        drop(state);
        self.changed.notify_all();
        true
    }

    /// The other end has closed it: what has come still goes out.
    pub(super) fn closed(&self) {
        let mut state = self.state();
        if state.ends == Ends::Not {
            state.ends = Ends::Soon;
        }
        state.heard = true;
        drop(state);
        self.changed.notify_all();
    }

    /// Ends it here, whatever is still to be passed on.
    pub(super) fn end(&self) {
        self.state().ends = Ends::Now;
        let _ = self.stream.shutdown(Shutdown::Both);
        self.changed.notify_all();
    }

    /// The other end is gone. A program that has heard nothing yet is told why.
    pub(super) fn lose(&self, e: &Error) {
        let heard = std::mem::replace(&mut self.state().heard, true);
        if self.key.mine && !heard {
            refuse(&self.stream, e);
        }
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_in_single_bytes_takes_no_more_than_what_comes_at_once() {
        let (near, _far) = UnixStream::pair().unwrap();
        let key = Key { peer: 1, mine: true, number: 7 };
        let tunnel = Tunnel::new(key, 0, near);
        for i in 0..100_000u32 {
            let data = [i as u8];
            assert!(tunnel.put(word::write(true, 7, &Word::Data(&data))));
        }
        assert!(tunnel.state().queue.len() <= 100_000 / CHUNK + 1);
        let mut got = Vec::new();
        while got.len() < 100_000 {
            got.extend_from_slice(&tunnel.next().unwrap()[HEAD..]);
        }
        assert!(got.iter().zip(0u32..).all(|(byte, i)| *byte == i as u8));
        assert_eq!(tunnel.state().queued, 0);
    }
}
