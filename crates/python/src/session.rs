//! Read sessions: the arguments of Python as those of the library.

use crate::bytes::{self, Part, Writable};
use crate::errors::raise;
use crate::fork;
use crate::options::read_options;
use crate::ranks;
use crate::request::{Asked, Read, seconds};
use crate::tipsy::Tipsy;
use pyo3::exceptions::{PyOverflowError, PyTypeError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use pyo3::types::PyDict;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead::Error;
use stead::read::File;

/// Bytes from which on copying them gives up the interpreter's lock, which costs less than a microsecond.
const LARGE: usize = 64 << 10;

/// A file and a session over a part of it.
#[pyclass(frozen, subclass, module = "stead._stead")]
pub struct Session {
    /// With its file; `None` once it is closed.
    inner: Mutex<Option<Arc<stead::read::Session>>>,
    path: OsString,
    size: u64,
    start: u64,
    stop: u64,
    born: u32,
}

/// A number of bytes.
///
/// # Errors
/// `Usage` for one that no file has; `TypeError` for no whole number.
fn number(given: &Bound<'_, PyAny>, what: &str) -> PyResult<u64> {
    given.extract().map_err(|e: PyErr| {
        if e.is_instance_of::<PyOverflowError>(given.py()) {
            raise(Error::usage(format!("{what} cannot be {given}: it is a number of bytes")))
        } else {
            e
        }
    })
}

fn length(given: &Bound<'_, PyAny>, what: &str) -> PyResult<usize> {
    let n = number(given, what)?;
    usize::try_from(n).map_err(|_| raise(Error::usage(format!("{what} cannot be {n}"))))
}

impl Session {
    /// A session over bytes of a file that is open.
    ///
    /// # Errors
    /// `Usage` if they go past its end.
    pub fn begin(py: Python<'_>, file: File, start: u64, stop: Option<u64>) -> PyResult<Session> {
        let stop = stop.unwrap_or_else(|| file.len());
        let inner = py.detach(|| file.session(start..stop)).map_err(raise)?;
        Ok(Session::of(Arc::new(inner)))
    }

    /// One that was begun elsewhere.
    fn of(inner: Arc<stead::read::Session>) -> Session {
        let (file, range) = (inner.file(), inner.range());
        Session {
            path: file.path().into_os_string(),
            size: file.len(),
            start: range.start,
            stop: range.end,
            inner: Mutex::new(Some(inner)),
            born: fork::generation(),
        }
    }

    /// The session, if it is open and this process's own.
    fn open(&self, py: Python<'_>) -> PyResult<Arc<stead::read::Session>> {
        fork::check(self.born)?;
        let inner = self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner);
        match &*inner {
            Some(session) => Ok(session.clone()),
            None => Err(raise(Error::usage("the read session is closed"))),
        }
    }

    fn ask(
        &self,
        py: Python<'_>,
        offset: &Bound<'_, PyAny>,
        len: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Asked> {
        let (offset, len) = (number(offset, "an offset")?, length(len, "a length")?);
        self.ask_for(py, offset, len, seconds(deadline, "deadline")?)
    }

    fn ask_for(
        &self,
        py: Python<'_>,
        offset: u64,
        len: usize,
        deadline: Option<Duration>,
    ) -> PyResult<Asked> {
        let session = self.open(py)?;
        Ok(Asked::View(session.within(deadline).read(offset, len)))
    }

    /// Fills the first `len` bytes of a buffer, all of them if that is `None`.
    fn ask_into(
        &self,
        buffer: &Bound<'_, PyAny>,
        offset: u64,
        len: Option<usize>,
        deadline: Option<Duration>,
    ) -> PyResult<Asked> {
        let py = buffer.py();
        let session = self.open(py)?;
        let buffer = Writable::new(buffer)?;
        let part = Part { len: len.unwrap_or(buffer.len()), buffer };
        let bytes = part.len;
        let read = if bytes > LARGE {
            py.detach(move || session.within(deadline).read_into(offset, part))
        } else {
            session.within(deadline).read_into(offset, part)
        };
        Ok(Asked::Into(read, bytes))
    }

    /// Copies a few bytes that are there into the start of a buffer; false if they are not there.
    fn copy(
        &self,
        py: Python<'_>,
        buffer: &mut Writable,
        offset: u64,
        len: usize,
    ) -> PyResult<bool> {
        let read = self.open(py)?.read(offset, len);
        // What is not there is cancelled and asked for anew, which costs little beside waiting for it.
        if !read.is_ready() {
            return Ok(false);
        }
        let view = read.wait().map_err(raise)?;
        buffer.as_mut()[..len].copy_from_slice(&view);
        view.check().map_err(raise)?;
        Ok(true)
    }
}

#[pymethods]
impl Session {
    /// `source` is a path, a session whose file is used, a snapshot whose session it is, or what `stead._mpi` makes of a
    /// communicator and a path.
    #[new]
    fn new(
        source: &Bound<'_, PyAny>,
        start: &Bound<'_, PyAny>,
        stop: Option<&Bound<'_, PyAny>>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Session> {
        let py = source.py();
        let range = || {
            let stop = stop.map(|s| number(s, "stop")).transpose()?;
            PyResult::Ok((number(start, "start")?, stop))
        };
        if let Ok(session) = source.cast::<Session>() {
            let file = session.get().open(py)?.file().clone();
            let (start, stop) = range().inspect_err(|e| {
                // Other ranks may be in the same call, and hear of it.
                let why = Error::usage(e.value(py).to_string());
                let _ = py.detach(|| file.refuse_session(why));
            })?;
            return Session::begin(py, file, start, stop);
        }
        if let Ok(snapshot) = source.cast::<Tipsy>() {
            return Ok(Session::of(snapshot.get().session()?));
        }
        let given = || PyResult::Ok((range()?, read_options(options)?));
        if let Ok((maker, data, path)) = source.extract::<(usize, usize, PathBuf)>() {
            let ((start, stop), options) = given().inspect_err(|e| {
                ranks::refuse_ranks(py, maker, data, &e.value(py).to_string());
            })?;
            let file = ranks::open(py, maker, data, &path, &options)?;
            return Session::begin(py, file, start, stop);
        }
        let ((start, stop), options) = given()?;
        let path: PathBuf = source.extract()?;
        let file = py.detach(|| stead::read::open(&path, &options)).map_err(raise)?;
        Session::begin(py, file, start, stop)
    }

    /// Asks for `length` bytes from `offset` of the file. The read's result is a View.
    #[pyo3(signature = (offset, length, *, deadline = None))]
    fn read(
        &self,
        py: Python<'_>,
        offset: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Read> {
        Ok(Read::new(self.ask(py, offset, length, deadline)?))
    }

    /// Waits for `length` bytes from `offset` of the file: `read(offset, length).result()`.
    #[pyo3(signature = (offset, length, *, deadline = None))]
    fn pread(
        &self,
        py: Python<'_>,
        offset: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        Read::at_once(py, self.ask(py, offset, length, deadline)?)
    }

    /// Fills a writable buffer from `offset` of the file. The read's result is the buffer.
    #[pyo3(signature = (buffer, offset, *, deadline = None))]
    fn read_into(
        &self,
        buffer: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Read> {
        let offset = number(offset, "an offset")?;
        Ok(Read::new(self.ask_into(buffer, offset, None, seconds(deadline, "deadline")?)?))
    }

    /// Fills a writable buffer from `offset` of the file as far as the session goes; waits, and returns the number of
    /// bytes.
    #[pyo3(signature = (buffer, offset, *, deadline = None))]
    fn pread_into(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        offset: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<usize> {
        let offset = number(offset, "an offset")?;
        let deadline = seconds(deadline, "deadline")?;
        let mut memory = Writable::new(buffer)?;
        let left = usize::try_from(self.stop.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = left.min(memory.len());
        let copied = match len {
            0 => self.open(py).map(|_| true),
            // Without a call of the system, if it lies in a mapping.
            1..=LARGE => self.copy(py, &mut memory, offset, len),
            _ => Ok(false),
        };
        drop(memory);
        bytes::release(py);
        if !copied? {
            Read::at_once(py, self.ask_into(buffer, offset, Some(len), deadline)?)?;
        }
        Ok(len)
    }

    /// Asks for several ranges: pairs of offset and length.
    #[pyo3(name = "_ranges")]
    fn read_ranges(
        &self,
        py: Python<'_>,
        ranges: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Vec<Read>> {
        let deadline = seconds(deadline, "deadline")?;
        let pair = |range: PyResult<Bound<'_, PyAny>>| {
            let pair: Vec<Bound<'_, PyAny>> = range?.extract()?;
            let [offset, len] = pair.as_slice() else {
                return Err(PyTypeError::new_err("a range is a pair of offset and length"));
            };
            Ok((number(offset, "an offset")?, length(len, "a length")?))
        };
        // All are looked at before one is asked for.
        let ranges = ranges.try_iter()?.map(pair).collect::<PyResult<Vec<_>>>()?;
        let ask = |(offset, len)| Ok(Read::new(self.ask_for(py, offset, len, deadline)?));
        ranges.into_iter().map(ask).collect()
    }

    /// Asks for `count` pieces of `length` bytes, whose starts are `stride` bytes apart, one after the other.
    #[pyo3(signature = (offset, length, stride, count, *, deadline = None))]
    fn read_strided(
        &self,
        py: Python<'_>,
        offset: &Bound<'_, PyAny>,
        length: &Bound<'_, PyAny>,
        stride: &Bound<'_, PyAny>,
        count: &Bound<'_, PyAny>,
        deadline: Option<f64>,
    ) -> PyResult<Read> {
        let offset = number(offset, "an offset")?;
        let len = self::length(length, "a length")?;
        let stride = self::length(stride, "a stride")?;
        let count = self::length(count, "a count")?;
        let deadline = seconds(deadline, "deadline")?;
        let session = self.open(py)?;
        let asked =
            py.detach(move || session.within(deadline).read_strided(offset, len, stride, count));
        Ok(Read::new(Asked::Strided(asked, len.saturating_mul(count))))
    }

    /// What was chosen, and why.
    #[pyo3(name = "_choices")]
    fn choices(&self, py: Python<'_>) -> PyResult<Vec<(&'static str, String)>> {
        Ok(self.open(py)?.explain())
    }

    /// Requests, those answered at once, blocks and bytes that readers fetched, for all sessions of the file, and bytes
    /// that are in memory.
    #[pyo3(name = "_counted")]
    fn counted(&self, py: Python<'_>) -> PyResult<(u64, u64, u64, u64, u64)> {
        let counts = self.open(py)?.file().counts();
        Ok((counts.requests, counts.at_once, counts.blocks, counts.bytes, counts.held))
    }

    /// The file, as it was named.
    #[getter]
    fn path(&self) -> &OsString {
        &self.path
    }

    /// First byte of the session.
    #[getter]
    fn start(&self) -> u64 {
        self.start
    }

    /// The byte after the last one of the session.
    #[getter]
    fn stop(&self) -> u64 {
        self.stop
    }

    /// Bytes of the file, as it was when it was opened.
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// True after `close`.
    #[getter]
    fn closed(&self, py: Python<'_>) -> bool {
        if fork::check(self.born).is_err() {
            return true;
        }
        self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).is_none()
    }

    /// Ends the session; once more does nothing. Reads that wait are answered, and views stay valid.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.born != fork::generation() {
            return Ok(());
        }
        let inner = self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner).take();
        let Some(session) = inner else { return Ok(()) };
        py.detach(move || session.check()).map_err(raise)
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.born != fork::generation() {
            // Its locks may be those of threads that are not here.
            std::mem::forget(inner);
        } else if inner.is_some() {
            // What was learned of the tier is written, and other ranks are told.
            fork::end(inner);
        }
    }
}
