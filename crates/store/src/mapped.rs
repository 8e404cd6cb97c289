//! Files that are looked at where the page cache has them.
//!
//! One mapping of a whole file for each queue that reads it: address space, not memory. Pages come in by
//! faults, sixteen or more at once, and are let go some MiB at a time ([`Mapping::release`]), so that little
//! more is resident than what is being looked at. That is faster than a mapping for each extent, and than asking for
//! the pages beforehand (MADV_POPULATE_READ).

use crate::sigbus::{self, Guard};
use crate::stripe::{self, Apart, STRIPES};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::ops::Range;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A file, mapped and guarded. Its bytes are whatever the file holds at the moment they are looked at, and
/// zeros where the file has become shorter ([`Mapping::lost`]).
#[derive(Debug)]
pub(crate) struct Mapping {
    /// `len` bytes from here are readable as long as this lives.
    start: *const u8,
    len: usize,
    seen: Mutex<Seen>,
    /// What threads have looked at and not yet told to `seen`.
    just_seen: Box<[Apart<Mutex<JustSeen>>; STRIPES]>,
    /// `None` only while it is dropped.
    guard: Option<Guard>,
}

/// What became of bytes that were to be in the page cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Populated {
    There,
    /// The kernel is older than 5.14.
    Untold,
    /// They, or others in the same piece of the page cache, are not to be had.
    Lost,
}

/// Bytes that were looked at are let go when they are so many: each time costs a round through the tables of
/// pages and an interrupt on the other cores. All mappings of the process share [`ALL_SEEN`] as long as each has
/// [`LEAST_SEEN`].
const MOST_SEEN: usize = 8 << 20;
const LEAST_SEEN: usize = 1 << 20;
const ALL_SEEN: usize = 32 << 20;

/// Mappings that there are now.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Bytes that one mapping may leave resident.
fn most_seen() -> usize {
    (ALL_SEEN / LIVE.load(Ordering::Relaxed).max(1)).clamp(LEAST_SEEN, MOST_SEEN)
}

/// What was looked at and may still be resident, piece by piece: bytes in each [`PIECE`].
#[derive(Debug, Default)]
struct Seen {
    bytes: usize,
    /// Of these, bytes in pieces of which most was looked at.
    ripe: usize,
    pieces: BTreeMap<usize, usize>,
}

/// Pages are let go in such pieces, to which a fault brings no neighbours from outside: 64 KiB, or a huge page. Both the
/// mapping and the pages are aligned to it.
pub(crate) const PIECE: usize = 2 << 20;
/// A fault enters so much at least that is in the page cache, from one such place to the next.
const FAULT: usize = 64 << 10;
/// Pieces of which less was looked at stay longer: whoever goes about a file in no order comes back to them. With so
/// many times [`MOST_SEEN`] they go too.
const MOST_OF_A_PIECE: usize = PIECE / 8 * 7;
const PATIENCE: usize = 8;

/// Bytes that a thread has looked at: small ones are told to all a few at a time.
#[derive(Debug, Default)]
struct JustSeen {
    bytes: usize,
    parts: Vec<Range<usize>>,
}

/// So many bytes or parts are told at once.
const TOLD_BYTES: usize = 512 << 10;
const TOLD_PARTS: usize = 32;

impl JustSeen {
    /// Takes note of bytes. Gives what is to be told by now.
    fn add(&mut self, from: usize, to: usize) -> Vec<Range<usize>> {
        self.bytes += to - from;
        match self.parts.last_mut() {
            Some(last) if last.end == from => last.end = to,
            _ => self.parts.push(from..to),
        }
        if self.bytes < TOLD_BYTES && self.parts.len() < TOLD_PARTS {
            return Vec::new();
        }
        self.bytes = 0;
        std::mem::take(&mut self.parts)
    }
}

impl Seen {
    /// Takes note of bytes. Gives ranges of pieces that may go now.
    fn add(&mut self, from: usize, to: usize, most: usize) -> Vec<Range<usize>> {
        for piece in from / PIECE..to.div_ceil(PIECE) {
            let part = to.min((piece + 1) * PIECE) - from.max(piece * PIECE);
            let seen = self.pieces.entry(piece).or_insert(0);
            let before = if *seen < MOST_OF_A_PIECE { 0 } else { *seen };
            *seen += part;
            let after = if *seen < MOST_OF_A_PIECE { 0 } else { *seen };
            self.ripe += after - before;
        }
        self.bytes += to - from;
        let enough = self.bytes >= most && self.ripe >= most / 2;
        if !enough && self.bytes < most * PATIENCE {
            return Vec::new();
        }
        let all = self.bytes >= most * PATIENCE;
        let mut gone: Vec<Range<usize>> = Vec::new();
        self.pieces.retain(|piece, seen| {
            let stays = !all && *seen < MOST_OF_A_PIECE;
            if !stays {
                self.bytes -= *seen;
                match gone.last_mut() {
                    Some(range) if range.end == *piece => range.end += 1,
                    _ => gone.push(*piece..*piece + 1),
                }
            }
            stays
        });
        self.ripe = 0;
        gone
    }
}

// SAFETY: the memory is only read, and by no other means than shared slices; the guard is a number.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

/// Magic numbers of file systems whose page cache is this machine's own: a fault there waits for a device at
/// worst, and a file changes by nobody's hand but this machine's. ext2/3/4, XFS, Btrfs, tmpfs, F2FS, overlay,
/// ZFS, ramfs, bcachefs.
const LOCAL: [u64; 9] = [
    0xEF53,
    0x5846_5342,
    0x9123_683E,
    0x0102_1994,
    0xF2F5_2010,
    0x794C_7630,
    0x2FC1_2FC1,
    0x8584_58F6,
    0xCA45_1A4E,
];

impl Mapping {
    /// Maps the first `len` bytes of a file; `None` where it is better read.
    pub(crate) fn new(file: &File, len: u64) -> Option<Mapping> {
        let len = usize::try_from(len).ok().filter(|n| *n > 0)?;
        let magic = rustix::fs::fstatfs(file).ok()?.f_type;
        // Some systems have it as a signed number of 32 bits.
        if !LOCAL.contains(&(magic as u64 & 0xFFFF_FFFF)) {
            return None;
        }
        // SAFETY: a new mapping where there is none, that is read through slices only. The bytes may change
        // under such a slice; all who look at them take any byte for any other at any time.
        let start = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                len,
                ProtFlags::READ,
                MapFlags::SHARED,
                file.as_fd(),
                0,
            )
        }
        .ok()?;
        let Some(guard) = sigbus::guard(start as usize, len) else {
            // SAFETY: made above, and nobody has it.
            let _ = unsafe { rustix::mm::munmap(start, len) };
            return None;
        };
        LIVE.fetch_add(1, Ordering::Relaxed);
        let (start, just_seen) = (start.cast(), Box::default());
        Some(Mapping { start, len, seen: Mutex::default(), just_seen, guard: Some(guard) })
    }

    /// Bytes of the file; none if they are not all in it.
    pub(crate) fn bytes(&self, offset: usize, len: usize) -> &[u8] {
        match offset.checked_add(len) {
            // SAFETY: within the mapping, which outlives the borrow; a fault gives zeros.
            Some(end) if end <= self.len => unsafe {
                std::slice::from_raw_parts(self.start.add(offset), len)
            },
            _ => &[],
        }
    }

    /// Waits until bytes are in the page cache and enters them here.
    pub(crate) fn populate(&self, offset: usize, len: usize) -> Populated {
        let page = rustix::param::page_size();
        let from = offset - offset % page;
        let end = offset.checked_add(len).filter(|end| *end <= self.len);
        let Some(to) = end else { return Populated::Lost };
        if to <= from {
            return Populated::There;
        }
        // SAFETY: within the mapping, which is only read; pages are entered as a look at each would.
        let done = unsafe {
            let at = self.start.add(from).cast_mut().cast();
            rustix::mm::madvise(at, to - from, Advice::LinuxPopulateRead)
        };
        match done {
            Ok(()) => Populated::There,
            Err(rustix::io::Errno::INVAL) => Populated::Untold,
            Err(_) => Populated::Lost,
        }
    }

    /// Has the kernel read the whole huge page that a fault lies in, and nothing beyond it: one piece of memory and one
    /// request to the device in place of 512, for a twentieth of the processor time. False where it will not.
    pub(crate) fn read_whole_pieces(&self) -> bool {
        if rustix::param::page_size() != 4096 || self.len < PIECE {
            return false;
        }
        let advise = |advice| {
            // SAFETY: within the mapping, which stays as it is; only how pages are read changes.
            unsafe { rustix::mm::madvise(self.start.cast_mut().cast(), self.len, advice).is_ok() }
        };
        advise(Advice::LinuxHugepage) && advise(Advice::Random)
    }

    /// True if the page of a byte has come into the page cache. Nothing is read, not even ahead. Always true for files of
    /// others that we may not write to.
    pub(crate) fn holds(&self, offset: usize) -> bool {
        let page = rustix::param::page_size();
        if offset >= self.len {
            return false;
        }
        let mut there = 0;
        // SAFETY: one page within the mapping, for which one byte is written.
        let done = unsafe {
            let at = self.start.add(offset - offset % page).cast_mut().cast();
            libc::mincore(at, page, &raw mut there)
        };
        done == 0 && there & 1 == 1
    }

    /// Looks at bytes here and there, so that others find them entered.
    pub(crate) fn touch(&self, offset: usize, len: usize) {
        for at in (offset..offset.saturating_add(len)).step_by(FAULT) {
            std::hint::black_box(self.bytes(at, 1).first().copied());
        }
    }

    /// Says that these bytes were looked at. Their pages are let go when there are enough of them; they come again if
    /// somebody looks at them.
    pub(crate) fn release(&self, offset: usize, len: usize) {
        let from = offset.min(self.len);
        let to = offset.saturating_add(len).min(self.len);
        let just = &self.just_seen[stripe::mine()].0;
        let parts = just.lock().unwrap_or_else(PoisonError::into_inner).add(from, to);
        if parts.is_empty() {
            return;
        }
        let most = most_seen();
        let mut gone = Vec::new();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts {
            gone.extend(seen.add(part.start, part.end, most));
        }
        drop(seen);
        for pieces in gone {
            let from = pieces.start * PIECE;
            let to = (pieces.end * PIECE).min(self.len);
            // SAFETY: within the mapping. The pages are the file's own and unchanged by us, so that nothing
            // is lost, also for those who look at them at this moment.
            let _ = unsafe {
                let at = self.start.add(from).cast_mut().cast();
                rustix::mm::madvise(at, to - from, Advice::LinuxDontNeed)
            };
        }
    }

    /// True if bytes were not there when somebody looked at them.
    pub(crate) fn lost(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::hit)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
        // First, as somebody else's mapping may come to lie here at once.
        self.guard = None;
        // SAFETY: it is the mapping made in `new`, and no slice of it is left.
        let _ = unsafe { rustix::mm::munmap(self.start.cast_mut().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    fn file(len: usize) -> (tempfile::TempDir, File) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        std::fs::write(&path, vec![7; len]).unwrap();
        let file = File::options().read(true).write(true).open(path).unwrap();
        (dir, file)
    }

    #[test]
    fn bytes_that_went_away_are_zeros_and_leave_a_mark() {
        let (_dir, f) = file(100_000);
        let Some(m) = Mapping::new(&f, 100_000) else {
            panic!("temporary files are expected on a local file system")
        };
        assert!(m.bytes(10, 99_990).iter().all(|b| *b == 7));
        m.release(10, 50_000);
        m.release(10, MOST_SEEN);
        assert!(m.bytes(0, 100_000).iter().all(|b| *b == 7) && !m.lost());
        assert!(m.bytes(99_999, 2).is_empty() && m.bytes(usize::MAX, 2).is_empty());
        f.set_len(5000).unwrap();
        // The rest of the last page is zeros by itself; beyond it the handler comes in.
        assert_eq!(m.bytes(0, 100_000).iter().filter(|b| **b == 7).count(), 5000);
        assert!(m.lost());
        m.release(0, 100_000);
        drop(m);
        let (_dir, other) = file(100);
        assert!(!Mapping::new(&other, 100).unwrap().lost());
    }

    #[test]
    fn little_of_a_large_file_stays_resident() {
        let (_dir, f) = file(64 << 20);
        let m = Mapping::new(&f, 64 << 20).unwrap();
        let resident = || {
            let status = std::fs::read_to_string("/proc/self/smaps").unwrap();
            let at = format!("{:x}-", m.start as usize);
            let ours = status.split(&at).nth(1).unwrap();
            let line = ours.lines().find(|l| l.starts_with("Rss:")).unwrap();
            line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() << 10
        };
        for i in 0..60 {
            let start = (i << 20) + 77;
            assert!(m.bytes(start, 1 << 20).iter().all(|b| *b == 7));
            m.release(start, 1 << 20);
            assert!(resident() <= 8 << 20, "{i}");
        }
    }

    #[test]
    fn pieces_go_when_they_were_seen_and_the_rest_with_patience() {
        let mut seen = Seen::default();
        let most = 2 * PIECE;
        assert_eq!(seen.add(0, PIECE, most), []);
        assert_eq!(seen.add(5 * PIECE, 5 * PIECE + 100, most), []);
        // Two whole ones go, side by side; the small part stays.
        assert_eq!(seen.add(PIECE, 2 * PIECE, most), vec![Range { start: 0, end: 2 }]);
        assert_eq!((seen.bytes, seen.pieces.len()), (100, 1));
        let half = |seen: &mut Seen, i: usize| seen.add(i * PIECE, i * PIECE + PIECE / 2, most);
        for i in 0..31 {
            assert_eq!(half(&mut seen, 2 * i), [], "{i}");
        }
        // Piece 5 goes together with its neighbours.
        let gone = half(&mut seen, 62);
        assert_eq!((gone.len(), gone.iter().map(|r| r.end - r.start).sum::<usize>()), (31, 33));
        assert_eq!((seen.bytes, seen.pieces.len()), (0, 0));
        assert_eq!(seen.add(7, 7, most), []);
    }

    #[test]
    fn what_is_touched_is_there_before_it_is_looked_at() {
        let (_dir, f) = file(4 << 20);
        let m = Mapping::new(&f, 4 << 20).unwrap();
        m.read_whole_pieces();
        let faults = || {
            let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap();
            let after = stat.rsplit(')').next().unwrap();
            after.split_whitespace().nth(7).unwrap().parse::<u64>().unwrap()
        };
        assert!(m.holds(0) && m.holds((4 << 20) - 1) && !m.holds(4 << 20));
        m.touch(0, 4 << 20);
        let (before, sum) =
            (faults(), m.bytes(0, 4 << 20).iter().map(|b| u64::from(*b)).sum::<u64>());
        assert_eq!((faults() - before, sum), (0, 7 << 22));
    }

    #[test]
    fn small_parts_are_told_together() {
        let mut just = JustSeen::default();
        assert_eq!(just.add(0, 100), []);
        assert_eq!(just.add(100, 200), []);
        assert_eq!(just.add(500, 600), []);
        assert_eq!(just.add(600, 600 + TOLD_BYTES), [0..200, 500..600 + TOLD_BYTES]);
        assert_eq!((just.bytes, just.parts.len()), (0, 0));
        let told: Vec<_> = (0..TOLD_PARTS).map(|i| just.add(2 * i, 2 * i + 1).len()).collect();
        assert_eq!(told.iter().position(|n| *n > 0), Some(TOLD_PARTS - 1));
    }

    #[test]
    fn many_threads_may_lose_pages_at_once() {
        let (_dir, f) = file(4 << 20);
        let m = Mapping::new(&f, 4 << 20).unwrap();
        f.set_len(0).unwrap();
        std::thread::scope(|s| {
            for t in 0..8usize {
                let m = &m;
                s.spawn(move || {
                    for i in 0..1024 {
                        assert_eq!(m.bytes((i * 8 + t) % 1024 * 4096, 1), [0]);
                    }
                });
            }
        });
        assert!(m.lost());
    }

    /// Another mapping of the process is none of our business: its SIGBUS ends the process as before.
    #[test]
    fn the_signal_of_others_is_passed_on() {
        const CHILD: &str = "STEAD_TEST_SIGBUS_CHILD";
        let Some(path) = std::env::var_os(CHILD) else {
            let dir = tempfile::tempdir().unwrap();
            std::fs::write(dir.path().join("f"), vec![7; 100_000]).unwrap();
            let status = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "mapped::tests::the_signal_of_others_is_passed_on"])
                .env(CHILD, dir.path().join("f"))
                .status()
                .unwrap();
            assert_eq!(status.signal(), Some(libc::SIGBUS), "{status}");
            return;
        };
        let f = File::options().read(true).write(true).open(path).unwrap();
        let _ours = Mapping::new(&f, 100_000).unwrap();
        let mut foreign = Mapping::new(&f, 100_000).unwrap();
        // Out of the table, but still mapped.
        foreign.guard = None;
        f.set_len(0).unwrap();
        std::process::exit(i32::from(foreign.bytes(50_000, 1)[0]));
    }
}
