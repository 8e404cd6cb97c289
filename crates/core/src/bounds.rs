//! Boxes in n-d arrays: where a part of an array begins in each dimension, and how far it goes.

use crate::{Error, Result, Shape, limits};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// Boxes of so many dimensions have their numbers in themselves: there may be 100,000 of them in a step of a stream.
const FEW: usize = 4;

/// A box: a start and a count in each of at most [`limits::MAX_DIMS`] dimensions. That of a scalar has no dimension and one
/// element.
///
/// Every start plus its count fits `u64`, and so does the product of all counts that are not zero.
///
/// As text it is what NumPy takes as an index, the ends not included: `[0:5, 10:20]`.
///
/// ```
/// # use stead_core::{Bounds, Shape};
/// let block = Bounds::new([0, 10], [5, 10])?;
/// let whole = Bounds::whole(&Shape::new(vec![4, 15])?);
/// let both = block.intersection(&whole);
/// assert_eq!(both, Some("[0:4, 10:15]".parse()?));
/// assert_eq!(both.map(|b| b.elements()), Some(20));
/// # Ok::<(), stead_core::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "Plain", try_from = "Plain")]
pub struct Bounds(Numbers);

/// The starts of all dimensions, then their counts.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Numbers {
    /// `2 * ndim` numbers, then zeros. `ndim` is at most `FEW`.
    Few { ndim: u8, of: [u64; 2 * FEW] },
    /// Of more than `FEW` dimensions.
    Many(Box<[u64]>),
}

/// As it is written where programs read it.
#[derive(Serialize, Deserialize)]
struct Plain {
    start: Vec<u64>,
    count: Vec<u64>,
}

impl From<Bounds> for Plain {
    fn from(b: Bounds) -> Self {
        Plain { start: b.start().to_vec(), count: b.count().to_vec() }
    }
}

impl TryFrom<Plain> for Bounds {
    type Error = Error;

    fn try_from(p: Plain) -> Result<Self> {
        Bounds::new(p.start, p.count)
    }
}

impl Bounds {
    /// Checks the number of dimensions, and that ends and the number of elements fit 64 bits.
    ///
    /// # Errors
    /// `Usage` if they do not, or if there are not as many counts as starts.
    pub fn new(start: impl AsRef<[u64]>, count: impl AsRef<[u64]>) -> Result<Bounds> {
        let (start, count) = (start.as_ref(), count.as_ref());
        if start.len() != count.len() {
            return Err(Error::usage(format!(
                "a box with {} starts and {} counts",
                start.len(),
                count.len()
            ))
            .with_hint("give a start and a count for each dimension of the array"));
        }
        if start.len() > limits::MAX_DIMS {
            return Err(Error::usage(format!(
                "a box of {} dimensions; at most {} are supported",
                start.len(),
                limits::MAX_DIMS
            )));
        }
        if let Some((s, c)) = start.iter().zip(count).find(|(s, c)| s.checked_add(**c).is_none()) {
            return Err(Error::usage(format!(
                "a box that starts at {s} and has {c} elements there ends beyond what 64 bits can count"
            )));
        }
        // Zeros must not hide an overflow of the others: parts of parts are multiplied in any order.
        let filled = count.iter().filter(|c| **c != 0);
        if filled.copied().try_fold(1u64, u64::checked_mul).is_none() {
            return Err(Error::usage(format!(
                "a box with counts {count:?} has more elements than 64 bits can count"
            )));
        }
        let sides = start.iter().zip(count).map(|(s, c)| (*s, *c));
        Ok(Bounds::of(start.len(), sides))
    }

    /// All of an array of this shape.
    pub fn whole(shape: &Shape) -> Bounds {
        // A shape promises what a box promises.
        Bounds::of(shape.ndim(), shape.dims().iter().map(|n| (0, *n)))
    }

    /// Of `ndim` pairs of start and count, which keep what a box promises.
    fn of(ndim: usize, sides: impl Iterator<Item = (u64, u64)>) -> Bounds {
        let fill = |numbers: &mut [u64]| {
            let (start, count) = numbers.split_at_mut(ndim);
            for ((s, c), side) in start.iter_mut().zip(count).zip(sides) {
                (*s, *c) = side;
            }
        };
        match u8::try_from(ndim) {
            Ok(few) if ndim <= FEW => {
                let mut of = [0; 2 * FEW];
                fill(&mut of);
                Bounds(Numbers::Few { ndim: few, of })
            }
            _ => {
                let mut of = vec![0; 2 * ndim].into_boxed_slice();
                fill(&mut of);
                Bounds(Numbers::Many(of))
            }
        }
    }

    /// Starts and counts.
    #[inline]
    fn parts(&self) -> (&[u64], &[u64]) {
        match &self.0 {
            Numbers::Few { ndim, of } => {
                let (start, rest) = of.split_at(usize::from(*ndim).min(FEW));
                (start, rest.get(..start.len()).unwrap_or_default())
            }
            Numbers::Many(of) => of.split_at(of.len() / 2),
        }
    }

    /// Number of dimensions.
    #[inline]
    pub fn ndim(&self) -> usize {
        self.start().len()
    }

    /// The first index in each dimension.
    #[inline]
    pub fn start(&self) -> &[u64] {
        self.parts().0
    }

    /// How many indices there are in each dimension.
    #[inline]
    pub fn count(&self) -> &[u64] {
        self.parts().1
    }

    /// The first index of dimension `d` that is beyond the box; 0 if there is no such dimension.
    #[inline]
    pub fn end(&self, d: usize) -> u64 {
        let (start, count) = self.parts();
        start.get(d).zip(count.get(d)).map_or(0, |(s, c)| s + c)
    }

    /// The indices of each dimension.
    #[inline]
    pub fn sides(&self) -> impl ExactSizeIterator<Item = Range<u64>> + '_ {
        let (start, count) = self.parts();
        start.iter().zip(count).map(|(s, c)| *s..s + c)
    }

    /// Number of elements; 1 for a scalar.
    pub fn elements(&self) -> u64 {
        self.count().iter().product()
    }

    /// True if there is no element.
    pub fn is_empty(&self) -> bool {
        self.count().contains(&0)
    }

    /// Bytes from an element to the next one along each dimension, if the box is an array of its own in C order, with elements of so many bytes.
    pub fn strides(&self, element: usize) -> Vec<usize> {
        let mut step = element;
        let mut strides: Vec<usize> = self
            .count()
            .iter()
            .rev()
            .map(|n| {
                let mine = step;
                step = step.saturating_mul(usize::try_from(*n).unwrap_or(usize::MAX));
                mine
            })
            .collect();
        strides.reverse();
        strides
    }

    /// True if all sides of `other` lie within the sides of this one, even if it is empty. Boxes of other dimensions do not.
    #[inline]
    pub fn contains(&self, other: &Bounds) -> bool {
        self.ndim() == other.ndim()
            && self.sides().zip(other.sides()).all(|(a, b)| a.start <= b.start && b.end <= a.end)
    }

    /// True if there is an element that both have.
    #[inline]
    pub fn meets(&self, other: &Bounds) -> bool {
        let share = |(a, b): (Range<u64>, Range<u64>)| a.start.max(b.start) < a.end.min(b.end);
        self.ndim() == other.ndim() && self.sides().zip(other.sides()).all(share)
    }

    /// The elements that both have; `None` if there is none, or if they have not the same dimensions.
    pub fn intersection(&self, other: &Bounds) -> Option<Bounds> {
        let both = |(a, b): (Range<u64>, Range<u64>)| {
            let start = a.start.max(b.start);
            (start, a.end.min(b.end).saturating_sub(start))
        };
        self.meets(other)
            .then(|| Bounds::of(self.ndim(), self.sides().zip(other.sides()).map(both)))
    }

    /// The elements whose index in dimension `d` is in `range`; `None` if there is none, or no such dimension.
    pub fn slab(&self, d: usize, range: Range<u64>) -> Option<Bounds> {
        let cut = |(i, side): (usize, Range<u64>)| {
            let (start, end) = if i == d {
                (side.start.max(range.start), side.end.min(range.end))
            } else {
                (side.start, side.end)
            };
            (start, end.saturating_sub(start))
        };
        let slab = Bounds::of(self.ndim(), self.sides().enumerate().map(cut));
        (d < self.ndim() && !slab.is_empty()).then_some(slab)
    }

    /// True if it lies in an array of this shape, which must have the same number of dimensions.
    pub fn within(&self, shape: &Shape) -> bool {
        self.ndim() == shape.ndim() && self.sides().zip(shape.dims()).all(|(s, n)| s.end <= *n)
    }
}

impl fmt::Display for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (d, side) in self.sides().enumerate() {
            let comma = if d == 0 { "" } else { ", " };
            write!(f, "{comma}{}:{}", side.start, side.end)?;
        }
        f.write_str("]")
    }
}

impl fmt::Debug for Bounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Bounds {
    type Err = Error;

    /// Reads `[0:5, 10:20]`, or the same without brackets. `[]` is the box of a scalar.
    fn from_str(text: &str) -> Result<Bounds> {
        let shown: String = text.chars().take(80).flat_map(char::escape_debug).collect();
        let no_box = |why: String| {
            Error::usage(format!("'{shown}' is no box: {why}")).with_hint(
                "give the first index and the first one beyond for each dimension: [0:5, 10:20]",
            )
        };
        let text = text.trim();
        let inner = match (text.strip_prefix('['), text.ends_with(']')) {
            (Some(rest), true) => rest.strip_suffix(']').unwrap_or_default(),
            (None, false) => text,
            _ => return Err(no_box("one of its brackets is missing".to_string())),
        };
        let mut start = Vec::new();
        let mut count = Vec::new();
        // `[]` has no dimension; nothing at all is a mistake.
        let sides =
            if inner.trim().is_empty() && text.starts_with('[') { None } else { Some(inner) };
        for side in sides.into_iter().flat_map(|s| s.split(',')) {
            let side = side.trim();
            let known: String = side.chars().take(40).flat_map(char::escape_debug).collect();
            let Some((from, to)) = side.split_once(':') else {
                return Err(no_box(format!("'{known}' has no ':' between start and end")));
            };
            let (from, to) = (index(from).map_err(&no_box)?, index(to).map_err(&no_box)?);
            let Some(n) = to.checked_sub(from) else {
                return Err(no_box(format!("in '{known}' the end comes before the start")));
            };
            start.push(from);
            count.push(n);
        }
        Bounds::new(start, count).map_err(|e| no_box(e.message().to_string()))
    }
}

/// An index; otherwise, why it is none.
fn index(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let shown = || text.chars().take(40).flat_map(char::escape_debug).collect::<String>();
    if !digits {
        return Err(format!("'{}' is no index", shown()));
    }
    text.parse().map_err(|_| format!("{} is more than 64 bits can count", shown()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn bounds(start: &[u64], count: &[u64]) -> Bounds {
        Bounds::new(start, count).unwrap()
    }

    #[test]
    fn what_is_no_box_is_refused() {
        let most = u64::MAX;
        for (start, count, says) in [
            (vec![0, 0], vec![1], "2 starts and 1 counts"),
            (vec![0; 33], vec![1; 33], "33 dimensions"),
            (vec![0, most], vec![1, 1], "ends beyond"),
            (vec![2], vec![most - 1], "ends beyond"),
            (vec![0, 0], vec![1 << 32, 1 << 32], "more elements"),
            (vec![0, 0, 0], vec![1 << 32, 0, 1 << 32], "more elements"),
        ] {
            let e = Bounds::new(&start, &count).unwrap_err();
            assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
        }
        let far = bounds(&[most - 1, most], &[1, 0]);
        assert_eq!((far.end(0), far.end(1), far.end(2)), (most, most, 0));
        assert_eq!(bounds(&[1; 32], &[1; 32]).elements(), 1);
        assert_eq!(bounds(&[0, 0], &[most, 1]).elements(), most);
    }

    #[test]
    fn strides_are_those_of_an_array_in_c_order() {
        assert_eq!(bounds(&[5, 6, 7], &[2, 3, 4]).strides(8), [96, 32, 8]);
        assert_eq!(bounds(&[1], &[9]).strides(1), [1]);
        assert_eq!(bounds(&[], &[]).strides(8), [0; 0]);
        assert_eq!(bounds(&[0, 0], &[0, 3]).strides(2), [6, 2]);
        // What no memory can have is as far as can be.
        let far = bounds(&[0, 0], &[2, u64::MAX / 2]).strides(8);
        assert_eq!(far, [usize::MAX, 8]);
    }

    #[test]
    fn a_scalar_has_one_element() {
        let scalar = Bounds::whole(&Shape::new(vec![]).unwrap());
        assert_eq!((scalar.ndim(), scalar.elements(), scalar.is_empty()), (0, 1, false));
        assert_eq!(scalar.to_string(), "[]");
        assert_eq!(scalar.intersection(&scalar), Some(scalar.clone()));
        assert!(scalar.contains(&scalar) && scalar.within(&Shape::new(vec![]).unwrap()));
        let line = bounds(&[0], &[1]);
        assert!(!scalar.meets(&line) && !line.contains(&scalar));
        assert!(!scalar.within(&Shape::new(vec![1]).unwrap()));
    }

    #[test]
    fn boxes_are_small() {
        // 100,000 of them are looked at for a step.
        assert!(size_of::<Bounds>() <= 72, "{}", size_of::<Bounds>());
    }

    #[test]
    fn text_that_is_no_box_is_explained() {
        for (text, says) in [
            ("", "no ':'"),
            ("[", "brackets"),
            ("0:5]", "brackets"),
            ("[5]", "'5' has no ':'"),
            ("[0:5,]", "'' has no ':'"),
            ("[:5]", "'' is no index"),
            ("[-1:5]", "'-1' is no index"),
            ("[+1:5]", "'+1' is no index"),
            ("[0:5:2]", "'5:2' is no index"),
            ("[7:5]", "in '7:5' the end comes before the start"),
            ("[0:18446744073709551616]", "18446744073709551616 is more than 64 bits can count"),
            ("[0:4294967296, 0:4294967296]", "more elements"),
            ("[0:\u{1b}]", "'\\u{1b}' is no index"),
        ] {
            let e = text.parse::<Bounds>().unwrap_err();
            assert!(e.kind() == Kind::Usage && e.message().contains(says), "{text}: {e}");
            assert!(e.hint().is_some());
        }
        for text in ["[0:5, 10:20]", "0:5,10:20", " [ 0 : 5 ,10:20] "] {
            assert_eq!(text.parse::<Bounds>().unwrap(), bounds(&[0, 10], &[5, 10]), "{text}");
        }
        let long = format!("[{}]", vec!["0:1"; 33].join(","));
        assert!(long.parse::<Bounds>().unwrap_err().message().contains("33 dimensions"));
    }

    /// Boxes of small counts, near 0 or near the end of what can be counted, of as many dimensions.
    fn two() -> impl Strategy<Value = (Bounds, Bounds)> {
        let side = || (0u64..4, 0u64..4);
        (0usize..7, any::<bool>()).prop_flat_map(move |(ndim, far)| {
            let base = if far { u64::MAX - 6 } else { 0 };
            let one = move || {
                prop::collection::vec(side(), ndim).prop_map(move |sides| {
                    let (start, count): (Vec<u64>, Vec<u64>) =
                        sides.into_iter().map(|(s, c)| (base + s, c)).unzip();
                    bounds(&start, &count)
                })
            };
            (one(), one())
        })
    }

    /// Every index of a box.
    fn all(b: &Bounds) -> Vec<Vec<u64>> {
        b.sides().fold(vec![vec![]], |before, side| {
            let longer = |i: &Vec<u64>| {
                let i = i.clone();
                side.clone().map(move |n| i.iter().copied().chain([n]).collect::<Vec<u64>>())
            };
            before.iter().flat_map(longer).collect()
        })
    }

    proptest! {
        #[test]
        fn boxes_are_what_sets_of_indices_are((a, b) in two(), d in 0usize..7, from in 0u64..6, len in 0u64..6) {
            let (mine, theirs) = (all(&a), all(&b).into_iter().collect::<HashSet<_>>());
            prop_assert_eq!(a.elements(), mine.len() as u64);
            prop_assert_eq!(a.is_empty(), mine.is_empty());
            let both: Vec<_> = mine.iter().filter(|i| theirs.contains(*i)).cloned().collect();
            prop_assert_eq!(a.meets(&b), !both.is_empty());
            prop_assert_eq!(a.intersection(&b).map_or(vec![], |i| all(&i)), both.clone());
            prop_assert_eq!(b.intersection(&a), a.intersection(&b));
            if !b.is_empty() {
                prop_assert_eq!(a.contains(&b), both.len() == theirs.len());
            }
            let from = a.start().get(d).map_or(0, |s| s.saturating_sub(1)).saturating_add(from);
            let range = from..from.saturating_add(len);
            let slab: Vec<_> =
                mine.into_iter().filter(|i| i.get(d).is_some_and(|n| range.contains(n))).collect();
            prop_assert_eq!(a.slab(d, range).map_or(vec![], |s| all(&s)), slab);
        }

        #[test]
        fn a_box_is_what_it_was_made_of_and_its_text((a, b) in two()) {
            prop_assert_eq!(&Bounds::new(a.start(), a.count()).unwrap(), &a);
            prop_assert_eq!(&a.to_string().parse::<Bounds>().unwrap(), &a);
            let json = serde_json::to_string(&a).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Bounds>(&json).unwrap(), &a);
            prop_assert_eq!(a == b, a.start() == b.start() && a.count() == b.count());
            for (d, side) in a.sides().enumerate() {
                prop_assert_eq!((side.start, side.end), (a.start()[d], a.end(d)));
            }
        }

        #[test]
        fn a_box_lies_in_an_array_if_that_contains_it((a, _) in two(), dims in prop::collection::vec(0u64..6, 0..5)) {
            let shape = Shape::new(dims).unwrap();
            prop_assert_eq!(a.within(&shape), Bounds::whole(&shape).contains(&a));
        }

        #[test]
        fn any_text_is_a_box_or_refused(text in "[\\[\\]0-9:, x-]{0,24}") {
            if let Ok(b) = text.parse::<Bounds>() {
                prop_assert_eq!(b.to_string().parse::<Bounds>().unwrap(), b);
            }
        }
    }

    #[test]
    fn a_box_that_was_written_is_checked_when_it_is_read() {
        let json = r#"{"start":[1],"count":[18446744073709551615]}"#;
        assert!(serde_json::from_str::<Bounds>(json).is_err());
        assert_eq!(
            serde_json::to_string(&bounds(&[1, 2], &[3, 4])).unwrap(),
            r#"{"start":[1,2],"count":[3,4]}"#
        );
    }
}
