//! What the ranks of a flow tell each other: states of what they add up together, over a stream that all of them write and read.
//!
//! It lies where the streams lie that the flow writes, on one node or, of a coupling, on several, and ends as they do: if a rank fails, the
//! others are told. A step of it is what all ranks have at one place of the graph. No rank is more than a step or two ahead.

use crate::check::Checked;
use crate::division::{MOST_NUMBERS, MOST_WHOLES};
use crate::run::Options;
use stead_core::{Bounds, DType, Error, Kind, Result};
use stead_stream::{Definition, Read, Reader, Step, Writer, Written};

/// Bytes that a rank says of a node at a time, at most.
const MOST: u64 = 1 << 32;
/// Nodes of which it says something at a time.
pub const AT_ONCE: usize = 32;
/// Of the name of the first stream that the flow writes, which nobody else writes at the same time.
const OF_THE_NAME: usize = 200;

const SAME: &str = "all ranks are to run the same flow, over the same streams";

/// That others say of what is read what nobody does who runs the same.
pub fn others_run_another() -> Error {
    Error::new(Kind::Peer, "another rank of the flow reads arrays of other shapes").with_hint(SAME)
}

/// Where the ranks are: the step of the flow, and the steps of the streams that it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At<'a> {
    pub step: u64,
    pub numbers: &'a [u64],
}

/// What this rank says of a node, by its number, at one of the places of those of which ranks tell each other at a time.
pub type Said = (usize, usize, Vec<u8>);

/// What stands before what a rank says: where it is, and of which node it speaks.
type Head = (u64, Vec<u64>, usize);

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
        let shape = [options.ranks, AT_ONCE as u64, MOST];
        let variable = writer.define(Definition::new("states", DType::U8, shape))?;
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

    /// By which this rank tells the others.
    pub fn writer(&self) -> &Writer {
        &self.writer
    }

    /// Which rank this is.
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// How many there are.
    pub fn ranks(&self) -> u64 {
        self.ranks
    }

    /// Says something at some places, and gives what all have said.
    fn say(&mut self, said: &[(usize, Vec<u8>)]) -> Result<Step> {
        self.writer.begin()?;
        for (place, bytes) in said {
            let (start, len) = ([self.rank, *place as u64, 0], bytes.len() as u64);
            self.writer.put(self.variable, &Bounds::new(start, [1, 1, len])?, bytes)?;
        }
        self.writer.end()?;
        self.reader.next_step()?.ok_or_else(|| {
            Error::new(Kind::Peer, "the other ranks of the flow have ended it").with_hint(SAME)
        })
    }

    /// What each rank says of how much lies on its node, in their order.
    ///
    /// # Errors
    /// As [`Ranks::tell`] and [`Told::of`].
    pub fn compare(&mut self, mine: &[u64]) -> Result<Vec<Vec<u64>>> {
        let step = self.say(&[(0, encoded(mine)?)])?;
        let parts = step.parts("states")?;
        // Who says another number of them reads something else.
        let most = 10 * (MOST_NUMBERS as u64 + MOST_WHOLES as u64 + 1);
        let all = (0..self.ranks).map(|rank| {
            let theirs =
                said_by(&step, &parts, (rank, 0), most, |bytes| lengths(bytes).ok_or_else(damaged));
            theirs.map_err(|e| of_rank(e, rank))
        });
        all.collect()
    }

    /// Tells the others what this rank has of some nodes, at a step where all of them are, and gives what all have told.
    ///
    /// # Errors
    /// `Peer` if a rank has ended; `Timeout`; those of streams.
    pub fn tell<'a>(&mut self, at: At<'a>, said: Vec<Said>) -> Result<Told<'a>> {
        let mut each = Vec::with_capacity(said.len());
        for (place, node, bytes) in said {
            let mut all = encoded(&(at.step, at.numbers, node))?;
            all.extend_from_slice(&bytes);
            each.push((place, all));
        }
        let step = self.say(&each)?;
        let parts = step.parts("states")?;
        Ok(Told { step, parts, at })
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

/// What all ranks have told each other at a time.
#[derive(Debug)]
pub struct Told<'a> {
    step: Step,
    /// What lies where in it.
    parts: Vec<(usize, Bounds)>,
    at: At<'a>,
}

impl Told<'_> {
    /// What a rank has told of a node, by its number, at a place, in so many bytes at most.
    ///
    /// # Errors
    /// `Peer` if it is at another step, or speaks of another node; `Format` for what no rank says; those of `read`. All of them name the rank.
    pub fn of<T>(
        &self,
        rank: u64,
        (place, node): (usize, usize),
        most: u64,
        read: impl FnOnce(&[u8]) -> Result<T>,
    ) -> Result<T> {
        let most = most.saturating_add(10 * (4 + self.at.numbers.len() as u64));
        let theirs = said_by(&self.step, &self.parts, (rank, place), most, |bytes| {
            let (theirs, rest) = head(bytes).ok_or_else(damaged)?;
            same(&theirs, self.at, node)?;
            read(rest)
        });
        theirs.map_err(|e| of_rank(e, rank))
    }
}

fn encoded<T: serde::Serialize + ?Sized>(what: &T) -> Result<Vec<u8>> {
    postcard::to_stdvec(what)
        .map_err(|e| Error::internal(format!("cannot tell other ranks of a flow: {e}")))
}

fn damaged() -> Error {
    Error::format("what a rank of the flow has said is damaged")
}

fn of_rank(e: Error, rank: u64) -> Error {
    e.at_rank(usize::try_from(rank).unwrap_or(usize::MAX))
}

/// What stands before what a rank says, and what it says.
pub fn head(bytes: &[u8]) -> Option<(Head, &[u8])> {
    postcard::take_from_bytes(bytes).ok()
}

/// How much lies on a rank's node, of its bytes.
pub fn lengths(bytes: &[u8]) -> Option<Vec<u64>> {
    postcard::from_bytes(bytes).ok()
}

/// What a rank has said at a place, in so many bytes at most.
fn said_by<T>(
    step: &Step,
    parts: &[(usize, Bounds)],
    (rank, place): (u64, usize),
    most: u64,
    read: impl FnOnce(&[u8]) -> Result<T>,
) -> Result<T> {
    let start = [rank, place as u64, 0];
    let own = |(_, bounds): &&(usize, Bounds)| {
        bounds.start() == start && bounds.count().get(..2) == Some(&[1, 1][..])
    };
    let (_, bounds) = parts.iter().find(own).ok_or_else(damaged)?;
    if bounds.elements() > most {
        return Err(damaged());
    }
    let array = step.get("states", bounds)?;
    let bytes = usize::try_from(bounds.elements()).ok().and_then(|n| array.bytes().get(..n));
    read(bytes.ok_or_else(damaged)?)
}

/// An error if a rank is somewhere else than this one.
fn same((step, numbers, of): &Head, at: At<'_>, node: usize) -> Result<()> {
    if (*step, &numbers[..], *of) == (at.step, at.numbers, node) {
        return Ok(());
    }
    let message = format!("it is at step {step} of the flow, and this rank at step {}", at.step);
    Err(Error::new(Kind::Peer, message).with_hint(SAME))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Partial;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_bytes_are_understood_or_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            crate::fuzzing::said(&bytes);
        }
    }

    #[test]
    fn who_says_something_else_is_an_error() {
        let at = At { step: 5, numbers: &[9] };
        let said = |step: u64, number: u64, node: usize| {
            let mut bytes = encoded(&(step, [number].as_slice(), node)).unwrap();
            bytes.extend([7, 8]);
            let (theirs, rest) = head(&bytes).unwrap();
            assert_eq!(rest, [7, 8]);
            same(&theirs, at, 3)
        };
        assert!(said(5, 9, 3).is_ok());
        for other in [said(4, 9, 3), said(5, 8, 3), said(5, 9, 2)] {
            assert_eq!(other.unwrap_err().kind(), Kind::Peer);
        }
    }

    #[test]
    fn sums_of_other_numbers_are_an_error() {
        let of = |bytes: &[u8]| Partial::read(bytes).unwrap();
        let (wholes, ends, two) = ([1, 1, 6, 2], [2, 1, 0, 0], [1, 2, 6, 2, 6, 2]);
        let ask = |other: &[u8]| of(&wholes).merge(of(other));
        assert!(ask(&wholes).is_ok());
        assert_eq!(ask(&ends).unwrap_err().kind(), Kind::Format);
        assert_eq!(ask(&two).unwrap_err().kind(), Kind::Format);
        assert!(Partial::read(&[9, 9]).is_err());
        // None is larger than it may be.
        assert!(of(&wholes).most_bytes() > wholes.len() as u64);
    }
}
