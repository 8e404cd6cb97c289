//! Streams: programs hand arrays to each other in memory, step by step.

pub mod cover;
pub mod finder;
pub mod gather;
pub mod index;
pub mod merge;

pub use cover::covered;
pub use finder::Finder;
