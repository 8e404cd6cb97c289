//! What a flow is, for people and programs that look at it.

use crate::check::{Checked, Rate};
use serde::Serialize;

/// What there is to know of a flow before it runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Description {
    /// Its name: that of the group by which it reads.
    pub name: String,
    /// Streams that are read.
    pub reads: Vec<ReadDescription>,
    /// Operators, each after those that it needs.
    pub nodes: Vec<NodeDescription>,
    /// Streams that are written.
    pub writes: Vec<WriteDescription>,
}

/// A stream that is read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReadDescription {
    /// Its name in references.
    pub name: String,
    /// Its own name.
    pub stream: String,
    /// The variables that are used.
    pub variables: Vec<String>,
}

/// An operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NodeDescription {
    /// Its name.
    pub name: String,
    /// What it does.
    pub does: String,
    /// What it works on.
    pub of: Vec<String>,
    /// When it has something: `each step`, or how often.
    pub when: String,
    /// What it makes, if that is known: type, shape and names of dimensions, of each part.
    pub makes: Vec<Option<String>>,
}

/// A stream that is written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WriteDescription {
    /// Its name.
    pub stream: String,
    /// Each of its variables, and the value that it is.
    pub variables: Vec<(String, String)>,
    /// When it has a step.
    pub when: String,
}

impl Checked {
    /// What there is to know of it.
    pub fn describe(&self) -> Description {
        let slot = |i: usize| self.slots.get(i).map_or_else(String::new, |s| s.name.clone());
        let rate = |i: usize| self.slots.get(i).map_or(Rate { first: 0, every: 1 }, |s| s.rate);
        let used = |read: usize| {
            let of = self.slots.iter().filter_map(|s| s.leaf.as_ref());
            of.filter(|(r, _)| *r == read).map(|(_, name)| name.clone()).collect()
        };
        let reads = self.reads.iter().enumerate().map(|(i, read)| ReadDescription {
            name: read.alias.clone(),
            stream: read.stream.clone(),
            variables: used(i),
        });
        let nodes = self.nodes.iter().map(|node| NodeDescription {
            name: node.name.clone(),
            does: node.op.describe(),
            of: node.inputs.iter().map(|i| slot(*i)).collect(),
            when: rate(node.first).describe(),
            makes: (node.first..node.first + node.makes)
                .map(|i| self.forms.get(i).and_then(Option::as_ref).map(|form| form.describe()))
                .collect(),
        });
        let writes = self.writes.iter().map(|write| WriteDescription {
            stream: write.stream.clone(),
            variables: write.variables.iter().map(|(name, i)| (name.clone(), slot(*i))).collect(),
            when: write.rate.describe(),
        });
        Description {
            name: self.name.clone(),
            reads: reads.collect(),
            nodes: nodes.collect(),
            writes: writes.collect(),
        }
    }
}
