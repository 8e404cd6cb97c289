//! Flows: operators between streams, for `stead.flow`.
//!
//! Graphs come and go as JSON of the same type as their TOML. Functions of Python are called by the thread that runs the flow, with the
//! interpreter's lock for as long as they take.

use crate::bytes::{self, Held};
use crate::coupling::Coupling;
use crate::errors::raise;
use crate::lend::lend;
use crate::request::seconds;
use crate::run::{Cancel, Trouble};
use crate::stream::{SIGNALS, interrupted, signals, spaces, unlocked};
use pyo3::prelude::*;
use std::sync::Arc;
use stead::daemon::StreamNodes;
use stead::flow::{Flow, Function, Functions, Given, Graph, Options, Wanted, check, draw, load};
use stead::stream::Stop;
use stead::{Error, Order, Result};

pub fn graph(json: &str) -> Result<Graph> {
    serde_json::from_str(json).map_err(|e| Error::usage(format!("this is no flow: {e}")))
}

fn json<T: serde::Serialize>(what: &T) -> Result<String> {
    serde_json::to_string(what).map_err(|e| Error::internal(format!("cannot write JSON: {e}")))
}

/// What TOML says, as JSON.
#[pyfunction]
pub fn parse_flow(text: &str) -> PyResult<String> {
    Graph::parse(text).and_then(|graph| json(&graph)).map_err(raise)
}

/// What a file says, as JSON.
#[pyfunction]
pub fn load_flow(path: std::path::PathBuf) -> PyResult<String> {
    Graph::load(&path).and_then(|graph| json(&graph)).map_err(raise)
}

/// A flow as TOML.
#[pyfunction]
pub fn flow_toml(given: &str) -> PyResult<String> {
    graph(given).and_then(|graph| graph.to_toml()).map_err(raise)
}

/// What a flow is, as JSON, after it was checked; with dataspaces also with what the streams have now that it reads.
#[pyfunction]
pub fn describe_flow(
    py: Python<'_>,
    given: &str,
    dataspaces: Option<Vec<String>>,
) -> PyResult<String> {
    unlocked(py, || {
        let mut checked = check(&graph(given)?)?;
        if let Some(dataspaces) = dataspaces {
            checked = checked.live(&spaces(&dataspaces)?)?;
        }
        json(&checked.describe())
    })
}

/// A picture of a flow.
#[pyfunction]
pub fn flow_svg(given: &str) -> PyResult<String> {
    graph(given).and_then(|graph| Ok(draw::svg(&check(&graph)?))).map_err(raise)
}

/// A picture of a flow, by pixels.
#[pyfunction]
pub fn flow_png(given: &str) -> PyResult<Vec<u8>> {
    graph(given).and_then(|graph| draw::png(&check(&graph)?)).map_err(raise)
}

/// Calls a function of Python, which is given arrays and gives one.
fn function(name: &str, call: Py<PyAny>, trouble: &Trouble) -> Function {
    let (name, trouble) = (name.to_owned(), trouble.clone());
    Arc::new(move |given: &[Given], wanted: &Wanted, to: &mut [u8]| {
        Python::attach(|py| called(py, &call, given, wanted, to)).map_err(|e| {
            let said = e.to_string();
            trouble.keep(e);
            Error::data(format!("function '{name}' has failed: {said}"))
        })
    })
}

fn called(
    py: Python<'_>,
    call: &Py<PyAny>,
    given: &[Given],
    wanted: &Wanted,
    to: &mut [u8],
) -> PyResult<()> {
    let mut arrays = Vec::with_capacity(given.len());
    for one in given {
        let held = bytes::plain(py, Held::Shared(one.shared()))?;
        arrays.push((held, one.dtype.name(), one.bounds.count().to_vec()));
    }
    let made = call.call1(py, (arrays, wanted.dtype.name(), wanted.bounds.count().to_vec()))?;
    let (lent, facts) = lend(made.bind(py))?;
    let fits = (facts.dtype, &facts.shape[..]) == (wanted.dtype, wanted.bounds.count());
    let is_c = facts.order == Order::C || facts.shape.len() < 2;
    // The package has made it fit; zeros would be a wrong answer.
    if !fits || !is_c || lent.as_ref().len() != to.len() {
        return Err(raise(Error::internal("what a function gave does not fit")));
    }
    to.copy_from_slice(lent.as_ref());
    Ok(())
}

/// Runs a flow to its end, and tells what it has done, as JSON.
#[pyfunction]
#[allow(clippy::too_many_arguments)]
pub fn run_flow(
    py: Python<'_>,
    given: &str,
    functions: Vec<(String, Py<PyAny>)>,
    folder: Option<std::path::PathBuf>,
    dataspaces: Vec<String>,
    rank: u64,
    ranks: u64,
    threads: usize,
    memory: Option<u64>,
    steps: Option<u64>,
    timeout: f64,
    coupling: Option<&Bound<'_, Coupling>>,
    cancel: &Bound<'_, Cancel>,
) -> PyResult<String> {
    let coupling = coupling.map(|coupling| coupling.get().open()).transpose()?;
    let timeout = seconds(Some(timeout), "timeout")?.unwrap_or_default();
    let trouble = Trouble::default();
    let mut all: Functions = functions
        .into_iter()
        .map(|(name, call)| {
            let made = function(&name, call, &trouble);
            (name, made)
        })
        .collect();
    let token = cancel.get().token();
    let done = unlocked(py, || {
        let graph = graph(given)?;
        // Those of libraries, if they are to be loaded: paths are relative to this folder.
        if let Some(folder) = folder {
            // SAFETY: the program has said that the libraries of this flow are trusted.
            unsafe { load(&graph, &folder, &mut all)? };
        }
        let flow = Flow::new(&graph, all)?;
        let usual = Options::default();
        let (memory, own) = (memory.unwrap_or(usual.memory), signals());
        let stop = Stop::when(move || {
            token.check()?;
            own.check()
        });
        let stop = stop.every(SIGNALS);
        let (spaces, nodes) = (spaces(&dataspaces)?, StreamNodes::usual());
        let options = Options {
            spaces,
            rank,
            ranks,
            threads,
            memory,
            steps,
            timeout,
            stop,
            coupling,
            nodes,
            told: None,
        };
        // What fails is kept apart: an exception of a function goes before it.
        Ok(flow.run(&options).and_then(|report| json(&report)))
    })?;
    match (done, trouble.take()) {
        (Ok(report), _) => Ok(report),
        (Err(e), raised) => Err(interrupted().or(raised).unwrap_or_else(|| raise(e))),
    }
}
