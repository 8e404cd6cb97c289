//! Arrays that are made before there is a writer, for `stead.empty`.

use crate::bytes::{self, Held, Made};
use crate::errors::raise;
use crate::lend::lend;
use crate::stream::{spaces, unlocked};
use pyo3::prelude::*;
use stead::stream::Home;
use stead::{ByteOrder, Error, Order};

/// Memory of so many bytes, for an array.
#[pyfunction]
pub fn make_array(py: Python<'_>, given: Vec<String>, bytes: u64) -> PyResult<Py<PyAny>> {
    let buffer = unlocked(py, || {
        let spaces = spaces(&given)?;
        Home::open(&spaces).map_err(Error::of_open_files)?.empty(bytes)
    })?;
    let odd = || raise(Error::internal("new memory is somebody else's"));
    bytes::plain(py, Held::Made(Made::new(buffer).ok_or_else(odd)?))
}

/// True if an array is all of such memory, as a stream has it: in C order, with the bytes of each number as they are here.
#[pyfunction]
pub fn is_made(held: &Bound<'_, PyAny>, array: &Bound<'_, PyAny>) -> PyResult<bool> {
    let Some(made) = bytes::made(held)? else { return Ok(false) };
    let Ok((lent, facts)) = lend(array) else { return Ok(false) };
    let is_native = facts.byte_order == ByteOrder::NATIVE || facts.dtype.size() == 1;
    let in_order = facts.order == Order::C || facts.shape.len() < 2;
    Ok(is_native && in_order && made.is_all(lent.as_ref()))
}
