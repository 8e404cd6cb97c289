//! Streams: what their writers and readers have in common, and who looks after them.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call};
use crate::text;
use crate::versions::grows;
use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;
use stead::daemon::StreamNodes;
use stead::stream::{Bounds, Coupling, Nodes, Spaces, Survey, dataspaces};
use stead::{Error, Kind, Result};

/// For stead_stream_writer_options.keep: no step stays when all readers have had it.
pub const STEAD_STREAM_KEEP_NONE: u64 = u64::MAX;

/// With which step a group of readers begins.
pub type stead_stream_start = c_int;

/// The oldest one that is there. A stream that is over and that nobody has read is read, too.
pub const STEAD_STREAM_OLDEST: stead_stream_start = 0;
/// The next one that becomes complete.
pub const STEAD_STREAM_NEXT: stead_stream_start = 1;
/// The first one of all, of a stream that is recorded (`persist` of its writers): those that have gone from memory are read from files.
pub const STEAD_STREAM_FIRST: stead_stream_start = 2;

/// What writers do when a group of readers is too far behind.
pub type stead_stream_behind = c_int;

/// They wait for it.
pub const STEAD_STREAM_BLOCK: stead_stream_behind = 0;
/// They go on: steps go that the group has not had, and it is told how many. All of its ranks are given the same ones, and none is further
/// ahead of the others than the `queue` of the stream.
pub const STEAD_STREAM_DROP: stead_stream_behind = 1;
/// They go on, and the group has all steps: those for which there is no room in memory it reads from files. The stream is written with
/// `spill` or `persist`.
pub const STEAD_STREAM_SPILL: stead_stream_behind = 2;

/// The dataspaces of an end of a stream: those of a coupling are its own, and more of them an error.
pub fn spaces_of(
    c: &Caller,
    given: *const *const c_char,
    count: usize,
    is_coupled: bool,
) -> Result<Spaces> {
    if is_coupled && count > 0 {
        return Err(Coupling::own_dataspaces());
    }
    spaces(c, given, count)
}

/// The dataspaces of this user, and those that are given before them.
pub fn spaces(c: &Caller, given: *const *const c_char, count: usize) -> Result<Spaces> {
    let mut spaces = dataspaces().map_err(Error::of_open_files)?;
    for one in c.texts(given, count, "dataspaces")? {
        spaces.give(&one, &|name| std::env::var(name).ok())?;
    }
    Ok(spaces)
}

/// A time in milliseconds; 0 is that of the default.
pub fn time(ms: u64, default: Duration) -> Duration {
    if ms == 0 { default } else { Duration::from_millis(ms) }
}

/// A box of a variable of this shape; both NULL is all of it.
pub fn bounds(c: &Caller, shape: &[u64], start: *const u64, count: *const u64) -> Result<Bounds> {
    if start.is_null() && count.is_null() {
        return Bounds::new(vec![0; shape.len()], shape);
    }
    let (start, count) =
        (c.slice(start, shape.len(), "start")?, c.slice(count, shape.len(), "count")?);
    Bounds::new(start, count)
}

/// Whether lists of so many numbers can be the start and the count of a box of a variable.
pub fn fits(name: &str, ndim: usize, start: usize, count: usize) -> Result<()> {
    if (start, count) == (ndim, ndim) {
        return Ok(());
    }
    Err(Error::usage(format!(
        "a start of {start} and a count of {count} numbers, and variable '{name}' has {ndim} dimensions"
    )))
}

/// Whose streams are told of, or removed: those of this node, and of the other ones of the pool of its daemon. A member that is 0 is what is said of it.
///
/// Begin with `stead_stream_survey s = {0}; s.size = sizeof s;`: members may be added at its end, and are 0 then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_stream_survey {
    /// sizeof(stead_stream_survey).
    pub size: usize,
    /// Folders of dataspaces such as "memory=/dev/shm/me", before those that are configured. Streams of this node lie in "memory".
    pub dataspaces: *const *const c_char,
    /// How many there are.
    pub dataspaces_count: usize,
    /// The names of other nodes of the pool that are asked. NULL: all. None are asked where it is not NULL and there are none.
    pub nodes: *const *const c_char,
    /// How many there are.
    pub nodes_count: usize,
    /// Milliseconds that other nodes are waited for: those that have not answered by then are named. Ten seconds unless told otherwise.
    pub timeout_ms: u64,
}

grows!(stead_stream_survey, timeout_ms: u64);

/// The other nodes of the pool that are asked: all, unless some are named.
pub fn others(
    c: &Caller,
    given: *const *const c_char,
    count: usize,
) -> Result<Option<Arc<dyn Nodes>>> {
    if given.is_null() && count == 0 {
        return Ok(StreamNodes::usual());
    }
    Ok(Some(Arc::new(StreamNodes::default().only(c.texts(given, count, "nodes")?))))
}

fn survey(c: &Caller, given: *const stead_stream_survey) -> Result<Survey> {
    let usual = Survey::default();
    if given.is_null() {
        let spaces = spaces(c, std::ptr::null(), 0)?;
        return Ok(Survey { spaces, nodes: StreamNodes::usual(), ..usual });
    }
    let given = c.grown(given, "survey")?;
    let is_alone = !given.nodes.is_null() && given.nodes_count == 0;
    let nodes = others(c, given.nodes, given.nodes_count)?.filter(|_| !is_alone);
    let spaces = spaces(c, given.dataspaces, given.dataspaces_count)?;
    Ok(Survey { spaces, nodes, timeout: time(given.timeout_ms, usual.timeout), ..usual })
}

/// The streams of this user on this node and on others, as JSON: a list of objects in the order of their names, each with the `name` of a stream
/// and the `node` that it is on, which is left out where there is no pool; and then, for each node that has not answered, one with
/// the `node` and an `error`, in which `node` is null if it is not known which nodes there are. To be freed with stead_text_free.
/// `survey` may be NULL: all that is usual.
///
/// Errors: STEAD_USAGE for dataspaces that are none; STEAD_PERMISSION if the folder of streams is not private to this user;
/// STEAD_NOT_FOUND if the pool has no node of a name, and STEAD_PEER if nodes are named and there is no daemon.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_list(
    survey: *const stead_stream_survey,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        text::give(out, &text::json(&self::survey(c, survey)?.list()?)?);
        Ok(())
    })
}

/// What there is to know of the stream `name`, as JSON: its state, its steps and its memory, the variables of the last complete step,
/// its writers and readers and how far each of them is, as this node tells it, or the first one that has it; what other nodes tell is in
/// `others`, and those that have not answered are in `missed`. None are asked where all of the stream is on this one. To be freed with
/// stead_text_free. A name with a '/' is a folder that steps were recorded in. `survey` is as in stead_stream_list.
///
/// Errors: STEAD_NOT_FOUND if there is none; STEAD_TIMEOUT if a process that is stopped keeps it locked; those of stead_stream_list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_describe(
    survey: *const stead_stream_survey,
    name: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        let name = c.text(name, "name")?;
        text::give(out, &text::json(&self::survey(c, survey)?.describe(name)?)?);
        Ok(())
    })
}

/// The streams that were recorded in the folder at `location`, a path or a place in a dataspace, and in the folders in it, as JSON: a list, by
/// their locations, each with the `location` that a reader opens, the `name` of the stream, how many `writers` it has, `steps` that all of them have
/// recorded, `bytes` of the files, its `state`, and whether it `is_whole`; `damage` says why it cannot be read, where it cannot. To be freed
/// with stead_text_free.
///
/// `dataspaces` are as in stead_stream_writer_options; NULL and 0 for the usual ones.
///
/// Errors: STEAD_NOT_FOUND if there is no such folder; STEAD_USAGE for one on another node or in a bucket, and for dataspaces that are none;
/// those of the system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_recordings(
    dataspaces: *const *const c_char,
    dataspaces_count: usize,
    location: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        let location = c.text(location, "location")?;
        let spaces = spaces(c, dataspaces, dataspaces_count)?;
        text::give(out, &text::json(&stead::stream::recordings(location, &spaces)?)?);
        Ok(())
    })
}

/// Who will get what from whom of a step of the stream `name`, of all nodes that have its writers together, as JSON: for each reader what it
/// will copy and look at, for each pair of a reader and a writer the same, what is in memory, and warnings of what may be slow. It goes by
/// the blocks of the last complete step, and by the boxes that readers have got last; for those who have got nothing yet it assumes rows.
/// As many readers as `readers` are assumed beside those that are there. Nodes that have not answered are in `missed`. To be freed with
/// stead_text_free. `survey` is as in stead_stream_list.
///
/// Errors: those of stead_stream_describe; STEAD_FORMAT if what writers say is damaged.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_explain(
    survey: *const stead_stream_survey,
    name: *const c_char,
    readers: u64,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        let name = c.text(name, "name")?;
        text::give(out, &text::json(&self::survey(c, survey)?.explain(name, readers)?)?);
        Ok(())
    })
}

/// Removes the stream `name` and frees its memory. With `force` also one that is written or read: who does so is told. A name with a '/'
/// is a folder that steps were recorded in. It is one of this node; stead_stream_remove_on_nodes removes others. `dataspaces` are as in
/// stead_stream_writer_options; NULL and 0 for the usual ones.
///
/// Errors: STEAD_NOT_FOUND if there is none; STEAD_USAGE if somebody writes or reads it and `force` is not set, and for dataspaces that are
/// none; STEAD_TIMEOUT if a process that is stopped keeps it locked.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_remove(
    dataspaces: *const *const c_char,
    dataspaces_count: usize,
    name: *const c_char,
    force: bool,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let name = c.text(name, "name")?;
        if stead::stream::remove(name, &spaces(c, dataspaces, dataspaces_count)?, force)? {
            return Ok(());
        }
        Err(Error::new(Kind::NotFound, format!("there is no stream '{name}'")))
    })
}

/// Removes the stream `name` on this node and on others, as stead_stream_remove does on this one: each removes its own, if this user has one
/// there. `survey` is as in stead_stream_list, so that without names it is all nodes of the pool. What was removed is told as JSON: a list of
/// objects, each with the `name` and the `node`, which is left out where there is no pool; and then, for each node that has not removed its
/// own, or has not answered, one with the `node` and an `error`. Of one that has not answered it is not known whether it has removed it. To
/// be freed with stead_text_free.
///
/// Errors: STEAD_NOT_FOUND if there is none, or the pool has no node of a name; STEAD_USAGE for a name with a '/' where other nodes may be
/// asked; if nothing was removed on any node, those of stead_stream_remove, also of another node; those of stead_stream_list.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_stream_remove_on_nodes(
    survey: *const stead_stream_survey,
    name: *const c_char,
    force: bool,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        let name = c.text(name, "name")?;
        let told = self::survey(c, survey)?.remove(name, force)?;
        if told.found.is_empty() {
            return Err(Error::new(Kind::NotFound, format!("there is no stream '{name}'")));
        }
        text::give(out, &text::json(&told)?);
        Ok(())
    })
}
