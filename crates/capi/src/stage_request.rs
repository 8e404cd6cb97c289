//! What is to be staged.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, look};
use crate::table::{self, Object};
use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use stead::Result;
use stead::stage::{Options, Request, location};

/// Files and trees that are to be copied, moved, made equal or removed. Made by stead_stage_request_new, freed with
/// stead_stage_request_free. It can be asked for many times, and changed between. Several threads may use it.
pub struct stead_stage_request {
    _opaque: [u8; 0],
}

/// The request behind a handle.
struct StageRequestFace(Mutex<Request>);

impl Object for StageRequestFace {
    type Handle = stead_stage_request;
    const NAME: &'static str = "stage request";
}

/// A copy of the request of a handle.
pub fn of(handle: *const stead_stage_request) -> Result<Request> {
    let face = table::get::<StageRequestFace>(handle)?;
    let request = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(request.clone())
}

fn change(
    c: &Caller,
    handle: *mut stead_stage_request,
    f: impl FnOnce(&Caller, &mut Request) -> Result<()>,
) -> Result<()> {
    let face = table::get::<StageRequestFace>(handle)?;
    let mut request = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    f(c, &mut request)
}

/// Makes a request that names no files yet. `action` is "copy", "move" (the sources go once the target has them), "sync" (the
/// target becomes equal to the source) or "remove".
///
/// Errors: STEAD_USAGE for another action.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_request_new(
    action: *const c_char,
    request: *mut *mut stead_stage_request,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(request, "place for the request")?;
        let action = stead::options::action(c.text(action, "action")?)?;
        let options = Options::default();
        let request = Request { action, sources: Vec::new(), target: None, options };
        out.put(table::insert(StageRequestFace(Mutex::new(request))));
        Ok(())
    })
}

/// Adds a source: a path, a name in a dataspace such as "nvme0://run1/" or the URL of a bucket, that may be a pattern of a shell ("?", "*", "**").
/// With a "/" at its end, what lies in the folder is meant. It is looked at when the request is submitted.
///
/// Errors: STEAD_USAGE for NULL, for text that names no file, and, in a dataspace, for variables that are not set; those of a path are looked for when it
/// is submitted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_request_source(
    request: *mut stead_stage_request,
    source: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |c, r| {
        r.sources.push(location(c.text(source, "source")?)?);
        Ok(())
    }))
}

/// Where to: a path, a name in a dataspace or the URL of a bucket, a folder if it ends with "/". NULL takes it back: what is removed has no target.
///
/// Errors: STEAD_USAGE for text that names no file, and, in a dataspace, for variables that are not set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_request_target(
    request: *mut stead_stage_request,
    target: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, request, |c, r| {
        r.target = c.optional_text(target, "target")?.map(location).transpose()?;
        Ok(())
    }))
}

/// Sets one option: "exists" (what becomes of names that the target has: refuse, replace, skip, newer), "delete" (a sync removes
/// what the source has not), "checksum" (a sync compares files of one size by their bytes, which are read on both sides, and not by
/// their time), "verify" (read back and compared), "skip-special" (pipes, sockets and devices are left out),
/// "durable" (files are on the device before they get their names; yes unless told otherwise), "gentle" (gives way to others),
/// each yes or no; "max-delete" (if a sync would remove more names, nothing is done, which is STEAD_LIMIT), "limit" (bytes a
/// second, with units, or none), "priority" (of those that wait), "retries" (of a file whose
/// error may pass). "exclude" and "include" add a pattern of names below the sources each: of what is left out, and of what alone is taken.
/// "min-size" and "max-size" (with units), "min-age" and "max-age" (such as 30min or 2d, before the transfer begins) take only files and
/// links that have at least, or at most, so many bytes, and were changed so long ago. "file" adds a name below the one source, a folder, by its way from there: these alone are taken, with the folders that they lie in.
///
/// Errors: STEAD_USAGE for a name or a value that there is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_request_set(
    request: *mut stead_stage_request,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let (name, value) = (c.text(name, "name of the option")?, c.text(value, "value")?);
        change(c, request, |_, r| stead::options::set_stage(&mut r.options, name, value))
    })
}

/// Frees a request; transfers that were begun with it go on. NULL is nothing to do; a handle that is no request any more is left
/// alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stage_request_free(request: *mut stead_stage_request) {
    look!((), |_c| table::remove::<StageRequestFace>(request))
}
