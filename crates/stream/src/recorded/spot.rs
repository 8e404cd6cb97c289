//! Where recorded steps are: a folder, with a small file that says of which stream they are, and the files of each writer.

use super::form;
use serde::{Deserialize, Serialize};
use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use stead_core::layout::Spaces;
use stead_core::{BucketUrl, Error, Kind, Location, Result, limits};
use stead_store::{Folder, Root, space};

pub(crate) const CARD: &str = "stream.json";
const FORM: u64 = 1;
/// Bytes that the small file may have.
const MOST: u64 = 64 << 10;

/// True of what is no name of a stream, but says where steps were recorded. No name of a stream has a `/`.
pub fn is_location(name: &str) -> bool {
    name.contains('/')
}

/// What the small file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// The form of all files of the folder.
    stead_stream: u64,
    /// What the stream was called.
    pub(crate) name: String,
    /// How many writers it has.
    pub(crate) writers: u64,
    /// Which run of it this is.
    run: String,
    /// Only steps that readers had not had in time are there, for as long as they have not.
    #[serde(default)]
    pub(crate) spills: bool,
}

impl Card {
    pub(crate) fn new(name: &str, writers: u64, run: u64, spills: bool) -> Card {
        let (name, run) = (name.to_owned(), format!("{run:016x}"));
        Card { stead_stream: FORM, name, writers, run, spills }
    }

    /// The run, as its writers say it.
    pub(crate) fn run(&self) -> u64 {
        u64::from_str_radix(&self.run, 16).unwrap_or(0)
    }
}

/// The folder that a location leads to. What is not there is made for who writes.
///
/// # Errors
/// `Usage` for locations on other nodes and in buckets, `NotFound`, `Permission` for links in a dataspace; system errors.
pub(crate) fn folder(text: &str, spaces: &Spaces, make: bool) -> Result<Folder> {
    let at = Location::parse(text, &space::variable)?;
    let near = "name a folder that this node has, by a path or in a dataspace";
    if let Some(node) = &at.node {
        let message = format!("'{text}' is on node {node}, and steps are recorded on this one");
        return Err(Error::usage(message).with_hint(near));
    }
    match &at.space {
        Some(space) if BucketUrl::is_scheme(space) && !spaces.has(space) => {
            let message = format!("'{text}' is a bucket, and steps are recorded in folders");
            Err(Error::usage(message).with_hint(near))
        }
        Some(space) => {
            let root = Root::open(spaces, space)?.folder();
            let path = Path::new(&at.path);
            if make { root.make_below(path) } else { root.below(path) }
        }
        None => {
            if make {
                std::fs::create_dir_all(&at.path)
                    .map_err(|e| Error::io("make the folder", &at.path, e))?;
            }
            Folder::open(Path::new(&at.path))
        }
    }
}

/// The folder that steps are recorded in, and a number that is another one for another folder.
///
/// # Errors
/// As [`folder`].
pub(crate) fn spot(text: &str, spaces: &Spaces) -> Result<(Folder, u64)> {
    let folder = folder(text, spaces, true)?;
    let number = form::sum(whole(&folder)?.as_os_str().as_encoded_bytes()).max(1);
    Ok((folder, number))
}

/// What says in the memory of a stream where it is recorded.
const RECORD: &str = "record";

/// And where it will be, in a folder that was chosen for it and may not be there yet.
const INTENT: &str = "intent";

/// Says in the memory of a stream where it is recorded. All of its writers say the same.
///
/// # Errors
/// System errors.
pub(crate) fn tell(memory: &Folder, at: &Folder) -> Result<()> {
    note(memory, RECORD, &whole(at)?)
}

/// Says which folder is about to be made for it in another one.
///
/// # Errors
/// System errors.
pub(crate) fn intend(memory: &Folder, all: &Folder, name: &str) -> Result<()> {
    note(memory, INTENT, &whole(all)?.join(name))
}

fn whole(folder: &Folder) -> Result<PathBuf> {
    let path = folder.shown();
    std::fs::canonicalize(path).map_err(|e| Error::io("look at", path, e))
}

fn note(memory: &Folder, name: &str, path: &Path) -> Result<()> {
    let mut file = memory.write_file(OsStr::new(name), false)?;
    file.write_all(path.as_os_str().as_bytes())?;
    file.commit()
}

/// Where a stream is recorded; `None` if nobody has said so yet.
///
/// # Errors
/// `NotFound` if the folder is gone; system errors.
pub(crate) fn told(memory: &Folder) -> Result<Option<Folder>> {
    noted(memory, RECORD)
}

fn noted(memory: &Folder, name: &str) -> Result<Option<Folder>> {
    let name = OsStr::new(name);
    let file = match memory.open_file(name) {
        Err(e) if e.kind() == Kind::NotFound => return Ok(None),
        file => file?,
    };
    let failed = |e| Error::io("read", memory.at(name), e);
    let len = file.metadata().map_err(failed)?.len();
    if len > limits::MAX_PATH_BYTES as u64 {
        return Err(Error::format("this names no folder").at_path(memory.at(name)));
    }
    let mut path = vec![0; len as usize];
    file.read_exact_at(&mut path, 0).map_err(failed)?;
    Folder::open(Path::new(OsStr::from_bytes(&path))).map(Some)
}

/// Removes what these writers have recorded of a stream that has gone from their node, if it is not to outlive it, and with the files of
/// the last of them what all have. What cannot be removed stays.
pub(crate) fn forget(memory: &Folder, run: u64, ranks: impl Iterator<Item = u64>) {
    let chosen = noted(memory, INTENT).ok().flatten();
    let is_chosen = chosen.is_some();
    let Some(at) = chosen.or_else(|| told(memory).ok().flatten()) else { return };
    let card = match read(&at) {
        Ok(card) if card.spills && card.run() == run => Some(card),
        // Its writer came no further than to make it. No other run has one of its name.
        Err(e) if is_chosen && e.kind() == Kind::NotFound => None,
        _ => return,
    };
    for rank in ranks {
        let _ = at.remove_file(&index(rank));
        let _ = at.remove_file(&data(rank));
    }
    let _ = match card {
        Some(card) if matches!(has_files(&at, &card), Ok(false)) => leave(&at, &card),
        Some(_) => Ok(()),
        None => std::fs::remove_dir(at.shown()).map_err(|e| Error::io("remove", at.shown(), e)),
    };
}

/// Whether writers have files in a folder.
fn has_files(folder: &Folder, card: &Card) -> Result<bool> {
    for names in folder.names(1 << 12)? {
        if names?.iter().any(|name| rank_of(name, card).is_some()) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Removes a folder in which no writer has files, with what says of which stream it is. Writers of other nodes, who have it, too, may begin
/// theirs at the same time: then these stay, and it is said once more whose they are; or there is no folder any more when they do.
fn leave(folder: &Folder, card: &Card) -> Result<()> {
    folder.remove_file(OsStr::new(CARD))?;
    if std::fs::remove_dir(folder.shown()).is_err() && has_files(folder, card)? {
        found(folder, card)?;
    }
    Ok(())
}

/// Of which writer a file is.
fn rank_of(name: &OsStr, card: &Card) -> Option<u64> {
    let text = name.to_str()?;
    let digits = text.strip_suffix(".index").or_else(|| text.strip_suffix(".data"))?;
    let rank = digits.parse::<u64>().ok()?;
    // A number can be written in other ways, which none of ours is.
    (rank < card.writers && digits == rank.to_string()).then_some(rank)
}

/// Says of which stream the steps of a folder are, or finds that another writer has said so.
///
/// # Errors
/// `Usage` if they are those of another one; system errors.
pub(crate) fn found(folder: &Folder, card: &Card) -> Result<()> {
    let name = OsStr::new(CARD);
    if folder.meta(name)?.is_none() {
        let mut text = serde_json::to_string_pretty(card)
            .map_err(|e| Error::internal(format!("cannot write {CARD}: {e}")))?;
        text.push('\n');
        let mut file = match folder.write_file(name, true) {
            Err(e) if e.kind() == Kind::Usage => return check(folder, card),
            file => file?,
        };
        file.write_all(text.as_bytes())?;
        match file.commit() {
            // Another writer was quicker.
            Err(e) if e.kind() == Kind::Usage => {}
            done => return done,
        }
    }
    check(folder, card)
}

fn check(folder: &Folder, card: &Card) -> Result<()> {
    let there = read(folder)?;
    if there == *card {
        return Ok(());
    }
    let message = format!("steps of stream '{}' were recorded here before", there.name);
    Err(Error::usage(message)
        .at_path(folder.shown())
        .with_hint("name another folder, or remove what is there: stead stream rm LOCATION"))
}

/// What is said of the steps in a folder.
///
/// # Errors
/// `NotFound` if nothing is; `Format`; system errors.
pub(crate) fn read(folder: &Folder) -> Result<Card> {
    let (name, path) = (OsStr::new(CARD), folder.at(OsStr::new(CARD)));
    let file = folder.open_file(name).map_err(|e| match e.kind() {
        Kind::NotFound => Error::new(Kind::NotFound, "no steps of a stream were recorded here")
            .at_path(folder.shown())
            .with_hint("name the folder that writers have recorded to, with persist="),
        _ => e,
    })?;
    let mut text = String::new();
    let odd = |why: String| Error::format(format!("this says of no stream: {why}")).at_path(&path);
    file.take(MOST).read_to_string(&mut text).map_err(|e| match e.kind() {
        std::io::ErrorKind::InvalidData => odd("it is no text".to_owned()),
        _ => Error::io("read", &path, e),
    })?;
    let card: Card = serde_json::from_str(&text).map_err(|e| odd(e.to_string()))?;
    if card.stead_stream != FORM {
        let message = format!("its form is {}, and {FORM} is known", card.stead_stream);
        return Err(odd(message).with_hint("read it with the version of stead that wrote it"));
    }
    let most = limits::MAX_FOLDER_WRITERS;
    if card.run() == 0 || !(1..=most).contains(&card.writers) {
        return Err(odd(format!("run '{}' of {} writers", card.run, card.writers)));
    }
    Ok(card)
}

/// True if steps of a stream were recorded in a folder.
pub fn is_recorded(location: &str, spaces: &Spaces) -> bool {
    folder(location, spaces, false).and_then(|folder| read(&folder)).is_ok()
}

/// The file of a writer.
pub(crate) fn index(rank: u64) -> OsString {
    format!("{rank}.index").into()
}

/// The same, of its arrays.
pub(crate) fn data(rank: u64) -> OsString {
    format!("{rank}.data").into()
}

/// Removes recorded steps, and the folder if nothing else is in it.
pub(crate) fn remove(folder: &Folder) -> Result<()> {
    let card = read(folder)?;
    // First what it is found by: who is killed meanwhile leaves nothing that is taken for a stream.
    folder.remove_file(OsStr::new(CARD))?;
    for names in folder.names(1 << 12)? {
        for name in names? {
            if rank_of(&name, &card).is_some() {
                folder.remove_file(&name)?;
            }
        }
    }
    folder.sync()?;
    let path = folder.shown();
    // What else there is stays, and so does a folder that somebody else has open or owns.
    let _ = std::fs::remove_dir(path);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The memories of two nodes, and a folder that both have.
    fn nodes(dir: &Path, card: &Card) -> ([Folder; 2], Folder) {
        let make = |name: &str| {
            let path = dir.join(name);
            std::fs::create_dir(&path).unwrap();
            Folder::open(&path).unwrap()
        };
        let (memories, at) = (["a", "b"].map(make), make("at"));
        found(&at, card).unwrap();
        for memory in &memories {
            tell(memory, &at).unwrap();
        }
        (memories, at)
    }

    fn begin(at: &Folder, rank: u64) {
        for name in [index(rank), data(rank)] {
            at.create_file(&name, 0o600).unwrap();
        }
    }

    #[test]
    fn a_folder_of_several_nodes_goes_with_the_last_of_them() {
        let dir = tempfile::tempdir().unwrap();
        let card = Card::new("sim", 2, 7, true);
        let ([a, b], at) = nodes(dir.path(), &card);
        (0..2).for_each(|rank| begin(&at, rank));
        // Another run, or what is to stay, is none of it.
        forget(&a, 8, 0..2);
        forget(&a, 7, 0..1);
        forget(&a, 7, 0..1);
        let names = |rank| [index(rank), data(rank)].map(|name| at.at(&name).exists());
        assert_eq!((names(0), names(1)), ([false; 2], [true; 2]));
        assert_eq!(read(&at).unwrap(), card);
        forget(&b, 7, 1..2);
        assert!(!at.shown().exists());
        assert_eq!(told(&a).unwrap_err().kind(), Kind::NotFound);
    }

    #[test]
    fn files_that_are_begun_while_others_leave_stay() {
        let dir = tempfile::tempdir().unwrap();
        let card = Card::new("sim", 2, 7, true);
        let (_, at) = nodes(dir.path(), &card);
        // They came after it was looked whether there are some.
        begin(&at, 1);
        leave(&at, &card).unwrap();
        assert!(has_files(&at, &card).unwrap());
        assert_eq!(read(&at).unwrap(), card);
        for name in [index(1), data(1)] {
            assert!(at.remove_file(&name).unwrap());
        }
        // What somebody else has in it stays, without what says of a stream.
        std::fs::write(at.at(OsStr::new("notes")), "mine").unwrap();
        leave(&at, &card).unwrap();
        assert!(at.shown().exists());
        assert_eq!(read(&at).unwrap_err().kind(), Kind::NotFound);
    }
}
