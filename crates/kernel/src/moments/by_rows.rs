//! Moments of many columns of a 2-d array, from its rows as they lie.

use super::{Cell, Moments, Order, Sums};
use crate::cells::ByColumn;
use crate::columns::{Chosen, Only};
use crate::exact::rows::{LEAST_WIDTH, Totals, add_rows};
use crate::registry::Rows;
use crate::{AnyKernel, Context, Kernel, Step};
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Order as Layout, Result, Value};

/// Most columns of a row: of more, a stretch of rows, which is never split, would take more memory than is set apart
/// for a block.
const MOST_WIDTH: usize = 2048;

/// How these moments are done by rows, if they can be.
pub fn of(columns: &Chosen, order: Order, context: &Context<'_>) -> Option<Rows> {
    let shape = context.schema.shape.as_ref()?;
    let [_, width] = *shape.dims() else { return None };
    let width = usize::try_from(width).ok().filter(|w| (LEAST_WIDTH..=MOST_WIDTH).contains(w))?;
    // Columns that lie in one piece each are added as they lie. Of few columns, taking them out costs less.
    let good = shape.order() == Layout::C && !context.grouped && order >= Order::Sum;
    good.then(|| Rows { columns: columns.clone(), least: width.div_ceil(2), make })
}

fn make(parts: Vec<Chosen>, level: u32) -> Arc<dyn AnyKernel> {
    let mut ids: Vec<usize> = parts.iter().flat_map(|p| &p.ids).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let order = if level == Order::Squares as u32 { Order::Squares } else { Order::Sum };
    Arc::new(ByRows { parts, ids, order })
}

struct ByRows {
    /// The columns of each kernel.
    parts: Vec<Chosen>,
    /// All of them, ascending.
    ids: Vec<usize>,
    order: Order,
}

impl Kernel for ByRows {
    type State = Vec<Sums>;

    fn needs(&self) -> Needs {
        Needs { matrix: true, ..Needs::default() }
    }

    fn init(&self) -> Vec<Sums> {
        vec![Sums::default(); self.ids.len()]
    }

    fn update(&self, state: &mut Vec<Sums>, block: &Block<'_>) -> Result<()> {
        let Some(m) = block.matrix else { return Ok(()) };
        if m.width < LEAST_WIDTH || self.ids.last().is_some_and(|id| *id >= m.width) {
            return Err(Error::internal("a block came without the columns of its array"));
        }
        let squares = self.order == Order::Squares;
        let mut totals: Vec<Totals<'_>> = state
            .iter_mut()
            .zip(&self.ids)
            .map(|(Sums { count, sum, squares: s }, column)| Totals {
                column: *column,
                count,
                sum,
                squares: squares.then_some(s),
            })
            .collect();
        add_rows(m.values, m.width, &mut totals);
        Ok(())
    }

    fn merge(&self, state: &mut Vec<Sums>, other: Vec<Sums>) -> Result<()> {
        state.iter_mut().zip(&other).for_each(|(a, b)| a.merge(b));
        Ok(())
    }

    fn check(&self, state: &Vec<Sums>) -> Result<()> {
        if state.len() == self.ids.len() {
            return Ok(());
        }
        Err(Error::format("a state of other columns came from another rank"))
    }

    fn is_last(&self) -> bool {
        true
    }

    fn finish(&self, state: Vec<Sums>) -> Result<Step> {
        let part = |columns: &Chosen| {
            let of = |id| self.ids.binary_search(id).ok().and_then(|i| state.get(i));
            let sums = columns.ids.iter().filter_map(of).cloned();
            let (columns, only) = (columns.clone(), Only::default());
            let moments = Moments { columns, order: self.order, only };
            moments.answer(&sums.map(Cell::from).collect::<Vec<_>>())
        };
        let answers = self.parts.iter().map(part).collect::<Result<_>>()?;
        Ok(Step::Done(Value::List(answers)))
    }

    fn state_bytes(&self, state: &Vec<Sums>) -> usize {
        state.iter().map(Sums::bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::{Context, Spec, laws, registry};
    use stead_core::{
        Block, ColumnInfo, ColumnKind, Columns, DType, Matrix, RecordKind, Schema, Shape, Value,
    };

    fn schema(rows: usize, width: usize) -> Schema {
        let column =
            |i: usize| ColumnInfo { name: i.to_string(), kind: ColumnKind::Binary(DType::F64) };
        Schema {
            records: RecordKind::Items,
            columns: (0..width).map(column).collect(),
            shape: Some(Shape::new(vec![rows as u64, width as u64]).expect("shape")),
        }
    }

    /// What the kernels answer over a matrix, each on its own and together.
    fn ask(specs: &[&str], values: &[f64], width: usize) -> [Vec<Value>; 2] {
        let rows = values.len() / width;
        let schema = schema(rows, width);
        let context = Context { schema: &schema, path: None, grouped: false };
        let ids: Vec<usize> = (0..width).collect();
        let at = rows / 3;
        let parts = [&values[..at * width], &values[at * width..]];
        let columns: Vec<Vec<f64>> = parts
            .iter()
            .map(|p| ids.iter().flat_map(|c| p.iter().skip(*c).step_by(width).copied()).collect())
            .collect();
        let ends: Vec<[u32; 1]> = parts.iter().map(|p| [(p.len() / width) as u32]).collect();
        let blocks: Vec<Block<'_>> = (0..2)
            .map(|i| Block {
                rows: parts[i].len() / width,
                columns: Columns {
                    number_ids: &ids,
                    numbers: &columns[i],
                    stride: parts[i].len() / width,
                    ..Columns::default()
                },
                matrix: Some(Matrix { values: parts[i], width, ends: &ends[i] }),
                ..Block::empty()
            })
            .collect();
        let build =
            |s: &&str| registry::build(&Spec::parse(s).expect("spec"), &context).expect("built");
        let answers = |built: Vec<registry::Built>| {
            let mut answers = vec![Value::Null; built.len()];
            let fused = registry::fuse(built);
            let kernels = fused.len();
            for (kernel, picks) in fused {
                let value = laws::check(kernel, &blocks);
                picks.iter().for_each(|(i, pick)| answers[*i] = pick.of(&value));
            }
            (answers, kernels)
        };
        let alone = specs.iter().flat_map(|s| {
            let built = registry::Built { rows: None, ..build(s) };
            answers(vec![built]).0
        });
        let alone = alone.collect();
        let (together, kernels) = answers(specs.iter().map(build).collect());
        assert!(kernels <= 3, "{kernels} kernels for {specs:?}");
        [alone, together]
    }

    #[test]
    fn rows_give_what_columns_give() {
        for width in [8, 10, 17] {
            let value = |i: usize| match i * 7 % 41 {
                0 => stead_core::MISSING,
                1 if i % width == 3 => f64::INFINITY,
                n => (n as f64 - 20.0) / 7.0 + i as f64 * 1e-3,
            };
            let values: Vec<f64> = (0..1500 * width).map(value).collect();
            let each: Vec<String> = (0..width).map(|i| format!("mean:{i}")).collect();
            let specs: Vec<&str> = each.iter().map(String::as_str).collect();
            let all =
                [&specs[..], &["sum:2,1", "sum:*", "std:*", "var:5,ddof=0", "count:1"]].concat();
            for specs in [&["mean:*"][..], &["std:*", "mean:*"], &all] {
                let [alone, together] = ask(specs, &values, width);
                assert_eq!(format!("{alone:?}"), format!("{together:?}"), "{width} {specs:?}");
            }
        }
    }

    #[test]
    fn rows_are_read_whatever_is_asked_first_unless_they_are_long() {
        let by_rows = |specs: &[&str], width: usize| -> Vec<bool> {
            let schema = schema(100, width);
            let context = Context { schema: &schema, path: None, grouped: false };
            let build = |s: &&str| {
                registry::build(&Spec::parse(s).expect("spec"), &context).expect("built")
            };
            let fused = registry::fuse(specs.iter().map(build).collect());
            fused.iter().map(|(kernel, _)| kernel.needs().matrix).collect()
        };
        assert_eq!(by_rows(&["mean:*", "count:*"], 8), [true]);
        assert_eq!(by_rows(&["count:*", "mean:*"], 8), [true]);
        assert_eq!(by_rows(&["count:*"], 8), [false]);
        for (width, rows) in [(super::MOST_WIDTH, true), (super::MOST_WIDTH + 1, false)] {
            assert_eq!(by_rows(&["mean:*"], width), [rows]);
        }
    }
}
