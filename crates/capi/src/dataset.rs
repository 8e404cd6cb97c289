//! Datasets and what they say of themselves.

use crate::error::{stead_error, stead_status};
use crate::guard::{c_text, call, look};
use crate::options::{self, stead_options};
use crate::table::{self, Object};
use crate::text;
use std::ffi::{CString, c_char};
use std::sync::{Arc, OnceLock};
use stead::{ColumnKind, Dataset, Error, Result};

/// Files, or memory, that are read as one. Made by stead_open and its like, freed with stead_dataset_free.
/// Immutable: several threads may use it, and run over it, at the same time.
pub struct stead_dataset {
    _opaque: [u8; 0],
}

/// A dataset with its texts for C, made when somebody asks.
pub struct DatasetFace {
    pub dataset: Dataset,
    names: OnceLock<Vec<CString>>,
    types: OnceLock<Vec<CString>>,
    files: OnceLock<Vec<CString>>,
    format: CString,
}

impl Object for DatasetFace {
    type Handle = stead_dataset;
    const NAME: &'static str = "dataset";
}

/// Hands a dataset to the caller.
pub fn give(dataset: Dataset) -> *mut stead_dataset {
    table::insert(DatasetFace {
        format: c_text(dataset.format_name()),
        dataset,
        names: OnceLock::new(),
        types: OnceLock::new(),
        files: OnceLock::new(),
    })
}

fn get(handle: *const stead_dataset) -> Result<Arc<DatasetFace>> {
    table::get(handle)
}

/// One of several texts, which lives as long as the dataset.
fn pick(all: &[CString], i: usize, what: &str) -> Result<*const c_char> {
    let text = all.get(i).ok_or_else(|| {
        Error::usage(format!("there is no {what} {i}; the dataset has {}", all.len()))
    })?;
    Ok(text.as_ptr())
}

/// Opens a file, a glob or a directory as a dataset. `options` may be NULL: all is detected. Names are UTF-8.
///
/// Errors: STEAD_NOT_FOUND, STEAD_PERMISSION, STEAD_IO; STEAD_USAGE for options that contradict each other or the
/// data; STEAD_FORMAT for files that are empty, of no known format, or unlike the first one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_open(
    path: *const c_char,
    options: *const stead_options,
    dataset: *mut *mut stead_dataset,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(dataset, "place for the dataset")?;
        let path = c.text(path, "path")?.to_string();
        out.put(give(stead::open_with(&[path], &options::of(options)?)?));
        Ok(())
    })
}

/// Opens `n` files, globs or directories as one dataset, in this order. As stead_open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_open_all(
    paths: *const *const c_char,
    n: usize,
    options: *const stead_options,
    dataset: *mut *mut stead_dataset,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(dataset, "place for the dataset")?;
        let paths = c.texts(paths, n, "paths")?;
        out.put(give(stead::open_with(&paths, &options::of(options)?)?));
        Ok(())
    })
}

/// What the dataset is, with its first `rows` records, as the JSON document of `stead describe --format json`. The
/// text is the caller's, to be freed with stead_text_free.
///
/// Errors: those of reading the first records.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_describe(
    dataset: *const stead_dataset,
    rows: usize,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        text::give(out, &text::json(&get(dataset)?.dataset.describe(rows)?)?);
        Ok(())
    })
}

/// The format: "csv", "tsv", "lines", "records", "npy", "raw", "tipsy", "table", "recorded". NULL if the handle is no dataset. Lives as
/// long as the dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_format(dataset: *const stead_dataset) -> *const c_char {
    look!(std::ptr::null(), |_c| Ok(get(dataset)?.format.as_ptr()))
}

/// Number of columns; 0 for lines and opaque records, and if the handle is no dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_column_count(dataset: *const stead_dataset) -> usize {
    look!(0, |_c| Ok(get(dataset)?.dataset.schema().columns.len()))
}

/// The name of column `i`, or NULL if there is none. Lives as long as the dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_column_name(
    dataset: *const stead_dataset,
    i: usize,
) -> *const c_char {
    look!(std::ptr::null(), |_c| {
        let face = get(dataset)?;
        let columns = &face.dataset.schema().columns;
        let names = face.names.get_or_init(|| columns.iter().map(|c| c_text(&c.name)).collect());
        pick(names, i, "column")
    })
}

/// The type of column `i`: "number" (written as text), "text", or an element type such as "f64". NULL if there is no
/// such column. Lives as long as the dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_column_type(
    dataset: *const stead_dataset,
    i: usize,
) -> *const c_char {
    look!(std::ptr::null(), |_c| {
        let face = get(dataset)?;
        let columns = &face.dataset.schema().columns;
        let types = face.types.get_or_init(|| {
            let name = |k| match k {
                ColumnKind::Number => "number",
                ColumnKind::Text => "text",
                ColumnKind::Binary(d) => d.name(),
            };
            columns.iter().map(|c| c_text(name(c.kind))).collect()
        });
        pick(types, i, "column")
    })
}

/// The index of the column that `name` means: an exact name, or, where no column has that name, a position.
///
/// Errors: STEAD_USAGE, with the closest name in the hint.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_find_column(
    dataset: *const stead_dataset,
    name: *const c_char,
    index: *mut usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(index, "place for the index")?;
        out.put(get(dataset)?.dataset.schema().column(c.text(name, "name of the column")?)?);
        Ok(())
    })
}

/// Number of dimensions of an array, 0 for other data and for a scalar. The lengths are written to `shape`, as many
/// as fit into `room`; it may be NULL if `room` is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_shape(
    dataset: *const stead_dataset,
    shape: *mut u64,
    room: usize,
) -> usize {
    look!(0, |c| {
        let face = get(dataset)?;
        let Some(found) = &face.dataset.schema().shape else { return Ok(0) };
        c.fill(shape, room, "shape", found.dims().iter().copied())?;
        Ok(found.ndim())
    })
}

/// Number of files (of columns, for a table in memory); 0 if the handle is no dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_file_count(dataset: *const stead_dataset) -> usize {
    look!(0, |_c| Ok(get(dataset)?.dataset.files()))
}

/// The name of file `i`, or NULL if there is none. Lives as long as the dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_file(
    dataset: *const stead_dataset,
    i: usize,
) -> *const c_char {
    look!(std::ptr::null(), |_c| {
        let face = get(dataset)?;
        let files = face.files.get_or_init(|| {
            let path =
                |i: usize| face.dataset.sources().get(i).map(|s| s.path().display().to_string());
            (0..face.dataset.files()).map(|i| c_text(&path(i).unwrap_or_default())).collect()
        });
        pick(files, i, "file")
    })
}

/// Bytes of all files, as they lie; 0 if the handle is no dataset.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_bytes(dataset: *const stead_dataset) -> u64 {
    look!(0, |_c| Ok(get(dataset)?.dataset.total_bytes()))
}

/// Frees a dataset and its texts. A run that is under way on another thread goes on to its end. NULL is nothing to
/// do; a handle that is no dataset any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_dataset_free(dataset: *mut stead_dataset) {
    look!((), |_c| table::remove::<DatasetFace>(dataset))
}
