//! The side that has the data: blocks of its scan become vectors for those who have room.

use super::{ASKS, LOOK, MOST, Say, Sending, Tell, Turn, VECTORS, WINDOW, decode, encode};
use crate::news::News;
use crate::pass::Keep;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Block, Cancel, Error, Needs, Result};
use stead_fabric::Fabric;
use stead_format::{Traffic, vectors};

/// Takes blocks, each of which goes to one rank.
pub struct Outbox<'o> {
    fabric: &'o dyn Fabric,
    turn: Turn,
    needs: &'o Needs,
    news: &'o News<'o>,
    cancel: &'o Cancel,
    /// Bytes that were sent.
    sent: &'o AtomicU64,
    asked: Mutex<Asked>,
}

/// What was asked for.
struct Asked {
    /// Who has room, for as many vectors as a rank is in it, in the order in which it was said.
    room: VecDeque<usize>,
    /// For how many each has.
    each: BTreeMap<usize, usize>,
    /// Those that want vectors.
    wanting: BTreeSet<usize>,
}

impl<'o> Outbox<'o> {
    /// `needs` are those of the kernels: what the filter alone looks at does not go.
    pub fn new(
        fabric: &'o dyn Fabric,
        of: &Sending,
        turn: Turn,
        needs: &'o Needs,
        news: &'o News<'o>,
        cancel: &'o Cancel,
        sent: &'o AtomicU64,
    ) -> Outbox<'o> {
        let wanting = of.ranks(false).collect();
        let asked = Asked { room: VecDeque::new(), each: BTreeMap::new(), wanting };
        Outbox { fabric, turn, needs, news, cancel, sent, asked: Mutex::new(asked) }
    }

    /// Waits for a rank that has room for a vector; `None` if nobody wants any more.
    fn next(&self) -> Result<Option<usize>> {
        loop {
            // One thread listens at a time, and not for long: the others wait for it.
            let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
            if asked.wanting.is_empty() {
                return Ok(None);
            }
            while let Some(to) = asked.room.pop_front() {
                asked.each.entry(to).and_modify(|n| *n = n.saturating_sub(1));
                if asked.wanting.contains(&to) {
                    return Ok(Some(to));
                }
            }
            let heard = self.fabric.recv_any(ASKS, LOOK)?;
            match heard.as_ref().map(|(from, frame)| (*from, decode(self.turn, frame))) {
                Some((from, Some((said, _)))) => asked.heard(from, said),
                // What is left of another pass.
                Some(_) => {}
                None => asked.wanting.iter().try_for_each(|rank| self.fabric.alive(*rank))?,
            }
            drop(asked);
            self.cancel.check()?;
            if self.news.hear(Duration::ZERO) && self.news.stopped() == Some((None, None)) {
                return Err(Error::cancelled());
            }
        }
    }
}

impl Asked {
    fn heard(&mut self, from: usize, said: Say) {
        match said {
            Say::Room(more) if self.wanting.contains(&from) => {
                let has = self.each.entry(from).or_default();
                let more = usize::try_from(more).unwrap_or(MOST).min(MOST.saturating_sub(*has));
                *has += more;
                self.room.extend(std::iter::repeat_n(from, more));
            }
            Say::Room(_) => {}
            Say::Over => drop(self.wanting.remove(&from)),
        }
    }
}

impl Keep for Outbox<'_> {
    fn keep(&self, block: &Block<'_>) -> Result<()> {
        for rows in vectors::cut(block, self.needs, WINDOW) {
            let mut frame = encode(self.turn, &Tell::Vector);
            vectors::encode(block, rows, self.needs, &mut frame)?;
            // The rest of the scan may still find an error that comes earlier than what others have failed at.
            let Some(to) = self.next()? else { return Ok(()) };
            let bytes = frame.len();
            self.fabric.send(to, VECTORS, frame)?;
            Traffic::add(self.sent, bytes);
        }
        Ok(())
    }
}
