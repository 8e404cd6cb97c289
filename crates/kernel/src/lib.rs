//! Kernels: computations as monoids over blocks. No files, no threads, no clock in here.
//!
//! A [`Kernel`] says what it needs, makes an empty state, updates a state with a block, merges two states
//! and finishes a state to a [`stead_core::Value`] or to the kernel of a next round. Whatever is written
//! so runs on any number of threads and ranks and over any split of the data, with the same answer to the
//! last bit. Merging must be associative and commutative *in its effect on the answer*.

pub mod api;
pub mod bytes;
mod cells;
pub mod columns;
pub mod exact;
pub mod expr;
pub mod extremes;
pub mod gram;
pub mod grep;
pub mod grouped;
mod groups;
pub mod hist;
pub mod kmeans;
#[cfg(any(test, feature = "laws"))]
#[allow(clippy::expect_used)]
pub mod laws;
pub mod many;
pub mod moments;
pub mod normalize;
pub mod own;
pub mod quantile;
pub mod registry;
pub mod render;
pub mod spec;

pub use api::{AnyKernel, AnyState, Kernel, Sink, SinkHeader, Step};
pub use expr::Filter;
pub use grouped::Grouped;
pub use many::Many;
pub use own::Own;
pub use registry::{Built, Context, Info};
pub use spec::Spec;
