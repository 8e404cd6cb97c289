//! Steps of streams that were recorded, as data: a column for each variable, of all elements of all steps.
//!
//! `FOLDER::T,U` names variables of the stream that was recorded in a folder, and the folder alone all of them. What is read of them comes
//! by a reader of the stream, which looks at the checksums.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use stead_core::{Bounds, DType, Error, Kind, Result, Value};
use stead_format::{Dataset, OpenOptions};
use stead_store::Source;
use stead_stream::{Read, Reader, Step};

/// What stands between a folder and the variables.
const OF: &str = "::";
/// Steps of a reader that are held for those who read on.
const HELD: usize = 8;

/// A folder that steps were recorded in, and which of the variables are meant.
struct Named {
    /// As readers of streams take it: a name with a `/` in it.
    folder: String,
    /// All of them if none is named.
    variables: Vec<String>,
}

/// What an input names, if it is of a recording.
fn named(input: &str) -> Option<Named> {
    let recorded = |folder: &str| {
        let location = if folder.contains('/') { folder.to_owned() } else { format!("./{folder}") };
        stead_stream::is_recorded(&location, &Read::default().spaces).then_some(location)
    };
    if std::fs::metadata(input).is_ok() {
        return Some(Named { folder: recorded(input)?, variables: Vec::new() });
    }
    let (folder, variables) = input.split_once(OF)?;
    let variables = variables.split(',').map(str::to_owned).collect();
    Some(Named { folder: recorded(folder)?, variables })
}

/// Opens files, or a recording if the inputs are one.
///
/// # Errors
/// As [`Dataset::open`], and those of readers; `Usage` for recordings among others, and for variables that are not of one shape.
pub fn open(inputs: &[String], options: &OpenOptions) -> Result<Dataset> {
    match (inputs, options.format) {
        // Who says what is in the files means the files.
        (_, Some(_)) => Dataset::open(inputs, options),
        ([one], None) => match named(one) {
            Some(it) => of(&it),
            None => Dataset::open(inputs, options),
        },
        _ => {
            if let Some(input) = recording(inputs) {
                let message =
                    format!("'{input}' is a recorded stream, and others are named beside it");
                return Err(Error::usage(message)
                    .with_hint("name it alone; several of its variables are FOLDER::T,U"));
            }
            Dataset::open(inputs, options)
        }
    }
}

/// The first of the inputs that is of a recording.
pub fn recording(inputs: &[String]) -> Option<&String> {
    inputs.iter().find(|input| named(input).is_some())
}

/// A dataset of variables.
fn of(it: &Named) -> Result<Dataset> {
    let read = Read { threads: 1, timeout: Duration::ZERO, ..Read::default() };
    let reader = Arc::new(Reader::open(&it.folder, &read)?);
    let numbers = reader.steps()?;
    let at = |e: Error| if e.place().path.is_none() { e.at_path(&it.folder) } else { e };
    let Some(first) = numbers.first() else {
        return Err(Error::new(Kind::Format, "no step is recorded here yet").at_path(&it.folder));
    };
    let first = reader.at(*first)?;
    let wanted: Vec<String> = match it.variables.is_empty() {
        true => first.variables().map(|v| v.name.clone()).collect(),
        false => it.variables.clone(),
    };
    let held = Arc::new(Steps { reader, held: Mutex::default() });
    let mut columns: Vec<(String, DType, Arc<dyn Source>)> = Vec::with_capacity(wanted.len());
    let mut shapes: Option<Vec<Vec<u64>>> = None;
    for name in &wanted {
        let variable = Variable::of(it, &held, &numbers, name).map_err(at)?;
        let theirs: Vec<Vec<u64>> = variable.parts.iter().map(|part| part.shape.clone()).collect();
        let other = wanted.first().map_or("", String::as_str);
        if *shapes.get_or_insert_with(|| theirs.clone()) != theirs {
            let all: Vec<&str> = first.variables().map(|v| v.name.as_str()).take(20).collect();
            let message = format!(
                "variable '{name}' has another shape than '{other}', and columns are equally long"
            );
            let hint = format!(
                "name those of one shape: {}{OF}{other}; there are {}",
                it.folder,
                all.join(", ")
            );
            return Err(at(Error::usage(message).with_hint(hint)));
        }
        columns.push((name.clone(), variable.dtype, Arc::new(variable)));
    }
    let shape = |shape: &[u64]| Value::List(shape.iter().map(|n| Value::Int(*n)).collect());
    let details = vec![
        ("steps".to_owned(), Value::Int(numbers.len() as u64)),
        (
            "shape".to_owned(),
            shapes.as_ref().and_then(|all| all.first()).map_or(Value::Null, |s| shape(s)),
        ),
    ];
    Dataset::columns("recorded", columns, details).map_err(at)
}

/// Steps of a recording that are held for those who read them, the last ones.
#[derive(Debug)]
struct Steps {
    reader: Arc<Reader>,
    held: Mutex<Vec<Step>>,
}

impl Steps {
    fn get(&self, number: u64) -> Result<Step> {
        let of_it = |step: &&Step| step.number() == number;
        let lock = || self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(step) = lock().iter().find(of_it) {
            return Ok(step.clone());
        }
        let step = self.reader.at(number)?;
        let mut held = lock();
        if held.len() >= HELD {
            held.remove(0);
        }
        held.push(step.clone());
        Ok(step)
    }
}

/// A step of a variable.
#[derive(Debug)]
struct Part {
    step: u64,
    shape: Vec<u64>,
    /// Where its bytes begin among those of all steps.
    from: u64,
}

/// The elements of a variable, in C order and step by step.
#[derive(Debug)]
struct Variable {
    name: String,
    /// How users name it.
    path: PathBuf,
    folder: PathBuf,
    dtype: DType,
    parts: Vec<Part>,
    len: u64,
    steps: Arc<Steps>,
}

impl Variable {
    fn of(it: &Named, steps: &Arc<Steps>, numbers: &[u64], name: &str) -> Result<Variable> {
        let (mut parts, mut len, mut known) = (Vec::with_capacity(numbers.len()), 0u64, None);
        let mut none = None;
        for number in numbers {
            let step = steps.get(*number)?;
            // A step in which nobody has put it has none of its elements.
            let definition = match step.variable(name) {
                Ok(definition) if step.has(name) => definition,
                Ok(_) => continue,
                Err(e) => {
                    none = Some(e);
                    continue;
                }
            };
            let dtype = *known.get_or_insert(definition.dtype);
            if definition.dtype != dtype {
                let message = format!(
                    "variable '{name}' is {} in step {number}, and {dtype} before",
                    definition.dtype
                );
                return Err(Error::usage(message));
            }
            let elements = definition.shape.iter().try_fold(1u64, |n, side| n.checked_mul(*side));
            let bytes = elements.and_then(|n| n.checked_mul(dtype.size() as u64));
            parts.push(Part { step: *number, shape: definition.shape.clone(), from: len });
            len = bytes.and_then(|bytes| len.checked_add(bytes)).ok_or_else(|| {
                Error::limit(format!("variable '{name}' has more bytes than 64 bits can count"))
            })?;
        }
        if parts.is_empty() {
            let message = format!("nobody has put variable '{name}' into any step");
            return Err(none.unwrap_or_else(|| Error::new(Kind::NotFound, message)));
        }
        Ok(Variable {
            name: name.to_owned(),
            path: PathBuf::from(format!("{}{OF}{name}", it.folder)),
            folder: PathBuf::from(&it.folder),
            dtype: known.unwrap_or(DType::F64),
            parts,
            len,
            steps: steps.clone(),
        })
    }

    /// Fills `to` with elements of a step, from one on.
    fn elements(&self, step: &Step, shape: &[u64], first: u64, to: &mut [u8]) -> Result<()> {
        let mut rest = to;
        let size = self.dtype.size();
        for bounds in runs(shape, first, (rest.len() / size) as u64)? {
            let bytes = bounds.elements().saturating_mul(size as u64);
            let short = || Error::internal("boxes of a variable do not fit");
            let (mine, others) = rest.split_at_mut_checked(bytes as usize).ok_or_else(short)?;
            step.get_into(&self.name, &bounds, mine)?;
            rest = others;
        }
        Ok(())
    }
}

/// Boxes that have `n` elements from `first` on, one after the other, in an array of this shape in C order.
fn runs(shape: &[u64], first: u64, n: u64) -> Result<Vec<Bounds>> {
    let (mut all, mut at, end) = (Vec::new(), first, first.saturating_add(n));
    while at < end {
        // As many dimensions from the last one on as all of which is wanted, and then some of the next.
        let (mut inner, mut d) = (1u64, shape.len());
        while let Some(side) = d.checked_sub(1).and_then(|d| shape.get(d)) {
            let whole = inner.saturating_mul(*side);
            if whole == 0 || at % whole != 0 || end - at < whole || d == 1 {
                break;
            }
            (inner, d) = (whole, d - 1);
        }
        let (mut start, mut count) = (vec![0; shape.len()], shape.to_vec());
        let mut rest = at / inner.max(1);
        let mut many = 1;
        for (k, side) in shape.iter().enumerate().take(d).rev() {
            let within = rest % side.max(&1);
            let places = start.get_mut(k).zip(count.get_mut(k));
            if let Some((start, count)) = places {
                *start = within;
                *count = 1;
                if k + 1 == d {
                    many = (side - within).min((end - at) / inner.max(1)).max(1);
                    *count = many;
                }
            }
            rest /= side.max(&1);
        }
        all.push(Bounds::new(&start, &count)?);
        at = at.saturating_add(many.saturating_mul(inner).max(1));
    }
    Ok(all)
}

impl Source for Variable {
    fn path(&self) -> &Path {
        &self.path
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> Result<()> {
        let size = self.dtype.size() as u64;
        let past = || Error::internal("elements are read that a variable does not have");
        let end =
            offset.checked_add(buf.len() as u64).filter(|end| *end <= self.len).ok_or_else(past)?;
        if !offset.is_multiple_of(size) || !end.is_multiple_of(size) {
            let (from, to) = (offset - offset % size, end.next_multiple_of(size));
            let mut whole = vec![0; (to - from) as usize];
            self.read_at(from, &mut whole)?;
            let skip = (offset - from) as usize;
            let wanted = whole.get(skip..skip + buf.len()).ok_or_else(past)?;
            buf.copy_from_slice(wanted);
            return Ok(());
        }
        let mut i = self.parts.partition_point(|part| part.from <= offset).saturating_sub(1);
        let (mut rest, mut at) = (buf, offset);
        while !rest.is_empty() {
            let part = self.parts.get(i).ok_or_else(past)?;
            i += 1;
            let until = self.parts.get(i).map_or(self.len, |next| next.from);
            let bytes = (until - at).min(rest.len() as u64) as usize;
            let (mine, others) = rest.split_at_mut_checked(bytes).ok_or_else(past)?;
            rest = others;
            if mine.is_empty() {
                continue;
            }
            let step = self.steps.get(part.step)?;
            self.elements(&step, &part.shape, (at - part.from) / size, mine)
                .map_err(|e| if e.place().path.is_none() { e.at_path(&self.path) } else { e })?;
            at = until;
        }
        Ok(())
    }

    fn files(&self) -> Vec<PathBuf> {
        // None of the folder is to be written to.
        let names = std::fs::read_dir(&self.folder).into_iter().flatten().flatten();
        names.map(|entry| entry.path()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn runs_are_the_elements_in_their_order(
            shape in prop::collection::vec(1u64..5, 0..5), cut in any::<(prop::sample::Index, prop::sample::Index)>(),
        ) {
            let all: u64 = shape.iter().product();
            let (a, b) = (cut.0.index(all as usize + 1) as u64, cut.1.index(all as usize + 1) as u64);
            let (first, end) = (a.min(b), a.max(b));
            let mut had = Vec::new();
            for bounds in runs(&shape, first, end - first).unwrap() {
                // In C order, as arrays are copied.
                let mut places = vec![0u64];
                for (side, n) in bounds.sides().zip(&shape) {
                    places = places.iter().flat_map(|at| side.clone().map(move |i| at * n + i)).collect();
                }
                had.extend(places);
            }
            prop_assert_eq!(had, (first..end).collect::<Vec<_>>());
        }
    }
}
