//! Memory that is lent, until it is dropped.

use super::loose::Lent;
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

/// Loose memory that an arena has taken in. Dropped, nobody looks at it by this any more.
pub(super) struct Adopted {
    pub(super) arena: Arc<Inner>,
    pub(super) segment: u64,
    pub(super) lent: Arc<Lent>,
}

impl Drop for Adopted {
    fn drop(&mut self) {
        if !self.arena.give_up(self.segment) {
            self.lent.leave();
        }
    }
}

/// Memory of an [`Arena`](super::Arena) that nobody else writes to. Dropped, it is given back.
pub struct Piece {
    lies: Lies,
    /// Where in the segment it begins. All of it is in the block, and in no other piece.
    at: usize,
    len: usize,
}

enum Lies {
    /// In a block; several small ones lie in one.
    Within(Arc<Block>),
    /// In a file of its own.
    Apart(Adopted),
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
        Some(Piece { lies: Lies::Within(block), at, len })
    }

    /// The first `len` bytes of what an arena has taken in, of which there may be more such pieces; `None` if it is shorter.
    pub(super) fn adopted(of: Adopted, len: usize) -> Option<Piece> {
        if len > of.lent.bytes().len() {
            return None;
        }
        of.arena.used.fetch_add(len as u64, Ordering::Relaxed);
        Some(Piece { lies: Lies::Apart(of), at: 0, len })
    }

    /// Where others find it.
    pub fn place(&self) -> Place {
        let segment = match &self.lies {
            Lies::Within(block) => block.range.segment,
            Lies::Apart(of) => of.segment,
        };
        Place { segment, offset: self.at as u64, len: self.len as u64 }
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
        let map = match &self.lies {
            Lies::Within(block) => &block.segment.map,
            Lies::Apart(of) => return of.lent.bytes().get(..self.len).unwrap_or(&[]),
        };
        // SAFETY: within the mapping, as `new` has seen to, which lives as long as the block; only who has the piece writes there,
        // and memory of a file is always initialised.
        unsafe { std::slice::from_raw_parts(map.start().add(self.at), self.len) }
    }

    /// The same, to be written; none of one that was adopted, which others have, too.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let Lies::Within(block) = &self.lies else { return &mut [] };
        let map = &block.segment.map;
        // SAFETY: as above; the borrow is exclusive, and no other piece has these bytes: a block is lent once, and `Small` counts on.
        unsafe { std::slice::from_raw_parts_mut(map.start().add(self.at), self.len) }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let arena = match &self.lies {
            Lies::Within(block) => &block.arena,
            Lies::Apart(of) => &of.arena,
        };
        arena.used.fetch_sub(self.len as u64, Ordering::Relaxed);
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
