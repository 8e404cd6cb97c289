//! Memory that programs and transfers share, for `stead.region`.

use crate::errors::raise;
use pyo3::prelude::*;
use std::os::fd::{AsFd, IntoRawFd, RawFd};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use stead::stage::{Spaces, dataspaces};
use stead::{Error, Region as Inner, Result};

/// Memory with a name. Python maps it by its descriptor.
#[pyclass(frozen, module = "stead._stead")]
pub struct Region {
    inner: Mutex<Option<Inner>>,
    location: String,
    path: PathBuf,
    size: usize,
}

fn spaces(given: &[String]) -> Result<Spaces> {
    let mut spaces = dataspaces()?;
    for one in given {
        spaces.give(one, &|name| std::env::var(name).ok())?;
    }
    Ok(spaces)
}

impl Region {
    fn ask<T>(&self, question: impl FnOnce(&Inner) -> Result<T>) -> PyResult<T> {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let closed = || Err(Error::usage("this region is closed").at_path(&self.path));
        inner.as_ref().map_or_else(closed, question).map_err(raise)
    }
}

#[pymethods]
impl Region {
    /// Makes one of so many bytes, or opens one that is there.
    #[new]
    fn new(py: Python<'_>, name: &str, size: Option<u64>, given: Vec<String>) -> PyResult<Region> {
        let open = || match size {
            Some(size) => Inner::create(&spaces(&given)?, name, size),
            None => Inner::open(&spaces(&given)?, name),
        };
        let inner = py.detach(open).map_err(raise)?;
        let (location, path, size) = (inner.location(), inner.path().to_owned(), inner.len());
        Ok(Region { inner: Mutex::new(Some(inner)), location, path, size })
    }

    /// What transfers call it.
    #[getter]
    fn location(&self) -> &str {
        &self.location
    }

    /// Its file.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// Bytes.
    #[getter]
    fn size(&self) -> usize {
        self.size
    }

    /// A descriptor of its file, of the caller's own.
    fn descriptor(&self) -> PyResult<RawFd> {
        self.ask(|inner| {
            let fd = inner.as_fd().try_clone_to_owned();
            Ok(fd.map_err(|e| Error::io("open", inner.path(), e))?.into_raw_fd())
        })
    }

    /// Says that its bytes were changed.
    fn touch(&self) -> PyResult<()> {
        self.ask(Inner::touch)
    }

    /// Lets go of it, and says that its bytes were changed.
    fn close(&self) {
        drop(self.inner.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// Removes a region; false if there is none.
#[pyfunction]
pub fn remove_region(py: Python<'_>, name: &str, given: Vec<String>) -> PyResult<bool> {
    py.detach(|| Inner::remove(&spaces(&given)?, name)).map_err(raise)
}

/// All regions, with their bytes.
#[pyfunction]
pub fn list_regions(py: Python<'_>, given: Vec<String>) -> PyResult<Vec<(String, u64)>> {
    py.detach(|| Inner::list(&spaces(&given)?)).map_err(raise)
}
