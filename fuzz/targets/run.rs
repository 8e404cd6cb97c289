//! Whole runs: any kernels with any filter and groups over any table say the same with one thread and one
//! extent, with several threads and small extents, and on several ranks.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::io::Write;
use std::path::PathBuf;
use std::sync::LazyLock;
use stead_core::{Kind, Result};
use stead_fabric::Local;
use stead_format::{ColumnType, Dataset, FormatType, Header, OpenOptions};
use stead_fuzz::{choices, sources};
use stead_run::{Report, Request};
use stead_store::{Engine, IoOptions};

const KERNELS: [&str; 24] = [
    "rows",
    "lines",
    "digits",
    "entropy",
    "count:x,y",
    "sum:x",
    "mean:*",
    "var:x",
    "std:y,ddof=0",
    "min:x",
    "max:*",
    "hist:x,bins=3",
    "hist:y,bins=4,min=-1,max=5",
    "quantile:x,q=0;0.3;1",
    "quantile:y,exact",
    "gram:x,y",
    "grep:a",
    "grep:'[0-9],',lines,max=3",
    "grep:'^$|NA',invert",
    "kmeans:x,y,k=2,rounds=4",
    "kmeans:x,k=3,init=first,rounds=3,tol=0",
    "normalize:x,out=DIR/a.npy",
    "normalize:x,y,zscore,out=DIR/b.csv",
    "grep:'1|b',out=DIR/c.txt",
];

const FILTERS: [&str; 8] = [
    "x > 1",
    "y is not missing and x / y < 3",
    "name ~ 'a' or x in (1, 2)",
    "not (x >= 0)",
    "len(name) > 1 && starts_with(name, 'a')",
    "name is missing",
    "x == x",
    "abs(x - y) * 2 > floor(x)",
];

/// Where runs write.
static DIR: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = std::env::temp_dir().join(format!("stead-fuzz-run-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for temporary files");
    dir
});

/// What must be the same.
type Answer = (String, String, Vec<Option<Vec<u8>>>);

fn files() -> Vec<Option<Vec<u8>>> {
    ["a.npy", "b.csv", "c.txt"]
        .iter()
        .map(|name| {
            let bytes = std::fs::read(DIR.join(name)).ok();
            let _ = std::fs::remove_file(DIR.join(name));
            bytes
        })
        .collect()
}

fn answer(report: Result<Report>) -> Result<Answer, Kind> {
    let files = files();
    match report {
        Ok(r) => {
            let m = &r.metrics;
            let counts = (m.rows, m.rows_kept, m.rows_skipped, m.integers_rounded);
            Ok((format!("{:?}", r.results), format!("{counts:?}"), files))
        }
        Err(e) => Err(e.kind()),
    }
}

fn packed(text: &[u8], how: u8) -> Vec<u8> {
    match how & 3 {
        1 => {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            e.write_all(text).expect("memory takes all");
            e.finish().expect("memory takes all")
        }
        2 => text
            .chunks(40)
            .flat_map(|part| zstd::bulk::compress(part, 1).expect("small enough"))
            .collect(),
        _ => text.to_vec(),
    }
}

fuzz_target!(|data: &[u8]| {
    let Some(([a, b, c, how, form, chunk], mut data)) = choices::<6>(data) else { return };
    // A line of the input as a kernel or a filter of its own.
    let mut line = |wanted: bool| {
        let n = data.iter().position(|b| *b == b'\n').filter(|_| wanted)?;
        let text = String::from_utf8(data[..n].to_vec()).ok()?;
        data = &data[n + 1..];
        Some(text)
    };
    let dir = DIR.to_string_lossy().into_owned();
    let named = |i: u8| KERNELS[usize::from(i) % KERNELS.len()].replace("DIR", &dir);
    let mut kernels = vec![named(a), named(b)];
    if let Some(text) = line(how & 1 != 0) {
        let writes = text.contains("out") || text.contains("normalize") || text.contains("render");
        // So many passes or so large a picture of states say nothing new.
        let slow = text.starts_with("kmeans") || text.len() > 200;
        if !writes && !slow {
            kernels.push(text);
        }
    }
    let filter = line(how & 2 != 0)
        .or_else(|| (how & 4 != 0).then(|| FILTERS[usize::from(c) % FILTERS.len()].to_string()));
    let by: &[&str] = [&[][..], &["name"], &["x"], &["name", "y"]][usize::from(how >> 3 & 3)];
    if !by.is_empty() {
        kernels.retain(|k| !k.contains(&dir));
        kernels.push("mean:x".into());
    }
    let header = b"x,y,name\n".as_slice();
    let (first, second) = data.split_at(data.len() * usize::from(form >> 4) / 15);
    let texts = [[header, first].concat(), [header, second].concat()].map(|t| packed(&t, form));
    let options = OpenOptions {
        format: Some(FormatType::Csv),
        header: Header::Yes,
        column_types: vec![
            ("x".into(), ColumnType::Number),
            ("y".into(), ColumnType::Number),
            ("name".into(), ColumnType::Text),
        ],
        ..OpenOptions::default()
    };
    let open = || Dataset::from_sources(sources(&[&texts[0], &texts[1]]), &options);
    let Ok(dataset) = open() else { return };
    let request = Request {
        kernels,
        filter,
        by: by.iter().map(|s| s.to_string()).collect(),
        threads: 1,
        memory: 64 << 20,
        io: IoOptions { engine: Engine::Pread, ..IoOptions::default() },
        lenient: how & 32 == 0,
        ..Request::default()
    };
    let reference = answer(stead_run::run(&dataset, &request, None));
    let small =
        Request { threads: 3, chunk: usize::from(chunk).max(data.len() / 200 + 1), ..request };
    let several = answer(stead_run::run(&dataset, &small, None));
    assert_eq!(reference, several, "{small:?}");
    if small.kernels.iter().any(|k| k.contains(&dir)) || how & 64 != 0 {
        return;
    }
    let ranks: Vec<_> = std::thread::scope(|s| {
        let ranks = Local::group(2).into_iter().map(|fabric| {
            let small = &small;
            s.spawn(move || stead_run::run_on(&fabric, &open()?, small, None))
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|h| answer(h.join().expect("no panic"))).collect()
    });
    for rank in ranks {
        assert_eq!(reference, rank, "two ranks: {small:?}");
    }
});
