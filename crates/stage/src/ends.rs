//! From names to open folders: where a transfer begins and where it ends.
//!
//! An [`End`] is a folder that is open and what lies below it. Of a dataspace it is the root, so that nothing leads out; of a
//! path it is the folder that the named thing lies in, found as anybody finds it, links included; of a URL it is the bucket.

use crate::place::{Place, Prefix};
use crate::remote::{Far, Nodes};
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use stead_core::layout::Spaces;
use stead_core::{BucketUrl, Cancel, Error, Kind, Location, Result};
use stead_store::{Folder, Meta, Root, What};

/// How to find a folder again that paths of a journal begin at.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Base {
    /// The root of a dataspace, and the folder or the bucket that it was.
    Space(String, String),
    /// A folder of the system.
    Path(String),
    /// A bucket, by its URL.
    Bucket(String),
    /// One of these of another node.
    Far(String, Box<Base>),
}

impl Base {
    /// Opens it.
    ///
    /// # Errors
    /// Those of [`Root::open`], [`Folder::open`], [`Prefix::open`] and [`Far::open`].
    pub(crate) fn open(
        &self,
        spaces: &Spaces,
        nodes: Option<&Nodes>,
        cancel: &Cancel,
    ) -> Result<Place> {
        let bucket = |url: &str| Prefix::open(&BucketUrl::parse(url)?, cancel).map(Place::Bucket);
        match self {
            Base::Space(name, was) => {
                // The same name may mean another folder by now, such as one of another job.
                let is = spaces.place(name)?;
                if is != was {
                    return Err(Error::usage(format!(
                        "dataspace '{name}' was '{was}' when this transfer began, and is '{is}'"
                    ))
                    .with_hint(format!("give it as it was: --dataspace {name}={was}")));
                }
                if BucketUrl::is_meant(is) {
                    return bucket(is);
                }
                Ok(Place::Folder(Root::open(spaces, name)?.folder()))
            }
            Base::Path(path) => Folder::open(Path::new(path)).map(Place::Folder),
            Base::Bucket(url) => bucket(url),
            Base::Far(node, base) => Far::open(nodes, node, base).map(Place::Far),
        }
    }
}

/// A name below a folder that is open.
#[derive(Debug, Clone)]
pub(crate) struct End {
    pub(crate) base: Base,
    pub(crate) folder: Place,
    /// Relative; empty for the folder itself.
    pub(crate) path: PathBuf,
}

impl End {
    /// What is there.
    ///
    /// # Errors
    /// System errors; those of the store, and of the other node.
    pub(crate) fn meta(&self) -> Result<Option<Meta>> {
        if self.path.as_os_str().is_empty() {
            return self.folder.own_meta().map(Some);
        }
        let (dir, name) = split(&self.path);
        match self.folder.below(dir) {
            Ok(dir) => dir.meta(name),
            Err(e) if e.kind() == Kind::NotFound => Ok(None),
            Err(e) => Err(e),
        }
    }
}

/// The folder of a relative path, and its last step.
pub(crate) fn split(path: &Path) -> (&Path, &OsStr) {
    (path.parent().unwrap_or(Path::new("")), path.file_name().unwrap_or_default())
}

/// An absolute path as text, links as they are.
fn absolute(path: &str) -> Result<PathBuf> {
    std::path::absolute(path).map_err(|e| Error::io("find", path, e))
}

fn text(path: &Path) -> Result<String> {
    let odd = || {
        Error::usage("the path of this folder is not UTF-8 text")
            .at_path(path)
            .with_hint("give it another name, or name a dataspace that it lies in")
    };
    path.to_str().map(str::to_owned).ok_or_else(odd)
}

/// A location as a request of before the process may have moved: paths from the root on.
///
/// # Errors
/// `Usage` where the working directory is not text; system errors.
pub fn fixed(location: &Location) -> Result<Location> {
    match location.space.is_some() || location.node.is_some() {
        true => Ok(location.clone()),
        false => Ok(Location { path: text(&absolute(&location.path)?)?, ..location.clone() }),
    }
}

fn by_path(path: &Path) -> Result<Base> {
    Ok(Base::Path(text(path)?))
}

/// A source that is there, named without a pattern. A link that is named by its path is followed if `follow`.
///
/// # Errors
/// `NotFound`; those of opening.
pub(crate) fn source(
    spaces: &Spaces,
    location: &Location,
    follow: bool,
    cancel: &Cancel,
) -> Result<End> {
    if let Some(space) = &location.space {
        return of_space(spaces, space, location, cancel);
    }
    let path = absolute(&location.path)?;
    let whole = |path: &Path| {
        let folder = Place::Folder(Folder::open(path)?);
        Ok(End { base: by_path(path)?, folder, path: PathBuf::new() })
    };
    let in_folder = |dir: &Path, name: &OsStr| {
        let folder = Place::Folder(Folder::open(dir)?);
        Ok(End { base: by_path(dir)?, folder, path: PathBuf::from(name) })
    };
    // `..` and its like: where it leads, and not what it is called.
    let Some(name) = path.file_name().filter(|_| location.name().is_some()) else {
        return whole(&canonical(&path)?);
    };
    if location.inside {
        return whole(&path);
    }
    let dir = path.parent().unwrap_or(Path::new("/"));
    let end = in_folder(dir, name)?;
    let link = || Ok::<_, Error>(end.folder.meta(name)?.is_some_and(|m| m.what == What::Link));
    if follow && link()? {
        let real = canonical(&path).map_err(|e| match e.kind() {
            Kind::NotFound => leads_nowhere(&path),
            _ => e,
        })?;
        let (dir, name) = split(&real);
        return in_folder(dir, name);
    }
    Ok(end)
}

/// As [`source`], here or on another node.
///
/// # Errors
/// Those of [`source`] and of [`Far::find`].
pub(crate) fn anywhere(
    spaces: &Spaces,
    nodes: Option<&Nodes>,
    location: &Location,
    follow: bool,
    cancel: &Cancel,
) -> Result<End> {
    match &location.node {
        Some(node) => Far::find(nodes, node, location, follow),
        None => source(spaces, location, follow, cancel),
    }
}

/// The folder that all names which match a pattern lie below, and the pattern from there on.
///
/// # Errors
/// `Usage` for a `..` behind a wildcard.
pub(crate) fn pattern_of(spaces: &Spaces, location: &Location) -> Result<(Location, String)> {
    let (base, rest) = match &location.space {
        Some(_) => {
            let url = bucket_of(spaces, location);
            let (root, rest) = url.unwrap_or(("", &location.path));
            (Location { path: root.to_owned(), ..location.clone() }, rest.to_owned())
        }
        None => literal(location)?,
    };
    Ok((Location { inside: true, ..base }, rest))
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

fn of_space(spaces: &Spaces, space: &str, location: &Location, cancel: &Cancel) -> Result<End> {
    let (base, path) = match bucket_of(spaces, location) {
        Some((bucket, key)) => {
            let url = BucketUrl::parse(&format!("{space}://{bucket}"))?;
            (Base::Bucket(url.to_string()), key)
        }
        None => {
            let place = spaces.place(space)?.to_owned();
            (Base::Space(space.to_owned(), place), &*location.path)
        }
    };
    Ok(End { folder: base.open(spaces, None, cancel)?, base, path: PathBuf::from(path) })
}

/// The bucket and the key of a location that is a URL. A dataspace may have the name of a protocol, and goes first.
pub(crate) fn bucket_of<'l>(spaces: &Spaces, location: &'l Location) -> Option<(&'l str, &'l str)> {
    let space = location.space.as_deref()?;
    let url = BucketUrl::is_scheme(space) && !spaces.has(space);
    url.then(|| location.path.split_once('/').unwrap_or((&location.path, "")))
}

fn leads_nowhere(path: &Path) -> Error {
    Error::new(Kind::NotFound, "this is a link to something that is not there")
        .at_path(path)
        .with_hint("make what it leads to, or name the folder that the link lies in: there it is copied as a link")
}

fn canonical(path: &Path) -> Result<PathBuf> {
    std::fs::canonicalize(path).map_err(|e| Error::io("find", path, e))
}

/// A target, which may not be there yet: of a path, from the last folder of it that is there.
///
/// # Errors
/// Those of opening; `Usage` where a file is in the way.
pub(crate) fn target(spaces: &Spaces, location: &Location, cancel: &Cancel) -> Result<End> {
    if let Some(space) = &location.space {
        return of_space(spaces, space, location, cancel);
    }
    let path = absolute(&location.path)?;
    // Up to the last `..` it has no sense of its own before all of it is there.
    let steps: Vec<_> = path.components().collect();
    let path = match steps.iter().rposition(|c| c.as_os_str() == "..") {
        Some(last) => {
            let (up, rest) = steps.split_at(last + 1);
            let up: PathBuf = up.iter().collect();
            rest.iter().fold(canonical(&up)?, |path, step| path.join(step))
        }
        None => path,
    };
    let mut here = path.as_path();
    loop {
        match Folder::open(here) {
            Ok(folder) => {
                let rest = path.strip_prefix(here).unwrap_or(Path::new("")).to_owned();
                let folder = Place::Folder(folder);
                return Ok(End { base: by_path(here)?, folder, path: rest });
            }
            Err(e) if here == path && matches!(e.kind(), Kind::Usage | Kind::NotFound) => {}
            Err(e) if e.kind() == Kind::NotFound => {}
            Err(e) => return Err(e),
        }
        here = here.parent().unwrap_or(Path::new("/"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn location(text: &str) -> Location {
        Location::parse(text, &|_| None).unwrap()
    }

    #[test]
    fn paths_are_found_as_anybody_finds_them() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir(dir.join("a")).unwrap();
        std::fs::write(dir.join("a/f"), b"x").unwrap();
        std::os::unix::fs::symlink("a/f", dir.join("l")).unwrap();
        std::os::unix::fs::symlink("a", dir.join("d")).unwrap();
        let spaces = Spaces::default();
        let of = |text: &str, follow| {
            let end = source(
                &spaces,
                &location(&format!("{}/{text}", dir.display())),
                follow,
                &Cancel::new(),
            )
            .unwrap();
            (end.folder.shown().strip_prefix(&dir).unwrap().to_owned(), end.path)
        };
        let pair = |a: &str, b: &str| (PathBuf::from(a), PathBuf::from(b));
        assert_eq!(of("a/f", true), pair("a", "f"));
        assert_eq!(of("l", true), pair("a", "f"));
        assert_eq!(of("l", false), pair("", "l"));
        assert_eq!(of("d/f", false), pair("d", "f"));
        assert_eq!(of("a/", true), pair("a", ""));
        assert_eq!(of("a/..", true), pair("", ""));
        let to = |text: &str| {
            let end =
                target(&spaces, &location(&format!("{}/{text}", dir.display())), &Cancel::new())
                    .unwrap();
            (end.folder.shown().strip_prefix(&dir).unwrap().to_owned(), end.path)
        };
        assert_eq!(to("a"), pair("a", ""));
        assert_eq!(to("a/f"), pair("a", "f"));
        assert_eq!(to("new/b/c"), pair("", "new/b/c"));
        assert_eq!(to("a/../new"), pair("", "new"));
        let bad = location(&format!("{}/a/f/g", dir.display()));
        assert_eq!(target(&spaces, &bad, &Cancel::new()).unwrap_err().kind(), Kind::Usage);
    }

    #[test]
    fn dataspaces_begin_at_their_root() {
        let dir = tempfile::tempdir().unwrap();
        let mut spaces = Spaces::default();
        spaces.give(&format!("s={}", dir.path().display()), &|_| None).unwrap();
        let end = source(&spaces, &location("s://a/b"), true, &Cancel::new()).unwrap();
        let base = Base::Space("s".into(), dir.path().display().to_string());
        assert_eq!((&end.base, end.path), (&base, PathBuf::from("a/b")));
        end.base.open(&spaces, None, &Cancel::new()).unwrap();
        // Another folder of the same name is another place.
        let mut others = Spaces::default();
        others.give("s=/tmp", &|_| None).unwrap();
        assert_eq!(end.base.open(&others, None, &Cancel::new()).unwrap_err().kind(), Kind::Usage);
        assert_eq!(
            target(&spaces, &location("t://a"), &Cancel::new()).unwrap_err().kind(),
            Kind::Usage
        );
    }
}
