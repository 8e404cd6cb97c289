//! A folder, here or on another node, or what is taken for one in a bucket: names and what they lead to, for those who plan.
//!
//! In a bucket a folder is what keys have in common up to a `/`: it is there as long as something lies in it. What a list has
//! told of its names is kept, so that no name is asked for by itself where many are.

use crate::remote::{Far, FarNames};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::{BucketUrl, Cancel, Error, Kind, Result};
use stead_store::{Bucket, FileTime, Folder, Meta, Object, What, tier};

/// Names that are asked for at a time.
const PAGE: usize = 1000;
/// Objects that are asked for at once where each is a question of its own.
const ASKED_AT_ONCE: usize = 16;
/// Names of a target that are kept: with more of them, each is asked for.
const MOST_KNOWN: usize = 1 << 20;

/// Where names are.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A folder that is open.
    Folder(Folder),
    /// What lies below a prefix.
    Bucket(Prefix),
    /// A folder of another node: a source.
    Far(Far),
}

/// What lies below a prefix of a bucket.
#[derive(Debug, Clone)]
pub(crate) struct Prefix {
    bucket: Bucket,
    /// The number that stands for the bucket.
    dev: u64,
    /// Without `/` at either end; empty for the bucket as a whole.
    path: String,
    known: Arc<Mutex<Known>>,
}

#[derive(Debug, Default)]
struct Known {
    /// There are no others.
    all: bool,
    names: HashMap<String, Meta>,
    /// What some of them have as times of change, where those were asked for.
    times: HashMap<String, Option<FileTime>>,
}

/// A number for a text, as far from those of devices and files as can be.
pub(crate) fn number(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish() | 1 << 63
}

/// What a relative path is as a key.
pub(crate) fn key_of(path: &Path) -> Option<&str> {
    let plain = |c: Component<'_>| matches!(c, Component::Normal(_));
    let text = path.to_str().filter(|text| !text.contains(|c: char| c.is_control()));
    text.filter(|_| path.components().all(plain))
}

/// True if a path is longer than the system takes.
pub(crate) fn is_too_long(e: &Error) -> bool {
    e.os_code() == Some(rustix::io::Errno::NAMETOOLONG.raw_os_error())
}

pub(crate) fn no_key(path: PathBuf) -> Error {
    Error::usage("object stores have no such names: they are UTF-8 text without control characters")
        .at_path(path)
        .with_hint("give it another name, or leave it out")
}

impl Prefix {
    pub(crate) fn open(url: &BucketUrl, cancel: &Cancel) -> Result<Prefix> {
        let bucket = Bucket::open(url)?.stopped_by(cancel);
        let dev = number(&bucket.name().replacen("s3a://", "s3://", 1));
        Ok(Prefix { bucket, dev, path: url.prefix.clone(), known: Arc::default() })
    }

    pub(crate) fn bucket(&self) -> &Bucket {
        &self.bucket
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The key of a relative path.
    pub(crate) fn key(&self, path: &Path) -> Result<String> {
        let text = key_of(path).ok_or_else(|| no_key(self.bucket.shown(&self.path).join(path)))?;
        Ok(match (&*self.path, text) {
            (path, "") => path.to_owned(),
            ("", text) => text.to_owned(),
            (path, text) => format!("{path}/{text}"),
        })
    }

    fn below(&self, path: &Path) -> Result<Prefix> {
        if path.as_os_str().is_empty() {
            return Ok(self.clone());
        }
        Ok(Prefix { path: self.key(path)?, known: Arc::default(), ..self.clone() })
    }

    fn file(&self, key: &str, object: &Object) -> Meta {
        Meta {
            what: What::File,
            size: object.size,
            room: object.size,
            mode: 0o644,
            uid: 0,
            gid: 0,
            dev: self.dev,
            ino: number(key),
            links: 1,
            mtime: object.modified,
            ctime: object.modified,
        }
    }

    fn folder(&self, key: &str) -> Meta {
        let none =
            Object { size: 0, modified: FileTime::default(), mtime: None, mark: None, tag: None };
        Meta { what: What::Folder, mode: 0o755, ..self.file(key, &none) }
    }

    fn meta(&self, name: &OsStr) -> Result<Option<Meta>> {
        let key = self.key(Path::new(name))?;
        {
            let known = self.known();
            let found = name.to_str().and_then(|name| known.names.get(name));
            if found.is_some() || known.all {
                return Ok(found.copied());
            }
        }
        Ok(self.look(&key)?.map(|(meta, _)| meta))
    }

    /// What the store has of a key, and the time of change that it has of an object.
    fn look(&self, key: &str) -> Result<Option<(Meta, Option<FileTime>)>> {
        if let Some(object) = self.bucket.head(key)? {
            return Ok(Some((self.file(key, &object), object.mtime)));
        }
        let some = match self.bucket.page(key, None, 1) {
            Ok(page) => !page.entries.is_empty() || page.next.is_some(),
            // Most servers of files have no lists.
            Err(e) if self.bucket.name().starts_with("http") && e.kind() != Kind::Cancelled => {
                false
            }
            Err(e) => return Err(e),
        };
        Ok(some.then(|| (self.folder(key), None)))
    }

    fn changed(&self, name: &OsStr) -> Result<Option<FileTime>> {
        let known = name.to_str().and_then(|name| self.known().times.get(name).copied());
        match known {
            Some(time) => Ok(time),
            None => Ok(self.bucket.head(&self.key(Path::new(name))?)?.and_then(|o| o.mtime)),
        }
    }

    /// Asks for the times of many names at once, as each will be looked for.
    fn know_times(&self, names: &[&OsStr]) -> Result<()> {
        let found = ask_all(names, |name| self.changed(OsStr::new(name)))?;
        self.known().times.extend(found);
        Ok(())
    }

    /// The same of what they lead to, where nobody lists what else there is.
    fn know_names(&self, names: &[&OsStr]) -> Result<()> {
        let found = ask_all(names, |name| self.look(&self.key(Path::new(name))?))?;
        let mut known = self.known();
        for (name, found) in found {
            let Some((meta, changed)) = found else { continue };
            if meta.what == What::File {
                known.times.insert(name.clone(), changed);
            }
            known.names.insert(name, meta);
        }
        Ok(())
    }

    /// Asks for all names at once, if there are not too many, as all will be looked for.
    fn know(&self) -> Result<()> {
        let (mut names, mut pages) = (HashMap::new(), Pages::default());
        loop {
            let (page, then) = self.page(pages.next.take())?;
            pages.turn(then, page.len(), self)?;
            names.extend(page);
            if names.len() > MOST_KNOWN {
                return Ok(());
            }
            if pages.next.is_none() {
                *self.known() = Known { all: true, names, ..Known::default() };
                return Ok(());
            }
        }
    }

    fn page(&self, from: Option<String>) -> Result<(HashMap<String, Meta>, Option<String>)> {
        let first = from.is_none();
        let page = self.bucket.page(&self.path, from, PAGE)?;
        let mut names: HashMap<String, Meta> = HashMap::with_capacity(page.entries.len());
        let whole = first && page.next.is_none();
        for entry in page.entries {
            let key = self.key(Path::new(&entry.name))?;
            let meta = match &entry.object {
                Some(object) => self.file(&key, object),
                None => self.folder(&key),
            };
            // Of many pages, both may be on different ones.
            let folder = meta.what == What::Folder;
            if names.contains_key(&entry.name)
                || folder && !whole && self.bucket.head(&key)?.is_some()
            {
                return Err(Error::usage("this is an object, and others lie below it")
                    .at_path(self.bucket.shown(&key))
                    .with_hint("no folder can have that: stage both by themselves, the second with a '/' at its end"));
            }
            names.insert(entry.name, meta);
        }
        Ok((names, page.next))
    }
}

/// Asks something of each of these names, of several at once. What no text is no store has.
fn ask_all<T: Send>(
    names: &[&OsStr],
    ask: impl Fn(&str) -> Result<T> + Sync,
) -> Result<Vec<(String, T)>> {
    let next = AtomicUsize::new(0);
    let work = || -> Result<Vec<(String, T)>> {
        let mut found = Vec::new();
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            if let Some(text) = name.to_str() {
                found.push((text.to_owned(), ask(text)?));
            }
        }
        Ok(found)
    };
    let threads = names.len().min(ASKED_AT_ONCE);
    let answers: Vec<Result<Vec<(String, T)>>> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let panicked = |_| Err(Error::internal("a thread that asks a store panicked"));
        asking.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
    });
    let mut all = Vec::with_capacity(names.len());
    for found in answers {
        all.extend(found?);
    }
    Ok(all)
}

/// How far a list of a store is. One that comes back to where it was, or has nothing but promises, would never end.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    /// What to ask for the next one with; none at the beginning, and none after the last one.
    next: Option<String>,
    /// A token of before, and so many pages since then: another one is kept whenever these are twice as many (Brent 1980).
    kept: Option<String>,
    since: u64,
    until: u64,
    /// Pages without a name, one after the other.
    empty: u32,
}

/// Pages without a name that may follow each other.
const MOST_EMPTY: u32 = 1000;

impl Pages {
    /// After a page with so many names.
    fn turn(&mut self, next: Option<String>, names: usize, of: &Prefix) -> Result<()> {
        self.empty = if names == 0 { self.empty + 1 } else { 0 };
        let again = next.is_some() && next == self.kept;
        self.next = next;
        if self.next.is_some() && (again || self.empty > MOST_EMPTY) {
            let message = match again {
                true => "the store lists the same names again and again",
                false => "the store lists no names, and says that more come, again and again",
            };
            return Err(Error::format(message)
                .at_path(of.bucket.shown(&of.path))
                .with_hint("nothing was copied of it; ask those who run the store"));
        }
        self.since += 1;
        if self.since >= self.until {
            (self.since, self.until) = (0, self.until.max(1) * 2);
            self.kept.clone_from(&self.next);
        }
        Ok(())
    }
}

/// Names of a place, some at a time.
pub(crate) enum Names {
    Folder(stead_store::folder::Names),
    Bucket { of: Prefix, pages: Pages, ended: bool },
    Far(FarNames),
}

impl Iterator for Names {
    type Item = Result<Vec<OsString>>;

    fn next(&mut self) -> Option<Self::Item> {
        let (of, pages, ended) = match self {
            Names::Folder(names) => return names.next(),
            Names::Far(names) => return names.next(),
            Names::Bucket { of, pages, ended } => (of, pages, ended),
        };
        if *ended {
            return None;
        }
        let sorted = |names: &HashMap<String, Meta>| {
            let mut names: Vec<OsString> = names.keys().map(OsString::from).collect();
            names.sort_unstable();
            names
        };
        let first = pages.next.is_none();
        if first && of.known().all {
            *ended = true;
            return Some(Ok(sorted(&of.known().names)));
        }
        let page = of.page(pages.next.take()).and_then(|(names, then)| {
            pages.turn(then, names.len(), of)?;
            Ok(names)
        });
        match page {
            Ok(names) => {
                *ended = pages.next.is_none();
                let list = sorted(&names);
                let all = first && *ended;
                *of.known() = Known { all, names, ..Known::default() };
                Some(Ok(list))
            }
            Err(e) => {
                *ended = true;
                Some(Err(e))
            }
        }
    }
}

impl Place {
    /// The folder that it is.
    ///
    /// # Errors
    /// `Internal` of a bucket, or of another node: nothing that takes a folder is planned for one.
    pub(crate) fn folder(&self) -> Result<&Folder> {
        match self {
            Place::Folder(folder) => Ok(folder),
            Place::Bucket(_) | Place::Far(_) => {
                Err(Error::internal("something else where a folder is needed"))
            }
        }
    }

    pub(crate) fn bucket(&self) -> Option<&Prefix> {
        match self {
            Place::Folder(_) | Place::Far(_) => None,
            Place::Bucket(prefix) => Some(prefix),
        }
    }

    pub(crate) fn far(&self) -> Option<&Far> {
        match self {
            Place::Far(far) => Some(far),
            Place::Folder(_) | Place::Bucket(_) => None,
        }
    }

    /// The text of a link.
    ///
    /// # Errors
    /// System errors.
    pub(crate) fn read_link(&self, name: &OsStr) -> Result<OsString> {
        match self {
            Place::Far(far) => far.read_link(name),
            place => place.folder()?.read_link(name),
        }
    }

    pub(crate) fn shown(&self) -> PathBuf {
        match self {
            Place::Folder(folder) => folder.shown().to_owned(),
            Place::Bucket(p) => p.bucket.shown(&p.path),
            Place::Far(far) => far.shown(),
        }
    }

    /// The path of a name in it, for people.
    pub(crate) fn at(&self, name: &OsStr) -> PathBuf {
        match self {
            Place::Folder(folder) => folder.at(name),
            Place::Bucket(_) | Place::Far(_) => self.shown().join(name),
        }
    }

    /// What lies at a relative path. In a bucket, and on another node, that is never an error: there may be nothing.
    ///
    /// # Errors
    /// Those of [`Folder::below`]; `Usage` for names that no object has.
    pub(crate) fn below(&self, path: &Path) -> Result<Place> {
        match self {
            Place::Folder(folder) => folder.below(path).map(Place::Folder),
            Place::Bucket(p) => p.below(path).map(Place::Bucket),
            Place::Far(far) => Ok(Place::Far(far.below(path))),
        }
    }

    /// As [`Place::below`], made if it is not there.
    ///
    /// # Errors
    /// Those of [`Folder::make_below`].
    pub(crate) fn make_below(&self, path: &Path) -> Result<Place> {
        match self {
            Place::Folder(folder) => folder.make_below(path).map(Place::Folder),
            Place::Bucket(_) | Place::Far(_) => self.below(path),
        }
    }

    pub(crate) fn enter(&self, name: &OsStr) -> Result<Place> {
        match self {
            Place::Folder(folder) => folder.enter(name).map(Place::Folder),
            Place::Bucket(_) | Place::Far(_) => self.below(Path::new(name)),
        }
    }

    /// Looks whether what lies in a folder may be looked at: one may be open to who lists it alone. What stores and nodes tell of names they
    /// have looked at.
    ///
    /// # Errors
    /// `Permission`; system errors.
    pub(crate) fn check_open(&self) -> Result<()> {
        let Place::Folder(folder) = self else { return Ok(()) };
        match folder.meta(OsStr::new(".")) {
            Err(e) if e.kind() == Kind::Permission => {
                let why = "cannot look at what lies in it: permission denied";
                Err(Error::new(Kind::Permission, why).at_path(folder.shown()))
            }
            looked => looked.map(drop),
        }
    }

    pub(crate) fn own_meta(&self) -> Result<Meta> {
        match self {
            Place::Folder(folder) => folder.own_meta(),
            Place::Bucket(p) => Ok(p.folder(&p.path)),
            Place::Far(far) => far.own_meta(),
        }
    }

    /// What a name leads to. Times of objects are those at which they were put there: see [`Place::changed`].
    ///
    /// # Errors
    /// System errors; those of the store.
    pub(crate) fn meta(&self, name: &OsStr) -> Result<Option<Meta>> {
        match self {
            Place::Folder(folder) => folder.meta(name),
            Place::Bucket(p) => p.meta(name),
            Place::Far(far) => far.meta(name),
        }
    }

    /// When the file was changed that this is, or is a copy of; `None` for an object of which nobody has said so.
    ///
    /// # Errors
    /// Those of the store, which is asked for each object that [`Place::know_times`] was not told of.
    pub(crate) fn changed(&self, name: &OsStr, meta: &Meta) -> Result<Option<FileTime>> {
        match self {
            Place::Folder(_) | Place::Far(_) => Ok(Some(meta.mtime)),
            Place::Bucket(p) => p.changed(name),
        }
    }

    /// See [`Folder::names`].
    ///
    /// # Errors
    /// System errors; those of the store come with the names.
    pub(crate) fn names(&self, most: usize) -> Result<Names> {
        Ok(match self {
            Place::Folder(folder) => Names::Folder(folder.names(most)?),
            Place::Bucket(p) => {
                Names::Bucket { of: p.clone(), pages: Pages::default(), ended: false }
            }
            Place::Far(far) => Names::Far(far.names()?),
        })
    }

    /// Many of its names will be looked for.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn know(&self) -> Result<()> {
        match self {
            Place::Folder(_) | Place::Far(_) => Ok(()),
            Place::Bucket(p) => p.know(),
        }
    }

    /// These of its names will be looked for, and perhaps no others.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn know_names(&self, names: &[&OsStr]) -> Result<()> {
        match self {
            Place::Folder(_) | Place::Far(_) => Ok(()),
            Place::Bucket(p) => p.know_names(names),
        }
    }

    /// The times of change of these of its names will be looked for.
    ///
    /// # Errors
    /// Those of the store.
    pub(crate) fn know_times(&self, names: &[&OsStr]) -> Result<()> {
        match self {
            Place::Folder(_) | Place::Far(_) => Ok(()),
            Place::Bucket(p) => p.know_times(names),
        }
    }

    /// What the times of transfers are kept by.
    pub(crate) fn tier(&self) -> Option<String> {
        match self {
            Place::Folder(folder) => tier::name_of(folder).ok(),
            Place::Bucket(p) => Some(p.bucket.name().to_owned()),
            Place::Far(far) => far.tier(),
        }
    }

    /// Device and number of it and of all folders that it lies in.
    pub(crate) fn ancestors(&self, path: &Path) -> Vec<(u64, u64)> {
        match self {
            // Who clears something walks down to what is kept.
            Place::Far(_) => Vec::new(),
            Place::Folder(folder) => folder.ancestors(path),
            Place::Bucket(p) => {
                let whole = Path::new(&p.path).join(path);
                let key = |path: &Path| {
                    (p.dev, number(&String::from_utf8_lossy(path.as_os_str().as_bytes())))
                };
                whole.ancestors().skip(1).map(key).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_store::Label;

    #[test]
    fn what_names_lead_to_is_asked_for_before_it_is_looked_for() {
        let url = BucketUrl::parse("memory://together/run").unwrap();
        let of = Prefix::open(&url, &Cancel::new()).unwrap();
        let label = Label { mtime: FileTime { seconds: 7, nanos: 0 }, mark: "m-1".into() };
        let many: Vec<String> = (0..50).map(|n| format!("f{n}")).collect();
        for name in many.iter().map(String::as_str).chain(["d/f"]) {
            of.bucket.put(&format!("run/{name}"), b"x".to_vec(), &label, false).unwrap();
        }
        let mut names: Vec<&OsStr> = many.iter().map(OsStr::new).collect();
        names.extend(["d", "none"].map(OsStr::new));
        of.know_names(&names).unwrap();
        // Nothing is asked any more.
        let keys: Vec<String> = many.iter().map(|name| format!("run/{name}")).collect();
        of.bucket.delete(&keys).unwrap();
        of.bucket.delete(&["run/d/f".to_owned()]).unwrap();
        for name in names.iter().take(50) {
            let meta = of.meta(name).unwrap().unwrap();
            assert_eq!((meta.what, meta.size), (What::File, 1));
            assert_eq!(of.changed(name).unwrap(), Some(label.mtime));
        }
        assert_eq!(of.meta(OsStr::new("d")).unwrap().unwrap().what, What::Folder);
        assert!(of.meta(OsStr::new("none")).unwrap().is_none());
        assert!(ask_all(&names, |_| Err::<(), _>(Error::usage("no"))).is_err());
    }

    #[test]
    fn lists_that_never_end_are_noticed() {
        let url = BucketUrl::parse("memory://lists").unwrap();
        let of = Prefix::open(&url, &Cancel::new()).unwrap();
        let ends = |token: &dyn Fn(usize) -> String, names: usize| {
            let mut pages = Pages::default();
            (0..100_000).find(|n| pages.turn(Some(token(*n)), names, &of).is_err())
        };
        // The same token, a round of some, one after many others that were right.
        assert!(ends(&|_| "t".into(), 5).unwrap() < 5);
        assert!(ends(&|n| (n % 7).to_string(), 5).unwrap() < 40);
        assert!(ends(&|n| n.min(1000).to_string(), 5).unwrap() < 4000);
        // New ones for ever, and never a name.
        assert_eq!(ends(&|n| n.to_string(), 0), Some(MOST_EMPTY as usize));
        // A long list is none of that, and the end is one.
        assert_eq!(ends(&|n| n.to_string(), 1), None);
        Pages::default().turn(None, 0, &of).unwrap();
    }
}
