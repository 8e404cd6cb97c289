//! Whether blocks cover a box: a reader that asks for what nobody has put is told so, and which part it is.
//!
//! The box is cut where blocks begin or end, such that about half of them lie on each side, until one block has all of a part or
//! none has any of it. Blocks of a decomposition cost about as much as sorting them. Blocks that overlap without order can make
//! for more parts than there is time for: after some work what is left is marked element by element, in pieces of bounded size,
//! which is in proportion to copying it.

use std::ops::Range;
use stead_core::Bounds;

/// Elements that are marked at a time.
const MARKED: u64 = 1 << 20;

/// How many looks at a block are spent on cutting for each block, and anyhow.
const LOOKS: usize = 1024;
const FIRST_LOOKS: usize = 1 << 16;

/// Blocks of which a place to cut is taken.
const SHOWN: usize = 48;

/// True of a box whose every element is in a block, of those that may overlap, be empty and reach out of it.
///
/// # Errors
/// A part of the box of which no element is in any block.
pub fn covered<'b>(
    bounds: &Bounds,
    blocks: impl IntoIterator<Item = &'b Bounds>,
) -> Result<(), Bounds> {
    if bounds.is_empty() {
        return Ok(());
    }
    let mut meeting = Vec::new();
    for block in blocks {
        if block.contains(bounds) {
            return Ok(());
        }
        if block.meets(bounds) {
            meeting.push(block);
        }
    }
    let looks = meeting.len().saturating_mul(LOOKS).saturating_add(FIRST_LOOKS);
    search(bounds, meeting, looks)
}

/// Looks for a part that is not covered; all `blocks` meet `bounds`. After `looks` looks at blocks, elements are marked.
fn search(bounds: &Bounds, blocks: Vec<&Bounds>, mut looks: usize) -> Result<(), Bounds> {
    let mut open = vec![(bounds.clone(), blocks)];
    while let Some((part, mut blocks)) = open.pop() {
        if blocks.is_empty() {
            return Err(part);
        }
        if blocks.iter().any(|b| b.contains(&part)) {
            continue;
        }
        if looks == 0 && part.elements() <= MARKED {
            mark(&part, &blocks)?;
            continue;
        }
        let cut = if looks == 0 {
            middle(&part)
        } else {
            // Some blocks show where to cut as well as all do.
            let some: Vec<&Bounds> =
                blocks.iter().copied().step_by(1 + blocks.len() / SHOWN).collect();
            face(&part, &some).or_else(|| face(&part, &blocks))
        };
        looks = looks.saturating_sub(blocks.len());
        // A part of one element that a block meets is contained in it, so that there is a cut.
        let Some((d, at)) = cut else { return Err(part) };
        // All meet the part; only this dimension tells on which side.
        if let Some(part) = part.slab(d, 0..at) {
            let mut within = Vec::with_capacity(blocks.len());
            within.extend(
                blocks.iter().copied().filter(|b| b.start().get(d).is_some_and(|s| *s < at)),
            );
            open.push((part, within));
        }
        if let Some(part) = part.slab(d, at..u64::MAX) {
            blocks.retain(|b| b.end(d) > at);
            open.push((part, blocks));
        }
    }
    Ok(())
}

/// Where to cut a part: a dimension, and an index within it at which a block begins or ends, such that few blocks are on each
/// side. There is one if blocks meet the part and none contains it.
fn face(part: &Bounds, blocks: &[&Bounds]) -> Option<(usize, u64)> {
    let mut best: Option<(usize, usize, u64)> = None;
    let mut faces = Vec::new();
    for (d, side) in part.sides().enumerate() {
        let of = |b: &&Bounds| b.start().get(d).map_or(0..0, |start| *start..b.end(d));
        faces.clear();
        faces.extend(blocks.iter().map(of).flat_map(|b| [b.start, b.end]));
        faces.retain(|at| side.start < *at && *at < side.end);
        if faces.is_empty() {
            continue;
        }
        let half = faces.len() / 2;
        let at = *faces.select_nth_unstable(half).1;
        let before = blocks.iter().map(of).filter(|b| b.start < at).count();
        let after = blocks.iter().map(of).filter(|b| b.end > at).count();
        // Blocks that are cut are on both sides.
        let cost = before.max(after) + (before + after).saturating_sub(blocks.len());
        if best.is_none_or(|(least, ..)| cost < least) {
            best = Some((cost, d, at));
        }
    }
    best.map(|(_, d, at)| (d, at))
}

/// The middle of the longest dimension; `None` for one element.
fn middle(part: &Bounds) -> Option<(usize, u64)> {
    let (d, side) = part.sides().enumerate().max_by_key(|(_, s)| s.end - s.start)?;
    let half = (side.end - side.start) / 2;
    (half > 0).then_some((d, side.start + half))
}

/// Marks every element of a small part that a block has, and looks for one that none has.
fn mark(part: &Bounds, blocks: &[&Bounds]) -> Result<(), Bounds> {
    let mut marks = vec![false; part.elements() as usize];
    for both in blocks.iter().filter_map(|b| b.intersection(part)) {
        let side = |(s, of): (Range<u64>, Range<u64>)| {
            let (from, to) = ((s.start - of.start) as usize, (s.end - of.start) as usize);
            ((of.end - of.start) as usize, from..to)
        };
        let sides: Vec<(usize, Range<usize>)> = both.sides().zip(part.sides()).map(side).collect();
        fill(&sides, &mut marks);
    }
    let Some(mut at) = marks.iter().position(|m| !m) else { return Ok(()) };
    let mut gap = part.clone();
    let mut each = marks.len();
    for (d, side) in part.sides().enumerate() {
        each /= ((side.end - side.start) as usize).max(1);
        let i = side.start + (at / each.max(1)) as u64;
        at %= each.max(1);
        gap = gap.slab(d, i..i + 1).unwrap_or(gap);
    }
    Err(gap)
}

/// Marks a box: for each dimension its length in the array, and the indices.
fn fill(sides: &[(usize, Range<usize>)], marks: &mut [bool]) {
    match sides {
        [] => marks.fill(true),
        [(_, range)] => marks.get_mut(range.clone()).into_iter().for_each(|m| m.fill(true)),
        [(len, range), rest @ ..] => {
            let each = (marks.len() / len.max(&1)).max(1);
            let rows = marks.chunks_mut(each).skip(range.start).take(range.len());
            rows.for_each(|row| fill(rest, row));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use stead_core::Shape;

    fn bounds(start: &[u64], count: &[u64]) -> Bounds {
        Bounds::new(start, count).unwrap()
    }

    /// Every element of a box as a box.
    fn all(b: &Bounds) -> Vec<Bounds> {
        b.sides().enumerate().fold(vec![b.clone()], |before, (d, side)| {
            before
                .iter()
                .flat_map(|b| side.clone().filter_map(move |i| b.slab(d, i..i + 1)))
                .collect()
        })
    }

    /// Blocks of `each` elements a dimension, of which an array of `n` blocks a dimension is made.
    fn tiles(each: &[u64], n: &[u64]) -> (Bounds, Vec<Bounds>) {
        let dims = each.iter().zip(n).map(|(e, n)| e * n).collect();
        let grid = Bounds::whole(&Shape::new(n.to_vec()).unwrap());
        let tile = |at: Bounds| {
            let start: Vec<u64> = at.start().iter().zip(each).map(|(i, e)| i * e).collect();
            bounds(&start, each)
        };
        (Bounds::whole(&Shape::new(dims).unwrap()), all(&grid).into_iter().map(tile).collect())
    }

    #[test]
    fn decompositions_cover_their_array_and_no_part_may_lack() {
        for (each, n) in [
            (vec![10, 1000], vec![700, 1]),
            (vec![1000, 3], vec![1, 700]),
            (vec![10, 20], vec![30, 20]),
            (vec![5, 6, 7], vec![9, 8, 10]),
            (vec![1 << 20, 1 << 20, 1 << 20], vec![2, 2, 2]),
        ] {
            let (whole, mut blocks) = tiles(&each, &n);
            assert_eq!(covered(&whole, &blocks), Ok(()), "{n:?}");
            // No time to cut: small arrays are marked.
            if whole.elements() < 1 << 24 {
                assert_eq!(search(&whole, blocks.iter().collect(), 0), Ok(()), "{n:?}");
            }
            let lost = blocks.swap_remove(blocks.len() / 2);
            assert_eq!(covered(&whole, &blocks), Err(lost.clone()), "{n:?}");
            if whole.elements() < 1 << 24 {
                let gap = search(&whole, blocks.iter().collect(), 0).unwrap_err();
                assert!(lost.contains(&gap), "{gap} of {lost}");
            }
        }
    }

    #[test]
    fn one_element_that_lacks_among_huge_blocks_is_found() {
        let most = u64::MAX;
        let whole = bounds(&[0, 0], &[most, 1]);
        let blocks = [
            bounds(&[0, 0], &[1 << 63, 1]),
            bounds(&[(1 << 63) + 1, 0], &[most - (1 << 63) - 1, 1]),
        ];
        assert_eq!(covered(&whole, &blocks), Err(bounds(&[1 << 63, 0], &[1, 1])));
        let more = [&blocks[..], &[bounds(&[1 << 62, 0], &[1 << 63, 1])]].concat();
        assert_eq!(covered(&whole, &more), Ok(()));
    }

    #[test]
    fn boxes_without_elements_or_dimensions() {
        let scalar = bounds(&[], &[]);
        assert_eq!(covered(&scalar, []), Err(scalar.clone()));
        assert_eq!(covered(&scalar, [&scalar]), Ok(()));
        assert_eq!(covered(&bounds(&[3, 0], &[5, 0]), []), Ok(()));
        // Of other dimensions is no cover.
        let line = bounds(&[0], &[2]);
        assert_eq!(covered(&line, [&scalar, &bounds(&[0, 0], &[2, 2])]), Err(line.clone()));
    }

    #[test]
    fn blocks_without_order_are_no_harm() {
        // Bars of all lengths that cross in three dimensions: cutting at all of their faces makes very many parts.
        let n = 60;
        let mut blocks = Vec::new();
        for d in 0..3 {
            for i in 0..n {
                for j in 0..n {
                    let (mut start, mut count) = ([0; 3], [1; 3]);
                    (start[d], start[(d + 1) % 3]) = (i, j);
                    count[(d + 2) % 3] = n - (i * 7 + j * 3) % 5;
                    blocks.push(bounds(&start, &count));
                }
            }
        }
        let whole = bounds(&[0; 3], &[n; 3]);
        let result = covered(&whole, &blocks);
        let marked = mark(&whole, &blocks.iter().collect::<Vec<_>>());
        assert_eq!(result.is_ok(), marked.is_ok());
        if let Err(gap) = result {
            assert!(blocks.iter().all(|b| !b.meets(&gap)));
        }
    }

    proptest! {
        #[test]
        fn covers_are_what_sets_of_elements_are(
            ndim in 0usize..4, far in any::<bool>(),
            sides in prop::collection::vec(prop::collection::vec((0u64..5, 0u64..6), 4), 1..12),
        ) {
            let base = if far { u64::MAX - 12 } else { 0 };
            let one = |sides: &Vec<(u64, u64)>| {
                let (start, count): (Vec<u64>, Vec<u64>) =
                    sides.iter().take(ndim).map(|(s, c)| (base + s, *c)).unzip();
                bounds(&start, &count)
            };
            let (whole, blocks) = sides.split_first().unwrap();
            let (whole, blocks) = (one(whole), blocks.iter().map(one).collect::<Vec<_>>());
            let open: Vec<Bounds> =
                all(&whole).into_iter().filter(|e| !e.is_empty() && !blocks.iter().any(|b| b.contains(e))).collect();
            let meeting: Vec<&Bounds> = blocks.iter().filter(|b| b.meets(&whole)).collect();
            let mut answers = vec![covered(&whole, &blocks)];
            if !whole.is_empty() {
                answers.push(search(&whole, meeting.clone(), 0));
                answers.push(search(&whole, meeting, 3));
            }
            for answer in answers {
                prop_assert_eq!(answer.is_ok(), open.is_empty());
                if let Err(gap) = answer {
                    prop_assert!(!gap.is_empty() && whole.contains(&gap));
                    prop_assert!(blocks.iter().all(|b| !b.meets(&gap)), "{} of {}", gap, whole);
                }
            }
        }
    }
}
