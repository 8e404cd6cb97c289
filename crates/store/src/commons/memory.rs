//! The memory of a commons: a sealed descriptor, mapped as a whole.

use super::table::{self, KEY, Table};
use crate::segment::Map;
use rustix::fs::{FallocateFlags, MemfdFlags, Mode, OFlags, SealFlags};
use rustix::io::Errno;
use rustix::mm::{Advice, ProtFlags};
use std::io::{self, BufRead, BufReader};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64};

const PAGE: usize = 4096;
const NAME: &str = "stead-commons";
/// A system call that a signal came in between is made again so often.
const AGAIN: usize = 64;

/// What is to be where. All processes compute the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes of a slot, a multiple of [`PAGE`].
    pub(super) slot: usize,
    pub(super) slots: usize,
    words: usize,
    flags: usize,
    /// Where slots begin.
    blocks: usize,
    len: usize,
}

impl Layout {
    /// `None` if there is no memory so large.
    pub(super) fn new(slot: usize, slots: usize) -> Option<Layout> {
        let (words, flags) = table::sizes(slots)?;
        let table = words.checked_mul(8)?.checked_add(flags.checked_mul(4)?)?;
        let blocks = table.checked_next_multiple_of(PAGE)?;
        let len = slot.checked_mul(slots)?.checked_add(blocks)?;
        let fits = slot > 0 && slot.is_multiple_of(PAGE) && isize::try_from(len).is_ok();
        fits.then_some(Layout { slot, slots, words, flags, blocks, len })
    }
}

/// False if this memory is known not to be among what a process has mapped, as `/proc/PID/maps` tells it.
pub(super) fn has_map(mut maps: impl BufRead, inode: u64) -> bool {
    let (inode, name) = (inode.to_string(), format!("/memfd:{NAME}"));
    let (mut line, mut any) = (Vec::new(), false);
    loop {
        line.clear();
        match maps.read_until(b'\n', &mut line) {
            // One whose first thread has ended has none to be told of.
            Ok(0) => return !any,
            Ok(_) => any = true,
            // Of a process that is gone by now all reads fail, and who asks next whether it lives is told so.
            Err(_) => return true,
        }
        // Addresses, rights, offset, device, inode, name.
        let fields = line.split(u8::is_ascii_whitespace).filter(|field| !field.is_empty());
        let mut fields = fields.skip(4);
        if fields.next() == Some(inode.as_bytes())
            && fields.next().is_some_and(|n| n.starts_with(name.as_bytes()))
        {
            return true;
        }
    }
}

/// See the module's documentation.
pub(super) struct Memory {
    map: Map,
    file: OwnedFd,
    /// Which file of memory it is.
    inode: u64,
    layout: Layout,
}

fn odd(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

const SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW).union(SealFlags::SEAL);

impl Memory {
    /// New memory, in which nothing is ready.
    pub(super) fn new(layout: Layout, key: &[u64; KEY]) -> io::Result<Memory> {
        let len = layout.len as u64;
        let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
        if most.is_some_and(|most| len > most) {
            // A larger file than the process may have raises a signal.
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = rustix::fs::memfd_create(NAME, flags)?;
        rustix::fs::ftruncate(&file, len)?;
        rustix::fs::fcntl_add_seals(&file, SEALS)?;
        let memory = Memory::map(file, layout)?;
        memory.table()?.found(layout.slot as u64, key);
        Ok(memory)
    }

    /// That of another process, if it is what is looked for.
    pub(super) fn open(
        process: u32,
        descriptor: u32,
        layout: Layout,
        key: &[u64; KEY],
    ) -> io::Result<Memory> {
        let name = format!("/proc/{process}/fd/{descriptor}");
        let link = rustix::fs::readlink(&name, Vec::new())?;
        if !link.as_bytes().starts_with(format!("/memfd:{NAME}").as_bytes()) {
            return Err(odd("it is no memory of stead"));
        }
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = rustix::fs::open(name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(odd("it is another user's"));
        }
        if u64::try_from(stat.st_size) != Ok(layout.len as u64) {
            return Err(odd("it has another length"));
        }
        if !rustix::fs::fcntl_get_seals(&file)?.contains(SEALS) {
            return Err(odd("its length may change"));
        }
        let memory = Memory::map(file, layout)?;
        if !memory.table()?.is(layout.slot as u64, key) {
            return Err(odd("it is of something else"));
        }
        Ok(memory)
    }

    fn map(file: OwnedFd, layout: Layout) -> io::Result<Memory> {
        let map = Map::new(&file, layout.len, ProtFlags::READ | ProtFlags::WRITE)?;
        let inode = rustix::fs::fstat(&file)?.st_ino;
        let memory = Memory { map, file, inode, layout };
        if !memory.fill(0, layout.blocks) {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        Ok(memory)
    }

    pub(super) fn layout(&self) -> Layout {
        self.layout
    }

    /// Names it as long as somebody has it.
    pub(super) fn inode(&self) -> u64 {
        self.inode
    }

    pub(super) fn descriptor(&self) -> u32 {
        self.file.as_raw_fd().unsigned_abs()
    }

    /// False if a process that lives is known not to have this memory: it runs another program by now.
    pub(super) fn is_had_by(&self, process: u64) -> bool {
        if process == u64::from(std::process::id()) {
            return true;
        }
        let Ok(maps) = std::fs::File::open(format!("/proc/{process}/maps")) else { return true };
        has_map(BufReader::new(maps), self.inode)
    }

    pub(super) fn table(&self) -> io::Result<Table<'_>> {
        let Layout { words, flags, slots, .. } = self.layout;
        let start = self.map.start();
        // SAFETY: within the mapping, which is as long as the layout says, cannot become shorter, and lives as long as
        // `self`; aligned, as the mapping begins with a page. Other processes change it too, and all do so as atomics.
        let words: &[AtomicU64] = unsafe { std::slice::from_raw_parts(start.cast(), words) };
        // SAFETY: as above; the flags follow the words.
        let flags: &[AtomicU32] =
            unsafe { std::slice::from_raw_parts(start.add(words.len() * 8).cast(), flags) };
        Table::new(words, flags, slots).ok_or_else(|| odd("its table has another size"))
    }

    fn at(&self, slot: usize) -> Option<usize> {
        let Layout { slot: size, slots, blocks, .. } = self.layout;
        (slot < slots).then(|| blocks + slot * size)
    }

    /// The bytes of a slot, for who refers to it.
    pub(super) fn bytes(&self, slot: usize) -> &[u8] {
        let Some(at) = self.at(slot) else { return &[] };
        // SAFETY: within the mapping, which outlives the borrow and is sealed, so that it does not become shorter; its bytes
        // stay as they are while somebody refers to the slot, or change as those of a mapped file may if a process of the
        // same user does not keep to that.
        unsafe { std::slice::from_raw_parts(self.map.start().add(at), self.layout.slot) }
    }

    /// The bytes of a slot, for who has claimed it.
    ///
    /// # Safety
    /// Nobody in this process may have another slice of it meanwhile.
    #[allow(clippy::mut_from_ref)]
    pub(super) unsafe fn bytes_mut(&self, slot: usize) -> &mut [u8] {
        let Some(at) = self.at(slot) else { return &mut [] };
        // SAFETY: within the mapping, as above; that it is the only slice, the caller says.
        unsafe { std::slice::from_raw_parts_mut(self.map.start().add(at), self.layout.slot) }
    }

    /// Gives a claimed slot its pages, so that no signal comes of using them. False if there is no memory.
    pub(super) fn fill_slot(&self, slot: usize) -> bool {
        self.at(slot).is_some_and(|at| self.fill(at, self.layout.slot))
    }

    fn fill(&self, at: usize, len: usize) -> bool {
        for _ in 0..AGAIN {
            // SAFETY: within the mapping, as the callers see to; it changes no byte.
            let filled = unsafe {
                let start = self.map.start().add(at).cast();
                rustix::mm::madvise(start, len, Advice::LinuxPopulateWrite)
            };
            match filled {
                Ok(()) => return true,
                Err(Errno::INTR | Errno::AGAIN) => {}
                Err(_) => break,
            }
        }
        // Before Linux 5.14.
        for _ in 0..AGAIN {
            match rustix::fs::fallocate(&self.file, FallocateFlags::empty(), at as u64, len as u64)
            {
                Ok(()) => return true,
                Err(Errno::INTR) => {}
                Err(_) => return false,
            }
        }
        false
    }

    /// Enters a slot into the page tables at once, in place of a fault for each few pages of it. Only a hint.
    pub(super) fn prepare(&self, slot: usize) {
        let Some(at) = self.at(slot) else { return };
        // SAFETY: whole pages of the mapping, looked at as a read of each would.
        let _ = unsafe {
            let start = self.map.start().add(at).cast();
            rustix::mm::madvise(start, self.layout.slot, Advice::LinuxPopulateRead)
        };
    }

    /// Takes the memory of a claimed slot away. What the system still writes there, for a process that has ended, goes
    /// nowhere: the pages are no longer those of the slot.
    pub(super) fn empty(&self, slot: usize) -> bool {
        let Some(at) = self.at(slot) else { return false };
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        (0..AGAIN).any(|_| {
            rustix::fs::fallocate(&self.file, flags, at as u64, self.layout.slot as u64).is_ok()
        })
    }
}
