//! Fabric: how ranks talk.
//!
//! A [`Fabric`] moves bytes between ranks; what is built of it (broadcast, reduction up a tree) is the
//! same for all implementations and lives in [`FabricExt`]. [`Local`] connects ranks that are threads of
//! one process and is the embedded default, mostly with one rank. `stead-mpi` connects processes by MPI, and
//! [`foreign::Foreign`] whatever a program gives as functions of C; [`Subset`] is some of the ranks of another one.

mod collective;
#[cfg(any(test, feature = "conformance"))]
#[allow(clippy::expect_used)]
pub mod conformance;
pub mod foreign;
mod functions;
pub mod kinds;
mod local;
mod mailbox;
mod rounds;
mod spares;
mod subset;
#[cfg(any(test, feature = "testing"))]
#[allow(clippy::expect_used)]
pub mod testing;

pub use collective::{FabricExt, Heard, frame, frame_after, unframe};
pub use local::Local;
pub use mailbox::Mailbox;
pub use rounds::Rounds;
pub use spares::Spares;
pub use subset::Subset;

use std::ops::Range;
use std::time::Duration;
use stead_core::{Error, Kind, Result};

/// Ranks that exchange messages. Messages between two ranks with the same tag arrive in order.
///
/// All calls may be made by any thread, at the same time as others.
pub trait Fabric: Send + Sync {
    /// This rank, from 0.
    fn rank(&self) -> usize;

    /// Number of ranks.
    fn size(&self) -> usize;

    /// A number for the node that a rank runs on: equal for ranks that share memory and local file systems.
    fn node_of(&self, rank: usize) -> usize;

    /// How long [`Fabric::recv`] waits.
    fn deadline(&self) -> Duration;

    /// Sends; returns when `bytes` may be forgotten, not when they have arrived. May wait while much is on its way.
    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()>;

    /// Waits for a message, but no longer than `within`: `None` if none came. An error of kind `Peer` if the rank is
    /// gone.
    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>>;

    /// As [`Fabric::recv_within`], from whatever rank. Ranks that are gone are no error.
    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>>;

    /// An error of kind `Peer` if a rank is gone. Who waits for something that a rank does asks this from time to
    /// time; being asked makes the fabric look whether the rank still answers.
    fn alive(&self, rank: usize) -> Result<()>;

    /// True if the program of a rank has come to its end, or the rank is gone: all that it has sent is here, and it asks for nothing
    /// and takes part in nothing any more, though it may answer others until they have ended as well. Does not make the fabric look.
    fn ends(&self, _rank: usize) -> bool {
        false
    }

    /// How often the ranks have done something together: for [`FabricExt`].
    fn rounds(&self) -> &Rounds;

    /// Nobody will ask for messages with these tags, nor do anything together with them: what has come goes, and, where
    /// the fabric can tell, what comes later does, too. Tags are not used again.
    fn forget(&self, tags: Range<u32>) {
        self.rounds().forget(&tags);
        for tag in tags {
            while let Ok(Some(_)) = self.recv_any(tag, Duration::ZERO) {}
        }
    }

    /// Empty memory with room for a message of so many bytes, perhaps that of one that is over.
    fn memory(&self, len: usize) -> Vec<u8> {
        Vec::with_capacity(len)
    }

    /// So many bytes, whatever is in them, for what is yet to be read into them and sent.
    ///
    /// # Errors
    /// `Limit` if there is no memory.
    fn room(&self, len: usize) -> Result<Vec<u8>> {
        let mut room = self.memory(len);
        room.try_reserve_exact(len).map_err(|_| spares::none(len))?;
        room.resize(len, 0);
        Ok(room)
    }

    /// A message that has come is not looked at any more: its memory may be that of another one.
    fn give_back(&self, _bytes: Vec<u8>) {}

    /// Waits for a message. An error of kind `Peer` if the rank is gone or the deadline passes.
    fn recv(&self, from: usize, tag: u32) -> Result<Vec<u8>> {
        let within = self.deadline();
        self.recv_within(from, tag, within)?.ok_or_else(|| {
            let message = format!("no message within {} s", within.as_secs());
            Error::new(Kind::Peer, message).at_rank(from)
        })
    }
}
