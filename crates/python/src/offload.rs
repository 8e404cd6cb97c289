//! Work that ranks of a communicator ask of others, which are where the data are: `stead.offload`.

use crate::errors::raise;
use crate::fork;
use crate::options::open_options;
use crate::own::Described;
use crate::ranks::fabric;
use crate::report::Report;
use crate::run::{self, Trouble, Watcher, engine, refuse_run};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Arc;
use stead::fabric::Fabric;
use stead::offload::{Client, Job, Role, Roles, Serving, View, serve};
use stead::ranks::Here;
use stead::{Error, IoOptions};

/// What `offload` gets, from the dict that the package makes.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Offered {
    comm: (usize, usize),
    /// The storage hosts, or whether this rank is a storage rank.
    hosts: Option<String>,
    storage: bool,
    /// Kernels written in Python that may be asked for by name.
    kernels: Vec<Described>,
    memory: Option<u64>,
}

/// A view: displacement, extent, runs, bytes that are skipped, and bytes.
type Pattern = (u64, u64, Vec<(u64, u64)>, u64, u64);

/// What `Site.run` gets, from the dict that the package makes.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub struct Wanted {
    paths: Vec<String>,
    kernels: Vec<String>,
    operations: Vec<String>,
    filter: Option<String>,
    by: Vec<String>,
    view: Option<Pattern>,
    threads: usize,
    memory: Option<u64>,
    chunk: Option<usize>,
    lenient: bool,
    direct: bool,
    engine: String,
    queue_depth: Option<usize>,
    progress: Option<Py<PyAny>>,
    cancel: Option<Py<run::Cancel>>,
}

/// Ranks, and the host of each.
type Hosts = Vec<(usize, String)>;

/// A compute rank's way to storage ranks.
#[pyclass(frozen, module = "stead._stead")]
pub struct Site {
    inner: Arc<Client>,
    /// See `fork`.
    born: u32,
}

/// All ranks agree who is what; storage ranks then serve, and return nothing when all others are done.
#[pyfunction]
pub fn offload(py: Python<'_>, arguments: &Bound<'_, PyAny>) -> PyResult<Option<Site>> {
    let offered = arguments.extract::<Offered>().inspect_err(|e| {
        // Other ranks are in the same call, or will be.
        let comm = arguments.get_item("comm").and_then(|c| c.extract::<(usize, usize)>());
        if let Ok((maker, data)) = comm {
            refuse_run(py, maker, data, &e.to_string());
        }
    })?;
    let trouble = Trouble::default();
    let done = py.detach(|| offer(offered, &trouble));
    match (trouble.take(), done) {
        (Some(e), _) => Err(e),
        (None, Ok(site)) => {
            Ok(site.map(|inner| Site { inner: Arc::new(inner), born: fork::generation() }))
        }
        (None, Err(e)) => Err(raise(e)),
    }
}

fn offer(offered: Offered, trouble: &Trouble) -> stead::Result<Option<Client>> {
    let (maker, data) = offered.comm;
    let fabric: Arc<dyn Fabric> = Arc::new(fabric(maker, data)?);
    let here = Here::default();
    let roles = match &offered.hosts {
        Some(hosts) => Roles::by_hosts(&*fabric, &here, hosts),
        None => {
            let mine = if offered.storage { Role::Storage } else { Role::Compute };
            Roles::agree(&*fabric, &here, Ok(mine))
        }
    }?;
    if roles.compute().is_empty() {
        return Err(Error::usage("all ranks are storage ranks: nobody would ask").with_hint(
            "start ranks on other nodes, too, or run together on all of them: stead.run(..., comm=comm)",
        ));
    }
    if roles.of(fabric.rank()) == Role::Compute {
        return Client::new(fabric, roles).map(Some);
    }
    let cancel = stead::Cancel::new();
    let kernels: Vec<Arc<Described>> = offered.kernels.into_iter().map(Arc::new).collect();
    let operation = move |name: &str| {
        let found = kernels.iter().find(|k| k.name() == name);
        let found = found.ok_or_else(|| {
            Error::usage(format!("no kernel of the program is called '{name}' here"))
                .with_hint("give it to stead.offload on all ranks: kernels=[...]")
        });
        // Who has asked hears what went wrong with it; nobody here does.
        found.map(|k| k.shared(&Trouble::default()))
    };
    let (kept, stop) = (trouble.clone(), cancel.clone());
    let look = move || {
        Python::attach(|py| {
            if let Err(e) = py.check_signals() {
                kept.keep(e);
                stop.cancel();
            }
        });
    };
    let how = Serving {
        operations: Some(Arc::new(operation)),
        memory: offered.memory,
        cancel,
        look: Some(Arc::new(look)),
    };
    serve(fabric, &roles, &here, &how).map(|_| None)
}

#[pymethods]
impl Site {
    /// Ranks, and the host of each, by what they are: storage and compute.
    fn roles(&self) -> (Hosts, Hosts) {
        let roles = self.inner.roles();
        let with = |ranks: &[usize]| -> Hosts {
            ranks.iter().map(|r| (*r, roles.host(*r).to_owned())).collect()
        };
        (with(roles.storage()), with(roles.compute()))
    }

    /// Asks for a job, and waits for the report.
    fn run(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyAny>,
        options: &Bound<'_, PyDict>,
    ) -> PyResult<Report> {
        // The threads that carry what is asked for are not here.
        fork::refuse(
            self.born,
            "this site was made",
            "ask from the process that MPI has started, and hand on what it gets",
        )?;
        let a = arguments.extract::<Wanted>()?;
        let defaults = Job::default();
        let view = a.view.map(|(displacement, extent, runs, skip, bytes)| {
            View::new(displacement, extent, runs, skip, bytes)
        });
        let job = Job {
            inputs: a.paths,
            open: open_options(options)?,
            view: view.transpose().map_err(raise)?,
            file_bytes: None,
            kernels: a.kernels,
            operations: a.operations,
            filter: a.filter,
            by: a.by,
            threads: a.threads,
            memory: a.memory.unwrap_or(defaults.memory),
            chunk: a.chunk.unwrap_or(defaults.chunk),
            io: IoOptions {
                engine: engine(&a.engine)?,
                depth: a.queue_depth.unwrap_or(defaults.io.depth),
                direct: a.direct,
            },
            lenient: a.lenient,
        };
        let cancel = a.cancel.map_or_else(stead::Cancel::new, |c| c.get().token());
        let trouble = Trouble::default();
        let watcher =
            Watcher { cancel: cancel.clone(), trouble: trouble.clone(), progress: a.progress };
        let result = py.detach(|| self.inner.run(&job, &cancel, Some(&watcher)));
        match (trouble.take(), result) {
            (Some(e), _) => Err(e),
            (None, Ok(inner)) => Ok(Report { inner }),
            (None, Err(e)) => Err(raise(e)),
        }
    }

    /// Says goodbye; in a child that was forked it does nothing, since the parent may go on to ask.
    fn close(&self, py: Python<'_>) {
        if self.born == fork::generation() {
            py.detach(|| self.inner.close());
        }
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.born != fork::generation() {
            // Its locks may be those of threads that are not here: what is held once more never ends.
            std::mem::forget(Arc::clone(&self.inner));
        }
    }
}
