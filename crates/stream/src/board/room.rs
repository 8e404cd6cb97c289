//! Room for files of the stream: what its writers have written, and what quotas left when one of them last looked.

use super::seats::{W_CLAIMED, W_FILES};
use super::{Board, Guard, ROOM, ROOM_FILES, ROOM_NEXT};
use crate::words::Words;

/// What somebody has seen who looked what quotas leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Look {
    /// Bytes that were left.
    pub(crate) left: u64,
    /// Bytes of files that all writers had [written](Board::written) when the look began.
    pub(crate) written: u64,
    /// When it is time for another one, in nanoseconds since 1970.
    pub(crate) next: u64,
}

impl<W: Words> Board<W> {
    /// Bytes of files that a writer has from now on, of steps that are there. Its recorder's own word: without the lock.
    pub(crate) fn set_files(&self, writer: usize, bytes: u64) {
        if writer < self.writers {
            self.put(self.writer_at(writer) + W_FILES, bytes);
        }
    }

    /// Bytes that a writer is about to write to files, from now on. Its recorder's own word: without the lock.
    pub(crate) fn set_claimed(&self, writer: usize, bytes: u64) {
        if writer < self.writers {
            self.put(self.writer_at(writer) + W_CLAIMED, bytes);
        }
    }

    /// Bytes of files that all writers have.
    pub(crate) fn written(&self) -> u64 {
        self.sum_of(W_FILES)
    }

    /// The same, with what they are about to write.
    pub(crate) fn files(&self) -> u64 {
        self.written().saturating_add(self.sum_of(W_CLAIMED))
    }

    fn sum_of(&self, word: usize) -> u64 {
        let all = (0..self.writers).map(|writer| self.get(self.writer_at(writer) + word));
        all.fold(0, u64::saturating_add)
    }

    /// What was seen last; `None` if nobody has looked.
    pub(crate) fn last_look(&self, _: &Guard<'_, W>) -> Option<Look> {
        let left = self.get(ROOM).checked_sub(1)?;
        Some(Look { left, written: self.get(ROOM_FILES), next: self.get(ROOM_NEXT) })
    }

    /// Somebody has looked.
    pub(crate) fn note_look(&self, _: &Guard<'_, W>, look: Look) {
        // Who is killed in between leaves none.
        self.put(ROOM, 0);
        self.put(ROOM_FILES, look.written);
        self.put(ROOM_NEXT, look.next);
        self.put(ROOM, look.left.saturating_add(1));
    }

    /// Bytes that quotas leave for files of all writers, by the last look and what they have written since; `None` if nobody has looked.
    pub(crate) fn room(&self, guard: &Guard<'_, W>) -> Option<u64> {
        let look = self.last_look(guard)?;
        Some(look.left.saturating_add(look.written).saturating_sub(self.files()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::tests::{ALL, agreed, found, heap, who};
    use super::*;

    #[test]
    fn what_writers_write_is_counted_from_the_last_look_on() {
        let agreed = agreed(2, 1, 2);
        let heap = heap(&agreed);
        let board = found(&heap, &agreed);
        let guard = board.lock(who(1), ALL).unwrap();
        board.set_files(0, 30);
        assert_eq!((board.last_look(&guard), board.room(&guard)), (None, None));
        let look = Look { left: 100, written: board.written(), next: 7 };
        board.note_look(&guard, look);
        assert_eq!((board.last_look(&guard), board.room(&guard)), (Some(look), Some(100)));
        board.set_claimed(1, 60);
        assert_eq!((board.written(), board.files(), board.room(&guard)), (30, 90, Some(40)));
        board.set_files(1, 60);
        board.set_claimed(1, 0);
        assert_eq!((board.written(), board.room(&guard)), (90, Some(40)));
        // What was there before and is freed makes room.
        board.set_files(0, 0);
        assert_eq!(board.room(&guard), Some(70));
        board.set_files(0, 1000);
        board.set_claimed(0, u64::MAX);
        assert_eq!(board.room(&guard), Some(0));
        // No writer of these.
        board.set_files(2, 5);
        board.set_claimed(2, 5);
        assert_eq!(board.written(), 1060);
        board.note_look(&guard, Look { left: u64::MAX, written: 0, next: 7 });
        assert!(board.last_look(&guard).is_some());
    }
}
