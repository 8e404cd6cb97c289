//! One number of many, exactly: sums are rounded once, so that the answer is the same however the array lies and whoever adds it up.
//!
//! Where few numbers come out of many, each rank adds up a part of the array, and what it has then, [`Partial`], is not rounded yet: merged in
//! any order it is what one rank alone would have.

use super::{SHARED, Share};
use crate::division::Division;
use crate::element::{Element, is_float, with_type};
use crate::form::Form;
use crate::graph::{Dim, How};
use crate::value::{self, Run, Value, bytes_of, in_parts, of_use, zeros};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::{Arc, Mutex, PoisonError};
use stead_core::{Bounds, DType, Error, Result, Value as Answer};
use stead_kernel::exact::powers::{self, PowerSums};
use stead_kernel::moments::{Cell, Order, Sums};

/// Elements of one number that are added up as a slice, and not one by one.
const LONG: usize = 64;
/// Numbers that come out then, at most.
const MOST_SHARED: u64 = 256;
/// Numbers that one thread makes at a time: their states, most often of 40 to 300 bytes, have no more than 32 MiB.
const AT_ONCE: u64 = 1 << 12;
/// Bytes that a state of a number takes at most, in memory and on its way: exact sums of doubles of all sizes.
const STATE: u64 = 8 << 10;

/// Adds up elements of one sort.
trait Sum<T: Element>: Clone + Default + Send {
    fn add(&mut self, x: T);

    fn add_run(&mut self, run: &Run<'_>) -> Result<()> {
        T::each(run, &mut |x| self.add(x))
    }

    fn merge(&mut self, other: Self);
}

/// Floating-point numbers: an exact sum, and how many.
#[derive(Clone, Default)]
struct Floats(Cell);

impl Serialize for Floats {
    fn serialize<S: Serializer>(&self, s: S) -> std::result::Result<S::Ok, S::Error> {
        self.0.sums().serialize(s)
    }
}

impl<'de> Deserialize<'de> for Floats {
    fn deserialize<D: Deserializer<'de>>(d: D) -> std::result::Result<Floats, D::Error> {
        Ok(Floats(Sums::deserialize(d)?.into()))
    }
}

impl<T: Element> Sum<T> for Floats {
    fn add(&mut self, x: T) {
        self.0.add(x.to_f64(), Order::Sum);
    }

    fn add_run(&mut self, run: &Run<'_>) -> Result<()> {
        if run.len < LONG {
            return T::each(run, &mut |x: T| {
                self.0.add(x.to_f64(), Order::Sum);
            });
        }
        T::doubles(run, &mut |some| {
            self.0.add_all(some, Order::Sum);
        })
    }

    fn merge(&mut self, other: Self) {
        self.0.merge(other.0);
    }
}

/// Whole numbers.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Wholes {
    sum: i128,
    count: u64,
}

impl<T: Element> Sum<T> for Wholes {
    fn add(&mut self, x: T) {
        // At most 2^64 each, and no more than 2^63 of them.
        self.sum = self.sum.saturating_add(x.whole().unwrap_or(0));
        self.count += 1;
    }

    fn merge(&mut self, other: Self) {
        self.sum = self.sum.saturating_add(other.sum);
        self.count = self.count.saturating_add(other.count);
    }
}

/// The smallest and the largest, by their keys.
#[derive(Clone, Default, Serialize, Deserialize)]
struct Ends {
    ends: Option<(i128, i128)>,
    nan: bool,
}

impl<T: Element> Sum<T> for Ends {
    fn add(&mut self, x: T) {
        let Some(key) = x.key() else {
            // Missing values are left out, as by the kernels.
            self.nan |= !stead_core::is_missing(x.to_f64());
            return;
        };
        self.ends = match self.ends {
            Some((low, high)) => Some((low.min(key), high.max(key))),
            None => Some((key, key)),
        };
    }

    fn merge(&mut self, other: Self) {
        self.nan |= other.nan;
        self.ends = match (self.ends, other.ends) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
    }
}

impl<T: Element> Sum<T> for PowerSums {
    fn add(&mut self, x: T) {
        PowerSums::add(self, x.to_f64());
    }

    fn add_run(&mut self, run: &Run<'_>) -> Result<()> {
        if run.len < LONG {
            return T::each(run, &mut |x| PowerSums::add(self, x.to_f64()));
        }
        T::doubles(run, &mut |some| self.add_slice(some))
    }

    fn merge(&mut self, other: Self) {
        PowerSums::merge(self, &other);
    }
}

/// Which dimensions go.
fn gone(of: &Form, over: Option<&[Dim]>) -> Result<Vec<usize>> {
    match over {
        Some(dims) => of.places(dims),
        None => Ok((0..of.shape.len()).collect()),
    }
}

/// What comes out.
pub fn form(of: &Form, how: How, over: Option<&[Dim]>) -> Result<Form> {
    let gone = gone(of, over)?;
    let form = of.without(&gone);
    let nothing = gone.iter().any(|d| of.shape.get(*d) == Some(&0));
    match how {
        How::Sum => Ok(form.with_dtype(match of.dtype {
            DType::F32 | DType::F64 => DType::F64,
            DType::I8 | DType::I16 | DType::I32 | DType::I64 => DType::I64,
            _ => DType::U64,
        })),
        How::Mean => Ok(form.with_dtype(DType::F64)),
        How::Min | How::Max if nothing => Err(Error::usage(format!(
            "there is no {} of no elements: {}",
            how.name(),
            of.describe()
        ))),
        How::Min | How::Max => Ok(form),
        How::Moments => {
            let mut form = form.with_dtype(DType::F64);
            form.attributes.remove("units");
            form.with_first("moment", 4)
        }
    }
}

/// A box without its first dimension.
pub fn without_first(bounds: &Bounds) -> Result<Bounds> {
    Bounds::new(bounds.start().get(1..).unwrap_or(&[]), bounds.count().get(1..).unwrap_or(&[]))
}

/// What of the array a box of what comes out needs.
fn back(of: &Form, gone: &[usize], kept: &Bounds) -> Result<Bounds> {
    let mut sides = kept.sides();
    let side = |(d, n): (usize, &u64)| match gone.contains(&d) {
        true => (0, *n),
        false => sides.next().map_or((0, 0), |side| (side.start, side.end - side.start)),
    };
    let (start, count): (Vec<u64>, Vec<u64>) = of.shape.iter().enumerate().map(side).unzip();
    Bounds::new(start, count)
}

/// Which box of the array is needed.
pub fn needs(of: &Form, how: How, over: Option<&[Dim]>, wanted: &Bounds) -> Result<Bounds> {
    let gone = gone(of, over)?;
    match how {
        How::Moments => back(of, &gone, &without_first(wanted)?),
        _ => back(of, &gone, wanted),
    }
}

/// Which dimension of what comes out is this one, if it does not go.
pub fn along(of: &Form, how: How, over: Option<&[Dim]>, along: usize) -> Option<usize> {
    let gone = gone(of, over).ok()?;
    let before = gone.iter().filter(|d| **d < along).count();
    let new = usize::from(how == How::Moments);
    (!gone.contains(&along)).then(|| along - before + new)
}

/// Who adds up what. All ranks do, each a stretch of the longest dimension that goes, if more of them have something to do so than if each
/// makes its part of what comes out, and if there is enough of it. If the array lies on several nodes along a dimension that goes, they do
/// along that one.
///
/// # Errors
/// `Usage` for dimensions that are not there.
pub fn share(
    of: &Form,
    over: Option<&[Dim]>,
    along: Option<usize>,
    division: &Division,
) -> Result<Share> {
    let (gone, whole) = (gone(of, over)?, of.whole()?);
    let longest = |goes: bool| {
        let sides = whole.count().iter().enumerate().filter(|(d, _)| gone.contains(d) == goes);
        sides.map(|(d, n)| (*n, d)).max_by_key(|(n, _)| *n)
    };
    let others = longest(false).map_or(1, |(n, _)| n);
    let near = along.filter(|along| gone.contains(along));
    let near = near.and_then(|along| Some((*of.shape.get(along)?, along)));
    let near = near.filter(|(length, _)| *length >= division.ranks());
    let Some((length, along)) = near.or_else(|| longest(true)) else { return Ok(Share::Own) };
    let numbers = of.without(&gone).whole()?.elements();
    let more = near.is_some() || others < division.ranks().min(length);
    if !more || whole.elements() < SHARED || numbers > MOST_SHARED {
        return Ok(Share::Own);
    }
    Ok(Share::Part(whole.slab(along, division.stretch(length))))
}

/// Bytes that the states of all numbers take at most: those of this rank, of another one, and what is sent.
pub fn states_bytes(made: &Form) -> u64 {
    made.shape.iter().fold(3 * STATE, |bytes, n| bytes.saturating_mul(*n))
}

/// What a rank has of each number that comes out, in C order.
#[derive(Clone, Serialize, Deserialize)]
pub struct Partial(States);

#[derive(Clone, Serialize, Deserialize)]
enum States {
    Floats(Vec<Floats>),
    Wholes(Vec<Wholes>),
    Ends(Vec<Ends>),
    Powers(Vec<PowerSums>),
}

impl Partial {
    /// What a rank has told of, which may be anything.
    ///
    /// # Errors
    /// `Format` for what no rank tells.
    pub fn read(bytes: &[u8]) -> Result<Partial> {
        postcard::from_bytes(bytes)
            .map_err(|_| Error::format("what a rank of the flow has said is damaged"))
    }

    /// As it is told.
    ///
    /// # Errors
    /// `Internal` if it cannot be.
    pub fn told(&self) -> Result<Vec<u8>> {
        postcard::to_stdvec(self)
            .map_err(|e| Error::internal(format!("cannot tell other ranks of a flow: {e}")))
    }

    /// Adds what another rank has.
    ///
    /// # Errors
    /// `Format` if that is of something else.
    pub fn merge(&mut self, other: Partial) -> Result<()> {
        fn all<S>(mine: &mut [S], theirs: Vec<S>, merge: impl Fn(&mut S, S)) -> bool {
            let fits = mine.len() == theirs.len();
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| merge(mine, theirs));
            fits
        }
        // What is merged does not depend on the type of the elements any more.
        let fits = match (&mut self.0, other.0) {
            (States::Floats(a), States::Floats(b)) => all(a, b, <Floats as Sum<f64>>::merge),
            (States::Wholes(a), States::Wholes(b)) => all(a, b, <Wholes as Sum<i64>>::merge),
            (States::Ends(a), States::Ends(b)) => all(a, b, <Ends as Sum<f64>>::merge),
            (States::Powers(a), States::Powers(b)) => all(a, b, <PowerSums as Sum<f64>>::merge),
            _ => false,
        };
        match fits {
            true => Ok(()),
            false => Err(Error::format("a rank of the flow has added up something else")),
        }
    }

    /// Bytes that it is at most, as others are told of it.
    pub fn most_bytes(&self) -> u64 {
        let numbers = match &self.0 {
            States::Floats(all) => all.len(),
            States::Wholes(all) => all.len(),
            States::Ends(all) => all.len(),
            States::Powers(all) => all.len(),
        };
        STATE.saturating_mul(numbers as u64).saturating_add(32)
    }

    /// Makes all numbers that can come of it, for nobody.
    pub fn come_to_numbers(self) {
        let mut to = [0u8; 32];
        match self.0 {
            States::Floats(all) => all.iter().for_each(|sum| {
                let _ = float(How::Sum, sum, &mut to).and(float(How::Mean, sum, &mut to));
            }),
            States::Wholes(all) => all.iter().for_each(|sum| {
                let _ = exactly(How::Sum, sum, DType::I64, &mut to);
                let _ = exactly(How::Mean, sum, DType::F64, &mut to);
            }),
            States::Ends(all) => all.iter().for_each(|ends| {
                let _ = end::<f32>(How::Min, ends, &mut to).and(end::<i8>(How::Max, ends, &mut to));
            }),
            States::Powers(all) => all.into_iter().for_each(|sums| {
                let _ = moments(sums, &mut to);
            }),
        }
    }
}

/// What there is of each number in the part of an array that a rank has, which is all of it in the dimensions that stay.
///
/// # Errors
/// `Internal` if the array is another one.
pub fn partial(
    of: &Form,
    value: &Value,
    how: How,
    over: Option<&[Dim]>,
    threads: usize,
) -> Result<Partial> {
    let gone = gone(of, over)?;
    let kept = of.without(&gone).whole()?;
    let (all, from) = (Reduction { of, value, gone: &gone, threads }, &value.bounds);
    let floats = is_float(of.dtype);
    with_type!(of.dtype, T => Ok(Partial(match how {
        How::Sum | How::Mean if floats => States::Floats(all.shared::<T, _>(&kept, from)?),
        How::Sum | How::Mean => States::Wholes(all.shared::<T, _>(&kept, from)?),
        How::Min | How::Max => States::Ends(all.shared::<T, _>(&kept, from)?),
        How::Moments => States::Powers(all.shared::<T, _>(&kept, from)?),
    })))
}

/// What comes out of what all ranks have together.
///
/// # Errors
/// `Data` for a sum that its type cannot have.
pub fn finish(
    of: &Form,
    all: Partial,
    how: How,
    over: Option<&[Dim]>,
    made: &Form,
    wanted: &Bounds,
) -> Result<Value> {
    fn each<S>(
        states: Vec<S>,
        to: &mut [u8],
        element: usize,
        finish: impl Fn(S, &mut [u8]) -> Result<()>,
    ) -> Result<()> {
        let both = states.into_iter().zip(to.chunks_exact_mut(element));
        both.into_iter().try_for_each(|(state, to)| finish(state, to))
    }
    let (whole, size) = (made.whole()?, made.dtype.size());
    let kept = of.without(&gone(of, over)?).whole()?;
    let mut bytes = zeros(bytes_of(&whole, made.dtype)?)?;
    match all.0 {
        States::Floats(sums) => each(sums, &mut bytes, size, |sum, to| float(how, &sum, to))?,
        States::Wholes(sums) => {
            each(sums, &mut bytes, size, |sum, to| exactly(how, &sum, made.dtype, to))?;
        }
        States::Ends(ends) => with_type!(made.dtype, T => {
            each(ends, &mut bytes, size, |ends, to| end::<T>(how, &ends, to))?;
        }),
        States::Powers(sums) => {
            let mut four = zeros(bytes_of(&kept, DType::F64)?.saturating_mul(4))?;
            each(sums, &mut four, 32, moments)?;
            planes(&four, &whole, &mut bytes);
        }
    }
    Ok(Value::own(made.dtype, whole, Arc::new(bytes))?.within(wanted))
}

/// What is known of a reduction.
struct Reduction<'r> {
    of: &'r Form,
    value: &'r Value,
    gone: &'r [usize],
    threads: usize,
}

impl Reduction<'_> {
    /// The sums of a box of what comes out, in C order, from a box of the array.
    fn sums<T: Element, S: Sum<T>>(&self, kept: &Bounds, from: &Bounds) -> Result<Vec<S>> {
        let count = usize::try_from(kept.elements()).unwrap_or(usize::MAX);
        let mut sums = vec![S::default(); count];
        let mut own = kept.strides(1).into_iter();
        let others: Vec<usize> = (0..self.of.shape.len())
            .map(|d| if self.gone.contains(&d) { 0 } else { own.next().unwrap_or(0) })
            .collect();
        // A sum begins where its first element is, whatever the dimensions that go.
        let astray = || Error::internal("a sum is out of its array");
        for tile in &self.value.tiles {
            let Some(part) = tile.within(from) else { continue };
            part.runs(from.start(), &others, &mut |run| {
                if run.step == 0 {
                    return sums.get_mut(run.at).ok_or_else(astray)?.add_run(&run);
                }
                let mut at = run.at;
                T::each(&run, &mut |x| {
                    if let Some(sum) = sums.get_mut(at) {
                        sum.add(x);
                    }
                    at += run.step;
                })
            })?;
        }
        Ok(sums)
    }

    /// As [`Reduction::sums`], by several threads, each of which has a part of the array.
    fn shared<T: Element, S: Sum<T>>(&self, kept: &Bounds, from: &Bounds) -> Result<Vec<S>> {
        let threads = of_use(from.elements(), self.threads);
        let along = self.gone.iter().max_by_key(|d| from.count().get(**d)).copied();
        let Some(along) = along.filter(|_| threads > 1) else { return self.sums(kept, from) };
        // A part of an array need not begin where the array does.
        let begins = from.start().get(along).copied().unwrap_or(0);
        let length = from.count().get(along).copied().unwrap_or(0);
        let share = length.div_ceil(threads as u64).max(1);
        let ends = move |i: u64| begins + (i * share).min(length);
        let parts =
            (0..length.div_ceil(share)).filter_map(|i| from.slab(along, ends(i)..ends(i + 1)));
        let queue = Mutex::new(parts);
        let total: Mutex<Option<Result<Vec<S>>>> = Mutex::new(None);
        value::together(threads, &|| {
            loop {
                let next = queue.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some(part) = next else { return };
                let mine = self.sums::<T, S>(kept, &part);
                let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
                *total = Some(match (total.take(), mine) {
                    (Some(Ok(mut all)), Ok(mine)) => {
                        all.iter_mut().zip(mine).for_each(|(all, mine)| all.merge(mine));
                        Ok(all)
                    }
                    (Some(Err(e)), _) | (_, Err(e)) => Err(e),
                    (None, Ok(mine)) => Ok(mine),
                });
            }
        });
        total
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner)
            .unwrap_or_else(|| self.sums(kept, from))
    }

    /// Fills a box of what comes out, in C order.
    fn fill<T: Element, S: Sum<T>>(
        &self,
        kept: &Bounds,
        to: &mut [u8],
        element: usize,
        finish: &(dyn Fn(S, &mut [u8]) -> Result<()> + Sync),
    ) -> Result<()> {
        if kept.elements() < AT_ONCE {
            let sums = self.shared::<T, S>(kept, &back(self.of, self.gone, kept)?)?;
            return sums
                .into_iter()
                .zip(to.chunks_exact_mut(element))
                .try_for_each(|(sum, to)| finish(sum, to));
        }
        // Each part is the work of one thread, however much it adds up.
        let threads = of_use(back(self.of, self.gone, kept)?.elements(), self.threads);
        in_parts(AT_ONCE, kept, element, to, threads, &|part, to| {
            let sums = self.sums::<T, S>(part, &back(self.of, self.gone, part)?)?;
            sums.into_iter()
                .zip(to.chunks_exact_mut(element))
                .try_for_each(|(sum, to)| finish(sum, to))
        })
    }
}

fn number(answer: Answer) -> f64 {
    answer.as_f64().unwrap_or(f64::NAN)
}

/// The sum or the mean of floating-point numbers.
fn float(how: How, sum: &Floats, to: &mut [u8]) -> Result<()> {
    number(if how == How::Mean { sum.0.mean() } else { sum.0.sum() }).write(to);
    Ok(())
}

/// The sum or the mean of whole numbers.
fn exactly(how: How, sum: &Wholes, made: DType, to: &mut [u8]) -> Result<()> {
    if how == How::Mean {
        powers::over(sum.sum, sum.count).write(to);
        return Ok(());
    }
    let fits = match made {
        DType::I64 => i64::try_from(sum.sum).map(|sum| sum.write(to)).is_ok(),
        _ => u64::try_from(sum.sum).map(|sum| sum.write(to)).is_ok(),
    };
    match fits {
        true => Ok(()),
        false => Err(Error::data(format!("a sum is {} and does not fit {made}", sum.sum))
            .with_hint("cast the value to f64 before")),
    }
}

/// The smallest or the largest.
fn end<T: Element>(how: How, sum: &Ends, to: &mut [u8]) -> Result<()> {
    let end = sum.ends.filter(|_| !sum.nan);
    let key = end.map(|(low, high)| if how == How::Min { low } else { high });
    key.map_or_else(|| T::of_f64(f64::NAN), T::of_key).write(to);
    Ok(())
}

/// All four moments of a number.
fn moments(sums: PowerSums, to: &mut [u8]) -> Result<()> {
    for (moment, to) in sums.moments().iter().zip(to.chunks_exact_mut(8)) {
        moment.write(to);
    }
    Ok(())
}

/// Of four moments of each number those that are wanted, as planes.
fn planes(each: &[u8], wanted: &Bounds, to: &mut [u8]) {
    let planes = wanted.start().first().copied().unwrap_or(0)..wanted.end(0);
    for (plane, to) in planes.zip(to.chunks_exact_mut((each.len() / 4).max(1))) {
        let at = usize::try_from(plane).unwrap_or(0) * 8;
        for (four, to) in each.chunks_exact(32).zip(to.chunks_exact_mut(8)) {
            if let Some(moment) = four.get(at..at + 8) {
                to.copy_from_slice(moment);
            }
        }
    }
}

/// Does it.
pub fn reduce(
    of: &Form,
    value: &Value,
    how: How,
    over: Option<&[Dim]>,
    made: &Form,
    wanted: &Bounds,
    threads: usize,
) -> Result<Value> {
    let gone = gone(of, over)?;
    let all = Reduction { of, value, gone: &gone, threads };
    let size = made.dtype.size();
    let mut bytes = zeros(bytes_of(wanted, made.dtype)?)?;
    let floats = is_float(of.dtype);
    with_type!(of.dtype, T => match how {
        How::Sum | How::Mean if floats => {
            all.fill::<T, Floats>(wanted, &mut bytes, size, &|sum, to| float(how, &sum, to))?;
        }
        How::Sum | How::Mean => {
            let finish = |sum: Wholes, to: &mut [u8]| exactly(how, &sum, made.dtype, to);
            all.fill::<T, Wholes>(wanted, &mut bytes, size, &finish)?;
        }
        How::Min | How::Max => {
            all.fill::<T, Ends>(wanted, &mut bytes, size, &|ends, to| end::<T>(how, &ends, to))?;
        }
        How::Moments => {
            let kept = without_first(wanted)?;
            let mut four = zeros(bytes_of(&kept, DType::F64)?.saturating_mul(4))?;
            all.fill::<T, PowerSums>(&kept, &mut four, 32, &moments)?;
            planes(&four, wanted, &mut bytes);
        }
    });
    Value::own(made.dtype, wanted.clone(), Arc::new(bytes))
}
