//! What columns of records of fields cost: nanoseconds a value, and bytes of records a second.
//!
//!     cargo run --release -p stead-format --example field_costs

#![allow(clippy::print_stdout, clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::Arc;
use std::time::Instant;
use stead_core::{ByteOrder, DType, Needs};
use stead_format::tipsy::{Header, Particles, Species};
use stead_format::{Dataset, OpenOptions, ScanOptions};
use stead_store::{MemorySource, Source};

const ROWS: u64 = 500_000;

fn main() {
    for (order, doubles) in [
        (ByteOrder::Big, DType::F32),
        (ByteOrder::Little, DType::F32),
        (ByteOrder::Big, DType::F64),
    ] {
        let h = Header::new(0.0, [ROWS, 0, 0], order, doubles, doubles).unwrap();
        let mut bytes = h.encode();
        let len = h.file_bytes().unwrap() as usize;
        // Powers of two and their like, no denormals.
        bytes.extend((bytes.len()..len).map(|i| [63, 64, 63, 65][i % 4]));
        let source: Arc<dyn Source> = Arc::new(MemorySource::new("f", bytes.clone()));
        let data = Dataset::from_sources(vec![source], &OpenOptions::default()).unwrap();
        let columns = |names: &[&str]| -> Vec<usize> {
            names.iter().map(|n| data.schema().column(n).unwrap()).collect()
        };
        for names in [
            &["gas.mass"][..],
            &["gas.x", "gas.y", "gas.z"],
            &["gas.mass", "gas.x", "gas.y", "gas.z"],
            &["gas.mass", "gas.x", "gas.y", "gas.z", "gas.vx", "gas.vy", "gas.vz"],
            &[
                "gas.mass",
                "gas.x",
                "gas.y",
                "gas.z",
                "gas.vx",
                "gas.vy",
                "gas.vz",
                "gas.rho",
                "gas.temp",
                "gas.hsmooth",
                "gas.metals",
                "gas.phi",
            ],
        ] {
            let needs = Needs { numbers: columns(names), ..Needs::default() };
            let best = (0..7).map(|_| scan(&data, &needs)).fold(f64::INFINITY, f64::min);
            report(&h, &format!("scan, {} columns", names.len()), names.len(), best);
        }
        let records = &bytes[32..];
        for names in [&["mass"][..], &["x", "y", "z"], &[]] {
            let best = (0..7).map(|_| load(&h, records, names)).fold(f64::INFINITY, f64::min);
            let n = if names.is_empty() { 12 } else { names.len() };
            report(&h, &format!("load, {n} columns"), n, best);
        }
    }
}

fn scan(data: &Dataset, needs: &Needs) -> f64 {
    let began = Instant::now();
    let scan = data.scan(&ScanOptions::new(needs.clone())).unwrap();
    let mut worker = scan.worker().unwrap();
    let mut sum = 0.0;
    while let Some(block) = worker.next().unwrap() {
        sum += block.columns.numbers.first().copied().unwrap_or(0.0);
    }
    assert!(sum.is_finite());
    began.elapsed().as_secs_f64()
}

fn load(h: &Header, records: &[u8], names: &[&str]) -> f64 {
    let mut particles = Particles::new(h, Species::Gas, 0, names).unwrap();
    particles.reserve(ROWS).unwrap();
    // Pages come before the clock starts.
    particles.add(records).unwrap();
    particles.clear();
    let began = Instant::now();
    let record = h.record_bytes(Species::Gas) as usize;
    for piece in records.chunks((1 << 20) / record * record) {
        particles.add(piece).unwrap();
    }
    assert_eq!(particles.len() as u64, ROWS);
    began.elapsed().as_secs_f64()
}

fn report(h: &Header, what: &str, columns: usize, seconds: f64) {
    let values = ROWS as f64 * columns as f64;
    let bytes = ROWS as f64 * h.record_bytes(Species::Gas) as f64;
    println!(
        "{:?} {} {what:18} {:6.3} ns a value {:6.2} GB/s",
        h.byte_order,
        h.positions,
        seconds * 1e9 / values,
        bytes / seconds / 1e9
    );
}
