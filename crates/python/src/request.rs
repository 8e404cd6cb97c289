//! One read that was asked for, as Python has it: awaited, waited for, called back, cancelled.
//!
//! Readers never take the interpreter's lock, for which they might wait long: they leave word (`bell`), and whoever
//! holds the lock makes the objects. Locks are taken in this order: a request, then the interpreter's, then those of
//! the library; a thread that has the interpreter's gives it up while it waits for a request (`lock_py_attached`).

use crate::bell::{self, Ring};
use crate::bytes::{self, Held, Part};
use crate::errors::raise;
use crate::fork;
use pyo3::exceptions::{PyStopIteration, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::{MutexExt, PyOnceLock};
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;
use stead::read::{ReadInto, View};
use stead::{Error, Kind};

/// How often a main thread that waits looks whether a signal has come.
const SIGNALS: Duration = Duration::from_millis(50);

/// Bytes from which on a loop of asyncio has them copied elsewhere, as it would stand still for a millisecond.
const MUCH: usize = 4 << 20;

/// What the library was asked for.
pub enum Asked {
    View(stead::read::Read),
    /// With its number of bytes.
    Strided(ReadInto<Vec<u8>>, usize),
    /// Answered by the object whose buffer it is. With the number of bytes to fill.
    Into(ReadInto<Part>, usize),
}

enum Got {
    View(stead::Result<View>),
    Strided(stead::Result<Vec<u8>>),
    Into(stead::Result<Part>),
}

impl Asked {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Got> {
        match self {
            Asked::View(read) => Pin::new(read).poll(cx).map(Got::View),
            Asked::Strided(read, _) => Pin::new(read).poll(cx).map(Got::Strided),
            Asked::Into(read, _) => Pin::new(read).poll(cx).map(Got::Into),
        }
    }

    /// How many bytes taking the answer may copy.
    fn copies(&self) -> usize {
        match self {
            Asked::View(_) => 0,
            Asked::Strided(_, bytes) | Asked::Into(_, bytes) => *bytes,
        }
    }
}

enum Answer {
    /// The library's, until somebody asks for it.
    Got(Got),
    /// Somebody makes an object of it, without the lock: Python may run any code then.
    Making,
    Value(Py<PyAny>),
    Failed(PyErr),
}

/// Who wants to know.
pub enum Waiter {
    /// A future of asyncio, whose loop hears this bell.
    Future(Py<PyAny>, Arc<Ring>),
    /// A function, and the read that it gets.
    Call(Py<PyAny>, Py<Read>),
}

struct State {
    asked: Option<Asked>,
    answer: Option<Answer>,
    cancelled: bool,
    waiters: Vec<Waiter>,
    /// Threads that stand still until there is an answer.
    standing: usize,
    /// It was told that there may be an answer since the library was asked for it last. While this is false and there
    /// is no answer, whoever waits will be told.
    woken: bool,
}

impl State {
    /// True if who waits has something to do.
    fn calls(&self) -> bool {
        self.woken || !matches!(self.answer, None | Some(Answer::Making))
    }

    /// True if somebody waits for it.
    fn is_wanted(&self) -> bool {
        !self.waiters.is_empty() || self.standing > 0
    }
}

/// What a read and those who wait for it share.
pub struct Core {
    state: Mutex<State>,
    came: Condvar,
    born: u32,
}

impl Wake for Core {
    fn wake(self: Arc<Self>) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        self.tell(state);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.born != fork::generation() {
            // Its locks may be those of threads that are not here.
            let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
            std::mem::forget((state.asked.take(), state.answer.take()));
        }
    }
}

impl Core {
    fn new(asked: Asked) -> Arc<Core> {
        let state = State {
            asked: Some(asked),
            answer: None,
            cancelled: false,
            waiters: Vec::new(),
            standing: 0,
            woken: false,
        };
        Arc::new(Core { state: Mutex::new(state), came: Condvar::new(), born: fork::generation() })
    }

    fn lock(&self, py: Python<'_>) -> MutexGuard<'_, State> {
        self.state.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all who wait, in whatever thread.
    fn tell(self: &Arc<Self>, mut state: MutexGuard<'_, State>) {
        state.woken = true;
        self.came.notify_all();
        let mut calls = false;
        // The loop is told when they are copied.
        let much = copies_much(&state);
        for waiter in &state.waiters {
            match waiter {
                Waiter::Future(_, ring) if !much => ring.push(self.clone()),
                Waiter::Future(..) | Waiter::Call(..) => calls = true,
            }
        }
        drop(state);
        if calls {
            bell::call_back(self.clone());
        }
    }

    /// Looks whether there is an answer; has itself woken otherwise. The state comes back.
    fn look<'a>(self: &'a Arc<Self>, py: Python<'_>) -> MutexGuard<'a, State> {
        let mut state = self.lock(py);
        match &state.asked {
            None => return state,
            // Another thread may hold the lock of the interpreter while bytes are copied.
            Some(asked) if asked.copies() > 0 => {
                drop(state);
                py.detach(|| {
                    let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                    self.poll(&mut state);
                });
                state = self.lock(py);
            }
            Some(_) => self.poll(&mut state),
        }
        state
    }

    fn poll(self: &Arc<Self>, state: &mut State) {
        state.woken = false;
        let Some(asked) = &mut state.asked else { return };
        let waker = Waker::from(self.clone());
        if let Poll::Ready(got) = asked.poll(&mut Context::from_waker(&waker)) {
            state.asked = None;
            state.answer = Some(Answer::Got(got));
        }
    }

    /// Wants it no more. False if it is answered.
    fn cancel(self: &Arc<Self>, py: Python<'_>) -> bool {
        let error = raise(Error::new(Kind::Cancelled, "the read was cancelled"));
        let mut state = self.lock(py);
        let Some(asked) = state.asked.take() else { return state.cancelled };
        state.cancelled = true;
        state.answer = Some(Answer::Failed(error));
        self.tell(state);
        drop(asked);
        bytes::release(py);
        true
    }

    /// The answer, if it is there. Gives back the lock.
    fn answer<'a>(
        self: &'a Arc<Self>,
        py: Python<'_>,
        mut state: MutexGuard<'a, State>,
    ) -> Option<PyResult<Py<PyAny>>> {
        match state.answer.as_ref()? {
            Answer::Value(value) => return Some(Ok(value.clone_ref(py))),
            Answer::Failed(e) => return Some(Err(e.clone_ref(py))),
            Answer::Making => return None,
            Answer::Got(_) => {}
        }
        let Some(Answer::Got(got)) = state.answer.replace(Answer::Making) else { return None };
        drop(state);
        let view = |held| bytes::view(py, held);
        let made = match got {
            Got::View(got) => got.map_err(raise).and_then(|v| view(Held::View(v))),
            Got::Strided(got) => got.map_err(raise).and_then(|v| view(Held::Own(v))),
            Got::Into(got) => got.map_err(raise).map(|p| p.buffer.owner().clone_ref(py)),
        };
        bytes::release(py);
        let mut state = self.lock(py);
        state.answer = Some(match &made {
            Ok(value) => Answer::Value(value.clone_ref(py)),
            Err(e) => Answer::Failed(e.clone_ref(py)),
        });
        self.tell(state);
        Some(made)
    }

    /// Waits without the interpreter's lock, no longer than `timeout`. Signals are heard.
    fn wait(self: &Arc<Self>, py: Python<'_>, timeout: Option<Duration>) -> PyResult<Py<PyAny>> {
        let mut left = timeout;
        let (mut main, mut stands) = (None, None);
        loop {
            let state = self.look(py);
            if let Some(answer) = self.answer(py, state) {
                return answer;
            }
            if left.is_some_and(|l| l.is_zero()) {
                return Err(raise(Error::new(Kind::Timeout, "the read is not answered yet")));
            }
            stands.get_or_insert_with(|| Standing::new(self, py));
            // Signals are the main thread's; all others sleep until they are woken.
            let main = match main {
                Some(main) => main,
                None => *main.insert(is_main_thread(py)?),
            };
            let slice = match (main, left) {
                (true, Some(left)) => Some(left.min(SIGNALS)),
                (true, None) => Some(SIGNALS),
                (false, left) => left,
            };
            let late = py.detach(|| self.sleep(slice));
            if late && let (Some(left), Some(slice)) = (&mut left, slice) {
                *left = left.saturating_sub(slice);
            }
            py.check_signals()?;
        }
    }

    /// Sleeps until it is woken, no longer than `most`: true if that is over.
    fn sleep(&self, most: Option<Duration>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.calls() {
            return false;
        }
        match most {
            None => {
                drop(self.came.wait(state).unwrap_or_else(PoisonError::into_inner));
                false
            }
            Some(most) => {
                let waited = self.came.wait_timeout(state, most);
                waited.unwrap_or_else(PoisonError::into_inner).1.timed_out()
            }
        }
    }

    /// Answers the futures that belong to this bell, in the thread of their loop.
    pub fn serve(self: &Arc<Self>, py: Python<'_>, ring: &Arc<Ring>) -> PyResult<()> {
        let mut state = self.look(py);
        if state.answer.is_none() {
            return Ok(());
        }
        let mut futures = Vec::new();
        state.waiters.retain(|waiter| match waiter {
            Waiter::Future(future, theirs) if Arc::ptr_eq(ring, theirs) => {
                futures.push(future.clone_ref(py));
                false
            }
            _ => true,
        });
        let answer = match self.answer(py, state) {
            Some(answer) => answer,
            // Another thread makes it at this moment.
            None => self.wait(py, None),
        };
        let mut served = Ok(());
        for future in futures {
            served = served.and(set(future.bind(py), &answer));
        }
        served
    }

    /// The loop of these futures is closed: nobody waits there.
    pub fn forget(self: &Arc<Self>, py: Python<'_>, ring: &Arc<Ring>) {
        let mut state = self.lock(py);
        let (gone, rest) = std::mem::take(&mut state.waiters).into_iter().partition(
            |w: &Waiter| matches!(w, Waiter::Future(_, theirs) if Arc::ptr_eq(ring, theirs)),
        );
        state.waiters = rest;
        let wanted = state.is_wanted();
        drop(state);
        let gone: Vec<Waiter> = gone;
        if !gone.is_empty() && !wanted {
            self.cancel(py);
        }
        // Objects of Python go without any lock.
        drop(gone);
    }

    /// Calls the functions that wait, and rings for the futures.
    pub fn call(self: &Arc<Self>, py: Python<'_>) {
        let mut state = self.look(py);
        if state.answer.is_none() {
            return;
        }
        let (calls, rest) = std::mem::take(&mut state.waiters)
            .into_iter()
            .partition(|waiter| matches!(waiter, Waiter::Call(..)));
        state.waiters = rest;
        for waiter in &state.waiters {
            if let Waiter::Future(_, ring) = waiter {
                ring.push(self.clone());
            }
        }
        drop(state);
        let calls: Vec<Waiter> = calls;
        for waiter in calls {
            if let Waiter::Call(function, read) = waiter {
                tell_one(function.bind(py), read.bind(py));
            }
        }
    }
}

/// A thread that stands still for an answer: the read is not given up by others meanwhile.
struct Standing<'a, 'py> {
    core: &'a Core,
    py: Python<'py>,
}

impl<'a, 'py> Standing<'a, 'py> {
    fn new(core: &'a Core, py: Python<'py>) -> Self {
        core.lock(py).standing += 1;
        Standing { core, py }
    }
}

impl Drop for Standing<'_, '_> {
    fn drop(&mut self) {
        self.core.lock(self.py).standing -= 1;
    }
}

/// True if taking the answer copies so many bytes that a loop must not do it.
fn copies_much(state: &State) -> bool {
    state.asked.as_ref().is_some_and(|asked| asked.copies() >= MUCH)
}

/// Answers a future; one that was cancelled wants nothing.
fn set(future: &Bound<'_, PyAny>, answer: &PyResult<Py<PyAny>>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match answer {
        Ok(value) => future.call_method1(intern!(py, "set_result"), (value,))?,
        Err(e) => future.call_method1(intern!(py, "set_exception"), (e.clone_ref(py),))?,
    };
    Ok(())
}

/// Calls a function of a user; what it raises is reported as Python does where nobody can catch it.
fn tell_one(function: &Bound<'_, PyAny>, read: &Bound<'_, Read>) {
    if let Err(e) = function.call1((read,)) {
        e.write_unraisable(function.py(), Some(function));
    }
}

pub fn is_main_thread(py: Python<'_>) -> PyResult<bool> {
    let threading = py.import(intern!(py, "threading"))?;
    let main = threading.call_method0(intern!(py, "main_thread"))?;
    let here = threading.call_method0(intern!(py, "get_ident"))?;
    main.getattr(intern!(py, "ident"))?.eq(here)
}

/// Seconds that somebody will wait; None is as long as it takes.
pub fn seconds(given: Option<f64>, name: &str) -> PyResult<Option<Duration>> {
    match given {
        None => Ok(None),
        Some(s) if s.is_nan() => {
            Err(PyValueError::new_err(format!("{name}= is a number of seconds, not NaN")))
        }
        // Longer than anybody waits.
        Some(s) => Ok(Some(Duration::try_from_secs_f64(s.max(0.0)).unwrap_or(Duration::MAX))),
    }
}

/// A read that was asked for: `await` it, or take its `result`. When nobody has it any more, it is cancelled.
#[pyclass(frozen, module = "stead", weakref)]
pub struct Read {
    core: Arc<Core>,
}

impl Read {
    pub fn new(asked: Asked) -> Read {
        Read { core: Core::new(asked) }
    }

    /// The answer to what was asked, with no object in between if it is there.
    pub fn at_once(py: Python<'_>, asked: Asked) -> PyResult<Py<PyAny>> {
        let core = Core::new(asked);
        let answer = core.wait(py, None);
        // A signal may have ended the waiting.
        let asked = core.lock(py).asked.take();
        drop(asked);
        bytes::release(py);
        answer
    }
}

#[pymethods]
impl Read {
    /// The answer: a View, or the buffer that was filled. Waits for it, no longer than `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn result(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Py<PyAny>> {
        fork::check(self.core.born)?;
        self.core.wait(py, seconds(timeout, "timeout")?)
    }

    /// The exception that `result` would raise, or None. Waits for it, no longer than `timeout` seconds.
    #[pyo3(signature = (timeout = None))]
    fn exception(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<Py<PyAny>>> {
        fork::check(self.core.born)?;
        let timeout = seconds(timeout, "timeout")?;
        let waited = self.core.wait(py, timeout);
        let state = self.core.lock(py);
        match (self.core.answer(py, state), waited) {
            (Some(Ok(_)), _) => Ok(None),
            (Some(Err(e)), _) => Ok(Some(e.into_value(py).into_any())),
            // It is not answered: the time is over, or a signal came.
            (None, Err(e)) => Err(e),
            (None, Ok(_)) => Ok(None),
        }
    }

    /// True if there is an answer, or it was cancelled.
    fn done(&self, py: Python<'_>) -> PyResult<bool> {
        fork::check(self.core.born)?;
        Ok(self.core.look(py).answer.is_some())
    }

    /// True after `cancel`.
    fn cancelled(&self, py: Python<'_>) -> PyResult<bool> {
        fork::check(self.core.born)?;
        Ok(self.core.lock(py).cancelled)
    }

    /// Wants it no more: who waits for it gets a CancelledError, and no buffer is written to any more. False if it is
    /// answered already.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        fork::check(self.core.born)?;
        Ok(self.core.cancel(py))
    }

    /// Calls `function(read)` once there is an answer: at once, or later in a thread of its own.
    fn add_done_callback(slf: Bound<'_, Read>, function: Py<PyAny>) -> PyResult<()> {
        let py = slf.py();
        let core = &slf.get().core;
        fork::check(core.born)?;
        let mut state = core.look(py);
        if state.answer.is_none() {
            state.waiters.push(Waiter::Call(function, slf.clone().unbind()));
            if state.woken {
                drop(state);
                bell::call_back(core.clone());
            }
            return Ok(());
        }
        drop(state);
        tell_one(function.bind(py), &slf);
        Ok(())
    }

    fn __await__(slf: Bound<'_, Read>) -> PyResult<Waiting> {
        let py = slf.py();
        let core = &slf.get().core;
        fork::check(core.born)?;
        let much = copies_much(&core.lock(py));
        // In the thread that would copy for the loop, the loop does it.
        if (!much && core.look(py).answer.is_some()) || (much && bell::calls_here()) {
            return Ok(Waiting { read: Some(slf.unbind()), future: None });
        }
        let (ring, future) = bell::future(py)?;
        let inner = future.call_method0(intern!(py, "__await__"))?;
        ring.expect(core);
        let mut state = core.lock(py);
        state.waiters.push(Waiter::Future(future.clone().unbind(), ring.clone()));
        if copies_much(&state) {
            // Another thread looks for it.
            drop(state);
            bell::call_back(core.clone());
        } else {
            if state.woken || state.answer.is_some() {
                // It came meanwhile.
                ring.push(core.clone());
            }
            drop(state);
        }
        Ok(Waiting { read: Some(slf.unbind()), future: Some((future.unbind(), inner.unbind())) })
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        if fork::check(self.core.born).is_err() {
            return "<stead.Read of another process>".to_owned();
        }
        let state = self.core.lock(py);
        let what = match (&state.answer, state.cancelled) {
            (_, true) => "cancelled",
            (None, _) => "waiting",
            (Some(_), _) => "done",
        };
        format!("<stead.Read {what}>")
    }
}

/// Python's own functions that are called often, looked up once.
pub fn cached<'py>(
    py: Python<'py>,
    cell: &'static PyOnceLock<Py<PyAny>>,
    module: &str,
    name: &str,
) -> PyResult<&'py Bound<'py, PyAny>> {
    cell.get_or_try_init(py, || Ok(py.import(module)?.getattr(name)?.unbind())).map(|f| f.bind(py))
}

/// What `await` runs: gives the future to the loop, and the answer to the task. If the task gives up, the read is
/// cancelled, unless others wait for it.
#[pyclass(module = "stead._stead")]
pub struct Waiting {
    /// `None` once it has ended.
    read: Option<Py<Read>>,
    future: Option<(Py<PyAny>, Py<PyAny>)>,
}

#[pymethods]
impl Waiting {
    fn __iter__(slf: Bound<'_, Self>) -> Bound<'_, Self> {
        slf
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.read)?;
        if let Some((future, inner)) = &self.future {
            visit.call(future)?;
            visit.call(inner)?;
        }
        Ok(())
    }

    fn __clear__(&mut self) {
        self.give_up();
    }

    fn __next__(&mut self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        if let Some((_, inner)) = &self.future {
            let step = inner.call_method0(py, intern!(py, "__next__"));
            if step.is_err() {
                // With the answer, or the error.
                self.read = None;
            }
            return step;
        }
        let Some(read) = self.read.take() else { return Err(PyStopIteration::new_err(())) };
        Err(PyStopIteration::new_err((read.get().core.wait(py, None)?,)))
    }
}

/// Objects go at any moment, also while an exception is on its way, which must find its way all the same.
pub fn undisturbed(work: impl FnOnce(Python<'_>)) {
    Python::try_attach(|py| {
        let exception = PyErr::take(py);
        work(py);
        if let Some(exception) = exception {
            exception.restore(py);
        }
    });
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.give_up();
    }
}

impl Waiting {
    /// Its task wants the answer no more.
    fn give_up(&mut self) {
        let (Some(read), Some((future, _))) = (self.read.take(), self.future.take()) else {
            return;
        };
        undisturbed(|py| {
            let core = &read.get().core;
            if core.born != fork::generation() {
                return;
            }
            let mut state = core.lock(py);
            state.waiters.retain(|w| !matches!(w, Waiter::Future(f, _) if f.is(&future)));
            let wanted = state.is_wanted();
            drop(state);
            if !wanted {
                core.cancel(py);
            }
        });
    }
}

impl Drop for Read {
    fn drop(&mut self) {
        // Those who wait have a reference of their own, so that nobody does.
        if self.core.born == fork::generation() {
            undisturbed(|py| {
                let asked = self.core.lock(py).asked.take();
                drop(asked);
                bytes::release(py);
            });
        }
    }
}
