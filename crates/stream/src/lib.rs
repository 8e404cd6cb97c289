//! Streams: programs hand arrays to each other in memory, step by step.

mod agent;
mod board;
mod budget;
mod buffer;
mod clock;
mod coupling;
pub mod cover;
mod describe;
mod events;
mod explain;
mod find;
pub mod finder;
#[doc(hidden)]
pub mod fuzzing;
pub mod gather;
mod head;
mod here;
mod home;
pub mod index;
mod line;
mod meeting;
mod memory;
pub mod merge;
mod noted;
mod options;
mod party;
mod pool;
mod ranks;
mod reader;
pub mod recorded;
mod report;
mod returns;
mod several;
mod share;
mod source;
mod step;
mod stock;
mod subscription;
mod survey;
mod there;
mod threads;
mod trail;
mod turn;
mod wire;
mod wired;
mod words;
mod writer;

pub use budget::Budget;
pub use buffer::Buffer;
pub use coupling::{Coupling, Part};
pub use cover::covered;
pub use describe::{Description, Group, Peer, Presence, Progress};
pub use events::Event;
pub use explain::{Basis, Explanation, Giver, Pull, Taker, Warning};
pub use finder::Finder;
pub use home::{Home, check_name};
pub use index::{Attribute, Definition};
pub use options::{Behind, Patience, Read, Start, Stop, Written};
pub use pool::{Names, Nodes, Switchboard, Way};
pub use reader::Reader;
pub use recorded::{AUTO, Recording, is_location, is_recorded, recordings};
pub use report::{MemoryReport, ReaderReport, StepPut, StepReport, Wait, WriterReport};
pub use step::{Array, Step};
pub use subscription::Subscription;
pub use survey::{Descriptions, Listed, Missed, Survey, Surveyed};
pub use writer::{Kept, Room, Writer};

use stead_core::Result;
use stead_core::layout::Spaces;

/// Removes a stream of this node, or recorded steps: with `force` also what is still written or read. False if there is none. Those of other
/// nodes [`Survey::remove`] removes.
///
/// # Errors
/// `Usage` if somebody writes or reads it and `force` is not set; system errors.
pub fn remove(name: &str, spaces: &Spaces, force: bool) -> Result<bool> {
    match recorded::is_location(name) {
        true => recorded::remove(name, spaces, force),
        false => Home::open(spaces)?.remove(name, force),
    }
}
