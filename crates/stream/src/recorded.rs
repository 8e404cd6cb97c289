//! Steps of streams in files, where they outlive memory: written beside the stream by each writer, and read as a stream is.

pub mod form;
mod list;
mod recorder;
mod replay;
mod spot;
mod track;

pub use list::{Recording, recordings};
pub(crate) use recorder::{Job, Of, Recorder};
pub(crate) use replay::{Replay, describe, remove};
pub use spot::is_recorded;
pub(crate) use spot::{Card, forget, is_location, read as card, spot, tell, told};
