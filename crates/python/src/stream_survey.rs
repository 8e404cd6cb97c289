//! Streams as they are seen from outside: which there are, what is known of each, and what becomes of what was left.

use crate::stream::{json, others, patience, signals, spaces, unlocked};
use pyo3::prelude::*;
use std::time::Duration;
use stead::Result;
use stead::stream::Survey;

/// Whose streams are told of, or removed.
fn survey(given: &[String], nodes: Option<Vec<String>>, timeout: Duration) -> Result<Survey> {
    let is_alone = nodes.as_ref().is_some_and(Vec::is_empty);
    let (spaces, nodes) = (spaces(given)?, (!is_alone).then(|| others(nodes)));
    Ok(Survey { spaces, nodes, timeout, stop: signals(), ..Survey::default() })
}

/// The names of all streams, and why nodes have told of none.
#[pyfunction]
pub fn list_streams(
    py: Python<'_>,
    given: Vec<String>,
    nodes: Option<Vec<String>>,
    timeout: f64,
) -> PyResult<(Vec<String>, Vec<String>)> {
    let timeout = patience(timeout)?;
    let listed = unlocked(py, || survey(&given, nodes, timeout)?.list())?;
    let mut names: Vec<String> = listed.found.into_iter().map(|listed| listed.name).collect();
    names.dedup();
    Ok((names, listed.missed.iter().map(ToString::to_string).collect()))
}

/// What there is to know of a stream, as JSON.
#[pyfunction]
pub fn describe_stream(
    py: Python<'_>,
    name: &str,
    given: Vec<String>,
    nodes: Option<Vec<String>>,
    timeout: f64,
) -> PyResult<String> {
    let timeout = patience(timeout)?;
    json(&unlocked(py, || survey(&given, nodes, timeout)?.describe(name))?)
}

/// The streams that were recorded in a folder, as JSON.
#[pyfunction]
pub fn list_recordings(py: Python<'_>, location: &str, given: Vec<String>) -> PyResult<String> {
    json(&unlocked(py, || stead::stream::recordings(location, &spaces(&given)?))?)
}

/// Who will get what from whom of a stream, as JSON.
#[pyfunction]
pub fn explain_stream(
    py: Python<'_>,
    name: &str,
    readers: u64,
    given: Vec<String>,
    nodes: Option<Vec<String>>,
    timeout: f64,
) -> PyResult<String> {
    let timeout = patience(timeout)?;
    json(&unlocked(py, || survey(&given, nodes, timeout)?.explain(name, readers))?)
}

/// Removes a stream, and tells where, as JSON.
#[pyfunction]
pub fn remove_stream(
    py: Python<'_>,
    name: &str,
    force: bool,
    given: Vec<String>,
    nodes: Option<Vec<String>>,
    timeout: f64,
) -> PyResult<String> {
    let timeout = patience(timeout)?;
    json(&unlocked(py, || survey(&given, nodes, timeout)?.remove(name, force))?)
}
