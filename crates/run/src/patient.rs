//! A fabric for ranks that work for as long as they need.

use crate::pass::Observer;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stead_core::{Cancel, Result};
use stead_fabric::{Fabric, Rounds};

/// How often who waits looks whether the other one lives and nobody has stopped the run.
const LOOK: Duration = Duration::from_millis(100);

/// Waits for a message as long as its sender lives: a share of a scan may take hours. Counts what it sends.
pub struct Patient<'a> {
    inner: &'a dyn Fabric,
    cancel: Cancel,
    observer: Option<&'a dyn Observer>,
    sent: AtomicU64,
}

impl<'a> Patient<'a> {
    pub fn new(
        inner: &'a dyn Fabric,
        cancel: &Cancel,
        observer: Option<&'a dyn Observer>,
    ) -> Patient<'a> {
        Patient { inner, cancel: cancel.clone(), observer, sent: AtomicU64::new(0) }
    }

    /// The fabric as it is, for what is not waited for in this way.
    pub fn inner(&self) -> &'a dyn Fabric {
        self.inner
    }

    /// Bytes sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }
}

impl Fabric for Patient<'_> {
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
        self.sent.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.inner.send(to, tag, bytes)
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.inner.recv_within(from, tag, within)
    }

    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.inner.recv_any(tag, within)
    }

    fn alive(&self, rank: usize) -> Result<()> {
        self.inner.alive(rank)
    }

    fn rounds(&self) -> &Rounds {
        self.inner.rounds()
    }

    fn forget(&self, tags: Range<u32>) {
        self.inner.forget(tags);
    }

    fn recv(&self, from: usize, tag: u32) -> Result<Vec<u8>> {
        loop {
            if let Some(bytes) = self.inner.recv_within(from, tag, LOOK)? {
                return Ok(bytes);
            }
            if let Some(observer) = self.observer {
                observer.waits();
            }
            self.cancel.check()?;
            self.inner.alive(from)?;
        }
    }
}
