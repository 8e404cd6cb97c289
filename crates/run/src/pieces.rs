//! Merging states that are large: each rank merges a piece of all of them, at the same time as the others do theirs, and
//! rank 0 joins the pieces.
//!
//! Ranks swap pieces in rounds, each within groups of a few ranks: radix-k (Peterka et al., "A configurable algorithm for
//! parallel image-compositing applications", SC 2009), of which binary swap is the case of groups of two. A rank sends and
//! receives about one state in all, whatever the number of ranks, where a tree has rank 0 receive log2 of that many.

use crate::exchange::Crew;
use crate::pass::{caught, too_large};
use crate::values;
use std::collections::HashMap;
use std::sync::Arc;
use stead_core::{Error, Result};
use stead_fabric::{FabricExt, frame, unframe};
use stead_kernel::{AnyKernel, AnyState, Step};

/// Of rounds in which pieces are swapped, and of the one in which rank 0 gets them.
const SWAPS: u32 = 0x5200_0003;
const PIECES: u32 = 0x5200_0004;

/// Ranks of a group, unless their number has a larger prime factor.
const MOST: usize = 8;

/// A state, and which of the kernels it is of.
pub type Large = (usize, AnyState);

/// Takes the states out that are merged in pieces, and leaves neutral ones.
pub fn apart(kernels: &[Arc<dyn AnyKernel>], states: &mut [AnyState]) -> Vec<Large> {
    let cuts = |(i, (k, state)): (usize, (&Arc<dyn AnyKernel>, &mut AnyState))| {
        k.cuts().then(|| (i, std::mem::replace(state, k.init())))
    };
    kernels.iter().zip(states).enumerate().filter_map(cuts).collect()
}

/// Ends the pass of kernels whose states were taken out: rank 0 gets what they come to, the others its answer alone. All
/// ranks call it, with states of the same kernels, and get the same error if there is one.
pub fn finish(
    crew: &Crew<'_>,
    kernels: &[Arc<dyn AnyKernel>],
    large: Vec<Large>,
) -> Result<HashMap<usize, Step>> {
    if large.is_empty() {
        return Ok(HashMap::new());
    }
    let of: Vec<(usize, &Arc<dyn AnyKernel>)> =
        large.iter().filter_map(|(i, _)| Some((*i, kernels.get(*i)?))).collect();
    let swapping = Swapping { crew, kernels: of.iter().map(|(_, k)| *k).collect() };
    let mine = swapping.merged(large.into_iter().map(|(_, state)| state).collect());
    let steps = crew.fabric.collect(PIECES, mine).and_then(|all| {
        if crew.rank() == 0 { caught(|| swapping.join(all)) } else { Ok(Vec::new()) }
    });
    let mut ended: HashMap<usize, Step> = HashMap::new();
    let word = steps.and_then(|steps| {
        let mut word = Vec::new();
        for ((i, _), step) in of.iter().zip(steps) {
            let value = match &step {
                Step::Done(value) | Step::File { value, .. } => value,
                Step::Next(_) => {
                    return Err(Error::internal(
                        "states in pieces are of a pass that is not the last",
                    ));
                }
            };
            values::put(value, &mut word)?;
            ended.insert(*i, step);
        }
        Ok(word)
    });
    let words = crew.gather(word)?;
    if crew.rank() != 0 {
        let mut word: &[u8] = words.first().map_or(&[], Vec::as_slice);
        for (i, _) in of {
            ended.insert(i, Step::Done(values::take(&mut word)?));
        }
    }
    Ok(ended)
}

struct Swapping<'a, 'b> {
    crew: &'a Crew<'b>,
    kernels: Vec<&'a Arc<dyn AnyKernel>>,
}

impl Swapping<'_, '_> {
    /// This rank's piece of each kernel, of all ranks' states.
    fn merged(&self, states: Vec<AnyState>) -> Result<Vec<u8>> {
        let (rank, size) = (self.crew.rank(), self.crew.size());
        // Of each kernel the pieces that are still this rank's.
        let mut mine = caught(|| self.cut(states, size));
        // In how many pieces and ranks these rounds go on: from far ranks to near ones, so that the piece of rank `n` is the
        // n-th one.
        let mut left = size;
        for radix in radices(size) {
            left /= radix;
            let digit = rank / left % radix;
            let group: Vec<usize> = (0..radix).map(|d| rank - digit * left + d * left).collect();
            let (own, parts) = match mine.and_then(|mine| caught(|| self.split(mine, radix, digit)))
            {
                Ok((own, parts)) => (Ok(own), parts.into_iter().map(Ok).collect()),
                // Who has failed takes part all the same, so that nobody waits for it.
                Err(e) => {
                    let told = |_| Err(Error::new(e.kind(), e.message()));
                    let told = group.iter().map(told).collect();
                    (Err(e), told)
                }
            };
            let got = self.crew.fabric.swap(SWAPS, &group, parts);
            mine = own.and_then(|own| caught(|| self.merge(own, got, digit)));
        }
        caught(|| {
            let mine: Vec<AnyState> = mine?.into_iter().flatten().collect();
            let bytes = self.kernels.iter().zip(&mine).map(|(k, state)| k.encode(state));
            Ok(frame(&bytes.collect::<Result<Vec<_>>>()?))
        })
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
        Ok((own, parts.iter().map(|p| frame(p)).collect()))
    }

    fn merge(
        &self,
        mut own: Vec<Vec<AnyState>>,
        got: Vec<Result<Vec<u8>>>,
        digit: usize,
    ) -> Result<Vec<Vec<AnyState>>> {
        for (_, bytes) in got.into_iter().enumerate().filter(|(d, _)| *d != digit) {
            let mut theirs = unframe(&bytes?)?.into_iter();
            for (k, pieces) in self.kernels.iter().zip(&mut own) {
                for piece in pieces {
                    let theirs = theirs.next().ok_or_else(uneven)?;
                    k.merge(piece, k.decode(&theirs)?)?;
                }
            }
        }
        let bytes = self.kernels.iter().zip(&own);
        let bytes = bytes.flat_map(|(k, all)| all.iter().map(|p| k.state_bytes(p) as u64)).sum();
        too_large(bytes, self.crew.states)?;
        Ok(own)
    }

    /// Joins the pieces of all ranks, and ends the pass.
    fn join(&self, all: Vec<Result<Vec<u8>>>) -> Result<Vec<Step>> {
        let size = self.crew.size();
        let mut pieces: Vec<Vec<Option<AnyState>>> =
            self.kernels.iter().map(|_| (0..size).map(|_| None).collect()).collect();
        for (rank, bytes) in all.into_iter().enumerate() {
            let bytes = unframe(&bytes?)?;
            for ((k, pieces), bytes) in self.kernels.iter().zip(&mut pieces).zip(bytes) {
                *pieces.get_mut(rank).ok_or_else(uneven)? = Some(k.decode(&bytes)?);
            }
        }
        let join = |(k, pieces): (&&Arc<dyn AnyKernel>, Vec<Option<AnyState>>)| {
            let pieces = pieces.into_iter().collect::<Option<Vec<_>>>().ok_or_else(uneven)?;
            k.finish(k.assemble(pieces)?)
        };
        self.kernels.iter().zip(pieces).map(join).collect()
    }
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
    use std::time::Duration;
    use stead_core::{Block, Cancel, Kind, Needs, Value};
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
                return Err(Error::data("it cannot be merged"));
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

    fn ended(ranks: Vec<Local>, places: usize, bad: Option<usize>) -> Vec<Result<Value>> {
        let kernels: Vec<Arc<dyn AnyKernel>> = vec![Arc::new(Sums(places))];
        let one = |fabric: Local| {
            let crew = Crew::new(&fabric, &Cancel::new(), None);
            let mut mine =
                Places((0..places as u64).map(|i| i * (fabric.rank() as u64 + 1)).collect());
            if bad == Some(fabric.rank()) {
                mine.0[places / 2] = BAD;
            }
            let mut states: Vec<AnyState> = vec![Box::new(mine)];
            let large = apart(&kernels, &mut states);
            assert_eq!(states[0].downcast_ref::<Places>(), Some(&Places(vec![0; places])));
            let mut steps = finish(&crew, &kernels, large)?;
            match steps.remove(&0) {
                Some(Step::Done(value)) => Ok(value),
                _ => Err(Error::internal("no answer")),
            }
        };
        std::thread::scope(|scope| {
            let one = &one;
            let all: Vec<_> = ranks.into_iter().map(|f| scope.spawn(move || one(f))).collect();
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
