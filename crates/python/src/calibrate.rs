//! Measuring the machines: `stead.calibrate`.

use crate::errors::raise;
use crate::ranks::fabric;
use crate::run::{Trouble, Watcher};
use pyo3::prelude::*;
use std::path::PathBuf;
use stead::fabric::{Fabric, Local};
use stead::plan::{Calibrate, calibrate_on, path, save};
use stead::ranks::Here;
use stead::{Error, Observer, Result};

/// Measures, on all ranks of a communicator if there is one, of which the first one writes the profile. Returns it as JSON, and
/// where it was written.
#[pyfunction]
#[pyo3(signature = (tiers, seconds, output, comm))]
pub fn calibrate(
    py: Python<'_>,
    tiers: Vec<PathBuf>,
    seconds: Option<f64>,
    output: Option<PathBuf>,
    comm: Option<(usize, usize)>,
) -> PyResult<(String, String)> {
    let mut options = Calibrate { tiers, ..Calibrate::default() };
    options.seconds = seconds.unwrap_or(options.seconds);
    let trouble = Trouble::default();
    let watcher =
        Watcher { cancel: options.cancel.clone(), trouble: trouble.clone(), progress: None };
    let done = py.detach(|| match comm {
        None => measure(&Local::single(), &options, output, &watcher),
        Some((maker, data)) => measure(&fabric(maker, data)?, &options, output, &watcher),
    });
    match (trouble.take(), done) {
        (Some(e), _) => Err(e),
        (None, done) => done.map_err(raise),
    }
}

fn measure(
    fabric: &dyn Fabric,
    options: &Calibrate,
    output: Option<PathBuf>,
    watcher: &Watcher,
) -> Result<(String, String)> {
    let none = || {
        Error::usage("there is no place for the profile: the user has no home")
            .with_hint("name a file with output=")
    };
    let output = match output.or_else(path).ok_or_else(none) {
        Ok(output) => output,
        // Others are in the same call and hear of it.
        Err(e) => return Err(stead::ranks::refuse(fabric, e)),
    };
    let profile = calibrate_on(fabric, &Here::default(), options, Some(&|_| watcher.waits()))?;
    let written = if fabric.rank() == 0 { save(&profile, &output) } else { Ok(()) };
    stead::ranks::agree(fabric, written)?;
    let text = serde_json::to_string(&profile)
        .map_err(|e| Error::internal(format!("cannot write JSON: {e}")))?;
    Ok((text, output.to_string_lossy().into_owned()))
}
