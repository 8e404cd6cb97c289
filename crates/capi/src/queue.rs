//! Queues of reads that are done, with a file descriptor for event loops.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, look};
use crate::pending;
use crate::session::stead_session;
use crate::table::{self, Object};
use crate::under_way::{Answer, Tag, UnderWay, for_c, may_wait};
use crate::view::stead_view;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsRawFd, OwnedFd};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
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
    /// Reads that will be done, in the order in which they came.
    expected: BTreeMap<u64, Expected>,
    /// Of these, those that sessions know to be waited for.
    urged: usize,
    /// The place of the next one.
    next: u64,
    /// Threads that wait. Waking nobody costs a system call, too.
    waiting: usize,
    /// Readable while `done` is not empty. `None` once the queue was freed.
    event: Option<OwnedFd>,
}

struct Expected {
    read: Weak<UnderWay>,
    urged: bool,
}

/// How long who waits does so for a read that sessions know to be waited for, before they hear of another one.
const PATIENCE: Duration = Duration::from_millis(500);

impl Inner {
    /// The first read that sessions do not know to be waited for. They are to know it from now on.
    fn first_unknown(&mut self) -> Option<Arc<UnderWay>> {
        // Few are before it: those that were urged and have not come.
        let expected = self.expected.values_mut().find(|e| !e.urged)?;
        expected.urged = true;
        self.urged += 1;
        expected.read.upgrade()
    }

    /// A read is no longer expected.
    fn forget(&mut self, place: u64) {
        if let Some(expected) = self.expected.remove(&place) {
            self.urged -= usize::from(expected.urged);
        }
    }

    /// True if there is nothing to take, but will be.
    fn is_worth_waiting(&self) -> bool {
        self.done.is_empty() && !self.expected.is_empty() && self.event.is_some()
    }

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
        let expected = std::mem::take(&mut inner.expected);
        inner.urged = 0;
        inner.event = None;
        self.wake_waiting(inner);
        drop(done);
        for read in expected.into_values().filter_map(|e| e.read.upgrade()) {
            read.cancel();
        }
    }

    /// A read will be done. Its place among others.
    ///
    /// # Errors
    /// `Usage` if the queue was freed.
    pub fn expect(&self, read: &Arc<UnderWay>) -> Result<u64> {
        let mut inner = self.lock();
        inner.alive()?;
        let place = inner.next;
        inner.next += 1;
        inner.expected.insert(place, Expected { read: Arc::downgrade(read), urged: false });
        Ok(place)
    }

    /// A read that was expected was given up.
    pub fn forget(&self, place: u64) {
        let mut inner = self.lock();
        inner.forget(place);
        self.wake_waiting(inner);
        self.urge();
    }

    /// Where memory is short, sessions bring what is waited for. While there is nothing to be taken from a queue, that
    /// is one of its reads, the first; else none, so that answers which nobody takes stay within the budget.
    pub fn urge(&self) {
        let mut inner = self.lock();
        let idle = inner.done.is_empty() && inner.urged == 0 && inner.event.is_some();
        let first = if idle { inner.first_unknown() } else { None };
        // The lock of a read is taken before that of the queue.
        drop(inner);
        if let Some(read) = first {
            read.urge();
        }
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
    pub fn push(&self, tag: Tag, place: u64, answer: Answer) {
        let mut inner = self.lock();
        inner.forget(place);
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

    /// Waits until there is something to take, or nothing will come. No longer than `time`.
    fn wait(&self, time: Option<Duration>) -> MutexGuard<'_, Inner> {
        let mut left = time;
        let mut inner = self.lock();
        inner.waiting += 1;
        while inner.is_worth_waiting() && left != Some(Duration::ZERO) {
            if let Some(read) = inner.first_unknown() {
                drop(inner);
                read.urge();
                inner = self.lock();
            }
            // The read that sessions bring first may be of a device that hangs: another one may come.
            let more = inner.urged < inner.expected.len();
            let slice = left.into_iter().chain(more.then_some(PATIENCE)).min();
            let wait = |inner: &mut Inner| inner.is_worth_waiting();
            inner = match slice {
                None => {
                    self.changed.wait_while(inner, wait).unwrap_or_else(PoisonError::into_inner)
                }
                Some(slice) => {
                    let waited = self.changed.wait_timeout_while(inner, slice, wait);
                    left = left.map(|left| left.saturating_sub(slice));
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        inner.waiting -= 1;
        inner
    }

    /// Takes the oldest. `None` if there is none in time, none will come, or the queue is freed.
    ///
    /// # Errors
    /// Those of [`may_wait`], if there is none yet.
    fn next(&self, time: Option<Duration>) -> Result<Option<(Tag, Answer)>> {
        let mut inner = self.lock();
        if inner.is_worth_waiting() && time != Some(Duration::ZERO) {
            may_wait()?;
            drop(inner);
            inner = self.wait(time);
        }
        let next = inner.done.pop_front();
        let (empty, none_comes) = (inner.done.is_empty(), inner.expected.is_empty());
        if next.is_some()
            && empty
            && let Some(event) = &inner.event
        {
            let _ = rustix::io::read(event, &mut [0u8; 8]);
        }
        if empty && none_comes {
            // Others that wait do so in vain.
            self.wake_waiting(inner);
        } else {
            drop(inner);
        }
        Ok(next)
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
        let inner = Inner {
            done: VecDeque::new(),
            expected: BTreeMap::new(),
            urged: 0,
            next: 0,
            waiting: 0,
            event: Some(event),
        };
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
        UnderWay::new(reading).put_into(&queue, Tag { user, offset })
    })
}

/// Takes the oldest read that is done. Waits `timeout_ms` milliseconds for one if there is none: not at all if that is
/// 0, without an end if it is negative. False if there was none in time, or none is under way, so that
/// `while (stead_queue_next(queue, -1, &done))` sees all of them; `done` is left as it is then. In a function that is called
/// with an answer, by a thread that reads, it does not wait: it is false, and stead_last_message says why.
///
/// Where blocks are in memory, answers that nobody takes are within the budget of their session, and the others come when
/// these are taken. Of a queue that has nothing to take, the session brings the first read in any case.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_queue_next(
    queue: *mut stead_queue,
    timeout_ms: i64,
    done: *mut stead_completion,
) -> bool {
    look!(false, |c| {
        let out = c.out(done, "place for the completion")?;
        let queue = of(queue)?;
        let Some((tag, answer)) = queue.next(pending::time(timeout_ms))? else {
            return Ok(false);
        };
        let (view, error) = for_c(answer.take());
        // Its memory is no longer that of an answer that nobody takes.
        queue.urge();
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
        Ok(inner.expected.len() as u64 + inner.done.len() as u64)
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
