//! The kernel `normalize` of `stead run` over a value: what it writes to a file there is an array here, of which each rank makes its part.

use super::passes::{Asked, Elements, Look, columns};
use crate::form::Form;
use crate::value::{Value, fill};
use std::sync::Arc;
use stead_core::block::stretch_rows;
use stead_core::{Block, Bounds, Columns, DType, Error, Result};
use stead_kernel::{AnyKernel, Spec, normalize};

/// True of a kernel that makes one.
pub fn is_one(kernel: &str) -> bool {
    Spec::parse(kernel).is_ok_and(|spec| spec.name == normalize::INFO.name)
}

/// Whether it can be one, of what is known before there are values.
///
/// # Errors
/// `Usage`.
pub fn check(asked: &Asked<'_>) -> Result<()> {
    if asked.of.len() != 1 {
        return Err(Error::usage("it works on one value").with_hint("give it a node for each"));
    }
    if asked.member.is_some() || asked.shape.is_some() {
        return Err(Error::usage("what it makes has the shape of its value, and no 'member'")
            .with_hint("take 'member' and 'shape' away"));
    }
    if Spec::parse(asked.kernel)?.option("out").is_some() {
        return Err(Error::usage("what it makes is an array of the flow, and has no 'out'")
            .with_hint("write a stream that has it, with persist = \"FOLDER\" if it is to stay"));
    }
    Ok(())
}

/// What comes out: as many numbers, or of rows as many columns as are named, none of which is of the unit that the value has.
pub fn form(of: &Form, rows: bool, kernel: &dyn AnyKernel) -> Form {
    let mut form = of.with_dtype(DType::F64);
    form.attributes.clear();
    if let (true, [_, width]) = (rows, &mut form.shape[..]) {
        *width = kernel.needs().numbers.len() as u64;
    }
    form
}

/// Which box of the value is needed for a box of what comes out: whole rows, where there are some.
///
/// # Errors
/// `Internal` for boxes that are none.
pub fn needs(of: &Form, rows: bool, wanted: &Bounds) -> Result<Bounds> {
    match (rows, wanted.start(), wanted.count(), &of.shape[..]) {
        (true, [start, _], [count, _], [_, width]) => Bounds::new([*start, 0], [*count, *width]),
        _ => Ok(wanted.clone()),
    }
}

fn odd() -> Error {
    Error::internal("rows that were made do not fit those that they are made of")
}

/// A box of what the kernel makes of a value, which has what is [needed](needs).
///
/// # Errors
/// Those of the kernel; `Limit` if there is no memory for it.
pub fn value(
    kernel: &Arc<dyn AnyKernel>,
    look: Look,
    value: &Value,
    wanted: &Bounds,
    threads: usize,
) -> Result<Value> {
    fill(DType::F64, wanted, threads, &|part, to| match look {
        Look::Rows(width) => of_rows(kernel, value, width, part, to),
        _ => of_elements(kernel, &value.within(part), to),
    })
}

fn of_elements(kernel: &Arc<dyn AnyKernel>, value: &Value, to: &mut [u8]) -> Result<()> {
    let rows = usize::try_from(value.bounds.elements()).unwrap_or(usize::MAX);
    let mut numbers = Vec::new();
    Elements::new(value).take(rows, &mut numbers)?;
    let columns =
        Columns { number_ids: &[0], numbers: &numbers, stride: rows, ..Columns::default() };
    let mut made = Vec::new();
    kernel.map(&Block { rows, columns, ..Block::empty() }, &mut made)?;
    put(&made, to)
}

/// Some columns of some rows.
fn of_rows(
    kernel: &Arc<dyn AnyKernel>,
    value: &Value,
    width: usize,
    part: &Bounds,
    to: &mut [u8],
) -> Result<()> {
    let ids = kernel.needs().numbers;
    let mut sides = part.sides();
    let (rows, some) = sides.next().zip(sides.next()).ok_or_else(odd)?;
    let place = |n: u64| usize::try_from(n).unwrap_or(usize::MAX);
    let (skip, take) = (place(some.start), place(some.end - some.start));
    // A stretch of rows at a time, however few of its columns are wanted.
    let (mut from, mut to) = (rows.start, to);
    while from < rows.end && take > 0 {
        let end = rows.end.min(from.saturating_add(stretch_rows(width)));
        let count = place(end - from);
        let own = value.within(&Bounds::new([from, 0], [end - from, width as u64])?);
        let mut values = Vec::new();
        Elements::new(&own).take(count.saturating_mul(width), &mut values)?;
        let numbers = columns(&values, width, &ids);
        let columns =
            Columns { number_ids: &ids, numbers: &numbers, stride: count, ..Columns::default() };
        let mut made = Vec::new();
        kernel.map(&Block { rows: count, columns, ..Block::empty() }, &mut made)?;
        let row_bytes = ids.len() * 8;
        if row_bytes == 0 || made.len() != count * row_bytes {
            return Err(odd());
        }
        let (mine, rest) = to.split_at_mut_checked(count * take * 8).ok_or_else(odd)?;
        for (row, to) in made.chunks_exact(row_bytes).zip(mine.chunks_exact_mut(take * 8)) {
            let row = row.get(skip * 8..).and_then(|row| row.get(..take * 8));
            put(row.ok_or_else(odd)?, to)?;
        }
        (from, to) = (end, rest);
    }
    Ok(())
}

/// Doubles of a file as those of memory.
fn put(made: &[u8], to: &mut [u8]) -> Result<()> {
    if made.len() != to.len() {
        return Err(odd());
    }
    for (made, to) in made.as_chunks::<8>().0.iter().zip(to.as_chunks_mut::<8>().0) {
        *to = u64::from_le_bytes(*made).to_ne_bytes();
    }
    Ok(())
}
