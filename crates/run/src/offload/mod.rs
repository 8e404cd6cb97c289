//! Work that some ranks ask others to do: those that are where the data are.
//!
//! Compute ranks ask when they like ([`Client`]); storage ranks [`serve`] until all of them are done. Only the report crosses
//! the network, and files that a kernel writes as a whole.
//!
//! The first storage rank is the head. A thread of it listens to the compute ranks, whose asks wait in a queue for each; it
//! takes from them in turn, and has all storage ranks run one ask after the other, together ([`crate::run_on`]). What is small
//! it runs alone: to meet the others would take longer. Whatever an ask fails with is told to who has asked, and the next one
//! is taken; who is gone is not waited for.

mod alone;
mod client;
mod head;
mod rooms;
mod serve;
mod small;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod trouble_tests;
mod wire;

pub use crate::roles::{Role, Roles};
pub use alone::alone;
pub use client::Client;
pub use serve::{Served, serve};
pub use stead_core::View;

use crate::patient::at_end;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use stead_core::{Cancel, Result, limits};
use stead_fabric::Fabric;
use stead_format::OpenOptions;
use stead_kernel::Own;
use stead_store::IoOptions;

/// How often who waits looks whether it is to stop and the others live.
const LOOK: Duration = Duration::from_millis(100);

/// An error of kind `Peer` if nothing that was not sent yet will come from a rank: it is gone, or its program at its end.
fn there(fabric: &dyn Fabric, rank: usize) -> Result<()> {
    fabric.alive(rank)?;
    if fabric.ends(rank) {
        return Err(at_end(rank));
    }
    Ok(())
}

/// What a compute rank asks for.
///
/// ```
/// use stead_run::offload::{Job, View};
/// // The mean of the third of four doubles of each record, of the first million.
/// let job = Job {
///     inputs: vec!["/data/records.bin".into()],
///     view: Some(View::new(0, 32, vec![(16, 8)], 0, 8 << 20)?),
///     open: stead_format::OpenOptions {
///         format: Some(stead_format::FormatType::Raw),
///         dtype: Some(stead_core::DType::F64),
///         ..Default::default()
///     },
///     kernels: vec!["mean:value".into()],
///     ..Job::default()
/// };
/// # assert_eq!(job.threads, 0);
/// # Ok::<(), stead_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Job {
    /// Files, globs, directories and layouts, as the storage ranks see them.
    pub inputs: Vec<String>,
    /// What is known of the format.
    pub open: OpenOptions,
    /// What is seen of the only file that is named.
    pub view: Option<View>,
    /// Bytes of that file where it was opened. One that has others is another file: an error of kind `Changed`.
    pub file_bytes: Option<u64>,
    /// Kernel specifications. Each is a key of the results.
    pub kernels: Vec<String>,
    /// Kernels of the program, by names that the storage ranks know ([`Serving::operations`]). Their results come after those of
    /// `kernels`, under these names.
    pub operations: Vec<String>,
    /// Only rows for which this holds.
    pub filter: Option<String>,
    /// Answers per value of these columns.
    pub by: Vec<String>,
    /// Worker threads of each storage rank; 0 for one a processor, which ranks of a node share.
    pub threads: usize,
    /// Bytes of memory that buffers and states may take on each storage node.
    pub memory: u64,
    /// Bytes of one extent.
    pub chunk: usize,
    /// How bytes are read.
    pub io: IoOptions,
    /// Count and skip records that cannot be read, where the default is to fail.
    pub lenient: bool,
}

impl Default for Job {
    fn default() -> Job {
        Job {
            inputs: Vec::new(),
            open: OpenOptions::default(),
            view: None,
            file_bytes: None,
            kernels: Vec::new(),
            operations: Vec::new(),
            filter: None,
            by: Vec::new(),
            threads: 0,
            memory: limits::DEFAULT_MEMORY,
            chunk: limits::DEFAULT_CHUNK,
            io: IoOptions::default(),
            lenient: false,
        }
    }
}

/// Makes a kernel of its name, on each storage rank: the same program runs there. Its result has the name that was asked for.
pub type Operations = Arc<dyn Fn(&str) -> Result<Own> + Send + Sync>;

/// How a storage rank serves.
#[derive(Clone, Default)]
pub struct Serving {
    /// Kernels of the program.
    pub operations: Option<Operations>,
    /// The most memory that an ask gets on this node, whatever it asks for.
    pub memory: Option<u64>,
    /// Ends it, on all storage ranks: what is asked for from then on fails.
    pub cancel: Cancel,
    /// Called about ten times a second by the thread that serves: for signals.
    pub look: Option<Arc<dyn Fn() + Send + Sync>>,
}

impl fmt::Debug for Serving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Serving")
            .field("operations", &self.operations.is_some())
            .field("memory", &self.memory)
            .field("cancel", &self.cancel)
            .finish_non_exhaustive()
    }
}
