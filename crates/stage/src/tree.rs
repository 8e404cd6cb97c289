//! What lies in dataspaces, looked at, read and written where it lies, without a transfer.
//!
//! A name is a dataspace and a path below it. No path leads out: folders are entered from the root on, and links are not
//! followed. What is written appears as a whole, when it is [committed](Writing::commit), or not at all; and not at all if a quota
//! of its dataspace leaves no room for it. A [`Location`] of any kind is [looked at](Tree::look), also one of another node.
//!
//! [`Location`]: stead_core::Location

mod looking;

pub use looking::Depth;

use self::looking::Level;
use crate::clock;
use crate::ends::{Base, split};
use crate::place::Place;
use crate::plan::refuse_streams;
use crate::remote::{Nodes, Reach};
use crate::room::{Rooms, Taken};
use crate::rules;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use stead_core::layout::Spaces;
use stead_core::{Cancel, Error, Kind, Result};
use stead_store::{AtomicFile, Bucket, FileTime, Folder, Label, Meta, Object, What};

/// Bytes that go to a bucket at a time. All parts of an object but the last have as many.
const PART: usize = 16 << 20;
/// Parts that stores take of an object.
const MOST_PARTS: usize = 10_000;
/// Names that are asked for at a time.
const PAGE: usize = 1 << 16;

/// A name, and what it leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its last step; empty for the root of a dataspace.
    pub name: OsString,
    /// What the system tells of it. An object has the time at which it was put there, and nobody's rights.
    pub meta: Meta,
}

/// What is at a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Listed {
    /// A folder with these names, in order. What is not whole yet is not among them.
    Folder(Vec<Entry>),
    /// Something else.
    Other(Entry),
}

/// What a new file does with what has its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It replaces it.
    Replace,
    /// That is an error.
    New,
    /// It begins with a copy of it, behind which writing goes on.
    Append,
}

/// A file that is open for reading.
#[derive(Debug)]
pub enum Reading {
    /// Of a folder.
    File(File, Meta),
    /// Of a bucket.
    Object(ObjectReading),
}

/// An object, as it was when it was opened.
#[derive(Debug)]
pub struct ObjectReading {
    bucket: Bucket,
    key: String,
    object: Object,
}

/// A file that is written. Dropped without [`Writing::commit`], it leaves nothing.
#[derive(Debug)]
pub enum Writing {
    /// Into a folder.
    File(FileWriting),
    /// Into a bucket.
    Object(ObjectWriting),
}

/// A file that is written, within the quotas of its dataspace.
#[derive(Debug)]
pub struct FileWriting {
    file: AtomicFile,
    taken: Taken,
}

/// An object that is written, in parts of 16 MiB, of which one is in memory.
#[derive(Debug)]
pub struct ObjectWriting {
    bucket: Bucket,
    key: String,
    new: bool,
    buffer: Vec<u8>,
    /// The number of the upload, and what its parts are called.
    upload: Option<(String, Vec<String>)>,
}

/// Dataspaces by their names.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    spaces: Spaces,
    rooms: Arc<Rooms>,
    cancel: Cancel,
    nodes: Option<Arc<Nodes>>,
}

impl Tree {
    /// Of these dataspaces.
    pub fn new(spaces: Spaces) -> Tree {
        Tree { spaces, rooms: Arc::default(), cancel: Cancel::new(), nodes: None }
    }

    /// The same, which [looks](Tree::look) at other nodes, too.
    #[must_use]
    pub fn reaching(self, reach: Arc<dyn Reach>) -> Tree {
        Tree { nodes: Some(Arc::new(Nodes::new(reach))), ..self }
    }

    /// The same, whose calls to object stores stop when this does.
    #[must_use]
    pub fn stopped_by(self, cancel: &Cancel) -> Tree {
        Tree { cancel: cancel.clone(), ..self }
    }

    /// The same, which knows those of others, too, of whose names there are none here.
    #[must_use]
    pub fn knowing(mut self, others: Spaces) -> Tree {
        self.spaces.fill(others);
        self
    }

    /// The dataspaces.
    pub fn spaces(&self) -> &Spaces {
        &self.spaces
    }

    /// True if a dataspace is a bucket.
    ///
    /// # Errors
    /// `NotFound` if there is no such dataspace.
    pub fn is_bucket(&self, space: &str) -> Result<bool> {
        Ok(self.root(space)?.bucket().is_some())
    }

    fn root(&self, space: &str) -> Result<Place> {
        let place = self.spaces.place(space).map_err(|e| match self.spaces.has(space) {
            true => e,
            false => {
                let hint = e.hint().unwrap_or_default().to_owned();
                Error::new(Kind::NotFound, e.message().to_owned()).with_hint(hint)
            }
        })?;
        Base::Space(space.to_owned(), place.to_owned()).open(&self.spaces, None, &self.cancel)
    }

    /// The root, a path below it that leads nowhere else, and its folder and its last step.
    fn name<'p>(&self, space: &str, path: &'p Path) -> Result<(Place, &'p Path, &'p OsStr)> {
        let root = self.root(space)?;
        if !path.components().all(|step| matches!(step, Component::Normal(_))) {
            return Err(Error::usage("this path leads out of the dataspace")
                .at_path(root.at(path.as_os_str()))
                .with_hint("write it without '..' and without a '/' at its beginning"));
        }
        refuse_streams(path)?;
        let (dir, name) = split(path);
        Ok((root, dir, name))
    }

    /// As [`Tree::name`], of something that is no root.
    fn named<'p>(&self, space: &str, path: &'p Path) -> Result<(Place, &'p Path, &'p OsStr)> {
        let found = self.name(space, path)?;
        if found.2.is_empty() {
            return Err(Error::usage("this is a dataspace as a whole, and a name in it is needed")
                .at_path(found.0.shown()));
        }
        Ok(found)
    }

    /// What a name leads to. Of a bucket this takes one or two requests.
    ///
    /// # Errors
    /// `NotFound`; `Permission` if a link is on the way; `Usage` for paths that lead out of the dataspace; system errors, those
    /// of the store.
    pub fn info(&self, space: &str, path: &Path) -> Result<Entry> {
        let (root, dir, name) = self.name(space, path)?;
        if name.is_empty() {
            return Ok(Entry { name: OsString::new(), meta: root.own_meta()? });
        }
        let at = root.shown().join(path);
        let gone = || Error::new(Kind::NotFound, "there is no such name").at_path(&at);
        let folder = root.below(dir).map_err(|e| match e.kind() {
            // A file is on the way.
            Kind::Usage | Kind::NotFound => gone(),
            _ => e,
        })?;
        let meta = folder.meta(name)?.ok_or_else(gone)?;
        Ok(Entry { name: name.to_owned(), meta })
    }

    /// What lies in a folder. All its names are in memory. Of a bucket it takes a request for each thousand of them.
    ///
    /// # Errors
    /// As [`Tree::info`].
    pub fn list(&self, space: &str, path: &Path) -> Result<Listed> {
        let (root, _, _) = self.name(space, path)?;
        let folder = match root.below(path) {
            Ok(folder) => folder,
            // It may be a file, or nothing.
            Err(e) => {
                let entry = self.info(space, path)?;
                return match entry.meta.what {
                    What::Folder => Err(e),
                    _ => Ok(Listed::Other(entry)),
                };
            }
        };
        let mut all = Vec::new();
        let mut names = Level::of(folder.clone(), PathBuf::new(), usize::MAX);
        while let Some((name, meta)) = names.next(&folder, &self.cancel)? {
            all.push(Entry { name, meta });
        }
        // In a bucket a folder is there if something lies in it, and any name may be looked into.
        if all.is_empty() && root.bucket().is_some() && !path.as_os_str().is_empty() {
            let entry = self.info(space, path)?;
            if entry.meta.what != What::Folder {
                return Ok(Listed::Other(entry));
            }
        }
        // Pages of a bucket have an order of their own.
        all.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(Listed::Folder(all))
    }

    /// Opens a file for reading.
    ///
    /// # Errors
    /// As [`Tree::info`]; `Usage` for what is no file; `Permission` for links.
    pub fn open(&self, space: &str, path: &Path) -> Result<Reading> {
        let (root, dir, name) = self.named(space, path)?;
        let at = root.shown().join(path);
        if let Place::Bucket(prefix) = &root {
            let key = prefix.key(path)?;
            let bucket = prefix.bucket().clone();
            let object = bucket
                .head(&key)?
                .ok_or_else(|| Error::new(Kind::NotFound, "no such object").at_path(at))?;
            return Ok(Reading::Object(ObjectReading { bucket, key, object }));
        }
        let file = root.below(dir)?.folder()?.open_file(name)?;
        let meta = Meta::of_file(&file).map_err(|e| Error::io("look at", &at, e))?;
        match meta.what {
            What::File => Ok(Reading::File(file, meta)),
            _ => Err(Error::usage("this is no regular file").at_path(at)),
        }
    }

    /// Begins a file, and makes the folders that it needs. `size` is what it will have, as far as that is known.
    ///
    /// # Errors
    /// `NoSpace` if a quota of the dataspace leaves less than `size`, before anything is made; `Usage` if the name is taken by something that is not to be replaced, or cannot be, and for [`How::Append`] of a bucket,
    /// whose objects cannot grow; `Permission` if it, or something on the way, is a link; system errors, those of the store.
    pub fn create(&self, space: &str, path: &Path, how: How, size: Option<u64>) -> Result<Writing> {
        let (root, dir, name) = self.named(space, path)?;
        if let Place::Bucket(prefix) = &root {
            let (bucket, key) = (prefix.bucket().clone(), prefix.key(path)?);
            if how == How::Append {
                return Err(Error::usage("objects cannot be appended to")
                    .at_path(bucket.shown(&key))
                    .with_hint("write the whole object"));
            }
            let new = how == How::New;
            return Ok(Writing::Object(ObjectWriting {
                bucket,
                key,
                new,
                buffer: Vec::new(),
                upload: None,
            }));
        }
        let base = Base::Space(space.to_owned(), self.spaces.place(space)?.to_owned());
        let rules = rules::of(&self.spaces, &base, &root, path);
        let mut taken = Taken::none(&self.rooms, rules, &self.cancel);
        taken.grow_to(size.unwrap_or(0))?;
        let place = root.make_below(dir)?;
        let folder = place.folder()?;
        let mut file = folder.write_file(name, how == How::New)?;
        if how == How::Append {
            begin_with(folder, name, &mut file, &mut taken)?;
        }
        Ok(Writing::File(FileWriting { file, taken }))
    }

    /// Makes a folder, durably, with those that it lies in if `parents`. False if it was there. In a bucket folders are there as
    /// long as something lies in them: nothing is done.
    ///
    /// # Errors
    /// `Usage` if something else has the name; as [`Tree::info`].
    pub fn make_folder(&self, space: &str, path: &Path, parents: bool) -> Result<bool> {
        let (root, dir, name) = self.name(space, path)?;
        let Place::Folder(root) = root else { return Ok(true) };
        if name.is_empty() {
            return Ok(false);
        }
        let folder = if parents { root.make_below(dir)? } else { root.below(dir)? };
        let (_, made) = folder.make(name, false)?;
        folder.sync()?;
        Ok(made)
    }

    /// Removes a file, a link or an object, which stays gone if the machine fails, if `durable`. False if it was not there, as far as
    /// the store tells.
    ///
    /// # Errors
    /// `Usage` for a folder; as [`Tree::info`].
    pub fn remove_file(&self, space: &str, path: &Path, durable: bool) -> Result<bool> {
        let (root, dir, name) = self.named(space, path)?;
        if let Place::Bucket(prefix) = &root {
            let failed = prefix.bucket().delete(&[prefix.key(path)?])?.pop();
            return failed.map_or(Ok(true), |(_, e)| Err(e));
        }
        let place = root.below(dir)?;
        let folder = place.folder()?;
        match folder.meta(name)?.map(|meta| meta.what) {
            None => return Ok(false),
            Some(What::Folder) => {
                return Err(Error::usage("this is a folder").at_path(folder.at(name)));
            }
            Some(_) => {}
        }
        let gone = folder.remove_file(name)?;
        if durable {
            folder.sync()?;
        }
        Ok(gone)
    }

    /// Removes an empty folder. False if it was not there; in a bucket it never is, if it is empty.
    ///
    /// # Errors
    /// `Usage` if it is not empty, or no folder; as [`Tree::info`].
    pub fn remove_folder(&self, space: &str, path: &Path) -> Result<bool> {
        let (root, dir, name) = self.named(space, path)?;
        let Place::Folder(root) = root else {
            return match self.list(space, path) {
                Err(e) if e.kind() == Kind::NotFound => Ok(false),
                Err(e) => Err(e),
                Ok(_) => {
                    Err(Error::usage("the folder is not empty").at_path(root.shown().join(path)))
                }
            };
        };
        let folder = root.below(dir)?;
        if folder.meta(name)?.is_some_and(|meta| meta.what != What::Folder) {
            return Err(Error::usage("this is no folder").at_path(folder.at(name)));
        }
        let gone = folder.remove_folder(name)?;
        folder.sync()?;
        Ok(gone)
    }
}

/// Copies what has the name into the file that will have it; blocks are shared where the file system can.
fn begin_with(
    folder: &Folder,
    name: &OsStr,
    file: &mut AtomicFile,
    taken: &mut Taken,
) -> Result<()> {
    let Some(there) = folder.meta(name)? else { return Ok(()) };
    taken.grow_to(there.size)?;
    let mut old = folder.open_file(name)?;
    let failed = |e| Error::io("copy", folder.at(name), e);
    let mut new = file.file();
    std::io::copy(&mut old, &mut new).map_err(failed)?;
    new.seek(SeekFrom::End(0)).map_err(failed)?;
    Ok(())
}

impl ObjectReading {
    /// Bytes.
    pub fn size(&self) -> u64 {
        self.object.size
    }

    /// Its URL, for people.
    pub fn shown(&self) -> PathBuf {
        self.bucket.shown(&self.key)
    }

    /// These bytes, as far as there are so many: one request.
    ///
    /// # Errors
    /// `Changed` if it is another object by now; those of the store.
    pub fn read(&self, range: Range<u64>) -> Result<Vec<u8>> {
        let end = range.end.min(self.object.size);
        if range.start >= end {
            return Ok(Vec::new());
        }
        self.bucket.get(&self.key, range.start..end, Some(&self.object)).map(|(bytes, _)| bytes)
    }
}

impl Writing {
    /// Writes behind what was written.
    ///
    /// # Errors
    /// `NoSpace`; system errors, those of the store.
    pub fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        match self {
            Writing::File(file) => file.write_all(bytes),
            Writing::Object(object) => object.write_all(bytes),
        }
    }

    /// Gives it its name, after its bytes are on the device if `durable`; objects always are.
    ///
    /// # Errors
    /// `Usage` if the name was to be new and is taken by now; those of [`Writing::write_all`]. What had the name is as it was.
    pub fn commit(self, durable: bool) -> Result<()> {
        match self {
            Writing::File(file) => file.commit(durable),
            Writing::Object(object) => object.commit(),
        }
    }
}

impl FileWriting {
    /// The file that is written, for those who write to it by themselves.
    pub fn file(&self) -> &File {
        self.file.file()
    }

    /// Its name, once it has it.
    pub fn path(&self) -> &Path {
        self.file.path()
    }

    /// True if there is a quota: who writes to it by himself says so before, by [`FileWriting::grow_to`].
    pub fn is_bound(&self) -> bool {
        self.taken.is_bound()
    }

    /// Somebody is about to make the file so long.
    ///
    /// # Errors
    /// `NoSpace` if a quota of the dataspace leaves less.
    pub fn grow_to(&mut self, bytes: u64) -> Result<()> {
        self.taken.grow_to(bytes).map_err(|e| e.at_path(self.file.path()))
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<()> {
        if self.is_bound() {
            let failed = |e| Error::io("look at", self.file.path(), e);
            let mut file = self.file.file();
            let at = file.stream_position().map_err(failed)?;
            self.grow_to(at.saturating_add(bytes.len() as u64))?;
        }
        self.file.write_all(bytes)
    }

    fn commit(mut self, durable: bool) -> Result<()> {
        if self.is_bound() {
            // Some of it may have come by ways that nobody has told of.
            let meta = self.file.file().metadata();
            let meta = meta.map_err(|e| Error::io("look at", self.file.path(), e))?;
            self.grow_to(meta.len())?;
        }
        match durable {
            true => self.file.commit()?,
            false => self.file.commit_hint()?,
        }
        self.taken.keep();
        Ok(())
    }
}

impl ObjectWriting {
    fn label(&self) -> Label {
        let now = clock::unix();
        let nanos = (now.fract() * 1e9) as u32;
        // No transfer has put it there.
        Label { mtime: FileTime { seconds: now as i64, nanos }, mark: String::new() }
    }

    fn write_all(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            if self.buffer.len() == PART {
                self.send()?;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PART - self.buffer.len()));
            self.buffer.extend_from_slice(now);
            bytes = later;
        }
        Ok(())
    }

    /// Uploads what is in memory as a part.
    fn send(&mut self) -> Result<()> {
        if self.upload.is_none() {
            self.upload = Some((self.bucket.begin(&self.key, &self.label())?, Vec::new()));
        }
        let Some((upload, parts)) = &mut self.upload else { return Ok(()) };
        if parts.len() >= MOST_PARTS {
            let most = stead_core::units::format_size((MOST_PARTS * PART) as u64);
            return Err(Error::limit(format!("an object of more than {most}"))
                .at_path(self.bucket.shown(&self.key))
                .with_hint("write a file and stage it"));
        }
        let bytes = std::mem::take(&mut self.buffer);
        parts.push(self.bucket.part(&self.key, upload, parts.len(), bytes)?);
        Ok(())
    }

    fn commit(mut self) -> Result<()> {
        if self.upload.is_none() {
            let bytes = std::mem::take(&mut self.buffer);
            return self.bucket.put(&self.key, bytes, &self.label(), !self.new);
        }
        self.send()?;
        if self.new && self.bucket.head(&self.key)?.is_some() {
            return Err(Error::usage("there is something of this name already")
                .at_path(self.bucket.shown(&self.key)));
        }
        // Until it is complete it is given up when this is dropped.
        let Some((upload, parts)) = &self.upload else { return Ok(()) };
        self.bucket.complete(&self.key, upload, parts.clone())?;
        self.upload = None;
        Ok(())
    }
}

impl Drop for ObjectWriting {
    fn drop(&mut self) {
        if let Some((upload, _)) = self.upload.take() {
            // A rule of the bucket for unfinished uploads removes what cannot be removed now.
            let _ = self.bucket.abort(&self.key, &upload);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    fn tree(name: &str, at: &str) -> Tree {
        let mut spaces = Spaces::default();
        spaces.give(&format!("{name}={at}"), &|_| None).unwrap();
        Tree::new(spaces)
    }

    fn names(tree: &Tree, path: &str) -> Vec<(String, What)> {
        match tree.list("s", Path::new(path)).unwrap() {
            Listed::Folder(all) => {
                all.iter().map(|e| (e.name.to_str().unwrap().to_owned(), e.meta.what)).collect()
            }
            Listed::Other(entry) => vec![(format!("={:?}", entry.name), entry.meta.what)],
        }
    }

    fn write(tree: &Tree, path: &str, bytes: &[u8], how: How) -> Result<()> {
        let mut file = tree.create("s", Path::new(path), how, None)?;
        file.write_all(bytes)?;
        file.commit(false)
    }

    fn read(tree: &Tree, path: &str) -> Vec<u8> {
        match tree.open("s", Path::new(path)).unwrap() {
            Reading::File(file, meta) => {
                let mut bytes = vec![0; meta.size as usize];
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0).unwrap();
                bytes
            }
            Reading::Object(object) => object.read(0..u64::MAX).unwrap(),
        }
    }

    /// What folders and buckets have in common.
    fn is_a_tree(tree: &Tree) {
        assert_eq!(names(tree, ""), []);
        write(tree, "a/b/c", b"one", How::New).unwrap();
        assert_eq!(write(tree, "a/b/c", b"two", How::New).unwrap_err().kind(), Kind::Usage);
        assert_eq!(read(tree, "a/b/c"), b"one");
        write(tree, "a/b/c", b"three", How::Replace).unwrap();
        write(tree, "top", b"", How::Replace).unwrap();
        assert_eq!((read(tree, "a/b/c"), read(tree, "top")), (b"three".to_vec(), vec![]));
        assert_eq!(names(tree, ""), [("a".into(), What::Folder), ("top".into(), What::File)]);
        assert_eq!(names(tree, "a"), [("b".into(), What::Folder)]);
        assert_eq!(names(tree, "a/b/c"), [("=\"c\"".into(), What::File)]);
        let info = tree.info("s", Path::new("a/b/c")).unwrap();
        assert_eq!((info.meta.what, info.meta.size), (What::File, 5));
        assert_eq!(tree.info("s", Path::new("a/b")).unwrap().meta.what, What::Folder);
        assert_eq!(tree.info("s", Path::new("")).unwrap().meta.what, What::Folder);
        for none in ["none", "a/none", "none/x"] {
            let path = Path::new(none);
            assert_eq!(tree.info("s", path).unwrap_err().kind(), Kind::NotFound, "{none}");
            assert_eq!(tree.list("s", path).unwrap_err().kind(), Kind::NotFound, "{none}");
            assert_eq!(tree.open("s", path).unwrap_err().kind(), Kind::NotFound, "{none}");
        }
        for out in ["..", "a/../../x", "/etc/passwd"] {
            let path = Path::new(out);
            assert_eq!(tree.info("s", path).unwrap_err().kind(), Kind::Usage, "{out}");
            assert_eq!(tree.list("s", path).unwrap_err().kind(), Kind::Usage, "{out}");
            assert_eq!(tree.open("s", path).unwrap_err().kind(), Kind::Usage, "{out}");
            assert!(tree.create("s", path, How::Replace, None).is_err(), "{out}");
            assert!(tree.make_folder("s", path, true).is_err(), "{out}");
            assert!(tree.remove_folder("s", path).is_err(), "{out}");
        }
        assert_eq!(tree.info("none", Path::new("")).unwrap_err().kind(), Kind::NotFound);
        assert_eq!(tree.open("s", Path::new("")).unwrap_err().kind(), Kind::Usage);
        // Nothing of what was not committed.
        let mut left = tree.create("s", Path::new("left"), How::Replace, None).unwrap();
        left.write_all(&vec![7; PART + 1]).unwrap();
        assert_eq!(names(tree, "").len(), 2);
        drop(left);
        assert_eq!(names(tree, "").len(), 2);
        let large: Vec<u8> = (0..2 * PART + 5).map(|i| (i % 251) as u8).collect();
        write(tree, "large", &large, How::New).unwrap();
        assert!(read(tree, "large") == large);
        assert_eq!(write(tree, "large", &large, How::New).unwrap_err().kind(), Kind::Usage);
        assert!(tree.remove_file("s", Path::new("large"), true).unwrap());
        assert_eq!(names(tree, "").len(), 2);
        assert_eq!(tree.remove_folder("s", Path::new("a/b")).unwrap_err().kind(), Kind::Usage);
        assert!(!tree.remove_folder("s", Path::new("none")).unwrap());
    }

    #[test]
    fn a_folder_is_a_tree() {
        let dir = tempfile::tempdir().unwrap();
        let tree = tree("s", dir.path().to_str().unwrap());
        assert!(!tree.is_bucket("s").unwrap());
        is_a_tree(&tree);
        write(&tree, "a/b/c", b" and four", How::Append).unwrap();
        write(&tree, "fresh", b"x", How::Append).unwrap();
        assert_eq!(
            (read(&tree, "a/b/c"), read(&tree, "fresh")),
            (b"three and four".to_vec(), b"x".to_vec())
        );
        let path = Path::new;
        assert!(!tree.remove_file("s", path("none"), false).unwrap());
        assert_eq!(tree.remove_file("s", path("a/b"), false).unwrap_err().kind(), Kind::Usage);
        assert!(tree.make_folder("s", path("d"), false).unwrap());
        assert!(!tree.make_folder("s", path("d"), false).unwrap());
        let none = tree.make_folder("s", path("n/n"), false).unwrap_err();
        assert_eq!(none.kind(), Kind::NotFound);
        assert!(tree.make_folder("s", path("n/n"), true).unwrap());
        assert!(tree.make_folder("s", path("top"), false).is_err());
        assert!(
            tree.remove_folder("s", path("d")).unwrap()
                && !tree.remove_folder("s", path("d")).unwrap()
        );
        assert_eq!(tree.remove_folder("s", path("top")).unwrap_err().kind(), Kind::Usage);
        assert_eq!(tree.open("s", path("a")).unwrap_err().kind(), Kind::Usage);
        assert_eq!(
            tree.create("s", path("a"), How::Replace, None).unwrap_err().kind(),
            Kind::Usage
        );
        assert_eq!(tree.info("s", path("top/x")).unwrap_err().kind(), Kind::NotFound);
        // Rights stay; any bytes are a name.
        use std::os::unix::fs::PermissionsExt;
        let rights = std::fs::Permissions::from_mode(0o640);
        std::fs::set_permissions(dir.path().join("top"), rights).unwrap();
        write(&tree, "top", b"x", How::Replace).unwrap();
        assert_eq!(tree.info("s", path("top")).unwrap().meta.mode, 0o640);
        let odd = Path::new(OsStr::from_bytes(b"no\xfftext"));
        let mut file = tree.create("s", odd, How::New, None).unwrap();
        file.write_all(b"odd").unwrap();
        file.commit(true).unwrap();
        assert_eq!(tree.info("s", odd).unwrap().meta.size, 3);
    }

    #[test]
    fn a_folder_that_may_not_be_read_is_no_file() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let rights = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        std::fs::create_dir(dir.path().join("closed")).unwrap();
        rights(dir.path(), 0o755);
        rights(&dir.path().join("closed"), 0);
        let tree = tree("s", dir.path().to_str().unwrap());
        // A thread of nobody, whom the system keeps out, as it does not root.
        let kind = std::thread::spawn(move || {
            let nobody = rustix::process::Uid::from_raw(65534);
            if rustix::process::geteuid().is_root() {
                rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
            }
            tree.list("s", Path::new("closed")).unwrap_err().kind()
        });
        assert_eq!(kind.join().unwrap(), Kind::Permission);
        rights(&dir.path().join("closed"), 0o700);
    }

    #[test]
    fn quotas_are_kept_and_nothing_is_half_written() {
        let dir = tempfile::tempdir().unwrap();
        let text =
            format!("[dataspace.s]\npath = \"{}\"\nuser_quota = \"300kB\"\n", dir.path().display());
        let tree = Tree::new(Spaces::parse(&text, &|_| None).unwrap());
        let full = |done: Result<()>| {
            let e = done.unwrap_err();
            assert!(e.kind() == Kind::NoSpace && e.to_string().contains("dataspace 's'"), "{e}");
        };
        let path = Path::new("new/f");
        // What is known before makes not even a folder.
        full(tree.create("s", path, How::New, Some(400_000)).map(drop));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let mut file = tree.create("s", path, How::New, Some(100_000)).unwrap();
        file.write_all(&vec![1; 100_000]).unwrap();
        full(file.write_all(&vec![1; 300_000]));
        drop(file);
        assert_eq!(std::fs::read_dir(dir.path().join("new")).unwrap().count(), 0);
        write(&tree, "new/f", &vec![1; 150_000], How::New).unwrap();
        // What stays as it is in case of need is there twice for a while.
        full(write(&tree, "new/f", &vec![2; 200_000], How::Replace));
        full(write(&tree, "new/f", &vec![2; 100_000], How::Append));
        assert_eq!(read(&tree, "new/f"), vec![1; 150_000]);
        // By ways of its own somebody writes too much: it does not get its name.
        let Writing::File(mut own) = tree.create("s", path, How::Replace, None).unwrap() else {
            panic!()
        };
        assert!(own.is_bound());
        own.grow_to(10).unwrap();
        own.file().set_len(400_000).unwrap();
        full(Writing::File(own).commit(false));
        assert_eq!(read(&tree, "new/f"), vec![1; 150_000]);
        write(&tree, "g", b"fits", How::New).unwrap();
        assert_eq!(std::fs::read_dir(dir.path().join("new")).unwrap().count(), 1);
    }

    #[test]
    fn a_bucket_is_a_tree() {
        let tree = tree("s", "memory://a-tree/below");
        assert!(tree.is_bucket("s").unwrap());
        is_a_tree(&tree);
        let append = tree.create("s", Path::new("top"), How::Append, None).unwrap_err();
        assert_eq!(append.kind(), Kind::Usage);
        assert!(tree.make_folder("s", Path::new("any"), false).unwrap());
        let Reading::Object(object) = tree.open("s", Path::new("a/b/c")).unwrap() else { panic!() };
        assert_eq!((object.size(), object.read(1..3).unwrap()), (5, b"hr".to_vec()));
        assert_eq!(
            (object.read(4..9).unwrap(), object.read(9..10).unwrap()),
            (b"e".to_vec(), vec![])
        );
        write(&tree, "a/b/c", b"other", How::Replace).unwrap();
        assert_eq!(object.read(0..1).unwrap_err().kind(), Kind::Changed);
    }

    #[test]
    fn no_link_leads_out() {
        let dir = tempfile::tempdir().unwrap();
        let (inside, outside) = (dir.path().join("in"), dir.path().join("out"));
        std::fs::create_dir(&inside).unwrap();
        std::fs::create_dir(&outside).unwrap();
        std::fs::write(outside.join("secret"), b"x").unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("d")).unwrap();
        std::os::unix::fs::symlink(outside.join("secret"), inside.join("f")).unwrap();
        let tree = tree("s", inside.to_str().unwrap());
        let kind = |r: Result<()>, what: &str| {
            let e = r.expect_err(what);
            assert!(matches!(e.kind(), Kind::Permission | Kind::Usage), "{what}: {e}");
        };
        assert_eq!(names(&tree, ""), [("d".into(), What::Link), ("f".into(), What::Link)]);
        for path in ["f", "d/secret"] {
            kind(tree.open("s", Path::new(path)).map(drop), path);
            for how in [How::Replace, How::New, How::Append] {
                kind(tree.create("s", Path::new(path), how, None).map(drop), path);
            }
        }
        kind(tree.make_folder("s", Path::new("d/x"), true).map(drop), "make");
        kind(tree.remove_folder("s", Path::new("d")).map(drop), "remove");
        assert_eq!(names(&tree, "d"), [("=\"d\"".into(), What::Link)]);
        assert_eq!(tree.list("s", Path::new("d/secret")).unwrap_err().kind(), Kind::Permission);
        assert_eq!(std::fs::read_dir(&outside).unwrap().count(), 1);
    }
}
