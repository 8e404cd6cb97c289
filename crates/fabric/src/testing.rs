//! A fabric for tests, which stands between a rank and another fabric and does to what goes by what it is told.

use crate::{Fabric, Rounds};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use stead_core::Result;

/// How often who waits for a message is checked.
const LOOK: Duration = Duration::from_millis(20);

/// What is done to what goes by; nothing, unless told otherwise.
pub trait Meddle: Send + Sync {
    /// Asked before and after everything; an error of it is that of the fabric: the rank has died.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// The messages that are sent in place of this one.
    fn send(&self, _to: usize, _tag: u32, bytes: Vec<u8>) -> Vec<Vec<u8>> {
        vec![bytes]
    }

    /// A message was taken from its mailbox.
    fn taken(&self, _tag: u32, _bytes: &[u8]) {}
}

/// See the module's documentation.
pub struct Between<M> {
    inner: Arc<dyn Fabric>,
    /// What it does.
    pub meddle: M,
}

impl<M: Meddle> Between<M> {
    /// Does so to what goes to this fabric.
    pub fn new(inner: Arc<dyn Fabric>, meddle: M) -> Between<M> {
        Between { inner, meddle }
    }
}

impl<M: Meddle> Fabric for Between<M> {
    fn rank(&self) -> usize {
        self.inner.rank()
    }

    fn size(&self) -> usize {
        self.inner.size()
    }

    fn node_of(&self, rank: usize) -> usize {
        self.inner.node_of(rank)
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        self.meddle.check()?;
        self.meddle.send(to, tag, bytes).into_iter().try_for_each(|b| self.inner.send(to, tag, b))
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.meddle.check()?;
        let got = self.inner.recv_within(from, tag, within)?;
        if let Some(bytes) = &got {
            self.meddle.taken(tag, bytes);
        }
        Ok(got)
    }

    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        let mut left = within;
        loop {
            self.meddle.check()?;
            let got = self.inner.recv_any(tag, left.min(LOOK))?;
            if let Some((_, bytes)) = &got {
                self.meddle.taken(tag, bytes);
            }
            self.meddle.check()?;
            left = left.saturating_sub(LOOK);
            if got.is_some() || left.is_zero() {
                return Ok(got);
            }
        }
    }

    fn alive(&self, rank: usize) -> Result<()> {
        self.meddle.check()?;
        self.inner.alive(rank)
    }

    fn ends(&self, rank: usize) -> bool {
        self.inner.ends(rank)
    }

    fn rounds(&self) -> &Rounds {
        self.inner.rounds()
    }

    fn forget(&self, tags: Range<u32>) {
        self.inner.forget(tags);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Local;

    struct Nothing;

    impl Meddle for Nothing {}

    #[test]
    fn who_stands_between_and_does_nothing_is_not_noticed() {
        let ranks = Local::over_nodes(&[0, 1, 0], Duration::from_secs(60));
        let between = |rank| Between::new(Arc::new(rank), Nothing);
        crate::conformance::check(ranks.into_iter().map(between).collect());
    }
}
