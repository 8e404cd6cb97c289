//! Steps of streams in files, where they outlive memory: written beside the stream by each writer, and read as a stream is.

mod choice;
pub mod form;
mod list;
mod quotas;
mod recorder;
mod replay;
mod spot;
mod track;

pub use choice::AUTO;
pub(crate) use choice::{CHOSEN, Choice};
pub use list::{Recording, recordings};
pub(crate) use quotas::Quotas;
pub(crate) use recorder::{Job, Of, Recorder};
pub(crate) use replay::{Replay, describe, remove};
pub(crate) use spot::{Card, forget, read as card, spot, tell, told};
pub use spot::{is_location, is_recorded};
