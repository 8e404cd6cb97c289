//! What a user may pin.

use std::time::Duration;
use stead_core::limits;
use stead_store::IoOptions;

/// How to read. What is `None` is chosen from the file, the range and the machine.
#[derive(Debug, Clone)]
pub struct Options {
    /// Reader threads at most.
    pub readers: Option<usize>,
    /// Bytes of a block, a multiple of 4096 (rounded up).
    pub block: Option<usize>,
    /// Blocks in flight for each reader.
    pub depth: Option<usize>,
    /// Memory for blocks: those that are read ahead, are being read, or wait to be asked for.
    pub memory: u64,
    /// A request that is not answered after this long fails.
    pub deadline: Duration,
    /// Read-ahead of the session's range.
    pub ahead: bool,
    /// Engine and O_DIRECT. The depth in it is not used.
    pub io: IoOptions,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            readers: None,
            block: None,
            depth: None,
            memory: limits::DEFAULT_SESSION_MEMORY,
            deadline: Duration::from_secs(limits::READ_DEADLINE_S),
            ahead: true,
            io: IoOptions::default(),
        }
    }
}

/// What was chosen.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Choice {
    pub(crate) readers: usize,
    pub(crate) block: u64,
    pub(crate) depth: usize,
    /// Blocks in memory at most.
    pub(crate) blocks: usize,
}

impl Options {
    /// Chooses what is not pinned, for a file of `len` bytes.
    pub(crate) fn choose(&self, len: u64) -> Choice {
        const PAGE: u64 = 4096;
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let most = limits::MAX_READ_BLOCK as u64;
        // A file is at least some tens of blocks, so that its first bytes come early; a block is large
        // enough for a device to be at its rate with few of them in flight.
        let wanted = match self.block {
            Some(block) => block as u64,
            // What is known about blocks stays small: at most some tens of thousands of them.
            None => (len / 64).clamp(256 << 10, 2 << 20).max(len / 32_768),
        };
        // Four blocks at least have room in the memory.
        let block = wanted.min(self.memory / 4).clamp(PAGE, most).next_multiple_of(PAGE);
        let blocks = usize::try_from(self.memory / block).unwrap_or(usize::MAX).max(2);
        let readers =
            self.readers.unwrap_or(cores.div_ceil(4).min(8)).clamp(1, limits::MAX_THREADS);
        let depth =
            self.depth.unwrap_or(8).clamp(1, limits::MAX_QUEUE_DEPTH).min(blocks / 2).max(1);
        Choice { readers, block, depth, blocks }
    }
}
