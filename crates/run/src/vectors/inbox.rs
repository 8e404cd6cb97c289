//! The side that asks: vectors of all storage ranks, as a scan.

use super::{
    ASKS, LEAST, LOOK, Say, Sending, Tell, Turn, VECTORS, WINDOW, WINDOWS, decode, encode,
};
use crate::news::News;
use std::collections::BTreeSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Block, Cancel, Error, Needs, Result, Value};
use stead_fabric::Fabric;
use stead_format::vectors::Vector;
use stead_format::{Progress, Scan, Traffic, Worker};

/// What the storage ranks send in one pass. Its workers take from one queue, in whatever order it comes.
pub struct Inbox<'i> {
    fabric: &'i dyn Fabric,
    turn: Turn,
    needs: Needs,
    /// Files of the dataset.
    sources: usize,
    storage: BTreeSet<usize>,
    news: &'i News<'i>,
    cancel: &'i Cancel,
    /// Bytes that have come.
    came: &'i AtomicU64,
    /// Storage ranks that have more.
    left: Mutex<BTreeSet<usize>>,
    /// Nothing was read here.
    progress: Progress,
}

impl<'i> Inbox<'i> {
    /// Tells the storage ranks for how many vectors there is room.
    ///
    /// # Errors
    /// `Peer` if one is gone.
    pub fn open(
        fabric: &'i dyn Fabric,
        of: &Sending,
        turn: Turn,
        (needs, sources): (Needs, usize),
        news: &'i News<'i>,
        cancel: &'i Cancel,
        came: &'i AtomicU64,
    ) -> Result<Inbox<'i>> {
        let storage: BTreeSet<usize> = of.ranks(true).collect();
        let room = (WINDOWS / storage.len().max(1)).max(LEAST);
        let room = Say::Room(u32::try_from(room).unwrap_or(1));
        storage.iter().try_for_each(|rank| fabric.send(*rank, ASKS, encode(turn, &room)))?;
        let left = Mutex::new(storage.clone());
        let progress = Progress::default();
        Ok(Inbox { fabric, turn, needs, sources, storage, news, cancel, came, left, progress })
    }

    /// Waits for a frame with a vector, of some rank; `None` if no more come.
    fn next(&self) -> Result<Option<(usize, Vec<u8>)>> {
        loop {
            self.cancel.check()?;
            if self.news.stopped() == Some((None, None)) {
                return Err(Error::cancelled());
            }
            // One thread listens at a time, and not for long: the others wait for it.
            let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
            if left.is_empty() {
                return Ok(None);
            }
            let Some((from, frame)) = self.fabric.recv_any(VECTORS, LOOK)? else {
                left.iter().try_for_each(|rank| self.fabric.alive(*rank))?;
                drop(left);
                self.news.hear(Duration::ZERO);
                continue;
            };
            match decode(self.turn, &frame) {
                Some((Tell::End, _)) => drop(left.remove(&from)),
                Some((Tell::Vector, _)) if self.storage.contains(&from) => {
                    drop(left);
                    // There is room again.
                    self.fabric.send(from, ASKS, encode(self.turn, &Say::Room(1)))?;
                    Traffic::add(self.came, frame.len());
                    return Ok(Some((from, frame)));
                }
                // What is left of another pass, and of nobody of this program.
                _ => {}
            }
        }
    }
}

impl Scan for Inbox<'_> {
    fn worker(&self) -> Result<Box<dyn Worker + '_>> {
        Ok(Box::new(Receiver { inbox: self, vector: Vector::default() }))
    }

    fn progress(&self) -> &Progress {
        &self.progress
    }

    fn total_bytes(&self) -> u64 {
        0
    }

    fn plan(&self) -> Vec<(String, Value)> {
        vec![
            (
                "columns_sent".into(),
                Value::Int((self.needs.numbers.len() + self.needs.texts.len()) as u64),
            ),
            ("window_bytes".into(), Value::Int(WINDOW as u64)),
        ]
    }
}

struct Receiver<'r> {
    inbox: &'r Inbox<'r>,
    vector: Vector,
}

impl Worker for Receiver<'_> {
    fn next(&mut self) -> Result<Option<Block<'_>>> {
        let inbox = self.inbox;
        let Some((from, frame)) = inbox.next()? else { return Ok(None) };
        let (_, bytes): (Tell, _) = decode(inbox.turn, &frame)
            .ok_or_else(|| Error::internal("a vector of another pass"))?;
        self.vector.decode(bytes, &inbox.needs).map_err(|e| e.at_rank(from))?;
        if self.vector.source() as usize >= inbox.sources {
            let message = "columns that another rank has sent are of a file that there is not";
            return Err(Error::format(message).at_rank(from));
        }
        Ok(Some(self.vector.block(&inbox.needs)))
    }
}
