//! The writing end of a stream.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, look};
use crate::memory::{dtype, stead_dtype};
use crate::stream::{self, STEAD_STREAM_KEEP_NONE, bounds, fits};
use crate::stream_coupling::{self, stead_coupling};
use crate::table::{self, Object};
use crate::text;
use crate::versions::grows;
use std::ffi::{c_char, c_void};
use std::sync::{Mutex, PoisonError};
use stead::stream::{Attribute, Bounds, Definition, Room, Writer, Written};
use stead::{Error, Result};

/// A writer of a stream. Made by stead_stream_writer_open, ended with stead_stream_writer_close. Several threads may use it, one after
/// the other: a call waits for the one before.
pub struct stead_stream_writer {
    _opaque: [u8; 0],
}

/// Memory for a block that is put without a copy. Made by stead_stream_writer_empty, put with stead_stream_writer_put_room or freed with
/// stead_stream_room_free.
pub struct stead_stream_room {
    _opaque: [u8; 0],
}

/// How a stream is written. All of its writers say the same, but for their rank. A member that is 0 is what is said of it.
///
/// Begin with `stead_stream_writer_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_stream_writer_options {
    /// sizeof(stead_stream_writer_options).
    pub size: usize,
    /// Which of the writers this is, from 0 on.
    pub rank: u64,
    /// How many writers there are; 1 unless told otherwise.
    pub writers: u64,
    /// Complete steps that stay when all readers have had them, for those who come late and those who go back; 1 unless told otherwise,
    /// STEAD_STREAM_KEEP_NONE for none.
    pub keep: u64,
    /// Complete steps that a group of readers may be behind before writers wait for it; 2 unless told otherwise.
    pub queue: u64,
    /// Bytes of the arrays of all writers on this node; 4 GiB unless told otherwise.
    pub memory: u64,
    /// Groups of readers that are to be there before the first step begins.
    pub readers: u64,
    /// Milliseconds after which waiting for anybody fails with STEAD_TIMEOUT; ten minutes unless told otherwise.
    pub timeout_ms: u64,
    /// Folders of dataspaces such as "memory=/dev/shm/me", before those that are configured. Streams lie in "memory". None with a
    /// coupling, which has its own.
    pub dataspaces: *const *const c_char,
    /// How many there are.
    pub dataspaces_count: usize,
    /// Programs on several nodes of which this is one, or NULL. All ranks of its part write the stream: `rank` and `writers` are
    /// those of the coupling.
    pub coupling: *const stead_coupling,
    /// Where all steps are recorded, too, as they are written: a folder, by its path or in a dataspace, such as "nvme0://runs/sim", or NULL.
    /// It is made if it is not there, and has no steps yet. Readers open it as a stream, while this one goes on and after that. If a quota of
    /// a dataspace leaves no room, the next call fails with STEAD_NO_SPACE, as if the device were full.
    pub persist: *const c_char,
    /// Where steps are recorded that readers with STEAD_STREAM_SPILL have not had when there is no room for them in memory: a folder, which
    /// goes with the stream, or NULL; or "auto", the first dataspace that has room for `spill_limit` bytes, or else for as many as `memory`:
    /// those of this node go before those of all nodes, and then it goes by names. If a quota leaves no room, writers wait for those readers,
    /// too. Not with `persist`, which serves such readers, too.
    pub spill: *const c_char,
    /// Bytes that the files of `spill` may take on this node: beyond that writers wait for those readers, too. 0: as many as the disk has.
    pub spill_limit: u64,
}

grows!(stead_stream_writer_options, dataspaces_count: usize);

/// What the table has of a writer: `None` once it was closed.
struct WriterFace(Mutex<Option<Writer>>);

impl Object for WriterFace {
    type Handle = stead_stream_writer;
    const NAME: &'static str = "stream writer";
}

/// What the table has of memory for a block: `None` once it was put.
struct RoomFace(Mutex<Option<Room>>);

impl Object for RoomFace {
    type Handle = stead_stream_room;
    const NAME: &'static str = "room";
}

fn closed() -> Error {
    Error::usage("the stream writer was closed")
}

pub fn with<T>(
    writer: *const stead_stream_writer,
    f: impl FnOnce(&mut Writer) -> Result<T>,
) -> Result<T> {
    let face = table::get::<WriterFace>(writer)?;
    let mut writer = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    f(writer.as_mut().ok_or_else(closed)?)
}

/// Takes a writer from its handle, which is none any more.
fn taken(writer: *const stead_stream_writer) -> Result<Writer> {
    let face = table::get::<WriterFace>(writer)?;
    table::remove::<WriterFace>(writer)?;
    let mut writer = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    writer.take().ok_or_else(closed)
}

fn written(c: &Caller, given: *const stead_stream_writer_options) -> Result<Written> {
    let default = Written::default();
    if given.is_null() {
        return Ok(Written { spaces: stream::spaces(c, std::ptr::null(), 0)?, ..default });
    }
    let given = c.grown(given, "options")?;
    let or = |n: u64, default: u64| if n == 0 { default } else { n };
    let coupling = stream_coupling::optional(given.coupling)?;
    let place = |text, what| Ok::<_, Error>(c.optional_text(text, what)?.map(str::to_owned));
    Ok(Written {
        spaces: stream::spaces_of(c, given.dataspaces, given.dataspaces_count, coupling.is_some())?,
        rank: coupling.as_ref().map_or(given.rank, |c| c.rank()),
        writers: coupling.as_ref().map_or(or(given.writers, default.writers), |c| c.ranks()),
        keep: match given.keep {
            STEAD_STREAM_KEEP_NONE => 0,
            keep => or(keep, default.keep),
        },
        queue: or(given.queue, default.queue),
        memory: or(given.memory, default.memory),
        readers: given.readers,
        timeout: stream::time(given.timeout_ms, default.timeout),
        stop: default.stop,
        coupling,
        persist: place(given.persist, "place to persist")?,
        spill: place(given.spill, "place to spill")?,
        spill_limit: (given.spill_limit > 0).then_some(given.spill_limit),
    })
}

/// Takes the place of a writer of the stream `name`, which begins with the first of them. `options` may be NULL: one writer, with all
/// that is usual. A name has letters, digits, '.', '-' and '_'.
///
/// Errors: STEAD_USAGE if other writers say something else of the stream, or somebody is this one already, for options that make no
/// sense, and if there are steps of another stream where this one is to be recorded; STEAD_PERMISSION if the folder of streams is not
/// private to this user; STEAD_LIMIT if this process may have no more files open; STEAD_NO_SPACE, also if no dataspace has
/// room for what is to spill; STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_open(
    name: *const c_char,
    options: *const stead_stream_writer_options,
    writer: *mut *mut stead_stream_writer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(writer, "place for the stream writer")?;
        let name = c.text(name, "name")?;
        let opened = Writer::open(name, &written(c, options)?)?;
        out.put(table::insert(WriterFace(Mutex::new(Some(opened)))));
        Ok(())
    })
}

/// Says what a variable is, and gives its number: its `name`, the type of its elements, the `ndim` lengths of the whole array, of which
/// writers put parts, and the names of its dimensions, or NULL. No dimension is a scalar. What was said of a variable of the same name
/// before, attributes too, is so no more: shapes may change from step to step.
///
/// Errors: STEAD_USAGE for what can be no variable, and if a part of it was put into the step that is open and it is another one now;
/// STEAD_LIMIT if there are too many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_define(
    writer: *mut stead_stream_writer,
    name: *const c_char,
    dtype: stead_dtype,
    ndim: usize,
    shape: *const u64,
    dims: *const *const c_char,
    variable: *mut u32,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(variable, "place for the number of the variable")?;
        let dtype = self::dtype(dtype)?;
        let shape = c.slice(shape, ndim, "shape")?;
        let mut definition = Definition::new(c.text(name, "name of the variable")?, dtype, shape);
        if !dims.is_null() {
            definition.dims = c.texts(dims, ndim, "name of a dimension")?;
        }
        out.put(with(writer, |w| w.define(definition))?);
        Ok(())
    })
}

/// Gives a variable an attribute, or another one in place of that of the same key.
fn attribute(
    c: &Caller,
    writer: *mut stead_stream_writer,
    variable: u32,
    key: *const c_char,
    value: impl FnOnce() -> Result<Attribute>,
) -> Result<()> {
    let (key, value) = (c.text(key, "key")?.to_owned(), value()?);
    with(writer, |w| {
        let mut definition = w.definition(variable)?.clone();
        definition.attributes.insert(key, value);
        w.define(definition).map(|_| ())
    })
}

/// Says something of a variable beside its data, as text: a unit, a long name. An attribute of the same key goes. It is to be said before
/// a part of the variable is put into a step, and holds for all steps to come.
///
/// Errors: STEAD_USAGE for a variable or a key that is none, and in a step into which a part of it was put; STEAD_LIMIT if there are too
/// many.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_attribute_text(
    writer: *mut stead_stream_writer,
    variable: u32,
    key: *const c_char,
    value: *const c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| attribute(c, writer, variable, key, || {
        Ok(Attribute::Text(c.text(value, "value")?.to_owned()))
    }))
}

/// As stead_stream_writer_attribute_text, with a whole number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_attribute_int(
    writer: *mut stead_stream_writer,
    variable: u32,
    key: *const c_char,
    value: i64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| attribute(c, writer, variable, key, || Ok(Attribute::Int(value))))
}

/// As stead_stream_writer_attribute_text, with a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_attribute_double(
    writer: *mut stead_stream_writer,
    variable: u32,
    key: *const c_char,
    value: f64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| attribute(c, writer, variable, key, || Ok(Attribute::Float(value))))
}

/// As stead_stream_writer_attribute_text, with a list of `n` texts.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_attribute_texts(
    writer: *mut stead_stream_writer,
    variable: u32,
    key: *const c_char,
    values: *const *const c_char,
    n: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| attribute(c, writer, variable, key, || {
        Ok(Attribute::Texts(c.texts(values, n, "values")?))
    }))
}

/// As stead_stream_writer_attribute_text, with a list of `n` whole numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_attribute_ints(
    writer: *mut stead_stream_writer,
    variable: u32,
    key: *const c_char,
    values: *const i64,
    n: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| attribute(c, writer, variable, key, || {
        Ok(Attribute::Ints(c.slice(values, n, "values")?.to_vec()))
    }))
}

/// As stead_stream_writer_attribute_text, with a list of `n` numbers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_attribute_doubles(
    writer: *mut stead_stream_writer,
    variable: u32,
    key: *const c_char,
    values: *const f64,
    n: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| attribute(c, writer, variable, key, || {
        Ok(Attribute::Floats(c.slice(values, n, "values")?.to_vec()))
    }))
}

/// What has become of readers since this was asked last, as JSON: a list of objects with `presence` ("here", "left" or "died"), `group`, `rank`,
/// `process`, how many steps the reader `had`, which these are (`had_ranges`, pairs of a first and a last step; of a reader that has missed
/// steps often the newest ones, after `had_before` others), how many were `dropped` before it, and which `step` comes next for it. To be
/// freed with stead_text_free. Readers of other nodes have their `node` and `rank_of_job`, too.
///
/// Errors: STEAD_TIMEOUT if a process that is stopped keeps the stream locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_events(
    writer: *mut stead_stream_writer,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        text::give(out, &text::json(&with(writer, Writer::events)?)?);
        Ok(())
    })
}

/// What a writer has done so far, as JSON: steps that it has ended, bytes that it has put and those of them that were copied, seconds of
/// processors that copies of 64 KiB or more have taken, seconds that it has waited and for whom, the same of its last step, and the memory
/// of the stream with the most that it has taken. To be freed with stead_text_free.
///
/// Errors: STEAD_USAGE for what is no writer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_report(
    writer: *const stead_stream_writer,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        text::give(out, &text::json(&with(writer, |w| Ok(w.report()))?)?);
        Ok(())
    })
}

/// Begins a step, when there is room for it: readers that are waited for are not too far behind. Its number goes to `step`, which may be
/// NULL.
///
/// Errors: STEAD_USAGE within a step; STEAD_TIMEOUT, with who was waited for; STEAD_PEER if another writer has ended, or somebody has
/// removed the stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_begin(
    writer: *mut stead_stream_writer,
    step: *mut u64,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let begun = with(writer, Writer::begin)?;
        c.put(step, begun);
        Ok(())
    })
}

/// A block of a variable.
pub fn block(
    c: &Caller,
    writer: &Writer,
    variable: u32,
    start: *const u64,
    count: *const u64,
) -> Result<Bounds> {
    bounds(c, &writer.definition(variable)?.shape, start, count)
}

/// Whether a block of a variable can be told by a start of so many numbers and a count of so many: as many as it has dimensions, each. It is for
/// languages whose lists know how long they are, before a function that believes that they are as long.
///
/// Errors: STEAD_USAGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_fits(
    writer: *mut stead_stream_writer,
    variable: u32,
    start: usize,
    count: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| with(writer, |w| {
        let definition = w.definition(variable)?;
        fits(&definition.name, definition.shape.len(), start, count)
    }))
}

/// Whether a variable has elements of this type and so many dimensions, by what was said of it last. It is for languages in which a variable has
/// a type, before a function that takes memory to be as large as the variable says by now.
///
/// Errors: STEAD_USAGE.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_is(
    writer: *mut stead_stream_writer,
    variable: u32,
    dtype: stead_dtype,
    ndim: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let dtype = self::dtype(dtype)?;
        with(writer, |w| {
            let Definition { name, dtype: now, shape, .. } = w.definition(variable)?;
            if (*now, shape.len()) == (dtype, ndim) {
                return Ok(());
            }
            let has = shape.len();
            let message = format!(
                "variable '{name}' has {has} dimensions of type {now} by now, and not {ndim} of type {dtype}"
            );
            Err(Error::usage(message).with_hint("use what it was defined as last"))
        })
    })
}

/// Puts a block of a variable into the step that is open: the part that begins at `start` and has `count` elements in each dimension of
/// the whole array; both NULL for all of it. Its elements lie one after the other at `data`, the last index running fastest. They are
/// copied.
///
/// Errors: STEAD_USAGE outside a step, and for a block that is not within the array; STEAD_LIMIT if the step does not fit the memory of
/// the stream; STEAD_TIMEOUT if readers do not give memory free; STEAD_NO_SPACE; STEAD_PEER.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_put(
    writer: *mut stead_stream_writer,
    variable: u32,
    start: *const u64,
    count: *const u64,
    data: *const c_void,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| with(writer, |w| {
        let bounds = block(c, w, variable, start, count)?;
        let element = w.definition(variable)?.dtype.size() as u64;
        let bytes = bounds.elements().saturating_mul(element);
        let bytes =
            c.slice(data.cast::<u8>(), usize::try_from(bytes).unwrap_or(usize::MAX), "data")?;
        w.put(variable, &bounds, bytes)
    }))
}

/// Memory for a block of a variable, to be filled and put with stead_stream_writer_put_room without a copy, into this step or a later
/// one. `*memory` is where its elements go, the last index running fastest, aligned to 64 bytes: at first whatever was there before; NULL
/// if there are none. The rest is as in stead_stream_writer_put.
///
/// Errors: those of stead_stream_writer_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_empty(
    writer: *mut stead_stream_writer,
    variable: u32,
    start: *const u64,
    count: *const u64,
    memory: *mut *mut c_void,
    room: *mut *mut stead_stream_room,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let place = c.out_handle(memory, "place for the address")?;
        let out = c.out_handle(room, "place for the room")?;
        let mut room = with(writer, |w| {
            let bounds = block(c, w, variable, start, count)?;
            w.empty(variable, &bounds)
        })?;
        // Its bytes stay where they are when it moves into the table.
        let bytes = room.bytes_mut();
        place.put(if bytes.is_empty() { std::ptr::null_mut() } else { bytes.as_mut_ptr().cast() });
        out.put(table::insert(RoomFace(Mutex::new(Some(room)))));
        Ok(())
    })
}

/// Puts a block that was filled in its place. The handle of the room is none any more, whatever comes of it, unless `writer` or `room`
/// was no handle; its memory must not be written to.
///
/// Errors: STEAD_USAGE outside a step, for a room of another writer, and if the variable has another shape by now.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_put_room(
    writer: *mut stead_stream_writer,
    room: *mut stead_stream_room,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let face = table::get::<RoomFace>(room)?;
        with(writer, |w| {
            table::remove::<RoomFace>(room)?;
            let room = face.0.lock().unwrap_or_else(PoisonError::into_inner).take();
            w.put_room(room.ok_or_else(|| Error::usage("the room was put"))?)
        })
    })
}

/// Frees memory that is not put. NULL is nothing to do; a handle that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_room_free(room: *mut stead_stream_room) {
    look!((), |_c| table::remove::<RoomFace>(room))
}

/// Ends the step: when all writers have, readers see it.
///
/// Errors: STEAD_USAGE outside a step; STEAD_NO_SPACE, when it can be tried again; STEAD_PEER if another writer has ended.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_end(
    writer: *mut stead_stream_writer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| with(writer, Writer::end))
}

/// Closes the stream: readers come to its end when all writers have. What is complete stays for them, and this process may end. The
/// handle is none any more, whatever comes of it.
///
/// Errors: STEAD_USAGE within a step, which readers never see: they are told that the stream has failed; STEAD_TIMEOUT if a process that
/// is stopped keeps it locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_close(
    writer: *mut stead_stream_writer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| taken(writer)?.close())
}

/// Gives the stream up: readers are told that it has failed, after what is complete. The handle is none any more, whatever comes of it.
///
/// Errors: STEAD_TIMEOUT if a process that is stopped keeps it locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_abandon(
    writer: *mut stead_stream_writer,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| taken(writer)?.abandon())
}

/// Frees a writer that was not closed: it is closed, or given up if it is within a step. NULL is nothing to do; a handle that is none any
/// more, such as one that was closed, is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_writer_free(writer: *mut stead_stream_writer) {
    look!((), |_c| table::remove::<WriterFace>(writer))
}
