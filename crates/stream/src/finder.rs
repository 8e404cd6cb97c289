//! Which blocks of a variable lie in a box, without a look at all of them.
//!
//! A tree of boxes: each node has the smallest box around the blocks below it. Any decomposition gives a good one, in rows,
//! columns or bricks, and so do blocks that overlap; nothing has to be known of it.

use std::ops::Range;
use stead_core::Bounds;

/// Blocks below one node that has no others below it: so many are looked at as fast as a node.
const LEAF: usize = 8;

/// The blocks of one variable, to be found by a box that they meet.
///
/// ```
/// # use stead_core::Bounds;
/// # use stead_stream::finder::Finder;
/// let blocks = [Bounds::new([0], [10])?, Bounds::new([10], [10])?, Bounds::new([20], [10])?];
/// let finder = Finder::new(1, &blocks);
/// assert_eq!(finder.find(&Bounds::new([5], [10])?), [0, 1]);
/// # Ok::<(), stead_core::Error>(())
/// ```
#[derive(Debug)]
pub struct Finder {
    ndim: usize,
    /// A node comes before all that is below it.
    nodes: Vec<Node>,
    /// For each node, the sides of the box around its blocks.
    hulls: Vec<Range<u64>>,
    /// The numbers of the blocks, in the order of the leaves.
    numbers: Vec<usize>,
    /// And their sides.
    sides: Vec<Range<u64>>,
}

#[derive(Debug)]
struct Node {
    /// The first node that is not below this one.
    next: usize,
    /// Its blocks, of all in the order of the leaves; those of a leaf are looked at.
    blocks: Range<usize>,
}

impl Finder {
    /// Of the blocks of an array of `ndim` dimensions. A block without elements, or of other dimensions, is never found.
    pub fn new<'b>(ndim: usize, blocks: impl IntoIterator<Item = &'b Bounds>) -> Finder {
        let sound = |(_, b): &(usize, &Bounds)| b.ndim() == ndim && !b.is_empty();
        let mut all: Vec<(usize, &Bounds)> = blocks.into_iter().enumerate().filter(sound).collect();
        let mut finder = Finder {
            ndim,
            nodes: Vec::new(),
            hulls: Vec::new(),
            numbers: Vec::with_capacity(all.len()),
            sides: Vec::with_capacity(all.len() * ndim),
        };
        finder.add(&mut all);
        finder
    }

    /// Adds a node for these blocks and all below it. It halves them each time, so that it goes no deeper than their number has bits.
    fn add(&mut self, blocks: &mut [(usize, &Bounds)]) {
        let (node, first) = (self.nodes.len(), self.numbers.len());
        let hull = self.hulls.len();
        self.nodes.push(Node { next: 0, blocks: first..first + blocks.len() });
        let mut all = blocks.iter().map(|(_, b)| b);
        self.hulls.extend(all.next().into_iter().flat_map(|b| b.sides()));
        let hull = self.hulls.get_mut(hull..).unwrap_or_default();
        for block in all {
            for (around, side) in hull.iter_mut().zip(block.sides()) {
                *around = around.start.min(side.start)..around.end.max(side.end);
            }
        }
        if blocks.len() <= LEAF {
            for (number, block) in blocks.iter() {
                self.numbers.push(*number);
                self.sides.extend(block.sides());
            }
        } else {
            let d = spread(self.ndim, blocks);
            let half = blocks.len() / 2;
            blocks.select_nth_unstable_by_key(half, |(_, b)| b.start().get(d).copied());
            let (before, after) = blocks.split_at_mut(half);
            self.add(before);
            self.add(after);
        }
        let next = self.nodes.len();
        if let Some(node) = self.nodes.get_mut(node) {
            node.next = next;
        }
    }

    /// The numbers of the blocks that have an element in common with a box, in ascending order.
    pub fn find(&self, bounds: &Bounds) -> Vec<usize> {
        let mut found = Vec::new();
        if bounds.ndim() != self.ndim || bounds.is_empty() {
            return found;
        }
        let sides: Vec<Range<u64>> = bounds.sides().collect();
        let meets = |all: &[Range<u64>], i: usize| {
            all.get(i * self.ndim..(i + 1) * self.ndim).is_some_and(|s| {
                s.iter().zip(&sides).all(|(a, b)| a.start < b.end && b.start < a.end)
            })
        };
        let mut at = 0;
        while let Some(node) = self.nodes.get(at) {
            let leaf = node.next <= at + 1;
            if !meets(&self.hulls, at) {
                at = node.next.max(at + 1);
                continue;
            }
            if leaf {
                let numbers = self.numbers.get(node.blocks.clone()).unwrap_or_default();
                let blocks = node.blocks.clone().zip(numbers);
                found.extend(blocks.filter(|(i, _)| meets(&self.sides, *i)).map(|(_, n)| *n));
            }
            at += 1;
        }
        found.sort_unstable();
        found
    }
}

/// The dimension in which blocks lie farthest apart, compared with how long they are.
fn spread(ndim: usize, blocks: &[(usize, &Bounds)]) -> usize {
    let apart = |d: usize| {
        let (mut least, mut most, mut long) = (u64::MAX, 0, 0.0);
        for (_, block) in blocks {
            let (start, count) = (block.start().get(d), block.count().get(d));
            let (start, count) = (start.copied().unwrap_or(0), count.copied().unwrap_or(1));
            (least, most, long) = (least.min(start), most.max(start), long + count as f64);
        }
        most.saturating_sub(least) as f64 / long
    };
    (0..ndim).map(|d| (apart(d), d)).max_by(|a, b| a.0.total_cmp(&b.0)).map_or(0, |(_, d)| d)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bounds(start: &[u64], count: &[u64]) -> Bounds {
        Bounds::new(start, count).unwrap()
    }

    #[test]
    fn few_nodes_are_looked_at_whatever_the_decomposition() {
        // Nodes whose hull meets a box of one element: about as many as the tree is deep.
        for n in
            [[8192, 1, 1], [1, 8192, 1], [1, 1, 8192], [64, 128, 1], [2, 4096, 1], [16, 16, 32]]
        {
            let mut blocks = Vec::new();
            for i in 0..n[0] * n[1] * n[2] {
                let at = [i / (n[1] * n[2]), i / n[2] % n[1], i % n[2]];
                blocks.push(bounds(&[at[0] * 10, at[1] * 1000, at[2] * 7], &[10, 1000, 7]));
            }
            let finder = Finder::new(3, &blocks);
            for i in [0, 100, 5000, 8191] {
                let one = bounds(blocks[i].start(), &[1, 1, 1]);
                assert_eq!(finder.find(&one), [i], "{n:?}");
                let met = finder.hulls.chunks(3).filter(|hull| {
                    hull.iter().zip(one.sides()).all(|(a, b)| a.start < b.end && b.start < a.end)
                });
                assert!(met.count() <= 24, "{n:?}");
            }
        }
    }

    #[test]
    fn scalars_and_nothing_are_found() {
        let scalar = bounds(&[], &[]);
        assert_eq!(Finder::new(0, []).find(&scalar), [0; 0]);
        assert_eq!(Finder::new(0, [&scalar; 20]).find(&scalar), (0..20).collect::<Vec<_>>());
        assert_eq!(Finder::new(1, [&scalar]).find(&scalar), [0; 0]);
        let line = bounds(&[7], &[3]);
        let finder = Finder::new(1, [&bounds(&[0], &[0]), &line, &scalar]);
        assert_eq!(finder.find(&line), [1]);
        assert_eq!(finder.find(&bounds(&[8], &[0])), [0; 0]);
        assert_eq!(finder.find(&scalar), [0; 0]);
    }

    proptest! {
        #[test]
        fn those_are_found_that_a_look_at_all_finds(
            ndim in 0usize..6, far in any::<bool>(),
            sides in prop::collection::vec(prop::collection::vec((0u64..40, 0u64..12), 6), 0..120),
            wanted in prop::collection::vec((0u64..40, 0u64..20), 6),
        ) {
            let base = if far { u64::MAX - 60 } else { 0 };
            let one = |sides: &Vec<(u64, u64)>| {
                let (start, count): (Vec<u64>, Vec<u64>) =
                    sides.iter().take(ndim).map(|(s, c)| (base + s, *c)).unzip();
                bounds(&start, &count)
            };
            let blocks: Vec<Bounds> = sides.iter().map(one).collect();
            let wanted = one(&wanted);
            let finder = Finder::new(ndim, &blocks);
            let all: Vec<usize> =
                blocks.iter().enumerate().filter(|(_, b)| b.meets(&wanted)).map(|(i, _)| i).collect();
            prop_assert_eq!(finder.find(&wanted), all);
        }
    }
}
