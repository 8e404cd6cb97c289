//! Parallel read sessions: many consumers read a range of a file, few readers fetch it.
//!
//! How a program is cut into tasks (thousands of them, in any order) and how a file is best read (few large
//! requests in flight, in order) have nothing to do with each other. A [`Session`] stands between: tasks ask for
//! the bytes they want, readers fetch blocks, and each request completes as soon as its bytes are there.
//!
//! ```
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("f");
//! # std::fs::write(&path, vec![7u8; 100_000]).unwrap();
//! let file = stead_read::open(&path, &stead_read::Options::default())?;
//! let session = file.session(..)?;
//! let reads: Vec<_> = (0..10).map(|task| session.read(task * 10_000, 10_000)).collect();
//! for read in reads {
//!     assert!(read.wait()?.iter().all(|b| *b == 7));
//! }
//! session.close()?;
//! # Ok::<(), stead_core::Error>(())
//! ```
//!
//! The source of the idea: CkIO, parallel input for over-decomposed task-parallel systems (Jacob, Taylor, Kale 2024).

mod buffers;
mod clock;
mod deadline;
mod engine;
mod finish;
#[cfg(all(test, feature = "shuttle"))]
mod model;
mod neighbours;
mod opened;
mod options;
mod process;
mod profile;
pub mod ranks;
mod reader;
mod registry;
mod request;
mod room;
mod served;
mod session;
mod sync;
pub mod trial;
mod tune;
mod view;
mod window;
mod within;

pub use engine::Counts;
pub use options::{Decision, Options};
pub use request::{Read, ReadInto, answers_here};
pub use session::{File, Session, open, open_source};
pub use view::{Place, View};
pub use within::Within;
