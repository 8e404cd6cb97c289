//! The buffer protocol: bytes that Python looks at where they lie, and memory of Python that readers fill.
//!
//! The stable ABI has the protocol from Python 3.11 on. 3.10 has the same functions, slots and struct, which have not
//! changed since 3.3, but does not call them stable; they are declared here, so that one wheel serves both.

use crate::fork;
use crate::stream;
use pyo3::exceptions::PyRuntimeError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyType;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead::read::View;
use stead::stream::{Array, Buffer, Kept, Room};

/// `Py_buffer`.
#[repr(C)]
struct RawBuffer {
    buf: *mut c_void,
    obj: *mut ffi::PyObject,
    len: ffi::Py_ssize_t,
    itemsize: ffi::Py_ssize_t,
    readonly: c_int,
    ndim: c_int,
    format: *mut c_char,
    shape: *mut ffi::Py_ssize_t,
    strides: *mut ffi::Py_ssize_t,
    suboffsets: *mut ffi::Py_ssize_t,
    internal: *mut c_void,
}

const PY_BUF_WRITABLE: c_int = 1;
/// The slot `Py_bf_getbuffer`.
const GET_BUFFER: c_int = 1;

unsafe extern "C" {
    fn PyObject_GetBuffer(o: *mut ffi::PyObject, view: *mut RawBuffer, flags: c_int) -> c_int;
    fn PyBuffer_FillInfo(
        view: *mut RawBuffer,
        o: *mut ffi::PyObject,
        buf: *mut c_void,
        len: ffi::Py_ssize_t,
        readonly: c_int,
        flags: c_int,
    ) -> c_int;
    fn PyBuffer_Release(view: *mut RawBuffer);
}

/// Bytes that a view in Python holds.
pub enum Held {
    /// Shared: a part of a mapping or of a block.
    View(View),
    /// Of its own.
    Own(Vec<u8>),
    /// Of its own, and of others that only read it.
    Shared(Arc<Vec<u8>>),
    /// Of a step of a stream.
    Array(Array),
    /// Memory of a stream, which may be written.
    Memory(Memory),
    /// Memory that was made before there was a stream, which may be written until it is put.
    Made(Made),
}

impl Held {
    /// Where its bytes begin, and how many there are.
    fn place(&self) -> (*const u8, usize) {
        let bytes: &[u8] = match self {
            Held::View(view) => view,
            Held::Own(own) => own,
            Held::Shared(shared) => shared,
            Held::Array(array) => array.bytes(),
            Held::Memory(memory) => {
                let (start, len) = memory.place();
                return (start.cast_const(), len);
            }
            Held::Made(made) => return (made.start.cast_const(), made.len),
        };
        (bytes.as_ptr(), bytes.len())
    }
}

/// Memory of a stream that an array of Python fills.
pub struct Memory {
    /// Writable for `len` bytes as long as `kept` lives; not null.
    start: *mut u8,
    len: usize,
    /// Never used, only held: nobody else gets this memory, also when it was put and all readers have had it.
    _kept: Kept,
    /// `None` once it was put.
    pub room: Mutex<Option<Room>>,
    /// Whose it is.
    pub writer: u64,
}

// SAFETY: the pointer is only handed on, to arrays; who writes there from several threads at a time has a race of his own, as with any
// array. The rest can be sent and shared.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new(mut room: Room, writer: u64) -> Memory {
        let bytes = room.bytes_mut();
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        Memory { start, len, _kept: room.keep(), room: Mutex::new(Some(room)), writer }
    }

    /// Where it begins, and its bytes.
    fn place(&self) -> (*mut u8, usize) {
        (self.start, self.len)
    }
}

/// Memory for an array that is made before there is a stream.
pub struct Made {
    /// Writable for `len` bytes as long as `buffer` lives; not null.
    start: *mut u8,
    len: usize,
    pub buffer: Buffer,
    /// Somebody may look at it: arrays that are made of it from now on are for reading only.
    pub is_put: AtomicBool,
}

// SAFETY: as of `Memory`.
unsafe impl Send for Made {}
// SAFETY: as above.
unsafe impl Sync for Made {}

impl Made {
    /// `None` if somebody else has it already.
    pub fn new(mut buffer: Buffer) -> Option<Made> {
        let bytes = buffer.bytes_mut()?;
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        Some(Made { start, len, buffer, is_put: AtomicBool::new(false) })
    }

    /// True if these bytes are all of it.
    pub fn is_all(&self, bytes: &[u8]) -> bool {
        self.len > 0 && bytes.len() == self.len && std::ptr::eq(bytes.as_ptr(), self.start)
    }
}

/// An object of `stead._stead.Bytes` or of a class that is derived from it.
#[repr(C)]
struct Object {
    base: ffi::PyObject,
    /// Null in an object that Python made, which is empty, or a box of its own. Never changes.
    held: *mut Holding,
}

struct Holding {
    held: Held,
    born: u32,
}

/// `stead._stead.Bytes`, which exports its bytes and nothing more; `stead.View` is derived from it.
pub fn base_type(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static TYPE: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    TYPE.get_or_try_init(py, || make_type(py).map(Bound::unbind)).map(|t| t.bind(py))
}

fn make_type(py: Python<'_>) -> PyResult<Bound<'_, PyType>> {
    let get: unsafe extern "C" fn(*mut ffi::PyObject, *mut RawBuffer, c_int) -> c_int = get_buffer;
    let free: ffi::destructor = dealloc;
    let len: ffi::lenfunc = length;
    let doc = c"Bytes that somebody holds, for the buffer protocol.";
    let mut slots = [
        ffi::PyType_Slot { slot: GET_BUFFER, pfunc: get as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_dealloc, pfunc: free as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_sq_length, pfunc: len as *mut c_void },
        ffi::PyType_Slot { slot: ffi::Py_tp_doc, pfunc: doc.as_ptr().cast_mut().cast() },
        ffi::PyType_Slot { slot: 0, pfunc: std::ptr::null_mut() },
    ];
    let size = c_int::try_from(size_of::<Object>());
    let flags = u32::try_from(ffi::Py_TPFLAGS_DEFAULT | ffi::Py_TPFLAGS_BASETYPE);
    let (Ok(basicsize), Ok(flags)) = (size, flags) else {
        return Err(PyRuntimeError::new_err("the type of views cannot be made"));
    };
    let mut spec = ffi::PyType_Spec {
        name: c"stead._stead.Bytes".as_ptr(),
        basicsize,
        itemsize: 0,
        flags,
        slots: slots.as_mut_ptr(),
    };
    // SAFETY: the slots end with a zero and have functions of the types that they are for; the name lives for ever,
    // as Python may keep its address; what comes back is a type or an error is set.
    let made = unsafe { Bound::from_owned_ptr_or_err(py, ffi::PyType_FromSpec(&mut spec)) }?;
    Ok(made.cast_into::<PyType>()?)
}

/// What an object holds.
///
/// # Safety
/// `object` is of the base type or of one derived from it, and is not used after it is gone.
unsafe fn held<'a>(object: *mut ffi::PyObject) -> Option<&'a Held> {
    // SAFETY: objects of these types begin with an `Object`; `held` is null or a box that lives as long as it.
    unsafe { (*object.cast::<Object>()).held.as_ref() }.map(|h| &h.held)
}

unsafe extern "C" fn get_buffer(
    object: *mut ffi::PyObject,
    view: *mut RawBuffer,
    flags: c_int,
) -> c_int {
    // SAFETY: Python calls it with objects of these types.
    let held = unsafe { held(object) };
    let none = std::ptr::NonNull::<u8>::dangling().as_ptr().cast_const();
    let (start, len) = held.map_or((none, 0), Held::place);
    let len = ffi::Py_ssize_t::try_from(len).unwrap_or(0);
    let may_be_written = match held {
        Some(Held::Memory(_)) => true,
        Some(Held::Made(made)) => !made.is_put.load(Ordering::Acquire),
        _ => false,
    };
    let read_only = c_int::from(!may_be_written);
    // SAFETY: `view` is Python's to be filled. The memory is readable as long as the object lives, which the buffer
    // has a reference to, and is said to be for reading only, but for what may be written just as long.
    unsafe { PyBuffer_FillInfo(view, object, start.cast_mut().cast(), len, read_only, flags) }
}

unsafe extern "C" fn length(object: *mut ffi::PyObject) -> ffi::Py_ssize_t {
    // SAFETY: Python calls it with objects of these types.
    let len = unsafe { held(object) }.map_or(0, |h| h.place().1);
    ffi::Py_ssize_t::try_from(len).unwrap_or(0)
}

unsafe extern "C" fn dealloc(object: *mut ffi::PyObject) {
    // SAFETY: the last reference is gone, so that nobody has the box any more. A type that was made from a
    // specification frees its objects by its slot and is referred to by each of them.
    unsafe {
        let held = (*object.cast::<Object>()).held;
        if !held.is_null() {
            let held = Box::from_raw(held);
            let Holding { held, born } = *held;
            match held {
                Held::Array(_) | Held::Memory(_) | Held::Made(_) => {
                    stream::let_go(Some(held), born)
                }
                _ if born == fork::generation() => drop(held),
                // Its locks may be those of threads that are not here.
                _ => std::mem::forget(held),
            }
        }
        let kind = ffi::Py_TYPE(object);
        let free = ffi::PyType_GetSlot(kind, ffi::Py_tp_free);
        if !free.is_null() {
            let free: ffi::freefunc = std::mem::transmute(free);
            free(object.cast());
        }
        ffi::Py_DECREF(kind.cast());
    }
}

/// The class `stead.View`, derived from `Bytes`.
fn class(py: Python<'_>) -> PyResult<&Bound<'_, PyType>> {
    static CLASS: PyOnceLock<Py<PyType>> = PyOnceLock::new();
    let find = || {
        let found = py.import("stead._read")?.getattr("View")?.cast_into::<PyType>()?;
        if !found.is_subclass(base_type(py)?)? {
            return Err(PyRuntimeError::new_err("stead.View is not the one of this package"));
        }
        Ok(found.unbind())
    };
    CLASS.get_or_try_init(py, find).map(|c| c.bind(py))
}

/// A `stead.View` of these bytes.
pub fn view(py: Python<'_>, held: Held) -> PyResult<Py<PyAny>> {
    object(class(py)?, held)
}

/// A `stead._stead.Bytes` of these bytes.
pub fn plain(py: Python<'_>, held: Held) -> PyResult<Py<PyAny>> {
    object(base_type(py)?, held)
}

/// What an object holds; `None` if it is of another type, or empty.
fn held_by<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a Held>> {
    if !object.is_instance(base_type(object.py())?)? {
        return Ok(None);
    }
    // SAFETY: of this type, as was looked up, and referred to by the caller as long as what is returned is had.
    Ok(unsafe { held(object.as_ptr()) })
}

/// The memory of a stream that an object holds; `None` if it holds something else.
pub fn memory<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a Memory>> {
    Ok(match held_by(object)? {
        Some(Held::Memory(memory)) => Some(memory),
        _ => None,
    })
}

/// The same of memory that was made before there was a stream.
pub fn made<'a>(object: &'a Bound<'_, PyAny>) -> PyResult<Option<&'a Made>> {
    Ok(match held_by(object)? {
        Some(Held::Made(made)) => Some(made),
        _ => None,
    })
}

/// An object of a class that is `Bytes` or is derived from it.
fn object(class: &Bound<'_, PyType>, held: Held) -> PyResult<Py<PyAny>> {
    let py = class.py();
    let held = Box::new(Holding { held, born: fork::generation() });
    // SAFETY: a new object of a type that begins with an `Object`, zeroed, or an error is set.
    unsafe {
        let made = ffi::PyType_GenericAlloc(class.as_ptr().cast(), 0);
        let made = Bound::from_owned_ptr_or_err(py, made)?;
        (*made.as_ptr().cast::<Object>()).held = Box::into_raw(held);
        Ok(made.unbind())
    }
}

/// Fails if bytes of a view were not there when somebody looked at them.
#[pyfunction]
pub fn check_view(view: &Bound<'_, PyAny>) -> PyResult<()> {
    if !view.is_instance(base_type(view.py())?)? {
        return Err(pyo3::exceptions::PyTypeError::new_err("a stead.View is needed"));
    }
    // SAFETY: of this type, as was looked up, and referred to by the caller.
    match unsafe { held(view.as_ptr()) } {
        Some(Held::View(view)) => view.check().map_err(crate::errors::raise),
        Some(_) | None => Ok(()),
    }
}

/// Writable memory of an object, such as an array or a bytearray, which cannot be resized or freed meanwhile.
pub struct Writable {
    /// In a box: exporters may point into it. `None` only while it is dropped.
    raw: Option<Box<RawBuffer>>,
    owner: Py<PyAny>,
    born: u32,
}

// SAFETY: the memory is that of the object, which the buffer holds; it is released with the interpreter's lock only.
unsafe impl Send for Writable {}

impl Writable {
    /// The writable bytes of `object`.
    ///
    /// # Errors
    /// `TypeError` or `BufferError`, as the object says: it has none, is for reading only, or is not contiguous.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Writable> {
        let mut raw = Box::new(RawBuffer {
            buf: std::ptr::null_mut(),
            obj: std::ptr::null_mut(),
            len: 0,
            itemsize: 0,
            readonly: 0,
            ndim: 0,
            format: std::ptr::null_mut(),
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            suboffsets: std::ptr::null_mut(),
            internal: std::ptr::null_mut(),
        });
        // SAFETY: `raw` is to be filled. Without other flags the bytes lie one after the other.
        if unsafe { PyObject_GetBuffer(object.as_ptr(), &mut *raw, PY_BUF_WRITABLE) } != 0 {
            return Err(PyErr::fetch(object.py()));
        }
        let owner = object.clone().unbind();
        Ok(Writable { raw: Some(raw), owner, born: fork::generation() })
    }

    /// Its number of bytes.
    pub fn len(&self) -> usize {
        self.raw.as_ref().map_or(0, |raw| usize::try_from(raw.len).unwrap_or(0))
    }

    /// The object whose memory it is.
    pub fn owner(&self) -> &Py<PyAny> {
        &self.owner
    }
}

impl AsMut<[u8]> for Writable {
    fn as_mut(&mut self) -> &mut [u8] {
        let len = self.len();
        let start = self.raw.as_ref().map_or(std::ptr::null_mut(), |raw| raw.buf);
        if start.is_null() || len == 0 {
            return &mut [];
        }
        // SAFETY: the exporter gave so many writable bytes, which stay in place until the buffer is released. Whoever
        // looks at them before the read is answered has a race of his own, as with every function that fills an
        // array with the lock released.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), len) }
    }
}

impl Drop for Writable {
    fn drop(&mut self) {
        // It may be a reader's thread, which must not wait for the interpreter's lock.
        if let Some(raw) = self.raw.take() {
            dropped().push(Dropped { raw, born: self.born });
        }
    }
}

/// A buffer that is to be given back.
struct Dropped {
    raw: Box<RawBuffer>,
    born: u32,
}

// SAFETY: it is only moved, until it is released with the interpreter's lock.
unsafe impl Send for Dropped {}

/// One for each generation of processes: a child may have inherited a lock that nobody there will give up.
static DROPPED: [Mutex<Vec<Dropped>>; 16] = [const { Mutex::new(Vec::new()) }; 16];

fn dropped() -> MutexGuard<'static, Vec<Dropped>> {
    let generation = fork::generation() as usize % DROPPED.len();
    DROPPED[generation].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Gives back the buffers that nobody fills any more.
pub fn release(_py: Python<'_>) {
    // Nobody does anything else under this lock, so that it is waited for with the interpreter's.
    let dropped = std::mem::take(&mut *dropped());
    for mut dropped in dropped {
        if dropped.born == fork::generation() {
            // SAFETY: filled by `Writable::new`, and released here only, once, with the interpreter's lock.
            unsafe { PyBuffer_Release(&mut *dropped.raw) }
        }
    }
}

/// The first `len` bytes of a buffer.
pub struct Part {
    pub buffer: Writable,
    pub len: usize,
}

impl AsMut<[u8]> for Part {
    fn as_mut(&mut self) -> &mut [u8] {
        let len = self.len.min(self.buffer.len());
        &mut self.buffer.as_mut()[..len]
    }
}
