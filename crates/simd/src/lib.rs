//! Vectors: which the processor has, and work that is written once for all of them.
//!
//! [`Work`] is something to be done with any [`Vector`]; [`dispatch`] does it with the best vectors that the processor
//! has, found out once. [`Portable`] defines what every operation computes, in plain Rust; `Avx2`, `Avx512` and `Neon`
//! compute the same bits with fewer instructions. A value of one of these types exists only where the processor has the
//! instructions, so that whoever holds one may use them.
//!
//! ```
//! use stead_simd::{Vector, Vectors, Work, dispatch};
//!
//! struct Double<'a>(&'a mut [[f64; 4]]);
//!
//! impl Work for Double<'_> {
//!     type Out = ();
//!
//!     #[inline(always)]
//!     fn run<V: Vector>(self, v: V) {
//!         for four in self.0 {
//!             let x = v.load(four);
//!             v.store(v.add(x, x), four);
//!         }
//!     }
//! }
//!
//! let mut numbers = [[1.0, 2.0, 3.0, 4.0]];
//! dispatch(Double(&mut numbers));
//! assert_eq!(numbers, [[2.0, 4.0, 6.0, 8.0]]);
//!
//! // And with each sort that this machine has, as tests do.
//! for vectors in Vectors::all() {
//!     vectors.run(Double(&mut numbers));
//! }
//! ```
//!
//! Operations on floating-point numbers are those of IEEE 754 on each place, so that results are the same bits with and
//! without vectors. Loops of work are counted loops, and there are no closures in it: neither those nor iterators are
//! always inlined into functions for certain processors.
//!
//! What it cannot do: vectors of integers, other widths than the four and eight places of [`Vector`] and the
//! [`Lanes`] of exact sums, and instructions that give different bits on different processors (estimates of roots and
//! reciprocals).

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod bytes;
mod choice;
mod lanes;
#[cfg(target_arch = "aarch64")]
mod neon;
mod past;
mod portable;
#[cfg(test)]
mod tests;
mod vector;

#[cfg(target_arch = "x86_64")]
pub use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub use avx512::Avx512;
pub use bytes::{Bytes, GROUP, Masks};
pub use choice::{VARIABLE, Vectors, complaint, dispatch};
pub use lanes::{Lanes, MOST, Two};
#[cfg(target_arch = "aarch64")]
pub use neon::Neon;
pub use past::copy_past_caches;
pub use portable::Portable;
pub use vector::{Vector, Work};
