//! From a request to a list of names: what is asked for is found, here, in buckets and on other nodes, checked as a whole, and walked
//! through tree by tree (`walk`).
//!
//! Nothing is changed while it is planned. Folders come before what lies in them.

mod ahead;
mod clear;
mod closed;
mod internal;
mod same;
mod walk;

pub(crate) use internal::{is_internal, refuse_streams, unfinished};

use self::walk::{AT_ONCE, Found, Step, in_the_way};
use crate::compare::Comparer;
use crate::ends::{self, Base, End, split};
use crate::filter::Filter;
use crate::job::Item;
use crate::journal::{Ends, Totals};
use crate::pattern;
use crate::place::Place;
use crate::remote::{Far, Nodes};
use crate::request::{Action, Request};
use crate::rules::{self, Jobs, Rule};
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Kind, Location, Result, limits};
use stead_store::{FileTime, Meta, What};

/// What a plan is about, in numbers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Sums {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Bytes that the target gives the files, as far as the source tells.
    pub(crate) room: u64,
    pub(crate) others: u64,
    pub(crate) removed: u64,
    /// Bytes that the target has again before the first file comes: of what is removed there, files of which all names go.
    pub(crate) freed: u64,
    /// Of these, bytes of files of this user.
    pub(crate) freed_own: u64,
    pub(crate) skipped: u64,
    /// Files and links that a sync finds to be the same on both sides.
    pub(crate) same: u64,
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
    /// It gives way to others, as far as that is known by names.
    pub(crate) gentle: bool,
    /// Moves may be renames.
    pub(crate) renames: bool,
    /// It was planned before, and some of it may be done.
    pub(crate) again: bool,
    /// A folder that cannot be read is an error, and not what is told in the end.
    pub(crate) strict: bool,
    /// Ages are counted back from here, in seconds since 1970.
    pub(crate) began: f64,
    /// Where files of one size are compared by their bytes.
    pub(crate) compare: Option<Comparer<'a>>,
    pub(crate) sink: &'a mut dyn FnMut(Item) -> Result<()>,
    pub(crate) state: Progressing,
}

/// The first name of a file with several ones.
enum First {
    /// It is brought, by the item of this number; or it stays, and has one that says so.
    Item(i64),
    /// It stays in the target under this path, and is no item as long as no other name needs it.
    Stays(PathBuf),
}

/// What is known while a plan is made.
#[derive(Default)]
pub(crate) struct Progressing {
    ends: Ends,
    bases: HashMap<Base, i64>,
    sums: Sums,
    next: i64,
    /// Files with several names, by device and number: the first one that came.
    several: HashMap<(u64, u64), First>,
    /// The same of what is removed from the target: how many of their names go.
    going: HashMap<(u64, u64), u64>,
    /// The target, or the last folder on the way to it that is there.
    own: Option<Meta>,
    /// Sources, and the folders that they lie in: what a sync never removes.
    kept: HashSet<(u64, u64)>,
    /// Those of other nodes, of which a file system that both nodes have tells the number and the time of change.
    kept_far: HashSet<(u64, FileTime)>,
    /// The target is in a bucket.
    bucket: bool,
    /// A quota counts what comes there.
    counted: bool,
    /// Which names are meant, the tree that is walked through, on the source and on the target, and folders of the target that are made if
    /// something is to lie in them.
    filter: Filter,
    /// One of the sources is meant.
    any: bool,
    roots: (PathBuf, PathBuf),
    ways: HashMap<PathBuf, Item>,
    /// Files of the list that is walked through of which both sides have one of the same size: whether their bytes are the same, too.
    compared: HashMap<OsString, bool>,
    /// Names of the target that files get, if contents of several folders come into one.
    given: Option<HashSet<PathBuf>>,
}

impl Progressing {
    /// Counts what a name that is removed from the target gives back.
    fn free(&mut self, meta: &Meta) {
        // What lies on another file system is room there.
        let near = self.own.as_ref().is_some_and(|own| own.dev == meta.dev);
        if meta.what != What::File || !near {
            return;
        }
        if meta.links > 1 {
            let names = self.going.entry((meta.dev, meta.ino)).or_default();
            *names += 1;
            if *names != meta.links {
                return;
            }
        }
        self.sums.freed = self.sums.freed.saturating_add(meta.room);
        if meta.uid == rustix::process::geteuid().as_raw() {
            self.sums.freed_own = self.sums.freed_own.saturating_add(meta.room);
        }
    }
}

impl Planner<'_> {
    /// Makes the plan.
    ///
    /// # Errors
    /// `NotFound` for sources that are not there; `Usage` for names that are taken, and what cannot be: a folder into itself,
    /// two sources of one name; `Limit` where more would be removed than is to be; those of listing.
    pub(crate) fn plan(mut self) -> Result<Planned> {
        let request = self.request;
        self.state.filter = Filter::new(&request.options)?.at(self.began);
        let target = request
            .target
            .as_ref()
            .map(|t| ends::target(self.spaces, t, self.cancel))
            .transpose()?;
        self.state.bucket = target.as_ref().is_some_and(|end| end.folder.bucket().is_some());
        self.state.ends.target = target.as_ref().map(|end| end.base.clone());
        let there = match &target {
            Some(end) => end.meta()?,
            None => None,
        };
        let is_folder = there.is_some_and(|m| m.what == What::Folder);
        self.state.own = target.as_ref().map(|end| self.last(end)).transpose()?;
        let many = request.sources.len() > 1 || request.sources.iter().any(Location::is_pattern);
        let wants_folder = request.target.as_ref().is_some_and(|t| t.inside) || many;
        if wants_folder && there.is_some() && !is_folder {
            let end = target.as_ref().map(|end| end.folder.at(end.path.as_os_str()));
            let is_link = there.is_some_and(|m| m.what == What::Link);
            return Err(no_folder(&end.unwrap_or_default(), is_link, request.sources.len() > 1));
        }
        let into = wants_folder || (is_folder && request.action != Action::Sync);
        let mut first = None;
        let mut taken = HashSet::new();
        let mut all = Vec::new();
        // Many sources lie in few folders, each of which is open once.
        let mut open: HashMap<Base, Place> = HashMap::new();
        let of = |end: &End| rules::of(self.spaces, &end.base, &end.folder, &end.path);
        let to = target.as_ref().map(of).unwrap_or_default();
        self.state.counted = to.iter().any(Rule::has_quota);
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
        if request.action == Action::Move {
            only_outermost(&mut all);
        }
        for end in all.iter().map(|(end, _)| end).chain(&target) {
            refuse_streams(&end.folder.at(end.path.as_os_str()))?;
        }
        // Before anything of it is looked at.
        rules::may_touch(from.iter().chain(&to), self.job, self.jobs)?;
        let far = all.iter().filter_map(|(end, _)| end.folder.far().and_then(Far::limit)).min();
        if let (Some(compare), Some(limit)) = (&mut self.compare, far) {
            compare.keep_to(limit);
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
        let removed = self.state.sums.removed;
        if let Some(most) = request.options.max_delete.filter(|most| removed > *most) {
            let message = format!(
                "{removed} name(s) of the target would be removed, and no more than {most} are to be"
            );
            return Err(Error::limit(message).with_hint(
                "nothing was done; --dry-run without --max-delete tells which they are",
            ));
        }
        if !self.state.any && !self.state.filter.is_none() && first.is_some() {
            return Err(Error::usage("all that is named is left out")
                .with_hint("see what --exclude and --include say"));
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
        let (base, rest) = ends::pattern_of(self.spaces, location)?;
        let end = self.end(&base, true)?;
        let found = match pattern::expand(&end.folder, &rest, limits::MAX_SOURCES, self.cancel) {
            Err(e) if e.kind() == Kind::NotFound && self.is_second() => Vec::new(),
            found => found?,
        };
        Ok(found.into_iter().map(|path| (End { path, ..end.clone() }, location.inside)).collect())
    }

    /// A source that is there, here or on another node.
    fn end(&self, location: &Location, follow: bool) -> Result<End> {
        ends::anywhere(self.spaces, self.nodes, location, follow, self.cancel)
    }

    /// True if sources may be gone, as it has moved them before.
    fn is_second(&self) -> bool {
        self.request.action == Action::Move && self.again
    }

    /// Notes a source and the folders that it lies in.
    fn keep(&mut self, end: &End) -> Result<()> {
        if let Some(meta) = end.meta()? {
            match end.folder.far() {
                Some(_) => drop(self.state.kept_far.insert((meta.ino, meta.ctime))),
                None => drop(self.state.kept.insert((meta.dev, meta.ino))),
            }
        }
        self.state.kept.extend(end.folder.ancestors(&end.path));
        Ok(())
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
        let Some(meta) = end.meta()? else {
            let moved = match end.path.file_name().filter(|_| self.is_second()) {
                Some(name) if into => Some(target.path.join(name)),
                Some(_) => Some(target.path.clone()),
                None => None,
            };
            if let Some(path) = moved
                && (End { path, ..target.clone() }).meta()?.is_some()
            {
                self.state.any = true;
                return Ok(());
            }
            let path = end.folder.at(end.path.as_os_str());
            return Err(Error::new(Kind::NotFound, "no such file or folder").at_path(path));
        };
        if self.state.filter.is_list() && meta.what != What::Folder {
            return Err(Error::usage("names are listed below this, which is no folder")
                .at_path(end.folder.at(end.path.as_os_str())));
        }
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
            self.state.any = true;
            let folder = end.folder.below(&end.path)?;
            if let Some(there) = there.filter(|t| t.what != What::Folder) {
                return Err(in_the_way(&target.folder.at(target.path.as_os_str()), there.what));
            }
            let there = there.is_some();
            if !there {
                self.folder(from, &end.path, target.path.clone(), &meta, false)?;
            }
            self.refuse_own(&meta, &folder.shown())?;
            let (source, target_path) = (end.path.clone(), target.path.clone());
            let step = Step { source, target: target_path, there, near: None };
            return self.walk(from, &end.folder, target, step);
        }
        let (dir, name) = split(&end.path);
        // Whoever names many has a shell find them, and means by its patterns what is in these.
        if !self.takes_name(Path::new(name), Path::new(""), meta.what == What::Folder) {
            return Ok(());
        }
        // That none has the size or the age is no mistake of who asks.
        self.state.any = true;
        let folder = end.folder.below(dir)?;
        if !self.measures(&folder, name, &meta)? {
            return Ok(());
        }
        let path = if into { target.path.join(name) } else { target.path.clone() };
        if !taken.insert(path.clone()) {
            return Err(twice(&target.folder.at(path.as_os_str())));
        }
        let (to, _) = split(&path);
        let parent = match target.folder.below(to) {
            Ok(folder) => Some(folder),
            Err(e) if e.kind() == Kind::NotFound => None,
            Err(e) => return Err(e),
        };
        let near = self.near(&folder, parent.as_ref().unwrap_or(&target.folder))?;
        let found = Found {
            from,
            folder: &folder,
            name,
            path: end.path.clone(),
            meta,
            target: path,
            near,
            there: None,
        };
        self.state.roots = (end.path.clone(), found.target.clone());
        // Into a bucket it would be a copy of all that is there now, which nobody means, either.
        if near.is_some() || self.state.bucket {
            self.refuse_below(&found, target)?;
        }
        if let Some(step) = self.name(&found, parent.as_ref())? {
            self.walk(from, &end.folder, target, step)?;
        }
        Ok(())
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
                for name in list?.into_iter().filter(|name| !is_internal(name)) {
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
}

/// Leaves out what is moved with a folder that it lies in, as of `run/**`.
fn only_outermost(all: &mut Vec<(End, bool)>) {
    let of = |end: &End| (end.base.clone(), end.path.clone());
    let named: HashSet<(Base, PathBuf)> = all.iter().map(|(end, _)| of(end)).collect();
    all.retain(|(end, _)| {
        let mut above = end.path.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
        !above.any(|path| named.contains(&(end.base.clone(), path.to_owned())))
    });
}

/// Of a target that is to be a folder, and is none.
fn no_folder(path: &Path, is_link: bool, several: bool) -> Error {
    if is_link {
        return Error::usage("this is a link, which is not followed here, and a folder is needed")
            .at_path(path)
            .with_hint("name the folder that it leads to");
    }
    let what = match several {
        true => "several files cannot become one, and this is no folder",
        false => "this is no folder, and the target is to be one",
    };
    Error::usage(what).at_path(path)
}

fn twice(path: &Path) -> Error {
    Error::usage("two sources would get this name")
        .at_path(path)
        .with_hint("stage them one by one, or into different folders")
}
