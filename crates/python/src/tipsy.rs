//! Tipsy snapshots, loaded in parallel.

use crate::errors::raise;
use crate::fork;
use crate::options::read_options;
use crate::ranks;
use crate::request::is_main_thread;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};
use stead::tipsy::{Part, Species, Values};
use stead::{ByteOrder, DType, Error, Kind};

/// A snapshot that is open.
#[pyclass(frozen, module = "stead._stead")]
pub struct Tipsy {
    /// `None` once it was closed.
    inner: RwLock<Option<stead::tipsy::Snapshot>>,
    header: stead::tipsy::Header,
    born: u32,
}

/// The values of a column, which NumPy takes over: `numpy.asarray` copies nothing and keeps this alive. Nobody else
/// looks at them.
#[pyclass(frozen, module = "stead._stead")]
pub struct Elements {
    /// Never used again, only held: the memory is the array's.
    _values: Values,
    address: usize,
    len: usize,
    dtype: DType,
}

impl Elements {
    fn new(mut values: Values) -> Elements {
        let (address, dtype) = match &mut values {
            Values::F32(v) => (v.as_mut_ptr().expose_provenance(), DType::F32),
            Values::F64(v) => (v.as_mut_ptr().expose_provenance(), DType::F64),
        };
        Elements { len: values.len(), _values: values, address, dtype }
    }
}

/// As NumPy writes the type.
fn typestr(dtype: DType) -> String {
    let order = if ByteOrder::NATIVE == ByteOrder::Little { '<' } else { '>' };
    format!("{order}f{}", dtype.size())
}

#[pymethods]
impl Elements {
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", (self.len,))?;
        interface.set_item("typestr", typestr(self.dtype))?;
        interface.set_item("data", (self.address, false))?;
        Ok(interface)
    }
}

impl Tipsy {
    /// The session over the whole file.
    ///
    /// # Errors
    /// `Usage` for a snapshot that is closed, or another process's.
    pub fn session(&self) -> PyResult<Arc<stead::read::Session>> {
        fork::check(self.born)?;
        let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
        let closed = || raise(Error::usage("the snapshot is closed"));
        inner.as_ref().map(|s| s.session().clone()).ok_or_else(closed)
    }
}

#[pymethods]
impl Tipsy {
    /// `source` is a path, or what `stead._mpi` makes of a communicator and a path.
    #[new]
    fn new(source: &Bound<'_, PyAny>, options: &Bound<'_, PyDict>) -> PyResult<Tipsy> {
        let py = source.py();
        let given = || read_options(options);
        let inner = if let Ok((maker, data, path)) = source.extract::<(usize, usize, PathBuf)>() {
            let options = given().inspect_err(|e| {
                ranks::refuse_ranks(py, maker, data, &e.value(py).to_string());
            })?;
            let file = ranks::open(py, maker, data, &path, &options)?;
            py.detach(|| stead::tipsy::of(file))
        } else {
            let (path, options): (PathBuf, _) = (source.extract()?, given()?);
            py.detach(|| stead::tipsy::open(path, &options))
        }
        .map_err(raise)?;
        Ok(Tipsy {
            header: inner.header().clone(),
            inner: RwLock::new(Some(inner)),
            born: fork::generation(),
        })
    }

    #[getter]
    fn time(&self) -> f64 {
        self.header.time
    }

    #[getter]
    fn byte_order(&self) -> &'static str {
        if self.header.byte_order == ByteOrder::Big { "big" } else { "little" }
    }

    #[getter]
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Species::ALL.map(|k| (k.name(), self.header.count(k))).to_vec()
    }

    /// Name, type and offset of each field of a record, in the file.
    fn fields(&self, species: &str) -> PyResult<Vec<(&'static str, &'static str, usize)>> {
        let fields = self.header.fields(species.parse().map_err(raise)?);
        Ok(fields.into_iter().map(|f| (f.name, f.dtype.name(), f.offset)).collect())
    }

    /// Number of the first particle, how many, and offset and length of their bytes.
    fn part(&self, species: &str, task: usize, tasks: usize) -> PyResult<(u64, u64, u64, u64)> {
        let species = species.parse().map_err(raise)?;
        let Part { first, count, offset, bytes } =
            self.header.part(species, task, tasks).map_err(raise)?;
        Ok((first, count, offset, bytes))
    }

    /// Names and values of the columns of a task's particles.
    fn load(
        &self,
        py: Python<'_>,
        species: &str,
        task: usize,
        tasks: usize,
        columns: Vec<String>,
    ) -> PyResult<Vec<(&'static str, Elements)>> {
        fork::check(self.born)?;
        let species = species.parse().map_err(raise)?;
        // Signals are the main thread's.
        let main = is_main_thread(py)?;
        let mut raised = None;
        let mut go_on = || {
            let signal = match main {
                true => Python::attach(|py| py.check_signals()),
                false => Ok(()),
            };
            signal.map_err(|e| {
                raised = Some(e);
                Error::new(Kind::Cancelled, "loading was interrupted")
            })
        };
        let particles = py.detach(|| {
            let columns: Vec<&str> = columns.iter().map(String::as_str).collect();
            let inner = self.inner.read().unwrap_or_else(PoisonError::into_inner);
            let snapshot = inner.as_ref().ok_or_else(|| Error::usage("the snapshot is closed"))?;
            snapshot.load_while(species, task, tasks, &columns, &mut go_on)
        });
        let particles = particles.map_err(|e| raised.take().unwrap_or_else(|| raise(e)))?;
        let columns = particles.columns.into_iter();
        Ok(columns.map(|(name, values)| (name, Elements::new(values))).collect())
    }

    /// Ends it and says whether the file is still what it was. A second time does nothing.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if fork::check(self.born).is_err() {
            return Ok(());
        }
        py.detach(|| {
            let inner = self.inner.write().unwrap_or_else(PoisonError::into_inner).take();
            inner.map_or(Ok(()), stead::tipsy::Snapshot::close)
        })
        .map_err(raise)
    }
}

impl Drop for Tipsy {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if self.born != fork::generation() {
            // Its locks may be those of threads that are not here.
            std::mem::forget(inner);
        } else if inner.is_some() {
            fork::end(inner);
        }
    }
}
