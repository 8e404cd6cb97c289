//! Datasets in the caller's memory, which is lent and not copied.

use crate::dataset::{self, stead_dataset};
use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, check_size, null};
use crate::options::{self, stead_options};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;
use stead::{
    ByteOrder, DType, Dataset, Error, FormatType, OpenOptions, Order, Result, TableColumn,
};

/// Type of one element: STEAD_F64 and so on.
pub type stead_dtype = c_int;

/// 32-bit float.
pub const STEAD_F32: stead_dtype = 1;
/// 64-bit float.
pub const STEAD_F64: stead_dtype = 2;
/// 8-bit signed integer.
pub const STEAD_I8: stead_dtype = 3;
/// 16-bit signed integer.
pub const STEAD_I16: stead_dtype = 4;
/// 32-bit signed integer.
pub const STEAD_I32: stead_dtype = 5;
/// 64-bit signed integer.
pub const STEAD_I64: stead_dtype = 6;
/// 8-bit unsigned integer.
pub const STEAD_U8: stead_dtype = 7;
/// 16-bit unsigned integer.
pub const STEAD_U16: stead_dtype = 8;
/// 32-bit unsigned integer.
pub const STEAD_U32: stead_dtype = 9;
/// 64-bit unsigned integer.
pub const STEAD_U64: stead_dtype = 10;

/// Which index runs fastest in memory.
pub type stead_order = c_int;

/// The last index (row-major), as in C.
pub const STEAD_ORDER_C: stead_order = 0;
/// The first index (column-major), as in Fortran.
pub const STEAD_ORDER_FORTRAN: stead_order = 1;

/// Called once when nothing reads lent memory any more, with the pointer that came with it; by the thread that is
/// the last one to let go. NULL if nobody wants to know.
pub type stead_release_fn = Option<unsafe extern "C" fn(user: *mut c_void)>;

/// One column of a table in memory: as many elements as the table has rows, one after the other, in this
/// machine's byte order.
#[repr(C)]
pub struct stead_column {
    /// Its name; copied.
    pub name: *const c_char,
    /// The elements. They may lie at any address.
    pub data: *const c_void,
    /// Their type.
    pub dtype: stead_dtype,
    /// Called with `user` when `data` is not read any more, or NULL.
    pub release: stead_release_fn,
    /// For `release`.
    pub user: *mut c_void,
}

/// The element types and their numbers.
const DTYPES: [(stead_dtype, DType); 10] = [
    (STEAD_F32, DType::F32),
    (STEAD_F64, DType::F64),
    (STEAD_I8, DType::I8),
    (STEAD_I16, DType::I16),
    (STEAD_I32, DType::I32),
    (STEAD_I64, DType::I64),
    (STEAD_U8, DType::U8),
    (STEAD_U16, DType::U16),
    (STEAD_U32, DType::U32),
    (STEAD_U64, DType::U64),
];

/// The element type of a number.
pub fn dtype(n: stead_dtype) -> Result<DType> {
    DTYPES.into_iter().find(|(k, _)| *k == n).map(|(_, d)| d).ok_or_else(|| {
        Error::usage(format!("no element type has the number {n}"))
            .with_hint("use STEAD_F64 and so on")
    })
}

/// The number of an element type.
pub fn number(dtype: DType) -> stead_dtype {
    DTYPES.into_iter().find(|(_, d)| *d == dtype).map_or(0, |(k, _)| k)
}

/// Calls back when it goes.
pub struct Release {
    call: stead_release_fn,
    user: *mut c_void,
}

// SAFETY: it does nothing with the pointer but hand it back, once; the header says that any thread may do so.
unsafe impl Send for Release {}
// SAFETY: as above; nothing can be done with a shared one.
unsafe impl Sync for Release {}

impl Release {
    pub fn new(call: stead_release_fn, user: *mut c_void) -> Release {
        Release { call, user }
    }
}

impl Drop for Release {
    fn drop(&mut self) {
        if let Some(call) = self.call {
            // SAFETY: the caller gave the function together with the pointer, for one call.
            unsafe { call(self.user) };
        }
    }
}

/// Memory of the caller, until it goes.
struct Lent {
    data: *const u8,
    len: usize,
    _release: Release,
}

// SAFETY: the caller promises that the memory can be read by all threads, and is not written to, until `release`.
unsafe impl Send for Lent {}
// SAFETY: as above; it is only read.
unsafe impl Sync for Lent {}

impl Lent {
    fn new(data: *const c_void, len: usize, release: Release) -> Result<Lent> {
        if data.is_null() && len > 0 {
            return Err(null("data"));
        }
        check_size::<u8>(len, "data")?;
        Ok(Lent { data: data.cast(), len, _release: release })
    }
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: not NULL, no longer than memory is, and the caller promises `len` bytes until `release`.
        unsafe { std::slice::from_raw_parts(self.data, self.len) }
    }
}

/// Opens bytes in memory as a dataset: text, .npy, or raw elements with their type in `options` (NULL: all is
/// detected). `name` stands where a file's path would, and says as much about the format as a file's name does;
/// NULL is "memory".
///
/// The `len` bytes are lent, not copied: they must stay as they are until `release` is called. It is called exactly
/// once, also when this function fails.
///
/// Errors: STEAD_USAGE, STEAD_FORMAT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_open_bytes(
    name: *const c_char,
    data: *const c_void,
    len: usize,
    options: *const stead_options,
    release: stead_release_fn,
    user: *mut c_void,
    dataset: *mut *mut stead_dataset,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let release = Release::new(release, user);
        let out = c.out_handle(dataset, "place for the dataset")?;
        let lent = Lent::new(data, len, release)?;
        let name = c.optional_text(name, "name")?.unwrap_or("memory");
        out.put(dataset::give(stead::open_memory(name, lent, &options::of(options)?)?));
        Ok(())
    })
}

/// Opens an array in memory as a dataset: `shape` has the `ndim` lengths, `order` says which index runs fastest,
/// the elements lie close together in this machine's byte order. A 2-d array has a row for each first index and a
/// column for each second one, which are called "0", "1" and so on; any other has a row for each element.
///
/// The elements are lent, not copied: they must stay as they are until `release` is called. It is called exactly
/// once, also when this function fails.
///
/// Errors: STEAD_USAGE, STEAD_FORMAT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_open_array(
    name: *const c_char,
    data: *const c_void,
    dtype: stead_dtype,
    ndim: usize,
    shape: *const u64,
    order: stead_order,
    release: stead_release_fn,
    user: *mut c_void,
    dataset: *mut *mut stead_dataset,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let release = Release::new(release, user);
        let out = c.out_handle(dataset, "place for the dataset")?;
        let dtype = self::dtype(dtype)?;
        let shape = c.slice(shape, ndim, "shape")?.to_vec();
        let order = match order {
            STEAD_ORDER_C => Order::C,
            STEAD_ORDER_FORTRAN => Order::Fortran,
            _ => return Err(Error::usage(format!("no order has the number {order}"))),
        };
        let elements = stead::Shape::new(shape.clone())?.elements();
        let bytes = usize::try_from(elements)
            .ok()
            .and_then(|n| n.checked_mul(dtype.size()))
            .ok_or_else(|| Error::usage("the array is larger than memory can be"))?;
        let lent = Lent::new(data, bytes, release)?;
        let name = c.optional_text(name, "name")?.unwrap_or("array");
        let options = OpenOptions {
            format: Some(FormatType::Raw),
            dtype: Some(dtype),
            shape: Some(shape),
            order: Some(order),
            byte_order: Some(ByteOrder::NATIVE),
            ..OpenOptions::default()
        };
        out.put(dataset::give(stead::open_memory(name, lent, &options)?));
        Ok(())
    })
}

/// Opens `n` columns of `rows` rows each as a dataset. A table has numbers only: kernels of bytes and text do not
/// run on it.
///
/// The elements are lent, not copied: those of each column must stay as they are until its `release` is called. It
/// is called exactly once for each column, also when this function fails, unless `columns` itself is NULL.
///
/// Errors: STEAD_USAGE, for two columns of one name too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_open_table(
    columns: *const stead_column,
    n: usize,
    rows: u64,
    dataset: *mut *mut stead_dataset,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let given = c.slice(columns, n, "columns")?;
        // All of them first, so that each is released whatever is wrong with another.
        let releases: Vec<Release> =
            given.iter().map(|g| Release::new(g.release, g.user)).collect();
        let out = c.out_handle(dataset, "place for the dataset")?;
        let columns = given
            .iter()
            .zip(releases)
            .map(|(g, release)| column(c, g, rows, release))
            .collect::<Result<Vec<_>>>()?;
        out.put(dataset::give(Dataset::table(columns)?));
        Ok(())
    })
}

fn column(c: &Caller, given: &stead_column, rows: u64, release: Release) -> Result<TableColumn> {
    let name = c.text(given.name, "name of a column")?;
    let dtype = dtype(given.dtype).map_err(|e| e.at_column(name))?;
    let bytes = usize::try_from(rows)
        .ok()
        .and_then(|n| n.checked_mul(dtype.size()))
        .ok_or_else(|| Error::usage("the table is larger than memory can be"))?;
    let data = Lent::new(given.data, bytes, release).map_err(|e| e.at_column(name))?;
    Ok(TableColumn { name: name.to_string(), dtype, data: Arc::new(data) })
}
