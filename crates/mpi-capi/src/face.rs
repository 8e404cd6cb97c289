//! The functions.

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use stead_fabric::foreign::{Functions, fail, lend};
use stead_mpi::{Error, MPI_Comm, Mpi, Options};

/// Makes a fabric of the communicator that `communicator` points to. Collective. Those of one communicator share a thread and
/// a communicator, but no messages. Returns 0, or a stead_status with a text in `why`, which is NULL or has room for
/// STEAD_FABRIC_WHY bytes.
///
/// The environment variable STEAD_PEER_SILENCE_S has the seconds without a sign of life after which a rank that is waited
/// for is taken for gone.
///
/// # Safety
/// `communicator` points to a communicator, and `fabric` to room for a stead_fabric.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_mpi_make(
    communicator: *mut c_void,
    fabric: *mut Functions,
    why: *mut c_char,
) -> c_int {
    // SAFETY: the caller gives the address of a communicator, and the places.
    unsafe { make(fabric, why, &Within { communicator, timeout_ms: 0 }, Ok) }
}

/// What a fabric is made of within a time: `stead_mpi_within` of the header.
#[repr(C)]
pub struct Within {
    /// The address of a communicator, or of a handle of Fortran.
    communicator: *mut c_void,
    /// Milliseconds within which all ranks are to come; 0 for those that are usual.
    timeout_ms: u64,
}

/// As `stead_mpi_make`, within a time.
///
/// # Safety
/// `within` points to a stead_mpi_within with the address of a communicator, and `fabric` to room for a stead_fabric.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_mpi_make_within(
    within: *mut c_void,
    fabric: *mut Functions,
    why: *mut c_char,
) -> c_int {
    // SAFETY: the caller gives the address of such a record, and the places.
    unsafe { make(fabric, why, within.cast(), Ok) }
}

/// The same of a communicator of Fortran: its handle, an integer.
///
/// # Safety
/// As for `stead_mpi_make_within`, but for that.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_mpi_make_within_f(
    within: *mut c_void,
    fabric: *mut Functions,
    why: *mut c_char,
) -> c_int {
    // SAFETY: the caller gives the address of such a record, and the places.
    unsafe { make(fabric, why, within.cast(), stead_mpi::of_fortran) }
}

/// Makes a fabric of the communicator that a handle is, to which the record points.
unsafe fn make<H: Copy>(
    fabric: *mut Functions,
    why: *mut c_char,
    within: *const Within,
    of: fn(H) -> Result<MPI_Comm, Error>,
) -> c_int {
    // A handle is copied, and nothing else is shared.
    let made = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: NULL, or the address of a record, as the caller promises.
        let within = unsafe { within.as_ref() };
        let given = within.filter(|within| !within.communicator.is_null() && !fabric.is_null());
        let Some(Within { communicator, timeout_ms }) = given else {
            return Err(Error::usage("no communicator, or no place for the fabric"));
        };
        let mut options = Options::default();
        let silence = std::env::var("STEAD_PEER_SILENCE_S").ok().and_then(|s| s.parse().ok());
        if let Some(seconds) = silence.filter(|s| *s > 0) {
            options.silence = Duration::from_secs(seconds);
        }
        if *timeout_ms > 0 {
            options.meeting = Duration::from_millis(*timeout_ms);
        }
        // SAFETY: it is not NULL, and the caller promises the rest.
        Mpi::of(of(unsafe { *communicator.cast::<H>() })?, options)
    }));
    let made = made.unwrap_or_else(|_| Err(Error::internal("a panic was caught")));
    match made {
        Ok(mpi) => {
            // SAFETY: there is room, as the caller promises.
            unsafe { fabric.write(lend(Arc::new(mpi))) };
            0
        }
        // SAFETY: `why` is as the caller promises.
        Err(error) => unsafe { fail(&error, why.cast()) },
    }
}

/// Bytes of a communicator of the MPI that this library was built with. Who has a communicator of an MPI that was chosen at
/// run time compares it: one of another MPI must not come to `stead_mpi_make`.
#[unsafe(no_mangle)]
pub extern "C" fn stead_mpi_communicator_bytes() -> usize {
    size_of::<MPI_Comm>()
}

/// Ends the threads that call MPI, so that MPI_Finalize may be called. Waits until all ranks do this, or have closed what they
/// had open. Not needed where MPI_Finalize is that of this library.
#[unsafe(no_mangle)]
pub extern "C" fn stead_mpi_end() {
    let _ = catch_unwind(stead_mpi::end_all);
}
