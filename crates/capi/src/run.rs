//! Running a request.

use crate::dataset::{DatasetFace, stead_dataset};
use crate::error::{stead_error, stead_status};
use crate::guard::call;
use crate::report::{self, stead_report};
use crate::request::{self, Watcher, stead_request};
use crate::table;
use std::ffi::{c_int, c_void};
use std::sync::Arc;
use stead::fabric::foreign::{self, stead_make_fabric_fn};
use stead::{Cancel, Observer, Request, Result, Snapshot};

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
pub struct Watch {
    pub watcher: Watcher,
    pub cancel: Cancel,
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

/// What a run gets: the dataset, and the request with what watches it.
struct Given {
    dataset: Arc<DatasetFace>,
    request: Request,
    watch: Option<Watch>,
}

fn given(dataset: *const stead_dataset, request: *const stead_request) -> Result<Given> {
    let dataset = table::get::<DatasetFace>(dataset)?;
    let mut asked = request::of(request)?;
    // A request's own flag would be shared by all its runs.
    let cancel = asked.cancel.take().unwrap_or_default();
    asked.request.cancel = cancel.clone();
    let watch = asked.progress.map(|watcher| Watch { watcher, cancel });
    Ok(Given { dataset, request: asked.request, watch })
}

impl Given {
    fn observer(&self) -> Option<&dyn Observer> {
        self.watch.as_ref().map(|w| w as &dyn Observer)
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
        let given = given(dataset, request)?;
        out.put(report::give(stead::run(
            &given.dataset.dataset,
            &given.request,
            given.observer(),
        )?));
        Ok(())
    })
}

/// Runs `request` over `dataset` on all ranks of a fabric, which is made first: all ranks call this, with the same request
/// over the same files, which all of them see. Each takes a share of the bytes, and all get the same report, with the results
/// that stead_run gives. Threads and memory of a node are for all ranks on it. With MPI, stead_mpi_run of stead_mpi.h is
/// simpler.
///
/// Errors: those of stead_run, the same on all ranks; STEAD_USAGE on all ranks if one of them gives arguments that make no
/// sense, but for `make`, without which it can tell nobody, if they ask for different things or run different versions of
/// stead, and for data in memory; STEAD_CHANGED if their files differ; STEAD_PEER if a rank is gone; those of `make`.
/// After an error no part of an output file is left: it is not there, or whole if a rank is lost when all have succeeded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_run_ranks(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    dataset: *const stead_dataset,
    request: *const stead_request,
    report: *mut *mut stead_report,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        // A place that is there is NULL from now on, whatever comes.
        let out = c.out_handle(report, "place for the report");
        // SAFETY: the caller keeps what the header says of the function.
        let fabric = unsafe { foreign::make(make, data)? };
        let (out, given) = match out.and_then(|out| Ok((out, given(dataset, request)?))) {
            Ok(all) => all,
            // Others are in the same call and hear of it.
            Err(e) => return Err(stead::ranks::refuse(&fabric, e)),
        };
        let Given { dataset, request, .. } = &given;
        out.put(report::give(stead::run_on(&fabric, &dataset.dataset, request, given.observer())?));
        Ok(())
    })
}
