//! How far a transfer is.

use crate::changes::Change;
use crate::request::{Action, Request};
use serde::{Deserialize, Serialize};
use stead_core::{Error, Kind, Result};
use stead_model::transfer::Remaining;

/// Where a transfer is on its way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It waits for its turn, or for others.
    Pending,
    /// It is under way.
    Running,
    /// Its process ended before it did: it can be resumed.
    Interrupted,
    /// All is done.
    Finished,
    /// Something could not be done.
    Failed,
    /// Somebody has stopped it.
    Cancelled,
}

impl State {
    /// True if nothing changes any more unless somebody asks.
    pub fn is_over(self) -> bool {
        matches!(self, State::Finished | State::Failed | State::Cancelled)
    }

    /// True if nothing happens with it unless somebody asks: it is over, or interrupted.
    pub fn rests(self) -> bool {
        self.is_over() || self == State::Interrupted
    }

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            State::Pending => "pending",
            State::Running => "running",
            State::Interrupted => "interrupted",
            State::Finished => "finished",
            State::Failed => "failed",
            State::Cancelled => "cancelled",
        }
    }

    pub(crate) fn parse(text: &str) -> Option<State> {
        use State::{Cancelled, Failed, Finished, Interrupted, Pending, Running};
        let all = [Pending, Running, Interrupted, Finished, Failed, Cancelled];
        all.into_iter().find(|state| state.as_str() == text)
    }
}

/// A name with which something went wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failure {
    /// As people read it.
    pub path: String,
    /// What, why, and what to do.
    pub error: String,
}

/// What is known of a transfer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// Its number in the journal.
    pub id: i64,
    /// What was asked for.
    pub request: Request,
    /// Where it is on its way.
    pub state: State,
    /// When it was asked for, in seconds since 1970.
    pub submitted: f64,
    /// When it began, and when it ended.
    pub started: Option<f64>,
    /// When it ended.
    pub ended: Option<f64>,
    /// Seconds that it was under way, without the times when nobody was at it, by a clock that nobody sets; of one that is under way, those
    /// before it went on the last time.
    #[serde(default)]
    pub active: f64,
    /// When it began, or went on, the last time, in seconds since 1970.
    #[serde(default)]
    pub resumed: Option<f64>,
    /// Files, links and folders that it is about; 0 before it is planned.
    pub files: u64,
    /// Of these, done.
    pub files_done: u64,
    /// Bytes of files that it moves.
    pub bytes: u64,
    /// Of these, moved.
    pub bytes_done: u64,
    /// Names that were left as they were, since they are the same or were to stay.
    pub skipped: u64,
    /// Names that could not be done.
    pub failed: u64,
    /// The first ones of these.
    pub failures: Vec<Failure>,
    /// Why all of it could not be done.
    pub error: Option<String>,
    /// Of what kind that is, as `no-space`.
    #[serde(default)]
    pub kind: Option<String>,
    /// What it waits for, if it waits in a queue.
    #[serde(default)]
    pub waits: Option<String>,
}

impl Status {
    /// Seconds that it was under way, or is until `now`, without the times when nobody was at it.
    pub fn seconds(&self, now: f64) -> f64 {
        let since = |then: f64, now: f64| (now - then).max(0.0);
        match (self.state, self.started) {
            (State::Running, _) => {
                self.active + self.resumed.or(self.started).map_or(0.0, |then| since(then, now))
            }
            // As long as it took by the clock, where nothing else was written down.
            (_, Some(started)) if self.active == 0.0 => {
                self.ended.map_or(0.0, |ended| since(started, ended))
            }
            _ => self.active,
        }
    }

    /// What came of it.
    ///
    /// # Errors
    /// `Cancelled` if somebody has stopped it; otherwise what it was not finished for, and `Io` where single names were not done.
    pub fn outcome(&self) -> Result<()> {
        let id = self.id;
        let kind = self.kind.as_deref().and_then(Kind::parse).unwrap_or(Kind::Io);
        match (self.state, &self.error) {
            (State::Pending | State::Running | State::Finished, _) => Ok(()),
            (State::Cancelled, None) => {
                Err(Error::new(Kind::Cancelled, format!("transfer {id} was cancelled")))
            }
            (State::Cancelled, Some(error)) => Err(Error::new(Kind::Cancelled, error.clone())),
            (_, Some(error)) => Err(Error::new(kind, error.clone())),
            (State::Interrupted, None) => {
                Err(Error::new(Kind::Io, format!("transfer {id} was interrupted")))
            }
            (State::Failed, None) => {
                let first = self.failures.first().map(|f| format!(": {}", f.error));
                let first = first.unwrap_or_default();
                let message = format!("{} name(s) of transfer {id} failed{first}", self.failed);
                Err(Error::new(Kind::Io, message))
            }
        }
    }
}

/// What a transfer has ended with, for faces where `Timeout` says that one goes on: a store that has not answered is `Io` there.
pub fn ended_with(e: Error) -> Error {
    match e.kind() {
        Kind::Timeout => e.of_kind(Kind::Io),
        _ => e,
    }
}

/// How far a transfer that is under way is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Of what kind.
    pub action: Action,
    /// Names so far, done; while it is planned, files that were compared.
    pub files_done: u64,
    /// Of so many.
    pub files: u64,
    /// Bytes so far.
    pub bytes_done: u64,
    /// Of so many; grows while it is planned.
    pub bytes: u64,
    /// False while it is still being planned: that is told where files are compared by their bytes, and nothing is known of what is left.
    pub planned: bool,
    /// Since it began, or went on.
    pub seconds: f64,
    /// Bytes that it has moved since: those that were there before, and holes, are none of them.
    #[serde(default)]
    pub moved: u64,
    /// Seconds that it still needs.
    pub left: Remaining,
}

impl Progress {
    /// Bytes a second that it moves, on average since it began, or went on.
    pub fn rate(&self) -> f64 {
        if self.seconds > 0.0 { self.moved as f64 / self.seconds } else { 0.0 }
    }
}

/// Is told how far a transfer is, about ten times a second.
pub trait Watcher: Sync {
    /// From a thread of the transfer: not to be kept waiting.
    fn progress(&self, progress: &Progress);

    /// Something went wrong that is tried again.
    fn retry(&self, _error: &Error) {}

    /// It waits for others, before it moves anything: why.
    fn waits(&self, _why: &str) {}
}

/// What a transfer would do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Preview {
    /// Files to move.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Bytes that they need on the target, holes left out.
    pub room: u64,
    /// Free bytes of the target; none if nothing comes to it.
    pub free: Option<u64>,
    /// Folders and links to make.
    pub others: u64,
    /// Names to remove.
    pub removed: u64,
    /// Names that stay as they are.
    pub skipped: u64,
    /// Names that are only renamed.
    pub renamed: u64,
    /// Seconds that it would take.
    pub takes: Remaining,
    /// What would be done with each name: the first ones, up to 500 of a kind.
    #[serde(default)]
    pub changes: Vec<Change>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_does_not_go_on() {
        let late = Error::new(Kind::Timeout, "no answer").at_path("s3://b/f").with_hint("look");
        let e = ended_with(late);
        assert_eq!((e.kind(), e.hint()), (Kind::Io, Some("look")));
        assert_eq!(e.to_string(), "s3://b/f: no answer");
        assert_eq!(ended_with(Error::cancelled()).kind(), Kind::Cancelled);
    }
}
