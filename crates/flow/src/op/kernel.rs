//! Kernels of `stead run` over values: the elements of each are a column, or the columns of a 2-d array are.

use crate::element::{Element, with_type};
use crate::form::Form;
use crate::value::{Value, bytes_of, zeros};
use std::sync::Arc;
use stead_core::block::stretch_rows;
use stead_core::{
    Block, ColumnInfo, ColumnKind, Columns, DType, Error, Matrix, RecordKind, Result, Schema, Span,
    Value as Answer, limits,
};
use stead_kernel::{AnyKernel, Context, Spec, Step, registry};
use stead_stream::gather;

/// Rows that a kernel is given at a time.
const ROWS: u64 = 1 << 15;

/// The name of a column: the last word of a reference.
fn column(reference: &str) -> &str {
    reference.split_once('.').map_or(reference, |(_, last)| last)
}

/// Whether it can be one.
pub fn check(of: &[String], kernel: &str, shape: Option<&[u64]>, rows: bool) -> Result<()> {
    if of.is_empty() {
        return Err(Error::usage("it needs one value at least"));
    }
    for (i, reference) in of.iter().enumerate() {
        let name = column(reference);
        if of.iter().take(i).any(|before| column(before) == name) {
            return Err(Error::usage(format!("two columns have the name '{name}'")));
        }
    }
    if let Some(shape) = shape {
        stead_core::Shape::new(shape.to_vec()).map_err(|e| Error::usage(e.message()))?;
    }
    if rows {
        // How many columns there are is not known yet.
        let one = || Error::usage("with 'rows' it works on one value, a 2-d array");
        return if of.len() == 1 { Spec::parse(kernel).map(drop) } else { Err(one()) };
    }
    build(kernel, &columns(&vec![DType::F64; of.len()], of)).map(drop)
}

fn columns(types: &[DType], of: &[String]) -> Schema {
    let one = |(dtype, reference): (&DType, &String)| ColumnInfo {
        name: column(reference).to_owned(),
        kind: ColumnKind::Binary(*dtype),
    };
    let columns = types.iter().zip(of).map(one).collect();
    Schema { records: RecordKind::Items, columns, shape: None }
}

/// What a kernel has before it.
///
/// # Errors
/// `Usage` for values that are no columns of one length, or no 2-d array.
pub fn schema(of: &[&Form], names: &[String], rows: bool) -> Result<Schema> {
    let Some(first) = of.first() else { return Err(Error::usage("it needs one value at least")) };
    if rows {
        let [_, width] = first.shape[..] else {
            return Err(Error::usage(format!("it is {}, and no 2-d array", first.describe()))
                .with_hint("without 'rows' all elements are one column"));
        };
        let width = usize::try_from(width).ok().filter(|n| *n <= limits::MAX_COLUMNS);
        let width = width.ok_or_else(|| {
            let most = limits::MAX_COLUMNS;
            Error::limit(format!("it is {}; a kernel has at most {most} columns", first.describe()))
        })?;
        let kind = ColumnKind::Binary(first.dtype);
        let columns = (0..width).map(|i| ColumnInfo { name: i.to_string(), kind }).collect();
        let shape = stead_core::Shape::new(first.shape.clone());
        let shape = Some(shape.map_err(|e| Error::usage(e.message()))?);
        return Ok(Schema { records: RecordKind::Items, columns, shape });
    }
    let elements = first.whole()?.elements();
    for form in of {
        if form.whole()?.elements() != elements {
            return Err(Error::usage(format!(
                "its values have different numbers of elements: {} and {}",
                first.describe(),
                form.describe()
            )));
        }
    }
    let types: Vec<DType> = of.iter().map(|form| form.dtype).collect();
    Ok(columns(&types, names))
}

/// The kernel, and the member of its result that is its answer.
fn build(text: &str, schema: &Schema) -> Result<(Arc<dyn AnyKernel>, Option<&'static str>)> {
    let spec = Spec::parse(text)?;
    let built = registry::build(&spec, &Context { schema, path: None, grouped: false })?;
    let needs = built.kernel.needs();
    // Who asks for records without bytes asks where they lie: by their numbers.
    let why = if needs.bytes || !needs.texts.is_empty() {
        "works on text, and arrays of a flow have none"
    } else if built.kernel.output().is_some() || built.kernel.maps() {
        "writes a file, and a flow has only arrays"
    } else if needs.brick.is_some() {
        "works on the planes of a 3-d array in a file, and has only columns in a flow"
    } else {
        return Ok((built.kernel, built.pick));
    };
    Err(Error::usage(format!("kernel '{}' {why}", spec.name))
        .with_hint("take a kernel of columns; 'stead kernels' lists all"))
}

/// What comes out.
pub fn form(
    of: &[&Form],
    names: &[String],
    kernel: &str,
    shape: Option<&[u64]>,
    rows: bool,
) -> Result<Form> {
    build(kernel, &schema(of, names, rows)?)?;
    Ok(Form {
        dtype: DType::F64,
        shape: shape.map(<[u64]>::to_vec).unwrap_or_default(),
        dims: Vec::new(),
        attributes: Default::default(),
    })
}

/// Runs it, pass by pass.
pub fn run(
    schema: &Schema,
    inputs: &[Value],
    text: &str,
    member: Option<&str>,
    made: &Form,
) -> Result<Value> {
    let (mut kernel, pick) = build(text, schema)?;
    let mut answer = None;
    for _ in 0..limits::MAX_ROUNDS {
        let passed = match (&schema.shape, inputs) {
            (Some(_), [one]) => pass_of_rows(&kernel, one, schema.columns.len()),
            _ => pass(&kernel, inputs),
        };
        match passed? {
            Step::Done(value) => {
                answer = Some(value);
                break;
            }
            Step::Next(next) => kernel = next,
            Step::File { .. } => {
                return Err(Error::usage("kernels that write files cannot run here"));
            }
        }
    }
    let answer = answer.ok_or_else(|| Error::limit("the kernel has not come to an end"))?;
    let answer = match pick {
        Some(pick) => answer.get(pick).cloned().unwrap_or(answer),
        None => answer,
    };
    let answer = match member {
        Some(member) => match answer.get(member) {
            Some(value) => value.clone(),
            None => {
                let e = Error::usage(format!("its answer has no member '{member}'"));
                return Err(members(&answer).map_or(e, |names| {
                    Error::usage(format!("its answer has no member '{member}', but {names}"))
                }));
            }
        },
        None => answer,
    };
    let mut numbers = Vec::new();
    flatten(&answer, &mut numbers)?;
    let bounds = made.whole()?;
    if numbers.len() as u64 != bounds.elements() {
        return Err(Error::usage(format!(
            "its answer is {} numbers, and {:?} was said",
            numbers.len(),
            made.shape
        ))
        .with_hint(format!("say shape = [{}]", numbers.len())));
    }
    let mut bytes = zeros(bytes_of(&bounds, DType::F64)?)?;
    for (number, to) in numbers.iter().zip(bytes.chunks_exact_mut(8)) {
        number.write(to);
    }
    Value::own(DType::F64, bounds, Arc::new(bytes))
}

fn members(answer: &Answer) -> Option<String> {
    match answer {
        Answer::Map(members) => Some(
            members.iter().take(12).map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", "),
        ),
        _ => None,
    }
}

/// The numbers of an answer.
fn flatten(answer: &Answer, to: &mut Vec<f64>) -> Result<()> {
    match answer {
        Answer::Null => to.push(f64::NAN),
        Answer::Bool(yes) => to.push(f64::from(u8::from(*yes))),
        Answer::Int(n) => to.push(*n as f64),
        Answer::Float(x) => to.push(*x),
        Answer::List(list) => return list.iter().try_for_each(|one| flatten(one, to)),
        Answer::Text(_) => return Err(Error::usage("its answer is a text and no number")),
        Answer::Map(_) => {
            return Err(Error::usage(format!(
                "its answer has members: {}",
                members(answer).unwrap_or_default()
            ))
            .with_hint("say which one is wanted: member = \"...\""));
        }
    }
    Ok(())
}

/// Where so many rows of a block lie: places of no bytes.
fn places(rows: usize) -> Vec<Span> {
    (0u32..).take(rows).map(|start| Span { start, len: 0 }).collect()
}

/// One pass over all rows, in the order of the elements.
fn pass(kernel: &Arc<dyn AnyKernel>, inputs: &[Value]) -> Result<Step> {
    let mut state = kernel.init();
    let ids: Vec<usize> = (0..inputs.len()).collect();
    let rows = inputs.first().map_or(0, |value| value.bounds.elements());
    let mut readers: Vec<Rows<'_>> = inputs.iter().map(Rows::new).collect();
    let mut done = 0;
    while done < rows {
        let some = usize::try_from((rows - done).min(ROWS)).unwrap_or(usize::MAX);
        let mut numbers = Vec::with_capacity(some * inputs.len());
        for reader in &mut readers {
            reader.take(some, &mut numbers)?;
        }
        let columns =
            Columns { number_ids: &ids, numbers: &numbers, stride: some, ..Columns::default() };
        let offset = done;
        let records = &places(some)[..];
        let seq = done / ROWS;
        let block = Block { seq, offset, rows: some, columns, records, ..Block::empty() };
        kernel.update(&mut state, &block)?;
        done += some as u64;
    }
    kernel.finish(state)
}

/// One pass over the rows of a 2-d array, by the stretches of which it is made for kernels.
fn pass_of_rows(kernel: &Arc<dyn AnyKernel>, value: &Value, width: usize) -> Result<Step> {
    let (mut state, needs) = (kernel.init(), kernel.needs());
    let all = if width == 0 { 0 } else { value.bounds.elements() / width as u64 };
    let (stretch, mut elements) = (stretch_rows(width), Rows::new(value));
    let (mut done, mut seq) = (0, 0);
    while done < all {
        let rows = usize::try_from((all - done).min(stretch)).unwrap_or(usize::MAX);
        let mut values = Vec::with_capacity(rows.saturating_mul(width));
        elements.take(rows.saturating_mul(width), &mut values)?;
        // Rows of a stretch are few.
        let ends = [u32::try_from(rows).unwrap_or(u32::MAX)];
        let column = |id: &usize| values.iter().skip(*id).step_by(width.max(1)).copied();
        let numbers: Vec<f64> = needs.numbers.iter().flat_map(column).collect();
        let number_ids = &needs.numbers[..];
        let columns = Columns { number_ids, numbers: &numbers, stride: rows, ..Columns::default() };
        let matrix = needs.matrix.then_some(Matrix { values: &values, width, ends: &ends });
        let (offset, records) = (done, &places(rows)[..]);
        let block = Block { seq, offset, rows, columns, matrix, records, ..Block::empty() };
        kernel.update(&mut state, &block)?;
        done += rows as u64;
        seq += 1;
    }
    kernel.finish(state)
}

/// The elements of a value in C order, some at a time.
struct Rows<'v> {
    value: &'v Value,
    boxes: std::vec::IntoIter<stead_core::Bounds>,
    left: std::collections::VecDeque<f64>,
}

impl<'v> Rows<'v> {
    fn new(value: &'v Value) -> Rows<'v> {
        let n = usize::try_from(value.bounds.elements() / ROWS).unwrap_or(usize::MAX);
        let boxes = gather::boxes(&value.bounds, n.clamp(1, 1 << 20)).into_iter();
        Rows { value, boxes, left: Default::default() }
    }

    fn take(&mut self, rows: usize, to: &mut Vec<f64>) -> Result<()> {
        while self.left.len() < rows {
            let Some(part) = self.boxes.next() else { break };
            let count = usize::try_from(part.elements()).unwrap_or(usize::MAX);
            let mut some = vec![0f64; count];
            with_type!(self.value.dtype, T => self.value.runs(&part, &mut |run| {
                let mut at = run.at;
                T::each(&run, &mut |x: T| {
                    if let Some(to) = some.get_mut(at) {
                        *to = x.to_f64();
                    }
                    at += run.step;
                })
            }))?;
            self.left.extend(some);
        }
        if self.left.len() < rows {
            return Err(Error::internal("a column is shorter than its value"));
        }
        to.extend(self.left.drain(..rows));
        Ok(())
    }
}
