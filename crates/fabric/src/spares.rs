//! Memory of messages that are over, for those that come next. Pages that nobody has touched yet take more time than the bytes
//! that are copied to them.

use std::sync::{Mutex, MutexGuard, PoisonError};
use stead_core::{Error, Result};

/// Memory of fewer bytes is new each time, and so is that of more.
const LEAST: usize = 64 << 10;
const MOST: usize = 8 << 20;

/// Memory of messages that are over. It has the room that it was taken with, whatever was in it: that counts, and not how long the
/// message was.
#[derive(Debug)]
pub struct Spares {
    inner: Mutex<Inner>,
    /// Bytes that are kept, at most.
    most: usize,
}

#[derive(Debug, Default)]
struct Inner {
    all: Vec<Vec<u8>>,
    bytes: usize,
}

impl Spares {
    /// Keeps so many bytes at most.
    pub fn new(most: usize) -> Spares {
        Spares { inner: Mutex::default(), most }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody looks at these bytes any more.
    pub fn keep(&self, bytes: Vec<u8>) {
        let room = bytes.capacity();
        let mut inner = self.lock();
        if (LEAST..=MOST).contains(&room) && inner.bytes + room <= self.most {
            inner.bytes += room;
            inner.all.push(bytes);
        }
    }

    /// Memory with room for so many bytes, and for no more than twice as many, whatever is in it; that used last, which may be in a
    /// cache.
    fn take(&self, len: usize) -> Option<Vec<u8>> {
        let mut inner = self.lock();
        let fits = |bytes: &Vec<u8>| (len..=len.saturating_mul(2)).contains(&bytes.capacity());
        let at = inner.all.iter().rposition(fits)?;
        let bytes = inner.all.swap_remove(at);
        inner.bytes -= bytes.capacity();
        Some(bytes)
    }

    /// Empty memory with room for so many bytes, to be added to.
    ///
    /// # Errors
    /// `Limit` if there is no memory.
    pub fn empty(&self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = self.take(len).unwrap_or_default();
        bytes.clear();
        bytes.try_reserve_exact(len).map_err(|_| none(len))?;
        Ok(bytes)
    }

    /// So many bytes, to be received into.
    ///
    /// # Errors
    /// `Limit` if there is no memory.
    pub fn room(&self, len: usize) -> Result<Vec<u8>> {
        let mut bytes = self.take(len).unwrap_or_default();
        bytes.truncate(len);
        let more = len - bytes.len();
        bytes.try_reserve_exact(more).map_err(|_| none(len))?;
        bytes.resize(len, 0);
        Ok(bytes)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.lock().all.is_empty()
    }

    /// Nothing has come or gone for a while.
    pub fn free(&self) {
        let all = std::mem::take(&mut *self.lock());
        drop(all);
    }
}

pub(crate) fn none(len: usize) -> Error {
    Error::limit(format!("no memory for a message of {len} bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEPT: usize = 16 << 20;

    #[test]
    fn memory_is_used_again_where_it_fits() {
        let spares = Spares::new(KEPT);
        let one = spares.room(1 << 20).unwrap();
        let place = one.as_ptr();
        spares.keep(one);
        assert!(spares.take((1 << 20) + 1).is_none() && spares.take(1 << 18).is_none());
        let again = spares.room((1 << 20) - 7).unwrap();
        assert_eq!((again.as_ptr(), again.len()), (place, (1 << 20) - 7));
        // It is there once.
        let other = spares.room(1 << 20).unwrap();
        assert_ne!(other.as_ptr(), place);
        spares.keep(again);
        let whole = spares.room(1 << 20).unwrap();
        assert_eq!((whole.as_ptr(), whole.len()), (place, 1 << 20));
        // What is to be added to has none of what was in it, and room for all that is asked for.
        spares.keep(whole);
        let empty = spares.empty(1 << 19).unwrap();
        assert_eq!((empty.as_ptr(), empty.len()), (place, 0));
        assert!(empty.capacity() >= 1 << 20);
        // A short message counts with all of its room.
        spares.keep(empty);
        assert!(spares.lock().bytes >= 1 << 20);
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let spares = Spares::new(KEPT);
        for len in [0, LEAST - 1, MOST + 1] {
            spares.keep(Vec::with_capacity(len));
        }
        assert!(spares.lock().all.is_empty());
        (0..100).for_each(|_| spares.keep(vec![1; 1 << 20]));
        let held = |inner: MutexGuard<'_, Inner>| (inner.all.len(), inner.bytes);
        let (kept, bytes) = held(spares.lock());
        assert!(kept <= KEPT >> 20 && kept > 0 && bytes <= KEPT);
        // Not much more than is asked for, and all of what there is.
        assert!(spares.take(LEAST).is_none());
        assert_eq!((0..100).filter_map(|_| spares.take(1 << 20)).count(), kept);
        assert_eq!(spares.lock().bytes, 0);
        spares.keep(vec![1; 1 << 20]);
        spares.free();
        assert!(spares.take(1 << 20).is_none());
        assert!(spares.room(usize::MAX).is_err() && spares.empty(usize::MAX).is_err());
        let few = Spares::new(3 << 20);
        (0..4).for_each(|_| few.keep(vec![1; 1 << 20]));
        assert_eq!(few.lock().all.len(), 3);
    }
}
