//! States of groups that are a few words for each column: values are added to them one by one.

use crate::many::{self, Many};
use crate::{Kernel, Step};
use serde::Serialize;
use std::sync::Arc;
use stead_core::{Block, Result, Value};

/// Rows for each group above which they are gathered, so that vectors can add them.
const GATHER: usize = 64;

/// Cells that are fetched together, so that their cache misses overlap.
const TOGETHER: usize = 32;

/// A kernel whose state has a part for each column, which has a small form too.
pub trait ByColumn: Kernel<State = Vec<Self::Part>> {
    /// The part of one column.
    type Part: Serialize;

    /// Its small form.
    type Cell: Clone + Send + 'static;

    /// Schema indices of the columns.
    fn columns(&self) -> &[usize];

    /// The cell of no values.
    fn cell(&self) -> Self::Cell;

    /// Adds a value, which may be missing. By how many bytes beside itself the cell has grown.
    fn add(&self, cell: &mut Self::Cell, value: f64) -> usize;

    /// As [`ByColumn::add`], many values.
    fn add_all(&self, cell: &mut Self::Cell, values: &[f64]) -> usize;

    /// Adds another cell. By how many bytes beside itself the cell has grown.
    fn join(&self, cell: &mut Self::Cell, other: Self::Cell) -> usize;

    /// Anything that is read from a cell.
    fn glance(&self, cell: &Self::Cell) -> u64;

    /// The part that a cell stands for.
    fn part(&self, cell: &Self::Cell) -> Self::Part;

    /// The cell of a part.
    fn of_part(&self, part: Self::Part) -> Self::Cell;

    /// Bytes that a cell takes beside itself.
    fn beside(&self, cell: &Self::Cell) -> usize;

    /// The answer of a group.
    fn answer(&self, cells: &[Self::Cell]) -> Result<Value>;
}

/// The cells of all groups: those of the columns of the first group, then those of the second.
pub struct Cells<K: ByColumn> {
    kernel: Arc<K>,
    cells: Vec<K::Cell>,
    groups: usize,
    beside: usize,
}

impl<K: ByColumn> Cells<K> {
    /// None so far.
    pub fn new(kernel: Arc<K>) -> Cells<K> {
        Cells { kernel, cells: Vec::new(), groups: 0, beside: 0 }
    }

    fn width(&self) -> usize {
        self.kernel.columns().len()
    }

    fn group(&self, group: usize) -> Result<&[K::Cell]> {
        let at = group * self.width();
        self.cells.get(at..at + self.width()).ok_or_else(many::no_state)
    }
}

/// Has the cells of these groups fetched from memory, all at the same time: no load waits for another one.
#[inline]
fn touch<K: ByColumn>(kernel: &K, cells: &[K::Cell], groups: &[u32], width: usize) {
    let look = |g: &u32| cells.get(*g as usize * width).map_or(0, |c| kernel.glance(c));
    std::hint::black_box(groups.iter().fold(0, |all, g| all ^ look(g)));
}

impl<K: ByColumn> Many for Cells<K> {
    fn grow(&mut self, n: usize) {
        if n > self.groups {
            self.groups = n;
            self.cells.resize(n * self.width(), self.kernel.cell());
        }
    }

    fn update(&mut self, groups: &[u32], block: &Block<'_>) -> Result<()> {
        let width = self.width();
        let few = self.groups * GATHER <= groups.len();
        let Cells { kernel, cells, beside, .. } = self;
        for (c, id) in kernel.columns().iter().enumerate() {
            let values = block.numbers(*id);
            if few {
                let mut gathered = Vec::new();
                many::each_group(groups, |group, rows| {
                    gathered.clear();
                    gathered.extend(rows.iter().filter_map(|r| values.get(*r as usize)));
                    let at = group as usize * width + c;
                    let cell = cells.get_mut(at).ok_or_else(many::no_state)?;
                    *beside += kernel.add_all(cell, &gathered);
                    Ok(())
                })?;
            } else {
                for (groups, values) in groups.chunks(TOGETHER).zip(values.chunks(TOGETHER)) {
                    touch(kernel.as_ref(), cells, groups, width);
                    for (group, value) in groups.iter().zip(values) {
                        let at = *group as usize * width + c;
                        let cell = cells.get_mut(at).ok_or_else(many::no_state)?;
                        *beside += kernel.add(cell, *value);
                    }
                }
            }
        }
        Ok(())
    }

    fn merge(&mut self, other: Box<dyn Many>, to: &[u32]) -> Result<()> {
        let other = many::same::<Cells<K>>(other)?;
        let width = self.width();
        let mut theirs = other.cells.into_iter();
        for to in to.chunks(TOGETHER) {
            touch(self.kernel.as_ref(), &self.cells, to, width);
            for to in to {
                let at = *to as usize * width;
                let mine = self.cells.get_mut(at..at + width).ok_or_else(many::no_state)?;
                for (a, b) in mine.iter_mut().zip(&mut theirs) {
                    self.beside += self.kernel.join(a, b);
                }
            }
        }
        Ok(())
    }

    fn finish(&mut self, groups: &[u32], each: &mut dyn FnMut(Step) -> Result<()>) -> Result<()> {
        for groups in groups.chunks(TOGETHER) {
            touch(self.kernel.as_ref(), &self.cells, groups, self.width());
            for group in groups {
                each(Step::Done(self.kernel.answer(self.group(*group as usize)?)?))?;
            }
        }
        Ok(())
    }

    fn bytes(&self) -> usize {
        self.cells.capacity() * size_of::<K::Cell>() + self.beside
    }

    fn encode(&self, group: usize) -> Result<Vec<u8>> {
        let state: K::State = self.group(group)?.iter().map(|c| self.kernel.part(c)).collect();
        many::wire(&state)
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        let state = many::unwire(self.kernel.as_ref(), bytes)?;
        for part in state {
            let cell = self.kernel.of_part(part);
            self.beside += self.kernel.beside(&cell);
            self.cells.push(cell);
        }
        self.groups += 1;
        Ok(())
    }
}

/// Numbers of rows of groups.
#[derive(Default)]
pub struct RowCounts(Vec<u64>);

impl RowCounts {
    fn add(&mut self, group: u32, rows: u64) -> Result<()> {
        let count = self.0.get_mut(group as usize).ok_or_else(many::no_state)?;
        *count = count.saturating_add(rows);
        Ok(())
    }
}

impl Many for RowCounts {
    fn grow(&mut self, n: usize) {
        self.0.resize(n.max(self.0.len()), 0);
    }

    fn update(&mut self, groups: &[u32], _: &Block<'_>) -> Result<()> {
        groups.iter().try_for_each(|g| self.add(*g, 1))
    }

    fn merge(&mut self, other: Box<dyn Many>, to: &[u32]) -> Result<()> {
        let other = many::same::<RowCounts>(other)?;
        to.iter().zip(other.0).try_for_each(|(to, rows)| self.add(*to, rows))
    }

    fn finish(&mut self, groups: &[u32], each: &mut dyn FnMut(Step) -> Result<()>) -> Result<()> {
        groups.iter().try_for_each(|g| {
            let rows = self.0.get(*g as usize).ok_or_else(many::no_state)?;
            each(Step::Done(Value::Int(*rows)))
        })
    }

    fn bytes(&self) -> usize {
        self.0.capacity() * size_of::<u64>()
    }

    fn encode(&self, group: usize) -> Result<Vec<u8>> {
        many::wire(self.0.get(group).ok_or_else(many::no_state)?)
    }

    fn decode(&mut self, bytes: &[u8]) -> Result<()> {
        self.0.push(many::unwired(bytes)?);
        Ok(())
    }
}
