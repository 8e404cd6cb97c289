//! Passes of some of the ranks, and what the others are told of them.
//!
//! Where those that have the data are not those that ask, one side may compute alone. Its ranks make the passes among themselves,
//! so that no state goes to a rank that does nothing with it. The others wait. At the end the first rank that has computed
//! tells them what came of it, once, and gives the first rank of all the files that it writes. Then all ranks are together again.

use crate::exchange::{Crew, Group};
use crate::values;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use stead_core::{Error, Result, Value};
use stead_fabric::{FabricExt, frame, unframe};

/// Ranks that compute, where others wait for them.
pub struct Sides<'a> {
    /// Those that compute, in their order.
    pub computing: Arc<[usize]>,
    /// Those that wait.
    pub waiting: Vec<usize>,
    /// Those that compute together, where this is one of them.
    pub crew: Option<Crew<'a>>,
    /// The first of those that compute and all that wait, where this is one of them.
    telling: Option<Crew<'a>>,
    /// The first of those that compute and the first rank, if that waits, where this is one of them.
    carrying: Option<Crew<'a>>,
}

impl<'a> Sides<'a> {
    /// Of the ranks of `crew`, in run `number`; `None` if all of them compute.
    pub fn new(crew: &Crew<'a>, computing: Vec<usize>, number: u64) -> Result<Option<Sides<'a>>> {
        let waiting: Vec<usize> = (0..crew.size()).filter(|r| !computing.contains(r)).collect();
        let Some(first) = computing.first().copied().filter(|_| !waiting.is_empty()) else {
            return Ok(None);
        };
        let among = |ranks: &[usize], group| {
            let here = ranks.contains(&crew.rank());
            here.then(|| crew.among(ranks.to_vec(), group, number)).transpose()
        };
        let told: Vec<usize> = [first].into_iter().chain(waiting.iter().copied()).collect();
        let carried = if waiting.contains(&0) { vec![first, 0] } else { Vec::new() };
        Ok(Some(Sides {
            crew: among(&computing, Group::Computing)?,
            telling: among(&told, Group::Telling)?,
            carrying: among(&carried, Group::Carrying)?,
            computing: computing.into(),
            waiting,
        }))
    }

    /// True if this rank waits for those that compute.
    pub fn waits(&self) -> bool {
        self.crew.is_none()
    }

    /// True if this rank tells the others.
    pub fn tells(&self) -> bool {
        self.crew.as_ref().is_some_and(|crew| crew.rank() == 0)
    }

    /// Those that this rank waits with.
    pub fn waiting_crew(&self) -> Option<&Crew<'a>> {
        self.telling.as_ref().filter(|_| self.waits())
    }

    /// Bytes that this rank has sent to those of its groups.
    pub fn sent(&self) -> u64 {
        let crews = [&self.crew, &self.telling, &self.carrying];
        crews.into_iter().flatten().map(|crew| crew.fabric.sent()).sum()
    }

    /// What the passes came to, on a rank that waits; of the rank that tells them it is what it has, which the others get.
    /// Those that compute and do not tell get nothing.
    pub fn told(&self, mine: Result<Vec<u8>>) -> Result<Vec<u8>> {
        let Some(telling) = &self.telling else { return mine.map(|_| Vec::new()) };
        let words = telling.settle(mine).map_err(|undone| {
            // Who computes tells all of it when all ranks are together. It is the cause of this rank's stop.
            let heard = self.waits() && undone.everywhere;
            if heard { Error::cancelled() } else { undone.error }
        })?;
        words.into_iter().next().ok_or_else(malformed)
    }

    /// Files from the rank that tells for the first rank, where that waits; nothing for the others.
    pub fn carry(&self, files: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>> {
        let Some(carrying) = &self.carrying else { return Ok(Vec::new()) };
        let framed = frame(&files);
        // They may be large.
        drop(files);
        let sent = carrying.fabric.broadcast(carrying.tag(0), framed)?;
        if carrying.rank() == 0 {
            return Ok(Vec::new());
        }
        Ok(unframe(&sent)?.into_iter().map(<[u8]>::to_vec).collect())
    }
}

fn malformed() -> Error {
    Error::format("what came of the passes is malformed")
}

/// What the passes came to, for those that took no part.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub passes: u64,
    pub rows: Option<u64>,
    pub rows_kept: Option<u64>,
    pub rows_skipped: u64,
    pub integers_rounded: u64,
    /// Bytes that ranks without data have computed on.
    pub asked: u64,
    /// Passes of each kernel.
    pub of_kernels: Vec<u64>,
    /// Which kernels have made a file.
    pub files: Vec<u64>,
    /// Names of the details of the scan: as they are encoded.
    pub scan: Vec<String>,
}

/// Values of kernels, and the details of a scan.
pub type Found = (Vec<Value>, Vec<(String, Value)>);

impl Outcome {
    /// With what each kernel found, and the details of the scan of the rank that tells it.
    pub fn encode<'v>(
        mut self,
        values: impl Iterator<Item = &'v Value>,
        scan: &'v [(String, Value)],
    ) -> Result<Vec<u8>> {
        self.scan = scan.iter().map(|(name, _)| name.clone()).collect();
        let mut out = postcard::to_stdvec(&self)
            .map_err(|e| Error::internal(format!("cannot encode what came of passes: {e}")))?;
        values.chain(scan.iter().map(|(_, v)| v)).try_for_each(|v| values::put(v, &mut out))?;
        Ok(out)
    }

    /// Of so many kernels, from bytes that may be anything.
    pub fn decode(bytes: &[u8], kernels: usize) -> Result<(Outcome, Found)> {
        let (mut outcome, mut rest) =
            postcard::take_from_bytes::<Outcome>(bytes).map_err(|_| malformed())?;
        let fits = outcome.files.iter().all(|i| *i < kernels as u64)
            && outcome.files.windows(2).all(|two| two[0] < two[1]);
        if outcome.of_kernels.len() != kernels || !fits {
            return Err(malformed());
        }
        let mut next = || values::take(&mut rest);
        let values = (0..kernels).map(|_| next()).collect::<Result<_>>()?;
        let names = std::mem::take(&mut outcome.scan).into_iter();
        let scan = names.map(|name| Ok((name, next()?))).collect::<Result<_>>()?;
        if rest.is_empty() { Ok((outcome, (values, scan))) } else { Err(malformed()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::values::tests::value;
    use proptest::prelude::*;

    fn outcome(kernels: usize, files: &[u64]) -> Outcome {
        Outcome {
            passes: 3,
            rows: Some(9),
            of_kernels: vec![2; kernels],
            files: files.to_vec(),
            ..Outcome::default()
        }
    }

    proptest! {
        #[test]
        fn what_came_of_passes_comes_as_it_was_sent(
            values in prop::collection::vec(value(), 0..5), scan in prop::collection::vec((".{0,5}", value()), 0..3),
        ) {
            let sent = outcome(values.len(), &[]);
            let bytes = sent.clone().encode(values.iter(), &scan).unwrap();
            let (got, found) = Outcome::decode(&bytes, values.len()).unwrap();
            prop_assert_eq!(got, sent);
            prop_assert_eq!(format!("{:?}", found), format!("{:?}", (&values, &scan)));
            for len in 0..bytes.len() {
                prop_assert!(Outcome::decode(&bytes[..len], values.len()).is_err());
            }
            prop_assert!(Outcome::decode(&bytes, values.len() + 1).is_err());
        }

        #[test]
        fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), kernels in 0usize..4) {
            let _ = Outcome::decode(&bytes, kernels).map(drop);
        }
    }

    #[test]
    fn files_are_those_of_kernels_that_there_are() {
        let of = |files: &[u64]| {
            let bytes =
                outcome(3, files).encode([Value::Null, Value::Null, Value::Null].iter(), &[]);
            Outcome::decode(&bytes.unwrap(), 3)
        };
        assert!(of(&[0, 2]).is_ok());
        for bad in [&[3][..], &[1, 1], &[2, 0], &[u64::MAX]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
