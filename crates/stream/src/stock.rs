//! The memory of a writer's arrays: what it lends counts as taken from the stream, by all steps that have not gone.
//!
//! Where steps are recorded, a thread beside the writer gives back what has gone, so that others who wait for memory have it while the
//! writer computes.

use crate::board::Board;
use crate::memory::Shared;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use stead_core::Result;
use stead_store::arena::{Arena, Piece};

/// What a step has. Who records it has it, too, as long as that takes.
pub(crate) type Pieces = Arc<Vec<Arc<Piece>>>;

/// A step that was ended.
#[derive(Debug)]
struct Past {
    step: u64,
    /// Of its arrays.
    bytes: u64,
    pieces: Pieces,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Stock {
    arena: Arena,
    seat: usize,
    /// Steps that have not gone, and what they have. Who has it may say how much is used.
    past: Mutex<VecDeque<Past>>,
}

impl Stock {
    pub(crate) fn new(arena: Arena, seat: usize) -> Stock {
        Stock { arena, seat, past: Mutex::default() }
    }

    fn past(&self) -> MutexGuard<'_, VecDeque<Past>> {
        self.past.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Memory within that of the stream; `None` if there is not as much.
    pub(crate) fn take(&self, board: &Board<Shared>, bytes: u64) -> Option<Result<Piece>> {
        let _past = self.past();
        // First said, then looked: of two who want the last bytes at the same time not both have them.
        board.set_used(self.seat, self.arena.used().saturating_add(bytes));
        let used = board.used();
        let fits = used <= board.agreed().memory;
        if fits {
            board.note_peak(used);
        }
        let piece = fits.then(|| self.arena.take(usize::try_from(bytes).unwrap_or(usize::MAX)));
        board.set_used(self.seat, self.arena.used());
        piece
    }

    /// Keeps what a step has that was ended, with so many bytes of arrays.
    pub(crate) fn keep(&self, step: u64, bytes: u64, pieces: Pieces) {
        self.past().push_back(Past { step, bytes, pieces });
    }

    /// Bytes that were lent and are of no step that was ended: they stay until their step has.
    pub(crate) fn open(&self) -> u64 {
        let past = self.past();
        let ended = past.iter().map(|past| past.bytes).fold(0, u64::saturating_add);
        self.arena.used().saturating_sub(ended)
    }

    /// Frees what belongs to steps that have gone. True if there was something.
    pub(crate) fn reclaim(&self, board: &Board<Shared>) -> bool {
        let mut past = self.past();
        let before = (past.len(), board.used());
        past.retain(|of| board.is_there(of.step) || Arc::strong_count(&of.pieces) > 1);
        board.set_used(self.seat, self.arena.used());
        before != (past.len(), board.used())
    }

    /// What is there stays for those who look at it.
    pub(crate) fn leave(&self) {
        self.arena.leave();
    }
}
