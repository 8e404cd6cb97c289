//! From a request to a list of names: what is there, what the target has, what is to be done.
//!
//! Nothing is changed while it is planned. Folders come before what lies in them.

use crate::commit::same_time;
use crate::ends::{self, Base, End, split};
use crate::job::{Item, TARGET, Task};
use crate::journal::{Ends, Totals};
use crate::pattern;
use crate::place::{Place, key_of, no_key};
use crate::remote::{Far, Nodes};
use crate::request::{Action, Exists, Request};
use crate::rules::{self, Jobs, Rule};
use std::collections::{HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Kind, Location, Result, limits};
use stead_store::{FileTime, Meta, What};

/// Names of a folder that are looked at together.
const AT_ONCE: usize = 1 << 16;

/// What a plan is about, in numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Bytes that the target gives the files, as far as the source tells.
    pub(crate) room: u64,
    pub(crate) others: u64,
    pub(crate) removed: u64,
    pub(crate) skipped: u64,
    pub(crate) renamed: u64,
}

impl Sums {
    pub(crate) fn totals(&self) -> Totals {
        let files = self.files + self.others + self.removed + self.renamed;
        Totals { files, bytes: self.bytes, skipped: self.skipped }
    }
}

/// A plan that has been made.
pub(crate) struct Planned {
    pub(crate) ends: Ends,
    pub(crate) sums: Sums,
    /// The folder in which, or below which, the target is.
    pub(crate) target: Option<Place>,
    /// Where the first source is.
    pub(crate) source: Place,
    /// Dataspaces with terms that sources lie in.
    pub(crate) from: Vec<Rule>,
    /// Those that the target lies in.
    pub(crate) to: Vec<Rule>,
}

/// One that is being made. Names go to `sink`.
pub(crate) struct Planner<'a> {
    pub(crate) spaces: &'a Spaces,
    pub(crate) nodes: Option<&'a Nodes>,
    pub(crate) request: &'a Request,
    /// The job that it is of, if any, and those of this user.
    pub(crate) job: Option<&'a str>,
    pub(crate) jobs: &'a Jobs,
    pub(crate) cancel: &'a Cancel,
    /// Moves may be renames.
    pub(crate) renames: bool,
    pub(crate) sink: &'a mut dyn FnMut(Item) -> Result<()>,
    pub(crate) state: Progressing,
}

/// What is known while a plan is made.
#[derive(Default)]
pub(crate) struct Progressing {
    ends: Ends,
    bases: HashMap<Base, i64>,
    sums: Sums,
    next: i64,
    /// Files with several names, by device and number: the first one that came.
    several: HashMap<(u64, u64), i64>,
    /// The target, or the last folder on the way to it that is there.
    own: Option<Meta>,
    /// Sources, and the folders that they lie in: what a sync never removes.
    kept: HashSet<(u64, u64)>,
    /// Those of other nodes, of which a file system that both nodes have tells the number and the time of change.
    kept_far: HashSet<(u64, FileTime)>,
    /// The target is in a bucket.
    bucket: bool,
    /// Names of the target that files get, if contents of several folders come into one.
    given: Option<HashSet<PathBuf>>,
}

/// A folder still to be walked through.
struct Step {
    source: PathBuf,
    target: PathBuf,
    /// The target has it already.
    there: bool,
}

/// A name with what it is.
struct Found<'f> {
    from: i64,
    /// The folder that it lies in.
    folder: &'f Place,
    name: &'f OsStr,
    path: PathBuf,
    meta: Meta,
    target: PathBuf,
    /// The device on which it may be renamed to its target.
    near: Option<u64>,
}

impl Planner<'_> {
    /// Makes the plan.
    ///
    /// # Errors
    /// `NotFound` for sources that are not there; `Usage` for names that are taken, and what cannot be: a folder into itself,
    /// two sources of one name; those of listing.
    pub(crate) fn plan(mut self) -> Result<Planned> {
        let request = self.request;
        let target = request
            .target
            .as_ref()
            .map(|t| ends::target(self.spaces, t, self.cancel))
            .transpose()?;
        self.state.bucket = target.as_ref().is_some_and(|end| end.folder.bucket().is_some());
        self.state.ends.target = target.as_ref().map(|end| end.base.clone());
        let there = match &target {
            Some(end) => self.at(end)?,
            None => None,
        };
        let is_folder = there.is_some_and(|m| m.what == What::Folder);
        self.state.own = target.as_ref().map(|end| self.last(end)).transpose()?;
        let many = request.sources.len() > 1 || request.sources.iter().any(Location::is_pattern);
        let wants_folder = request.target.as_ref().is_some_and(|t| t.inside) || many;
        if wants_folder && there.is_some() && !is_folder {
            let end = target.as_ref().map(|end| end.folder.at(end.path.as_os_str()));
            return Err(Error::usage("several files cannot become one, and this is no folder")
                .at_path(end.unwrap_or_default()));
        }
        let into = wants_folder || (is_folder && request.action != Action::Sync);
        let mut first = None;
        let mut taken = HashSet::new();
        let mut all = Vec::new();
        // Many sources lie in few folders, each of which is open once.
        let mut open: HashMap<Base, Place> = HashMap::new();
        let of = |end: &End| rules::of(self.spaces, &end.base, &end.folder, &end.path);
        let to = target.as_ref().map(of).unwrap_or_default();
        let mut from: Vec<Rule> = Vec::new();
        for location in &request.sources {
            for (end, contents) in self.sources(location)? {
                for rule in of(&end) {
                    if !from.iter().any(|known| known.name == rule.name) {
                        from.push(rule);
                    }
                }
                let folder = open.entry(end.base.clone()).or_insert(end.folder).clone();
                all.push((End { folder, ..end }, contents));
            }
        }
        // Before anything of it is looked at.
        rules::may_touch(from.iter().chain(&to), self.job, self.jobs)?;
        if let Some((end, _)) = all.iter().find(|(end, _)| end.folder.far().is_some())
            && self.state.bucket
        {
            return Err(Error::usage("this is on another node, and the target in a bucket")
                .at_path(end.folder.at(end.path.as_os_str()))
                .with_hint("ask the daemon of that node, for which it is no other one"));
        }
        let equal = |contents: bool| {
            contents || (!into && target.as_ref().is_some_and(|t| t.path.as_os_str().is_empty()))
        };
        if all.len() > 1 && all.iter().any(|(_, contents)| equal(*contents)) {
            if request.options.delete {
                return Err(Error::usage("one folder cannot be made equal to several")
                    .with_hint("sync them one by one, or into folders of their own"));
            }
            self.state.given = Some(HashSet::new());
        }
        for (end, _) in all.iter().filter(|_| request.options.delete) {
            self.keep(end)?;
        }
        for (end, contents) in all {
            self.cancel.check()?;
            first.get_or_insert_with(|| end.folder.clone());
            match &target {
                Some(target) => self.bring(&end, contents, target, into, there, &mut taken)?,
                None => self.remove(&end, contents)?,
            }
        }
        // Of a pattern all may have been moved already.
        let first = first.or_else(|| target.as_ref().map(|end| end.folder.clone()));
        let Some(source) = first else { return Err(Error::usage("nothing to stage")) };
        let Progressing { ends, sums, .. } = self.state;
        Ok(Planned { ends, sums, target: target.map(|end| end.folder), source, from, to })
    }

    /// What a location stands for, and whether its contents are meant.
    fn sources(&self, location: &Location) -> Result<Vec<(End, bool)>> {
        let follow = matches!(self.request.action, Action::Copy | Action::Sync);
        if !location.is_pattern() {
            let end = self.end(location, follow)?;
            let contents = location.inside || end.path.as_os_str().is_empty();
            return Ok(vec![(end, contents)]);
        }
        let (base, rest) = match &location.space {
            Some(_) => {
                let url = ends::bucket_of(self.spaces, location);
                let (root, rest) = url.unwrap_or(("", &location.path));
                (Location { path: root.to_owned(), ..location.clone() }, rest.to_owned())
            }
            None => literal(location)?,
        };
        let end = self.end(&Location { inside: true, ..base }, true)?;
        let found = match pattern::expand(&end.folder, &rest, limits::MAX_SOURCES, self.cancel) {
            Err(e) if e.kind() == Kind::NotFound && self.is_second() => Vec::new(),
            found => found?,
        };
        Ok(found.into_iter().map(|path| (End { path, ..end.clone() }, location.inside)).collect())
    }

    /// A source that is there, here or on another node.
    fn end(&self, location: &Location, follow: bool) -> Result<End> {
        match &location.node {
            Some(node) => Far::find(self.nodes, node, location, follow),
            None => ends::source(self.spaces, location, follow, self.cancel),
        }
    }

    /// True if it was planned before, as renames, some of which are done.
    fn is_second(&self) -> bool {
        self.request.action == Action::Move && !self.renames
    }

    /// Notes a source and the folders that it lies in.
    fn keep(&mut self, end: &End) -> Result<()> {
        if let Some(meta) = self.at(end)? {
            match end.folder.far() {
                Some(_) => drop(self.state.kept_far.insert((meta.ino, meta.ctime))),
                None => drop(self.state.kept.insert((meta.dev, meta.ino))),
            }
        }
        self.state.kept.extend(end.folder.ancestors(&end.path));
        Ok(())
    }

    fn at(&self, end: &End) -> Result<Option<Meta>> {
        if end.path.as_os_str().is_empty() {
            return end.folder.own_meta().map(Some);
        }
        let (dir, name) = split(&end.path);
        match end.folder.below(dir) {
            Ok(dir) => dir.meta(name),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// The last folder on the way to a target that is there.
    fn last(&self, end: &End) -> Result<Meta> {
        let mut path = end.path.as_path();
        loop {
            match end.folder.below(path) {
                Ok(folder) => return folder.own_meta(),
                Err(e) if path.as_os_str().is_empty() => return Err(e),
                Err(_) => path = split(path).0,
            }
        }
    }

    fn base(&mut self, base: &Base) -> i64 {
        let ends = &mut self.state.ends;
        *self.state.bases.entry(base.clone()).or_insert_with(|| {
            ends.sources.push(base.clone());
            ends.sources.len() as i64 - 1
        })
    }

    fn put(&mut self, item: Item) -> Result<()> {
        let n = self.state.next;
        self.state.next += 1;
        (self.sink)(Item { n, ..item })
    }

    /// Plans for one source of a copy, a move or a sync.
    fn bring(
        &mut self,
        end: &End,
        contents: bool,
        target: &End,
        into: bool,
        there: Option<Meta>,
        taken: &mut HashSet<PathBuf>,
    ) -> Result<()> {
        let from = self.base(&end.base);
        let Some(meta) = self.at(end)? else {
            let moved = match end.path.file_name().filter(|_| self.is_second()) {
                Some(name) if into => Some(target.path.join(name)),
                Some(_) => Some(target.path.clone()),
                None => None,
            };
            if let Some(path) = moved
                && self.at(&End { path, ..target.clone() })?.is_some()
            {
                return Ok(());
            }
            let path = end.folder.at(end.path.as_os_str());
            return Err(Error::new(Kind::NotFound, "no such file or folder").at_path(path));
        };
        // What becomes equal to a folder that is there.
        let equal = !into && target.path.as_os_str().is_empty();
        if contents || equal {
            if meta.what != What::Folder {
                let path = end.folder.at(end.path.as_os_str());
                let what = match contents {
                    true => "this is no folder, and a '/' follows it",
                    false => "this is no folder, and the target is one",
                };
                return Err(Error::usage(what).at_path(path));
            }
            let folder = end.folder.below(&end.path)?;
            if let Some(there) = there.filter(|t| t.what != What::Folder) {
                return Err(in_the_way(&target.folder.at(target.path.as_os_str()), there.what));
            }
            let there = there.is_some();
            if !there {
                self.folder(from, &end.path, target.path.clone(), &meta)?;
            }
            self.refuse_own(&meta, &folder.shown())?;
            let step = Step { source: end.path.clone(), target: target.path.clone(), there };
            return self.walk(from, &end.folder, target, step);
        }
        let (dir, name) = split(&end.path);
        let path = if into { target.path.join(name) } else { target.path.clone() };
        if !taken.insert(path.clone()) {
            return Err(twice(&target.folder.at(path.as_os_str())));
        }
        let folder = end.folder.below(dir)?;
        let (to, _) = split(&path);
        let parent = match target.folder.below(to) {
            Ok(folder) => Some(folder),
            Err(e) if e.kind() == Kind::NotFound => None,
            Err(e) => return Err(e),
        };
        let near = self.near(&folder, parent.as_ref().unwrap_or(&target.folder))?;
        let found =
            Found { from, folder: &folder, name, path: end.path.clone(), meta, target: path, near };
        // Into a bucket it would be a copy of all that is there now, which nobody means, either.
        if near.is_some() || self.state.bucket {
            self.refuse_below(&found, target)?;
        }
        if let Some(step) = self.name(&found, parent.as_ref())? {
            self.walk(from, &end.folder, target, step)?;
        }
        Ok(())
    }

    /// The device of both folders, if what is in one may be renamed to the other.
    fn near(&self, from: &Place, to: &Place) -> Result<Option<u64>> {
        let bucket = from.bucket().or(to.bucket()).is_some() || from.far().is_some();
        if self.request.action != Action::Move || !self.renames || bucket {
            return Ok(None);
        }
        let (from, to) = (from.own_meta()?.dev, to.own_meta()?.dev);
        Ok((from == to).then_some(from))
    }

    /// Refuses to move a folder into itself, which the system would do with an error that nobody understands.
    fn refuse_below(&self, found: &Found<'_>, target: &End) -> Result<()> {
        let source = found.folder.at(found.name);
        let to = target.folder.at(found.target.as_os_str());
        if found.meta.what == What::Folder && to.starts_with(&source) {
            return Err(itself(&source));
        }
        Ok(())
    }

    /// Refuses a folder that is the target itself.
    fn refuse_own(&self, meta: &Meta, path: &Path) -> Result<()> {
        match &self.state.own {
            Some(own) if is_one(own, meta) => Err(itself(path)),
            _ => Ok(()),
        }
    }

    fn walk(&mut self, from: i64, base: &Place, target: &End, first: Step) -> Result<()> {
        let mut steps = vec![first];
        while let Some(step) = steps.pop() {
            self.cancel.check()?;
            let folder = base.below(&step.source)?;
            let to = match step.there {
                true => Some(target.folder.below(&step.target)?),
                false => None,
            };
            let delete = self.request.options.delete && to.is_some();
            let near = match &to {
                Some(to) => self.near(&folder, to)?,
                None => None,
            };
            if let Some(to) = &to {
                to.know()?;
            }
            let mut names: HashSet<OsString> = HashSet::new();
            let mut empty = true;
            for list in folder.names(AT_ONCE)? {
                let list = list?;
                if let Some(to) = &to {
                    self.know_times(&folder, to, &list)?;
                }
                for name in list {
                    // Gone meanwhile.
                    let Some(meta) = folder.meta(&name)? else { continue };
                    empty = false;
                    if unfinished(&name) {
                        continue;
                    }
                    let (path, to_path) = (step.source.join(&name), step.target.join(&name));
                    let target = to_path;
                    let found =
                        Found { from, folder: &folder, name: &name, path, meta, target, near };
                    if let Some(step) = self.name(&found, to.as_ref())? {
                        steps.push(step);
                    }
                    if delete {
                        names.insert(name);
                    }
                }
            }
            if let (true, Some(to)) = (delete, &to) {
                for list in to.names(AT_ONCE)? {
                    for name in list? {
                        if !names.contains(&name) && !unfinished(&name) {
                            self.clear(TARGET, to, &name, &step.target.join(&name))?;
                        }
                    }
                }
            }
            // A folder of a bucket is what lies in it.
            if empty && self.state.bucket {
                self.state.sums.skipped += 1;
            }
            let named = !step.source.as_os_str().is_empty() && folder.bucket().is_none();
            if self.request.action == Action::Move && named {
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
                };
                self.state.sums.others += 1;
                self.item(Task::LeaveFolder, &found, false)?;
            }
        }
        Ok(())
    }

    /// Has stores asked for the times of those of these names for which they will matter.
    fn know_times(&self, from: &Place, to: &Place, names: &[OsString]) -> Result<()> {
        let sync = self.request.action == Action::Sync;
        let newer = !sync && self.request.options.exists == Exists::Newer;
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

    /// Plans for one name, `to` being the folder of the target, if it is there. Gives a folder that is to be walked through.
    fn name(&mut self, found: &Found<'_>, to: Option<&Place>) -> Result<Option<Step>> {
        let name = found.target.file_name().unwrap_or_default();
        let there = match to {
            Some(to) => to.meta(name)?,
            None => None,
        };
        // A mount point is on another device than its name.
        if there.is_none() && found.near == Some(found.meta.dev) {
            self.state.sums.renamed += 1;
            return self.item(Task::Rename, found, false).map(|()| None);
        }
        let same_kind = there.is_some_and(|t| t.what == found.meta.what);
        if let (Some(there), Some(to)) = (&there, to) {
            if is_one(there, &found.meta) {
                // Trees may have files in common.
                if self.request.action == Action::Sync && there.what == What::File {
                    self.state.sums.skipped += 1;
                    return Ok(None);
                }
                return Err(Error::usage("source and target are the same").at_path(to.at(name)));
            }
            if !same_kind && (there.what == What::Folder || found.meta.what == What::Folder) {
                if self.request.action == Action::Sync && self.request.options.delete {
                    self.clear(TARGET, to, name, &found.target)?;
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
                    self.folder(found.from, &found.path, found.target.clone(), &found.meta)?;
                }
                Ok(Some(Step {
                    source: found.path.clone(),
                    target: found.target.clone(),
                    there: there.is_some_and(|t| t.what == What::Folder),
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
                if self.stays(found, there.as_ref(), to)? {
                    self.state.sums.skipped += 1;
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
                let replace = there.is_some();
                let key = (found.meta.dev, found.meta.ino);
                if found.meta.links > 1 && found.meta.what == What::File && !self.state.bucket {
                    if let Some(first) = self.state.several.get(&key).copied() {
                        self.state.sums.others += 1;
                        let item = self.made(Task::Hard, found, replace);
                        return self.put(Item { first, size: 0, ..item }).map(|()| None);
                    }
                    self.state.several.insert(key, self.state.next);
                }
                if found.meta.what == What::Link {
                    self.state.sums.others += 1;
                    self.item(Task::Link, found, replace)?;
                } else {
                    self.state.sums.files += 1;
                    self.state.sums.bytes += found.meta.size;
                    self.state.sums.room +=
                        found.meta.room.min(found.meta.size.next_multiple_of(4096));
                    self.item(Task::File, found, replace)?;
                }
                Ok(None)
            }
        }
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
                What::Link => to.read_link(name)? == found.folder.read_link(found.name)?,
                _ if there.size != found.meta.size => false,
                _ => {
                    let changed = found.folder.changed(found.name, &found.meta)?;
                    let changed = changed.unwrap_or(found.meta.mtime);
                    match to.changed(name, there)? {
                        Some(time) => same_time(changed, time),
                        // Nobody has said of which time it is: not of a later one than that at which it was put there.
                        None => changed <= there.mtime,
                    }
                }
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

    fn folder(&mut self, from: i64, source: &Path, target: PathBuf, meta: &Meta) -> Result<()> {
        // The root of a target is there, or has been made by somebody else; a bucket has no folders.
        if target.as_os_str().is_empty() || self.state.bucket {
            return Ok(());
        }
        self.state.sums.others += 1;
        self.put(Item {
            n: 0,
            task: Task::Folder,
            from,
            source: source.to_owned(),
            target,
            size: 0,
            mtime: meta.mtime,
            first: -1,
            replace: false,
        })
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

    /// Plans to remove one source.
    fn remove(&mut self, end: &End, contents: bool) -> Result<()> {
        let from = self.base(&end.base);
        if contents
            && end.path.as_os_str().is_empty()
            && matches!(end.base, Base::Space(..) | Base::Bucket(_))
        {
            let message = "this is a dataspace or a bucket as a whole, which is not removed";
            return Err(Error::usage(message)
                .at_path(end.folder.shown())
                .with_hint("name what lies in it: NAME://*"));
        }
        if end.path.as_os_str().is_empty() {
            // `dir/`: what lies in it.
            for list in end.folder.names(AT_ONCE)? {
                for name in list? {
                    self.clear(from, &end.folder, &name, Path::new(&name))?;
                }
            }
            return Ok(());
        }
        let (dir, name) = split(&end.path);
        let folder = end.folder.below(dir)?;
        if folder.meta(name)?.is_none() {
            let path = folder.at(name);
            return Err(Error::new(Kind::NotFound, "no such file or folder").at_path(path));
        }
        self.clear(from, &folder, name, &end.path)
    }

    /// Plans to remove a name and what lies below it: files in order, folders to be removed in reverse.
    fn clear(&mut self, from: i64, folder: &Place, name: &OsStr, path: &Path) -> Result<()> {
        let mut left = vec![(folder.clone(), name.to_owned(), path.to_owned())];
        while let Some((folder, name, path)) = left.pop() {
            self.cancel.check()?;
            let Some(meta) = folder.meta(&name)? else { continue };
            let kept = self.state.kept.contains(&(meta.dev, meta.ino))
                || self.state.kept_far.contains(&(meta.ino, meta.ctime));
            if from == TARGET && kept {
                return Err(Error::usage("the source lies in what would be removed")
                    .at_path(folder.at(&name))
                    .with_hint("sync without --delete, or into a folder beside it"));
            }
            let task = if meta.what == What::Folder { Task::RemoveFolder } else { Task::Remove };
            let gone = task == Task::RemoveFolder && folder.bucket().is_some();
            self.state.sums.removed += u64::from(!gone);
            let (source, target) = match from {
                TARGET => (PathBuf::new(), path.clone()),
                _ => (path.clone(), PathBuf::new()),
            };
            // A folder of a bucket goes with what lies in it.
            if !gone {
                self.put(Item {
                    n: 0,
                    task,
                    from,
                    source,
                    target,
                    size: 0,
                    mtime: meta.mtime,
                    first: -1,
                    replace: false,
                })?;
            }
            if meta.what == What::Folder {
                let inner = folder.enter(&name)?;
                for list in inner.names(AT_ONCE)? {
                    left.extend(list?.into_iter().map(|name| {
                        let path = path.join(&name);
                        (inner.clone(), name, path)
                    }));
                }
            }
        }
        Ok(())
    }
}

/// The folders of a pattern before the first step with a wildcard, and the rest.
fn literal(location: &Location) -> Result<(Location, String)> {
    let steps: Vec<&str> = location.path.split('/').collect();
    let wild = steps.iter().position(|step| Location::is_wild(step)).unwrap_or(0);
    let (dir, rest) = steps.split_at(wild);
    let dir = match dir {
        [] => ".".to_owned(),
        [""] => "/".to_owned(),
        dir => dir.join("/"),
    };
    if rest.contains(&"..") {
        return Err(Error::usage(format!("'{location}' has a '..' behind a wildcard")));
    }
    let rest: Vec<&str> = rest.iter().copied().filter(|step| !matches!(*step, "" | ".")).collect();
    Ok((Location { path: dir, ..location.clone() }, rest.join("/")))
}

/// True if both are the same file or folder. Of other nodes it is one of a file system that both have if nothing tells them apart.
fn is_one(here: &Meta, there: &Meta) -> bool {
    let far = there.dev >> 63 == 1 && here.dev >> 63 == 0;
    let of = |m: &Meta| (m.ino, m.size, m.mtime, m.ctime);
    match far {
        true => of(here) == of(there),
        false => (here.dev, here.ino) == (there.dev, there.ino),
    }
}

/// True of the temporary names of transfers, which belong to them alone.
pub(crate) fn unfinished(name: &OsStr) -> bool {
    let bytes = name.as_encoded_bytes();
    let Some(rest) = bytes.strip_prefix(b".stead-") else { return false };
    let hex = |b: &u8| b.is_ascii_hexdigit();
    rest.len() > 17 && rest[..16].iter().all(hex) && rest[16] == b'-' && rest[17..].iter().all(hex)
}

fn twice(path: &Path) -> Error {
    Error::usage("two sources would get this name")
        .at_path(path)
        .with_hint("stage them one by one, or into different folders")
}

fn itself(path: &Path) -> Error {
    Error::usage("a folder cannot go into itself")
        .at_path(path)
        .with_hint("name a target outside of it")
}

fn in_the_way(path: &Path, what: What) -> Error {
    let (is, hint) = match what {
        What::Folder => ("a folder", "move it away, or sync with --delete"),
        _ => ("no folder", "move it away, or sync with --delete"),
    };
    Error::usage(format!("this is {is} on the target, and something else on the source"))
        .at_path(path)
        .with_hint(hint)
}
