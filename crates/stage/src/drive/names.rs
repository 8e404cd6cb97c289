//! The phases of a transfer that change names alone: what goes, folders, renames, links.

use super::{Stopped, Way};
use crate::commit::{self, Touched};
use crate::job::{Item, TARGET, Task};
use crate::meta;
use crate::place::Place;
use crate::remote::Question;
use crate::request::Action;
use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use stead_core::{Error, Kind, Result};
use stead_store::What;

/// Names that failed, of which folders are looked up at a time.
const FAILED: usize = 4096;

/// Folders that something is still to come into, or to go from.
#[derive(Default)]
struct Open {
    targets: HashSet<PathBuf>,
    sources: HashSet<(i64, PathBuf)>,
}

impl Way<'_> {
    /// Makes durable what happened in these folders, if that is wanted.
    fn settle(&self, touched: &RefCell<Touched>) -> Result<Vec<(i64, Error)>> {
        if self.is_durable() {
            touched.borrow_mut().sync()?;
        }
        Ok(Vec::new())
    }

    pub(super) fn removals(&self) -> Result<()> {
        let touched = RefCell::new(Touched::default());
        // Whoever resumes it may come long after it was planned, and what has changed since may be of a size or an age that is not meant.
        let careful = self.d.resumed || self.d.known.request.options.measures();
        let remove = |item: &Item, folders: bool| {
            let folder = match item.from {
                TARGET => self.target(item, false),
                _ => self.source(item),
            };
            let path = if item.from == TARGET { &item.target } else { &item.source };
            let name = path.file_name().unwrap_or_default();
            let folder = match folder {
                Err(e) if e.kind() == Kind::NotFound => return Ok(()),
                folder => folder?,
            };
            let changed = || {
                Error::new(Kind::Changed, "this changed after it was to be removed")
                    .at_path(folder.at(name))
                    .with_hint("it is left; remove it anew if that is meant")
            };
            let folder = match &folder {
                Place::Folder(folder) => folder,
                Place::Far(_) => return Err(Error::internal("a removal on another node")),
                // Those of a bucket go together, below.
                Place::Bucket(_) if !careful => return Ok(()),
                Place::Bucket(_) => {
                    let meta = folder.meta(name)?;
                    let other = meta.is_some_and(|m| m.what == What::File && m.mtime != item.mtime);
                    return if other { Err(changed()) } else { Ok(()) };
                }
            };
            if folders {
                folder.remove_folder(name)?;
            } else if let Some(meta) = folder.meta(name)? {
                let other = careful && meta.mtime != item.mtime;
                if meta.what == What::Folder || other {
                    return Err(changed());
                }
                folder.remove_file(name)?;
            }
            touched.borrow_mut().note(folder)
        };
        let settle = |done: &mut Vec<&Item>| {
            let mut failed = self.settle(&touched)?;
            failed.extend(self.remove_objects(done)?);
            Ok(failed)
        };
        self.each(&[Task::Remove], false, true, |item| remove(item, false), settle)?;
        self.each(&[Task::RemoveFolder], true, true, |item| remove(item, true), settle)
    }

    /// Removes those of these names that are objects, many at a time, and gives those that failed.
    fn remove_objects(&self, items: &[&Item]) -> Result<Vec<(i64, Error)>> {
        let mut failed = Vec::new();
        let sides = (0..self.sources.len()).map(|at| (at as i64, self.sources.get(at)));
        for (from, side) in sides.chain([(TARGET, self.target.as_ref())]) {
            let Some(prefix) = side.and_then(|side| side.base.bucket()) else { continue };
            let of: Vec<&&Item> = items.iter().filter(|item| item.from == from).collect();
            if of.is_empty() {
                continue;
            }
            let path = |item: &Item| match from {
                TARGET => prefix.key(&item.target),
                _ => prefix.key(&item.source),
            };
            let keys = of.iter().map(|item| path(item)).collect::<Result<Vec<String>>>()?;
            let left = prefix.bucket().delete(&keys)?;
            failed.extend(left.into_iter().filter_map(|(at, e)| Some((of.get(at)?.n, e))));
        }
        Ok(failed)
    }

    pub(super) fn folders(&self) -> Result<()> {
        let touched = RefCell::new(Touched::default());
        let make = |item: &Item| {
            let parent = self.target(item, true)?;
            let parent = parent.folder()?;
            match parent.make(item.name(), true)?.1 {
                true => touched.borrow_mut().note(parent),
                false => Ok(()),
            }
        };
        // Files are durable when their folders are.
        self.each(&[Task::Folder], false, false, make, |_| self.settle(&touched))
    }

    pub(super) fn renames(&self) -> std::result::Result<(), Stopped> {
        let crosses = Cell::new(false);
        let touched = RefCell::new(Touched::default());
        let rename = |item: &Item| {
            let target = self.target(item, true)?;
            let target = target.folder()?;
            let name = item.source.file_name().unwrap_or_default();
            let source = match self.source(item) {
                Err(e) if self.d.resumed && e.kind() == Kind::NotFound => None,
                source => Some(source?),
            };
            let gone = match &source {
                Some(source) => source.meta(name)?.is_none(),
                None => true,
            };
            if self.d.resumed && gone && target.meta(item.name())?.is_some() {
                return Ok(());
            }
            let source = source.ok_or_else(|| {
                Error::new(Kind::NotFound, "no such file or folder").at_path(&item.source)
            })?;
            let source = source.folder()?;
            if source.rename_if_near(name, target, item.name(), false)? {
                touched.borrow_mut().note(source)?;
                return touched.borrow_mut().note(target);
            }
            crosses.set(true);
            // It ends this phase, after those before it are written down.
            Err(Error::internal("moved to another file system"))
        };
        let ended = self.each(&[Task::Rename], false, true, rename, |_| self.settle(&touched));
        if crosses.get() {
            self.take_back_folders()?;
            return Err(Stopped::CannotRename);
        }
        Ok(ended?)
    }

    /// Folders that were made for what was to be renamed into them would be taken for those of somebody else by whoever plans anew: empty ones
    /// go, and others get what their sources have.
    fn take_back_folders(&self) -> Result<()> {
        let take = |item: &Item| {
            let target = match self.target(item, false) {
                Err(e) if e.kind() == Kind::NotFound => return Ok(()),
                target => target?,
            };
            match target.folder()?.remove_folder(item.name()) {
                Err(e) if e.kind() == Kind::Usage => self.give(item, true),
                done => done.map(|_| ()),
            }
        };
        self.each(&[Task::Folder], true, false, take, |_| Ok(Vec::new()))
    }

    pub(super) fn links(&self) -> Result<()> {
        let is_move = self.d.known.request.action == Action::Move;
        let touched = RefCell::new(Touched::default());
        // A first name that stays as it is in the target.
        let stays = |item: &Item| item.first == item.n;
        let make = |item: &Item| {
            if stays(item) {
                return Ok(());
            }
            if item.task == Task::Attributes {
                return self.attributes(item);
            }
            let target = self.target(item, true)?;
            let target = target.folder()?;
            let name = item.source.file_name().unwrap_or_default();
            let source = match self.source(item) {
                Err(e) if self.d.resumed && is_move && e.kind() == Kind::NotFound => None,
                source => Some(source?),
            };
            let meta = match &source {
                Some(source) => source.meta(name)?,
                None => None,
            };
            let (Some(source), Some(meta)) = (source, meta) else {
                if self.d.resumed && is_move && target.meta(item.name())?.is_some() {
                    return Ok(());
                }
                return Err(Error::new(Kind::NotFound, "no such file").at_path(&item.source));
            };
            let temporary = self.temporary(item);
            if item.task == Task::Link {
                let text = source.read_link(name)?;
                commit::link(item, &text, target, &temporary, &meta)?;
            } else {
                let first = self.d.journal.item(self.d.id, item.first)?;
                if !stays(&first) && !self.d.journal.is_done(self.d.id, item.first)? {
                    let why = "another name of this file could not be staged";
                    return Err(Error::new(Kind::Io, why).at_path(source.at(name)));
                }
                let folder = self.target(&first, false)?;
                let folder = folder.folder()?;
                // Whoever saves a file anew gives this name to another one, and leaves the old one its other names.
                let is_first = folder.meta(first.name())?.is_some_and(|there| {
                    (there.what, there.size) == (What::File, meta.size)
                        && commit::same_time(meta.mtime, there.mtime)
                });
                if !is_first {
                    let why = "this was another name of a file that changed since";
                    return Err(Error::new(Kind::Changed, why)
                        .at_path(source.at(name))
                        .with_hint("stage it again: it is a file of its own now"));
                }
                commit::hard(item, target, &temporary, (folder, first.name()))?;
            }
            touched.borrow_mut().note(target)
        };
        let settle = |done: &mut Vec<&Item>| {
            let all = done.len();
            done.retain(|item| !stays(item));
            self.files.fetch_sub((all - done.len()) as u64, Ordering::Relaxed);
            self.settle(&touched)?;
            let mut failed = Vec::new();
            for item in done.iter().filter(|_| is_move) {
                if let Err(e) = self.leave_link(item, &touched) {
                    failed.push((item.n, e));
                }
            }
            self.settle(&touched)?;
            Ok(failed)
        };
        self.each(&[Task::Link, Task::Hard, Task::Attributes], false, true, make, settle)
    }

    /// Tells of folders that could not be looked into.
    pub(super) fn unread(&self) -> Result<()> {
        let look = |item: &Item| {
            let folder = self.of_source(item, &item.source)?;
            folder.check_open()?;
            folder.names(1)?.next().transpose()?;
            Err(Error::new(Kind::Changed, "this could not be looked into when it was planned")
                .at_path(folder.shown()))
        };
        let hint = match self.d.known.request.action {
            Action::Move => "move what is left when it can be read",
            _ => "stage it again when it can be read: with --sync what is there by now stays",
        };
        let tell = |item: &Item| {
            look(item).map_err(|e| match e.kind() {
                Kind::Permission | Kind::Changed | Kind::NotFound => e.with_hint(hint),
                _ => e,
            })
        };
        self.each(&[Task::Unread], false, true, tell, |_| Ok(Vec::new()))
    }

    /// Gives a file that stays what its source has besides bytes, if both are those that were planned.
    fn attributes(&self, item: &Item) -> Result<()> {
        let (source, target) = (self.source(item)?, self.target(item, true)?);
        let (source, target) = (source.folder()?, target.folder()?);
        let from = source.open_file(item.source.file_name().unwrap_or_default())?;
        let to = target.open_file(item.name())?;
        let shown = target.at(item.name());
        let of = |file: &std::fs::File| {
            stead_store::Meta::of_file(file).map_err(|e| Error::io("look at", &shown, e))
        };
        let (meta, there) = (of(&from)?, of(&to)?);
        let same = (there.what, there.size) == (What::File, meta.size)
            && commit::same_time(meta.mtime, there.mtime);
        if !same {
            let why = "this changed after it was planned";
            return Err(Error::new(Kind::Changed, why).at_path(shown).with_hint("stage it again"));
        }
        meta::give(&from, &meta, &to, &shown)?;
        if self.is_durable() {
            to.sync_all().map_err(|e| Error::io("make durable", &shown, e))?;
        }
        Ok(())
    }

    /// Removes the source of a link, or of one more name, that the target has durably.
    fn leave_link(&self, item: &Item, touched: &RefCell<Touched>) -> Result<()> {
        let source = match self.source(item) {
            Err(e) if e.kind() == Kind::NotFound => return Ok(()),
            source => source?,
        };
        let name = item.source.file_name().unwrap_or_default();
        match source.meta(name)? {
            Some(meta) if meta.mtime == item.mtime => {
                if let Place::Far(far) = &source {
                    return far.remove(name, |base, path| Question::Remove {
                        base,
                        path,
                        folder: false,
                        seen: None,
                        mtime: Some((item.mtime.seconds, item.mtime.nanos)),
                    });
                }
                let source = source.folder()?;
                source.remove_file(name)?;
                touched.borrow_mut().note(source)
            }
            Some(_) => Err(Error::new(Kind::Changed, "this changed after it was planned")
                .at_path(source.at(name))
                .with_hint("both are there; stage it again")),
            None => Ok(()),
        }
    }

    /// Folders in which names have failed: of the target, and of sources by their number.
    fn of_failed(&self) -> Result<Open> {
        let mut open = Open::default();
        let mut from = 0;
        loop {
            let items = self.d.journal.failed(self.d.id, from, FAILED)?;
            let Some(last) = items.last() else { return Ok(open) };
            from = last.n + 1;
            for item in &items {
                // A folder that could not be looked into is open itself.
                let own = usize::from(item.task != Task::Unread);
                let above = |path: &Path| path.ancestors().skip(own).map(Path::to_owned).collect();
                let (targets, sources): (Vec<PathBuf>, Vec<PathBuf>) =
                    (above(&item.target), above(&item.source));
                // Those above one that is known are known.
                for path in targets {
                    if !open.targets.insert(path) {
                        break;
                    }
                }
                for path in sources {
                    if !open.sources.insert((item.from, path)) {
                        break;
                    }
                }
            }
        }
    }

    /// Gives a folder what its source has; if something is still to come into it, as far as that can.
    fn give(&self, item: &Item, waits: bool) -> Result<()> {
        let target = self.target(item, true)?.enter(item.name())?;
        let target = target.folder()?;
        let may = |mode: u32| mode & 0o300 == 0o300 || !waits;
        let told = |e: Error| match e.kind() {
            Kind::NotFound if self.d.resumed => Ok(()),
            // Of one that may not be looked into it is told already.
            Kind::Permission if waits => Ok(()),
            _ => Err(e),
        };
        match self.source(item).and_then(|s| match item.source.file_name() {
            Some(name) => s.enter(name),
            None => Ok(s),
        }) {
            // A new one, since there was none.
            Ok(Place::Bucket(_)) => {
                meta::give_new_folder(target);
                Ok(())
            }
            Ok(Place::Far(source)) => match source.attributes(OsStr::new("")) {
                Ok((meta, attributes)) if may(meta.mode) => {
                    let meta = stead_store::Meta { mtime: item.mtime, ..meta };
                    meta::give_told(&attributes, &meta, target, target.shown())
                }
                Ok(_) => Ok(()),
                Err(e) => told(e),
            },
            Ok(Place::Folder(source)) => {
                // Its own has changed where what lay in it was moved away.
                let meta = stead_store::Meta { mtime: item.mtime, ..source.own_meta()? };
                match may(meta.mode) {
                    true => meta::give(&source, &meta, target, target.shown()),
                    false => Ok(()),
                }
            }
            Err(e) => told(e),
        }
    }

    /// What folders get in the end, those within others first. One in which something has failed gets it now as far as that can still come
    /// into it then, and again when that has come.
    pub(super) fn endings(&self) -> Result<()> {
        let open = self.of_failed()?;
        let left = |done: &mut Vec<&Item>, is: &dyn Fn(&Item) -> bool| {
            let all = done.len();
            done.retain(|item| !is(item));
            self.files.fetch_sub((all - done.len()) as u64, Ordering::Relaxed);
            Ok(Vec::new())
        };
        let give = |item: &Item| self.give(item, open.targets.contains(&item.target));
        let is_open = |item: &Item| open.targets.contains(&item.target);
        self.each(&[Task::Folder], true, true, give, |done| left(done, &is_open))?;
        let is_open = |item: &Item| open.sources.contains(&(item.from, item.source.clone()));
        let leave = |item: &Item| match self.source(item) {
            _ if is_open(item) => Ok(()),
            Ok(Place::Far(far)) => {
                let name = item.source.file_name().unwrap_or_default();
                far.remove(name, |base, path| Question::Remove {
                    base,
                    path,
                    folder: true,
                    seen: None,
                    mtime: None,
                })
            }
            Ok(folder) => {
                match folder.folder()?.remove_folder(item.source.file_name().unwrap_or_default()) {
                    // Something that was not to be moved, or that came meanwhile.
                    Err(e) if e.kind() == Kind::Usage => Ok(()),
                    done => done.map(|_| ()),
                }
            }
            Err(e) if e.kind() == Kind::NotFound => Ok(()),
            Err(e) => Err(e),
        };
        self.each(&[Task::LeaveFolder], true, true, leave, |done| left(done, &is_open))
    }
}
