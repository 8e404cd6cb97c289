//! Files that are looked at where the page cache has them.
//!
//! One mapping of a whole file for all queues that read it: address space, not memory. Pages come in by
//! faults, sixteen or more at once, and are let go some MiB at a time ([`Mapping::release`]), so that little
//! more is resident than what is being looked at. That is faster than a mapping for each extent, and than asking for
//! the pages beforehand (MADV_POPULATE_READ). A mapping for each queue would never see the whole of a piece, as queues
//! take extents in turn.

use crate::sigbus::{self, Guard};
use crate::stripe::{self, Apart, STRIPES};
use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::collections::BTreeMap;
use std::fs::File;
use std::mem::MaybeUninit;
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
    looks: Looks,
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

/// When one mapping lets pages go: each time costs a round through the tables of pages and an interrupt on the other cores.
/// All mappings of the process share what these are for one alone, as long as each has a little.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Bytes that were looked at, of which half at least is in pieces of which most was.
    most: usize,
    /// Bytes that were looked at, all of them.
    patience: usize,
    /// Bytes of pieces of which anything was looked at: a look at one byte may have entered all of a piece.
    crowd: usize,
}

/// How a mapping is gone about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looks {
    /// As tasks like.
    Anywhere,
    /// So, and pages are huge where they can be: they are looked at faster.
    Whole,
    /// Queues pass over it and come back to nothing.
    Passing,
}

impl Limits {
    fn now(looks: Looks) -> Limits {
        let live = LIVE.load(Ordering::Relaxed).max(1);
        let part = |all: usize, least: usize, most: usize| (all / live).clamp(least, most);
        let most = match looks {
            Looks::Anywhere => 8 << 20,
            Looks::Whole => 32 << 20,
            Looks::Passing => {
                let all = MOST_PASSED as usize;
                return Limits {
                    most: part(all / 2, 1 << 20, all / 2),
                    patience: part(all / 4 * 3, 2 << 20, all / 4 * 3),
                    crowd: part(all, 2 * PIECE, all),
                };
            }
        };
        Limits {
            most: part(32 << 20, 1 << 20, most),
            patience: part(256 << 20, 8 << 20, 64 << 20),
            crowd: part(MOST_ENTERED, 64 << 20, MOST_ENTERED),
        }
    }
}

/// Bytes of files that queues have looked at and that may still be resident, of a process, as long as it reads no more than a
/// few files at a time. They are the files' own in the page cache.
pub const MOST_PASSED: u64 = 32 << 20;

/// Bytes of pieces that one mapping may have entered. They are the file's own in the page cache.
pub(crate) const MOST_ENTERED: usize = 4 << 30;

/// Mappings that there are now.
static LIVE: AtomicUsize = AtomicUsize::new(0);

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
/// No page is smaller.
const LEAST_PAGE: usize = 4096;
/// A fault enters so much at least that is in the page cache, from one such place to the next.
const FAULT: usize = 64 << 10;
/// Pieces of which less was looked at stay longer: whoever goes about a file in no order comes back to them.
const MOST_OF_A_PIECE: usize = PIECE / 8 * 7;

/// Bytes that a thread has looked at, in pieces: small ones are told to all a few at a time.
#[derive(Debug, Default)]
struct JustSeen {
    bytes: usize,
    pieces: Vec<(usize, usize)>,
}

/// So many bytes or pieces are told at once.
const TOLD_BYTES: usize = 1 << 20;
const TOLD_PIECES: usize = 32;

impl JustSeen {
    /// Takes note of bytes. True if it is time to tell.
    fn add(&mut self, from: usize, to: usize) -> bool {
        for piece in from / PIECE..to.div_ceil(PIECE) {
            let part = to.min((piece + 1) * PIECE) - from.max(piece * PIECE);
            self.bytes += part;
            match self.pieces.last_mut() {
                Some((last, bytes)) if *last == piece => *bytes += part,
                _ => self.pieces.push((piece, part)),
            }
        }
        self.bytes >= TOLD_BYTES || self.pieces.len() >= TOLD_PIECES
    }

    /// Tells of all.
    fn tell(&mut self, seen: &mut Seen) {
        self.pieces.drain(..).for_each(|(piece, bytes)| seen.add(piece, bytes));
        self.bytes = 0;
    }
}

impl Seen {
    /// Takes note of bytes of a piece; of none if it was entered for others, who may never look at it.
    fn add(&mut self, piece: usize, bytes: usize) {
        let seen = self.pieces.entry(piece).or_insert(0);
        let before = if *seen < MOST_OF_A_PIECE { 0 } else { *seen };
        *seen += bytes;
        let after = if *seen < MOST_OF_A_PIECE { 0 } else { *seen };
        self.ripe += after - before;
        self.bytes += bytes;
    }

    /// Gives ranges of pieces that may go now, if these are enough.
    fn due(&mut self, limits: Limits) -> Vec<Range<usize>> {
        let enough = self.bytes >= limits.most && self.ripe >= limits.most / 2;
        let all = self.bytes >= limits.patience || self.pieces.len() * PIECE > limits.crowd;
        if !enough && !all {
            return Vec::new();
        }
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
        Some(Mapping {
            start,
            len,
            looks: Looks::Anywhere,
            seen: Mutex::default(),
            just_seen,
            guard: Some(guard),
        })
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
    pub(crate) fn read_whole_pieces(&mut self) -> bool {
        if rustix::param::page_size() != 4096 || self.len < PIECE {
            return false;
        }
        let (start, len) = (self.start, self.len);
        let advise = |advice| {
            // SAFETY: within the mapping, which stays as it is; only how pages are read changes.
            unsafe { rustix::mm::madvise(start.cast_mut().cast(), len, advice).is_ok() }
        };
        let whole = advise(Advice::LinuxHugepage) && advise(Advice::Random);
        if whole {
            self.looks = Looks::Whole;
        }
        whole
    }

    /// As it is for queues, which pass over a file.
    pub(crate) fn of_queues(mut self) -> Mapping {
        self.looks = Looks::Passing;
        self
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

    /// True for each page of a piece that has come into the page cache, as [`Mapping::holds`].
    fn pages(&self, from: usize, len: usize) -> [bool; PIECE / LEAST_PAGE] {
        let mut there = [0u8; PIECE / LEAST_PAGE];
        if from.checked_add(len).is_some_and(|end| end <= self.len) && len <= PIECE {
            // SAFETY: whole pages within the mapping, for each of which one byte is written; there are no more than `there` has.
            let done = unsafe {
                libc::mincore(self.start.add(from).cast_mut().cast(), len, there.as_mut_ptr())
            };
            if done != 0 {
                there.fill(0);
            }
        }
        there.map(|page| page & 1 == 1)
    }

    /// Looks at bytes of a piece here and there, so that others find them entered: its first byte, which is there, and those
    /// of others that are, as a fault in what the device keeps takes as long as it likes. `there` says of which, where the
    /// system does not. False, with little done, if it lies in small pages, each of which would have to be entered by itself.
    pub(crate) fn enter(
        &self,
        piece: usize,
        len: usize,
        there: Option<&dyn Fn(usize) -> bool>,
    ) -> bool {
        let from = piece * PIECE;
        let end = from.saturating_add(len);
        let before = faults();
        std::hint::black_box(self.bytes(from, 1).first().copied());
        // Of a huge page that is entered by now all this takes no time.
        let pages =
            if there.is_none() { self.pages(from, len) } else { [false; PIECE / LEAST_PAGE] };
        let page = rustix::param::page_size();
        let is_there = |at: usize| match there {
            Some(there) => there(at),
            None => pages.get((at - from) / page).is_some_and(|there| *there),
        };
        let look = |at: usize| {
            if is_there(at) {
                std::hint::black_box(self.bytes(at, 1).first().copied());
            }
        };
        look(from + len / 2);
        let entered = faults() - before < 2 || len < 2 * FAULT;
        if entered {
            // The last one as well: mappings of some file systems do not begin where such places do.
            for at in (from..end).step_by(FAULT).skip(1).chain((from < end).then(|| end - 1)) {
                look(at);
            }
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.add(piece, 0);
        let gone = seen.due(Limits::now(self.looks));
        drop(seen);
        self.take_out(gone);
        entered
    }

    /// Says that these bytes were looked at. Their pages are let go when there are enough of them; they come again if
    /// somebody looks at them.
    pub(crate) fn release(&self, offset: usize, len: usize) {
        let from = offset.min(self.len);
        let to = offset.saturating_add(len).min(self.len);
        let mut just =
            self.just_seen[stripe::mine()].0.lock().unwrap_or_else(PoisonError::into_inner);
        if !just.add(from, to) {
            return;
        }
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        just.tell(&mut seen);
        drop(just);
        let gone = seen.due(Limits::now(self.looks));
        drop(seen);
        self.take_out(gone);
    }

    /// Takes ranges of pieces out of the mapping, not out of the page cache.
    fn take_out(&self, gone: Vec<Range<usize>>) {
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

/// Faults of this thread so far for which nothing was read; zero where the system does not tell.
fn faults() -> libc::c_long {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the target is large enough, and zeros are a valid `rusage`.
    unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init().ru_minflt
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
    use std::os::unix::fs::FileExt;
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
        m.release(10, 8 << 20);
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

    const LIMITS: Limits = Limits { most: 2 * PIECE, patience: 16 * PIECE, crowd: 64 * PIECE };

    #[test]
    fn pieces_go_when_they_were_seen_and_the_rest_with_patience() {
        let mut seen = Seen::default();
        let add = |seen: &mut Seen, piece, bytes| {
            seen.add(piece, bytes);
            seen.due(LIMITS)
        };
        assert_eq!(add(&mut seen, 0, PIECE), []);
        assert_eq!(add(&mut seen, 5, 100), []);
        // Two whole ones go, side by side; the small part stays.
        assert_eq!(add(&mut seen, 1, PIECE), vec![Range { start: 0, end: 2 }]);
        assert_eq!((seen.bytes, seen.pieces.len()), (100, 1));
        for i in 0..31 {
            assert_eq!(add(&mut seen, 2 * i, PIECE / 2), [], "{i}");
        }
        // Piece 5 goes together with its neighbours.
        let gone = add(&mut seen, 62, PIECE / 2);
        assert_eq!((gone.len(), gone.iter().map(|r| r.end - r.start).sum::<usize>()), (31, 33));
        assert_eq!((seen.bytes, seen.pieces.len()), (0, 0));
        assert_eq!(add(&mut seen, 7, 0), []);
    }

    #[test]
    fn pieces_of_which_little_was_looked_at_or_nothing_go_when_they_are_many() {
        let mut seen = Seen::default();
        for i in 0..64 {
            seen.add(2 * i, i % 2 * 48);
            assert_eq!(seen.due(LIMITS), [], "{i}");
        }
        seen.add(1, 0);
        let gone = seen.due(LIMITS);
        assert_eq!((gone.len(), seen.pieces.len(), seen.bytes), (63, 0, 0));
    }

    #[test]
    fn what_is_touched_is_there_before_it_is_looked_at() {
        let (_dir, f) = file(4 << 20);
        let mut m = Mapping::new(&f, 4 << 20).unwrap();
        m.read_whole_pieces();
        assert!(m.holds(0) && m.holds((4 << 20) - 1) && !m.holds(4 << 20));
        // In small pages it is not, and nothing more is said of it.
        if !(0..2).all(|piece| m.enter(piece, PIECE, None)) {
            return;
        }
        let (before, sum) =
            (faults(), m.bytes(0, 4 << 20).iter().map(|b| u64::from(*b)).sum::<u64>());
        assert_eq!((faults() - before, sum), (0, 7 << 22));
    }

    #[test]
    fn what_is_not_there_is_not_waited_for_to_enter_the_rest() {
        let (_dir, f) = file(4 << 20);
        let m = Mapping::new(&f, 4 << 20).unwrap();
        f.sync_all().unwrap();
        crate::evict(&f);
        // Files of a memory file system stay, and not every system tells.
        let resident = |at: usize| crate::cache::resident(&f, at as u64);
        if resident(0) == Some(false) {
            // The system reads on a little.
            f.read_exact_at(&mut [0], 0).unwrap();
            m.enter(0, PIECE, None);
            assert_eq!(resident(0), Some(true));
            let far = || (PIECE / 2..PIECE).step_by(FAULT);
            assert!(far().all(|at| resident(at) == Some(false)));
        }
    }

    #[test]
    fn small_parts_are_told_together() {
        let (mut just, mut seen) = (JustSeen::default(), Seen::default());
        assert!(!just.add(0, 100) && !just.add(100, 200) && !just.add(PIECE - 50, PIECE + 50));
        assert!(just.add(PIECE + 50, PIECE + TOLD_BYTES));
        just.tell(&mut seen);
        assert_eq!((just.bytes, just.pieces.len()), (0, 0));
        let told: Vec<_> = seen.pieces.into_iter().collect();
        assert_eq!(told, [(0, 250), (1, TOLD_BYTES)]);
        let full = (0..TOLD_PIECES).position(|i| just.add(2 * i * PIECE, 2 * i * PIECE + 1));
        assert_eq!(full, Some(TOLD_PIECES - 1));
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
