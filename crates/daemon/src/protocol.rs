//! What is said over the socket: `docs/protocol.md` describes it.

pub use crate::admin::Numbers;
pub use crate::flows::{FlowAsk, FlowOptions, FlowStanding, FlowState};
pub use crate::persist::PersistAsk;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stead_core::{Error, Kind};
use stead_model::transfer::Remaining;
use stead_stage::remote::{Question, Reply};
use stead_stage::{Checked, Persisted, Preview, Request, Standing};

/// The protocol that is spoken here. Fields may be added to answers within one; whoever reads does not mind them.
pub const PROTOCOL: u32 = 1;

/// The first frame, from the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The protocol: [`PROTOCOL`].
    pub protocol: u32,
    /// The version of the daemon.
    pub version: String,
    /// The name of its node.
    pub node: String,
    /// The number of the user whose transfers it does for this connection.
    pub user: u32,
    /// It takes and begins no transfers at the moment.
    #[serde(default)]
    pub drained: bool,
    /// The job that the program is of, if any.
    #[serde(default)]
    pub job: Option<String>,
}

/// What a program asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum Ask {
    /// Take a transfer.
    Submit {
        /// What is wanted; paths from the root on.
        request: Request,
        /// Transfers that are to be finished before it begins.
        #[serde(default)]
        after: Vec<i64>,
    },
    /// What would it do?
    Preview {
        /// What is wanted.
        request: Request,
    },
    /// How does the target of a sync differ? Files of the same size are read.
    Check {
        /// What is wanted.
        request: Request,
    },
    /// Wait until nothing more happens with a transfer, or the time is over.
    Wait {
        /// Its number.
        transfer: i64,
        /// At most so long; 0 only looks. No longer than an hour.
        seconds: f64,
    },
    /// How long until it has ended?
    Eta {
        /// Its number.
        transfer: i64,
    },
    /// Stop it and give it up.
    Cancel {
        /// Its number.
        transfer: i64,
    },
    /// Do again what was interrupted or has failed.
    Resume {
        /// Its number; none stands for all that were interrupted.
        transfer: Option<i64>,
    },
    /// Which transfers are there?
    List {
        /// Those that are over, too.
        #[serde(default)]
        all: bool,
        /// The latest ones, so many.
        #[serde(default)]
        most: Option<usize>,
    },
    /// What is there of dataspaces?
    Spaces {},
    /// Which dataspaces are there? Nothing is looked at.
    Dataspaces {},
    /// Numbers about all of it, as Prometheus reads them.
    Metrics {},
    /// Keep something, share it, or tell what is.
    Persist(PersistAsk),
    /// Run a flow, or tell of those that run.
    Flow(FlowAsk),
    /// What administrators ask.
    Admin(AdminAsk),
    /// Which nodes does the pool have?
    Nodes {},
    /// Be a connection to the daemon of another node from now on: what comes next is its hello, or an error.
    Reach {
        /// Its name.
        node: String,
    },
    /// Be an administrator's connection to the worker of this user from now on: what comes next is its hello, or an error. Of what is asked
    /// then that alone is answered which is about transfers that the user has given.
    Manage {
        /// The number of the user.
        user: u32,
    },
    /// Something about files that are sources of a transfer on another node.
    Source(Question),
    /// Be a connection by which a reader on another node asks about streams: after the answer come other messages.
    Stream {
        /// Drawn by the reader: both of its connections have it. Nothing to who only looks after streams.
        number: u64,
        /// Which of the two it is.
        way: StreamWay,
    },
}

/// What a connection of a reader of streams is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StreamWay {
    /// Parts of arrays, and all that waits for no step.
    Errands,
    /// What is told of streams, a place among the readers of one, for which that for errands is to be there, and what may wait for a step.
    Asks,
}

/// What the daemon answers: one answer for each question, in order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// It is in the journal; its number.
    Taken(i64),
    /// What it would do.
    Preview(Preview),
    /// How the target differs.
    Checked(Checked),
    /// How far it is.
    Standing(Box<Standing>),
    /// Seconds until it has ended.
    Eta(Remaining),
    /// Their numbers: they are in the queue again.
    Resumed(Vec<i64>),
    /// The latest first; of each request the first names only.
    List(Vec<Standing>),
    /// Dataspaces, as `stead df --format json` prints them.
    Spaces(Vec<stead_stage::Usage>),
    /// Lines of text.
    Metrics(String),
    /// What is kept and shared, if that was asked.
    Persisted(Vec<Persisted>),
    /// How far a flow is.
    Flow(Box<FlowStanding>),
    /// Flows, the latest first.
    Flows(Vec<FlowStanding>),
    /// What an administrator has asked for.
    Admin(AdminAnswer),
    /// Their names; without a pool that of this one.
    Nodes(Vec<String>),
    /// Of files.
    Source(Reply),
    /// The connection is for streams from now on.
    Stream {},
    /// It could not be done.
    Failed(Failed),
}

/// What administrators ask: root, members of the group `stead`, and who has a daemon of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum AdminAsk {
    /// A new dataspace.
    Add {
        /// Its name.
        name: String,
        /// Keys of `stead.toml` and their values.
        set: BTreeMap<String, String>,
    },
    /// Something else is agreed about one.
    Update {
        /// Its name.
        name: String,
        /// Keys that change; those with an empty value go.
        set: BTreeMap<String, String>,
    },
    /// There is none of this name any more. What lies in it stays.
    Remove {
        /// Its name.
        name: String,
    },
    /// Forget what administrators have said of it: it is as `/etc/stead/stead.toml` says, or none.
    Reset {
        /// Its name.
        name: String,
    },
    /// Which are there, for all users?
    Dataspaces {},
    /// A job of a user, or other dataspaces for it.
    Job {
        /// Its name.
        job: String,
        /// Whose it is: a name or a number.
        user: String,
        /// What its processes may use.
        #[serde(default)]
        dataspaces: Vec<String>,
    },
    /// It is over: its transfers are cancelled, and what it has left in dataspaces of jobs is removed.
    Unjob {
        /// Its name.
        job: String,
    },
    /// Which are there?
    Jobs {},
    /// This process and those that it begins are of a job.
    Process {
        /// The job.
        job: String,
        /// Its number.
        pid: u32,
    },
    /// It is of none.
    Unprocess {
        /// Its number.
        pid: u32,
    },
    /// Take and begin no transfers.
    Drain {},
    /// Take them again.
    Open {},
    /// What does each user do?
    Stats {},
}

/// What administrators are answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AdminAnswer {
    /// It is so, and stays so when the daemon is started again.
    Done {},
    /// Dataspaces of all users.
    Dataspaces(Vec<AdminSpace>),
    /// Jobs.
    Jobs(Vec<JobIs>),
    /// What each user does.
    Stats(Stats),
}

/// A dataspace as it is configured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AdminSpace {
    /// Its name.
    pub name: String,
    /// Keys of `stead.toml` and their values.
    pub set: BTreeMap<String, String>,
}

/// A job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobIs {
    /// Its name.
    pub job: String,
    /// The number of its user.
    pub user: u32,
    /// What its processes may use.
    pub dataspaces: Vec<String>,
    /// The processes that were named.
    pub processes: Vec<u32>,
}

/// What the daemon does.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// No transfers are taken and begun.
    pub drained: bool,
    /// Users, by their numbers, as far as they were there since the daemon was started.
    pub users: Vec<Numbers>,
}

/// An error, on its way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Its kind.
    pub kind: String,
    /// What failed, on what, why.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
}

impl From<&Error> for Failed {
    fn from(e: &Error) -> Failed {
        Failed {
            kind: e.kind().name().to_owned(),
            message: e.to_string(),
            hint: e.hint().map(str::to_owned),
        }
    }
}

impl From<Failed> for Error {
    fn from(f: Failed) -> Error {
        let e = Error::new(Kind::parse(&f.kind).unwrap_or(Kind::Internal), f.message);
        match f.hint {
            Some(hint) => e.with_hint(hint),
            None => e,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_arrive_as_they_were() {
        for kind in [Kind::Usage, Kind::NoSpace, Kind::NotFound, Kind::Peer, Kind::Internal] {
            let e = Error::new(kind, "it does not work").at_path("/x").with_hint("do it");
            let there = Error::from(Failed::from(&e));
            assert_eq!(
                (there.kind(), there.to_string(), there.hint()),
                (kind, e.to_string(), e.hint())
            );
        }
        let odd = Failed { kind: "new".into(), message: "m".into(), hint: None };
        assert_eq!(Error::from(odd).kind(), Kind::Internal);
    }

    #[test]
    fn questions_are_as_they_are_described() {
        let ask: Ask =
            serde_json::from_str(r#"{"wait": {"transfer": 3, "seconds": 0.5}}"#).unwrap();
        assert_eq!(ask, Ask::Wait { transfer: 3, seconds: 0.5 });
        let ask: Ask = serde_json::from_str(r#"{"list": {}}"#).unwrap();
        assert_eq!(ask, Ask::List { all: false, most: None });
        assert!(serde_json::from_str::<Ask>(r#"{"list": {"al": true}}"#).is_err());
        assert!(serde_json::from_str::<Ask>(r#"{"reboot": {}}"#).is_err());
    }
}
