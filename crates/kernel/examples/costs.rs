//! What kernels cost on one core, with the data in memory: the numbers in the texts of `stead kernels`.
//!
//! `cargo run --release -p stead-kernel --example costs`
//!
//! Each line is the best of several runs over a block of 65,536 rows (text: 1 MiB), so that a busy
//! machine disturbs it little. Kernels of several passes have a line for each of the first passes.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::expect_used)] // It measures and prints.

use std::hint::black_box;
use std::time::Instant;
use stead_core::block::{Columns, brick_planes};
use stead_core::schema::{ColumnInfo, ColumnKind};
use stead_core::{Block, Brick, DType, Order, RecordKind, Schema, Shape, Span};
use stead_kernel::expr::{Filter, Scratch};
use stead_kernel::{Context, Spec, Step, registry};

const ROWS: usize = 1 << 16;
const COLUMNS: usize = 8;

/// splitmix64.
fn next(seed: &mut u64) -> u64 {
    *seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *seed;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Seconds of the best of several runs.
fn best(runs: usize, mut f: impl FnMut()) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// The seconds of each of the first `passes` passes of a kernel over `blocks`.
fn passes(
    text: &str,
    schema: &Schema,
    blocks: &[Block<'_>],
    passes: usize,
    runs: usize,
) -> Vec<f64> {
    let path = Some(std::path::Path::new("costs.npy"));
    let context = Context { schema, path, grouped: false };
    let spec = Spec::parse(text).expect("specification");
    let mut kernel = registry::build(&spec, &context).expect("kernel").kernel;
    let mut seconds = Vec::new();
    while seconds.len() < passes {
        let mut out = Vec::new();
        let mut state = kernel.init();
        seconds.push(best(runs, || {
            state = kernel.init();
            out.clear();
            for b in blocks {
                kernel.update(&mut state, b).expect("update");
                if kernel.sink().is_some() {
                    kernel.map(b, &mut out).expect("map");
                }
            }
            black_box(&out);
        }));
        match kernel.finish(state).expect("finish") {
            Step::Next(k) => kernel = k,
            _ => break,
        }
    }
    seconds
}

fn line(name: &str, seconds: &[f64], units: f64, unit: &str) {
    let shown: Vec<_> = seconds.iter().map(|s| format!("{:.2}", s * 1e9 / units)).collect();
    println!("{name:<58} {:>24}  ns a {unit}", shown.join(", "));
}

fn numbers() {
    let columns = (0..COLUMNS)
        .map(|i| ColumnInfo { name: i.to_string(), kind: ColumnKind::Binary(DType::F64) })
        .collect();
    let shape = Some(Shape::new(vec![ROWS as u64, COLUMNS as u64]).expect("shape"));
    let schema = Schema { records: RecordKind::Items, columns, shape };
    let mut seed = 1;
    let unit: Vec<f64> =
        (0..ROWS * COLUMNS).map(|_| (next(&mut seed) >> 11) as f64 / (1u64 << 53) as f64).collect();
    let whole: Vec<f64> = unit.iter().map(|v| (v * 2000.0).floor() - 300.0).collect();
    let ids: Vec<usize> = (0..COLUMNS).collect();
    // Points are drawn by the places of their records.
    let records: Vec<_> = (0..ROWS as u32).map(|i| Span { start: i * 64, len: 64 }).collect();
    for (what, values, low, high) in [("uniform", &unit, 0, 1), ("integers", &whole, -300, 1700)] {
        let columns =
            Columns { number_ids: &ids, numbers: values, stride: ROWS, ..Columns::default() };
        let block = [Block { rows: ROWS, columns, records: &records, ..Block::empty() }];
        println!("\n{what}");
        let n = ROWS as f64;
        for text in ["count:0", "min:0", "max:0", "sum:0", "mean:0", "var:0", "std:0"] {
            line(text, &passes(text, &schema, &block, 1, 200), n, "value");
        }
        for text in [
            "hist:0".to_string(),
            format!("hist:0,bins=10,min={low},max={high}"),
            format!("hist:0,bins=10000,min={low},max={high}"),
            "quantile:0".into(),
            "quantile:0,exact".into(),
            "normalize:0".into(),
            "normalize:0,zscore".into(),
            "normalize:0,out=x.csv".into(),
        ] {
            line(&text, &passes(&text, &schema, &block, 5, 40), n, "value");
        }
        for (text, pairs) in [("gram:0,1", 3.0), ("gram:*", 36.0)] {
            line(text, &passes(text, &schema, &block, 1, 20), n * pairs, "row and pair");
        }
        for (k, d) in [(20, "0,1,2"), (100, "0,1,2,3,4,5,6,7"), (3, "0,1")] {
            let text = format!("kmeans:{d},k={k},init=first,rounds=2");
            let work = n * f64::from(k) * d.split(',').count() as f64;
            line(&text, &passes(&text, &schema, &block, 3, 8), work, "row, centre and column");
        }
        let filter = |text: &str, operators: f64| {
            let f = Filter::parse(text, &schema).expect("filter");
            let (mut scratch, mut keep) = (Scratch::default(), Vec::new());
            let s = best(100, || f.eval(&block[0], &mut scratch, &mut keep).expect("eval"));
            line(&format!("--where '{text}'"), &[s], n * operators, "row and operator");
        };
        filter("$0 > 0.5", 1.0);
        filter("$0 > 0.5 and $1 < 0.25", 3.0);
        filter("($0 + $1) * 2 > 1 or $2 / 3 < 0.1 and not $3 == 1", 9.0);
    }
}

fn text() {
    let schema = Schema { records: RecordKind::Lines, columns: vec![], shape: None };
    let mut seed = 2;
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    while bytes.len() < 1 << 20 {
        let start = bytes.len() as u32;
        let level = ["INFO", "DEBUG", "WARN"][(next(&mut seed) % 3) as usize];
        let word = ["disk", "timeout", "read", "cache"][(next(&mut seed) % 4) as usize];
        let rare = if next(&mut seed).is_multiple_of(1000) { "ERROR on disk" } else { "" };
        let s = format!("{},{level},{word} {rare} {}\n", next(&mut seed), next(&mut seed) % 10_000);
        bytes.extend_from_slice(s.as_bytes());
        records.push(Span { start, len: s.len() as u32 });
    }
    let rows = records.len();
    let block = [Block { rows, text: &bytes, records: &records, ..Block::empty() }];
    println!("\ntext");
    for text in [
        "lines",
        "digits",
        "entropy",
        "grep:ERROR",
        "grep:'ERROR.*disk'",
        "grep:INFO",
        "grep:'[0-9]{3},WARN'",
        "grep:timeout,ignore_case",
        "grep:'(disk|read).* 7'",
    ] {
        let s = passes(text, &schema, &block, 1, 40)[0];
        println!("{text:<58} {:>24.2}  GB/s", bytes.len() as f64 / s / 1e9);
    }
}

fn volume() {
    let n = 64u64;
    let shape = Some(Shape::new(vec![n; 3]).expect("shape"));
    let schema = Schema { records: RecordKind::Items, columns: vec![], shape };
    let voxels: Vec<f32> = (0..n * n * n)
        .map(|i| {
            ((i % n) as f32 * 0.1).sin()
                + ((i / n % n) as f32 * 0.07).cos()
                + (i / n / n) as f32 / 99.0
        })
        .collect();
    let (cell, plane) = (brick_planes([n; 3]), (n * n) as usize);
    let blocks: Vec<_> = (0..n.div_ceil(cell))
        .map(|i| {
            let (first, planes) = (i * cell, cell.min(n - i * cell));
            let end = (first + planes + 2).min(n) as usize;
            let voxels = &voxels[first as usize * plane..end * plane];
            let (shape, planes) = ([n; 3], planes as usize);
            let brick = Some(Brick { shape, order: Order::C, first, planes, voxels });
            Block { seq: i, rows: planes * plane, brick, ..Block::empty() }
        })
        .collect();
    println!("\nvolume of {n}^3, picture of 128^2");
    // The samples in the volume: its size over the area of a pixel.
    let pixel = (3.0f64).sqrt() * n as f64 / 128.0;
    let samples = (n * n * n) as f64 / (pixel * pixel);
    for (text, unit) in [
        ("render:width=128,height=128,min=-9,max=9,opacity='0:1e-6;1:1e-6',shading=none", "sample"),
        ("render:width=128,height=128,min=-9,max=9,opacity='0:1e-6;1:1e-6'", "sample"),
        ("render:width=128,height=128,min=-2,max=3", "sample, seen or not"),
        ("render:width=128,height=128,min=9,max=19", "voxel, nothing seen"),
    ] {
        let units = if unit.starts_with("voxel") { (n * n * n) as f64 } else { samples };
        line(
            &text["render:width=128,height=128,".len()..],
            &passes(text, &schema, &blocks, 1, 20),
            units,
            unit,
        );
    }
}

fn main() {
    numbers();
    text();
    volume();
}
