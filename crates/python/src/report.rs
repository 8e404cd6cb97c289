//! Reports: results as Python objects, the rest as JSON and text.

use crate::value;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// What a run said.
#[pyclass(frozen, module = "stead._stead")]
pub struct Report {
    pub inner: stead::Report,
}

fn json(v: &impl serde::Serialize, pretty: bool) -> PyResult<String> {
    let text = if pretty { serde_json::to_string_pretty(v) } else { serde_json::to_string(v) };
    text.map_err(|e| PyRuntimeError::new_err(e.to_string()))
}

#[pymethods]
impl Report {
    /// Results by specification, in the order asked for. Lists of numbers are NumPy arrays.
    fn results<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let results = PyDict::new(py);
        for (spec, v) in &self.inner.results {
            results.set_item(spec, value::to_python(py, v)?)?;
        }
        Ok(results)
    }

    /// The specifications.
    fn specs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.inner.results.iter().map(|(s, _)| s))
    }

    /// The whole report, as the command prints it.
    fn json(&self) -> PyResult<String> {
        json(&self.inner, true)
    }

    /// What was decided.
    fn plan(&self) -> PyResult<String> {
        json(&self.inner.plan, false)
    }

    /// What it took.
    fn metrics(&self) -> PyResult<String> {
        json(&self.inner.metrics, false)
    }

    /// The results as tables.
    fn text(&self) -> String {
        stead_cli::results_text(&self.inner)
    }

    /// The plan as text.
    fn explain(&self) -> String {
        stead_cli::plan_text(&self.inner)
    }

    /// A picture of what can be drawn, if there is anything.
    fn svg(&self) -> Option<String> {
        stead::plot::svg(&self.inner).ok()
    }
}
