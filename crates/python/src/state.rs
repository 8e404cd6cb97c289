//! States of kernels written in Python, at home and as bytes between ranks.
//!
//! Bytes from a peer must not be able to run code, so nothing is pickled: numbers, text, bytes, None, lists, tuples,
//! sets, dicts and arrays of numbers are written as a flat row of tokens, and anything else by the kernel's own
//! `to_bytes` and `from_bytes`.

use crate::own::Written;
use crate::value;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyBytes, PyDict, PyFloat, PyInt, PyList, PyNone, PySet, PyString, PyTuple,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::Arc;
use stead::{Error, Result};

/// Deepest nesting of a state that travels.
const MAX_DEPTH: usize = 16;
/// Kinds of elements that arrays which travel may have: those of numbers, times and text of a fixed length.
const KINDS: &[u8] = b"biufcSUmM";

/// What a kernel has accumulated. Nothing until there are rows, and then whatever Python made.
pub struct State {
    /// Whose it is; unknown to one that has just arrived.
    owner: Option<Arc<Written>>,
    held: Held,
    /// What `sys.getsizeof` says of it.
    bytes: usize,
}

enum Held {
    Nothing,
    Object(Py<PyAny>),
    /// As it came from another rank.
    Arrived(Vec<u8>),
}

impl State {
    /// The state of no data.
    pub fn of(owner: &Arc<Written>) -> State {
        State { owner: Some(owner.clone()), held: Held::Nothing, bytes: 0 }
    }

    /// True if there has been nothing.
    pub fn is_empty(&self) -> bool {
        matches!(self.held, Held::Nothing)
    }

    /// Bytes that it takes.
    pub fn bytes(&self) -> usize {
        size_of::<State>() + self.bytes
    }

    /// Takes the object out. `None` if there has been nothing.
    pub fn take(&mut self, owner: &Written) -> Result<Option<Py<PyAny>>> {
        match std::mem::replace(&mut self.held, Held::Nothing) {
            Held::Nothing => Ok(None),
            Held::Object(o) => Ok(Some(o)),
            Held::Arrived(bytes) => arrived(&bytes, owner).map(Some),
        }
    }

    /// Puts an object in.
    pub fn put(&mut self, owner: &Arc<Written>, object: Bound<'_, PyAny>) -> PyResult<()> {
        let size = object.py().import("sys")?.getattr("getsizeof")?;
        self.bytes = size.call1((&object, 0))?.extract()?;
        self.held = Held::Object(object.unbind());
        self.owner = Some(owner.clone());
        Ok(())
    }
}

impl Serialize for State {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        let bytes = match (&self.held, &self.owner) {
            (Held::Nothing, _) => Ok(Vec::new()),
            (Held::Arrived(bytes), _) => Ok(bytes.clone()),
            (Held::Object(o), Some(owner)) => {
                owner.python(|py, kernel| leaving(o.bind(py), kernel))
            }
            (Held::Object(_), None) => Err(Error::internal("a state of no kernel")),
        };
        s.serialize_bytes(&bytes.map_err(serde::ser::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<State, D::Error> {
        let bytes = <&[u8]>::deserialize(d)?.to_vec();
        let held = if bytes.is_empty() { Held::Nothing } else { Held::Arrived(bytes) };
        Ok(State { owner: None, held, bytes: 0 })
    }
}

/// The first byte says who wrote the rest.
const PLAIN: u8 = 1;
const OWN: u8 = 2;

fn leaving(object: &Bound<'_, PyAny>, kernel: &Bound<'_, PyAny>) -> PyResult<Vec<u8>> {
    if kernel.hasattr("to_bytes")? {
        let made = kernel.call_method1("to_bytes", (object,))?;
        let made = made.cast::<PyBytes>().map_err(|_| {
            PyTypeError::new_err("to_bytes of a kernel did not return an object of type bytes")
        })?;
        return Ok([&[OWN], made.as_bytes()].concat());
    }
    let mut tokens = Vec::new();
    write(object, &mut tokens, 0)?;
    postcard::to_extend(&tokens, vec![PLAIN])
        .map_err(|e| PyValueError::new_err(format!("cannot encode the state of a kernel: {e}")))
}

fn arrived(bytes: &[u8], owner: &Written) -> Result<Py<PyAny>> {
    let malformed = |why: String| {
        Error::format(format!("the state of a kernel from another rank is malformed: {why}"))
    };
    match bytes.split_first() {
        Some((&OWN, bytes)) => owner.python(|py, kernel| {
            kernel.call_method1("from_bytes", (PyBytes::new(py, bytes),)).map(Bound::unbind)
        }),
        Some((&PLAIN, bytes)) => {
            let tokens: Vec<Token> =
                postcard::from_bytes(bytes).map_err(|e| malformed(e.to_string()))?;
            Python::attach(|py| {
                let mut tokens = tokens.into_iter();
                let object = read(py, &mut tokens, 0)?;
                match tokens.next() {
                    None => Ok(object.unbind()),
                    Some(_) => Err(PyValueError::new_err("something is left over")),
                }
            })
            .map_err(|e| malformed(e.to_string()))
        }
        _ => Err(malformed("it is of no known kind".into())),
    }
}

/// A piece of a state. Those with a number have so many parts behind them.
#[derive(Serialize, Deserialize)]
enum Token {
    None,
    Bool(bool),
    Int(i64),
    /// Decimal digits.
    Large(String),
    Float(f64),
    Text(String),
    Bytes(Vec<u8>),
    List(u64),
    Tuple(u64),
    Set(u64),
    /// Keys and values take turns.
    Dict(u64),
    /// An array of NumPy in C order, or a scalar of its own.
    Array {
        dtype: String,
        shape: Vec<u64>,
        data: Vec<u8>,
        scalar: bool,
    },
}

fn write(v: &Bound<'_, PyAny>, out: &mut Vec<Token>, depth: usize) -> PyResult<()> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err(format!(
            "the state of a kernel that travels may be nested {MAX_DEPTH} deep, not deeper"
        )));
    }
    let each = |parts: Bound<'_, PyAny>, out: &mut Vec<Token>| -> PyResult<()> {
        parts.try_iter()?.try_for_each(|p| write(&p?, out, depth + 1))
    };
    // Of these types exactly: a subclass would arrive as something else.
    if v.is_none() {
        out.push(Token::None);
    } else if let Ok(b) = v.cast_exact::<PyBool>() {
        out.push(Token::Bool(b.is_true()));
    } else if v.is_exact_instance_of::<PyInt>() {
        out.push(match v.extract() {
            Ok(i) => Token::Int(i),
            Err(_) => Token::Large(v.str()?.to_string()),
        });
    } else if let Ok(f) = v.cast_exact::<PyFloat>() {
        out.push(Token::Float(f.value()));
    } else if let Ok(s) = v.cast_exact::<PyString>() {
        out.push(Token::Text(s.to_str()?.to_string()));
    } else if let Ok(b) = v.cast_exact::<PyBytes>() {
        out.push(Token::Bytes(b.as_bytes().to_vec()));
    } else if let Ok(l) = v.cast_exact::<PyList>() {
        out.push(Token::List(l.len() as u64));
        each(l.clone().into_any(), out)?;
    } else if let Ok(t) = v.cast_exact::<PyTuple>() {
        out.push(Token::Tuple(t.len() as u64));
        each(t.clone().into_any(), out)?;
    } else if let Ok(s) = v.cast_exact::<PySet>() {
        out.push(Token::Set(s.len() as u64));
        each(s.clone().into_any(), out)?;
    } else if let Ok(d) = v.cast_exact::<PyDict>() {
        out.push(Token::Dict(d.len() as u64));
        for (key, value) in d.iter() {
            write(&key, out, depth + 1)?;
            write(&value, out, depth + 1)?;
        }
    } else {
        out.push(numbers(v)?);
    }
    Ok(())
}

/// An array or a scalar of NumPy.
fn numbers(v: &Bound<'_, PyAny>) -> PyResult<Token> {
    let numpy = v.py().import("numpy")?;
    let scalar = v.is_instance(&numpy.getattr("generic")?)?;
    if scalar || v.get_type().is(&numpy.getattr("ndarray")?) {
        let dtype: String = v.getattr("dtype")?.getattr("str")?.extract()?;
        if known(&dtype) {
            return Ok(Token::Array {
                dtype,
                shape: v.getattr("shape")?.extract()?,
                data: v.call_method0("tobytes")?.extract()?,
                scalar,
            });
        }
    }
    Err(PyTypeError::new_err(format!(
        "the state of a kernel holds a {}, which cannot travel between ranks; hold numbers, text, bytes, None, lists, \
         tuples, sets, dicts and NumPy arrays of numbers, or define to_bytes(state) and from_bytes(bytes)",
        v.get_type().name()?
    )))
}

/// True for the text of an element type without objects, such as `<f8` or `<M8[ns]`.
fn known(dtype: &str) -> bool {
    match dtype.as_bytes() {
        [b'<' | b'>' | b'|' | b'=', kind, rest @ ..] => {
            KINDS.contains(kind)
                && rest.len() <= 24
                && rest.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'[' | b']'))
        }
        _ => false,
    }
}

fn read<'py>(
    py: Python<'py>,
    tokens: &mut std::vec::IntoIter<Token>,
    depth: usize,
) -> PyResult<Bound<'py, PyAny>> {
    if depth > MAX_DEPTH {
        return Err(PyValueError::new_err("it is nested too deep"));
    }
    let Some(token) = tokens.next() else { return Err(PyValueError::new_err("it is torn")) };
    let mut parts =
        |n: u64| (0..n).map(|_| read(py, tokens, depth + 1)).collect::<PyResult<Vec<_>>>();
    Ok(match token {
        Token::None => PyNone::get(py).to_owned().into_any(),
        Token::Bool(b) => PyBool::new(py, b).to_owned().into_any(),
        Token::Int(i) => i.into_pyobject(py)?.into_any(),
        Token::Large(s) => py.get_type::<PyInt>().call1((s,))?,
        Token::Float(f) => PyFloat::new(py, f).into_any(),
        Token::Text(s) => PyString::new(py, &s).into_any(),
        Token::Bytes(b) => PyBytes::new(py, &b).into_any(),
        Token::List(n) => PyList::new(py, parts(n)?)?.into_any(),
        Token::Tuple(n) => PyTuple::new(py, parts(n)?)?.into_any(),
        Token::Set(n) => PySet::new(py, parts(n)?)?.into_any(),
        Token::Dict(n) => {
            let dict = PyDict::new(py);
            for _ in 0..n {
                let pair = parts(2)?;
                let [key, value] = pair.as_slice() else {
                    return Err(PyValueError::new_err("it is torn"));
                };
                dict.set_item(key, value)?;
            }
            dict.into_any()
        }
        Token::Array { dtype, shape, data, scalar } => {
            if !known(&dtype) {
                return Err(PyValueError::new_err("it has elements of an unknown type"));
            }
            let array = value::shaped(py, &data, &dtype, &shape)?;
            if scalar { array.get_item(PyTuple::empty(py))? } else { array }
        }
    })
}
