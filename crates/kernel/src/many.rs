//! The states of many groups, side by side.
//!
//! A kernel with a state for each of a million groups is bound by memory: by where a state lies, how large it is, and
//! how many calls it takes to get there. So states lie in one vector, by number, and a block goes to all of them in one
//! call. [`Typed`] does this for every kernel; those whose answer is a few words of state do it value by value
//! (`cells.rs`).

use crate::{Kernel, Step};
use std::any::Any;
use std::sync::Arc;
use stead_core::block::Selection;
use stead_core::{Block, Error, Result};

/// States of groups, which are numbered from 0.
pub trait Many: Any + Send {
    /// Appends states of no data until there are `n`.
    fn grow(&mut self, n: usize);

    /// Adds the rows of a block, row `i` to the state of group `groups[i]`.
    fn update(&mut self, groups: &[u32], block: &Block<'_>) -> Result<()>;

    /// Adds other states of the same kernel, the `i`-th to that of group `to[i]`.
    fn merge(&mut self, other: Box<dyn Many>, to: &[u32]) -> Result<()>;

    /// Ends the pass for groups, in this order; a state is given up with it.
    fn finish(&mut self, groups: &[u32], each: &mut dyn FnMut(Step) -> Result<()>) -> Result<()>;

    /// Bytes that the states take.
    fn bytes(&self) -> usize;

    /// A state as bytes.
    fn encode(&self, group: usize) -> Result<Vec<u8>>;

    /// Appends a state that came as bytes.
    fn decode(&mut self, bytes: &[u8]) -> Result<()>;
}

/// One state after the other.
pub struct Typed<K: Kernel> {
    kernel: Arc<K>,
    states: Vec<K::State>,
    bytes: usize,
    selection: Selection,
}

impl<K: Kernel> Typed<K> {
    /// None so far.
    pub fn new(kernel: Arc<K>) -> Typed<K> {
        Typed { kernel, states: Vec::new(), bytes: 0, selection: Selection::default() }
    }

    fn push(&mut self, state: K::State) {
        self.bytes += self.kernel.state_bytes(&state);
        self.states.push(state);
    }

    /// Changes the state of a group.
    fn change(
        &mut self,
        group: usize,
        change: impl FnOnce(&K, &mut K::State, &mut Selection) -> Result<()>,
    ) -> Result<()> {
        let state = self.states.get_mut(group).ok_or_else(no_state)?;
        let before = self.kernel.state_bytes(state);
        change(&self.kernel, state, &mut self.selection)?;
        self.bytes = (self.bytes + self.kernel.state_bytes(state)).saturating_sub(before);
        Ok(())
    }
}

impl<K: Kernel> Many for Typed<K> {
    fn grow(&mut self, n: usize) {
        self.states.reserve(n.saturating_sub(self.states.len()));
        while self.states.len() < n {
            self.push(self.kernel.init());
        }
    }

    fn update(&mut self, groups: &[u32], block: &Block<'_>) -> Result<()> {
        each_group(groups, |group, rows| {
            self.change(group as usize, |kernel, state, selection| {
                kernel.update(state, &block.select(rows, selection))
            })
        })
    }

    fn merge(&mut self, other: Box<dyn Many>, to: &[u32]) -> Result<()> {
        let other = same::<Typed<K>>(other)?;
        for (state, to) in other.states.into_iter().zip(to) {
            self.change(*to as usize, |kernel, mine, _| kernel.merge(mine, state))?;
        }
        Ok(())
    }

    fn finish(&mut self, groups: &[u32], each: &mut dyn FnMut(Step) -> Result<()>) -> Result<()> {
        groups.iter().try_for_each(|group| {
            let state = self.states.get_mut(*group as usize).ok_or_else(no_state)?;
            each(self.kernel.finish(std::mem::replace(state, self.kernel.init()))?)
        })
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn encode(&self, group: usize) -> Result<Vec<u8>> {
        wire(self.states.get(group).ok_or_else(no_state)?)
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        self.push(unwire(self.kernel.as_ref(), bytes)?);
        Ok(())
    }
}

/// A group without a state.
pub fn no_state() -> Error {
    Error::internal("a group has no state")
}

/// The states behind the trait.
pub fn same<M: Many>(other: Box<dyn Many>) -> Result<Box<M>> {
    let other: Box<dyn Any> = other;
    other.downcast().map_err(|_| Error::internal("groups of another kernel"))
}

/// A state as bytes.
pub fn wire(state: &impl serde::Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(state)
        .map_err(|e| Error::internal(format!("cannot encode a kernel state: {e}")))
}

/// A state of `kernel` from bytes that may be anything.
pub fn unwire<K: Kernel>(kernel: &K, bytes: &[u8]) -> Result<K::State> {
    let state: K::State = unwired(bytes)?;
    kernel.check(&state)?;
    Ok(state)
}

/// What was written by [`wire`], from bytes that may be anything.
pub fn unwired<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    postcard::from_bytes(bytes)
        .map_err(|e| Error::format(format!("a kernel state from another rank is malformed: {e}")))
}

/// Calls `f` with each group and its rows, ascending.
pub fn each_group(groups: &[u32], mut f: impl FnMut(u32, &[u32]) -> Result<()>) -> Result<()> {
    let n = groups.iter().max().map_or(0, |m| *m as usize + 1);
    if n <= groups.len() {
        let (order, starts) = crate::groups::sort_by_id(groups, n);
        for (group, ends) in starts.windows(2).enumerate().filter(|(_, e)| e[0] < e[1]) {
            // There are fewer groups than 2^32.
            f(group as u32, &order[ends[0]..ends[1]])?;
        }
        return Ok(());
    }
    // Far more groups than rows: a table of all of them would cost more than to sort.
    let mut pairs: Vec<u64> =
        groups.iter().zip(0u64..).map(|(g, row)| u64::from(*g) << 32 | row).collect();
    pairs.sort_unstable();
    let mut rows = Vec::new();
    for run in pairs.chunk_by(|a, b| a >> 32 == b >> 32) {
        rows.clear();
        rows.extend(run.iter().map(|p| *p as u32));
        f((run[0] >> 32) as u32, &rows)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_come_once_with_their_group(
            groups in prop::collection::vec(prop_oneof![0..5u32, 0..100_000u32], 0..60)
        ) {
            let mut found = vec![None; groups.len()];
            let mut last = None;
            each_group(&groups, |group, rows| {
                assert!(last < Some(group) && !rows.is_empty() && rows.is_sorted());
                last = Some(group);
                rows.iter().for_each(|r| assert!(found[*r as usize].replace(group).is_none()));
                Ok(())
            })?;
            prop_assert_eq!(found, groups.into_iter().map(Some).collect::<Vec<_>>());
        }
    }
}
