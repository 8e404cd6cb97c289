//! Files that all ranks of a job read together, over whatever connects them.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call};
use crate::session::{self, stead_file, stead_read_options};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use stead::Result;
use stead::fabric::foreign::{self, stead_make_fabric_fn};
use stead::read::{File, ranks};

/// Opens a file on all ranks, of which some may have got arguments that make no sense: a place for the answer, `out`, that
/// is none, or a wrong path or options.
pub fn open<T>(
    c: &Caller,
    make: stead_make_fabric_fn,
    data: *mut c_void,
    path: *const c_char,
    options: *const stead_read_options,
    out: Result<T>,
) -> Result<(T, File)> {
    // SAFETY: the caller keeps what the header says of the function.
    let fabric = unsafe { foreign::make(make, data)? };
    // Whatever is wrong here, others are in the same call and hear of it.
    match out.and_then(|out| Ok((out, session::given(c, path, options)?))) {
        Ok((out, (path, options))) => Ok((out, ranks::open(Arc::new(fabric), path, &options)?)),
        Err(e) => Err(ranks::refuse(&fabric, e)),
    }
}

/// Opens a file on all ranks of a fabric, which is made first: all ranks call this, with the same path and options.
/// Its sessions are collective: all ranks start the same ones, in the same order. Reads are not. Each byte is read
/// from the file system by one rank; ranks that cannot open the file get its bytes from those that can. With MPI,
/// stead_mpi_file_open of stead_mpi.h is simpler.
///
/// A rank may close the file before others have: a thread goes on to answer them, until all are done.
///
/// Errors: as stead_file_open, if no rank can open it; STEAD_USAGE on all ranks if one of them gives arguments that make
/// no sense, but for `make`, without which it can tell nobody, or another path than the others; STEAD_CHANGED if ranks see files of different lengths;
/// STEAD_PEER if a rank is gone; those of `make`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_file_open_ranks(
    make: stead_make_fabric_fn,
    data: *mut c_void,
    path: *const c_char,
    options: *const stead_read_options,
    file: *mut *mut stead_file,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        // A place that is there is NULL from now on, whatever comes.
        let out = c.out_handle(file, "place for the file");
        let (out, file) = open(c, make, data, path, options, out)?;
        out.put(session::give(file));
        Ok(())
    })
}
