//! Asks of compute ranks over storage ranks that are threads: the answers and errors of one rank, and an end for all.

use super::serve::serve_by;
use super::*;
use crate::spread::Here;
use crate::{Report, Request};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use stead_core::layout::{Layout, Part};
use stead_core::{Block, DType, Error, Kind, Needs, Value};
use stead_fabric::{Fabric, Local};
use stead_format::{FormatType, Header};
use stead_kernel::{Kernel, Step};

/// How a rank has ended.
#[derive(Debug)]
pub enum End<T> {
    Served(Result<Served>),
    Asked(T),
}

/// A job: who is on which host, those with an `s` being storage hosts, and how these serve.
pub struct Cluster {
    pub hosts: &'static [&'static str],
    pub few: u64,
    pub how: Serving,
    /// Ranks whose fabric goes when they are through, as if they had died.
    pub leave: &'static [usize],
}

impl Cluster {
    pub fn of(hosts: &'static [&'static str]) -> Cluster {
        Cluster { hosts, few: 0, how: Serving::default(), leave: &[] }
    }

    fn nodes(&self) -> Vec<usize> {
        let first = |h: &&str| self.hosts.iter().position(|o| o == h).unwrap();
        self.hosts.iter().map(first).collect()
    }

    /// What each rank does. Ranks stay until all are through, as those of MPI do, unless they `leave`: who waits for one of them
    /// waits for ever, which is a failure here.
    pub fn each<T: Send + 'static>(
        &self,
        work: impl Fn(Arc<dyn Fabric>, Roles, Here) -> T + Send + Sync + 'static,
    ) -> Vec<T> {
        let list: Vec<&str> = self.hosts.iter().copied().filter(|h| h.starts_with('s')).collect();
        let mut list: Vec<String> = list.into_iter().map(str::to_owned).collect();
        list.sort();
        list.dedup();
        let (list, work) = (list.join(","), Arc::new(work));
        let group = Local::over_nodes(&self.nodes(), Duration::from_secs(60));
        let (tell, told) = mpsc::channel();
        let (hosts, leave) = (self.hosts, self.leave);
        for (rank, fabric) in group.into_iter().enumerate() {
            let (tell, work, list) = (tell.clone(), work.clone(), list.clone());
            std::thread::spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                let here = Here { host: hosts[rank].to_owned(), folder: None };
                let roles = Roles::by_hosts(&*fabric, &here, &list).unwrap();
                let stays = (!leave.contains(&rank)).then(|| fabric.clone());
                let done = work(fabric, roles, here);
                let _ = tell.send((rank, done, stays));
            });
        }
        drop(tell);
        let within = Duration::from_secs(60);
        let next = |_| told.recv_timeout(within).expect("no rank is left waiting");
        let mut all: Vec<_> = (0..self.hosts.len()).map(next).collect();
        all.sort_by_key(|(rank, ..)| *rank);
        all.into_iter().map(|(_, done, _)| done).collect()
    }

    /// What each rank gets, of which compute ranks ask.
    pub fn ask<T: Send + 'static>(
        &self,
        ask: impl Fn(&Client) -> T + Send + Sync + 'static,
    ) -> Vec<End<T>> {
        let (few, how) = (self.few, self.how.clone());
        self.each(move |fabric, roles, here| match roles.of(fabric.rank()) {
            Role::Storage => End::Served(serve_by(fabric, &roles, &here, &how, few)),
            Role::Compute => {
                let client = Client::new(fabric, roles).unwrap();
                End::Asked(ask(&client))
            }
        })
    }

    /// The answers of all compute ranks to one job.
    fn run(&self, job: &Job) -> Vec<Result<Report>> {
        let job = job.clone();
        let all = self.ask(move |c| c.run(&job, &Cancel::new(), None));
        let answers = all.into_iter().filter_map(|e| match e {
            End::Asked(r) => Some(r),
            End::Served(s) => {
                s.unwrap();
                None
            }
        });
        answers.collect()
    }
}

const CLUSTERS: [&[&str]; 4] = [
    &["s", "c"],
    &["c", "s1", "s2", "c"],
    &["s1", "c1", "s2", "c2", "s1"],
    &["c", "c", "s1", "s2", "s3"],
];

fn named(path: &Path) -> Vec<String> {
    vec![path.to_string_lossy().into_owned()]
}

pub fn job(path: &Path, kernels: &[&str]) -> Job {
    Job {
        inputs: named(path),
        kernels: kernels.iter().map(|k| k.to_string()).collect(),
        threads: 2,
        chunk: 1000,
        ..Job::default()
    }
}

/// The report of one rank alone.
fn alone(job: &Job) -> Result<Report> {
    let request = Request {
        kernels: job.kernels.clone(),
        filter: job.filter.clone(),
        by: job.by.clone(),
        lenient: job.lenient,
        threads: 2,
        chunk: 1000,
        ..Request::default()
    };
    crate::run(&crate::spread::open(&job.inputs, &job.open)?, &request, None)
}

/// What a rank gets that has nobody to ask.
fn here(job: &Job) -> Result<Report> {
    super::alone(job, &operations(), &Cancel::new(), None)
}

fn text(r: &Report) -> String {
    serde_json::to_string(&Value::Map(r.results.clone())).unwrap()
}

/// The same answers as alone, by any storage ranks together and by the head.
fn check(job: &Job) {
    let want = alone(job).unwrap();
    assert_eq!(text(&here(job).unwrap()), text(&want), "{job:?}");
    for hosts in CLUSTERS {
        for few in [0, 1 << 30] {
            for r in (Cluster { few, ..Cluster::of(hosts) }).run(job) {
                let r = r.unwrap();
                assert_eq!(text(&r), text(&want), "{hosts:?} {few} {job:?}");
                assert_eq!(r.metrics.rows, want.metrics.rows);
                assert_eq!(
                    (r.plan.format, r.plan.bytes),
                    (want.plan.format.clone(), want.plan.bytes)
                );
                let storage = hosts.iter().filter(|h| h.starts_with('s')).count();
                assert_eq!(r.plan.ranks, if few == 0 { storage } else { 1 });
            }
        }
    }
}

pub fn write(dir: &Path, name: &str, bytes: impl AsRef<[u8]>) -> PathBuf {
    let path = dir.join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Rows with quotes, some of them around newlines.
pub fn table(rows: usize) -> String {
    let row = |i: usize| match i % 5 {
        0 => format!("{i},{}.25,g{},\"two\nlines, {i}\"\n", i * 37 % 101, i % 3),
        1 => format!("{i},NA,g{},\"he said \"\"{i}\"\"\"\n", i % 3),
        _ => format!("{i},{i}e20,g{},plain {i}\n", i % 3),
    };
    std::iter::once("id,x,group,note\n".to_owned()).chain((0..rows).map(row)).collect()
}

fn npy(shape: &str, values: usize) -> Vec<u8> {
    let mut out = b"\x93NUMPY\x01\x00\x76\x00".to_vec();
    let dict = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({shape}), }}");
    out.extend_from_slice(format!("{dict:<117}\n").as_bytes());
    (0..values).for_each(|i| out.extend_from_slice(&((i * 37 % 101) as f64 / 7.0).to_le_bytes()));
    out
}

#[test]
fn tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t.csv", table(300));
    let all = job(
        &path,
        &[
            "lines",
            "rows",
            "count:x",
            "sum:x",
            "mean:x",
            "var:x",
            "std:x",
            "min:x",
            "max:x",
            "hist:id,bins=7",
            "hist:x",
            "quantile:x,q=0.1;0.5;0.99",
            "digits",
            "entropy",
            "gram:id,x",
            "grep:'lines'",
            "grep:'said|1\\d',lines,max=9",
            "kmeans:id,k=3,seed=3",
            "mean:*",
        ],
    );
    check(&Job { filter: Some("x > 3 and group != 'g2'".into()), ..all.clone() });
    check(&all);
    let grouped = ["rows", "mean:x", "std:x", "quantile:x,q=0.5", "hist:id,bins=3"];
    check(&Job { by: vec!["group".into()], ..job(&path, &grouped) });
    // What is known of the format goes along.
    let open = OpenOptions {
        format: Some(FormatType::Csv),
        header: Header::No,
        names: Some(["a", "b", "c", "d"].map(str::to_owned).to_vec()),
        missing: Some(vec!["g1".into(), "NA".into(), "".into()]),
        ..OpenOptions::default()
    };
    check(&Job { open, ..job(&path, &["rows", "lines"]) });
    // Bad records fail or are counted.
    let bad = write(dir.path(), "bad.csv", format!("{}one,more\n1,2,g,x\n", table(90)));
    check(&Job { lenient: true, ..job(&bad, &["rows", "sum:id"]) });
    for hosts in CLUSTERS {
        for r in Cluster::of(hosts).run(&job(&bad, &["rows", "sum:id"])) {
            let want = alone(&job(&bad, &["rows", "sum:id"])).unwrap_err();
            let e = r.unwrap_err();
            assert_eq!((e.kind(), e.to_string()), (Kind::Data, want.to_string()));
        }
    }
}

#[test]
fn text_arrays_and_several_files() {
    let dir = tempfile::tempdir().unwrap();
    let lines: String = (0..900).map(|i| format!("line {i}\r\n")).collect();
    let path = write(dir.path(), "t.log", lines);
    check(&job(&path, &["lines", "rows", "entropy", "grep:'7',lines", "digits"]));
    let path = write(dir.path(), "m.npy", npy("200, 3", 600));
    let kernels = ["rows", "mean:1", "gram:*", "gram:*,exact", "kmeans:k=3,seed=1", "std:*"];
    check(&job(&path, &kernels));
    for i in 0..5 {
        write(dir.path(), &format!("part{i}.csv"), table(20 * i + 1));
    }
    let glob = dir.path().join("part*.csv");
    check(&job(&glob, &["rows", "sum:x", "quantile:id"]));
    let records = OpenOptions { record_length: Some(7), ..OpenOptions::default() };
    let path = write(dir.path(), "r", (0..700u32).map(|i| (i * 7 % 251) as u8).collect::<Vec<_>>());
    check(&Job { open: records, ..job(&path, &["rows", "entropy"]) });
}

#[test]
fn pictures_are_written_where_they_were_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "c.npy", npy("12, 5, 7", 420));
    let kernel = |out: &Path| format!("render:width=24,height=24,out={}", out.display());
    let want = dir.path().join("want.png");
    let mut one = job(&path, &["hist:value,bins=5"]);
    one.kernels.push(kernel(&want));
    let report = alone(&one).unwrap();
    let want = std::fs::read(&want).unwrap();
    for few in [0, 1 << 30] {
        let (path, folder) = (path.clone(), dir.path().to_path_buf());
        let cluster = Cluster { few, ..Cluster::of(&["c", "s1", "c", "s2"]) };
        let all = cluster.ask(move |c| {
            let out = folder.join(format!("{c:?}{few}.png").replace(' ', ""));
            let mut job = job(&path, &["hist:value,bins=5"]);
            job.kernels.push(kernel(&out));
            (c.run(&job, &Cancel::new(), None).unwrap(), std::fs::read(&out).unwrap())
        });
        for (r, picture) in all.into_iter().filter_map(|e| match e {
            End::Asked(done) => Some(done),
            End::Served(_) => None,
        }) {
            assert!(picture == want);
            assert_eq!(r.results[0], report.results[0]);
        }
    }
    // What is not sent elsewhere is refused before anything runs, and what cannot be written here before anything is asked for.
    for (kernel, says) in [
        ("render:width=9,height=9", "its name would be one of another node"),
        ("normalize:value,out=OUT.npy", "is not sent to another node"),
        ("grep:'.',out=OUT.txt", "is not sent to another node"),
        ("render:width=9,height=9,out=/nowhere/at/all.png", "no such file or directory"),
    ] {
        let kernel = kernel.replace("OUT", &dir.path().join("o").to_string_lossy());
        let of = if kernel.starts_with("grep") {
            write(dir.path(), "t.csv", table(9))
        } else {
            path.clone()
        };
        for r in Cluster::of(&["c", "s1", "s2"]).run(&job(&of, &[&kernel])) {
            let e = r.unwrap_err();
            assert!(e.message().contains(says) && e.place().rank.is_none(), "{e}");
        }
    }
    assert!(!dir.path().join("o.npy").exists() && !dir.path().join("o.txt").exists());
    // The data stay, by whatever name, and so does the first of two pictures.
    let other = dir.path().join(".").join("c.npy");
    let twice = [kernel(&dir.path().join("p.png")), kernel(&dir.path().join("./p.png"))];
    for (kernels, says) in [
        (vec![kernel(&other)], "would replace the data it is made of"),
        (twice.to_vec(), "two outputs have this name"),
    ] {
        for r in Cluster::of(&["c", "s1", "s2"]).run(&Job { kernels, ..job(&path, &[]) }) {
            let e = r.unwrap_err();
            assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
        }
    }
    assert!(!dir.path().join("p.png").exists());
}

#[test]
fn views_show_what_they_say() {
    let dir = tempfile::tempdir().unwrap();
    let values: Vec<f64> = (0..4000).map(|i| f64::from(i * 37 % 1013) / 8.0).collect();
    let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
    let path = write(dir.path(), "v.bin", bytes);
    let raw = OpenOptions {
        format: Some(FormatType::Raw),
        dtype: Some(DType::F64),
        ..OpenOptions::default()
    };
    // The second and the last of five values, from the fourth tile on.
    let runs = vec![(8, 8), (32, 8)];
    for (skip, count) in [(48, 1000), (0, 1599), (16, 0), (8, 1)] {
        let view = View::new(0, 40, runs.clone(), skip, 8 * count).unwrap();
        let seen = (0..values.len()).filter(|i| i % 5 == 1 || i % 5 == 4);
        let seen: Vec<f64> =
            seen.map(|i| values[i]).skip(skip as usize / 8).take(count as usize).collect();
        let mine = write(
            dir.path(),
            "seen.bin",
            seen.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<_>>(),
        );
        let mut same = Job {
            open: raw.clone(),
            ..job(&mine, &["rows", "sum:value", "std:value", "max:value", "quantile:value"])
        };
        if count == 0 {
            same.open.shape = Some(vec![0]);
        }
        let want = alone(&same).unwrap();
        let job = Job {
            inputs: named(&path),
            view: Some(view.clone()),
            file_bytes: Some(8 * 4000),
            ..same.clone()
        };
        assert_eq!(text(&here(&job).unwrap()), text(&want), "{skip} {count}");
        for hosts in CLUSTERS {
            for few in [0, 1 << 30] {
                for r in (Cluster { few, ..Cluster::of(hosts) }).run(&job) {
                    let r = r.unwrap();
                    assert_eq!(text(&r), text(&want), "{hosts:?} {skip} {count} {few}");
                    assert_eq!(r.plan.bytes, 8 * count);
                }
            }
        }
    }
    // Who asks has seen another file.
    let other = Job {
        view: Some(View::stretch(0, 800).unwrap()),
        file_bytes: Some(8 * 3999),
        open: raw.clone(),
        ..job(&path, &["rows"])
    };
    assert_eq!(here(&other).unwrap_err().kind(), Kind::Changed);
    for few in [0, 1 << 30] {
        for r in (Cluster { few, ..Cluster::of(&["s1", "c", "s2"]) }).run(&other) {
            let e = r.unwrap_err();
            assert!(e.message().contains("32000 bytes here, and 31992"), "{e}");
            assert!(e.kind() == Kind::Changed && e.place().path.is_some(), "{e}");
        }
    }
    let beyond = View::new(0, 40, runs, 0, 8 * 1601).unwrap();
    let both = Job {
        inputs: [named(&path), named(&dir.path().join("seen.bin"))].concat(),
        ..Job::default()
    };
    for (job, says) in [
        (
            Job { view: Some(beyond), open: raw.clone(), ..job(&path, &["rows"]) },
            "a view reaches to byte",
        ),
        (
            Job { view: Some(View::stretch(0, 8).unwrap()), kernels: vec!["rows".into()], ..both },
            "a view of 2 files",
        ),
    ] {
        let e = here(&job).unwrap_err();
        assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
        for few in [0, 1 << 30] {
            for r in (Cluster { few, ..Cluster::of(&["s1", "c", "s2"]) }).run(&job) {
                let e = r.unwrap_err();
                assert!(e.kind() == Kind::Usage && e.message().contains(says), "{e}");
            }
        }
    }
}

#[test]
fn files_over_nodes_are_read_where_they_lie_and_seen_through_views() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = table(400).into_bytes();
    let whole = write(dir.path(), "w.csv", &bytes);
    let part = |(i, node): (usize, &&str)| {
        Part::new(*node, dir.path().join(format!("part{i}")).to_string_lossy())
    };
    let parts = ["s1", "s2", "s1"].iter().enumerate().map(part).collect();
    let layout = Layout::even("t.csv", bytes.len() as u64, 99, parts).unwrap();
    let mut files = vec![Vec::new(); 3];
    for p in layout.pieces(0..layout.length()) {
        files[p.part].extend_from_slice(&bytes[p.offset as usize..(p.offset + p.len) as usize]);
    }
    for (i, file) in files.iter().enumerate() {
        write(dir.path(), &format!("part{i}"), file);
    }
    let layout = write(dir.path(), "t.csv.stead-layout.toml", layout.to_string());
    let kernels = ["rows", "mean:x", "lines", "grep:'lines'"];
    let want = alone(&job(&whole, &kernels)).unwrap();
    let cluster = Cluster { few: 1 << 30, ..Cluster::of(&["c", "s1", "s2", "s2"]) };
    for r in cluster.run(&job(&layout, &kernels)) {
        let r = r.unwrap();
        assert_eq!((text(&r), r.plan.ranks), (text(&want), 3));
    }
    let view = Some(View::new(3, 50, vec![(0, 20), (30, 9)], 7, 4000).unwrap());
    let seen = |path: &Path| Job {
        view: view.clone(),
        open: OpenOptions { format: Some(FormatType::Lines), ..OpenOptions::default() },
        ..job(path, &["lines", "entropy"])
    };
    let answers = |path: &Path| Cluster::of(&["c", "s1", "s2"]).run(&seen(path)).remove(0).unwrap();
    assert_eq!(text(&answers(&layout)), text(&answers(&whole)));
    // Where a node that has parts has no rank.
    for r in Cluster::of(&["c", "s1"]).run(&job(&layout, &["rows"])) {
        let e = r.unwrap_err();
        assert!(e.kind() == Kind::NotFound && e.message().contains("node s2"), "{e}");
    }
}

#[test]
fn what_a_node_has_of_a_view_is_computed_on_there() {
    let dir = tempfile::tempdir().unwrap();
    let bytes = table(200_000).into_bytes();
    let whole = write(dir.path(), "w.csv", &bytes);
    let half = bytes.len().div_ceil(2);
    let parts = [("s1", &bytes[..half]), ("s2", &bytes[half..])].map(|(node, bytes)| {
        let path = write(dir.path(), node, bytes);
        Part::new(node, path.to_string_lossy())
    });
    let layout = Layout::even("t.csv", bytes.len() as u64, half as u64, parts.into()).unwrap();
    let layout = write(dir.path(), "t.csv.stead-layout.toml", layout.to_string());
    let seen = |path: &Path| Job {
        view: Some(View::new(3, 50, vec![(0, 20), (30, 9)], 7, 3_600_000).unwrap()),
        open: OpenOptions { format: Some(FormatType::Lines), ..OpenOptions::default() },
        chunk: 64 << 10,
        ..job(path, &["lines", "entropy", "grep:'lines'"])
    };
    let answers = |path: &Path| Cluster::of(&["c", "s1", "s2"]).run(&seen(path)).remove(0).unwrap();
    let near = answers(&layout);
    assert_eq!(text(&near), text(&answers(&whole)));
    // The beginning of the file, the end of a line, and what is read with it.
    assert!(near.metrics.bytes_fetched < 600_000, "{:?}", near.metrics);
    assert!(near.metrics.ranks.iter().all(|r| r.bytes_read > 1_000_000), "{:?}", near.metrics);
}

/// Number of values above a limit, by the name of an operation.
struct Above(usize, f64);

impl Kernel for Above {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { numbers: vec![self.0], ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, state: &mut u64, block: &Block<'_>) -> Result<()> {
        *state += block.numbers(self.0).iter().filter(|x| **x > self.1).count() as u64;
        Ok(())
    }

    fn merge(&self, state: &mut u64, other: u64) -> Result<()> {
        *state += other;
        Ok(())
    }

    fn finish(&self, state: u64) -> Result<Step> {
        Ok(Step::Done(Value::Int(state)))
    }
}

fn operations() -> Serving {
    let make = |name: &str| {
        if name == "odd" {
            return Ok(Own::new("even", |_| Ok(Above(0, 0.0))));
        }
        assert!(name != "panics", "as it was told to");
        let limit = name.strip_prefix("above ").and_then(|n| n.parse::<f64>().ok());
        let limit = limit.ok_or_else(|| Error::usage(format!("nobody has written '{name}'")))?;
        Ok(Own::new(name, move |c| Ok(Above(c.schema.column("id")?, limit))))
    };
    Serving { operations: Some(Arc::new(make)), ..Serving::default() }
}

#[test]
fn operations_of_the_program_are_known_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t.csv", table(100));
    let ask = |name: &str| Job { operations: vec![name.into()], ..job(&path, &["rows"]) };
    assert_eq!(here(&ask("above 49")).unwrap().result("above 49"), Some(&Value::Int(50)));
    for few in [0, 1 << 30] {
        let knows = Cluster { few, how: operations(), ..Cluster::of(&["c", "s1", "s2"]) };
        for r in knows.run(&ask("above 49")) {
            assert_eq!(r.unwrap().result("above 49"), Some(&Value::Int(50)));
        }
        for (name, says) in [
            ("below", "nobody has written 'below'"),
            ("odd", "makes a kernel that is called 'even'"),
            ("panics", "panicked"),
        ] {
            let e = here(&ask(name)).unwrap_err();
            assert!(e.message().contains(says) && e.place().rank.is_none(), "{e}");
            for r in knows.run(&ask(name)) {
                let e = r.unwrap_err();
                assert!(e.message().contains(says), "{e}");
                assert_eq!((e.place().rank, e.place().host.as_deref()), (Some(1), Some("s1")));
            }
        }
        let none = Cluster { few, ..Cluster::of(&["c", "s1", "s2"]) };
        for r in none.run(&ask("above 49")) {
            let e = r.unwrap_err();
            assert!(e.message().contains("no operation is called 'above 49' here"), "{e}");
            assert!(e.kind() == Kind::Usage && e.hint().is_some());
        }
    }
}

#[test]
fn many_asks_of_many_threads_are_all_answered() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t.csv", table(50));
    for few in [0, 1 << 30] {
        let path = path.clone();
        let cluster = Cluster { few, ..Cluster::of(&["c", "s1", "c", "s2"]) };
        let all = cluster.ask(move |client| {
            // More than may be under way.
            let ask = |i: usize| {
                let job = Job { filter: Some(format!("id < {i}")), ..job(&path, &["rows"]) };
                let r = client.run(&job, &Cancel::new(), None).unwrap();
                assert_eq!(r.result("rows"), Some(&Value::Int(i as u64)));
            };
            std::thread::scope(|scope| {
                let ask = &ask;
                let threads: Vec<_> = (0..40).map(|i| scope.spawn(move || ask(i))).collect();
                threads.into_iter().for_each(|t| t.join().unwrap());
            });
        });
        for end in all {
            if let End::Served(served) = end {
                let served = served.unwrap();
                assert_eq!(served.failed, 0);
                let head = if few == 0 { (80, 0) } else { (80, 80) };
                let other = if few == 0 { (80, 0) } else { (0, 0) };
                assert!([head, other].contains(&(served.runs, served.alone)), "{served:?}");
            }
        }
    }
}

#[test]
fn what_one_cannot_have_is_no_matter_for_others() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(dir.path(), "t.csv", table(50));
    let missing = dir.path().join("none.csv");
    for few in [0, 1 << 30] {
        let (path, missing) = (path.clone(), missing.clone());
        let cluster = Cluster { few, ..Cluster::of(&["c", "s1", "s2"]) };
        let mut all = cluster.ask(move |c| {
            let apart = OpenOptions { storage_hosts: Some("s1".into()), ..OpenOptions::default() };
            let good = || c.run(&job(&path, &["rows"]), &Cancel::new(), None).unwrap();
            for (job, kind, says) in [
                (job(&missing, &["rows"]), Kind::NotFound, "no such file"),
                (job(&path, &["mean:nothing"]), Kind::Usage, "nothing"),
                (job(&path, &["frobnicate"]), Kind::Usage, "frobnicate"),
                (job(&path, &[]), Kind::Usage, "no kernel is asked for"),
                (Job { inputs: vec![], ..job(&path, &["rows"]) }, Kind::Usage, "no dataset"),
                (Job { filter: Some("x >".into()), ..job(&path, &["rows"]) }, Kind::Usage, ""),
                (Job { memory: 1000, ..job(&path, &["rows"]) }, Kind::Usage, "too small"),
                (Job { open: apart.clone(), ..job(&path, &["rows"]) }, Kind::Usage, "run together"),
            ] {
                let e = c.run(&job, &Cancel::new(), None).unwrap_err();
                assert!(e.kind() == kind && e.message().contains(says), "{e}");
                if kind == Kind::NotFound && few == 0 {
                    assert!(e.to_string().contains("none.csv"), "{e}");
                }
                assert_eq!(good().result("rows"), Some(&Value::Int(50)));
            }
        });
        assert!(matches!(all.remove(1), End::Served(Ok(Served { failed: 7, .. }))));
    }
}
