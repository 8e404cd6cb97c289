//! Merging states that are large: each rank merges a piece of all of them, at the same time as the others do theirs, and
//! rank 0 joins the pieces.
//!
//! Ranks swap pieces in rounds, each within groups of a few ranks: radix-k (Peterka et al., "A configurable algorithm for
//! parallel image-compositing applications", SC 2009), of which binary swap is the case of groups of two. A rank sends and
//! receives about one state in all, whatever the number of ranks, where a tree has rank 0 receive log2 of that many.

use crate::exchange::{Crew, Total, Undone};
use crate::pass::{caught, too_large};
use crate::values;
use std::collections::HashMap;
use std::sync::Arc;
use stead_core::{Error, Result};
use stead_fabric::{FabricExt, Heard, frame, unframe};
use stead_kernel::{AnyKernel, AnyState, Step};

/// Tags of rounds in which pieces are swapped, and of the one in which rank 0 gets them.
const SWAPS: u32 = 3;
const PIECES: u32 = 4;

/// Ranks of a group, unless their number has a larger prime factor.
const MOST: usize = 8;

/// A state, and which of the kernels it is of.
type Large = (usize, AnyState);

/// What a pass comes to: the states of all ranks, counters, and for kernels whose states were merged in pieces how the pass ends
/// for them, by their number.
pub type Merged = (Vec<AnyState>, Vec<u64>, HashMap<usize, Step>);

/// Why a rank has come no further.
enum Failed {
    /// This rank tells it.
    Mine(Error),
    /// Another one has told it, and tells it to all.
    Heard(Error),
}

/// Merges the states and counters of all ranks: small states up the tree, large ones in pieces. Of the latter, rank 0 gets what
/// they come to, the others its answer alone. All ranks call it; those for which it fails have left the run.
pub fn total(
    crew: &Crew<'_>,
    kernels: &[Arc<dyn AnyKernel>],
    mine: Result<Total>,
) -> Result<Merged> {
    let cuts = |k: &&Arc<dyn AnyKernel>| crew.size() > 1 && k.cuts();
    let of: Vec<usize> =
        kernels.iter().enumerate().filter(|(_, k)| cuts(k)).map(|(i, _)| i).collect();
    let mut large: Vec<Large> = Vec::new();
    // They follow when all ranks have come so far.
    let mine = mine.map(|(mut states, counters)| {
        for i in &of {
            if let (Some(state), Some(k)) = (states.get_mut(*i), kernels.get(*i)) {
                large.push((*i, std::mem::replace(state, k.init())));
            }
        }
        (states, counters)
    });
    match crew.total(kernels, mine) {
        Ok((states, counters)) => {
            let ended = if of.is_empty() { HashMap::new() } else { finish(crew, kernels, large)? };
            Ok((states, counters, ended))
        }
        Err(Undone { error, everywhere }) => {
            // Rank 0 may have the total, and those it has told swap pieces.
            if !everywhere && !of.is_empty() {
                leave(crew, &error);
            }
            Err(error)
        }
    }
}

/// Ends the pass of kernels whose states were taken out.
fn finish(
    crew: &Crew<'_>,
    kernels: &[Arc<dyn AnyKernel>],
    large: Vec<Large>,
) -> Result<HashMap<usize, Step>> {
    let of: Vec<(usize, &Arc<dyn AnyKernel>)> =
        large.iter().filter_map(|(i, _)| Some((*i, kernels.get(*i)?))).collect();
    let swapping = Swapping { crew, kernels: of.iter().map(|(_, k)| *k).collect() };
    let mine = swapping.merged(large.into_iter().map(|(_, state)| state).collect());
    // What rank 0 is told in place of pieces.
    let piece = match &mine {
        Ok(bytes) => Ok(bytes.clone()),
        Err(Failed::Mine(e) | Failed::Heard(e)) => Err(told(e)),
    };
    let collected = crew.fabric.collect(crew.tag(PIECES), piece).map_err(Failed::Mine);
    let steps = mine
        .and(collected)
        .and_then(|all| if crew.rank() == 0 { swapping.join(all) } else { Ok(Vec::new()) });
    let mut ended: HashMap<usize, Step> = HashMap::new();
    let word = steps.and_then(|steps| {
        let mut word = Vec::new();
        for ((i, _), step) in of.iter().zip(steps) {
            let value = match &step {
                Step::Done(value) | Step::File { value, .. } => value,
                Step::Next(_) => {
                    return Err(Failed::Mine(Error::internal(
                        "states in pieces are of a pass that is not the last",
                    )));
                }
            };
            values::put(value, &mut word).map_err(Failed::Mine)?;
            ended.insert(*i, step);
        }
        Ok(word)
    });
    let (word, heard) = match word {
        Ok(word) => (Ok(word), None),
        Err(Failed::Mine(e)) => (Err(e), None),
        Err(Failed::Heard(e)) => (Ok(Vec::new()), Some(e)),
    };
    let words = crew.gather(word)?;
    if let Some(e) = heard {
        return Err(e);
    }
    if crew.rank() != 0 {
        let mut word: &[u8] = words.first().map_or(&[], Vec::as_slice);
        for (i, _) in of {
            ended.insert(i, Step::Done(values::take(&mut word)?));
        }
    }
    Ok(ended)
}

/// Tells those who may wait for this rank's pieces that none come.
fn leave(crew: &Crew<'_>, error: &Error) {
    for round in rounds(crew.rank(), crew.size()) {
        crew.fabric.abstain(crew.tag(SWAPS), &round.group, error);
    }
    crew.fabric.abstain(crew.tag(PIECES), &[0], error);
}

/// An error for another rank, which does not tell it to anybody.
fn told(e: &Error) -> Error {
    Error::new(e.kind(), e.message())
}

/// Who swaps: pieces of so many of the group, and which of them this rank is.
struct Round {
    group: Vec<usize>,
    digit: usize,
}

/// From far ranks to near ones, so that the piece of rank `n` is the n-th one.
fn rounds(rank: usize, size: usize) -> impl Iterator<Item = Round> {
    let mut left = size;
    radices(size).into_iter().map(move |radix| {
        left /= radix;
        let digit = rank / left % radix;
        let group = (0..radix).map(|d| rank - digit * left + d * left).collect();
        Round { group, digit }
    })
}

struct Swapping<'a, 'b> {
    crew: &'a Crew<'b>,
    kernels: Vec<&'a Arc<dyn AnyKernel>>,
}

impl Swapping<'_, '_> {
    /// This rank's piece of each kernel, of all ranks' states.
    fn merged(&self, states: Vec<AnyState>) -> std::result::Result<Vec<u8>, Failed> {
        let (rank, size) = (self.crew.rank(), self.crew.size());
        // Of each kernel the pieces that are still this rank's.
        let mut mine = caught(|| self.cut(states, size)).map_err(Failed::Mine);
        for Round { group, digit } in rounds(rank, size) {
            let split = mine.and_then(|mine| {
                caught(|| self.split(mine, group.len(), digit)).map_err(Failed::Mine)
            });
            let (own, parts) = match split {
                Ok((own, parts)) => (Ok(own), parts.into_iter().map(Ok).collect()),
                // Who has failed takes part all the same, so that nobody waits for it.
                Err(failed) => {
                    let (Failed::Mine(e) | Failed::Heard(e)) = &failed;
                    let parts = group.iter().map(|_| Err(told(e))).collect();
                    (Err(failed), parts)
                }
            };
            let got = self.crew.fabric.swap(self.crew.tag(SWAPS), &group, parts);
            mine = own.and_then(|own| {
                let theirs = all(got.into_iter().enumerate().filter(|(d, _)| *d != digit))?;
                caught(|| self.merge(own, theirs)).map_err(Failed::Mine)
            });
        }
        let mine = mine?;
        caught(|| {
            let mine: Vec<AnyState> = mine.into_iter().flatten().collect();
            let bytes = self.kernels.iter().zip(mine).map(|(k, state)| k.encode(&k.close(state)?));
            Ok(frame(&bytes.collect::<Result<Vec<_>>>()?))
        })
        .map_err(Failed::Mine)
    }

    fn cut(&self, states: Vec<AnyState>, size: usize) -> Result<Vec<Vec<AnyState>>> {
        let cut = |(k, state): (&&Arc<dyn AnyKernel>, AnyState)| {
            let pieces = k.cut(state, size)?;
            if pieces.len() == size { Ok(pieces) } else { Err(uneven()) }
        };
        self.kernels.iter().zip(states).map(cut).collect()
    }

    /// What this rank keeps, and bytes for each of the group, for itself none.
    #[allow(clippy::type_complexity)]
    fn split(
        &self,
        mine: Vec<Vec<AnyState>>,
        radix: usize,
        digit: usize,
    ) -> Result<(Vec<Vec<AnyState>>, Vec<Vec<u8>>)> {
        let mut own = Vec::new();
        let mut parts: Vec<Vec<Vec<u8>>> = vec![Vec::new(); radix];
        for (k, pieces) in self.kernels.iter().zip(mine) {
            let each = pieces.len() / radix;
            let mut kept = Vec::with_capacity(each);
            for (i, piece) in pieces.into_iter().enumerate() {
                match i / each.max(1) {
                    to if to == digit => kept.push(piece),
                    to => parts.get_mut(to).ok_or_else(uneven)?.push(k.encode(&piece)?),
                }
            }
            own.push(kept);
        }
        Ok((own, parts.into_iter().map(|p| frame(&p)).collect()))
    }

    fn merge(
        &self,
        mut own: Vec<Vec<AnyState>>,
        theirs: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<AnyState>>> {
        for bytes in theirs {
            let mut theirs = unframe(&bytes)?.into_iter();
            for (k, pieces) in self.kernels.iter().zip(&mut own) {
                for piece in pieces {
                    let theirs = theirs.next().ok_or_else(uneven)?;
                    k.merge(piece, k.decode(theirs)?)?;
                }
            }
        }
        let bytes = self.kernels.iter().zip(&own);
        let bytes = bytes.flat_map(|(k, all)| all.iter().map(|p| k.state_bytes(p) as u64)).sum();
        too_large(bytes, self.crew.states)?;
        Ok(own)
    }

    /// Joins the pieces of all ranks, and ends the pass.
    fn join(&self, heard: Vec<Heard>) -> std::result::Result<Vec<Step>, Failed> {
        let pieces = all(heard.into_iter().enumerate())?;
        caught(|| {
            let mut states: Vec<Vec<AnyState>> = self.kernels.iter().map(|_| Vec::new()).collect();
            for bytes in pieces {
                for ((k, states), bytes) in
                    self.kernels.iter().zip(&mut states).zip(unframe(&bytes)?)
                {
                    states.push(k.decode(bytes)?);
                }
            }
            // As it is with one rank, which has all of it.
            let bytes = self.kernels.iter().zip(&states);
            let bytes = bytes.flat_map(|(k, s)| s.iter().map(|s| k.state_bytes(s) as u64)).sum();
            too_large(bytes, self.crew.states)?;
            let end = |(k, states): (&&Arc<dyn AnyKernel>, Vec<AnyState>)| {
                if states.len() != self.crew.size() {
                    return Err(uneven());
                }
                k.finish(k.assemble(states)?)
            };
            self.kernels.iter().zip(states).map(end).collect()
        })
        .map_err(Failed::Mine)
    }
}

/// What all have sent; if one has sent nothing, why.
fn all(heard: impl Iterator<Item = (usize, Heard)>) -> std::result::Result<Vec<Vec<u8>>, Failed> {
    heard.map(|(_, heard)| heard.map_err(Failed::Mine)?.map_err(Failed::Heard)).collect()
}

fn uneven() -> Error {
    Error::format("pieces of states do not fit each other")
}

/// How many ranks swap in each round: factors of their number.
fn radices(size: usize) -> Vec<usize> {
    let (mut rest, mut prime, mut all) = (size, 2, Vec::<usize>::new());
    while rest > 1 {
        while prime * prime <= rest && !rest.is_multiple_of(prime) {
            prime += 1;
        }
        let factor = if prime * prime > rest { rest } else { prime };
        match all.last_mut() {
            Some(last) if *last * factor <= MOST => *last *= factor,
            _ => all.push(factor),
        }
        rest /= factor;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde::{Deserialize, Serialize};
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;
    use std::time::Duration;
    use stead_core::{Block, Cancel, Kind, Needs, Value};
    use stead_fabric::testing::{Between, Meddle};
    use stead_fabric::{Fabric, Local};
    use stead_kernel::Kernel;

    /// Adds up numbers of each place.
    struct Sums(usize);

    #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
    struct Places(Vec<u64>);

    /// A number that cannot be merged.
    const BAD: u64 = 1 << 40;

    impl Kernel for Sums {
        type State = Places;

        fn needs(&self) -> Needs {
            Needs::default()
        }

        fn init(&self) -> Places {
            Places(vec![0; self.0])
        }

        fn update(&self, _: &mut Places, _: &Block<'_>) -> Result<()> {
            Ok(())
        }

        fn merge(&self, state: &mut Places, other: Places) -> Result<()> {
            if state.0.contains(&BAD) || other.0.contains(&BAD) {
                return Err(Error::data("it cannot be merged").with_hint("give another one"));
            }
            state.0.iter_mut().zip(other.0).for_each(|(a, b)| *a += b);
            Ok(())
        }

        fn finish(&self, state: Places) -> Result<Step> {
            Ok(Step::Done(Value::List(state.0.into_iter().map(Value::Int).collect())))
        }

        fn cuts(&self) -> bool {
            true
        }

        fn cut(&self, state: Places, pieces: usize) -> Result<Vec<Places>> {
            let at = |i| self.0 * i / pieces;
            Ok((0..pieces).map(|i| Places(state.0[at(i)..at(i + 1)].to_vec())).collect())
        }

        fn assemble(&self, pieces: Vec<Places>) -> Result<Places> {
            Ok(Places(pieces.into_iter().flat_map(|p| p.0).collect()))
        }
    }

    /// What a rank gets; the state of one of them cannot be merged.
    fn one(fabric: &dyn Fabric, places: usize, bad: Option<usize>) -> Result<Value> {
        let kernels: Vec<Arc<dyn AnyKernel>> = vec![Arc::new(Sums(places))];
        let crew = Crew::new(fabric, &Cancel::new(), None);
        let times = fabric.rank() as u64 + 1;
        let mut mine = Places((0..places as u64).map(|i| i * times).collect());
        if bad == Some(fabric.rank()) {
            mine.0[places / 2] = BAD;
        }
        let states: Vec<AnyState> = vec![Box::new(mine)];
        let (mut states, counters, mut steps) = total(&crew, &kernels, Ok((states, vec![1])))?;
        assert_eq!(counters, [crew.size() as u64]);
        match steps.remove(&0).map_or_else(|| kernels[0].finish(states.remove(0)), Ok)? {
            Step::Done(value) => Ok(value),
            _ => Err(Error::internal("no answer")),
        }
    }

    fn ended(ranks: Vec<Local>, places: usize, bad: Option<usize>) -> Vec<Result<Value>> {
        std::thread::scope(|scope| {
            let all: Vec<_> =
                ranks.into_iter().map(|f| scope.spawn(move || one(&f, places, bad))).collect();
            all.into_iter().map(|t| t.join().unwrap()).collect()
        })
    }

    #[test]
    fn all_ranks_get_the_answer_whatever_their_number() {
        for size in (1..20).chain([26, 32]) {
            for places in [1, 3, 64] {
                let n = size as u64;
                let want: Vec<_> =
                    (0..places as u64).map(|i| Value::Int(i * n * (n + 1) / 2)).collect();
                for got in ended(Local::group(size), places, None) {
                    assert_eq!(got.unwrap(), Value::List(want.clone()), "{size} {places}");
                }
            }
        }
    }

    #[test]
    fn an_error_of_one_is_that_of_all() {
        for (size, bad) in [(2, 1), (3, 0), (6, 5), (8, 2), (12, 7)] {
            for got in ended(Local::group(size), 40, Some(bad)) {
                let e = got.unwrap_err();
                assert_eq!((e.kind(), e.message()), (Kind::Data, "it cannot be merged"));
                assert_eq!(e.hint(), Some("give another one"));
            }
        }
    }

    #[test]
    fn nobody_waits_for_a_rank_that_is_gone() {
        for (size, dead) in [(2, 0), (2, 1), (6, 0), (6, 3), (12, 11)] {
            let mut ranks = Local::group_with_deadline(size, Duration::from_secs(60));
            drop(ranks.remove(dead));
            for got in ended(ranks, 40, None) {
                let e = got.unwrap_err();
                assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(dead)), "{size} {e}");
            }
        }
    }

    /// Dies when it has sent so many messages.
    struct Dies(AtomicU64);

    impl Meddle for Dies {
        fn check(&self) -> Result<()> {
            match self.0.load(Ordering::Relaxed) {
                0 => Err(Error::new(Kind::Peer, "this rank has died")),
                _ => Ok(()),
            }
        }

        fn send(&self, _: usize, _: u32, bytes: Vec<u8>) -> Vec<Vec<u8>> {
            self.0.fetch_sub(1, Ordering::Relaxed);
            vec![bytes]
        }
    }

    #[test]
    fn whenever_a_rank_dies_nobody_waits_for_ranks_that_have_left() {
        for (size, dead) in [(8, 4), (8, 0), (8, 6), (12, 8), (12, 2)] {
            for sends in 1..size as u64 + 6 {
                let (tell, told) = mpsc::channel();
                for (rank, fabric) in Local::group_with_deadline(size, Duration::from_secs(60))
                    .into_iter()
                    .enumerate()
                {
                    let tell = tell.clone();
                    std::thread::spawn(move || {
                        let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                        if rank == dead {
                            let dies = Between::new(fabric, Dies(AtomicU64::new(sends)));
                            let _ = tell.send((rank, one(&dies, 40, None), None));
                        } else {
                            // It lives until all are through.
                            let done = one(&*fabric, 40, None);
                            let _ = tell.send((rank, done, Some(fabric)));
                        }
                    });
                }
                let mut stay = Vec::new();
                for _ in 0..size {
                    let (rank, done, fabric) = told
                        .recv_timeout(Duration::from_secs(60))
                        .unwrap_or_else(|_| panic!("a rank waits: {size} {dead} {sends}"));
                    if let (Err(e), true) = (&done, rank != dead) {
                        assert_eq!(e.kind(), Kind::Peer, "{e}");
                    }
                    stay.push(fabric);
                }
            }
        }
    }

    proptest! {
        #[test]
        fn groups_are_small(size in 1usize..3000) {
            let radices = radices(size);
            prop_assert_eq!(radices.iter().product::<usize>(), size);
            let prime = |n: usize| (2..n).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
            prop_assert!(radices.iter().all(|r| *r <= MOST || prime(*r)));
        }
    }
}
