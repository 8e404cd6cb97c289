//! Who will get what from whom of a stream: what the nodes that have its writers know of it (`share.rs`), put together. What is told of one
//! node is of its own writers; what is told of all is of the whole stream.

use crate::index::shown;
use crate::share::{Lag, Pieces, Share};
use crate::survey::Missed;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashSet};
use stead_core::units::format_size;

/// Writers that are many to get all from.
const WRITERS: usize = 4;
/// Warnings of one kind.
const WARNINGS: usize = 8;

/// What is gone by for a reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// What it has got of this step.
    Step(u64),
    /// It has had no step yet: the rows of each variable are divided evenly among the ranks of its group. An assumption.
    Rows,
    /// It has had steps, and has got nothing of them.
    Nothing,
}

/// What a reader will get of a step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taker {
    /// Its group.
    pub group: String,
    /// Which rank of it.
    pub rank: u64,
    /// Its process; `None` if it has not come.
    pub process: Option<u32>,
    /// It is on a node without any of these writers.
    pub is_elsewhere: bool,
    /// Which one, as its job numbers nodes; `None` where it is of none.
    pub node: Option<u64>,
    /// What this is gone by.
    pub basis: Basis,
    /// How many boxes. One that lies on several nodes counts on each of them.
    pub boxes: u64,
    /// Bytes that will be copied, and those that it looks at where they lie.
    pub copied: u64,
    /// See `copied`.
    pub looked: u64,
    /// Gets of the step that is gone by that are not in this, as they were too many to be noted.
    pub unknown: u64,
}

/// What a reader will get from a writer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pull {
    /// The group of the reader.
    pub group: String,
    /// Which rank of it.
    pub rank: u64,
    /// Which of the writers.
    pub writer: u64,
    /// Bytes that will be copied.
    pub copied: u64,
    /// Bytes that are looked at where they lie.
    pub looked: u64,
    /// Runs of bytes that the copies are made of.
    pub runs: u64,
    /// They are sent to another node.
    pub is_sent: bool,
}

/// What a writer has put into the step that is gone by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Giver {
    /// Which of the writers.
    pub rank: u64,
    /// The node that it is on; `None` where that was not asked by its name.
    pub node: Option<String>,
    /// How many blocks.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that readers will get of them.
    pub given: u64,
}

/// What may be slow, or go wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// `"hot writer"`, `"gathering reader"`, `"small pieces"`, `"behind"`, `"dropped"` or `"memory"`.
    pub kind: &'static str,
    /// What, and of whom.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// Who will get what from whom of a step of a stream: of the writers of this node, or of all nodes that were asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Explanation {
    /// Its name.
    pub name: String,
    /// The last complete step, whose blocks are gone by; `None` if none is there. Of several nodes, the last that all of them have.
    pub step: Option<u64>,
    /// Bytes of its arrays.
    pub bytes: u64,
    /// Writers of other nodes, of whom nothing is said here.
    pub elsewhere: u64,
    /// The others, in order.
    pub writers: Vec<Giver>,
    /// Readers that are there, and ranks of groups that have not come yet.
    pub readers: Vec<Taker>,
    /// Who gets what from whom, where it is anything.
    pub pulls: Vec<Pull>,
    /// Bytes of a step that will be copied by all readers, and those that are looked at where they lie.
    pub copied: u64,
    /// See `copied`.
    pub looked: u64,
    /// Bytes that arrays of the stream may take, on all of these nodes together.
    pub memory: u64,
    /// Steps that are in memory at a time, when groups are as far behind as they may be.
    pub steps: u64,
    /// What these, and the copies of all readers, are as a multiple of the bytes of a step; `None` without one.
    pub multiple: Option<f64>,
    /// What may be slow, or go wrong.
    pub warnings: Vec<Warning>,
    /// Nodes that were asked, and of which nothing is told.
    pub missed: Vec<Missed>,
}

impl Explanation {
    /// What nodes say, put together. Of a writer that two of them claim to have the first one is believed.
    pub(crate) fn of(name: &str, shares: Vec<(Option<String>, Share)>) -> Explanation {
        let mut known = HashSet::new();
        let mut is_new = |(_, share): &(Option<String>, Share)| {
            let is_new = !share.writers.iter().any(|giver| known.contains(&giver.rank));
            known.extend(share.writers.iter().map(|giver| giver.rank));
            is_new
        };
        let shares: Vec<(Option<String>, Share)> =
            shares.into_iter().filter(|one| is_new(one)).collect();
        let mut readers: BTreeMap<(String, u64), Taker> = BTreeMap::new();
        let (mut writers, mut pulls) = (Vec::new(), Vec::new());
        for (node, share) in &shares {
            let givers = share.writers.iter().cloned();
            writers.extend(givers.map(|giver| Giver { node: node.clone(), ..giver }));
            pulls.extend(share.pulls.iter().cloned());
            for taker in &share.readers {
                let of = (taker.group.clone(), taker.rank);
                match readers.entry(of) {
                    std::collections::btree_map::Entry::Vacant(free) => {
                        free.insert(taker.clone());
                    }
                    std::collections::btree_map::Entry::Occupied(mut there) => {
                        there.get_mut().add(taker);
                    }
                }
            }
        }
        writers.sort_by_key(|giver: &Giver| giver.rank);
        pulls
            .sort_by(|a: &Pull, b| (&a.group, a.rank, a.writer).cmp(&(&b.group, b.rank, b.writer)));
        let readers: Vec<Taker> = readers.into_values().collect();
        let sum = |of: fn(&Taker) -> u64| readers.iter().map(of).fold(0, u64::saturating_add);
        let (copied, looked) = (sum(|taker| taker.copied), sum(|taker| taker.looked));
        let all = || shares.iter().map(|(_, share)| share);
        // The one that is being written is the last of the queue.
        let steps = all().map(|share| {
            let queued = share.stays.iter().map(|of| of.keep.saturating_add(of.queue)).max();
            queued.unwrap_or(share.queue).max(share.keep.saturating_add(1))
        });
        let steps = steps.max();
        let steps = steps.unwrap_or(0);
        let bytes = all().map(Share::bytes).fold(0, u64::saturating_add);
        let taken = steps as f64 * bytes as f64 + copied as f64;
        let each: Option<Vec<u64>> = all().map(|share| share.step).collect();
        let most = all().map(|share| share.all).max().unwrap_or(0);
        let mut told = Explanation {
            name: name.to_owned(),
            step: each.and_then(|each| each.into_iter().min()),
            bytes,
            elsewhere: most.saturating_sub(writers.len() as u64),
            writers,
            readers,
            pulls,
            copied,
            looked,
            memory: all().map(|share| share.memory).fold(0, u64::saturating_add),
            steps,
            multiple: (bytes > 0).then(|| taken / bytes as f64),
            warnings: Vec::new(),
            missed: Vec::new(),
        };
        let mut warnings = hot(&told, &shares);
        warnings.extend(gathering(&told));
        warnings.extend(pieces(all().flat_map(|share| &share.pieces).collect()));
        warnings.extend(left_behind(all().flat_map(|share| &share.lags)));
        let is_one = shares.len() == 1;
        warnings.extend(
            shares
                .iter()
                .filter_map(|(node, share)| room(node.as_deref().filter(|_| !is_one), share)),
        );
        told.warnings = warnings;
        told
    }
}

impl Taker {
    /// What it gets from the writers of another node.
    fn add(&mut self, more: &Taker) {
        self.basis = match (self.basis, more.basis) {
            (Basis::Nothing, other) | (other, Basis::Nothing) => other,
            (Basis::Rows, _) | (_, Basis::Rows) => Basis::Rows,
            (Basis::Step(a), Basis::Step(b)) => Basis::Step(a.min(b)),
        };
        // Where it has not come yet it is awaited, and on its own node it is here.
        self.is_elsewhere = match (self.process, more.process) {
            (Some(_), Some(_)) => self.is_elsewhere && more.is_elsewhere,
            (None, Some(_)) => more.is_elsewhere,
            (_, None) => self.is_elsewhere,
        };
        self.process = self.process.or(more.process);
        self.node = self.node.or(more.node);
        let sums = [
            (&mut self.boxes, more.boxes),
            (&mut self.copied, more.copied),
            (&mut self.looked, more.looked),
            (&mut self.unknown, more.unknown),
        ];
        for (sum, more) in sums {
            *sum = sum.saturating_add(more);
        }
    }
}

/// Writers that most of what several readers get comes from; and those that are alone on their nodes and send the same bytes again and again.
fn hot(told: &Explanation, shares: &[(Option<String>, Share)]) -> Vec<Warning> {
    if let [giver] = &told.writers[..] {
        return alone(told, giver).into_iter().collect();
    }
    let all = told.copied.saturating_add(told.looked);
    let hottest = told.writers.iter().max_by_key(|giver| giver.given).filter(|giver| {
        let from = told.pulls.iter().filter(|pull| pull.writer == giver.rank).count();
        let share = giver.given as f64 / all.max(1) as f64;
        from > 1 && share > 0.5 && share * told.writers.len() as f64 >= 1.5
    });
    let mut warnings: Vec<Warning> = hottest
        .map(|giver| {
            let from = told.pulls.iter().filter(|pull| pull.writer == giver.rank).count();
            Warning {
                kind: "hot writer",
                message: format!(
                    "{:.0} % of what {from} readers get is from writer {} of {}",
                    100.0 * giver.given as f64 / all.max(1) as f64,
                    giver.rank,
                    told.writers.len()
                ),
                hint: "divide the array more evenly among writers, or let readers get what lies near to each other from different writers".into(),
            }
        })
        .into_iter()
        .collect();
    for (_, share) in shares {
        if let [giver] = &share.writers[..]
            && hottest.is_none_or(|hottest| hottest.rank != giver.rank)
            && warnings.len() < WARNINGS
        {
            warnings.extend(alone(told, giver));
        }
    }
    warnings
}

/// The only writer of its node, of which several readers on other nodes get what one connection is to carry: all that they get, if it is the only
/// one of all, or else its bytes again and again. What is looked at on its node costs nothing.
fn alone(told: &Explanation, giver: &Giver) -> Option<Warning> {
    let sent = || told.pulls.iter().filter(|pull| pull.is_sent && pull.writer == giver.rank);
    let (from, bytes) =
        (sent().count(), sent().map(|pull| pull.copied).fold(0, u64::saturating_add));
    let is_only = told.elsewhere == 0 && told.writers.len() == 1;
    if from < 2 || !(is_only || bytes >= giver.bytes.saturating_mul(2)) {
        return None;
    }
    let (bytes, put) = (format_size(bytes), format_size(giver.bytes));
    let message = match is_only {
        true => format!(
            "all that {from} readers on other nodes get is from writer {} of 1: {bytes} of a step",
            giver.rank
        ),
        false => format!(
            "{from} readers on other nodes get {bytes} from writer {}, which has put {put}: the same bytes are sent several times",
            giver.rank
        ),
    };
    let hint = match is_only {
        true => {
            "let several ranks write, on more than one node, or have readers run where the writer is"
        }
        false => {
            "let each reader get less of it, or have one that gets all run where the writer is"
        }
    };
    Some(Warning { kind: "hot writer", message, hint: hint.into() })
}

/// Readers that have got everything from many writers.
fn gathering(told: &Explanation) -> Vec<Warning> {
    let gathers = |taker: &&Taker| {
        if taker.basis == Basis::Rows {
            // Nobody has said so.
            return false;
        }
        let from =
            told.pulls.iter().filter(|p| (&p.group, p.rank) == (&taker.group, taker.rank)).count();
        let bytes = taker.copied.saturating_add(taker.looked);
        from >= WRITERS
            && from == told.writers.len()
            && taker.copied > 0
            && bytes >= told.bytes
            && told.bytes > 0
    };
    let all = told.readers.iter().filter(gathers);
    all.take(WARNINGS)
        .map(|taker| Warning {
            kind: "gathering reader",
            message: format!(
                "rank {} of the readers '{}' gets all of a step from {} writers",
                taker.rank,
                taker.group,
                told.writers.len()
            ),
            hint: "divide what it gets among more ranks of the group, or let it get parts that lie in one block".into(),
        })
        .collect()
}

/// Copies that are made of many small pieces.
fn pieces(mut all: Vec<&Pieces>) -> Vec<Warning> {
    all.sort_by_key(|pieces| std::cmp::Reverse(pieces.runs));
    let told = all.into_iter().take(WARNINGS).map(|Pieces { group, rank, variable, runs, bytes }| Warning {
        kind: "small pieces",
        message: format!(
            "what rank {rank} of the readers '{group}' gets of '{}' is copied in {runs} pieces of {} bytes on average",
            shown(variable),
            bytes / (*runs).max(1)
        ),
        hint: "get boxes that have whole rows of the blocks that writers put, or let writers put wider ones".into(),
    });
    told.collect()
}

/// Groups that are behind, and those that steps went from: as they are where it is worst.
fn left_behind<'l>(all: impl Iterator<Item = &'l Lag>) -> Vec<Warning> {
    let mut groups: BTreeMap<&str, Lag> = BTreeMap::new();
    for lag in all {
        let worst = groups.entry(&lag.group).or_insert_with(|| lag.clone());
        let larger = |a: Option<(u64, u64)>, b: Option<(u64, u64)>| match (a, b) {
            (Some((_, few)), Some((rank, many))) if many > few => Some((rank, many)),
            (a, b) => a.or(b),
        };
        worst.dropped = larger(worst.dropped, lag.dropped);
        worst.behind = larger(worst.behind, lag.behind);
    }
    let mut warnings = Vec::new();
    for (name, Lag { dropped, behind, .. }) in groups {
        if let Some((rank, dropped)) = dropped {
            warnings.push(Warning {
                kind: "dropped",
                message: format!(
                    "{dropped} steps went before rank {rank} of the readers '{name}' came to them"
                ),
                hint: "let it do less with each step, give it more ranks, or have writers wait: behind block".into(),
            });
        }
        if let Some((rank, steps)) = behind {
            warnings.push(Warning {
                kind: "behind",
                message: format!(
                    "rank {rank} of the readers '{name}' is {steps} steps behind: writers wait for it"
                ),
                hint: "let it do less with each step, give it more ranks, or let it miss steps: behind drop".into(),
            });
        }
    }
    warnings
}

/// Whether the steps that are to stay find room on a node, which is named where there are several.
fn room(node: Option<&str>, share: &Share) -> Option<Warning> {
    let Share { memory, stays, .. } = share;
    let most = stays.iter().max_by_key(|of| of.keep.max(share.keep).saturating_add(of.queue));
    let own = most.filter(|of| of.keep > share.keep || of.queue != share.queue);
    let (keep, queue) = match most {
        Some(of) => (of.keep.max(share.keep), of.queue),
        None => (share.keep, share.queue),
    };
    let (bytes, steps) = (share.bytes(), keep.saturating_add(queue));
    let whom = own.map_or_else(String::new, |of| format!(" for the readers '{}'", of.group));
    if bytes == 0 || bytes.saturating_mul(steps) <= *memory {
        return None;
    }
    let at = node.map_or_else(String::new, |node| format!(" on node '{node}'"));
    Some(Warning {
        kind: "memory",
        message: format!(
            "{} of memory{at} hold {} steps of {}, and {keep} are kept and {queue} queued{whom}: writers may wait for memory",
            format_size(*memory),
            memory / bytes,
            format_size(bytes)
        ),
        hint: format!(
            "give the stream {} of memory, or keep or queue fewer steps",
            format_size(bytes.saturating_mul(steps))
        ),
    })
}
