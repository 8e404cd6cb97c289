//! Gives what ranks have made together its names: first the parts of all ranks, when all of them are whole and on their devices,
//! then, on rank 0, the layouts that name these. What a layout names is there, whoever fails and when.

use crate::exchange::{Crew, Undone, different};
use crate::outputs::Outputs;
use std::path::PathBuf;
use stead_core::layout::Layout;
use stead_core::{Error, Kind, Result};
use stead_store::{AtomicFile, remove_durably, space};

/// What rank 0 says of its layouts: they have their names,
const NAMED: u8 = 0;
/// they could not get them, and one may be there all the same,
const STAYS: u8 = 1;
/// or none is there.
const AWAY: u8 = 2;

/// A layout that is written and has no name yet.
pub struct NewLayout {
    file: AtomicFile,
    text: String,
    /// What it replaces: its bytes, and a file to put in its place again.
    old: Option<(Vec<u8>, AtomicFile)>,
}

impl NewLayout {
    /// Writes a layout to a file, which replaces the one whose bytes are `old`, a layout or not.
    ///
    /// # Errors
    /// System errors.
    pub fn write(mut file: AtomicFile, layout: &Layout, old: Option<&[u8]>) -> Result<NewLayout> {
        let text = layout.to_string();
        file.write_all(text.as_bytes())?;
        let keep = |old: &[u8]| {
            // Made before it is needed: a device that is full then has room for it.
            let mut again = AtomicFile::create(file.path())?;
            again.write_all(old)?;
            again.sync()?;
            Ok::<_, Error>((old.to_vec(), again))
        };
        let old = old.map(keep).transpose()?;
        Ok(NewLayout { file, text, old })
    }
}

/// A layout that may have its name.
struct Named {
    path: PathBuf,
    text: String,
    back: Option<AtomicFile>,
}

impl Named {
    /// Puts back what was there before. True if the layout is not there, for sure and durably.
    fn take_back(self) -> bool {
        match space::read_layout_bytes(&self.path) {
            Ok(there) if there != self.text.as_bytes() => true,
            Ok(_) => match self.back {
                Some(back) => back.commit().is_ok(),
                None => remove_durably(&self.path).is_ok(),
            },
            // It may have been there a moment ago.
            Err(e) if e.kind() == Kind::NotFound => remove_durably(&self.path).is_ok(),
            Err(_) => false,
        }
    }
}

/// Gives the layouts and the other outputs of rank 0 their names. With an error, true if no layout is there.
fn write(layouts: Vec<NewLayout>, mut outputs: Outputs) -> std::result::Result<(), (Error, bool)> {
    let (mut named, mut files) = (Vec::with_capacity(layouts.len()), Vec::new());
    for NewLayout { file, text, old } in layouts {
        let path = file.path().to_owned();
        let back = match old {
            Some((old, again)) => {
                // Whoever has replaced it has parts of their own, which nobody would find any more.
                if !space::read_layout_bytes(&path).is_ok_and(|there| there == old) {
                    let what = "the layout that was there has changed meanwhile";
                    let e = Error::new(Kind::Changed, what).at_path(&path);
                    let hint = "somebody else writes it; give one of both another name";
                    return Err((e.with_hint(hint), true));
                }
                Some(again)
            }
            None => None,
        };
        files.push(file);
        named.push(Named { path, text, back });
    }
    // Before the others: what these have replaced is not there any more.
    outputs.keep_first(files);
    outputs.commit().map_err(|e| {
        let away: Vec<bool> = named.into_iter().map(Named::take_back).collect();
        (e, away.iter().all(|away| *away))
    })
}

/// Gives the parts of this rank their names, together with those of all ranks, and then, on rank 0, the layouts and outputs that
/// `write_layouts` has written. If that fails, `remove` removes the parts of this rank, named or not; but not where a layout
/// might be there that names them: where this rank cannot know how far rank 0 has come, or that one could not take it back.
///
/// # Errors
/// The same on all ranks, but for those that hear of no other any more: `Peer`, or what their fabric says.
pub fn name(
    crew: &Crew<'_>,
    parts: Vec<AtomicFile>,
    write_layouts: impl FnOnce() -> Result<(Vec<NewLayout>, Outputs)>,
    remove: impl FnOnce(),
) -> Result<()> {
    let first = crew.rank() == 0;
    let parts = AtomicFile::commit_all(parts);
    let mine = parts.is_ok();
    if let Err(Undone { error, everywhere }) = crew.settle(parts.map(|()| Vec::new())) {
        // Without the word of this rank, and without rank 0, there is no layout.
        if everywhere || first || !mine {
            remove();
        }
        return Err(error);
    }
    let written = match first {
        true => write_layouts()
            .map_err(|e| (e, true))
            .and_then(|(layouts, outputs)| write(layouts, outputs)),
        false => Ok(()),
    };
    let (word, failed) = match written {
        Ok(()) => (NAMED, Ok(())),
        Err((e, true)) => (AWAY, Err(e)),
        Err((e, false)) => {
            let hint = "its layout could not be taken back and may be there, so the parts stay: see with \
                        'stead describe', and remove both or neither";
            (STAYS, Err(e.with_hint(hint)))
        }
    };
    // What has become of the layouts is told apart from why: an error of this step may be that of another rank, and says nothing
    // of them.
    match crew.settle(Ok(vec![word])) {
        Ok(words) => match words.first().map(Vec::as_slice) {
            Some([NAMED]) => Ok(()),
            Some([STAYS]) => crew.agree(failed),
            Some([AWAY]) => {
                remove();
                crew.agree(failed)
            }
            _ => Err(different()),
        },
        Err(Undone { error, .. }) => {
            if first && word == AWAY {
                remove();
            }
            failed.and(Err(error))
        }
    }
}
