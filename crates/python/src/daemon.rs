//! The daemon of the node: `stead.daemon` and what is asked of it.

use crate::errors::raise;
use crate::flow::graph;
use crate::fork;
use crate::request::seconds;
use crate::stage::{Asked, json, request};
use crate::stream::{signals, unlocked};
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use stead::daemon::{Client, Clients, FlowOptions, PersistAsk, user_number};
use stead::stage::{Standing, State, ended_with, location};
use stead::{Error, Result};

/// Connections to a daemon.
#[pyclass(frozen, module = "stead._stead")]
pub struct Daemon {
    inner: Arc<Clients>,
    born: u32,
}

impl Daemon {
    fn checked(&self) -> PyResult<&Arc<Clients>> {
        fork::refuse(self.born, "the daemon was connected to", "connect in each process")?;
        Ok(&self.inner)
    }

    fn ask<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut Client) -> Result<T> + Send,
    ) -> PyResult<T> {
        let inner = self.checked()?;
        py.detach(|| inner.ask(question)).map_err(raise)
    }

    /// The same, of what may take hours: a signal ends it.
    fn ask_long<T: Send>(
        &self,
        py: Python<'_>,
        question: impl FnOnce(&mut Client) -> Result<T> + Send,
    ) -> PyResult<T> {
        let inner = self.checked()?;
        unlocked(py, || inner.ask(|d| d.until(signals(), question)))
    }
}

/// Calls `told` with files done, files, bytes done, bytes and seconds so far. Looks for signals, too.
fn tell(told: Option<&Py<PyAny>>, standing: Option<&Standing>) -> PyResult<()> {
    Python::attach(|py| {
        py.check_signals()?;
        if let (Some(told), Some(p)) = (told, standing.and_then(|s| s.progress)) {
            told.call1(py, (p.files_done, p.files, p.bytes_done, p.bytes, p.seconds))?;
        }
        Ok(())
    })
}

/// Keeps and shares, by the daemon of the node or without one; what is asked, and the answer, as JSON, the location as it is named.
#[pyfunction]
pub fn persist(
    py: Python<'_>,
    what: &str,
    at: Option<String>,
    user: Option<String>,
    seconds: Option<u64>,
) -> PyResult<String> {
    let asked = || {
        let at = || location(at.as_deref().unwrap_or_default());
        let user = user.clone().unwrap_or_default();
        Ok(match what {
            "store" => PersistAsk::Store { location: at()?, seconds },
            "delete" => PersistAsk::Delete { location: at()? },
            "share" => PersistAsk::Share { location: at()?, user },
            "unshare" => PersistAsk::Unshare { location: at()?, user },
            _ => PersistAsk::List {},
        })
    };
    py.detach(|| asked().and_then(stead::daemon::persist).and_then(|list| json(&list)))
        .map_err(raise)
}

#[pymethods]
impl Daemon {
    /// Connects to the daemon of this socket, or of this node, or by way of it to that of another node; none if there is none here.
    #[staticmethod]
    fn connect(
        py: Python<'_>,
        path: Option<PathBuf>,
        node: Option<String>,
    ) -> PyResult<Option<Daemon>> {
        let clients = py.detach(|| Clients::open_on(path.as_deref(), node.as_deref()));
        let clients = clients.map_err(raise)?;
        Ok(clients.map(|clients| Daemon { inner: Arc::new(clients), born: fork::generation() }))
    }

    /// Its socket.
    #[getter]
    fn path(&self) -> PathBuf {
        self.inner.path().to_owned()
    }

    /// Gives it a transfer, to be done after those; says its number.
    fn submit(&self, py: Python<'_>, asked: Asked, after: Vec<i64>) -> PyResult<i64> {
        self.ask(py, |d| d.submit(&request(asked)?, &after))
    }

    /// What a request would do, as JSON.
    fn preview(&self, py: Python<'_>, asked: Asked) -> PyResult<String> {
        self.ask_long(py, |d| json(&d.preview(&request(asked)?)?))
    }

    /// How the target of a sync differs, as JSON.
    fn check(&self, py: Python<'_>, asked: Asked) -> PyResult<String> {
        self.ask_long(py, |d| json(&d.check(&request(asked)?)?))
    }

    /// How far a transfer is, as JSON.
    fn status(&self, py: Python<'_>, id: i64) -> PyResult<String> {
        self.ask(py, |d| json(&d.wait(id, Duration::ZERO)?))
    }

    /// What came of a transfer, as JSON; none if it goes on after so many seconds. `told` is called with how far it is. Raises why it
    /// was not finished; names that failed are for the status to tell.
    fn wait(
        &self,
        py: Python<'_>,
        id: i64,
        timeout: Option<f64>,
        told: Option<Py<PyAny>>,
    ) -> PyResult<Option<String>> {
        let inner = self.checked()?;
        let most =
            timeout.map(|s| Duration::try_from_secs_f64(s.max(0.0)).unwrap_or(Duration::MAX));
        let mut stopped = None;
        let standing = py.detach(|| {
            inner.wait(id, most, &mut |standing| {
                tell(told.as_ref(), standing).map_err(|e| {
                    stopped = Some(e);
                    Error::cancelled()
                })
            })
        });
        if let Some(e) = stopped {
            return Err(e);
        }
        let standing = standing.map_err(raise)?;
        let status = &standing.status;
        if !status.state.rests() {
            return Ok(None);
        }
        if status.state != State::Failed || status.error.is_some() {
            status.outcome().map_err(|e| raise(ended_with(e)))?;
        }
        json(&standing).map(Some).map_err(raise)
    }

    /// Seconds that a transfer still needs, those before it counted: the likeliest, low and high.
    fn eta(&self, py: Python<'_>, id: i64) -> PyResult<(f64, f64, f64)> {
        let left = self.ask(py, |d| d.eta(id))?;
        Ok((left.seconds, left.low, left.high))
    }

    /// Gives one up; says as JSON what came of it.
    fn cancel(&self, py: Python<'_>, id: i64) -> PyResult<String> {
        self.ask(py, |d| json(&d.cancel(id)?))
    }

    /// Has one done again, or all that were interrupted; says which.
    fn resume(&self, py: Python<'_>, id: Option<i64>) -> PyResult<Vec<i64>> {
        self.ask(py, |d| d.resume(id))
    }

    /// Transfers, as JSON.
    fn statuses(&self, py: Python<'_>, all: bool, most: usize) -> PyResult<String> {
        self.ask(py, |d| json(&d.list(all, most)?))
    }

    /// Dataspaces, as JSON.
    fn usage(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, |d| json(&d.spaces()?))
    }

    /// Has it run a flow, which is given as JSON, and so is how far it is.
    fn begin_flow(
        &self,
        py: Python<'_>,
        given: &str,
        threads: usize,
        memory: Option<u64>,
        steps: Option<u64>,
        timeout: f64,
    ) -> PyResult<String> {
        let options = FlowOptions { threads, memory, steps, timeout: Some(timeout) };
        let graph = graph(given).map_err(raise)?;
        self.ask(py, |d| json(&d.begin_flow(&graph, &options)?))
    }

    /// How far a flow is, as JSON, once it is over or after so many seconds. A signal ends the wait.
    fn wait_flow(&self, py: Python<'_>, flow: i64, timeout: Option<f64>) -> PyResult<String> {
        let inner = self.checked()?;
        let most = seconds(timeout, "timeout")?;
        let mut stopped = None;
        let standing = py.detach(|| {
            inner.wait_flow(flow, most, &mut |_| {
                Python::attach(|py| py.check_signals()).map_err(|e| {
                    stopped = Some(e);
                    Error::cancelled()
                })
            })
        });
        match stopped {
            Some(e) => Err(e),
            None => standing.and_then(|standing| json(&standing)).map_err(raise),
        }
    }

    /// Gives one up; says as JSON what came of it.
    fn cancel_flow(&self, py: Python<'_>, flow: i64) -> PyResult<String> {
        self.ask(py, |d| json(&d.cancel_flow(flow)?))
    }

    /// Flows, as JSON.
    fn flows(&self, py: Python<'_>, all: bool) -> PyResult<String> {
        self.ask(py, |d| json(&d.flows(all)?))
    }

    /// What an administrator asks, and the answer, as JSON.
    fn admin(&self, py: Python<'_>, asked: &str) -> PyResult<String> {
        let asked = serde_json::from_str(asked)
            .map_err(|e| raise(Error::usage(format!("nothing that is asked: {e}"))))?;
        self.ask(py, |d| json(&d.admin(asked)?))
    }

    /// The same for the transfers of another user, by name or number, as an administrator has it.
    fn manage(&self, py: Python<'_>, user: &str) -> PyResult<Daemon> {
        let inner = self.checked()?;
        let managed = py.detach(|| user_number(user).and_then(|user| inner.manage(user)));
        let inner = Arc::new(managed.map_err(raise)?);
        Ok(Daemon { inner, born: fork::generation() })
    }

    /// The nodes of the pool.
    fn nodes(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        self.ask(py, Client::nodes)
    }

    /// Numbers for Prometheus.
    fn metrics(&self, py: Python<'_>) -> PyResult<String> {
        self.ask(py, Client::metrics)
    }
}
