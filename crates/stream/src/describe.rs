//! A stream as others see it: for people, and for programs that look after streams.

use crate::board::{Agreed, Board, Members, Policy, Rule, Seat, Standing, State};
use crate::budget::Budget;
use crate::index::{Definition, Definitions};
use crate::options::Behind;
use crate::report::seconds;
use crate::wire;
use crate::words::Words;
use serde::{Deserialize, Serialize};
use stead_core::{Error, Result};

/// Whether a stream goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Progress {
    /// Its writers have not all closed it.
    Live,
    /// They have.
    Ended,
    /// This writer has ended in the middle.
    Failed {
        /// Its rank.
        writer: usize,
    },
    /// Somebody has removed it.
    Removed,
}

/// Whether somebody is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Presence {
    /// Not come yet.
    Awaited,
    /// Here.
    Here,
    /// Has closed it.
    Left,
    /// Its process has ended without a word.
    Died,
}

/// A writer or a reader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Peer {
    /// The group; none of a writer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Among the writers, or in its group.
    pub rank: u64,
    /// Its process; `None` if it has not come.
    pub process: Option<u32>,
    /// Whether it is there.
    pub presence: Presence,
    /// Steps that a writer has ended; of a reader, the step that comes next.
    pub step: u64,
    /// Steps that a reader was given.
    pub had: u64,
    /// Which they are: ranges from a first to a last one, in order. Of a reader that has missed steps often these are the newest ones.
    pub had_ranges: Vec<(u64, u64)>,
    /// Steps that it was given before those: of them the number alone is known.
    pub had_before: u64,
    /// Steps that went before a reader came to them.
    pub dropped: u64,
    /// Bytes that a writer has put, or a reader has copied.
    pub bytes: u64,
    /// Bytes that the arrays of a writer take now; those that a reader has looked at where they lie.
    pub memory: u64,
    /// Seconds that it has waited for others.
    pub waited_s: f64,
    /// Seconds of processors that its copies have taken: those of 64 KiB or more.
    pub copy_cpu_s: f64,
    /// A reader on another node: `process` is its number there.
    pub is_elsewhere: bool,
    /// Which node that is, as its job numbers nodes, and its rank in the job; `None` where it is of none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<u64>,
    /// See `node`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank_of_job: Option<u64>,
}

/// What all ranks of a group of readers say of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub group: String,
    /// How many ranks it has.
    pub ranks: u64,
    /// What happens when it is behind.
    pub behind: Behind,
    /// Steps that it may be behind; `None` where it is the stream's number.
    pub queue: Option<u64>,
    /// Steps that it has had which stay for it, beside those that the stream keeps.
    pub keep: u64,
}

/// What there is to know of a stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Its name.
    pub name: String,
    /// The node that tells it; `None` where that was not asked by its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// Whether it goes on.
    pub state: Progress,
    /// When it was founded, in nanoseconds since 1970.
    pub created: u64,
    /// Steps that are complete.
    pub complete: u64,
    /// Those that are still there.
    pub steps: Vec<u64>,
    /// Steps that stay when all have had them.
    pub keep: u64,
    /// Steps that a group may be behind before writers wait for it.
    pub queue: u64,
    /// Bytes that arrays may take.
    pub memory: u64,
    /// Those that they take now.
    pub used: u64,
    /// The most that they have taken at a time.
    pub peak: u64,
    /// What all streams of this user may take on this node, and take; `None` where nothing is agreed of the dataspace `memory`.
    pub budget: Option<Budget>,
    /// The variables of the last complete step, as the writers of this node say; none where no step is there, or where it cannot be read.
    pub variables: Vec<Definition>,
    /// Of recorded steps, why not all of them can be read, as far as it is known without reading arrays.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Its writers on this node.
    pub writers: Vec<Peer>,
    /// How many they are on all nodes.
    pub all_writers: u64,
    /// Groups of readers that are there.
    pub groups: Vec<Group>,
    /// Its readers: those that have gone, too, until others need their places.
    pub readers: Vec<Peer>,
}

pub(crate) fn peer(seat: Seat) -> Peer {
    let presence = match seat.standing {
        Standing::Awaited => Presence::Awaited,
        Standing::Here => Presence::Here,
        Standing::Left => Presence::Left,
        Standing::Died => Presence::Died,
    };
    let process = seat.elsewhere.map_or(seat.who.number, |elsewhere| elsewhere.process);
    let ranges = seat.ranges.iter().map(|(first, last)| (last - first).saturating_add(1));
    let had_before = seat.had.saturating_sub(ranges.fold(0, u64::saturating_add));
    Peer {
        group: seat.group,
        rank: seat.rank,
        process: (presence != Presence::Awaited).then_some(process),
        presence,
        step: seat.step,
        had: seat.had,
        had_ranges: seat.ranges,
        had_before,
        dropped: seat.dropped,
        bytes: seat.bytes,
        memory: seat.memory,
        waited_s: seconds(seat.waited),
        copy_cpu_s: seconds(seat.copying),
        is_elsewhere: seat.elsewhere.is_some(),
        node: seat.elsewhere.and_then(|elsewhere| elsewhere.node),
        rank_of_job: seat.elsewhere.and_then(|elsewhere| elsewhere.rank),
    }
}

fn group(members: Members) -> Group {
    let Members { name: group, size: ranks, policy: Policy { rule, queue, keep }, .. } = members;
    let behind = match rule {
        Rule::Block => Behind::Block,
        Rule::Drop => Behind::Drop,
        Rule::Spill => Behind::Spill,
    };
    Group { group, ranks, behind, queue, keep }
}

/// Which of all writers has failed.
fn failed<W: Words>(board: &Board<W>, place: usize) -> usize {
    match place.checked_sub(board.writers()) {
        Some(rank) => rank,
        None => usize::try_from(board.rank_of(place)).unwrap_or(usize::MAX),
    }
}

impl Description {
    /// Of a board that is locked. Its variables are still to be said, and the budget.
    pub(crate) fn of<W: Words>(name: &str, board: &Board<W>) -> Description {
        let Agreed { keep, queue, memory, all, .. } = board.agreed();
        let state = match board.state() {
            State::Live => Progress::Live,
            State::Ended => Progress::Ended,
            State::Failed(writer) => Progress::Failed { writer: failed(board, writer) },
            State::Removed => Progress::Removed,
        };
        // Who is done for good is past every step.
        let next = |peer: Peer| Peer { step: peer.step.min(board.complete()), ..peer };
        Description {
            name: name.to_owned(),
            node: None,
            state,
            created: board.created(),
            complete: board.complete(),
            steps: board.steps(),
            keep,
            queue,
            memory,
            used: board.used(),
            peak: board.peak(),
            budget: None,
            variables: Vec::new(),
            damage: None,
            writers: (0..board.writers()).map(|w| peer(board.writer(w))).collect(),
            all_writers: all,
            groups: board.members().into_iter().map(group).collect(),
            readers: board.readers().into_iter().map(peer).map(next).collect(),
        }
    }

    /// True if all of the stream is on this node, and goes on: it is no other one of the name that is meant.
    pub(crate) fn is_whole(&self) -> bool {
        self.state == Progress::Live && self.writers.len() as u64 == self.all_writers
    }
}

/// What a node tells another one of a stream: in JSON, but for its variables, which are as writers say them.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Shown {
    text: String,
    variables: Vec<u8>,
}

impl Shown {
    /// # Errors
    /// `Limit` if more is said of the variables than is sent.
    pub(crate) fn of(mut told: Description) -> Result<Shown> {
        let mut variables = Definitions::new();
        for one in std::mem::take(&mut told.variables) {
            variables.add(one)?;
        }
        let text = serde_json::to_string(&told)
            .map_err(|e| Error::internal(format!("a stream cannot be described: {e}")))?;
        Ok(Shown { text, variables: variables.encode()? })
    }

    /// What a node has told of this stream.
    ///
    /// # Errors
    /// `Format` for what is no such thing, and for another stream.
    pub(crate) fn told(&self, name: &str, node: &str) -> Result<Description> {
        let odd = |_| wire::astray("no description of a stream");
        let told: Description = serde_json::from_str(&self.text).map_err(odd)?;
        if told.name != name {
            return Err(wire::astray("another stream than was asked for"));
        }
        let variables = Definitions::decode(&self.variables)?.iter().cloned().collect();
        Ok(Description { variables, node: Some(node.to_owned()), ..told })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::index::Attribute;
    use stead_core::{DType, Kind};

    fn told() -> Description {
        let peer = Peer {
            group: None,
            rank: 3,
            process: Some(7),
            presence: Presence::Here,
            step: 2,
            had: 0,
            had_ranges: vec![(0, 1)],
            had_before: 0,
            dropped: 0,
            bytes: 96,
            memory: 48,
            waited_s: 0.25,
            copy_cpu_s: 0.0,
            is_elsewhere: false,
            node: None,
            rank_of_job: None,
        };
        let mut variable = Definition::new("T", DType::F64, [3, 4]);
        variable.attributes.insert("dt".into(), Attribute::Float(f64::NAN));
        Description {
            name: "sim".into(),
            node: None,
            state: Progress::Failed { writer: 1 },
            created: u64::MAX,
            complete: 2,
            steps: vec![1],
            keep: 1,
            queue: 2,
            memory: 1 << 40,
            used: 48,
            peak: 96,
            budget: Some(Budget { most: 5, used: 4 }),
            variables: vec![variable],
            damage: None,
            writers: vec![peer.clone()],
            all_writers: 4,
            groups: vec![Group {
                group: "ana".into(),
                ranks: 2,
                behind: Behind::Drop,
                queue: Some(1),
                keep: u64::MAX,
            }],
            readers: vec![Peer { group: Some("ana".into()), node: Some(1), ..peer }],
        }
    }

    #[test]
    fn what_is_told_of_a_stream_arrives_as_it_was() {
        let bytes = wire::encode(&Shown::of(told()).unwrap()).unwrap();
        let shown: Shown = wire::decode(&bytes).unwrap();
        let there = shown.told("sim", "n1").unwrap();
        assert_eq!(there, Description { node: Some("n1".into()), ..told() });
        assert!(!there.is_whole());
        assert_eq!(shown.told("other", "n1").unwrap_err().kind(), Kind::Format);
        for damaged in [
            Shown { text: shown.text.replace("sim", "\\u00"), variables: shown.variables.clone() },
            Shown { text: "{}".into(), variables: shown.variables.clone() },
            Shown { text: shown.text.clone(), variables: vec![1, 2, 3] },
        ] {
            assert_eq!(damaged.told("sim", "n1").unwrap_err().kind(), Kind::Format);
        }
    }
}
