//! Where ranks meet: what each has of nodes on which all work becomes what comes of them.
//!
//! What is added up everybody tells everybody, and whoever wants numbers merges it. The states of a kernel are merged by one rank, and by those
//! that want its answer, in the order of the ranks; that ends the pass. If another one follows, the one tells the others the state of all, of
//! which they make the same kernel; then each goes over its part again, and they meet once more. Which passes may be followed by another one all
//! know, so that none waits in vain.

use crate::check::{Checked, Node};
use crate::form::Form;
use crate::op::{self, Ended, Job, MOST_STATE, Mine, Partial, Passes};
use crate::plan::{self, Plan};
use crate::ranks::{At, Ranks, Said, Told};
use crate::value::Value;
use stead_core::units::format_size;
use stead_core::{Bounds, Error, Kind, Result};
use stead_kernel::AnyState;

/// The least that a state of a kernel may take, however little memory is left.
const LEAST_STATE: u64 = 1 << 20;

/// What is known at a step of the flow, where all ranks are.
pub struct Now<'n> {
    pub step: u64,
    /// Of each stream that is read.
    pub numbers: &'n [u64],
    pub plan: &'n Plan,
    pub checked: &'n Checked,
    pub threads: usize,
}

/// A node on which all ranks work, by its number, and what this one has of it.
pub struct Share {
    pub node: usize,
    mine: Mine,
    /// What it works on, if there may be further passes.
    inputs: Vec<Value>,
}

impl Share {
    /// What this rank has of a node, of these inputs.
    pub fn new(node: usize, mine: Mine, inputs: Vec<Value>) -> Share {
        let goes_on = matches!(&mine, Mine::State(passes, _) if !passes.kernel().is_last());
        Share { node, mine, inputs: if goes_on { inputs } else { Vec::new() } }
    }

    /// How much it is of what ranks tell each other at a time: states of kernels may be large.
    pub fn weight(&self) -> usize {
        match self.mine {
            Mine::Sums(_) => 1,
            Mine::State(..) => 8,
        }
    }
}

fn odd() -> Error {
    Error::internal("a value that a flow does not have")
}

impl<'n> Now<'n> {
    /// A node.
    pub fn node(&self, i: usize) -> Result<&'n Node> {
        self.checked.nodes.get(i).ok_or_else(odd)
    }

    /// The forms of what a node makes.
    pub fn made(&self, node: &Node) -> Vec<&'n Form> {
        self.plan.forms.iter().skip(node.first).take(node.makes).collect()
    }

    /// Which boxes of that this rank wants.
    pub fn wanted(&self, node: &Node) -> Result<&'n [Option<Bounds>]> {
        self.plan.wanted.get(node.first..node.first + node.makes).ok_or_else(odd)
    }

    fn is_wanted(&self, node: &Node) -> bool {
        self.plan.wanted.get(node.first).is_some_and(Option::is_some)
    }

    /// The box of its inputs on which this rank works.
    pub fn part(&self, i: usize) -> Option<&'n Bounds> {
        match self.plan.work.get(i) {
            Some(op::Share::Part(part)) => part.as_ref(),
            _ => None,
        }
    }

    fn at(&self) -> At<'n> {
        At { step: self.step, numbers: self.numbers }
    }

    /// Makes what is wanted here of what a kernel of all ranks has come to.
    fn make(
        &self,
        i: usize,
        passes: &Passes,
        ended: Ended,
        inputs: &[Value],
        values: &mut [Option<Value>],
    ) -> Result<()> {
        let node = self.node(i)?;
        if !self.is_wanted(node) {
            return Ok(());
        }
        let (of, made) = (plan::of(node, &self.plan.forms)?, self.made(node));
        let job = Job { of: &of, made: &made, wanted: self.wanted(node)? };
        let value = op::made(&node.op, &job, passes, ended, inputs, self.threads);
        put(values, node, value.map_err(|e| node.error(e))?);
        Ok(())
    }

    /// The same of what all have added up.
    fn finish(&self, node: &Node, all: Partial, values: &mut [Option<Value>]) -> Result<()> {
        let (of, made) = (plan::of(node, &self.plan.forms)?, self.made(node));
        let job = Job { of: &of, made: &made, wanted: self.wanted(node)? };
        let value = op::finish(&node.op, &job, all).map_err(|e| node.error(e))?;
        put(values, node, value);
        Ok(())
    }
}

fn put(values: &mut [Option<Value>], node: &Node, value: Value) {
    if let Some(place) = values.get_mut(node.first) {
        *place = Some(value);
    }
}

/// A kernel between two passes, in its place among those of which ranks tell each other at a time.
struct Going {
    place: usize,
    node: usize,
    passes: Box<Passes>,
    inputs: Vec<Value>,
}

/// Tells the other ranks what this one has of some nodes, and makes what is wanted here of what all have. States of kernels, each of which is
/// here three times at most, may take so much memory.
///
/// # Errors
/// `Peer` if a rank has ended, or is somewhere else; `Limit`; those of operators.
pub fn meet(
    now: &Now<'_>,
    mut shares: Vec<Share>,
    values: &mut [Option<Value>],
    ranks: &mut Option<Ranks>,
    memory: u64,
) -> Result<()> {
    let ranks = ranks.as_mut().ok_or_else(odd)?;
    let most = MOST_STATE.min((memory / 3).max(LEAST_STATE));
    while !shares.is_empty() {
        let mut said = Vec::with_capacity(shares.len());
        for (place, share) in shares.iter().enumerate() {
            let node = now.node(share.node)?;
            said.push((place, share.node, told(&share.mine, most).map_err(|e| node.error(e))?));
        }
        let all = ranks.tell(now.at(), said)?;
        let (mut awaited, mut going) = (Vec::new(), Vec::new());
        let (mut verdicts, mut is_open): (Vec<Said>, bool) = (Vec::new(), false);
        for (place, Share { node: i, mine, inputs }) in shares.into_iter().enumerate() {
            let node = now.node(i)?;
            let (mut passes, state) = match mine {
                Mine::Sums(sums) => {
                    if now.is_wanted(node) {
                        now.finish(node, added(&all, ranks, (place, i), sums)?, values)?;
                    }
                    continue;
                }
                Mine::State(passes, state) => (passes, state),
            };
            let is_last = passes.kernel().is_last();
            is_open |= !is_last;
            // Who ends the pass for all does that only if there may be another one.
            let tells = !is_last && now.plan.owners.get(i) == Some(&ranks.rank());
            if !tells && !now.is_wanted(node) {
                if !is_last {
                    awaited.push(Going { place, node: i, passes, inputs });
                }
                continue;
            }
            let state = merged(&all, ranks, (place, i), &passes, state)?;
            let bytes = match tells {
                true => encoded(&passes, &state, most).map_err(|e| node.error(e))?,
                false => Vec::new(),
            };
            let ended = passes.end(state).map_err(|e| node.error(e))?;
            if tells {
                // Of an answer there is nothing to tell but that it is one.
                let is_over = matches!(ended, Some(Ended::Answer(_) | Ended::File(_)));
                let verdict = if is_over { vec![OVER] } else { [&[STATE][..], &bytes].concat() };
                verdicts.push((place, i, verdict));
            }
            match ended {
                Some(ended) => now.make(i, &passes, ended, &inputs, values)?,
                None => going.push(Going { place, node: i, passes, inputs }),
            }
        }
        drop(all);
        shares = Vec::new();
        if !is_open {
            continue;
        }
        let all = ranks.tell(now.at(), verdicts)?;
        for one in awaited {
            going.extend(heard(now, &all, one)?);
        }
        drop(all);
        // All ranks have the same ones in the same places.
        going.sort_unstable_by_key(|one| one.place);
        for Going { node: i, passes, inputs, .. } in going {
            let node = now.node(i)?;
            let state = op::pass(&passes, now.part(i), &inputs, now.threads);
            let mine = Mine::State(passes, state.map_err(|e| node.error(e))?);
            shares.push(Share::new(i, mine, inputs));
        }
    }
    Ok(())
}

/// What the rank that ends a pass says first: that the kernel has an answer, or that the state of all follows.
const OVER: u8 = 0;
const STATE: u8 = 1;

/// Hears how a pass of a kernel ends that others have merged, and of which nothing is wanted here. Gives the kernel if there is another pass.
fn heard(now: &Now<'_>, all: &Told<'_>, mut one: Going) -> Result<Option<Going>> {
    let (node, i) = (now.node(one.node)?, one.node);
    let owner = now.plan.owners.get(i).copied().ok_or_else(odd)?;
    let damaged = || Error::format("what a rank of the flow has said is damaged");
    let kernel = one.passes.kernel().clone();
    let state = all.of(owner, (one.place, i), MOST_STATE, |bytes| match bytes.split_first() {
        Some((&OVER, [])) => Ok(None),
        Some((&STATE, state)) => kernel.decode(state).map(Some),
        _ => Err(damaged()),
    })?;
    let Some(state) = state else { return Ok(None) };
    match one.passes.end(state).map_err(|e| node.error(e))? {
        None => Ok(Some(one)),
        Some(Ended::Maps(_)) => Ok(None),
        Some(_) => {
            let message = "another rank of the flow goes on with a kernel that has an answer";
            Err(node.error(Error::new(Kind::Peer, message)))
        }
    }
}

/// What this rank tells of a node.
fn told(mine: &Mine, most: u64) -> Result<Vec<u8>> {
    match mine {
        Mine::Sums(sums) => sums.told(),
        Mine::State(passes, state) => encoded(passes, state, most),
    }
}

/// A state of a kernel as bytes, which may be so many.
fn encoded(passes: &Passes, state: &AnyState, most: u64) -> Result<Vec<u8>> {
    let bytes = passes.kernel().encode(state)?;
    if bytes.len() as u64 <= most {
        return Ok(bytes);
    }
    let (bytes, most) = (format_size(bytes.len() as u64), format_size(most));
    let message = format!("a rank would tell the others {bytes} of it, and may tell {most}");
    Err(Error::limit(message)
        .with_hint("ask for less, give the flow more memory, or run it by one rank"))
}

/// What all ranks have added up, of what this one has.
fn added(all: &Told<'_>, ranks: &Ranks, of: (usize, usize), mine: Partial) -> Result<Partial> {
    let most = mine.most_bytes();
    let mut sums = mine;
    for rank in (0..ranks.ranks()).filter(|rank| *rank != ranks.rank()) {
        // Whoever says more says something else.
        all.of(rank, of, most, |bytes| sums.merge(Partial::read(bytes)?))?;
    }
    Ok(sums)
}

/// The state of all ranks, in their order, of that of this one.
fn merged(
    all: &Told<'_>,
    ranks: &Ranks,
    of: (usize, usize),
    passes: &Passes,
    mine: AnyState,
) -> Result<AnyState> {
    let (kernel, mut mine) = (passes.kernel(), Some(mine));
    let mut state = kernel.init();
    for rank in 0..ranks.ranks() {
        match mine.take_if(|_| rank == ranks.rank()) {
            Some(mine) => kernel.merge(&mut state, mine)?,
            None => all.of(rank, of, MOST_STATE, |bytes| {
                kernel.merge(&mut state, kernel.decode(bytes)?)
            })?,
        }
    }
    Ok(state)
}
