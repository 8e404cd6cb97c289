//! The version, the list of kernels, and texts that the caller frees.

use crate::error::{stead_error, stead_status};
use crate::guard::{Out, c_text, call, look};
use crate::table;
use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char};
use std::sync::{Mutex, OnceLock, PoisonError};
use stead::{Error, Result};

/// The texts that callers hold, by their address.
static TEXTS: Mutex<BTreeMap<usize, CString>> = Mutex::new(BTreeMap::new());

/// Hands a text to the caller.
pub fn give(out: Out<*mut c_char>, text: &str) {
    let text = c_text(text);
    let at = text.as_ptr();
    TEXTS.lock().unwrap_or_else(PoisonError::into_inner).insert(at.addr(), text);
    out.put(at.cast_mut());
}

/// As the command prints it, without the last line end.
pub fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string_pretty(value)
        .map_err(|e| Error::internal(format!("cannot write JSON: {e}")))
}

/// Frees a text that a function has written for the caller. NULL is nothing to do; what is no such text, or was
/// freed, is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_text_free(text: *mut c_char) {
    look!((), |_c| {
        let found = TEXTS.lock().unwrap_or_else(PoisonError::into_inner).remove(&text.addr());
        if found.is_some() || text.is_null() {
            Ok(())
        } else {
            Err(Error::usage("this is no text of stead, or was freed"))
        }
    })
}

const VERSION: &CStr =
    match CStr::from_bytes_with_nul(concat!(env!("CARGO_PKG_VERSION"), "\0").as_bytes()) {
        Ok(v) => v,
        Err(_) => c"",
    };

/// The version of the library that is running, such as "0.1.0"; STEAD_VERSION is that of the header. Lives for
/// ever.
#[unsafe(no_mangle)]
pub extern "C" fn stead_version() -> *const c_char {
    VERSION.as_ptr()
}

/// Number of handles and texts that are not freed, flags of stead_cancel_new not among them: 0 at the end of a
/// program that frees all.
#[unsafe(no_mangle)]
pub extern "C" fn stead_handles_alive() -> usize {
    look!(0, |_c| {
        let texts = TEXTS.lock().unwrap_or_else(PoisonError::into_inner).len();
        Ok(table::alive() + texts)
    })
}

/// The kernels as a JSON list of objects with "name", "summary", "usage", "definition", "error", "cost", "source"
/// and "examples", as `stead kernels --format json` prints it. Lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn stead_kernels_json() -> *const c_char {
    static ALL: OnceLock<CString> = OnceLock::new();
    look!(c"[]".as_ptr(), |_c| {
        let list: Vec<serde_json::Value> = stead::kernels::list()
            .map(|i| {
                serde_json::json!({
                    "name": i.name, "summary": i.summary, "usage": i.usage,
                    "definition": i.definition, "error": i.error, "cost": i.cost,
                    "source": i.source, "examples": i.examples,
                })
            })
            .collect();
        let text = json(&list)?;
        Ok(ALL.get_or_init(|| c_text(&text)).as_ptr())
    })
}

/// Parses a size such as "512MiB" or "1e9", as the command does.
///
/// Errors: STEAD_USAGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_parse_size(
    text: *const c_char,
    bytes: *mut u64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(bytes, "place for the size")?;
        out.put(stead::units::parse_size(c.text(text, "size")?)?);
        Ok(())
    })
}
