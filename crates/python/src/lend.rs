//! Memory of NumPy arrays, lent to datasets.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyType};
use stead::{ByteOrder, DType, Order};

/// The elements of an array. Keeps the array alive.
pub struct Lent {
    /// Never used, only held: the memory is the array's.
    _owner: Py<PyAny>,
    /// Readable for `len` bytes as long as `owner` lives; not null.
    start: *const u8,
    len: usize,
}

// SAFETY: the pointer is only read from, and the owner may be held and released in any thread.
unsafe impl Send for Lent {}
// SAFETY: as above; nothing here changes behind a shared reference.
unsafe impl Sync for Lent {}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `lend` took start and length from an array of NumPy itself, which keeps its memory in place
        // while it is referenced (`resize` refuses then, unless told not to look). Values that another thread
        // writes during a run are the caller's race, as with every function of NumPy that releases the lock.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }
}

/// What lies in an array.
pub struct Facts {
    pub dtype: DType,
    pub byte_order: ByteOrder,
    pub shape: Vec<u64>,
    pub order: Order,
}

/// Borrows the elements of a NumPy array that is contiguous in C or Fortran order.
///
/// # Errors
/// `TypeError` for anything but a plain array of numbers, `ValueError` for one with gaps.
pub fn lend(array: &Bound<'_, PyAny>) -> PyResult<(Lent, Facts)> {
    static NDARRAY: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let ndarray = NDARRAY.import(array.py(), "numpy", "ndarray")?;
    // A subclass could tell anything in its __array_interface__.
    if !array.get_type().is(ndarray) {
        return Err(PyTypeError::new_err("a plain numpy.ndarray is needed"));
    }
    let interface = array.getattr("__array_interface__")?.cast_into::<PyDict>()?;
    let get = |key: &str| {
        interface
            .get_item(key)?
            .ok_or_else(|| PyTypeError::new_err("an array without an interface"))
    };
    let typestr: String = get("typestr")?.extract()?;
    let (dtype, byte_order) = element(&typestr).ok_or_else(|| {
        let dtype = array.getattr("dtype").map(|d| d.to_string()).unwrap_or(typestr.clone());
        PyTypeError::new_err(format!(
            "arrays of {dtype} are not supported; use one of float32 float64 int8..int64 uint8..uint64 bool"
        ))
    })?;
    let shape: Vec<usize> = get("shape")?.extract()?;
    let (address, _): (usize, bool) = get("data")?.extract()?;
    let strides: Option<Vec<isize>> = match interface.get_item("strides")? {
        Some(s) => s.extract()?,
        None => None,
    };
    let gaps = || PyValueError::new_err("the array is not contiguous");
    let size = shape.iter().try_fold(dtype.size(), |n, d| n.checked_mul(*d));
    let len = size.filter(|n| isize::try_from(*n).is_ok()).ok_or_else(gaps)?;
    let order = match strides {
        None => Order::C,
        Some(s) if len == 0 || is_fortran(&s, &shape, dtype.size()) => Order::Fortran,
        Some(_) => return Err(gaps()),
    };
    let empty = std::ptr::NonNull::<u8>::dangling().as_ptr() as *const u8;
    let start = if len == 0 { empty } else { std::ptr::with_exposed_provenance(address) };
    if start.is_null() {
        return Err(PyTypeError::new_err("an array without memory"));
    }
    let shape = shape.into_iter().map(|d| d as u64).collect();
    let lent = Lent { _owner: array.clone().unbind(), start, len };
    Ok((lent, Facts { dtype, byte_order, shape, order }))
}

/// True if elements lie first index fastest, without gaps. Strides of dimensions of one do not matter.
fn is_fortran(strides: &[isize], shape: &[usize], size: usize) -> bool {
    let mut expected = size;
    strides.len() == shape.len()
        && strides.iter().zip(shape).all(|(s, d)| {
            let fits = *d == 1 || usize::try_from(*s) == Ok(expected);
            expected = expected.saturating_mul(*d);
            fits
        })
}

/// The type that NumPy writes as `<f8`.
fn element(typestr: &str) -> Option<(DType, ByteOrder)> {
    let order = match typestr.as_bytes().first()? {
        b'<' => ByteOrder::Little,
        b'>' => ByteOrder::Big,
        b'|' | b'=' => ByteOrder::NATIVE,
        _ => return None,
    };
    let dtype = match typestr.get(1..)? {
        "f4" => DType::F32,
        "f8" => DType::F64,
        "i1" => DType::I8,
        "i2" => DType::I16,
        "i4" => DType::I32,
        "i8" => DType::I64,
        "u1" | "b1" => DType::U8,
        "u2" => DType::U16,
        "u4" => DType::U32,
        "u8" => DType::U64,
        _ => return None,
    };
    Some((dtype, order))
}
