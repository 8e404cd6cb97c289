//! Bytes: files and memory as sources, read at a queue depth; names to files; files written atomically.
//!
//! Nothing in here knows a format.

mod aligned;
pub mod arena;
pub mod atomic;
mod beside;
mod buffer;
mod cache;
pub mod commons;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod copied;
pub mod device;
pub mod expand;
#[cfg(any(test, feature = "faults"))]
pub mod faulty;
pub mod file;
mod flight;
pub mod folder;
mod going;
pub mod hole;
pub mod joint;
mod layout;
mod lend;
mod mapped;
pub mod memory;
mod object;
pub mod process;
pub mod queue;
pub mod quota;
pub mod region;
pub mod segment;
mod shared;
mod sigbus;
pub mod source;
pub mod space;
mod stray;
mod stream;
mod stripe;
pub mod tier;
mod unnamed;
mod uring;
mod viewed;
pub mod watch;
pub mod way;
pub mod words;

pub use aligned::Aligned;
pub use arena::{Arena, Loose, Neighbours, Piece, View};
pub use atomic::{AtomicFile, remove_durably};
pub use buffer::Buffer;
pub use cache::{begin_writing, evict, resident_share, will_need};
pub use commons::Commons;
pub use expand::expand;
pub use file::FileSource;
pub use folder::{FileTime, Folder, Locked, Meta, What};
pub use joint::JointFile;
pub use layout::Stripe;
pub use lend::Lender;
pub use mapped::MOST_PASSED;
pub use memory::MemorySource;
pub use object::{Begun, Bucket, Entry, Label, Object, Page};
pub use queue::{Completed, ReadQueue};
pub use region::Region;
pub use segment::{Announcement, Neighbour, Segment};
pub use shared::longest as longest_file;
pub use source::{Engine, IoOptions, Source};
pub use space::Root;
pub use stripe::Tally;
pub use tier::Tier;
pub use viewed::Viewed;
pub use watch::Watch;
pub use words::{Draft, Waited, Words};
