//! Steps that readers look at, and arrays of them.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, c_text, call, look};
use crate::memory::{self, stead_dtype};
use crate::stream::{bounds, fits};
use crate::table::{self, Object};
use crate::text;
use crate::under_way::Lent;
use crate::value::{STEAD_DOUBLE, STEAD_INT, STEAD_TEXT, stead_type};
use crate::versions::grows;
use std::collections::HashMap;
use std::ffi::{CString, c_char, c_void};
use std::sync::atomic::AtomicPtr;
use std::sync::{Arc, Mutex, PoisonError};
use stead::stream::{Array, Attribute, Bounds, Definition, Step};
use stead::{Error, Kind, Result};

/// A step of a stream, complete. It stays as it is until it is freed. Made by stead_stream_reader_next and its like, freed with
/// stead_stream_step_free. Several threads may use it at the same time.
pub struct stead_stream_step {
    _opaque: [u8; 0],
}

/// A box of a variable: where a writer has put it, or copied together. Made by stead_stream_step_view, freed with stead_stream_array_free.
pub struct stead_stream_array {
    _opaque: [u8; 0],
}

/// What a variable of a step is. What it points to lives as long as the step. Members may be added at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_stream_variable {
    /// Its name.
    pub name: *const c_char,
    /// The type of its elements: STEAD_F64 and so on.
    pub dtype: stead_dtype,
    /// How many dimensions it has; a scalar has none.
    pub ndim: usize,
    /// The lengths of the whole array.
    pub shape: *const u64,
    /// The names of its dimensions; NULL if they have none.
    pub dims: *const *const c_char,
    /// How many attributes it has.
    pub attributes: usize,
}

grows!(stead_stream_variable, attributes: usize);

/// What is said of a variable beside its data. What it points to lives as long as the step. Members may be added at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_stream_attribute {
    /// By which it is asked for.
    pub key: *const c_char,
    /// STEAD_TEXT, STEAD_INT or STEAD_DOUBLE.
    pub kind: stead_type,
    /// True if it was given as a list.
    pub is_list: bool,
    /// How many values there are: 1 if it is no list.
    pub count: usize,
    /// Those of STEAD_TEXT; else NULL.
    pub texts: *const *const c_char,
    /// Those of STEAD_INT; else NULL.
    pub ints: *const i64,
    /// Those of STEAD_DOUBLE; else NULL.
    pub doubles: *const f64,
}

grows!(stead_stream_attribute, doubles: *const f64);

/// Texts as C has them, and a list of where they are.
struct Texts {
    /// What `places` point to.
    all: Vec<CString>,
    /// As a list of pointers, which it is laid out as.
    places: Vec<AtomicPtr<c_char>>,
}

impl Texts {
    fn new<'a>(texts: impl Iterator<Item = &'a str>) -> Texts {
        let all: Vec<CString> = texts.map(c_text).collect();
        let places = all.iter().map(|t| AtomicPtr::new(t.as_ptr().cast_mut())).collect();
        Texts { all, places }
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.places.as_ptr().cast()
    }

    fn get(&self, i: usize) -> *const c_char {
        self.all.get(i).map_or(std::ptr::null(), |t| t.as_ptr())
    }
}

/// What C is told of a variable: made when somebody asks.
struct Said {
    name: CString,
    dims: Texts,
    keys: Texts,
    /// Of each attribute; none where it is no text.
    values: Vec<Texts>,
}

impl Said {
    fn new(of: &Definition) -> Said {
        let texts = |attribute: &Attribute| match attribute {
            Attribute::Text(text) => Texts::new(std::iter::once(text.as_str())),
            Attribute::Texts(all) => Texts::new(all.iter().map(String::as_str)),
            _ => Texts::new(std::iter::empty()),
        };
        Said {
            name: c_text(&of.name),
            dims: Texts::new(of.dims.iter().map(String::as_str)),
            keys: Texts::new(of.attributes.keys().map(String::as_str)),
            values: of.attributes.values().map(texts).collect(),
        }
    }
}

/// What the table has of a step.
struct StepFace {
    step: Step,
    /// By the names of variables, of which each is there once.
    said: Mutex<HashMap<String, Arc<Said>>>,
}

impl Object for StepFace {
    type Handle = stead_stream_step;
    const NAME: &'static str = "step";
}

impl StepFace {
    fn said(&self, of: &Definition) -> Arc<Said> {
        let mut all = self.said.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(said) = all.get(&of.name) {
            return said.clone();
        }
        let said = Arc::new(Said::new(of));
        all.insert(of.name.clone(), said.clone());
        said
    }

    /// The face keeps all that this points to.
    fn variable(&self, of: &Definition) -> stead_stream_variable {
        let said = self.said(of);
        stead_stream_variable {
            name: said.name.as_ptr(),
            dtype: memory::number(of.dtype),
            ndim: of.shape.len(),
            shape: of.shape.as_ptr(),
            dims: if of.dims.is_empty() { std::ptr::null() } else { said.dims.as_ptr() },
            attributes: of.attributes.len(),
        }
    }

    /// As [`StepFace::variable`].
    fn attribute(&self, of: &Definition, i: usize) -> Option<stead_stream_attribute> {
        let (said, value) = (self.said(of), of.attributes.values().nth(i)?);
        let mut told = stead_stream_attribute {
            key: said.keys.get(i),
            kind: STEAD_TEXT,
            is_list: false,
            count: 1,
            texts: std::ptr::null(),
            ints: std::ptr::null(),
            doubles: std::ptr::null(),
        };
        match value {
            Attribute::Text(_) => told.texts = said.values.get(i)?.as_ptr(),
            Attribute::Int(n) => (told.kind, told.ints) = (STEAD_INT, n),
            Attribute::Float(x) => (told.kind, told.doubles) = (STEAD_DOUBLE, x),
            Attribute::Texts(all) => {
                (told.is_list, told.count) = (true, all.len());
                told.texts = said.values.get(i)?.as_ptr();
            }
            Attribute::Ints(all) => {
                (told.is_list, told.count) = (true, all.len());
                (told.kind, told.ints) = (STEAD_INT, all.as_ptr());
            }
            Attribute::Floats(all) => {
                (told.is_list, told.count) = (true, all.len());
                (told.kind, told.doubles) = (STEAD_DOUBLE, all.as_ptr());
            }
        }
        Some(told)
    }
}

/// What the table has of an array.
enum ArrayFace {
    /// As the step gave it.
    Given(Array),
    /// Held for its bytes: copied, so that elements lie one after the other.
    Copied { _words: Vec<u64> },
}

impl Object for ArrayFace {
    type Handle = stead_stream_array;
    const NAME: &'static str = "array";
}

/// Hands a step to the caller.
pub fn give(step: Step) -> *mut stead_stream_step {
    table::insert(StepFace { step, said: Mutex::default() })
}

/// The number of a step, from 0 on; 0 for what is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_number(step: *const stead_stream_step) -> u64 {
    look!(0, |_c| Ok(table::get::<StepFace>(step)?.step.number()))
}

/// How many steps before it the reader was not given, since they went before it came to them; 0 for what is no step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_dropped(step: *const stead_stream_step) -> u64 {
    look!(0, |_c| Ok(table::get::<StepFace>(step)?.step.dropped()))
}

/// The bytes of the arrays that writers have put into a step; 0 for what is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_bytes(step: *const stead_stream_step) -> u64 {
    look!(0, |_c| Ok(table::get::<StepFace>(step)?.step.bytes()))
}

/// When the last writer ended a step, in nanoseconds since 1970; 0 for what is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_completed_at(step: *const stead_stream_step) -> u64 {
    look!(0, |_c| Ok(table::get::<StepFace>(step)?.step.completed_at()))
}

/// What a step has cost its reader so far, as JSON: how many boxes were copied, bytes that were copied, looked at and fetched from other
/// nodes, seconds of processors that copies of 64 KiB or more have taken, seconds that were waited for it, and the most memory that the stream
/// has taken on this node as a multiple of what was put into the step there; without writers here, that of the nodes which it comes
/// from. To be freed with stead_text_free.
///
/// Errors: STEAD_USAGE for what is no step.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_report(
    step: *const stead_stream_step,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        text::give(out, &text::json(&table::get::<StepFace>(step)?.step.report())?);
        Ok(())
    })
}

/// How many variables a step has; 0 for what is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_variables(step: *const stead_stream_step) -> usize {
    look!(0, |_c| Ok(table::get::<StepFace>(step)?.step.variable_count()))
}

/// What variable `i` of a step is, from 0 on, copied to `variable`, which has `size` bytes: sizeof(stead_stream_variable) of the header
/// that the caller was compiled with. What only a later one has is 0.
///
/// Errors: STEAD_USAGE if there are not as many, and for a size that no version has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_variable(
    step: *const stead_stream_step,
    i: usize,
    variable: *mut stead_stream_variable,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(variable, size, "place for the variable")?;
        let face = table::get::<StepFace>(step)?;
        let Some(definition) = face.step.variable_at(i) else {
            let there = face.step.variable_count();
            return Err(Error::usage(format!("there is no variable {i}: there are {there}")));
        };
        out.put(face.variable(definition));
        Ok(())
    })
}

/// As stead_stream_step_variable, of the variable `name`.
///
/// Errors: STEAD_NOT_FOUND if there is none; STEAD_USAGE for a size that no version has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_find(
    step: *const stead_stream_step,
    name: *const c_char,
    variable: *mut stead_stream_variable,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(variable, size, "place for the variable")?;
        let face = table::get::<StepFace>(step)?;
        out.put(face.variable(face.step.variable(c.text(name, "name of the variable")?)?));
        Ok(())
    })
}

/// Attribute `i` of the variable `name`, from 0 on, in the order of their keys, copied to `attribute`, which has `size` bytes:
/// sizeof(stead_stream_attribute) of the header that the caller was compiled with. What only a later one has is 0.
///
/// Errors: STEAD_NOT_FOUND if there is no such variable; STEAD_USAGE if there are not as many, and for a size that no version has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_attribute(
    step: *const stead_stream_step,
    name: *const c_char,
    i: usize,
    attribute: *mut stead_stream_attribute,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(attribute, size, "place for the attribute")?;
        let face = table::get::<StepFace>(step)?;
        let definition = face.step.variable(c.text(name, "name of the variable")?)?;
        let Some(told) = face.attribute(definition, i) else {
            let there = definition.attributes.len();
            return Err(Error::usage(format!("there is no attribute {i}: there are {there}")));
        };
        out.put(told);
        Ok(())
    })
}

/// As stead_stream_step_attribute, of the attribute `key`.
///
/// Errors: STEAD_NOT_FOUND if there is no such variable or attribute; STEAD_USAGE for a size that no version has.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_find_attribute(
    step: *const stead_stream_step,
    name: *const c_char,
    key: *const c_char,
    attribute: *mut stead_stream_attribute,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_grown(attribute, size, "place for the attribute")?;
        let face = table::get::<StepFace>(step)?;
        let definition = face.step.variable(c.text(name, "name of the variable")?)?;
        let key = c.text(key, "key")?;
        let i = definition.attributes.keys().position(|k| k == key);
        let Some(told) = i.and_then(|i| face.attribute(definition, i)) else {
            let message = format!("variable '{}' has no attribute '{key}'", definition.name);
            return Err(Error::new(Kind::NotFound, message));
        };
        out.put(told);
        Ok(())
    })
}

/// Which parts of the variable `name` writers have put, as many as fit into `room`: the rank of each goes to `writers`; where it begins
/// and how many elements it has, in each of the ndim dimensions, to `starts` and `counts`, which have room for ndim times as many. They
/// may be NULL if `room` is 0. How many parts there are goes to `parts`.
///
/// Errors: STEAD_NOT_FOUND if there is no such variable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_parts(
    step: *const stead_stream_step,
    name: *const c_char,
    room: usize,
    writers: *mut u64,
    starts: *mut u64,
    counts: *mut u64,
    parts: *mut usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(parts, "place for the number of parts")?;
        let face = table::get::<StepFace>(step)?;
        let name = c.text(name, "name of the variable")?;
        let ndim = face.step.variable(name)?.shape.len();
        let all = face.step.parts(name)?;
        let few = all.iter().take(room);
        let sides = room.checked_mul(ndim);
        let sides = sides.ok_or_else(|| Error::usage(format!("{room} parts fit no memory")))?;
        c.fill(writers, room, "writers", few.clone().map(|(writer, _)| *writer as u64))?;
        let start = |part: &'_ (usize, Bounds)| part.1.start().to_vec();
        let count = |part: &'_ (usize, Bounds)| part.1.count().to_vec();
        c.fill(starts, sides, "starts", few.clone().flat_map(start))?;
        c.fill(counts, sides, "counts", few.flat_map(count))?;
        out.put(all.len());
        Ok(())
    })
}

/// A box of a variable of a step that C asks for.
fn asked<'c>(
    c: &'c Caller,
    face: &StepFace,
    name: *const c_char,
    start: *const u64,
    count: *const u64,
) -> Result<(&'c str, Bounds)> {
    let name = c.text(name, "name of the variable")?;
    let bounds = bounds(c, &face.step.variable(name)?.shape, start, count)?;
    Ok((name, bounds))
}

/// Whether a box of the variable `name` can be told by a start of so many numbers and a count of so many: as stead_stream_writer_fits.
///
/// Errors: STEAD_NOT_FOUND if there is no such variable; STEAD_USAGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_fits(
    step: *const stead_stream_step,
    name: *const c_char,
    start: usize,
    count: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let face = table::get::<StepFace>(step)?;
        let definition = face.step.variable(c.text(name, "name of the variable")?)?;
        fits(&definition.name, definition.shape.len(), start, count)
    })
}

/// Copies a box of the variable `name` to memory of the caller: the part that begins at `start` and has `count` elements in each dimension;
/// both NULL for all of it. `to` has `size` bytes, as many as the box has, and gets them with the last index running fastest. What several
/// writers have put is copied together.
///
/// Errors: STEAD_NOT_FOUND if nobody has put a part of it, or there is no such variable; STEAD_USAGE for a box that is not within the
/// array, and for another size; STEAD_PEER if somebody has removed the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_get_into(
    step: *const stead_stream_step,
    name: *const c_char,
    start: *const u64,
    count: *const u64,
    to: *mut c_void,
    size: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let face = table::get::<StepFace>(step)?;
        let (name, bounds) = asked(c, &face, name, start, count)?;
        face.step.get_into(name, &bounds, Lent::new(to, size)?.as_mut()).map(|_| ())
    })
}

/// As stead_stream_step_get_into, of what writers have put: the rest of `to` stays as it is. How many bytes were copied goes to `copied`,
/// which may be NULL.
///
/// Errors: those of stead_stream_step_get_into, but for parts that nobody has put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_get_what_there_is(
    step: *const stead_stream_step,
    name: *const c_char,
    start: *const u64,
    count: *const u64,
    to: *mut c_void,
    size: usize,
    copied: *mut usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let face = table::get::<StepFace>(step)?;
        let (name, bounds) = asked(c, &face, name, start, count)?;
        let bytes = face.step.get_what_there_is(name, &bounds, Lent::new(to, size)?.as_mut())?;
        c.put(copied, bytes);
        Ok(())
    })
}

/// A box of the variable `name`, as in stead_stream_step_get_into, to be looked at where it lies: if one writer has put all of it, it is
/// that writer's memory, and nothing is copied; else it is copied together. Its first element is at `*data`. How many bytes it is from one
/// element to the next goes to `strides`, for each dimension; if that is NULL, the elements lie one after the other, with the last index
/// running fastest, and are copied where they do not.
///
/// The array is a new handle, to be freed with stead_stream_array_free: until then its memory stays as it is, also when the step and the
/// reader have been freed, and cannot be used by writers. It must not be written to.
///
/// Errors: those of stead_stream_step_get_into; STEAD_LIMIT if there is no memory for a copy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_view(
    step: *const stead_stream_step,
    name: *const c_char,
    start: *const u64,
    count: *const u64,
    data: *mut *const c_void,
    strides: *mut i64,
    array: *mut *mut stead_stream_array,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(array, "place for the array")?;
        let place = c.out(data, "place for the address")?;
        let face = table::get::<StepFace>(step)?;
        let (name, bounds) = asked(c, &face, name, start, count)?;
        let given = face.step.get(name, &bounds)?;
        let (at, face) = if strides.is_null() && !lies_together(&given) {
            let mut words = memory_for(&bounds, given.dtype.size())?;
            let bytes = bytemuck::cast_slice_mut::<u64, u8>(&mut words);
            let size = usize::try_from(bounds.elements()).unwrap_or(0) * given.dtype.size();
            let to = bytes.get_mut(..size).unwrap_or_default();
            face.step.get_into(name, &bounds, to)?;
            // They stay where they are when their owner moves into the table.
            (words.as_ptr().cast(), ArrayFace::Copied { _words: words })
        } else {
            let signed = given.strides.iter().map(|s| i64::try_from(*s).unwrap_or(i64::MAX));
            if !strides.is_null() {
                c.fill(strides, given.strides.len(), "strides", signed)?;
            }
            (given.bytes().as_ptr().cast(), ArrayFace::Given(given))
        };
        place.put(at);
        out.put(table::insert(face));
        Ok(())
    })
}

/// True if the elements of an array lie one after the other: how far it is to the next of one alone is of no matter.
fn lies_together(array: &Array) -> bool {
    if array.bounds.is_empty() {
        return true;
    }
    let mut next = array.dtype.size();
    array.bounds.count().iter().zip(&array.strides).rev().all(|(count, stride)| {
        let together = *count == 1 || *stride == next;
        next = next.saturating_mul(usize::try_from(*count).unwrap_or(usize::MAX));
        together
    })
}

/// Zeros for so many elements, aligned for any of them.
fn memory_for(bounds: &Bounds, element: usize) -> Result<Vec<u64>> {
    let words = usize::try_from(bounds.elements())
        .ok()
        .and_then(|n| n.checked_mul(element))
        .map(|bytes| bytes.div_ceil(size_of::<u64>()));
    let none = || Error::limit(format!("no memory for box {bounds}"));
    let words = words.ok_or_else(none)?;
    let mut all = Vec::new();
    all.try_reserve_exact(words).map_err(|_| none())?;
    all.resize(words, 0);
    Ok(all)
}

/// True if an array is memory of a writer, and was not copied. False for what is no array.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_array_is_view(array: *const stead_stream_array) -> bool {
    look!(false, |_c| Ok(match &*table::get::<ArrayFace>(array)? {
        ArrayFace::Given(array) => array.is_view(),
        ArrayFace::Copied { .. } => false,
    }))
}

/// Frees an array. Its address is of no use any more. NULL is nothing to do; a handle that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_array_free(array: *mut stead_stream_array) {
    look!((), |_c| table::remove::<ArrayFace>(array))
}

/// Frees a step. Its arrays stay until they are freed. NULL is nothing to do; a handle that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_step_free(step: *mut stead_stream_step) {
    look!((), |_c| table::remove::<StepFace>(step))
}
