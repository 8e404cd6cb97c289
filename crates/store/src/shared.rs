//! What is done with mappings of files in memory that processes share, beside looking at their bytes: words that are changed as
//! atomics, pages that are there before they are used, and hints.

use crate::segment::Map;
use crate::{Folder, Meta, What};
use rustix::fs::FallocateFlags;
use rustix::io::Errno;
use rustix::mm::Advice;
use std::ffi::OsStr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use stead_core::units::format_size;
use stead_core::{Error, Kind, Result};

/// A system call that a signal came in between is made again so often.
const AGAIN: usize = 64;
/// Pages are made so many bytes at a time: what is killed meanwhile ends soon.
const STEP: usize = 64 << 20;

/// Bytes of a page, at least.
pub(crate) fn page() -> usize {
    rustix::param::page_size().max(4096)
}

/// The most bytes that a file of this process may have.
pub fn longest() -> u64 {
    let most = rustix::process::getrlimit(rustix::process::Resource::Fsize).current;
    most.unwrap_or(u64::MAX).min(isize::MAX.unsigned_abs() as u64)
}

static FORKS: AtomicU32 = AtomicU32::new(0);

/// Called in a child, before anything else of it.
extern "C" fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A number that is another one in a process that is forked from now on, by the functions of the C library; `None` where it cannot be
/// told so. To be asked once, before there are children.
pub(crate) fn generation() -> Option<u32> {
    static COUNTS: OnceLock<bool> = OnceLock::new();
    // SAFETY: a function that does not unwind and changes one atomic, and none for the parent.
    let count = || unsafe { libc::pthread_atfork(None, None, Some(forked)) } == 0;
    COUNTS.get_or_init(count).then(|| FORKS.load(Ordering::Relaxed))
}

/// True if this process was not forked since it had this number. Costs no system call, as asking for the number of the process does.
pub(crate) fn is_generation(number: Option<u32>) -> bool {
    number == Some(FORKS.load(Ordering::Relaxed))
}

/// The words of a mapping; without those of an end that is no whole one.
pub(crate) fn words(map: &Map) -> &[AtomicU64] {
    let len = map.len() / size_of::<AtomicU64>();
    // SAFETY: within the mapping, which lives as long as the borrow; aligned, as it begins with a page. Other processes change
    // them too, and all do so as atomics. Nobody looks at the bytes of such a mapping.
    unsafe { std::slice::from_raw_parts(map.start().cast(), len) }
}

/// The low half of a word, for the system to look at.
pub(crate) fn low_half(word: &AtomicU64) -> &AtomicU32 {
    let half = word.as_ptr().cast::<AtomicU32>();
    // SAFETY: within the word, and aligned as it is. Only the system reads it, as it may at any time.
    unsafe { &*half.wrapping_add(usize::from(cfg!(target_endian = "big"))) }
}

/// Has the system take large pages where it has them. Only a hint.
pub(crate) fn prefer_huge(map: &Map) {
    // SAFETY: the whole mapping; changes no byte.
    let _ = unsafe { rustix::mm::madvise(map.start().cast(), map.len(), Advice::LinuxHugepage) };
}

/// Gives a part of a mapping its pages, so that no signal comes of writing there; those that are there keep their bytes. `at` is a
/// multiple of [`page`].
pub(crate) fn fill(map: &Map, file: impl AsFd, at: usize, len: usize) -> rustix::io::Result<()> {
    let end = at.checked_add(len).filter(|end| *end <= map.len()).ok_or(Errno::INVAL)?;
    for at in (at..end).step_by(STEP) {
        fill_step(map, file.as_fd(), at, STEP.min(end - at))?;
    }
    Ok(())
}

fn fill_step(map: &Map, file: BorrowedFd<'_>, at: usize, len: usize) -> rustix::io::Result<()> {
    for _ in 0..AGAIN {
        // SAFETY: within the mapping, as the caller sees to; it changes no byte.
        let filled = unsafe {
            rustix::mm::madvise(map.start().add(at).cast(), len, Advice::LinuxPopulateWrite)
        };
        match filled {
            Ok(()) => return Ok(()),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => break,
        }
    }
    // Before Linux 5.14; and it says why there is no memory.
    allocate(file, at as u64, len as u64)
}

/// As [`fill`], of a file.
pub(crate) fn allocate(file: impl AsFd, at: u64, len: u64) -> rustix::io::Result<()> {
    for _ in 0..AGAIN {
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), at, len) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::INTR)
}

/// Gives the pages of a part of a file back to the system.
pub(crate) fn punch(file: impl AsFd, at: u64, len: u64) -> rustix::io::Result<()> {
    let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    for _ in 0..AGAIN {
        match rustix::fs::fallocate(&file, flags, at, len) {
            Err(Errno::INTR) => {}
            done => return done,
        }
    }
    Err(Errno::INTR)
}

/// Bytes that are free where a folder lies; `None` where no bound is told.
pub(crate) fn free_in(folder: &Folder) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(folder).ok().filter(|stat| stat.f_blocks > 0)?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// There is no memory for `len` bytes in a folder.
pub(crate) fn no_room(folder: &Folder, len: u64) -> Error {
    let free =
        free_in(folder).map_or("none is".to_owned(), |free| format!("{} are", format_size(free)));
    let what = format!("cannot take {} of memory: {free} free here", format_size(len));
    Error::new(Kind::NoSpace, what).at_path(folder.shown()).with_hint(
        "let [dataspace.memory] of stead.toml name a larger folder, or have this file system made larger",
    )
}

/// Opens a file of this user in a folder, to be mapped: its length.
pub(crate) fn look_at(folder: &Folder, name: &OsStr, file: impl AsFd) -> Result<Meta> {
    let meta = Meta::of_file(file).map_err(|e| Error::io("look at", folder.at(name), e))?;
    if meta.what != What::File {
        return Err(Error::data("this is no regular file").at_path(folder.at(name)));
    }
    if meta.uid != rustix::process::geteuid().as_raw() {
        let whose = Error::new(Kind::Permission, "this file is another user's");
        return Err(whose.at_path(folder.at(name)));
    }
    Ok(meta)
}
