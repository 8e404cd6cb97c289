//! Kernels of `stead run` on their way through passes: over values as a whole, or by each rank over the part that is its own.
//!
//! States of parts are merged to what one state of all would be, as those of the ranks of `stead run` are: sums in them are exact, the rows of
//! an array go by stretches and its planes by cells, both of which depend on its shape alone. So no bit of an answer tells who looked at what.

use super::{Job, SHARED, Share, hull, kernel, normal, picture};
use crate::division::Division;
use crate::element::{Element, with_type};
use crate::form::Form;
use crate::graph::Operator;
use crate::value::{Value, bytes_of, zeros};
use std::collections::VecDeque;
use std::sync::Arc;
use stead_core::block::{brick_planes, stretch_rows};
use stead_core::{Block, Bounds, Columns, Error, Matrix, Result, Span, Value as Answer, limits};
use stead_kernel::render::MOST_HALO;
use stead_kernel::{AnyKernel, AnyState, Step};
use stead_stream::gather;

/// Rows that a kernel is given at a time.
const ROWS: u64 = 1 << 15;

/// What is said of a kernel.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// The references of its values.
    pub of: &'a [String],
    /// What is computed.
    pub kernel: &'a str,
    /// The member of the answer that is wanted.
    pub member: Option<&'a str>,
    /// The shape of the answer.
    pub shape: Option<&'a [u64]>,
    /// True if its columns are those of a 2-d array.
    pub rows: bool,
}

impl<'a> Asked<'a> {
    /// `None` of an operator that is no kernel.
    pub fn by(op: &'a Operator) -> Option<Asked<'a>> {
        let Operator::Kernel { of, kernel, member, shape, rows } = op else { return None };
        let (member, shape) = (member.as_deref(), shape.as_deref());
        Some(Asked { of: of.list(), kernel: kernel.as_str(), member, shape, rows: *rows })
    }
}

/// What a kernel is given of its values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// The elements of each are a column.
    Elements,
    /// The rows of a 2-d array with so many columns.
    Rows(usize),
    /// The bytes of the elements of one.
    Bytes,
    /// The planes of a 3-d array of this shape, by so many threads at most.
    Planes([u64; 3], u64),
}

/// What a kernel comes to.
pub enum Ended {
    /// An answer.
    Answer(Answer),
    /// A picture, as the bytes of its file.
    File(Vec<u8>),
    /// What makes other rows of rows.
    Maps(Arc<dyn AnyKernel>),
}

/// A kernel between two passes.
pub struct Passes {
    kernel: Arc<dyn AnyKernel>,
    /// The member of its result that is its answer.
    pick: Option<&'static str>,
    look: Look,
    /// The shape of the first value, of all of it.
    shape: Vec<u64>,
    /// How many more there may be.
    left: usize,
}

fn odd() -> Error {
    Error::internal("a kernel without an input or an output")
}

impl Passes {
    /// Before the first pass.
    ///
    /// # Errors
    /// `Usage` for a kernel that cannot work on values of these forms.
    pub fn new(asked: &Asked<'_>, of: &[&Form]) -> Result<Passes> {
        let first = of.first().ok_or_else(odd)?;
        let (kernel, pick, look) = if picture::is_one(asked.kernel) {
            let dims = picture::dims(first)?;
            let most = picture::most_threads(asked.kernel, dims)?;
            (picture::build(asked.kernel, dims)?, None, Look::Planes(dims, most))
        } else {
            let schema = kernel::schema(of, asked)?;
            let (kernel, pick) = kernel::build(asked, &schema)?;
            let look = match (kernel.needs().bytes, asked.rows) {
                (true, _) => Look::Bytes,
                (false, true) => Look::Rows(schema.columns.len()),
                (false, false) => Look::Elements,
            };
            (kernel, pick, look)
        };
        Ok(Passes { kernel, pick, look, shape: first.shape.clone(), left: limits::MAX_ROUNDS })
    }

    /// The kernel of this pass.
    pub fn kernel(&self) -> &Arc<dyn AnyKernel> {
        &self.kernel
    }

    /// What there is after a pass over a box of the first value, which is that of the others where there are several of one shape.
    ///
    /// # Errors
    /// Those of the kernel; `Internal` for values that do not have the box.
    pub fn pass(&self, part: &Bounds, inputs: &[Value], threads: usize) -> Result<AnyState> {
        let first = inputs.first().ok_or_else(odd)?;
        if part.is_empty() {
            return Ok(self.kernel.init());
        }
        match self.look {
            Look::Elements => match inputs {
                [one] => self.elements(&[one.within(part)]),
                all => self.elements(all),
            },
            Look::Rows(width) => self.rows(&first.within(part), width),
            Look::Bytes => self.bytes(&first.within(part)),
            Look::Planes(dims, most) => {
                let planes = part.sides().next().ok_or_else(odd)?;
                let threads = (threads.max(1) as u64).min(most);
                picture::pass(&self.kernel, first, dims, planes, threads)
            }
        }
    }

    /// Over the elements of values, in their order.
    fn elements(&self, inputs: &[Value]) -> Result<AnyState> {
        let (kernel, mut state) = (&self.kernel, self.kernel.init());
        let first = inputs.first().ok_or_else(odd)?;
        let ids: Vec<usize> = (0..inputs.len()).collect();
        let rows = first.bounds.elements();
        let mut readers: Vec<Elements<'_>> = inputs.iter().map(Elements::new).collect();
        // Who asks for records without bytes asks where they lie: by their numbers in the whole array.
        let places = || Places::new(&self.shape, &first.bounds);
        let mut places = kernel.needs().records.then(places);
        let (mut records, mut numbers) = (Vec::new(), Vec::new());
        let (mut done, mut seq) = (0, 0);
        while done < rows {
            let most = usize::try_from((rows - done).min(ROWS)).unwrap_or(usize::MAX);
            let (offset, some) = match &mut places {
                Some(places) => places.take(most, &mut records),
                None => (done, most),
            };
            if some == 0 {
                return Err(odd());
            }
            numbers.clear();
            for reader in &mut readers {
                reader.take(some, &mut numbers)?;
            }
            let columns =
                Columns { number_ids: &ids, numbers: &numbers, stride: some, ..Columns::default() };
            let records = &records[..];
            let block = Block { seq, offset, rows: some, columns, records, ..Block::empty() };
            kernel.update(&mut state, &block)?;
            done += some as u64;
            seq += 1;
        }
        Ok(state)
    }

    /// Over rows of a 2-d array, by the stretches of which it is made for kernels.
    fn rows(&self, value: &Value, width: usize) -> Result<AnyState> {
        let (kernel, mut state, needs) = (&self.kernel, self.kernel.init(), self.kernel.needs());
        let one = |of: &[u64]| of.first().copied().unwrap_or(0);
        let (first, all) = (one(value.bounds.start()), one(value.bounds.count()));
        let (stretch, mut elements) = (stretch_rows(width), Elements::new(value));
        let (mut done, mut seq) = (0, 0);
        while done < all && width > 0 {
            let rows = usize::try_from((all - done).min(stretch)).unwrap_or(usize::MAX);
            let mut values = Vec::with_capacity(rows.saturating_mul(width));
            elements.take(rows.saturating_mul(width), &mut values)?;
            // Rows of a stretch are few.
            let ends = [u32::try_from(rows).unwrap_or(u32::MAX)];
            let numbers = columns(&values, width, &needs.numbers);
            let columns = Columns {
                number_ids: &needs.numbers,
                numbers: &numbers,
                stride: rows,
                ..Columns::default()
            };
            let matrix = needs.matrix.then_some(Matrix { values: &values, width, ends: &ends });
            let places: Vec<Span> =
                (0u32..).take(rows).map(|start| Span { start, len: 0 }).collect();
            let (offset, records) = (first + done, &places[..]);
            let block = Block { seq, offset, rows, columns, matrix, records, ..Block::empty() };
            kernel.update(&mut state, &block)?;
            done += rows as u64;
            seq += 1;
        }
        Ok(state)
    }

    /// Over the bytes of elements, in their order. The last one of the whole array is the end of what they are.
    fn bytes(&self, value: &Value) -> Result<AnyState> {
        let mut state = self.kernel.init();
        let n = usize::try_from(value.bounds.elements() / ROWS).unwrap_or(usize::MAX);
        let boxes = gather::boxes(&value.bounds, n.clamp(1, 1 << 20));
        let is_end = value.bounds.sides().map(|side| side.end).eq(self.shape.iter().copied());
        let count = boxes.len();
        for (i, part) in boxes.iter().enumerate() {
            let mut text = zeros(bytes_of(part, value.dtype)?)?;
            value.copy(part, &mut text)?;
            let last = is_end && i + 1 == count;
            let block = Block { seq: i as u64, last, text: &text, ..Block::empty() };
            self.kernel.update(&mut state, &block)?;
        }
        Ok(state)
    }

    /// Ends a pass: what the kernel comes to, or `None` if there is another one.
    ///
    /// # Errors
    /// Those of the kernel; `Limit` if it does not come to an end.
    pub fn end(&mut self, state: AnyState) -> Result<Option<Ended>> {
        let is_last = self.kernel.is_last();
        let next = match self.kernel.finish(state)? {
            Step::Next(next) => next,
            Step::File { bytes, .. } => return Ok(Some(Ended::File(bytes))),
            Step::Done(answer) => {
                let answer = match self.pick {
                    Some(pick) => answer.get(pick).cloned().unwrap_or(answer),
                    None => answer,
                };
                return Ok(Some(Ended::Answer(answer)));
            }
        };
        if is_last {
            return Err(Error::internal("a kernel goes on after its last pass"));
        }
        if next.sink().is_some() {
            return Ok(Some(Ended::Maps(next)));
        }
        let none = || Error::limit("the kernel has not come to an end");
        self.left = self.left.checked_sub(1).ok_or_else(none)?;
        self.kernel = next;
        Ok(None)
    }

    /// What is wanted of what the kernel makes of these values.
    ///
    /// # Errors
    /// `Usage` for an answer that is not what was said of it.
    pub fn made(
        &self,
        asked: &Asked<'_>,
        job: &Job<'_>,
        ended: Ended,
        inputs: &[Value],
        threads: usize,
    ) -> Result<Value> {
        let made = job.made.first().ok_or_else(odd)?;
        let wanted = job.wanted.first().and_then(Option::as_ref).ok_or_else(odd)?;
        match ended {
            Ended::Answer(answer) => Ok(kernel::value(answer, asked.member, made)?.within(wanted)),
            Ended::File(bytes) => Ok(picture::pixels(&bytes, made)?.within(wanted)),
            Ended::Maps(kernel) => {
                let first = inputs.first().ok_or_else(odd)?;
                normal::value(&kernel, self.look, first, wanted, threads)
            }
        }
    }
}

/// Runs a kernel over all of its values, pass by pass.
///
/// # Errors
/// Those of its passes.
pub fn alone(asked: &Asked<'_>, job: &Job<'_>, inputs: &[Value], threads: usize) -> Result<Value> {
    let mut passes = Passes::new(asked, job.of)?;
    let whole = job.of.first().ok_or_else(odd)?.whole()?;
    loop {
        let state = passes.pass(&whole, inputs, threads)?;
        if let Some(ended) = passes.end(state)? {
            return passes.made(asked, job, ended, inputs, threads);
        }
    }
}

/// Who looks at what: of a large array all ranks do, each at a part. What cannot be cut by one box of all values is one rank's.
///
/// # Errors
/// As [`Passes::new`].
pub fn share(
    asked: &Asked<'_>,
    of: &[&Form],
    along: Option<usize>,
    division: &Division,
) -> Result<Share> {
    let first = of.first().ok_or_else(odd)?;
    let whole = first.whole()?;
    if whole.elements() < SHARED {
        return Ok(Share::Own);
    }
    let passes = Passes::new(asked, of)?;
    Ok(match passes.look {
        _ if passes.kernel.needs().order => Share::Own,
        Look::Elements if of.iter().any(|form| form.shape != first.shape) => Share::Own,
        Look::Elements | Look::Bytes => Share::Part(division.share(&whole, along)),
        Look::Rows(width) => Share::Part(slab(&whole, stretch_rows(width), division)),
        Look::Planes(dims, _) if picture::is_told(asked.kernel, dims, division.ranks())? => {
            Share::Part(slab(&whole, brick_planes(dims), division))
        }
        Look::Planes(..) => Share::Own,
    })
}

/// A rank's part of the first dimension, in pieces of so many indices that are not cut.
fn slab(whole: &Bounds, piece: u64, division: &Division) -> Option<Bounds> {
    let (length, piece) = (whole.count().first().copied().unwrap_or(0), piece.max(1));
    let pieces = division.stretch(length.div_ceil(piece));
    let at = |n: u64| n.saturating_mul(piece).min(length);
    whole.slab(0, at(pieces.start)..at(pieces.end))
}

/// Which box of each value a rank needs that looks at this part of them: with the planes after it that a picture takes, and with what it
/// makes itself of what all have found.
///
/// # Errors
/// `Internal` for boxes that are none.
pub fn reach(
    asked: &Asked<'_>,
    of: &[&Form],
    part: Option<&Bounds>,
    wanted: Option<&Bounds>,
) -> Result<Vec<Option<Bounds>>> {
    let first = of.first().ok_or_else(odd)?;
    if let Some(part) = part.filter(|_| picture::is_one(asked.kernel)) {
        let whole = first.whole()?;
        let planes = part.sides().next().ok_or_else(odd)?;
        let with = planes.start..planes.end.saturating_add(MOST_HALO);
        return Ok(vec![whole.slab(0, with)]);
    }
    if let Some(wanted) = wanted.filter(|_| normal::is_one(asked.kernel)) {
        let own = normal::needs(first, asked.rows, wanted)?;
        return Ok(vec![Some(part.map_or_else(|| Ok(own.clone()), |part| hull(part, &own))?)]);
    }
    Ok(vec![part.cloned(); of.len()])
}

/// Columns of rows that lie one after the other, each of one of them.
pub fn columns(values: &[f64], width: usize, ids: &[usize]) -> Vec<f64> {
    let column = |id: &usize| values.iter().skip(*id).step_by(width.max(1)).copied();
    ids.iter().flat_map(column).collect()
}

/// The elements of a value in C order, some at a time.
pub struct Elements<'v> {
    value: &'v Value,
    boxes: std::vec::IntoIter<Bounds>,
    left: VecDeque<f64>,
}

impl<'v> Elements<'v> {
    /// From the first one on.
    pub fn new(value: &'v Value) -> Elements<'v> {
        let n = usize::try_from(value.bounds.elements() / ROWS).unwrap_or(usize::MAX);
        let boxes = gather::boxes(&value.bounds, n.clamp(1, 1 << 20)).into_iter();
        Elements { value, boxes, left: VecDeque::new() }
    }

    /// The next ones.
    ///
    /// # Errors
    /// `Internal` if there are not so many.
    pub fn take(&mut self, count: usize, to: &mut Vec<f64>) -> Result<()> {
        while self.left.len() < count {
            let Some(part) = self.boxes.next() else { break };
            let elements = usize::try_from(part.elements()).unwrap_or(usize::MAX);
            let mut some = vec![0f64; elements];
            with_type!(self.value.dtype, T => self.value.runs(&part, &mut |run| {
                let mut at = run.at;
                T::each(&run, &mut |x: T| {
                    if let Some(to) = some.get_mut(at) {
                        *to = x.to_f64();
                    }
                    at += run.step;
                })
            }))?;
            self.left.extend(some);
        }
        if self.left.len() < count {
            return Err(Error::internal("a column is shorter than its value"));
        }
        to.extend(self.left.drain(..count));
        Ok(())
    }
}

/// Where the elements of a box lie in the whole array, in C order: by their numbers there.
struct Places {
    /// Elements that follow each other in the whole array, too.
    run: u64,
    /// How many runs there are along each further dimension, and from one to the next; the innermost first.
    outer: Vec<(u64, u64)>,
    at: Vec<u64>,
    /// The number of the first element of this run, and how many of it were taken.
    first: u64,
    taken: u64,
}

impl Places {
    fn new(shape: &[u64], bounds: &Bounds) -> Places {
        let (mut run, mut outer, mut first) = (1u64, Vec::new(), 0u64);
        let (mut stride, mut is_whole) = (1u64, true);
        for ((start, count), length) in bounds.start().iter().zip(bounds.count()).zip(shape).rev() {
            first = first.saturating_add(start.saturating_mul(stride));
            if is_whole {
                run = run.saturating_mul(*count);
                is_whole = count == length;
            } else {
                outer.push((*count, stride));
            }
            stride = stride.saturating_mul(*length);
        }
        Places { run, at: vec![0; outer.len()], outer, first, taken: 0 }
    }

    /// The number of the next element, and where it and up to so many after it lie from there on: fewer where places would need more than
    /// 32 bits.
    fn take(&mut self, most: usize, places: &mut Vec<Span>) -> (u64, usize) {
        places.clear();
        if self.taken == self.run && !self.goes_on() {
            return (0, 0);
        }
        let offset = self.first.saturating_add(self.taken);
        while places.len() < most {
            if self.taken == self.run && !self.goes_on() {
                break;
            }
            let begin = self.first.saturating_add(self.taken).saturating_sub(offset);
            let Ok(begin) = u32::try_from(begin) else { break };
            let wanted = (self.run - self.taken).min((most - places.len()) as u64);
            let room = u64::from(u32::MAX - begin) + 1;
            let some = wanted.min(room);
            let each = (begin..=u32::MAX).take(usize::try_from(some).unwrap_or(usize::MAX));
            places.extend(each.map(|start| Span { start, len: 0 }));
            self.taken += some;
            if some < wanted {
                break;
            }
        }
        (offset, places.len())
    }

    /// Goes to the next run. False after the last one.
    fn goes_on(&mut self) -> bool {
        for (at, (count, stride)) in self.at.iter_mut().zip(&self.outer) {
            *at += 1;
            self.first = self.first.saturating_add(*stride);
            if *at < *count {
                self.taken = 0;
                return true;
            }
            self.first = self.first.saturating_sub(stride.saturating_mul(*count));
            *at = 0;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The numbers of all elements of a box, taken so many at a time.
    fn numbers(shape: &[u64], bounds: &Bounds, most: usize) -> Vec<u64> {
        let (mut places, mut some, mut all) = (Places::new(shape, bounds), Vec::new(), Vec::new());
        while (all.len() as u64) < bounds.elements() {
            let (offset, count) = places.take(most, &mut some);
            assert!((1..=most).contains(&count) && count == some.len());
            all.extend(some.iter().map(|place| offset + u64::from(place.start)));
        }
        all
    }

    proptest! {
        #[test]
        fn places_are_those_in_the_whole_array(
            sides in prop::collection::vec((1u64..6, 0u64..6, 0u64..6), 1..4),
            most in 1usize..9,
        ) {
            let shape: Vec<u64> = sides.iter().map(|(n, ..)| *n).collect();
            let start: Vec<u64> = sides.iter().map(|(n, from, _)| from % n).collect();
            let count: Vec<u64> =
                sides.iter().zip(&start).map(|((n, _, c), from)| 1 + c % (n - from)).collect();
            let bounds = Bounds::new(&start, &count).unwrap();
            let whole: u64 = shape.iter().product();
            let within: Vec<_> = bounds.sides().collect();
            let inside = |number: &u64| {
                let mut rest = *number;
                shape.iter().zip(&within).rev().all(|(n, side)| {
                    let at = rest % n;
                    rest /= n;
                    side.contains(&at)
                })
            };
            let wanted: Vec<u64> = (0..whole).filter(inside).collect();
            prop_assert_eq!(numbers(&shape, &bounds, most), wanted);
        }
    }

    #[test]
    fn places_that_are_far_from_each_other_are_told_apart() {
        // A column of an array whose rows are longer than places can be.
        let shape = [3u64, 1 << 33];
        let bounds = Bounds::new([0, 5], [3, 2]).unwrap();
        let row = |n: u64| [5 + (n << 33), 6 + (n << 33)];
        assert_eq!(numbers(&shape, &bounds, 10), [row(0), row(1), row(2)].concat());
    }
}
