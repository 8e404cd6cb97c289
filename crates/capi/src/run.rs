//! Running a request.

use crate::dataset::{DatasetFace, stead_dataset};
use crate::error::{stead_error, stead_status};
use crate::guard::call;
use crate::report::{self, stead_report};
use crate::request::{self, Watcher, stead_request};
use crate::table;
use std::ffi::{c_int, c_void};
use stead::{Cancel, Observer, Snapshot};

/// What a run looks like from outside, now. Members may be added at its end.
#[repr(C)]
pub struct stead_progress {
    /// The pass over the data, from 1.
    pub pass: u64,
    /// Bytes read in this pass.
    pub bytes: u64,
    /// Bytes that this pass will read.
    pub total_bytes: u64,
    /// Records read in this pass.
    pub rows: u64,
    /// Seconds since this pass began.
    pub seconds: f64,
}

/// Watches a run: see stead_request_progress. `progress` is good during the call. Returns 0 to go on and anything
/// else to stop the run. It must not throw or jump out.
pub type stead_progress_fn =
    Option<unsafe extern "C" fn(progress: *const stead_progress, user: *mut c_void) -> c_int>;

/// Calls back, and cancels when it is told to.
struct Watch {
    watcher: Watcher,
    cancel: Cancel,
}

impl Observer for Watch {
    fn progress(&self, s: &Snapshot) {
        let now = stead_progress {
            pass: s.pass,
            bytes: s.bytes,
            total_bytes: s.total_bytes,
            rows: s.rows,
            seconds: s.seconds,
        };
        // SAFETY: the caller gave the function together with the pointer, for calls during runs.
        if unsafe { (self.watcher.call)(&now, self.watcher.user) } != 0 {
            self.cancel.cancel();
        }
    }
}

/// Runs `request` over `dataset` and waits for its end. The report is a new handle, to be freed with
/// stead_report_free. Several threads may run the same request over the same dataset at the same time.
///
/// Errors: STEAD_USAGE for a request that makes no sense for the dataset; STEAD_DATA, STEAD_FORMAT, STEAD_CHANGED,
/// STEAD_IO for what is met in the data; STEAD_LIMIT; STEAD_NO_SPACE; STEAD_CANCELLED; what a kernel of one's own
/// returns. No output file is left after an error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_run(
    dataset: *const stead_dataset,
    request: *const stead_request,
    report: *mut *mut stead_report,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(report, "place for the report")?;
        let dataset = table::get::<DatasetFace>(dataset)?;
        let mut asked = request::of(request)?;
        // A request's own flag would be shared by all its runs.
        let cancel = asked.cancel.take().unwrap_or_default();
        asked.request.cancel = cancel.clone();
        let watch = asked.progress.map(|watcher| Watch { watcher, cancel });
        let observer = watch.as_ref().map(|w| w as &dyn Observer);
        out.put(report::give(stead::run(&dataset.dataset, &asked.request, observer)?));
        Ok(())
    })
}
