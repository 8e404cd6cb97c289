//! Memory for reads and writes past the page cache.

use crate::buffer::Pages;
use memmap2::{MmapMut, MmapOptions};
use std::ops::{Deref, DerefMut};

/// A huge page, where there are some: a device is told of it as of one piece, and not of 512.
const HUGE: usize = 2 << 20;

/// Memory that reads and writes past the page cache can use: aligned, cleared, a multiple of 4 KiB.
pub struct Aligned(Memory);

enum Memory {
    /// `len` bytes from `skip` on.
    Mapped {
        map: MmapMut,
        skip: usize,
        len: usize,
    },
    Own(Pages),
}

impl Aligned {
    /// For at least `len` bytes. Those of 2 MiB or more lie in huge pages, if the system has them.
    pub fn new(len: usize) -> Aligned {
        if let Some(mapped) = Aligned::mapped(len).filter(|_| len >= HUGE) {
            return mapped;
        }
        let mut pages = Pages::default();
        pages.grow(len);
        Aligned(Memory::Own(pages))
    }

    /// Memory of whole huge pages, cleared; `None` if there is none.
    pub(crate) fn mapped(len: usize) -> Option<Aligned> {
        let len = len.checked_next_multiple_of(HUGE)?;
        // As long as it has to be for a part of it to be aligned; what is not looked at takes no memory.
        let map = MmapOptions::new().len(len.checked_add(HUGE)?).map_anon().ok()?;
        // Only a hint, which a kernel without huge pages refuses.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        let skip = map.as_ptr().align_offset(HUGE);
        (skip <= HUGE).then_some(Aligned(Memory::Mapped { map, skip, len }))
    }
}

impl Deref for Aligned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Memory::Mapped { map, skip, len } => &map[*skip..*skip + *len],
            Memory::Own(pages) => pages.as_slice(),
        }
    }
}

impl DerefMut for Aligned {
    fn deref_mut(&mut self) -> &mut [u8] {
        match &mut self.0 {
            Memory::Mapped { map, skip, len } => &mut map[*skip..*skip + *len],
            Memory::Own(pages) => pages.as_mut_slice(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_aligned_and_long_enough_and_cleared() {
        for len in [1, 4096, HUGE - 1, HUGE, HUGE + 1, 3 * HUGE] {
            let mut memory = Aligned::new(len);
            let align = if len < HUGE { 4096 } else { HUGE };
            assert!(memory.as_ptr().addr().is_multiple_of(align), "{len}");
            assert!(memory.len() >= len && memory.len().is_multiple_of(4096));
            assert!(memory.iter().all(|b| *b == 0));
            memory.fill(1);
        }
    }
}
