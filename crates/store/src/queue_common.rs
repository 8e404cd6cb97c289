//! Blocks that processes read together, in a queue of reads.

use super::{ReadQueue, Slot, State};
use crate::Source;
use crate::buffer::{Buffer, Pages, Repr};
use crate::commons::{Asked, Berth, Commons};
use std::sync::Arc;
use stead_core::Result;

impl ReadQueue {
    /// From now on blocks are read together with other processes: extents are blocks of the file of `commons`, all of one
    /// source.
    pub fn share(&mut self, commons: Option<Arc<Commons>>) {
        self.commons = commons;
    }

    /// Bytes that another process reads, or that are read here after all. Nothing is claimed that has not been read.
    pub(super) fn await_other(
        &mut self,
        source: &Arc<dyn Source>,
        offset: u64,
        len: usize,
    ) -> Result<Buffer> {
        let pages = match self.commons.as_ref().map(|commons| commons.wait(offset, len)) {
            Some(Asked::Ready(berth)) => return Ok(common(berth, len)),
            Some(Asked::Read(berth)) => Some(Pages::Common(berth)),
            Some(Asked::Awaited | Asked::Alone) | None => None,
        };
        let direct = match source.file() {
            Some(file) if self.direct => Some(self.reopen(source, file)?),
            _ => None,
        };
        let state = direct.map_or(State::Waiting, State::WaitingDirect);
        Ok(self.bring(source, offset, len, state, pages)?.into_buffer(len))
    }

    /// Reads all that other processes may wait for.
    pub(super) fn settle_claims(&mut self) -> Result<()> {
        for index in 0..self.slots.len() {
            if !self.slots.get(index).is_some_and(Slot::is_claimed) {
                continue;
            }
            while matches!(self.slots.get(index), Some(Slot { state: State::Flying(_), .. })) {
                self.harvest(true)?;
            }
            let Some(slot) = self.slots.get_mut(index) else { break };
            if !slot.is_claimed() {
                continue;
            }
            let state = std::mem::replace(&mut slot.state, State::Waiting);
            let (source, pages) = (slot.source.clone(), slot.pages.take());
            let (offset, len) = (slot.offset, slot.len);
            let state = match self.bring(&source, offset, len, state, pages) {
                Ok(flight) => {
                    self.flying += 1;
                    State::Landed(flight)
                }
                Err(error) => State::Lost(error),
            };
            if let Some(slot) = self.slots.get_mut(index) {
                slot.state = state;
            }
        }
        Ok(())
    }
}

impl Slot {
    /// True if another process may wait for it.
    fn is_claimed(&self) -> bool {
        let flight = match &self.state {
            State::Flying(flight) | State::Landed(flight) | State::Failed(flight, _) => {
                Some(flight)
            }
            _ => None,
        };
        flight.map(|f| &f.pages).or(self.pages.as_ref()).is_some_and(Pages::is_claimed)
    }
}

/// What all processes look at.
pub(super) fn common(berth: Berth, len: usize) -> Buffer {
    Buffer(Repr::Owned { pages: Pages::Common(berth), skip: 0, len })
}
