//! What a run says.

use crate::error::{stead_error, stead_status};
use crate::guard::{c_text, call, look};
use crate::table::{self, Object};
use crate::text;
use crate::value::{Arena, stead_value};
use crate::versions::grows;
use std::ffi::{CString, c_char};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use stead::{Error, Report, Result};

/// Results, what was done, and what it took. Made by stead_run, freed with stead_report_free. Immutable: several
/// threads may read it at the same time.
pub struct stead_report {
    _opaque: [u8; 0],
}

/// What a run took, of all its parts together. Members may be added at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_metrics {
    /// Wall seconds.
    pub seconds: f64,
    /// Seconds of all cores.
    pub cpu_seconds: f64,
    /// Passes over the data.
    pub passes: u64,
    /// Bytes read, over all passes.
    pub bytes_read: u64,
    /// True if records were counted: they are not if all kernels look at bytes alone.
    pub rows_counted: bool,
    /// Records read in the first pass.
    pub rows: u64,
    /// Records that passed the filter in the first pass.
    pub rows_kept: u64,
    /// Records left out because they could not be read (lenient runs).
    pub rows_skipped: u64,
    /// Integers beyond 2^53 that were rounded to the nearest 64-bit float.
    pub integers_rounded: u64,
    /// `bytes_read / seconds`.
    pub bytes_per_second: f64,
    /// Core-seconds for 10^9 bytes read.
    pub core_seconds_per_gb: f64,
    /// Largest resident memory of the process.
    pub peak_memory_bytes: u64,
}

grows!(stead_metrics, peak_memory_bytes: u64);

/// A report with its results laid out for C, and its texts, made when somebody asks.
pub struct ReportFace {
    report: Report,
    names: Vec<CString>,
    pub arena: Arena,
    json: OnceLock<CString>,
    plan: OnceLock<CString>,
    metrics: OnceLock<CString>,
}

impl Object for ReportFace {
    type Handle = stead_report;
    const NAME: &'static str = "report";
}

/// Hands a report to the caller.
pub fn give(report: Report) -> *mut stead_report {
    table::insert(ReportFace {
        names: report.results.iter().map(|(name, _)| c_text(name)).collect(),
        arena: Arena::new(report.results.iter().map(|(_, v)| v)),
        report,
        json: OnceLock::new(),
        plan: OnceLock::new(),
        metrics: OnceLock::new(),
    })
}

/// A document, written when it is first asked for. Lives as long as the report.
fn document(
    handle: *const stead_report,
    place: impl Fn(&ReportFace) -> &OnceLock<CString>,
    write: impl Fn(&Report) -> Result<String>,
) -> *const c_char {
    look!(std::ptr::null(), |_c| {
        let face: Arc<ReportFace> = table::get(handle)?;
        if let Some(done) = place(&face).get() {
            return Ok(done.as_ptr());
        }
        let text = c_text(&write(&face.report)?);
        Ok(place(&face).get_or_init(|| text).as_ptr())
    })
}

/// The whole report as the JSON document of `stead run --format json`: "results", "plan", "metrics". Floats read
/// back to the same bits; NaN and infinities are strings. NULL if the handle is no report. Lives as long as the
/// report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_json(report: *const stead_report) -> *const c_char {
    document(report, |f| &f.json, text::json)
}

/// The plan as JSON: what was decided before and during the run. NULL if the handle is no report. Lives as long as
/// the report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_plan(report: *const stead_report) -> *const c_char {
    document(report, |f| &f.plan, |r| text::json(&r.plan))
}

/// What it took as JSON. NULL if the handle is no report. Lives as long as the report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_metrics_json(report: *const stead_report) -> *const c_char {
    document(report, |f| &f.metrics, |r| text::json(&r.metrics))
}

/// Copies what it took to `metrics`, which has `size` bytes: sizeof(stead_metrics) of the header that the caller was
/// compiled with. What only a later one has is 0.
///
/// Errors: STEAD_USAGE for a size that no version has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_metrics(
    report: *const stead_report,
    metrics: *mut stead_metrics,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(metrics, size, "place for the metrics")?;
        let face: Arc<ReportFace> = table::get(report)?;
        let m = &face.report.metrics;
        out.put(stead_metrics {
            seconds: m.seconds,
            cpu_seconds: m.cpu_seconds,
            passes: m.passes,
            bytes_read: m.bytes_read,
            rows_counted: m.rows.is_some(),
            rows: m.rows.unwrap_or(0),
            rows_kept: m.rows_kept.unwrap_or(0),
            rows_skipped: m.rows_skipped,
            integers_rounded: m.integers_rounded,
            bytes_per_second: m.bytes_per_second,
            core_seconds_per_gb: m.core_seconds_per_gb,
            peak_memory_bytes: m.peak_memory_bytes,
        });
        Ok(())
    })
}

/// Number of results; 0 if the handle is no report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_count(report: *const stead_report) -> usize {
    look!(0, |_c| Ok(table::get::<ReportFace>(report)?.names.len()))
}

/// The name of result `i`: the specification, or the name of a kernel of one's own. They are in the order asked for,
/// those of one's own last. NULL if there is none. Lives as long as the report.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_name(report: *const stead_report, i: usize) -> *const c_char {
    look!(std::ptr::null(), |_c| {
        let face: Arc<ReportFace> = table::get(report)?;
        face.names.get(i).map(|n| n.as_ptr()).ok_or_else(|| none(&face, &i.to_string()))
    })
}

fn none(face: &ReportFace, which: &str) -> Error {
    let names: Vec<&str> = face.report.results.iter().take(20).map(|(n, _)| n.as_str()).collect();
    Error::usage(format!("there is no result '{which}'"))
        .with_hint(format!("the results are: {}", names.join(", ")))
}

/// The result called `name`.
///
/// Errors: STEAD_USAGE if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_result(
    report: *const stead_report,
    name: *const c_char,
    value: *mut stead_value,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(value, "place for the value")?;
        let face: Arc<ReportFace> = table::get(report)?;
        let name = c.text(name, "name of the result")?;
        let at = face.report.results.iter().position(|(n, _)| n == name);
        out.put(stead_value::new(report, at.ok_or_else(|| none(&face, name))?));
        Ok(())
    })
}

/// Result `i`.
///
/// Errors: STEAD_USAGE if there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_result_at(
    report: *const stead_report,
    i: usize,
    value: *mut stead_value,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(value, "place for the value")?;
        let face: Arc<ReportFace> = table::get(report)?;
        if i >= face.names.len() {
            return Err(none(&face, &i.to_string()));
        }
        out.put(stead_value::new(report, i));
        Ok(())
    })
}

/// The result called `name` as a number: stead_report_result and stead_value_double in one.
///
/// Errors: STEAD_USAGE if there is none, or it is no number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_double(
    report: *const stead_report,
    name: *const c_char,
    number: *mut f64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(number, "place for the number")?;
        let face: Arc<ReportFace> = table::get(report)?;
        let name = c.text(name, "name of the result")?;
        let value = face.report.result(name).ok_or_else(|| none(&face, name))?;
        out.put(value.as_f64().ok_or_else(|| {
            Error::usage(format!("the result '{name}' is no number"))
                .with_hint("stead_report_result gives structured results")
        })?);
        Ok(())
    })
}

/// Draws histograms and grouped results into an SVG file, which appears whole or not at all.
///
/// Errors: STEAD_USAGE if nothing can be drawn; STEAD_IO and its like for the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_plot(
    report: *const stead_report,
    path: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let face: Arc<ReportFace> = table::get(report)?;
        let svg = stead::plot::svg(&face.report)?;
        stead::write_file(Path::new(c.text(path, "path")?), svg.as_bytes())
    })
}

/// Frees a report, its texts and its values. NULL is nothing to do; a handle that is no report any more is left
/// alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_report_free(report: *mut stead_report) {
    look!((), |_c| table::remove::<ReportFace>(report))
}
