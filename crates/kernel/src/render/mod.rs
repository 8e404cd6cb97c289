//! The kernel `render`: a picture of a 3-d array by ray casting.
//!
//! The array is cut into cells of whole planes by a grid that depends on its shape alone. Each cell gives a
//! picture of its own samples; pictures are composited up a fixed binary tree over the grid (`layers`).
//! Where a sample lies depends on its ray and the step, never on the cell, so any split of the data gives
//! the same bits. Parts of a cell that cannot be seen are passed over, which changes no bit (`empty`), and
//! gradients are made of samples half a voxel apart, so that they too depend on the place alone. Cells of
//! one worker that are no neighbours cannot be joined, so the memory grows with the number of cells that a
//! worker holds out of order.

mod camera;
mod cast;
mod empty;
mod layers;
mod sample;
#[cfg(test)]
mod tests;
mod transfer;
pub(crate) mod wire;

use crate::{Built, Context, Info, Kernel, Spec, Step};
use camera::Camera;
use cast::{Cell, Shading, View};
use layers::{Layer, Layers, misfit};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::sync::Arc;
use stead_core::block::brick_planes;
use stead_core::{Block, Brick, Error, Needs, Order, Result, Value};
use transfer::Transfer;

/// Pixels of one picture: 256 MiB of partial colours.
const MAX_PIXELS: usize = 1 << 24;

/// Little of what is near the least value, which often is noise, and more the higher a value is.
const OPACITY: &str = "0:0;0.05:0;0.3:0.02;1:0.3";

/// About `render`.
pub const INFO: Info = Info {
    name: "render",
    summary: "picture of a 3-d array by volume rendering, as PNG",
    usage: "render:OPTION=VALUE,...",
    definition: "Casts a ray through each pixel, samples the array by trilinear interpolation every step \
        voxels, and composites colours front to back (emission and absorption). Options: out (beside the \
        data as NAME.render.png), width=512, height=512, azimuth=30 and elevation=20 (degrees; axis 0 \
        points up, azimuth 0 looks from high to low indices of axis 2 with axis 1 to the right, and greater \
        azimuths move the eye towards high indices of axis 1), zoom=1 (the sphere around the volume fills \
        the shorter side), projection=orthographic or perspective, min and max (values at the ends of the \
        colours; found in a first pass over the finite voxels if not given), colors=viridis, gray, hot or \
        cool, opacity='0:0;0.05:0;0.3:0.02;1:0.3' (points VALUE:OPACITY over the value scaled to 0..1; the \
        opacity is that of one voxel's length), background=black, white or #rrggbb, step=1, \
        shading=gradient or none. With gradient a colour is scaled by 0.5 + 0.5 |cos| of the angle between \
        the gradient (the difference of the values half a voxel to either side along each axis) and a light \
        that comes from the viewer's side, from above and the left; where the array is flat it is not \
        scaled. Voxels are read as f32; a sample between voxels of which one is not finite is transparent. An \
        array of one value is drawn as the middle of the colours. An empty array gives the background.",
    error: "the same bits for any split; against one sum over the whole ray below 1 level of 255 (rays end \
        where less than 1e-4 of the light passes; values are interpolated and colours summed in f32). The same array in C and in \
        Fortran order can differ by 1 level",
    cost: "one pass, or two if an end of the colours is not given. Time by samples: pixels times voxels on a ray, \
        but parts that cannot be seen are passed over; with shading=gradient a sample that is seen costs \
        seven. 16 bytes for each pixel that a cell covers",
    source: "Levoy, Display of Surfaces from Volume Data, IEEE CG&A 8(3) (1988); Porter and Duff (1984)",
    examples: &[
        "render",
        "render:out=vol.png,width=256,height=256,colors=hot,opacity='0:0;0.5:0.1;1:0.8'",
    ],
};

const OPTIONS: [&str; 14] = [
    "out",
    "width",
    "height",
    "azimuth",
    "elevation",
    "zoom",
    "projection",
    "min",
    "max",
    "colors",
    "opacity",
    "background",
    "step",
    "shading",
];

/// What was asked for, checked.
#[derive(Debug, Clone)]
struct Picture {
    out: PathBuf,
    dims: [u64; 3],
    camera: Camera,
    colors: &'static [[f32; 3]],
    opacity: Vec<(f64, f64)>,
    background: [u8; 3],
    step: f64,
    shading: Shading,
    min: Option<f64>,
    max: Option<f64>,
}

/// Makes `render`.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    spec.only_options(&OPTIONS)?;
    if !spec.args.is_empty() {
        return Err(spec.error("it takes options only"));
    }
    if context.grouped {
        return Err(spec.error("a picture cannot be made by groups"));
    }
    let dims = match context.schema.shape.as_ref().map(|s| s.dims()) {
        Some(&[a, b, c]) => [a, b, c],
        Some(d) => {
            return Err(spec
                .error(format!("it needs a 3-d array, and this one has {} dimensions", d.len())));
        }
        None => return Err(spec.error("it needs a 3-d array, and this dataset is none")),
    };
    if dims.iter().any(|d| *d > sample::MOST) {
        return Err(spec.error("it draws at most 2^30 voxels along an axis"));
    }
    let within = |key: &str, default: f64, low: f64, high: f64| -> Result<f64> {
        let v: f64 = spec.parse_option(key, default)?;
        if (low..=high).contains(&v) {
            return Ok(v);
        }
        Err(spec.error(format!("{key} must be between {low} and {high}")))
    };
    let (width, height) = size(spec)?;
    let perspective = match spec.option("projection") {
        None | Some("orthographic") => false,
        Some("perspective") => true,
        Some(_) => return Err(spec.error("projection is orthographic or perspective")),
    };
    let shading = match spec.option("shading") {
        None | Some("gradient") => Shading::Gradient,
        Some("none") => Shading::None,
        Some(_) => return Err(spec.error("shading is gradient or none")),
    };
    let name = spec.option("colors").unwrap_or("viridis");
    let colors = transfer::MAPS
        .iter()
        .find(|(n, _)| *n == name)
        .ok_or_else(|| spec.error("colors is viridis, gray, hot or cool"))?
        .1;
    let bound = |key: &str| -> Result<Option<f64>> {
        match spec.option(key) {
            None => Ok(None),
            Some(_) => within(key, 0.0, -f64::from(f32::MAX), f64::from(f32::MAX)).map(Some),
        }
    };
    let (min, max) = (bound("min")?, bound("max")?);
    if min.zip(max).is_some_and(|(a, b)| a > b) {
        return Err(spec.error("min is above max"));
    }
    let out = match (spec.option("out"), context.path) {
        (Some(""), _) => return Err(spec.error("out is empty")),
        (Some(o), _) => PathBuf::from(o),
        (None, Some(p)) => p.with_extension("render.png"),
        (None, None) => return Err(spec.error("say where to write the picture: out=FILE.png")),
    };
    let camera = Camera::new(
        (width, height),
        dims,
        within("azimuth", 30.0, -360.0, 360.0)?,
        within("elevation", 20.0, -90.0, 90.0)?,
        within("zoom", 1.0, 0.01, 1000.0)?,
        perspective,
    );
    let picture = Picture {
        out,
        dims,
        camera,
        colors,
        opacity: transfer::points(spec.option("opacity").unwrap_or(OPACITY))?,
        background: background(spec)?,
        step: within("step", 1.0, 0.05, 100.0)?,
        shading,
        min,
        max,
    };
    Ok(match (min, max) {
        (Some(a), Some(b)) => Built::alone(spec, picture.draw(Some((a, b)))),
        _ => Built::alone(spec, Range(picture)),
    })
}

/// Planes that a cell of any picture needs after its own, at most.
pub const MOST_HALO: u64 = Shading::Gradient.halo();

/// The width and the height of the picture that is asked for.
///
/// # Errors
/// `Usage` for none, and for more pixels than there may be.
pub fn size(spec: &Spec) -> Result<(usize, usize)> {
    let (width, height) = (spec.parse_option("width", 512)?, spec.parse_option("height", 512)?);
    if width == 0 || height == 0 || usize::checked_mul(width, height).is_none_or(|n| n > MAX_PIXELS)
    {
        return Err(
            spec.error("width and height must be at least 1, and their product at most 2^24")
        );
    }
    Ok((width, height))
}

fn background(spec: &Spec) -> Result<[u8; 3]> {
    match spec.option("background") {
        None | Some("black") => Ok([0; 3]),
        Some("white") => Ok([255; 3]),
        Some(s) => s
            .strip_prefix('#')
            .filter(|h| h.len() == 6 && h.bytes().all(|b| b.is_ascii_hexdigit()))
            .and_then(|h| u32::from_str_radix(h, 16).ok())
            .map(|v| [(v >> 16) as u8, (v >> 8) as u8, v as u8])
            .ok_or_else(|| spec.error("background is black, white or #rrggbb")),
    }
}

impl Picture {
    fn draw(&self, range: Option<(f64, f64)>) -> Draw {
        let (min, max) = range.unwrap_or((0.0, 1.0));
        let transfer = Transfer::new(min, max, self.colors, &self.opacity, self.step);
        Draw { picture: self.clone(), transfer, range }
    }

    /// The brick of a block, if it is one of this array.
    fn brick<'a>(&self, block: &Block<'a>) -> Result<Option<Brick<'a>>> {
        let Some(b) = block.brick else { return Ok(None) };
        let mut dims = b.shape;
        if b.order == Order::Fortran {
            dims.reverse();
        }
        if dims != self.dims || block.source != 0 {
            return Err(Error::usage("render draws one array, and this dataset has several")
                .with_hint("name one file")
                .at_source(block.source));
        }
        Ok(Some(b))
    }
}

/// Bricks with so many planes after their own.
fn needs(halo: u64) -> Needs {
    Needs { brick: Some(halo), ..Needs::default() }
}

/// The least and the greatest finite value.
fn finite_range(values: &[f32]) -> Option<(f32, f32)> {
    let (mut low, mut high) = ([f32::INFINITY; 16], [f32::NEG_INFINITY; 16]);
    let mut add = |i: usize, v: f32| {
        let finite = v.is_finite();
        // 0 and -0 are one value here, or the answer would depend on which comes first.
        let v = v + 0.0;
        low[i] = if finite && v < low[i] { v } else { low[i] };
        high[i] = if finite && v > high[i] { v } else { high[i] };
    };
    let (chunks, rest) = values.as_chunks::<16>();
    for c in chunks {
        c.iter().enumerate().for_each(|(i, v)| add(i, *v));
    }
    rest.iter().for_each(|v| add(0, *v));
    let low = low.iter().fold(f32::INFINITY, |a, b| a.min(*b));
    let high = high.iter().fold(f32::NEG_INFINITY, |a, b| a.max(*b));
    (low <= high).then_some((low, high))
}

/// The first pass: the range of the finite voxels.
struct Range(Picture);

impl Kernel for Range {
    type State = Option<(f32, f32)>;

    fn needs(&self) -> Needs {
        // Each voxel once.
        needs(0)
    }

    fn init(&self) -> Self::State {
        None
    }

    fn update(&self, state: &mut Self::State, block: &Block<'_>) -> Result<()> {
        let Some(b) = self.0.brick(block)? else { return Ok(()) };
        let own =
            b.planes * (b.voxels.len() / b.planes.max(1)).min((b.shape[1] * b.shape[2]) as usize);
        if let Some((low, high)) = finite_range(&b.voxels[..own]) {
            *state = Some(state.map_or((low, high), |(a, b)| (a.min(low), b.max(high))));
        }
        Ok(())
    }

    fn merge(&self, state: &mut Self::State, other: Self::State) -> Result<()> {
        *state = match (*state, other) {
            (Some(a), Some(b)) => Some((a.0.min(b.0), a.1.max(b.1))),
            (a, b) => a.or(b),
        };
        Ok(())
    }

    fn check(&self, state: &Self::State) -> Result<()> {
        match state {
            Some((a, b)) if !(a.is_finite() && b.is_finite() && a <= b) => {
                Err(Error::format("a range from another rank has no lower and upper end"))
            }
            _ => Ok(()),
        }
    }

    fn finish(&self, state: Self::State) -> Result<Step> {
        let range = state.map(|(a, b)| {
            let (a, b) = (f64::from(a), f64::from(b));
            // A bound that was given wins, and the other one does not pass it.
            let min = self.0.min.unwrap_or(self.0.max.map_or(a, |m| a.min(m)));
            (min, self.0.max.unwrap_or(b.max(min)))
        });
        Ok(Step::Next(Arc::new(self.0.draw(range))))
    }

    fn output(&self) -> Option<PathBuf> {
        Some(self.0.out.clone())
    }
}

/// The pass that draws.
struct Draw {
    picture: Picture,
    transfer: Transfer,
    range: Option<(f64, f64)>,
}

/// Pictures of the cells so far.
#[derive(Default, Serialize, Deserialize)]
struct Drawn {
    /// Whether the array lies in Fortran order, once that is known.
    fortran: Option<bool>,
    layers: Layers,
    /// What is shown in the end of a piece of the picture that has all cells, in place of them.
    shown: Option<Layer<[u8; 3]>>,
    /// Room for voxels of a cell as places in the table of colours.
    #[serde(skip)]
    places: Vec<f32>,
}

impl Draw {
    /// True if later cells are seen above earlier ones.
    fn ascends(&self, fortran: Option<bool>) -> bool {
        fortran.is_some_and(|f| self.picture.camera.rises(self.grid(f).0))
    }

    /// The user's axis along which cells follow each other, and their number.
    fn grid(&self, fortran: bool) -> (usize, u64) {
        let mut shape = self.picture.dims;
        if fortran {
            shape.reverse();
        }
        (if fortran { 2 } else { 0 }, shape[0].div_ceil(brick_planes(shape)))
    }
}

impl Kernel for Draw {
    type State = Drawn;

    fn needs(&self) -> Needs {
        needs(self.picture.shading.halo())
    }

    fn init(&self) -> Drawn {
        Drawn::default()
    }

    fn update(&self, state: &mut Drawn, block: &Block<'_>) -> Result<()> {
        let Some(b) = self.picture.brick(block)? else { return Ok(()) };
        let fortran = b.order == Order::Fortran;
        let (axis, cells) = self.grid(fortran);
        let (cell, plane) = (brick_planes(b.shape), (b.shape[1] * b.shape[2]) as usize);
        let last = b.first + b.planes as u64;
        // At most 2.
        let halo = |end: u64| self.picture.shading.halo().min(b.shape[0] - end) as usize;
        if !b.first.is_multiple_of(cell)
            || last > b.shape[0]
            || b.voxels.len() < (b.planes + halo(last)) * plane
        {
            return Err(Error::internal("a brick does not lie on the grid"));
        }
        state.fortran = Some(fortran);
        let row = b.shape[2] as usize;
        let strides = if fortran { [1, row, plane] } else { [plane, row, 1] };
        let own = &b.voxels[..(b.planes + halo(last)) * plane];
        let p = &self.picture;
        let view =
            View { camera: &p.camera, transfer: &self.transfer, step: p.step, shading: p.shading };
        for first in (b.first..last).step_by(cell as usize) {
            let end = (first + cell).min(last);
            let from = (first - b.first) as usize * plane;
            let to = (end - b.first) as usize + halo(end);
            let voxels = &own[from..to * plane];
            let c = Cell { dims: self.picture.dims, axis, first, end, voxels, strides };
            let layer = c.render(&view, &mut state.places, block.cancel)?;
            state.layers.insert((0, first / cell), layer, cells, &p.camera, axis)?;
        }
        Ok(())
    }

    fn merge(&self, state: &mut Drawn, other: Drawn) -> Result<()> {
        if state.shown.is_some() || other.shown.is_some() {
            return Err(misfit());
        }
        let Some(fortran) = other.fortran else { return Ok(()) };
        let (axis, cells) = self.grid(fortran);
        state.fortran = Some(fortran);
        for (node, layer) in other.layers.into_nodes() {
            state.layers.insert(node, layer, cells, &self.picture.camera, axis)?;
        }
        Ok(())
    }

    fn check(&self, state: &Drawn) -> Result<()> {
        let camera = &self.picture.camera;
        match &state.shown {
            Some(shown) if !shown.fits(camera) || state.layers.bytes() > 0 => Err(misfit()),
            _ => state.layers.check(camera),
        }
    }

    fn is_last(&self) -> bool {
        true
    }

    fn cuts(&self) -> bool {
        true
    }

    /// Cuts between lines of the picture: each pixel is composited alone, so that pieces give the bits of the whole. Ranks have
    /// cells in their order, so the first piece is where the first cells are seen, at the top or at the bottom.
    fn cut(&self, state: Drawn, pieces: usize) -> Result<Vec<Drawn>> {
        let camera = &self.picture.camera;
        let far = self.picture.dims.map(|d| d.saturating_sub(1) as f64);
        // Lines in which nothing can be seen are nobody's work.
        let (first, last) = camera.sight(&[0.0; 3], &far).y;
        let lines = last.saturating_sub(first);
        let end = |i| if i == pieces { usize::MAX } else { first + lines * i / pieces };
        let ends: Vec<usize> = (1..=pieces).map(end).collect();
        let fortran = state.fortran;
        let whole = |layers| Drawn { fortran, layers, ..Drawn::default() };
        let mut cut: Vec<Drawn> = state.layers.cut(&ends).into_iter().map(whole).collect();
        if self.ascends(fortran) {
            cut.reverse();
        }
        Ok(cut)
    }

    /// Pixels that all cells are in are what the file will have: three bytes in place of sixteen.
    fn close(&self, piece: Drawn) -> Result<Drawn> {
        let fortran = piece.fortran;
        let shown = piece.layers.whole()?.map(|layer| layer.shown(self.picture.background));
        Ok(Drawn { fortran, shown, ..Drawn::default() })
    }

    fn assemble(&self, pieces: Vec<Drawn>) -> Result<Drawn> {
        let mut pieces = pieces;
        let fortran = pieces.iter().find_map(|p| p.fortran);
        if self.ascends(fortran) {
            pieces.reverse();
        }
        let mut shown: Option<Layer<[u8; 3]>> = None;
        for piece in pieces {
            if piece.layers.bytes() > 0 {
                return Err(misfit());
            }
            match (&mut shown, piece.shown) {
                (Some(shown), Some(more)) => shown.append(more)?,
                (shown, more) => *shown = shown.take().or(more),
            }
        }
        Ok(Drawn { fortran, shown, ..Drawn::default() })
    }

    fn finish(&self, state: Drawn) -> Result<Step> {
        let p = &self.picture;
        let (width, height) = (p.camera.width, p.camera.height);
        let mut rgb = p.background.repeat(width * height);
        let whole = state.layers.whole()?.map(|layer| layer.shown(p.background));
        if let Some(layer) = state.shown.or(whole) {
            for (line, y) in layer.lines.iter().zip(layer.y..) {
                if !line.pixels.is_empty() {
                    let to = &mut rgb[(y * width + line.x) * 3..][..line.pixels.len() * 3];
                    to.copy_from_slice(line.pixels.as_flattened());
                }
            }
        }
        let bytes = png(width, height, &rgb)?;
        let end = |v: Option<f64>| v.map_or(Value::Null, Value::Float);
        let value = Value::map([
            ("out", Value::Text(p.out.display().to_string())),
            ("width", Value::Int(width as u64)),
            ("height", Value::Int(height as u64)),
            ("min", end(self.range.map(|r| r.0))),
            ("max", end(self.range.map(|r| r.1))),
        ]);
        Ok(Step::File { path: p.out.clone(), bytes, value })
    }

    fn output(&self) -> Option<PathBuf> {
        Some(self.picture.out.clone())
    }

    fn state_bytes(&self, state: &Drawn) -> usize {
        let shown = state.shown.as_ref().map_or(0, Layer::bytes);
        state.layers.bytes() + shown + size_of_val(state.places.as_slice())
    }
}

fn png(width: usize, height: usize, rgb: &[u8]) -> Result<Vec<u8>> {
    let bad = |e: png::EncodingError| Error::internal(format!("cannot encode a picture: {e}"));
    let mut bytes = Vec::new();
    // Both are at most 2^24.
    let mut encoder = png::Encoder::new(&mut bytes, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    // The smallest file would take longer than a picture of a few million voxels.
    encoder.set_compression(png::Compression::Fast);
    // Trying all filters for each line takes several times longer.
    encoder.set_filter(png::Filter::Paeth);
    let mut writer = encoder.write_header().map_err(bad)?;
    writer.write_image_data(rgb).map_err(bad)?;
    writer.finish().map_err(bad)?;
    Ok(bytes)
}
