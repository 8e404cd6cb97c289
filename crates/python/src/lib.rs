//! The extension module `stead._stead`: what the Python package calls.
//!
//! It turns arguments into requests and answers into objects, and thinks nothing itself. Specifications,
//! display and pandas are Python's (`python/stead`). The interpreter's lock is not held while a scan runs,
//! but by kernels written in Python while they work on a block; nor while a read is waited for, and never by the
//! readers of sessions.

mod bell;
mod bytes;
mod calibrate;
mod coupling;
mod daemon;
mod dataset;
mod errors;
mod flow;
mod fork;
mod layout;
mod lend;
mod made;
mod offload;
mod options;
mod own;
mod ranks;
mod region;
mod report;
mod request;
mod run;
mod session;
mod stage;
mod state;
mod stream;
mod stream_survey;
mod tipsy;
mod tree;
mod value;

use pyo3::prelude::*;
use std::ffi::OsString;
use stead::kernels;

/// Runs the `stead` command; returns its exit code.
#[pyfunction]
fn main(py: Python<'_>, args: Vec<OsString>) -> u8 {
    py.detach(|| stead_cli::main(args))
}

/// One tuple for each kernel: name, summary, usage, definition, error, cost, source, examples.
#[pyfunction]
#[allow(clippy::type_complexity)]
fn kernel_list() -> Vec<(
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    &'static str,
    Vec<&'static str>,
)> {
    kernels::list()
        .map(|i| {
            let examples = i.examples.to_vec();
            (i.name, i.summary, i.usage, i.definition, i.error, i.cost, i.source, examples)
        })
        .collect()
}

/// What the filter language is.
#[pyfunction]
fn filter_help() -> &'static str {
    kernels::FILTER_HELP.trim_end()
}

/// Bytes that a size such as "512MiB" means.
#[pyfunction]
fn parse_size(text: &str) -> PyResult<u64> {
    stead::units::parse_size(text).map_err(errors::raise)
}

/// Seconds that a time such as "30min" means.
#[pyfunction]
fn parse_time(text: &str) -> PyResult<u64> {
    stead::units::parse_time(text).map_err(errors::raise)
}

#[pymodule]
fn _stead(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add("__version__", env!("CARGO_PKG_VERSION"))?;
    m.add("MISSING", kernels::MISSING)?;
    m.add_class::<dataset::Dataset>()?;
    m.add_class::<report::Report>()?;
    m.add_class::<run::Cancel>()?;
    m.add_class::<offload::Site>()?;
    m.add_class::<daemon::Daemon>()?;
    m.add_class::<stage::Stager>()?;
    m.add_class::<stage::Transfer>()?;
    m.add_class::<region::Region>()?;
    m.add_class::<coupling::Coupling>()?;
    m.add_class::<stream::StreamWriter>()?;
    m.add_class::<stream::StreamReader>()?;
    m.add_class::<stream::StreamStep>()?;
    m.add_class::<tree::Tree>()?;
    m.add_class::<tree::Opened>()?;
    m.add_class::<tree::Writing>()?;
    m.add_class::<tipsy::Tipsy>()?;
    m.add_class::<tipsy::Elements>()?;
    m.add_class::<session::Session>()?;
    m.add_class::<request::Read>()?;
    m.add_class::<bell::Bell>()?;
    m.add("Bytes", bytes::base_type(m.py())?)?;
    m.add_function(wrap_pyfunction!(main, m)?)?;
    m.add_function(wrap_pyfunction!(kernel_list, m)?)?;
    m.add_function(wrap_pyfunction!(daemon::persist, m)?)?;
    m.add_function(wrap_pyfunction!(filter_help, m)?)?;
    m.add_function(wrap_pyfunction!(parse_size, m)?)?;
    m.add_function(wrap_pyfunction!(parse_time, m)?)?;
    m.add_function(wrap_pyfunction!(dataset::open_files, m)?)?;
    m.add_function(wrap_pyfunction!(dataset::open_bytes, m)?)?;
    m.add_function(wrap_pyfunction!(dataset::open_array, m)?)?;
    m.add_function(wrap_pyfunction!(dataset::open_table, m)?)?;
    m.add_function(wrap_pyfunction!(calibrate::calibrate, m)?)?;
    m.add_function(wrap_pyfunction!(layout::put, m)?)?;
    m.add_function(wrap_pyfunction!(layout::get, m)?)?;
    m.add_function(wrap_pyfunction!(layout::describe_layout, m)?)?;
    m.add_function(wrap_pyfunction!(offload::offload, m)?)?;
    m.add_function(wrap_pyfunction!(ranks::refuse_ranks, m)?)?;
    m.add_function(wrap_pyfunction!(run::refuse_run, m)?)?;
    m.add_function(wrap_pyfunction!(region::list_regions, m)?)?;
    m.add_function(wrap_pyfunction!(region::remove_region, m)?)?;
    m.add_function(wrap_pyfunction!(stream::fail_writers, m)?)?;
    m.add_function(wrap_pyfunction!(stream_survey::list_streams, m)?)?;
    m.add_function(wrap_pyfunction!(stream_survey::describe_stream, m)?)?;
    m.add_function(wrap_pyfunction!(stream_survey::list_recordings, m)?)?;
    m.add_function(wrap_pyfunction!(stream_survey::explain_stream, m)?)?;
    m.add_function(wrap_pyfunction!(stream_survey::remove_stream, m)?)?;
    m.add_function(wrap_pyfunction!(made::make_array, m)?)?;
    m.add_function(wrap_pyfunction!(made::is_made, m)?)?;
    m.add_function(wrap_pyfunction!(flow::parse_flow, m)?)?;
    m.add_function(wrap_pyfunction!(flow::load_flow, m)?)?;
    m.add_function(wrap_pyfunction!(flow::flow_toml, m)?)?;
    m.add_function(wrap_pyfunction!(flow::describe_flow, m)?)?;
    m.add_function(wrap_pyfunction!(flow::flow_svg, m)?)?;
    m.add_function(wrap_pyfunction!(flow::flow_png, m)?)?;
    m.add_function(wrap_pyfunction!(flow::run_flow, m)?)?;
    m.add_function(wrap_pyfunction!(bytes::check_view, m)?)?;
    m.add_function(wrap_pyfunction!(bell::end_callbacks, m)?)?;
    m.add_function(wrap_pyfunction!(fork::forked, m)?)?;
    // What is registered first is called last: all others of the package, which come later, may still wait for threads.
    m.py().import("atexit")?.call_method1("register", (m.getattr("end_callbacks")?,))?;
    Ok(())
}
