//! Programs on several nodes whose streams reach each other, for `stead.couple`.

use crate::errors::raise;
use crate::fork;
use crate::ranks::fabric;
use crate::stream::{let_go, patience, spaces, unlocked};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use stead::Error;
use stead::fabric::Fabric;

/// The name and the ranks of a part.
type Part = (String, Vec<usize>);

/// What `stead.Coupling` is made of.
#[pyclass(frozen, module = "stead._stead")]
pub struct Coupling {
    /// `None` once it is closed.
    inner: Mutex<Option<Arc<stead::stream::Coupling>>>,
    born: u32,
}

impl Coupling {
    /// That of Rust.
    ///
    /// # Errors
    /// `Usage` once it is closed, and in a process that was forked.
    pub fn open(&self) -> PyResult<Arc<stead::stream::Coupling>> {
        fork::refuse(self.born, "this coupling was made", "couple the programs that use it")?;
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.clone().ok_or_else(|| raise(Error::usage("the coupling is closed")))
    }
}

#[pymethods]
impl Coupling {
    /// All ranks of a communicator make it, and come within the time. `maker` and `data` are addresses, of which `stead._mpi` knows.
    #[new]
    fn new(
        py: Python<'_>,
        maker: usize,
        data: usize,
        part: &str,
        given: Vec<String>,
        timeout: f64,
    ) -> PyResult<Coupling> {
        let timeout = patience(timeout)?;
        let make = || {
            let fabric: Arc<dyn Fabric> = Arc::new(fabric(maker, data)?);
            match spaces(&given) {
                Ok(spaces) => stead::stream::Coupling::new(fabric, part, &spaces, timeout),
                Err(e) => Err(stead::stream::Coupling::refuse(&*fabric, timeout, e)),
            }
        };
        let made = unlocked(py, make)?;
        Ok(Coupling { inner: Mutex::new(Some(made)), born: fork::generation() })
    }

    /// Which rank of its part this is, and all parts: their names and ranks.
    fn told(&self) -> PyResult<(u64, Vec<Part>)> {
        let coupling = self.open()?;
        let parts = coupling.parts().iter().map(|part| (part.name.clone(), part.ranks.clone()));
        Ok((coupling.rank(), parts.collect()))
    }

    fn close(&self, py: Python<'_>) {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner).take();
        let born = self.born;
        py.detach(|| let_go(inner, born));
    }
}

impl Drop for Coupling {
    fn drop(&mut self) {
        let inner = self.inner.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let_go(inner, self.born);
    }
}
