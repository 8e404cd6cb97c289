//! Some of the ranks of a fabric, as a fabric of their own.

use crate::{Fabric, Rounds};
use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;
use stead_core::{Error, Result};

/// Some ranks of another fabric: rank `i` of it is the `i`th that was named there. What they do together has rounds of its own.
///
/// Tags are those of the whole fabric: what is used by a subset is used by nobody else there. Errors have the numbers of
/// ranks here, as everything that ranks of a subset tell each other; who hands one to somebody who knows the whole fabric
/// has its number put right by [`Subset::outside`].
pub struct Subset {
    inner: Arc<dyn Fabric>,
    /// The rank in the whole fabric of each one here.
    ranks: Vec<usize>,
    /// And the other way round.
    here: HashMap<usize, usize>,
    rank: usize,
    rounds: Rounds,
}

impl Subset {
    /// Those `ranks` of a fabric, this one among them, in this order. All of them name the same.
    ///
    /// # Errors
    /// `Usage` if this rank is not among them, or one is named that there is not, or twice.
    pub fn new(inner: Arc<dyn Fabric>, ranks: Vec<usize>) -> Result<Subset> {
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
        Ok(Subset { inner, ranks, here, rank, rounds: Rounds::default() })
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
        match error.place().rank.and_then(|whole| self.here.get(&whole)) {
            Some(rank) => error.at_rank(*rank),
            None => error,
        }
    }
}

impl Fabric for Subset {
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

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn forget(&self, tags: Range<u32>) {
        self.rounds.forget(&tags);
        self.inner.forget(tags);
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
