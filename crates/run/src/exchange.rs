//! What the ranks of a run do together.
//!
//! All of it is one sort of step: each rank contributes something, or its error, and all get the sum, or the one error that
//! is told. A rank that fails between two steps contributes its error to the next one, whatever that is: so nobody waits for
//! it, and after a step that failed the run is over on all ranks.

use crate::pass::{Observer, caught, too_large};
use crate::patient::Patient;
use crate::told::Told;
use std::sync::Arc;
use stead_core::{Cancel, Error, Kind, Result};
use stead_fabric::{Fabric, FabricExt, frame_after, unframe};
use stead_kernel::{AnyKernel, AnyState};

/// Of all steps, and the one after it. Nothing else has it: one run at a time on a fabric.
const STEPS: u32 = 0x5200_0000;
/// Tags from those of one group of ranks to those of the next one.
const GROUPS: u32 = 0x10;

/// What some ranks of a run do without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Group {
    /// Passes.
    Computing = 1,
    /// One of them tells the others what came of it.
    Telling = 2,
    /// One gives another one files.
    Carrying = 3,
}

/// The ranks of a run.
pub struct Crew<'a> {
    pub fabric: Patient<'a>,
    /// Name of this rank's host.
    pub host: String,
    /// Those of all ranks, once they have met.
    pub hosts: Vec<String>,
    /// What is to be said of the share of each rank that is gone, in a run.
    pub shares: Vec<String>,
    /// Bytes that the states of all kernels may take.
    pub states: u64,
    /// The first of its tags.
    tags: u32,
    /// This rank's number among all of the run: by these errors name ranks.
    me: usize,
}

/// States of kernels, and counters.
pub type Total = (Vec<AnyState>, Vec<u64>);

/// What has come together of some ranks.
enum Sum {
    /// Words of each of them, in the order of ranks.
    Words(Vec<Vec<u8>>),
    States(Vec<AnyState>, Vec<u64>),
    Failed(Told),
}

/// Why a step has no sum for this rank.
#[derive(Debug)]
pub struct Undone {
    pub error: Error,
    /// It is the sum itself, so that no rank has another one. Else the way there failed, and others may have gone on.
    pub everywhere: bool,
}

impl Undone {
    fn here(error: Error) -> Undone {
        Undone { error, everywhere: false }
    }
}

const WORDS: u8 = 0;
const STATES: u8 = 1;
const FAILED: u8 = 2;

/// How words of ranks become one list of words.
pub type Join<'j> = &'j mut dyn FnMut(Vec<Vec<u8>>, Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>>;

impl<'a> Crew<'a> {
    pub fn new(
        fabric: &'a dyn Fabric,
        cancel: &Cancel,
        observer: Option<&'a dyn Observer>,
    ) -> Crew<'a> {
        let host = host();
        Crew {
            fabric: Patient::new(fabric, cancel, observer, STEPS + 1),
            host,
            hosts: Vec::new(),
            shares: Vec::new(),
            states: u64::MAX,
            tags: STEPS,
            me: fabric.rank(),
        }
    }

    /// Some of the ranks, this one among them, for a part of the run of this number, in their order. The numbers of ranks in
    /// errors, and `hosts`, stay those of all ranks.
    pub fn among(&self, ranks: Vec<usize>, group: Group, run: u64) -> Result<Crew<'a>> {
        let tags = self.tags + GROUPS * group as u32;
        Ok(Crew {
            fabric: self.fabric.among(ranks, run << 32, tags + 1)?,
            host: self.host.clone(),
            hosts: self.hosts.clone(),
            shares: self.shares.clone(),
            states: self.states,
            tags,
            me: self.me,
        })
    }

    /// One of its tags, for what is no step.
    pub fn tag(&self, number: u32) -> u32 {
        self.tags + number
    }

    pub fn rank(&self) -> usize {
        self.fabric.rank()
    }

    pub fn size(&self) -> usize {
        self.fabric.size()
    }

    /// Every rank gets the words of every rank, or the error of those that failed.
    pub fn gather(&self, mine: Result<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        self.settle(mine).map_err(|undone| undone.error)
    }

    /// As [`Crew::gather`], for those who need to know what the other ranks have heard.
    pub fn settle(&self, mine: Result<Vec<u8>>) -> std::result::Result<Vec<Vec<u8>>, Undone> {
        if self.size() == 1 {
            let alone = |error| Undone { error, everywhere: true };
            return mine.map(|word| vec![word]).map_err(alone);
        }
        let mut join = |mut a: Vec<Vec<u8>>, b: Vec<Vec<u8>>| {
            a.extend(b);
            Ok(a)
        };
        match self.step("", &[], mine.map(|word| Sum::Words(vec![word])), &mut join)? {
            Sum::Words(words) if words.len() == self.size() => Ok(words),
            _ => Err(Undone::here(different())),
        }
    }

    /// Every rank gets what `join` makes of the words of all. `name` is what all messages begin with: ranks that have
    /// another one are told so before anything else is looked at.
    pub fn words(
        &self,
        name: &str,
        mine: Result<Vec<Vec<u8>>>,
        join: Join<'_>,
    ) -> Result<Vec<Vec<u8>>> {
        match self.step(name, &[], mine.map(Sum::Words), join).map_err(|undone| undone.error)? {
            Sum::Words(words) => Ok(words),
            _ => Err(different()),
        }
    }

    /// Merges every rank's states and counters, up a tree and back, so that all ranks hold the total.
    pub fn total(
        &self,
        kernels: &[Arc<dyn AnyKernel>],
        mine: Result<Total>,
    ) -> std::result::Result<Total, Undone> {
        if self.size() == 1 {
            return mine.map_err(|error| Undone { error, everywhere: true });
        }
        let mine = mine.map(|(states, counters)| Sum::States(states, counters));
        match self.step("", kernels, mine, &mut |_, _| Err(different()))? {
            Sum::States(states, counters) => Ok((states, counters)),
            _ => Err(Undone::here(different())),
        }
    }

    /// True if all ranks have come to the end of something without an error.
    pub fn agree(&self, mine: Result<()>) -> Result<()> {
        self.gather(mine.map(|()| Vec::new())).map(drop)
    }

    fn step(
        &self,
        name: &str,
        kernels: &[Arc<dyn AnyKernel>],
        mine: Result<Sum>,
        join: Join<'_>,
    ) -> std::result::Result<Sum, Undone> {
        let failed = |e: &Error| Sum::Failed(Told::new(e, self.me, &self.host));
        let of_all = |e: &Error| {
            let told = Told::new(e, self.me, &self.host);
            Sum::Failed(told.of_all())
        };
        let sum = std::cell::Cell::new(Some(mine.unwrap_or_else(|e| failed(&e))));
        let mut take = |theirs: Vec<u8>| {
            let theirs =
                theirs.strip_prefix(&*prefix(name)).ok_or_else(|| self.unlike(&theirs, name))?;
            let both = match (sum.take(), caught(|| decode(theirs, kernels))) {
                (None, _) => of_all(&different()),
                (Some(Sum::Failed(a)), Ok(Sum::Failed(b))) => Sum::Failed(a.or(b)),
                (Some(f @ Sum::Failed(_)), _) | (_, Ok(f @ Sum::Failed(_))) => f,
                (Some(mine), theirs) => theirs
                    .and_then(|theirs| {
                        caught(|| add(mine, theirs, kernels, self.states, &mut *join))
                    })
                    // It is of both, or of what all do together.
                    .unwrap_or_else(|e| of_all(&e)),
            };
            sum.set(Some(both));
            Ok(())
        };
        let mut give = || {
            let sum = sum.take().ok_or_else(different)?;
            Ok([prefix(name), caught(|| encode(sum, kernels))?].concat())
        };
        let all = self.fabric.all_reduce_by(self.tags, &mut take, &mut give);
        let all = all.map_err(|e| Undone::here(self.named(e)))?;
        let all = all.strip_prefix(&*prefix(name)).ok_or_else(|| Undone::here(different()))?;
        match decode(all, kernels).map_err(Undone::here)? {
            Sum::Failed(told) => {
                Err(Undone { error: self.named(told.error(self.size())), everywhere: true })
            }
            sum => Ok(sum),
        }
    }

    /// Ranks whose messages begin with something else.
    fn unlike(&self, theirs: &[u8], ours: &str) -> Error {
        let len = theirs.first().map_or(0, |n| usize::from(*n));
        let theirs = String::from_utf8_lossy(theirs.get(1..=len).unwrap_or_default()).into_owned();
        if ours.is_empty() || theirs.is_empty() {
            return different();
        }
        Error::usage(format!(
            "ranks run different versions of stead: {ours} on rank {} and {theirs} on another one; start the same one on all",
            self.rank()
        ))
    }

    /// With the name of the host of the rank that it is about, and what is lost with a rank that is gone.
    fn named(&self, e: Error) -> Error {
        let Some(rank) = e.place().rank.filter(|_| e.place().host.is_none()) else { return e };
        let Some(host) = self.hosts.get(rank) else { return e };
        // Who waited for bytes of it has said which.
        let lost = e.kind() == Kind::Peer && e.place().path.is_none();
        match self.shares.get(rank).filter(|_| lost) {
            Some(share) => e.and(share).at_host(host),
            None => e.at_host(host),
        }
    }
}

/// The name of this host.
pub fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

pub fn different() -> Error {
    Error::usage("ranks do different things")
        .with_hint("all ranks start the same runs, in the same order")
}

fn malformed() -> Error {
    Error::format("a message from another rank is malformed")
}

/// What messages begin with: a text of at most 255 bytes, and its length.
fn prefix(name: &str) -> Vec<u8> {
    let name = &name.as_bytes()[..name.len().min(255)];
    let mut out = vec![name.len() as u8];
    out.extend_from_slice(name);
    out
}

fn add(
    mine: Sum,
    theirs: Sum,
    kernels: &[Arc<dyn AnyKernel>],
    most: u64,
    join: Join<'_>,
) -> Result<Sum> {
    match (mine, theirs) {
        (Sum::Words(a), Sum::Words(b)) => Ok(Sum::Words(join(a, b)?)),
        (Sum::States(mut states, mut counters), Sum::States(theirs, others)) => {
            if others.len() != counters.len() {
                return Err(different());
            }
            for ((k, mine), theirs) in kernels.iter().zip(&mut states).zip(theirs) {
                k.merge(mine, theirs)?;
            }
            let bytes = |(k, s): (&Arc<dyn AnyKernel>, &AnyState)| k.state_bytes(s) as u64;
            too_large(kernels.iter().zip(&states).map(bytes).sum(), most)?;
            for (a, b) in counters.iter_mut().zip(others) {
                *a = a.saturating_add(b);
            }
            Ok(Sum::States(states, counters))
        }
        _ => Err(different()),
    }
}

fn encode(sum: Sum, kernels: &[Arc<dyn AnyKernel>]) -> Result<Vec<u8>> {
    let (kind, parts) = match sum {
        Sum::Words(words) => (WORDS, words),
        Sum::States(states, counters) => {
            let counters = counters.iter().flat_map(|n| n.to_le_bytes()).collect();
            let mut parts = vec![counters];
            for (k, s) in kernels.iter().zip(states) {
                // Each is let go when it has become bytes: all of them together may be large.
                parts.push(k.encode(&s)?);
            }
            (STATES, parts)
        }
        Sum::Failed(told) => {
            let told = postcard::to_stdvec(&told)
                .map_err(|e| Error::internal(format!("cannot encode an error: {e}")))?;
            (FAILED, vec![told])
        }
    };
    let mut out = vec![kind];
    frame_after(&mut out, &parts);
    Ok(out)
}

fn decode(bytes: &[u8], kernels: &[Arc<dyn AnyKernel>]) -> Result<Sum> {
    let (kind, rest) = bytes.split_first().ok_or_else(malformed)?;
    let parts = unframe(rest)?;
    match (*kind, parts.split_first()) {
        (WORDS, _) => Ok(Sum::Words(parts.into_iter().map(<[u8]>::to_vec).collect())),
        (STATES, Some((counters, states))) if states.len() == kernels.len() => {
            let (numbers, []) = counters.as_chunks() else { return Err(malformed()) };
            let counters = numbers.iter().map(|n| u64::from_le_bytes(*n)).collect();
            let states = kernels.iter().zip(states).map(|(k, s)| k.decode(s));
            Ok(Sum::States(states.collect::<Result<_>>()?, counters))
        }
        (STATES, Some(_)) => Err(different()),
        (FAILED, Some((told, []))) => {
            postcard::from_bytes(told).map(Sum::Failed).map_err(|_| malformed())
        }
        _ => Err(malformed()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_fabric::Local;

    /// What each rank of a group gets.
    fn each<T: Send>(ranks: usize, work: impl Fn(&Crew<'_>) -> T + Sync) -> Vec<T> {
        let one = |fabric: &Local| work(&Crew::new(fabric, &Cancel::new(), None));
        std::thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> =
                Local::group(ranks).into_iter().map(|f| scope.spawn(move || one(&f))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn ranks_of_other_versions_are_told_so() {
        for odd in 0..5 {
            let all = each(5, |crew| {
                let name = if crew.rank() == odd { "stead 9" } else { "stead 1" };
                // What another version says need not make sense to this one.
                let mut join = |a, _| Ok(a);
                crew.words(name, Ok(vec![vec![crew.rank() as u8]]), &mut join)
            });
            for e in all.into_iter().map(Result::unwrap_err) {
                assert_eq!(e.kind(), Kind::Usage);
                assert!(e.message().contains("different versions of stead"), "{e}");
                assert!(e.message().contains("stead 9") && e.message().contains("stead 1"), "{e}");
            }
        }
    }

    #[test]
    fn words_come_in_the_order_of_ranks() {
        for ranks in 1..7 {
            for words in each(ranks, |crew| crew.gather(Ok(vec![crew.rank() as u8; crew.rank()]))) {
                let want: Vec<Vec<u8>> = (0..ranks).map(|r| vec![r as u8; r]).collect();
                assert_eq!(words.unwrap(), want);
            }
        }
    }

    #[test]
    fn of_several_errors_the_cause_with_the_earliest_place_is_told() {
        let bad = |source, offset| {
            Error::data(format!("bad {offset}")).at_source(source).at_offset(offset)
        };
        let all = each(6, |crew| {
            crew.agree(match crew.rank() {
                0 => Err(Error::cancelled()),
                1 => Err(bad(1, 5)),
                2 => Ok(()),
                3 => Err(bad(0, 90).at_path("some").at_column("c").with_hint("mend it")),
                n => Err(bad(1, n as u64)),
            })
        });
        for e in all.into_iter().map(Result::unwrap_err) {
            assert_eq!((e.kind(), e.message(), e.hint()), (Kind::Data, "bad 90", Some("mend it")));
            assert_eq!(e.to_string(), "some at byte 90: column 'c': bad 90");
            assert_eq!((e.place().rank, e.order()), (None, (Some(0), Some(90))));
        }
        // A device that fails is that of a host.
        let all = each(3, |crew| {
            let failed = std::io::Error::other("broken");
            crew.agree(if crew.rank() == 1 { Err(Error::io("read", "f", failed)) } else { Ok(()) })
        });
        for e in all.into_iter().map(Result::unwrap_err) {
            assert_eq!((e.kind(), e.place().rank), (Kind::Io, Some(1)));
            assert!(e.to_string().starts_with("f: rank 1 on "), "{e}");
        }
    }

    #[test]
    fn ranks_that_do_different_things_and_words_that_are_none_are_errors() {
        let all = each(2, |crew| match crew.rank() {
            0 => crew.gather(Ok(vec![])).map(drop),
            _ => crew.total(&[], Ok((vec![], vec![1]))).map(drop).map_err(|undone| undone.error),
        });
        for e in all.into_iter().map(Result::unwrap_err) {
            assert!(e.kind() == Kind::Usage && e.message() == "ranks do different things", "{e}");
        }
        let whole = encode(Sum::Words(vec![vec![1, 2], vec![]]), &[]).unwrap();
        for len in 0..whole.len() {
            // Cut between two words, it is shorter and whole.
            assert_eq!(decode(&whole[..len], &[]).is_ok(), [1, 11].contains(&len), "{len}");
        }
        for bad in [&[][..], &[9], &[STATES], &[FAILED], &[STATES, 1, 0, 0, 0, 0, 0, 0, 0, 7]] {
            assert!(decode(bad, &[]).is_err(), "{bad:?}");
        }
    }
}
