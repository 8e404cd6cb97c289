//! Flows: operators between streams.

use crate::cancel::{self, stead_cancel};
use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call, look};
use crate::memory::stead_dtype;
use crate::stream;
use crate::stream_coupling::{self, stead_coupling};
use crate::table::{self, Object};
use crate::text;
use crate::versions::grows;
use std::ffi::{c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use stead::daemon::{FlowOptions, StreamNodes};
use stead::flow::{CArray, CFunction, Flow, Functions, Graph, Options, load, of_c};
use stead::stream::Stop;
use stead::{Error, Result};

/// A flow. Made by stead_flow_open, freed with stead_flow_free. Several threads may use it, and run it.
pub struct stead_flow {
    _opaque: [u8; 0],
}

/// An array that a function is given, or is to make. It lives as long as the call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_flow_array {
    /// Its elements, in C order.
    pub data: *const c_void,
    /// How many bytes they are.
    pub bytes: usize,
    /// Their type: STEAD_F64 and so on.
    pub dtype: stead_dtype,
    /// How many dimensions it has; a single number has none.
    pub ndim: usize,
    /// Their lengths.
    pub shape: *const u64,
}

/// A function of the program: makes the array `wanted`, whose elements it writes to `to`, of those that it is given. They are zeros before, and
/// `wanted.data` is `to`. It returns 0, or any other number if it has failed, which ends the flow. It is called by the thread that runs the
/// flow, and must not end it by longjmp or an exception.
pub type stead_flow_fn = Option<
    unsafe extern "C" fn(
        given: *const stead_flow_array,
        count: usize,
        wanted: *const stead_flow_array,
        to: *mut c_void,
        user: *mut c_void,
    ) -> c_int,
>;

/// How a flow is run. All of its ranks say the same, but for their rank. A member that is 0 is what is said of it.
///
/// Begin with `stead_flow_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_flow_options {
    /// sizeof(stead_flow_options).
    pub size: usize,
    /// Which of the processes that share the work this is, from 0 on.
    pub rank: u64,
    /// How many there are; 1 unless told otherwise.
    pub ranks: u64,
    /// Threads of this one; as many as there are processors unless told otherwise.
    pub threads: usize,
    /// Bytes that arrays may take which are made or copied here; 1 GiB unless told otherwise.
    pub memory: u64,
    /// Steps after which it ends; none unless told otherwise.
    pub steps: u64,
    /// Milliseconds after which waiting for anybody fails with STEAD_TIMEOUT; ten minutes unless told otherwise.
    pub timeout_ms: u64,
    /// Ends it with STEAD_CANCELLED when it is set, or NULL. It must not be freed before the flow has ended.
    pub cancel: *const stead_cancel,
    /// Folders of dataspaces such as "memory=/dev/shm/me", before those that are configured. Streams lie in "memory".
    pub dataspaces: *const *const c_char,
    /// How many there are.
    pub dataspaces_count: usize,
    /// Programs on several nodes of which this is one, or NULL. All ranks of its part run the flow: `rank` and `ranks` are those of
    /// the coupling.
    pub coupling: *const stead_coupling,
}

grows!(stead_flow_options, coupling: *const stead_coupling);

/// What the table has of a flow.
struct FlowFace {
    graph: Graph,
    /// That of its file, to which paths of libraries are relative.
    folder: PathBuf,
    functions: Mutex<Functions>,
}

impl Object for FlowFace {
    type Handle = stead_flow;
    const NAME: &'static str = "flow";
}

// Functions are called with what they are declared to take, by another name.
const _: () = assert!(size_of::<stead_flow_array>() == size_of::<CArray>());
const _: () = assert!(align_of::<stead_flow_array>() == align_of::<CArray>());

/// Reads a flow: the path of a file of TOML or, if it has more than one line, the text itself. docs/flows.md says what it has.
///
/// Errors: STEAD_USAGE for what is no flow or makes no sense, with the line or the name of the node; those of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_flow_open(
    toml: *const c_char,
    flow: *mut *mut stead_flow,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(flow, "place for the flow")?;
        let given = c.text(toml, "flow")?;
        let path = Path::new(given);
        let (graph, folder) = match given.contains('\n') {
            true => (Graph::parse(given)?, PathBuf::new()),
            false => (Graph::load(path)?, path.parent().map(Path::to_owned).unwrap_or_default()),
        };
        stead::flow::check(&graph)?;
        out.put(table::insert(FlowFace { graph, folder, functions: Mutex::default() }));
        Ok(())
    })
}

/// Gives a function under the name that nodes with `op = "map"` have for it. `user` is handed to it. One of the same name that was given before
/// is replaced; flows that run go on with the one that they have.
///
/// Errors: STEAD_USAGE if `function` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_flow_function(
    flow: *mut stead_flow,
    name: *const c_char,
    function: stead_flow_fn,
    user: *mut c_void,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let face = table::get::<FlowFace>(flow)?;
        let name = c.text(name, "name")?.to_owned();
        // SAFETY: both are functions of pointers to the same struct, which the room below has by a name of its own.
        let function = unsafe { std::mem::transmute::<stead_flow_fn, Option<CFunction>>(function) };
        let function = function.ok_or_else(|| Error::usage("the function is NULL"))?;
        // SAFETY: whoever gives the function keeps what the header says of it.
        let call = unsafe { of_c(&name, function, user) };
        let mut functions = face.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.insert(name, call);
        Ok(())
    })
}

/// Loads the functions that a flow names in libraries, `function = "lib.so:name"`, but for those that were given: functions as stead_flow_fn, with
/// NULL as `user`. Paths are relative to the folder of its file, or of text to the current one. The code of the libraries is run: call it for
/// flows that are trusted.
///
/// Errors: STEAD_NOT_FOUND if a library or a function in it is not there; STEAD_USAGE if it cannot be loaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_flow_load(
    flow: *mut stead_flow,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let face = table::get::<FlowFace>(flow)?;
        let mut functions = face.functions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        // What a library does when it is loaded may use this flow.
        // SAFETY: the caller keeps what the header says of the libraries.
        unsafe { load(&face.graph, &face.folder, &mut functions)? };
        let mut known = face.functions.lock().unwrap_or_else(PoisonError::into_inner);
        functions.into_iter().for_each(|(name, call)| {
            known.entry(name).or_insert(call);
        });
        Ok(())
    })
}

fn options(c: &Caller, given: *const stead_flow_options) -> Result<Options> {
    let usual = Options::default();
    if given.is_null() {
        let spaces = stream::spaces(c, std::ptr::null(), 0)?;
        return Ok(Options { spaces, nodes: StreamNodes::usual(), ..usual });
    }
    let given = c.grown(given, "options")?;
    let or = |n: u64, default: u64| if n == 0 { default } else { n };
    let coupling = stream_coupling::optional(given.coupling)?;
    let stop = match given.cancel.is_null() {
        true => Stop::default(),
        false => cancel::flag(given.cancel)?.clone().into(),
    };
    Ok(Options {
        spaces: stream::spaces(c, given.dataspaces, given.dataspaces_count)?,
        rank: coupling.as_ref().map_or(given.rank, |c| c.rank()),
        ranks: coupling.as_ref().map_or(or(given.ranks, usual.ranks), |c| c.ranks()),
        threads: given.threads,
        memory: or(given.memory, usual.memory),
        steps: (given.steps > 0).then_some(given.steps),
        timeout: stream::time(given.timeout_ms, usual.timeout),
        stop,
        coupling,
        nodes: StreamNodes::usual(),
        told: None,
    })
}

/// The graph of a flow.
pub(crate) fn graph(flow: *const stead_flow) -> Result<Graph> {
    Ok(table::get::<FlowFace>(flow)?.graph.clone())
}

/// How a daemon runs a flow.
pub(crate) fn handed(c: &Caller, given: *const stead_flow_options) -> Result<FlowOptions> {
    if given.is_null() {
        return Ok(FlowOptions::default());
    }
    let given = c.grown(given, "options")?;
    let shared = given.rank > 0 || given.ranks > 1 || !given.coupling.is_null();
    if shared || given.dataspaces_count > 0 || !given.cancel.is_null() {
        let message = "a daemon runs a flow by itself, with the dataspaces that it knows, until it is told to end";
        return Err(Error::usage(message)
            .with_hint("leave rank, ranks, coupling, dataspaces and cancel out; stead_daemon_flow_cancel ends it"));
    }
    let said = |n: u64| (n > 0).then_some(n);
    Ok(FlowOptions {
        threads: given.threads,
        memory: said(given.memory),
        steps: said(given.steps),
        timeout: said(given.timeout_ms).map(|ms| ms as f64 / 1000.0),
    })
}

/// Runs a flow until one of the streams that it reads has ended; in a thread of the program that writes them, or in any other program. `options`
/// may be NULL. `json` may be NULL: there goes what was done, as JSON: `steps` that
/// were read, those that had `dropped` before, those of one stream that were `unpaired` because another has no step of that number, bytes that were `fetched` from other nodes, and for each of `streams` that is written the name (`stream`), `steps`, and `bytes` of this rank.
/// To be freed with stead_text_free.
///
/// Errors: STEAD_USAGE for variables that a node cannot work on, and for functions that were not given; STEAD_DATA if a function has failed;
/// STEAD_PEER if a writer of a stream has ended in the middle; STEAD_TIMEOUT; STEAD_LIMIT; STEAD_CANCELLED. Readers of what it writes are told.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_flow_run(
    flow: *const stead_flow,
    options: *const stead_flow_options,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = (!json.is_null()).then(|| c.out_handle(json, "place for the text"));
        let out = out.transpose()?;
        let face = table::get::<FlowFace>(flow)?;
        let functions = face.functions.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let options = self::options(c, options)?;
        let report = Flow::new(&face.graph, functions)?.run(&options)?;
        if let Some(out) = out {
            text::give(out, &text::json(&report)?);
        }
        Ok(())
    })
}

/// Frees a flow. One that runs goes on. NULL is nothing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_flow_free(flow: *mut stead_flow) {
    look!((), |_c| if flow.is_null() { Ok(()) } else { table::remove::<FlowFace>(flow) })
}
