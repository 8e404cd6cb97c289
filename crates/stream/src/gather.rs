//! Copies the part of an array that lies in a box into another array. Both are boxes of one larger array, in C order.
//!
//! A [`Plan`] says which bytes go where, as loops around runs of bytes: dimensions that lie one after the other in both arrays
//! are one. As both arrays have the last index fastest, steps become shorter from loop to loop in both, and no other order of
//! loops, nor tiles, would touch memory in a better one.
//!
//! ```
//! # use stead_core::Bounds;
//! # use stead_stream::gather;
//! // Two rows of three bytes, of which the last column is wanted.
//! let (block, column) = (Bounds::new([0, 0], [2, 3])?, Bounds::new([0, 2], [2, 1])?);
//! let mut wanted = [0; 2];
//! assert_eq!(gather::copy(b"abcdef", &block, &mut wanted, &column, 1)?, 2);
//! assert_eq!(&wanted, b"cf");
//! # Ok::<(), stead_core::Error>(())
//! ```
//!
//! Several threads may copy, each into a part of the target that is its own: [`Plan::pieces`] cuts the copy of one large block,
//! [`parts`] cuts the target where many blocks lie in it. Who has threads decides how many.

use std::ops::Range;
use stead_core::{Bounds, Error, Result};

/// What a thread copies at a time goes past the caches if it is so many bytes, in runs of so many: caches have no room for much more, and a
/// run begins and ends within lines of a cache.
const PAST: usize = 8 << 20;
const LEAST_PAST: usize = 2 << 10;

/// Whether a thread that copies so many bytes does so past the caches.
pub(crate) fn is_past_caches(bytes: usize) -> bool {
    bytes >= PAST
}

/// Bytes of a part of a block that is fetched. Each part is in memory several times on its way: where it is sent from, where it comes to,
/// and with those that carry it.
pub(crate) const PART: usize = 1 << 20;

/// A loop of a copy: how many times, and how many bytes each array goes on each time. Steps are not 0, and what is within the
/// loop takes no more than a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Loop {
    times: usize,
    source: usize,
    target: usize,
}

/// What goes where when one box of an array is copied into another one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The outermost first.
    loops: Vec<Loop>,
    /// Bytes that lie together in both; 0 if nothing is to be copied.
    run: usize,
    /// Where the first run begins.
    source: usize,
    target: usize,
    /// Bytes of the arrays.
    source_bytes: usize,
    target_bytes: usize,
}

/// Copies the elements that lie in both boxes, of `element` bytes each. Tells how many bytes they are.
///
/// # Errors
/// As [`Plan::new`] and [`Plan::copy`].
pub fn copy(
    source: &[u8],
    source_bounds: &Bounds,
    target: &mut [u8],
    target_bounds: &Bounds,
    element: usize,
) -> Result<usize> {
    Plan::new(source_bounds, target_bounds, element)?.copy(source, target)
}

/// Bytes of an array of `bounds`.
fn bytes_of(bounds: &Bounds, element: usize) -> Result<usize> {
    let bytes = usize::try_from(bounds.elements()).ok().and_then(|n| n.checked_mul(element));
    bytes.filter(|b| isize::try_from(*b).is_ok()).ok_or_else(|| {
        Error::usage(format!(
            "the box {bounds} with elements of {element} bytes is more than memory can have"
        ))
        .with_hint("ask for a smaller box")
    })
}

impl Plan {
    /// For arrays of elements of `element` bytes that are these boxes, whole and in C order.
    ///
    /// # Errors
    /// `Usage` if the boxes have not the same number of dimensions, for elements of no bytes, and for boxes that no memory can hold.
    pub fn new(source: &Bounds, target: &Bounds, element: usize) -> Result<Plan> {
        if source.ndim() != target.ndim() {
            return Err(Error::usage(format!(
                "the box {target} has {} dimensions, the array it is of has {}",
                target.ndim(),
                source.ndim()
            ))
            .with_hint("give a start and a count for each dimension of the array"));
        }
        if element == 0 {
            return Err(Error::usage("elements of 0 bytes"));
        }
        let mut plan = Plan {
            loops: Vec::new(),
            run: 0,
            source: 0,
            target: 0,
            source_bytes: bytes_of(source, element)?,
            target_bytes: bytes_of(target, element)?,
        };
        let Some(both) = source.intersection(target) else { return Ok(plan) };
        plan.run = element;
        // From here on no count is 0, so that no number below is more than the bytes of its array.
        let (mut source_step, mut target_step) = (element, element);
        let sides = both.start().iter().zip(both.count());
        let sources = source.start().iter().zip(source.count());
        let targets = target.start().iter().zip(target.count());
        for ((side, from), to) in sides.zip(sources).zip(targets).rev() {
            let times = *side.1 as usize;
            plan.source += (side.0 - from.0) as usize * source_step;
            plan.target += (side.0 - to.0) as usize * target_step;
            if times > 1 {
                match plan.loops.last_mut() {
                    None if source_step == plan.run && target_step == plan.run => plan.run *= times,
                    Some(l)
                        if l.times * l.source == source_step
                            && l.times * l.target == target_step =>
                    {
                        l.times *= times;
                    }
                    _ => plan.loops.push(Loop { times, source: source_step, target: target_step }),
                }
            }
            source_step *= *from.1 as usize;
            target_step *= *to.1 as usize;
        }
        plan.loops.reverse();
        Ok(plan)
    }

    /// How many bytes are copied.
    pub fn bytes(&self) -> usize {
        self.loops.iter().map(|l| l.times).product::<usize>() * self.run
    }

    /// Where in the source all that is copied lies, if that is the whole target and one run.
    pub(crate) fn one_run(&self) -> Option<Range<usize>> {
        let whole = self.loops.is_empty() && self.run == self.target_bytes;
        whole.then(|| self.source..self.source + self.run)
    }

    /// Copies, and tells how many bytes.
    ///
    /// # Errors
    /// `Internal` if the arrays are not as long as their boxes.
    pub fn copy(&self, source: &[u8], target: &mut [u8]) -> Result<usize> {
        for (what, len, said) in [
            ("source", source.len(), self.source_bytes),
            ("target", target.len(), self.target_bytes),
        ] {
            if len != said {
                return Err(Error::internal(format!(
                    "the {what} of a copy has {len} bytes, its box {said}"
                )));
            }
        }
        if self.run == 0 {
            return Ok(0);
        }
        let (Some(source), Some(target)) =
            (source.get(self.source..), target.get_mut(self.target..))
        else {
            return Err(Error::internal("a copy begins beyond its arrays"));
        };
        let walk = match self.run {
            // What a processor moves in a few instructions is moved without a call.
            1 => walk::<1>,
            2 => walk::<2>,
            3 => walk::<3>,
            4 => walk::<4>,
            6 => walk::<6>,
            8 => walk::<8>,
            12 => walk::<12>,
            16 => walk::<16>,
            24 => walk::<24>,
            32 => walk::<32>,
            48 => walk::<48>,
            64 => walk::<64>,
            _ => walk::<ANY>,
        };
        let run = Run { len: self.run, past: is_past_caches(self.target_bytes) };
        walk(&self.loops, run, source, target);
        Ok(self.bytes())
    }

    /// Cuts the copy for `n` threads: plans, each with the part of the target that it copies into. They take about as long
    /// each; there may be fewer, or up to twice as many. The source of each is the whole source.
    ///
    /// # Errors
    /// `Internal` if the target is not as long as its box.
    pub fn pieces<'t>(&self, target: &'t mut [u8], n: usize) -> Result<Vec<(Plan, &'t mut [u8])>> {
        if target.len() != self.target_bytes {
            return Err(Error::internal(format!(
                "the target of a copy has {} bytes, its box {}",
                target.len(),
                self.target_bytes
            )));
        }
        let mut plans = Vec::new();
        if self.run > 0 {
            self.cut(n.max(1), &mut plans);
        }
        let (mut rest, mut at) = (target, 0);
        let mut pieces = Vec::with_capacity(plans.len());
        for mut plan in plans {
            // In the order of the target, and none reaches into the next one.
            let begins = plan.target - at;
            let (_, from) = rest.split_at_mut_checked(begins).ok_or_else(astray)?;
            let (part, after) = from.split_at_mut_checked(plan.span()).ok_or_else(astray)?;
            at = plan.target + part.len();
            rest = after;
            (plan.target, plan.target_bytes) = (0, part.len());
            pieces.push((plan, part));
        }
        Ok(pieces)
    }

    /// Bytes of the target from the first that is copied to the last.
    fn span(&self) -> usize {
        self.loops.iter().map(|l| (l.times - 1) * l.target).sum::<usize>() + self.run
    }

    /// Cuts what is to be copied into about `n` plans, in the order of the target.
    fn cut(&self, n: usize, plans: &mut Vec<Plan>) {
        let Some((outer, rest)) = self.loops.split_first() else {
            // One run. Cuts are at multiples of what caches and pages have, counted from its beginning.
            let unit = if self.run / n >= 1 << 14 { 1 << 12 } else { 64 };
            for (from, len) in shares(self.run.div_ceil(unit), n) {
                let (from, end) = (from * unit, self.run.min((from + len) * unit));
                let (source, target) = (self.source + from, self.target + from);
                plans.push(Plan { run: end - from, source, target, ..self.clone() });
            }
            return;
        };
        let at = |i: usize, loops: Vec<Loop>| Plan {
            loops,
            source: self.source + i * outer.source,
            target: self.target + i * outer.target,
            ..*self
        };
        if outer.times >= n {
            for (from, times) in shares(outer.times, n) {
                let first = Loop { times, ..*outer };
                plans.push(at(from, [&[first], rest].concat()));
            }
        } else {
            for i in 0..outer.times {
                at(i, rest.to_vec()).cut(n.div_ceil(outer.times), plans);
            }
        }
    }
}

fn astray() -> Error {
    Error::internal("the pieces of a copy overlap")
}

/// `total` in at most `n` shares that differ by no more than one: where each begins, and how much it is.
fn shares(total: usize, n: usize) -> impl Iterator<Item = (usize, usize)> {
    let n = n.min(total).max(1);
    let (each, more) = (total / n, total % n);
    (0..n).map(move |i| (i * each + i.min(more), each + usize::from(i < more)))
}

/// How long a run is, and how it is copied.
#[derive(Debug, Clone, Copy)]
struct Run {
    len: usize,
    past: bool,
}

/// A run of no fixed length.
const ANY: usize = 0;

/// Copies what the loops say, from the beginning of both on.
fn walk<const RUN: usize>(loops: &[Loop], run: Run, source: &[u8], target: &mut [u8]) {
    let Some((outer, rest)) = loops.split_first() else {
        return one::<RUN>(run, source, target);
    };
    if RUN == ANY && rest.is_empty() && run.past && run.len >= LEAST_PAST {
        let mut from = source;
        for to in target.chunks_mut(outer.target).take(outer.times) {
            let then = from.get(outer.source..).unwrap_or_default();
            if let (Some(to), Some(from)) = (to.get_mut(..run.len), from.get(..run.len)) {
                stead_simd::copy_past_caches(from, to, then);
            }
            from = then;
        }
        return;
    }
    // A chunk for each time; the last one ends with its array.
    let steps = target.chunks_mut(outer.target).zip(source.chunks(outer.source)).take(outer.times);
    if rest.is_empty() {
        steps.for_each(|(to, from)| one::<RUN>(run, from, to));
    } else {
        steps.for_each(|(to, from)| walk::<RUN>(rest, run, from, to));
    }
}

#[inline(always)]
fn one<const RUN: usize>(run: Run, source: &[u8], target: &mut [u8]) {
    if RUN == ANY {
        if let (Some(to), Some(from)) = (target.get_mut(..run.len), source.get(..run.len)) {
            move_run(from, to, run.past);
        }
    } else if let (Some(to), Some(from)) =
        (target.first_chunk_mut::<RUN>(), source.first_chunk::<RUN>())
    {
        *to = *from;
    }
}

/// Copies a run. What is neither short nor long libraries copy by one instruction of the processor (`rep movsb`), which on some takes
/// three times as long where the target begins a few bytes behind the source within a page: as rows of an array that lies in pages do,
/// copied to one that lies behind what `malloc` keeps of it. Pieces as short as these are copied without it.
///
/// `past` caches goes what is part of so much ([`is_past_caches`]) that nobody will find it there.
#[inline]
pub(crate) fn move_run(from: &[u8], to: &mut [u8], past: bool) {
    debug_assert_eq!(from.len(), to.len());
    const PIECE: usize = 2 << 10;
    const LONG: usize = 1 << 20;
    let behind = to.as_ptr().addr().wrapping_sub(from.as_ptr().addr()) % (4 << 10);
    if past && to.len() >= LEAST_PAST {
        stead_simd::copy_past_caches(from, to, &[]);
    } else if (PIECE..LONG).contains(&to.len()) && (1..32).contains(&behind) {
        to.chunks_mut(PIECE)
            .zip(from.chunks(PIECE))
            .for_each(|(to, from)| to.copy_from_slice(from));
    } else {
        to.copy_from_slice(from);
    }
}

/// Cuts a box into about `n` boxes whose elements lie one after the other in its C order. There may be fewer, or up to twice as many.
pub fn boxes(bounds: &Bounds, n: usize) -> Vec<Bounds> {
    let mut boxes = Vec::new();
    cut(bounds, 0, n.max(1), &mut boxes);
    boxes
}

/// Cuts an array into about `n` parts that are boxes too and lie one after the other: threads fill one each, from as many
/// blocks as lie in it. There may be fewer, or up to twice as many.
///
/// # Errors
/// `Usage` for a box that no memory can hold, `Internal` if the array is not as long as its box.
pub fn parts<'t>(
    target: &'t mut [u8],
    bounds: &Bounds,
    element: usize,
    n: usize,
) -> Result<Vec<(Bounds, &'t mut [u8])>> {
    let bytes = bytes_of(bounds, element)?;
    if target.len() != bytes {
        return Err(Error::internal(format!(
            "an array of the box {bounds} has {} bytes and not {bytes}",
            target.len()
        )));
    }
    let boxes = boxes(bounds, n);
    let mut rest = target;
    let mut parts = Vec::with_capacity(boxes.len());
    for part in boxes {
        let len = bytes_of(&part, element)?;
        let (mine, after) = rest.split_at_mut_checked(len).ok_or_else(astray)?;
        rest = after;
        parts.push((part, mine));
    }
    Ok(parts)
}

/// Cuts a box into boxes of about so many bytes at most, but for what a single element takes.
pub(crate) fn small(bounds: &Bounds, element: usize, most: usize) -> Vec<Bounds> {
    let bytes = usize::try_from(bounds.elements()).unwrap_or(usize::MAX).saturating_mul(element);
    let mut boxes = Vec::new();
    cut(bounds, 0, bytes.div_ceil(most.max(1)).max(1), &mut boxes);
    boxes
}

/// Cuts along the slowest dimension that has more than one index, from `d` on; where that has too few, each of them again.
fn cut(bounds: &Bounds, d: usize, n: usize, boxes: &mut Vec<Bounds>) {
    let longer = |(_, side): &(usize, std::ops::Range<u64>)| side.end - side.start > 1;
    let Some((d, side)) = bounds.sides().enumerate().skip(d).find(longer).filter(|_| n > 1) else {
        boxes.push(bounds.clone());
        return;
    };
    // As many as memory can hold, unless there is nothing in it: then one part is enough.
    let Ok(count) = usize::try_from(side.end - side.start) else {
        boxes.push(bounds.clone());
        return;
    };
    for (from, len) in shares(count, n) {
        let from = side.start + from as u64;
        if let Some(part) = bounds.slab(d, from..from + len as u64) {
            cut(&part, d + 1, n.div_ceil(count), boxes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::Kind;

    fn bounds(start: &[u64], count: &[u64]) -> Bounds {
        Bounds::new(start, count).unwrap()
    }

    /// Every index of a box, in C order.
    fn all(b: &Bounds) -> Vec<Vec<u64>> {
        b.sides().fold(vec![vec![]], |before, side| {
            let longer = |i: &Vec<u64>| {
                let i = i.clone();
                side.clone().map(move |n| i.iter().copied().chain([n]).collect::<Vec<u64>>())
            };
            before.iter().flat_map(longer).collect()
        })
    }

    /// What a copy makes of `target`, element by element, and how many bytes it copies.
    fn naive(source: &[u8], of: &Bounds, target: &mut [u8], to: &Bounds, element: usize) -> usize {
        let places: std::collections::HashMap<Vec<u64>, usize> =
            all(of).into_iter().enumerate().map(|(i, index)| (index, i)).collect();
        let mut copied = 0;
        for (i, index) in all(to).into_iter().enumerate() {
            if let Some(from) = places.get(&index) {
                let from = &source[from * element..(from + 1) * element];
                target[i * element..(i + 1) * element].copy_from_slice(from);
                copied += element;
            }
        }
        copied
    }

    fn filled(b: &Bounds, element: usize, from: u8) -> Vec<u8> {
        (0..b.elements() as usize * element).map(|i| (i % 251) as u8 ^ from).collect()
    }

    #[test]
    fn what_goes_past_the_caches_is_what_was_there() {
        let (rows, columns, element) = (1100, 2100, 8);
        let whole = bounds(&[0, 0], &[rows, columns]);
        let source = filled(&whole, element, 0);
        let row = columns as usize * element;
        // Runs of part of a row, and whole rows, which are one run.
        for (first, n, left, wide) in [(3, 1000, 5, 2001), (1, 1098, 0, 2100)] {
            let part = bounds(&[first, left], &[n, wide]);
            let mut target = vec![0xA5; n as usize * wide as usize * element];
            assert!(is_past_caches(target.len()));
            assert_eq!(copy(&source, &whole, &mut target, &part, element).unwrap(), target.len());
            let wide = wide as usize * element;
            for (i, target) in target.chunks(wide).enumerate() {
                let from = (first as usize + i) * row + left as usize * element;
                assert!(*target == source[from..from + wide], "row {i} of {part}");
            }
        }
        let mut target = vec![0; source.len()];
        crate::threads::copy(&source, &mut target, 2, &std::sync::atomic::AtomicU64::new(0));
        assert!(is_past_caches(source.len() / 2) && target == source);
    }

    #[test]
    fn dimensions_that_lie_together_are_one() {
        let run = |source: &Bounds, target: &Bounds| {
            let plan = Plan::new(source, target, 8).unwrap();
            (plan.loops.iter().map(|l| l.times).collect::<Vec<_>>(), plan.run)
        };
        let whole = bounds(&[0; 4], &[5, 6, 7, 8]);
        assert_eq!(run(&whole, &whole), (vec![], 5 * 6 * 7 * 8 * 8));
        // Rows are one run, and so is a part of one index of the first dimension.
        assert_eq!(run(&whole, &bounds(&[1, 0, 0, 0], &[3, 6, 7, 8])), (vec![], 3 * 6 * 7 * 8 * 8));
        assert_eq!(run(&whole, &bounds(&[1, 2, 0, 0], &[1, 3, 7, 8])), (vec![], 3 * 7 * 8 * 8));
        // A part of the second dimension: runs of what is below it.
        assert_eq!(run(&whole, &bounds(&[0, 2, 0, 0], &[5, 3, 7, 8])), (vec![5], 3 * 7 * 8 * 8));
        // A column: all that is above it is one loop, as its steps are even in both.
        assert_eq!(run(&whole, &bounds(&[0, 0, 0, 3], &[5, 6, 7, 1])), (vec![5 * 6 * 7], 8));
        assert_eq!(run(&bounds(&[0, 0, 0, 3], &[5, 6, 7, 1]), &whole), (vec![5 * 6 * 7], 8));
        // Two loops become one around a third.
        assert_eq!(run(&whole, &bounds(&[0, 0, 1, 3], &[5, 6, 3, 2])), (vec![5 * 6, 3], 16));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let (line, square) = (bounds(&[0], &[4]), bounds(&[0, 0], &[2, 2]));
        let e = copy(&[0; 4], &line, &mut [0; 4], &square, 1).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.message().contains("2 dimensions"), "{e}");
        assert_eq!(Plan::new(&line, &line, 0).unwrap_err().kind(), Kind::Usage);
        let huge = bounds(&[0], &[u64::MAX / 8]);
        let e = Plan::new(&huge, &line, 8).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.message().contains("memory"), "{e}");
        for (source, target) in [(3, 4), (5, 4), (4, 3), (4, 5)] {
            let e = copy(&vec![0; source], &line, &mut vec![0; target], &line, 1).unwrap_err();
            assert_eq!(e.kind(), Kind::Internal);
        }
        let plan = Plan::new(&line, &line, 1).unwrap();
        assert!(plan.pieces(&mut [0; 5], 2).is_err() && parts(&mut [0; 5], &line, 1, 2).is_err());
    }

    #[test]
    fn runs_are_copied_wherever_they_lie_in_a_page() {
        let page = 4 << 10;
        let from: Vec<u8> = (0..(1 << 20) + 3 * page).map(|i| (i % 251) as u8).collect();
        for len in [1, 2047, 2048, 2049, 16384, 16385, (1 << 20) - 1, 1 << 20] {
            for behind in [0, 1, 16, 31, 32, page - 16] {
                let mut to = vec![0xFF; len + 2 * page];
                let apart = to.as_ptr().addr().wrapping_sub(from.as_ptr().addr());
                let at = behind.wrapping_sub(apart) % page;
                move_run(&from[..len], &mut to[at..at + len], false);
                assert!(to[at..at + len] == from[..len], "{len} bytes, {behind} behind");
                assert!(to[..at].iter().chain(&to[at + len..]).all(|b| *b == 0xFF));
            }
        }
    }

    #[test]
    fn scalars_are_copied() {
        let scalar = bounds(&[], &[]);
        let mut target = [0; 8];
        assert_eq!(copy(&[7; 8], &scalar, &mut target, &scalar, 8).unwrap(), 8);
        assert_eq!(target, [7; 8]);
    }

    #[test]
    fn few_elements_at_huge_indices_are_copied() {
        let far = 1 << 63;
        let source = bounds(&[far, far - 1, 0], &[2, 3, 2]);
        let target = bounds(&[far + 1, far, 1], &[1, 3, 3]);
        let from = filled(&source, 4, 0);
        let (mut mine, mut want) = (filled(&target, 4, 77), filled(&target, 4, 77));
        let n = naive(&from, &source, &mut want, &target, 4);
        assert_eq!(copy(&from, &source, &mut mine, &target, 4).unwrap(), n);
        assert_eq!((mine, n), (want, 8));
    }

    /// Two boxes of small counts, 0 among them, of as many dimensions, near 0 or near what can be counted.
    fn two() -> impl Strategy<Value = (Bounds, Bounds)> {
        (0usize..6, any::<bool>()).prop_flat_map(|(ndim, far)| {
            let base = if far { u64::MAX - 8 } else { 0 };
            let one = move || {
                let side = (0u64..3, prop_oneof![1 => 0u64..1, 20 => 1u64..5]);
                prop::collection::vec(side, ndim).prop_map(move |sides| {
                    let (start, count): (Vec<u64>, Vec<u64>) =
                        sides.into_iter().map(|(s, c)| (base + s, c)).unzip();
                    bounds(&start, &count)
                })
            };
            (one(), one())
        })
    }

    proptest! {
        #[test]
        fn a_copy_is_what_one_element_by_element_is((source, target) in two(), element in 1usize..18) {
            let from = filled(&source, element, 0);
            let mut mine = filled(&target, element, 0xa5);
            let mut want = mine.clone();
            let n = naive(&from, &source, &mut want, &target, element);
            let plan = Plan::new(&source, &target, element).unwrap();
            prop_assert_eq!(plan.bytes(), n);
            prop_assert_eq!(plan.copy(&from, &mut mine).unwrap(), n);
            prop_assert_eq!(mine, want);
        }

        #[test]
        fn pieces_together_are_the_copy((source, target) in two(), element in 1usize..70, n in 0usize..20) {
            let from = filled(&source, element, 0);
            let mut mine = filled(&target, element, 0xa5);
            let mut want = mine.clone();
            let plan = Plan::new(&source, &target, element).unwrap();
            let whole = plan.copy(&from, &mut want).unwrap();
            let pieces = plan.pieces(&mut mine, n).unwrap();
            prop_assert!(pieces.len() <= 2 * n.max(1));
            let mut copied = 0;
            for (piece, part) in pieces {
                let bytes = piece.copy(&from, part).unwrap();
                prop_assert!(bytes > 0);
                copied += bytes;
            }
            prop_assert_eq!(copied, whole);
            prop_assert_eq!(mine, want);
        }

        #[test]
        fn parts_are_all_of_an_array((source, target) in two(), element in 1usize..9, n in 0usize..20) {
            let from = filled(&source, element, 0);
            let mut mine = filled(&target, element, 0xa5);
            let mut want = mine.clone();
            let whole = copy(&from, &source, &mut want, &target, element).unwrap();
            let cuts = parts(&mut mine, &target, element, n).unwrap();
            prop_assert!(cuts.len() <= 2 * n.max(1));
            prop_assert!(cuts.len() as u64 >= (n as u64).min(target.elements()) || target.is_empty());
            let mut copied = 0;
            for (bounds, part) in cuts {
                copied += copy(&from, &source, part, &bounds, element).unwrap();
            }
            prop_assert_eq!(copied, whole);
            prop_assert_eq!(mine, want);
        }

        #[test]
        fn shares_are_even(total in 0usize..1000, n in 1usize..40) {
            let all: Vec<_> = shares(total, n).collect();
            prop_assert!(all.len() <= n);
            let mut next = 0;
            for (from, len) in &all {
                prop_assert_eq!(*from, next);
                prop_assert!(*len >= total / n.min(total).max(1) && *len <= total.div_ceil(n));
                next += len;
            }
            prop_assert_eq!(next, total);
        }
    }

    #[test]
    fn a_large_run_is_cut_at_pages() {
        let line = bounds(&[0], &[1 << 17]);
        let from = filled(&line, 8, 0);
        let mut mine = vec![0; from.len()];
        let plan = Plan::new(&line, &line, 8).unwrap();
        let pieces = plan.pieces(&mut mine, 3).unwrap();
        assert_eq!(pieces.iter().map(|(p, _)| p.bytes()).sum::<usize>(), from.len());
        assert!(pieces.len() == 3 && pieces.iter().all(|(p, _)| p.source % 4096 == 0));
        for (piece, part) in pieces {
            piece.copy(&from, part).unwrap();
        }
        assert_eq!(mine, from);
    }
}
