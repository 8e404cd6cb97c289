//! Ranks that are processes of an MPI job: `stead_fabric::Fabric` on Open MPI and MPICH.
//!
//! With the feature `link`, which is off by default so that nothing else needs MPI. A fabric is made of a communicator
//! of the program, of which it takes a duplicate: the program's own messages and error handlers are not touched.
//!
//! ```text
//! let world = stead_mpi::World::init()?;          // or the program has called MPI_Init_thread itself
//! let fabric = stead_mpi::Mpi::world(stead_mpi::Options::default())?;
//! fabric.send(1, 7, b"hello".to_vec())?;
//! ```
//!
//! **Progress.** MPI moves bytes only while somebody calls it, and its own waits spin. Here one thread for each fabric
//! makes all calls: it sends what is queued, receives whatever comes into a mailbox, and sleeps in between, for 50 ms at
//! most. All others wait on condition variables. So ranks that compute do not stall those that wait for them, and a
//! fabric without traffic costs next to nothing. The price: MPI must have been initialised with `MPI_THREAD_MULTIPLE`,
//! and a message to a fabric that was quiet takes some tens of milliseconds, or a few where somebody has listened for less than a minute.
//!
//! **Failure.** Each return code is looked at. A rank that somebody waits for and that answers nothing, not even its
//! progress thread, is taken for gone after `Options::silence`, and everything that waits for it fails with kind
//! `Peer`. A rank that does not come to where a fabric is made is waited for no longer than `Options::meeting`; MPI does not tell which
//! one that is. Whether MPI itself lets a job live on after a rank has died is MPI's to decide: `mpirun` of Open MPI ends all
//! of it unless told otherwise (`--enable-recovery`).
//!
//! **Sizes** are 64-bit; messages over 1 GiB travel in pieces.

// What knows nothing of MPI is tested without it.
#[cfg(any(feature = "link", test))]
mod boxes;
#[cfg(feature = "link")]
mod clock;
#[cfg(any(feature = "link", test))]
mod pace;
#[cfg(any(feature = "link", test))]
#[cfg_attr(not(feature = "link"), allow(dead_code))]
mod post;
#[cfg(feature = "link")]
mod progress;
#[cfg(feature = "link")]
mod ranks;
#[cfg(feature = "link")]
mod raw;
#[cfg(any(feature = "link", test))]
#[cfg_attr(not(feature = "link"), allow(dead_code))]
mod silence;

#[cfg(feature = "link")]
pub use ranks::{Mpi, Options, World, end_all};
#[cfg(feature = "conformance")]
pub use raw::set_piece;
#[cfg(feature = "link")]
pub use raw::{MPI_Comm, of_fortran};
#[cfg(feature = "link")]
pub use stead_core::Error;
