//! The kernel `render` of `stead run` over a 3-d value: a picture of each step, as an array of pixels.

use super::{MOST_STATE, passes::Asked};
use crate::element::{Element, with_type};
use crate::form::Form;
use crate::value::{Value, bytes_of, zeros};
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use stead_core::block::brick_planes;
use stead_core::{Block, Bounds, Brick, DType, Error, Order, RecordKind, Result, Schema, Shape};
use stead_kernel::{AnyKernel, AnyState, Context, Spec, registry, render};

/// Bytes that threads have before them together, unless one needs more.
const BESIDE: u64 = 256 << 20;
/// Bytes of what a thread has drawn, for each pixel: cells that are no neighbours are not one picture yet.
const STATE: u64 = 32;
/// Bytes of a pixel as others are told of it, at most: four channels, each as one and a code before it.
const TOLD: u64 = 28;
/// Bytes of what all ranks tell, at most: half of what a stream may have on one node, where all of them may be.
const MOST_OF_ALL: u64 = 2 << 30;

/// True of a kernel that makes one.
pub fn is_one(kernel: &str) -> bool {
    Spec::parse(kernel).is_ok_and(|spec| spec.name == render::INFO.name)
}

/// Whether it can be one, of what is known before there are values.
///
/// # Errors
/// `Usage`.
pub fn check(asked: &Asked<'_>) -> Result<()> {
    if asked.of.len() != 1 {
        return Err(Error::usage("it draws one value, a 3-d array"));
    }
    if asked.member.is_some() || asked.shape.is_some() || asked.rows {
        return Err(Error::usage("a picture has no 'member', no 'shape' and no 'rows'")
            .with_hint("its width and height are options: render:width=640,height=480"));
    }
    build(asked.kernel, [1; 3]).map(drop)
}

/// The kernel that draws an array of this shape.
///
/// # Errors
/// `Usage`.
pub fn build(text: &str, dims: [u64; 3]) -> Result<Arc<dyn AnyKernel>> {
    let spec = Spec::parse(text)?;
    if spec.option("out").is_some() {
        return Err(Error::usage("a picture of a flow is an array, and has no 'out'")
            .with_hint("who reads the stream makes a file of it"));
    }
    let shape = Some(Shape::new(dims.to_vec()).map_err(|e| Error::usage(e.message()))?);
    let schema = Schema { records: RecordKind::Items, columns: Vec::new(), shape };
    // No file is ever made.
    let path = Some(Path::new("picture"));
    Ok(registry::build(&spec, &Context { schema: &schema, path, grouped: false })?.kernel)
}

/// The shape of what is drawn.
///
/// # Errors
/// `Usage` for what is no 3-d array.
pub fn dims(of: &Form) -> Result<[u64; 3]> {
    <[u64; 3]>::try_from(&of.shape[..])
        .map_err(|_| Error::usage(format!("it is {}, and no 3-d array", of.describe())))
}

/// What comes out: red, green and blue of each pixel, the top row first.
pub fn form(of: &Form, kernel: &str) -> Result<Form> {
    build(kernel, dims(of)?)?;
    let (width, height) = render::size(&Spec::parse(kernel)?)?;
    Ok(Form {
        dtype: DType::U8,
        shape: vec![height as u64, width as u64, 3],
        dims: ["y", "x", "rgb"].map(str::to_owned).to_vec(),
        attributes: Default::default(),
    })
}

/// Bytes that a thread has before it, of voxels and of what it has drawn, and how many threads there may be.
fn each(dims: [u64; 3], pixels: u64) -> (u64, u64) {
    let planes = brick_planes(dims) + render::MOST_HALO;
    let voxels = planes.saturating_mul(dims[1]).saturating_mul(dims[2]).saturating_mul(4);
    let one = voxels.saturating_add(pixels.saturating_mul(STATE));
    (one, BESIDE.checked_div(one).unwrap_or(1).min(cells_of(dims)).max(1))
}

fn cells_of(dims: [u64; 3]) -> u64 {
    dims[0].div_ceil(brick_planes(dims))
}

fn pixels_of(made: &Form) -> u64 {
    made.shape.iter().take(2).fold(1, |all: u64, n| all.saturating_mul(*n))
}

/// Pixels of the picture that is asked for: no more than 2^24.
fn pixels_asked(kernel: &str) -> Result<u64> {
    let (width, height) = render::size(&Spec::parse(kernel)?)?;
    Ok((width as u64).saturating_mul(height as u64))
}

/// How many threads may draw an array of this shape.
///
/// # Errors
/// `Usage`.
pub fn most_threads(kernel: &str, dims: [u64; 3]) -> Result<u64> {
    Ok(each(dims, pixels_asked(kernel)?).1)
}

/// True if each rank may draw some of the cells of an array: what they have drawn is little enough to be told. Cells that follow each
/// other become fewer pictures than twice the binary logarithm of their number, and one.
///
/// # Errors
/// `Usage`.
pub fn is_told(kernel: &str, dims: [u64; 3], ranks: u64) -> Result<bool> {
    let cells = cells_of(dims).div_ceil(ranks.max(1));
    let pictures = 2 * u64::from(cells.saturating_add(1).ilog2()) + 1;
    let most = pixels_asked(kernel)?.saturating_mul(TOLD).saturating_mul(pictures);
    Ok(most <= MOST_STATE && most.saturating_mul(ranks) <= MOST_OF_ALL)
}

/// Bytes that it has before it beside what comes out, at most.
pub fn beside_bytes(of: &Form, made: &Form) -> u64 {
    dims(of).map_or(0, |dims| {
        let (one, threads) = each(dims, pixels_of(made));
        // In the end as pixels, as a file, and as pixels again.
        one.saturating_mul(threads).saturating_add(pixels_of(made).saturating_mul(9))
    })
}

/// One pass over the cells of some planes: each thread has some that follow each other.
///
/// # Errors
/// Those of the kernel; system errors: a thread cannot be begun.
pub fn pass(
    kernel: &Arc<dyn AnyKernel>,
    value: &Value,
    dims: [u64; 3],
    planes: Range<u64>,
    threads: u64,
) -> Result<AnyState> {
    let cell = brick_planes(dims);
    let (first, end) = (planes.start / cell, planes.end.div_ceil(cell));
    let cells = end.saturating_sub(first);
    let threads = threads.min(cells).max(1);
    let some =
        |thread: u64| first + cells * thread / threads..first + cells * (thread + 1) / threads;
    let states: Result<Vec<AnyState>> = std::thread::scope(|scope| {
        let begin = |thread: u64| {
            let work = move || drawn(kernel, value, dims, some(thread));
            std::thread::Builder::new()
                .spawn_scoped(scope, work)
                .map_err(|e| Error::io("start a thread for", "a picture", e))
        };
        let drawing = (1..threads).map(begin).collect::<Result<Vec<_>>>()?;
        let mut states = vec![drawn(kernel, value, dims, some(0))?];
        let panicked = |_| Err(Error::internal("a thread that draws panicked"));
        for thread in drawing {
            states.push(thread.join().unwrap_or_else(panicked)?);
        }
        Ok(states)
    });
    let mut all = kernel.init();
    for state in states? {
        kernel.merge(&mut all, state)?;
    }
    Ok(all)
}

/// What there is of some cells.
fn drawn(
    kernel: &Arc<dyn AnyKernel>,
    value: &Value,
    dims: [u64; 3],
    cells: Range<u64>,
) -> Result<AnyState> {
    let (mut state, halo) = (kernel.init(), kernel.needs().brick.unwrap_or(0));
    let (cell, mut voxels) = (brick_planes(dims), Vec::new());
    for number in cells {
        let first = number * cell;
        let end = (first + cell).min(dims[0]);
        let with = (end + halo).min(dims[0]);
        let part = Bounds::new([first, 0, 0], [with - first, dims[1], dims[2]])?;
        take(value, &part, &mut voxels)?;
        let planes = usize::try_from(end - first).unwrap_or(usize::MAX);
        let brick = Brick { shape: dims, order: Order::C, first, planes, voxels: &voxels };
        let block = Block { seq: number, rows: planes, brick: Some(brick), ..Block::empty() };
        kernel.update(&mut state, &block)?;
    }
    Ok(state)
}

/// The elements of a box in C order.
fn take(value: &Value, part: &Bounds, voxels: &mut Vec<f32>) -> Result<()> {
    voxels.clear();
    voxels.resize(bytes_of(part, DType::F32)? / 4, 0.0);
    with_type!(value.dtype, T => value.runs(part, &mut |run| {
        let mut at = run.at;
        T::each(&run, &mut |x: T| {
            if let Some(to) = voxels.get_mut(at) {
                *to = x.to_f64() as f32;
            }
            at += run.step;
        })
    }))
}

/// The pixels of what was to be a file.
///
/// # Errors
/// `Internal` if it is none.
pub fn pixels(png: &[u8], made: &Form) -> Result<Value> {
    let odd = |e: png::DecodingError| Error::internal(format!("a picture that is none: {e}"));
    let bounds = made.whole()?;
    let mut bytes = zeros(bytes_of(&bounds, DType::U8)?)?;
    let mut picture = png::Decoder::new(std::io::Cursor::new(png)).read_info().map_err(odd)?;
    picture.next_frame(&mut bytes).map_err(odd)?;
    Value::own(DType::U8, bounds, Arc::new(bytes))
}
