//! A source with faults from a seed, for tests (feature `faults`).

use crate::{Source, file::check_range};
use std::cell::Cell;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stead_core::{Error, Kind, Result};

thread_local! {
    static NO_RINGS: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread gets no io_uring, as in many containers, or gets it again.
pub fn forbid_io_uring(forbid: bool) {
    NO_RINGS.set(forbid);
}

pub(crate) fn forbids_io_uring() -> bool {
    NO_RINGS.get()
}

/// Which faults a [`FaultySource`] has. The default has none.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Where short reads and slow reads fall. Print it when a test fails.
    pub seed: u64,
    /// Of 100 reads, how many come in several pieces, as a device may give them. Callers see no
    /// difference: a source fills the buffer or fails.
    pub short_percent: u8,
    /// Reads that touch this byte fail as a bad sector does.
    pub bad_byte: Option<u64>,
    /// After that many reads the source ends at that byte.
    pub shrink: Option<(u64, u64)>,
    /// Of 100 reads, how many wait for this long.
    pub slow: Option<(u8, Duration)>,
}

/// A source with faults before another one. It offers neither a descriptor nor its bytes, so that every
/// read passes by here.
#[derive(Debug)]
pub struct FaultySource {
    inner: Arc<dyn Source>,
    faults: Faults,
    reads: AtomicU64,
}

impl FaultySource {
    /// Puts `faults` before `inner`.
    pub fn new(inner: Arc<dyn Source>, faults: Faults) -> Self {
        FaultySource { inner, faults, reads: AtomicU64::new(0) }
    }

    /// Number of reads so far.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// A number that depends on the seed, the read and what it is for, and on nothing else.
    fn draw(&self, read: u64, salt: u64) -> u64 {
        let mut x = self.faults.seed ^ read.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (salt << 56);
        x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ (x >> 31)
    }
}

impl Source for FaultySource {
    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        check_range(self.path(), offset, buf.len(), self.len())?;
        let read = self.reads.fetch_add(1, Ordering::Relaxed);
        let end = offset.saturating_add(buf.len() as u64);
        if let Some((percent, wait)) = self.faults.slow
            && self.draw(read, 1) % 100 < u64::from(percent)
        {
            std::thread::sleep(wait);
        }
        if let Some(bad) = self.faults.bad_byte.filter(|bad| (offset..end).contains(bad)) {
            let cause = std::io::Error::from_raw_os_error(rustix::io::Errno::IO.raw_os_error());
            return Err(Error::io("read", self.path(), cause).at_offset(bad));
        }
        if let Some((after, len)) = self.faults.shrink
            && read >= after
            && end > len
        {
            return Err(Error::new(
                Kind::Changed,
                format!(
                    "the file shrank while it was read (now {len} bytes, was {})",
                    self.inner.len()
                ),
            )
            .at_path(self.path())
            .at_offset(len.max(offset)));
        }
        if self.draw(read, 2) % 100 < u64::from(self.faults.short_percent) && buf.len() > 1 {
            // Below the length of the buffer, so it fits usize.
            let cut = 1 + (self.draw(read, 3) % (buf.len() as u64 - 1)) as usize;
            let (head, tail) = buf.split_at_mut(cut);
            self.inner.read_at(offset, head)?;
            return self.inner.read_at(offset + cut as u64, tail);
        }
        self.inner.read_at(offset, buf)
    }

    fn check(&self) -> Result<()> {
        self.inner.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{IoOptions, MemorySource, ReadQueue};

    fn source(faults: Faults) -> Arc<FaultySource> {
        let data: Vec<u8> = (0..100).collect();
        Arc::new(FaultySource::new(Arc::new(MemorySource::new("m", data)), faults))
    }

    #[test]
    fn faults_come_as_they_were_ordered() {
        let mut b = [0; 10];
        let s = source(Faults { bad_byte: Some(50), ..Faults::default() });
        s.read_at(40, &mut b).unwrap();
        assert_eq!(s.read_at(41, &mut b).unwrap_err().kind(), Kind::Io);
        s.read_at(51, &mut b).unwrap();
        let s = source(Faults { shrink: Some((2, 30)), ..Faults::default() });
        s.read_at(90, &mut b).unwrap();
        s.read_at(90, &mut b).unwrap();
        assert_eq!(s.read_at(90, &mut b).unwrap_err().kind(), Kind::Changed);
        s.read_at(20, &mut b).unwrap();
        assert_eq!(s.reads(), 4);
    }

    #[test]
    fn short_and_slow_reads_change_nothing() {
        let slow = Some((50, Duration::from_micros(10)));
        let s = source(Faults { seed: 7, short_percent: 100, slow, ..Faults::default() });
        crate::conformance::check(s, &(0..100).collect::<Vec<u8>>());
    }

    #[test]
    fn a_queue_passes_errors_on_and_goes_on() {
        let s = source(Faults { bad_byte: Some(15), ..Faults::default() });
        let s: Arc<dyn Source> = s;
        let mut queue = ReadQueue::new(&IoOptions::default()).unwrap();
        for i in 0..4 {
            queue.submit(i, &s, i * 10, 10).unwrap();
        }
        let got: Vec<_> = std::iter::from_fn(|| queue.next().transpose())
            .map(|r| r.map(|c| c.tag).map_err(|e| (e.kind(), e.place().offset)))
            .collect();
        assert_eq!(got, [Ok(0), Err((Kind::Io, Some(15))), Ok(2), Ok(3)]);
    }
}
