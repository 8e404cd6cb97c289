//! The same answer, to the last bit, whatever the number of threads, ranks and extents.

#![allow(clippy::expect_used)]

use std::io::Write;
use std::path::{Path, PathBuf};
use stead::{Dataset, IoOptions, OpenOptions, Report, Request, Value, fabric::Local};

/// A deterministic mix of ordinary, huge, tiny, missing and quoted values.
fn table(rows: usize) -> String {
    let mut s = String::from("id,group,x,y,note\n");
    let mut seed = 12345u64;
    let mut next = move || {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as f64 / f64::from(1u32 << 31)
    };
    for i in 0..rows {
        let x = match i % 11 {
            0 => "NA".into(),
            1 => format!("{:e}", (next() - 0.5) * 1e300),
            2 => format!("{:e}", (next() - 0.5) * 1e-300),
            _ => format!("{:.6}", (next() - 0.5) * 100.0),
        };
        let note = match i % 7 {
            0 => "\"two\nlines, and a comma\"".to_string(),
            1 => "\"he said \"\"no\"\"\"".to_string(),
            _ => format!("plain {i}"),
        };
        s.push_str(&format!("{i},g{},{x},{:.3},{note}\n", i % 5, next() * 10.0));
    }
    s
}

fn open(path: &Path) -> Dataset {
    Dataset::open(&[path.to_string_lossy().into_owned()], &OpenOptions::default()).expect("open")
}

fn results(report: &Report) -> String {
    serde_json::to_string(&Value::Map(report.results.clone())).expect("json")
}

/// All ranks of a `Local` group over the dataset; every rank must say the same.
fn on_ranks(ranks: usize, path: &Path, request: &Request) -> String {
    let threads: Vec<_> = Local::group(ranks)
        .into_iter()
        .map(|fabric| {
            let (path, request) = (path.to_path_buf(), request.clone());
            std::thread::spawn(move || {
                results(&stead::run_on(&fabric, &open(&path), &request, None).expect("run"))
            })
        })
        .collect();
    let mut all: Vec<String> = threads.into_iter().map(|t| t.join().expect("rank")).collect();
    all.dedup();
    assert_eq!(all.len(), 1, "ranks differ");
    all.remove(0)
}

fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).expect("write");
    path
}

fn check(path: &Path, requests: &[Request]) {
    for request in requests {
        let reference = results(
            &stead::run(&open(path), &Request { threads: 1, ..request.clone() }, None)
                .expect("run"),
        );
        for (threads, chunk) in [(1, 7), (2, 64), (3, 1000), (4, 4096), (2, 1 << 20)] {
            let r = Request { threads, chunk, ..request.clone() };
            assert_eq!(
                results(&stead::run(&open(path), &r, None).expect("run")),
                reference,
                "{threads} threads, extents of {chunk}"
            );
        }
        for ranks in [2, 3, 4] {
            let r = Request { threads: 2, chunk: 333, ..request.clone() };
            assert_eq!(on_ranks(ranks, path, &r), reference, "{ranks} ranks");
        }
        for engine in [stead::Engine::Pread, stead::Engine::Uring] {
            let io = IoOptions { engine, ..IoOptions::default() };
            let r = Request { io, chunk: 4096, ..request.clone() };
            assert_eq!(
                results(&stead::run(&open(path), &r, None).expect("run")),
                reference,
                "{engine:?}"
            );
        }
    }
}

fn request(kernels: &[&str]) -> Request {
    Request { kernels: kernels.iter().map(|k| k.to_string()).collect(), ..Request::default() }
}

#[test]
fn tables() {
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(700));
    let all = request(&[
        "lines",
        "rows",
        "count:x",
        "sum:x",
        "mean:x",
        "var:x",
        "std:x",
        "min:x",
        "max:x",
        "hist:y,bins=7",
        "hist:x",
        "quantile:x,q=0.1;0.5;0.99",
        "digits",
        "entropy",
        "gram:id,x,y",
        "grep:'lines'",
        "grep:'comma|1\\d',lines,max=9",
        "kmeans:id,y,k=4,seed=3",
        "mean:*",
    ]);
    let some = Request { filter: Some("y > 3 and group != 'g2'".into()), ..all.clone() };
    let grouped = Request {
        by: vec!["group".into()],
        ..request(&[
            "rows",
            "mean:x",
            "std:x",
            "sum:y",
            "max:y",
            "quantile:y,q=0.5",
            "digits",
            "hist:y,bins=3",
        ])
    };
    check(&path, &[all, some, grouped]);
}

#[test]
fn compressed_tables() {
    let dir = tempfile::tempdir().expect("dir");
    let text = table(300);
    let plain = write(dir.path(), "t.csv", &text);
    let r = request(&["rows", "lines", "sum:x", "mean:y", "entropy", "grep:no"]);
    let reference = results(&stead::run(&open(&plain), &r, None).expect("run"));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(text.as_bytes()).expect("gzip");
    write(dir.path(), "t.csv.gz", gz.finish().expect("gzip"));
    // Several frames, which may be decoded side by side.
    let frames: Vec<u8> =
        text.as_bytes().chunks(5000).flat_map(|c| zstd::encode_all(c, 3).expect("zstd")).collect();
    write(dir.path(), "t.csv.zst", frames);
    for name in ["t.csv.gz", "t.csv.zst"] {
        let path = dir.path().join(name);
        assert_eq!(results(&stead::run(&open(&path), &r, None).expect("run")), reference, "{name}");
        check(&path, std::slice::from_ref(&r));
    }
}

/// A version 1 `.npy` of f64.
fn npy(shape: &str, values: impl IntoIterator<Item = f64>) -> Vec<u8> {
    let dict = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}");
    let mut out = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    out.extend_from_slice(format!("{dict:<117}\n").as_bytes());
    for v in values {
        out.extend_from_slice(&v.to_le_bytes());
    }
    out
}

#[test]
fn arrays() {
    let dir = tempfile::tempdir().expect("dir");
    let wave = (0..3000).map(|i| f64::from(i * 7919 % 1000) * 0.37 - 50.0);
    let path = write(dir.path(), "m.npy", npy("(1000, 3)", wave));
    check(
        &path,
        &[
            request(&[
                "rows",
                "mean:*",
                "var:1",
                "gram:*",
                "min:0",
                "max:2",
                "hist:1",
                "entropy",
                "kmeans:k=5",
                "kmeans:k=3,init=random,seed=9",
            ]),
            Request { filter: Some("$0 > 0".into()), ..request(&["rows", "sum:*", "entropy"]) },
        ],
    );
}

#[test]
fn fortran_order_gives_the_answers_of_c_order() {
    let dir = tempfile::tempdir().expect("dir");
    let value = |r: i32, c: i32| f64::from((r * 31 + c * 17) * 7919 % 1000) * 0.37 - 50.0;
    let c = npy("(500, 3)", (0..1500).map(|i| value(i / 3, i % 3)));
    let f = npy("(500, 3)", (0..1500).map(|i| value(i % 500, i / 500)));
    let f = String::from_utf8_lossy(&f[..128])
        .replace("False", "True ")
        .into_bytes()
        .into_iter()
        .chain(f[128..].iter().copied());
    // The lossy text has a longer first byte; put the magic back.
    let f: Vec<u8> = b"\x93".iter().copied().chain(f.skip(3)).collect();
    let c = write(dir.path(), "c.npy", c);
    let f = write(dir.path(), "f.npy", f);
    let r = request(&["rows", "mean:*", "gram:*", "kmeans:k=4,init=first", "max:2"]);
    let some = Request { filter: Some("$0 > 0".into()), ..r.clone() };
    for r in [r, some] {
        let want = results(&stead::run(&open(&c), &r, None).expect("run"));
        assert_eq!(results(&stead::run(&open(&f), &r, None).expect("run")), want);
        check(&f, &[r]);
    }
}

#[test]
fn volumes() {
    let dir = tempfile::tempdir().expect("dir");
    let blob = (0..24 * 20 * 28).map(|i| {
        let (z, y, x) = (i / 560, i / 28 % 20, i % 28);
        let d = (f64::from(z) - 12.0).powi(2)
            + (f64::from(y) - 10.0).powi(2)
            + (f64::from(x) - 14.0).powi(2);
        (-d / 40.0).exp()
    });
    let path = write(dir.path(), "v.npy", npy("(24, 20, 28)", blob));
    let mut images = Vec::new();
    for threads in [1, 2, 4] {
        let out = dir.path().join(format!("v{threads}.png"));
        let r = Request {
            threads,
            ..request(&[&format!("render:out={},width=64,height=48", out.display()), "mean:value"])
        };
        stead::run(&open(&path), &r, None).expect("run");
        images.push(std::fs::read(out).expect("image"));
    }
    for ranks in [2, 3, 5] {
        let out = dir.path().join(format!("r{ranks}.png"));
        let r = Request {
            chunk: 1 << 13,
            ..request(&[&format!("render:out={},width=64,height=48", out.display()), "mean:value"])
        };
        on_ranks(ranks, &path, &r);
        images.push(std::fs::read(out).expect("image"));
    }
    assert!(images.windows(2).all(|w| w[0] == w[1]));
    assert!(images[0].starts_with(b"\x89PNG"));
}

#[test]
fn normalized_columns_are_written_in_order() {
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(500));
    let mut outputs = Vec::new();
    for (threads, chunk) in [(1, 1 << 20), (4, 50), (3, 999)] {
        let out = dir.path().join(format!("n{threads}.npy"));
        let r = Request {
            threads,
            chunk,
            ..request(&[&format!("normalize:y,method=zscore,out={}", out.display())])
        };
        stead::run(&open(&path), &r, None).expect("run");
        outputs.push(std::fs::read(out).expect("output"));
    }
    assert!(outputs.windows(2).all(|w| w[0] == w[1]));
    assert_eq!(outputs[0].len(), 128 + 500 * 8);
    let left: Vec<_> = std::fs::read_dir(dir.path())
        .expect("dir")
        .map(|e| e.expect("entry").file_name())
        .collect();
    assert_eq!(left.len(), 4, "only the data and the outputs: {left:?}");
}

#[test]
fn many_groups_in_little_memory_are_an_answer_or_a_clear_error() {
    let dir = tempfile::tempdir().expect("dir");
    let text: String = (0..60_000).map(|i| format!("k{},{i}\n", i % 20_000)).collect();
    let path = write(dir.path(), "g.csv", format!("key,x\n{text}"));
    let r = Request { by: vec!["key".into()], chunk: 4096, ..request(&["rows", "sum:x"]) };
    let small = Request { memory: 8 << 20, ..r.clone() };
    let e = stead::run(&open(&path), &small, None).expect_err("20,000 groups in 2 MiB");
    assert_eq!(e.kind(), stead::Kind::Limit);
    // States are handed in many times on the way to the same answer.
    let one = results(
        &stead::run(&open(&path), &Request { threads: 1, ..r.clone() }, None).expect("run"),
    );
    let tight = Request { memory: 192 << 20, threads: 3, ..r };
    assert_eq!(results(&stead::run(&open(&path), &tight, None).expect("run")), one);
}

#[test]
fn the_first_error_of_a_compressed_file_is_told() {
    let dir = tempfile::tempdir().expect("dir");
    // Frames that are decoded at the same time; the last two have a wrong checksum.
    let mut file = Vec::new();
    let mut ends = Vec::new();
    for i in 0..8 {
        let mut rows = String::from(if i == 0 { "x,y\n" } else { "" });
        (0..150_000).for_each(|k| rows.push_str(&format!("{k},{}\n", i * k)));
        if i == 5 {
            rows.push_str("1,many\n");
        }
        let mut frame = zstd::stream::write::Encoder::new(Vec::new(), 1).expect("encoder");
        frame.include_checksum(true).expect("checksum");
        frame.set_pledged_src_size(Some(rows.len() as u64)).expect("size");
        frame.write_all(rows.as_bytes()).expect("compressed");
        file.extend(frame.finish().expect("compressed"));
        ends.push(file.len());
    }
    file[ends[6] - 1] ^= 1;
    file[ends[7] - 1] ^= 1;
    let bad_number = write(dir.path(), "a.csv.zst", &file);
    for i in 2..5 {
        file[ends[i] - 1] ^= 1;
    }
    let bad_frames = write(dir.path(), "b.csv.zst", &file);
    let told = |path: &Path, threads| {
        let request = Request { kernels: vec!["sum:y".into()], threads, ..Request::default() };
        stead::run(&open(path), &request, None).expect_err("an error").to_string()
    };
    for threads in [1, 2, 3, 4, 8, 2, 3, 4, 8] {
        let message = told(&bad_number, threads);
        assert!(message.contains(":900002:") && message.contains("many"), "{threads}: {message}");
        let message = told(&bad_frames, threads);
        let place = format!("at byte {}", ends[1]);
        assert!(message.contains(&place), "{threads}: {message}");
    }
}
