//! The last steps together. They are copied when they come, so that nobody who writes them waits for the window.

use super::{Job, Work, reduce, sample};
use crate::form::Form;
use crate::graph::{Dim, How, Over};
use crate::origin;
use crate::value::{Tile, Value};
use std::collections::VecDeque;
use std::sync::Arc;
use stead_core::{Bounds, Error, Result};

/// Steps of one window.
const MAX_STEPS: u64 = 1 << 20;

/// What a node keeps from step to step: a window one box of each of the last steps, the oldest first.
#[derive(Debug, Default)]
pub struct History {
    steps: VecDeque<Arc<Vec<u8>>>,
    /// Which box of each that is.
    own: Option<Bounds>,
    /// How many have come.
    had: u64,
    /// Of a sample, what was drawn.
    pub drawn: sample::Drawn,
}

/// Whether it can be a window.
pub fn check(steps: u64, every: Option<u64>) -> Result<()> {
    if steps == 0 || steps > MAX_STEPS {
        return Err(Error::usage(format!("a window of {steps} steps"))
            .with_hint(format!("it has from 1 to {MAX_STEPS}")));
    }
    match every {
        Some(0) => Err(Error::usage("a window every 0 steps; it must be 1 or more")),
        _ => Ok(()),
    }
}

fn as_how(how: Over) -> Option<How> {
    match how {
        Over::Stack => None,
        Over::Sum => Some(How::Sum),
        Over::Mean => Some(How::Mean),
        Over::Min => Some(How::Min),
        Over::Max => Some(How::Max),
    }
}

/// What comes out.
pub fn form(of: &Form, steps: u64, how: Over) -> Result<Form> {
    let mut of = of.clone();
    // What a flow before this one has said of one step is not true of several.
    of.attributes.retain(|name, _| !name.ends_with(origin::ATTRIBUTE));
    match as_how(how) {
        None => of.with_first("window", steps),
        // The dimension comes and goes, whatever its name.
        Some(how) => Ok(Form {
            dims: of.dims.clone(),
            ..reduce::form(&stacked(&of, steps), how, Some(&[Dim::Place(0)]))?
        }),
    }
}

/// The steps one after the other, without names.
fn stacked(of: &Form, steps: u64) -> Form {
    let mut form = Form { dims: Vec::new(), ..of.clone() };
    form.shape.insert(0, steps);
    form
}

/// Which box of each step is needed.
pub fn needs(how: Over, wanted: &Bounds) -> Result<Bounds> {
    match how {
        Over::Stack => reduce::without_first(wanted),
        _ => Ok(wanted.clone()),
    }
}

/// Takes a step, and gives the window if it is time for it.
pub fn window(
    value: &Value,
    steps: u64,
    how: Over,
    job: &Job<'_>,
    work: &mut Work<'_>,
) -> Result<Option<Value>> {
    let odd = || Error::internal("a window without an input or an output");
    let (of, made) = job.of.first().zip(job.made.first()).ok_or_else(odd)?;
    let wanted = job.wanted.first().and_then(Option::as_ref).ok_or_else(odd)?;
    let own = needs(how, wanted)?;
    let history = &mut *work.history;
    let most = usize::try_from(steps).unwrap_or(usize::MAX);
    while history.steps.len() >= most {
        history.steps.pop_front();
    }
    if !history.steps.is_empty() && history.own.as_ref() != Some(&own) {
        return Err(Error::usage("arrays have changed their shapes, and ranks divide them otherwise than before: its steps have no window together")
            .with_hint("run the flow by one rank"));
    }
    history.own = Some(own.clone());
    history.steps.push_back(Arc::new(value.within(&own).gather(work.threads)?));
    history.had = history.had.saturating_add(1);
    if history.steps.len() < most || !work.is_due {
        return Ok(None);
    }
    let ndim = own.ndim() + 1;
    let was: Vec<Option<usize>> = (0..ndim).map(|d| d.checked_sub(1)).collect();
    let mut tiles = Vec::with_capacity(most);
    let before = |first: u64, rest: &[u64]| -> Vec<u64> {
        std::iter::once(first).chain(rest.iter().copied()).collect()
    };
    for (i, bytes) in (0u64..).zip(&history.steps) {
        let bounds = Bounds::new(before(i, own.start()), before(1, own.count()))?;
        let tile = Tile::own(own.clone(), of.dtype.size(), bytes.clone());
        tiles.push(tile.seen_as(bounds, &was, &vec![1; ndim]));
    }
    let bounds = Bounds::new(before(0, own.start()), before(steps, own.count()))?;
    let all = Value { dtype: of.dtype, bounds, tiles };
    match as_how(how) {
        None => Ok(Some(all.within(wanted))),
        Some(how) => {
            let (form, first) = (stacked(of, steps), [Dim::Place(0)]);
            reduce::reduce(&form, &all, how, Some(&first), made, wanted, work.threads).map(Some)
        }
    }
}
