//! The recorded streams that there are in a folder.

use super::replay::Replay;
use super::spot::{self, CARD};
use crate::describe::Progress;
use crate::options::Stop;
use serde::Serialize;
use std::ffi::OsStr;
use stead_core::layout::Spaces;
use stead_core::{Kind, Result};
use stead_store::Folder;

/// Names that are looked at together.
const NAMES: usize = 1 << 12;

/// A stream that was recorded, or still is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Recording {
    /// What it is read by.
    pub location: String,
    /// What the stream was called.
    pub name: String,
    /// How many writers it has.
    pub writers: u64,
    /// Steps that all of them have recorded.
    pub steps: u64,
    /// Bytes of the files of arrays.
    pub bytes: u64,
    /// Whether it goes on; one of which a writer has ended in the middle has the steps that are complete.
    pub state: Progress,
    /// All writers have closed it, and all of its steps are there.
    pub is_whole: bool,
    /// Why it cannot be read, or not all of it, as far as the ends of its files tell. Arrays are compared with their checksums when they are
    /// read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
}

/// The recorded streams of a folder: that of the folder itself, and those of the folders in it, by name. What readers are behind by is none.
/// Costs a look at the ends of the files of each writer.
///
/// # Errors
/// `NotFound` if there is no such folder; `Usage` for locations on other nodes and in buckets; system errors.
pub fn recordings(location: &str, spaces: &Spaces) -> Result<Vec<Recording>> {
    let folder = spot::folder(location, spaces, false)?;
    let mut all: Vec<Recording> = Vec::new();
    all.extend(look(&folder, location.to_owned())?);
    // `SPACE://` is the folder of a dataspace, and `/` that of the system.
    let base = match location.ends_with('/') {
        true => location.to_owned(),
        false => format!("{location}/"),
    };
    for names in folder.names(NAMES)? {
        for name in names? {
            // Whatever is no folder of this user is no recording of his.
            let Some(within) = enter(&folder, &name) else { continue };
            all.extend(look(&within, format!("{base}{}", name.to_string_lossy()))?);
        }
    }
    all.sort_by(|a, b| a.location.cmp(&b.location));
    Ok(all)
}

/// A folder with something of a stream in it.
fn enter(folder: &Folder, name: &OsStr) -> Option<Folder> {
    let within = folder.enter(name).ok()?;
    matches!(within.meta(OsStr::new(CARD)), Ok(Some(_))).then_some(within)
}

/// What was recorded in a folder.
fn look(folder: &Folder, location: String) -> Result<Option<Recording>> {
    let damaged = |name: String, writers, why: String| Recording {
        location: location.clone(),
        name,
        writers,
        steps: 0,
        bytes: 0,
        state: Progress::Ended,
        is_whole: false,
        damage: Some(why),
    };
    let card = match spot::read(folder) {
        Err(e) if e.kind() == Kind::NotFound => return Ok(None),
        Err(e) if e.kind() == Kind::Format => {
            return Ok(Some(damaged(String::new(), 0, e.to_string())));
        }
        card => card?,
    };
    if card.spills {
        return Ok(None);
    }
    let (name, writers) = (card.name.clone(), card.writers);
    let replay = Replay::of(&name, folder.clone(), card, &Stop::default());
    let (told, damage) = match replay.describe().and_then(|told| Ok((told, replay.damage()?))) {
        Err(e) if e.kind() == Kind::NotFound && spot::read(folder).is_err() => {
            // Somebody has removed it meanwhile.
            return Ok(None);
        }
        Err(e) if matches!(e.kind(), Kind::Format | Kind::NotFound) => {
            return Ok(Some(damaged(name, writers, e.to_string())));
        }
        told => told?,
    };
    let even = told.writers.iter().all(|writer| writer.step == told.complete);
    let is_whole = told.state == Progress::Ended && even && damage.is_none();
    let (steps, bytes, state) = (told.complete, told.used, told.state);
    Ok(Some(Recording { location, name, writers, steps, bytes, state, is_whole, damage }))
}
