//! What streams have now, before a flow reads them: its types and shapes are checked against that.

use crate::check::{Checked, retold};
use crate::form::Form;
use crate::op;
use stead_core::layout::Spaces;
use stead_core::{Error, Kind, Result};
use stead_stream::{Definition, Description, Progress, Start, Survey};

/// Variables of a stream that messages name.
const NAMED: usize = 12;

/// An error about a variable that is another one than the flow says.
pub fn unlike(is: &Form, said: &Form) -> Error {
    Error::usage(format!("it is {}, and the flow says {}", is.describe(), said.describe()))
}

/// True if a variable is what a flow says of it.
pub fn is_as_said(is: &Form, said: &Form) -> bool {
    (is.dtype, &is.shape) == (said.dtype, &said.shape)
        && (said.dims.is_empty() || said.dims == is.dims)
}

/// What there is to be seen of a stream.
struct Seen {
    variables: Vec<Definition>,
    /// True if it has no others: nobody writes it on other nodes.
    is_all: bool,
}

impl Seen {
    fn of(told: Description) -> Seen {
        let is_all = told.all_writers == told.writers.len() as u64;
        Seen { variables: told.variables, is_all }
    }
}

/// What this node tells of a stream.
fn describe(stream: &str, spaces: &Spaces) -> Result<Description> {
    let here = Survey { spaces: spaces.clone(), ..Survey::default() };
    here.describe(stream).map(|told| told.first)
}

impl Checked {
    /// The same with what the streams that it reads have now: all types and shapes are known, and fit what the graph says. Streams are those of
    /// this node, or recorded; of each the last complete step counts.
    ///
    /// # Errors
    /// `NotFound` if a stream is not there, has no step yet, or not the variable; `Usage` for variables that are not what the flow says, and
    /// those that a node cannot work on. The message names the stream and the variable. Those of [`Survey::describe`].
    pub fn live(&self, spaces: &Spaces) -> Result<Checked> {
        let mut told = Vec::with_capacity(self.reads.len());
        for read in &self.reads {
            let all = describe(&read.stream, spaces).map_err(|e| self.not_here(&read.stream, e))?;
            if all.variables.is_empty() {
                let message =
                    format!("stream '{}' has no step yet that can be looked at", read.stream);
                return Err(Error::new(Kind::NotFound, message)
                    .with_hint("check it again when its writers have ended a step"));
            }
            told.push(Some(Seen::of(all)));
        }
        self.with(&told)
    }

    /// Checks what there is to read already: what nobody has begun, or cannot be looked at, is seen when it comes. Streams in memory count
    /// if they are `here`.
    ///
    /// # Errors
    /// Those of [`Checked::live`] about variables.
    pub(crate) fn ahead(&self, spaces: &Spaces, is_here: bool) -> Result<()> {
        let each = self.reads.iter().map(|read| {
            let is_recorded = read.stream.contains('/');
            // Steps that come may have what those that are there have not.
            if read.start == Start::Next || !(is_recorded || is_here) {
                return None;
            }
            // What has ended in memory is the past: its readers may have had it, and the next stream of the name is another one.
            let goes_on = |told: &Description| is_recorded || told.state == Progress::Live;
            let told = describe(&read.stream, spaces).ok().filter(goes_on)?;
            (!told.variables.is_empty()).then(|| Seen::of(told))
        });
        self.with(&each.collect::<Vec<_>>()).map(drop)
    }

    fn not_here(&self, stream: &str, e: Error) -> Error {
        if e.kind() != Kind::NotFound {
            return e;
        }
        let message =
            format!("there is no stream '{stream}' to check the flow '{}' with", self.name);
        Error::new(Kind::NotFound, message)
            .with_hint("begin its writers, on this node and as this user, or check without it")
    }

    /// The same with these variables of streams, as far as they are known.
    fn with(&self, told: &[Option<Seen>]) -> Result<Checked> {
        let mut forms = self.forms.clone();
        for (slot, form) in self.slots.iter().zip(&mut forms) {
            let Some((source, name)) = &slot.leaf else { continue };
            let Some(Some(seen)) = told.get(*source) else { continue };
            let is = seen.variables.iter().find(|definition| definition.name == *name);
            let is = match is {
                Some(is) => Form::of(is),
                None if seen.is_all => return Err(self.missing(*source, name, &seen.variables)),
                None => continue,
            };
            if let Some(said) = form.as_ref().filter(|said| !is_as_said(&is, said)) {
                return Err(self.in_variable(*source, name, &unlike(&is, said)));
            }
            *form = Some(is);
        }
        for node in &self.nodes {
            let of: Option<Vec<&Form>> =
                node.inputs.iter().map(|i| forms.get(*i).and_then(Option::as_ref)).collect();
            let Some(of) = of else { continue };
            let made = op::forms(&node.op, &of).map_err(|e| {
                let e = node.error(e);
                retold(&e, format!("{}; {}", e.message(), self.origins(&node.inputs)))
            })?;
            let places = forms.iter_mut().skip(node.first).zip(made);
            places.for_each(|(place, made)| *place = Some(made));
        }
        Ok(Checked { forms, ..self.clone() })
    }

    /// Which node, or stream that is written, needs a variable first.
    fn needed_by(&self, reference: &str) -> String {
        let slot = self.slots.iter().position(|slot| slot.name == reference);
        let of = |inputs: &[usize]| slot.is_some_and(|slot| inputs.contains(&slot));
        if let Some(node) = self.nodes.iter().find(|node| of(&node.inputs)) {
            return format!("node '{}' ({})", node.name, node.op.describe());
        }
        let has = |variables: &[(String, usize)]| variables.iter().any(|(_, i)| Some(*i) == slot);
        let write = self.writes.iter().find(|write| has(&write.variables));
        write.map_or_else(|| "the flow".to_owned(), |write| format!("stream '{}'", write.stream))
    }

    fn missing(&self, source: usize, name: &str, variables: &[Definition]) -> Error {
        let (alias, stream) =
            self.reads.get(source).map_or(("", ""), |r| (r.alias.as_str(), r.stream.as_str()));
        let there: Vec<&str> = variables.iter().take(NAMED).map(|d| d.name.as_str()).collect();
        let message = format!(
            "stream '{stream}' has no variable '{name}', which {} needs: there are {}",
            self.needed_by(&format!("{alias}.{name}")),
            there.join(", ")
        );
        Error::new(Kind::NotFound, message)
    }

    fn in_variable(&self, source: usize, name: &str, e: &Error) -> Error {
        let stream = self.reads.get(source).map_or("", |read| read.stream.as_str());
        retold(e, format!("variable '{name}' of stream '{stream}': {}", e.message()))
    }

    /// The variables that values are made of, in words.
    fn origins(&self, of: &[usize]) -> String {
        let (mut seen, mut left, mut found) =
            (vec![false; self.slots.len()], of.to_vec(), Vec::new());
        while let Some(slot) = left.pop() {
            match seen.get_mut(slot) {
                Some(seen @ false) => *seen = true,
                _ => continue,
            }
            let leaf = self.slots.get(slot).and_then(|slot| slot.leaf.as_ref());
            if let Some((source, name)) = leaf {
                let stream = self.reads.get(*source).map_or("", |read| read.stream.as_str());
                found.push(format!("variable '{name}' of stream '{stream}'"));
            }
            let makes =
                |node: &&crate::check::Node| (node.first..node.first + node.makes).contains(&slot);
            left.extend(self.nodes.iter().find(makes).into_iter().flat_map(|node| &node.inputs));
        }
        found.sort_unstable();
        let dots = if found.len() > NAMED { " and others" } else { "" };
        found.truncate(NAMED);
        format!("it comes of {}{dots}", found.join(", "))
    }
}
