//! Memory of a large answer that several readers fill at once.
//!
//! The kernel clears new memory when it is first written to, which takes as long as a fast device takes for the bytes. Under the
//! lock of a request one reader alone could do that, while the others wait for it and the device for them. So each
//! gets a part that nobody else has, and fills it without a lock. `unsafe` is contained here.

use crate::room::large;
use memmap2::MmapRaw;
use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use stead_core::Result;

/// Bytes that begin as zeros, and the one who gives out parts of them. Nobody reads them before all of those are gone.
pub(crate) struct Filling {
    memory: Arc<MmapRaw>,
    /// Where each part begins and ends that was given out, none of which has a byte of another one.
    given: BTreeMap<usize, usize>,
}

/// Some of these bytes, to write to.
pub(crate) struct Part {
    memory: Arc<MmapRaw>,
    from: usize,
    len: usize,
}

/// The bytes, to which nobody else writes any more.
pub(crate) struct Filled(MmapRaw);

impl Filling {
    /// So many bytes.
    ///
    /// # Errors
    /// `Limit` if there is no memory.
    pub(crate) fn new(len: usize) -> Result<Filling> {
        Ok(Filling { memory: Arc::new(large(len)?.into()), given: BTreeMap::new() })
    }

    /// So many bytes from there; `None` if there are none, if they are not all in it, or if somebody was given one of them before.
    pub(crate) fn part(&mut self, from: usize, len: usize) -> Option<Part> {
        let to = from.checked_add(len).filter(|to| from < *to && *to <= self.memory.len())?;
        // Parts do not overlap, so that the last one that begins before the end is the one that ends last.
        let before = self.given.range(..to).next_back();
        if before.is_some_and(|(_, end)| *end > from) {
            return None;
        }
        self.given.insert(from, to);
        Some(Part { memory: self.memory.clone(), from, len })
    }

    /// All of it; `None` if somebody still has a part.
    pub(crate) fn finish(self) -> Option<Filled> {
        Arc::into_inner(self.memory).map(Filled)
    }
}

impl Part {
    /// Fills it from its start with as many of these as it has room for.
    pub(crate) fn fill(self, bytes: &[u8]) {
        let len = bytes.len().min(self.len);
        // SAFETY: `Filling::part` has looked that these lie within the memory, which `self.memory` keeps, and that nobody else
        // was given one of them; there is no slice of the memory, and so none that `bytes` could be, before `Filling::finish`
        // has taken it from the last who had it.
        unsafe {
            let to = self.memory.as_mut_ptr().add(self.from);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, len);
        }
    }
}

impl Deref for Filled {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the mapping has so many readable bytes, which began as zeros, as long as `self` lives, and is nobody else's.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.len()) }
    }
}

impl DerefMut for Filled {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; they are writable, and the borrow of `self` is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr(), self.0.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_that_threads_fill_are_the_whole() {
        const LEN: usize = 3 << 20;
        const STEP: usize = 100_003;
        let byte = |at: usize| (at / 4096 * 31 + at % 251) as u8;
        let mut filling = Filling::new(LEN).unwrap();
        let starts = (0..LEN).step_by(STEP);
        let mut parts: Vec<_> =
            starts.map(|at| (at, filling.part(at, STEP.min(LEN - at)).unwrap())).collect();
        // In no order.
        parts.reverse();
        std::thread::scope(|scope| {
            for (at, part) in parts {
                let bytes: Vec<u8> = (at..at + STEP).map(byte).collect();
                scope.spawn(move || part.fill(&bytes));
            }
        });
        let mut filled = filling.finish().unwrap();
        assert_eq!(filled.len(), LEN);
        assert!(filled.iter().enumerate().all(|(at, b)| *b == byte(at)));
        filled[7] = 1;
        assert_eq!(filled[7], 1);
    }

    #[test]
    fn no_byte_is_given_out_twice_or_from_outside() {
        let mut filling = Filling::new(1000).unwrap();
        let part = filling.part(100, 100).unwrap();
        for (from, len) in
            [(100, 100), (0, 101), (199, 1), (150, 10), (50, 500), (100, 0), (0, 0), (1000, 0)]
        {
            assert!(filling.part(from, len).is_none(), "{from}, {len}");
        }
        for (from, len) in [(999, 2), (1000, 1), (0, 1001), (usize::MAX, 2), (2, usize::MAX)] {
            assert!(filling.part(from, len).is_none(), "{from}, {len}");
        }
        assert!(filling.part(0, 100).is_some() && filling.part(200, 800).is_some());
        // What is left of a part that is not filled are zeros.
        part.fill(&[7; 30]);
        let filled = filling.finish().unwrap();
        assert!(
            filled
                .iter()
                .enumerate()
                .all(|(at, b)| *b == if (100..130).contains(&at) { 7 } else { 0 })
        );
    }

    #[test]
    fn it_is_whole_when_nobody_has_a_part() {
        let mut filling = Filling::new(10).unwrap();
        let part = filling.part(0, 5).unwrap();
        assert!(filling.finish().is_none());
        // Memory stays as long as somebody may write to it.
        part.fill(&[1; 50]);
        assert!(Filling::new(isize::MAX as usize).is_err());
    }
}
