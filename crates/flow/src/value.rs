//! Values: boxes of arrays that lie where somebody put them, or that were made here.
//!
//! A value is made of tiles, each of which is a box within it and lies somewhere with some strides: the blocks of several writers are one
//! value without a copy, and a slice is the same bytes with other strides. Operators see runs of elements, tile by tile.

use crate::op::select;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::thread;
use stead_core::{Bounds, DType, Error, Result};
use stead_stream::{Array, gather};

/// Elements of a part that one thread works on at a time.
const PIECE: u64 = 1 << 16;
/// Elements for which another thread is worth it.
const SHARE: u64 = 1 << 18;

/// Where bytes are.
#[derive(Debug, Clone)]
enum Held {
    /// In the memory of a stream.
    There(Array),
    /// Made here.
    Own(Arc<Vec<u8>>),
}

/// A box of a value that lies somewhere.
#[derive(Debug, Clone)]
pub struct Tile {
    pub bounds: Bounds,
    /// Where its first element is among the bytes.
    offset: usize,
    /// Bytes from one element to the next, for each dimension.
    strides: Vec<usize>,
    held: Held,
}

/// A box of a whole value, covered by tiles that have nothing in common.
#[derive(Debug, Clone)]
pub struct Value {
    pub dtype: DType,
    pub bounds: Bounds,
    pub tiles: Vec<Tile>,
}

/// Elements in a row: `len` of them, `stride` bytes from one to the next, and where they are in an array of another layout.
#[derive(Debug, Clone, Copy)]
pub struct Run<'v> {
    pub bytes: &'v [u8],
    pub stride: usize,
    pub len: usize,
    /// Where the first one is in the other array, in elements, and from one to the next.
    pub at: usize,
    pub step: usize,
}

/// How many bytes a box has.
///
/// # Errors
/// `Limit` if no memory can have them.
pub fn bytes_of(bounds: &Bounds, dtype: DType) -> Result<usize> {
    let bytes = usize::try_from(bounds.elements()).ok().and_then(|n| n.checked_mul(dtype.size()));
    bytes
        .filter(|b| isize::try_from(*b).is_ok())
        .ok_or_else(|| Error::limit(format!("box {bounds} is more than memory can have")))
}

/// Zeros, if there is memory for them.
///
/// # Errors
/// `Limit`.
pub fn zeros(bytes: usize) -> Result<Vec<u8>> {
    Vec::<u8>::new()
        .try_reserve_exact(bytes)
        .map_err(|_| Error::limit(format!("no memory for {bytes} bytes")))?;
    Ok(vec![0; bytes])
}

/// Where a box begins in a layout that begins at `from`.
fn along(from: &[u64], to: &[u64], strides: &[usize]) -> usize {
    from.iter().zip(to).zip(strides).fold(0, |sum, ((from, to), stride)| {
        let steps = usize::try_from(to.saturating_sub(*from)).unwrap_or(usize::MAX);
        sum.saturating_add(steps.saturating_mul(*stride))
    })
}

impl Tile {
    /// An array of a stream.
    pub fn there(array: Array) -> Tile {
        let (bounds, strides) = (array.bounds.clone(), array.strides.clone());
        Tile { bounds, offset: 0, strides, held: Held::There(array) }
    }

    /// An array in C order that was made here.
    pub fn own(bounds: Bounds, element: usize, bytes: Arc<Vec<u8>>) -> Tile {
        let strides = bounds.strides(element);
        Tile { bounds, offset: 0, strides, held: Held::Own(bytes) }
    }

    /// The part of it that lies in a box.
    pub fn within(&self, bounds: &Bounds) -> Option<Tile> {
        let both = match self.bounds.contains(bounds) {
            true => bounds.clone(),
            false => self.bounds.intersection(bounds)?,
        };
        let more = along(self.bounds.start(), both.start(), &self.strides);
        Some(Tile { bounds: both, offset: self.offset.saturating_add(more), ..self.clone() })
    }

    /// The same elements as another box: dimension by dimension of the new one, the old one that it was, if it was one.
    pub fn seen_as(&self, bounds: Bounds, was: &[Option<usize>], steps: &[usize]) -> Tile {
        let stride = |d: &Option<usize>| d.and_then(|d| self.strides.get(d)).copied().unwrap_or(0);
        let strides =
            was.iter().zip(steps).map(|(d, step)| stride(d).saturating_mul(*step)).collect();
        Tile { bounds, strides, ..self.clone() }
    }

    fn bytes(&self) -> &[u8] {
        let all = match &self.held {
            Held::There(array) => array.bytes(),
            Held::Own(bytes) => bytes,
        };
        all.get(self.offset..).unwrap_or(&[])
    }

    /// Each run of its elements, with its place in an array whose first element is at `origin` and whose elements lie by `others`,
    /// in elements: what has 0 there has one place.
    pub fn runs(
        &self,
        origin: &[u64],
        others: &[usize],
        each: &mut dyn FnMut(Run<'_>) -> Result<()>,
    ) -> Result<()> {
        if self.bounds.is_empty() {
            return Ok(());
        }
        // Dimensions that are one in both, the innermost first.
        let mut loops: Vec<(usize, usize, usize)> = Vec::new();
        let sides = self.bounds.count().iter().zip(&self.strides).zip(others);
        for ((count, stride), other) in sides.rev() {
            let count = usize::try_from(*count).unwrap_or(usize::MAX);
            if count == 1 {
                continue;
            }
            match loops.last_mut() {
                Some((n, s, o))
                    if Some(*stride) == s.checked_mul(*n) && Some(*other) == o.checked_mul(*n) =>
                {
                    *n = n.saturating_mul(count);
                }
                _ => loops.push((count, *stride, *other)),
            }
        }
        let first = along(origin, self.bounds.start(), others);
        let (inner, outer) = match loops.split_first() {
            Some((inner, outer)) => (*inner, outer),
            None => ((1, 0, 0), [].as_slice()),
        };
        let bytes = self.bytes();
        let mut at = vec![0usize; outer.len()];
        let (mut from, mut to) = (0usize, first);
        loop {
            let here = bytes.get(from..).ok_or_else(astray)?;
            each(Run { bytes: here, stride: inner.1, len: inner.0, at: to, step: inner.2 })?;
            let mut d = 0;
            loop {
                let (Some(i), Some((n, stride, other))) = (at.get_mut(d), outer.get(d)) else {
                    return Ok(());
                };
                *i += 1;
                from += stride;
                to += other;
                if *i < *n {
                    break;
                }
                from -= stride * n;
                to -= other * n;
                *i = 0;
                d += 1;
            }
        }
    }
}

fn astray() -> Error {
    Error::internal("an array is shorter than its box")
}

impl Value {
    /// An array in C order.
    ///
    /// # Errors
    /// `Internal` if the bytes are not those of the box.
    pub fn own(dtype: DType, bounds: Bounds, bytes: Arc<Vec<u8>>) -> Result<Value> {
        if bytes.len() != bytes_of(&bounds, dtype)? {
            return Err(astray());
        }
        let tile = Tile::own(bounds.clone(), dtype.size(), bytes);
        Ok(Value { dtype, bounds, tiles: vec![tile] })
    }

    /// The part of it in a box that lies in its own.
    pub fn within(&self, bounds: &Bounds) -> Value {
        let tiles = self.tiles.iter().filter_map(|tile| tile.within(bounds)).collect();
        Value { dtype: self.dtype, bounds: bounds.clone(), tiles }
    }

    /// Each run of elements in a box, with its place in an array of that box in C order.
    pub fn runs(&self, bounds: &Bounds, each: &mut dyn FnMut(Run<'_>) -> Result<()>) -> Result<()> {
        let others = bounds.strides(1);
        for tile in &self.tiles {
            if let Some(part) = tile.within(bounds) {
                part.runs(bounds.start(), &others, each)?;
            }
        }
        Ok(())
    }

    /// Copies a box, in C order.
    pub fn copy(&self, bounds: &Bounds, to: &mut [u8]) -> Result<()> {
        let size = self.dtype.size();
        self.runs(bounds, &mut |run| {
            let to = to.get_mut(run.at * size..).ok_or_else(astray)?;
            if run.len == 1 || (run.stride == size && run.step == 1) {
                let bytes = run.len * size;
                let (from, to) = (run.bytes.get(..bytes), to.get_mut(..bytes));
                let (from, to) = from.zip(to).ok_or_else(astray)?;
                to.copy_from_slice(from);
                return Ok(());
            }
            for i in 0..run.len {
                let from = run.bytes.get(i * run.stride..i * run.stride + size);
                let to = to.get_mut(i * run.step * size..(i * run.step + 1) * size);
                let (from, to) = from.zip(to).ok_or_else(astray)?;
                to.copy_from_slice(from);
            }
            Ok(())
        })
    }

    /// All of it in C order, by so many threads.
    pub fn gather(&self, threads: usize) -> Result<Vec<u8>> {
        let mut bytes = zeros(bytes_of(&self.bounds, self.dtype)?)?;
        self.gather_into(&mut bytes, threads)?;
        Ok(bytes)
    }

    /// As [`Value::gather`], into memory of the caller.
    pub fn gather_into(&self, to: &mut [u8], threads: usize) -> Result<()> {
        let threads = of_use(self.bounds.elements(), threads);
        in_parts(PIECE, &self.bounds, self.dtype.size(), to, threads, &|part, to| {
            self.copy(part, to)
        })
    }

    /// A slice of it: what of a box of the slice lies here, without a copy.
    pub fn slice(&self, taken: &[crate::form::Taken], bounds: &Bounds) -> Result<Value> {
        select::slice(self, taken, bounds)
    }
}

/// How many threads are of use for so many elements.
pub fn of_use(elements: u64, threads: usize) -> usize {
    let most = usize::try_from(elements / SHARE).unwrap_or(usize::MAX);
    threads.min(most).max(1)
}

/// Fills an array in C order by parts of about so many elements, and by so many threads: each is a box whose elements lie together.
///
/// # Errors
/// The first one, in the order of the parts.
pub fn in_parts(
    piece: u64,
    bounds: &Bounds,
    element: usize,
    to: &mut [u8],
    threads: usize,
    fill: &(dyn Fn(&Bounds, &mut [u8]) -> Result<()> + Sync),
) -> Result<()> {
    let n = usize::try_from(bounds.elements() / piece.max(1)).unwrap_or(usize::MAX);
    let n = n.clamp(1, 1 << 16);
    let n = if threads > 1 { n.max(4 * threads) } else { n };
    let parts = gather::parts(to, bounds, element, n)?;
    let count = parts.len();
    let queue = Mutex::new(parts.into_iter().enumerate());
    let failed: Mutex<Option<(usize, Error)>> = Mutex::new(None);
    let work = || {
        loop {
            let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
            let Some((i, (part, to))) = next else { return };
            if let Err(e) = fill(&part, to) {
                let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                if failed.as_ref().is_none_or(|(j, _)| i < *j) {
                    *failed = Some((i, e));
                }
                return;
            }
        }
    };
    together(threads.min(count), &work);
    match failed.into_inner().unwrap_or_else(PoisonError::into_inner) {
        Some((_, e)) => Err(e),
        None => Ok(()),
    }
}

/// Has so many threads do the same, this one among them. What a thread that does not begin would have done is done by the others.
pub fn together(threads: usize, work: &(dyn Fn() + Sync)) {
    thread::scope(|scope| {
        for _ in 1..threads {
            let _ = thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
}

/// Makes a value of a box, part by part.
///
/// # Errors
/// `Limit` if there is no memory for it; those of the function.
pub fn fill(
    dtype: DType,
    bounds: &Bounds,
    threads: usize,
    fill: &(dyn Fn(&Bounds, &mut [u8]) -> Result<()> + Sync),
) -> Result<Value> {
    let mut bytes = zeros(bytes_of(bounds, dtype)?)?;
    let threads = of_use(bounds.elements(), threads);
    in_parts(PIECE, bounds, dtype.size(), &mut bytes, threads, fill)?;
    Value::own(dtype, bounds.clone(), Arc::new(bytes))
}
