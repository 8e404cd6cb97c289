//! Reading from a session: at once, with a function that is called, or with a handle to wait by.

use crate::error::{stead_error, stead_status};
use crate::guard::{call, check_size, look, null};
use crate::queue::{self, stead_queue};
use crate::session::{self, stead_session};
use crate::table::{self, Object};
use crate::under_way::{Callback, Lent, Reading, Tag, UnderWay, stead_read_fn};
use crate::view::stead_view;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;
use stead::Result;

/// A read under way: somebody may wait for it, take its answer, have it sent elsewhere, or give it up. Made by
/// stead_read_begin and its like, freed with stead_pending_free.
pub struct stead_pending {
    _opaque: [u8; 0],
}

/// A range of bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct stead_range {
    /// Its first byte in the file.
    pub offset: u64,
    /// How many there are.
    pub length: usize,
}

/// What the table has.
struct PendingFace {
    read: Arc<UnderWay>,
    offset: u64,
}

impl Object for PendingFace {
    type Handle = stead_pending;
    const NAME: &'static str = "read";
}

impl Drop for PendingFace {
    fn drop(&mut self) {
        self.read.cancel();
    }
}

fn give(reading: Reading, offset: u64) -> *mut stead_pending {
    table::insert(PendingFace { read: UnderWay::new(reading), offset })
}

/// Ends a handle. The read is given up when this returns, whoever else has the handle in use.
fn end(pending: *mut stead_pending) -> Result<()> {
    if pending.is_null() {
        return Ok(());
    }
    let face = get(pending)?;
    table::remove::<PendingFace>(pending)?;
    face.read.cancel();
    Ok(())
}

/// A read of a session that brings a view.
pub fn view(session: *const stead_session, offset: u64, length: usize) -> Result<Reading> {
    Ok(Reading::View(session::of(session)?.asks().read(offset, length)))
}

/// How long to wait, for ever if it is negative.
pub fn time(timeout_ms: i64) -> Option<Duration> {
    u64::try_from(timeout_ms).ok().map(Duration::from_millis)
}

/// Asks for `length` bytes at `offset` of the file, which come as a view to `done` with `user`: by this thread before
/// the call returns if they are there already, else by a thread that reads. Within such a function, `done` is called
/// after it has returned, so that a function may read on without an end. What is wrong with the range is part of the
/// answer.
///
/// Errors: STEAD_USAGE for NULL and what is no session; `done` is not called then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_read(
    session: *const stead_session,
    offset: u64,
    length: usize,
    done: stead_read_fn,
    user: *mut c_void,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let call = done.ok_or_else(|| null("function"))?;
        let reading = view(session, offset, length)?;
        UnderWay::new(reading).call(Callback { call, user, after: true })
    })
}

/// Reads `length` bytes at `offset` of the file and waits for them. The view is to be released with
/// stead_view_release; it is no view after a failure.
///
/// Errors: STEAD_USAGE if they do not lie within the session, or would have to be waited for in a function that is called
/// with an answer; STEAD_CHANGED if the file became shorter; STEAD_IO; STEAD_TIMEOUT at the deadline of the options, or of
/// stead_session_within.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_read_view(
    session: *const stead_session,
    offset: u64,
    length: usize,
    view: *mut stead_view,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(view, "place for the view")?;
        c.put(view, stead_view::NONE);
        out.put(self::view(session, offset, length)?.wait()?.give());
        Ok(())
    })
}

/// As stead_read_view, into a buffer of the caller.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_read_now(
    session: *const stead_session,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let lent = Lent::new(buffer, length)?;
        Reading::Into(session::of(session)?.asks().read_into(offset, lent)).wait().map(|_| ())
    })
}

/// Asks for `length` bytes at `offset` of the file. What is wrong with the range is part of the answer.
///
/// Errors: STEAD_USAGE for NULL and what is no session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_read_begin(
    session: *const stead_session,
    offset: u64,
    length: usize,
    pending: *mut *mut stead_pending,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(pending, "place for the read")?;
        out.put(give(view(session, offset, length)?, offset));
        Ok(())
    })
}

/// As stead_read_begin, into a buffer of the caller, which must be left alone until the answer was taken or the read was
/// freed. The view of the answer is the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_read_into(
    session: *const stead_session,
    offset: u64,
    buffer: *mut c_void,
    length: usize,
    pending: *mut *mut stead_pending,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(pending, "place for the read")?;
        let lent = Lent::new(buffer, length)?;
        let read = session::of(session)?.asks().read_into(offset, lent);
        out.put(give(Reading::Into(read), offset));
        Ok(())
    })
}

/// Asks for `count` pieces of `length` bytes, the first at `offset` of the file, the others `stride` bytes apart. The
/// view of the answer has them one after the other. It is an error of kind STEAD_USAGE if the pieces overlap.
///
/// Errors: STEAD_USAGE for NULL and what is no session.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_read_strided(
    session: *const stead_session,
    offset: u64,
    length: usize,
    stride: usize,
    count: usize,
    pending: *mut *mut stead_pending,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out_handle(pending, "place for the read")?;
        let read = session::of(session)?.asks().read_strided(offset, length, stride, count);
        out.put(give(Reading::Gather(read), offset));
        Ok(())
    })
}

/// Asks for `n` ranges at once: `pendings` has room for a read of each, in their order.
///
/// Errors: STEAD_USAGE for NULL and what is no session; nothing is asked for then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_read_many(
    session: *const stead_session,
    ranges: *const stead_range,
    n: usize,
    pendings: *mut *mut stead_pending,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let ranges = c.slice(ranges, n, "ranges")?;
        check_size::<*mut stead_pending>(n, "reads")?;
        if n > 0 {
            c.out(pendings, "place for the reads")?;
        }
        let pairs: Vec<_> = ranges.iter().map(|r| (r.offset, r.length)).collect();
        let reads = session::of(session)?.asks().read_many(&pairs);
        let handles = reads.into_iter().zip(&pairs).map(|(r, p)| give(Reading::View(r), p.0));
        c.fill(pendings, n, "place for the reads", handles)
    })
}

fn get(pending: *const stead_pending) -> Result<Arc<PendingFace>> {
    table::get(pending)
}

/// Waits `timeout_ms` milliseconds for the answer: not at all if that is 0, without an end if it is negative. True if it
/// is there, or went elsewhere. May be called again and again. In a function that is called with an answer, by a thread that
/// reads, it is false at once if there is none yet, and stead_last_message says why.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_pending_wait(pending: *mut stead_pending, timeout_ms: i64) -> bool {
    look!(false, |_c| {
        // Only the read is held, so that freeing the handle ends the wait.
        let read = get(pending)?.read.clone();
        read.wait(time(timeout_ms))
    })
}

/// Waits for the answer, takes it, and frees the read. The view is to be released with stead_view_release; it is no view
/// after a failure.
///
/// Errors: those of stead_read_view; STEAD_CANCELLED if another thread frees the read meanwhile. STEAD_USAGE if there is no
/// answer yet in a function that is called with another one; the read is freed all the same.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_pending_take(
    pending: *mut stead_pending,
    view: *mut stead_view,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |c| {
        let out = c.out(view, "place for the view")?;
        c.put(view, stead_view::NONE);
        let read = get(pending)?.read.clone();
        let answer = read.take();
        // Another thread may have been first.
        let _ = end(pending);
        out.put(answer?.give());
        Ok(())
    })
}

/// Has the answer given to a function, as stead_read does, but within another function too: at once if it is there. The
/// read is still to be freed, at any time: before the function was called, it is not called any more; while another thread
/// is calling it, freeing waits for its return.
///
/// Errors: STEAD_USAGE for NULL, and if the answer goes elsewhere already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_pending_then(
    pending: *mut stead_pending,
    done: stead_read_fn,
    user: *mut c_void,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let call = done.ok_or_else(|| null("function"))?;
        let read = get(pending)?.read.clone();
        read.call(Callback { call, user, after: false })
    })
}

/// Has the answer put into a queue, with `user` to tell it by. The read is still to be freed, at any time: if the answer
/// is not there yet, it does not come to the queue any more.
///
/// Errors: STEAD_USAGE for handles that are none, and if the answer goes elsewhere already.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_pending_queue(
    pending: *mut stead_pending,
    queue: *mut stead_queue,
    user: *mut c_void,
    error: *mut *mut stead_error,
) -> stead_status {
    call!(error, |_c| {
        let queue = queue::of(queue)?;
        let face = get(pending)?;
        let (read, offset) = (face.read.clone(), face.offset);
        drop(face);
        read.put_into(&queue, Tag { user, offset })
    })
}

/// Frees a read, and gives it up if nobody has its answer yet: nothing is written to its buffer afterwards. NULL is
/// nothing to do; a handle that is no read any more is left alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stead_pending_free(pending: *mut stead_pending) {
    look!((), |_c| end(pending))
}
