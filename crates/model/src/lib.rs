//! Where to compute: what was measured of the machines, what a request would take in each place, and the balance of two
//! sides that work at once.
//!
//! - A [`Profile`] is what was measured: **sites** (places that can run kernels), **tiers** (their storage), **links**
//!   between sites, and the **costs** of kernels. It is a TOML file that people can read.
//! - [`decide`] predicts a [`Request`] in each [`Place`]: *pull* (bytes move, the hosts compute), *push* (the kernel
//!   moves, storage computes), *vector* (one side parses, the other one gets the numbers) and *split* (both work). It
//!   says what binds each, which is chosen, and why.
//! - [`Balance`] hands out the pieces of a split while it runs: it learns from what each side really does, so that a wrong
//!   prediction costs little.
//!
//! Nothing here reads a file or a clock: numbers come in, numbers go out. So the planner, the tests and a simulator of
//! whole clusters use the same code.
//!
//! ```
//! use stead_model::{Load, Place, Profile, Request, decide};
//!
//! let profile = Profile::parse(r#"
//!     version = 1
//!     [[sites]]
//!     name = "storage"
//!     hosts = 4
//!     cores = 4
//!     [[sites]]
//!     name = "host"
//!     hosts = 4
//!     cores = 4
//!     [[tiers]]
//!     name = "nvme"
//!     site = "storage"
//!     bytes_per_s = 1e9
//!     [[links]]
//!     from = "storage"
//!     to = "host"
//!     bytes_per_s = 117e6
//!     latency_s = 5e-5
//!     [[kernels]]
//!     kernel = "sum"
//!     format = "raw"
//!     core_s_per_gb = 0.2
//!     result_bytes = 64
//! "#)?;
//! let request = Request::new(512 << 20, "sum", "raw").held_on("storage", "nvme").asked_by("host");
//! let decision = decide(&profile, &request, &Load::none())?;
//! assert_eq!(decision.choice().place, Place::Push);
//! println!("{}", decision.why());
//! # Ok::<(), stead_core::Error>(())
//! ```
//!
//! The model is one of pipelines: bytes are read, sent and computed on in chunks, so that the slowest of these stages
//! takes the time, and the others hide behind it but for the first chunk. Cores compute, send and receive, each for so long, and
//! sites may share them. It knows nothing of caches or of the order in which requests come.

mod balance;
mod decide;
mod estimate;
mod profile;
mod ranges;
mod request;
mod sides;
mod stages;
mod text;
pub mod transfer;

#[cfg(test)]
mod balance_tests;
#[cfg(test)]
mod decide_tests;
#[cfg(test)]
mod reference_tests;

pub use balance::{Balance, BalanceOptions, Chunk, Next, Side, Verdict};
pub use decide::{Decision, decide};
pub use estimate::{Estimate, Parts, Place, Stage, Wish};
pub use profile::{Cost, Link, Profile, Shared, Site, Tier};
pub use request::{Held, Load, Request, Splitting};
