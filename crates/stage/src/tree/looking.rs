//! Names at a location, in order, however many there are.
//!
//! Of a folder no more than so many names are in memory: of a larger one the first ones are taken, then those behind them, and so on, and each
//! time all of its names are read. In a bucket names come as the store has them, in order and a page at a time.

use super::{Entry, PAGE, Tree};
use crate::ends;
use crate::pattern;
use crate::place::{Names, Place};
use crate::plan::{is_internal, refuse_streams};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use stead_core::{Cancel, Error, Kind, Location, Result, limits};
use stead_store::atomic::is_temporary;
use stead_store::{Meta, What};

/// Names of a folder that are in memory at once, about.
const AT_ONCE: usize = 1 << 19;

/// How far below a folder somebody looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// What lies in it.
    One,
    /// That, and all that lies below it: what lies in a folder follows it.
    All,
}

impl Tree {
    /// Tells of what lies at a location: in a folder, if it is one, with names from there on; else of itself, or of all that a pattern
    /// stands for, by names that lead there from where the location does. What is not whole yet is left out.
    ///
    /// Names of a folder come in order; those of a bucket in that of the store, in which a folder is a name with a `/` at its end.
    ///
    /// # Errors
    /// `NotFound`; `Usage` for a node that is not reached from here, and a file with a `/` behind it; those of `each`, of the system, of the store
    /// and of the other node.
    pub fn look(
        &self,
        location: &Location,
        depth: Depth,
        each: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        if location.is_pattern() {
            return self.look_at_all(location, depth, each);
        }
        let end = self.anywhere(location)?;
        refuse_streams(&end.folder.at(end.path.as_os_str()))?;
        let at = || end.folder.at(end.path.as_os_str());
        let none = || Error::new(Kind::NotFound, "no such file or folder").at_path(at());
        let meta = end.meta()?.ok_or_else(none)?;
        match meta.what {
            What::Folder => self.below(&end.folder.below(&end.path)?, Path::new(""), depth, each),
            What::Link if location.inside => {
                Err(Error::usage("this is a link, which is not followed here").at_path(at()))
            }
            _ if location.inside => {
                Err(Error::usage("this is no folder, and a '/' follows it").at_path(at()))
            }
            _ => each(Entry { name: OsString::from(location.to_string()), meta }),
        }
    }

    fn anywhere(&self, location: &Location) -> Result<ends::End> {
        ends::anywhere(&self.spaces, self.nodes.as_deref(), location, true, &self.cancel)
    }

    fn look_at_all(
        &self,
        location: &Location,
        depth: Depth,
        each: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let (base, rest) = ends::pattern_of(&self.spaces, location)?;
        let end = self.anywhere(&base)?;
        let found = pattern::expand(&end.folder, &rest, limits::MAX_SOURCES, &self.cancel)?;
        // What stands before the names of all of them.
        let is_here = base.node.is_none() && base.space.is_none() && base.path == ".";
        let before = match base.to_string() {
            _ if is_here => String::new(),
            dir if dir.ends_with('/') => dir,
            dir => dir + "/",
        };
        for path in found {
            self.cancel.check()?;
            refuse_streams(&end.folder.at(path.as_os_str()))?;
            let (dir, name) = ends::split(&path);
            // It may have gone meanwhile.
            let Some(meta) = end.folder.below(dir)?.meta(name)? else { continue };
            let mut shown = OsString::from(&before);
            shown.push(&path);
            let is_folder = meta.what == What::Folder;
            if !location.inside {
                each(Entry { name: shown.clone(), meta })?;
            }
            if is_folder && (location.inside || depth == Depth::All) {
                self.below(&end.folder.below(&path)?, Path::new(&shown), depth, each)?;
            }
        }
        Ok(())
    }

    /// What lies in a folder that is called `name`.
    fn below(
        &self,
        folder: &Place,
        name: &Path,
        depth: Depth,
        each: &mut dyn FnMut(Entry) -> Result<()>,
    ) -> Result<()> {
        let mut levels = vec![Level::of(folder.clone(), PathBuf::new(), AT_ONCE)];
        while let Some(level) = levels.last_mut() {
            let Some((step, meta)) = level.next(folder, &self.cancel)? else {
                levels.pop();
                continue;
            };
            let path = level.path.join(&step);
            each(Entry { name: name.join(&path).into(), meta })?;
            if depth == Depth::All && meta.what == What::Folder {
                // However deep it goes, few folders are open. What a bucket has told is kept with it.
                if folder.bucket().is_none() {
                    level.folder = None;
                }
                match folder.below(&path) {
                    Ok(inner) => levels.push(Level::of(inner, path, AT_ONCE)),
                    // Gone, or something else, meanwhile.
                    Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Usage) => {}
                    Err(e) => return Err(e),
                }
            }
        }
        Ok(())
    }
}

/// A name, and what it leads to where that came with it.
type Next = (OsString, Option<Box<Meta>>);

/// A folder whose names are told one by one, in order.
pub(super) struct Level {
    /// None where it is to be opened again.
    folder: Option<Place>,
    /// Below the folder that is looked at.
    path: PathBuf,
    at_once: usize,
    /// Names that come next. Those of places that tell what they lead to, too, have it with them.
    left: VecDeque<Next>,
    /// The last one of these.
    last: Option<OsString>,
    /// Pages of a bucket that were not asked for yet.
    pages: Option<Names>,
    /// There are no others behind those that are left.
    ended: bool,
}

impl Level {
    pub(super) fn of(folder: Place, path: PathBuf, at_once: usize) -> Level {
        let (left, folder) = (VecDeque::new(), Some(folder));
        Level { folder, path, at_once, left, last: None, pages: None, ended: false }
    }

    /// The next name, and what it leads to. `base` is the folder that its path begins at.
    pub(super) fn next(
        &mut self,
        base: &Place,
        cancel: &Cancel,
    ) -> Result<Option<(OsString, Meta)>> {
        loop {
            cancel.check()?;
            if let Some((name, meta)) = self.left.pop_front() {
                let meta = match meta {
                    Some(meta) => Some(*meta),
                    None => match self.open(base)? {
                        Some(folder) => folder.meta(&name)?,
                        None => None,
                    },
                };
                // It may have gone meanwhile.
                match meta {
                    Some(meta) => return Ok(Some((name, meta))),
                    None => continue,
                }
            }
            if self.ended {
                return Ok(None);
            }
            let Some(folder) = self.open(base)? else { return Ok(None) };
            match folder.bucket() {
                Some(_) => self.page(&folder)?,
                None => self.choose(&folder, cancel)?,
            }
        }
    }

    /// The folder; none if it has gone meanwhile.
    fn open(&mut self, base: &Place) -> Result<Option<Place>> {
        if self.folder.is_none() {
            self.folder = match base.below(&self.path) {
                Ok(folder) => Some(folder),
                Err(e) if matches!(e.kind(), Kind::NotFound | Kind::Usage) => return Ok(None),
                Err(e) => return Err(e),
            };
        }
        Ok(self.folder.clone())
    }

    /// The next page of a bucket.
    fn page(&mut self, folder: &Place) -> Result<()> {
        let pages = match &mut self.pages {
            Some(pages) => pages,
            none => none.insert(folder.names(PAGE)?),
        };
        let Some(names) = pages.next() else {
            self.ended = true;
            return Ok(());
        };
        // What lies in it is known as long as no other page is asked for. Those of the same prefix share it.
        for name in names? {
            if !is_hidden(&name)
                && let Some(meta) = folder.meta(&name)?
            {
                self.left.push_back((name, Some(Box::new(meta))));
            }
        }
        Ok(())
    }

    /// The first ones of all names that come behind the last one.
    fn choose(&mut self, folder: &Place, cancel: &Cancel) -> Result<()> {
        let far = folder.far().is_some();
        let mut least: Vec<Next> = Vec::new();
        let mut least_bound: Option<OsString> = None;
        let by_name = |a: &Next, b: &Next| a.0.cmp(&b.0);
        let shorten = |least: &mut Vec<Next>, most: usize| {
            least.select_nth_unstable_by(most - 1, by_name);
            least.truncate(most);
            least.last().map(|(name, _)| name.clone())
        };
        for names in folder.names(PAGE)? {
            for name in names? {
                cancel.check()?;
                let told = self.last.as_ref().is_some_and(|last| name <= *last);
                let later = least_bound.as_ref().is_some_and(|bound| name > *bound);
                if told || later || is_hidden(&name) {
                    continue;
                }
                // The other node has told with each page what its names lead to.
                let meta = match far {
                    true => folder.meta(&name)?.map(Box::new),
                    false => None,
                };
                least.push((name, meta));
                if least.len() >= self.at_once.saturating_mul(2) {
                    least_bound = shorten(&mut least, self.at_once);
                }
            }
        }
        if least.len() > self.at_once {
            least_bound = shorten(&mut least, self.at_once);
        }
        least.sort_unstable_by(by_name);
        self.ended = least_bound.is_none();
        self.last = least.last().map(|(name, _)| name.clone());
        self.left = least.into();
        Ok(())
    }
}

/// True of what is not whole, or was not when whoever wrote it ended, and of the memory of streams.
fn is_hidden(name: &OsStr) -> bool {
    is_internal(name) || is_temporary(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::How;
    use proptest::prelude::*;
    use std::collections::BTreeSet;
    use stead_core::layout::Spaces;

    fn tree(at: &str) -> Tree {
        let mut spaces = Spaces::default();
        spaces.give(&format!("s={at}"), &|_| None).unwrap();
        Tree::new(spaces)
    }

    fn names(tree: &Tree, at: &str, depth: Depth) -> Vec<String> {
        let mut all = Vec::new();
        let location = Location::parse(at, &|_| None).unwrap();
        tree.look(&location, depth, &mut |entry| {
            let end = if entry.meta.what == What::Folder { "/" } else { "" };
            all.push(entry.name.into_string().unwrap() + end);
            Ok(())
        })
        .unwrap();
        all
    }

    fn kind(tree: &Tree, at: &str) -> Kind {
        let location = Location::parse(at, &|_| None).unwrap();
        tree.look(&location, Depth::One, &mut |_| Ok(())).unwrap_err().kind()
    }

    fn plant(tree: &Tree) {
        for path in ["run1/b.h5", "run1/a.h5", "run1/deep/c.h5", "run1.txt", "run2/x"] {
            let mut file = tree.create("s", Path::new(path), How::New, None).unwrap();
            file.write_all(path.as_bytes()).unwrap();
            file.commit(false).unwrap();
        }
    }

    /// What folders and buckets have in common.
    fn is_looked_at(tree: &Tree) {
        plant(tree);
        assert_eq!(names(tree, "s://run1", Depth::One), ["a.h5", "b.h5", "deep/"]);
        assert_eq!(names(tree, "s://run1/", Depth::All), ["a.h5", "b.h5", "deep/", "deep/c.h5"]);
        assert_eq!(names(tree, "s://run1/a.h5", Depth::All), ["s://run1/a.h5"]);
        assert_eq!(names(tree, "s://run1/*.h5", Depth::One), ["s://run1/a.h5", "s://run1/b.h5"]);
        assert_eq!(names(tree, "s://run*", Depth::One), ["s://run1/", "s://run1.txt", "s://run2/"]);
        assert_eq!(names(tree, "s://run2*/", Depth::One), ["s://run2/x"]);
        let deep = ["s://run1/deep/", "s://run1/deep/c.h5"];
        assert_eq!(names(tree, "s://*/deep", Depth::All), deep);
        assert_eq!(names(tree, "s://", Depth::One).len(), 3);
        for none in ["s://none", "s://run1/none", "s://*.none"] {
            assert_eq!(kind(tree, none), Kind::NotFound, "{none}");
        }
        assert_eq!(kind(tree, "s://run1.txt/"), Kind::Usage);
        assert_eq!(kind(tree, "far:s://run1"), Kind::Usage);
        // Whoever is told may have enough.
        let location = Location::parse("s://", &|_| None).unwrap();
        let enough = tree.look(&location, Depth::All, &mut |_| Err(Error::cancelled()));
        assert_eq!(enough.unwrap_err().kind(), Kind::Cancelled);
    }

    #[test]
    fn folders_are_looked_at() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree(dir.path().to_str().unwrap());
        is_looked_at(&tree);
        // By paths, links as they are, and nothing that is not whole.
        let at = dir.path().display();
        std::os::unix::fs::symlink("/etc", dir.path().join("run2/link")).unwrap();
        std::fs::write(dir.path().join("run2/.stead-0123456789abcdef-1f"), b"").unwrap();
        assert_eq!(names(&tree, &format!("{at}/run2"), Depth::All), ["link", "x"]);
        let found = names(&tree, &format!("{at}/run1/*5"), Depth::One);
        assert_eq!(found, [format!("{at}/run1/a.h5"), format!("{at}/run1/b.h5")]);
        assert_eq!(kind(&tree, "s://run2/link/passwd"), Kind::Permission);
    }

    #[test]
    fn buckets_are_looked_at() {
        let tree = tree("memory://looked-at/below");
        is_looked_at(&tree);
        // Of several pages.
        for i in 0..2500 {
            let path = format!("many/{i:04}");
            let mut file = tree.create("s", Path::new(&path), How::New, None).unwrap();
            file.write_all(b"x").unwrap();
            file.commit(false).unwrap();
        }
        let expected: Vec<String> = (0..2500).map(|i| format!("{i:04}")).collect();
        assert_eq!(names(&tree, "s://many", Depth::One), expected);
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
        #[test]
        fn few_names_at_once_are_all_in_order(
            all in proptest::collection::btree_set("[a-e.]{1,3}", 0..60), at_once in 1usize..9,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let all: BTreeSet<String> = all.into_iter().filter(|n| n != "." && n != "..").collect();
            for name in &all {
                std::fs::write(dir.path().join(name), name).unwrap();
            }
            let base = Place::Folder(stead_store::Folder::open(dir.path()).unwrap());
            let mut level = Level::of(base.clone(), PathBuf::new(), at_once);
            let mut told = Vec::new();
            while let Some((name, meta)) = level.next(&base, &Cancel::new()).unwrap() {
                prop_assert!(level.left.len() < at_once);
                prop_assert_eq!(meta.size, name.len() as u64);
                told.push(name.into_string().unwrap());
            }
            prop_assert_eq!(told, all.into_iter().collect::<Vec<_>>());
        }
    }
}
