//! States and counters from rank to rank.

use std::sync::Arc;
use stead_core::{Error, Kind, Result};
use stead_fabric::{Fabric, FabricExt};
use stead_kernel::{AnyKernel, AnyState};

/// What one rank contributes to the end of a pass.
#[derive(serde::Serialize, serde::Deserialize)]
enum Part {
    States { states: Vec<Vec<u8>>, counters: Vec<u64> },
    Failed { rank: usize, kind: u8, message: String, hint: Option<String> },
}

fn encode(part: &Part) -> Result<Vec<u8>> {
    postcard::to_stdvec(part).map_err(|e| Error::internal(format!("cannot encode states: {e}")))
}

fn decode(bytes: &[u8]) -> Result<Part> {
    postcard::from_bytes(bytes)
        .map_err(|e| Error::format(format!("states from another rank are malformed: {e}")))
}

/// Kinds that keep their meaning on other ranks; the rest arrive as `Peer`.
const KINDS: [Kind; 12] = [
    Kind::Peer,
    Kind::Usage,
    Kind::NotFound,
    Kind::Permission,
    Kind::Format,
    Kind::Data,
    Kind::Changed,
    Kind::Limit,
    Kind::NoSpace,
    Kind::Io,
    Kind::Cancelled,
    Kind::Timeout,
];

/// Merges every rank's states and counters, up a tree and back, so that all ranks hold the total. If a
/// rank failed, every rank gets the error of the lowest rank that did.
pub fn total(
    fabric: &dyn Fabric,
    tag: u32,
    kernels: &[Arc<dyn AnyKernel>],
    mine: Result<(Vec<AnyState>, Vec<u64>)>,
) -> Result<(Vec<AnyState>, Vec<u64>)> {
    if fabric.size() == 1 {
        return mine;
    }
    let part = match &mine {
        Ok((states, counters)) => {
            let states =
                kernels.iter().zip(states).map(|(k, s)| k.encode(s)).collect::<Result<_>>();
            states.map(|states| Part::States { states, counters: counters.clone() })
        }
        Err(e) => Ok(Part::Failed {
            rank: fabric.rank(),
            kind: KINDS.iter().position(|k| *k == e.kind()).unwrap_or(0) as u8,
            message: e.to_string(),
            hint: e.hint().map(str::to_string),
        }),
    }?;
    let all = fabric.all_reduce(tag, encode(&part)?, &mut |a, b| {
        let (mine, theirs) = (decode(&a)?, decode(&b)?);
        match (mine, theirs) {
            (Part::Failed { .. }, _) => Ok(a),
            (_, Part::Failed { .. }) => Ok(b),
            (
                Part::States { states: x, counters: mut c },
                Part::States { states: y, counters: d },
            ) => {
                let states = kernels
                    .iter()
                    .zip(x.iter().zip(&y))
                    .map(|(k, (x, y))| {
                        let mut s = k.decode(x)?;
                        k.merge(&mut s, k.decode(y)?)?;
                        k.encode(&s)
                    })
                    .collect::<Result<_>>()?;
                for (a, b) in c.iter_mut().zip(d) {
                    *a = a.saturating_add(b);
                }
                encode(&Part::States { states, counters: c })
            }
        }
    })?;
    match decode(&all)? {
        Part::States { states, counters } if states.len() == kernels.len() => {
            let states =
                kernels.iter().zip(&states).map(|(k, s)| k.decode(s)).collect::<Result<_>>()?;
            Ok((states, counters))
        }
        Part::States { .. } => Err(Error::format("ranks ran different kernels")),
        // The rank that failed keeps its own, richer error.
        Part::Failed { rank, .. } if rank == fabric.rank() => mine,
        Part::Failed { rank, kind, message, hint } => {
            let kind = KINDS.get(usize::from(kind)).copied().unwrap_or(Kind::Peer);
            let e = Error::new(kind, message).at_rank(rank);
            Err(match hint {
                Some(h) => e.with_hint(h),
                None => e,
            })
        }
    }
}
