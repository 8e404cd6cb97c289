//! Dataspaces as a file system, for `stead.FileSystem`.

use crate::errors::raise;
use crate::fork;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::ffi::OsString;
use std::os::fd::{AsFd, IntoRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use stead::daemon::{dataspaces_besides, dataspaces_named};
use stead::stage::tree::{Entry, How, Listed, Reading as Opening, Tree as Inner, Writing as File};
use stead::stage::{FileTime, What, dataspaces};
use stead::{Error, Result};

/// Dataspaces, by their names.
#[pyclass(frozen, module = "stead._stead")]
pub struct Tree {
    /// With those of the daemon that were named so far.
    inner: RwLock<Arc<Inner>>,
    born: u32,
}

/// A file that is open for reading.
#[pyclass(frozen, module = "stead._stead")]
pub struct Opened {
    inner: Mutex<Option<Arc<Opening>>>,
    size: u64,
    is_object: bool,
    born: u32,
}

/// A file that is written; it leaves nothing unless it is committed.
#[pyclass(frozen, module = "stead._stead")]
pub struct Writing {
    inner: Mutex<Option<File>>,
    is_object: bool,
    /// Its dataspace has a quota.
    is_bound: bool,
    born: u32,
}

/// Name, what it is, bytes, times of change (of its bytes, of anything), rights, number on the device, names, user, group.
type Told = (OsString, &'static str, u64, f64, f64, u32, u64, u64, u32, u32);

fn told(entry: Entry) -> Told {
    let m = entry.meta;
    let what = match m.what {
        What::File => "file",
        What::Folder => "directory",
        What::Link => "link",
        What::Special => "other",
    };
    let time = |t: FileTime| t.seconds as f64 + f64::from(t.nanos) * 1e-9;
    let times = (time(m.mtime), time(m.ctime));
    (entry.name, what, m.size, times.0, times.1, m.mode, m.ino, m.links, m.uid, m.gid)
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Connections to object stores stay with the process that made them.
fn refuse(born: u32) -> PyResult<()> {
    fork::refuse(born, "object stores were asked", "open the file system in each process")
}

impl Tree {
    fn now(&self) -> Arc<Inner> {
        self.inner.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The dataspaces, with this one if no file has it and the daemon of the node does.
    fn knowing(&self, py: Python<'_>, space: &str) -> PyResult<Arc<Inner>> {
        let inner = self.now();
        if inner.spaces().has(space) {
            return Ok(inner);
        }
        let found = py.detach(|| dataspaces_named(inner.spaces(), [space])).map_err(raise)?;
        if found.names().next().is_none() {
            return Ok(inner);
        }
        let mut now = self.inner.write().unwrap_or_else(PoisonError::into_inner);
        let more = Arc::new(Inner::clone(&now).knowing(found));
        *now = more.clone();
        Ok(more)
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        space: &str,
        question: impl FnOnce(&Inner) -> Result<T> + Send,
    ) -> PyResult<T> {
        let inner = self.knowing(py, space)?;
        if self.born != fork::generation() && inner.is_bucket(space).unwrap_or(false) {
            refuse(self.born)?;
        }
        py.detach(|| question(&inner)).map_err(raise)
    }
}

#[pymethods]
impl Tree {
    #[new]
    fn new(py: Python<'_>, given: Vec<String>) -> PyResult<Tree> {
        let open = || {
            let mut spaces = dataspaces()?;
            for one in &given {
                spaces.give(one, &|name| std::env::var(name).ok())?;
            }
            Ok(Inner::new(spaces))
        };
        let inner = py.detach(open).map_err(raise)?;
        Ok(Tree { inner: RwLock::new(Arc::new(inner)), born: fork::generation() })
    }

    /// The names of all dataspaces, those of the daemon among them, if one runs and answers.
    fn spaces(&self, py: Python<'_>) -> Vec<String> {
        let inner = self.now();
        let others = py.detach(|| dataspaces_besides(inner.spaces())).unwrap_or_default();
        let mut all: Vec<String> =
            inner.spaces().names().chain(others.names()).map(str::to_owned).collect();
        all.sort_unstable();
        all
    }

    /// True if it is a bucket.
    fn is_bucket(&self, py: Python<'_>, space: &str) -> PyResult<bool> {
        self.knowing(py, space)?.is_bucket(space).map_err(raise)
    }

    /// The folder that a dataspace is on this node.
    fn folder(&self, py: Python<'_>, space: &str) -> PyResult<String> {
        self.knowing(py, space)?.spaces().folder(space).map(str::to_owned).map_err(raise)
    }

    /// What a name leads to.
    fn info(&self, py: Python<'_>, space: &str, path: PathBuf) -> PyResult<Told> {
        self.ask(py, space, |tree| tree.info(space, &path)).map(told)
    }

    /// True with what lies in a folder; false with what it is itself.
    fn list(&self, py: Python<'_>, space: &str, path: PathBuf) -> PyResult<(bool, Vec<Told>)> {
        Ok(match self.ask(py, space, |tree| tree.list(space, &path))? {
            Listed::Folder(all) => (true, all.into_iter().map(told).collect()),
            Listed::Other(entry) => (false, vec![told(entry)]),
        })
    }

    /// Opens a file for reading.
    fn open(&self, py: Python<'_>, space: &str, path: PathBuf) -> PyResult<Opened> {
        let inner = self.ask(py, space, |tree| tree.open(space, &path))?;
        let (size, is_object) = match &inner {
            Opening::File(_, meta) => (meta.size, false),
            Opening::Object(object) => (object.size(), true),
        };
        let inner = Mutex::new(Some(Arc::new(inner)));
        Ok(Opened { inner, size, is_object, born: fork::generation() })
    }

    /// Begins a file that replaces another one, is new, or begins with what there is: `replace`, `new`, `append`. It will have so many
    /// bytes, if that is known.
    #[pyo3(signature = (space, path, how, size = None))]
    fn create(
        &self,
        py: Python<'_>,
        space: &str,
        path: PathBuf,
        how: &str,
        size: Option<u64>,
    ) -> PyResult<Writing> {
        let how = match how {
            "replace" => How::Replace,
            "new" => How::New,
            "append" => How::Append,
            how => return Err(raise(Error::internal(format!("no way to write: {how}")))),
        };
        let inner = self.ask(py, space, |tree| tree.create(space, &path, how, size))?;
        let is_object = matches!(inner, File::Object(_));
        let is_bound = matches!(&inner, File::File(file) if file.is_bound());
        Ok(Writing {
            inner: Mutex::new(Some(inner)),
            is_object,
            is_bound,
            born: fork::generation(),
        })
    }

    /// Removes a file; false if it was not there.
    fn remove_file(
        &self,
        py: Python<'_>,
        space: &str,
        path: PathBuf,
        durable: bool,
    ) -> PyResult<bool> {
        self.ask(py, space, |tree| tree.remove_file(space, &path, durable))
    }

    /// Makes a folder; false if it was there.
    fn make_folder(
        &self,
        py: Python<'_>,
        space: &str,
        path: PathBuf,
        parents: bool,
    ) -> PyResult<bool> {
        self.ask(py, space, |tree| tree.make_folder(space, &path, parents))
    }

    /// Removes an empty folder; false if it was not there.
    fn remove_folder(&self, py: Python<'_>, space: &str, path: PathBuf) -> PyResult<bool> {
        self.ask(py, space, |tree| tree.remove_folder(space, &path))
    }
}

fn over() -> PyErr {
    raise(Error::usage("this file is closed"))
}

/// Lets go of something, without the interpreter's lock; in a child that was forked it is left alone: there is no thread of the store.
fn end<T: Send>(born: u32, what: T) {
    match born == fork::generation() {
        true => fork::end(what),
        false => std::mem::forget(what),
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if self.is_object {
            end(self.born, lock(&self.inner).take());
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if self.is_object {
            end(self.born, lock(&self.inner).take());
        }
    }
}

#[pymethods]
impl Opened {
    /// Bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// True if it is an object, which has no descriptor.
    #[getter]
    fn is_object(&self) -> bool {
        self.is_object
    }

    /// Gives its descriptor away; none for an object.
    fn take(&self) -> Option<RawFd> {
        if self.is_object {
            return None;
        }
        match lock(&self.inner).take().and_then(Arc::into_inner) {
            Some(Opening::File(file, _)) => Some(file.into_raw_fd()),
            _ => None,
        }
    }

    /// These bytes, as far as there are so many.
    fn read<'py>(&self, py: Python<'py>, start: u64, end: u64) -> PyResult<Bound<'py, PyBytes>> {
        if self.is_object {
            refuse(self.born)?;
        }
        let end = end.min(self.size);
        let len = usize::try_from(end.saturating_sub(start)).map_err(|_| over())?;
        // Several threads read at once.
        let inner = lock(&self.inner).clone();
        let read = || match inner.as_deref() {
            Some(Opening::File(file, _)) => {
                let mut bytes = vec![0; len];
                let mut there = 0;
                while there < len {
                    let at = start + there as u64;
                    match file.read_at(&mut bytes[there..], at) {
                        Ok(0) => break,
                        Ok(n) => there += n,
                        Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                        Err(e) => return Err(Error::io("read", "a staged file", e).at_offset(at)),
                    }
                }
                bytes.truncate(there);
                Ok(bytes)
            }
            Some(Opening::Object(object)) => object.read(start..end),
            None => Err(Error::usage("this file is closed")),
        };
        let bytes = py.detach(read).map_err(raise)?;
        Ok(PyBytes::new(py, &bytes))
    }
}

#[pymethods]
impl Writing {
    /// A descriptor of the file, of the caller's own; none for an object.
    fn descriptor(&self) -> PyResult<Option<RawFd>> {
        match &*lock(&self.inner) {
            Some(File::File(file)) => {
                let fd = file.file().as_fd().try_clone_to_owned();
                let failed = |e| raise(Error::io("open", file.path(), e));
                Ok(Some(fd.map_err(failed)?.into_raw_fd()))
            }
            Some(File::Object(_)) => Ok(None),
            None => Err(over()),
        }
    }

    /// Raises in a child that was forked since: it is the file of the parent.
    fn check(&self) -> PyResult<()> {
        fork::refuse(self.born, "this file was opened", "open one in each process")
    }

    /// True if its dataspace has a quota: who writes by its descriptor says before how long it becomes.
    #[getter]
    fn is_bound(&self) -> bool {
        self.is_bound
    }

    /// Somebody is about to make it so long.
    fn grow_to(&self, py: Python<'_>, bytes: u64) -> PyResult<()> {
        let grow = || match &mut *lock(&self.inner) {
            Some(File::File(file)) => file.grow_to(bytes),
            Some(File::Object(_)) => Ok(()),
            None => Err(Error::usage("this file is closed")),
        };
        py.detach(grow).map_err(raise)
    }

    /// Writes behind what was written.
    fn write(&self, py: Python<'_>, bytes: &[u8]) -> PyResult<()> {
        self.check()?;
        let write = || match &mut *lock(&self.inner) {
            Some(file) => file.write_all(bytes),
            None => Err(Error::usage("this file is closed")),
        };
        py.detach(write).map_err(raise)
    }

    /// Gives it its name.
    fn commit(&self, py: Python<'_>, durable: bool) -> PyResult<()> {
        self.check()?;
        let file = lock(&self.inner).take().ok_or_else(over)?;
        py.detach(|| file.commit(durable)).map_err(raise)
    }

    /// Leaves nothing of it, unless it was committed.
    fn discard(&self, py: Python<'_>) {
        // Another thread may be writing to it.
        py.detach(|| match lock(&self.inner).take() {
            Some(file @ File::Object(_)) if self.born != fork::generation() => {
                std::mem::forget(file);
            }
            file => drop(file),
        });
    }
}
