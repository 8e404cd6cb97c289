//! The same answer, to the last bit, whatever the number of threads, ranks and extents.

#![allow(clippy::expect_used)]

mod common;

use common::cases::{self, Case};
use common::{each_of, npy, open, output, request, text, write};
use std::io::Write;
use std::path::Path;
use stead::{IoOptions, Report, Request};

fn results(report: &Report) -> String {
    text(&report.results)
}

/// However many threads, ranks that see the same files, and extents there are, and whichever engine reads.
fn check(case: &Case) {
    let dir = tempfile::tempdir().expect("dir");
    let inputs = case.write(dir.path());
    for ask in case.within(dir.path()) {
        let written = || ask.output.as_ref().map(|path| output(path, false));
        let found = |r: &Request| {
            let report = stead::run(&case.open(&inputs), r, None).expect("run");
            (results(&report), written())
        };
        let wanted = found(&Request { threads: 1, chunk: 1 << 20, ..ask.request.clone() });
        let same = |how: String, found: (String, Option<Vec<u8>>)| {
            assert!(
                found == wanted,
                "{:?}, {how}: {} in place of {}",
                ask.request,
                found.0,
                wanted.0
            );
        };
        for (threads, chunk) in [(1, 7), (2, 64), (3, 1000), (4, 4096)] {
            let r = Request { threads, chunk, ..ask.request.clone() };
            same(format!("{threads} threads, extents of {chunk}"), found(&r));
        }
        for ranks in [2, 3, 4] {
            let r = Request { chunk: 333, ..ask.request.clone() };
            let mut all = each_of(ranks, |fabric| {
                results(&stead::run_on(fabric, &case.open(&inputs), &r, None).expect("run"))
            });
            all.dedup();
            assert_eq!(all.len(), 1, "ranks differ");
            same(format!("{ranks} ranks"), (all.remove(0), written()));
        }
        for engine in [stead::Engine::Pread, stead::Engine::Uring] {
            let io = IoOptions { engine, ..IoOptions::default() };
            same(format!("{engine:?}"), found(&Request { io, ..ask.request.clone() }));
        }
    }
}

#[test]
fn over_threads_and_ranks() {
    cases::all().iter().for_each(check);
}

#[test]
fn every_kernel_and_every_format_is_among_the_cases() {
    let there = |keep: &dyn Fn(&str) -> bool| {
        let mut names: Vec<String> =
            stead::kernels::list().map(|i| i.name.to_owned()).filter(|n| keep(n)).collect();
        names.sort();
        names
    };
    assert_eq!(cases::kernels(false), there(&|_| true));
    // These write what they make of all records together.
    assert_eq!(cases::kernels(true), there(&|n| !["normalize", "render"].contains(&n)));
    let dir = tempfile::tempdir().expect("dir");
    let format = |case: &Case| case.open(&case.write(dir.path())).format_name();
    let mut formats: Vec<&str> = cases::all().iter().map(format).collect();
    formats.sort_unstable();
    formats.dedup();
    let names = ["csv", "lines", "npy", "raw", "records", "tipsy", "tsv"];
    assert_eq!(formats, names);
    // What no format is called is refused with those that there are.
    let e = "none".parse::<stead::FormatType>().expect_err("no format");
    let mut all: Vec<&str> = e.hint().expect("a hint").split(' ').skip(3).collect();
    all.sort_unstable();
    assert_eq!(all, names);
}

#[test]
fn compressed_tables_give_the_answers_of_plain_ones() {
    let dir = tempfile::tempdir().expect("dir");
    let text = common::table(300);
    let plain = write(dir.path(), "t.csv", &text);
    let r = request(&["rows", "lines", "sum:x", "mean:id", "entropy", "grep:no"]);
    let reference = results(&stead::run(&open(&plain), &r, None).expect("run"));
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gz.write_all(text.as_bytes()).expect("gzip");
    write(dir.path(), "t.csv.gz", gz.finish().expect("gzip"));
    // Several frames, which may be decoded side by side.
    let frames: Vec<u8> =
        text.as_bytes().chunks(5000).flat_map(|c| zstd::encode_all(c, 3).expect("zstd")).collect();
    write(dir.path(), "t.csv.zst", frames);
    for name in ["t.csv.gz", "t.csv.zst"] {
        let found = stead::run(&open(&dir.path().join(name)), &r, None).expect("run");
        assert_eq!(results(&found), reference, "{name}");
    }
}

#[test]
fn fortran_order_gives_the_answers_of_c_order() {
    let dir = tempfile::tempdir().expect("dir");
    let value = |r: i32, c: i32| f64::from((r * 31 + c * 17) * 7919 % 1000) * 0.37 - 50.0;
    let c = npy("500, 3", "False", (0..1500).map(|i| value(i / 3, i % 3)));
    let f = npy("500, 3", "True", (0..1500).map(|i| value(i % 500, i / 500)));
    let c = write(dir.path(), "c.npy", c);
    let f = write(dir.path(), "f.npy", f);
    let r = request(&["rows", "mean:*", "gram:*", "kmeans:k=4,init=first", "max:2"]);
    let some = Request { filter: Some("$0 > 0".into()), ..r.clone() };
    for r in [r, some] {
        let want = results(&stead::run(&open(&c), &r, None).expect("run"));
        assert_eq!(results(&stead::run(&open(&f), &r, None).expect("run")), want);
    }
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
