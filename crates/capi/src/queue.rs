//! Queues of reads that are done, with a file descriptor for event loops.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, look};
use crate::pending;
use crate::session::stead_session;
use crate::table::{self, Object};
use crate::under_way::{Answer, Sink, Tag, UnderWay, for_c};
use crate::view::stead_view;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use stead::{Error, Result};

/// Reads that are done, in the order in which they were, for whoever takes them with stead_queue_next. Made by
/// stead_queue_new, freed with stead_queue_free. Any number of threads may add to it and take from it.
pub struct stead_queue {
    _opaque: [u8; 0],
}

/// A read that is done, out of a queue.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_completion {
    /// What came with the read.
    pub user: *mut c_void,
    /// The offset that it asked for.
    pub offset: u64,
    /// The bytes, to be released with stead_view_release; no view if there is an error.
    pub view: stead_view,
    /// NULL if the bytes came, else an error to be freed with stead_error_free.
    pub error: *mut stead_error,
}

/// A queue; its handle is the table's.
pub struct Queue {
    inner: Mutex<Inner>,
    changed: Condvar,
}

struct Inner {
    done: VecDeque<(Tag, Answer)>,
    /// Reads that will be done.
    expected: u64,
    /// Threads that wait. Waking nobody costs a system call, too.
    waiting: usize,
    /// Readable while `done` is not empty. `None` once the queue was freed.
    event: Option<OwnedFd>,
}

impl Inner {
    /// Nobody waits for anything but what is here.
    fn alive(&self) -> Result<&OwnedFd> {
        self.event.as_ref().ok_or_else(|| Error::usage("the queue was freed"))
    }
}

/// What the table has.
struct QueueFace(Arc<Queue>);

impl Object for QueueFace {
    type Handle = stead_queue;
    const NAME: &'static str = "queue";
}

/// The queue of a handle.
pub fn of(queue: *const stead_queue) -> Result<Arc<Queue>> {
    Ok(table::get::<QueueFace>(queue)?.0.clone())
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nobody takes anything any more.
    fn end(&self) {
        let mut inner = self.lock();
        let done = std::mem::take(&mut inner.done);
        inner.event = None;
        self.wake_waiting(inner);
        drop(done);
    }

    /// A read will be done.
    ///
    /// # Errors
    /// `Usage` if the queue was freed.
    pub fn expect_one(&self) -> Result<()> {
        let mut inner = self.lock();
        inner.alive()?;
        inner.expected += 1;
        Ok(())
    }

    /// A read that was expected was given up.
    pub fn forget_one(&self) {
        let mut inner = self.lock();
        inner.expected -= 1;
        self.wake_waiting(inner);
    }

    /// Wakes the threads that wait, after a change.
    fn wake_waiting(&self, inner: MutexGuard<'_, Inner>) {
        let any = inner.waiting > 0;
        drop(inner);
        if any {
            self.changed.notify_all();
        }
    }

    /// A read is done.
    pub fn push(&self, tag: Tag, answer: Answer) {
        let mut inner = self.lock();
        inner.expected -= 1;
        let Some(event) = &inner.event else {
            drop(inner);
            // Nobody wants it; it may hold a block.
            drop(answer);
            return;
        };
        if inner.done.is_empty() {
            // It cannot fail: the counter is 0.
            let _ = rustix::io::write(event, &1u64.to_ne_bytes());
        }
        inner.done.push_back((tag, answer));
        let any = inner.waiting > 0;
        drop(inner);
        if any {
            self.changed.notify_one();
        }
    }

    /// Takes the oldest. `None` if there is none in time, none will come, or the queue is freed.
    fn next(&self, time: Option<Duration>) -> Option<(Tag, Answer)> {
        let mut inner = self.lock();
        inner.waiting += 1;
        let wait = |i: &mut Inner| i.done.is_empty() && i.expected > 0 && i.event.is_some();
        let mut inner = match time {
            None => self.changed.wait_while(inner, wait).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                let waited = self.changed.wait_timeout_while(inner, time, wait);
                waited.unwrap_or_else(PoisonError::into_inner).0
            }
        };
        inner.waiting -= 1;
        let next = inner.done.pop_front();
        let (empty, none_comes) = (inner.done.is_empty(), inner.expected == 0);
        if next.is_some()
            && empty
            && let Some(event) = &inner.event
        {
            let _ = rustix::io::read(event, &mut [0u8; 8]);
        }
        if empty && none_comes {
            // Others that wait do so in vain.
            self.wake_waiting(inner);
        }
        next
    }
}

/// Makes a queue, to be freed with stead_queue_free.
///
/// Errors: STEAD_IO if the system gives no more file descriptors.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_queue_new(
    queue: *mut *mut stead_queue,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(queue, "place for the queue")?;
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| Error::io("make an event descriptor for", "a queue", e.into()))?;
        let inner = Inner { done: VecDeque::new(), expected: 0, waiting: 0, event: Some(event) };
        let queue = Queue { inner: Mutex::new(inner), changed: Condvar::new() };
        out.put(table::insert(QueueFace(Arc::new(queue))));
        Ok(())
    })
}

/// A file descriptor (an eventfd) that is readable while the queue has reads that are done: for poll, epoll, and any
/// event loop. It is the queue's, and closed with it: neither read nor close it. -1 if the handle is no queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_queue_fd(queue: *const stead_queue) -> c_int {
    look!(-1, |_c| Ok(of(queue)?.lock().alive()?.as_raw_fd()))
}

/// Asks for `length` bytes at `offset`; the answer goes to the queue, with `user` to tell it by. What is wrong with the
/// range is part of the answer.
///
/// Errors: STEAD_USAGE for handles that are none; nothing goes to the queue then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_queue_read(
    queue: *mut stead_queue,
    session: *const stead_session,
    offset: u64,
    length: usize,
    user: *mut c_void,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let queue = of(queue)?;
        let reading = pending::view(session, offset, length)?;
        queue.expect_one()?;
        UnderWay::new(reading, Some(Sink::Queue(queue, Tag { user, offset }))).begin();
        Ok(())
    })
}

/// Takes the oldest read that is done. Waits `timeout_ms` milliseconds for one if there is none: not at all if that is
/// 0, without an end if it is negative. False if there was none in time, or none is under way, so that
/// `while (stead_queue_next(queue, -1, &done))` sees all of them; `done` is left as it is then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_queue_next(
    queue: *mut stead_queue,
    timeout_ms: i64,
    done: *mut stead_completion,
) -> bool {
    look!(false, |c| {
        let out = c.out(done, "place for the completion")?;
        let Some((tag, answer)) = of(queue)?.next(pending::time(timeout_ms)) else {
            return Ok(false);
        };
        let (view, error) = for_c(answer.take());
        out.put(stead_completion { user: tag.user, offset: tag.offset, view, error });
        Ok(true)
    })
}

/// Number of reads that will come out of the queue: those under way and those that are done. 0 if the handle is no
/// queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_queue_length(queue: *const stead_queue) -> u64 {
    look!(0, |_c| {
        let queue = of(queue)?;
        let inner = queue.lock();
        Ok(inner.expected + inner.done.len() as u64)
    })
}

/// Frees a queue and what is in it. Answers of reads under way go nowhere. NULL is nothing to do; a handle that is no
/// queue any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_queue_free(queue: *mut stead_queue) {
    look!((), |_c| {
        if queue.is_null() {
            return Ok(());
        }
        let freed = of(queue)?;
        table::remove::<QueueFace>(queue)?;
        freed.end();
        Ok(())
    })
}
