//! Copies of small parts of files, for views that come in no order.
//!
//! To look at a mapping costs a fault for each piece that nobody has looked at lately, and later a round through the tables
//! of pages to take it out again: more than to copy what is small. A copy lands in memory that the same thread has used a
//! moment ago, so that it stays in the processor's cache, and takes nothing of what is resident.

use crate::buffer::{ALIGN, Pages};
use crate::stripe::{self, Apart, STRIPES};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::IoSliceMut;
use std::os::fd::AsFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Parts of so many bytes that come in no order are best copied, if nobody looks near them. Larger ones are looked at where
/// they lie, and so are smaller ones as long as all of the file may be resident.
pub(crate) const LEAST_COPIED: usize = 16 << 10;
pub(crate) const MOST_COPIED: usize = 256 << 10;
/// As `MOST_COPIED`, in any order, where the page cache has pages of 4 KiB, each of which costs as much as to copy it.
pub(crate) const MOST_COPIED_SMALL: usize = 2 << 20;

/// Bytes of copies, and of memory for others, that the threads of a stripe have at a time, in the whole process.
const MOST_OUT: usize = 4 << 20;
const MOST_SPARE: usize = 16;

/// Memory for copies. Locks are tried and never waited for: after a fork they may be held by threads that there are not.
#[derive(Default)]
struct Shelf {
    /// The one that was used last is last.
    spare: Mutex<Vec<Pages>>,
    /// Bytes of all that there are, spare or not.
    out: AtomicUsize,
}

static SHELVES: [Apart<Shelf>; STRIPES] =
    [const { Apart(Shelf { spare: Mutex::new(Vec::new()), out: AtomicUsize::new(0) }) }; STRIPES];

impl Shelf {
    /// Memory for so many bytes; `None` if there would be too much of it.
    fn take(&self, bytes: usize) -> Option<Pages> {
        // Few sizes, so that what is spare fits.
        let pages = bytes.div_ceil(ALIGN);
        let size = pages.next_power_of_two().min(pages.next_multiple_of(64)) * ALIGN;
        let mut spare = self.spare.try_lock().ok()?;
        if let Some(at) = spare.iter().rposition(|pages| pages.as_slice().len() == size) {
            return Some(spare.remove(at));
        }
        while self.out.load(Relaxed) + size > MOST_OUT {
            if spare.is_empty() {
                return None;
            }
            self.out.fetch_sub(spare.remove(0).as_slice().len(), Relaxed);
        }
        self.out.fetch_add(size, Relaxed);
        drop(spare);
        let mut pages = Pages::default();
        pages.grow(size);
        Some(pages)
    }

    fn put(&self, pages: Pages) {
        let size = pages.as_slice().len();
        match self.spare.try_lock() {
            Ok(mut spare) if spare.len() < MOST_SPARE => spare.push(pages),
            _ => _ = self.out.fetch_sub(size, Relaxed),
        }
    }
}

/// A part of a file as it was.
pub(crate) struct Copied {
    pages: Pages,
    skip: usize,
    len: usize,
    shelf: usize,
}

impl Copied {
    /// Copies what is in the page cache, without waiting for a device. `Ok(None)` if not all of it is there, or too many
    /// bytes are copied already.
    ///
    /// # Errors
    /// The system has no such reads of this file.
    pub(crate) fn of(file: &File, offset: u64, len: usize) -> Result<Option<Copied>, Errno> {
        // Within a page as in the file: some processors copy to elsewhere at a fraction of their speed.
        let skip = (offset % ALIGN as u64) as usize;
        let shelf = stripe::mine();
        let Some(pages) = SHELVES[shelf].0.take(skip + len) else { return Ok(None) };
        let mut copied = Copied { pages, skip, len, shelf };
        let mut target = [IoSliceMut::new(&mut copied.pages.as_mut_slice()[skip..skip + len])];
        match rustix::io::preadv2(file.as_fd(), &mut target, offset, ReadWriteFlags::NOWAIT) {
            Ok(n) => Ok((n == len).then_some(copied)),
            Err(e @ (Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL)) => Err(e),
            Err(_) => Ok(None),
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.pages.as_slice()[self.skip..self.skip + self.len]
    }
}

impl Drop for Copied {
    fn drop(&mut self) {
        SHELVES[self.shelf].0.put(std::mem::take(&mut self.pages));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(len: usize) -> (tempfile::TempDir, File, Vec<u8>) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let bytes: Vec<u8> = (0..len).map(|i| (i / 4096 * 31 + i % 251) as u8).collect();
        std::fs::write(&path, &bytes).unwrap();
        (dir, File::open(path).unwrap(), bytes)
    }

    #[test]
    fn copies_are_what_the_file_has_at_every_offset_and_length() {
        let (_dir, f, bytes) = file(300_000);
        let mut copies = 0;
        for i in 0..500usize {
            let offset = i * 7919 % 290_000;
            let len = (i * i * 37 % MOST_COPIED + 1).min(bytes.len() - offset);
            if let Some(copy) = Copied::of(&f, offset as u64, len).unwrap() {
                assert!(copy.bytes() == &bytes[offset..offset + len], "{offset}, {len}");
                assert_eq!(copy.bytes().as_ptr().addr() % ALIGN, offset % ALIGN);
                copies += 1;
            }
        }
        assert!(copies > 400, "{copies}");
        assert!(Copied::of(&f, 299_999, 2).unwrap().is_none());
        assert!(Copied::of(&f, 300_000, 1).unwrap().is_none());
    }

    #[test]
    fn memory_is_bounded_used_again_and_given_back() {
        let shelf = Shelf::default();
        let out = || shelf.out.load(Relaxed);
        let mut taken = Vec::new();
        while let Some(pages) = shelf.take(100_000) {
            taken.push(pages);
        }
        assert_eq!((taken.len(), out()), (MOST_OUT / (128 << 10), MOST_OUT));
        let last = taken.pop().unwrap();
        let address = last.as_slice().as_ptr().addr();
        shelf.put(last);
        assert_eq!(shelf.take(131_072).unwrap().as_slice().as_ptr().addr(), address);
        assert_eq!(
            shelf.take(MOST_COPIED_SMALL + ALIGN - 1).map(|pages| pages.as_slice().len()),
            None
        );
        // That one was taken and dropped by somebody who has not told.
        shelf.out.fetch_sub(128 << 10, Relaxed);
        // Spare memory of another size goes for what is asked for.
        taken.into_iter().for_each(|pages| shelf.put(pages));
        let small: Vec<_> = std::iter::from_fn(|| shelf.take(1)).collect();
        assert_eq!((small.len(), out()), (MOST_OUT / ALIGN, MOST_OUT));
        small.into_iter().for_each(|pages| shelf.put(pages));
        assert_eq!(out(), MOST_SPARE * ALIGN);
        // Whoever has the lock may be gone.
        let held = shelf.spare.lock().unwrap();
        assert!(shelf.take(1).is_none());
        drop(held);
    }
}
