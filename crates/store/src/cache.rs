//! What the page cache has of a file, and how it is asked to have more or less of it.

use rustix::fs::Advice;
use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;
use std::os::fd::{AsFd, AsRawFd};

/// True if the first and the last byte of an extent can be had without waiting for a device.
pub(crate) fn cached(file: &File, offset: u64, len: usize) -> bool {
    let there = |at: u64| {
        // A read that does not wait begins to read ahead, a page at a time, where there is nothing.
        if resident(file, at) == Some(false) {
            return false;
        }
        let mut byte = [0];
        let flags = rustix::io::ReadWriteFlags::NOWAIT;
        let mut target = [IoSliceMut::new(&mut byte)];
        matches!(rustix::io::preadv2(file.as_fd(), &mut target, at, flags), Ok(1))
    };
    // The end first: files are read and forgotten from their start on.
    there(offset + (len as u64).saturating_sub(1)) && there(offset)
}

/// Takes a file out of the page cache, as far as nobody uses it; for measuring.
pub fn evict(file: &File) {
    // Only a hint.
    let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
}

/// How much of a file is in the page cache, 0 to 1: of so many pages, spread evenly, those that are. 0 where the system does not
/// tell.
pub fn resident_share(file: &File, len: u64, pages: u64) -> f64 {
    let pages = pages.clamp(1, len.max(1));
    let at = |i: u64| (u128::from(len) * u128::from(2 * i + 1) / u128::from(2 * pages)) as u64;
    let there = (0..pages).filter(|i| resident(file, at(*i)) == Some(true)).count();
    there as f64 / pages as f64
}

/// True if the page of a byte is in the page cache, or on its way there; nothing is read. `None` where the system does not
/// tell: before Linux 6.5, and about files of others that we may not write to.
pub(crate) fn resident(file: &File, at: u64) -> Option<bool> {
    #[repr(C)]
    struct Part {
        offset: u64,
        len: u64,
    }
    // The same number on all processors; `libc` has it for some.
    const CACHESTAT: libc::c_long = 451;
    // Pages: cached, dirty, being written back, evicted, recently evicted.
    let (part, mut pages) = (Part { offset: at, len: 1 }, [0u64; 5]);
    // SAFETY: the descriptor is open, and both are as the system has them (`struct cachestat_range`, `struct cachestat`).
    let done =
        unsafe { libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const part, &raw mut pages, 0) };
    (done == 0).then_some(pages[0] > 0)
}

/// Has the system begin to write to the device what was written to these bytes, so that there is less to wait for in the end.
pub fn begin_writing(file: &File, offset: u64, len: u64) {
    // A hint that Linux answers by beginning to write; pages on their way stay in the cache meanwhile.
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(len), Advice::DontNeed);
}

/// Has the system begin to read these bytes, without waiting for them.
pub fn will_need(file: &File, offset: u64, len: usize) {
    // Only a hint: what it does not bring, pread does.
    let _ = rustix::fs::fadvise(file, offset, NonZeroU64::new(len as u64), Advice::WillNeed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_just_written_is_resident() {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, &[1; 100_000]).unwrap();
        let told = resident(&file, 0).is_some();
        for pages in [0, 1, 7, u64::MAX] {
            let share = resident_share(&file, 100_000, pages.min(1000));
            assert_eq!(share, if told { 1.0 } else { 0.0 }, "{pages}");
        }
        assert!(resident_share(&file, 0, 5) <= 1.0);
    }

    #[test]
    fn to_look_whether_bytes_are_cached_brings_none() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let file = File::open(&path).unwrap();
        assert!(cached(&file, 0, 1 << 20));
        file.sync_all().unwrap();
        evict(&file);
        // Files of a memory file system stay, and not every system tells.
        if [400_000, 500_000].iter().all(|at| resident(&file, *at) == Some(false)) {
            assert!(!cached(&file, 400_000, 100_001));
            std::thread::sleep(std::time::Duration::from_millis(20));
            assert_eq!(
                (resident(&file, 500_000), resident(&file, 400_000)),
                (Some(false), Some(false))
            );
        }
    }
}
