//! How many threads copy, and bytes that several of them copy.

use crate::{gather, report};
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Copies of fewer bytes are those of one thread.
const SHARE: usize = 16 << 20;
/// Threads at most, unless there are to be more.
const THREADS: usize = 4;

/// How many threads copy so many bytes: as many as are asked for; if that is 0, this one's part of the processors, where so many processes
/// copy at the same time.
pub(crate) fn of_use(bytes: usize, asked: usize, processes: usize) -> usize {
    match (bytes / SHARE, asked) {
        // How many processors there are is read from files: not for each small copy.
        (0 | 1, _) => 1,
        (most, 0) => {
            let processors = thread::available_parallelism().map_or(1, usize::from);
            (processors / processes.max(1)).clamp(1, THREADS.min(most))
        }
        (most, asked) => asked.min(most),
    }
}

/// Copies bytes into as many others, by so many threads; by fewer where the system gives no more. What this takes of processors is added
/// to `time`, in nanoseconds, if it is much.
pub(crate) fn copy(from: &[u8], to: &mut [u8], threads: usize, time: &AtomicU64) {
    // One run for each, of whole pages: long ones are not taken into caches on the way.
    let share = from.len().div_ceil(threads.max(1)).next_multiple_of(1 << 12).max(1 << 12);
    let past = gather::is_past_caches(share);
    let parts = Mutex::new(to.chunks_mut(share).zip(from.chunks(share)));
    let next = || parts.lock().unwrap_or_else(PoisonError::into_inner).next();
    let work = || {
        report::timed(share.min(from.len()), time, || {
            while let Some((to, from)) = next() {
                gather::move_run(from, to, past);
            }
        });
    };
    thread::scope(|scope| {
        for _ in 1..threads {
            // What a thread that does not begin would have done is done by the others.
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_copied_by_any_number_of_threads() {
        for len in [0, 1, 4095, 4096, 4097, 50_000, 1 << 20] {
            let from: Vec<u8> = (0..len).map(|i| (i % 251) as u8).collect();
            for threads in [0, 1, 2, 3, 7, 64] {
                let mut to = vec![0xFF; len];
                copy(&from, &mut to, threads, &AtomicU64::new(0));
                assert!(from == to, "{len} bytes by {threads} threads");
            }
        }
    }

    #[test]
    fn large_copies_are_those_of_several_threads() {
        for bytes in [0, SHARE, 2 * SHARE - 1] {
            assert_eq!((of_use(bytes, 0, 1), of_use(bytes, 8, 1)), (1, 1));
        }
        assert_eq!((of_use(5 * SHARE, 3, 9), of_use(5 * SHARE, 64, 9)), (3, 5));
        let processors = thread::available_parallelism().map_or(1, usize::from);
        assert_eq!(of_use(2 * SHARE, 0, 0), processors.min(2));
        assert_eq!(of_use(1000 * SHARE, 0, 1), processors.min(THREADS));
        // Where each processor has a writer, none has a thread beside it.
        assert_eq!(of_use(1000 * SHARE, 0, processors), 1);
        assert_eq!(of_use(1000 * SHARE, 0, usize::MAX), 1);
    }
}
