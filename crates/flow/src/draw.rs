//! Pictures of flows: streams that are read on the left, nodes in layers, streams that are written on the right.

use crate::check::{Checked, Rate};
use std::collections::BTreeMap;
use std::fmt::Write;
use stead_core::Result;

/// Sizes, in pixels of an SVG.
const CHAR: f64 = 8.0;
const LINE: f64 = 18.0;
const PAD: f64 = 10.0;
const BETWEEN_LAYERS: f64 = 90.0;
const BETWEEN: f64 = 24.0;
const MARGIN: f64 = 20.0;
/// Characters of one line of a box.
const MOST: usize = 40;
/// How often boxes are put in the order of their neighbours.
const SWEEPS: usize = 6;

/// What a box is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sort {
    /// A stream that is read.
    Read,
    /// An operator.
    Node,
    /// A stream that is written.
    Write,
}

impl Sort {
    /// The colour that it is filled with.
    pub(crate) fn colour(self) -> [u8; 3] {
        match self {
            Sort::Read => [221, 235, 247],
            Sort::Node => [250, 250, 250],
            Sort::Write => [226, 240, 217],
        }
    }
}

/// A box with text.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Shown {
    pub sort: Sort,
    /// The first is the name.
    pub lines: Vec<String>,
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

/// An arrow: curves from point to point, and a word at its beginning.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Arrow {
    pub points: Vec<(f64, f64)>,
    pub label: String,
}

/// All of it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Picture {
    pub width: f64,
    pub height: f64,
    pub boxes: Vec<Shown>,
    pub arrows: Vec<Arrow>,
}

fn cut(text: &str) -> String {
    let clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match clean.chars().nth(MOST) {
        None => clean,
        Some(_) => clean.chars().take(MOST - 3).chain("...".chars()).collect(),
    }
}

/// Something in a layer: a box, or the way of an arrow past others.
struct Item {
    layer: usize,
    shown: Option<Shown>,
    height: f64,
    y: f64,
}

/// Where everything goes.
pub(crate) fn picture(checked: &Checked) -> Picture {
    let mut items: Vec<Item> = Vec::new();
    let mut add = |layer: usize, sort: Sort, lines: Vec<String>| {
        let lines: Vec<String> = lines.iter().map(|line| cut(line)).collect();
        let longest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let (width, height) =
            (longest as f64 * CHAR + 2.0 * PAD, lines.len() as f64 * LINE + 2.0 * PAD);
        let shown = Some(Shown { sort, lines, x: 0.0, y: 0.0, width, height });
        items.push(Item { layer, shown, height, y: 0.0 });
        items.len() - 1
    };
    // Which item makes a slot, and its layer.
    let mut makers: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    let mut reads = Vec::new();
    for read in &checked.reads {
        let mut lines = vec![read.alias.clone()];
        lines.push(match read.stream == read.alias {
            true => "reads a stream".to_owned(),
            false => format!("reads stream {}", read.stream),
        });
        reads.push(add(0, Sort::Read, lines));
    }
    for (slot, leaf) in
        checked.slots.iter().enumerate().filter_map(|(i, s)| Some((i, s.leaf.as_ref()?)))
    {
        if let Some(item) = reads.get(leaf.0) {
            makers.insert(slot, (*item, 0));
        }
    }
    let mut links: Vec<(usize, usize, String)> = Vec::new();
    let label = |slot: usize| {
        let name = checked.slots.get(slot).map_or("", |s| s.name.as_str());
        name.split_once('.').map_or(String::new(), |(_, last)| cut(last))
    };
    for node in &checked.nodes {
        let layer = node.inputs.iter().filter_map(|i| makers.get(i)).map(|(_, l)| *l).max();
        let layer = layer.unwrap_or(0) + 1;
        let mut lines = vec![node.name.clone(), node.op.describe()];
        if node.makes == 1
            && let Some(Some(form)) = checked.forms.get(node.first)
        {
            lines.push(form.describe());
        }
        if let Some(rate) = checked
            .slots
            .get(node.first)
            .map(|s| s.rate)
            .filter(|r| *r != Rate { first: 0, every: 1 })
        {
            lines.push(rate.describe());
        }
        let item = add(layer, Sort::Node, lines);
        for slot in &node.inputs {
            if let Some((from, _)) = makers.get(slot) {
                links.push((*from, item, label(*slot)));
            }
        }
        for slot in node.first..node.first + node.makes {
            makers.insert(slot, (item, layer));
        }
    }
    let last = makers.values().map(|(_, layer)| *layer).max().unwrap_or(0) + 1;
    for write in &checked.writes {
        let mut lines = vec![write.stream.clone()];
        lines.extend(write.variables.iter().map(|(name, slot)| {
            let from = checked.slots.get(*slot).map_or("", |s| s.name.as_str());
            if name == from { name.clone() } else { format!("{name} = {from}") }
        }));
        let item = add(last, Sort::Write, lines);
        let mut seen: Vec<(usize, String)> = Vec::new();
        for (_, slot) in &write.variables {
            if let Some((from, _)) = makers.get(slot) {
                let link = (*from, label(*slot));
                if !seen.contains(&link) {
                    links.push((link.0, item, link.1.clone()));
                    seen.push(link);
                }
            }
        }
    }
    // Arrows over several layers have a way past the boxes between.
    let mut ways: Vec<(Vec<usize>, String)> = Vec::new();
    for (from, to, label) in links {
        let layer = |i: usize| items.get(i).map_or(0, |item: &Item| item.layer);
        let (first, end) = (layer(from), layer(to));
        let mut way = vec![from];
        for layer in first + 1..end {
            items.push(Item { layer, shown: None, height: 2.0, y: 0.0 });
            way.push(items.len() - 1);
        }
        way.push(to);
        ways.push((way, label));
    }
    let layers = arrange(&items, &ways, last);
    place(&mut items, &layers, ways)
}

/// The items of each layer, so that neighbours are near each other.
fn arrange(items: &[Item], ways: &[(Vec<usize>, String)], last: usize) -> Vec<Vec<usize>> {
    let mut layers: Vec<Vec<usize>> = vec![Vec::new(); last + 1];
    for (i, item) in items.iter().enumerate() {
        if let Some(layer) = layers.get_mut(item.layer) {
            layer.push(i);
        }
    }
    let mut before: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    let mut after: Vec<Vec<usize>> = vec![Vec::new(); items.len()];
    for (way, _) in ways {
        for (a, b) in way.iter().zip(way.iter().skip(1)) {
            after.get_mut(*a).into_iter().for_each(|l| l.push(*b));
            before.get_mut(*b).into_iter().for_each(|l| l.push(*a));
        }
    }
    let mut at = vec![0.0; items.len()];
    let note = |layer: &[usize], at: &mut Vec<f64>| {
        for (n, i) in layer.iter().enumerate() {
            at.get_mut(*i).into_iter().for_each(|at| *at = n as f64);
        }
    };
    layers.iter().for_each(|layer| note(layer, &mut at));
    for sweep in 0..SWEEPS {
        let near = if sweep % 2 == 0 { &before } else { &after };
        let count = layers.len();
        for n in 0..count {
            let n = if sweep % 2 == 0 { n } else { count - 1 - n };
            let Some(layer) = layers.get_mut(n) else { continue };
            let mean = |i: &usize| {
                let near = near.get(*i).map(Vec::as_slice).unwrap_or_default();
                let sum: f64 = near.iter().filter_map(|j| at.get(*j)).sum();
                let own = at.get(*i).copied().unwrap_or(0.0);
                if near.is_empty() { own } else { sum / near.len() as f64 }
            };
            let mut order: Vec<(f64, usize)> = layer.iter().map(|i| (mean(i), *i)).collect();
            order.sort_by(|a, b| a.0.total_cmp(&b.0));
            *layer = order.into_iter().map(|(_, i)| i).collect();
            let layer = layer.clone();
            note(&layer, &mut at);
        }
    }
    layers
}

fn place(items: &mut [Item], layers: &[Vec<usize>], ways: Vec<(Vec<usize>, String)>) -> Picture {
    let tall = |items: &[Item], layer: &[usize]| -> f64 {
        let heights = layer.iter().filter_map(|i| items.get(*i)).map(|item| item.height);
        heights.sum::<f64>() + BETWEEN * layer.len().saturating_sub(1) as f64
    };
    let height = layers.iter().map(|layer| tall(items, layer)).fold(0.0, f64::max);
    // The left and the right end of each layer.
    let mut ends = Vec::new();
    let mut x = MARGIN;
    for layer in layers {
        let width = |i: &usize| items.get(*i)?.shown.as_ref().map(|shown| shown.width);
        let width = layer.iter().filter_map(width).fold(0.0, f64::max);
        ends.push((x, x + width));
        let mut y = MARGIN + (height - tall(items, layer)) / 2.0;
        for i in layer {
            if let Some(item) = items.get_mut(*i) {
                item.y = y + item.height / 2.0;
                if let Some(shown) = &mut item.shown {
                    (shown.x, shown.y) = (x + (width - shown.width) / 2.0, y);
                }
                y += item.height + BETWEEN;
            }
        }
        x += width + BETWEEN_LAYERS;
    }
    let mut arrows = Vec::new();
    for (way, label) in ways {
        let mut points = Vec::new();
        for (n, i) in way.iter().enumerate() {
            let Some(item) = items.get(*i) else { continue };
            match &item.shown {
                Some(shown) if n == 0 => points.push((shown.x + shown.width, item.y)),
                Some(shown) => points.push((shown.x, item.y)),
                None => {
                    let (left, right) = ends.get(item.layer).copied().unwrap_or_default();
                    points.extend([(left, item.y), (right, item.y)]);
                }
            }
        }
        arrows.push(Arrow { points, label });
    }
    let boxes = items.iter_mut().filter_map(|item| item.shown.take()).collect();
    Picture { width: x - BETWEEN_LAYERS + MARGIN, height: height + 2.0 * MARGIN, boxes, arrows }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            // Two that XML has not.
            '\u{fffe}' | '\u{ffff}' => out.push('?'),
            c => out.push(c),
        }
    }
    out
}

/// The flow as SVG.
pub fn svg(checked: &Checked) -> String {
    let picture = picture(checked);
    let mut out = String::new();
    let (w, h) = (picture.width, picture.height);
    // Text never fails.
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{w:.0}\" height=\"{h:.0}\" viewBox=\"0 0 {w:.0} {h:.0}\" \
         font-family=\"monospace\" font-size=\"13\">\n<title>{}</title>\n<defs><marker id=\"arrow\" viewBox=\"0 0 10 10\" \
         refX=\"10\" refY=\"5\" markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 0L10 5L0 10z\" \
         fill=\"#555\"/></marker></defs>\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n",
        escaped(&checked.name)
    );
    for arrow in &picture.arrows {
        let mut path = String::new();
        for (i, (x, y)) in arrow.points.iter().enumerate() {
            let before = i.checked_sub(1).and_then(|i| arrow.points.get(i));
            let _ = match before {
                None => write!(path, "M{x:.1} {y:.1}"),
                Some((a, b)) => {
                    let middle = (a + x) / 2.0;
                    write!(path, "C{middle:.1} {b:.1} {middle:.1} {y:.1} {x:.1} {y:.1}")
                }
            };
        }
        let _ = writeln!(
            out,
            "<path d=\"{path}\" fill=\"none\" stroke=\"#555\" marker-end=\"url(#arrow)\"/>"
        );
        if let (Some((x, y)), false) = (arrow.points.first(), arrow.label.is_empty()) {
            let (x, y, label) = (x + 6.0, y - 5.0, escaped(&arrow.label));
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\" fill=\"#555\">{label}</text>");
        }
    }
    for shown in &picture.boxes {
        let Shown { sort, lines, x, y, width, height } = shown;
        let [r, g, b] = sort.colour();
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" rx=\"4\" \
             fill=\"rgb({r},{g},{b})\" stroke=\"#333\"/>"
        );
        for (i, line) in lines.iter().enumerate() {
            let (x, y) = (x + PAD, y + PAD + LINE * (i as f64 + 0.72));
            let weight = if i == 0 { " font-weight=\"bold\"" } else { "" };
            let line = escaped(line);
            let _ = writeln!(out, "<text x=\"{x:.1}\" y=\"{y:.1}\"{weight}>{line}</text>");
        }
    }
    out.push_str("</svg>\n");
    out
}

/// The flow as PNG.
///
/// # Errors
/// `Limit` for a picture that is too large.
pub fn png(checked: &Checked) -> Result<Vec<u8>> {
    crate::png::png(&picture(checked))
}
