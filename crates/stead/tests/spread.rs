//! Data that lie on several nodes: the answers and errors of one node, for any stripes and any ranks.

#![allow(clippy::expect_used, clippy::panic)]

mod common;

use common::cases::{self, Case};
use common::{each, files, named, output, put, table, text};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead::fabric::{Fabric, Local, Rounds};
use stead::kernels::{Block, Kernel, Needs, Own, Step};
use stead::ranks::{Here, open_as};
use stead::{Cancel, Dataset, Error, Kind, OpenOptions, Report, Request, Result, Value};

fn request(kernels: &[&str]) -> Request {
    Request { threads: 2, chunk: 100, ..common::request(kernels) }
}

fn open(fabric: &Arc<dyn Fabric>, here: &Here, inputs: &[String]) -> Result<Dataset> {
    open_as(here, fabric, inputs, &OpenOptions::default(), &Cancel::new())
}

fn run_with(
    hosts: &[&str],
    inputs: &[String],
    options: &OpenOptions,
    request: &Request,
) -> Vec<Result<Report>> {
    each(hosts, |fabric, here| {
        let dataset = open_as(here, fabric, inputs, options, &Cancel::new())?;
        stead::run_on(&**fabric, &dataset, request, None)
    })
}

/// All ranks run; each gets the same report.
fn run(hosts: &[&str], inputs: &[String], request: &Request) -> Report {
    same(run_with(hosts, inputs, &OpenOptions::default(), request))
}

fn same(all: Vec<Result<Report>>) -> Report {
    let mut all = all.into_iter().map(|r| r.expect("run"));
    let first = all.next().expect("a rank");
    // As text: NaN is like no other number.
    assert!(all.all(|r| text(&r.results) == text(&first.results)));
    first
}

/// The error of all ranks.
fn error(hosts: &[&str], inputs: &[String], request: &Request) -> Error {
    common::error(run_with(hosts, inputs, &OpenOptions::default(), request))
}

/// As many nodes as a layout may have here, and who is on them.
const RANKS: [&[&str]; 5] =
    [&["a"], &["a", "b"], &["b", "a", "a"], &["c", "a", "b"], &["a", "b", "b", "a"]];

/// The same answers over stripes of any size and any ranks as over the files themselves.
fn check(case: &Case) {
    let dir = tempfile::tempdir().expect("dir");
    let asks = case.within(dir.path());
    let whole = case.open(&case.write(dir.path()));
    let wanted: Vec<_> = asks
        .iter()
        .map(|ask| {
            let report = stead::run(&whole, &ask.request, None).expect("run");
            (report, ask.output.as_ref().map(|path| output(path, false)))
        })
        .collect();
    for hosts in RANKS {
        let mut nodes = hosts.to_vec();
        nodes.sort_unstable();
        nodes.dedup();
        // A node may have several parts.
        nodes.push("a");
        for stripe in case.stripes {
            let over = |(name, bytes): &(&str, Vec<u8>)| {
                put(dir.path(), name, bytes, *stripe, &nodes).to_string_lossy().into_owned()
            };
            let layouts: Vec<String> = case.files.iter().map(over).collect();
            for (ask, (wanted, bytes)) in asks.iter().zip(&wanted) {
                let said = format!(
                    "{:?}, {hosts:?}, stripes of {stripe}, {:?}",
                    case.files[0].0, ask.request
                );
                let all = run_with(hosts, &layouts, &case.options, &ask.request);
                if ask.ordered && hosts.len() > 1 && all.iter().any(Result::is_err) {
                    let e = common::error(all);
                    assert!(
                        e.kind() == Kind::Usage && e.message().contains("in their order"),
                        "{e}"
                    );
                    continue;
                }
                let found = same(all);
                let scattered = ask.maps && hosts.len() > 1;
                let written = ask.output.as_ref().map(|path| output(path, scattered));
                assert!(written == *bytes, "{said}");
                let (a, b) = (text(&found.results), text(&wanted.results));
                assert!(a == b, "{said}: {a} in place of {b}");
                let (found, wanted) = (&found.metrics, &wanted.metrics);
                assert_eq!(found.rows, wanted.rows, "{said}");
                assert_eq!(found.rows_skipped, wanted.rows_skipped, "{said}");
                assert_eq!(found.integers_rounded, wanted.integers_rounded, "{said}");
                let sum =
                    |f: &dyn Fn(&stead::RankMetrics) -> u64| found.ranks.iter().map(f).sum::<u64>();
                assert_eq!(sum(&|r| r.bytes_fetched), sum(&|r| r.bytes_served));
                assert_eq!(sum(&|r| r.bytes_fetched), found.bytes_fetched);
                // All look at the beginning, to see what it is.
                let alone = hosts.iter().all(|h| h == &hosts[0]) || case.bytes() == 0;
                assert_eq!(found.bytes_fetched == 0, alone, "{said}");
            }
        }
    }
}

fn check_all(cases: Vec<Case>) {
    cases.iter().for_each(check);
}

#[test]
fn tables() {
    check_all(cases::tables());
}

#[test]
fn lines() {
    check_all(cases::lines());
}

#[test]
fn arrays() {
    check_all(cases::arrays());
}

#[test]
fn volumes() {
    check_all(cases::volumes());
}

#[test]
fn records_and_particles() {
    check_all(cases::records());
}

#[test]
fn compressed_files_are_their_first_holders() {
    check_all(cases::compressed());
}

#[test]
fn outputs_of_records_stay_near_the_data_and_are_those_of_one_node() {
    check_all(cases::outputs());
}

#[test]
fn only_the_ends_of_records_move() {
    let dir = tempfile::tempdir().expect("dir");
    let bytes = table(40_000);
    let layout = put(dir.path(), "t.csv", bytes.as_bytes(), 100_000, &["a", "b"]);
    let ask = Request { chunk: 10_000, ..request(&["rows", "mean:x"]) };
    let report = run(&["a", "b", "b"], &named(&layout), &ask);
    let stripes = bytes.len() as u64 / 100_000 + 1;
    // To see what it is, each rank looks at its beginning.
    let beginning = 3 * 300_000;
    let moved = report.metrics.bytes_fetched;
    assert!(moved < beginning + stripes * 5000, "{moved} of {}", bytes.len());
    // Where quotes matter, each byte is looked at twice, and by the same rank.
    assert_eq!(report.metrics.bytes_read, 2 * bytes.len() as u64);
}

#[test]
fn one_process_reads_what_it_reaches() {
    let dir = tempfile::tempdir().expect("dir");
    let host = Here::default().host;
    let bytes = table(100);
    let layout = put(dir.path(), "t.csv", bytes.as_bytes(), 99, &[&host, &host, &host]);
    let whole = dir.path().join("w.csv");
    std::fs::write(&whole, &bytes).expect("write");
    let ask = request(&["rows", "std:x", "lines"]);
    let want = stead::run(&stead::open(&named(&whole)).expect("open"), &ask, None).expect("run");
    // By the name of the file, which is not there, too.
    let name = layout.to_string_lossy().replace(".stead-layout.toml", "");
    for input in [layout.to_string_lossy().into_owned(), name] {
        let data = stead::open(&[input]).expect("open");
        assert_eq!(stead::run(&data, &ask, None).expect("run").results, want.results);
        assert_eq!(data.describe(2).expect("described").rows.len(), 2);
    }
    let out = format!("grep:'.',out={}/o.txt", dir.path().display());
    let data = stead::open(&named(&layout)).expect("open");
    stead::run(&data, &request(&[&out]), None).expect("run");
    let text = std::fs::read_to_string(dir.path().join("o.txt")).expect("output");
    assert_eq!(text, bytes.split_once('\n').expect("rows").1);
    // A part is none of the outputs that may be written.
    let part = format!("grep:'.',out={}/part1", layout.parent().expect("folder").display());
    let e = stead::run(&data, &request(&[&part]), None).expect_err("refused");
    assert_eq!(e.kind(), Kind::Usage);
    // Other nodes are out of reach.
    let far = put(dir.path(), "f.csv", bytes.as_bytes(), 99, &[&host, "elsewhere"]);
    let e = stead::open(&named(&far)).map(drop).expect_err("out of reach");
    assert_eq!(e.kind(), Kind::NotFound);
    assert!(e.to_string().contains("node elsewhere has parts of it, and no rank"), "{e}");
}

#[test]
fn parts_that_are_lost_cut_off_or_without_a_rank_are_errors_of_all() {
    let dir = tempfile::tempdir().expect("dir");
    let (bytes, ask) = (table(100), request(&["rows"]));
    let nodes = ["a", "b", "c"];
    let layout = put(dir.path(), "t.csv", bytes.as_bytes(), 99, &nodes);
    let inputs = named(&layout);
    let e = error(&["a", "c"], &inputs, &ask);
    assert!(
        e.kind() == Kind::NotFound && e.to_string().contains("node b has parts of it, and no rank"),
        "{e}"
    );
    assert!(e.hint().is_some_and(|h| h.contains("--host a,b,c")), "{:?}", e.hint());
    let part = layout.with_file_name("part1");
    let whole = std::fs::read(&part).expect("part");
    std::fs::write(&part, &whole[1..]).expect("write");
    let e = error(&nodes, &inputs, &ask);
    let lengths = format!("{} bytes in place of {}", whole.len() - 1, whole.len());
    assert!(
        e.kind() == Kind::Format
            && e.to_string().contains(&lengths)
            && e.to_string().contains("on b"),
        "{e}"
    );
    std::fs::remove_file(&part).expect("remove");
    let e = error(&nodes, &inputs, &ask);
    assert!(e.kind() == Kind::NotFound && e.to_string().contains("part 1 of 't.csv'"), "{e}");
    assert!(e.to_string().contains("on b"), "{e}");
    std::fs::write(&part, &whole).expect("write");
    run(&nodes, &inputs, &ask);
    // What is named is not there, or of two sorts.
    let e = error(&["a", "b"], &["/nowhere/t.csv".to_owned()], &ask);
    assert_eq!(e.kind(), Kind::NotFound);
    let both = [inputs[0].clone(), part.to_string_lossy().into_owned()];
    assert_eq!(error(&["a", "b"], &both, &ask).kind(), Kind::Usage);
}

#[test]
fn errors_in_the_data_are_those_of_one_node() {
    let dir = tempfile::tempdir().expect("dir");
    let row = |i: usize| match i {
        250 | 251 | 390 => format!("{i},1\n"),
        _ => format!("{i},\"a\nb\",c\n"),
    };
    let bytes: String = std::iter::once("x,y,z\n".to_owned()).chain((0..400).map(row)).collect();
    let whole = dir.path().join("t.csv");
    std::fs::write(&whole, &bytes).expect("write");
    let ask = request(&["sum:x"]);
    let one = stead::run(&stead::open(&named(&whole)).expect("open"), &ask, None).expect_err("bad");
    for stripe in [7, 500] {
        let layout = put(dir.path(), "t.csv", bytes.as_bytes(), stripe, &["a", "b"]);
        let e = error(&["a", "b", "a"], &named(&layout), &ask);
        assert_eq!(
            (e.message(), e.kind(), e.place().line),
            (one.message(), one.kind(), one.place().line)
        );
        let lenient = Request { lenient: true, ..ask.clone() };
        assert_eq!(run(&["a", "b"], &named(&layout), &lenient).metrics.rows_skipped, 3);
    }
}

#[test]
fn parts_of_an_output_lie_in_the_dataspaces_of_the_data() {
    let dir = tempfile::tempdir().expect("dir");
    let (bytes, hosts) = (table(3000), ["a", "b", "b"]);
    let file = dir.path().join("t.csv");
    std::fs::write(&file, &bytes).expect("write");
    let folder = |host: &str| dir.path().join(format!("disk-{host}"));
    hosts[..2].iter().for_each(|h| std::fs::create_dir(folder(h)).expect("folder"));
    // As `put` does it, which asks for the names of hosts.
    let stripes = put(dir.path(), "t.csv", bytes.as_bytes(), 4000, &["a", "b"]);
    let text = std::fs::read_to_string(&stripes).expect("layout");
    for (i, host) in ["a", "b"].iter().enumerate() {
        std::fs::create_dir(folder(host).join("t.csv")).expect("folder");
        let from = stripes.with_file_name(format!("part{i}"));
        std::fs::rename(from, folder(host).join(format!("t.csv/{i}"))).expect("rename");
    }
    let old = stripes.parent().expect("folder").display().to_string();
    let text = text.replace(&format!("path = \"{old}/part"), "space = \"s\", path = \"t.csv/");
    let layout = dir.path().join("t.csv.stead-layout.toml");
    std::fs::write(&layout, text).expect("layout");
    std::fs::remove_dir_all(old).expect("remove");
    let out = dir.path().join("o.csv");
    let ask = request(&[&format!("normalize:x,out={}", out.display())]);
    let runs = |ask: &Request| {
        each(&hosts, |fabric, here| {
            let dataspaces = vec![format!("s={}", folder(&here.host).display())];
            let options = OpenOptions { dataspaces, ..OpenOptions::default() };
            let data = open_as(here, fabric, &named(&layout), &options, &Cancel::new())?;
            stead::run_on(&**fabric, &data, ask, None)
        })
    };
    let data = files(dir.path());
    let made = |all: Vec<Result<Report>>| -> Vec<PathBuf> {
        all.into_iter().for_each(|r| drop(r.expect("run")));
        files(dir.path()).into_iter().filter(|f| !data.contains(f)).collect()
    };
    let first = made(runs(&ask));
    let names: Vec<String> = first
        .iter()
        .map(|f| f.strip_prefix(dir.path()).expect("within").display().to_string())
        .collect();
    // A part of each rank, and the layout.
    let begins = [
        "disk-a/o.csv.parts/out-",
        "disk-b/o.csv.parts/out-",
        "disk-b/o.csv.parts/out-",
        "o.csv.stead-layout.toml",
    ];
    assert_eq!(names.len(), begins.len(), "{names:?}");
    assert!(names.iter().zip(begins).all(|(n, b)| n.starts_with(b)), "{names:?}");
    let whole = stead::layout::read(&first[3]).expect("layout");
    let nodes: Vec<(&str, Option<&str>)> =
        whole.parts().iter().map(|p| (p.node.as_str(), p.space.as_deref())).collect();
    assert_eq!(nodes, [("a", Some("s")), ("b", Some("s")), ("b", Some("s"))]);
    assert!(whole.parts().iter().all(|p| p.checksum.is_some()));
    // It is a dataset like others, and the output of one node.
    let alone = dir.path().join("alone.csv");
    let one = request(&[&format!("normalize:x,out={}", alone.display())]);
    stead::run(&stead::open(&named(&file)).expect("open"), &one, None).expect("run");
    let want = std::fs::read(&alone).expect("read");
    assert_eq!(whole.length(), want.len() as u64);
    for p in whole.pieces(0..whole.length()) {
        let part = &whole.parts()[p.part];
        let there = std::fs::read(folder(&part.node).join(&part.path)).expect("part");
        let (at, from) = (p.at as usize, p.offset as usize);
        assert!(there[at..at + p.len as usize] == want[from..from + p.len as usize]);
    }
    // Again: another one in its place, and nothing is left of the first.
    let second = made(runs(&ask));
    assert_eq!(second.len(), 5, "{second:?}");
    let again: Vec<&PathBuf> = second.iter().filter(|f| first.contains(f)).collect();
    assert_eq!(again, [&first[3]]);
    // A layout of something else stays.
    std::fs::rename(&first[3], dir.path().join("p.csv.stead-layout.toml")).expect("rename");
    let before = files(dir.path());
    let other = request(&[&format!("normalize:x,out={}/p.csv", dir.path().display())]);
    for e in runs(&other) {
        let e = e.map(drop).expect_err("refused");
        assert!(e.kind() == Kind::Usage && e.message().contains("of something else"), "{e}");
    }
    // A node on which no part can be made: one error of all, and nothing is left.
    std::fs::write(folder("b").join("q.csv.parts"), b"in the way").expect("write");
    let other = request(&[&format!("normalize:x,out={}/q.csv", dir.path().display())]);
    for e in runs(&other) {
        let e = e.map(drop).expect_err("in the way");
        assert!(
            e.place().rank == Some(1) && e.to_string().contains("'q.csv.parts' is a file"),
            "{e}"
        );
    }
    std::fs::remove_file(folder("b").join("q.csv.parts")).expect("remove");
    assert_eq!(files(dir.path()), before);
}

/// As `put`, with parts that lie beside the layout.
fn put_beside(dir: &Path, name: &str, bytes: &[u8], nodes: &[&str]) -> PathBuf {
    let layout = put(dir, name, bytes, 99, nodes);
    let text = std::fs::read_to_string(&layout).expect("layout");
    let folder = layout.parent().expect("folder").display();
    let text = text.replace(&format!("path = \"{folder}/part"), "path = \"part");
    std::fs::write(&layout, text).expect("layout");
    layout
}

#[test]
fn parts_beside_the_layout_are_read_by_those_who_see_them() {
    let dir = tempfile::tempdir().expect("dir");
    let whole = dir.path().join("whole.csv");
    std::fs::write(&whole, table(200)).expect("write");
    let out = dir.path().join("o.csv");
    let ask = request(&["rows", "std:x", &format!("normalize:x,out={}", out.display())]);
    let want = stead::run(&stead::open(&named(&whole)).expect("open"), &ask, None).expect("run");
    let want = (text(&want.results), output(&out, false));
    let layout = named(&put_beside(dir.path(), "t.csv", table(200).as_bytes(), &["x", "y", "y"]));
    // No node has a rank, one of them has, both have.
    for hosts in [&["a"][..], &["a", "b"], &["a", "x"], &["y", "a", "y"], &["x", "y"]] {
        let found = text(&run(hosts, &layout, &ask).results);
        assert!((found, output(&out, hosts.len() > 1)) == want, "{hosts:?}");
    }
}

#[test]
fn what_no_layout_can_name_is_told_before_the_data_are_read() {
    let dir = tempfile::tempdir().expect("dir");
    // A row that the pass would fail at.
    let bytes = format!("{}bad\n", table(100));
    let layout = named(&put_beside(dir.path(), "t.csv", bytes.as_bytes(), &["x", "y"]));
    let out = dir.path().join("o.csv");
    let ask = request(&[&format!("normalize:x,out={}", out.display())]);
    assert_eq!(error(&["a", "b"], &layout, &ask).kind(), Kind::Data);
    let e = error(&["a", "no node"], &layout, &ask);
    assert!(e.kind() == Kind::Usage && e.to_string().contains("no node"), "{e}");
    let left = files(dir.path());
    assert!(!left.iter().any(|f| f.to_string_lossy().contains("o.csv")), "{left:?}");
}

#[test]
fn a_layout_that_is_named_twice_counts_once() {
    let dir = tempfile::tempdir().expect("dir");
    let ask = request(&["rows", "lines"]);
    let layout = put(dir.path(), "t.csv", table(100).as_bytes(), 99, &["a", "b"]);
    let name = layout.to_string_lossy().into_owned();
    let other = put(dir.path(), "u.csv", table(50).as_bytes(), 99, &["a", "b"]);
    let other = other.to_string_lossy().into_owned();
    let once = run(&["a", "b"], &[name.clone(), other.clone()], &ask);
    assert_eq!(once.plan.files, 2);
    let odd = format!("{}/./t.csv.stead-layout.toml", layout.parent().expect("folder").display());
    let short = name.replace(".stead-layout.toml", "");
    for inputs in [[&name, &other, &name], [&other, &odd, &name], [&short, &name, &other]] {
        let twice = run(&["a", "b"], &inputs.map(String::clone), &ask);
        assert_eq!((&twice.results, twice.plan.files), (&once.results, 2), "{inputs:?}");
    }
}

#[test]
fn lines_of_errors_are_counted_where_they_lie() {
    let dir = tempfile::tempdir().expect("dir");
    let row = |i: usize| if i == 90_000 { "bad\n".to_owned() } else { format!("{i},{}\n", i % 7) };
    let bytes: String = std::iter::once("x,y\n".to_owned()).chain((0..100_000).map(row)).collect();
    let layout = named(&put(dir.path(), "t.csv", bytes.as_bytes(), 50_000, &["a", "b"]));
    let options = OpenOptions { quote: stead::Quote::None, ..OpenOptions::default() };
    let all = each(&["a", "b"], |fabric, here| {
        let data = open_as(here, fabric, &layout, &options, &Cancel::new())?;
        let ask = Request { chunk: 10_000, ..request(&["sum:x"]) };
        let e = stead::run_on(&**fabric, &data, &ask, None).expect_err("bad");
        // All have told all before anybody looks.
        stead::ranks::agree(&**fabric, Ok(()))?;
        let traffic = data.holding().map_or((0, 0), |h| h.traffic.take());
        Ok((e.kind(), e.place().line, traffic.0))
    });
    let mut moved = 0;
    for told in all {
        let (kind, line, fetched) = told.expect("told");
        assert_eq!((kind, line), (Kind::Data, Some(90_002)));
        moved += fetched;
    }
    // Each looks at the beginning of the file, half of which it has; then there are the ends of stripes.
    assert!(moved < 420_000, "{moved} of {}", bytes.len());
}

#[test]
fn a_dataset_is_for_the_ranks_that_have_opened_it() {
    let dir = tempfile::tempdir().expect("dir");
    let layout = named(&put(dir.path(), "t.csv", table(100).as_bytes(), 99, &["a", "b"]));
    let all = each(&["a", "b"], |fabric, here| {
        let data = open(fabric, here, &layout)?;
        let alone = stead::run(&data, &request(&["rows"]), None).map(drop).expect_err("alone");
        assert_eq!(alone.kind(), Kind::Usage);
        // And for as many runs as they like.
        for _ in 0..3 {
            stead::run_on(&**fabric, &data, &request(&["rows", "kmeans:id,k=2"]), None)?;
        }
        Ok(())
    });
    all.into_iter().for_each(|r| r.expect("run"));
}

#[test]
fn files_of_each_rank_lie_where_it_ran() {
    let dir = tempfile::tempdir().expect("dir");
    let bytes: Vec<u8> =
        (0..4000u32).flat_map(|i| (f64::from(i * 7 % 1001) / 3.0).to_le_bytes()).collect();
    let options = OpenOptions { dtype: Some(stead::DType::F64), ..OpenOptions::default() };
    let ask = request(&["rows", "sum:value", "quantile:value", "gram:*"]);
    let mut inputs = Vec::new();
    let cuts = [0, 800, 800, 8000, 8008, 20_000, 32_000];
    let folders = ["a", "b"].map(|n| dir.path().join(n));
    folders.iter().for_each(|f| std::fs::create_dir_all(f.join("run")).expect("folder"));
    for (r, w) in cuts.windows(2).enumerate() {
        let whole = dir.path().join(format!("out.{r}.bin"));
        std::fs::write(&whole, &bytes[w[0]..w[1]]).expect("write");
        inputs.push(whole.to_string_lossy().into_owned());
        std::fs::write(folders[r % 2].join(format!("run/out.{r}.bin")), &bytes[w[0]..w[1]])
            .expect("write");
    }
    let whole = stead::open_with(&inputs, &options).expect("open");
    let want = stead::run(&whole, &ask, None).expect("run");
    let pattern = ["run/out.%r.bin".to_owned()];
    let all = |hosts: &[&str]| {
        each(hosts, |fabric, here| {
            let folder = Some(dir.path().join(&here.host));
            let here = Here { folder, ..here.clone() };
            let data = open_as(&here, fabric, &pattern, &options, &Cancel::new())?;
            stead::run_on(&**fabric, &data, &ask, None)
        })
    };
    for hosts in [&["a", "b"][..], &["b", "a", "a", "b"], &["a", "b", "b"]] {
        for report in all(hosts) {
            let report = report.expect("run");
            assert_eq!(text(&report.results), text(&want.results));
            assert_eq!((report.plan.files, report.metrics.rows), (6, Some(4000)));
        }
    }
    std::fs::remove_file(folders[1].join("run/out.3.bin")).expect("remove");
    for e in all(&["a", "b"]) {
        let e = e.map(drop).expect_err("one is missing");
        assert!(
            e.kind() == Kind::NotFound && e.to_string().contains("no node has run/out.3.bin"),
            "{e}"
        );
    }
    // On one node they are the files of its ranks.
    std::fs::remove_dir_all(&folders[1]).expect("remove");
    for (r, w) in cuts.windows(2).enumerate() {
        std::fs::write(folders[0].join(format!("run/out.{r}.bin")), &bytes[w[0]..w[1]])
            .expect("write");
    }
    for hosts in [&["a"][..], &["a", "a", "a"]] {
        for report in all(hosts) {
            let report = report.expect("run");
            assert_eq!(text(&report.results), text(&want.results));
            assert_eq!(report.metrics.bytes_fetched, 0);
        }
    }
}

#[test]
fn a_rank_that_dies_while_others_want_its_bytes_is_named() {
    let dir = tempfile::tempdir().expect("dir");
    let layout = named(&put(dir.path(), "t.csv", table(3000).as_bytes(), 50, &["a", "b"]));
    let mut fabrics = Local::over_nodes(&[0, 1], Duration::from_secs(60));
    let dying = Arc::new(Dies {
        inner: Mutex::new(fabrics.pop().map(Arc::new)),
        rounds: Rounds::default(),
    });
    let fabric: Arc<dyn Fabric> = Arc::new(fabrics.remove(0));
    let gone = std::sync::Barrier::new(2);
    let e = std::thread::scope(|scope| {
        scope.spawn(|| {
            let here = Here { host: "b".into(), folder: None };
            let shared: Arc<dyn Fabric> = dying.clone();
            let data = open(&shared, &here, &layout).expect("open");
            dying.inner.lock().expect("lock").take();
            gone.wait();
            drop(data);
        });
        let here = Here { host: "a".into(), folder: None };
        let data = open(&fabric, &here, &layout).expect("open");
        gone.wait();
        data.describe(100_000).map(drop).expect_err("its bytes")
    });
    let place = e.place();
    assert_eq!((e.kind(), place.rank, place.host.as_deref()), (Kind::Peer, Some(1), Some("b")));
    assert!(e.to_string().contains("t.csv") && e.to_string().contains("bytes "), "{e}");
}

#[test]
fn what_is_lost_with_a_rank_that_dies_while_it_computes_is_told() {
    /// Ends the rank at its first block.
    struct Last(Arc<Dies>);
    impl Kernel for Last {
        type State = u64;

        fn needs(&self) -> Needs {
            Needs { rows: true, numbers: vec![0], ..Needs::default() }
        }

        fn init(&self) -> u64 {
            0
        }

        fn update(&self, _: &mut u64, _: &Block<'_>) -> Result<()> {
            self.0.inner.lock().expect("lock").take();
            Ok(())
        }

        fn merge(&self, _: &mut u64, _: u64) -> Result<()> {
            Ok(())
        }

        fn finish(&self, _: u64) -> Result<Step> {
            Ok(Step::Done(Value::Null))
        }
    }
    let dir = tempfile::tempdir().expect("dir");
    // Elements that lie within stripes, so that nobody wants bytes of another one.
    let layout = named(&put(dir.path(), "m.raw", &[0; 8000], 800, &["a", "b"]));
    let options = OpenOptions { dtype: Some(stead::DType::F64), ..OpenOptions::default() };
    let mut fabrics = Local::over_nodes(&[0, 1], Duration::from_secs(60));
    let inner = Mutex::new(fabrics.pop().map(Arc::new));
    let dying = Arc::new(Dies { inner, rounds: Rounds::default() });
    let fabric: Arc<dyn Fabric> = Arc::new(fabrics.remove(0));
    let ask = |own: Vec<Own>| Request { own, ..request(&["sum:value"]) };
    let run = |fabric: &Arc<dyn Fabric>, host: &str, last: Option<Arc<Dies>>| {
        let here = Here { host: host.into(), folder: None };
        let data = open_as(&here, fabric, &layout, &options, &Cancel::new())?;
        let own = match last {
            Some(dying) => Own::new("own", move |_| Ok(Last(dying.clone()))),
            // Nothing happens at this one's blocks.
            None => Own::new("own", |_| {
                Ok(Last(Arc::new(Dies { inner: Mutex::new(None), rounds: Rounds::default() })))
            }),
        };
        stead::run_on(&**fabric, &data, &ask(vec![own]), None)
    };
    let e = std::thread::scope(|scope| {
        scope.spawn(|| {
            let shared: Arc<dyn Fabric> = dying.clone();
            run(&shared, "b", Some(dying.clone())).map(drop).expect_err("it is dead");
        });
        run(&fabric, "a", None).map(drop).expect_err("the other one is dead")
    });
    assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(1)));
    let says = e.to_string();
    assert!(says.contains("; its share: 4000 bytes of ") && says.contains("m.raw"), "{e}");
    assert!(says.ends_with(", between 800 and 8000"), "{e}");
}

/// A rank that dies when its fabric is taken from it.
struct Dies {
    inner: Mutex<Option<Arc<Local>>>,
    rounds: Rounds,
}

impl Dies {
    fn alive(&self) -> Result<Arc<Local>> {
        let dead = || Error::new(Kind::Peer, "this one is dead");
        self.inner.lock().expect("lock").clone().ok_or_else(dead)
    }
}

impl Fabric for Dies {
    fn rank(&self) -> usize {
        1
    }

    fn size(&self) -> usize {
        2
    }

    fn node_of(&self, rank: usize) -> usize {
        rank
    }

    fn deadline(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        self.alive()?.send(to, tag, bytes)
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.alive()?.recv_within(from, tag, within)
    }

    fn recv_any(&self, tag: u32, _within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.alive()?.recv_any(tag, Duration::from_millis(10))
    }

    fn alive(&self, rank: usize) -> Result<()> {
        self.alive()?.alive(rank)
    }

    fn rounds(&self) -> &Rounds {
        &self.rounds
    }
}
