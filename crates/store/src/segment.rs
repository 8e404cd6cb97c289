//! Memory that processes of one machine share: what one of them has read, others look at where it lies.
//!
//! A [`Segment`] is anonymous memory with a descriptor (`memfd_create`), cut into slots of one block. Its owner reads
//! into slots; a neighbour, told by an [`Announcement`] what to look for, opens the same memory through
//! `/proc/PID/fd/N` and maps it read-only ([`Neighbour`]). There is no name in any file system, so that nothing is left
//! when processes are killed, and `/dev/shm`, which is small in many containers, is not needed.
//!
//! No signal can come of looking: the segment is sealed against shrinking, and a slot has its pages before it is used. It
//! gives them back when it is dropped, unless it was [retired](Segment::retire): then somebody may still look at it, and
//! its bytes stay as they are until the last process has let the segment go.

use crate::process;
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags};
use rustix::process::Pid;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

/// The first page holds the token; slots begin after it.
const PAGE: usize = 4096;
const NAME: &str = "stead";
/// A system call that a signal came in between is made again so often.
const AGAIN: usize = 64;

type Token = [u8; 16];

/// What its owner says of a segment to processes that want to look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Announcement {
    process: u32,
    descriptor: u32,
    len: u64,
    token: Token,
}

impl Announcement {
    /// Bytes of [`Announcement::encode`].
    pub const BYTES: usize = 32;

    /// For a message.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut out = [0; Self::BYTES];
        out[..4].copy_from_slice(&self.process.to_le_bytes());
        out[4..8].copy_from_slice(&self.descriptor.to_le_bytes());
        out[8..16].copy_from_slice(&self.len.to_le_bytes());
        out[16..].copy_from_slice(&self.token);
        out
    }

    /// What was encoded; `None` if it has another length.
    pub fn decode(bytes: &[u8]) -> Option<Announcement> {
        let (process, rest) = bytes.split_first_chunk()?;
        let (descriptor, rest) = rest.split_first_chunk()?;
        let (len, rest) = rest.split_first_chunk()?;
        Some(Announcement {
            process: u32::from_le_bytes(*process),
            descriptor: u32::from_le_bytes(*descriptor),
            len: u64::from_le_bytes(*len),
            token: rest.try_into().ok()?,
        })
    }
}

/// A mapping of the memory behind a descriptor, as a whole.
pub(crate) struct Map {
    start: *mut u8,
    len: usize,
}

// SAFETY: it is an address and a length; what may be done there is up to who has it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    pub(crate) fn new(file: impl AsFd, len: usize, protection: ProtFlags) -> io::Result<Map> {
        // SAFETY: a new mapping where there is none.
        let start = unsafe {
            rustix::mm::mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)
        }?;
        Ok(Map { start: start.cast(), len })
    }

    /// Bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Where it begins, with a page.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// Its bytes, which others who map the same may change, as those of a mapped file.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: the whole mapping, which lives as long; memory of a descriptor is always initialised.
        unsafe { std::slice::from_raw_parts(self.start, self.len) }
    }

    /// The same of one that was mapped to be written.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above; the borrow is exclusive in this process.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: made in `new`; whoever has slices of it keeps it alive.
        let _ = unsafe { rustix::mm::munmap(self.start.cast(), self.len) };
    }
}

/// See the module's documentation.
pub struct Segment {
    map: Map,
    file: OwnedFd,
    /// Bytes of a slot, a multiple of [`PAGE`].
    slot: usize,
    token: Token,
    /// Its owner: a process that was forked must not give away what its parent uses.
    process: u32,
    slots: Mutex<Slots>,
}

struct Slots {
    free: Vec<usize>,
    retired: Vec<bool>,
    /// Slots that were in use at a time, at most.
    most: usize,
}

impl std::fmt::Debug for Segment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Segment({} bytes)", self.map.len)
    }
}

impl Segment {
    /// Room for `count` slots of `slot` bytes (rounded up to pages), none of which takes memory before it is used. Without
    /// slots it only says which process this is.
    ///
    /// # Errors
    /// Where the system has no such memory, or less of it may be had.
    pub fn new(slot: usize, count: usize) -> io::Result<Arc<Segment>> {
        let too_large = || io::Error::from(io::ErrorKind::FileTooLarge);
        let slot = slot.checked_next_multiple_of(PAGE).ok_or_else(too_large)?;
        let len =
            slot.checked_mul(count).and_then(|n| n.checked_add(PAGE)).ok_or_else(too_large)?;
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if isize::try_from(len).is_err() || most.is_some_and(|most| (len as u64) > most) {
            // A larger file than the process may have raises a signal.
            return Err(too_large());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(NAME, flags)?;
        rustix::fs::ftruncate(&file, len as u64)?;
        rustix::fs::fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
        let map = Map::new(&file, len, ProtFlags::READ | ProtFlags::WRITE)?;
        let mut token = Token::default();
        for half in token.chunks_mut(8) {
            half.copy_from_slice(&process::token().to_le_bytes());
        }
        rustix::io::pwrite(&file, &token, 0)?;
        let slots =
            Slots { free: (0..count).rev().collect(), retired: vec![false; count], most: 0 };
        let slots = Mutex::new(slots);
        Ok(Arc::new(Segment { map, file, slot, token, process: std::process::id(), slots }))
    }

    /// What others need to know.
    pub fn announcement(&self) -> Announcement {
        Announcement {
            process: self.process,
            descriptor: self.file.as_raw_fd().unsigned_abs(),
            len: self.map.len as u64,
            token: self.token,
        }
    }

    /// Where in the segment these bytes lie; `None` if they lie elsewhere.
    pub fn offset_of(&self, bytes: &[u8]) -> Option<u64> {
        let at = bytes.as_ptr().addr().checked_sub(self.map.start.addr())?;
        let end = at.checked_add(bytes.len())?;
        (at >= PAGE && end <= self.map.len).then_some(at as u64)
    }

    /// Slots that were in use at a time so far, at most: those that were retired, too.
    pub fn most_in_use(&self) -> usize {
        self.lock().most
    }

    /// The slot at this offset is never used for other bytes: somebody looks at it of whom nothing will be heard any more.
    pub fn retire(&self, offset: u64) {
        let at = usize::try_from(offset).unwrap_or(0);
        if let Some(index) = at.checked_sub(PAGE).and_then(|at| at.checked_div(self.slot))
            && let Some(retired) = self.lock().retired.get_mut(index)
        {
            *retired = true;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A slot, with memory; `None` if there is none.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Slot> {
        let mut slots = self.lock();
        let index = slots.free.pop()?;
        slots.most = slots.most.max(slots.retired.len() - slots.free.len());
        drop(slots);
        // From here on it is given back when it is dropped.
        let slot = Slot { segment: self.clone(), index };
        self.fill(index).then_some(slot)
    }

    fn at(&self, index: usize) -> usize {
        PAGE + index * self.slot
    }

    /// Gives a slot its pages. False if there is no memory.
    fn fill(&self, index: usize) -> bool {
        let at = self.at(index);
        for _ in 0..AGAIN {
            // SAFETY: within the mapping; the pages of a slot that nobody uses.
            let filled = unsafe {
                let start = self.map.start.add(at).cast();
                rustix::mm::madvise(start, self.slot, Advice::LinuxPopulateWrite)
            };
            match filled {
                Ok(()) => return true,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => break,
            }
        }
        // Before Linux 5.14.
        for _ in 0..AGAIN {
            let (at, len) = (at as u64, self.slot as u64);
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at, len) {
                Ok(()) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        false
    }

    fn give_back(&self, index: usize) {
        if std::process::id() != self.process {
            return;
        }
        let retired = self.is_retired(index);
        if !retired {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // What is not given back now is when the segment goes.
            let _ =
                rustix::fs::fallocate(&self.file, flags, self.at(index) as u64, self.slot as u64);
            self.lock().free.push(index);
        }
    }

    fn is_retired(&self, index: usize) -> bool {
        self.lock().retired.get(index).copied().unwrap_or(true)
    }
}

/// Memory for one block.
pub(crate) struct Slot {
    segment: Arc<Segment>,
    index: usize,
}

impl Slot {
    pub(crate) fn as_slice(&self) -> &[u8] {
        let Segment { map, slot, .. } = &*self.segment;
        // SAFETY: within the mapping, which lives as long as the slot; only who has the slot writes there, and memory of a
        // descriptor is always initialised.
        unsafe { std::slice::from_raw_parts(map.start.add(self.segment.at(self.index)), *slot) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        let Segment { map, slot, .. } = &*self.segment;
        // SAFETY: as above; the borrow is exclusive, and each slot is given out once.
        unsafe { std::slice::from_raw_parts_mut(map.start.add(self.segment.at(self.index)), *slot) }
    }

    /// True if it must not be read into again.
    pub(crate) fn is_retired(&self) -> bool {
        self.segment.is_retired(self.index)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.segment.give_back(self.index);
    }
}

/// The segment of another process (or of this one), to be looked at.
pub struct Neighbour {
    map: Map,
    process: Pid,
    /// Readable when the process has ended. `None` on kernels before 5.3.
    life: Option<Arc<OwnedFd>>,
}

/// Descriptors of processes whose memory is looked at: one of each, however many files are open.
static LIVES: Mutex<Lives> = Mutex::new(Vec::new());

type Lives = Vec<(Pid, Weak<OwnedFd>)>;

/// That of a process; `None` on kernels before 5.3.
fn life(of: Pid) -> Option<Arc<OwnedFd>> {
    let mut lives = LIVES.lock().unwrap_or_else(PoisonError::into_inner);
    lives.retain(|(_, life)| life.strong_count() > 0);
    let known = lives.iter().find(|(process, _)| *process == of);
    // A process that has ended may have left its number to this one.
    if let Some(life) = known.and_then(|(_, life)| life.upgrade()).filter(|life| !is_over(life)) {
        return Some(life);
    }
    let life = rustix::process::pidfd_open(of, rustix::process::PidfdFlags::empty()).ok()?;
    let life = Arc::new(life);
    lives.retain(|(process, _)| *process != of);
    lives.push((of, Arc::downgrade(&life)));
    Some(life)
}

/// True if a process has ended, by its descriptor.
fn is_over(life: &OwnedFd) -> bool {
    let mut waiting = [PollFd::new(life, PollFlags::IN)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    let polled = rustix::event::poll(&mut waiting, Some(&now));
    // A program may close descriptors that it does not know; what has the number then says nothing.
    let odd = PollFlags::NVAL | PollFlags::ERR;
    polled == Ok(1) && !waiting[0].revents().intersects(odd)
}

impl std::fmt::Debug for Neighbour {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Neighbour({}, {} bytes)", self.process.as_raw_nonzero(), self.map.len)
    }
}

impl Neighbour {
    /// Maps what was announced. Whatever else has that number by now, or in this namespace, is told from it by its token.
    ///
    /// # Errors
    /// Where it cannot be had: another machine, user or namespace of processes, or no `/proc`.
    pub fn open(said: &Announcement) -> io::Result<Neighbour> {
        let odd = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what);
        let process = i32::try_from(said.process).ok().and_then(Pid::from_raw);
        let process = process.ok_or_else(|| odd("there is no such process"))?;
        // Before its memory is looked at, so that the token vouches for it.
        let life = life(process);
        let name = format!("/proc/{}/fd/{}", said.process, said.descriptor);
        let link = rustix::fs::readlink(&name, Vec::new())?;
        if !link.as_bytes().starts_with(format!("/memfd:{NAME}").as_bytes()) {
            return Err(odd("it is no memory of stead"));
        }
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(name, flags, Mode::empty())?;
        let there = u64::try_from(rustix::fs::fstat(&file)?.st_size).unwrap_or(0);
        let len = usize::try_from(said.len).map_err(|_| odd("it is too long"))?;
        if len < PAGE || there < said.len {
            return Err(odd("it has another length"));
        }
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SealFlags::SHRINK) {
            return Err(odd("it may become shorter"));
        }
        let mut token = Token::default();
        if rustix::io::pread(&file, &mut token, 0)? != token.len() || token != said.token {
            return Err(odd("it is another segment"));
        }
        Ok(Neighbour { map: Map::new(&file, len, ProtFlags::READ)?, process, life })
    }

    /// Bytes of the segment; `None` if they are not all in it. The owner may change them unless it has promised not to.
    pub fn bytes(&self, offset: u64, len: usize) -> Option<&[u8]> {
        let at = usize::try_from(offset).ok()?;
        let end = at.checked_add(len)?;
        if at < PAGE || end > self.map.len {
            return None;
        }
        // SAFETY: within the mapping, which outlives the borrow. It is sealed, so that it does not become shorter; its
        // bytes may change as those of a mapped file may.
        Some(unsafe { std::slice::from_raw_parts(self.map.start.add(at), len) })
    }

    /// Enters bytes into the page tables at once, in place of a fault for each few of them. Only a hint.
    pub fn populate(&self, offset: u64, len: usize) {
        let Some(bytes) = self.bytes(offset, len) else { return };
        let within = bytes.as_ptr().addr() % PAGE;
        let start = bytes.as_ptr().wrapping_sub(within).cast_mut().cast();
        // SAFETY: whole pages of the mapping, looked at as a read of each would.
        let _ = unsafe { rustix::mm::madvise(start, len + within, Advice::LinuxPopulateRead) };
    }

    /// True if the process is known to have ended, so that nobody there looks at anything.
    pub fn has_ended(&self) -> bool {
        let Some(life) = &self.life else { return self.is_not_there() };
        is_over(life) && self.is_not_there()
    }

    /// No process has the number, or one that nobody has waited for since it ended.
    fn is_not_there(&self) -> bool {
        let gone = rustix::process::test_kill_process(self.process) == Err(Errno::SRCH);
        gone || {
            let name = format!("/proc/{}/stat", self.process.as_raw_nonzero());
            let stat = std::fs::read_to_string(name).unwrap_or_default();
            // The state comes after the name, which is in brackets and may be anything.
            let state = stat.rsplit_once(") ").map(|(_, rest)| rest.as_bytes());
            matches!(state, Some([b'Z' | b'X', ..]))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(segment: &Segment) -> u64 {
        u64::try_from(rustix::fs::fstat(&segment.file).unwrap().st_blocks).unwrap() * 512
    }

    #[test]
    fn neighbours_see_what_is_in_slots() {
        let segment = Segment::new(10_000, 3).unwrap();
        let said = Announcement::decode(&segment.announcement().encode()).unwrap();
        assert_eq!(said, segment.announcement());
        let neighbour = Neighbour::open(&said).unwrap();
        let mut slot = segment.take().unwrap();
        assert_eq!(slot.as_slice().len(), 12_288);
        slot.as_mut_slice()[77..80].copy_from_slice(b"abc");
        let at = segment.offset_of(&slot.as_slice()[77..80]).unwrap();
        neighbour.populate(at, 3);
        assert_eq!(neighbour.bytes(at, 3).unwrap(), b"abc");
        // Not before the slots, not beyond the end, whatever is asked for.
        let end = said.len;
        for (at, len) in
            [(0, 1), (4095, 1), (end, 1), (end - 1, 2), (u64::MAX, 1), (5000, usize::MAX)]
        {
            assert!(neighbour.bytes(at, len).is_none(), "{at} {len}");
        }
        assert!(neighbour.bytes(end - 1, 1).is_some());
        assert_eq!(segment.offset_of(b"elsewhere"), None);
        // It stays when its owner is gone.
        drop((slot, segment.take(), segment));
        assert_eq!(neighbour.bytes(at, 3).unwrap().len(), 3);
        assert!(!neighbour.has_ended());
    }

    #[test]
    fn slots_are_given_out_once_and_take_memory_only_then() {
        let segment = Segment::new(1 << 20, 4).unwrap();
        let before = used(&segment);
        let slots: Vec<Slot> = std::iter::from_fn(|| segment.take()).collect();
        assert_eq!(slots.len(), 4);
        assert_eq!((used(&segment) - before, segment.most_in_use()), (4 << 20, 4));
        let mut starts: Vec<_> = slots.iter().map(|s| s.as_slice().as_ptr().addr()).collect();
        starts.sort_unstable();
        assert!(starts.windows(2).all(|w| w[1] - w[0] == 1 << 20));
        drop(slots);
        assert_eq!(used(&segment), before);
        assert!(segment.take().unwrap().as_slice().iter().all(|b| *b == 0));
    }

    #[test]
    fn a_retired_slot_keeps_its_bytes() {
        let segment = Segment::new(PAGE, 2).unwrap();
        let neighbour = Neighbour::open(&segment.announcement()).unwrap();
        let mut slot = segment.take().unwrap();
        slot.as_mut_slice().fill(7);
        let at = segment.offset_of(slot.as_slice()).unwrap();
        segment.retire(at + 100);
        // Elsewhere there is nothing to retire.
        segment.retire(0);
        segment.retire(u64::MAX);
        assert!(slot.is_retired());
        drop(slot);
        let others: Vec<Slot> = std::iter::from_fn(|| segment.take()).collect();
        assert_eq!(others.len(), 1);
        drop((others, segment));
        assert!(neighbour.bytes(at, PAGE).unwrap().iter().all(|b| *b == 7));
    }

    #[test]
    fn what_is_not_as_announced_is_refused() {
        let segment = Segment::new(PAGE, 2).unwrap();
        let said = segment.announcement();
        let mut token = said.token;
        token[3] ^= 1;
        let null = std::fs::File::open("/dev/null").unwrap();
        let wrong = [
            Announcement { token, ..said },
            Announcement { len: said.len + 1, ..said },
            Announcement { len: 0, ..said },
            Announcement { process: 0, ..said },
            Announcement { process: u32::MAX, ..said },
            Announcement { process: i32::MAX.unsigned_abs(), ..said },
            Announcement { descriptor: null.as_raw_fd().unsigned_abs(), ..said },
            Announcement { descriptor: u32::MAX, ..said },
        ];
        for said in wrong {
            assert!(Neighbour::open(&said).is_err(), "{said:?}");
        }
        assert!(Neighbour::open(&said).is_ok());
        assert!(
            Announcement::decode(&[0; 31]).is_none() && Announcement::decode(&[0; 33]).is_none()
        );
        assert!(Segment::new(usize::MAX, 1).is_err() && Segment::new(1 << 40, 1 << 40).is_err());
        assert!(rustix::fs::ftruncate(&segment.file, 0).is_err(), "sealed");
    }

    #[test]
    fn a_process_that_has_ended_is_known() {
        let mut child = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let process = Pid::from_child(&child);
        let segment = Segment::new(PAGE, 0).unwrap();
        assert!(segment.take().is_none());
        let mut neighbour = Neighbour::open(&segment.announcement()).unwrap();
        neighbour.life = life(process);
        neighbour.process = process;
        assert!(!neighbour.has_ended());
        // One descriptor for all files.
        let again = life(process).unwrap();
        assert!(Arc::ptr_eq(&again, neighbour.life.as_ref().unwrap()));
        child.kill().unwrap();
        // Also before somebody has waited for it.
        let until = [PollFlags::IN];
        let mut waiting = [PollFd::new(&again, until[0])];
        rustix::event::poll(&mut waiting, None).unwrap();
        assert!(neighbour.has_ended());
        // It is not taken for that of another process which has its number.
        assert!(life(process).is_none_or(|life| !Arc::ptr_eq(&life, &again)));
        child.wait().unwrap();
        assert!(neighbour.has_ended());
        // Without a descriptor for it.
        neighbour.life = None;
        assert!(neighbour.has_ended());
        // A descriptor that is readable, of a process that lives.
        neighbour.life = Some(Arc::new(std::fs::File::open("/dev/null").unwrap().into()));
        neighbour.process = rustix::process::getpid();
        assert!(!neighbour.has_ended());
    }
}
