//! Reads under way, whoever is told of their end: a thread that waits, a function of the caller, a queue.
//!
//! A read of the facade is a future. It is polled here with a waker that leads back, so that there is one way to an
//! answer and it can be given up at any time, by any thread.

use crate::error::{ErrorFace, stead_error};
use crate::guard::null;
use crate::queue::Queue;
use crate::table;
use crate::view::{Bytes, stead_view};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::c_void;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::ThreadId;
use std::time::Duration;
use stead::read::{Read, ReadInto, answers_here};
use stead::{Error, Kind, Result};

/// Called once with the answer of a read. If the bytes came, `error` is NULL and `view` is the callee's, to be released
/// with stead_view_release; else `error` is the callee's, to be freed with stead_error_free, and `view` is no view.
///
/// By the thread that asked, where the bytes are there already; else by a thread that reads, or that looks after
/// deadlines: it must not be kept, and to wait for another read there is an error of kind STEAD_USAGE. Hand the answer on,
/// and do the work elsewhere. The function may ask for more. It must not throw or jump out.
pub type stead_read_fn =
    Option<unsafe extern "C" fn(view: stead_view, error: *mut stead_error, user: *mut c_void)>;

/// A buffer of the caller.
pub struct Lent {
    data: *mut u8,
    len: usize,
}

// SAFETY: the caller promises that the memory is stead's to write to until the read is over.
unsafe impl Send for Lent {}

impl Lent {
    /// # Errors
    /// `Usage` for NULL and for a size that no memory has.
    pub fn new(data: *mut c_void, len: usize) -> Result<Lent> {
        if data.is_null() && len > 0 {
            return Err(null("buffer"));
        }
        crate::guard::check_size::<u8>(len, "buffer")?;
        Ok(Lent { data: data.cast(), len })
    }
}

impl AsMut<[u8]> for Lent {
    fn as_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: not NULL, no longer than memory is, and the caller promises `len` bytes that are ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.data, self.len) }
    }
}

/// A read of the facade.
pub enum Reading {
    View(Read),
    Into(ReadInto<Lent>),
    Gather(ReadInto<Vec<u8>>),
}

impl Reading {
    fn poll(&mut self, context: &mut Context<'_>) -> Option<Result<Bytes>> {
        let answer = match self {
            Reading::View(read) => Pin::new(read).poll(context).map_ok(Bytes::View),
            Reading::Into(read) => {
                Pin::new(read).poll(context).map_ok(|b| Bytes::There(b.data.cast(), b.len))
            }
            Reading::Gather(read) => Pin::new(read).poll(context).map_ok(Bytes::Own),
        };
        match answer {
            Poll::Ready(answer) => Some(answer),
            Poll::Pending => None,
        }
    }

    /// True if the answer is there; else the waker is called once it is. Nobody is taken to wait for it.
    fn watch(&mut self, context: &mut Context<'_>) -> bool {
        match self {
            Reading::View(read) => read.watch(context),
            Reading::Into(read) => read.watch(context),
            Reading::Gather(read) => read.watch(context),
        }
    }

    /// Somebody waits for it.
    fn urge(&self) {
        match self {
            Reading::View(read) => read.urge(),
            Reading::Into(read) => read.urge(),
            Reading::Gather(read) => read.urge(),
        }
    }

    /// True if a view is there. It stays where it is, so that the session may move it out of its block. Others are
    /// taken as soon as they are there: after a read was given up, nothing may write to its buffer.
    fn is_view(&self) -> bool {
        matches!(self, Reading::View(read) if read.is_ready())
    }

    /// Waits for the answer.
    pub fn wait(self) -> Result<Bytes> {
        match self {
            Reading::View(read) => read.wait().map(Bytes::View),
            Reading::Into(read) => read.wait().map(|b| Bytes::There(b.data.cast(), b.len)),
            Reading::Gather(read) => read.wait().map(Bytes::Own),
        }
    }
}

/// A function of the caller and what it wants to be told.
#[derive(Clone, Copy)]
pub struct Callback {
    pub call: unsafe extern "C" fn(stead_view, *mut stead_error, *mut c_void),
    pub user: *mut c_void,
    /// Within another function: to be called after it.
    pub after: bool,
}

// SAFETY: the pointer is only handed back, and the header says by which threads.
unsafe impl Send for Callback {}

/// Who is told of an answer.
pub enum Sink {
    Call(Callback),
    /// With the place of the read among those that the queue expects.
    Queue(Arc<Queue>, Tag, u64),
}

/// What a queue gives back with an answer.
#[derive(Clone, Copy)]
pub struct Tag {
    pub user: *mut c_void,
    pub offset: u64,
}

// SAFETY: the pointer is only handed back.
unsafe impl Send for Tag {}

/// # Errors
/// `Usage` in a function that is called with the answer of a read, by the thread that would have to bring the other one.
pub fn may_wait() -> Result<()> {
    if !answers_here() {
        return Ok(());
    }
    Err(Error::usage("waited for a read in a function that is called with the answer of another")
        .with_hint("give that read a function, too, or hand the answer to a thread that may wait"))
}

/// Where a read stands.
enum State {
    Waiting(Reading),
    Answered(Result<Bytes>),
    /// A function of the caller is to be told.
    Due,
    /// It is being told.
    Telling(ThreadId),
    Over(&'static str),
}

impl State {
    /// True if nobody has to wait any more.
    fn settled(&self) -> bool {
        match self {
            State::Waiting(reading) => reading.is_view(),
            _ => true,
        }
    }
}

/// An answer on its way.
pub enum Answer {
    /// Here.
    Here(Result<Bytes>),
    /// A view that is there, for who asks.
    There(Reading),
}

impl Answer {
    pub fn take(self) -> Result<Bytes> {
        match self {
            Answer::Here(answer) => answer,
            Answer::There(reading) => reading.wait(),
        }
    }
}

const TAKEN: &str = "the answer of this read was taken before";
const GIVEN: &str = "the answer of this read goes to a function or a queue";
const CANCELLED: &str = "this read was cancelled";

struct Progress {
    state: State,
    sink: Option<Sink>,
    /// Threads that wait for a change. Waking nobody costs a system call, too.
    waiting: usize,
}

/// A read under way.
pub struct UnderWay {
    progress: Mutex<Progress>,
    changed: Condvar,
}

impl Wake for UnderWay {
    fn wake(self: Arc<Self>) {
        let progress = self.lock();
        if progress.sink.is_some() {
            self.drive(progress);
        } else {
            // Whoever waits looks by itself: it does the copying, if there is any, and not the reader.
            self.wake_waiting(progress);
        }
    }
}

impl UnderWay {
    pub fn new(reading: Reading) -> Arc<UnderWay> {
        let state = State::Waiting(reading);
        let progress = Mutex::new(Progress { state, sink: None, waiting: 0 });
        Arc::new(UnderWay { progress, changed: Condvar::new() })
    }

    fn lock(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes the threads that wait, after a change.
    fn wake_waiting(&self, progress: MutexGuard<'_, Progress>) {
        let any = progress.waiting > 0;
        drop(progress);
        if any {
            self.changed.notify_all();
        }
    }

    /// Looks whether there is an answer, for which somebody waits.
    fn look(self: &Arc<Self>, progress: &mut Progress) {
        if let State::Waiting(reading) = &mut progress.state {
            let waker = Waker::from(self.clone());
            if let Some(answer) = reading.poll(&mut Context::from_waker(&waker)) {
                progress.state = State::Answered(answer);
            }
        }
    }

    /// Looks whether there is an answer for a queue, which says by itself when somebody waits. True if it may go there.
    fn look_for_queue(self: &Arc<Self>, progress: &mut Progress) -> bool {
        if let State::Waiting(reading) = &mut progress.state {
            let waker = Waker::from(self.clone());
            if !reading.watch(&mut Context::from_waker(&waker)) {
                return false;
            }
            if !matches!(reading, Reading::View(_)) {
                self.look(progress);
            }
        }
        true
    }

    /// Somebody waits for it, at the queue that expects it.
    pub fn urge(&self) {
        if let State::Waiting(reading) = &self.lock().state {
            reading.urge();
        }
    }

    /// Tells the sink, if there is one and there is an answer.
    fn drive(self: &Arc<Self>, mut progress: MutexGuard<'_, Progress>) {
        let queued = matches!(progress.sink, Some(Sink::Queue(..)));
        let settled = if queued {
            self.look_for_queue(&mut progress)
        } else {
            self.look(&mut progress);
            progress.state.settled()
        };
        if !settled {
            return;
        }
        let Some(sink) = progress.sink.take() else { return };
        let then = if queued { State::Over(GIVEN) } else { State::Due };
        let answer = match std::mem::replace(&mut progress.state, then) {
            State::Answered(answer) => Answer::Here(answer),
            State::Waiting(reading) => Answer::There(reading),
            other => {
                progress.state = other;
                return;
            }
        };
        self.wake_waiting(progress);
        match sink {
            Sink::Call(callback) => tell(Told { callback, answer, read: self.clone() }),
            Sink::Queue(queue, tag, place) => queue.push(tag, place, answer),
        }
    }

    /// Has a function told, at once if the bytes are there.
    ///
    /// # Errors
    /// `Usage` if somebody is told already, or the answer was taken.
    pub fn call(self: &Arc<Self>, callback: Callback) -> Result<()> {
        self.send_to(|| Ok(Sink::Call(callback)))
    }

    /// Has the answer put into a queue.
    ///
    /// # Errors
    /// As [`UnderWay::call`]; `Usage` if the queue was freed.
    pub fn put_into(self: &Arc<Self>, queue: &Arc<Queue>, tag: Tag) -> Result<()> {
        self.send_to(|| Ok(Sink::Queue(queue.clone(), tag, queue.expect(self)?)))?;
        queue.urge();
        Ok(())
    }

    fn send_to(self: &Arc<Self>, sink: impl FnOnce() -> Result<Sink>) -> Result<()> {
        let mut progress = self.lock();
        match (&progress.state, &progress.sink) {
            (State::Waiting(_) | State::Answered(_), None) => {}
            (State::Over(why), _) => return Err(Error::usage(*why)),
            _ => return Err(Error::usage(GIVEN)),
        }
        progress.sink = Some(sink()?);
        self.drive(progress);
        Ok(())
    }

    /// Waits until there is an answer, no longer than `time`; false if there is none by then. True too if it went to
    /// somebody already, or the read was given up.
    ///
    /// # Errors
    /// Those of [`may_wait`], if there is none yet.
    pub fn wait(self: &Arc<Self>, time: Option<Duration>) -> Result<bool> {
        let mut progress = self.lock();
        let waiting = |progress: &mut Progress| {
            if progress.sink.is_none() && !progress.state.settled() {
                self.look(progress);
            }
            !progress.state.settled()
        };
        if !waiting(&mut progress) {
            return Ok(true);
        }
        if time == Some(Duration::ZERO) {
            return Ok(false);
        }
        may_wait()?;
        progress.waiting += 1;
        let late;
        (progress, late) = match time {
            None => {
                let there = self.changed.wait_while(progress, waiting);
                (there.unwrap_or_else(PoisonError::into_inner), false)
            }
            Some(time) => {
                let waited = self.changed.wait_timeout_while(progress, time, waiting);
                let (there, late) = waited.unwrap_or_else(PoisonError::into_inner);
                (there, late.timed_out())
            }
        };
        progress.waiting -= 1;
        Ok(!late)
    }

    /// Waits for the answer and takes it.
    ///
    /// # Errors
    /// Those of the read; `Cancelled` if another thread gives it up; `Usage` if somebody else has the answer.
    pub fn take(self: &Arc<Self>) -> Result<Bytes> {
        if self.lock().sink.is_some() {
            return Err(Error::usage(GIVEN));
        }
        self.wait(None)?;
        let mut progress = self.lock();
        match std::mem::replace(&mut progress.state, State::Over(TAKEN)) {
            State::Answered(answer) => answer,
            State::Waiting(reading) => {
                drop(progress);
                reading.wait()
            }
            State::Over(CANCELLED) => Err(Error::new(Kind::Cancelled, CANCELLED)),
            State::Over(why) => Err(Error::usage(why)),
            other => {
                progress.state = other;
                Err(Error::usage(GIVEN))
            }
        }
    }

    /// Gives the read up. Nothing is written to its buffer and nobody is told afterwards; a function that is being told
    /// on another thread has returned.
    pub fn cancel(&self) {
        let mut progress = self.lock();
        let sink = progress.sink.take();
        while let State::Telling(thread) = progress.state {
            if thread == std::thread::current().id() {
                return;
            }
            progress.waiting += 1;
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
            progress.waiting -= 1;
        }
        let before = std::mem::replace(&mut progress.state, State::Over(CANCELLED));
        // Before anybody who waits hears of it and frees its buffer: nothing is written to it any more.
        drop(before);
        self.wake_waiting(progress);
        if let Some(Sink::Queue(queue, _, place)) = sink {
            queue.forget(place);
        }
    }

    /// False if nobody wants to be told any more.
    fn telling(&self) -> bool {
        let mut progress = self.lock();
        let due = matches!(progress.state, State::Due);
        if due {
            progress.state = State::Telling(std::thread::current().id());
        }
        due
    }

    fn told(&self) {
        let mut progress = self.lock();
        progress.state = State::Over(GIVEN);
        self.wake_waiting(progress);
    }
}

/// An answer for a function of the caller.
struct Told {
    callback: Callback,
    answer: Answer,
    read: Arc<UnderWay>,
}

thread_local! {
    /// What is to be told after the function that is running: one that reads on as long as bytes are there must not
    /// fill the stack.
    static NEXT: RefCell<Option<VecDeque<Told>>> = const { RefCell::new(None) };
}

fn tell(told: Told) {
    if !told.callback.after {
        return hand_over(told);
    }
    let first = NEXT.with_borrow_mut(|next| match next {
        Some(waiting) => {
            waiting.push_back(told);
            None
        }
        None => {
            *next = Some(VecDeque::new());
            Some(told)
        }
    });
    let mut now = first;
    while let Some(told) = now {
        hand_over(told);
        now = NEXT.with_borrow_mut(|next| {
            let told = next.as_mut().and_then(VecDeque::pop_front);
            if told.is_none() {
                *next = None;
            }
            told
        });
    }
}

fn hand_over(told: Told) {
    let Told { callback, answer, read } = told;
    if !read.telling() {
        return;
    }
    let (view, error) = for_c(answer.take());
    // SAFETY: the caller gave the function together with the pointer, to be called once.
    unsafe { (callback.call)(view, error, callback.user) };
    read.told();
}

/// An answer as C has it.
pub fn for_c(answer: Result<Bytes>) -> (stead_view, *mut stead_error) {
    match answer {
        Ok(bytes) => (bytes.give(), std::ptr::null_mut()),
        Err(error) => (stead_view::NONE, table::insert(ErrorFace::new(error))),
    }
}
