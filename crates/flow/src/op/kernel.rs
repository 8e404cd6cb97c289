//! Kernels of `stead run` over values, and their answers as arrays: the elements of each value are a column, or the columns of a 2-d array
//! are, or the bytes of elements are what is looked at.

use super::passes::Asked;
use super::{normal, picture};
use crate::element::Element;
use crate::form::Form;
use crate::value::{Value, bytes_of, zeros};
use std::path::Path;
use std::sync::Arc;
use stead_core::{
    ColumnInfo, ColumnKind, DType, Error, RecordKind, Result, Schema, Value as Answer, limits,
};
use stead_kernel::{AnyKernel, Context, Spec, registry};

/// The name of a column: the last word of a reference.
fn column(reference: &str) -> &str {
    reference.split_once('.').map_or(reference, |(_, last)| last)
}

/// Whether it can be one.
///
/// # Errors
/// `Usage`.
pub fn check(asked: &Asked<'_>) -> Result<()> {
    let Asked { of, kernel, shape, rows, .. } = *asked;
    if of.is_empty() {
        return Err(Error::usage("it needs one value at least"));
    }
    if picture::is_one(kernel) {
        return picture::check(asked);
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
    if normal::is_one(kernel) {
        normal::check(asked)?;
    }
    if rows {
        // How many columns there are is not known yet.
        let one = || Error::usage("with 'rows' it works on one value, a 2-d array");
        return if of.len() == 1 { Spec::parse(kernel).map(drop) } else { Err(one()) };
    }
    build(asked, &columns(&vec![DType::F64; of.len()], of)).map(drop)
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
pub fn schema(of: &[&Form], asked: &Asked<'_>) -> Result<Schema> {
    let Some(first) = of.first() else { return Err(Error::usage("it needs one value at least")) };
    if asked.rows {
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
    Ok(columns(&types, asked.of))
}

/// The kernel, and the member of its result that is its answer.
///
/// # Errors
/// `Usage` for one that cannot work on what the schema says, or has no array as its answer.
pub fn build(
    asked: &Asked<'_>,
    schema: &Schema,
) -> Result<(Arc<dyn AnyKernel>, Option<&'static str>)> {
    let spec = Spec::parse(asked.kernel)?;
    let maps = normal::is_one(asked.kernel);
    // What it would write is what comes out: no file is ever made.
    let path = maps.then(|| Path::new("values"));
    let built = registry::build(&spec, &Context { schema, path, grouped: false })?;
    let (kernel, pick, needs) = (built.kernel.clone(), built.pick, built.kernel.needs());
    let refused = |why: &str, hint: &str| {
        Err(Error::usage(format!("kernel '{}' {why}", spec.name)).with_hint(hint))
    };
    let other = "take a kernel of columns; 'stead kernels' lists all";
    // Who asks for records without bytes asks where they lie: by their numbers.
    if needs.bytes && needs.records || !needs.texts.is_empty() {
        return refused("looks for text in records, and arrays of a flow have none", other);
    }
    if !maps && (kernel.output().is_some() || kernel.maps()) {
        return refused("writes a file, and a flow has only arrays", other);
    }
    if needs.brick.is_some() {
        return refused("works on the planes of a 3-d array, and was given columns", other);
    }
    if needs.bytes && (asked.of.len() > 1 || asked.rows) {
        let hint = "give it a node for each value, without 'rows'";
        return refused("works on the bytes of one value", hint);
    }
    Ok((kernel, pick))
}

/// What comes out.
///
/// # Errors
/// As [`schema`] and [`build`].
pub fn form(of: &[&Form], asked: &Asked<'_>) -> Result<Form> {
    let first = of.first().ok_or_else(|| Error::usage("it needs one value at least"))?;
    if picture::is_one(asked.kernel) {
        return picture::form(first, asked.kernel);
    }
    let (kernel, _) = build(asked, &schema(of, asked)?)?;
    if normal::is_one(asked.kernel) {
        return Ok(normal::form(first, asked.rows, &*kernel));
    }
    Ok(Form {
        dtype: DType::F64,
        shape: asked.shape.map(<[u64]>::to_vec).unwrap_or_default(),
        dims: Vec::new(),
        attributes: Default::default(),
    })
}

/// An answer as an array.
///
/// # Errors
/// `Usage` for an answer that is not what was said of it.
pub fn value(answer: Answer, member: Option<&str>, made: &Form) -> Result<Value> {
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
