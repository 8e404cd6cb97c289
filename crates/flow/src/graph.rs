//! What a flow is: streams that are read, nodes, streams that are written. TOML and programs make the same type.

use crate::fault;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::path::Path;
use stead_core::{DType, Error, Result, limits};
use stead_stream::{AUTO, Behind, Start, is_location};

/// A graph of operators between streams.
///
/// Values go by references: `sim.T` is the variable `T` of the stream that is read as `sim`, `hot` is what the node `hot` makes, and
/// `halves.left` is the part `left` of the node `halves`, which makes several.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Graph {
    /// The name of the flow: of the group by which it reads streams.
    #[serde(default = "flow")]
    pub name: String,
    /// Streams that are read, each by the name that it has in references.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub read: BTreeMap<String, Source>,
    /// Operators by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node: BTreeMap<String, Operator>,
    /// Streams that are written.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub write: BTreeMap<String, Output>,
}

fn flow() -> String {
    "flow".to_owned()
}

impl Default for Graph {
    fn default() -> Self {
        let (read, node, write) = Default::default();
        Graph { name: flow(), read, node, write }
    }
}

/// With which step of a stream a flow begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum From {
    /// The oldest that is there.
    #[default]
    Oldest,
    /// The next one that becomes complete.
    Next,
    /// The first one of all, of a stream that is recorded: as [`Start::First`].
    First,
}

/// What a stream's writers do when the flow is slow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Slow {
    /// They wait.
    #[default]
    Block,
    /// They go on, and the flow misses steps.
    Drop,
    /// They go on, and the flow reads from files what has no room in memory: as [`Behind::Spill`].
    Spill,
}

impl std::convert::From<From> for Start {
    fn from(from: From) -> Start {
        match from {
            From::Oldest => Start::Oldest,
            From::Next => Start::Next,
            From::First => Start::First,
        }
    }
}

impl std::convert::From<Slow> for Behind {
    fn from(slow: Slow) -> Behind {
        match slow {
            Slow::Block => Behind::Block,
            Slow::Drop => Behind::Drop,
            Slow::Spill => Behind::Spill,
        }
    }
}

fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// A stream that is read.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Its name, if it is not the one that it has in references; with a `/`, the folder in which it was recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
    /// With which step the flow begins.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub start: From,
    /// What happens when the flow is slow.
    #[serde(default, skip_serializing_if = "is_usual")]
    pub behind: Slow,
    /// Steps that it may be behind, if it is another number than the stream's queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// Steps that it has had which stay for it, beside those that the stream keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u64>,
    /// The nodes of a pool on which it is written, if it is to be looked for on no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes: Option<Vec<String>>,
    /// What is known of its variables before it is there, so that types and shapes are checked before.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, Declared>,
}

/// What is said of a variable before it is there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// The type of its elements.
    pub dtype: DType,
    /// Its whole shape.
    #[serde(default)]
    pub shape: Vec<u64>,
    /// The names of its dimensions, or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dims: Vec<String>,
}

/// A stream that is written.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Output {
    /// Its variables, each with the value that it is.
    pub variables: BTreeMap<String, String>,
    /// As [`stead_stream::Written::keep`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<u64>,
    /// As [`stead_stream::Written::queue`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u64>,
    /// As [`stead_stream::Written::readers`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readers: Option<u64>,
    /// As [`stead_stream::Written::memory`], such as `1GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// As [`stead_stream::Written::persist`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub persist: Option<String>,
    /// As [`stead_stream::Written::spill`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill: Option<String>,
    /// As [`stead_stream::Written::spill_limit`], such as `100GiB`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spill_limit: Option<String>,
}

/// One or several values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a value is wanted, or a list of values")]
pub enum Of {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

impl Of {
    /// All of them.
    pub fn list(&self) -> &[String] {
        match self {
            Of::One(one) => std::slice::from_ref(one),
            Of::Many(many) => many,
        }
    }
}

/// A dimension: its name, or its place, from the end if it is negative.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a dimension is a name or a number")]
pub enum Dim {
    /// Its place.
    Place(i64),
    /// Its name.
    Name(String),
}

impl std::fmt::Display for Dim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Dim::Place(n) => write!(f, "{n}"),
            Dim::Name(name) => write!(f, "'{name}'"),
        }
    }
}

/// Which indices of a dimension: one, which takes the dimension away, or those of `start:stop:step`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "an index is wanted, or start:stop:step")]
pub enum Cut {
    /// This one; from the end if it is negative.
    At(i64),
    /// `start:stop:step`, each of which may be left out.
    Range(String),
}

/// What is taken of dimensions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "a list of indices and of start:stop:step is wanted, or a table of them by dimension"
)]
pub enum Slice {
    /// Of the first ones, in order; `...` stands for all that are not named.
    ByPlace(Vec<Cut>),
    /// Of those of these names.
    ByName(BTreeMap<String, Cut>),
}

/// How many values become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum How {
    /// Their sum, exact until it is rounded.
    Sum,
    /// Their mean, exact until it is rounded.
    Mean,
    /// The smallest.
    Min,
    /// The largest.
    Max,
    /// Their mean and the second, third and fourth central moment, along a new first dimension `moment`.
    Moments,
}

impl How {
    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            How::Sum => "sum",
            How::Mean => "mean",
            How::Min => "min",
            How::Max => "max",
            How::Moments => "moments",
        }
    }
}

/// What becomes of the steps of a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// They lie along a new first dimension `window`, the oldest first.
    #[default]
    Stack,
    /// As [`How::Sum`], element by element.
    Sum,
    /// As [`How::Mean`], element by element.
    Mean,
    /// The smallest of each element.
    Min,
    /// The largest of each element.
    Max,
}

fn one() -> f64 {
    1.0
}

fn is_one(x: &f64) -> bool {
    *x == 1.0
}

fn is_zero(x: &f64) -> bool {
    *x == 0.0
}

/// An operator, with the values that it works on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
pub enum Operator {
    /// A part of an array, every so many elements of it: nothing is copied.
    Select {
        /// The value.
        of: String,
        /// What is taken of its dimensions.
        slice: Slice,
    },
    /// Other elements with the same numbers: what does not fit becomes the nearest that does, and fractions go.
    Cast {
        /// The value.
        of: String,
        /// The type.
        to: DType,
    },
    /// `factor * x + offset`, in another unit.
    Scale {
        /// The value.
        of: String,
        /// By which elements are multiplied.
        #[serde(default = "one", skip_serializing_if = "is_one")]
        factor: f64,
        /// What is then added.
        #[serde(default, skip_serializing_if = "is_zero")]
        offset: f64,
        /// The attribute `units` of what comes out.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        units: Option<String>,
    },
    /// The root of the sum of the squares of several arrays.
    Magnitude {
        /// The values.
        of: Vec<String>,
    },
    /// Several parts of one array, along a dimension.
    Split {
        /// The value.
        of: String,
        /// The dimension.
        along: Dim,
        /// The names of the parts, by which they are referred to.
        parts: Vec<String>,
        /// Where the second part and those after it begin; without it all are equally long, the first ones by one longer if need be.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<Vec<u64>>,
    },
    /// One array of several: one after the other along a dimension, or side by side along a new first one.
    Merge {
        /// The values.
        of: Vec<String>,
        /// The dimension that they have.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        along: Option<Dim>,
        /// The name of the new dimension.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        new: Option<String>,
    },
    /// One number of many.
    Reduce {
        /// The value.
        of: String,
        /// How.
        how: How,
        /// The dimensions that go; all of them without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        over: Option<Vec<Dim>>,
    },
    /// The last steps together.
    Window {
        /// The value.
        of: String,
        /// How many.
        steps: u64,
        /// After how many steps there is the next one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every: Option<u64>,
        /// What becomes of them.
        #[serde(default, skip_serializing_if = "is_usual")]
        how: Over,
    },
    /// Some of the steps, or some of the elements.
    Sample {
        /// The value.
        of: String,
        /// The first step and every so many after it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        every: Option<u64>,
        /// So many elements, which the seed draws, the same ones in each step; all of them if there are no more.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        elements: Option<u64>,
        /// Which ones are drawn.
        #[serde(default, skip_serializing_if = "is_usual")]
        seed: u64,
    },
    /// What a function of the program makes of arrays.
    Map {
        /// The values.
        of: Of,
        /// The name by which the program gives it; or `lib.so:name`, a function of C in a library, or `file.py:name` or `module:name`, one
        /// of Python, which are loaded if that is said. Paths are relative to the folder of the graph.
        function: String,
        /// The type of what it makes; that of the first value without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dtype: Option<DType>,
        /// The shape of what it makes; that of the first value without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<Vec<u64>>,
        /// The names of its dimensions, if the shape is given.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        dims: Option<Vec<String>>,
        /// True if each element follows from those at the same place alone: several ranks then share the work.
        #[serde(default, skip_serializing_if = "is_usual")]
        elementwise: bool,
    },
    /// A kernel of `stead run`, with the elements of each value as a column, with the columns of one 2-d array, or with the bytes of one value.
    Kernel {
        /// The values, all of one length; columns have the last word of each reference as their names.
        of: Of,
        /// What is computed, such as `quantile:T,q=0.5`.
        kernel: String,
        /// The member of the answer that is wanted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        member: Option<String>,
        /// True if the value is a 2-d array whose columns are those of the kernel, called by their numbers.
        #[serde(default, skip_serializing_if = "is_usual")]
        rows: bool,
        /// The shape of the answer; one number without it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        shape: Option<Vec<u64>>,
    },
}

impl Operator {
    /// As `op` in TOML.
    pub fn name(&self) -> &'static str {
        match self {
            Operator::Select { .. } => "select",
            Operator::Cast { .. } => "cast",
            Operator::Scale { .. } => "scale",
            Operator::Magnitude { .. } => "magnitude",
            Operator::Split { .. } => "split",
            Operator::Merge { .. } => "merge",
            Operator::Reduce { .. } => "reduce",
            Operator::Window { .. } => "window",
            Operator::Sample { .. } => "sample",
            Operator::Map { .. } => "map",
            Operator::Kernel { .. } => "kernel",
        }
    }

    /// The references of what it works on.
    pub fn of(&self) -> &[String] {
        match self {
            Operator::Select { of, .. }
            | Operator::Cast { of, .. }
            | Operator::Scale { of, .. }
            | Operator::Split { of, .. }
            | Operator::Reduce { of, .. }
            | Operator::Window { of, .. }
            | Operator::Sample { of, .. } => std::slice::from_ref(of),
            Operator::Magnitude { of } | Operator::Merge { of, .. } => of,
            Operator::Map { of, .. } | Operator::Kernel { of, .. } => of.list(),
        }
    }

    /// The names of what it makes, if that is several.
    pub fn parts(&self) -> &[String] {
        match self {
            Operator::Split { parts, .. } => parts,
            _ => &[],
        }
    }

    /// What it does, in a few words.
    pub fn describe(&self) -> String {
        let list = |dims: &[Dim]| {
            dims.iter().map(|d| d.to_string().replace('\'', "")).collect::<Vec<_>>().join(", ")
        };
        match self {
            Operator::Select { slice, .. } => format!("select {}", shown(slice)),
            Operator::Cast { to, .. } => format!("cast {to}"),
            Operator::Scale { factor, offset, units, .. } => {
                let units = units.as_ref().map_or(String::new(), |u| format!(" [{u}]"));
                match offset {
                    0.0 => format!("scale {factor}{units}"),
                    _ => format!("scale {factor} {offset:+}{units}"),
                }
            }
            Operator::Magnitude { .. } => "magnitude".to_owned(),
            Operator::Split { along, .. } => format!("split {}", list(std::slice::from_ref(along))),
            Operator::Merge { along: Some(along), .. } => {
                format!("merge {}", list(std::slice::from_ref(along)))
            }
            Operator::Merge { new, .. } => format!("merge new {}", new.as_deref().unwrap_or("?")),
            Operator::Reduce { how, over, .. } => match over {
                Some(over) => format!("{} over {}", how.name(), list(over)),
                None => how.name().to_owned(),
            },
            Operator::Window { steps, every, how, .. } => {
                let how = match how {
                    Over::Stack => "window",
                    Over::Sum => "sum",
                    Over::Mean => "mean",
                    Over::Min => "min",
                    Over::Max => "max",
                };
                let every =
                    every.filter(|n| *n > 1).map_or(String::new(), |n| format!(", every {n}"));
                format!("{how} of {steps} steps{every}")
            }
            Operator::Sample { every, elements, .. } => match (every, elements) {
                (Some(every), Some(n)) => format!("sample {n}, every {every} steps"),
                (Some(every), None) => format!("every {every} steps"),
                (None, n) => format!("sample {}", n.unwrap_or(0)),
            },
            Operator::Map { function, .. } => format!("map {function}"),
            Operator::Kernel { kernel, .. } => kernel.clone(),
        }
    }
}

fn shown(slice: &Slice) -> String {
    let cut = |cut: &Cut| match cut {
        Cut::At(n) => n.to_string(),
        Cut::Range(text) => text.clone(),
    };
    match slice {
        Slice::ByPlace(all) => format!("[{}]", all.iter().map(cut).collect::<Vec<_>>().join(", ")),
        Slice::ByName(all) => {
            let each = all.iter().map(|(name, c)| format!("{name}={}", cut(c)));
            format!("[{}]", each.collect::<Vec<_>>().join(", "))
        }
    }
}

impl Graph {
    /// Reads a file of TOML.
    ///
    /// # Errors
    /// Those of the file; as [`Graph::parse`], with its path.
    pub fn load(path: &Path) -> Result<Graph> {
        let file = File::open(path).map_err(|e| Error::io("open", path, e))?;
        let mut text = String::new();
        let most = limits::MAX_CONFIG_BYTES as u64 + 1;
        file.take(most).read_to_string(&mut text).map_err(|e| match e.kind() {
            ErrorKind::InvalidData => {
                Error::usage("this is no flow: it is not text in UTF-8").at_path(path)
            }
            _ => Error::io("read", path, e),
        })?;
        Graph::parse(&text).map_err(|e| e.at_path(path))
    }

    /// Reads TOML.
    ///
    /// # Errors
    /// `Usage`, with the line, for what is no graph; `Limit` for more text than a graph can have.
    pub fn parse(text: &str) -> Result<Graph> {
        if text.len() > limits::MAX_CONFIG_BYTES {
            return Err(Error::limit(format!(
                "a flow of {} bytes; at most {} are read",
                text.len(),
                limits::MAX_CONFIG_BYTES
            )));
        }
        toml::from_str(text).map_err(|e| {
            let found = fault::find(text, e.message());
            let (span, why) = match found {
                Some((span, why)) => (Some(span), why),
                None => (e.span(), e.message().to_owned()),
            };
            let line = span.map(|span| {
                let before = text.get(..span.start).unwrap_or_default();
                before.matches('\n').count() + 1
            });
            let at = line.map_or(String::new(), |line| format!("line {line}: "));
            let why = why.trim().replace('\n', "; ");
            Error::usage(format!("this is no flow: {at}{why}"))
                .with_hint("see docs/flows.md for what a flow is made of")
        })
    }

    /// What of it names folders: where streams were recorded that it reads, and where those that it writes are recorded or spill.
    pub fn locations(&mut self) -> impl Iterator<Item = &mut String> {
        let read = self.read.values_mut().filter_map(|read| read.stream.as_mut());
        let read = read.filter(|name| is_location(name));
        let write = self.write.values_mut().flat_map(|to| {
            // Of what spills somebody else may choose one, of those that may be chosen.
            let spill = to.spill.as_mut().filter(|name| *name != AUTO);
            [to.persist.as_mut(), spill]
        });
        read.chain(write.flatten())
    }

    /// As TOML, which [`Graph::parse`] reads.
    ///
    /// # Errors
    /// `Internal` if it cannot be written.
    pub fn to_toml(&self) -> Result<String> {
        toml::to_string(self).map_err(|e| Error::internal(format!("cannot write a flow: {e}")))
    }
}
