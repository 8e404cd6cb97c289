//! Memory that is lent, until it is dropped.

use super::pool::Range;
use super::{Inner, Place, Segment};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Where small pieces begin: on a line of the caches, so that no two share one, and as vector code likes it.
const LINE: usize = 64;

/// Whole pages of a segment, which have memory. Dropped, they are given back.
pub(super) struct Block {
    pub(super) arena: Arc<Inner>,
    pub(super) segment: Arc<Segment>,
    pub(super) range: Range,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.arena.give_back(self.range);
    }
}

/// Memory of an [`Arena`](super::Arena) that nobody else writes to. Dropped, it is given back.
pub struct Piece {
    /// Where it lies; several small ones lie in one.
    block: Arc<Block>,
    /// Where in the segment it begins. All of it is in the block, and in no other piece.
    at: usize,
    len: usize,
}

impl std::fmt::Debug for Piece {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Piece({:?})", self.place())
    }
}

impl Piece {
    /// The first `len` bytes of a block that has no other pieces; `None` if it is shorter.
    pub(super) fn whole(block: Block, len: usize) -> Option<Piece> {
        Piece::new(Arc::new(block), 0, len)
    }

    /// `len` bytes of a block, from `skip` on, which are in no other piece; `None` if they are not all in it.
    fn new(block: Arc<Block>, skip: usize, len: usize) -> Option<Piece> {
        let start = usize::try_from(block.range.at).ok()?;
        let most = usize::try_from(block.range.len).ok()?;
        let at = start.checked_add(skip)?;
        let fits = skip.checked_add(len)? <= most;
        if !fits || at.checked_add(len)? > block.segment.map.len() {
            return None;
        }
        block.arena.used.fetch_add(len as u64, Ordering::Relaxed);
        Some(Piece { block, at, len })
    }

    /// Where others find it.
    pub fn place(&self) -> Place {
        Place { segment: self.block.range.segment, offset: self.at as u64, len: self.len as u64 }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its bytes: at first whatever was there before.
    pub fn as_slice(&self) -> &[u8] {
        let map = &self.block.segment.map;
        // SAFETY: within the mapping, as `new` has seen to, which lives as long as the block; only who has the piece writes there,
        // and memory of a file is always initialised.
        unsafe { std::slice::from_raw_parts(map.start().add(self.at), self.len) }
    }

    /// The same, to be written.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let map = &self.block.segment.map;
        // SAFETY: as above; the borrow is exclusive, and no other piece has these bytes: a block is lent once, and `Small` counts on.
        unsafe { std::slice::from_raw_parts_mut(map.start().add(self.at), self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.block.arena.used.fetch_sub(self.len as u64, Ordering::Relaxed);
    }
}

/// A block that small pieces are taken of, one behind the other.
pub(super) struct Small {
    block: Arc<Block>,
    /// Bytes from here on are in no piece.
    at: usize,
}

impl Small {
    pub(super) fn new(block: Block) -> Small {
        Small { block: Arc::new(block), at: 0 }
    }

    /// So many bytes; `None` if they do not fit.
    pub(super) fn take(&mut self, len: usize) -> Option<Piece> {
        // Nobody has a piece of it any more, and what they did there is done.
        if Arc::get_mut(&mut self.block).is_some() {
            self.at = 0;
        }
        let next = self.at.checked_add(len.max(1).checked_next_multiple_of(LINE)?)?;
        let piece = Piece::new(self.block.clone(), self.at, len)?;
        self.at = next;
        Some(piece)
    }
}
