//! Datasets: files, bytes, arrays and tables in memory.

use crate::errors::raise;
use crate::lend::{Facts, lend};
use crate::options::open_options;
use crate::ranks::fabric;
use crate::report::Report;
use crate::run;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use stead::{ByteOrder, ColumnKind, Compression, Error, FormatType, OpenOptions, TableColumn};

/// What was opened.
#[pyclass(frozen, module = "stead._stead")]
pub struct Dataset {
    pub inner: stead::Dataset,
}

/// Opens files, globs and directories as one dataset, on all ranks of a communicator if there is one.
#[pyfunction]
#[pyo3(signature = (paths, options, comm=None))]
pub fn open_files(
    py: Python<'_>,
    paths: Vec<String>,
    options: &Bound<'_, PyDict>,
    comm: Option<(usize, usize)>,
) -> PyResult<Dataset> {
    let options = open_options(options).inspect_err(|e| {
        if let Some((maker, data)) = comm {
            run::refuse_run(py, maker, data, &e.value(py).to_string());
        }
    })?;
    let open = || match comm {
        None => stead::open_with(&paths, &options),
        Some((maker, data)) => {
            let fabric: Arc<dyn stead::fabric::Fabric> = Arc::new(fabric(maker, data)?);
            stead::ranks::open_on(&fabric, &paths, &options, &stead::Cancel::new())
        }
    };
    py.detach(open).map(|inner| Dataset { inner }).map_err(raise)
}

/// Opens the bytes of a contiguous array as if they were those of a file called `name`.
#[pyfunction]
pub fn open_bytes(
    name: &str,
    bytes: &Bound<'_, PyAny>,
    options: &Bound<'_, PyDict>,
) -> PyResult<Dataset> {
    let (lent, _) = lend(bytes)?;
    let inner = stead::open_memory(name, lent, &open_options(options)?).map_err(raise)?;
    Ok(Dataset { inner })
}

/// Opens a contiguous array.
#[pyfunction]
pub fn open_array(
    name: &str,
    array: &Bound<'_, PyAny>,
    names: Option<Vec<String>>,
) -> PyResult<Dataset> {
    let (lent, Facts { dtype, byte_order, shape, order }) = lend(array)?;
    let options = OpenOptions {
        format: Some(FormatType::Raw),
        dtype: Some(dtype),
        byte_order: Some(byte_order),
        shape: Some(shape),
        order: Some(order),
        // Elements may look like compressed bytes.
        compression: Some(Compression::None),
        names,
        ..OpenOptions::default()
    };
    let inner = stead::open_memory(name, lent, &options).map_err(raise)?;
    Ok(Dataset { inner })
}

/// Opens contiguous one-dimensional arrays of one length as the columns of a table.
#[pyfunction]
pub fn open_table(columns: Vec<(String, Bound<'_, PyAny>)>) -> PyResult<Dataset> {
    let mut table = Vec::with_capacity(columns.len());
    for (name, array) in columns {
        let (lent, facts) = lend(&array)?;
        if facts.shape.len() != 1 || facts.byte_order != ByteOrder::NATIVE {
            let e = Error::usage(format!("column '{name}' is no one-dimensional native array"));
            return Err(raise(e));
        }
        table.push(TableColumn { name, dtype: facts.dtype, data: Arc::new(lent) });
    }
    let inner = stead::Dataset::table(table).map_err(raise)?;
    Ok(Dataset { inner })
}

#[pymethods]
impl Dataset {
    /// `csv`, `tsv`, `lines`, `records`, `npy`, `raw`, `tipsy`, `table`.
    #[getter]
    fn format(&self) -> &'static str {
        self.inner.format_name()
    }

    /// Name and type of each column: `number`, `text`, or the element type.
    #[getter]
    fn columns(&self) -> Vec<(&str, &'static str)> {
        let kind = |kind: ColumnKind| match kind {
            ColumnKind::Number => "number",
            ColumnKind::Binary(dtype) => dtype.name(),
            ColumnKind::Text => "text",
        };
        self.inner.schema().columns.iter().map(|c| (c.name.as_str(), kind(c.kind))).collect()
    }

    /// The names of the sources.
    #[getter]
    fn files(&self) -> Vec<String> {
        self.inner.sources().iter().map(|s| s.path().to_string_lossy().into_owned()).collect()
    }

    /// Bytes of all sources.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.inner.total_bytes()
    }

    /// Lengths of the dimensions, for arrays.
    #[getter]
    fn shape(&self) -> Option<Vec<u64>> {
        self.inner.schema().shape.as_ref().map(|s| s.dims().to_vec())
    }

    /// The description as JSON and as text.
    fn describe(&self, py: Python<'_>, rows: usize) -> PyResult<(String, String)> {
        let d = py.detach(|| self.inner.describe(rows)).map_err(raise)?;
        let json = serde_json::to_string(&d).map_err(|e| PyRuntimeError::new_err(e.to_string()))?;
        Ok((json, stead_cli::description_text(&d)))
    }

    /// Runs a request.
    fn run(&self, py: Python<'_>, arguments: &Bound<'_, PyAny>) -> PyResult<Report> {
        run::run(py, &self.inner, arguments)
    }
}
