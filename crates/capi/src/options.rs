//! How to open a dataset.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, look};
use crate::table::{self, Object};
use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use stead::{OpenOptions, Result};

/// How to open a dataset; what is not set is detected. Made by stead_options_new, freed with stead_options_free.
/// Several threads may use it. Opening copies it.
pub struct stead_options {
    _opaque: [u8; 0],
}

/// The options behind a handle.
#[derive(Default)]
struct OptionsFace(Mutex<OpenOptions>);

impl Object for OptionsFace {
    type Handle = stead_options;
    const NAME: &'static str = "stead_options";
}

/// The options of a handle, the default ones for NULL.
pub fn of(handle: *const stead_options) -> Result<OpenOptions> {
    if handle.is_null() {
        return Ok(OpenOptions::default());
    }
    let face = table::get::<OptionsFace>(handle)?;
    let options = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    Ok(options.clone())
}

fn change(
    c: &Caller,
    handle: *mut stead_options,
    f: impl FnOnce(&Caller, &mut OpenOptions) -> Result<()>,
) -> Result<()> {
    let face = table::get::<OptionsFace>(handle)?;
    let mut options = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    f(c, &mut options)
}

/// Makes options of which none is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_options_new(
    options: *mut *mut stead_options,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(options, "place for the options")?;
        out.put(table::insert(OptionsFace::default()));
        Ok(())
    })
}

/// Sets one option by the name that it has on the command line: "type", "delimiter", "quote", "header",
/// "comment", "missing", "names", "column-type", "dtype", "shape", "order", "byte-order", "skip",
/// "record-length", "compression", "species", "dataspace", "storage-hosts" (the hosts whose ranks have the data, such as "node[1-4]";
/// "layout" for the nodes of the layouts that are opened, "layout:FILE" for those of another one; for stead_open_ranks). "missing" (one token), "column-type" (NAME=number or NAME=text) and
/// "dataspace" (NAME=/PATH: the folder of a dataspace of this node, for parts of layouts) add to what was set before; the
/// others replace it. Sizes may have units, "names" has commas between names.
///
/// Errors: STEAD_USAGE for a name or a value that there is not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_options_set(
    options: *mut stead_options,
    name: *const c_char,
    value: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let (name, value) = (c.text(name, "name of the option")?, c.text(value, "value")?);
        change(c, options, |_, o| stead::options::set(o, name, value))
    })
}

/// The `n` column names, in place of those in the header or of positions. They are copied.
///
/// Errors: STEAD_USAGE for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_options_set_names(
    options: *mut stead_options,
    names: *const *const c_char,
    n: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, options, |c, o| {
        o.names = Some(c.texts(names, n, "names")?);
        Ok(())
    }))
}

/// The `n` tokens that mean "no value", in place of the usual ones; none if `n` is 0. They are copied.
///
/// Errors: STEAD_USAGE for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_options_set_missing(
    options: *mut stead_options,
    tokens: *const *const c_char,
    n: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, options, |c, o| {
        o.missing = Some(c.texts(tokens, n, "tokens")?);
        Ok(())
    }))
}

/// The lengths of the `ndim` dimensions of a raw array. They are copied.
///
/// Errors: STEAD_USAGE for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_options_set_shape(
    options: *mut stead_options,
    shape: *const u64,
    ndim: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| change(c, options, |c, o| {
        o.shape = Some(c.slice(shape, ndim, "shape")?.to_vec());
        Ok(())
    }))
}

/// Frees options. NULL is nothing to do; a handle that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_options_free(options: *mut stead_options) {
    look!((), |_c| table::remove::<OptionsFace>(options))
}
