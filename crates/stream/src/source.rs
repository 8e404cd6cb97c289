//! Where a reader has its steps from: the writers of this node, or those of another one.

use crate::gather::PART;
use crate::index::{BlockEntry, Definitions, Place};
use crate::noted::Got;
use crate::report::MemoryReport;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Instant;
use stead_core::{Bounds, Error, Result};
use stead_store::arena::View;

/// What comes next.
#[derive(Debug)]
pub(crate) enum Coming {
    /// This step, at which the reader looks from now on.
    Step(u64),
    /// Nothing in time.
    Nothing,
    /// Nothing any more, in order or not.
    Over(Option<Error>),
}

/// What a writer says of a step.
#[derive(Debug, Clone)]
pub(crate) struct Said {
    /// Which of the writers on all nodes it is.
    pub(crate) rank: u64,
    pub(crate) definitions: Arc<Definitions>,
    pub(crate) blocks: Vec<BlockEntry>,
}

/// What all writers of a node say of a step.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// When the last of them ended it, in nanoseconds since 1970.
    pub(crate) at: u64,
    /// Bytes of their arrays.
    pub(crate) bytes: u64,
    /// The most memory that arrays of the stream had taken on their node until it was told; 0 if that is not known.
    pub(crate) peak: u64,
    /// One for each, in the order of their places.
    pub(crate) said: Vec<Said>,
}

/// Writers of a node, as a reader has them. All may be called by any thread; who shares a reader counts how often a step is held.
pub(crate) trait Source: Debug + Send + Sync {
    /// The step that a reader begins with.
    fn position(&self) -> u64;

    /// Asks for the [`next`](Source::next) one beforehand, so that several sources are asked at the same time. Those before are done with.
    fn expect(&self, from: u64, passes: bool, until: Instant) -> Result<()>;

    /// The first step from this one on, as soon as it is complete; those before are done with. No longer than until then. With `passes` those
    /// are passed over that the reader's group is further behind by than it says.
    fn next(&self, from: u64, passes: bool, until: Instant) -> Result<Coming>;

    /// Looks at a step from now on. False if it is not there. Nothing to do for one that is looked at.
    fn hold(&self, step: u64) -> Result<bool>;

    /// Looks at a step no longer, and has done with it, too.
    fn let_go(&self, step: u64, is_done: bool);

    /// Steps that are there and complete.
    fn steps(&self) -> Result<Vec<u64>>;

    /// What writers say of a step that is held.
    fn told(&self, step: u64) -> Result<Arc<Told>>;

    /// Who keeps a step from coming: writers that have not ended it, else ranks of the reader's group that are behind.
    fn late(&self, step: u64) -> Vec<String>;

    /// Bytes of a block, which lies at this place; `None` where they are to be [fetched](Source::fetch).
    fn look(&self, block: Which, place: &Place) -> Result<Option<View>>;

    /// What fetches parts of arrays; `None` where they can be looked at.
    fn fetch(&self) -> Option<Box<dyn Fetch + '_>>;

    /// Says what was got of a step that is held, and nanoseconds of processors that its copy has taken.
    fn count(&self, step: u64, got: &Got<'_>, copying: u64);

    /// Says that the reader was given a step, so many after the one that it waited for, and for how many nanoseconds it has waited.
    fn given(&self, step: u64, dropped: u64, waited: u64);

    /// The memory of the stream; `None` of another node.
    fn memory(&self) -> Option<MemoryReport>;

    /// No more steps are wanted; those that are held still are.
    fn done(&self);
}

/// A block of a step: the place of its writer, and its number among those of the writer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Which {
    pub(crate) step: u64,
    pub(crate) writer: usize,
    pub(crate) number: usize,
}

/// Parts of blocks from elsewhere: several are asked for, and come in the same order.
pub(crate) trait Fetch {
    /// Bytes of a part, at most.
    fn part(&self) -> usize {
        PART
    }

    /// Asks for the part of a block that this box, which lies within it, is.
    fn ask(&mut self, block: Which, part: &Bounds) -> Result<()>;

    /// The bytes of the part that was asked for first and has not come, in C order.
    fn hear(&mut self) -> Result<Part>;

    /// A part that has come is not looked at any more: its memory may be that of another one.
    fn give_back(&mut self, _part: Part) {}
}

/// A part that has come: its bytes are those after the first few of a message.
#[derive(Debug)]
pub(crate) struct Part {
    message: Vec<u8>,
    from: usize,
}

impl Part {
    pub(crate) fn new(message: Vec<u8>, from: usize) -> Part {
        Part { message, from }
    }

    /// All of its memory.
    pub(crate) fn into_message(self) -> Vec<u8> {
        self.message
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        self.message.get(self.from..).unwrap_or(&[])
    }
}
