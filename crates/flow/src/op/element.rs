//! Element by element: other types, other units, lengths of vectors.

use crate::element::{Element, with_type};
use crate::form::Form;
use crate::value::{Run, Value, fill};
use stead_core::{Bounds, DType, Error, Result};
use stead_stream::Attribute;

fn astray() -> Error {
    Error::internal("a run of elements is out of its array")
}

/// Writes elements of a run where they belong.
fn put<T: Element, U: Element>(run: &Run<'_>, to: &mut [u8], f: impl Fn(T) -> U) -> Result<()> {
    let size = U::DTYPE.size();
    let mut at = run.at * size;
    let end = at + run.len.saturating_sub(1) * run.step * size + size;
    let to = to.get_mut(..end).ok_or_else(astray)?;
    T::each(run, &mut |x: T| {
        if let Some(to) = to.get_mut(at..) {
            f(x).write(to);
        }
        at += run.step * size;
    })
}

/// Other elements with the same numbers.
pub fn cast(value: &Value, to: DType, wanted: &Bounds, threads: usize) -> Result<Value> {
    if value.dtype == to {
        return Ok(value.within(wanted));
    }
    with_type!(value.dtype, T => with_type!(to, U => {
        let turn = |x: T| match x.whole() {
            Some(x) => U::of_i128(x),
            None => U::of_f64(x.to_f64()),
        };
        fill(to, wanted, threads, &|part, to| value.runs(part, &mut |run| put::<T, U>(&run, to, turn)))
    }))
}

/// The form of what is scaled: its unit is another one, known or not.
pub fn scaled(of: &Form, units: Option<&str>) -> Form {
    let mut form = of.with_dtype(wide(of.dtype));
    match units {
        Some(units) => {
            form.attributes.insert("units".to_owned(), Attribute::Text(units.to_owned()));
        }
        None => {
            form.attributes.remove("units");
        }
    }
    form
}

/// Floating-point numbers of no fewer bits than needed.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F32 { DType::F32 } else { DType::F64 }
}

/// `factor * x + offset`, in doubles, rounded to what comes out.
pub fn scale(
    value: &Value,
    to: DType,
    (factor, offset): (f64, f64),
    wanted: &Bounds,
    threads: usize,
) -> Result<Value> {
    let by = |x: f64| x * factor + offset;
    with_type!(value.dtype, T => match to {
        DType::F32 => fill(to, wanted, threads, &|part, to| {
            value.runs(part, &mut |run| put::<T, f32>(&run, to, |x| by(x.to_f64()) as f32))
        }),
        _ => fill(to, wanted, threads, &|part, to| {
            value.runs(part, &mut |run| put::<T, f64>(&run, to, |x| by(x.to_f64())))
        }),
    })
}

/// The form of the length of a vector.
pub fn magnitude_form(of: &[&Form]) -> Result<Form> {
    let Some(first) = of.first() else { return Err(Error::usage("it needs one value at least")) };
    if let Some(other) = of.iter().find(|form| form.shape != first.shape) {
        return Err(Error::usage(format!(
            "its values have different shapes: {} and {}",
            first.describe(),
            other.describe()
        )));
    }
    let narrow = of.iter().all(|form| form.dtype == DType::F32);
    let mut form = first.with_dtype(if narrow { DType::F32 } else { DType::F64 });
    form.attributes.retain(|name, said| of.iter().all(|f| f.attributes.get(name) == Some(said)));
    Ok(form)
}

/// The root of the sum of squares, in doubles, rounded to what comes out.
pub fn magnitude(values: &[Value], to: DType, wanted: &Bounds, threads: usize) -> Result<Value> {
    fill(to, wanted, threads, &|part, out| {
        let elements = usize::try_from(part.elements()).unwrap_or(usize::MAX);
        let mut sums = vec![0f64; elements];
        for value in values {
            with_type!(value.dtype, T => value.runs(part, &mut |run| {
                let mut at = run.at;
                T::each(&run, &mut |x: T| {
                    if let Some(sum) = sums.get_mut(at) {
                        let x = x.to_f64();
                        *sum += x * x;
                    }
                    at += run.step;
                })
            }))?;
        }
        for (sum, to) in sums.iter().zip(out.chunks_exact_mut(to.size())) {
            match to.len() {
                4 => (sum.sqrt() as f32).write(to),
                _ => sum.sqrt().write(to),
            }
        }
        Ok(())
    })
}
