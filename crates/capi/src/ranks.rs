//! Files that all ranks of a job read together, over whatever connects them.

use crate::error::{stead_error, stead_status};
use crate::guard::{Caller, call};
use crate::session::{self, Given, stead_file, stead_read_options};
use std::ffi::{c_char, c_void};
use std::sync::Arc;
use stead::Result;
use stead::fabric::foreign::{self, stead_make_fabric_fn};
use stead::read::{File, ranks};

impl<T> Given<T> {
    /// Opens a file on all ranks, of which some may have got arguments that make no sense, and puts the handle that `give`
    /// makes of it to the place.
    pub fn open_ranks(
        self,
        c: &Caller,
        make: stead_make_fabric_fn,
        data: *mut c_void,
        give: impl FnOnce(File) -> Result<*mut T>,
    ) -> Result<()> {
        // A place that is there is NULL from now on, whatever comes.
        let out = self.out(c);
        // SAFETY: the caller keeps what the header says of the function.
        let fabric = unsafe { foreign::make(make, data)? };
        // Whatever is wrong here, others are in the same call and hear of it.
        match out.and_then(|out| Ok((out, self.how(c)?))) {
            Ok((out, (path, options))) => {
                out.put(give(ranks::open(Arc::new(fabric), path, &options)?)?);
                Ok(())
            }
            Err(e) => Err(ranks::refuse(&fabric, e)),
        }
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
        let given = Given { path, options, place: file, what: "file" };
        given.open_ranks(c, make, data, |file| Ok(session::give(file)))
    })
}
