//! What operators do: what comes out of what, which part of an input a part of an output needs, and the work itself.

mod element;
mod join;
mod kernel;
mod map;
mod normal;
mod passes;
mod picture;
mod reduce;
mod sample;
pub(crate) mod select;
mod window;

use crate::check::Rate;
use crate::division::Division;
use crate::form::Form;
use crate::graph::{Operator, Over};
use crate::run::Functions;
use crate::value::Value;
use passes::Asked;
use stead_core::{Bounds, Error, Result};
use stead_kernel::AnyState;

pub use map::{Function, Given, Home, Wanted, home, unknown};
pub use passes::{Ended, Passes};
pub use reduce::Partial;
pub use sample::drawn_bytes;
pub use window::History;

/// Elements of an array of which ranks work on a part each: fewer are worked on before anybody else is told of it.
const SHARED: u64 = 1 << 16;
/// Bytes of the state of a kernel that a rank tells the others, at most.
pub const MOST_STATE: u64 = 256 << 20;

/// What an operator works with beside its inputs.
pub struct Work<'w> {
    /// How many threads it may have.
    pub threads: usize,
    /// Functions of the program.
    pub functions: &'w Functions,
    /// What it keeps from step to step.
    pub history: &'w mut History,
    /// False if nobody asks for what it makes at this step: it only sees what comes.
    pub is_due: bool,
}

/// What an operator works on and makes.
pub struct Job<'j> {
    /// The forms of its inputs.
    pub of: &'j [&'j Form],
    /// Those of what it makes.
    pub made: &'j [&'j Form],
    /// Which box of each of them is wanted.
    pub wanted: &'j [Option<Bounds>],
}

/// Who does the work of an operator.
#[derive(Debug, Clone, PartialEq)]
pub enum Share {
    /// Each rank makes the boxes that it wants.
    Own,
    /// All ranks together, of which this one works on this box of the input, or on nothing: who wants what comes out puts together what
    /// all of them have.
    Part(Option<Bounds>),
}

/// Which dimension of what comes out is this one of the first of what goes in.
pub fn along(op: &Operator, of: &[&Form], made: &Form, along: usize) -> Option<usize> {
    let of = of.first()?;
    match op {
        Operator::Reduce { how, over, .. } => reduce::along(of, *how, over.as_deref(), along),
        Operator::Window { how: Over::Stack, .. } | Operator::Merge { new: Some(_), .. } => {
            Some(along + 1)
        }
        _ => (made.shape.len() == of.shape.len()).then_some(along),
    }
}

/// Who does the work, by forms alone, and along which dimension the first of what goes in lies on several nodes: the same for all ranks, but for
/// the box.
///
/// # Errors
/// `Usage` for inputs that it cannot work on.
pub fn share(
    op: &Operator,
    inputs: &[&Form],
    along: Option<usize>,
    division: &Division,
) -> Result<Share> {
    match (op, inputs.first()) {
        (Operator::Reduce { over, .. }, Some(of)) => {
            reduce::share(of, over.as_deref(), along, division)
        }
        (Operator::Kernel { .. }, _) => match Asked::by(op) {
            Some(asked) => passes::share(&asked, inputs, along, division),
            None => Ok(Share::Own),
        },
        _ => Ok(Share::Own),
    }
}

/// True of what ranks may do together: of few numbers that come of a large array each finds its part.
pub fn may_be_shared(op: &Operator) -> bool {
    matches!(op, Operator::Reduce { .. } | Operator::Kernel { .. })
}

/// True of what makes all of what comes out, or nothing.
pub fn is_whole(op: &Operator) -> bool {
    match op {
        Operator::Map { elementwise, .. } => !elementwise,
        Operator::Kernel { kernel, .. } => !normal::is_one(kernel),
        _ => false,
    }
}

/// Which box of each input this rank needs of what all work on together, if it works on this box and wants that one of what comes out.
///
/// # Errors
/// `Internal` for boxes that are none.
pub fn reach(
    op: &Operator,
    of: &[&Form],
    part: Option<&Bounds>,
    wanted: Option<&Bounds>,
) -> Result<Vec<Option<Bounds>>> {
    match Asked::by(op) {
        Some(asked) => passes::reach(&asked, of, part, wanted),
        None => Ok(vec![part.cloned(); of.len()]),
    }
}

/// Bytes that an operator has before it beside its values, at most.
pub fn beside_bytes(op: &Operator, of: &Form, made: &Form) -> u64 {
    match op {
        Operator::Kernel { kernel, .. } if picture::is_one(kernel) => {
            picture::beside_bytes(of, made)
        }
        _ => 0,
    }
}

/// Bytes that it takes to put together what ranks have, at most.
pub fn shared_bytes(made: &Form) -> u64 {
    reduce::states_bytes(made)
}

/// What a rank has of an operator that is shared.
pub enum Mine {
    /// Sums of a reduction.
    Sums(Partial),
    /// A kernel, and its state after a pass.
    State(Box<Passes>, AnyState),
}

/// What this rank has of an operator that is shared, of which it works on this box.
///
/// # Errors
/// Those of kernels; `Internal` for an operator that is not shared.
pub fn begin(
    op: &Operator,
    of: &[&Form],
    part: Option<&Bounds>,
    inputs: &[Value],
    threads: usize,
) -> Result<Mine> {
    match (op, of.first(), inputs.first()) {
        (Operator::Reduce { how, over, .. }, Some(of), Some(value)) => {
            reduce::partial(of, value, *how, over.as_deref(), threads).map(Mine::Sums)
        }
        _ => {
            let asked = Asked::by(op).ok_or_else(nobody_shares)?;
            let passes = Passes::new(&asked, of)?;
            let state = pass(&passes, part, inputs, threads)?;
            Ok(Mine::State(Box::new(passes), state))
        }
    }
}

fn nobody_shares() -> Error {
    Error::internal("an operator that nobody shares")
}

/// A pass of a kernel over the box that this rank works on, if it works on one.
///
/// # Errors
/// Those of the kernel.
pub fn pass(
    passes: &Passes,
    part: Option<&Bounds>,
    inputs: &[Value],
    threads: usize,
) -> Result<AnyState> {
    match part {
        Some(part) => passes.pass(part, inputs, threads),
        None => Ok(passes.kernel().init()),
    }
}

/// What is wanted of what a kernel of all ranks has come to.
///
/// # Errors
/// As [`compute`].
pub fn made(
    op: &Operator,
    job: &Job<'_>,
    passes: &Passes,
    ended: Ended,
    inputs: &[Value],
    threads: usize,
) -> Result<Value> {
    let asked = Asked::by(op).ok_or_else(nobody_shares)?;
    passes.made(&asked, job, ended, inputs, threads)
}

/// What is wanted of what all ranks have added up.
///
/// # Errors
/// As [`compute`].
pub fn finish(op: &Operator, job: &Job<'_>, all: Partial) -> Result<Value> {
    let Operator::Reduce { how, over, .. } = op else { return Err(nobody_shares()) };
    let (of, made) = job.of.first().zip(job.made.first()).ok_or_else(nobody_shares)?;
    let wanted = job.wanted.first().and_then(Option::as_ref).ok_or_else(nobody_shares)?;
    reduce::finish(of, all, *how, over.as_deref(), made, wanted)
}

/// Checks what is said of an operator.
///
/// # Errors
/// `Usage`.
pub fn check(op: &Operator) -> Result<()> {
    match op {
        Operator::Select { .. } | Operator::Cast { .. } | Operator::Reduce { .. } => Ok(()),
        Operator::Scale { factor, offset, .. } => match factor.is_finite() && offset.is_finite() {
            true => Ok(()),
            false => Err(Error::usage("factor and offset must be finite numbers")),
        },
        Operator::Magnitude { of } => match of.is_empty() {
            true => Err(Error::usage("it needs one value at least")),
            false => Ok(()),
        },
        Operator::Split { parts, at, .. } => join::check_split(parts, at.as_deref()),
        Operator::Merge { of, along, new } => {
            join::check_merge(of, along.is_some(), new.as_deref())
        }
        Operator::Window { steps, every, .. } => window::check(*steps, *every),
        Operator::Sample { every, elements, .. } => sample::check(*every, *elements),
        Operator::Map { of, function, shape, dims, elementwise, .. } => {
            map::check(of.list(), function, shape.as_deref(), dims.as_deref(), *elementwise)
        }
        Operator::Kernel { .. } => Asked::by(op).map_or(Ok(()), |asked| kernel::check(&asked)),
    }
}

/// When there is something, if the inputs are there at this rate.
///
/// # Errors
/// `Usage` for numbers of steps that nobody counts.
pub fn rate(op: &Operator, rate: Rate) -> Result<Rate> {
    let (wait, every) = match op {
        Operator::Window { steps, every, .. } => (steps.saturating_sub(1), every.unwrap_or(1)),
        Operator::Sample { every: Some(every), .. } => (0, *every),
        _ => return Ok(rate),
    };
    let first = rate.every.checked_mul(wait).and_then(|n| n.checked_add(rate.first));
    let every = rate.every.checked_mul(every);
    let both = first.zip(every).filter(|(first, every)| (first | every) >> 62 == 0);
    let (first, every) =
        both.ok_or_else(|| Error::usage("it would have to wait for too many steps"))?;
    Ok(Rate { first, every })
}

/// What comes out.
///
/// # Errors
/// `Usage` for inputs that it cannot work on.
pub fn forms(op: &Operator, of: &[&Form]) -> Result<Vec<Form>> {
    let first = || of.first().copied().ok_or_else(|| Error::usage("it has no input"));
    let forms = match op {
        Operator::Select { slice, .. } => vec![select::form(first()?, slice)?],
        Operator::Cast { to, .. } => vec![first()?.with_dtype(*to)],
        Operator::Scale { units, .. } => vec![element::scaled(first()?, units.as_deref())],
        Operator::Magnitude { .. } => vec![element::magnitude_form(of)?],
        Operator::Split { along, parts, at, .. } => {
            join::split_forms(first()?, along, parts, at.as_deref())?
        }
        Operator::Merge { along, new, .. } => {
            vec![join::merge_form(of, along.as_ref(), new.as_deref())?]
        }
        Operator::Reduce { how, over, .. } => vec![reduce::form(first()?, *how, over.as_deref())?],
        Operator::Window { steps, how, .. } => vec![window::form(first()?, *steps, *how)?],
        Operator::Sample { elements, .. } => vec![sample::form(first()?, *elements)?],
        Operator::Map { dtype, shape, dims, elementwise, .. } => {
            vec![map::form(of, *dtype, shape.as_deref(), dims.as_deref(), *elementwise)?]
        }
        Operator::Kernel { .. } => {
            let asked = Asked::by(op).ok_or_else(nobody_shares)?;
            vec![kernel::form(of, &asked)?]
        }
    };
    forms.iter().try_for_each(|form| form.whole().map(drop))?;
    Ok(forms)
}

/// Which box of each input is needed, if boxes of what is made are wanted. None of a value that is not.
///
/// # Errors
/// `Internal` for forms that are not those of the operator.
pub fn needs(op: &Operator, job: &Job<'_>) -> Result<Vec<Option<Bounds>>> {
    if job.wanted.iter().all(Option::is_none) {
        return Ok(vec![None; job.of.len()]);
    }
    let odd = || Error::internal("an operator without an input or an output");
    let first = || job.of.first().copied().ok_or_else(odd);
    let wanted = || job.wanted.first().and_then(Option::as_ref).ok_or_else(odd);
    let whole = || job.of.iter().map(|form| form.whole().map(Some)).collect();
    match op {
        Operator::Select { slice, .. } => {
            Ok(vec![Some(select::needs(&first()?.taken(slice)?, wanted()?)?)])
        }
        Operator::Cast { .. }
        | Operator::Scale { .. }
        | Operator::Magnitude { .. }
        | Operator::Map { elementwise: true, .. } => {
            Ok(vec![Some(wanted()?.clone()); job.of.len()])
        }
        Operator::Split { along, at, .. } => {
            Ok(vec![join::split_needs(first()?, along, at.as_deref(), job.wanted)?])
        }
        Operator::Merge { along, .. } => join::merge_needs(job.of, along.as_ref(), wanted()?),
        Operator::Reduce { how, over, .. } => {
            Ok(vec![Some(reduce::needs(first()?, *how, over.as_deref(), wanted()?)?)])
        }
        Operator::Window { how, .. } => Ok(vec![Some(window::needs(*how, wanted()?)?)]),
        Operator::Sample { elements: None, .. } => Ok(vec![Some(wanted()?.clone())]),
        Operator::Sample { elements: Some(n), seed, .. } => {
            Ok(vec![Some(sample::needs(first()?, *n, *seed, wanted()?)?)])
        }
        Operator::Map { .. } | Operator::Kernel { .. } => whole(),
    }
}

/// Does the work: makes the boxes that are wanted. Inputs have the boxes that [`needs`] told, or larger ones.
///
/// # Errors
/// `Limit` if there is no memory for it; those of functions.
pub fn compute(
    op: &Operator,
    job: &Job<'_>,
    inputs: &[Value],
    work: &mut Work<'_>,
) -> Result<Vec<Option<Value>>> {
    let odd = || Error::internal("an operator without an input or an output");
    let first = || job.of.first().copied().zip(inputs.first()).ok_or_else(odd);
    let made = || job.made.first().copied().ok_or_else(odd);
    let wanted = || job.wanted.first().and_then(Option::as_ref).ok_or_else(odd);
    let threads = work.threads;
    let one = match op {
        Operator::Select { slice, .. } => {
            let (form, value) = first()?;
            value.slice(&form.taken(slice)?, wanted()?)?
        }
        Operator::Cast { to, .. } => element::cast(first()?.1, *to, wanted()?, threads)?,
        Operator::Scale { factor, offset, .. } => {
            element::scale(first()?.1, made()?.dtype, (*factor, *offset), wanted()?, threads)?
        }
        Operator::Magnitude { .. } => {
            element::magnitude(inputs, made()?.dtype, wanted()?, threads)?
        }
        Operator::Split { along, at, .. } => {
            let (form, value) = first()?;
            return join::split(form, value, along, at.as_deref(), job.wanted);
        }
        Operator::Merge { along, .. } => join::merge(job.of, inputs, along.as_ref(), wanted()?)?,
        Operator::Reduce { how, over, .. } => {
            let (form, value) = first()?;
            reduce::reduce(form, value, *how, over.as_deref(), made()?, wanted()?, threads)?
        }
        Operator::Window { steps, how, .. } => {
            return window::window(first()?.1, *steps, *how, job, work).map(|value| vec![value]);
        }
        Operator::Sample { elements: None, .. } => first()?.1.within(wanted()?),
        Operator::Sample { elements: Some(n), seed, .. } => {
            let (form, value) = first()?;
            sample::sample(form, value, (*n, *seed), wanted()?, &mut work.history.drawn)?
        }
        Operator::Map { function, elementwise, .. } => {
            // What works element by element makes a part; all others make the whole.
            let made = made()?;
            let bounds = if *elementwise { wanted()?.clone() } else { made.whole()? };
            map::map(job, inputs, function, made, bounds, work)?.within(wanted()?)
        }
        Operator::Kernel { .. } => {
            passes::alone(&Asked::by(op).ok_or_else(odd)?, job, inputs, threads)?
        }
    };
    Ok(vec![Some(one)])
}

/// The smallest box that has both.
pub fn hull(a: &Bounds, b: &Bounds) -> Result<Bounds> {
    if a.is_empty() {
        return Ok(b.clone());
    }
    if b.is_empty() || a.contains(b) {
        return Ok(a.clone());
    }
    let sides = a.sides().zip(b.sides()).map(|(a, b)| (a.start.min(b.start), a.end.max(b.end)));
    let (start, count): (Vec<u64>, Vec<u64>) =
        sides.map(|(start, end)| (start, end.saturating_sub(start))).unzip();
    Bounds::new(start, count)
}
