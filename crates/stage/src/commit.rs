//! From copies to files: durable, then named, then written down.

use crate::copy::settled;
use crate::job::Item;
use crate::meta;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use stead_core::{Cancel, Error, Kind, Result};
use stead_store::{FileTime, Folder, Meta, What, tier};

/// Of so many files and folders each is made durable by itself; of more, the whole file system is, which costs the same however
/// many they are.
pub(crate) const SYNC_EACH: usize = 16;

/// Folders in which names were given or taken: some of them, or, of many, one of each file system.
#[derive(Default)]
pub(crate) struct Touched {
    few: HashMap<PathBuf, Folder>,
    many: HashMap<u64, Folder>,
    /// The last one: files of a folder come in a row.
    last: PathBuf,
}

impl Touched {
    /// # Errors
    /// System errors.
    pub(crate) fn note(&mut self, folder: &Folder) -> Result<()> {
        if self.last.as_os_str() == folder.shown().as_os_str()
            || self.few.contains_key(folder.shown())
        {
            return Ok(());
        }
        if self.many.is_empty() && self.few.len() < SYNC_EACH {
            self.few.insert(folder.shown().to_owned(), folder.clone());
            return Ok(());
        }
        let last = folder.shown().to_owned();
        let mut many = Vec::new();
        for folder in self.few.values().chain([folder]) {
            many.push((folder.own_meta()?.dev, folder.clone()));
        }
        // Each is an open file, of which a process may have few.
        self.few.clear();
        for (device, folder) in many {
            self.many.entry(device).or_insert(folder);
        }
        self.last = last;
        Ok(())
    }

    /// True if they are made durable with their whole file systems.
    pub(crate) fn are_many(&self) -> bool {
        !self.many.is_empty()
    }

    /// Makes what happened in them durable.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.last = PathBuf::new();
        self.few.drain().try_for_each(|(_, folder)| sync_names(&folder))?;
        let many: Vec<Folder> = self.many.drain().map(|(_, folder)| folder).collect();
        sync_all(&many)
    }

    /// Makes all files of them durable, with all else on their file systems: by way of the first one of each, `first` before all others.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn sync_files(&self, first: Option<&Folder>) -> Result<()> {
        let mine = self.few.values().chain(self.many.values());
        let mut devices = Vec::new();
        // Those on which nothing of it lies are not waited for.
        for folder in mine.clone() {
            devices.push(folder.own_meta()?.dev);
        }
        let is_on = |f: &&Folder| f.own_meta().is_ok_and(|meta| devices.contains(&meta.dev));
        let first = first.filter(is_on);
        sync_all(&first.into_iter().chain(mine).cloned().collect::<Vec<_>>())
    }
}

/// Makes what happened in a folder durable.
///
/// # Errors
/// System errors.
pub(crate) fn sync_names(folder: &Folder) -> Result<()> {
    if tier::is_memory(folder) { Ok(()) } else { folder.sync() }
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
            folder.sync_all()?;
        }
    }
    Ok(())
}

/// Makes a temporary file, in place of one of a try before this one.
///
/// # Errors
/// System errors.
pub(crate) fn create(folder: &Folder, temporary: &OsStr, mode: u32) -> Result<File> {
    match folder.create_file(temporary, mode) {
        Err(e) if e.kind() == Kind::Usage => {
            folder.remove_file(temporary)?;
            folder.create_file(temporary, mode)
        }
        made => made,
    }
}

/// The temporary file of a try before this one, if it has so many bytes: one that this user has made, and nobody else can read who was
/// not to read it while it is copied.
pub(crate) fn begun(folder: &Folder, temporary: &OsStr, bytes: u64, mode: u32) -> Option<File> {
    let file = folder.reopen_file(temporary).ok()?;
    let there = Meta::of_file(&file).ok()?;
    let mine = there.uid == rustix::process::geteuid().as_raw() && there.links == 1;
    (mine && there.size >= bytes && there.mode & 0o7777 & !mode == 0).then_some(file)
}

/// Gives a copy its name.
///
/// # Errors
/// `Usage` if something has the name that was not to be replaced; system errors.
pub(crate) fn name(folder: &Folder, temporary: &OsStr, item: &Item) -> Result<()> {
    folder.rename(temporary, folder, item.name(), item.replace)
}

/// A file that whoever began the transfer before has brought.
pub(crate) struct Before {
    /// The source as it was while it was compared with the target; none if it was not, or is gone.
    pub(crate) seen: Option<Meta>,
}

/// What there is of a file at the target, if that is what was planned: with the bytes of its source, which is as it was planned, too.
/// Of a source that is gone, which a move has removed, size and time of the target tell.
///
/// # Errors
/// System errors.
pub(crate) fn is_there(
    item: &Item,
    source: Option<&Folder>,
    target: &Folder,
    is_move: bool,
    cancel: &Cancel,
) -> Result<Option<Before>> {
    let Some(there) = target.meta(item.name())? else { return Ok(None) };
    if there.what != What::File || there.size != item.size || !same_time(item.mtime, there.mtime) {
        return Ok(None);
    }
    let name = item.source.file_name().unwrap_or_default();
    let from = match source {
        Some(source) => source.meta(name)?,
        None => None,
    };
    let (Some(from), Some(source)) = (from, source) else {
        return Ok(is_move.then_some(Before { seen: None }));
    };
    let planned =
        |meta: &Meta| meta.what == What::File && (meta.size, meta.mtime) == (item.size, item.mtime);
    if !planned(&from) {
        return Ok(None);
    }
    let look = |e| Error::io("look at", source.at(name), e);
    let a = source.open_file(name)?;
    let seen = Meta::of_file(&a).map_err(look)?;
    // What changes from here on is to be seen.
    if is_move {
        settled(&a, &seen, cancel)?;
    }
    // Old files may have size and time of new ones: what is the same is what has the same bytes.
    let same = planned(&seen) && same_bytes(item, &a, target, cancel)?;
    let still = Meta::of_file(&a).map_err(look)?.same(&seen);
    Ok((same && still).then_some(Before { seen: Some(seen) }))
}

/// True if a file and that of an item at the target have the same bytes.
fn same_bytes(item: &Item, a: &File, target: &Folder, cancel: &Cancel) -> Result<bool> {
    let b = target.open_file(item.name())?;
    let failed = |e: std::io::Error| Error::io("compare", target.at(item.name()), e);
    let (mut x, mut y) = (vec![0; COMPARED], vec![0; COMPARED]);
    let mut at = 0;
    while at < item.size {
        cancel.check()?;
        let len = usize::try_from(item.size - at).unwrap_or(COMPARED).min(COMPARED);
        for (file, room) in [(a, &mut x), (&b, &mut y)] {
            match file.read_exact_at(&mut room[..len], at) {
                Err(e) if e.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(false),
                done => done.map_err(failed)?,
            }
        }
        if x[..len] != y[..len] {
            return Ok(false);
        }
        at += len as u64;
    }
    Ok(true)
}

/// Bytes of both files that are compared at a time.
const COMPARED: usize = 1 << 20;

/// True if a file that got the first time has the second one: file systems know whole seconds, or two of them, or 100 ns.
pub(crate) fn same_time(given: FileTime, there: FileTime) -> bool {
    let seconds = given.seconds == there.seconds;
    match there.nanos {
        _ if given == there => true,
        0 if seconds => true,
        0 => there.seconds % 2 == 0 && (there.seconds - given.seconds).abs() == 1,
        n => seconds && n % 100 == 0 && n / 100 == given.nanos / 100,
    }
}

/// Makes a file that is there durable, with its name.
///
/// # Errors
/// System errors.
pub(crate) fn settle_file(target: &Folder, name: &OsStr) -> Result<()> {
    if tier::is_memory(target) {
        return Ok(());
    }
    let failed = |e| Error::io("sync", target.at(name), e);
    target.open_file(name)?.sync_all().map_err(failed)?;
    target.sync()
}

/// Removes the source of a copy that has its name, if it is still what was copied.
///
/// # Errors
/// `Changed` if it is not; system errors.
pub(crate) fn leave(source: &Folder, item: &Item, seen: &Meta) -> Result<()> {
    let name = item.source.file_name().unwrap_or_default();
    match source.meta(name)? {
        Some(now) if now.same_but_names(seen) => source.remove_file(name).map(|_| ()),
        Some(_) => Err(Error::new(Kind::Changed, "the file changed after it was copied")
            .at_path(source.at(name))
            .with_hint("both are there; stage it again when nobody writes to it")),
        None => Ok(()),
    }
}

/// Makes a link like another one, with its text.
///
/// # Errors
/// `Usage` if something has the name that was not to be replaced; system errors.
pub(crate) fn link(
    item: &Item,
    text: &OsStr,
    target: &Folder,
    temporary: &OsStr,
    meta: &Meta,
) -> Result<()> {
    target.remove_file(temporary)?;
    target.make_link(text, temporary)?;
    meta::give_link(meta, target, temporary);
    let named = target.rename(temporary, target, item.name(), item.replace);
    settle(named, target, temporary, || {
        let there = target.meta(item.name())?;
        let link = |m: Meta| m.what == What::Link;
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, chown};

    #[test]
    fn only_what_this_user_has_begun_and_nobody_else_reads_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let (folder, path) = (Folder::open(dir.path()).unwrap(), dir.path().join("t"));
        let name = OsStr::new("t");
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        create(&folder, name, 0o640).unwrap().set_len(10).unwrap();
        mode(0o640);
        assert!(begun(&folder, name, 10, 0o640).is_some());
        assert!(begun(&folder, name, 11, 0o640).is_none());
        assert!(begun(&folder, name, 10, 0o600).is_none());
        mode(0o666);
        assert!(begun(&folder, name, 10, 0o640).is_none());
        mode(0o600);
        std::fs::hard_link(&path, dir.path().join("u")).unwrap();
        assert!(begun(&folder, name, 10, 0o640).is_none());
        std::fs::remove_file(dir.path().join("u")).unwrap();
        assert!(begun(&folder, name, 10, 0o640).is_some());
        if chown(&path, Some(4711), None).is_ok() {
            assert!(begun(&folder, name, 10, 0o640).is_none());
        }
    }
}
