//! Some of the ranks of a fabric, as a fabric of their own.

use crate::{Fabric, Rounds};
use std::collections::HashMap;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;
use stead_core::{Error, Result};

/// Some ranks of another fabric: rank `i` of it is the `i`th that was named there. What they do together has rounds of its own.
///
/// Tags are those of the whole fabric: what is used by a subset is used by nobody else there. Errors have the numbers of
/// ranks here, as everything that ranks of a subset tell each other; who hands one to somebody who knows the whole fabric
/// has its number put right by [`Subset::outside`].
pub struct Subset<P = Arc<dyn Fabric>> {
    inner: P,
    /// The rank in the whole fabric of each one here.
    ranks: Vec<usize>,
    /// And the other way round.
    here: HashMap<usize, usize>,
    rank: usize,
    rounds: Rounds,
    /// Errors have the numbers of ranks in the whole fabric.
    as_outside: bool,
}

impl<'f, P: Deref<Target = dyn Fabric + 'f>> Subset<P> {
    /// Those `ranks` of a fabric, this one among them, in this order. All of them name the same.
    ///
    /// # Errors
    /// `Usage` if this rank is not among them, or one is named that there is not, or twice.
    pub fn new(inner: P, ranks: Vec<usize>) -> Result<Subset<P>> {
        let mut here = HashMap::with_capacity(ranks.len());
        for (i, rank) in ranks.iter().enumerate() {
            if *rank >= inner.size() {
                return Err(Error::usage(format!("there is no rank {rank}")));
            }
            if here.insert(*rank, i).is_some() {
                return Err(Error::usage(format!("rank {rank} is named twice")));
            }
        }
        let rank = here.get(&inner.rank()).copied().ok_or_else(|| {
            Error::usage(format!("rank {} is not among those that are named", inner.rank()))
        })?;
        let rounds = Rounds::default();
        Ok(Subset { inner, ranks, here, rank, rounds, as_outside: false })
    }

    /// As [`Subset::new`], for ranks that come together for a while, with a number of rounds that is higher than all those of
    /// the last time. Errors that the fabric tells have the numbers of ranks there: some are told to ranks that are not in here,
    /// or are about them.
    ///
    /// # Errors
    /// As [`Subset::new`].
    pub fn for_a_while(inner: P, ranks: Vec<usize>, rounds: u64) -> Result<Subset<P>> {
        let subset = Subset::new(inner, ranks)?;
        Ok(Subset { rounds: Rounds::counted_from(rounds), as_outside: true, ..subset })
    }

    /// An error as the whole fabric knows it: with the number that its rank has there.
    pub fn outside(&self, error: Error) -> Error {
        match error.place().rank.and_then(|rank| self.ranks.get(rank)) {
            Some(whole) => error.at_rank(*whole),
            None => error,
        }
    }

    /// The rank in the whole fabric.
    fn whole(&self, rank: usize) -> Result<usize> {
        let unknown = || Error::internal(format!("there is no rank {rank}"));
        self.ranks.get(rank).copied().ok_or_else(unknown)
    }

    /// An error of the whole fabric as it is known here.
    fn inside(&self, error: Error) -> Error {
        if self.as_outside {
            return error;
        }
        match error.place().rank.and_then(|whole| self.here.get(&whole)) {
            Some(rank) => error.at_rank(*rank),
            None => error,
        }
    }
}

impl<'f, P: Deref<Target = dyn Fabric + 'f> + Send + Sync> Fabric for Subset<P> {
    fn rank(&self) -> usize {
        self.rank
    }

    fn size(&self) -> usize {
        self.ranks.len()
    }

    fn node_of(&self, rank: usize) -> usize {
        self.ranks.get(rank).map_or(0, |whole| self.inner.node_of(*whole))
    }

    fn deadline(&self) -> Duration {
        self.inner.deadline()
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        self.inner.send(self.whole(to)?, tag, bytes).map_err(|e| self.inside(e))
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.inner.recv_within(self.whole(from)?, tag, within).map_err(|e| self.inside(e))
    }

    /// What others send with this tag is dropped: it is not meant for ranks that do not look at it.
    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        loop {
            let Some((from, bytes)) =
                self.inner.recv_any(tag, within).map_err(|e| self.inside(e))?
            else {
                return Ok(None);
            };
            if let Some(rank) = self.here.get(&from) {
                return Ok(Some((*rank, bytes)));
            }
        }
    }

    fn alive(&self, rank: usize) -> Result<()> {
        self.inner.alive(self.whole(rank)?).map_err(|e| self.inside(e))
    }

    fn ends(&self, rank: usize) -> bool {
        self.whole(rank).is_ok_and(|whole| self.inner.ends(whole))
    }

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn forget(&self, tags: Range<u32>) {
        self.rounds.forget(&tags);
        self.inner.forget(tags);
    }

    fn memory(&self, len: usize) -> Vec<u8> {
        self.inner.memory(len)
    }

    fn room(&self, len: usize) -> Result<Vec<u8>> {
        self.inner.room(len)
    }

    fn give_back(&self, bytes: Vec<u8>) {
        self.inner.give_back(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{FabricExt, Local};
    use stead_core::Kind;

    const LONG: Duration = Duration::from_secs(60);

    /// The subset's ranks of a group of `size`, and the ranks that are in none.
    fn of(size: usize, ranks: &[usize]) -> (Vec<Subset>, Vec<Arc<dyn Fabric>>) {
        let all = Local::over_nodes(&(0..size).map(|r| r % 2).collect::<Vec<_>>(), LONG);
        let all: Vec<Arc<dyn Fabric>> =
            all.into_iter().map(|r| Arc::new(r) as Arc<dyn Fabric>).collect();
        let subset = |r: &usize| Subset::new(all[*r].clone(), ranks.to_vec()).unwrap();
        let rest = (0..size).filter(|r| !ranks.contains(r)).map(|r| all[r].clone()).collect();
        (ranks.iter().map(subset).collect(), rest)
    }

    #[test]
    fn subsets_conform() {
        for (size, ranks) in
            [(1, vec![0]), (3, vec![2]), (4, vec![3, 1]), (6, vec![0, 5, 2, 3]), (3, vec![2, 1, 0])]
        {
            let (subset, _rest) = of(size, &ranks);
            crate::conformance::check(subset);
        }
    }

    #[test]
    fn a_fabric_falls_into_subsets_that_know_nothing_of_each_other() {
        let all = Local::group(5);
        std::thread::scope(|scope| {
            for fabric in all {
                scope.spawn(move || {
                    let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                    let odd = fabric.rank() % 2;
                    // All together, and then each half for itself with the same tags, as often as it likes.
                    fabric.all_gather(5, vec![]).unwrap();
                    let ranks: Vec<usize> = (0..5).filter(|r| r % 2 == odd).collect();
                    let half = Subset::new(fabric.clone(), ranks.clone()).unwrap();
                    for _ in 0..1 + 3 * odd {
                        let got = half.all_gather(5, vec![fabric.rank() as u8]).unwrap();
                        let want: Vec<Vec<u8>> = ranks.iter().map(|r| vec![*r as u8]).collect();
                        assert_eq!(got, want);
                    }
                    fabric.all_gather(7, vec![]).unwrap();
                });
            }
        });
    }

    #[test]
    fn strangers_are_not_heard_and_errors_have_numbers_of_here_and_there() {
        let (mut subset, rest) = of(4, &[3, 0]);
        rest[0].send(3, 7, vec![9]).unwrap();
        subset[1].send(0, 7, vec![1]).unwrap();
        assert_eq!(subset[0].recv_any(7, LONG).unwrap(), Some((1, vec![1])));
        assert_eq!(subset[0].recv_any(7, Duration::ZERO).unwrap(), None);
        drop(subset.pop());
        let e = subset[0].recv(1, 8).unwrap_err();
        assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(1)));
        let e = subset[0].outside(subset[0].alive(1).unwrap_err());
        assert_eq!(e.place().rank, Some(0));
        let e = subset[0].outside(Error::usage("this rank").at_rank(0));
        assert_eq!(e.place().rank, Some(3));
    }

    #[test]
    fn what_is_left_of_the_last_time_is_of_no_round_of_the_next() {
        let all = Local::group(4);
        let of = |rank: usize, rounds| {
            Subset::for_a_while(&all[rank] as &dyn Fabric, vec![1, 3], rounds).unwrap()
        };
        // One of them has come to the second step, and the other one to none.
        let early = of(3, 1 << 32);
        early.collect(5, Ok(vec![1])).unwrap();
        early.collect(5, Ok(vec![2])).unwrap();
        drop(early);
        of(3, 2 << 32).collect(5, Ok(vec![3])).unwrap();
        let got = of(1, 2 << 32).collect(5, Ok(vec![])).unwrap();
        assert_eq!(got[1].as_ref().unwrap().as_ref().unwrap(), &[3]);
        let (here, mut all) = (vec![1, 3], all);
        drop(all.pop());
        let subset = Subset::for_a_while(&all[1] as &dyn Fabric, here, 3 << 32).unwrap();
        let e = subset.collect(5, Ok(vec![])).unwrap().pop().unwrap().unwrap_err();
        assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(3)));
    }

    #[test]
    fn ranks_that_make_no_subset_are_refused() {
        let whole: Arc<dyn Fabric> = Arc::new(Local::group(3).remove(0));
        for (ranks, says) in [
            (vec![], "rank 0 is not among"),
            (vec![1, 2], "rank 0 is not among"),
            (vec![0, 3], "there is no rank 3"),
            (vec![0, 1, 0], "rank 0 is named twice"),
        ] {
            let e = Subset::new(whole.clone(), ranks).map(drop).unwrap_err();
            assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
        }
    }
}
