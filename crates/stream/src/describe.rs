//! A stream as others see it: for people, and for programs that look after streams.

use crate::board::{Agreed, Board, Seat, Standing, State};
use crate::words::Words;
use serde::Serialize;

/// Whether a stream goes on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
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
    /// Steps that went before a reader came to them.
    pub dropped: u64,
    /// Bytes that a writer has put, or a reader has copied.
    pub bytes: u64,
    /// Bytes that the arrays of a writer take now; those that a reader has looked at where they lie.
    pub memory: u64,
}

/// What there is to know of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Its name.
    pub name: String,
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
    /// Its writers.
    pub writers: Vec<Peer>,
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
    Peer {
        group: seat.group,
        rank: seat.rank,
        process: (presence != Presence::Awaited).then_some(seat.who.number),
        presence,
        step: seat.step,
        had: seat.had,
        dropped: seat.dropped,
        bytes: seat.bytes,
        memory: seat.memory,
    }
}

/// Which of all writers has failed.
fn failed<W: Words>(board: &Board<W>, place: usize) -> usize {
    match place.checked_sub(board.writers()) {
        Some(rank) => rank,
        None => usize::try_from(board.rank_of(place)).unwrap_or(usize::MAX),
    }
}

impl Description {
    /// Of a board that is locked.
    pub(crate) fn of<W: Words>(name: &str, board: &Board<W>) -> Description {
        let Agreed { keep, queue, memory, .. } = board.agreed();
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
            state,
            created: board.created(),
            complete: board.complete(),
            steps: board.steps(),
            keep,
            queue,
            memory,
            used: board.used(),
            writers: (0..board.writers()).map(|w| peer(board.writer(w))).collect(),
            readers: board.readers().into_iter().map(peer).map(next).collect(),
        }
    }
}
