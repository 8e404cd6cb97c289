//! Partial pictures of the cells of the grid, composited in a fixed order.
//!
//! The cells are the leaves of a binary tree. A picture belongs to a node; as soon as a node and its
//! sibling are there they become their parent. So the association of the sums never depends on who
//! rendered what when, and a contiguous range of `n` cells is at most `2 log2 n` pictures.

use super::camera::Camera;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use stead_core::{Error, Result};

/// A rectangle of premultiplied colours; nothing is seen outside it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Layer {
    pub x: usize,
    pub y: usize,
    pub width: usize,
    pub height: usize,
    pub pixels: Vec<[f32; 4]>,
}

impl Layer {
    /// Without rows and columns in which nothing is seen, if they are many.
    pub fn trimmed(self) -> Layer {
        let (mut x0, mut x1, mut y0, mut y1) = (usize::MAX, 0, usize::MAX, 0);
        for (y, line) in self.pixels.chunks_exact(self.width.max(1)).enumerate() {
            let Some(first) = line.iter().position(|p| p[3] != 0.0) else { continue };
            let last = line.iter().rposition(|p| p[3] != 0.0).unwrap_or(first);
            (x0, x1, y0, y1) = (x0.min(first), x1.max(last + 1), y0.min(y), y + 1);
        }
        if x1 == 0 {
            return Layer::default();
        }
        // A copy has to spare some memory.
        if 4 * (x1 - x0) * (y1 - y0) > 3 * self.pixels.len() {
            return self;
        }
        let pixels =
            (y0..y1).flat_map(|y| &self.pixels[y * self.width..][x0..x1]).copied().collect();
        Layer { x: self.x + x0, y: self.y + y0, width: x1 - x0, height: y1 - y0, pixels }
    }

    fn fits(&self, camera: &Camera) -> bool {
        self.width.checked_mul(self.height) == Some(self.pixels.len())
            && self.x.checked_add(self.width).is_some_and(|x| x <= camera.width)
            && self.y.checked_add(self.height).is_some_and(|y| y <= camera.height)
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
    /// Puts a line of one picture over or under that of another one, which begins at pixel (`x`, `y`). `mine` is true if
    /// `line` is of lower cells.
    fn line(&self, line: &mut [[f32; 4]], other: &[[f32; 4]], (x, y): (usize, usize), mine: bool) {
        match self.up.map(|up| up == mine) {
            Some(true) => line.iter_mut().zip(other).for_each(|(a, b)| *a = over(a, b)),
            Some(false) => line.iter_mut().zip(other).for_each(|(a, b)| *a = over(b, a)),
            None => {
                for ((a, b), x) in line.iter_mut().zip(other).zip(x..) {
                    let up = self.camera.goes_up(x, y, self.axis);
                    *a = if up == mine { over(a, b) } else { over(b, a) };
                }
            }
        }
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
///
/// Works in the larger picture, if the other one lies within it.
fn join(low: Layer, high: Layer, camera: &Camera, axis: usize) -> Layer {
    if low.pixels.is_empty() {
        return high;
    }
    if high.pixels.is_empty() {
        return low;
    }
    let up = (!camera.perspective()).then(|| camera.goes_up(0, 0, axis));
    let order = Order { camera, axis, up };
    let (x, y) = (low.x.min(high.x), low.y.min(high.y));
    let width = (low.x + low.width).max(high.x + high.width) - x;
    let height = (low.y + low.height).max(high.y + high.height) - y;
    let whole = |l: &Layer| (l.x, l.y, l.width, l.height) == (x, y, width, height);
    let (mut all, other, mine) = if whole(&low) {
        (low, high, true)
    } else if whole(&high) {
        (high, low, false)
    } else {
        let mut pixels = vec![[0.0f32; 4]; width * height];
        for (line, py) in low.pixels.chunks_exact(low.width).zip(low.y..) {
            let at = (py - y) * width + low.x - x;
            pixels[at..at + low.width].copy_from_slice(line);
        }
        (Layer { x, y, width, height, pixels }, high, true)
    };
    for (line, py) in other.pixels.chunks_exact(other.width).zip(other.y..) {
        let at = (py - y) * width + other.x - x;
        order.line(&mut all.pixels[at..at + other.width], line, (other.x, py), mine);
    }
    all
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

    pub fn bytes(&self) -> usize {
        self.0.values().map(|l| 128 + l.pixels.capacity() * 16).sum()
    }
}
