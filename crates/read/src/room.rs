//! Memory for bytes that come from several blocks.

use memmap2::{MmapMut, MmapOptions};
use std::ops::{Deref, DerefMut};
use stead_core::{Error, Kind, Result};

/// So many bytes, or more, are a mapping: the kernel clears it as it is filled, in huge pages where there are some, and
/// has it back at once. Cleared before, they are written twice, and most of that by one thread while the device waits.
const LEAST_MAPPED: usize = 1 << 20;

/// Bytes that begin as zeros.
pub(crate) enum Room {
    Small(Vec<u8>),
    Large(MmapMut),
}

impl Room {
    /// So many zeros.
    ///
    /// # Errors
    /// `Limit` if there is no memory.
    pub(crate) fn new(len: usize) -> Result<Room> {
        if len < LEAST_MAPPED {
            return zeros(len).map(Room::Small);
        }
        let map = MmapOptions::new().len(len).map_anon().map_err(|_| none(len))?;
        // Only a hint, which a kernel without huge pages refuses.
        #[cfg(target_os = "linux")]
        let _ = map.advise(memmap2::Advice::HugePage);
        Ok(Room::Large(map))
    }
}

impl Deref for Room {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Room::Small(bytes) => bytes,
            Room::Large(map) => map,
        }
    }
}

impl DerefMut for Room {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Room::Small(bytes) => bytes,
            Room::Large(map) => map,
        }
    }
}

/// So many zeros, for who wants a vector.
///
/// # Errors
/// `Limit` if there is no memory.
#[allow(clippy::slow_vector_initialization)] // `vec!` aborts where there is no memory.
pub(crate) fn zeros(len: usize) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| none(len))?;
    bytes.resize(len, 0);
    Ok(bytes)
}

fn none(len: usize) -> Error {
    Error::new(Kind::Limit, format!("no memory for {len} bytes"))
        .with_hint("read it in smaller parts")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_size_all_bytes_are_zeros_and_can_be_written() {
        for len in [0, 1, LEAST_MAPPED - 1, LEAST_MAPPED, 5 * LEAST_MAPPED + 3] {
            let mut room = Room::new(len).unwrap();
            assert_eq!(room.len(), len);
            assert!(room.iter().all(|b| *b == 0));
            room.fill(7);
            assert!(room.iter().all(|b| *b == 7));
        }
    }

    #[test]
    fn without_memory_it_is_an_error() {
        for len in [isize::MAX as usize, usize::MAX] {
            assert_eq!(Room::new(len).err().unwrap().kind(), Kind::Limit);
            assert_eq!(zeros(len).err().unwrap().kind(), Kind::Limit);
        }
    }
}
