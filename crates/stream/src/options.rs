//! What programs say of a stream that they write or read.

use crate::board::{Agreed, From, Rule};
use crate::coupling::{Coupling, Placed};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Cancel, Result, limits};

/// How often it is looked whether somebody who waits is to stop.
const LOOK: Duration = Duration::from_millis(50);

/// What ends the waits of a writer or a reader before their time: it is asked before each, and some twenty times a second.
#[derive(Clone, Default)]
pub struct Stop(Option<Arc<Check>>);

type Check = dyn Fn() -> Result<()> + Send + Sync;

impl Stop {
    /// Waits end with the error that this has.
    pub fn when(check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Stop {
        Stop(Some(Arc::new(check)))
    }

    pub(crate) fn check(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |check| check())
    }

    /// So long may be slept at a time.
    pub(crate) fn at_most(&self, time: Duration) -> Duration {
        if self.0.is_some() { time.min(LOOK) } else { time }
    }
}

impl std::convert::From<Cancel> for Stop {
    fn from(cancel: Cancel) -> Stop {
        Stop::when(move || cancel.check())
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stop(when asked)" } else { "Stop(never)" })
    }
}

/// How a stream is written. All of its writers say the same, but for their rank.
#[derive(Debug, Clone)]
pub struct Written {
    /// The dataspaces, of which `memory` is where it lies.
    pub spaces: Spaces,
    /// Which of the writers this is, from 0 on.
    pub rank: u64,
    /// How many writers there are.
    pub writers: u64,
    /// Complete steps that stay when all readers have had them, for those who come late and those who go back.
    pub keep: u64,
    /// Complete steps that a group of readers may be behind before writers wait for it.
    pub queue: u64,
    /// Bytes of the arrays of all writers on this node.
    pub memory: u64,
    /// Groups of readers that are to be there before the first step begins.
    pub readers: u64,
    /// How long to wait for anybody.
    pub timeout: Duration,
    /// What ends a wait before that.
    pub stop: Stop,
    /// Programs on several nodes of which this writer is one of a part: all ranks of it write the stream, in their order.
    pub coupling: Option<Arc<Coupling>>,
}

impl Default for Written {
    fn default() -> Self {
        Written {
            spaces: Spaces::default(),
            rank: 0,
            writers: 1,
            keep: 1,
            queue: 2,
            memory: limits::DEFAULT_STREAM_MEMORY,
            readers: 0,
            timeout: Duration::from_secs(limits::PEER_DEADLINE_S),
            stop: Stop::default(),
            coupling: None,
        }
    }
}

impl Written {
    /// Where the writers are.
    pub(crate) fn placed(&self, name: &str) -> Result<Placed> {
        match &self.coupling {
            Some(coupling) => coupling.place(name, self.rank, self.writers),
            None => Ok(Placed {
                ranks: (0..self.writers.min(limits::MAX_WRITERS as u64 + 1)).collect(),
                seat: usize::try_from(self.rank).unwrap_or(usize::MAX),
                run: 0,
            }),
        }
    }

    pub(crate) fn agreed(&self, placed: &Placed) -> Agreed {
        Agreed {
            writers: placed.ranks.len() as u64,
            keep: self.keep,
            queue: self.queue,
            memory: self.memory,
            expect: self.readers,
            all: self.writers,
            run: placed.run,
        }
    }
}

/// With which step a group of readers begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// The oldest one that is there. A stream that is over and that nobody has read is read, too.
    #[default]
    Oldest,
    /// The next one that becomes complete.
    Next,
}

/// What writers do when a group of readers is behind by the `queue` of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Behind {
    /// They wait.
    #[default]
    Block,
    /// They go on: steps go that the group has not had, and it is told how many.
    Drop,
}

/// How a stream is read. All ranks of a group say the same, but for their rank.
#[derive(Debug, Clone)]
pub struct Read {
    /// The dataspaces, of which `memory` is where it lies.
    pub spaces: Spaces,
    /// The name of the group: each group has all steps.
    pub group: String,
    /// Which rank of the group this is, from 0 on.
    pub rank: u64,
    /// How many ranks the group has.
    pub ranks: u64,
    /// With which step the group begins.
    pub start: Start,
    /// What happens when it is behind.
    pub behind: Behind,
    /// How long to wait for anybody.
    pub timeout: Duration,
    /// What ends the wait for a stream, or for a step, before that.
    pub stop: Stop,
    /// Threads that copy what lies in several blocks; 0 is as many as are of use.
    pub threads: usize,
    /// Programs on several nodes of which this reader is one: writers may be on any of them.
    pub coupling: Option<Arc<Coupling>>,
}

impl Default for Read {
    fn default() -> Self {
        Read {
            spaces: Spaces::default(),
            group: "readers".to_owned(),
            rank: 0,
            ranks: 1,
            start: Start::default(),
            behind: Behind::default(),
            timeout: Duration::from_secs(limits::PEER_DEADLINE_S),
            stop: Stop::default(),
            threads: 0,
            coupling: None,
        }
    }
}

impl Read {
    pub(crate) fn rule(&self) -> Rule {
        match self.behind {
            Behind::Block => Rule::Block,
            Behind::Drop => Rule::Drop,
        }
    }

    pub(crate) fn from(&self) -> From {
        match self.start {
            Start::Oldest => From::Oldest,
            Start::Next => From::Next,
        }
    }
}
