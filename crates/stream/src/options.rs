//! What programs say of a stream that they write or read.

use crate::board::{Agreed, From, Policy, Rule};
use crate::clock;
use crate::coupling::{Coupling, Placed};
use crate::pool::Nodes;
use crate::recorded::AUTO;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Result, limits};

/// How often it is looked whether somebody who waits is to stop, if nothing else was said.
const LOOK: Duration = Duration::from_millis(50);

/// What ends the waits of a writer or a reader before their time: it is asked before each, when a signal has interrupted it, and some twenty
/// times a second, or [less often](Stop::every).
#[derive(Clone, Default)]
pub struct Stop(Option<(Arc<Check>, Duration)>);

type Check = dyn Fn() -> Result<()> + Send + Sync;

impl Stop {
    /// Waits end with the error that this has.
    pub fn when(check: impl Fn() -> Result<()> + Send + Sync + 'static) -> Stop {
        Stop(Some((Arc::new(check), LOOK)))
    }

    /// The same, asked only so often while somebody waits, and at most twenty times a second: for what interrupts most waits by itself, as
    /// signals do.
    #[must_use]
    pub fn every(self, time: Duration) -> Stop {
        Stop(self.0.map(|(check, _)| (check, time.max(LOOK))))
    }

    /// The error that it has now, if it has one: for who works between waits.
    ///
    /// # Errors
    /// That one.
    pub fn check(&self) -> Result<()> {
        self.0.as_ref().map_or(Ok(()), |(check, _)| check())
    }

    /// So long may be slept at a time.
    pub(crate) fn at_most(&self, time: Duration) -> Duration {
        self.0.as_ref().map_or(time, |(_, every)| time.min(*every))
    }
}

impl std::convert::From<Cancel> for Stop {
    fn from(cancel: Cancel) -> Stop {
        Stop::when(move || cancel.check())
    }
}

/// Until when somebody waits for another node, and what ends that before.
#[derive(Debug, Clone)]
pub struct Patience {
    until: Instant,
    stop: Stop,
}

impl Patience {
    /// For so long from now on.
    pub fn new(time: Duration, stop: Stop) -> Patience {
        Patience { until: clock::after(time), stop }
    }

    /// Until then.
    pub(crate) fn until(until: Instant, stop: &Stop) -> Patience {
        Patience { until, stop: stop.clone() }
    }

    /// The same, but for no longer than this.
    #[must_use]
    pub fn at_most(&self, time: Duration) -> Patience {
        Patience { until: self.until.min(clock::after(time)), stop: self.stop.clone() }
    }

    /// When it ends.
    pub(crate) fn end(&self) -> Instant {
        self.until
    }

    /// What is left of it.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(clock::now())
    }

    /// So long may be slept before it is [checked](Patience::check) again.
    pub fn share(&self) -> Duration {
        self.stop.at_most(self.left())
    }

    /// The error with which it ends before its time.
    ///
    /// # Errors
    /// That one, which is none of its time.
    pub fn check(&self) -> Result<()> {
        self.stop.check()
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Stop(when asked)" } else { "Stop(never)" })
    }
}

/// Where steps are recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) enum At<'w> {
    /// In this folder.
    Named(&'w str),
    /// In one that is to be chosen.
    Chosen,
}

/// How a stream is written. All of its writers say the same, but for their rank.
#[derive(Debug, Clone)]
pub struct Written {
    /// The dataspaces, of which `memory` is where it lies. Of a coupling streams lie where that does.
    pub spaces: Spaces,
    /// Which of the writers this is, from 0 on.
    pub rank: u64,
    /// How many writers there are.
    pub writers: u64,
    /// Complete steps that stay when all readers have had them, for those who come late and those who go back. A group of readers may
    /// [keep](Read::keep) more of its own.
    pub keep: u64,
    /// Complete steps that a group of readers may be behind before writers wait for it, unless it says [another number](Read::queue).
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
    /// Where all steps are recorded, too, as they are written: a folder, by its path or in a dataspace, which is made if it is not there.
    /// [`Reader::open`](crate::Reader::open) of it reads them while the stream goes on, and after that. What quotas of dataspaces leave there is
    /// kept to: where a step has no room, it is an error as of a device that is full.
    pub persist: Option<String>,
    /// Where steps are recorded that readers with [`Behind::Spill`] have not had when there is no room for them in memory: a folder, as with
    /// `persist`, which goes with the stream; or `"auto"`: a folder of its own in the first dataspace that has room for `spill_limit` bytes, or else
    /// for as many as `memory`. Those of this node go before those that all nodes see, and then it goes by their names; such in memory, buckets
    /// and those for jobs are left out. Where a quota leaves no room, writers wait for readers as with [`Behind::Block`]. With `persist` such
    /// readers need no other one.
    pub spill: Option<String>,
    /// Bytes that files of steps which [spill](Written::spill) may take on this node. Beyond that writers wait for readers as with
    /// [`Behind::Block`].
    pub spill_limit: Option<u64>,
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
            persist: None,
            spill: None,
            spill_limit: None,
        }
    }
}

impl Written {
    /// Where the writers are.
    pub(crate) fn placed(&self, name: &str) -> Result<Placed> {
        match &self.coupling {
            Some(coupling) => coupling.place(name, self.rank, self.writers),
            None if self.writers > limits::MAX_WRITERS as u64 => {
                let (n, most) = (self.writers, limits::MAX_WRITERS);
                Err(Error::usage(format!("{n} writers are too many"))
                    .with_hint(format!("there are 1 to {most} writers on a node")))
            }
            None => Ok(Placed {
                ranks: (0..self.writers).collect(),
                seat: usize::try_from(self.rank).unwrap_or(usize::MAX),
                run: 0,
            }),
        }
    }

    /// Where steps are recorded, if they are.
    pub(crate) fn recorded(&self) -> Result<Option<At<'_>>> {
        if self.spill_limit.is_some() && self.spill.is_none() {
            return Err(Error::usage("there is a limit for what spills, and nothing does")
                .with_hint("give spill, too; what is recorded with persist stays"));
        }
        match (&self.persist, &self.spill) {
            (Some(_), Some(_)) => Err(Error::usage("a stream that is recorded spills there, too")
                .with_hint("give persist or spill, and not both")),
            (None, Some(spill)) if spill == AUTO => Ok(Some(At::Chosen)),
            (persist, spill) => Ok(persist.as_deref().or(spill.as_deref()).map(At::Named)),
        }
    }

    /// What all writers of this node say of it, and where steps are recorded, as a number.
    pub(crate) fn agreed(&self, placed: &Placed, record: u64) -> Agreed {
        Agreed {
            writers: placed.ranks.len() as u64,
            keep: self.keep,
            queue: self.queue,
            memory: self.memory,
            expect: self.readers,
            all: self.writers,
            run: placed.run,
            record,
            spills: record != 0 && self.persist.is_none(),
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
    /// The first one of all, of a stream that is [recorded](Written::persist): those that have gone from memory are read from files.
    First,
}

/// What writers do when a group of readers is behind by its [`queue`](Read::queue), or that of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Behind {
    /// They wait.
    #[default]
    Block,
    /// They go on: steps go that the group has not had, and it is told how many. All of its ranks are given the same ones: the first one that
    /// comes for the next step says which it is, and that stays for the others. None is further ahead of them than that `queue`. A rank that has left and comes again begins with the step after those that the others have had, or are about to.
    Drop,
    /// They go on, and the group has all steps: what it has not had when there is no room in memory it reads from files. The stream is
    /// written with [`Written::spill`] or [`Written::persist`].
    Spill,
}

/// How a stream is read. All ranks of a group say the same, but for their rank.
#[derive(Debug, Clone)]
pub struct Read {
    /// The dataspaces, of which `memory` is where it lies. Of a coupling streams lie where that does.
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
    /// Complete steps that the group may be behind; those of the stream's [`queue`](Written::queue) if nothing is said. With [`Behind::Block`] writers
    /// wait with the next step when there are so many that the group is not done with. With [`Behind::Drop`] older ones are passed over,
    /// also where memory has them, so that a group with 1 is given the newest step each time; no rank is further ahead of the others.
    /// With [`Behind::Spill`] older ones are recorded, and read from files, also where memory has room. What is read from files
    /// alone, by the name of their folder, has no queue.
    pub queue: Option<u64>,
    /// Complete steps that the group has had which stay for it, so that [`Reader::at`](crate::Reader::at) goes back to them, whatever the
    /// stream's [`keep`](Written::keep) is: a step stays while either wants it. With [`Behind::Block`] they stay in memory, as those of the stream do,
    /// and writers wait if it is full; with [`Behind::Spill`] they may go to files; with [`Behind::Drop`] they go where memory has no room for
    /// the next step.
    pub keep: Option<u64>,
    /// How long to wait for anybody.
    pub timeout: Duration,
    /// What ends the wait for a stream, or for a step, before that.
    pub stop: Stop,
    /// Threads that copy what lies in several blocks; 0 is as many as are of use.
    pub threads: usize,
    /// Programs on several nodes of which this reader is one: writers may be on any of these nodes, whoever has begun them.
    pub coupling: Option<Arc<Coupling>>,
    /// Other nodes on which writers may be, such as those of a pool of daemons. With a coupling they are asked if its nodes have no such
    /// stream. None by default: this crate knows no daemon.
    pub nodes: Option<Arc<dyn Nodes>>,
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
            queue: None,
            keep: None,
            timeout: Duration::from_secs(limits::PEER_DEADLINE_S),
            stop: Stop::default(),
            threads: 0,
            coupling: None,
            nodes: None,
        }
    }
}

impl Read {
    /// # Errors
    /// `Usage` for a queue of no steps.
    pub(crate) fn check(&self) -> Result<()> {
        match self.queue {
            Some(0) => Err(Error::usage(format!(
                "the readers '{}' cannot have a queue of 0 steps",
                self.group
            ))
            .with_hint("the step that comes next is one of them: give 1 or more, or none for that of the stream")),
            _ => Ok(()),
        }
    }

    pub(crate) fn policy(&self) -> Policy {
        let rule = match self.behind {
            Behind::Block => Rule::Block,
            Behind::Drop => Rule::Drop,
            Behind::Spill => Rule::Spill,
        };
        Policy { rule, queue: self.queue, keep: self.keep.unwrap_or(0) }
    }

    /// True of who has older steps passed over than so many.
    pub(crate) fn passes(&self) -> bool {
        self.behind == Behind::Drop && self.queue.is_some()
    }

    pub(crate) fn from(&self) -> From {
        match self.start {
            Start::Oldest | Start::First => From::Oldest,
            Start::Next => From::Next,
        }
    }

    /// True of who may read from files.
    pub(crate) fn is_recorded(&self) -> bool {
        self.start == Start::First || self.behind == Behind::Spill
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_waits_is_asked_as_often_as_was_said_and_never_all_the_time() {
        let hour = Duration::from_secs(3600);
        assert_eq!(Stop::default().every(LOOK).at_most(hour), hour);
        let stop = Stop::when(|| Ok(()));
        assert_eq!(stop.at_most(hour), LOOK);
        assert_eq!(stop.clone().every(hour * 2).at_most(hour), hour);
        assert_eq!(stop.clone().every(LOOK * 5).at_most(hour), LOOK * 5);
        assert_eq!(stop.every(Duration::ZERO).at_most(hour), LOOK);
        let stopped = Stop::when(|| Err(Error::cancelled())).every(hour);
        assert!(stopped.check().is_err());
    }
}
