//! Files that all ranks of an MPI job read together: the fabric comes from libstead_mpi, which the package has
//! loaded. Every call is made without the interpreter's lock: other ranks may wait for this one's threads.

use crate::errors::raise;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use stead::Error;
use stead::fabric::foreign::{self, Foreign, stead_make_fabric_fn};
use stead::read::{File, Options, ranks};

/// Opens a file on all ranks. `maker` is the address of a function that makes a fabric, and `data` that of what it makes
/// it of; `stead._mpi` has both from ctypes.
///
/// # Errors
/// As `ranks::open`; those of the maker.
pub fn open(
    py: Python<'_>,
    maker: usize,
    data: usize,
    path: &Path,
    options: &Options,
) -> PyResult<File> {
    py.detach(|| ranks::open(Arc::new(fabric(maker, data)?), path, options)).map_err(raise)
}

/// Takes part in the opening of a file on all ranks with an error of this one: the others get it, and do not wait. What
/// cannot be told is no concern of theirs, or they hear of it by themselves.
#[pyfunction]
pub fn refuse_ranks(py: Python<'_>, maker: usize, data: usize, why: &str) {
    py.detach(|| {
        if let Ok(fabric) = fabric(maker, data) {
            ranks::refuse(&fabric, Error::usage(why));
        }
    });
}

/// What the package gives as addresses.
///
/// # Errors
/// `Usage` if there is none; those of the maker.
pub fn fabric(maker: usize, data: usize) -> stead::Result<Foreign> {
    if data == 0 {
        return Err(Error::usage("there is no communicator"));
    }
    // SAFETY: the package gives the address of `stead_mpi_make` and of a communicator, or of `stead_mpi_make_within` and of what that takes,
    // which lives as long as this call; both have this type. Or it gives 0.
    unsafe {
        let make = std::mem::transmute::<usize, stead_make_fabric_fn>(maker);
        foreign::make(make, data as *mut c_void)
    }
}
