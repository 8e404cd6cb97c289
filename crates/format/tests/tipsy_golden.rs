//! Snapshots that pytipsy wrote, as `tests/data/make_tipsy.py` makes them.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use stead_core::{ByteOrder, DType, Needs};
use stead_format::tipsy::{Header, Particles, Species};
use stead_format::{Dataset, OpenOptions, ScanOptions};
use stead_store::{FileSource, Source};

const FILES: [(&str, ByteOrder, u64); 2] =
    [("standard", ByteOrder::Big, 32), ("native", ByteOrder::Little, 28)];

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("tests/data/{name}.tipsy"))
}

fn value(k: usize, row: usize, field: usize) -> f64 {
    (100 * k + 16 * row + field) as f64 + 0.25
}

#[test]
fn headers_and_arrays() {
    for (name, order, length) in FILES {
        let source = FileSource::open(path(name)).unwrap();
        let h = Header::read(&source).unwrap();
        assert_eq!((h.time, h.byte_order, h.bytes), (0.5, order, length), "{name}");
        assert_eq!((h.positions, h.velocities), (DType::F32, DType::F32));
        assert_eq!(Species::ALL.map(|k| h.count(k)), [2, 3, 1]);
        for (k, species) in Species::ALL.into_iter().enumerate() {
            let part = h.part(species, 0, 1).unwrap();
            let mut bytes = vec![0; part.bytes as usize];
            source.read_at(part.offset, &mut bytes).unwrap();
            let mut all = Particles::new(&h, species, 0, &[]).unwrap();
            all.add(&bytes).unwrap();
            for (field, (_, values)) in all.columns.iter().enumerate() {
                let found: Vec<_> = (0..all.len()).map(|r| values.get(r).unwrap()).collect();
                let want: Vec<_> = (0..part.count as usize).map(|r| value(k, r, field)).collect();
                assert_eq!(found, want, "{name}: {species}, field {field}");
            }
        }
    }
}

#[test]
fn columns() {
    for (name, ..) in FILES {
        let file = path(name).to_string_lossy().into_owned();
        let data = Dataset::open(&[file], &OpenOptions::default()).unwrap();
        assert_eq!(data.format_name(), "tipsy");
        let column = |name: &str| data.schema().column(name).unwrap();
        let mut numbers: Vec<usize> = ["vz", "rho", "dark.eps"].map(column).to_vec();
        numbers.sort_unstable();
        let needs = Needs { numbers, ..Needs::default() };
        let scan = data.scan(&ScanOptions::new(needs)).unwrap();
        let mut worker = scan.worker().unwrap();
        let mut found = [Vec::new(), Vec::new(), Vec::new()];
        while let Some(block) = worker.next().unwrap() {
            for (all, name) in found.iter_mut().zip(["vz", "rho", "dark.eps"]) {
                let there = block.numbers(column(name)).iter().filter(|x| !x.is_nan());
                all.extend(there.copied());
            }
        }
        let vz = [6.25, 22.25, 106.25, 122.25, 138.25, 206.25];
        assert_eq!(found, [vz.to_vec(), vec![7.25, 23.25], vec![107.25, 123.25, 139.25]]);
    }
}
