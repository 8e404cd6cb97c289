//! Files that NumPy wrote, as `tests/data/make_npy.py` makes them.

#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::Arc;
use stead_core::{ByteOrder, Kind, Needs, Order};
use stead_format::arrays::ArrayFormat;
use stead_format::npy;
use stead_format::{Format, ScanOptions};
use stead_store::{FileSource, Source};

fn open(name: &str) -> Arc<dyn Source> {
    let dir = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data");
    Arc::new(FileSource::open(dir.join(format!("{name}.npy"))).unwrap())
}

/// All columns, one after the other.
fn values(name: &str) -> Vec<f64> {
    let source = open(name);
    let format = ArrayFormat::npy(source.as_ref()).unwrap();
    let columns: Vec<usize> = (0..format.schema().columns.len()).collect();
    let needs = Needs { numbers: columns.clone(), ..Needs::default() };
    let scan = format.scan(&[source], &ScanOptions::new(needs)).unwrap();
    let mut worker = scan.worker().unwrap();
    let mut out = vec![Vec::new(); columns.len()];
    while let Some(block) = worker.next().unwrap() {
        for (c, out) in out.iter_mut().enumerate() {
            out.extend_from_slice(block.numbers(c));
        }
    }
    out.concat()
}

#[test]
fn every_type_and_order_that_numpy_writes() {
    for code in ["f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"] {
        let first = if code.starts_with('u') { 0 } else { -20 };
        let at = |r: i32, c: i32| f64::from(first + 7 * (4 * r + c));
        let want: Vec<f64> = (0..4).flat_map(|c| (0..3).map(move |r| at(r, c))).collect();
        for order in ["C", "F"] {
            for end in ["le", "be"] {
                let name = format!("{code}_{end}_{order}");
                assert_eq!(values(&name), want, "{name}");
                let h = npy::read_header(open(&name).as_ref()).unwrap();
                assert_eq!(h.order == Order::Fortran, order == "F", "{name}");
                if h.dtype.size() > 1 {
                    assert_eq!(h.byte_order == ByteOrder::Big, end == "be", "{name}");
                }
            }
        }
    }
}

#[test]
fn odd_shapes_values_and_versions() {
    assert_eq!(values("scalar"), [2.5]);
    assert!(values("empty").is_empty());
    assert_eq!(values("one"), [0.0, 1.0, 2.0, 3.0, 4.0]);
    let odd = values("odd");
    assert!(odd[0].is_nan() && odd[3].is_sign_negative());
    assert_eq!(odd[1..], [f64::NEG_INFINITY, 5e-324, -0.0, 1e308]);
    let h = npy::read_header(open("three").as_ref()).unwrap();
    assert_eq!((h.shape.dims(), h.order), (&[2, 3, 4][..], Order::Fortran));
    // Element (i, j, k) is 12 i + 4 j + k; the first index runs fastest in the file.
    assert_eq!(values("three")[..4], [0.0, 12.0, 4.0, 16.0]);
}

#[test]
fn what_is_no_number_is_refused_with_a_hint() {
    for (name, word) in
        [("bool", "|b1"), ("complex", "<c16"), ("text", "<U1"), ("fields", "fields")]
    {
        let e = ArrayFormat::npy(open(name).as_ref()).err().unwrap();
        assert_eq!(e.kind(), Kind::Format, "{name}");
        assert!(e.message().contains(word) && e.hint().is_some(), "{name}: {e}");
        assert!(e.place().path.is_some() && e.place().offset.is_some(), "{name}");
    }
}

#[test]
fn every_truncation_is_an_error() {
    let whole = std::fs::read(open("f8_le_C").path()).unwrap();
    for n in 0..whole.len() {
        let source = stead_store::MemorySource::new("cut", whole[..n].to_vec());
        let e = ArrayFormat::npy(&source).err().unwrap();
        assert_eq!(e.kind(), Kind::Format, "{n}");
    }
}

#[test]
fn headers_are_what_numpy_writes() {
    let numpy = std::fs::read(open("f8_le_F").path()).unwrap();
    let ours = npy::header(&[3, 4], true);
    assert_eq!(ours, numpy[..ours.len()]);
}
