//! How a reader and an agent on another node talk: a line for what is asked, and one for errands that wait for no step.

use crate::gather::PART;
use std::fmt::Debug;
use std::time::Duration;
use stead_core::{Error, Result};

/// Messages between the two, whole and in order. All may be called by any thread; one at a time waits for what comes.
pub(crate) trait Line: Debug + Send + Sync {
    /// Sends a message.
    ///
    /// # Errors
    /// `Peer` if the other end is gone.
    fn send(&self, message: Vec<u8>) -> Result<()>;

    /// The next message; `None` if none comes within this time, or a signal comes before.
    ///
    /// # Errors
    /// As [`Line::send`].
    fn recv_within(&self, time: Duration) -> Result<Option<Vec<u8>>>;

    /// True when nothing will be asked by it any more.
    fn ends(&self) -> bool;

    /// An error in a process that was forked since the line was made.
    fn check(&self) -> Result<()>;

    /// The error, with whom it is about.
    fn by(&self, error: Error) -> Error;

    /// Bytes of a part of a block that is fetched by it.
    fn part(&self) -> usize {
        PART
    }

    /// Empty memory for a message of so many bytes.
    fn memory(&self, len: usize) -> Vec<u8> {
        Vec::with_capacity(len)
    }

    /// A message that has come is not looked at any more: its memory may be that of another one.
    fn give_back(&self, _message: Vec<u8>) {}

    /// No more messages are to come for now: their memory is of no use.
    fn rest(&self) {}
}

/// That a process has lines which are its parent's.
pub(crate) fn forked() -> Error {
    Error::usage("streams of other nodes were opened before this process was forked")
        .with_hint("open them in the process that uses them")
}
