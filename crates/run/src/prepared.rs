//! A request as one rank understands it before it meets the others.

use crate::outputs::{Carried, Outputs, carriable, spare};
use crate::request::Request;
use crate::{machine, place, scatter};
use std::path::PathBuf;
use std::sync::Arc;
use stead_core::{Error, Needs, Result, Value, limits};
use stead_format::{Dataset, Share};
use stead_kernel::expr::Filter;
use stead_kernel::registry::Pick;
use stead_kernel::{AnyKernel, Context, Grouped, Spec, registry};
/// One kernel and the specifications that it answers.
pub struct Slot {
    /// Index in the request and the member of the result that is the answer.
    pub answers: Vec<(usize, Pick)>,
    pub needs: Needs,
    /// The file that it writes.
    pub output: Option<PathBuf>,
    /// It writes what it makes of blocks, in their order.
    pub maps: bool,
    pub passes: u64,
    /// The kernel of the next pass; `None` when done.
    pub kernel: Option<Arc<dyn AnyKernel>>,
    pub value: Value,
}

/// A request as this rank alone understands it.
pub struct Prepared {
    /// What the results are called: specifications, then kernels of the caller's own.
    pub names: Vec<String>,
    pub filter: Option<Filter>,
    pub slots: Vec<Slot>,
    pub outputs: Outputs,
    /// Where files that kernels write as a whole are kept, if they are not written here.
    pub carried: Option<Carried>,
    pub share: Share,
}

impl Slot {
    /// Another pass, by this kernel.
    pub fn follow(&mut self, kernel: Arc<dyn AnyKernel>) -> Result<()> {
        // Threads and ranks were chosen before the first pass.
        if kernel.needs().order && !self.needs.order {
            let message = "a kernel wants the data in their order in a later pass alone";
            return Err(Error::usage(message).with_hint("ask for it in the first pass, too"));
        }
        self.kernel = Some(kernel);
        Ok(())
    }
}

impl Prepared {
    /// The name of a kernel that wants the data in their order, if there is one.
    pub fn ordered(&self) -> Option<String> {
        let slot = self.slots.iter().find(|s| s.needs.order)?;
        let (index, _) = slot.answers.first()?;
        self.names.get(*index).cloned()
    }

    /// Rank 0 writes the files that a kernel writes as a whole, unless they are carried to somebody else.
    pub fn new(
        dataset: &Dataset,
        request: &Request,
        rank: usize,
        size: usize,
        carries: bool,
    ) -> Result<Prepared> {
        let first = rank == 0;
        let asked = request.kernels.len() + request.own.len();
        if asked == 0 {
            return Err(Error::usage("no kernel is asked for").with_hint(
                "name at least one, for example -k rows -k mean:COLUMN; 'stead kernels' lists all",
            ));
        }
        if asked > limits::MAX_KERNELS {
            return Err(Error::usage(format!(
                "more than {} kernels in one request",
                limits::MAX_KERNELS
            )));
        }
        machine::vectors()?;
        place::refuse(request, dataset)?;
        let schema = dataset.schema();
        let mut specs: Vec<Spec> = Vec::new();
        for text in &request.kernels {
            if !specs.iter().any(|s| s.text == *text) {
                specs.push(Spec::parse(text)?);
            }
        }
        let mut names: Vec<String> = specs.iter().map(|s| s.text.clone()).collect();
        for own in &request.own {
            if names.iter().any(|n| n == own.name()) {
                return Err(Error::usage(format!("two kernels are called '{}'", own.name()))
                    .with_hint("give each kernel of your own a name that no other result has"));
            }
            names.push(own.name().to_string());
        }
        let by = request.by.iter().map(|c| schema.column(c)).collect::<Result<Vec<_>>>()?;
        // What lies in memory has a name, but no place beside it to write to.
        let path = dataset.sources()[0].file().map(|_| dataset.path());
        let context = Context { schema, path, grouped: !by.is_empty() };
        let built = specs
            .iter()
            .map(|s| registry::build(s, &context))
            .chain(request.own.iter().map(|o| o.build(&context)))
            .collect::<Result<Vec<_>>>()?;
        let slots = registry::fuse(built)
            .into_iter()
            .map(|(kernel, answers)| {
                let (needs, output, maps) = (kernel.needs(), kernel.output(), kernel.maps());
                let kernel =
                    if by.is_empty() { kernel } else { Grouped::wrap(kernel, by.clone(), schema)? };
                let (kernel, value) = (Some(kernel), Value::Null);
                Ok(Slot { answers, needs, output, maps, passes: 0, kernel, value })
            })
            .collect::<Result<Vec<_>>>()?;
        let filter = request.filter.as_deref().map(|f| Filter::parse(f, schema)).transpose()?;
        if filter.is_some() {
            unfiltered(&slots, &names)?;
        }
        let share = dataset.share(rank, size)?;
        let mut outputs = Outputs::default();
        let file = |s: &Slot| match &s.output {
            // Its bytes stay near the data.
            Some(path) if s.maps && dataset.holding().is_some() => Some(scatter::layout_path(path)),
            output => output.clone(),
        };
        if carries {
            let name = |s: &Slot| s.answers.first().and_then(|(index, _)| names.get(*index));
            slots.iter().try_for_each(|s| {
                let name = name(s).map_or("", String::as_str);
                carriable(name, s.maps, s.output.as_deref(), &specs)?;
                // Who has asked may see the data by the name that they have here.
                let files = dataset.sources().iter().flat_map(|s| s.files());
                s.output.as_deref().map_or(Ok(()), |path| spare(files, path))
            })?;
        } else {
            let files = slots.iter().filter_map(file).chain(request.outputs.iter().cloned());
            for path in files.filter(|_| first) {
                outputs.claim(dataset, &path)?;
            }
        }
        let carried = carries.then(Vec::new);
        Ok(Prepared { names, filter, slots, outputs, carried, share })
    }
}

/// Refuses a filter where a kernel looks at bricks: these are whole planes of an array, whichever rows are kept.
fn unfiltered(slots: &[Slot], names: &[String]) -> Result<()> {
    let Some(slot) = slots.iter().find(|s| s.needs.brick.is_some()) else { return Ok(()) };
    let name = slot.answers.first().and_then(|(index, _)| names.get(*index));
    let name = name.map_or("", String::as_str);
    let message = format!("kernel '{name}' draws the whole array and cannot be filtered");
    Err(Error::usage(message)
        .with_hint("run it without --where, and the kernels that are to be filtered by themselves"))
}
