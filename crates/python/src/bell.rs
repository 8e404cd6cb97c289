//! How readers leave word that reads are answered, without the interpreter's lock: to the loops of asyncio by a byte
//! in a socket for as many answers as there are, to functions by a thread that calls them.

use crate::fork;
use crate::request::{Core, cached, undisturbed};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use std::cell::Cell;
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;

/// Answered reads of one loop, and the socket that wakes it.
pub struct Ring {
    queue: Mutex<Vec<Arc<Core>>>,
    /// Reads that futures of the loop wait for, and some that are gone.
    awaited: Mutex<Vec<Weak<Core>>>,
    ours: UnixStream,
    loops: UnixStream,
}

impl Ring {
    /// Called by readers.
    pub fn push(&self, core: Arc<Core>) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.push(core);
        if queue.len() == 1 {
            drop(queue);
            // There is one byte at most, so that it always fits.
            let _ = (&self.ours).write(&[1]);
        }
    }

    /// A future of the loop waits for this read. Called with the interpreter's lock.
    pub fn expect(&self, core: &Arc<Core>) {
        let mut awaited = self.awaited.lock().unwrap_or_else(PoisonError::into_inner);
        if awaited.len() == awaited.capacity() {
            awaited.retain(|core| core.strong_count() > 0);
            // Not again before there are twice as many.
            let alive = awaited.len();
            awaited.reserve(alive);
        }
        awaited.push(Arc::downgrade(core));
    }
}

/// What a loop hears: `answer` is called when the socket can be read. The loop alone has it, so that it goes when the loop
/// is closed.
#[pyclass(frozen, module = "stead._stead", weakref)]
pub struct Bell {
    ring: Arc<Ring>,
    born: u32,
}

fn taken<T>(of: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *of.lock().unwrap_or_else(PoisonError::into_inner))
}

impl Drop for Bell {
    fn drop(&mut self) {
        if self.born != fork::generation() {
            return;
        }
        // The futures of a loop that is closed are never answered; without them their tasks can go, too.
        undisturbed(|py| {
            let answered = taken(&self.ring.queue);
            let awaited = taken(&self.ring.awaited);
            drop(answered);
            for core in awaited.iter().filter_map(Weak::upgrade) {
                core.forget(py, &self.ring);
            }
        });
    }
}

#[pymethods]
impl Bell {
    #[new]
    fn new() -> PyResult<Bell> {
        let (ours, loops) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        loops.set_nonblocking(true)?;
        let (queue, awaited) = (Mutex::default(), Mutex::default());
        let ring = Arc::new(Ring { queue, awaited, ours, loops });
        Ok(Bell { ring, born: fork::generation() })
    }

    /// The file descriptor that becomes readable.
    fn fileno(&self) -> i32 {
        self.ring.loops.as_raw_fd()
    }

    /// Answers the futures whose reads are answered.
    fn answer(&self, py: Python<'_>) -> PyResult<()> {
        // First the byte, then the queue: what comes in between is taken, at the price of one call for nothing.
        let mut bytes = [0; 8];
        let _ = (&self.ring.loops).read(&mut bytes);
        let cores = taken(&self.ring.queue);
        // Each gets its answer, whatever becomes of the others.
        let mut served = Ok(());
        for core in cores {
            served = served.and(core.serve(py, &self.ring));
        }
        served
    }
}

/// A future of the loop that runs in this thread, and its bell.
///
/// # Errors
/// `RuntimeError` if none runs.
pub fn future(py: Python<'_>) -> PyResult<(Arc<Ring>, Bound<'_, PyAny>)> {
    static FIND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let (running, bell): (Bound<'_, PyAny>, Bound<'_, Bell>) =
        cached(py, &FIND, "stead._read", "bell_of_the_loop")?.call0()?.extract()?;
    let future = running.call_method0(intern!(py, "create_future"))?;
    Ok((bell.get().ring.clone(), future))
}

/// The thread that calls functions of users.
struct Caller {
    shared: Arc<Calls>,
    thread: JoinHandle<()>,
    born: u32,
}

#[derive(Default)]
struct Calls {
    queue: Mutex<Queue>,
    more: Condvar,
}

#[derive(Default)]
struct Queue {
    cores: Vec<Arc<Core>>,
    over: bool,
}

thread_local! {
    /// This is the thread that calls functions of users.
    static CALLS: Cell<bool> = const { Cell::new(false) };
}

/// True in a function that is called with a read: what such functions are called for must not be waited for there.
pub fn calls_here() -> bool {
    CALLS.get()
}

impl Calls {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        CALLS.set(true);
        loop {
            let mut queue = self.lock();
            while queue.cores.is_empty() && !queue.over {
                queue = self.more.wait(queue).unwrap_or_else(PoisonError::into_inner);
            }
            let cores = std::mem::take(&mut queue.cores);
            if cores.is_empty() {
                return;
            }
            drop(queue);
            let called = Python::try_attach(|py| cores.iter().for_each(|core| core.call(py)));
            if called.is_none() {
                return;
            }
        }
    }
}

/// One for each generation of processes: a child may have inherited a lock that nobody there will give up.
static CALLERS: [Mutex<Option<Caller>>; 16] = [const { Mutex::new(None) }; 16];

/// The interpreter is about to end: nobody is called any more.
static OVER: AtomicBool = AtomicBool::new(false);

fn caller() -> MutexGuard<'static, Option<Caller>> {
    let generation = fork::generation() as usize % CALLERS.len();
    CALLERS[generation].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Has the functions called that wait for this read. Called by readers.
pub fn call_back(core: Arc<Core>) {
    let mut caller = caller();
    if OVER.load(Ordering::SeqCst) {
        return;
    }
    if caller.as_ref().is_none_or(|c| c.born != fork::generation()) {
        let shared = Arc::<Calls>::default();
        let theirs = shared.clone();
        let name = "stead-callbacks".to_owned();
        let thread = std::thread::Builder::new().name(name).spawn(move || theirs.run());
        // Without a thread nobody is called; who waits for the answer gets it all the same.
        let Ok(thread) = thread else { return };
        *caller = Some(Caller { shared, thread, born: fork::generation() });
    }
    if let Some(caller) = &*caller {
        caller.shared.lock().cores.push(core);
        caller.shared.more.notify_one();
    }
}

/// Calls what is to be called and ends the thread. Called when the interpreter is about to end.
#[pyfunction]
pub fn end_callbacks(py: Python<'_>) {
    let caller = {
        let mut caller = caller();
        OVER.store(true, Ordering::SeqCst);
        caller.take()
    };
    let Some(caller) = caller.filter(|c| c.born == fork::generation()) else { return };
    caller.shared.lock().over = true;
    caller.shared.more.notify_one();
    // Of its own it ends with an answer or none; there is nothing to be said about it.
    let _ = py.detach(|| caller.thread.join());
}
