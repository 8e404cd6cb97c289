//! Files over nodes: `stead.put`, `stead.get` and `stead.describe_layout`.

use crate::errors::raise;
use crate::ranks::fabric;
use crate::run::{Trouble, Watcher, refuse_run};
use pyo3::prelude::*;
use std::path::{Path, PathBuf};
use stead::fabric::Fabric;
use stead::layout::{Copied, Get, Put, get_on, put_on};
use stead::{Error, Observer, Result};

/// What both get, from the dict that the package makes.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Arguments {
    /// The file to put, or the layout to get.
    path: PathBuf,
    /// Where to: the layout, or the file.
    target: Option<PathBuf>,
    over: String,
    stripe: u64,
    align: bool,
    parts: Option<usize>,
    name: Option<String>,
    force: bool,
    dataspaces: Vec<String>,
    threads: usize,
    progress: Option<Py<PyAny>>,
    comm: Option<(usize, usize)>,
}

/// What the package has made. Other ranks are in the same call, or will be: they hear of what is wrong with it.
fn understood(py: Python<'_>, arguments: &Bound<'_, PyAny>) -> PyResult<Arguments> {
    arguments.extract::<Arguments>().inspect_err(|e| {
        let comm = arguments.get_item("comm").and_then(|c| c.extract::<Option<(usize, usize)>>());
        if let Ok(Some((maker, data))) = comm {
            refuse_run(py, maker, data, &e.to_string());
        }
    })
}

/// Copies, and says as JSON what was copied.
fn copy(
    py: Python<'_>,
    (progress, comm): (Option<Py<PyAny>>, Option<(usize, usize)>),
    cancel: stead::Cancel,
    work: impl Fn(&dyn Fabric, Option<&dyn Observer>) -> Result<Copied> + Sync,
) -> PyResult<String> {
    let trouble = Trouble::default();
    let watcher = Watcher { cancel, trouble: trouble.clone(), progress };
    let done = py.detach(|| match comm {
        Some((maker, data)) => work(&fabric(maker, data)?, Some(&watcher)),
        None => work(&stead::fabric::Local::single(), Some(&watcher)),
    });
    match (trouble.take(), done) {
        (Some(e), _) => Err(e),
        (None, Ok(copied)) => json(&copied),
        (None, Err(e)) => Err(raise(e)),
    }
}

fn json(value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value)
        .map_err(|e| raise(Error::internal(format!("cannot write JSON: {e}"))))
}

/// Puts a file over nodes.
#[pyfunction]
pub fn put(py: Python<'_>, arguments: &Bound<'_, PyAny>) -> PyResult<String> {
    let a = understood(py, arguments)?;
    let request = Put {
        file: a.path,
        over: a.over,
        stripe: a.stripe,
        align: a.align,
        parts: a.parts,
        name: a.name,
        layout: a.target,
        force: a.force,
        dataspaces: a.dataspaces,
        threads: a.threads,
        ..Put::default()
    };
    copy(py, (a.progress, a.comm), request.cancel.clone(), |fabric, observer| {
        put_on(fabric, &request, observer)
    })
}

/// Brings a file back.
#[pyfunction]
pub fn get(py: Python<'_>, arguments: &Bound<'_, PyAny>) -> PyResult<String> {
    let a = understood(py, arguments)?;
    let request = Get {
        layout: a.path,
        output: a.target,
        force: a.force,
        dataspaces: a.dataspaces,
        threads: a.threads,
        ..Get::default()
    };
    copy(py, (a.progress, a.comm), request.cancel.clone(), |fabric, observer| {
        get_on(fabric, &request, observer)
    })
}

/// What a layout is, as JSON.
#[pyfunction]
pub fn describe_layout(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    let read = |path: &Path| stead::layout::read(path)?.describe();
    json(&py.detach(|| read(&path)).map_err(raise)?)
}
