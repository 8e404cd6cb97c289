//! What lies at a location, name by name.

use crate::cancel::{self, stead_cancel};
use crate::error::{stead_error, stead_status};
use crate::guard::{call, null};
use crate::stage::{self, stead_stager};
use std::ffi::{CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;
use stead::daemon::{ByDaemon, dataspaces_named};
use stead::stage::tree::{Depth, Tree};
use stead::stage::{FileTime, What, location};
use stead::{Cancel, Error, Result};

/// Something that lies at a location, as stead_ls tells of it. Good during the call. Members may be added at its end.
#[repr(C)]
pub struct stead_entry {
    /// Its name below the folder that was asked for, as the system has it, which may be no UTF-8; of a file or a pattern one that
    /// leads there from where the location does.
    pub name: *const c_char,
    /// "file", "folder", "link" or "special".
    pub kind: *const c_char,
    /// Its bytes; 0 of a folder.
    pub size: u64,
    /// When its bytes were changed, in seconds since 1970; NaN where nobody knows it, as of folders of buckets.
    pub modified: f64,
}

/// Is told of what lies at a location: see stead_ls. Returns 0 to go on and anything else to stop. It must not throw or jump out.
pub type stead_entry_fn =
    Option<unsafe extern "C" fn(entry: *const stead_entry, user: *mut c_void) -> c_int>;

/// Tells `each` of what lies at `at`, a location as stead_stage_request_source has it: in a folder, a dataspace or a bucket, and with `all` of what lies below it, too; else of the
/// file itself, or of all that a pattern stands for. Names of a folder come in order, and few are in memory; those of a bucket in the order
/// of the store. Names of another node of the pool, NODE:/path, are asked for by way of the daemon. `stager` has the dataspaces. `cancel`
/// may be NULL; else it stops it, too.
///
/// Errors: STEAD_NOT_FOUND; STEAD_USAGE for locations that make no sense and nodes that are not reached; STEAD_PERMISSION; STEAD_CANCELLED if
/// `each` stopped it; STEAD_IO, STEAD_PEER and STEAD_TIMEOUT for what is met on the way.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_ls(
    stager: *const stead_stager,
    at: *const c_char,
    all: bool,
    each: stead_entry_fn,
    user: *mut c_void,
    cancel: *mut stead_cancel,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let mut spaces = stage::of(stager)?.means().spaces.clone();
        let at = location(c.text(at, "location")?)?;
        if at.node.is_none() {
            spaces.fill(dataspaces_named(&spaces, at.space.as_deref())?);
        }
        let each = each.ok_or_else(|| null("function"))?;
        let cancel = if cancel.is_null() { Cancel::new() } else { cancel::flag(cancel)?.clone() };
        let tree = Tree::new(spaces).stopped_by(&cancel).reaching(Arc::new(ByDaemon::default()));
        let depth = if all { Depth::All } else { Depth::One };
        tree.look(&at, depth, &mut |entry| {
            let meta = entry.meta;
            let name = c_name(entry.name.into_vec())?;
            let told = stead_entry {
                name: name.as_ptr(),
                kind: kind(meta.what).as_ptr(),
                size: if meta.what == What::Folder { 0 } else { meta.size },
                modified: match meta.mtime {
                    none if none == FileTime::default() => f64::NAN,
                    time => time.seconds as f64 + f64::from(time.nanos) * 1e-9,
                },
            };
            // SAFETY: the caller gave the function together with the pointer, for calls until this one returns.
            match unsafe { each(&told, user) } {
                0 => Ok(()),
                _ => Err(Error::cancelled()),
            }
        })
    })
}

/// No name of a system has a zero in it.
fn c_name(name: Vec<u8>) -> Result<CString> {
    CString::new(name).map_err(|_| Error::internal("a name with a zero in it"))
}

fn kind(what: What) -> &'static std::ffi::CStr {
    match what {
        What::File => c"file",
        What::Folder => c"folder",
        What::Link => c"link",
        What::Special => c"special",
    }
}
