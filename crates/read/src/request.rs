//! Requests, and the futures by which their answers are waited for.

use crate::clock;
use crate::engine::{Claim, Shared, Urge};
use crate::sync::{self, Condvar, Mutex, MutexGuard};
use crate::view::View;
use crate::window::Ticket;
use std::cell::Cell;
use std::future::Future;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
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

    /// False if no byte of these is needed.
    fn wants(&self, _part: &Range<u64>) -> bool {
        true
    }

    /// The first bytes of these that are needed; none at their end if there are none.
    fn needs(&self, part: &Range<u64>) -> Range<u64> {
        part.clone()
    }

    /// True if bytes of several blocks take memory that the answer holds until it is taken.
    fn claims(&self) -> bool {
        false
    }

    /// Gives it that memory. What it has no use for comes back, to be dropped without any lock.
    fn admit(&mut self, claim: Claim) -> Option<Claim> {
        Some(claim)
    }

    /// True if it holds a block.
    fn pins(&self) -> bool {
        false
    }

    /// Copies what it has out of the block that it holds, to memory that was claimed. Gives back the view of the block,
    /// or the memory if it has no use for it: they are dropped without any lock.
    fn let_go(&mut self, claim: Claim) -> (Option<View>, Option<Claim>) {
        (None, Some(claim))
    }

    /// True if much is to be done for the answer, which is left to whoever takes it: a buffer that is filled when its
    /// task begins is still in the processor's cache when the task looks at it.
    fn is_later(&self, _shared: &Shared) -> bool {
        false
    }

    /// The answer, once.
    fn finish(&mut self, shared: &Arc<Shared>) -> Result<T>;
}

pub(crate) enum Pending<T> {
    /// Answered when it was asked for; `None` once it was given out.
    Ready(Option<Result<T>>),
    /// All bytes are in the page cache; the answer is made when it is taken. `None` from then on.
    There(Option<(Arc<Shared>, Box<dyn Finish<T>>)>),
    Waiting(Wait<T>),
}

pub(crate) struct Wait<T> {
    pub(crate) shared: Arc<Shared>,
    pub(crate) request: Arc<Request<T>>,
    pub(crate) ticket: Ticket,
}

/// A request, as readers see it. Its lock is held for no longer than bytes of one block are copied, and no function
/// of users is called under it but those of a buffer that is filled. No other lock is taken under it.
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
    /// Nobody wants it any more, or its answer was taken.
    gone: bool,
}

type Then<T> = Box<dyn FnOnce(Result<T>) + Send>;

enum Wake<T> {
    Nobody,
    Task(Waker),
    Call(Then<T>),
}

/// An answer that was taken and is still to be made, without any lock.
enum Outcome<T> {
    /// With what was to become the answer: its buffer is free before anybody hears of the error.
    Failed(Error, Option<Box<dyn Finish<T>>>),
    Whole(Box<dyn Finish<T>>),
}

impl<T> Outcome<T> {
    fn make(self, shared: &Arc<Shared>) -> Result<T> {
        match self {
            Outcome::Failed(error, finish) => {
                drop(finish);
                Err(error)
            }
            Outcome::Whole(mut finish) => finish.finish(shared),
        }
    }
}

/// Blocks that a request waits for that has no memory for its answer yet.
pub(crate) const LATE: usize = usize::MAX / 2;

/// What readers do with requests of any kind.
pub(crate) trait Deliver: Send + Sync {
    /// First byte and number of bytes.
    fn range(&self) -> (u64, usize);
    /// The first bytes of these that it needs; none at their end if it needs none.
    fn needs(&self, part: &Range<u64>) -> Range<u64>;
    /// What was asked for of a block, from `at` of the file. True if it is answered by now, or nobody wants it.
    fn deliver(&self, shared: &Arc<Shared>, at: u64, piece: Piece<'_>) -> bool;
    /// True if its answer was taken, or nobody wants it.
    fn taken(&self) -> bool;
    /// True if its answer holds a block, and nobody has taken it yet.
    fn pins(&self) -> bool;
    /// Gets memory for its answer, and hears how many blocks it waits for, after it had [`LATE`] ones. True if it is
    /// answered by now, or nobody wants it.
    fn admit(&self, shared: &Arc<Shared>, claim: Claim, missing: usize) -> bool;
    /// Copies the answer out of the block that it holds, to memory that was claimed, if nobody has taken it yet.
    fn let_go(&self, claim: Claim);
    /// It cannot be answered.
    fn fail(&self, shared: &Arc<Shared>, error: Error);
}

thread_local! {
    /// This thread calls a function with an answer.
    static CALLS_BACK: Cell<bool> = const { Cell::new(false) };
}

/// True in a function that is called with an answer ([`Read::then`]), or told of one: waiting for another read there is
/// an error.
pub fn answers_here() -> bool {
    CALLS_BACK.get()
}

/// Calls what users gave us. Their panics have been reported by the hook of the process and end nothing here.
fn theirs(call: impl FnOnce()) -> bool {
    catch_unwind(AssertUnwindSafe(call)).is_ok()
}

/// As [`theirs`], for what is called with an answer.
fn answer(call: impl FnOnce()) {
    // In a model all threads are one.
    let before = CALLS_BACK.replace(!cfg!(feature = "shuttle"));
    theirs(call);
    CALLS_BACK.set(before);
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
        sync::lock(&self.progress)
    }

    /// Tells whoever waits.
    fn wake(&self, mut progress: MutexGuard<'_, Progress<T>>, shared: &Arc<Shared>) {
        match std::mem::replace(&mut progress.wake, Wake::Nobody) {
            Wake::Nobody => {
                drop(progress);
                self.answered.notify_all();
            }
            Wake::Task(waker) => {
                drop(progress);
                self.answered.notify_all();
                answer(|| waker.wake());
            }
            Wake::Call(then) => {
                let outcome = progress.take();
                drop(progress);
                if let Some(outcome) = outcome {
                    answer(|| then(outcome.make(shared)));
                }
            }
        }
    }
}

impl<T> Progress<T> {
    fn answered(&self) -> bool {
        self.missing == 0 || self.failure.is_some()
    }

    /// What the answer is made of, once.
    fn take(&mut self) -> Option<Outcome<T>> {
        if self.gone || !self.answered() {
            return None;
        }
        self.gone = true;
        let finish = self.finish.take();
        match self.failure.take() {
            Some(error) => Some(Outcome::Failed(error, finish)),
            None => finish.map(Outcome::Whole),
        }
    }
}

impl<T: Send + 'static> Deliver for Request<T> {
    fn range(&self) -> (u64, usize) {
        (self.offset, self.len)
    }

    fn needs(&self, part: &Range<u64>) -> Range<u64> {
        let end = part.end..part.end;
        self.lock().finish.as_ref().map_or(end, |finish| finish.needs(part))
    }

    fn taken(&self) -> bool {
        self.lock().gone
    }

    fn pins(&self) -> bool {
        self.lock().finish.as_ref().is_some_and(|finish| finish.pins())
    }

    fn admit(&self, shared: &Arc<Shared>, claim: Claim, missing: usize) -> bool {
        let mut progress = self.lock();
        let failed = progress.failure.is_some();
        let Some(finish) = progress.finish.as_mut().filter(|_| !failed) else {
            drop(progress);
            drop(claim);
            return true;
        };
        let unused = finish.admit(claim);
        // Blocks may have come before this.
        progress.missing = (progress.missing + missing).saturating_sub(LATE);
        let answered = progress.missing == 0;
        if answered {
            self.wake(progress, shared);
        } else {
            drop(progress);
        }
        drop(unused);
        answered
    }

    fn let_go(&self, claim: Claim) {
        let mut progress = self.lock();
        let gone = match &mut progress.finish {
            Some(finish) => finish.let_go(claim),
            None => (None, Some(claim)),
        };
        // A view or memory that is given up may wake readers, which takes another lock.
        drop(progress);
        drop(gone);
    }

    fn deliver(&self, shared: &Arc<Shared>, at: u64, piece: Piece<'_>) -> bool {
        let mut progress = self.lock();
        if progress.gone || progress.failure.is_some() {
            return true;
        }
        let taken = match &mut progress.finish {
            Some(finish) => theirs(|| finish.piece(shared, at, piece)),
            None => true,
        };
        if !taken {
            drop(progress);
            let error = Error::usage("the buffer of this read panicked").at_offset(self.offset);
            self.fail(shared, error);
            return true;
        }
        progress.missing = progress.missing.saturating_sub(1);
        if progress.missing > 0 {
            return false;
        }
        self.wake(progress, shared);
        true
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
    /// What is there already.
    pub(crate) fn there(shared: &Arc<Shared>, mut finish: impl Finish<T> + 'static) -> Self {
        if finish.is_later(shared) {
            return Pending::There(Some((shared.clone(), Box::new(finish))));
        }
        Pending::Ready(Some(finish.finish(shared)))
    }

    /// The answer if it is there.
    fn poll(&mut self, waker: Option<&Waker>) -> Option<Result<T>> {
        match self {
            Pending::Ready(answer) => answer.take(),
            Pending::There(finish) => finish.take().map(|(shared, mut f)| f.finish(&shared)),
            Pending::Waiting(wait) => {
                let mut progress = wait.request.lock();
                let outcome = progress.take();
                if outcome.is_none()
                    && let Some(waker) = waker
                {
                    progress.wake = Wake::Task(waker.clone());
                }
                let waits = outcome.is_none() && !progress.gone;
                drop(progress);
                if waits {
                    wait.shared.urge(wait.ticket, Urge::IsTold);
                }
                let answer = outcome.map(|o| o.make(&wait.shared));
                if answer.is_some() {
                    // It takes part in nothing any more, also if it is kept.
                    *self = Pending::Ready(None);
                }
                answer
            }
        }
    }

    fn urge(&self) {
        if let Pending::Waiting(wait) = self {
            wait.shared.urge(wait.ticket, Urge::IsTold);
        }
    }

    /// True if there is an answer; else the waker is called once there is.
    fn watch(&mut self, waker: &Waker) -> bool {
        let Pending::Waiting(wait) = self else { return true };
        let mut progress = wait.request.lock();
        let over = progress.answered() || progress.gone;
        if !over {
            progress.wake = Wake::Task(waker.clone());
        }
        over
    }

    fn is_ready(&self) -> bool {
        match self {
            Pending::Ready(_) | Pending::There(_) => true,
            Pending::Waiting(wait) => {
                let progress = wait.request.lock();
                let (ready, gone) = (progress.answered(), progress.gone);
                drop(progress);
                if !ready && !gone {
                    // Whoever asks again and again waits as well.
                    wait.shared.urge(wait.ticket, Urge::Looks);
                }
                ready
            }
        }
    }

    fn wait_until(&mut self, until: Option<Instant>) -> Option<Result<T>> {
        let Pending::Waiting(wait) = self else { return self.poll(None) };
        let mut progress = wait.request.lock();
        if !progress.answered() && !progress.gone {
            drop(progress);
            if CALLS_BACK.get() {
                let message =
                    "waited for a read in a function that is called with the answer of another";
                return Some(
                    Err(Error::usage(message).with_hint("give that read a function, too")),
                );
            }
            wait.shared.urge(wait.ticket, Urge::Stands);
            progress = wait.request.lock();
        }
        let outcome = loop {
            if let Some(outcome) = progress.take() {
                break outcome;
            }
            if progress.gone {
                return None;
            }
            let (answered, mutex) = (&wait.request.answered, &wait.request.progress);
            progress = match until.map(|u| u.saturating_duration_since(clock::now())) {
                None => sync::wait(answered, progress),
                Some(Duration::ZERO) => {
                    drop(progress);
                    // It no longer stands there and waits.
                    wait.shared.urge(wait.ticket, Urge::Looks);
                    return None;
                }
                Some(left) => sync::wait_for(answered, mutex, progress, left).0,
            };
        };
        drop(progress);
        let answer = outcome.make(&wait.shared);
        *self = Pending::Ready(None);
        Some(answer)
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
        match progress.take() {
            Some(outcome) => {
                drop(progress);
                then(outcome.make(&wait.shared));
            }
            None if progress.gone => {
                drop(progress);
                then(taken());
            }
            // It goes on without this handle.
            None => {
                progress.wake = Wake::Call(then);
                drop(progress);
                wait.shared.urge(wait.ticket, Urge::IsTold);
            }
        }
    }
}

impl<T> Drop for Wait<T> {
    fn drop(&mut self) {
        let mut progress = sync::lock(&self.request.progress);
        if matches!(progress.wake, Wake::Call(_)) {
            return;
        }
        let open = !progress.gone && !progress.answered();
        progress.gone = true;
        let finish = progress.finish.take();
        let wake = std::mem::replace(&mut progress.wake, Wake::Nobody);
        drop(progress);
        drop((finish, wake));
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

            /// True if the answer is there; else the task is woken once it is. The answer stays where it is, and nobody
            /// is taken to wait: where memory is short, answers that are waited for come first, and this one may
            /// not come before [`Self::urge`] or a wait.
            pub fn watch(&mut self, cx: &mut Context<'_>) -> bool {
                self.0.watch(cx.waker())
            }

            /// Says that somebody waits for it.
            pub fn urge(&self) {
                self.0.urge();
            }

            /// Gives the answer to a function: at once if it is there, else from a reader's thread, which must
            /// not be kept: hand the answer on. Waiting for another read there is an error.
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
