//! The little of io_uring that reading needs.

use crate::process::pause;
use io_uring::{IoUring, Probe, opcode, types};
use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;

/// One ring of one worker. It holds at most `depth` reads.
pub(crate) struct Ring {
    ring: IoUring,
    /// Completions seen while room for another read was made.
    seen: VecDeque<(u64, i32)>,
    /// Reads the kernel still works on.
    flying: usize,
}

impl Ring {
    /// Fails where the kernel has no io_uring, forbids it, or is older than 5.6.
    pub(crate) fn new(depth: usize) -> io::Result<Ring> {
        #[cfg(any(test, feature = "faults"))]
        if crate::faulty::forbids_io_uring() {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        // The caller keeps `depth` within limits::MAX_QUEUE_DEPTH.
        let entries = depth.next_power_of_two() as u32;
        let ring = IoUring::builder().dontfork().build(entries)?;
        let mut probe = Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !probe.is_supported(opcode::Read::CODE) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel is too old"));
        }
        Ok(Ring { ring, seen: VecDeque::new(), flying: 0 })
    }

    /// Begins to read into `target`.
    ///
    /// # Safety
    /// Until the completion with `number` was returned, `target` must stay where it is and be neither
    /// read nor written, and `fd` must stay open.
    pub(crate) unsafe fn read(&mut self, number: u64, fd: RawFd, target: &mut [u8], offset: u64) {
        // A single read moves at most 2^31 - 4096 bytes; the rest is asked for when the first part came.
        let len = target.len().min(1 << 30) as u32;
        let entry = opcode::Read::new(types::Fd(fd), target.as_mut_ptr(), len)
            .offset(offset)
            .build()
            .user_data(number);
        loop {
            // SAFETY: the caller keeps the buffer and the descriptor alive.
            if unsafe { self.ring.submission().push(&entry) }.is_ok() {
                break;
            }
            // There are as many entries as reads, so after a submission there is room.
            let _ = self.ring.submit();
            self.drain();
        }
        self.flying += 1;
        // If the kernel is short of something now, `wait` submits again.
        let _ = self.ring.submit();
    }

    /// Waits until a completion can be had.
    pub(crate) fn wait(&mut self) -> io::Result<()> {
        self.drain();
        while self.seen.is_empty() {
            if self.flying == 0 {
                return Err(io::Error::other("nothing is in flight"));
            }
            let short = match self.ring.submit_and_wait(1) {
                Ok(_) => false,
                Err(e) => match e.raw_os_error() {
                    Some(EINTR) => false,
                    Some(EAGAIN | EBUSY) => true,
                    _ => return Err(e),
                },
            };
            self.drain();
            if short && self.seen.is_empty() {
                // The kernel lacks memory, and does not say when it has some.
                pause();
            }
        }
        Ok(())
    }

    /// The next completion that was seen: its number, and bytes read or a negated error number.
    pub(crate) fn completion(&mut self) -> Option<(u64, i32)> {
        self.drain();
        self.seen.pop_front()
    }

    /// Asks the kernel to give up on what it can; everything still completes.
    pub(crate) fn cancel(&mut self) {
        let all = types::CancelBuilder::any();
        let _ = self.ring.submitter().register_sync_cancel(None, all);
    }

    fn drain(&mut self) {
        for c in self.ring.completion() {
            self.flying -= 1;
            self.seen.push_back((c.user_data(), c.result()));
        }
    }
}

const EINTR: i32 = rustix::io::Errno::INTR.raw_os_error();
const EAGAIN: i32 = rustix::io::Errno::AGAIN.raw_os_error();
const EBUSY: i32 = rustix::io::Errno::BUSY.raw_os_error();
