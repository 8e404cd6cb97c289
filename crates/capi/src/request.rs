//! What is asked for.

use crate::cancel::{self, stead_cancel};
use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, look};
use crate::own::{self, stead_kernel};
use crate::run::stead_progress_fn;
use crate::table::{self, Object};
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};
use stead::{Cancel, Request, Result};

/// A run that is asked for: which kernels, over which rows, with which means. Made by stead_request_new, freed with
/// stead_request_free. It can be run many times, on many datasets, and changed between runs; a run copies it.
/// Several threads may use it.
pub struct stead_request {
    _opaque: [u8; 0],
}

/// A request, who watches it and who may stop it.
#[derive(Clone, Default)]
pub struct Asked {
    pub request: Request,
    pub progress: Option<Watcher>,
    pub cancel: Option<Cancel>,
}

/// A progress callback.
#[derive(Clone, Copy)]
pub struct Watcher {
    pub call:
        unsafe extern "C" fn(*const crate::run::stead_progress, *mut c_void) -> std::ffi::c_int,
    pub user: *mut c_void,
}

// SAFETY: the pointer is only handed back, from the thread that runs; the header says which one that is.
unsafe impl Send for Watcher {}
// SAFETY: as above.
unsafe impl Sync for Watcher {}

/// The request behind a handle.
#[derive(Default)]
struct RequestFace(Mutex<Asked>);

impl Object for RequestFace {
    type Handle = stead_request;
    const NAME: &'static str = "request";
}

/// A copy of the request of a handle.
pub fn of(handle: *const stead_request) -> Result<Asked> {
    let face = table::get::<RequestFace>(handle)?;
    let asked = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(asked.clone())
}

fn change(
    c: &Caller,
    handle: *mut stead_request,
    f: impl FnOnce(&Caller, &mut Asked) -> Result<()>,
) -> Result<()> {
    let face = table::get::<RequestFace>(handle)?;
    let mut asked = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    f(c, &mut asked)
}

/// Makes a request that asks for nothing yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_new(
    request: *mut *mut stead_request,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(request, "place for the request")?;
        out.put(table::insert(RequestFace::default()));
        Ok(())
    })
}

/// Asks for a kernel by its specification, such as "mean:arr_delay", which is the name of its result too. It is
/// looked at when the request is run.
///
/// Errors: STEAD_USAGE for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_kernel(
    request: *mut stead_request,
    spec: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |c, a| {
        a.request.kernels.push(c.text(spec, "specification")?.to_string());
        Ok(())
    }))
}

/// Asks for a kernel of one's own, beside or in place of others. `kernel` is copied, with all that it points to but
/// `user`; `kernel.release` is called once when nothing uses it any more, also when this function fails (unless
/// `kernel` itself is NULL or of a size that is not known).
///
/// Errors: STEAD_USAGE for a kernel that lacks what it must have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_own_kernel(
    request: *mut stead_request,
    kernel: *const stead_kernel,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let own = own::take(c, kernel)?;
        change(c, request, |_, a| {
            a.request.own.push(own);
            Ok(())
        })
    })
}

/// Only rows for which this holds, such as "dep_delay > 0"; NULL takes it back. It is parsed when the request is
/// run. `stead kernels where` explains the language.
///
/// Errors: STEAD_USAGE for text that is no UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_where(
    request: *mut stead_request,
    filter: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |c, a| {
        a.request.filter = c.optional_text(filter, "filter")?.map(String::from);
        Ok(())
    }))
}

/// Answers for each value of this column, and of those named before; NULL takes all back. A result is then a map
/// from group to what the kernel says.
///
/// Errors: STEAD_USAGE for text that is no UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_by(
    request: *mut stead_request,
    column: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |c, a| {
        match c.optional_text(column, "name of the column")? {
            Some(column) => a.request.by.push(column.to_string()),
            None => a.request.by.clear(),
        }
        Ok(())
    }))
}

/// Worker threads; 0, the default, is one for each processor. Never changes an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_threads(
    request: *mut stead_request,
    threads: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |_, a| {
        a.request.threads = threads;
        Ok(())
    }))
}

/// Bytes of memory that buffers and states may take; 1 GiB unless told otherwise, at least 8 MiB.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_memory(
    request: *mut stead_request,
    bytes: u64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |_, a| {
        a.request.memory = bytes;
        Ok(())
    }))
}

/// Bytes of one extent. Never changes an answer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_extent(
    request: *mut stead_request,
    bytes: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |_, a| {
        a.request.chunk = bytes;
        Ok(())
    }))
}

/// Whether records that cannot be read are counted and skipped, in place of failing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_lenient(
    request: *mut stead_request,
    lenient: bool,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |_, a| {
        a.request.lenient = lenient;
        Ok(())
    }))
}

/// Sets one of the means by the name that it has on the command line: "threads", "memory", "chunk" (sizes may have
/// units), "engine" (auto, uring, pread), "queue-depth", "direct" and "lenient" (yes, no), "place" (auto, pull, push, vector,
/// split; where to compute on data that were opened with storage hosts).
///
/// Errors: STEAD_USAGE for a name or a value that there is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_set(
    request: *mut stead_request,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let (name, value) = (c.text(name, "name of the option")?, c.text(value, "value")?);
        change(c, request, |_, a| stead::options::set_means(&mut a.request, name, value))
    })
}

/// Says that the caller is going to write this file when the run is done, as stead_report_plot does: the run is
/// refused if it would replace the data or another output.
///
/// Errors: STEAD_USAGE for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_output(
    request: *mut stead_request,
    path: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |c, a| {
        a.request.outputs.push(c.text(path, "path")?.into());
        Ok(())
    }))
}

/// Lets `cancel` stop the runs of this request; NULL takes it back. The handle may be freed before the request.
///
/// Errors: STEAD_USAGE for a handle that is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_cancel(
    request: *mut stead_request,
    cancel: *mut stead_cancel,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |_, a| {
        a.cancel = if cancel.is_null() { None } else { Some(cancel::flag(cancel)?.clone()) };
        Ok(())
    }))
}

/// Has `progress` called about ten times a second during runs of this request, and once at the end of each pass,
/// from the thread that called stead_run; NULL takes it back. `user` is handed to it. If it returns anything but 0,
/// the run is stopped with STEAD_CANCELLED, as by the request's stead_cancel, which is then set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_progress(
    request: *mut stead_request,
    progress: stead_progress_fn,
    user: *mut c_void,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |_, a| {
        a.progress = progress.map(|call| Watcher { call, user });
        Ok(())
    }))
}

/// Frees a request. A run of it that is under way on another thread goes on to its end. NULL is nothing to do; a
/// handle that is no request any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_request_free(request: *mut stead_request) {
    look!((), |_c| table::remove::<RequestFace>(request))
}
