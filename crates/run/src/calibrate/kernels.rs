//! What kernels take on one core, for the bytes of each format.
//!
//! Passes after the first one are over what is kept in memory, as they are in runs. Kernels whose work does not follow from bytes
//! alone are measured with few steps and with many. Data are made in memory, so that no device is measured with them. Time is that of the core and not of the wall: others who
//! use the machine do not change it much.

use crate::cache::{Cache, Kepts};
use crate::clock::{Watch, thread_seconds};
use crate::pass::Keep;
use crate::place::assumed;
use crate::request::Request;
use std::fmt::Write;
use std::sync::Arc;
use stead_core::{Cancel, DType, Needs, Result};
use stead_format::{Dataset, FormatType, OpenOptions, Scan, ScanOptions, vectors};
use stead_kernel::{AnyKernel, Context, Spec, Step, registry};
use stead_model::Cost;
use stead_store::MemorySource;

/// Rows of text, elements of arrays and bytes of records that are made.
const ROWS: usize = 50_000;
const ELEMENTS: usize = 1 << 18;
const RECORD: usize = 64;
/// Of a volume, and balls in it.
const SIDE: usize = 64;
const BALLS: usize = 20;
/// Of points that are clustered: values, more than caches near a core hold, as data that are kept have.
const VALUES: usize = 1 << 20;
const COLUMNS: usize = 8;
const CLUSTERS: usize = 20;
/// Passes that are looked at; iterative kernels have more of the same. Later ones are shorter, as they know what came of earlier
/// ones, so that few would say too much.
const PASSES: usize = 12;
/// Bytes of blocks that may be kept between them: all.
const KEPT: u64 = 1 << 30;
/// How often a kernel is measured at most.
const TRIES: usize = 20;

/// Kernels over columns of numbers, where `x`, `y` and `z` are such.
const NUMBERS: [&str; 11] = [
    "rows",
    "count:x",
    "sum:x",
    "mean:x",
    "var:x",
    "std:x",
    "min:x",
    "max:x",
    "hist:x,bins=64,min=0,max=1000",
    "quantile:x",
    "gram:x,y,z",
];
/// With few centres and with many. Of a text few columns are numbers; of an array all.
const CENTRES: [&str; 2] =
    ["kmeans:x,y,z,k=4,tol=0,rounds=10,init=first", "kmeans:x,y,z,k=20,tol=0,rounds=10,init=first"];
const POINTS: [&str; 2] =
    ["kmeans:k=4,tol=0,rounds=10,init=first", "kmeans:k=20,tol=0,rounds=10,init=first"];
/// Kernels over bytes of text. Most of what is looked for begins with letters that are known; some of the lines have it.
const TEXT: [&str; 4] = ["lines", "grep:'e6\\d'", "digits", "entropy"];
/// Of those over rows, and of those over bytes, what records without columns have.
const OPAQUE: [&str; 4] = ["rows", "grep:'e6\\d'", "digits", "entropy"];
/// With as many rays as a picture of a thousand pixels a side has for some gigabytes, and with more.
const PICTURES: [&str; 4] = [
    "render:out=picture.png,width=64,height=64,min=0,max=1000",
    "render:out=picture.png,width=192,height=192,min=0,max=1000",
    "render:out=picture.png,width=64,height=64,min=0,max=1000,shading=none",
    "render:out=picture.png,width=192,height=192,min=0,max=1000,shading=none",
];

/// Numbers that look like measurements, the same on all machines.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }
}

fn table() -> Vec<u8> {
    let (mut text, mut n) = (String::from("id,x,y,z,note\n"), Numbers(1));
    for id in 0..ROWS {
        let mut number = || format!("{}.{:03}", n.next() % 1000, n.next() % 1000);
        let (x, y, z) = (number(), number(), number());
        // Writing to a text cannot fail.
        let _ = writeln!(text, "{id},{x},{y},{z},note{}", id % 97);
    }
    text.into_bytes()
}

fn log() -> Vec<u8> {
    let (mut text, mut n) = (String::new(), Numbers(2));
    for at in 0..ROWS {
        let (a, b) = (n.next(), n.next());
        let _ =
            writeln!(text, "{at} INFO node{} reads block {a} of {b} in {} ms", a % 64, b % 1000);
    }
    text.into_bytes()
}

fn array() -> Vec<u8> {
    let mut n = Numbers(3);
    let element = |_| ((n.next() % 1_000_000) as f64 / 1000.0).to_ne_bytes();
    (0..ELEMENTS).flat_map(element).collect()
}

/// Points around some centres, as data have that are worth clustering.
fn points(values: usize) -> Vec<u8> {
    let mut n = Numbers(5);
    let mut upto = |most: f64| (n.next() % 1_000_000) as f64 / 1e6 * most;
    let centres: Vec<f64> = (0..CLUSTERS * COLUMNS).map(|_| upto(800.0)).collect();
    let mut bytes = Vec::with_capacity(values * size_of::<f64>());
    for _ in 0..values / COLUMNS {
        let of = upto(CLUSTERS as f64) as usize % CLUSTERS;
        for centre in &centres[of * COLUMNS..][..COLUMNS] {
            let value = centre + upto(100.0) + upto(100.0);
            bytes.extend_from_slice(&value.to_ne_bytes());
        }
    }
    bytes
}

/// Balls, densest in the middle, in a volume of which most is empty, as fields of simulations are.
fn volume() -> Vec<u8> {
    let mut n = Numbers(4);
    let mut upto = |most: f32| (n.next() % 1_000_000) as f32 / 1e6 * most;
    let side = SIDE as f32;
    let mut ball = |_| [upto(side), upto(side), upto(side), side * (0.04 + upto(0.12))];
    let balls: Vec<[f32; 4]> = (0..BALLS).map(&mut ball).collect();
    let element = |at: usize| {
        let place = [at / SIDE / SIDE, at / SIDE % SIDE, at % SIDE].map(|i| i as f32);
        let of = |[x, y, z, radius]: &[f32; 4]| {
            let far = (place[0] - x).powi(2) + (place[1] - y).powi(2) + (place[2] - z).powi(2);
            (1000.0 * (1.0 - far / radius / radius)).max(0.0)
        };
        balls.iter().map(of).sum::<f32>()
    };
    (0..ELEMENTS).map(element).flat_map(f32::to_ne_bytes).collect()
}

/// Data of one format, and kernels to run over them: the first name is that of the format in the profile.
type Data = (&'static str, Dataset, Vec<&'static str>);

fn data() -> Result<Vec<Data>> {
    let open = |name: &str, bytes: Vec<u8>, options: OpenOptions| {
        Dataset::from_sources(vec![Arc::new(MemorySource::new(name, bytes))], &options)
    };
    let of = |format| OpenOptions { format: Some(format), ..OpenOptions::default() };
    let raw = |dtype, shape: &[usize]| OpenOptions {
        dtype: Some(dtype),
        shape: Some(shape.iter().map(|n| *n as u64).collect()),
        ..of(FormatType::Raw)
    };
    let records = OpenOptions { record_length: Some(RECORD as u64), ..of(FormatType::Records) };
    let names = ["x", "y", "z", "w"].map(String::from).to_vec();
    let matrix = OpenOptions { names: Some(names), ..raw(DType::F64, &[ELEMENTS / 4, 4]) };
    let dims = [ELEMENTS / SIDE / SIDE, SIDE, SIDE];
    let shape = [VALUES / COLUMNS, COLUMNS];
    let mut text = log();
    text.truncate(text.len() / RECORD * RECORD);
    Ok(vec![
        (
            "csv",
            open("table.csv", table(), of(FormatType::Csv))?,
            [&NUMBERS[..], &CENTRES, &TEXT].concat(),
        ),
        ("lines", open("text.log", log(), of(FormatType::Lines))?, [&["rows"][..], &TEXT].concat()),
        ("records", open("records.bin", text, records)?, OPAQUE.to_vec()),
        ("raw", open("array.bin", array(), matrix)?, [&NUMBERS[..], &TEXT[2..]].concat()),
        ("raw", open("points.bin", points(VALUES), raw(DType::F64, &shape))?, POINTS.to_vec()),
        ("raw", open("volume.bin", volume(), raw(DType::F32, &dims))?, PICTURES.to_vec()),
    ])
}

/// Measures all of them in about so many seconds.
///
/// # Errors
/// `Cancelled`.
pub fn measure(seconds: f64, cancel: &Cancel, tell: &dyn Fn(&str)) -> Result<Vec<Cost>> {
    let data = data()?;
    let all: usize = data.iter().map(|(_, _, specs)| specs.len()).sum();
    let mut costs: Vec<(Cost, f64)> = Vec::with_capacity(all);
    for (format, dataset, specs) in &data {
        for text in specs {
            let spec = Spec::parse(text)?;
            tell(&format!("{} over {format}", spec.name));
            let measured = cost(format, dataset, &spec, seconds / all as f64, cancel)?;
            let (bytes, shape) = (dataset.total_bytes(), dataset.schema().shape.as_ref());
            let steps = assumed::steps(&spec, bytes, shape.map(|s| s.dims())) / bytes.max(1) as f64;
            let few: Option<&mut (Cost, f64)> = costs.iter_mut().find(|(few, _)| {
                (&few.kernel, &few.format) == (&measured.kernel, &measured.format)
            });
            match few {
                None => costs.push((measured, steps)),
                Some((few, with)) => *few = apart((few, *with), (&measured, steps)),
            }
        }
    }
    Ok(costs.into_iter().map(|(cost, _)| cost).collect())
}

/// Core-seconds of a pass that has next to nothing to do.
///
/// # Errors
/// `Cancelled`.
pub fn pass(cancel: &Cancel) -> Result<f64> {
    let source = Arc::new(MemorySource::new("points.bin", points(COLUMNS * COLUMNS)));
    let options = OpenOptions {
        format: Some(FormatType::Raw),
        dtype: Some(DType::F64),
        shape: Some(vec![COLUMNS as u64; 2]),
        ..OpenOptions::default()
    };
    let dataset = Dataset::from_sources(vec![source], &options)?;
    let request = Request {
        kernels: vec![POINTS[0].to_owned()],
        cancel: cancel.clone(),
        ..Request::default()
    };
    let mut least = f64::INFINITY;
    for _ in 0..TRIES {
        let watch = Watch::start();
        let report = crate::engine::run(&dataset, &request, None)?;
        least = least.min(watch.cpu_seconds() / report.metrics.passes.max(1) as f64);
    }
    Ok(least.max(0.0))
}

/// What bytes take and what steps take, of a kernel that was measured with few steps for each byte, and with many.
fn apart((few, a): (&Cost, f64), (many, b): (&Cost, f64)) -> Cost {
    let (low, high) = (few.core_s_per_gb, many.core_s_per_gb);
    let step = ((high - low) / (b - a).max(1e-9)).clamp(0.0, low / a.max(1e-9));
    let bytes = (low - step * a).max(0.0);
    let parsing = low * few.parse_share;
    Cost {
        // To parse is none of the steps.
        core_s_per_gb: bytes.max(parsing),
        parse_share: if bytes > parsing { parsing / bytes } else { 1.0 },
        core_s_per_gstep: step,
        ..many.clone()
    }
}

fn cost(
    format: &str,
    dataset: &Dataset,
    spec: &Spec,
    seconds: f64,
    cancel: &Cancel,
) -> Result<Cost> {
    let (watch, gigabytes) = (Watch::start(), dataset.total_bytes() as f64 / 1e9);
    let mut best = Took::NONE;
    for _ in 0..TRIES {
        let took = passes(dataset, spec, cancel)?;
        // What disturbs adds time.
        if took.parse + took.compute < best.parse + best.compute {
            best = took;
        }
        if watch.seconds() >= seconds {
            break;
        }
    }
    let all = best.parse + best.compute;
    Ok(Cost {
        kernel: assumed::family(spec),
        format: format.to_owned(),
        site: None,
        core_s_per_gb: all / gigabytes,
        parse_share: if all > 0.0 { (best.parse / all).clamp(0.0, 1.0) } else { 0.0 },
        core_s_per_gstep: 0.0,
        result_bytes: best.state as f64,
        result_per_byte: 0.0,
        vector_per_byte: best.columns,
    })
}

/// What a pass took.
#[derive(Clone, Copy)]
struct Took {
    /// To parse, in the first one.
    parse: f64,
    /// And to compute, of all the mean.
    compute: f64,
    /// Bytes of the largest state.
    state: usize,
    /// Bytes of the columns that are looked at, for each byte of the data; 0 if something else is.
    columns: f64,
}

impl Took {
    const NONE: Took = Took { parse: f64::INFINITY, compute: 0.0, state: 0, columns: 0.0 };
}

fn passes(dataset: &Dataset, spec: &Spec, cancel: &Cancel) -> Result<Took> {
    let context = Context { schema: dataset.schema(), path: None, grouped: false };
    let built = registry::build(spec, &context)?;
    let mut kernel = registry::fuse(vec![built]).into_iter().next().map(|(kernel, _)| kernel);
    let mut took = Took { parse: 0.0, ..Took::NONE };
    let (mut done, mut kept): (usize, Option<Kepts>) = (0, None);
    while let Some(now) = kernel.take().filter(|_| done < PASSES) {
        cancel.check()?;
        let needs = now.needs();
        if done == 0 {
            let fresh = dataset.scan(&ScanOptions::new(needs.clone()))?;
            took.parse = scan(fresh.as_ref(), None)?;
            took.columns = columns(dataset, &needs)?;
        }
        if kept.as_ref().is_none_or(|k| !k.serves(&needs)) {
            kept = keep(dataset, &needs)?;
        }
        let begun = thread_seconds();
        let mut state = now.init();
        let parsing = match &kept {
            Some(kept) => scan(&kept.scan(), Some((&now, &mut state)))?,
            None => {
                let fresh = dataset.scan(&ScanOptions::new(needs))?;
                scan(fresh.as_ref(), Some((&now, &mut state)))?
            }
        };
        let bytes = now.encode(&state)?.len();
        let step = now.finish(state)?;
        took.compute += (thread_seconds() - begun - parsing).max(0.0);
        took.state = took.state.max(bytes);
        done += 1;
        if let Step::Next(next) = step {
            kernel = Some(next);
        }
    }
    let passes = done.max(1) as f64;
    Ok(Took { compute: took.compute / passes, ..took })
}

/// Bytes of the columns that a kernel looks at, for each byte of the data; 0 if it looks at something else.
fn columns(dataset: &Dataset, needs: &Needs) -> Result<f64> {
    if vectors::refusal(needs).is_some() {
        return Ok(0.0);
    }
    let scan = dataset.scan(&ScanOptions::new(needs.clone()))?;
    let (mut worker, mut bytes) = (scan.worker()?, 0);
    while let Some(block) = worker.next()? {
        bytes += vectors::size(&block, needs);
    }
    Ok(bytes as f64 / dataset.total_bytes().max(1) as f64)
}

/// Blocks with what a kernel needs, if they can be kept.
fn keep(dataset: &Dataset, needs: &Needs) -> Result<Option<Kepts>> {
    let Some(cache) = Cache::new(needs, KEPT) else { return Ok(None) };
    let scan = dataset.scan(&ScanOptions::new(needs.clone()))?;
    let mut worker = scan.worker()?;
    while let Some(block) = worker.next()? {
        cache.keep(&block)?;
    }
    Ok(cache.ready())
}

/// Looks at all blocks, and gives them to a kernel if there is one. Returns the seconds that went into making them.
fn scan(
    scan: &dyn Scan,
    mut kernel: Option<(&Arc<dyn AnyKernel>, &mut stead_kernel::AnyState)>,
) -> Result<f64> {
    let mut worker = scan.worker()?;
    let (begun, mut computing) = (thread_seconds(), 0.0);
    while let Some(block) = worker.next()? {
        if let Some((kernel, state)) = &mut kernel {
            let from = thread_seconds();
            kernel.update(state, &block)?;
            computing += thread_seconds() - from;
        }
    }
    Ok(thread_seconds() - begun - computing)
}
