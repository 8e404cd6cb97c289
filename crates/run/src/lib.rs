//! Near-data execution: a request becomes passes over a dataset, states, and a report.
//!
//! The walk: a [`Request`] names kernels; [`run`] makes them, lets those that can share a state share it,
//! asks the dataset for a scan with the union of their needs, lets worker threads pull blocks and update
//! their own states, merges the states of threads and then of ranks, and finishes them to answers or to a
//! next pass. All kernels of a request share each pass.

mod budget;
mod cache;
pub mod calibrate;
mod clock;
mod engine;
mod exchange;
mod extent;
pub mod files;
mod joint;
mod machine;
mod meeting;
mod naming;
mod news;
pub mod offload;
mod outputs;
mod pass;
mod patient;
mod pieces;
mod place;
mod prepared;
pub mod profile;
mod recorded;
mod report;
mod request;
pub mod roles;
mod scatter;
mod sides;
mod sink;
mod split;
pub mod spread;
mod told;
mod values;
mod vectors;

pub use engine::{agree, refuse, run, run_on};
pub use pass::{Observer, Snapshot};
pub use place::{Alternative, LeftOut, Placing, Took};
pub use report::{Metrics, Plan, PlannedKernel, RankMetrics, Report};
pub use request::Request;
