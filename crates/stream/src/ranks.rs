//! Lines between ranks of a coupling: messages of a tag.

use crate::coupling::{ANSWER, Coupling, Inner};
use crate::line::{Line, forked};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stead_core::{Error, Result};

/// From a reader to the agent of a rank. The coupling is there as long as it is.
pub(crate) struct ToAgent {
    pub(crate) coupling: Arc<Coupling>,
    pub(crate) rank: usize,
    pub(crate) tag: u32,
}

/// From an agent to a reader.
pub(crate) struct ToReader {
    pub(crate) inner: Arc<Inner>,
    pub(crate) rank: usize,
    pub(crate) tag: u32,
}

impl fmt::Debug for ToAgent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToAgent({}, {})", self.rank, self.tag)
    }
}

impl fmt::Debug for ToReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToReader({}, {})", self.rank, self.tag)
    }
}

impl Line for ToAgent {
    fn send(&self, message: Vec<u8>) -> Result<()> {
        self.check()?;
        self.coupling.fabric().send(self.rank, self.tag, message)
    }

    fn recv_within(&self, time: Duration) -> Result<Option<Vec<u8>>> {
        self.coupling.fabric().recv_within(self.rank, self.tag | ANSWER, time)
    }

    fn ends(&self) -> bool {
        self.coupling.fabric().ends(self.rank)
    }

    fn check(&self) -> Result<()> {
        if self.coupling.is_mine() { Ok(()) } else { Err(forked()) }
    }

    fn by(&self, error: Error) -> Error {
        error.at_rank(self.rank)
    }

    fn give_back(&self, message: Vec<u8>) {
        self.coupling.fabric().give_back(message);
    }
}

impl Drop for ToAgent {
    fn drop(&mut self) {
        if self.coupling.is_mine() {
            let tag = self.tag | ANSWER;
            self.coupling.fabric().forget(tag..tag + 1);
        }
    }
}

impl Line for ToReader {
    fn send(&self, message: Vec<u8>) -> Result<()> {
        self.inner.fabric.send(self.rank, self.tag | ANSWER, message)
    }

    fn recv_within(&self, time: Duration) -> Result<Option<Vec<u8>>> {
        self.inner.fabric.recv_within(self.rank, self.tag, time)
    }

    fn ends(&self) -> bool {
        self.inner.fabric.ends(self.rank)
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn by(&self, error: Error) -> Error {
        error.at_rank(self.rank)
    }

    fn memory(&self, len: usize) -> Vec<u8> {
        self.inner.fabric.memory(len)
    }
}
