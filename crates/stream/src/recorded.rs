//! Steps of streams in files, where they outlive memory: written beside the stream by each writer, and read as a stream is.

mod choice;
pub mod form;
mod list;
mod quotas;
mod recorder;
mod replay;
mod spot;
mod track;

pub(crate) use choice::{AUTO, CHOSEN, Choice};
pub use list::{Recording, recordings};
pub(crate) use quotas::Quotas;
pub(crate) use recorder::{Job, Of, Recorder};
pub(crate) use replay::{Replay, describe, remove};
pub use spot::is_recorded;
pub(crate) use spot::{Card, forget, is_location, read as card, spot, tell, told};
