//! Files that all ranks of an MPI job read together: the fabric comes from libstead_mpi, which the package has
//! loaded. Every call is made without the interpreter's lock: other ranks may wait for this one's threads.

use crate::errors::raise;
use pyo3::prelude::*;
use std::ffi::c_void;
use std::path::Path;
use std::sync::Arc;
use stead::Error;
use stead::fabric::foreign::{self, Make};
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
    if maker == 0 || data == 0 {
        return Err(raise(Error::usage("there is no communicator")));
    }
    py.detach(|| {
        // SAFETY: the package gives the address of `stead_mpi_make`, which has this type, and of a communicator.
        let fabric = unsafe {
            let make = std::mem::transmute::<usize, Make>(maker);
            foreign::make(make, data as *mut c_void)?
        };
        ranks::open(Arc::new(fabric), path, options)
    })
    .map_err(raise)
}
