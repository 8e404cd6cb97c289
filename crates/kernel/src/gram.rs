//! The Gram matrix of columns.

use crate::columns::Chosen;
use crate::exact::ExactSum;
use crate::{Built, Context, Info, Kernel, Spec, Step};
use serde::{Deserialize, Serialize};
use stead_core::{Block, Error, Needs, Result, Value, is_missing};

/// Most columns: the matrix has that many sums squared, halved.
const MAX_GRAM_COLUMNS: usize = 512;
/// Rows handled at once: with 16 columns they fill 128 KiB, a part of the second-level cache.
const ROWS: usize = 1024;

/// `gram`
pub const INFO: Info = Info {
    name: "gram",
    summary: "matrix of inner products of columns",
    usage: "gram:COLUMN,COLUMN[,...] | gram:*",
    definition: "A^T A, where the columns of A are the columns named (all numeric ones for *, at most 512): \
        the sums over all rows of the products of each two columns. A row in which one of the columns is \
        missing is left out of every sum and counted as `dropped`. Each product is rounded once to a double; \
        their sum is exact and rounded once. NaN and infinities follow IEEE 754, and a product that \
        overflows is infinite. No row gives zeros. The result has the members columns, rows, dropped, matrix.",
    error: "|error| <= 2^-53 sum |a_i b_i| + half a unit in the last place (but for products that \
        underflow), whatever the number of rows, the split or the order",
    cost: "one pass, about 1.3 to 2 ns for each pair of columns and row; at most 1.1 KB a pair",
    source: "R. M. Neal, arXiv:1505.05571 (2015), for the sums",
    examples: &["gram:x,y,z", "gram:*", "gram:dep_delay,arr_delay"],
};

/// The kernel.
#[derive(Debug)]
struct Gram {
    columns: Chosen,
}

/// Sums of products.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Products {
    rows: u64,
    dropped: u64,
    /// The upper triangle, row by row; empty as long as there was no row.
    sums: Vec<ExactSum>,
}

/// Adds the products of two columns to a sum: the loop that all the time goes into.
fn add_products(sum: &mut ExactSum, a: &[f64], b: &[f64], products: &mut [f64; ROWS]) {
    let n = a.len().min(b.len()).min(ROWS);
    for i in 0..n {
        products[i] = a[i] * b[i];
    }
    sum.add_slice(&products[..n]);
}

impl Gram {
    fn pairs(&self) -> usize {
        let n = self.columns.ids.len();
        n * (n + 1) / 2
    }
}

impl Kernel for Gram {
    type State = Products;

    fn needs(&self) -> Needs {
        self.columns.needs()
    }

    fn init(&self) -> Products {
        Products::default()
    }

    fn update(&self, state: &mut Products, block: &Block<'_>) -> Result<()> {
        state.sums.resize_with(self.pairs(), ExactSum::new);
        let columns: Vec<&[f64]> = self.columns.ids.iter().map(|id| block.numbers(*id)).collect();
        let mut packed: Vec<Vec<f64>> = vec![Vec::new(); columns.len()];
        let mut products = [0.0; ROWS];
        for from in (0..block.rows).step_by(ROWS) {
            let rows = from..block.rows.min(from + ROWS);
            let mut keep = [true; ROWS];
            for c in &columns {
                for (k, v) in keep.iter_mut().zip(&c[rows.clone()]) {
                    *k &= !is_missing(*v);
                }
            }
            let kept = keep[..rows.len()].iter().filter(|k| **k).count();
            state.rows += kept as u64;
            state.dropped += (rows.len() - kept) as u64;
            if kept < rows.len() {
                for (p, c) in packed.iter_mut().zip(&columns) {
                    p.clear();
                    p.extend(
                        c[rows.clone()].iter().zip(&keep).filter(|(_, k)| **k).map(|(v, _)| v),
                    );
                }
            }
            // Complete rows are used where they lie.
            let part = |i: usize| -> &[f64] {
                if kept < rows.len() { &packed[i] } else { &columns[i][rows.clone()] }
            };
            let mut sums = state.sums.iter_mut();
            for i in 0..columns.len() {
                for (j, sum) in (i..columns.len()).zip(&mut sums) {
                    add_products(sum, part(i), part(j), &mut products);
                }
            }
        }
        Ok(())
    }

    fn merge(&self, state: &mut Products, other: Products) -> Result<()> {
        state.rows = state.rows.saturating_add(other.rows);
        state.dropped = state.dropped.saturating_add(other.dropped);
        state.sums.resize_with(self.pairs(), ExactSum::new);
        state.sums.iter_mut().zip(&other.sums).for_each(|(a, b)| a.merge(b));
        Ok(())
    }

    fn check(&self, state: &Products) -> Result<()> {
        if state.sums.is_empty() || state.sums.len() == self.pairs() {
            return Ok(());
        }
        Err(Error::format("a matrix of other columns came from another rank"))
    }

    fn finish(&self, mut state: Products) -> Result<Step> {
        state.sums.resize_with(self.pairs(), ExactSum::new);
        let n = self.columns.ids.len();
        let mut matrix = vec![0.0; n * n];
        let mut sums = state.sums.iter();
        for i in 0..n {
            for (j, sum) in (i..n).zip(&mut sums) {
                let v = sum.to_f64();
                matrix[i * n + j] = v;
                matrix[j * n + i] = v;
            }
        }
        let rows = matrix.chunks(n.max(1)).map(|row| Value::floats(row.iter().copied())).collect();
        let names = self.columns.names.iter().cloned().map(Value::Text).collect();
        Ok(Step::Done(Value::map([
            ("columns", Value::List(names)),
            ("rows", Value::Int(state.rows)),
            ("dropped", Value::Int(state.dropped)),
            ("matrix", Value::List(rows)),
        ])))
    }

    fn state_bytes(&self, state: &Products) -> usize {
        size_of::<Products>() + state.sums.iter().map(ExactSum::bytes).sum::<usize>()
    }
}

/// Makes `gram`.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    spec.only_options(&[])?;
    let columns = Chosen::of(spec, context)?;
    if columns.ids.len() > MAX_GRAM_COLUMNS {
        return Err(spec.error(format!(
            "{} columns; at most {MAX_GRAM_COLUMNS} are possible",
            columns.ids.len()
        )));
    }
    Ok(Built::alone(spec, Gram { columns }))
}

#[cfg(test)]
mod tests {
    use crate::exact::ExactSum;
    use crate::moments::tests::{ask_of, block, schema};
    use stead_core::{Block, Columns, MISSING, Value};

    #[test]
    fn products_of_complete_rows() {
        let n = 3000;
        let x: Vec<f64> = (0..n).map(|i| f64::from(i % 97) * 0.1 - 3.0).collect();
        let mut y: Vec<f64> = (0..n).map(|i| f64::from(i % 31) * 1e10).collect();
        y[1500] = MISSING;
        let want = |a: &[f64], b: &[f64]| {
            let mut s = ExactSum::new();
            (0..x.len()).filter(|i| *i != 1500).for_each(|i| s.add(a[i] * b[i]));
            s.to_f64()
        };
        let all: Vec<Vec<f64>> =
            x.chunks(1100).zip(y.chunks(1100)).map(|(a, b)| [a, b].concat()).collect();
        let blocks: Vec<Block<'_>> = all
            .iter()
            .map(|v| {
                let rows = v.len() / 2;
                let columns =
                    Columns { number_ids: &[0, 1], numbers: v, stride: rows, ..Columns::default() };
                Block { rows, columns, ..Block::empty() }
            })
            .collect();
        let v = ask_of(&schema(&["x", "y"]), "gram:x,y", &blocks);
        assert_eq!(v.get("rows"), Some(&Value::Int(2999)));
        assert_eq!(v.get("dropped"), Some(&Value::Int(1)));
        let (xx, xy, yy) = (want(&x, &x), want(&x, &y), want(&y, &y));
        let rows = vec![Value::floats([xx, xy]), Value::floats([xy, yy])];
        assert_eq!(v.get("matrix"), Some(&Value::List(rows)));
    }

    #[test]
    fn nothing_and_cancellation() {
        let zero = Value::List(vec![Value::floats([0.0])]);
        let v = ask_of(&schema(&["x"]), "gram:*", &[block(&[MISSING])]);
        assert_eq!(v.get("matrix"), Some(&zero));
        assert_eq!(ask_of(&schema(&["x"]), "gram:x", &[]).get("matrix"), Some(&zero));
        let v = ask_of(&schema(&["x"]), "gram:x", &[block(&[1e200])]);
        assert_eq!(v.get("matrix"), Some(&Value::List(vec![Value::floats([f64::INFINITY])])));
    }
}
