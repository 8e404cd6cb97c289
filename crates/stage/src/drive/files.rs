//! What brings a file, by the kinds of its ends; and files that were brought before.

use super::Way;
use super::naming::replacing;
use crate::commit::{self, Before};
use crate::copy::{Copy, LEAST_MARKED};
use crate::down::Down;
use crate::job::{Item, Made, Mark};
use crate::place::{Place, Prefix};
use crate::pull::Pull;
use crate::remote::Question;
use crate::request::Action;
use crate::up::{Up, mark_of};
use crate::work::Carry;
use std::path::Path;
use std::sync::atomic::Ordering;
use stead_core::{Error, Kind, Result};
use stead_store::{Folder, Meta, Object, What};

/// What there is of a file when its turn comes.
pub(super) enum Found {
    /// It is to be brought, by this.
    Not(Box<dyn Carry>),
    /// Whoever began the transfer has brought it.
    Before(Before),
}

/// True if there is no source of this name any more.
fn is_gone(item: &Item, source: Option<&Place>) -> Result<bool> {
    let name = item.source.file_name().unwrap_or_default();
    match source {
        None => Ok(true),
        Some(Place::Bucket(from)) => Ok(from.bucket().head(&from.key(Path::new(name))?)?.is_none()),
        Some(source) => Ok(source.meta(name)?.is_none()),
    }
}

impl Way<'_> {
    fn is_move(&self) -> bool {
        self.d.known.request.action == Action::Move
    }

    /// What brings a file, unless whoever began the transfer has brought it.
    pub(super) fn carry(&self, item: &Item) -> Result<Found> {
        let own;
        let mut item = item;
        let target = self.target(item, true)?;
        if self.d.resumed {
            let from = match self.source(item) {
                Err(e) if self.is_move() && e.kind() == Kind::NotFound => None,
                source => Some(source?),
            };
            if let Some(before) = self.is_there(item, from.as_ref(), &target)? {
                return Ok(Found::Before(before));
            }
            let is_ours = self.is_ours(item, &target)?;
            // It was moved as it had become meanwhile, which the plan does not know.
            if is_ours && self.is_move() && is_gone(item, from.as_ref())? {
                return Ok(Found::Before(Before { seen: None }));
            }
            if !item.replace && is_ours {
                self.d.journal.set_replaces(self.d.id, item.n)?;
                own = replacing(item);
                item = &own;
            }
        }
        let (source, temporary) = (self.source(item)?, self.temporary(item));
        let marked = || self.d.journal.mark(self.d.id, item.n);
        let begun = || match item.size >= LEAST_MARKED {
            true => Ok(marked()?.and_then(|text| Mark::of_text(&text))),
            false => Ok::<_, Error>(None),
        };
        Ok(Found::Not(match (source, target) {
            (Place::Folder(source), Place::Folder(target)) => {
                Box::new(Copy::new(item.clone(), source, target, temporary, begun()?))
            }
            (Place::Bucket(source), Place::Folder(target)) => {
                Box::new(Down::new(item.clone(), &source, target, temporary, begun()?)?)
            }
            (Place::Far(source), Place::Folder(target)) => {
                Box::new(Pull::new(item.clone(), source, target, temporary, begun()?))
            }
            (_, Place::Far(_)) => return Err(Error::internal("a target on another node")),
            (source, Place::Bucket(target)) => {
                let (tag, verify) = (self.d.known.tag, self.d.known.request.options.verify);
                let mut up = Up::new(item.clone(), source, &target, tag, verify, self.is_move())?;
                up.gentle = self.gentle;
                // What the store is asked to keep is known before it is sent.
                let (id, journal) = (self.d.id, self.d.journal);
                if let Some((text, note)) =
                    up.begin(marked()?.as_deref(), journal, self.d.cancel)?
                    && let Err(e) = journal.set_upload(id, item.n, &text, note)
                {
                    let _ = up.abandon();
                    return Err(e);
                }
                Box::new(up)
            }
        }))
    }

    /// What there is of a file at the target, if whoever began the transfer before has brought it.
    fn is_there(
        &self,
        item: &Item,
        source: Option<&Place>,
        target: &Place,
    ) -> Result<Option<Before>> {
        let name = Path::new(item.source.file_name().unwrap_or_default());
        let object = |prefix: &Prefix| prefix.bucket().head(&prefix.key(name)?);
        let is = match (source, target) {
            (_, Place::Bucket(to)) => {
                let Some(there) = to.bucket().head(&to.key(Path::new(item.name()))?)? else {
                    return Ok(None);
                };
                let from = match source {
                    Some(Place::Bucket(from)) => object(from)?,
                    _ => None,
                };
                // What this transfer has put there may be of a source as it was before.
                let meant = match (&from, source) {
                    (Some(from), _) => from.changed(),
                    (None, Some(Place::Bucket(_)) | None) => there.changed(),
                    _ => item.mtime,
                };
                let mark = mark_of(self.d.known.tag, item);
                if there.mark == Some(mark) && there.size == item.size {
                    let now = match source {
                        Some(Place::Bucket(_)) | None => None,
                        Some(source) => source.meta(name.as_os_str())?,
                    };
                    let planned = |m: Meta| (m.size, m.mtime) == (item.size, item.mtime);
                    now.is_none_or(planned) && commit::same_time(meant, there.changed())
                } else {
                    // A copy that the store has made has what its source has.
                    let near = source.and_then(Place::bucket);
                    let near = near.is_some_and(|from| from.bucket().is(to.bucket()));
                    let tag = |object: &Object| object.tag.clone();
                    let begun = || self.d.journal.mark(self.d.id, item.n);
                    match from.filter(|_| near) {
                        Some(from) => {
                            from.size == there.size
                                && from.tag.is_some()
                                && tag(&from) == tag(&there)
                        }
                        // It was made, and its source is gone with that.
                        None => {
                            let moved = near && self.is_move() && there.size == item.size;
                            moved && Up::was_begun(begun()?.as_deref())
                        }
                    }
                }
            }
            (Some(Place::Bucket(from)), Place::Folder(to)) => {
                let Some(there) = to.meta(item.name())? else { return Ok(None) };
                let like = there.what == What::File && there.size == item.size;
                like && match object(from)? {
                    // What was to be replaced may be like it.
                    Some(from) => !item.replace && commit::same_time(from.changed(), there.mtime),
                    None => self.is_move(),
                }
            }
            (Some(Place::Far(from)), Place::Folder(to)) => {
                let Some(there) = to.meta(item.name())? else { return Ok(None) };
                let like = there.what == What::File
                    && there.size == item.size
                    && commit::same_time(item.mtime, there.mtime);
                like && match from.meta(name.as_os_str())? {
                    // What was to be replaced may be like it.
                    Some(_) => !item.replace,
                    None => self.is_move(),
                }
            }
            (_, Place::Far(_)) => false,
            (source, Place::Folder(target)) => {
                let source = source.map(Place::folder).transpose()?;
                return commit::is_there(item, source, target, self.is_move(), self.d.cancel);
            }
        };
        Ok(is.then_some(Before { seen: None }))
    }

    /// True if what has the name is what whoever began the transfer before has put there, of a source that was another one then.
    fn is_ours(&self, item: &Item, target: &Place) -> Result<bool> {
        match target {
            Place::Bucket(to) => {
                let there = to.bucket().head(&to.key(Path::new(item.name()))?)?;
                Ok(there.is_some_and(|there| there.mark == Some(mark_of(self.d.known.tag, item))))
            }
            Place::Folder(to) => {
                let Some(there) = to.meta(item.name())? else { return Ok(false) };
                let noted = self.d.journal.mark(self.d.id, item.n)?;
                let made = noted.as_deref().and_then(Made::of_text);
                Ok(there.what == What::File && made.is_some_and(|made| made.is(&there)))
            }
            Place::Far(_) => Ok(false),
        }
    }

    /// A file that whoever began the transfer had named, and not written down.
    pub(super) fn ended_before(&self, item: &Item, before: &Before) -> Result<()> {
        if let Place::Folder(target) = self.target(item, true)? {
            self.settled_before(item, &target)?;
        }
        if self.is_move()
            && let Ok(source) = self.source(item)
        {
            match (&source, &before.seen) {
                (Place::Folder(source), Some(seen)) => commit::leave(source, item, seen)?,
                // It was gone when the target was looked at: one that has come since is another one.
                (Place::Folder(_), None) if self.is_to_folder() => {}
                _ => self.leave_before(item, &source)?,
            }
        }
        self.bytes.fetch_add(item.size, Ordering::Relaxed);
        self.kept.fetch_add(item.size, Ordering::Relaxed);
        self.files.fetch_add(1, Ordering::Relaxed);
        self.d.journal.done(self.d.id, &[item], &[])
    }

    fn is_to_folder(&self) -> bool {
        self.target.as_ref().is_some_and(|side| side.base.bucket().is_none())
    }

    fn settled_before(&self, item: &Item, target: &Folder) -> Result<()> {
        // A try of it that was not the one.
        target.remove_file(&self.temporary(item))?;
        match self.is_durable() {
            true => commit::settle_file(target, item.name()),
            false => Ok(()),
        }
    }

    /// Removes a source that has been moved, if it is what was planned.
    fn leave_before(&self, item: &Item, source: &Place) -> Result<()> {
        let name = item.source.file_name().unwrap_or_default();
        let Some(now) = source.meta(name)? else { return Ok(()) };
        if (now.size, now.mtime) != (item.size, item.mtime) {
            return Err(Error::new(Kind::Changed, "the file changed after it was copied")
                .at_path(source.at(name))
                .with_hint("both are there; stage it again when nobody writes to it"));
        }
        match source {
            Place::Folder(source) => source.remove_file(name).map(drop),
            Place::Far(from) => from.remove(name, |base, path| Question::Remove {
                base,
                path,
                folder: false,
                seen: None,
                mtime: Some((item.mtime.seconds, item.mtime.nanos)),
            }),
            Place::Bucket(from) => {
                let failed = from.bucket().delete(&[from.key(Path::new(name))?])?.pop();
                failed.map_or(Ok(()), |(_, e)| Err(e))
            }
        }
    }
}
