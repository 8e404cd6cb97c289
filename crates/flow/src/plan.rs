//! Which part of each value this rank needs, once it is known what the variables that are read are.

use crate::check::{Checked, Node};
use crate::division::{Division, MOST_WHOLES};
use crate::form::Form;
use crate::graph::{Operator, Over};
use crate::op::{self, Job, Share, hull};
use stead_core::units::format_size;
use stead_core::{Bounds, Error, Result};

/// What there is to be done in each step, by one of several ranks.
#[derive(Debug)]
pub struct Plan {
    /// The forms of the variables that are read, in the order of their slots.
    pub leaves: Vec<Form>,
    /// The forms of all slots.
    pub forms: Vec<Form>,
    /// The box of each slot that this rank needs; `None` if it needs nothing of it.
    pub wanted: Vec<Option<Bounds>>,
    /// Of each stream that is written, the box of each of its variables that this rank puts.
    pub shares: Vec<Vec<Option<Bounds>>>,
    /// Of each node, who does its work.
    pub work: Vec<Share>,
    /// Of each node, the rank that makes all of what one rank makes, and puts together what all have of a kernel.
    pub owners: Vec<u64>,
    /// Of each node, which box of each of its inputs it needs.
    pub needs: Vec<Vec<Option<Bounds>>>,
    /// Bytes of what nodes have in memory at the same time, at most.
    pub bytes: u64,
    /// True of slots of which something is written, or made of what comes of them.
    alive: Vec<bool>,
}

/// What is to be done at a step.
#[derive(Debug)]
pub struct Active {
    /// True of nodes with which this rank has something to do: it needs something of what they make, now or, of a window, later; or all
    /// ranks work on it.
    pub here: Vec<bool>,
    /// The same of any rank, as far as it does not depend on boxes: all ranks know the same.
    pub anywhere: Vec<bool>,
    /// How often each slot is needed on this rank.
    pub uses: Vec<usize>,
}

/// True if ranks may work together on what few numbers come of.
pub fn is_shared(checked: &Checked, ranks: u64) -> bool {
    ranks > 1 && checked.nodes.iter().any(|node| op::may_be_shared(&node.op))
}

/// A node that one rank makes as a whole of what is everybody's, by its number, and the boxes that it needs of what is read, each by the
/// number of its variable.
pub type Whole = (usize, Vec<(usize, Bounds)>);

/// These nodes, and what each needs: the same for all ranks.
///
/// # Errors
/// As [`Plan::new`].
pub fn wholes(checked: &Checked, leaves: &[Form], ranks: u64) -> Result<Vec<Whole>> {
    let mut forms = leaves.to_vec();
    let mut owners: Vec<Option<u64>> = vec![None; leaves.len()];
    let mut found = Vec::new();
    for (i, node) in checked.nodes.iter().enumerate() {
        let made = op::forms(&node.op, &of(node, &forms)?).map_err(|e| node.error(e))?;
        let mut owner = owned(node, &owners);
        if owner.is_none() && op::is_whole(&node.op) {
            // Whose it is does not matter here.
            owner = Some(0);
            found.push(i);
        }
        owners.extend(made.iter().map(|_| owner));
        forms.extend(made);
    }
    found.truncate(MOST_WHOLES);
    let each = found.into_iter().map(|i| Ok((i, origins(checked, &forms, i, ranks)?)));
    each.collect()
}

/// The boxes of variables that a node needs as a whole, but for what ranks tell each other anyway.
fn origins(
    checked: &Checked,
    forms: &[Form],
    of_node: usize,
    ranks: u64,
) -> Result<Vec<(usize, Bounds)>> {
    let mut wanted: Vec<Option<Bounds>> = vec![None; forms.len()];
    let before = checked.nodes.iter().enumerate().take(of_node.saturating_add(1));
    for (i, node) in before.rev() {
        if i == of_node {
            for slot in &node.inputs {
                want(&mut wanted, *slot, &forms.get(*slot).ok_or_else(odd)?.whole()?)?;
            }
            continue;
        }
        let made = node.first..node.first + node.makes;
        if !wanted.get(made).is_some_and(|made| made.iter().any(Option::is_some)) {
            continue;
        }
        let plain = Division::plain(0, ranks);
        let work = op::share(&node.op, &of(node, forms)?, None, &plain);
        if ranks > 1 && work.map_err(|e| node.error(e))? != Share::Own {
            continue;
        }
        let needs = needs(node, &Share::Own, forms, &wanted)?;
        for (slot, need) in node.inputs.iter().zip(&needs) {
            if let Some(need) = need {
                want(&mut wanted, *slot, need)?;
            }
        }
    }
    let read = checked.slots.iter().zip(wanted).enumerate();
    let read = read.filter(|(_, (slot, _))| slot.leaf.is_some());
    Ok(read.filter_map(|(slot, (_, wanted))| Some((slot, wanted?))).collect())
}

/// Which slots come to something that is written.
fn alive(checked: &Checked) -> Vec<bool> {
    let mut alive = vec![false; checked.slots.len()];
    let mut mark = |slot: usize| alive.get_mut(slot).into_iter().for_each(|alive| *alive = true);
    checked.writes.iter().flat_map(|write| &write.variables).for_each(|(_, slot)| mark(*slot));
    for node in checked.nodes.iter().rev() {
        if alive.iter().skip(node.first).take(node.makes).any(|alive| *alive) {
            for slot in &node.inputs {
                alive.get_mut(*slot).into_iter().for_each(|alive| *alive = true);
            }
        }
    }
    alive
}

impl Plan {
    /// What a rank does with variables of these forms, divided like this, in no more than so much memory.
    ///
    /// # Errors
    /// `Usage` for forms that a node cannot work on, with its name; `Limit` for more memory.
    pub fn new(
        checked: &Checked,
        leaves: Vec<Form>,
        division: &Division,
        memory: u64,
    ) -> Result<Plan> {
        let mut forms = leaves.clone();
        // Along which dimension each value lies on several nodes.
        let mut along: Vec<Option<usize>> =
            (0..leaves.len()).map(|leaf| division.along(leaf)).collect();
        // Whose it is to make all of a value, and what comes of it.
        let mut owners: Vec<Option<u64>> = vec![None; leaves.len()];
        for (i, node) in checked.nodes.iter().enumerate() {
            let of = of(node, &forms)?;
            let made = op::forms(&node.op, &of).map_err(|e| node.error(e))?;
            let first = first(node, &along);
            along.extend(made.iter().map(|made| op::along(&node.op, &of, made, first?)));
            let owner =
                owned(node, &owners).or_else(|| op::is_whole(&node.op).then(|| division.owner(i)));
            owners.extend(made.iter().map(|_| owner));
            forms.extend(made);
        }
        let alive = alive(checked);
        let mut wanted: Vec<Option<Bounds>> = vec![None; forms.len()];
        let mut work = vec![Share::Own; checked.nodes.len()];
        if is_shared(checked, division.ranks()) {
            for (node, work) in checked.nodes.iter().zip(&mut work) {
                if alive.get(node.first) == Some(&true) && owned(node, &owners).is_none() {
                    let share =
                        op::share(&node.op, &of(node, &forms)?, first(node, &along), division);
                    *work = share.map_err(|e| node.error(e))?;
                }
            }
        }
        let mut shares = Vec::new();
        for write in &checked.writes {
            let mut own = Vec::new();
            for (_, slot) in &write.variables {
                let whole = forms.get(*slot).ok_or_else(odd)?.whole()?;
                let along = along.get(*slot).copied().flatten();
                let share = match owners.get(*slot).copied().flatten() {
                    Some(owner) => (owner == division.rank()).then_some(whole),
                    None => division.share(&whole, along),
                };
                if let Some(share) = &share {
                    want(&mut wanted, *slot, share)?;
                }
                own.push(share);
            }
            shares.push(own);
        }
        let mut needed: Vec<Vec<Option<Bounds>>> = Vec::with_capacity(checked.nodes.len());
        for (node, work) in checked.nodes.iter().zip(&work).rev() {
            let needs = needs(node, work, &forms, &wanted)?;
            for (slot, need) in node.inputs.iter().zip(&needs) {
                if let Some(need) = need {
                    want(&mut wanted, *slot, need)?;
                }
            }
            needed.push(needs);
        }
        needed.reverse();
        let needs = needed;
        let owners = (0..checked.nodes.len()).map(|i| division.owner(i)).collect();
        let mut plan = Plan { leaves, forms, wanted, shares, work, owners, needs, bytes: 0, alive };
        plan.bytes = plan.check_memory(checked, memory)?;
        Ok(plan)
    }

    /// What is to be done at a step.
    pub fn active(&self, checked: &Checked, now: u64) -> Active {
        let (slots, nodes) = (checked.slots.len(), checked.nodes.len());
        let (mut uses, mut needed) = (vec![0usize; slots], vec![false; slots]);
        let (mut here, mut anywhere) = (vec![false; nodes], vec![false; nodes]);
        for write in checked.writes.iter().filter(|write| write.rate.is_at(now)) {
            for (_, slot) in &write.variables {
                uses.get_mut(*slot).into_iter().for_each(|n| *n += 1);
                needed.get_mut(*slot).into_iter().for_each(|n| *n = true);
            }
        }
        let each = checked.nodes.iter().zip(&self.work);
        let each = each.zip(here.iter_mut().zip(anywhere.iter_mut()));
        for ((node, work), (here, anywhere)) in each.rev() {
            fn its<'s, T>(node: &Node, all: &'s [T]) -> &'s [T] {
                all.get(node.first..node.first + node.makes).unwrap_or_default()
            }
            let rate = |slot: &usize| checked.slots.get(*slot).map(|s| s.rate);
            let comes = node.inputs.first().and_then(rate).is_some_and(|rate| rate.is_at(now));
            let sees = matches!(node.op, Operator::Window { .. });
            let is_alive = its(node, &self.alive).iter().any(|alive| *alive);
            *anywhere =
                comes && (sees && is_alive || its(node, &needed).iter().any(|needed| *needed));
            let is_wanted = its(node, &self.wanted).iter().any(Option::is_some);
            let is_used = sees || its(node, &uses).iter().any(|n| *n > 0);
            *here = match work {
                Share::Own => comes && is_wanted && is_used,
                Share::Part(_) => *anywhere,
            };
            for slot in &node.inputs {
                uses.get_mut(*slot).into_iter().for_each(|n| *n += usize::from(*here));
                needed.get_mut(*slot).into_iter().for_each(|n| *n |= *anywhere);
            }
        }
        Active { here, anywhere, uses }
    }

    /// Bytes of a box of a slot.
    fn bytes(&self, slot: usize) -> u64 {
        let bounds = self.wanted.get(slot).and_then(Option::as_ref);
        let size = self.forms.get(slot).map_or(0, |form| form.dtype.size() as u64);
        bounds.map_or(0, |bounds| bounds.elements().saturating_mul(size))
    }

    /// What nodes have in memory at the same time, at most. Parts of what others have cost nothing.
    fn check_memory(&self, checked: &Checked, memory: u64) -> Result<u64> {
        let mut each: Vec<(u64, &Node)> = Vec::new();
        for (node, work) in checked.nodes.iter().zip(&self.work) {
            let made = || (node.first..node.first + node.makes).map(|slot| self.bytes(slot));
            let input =
                || node.inputs.iter().map(|slot| self.bytes(*slot)).fold(0, u64::saturating_add);
            let shared = self.forms.get(node.first).filter(|_| *work != Share::Own);
            let shared = shared.map_or(0, op::shared_bytes);
            let bytes = match &node.op {
                Operator::Select { .. } | Operator::Split { .. } | Operator::Merge { .. } => 0,
                Operator::Sample { elements: None, .. } => 0,
                Operator::Window { how: Over::Stack, .. } => made().fold(0, u64::saturating_add),
                Operator::Window { steps, .. } => input()
                    .saturating_mul(*steps)
                    .saturating_add(made().fold(0, u64::saturating_add)),
                Operator::Map { .. } => made().fold(input(), u64::saturating_add),
                Operator::Kernel { .. } => {
                    let of = node.inputs.first().and_then(|slot| self.forms.get(*slot));
                    let both = of.zip(self.forms.get(node.first));
                    let beside = both.map_or(0, |(of, made)| op::beside_bytes(&node.op, of, made));
                    made().fold(beside, u64::saturating_add)
                }
                Operator::Sample { elements: Some(n), .. } => {
                    made().fold(op::drawn_bytes(*n), u64::saturating_add)
                }
                _ => made().fold(shared, u64::saturating_add),
            };
            each.push((bytes, node));
        }
        let total = each.iter().fold(0u64, |sum, (bytes, _)| sum.saturating_add(*bytes));
        let largest = each.iter().max_by_key(|(bytes, _)| *bytes);
        match largest.filter(|_| total > memory) {
            None => Ok(total),
            Some((bytes, node)) => Err(node.error(
                Error::limit(format!(
                    "the flow would take {} of memory, {} of it for this node, and has {}",
                    format_size(total),
                    format_size(*bytes),
                    format_size(memory)
                ))
                .with_hint("give it more memory, more ranks, or less to do: a smaller slice, a shorter window"),
            )),
        }
    }
}

/// Which box of each input a node needs on this rank.
///
/// # Errors
/// `Internal` for a node that is another one.
fn needs(
    node: &Node,
    work: &Share,
    forms: &[Form],
    wanted: &[Option<Bounds>],
) -> Result<Vec<Option<Bounds>>> {
    let own = wanted.get(node.first..node.first + node.makes).ok_or_else(odd)?;
    let of = of(node, forms)?;
    if let Share::Part(part) = work {
        let wanted = own.first().and_then(Option::as_ref);
        let reach = op::reach(&node.op, &of, part.as_ref(), wanted);
        return reach.map_err(|e| node.error(e));
    }
    let made: Vec<&Form> = forms.iter().skip(node.first).take(node.makes).collect();
    let job = Job { of: &of, made: &made, wanted: own };
    op::needs(&node.op, &job).map_err(|e| node.error(e))
}

/// Whose the inputs of a node are.
fn owned(node: &Node, owners: &[Option<u64>]) -> Option<u64> {
    node.inputs.iter().find_map(|slot| *owners.get(*slot)?)
}

/// Along which dimension the first of a node's inputs lies on several nodes.
fn first(node: &Node, along: &[Option<usize>]) -> Option<usize> {
    node.inputs.first().and_then(|slot| *along.get(*slot)?)
}

/// The forms of a node's inputs.
pub fn of<'f>(node: &Node, forms: &'f [Form]) -> Result<Vec<&'f Form>> {
    node.inputs.iter().map(|slot| forms.get(*slot).ok_or_else(odd)).collect()
}

fn want(wanted: &mut [Option<Bounds>], slot: usize, bounds: &Bounds) -> Result<()> {
    let all = wanted.get_mut(slot).ok_or_else(odd)?;
    *all = Some(match all.take() {
        Some(before) => hull(&before, bounds)?,
        None => bounds.clone(),
    });
    Ok(())
}

fn odd() -> Error {
    Error::internal("a value that a flow does not have")
}
