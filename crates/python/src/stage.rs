//! Transfers: `stead.stage` and what it returns.

use crate::errors::raise;
use crate::fork;
use crate::request::seconds;
use pyo3::prelude::*;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use stead::daemon::learn;
use stead::stage::{
    Means, Moving, Request, Stager as Inner, dataspaces, ended_with, location, state_folder, usage,
};
use stead::{Cancel, Error, Result};

/// How long a wait goes on before it looks whether a signal has come.
const LOOK: Duration = Duration::from_millis(100);

/// How long whoever does a transfer has to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// A journal, and what transfers are done with.
#[pyclass(frozen, module = "stead._stead")]
pub struct Stager {
    inner: Arc<Inner>,
    born: u32,
}

/// A transfer that is under way.
#[pyclass(frozen, module = "stead._stead")]
pub struct Transfer {
    inner: Option<Moving>,
    stager: Arc<Inner>,
    born: u32,
}

pub(crate) fn json(value: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::internal(format!("cannot write JSON: {e}")))
}

/// What is asked for: the action, sources, the target, and options as JSON.
pub(crate) type Asked = (String, Vec<String>, Option<String>, String);

pub(crate) fn request((action, sources, target, options): Asked) -> Result<Request> {
    let said = |e: serde_json::Error| {
        // Where it was in a text that nobody has seen is no matter.
        Error::usage(e.to_string().split(" at line ").next().unwrap_or_default().to_owned())
    };
    Ok(Request {
        action: serde_json::from_value(action.into()).map_err(said)?,
        sources: sources.iter().map(|s| location(s)).collect::<Result<_>>()?,
        target: target.map(|t| location(&t)).transpose()?,
        options: serde_json::from_str(&options).map_err(said)?,
    })
}

impl Stager {
    fn checked(&self) -> PyResult<&Arc<Inner>> {
        fork::refuse(self.born, "this stager was opened", "open one in each process")?;
        Ok(&self.inner)
    }
}

#[pymethods]
impl Stager {
    #[new]
    fn new(
        py: Python<'_>,
        given: Vec<String>,
        threads: usize,
        state: Option<PathBuf>,
    ) -> PyResult<Stager> {
        let open = || {
            let mut spaces = dataspaces()?;
            for one in &given {
                spaces.give(one, &|name| std::env::var(name).ok())?;
            }
            let state = state.map_or_else(state_folder, Ok)?;
            let inner = Inner::open(&state, Means { spaces, threads, ..Means::default() })?;
            Ok(Stager { inner: Arc::new(inner), born: fork::generation() })
        };
        py.detach(open).map_err(raise)
    }

    /// Takes a request, and begins it or goes on with one that would do the same.
    fn submit(&self, py: Python<'_>, asked: Asked) -> PyResult<Transfer> {
        let inner = self.checked()?;
        let begin = || {
            let request = request(asked)?;
            learn(inner, &request)?;
            let id = match inner.same(&request)? {
                Some(id) => id,
                None => inner.submit(&request)?,
            };
            Moving::begin(inner, id)
        };
        let moving = py.detach(begin).map_err(raise)?;
        Ok(Transfer { inner: Some(moving), stager: inner.clone(), born: self.born })
    }

    /// Goes on with one.
    fn resume(&self, py: Python<'_>, id: i64) -> PyResult<Transfer> {
        let inner = self.checked()?;
        let begin = || {
            learn(inner, &inner.resumable(id)?.request)?;
            Moving::begin(inner, id)
        };
        let moving = py.detach(begin).map_err(raise)?;
        Ok(Transfer { inner: Some(moving), stager: inner.clone(), born: self.born })
    }

    /// Gives one up; says as JSON what came of it.
    fn cancel(&self, py: Python<'_>, id: i64) -> PyResult<String> {
        let inner = self.checked()?;
        // What there is of it is to be found; where that cannot be, it says so itself.
        let _ = py.detach(|| inner.status(id).and_then(|status| learn(inner, &status.request)));
        give_up(py, inner, id)
    }

    /// Waits until nothing more happens with one, whichever process does it: what came of it, as JSON; none if it goes on after so many seconds.
    fn wait(&self, py: Python<'_>, id: i64, timeout: Option<f64>) -> PyResult<Option<String>> {
        let inner = self.checked()?;
        // What is no time that there is is for ever.
        let most = timeout.and_then(|s| Duration::try_from_secs_f64(s.max(0.0)).ok());
        let status = looking(py, |look| inner.wait(id, most, &mut |_| look()))?;
        if !status.state.rests() {
            return Ok(None);
        }
        json(&status).map(Some).map_err(raise)
    }

    /// What a request would do, as JSON.
    fn preview(&self, py: Python<'_>, asked: Asked) -> PyResult<String> {
        let inner = self.checked()?;
        beside(py, |cancel| {
            let request = request(asked)?;
            learn(inner, &request)?;
            json(&inner.preview(&request, cancel)?)
        })
    }

    /// How the target of a sync differs, as JSON.
    fn check(&self, py: Python<'_>, asked: Asked) -> PyResult<String> {
        let inner = self.checked()?;
        beside(py, |cancel| {
            let request = request(asked)?;
            learn(inner, &request)?;
            json(&inner.check(&request, cancel, None)?)
        })
    }

    /// How far a transfer is, as JSON.
    fn status(&self, py: Python<'_>, id: i64) -> PyResult<String> {
        let inner = self.checked()?;
        py.detach(|| json(&inner.status(id)?)).map_err(raise)
    }

    /// Transfers, as JSON.
    fn statuses(&self, py: Python<'_>, all: bool, most: usize) -> PyResult<String> {
        let inner = self.checked()?;
        py.detach(|| json(&inner.statuses(all, most)?)).map_err(raise)
    }

    /// Dataspaces, as JSON.
    fn usage(&self, py: Python<'_>) -> PyResult<String> {
        let inner = self.checked()?;
        py.detach(|| json(&usage(inner, &Cancel::new())?)).map_err(raise)
    }
}

/// Does what may read for hours in a thread of its own, while this one looks whether a signal has come, which ends it.
fn beside<T: Send>(py: Python<'_>, work: impl FnOnce(&Cancel) -> Result<T> + Send) -> PyResult<T> {
    let cancel = Cancel::new();
    let mut raised = None;
    let done = py.detach(|| {
        let (tell, told) = mpsc::channel();
        let token = &cancel;
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().name("stead-looks".into());
            let begun = thread.spawn_scoped(scope, move || {
                // It is waited for until then.
                let _ = tell.send(work(token));
            });
            begun.map_err(|e| Error::limit(format!("no thread to look through files: {e}")))?;
            loop {
                match told.recv_timeout(LOOK) {
                    Ok(done) => return done,
                    Err(RecvTimeoutError::Timeout) if raised.is_none() => {
                        raised = Python::attach(|py| py.check_signals()).err();
                        if raised.is_some() {
                            token.cancel();
                        }
                    }
                    Err(RecvTimeoutError::Timeout) => {}
                    Err(RecvTimeoutError::Disconnected) => {
                        return Err(Error::internal("a thread that looks through files panicked"));
                    }
                }
            }
        })
    });
    match raised {
        Some(e) => Err(e),
        None => done.map_err(raise),
    }
}

/// Does something that looks now and then whether a signal has come, which ends it.
fn looking<T: Send>(
    py: Python<'_>,
    work: impl FnOnce(&mut dyn FnMut() -> Result<()>) -> Result<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let done = py.detach(|| {
        work(&mut || {
            raised = Python::attach(|py| py.check_signals()).err();
            if raised.is_some() { Err(Error::cancelled()) } else { Ok(()) }
        })
    });
    match raised {
        Some(e) => Err(e),
        None => done.map_err(raise),
    }
}

/// Gives a transfer up, whoever does it; says as JSON what came of it.
fn give_up(py: Python<'_>, stager: &Inner, id: i64) -> PyResult<String> {
    json(&looking(py, |look| stager.cancel_within(id, PATIENCE, look))?).map_err(raise)
}

impl Transfer {
    fn checked(&self) -> PyResult<&Moving> {
        fork::refuse(self.born, "this transfer was begun", "wait for it in the process that did")?;
        self.inner.as_ref().ok_or_else(|| raise(Error::internal("a transfer that is gone")))
    }
}

#[pymethods]
impl Transfer {
    /// Its number in the journal.
    #[getter]
    fn id(&self) -> PyResult<i64> {
        Ok(self.checked()?.id())
    }

    /// True once it has ended.
    fn done(&self) -> PyResult<bool> {
        Ok(self.checked()?.has_ended())
    }

    /// Files done, files, bytes done, bytes, seconds so far, and seconds left with low and high, which are none while files are compared;
    /// none before it has begun to move or to compare.
    #[allow(clippy::type_complexity)]
    fn progress(&self) -> PyResult<Option<(u64, u64, u64, u64, f64, Option<(f64, f64, f64)>)>> {
        let progress = self.checked()?.progress();
        Ok(progress.map(|p| {
            let left = p.planned.then_some((p.left.seconds, p.left.low, p.left.high));
            (p.files_done, p.files, p.bytes_done, p.bytes, p.seconds, left)
        }))
    }

    /// What came of it, as JSON; none if it goes on after so many seconds.
    fn wait(&self, py: Python<'_>, timeout: Option<f64>) -> PyResult<Option<String>> {
        let moving = self.checked()?;
        let mut left = seconds(timeout, "timeout")?;
        loop {
            let turn = left.map_or(LOOK, |left| left.min(LOOK));
            let ended = py.detach(|| moving.wait(Some(turn)));
            // `TimedOutError` says that it goes on.
            if let Some(status) = ended.map_err(|e| raise(ended_with(e)))? {
                return json(&status).map(Some).map_err(raise);
            }
            py.check_signals()?;
            if let Some(left) = &mut left {
                *left = left.saturating_sub(turn);
                if left.is_zero() {
                    return Ok(None);
                }
            }
        }
    }

    /// Asks it to stop.
    fn stop(&self) -> PyResult<()> {
        self.checked()?.stop();
        Ok(())
    }

    /// Stops it and gives it up; says as JSON what came of it.
    fn cancel(&self, py: Python<'_>) -> PyResult<String> {
        give_up(py, &self.stager, self.checked()?.id())
    }

    /// Calls a function without arguments once it has ended, from another thread.
    fn then(&self, py: Python<'_>, call: Py<PyAny>) -> PyResult<()> {
        let moving = self.checked()?;
        let work = move || {
            // Without an interpreter nobody waits for it any more.
            let _ = Python::try_attach(|py| {
                if let Err(e) = call.call0(py) {
                    e.write_unraisable(py, None);
                }
                drop(call);
            });
        };
        py.detach(|| moving.then(work));
        Ok(())
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        let Some(moving) = self.inner.take() else { return };
        if self.born == fork::generation() {
            fork::end(moving);
        } else {
            // Its thread is the parent's.
            std::mem::forget(moving);
        }
    }
}
