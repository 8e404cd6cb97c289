//! Rounds after the first, where every group has a kernel of its own, or is done.

use super::{decode_all, encode_all, needs_of, show, twice, wrong};
use crate::groups::{Column, Groups, key_of, partition, parts, sort_by_id, write_key};
use crate::{AnyKernel, AnyState, Sink, Step};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use stead_core::block::Selection;
use stead_core::{Block, Error, Kind, Needs, Result, Value};

/// What a group has come to.
pub enum Stage {
    /// Another round, with this kernel.
    Running(Arc<dyn AnyKernel>),
    /// Its answer.
    Done(Value),
}

impl Stage {
    /// What a kernel said at the end of a round.
    pub fn of(step: Step) -> Result<Stage> {
        match step {
            Step::Done(v) => Ok(Stage::Done(v)),
            Step::Next(k) => Ok(Stage::Running(k)),
            // Every group would write the same file.
            Step::File { .. } => {
                Err(Error::usage("a kernel that writes a file cannot run by groups"))
            }
        }
    }
}

/// The groups of the round before, and the kernels that go on with them. A block is cut into one for each group.
pub struct Later {
    stages: HashMap<Box<[u8]>, Stage>,
    by: Vec<Column>,
}

impl Later {
    pub fn new(stages: HashMap<Box<[u8]>, Stage>, by: Vec<Column>) -> Later {
        Later { stages, by }
    }

    /// The kernel of a group; `None` if it is done.
    fn kernel(&self, key: &[u8]) -> Result<Option<&Arc<dyn AnyKernel>>> {
        match self.stages.get(key) {
            Some(Stage::Running(k)) => Ok(Some(k)),
            Some(Stage::Done(_)) => Ok(None),
            None => Err(Error::new(
                Kind::Changed,
                format!("group '{}' was not there in the round before", show(&parts(key)?)),
            )
            .with_hint("the file changed during the run; run again when nobody writes to it")),
        }
    }

    /// The number of a group's state, which is made if there is none yet, and its kernel; `None` if it is done.
    fn state(&self, groups: &mut Groups, key: &[u8]) -> Result<Option<(usize, &dyn AnyKernel)>> {
        let Some(kernel) = self.kernel(key)? else { return Ok(None) };
        let at = groups.find(key).unwrap_or_else(|| {
            let state = kernel.init();
            let bytes = kernel.state_bytes(&state);
            groups.insert(key, state, bytes)
        });
        Ok(Some((at, kernel.as_ref())))
    }
}

impl AnyKernel for Later {
    fn needs(&self) -> Needs {
        let running = self.stages.values().filter_map(|s| match s {
            Stage::Running(k) => Some(k),
            Stage::Done(_) => None,
        });
        needs_of(&self.by, running)
    }

    fn init(&self) -> AnyState {
        Box::new(Groups::default())
    }

    fn update(&self, state: &mut AnyState, block: &Block<'_>) -> Result<()> {
        let groups = own(state)?;
        if block.rows == 0 {
            return Ok(());
        }
        let (ids, firsts) = partition(&self.by, block)?;
        let (order, starts) = sort_by_id(&ids, firsts.len());
        let mut scratch = Selection::default();
        let mut key = Vec::new();
        for (i, first) in firsts.into_iter().enumerate() {
            key.clear();
            write_key(&self.by, block, first, &mut key)?;
            let Some((at, kernel)) = self.state(groups, &key)? else { continue };
            let rows = &order[starts[i]..starts[i + 1]];
            let block = block.select(rows, &mut scratch);
            groups.change(at, kernel, |state| kernel.update(state, &block))?;
        }
        Ok(())
    }

    fn merge(&self, state: &mut AnyState, other: AnyState) -> Result<()> {
        let groups = own(state)?;
        let Ok(other) = other.downcast::<Groups>() else { return Err(wrong()) };
        if groups.len() == 0 {
            *groups = *other;
            return Ok(());
        }
        for (key, theirs) in other.into_entries() {
            let Some((at, kernel)) = self.state(groups, &key)? else { continue };
            groups.change(at, kernel, |mine| kernel.merge(mine, theirs))?;
        }
        Ok(())
    }

    fn finish(&self, state: AnyState) -> Result<Step> {
        let Ok(state) = state.downcast::<Groups>() else { return Err(wrong()) };
        let mut stages: Vec<(Box<[u8]>, Stage)> = Vec::with_capacity(self.stages.len());
        // Groups without rows in this round (of a file that changed) end on their empty state.
        for (key, stage) in &self.stages {
            match stage {
                Stage::Done(v) => stages.push((key.clone(), Stage::Done(v.clone()))),
                Stage::Running(k) if state.find(key).is_none() => {
                    stages.push((key.clone(), Stage::of(k.finish(k.init())?)?));
                }
                Stage::Running(_) => {}
            }
        }
        for (key, inner) in state.into_entries() {
            let Some(kernel) = self.kernel(&key)? else { continue };
            let stage = Stage::of(kernel.finish(inner)?)?;
            stages.push((key, stage));
        }
        if stages.iter().any(|s| matches!(s.1, Stage::Running(_))) {
            let stages = stages.into_iter().collect();
            return Ok(Step::Next(Arc::new(Later::new(stages, self.by.clone()))));
        }
        stages.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut answer = Vec::with_capacity(stages.len());
        for (key, stage) in stages {
            if let Stage::Done(v) = stage {
                answer.push((show(&parts(&key)?), v));
            }
        }
        Ok(Step::Done(Value::Map(answer)))
    }

    fn state_bytes(&self, state: &AnyState) -> usize {
        state.downcast_ref::<Groups>().map_or(0, Groups::bytes)
    }

    fn encode(&self, state: &AnyState) -> Result<Vec<u8>> {
        let Some(groups) = state.downcast_ref::<Groups>() else { return Err(wrong()) };
        // In the order of their keys, so that equal states are equal bytes.
        let mut entries: Vec<_> = groups.entries().collect();
        entries.sort_unstable_by_key(|(key, _)| *key);
        let mut all = Vec::with_capacity(entries.len());
        for (key, inner) in entries {
            if let Some(kernel) = self.kernel(key)? {
                all.push((parts(key)?, kernel.encode(inner)?));
            }
        }
        encode_all(&all)
    }

    fn decode(&self, bytes: &[u8]) -> Result<AnyState> {
        let mut groups = Groups::default();
        for (key, bytes) in decode_all(bytes, self.by.len())? {
            let key = key_of(&key);
            if groups.find(&key).is_some() {
                return Err(twice());
            }
            if let Some(kernel) = self.kernel(&key)? {
                let inner = kernel.decode(&bytes)?;
                let size = kernel.state_bytes(&inner);
                groups.insert(&key, inner, size);
            }
        }
        Ok(Box::new(groups))
    }

    fn output(&self) -> Option<PathBuf> {
        None
    }

    fn sink(&self) -> Option<Sink> {
        None
    }

    fn map(&self, _: &Block<'_>, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

fn own(state: &mut AnyState) -> Result<&mut Groups> {
    state.downcast_mut::<Groups>().ok_or_else(wrong)
}
