//! Streams: programs hand arrays to each other in memory, step by step.

mod board;
mod clock;
pub mod cover;
pub mod finder;
pub mod gather;
pub mod index;
pub mod merge;
mod words;

pub use cover::covered;
pub use finder::Finder;
