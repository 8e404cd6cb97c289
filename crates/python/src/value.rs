//! Results between Rust and Python. Floats keep their bits.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBool, PyByteArray, PyDict, PyFloat, PyInt, PyList, PyNone, PyString, PyTuple};
use stead::Value;
use stead::kernels::MISSING;

/// Deepest nesting of what a kernel written in Python may return.
const MAX_DEPTH: usize = 16;

/// A result as Python has it: lists of numbers are arrays of float64 or int64, lists of such lists with one
/// length are two-dimensional.
pub fn to_python<'py>(py: Python<'py>, v: &Value) -> PyResult<Bound<'py, PyAny>> {
    Ok(match v {
        Value::Null => PyNone::get(py).to_owned().into_any(),
        Value::Bool(b) => PyBool::new(py, *b).to_owned().into_any(),
        Value::Int(i) => i.into_pyobject(py)?.into_any(),
        Value::Float(f) => PyFloat::new(py, *f).into_any(),
        Value::Text(t) => PyString::new(py, t).into_any(),
        Value::List(l) => match matrix(py, l)? {
            Some(a) => a,
            None => {
                let items = l.iter().map(|v| to_python(py, v)).collect::<PyResult<Vec<_>>>()?;
                PyList::new(py, items)?.into_any()
            }
        },
        Value::Map(m) => {
            let d = PyDict::new(py);
            for (k, item) in m {
                d.set_item(k, member(py, v, k, item)?)?;
            }
            d.into_any()
        }
    })
}

/// A member of a map. An empty list has no elements to tell its type by; its name does.
fn member<'py>(py: Python<'py>, map: &Value, key: &str, v: &Value) -> PyResult<Bound<'py, PyAny>> {
    match (key, v) {
        ("lines" | "columns", Value::List(l)) if l.is_empty() => Ok(PyList::empty(py).into_any()),
        ("centroids" | "matrix", Value::List(l)) if l.is_empty() => {
            let columns = match map.get("columns") {
                Some(Value::List(c)) => c.len(),
                _ => 0,
            };
            floats(py, std::iter::empty())?.call_method1("reshape", (0, columns))
        }
        ("sizes" | "counts", Value::List(l)) if l.is_empty() => ints(py, &[]),
        _ => to_python(py, v),
    }
}

/// An array, if these are numbers, or rows of numbers of one length.
fn matrix<'py>(py: Python<'py>, l: &[Value]) -> PyResult<Option<Bound<'py, PyAny>>> {
    if let Some(a) = numbers(py, l.iter())? {
        return Ok(Some(a));
    }
    let Some(Value::List(first)) = l.first() else { return Ok(None) };
    let width = first.len();
    let mut flat = Vec::with_capacity(l.len() * width);
    for row in l {
        match row {
            Value::List(r) if r.len() == width => flat.extend(r.iter()),
            _ => return Ok(None),
        }
    }
    match numbers(py, flat.into_iter())? {
        Some(a) => a.call_method1("reshape", (l.len(), width)).map(Some),
        None => Ok(None),
    }
}

fn numbers<'py, 'v>(
    py: Python<'py>,
    l: impl Iterator<Item = &'v Value> + Clone,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let int = |v: &Value| match v {
        Value::Int(i) => i64::try_from(*i).ok(),
        _ => None,
    };
    let number = |v: &Value| matches!(v, Value::Int(_) | Value::Float(_));
    if let Some(all) = l.clone().map(int).collect::<Option<Vec<i64>>>().filter(|a| !a.is_empty()) {
        return ints(py, &all).map(Some);
    }
    // Null stands for a number that is not there; a list of nothing but nulls tells no type.
    let fits = l.clone().all(|v| number(v) || matches!(v, Value::Null));
    let any = l.clone().any(number) || l.clone().next().is_none();
    if !(fits && any) {
        return Ok(None);
    }
    floats(py, l.map(|v| v.as_f64().unwrap_or(MISSING))).map(Some)
}

/// `numpy.frombuffer`.
fn frombuffer(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static FOUND: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    FOUND
        .get_or_try_init(py, || Ok(py.import("numpy")?.getattr("frombuffer")?.unbind()))
        .map(|f| f.bind(py))
}

/// An array of float64 that owns its memory.
pub fn floats<'py>(
    py: Python<'py>,
    values: impl Iterator<Item = f64>,
) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = values.flat_map(f64::to_ne_bytes).collect();
    array(py, &bytes, "=f8")
}

/// As [`floats`], of values that lie side by side.
pub fn floats_of<'py>(py: Python<'py>, values: &[f64]) -> PyResult<Bound<'py, PyAny>> {
    array(py, bytemuck::cast_slice(values), "=f8")
}

fn ints<'py>(py: Python<'py>, values: &[i64]) -> PyResult<Bound<'py, PyAny>> {
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_ne_bytes()).collect();
    array(py, &bytes, "=i8")
}

/// An array over a copy of `bytes`, which may be written to.
pub fn array<'py>(py: Python<'py>, bytes: &[u8], dtype: &str) -> PyResult<Bound<'py, PyAny>> {
    frombuffer(py)?.call1((PyByteArray::new(py, bytes), dtype))
}

/// As [`array`], of several dimensions.
///
/// # Errors
/// If these bytes are not just as many elements.
pub fn shaped<'py>(
    py: Python<'py>,
    bytes: &[u8],
    dtype: &str,
    shape: &[u64],
) -> PyResult<Bound<'py, PyAny>> {
    let shape = PyTuple::new(py, shape)?;
    let made = py.import("numpy")?.getattr("ndarray")?.call1((
        shape,
        dtype,
        PyByteArray::new(py, bytes),
    ))?;
    if made.getattr("nbytes")?.extract::<usize>()? != bytes.len() {
        return Err(PyValueError::new_err("its elements are not as many as its shape says"));
    }
    Ok(made)
}

/// What a kernel written in Python returns, as a result.
///
/// # Errors
/// `TypeError` for what no report can hold.
pub fn from_python(v: &Bound<'_, PyAny>, depth: usize) -> PyResult<Value> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err(format!(
            "a result may be nested {MAX_DEPTH} deep, not deeper"
        )));
    }
    if v.is_none() {
        return Ok(Value::Null);
    }
    if let Ok(b) = v.cast::<PyBool>() {
        return Ok(Value::Bool(b.is_true()));
    }
    if v.is_instance_of::<PyInt>() {
        return match v.extract::<u64>() {
            Ok(i) => Ok(Value::Int(i)),
            // Results count from 0 up; what is below, or beyond 64 bits, is a number like others.
            Err(_) => Ok(Value::Float(v.extract()?)),
        };
    }
    if v.is_instance_of::<PyFloat>() {
        return Ok(Value::Float(v.extract()?));
    }
    if let Ok(s) = v.cast::<PyString>() {
        return Ok(Value::Text(s.to_string()));
    }
    if let Ok(d) = v.cast::<PyDict>() {
        let pair = |(k, v): (Bound<'_, PyAny>, Bound<'_, PyAny>)| {
            Ok((k.str()?.to_string(), from_python(&v, depth + 1)?))
        };
        return d.iter().map(pair).collect::<PyResult<_>>().map(Value::Map);
    }
    if v.is_instance_of::<PyList>() || v.is_instance_of::<PyTuple>() {
        let items = v.try_iter()?.map(|i| from_python(&i?, depth + 1));
        return items.collect::<PyResult<_>>().map(Value::List);
    }
    // Arrays and scalars of NumPy.
    if let Ok(plain) = v.call_method0("tolist") {
        return from_python(&plain, depth + 1);
    }
    Err(PyTypeError::new_err(format!(
        "a result cannot hold a {}; return numbers, text, None, lists, dicts or NumPy arrays",
        v.get_type().name()?
    )))
}
