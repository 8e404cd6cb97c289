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
    /// Without rows and columns in which nothing is seen.
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
        if (x0, x1, y0, y1) == (0, self.width, 0, self.height) {
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

/// Lower cells and higher cells to one picture. What is in front is decided for each ray.
fn join(low: Layer, high: Layer, camera: &Camera, axis: usize) -> Layer {
    if low.pixels.is_empty() {
        return high;
    }
    if high.pixels.is_empty() {
        return low;
    }
    let (x, y) = (low.x.min(high.x), low.y.min(high.y));
    let width = (low.x + low.width).max(high.x + high.width) - x;
    let height = (low.y + low.height).max(high.y + high.height) - y;
    let mut pixels = vec![[0.0f32; 4]; width * height];
    for (line, py) in low.pixels.chunks_exact(low.width).zip(low.y..) {
        let at = (py - y) * width + low.x - x;
        pixels[at..at + low.width].copy_from_slice(line);
    }
    for (line, py) in high.pixels.chunks_exact(high.width).zip(high.y..) {
        let at = (py - y) * width + high.x - x;
        for ((b, a), px) in line.iter().zip(&mut pixels[at..]).zip(high.x..) {
            let (front, back) = if camera.goes_up(px, py, axis) { (*a, *b) } else { (*b, *a) };
            let through = 1.0 - front[3];
            for c in 0..4 {
                a[c] = front[c] + through * back[c];
            }
        }
    }
    Layer { x, y, width, height, pixels }
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
