//! Pictures of flows as PNG: the same boxes and arrows, drawn by pixels, with letters of eight by eight dots.

use crate::draw::{Picture, Shown};
use stead_core::{Error, Result};

/// Pixels for each one of the SVG, as screens have them.
const SCALE: f64 = 2.0;
/// Pixels of one side of a picture at most.
const MOST: f64 = 16_384.0;
const BLACK: [u8; 3] = [34, 34, 34];
const GREY: [u8; 3] = [85, 85, 85];

struct Canvas {
    width: usize,
    height: usize,
    rgb: Vec<u8>,
}

impl Canvas {
    fn set(&mut self, x: f64, y: f64, colour: [u8; 3]) {
        if x < 0.0 || y < 0.0 {
            return;
        }
        let (x, y) = (x as usize, y as usize);
        if x < self.width && y < self.height {
            let at = (y * self.width + x) * 3;
            if let Some(to) = self.rgb.get_mut(at..at + 3) {
                to.copy_from_slice(&colour);
            }
        }
    }

    fn fill(&mut self, x: f64, y: f64, width: f64, height: f64, colour: [u8; 3]) {
        let (rows, columns) = (height.max(1.0) as usize, width.max(1.0) as usize);
        for row in 0..rows {
            for column in 0..columns {
                self.set(x + column as f64, y + row as f64, colour);
            }
        }
    }

    /// Letters of 8 by 16 pixels for each unit of the scale; what the font has not is a question mark.
    fn text(&mut self, x: f64, y: f64, text: &str, colour: [u8; 3]) {
        for (i, c) in text.chars().enumerate() {
            let glyph = usize::try_from(u32::from(c))
                .ok()
                .and_then(|c| font8x8::legacy::BASIC_LEGACY.get(c));
            let glyph = glyph.or_else(|| font8x8::legacy::BASIC_LEGACY.get(usize::from(b'?')));
            let Some(glyph) = glyph else { continue };
            for (row, bits) in glyph.iter().enumerate() {
                for column in (0..8).filter(|column| bits >> column & 1 == 1) {
                    let x = x + (i * 8 + column) as f64 * SCALE;
                    let y = y + row as f64 * SCALE;
                    self.fill(x, y, SCALE, SCALE, colour);
                }
            }
        }
    }
}

/// The picture as PNG.
///
/// # Errors
/// `Limit` for one that is too large.
pub fn png(picture: &Picture) -> Result<Vec<u8>> {
    let (width, height) = (picture.width * SCALE, picture.height * SCALE);
    if width > MOST || height > MOST {
        return Err(Error::limit(format!("a picture of {width:.0} x {height:.0} pixels"))
            .with_hint("draw it as SVG"));
    }
    let (width, height) = (width.ceil() as usize, height.ceil() as usize);
    let mut canvas = Canvas { width, height, rgb: vec![255; width * height * 3] };
    for arrow in &picture.arrows {
        let ends = arrow.points.iter().zip(arrow.points.iter().skip(1));
        for ((a, b), (x, y)) in ends {
            let middle = (a + x) / 2.0;
            let steps = (4.0 * ((x - a).abs() + (y - b).abs()) * SCALE).ceil().max(1.0);
            for n in 0..=steps as usize {
                // A cubic curve whose ends are level.
                let t = n as f64 / steps;
                let u = 1.0 - t;
                let weights = [u * u * u, 3.0 * u * u * t, 3.0 * u * t * t, t * t * t];
                let sum =
                    |points: [f64; 4]| points.iter().zip(weights).map(|(p, w)| p * w).sum::<f64>();
                let (px, py) = (sum([*a, middle, middle, *x]), sum([*b, *b, *y, *y]));
                canvas.fill(px * SCALE, py * SCALE, 2.0, 2.0, GREY);
            }
        }
        if let Some((x, y)) = arrow.points.last() {
            for back in 0..16 {
                let half = f64::from(back) * 0.5;
                canvas.fill(
                    x * SCALE - f64::from(back),
                    y * SCALE - half,
                    1.0,
                    2.0 * half + 1.0,
                    GREY,
                );
            }
        }
        if let Some((x, y)) = arrow.points.first() {
            canvas.text((x + 6.0) * SCALE, (y - 14.0) * SCALE, &arrow.label, GREY);
        }
    }
    for shown in &picture.boxes {
        let Shown { sort, lines, x, y, width, height } = shown;
        let [x, y, width, height] = [x, y, width, height].map(|n| n * SCALE);
        canvas.fill(x, y, width, height, BLACK);
        canvas.fill(x + 2.0, y + 2.0, width - 4.0, height - 4.0, sort.colour());
        for (i, line) in lines.iter().enumerate() {
            let (x, y) = (x + 10.0 * SCALE, y + (10.0 + 5.0 + 18.0 * i as f64) * SCALE);
            canvas.text(x, y, line, BLACK);
            if i == 0 {
                // A name is bold.
                canvas.text(x + 1.0, y, line, BLACK);
            }
        }
    }
    let bad = |e: png::EncodingError| Error::internal(format!("cannot encode a picture: {e}"));
    let mut bytes = Vec::new();
    let side = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let mut encoder = png::Encoder::new(&mut bytes, side(width), side(height));
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header().map_err(bad)?;
    writer.write_image_data(&canvas.rgb).map_err(bad)?;
    writer.finish().map_err(bad)?;
    Ok(bytes)
}
