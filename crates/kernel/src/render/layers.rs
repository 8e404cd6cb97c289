//! Partial pictures of the cells of the grid, composited in a fixed order.
//!
//! The cells are the leaves of a binary tree. A picture belongs to a node; as soon as a node and its
//! sibling are there they become their parent. So the association of the sums never depends on who
//! rendered what when, and a contiguous range of `n` cells is at most `2 log2 n` pictures.

use super::camera::Camera;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stead_core::{Error, Result};

/// A stretch of premultiplied colours in a line of the picture; nothing is seen outside it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Line {
    pub x: usize,
    pub pixels: Vec<[f32; 4]>,
}

/// Lines of a picture from `y` on, each as long as something is seen in it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Layer {
    pub y: usize,
    pub lines: Vec<Line>,
}

impl Layer {
    /// A layer without lines, the first of which will be at `y`, if something is seen in it.
    pub fn at(y: usize) -> Layer {
        Layer { y, lines: Vec::new() }
    }

    /// Adds a line of pixels, the first of which is at `x`.
    pub fn push(&mut self, x: usize, pixels: &[[f32; 4]]) {
        let first = pixels.iter().position(|p| p[3] != 0.0);
        let last = pixels.iter().rposition(|p| p[3] != 0.0);
        match first.zip(last) {
            Some((a, b)) => {
                self.lines.push(Line { x: x + a, pixels: pixels[a..=b].to_vec() });
            }
            None if self.lines.is_empty() => self.y += 1,
            None => self.lines.push(Line::default()),
        }
    }

    /// The lines from `self.y` to each of these ends; the last one is past all lines.
    fn cut(self, ends: &[usize]) -> Vec<Layer> {
        let (mut y, mut lines) = (self.y, self.lines.into_iter());
        let mut piece = |end: &usize| {
            let piece: Vec<Line> = lines.by_ref().take(end.saturating_sub(y)).collect();
            let first = y;
            y += piece.len();
            Layer { y: first, lines: piece }
        };
        ends.iter().map(&mut piece).collect()
    }

    fn fits(&self, camera: &Camera) -> bool {
        let within = |first: usize, len: usize, all: usize| {
            len == 0 || first.checked_add(len).is_some_and(|end| end <= all)
        };
        within(self.y, self.lines.len(), camera.height)
            && self.lines.iter().all(|l| within(l.x, l.pixels.len(), camera.width))
    }
}

fn misfit() -> Error {
    Error::format("a partial picture does not fit the others")
}

/// What is in front of what along an axis.
struct Order<'a> {
    camera: &'a Camera,
    axis: usize,
    /// For all rays, if it is the same for all: true if lower cells are in front.
    up: Option<bool>,
}

impl Order<'_> {
    /// Composites line `y` of lower cells and that of higher ones, in the longer one if the other lies within it.
    fn line(&self, low: Line, high: Line, y: usize) -> Line {
        if low.pixels.is_empty() {
            return high;
        }
        if high.pixels.is_empty() {
            return low;
        }
        let x = low.x.min(high.x);
        let end = (low.x + low.pixels.len()).max(high.x + high.pixels.len());
        let whole = |l: &Line| (l.x, l.pixels.len()) == (x, end - x);
        let (mut all, other, mine) = if whole(&low) {
            (low, high, true)
        } else if whole(&high) {
            (high, low, false)
        } else {
            let mut pixels = vec![[0.0f32; 4]; end - x];
            pixels[low.x - x..][..low.pixels.len()].copy_from_slice(&low.pixels);
            (Line { x, pixels }, high, true)
        };
        let line = all.pixels[other.x - x..].iter_mut().zip(&other.pixels);
        match self.up.map(|up| up == mine) {
            Some(true) => line.for_each(|(a, b)| *a = over(a, b)),
            Some(false) => line.for_each(|(a, b)| *a = over(b, a)),
            None => {
                for ((a, b), x) in line.zip(other.x..) {
                    let up = self.camera.goes_up(x, y, self.axis);
                    *a = if up == mine { over(a, b) } else { over(b, a) };
                }
            }
        }
        all
    }
}

/// A colour over another one.
#[inline(always)]
fn over(front: &[f32; 4], back: &[f32; 4]) -> [f32; 4] {
    let through = 1.0 - front[3];
    let mut c = *front;
    for (c, b) in c.iter_mut().zip(back) {
        *c += through * b;
    }
    c
}

/// Lower cells and higher cells to one picture. What is in front is decided for each ray.
fn join(low: Layer, high: Layer, camera: &Camera, axis: usize) -> Layer {
    if low.lines.is_empty() {
        return high;
    }
    if high.lines.is_empty() {
        return low;
    }
    let up = (!camera.perspective()).then(|| camera.goes_up(0, 0, axis));
    let order = Order { camera, axis, up };
    let first = low.y.min(high.y);
    let end = (low.y + low.lines.len()).max(high.y + high.lines.len());
    let (low_y, high_y) = (low.y, high.y);
    let (mut low, mut high) = (low.lines.into_iter(), high.lines.into_iter());
    let mut lines = Vec::with_capacity(end - first);
    for y in first..end {
        let a = if y < low_y { None } else { low.next() };
        let b = if y < high_y { None } else { high.next() };
        lines.push(order.line(a.unwrap_or_default(), b.unwrap_or_default(), y));
    }
    Layer { y: first, lines }
}

/// The pictures of disjoint nodes. A node is its level above the leaves and its number in the level.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct Layers(BTreeMap<(u32, u64), Layer>);

impl Layers {
    /// Adds the picture of a node, and makes all parents that are complete.
    pub fn insert(
        &mut self,
        node: (u32, u64),
        layer: Layer,
        cells: u64,
        camera: &Camera,
        axis: usize,
    ) -> Result<()> {
        let (mut level, mut index) = node;
        let mut layer = layer;
        if level >= 64 || !layer.fits(camera) || self.0.contains_key(&node) {
            return Err(misfit());
        }
        while level < 63 && (1u64 << level) < cells {
            let sibling = index ^ 1;
            if sibling.checked_mul(1 << level).is_some_and(|first| first < cells) {
                match self.0.remove(&(level, sibling)) {
                    None => break,
                    Some(other) if sibling < index => layer = join(other, layer, camera, axis),
                    Some(other) => layer = join(layer, other, camera, axis),
                }
            }
            level += 1;
            index /= 2;
        }
        self.0.insert((level, index), layer);
        Ok(())
    }

    /// An error if a picture is not within the whole one.
    pub fn check(&self, camera: &Camera) -> Result<()> {
        if self.0.values().all(|l| l.fits(camera)) { Ok(()) } else { Err(misfit()) }
    }

    pub fn into_nodes(self) -> impl Iterator<Item = ((u32, u64), Layer)> {
        self.0.into_iter()
    }

    /// The whole picture; an error if cells are missing, `None` if there are none.
    pub fn whole(self) -> Result<Option<Layer>> {
        let mut nodes = self.0.into_values();
        match (nodes.next(), nodes.next()) {
            (layer, None) => Ok(layer),
            _ => Err(Error::internal("a part of the volume was not rendered")),
        }
    }

    /// Pictures of the same nodes, cut between lines: each has those before one of `ends` that none before it has.
    pub fn cut(self, ends: &[usize]) -> Vec<Layers> {
        let mut pieces: Vec<Layers> = ends.iter().map(|_| Layers::default()).collect();
        for (node, layer) in self.0 {
            for (piece, layer) in pieces.iter_mut().zip(layer.cut(ends)) {
                piece.0.insert(node, layer);
            }
        }
        pieces
    }

    /// The whole picture of pieces that are whole, in the order of their lines.
    pub fn join(pieces: impl IntoIterator<Item = Layers>) -> Result<Layers> {
        let mut all: Option<((u32, u64), Layer)> = None;
        for piece in pieces {
            let mut nodes = piece.0.into_iter();
            let (node, layer) = match (nodes.next(), nodes.next()) {
                (None, _) => continue,
                (Some(one), None) => one,
                (Some(_), Some(_)) => {
                    return Err(Error::internal("a part of the volume was not rendered"));
                }
            };
            match &mut all {
                None => all = Some((node, layer)),
                Some((same, _)) if *same != node => return Err(misfit()),
                Some(_) if layer.lines.is_empty() => {}
                Some((_, whole)) if whole.lines.is_empty() => *whole = layer,
                Some((_, whole)) => {
                    // Nothing is seen in the lines between two pieces.
                    let gap =
                        layer.y.checked_sub(whole.y + whole.lines.len()).ok_or_else(misfit)?;
                    whole.lines.extend(std::iter::repeat_with(Line::default).take(gap));
                    whole.lines.extend(layer.lines);
                }
            }
        }
        Ok(Layers(all.into_iter().collect()))
    }

    pub fn bytes(&self) -> usize {
        let line = |l: &Line| size_of::<Line>() + l.pixels.capacity() * size_of::<[f32; 4]>();
        self.0.values().map(|l| 128 + l.lines.iter().map(line).sum::<usize>()).sum()
    }
}
