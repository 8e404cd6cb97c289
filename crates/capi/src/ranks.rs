//! Files that all ranks of a job read together, over whatever connects them.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, null};
use crate::session::{self, stead_file, stead_read_options};
use std::ffi::{c_char, c_int, c_void};
use std::path::Path;
use std::sync::Arc;
use stead::Error;
use stead::fabric::foreign::{self, Functions};
use stead::read::ranks;

/// How ranks talk: functions that a program gives, or libstead_mpi (stead_mpi.h). All may be called by any thread, at the
/// same time as others. Those that return `int` return 0, or a stead_status with a text in `why`, which has room for
/// STEAD_FABRIC_WHY bytes. Messages between two ranks with one tag arrive in order.
#[repr(C)]
pub struct stead_fabric {
    /// STEAD_FABRIC_VERSION.
    pub version: u32,
    /// Milliseconds after which ranks that wait for others give up.
    pub deadline_ms: u64,
    /// This rank, from 0.
    pub rank: u64,
    /// Number of ranks.
    pub size: u64,
    /// First argument of all functions.
    pub data: *mut c_void,
    /// A number for the node of a rank: equal for ranks that share memory and local file systems.
    pub node_of: unsafe extern "C" fn(data: *mut c_void, rank: u64) -> u64,
    /// Sends a copy of `len` bytes; does not wait until they have arrived.
    pub send: unsafe extern "C" fn(
        data: *mut c_void,
        to: u64,
        tag: u32,
        bytes: *const u8,
        len: u64,
        why: *mut u8,
    ) -> i32,
    /// Waits for a message of a rank, or of any (STEAD_ANY_RANK), no longer than so many milliseconds: returns
    /// STEAD_FABRIC_NOTHING if none came. Gives the sender and the bytes, which will be given to `free`. Of a rank that is
    /// gone and left no message: STEAD_PEER.
    pub recv: unsafe extern "C" fn(
        data: *mut c_void,
        from: u64,
        tag: u32,
        within_ms: u64,
        sender: *mut u64,
        bytes: *mut *mut u8,
        len: *mut u64,
        why: *mut u8,
    ) -> i32,
    /// Frees what `recv` gave.
    pub free: unsafe extern "C" fn(data: *mut c_void, bytes: *mut u8, len: u64),
    /// STEAD_PEER if a rank is gone.
    pub alive: unsafe extern "C" fn(data: *mut c_void, rank: u64, why: *mut u8) -> i32,
    /// Nothing of it is used any more. Called once, last.
    pub release: unsafe extern "C" fn(data: *mut c_void),
}

/// stead_fabric.version.
pub const STEAD_FABRIC_VERSION: u32 = 1;
/// Bytes for the text of an error, with the zero at its end.
pub const STEAD_FABRIC_WHY: usize = 256;
/// The sender, where any will do.
pub const STEAD_ANY_RANK: u64 = u64::MAX;
/// Nothing came in time.
pub const STEAD_FABRIC_NOTHING: c_int = -1;

/// Makes a fabric of what `data` points to. Returns 0 or a stead_status with a text in `why`.
pub type stead_make_fabric_fn = Option<
    unsafe extern "C" fn(data: *mut c_void, fabric: *mut stead_fabric, why: *mut c_char) -> c_int,
>;

/// Opens a file on all ranks of a fabric, which is made first: all ranks call this, with the same path and options.
/// Its sessions are collective: all ranks start the same ones, in the same order. Reads are not. Each byte is read
/// from the file system by one rank; ranks that cannot open the file get its bytes from those that can. With MPI,
/// stead_mpi_file_open of stead_mpi.h is simpler.
///
/// A rank may close the file before others have: a thread goes on to answer them, until all are done.
///
/// Errors: as stead_file_open, if no rank can open it; STEAD_USAGE on all ranks if one of them gives arguments that make
/// no sense, but for `make`, without which it can tell nobody; STEAD_CHANGED if ranks see files of different lengths;
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
        let make = make.ok_or_else(|| null("function that makes a fabric"))?;
        // SAFETY: both records have the same members, which the assertions below and the tests look after; the caller
        // keeps what the header says of the function.
        let fabric = unsafe {
            let make = std::mem::transmute::<
                unsafe extern "C" fn(*mut c_void, *mut stead_fabric, *mut c_char) -> c_int,
                foreign::Make,
            >(make);
            foreign::make(make, data)?
        };
        let name = c.path(path, "path");
        // Whatever is wrong here, others are in the same call and hear of it.
        let given = || Ok((out?, *name.as_ref().map_err(again)?, session::options(c, options)?));
        match given() {
            Ok((out, path, options)) => {
                out.put(session::give(ranks::open(Arc::new(fabric), path, &options)?));
                Ok(())
            }
            Err(e) => Err(ranks::refuse(&fabric, name.unwrap_or(Path::new("")), e)),
        }
    })
}

/// The same error once more.
fn again(e: &Error) -> Error {
    Error::new(e.kind(), e.message().to_owned())
}

const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<stead_fabric>() == size_of::<Functions>());
    assert!(offset_of!(stead_fabric, version) == offset_of!(Functions, version));
    assert!(offset_of!(stead_fabric, size) == offset_of!(Functions, size));
    assert!(offset_of!(stead_fabric, deadline_ms) == offset_of!(Functions, deadline_ms));
    assert!(offset_of!(stead_fabric, rank) == offset_of!(Functions, rank));
    assert!(offset_of!(stead_fabric, data) == offset_of!(Functions, data));
    assert!(offset_of!(stead_fabric, node_of) == offset_of!(Functions, node_of));
    assert!(offset_of!(stead_fabric, send) == offset_of!(Functions, send));
    assert!(offset_of!(stead_fabric, recv) == offset_of!(Functions, recv));
    assert!(offset_of!(stead_fabric, free) == offset_of!(Functions, free));
    assert!(offset_of!(stead_fabric, alive) == offset_of!(Functions, alive));
    assert!(offset_of!(stead_fabric, release) == offset_of!(Functions, release));
    assert!(STEAD_FABRIC_VERSION == foreign::VERSION && STEAD_FABRIC_WHY == foreign::WHY);
    assert!(STEAD_ANY_RANK == foreign::ANY && STEAD_FABRIC_NOTHING == foreign::NOTHING);
};
