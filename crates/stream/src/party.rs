//! What writers and readers have in common: a stream that they take part in, its lock, and waiting with an end.

use crate::board::{Board, Guard, Standing, State};
use crate::clock;
use crate::home::{self, Found, Home};
use crate::memory::{Shared, is_alive};
use crate::options::Stop;
use crate::words::Who;
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};

/// After so long without anything it is looked whether those live who are waited for.
const LOOK: Duration = Duration::from_millis(250);

/// Somebody who takes part in a stream.
#[derive(Debug)]
pub(crate) struct Party {
    pub(crate) name: String,
    pub(crate) home: Home,
    pub(crate) board: Board<Shared>,
    me: Who,
    timeout: Duration,
    pub(crate) stop: Stop,
}

impl Party {
    /// With how long it waits, and what ends that.
    pub(crate) fn new(
        name: &str,
        home: Home,
        found: Found,
        me: Who,
        (timeout, stop): (Duration, &Stop),
    ) -> Party {
        let (name, board, stop) = (name.to_owned(), found.board, stop.clone());
        Party { name, home, board, me, timeout, stop }
    }

    /// False in a process that was forked since: its parent takes part, and it does not.
    pub(crate) fn is_mine(&self) -> bool {
        std::process::id() == self.me.number
    }

    /// The lock of the board.
    ///
    /// # Errors
    /// `Timeout`; `Usage` in a process that was forked.
    pub(crate) fn lock(&self) -> Result<Guard<'_, Shared>> {
        if !self.is_mine() {
            let message =
                format!("stream '{}' was opened before this process was forked", self.name);
            return Err(Error::usage(message).with_hint("open it in the process that uses it"));
        }
        home::lock(&self.name, &self.board, self.me)
    }

    /// When the time for a wait that begins now is over.
    pub(crate) fn deadline(&self) -> Instant {
        clock::after(self.timeout)
    }

    /// One wait for something that readers are told of, or writers, since `seen`. Now and then it is looked who has ended.
    ///
    /// # Errors
    /// `Timeout`, with what `why` says, when the time is over; those of [`Party::lock`], and of what ends waits.
    pub(crate) fn wait(
        &self,
        seen: Seen,
        until: Instant,
        why: impl FnOnce() -> String,
    ) -> Result<()> {
        self.stop.check()?;
        let begun = clock::now();
        let left = until.saturating_duration_since(begun);
        if left.is_zero() {
            return Err(Error::new(Kind::Timeout, why()).with_hint(
                "is somebody stopped, or waiting for something else? a longer timeout can be given",
            ));
        }
        let time = left.min(LOOK);
        loop {
            let slept = begun.elapsed();
            if slept >= time {
                // One of all who wait does so for the others: it asks for each process.
                let now = clock::since_1970();
                if self.board.is_look_due(now, LOOK) {
                    let guard = self.lock()?;
                    self.board.looks(&guard, now);
                    self.board.reap(&guard, &is_alive);
                }
                return Ok(());
            }
            let share = self.stop.at_most(time.saturating_sub(slept));
            match seen {
                Seen::Reader(seen) => self.board.sleep_as_reader(seen, share),
                Seen::Writer(seen) => self.board.sleep_as_writer(seen, share),
            }
            if begun.elapsed().saturating_sub(slept) < share {
                // Somebody has woken it, or a signal has.
                return Ok(());
            }
            self.stop.check()?;
        }
    }

    /// Why there are no more steps, as an error; `None` if all writers have closed it, in order.
    pub(crate) fn over(&self, state: State) -> Option<Error> {
        let name = &self.name;
        let complete = match self.board.complete() {
            0 => "before a step was complete".to_owned(),
            n => format!("after step {}", n - 1),
        };
        match state {
            State::Live | State::Ended => None,
            State::Removed => Some(
                Error::new(Kind::Peer, format!("stream '{name}' was removed, {complete}"))
                    .with_hint("somebody ran `stead stream rm`, or its like"),
            ),
            State::Failed(writer) if writer >= self.board.writers() => {
                let writer = writer - self.board.writers();
                let message = format!(
                    "writer {writer} of stream '{name}', on another node, has closed it before the others or within a step, or was killed, {complete}"
                );
                Some(Error::new(Kind::Peer, message).with_hint(
                    "steps that are complete can be read; see what that writer has said",
                ))
            }
            State::Failed(writer) => {
                let seat = self.board.writer(writer);
                let writer = seat.rank;
                let how = match seat.standing {
                    Standing::Died => {
                        format!("has ended without closing it (process {})", seat.who.number)
                    }
                    Standing::Awaited => "has never come, and the others have ended".to_owned(),
                    _ => "has closed it before the others, or within a step".to_owned(),
                };
                let message = format!("writer {writer} of stream '{name}' {how}, {complete}");
                Some(Error::new(Kind::Peer, message).with_hint(
                    "steps that are complete can be read; see what that writer has said",
                ))
            }
        }
    }
}

/// What was seen before it was looked whether there is anything: changes since then end the wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Seen {
    Reader(u32),
    Writer(u32),
}
