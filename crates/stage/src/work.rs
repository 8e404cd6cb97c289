//! Threads that copy the files of a batch.

use crate::copy::{Copy, Means, Room};
use crate::gentle;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::Duration;
use stead_core::Error;

/// So often those who wait look around.
pub(crate) const LOOK: Duration = Duration::from_millis(100);

/// Copies all of these by so many threads, while `look` is called now and then. What goes wrong is kept by the copies.
pub(crate) fn copy(
    copies: &[Copy],
    threads: usize,
    gently: bool,
    means: &Means<'_>,
    look: &mut dyn FnMut(),
) {
    let mut ends = Vec::with_capacity(copies.len());
    let mut pieces = 0u64;
    for copy in copies {
        pieces += copy.pieces();
        ends.push(pieces);
    }
    let next = AtomicU64::new(0);
    let threads = threads.clamp(1, usize::try_from(pieces.max(1)).unwrap_or(usize::MAX));
    let (running, ended) = (Mutex::new(threads), Condvar::new());
    let one = || {
        let _leaving = Leaving(&running, &ended);
        if gently {
            gentle::give_way();
        }
        let mut room = Room::new();
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= pieces {
                break;
            }
            let at = ends.partition_point(|end| *end <= piece);
            let first = if at == 0 { 0 } else { ends[at - 1] };
            copies[at].piece(piece - first, &mut room, means);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(one)).collect();
        loop {
            let left = running.lock().unwrap_or_else(PoisonError::into_inner);
            let (left, _) = ended
                .wait_timeout_while(left, LOOK, |left| *left > 0)
                .unwrap_or_else(PoisonError::into_inner);
            if *left == 0 {
                break;
            }
            drop(left);
            look();
        }
        let panicked = workers.into_iter().filter_map(|w| w.join().err()).count() > 0;
        if panicked {
            // Whose piece it was nobody knows: none of them is whole for sure.
            copies.iter().for_each(|c| c.fail(Error::internal("a thread that copies panicked")));
        }
    });
}

/// A thread that is no longer running, however it ended.
struct Leaving<'a>(&'a Mutex<usize>, &'a Condvar);

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.1.notify_all();
    }
}
