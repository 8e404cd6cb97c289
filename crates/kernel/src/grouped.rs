//! Any kernel, once for every group of rows with the same values in the columns of `--by`.
//!
//! Groups are found by value: `1` and `1.0` in a numeric column are one group, all NaN are one group, 0 and -0 are one
//! group, and missing values are the group `NA` (with the text `NA` itself, if that was not declared missing). The
//! groups of a block's rows go to the inner kernel's states in one call ([`crate::Many`]), so that a million of them
//! cost a few cache misses a row. Kernels of several rounds go on in `later.rs`, until every group is done.
//!
//! Cost: one look-up a row where one column of numbers is asked for, one hash of each column a row and one look-up of
//! each group of a block otherwise, and a state for each group; at most [`limits::MAX_GROUPS`] groups.

mod later;

use crate::groups::{Column, Index, Key, Part, key_of, number};
use crate::{AnyKernel, AnyState, Many, Sink, Step};
use later::{Later, Stage};
use std::path::PathBuf;
use std::sync::Arc;
use stead_core::{Block, Error, Needs, Result, Schema, Value, limits};

/// A kernel that runs another one for each group.
///
/// The answer is a map from the group's text to the answer of the inner kernel, in the order of the
/// groups: numbers ascending, then NaN, texts bytewise, missing last. Of several columns, the texts are
/// joined with commas, a value that has a comma, a quote or a line end in it being quoted as in CSV. Bytes that are
/// not UTF-8 are written `\xNN`. Where the text itself has a backslash, an `x` and two hexadecimal digits, that backslash is
/// written `\x5C`, so that different texts have different names. No rows, no groups: an empty map.
pub struct Grouped {
    kernel: Arc<dyn AnyKernel>,
    by: Vec<Column>,
}

/// State: one of the inner kernel for each group.
struct States {
    index: Index,
    many: Box<dyn Many>,
    /// The group of each row of a block.
    ids: Vec<u32>,
}

impl Grouped {
    /// Runs `inner` for each group of the columns `by` (schema indices).
    ///
    /// Errors: of kind `Usage` if `by` is empty, or if `inner` writes a file or works on bricks.
    pub fn new(inner: Arc<dyn AnyKernel>, by: &[usize], schema: &Schema) -> Result<Grouped> {
        if inner.output().is_some() {
            return Err(Error::usage("a kernel that writes a file cannot run by groups")
                .with_hint("select the rows of one group with --where"));
        }
        if inner.needs().brick.is_some() {
            return Err(Error::usage("a kernel that renders an array cannot run by groups"));
        }
        let by = by.iter().map(|i| match schema.columns.get(*i) {
            Some(c) if c.kind.is_number() => Ok(Column::Number(*i)),
            Some(_) => Ok(Column::Text(*i)),
            None => Err(Error::usage(format!("no column {i} to group by"))),
        });
        let by = by.collect::<Result<Vec<_>>>()?;
        if by.is_empty() {
            return Err(Error::usage("grouping needs at least one column"));
        }
        if inner.clone().many().is_none() {
            return Err(Error::usage("this kernel cannot run by groups"));
        }
        Ok(Grouped { kernel: inner, by })
    }

    /// As [`Grouped::new`], ready to run.
    pub fn wrap(
        inner: Arc<dyn AnyKernel>,
        by: Vec<usize>,
        schema: &Schema,
    ) -> Result<Arc<dyn AnyKernel>> {
        Ok(Arc::new(Grouped::new(inner, &by, schema)?))
    }

    fn states(&self) -> Option<States> {
        let many = self.kernel.clone().many()?;
        Some(States { index: Index::new(&self.by), many, ids: Vec::new() })
    }
}

impl AnyKernel for Grouped {
    fn needs(&self) -> Needs {
        needs_of(&self.by, std::iter::once(&self.kernel))
    }

    fn init(&self) -> AnyState {
        // That there are states was looked at when the kernel was made.
        Box::new(self.states())
    }

    fn update(&self, state: &mut AnyState, block: &Block<'_>) -> Result<()> {
        if block.rows == 0 {
            return Ok(());
        }
        let States { index, many, ids } = own(state)?;
        index.rows(&self.by, block, ids)?;
        many.grow(index.len());
        many.update(ids, block)
    }

    fn merge(&self, state: &mut AnyState, other: AnyState) -> Result<()> {
        let groups = own(state)?;
        let other = taken(other)?;
        if groups.index.len() < other.index.len() && !self.kernel.needs().order {
            // The fewer go to the more.
            let fewer = std::mem::replace(groups, other);
            return join(groups, fewer);
        }
        join(groups, other)
    }

    fn finish(&self, state: AnyState) -> Result<Step> {
        let States { index, mut many, .. } = taken(state)?;
        let order = index.sorted();
        let mut stages = Vec::with_capacity(order.len());
        many.finish(&order, &mut |step| {
            stages.push(Stage::of(step)?);
            Ok(())
        })?;
        drop(many);
        let key = |id: &u32| index.key(*id as usize);
        if stages.iter().any(|s| matches!(s, Stage::Running(_))) {
            let keyed = order.iter().zip(stages);
            let stages = keyed.map(|(id, s)| Ok((key_of(&key(id)?).into(), s)));
            let later = Later::new(stages.collect::<Result<_>>()?, self.by.clone());
            return Ok(Step::Next(Arc::new(later)));
        }
        let mut answer = Vec::with_capacity(order.len());
        for (id, stage) in order.iter().zip(stages) {
            if let Stage::Done(v) = stage {
                answer.push((show(&key(id)?), v));
            }
        }
        Ok(Step::Done(Value::Map(answer)))
    }

    fn more_passes(&self) -> bool {
        self.kernel.more_passes()
    }

    fn state_bytes(&self, state: &AnyState) -> usize {
        match state.downcast_ref::<Option<States>>() {
            Some(Some(s)) => s.index.bytes() + s.many.bytes(),
            _ => 0,
        }
    }

    fn encode(&self, state: &AnyState) -> Result<Vec<u8>> {
        let Some(Some(groups)) = state.downcast_ref::<Option<States>>() else {
            return Err(wrong());
        };
        let all = (0..groups.index.len())
            .map(|i| Ok((groups.index.key(i)?, groups.many.encode(i)?)))
            .collect::<Result<Vec<_>>>()?;
        encode_all(&all)
    }

    fn decode(&self, bytes: &[u8]) -> Result<AnyState> {
        let mut groups = self.states().ok_or_else(wrong)?;
        for (key, bytes) in decode_all(bytes, self.by.len())? {
            if !groups.index.insert(&key)?.1 {
                return Err(twice());
            }
            groups.many.decode(&bytes)?;
        }
        Ok(Box::new(Some(groups)))
    }

    fn output(&self) -> Option<PathBuf> {
        None
    }

    fn sink(&self) -> Option<Sink> {
        None
    }

    fn map(&self, _: &Block<'_>, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

fn join(groups: &mut States, other: States) -> Result<()> {
    let to = groups.index.absorb(&other.index)?;
    groups.many.grow(groups.index.len());
    groups.many.merge(other.many, &to)
}

fn own(state: &mut AnyState) -> Result<&mut States> {
    state.downcast_mut::<Option<States>>().and_then(Option::as_mut).ok_or_else(wrong)
}

fn taken(state: AnyState) -> Result<States> {
    state.downcast::<Option<States>>().ok().and_then(|s| *s).ok_or_else(wrong)
}

fn wrong() -> Error {
    Error::internal("a state was given to a grouped kernel that is none of its own")
}

/// What the kernels of groups need, and what finding the groups does.
fn needs_of<'k>(by: &[Column], kernels: impl Iterator<Item = &'k Arc<dyn AnyKernel>>) -> Needs {
    let mut needs = Needs::default();
    kernels.for_each(|k| needs.add(&k.needs()));
    // The bytes of a group are those of its records.
    needs.records |= needs.bytes;
    for c in by {
        needs.add(&match *c {
            Column::Number(i) => Needs { numbers: vec![i], ..Needs::default() },
            Column::Text(i) => Needs { texts: vec![i], ..Needs::default() },
        });
    }
    needs
}

/// Keys and states for other ranks.
fn encode_all(all: &Vec<(Key, Vec<u8>)>) -> Result<Vec<u8>> {
    postcard::to_stdvec(all)
        .map_err(|e| Error::internal(format!("cannot encode the states of groups: {e}")))
}

/// Keys of `width` columns, and states, from another rank.
fn decode_all(bytes: &[u8], width: usize) -> Result<Vec<(Key, Vec<u8>)>> {
    let all: Vec<(Key, Vec<u8>)> = postcard::from_bytes(bytes).map_err(|e| {
        Error::format(format!("the states of groups from another rank are malformed: {e}"))
    })?;
    if all.len() > limits::MAX_GROUPS || all.iter().any(|(k, _)| k.len() != width) {
        return Err(Error::format("groups of other columns, or too many, from another rank"));
    }
    Ok(all)
}

fn twice() -> Error {
    Error::format("one group came twice from another rank")
}

/// The group's text.
fn show(key: &Key) -> String {
    let text = |p: &Part| match p {
        Part::Number(n) => show_number(number(*n)),
        Part::Text(t) => show_text(t),
        Part::Missing => "NA".into(),
    };
    if let [part] = key.as_slice() {
        return text(part);
    }
    let quote = |s: String| match s.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", s.replace('"', "\"\"")),
        false => s,
    };
    key.iter().map(|p| quote(text(p))).collect::<Vec<_>>().join(",")
}

/// The shortest text that reads back to the same double.
pub(crate) fn show_number(x: f64) -> String {
    // Integers of so few digits are all exact.
    const PLAIN: f64 = 1e15;
    match x {
        x if x.is_nan() => "NaN".into(),
        x if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        x if x.abs() < PLAIN && x.fract() == 0.0 && (x != 0.0 || x.is_sign_positive()) => {
            (x as i64).to_string()
        }
        x if x == 0.0 || (1e-5..1e16).contains(&x.abs()) => x.to_string(),
        x => format!("{x:e}"),
    }
}

/// The text, in which every `\xNN` stands for a byte, so that it can be read back: different bytes give different texts.
fn show_text(bytes: &[u8]) -> String {
    let mut s = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some((before, after)) = rest.split_once('\\') {
            s.push_str(before);
            s.push_str(if like_escape(after) { "\\x5C" } else { "\\" });
            rest = after;
        }
        s.push_str(rest);
        chunk.invalid().iter().for_each(|b| s.push_str(&format!("\\x{b:02X}")));
    }
    s
}

/// True if a backslash before `text` would look as if it began the escape of a byte.
fn like_escape(text: &str) -> bool {
    let digit = u8::is_ascii_hexdigit;
    matches!(text.as_bytes(), [b'x', high, low, ..] if digit(high) && digit(low))
}

#[cfg(test)]
mod tests;
