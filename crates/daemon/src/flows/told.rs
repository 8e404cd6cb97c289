//! What is said of flows over the socket.

use crate::protocol::Failed;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use stead_core::{Error, Kind, Result};
use stead_flow::{Graph, Options, Report};

/// Bytes of memory that one may be given, whatever is asked.
const MOST_MEMORY: u64 = 1 << 50;

/// What is asked about flows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub enum FlowAsk {
    /// Run this one.
    Begin {
        /// What it is. Paths are those from the root on.
        graph: Graph,
        /// How it is run.
        #[serde(default)]
        options: FlowOptions,
    },
    /// Wait until it is over, or the time is.
    Wait {
        /// Its number.
        flow: i64,
        /// At most so long; 0 only looks. No longer than an hour.
        seconds: f64,
    },
    /// Stop it, and give it up.
    Cancel {
        /// Its number.
        flow: i64,
    },
    /// Which are there?
    List {
        /// Those that are over, too, as long as they are told of.
        #[serde(default)]
        all: bool,
    },
}

/// How a daemon runs a flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FlowOptions {
    /// Threads; 0 is as many as there are processors.
    pub threads: usize,
    /// Bytes that arrays may take which it makes or copies; 1 GiB unless told otherwise.
    pub memory: Option<u64>,
    /// Steps after which it ends.
    pub steps: Option<u64>,
    /// Seconds to wait for anybody; ten minutes unless told otherwise.
    pub timeout: Option<f64>,
}

impl FlowOptions {
    /// Bytes of memory, and how long it waits for anybody.
    ///
    /// # Errors
    /// `Usage` for what makes no sense.
    pub(super) fn wanted(&self) -> Result<(u64, Duration)> {
        let usual = Options::default();
        let memory = self.memory.unwrap_or(usual.memory);
        if memory == 0 || memory > MOST_MEMORY {
            return Err(Error::usage(format!("a flow with {memory} bytes of memory")));
        }
        let timeout = match self.timeout {
            None => usual.timeout,
            Some(s) => Duration::try_from_secs_f64(s)
                .map_err(|_| Error::usage(format!("a flow that waits {s} seconds for others")))?,
        };
        Ok((memory, timeout))
    }
}

/// What has become of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FlowState {
    /// It goes on.
    Running,
    /// One of the streams that it reads has ended, or it has had all steps that it was to have.
    Finished,
    /// It could not go on.
    Failed,
    /// Somebody has given it up.
    Cancelled,
}

impl FlowState {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            FlowState::Running => "running",
            FlowState::Finished => "finished",
            FlowState::Failed => "failed",
            FlowState::Cancelled => "cancelled",
        }
    }
}

/// How far a flow is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowStanding {
    /// Its number. None is given twice.
    pub flow: i64,
    /// The name that its graph has.
    pub name: String,
    /// The streams that it reads.
    pub reads: Vec<String>,
    /// Those that it writes.
    pub writes: Vec<String>,
    /// What has become of it.
    pub state: FlowState,
    /// The job of the program that has begun it, if that is of one.
    pub job: Option<String>,
    /// When it was begun, in seconds since 1970.
    pub begun: f64,
    /// How long it has run, in seconds.
    pub seconds: f64,
    /// Steps that it has had.
    pub steps: u64,
    /// What it has done, once it has finished.
    pub report: Option<Report>,
    /// Why it has failed.
    pub error: Option<Failed>,
}

impl FlowStanding {
    /// What it has done.
    ///
    /// # Errors
    /// What it has failed with; `Cancelled` if somebody has given it up; `Timeout` if it goes on.
    pub fn outcome(&self) -> Result<&Report> {
        let number = self.flow;
        match (self.state, &self.report, &self.error) {
            (FlowState::Finished, Some(report), _) => Ok(report),
            (FlowState::Failed, _, Some(failed)) => Err(failed.clone().into()),
            (FlowState::Cancelled, ..) => {
                Err(Error::new(Kind::Cancelled, format!("flow {number} was given up")))
            }
            (FlowState::Running, ..) => {
                Err(Error::new(Kind::Timeout, format!("flow {number} goes on"))
                    .with_hint("wait again, or cancel it"))
            }
            _ => Err(Error::internal(format!("nothing is known of how flow {number} has ended"))),
        }
    }
}
