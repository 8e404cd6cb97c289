//! Slices: the same bytes with other strides.

use crate::form::{Form, Taken};
use crate::graph::Slice;
use crate::value::{Tile, Value};
use stead_core::{Bounds, Result};

/// What comes out.
pub fn form(of: &Form, slice: &Slice) -> Result<Form> {
    let taken = of.taken(slice)?;
    let gone: Vec<usize> =
        taken.iter().enumerate().filter(|(_, t)| t.gone).map(|(d, _)| d).collect();
    let mut form = of.without(&gone);
    form.shape = taken.iter().filter(|t| !t.gone).map(|t| t.count).collect();
    Ok(form)
}

/// The indices of each dimension of what is sliced that a box of the slice has.
fn indices<'t>(
    taken: &'t [Taken],
    bounds: &'t Bounds,
) -> impl Iterator<Item = (&'t Taken, u64, u64)> {
    let mut sides = bounds.sides();
    taken.iter().map(move |t| match t.gone {
        true => (t, 0, 1),
        false => sides.next().map_or((t, 0, 0), |side| (t, side.start, side.end)),
    })
}

/// The box that has all that a box of the slice needs.
pub fn needs(taken: &[Taken], wanted: &Bounds) -> Result<Bounds> {
    let side = |(t, from, to): (&Taken, u64, u64)| match to.checked_sub(from + 1) {
        None => (t.start, 0),
        Some(more) => (t.start + from * t.step, more * t.step + 1),
    };
    let (start, count): (Vec<u64>, Vec<u64>) = indices(taken, wanted).map(side).unzip();
    Bounds::new(start, count)
}

/// A box of the slice.
pub fn slice(value: &Value, taken: &[Taken], wanted: &Bounds) -> Result<Value> {
    let mut tiles = Vec::with_capacity(value.tiles.len());
    for tile in &value.tiles {
        tiles.extend(of_tile(tile, taken, wanted)?);
    }
    Ok(Value { dtype: value.dtype, bounds: wanted.clone(), tiles })
}

/// What a tile has of it.
fn of_tile(tile: &Tile, taken: &[Taken], wanted: &Bounds) -> Result<Option<Tile>> {
    let (mut start, mut count, mut corner) = (Vec::new(), Vec::new(), Vec::new());
    let (mut was, mut steps) = (Vec::new(), Vec::new());
    for (d, ((t, from, to), side)) in indices(taken, wanted).zip(tile.bounds.sides()).enumerate() {
        // The first index at or after the ends of the tile.
        let at = |end: u64| end.saturating_sub(t.start).div_ceil(t.step);
        let (low, high) = (at(side.start).max(from), at(side.end).min(to));
        if low >= high {
            return Ok(None);
        }
        corner.push(t.start + low * t.step);
        if !t.gone {
            start.push(low);
            count.push(high - low);
            was.push(Some(d));
            steps.push(usize::try_from(t.step).unwrap_or(usize::MAX));
        }
    }
    let first = Bounds::new(&corner, vec![1; corner.len()])?;
    let bounds = Bounds::new(start, count)?;
    Ok(tile.within(&first).map(|tile| tile.seen_as(bounds, &was, &steps)))
}
