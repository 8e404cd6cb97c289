//! Ranks that have data and ranks that ask for them: the same bits wherever it is computed, and one error of all ranks.

#![allow(clippy::expect_used, clippy::panic)]

mod common;

use common::cases::{self, Case};
use common::{each, named, output, put, table, text};
use std::sync::Arc;
use stead::fabric::Fabric;
use stead::kernels::{Block, Kernel, Needs, Own, Step};
use stead::plan::Wish;
use stead::ranks::{Here, Roles, open_apart, open_as};
use stead::{Cancel, Dataset, Kind, OpenOptions, Placing, Report, Request, Result, Value};

fn request(kernels: &[&str], place: Wish) -> Request {
    Request { threads: 2, chunk: 300, place, ..common::request(kernels) }
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

const JOBS: [&[&str]; 4] = [
    &["s1", "h1"],
    &["h1", "s1", "h2"],
    &["h1", "h1", "s1", "s2"],
    &["s2", "h1", "s1", "s1", "h2"],
];

fn placing(report: &Report) -> &Placing {
    report.plan.place.as_ref().expect("a place")
}

/// The answers of one rank over the files, wherever ranks compute.
fn check(case: &Case) {
    let dir = tempfile::tempdir().expect("dir");
    let inputs = case.write(dir.path());
    let alone = case.open(&inputs);
    // What is made of records stays where these are.
    for (n, ask) in case.within(dir.path()).into_iter().filter(|ask| !ask.maps).enumerate() {
        let written = || ask.output.as_ref().map(|path| output(path, false));
        let wanted = stead::run(&alone, &ask.request, None).expect("alone");
        let picture = written();
        for hosts in JOBS {
            for place in [Wish::Push, Wish::Pull, Wish::Split, Wish::Vector, Wish::Auto] {
                if place == Wish::Split && case.compressed() || place == Wish::Auto && n > 0 {
                    continue;
                }
                let said = format!("{:?} {hosts:?} {place:?} {:?}", case.files[0].0, ask.request);
                let asked = Request { place, ..ask.request.clone() };
                let all = run(hosts, &inputs, &case.options, &asked);
                if place == Wish::Vector && !ask.columns && all.iter().any(Result::is_err) {
                    one_error(all, Kind::Usage, "the place 'vector' cannot be had");
                    continue;
                }
                // Whoever gets parts of a file gets them in the order of ranks.
                if ask.ordered && place != Wish::Pull && all.iter().any(Result::is_err) {
                    one_error(all, Kind::Usage, "in their order");
                    continue;
                }
                for report in all.into_iter().map(|r| r.expect("run")) {
                    let (a, b) = (text(&report.results), text(&wanted.results));
                    assert!(a == b, "{said}: {a} in place of {b}");
                    assert_eq!(report.metrics.rows, wanted.metrics.rows, "{said}");
                    placed((hosts, case), place, &report, &wanted, &said);
                }
                assert!(written() == picture, "{said}");
            }
        }
    }
}

/// What a report says of the place, beside that of one node.
fn placed(job: (&[&str], &Case), wish: Wish, report: &Report, alone: &Report, said: &str) {
    let (hosts, case) = job;
    let p = placing(report);
    let asking = hosts.iter().filter(|h| h.starts_with('h')).count();
    assert_eq!(p.compute_ranks, asking);
    let left = p.left_out.iter().any(|l| l.place == "split");
    assert_eq!(p.alternatives.len() + p.left_out.len(), 4, "{said}");
    assert!(left || !case.compressed(), "{said}");
    assert!(wish == Wish::Auto || p.wish == p.place, "{said}");
    let share = p.took.asked_share;
    let ranks = report.metrics.ranks.iter().zip(hosts);
    let of = |h: char| ranks.clone().filter(move |(_, n)| n.starts_with(h));
    match p.place.as_str() {
        "push" => assert!(share == 0.0 && of('h').all(|(r, _)| r.bytes_read == 0), "{said}"),
        "pull" => {
            assert!(of('s').all(|(r, _)| r.bytes_fetched == 0), "{said}");
            // All of it in one pass.
            let bytes = report.plan.bytes;
            if bytes > 0 && (alone.metrics.passes, alone.metrics.bytes_read) == (1, bytes) {
                assert_eq!(share, 1.0, "{said}");
                assert!(report.metrics.bytes_fetched >= bytes, "{said}");
            }
        }
        "vector" => {
            assert!(of('h').all(|(r, _)| r.bytes_read == 0), "{said}");
            assert!(report.metrics.rows == Some(0) || report.metrics.bytes_fetched > 0, "{said}");
        }
        "split" => assert!((0.0..=1.0).contains(&share), "{said}"),
        other => panic!("{other}"),
    }
}

fn check_all(cases: Vec<Case>) {
    cases.iter().for_each(check);
}

#[test]
fn tables_give_the_same_bits() {
    check_all(cases::tables());
}

#[test]
fn lines_give_the_same_bits() {
    check_all(cases::lines());
}

#[test]
fn arrays_give_the_same_bits() {
    check_all(cases::arrays());
}

#[test]
fn pictures_are_the_same_bytes() {
    check_all(cases::volumes());
}

#[test]
fn records_and_particles_give_the_same_bits() {
    check_all(cases::records());
}

#[test]
fn compressed_files_give_the_same_bits() {
    check_all(cases::compressed());
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
    let bytes = table(500);
    let file = common::write(dir.path(), "t.csv", &bytes);
    let path = put(dir.path(), "t.csv", bytes.as_bytes(), 777, &["s1", "s2", "s1"]);
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
    // The layout says who has the data.
    let by_layout = |hosts: &[&str], said: &str, inputs: &[String], place| {
        let options = OpenOptions { storage_hosts: Some(said.into()), ..OpenOptions::default() };
        each(hosts, |fabric, here| {
            let dataset = open_as(here, fabric, inputs, &options, &Cancel::new())?;
            stead::run_on(&**fabric, &dataset, &request(&["mean:x", "digits"], place), None)
        })
    };
    let wanted =
        stead::run(&alone, &request(&["mean:x", "digits"], Wish::Auto), None).expect("run");
    let of = format!("layout:{}", path.display());
    for (hosts, said, asking) in [
        (&["h1", "s1", "s2"][..], "layout", 1),
        (&["s2", "h1", "h2", "s1", "s1"][..], "layout", 2),
        (&["h1", "s1", "s2", "h1"][..], of.as_str(), 2),
    ] {
        for place in [Wish::Push, Wish::Pull, Wish::Auto] {
            for report in by_layout(hosts, said, &named(&path), place) {
                let report = report.expect("run");
                assert_eq!(text(&report.results), text(&wanted.results));
                assert_eq!(placing(&report).compute_ranks, asking);
            }
        }
    }
    // Where no rank is elsewhere, all have the data.
    for report in by_layout(&["s1", "s2"], "layout", &named(&path), Wish::Push) {
        assert!(report.expect("run").plan.place.is_none());
    }
    let wrong = |hosts: &[&str], inputs: &[String], kind, says: &str| {
        one_error(by_layout(hosts, "layout", inputs, Wish::Auto), kind, says);
    };
    wrong(
        &["h1", "s1"],
        &named(&path),
        Kind::NotFound,
        "node s2 has parts of the layout, and no rank",
    );
    wrong(&["h1", "h2"], &named(&path), Kind::Usage, "no rank is on a node of the layout");
    wrong(&["h1", "s1", "s2"], &named(&file), Kind::Usage, "t.csv' is none");
    let gone = named(&dir.path().join("u.stead-layout.toml"));
    wrong(&["h1", "s1", "s2"], &gone, Kind::NotFound, "u.stead-layout.toml");
}

#[test]
fn files_of_each_rank_on_storage_hosts() {
    let dir = tempfile::tempdir().expect("dir");
    let values = |r: u32| (0..900 + r).map(move |i| f64::from(i * 7 % 101 + r) / 3.0);
    let mut whole = Vec::new();
    for r in 0..5 {
        let folder = dir.path().join(["s1", "s2"][r as usize % 2]);
        std::fs::create_dir_all(&folder).expect("folder");
        let bytes: Vec<u8> = values(r).flat_map(f64::to_le_bytes).collect();
        std::fs::write(folder.join(format!("out.{r}.bin")), &bytes).expect("write");
        whole.extend(bytes);
    }
    let file = dir.path().join("whole.bin");
    std::fs::write(&file, whole).expect("write");
    let options = OpenOptions { dtype: Some(stead::DType::F64), ..OpenOptions::default() };
    let kernels = ["rows", "sum:value", "quantile:value"];
    let alone = stead::open_with(&named(&file), &options).expect("open");
    let wanted = stead::run(&alone, &request(&kernels, Wish::Auto), None).expect("run");
    let pattern = ["out.%r.bin".to_owned()];
    for hosts in [&["h1", "s2", "s1"][..], &["s1", "h1", "s2", "h2", "s1"]] {
        for place in [Wish::Push, Wish::Pull, Wish::Split, Wish::Auto] {
            let all = each(hosts, |fabric, here| {
                let here = Here { folder: Some(dir.path().join(&here.host)), ..here.clone() };
                let dataset = open(fabric, &here, hosts, &pattern, &options)?;
                stead::run_on(&**fabric, &dataset, &request(&kernels, place), None)
            });
            for report in all.into_iter().map(|r| r.expect("run")) {
                assert_eq!(text(&report.results), text(&wanted.results), "{hosts:?} {place:?}");
                assert_eq!(report.plan.files, 5);
            }
        }
    }
}

#[test]
fn what_is_written_of_each_record_stays_with_those_that_have_the_data() {
    let dir = tempfile::tempdir().expect("dir");
    let (bytes, file) = (table(400), dir.path().join("t.csv"));
    std::fs::write(&file, &bytes).expect("write");
    // Over two nodes, too.
    let spread = put(dir.path(), "u.csv", bytes.as_bytes(), 1000, &["s1", "s2"]);
    let out = |name: &str| dir.path().join(name);
    let asked = |place| {
        let to = |kernel: &str, name: &str| format!("{kernel},out={}", out(name).display());
        request(&[&to("normalize:x", "n.csv"), &to("grep:'two|1\\d'", "g.txt"), "mean:x"], place)
    };
    let alone = stead::open(&named(&file)).expect("open");
    let wanted = stead::run(&alone, &asked(Wish::Auto), None).expect("alone");
    let written = ["n.csv", "g.txt"].map(|n| {
        let bytes = std::fs::read(out(n)).expect("output");
        std::fs::remove_file(out(n)).expect("remove");
        bytes
    });
    assert!(written.iter().all(|w| w.len() > 1000));
    let both = ["h1", "s1", "h2", "s2", "s1"];
    for (hosts, inputs) in [(&both[..], &spread), (&both[..], &file), (&["s1", "h1"][..], &file)] {
        for place in [Wish::Auto, Wish::Push] {
            for report in run(hosts, &named(inputs), &OpenOptions::default(), &asked(place)) {
                let report = report.expect("run");
                assert_eq!(report.result("mean:x"), wanted.result("mean:x"));
                assert_eq!(placing(&report).place, "push");
                let left: Vec<&str> =
                    placing(&report).left_out.iter().map(|l| l.place.as_str()).collect();
                assert_eq!(left, ["pull", "vector", "split"]);
            }
            for (name, wanted) in ["n.csv", "g.txt"].iter().zip(&written) {
                let parts = out(&format!("{name}.stead-layout.toml"));
                let parts = stead::layout::read(&parts).expect("layout");
                assert!(output(&out(name), true) == *wanted, "{hosts:?} {name}");
                assert!(parts.parts().iter().all(|p| p.node.starts_with('s')));
            }
        }
        for place in [Wish::Pull, Wish::Vector, Wish::Split] {
            let all = run(hosts, &named(inputs), &OpenOptions::default(), &asked(place));
            for e in all.into_iter().map(|r| r.expect_err("an error")) {
                let says = "stays with those that have the data";
                assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
                assert_eq!(e.hint(), Some("take --place auto or push"));
            }
        }
    }
}

fn one_error(all: Vec<Result<Report>>, kind: Kind, says: &str) {
    let e = common::error(all);
    assert!(e.kind() == kind && e.to_string().contains(says), "{e}");
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

#[test]
fn files_of_each_process_lie_with_their_hosts() {
    let dir = tempfile::tempdir().expect("dir");
    let bytes: Vec<u8> =
        (0..4000u32).flat_map(|i| (f64::from(i * 7 % 1001) / 3.0).to_le_bytes()).collect();
    let options = OpenOptions { dtype: Some(stead::DType::F64), ..OpenOptions::default() };
    let mut inputs = Vec::new();
    for (r, w) in [0, 800, 800, 8000, 8008, 20_000, 32_000].windows(2).enumerate() {
        let name = format!("out.{r}.bin");
        let folder = dir.path().join(["s1", "s2"][r % 2]);
        std::fs::create_dir_all(&folder).expect("folder");
        common::write(&folder, &name, &bytes[w[0]..w[1]]);
        let whole = common::write(dir.path(), &name, &bytes[w[0]..w[1]]);
        inputs.push(whole.to_string_lossy().into_owned());
    }
    // What a rank that asks sees by this name is nobody's.
    std::fs::create_dir(dir.path().join("h1")).expect("folder");
    common::write(&dir.path().join("h1"), "out.6.bin", [0; 80]);
    let asked = |place| request(&["rows", "sum:value", "quantile:value", "gram:*"], place);
    let alone = stead::open_with(&inputs, &options).expect("open");
    let wanted = stead::run(&alone, &asked(Wish::Auto), None).expect("run");
    for hosts in [&["h1", "s1", "s2"][..], &["s2", "h1", "s1", "s1", "h2"]] {
        for place in [Wish::Push, Wish::Pull, Wish::Split] {
            let all = each(hosts, |fabric, here| {
                let here = Here { folder: Some(dir.path().join(&here.host)), ..here.clone() };
                let inputs = ["out.%r.bin".to_owned()];
                let dataset = open(fabric, &here, hosts, &inputs, &options)?;
                stead::run_on(&**fabric, &dataset, &asked(place), None)
            });
            for report in all {
                let report = report.expect("run");
                assert_eq!(text(&report.results), text(&wanted.results), "{hosts:?} {place:?}");
                assert_eq!((report.plan.files, report.metrics.rows), (6, Some(4000)));
            }
        }
    }
}

/// Cuts a file off when it sees its first block.
struct Cuts(std::path::PathBuf);

impl Kernel for Cuts {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { numbers: vec![0], ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, _: &mut u64, _: &Block<'_>) -> Result<()> {
        let file = std::fs::File::options().write(true).open(&self.0).expect("open");
        file.set_len(8000).expect("cut");
        Ok(())
    }

    fn merge(&self, _: &mut u64, _: u64) -> Result<()> {
        Ok(())
    }

    fn finish(&self, _: u64) -> Result<Step> {
        Ok(Step::Done(Value::Null))
    }
}

#[test]
fn a_part_that_is_cut_off_while_others_get_its_bytes_has_changed() {
    let dir = tempfile::tempdir().expect("dir");
    let options = OpenOptions { dtype: Some(stead::DType::F64), ..OpenOptions::default() };
    for place in [Wish::Pull, Wish::Push, Wish::Split] {
        let layout = named(&put(dir.path(), "m.raw", &vec![0; 8 << 20], 65_536, &["s1", "s2"]));
        let part = std::path::Path::new(&layout[0]).with_file_name("part1");
        let hosts = ["s1", "h1", "s2"];
        let all = each(&hosts, |fabric, here| {
            let dataset = open(fabric, here, &hosts, &layout, &options)?;
            let part = part.clone();
            let own = vec![Own::new("cuts", move |_| Ok(Cuts(part.clone())))];
            let asked = Request { own, chunk: 1 << 14, ..request(&["sum:value"], place) };
            stead::run_on(&**fabric, &dataset, &asked, None)
        });
        let e = common::error(all);
        assert_eq!(e.kind(), Kind::Changed, "{place:?}: {e}");
        assert!(e.place().rank == Some(2) && e.place().host.is_some(), "{e}");
        assert!(e.to_string().contains("part1"), "{e}");
    }
}
