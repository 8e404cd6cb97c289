//! A pass in which those that have the data read and parse them, and those that ask compute: what moves are the columns that
//! the kernels look at, as binary numbers (`stead_format::vectors`), of the records that the filter has left.
//!
//! Each rank that asks tells each storage rank for how many vectors it has room (`inbox`), and tells it again with each that
//! comes, so that many are under way and memory is bounded. A storage rank sends a vector to whoever has had room for
//! longest, and parses no further while nobody has any (`outbox`): so who computes faster gets more. When it has sent all, or
//! has failed, it says so; whoever has failed on the other side says that it wants no more.
//!
//! The states are the same whoever has which vector, as in a split. Later passes are over what each rank has got and kept in
//! memory, if all ranks could keep all of it; else it is asked for again.

mod inbox;
mod outbox;

pub use inbox::Inbox;
pub use outbox::Outbox;

use serde::{Deserialize, Serialize};
use std::time::Duration;
use stead_core::Needs;
use stead_fabric::Fabric;
use stead_format::vectors;

/// Tags of what is said to storage ranks, and of what they send. Each frame has the run and the pass.
const ASKS: u32 = 0x5700_0000;
const VECTORS: u32 = ASKS + 1;
/// Bytes of a vector, unless one row has more.
pub const WINDOW: usize = 1 << 20;
/// Vectors that a rank has room for, from all storage ranks together, and the least from each.
const WINDOWS: usize = 16;
const LEAST: usize = 2;
/// Vectors that a rank may have room for, as another one believes it.
const MOST: usize = 4 * WINDOWS;
/// How often who waits looks whether the run is stopped and the others live.
const LOOK: Duration = Duration::from_millis(100);

/// Which run, of those of the first rank's process, and which pass.
pub type Turn = (u64, u64);

/// What is said to a storage rank.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Say {
    /// There is room for so many vectors more.
    Room(u32),
    /// No more are wanted.
    Over,
}

/// What a storage rank sends.
#[derive(Debug, PartialEq, Serialize, Deserialize)]
enum Tell {
    /// A vector comes behind it.
    Vector,
    /// There are no more, or this rank has failed and tells all ranks why.
    End,
}

fn encode(turn: Turn, said: &impl Serialize) -> Vec<u8> {
    // Nothing in it can fail to be encoded.
    postcard::to_stdvec(&(turn, said)).unwrap_or_default()
}

/// What was said in this pass of this run, and what comes behind it; nothing for what is left of others.
fn decode<'b, T: Deserialize<'b>>(turn: Turn, frame: &'b [u8]) -> Option<(T, &'b [u8])> {
    let ((of, said), rest): ((Turn, T), _) = postcard::take_from_bytes(frame).ok()?;
    (of == turn).then_some((said, rest))
}

/// A run whose data come as vectors.
#[derive(Debug, Clone)]
pub struct Sending {
    /// Of each rank whether it has data.
    storage: Vec<bool>,
}

impl Sending {
    pub fn new(storage: &[bool]) -> Sending {
        Sending { storage: storage.to_vec() }
    }

    /// Whether a pass with these needs can be done so. Others are computed on where the data are.
    pub fn serves(&self, needs: &Needs) -> bool {
        vectors::refusal(needs).is_none()
    }

    /// Whether this rank has data.
    pub fn sends(&self, rank: usize) -> bool {
        self.storage.get(rank) == Some(&true)
    }

    /// The ranks that have data, or the others.
    fn ranks(&self, has: bool) -> impl Iterator<Item = usize> + '_ {
        self.storage.iter().enumerate().filter(move |(_, s)| **s == has).map(|(rank, _)| rank)
    }

    /// This rank has come to the end of a pass, whether well or not: nobody waits for it.
    pub fn leave(&self, fabric: &dyn Fabric, turn: Turn) {
        let sends = self.sends(fabric.rank());
        for other in self.ranks(!sends) {
            let word = if sends { encode(turn, &Tell::End) } else { encode(turn, &Say::Over) };
            // Who is gone need not know.
            let _ = fabric.send(other, if sends { VECTORS } else { ASKS }, word);
        }
    }
}

#[cfg(test)]
mod tests;
