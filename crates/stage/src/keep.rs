//! What users keep: it stays when others' time is over.

use crate::acl::{self, List};
use crate::clock;
use crate::ends;
use crate::manager::Stager;
use rustix::fs::{Mode, OFlags};
use rustix::process::geteuid;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use stead_core::layout::{Spaces, Terms};
use stead_core::{Cancel, Error, Kind, Location, Result};
use stead_store::{Folder, Meta, What};

/// Things that a user may keep or share, and bytes of the text that says what they are: a daemon tells it in one frame.
const MOST: usize = 10_000;
const MOST_BYTES: usize = 3 << 20;
/// Of the times in each.
const TIMES: usize = 48;

/// Something that is kept, or that others may read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Persisted {
    /// As it was named.
    pub location: String,
    /// Where it lies on this node.
    pub path: String,
    /// It is kept.
    pub kept: bool,
    /// In seconds since 1970: until when it is kept; none is for ever.
    pub until: Option<f64>,
    /// Seconds that are left of that; 0 once it is over.
    pub left: Option<f64>,
    /// Users who may read it, by number.
    pub shared: Vec<u32>,
}

impl Stager {
    fn real(&self, location: &Location) -> Result<(ends::End, String)> {
        real(&self.means().spaces, location)
    }

    /// Keeps a file or a folder with all that lies in it, for so many seconds or for ever: neither the end of a job nor that of its time
    /// removes it. Again, it is kept for so long from now on.
    ///
    /// # Errors
    /// `NotFound`; `Usage` for patterns and buckets, and in dataspaces that other nodes clear, too; `Limit`; those of the journal.
    pub fn persist(&self, location: &Location, seconds: Option<u64>) -> Result<()> {
        let (_, path) = self.real(location)?;
        let means = self.means();
        for spaces in [Some(&means.spaces), means.common.as_ref()].into_iter().flatten() {
            let shared = |terms: &Terms| terms.shared && is_cleared(terms);
            if let Some(name) = dataspace_of(spaces, Path::new(&path), &shared) {
                return Err(of_all_nodes(name));
            }
        }
        self.room(|one| one.kept && one.path == path)?;
        let until = seconds.map(|s| clock::unix() + s as f64);
        self.with_room(|| self.journal().keep(&path, &location.to_string(), until))
    }

    /// Refuses more than there may be, but for what is there.
    fn room(&self, is_there: impl Fn(&Persisted) -> bool) -> Result<()> {
        let all = self.journal().persisted()?;
        let entries = |one: &Persisted| usize::from(one.kept) + one.shared.len();
        let text = |one: &Persisted| serde_json::to_vec(one).map_or(0, |text| text.len() + TIMES);
        let (many, long) = (
            all.iter().map(entries).sum::<usize>() >= MOST,
            all.iter().map(text).sum::<usize>() >= MOST_BYTES,
        );
        if !(many || long) || all.iter().any(is_there) {
            return Ok(());
        }
        let message = match many {
            true => format!("{MOST} things are kept or shared already"),
            false => "the names of what is kept or shared are too long together".to_owned(),
        };
        Err(Error::limit(message).with_hint("stead persist list shows them: let go of some"))
    }

    /// Keeps something no longer. It stays where it is until its time or that of its job is over.
    ///
    /// # Errors
    /// `Usage` if it is not kept; those of the journal.
    pub fn forget(&self, location: &Location) -> Result<()> {
        // It may be gone.
        let path = self.real(location).map(|(_, path)| path);
        let said = location.to_string();
        let path = path.unwrap_or_default();
        match self.journal().keep_no_longer(&path, &said)? {
            true => Ok(()),
            false => Err(Error::usage(format!("'{location}' is not kept"))
                .with_hint("stead persist list shows what is")),
        }
    }

    /// Lets another user read something, with all that lies in it and will: an entry in the access list of each file and folder, and one to
    /// pass through in those folders of this user above it that others cannot. What is another user's in there stays as it is.
    ///
    /// # Errors
    /// `Permission` if it is another user's; `NotFound`; `Usage` for buckets and file systems without access lists.
    pub fn share(&self, location: &Location, user: u32) -> Result<()> {
        let (end, path) = self.real(location)?;
        self.room(|one| one.shared.contains(&user) && one.path == path)?;
        // Noted first: whatever is let in is known of, whenever this ends.
        let new =
            self.with_room(|| self.journal().share(&path, &location.to_string(), user, true))?;
        let shared = Sharing { user, own: geteuid().as_raw(), may: true };
        let done = shared.end(&end).and_then(|()| shared.above(Path::new(&path), &[]));
        if done.is_err() && new {
            // As if nobody had asked, as far as that can be.
            let _ = self.unshare(location, user);
        }
        done
    }

    /// Takes that back. Entries of that user go, by whomever they were made, but where something else is shared with that user. What is
    /// gone meanwhile is named as it was then.
    ///
    /// # Errors
    /// `Usage` if it is not shared with that user; as [`Stager::share`].
    pub fn unshare(&self, location: &Location, user: u32) -> Result<()> {
        let said = location.to_string();
        let mut all = self.journal().persisted()?;
        all.retain(|one| one.shared.contains(&user));
        let found = match self.real(location) {
            Ok(found) => Some(found),
            Err(e) if e.kind() == Kind::NotFound => None,
            Err(e) => return Err(e),
        };
        let is = |one: &Persisted| match &found {
            Some((_, path)) => one.path == *path,
            None => one.location == said,
        };
        let Some(at) = all.iter().position(is) else {
            return Err(Error::usage(format!("'{location}' is not shared with user {user}"))
                .with_hint("stead persist list shows what is"));
        };
        let path = all.swap_remove(at).path;
        let others: Vec<PathBuf> = all.into_iter().map(|one| PathBuf::from(one.path)).collect();
        let own = geteuid().as_raw();
        let shared = Sharing { user, own, may: false };
        // With what it lies in it still is.
        let within = others.iter().any(|other| Path::new(&path).starts_with(other));
        if let (Some((end, _)), false) = (&found, within) {
            shared.end(end)?;
            let again = Sharing { user, own, may: true };
            for other in others.iter().filter(|other| other.starts_with(&path)) {
                again.path(other)?;
                again.above(other, &[])?;
            }
        }
        // What lies above something else that is shared with that user stays open to pass through.
        shared.above(Path::new(&path), &others)?;
        // At last: what is not done now is known of.
        self.journal().share(&path, &said, user, false).map(drop)
    }

    /// What is kept and shared.
    ///
    /// # Errors
    /// Those of the journal.
    pub fn persisted(&self) -> Result<Vec<Persisted>> {
        let mut list = self.journal().persisted()?;
        let now = clock::unix();
        list.iter_mut().for_each(|one| one.left = one.until.map(|until| (until - now).max(0.0)));
        Ok(list)
    }

    /// What is kept at a time, in seconds since 1970, below a folder, relative to it; none if the folder itself is, or one that it lies in.
    pub(crate) fn kept_below(&self, root: &Path, now: f64) -> Result<Option<Vec<PathBuf>>> {
        let root = std::fs::canonicalize(root).map_err(|e| Error::io("find", root, e))?;
        let kept = self.journal().persisted()?.into_iter().filter(|one| one.kept);
        let lasts = kept.filter(|one| one.until.is_none_or(|until| until > now));
        let lasts: Vec<PathBuf> = lasts.map(|one| PathBuf::from(one.path)).collect();
        if lasts.iter().any(|path| root.starts_with(path)) {
            return Ok(None);
        }
        let below = |path: &PathBuf| path.strip_prefix(&root).ok().map(Path::to_owned);
        Ok(Some(lasts.iter().filter_map(below).collect()))
    }
}

/// Where something lies on this node, from the root on, links on the way to it resolved.
///
/// # Errors
/// `NotFound`; `Usage` for patterns, buckets and what lies on other nodes.
pub fn path_of(spaces: &Spaces, location: &Location) -> Result<String> {
    real(spaces, location).map(|(_, path)| path)
}

/// The same, and the folder it is found in.
fn real(spaces: &Spaces, location: &Location) -> Result<(ends::End, String)> {
    if let Some(node) = &location.node {
        return Err(Error::usage(format!("'{location}' lies on another node"))
            .with_hint(format!("say it there, or without '{node}' if that is this one")));
    }
    let end = ends::source(spaces, location, true, &Cancel::new())?;
    let folder = end.folder.folder().map_err(|_| {
        Error::usage(format!("'{location}' lies in a bucket, and this is for folders of the node"))
    })?;
    let base =
        std::fs::canonicalize(folder.shown()).map_err(|e| Error::io("find", folder.shown(), e))?;
    let path = if end.path.as_os_str().is_empty() { base } else { base.join(&end.path) };
    let odd = || Error::usage("the path of this is not UTF-8 text").at_path(&path);
    let text = path.to_str().ok_or_else(odd)?.to_owned();
    if std::fs::symlink_metadata(&path).is_err() {
        // One that is there is a name, whatever is in it.
        if location.is_pattern() {
            let message = format!("'{location}' is a pattern, and one name is needed");
            return Err(Error::usage(message));
        }
        return Err(Error::new(Kind::NotFound, "no such file or folder").at_path(&path));
    }
    Ok((end, text))
}

/// True if what lies in a dataspace is removed some day.
pub fn is_cleared(terms: &Terms) -> bool {
    terms.jobs || terms.expires.is_some()
}

/// The first dataspace of which this is true and that a path lies in, or that lies below it. The path has no links in it.
pub fn dataspace_of<'s>(
    spaces: &'s Spaces,
    path: &Path,
    fits: &dyn Fn(&Terms) -> bool,
) -> Option<&'s str> {
    spaces.names().find(|name| {
        let root = || spaces.folder(name).ok().and_then(|root| std::fs::canonicalize(root).ok());
        spaces.terms(name).is_some_and(fits)
            && root().is_some_and(|root| path.starts_with(&root) || root.starts_with(path))
    })
}

fn of_all_nodes(name: &str) -> Error {
    let message = format!(
        "dataspace '{name}' is shared by nodes, each of which removes what is over there and knows only what it is told to keep itself"
    );
    Error::usage(message)
        .with_hint("copy it to where nothing is removed, or to a dataspace of this node")
}

/// Names of a folder that are looked at together.
const AT_ONCE: usize = 1 << 12;
/// Folders within each other that are looked into.
const DEEPEST: usize = 256;

/// A user is let in, or no longer.
struct Sharing {
    user: u32,
    own: u32,
    may: bool,
}

impl Sharing {
    fn end(&self, end: &ends::End) -> Result<()> {
        let folder = end.folder.folder()?;
        if end.path.as_os_str().is_empty() {
            self.of(folder, &folder.own_meta()?, folder.shown())?;
            return self.tree(folder, DEEPEST);
        }
        let (dir, name) = ends::split(&end.path);
        self.name(&folder.below(dir)?, name, DEEPEST, true)
    }

    /// What is found by this path, links not followed; nothing if it is gone.
    fn path(&self, path: &Path) -> Result<()> {
        let (dir, name) = ends::split(path);
        match Folder::open(dir) {
            Ok(folder) => self.name(&folder, name, DEEPEST, false),
            Err(e) if e.kind() == Kind::NotFound => Ok(()),
            Err(e) => Err(e),
        }
    }

    fn name(&self, folder: &Folder, name: &OsStr, deep: usize, first: bool) -> Result<()> {
        let Some(meta) = folder.meta(name)? else { return Ok(()) };
        if !matches!(meta.what, What::File | What::Folder) || (meta.uid != self.own && !first) {
            return Ok(());
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let shown = folder.at(name);
        let file = match rustix::fs::openat(folder, name, flags, Mode::empty()) {
            Err(rustix::io::Errno::NOENT) if !first => return Ok(()),
            file => file.map_err(|e| Error::io("open", &shown, e.into()))?,
        };
        // What it is now: it may have become something else.
        let meta = Meta::of_file(&file).map_err(|e| Error::io("look at", &shown, e))?;
        if !matches!(meta.what, What::File | What::Folder) || (meta.uid != self.own && !first) {
            return Ok(());
        }
        self.of(&file, &meta, &shown)?;
        match meta.what {
            What::Folder if deep > 0 => self.tree(&folder.enter(name)?, deep - 1),
            _ => Ok(()),
        }
    }

    fn tree(&self, folder: &Folder, deep: usize) -> Result<()> {
        for list in folder.names(AT_ONCE)? {
            for name in list? {
                self.name(folder, &name, deep, false)?;
            }
        }
        Ok(())
    }

    /// Lets the user read a file, or a folder and what will be made in it.
    fn of(&self, file: &impl AsFd, meta: &Meta, shown: &Path) -> Result<()> {
        let folder = meta.what == What::Folder;
        let lists: &[List] = if folder { &[List::Access, List::Default] } else { &[List::Access] };
        let enter = if folder || meta.mode & 0o111 != 0 { acl::ENTER } else { 0 };
        for list in lists {
            let done = match self.may {
                true => {
                    acl::grant(file, *list, meta.mode, self.user, acl::READ | enter).map(|_| ())
                }
                false => acl::revoke(file, *list, self.user, None),
            };
            done.map_err(|e| failed(shown, e))?;
        }
        Ok(())
    }

    /// Lets the user through folders above something, or no longer, but where one of these lies below.
    fn above(&self, path: &Path, others: &[PathBuf]) -> Result<()> {
        for above in path.ancestors().skip(1) {
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let folder = match rustix::fs::open(above, flags, Mode::empty()) {
                Ok(folder) => folder,
                // It is gone with what lay in it.
                Err(rustix::io::Errno::NOENT) => continue,
                Err(_) => return Ok(()),
            };
            let meta = Meta::of_file(&folder).map_err(|e| Error::io("look at", above, e))?;
            if meta.uid != self.own || above == Path::new("/") {
                return Ok(());
            }
            let done = match self.may {
                true if meta.mode & 0o001 != 0 => Ok(()),
                true => {
                    acl::grant(&folder, List::Access, meta.mode, self.user, acl::ENTER).map(|_| ())
                }
                false if others.iter().any(|other| other.starts_with(above)) => Ok(()),
                false => acl::revoke(&folder, List::Access, self.user, Some(acl::ENTER)),
            };
            done.map_err(|e| failed(above, e))?;
        }
        Ok(())
    }
}

fn failed(path: &Path, e: std::io::Error) -> Error {
    match e.kind() {
        std::io::ErrorKind::Unsupported => {
            Error::usage("this file system has no access lists, by which files are shared")
                .at_path(path)
                .with_hint("share it by its group, or mount the file system with lists")
        }
        _ => Error::io("set the access list of", path, e),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::manager::Means;
    use crate::{Cleared, Over};
    use stead_core::layout::Spaces;

    struct Kept {
        dir: tempfile::TempDir,
        stager: Stager,
    }

    /// The dataspace `s` with two files in the folder `d`.
    fn some() -> Kept {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("s/d")).unwrap();
        for name in ["s/d/a", "s/d/b"] {
            std::fs::write(dir.path().join(name), b"x").unwrap();
        }
        let mut spaces = Spaces::default();
        spaces.give(&format!("s={}/s", dir.path().display()), &|_| None).unwrap();
        let means = Means { spaces, ..Means::default() };
        let stager = Stager::open(&dir.path().join("state"), means).unwrap();
        Kept { dir, stager }
    }

    fn at(text: &str) -> Location {
        Location::parse(text, &|_| None).unwrap()
    }

    impl Kept {
        fn clear(&self, before: f64) -> Cleared {
            let times = (before, clock::unix());
            let root = self.dir.path().join("s");
            self.stager.clear((&root, None), Over::Job, times, &|| Ok(())).unwrap()
        }

        fn there(&self) -> Vec<&str> {
            let all = ["s", "s/d", "s/d/a", "s/d/b"];
            all.into_iter().filter(|name| self.dir.path().join(name).exists()).collect()
        }
    }

    #[test]
    fn what_is_kept_as_a_whole_or_with_what_it_lies_in_stays() {
        let later = clock::unix() + 10.0;
        for whole in ["s://", "s://d", "above"] {
            let kept = some();
            let location = match whole {
                "above" => at(kept.dir.path().to_str().unwrap()),
                named => at(named),
            };
            kept.stager.persist(&location, None).unwrap();
            assert_eq!(kept.clear(later), Cleared::default(), "{whole}");
            assert_eq!(kept.there().len(), 4);
            kept.stager.forget(&location).unwrap();
            kept.clear(later);
            assert_eq!(kept.there(), ["s"], "{whole}");
        }
        let kept = some();
        kept.stager.persist(&at("s://d/a"), Some(0)).unwrap();
        kept.clear(later);
        assert_eq!(kept.there(), ["s"], "its time is over");
    }

    #[test]
    fn nothing_is_kept_where_other_nodes_remove_what_they_do_not_know() {
        let kept = some();
        let root = kept.dir.path().join("s").display().to_string();
        let says = |terms: &str| {
            let text = format!("[dataspace.s]\npath = \"{root}\"\n{terms}");
            let spaces = Spaces::parse(&text, &|_| None).unwrap();
            kept.stager.set_means(Means { spaces, ..Means::default() });
            let of = |text: &str| kept.stager.persist(&at(text), None).map_err(|e| e.kind());
            [of("s://d/a"), of("s://"), of(&format!("{root}/d")), of("/")]
        };
        let no = Err(Kind::Usage);
        for terms in ["expires = \"1d\"\nshared = true", "jobs = true\nshared = true"] {
            assert_eq!(says(terms), [no; 4], "{terms}");
        }
        assert_eq!(kept.stager.persisted().unwrap(), []);
        for terms in ["expires = \"1d\"", "jobs = true", "shared = true", ""] {
            assert_eq!(says(terms), [Ok(()); 4], "{terms}");
        }
    }

    #[test]
    fn what_came_since_stays_and_somebody_stops_it() {
        let kept = some();
        let done = kept.clear(clock::unix() - 10.0);
        assert_eq!((done.names, done.young, kept.there().len()), (0, 3, 4));
        let asked = std::cell::Cell::new(0);
        let stops = || match asked.replace(asked.get() + 1) {
            0 | 1 => Ok(()),
            _ => Err(Error::cancelled()),
        };
        let path = kept.dir.path().join("s");
        let e = kept
            .stager
            .clear((&path, None), Over::Job, (clock::unix() + 10.0, clock::unix()), &stops)
            .unwrap_err();
        assert_eq!((e.kind(), kept.there().len()), (Kind::Cancelled, 3));
    }

    #[test]
    fn what_is_gone_is_shared_no_longer() {
        let kept = some();
        match kept.stager.share(&at("s://d/a"), 4711) {
            // Not every file system has access lists.
            Err(e) if e.kind() == Kind::Usage => return,
            done => done.unwrap(),
        }
        let a = kept.dir.path().join("s/d/a");
        std::fs::remove_file(&a).unwrap();
        kept.stager.unshare(&at("s://d/a"), 4711).unwrap();
        assert_eq!(kept.stager.persisted().unwrap(), []);
        let e = kept.stager.unshare(&at("s://d/a"), 4711).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.to_string().contains("not shared"), "{e}");
    }
}
