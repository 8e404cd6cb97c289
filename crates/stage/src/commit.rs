//! From copies to files: durable, then named, then written down.

use crate::copy::Copy;
use crate::job::Item;
use crate::meta;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::path::PathBuf;
use stead_core::{Error, Kind, Result};
use stead_store::{Folder, Meta, tier};

/// Of so many files and folders each is made durable by itself; of more, the whole file system is, which costs the same however
/// many they are.
pub(crate) const SYNC_EACH: usize = 16;

/// Folders in which names were given or taken.
#[derive(Default)]
pub(crate) struct Touched(HashMap<PathBuf, Folder>);

impl Touched {
    pub(crate) fn note(&mut self, folder: &Folder) {
        if !self.0.contains_key(folder.shown()) {
            self.0.insert(folder.shown().to_owned(), folder.clone());
        }
    }

    /// Makes what happened in them durable.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn sync(&mut self) -> Result<()> {
        let folders: Vec<Folder> = self.0.drain().map(|(_, folder)| folder).collect();
        if folders.len() <= SYNC_EACH {
            return folders.iter().filter(|f| !tier::is_memory(f)).try_for_each(Folder::sync);
        }
        sync_all(&folders)
    }
}

impl Touched {
    /// Makes all files of them durable, with all else on their file systems.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn sync_files(&self) -> Result<()> {
        sync_all(&self.0.values().cloned().collect::<Vec<_>>())
    }
}

/// Makes all that lies on the file systems of these folders durable.
///
/// # Errors
/// System errors.
pub(crate) fn sync_all(folders: &[Folder]) -> Result<()> {
    let mut devices = Vec::new();
    for folder in folders.iter().filter(|f| !tier::is_memory(f)) {
        let dev = folder.own_meta()?.dev;
        if !devices.contains(&dev) {
            devices.push(dev);
            let failed = |e: rustix::io::Errno| Error::io("sync", folder.shown(), e.into());
            rustix::fs::syncfs(folder).map_err(failed)?;
        }
    }
    Ok(())
}

/// Gives a copy its name.
///
/// # Errors
/// `Usage` if something has the name that was not to be replaced; system errors.
pub(crate) fn name(copy: &Copy) -> Result<()> {
    let (folder, item) = (copy.target(), &copy.item);
    folder.rename(copy.temporary(), folder, item.name(), item.replace)
}

/// True if the target has the file already, as whoever began the transfer before has left it.
///
/// # Errors
/// System errors.
pub(crate) fn is_there(item: &Item, target: &Folder) -> Result<bool> {
    let there = target.meta(item.name())?;
    Ok(there.is_some_and(|t| t.size == item.size && t.mtime == item.mtime))
}

/// Removes the source of a copy that has its name, if it is still what was copied.
///
/// # Errors
/// `Changed` if it is not; system errors.
pub(crate) fn leave(copy: &Copy) -> Result<()> {
    let Some(seen) = copy.seen() else { return Ok(()) };
    let name = copy.item.source.file_name().unwrap_or_default();
    match copy.source().meta(name)? {
        Some(now) if now.same(&seen) => copy.source().remove_file(name).map(|_| ()),
        Some(_) => Err(Error::new(Kind::Changed, "the file changed after it was copied")
            .at_path(copy.source().at(name))
            .with_hint("both are there; stage it again when nobody writes to it")),
        None => Ok(()),
    }
}

/// Makes a link like another one.
///
/// # Errors
/// `Usage` if something has the name that was not to be replaced; system errors.
pub(crate) fn link(
    item: &Item,
    source: &Folder,
    target: &Folder,
    temporary: &OsStr,
    meta: &Meta,
) -> Result<()> {
    let text = source.read_link(item.source.file_name().unwrap_or_default())?;
    target.remove_file(temporary)?;
    target.make_link(&text, temporary)?;
    meta::give_link(meta, target, temporary);
    let named = target.rename(temporary, target, item.name(), item.replace);
    settle(named, target, temporary, || {
        let there = target.meta(item.name())?;
        let link = |m: Meta| m.what == stead_store::What::Link;
        Ok(there.is_some_and(link) && target.read_link(item.name())? == text)
    })
}

/// Gives a file that is there one more name.
///
/// # Errors
/// As [`link`].
pub(crate) fn hard(
    item: &Item,
    target: &Folder,
    temporary: &OsStr,
    first: (&Folder, &OsStr),
) -> Result<()> {
    target.remove_file(temporary)?;
    target.link(first.0, first.1, temporary)?;
    let same = || {
        let of = |m: Option<Meta>| m.map(|m| (m.dev, m.ino));
        Ok(of(target.meta(item.name())?) == of(first.0.meta(first.1)?))
    };
    // A rename onto another name of the same file does nothing, and leaves both.
    if same()? {
        return target.remove_file(temporary).map(|_| ());
    }
    settle(target.rename(temporary, target, item.name(), item.replace), target, temporary, same)
}

/// What became of giving a name: it is no error if the name leads to the same already.
fn settle(
    named: Result<()>,
    target: &Folder,
    temporary: &OsStr,
    same: impl FnOnce() -> Result<bool>,
) -> Result<()> {
    let Err(e) = named else { return Ok(()) };
    let _ = target.remove_file(temporary);
    if e.kind() == Kind::Usage && same()? { Ok(()) } else { Err(e) }
}
