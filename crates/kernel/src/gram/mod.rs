//! The Gram matrix of columns.
//!
//! Rows of a 2-d array are summed in `tile`, stretch by stretch ([`stead_core::Matrix`]), and the sums of the
//! stretches exactly. The products of all other columns are exact, and so are their sums (`exact::products`).

mod tile;

use crate::columns::Chosen;
use crate::exact::{ExactSum, products};
use crate::{Built, Context, Info, Kernel, Spec, Step};
use serde::{Deserialize, Serialize};
use stead_core::{Block, Error, Matrix, Needs, Result, Value, is_missing};

/// Most columns: the matrix has that many sums squared, halved.
const MAX_GRAM_COLUMNS: usize = 512;
/// Values of the rows of one chain: 24 KiB. At most 128 rows make a chain and at most 128 chains a stretch, so that
/// the error is below that of 256 roundings, 2^-45.
const CHAIN_VALUES: usize = 3072;

/// `gram`
pub const INFO: Info = Info {
    name: "gram",
    summary: "matrix of inner products of columns",
    usage: "gram:COLUMN,COLUMN[,...][,exact] | gram:*[,exact]",
    definition: "A^T A, where the columns of A are the columns named (all numeric ones for *, at most 512): \
        the sums over all rows of the products of each two columns. A row in which one of the columns is \
        missing is left out of every sum and counted as `dropped`. With `exact`, and wherever the data are no \
        2-d array of at most 512 columns, products and sums are exact and each sum is rounded once. Of such an array \
        the rows are taken in stretches of up to 8192, of 1 MiB as doubles, by their number in the file; within a \
        stretch products are added by fused multiply-adds, up to 128 rows in a chain, and the sums of the stretches \
        are added exactly. NaN and infinities follow IEEE 754, and a sum that overflows \
        is infinite or NaN. No row gives zeros. The result has the members columns, rows, dropped, matrix.",
    error: "exact: half a unit in the last place; else |error| <= 2^-45 sum |a_i b_i| besides, and for random signs \
        about as much as the exact one (but for products that underflow). The same bits for any split and any order \
        of merging, in both ways",
    cost: "one pass; for each pair of columns and row about 0.6 ns if exact (5 where the exponents of a column lie more \
        than some 40 binades apart), else 0.07 ns (64 columns; 0.12 of 10), which is what exactness costs; at most \
        1.1 KB a pair",
    source: "R. M. Neal, arXiv:1505.05571 (2015), for the sums; K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, Numer. \
        Algorithms 59(1), 95-118 (2012), for the products",
    examples: &["gram:x,y,z", "gram:*", "gram:*,exact"],
};

/// The kernel.
#[derive(Debug)]
struct Gram {
    columns: Chosen,
    /// True if rows of a matrix are asked for.
    by_rows: bool,
}

/// Sums of products.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Products {
    rows: u64,
    dropped: u64,
    /// The upper triangle, row by row; empty as long as there was no row.
    sums: Vec<ExactSum>,
}

impl Gram {
    fn pairs(&self) -> usize {
        let n = self.columns.ids.len();
        n * (n + 1) / 2
    }

    /// Adds the stretches of a block.
    fn add_rows(&self, state: &mut Products, matrix: &Matrix<'_>) -> Result<()> {
        if self.columns.ids.iter().any(|c| *c >= matrix.width) {
            return Err(Error::internal("a block came with rows of another width"));
        }
        let mut work = Work::new(&self.columns.ids, matrix.width);
        let mut from = 0;
        for to in matrix.ends.iter().map(|e| *e as usize) {
            let kept = work.stretch(&matrix.values[from * matrix.width..], to - from);
            state.rows += kept as u64;
            state.dropped += (to - from - kept) as u64;
            if kept > 0 {
                let mut sums = state.sums.iter_mut();
                for (i, line) in work.sums.chunks_exact(work.line).enumerate() {
                    for (v, sum) in line[i..work.ids.len()].iter().zip(&mut sums) {
                        sum.add(*v);
                    }
                }
            }
            from = to;
        }
        Ok(())
    }

    /// Adds the rows of a block of columns.
    fn add_columns(&self, state: &mut Products, block: &Block<'_>) {
        let columns: Vec<&[f64]> = self.columns.ids.iter().map(|id| block.numbers(*id)).collect();
        let mut products = products::Products::new(columns.len());
        let mut packed: Vec<Vec<f64>> = vec![Vec::new(); columns.len()];
        for from in (0..block.rows).step_by(products::ROWS) {
            let to = block.rows.min(from + products::ROWS);
            let part: Vec<&[f64]> = columns.iter().map(|c| &c[from..to]).collect();
            if products.add(&part, &mut state.sums) {
                state.rows += (to - from) as u64;
                continue;
            }
            packed.iter_mut().for_each(Vec::clear);
            for row in 0..to - from {
                if part.iter().all(|c| c[row].is_finite()) {
                    packed.iter_mut().zip(&part).for_each(|(p, c)| p.push(c[row]));
                } else if part.iter().any(|c| is_missing(c[row])) {
                    state.dropped += 1;
                } else {
                    state.rows += 1;
                    let mut sums = state.sums.iter_mut();
                    for (i, a) in part.iter().enumerate() {
                        for (b, sum) in part[i..].iter().zip(&mut sums) {
                            sum.add_product(a[row], b[row]);
                        }
                    }
                }
            }
            let part: Vec<&[f64]> = packed.iter().map(Vec::as_slice).collect();
            state.rows += part.first().map_or(0, |c| c.len() as u64);
            products.add(&part, &mut state.sums);
        }
    }
}

/// What the stretches of a block are worked on with.
struct Work<'a> {
    /// Columns of the products.
    ids: &'a [usize],
    /// Columns of the rows.
    width: usize,
    /// All columns are wanted, in their order.
    all: bool,
    /// Rows of one chain.
    chain: usize,
    /// Rows copied: only the columns wanted, and only complete rows.
    copy: Vec<f64>,
    /// Distance of rows in the copy.
    stride: usize,
    /// The sums of a stretch, lines `line` apart.
    sums: Vec<f64>,
    line: usize,
}

impl<'a> Work<'a> {
    fn new(ids: &'a [usize], width: usize) -> Self {
        let (n, stride, line) = (ids.len(), tile::stride(ids.len()), tile::sums_stride(ids.len()));
        // The rows of a chain are to stay in the first-level cache.
        let chain = (CHAIN_VALUES / n).clamp(32, 128);
        Work {
            ids,
            width,
            all: ids.iter().copied().eq(0..width),
            chain,
            copy: vec![0.0; chain * stride],
            stride,
            sums: vec![0.0; n * line],
            line,
        }
    }

    /// The sums over a stretch: the first `rows` of these rows. Returns how many were complete.
    fn stretch(&mut self, values: &[f64], rows: usize) -> usize {
        self.sums.fill(0.0);
        let (n, width) = (self.ids.len(), self.width);
        // Rows are used where they lie if all their columns are wanted, and if what follows the last one fills its
        // last vector; but not where rows would fall into the same places of the cache.
        let in_place = self.all && self.stride == n.next_multiple_of(4);
        for from in (0..rows).step_by(self.chain) {
            let count = self.chain.min(rows - from);
            let some = &values[from * width..];
            if in_place && some.len() >= (count - 1) * width + self.stride {
                tile::add(some, width, count, n, &mut self.sums);
                continue;
            }
            for (row, copy) in
                some.chunks_exact(width).zip(self.copy.chunks_exact_mut(self.stride)).take(count)
            {
                if self.all {
                    copy[..n].copy_from_slice(row);
                } else {
                    self.ids.iter().zip(copy).for_each(|(c, x)| *x = row[*c]);
                }
            }
            tile::add(&self.copy, self.stride, count, n, &mut self.sums);
        }
        // A missing value is a NaN, and then so is the sum of squares of its column.
        if (0..n).all(|i| !self.sums[i * self.line + i].is_nan()) {
            return rows;
        }
        self.complete_rows(&values[..rows * width])
    }

    /// The sums over the rows of a stretch that are complete, as if there were no others.
    #[cold]
    fn complete_rows(&mut self, rows: &[f64]) -> usize {
        self.sums.fill(0.0);
        let n = self.ids.len();
        let (mut filled, mut kept) = (0, 0);
        for row in rows.chunks_exact(self.width) {
            if self.ids.iter().any(|c| is_missing(row[*c])) {
                continue;
            }
            let copy = &mut self.copy[filled * self.stride..];
            self.ids.iter().zip(copy).for_each(|(c, x)| *x = row[*c]);
            filled += 1;
            kept += 1;
            if filled == self.chain {
                tile::add(&self.copy, self.stride, filled, n, &mut self.sums);
                filled = 0;
            }
        }
        tile::add(&self.copy, self.stride, filled, n, &mut self.sums);
        kept
    }
}

impl Kernel for Gram {
    type State = Products;

    fn needs(&self) -> Needs {
        if self.by_rows {
            return Needs { matrix: true, ..Needs::default() };
        }
        self.columns.needs()
    }

    fn init(&self) -> Products {
        Products::default()
    }

    fn update(&self, state: &mut Products, block: &Block<'_>) -> Result<()> {
        state.sums.resize_with(self.pairs(), ExactSum::new);
        if self.by_rows {
            return match &block.matrix {
                Some(m) => self.add_rows(state, m),
                None if block.rows == 0 => Ok(()),
                None => Err(Error::internal("a block came without its rows")),
            };
        }
        self.add_columns(state, block);
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

    fn is_last(&self) -> bool {
        true
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
    spec.only_options(&["exact"])?;
    // A column may be called 'exact': it then is named, and first.
    let (exact, args) = match spec.args.split_last() {
        Some((last, rest)) if last == "exact" && !rest.is_empty() => (true, rest),
        _ => (spec.parse_option("exact", false)?, spec.args.as_slice()),
    };
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let columns = Chosen::numbers(spec, &args, context)?;
    if columns.ids.len() > MAX_GRAM_COLUMNS {
        return Err(spec.error(format!(
            "{} columns; at most {MAX_GRAM_COLUMNS} are possible",
            columns.ids.len()
        )));
    }
    let shape = context.schema.shape.as_ref();
    let by_rows = !exact
        && shape.is_some_and(|s| s.dims().len() == 2)
        && context.schema.columns.len() <= MAX_GRAM_COLUMNS;
    Ok(Built::alone(spec, Gram { columns, by_rows }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::moments::tests::{ask_of, block, schema};
    use crate::{Spec, registry};
    use stead_core::block::stretch_rows;
    use stead_core::{
        ColumnInfo, ColumnKind, Columns, DType, MISSING, RecordKind, Schema, Selection, Shape,
    };

    #[test]
    fn products_of_complete_rows() {
        let n = 3000;
        let x: Vec<f64> = (0..n).map(|i| f64::from(i % 97) * 0.1 - 3.0).collect();
        let mut y: Vec<f64> = (0..n).map(|i| f64::from(i % 31) * 1e10).collect();
        y[1500] = MISSING;
        let want = |a: &[f64], b: &[f64]| {
            let mut s = ExactSum::new();
            (0..x.len()).filter(|i| *i != 1500).for_each(|i| s.add_product(a[i], b[i]));
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

    fn array(width: usize) -> Schema {
        let columns = (0..width)
            .map(|i| ColumnInfo { name: i.to_string(), kind: ColumnKind::Binary(DType::F64) })
            .collect();
        let shape = Some(Shape::new(vec![1, width as u64]).expect("shape"));
        Schema { records: RecordKind::Items, columns, shape }
    }

    /// A block of rows from the start of a stretch.
    fn rows<'a>(values: &'a [f64], width: usize, ends: &'a [u32]) -> Block<'a> {
        let matrix = Some(Matrix { values, width, ends });
        Block { rows: values.len() / width, matrix, ..Block::empty() }
    }

    fn ends(rows: usize, width: usize) -> Vec<u32> {
        let step = stretch_rows(width) as usize;
        (0..rows).step_by(step).map(|r| (r + step).min(rows) as u32).collect()
    }

    fn number(v: &Value, i: usize, j: usize) -> f64 {
        let Some(Value::List(lines)) = v.get("matrix") else { panic!("no matrix") };
        let Value::List(line) = &lines[i] else { panic!("no line") };
        line[j].as_f64().expect("a number")
    }

    #[test]
    fn rows_of_an_array_by_any_split_and_within_the_bound() {
        for (width, text, ids) in [
            (3usize, "gram:*", vec![0, 1, 2]),
            (12, "gram:*", (0..12).collect()),
            (4, "gram:3,1,0,2", vec![3, 1, 0, 2]),
            (5, "gram:1,0,2,3,4", vec![1, 0, 2, 3, 4]),
            (70, "gram:2,69,13", vec![2, 69, 13]),
            (128, "gram:*", (0..128).collect()),
        ] {
            let step = stretch_rows(width) as usize;
            let n = 2 * step + 77;
            let values: Vec<f64> =
                (0..n * width).map(|i| ((i * 7919) % 10_007) as f64 * 0.37 - 1800.0).collect();
            let schema = array(width);
            let all = ends(n, width);
            let whole = ask_of(&schema, text, &[rows(&values, width, &all)]);
            let cut: Vec<(&[f64], Vec<u32>)> =
                values.chunks(step * width).map(|v| (v, ends(v.len() / width, width))).collect();
            let blocks: Vec<Block<'_>> = cut.iter().map(|(v, e)| rows(v, width, e)).collect();
            assert_eq!(ask_of(&schema, text, &blocks), whole);
            assert_eq!(whole.get("rows"), Some(&Value::Int(n as u64)));
            for (i, a) in ids.iter().enumerate().step_by(5) {
                for (j, b) in ids.iter().enumerate() {
                    let (mut exact, mut size) = (ExactSum::new(), 0.0);
                    for row in values.chunks(width) {
                        exact.add_product(row[*a], row[*b]);
                        size += (row[*a] * row[*b]).abs();
                    }
                    let off = (number(&whole, i, j) - exact.to_f64()).abs();
                    assert!(off <= size * 2f64.powi(-45), "{width} {i} {j}: {off}");
                    assert_eq!(number(&whole, i, j), number(&whole, j, i));
                }
            }
        }
    }

    #[test]
    fn incomplete_rows_count_as_if_they_were_not_there() {
        let width = 5;
        let n = stretch_rows(width) as usize + 300;
        let mut values: Vec<f64> = (0..n * width).map(|i| (i % 83) as f64 * 0.1).collect();
        let (full, short) = (ends(n, width), n as u32);
        for row in (0..n).step_by(41) {
            values[row * width + row % width] = MISSING;
        }
        let schema = array(width);
        let all = rows(&values, width, &full);
        let got = ask_of(&schema, "gram:*", &[all]);
        let keep: Vec<u32> = (0..short).filter(|r| r % 41 != 0).collect();
        let mut scratch = Selection::default();
        let kept = all.select(&keep, &mut scratch);
        let want = ask_of(&schema, "gram:*", &[kept]);
        assert_eq!(got.get("matrix"), want.get("matrix"));
        assert_eq!(got.get("dropped"), Some(&Value::Int(n.div_ceil(41) as u64)));
        // Nothing is dropped for a column that was not asked for, nor for a NaN.
        let mut plain = vec![1.0; 40];
        (plain[1], plain[3], plain[12]) = (MISSING, f64::INFINITY, f64::NAN);
        let v = ask_of(&array(4), "gram:0,2,3", &[rows(&plain, 4, &[10])]);
        assert_eq!(v.get("rows"), Some(&Value::Int(10)));
        assert!(number(&v, 0, 0).is_nan() && number(&v, 1, 1) == 10.0);
        assert_eq!(number(&v, 2, 2), f64::INFINITY);
        let v = ask_of(&array(4), "gram:1,2", &[rows(&plain, 4, &[10])]);
        assert_eq!((v.get("rows"), v.get("dropped")), (Some(&Value::Int(9)), Some(&Value::Int(1))));
    }

    #[test]
    fn who_wants_it_exact_gets_it_exact() {
        let schema = array(2);
        let context = Context { schema: &schema, path: None, grouped: false };
        let needs = |text| {
            registry::build(&Spec::parse(text).expect("spec"), &context)
                .expect("kernel")
                .kernel
                .needs()
        };
        assert!(needs("gram:*").matrix && !needs("gram:*,exact").matrix);
        assert_eq!(needs("gram:*,exact").numbers, [0, 1]);
        assert!(
            Spec::parse("gram:*,exact=maybe").and_then(|s| registry::build(&s, &context)).is_err()
        );
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
