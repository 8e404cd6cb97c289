//! What the ranks of a flow tell each other: states of what they add up together, over a stream that all of them write and read.
//!
//! It lies where the streams lie that the flow writes, on one node or, of a coupling, on several, and ends as they do: if a rank fails, the
//! others are told. A step of it is what all ranks have at one place of the graph. No rank is more than a step or two ahead.

use crate::check::Checked;
use crate::division::MOST_NUMBERS;
use crate::op::Partial;
use crate::run::Options;
use serde::Serialize;
use stead_core::{Bounds, DType, Error, Kind, Result};
use stead_stream::{Definition, Read, Reader, Step, Writer, Written};

/// Bytes that a rank says at a time, at most.
const MOST: u64 = 64 << 20;
/// Nodes of which it says something at a time: with the most that there can be of each they stay below that.
pub const AT_ONCE: usize = 32;
/// Of the name of the first stream that the flow writes, which nobody else writes at the same time.
const OF_THE_NAME: usize = 200;

const SAME: &str = "all ranks are to run the same flow, over the same streams";

/// That others say of what is read what nobody does who runs the same.
pub fn others_run_another() -> Error {
    Error::new(Kind::Peer, "another rank of the flow reads arrays of other shapes").with_hint(SAME)
}

/// A node, by its number, and what a rank has of it.
pub type Share = (usize, Partial);
/// The step of the flow, the steps of the streams that it reads, and states.
type Said = (u64, Vec<u64>, Vec<Share>);

/// This rank among the others.
#[derive(Debug)]
pub struct Ranks {
    writer: Writer,
    reader: Reader,
    variable: u32,
    rank: u64,
    ranks: u64,
}

/// The name of the stream: of one that is written, and that the graph has no other use for.
fn name(checked: &Checked) -> String {
    let first = checked.writes.first().map_or("flow", |write| write.stream.as_str());
    let mut name: String = first.chars().take(OF_THE_NAME).collect();
    let is_taken = |name: &String| {
        checked.writes.iter().any(|write| write.stream == *name)
            || checked.reads.iter().any(|read| read.stream == *name)
    };
    name.push_str(".ranks");
    while is_taken(&name) {
        name.push('_');
    }
    name
}

impl Ranks {
    /// Takes the place of a rank. The others may come later.
    ///
    /// # Errors
    /// Those of streams.
    pub fn open(checked: &Checked, options: &Options) -> Result<Ranks> {
        let name = name(checked);
        let written = Written {
            spaces: options.spaces.clone(),
            rank: options.rank,
            writers: options.ranks,
            keep: 0,
            readers: 1,
            timeout: options.timeout,
            stop: options.stop.clone(),
            coupling: options.coupling.clone(),
            ..Written::default()
        };
        let mut writer = Writer::open(&name, &written)?;
        // Blocks have what they need of it.
        let variable =
            writer.define(Definition::new("states", DType::U8, [options.ranks, MOST]))?;
        let read = Read {
            spaces: options.spaces.clone(),
            group: "ranks".to_owned(),
            rank: options.rank,
            ranks: options.ranks,
            timeout: options.timeout,
            stop: options.stop.clone(),
            threads: 1,
            coupling: options.coupling.clone(),
            ..Read::default()
        };
        let reader = Reader::open(&name, &read)?;
        Ok(Ranks { writer, reader, variable, rank: options.rank, ranks: options.ranks })
    }

    /// Says something, and gives what all have said.
    fn say(&mut self, mine: &impl Serialize) -> Result<Step> {
        let said = postcard::to_stdvec(mine)
            .map_err(|e| Error::internal(format!("cannot tell other ranks of a flow: {e}")))?;
        let (rank, len) = (self.rank, said.len() as u64);
        self.writer.begin()?;
        self.writer.put(self.variable, &Bounds::new([rank, 0], [1, len])?, &said)?;
        self.writer.end()?;
        self.reader.next_step()?.ok_or_else(|| {
            Error::new(Kind::Peer, "the other ranks of the flow have ended it").with_hint(SAME)
        })
    }

    /// What each rank says of how much lies on its node, in their order.
    ///
    /// # Errors
    /// As [`Ranks::meet`].
    pub fn compare(&mut self, mine: &[u64]) -> Result<Vec<Vec<u64>>> {
        let step = self.say(&mine)?;
        // Who says another number of them reads something else.
        let most = 10 * (MOST_NUMBERS as u64 + 1);
        let all = (0..self.ranks).map(|rank| {
            let theirs = said_by(&step, rank, most, lengths);
            theirs.map_err(|e| e.at_rank(usize::try_from(rank).unwrap_or(usize::MAX)))
        });
        all.collect()
    }

    /// Tells the others what this rank has of some nodes at a step of the flow, which is this step of each stream that is read, and adds what
    /// they have, unless nothing of it is wanted here.
    ///
    /// # Errors
    /// `Peer` if a rank has ended, or is at another step; `Format` for what no rank says; `Timeout`.
    pub fn meet(
        &mut self,
        now: u64,
        numbers: &[u64],
        mut mine: Vec<Share>,
        is_wanted: bool,
    ) -> Result<Vec<Share>> {
        let step = self.say(&(now, numbers, &mine))?;
        if is_wanted {
            // Whoever says more says something else.
            let states = mine.iter().map(|(_, share)| share.most_bytes());
            let most = states.fold(16 * (8 + numbers.len() as u64), u64::saturating_add);
            for rank in (0..self.ranks).filter(|rank| *rank != self.rank) {
                let theirs = said_by(&step, rank, most, read)
                    .and_then(|said| together(said, (now, numbers), &mut mine));
                theirs.map_err(|e| e.at_rank(usize::try_from(rank).unwrap_or(usize::MAX)))?;
            }
        }
        Ok(mine)
    }

    /// There is nothing more to tell.
    ///
    /// # Errors
    /// As [`Writer::close`].
    pub fn close(self) -> Result<()> {
        self.writer.close()
    }

    /// This rank has failed, and the others are told.
    pub fn abandon(self) {
        // That they cannot be told changes nothing.
        let _ = self.writer.abandon();
    }
}

/// What a rank says, of its bytes.
pub fn read(bytes: &[u8]) -> Option<Said> {
    postcard::from_bytes(bytes).ok()
}

/// How much lies on a rank's node, of its bytes.
pub fn lengths(bytes: &[u8]) -> Option<Vec<u64>> {
    postcard::from_bytes(bytes).ok()
}

/// What a rank has said in a step, in so many bytes at most.
fn said_by<T>(
    step: &Step,
    rank: u64,
    most: u64,
    read: impl FnOnce(&[u8]) -> Option<T>,
) -> Result<T> {
    let damaged = || Error::format("what a rank of the flow has said is damaged");
    let parts = step.parts("states")?;
    let own = |(_, bounds): &&(usize, Bounds)| {
        (bounds.start(), bounds.count().first()) == (&[rank, 0][..], Some(&1))
    };
    let (_, bounds) = parts.iter().find(own).ok_or_else(damaged)?;
    if bounds.elements() > most {
        return Err(damaged());
    }
    let array = step.get("states", bounds)?;
    let bytes = usize::try_from(bounds.elements()).ok().and_then(|n| array.bytes().get(..n));
    bytes.and_then(read).ok_or_else(damaged)
}

/// Adds what a rank has said of nodes to what this one has.
fn together(said: Said, at: (u64, &[u64]), mine: &mut [Share]) -> Result<()> {
    let (step, numbers, theirs) = said;
    let same = mine.iter().map(|(node, _)| node).eq(theirs.iter().map(|(node, _)| node));
    if (step, &numbers[..]) != at || !same {
        let message = format!("it is at step {step} of the flow, and this rank at step {}", at.0);
        return Err(Error::new(Kind::Peer, message).with_hint(SAME));
    }
    mine.iter_mut().zip(theirs).try_for_each(|((_, mine), (_, theirs))| mine.merge(theirs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzzing::said(&bytes);
        }
    }

    #[test]
    fn who_says_something_else_is_an_error() {
        let mine =
            |node, bytes: &[u8]| vec![(node, postcard::from_bytes::<Partial>(bytes).unwrap())];
        let (wholes, ends) = ([1, 1, 6, 2], [2, 1, 0, 0]);
        let ask = |said: Said, at: (u64, &[u64])| together(said, at, &mut mine(3, &wholes));
        assert!(ask((5, vec![9], mine(3, &wholes)), (5, &[9])).is_ok());
        let said = |step, number, node| (step, vec![number], mine(node, &wholes));
        for other in [said(4, 9, 3), said(5, 8, 3), said(5, 9, 2)] {
            assert_eq!(ask(other, (5, &[9])).unwrap_err().kind(), Kind::Peer);
        }
        let e = ask((5, vec![9], mine(3, &ends)), (5, &[9])).unwrap_err();
        assert_eq!(e.kind(), Kind::Format);
        let two = [1, 2, 6, 2, 6, 2];
        assert_eq!(ask((5, vec![9], mine(3, &two)), (5, &[9])).unwrap_err().kind(), Kind::Format);
        // None is larger than it may be.
        assert!(mine(0, &wholes)[0].1.most_bytes() > wholes.len() as u64);
    }
}
