//! The memory of a writer's arrays: what it lends counts as taken from the stream, by all steps that have not gone, and from what all streams
//! of the user may have together.
//!
//! Where steps are recorded, a thread beside the writer gives back what has gone, so that others who wait for memory have it while the
//! writer computes.

use crate::board::Board;
use crate::budget::Shares;
use crate::buffer::Buffer;
use crate::memory::Shared;
use std::collections::VecDeque;
use std::sync::atomic::{Ordering, fence};
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

/// What is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Full {
    /// The stream has no more memory.
    Stream,
    /// All streams of the user together have none.
    User,
}

/// When memory of steps that have gone is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Moment {
    /// The writer is about to take some: its pages are kept.
    Within,
    /// It has ended a step.
    Between,
    /// A thread does so, whatever the writer does.
    Beside,
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct Stock {
    arena: Arena,
    seat: usize,
    /// What is agreed of all streams, if something is.
    shares: Option<Shares>,
    kept: Mutex<Kept>,
}

/// Who has it may say how much is used.
#[derive(Debug, Default)]
struct Kept {
    /// Steps that have not gone, and what they have.
    past: VecDeque<Past>,
    /// The writer is within a step, and takes what is kept.
    is_within: bool,
    /// The writer has closed the stream: what has memory then has it as long as the stream is there.
    is_left: bool,
}

impl Stock {
    pub(crate) fn new(arena: Arena, seat: usize, shares: Option<Shares>) -> Stock {
        Stock { arena, seat, shares, kept: Mutex::default() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is agreed of all streams of the user, if something is.
    pub(crate) fn shares(&self) -> Option<&Shares> {
        self.shares.as_ref()
    }

    /// Memory within that of the stream and of the user; or what is full. With `made` it is the beginning of that, or `None` if it cannot be had
    /// without a copy.
    ///
    /// # Errors
    /// Those of [`Arena::take`] and [`Arena::adopt`].
    pub(crate) fn take(
        &self,
        board: &Board<Shared>,
        bytes: u64,
        made: Option<&Buffer>,
    ) -> Result<std::result::Result<Option<Piece>, Full>> {
        let kept = self.kept();
        // First said, then looked: of two who want the last bytes at the same time not both have them.
        board.set_used(self.seat, self.arena.used().saturating_add(bytes));
        fence(Ordering::SeqCst);
        let used = board.used();
        let shares = self.shares.as_ref();
        let room = match used <= board.agreed().memory {
            true => shares.map_or(Ok(u64::MAX), |of| of.room(board, self.seat).ok_or(Full::User)),
            false => Err(Full::Stream),
        };
        let taken = room.map(|room| {
            board.note_peak(used);
            let len = usize::try_from(bytes).unwrap_or(usize::MAX);
            let piece = match made {
                None => self.arena.take(len).map(Some),
                Some(made) => self.arena.adopt(made.memory(), len),
            };
            if made.is_some() {
                // Pages that were kept are none of the piece's, and there is no room for both.
                self.arena.trim(board.agreed().memory.saturating_sub(used));
            }
            if shares.is_some() {
                // Of pages that were kept some are those of the piece now; others are no longer where there is no room for both.
                self.arena.trim(room);
            }
            piece
        });
        self.say(board, &kept);
        match taken {
            Ok(piece) => piece.map(Ok),
            Err(full) => Ok(Err(full)),
        }
    }

    /// Says what it has, for all to see.
    fn say(&self, board: &Board<Shared>, kept: &Kept) {
        if !kept.is_left {
            // Pages that are freed count as kept before they count as used no longer: never for less than there is.
            board.set_spare(self.seat, self.arena.spare());
            board.set_used(self.seat, self.arena.used());
        }
    }

    /// Keeps what a step has that was ended, with so many bytes of arrays.
    pub(crate) fn keep(&self, step: u64, bytes: u64, pieces: Pieces) {
        self.kept().past.push_back(Past { step, bytes, pieces });
    }

    /// Bytes that were lent and are of no step that was ended: they stay until their step has.
    pub(crate) fn open(&self) -> u64 {
        let kept = self.kept();
        let ended = kept.past.iter().map(|past| past.bytes).fold(0, u64::saturating_add);
        self.arena.used().saturating_sub(ended)
    }

    /// Frees what belongs to steps that have gone. True if there was something. Its pages are kept for the writer while it is within a
    /// step; between steps no more of them than may be.
    pub(crate) fn reclaim(&self, board: &Board<Shared>, moment: Moment) -> bool {
        let mut kept = self.kept();
        let before = (kept.past.len(), board.used());
        let there = board.there();
        let is_there = |step: u64| there.binary_search(&step).is_ok();
        kept.past.retain(|of| is_there(of.step) || Arc::strong_count(&of.pieces) > 1);
        if moment != Moment::Beside {
            kept.is_within = moment == Moment::Within;
        }
        self.say(board, &kept);
        if let Some(shares) = self.shares.as_ref().filter(|_| self.arena.spare() > 0) {
            self.arena.trim(shares.keeps(board, self.seat, kept.is_within));
            self.say(board, &kept);
        }
        before != (kept.past.len(), board.used())
    }

    /// What is there stays for those who look at it.
    pub(crate) fn leave(&self, board: &Board<Shared>) {
        self.reclaim(board, Moment::Between);
        let mut kept = self.kept();
        // Nobody takes them any more.
        self.arena.trim(0);
        self.arena.leave();
        self.say(board, &kept);
        kept.is_left = true;
    }
}
