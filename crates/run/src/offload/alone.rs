//! What a rank does itself that there is nobody to ask.

use super::serve::{plain, seen};
use super::{Job, Serving};
use crate::engine::run;
use crate::pass::{Observer, caught};
use crate::report::Report;
use crate::request::Request;
use crate::spread;
use stead_core::{Cancel, Error, Result};
use stead_kernel::Own;

/// Runs a job in this process, over what it sees of the data: what a program does that has no storage ranks, with the same job.
/// Of `how`, operations and memory count.
///
/// # Errors
/// Those of opening the data, and of [`run`]; `Usage` for a view of several files, or one that reaches beyond the end.
pub fn alone(
    job: &Job,
    how: &Serving,
    cancel: &Cancel,
    observer: Option<&dyn Observer>,
) -> Result<Report> {
    let options = job.view.as_ref().map_or_else(|| job.open.clone(), |_| plain(&job.open));
    let dataset = seen(spread::open(&job.inputs, &options)?, job)?;
    run(&dataset, &how.request(job, cancel)?, observer)
}

impl Serving {
    /// The request that a job is here.
    pub(super) fn request(&self, job: &Job, cancel: &Cancel) -> Result<Request> {
        let own = job.operations.iter().map(|name| self.operation(name));
        Ok(Request {
            kernels: job.kernels.clone(),
            own: own.collect::<Result<_>>()?,
            filter: job.filter.clone(),
            by: job.by.clone(),
            threads: job.threads,
            memory: self.memory.map_or(job.memory, |most| most.min(job.memory)),
            chunk: job.chunk,
            io: job.io,
            lenient: job.lenient,
            cancel: cancel.clone(),
            ..Request::default()
        })
    }

    fn operation(&self, name: &str) -> Result<Own> {
        let make = self.operations.as_ref().ok_or_else(|| {
            Error::usage(format!("no operation is called '{name}' here"))
                .with_hint("all ranks run the same program, and name its operations alike")
        })?;
        let own = caught(|| make(name))?;
        if own.name() == name {
            return Ok(own);
        }
        let other = own.name();
        Err(Error::usage(format!("operation '{name}' makes a kernel that is called '{other}'"))
            .with_hint("a kernel has the name that it was asked for by"))
    }
}
