//! Runs: from arguments to a report, with the interpreter's lock released.

use crate::errors::raise;
use crate::own::Described;
use crate::ranks::fabric;
use crate::report::Report;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use stead::{Engine, Error, IoOptions, Observer, Request, Snapshot};

/// Stops a run from another thread.
#[pyclass(frozen, module = "stead._stead")]
pub struct Cancel {
    inner: stead::Cancel,
}

impl Cancel {
    /// The flag that it is.
    pub fn token(&self) -> stead::Cancel {
        self.inner.clone()
    }
}

#[pymethods]
impl Cancel {
    #[new]
    fn new() -> Cancel {
        Cancel { inner: stead::Cancel::new() }
    }

    /// Asks the runs that were given this to stop soon.
    fn cancel(&self) {
        self.inner.cancel();
    }

    /// True after `cancel`.
    #[getter]
    fn cancelled(&self) -> bool {
        self.inner.is_cancelled()
    }
}

/// What `Dataset.run` gets, from the dict that the package makes.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Arguments {
    kernels: Vec<String>,
    /// Each kernel written in Python.
    own: Vec<Described>,
    filter: Option<String>,
    by: Vec<String>,
    threads: usize,
    memory: Option<u64>,
    chunk: Option<usize>,
    lenient: bool,
    direct: bool,
    engine: String,
    queue_depth: Option<usize>,
    place: String,
    progress: Option<Py<PyAny>>,
    cancel: Option<Py<Cancel>>,
    /// Ranks that share the work and exchange states as bytes: threads of this process.
    ranks: usize,
    /// Ranks of a communicator that share the work: a function that makes a fabric, and what it makes it of.
    comm: Option<(usize, usize)>,
}

/// The first exception that was raised while stead was at work: by a kernel written in Python, by a progress
/// callback, or by a signal. The run ends with an error of its own; this is the one to raise.
#[derive(Clone, Default)]
pub struct Trouble(Arc<Mutex<Option<PyErr>>>);

impl Trouble {
    /// Keeps the first one.
    pub fn keep(&self, e: PyErr) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(e);
    }

    /// Takes it.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Looks about ten times a second whether a signal has come, and tells the callback.
pub struct Watcher {
    pub cancel: stead::Cancel,
    pub trouble: Trouble,
    pub progress: Option<Py<PyAny>>,
}

impl Watcher {
    /// Does something with the interpreter; an exception, or that of a signal, stops the run.
    fn look(&self, work: impl FnOnce(Python<'_>) -> PyResult<()>) {
        Python::attach(|py| {
            if let Err(e) = py.check_signals().and_then(|()| work(py)) {
                self.trouble.keep(e);
                self.cancel.cancel();
            }
        });
    }
}

impl Observer for Watcher {
    fn progress(&self, s: &Snapshot) {
        self.look(|py| match &self.progress {
            Some(p) => p.call1(py, (s.pass, s.bytes, s.total_bytes, s.rows, s.seconds)).map(drop),
            None => Ok(()),
        });
    }

    fn looks(&self) -> bool {
        self.progress.is_some()
    }

    fn waits(&self) {
        self.look(|_| Ok(()));
    }
}

/// The way to read that is named.
pub fn engine(name: &str) -> PyResult<Engine> {
    match name {
        "auto" => Ok(Engine::Auto),
        "uring" => Ok(Engine::Uring),
        "pread" => Ok(Engine::Pread),
        _ => Err(raise(
            Error::usage(format!("no engine '{name}'"))
                .with_hint("use one of \"auto\" \"uring\" \"pread\""),
        )),
    }
}

/// Runs a request on ranks that are threads of this process; the answer is the same for any number.
fn on_ranks(
    dataset: &stead::Dataset,
    request: &Request,
    watcher: &Watcher,
    ranks: usize,
) -> stead::Result<stead::Report> {
    if ranks < 2 {
        return stead::run(dataset, request, Some(watcher));
    }
    let all: Vec<_> = std::thread::scope(|scope| {
        let started: Vec<_> = stead::fabric::Local::group(ranks)
            .into_iter()
            .map(|f| scope.spawn(move || stead::run_on(&f, dataset, request, Some(watcher))))
            .collect();
        started.into_iter().filter_map(|t| t.join().ok()).collect()
    });
    let none = || Err(Error::internal("no rank has ended"));
    all.into_iter().next().unwrap_or_else(none)
}

/// Takes part in a run of all ranks with an error of this one, as `ranks::refuse_ranks` does in the opening of a file.
#[pyfunction]
pub fn refuse_run(py: Python<'_>, maker: usize, data: usize, why: &str) {
    py.detach(|| {
        if let Ok(fabric) = fabric(maker, data) {
            stead::ranks::refuse(&fabric, Error::usage(why));
        }
    });
}

/// Runs a request over a dataset, with the arguments that the package makes.
pub fn run(
    py: Python<'_>,
    dataset: &stead::Dataset,
    arguments: &Bound<'_, PyAny>,
) -> PyResult<Report> {
    let understood = arguments.extract::<Arguments>().and_then(|a| {
        engine(&a.engine)?;
        stead::options::place(&a.place).map_err(raise)?;
        Ok(a)
    });
    let understood = understood.inspect_err(|e| {
        // Other ranks are in the same call, or will be.
        let comm = arguments.get_item("comm").and_then(|c| c.extract::<Option<(usize, usize)>>());
        if let Ok(Some((maker, data))) = comm {
            refuse_run(py, maker, data, &e.to_string());
        }
    });
    run_with(py, dataset, understood?)
}

fn run_with(py: Python<'_>, dataset: &stead::Dataset, a: Arguments) -> PyResult<Report> {
    let trouble = Trouble::default();
    let own = a.own.into_iter().map(|k| k.kernel(&trouble)).collect();
    let defaults = Request::default();
    let cancel = a.cancel.map_or_else(stead::Cancel::new, |c| c.get().token());
    let request = Request {
        kernels: a.kernels,
        own,
        filter: a.filter,
        by: a.by,
        threads: a.threads,
        memory: a.memory.unwrap_or(defaults.memory),
        chunk: a.chunk.unwrap_or(defaults.chunk),
        lenient: a.lenient,
        io: IoOptions {
            engine: engine(&a.engine)?,
            depth: a.queue_depth.unwrap_or(defaults.io.depth),
            direct: a.direct,
        },
        place: stead::options::place(&a.place).map_err(raise)?,
        cancel: cancel.clone(),
        ..defaults
    };
    let watcher = Watcher { cancel, trouble: trouble.clone(), progress: a.progress };
    let result = py.detach(|| match a.comm {
        Some((maker, data)) => {
            stead::run_on(&fabric(maker, data)?, dataset, &request, Some(&watcher))
        }
        None => on_ranks(dataset, &request, &watcher, a.ranks),
    });
    match (trouble.take(), result) {
        (Some(e), _) => Err(e),
        (None, Ok(inner)) => Ok(Report { inner }),
        (None, Err(e)) => Err(raise(e)),
    }
}
