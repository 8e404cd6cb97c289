//! Which steps of the streams that are read a value is made of: told of windows and samples, and of what is made of them, since their own
//! steps count something else.

use crate::check::{Checked, Reading};
use crate::graph::Operator;
use std::collections::VecDeque;
use std::sync::Arc;
use stead_stream::Attribute;

/// The end of the name of the attribute, after the name of the stream in references.
pub const ATTRIBUTE: &str = ".steps";
/// Rows of steps of one stream. Only where steps have gone are there several; the last one of so many covers all that follow.
const MOST: usize = 256;

/// Steps in a row: the first and the last one, and from one to the next, which is 1 if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Row {
    first: u64,
    last: u64,
    every: u64,
}

impl Row {
    /// The row of both, if they are one; the other one begins no earlier.
    fn with(self, other: Row) -> Option<Row> {
        let (a, b) = (self, other);
        let is_one = |row: Row| row.first == row.last;
        let every = match (is_one(a), is_one(b)) {
            (true, true) => (b.first - a.first).max(1),
            (true, false) => b.every,
            (false, _) => a.every,
        };
        let fits = (is_one(b) || b.every == every)
            && (b.first - a.first).is_multiple_of(every)
            && b.first <= a.last.saturating_add(every);
        fits.then(|| {
            let last = a.last.max(b.last);
            Row { first: a.first, last, every: if last == a.first { 1 } else { every } }
        })
    }
}

/// Of each stream by its number, rows in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Origin(Vec<(usize, Vec<Row>)>);

impl Origin {
    fn of(source: usize, step: u64) -> Origin {
        Origin(vec![(source, vec![Row { first: step, last: step, every: 1 }])])
    }

    /// All that is in one of them.
    fn union<'o>(all: impl Iterator<Item = &'o Origin>) -> Origin {
        let mut each: Vec<(usize, Row)> = all
            .flat_map(|origin| &origin.0)
            .flat_map(|(source, rows)| rows.iter().map(|row| (*source, *row)))
            .collect();
        each.sort_unstable();
        let mut union: Vec<(usize, Vec<Row>)> = Vec::new();
        for (source, row) in each {
            let rows = match union.last_mut().filter(|(last, _)| *last == source) {
                Some((_, rows)) => rows,
                None => {
                    union.push((source, vec![row]));
                    continue;
                }
            };
            let is_full = rows.len() == MOST;
            let Some(last) = rows.last_mut() else { continue };
            match last.with(row) {
                Some(both) => *last = both,
                None if is_full => {
                    *last = Row { first: last.first, last: last.last.max(row.last), every: 1 };
                }
                None => rows.push(row),
            }
        }
        Origin(union)
    }

    /// The attributes that tell it: three numbers for each row.
    pub fn attributes(&self, reads: &[Reading]) -> impl Iterator<Item = (String, Attribute)> {
        let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
        self.0.iter().filter_map(move |(source, rows)| {
            let name = format!("{}{ATTRIBUTE}", reads.get(*source)?.alias);
            let three = |row: &Row| [row.first, row.last, row.every].map(number);
            Some((name, Attribute::Ints(rows.iter().flat_map(three).collect())))
        })
    }
}

/// The origins of all values of a flow, step by step: the same on all ranks.
#[derive(Debug)]
pub struct Origins {
    /// True of slots of which they are told.
    told: Vec<bool>,
    /// Of each node that is a window, those of the last steps.
    windows: Vec<VecDeque<Arc<Origin>>>,
}

impl Origins {
    /// `None` for a flow that has nothing to tell.
    pub fn new(checked: &Checked) -> Option<Origins> {
        let mut told = vec![false; checked.slots.len()];
        for node in &checked.nodes {
            let begins = match &node.op {
                Operator::Window { .. } => true,
                Operator::Sample { every, .. } => every.is_some(),
                _ => false,
            };
            let is_told = |slot: &usize| told.get(*slot) == Some(&true);
            if begins || node.inputs.iter().any(is_told) {
                let made = told.iter_mut().skip(node.first).take(node.makes);
                made.for_each(|told| *told = true);
            }
        }
        let windows = checked.nodes.iter().map(|_| VecDeque::new()).collect();
        told.contains(&true).then_some(Origins { told, windows })
    }

    /// Those of each slot at a step of the flow, which is this step of each stream that is read; of those that are told.
    pub fn step(
        &mut self,
        checked: &Checked,
        now: u64,
        numbers: &[u64],
    ) -> Vec<Option<Arc<Origin>>> {
        let leaf = |slot: &crate::check::Slot| {
            let (source, _) = slot.leaf.as_ref()?;
            Some(Arc::new(Origin::of(*source, *numbers.get(*source)?)))
        };
        let mut all: Vec<Option<Arc<Origin>>> = checked.slots.iter().map(leaf).collect();
        for (node, window) in checked.nodes.iter().zip(&mut self.windows) {
            let of: Vec<Arc<Origin>> =
                node.inputs.iter().filter_map(|slot| all.get(*slot)?.clone()).collect();
            // Its values come at the same steps.
            if of.is_empty() {
                continue;
            }
            let is_at = checked.slots.get(node.first).is_some_and(|slot| slot.rate.is_at(now));
            let mut made = None;
            if let Operator::Window { steps, .. } = node.op {
                let most = usize::try_from(steps).unwrap_or(usize::MAX);
                while window.len() >= most.max(1) {
                    window.pop_front();
                }
                window.extend(of);
                made = is_at.then(|| Origin::union(window.iter().map(|origin| &**origin)));
            } else if let (true, [one]) = (is_at, &of[..]) {
                all.iter_mut().skip(node.first).take(node.makes).for_each(|to| {
                    *to = Some(one.clone());
                });
            } else if is_at {
                made = Some(Origin::union(of.iter().map(|origin| &**origin)));
            }
            if let Some(made) = made.map(Arc::new) {
                all.iter_mut().skip(node.first).take(node.makes).for_each(|to| {
                    *to = Some(made.clone());
                });
            }
        }
        let told = all.into_iter().zip(&self.told);
        told.map(|(origin, told)| origin.filter(|_| *told)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(steps: impl IntoIterator<Item = u64>) -> Vec<[u64; 3]> {
        let each: Vec<Origin> = steps.into_iter().map(|step| Origin::of(0, step)).collect();
        let union = Origin::union(each.iter());
        union.0[0].1.iter().map(|r| [r.first, r.last, r.every]).collect()
    }

    #[test]
    fn rows_are_those_of_the_steps() {
        assert_eq!(rows([7]), [[7, 7, 1]]);
        assert_eq!(rows(3..13), [[3, 12, 1]]);
        assert_eq!(rows((0..40).step_by(10)), [[0, 30, 10]]);
        assert_eq!(rows([5, 5, 5]), [[5, 5, 1]]);
        assert_eq!(rows([4, 2, 3, 9, 8]), [[2, 4, 1], [8, 9, 1]]);
        // Each step is in a row and none is that is not, whatever has gone.
        let mut state = 1u64;
        for _ in 0..200 {
            let mut steps = Vec::new();
            for step in 0..60u64 {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                if state >> 62 != 0 {
                    steps.push(step);
                }
            }
            let mut back: Vec<u64> = rows(steps.clone())
                .iter()
                .flat_map(|[first, last, every]| (*first..=*last).step_by(*every as usize))
                .collect();
            back.sort_unstable();
            back.dedup();
            assert_eq!(back, steps);
        }
    }

    #[test]
    fn unions_of_rows_are_rows() {
        let windows: Vec<Origin> = (0..5u64)
            .map(|n| {
                let steps: Vec<Origin> = (n..n + 10).map(|s| Origin::of(1, s)).collect();
                Origin::union(steps.iter())
            })
            .collect();
        let all = Origin::union(windows.iter());
        assert_eq!(all.0, [(1, vec![Row { first: 0, last: 13, every: 1 }])]);
        let two = [Origin::of(0, 3), Origin::of(1, 8)];
        assert_eq!(Origin::union(two.iter()).0.len(), 2);
        // However many gaps there are, what is told is bounded and has all of them.
        let many: Vec<Origin> = (0..2000u64).map(|n| Origin::of(0, n * n)).collect();
        let rows = &Origin::union(many.iter()).0[0].1;
        assert_eq!((rows.len(), rows[MOST - 1].last), (MOST, 1999 * 1999));
    }
}
