//! `libstead_mpi`: makes of an MPI communicator a fabric for `libstead` and for the Python package, neither of which
//! knows MPI. Its functions are declared in `include/stead_mpi.h`; the feature `link` builds them.

#[cfg(feature = "link")]
mod face;
