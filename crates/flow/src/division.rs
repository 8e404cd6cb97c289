//! How ranks divide arrays among themselves: evenly, and where they are on several nodes, such that most of what a rank works on lies on its
//! node already.
//!
//! Each rank says once, at the first step, how much of each stretch of what is read lies on its node, and how much of what is needed for each value
//! that one rank makes as a whole; all hear the same, and come to the same.

use std::cmp::Reverse;
use std::ops::Range;
use stead_core::Bounds;

/// Ranks that look where their parts lie, at most: they say something of each other's.
const MOST_RANKS: u64 = 256;
/// Numbers that each says, at most.
pub const MOST_NUMBERS: usize = 1 << 16;
/// Nodes of which one rank makes all that each says something of, at most.
pub const MOST_WHOLES: usize = 1 << 10;

/// What a rank has of a length that several share.
pub fn stretch(length: u64, rank: u64, ranks: u64) -> Range<u64> {
    let cut = |rank: u64| {
        let at = u128::from(length) * u128::from(rank) / u128::from(ranks.max(1));
        u64::try_from(at).unwrap_or(u64::MAX)
    };
    cut(rank)..cut(rank.saturating_add(1))
}

/// Which part of arrays is a rank's. All ranks have the same, but for their seat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Division {
    rank: u64,
    seat: u64,
    ranks: u64,
    /// Of each array that is read the dimension that is divided, if that is known.
    along: Vec<Option<usize>>,
    /// Nodes, by their numbers, of which one rank makes all, and that rank.
    owners: Vec<(usize, u64)>,
}

impl Division {
    /// By the ranks' own order, and the longest dimension.
    pub fn plain(rank: u64, ranks: u64) -> Division {
        Division { rank, seat: rank, ranks, along: Vec::new(), owners: Vec::new() }
    }

    pub fn ranks(&self) -> u64 {
        self.ranks
    }

    /// Which rank this is.
    pub fn rank(&self) -> u64 {
        self.rank
    }

    /// The rank that makes all of what a node makes, by the number of the node: one on whose node most of what it needs lay when that was
    /// first seen. Where several have as much, each of several nodes is another one's.
    pub fn owner(&self, node: usize) -> u64 {
        let found = self.owners.iter().find(|(known, _)| *known == node);
        found.map_or(node as u64 % self.ranks.max(1), |(_, rank)| *rank)
    }

    /// The part of a length that is this rank's.
    pub fn stretch(&self, length: u64) -> Range<u64> {
        stretch(length, self.seat, self.ranks)
    }

    /// The dimension along which an array that is read, by its number, lay on several nodes when it was first seen; `None` if that is not known.
    pub fn along(&self, array: usize) -> Option<usize> {
        self.along.get(array).copied().flatten()
    }

    /// The part of an array that is this rank's: a stretch of this dimension, if that is long enough for all, or of the longest. A single
    /// number is the first one's.
    pub fn share(&self, whole: &Bounds, along: Option<usize>) -> Option<Bounds> {
        let long = |along: &usize| whole.count().get(*along).is_some_and(|n| *n >= self.ranks);
        match along.filter(long).or_else(|| longest(whole.count())) {
            Some(along) => whole.slab(along, self.stretch(*whole.count().get(along)?)),
            None => (self.seat == 0).then(|| whole.clone()),
        }
    }
}

/// The first of the longest dimensions.
fn longest(shape: &[u64]) -> Option<usize> {
    shape.iter().enumerate().rev().max_by_key(|(_, n)| **n).map(|(along, _)| along)
}

/// An array that is read, and its parts on a rank's node.
#[derive(Debug, Clone)]
pub struct Near {
    pub shape: Vec<u64>,
    /// Bytes of an element.
    pub size: u64,
    pub parts: Vec<Bounds>,
}

/// Shapes and dimensions that can be divided, in an order that all ranks have.
fn ways(arrays: &[Near], ranks: u64) -> Vec<(&[u64], usize)> {
    let mut ways: Vec<(&[u64], usize)> = Vec::new();
    for array in arrays {
        for (along, length) in array.shape.iter().enumerate() {
            // With less, some would have nothing to do.
            let way = (&array.shape[..], along);
            if *length >= ranks && !ways.contains(&way) {
                ways.push(way);
            }
        }
    }
    let fits = ways.len().saturating_mul(usize::try_from(ranks).unwrap_or(usize::MAX));
    if ranks > MOST_RANKS || fits > MOST_NUMBERS {
        ways.clear();
    }
    ways
}

/// What a rank says: for each way, bytes of each stretch that lie on its node.
pub fn said(arrays: &[Near], ranks: u64) -> Vec<u64> {
    let mut said = Vec::new();
    for (shape, along) in ways(arrays, ranks) {
        let length = shape.get(along).copied().unwrap_or(0);
        for seat in 0..ranks {
            let stretch = stretch(length, seat, ranks);
            let mut bytes = 0u64;
            for array in arrays.iter().filter(|array| array.shape == shape) {
                for part in &array.parts {
                    let Some(side) = part.sides().nth(along) else { continue };
                    let met =
                        side.end.min(stretch.end).saturating_sub(side.start.max(stretch.start));
                    let others = part.elements().checked_div(side.end - side.start).unwrap_or(0);
                    let met = met.saturating_mul(others).saturating_mul(array.size);
                    bytes = bytes.saturating_add(met);
                }
            }
            said.push(bytes);
        }
    }
    said
}

/// The stretch of each rank, and bytes that are on its node then.
struct Seats {
    of: Vec<usize>,
    near: u64,
}

/// Gives each rank the stretch of which most is near, the largest first; or leaves them in order, if that is as good.
fn seats(near: &dyn Fn(usize, usize) -> u64, ranks: usize) -> Seats {
    let total = |of: &[usize]| {
        let each = of.iter().enumerate().map(|(rank, seat)| near(rank, *seat));
        each.fold(0, u64::saturating_add)
    };
    let plain: Vec<usize> = (0..ranks).collect();
    let mut all: Vec<(Reverse<u64>, usize, usize)> = Vec::new();
    for rank in 0..ranks {
        let some = (0..ranks).map(|seat| (Reverse(near(rank, seat)), seat, rank));
        all.extend(some.filter(|(Reverse(bytes), ..)| *bytes > 0));
    }
    all.sort_unstable();
    let (mut of, mut taken) = (vec![None; ranks], vec![false; ranks]);
    for (_, seat, rank) in all {
        if let (Some(place @ None), Some(is_taken @ false)) =
            (of.get_mut(rank), taken.get_mut(seat))
        {
            (*place, *is_taken) = (Some(seat), true);
        }
    }
    let mut free = taken.iter().enumerate().filter(|(_, taken)| !**taken).map(|(seat, _)| seat);
    let of: Vec<usize> = of.iter().filter_map(|seat| seat.or_else(|| free.next())).collect();
    let (here, there) = (total(&of), total(&plain));
    if here > there { Seats { of, near: here } } else { Seats { of: plain, near: there } }
}

/// Bytes of boxes of arrays that are read, each by its number, which lie on a rank's node.
pub fn held(arrays: &[Near], boxes: &[(usize, Bounds)]) -> u64 {
    let mut bytes = 0u64;
    for (number, needed) in boxes {
        let Some(array) = arrays.get(*number) else { continue };
        let met = array.parts.iter().filter_map(|part| part.intersection(needed));
        let met = met.fold(0u64, |sum, met| sum.saturating_add(met.elements()));
        bytes = bytes.saturating_add(met.saturating_mul(array.size));
    }
    bytes
}

/// Of each node that one rank makes as a whole, who that is, by bytes that each rank has [held].
fn owners(wholes: &[usize], held: &[&[u64]]) -> Vec<(usize, u64)> {
    let one = |(i, node): (usize, &usize)| {
        let of = held.iter().map(|said| said.get(i).copied().unwrap_or(0));
        let bytes: Vec<u64> = of.collect();
        let most = bytes.iter().copied().max().unwrap_or(0);
        let have = (0u64..).zip(&bytes).filter(|(_, bytes)| **bytes == most);
        let ranks: Vec<u64> = have.map(|(rank, _)| rank).collect();
        (*node, ranks.get(*node % ranks.len().max(1)).copied().unwrap_or(0))
    };
    wholes.iter().enumerate().map(one).collect()
}

/// How all divide what is read, of what each of them has [said], and who makes what is one rank's as a whole, of what each has [held] of that
/// and said after it; `None` if they have not said as much as each other.
pub fn division(
    arrays: &[Near],
    rank: u64,
    all: &[Vec<u64>],
    wholes: &[usize],
) -> Option<Division> {
    let (ranks, count) = (all.len(), all.len() as u64);
    let ways = ways(arrays, count);
    let numbers = ways.len().saturating_mul(ranks);
    if all.iter().any(|said| said.len() != numbers.saturating_add(wholes.len())) {
        return None;
    }
    let held: Vec<&[u64]> = all.iter().filter_map(|said| said.get(numbers..)).collect();
    let owners = owners(wholes, &held);
    let number = |rank: usize, way: usize, seat: usize| {
        let said = all.get(rank).and_then(|said| said.get(way * ranks + seat));
        said.copied().unwrap_or(0)
    };
    // Of each shape the way of which most is near, and the usual one if that is as good.
    let mut best: Vec<(&[u64], usize, usize, u64)> = Vec::new();
    for (way, (shape, along)) in ways.iter().enumerate() {
        let near = seats(&|rank, seat| number(rank, way, seat), ranks).near;
        let is_usual = longest(shape) == Some(*along);
        match best.iter_mut().find(|(of, ..)| of == shape) {
            None => best.push((shape, *along, way, near)),
            Some(one) if near > one.3 || near == one.3 && is_usual => {
                *one = (shape, *along, way, near)
            }
            Some(_) => {}
        }
    }
    let near = |rank: usize, seat: usize| {
        let each = best.iter().map(|(_, _, way, _)| number(rank, *way, seat));
        each.fold(0, u64::saturating_add)
    };
    let seats = seats(&near, ranks);
    let seat = *seats.of.get(usize::try_from(rank).ok()?)? as u64;
    let found = |array: &Near| {
        let one = best.iter().find(|(shape, _, _, near)| *shape == array.shape && *near > 0);
        one.map(|(_, along, ..)| *along)
    };
    let along = arrays.iter().map(found).collect();
    Some(Division { rank, seat, ranks: count, along, owners })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn near(shape: &[u64], parts: &[([u64; 2], [u64; 2])]) -> Near {
        let part = |(start, count): &([u64; 2], [u64; 2])| Bounds::new(*start, *count).unwrap();
        Near { shape: shape.to_vec(), size: 8, parts: parts.iter().map(part).collect() }
    }

    /// The divisions of all ranks, of what lies on the node of each.
    fn divided(of: &[Vec<Near>]) -> Vec<Division> {
        let ranks = of.len() as u64;
        let all: Vec<Vec<u64>> = of.iter().map(|near| said(near, ranks)).collect();
        let one =
            |(rank, near): (usize, &Vec<Near>)| division(near, rank as u64, &all, &[]).unwrap();
        of.iter().enumerate().map(one).collect()
    }

    /// A rank's share of an array that is read.
    fn share(of: &Division, whole: &Bounds) -> Option<Bounds> {
        of.share(whole, of.along(0))
    }

    #[test]
    fn shares_are_all_of_it_once() {
        let whole = Bounds::new([0, 0], [3, 10]).unwrap();
        for ranks in [1u64, 2, 3, 7, 25] {
            let share = |rank| Division::plain(rank, ranks).share(&whole, None);
            let shares: Vec<Bounds> = (0..ranks).filter_map(share).collect();
            let total: u64 = shares.iter().map(Bounds::elements).sum();
            assert_eq!(total, 30);
            assert!(shares.windows(2).all(|two| two[0].end(1) == two[1].start()[1]));
        }
        let number = Bounds::new([], []).unwrap();
        let first = |rank| Division::plain(rank, 3).share(&number, None);
        assert_eq!((first(0), first(1)), (Some(number.clone()), None));
    }

    #[test]
    fn each_has_what_lies_on_its_node() {
        // Rows that are the other way round.
        let two = divided(&[
            vec![near(&[4, 9], &[([2, 0], [2, 9])])],
            vec![near(&[4, 9], &[([0, 0], [2, 9])])],
        ]);
        let whole = Bounds::new([0, 0], [4, 9]).unwrap();
        assert_eq!(share(&two[0], &whole), Some(Bounds::new([2, 0], [2, 9]).unwrap()));
        assert_eq!(share(&two[1], &whole), Some(Bounds::new([0, 0], [2, 9]).unwrap()));
        // It stays so, whatever shape it has later; what is too short for all is cut along the longest, as ever.
        let longer = Bounds::new([0, 0], [2, 90]).unwrap();
        assert_eq!(share(&two[1], &longer), Some(Bounds::new([0, 0], [1, 90]).unwrap()));
        let short = Bounds::new([0, 0], [1, 90]).unwrap();
        assert_eq!(share(&two[1], &short), Some(Bounds::new([0, 0], [1, 45]).unwrap()));
        assert_eq!((two[0].along(0), two[0].along(1)), (Some(0), None));
    }

    #[test]
    fn where_nothing_is_nearer_all_is_as_ever() {
        let everywhere = vec![near(&[4, 9], &[([0, 0], [4, 9])])];
        let nowhere = vec![near(&[4, 9], &[])];
        for of in [everywhere, nowhere] {
            for (rank, one) in divided(&[of.clone(), of.clone(), of]).into_iter().enumerate() {
                let whole = Bounds::new([0, 0], [4, 9]).unwrap();
                assert_eq!(share(&one, &whole), share(&Division::plain(rank as u64, 3), &whole));
            }
        }
        // Too few rows for all of them.
        let rows = |y| vec![near(&[2, 90], &[([y, 0], [1, 90])])];
        let three = divided(&[rows(0), rows(1), rows(1)]);
        let whole = Bounds::new([0, 0], [2, 90]).unwrap();
        assert!(three.iter().all(|one| share(one, &whole).unwrap().count() == [2, 30]));
        // Whoever says something else is not understood.
        assert_eq!(division(&rows(0), 0, &[vec![1], vec![1, 2]], &[]), None);
    }

    #[test]
    fn what_is_one_ranks_as_a_whole_is_whose_node_has_most_of_it() {
        let arrays = near(&[4, 9], &[([0, 0], [3, 9])]);
        let box_of = |y| (0, Bounds::new([y, 0], [2, 9]).unwrap());
        assert_eq!(held(std::slice::from_ref(&arrays), &[box_of(0)]), 18 * 8);
        assert_eq!(held(&[arrays], &[box_of(2), box_of(2)]), 2 * 9 * 8);
        // Of an array that has nothing to divide each says only that.
        let none = [Near { shape: vec![1], size: 8, parts: Vec::new() }];
        let said = [vec![5, 0, 7], vec![9, 0, 7], vec![9, 0, 0]];
        let one = division(&none, 1, &said, &[3, 4, 6]).unwrap();
        assert_eq!([3, 4, 6].map(|node| one.owner(node)), [2, 1, 0]);
        // Others go by their numbers.
        assert_eq!((one.owner(7), one.rank(), one.seat), (1, 1, 1));
        assert_eq!(Division::plain(0, 3).owner(5), 2);
        assert_eq!(division(&none, 1, &said, &[3, 4]), None);
    }

    proptest! {
        #[test]
        fn whatever_lies_where_all_of_it_is_somebodys(
            shape in prop::collection::vec(1u64..9, 1..4),
            ranks in 1usize..6,
            cuts in prop::collection::vec((0u64..9, 0u64..9, 0usize..3), 0..12),
        ) {
            let mut of: Vec<Vec<Near>> =
                vec![vec![Near { shape: shape.clone(), size: 4, parts: Vec::new() }]; ranks];
            for (i, (from, count, along)) in cuts.into_iter().enumerate() {
                let along = along % shape.len();
                let from = from % shape[along];
                let mut start = vec![0; shape.len()];
                let mut counts = shape.clone();
                (start[along], counts[along]) = (from, count.min(shape[along] - from));
                of[i % ranks][0].parts.push(Bounds::new(start, counts).unwrap());
            }
            let whole = Bounds::new(vec![0; shape.len()], &shape).unwrap();
            let all = divided(&of);
            let shares: Vec<Bounds> = all.iter().filter_map(|one| share(one, &whole)).collect();
            prop_assert_eq!(shares.iter().map(Bounds::elements).sum::<u64>(), whole.elements());
            let overlap = |(i, a): (usize, &Bounds)| shares[..i].iter().any(|b| a.intersection(b).is_some_and(|both| !both.is_empty()));
            prop_assert!(!shares.iter().enumerate().any(overlap));
            // None has less near than in the order of ranks along the usual dimension.
            let near = |share: &Bounds, rank: usize| -> u64 {
                of[rank][0].parts.iter().filter_map(|p| p.intersection(share)).map(|b| b.elements()).sum()
            };
            let sum = |of: &dyn Fn(usize) -> Option<Bounds>| -> u64 {
                (0..ranks).filter_map(|rank| of(rank).map(|share| near(&share, rank))).sum()
            };
            let plain = sum(&|rank| share(&Division::plain(rank as u64, ranks as u64), &whole));
            prop_assert!(sum(&|rank| share(&all[rank], &whole)) >= plain);
        }
    }
}
