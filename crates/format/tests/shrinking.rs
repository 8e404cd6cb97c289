//! A file that becomes shorter while a block of it is looked at where it lies in the page cache.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

use std::fs::File;
use stead_core::{Kind, Needs};
use stead_format::{Dataset, FormatType, OpenOptions, ScanOptions};

/// Takes a block, shortens the file, looks at all bytes of the block, and takes the rest.
fn shrink(options: &OpenOptions, needs: Needs) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    let row = "12,34\n";
    std::fs::write(&path, row.repeat((4 << 20) / row.len())).unwrap();
    let dataset = Dataset::open(&[path.display().to_string()], options).unwrap();
    let mut o = ScanOptions::new(needs);
    o.chunk = 1 << 20;
    let scan = dataset.scan(&o).unwrap();
    let mut worker = scan.worker().unwrap();
    let block = worker.next().unwrap().unwrap();
    assert!(block.text.len() >= 1 << 19);
    File::options().write(true).open(&path).unwrap().set_len(100_000).unwrap();
    // Zeros from the end of the file on, and no signal.
    assert_eq!(block.text.iter().filter(|b| **b != 0).count(), 100_000);
    let e = loop {
        match worker.next() {
            Ok(Some(_)) => {}
            Ok(None) => panic!("{options:?}: no error"),
            Err(e) => break e,
        }
    };
    assert_eq!(e.kind(), Kind::Changed, "{options:?} {e}");
    assert!(dataset.locate(e).to_string().contains("t.csv"));
}

#[test]
fn a_file_that_shrinks_under_a_block_is_an_error() {
    let bytes = || Needs { bytes: true, ..Needs::default() };
    shrink(&OpenOptions::default(), bytes());
    shrink(&OpenOptions::default(), Needs { records: true, numbers: vec![1], ..bytes() });
    let lines = OpenOptions { format: Some(FormatType::Lines), ..OpenOptions::default() };
    shrink(&lines, Needs { records: true, ..bytes() });
    let records = OpenOptions {
        format: Some(FormatType::Records),
        record_length: Some(6),
        ..OpenOptions::default()
    };
    shrink(&records, Needs { records: true, ..bytes() });
}
