//! Streams: arrays that programs of one node hand to each other, for `stead.writer` and `stead.reader`.
//!
//! Nothing is waited for with the interpreter's lock, and whoever waits in the main thread looks for signals meanwhile. Arrays of Python
//! look at shared memory by [`bytes`](crate::bytes): what they look at stays as long as there is one of them.

use crate::bytes::{self, Held, Memory};
use crate::coupling::Coupling;
use crate::errors::raise;
use crate::fork;
use crate::lend::{Facts, lend};
use crate::request::{is_main_thread, seconds};
use crate::run::Cancel;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::MutexExt;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration;
use stead::daemon::StreamNodes;
use stead::stream::{
    Attribute, Behind, Bounds, Definition, Nodes, Read, Reader, Spaces, Start, Step, Stop, Writer,
    Written, dataspaces,
};
use stead::{ByteOrder, Error, Kind, Order, Result};

/// A part of an array that a writer has put: its rank, and the start and the counts of the part.
type Part = (usize, Vec<u64>, Vec<u64>);
/// Bytes of an array, the type of its elements, its shape.
type Whole = (Py<PyAny>, &'static str, Vec<u64>);

/// How often who waits looks whether a signal has come that did not interrupt the wait, as most do, or another thread has ended it.
pub const SIGNALS: Duration = Duration::from_millis(250);

thread_local! {
    /// The exception of a signal that has ended a wait of this thread.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
    /// Whether this is the main thread, since so many forks.
    static MAIN: Cell<Option<(u32, bool)>> = const { Cell::new(None) };
}

/// Finds out whether this is the main thread, whose the signals are.
fn note_main(py: Python<'_>) -> PyResult<()> {
    let now = fork::generation();
    if MAIN.get().is_none_or(|(then, _)| then != now) {
        MAIN.set(Some((now, is_main_thread(py)?)));
    }
    Ok(())
}

/// Works without the interpreter's lock.
pub fn unlocked<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    note_main(py)?;
    py.detach(work).map_err(failed)
}

/// Ends waits when a signal has come.
pub fn signals() -> Stop {
    let stop = Stop::when(|| {
        if !MAIN.get().is_some_and(|(_, main)| main) {
            return Ok(());
        }
        Python::attach(|py| py.check_signals()).map_err(|e| {
            RAISED.set(Some(e));
            Error::cancelled()
        })
    });
    stop.every(SIGNALS)
}

/// The exception of a signal that has ended a wait of this thread, once.
pub fn interrupted() -> Option<PyErr> {
    RAISED.take()
}

/// The exception for an error, or that of a signal which has ended a wait, whatever else has failed beside it.
pub fn failed(e: Error) -> PyErr {
    interrupted().unwrap_or_else(|| raise(e))
}

pub fn spaces(given: &[String]) -> Result<Spaces> {
    let mut spaces = dataspaces().map_err(Error::of_open_files)?;
    for one in given {
        spaces.give(one, &|name| std::env::var(name).ok())?;
    }
    Ok(spaces)
}

/// Those of an end of a stream: a coupling has its own, and more are an error.
fn spaces_of(given: &[String], is_coupled: bool) -> Result<Spaces> {
    if is_coupled && !given.is_empty() {
        return Err(stead::stream::Coupling::own_dataspaces());
    }
    spaces(given)
}

/// A time to wait for.
///
/// # Errors
/// `ValueError` for NaN.
pub fn patience(given: f64) -> PyResult<Duration> {
    Ok(seconds(Some(given), "timeout")?.unwrap_or_default())
}

fn bounds(start: Vec<u64>, count: Vec<u64>) -> PyResult<Bounds> {
    Bounds::new(start, count).map_err(raise)
}

/// What a stream knows of a variable: the type of its elements, its shape, names of dimensions, attributes.
type Told = (&'static str, Vec<u64>, Vec<String>, Vec<(String, Said)>);

fn told(definition: &Definition) -> Told {
    let attributes = definition.attributes.iter().map(|(name, a)| (name.clone(), Said::of(a)));
    let (shape, dims) = (definition.shape.clone(), definition.dims.clone());
    (definition.dtype.name(), shape, dims, attributes.collect())
}

/// The value of an attribute.
#[derive(FromPyObject, IntoPyObject)]
pub enum Said {
    Text(String),
    Int(i64),
    Float(f64),
    Texts(Vec<String>),
    Ints(Vec<i64>),
    Floats(Vec<f64>),
}

impl Said {
    fn of(a: &Attribute) -> Said {
        match a {
            Attribute::Text(a) => Said::Text(a.clone()),
            Attribute::Int(a) => Said::Int(*a),
            Attribute::Float(a) => Said::Float(*a),
            Attribute::Texts(a) => Said::Texts(a.clone()),
            Attribute::Ints(a) => Said::Ints(a.clone()),
            Attribute::Floats(a) => Said::Floats(a.clone()),
        }
    }
}

impl From<Said> for Attribute {
    fn from(said: Said) -> Attribute {
        match said {
            Said::Text(a) => Attribute::Text(a),
            Said::Int(a) => Attribute::Int(a),
            Said::Float(a) => Attribute::Float(a),
            Said::Texts(a) => Attribute::Texts(a),
            Said::Ints(a) => Attribute::Ints(a),
            Said::Floats(a) => Attribute::Floats(a),
        }
    }
}

/// The writing end of a stream.
#[pyclass(frozen, module = "stead._stead")]
pub struct StreamWriter {
    /// `None` once it is closed.
    inner: Mutex<Option<Writer>>,
    /// The thread that has it, while it waits without the interpreter's lock.
    within: Mutex<Option<ThreadId>>,
    name: String,
    number: u64,
    born: u32,
}

/// Ends that a thread is within a call.
struct Within<'w>(&'w StreamWriter);

impl Drop for Within<'_> {
    fn drop(&mut self) {
        *self.0.within.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl StreamWriter {
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Option<Writer>>> {
        let hint = "open it in the process that uses it";
        fork::refuse(self.born, "this writer was made", hint)?;
        // A handler of a signal runs in the middle of a wait.
        let within = *self.within.lock().unwrap_or_else(PoisonError::into_inner);
        if within == Some(thread::current().id()) {
            let message = format!("this thread waits in a call of the writer of '{}'", self.name);
            let hint = "raise an exception in the handler of the signal: it ends the wait";
            return Err(raise(Error::usage(message).with_hint(hint)));
        }
        Ok(self.inner.lock_py_attached(py).unwrap_or_else(PoisonError::into_inner))
    }

    /// Does something with the writer, without the interpreter's lock.
    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut Writer) -> Result<T> + Send,
    ) -> PyResult<T> {
        let mut inner = self.lock(py)?;
        let Some(writer) = &mut *inner else {
            return Err(raise(Error::usage(format!("stream '{}' is closed", self.name))));
        };
        *self.within.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread::current().id());
        let _within = Within(self);
        unlocked(py, || question(writer))
    }

    /// Ends it, if nobody has.
    fn end_by(
        &self,
        py: Python<'_>,
        how: impl FnOnce(Writer) -> Result<()> + Send,
    ) -> PyResult<()> {
        let Some(writer) = self.lock(py)?.take() else { return Ok(()) };
        unlocked(py, || how(writer))
    }
}

#[pymethods]
impl StreamWriter {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        name: String,
        given: Vec<String>,
        rank: u64,
        writers: u64,
        keep: u64,
        queue: u64,
        memory: Option<u64>,
        readers: u64,
        timeout: f64,
        coupling: Option<&Bound<'_, Coupling>>,
        persist: Option<String>,
        spill: Option<String>,
        spill_limit: Option<u64>,
    ) -> PyResult<StreamWriter> {
        let coupling = coupling.map(|coupling| coupling.get().open()).transpose()?;
        static WRITERS: AtomicU64 = AtomicU64::new(0);
        let (timeout, usual) = (patience(timeout)?, Written::default());
        let open = || {
            let (spaces, stop) = (spaces_of(&given, coupling.is_some())?, signals());
            let memory = memory.unwrap_or(usual.memory);
            let usual = Written { spill, spill_limit, ..usual };
            let usual = Written { spaces, timeout, stop, coupling, persist, ..usual };
            let options = Written { rank, writers, keep, queue, memory, readers, ..usual };
            Writer::open(&name, &options)
        };
        let inner = Mutex::new(Some(unlocked(py, open)?));
        let number = WRITERS.fetch_add(1, Ordering::Relaxed);
        let within = Mutex::new(None);
        Ok(StreamWriter { inner, within, name, number, born: fork::generation() })
    }

    /// The step that is open, or comes next.
    #[getter]
    fn step(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, |writer| Ok(writer.step()))
    }

    /// What has become of readers since this was asked last, as JSON.
    fn events(&self, py: Python<'_>) -> PyResult<String> {
        let events = self.ask(py, Writer::events)?;
        serde_json::to_string(&events).map_err(|e| PyValueError::new_err(e.to_string()))
    }

    /// What it has done so far, as JSON.
    fn report(&self, py: Python<'_>) -> PyResult<String> {
        json(&self.ask(py, |writer| Ok(writer.report()))?)
    }

    fn begin(&self, py: Python<'_>) -> PyResult<u64> {
        self.ask(py, Writer::begin)
    }

    fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.ask(py, Writer::end)
    }

    /// What was said of a variable, and its number.
    fn definition(&self, py: Python<'_>, name: &str) -> PyResult<Option<(u32, Told)>> {
        self.ask(py, |writer| Ok(writer.find(name).map(|(n, d)| (n, told(d)))))
    }

    /// Says what a variable is; what is `None` stays what it was.
    fn define(
        &self,
        py: Python<'_>,
        name: &str,
        dtype: &str,
        shape: Vec<u64>,
        dims: Option<Vec<String>>,
        attributes: Option<Vec<(String, Said)>>,
    ) -> PyResult<u32> {
        let dtype = dtype.parse().map_err(raise)?;
        self.ask(py, |writer| {
            let known = writer.find(name).map(|(_, definition)| definition);
            let same = known.filter(|known| known.shape.len() == shape.len());
            let dims = dims.or_else(|| same.map(|same| same.dims.clone())).unwrap_or_default();
            let attributes: BTreeMap<String, Attribute> = match attributes {
                Some(said) => said.into_iter().map(|(name, a)| (name, a.into())).collect(),
                None => known.map(|known| known.attributes.clone()).unwrap_or_default(),
            };
            writer.define(Definition { name: name.to_owned(), dtype, shape, dims, attributes })
        })
    }

    /// Copies a block: an array in C order whose elements are of the type of the variable.
    fn put(
        &self,
        py: Python<'_>,
        variable: u32,
        start: Vec<u64>,
        count: Vec<u64>,
        array: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let (lent, facts) = lend(array)?;
        let bytes = lent.as_ref();
        if facts.order != Order::C && facts.shape.len() > 1 && !bytes.is_empty() {
            return Err(PyValueError::new_err("the array is not contiguous"));
        }
        let bounds = bounds(start, count)?;
        self.ask(py, |writer| writer.put(variable, &bounds, bytes))
    }

    /// Copies all of a variable that was said before, with elements of this type and this shape. False if it was not, or if this is no
    /// array that can be copied as it lies.
    fn put_again(&self, py: Python<'_>, name: &str, array: &Bound<'_, PyAny>) -> PyResult<bool> {
        let Ok((lent, facts)) = lend(array) else { return Ok(false) };
        let Facts { dtype, byte_order, shape, order } = facts;
        let lies = order == Order::C || shape.len() < 2 || lent.as_ref().is_empty();
        if !lies || (byte_order != ByteOrder::NATIVE && dtype.size() > 1) {
            return Ok(false);
        }
        let bounds = bounds(vec![0; shape.len()], shape)?;
        let bytes = lent.as_ref();
        self.ask(py, |writer| {
            let known = writer.find(name);
            let same = |d: &Definition| d.dtype == dtype && d.shape == bounds.count();
            let Some((number, _)) = known.filter(|(_, d)| same(d)) else { return Ok(false) };
            writer.put(number, &bounds, bytes).map(|()| true)
        })
    }

    /// Memory for a block, for an array.
    fn empty(
        &self,
        py: Python<'_>,
        variable: u32,
        start: Vec<u64>,
        count: Vec<u64>,
    ) -> PyResult<Py<PyAny>> {
        let bounds = bounds(start, count)?;
        let room = self.ask(py, |writer| writer.empty(variable, &bounds))?;
        bytes::plain(py, Held::Memory(Memory::new(room, self.number)))
    }

    /// Which variable memory was made for, and which part of it; `None` if it is not memory of this writer or was put.
    #[allow(clippy::type_complexity)]
    fn room(&self, held: &Bound<'_, PyAny>) -> PyResult<Option<(u32, Vec<u64>, Vec<u64>)>> {
        let look = |memory: &Memory| {
            let room = memory.room.lock().unwrap_or_else(PoisonError::into_inner);
            let room = room.as_ref().filter(|_| memory.writer == self.number)?;
            let bounds = room.bounds();
            Some((room.variable(), bounds.start().to_vec(), bounds.count().to_vec()))
        };
        Ok(bytes::memory(held)?.and_then(look))
    }

    /// Puts memory that was filled; by a copy, if it says how many nanoseconds of a processor that took.
    #[pyo3(signature = (held, copying = None))]
    fn put_room(
        &self,
        py: Python<'_>,
        held: &Bound<'_, PyAny>,
        copying: Option<u64>,
    ) -> PyResult<()> {
        let memory = bytes::memory(held)?.filter(|memory| memory.writer == self.number);
        let take =
            |memory: &Memory| memory.room.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(room) = memory.and_then(take) else {
            return Err(PyTypeError::new_err("this is no memory of this writer"));
        };
        self.ask(py, |writer| match copying {
            Some(time) => writer.put_copied(room, Duration::from_nanos(time)),
            None => writer.put_room(room),
        })
    }

    /// Puts memory that was made before there was a writer.
    fn put_made(
        &self,
        py: Python<'_>,
        variable: u32,
        start: Vec<u64>,
        count: Vec<u64>,
        held: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let none = || PyTypeError::new_err("this is no memory that stead.empty has made");
        let made = bytes::made(held)?.ok_or_else(none)?;
        let bounds = bounds(start, count)?;
        self.ask(py, |writer| writer.put_buffer(variable, &bounds, &made.buffer))?;
        made.is_put.store(true, Ordering::Release);
        Ok(())
    }

    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.end_by(py, Writer::close)
    }

    fn abandon(&self, py: Python<'_>) -> PyResult<()> {
        self.end_by(py, Writer::abandon)
    }

    #[getter]
    fn closed(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.lock(py)?.is_none())
    }
}

/// The program ends by an exception.
static FAILS: AtomicBool = AtomicBool::new(false);

/// Writers that are not closed have not come to an end from here on.
#[pyfunction]
pub fn fail_writers() {
    FAILS.store(true, Ordering::Release);
}

/// A writer that is abandoned when it goes.
struct Failed(Option<Writer>);

impl Drop for Failed {
    fn drop(&mut self) {
        // Who is told of it has no program to tell any more.
        let _ = self.0.take().map(Writer::abandon);
    }
}

impl Drop for StreamWriter {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        match FAILS.load(Ordering::Acquire) {
            true => let_go(inner.map(|writer| Failed(Some(writer))), self.born),
            false => let_go(inner, self.born),
        }
    }
}

/// Drops what takes locks that other threads may have; in a process that was forked, where they are not, it stays.
pub fn let_go<T: Send>(what: Option<T>, born: u32) {
    if born != fork::generation() {
        std::mem::forget(what);
    } else if what.is_some() {
        fork::end(what);
    }
}

/// The reading end of a stream.
#[pyclass(frozen, module = "stead._stead")]
pub struct StreamReader {
    /// `None` once it is closed.
    inner: Mutex<Option<Arc<Reader>>>,
    /// Ends the waits of other threads when it is closed.
    closing: stead::Cancel,
    name: String,
    timeout: Duration,
    born: u32,
}

impl StreamReader {
    fn open(&self) -> PyResult<Arc<Reader>> {
        fork::refuse(self.born, "this reader was made", "open it in the process that uses it")?;
        // Held for a moment only.
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clone().ok_or_else(|| self.closed())
    }

    /// Asks again and again for something, for a short time each, as there may be signals meanwhile: `None` is to be asked again.
    fn wait(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
        ask: impl Fn(&Reader, Duration, bool) -> Result<Option<Option<Step>>> + Send + Sync,
    ) -> PyResult<Option<StreamStep>> {
        let reader = self.open()?;
        let mut left = seconds(timeout, "timeout")?.unwrap_or(self.timeout);
        let cancel = cancel.map(|c| c.get().token());
        let mut wait = || loop {
            // The clock is the library's: what was waited for is what was asked for, or there was something.
            let share = left.min(SIGNALS);
            let last = share == left;
            if let Some(step) = unlocked(py, || ask(&reader, share, last))? {
                return Ok(step.map(StreamStep::new));
            }
            py.check_signals()?;
            if self.closing.is_cancelled() {
                return Err(self.closed());
            }
            if cancel.as_ref().is_some_and(stead::Cancel::is_cancelled) {
                return Err(raise(Error::cancelled()));
            }
            left = left.saturating_sub(share);
            if left.is_zero() {
                return Err(raise(reader.late()));
            }
        };
        let waited = wait();
        if waited.is_err() {
            py.detach(|| reader.rest());
        }
        waited
    }

    fn closed(&self) -> PyErr {
        raise(Error::usage(format!("the reader of stream '{}' is closed", self.name)))
    }
}

#[pymethods]
impl StreamReader {
    #[new]
    #[allow(clippy::too_many_arguments)]
    fn new(
        py: Python<'_>,
        name: String,
        given: Vec<String>,
        group: String,
        rank: u64,
        ranks: u64,
        start: &str,
        behind: &str,
        queue: Option<u64>,
        keep: Option<u64>,
        timeout: f64,
        threads: usize,
        coupling: Option<&Bound<'_, Coupling>>,
        nodes: Option<Vec<String>>,
    ) -> PyResult<StreamReader> {
        let nodes = Some(others(nodes));
        let coupling = coupling.map(|coupling| coupling.get().open()).transpose()?;
        let start = match start {
            "oldest" => Start::Oldest,
            "next" => Start::Next,
            "first" => Start::First,
            _ => {
                let no = Error::usage(format!("no reader starts with '{start}'"));
                return Err(raise(no.with_hint("use \"oldest\", \"next\" or \"first\"")));
            }
        };
        let behind = match behind {
            "block" => Behind::Block,
            "drop" => Behind::Drop,
            "spill" => Behind::Spill,
            _ => {
                let no = Error::usage(format!("behind cannot be '{behind}'"));
                return Err(raise(no.with_hint("use \"block\", \"drop\" or \"spill\"")));
            }
        };
        let timeout = patience(timeout)?;
        let open = || {
            let (spaces, stop) = (spaces_of(&given, coupling.is_some())?, signals());
            let usual = Read { spaces, timeout, stop, threads, coupling, nodes, ..Read::default() };
            let options = Read { group, rank, ranks, start, behind, queue, keep, ..usual };
            Reader::open(&name, &options)
        };
        let inner = Mutex::new(Some(Arc::new(unlocked(py, open)?)));
        let closing = stead::Cancel::new();
        Ok(StreamReader { inner, closing, name, timeout, born: fork::generation() })
    }

    /// The next step; `None` when there are no more.
    #[pyo3(signature = (timeout=None, cancel=None))]
    fn next(
        &self,
        py: Python<'_>,
        timeout: Option<f64>,
        cancel: Option<&Bound<'_, Cancel>>,
    ) -> PyResult<Option<StreamStep>> {
        self.wait(py, timeout, cancel, |reader, share, last| {
            let step = if last { reader.next_within(share)? } else { reader.next_part(share)? };
            match step {
                None if !reader.is_over() => Ok(None),
                step => Ok(Some(step)),
            }
        })
    }

    /// This very step, with a variable in it, as soon as it is complete.
    fn wait_for(
        &self,
        py: Python<'_>,
        variable: &str,
        step: u64,
        timeout: Option<f64>,
    ) -> PyResult<Option<StreamStep>> {
        self.wait(py, timeout, None, |reader, share, last| {
            let found = match last {
                true => reader.wait_for(variable, step, share),
                false => reader.wait_for_part(variable, step, share),
            };
            match found {
                Err(e) if e.kind() == Kind::Timeout => Ok(None),
                found => Ok(Some(Some(found?))),
            }
        })
    }

    fn at(&self, py: Python<'_>, step: u64) -> PyResult<StreamStep> {
        let reader = self.open()?;
        unlocked(py, || reader.at(step)).map(StreamStep::new)
    }

    /// What it has done so far, as JSON.
    fn report(&self) -> PyResult<String> {
        json(&self.open()?.report())
    }

    #[getter]
    fn steps(&self, py: Python<'_>) -> PyResult<Vec<u64>> {
        let reader = self.open()?;
        unlocked(py, || reader.steps())
    }

    #[getter]
    fn is_over(&self) -> PyResult<bool> {
        Ok(self.open()?.is_over())
    }

    fn close(&self) {
        if self.born == fork::generation() {
            self.closing.cancel();
            let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
            let_go(inner, self.born);
        }
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let_go(inner, self.born);
    }
}

/// A step that is looked at.
#[pyclass(frozen, module = "stead._stead")]
pub struct StreamStep {
    /// `None` only while it is dropped.
    inner: Option<Step>,
    born: u32,
}

impl StreamStep {
    fn new(step: Step) -> StreamStep {
        StreamStep { inner: Some(step), born: fork::generation() }
    }

    fn get(&self) -> PyResult<&Step> {
        fork::refuse(self.born, "this step was read", "read it in the process that uses it")?;
        self.inner.as_ref().ok_or_else(|| raise(Error::internal("a step that is none")))
    }
}

#[pymethods]
impl StreamStep {
    /// Its number, steps that were dropped before it, its bytes, and when it was complete, in nanoseconds since 1970.
    fn facts(&self) -> PyResult<(u64, u64, u64, u64)> {
        let step = self.get()?;
        Ok((step.number(), step.dropped(), step.bytes(), step.completed_at()))
    }

    /// What it has cost so far, as JSON.
    fn report(&self) -> PyResult<String> {
        json(&self.get()?.report())
    }

    fn names(&self) -> PyResult<Vec<String>> {
        Ok(self.get()?.variables().map(|d| d.name.clone()).collect())
    }

    fn has(&self, name: &str) -> PyResult<bool> {
        Ok(self.get()?.has(name))
    }

    fn variable(&self, name: &str) -> PyResult<Told> {
        self.get()?.variable(name).map(told).map_err(raise)
    }

    /// The rank of the writer of each block, with start and count.
    fn parts(&self, name: &str) -> PyResult<Vec<Part>> {
        let parts = self.get()?.parts(name).map_err(raise)?;
        let told = |(rank, b): (usize, Bounds)| (rank, b.start().to_vec(), b.count().to_vec());
        Ok(parts.into_iter().map(told).collect())
    }

    /// A box where it lies in one block: its bytes and its strides. `None` if it is to be copied.
    fn view(
        &self,
        py: Python<'_>,
        name: &str,
        start: Vec<u64>,
        count: Vec<u64>,
    ) -> PyResult<Option<(Py<PyAny>, Vec<usize>)>> {
        let (step, bounds) = (self.get()?, bounds(start, count)?);
        let Some(array) = unlocked(py, || step.view(name, &bounds))? else {
            return Ok(None);
        };
        let strides = array.strides.clone();
        Ok(Some((bytes::plain(py, Held::Array(array))?, strides)))
    }

    /// All of a variable where it lies in one block: its bytes, the type of its elements, its shape. `None` if it is to be copied.
    fn whole(&self, py: Python<'_>, name: &str) -> PyResult<Option<Whole>> {
        let step = self.get()?;
        let definition = step.variable(name).map_err(raise)?;
        let shape = definition.shape.clone();
        let bounds = bounds(vec![0; shape.len()], shape.clone())?;
        let Some(array) = unlocked(py, || step.view(name, &bounds))? else {
            return Ok(None);
        };
        let dtype = definition.dtype.name();
        Ok(Some((bytes::plain(py, Held::Array(array))?, dtype, shape)))
    }

    /// Fills an array in C order. With `rest`, what nobody has put stays as it is there, and is an error else.
    fn get_into(
        &self,
        py: Python<'_>,
        name: &str,
        start: Vec<u64>,
        count: Vec<u64>,
        to: &Bound<'_, PyAny>,
        rest: bool,
    ) -> PyResult<()> {
        let (step, bounds) = (self.get()?, bounds(start, count)?);
        let mut to = bytes::Writable::new(to)?;
        let copied = unlocked(py, || match rest {
            true => step.get_what_there_is(name, &bounds, to.as_mut()),
            false => step.get_into(name, &bounds, to.as_mut()),
        });
        drop(to);
        bytes::release(py);
        copied.map(drop)
    }
}

impl Drop for StreamStep {
    fn drop(&mut self) {
        let_go(self.inner.take(), self.born);
    }
}

/// The other nodes that are asked: all of the pool, unless these are named.
pub fn others(named: Option<Vec<String>>) -> Arc<dyn Nodes> {
    let pool = StreamNodes::default();
    Arc::new(match named {
        Some(only) => pool.only(only),
        None => pool,
    })
}

pub fn json(told: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(told)
        .map_err(|e| raise(Error::internal(format!("a stream cannot be described: {e}"))))
}
