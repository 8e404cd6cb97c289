//! Ranks that have data and ranks that ask for them: the same bits wherever it is computed, and one error of all ranks.

#![allow(clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use stead::fabric::{Fabric, Local};
use stead::plan::Wish;
use stead::ranks::{Here, Roles, open_apart};
use stead::{
    Cancel, Dataset, Error, Kind, OpenOptions, Placing, Report, Request, Result, Shape, Value,
};
use stead_core::layout::{Layout, Part};

/// Rows with quotes, some around newlines, missing values and values of any size.
fn table(rows: usize) -> String {
    let row = |i: usize| {
        let x = match i % 9 {
            0 => "NA".to_owned(),
            1 => format!("{i}e200"),
            2 => format!("-{i}.5e-200"),
            _ => format!("{}.25", i * 37 % 101),
        };
        let note = match i % 5 {
            0 => format!("\"two\nlines, {i}\""),
            1 => format!("\"he said \"\"{i}\"\"\""),
            _ => format!("plain {i}"),
        };
        format!("{i},{x},g{},{note}\n", i % 3)
    };
    std::iter::once("id,x,group,note\n".to_owned()).chain((0..rows).map(row)).collect()
}

fn request(kernels: &[&str], place: Wish) -> Request {
    let kernels = kernels.iter().map(|k| k.to_string()).collect();
    Request { kernels, threads: 2, chunk: 300, place, ..Request::default() }
}

/// What ranks on these hosts get, of which those on `s1` and `s2` have the data.
fn each<T: Send>(
    hosts: &[&str],
    work: impl Fn(&Arc<dyn Fabric>, &Here) -> Result<T> + Sync,
) -> Vec<Result<T>> {
    let nodes: Vec<usize> =
        hosts.iter().map(|h| hosts.iter().position(|o| o == h).unwrap_or(0)).collect();
    let group = Local::over_nodes(&nodes, Duration::from_secs(60));
    std::thread::scope(|scope| {
        let work = &work;
        let rank = |(fabric, host): (Local, &&str)| {
            let here = Here { host: host.to_string(), folder: None };
            scope.spawn(move || work(&(Arc::new(fabric) as Arc<dyn Fabric>), &here))
        };
        let all: Vec<_> = group.into_iter().zip(hosts).map(rank).collect();
        all.into_iter().map(|t| t.join().expect("no panic")).collect()
    })
}

/// Storage hosts that are among these.
fn storage(hosts: &[&str]) -> String {
    let mut names: Vec<&str> = hosts.iter().copied().filter(|h| h.starts_with('s')).collect();
    names.sort_unstable();
    names.dedup();
    names.join(",")
}

/// Ranks that ask see nothing of the data: their names lead nowhere.
fn open(
    fabric: &Arc<dyn Fabric>,
    here: &Here,
    hosts: &[&str],
    inputs: &[String],
    options: &OpenOptions,
) -> Result<Dataset> {
    let roles = Roles::by_hosts(&**fabric, here, &storage(hosts))?;
    open_apart(here, fabric, &roles, inputs, options, &Cancel::new())
}

fn run(
    hosts: &[&str],
    inputs: &[String],
    options: &OpenOptions,
    request: &Request,
) -> Vec<Result<Report>> {
    each(hosts, |fabric, here| {
        let dataset = open(fabric, here, hosts, inputs, options)?;
        stead::run_on(&**fabric, &dataset, request, None)
    })
}

fn text(results: &[(String, Value)]) -> String {
    serde_json::to_string(&Value::Map(results.to_vec())).expect("json")
}

const JOBS: [&[&str]; 4] = [
    &["s1", "h1"],
    &["h1", "s1", "h2"],
    &["h1", "h1", "s1", "s2"],
    &["s2", "h1", "s1", "s1", "h2"],
];

fn named(path: &Path) -> Vec<String> {
    vec![path.to_string_lossy().into_owned()]
}

fn placing(report: &Report) -> &Placing {
    report.plan.place.as_ref().expect("a place")
}

/// The answers of one rank over the file, wherever ranks compute. Columns can be sent if the kernels look at nothing else.
fn check(inputs: &[String], alone: &Dataset, options: &OpenOptions, kernels: &[&str]) {
    for grouped in [false, true] {
        let shaped = |place| {
            let mut r = request(kernels, place);
            let plain = alone.schema().columns.iter().any(|c| c.name == "group");
            if grouped && plain {
                (r.by, r.filter) = (vec!["group".into()], Some("x > 3 or id < 100".into()));
                r.kernels.retain(|k| !k.starts_with("gram") && !k.starts_with("kmeans"));
            }
            r
        };
        let wanted = stead::run(alone, &shaped(Wish::Auto), None).expect("alone");
        let columns = !kernels.contains(&"digits");
        for hosts in JOBS {
            let places = [Wish::Push, Wish::Pull, Wish::Split, Wish::Auto, Wish::Vector];
            for place in places.into_iter().filter(|p| columns || *p != Wish::Vector) {
                let all = run(hosts, inputs, options, &shaped(place));
                for report in all.into_iter().map(|r| r.expect("run")) {
                    let (a, b) = (text(&report.results), text(&wanted.results));
                    assert!(a == b, "{inputs:?} {hosts:?} {place:?}: {a} in place of {b}");
                    assert_eq!(report.metrics.rows, wanted.metrics.rows);
                    let p = placing(&report);
                    let asking = hosts.iter().filter(|h| h.starts_with('h')).count();
                    assert_eq!(p.compute_ranks, asking);
                    let found = (p.alternatives.len(), p.left_out.len());
                    assert_eq!(found, if columns { (4, 0) } else { (3, 1) });
                    let share = p.took.asked_share;
                    let ranks = report.metrics.ranks.iter().zip(hosts);
                    let read = |h: char| ranks.clone().filter(move |(_, n)| n.starts_with(h));
                    match p.place.as_str() {
                        "push" => {
                            assert!(share == 0.0 && read('h').all(|(r, _)| r.bytes_read == 0))
                        }
                        "pull" => {
                            assert!(share == 1.0 && read('s').all(|(r, _)| r.bytes_fetched == 0))
                        }
                        "vector" => {
                            assert!(share == 1.0 && read('h').all(|(r, _)| r.bytes_read == 0));
                            assert!(report.metrics.bytes_fetched > 0);
                        }
                        "split" => assert!((0.0..=1.0).contains(&share)),
                        other => panic!("{other}"),
                    }
                    assert!(place == Wish::Auto || p.wish == p.place);
                    if p.place == "pull" {
                        assert!(report.metrics.bytes_fetched >= alone.total_bytes());
                    }
                }
            }
        }
    }
}

#[test]
fn tables_give_the_same_bits() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("t.csv");
    std::fs::write(&file, table(700)).expect("write");
    let options = OpenOptions::default();
    let kernels = [
        "lines",
        "rows",
        "count:x",
        "sum:x",
        "mean:x",
        "var:x",
        "std:x",
        "min:x",
        "max:x",
        "hist:x,bins=5",
        "quantile:x,q=0.1;0.9",
        "digits",
        "entropy",
        "gram:id,x",
        "grep:'said|1\\d',lines,max=9",
        "kmeans:id,k=3,seed=3",
    ];
    let alone = stead::open(&named(&file)).expect("open");
    check(&named(&file), &alone, &options, &kernels);
}

#[test]
fn columns_give_the_same_bits() {
    let dir = tempfile::tempdir().expect("dir");
    let options = OpenOptions::default();
    // A few records, too, of which some ranks have none.
    for rows in [2, 3, 400] {
        let file = dir.path().join(format!("{rows}.csv"));
        std::fs::write(&file, table(rows)).expect("write");
        let alone = stead::open(&named(&file)).expect("open");
        let kernels = ["rows", "count:x", "sum:x", "var:x", "min:x"];
        let more = [
            "hist:x,bins=5",
            "quantile:x,q=0.1;0.9",
            "quantile:x,exact",
            "gram:id,x",
            "kmeans:id,k=3,seed=3",
        ];
        let all = [&kernels[..], if rows < 9 { &[] } else { &more[..] }].concat();
        check(&named(&file), &alone, &options, &all);
    }
    let tabs = dir.path().join("t.tsv");
    std::fs::write(&tabs, table(300).replace(',', "\t")).expect("write");
    let alone = stead::open(&named(&tabs)).expect("open");
    check(&named(&tabs), &alone, &options, &["mean:x", "kmeans:id,k=2,init=first"]);
}

#[test]
fn columns_are_sent_again_where_memory_does_not_hold_them() {
    let dir = tempfile::tempdir().expect("dir");
    let file = dir.path().join("t.csv");
    std::fs::write(&file, table(200_000)).expect("write");
    let alone = stead::open(&named(&file)).expect("open");
    let asked = |memory| {
        let r = request(&["kmeans:id,x,k=3,rounds=3,init=first"], Wish::Vector);
        Request { memory, chunk: 1 << 20, threads: 1, ..r }
    };
    let here = Request { place: Wish::Auto, ..asked(1 << 30) };
    let wanted = stead::run(&alone, &here, None).expect("alone");
    let mut fetched = Vec::new();
    for memory in [1 << 30, 20 << 20] {
        for report in
            run(&["s1", "h1", "h1"], &named(&file), &OpenOptions::default(), &asked(memory))
        {
            let report = report.expect("run");
            assert_eq!(text(&report.results), text(&wanted.results));
            fetched.push(report.metrics.bytes_fetched);
        }
    }
    // Once, or in each pass.
    let columns = 200_000 * 2 * 8;
    assert!((columns..3 * columns).contains(&fetched[0]), "{fetched:?}");
    assert!(fetched[3] >= 3 * columns, "{fetched:?}");
}

#[test]
fn arrays_and_lines_and_several_files_give_the_same_bits() {
    let dir = tempfile::tempdir().expect("dir");
    let raw = dir.path().join("m.bin");
    let values = (0..3000).map(|i| f64::from(i % 257) * 1.1e10 - 7e-9);
    std::fs::write(&raw, values.flat_map(f64::to_le_bytes).collect::<Vec<u8>>()).expect("write");
    let shape = Shape::new(vec![1000, 3]).expect("shape");
    let options = OpenOptions {
        dtype: Some("f64".parse().expect("type")),
        shape: Some(shape.dims().to_vec()),
        ..OpenOptions::default()
    };
    let alone = stead::open_with(&named(&raw), &options).expect("open");
    check(
        &named(&raw),
        &alone,
        &options,
        &["sum:*", "std:*", "gram:*", "kmeans:k=4,seed=1", "digits"],
    );
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).expect("folder");
    for n in 0..4 {
        let lines = (0..n * 150).map(|i| format!("{i} of {n}: {}\n", "x".repeat(i % 90)));
        std::fs::write(logs.join(format!("{n}.log")), lines.collect::<String>()).expect("write");
    }
    let alone = stead::open(&named(&logs)).expect("open");
    let kernels = ["lines", "rows", "grep:'9 of',lines", "entropy", "digits"];
    check(&named(&logs), &alone, &OpenOptions::default(), &kernels);
}

#[test]
fn pictures_are_the_same_wherever_their_cells_are_drawn() {
    let dir = tempfile::tempdir().expect("dir");
    let raw = dir.path().join("volume.bin");
    let values = (0..70 * 81).map(|i| (i * 37 % 101) as f32 / 100.0);
    std::fs::write(&raw, values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).expect("write");
    let options = OpenOptions {
        dtype: Some("f32".parse().expect("type")),
        shape: Some(vec![70, 9, 9]),
        ..OpenOptions::default()
    };
    let alone = stead::open_with(&named(&raw), &options).expect("open");
    let draw = |name: &str| {
        let file = dir.path().join(name).display().to_string();
        // One pass, and two.
        (file.clone(), format!("render:out='{file}',width=40,height=30"))
    };
    let (file, kernel) = draw("alone.png");
    stead::run(&alone, &request(&[&format!("{kernel},min=0,max=1")], Wish::Auto), None)
        .expect("run");
    let wanted = std::fs::read(&file).expect("picture");
    for ends in [",min=0,max=1", ""] {
        for hosts in JOBS {
            for place in [Wish::Push, Wish::Pull, Wish::Split, Wish::Auto] {
                let (file, kernel) = draw("placed.png");
                let asked = request(&[&format!("{kernel}{ends}")], place);
                let all = run(hosts, &named(&raw), &options, &asked);
                assert!(all.into_iter().all(|r| r.is_ok()), "{hosts:?} {place:?}");
                let found = std::fs::read(&file).expect("picture");
                std::fs::remove_file(&file).expect("remove");
                assert!(ends.is_empty() || found == wanted, "{hosts:?} {place:?}");
            }
        }
    }
}

#[test]
fn parts_of_layouts_lie_with_their_hosts() {
    let dir = tempfile::tempdir().expect("dir");
    let (file, bytes) = (dir.path().join("t.csv"), table(500));
    std::fs::write(&file, &bytes).expect("write");
    let place = |i: usize, node: &str| {
        Part::new(node, dir.path().join(format!("part{i}")).to_string_lossy())
    };
    let parts = vec![place(0, "s1"), place(1, "s2"), place(2, "s1")];
    let layout = Layout::even("t.csv", bytes.len() as u64, 777, parts).expect("layout");
    let mut files = vec![Vec::new(); 3];
    for p in layout.pieces(0..layout.length()) {
        let piece = &bytes.as_bytes()[p.offset as usize..(p.offset + p.len) as usize];
        files[p.part].extend_from_slice(piece);
    }
    for (part, file) in layout.parts().iter().zip(files) {
        std::fs::write(&part.path, file).expect("part");
    }
    let path = dir.path().join("t.csv.stead-layout.toml");
    std::fs::write(&path, layout.to_string()).expect("layout");
    let alone = stead::open(&named(&file)).expect("open");
    let kernels =
        |place| if place == Wish::Vector { ["mean:x", "std:id"] } else { ["mean:x", "digits"] };
    for place in [Wish::Push, Wish::Pull, Wish::Split, Wish::Vector] {
        for hosts in [&["h1", "s1", "s2"][..], &["s2", "h1", "h2", "s1", "s1"]] {
            let asked = request(&kernels(place), place);
            let wanted =
                stead::run(&alone, &request(&kernels(place), Wish::Auto), None).expect("run");
            for report in run(hosts, &named(&path), &OpenOptions::default(), &asked) {
                assert_eq!(text(&report.expect("run").results), text(&wanted.results));
            }
        }
    }
    // A node that has parts and asks.
    let all =
        run(&["h1", "s1"], &named(&path), &OpenOptions::default(), &request(&["rows"], Wish::Push));
    one_error(all, Kind::Usage, "s2 has parts of it, and is no storage host");
}

fn one_error(all: Vec<Result<Report>>, kind: Kind, says: &str) {
    let errors: Vec<Error> = all.into_iter().map(|r| r.expect_err("an error")).collect();
    for e in &errors {
        assert_eq!(e.kind(), kind, "{e}");
        assert!(e.to_string().contains(says), "{e}");
        assert_eq!(e.to_string(), errors[0].to_string());
    }
}

#[test]
fn what_cannot_be_placed_is_one_error_of_all_ranks() {
    let dir = tempfile::tempdir().expect("dir");
    let (file, none) = (dir.path().join("t.csv"), dir.path().join("none.csv"));
    std::fs::write(&file, "x\n1\n2\nthree\n4\n").expect("write");
    let options = OpenOptions {
        column_types: vec![("x".into(), "number".parse().expect("type"))],
        ..OpenOptions::default()
    };
    let hosts = ["h1", "s1", "h2", "s2"];
    for place in [Wish::Push, Wish::Pull, Wish::Split, Wish::Vector] {
        let bad = run(&hosts, &named(&file), &options, &request(&["sum:x"], place));
        one_error(bad, Kind::Data, "three");
        let bad = run(&hosts, &named(&file), &options, &request(&["sum:x"], place));
        one_error(bad, Kind::Data, "t.csv:4: column 'x'");
        let missing = run(&hosts, &named(&none), &options, &request(&["sum:x"], place));
        one_error(missing, Kind::NotFound, "none.csv");
        let odd = run(&hosts, &named(&file), &options, &request(&["sum:y"], place));
        one_error(odd, Kind::Usage, "y");
    }
    for (kernel, why) in [("digits", "look at the bytes"), ("rows", "look at no columns")] {
        let vector = run(&hosts, &named(&file), &options, &request(&[kernel], Wish::Vector));
        one_error(
            vector,
            Kind::Usage,
            &format!("the place 'vector' cannot be had: the kernels {why}"),
        );
    }
    // Where all have the data there is nothing to pull.
    let alone = stead::open(&named(&file)).expect("open");
    let e = stead::run(&alone, &request(&["rows"], Wish::Pull), None).expect_err("no choice");
    assert!(e.kind() == Kind::Usage && e.to_string().contains("have the data alike"), "{e}");
    stead::run(&alone, &request(&["rows"], Wish::Push), None).expect("it is where the data are");
    let all =
        run(&["s1", "s2"], &named(&file), &OpenOptions::default(), &request(&["rows"], Wish::Push));
    assert!(all.into_iter().all(|r| r.expect("run").plan.place.is_none()));
    // Ranks that wish for different things.
    let mixed = each(&hosts, |fabric, here| {
        let place = if fabric.rank() == 2 { Wish::Push } else { Wish::Pull };
        let dataset = open(fabric, here, &hosts, &named(&file), &OpenOptions::default())?;
        stead::run_on(&**fabric, &dataset, &request(&["rows"], place), None)
    });
    one_error(mixed, Kind::Usage, "ranks differ in the place");
}

#[test]
fn ranks_with_data_that_see_different_files_are_told() {
    let dir = tempfile::tempdir().expect("dir");
    let mut folders = Vec::new();
    for host in ["s1", "s2", "h1"] {
        let folder = dir.path().join(host);
        std::fs::create_dir(&folder).expect("folder");
        let rows = if host == "s2" { 30 } else { 20 };
        std::fs::write(folder.join("t.csv"), table(rows)).expect("write");
        folders.push(folder);
    }
    // Names are the same on all ranks: here each has its own, and says so.
    let all = each(&["s1", "s2", "h1"], |fabric, here| {
        let inputs = named(&folders[fabric.rank()].join("t.csv"));
        open(fabric, here, &["s1", "s2", "h1"], &inputs, &OpenOptions::default()).map(|_| ())
    });
    assert!(all.iter().all(|r| r.as_ref().is_err_and(|e| e.kind() == Kind::Usage)));
}
