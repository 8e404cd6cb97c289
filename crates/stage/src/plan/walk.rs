//! Trees, name by name: what the source has and what the target has decide what is to be done.

use super::ahead::Look;
use super::internal::is_internal;
use super::same::{has_time, is_copy, is_one};
use super::{First, Planner, twice};
use crate::commit::same_time;
use crate::compare::{Comparer, Pair};
use crate::ends::End;
use crate::enough;
use crate::job::{Item, Task};
use crate::place::{Place, key_of, no_key};
use crate::request::{Action, Exists};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use stead_core::{Error, Kind, Result};
use stead_store::region::is_of_streams;
use stead_store::{Meta, What};

/// Names of a folder that are looked at together.
pub(super) const AT_ONCE: usize = 1 << 16;

/// A folder still to be walked through.
pub(super) struct Step {
    pub(super) source: PathBuf,
    pub(super) target: PathBuf,
    /// The target has it already.
    pub(super) there: bool,
    /// The device on which what lies in it may be renamed, where the target has it not.
    pub(super) near: Option<u64>,
}

/// A name with what it is.
pub(super) struct Found<'f> {
    pub(super) from: i64,
    /// The folder that it lies in.
    pub(super) folder: &'f Place,
    pub(super) name: &'f OsStr,
    pub(super) path: PathBuf,
    pub(super) meta: Meta,
    pub(super) target: PathBuf,
    /// The device on which it may be renamed to its target.
    pub(super) near: Option<u64>,
    /// What has its name in the folder of the target, if that was looked for.
    pub(super) there: Option<Option<Meta>>,
}

impl Planner<'_> {
    pub(super) fn put(&mut self, item: Item) -> Result<()> {
        let n = self.state.next;
        self.state.next += 1;
        (self.sink)(Item { n, ..item })
    }

    /// The device of both folders, if what is in one may be renamed to the other.
    pub(super) fn near(&self, from: &Place, to: &Place) -> Result<Option<u64>> {
        let bucket = from.bucket().or(to.bucket()).is_some() || from.far().is_some();
        if self.request.action != Action::Move || !self.renames || bucket {
            return Ok(None);
        }
        let (from, to) = (from.own_meta()?.dev, to.own_meta()?.dev);
        Ok((from == to).then_some(from))
    }

    /// Refuses to move a folder into itself, which the system would do with an error that nobody understands.
    pub(super) fn refuse_below(&self, found: &Found<'_>, target: &End) -> Result<()> {
        let source = found.folder.at(found.name);
        let to = target.folder.at(found.target.as_os_str());
        if found.meta.what == What::Folder && to.starts_with(&source) {
            return Err(itself(&source));
        }
        Ok(())
    }

    /// Refuses a folder that is the target itself.
    pub(super) fn refuse_own(&self, meta: &Meta, path: &Path) -> Result<()> {
        match &self.state.own {
            Some(own) if is_one(own, meta) => Err(itself(path)),
            _ => Ok(()),
        }
    }

    /// Walks through a tree. `ahead` is told which folders it will come to, and may have looked at them by then.
    pub(super) fn walk_by(
        &mut self,
        from: i64,
        base: &Place,
        target: &End,
        first: Step,
        ahead: &mut dyn Look,
    ) -> Result<()> {
        self.state.roots = (first.source.clone(), first.target.clone());
        let (mut steps, mut above) = (vec![first], Vec::new());
        'steps: while let Some(step) = steps.pop() {
            self.cancel.check()?;
            self.forget_ways(&mut above, Some(&step.target));
            let way = step.source.strip_prefix(&self.state.roots.0).unwrap_or(&step.source);
            let opened = base.below(&step.source);
            let folder = match opened.and_then(|folder| folder.check_open().map(|()| folder)) {
                Ok(folder) => folder,
                Err(e) => {
                    self.closed(e, from, &step, way)?;
                    continue;
                }
            };
            let to = match step.there {
                true => Some(target.folder.below(&step.target)?),
                false => None,
            };
            let delete = self.request.options.delete && to.is_some();
            let near = match &to {
                Some(to) => self.near(&folder, to)?,
                None => step.near,
            };
            if let Some(to) = &to {
                to.know()?;
            }
            let mut names: HashSet<OsString> = HashSet::new();
            let (mut empty, mut left_out) = (true, false);
            let listed = self.state.filter.listed_in(way);
            let is_listed = listed.is_some();
            let seen = ahead.take(&step.source, self.cancel)?;
            let was_before = seen.is_some();
            let mut known = Vec::new();
            let lists: Box<dyn Iterator<Item = Result<Vec<OsString>>>> = match (listed, seen) {
                (Some(listed), _) => Box::new(std::iter::once(Ok(listed))),
                (None, None) => match folder.names(AT_ONCE) {
                    Ok(names) => Box::new(names),
                    Err(e) => {
                        self.closed(e, from, &step, way)?;
                        continue;
                    }
                },
                (None, Some(seen)) => {
                    let (names, metas) =
                        seen.into_iter().map(|seen| (seen.name, (seen.meta, seen.there))).unzip();
                    known = metas;
                    Box::new(std::iter::once(Ok(names)))
                }
            };
            for list in lists {
                let list = match list {
                    Ok(list) => list,
                    Err(e) => {
                        self.closed(e, from, &step, way)?;
                        continue 'steps;
                    }
                };
                if is_listed {
                    let all: Vec<&OsStr> = list.iter().map(OsString::as_os_str).collect();
                    folder.know_names(&all)?;
                }
                self.know_ages(&folder, &list)?;
                if let Some(to) = &to {
                    self.know_times(&folder, to, &list)?;
                    self.compare_all(&folder, to, &list, &step.source)?;
                }
                for (at, name) in list.into_iter().enumerate() {
                    let (meta, there) = match known.get(at).copied() {
                        Some((meta, there)) => (Ok(Some(meta)), there),
                        None => (folder.meta(&name), None),
                    };
                    let meta = match meta {
                        // What somebody has mounted there for himself.
                        Err(e) if e.kind() == Kind::Permission && !self.strict => {
                            self.unread(from, &step.source.join(&name), &step.target.join(&name))?;
                            left_out = true;
                            names.insert(name);
                            continue;
                        }
                        meta => meta?,
                    };
                    let meta = match meta {
                        Some(meta) if !is_listed => meta,
                        Some(meta)
                            if meta.what == What::Folder
                                || self.state.filter.lists(&way.join(&name)) =>
                        {
                            meta
                        }
                        Some(_) => return Err(no_way(&folder.at(&name))),
                        None if is_listed => return Err(not_there(&folder.at(&name))),
                        // Gone meanwhile.
                        None => continue,
                    };
                    empty = false;
                    if is_internal(&name) {
                        // The folder of a move stays with the memory of streams.
                        left_out |= is_of_streams(&name);
                        continue;
                    }
                    let (path, target) = (step.source.join(&name), step.target.join(&name));
                    if !self.takes(&folder, &name, &path, &self.state.roots.0, &meta)? {
                        left_out = true;
                        if delete {
                            names.insert(name);
                        }
                        continue;
                    }
                    let (folder, name) = (&folder, name.as_os_str());
                    let found = Found { from, folder, name, path, meta, target, near, there };
                    if let Some(step) = self.name(&found, to.as_ref())? {
                        ahead.want(&step);
                        steps.push(step);
                    }
                    if delete {
                        names.insert(name.to_owned());
                    }
                }
                self.state.compared.clear();
            }
            if let (true, Some(to)) = (delete, &to) {
                // The source was looked at before, and may have what came since.
                let came = |name: &OsStr| match was_before {
                    true => folder.meta(name).map(|meta| meta.is_some()),
                    false => Ok(false),
                };
                self.clear_others(to, &step.target, &names, &came)?;
            }
            // A folder of a bucket is what lies in it.
            if empty && self.state.bucket {
                self.state.sums.skipped += 1;
            }
            let named = !step.source.as_os_str().is_empty() && folder.bucket().is_none();
            // An empty one is not made where nothing that is meant lies in it: it is not moved, then, unless all that lay in it was before. One
            // stays for what is left out, also if somebody takes that away meanwhile.
            let before = self.is_second() && step.there;
            let stays = left_out || (empty && self.state.filter.picks() && !before);
            if self.request.action == Action::Move && named && !stays {
                let meta = folder.own_meta()?;
                let name = step.source.file_name().unwrap_or_default().to_owned();
                let found = Found {
                    from,
                    folder: &folder,
                    name: &name,
                    path: step.source.clone(),
                    meta,
                    target: step.target.clone(),
                    near: None,
                    there: None,
                };
                self.state.sums.others += 1;
                self.item(Task::LeaveFolder, &found, false)?;
            }
        }
        self.forget_ways(&mut above, None);
        Ok(())
    }

    /// Has stores asked for the times of those of these names for which they will matter.
    fn know_times(&self, from: &Place, to: &Place, names: &[OsString]) -> Result<()> {
        let sync = self.request.action == Action::Sync && self.compare.is_none();
        let newer =
            self.request.action != Action::Sync && self.request.options.exists == Exists::Newer;
        if !(sync || newer) || from.bucket().or(to.bucket()).is_none() {
            return Ok(());
        }
        let mut asked: Vec<&OsStr> = Vec::new();
        for name in names {
            if let (Some(a), Some(b)) = (from.meta(name)?, to.meta(name)?)
                && (a.what, b.what) == (What::File, What::File)
                && (newer || a.size == b.size)
            {
                asked.push(name);
            }
        }
        from.know_times(&asked)?;
        to.know_times(&asked)
    }

    /// Has stores asked for the times of all files, where their ages matter.
    fn know_ages(&self, from: &Place, names: &[OsString]) -> Result<()> {
        if !self.state.filter.asks_age() || from.bucket().is_none() {
            return Ok(());
        }
        let mut asked: Vec<&OsStr> = Vec::new();
        for name in names {
            if from.meta(name)?.is_some_and(|meta| meta.what == What::File) {
                asked.push(name);
            }
        }
        from.know_times(&asked)
    }

    /// Compares those of these names of which both sides have files of the same size: all of a list together, as many threads read them.
    fn compare_all(
        &mut self,
        from: &Place,
        to: &Place,
        names: &[OsString],
        way: &Path,
    ) -> Result<()> {
        let Some(comparer) = &self.compare else { return Ok(()) };
        let mut files = Vec::new();
        for name in names {
            if let (false, Some(a), Some(b)) = (is_internal(name), from.meta(name)?, to.meta(name)?)
                && (a.what, b.what) == (What::File, What::File)
                && a.size == b.size
                && a.size > 0
                && !is_one(&b, &a)
                && self.takes(from, name, &way.join(name), &self.state.roots.0, &a)?
            {
                files.push(Pair { name: name.clone(), there: name.clone(), size: a.size });
            }
        }
        let same = comparer.are_same(from, to, &files)?;
        self.state.compared = files.into_iter().map(|file| file.name).zip(same).collect();
        Ok(())
    }

    /// True if a file of the target, which has the size of its source, has its bytes, too.
    fn has_bytes(&self, comparer: &Comparer<'_>, found: &Found<'_>, to: &Place) -> Result<bool> {
        if found.meta.size == 0 {
            return Ok(true);
        }
        if let Some(same) = self.state.compared.get(found.name) {
            return Ok(*same);
        }
        // Named by itself, and so perhaps another name of the target than of the source.
        let there = found.target.file_name().unwrap_or_default().to_owned();
        let file = Pair { name: found.name.to_owned(), there, size: found.meta.size };
        Ok(comparer.are_same(found.folder, to, &[file])?.first().is_some_and(|same| *same))
    }

    /// Plans for one name, `to` being the folder of the target, if it is there. Gives a folder that is to be walked through.
    pub(super) fn name(&mut self, found: &Found<'_>, to: Option<&Place>) -> Result<Option<Step>> {
        let name = found.target.file_name().unwrap_or_default();
        let there = match (found.there, to) {
            (Some(there), _) => there,
            (None, Some(to)) => to.meta(name)?,
            (None, None) => None,
        };
        // Of a folder in which something is left out each name goes by itself.
        let whole = found.meta.what != What::Folder || self.state.filter.is_none();
        // A mount point is on another device than its name.
        if there.is_none() && whole && found.near == Some(found.meta.dev) {
            self.make_ways(&found.target)?;
            self.state.sums.renamed += 1;
            return self.item(Task::Rename, found, false).map(|()| None);
        }
        let same_kind = there.is_some_and(|t| t.what == found.meta.what);
        if let (Some(there), Some(to)) = (&there, to) {
            if is_one(there, &found.meta) {
                // Trees may have files in common.
                if self.request.action == Action::Sync
                    && matches!(there.what, What::File | What::Link)
                {
                    self.state.sums.skipped += 1;
                    self.state.sums.same += 1;
                    return Ok(None);
                }
                return Err(Error::usage("source and target are the same").at_path(to.at(name)));
            }
            if !same_kind && (there.what == What::Folder || found.meta.what == What::Folder) {
                if self.request.action == Action::Sync && self.request.options.delete {
                    // What is left out there is in the way.
                    if self.clear_but(to, name, &found.target)? {
                        return Err(in_the_way(&to.at(name), there.what));
                    }
                } else {
                    return Err(in_the_way(&to.at(name), there.what));
                }
            }
        }
        let there = there.filter(|t| same_kind || t.what != What::Folder);
        match found.meta.what {
            What::Folder => {
                self.refuse_own(&found.meta, &found.folder.at(found.name))?;
                // Of a bucket there is nothing that a folder could get.
                let gets = self.request.action == Action::Sync && found.folder.bucket().is_none();
                if there.is_none() || gets {
                    let (path, target) = (&found.path, found.target.clone());
                    self.folder(found.from, path, target, &found.meta, there.is_some())?;
                }
                Ok(Some(Step {
                    source: found.path.clone(),
                    target: found.target.clone(),
                    there: there.is_some_and(|t| t.what == What::Folder),
                    near: found.near.filter(|dev| *dev == found.meta.dev),
                }))
            }
            What::Special if self.request.options.skip_special => {
                self.state.sums.skipped += 1;
                Ok(None)
            }
            What::Special => {
                let what = "this is a pipe, a socket or a device, of which there is no copy";
                Err(Error::usage(what)
                    .at_path(found.folder.at(found.name))
                    .with_hint("leave such ones out with --skip-special"))
            }
            What::Link if self.state.bucket => {
                self.state.sums.skipped += 1;
                Ok(None)
            }
            What::File | What::Link => {
                let key = (found.meta.dev, found.meta.ino);
                let is_file = found.meta.what == What::File;
                let several = found.meta.links > 1 && is_file && !self.state.bucket;
                if self.stays(found, there.as_ref(), to)? {
                    self.state.sums.same += u64::from(self.request.action == Action::Sync);
                    let gets = there.as_ref().is_some_and(|there| self.gets(found, there));
                    match gets {
                        true => {
                            self.state.sums.others += 1;
                            self.item(Task::Attributes, found, true)?;
                        }
                        false => self.state.sums.skipped += 1,
                    }
                    if several && there.is_some_and(|there| is_copy(&found.meta, &there)) {
                        let stays = || First::Stays(found.target.clone());
                        self.state.several.entry(key).or_insert_with(stays);
                    }
                    return Ok(None);
                }
                if let Some(given) = &mut self.state.given
                    && !given.insert(found.target.clone())
                {
                    return Err(twice(&found.folder.at(found.name)));
                }
                if self.state.bucket && key_of(&found.target).is_none() {
                    return Err(no_key(found.folder.at(found.name)));
                }
                self.make_ways(&found.target)?;
                let replace = there.is_some();
                if several {
                    if let Some(first) = self.first(found, key)? {
                        self.state.sums.others += 1;
                        let item = self.made(Task::Hard, found, replace);
                        return self.put(Item { first, ..item }).map(|()| None);
                    }
                    self.state.several.insert(key, First::Item(self.state.next));
                }
                if found.meta.what == What::Link {
                    self.state.sums.others += 1;
                    self.item(Task::Link, found, replace)?;
                } else {
                    self.state.sums.files += 1;
                    let (bytes, sums) = (found.meta.size, &mut self.state.sums);
                    sums.bytes = sums.bytes.saturating_add(bytes);
                    let room = match self.state.counted {
                        true => enough::data_of(found.folder, found.name, &found.meta),
                        false => found.meta.room.min(enough::blocks(bytes)),
                    };
                    sums.room = sums.room.saturating_add(room);
                    self.item(Task::File, found, replace)?;
                }
                Ok(None)
            }
        }
    }

    /// The number of the first name of a file of which this is another one. One that stays is an item from here on, which is its own
    /// first one: nothing is done with it, and nobody counts it.
    fn first(&mut self, found: &Found<'_>, key: (u64, u64)) -> Result<Option<i64>> {
        let target = match self.state.several.get_mut(&key) {
            None => return Ok(None),
            Some(First::Item(first)) => return Ok(Some(*first)),
            Some(First::Stays(target)) => std::mem::take(target),
        };
        let first = self.state.next;
        self.state.several.insert(key, First::Item(first));
        let item = self.made(Task::Hard, found, true);
        self.put(Item { target, first, ..item })?;
        Ok(Some(first))
    }

    /// True if a file that stays is to have other rights, or another owner where this process may give files away.
    fn gets(&self, found: &Found<'_>, there: &Meta) -> bool {
        let from = &found.meta;
        let far = found.folder.bucket().is_some() || found.folder.far().is_some();
        if self.request.action != Action::Sync
            || from.what != What::File
            || far
            || self.state.bucket
        {
            return false;
        }
        // Of the same bytes with another time: that stays, and would be taken for a sign of a change when it is to get the rest.
        if !same_time(from.mtime, there.mtime) {
            return false;
        }
        let user = rustix::process::geteuid();
        let root = user.is_root();
        // Those of somebody else's file are not ours to change, and of our own not all bits that lend rights.
        if !root && there.uid != user.as_raw() {
            return false;
        }
        let bits = if root { 0o7777 } else { 0o777 };
        (from.mode ^ there.mode) & bits != 0
            || root && (from.uid, from.gid) != (there.uid, there.gid)
    }

    /// True if the target keeps what it has.
    fn stays(&self, found: &Found<'_>, there: Option<&Meta>, to: Option<&Place>) -> Result<bool> {
        let (Some(there), Some(to)) = (there, to) else { return Ok(false) };
        let name = found.target.file_name().unwrap_or_default();
        if self.request.action == Action::Sync {
            if there.what != found.meta.what {
                return Ok(false);
            }
            return Ok(match found.meta.what {
                // What has gone meanwhile is not the same.
                What::Link => match (to.read_link(name), found.folder.read_link(found.name)) {
                    (Err(e), _) | (_, Err(e)) if e.kind() == Kind::NotFound => false,
                    (there, here) => there? == here?,
                },
                _ if there.size != found.meta.size => false,
                _ => match &self.compare {
                    Some(comparer) => self.has_bytes(comparer, found, to)?,
                    None => has_time(found, there, to)?,
                },
            });
        }
        match self.request.options.exists {
            Exists::Refuse => Err(Error::usage("there is something of this name already")
                .at_path(to.at(name))
                .with_hint("say what becomes of it: --exists replace, skip or newer")),
            Exists::Replace => Ok(false),
            Exists::Skip => Ok(true),
            Exists::Newer => {
                let from = found.folder.changed(found.name, &found.meta)?;
                let to = to.changed(name, there)?;
                Ok(from.unwrap_or(found.meta.mtime) <= to.unwrap_or(there.mtime))
            }
        }
    }

    pub(super) fn folder(
        &mut self,
        from: i64,
        source: &Path,
        target: PathBuf,
        meta: &Meta,
        replace: bool,
    ) -> Result<()> {
        // The root of a target is there, or has been made by somebody else; a bucket has no folders.
        if target.as_os_str().is_empty() || self.state.bucket {
            return Ok(());
        }
        let item = Item {
            n: 0,
            task: Task::Folder,
            from,
            source: source.to_owned(),
            target,
            size: 0,
            mtime: meta.mtime,
            first: -1,
            replace,
        };
        if self.state.filter.picks() {
            // Only if something is to lie in it.
            self.state.ways.insert(item.target.clone(), item);
            return Ok(());
        }
        self.state.sums.others += 1;
        self.put(item)
    }

    /// Plans the folders on the way to a name that wait for one.
    fn make_ways(&mut self, target: &Path) -> Result<()> {
        if self.state.ways.is_empty() {
            return Ok(());
        }
        let mut above: Vec<&Path> = target.ancestors().skip(1).collect();
        above.reverse();
        for path in above {
            if let Some(item) = self.state.ways.remove(path) {
                self.state.sums.others += 1;
                self.put(item)?;
            }
        }
        Ok(())
    }

    /// Nothing comes any more into folders that were walked through to their end, which those are that the next one does not lie in: there may be
    /// millions of them.
    fn forget_ways(&mut self, above: &mut Vec<PathBuf>, next: Option<&Path>) {
        let is_over = |folder: &mut PathBuf| next.is_none_or(|next| !next.starts_with(&*folder));
        while let Some(folder) = above.pop_if(is_over) {
            self.state.ways.remove(&folder);
        }
        above.extend(next.map(Path::to_owned));
    }

    /// True of a name that is meant, by its way from the root of its tree.
    pub(super) fn takes_name(&self, path: &Path, root: &Path, is_folder: bool) -> bool {
        let filter = &self.state.filter;
        filter.is_none() || filter.takes(path.strip_prefix(root).unwrap_or(path), is_folder)
    }

    /// True of what is meant by its size and its age: of a folder what lies in it says so.
    pub(super) fn measures(&self, folder: &Place, name: &OsStr, meta: &Meta) -> Result<bool> {
        let filter = &self.state.filter;
        if meta.what == What::Folder || filter.is_none() {
            return Ok(true);
        }
        if !filter.takes_size(meta.size) {
            return Ok(false);
        }
        if !filter.asks_age() {
            return Ok(true);
        }
        let changed = match meta.what {
            What::File => folder.changed(name, meta)?,
            _ => None,
        };
        Ok(filter.takes_age(changed.unwrap_or(meta.mtime)))
    }

    /// True of a name that is meant, which lies in this folder, by its path and the root of its tree, and by its size and age.
    pub(super) fn takes(
        &self,
        folder: &Place,
        name: &OsStr,
        path: &Path,
        root: &Path,
        meta: &Meta,
    ) -> Result<bool> {
        let by_name = self.takes_name(path, root, meta.what == What::Folder);
        Ok(by_name && self.measures(folder, name, meta)?)
    }

    fn made(&self, task: Task, found: &Found<'_>, replace: bool) -> Item {
        Item {
            n: 0,
            task,
            from: found.from,
            source: found.path.clone(),
            target: found.target.clone(),
            size: if task == Task::File { found.meta.size } else { 0 },
            mtime: found.meta.mtime,
            first: -1,
            replace,
        }
    }

    fn item(&mut self, task: Task, found: &Found<'_>, replace: bool) -> Result<()> {
        let item = self.made(task, found, replace);
        self.put(item)
    }
}

fn not_there(path: &Path) -> Error {
    Error::new(Kind::NotFound, "no such file or folder, which is listed").at_path(path)
}

fn no_way(path: &Path) -> Error {
    Error::usage("this is no folder, and a name in it is listed").at_path(path)
}

fn itself(path: &Path) -> Error {
    Error::usage("a folder cannot go into itself")
        .at_path(path)
        .with_hint("name a target outside of it")
}

pub(super) fn in_the_way(path: &Path, what: What) -> Error {
    let is = match what {
        What::Folder => "this is a folder, and something else is to get its name",
        _ => "this is no folder, and a folder is to get its name",
    };
    Error::usage(is).at_path(path).with_hint("move it away, or sync with --delete")
}
