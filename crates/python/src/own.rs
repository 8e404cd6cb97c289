//! Kernels written in Python.

use crate::run::Trouble;
use crate::state::State;
use crate::value;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString, PyTuple};
use std::sync::Arc;
use stead::kernels::{Block, Kernel, Needs, Step};
use stead::{Error, Result, Schema};

/// What the package knows of a kernel: see `stead._own.instance`.
#[derive(FromPyObject)]
pub struct Described {
    name: String,
    /// Names, or `*` for all columns of numbers.
    columns: Vec<String>,
    /// How text is handed over: `str` or `bytes`.
    text: String,
    /// Whether it gets the bytes of the records, before all columns.
    records: bool,
    /// Whether it wants blocks, and states to merge, in the order of the data.
    order: bool,
    object: Py<PyAny>,
}

/// An object of Python with `init`, `update`, `merge` and `finish`.
pub struct Written {
    object: Py<PyAny>,
    trouble: Trouble,
}

/// A kernel written in Python whose columns are known.
pub struct Own {
    written: Arc<Written>,
    schema: Arc<Schema>,
    /// What `update` gets after the state.
    arguments: Vec<Argument>,
    text: Text,
    order: bool,
}

#[derive(Clone, Copy)]
enum Argument {
    Records,
    Number(usize),
    Text(usize),
}

/// What a piece of text is in Python.
#[derive(Clone, Copy)]
enum Text {
    /// `str`; what is no UTF-8 becomes U+FFFD.
    Str,
    Bytes,
}

impl Described {
    /// The kernel, to be run once.
    pub fn kernel(self, trouble: &Trouble) -> stead::kernels::Own {
        Arc::new(self).shared(trouble)
    }

    /// The kernel, to be run once; another one can be made.
    pub fn shared(self: &Arc<Self>, trouble: &Trouble) -> stead::kernels::Own {
        let (this, trouble) = (self.clone(), trouble.clone());
        stead::kernels::Own::new(self.name.clone(), move |context| {
            this.own(Arc::new(context.schema.clone()), trouble.clone())
        })
    }

    /// What it is called.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn own(&self, schema: Arc<Schema>, trouble: Trouble) -> Result<Own> {
        let object = Python::attach(|py| self.object.clone_ref(py));
        let text = match self.text.as_str() {
            "bytes" => Text::Bytes,
            _ => Text::Str,
        };
        let records = self.records.then_some(Argument::Records).into_iter();
        let arguments = records.chain(found(&self.columns, &schema)?).collect();
        let (written, order) = (Arc::new(Written { object, trouble }), self.order);
        Ok(Own { written, schema, arguments, text, order })
    }
}

fn found(names: &[String], schema: &Schema) -> Result<Vec<Argument>> {
    if names == ["*"] {
        return Ok(schema.numbers().into_iter().map(Argument::Number).collect());
    }
    names
        .iter()
        .map(|n| {
            let i = schema.column(n)?;
            let number = schema.columns[i].kind.is_number();
            Ok(if number { Argument::Number(i) } else { Argument::Text(i) })
        })
        .collect()
}

impl Written {
    /// Does `work` with the interpreter and the object; an exception is kept, and the run stops.
    pub fn python<T>(
        &self,
        work: impl FnOnce(Python<'_>, &Bound<'_, PyAny>) -> PyResult<T>,
    ) -> Result<T> {
        Python::attach(|py| {
            work(py, self.object.bind(py)).map_err(|e| {
                let said = e.to_string();
                self.trouble.keep(e);
                Error::data(format!("a kernel written in Python failed: {said}"))
            })
        })
    }
}

impl Own {
    fn arguments<'py>(
        &self,
        py: Python<'py>,
        state: Bound<'py, PyAny>,
        block: &Block<'_>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut arguments = Vec::with_capacity(1 + self.arguments.len());
        arguments.push(state);
        for a in &self.arguments {
            arguments.push(match *a {
                // Copies that are the kernel's own: the block's memory is used again for the next one.
                Argument::Number(i) => value::floats_of(py, block.numbers(i))?,
                Argument::Text(i) => {
                    let column = block.texts(i).ok_or_else(|| {
                        PyValueError::new_err("a block came without a column that was asked for")
                    })?;
                    self.texts(py, (0..block.rows).map(|row| column.get(row)))?
                }
                Argument::Records => {
                    self.texts(py, (0..block.records.len()).map(|row| Some(block.record(row))))?
                }
            });
        }
        PyTuple::new(py, arguments)
    }

    /// An array of objects, None where text is missing.
    fn texts<'py, 'b>(
        &self,
        py: Python<'py>,
        texts: impl Iterator<Item = Option<&'b [u8]>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let list = PyList::empty(py);
        for text in texts {
            match (text, self.text) {
                (Some(t), Text::Str) => {
                    list.append(PyString::new(py, &String::from_utf8_lossy(t)))?
                }
                (Some(t), Text::Bytes) => list.append(PyBytes::new(py, t))?,
                (None, _) => list.append(py.None())?,
            }
        }
        py.import("numpy")?.getattr("array")?.call1((list, "O"))
    }
}

impl Kernel for Own {
    type State = State;

    fn needs(&self) -> Needs {
        let mut needs = Needs { rows: true, order: self.order, ..Needs::default() };
        for a in &self.arguments {
            needs.add(&match *a {
                Argument::Records => Needs { bytes: true, records: true, ..Needs::default() },
                Argument::Number(i) => Needs { numbers: vec![i], ..Needs::default() },
                Argument::Text(i) => Needs { texts: vec![i], ..Needs::default() },
            });
        }
        needs
    }

    fn init(&self) -> State {
        State::of(&self.written)
    }

    fn update(&self, state: &mut State, block: &Block<'_>) -> Result<()> {
        if block.rows == 0 {
            return Ok(());
        }
        let old = state.take(&self.written)?;
        self.written.python(|py, kernel| {
            let old = match old {
                Some(s) => s.into_bound(py),
                None => kernel.call_method0("init")?,
            };
            let arguments = self.arguments(py, old.clone(), block)?;
            let new = kernel.call_method1("update", arguments)?;
            // A kernel that changes its state in place has nothing to return.
            state.put(&self.written, if new.is_none() { old } else { new })
        })
    }

    fn merge(&self, state: &mut State, mut other: State) -> Result<()> {
        if state.is_empty() {
            *state = other;
            return Ok(());
        }
        let Some(theirs) = other.take(&self.written)? else { return Ok(()) };
        let Some(mine) = state.take(&self.written)? else { return Ok(()) };
        self.written.python(|py, kernel| {
            let mine = mine.into_bound(py);
            let new = kernel.call_method1("merge", (mine.clone(), theirs))?;
            state.put(&self.written, if new.is_none() { mine } else { new })
        })
    }

    fn finish(&self, mut state: State) -> Result<Step> {
        let state = state.take(&self.written)?;
        let (answer, next) = self.written.python(|py, kernel| {
            let state = match state {
                Some(s) => s.into_bound(py),
                None => kernel.call_method0("init")?,
            };
            let answer = kernel.call_method1("finish", (state,))?;
            let next = py.import("stead._own")?.getattr("following")?.call1((&answer,))?;
            match next.extract::<Option<Described>>()? {
                Some(next) => Ok((None, Some(next))),
                None => value::from_python(&answer, 0).map(|v| (Some(v), None)),
            }
        })?;
        match (answer, next) {
            (Some(value), _) => Ok(Step::Done(value)),
            (None, Some(next)) => {
                let own = next.own(self.schema.clone(), self.written.trouble.clone())?;
                Ok(Step::Next(Arc::new(own)))
            }
            (None, None) => Err(Error::internal("neither an answer nor a kernel")),
        }
    }

    fn state_bytes(&self, state: &State) -> usize {
        state.bytes()
    }
}
