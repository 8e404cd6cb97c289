//! Kinds of failure with stable numbers, and errors as handles.

use crate::guard::{self, c_text, look};
use crate::table::{self, Object};
use std::ffi::{CString, c_char, c_int};
use stead::{Error, Kind};

/// Outcome of a call: STEAD_OK, or the kind of failure. The numbers do not change from version to version.
pub type stead_status = c_int;

/// Done.
pub const STEAD_OK: stead_status = 0;
/// The request makes no sense: unknown kernel, bad option, no such column, a NULL or freed handle.
pub const STEAD_USAGE: stead_status = 1;
/// A file, glob or directory that is not there.
pub const STEAD_NOT_FOUND: stead_status = 2;
/// The operating system refused access.
pub const STEAD_PERMISSION: stead_status = 3;
/// The bytes do not have the format they were said or found to have.
pub const STEAD_FORMAT: stead_status = 4;
/// One record or value is bad, in a file whose format is right.
pub const STEAD_DATA: stead_status = 5;
/// The file changed or shrank while it was read.
pub const STEAD_CHANGED: stead_status = 6;
/// A budget (memory, groups, record length) was reached.
pub const STEAD_LIMIT: stead_status = 7;
/// No space left on the device, or over quota.
pub const STEAD_NO_SPACE: stead_status = 8;
/// The device or the operating system failed.
pub const STEAD_IO: stead_status = 9;
/// The caller stopped the work.
pub const STEAD_CANCELLED: stead_status = 10;
/// A peer rank failed or did not answer in time.
pub const STEAD_PEER: stead_status = 11;
/// There was no answer before the deadline.
pub const STEAD_TIMEOUT: stead_status = 13;
/// A defect of stead itself.
pub const STEAD_INTERNAL: stead_status = 12;

const KINDS: [(Kind, stead_status, &std::ffi::CStr); 13] = [
    (Kind::Usage, STEAD_USAGE, c"usage"),
    (Kind::NotFound, STEAD_NOT_FOUND, c"not found"),
    (Kind::Permission, STEAD_PERMISSION, c"permission"),
    (Kind::Format, STEAD_FORMAT, c"format"),
    (Kind::Data, STEAD_DATA, c"data"),
    (Kind::Changed, STEAD_CHANGED, c"changed"),
    (Kind::Limit, STEAD_LIMIT, c"limit"),
    (Kind::NoSpace, STEAD_NO_SPACE, c"no space"),
    (Kind::Io, STEAD_IO, c"io"),
    (Kind::Cancelled, STEAD_CANCELLED, c"cancelled"),
    (Kind::Peer, STEAD_PEER, c"peer"),
    (Kind::Timeout, STEAD_TIMEOUT, c"timeout"),
    (Kind::Internal, STEAD_INTERNAL, c"internal"),
];

/// The number of a kind.
pub fn number(kind: Kind) -> stead_status {
    KINDS.iter().find(|(k, ..)| *k == kind).map_or(STEAD_INTERNAL, |(_, n, _)| *n)
}

/// The kind of a number.
pub fn kind(number: stead_status) -> Option<Kind> {
    KINDS.iter().find(|(_, n, _)| *n == number).map(|(k, ..)| *k)
}

/// What went wrong: kind, message, place, hint. Made by calls that fail, freed with stead_error_free. Immutable,
/// so threads may share it.
pub struct stead_error {
    _opaque: [u8; 0],
}

/// An error with its texts for C.
pub struct ErrorFace {
    pub error: Error,
    message: CString,
    what: CString,
    hint: Option<CString>,
    path: Option<CString>,
    column: Option<CString>,
}

impl ErrorFace {
    pub fn new(error: Error) -> ErrorFace {
        let place = error.place();
        ErrorFace {
            message: c_text(&error.to_string()),
            what: c_text(error.message()),
            hint: error.hint().map(c_text),
            path: place.path.as_ref().map(|p| c_text(&p.display().to_string())),
            column: place.column.as_deref().map(c_text),
            error,
        }
    }
}

impl Object for ErrorFace {
    type Handle = stead_error;
    const NAME: &'static str = "error";
}

/// A text of an error, NULL if there is none.
fn text(
    error: *const stead_error,
    pick: impl FnOnce(&ErrorFace) -> Option<&CString>,
) -> *const c_char {
    // The table holds the texts where they are until the error is freed.
    look!(std::ptr::null(), |_c| {
        let face = table::get::<ErrorFace>(error)?;
        Ok(pick(&face).map_or(std::ptr::null(), |t| t.as_ptr()))
    })
}

/// The kind of an error: STEAD_USAGE and so on. STEAD_OK for NULL or a handle that is no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_kind(error: *const stead_error) -> stead_status {
    look!(STEAD_OK, |_c| {
        if error.is_null() {
            return Ok(STEAD_OK);
        }
        Ok(number(table::get::<ErrorFace>(error)?.error.kind()))
    })
}

/// The name of a kind, such as "not found"; "ok" for STEAD_OK and "unknown" for a number that is none. Lives for
/// ever.
#[unsafe(no_mangle)]
pub extern "C" fn stead_status_name(status: stead_status) -> *const c_char {
    let name = KINDS.iter().find(|(_, n, _)| *n == status).map(|(.., name)| *name);
    name.unwrap_or(if status == STEAD_OK { c"ok" } else { c"unknown" }).as_ptr()
}

/// The whole message in one line, with file, line or offset, and column, as the command prints it. NULL if the
/// handle is no error. Lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_message(error: *const stead_error) -> *const c_char {
    text(error, |e| Some(&e.message))
}

/// The message without the place. NULL if the handle is no error. Lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_what(error: *const stead_error) -> *const c_char {
    text(error, |e| Some(&e.what))
}

/// What can be done about it, or NULL. Lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_hint(error: *const stead_error) -> *const c_char {
    text(error, |e| e.hint.as_ref())
}

/// The file, or NULL. Lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_path(error: *const stead_error) -> *const c_char {
    text(error, |e| e.path.as_ref())
}

/// The column, or NULL. Lives as long as the error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_column(error: *const stead_error) -> *const c_char {
    text(error, |e| e.column.as_ref())
}

/// The line in the (decompressed) file, from 1; 0 if it is not known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_line(error: *const stead_error) -> u64 {
    look!(0, |_c| Ok(table::get::<ErrorFace>(error)?.error.place().line.unwrap_or(0)))
}

/// True if the byte offset in the (decompressed) file is known; it is then written to `offset`, unless that is
/// NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_offset(error: *const stead_error, offset: *mut u64) -> bool {
    look!(false, |c| {
        let found = table::get::<ErrorFace>(error)?.error.place().offset;
        if let Some(n) = found {
            c.put(offset, n);
        }
        Ok(found.is_some())
    })
}

/// True if the same call may succeed when it is made again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_is_retryable(error: *const stead_error) -> bool {
    look!(false, |_c| Ok(table::get::<ErrorFace>(error)?.error.is_retryable()))
}

/// Frees an error and its texts. NULL is nothing to do; a handle that is no error any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_error_free(error: *mut stead_error) {
    look!((), |_c| table::remove::<ErrorFace>(error))
}

/// What the last call that failed on this thread had to say, with its hint; "" if none has failed, and where it is kept no more: in what
/// exit() calls. For calls that return no error, and for those that were given NULL for it. Lives until the next failure on this thread.
#[unsafe(no_mangle)]
pub extern "C" fn stead_last_message() -> *const c_char {
    guard::last()
}
