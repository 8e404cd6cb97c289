//! The node that has the files: it answers with the rights of its process.

use super::Queue;
use super::words::{Attributes, Part, Question, Raw, Reply, Told, Value};
use crate::bytes::{Fault, Room, Source};
use crate::copy::settled;
use crate::ends::{self, Base, split};
use crate::gentle;
use crate::meta;
use crate::pace::Pace;
use crate::place::Place;
use crate::rules::{self, Jobs, Rule};
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Kind, Result};
use stead_store::device::Device;
use stead_store::{Folder, Meta, What, tier};

/// Names of one answer.
const PAGE: usize = 2048;
/// Bytes of the names of one answer, about.
const PAGE_BYTES: usize = 1 << 20;
/// Bytes that one question may ask for.
const MOST_READ: u64 = 64 << 20;
/// Bytes of all attributes of a file.
const MOST_ATTRIBUTES: usize = 1 << 20;
/// Bytes of a path.
const MOST_PATH: usize = 64 << 10;

/// One connection, as it is answered.
#[derive(Default)]
pub struct Answering {
    /// The base that was asked about last, with the bytes a second that are agreed for it.
    opened: Option<(Base, Folder, Agreed)>,
    listing: Option<Listing>,
    room: Option<Room>,
    /// Once something was asked for that gives way to others: so does the thread that answers here, for good.
    pace: Option<Arc<Pace>>,
}

struct Listing {
    of: Folder,
    names: stead_store::folder::Names,
    /// What was read and not yet told.
    left: Queue,
}

fn odd(what: &str) -> Error {
    Error::format(format!("a question about files with {what}"))
}

/// A path below a base, as it was asked for.
fn relative(path: &Raw) -> Result<PathBuf> {
    let path = path.path();
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
    let bytes = path.as_os_str().as_encoded_bytes();
    if bytes.len() > MOST_PATH || bytes.contains(&0) || !path.components().all(plain) {
        return Err(odd("a path that is none").at_path(path));
    }
    Ok(path)
}

impl Answering {
    /// Answers. What is asked for as bytes goes to `bytes` first.
    ///
    /// # Errors
    /// `Format` for questions that make no sense; `Changed` for a file that is not what was seen; those of the system, and of `bytes`.
    pub fn answer(
        &mut self,
        question: &Question,
        spaces: &Spaces,
        cancel: &Cancel,
        bytes: &mut dyn FnMut(Part<'_>) -> Result<()>,
    ) -> Result<Reply> {
        let whole = |told| Ok(Reply::Whole(Box::new(told)));
        match question {
            Question::Find { location, follow } => {
                if location.node.is_some() {
                    return Err(odd("a node in its name"));
                }
                let end = ends::source(spaces, location, *follow, cancel)?;
                let folder = folder_of(&end.folder)?;
                let Agreed { limit, gentle } =
                    agreed(&rules::of(spaces, &end.base, &end.folder, &end.path))?;
                Ok(Reply::Found {
                    base: end.base,
                    path: Raw::of(end.path.as_os_str()),
                    shown: Raw::of(folder.shown().as_os_str()),
                    tier: tier::name_of(folder).ok(),
                    limit,
                    gentle,
                })
            }
            Question::Open { base } => {
                let folder = self.base(base, spaces, cancel)?;
                let shown = Raw::of(folder.shown().as_os_str());
                let tier = tier::name_of(folder).ok();
                let agreed = self.opened.as_ref().map(|(_, _, agreed)| *agreed);
                let Agreed { limit, gentle } = agreed.unwrap_or_default();
                Ok(Reply::Opened { shown, tier, limit, gentle })
            }
            Question::Meta { base, path } => {
                let path = relative(path)?;
                let base = self.base(base, spaces, cancel)?;
                match look(base, &path) {
                    Err(e) if e.kind() == Kind::NotFound => Ok(Reply::Meta(None)),
                    meta => Ok(Reply::Meta(meta?.as_ref().map(Told::of))),
                }
            }
            Question::List { base, path } => {
                let path = relative(path)?;
                let of = self.base(base, spaces, cancel)?.below(&path)?;
                self.listing = Some(Listing { names: of.names(PAGE)?, of, left: Queue::new() });
                self.page()
            }
            Question::More {} => self.page(),
            Question::Link { base, path } => {
                let (folder, path) = self.in_folder(base, path, spaces, cancel)?;
                Ok(Reply::Link(Raw::of(&folder.read_link(split(&path).1)?)))
            }
            Question::Attributes { base, path } => {
                let path = relative(path)?;
                let base = self.base(base, spaces, cancel)?;
                let meta = look(base, &path)?;
                let none = || {
                    Error::new(Kind::NotFound, "no such file or folder")
                        .at_path(base.shown().join(&path))
                };
                let mut told = Told::of(&meta.ok_or_else(none)?);
                told.attributes = Some(match meta.map(|m| m.what) {
                    Some(What::Folder) => attributes(&base.below(&path)?, &path)?,
                    Some(What::File) => {
                        let (dir, name) = split(&path);
                        attributes(base.below(dir)?.open_file(name)?, &path)?
                    }
                    _ => Attributes::new(),
                });
                whole(told)
            }
            Question::Read {
                base,
                path,
                at,
                len,
                seen,
                careful,
                attributes: with,
                gentle,
                silent,
            } => {
                let (folder, path) = self.in_folder(base, path, spaces, cancel)?;
                if *len > MOST_READ {
                    return Err(odd("too many bytes"));
                }
                let name = split(&path).1;
                let file = folder.open_file(name)?;
                let look = |file: &std::fs::File| {
                    Meta::of_file(file).map_err(|e| Error::io("look at", folder.at(name), e))
                };
                let meta = look(&file)?;
                let changed = || {
                    Error::new(Kind::Changed, "the file changed while it was copied")
                        .at_path(folder.at(name))
                        .with_hint("stage it again when nobody writes to it")
                };
                let is = |meta: &Meta, seen: &Told| seen.meta().is_some_and(|s| s.same(meta));
                if meta.what != What::File || seen.as_ref().is_some_and(|seen| !is(&meta, seen)) {
                    return Err(changed());
                }
                if *careful {
                    settled(&file, &meta, cancel)?;
                }
                if *gentle && self.pace.is_none() {
                    gentle::give_way();
                    self.pace = Some(Pace::of_source(Device::of(&file)));
                }
                let mut file = Source::new(file, &meta);
                file.choose();
                let end = at.saturating_add(*len).min(meta.size);
                let failed = |fault: Fault| fault.told("read", folder.at(name), changed);
                let room = self.room.get_or_insert_with(Room::new);
                let pace = self.pace.as_deref().filter(|_| *gentle);
                let mut to = |part: Part<'_>| if *silent { Ok(()) } else { bytes(part) };
                let sum = file.each(*at..end, room, pace, cancel, &mut to, &failed)?;
                if !look(file.file())?.same(&meta) {
                    return Err(changed());
                }
                let mut told = Told::of(&meta);
                told.sum = Some(sum);
                if *with {
                    told.attributes = Some(attributes(file.file(), &path)?);
                }
                whole(told)
            }
            Question::Remove { base, path, folder: is_folder, seen, mtime } => {
                let (folder, path) = match self.in_folder(base, path, spaces, cancel) {
                    Err(e) if e.kind() == Kind::NotFound => return Ok(Reply::Removed(false)),
                    found => found?,
                };
                let name = split(&path).1;
                if *is_folder {
                    return match folder.remove_folder(name) {
                        // Something that was not to be moved, or that came meanwhile.
                        Err(e) if e.kind() == Kind::Usage => Ok(Reply::Removed(false)),
                        done => done.map(Reply::Removed),
                    };
                }
                let Some(now) = folder.meta(name)? else { return Ok(Reply::Removed(false)) };
                let is = seen.as_ref().is_none_or(|seen| seen.meta().is_some_and(|s| s.same(&now)))
                    && mtime.is_none_or(|time| time == (now.mtime.seconds, now.mtime.nanos));
                if !is || now.what == What::Folder {
                    return Err(Error::new(Kind::Changed, "the file changed after it was copied")
                        .at_path(folder.at(name))
                        .with_hint("both are there; stage it again when nobody writes to it"));
                }
                folder.remove_file(name).map(Reply::Removed)
            }
        }
    }

    fn base(&mut self, base: &Base, spaces: &Spaces, cancel: &Cancel) -> Result<&Folder> {
        if self.opened.as_ref().is_none_or(|(of, _, _)| of != base) {
            if matches!(base, Base::Far(..) | Base::Bucket(_)) {
                return Err(odd("a place that is not of this node"));
            }
            let place = base.open(spaces, None, cancel)?;
            let agreed = agreed(&rules::of(spaces, base, &place, Path::new("")))?;
            self.opened = Some((base.clone(), folder_of(&place)?.clone(), agreed));
        }
        let none = || Error::internal("a folder that was opened is not there");
        self.opened.as_ref().map(|(_, folder, _)| folder).ok_or_else(none)
    }

    /// The folder that a path lies in, which has a name.
    fn in_folder(
        &mut self,
        base: &Base,
        path: &Raw,
        spaces: &Spaces,
        cancel: &Cancel,
    ) -> Result<(Folder, PathBuf)> {
        let path = relative(path)?;
        if path.as_os_str().is_empty() {
            return Err(odd("a path that names nothing"));
        }
        Ok((self.base(base, spaces, cancel)?.below(split(&path).0)?, path))
    }

    fn page(&mut self) -> Result<Reply> {
        let listing = self.listing.as_mut().ok_or_else(|| odd("no list before it"))?;
        let (mut names, mut bytes, mut ended) = (Vec::new(), 0, false);
        while names.len() < PAGE && bytes < PAGE_BYTES {
            if let Some((name, told)) = listing.left.pop_front() {
                bytes += 256 + name.path().as_os_str().len();
                names.push((name, told));
                continue;
            }
            let Some(list) = listing.names.next() else {
                ended = true;
                break;
            };
            for name in list? {
                // Gone meanwhile.
                if let Some(meta) = listing.of.meta(&name)? {
                    listing.left.push_back((Raw::of(&name), Told::of(&meta)));
                }
            }
        }
        if ended {
            self.listing = None;
        }
        Ok(Reply::Names { names, more: !ended })
    }
}

/// What a transfer of another node is to keep to.
#[derive(Debug, Clone, Copy, Default)]
struct Agreed {
    /// Bytes a second.
    limit: Option<u64>,
    /// It gives way to others.
    gentle: bool,
}

/// What is agreed. Who asks from another node is a process of no job of this one.
fn agreed(rules: &[Rule]) -> Result<Agreed> {
    rules::may_touch(rules.iter(), None, &Jobs::new())?;
    Ok(Agreed {
        limit: rules.iter().filter_map(Rule::limit).min(),
        gentle: rules.iter().any(|rule| rule.terms.gentle),
    })
}

fn folder_of(place: &Place) -> Result<&Folder> {
    match place {
        Place::Folder(folder) => Ok(folder),
        _ => Err(Error::usage("this dataspace is a bucket there, and a bucket is of no node")
            .with_hint("name it without the node")),
    }
}

/// What lies at a path below a folder; the folder itself if it is empty.
fn look(base: &Folder, path: &Path) -> Result<Option<Meta>> {
    if path.as_os_str().is_empty() {
        return base.own_meta().map(Some);
    }
    let (dir, name) = split(path);
    base.below(dir)?.meta(name)
}

fn attributes(of: impl std::os::fd::AsFd, path: &Path) -> Result<Attributes> {
    let list =
        meta::attributes_of(of).map_err(|e| Error::io("read the attributes of", path, e.into()))?;
    if list.iter().map(|(_, value)| value.len()).sum::<usize>() > MOST_ATTRIBUTES {
        let message = format!("a file with more than {MOST_ATTRIBUTES} bytes of attributes");
        return Err(Error::limit(message).at_path(path));
    }
    let told = |(name, value): (std::ffi::CString, Vec<u8>)| {
        use std::os::unix::ffi::OsStrExt;
        (Raw::of(std::ffi::OsStr::from_bytes(name.as_bytes())), Value(value))
    };
    Ok(list.into_iter().map(told).collect())
}
