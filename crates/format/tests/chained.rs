//! Quoted text read by many workers at a queue depth: whoever waits for whom, the records are the same.

#![allow(clippy::unwrap_used, clippy::panic)] // helpers of tests

use std::sync::Arc;
use std::time::Duration;
use stead_core::Needs;
use stead_format::{Dataset, OpenOptions, ScanOptions, Share};
use stead_store::{Engine, FileSource, IoOptions, ReadQueue, Source};

/// Rows whose quotes hold newlines, delimiters and quotes; some are longer than an extent.
fn text(rows: u64) -> String {
    let mut s = String::from("id,note\n");
    for i in 0..rows {
        let long = if i % 97 == 0 { 3000 } else { i as usize % 23 };
        let note = "x,\n\"\"y".repeat(long / 6 + 1);
        s.push_str(&match i % 3 {
            0 => format!("{i},\"{note}\"\n"),
            1 => format!("{i},plain\n"),
            _ => format!("{i},\"\n\n{i},1\n\"\n"),
        });
    }
    s
}

/// The sum of the first column, the number of rows, and the bytes of all blocks in their order.
fn scan(d: &Dataset, o: &ScanOptions, workers: u64, seed: u64) -> (f64, usize, Vec<u8>) {
    let (mut sum, mut rows, mut texts) = (0.0, 0, Vec::new());
    let scan = d.scan(o).unwrap();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..workers)
            .map(|w| {
                let scan = &scan;
                s.spawn(move || {
                    let mut worker = scan.worker().unwrap();
                    let mut found = Vec::new();
                    let mut random = seed ^ (w << 32) | 1;
                    while let Some(b) = worker.next().unwrap() {
                        let sum: f64 = b.numbers(0).iter().sum();
                        found.push((b.seq, sum, b.rows, b.text.to_vec()));
                        random = random.wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(23);
                        if random.is_multiple_of(4) {
                            std::thread::sleep(Duration::from_micros(random % 300));
                        }
                    }
                    found
                })
            })
            .collect();
        for t in threads {
            for (seq, part, n, text) in t.join().unwrap() {
                sum += part;
                rows += n;
                texts.push((seq, text));
            }
        }
    });
    texts.sort();
    (sum, rows, texts.into_iter().flat_map(|t| t.1).collect())
}

/// What the machine offers: a container may forbid io_uring, and some file systems have no O_DIRECT.
fn offered(source: &Arc<dyn Source>) -> Vec<IoOptions> {
    let mut all = Vec::new();
    for engine in [Engine::Auto, Engine::Uring, Engine::Pread] {
        for direct in [false, true] {
            all.push(IoOptions { engine, direct, depth: 4 });
        }
    }
    all.retain(|o| ReadQueue::new(o).and_then(|mut q| q.submit(0, source, 0, 1)).is_ok());
    all
}

#[test]
fn any_depth_and_any_pace_give_the_same_records() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.csv");
    let rows = 6000;
    let whole = text(rows);
    std::fs::write(&path, &whole).unwrap();
    let source: Arc<dyn Source> = Arc::new(FileSource::open(&path).unwrap());
    let engines = offered(&source);
    assert!(engines.len() >= 2);
    let d = Dataset::from_sources(vec![source.clone(), source], &OpenOptions::default()).unwrap();
    let want = 2.0 * (0..rows).map(|i| i as f64).sum::<f64>();
    let needs = Needs { bytes: true, records: true, numbers: vec![0], ..Needs::default() };
    let mut seed = 1;
    for io in engines {
        for depth in [1, 2, 7] {
            for workers in [1, 3, 8] {
                for chunk in [1 << 10, 16 << 10] {
                    seed += 1;
                    let io = IoOptions { depth, ..io };
                    let mut o = ScanOptions { chunk, io, ..ScanOptions::new(needs.clone()) };
                    let (sum, n, bytes) = scan(&d, &o, workers, seed);
                    let at = format!("{io:?} {workers} workers, chunk {chunk}, seed {seed}");
                    assert_eq!((sum, n as u64), (want, 2 * rows), "{at}");
                    assert!(bytes == whole.repeat(2).as_bytes(), "{at}");
                    // A rank whose share begins within a file looks at the quotes before it.
                    o.share = Share::Even { rank: 1, size: 3 };
                    let (_, n, _) = scan(&d, &o, workers, seed);
                    assert!(n > 0 && (n as u64) < 2 * rows, "{at}");
                }
            }
        }
    }
}
