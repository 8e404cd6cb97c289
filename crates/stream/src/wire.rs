//! What a reader and an agent on another node say to each other, as bytes. Whatever comes is used within bounds only.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stead_core::{Error, Kind, Result};
use stead_fabric::kinds;

/// To the agent of a rank, with the tag of what is knocked at.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Knock {
    /// Somebody has something to ask, by messages of this tag and the next one.
    Talk(u32),
    /// A writer of another node has ended a stream in the middle: its run, and which of all writers it is.
    Failed { name: String, run: u64, writer: u64 },
    /// The rank takes part in nothing any more.
    Done,
}

/// What a reader asks. Answers come in the same order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Ask {
    /// Whether there is a stream; answered by [`Found`] or nothing.
    Find(Sought),
    /// For a place among its readers; answered by the step that it begins with.
    Open(Box<Open>),
    /// For the first step from this one on, for so many milliseconds; with true those are passed over that its group is further behind by than it
    /// says. Last, how many errands to let a step go were sent before: they are on their way by the other line, and come first. Answered by
    /// [`Next`].
    Next(u64, bool, u64, u64),
    /// For nothing any more. No answer.
    Bye,
    /// Which streams there are; answered by their names.
    List,
    /// What there is to know of a stream; answered by [`Shown`](crate::describe::Shown).
    Describe(String),
    /// Who will get what from whom of a stream, with so many readers beside those that are there; answered by
    /// [`Share`](crate::share::Share).
    Explain(String, u64),
    /// Which run of a stream a group reads; answered by its number.
    Settle(Settle),
    /// To remove a stream, with true also one that is written or read; answered by whether there was one.
    Remove(String, bool),
}

/// What a reader wants without waiting for a step at the same time.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Errand {
    /// A part of a block; answered by its bytes.
    Part(Wanted),
    /// To look at a step; answered by [`Told`] with all definitions, or nothing.
    Hold(u64),
    /// The steps that there are; answered by their numbers.
    Steps,
    /// Who keeps a step from coming; answered by texts.
    Late(u64),
    /// To look at a step no longer, and to be done with it. No answer.
    LetGo(u64, bool),
    /// The reader was given this step: how many have gone before it, and nanoseconds of its wait. No answer.
    Given(u64, u64, u64),
    /// No more steps. No answer.
    Enough,
    /// Nothing any more. No answer.
    Bye,
    /// To be done with the steps before this one, while the next one from an earlier one on is waited for. No answer.
    Past(u64),
}

/// Which run of a stream the ranks of a group read, when they read one of the name for the `nth` time: `run`, if no other one was said
/// before, or one that is `gone`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settle {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) nth: u64,
    pub(crate) run: u64,
    pub(crate) gone: Option<u64>,
}

/// Who looks for a stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sought {
    pub(crate) name: String,
    pub(crate) group: String,
    pub(crate) rank: u64,
    pub(crate) ranks: u64,
}

/// A place among the readers of a run of a stream.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Open {
    pub(crate) who: Sought,
    pub(crate) run: u64,
    pub(crate) starts: Starts,
    pub(crate) lags: Lags,
    /// Steps that its group may be behind, where it says so, and steps that it has had which stay for it.
    pub(crate) queue: Option<u64>,
    pub(crate) keep: u64,
    /// How long it waits for anybody, and others of its group for it, in milliseconds.
    pub(crate) timeout_ms: u64,
    /// The process of the reader.
    pub(crate) process: u32,
}

/// With which step a group begins: [`Start`](crate::Start).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Starts {
    Oldest,
    Next,
    First,
}

/// What happens when it is behind: [`Behind`](crate::Behind).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Lags {
    Block,
    Drop,
    Spill,
}

/// A stream on a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Found {
    /// What its writers on all nodes know each other by.
    pub(crate) run: u64,
    /// How many they are.
    pub(crate) all: u64,
    /// Those of this node.
    pub(crate) ranks: Vec<u64>,
    pub(crate) is_live: bool,
    /// The group of who asks waits for his rank.
    pub(crate) awaits: bool,
    /// In nanoseconds since 1970.
    pub(crate) created: u64,
}

/// What comes next.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Next {
    Step(u64, Told),
    Nothing,
    Over(Option<Failure>),
}

/// What the writers of a node say of a step.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Told {
    pub(crate) at: u64,
    pub(crate) bytes: u64,
    /// The most memory that arrays of the stream have taken there so far.
    pub(crate) peak: u64,
    pub(crate) said: Vec<Said>,
}

/// What a writer says of it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Said {
    pub(crate) rank: u64,
    pub(crate) hash: u64,
    /// Nothing if what has this hash was told before, in this answer or, to who asked for the next step, of the one before.
    pub(crate) definitions: Option<Vec<u8>>,
    pub(crate) blocks: Vec<u8>,
}

/// Asks for a part of a block.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Wanted {
    pub(crate) step: u64,
    pub(crate) writer: u64,
    pub(crate) number: u64,
    pub(crate) start: Vec<u64>,
    pub(crate) count: Vec<u64>,
}

/// An error, on its way.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Failure {
    kind: u8,
    message: String,
    hint: Option<String>,
}

impl Failure {
    pub(crate) fn of(error: &Error) -> Failure {
        let hint = error.hint().map(str::to_owned);
        Failure { kind: kinds::number(error.kind()), message: error.message().to_owned(), hint }
    }

    pub(crate) fn error(self) -> Error {
        let error = Error::new(kinds::kind(self.kind), self.message);
        match self.hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

/// Bytes of an answer about streams that are looked after: what is more is told on its own node.
pub(crate) const MOST_TOLD: u64 = 64 << 20;
/// The first byte of an answer.
const DONE: u8 = 0;
const FAILED: u8 = 1;

fn odd() -> Error {
    Error::format("a message about a stream is malformed")
        .with_hint("all that take part in a stream must be of the same version of stead")
}

fn add(bytes: Vec<u8>, what: &impl Serialize) -> Result<Vec<u8>> {
    postcard::to_extend(what, bytes)
        .map_err(|e| Error::internal(format!("a message about a stream cannot be made: {e}")))
}

/// What is asked, or said, as bytes.
pub(crate) fn encode(what: &impl Serialize) -> Result<Vec<u8>> {
    add(Vec::new(), what)
}

/// What came as bytes.
///
/// # Errors
/// `Format`.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|_| odd())
}

/// An answer, or why there is none.
pub(crate) fn answer<T: Serialize>(outcome: Result<T>) -> Vec<u8> {
    match outcome.and_then(|answer| add(vec![DONE], &answer)) {
        Ok(bytes) => bytes,
        Err(e) => failed(&e),
    }
}

/// Why there is no answer.
pub(crate) fn failed(e: &Error) -> Vec<u8> {
    add(vec![FAILED], &Failure::of(e)).unwrap_or_else(|_| vec![FAILED])
}

/// The same of bytes that come after [`HEAD`] others.
pub(crate) fn parcel(outcome: Result<Vec<u8>>) -> Vec<u8> {
    match outcome {
        Ok(mut bytes) => {
            if let Some(first) = bytes.first_mut() {
                *first = DONE;
            }
            bytes
        }
        Err(e) => answer::<()>(Err(e)),
    }
}

/// Bytes before those of a parcel.
pub(crate) const HEAD: usize = 1;

/// What an answer says, as bytes; the error that it tells.
pub(crate) fn heard(bytes: &[u8]) -> Result<&[u8]> {
    match bytes.split_first() {
        Some((&DONE, rest)) => Ok(rest),
        Some((_, rest)) => Err(decode::<Failure>(rest).map_or_else(|e| e, Failure::error)),
        None => Err(odd()),
    }
}

/// That the other side does not go by what was agreed.
pub(crate) fn astray(what: &str) -> Error {
    Error::new(Kind::Format, format!("what another node says of a stream makes no sense: {what}"))
        .with_hint("all that take part in a stream must be of the same version of stead")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn errors_arrive_as_they_were() {
        let error = Error::new(Kind::Peer, "writer 3 has ended").with_hint("see what it said");
        let told = heard(&answer::<u64>(Err(error))).unwrap_err();
        assert_eq!(
            (told.kind(), told.message(), told.hint()),
            (Kind::Peer, "writer 3 has ended", Some("see what it said"))
        );
        let parcel = parcel(Err(Error::limit("too much")));
        assert_eq!(heard(&parcel).unwrap_err().kind(), Kind::Limit);
    }

    #[test]
    fn what_is_no_message_is_an_error() {
        let who = Sought { name: "sim".into(), group: "readers".into(), rank: 1, ranks: 2 };
        let (starts, lags) = (Starts::First, Lags::Spill);
        let (queue, keep, timeout_ms) = (Some(1), u64::MAX, 60_000);
        let open = Open { who, run: 7, starts, lags, queue, keep, timeout_ms, process: 99 };
        let bytes = encode(&Ask::Open(Box::new(open))).unwrap();
        for len in 0..bytes.len() {
            assert!(decode::<Ask>(&bytes[..len]).is_err(), "{len}");
        }
        assert!(matches!(decode::<Ask>(&bytes), Ok(Ask::Open(open))
            if open.starts == starts && (open.queue, open.keep) == (queue, keep)));
        for bytes in [&[][..], &[9, 9, 9], &[1], &[1, 255, 255, 255, 255, 255]] {
            assert_eq!(heard(bytes).unwrap_err().kind(), Kind::Format);
        }
        // A length that no memory has room for is no reason to take it.
        assert!(decode::<Next>(&[0, 1, 1, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F]).is_err());
    }
}
