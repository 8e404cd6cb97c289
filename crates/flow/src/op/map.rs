//! Functions of the program.

use super::{Job, Work};
use crate::form::Form;
use crate::value::{Value, bytes_of, zeros};
use std::sync::Arc;
use stead_core::{Bounds, DType, Error, Kind, Result};

/// An array that a function is given.
#[derive(Debug, Clone)]
pub struct Given {
    /// The type of its elements.
    pub dtype: DType,
    /// Which part of the whole array it is: all of it, unless the function works element by element.
    pub bounds: Bounds,
    /// The shape of the whole array.
    pub shape: Vec<u64>,
    /// The names of its dimensions, or none.
    pub dims: Vec<String>,
    bytes: Arc<Vec<u8>>,
}

impl Given {
    /// Its elements, in C order.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The same, to be held longer than the call.
    pub fn shared(&self) -> Arc<Vec<u8>> {
        self.bytes.clone()
    }
}

/// The array that a function is to make.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    /// The name of the node.
    pub function: String,
    /// The type of its elements.
    pub dtype: DType,
    /// Which part of the whole array it is: all of it, unless the function works element by element.
    pub bounds: Bounds,
    /// The names of its dimensions, or none.
    pub dims: Vec<String>,
}

/// A function: fills an array in C order, zeros before, from those that it is given. It may be called by any thread, for one step after the
/// other.
pub type Function = Arc<dyn Fn(&[Given], &Wanted, &mut [u8]) -> Result<()> + Send + Sync>;

/// Whether it can be one.
pub fn check(
    of: &[String],
    function: &str,
    shape: Option<&[u64]>,
    dims: Option<&[String]>,
    elementwise: bool,
) -> Result<()> {
    if of.is_empty() {
        return Err(Error::usage("it needs one value at least"));
    }
    if function.is_empty() {
        return Err(Error::usage("the function has no name"));
    }
    if function.starts_with(':') || function.ends_with(':') {
        return Err(Error::usage(format!("'{function}' names no function of a file"))
            .with_hint("write FILE:NAME, such as \"libheat.so:warmer\""));
    }
    if elementwise && shape.is_some() {
        return Err(Error::usage("what works element by element has the shape of its values")
            .with_hint("take 'shape' or 'elementwise' away"));
    }
    match (shape, dims) {
        (None, Some(_)) => Err(Error::usage("names of dimensions go with a shape")),
        (Some(shape), Some(dims)) if shape.len() != dims.len() => {
            Err(Error::usage(format!("{} names for {} dimensions", dims.len(), shape.len())))
        }
        _ => Ok(()),
    }
}

/// What comes out.
pub fn form(
    of: &[&Form],
    dtype: Option<DType>,
    shape: Option<&[u64]>,
    dims: Option<&[String]>,
    elementwise: bool,
) -> Result<Form> {
    let Some(first) = of.first() else { return Err(Error::usage("it needs one value at least")) };
    if let Some(other) = of.iter().find(|form| elementwise && form.shape != first.shape) {
        return Err(Error::usage(format!(
            "its values have different shapes: {} and {}",
            first.describe(),
            other.describe()
        )));
    }
    // Whatever the function makes of numbers, it is not of their unit.
    let mut form = first.with_dtype(dtype.unwrap_or(first.dtype));
    form.attributes.clear();
    if let Some(shape) = shape {
        form.shape = shape.to_vec();
        form.dims = dims.map(<[String]>::to_vec).unwrap_or_default();
        form.definition("map").check()?;
    }
    Ok(form)
}

/// Calls it, to make this box.
pub fn map(
    job: &Job<'_>,
    inputs: &[Value],
    function: &str,
    made: &Form,
    bounds: Bounds,
    work: &Work<'_>,
) -> Result<Value> {
    let Some(call) = work.functions.get(function) else { return Err(unknown(function)) };
    let given = |(form, value): (&&Form, &Value)| -> Result<Given> {
        Ok(Given {
            dtype: form.dtype,
            bounds: value.bounds.clone(),
            shape: form.shape.clone(),
            dims: form.dims.clone(),
            bytes: Arc::new(value.gather(work.threads)?),
        })
    };
    let given = job.of.iter().zip(inputs).map(given).collect::<Result<Vec<_>>>()?;
    let mut bytes = zeros(bytes_of(&bounds, made.dtype)?)?;
    let (dtype, dims) = (made.dtype, made.dims.clone());
    let asked = Wanted { function: function.to_owned(), dtype, bounds: bounds.clone(), dims };
    call(&given, &asked, &mut bytes)?;
    Value::own(made.dtype, bounds, Arc::new(bytes))
}

/// Where a function is that a graph names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Home<'f> {
    /// The program that runs the flow gives it.
    Program,
    /// A library of this path has it under this name.
    Library(&'f str, &'f str),
    /// A file or a module of Python has it.
    Python,
}

/// Where a function is, by its name in a graph.
pub fn home(function: &str) -> Home<'_> {
    let Some((path, name)) = function.rsplit_once(':') else { return Home::Program };
    let file = path.rsplit('/').next().unwrap_or(path);
    // Also with a version behind it.
    if file.ends_with(".so") || file.contains(".so.") || file.ends_with(".dylib") {
        return Home::Library(path, name);
    }
    Home::Python
}

/// That a program has not given a function.
pub fn unknown(function: &str) -> Error {
    let (message, hint) = match home(function) {
        Home::Program => (
            format!("the program gives no function '{function}'"),
            "flows with functions are run by programs that have them: in Python stead.flow(FILE, functions={...}).run()",
        ),
        Home::Library(..) => (
            format!("function '{function}' is in a library, which was not loaded"),
            "if you trust it: stead flow run --load FILE, in Python stead.flow(FILE, load=True), in C stead_flow_load",
        ),
        Home::Python => (
            format!("function '{function}' is one of Python, and was not loaded"),
            "run the flow from Python: stead.flow(FILE, load=True).run()",
        ),
    };
    Error::new(Kind::Usage, message).with_hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_where_functions_are() {
        for function in ["twice", "of.mine"] {
            assert_eq!(home(function), Home::Program, "{function}");
        }
        for (function, path, name) in [
            ("libheat.so:warmer", "libheat.so", "warmer"),
            ("../lib/libheat.so.2:warmer", "../lib/libheat.so.2", "warmer"),
            ("a:b/heat.so:warmer", "a:b/heat.so", "warmer"),
            ("libheat.dylib:warmer", "libheat.dylib", "warmer"),
        ] {
            assert_eq!(home(function), Home::Library(path, name), "{function}");
        }
        for function in ["heat.py:warmer", "package.heat:warmer", "some.so.d/heat.py:warmer"] {
            assert_eq!(home(function), Home::Python, "{function}");
        }
        for (function, hint) in
            [("twice", "functions="), ("heat.so:f", "--load"), ("heat.py:f", "from Python")]
        {
            let e = unknown(function);
            assert!(e.message().contains(function) && e.hint().is_some_and(|h| h.contains(hint)));
        }
    }
}
