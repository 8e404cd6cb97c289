//! A guard for mapped files: a fault in one of them gives zeros and a mark in place of the end of the
//! process.
//!
//! The kernel sends SIGBUS to a thread that touches a page of a mapped file which the file no longer has or
//! the device cannot give. The handler looks the address up in a table of [`SLOTS`] mappings; if it is in one,
//! it maps a page of zeros there and marks the mapping. Any other SIGBUS goes to the handler that was there
//! before, so programs and interpreters that have their own keep it. It is what systemd does for its journal
//! (`sigbus.c`).
//!
//! What it cannot do: help a thread that blocks SIGBUS, or where somebody installs another handler later and
//! does not pass the signal on. [`guard`] refuses in both cases as they stand when it is called, and the file is
//! read.

use std::mem::MaybeUninit;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings at a time, of the whole process. Files beyond that are read.
const SLOTS: usize = 1024;

const FREE: usize = 0;
const CLAIMED: usize = 1;

/// A mapping. Handlers read it without a lock, so it is atomics only.
struct Slot {
    /// Address of the first byte, or `FREE`, or `CLAIMED` while the rest is written.
    start: AtomicUsize,
    /// Address after the last byte.
    end: AtomicUsize,
    /// A page was lost.
    hit: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot { start: AtomicUsize::new(FREE), end: AtomicUsize::new(0), hit: AtomicBool::new(false) }
}; SLOTS];

/// The handler that was there before. Set before ours is installed.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// A place in the table; dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Guard(usize);

impl Guard {
    /// True if a page of the mapping was lost since it was put into the table.
    pub(crate) fn hit(&self) -> bool {
        TABLE[self.0].hit.load(Ordering::Acquire)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        TABLE[self.0].start.store(FREE, Ordering::Release);
    }
}

/// Guards `len` bytes at address `start`, which must be a mapping until the guard is dropped. `None` where
/// that cannot be done.
pub(crate) fn guard(start: usize, len: usize) -> Option<Guard> {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    if start <= CLAIMED || !*INSTALLED.get_or_init(install) || !in_force() {
        return None;
    }
    let end = start.checked_add(len)?;
    for (i, slot) in TABLE.iter().enumerate() {
        let claim = slot.start.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed);
        if claim.is_ok() {
            slot.end.store(end, Ordering::Relaxed);
            slot.hit.store(false, Ordering::Relaxed);
            slot.start.store(start, Ordering::Release);
            return Some(Guard(i));
        }
    }
    None
}

/// What is done on SIGBUS now.
fn current() -> Option<libc::sigaction> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; the target is large enough, and zeros are a valid `sigaction`.
    unsafe {
        (libc::sigaction(libc::SIGBUS, ptr::null(), now.as_mut_ptr()) == 0)
            .then(|| now.assume_init())
    }
}

fn handler() -> libc::sighandler_t {
    handle as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) as usize
}

fn install() -> bool {
    let Some(before) = current() else { return false };
    if BEFORE.set(before).is_err() {
        return false;
    }
    // SAFETY: zeros are a valid `sigaction`; the handler does only what a signal handler may do.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler();
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigemptyset(&raw mut action.sa_mask);
        libc::sigaction(libc::SIGBUS, &raw const action, ptr::null_mut()) == 0
    }
}

/// True if a SIGBUS of this thread comes to our handler.
fn in_force() -> bool {
    let ours = current().is_some_and(|a| a.sa_sigaction == handler());
    let mut mask = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: asks only; zeros are a valid set, and the call fills it.
    let blocked = unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr()) != 0
            || libc::sigismember(mask.as_ptr(), libc::SIGBUS) != 0
    };
    ours && !blocked
}

/// Runs in a thread at any point: no locks, no memory from the heap, `errno` as it was.
extern "C" fn handle(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid `info` to handlers installed with SA_SIGINFO.
    let (address, code) = unsafe { ((*info).si_addr() as usize, (*info).si_code) };
    // Positive codes are the kernel's; somebody's kill() carries no address.
    if code > 0 && mend(address) {
        return;
    }
    pass_on(signal, code, info, context);
}

/// Puts zeros where `address` is, if that is in a mapping of the table.
fn mend(address: usize) -> bool {
    for slot in &TABLE {
        let start = slot.start.load(Ordering::Acquire);
        let end = slot.end.load(Ordering::Acquire);
        // The mapping that this thread has touched stays in its slot; others may come and go meanwhile.
        if start <= CLAIMED
            || !(start..end).contains(&address)
            || slot.start.load(Ordering::Acquire) != start
        {
            continue;
        }
        let page = rustix::param::page_size();
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
        // SAFETY: the page belongs to a read-only mapping that is ours and still in use by the thread that
        // has touched it; nobody relies on its bytes. `errno` is the thread's own.
        let mapped = unsafe {
            let errno = libc::__errno_location();
            let kept = *errno;
            let at = (address - address % page) as *mut libc::c_void;
            let got = libc::mmap(at, page, libc::PROT_READ, flags, -1, 0);
            *errno = kept;
            got == at
        };
        if mapped {
            slot.hit.store(true, Ordering::Release);
        }
        return mapped;
    }
    false
}

/// Does what would have been done without us.
fn pass_on(
    signal: libc::c_int,
    code: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    type Plain = extern "C" fn(libc::c_int);
    type WithInfo = extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void);
    let Some(before) = BEFORE.get() else { return };
    match before.sa_sigaction {
        libc::SIG_IGN if code <= 0 => {}
        libc::SIG_DFL | libc::SIG_IGN => {
            // A fault comes again when the handler returns; a signal that was sent has to be sent again.
            // SAFETY: both calls are allowed in handlers; zeros are a valid `sigaction`, the default one.
            unsafe {
                let action: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const action, ptr::null_mut());
                libc::raise(signal);
            }
        }
        // SAFETY: it was installed as a handler of this kind, and is called as the kernel would call it.
        f if before.sa_flags & libc::SA_SIGINFO != 0 => unsafe {
            std::mem::transmute::<usize, WithInfo>(f)(signal, info, context);
        },
        // SAFETY: as above, of the other kind.
        f => unsafe { std::mem::transmute::<usize, Plain>(f)(signal) },
    }
}
