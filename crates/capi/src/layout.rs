//! Files over nodes: put there, brought back, described, and opened by all ranks.

use crate::cancel::{self, stead_cancel};
use crate::dataset::{self, stead_dataset};
use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, Out, call};
use crate::options::{self, stead_options};
use crate::text;
use crate::versions::grows;
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use stead::fabric::foreign::{self, stead_make_fabric_fn};
use stead::fabric::{Fabric, Local};
use stead::layout::{Copied, Get, Put, get_on, put_on};
use stead::{Cancel, Error, Result};

/// For stead_copy_options.flags: end stripes where records end, so that none lies on two nodes.
pub const STEAD_COPY_ALIGN: u32 = 1;
/// For stead_copy_options.flags: replace a layout that is there, and remove its parts; or a file that is there.
pub const STEAD_COPY_FORCE: u32 = 2;
/// All of them.
const FLAGS: u32 = STEAD_COPY_ALIGN | STEAD_COPY_FORCE;

/// How to put a file over nodes, or bring it back. What is 0 or NULL is chosen.
///
/// Begin with `stead_copy_options o = {0}; o.size = sizeof o;`: members may be added at its end, and are 0 then.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_copy_options {
    /// sizeof(stead_copy_options).
    pub size: usize,
    /// Bytes of a stripe; 4 MiB unless told otherwise. For stead_put.
    pub stripe: u64,
    /// Parts to cut the file into, in place of one for each dataspace. For stead_put.
    pub parts: usize,
    /// Threads of each rank that copy.
    pub threads: usize,
    /// What the file is called in the dataspaces, and its layout, in place of its name. For stead_put.
    pub name: *const c_char,
    /// Where the layout is written, in place of beside the file; for stead_get where the file is, in place of beside the layout.
    pub target: *const c_char,
    /// Folders of dataspaces of this node, such as "nvme=/mnt/nvme/me", before those that are configured.
    pub dataspaces: *const *const c_char,
    /// Their number.
    pub dataspaces_count: usize,
    /// How records are found, for STEAD_COPY_ALIGN.
    pub open: *const stead_options,
    /// Stops it.
    pub cancel: *const stead_cancel,
    /// STEAD_COPY_ALIGN and STEAD_COPY_FORCE, or-ed together.
    pub flags: u32,
}

grows!(stead_copy_options, flags: u32);

/// What both get.
#[derive(Default)]
struct Given {
    stripe: Option<u64>,
    parts: Option<usize>,
    threads: usize,
    name: Option<String>,
    target: Option<std::path::PathBuf>,
    dataspaces: Vec<String>,
    open: stead::OpenOptions,
    cancel: Cancel,
    align: bool,
    force: bool,
}

fn given(c: &Caller, p: *const stead_copy_options) -> Result<Given> {
    if p.is_null() {
        return Ok(Given::default());
    }
    let o: stead_copy_options = c.grown(p, "options")?;
    if o.flags & !FLAGS != 0 {
        return Err(Error::usage(format!("{} are no flags of stead_copy_options", o.flags)));
    }
    let target = if o.target.is_null() { None } else { Some(c.path(o.target, "target")?) };
    Ok(Given {
        stripe: Some(o.stripe).filter(|n| *n > 0),
        parts: Some(o.parts).filter(|n| *n > 0),
        threads: o.threads,
        name: c.optional_text(o.name, "name")?.map(str::to_owned),
        target: target.map(std::path::Path::to_owned),
        dataspaces: c.texts(o.dataspaces, o.dataspaces_count, "dataspaces")?,
        open: options::of(o.open)?,
        cancel: if o.cancel.is_null() { Cancel::new() } else { cancel::flag(o.cancel)?.clone() },
        align: o.flags & STEAD_COPY_ALIGN != 0,
        force: o.flags & STEAD_COPY_FORCE != 0,
    })
}

fn to_put(
    c: &Caller,
    file: *const c_char,
    over: *const c_char,
    options: *const stead_copy_options,
) -> Result<Put> {
    let (file, over) = (c.path(file, "file")?.to_owned(), c.text(over, "dataspaces")?.to_owned());
    let g = given(c, options)?;
    let usual = Put::default();
    Ok(Put {
        file,
        over,
        stripe: g.stripe.unwrap_or(usual.stripe),
        align: g.align,
        options: g.open,
        parts: g.parts,
        name: g.name,
        layout: g.target,
        force: g.force,
        dataspaces: g.dataspaces,
        threads: g.threads,
        cancel: g.cancel,
    })
}

fn to_get(c: &Caller, layout: *const c_char, options: *const stead_copy_options) -> Result<Get> {
    let layout = c.path(layout, "layout")?.to_owned();
    let g = given(c, options)?;
    if g.stripe.is_some() || g.parts.is_some() || g.name.is_some() || g.align {
        return Err(Error::usage("these options are for putting a file over nodes")
            .with_hint("leave stripe, parts, name and STEAD_COPY_ALIGN out"));
    }
    let (output, force) = (g.target, g.force);
    let Given { dataspaces, threads, cancel, .. } = g;
    Ok(Get { layout, output, force, dataspaces, threads, cancel })
}

/// A place for a text, if one is wanted.
fn wanted(c: &Caller, json: *mut *mut c_char) -> Result<Option<Out<*mut c_char>>> {
    if json.is_null() { Ok(None) } else { c.out_handle(json, "place for the text").map(Some) }
}

/// Does something with a request, on all ranks of a fabric.
fn ranks<R>(
    c: &Caller,
    (make, data): (stead_make_fabric_fn, *mut c_void),
    json: *mut *mut c_char,
    request: Result<R>,
    work: impl FnOnce(&dyn Fabric, &R) -> Result<Copied>,
) -> Result<()> {
    // A place that is there is NULL from now on, whatever comes.
    let out = wanted(c, json);
    // SAFETY: the caller keeps what the header says of the function.
    let fabric = unsafe { foreign::make(make, data)? };
    match out.and_then(|out| Ok((out, request?))) {
        Ok((out, request)) => tell(out, &work(&fabric, &request)?),
        // Others are in the same call and hear of it.
        Err(e) => Err(stead::ranks::refuse(&fabric, e)),
    }
}

fn tell(out: Option<Out<*mut c_char>>, copied: &Copied) -> Result<()> {
    if let Some(out) = out {
        text::give(out, &text::json(copied)?);
    }
    Ok(())
}

/// Cuts a file into stripes and puts them into dataspaces of this host: `over` is the name of one, or a list such as
/// "nvme,disk". The layout is written when all parts are there. `options` may be NULL. `json`, unless it is NULL, gets what was
/// copied as the JSON document of `stead put --format json`; the text is the caller's, to be freed with stead_text_free.
///
/// Errors: STEAD_USAGE for a dataspace that is not configured and a layout that is there already; STEAD_NOT_FOUND for the
/// file, or the folder of a dataspace; STEAD_NO_SPACE; STEAD_CHANGED if somebody writes to the file; STEAD_CANCELLED. Nothing
/// is left then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_put(
    file: *const c_char,
    over: *const c_char,
    options: *const stead_copy_options,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = wanted(c, json)?;
        tell(out, &put_on(&Local::single(), &to_put(c, file, over, options)?, None)?)
    })
}

/// As stead_put, on all ranks of a fabric, which is made first, into dataspaces of their nodes: `over` is a list such as
/// "nvme@node[1-4]", or a name for those of all nodes with a rank. All ranks call this, with the same file, which all of them
/// see, and the same options but for folders of dataspaces. With MPI, stead_mpi_put of stead_mpi.h is simpler.
///
/// Errors: those of stead_put, the same on all ranks; STEAD_USAGE on all ranks if one of them gives arguments that make no
/// sense, but for `make`, without which it can tell nobody, if they ask for different things, and for a node without a rank;
/// STEAD_PEER if a rank is gone; those of `make`. Where a rank goes when all parts have their names, they stay, as the layout may
/// be there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_put_ranks(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    file: *const c_char,
    over: *const c_char,
    options: *const stead_copy_options,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let put = to_put(c, file, over, options);
        ranks(c, (make, data), json, put, |fabric, put| put_on(fabric, put, None))
    })
}

/// Brings a file back whose parts are all on this host: to where the layout is, or to `options`.target. Checksums are compared.
/// `options` may be NULL. `json` as in stead_put.
///
/// Errors: STEAD_USAGE for a file that is there already; STEAD_NOT_FOUND for a part that is not there; STEAD_FORMAT for one of
/// another length or checksum, and for what is no layout; STEAD_NO_SPACE; STEAD_CANCELLED. No file is left then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_get(
    layout: *const c_char,
    options: *const stead_copy_options,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = wanted(c, json)?;
        tell(out, &get_on(&Local::single(), &to_get(c, layout, options)?, None)?)
    })
}

/// As stead_get, on all ranks of a fabric, which is made first: each node with parts has a rank, and all see where the file goes.
/// The first rank reads the layout. With MPI, stead_mpi_get of stead_mpi.h is simpler.
///
/// Errors: those of stead_get, the same on all ranks, and those that stead_put_ranks has beside stead_put.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_get_ranks(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    layout: *const c_char,
    options: *const stead_copy_options,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let get = to_get(c, layout, options);
        ranks(c, (make, data), json, get, |fabric, get| get_on(fabric, get, None))
    })
}

/// What a layout is, as the JSON document of `stead describe LAYOUT --format json`. The text is the caller's, to be freed with
/// stead_text_free.
///
/// Errors: STEAD_NOT_FOUND, STEAD_FORMAT for what is no layout, STEAD_LIMIT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_layout_describe(
    layout: *const c_char,
    json: *mut *mut c_char,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(json, "place for the text")?;
        let layout = stead::layout::read(c.path(layout, "layout")?)?;
        text::give(out, &text::json(&layout.describe()?)?);
        Ok(())
    })
}

/// Opens `n` files, globs, directories or layouts as one dataset on all ranks of a fabric, which is made first: all ranks call
/// this, with the same names, and run over it together (stead_run_ranks, on the same ranks). Of layouts each rank reads what is on its node,
/// and gets from others what it needs of the rest. "out.%r.bin" names files that each rank has written on its node. A rank
/// may free the dataset before others have: a thread goes on to answer them. With MPI, stead_mpi_open of stead_mpi.h is
/// simpler.
///
/// Errors: as stead_open, the same on all ranks; STEAD_NOT_FOUND for parts that are missing and for nodes without a rank;
/// STEAD_USAGE on all ranks if one of them gives arguments that make no sense, but for `make`; STEAD_PEER if a rank is gone;
/// those of `make`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_open_ranks(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    paths: *const *const c_char,
    n: usize,
    options: *const stead_options,
    dataset: *mut *mut stead_dataset,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        // A place that is there is NULL from now on, whatever comes.
        let out = c.out_handle(dataset, "place for the dataset");
        // SAFETY: the caller keeps what the header says of the function.
        let fabric = unsafe { foreign::make(make, data)? };
        let given =
            out.and_then(|out| Ok((out, c.texts(paths, n, "paths")?, options::of(options)?)));
        match given {
            Ok((out, paths, options)) => {
                let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                let opened = stead::ranks::open_on(&fabric, &paths, &options, &Cancel::new())?;
                out.put(dataset::give(opened));
                Ok(())
            }
            // Others are in the same call and hear of it.
            Err(e) => Err(stead::ranks::refuse(&fabric, e)),
        }
    })
}
