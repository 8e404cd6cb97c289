//! Files that all ranks of a job read together.
//!
//! [`open`] and [`crate::File::session`] of such a file are collective: all ranks call them, in the same order. Reads are
//! not: each rank, and each of its threads, asks for what it wants when it wants it.
//!
//! Opening only looks (`opening`). With the first session all ranks make what they read by (`group`), as its range asks for;
//! a later one of quite another size has it made anew.
//!
//! The bytes that a session covers are shared out among the *readers*, some ranks of each node that has the file, in
//! contiguous runs (`owners`). Each run is read from the file system by its reader alone. A request for bytes that
//! are read on its own node is answered by the *near* engine: where the page cache holds the file, with views that all
//! ranks of the node share. For all others there is a *far* engine, whose source (`far`) asks the reader by
//! messages; a thread of the reader's rank answers (`service`), so that no rank needs to call anything for others.
//!
//! Where blocks are in memory, ranks of one node read into memory that all of them can look at (`sharing`): an answer to a
//! neighbour is then a loan of a block (`lent`, `borrowed`), not a copy.
//!
//! Without the file on some nodes, their ranks get all bytes from the others.

pub(crate) mod borrowed;
pub(crate) mod far;
pub(crate) mod group;
pub(crate) mod lent;
pub(crate) mod opening;
pub(crate) mod owners;
pub(crate) mod service;
pub(crate) mod sharing;
pub mod trial;
pub(crate) mod wire;

#[cfg(test)]
mod sharing_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trouble_tests;

pub use opening::{open, open_source, refuse};
