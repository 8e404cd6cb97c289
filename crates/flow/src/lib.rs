//! Flows: operators between streams, in the program that writes them, in the one that reads them, or between both.
//!
//! A [`Graph`] names streams that are read, operators, and streams that are written. It is checked before anything runs, and a [`Flow`]
//! then does for each step what it says, where the arrays lie: what comes out is small, and nothing else moves.
//!
//! ```
//! let graph = stead_flow::Graph::parse(r#"
//!     [read.sim]
//!     [node.profile]
//!     op = "reduce"
//!     of = "sim.T"
//!     how = "mean"
//!     over = ["y"]
//!     [write.small]
//!     variables = { profile = "profile" }
//! "#)?;
//! assert_eq!(stead_flow::check(&graph)?.nodes.len(), 1);
//! # Ok::<(), stead_core::Error>(())
//! ```

mod check;
mod describe;
mod division;
pub mod draw;
mod element;
mod fault;
mod form;
#[doc(hidden)]
pub mod fuzzing;
mod graph;
mod library;
mod live;
mod meet;
mod op;
mod origin;
mod plan;
mod png;
mod ranks;
mod run;
mod value;

pub use check::{Checked, Node, Rate, Reading, Slot, Writing, check};
pub use describe::{Description, NodeDescription, ReadDescription, WriteDescription};
pub use form::Form;
pub use graph::{
    Cut, Declared, Dim, From, Graph, How, Of, Operator, Output, Over, Slice, Slow, Source,
};
pub use library::{CArray, CFunction, load, of_c};
pub use op::{Function, Given, Wanted};
pub use run::{Flow, Functions, Options, Report, Running, Sent};
