//! Several arrays of one, and one of several: boxes that are moved, without a copy.

use super::hull;
use crate::form::{Form, Taken};
use crate::graph::Dim;
use crate::value::Value;
use stead_core::{Bounds, Error, Result};

/// Whether parts can be such.
pub fn check_split(parts: &[String], at: Option<&[u64]>) -> Result<()> {
    if parts.is_empty() {
        return Err(Error::usage("it needs the names of its parts"));
    }
    for (i, part) in parts.iter().enumerate() {
        if parts.iter().take(i).any(|before| before == part) {
            return Err(Error::usage(format!("two parts have the name '{part}'")));
        }
    }
    if let Some(at) = at {
        if at.len() + 1 != parts.len() {
            return Err(Error::usage(format!(
                "{} cuts make {} parts, and {} are named",
                at.len(),
                at.len() + 1,
                parts.len()
            )));
        }
        if !at.is_sorted() {
            return Err(Error::usage("its cuts are not in ascending order"));
        }
    }
    Ok(())
}

/// Where each part begins, and where the last one ends.
fn cuts(length: u64, parts: usize, at: Option<&[u64]>) -> Result<Vec<u64>> {
    if let Some(at) = at {
        if let Some(cut) = at.iter().find(|cut| **cut > length) {
            return Err(Error::usage(format!("a cut at {cut} of a dimension of length {length}")));
        }
        return Ok(std::iter::once(0).chain(at.iter().copied()).chain([length]).collect());
    }
    let parts = parts as u64;
    let (each, longer) = (length / parts.max(1), length % parts.max(1));
    Ok((0..=parts).map(|i| i * each + i.min(longer)).collect())
}

/// What a part is of the whole: all but a stretch of one dimension.
fn taken(form: &Form, place: usize, from: u64, to: u64) -> Vec<Taken> {
    let all = |(d, n): (usize, &u64)| match d == place {
        true => Taken { start: from, count: to.saturating_sub(from), step: 1, gone: false },
        false => Taken { start: 0, count: *n, step: 1, gone: false },
    };
    form.shape.iter().enumerate().map(all).collect()
}

/// The place of the dimension, and what each part takes.
fn parts(
    form: &Form,
    along: &Dim,
    count: usize,
    at: Option<&[u64]>,
) -> Result<(usize, Vec<Vec<Taken>>)> {
    let place = form.dim(along)?;
    let cuts = cuts(form.shape.get(place).copied().unwrap_or(0), count, at)?;
    let ends = cuts.iter().zip(cuts.iter().skip(1));
    Ok((place, ends.map(|(from, to)| taken(form, place, *from, *to)).collect()))
}

/// The forms of the parts.
pub fn split_forms(
    of: &Form,
    along: &Dim,
    names: &[String],
    at: Option<&[u64]>,
) -> Result<Vec<Form>> {
    let (_, parts) = parts(of, along, names.len(), at)?;
    let form =
        |taken: &Vec<Taken>| Form { shape: taken.iter().map(|t| t.count).collect(), ..of.clone() };
    Ok(parts.iter().map(form).collect())
}

/// The box that has what is wanted of all parts.
pub fn split_needs(
    of: &Form,
    along: &Dim,
    at: Option<&[u64]>,
    wanted: &[Option<Bounds>],
) -> Result<Option<Bounds>> {
    let (_, parts) = parts(of, along, wanted.len(), at)?;
    let mut all: Option<Bounds> = None;
    for (taken, wanted) in parts.iter().zip(wanted) {
        let Some(wanted) = wanted else { continue };
        let needed = super::select::needs(taken, wanted)?;
        all = Some(match all {
            Some(all) => hull(&all, &needed)?,
            None => needed,
        });
    }
    Ok(all)
}

/// The parts.
pub fn split(
    of: &Form,
    value: &Value,
    along: &Dim,
    at: Option<&[u64]>,
    wanted: &[Option<Bounds>],
) -> Result<Vec<Option<Value>>> {
    let (_, parts) = parts(of, along, wanted.len(), at)?;
    let one = |(taken, wanted): (&Vec<Taken>, &Option<Bounds>)| {
        wanted.as_ref().map(|wanted| value.slice(taken, wanted)).transpose()
    };
    parts.iter().zip(wanted).map(one).collect()
}

/// Whether it can be a merge.
pub fn check_merge(of: &[String], along: bool, new: Option<&str>) -> Result<()> {
    match (of.is_empty(), along, new) {
        (true, ..) => Err(Error::usage("it needs one value at least")),
        (_, true, None) => Ok(()),
        (_, false, Some(name)) if !name.is_empty() => Ok(()),
        _ => Err(Error::usage(
            "it needs one of 'along', a dimension, and 'new', the name of a new one",
        )),
    }
}

/// What comes out.
pub fn merge_form(of: &[&Form], along: Option<&Dim>, new: Option<&str>) -> Result<Form> {
    let Some(first) = of.first() else { return Err(Error::usage("it needs one value at least")) };
    if let Some(other) = of.iter().find(|form| form.dtype != first.dtype) {
        return Err(Error::usage(format!(
            "its values have different types: {} and {}",
            first.describe(),
            other.describe()
        ))
        .with_hint("cast them to one type before"));
    }
    let place = along.map(|dim| first.dim(dim)).transpose()?;
    let differs = |form: &&&Form| {
        form.shape.len() != first.shape.len()
            || form.dims != first.dims
            || form
                .shape
                .iter()
                .zip(&first.shape)
                .enumerate()
                .any(|(d, (a, b))| Some(d) != place && a != b)
    };
    if let Some(other) = of.iter().find(differs) {
        return Err(Error::usage(format!(
            "its values do not fit together: {} and {}",
            first.describe(),
            other.describe()
        ))
        .with_hint(
            "all dimensions but the one along which they are put together must be the same",
        ));
    }
    let mut form = (*first).clone();
    form.attributes.retain(|name, said| of.iter().all(|f| f.attributes.get(name) == Some(said)));
    let Some(place) = place else {
        return form.with_first(new.unwrap_or_default(), of.len() as u64);
    };
    let lengths = of.iter().filter_map(|form| form.shape.get(place));
    let total = lengths.copied().try_fold(0u64, u64::checked_add);
    if let Some(length) = form.shape.get_mut(place) {
        *length = total.ok_or_else(|| Error::usage("together they are too long"))?;
    }
    Ok(form)
}

/// Where each input begins along the dimension, and what of it lies in a box of the whole, as a box of the whole.
fn shares(of: &[&Form], place: Option<usize>, wanted: &Bounds) -> Vec<(u64, Option<Bounds>)> {
    let mut from = 0u64;
    let length = |form: &Form| match place {
        Some(place) => form.shape.get(place).copied().unwrap_or(0),
        None => 1,
    };
    of.iter()
        .map(|form| {
            let range = from..from.saturating_add(length(form));
            from = range.end;
            (range.start, wanted.slab(place.unwrap_or(0), range))
        })
        .collect()
}

/// A box of the whole as one of an input that begins at `from`.
fn back(bounds: &Bounds, place: Option<usize>, from: u64) -> Result<Bounds> {
    let mut start = bounds.start().to_vec();
    let mut count = bounds.count().to_vec();
    match place {
        Some(place) => {
            if let Some(start) = start.get_mut(place) {
                *start = start.saturating_sub(from);
            }
        }
        None => {
            start.drain(..1.min(start.len()));
            count.drain(..1.min(count.len()));
        }
    }
    Bounds::new(start, count)
}

/// Which box of each input is needed.
pub fn merge_needs(
    of: &[&Form],
    along: Option<&Dim>,
    wanted: &Bounds,
) -> Result<Vec<Option<Bounds>>> {
    let place = along.zip(of.first()).map(|(dim, form)| form.dim(dim)).transpose()?;
    let one = |(from, share): (u64, Option<Bounds>)| {
        share.map(|share| back(&share, place, from)).transpose()
    };
    shares(of, place, wanted).into_iter().map(one).collect()
}

/// Inputs side by side.
pub fn merge(
    of: &[&Form],
    inputs: &[Value],
    along: Option<&Dim>,
    wanted: &Bounds,
) -> Result<Value> {
    let place = along.zip(of.first()).map(|(dim, form)| form.dim(dim)).transpose()?;
    let dtype = of.first().map(|form| form.dtype);
    let dtype = dtype.ok_or_else(|| Error::internal("a merge of nothing"))?;
    let ndim = wanted.ndim();
    // A new dimension was none before.
    let was: Vec<Option<usize>> = match place {
        Some(_) => (0..ndim).map(Some).collect(),
        None => (0..ndim).map(|d| d.checked_sub(1)).collect(),
    };
    let mut tiles = Vec::new();
    for ((from, share), value) in shares(of, place, wanted).into_iter().zip(inputs) {
        let Some(share) = share else { continue };
        let own = back(&share, place, from)?;
        for tile in &value.tiles {
            let Some(part) = tile.within(&own) else { continue };
            let mut start = part.bounds.start().to_vec();
            let mut count = part.bounds.count().to_vec();
            match place {
                Some(place) => {
                    if let Some(start) = start.get_mut(place) {
                        *start = start.saturating_add(from);
                    }
                }
                None => {
                    start.insert(0, from);
                    count.insert(0, 1);
                }
            }
            let bounds = Bounds::new(start, count)?;
            tiles.push(part.seen_as(bounds, &was, &vec![1; ndim]));
        }
    }
    Ok(Value { dtype, bounds: wanted.clone(), tiles })
}
