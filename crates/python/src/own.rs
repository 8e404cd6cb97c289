//! Kernels written in Python.

use crate::run::Trouble;
use crate::value;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use stead::kernels::{Block, Context, Kernel, Needs, Step, TextColumn};
use stead::{Error, Result};

/// A Python object with `init`, `update`, `merge` and `finish`.
pub struct Own {
    object: Py<PyAny>,
    /// The columns that `update` gets, in its order.
    columns: Vec<Column>,
    trouble: Trouble,
}

#[derive(Clone, Copy)]
enum Column {
    Number(usize),
    Text(usize),
}

/// What the object has accumulated. Nothing until there are rows, and then whatever Python made.
#[derive(Default)]
pub struct State {
    object: Option<Py<PyAny>>,
    /// What `sys.getsizeof` says of it.
    bytes: usize,
}

/// States travel between ranks only, and the runs of Python have one.
const HOME: &str = "the state of a kernel written in Python does not travel";

impl Serialize for State {
    fn serialize<S: Serializer>(&self, _: S) -> std::result::Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom(HOME))
    }
}

impl<'de> Deserialize<'de> for State {
    fn deserialize<D: Deserializer<'de>>(_: D) -> std::result::Result<State, D::Error> {
        Err(serde::de::Error::custom(HOME))
    }
}

impl Own {
    /// The kernel called `name`. `columns` are names, or `*` for all numeric ones.
    pub fn kernel(
        name: String,
        columns: Vec<String>,
        object: Py<PyAny>,
        trouble: &Trouble,
    ) -> stead::kernels::Own {
        let trouble = trouble.clone();
        stead::kernels::Own::new(name, move |context| {
            Ok(Own {
                object: Python::attach(|py| object.clone_ref(py)),
                columns: found(&columns, context)?,
                trouble: trouble.clone(),
            })
        })
    }

    /// Does `work` with the interpreter; an exception is kept, and the run stops.
    fn python<T>(
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

    fn arguments<'py>(
        &self,
        py: Python<'py>,
        state: Bound<'py, PyAny>,
        block: &Block<'_>,
    ) -> PyResult<Bound<'py, PyTuple>> {
        let mut arguments = Vec::with_capacity(1 + self.columns.len());
        arguments.push(state);
        for c in &self.columns {
            arguments.push(match *c {
                // A copy that is the kernel's own: the block's memory is used again for the next one.
                Column::Number(i) => value::floats_of(py, block.numbers(i))?,
                Column::Text(i) => texts(py, block.texts(i))?,
            });
        }
        PyTuple::new(py, arguments)
    }
}

fn found(names: &[String], context: &Context<'_>) -> Result<Vec<Column>> {
    let schema = context.schema;
    if names == ["*"] {
        return Ok(schema.numbers().into_iter().map(Column::Number).collect());
    }
    names
        .iter()
        .map(|n| {
            let i = schema.column(n)?;
            let number = schema.columns[i].kind.is_number();
            Ok(if number { Column::Number(i) } else { Column::Text(i) })
        })
        .collect()
}

/// Text as an array of `str`, with `None` where it is missing. Bytes that are no UTF-8 become U+FFFD.
fn texts<'py>(py: Python<'py>, column: Option<TextColumn<'_>>) -> PyResult<Bound<'py, PyAny>> {
    let list = PyList::empty(py);
    if let Some(column) = column {
        for i in 0..column.spans.len() {
            match column.get(i) {
                Some(t) => list.append(PyString::new(py, &String::from_utf8_lossy(t)))?,
                None => list.append(py.None())?,
            }
        }
    }
    py.import("numpy")?.getattr("array")?.call1((list, "O"))
}

impl Kernel for Own {
    type State = State;

    fn needs(&self) -> Needs {
        let mut needs = Needs { rows: true, ..Needs::default() };
        for c in &self.columns {
            needs.add(&match *c {
                Column::Number(i) => Needs { numbers: vec![i], ..Needs::default() },
                Column::Text(i) => Needs { texts: vec![i], ..Needs::default() },
            });
        }
        needs
    }

    fn init(&self) -> State {
        State::default()
    }

    fn update(&self, state: &mut State, block: &Block<'_>) -> Result<()> {
        if block.rows == 0 {
            return Ok(());
        }
        self.python(|py, kernel| {
            let old = match state.object.take() {
                Some(s) => s.into_bound(py),
                None => kernel.call_method0("init")?,
            };
            let arguments = self.arguments(py, old.clone(), block)?;
            let new = kernel.call_method1("update", arguments)?;
            // A kernel that changes its state in place has nothing to return.
            state.keep(if new.is_none() { old } else { new })
        })
    }

    fn merge(&self, state: &mut State, other: State) -> Result<()> {
        let Some(theirs) = other.object else { return Ok(()) };
        let Some(mine) = state.object.take() else {
            *state = State { object: Some(theirs), bytes: other.bytes };
            return Ok(());
        };
        self.python(|py, kernel| {
            let mine = mine.into_bound(py);
            let new = kernel.call_method1("merge", (mine.clone(), theirs))?;
            state.keep(if new.is_none() { mine } else { new })
        })
    }

    fn finish(&self, state: State) -> Result<Step> {
        self.python(|py, kernel| {
            let state = match state.object {
                Some(s) => s.into_bound(py),
                None => kernel.call_method0("init")?,
            };
            let answer = kernel.call_method1("finish", (state,))?;
            value::from_python(&answer, 0).map(Step::Done)
        })
    }

    fn state_bytes(&self, state: &State) -> usize {
        std::mem::size_of::<State>() + state.bytes
    }
}

impl State {
    fn keep(&mut self, object: Bound<'_, PyAny>) -> PyResult<()> {
        let size = object.py().import("sys")?.getattr("getsizeof")?;
        self.bytes = size.call1((&object, 0))?.extract()?;
        self.object = Some(object.unbind());
        Ok(())
    }
}
