//! Streams: programs hand arrays to each other in memory, step by step.

mod agent;
mod board;
mod clock;
mod coupling;
pub mod cover;
mod describe;
pub mod finder;
pub mod gather;
mod head;
mod here;
mod home;
pub mod index;
mod memory;
pub mod merge;
mod options;
mod party;
mod reader;
mod source;
mod step;
mod there;
mod threads;
mod turn;
mod wire;
mod words;
mod writer;

pub use coupling::{Coupling, Part};
pub use cover::covered;
pub use describe::{Description, Peer, Presence, Progress};
pub use finder::Finder;
pub use home::Home;
pub use index::{Attribute, Definition};
pub use options::{Behind, Read, Start, Stop, Written};
pub use reader::Reader;
pub use step::{Array, Step};
pub use writer::{Kept, Room, Writer};
