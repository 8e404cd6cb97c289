//! The C ABI of stead: `include/stead.h` is generated from this crate (`cargo xtask header`), so the comments of
//! its functions are written for readers of C.
//!
//! Nothing here thinks. Each function goes through the wall in `guard`, which stops panics and looks at
//! pointers; finds its handles in `table`; calls the facade; and turns the answer into C. What C sees of a
//! type is an opaque struct that has no values: a handle is a number in the shape of a pointer.
//!
//! What it must not know: anything below the facade.

// The contracts of these functions are those of the header, which their comments become.
#![allow(clippy::missing_safety_doc)]
// Names of C.
#![allow(non_camel_case_types)]

mod admin;
mod block;
mod builder;
mod calibrate;
mod cancel;
mod daemon;
mod daemon_flow;
mod dataset;
mod error;
mod flow;
mod guard;
mod layout;
mod listing;
mod memory;
mod offload;
mod options;
mod own;
mod pending;
mod persist;
mod queue;
mod ranks;
mod region;
mod report;
mod request;
mod run;
mod session;
mod stage;
mod stage_request;
mod stream;
mod stream_buffer;
mod stream_coupling;
mod stream_reader;
mod stream_step;
mod stream_subscription;
mod stream_writer;
mod table;
mod text;
mod tipsy;
mod under_way;
mod value;
mod versions;
mod view;
