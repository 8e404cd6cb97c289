//! Bytes: files and memory as sources, read at a queue depth; names to files; files written atomically.
//!
//! Nothing in here knows a format.

pub mod source;

pub use source::{Engine, IoOptions, Source};
