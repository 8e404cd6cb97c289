//! The reading end of a stream.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, look};
use crate::stream::{
    self, STEAD_STREAM_BLOCK, STEAD_STREAM_DROP, STEAD_STREAM_FIRST, STEAD_STREAM_NEXT,
    STEAD_STREAM_OLDEST, STEAD_STREAM_SPILL, stead_stream_behind, stead_stream_start,
};
use crate::stream_coupling::{self, stead_coupling};
use crate::stream_step::{self, stead_stream_step};
use crate::table::{self, Object};
use crate::text;
use crate::versions::grows;
use std::ffi::c_char;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use stead::daemon::StreamNodes;
use stead::stream::{Behind, Read, Reader, Start};
use stead::{Error, Result};

/// A reader of a stream. Made by stead_stream_reader_open, freed with stead_stream_reader_free. Several threads may use it, one after the
/// other: a call waits for the one before.
pub struct stead_stream_reader {
    _opaque: [u8; 0],
}

/// How a stream is read. All ranks of a group say the same, but for their rank. A member that is 0 is what is said of it.
///
/// Begin with `stead_stream_reader_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_stream_reader_options {
    /// sizeof(stead_stream_reader_options).
    pub size: usize,
    /// The name of the group, each of which has all steps; "readers" if it is NULL.
    pub group: *const c_char,
    /// Which rank of the group this is, from 0 on. Only if `ranks` is not 0.
    pub rank: u64,
    /// How many ranks the group has. 0: all ranks of its part, with a coupling, each in its place there; and one without.
    pub ranks: u64,
    /// With which step the group begins: STEAD_STREAM_OLDEST, STEAD_STREAM_NEXT or STEAD_STREAM_FIRST.
    pub start: stead_stream_start,
    /// What writers do when it is behind: STEAD_STREAM_BLOCK, STEAD_STREAM_DROP or STEAD_STREAM_SPILL.
    pub behind: stead_stream_behind,
    /// Milliseconds after which waiting for anybody fails with STEAD_TIMEOUT; ten minutes unless told otherwise.
    pub timeout_ms: u64,
    /// Threads that copy large boxes; as many as are of use unless told otherwise.
    pub threads: usize,
    /// Folders of dataspaces such as "memory=/dev/shm/me", before those that are configured. Streams lie in "memory". None with a
    /// coupling, which has its own.
    pub dataspaces: *const *const c_char,
    /// How many there are.
    pub dataspaces_count: usize,
    /// Programs on several nodes of which this is one, or NULL. Writers may be on any of these nodes, whoever has begun them.
    pub coupling: *const stead_coupling,
    /// The names of other nodes of the pool of daemons that writers may be on. NULL: all are asked, unless all of the stream is written
    /// here or, with a coupling, on its nodes. None are asked where it is not NULL and there are none.
    pub nodes: *const *const c_char,
    /// How many there are.
    pub nodes_count: usize,
    /// Complete steps that the group may be behind; those of the stream's `queue` unless told otherwise. With STEAD_STREAM_DROP older ones are
    /// passed over: with 1 it is given the newest step each time. With STEAD_STREAM_SPILL older ones are read from files.
    pub queue: u64,
    /// Complete steps that the group has had which stay for it, beside those that the stream keeps: with STEAD_STREAM_BLOCK in memory, with
    /// STEAD_STREAM_SPILL there or in files, with STEAD_STREAM_DROP as long as there is room.
    pub keep: u64,
}

grows!(stead_stream_reader_options, dataspaces_count: usize);

/// What the table has of a reader: `None` once it is a subscription's.
struct ReaderFace(Mutex<Option<Reader>>);

impl Object for ReaderFace {
    type Handle = stead_stream_reader;
    const NAME: &'static str = "stream reader";
}

fn with<T>(
    reader: *const stead_stream_reader,
    f: impl FnOnce(&mut Reader) -> Result<T>,
) -> Result<T> {
    let face = table::get::<ReaderFace>(reader)?;
    let mut reader = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    f(reader.as_mut().ok_or_else(subscribed)?)
}

/// Takes a reader from its handle, which is none any more.
pub fn taken(reader: *const stead_stream_reader) -> Result<Reader> {
    let face = table::get::<ReaderFace>(reader)?;
    table::remove::<ReaderFace>(reader)?;
    let mut reader = face.0.lock().unwrap_or_else(PoisonError::into_inner);
    reader.take().ok_or_else(subscribed)
}

fn subscribed() -> Error {
    Error::usage("the stream reader is a subscription's")
}

fn read(c: &Caller, given: *const stead_stream_reader_options) -> Result<Read> {
    let default = Read::default();
    if given.is_null() {
        let spaces = stream::spaces(c, std::ptr::null(), 0)?;
        return Ok(Read { spaces, nodes: StreamNodes::usual(), ..default });
    }
    let given = c.grown(given, "options")?;
    let coupling = stream_coupling::optional(given.coupling)?;
    let (rank, ranks) = match &coupling {
        Some(coupling) if given.ranks == 0 => (coupling.rank(), coupling.ranks()),
        // A rank without a number of ranks is refused, as it is one.
        _ => (given.rank, if given.ranks == 0 { default.ranks } else { given.ranks }),
    };
    Ok(Read {
        spaces: stream::spaces_of(c, given.dataspaces, given.dataspaces_count, coupling.is_some())?,
        group: c
            .optional_text(given.group, "name of the group")?
            .map_or(default.group, str::to_owned),
        rank,
        ranks,
        start: match given.start {
            STEAD_STREAM_OLDEST => Start::Oldest,
            STEAD_STREAM_NEXT => Start::Next,
            STEAD_STREAM_FIRST => Start::First,
            n => {
                return Err(Error::usage(format!("no start has the number {n}")).with_hint(
                    "use STEAD_STREAM_OLDEST, STEAD_STREAM_NEXT or STEAD_STREAM_FIRST",
                ));
            }
        },
        behind: match given.behind {
            STEAD_STREAM_BLOCK => Behind::Block,
            STEAD_STREAM_DROP => Behind::Drop,
            STEAD_STREAM_SPILL => Behind::Spill,
            n => {
                return Err(Error::usage(format!("no way to be behind has the number {n}"))
                    .with_hint("use STEAD_STREAM_BLOCK, STEAD_STREAM_DROP or STEAD_STREAM_SPILL"));
            }
        },
        queue: Some(given.queue).filter(|queue| *queue > 0),
        keep: Some(given.keep).filter(|keep| *keep > 0),
        timeout: stream::time(given.timeout_ms, default.timeout),
        stop: default.stop,
        threads: given.threads,
        coupling,
        nodes: stream::others(c, given.nodes, given.nodes_count)?,
    })
}

/// Takes the place of a rank of a group of readers of the stream `name`, and waits for the stream if nobody writes it yet. `options` may
/// be NULL: one reader, with all that is usual. A name with a '/' is a folder that steps were recorded in, or still are: they are read as
/// those of a stream, from the first one on, and nobody waits for who reads them.
///
/// Errors: STEAD_TIMEOUT if nobody writes it; STEAD_NOT_FOUND if no steps were recorded there, or the pool has no such node; STEAD_PEER if nodes
/// are named and no daemon has begun in this time; STEAD_USAGE if somebody else is this rank, others say something else of the group, or
/// options make no sense; STEAD_PERMISSION if the folder of streams is not private to this user; STEAD_LIMIT if this process may have no more
/// files open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_open(
    name: *const c_char,
    options: *const stead_stream_reader_options,
    reader: *mut *mut stead_stream_reader,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(reader, "place for the stream reader")?;
        let name = c.text(name, "name")?;
        let opened = Reader::open(name, &read(c, options)?)?;
        out.put(table::insert(ReaderFace(Mutex::new(Some(opened)))));
        Ok(())
    })
}

/// The next step, as soon as all writers have ended it; NULL when they have closed the stream. It is a new handle, to be freed with
/// stead_stream_step_free: as long as there is one, or an array of it, it stays as it is, and its memory is taken. Writers do not wait
/// for the step before any more.
///
/// Errors: STEAD_PEER if a writer has ended in the middle, or somebody has removed the stream, after all steps that are complete;
/// STEAD_TIMEOUT, with who was waited for.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_next(
    reader: *mut stead_stream_reader,
    step: *mut *mut stead_stream_step,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(step, "place for the step")?;
        if let Some(step) = with(reader, Reader::next_step)? {
            out.put(stream_step::give(step));
        }
        Ok(())
    })
}

/// As stead_stream_reader_next, for `timeout_ms` milliseconds at most: NULL also if there is no step by then, and
/// stead_stream_reader_is_over tells which it is.
///
/// Errors: those of stead_stream_reader_next, but for STEAD_TIMEOUT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_next_within(
    reader: *mut stead_stream_reader,
    timeout_ms: u64,
    step: *mut *mut stead_stream_step,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(step, "place for the step")?;
        let time = Duration::from_millis(timeout_ms);
        if let Some(step) = with(reader, |r| r.next_step_within(time))? {
            out.put(stream_step::give(step));
        }
        Ok(())
    })
}

/// True after the last step was given, and none will come. False for what is no reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_is_over(reader: *const stead_stream_reader) -> bool {
    look!(false, |_c| with(reader, |r| Ok(r.is_over())))
}

/// The step of a number, if it is still there, whether it was given or not. As stead_stream_reader_next.
///
/// Errors: STEAD_NOT_FOUND if it is not, or not yet complete.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_at(
    reader: *mut stead_stream_reader,
    number: u64,
    step: *mut *mut stead_stream_step,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(step, "place for the step")?;
        let step = with(reader, |r| r.at(number))?;
        out.put(stream_step::give(step));
        Ok(())
    })
}

/// The step of a number, as soon as it is complete, with a variable in it, for `timeout_ms` milliseconds at most. The reader is done with
/// those before it. As stead_stream_reader_next.
///
/// Errors: STEAD_NOT_FOUND if it has gone, the stream ends before it, or it has no such variable; STEAD_TIMEOUT, with who was waited for;
/// those of stead_stream_reader_next.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_wait_for(
    reader: *mut stead_stream_reader,
    variable: *const c_char,
    number: u64,
    timeout_ms: u64,
    step: *mut *mut stead_stream_step,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(step, "place for the step")?;
        let (variable, time) = (c.text(variable, "variable")?, Duration::from_millis(timeout_ms));
        let step = with(reader, |r| r.wait_for(variable, number, time))?;
        out.put(stream_step::give(step));
        Ok(())
    })
}

/// The numbers of the steps that are there now, in order: as many as fit into `room` go to `numbers`, which may be NULL if `room` is 0;
/// how many there are goes to `count`.
///
/// Errors: STEAD_TIMEOUT if a process that is stopped keeps the stream locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_steps(
    reader: *const stead_stream_reader,
    numbers: *mut u64,
    room: usize,
    count: *mut usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(count, "place for the count")?;
        let steps = with(reader, |r| r.steps())?;
        c.fill(numbers, room, "numbers", steps.iter().copied())?;
        out.put(steps.len());
        Ok(())
    })
}

/// What a reader has done so far, as JSON: steps that it was given, boxes and bytes that were copied, those looked at and fetched from other nodes, seconds
/// of processors that copies of 64 KiB or more have taken, seconds that were waited for steps, and the memory of the stream with the most
/// that it has taken. To be freed with stead_text_free.
///
/// Errors: STEAD_USAGE for what is no reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_report(
    reader: *const stead_stream_reader,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        text::give(out, &text::json(&with(reader, |r| Ok(r.report()))?)?);
        Ok(())
    })
}

/// Frees a reader: writers do not wait for it any more. Its steps and arrays stay until they are freed. NULL is nothing to do; a handle
/// that is none any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_reader_free(reader: *mut stead_stream_reader) {
    look!((), |_c| table::remove::<ReaderFace>(reader))
}
