//! The kernel traits: a typed one to write kernels with, an object-safe one to run them with.

use crate::many::{self, Many, Typed};
use serde::{Serialize, de::DeserializeOwned};
use std::any::Any;
use std::path::PathBuf;
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Result, Value};

/// What comes after a pass over the data.
pub enum Step {
    /// The answer.
    Done(Value),
    /// Another pass, with this kernel.
    Next(Arc<dyn AnyKernel>),
    /// These bytes are to be written to `path`, whole or not at all, and then the answer is `value`.
    File {
        /// Where to. Relative names are taken from the current directory.
        path: PathBuf,
        /// What stands in the file.
        bytes: Vec<u8>,
        /// The answer.
        value: Value,
    },
}

/// A computation as a monoid. See the crate's documentation for the laws.
pub trait Kernel: Send + Sync + 'static {
    /// What a pass accumulates. It travels between ranks, so it serialises.
    type State: Send + Serialize + DeserializeOwned + 'static;

    /// What the kernel looks at in a block.
    fn needs(&self) -> Needs;

    /// The state of no data.
    fn init(&self) -> Self::State;

    /// Adds a block.
    fn update(&self, state: &mut Self::State, block: &Block<'_>) -> Result<()>;

    /// Adds another state. `init()` is neutral.
    fn merge(&self, state: &mut Self::State, other: Self::State) -> Result<()>;

    /// Refuses a state that came as bytes and that no kernel of this plan can have made. What passes may be
    /// merged and finished.
    fn check(&self, _state: &Self::State) -> Result<()> {
        Ok(())
    }

    /// Ends the pass.
    fn finish(&self, state: Self::State) -> Result<Step>;

    /// True if it is known before this pass that another one will follow that needs the same or less: what this
    /// one reads is then kept for it, where memory allows. Only a hint: the answer does not depend on it.
    fn more_passes(&self) -> bool {
        false
    }

    /// True if this pass is the last one, whatever the data are: [`Kernel::finish`] gives no [`Step::Next`] then. Who merges the states of all
    /// ends it, and need not tell the others how to go on.
    fn is_last(&self) -> bool {
        false
    }

    /// True if states of this pass are large and can be cut: ranks then merge a piece each, all at the same time, and one
    /// of them alone puts the pieces together and ends the pass, which must be the last one. [`Kernel::cut`] and
    /// [`Kernel::assemble`] are written then, and [`Kernel::close`] if the answer needs less of pieces than merging them does.
    fn cuts(&self) -> bool {
        false
    }

    /// A state as `pieces` states: merging the i-th ones of all ranks for each i, and assembling what comes out, gives what
    /// merging the states would. Every rank cuts at the same places. Rank i merges the i-th ones: least moves if these are most of
    /// what it has itself.
    fn cut(&self, _state: Self::State, _pieces: usize) -> Result<Vec<Self::State>> {
        Err(Error::internal("a kernel whose states are in one piece was asked to cut one"))
    }

    /// A piece that all states are merged in, as [`Kernel::assemble`] takes it: it goes to another rank, which needs no
    /// more of it than the answer does.
    fn close(&self, piece: Self::State) -> Result<Self::State> {
        Ok(piece)
    }

    /// The state of pieces that were merged and closed, in their order.
    fn assemble(&self, _pieces: Vec<Self::State>) -> Result<Self::State> {
        Err(Error::internal("a kernel whose states are in one piece was asked to assemble some"))
    }

    /// Bytes that a state may take, for the memory budget.
    fn state_bytes(&self, _state: &Self::State) -> usize {
        std::mem::size_of::<Self::State>()
    }

    /// The file that this kernel writes, in this pass or in a later one: it is looked at before the data
    /// are, so that a name that will not do costs no pass. A kernel with a [`Kernel::sink`] has one anyway.
    fn output(&self) -> Option<PathBuf> {
        self.sink().map(|s| s.path)
    }

    /// For kernels that write a file beside the data: where it goes. [`Kernel::map`] is then called for
    /// every block after `update`, and what it appends is written in block order.
    fn sink(&self) -> Option<Sink> {
        None
    }

    /// True if this pass or a later one has a [`Kernel::sink`]: several ranks then write its file together.
    fn maps(&self) -> bool {
        self.sink().is_some()
    }

    /// Appends the output for one block.
    fn map(&self, _block: &Block<'_>, _out: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }

    /// The kernel with the same states that answers with these members of its result alone, and with the member itself
    /// if it is but one. `None` if it has no members to choose from.
    fn only(&self, _members: &[&'static str]) -> Option<Self>
    where
        Self: Sized,
    {
        None
    }

    /// The states of groups, none so far. Only worth writing where states are small and groups may be many.
    fn many(self: Arc<Self>) -> Box<dyn Many>
    where
        Self: Sized,
    {
        Box::new(Typed::new(self))
    }
}

/// An output file: written to a temporary name, in block order, and renamed when it is whole.
#[derive(Debug, Clone, PartialEq)]
pub struct Sink {
    /// Final name. Relative names are taken from the current directory.
    pub path: PathBuf,
    /// What stands before the output.
    pub header: SinkHeader,
}

/// What stands before the output of a sink.
#[derive(Debug, Clone, PartialEq)]
pub enum SinkHeader {
    /// Nothing but these bytes.
    Bytes(Vec<u8>),
    /// A `.npy` header for little-endian f64 whose first dimension is the number of bytes written
    /// divided by the size of one row; `row` are the further dimensions.
    Npy {
        /// Lengths of the dimensions after the first.
        row: Vec<u64>,
    },
    /// A `.npy` header for little-endian f64 of exactly this shape and order.
    NpyShape {
        /// The shape.
        shape: Vec<u64>,
        /// True if the first index runs fastest.
        fortran: bool,
    },
}

/// The state of some kernel, without its type.
pub type AnyState = Box<dyn Any + Send>;

/// The object-safe face of [`Kernel`], implemented for every `Kernel`.
#[allow(missing_docs)]
pub trait AnyKernel: Send + Sync {
    fn needs(&self) -> Needs;
    fn init(&self) -> AnyState;
    fn update(&self, state: &mut AnyState, block: &Block<'_>) -> Result<()>;
    fn merge(&self, state: &mut AnyState, other: AnyState) -> Result<()>;
    fn finish(&self, state: AnyState) -> Result<Step>;
    fn more_passes(&self) -> bool {
        false
    }
    fn is_last(&self) -> bool {
        false
    }
    fn cuts(&self) -> bool {
        false
    }
    fn cut(&self, _state: AnyState, _pieces: usize) -> Result<Vec<AnyState>> {
        wrong()
    }
    fn close(&self, piece: AnyState) -> Result<AnyState> {
        Ok(piece)
    }
    fn assemble(&self, _pieces: Vec<AnyState>) -> Result<AnyState> {
        wrong()
    }
    fn state_bytes(&self, state: &AnyState) -> usize;
    fn encode(&self, state: &AnyState) -> Result<Vec<u8>>;
    fn decode(&self, bytes: &[u8]) -> Result<AnyState>;
    fn output(&self) -> Option<PathBuf>;
    fn sink(&self) -> Option<Sink>;
    fn maps(&self) -> bool {
        self.sink().is_some()
    }
    fn map(&self, block: &Block<'_>, out: &mut Vec<u8>) -> Result<()>;
    fn only(&self, _members: &[&'static str]) -> Option<Arc<dyn AnyKernel>> {
        None
    }
    /// `None` for what cannot run by groups, as groups themselves.
    fn many(self: Arc<Self>) -> Option<Box<dyn Many>> {
        None
    }
}

fn wrong<T>() -> Result<T> {
    Err(Error::internal("a state was given to a kernel of another kind"))
}

impl<K: Kernel> AnyKernel for K {
    fn needs(&self) -> Needs {
        Kernel::needs(self)
    }

    fn init(&self) -> AnyState {
        Box::new(Kernel::init(self))
    }

    fn update(&self, state: &mut AnyState, block: &Block<'_>) -> Result<()> {
        match state.downcast_mut::<K::State>() {
            Some(s) => Kernel::update(self, s, block),
            None => wrong(),
        }
    }

    fn merge(&self, state: &mut AnyState, other: AnyState) -> Result<()> {
        match (state.downcast_mut::<K::State>(), other.downcast::<K::State>()) {
            (Some(a), Ok(b)) => Kernel::merge(self, a, *b),
            _ => wrong(),
        }
    }

    fn finish(&self, state: AnyState) -> Result<Step> {
        match state.downcast::<K::State>() {
            Ok(s) => Kernel::finish(self, *s),
            Err(_) => wrong(),
        }
    }

    fn more_passes(&self) -> bool {
        Kernel::more_passes(self)
    }

    fn is_last(&self) -> bool {
        Kernel::is_last(self)
    }

    fn cuts(&self) -> bool {
        Kernel::cuts(self)
    }

    fn cut(&self, state: AnyState, pieces: usize) -> Result<Vec<AnyState>> {
        let Ok(state) = state.downcast() else { return wrong() };
        let pieces = Kernel::cut(self, *state, pieces)?;
        Ok(pieces.into_iter().map(|p| Box::new(p) as AnyState).collect())
    }

    fn close(&self, piece: AnyState) -> Result<AnyState> {
        let Ok(piece) = piece.downcast() else { return wrong() };
        Ok(Box::new(Kernel::close(self, *piece)?))
    }

    fn assemble(&self, pieces: Vec<AnyState>) -> Result<AnyState> {
        let typed = |p: AnyState| p.downcast().map_or_else(|_| wrong(), |p| Ok(*p));
        Ok(Box::new(Kernel::assemble(self, pieces.into_iter().map(typed).collect::<Result<_>>()?)?))
    }

    fn state_bytes(&self, state: &AnyState) -> usize {
        state.downcast_ref::<K::State>().map_or(0, |s| Kernel::state_bytes(self, s))
    }

    fn encode(&self, state: &AnyState) -> Result<Vec<u8>> {
        match state.downcast_ref::<K::State>() {
            Some(s) => many::wire(s),
            None => wrong(),
        }
    }

    fn decode(&self, bytes: &[u8]) -> Result<AnyState> {
        Ok(Box::new(many::unwire(self, bytes)?))
    }

    fn output(&self) -> Option<PathBuf> {
        Kernel::output(self)
    }

    fn sink(&self) -> Option<Sink> {
        Kernel::sink(self)
    }

    fn maps(&self) -> bool {
        Kernel::maps(self)
    }

    fn map(&self, block: &Block<'_>, out: &mut Vec<u8>) -> Result<()> {
        Kernel::map(self, block, out)
    }

    fn only(&self, members: &[&'static str]) -> Option<Arc<dyn AnyKernel>> {
        Kernel::only(self, members).map(|k| Arc::new(k) as _)
    }

    fn many(self: Arc<Self>) -> Option<Box<dyn Many>> {
        Some(Kernel::many(self))
    }
}
