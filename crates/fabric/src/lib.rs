//! Fabric: how ranks talk.
//!
//! A [`Fabric`] moves bytes between ranks; what is built of it (broadcast, reduction up a tree) is the
//! same for all implementations and lives in [`FabricExt`]. [`Local`] connects ranks that are threads of
//! one process and is the embedded default, mostly with one rank.

mod collective;
#[cfg(any(test, feature = "conformance"))]
#[allow(clippy::expect_used)]
pub mod conformance;
mod local;

pub use collective::FabricExt;
pub use local::Local;

use stead_core::Result;

/// Ranks that exchange messages. Messages between two ranks with the same tag arrive in order.
pub trait Fabric: Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// Sends; returns when `bytes` may be forgotten, not when they have arrived.
    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()>;

    /// Waits for a message. An error of kind `Peer` if the rank is gone or the deadline passes.
    fn recv(&self, from: usize, tag: u32) -> Result<Vec<u8>>;
}
