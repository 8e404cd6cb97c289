//! Bytes: files and memory as sources, read at a queue depth; names to files; files written atomically.
//!
//! Nothing in here knows a format.

pub mod atomic;
pub mod expand;
pub mod file;
pub mod memory;
pub mod source;

pub use atomic::AtomicFile;
pub use expand::expand;
pub use file::FileSource;
pub use memory::MemorySource;
pub use source::{Engine, IoOptions, Source};
