//! Ranks that come to be coupled: the first one hears of each of the others, and tells all of them, or who is missing.

use crate::clock;
use crate::coupling::{CAME, COME};
use crate::wire::{self, Failure};
use std::collections::BTreeSet;
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_fabric::Fabric;

/// What a rank says when it comes, and when it does not wait any longer.
const HERE: u8 = 0;
const GONE: u8 = 1;
/// How often it is looked whether those who are missing live.
const LOOK: Duration = Duration::from_secs(1);
/// So much longer than the first rank waits for the others they wait for what it says: it knows who is missing.
const GRACE: Duration = Duration::from_secs(10);
/// Ranks that are missing which an error names.
const NAMED: usize = 8;

const HINT: &str = "all ranks are coupled, whatever program they run: see what those wait for, or give a longer timeout";

/// What the first rank says: nothing if all have come, else why not, with the rank that it is about.
type Said = Option<(Option<u64>, Failure)>;

/// Waits until all ranks have come here. They all call this, and nothing of it is left for a second time: a fabric is for one coupling.
///
/// # Errors
/// `Timeout` on all of them if one has not come in time, with its number; `Peer` if one is gone, or has given up before others came.
pub(crate) fn all_come(fabric: &dyn Fabric, timeout: Duration) -> Result<()> {
    if fabric.rank() > 0 {
        return hear(fabric, timeout);
    }
    let came = gather(fabric, timeout);
    let failure = |e: &Error| (e.place().rank.map(|rank| rank as u64), Failure::of(e));
    let said: Said = came.as_ref().err().map(failure);
    let said = wire::encode(&said)?;
    for rank in 1..fabric.size() {
        // Who comes later hears of it, and who is gone need not.
        let _ = fabric.send(rank, CAME, said.clone());
    }
    came
}

/// The first rank hears of all others.
fn gather(fabric: &dyn Fabric, timeout: Duration) -> Result<()> {
    let until = clock::after(timeout);
    let mut missing: BTreeSet<usize> = (1..fabric.size()).collect();
    loop {
        // What is there is heard also when the time is over, or when all have come: that one has gone since.
        let left = until.saturating_duration_since(clock::now());
        let wait = if missing.is_empty() { Duration::ZERO } else { left.min(LOOK) };
        match fabric.recv_any(COME, wait)? {
            Some((rank, said)) if said == [HERE] => {
                missing.remove(&rank);
            }
            Some((rank, _)) => {
                let message = "the rank waits no longer for others to be coupled";
                return Err(Error::new(Kind::Peer, message).at_rank(rank).with_hint(HINT));
            }
            None if missing.is_empty() => return Ok(()),
            None if left.is_zero() => return Err(not_come(&missing, fabric.size(), timeout)),
            None => missing.iter().try_for_each(|rank| fabric.alive(*rank))?,
        }
    }
}

fn not_come(missing: &BTreeSet<usize>, size: usize, timeout: Duration) -> Error {
    let named: Vec<String> = missing.iter().take(NAMED).map(usize::to_string).collect();
    let more = match missing.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (ranks, have) = if missing.len() == 1 { ("rank", "has") } else { ("ranks", "have") };
    let message = format!(
        "{ranks} {}{more} of {size} {have} not come to be coupled within {} s",
        named.join(", "),
        timeout.as_secs_f64()
    );
    Error::new(Kind::Timeout, message).with_hint(HINT)
}

/// The others hear what the first one says.
fn hear(fabric: &dyn Fabric, timeout: Duration) -> Result<()> {
    fabric.send(0, COME, vec![HERE])?;
    let within = timeout.saturating_add(GRACE.min(timeout));
    let Some(said) = fabric.recv_within(0, CAME, within)? else {
        // It may come later, and is not to be coupled with who is not there.
        let _ = fabric.send(0, COME, vec![GONE]);
        return Err(not_come(&BTreeSet::from([0]), fabric.size(), within));
    };
    match wire::decode::<Said>(&said)? {
        None => Ok(()),
        Some((rank, failure)) => {
            let rank = rank.and_then(|rank| usize::try_from(rank).ok());
            Err(rank.into_iter().fold(failure.error(), Error::at_rank))
        }
    }
}
