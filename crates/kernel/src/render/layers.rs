//! Partial pictures of the cells of the grid, composited in a fixed order.
//!
//! The cells are the leaves of a binary tree. A picture belongs to a node; as soon as a node and its
//! sibling are there they become their parent. So the association of the sums never depends on who
//! rendered what when, and a contiguous range of `n` cells is at most `2 log2 n` pictures.

use super::camera::Camera;
use super::wire;
use serde::de::{self, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use stead_core::{Error, Result};

/// Premultiplied colours and what they cover, or what is shown of them in the end.
pub(super) trait Pixel: Copy {
    fn put(y: usize, lines: &[Line<Self>]) -> Vec<u8>;
    fn take(bytes: &[u8]) -> Option<(usize, wire::Lines<Self>)>;
}

impl Pixel for [f32; 4] {
    fn put(y: usize, lines: &[Line<Self>]) -> Vec<u8> {
        wire::put(y, lines.iter().map(|l| (l.x, &*l.pixels)), |p| p.map(f32::to_bits))
    }

    fn take(bytes: &[u8]) -> Option<(usize, wire::Lines<Self>)> {
        wire::take(bytes, |bits: [u32; 4]| Some(bits.map(f32::from_bits)))
    }
}

impl Pixel for [u8; 3] {
    fn put(y: usize, lines: &[Line<Self>]) -> Vec<u8> {
        wire::put(y, lines.iter().map(|l| (l.x, &*l.pixels)), |p| p.map(u32::from))
    }

    fn take(bytes: &[u8]) -> Option<(usize, wire::Lines<Self>)> {
        wire::take(bytes, |bits: [u32; 3]| {
            let bytes = bits.map(u8::try_from);
            let [Ok(r), Ok(g), Ok(b)] = bytes else { return None };
            Some([r, g, b])
        })
    }
}

/// A stretch of pixels in a line of the picture; nothing is seen outside it.
#[derive(Debug, Clone, Default)]
pub(super) struct Line<P = [f32; 4]> {
    pub x: usize,
    pub pixels: Vec<P>,
}

/// Lines of a picture from `y` on, each as long as something is seen in it.
#[derive(Debug, Clone, Default)]
pub(super) struct Layer<P = [f32; 4]> {
    pub y: usize,
    pub lines: Vec<Line<P>>,
}

impl<P: Pixel> Serialize for Layer<P> {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_bytes(&P::put(self.y, &self.lines))
    }
}

impl<'de, P: Pixel> Deserialize<'de> for Layer<P> {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Bytes<P>(PhantomData<P>);

        impl<P: Pixel> Visitor<'_> for Bytes<P> {
            type Value = Layer<P>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("lines of a picture")
            }

            fn visit_bytes<E: de::Error>(self, bytes: &[u8]) -> Result<Layer<P>, E> {
                let (y, lines) =
                    P::take(bytes).ok_or_else(|| E::custom("no lines of a picture"))?;
                let lines = lines.into_iter().map(|(x, pixels)| Line { x, pixels }).collect();
                Ok(Layer { y, lines })
            }
        }

        d.deserialize_bytes(Bytes(PhantomData))
    }
}

impl<P: Pixel + Default> Layer<P> {
    pub fn fits(&self, camera: &Camera) -> bool {
        let within = |first: usize, len: usize, all: usize| {
            len == 0 || first.checked_add(len).is_some_and(|end| end <= all)
        };
        within(self.y, self.lines.len(), camera.height)
            && self.lines.iter().all(|l| within(l.x, l.pixels.len(), camera.width))
    }

    /// Adds lines that come after these. Nothing is seen in those between.
    pub fn append(&mut self, later: Layer<P>) -> stead_core::Result<()> {
        if later.lines.is_empty() {
            return Ok(());
        }
        if self.lines.is_empty() {
            *self = later;
            return Ok(());
        }
        let gap = later.y.checked_sub(self.y + self.lines.len()).ok_or_else(misfit)?;
        self.lines.extend(std::iter::repeat_with(Line::default).take(gap));
        self.lines.extend(later.lines);
        Ok(())
    }

    pub fn bytes(&self) -> usize {
        let line = |l: &Line<P>| size_of::<Line<P>>() + l.pixels.capacity() * size_of::<P>();
        128 + self.lines.iter().map(line).sum::<usize>()
    }
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

    /// What is shown of it before a background.
    pub fn shown(self, background: [u8; 3]) -> Layer<[u8; 3]> {
        let back = background.map(|b| f32::from(b) / 255.0);
        let pixel = |c: &[f32; 4]| {
            let channel = |j: usize| {
                let v = c[j] + (1.0 - c[3]) * back[j];
                // Casts from floats saturate.
                (v * 255.0 + 0.5) as u8
            };
            [channel(0), channel(1), channel(2)]
        };
        let line = |l: Line| Line { x: l.x, pixels: l.pixels.iter().map(pixel).collect() };
        Layer { y: self.y, lines: self.lines.into_iter().map(line).collect() }
    }
}

pub(super) fn misfit() -> Error {
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

    pub fn bytes(&self) -> usize {
        self.0.values().map(Layer::bytes).sum()
    }
}
