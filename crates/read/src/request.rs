//! Requests, and the futures by which their answers are waited for.

use crate::clock;
use crate::engine::Shared;
use crate::view::View;
use crate::window::Ticket;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};
use stead_core::{Error, Kind, Result};
use stead_store::Buffer;

/// A read that has been asked for. Its answer comes from [`Read::wait`], by `.await`, or to a function
/// ([`Read::then`]). Dropping it cancels it.
#[must_use = "dropping a read cancels it"]
pub struct Read(pub(crate) Pending<View>);

/// As [`Read`], into a buffer that is given back.
#[must_use = "dropping a read cancels it"]
pub struct ReadInto<B: AsMut<[u8]> + Send + 'static>(pub(crate) Pending<B>);

/// How the bytes of one block come to a request.
pub(crate) enum Piece<'a> {
    /// They are in the page cache.
    Cached,
    /// They are so many bytes of a block, from there.
    Block(&'a Arc<Buffer>, usize, usize),
    /// Here they are.
    Bytes(&'a [u8]),
}

impl<'a> Piece<'a> {
    /// The bytes, where they must be copied.
    pub(crate) fn bytes(self) -> Option<&'a [u8]> {
        match self {
            Piece::Cached => None,
            Piece::Block(block, start, len) => block.get(start..start + len),
            Piece::Bytes(bytes) => Some(bytes),
        }
    }
}

/// What a request is to make of the bytes once they are there.
pub(crate) trait Finish<T>: Send {
    /// Takes what has come of one block.
    fn piece(&mut self, shared: &Arc<Shared>, at: u64, piece: Piece<'_>);

    /// True if it holds a block.
    fn holds(&self) -> bool {
        false
    }

    /// Copies what it has out of the block. False if it holds none.
    fn let_go(&mut self) -> bool {
        false
    }

    /// The answer.
    fn finish(self: Box<Self>, shared: &Arc<Shared>) -> Result<T>;
}

pub(crate) enum Pending<T> {
    /// Answered when it was asked for; `None` once it was given out.
    Ready(Option<Result<T>>),
    Waiting(Wait<T>),
}

pub(crate) struct Wait<T> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) request: Arc<Request<T>>,
    pub(crate) ticket: Ticket,
}

/// A request, as readers see it.
pub(crate) struct Request<T> {
    pub(crate) offset: u64,
    pub(crate) len: usize,
    progress: Mutex<Progress<T>>,
    /// For [`Read::wait`].
    answered: Condvar,
}

struct Progress<T> {
    /// Blocks that have not come.
    missing: usize,
    finish: Option<Box<dyn Finish<T>>>,
    failure: Option<Error>,
    wake: Wake<T>,
    /// Nobody wants it any more.
    gone: bool,
}

type Then<T> = Box<dyn FnOnce(Result<T>) + Send>;

enum Wake<T> {
    Nobody,
    Task(Waker),
    Call(Then<T>),
}

/// What readers do with requests of any kind.
pub(crate) trait Deliver: Send + Sync {
    /// First byte and number of bytes.
    fn range(&self) -> (u64, usize);
    /// What was asked for of a block, from `at` of the file.
    fn deliver(&self, shared: &Arc<Shared>, at: u64, piece: Piece<'_>);
    /// True if there is an answer, or nobody wants one any more.
    fn answered(&self) -> bool;
    /// True if its answer holds a block.
    fn holds(&self) -> bool;
    /// Copies the answer out of the block that it holds. False if it holds none.
    fn let_go(&self) -> bool;
    /// It cannot be answered.
    fn fail(&self, shared: &Arc<Shared>, error: Error);
}

impl<T: Send + 'static> Request<T> {
    pub(crate) fn new(offset: u64, len: usize, missing: usize, finish: Box<dyn Finish<T>>) -> Self {
        let progress = Progress {
            missing,
            finish: Some(finish),
            failure: None,
            wake: Wake::Nobody,
            gone: false,
        };
        Request { offset, len, progress: Mutex::new(progress), answered: Condvar::new() }
    }

    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells whoever waits.
    fn wake(&self, mut progress: MutexGuard<'_, Progress<T>>, shared: &Arc<Shared>) {
        let wake = std::mem::replace(&mut progress.wake, Wake::Nobody);
        self.answered.notify_all();
        match wake {
            Wake::Nobody => {}
            Wake::Task(waker) => {
                drop(progress);
                waker.wake();
            }
            Wake::Call(then) => {
                let answer = progress.answer(shared);
                drop(progress);
                if let Some(answer) = answer {
                    then(answer);
                }
            }
        }
    }
}

impl<T> Progress<T> {
    fn answered(&self) -> bool {
        self.missing == 0 || self.failure.is_some()
    }

    /// The answer, once.
    fn answer(&mut self, shared: &Arc<Shared>) -> Option<Result<T>> {
        if let Some(error) = self.failure.take() {
            self.gone = true;
            self.finish = None;
            return Some(Err(error));
        }
        if self.missing > 0 {
            return None;
        }
        self.gone = true;
        self.finish.take().map(|finish| finish.finish(shared))
    }
}

impl<T: Send + 'static> Deliver for Request<T> {
    fn range(&self) -> (u64, usize) {
        (self.offset, self.len)
    }

    fn answered(&self) -> bool {
        let progress = self.lock();
        progress.gone || progress.answered()
    }

    fn holds(&self) -> bool {
        self.lock().finish.as_ref().is_some_and(|f| f.holds())
    }

    fn let_go(&self) -> bool {
        self.lock().finish.as_mut().is_some_and(|f| f.let_go())
    }

    fn deliver(&self, shared: &Arc<Shared>, at: u64, piece: Piece<'_>) {
        let mut progress = self.lock();
        if progress.gone || progress.failure.is_some() {
            return;
        }
        if let Some(finish) = progress.finish.as_mut() {
            finish.piece(shared, at, piece);
        }
        progress.missing = progress.missing.saturating_sub(1);
        if progress.missing == 0 {
            self.wake(progress, shared);
        }
    }

    fn fail(&self, shared: &Arc<Shared>, error: Error) {
        let mut progress = self.lock();
        if progress.gone || progress.answered() {
            return;
        }
        progress.failure = Some(error);
        self.wake(progress, shared);
    }
}

impl<T: Send + 'static> Pending<T> {
    /// The answer if it is there.
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<T>> {
        match self {
            Pending::Ready(answer) => answer.take(),
            Pending::Waiting(wait) => {
                let mut progress = wait.request.lock();
                let answer = progress.answer(&wait.shared);
                if answer.is_none()
                    && let Some(waker) = waker
                {
                    progress.wake = Wake::Task(waker.clone());
                }
                answer
            }
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Pending::Ready(_) => true,
            Pending::Waiting(wait) => wait.request.lock().answered(),
        }
    }

    fn wait_until(&mut self, until: Option<Instant>) -> Option<Result<T>> {
        let Pending::Waiting(wait) = self else { return self.poll(None) };
        let mut progress = wait.request.lock();
        loop {
            if let Some(answer) = progress.answer(&wait.shared) {
                return Some(answer);
            }
            if progress.gone {
                return None;
            }
            let answered = &wait.request.answered;
            progress = match until.map(|u| u.saturating_duration_since(clock::now())) {
                None => answered.wait(progress).unwrap_or_else(PoisonError::into_inner),
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    answered.wait_timeout(progress, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    fn wait(mut self) -> Result<T> {
        // Requests have a deadline of their own, so that this ends.
        self.wait_until(None).unwrap_or_else(taken)
    }

    fn then(mut self, then: Then<T>) {
        let Pending::Waiting(wait) = &self else {
            then(self.poll(None).unwrap_or_else(taken));
            return;
        };
        let mut progress = wait.request.lock();
        match progress.answer(&wait.shared) {
            Some(answer) => {
                drop(progress);
                then(answer);
            }
            None => {
                progress.wake = Wake::Call(then);
                // It goes on without this handle.
            }
        }
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        let mut progress = self.request.progress.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(progress.wake, Wake::Call(_)) {
            return;
        }
        let open = !progress.gone && progress.missing > 0 && progress.failure.is_none();
        progress.gone = true;
        let finish = progress.finish.take();
        drop(progress);
        drop(finish);
        if open || !self.shared.maps() {
            self.shared.cancel(self.ticket);
        }
    }
}

fn taken<T>() -> Result<T> {
    Err(Error::new(Kind::Usage, "the answer of this read was taken before"))
}

macro_rules! face {
    ([$($generics:tt)*] $name:ty, $out:ty) => {
        impl<$($generics)*> $name {
            /// Waits for the answer.
            ///
            /// # Errors
            /// `Changed` if the file became shorter, `Io` if the device failed, with the offset; `Timeout` at the
            /// deadline.
            pub fn wait(self) -> Result<$out> {
                self.0.wait()
            }

            /// Waits no longer than `time`; `None` if there is no answer by then. May be called again.
            pub fn wait_for(&mut self, time: Duration) -> Option<Result<$out>> {
                self.0.wait_until(Some(clock::after(time)))
            }

            /// True if the answer is there.
            pub fn is_ready(&self) -> bool {
                self.0.is_ready()
            }

            /// Gives the answer to a function: at once if it is there, else from a reader's thread, which must
            /// not be kept.
            pub fn then(self, then: impl FnOnce(Result<$out>) + Send + 'static) {
                self.0.then(Box::new(then));
            }

            /// Wants it no more. Nothing is written to its buffer afterwards.
            pub fn cancel(self) {}
        }

        impl<$($generics)*> Future for $name {
            type Output = Result<$out>;

            fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
                match self.0.poll(Some(cx.waker())) {
                    Some(answer) => Poll::Ready(answer),
                    None => Poll::Pending,
                }
            }
        }
    };
}

face!([] Read, View);
face!([B: AsMut<[u8]> + Send + Unpin + 'static] ReadInto<B>, B);
