//! Runs on several ranks: the answers, outputs and errors of one, and an end for all whatever happens to one.

#![allow(clippy::expect_used, clippy::panic)]

mod common;

use common::{npy, open, request, wave, write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;
use stead::fabric::{Fabric, Local, Rounds};
use stead::kernels::{Block, Kernel, Needs, Own, Step};
use stead::{
    Cancel, Dataset, Error, Kind, Observer, OpenOptions, Report, Request, Result, Snapshot, Value,
};

/// Rows with quotes, some of them around newlines.
fn table(rows: usize) -> String {
    let row = |i: usize| match i % 5 {
        0 => format!("{i},\"two\nlines, {i}\"\n"),
        1 => format!("{i},\"he said \"\"{i}\"\"\"\n"),
        _ => format!("{i},plain {i}\n"),
    };
    std::iter::once("x,note\n".to_owned()).chain((0..rows).map(row)).collect()
}

/// What each rank of a group gets.
fn each(ranks: usize, work: impl Fn(&Local) -> Result<Report> + Sync) -> Vec<Result<Report>> {
    common::each_of(ranks, work)
}

/// As [`each`], with ranks that stay after they have left the run, as those of MPI do: who waits for one of them waits for
/// ever, which is a failure here.
fn each_that_stays<T: Send + 'static>(
    ranks: usize,
    work: impl Fn(&Local) -> T + Send + Sync + 'static,
) -> Vec<T> {
    let group = Arc::new((Local::group(ranks), work));
    let (tell, told) = mpsc::channel();
    for rank in 0..ranks {
        let (group, tell) = (group.clone(), tell.clone());
        // Not in a scope, which would wait for those that do not come back.
        std::thread::spawn(move || tell.send((rank, (group.1)(&group.0[rank]))));
    }
    drop(tell);
    let within = Duration::from_secs(120);
    let mut all: Vec<(usize, T)> =
        (0..ranks).map(|_| told.recv_timeout(within).expect("no rank is left waiting")).collect();
    all.sort_by_key(|(rank, _)| *rank);
    all.into_iter().map(|(_, t)| t).collect()
}

/// The error of all ranks, which tell the same one.
fn error(ranks: usize, work: impl Fn(&Local) -> Result<Report> + Sync) -> Error {
    common::error(each(ranks, work))
}

fn listing(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("dir");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

#[test]
fn outputs_of_all_ranks_are_those_of_one() {
    let dir = tempfile::tempdir().expect("dir");
    let text = write(dir.path(), "t.csv", table(3000));
    let few = write(dir.path(), "few.csv", table(2));
    let cube = npy("12, 5, 7", "False", wave(420));
    let cube = write(dir.path(), "c.npy", cube);
    let sets = [
        (&text, "normalize:x,out=OUT.npy", None),
        (&text, "normalize:x,zscore,out=OUT.csv", Some("x > 100")),
        (&text, "grep:'two|1',out=OUT.txt", None),
        (&text, "grep:nothing at all,out=OUT.txt", None),
        (&text, "grep:'lines',out=OUT.txt", Some("x < 10")),
        (&few, "normalize:x,out=OUT.npy", None),
        (&few, "grep:'.',out=OUT.txt", None),
        (&cube, "normalize:value,out=OUT.npy", None),
    ];
    for (path, kernel, filter) in sets {
        let name = format!("out{}", &kernel[kernel.len() - 4..]);
        let out = dir.path().join(&name);
        let kernel = kernel.replace("OUT", &dir.path().join("out").to_string_lossy());
        let ask = |chunk| Request {
            filter: filter.map(str::to_owned),
            threads: 2,
            chunk,
            ..request(&[&kernel, "rows"])
        };
        let before = listing(dir.path());
        let want = stead::run(&open(path), &ask(1 << 20), None).expect("run").results;
        let bytes = std::fs::read(&out).expect("output");
        for ranks in 1..=5 {
            for chunk in [100, 1 << 12] {
                std::fs::write(&out, "what was there before").expect("write");
                let all = each(ranks, |f| stead::run_on(f, &open(path), &ask(chunk), None));
                for report in all {
                    assert_eq!(report.expect("run").results, want);
                }
                assert!(std::fs::read(&out).expect("output") == bytes, "{kernel} {ranks} {chunk}");
            }
        }
        std::fs::remove_file(&out).expect("remove");
        assert_eq!(listing(dir.path()), before);
    }
}

#[test]
fn two_outputs_and_a_picture_are_written_by_all() {
    let dir = tempfile::tempdir().expect("dir");
    let text = write(dir.path(), "t.csv", table(500));
    let kernels = |n: usize| {
        let out = dir.path().join(n.to_string()).to_string_lossy().into_owned();
        [
            format!("normalize:x,out={out}.npy"),
            format!("grep:'1',out={out}.txt"),
            format!("grep:'2',out={out}.b"),
        ]
    };
    for ranks in [1, 3] {
        let kernels = kernels(ranks);
        let kernels: Vec<&str> = kernels.iter().map(String::as_str).collect();
        let ask = Request { chunk: 300, ..request(&kernels) };
        for report in each(ranks, |f| stead::run_on(f, &open(&text), &ask, None)) {
            report.expect("run");
        }
    }
    for end in ["npy", "txt", "b"] {
        let read = |n: usize| std::fs::read(dir.path().join(format!("{n}.{end}"))).expect("output");
        assert!(read(1) == read(3) && !read(1).is_empty());
    }
    assert_eq!(listing(dir.path()).len(), 7);
}

#[test]
fn the_first_error_is_the_one_that_one_rank_tells() {
    let dir = tempfile::tempdir().expect("dir");
    let rows: String = (0..4000)
        .map(|i| {
            if [2500, 2501, 3900].contains(&i) {
                format!("bad{i},a\n")
            } else {
                format!("{i},\"a\nb\"\n")
            }
        })
        .collect();
    let path = write(dir.path(), "t.csv", format!("x,y\n{rows}"));
    let options = OpenOptions {
        column_types: vec![("x".into(), stead::ColumnType::Number)],
        ..OpenOptions::default()
    };
    let open = || Dataset::open(&[path.to_string_lossy().into_owned()], &options).expect("open");
    let ask = Request {
        chunk: 256,
        ..request(&["sum:x", &format!("grep:a,out={}/o", dir.path().display())])
    };
    let one = stead::run(&open(), &ask, None).expect_err("bad");
    assert!(one.to_string().contains("bad2500"), "{one}");
    for ranks in 2..=5 {
        let all = error(ranks, |f| stead::run_on(f, &open(), &ask, None));
        assert_eq!(
            (all.to_string(), all.kind(), all.hint()),
            (one.to_string(), one.kind(), one.hint())
        );
        assert_eq!(all.place().line, one.place().line);
    }
    let lenient = Request { lenient: true, ..request(&["sum:x", "rows"]) };
    let one = stead::run(&open(), &lenient, None).expect("run");
    for report in each(3, |f| stead::run_on(f, &open(), &lenient, None)) {
        let report = report.expect("run");
        assert_eq!((&report.results, report.metrics.rows_skipped), (&one.results, 3));
        assert_eq!(report.metrics.rows, one.metrics.rows);
    }
    assert_eq!(listing(dir.path()), ["t.csv"]);
}

#[test]
fn ranks_that_mean_different_things_are_told_so() {
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(50));
    let longer = write(dir.path(), "longer.csv", table(51));
    let later = write(dir.path(), "later.csv", table(50));
    let file = std::fs::File::options().write(true).open(&later).expect("open");
    let time = |p: &Path| std::fs::metadata(p).expect("file").modified().expect("time");
    file.set_modified(time(&path) + Duration::from_secs(1)).expect("time");
    let base = request(&["rows"]);
    let cases: [(&Path, Request, Kind, &str); 7] = [
        (
            &path,
            request(&["rows", "sum:x"]),
            Kind::Usage,
            "a kernel: nothing on rank 0, 'sum:x' on rank 2",
        ),
        (&path, request(&["lines"]), Kind::Usage, "a kernel: 'rows' on rank 0, 'lines' on rank 2"),
        (
            &path,
            Request { filter: Some("x > 1".into()), ..base.clone() },
            Kind::Usage,
            "the filter",
        ),
        (
            &path,
            Request { by: vec!["note".into()], ..base.clone() },
            Kind::Usage,
            "a column of groups",
        ),
        (&path, Request { lenient: true, ..base.clone() }, Kind::Usage, "lenient"),
        (&longer, base.clone(), Kind::Changed, "bytes on rank"),
        (&later, base.clone(), Kind::Changed, "changed at another time"),
    ];
    for (data, other, kind, says) in cases {
        let e = error(3, |f| {
            let (data, ask) = if f.rank() == 2 { (data, &other) } else { (&*path, &base) };
            stead::run_on(f, &open(data), ask, None)
        });
        assert!(e.kind() == kind && e.to_string().contains(says), "{e}");
    }
    // Means may differ.
    let all = each(3, |f| {
        let (threads, chunk) = (f.rank() + 1, 100 << f.rank());
        stead::run_on(f, &open(&path), &Request { threads, chunk, ..base.clone() }, None)
    });
    assert!(all.into_iter().all(|r| r.expect("run").results[0].1 == Value::Int(50)));
}

#[test]
fn what_one_rank_cannot_begin_is_an_error_of_all() {
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(50));
    let nowhere = Error::io("open", "nowhere.csv", std::io::ErrorKind::NotFound.into());
    let nowhere = Mutex::new(Some(nowhere));
    let e = error(3, |f| match f.rank() {
        1 => Err(stead::ranks::refuse(f, nowhere.lock().expect("lock").take().expect("once"))),
        _ => stead::run_on(f, &open(&path), &request(&["rows"]), None),
    });
    assert_eq!((e.kind(), e.place().rank), (Kind::NotFound, Some(1)));
    assert!(
        e.place().host.is_some() && e.to_string().starts_with("nowhere.csv: rank 1 on "),
        "{e}"
    );
    // What is wrong on all of them is nobody's in particular.
    let e = error(3, |f| stead::run_on(f, &open(&path), &request(&["mean:no"]), None));
    assert_eq!((e.kind(), e.place().rank), (Kind::Usage, None));
    let e = error(3, |f| {
        let memory = 20 << 20;
        stead::run_on(f, &open(&path), &Request { memory, ..request(&["rows"]) }, None)
    });
    assert!(e.kind() == Kind::Usage && e.to_string().contains("3 ranks on one node"), "{e}");
    // Nor is an output that cannot be made.
    let out = format!("grep:a,out={}/no/such/o", dir.path().display());
    let e = error(2, |f| stead::run_on(f, &open(&path), &request(&[&out]), None));
    assert_eq!(e.kind(), Kind::NotFound);
}

#[test]
fn a_rank_that_is_gone_ends_the_run_and_leaves_no_part_of_an_output() {
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(300));
    let whole = format!("normalize:x,out={}/whole.npy", dir.path().display());
    stead::run(&open(&path), &request(&[&whole]), None).expect("run");
    let whole = std::fs::read(dir.path().join("whole.npy")).expect("output");
    let out = format!("normalize:x,out={}/o.npy", dir.path().display());
    let ask = Request { chunk: 200, ..request(&[&out]) };
    for dead in 0..3 {
        let mut told = false;
        for after in 0.. {
            let all = each(3, |f| match f.rank() == dead {
                true => {
                    stead::run_on(&Dies { fabric: f, left: after.into() }, &open(&path), &ask, None)
                }
                false => stead::run_on(f, &open(&path), &ask, None),
            });
            let survived = all[dead].is_ok();
            for e in all
                .iter()
                .enumerate()
                .filter(|(r, _)| *r != dead)
                .filter_map(|(_, a)| a.as_ref().err())
            {
                assert_eq!((e.kind(), e.place().rank), (Kind::Peer, Some(dead)), "{after}: {e}");
                // Once ranks have met, it is known what is lost with it.
                let says = e.to_string();
                let share = says.contains("; its share: about bytes ") && says.contains("t.csv");
                assert_eq!(share, e.place().host.is_some(), "{after}: {e}");
                told |= share;
            }
            let mut left = listing(dir.path());
            if left.iter().any(|n| n == "o.npy") {
                // The answer to the last question of all was lost, not the output.
                assert!(std::fs::read(dir.path().join("o.npy")).expect("output") == whole);
                std::fs::remove_file(dir.path().join("o.npy")).expect("remove");
                left = listing(dir.path());
            } else {
                assert!(all.iter().all(Result::is_err), "{dead} {after}");
            }
            assert_eq!(left, ["t.csv", "whole.npy"]);
            if survived {
                assert!(after > 10 && told, "it did not die in time");
                break;
            }
        }
    }
}

/// A rank that dies after so many messages: it can neither send nor receive.
struct Dies<'f> {
    fabric: &'f Local,
    left: AtomicI64,
}

impl Dies<'_> {
    fn check(&self) -> Result<()> {
        match self.left.load(Ordering::Relaxed) {
            0 => Err(Error::new(Kind::Peer, "this one is dead")),
            _ => Ok(()),
        }
    }

    fn count(&self) -> Result<()> {
        self.check()?;
        self.left.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Fabric for Dies<'_> {
    fn rank(&self) -> usize {
        self.fabric.rank()
    }

    fn size(&self) -> usize {
        self.fabric.size()
    }

    fn node_of(&self, rank: usize) -> usize {
        self.fabric.node_of(rank)
    }

    fn deadline(&self) -> Duration {
        self.fabric.deadline()
    }

    fn send(&self, to: usize, tag: u32, bytes: Vec<u8>) -> Result<()> {
        self.count()?;
        self.fabric.send(to, tag, bytes)
    }

    fn recv_within(&self, from: usize, tag: u32, within: Duration) -> Result<Option<Vec<u8>>> {
        self.check()?;
        let got = self.fabric.recv_within(from, tag, within)?;
        if got.is_some() {
            self.count()?;
        }
        Ok(got)
    }

    fn recv_any(&self, tag: u32, within: Duration) -> Result<Option<(usize, Vec<u8>)>> {
        self.check()?;
        self.fabric.recv_any(tag, within)
    }

    fn alive(&self, rank: usize) -> Result<()> {
        self.fabric.alive(rank)
    }

    fn rounds(&self) -> &Rounds {
        self.fabric.rounds()
    }
}

#[test]
fn who_stops_one_rank_stops_all() {
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(20_000));
    for stopped in [0, 2] {
        let e = error(3, |f| {
            let cancel = Cancel::new();
            if f.rank() == stopped {
                cancel.cancel();
            }
            let own = vec![Own::new("slow", |_| Ok(Slow { slow: true }))];
            let ask = Request { cancel, own, chunk: 100, threads: 1, ..Request::default() };
            stead::run_on(f, &open(&path), &ask, None)
        });
        assert_eq!(e.kind(), Kind::Cancelled);
    }
}

/// Would take a minute for each rank that is slow.
struct Slow {
    slow: bool,
}

impl Kernel for Slow {
    type State = u64;

    fn needs(&self) -> Needs {
        Needs { rows: true, ..Needs::default() }
    }

    fn init(&self) -> u64 {
        0
    }

    fn update(&self, state: &mut u64, block: &Block<'_>) -> Result<()> {
        if self.slow {
            std::thread::sleep(Duration::from_millis(20));
        }
        *state += block.rows as u64;
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

#[derive(Clone, Copy, PartialEq)]
enum When {
    /// While it waits for the others to come.
    Meets,
    /// When it is told that it has read its share.
    Ends,
    /// While it waits for the others to read theirs.
    Waits,
}

/// Stops its rank, which then has nothing to do but wait.
struct StopsLate {
    cancel: Cancel,
    when: When,
    through: AtomicBool,
}

impl Observer for StopsLate {
    fn progress(&self, s: &Snapshot) {
        if s.bytes == s.total_bytes {
            self.through.store(true, Ordering::Relaxed);
            if self.when == When::Ends {
                self.cancel.cancel();
            }
        }
    }

    fn looks(&self) -> bool {
        false
    }

    fn waits(&self) {
        let through = self.through.load(Ordering::Relaxed);
        if self.when == When::Meets || (self.when == When::Waits && through) {
            self.cancel.cancel();
        }
    }
}

#[test]
fn who_is_stopped_while_it_waits_leaves_nobody_waiting() {
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(20_000));
    for (ranks, stopped) in [(2, 1), (4, 1), (4, 2), (4, 3)] {
        for when in [When::Meets, When::Ends, When::Waits] {
            let path = path.clone();
            let all = each_that_stays(ranks, move |f| {
                let cancel = Cancel::new();
                let through = AtomicBool::new(false);
                let watch = StopsLate { cancel: cancel.clone(), when, through };
                let observer = (f.rank() == stopped).then_some(&watch as &dyn Observer);
                let slow = f.rank() == 0;
                if slow && when == When::Meets {
                    std::thread::sleep(Duration::from_millis(500));
                }
                let own = vec![Own::new("slow", move |_| Ok(Slow { slow }))];
                let ask = Request { cancel, own, chunk: 100, threads: 1, ..Request::default() };
                let first = stead::run_on(f, &open(&path), &ask, observer);
                (first, stead::run_on(f, &open(&path), &request(&["rows"]), None))
            });
            for (first, second) in all {
                assert_eq!(first.expect_err("stopped").kind(), Kind::Cancelled);
                assert_eq!(second.expect("run").results[0].1, Value::Int(20_000));
            }
        }
    }
}

#[test]
fn rank_0_that_watches_does_not_wait_for_a_rank_that_has_failed_before_its_pass() {
    /// Another pass, but on rank 1: it fails between two, in a file, so that lower ranks are not told to stop.
    struct Again(bool);
    impl Kernel for Again {
        type State = u64;

        fn needs(&self) -> Needs {
            Needs { rows: true, ..Needs::default() }
        }

        fn init(&self) -> u64 {
            0
        }

        fn update(&self, state: &mut u64, block: &Block<'_>) -> Result<()> {
            *state += block.rows as u64;
            Ok(())
        }

        fn merge(&self, state: &mut u64, other: u64) -> Result<()> {
            *state += other;
            Ok(())
        }

        fn finish(&self, state: u64) -> Result<Step> {
            match self.0 {
                true => Err(Error::data("full").at_path("o").at_offset(5)),
                false if state == 0 => Ok(Step::Done(Value::Int(0))),
                false => Ok(Step::Next(Arc::new(Slow { slow: false }))),
            }
        }
    }
    struct Looks;
    impl Observer for Looks {
        fn progress(&self, _: &Snapshot) {}
    }
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(2000));
    // With another kernel that goes on, so that rank 1 comes to the next pass, and without, so that it does not.
    for kernels in [&["kmeans:x,k=3"][..], &[]] {
        let path = path.clone();
        let all = each_that_stays(3, move |f| {
            let fails = f.rank() == 1;
            let own = vec![Own::new("again", move |_| Ok(Again(fails)))];
            let ask = Request { own, chunk: 500, threads: 2, ..request(kernels) };
            stead::run_on(f, &open(&path), &ask, Some(&Looks))
        });
        for e in all.into_iter().map(|r| r.expect_err("full")) {
            assert!(e.kind() == Kind::Data && e.message() == "full", "{e}");
        }
    }
}

#[test]
fn ranks_after_one_that_has_failed_need_not_go_on() {
    let dir = tempfile::tempdir().expect("dir");
    let rows: String =
        (0..8000).map(|i| if i == 3000 { "bad\n".to_owned() } else { format!("{i}\n") }).collect();
    let path = write(dir.path(), "t.csv", format!("x\n{rows}"));
    let options = OpenOptions {
        column_types: vec![("x".into(), stead::ColumnType::Number)],
        ..OpenOptions::default()
    };
    let open = || Dataset::open(&[path.to_string_lossy().into_owned()], &options).expect("open");
    let seen: Vec<AtomicU64> = (0..3).map(|_| AtomicU64::new(0)).collect();
    let e = error(3, |f| {
        let count = Count(&seen[f.rank()]);
        let own = vec![Own::new("slow", |_| Ok(Slow { slow: true }))];
        let ask = Request { own, chunk: 100, threads: 1, ..request(&["sum:x"]) };
        stead::run_on(f, &open(), &ask, Some(&count))
    });
    assert!(e.to_string().contains(":3002: ") && e.kind() == Kind::Data, "{e}");
    // The last one was at its beginning when the second one came to its end.
    let rows = |rank: usize| seen[rank].load(Ordering::Relaxed);
    assert!(rows(0) > 2500 && rows(2) < 2000, "{} {}", rows(0), rows(2));
}

struct Count<'s>(&'s AtomicU64);

impl Observer for Count<'_> {
    fn progress(&self, s: &Snapshot) {
        self.0.fetch_max(s.rows, Ordering::Relaxed);
    }

    fn looks(&self) -> bool {
        false
    }
}

#[test]
fn rank_0_sees_how_far_all_are() {
    struct Last(Mutex<Option<(u64, u64, u64)>>);
    impl Observer for Last {
        fn progress(&self, s: &Snapshot) {
            assert!(s.bytes <= s.total_bytes);
            *self.0.lock().expect("lock") = Some((s.bytes, s.total_bytes, s.rows));
        }
    }
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(5000));
    let len = std::fs::metadata(&path).expect("file").len();
    for ranks in [1, 2, 4] {
        let all = each(ranks, |f| {
            let last = Last(Mutex::new(None));
            let ask = Request { chunk: 1000, ..request(&["rows", "sum:x"]) };
            let report = stead::run_on(f, &open(&path), &ask, Some(&last));
            let last = *last.0.lock().expect("lock");
            if f.rank() == 0 {
                assert_eq!(last, Some((len, len, 5000)), "{ranks}");
            }
            report
        });
        let report = all.into_iter().next().expect("one").expect("run");
        assert_eq!((report.plan.ranks, report.plan.nodes), (ranks, 1));
        let m = &report.metrics;
        if ranks == 1 {
            assert!(m.ranks.is_empty() && m.bytes_sent == 0 && m.bytes_read == len);
        } else {
            // Each looks at the quotes of its own share, and nobody's else.
            assert_eq!(m.bytes_read, 2 * len);
            assert_eq!(m.ranks.iter().map(|r| r.bytes_read).sum::<u64>(), m.bytes_read);
            assert_eq!(m.ranks.iter().map(|r| r.bytes_sent).sum::<u64>(), m.bytes_sent);
            assert!(m.ranks.len() == ranks && m.bytes_sent > 0);
            assert!(m.ranks.iter().all(|r| r.bytes_read < 4 * len / ranks as u64));
        }
    }
}

#[test]
fn a_kernel_that_fails_on_one_rank_ends_all() {
    struct Odd {
        rank: usize,
        at: &'static str,
    }
    impl Odd {
        fn fail(&self, at: &str) -> Result<()> {
            if self.rank == 1 && self.at == at {
                Err(Error::data(format!("it fails to {at}")))
            } else {
                Ok(())
            }
        }
    }
    impl Kernel for Odd {
        type State = u64;

        fn needs(&self) -> Needs {
            Needs { rows: true, ..Needs::default() }
        }

        fn init(&self) -> u64 {
            0
        }

        fn update(&self, state: &mut u64, block: &Block<'_>) -> Result<()> {
            *state += block.rows as u64;
            self.fail("update")
        }

        fn merge(&self, state: &mut u64, other: u64) -> Result<()> {
            *state += other;
            self.fail("merge")
        }

        fn finish(&self, state: u64) -> Result<Step> {
            self.fail("finish")?;
            if state == 0 {
                Ok(Step::Done(Value::Int(0)))
            } else {
                Ok(Step::Done(Value::Int(state)))
            }
        }
    }
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(2000));
    // With a kernel that goes on for another pass, and without.
    for other in ["rows", "kmeans:x,k=3", "normalize:x,out=OUT"] {
        for at in ["update", "merge", "finish"] {
            let e = error(4, |f| {
                let rank = f.rank();
                let own = vec![Own::new("odd", move |_| Ok(Odd { rank, at }))];
                let other = other.replace("OUT", &dir.path().join("o.npy").to_string_lossy());
                let ask = Request { own, chunk: 500, threads: 2, ..request(&[&other]) };
                stead::run_on(f, &open(&path), &ask, None)
            });
            assert!(e.kind() == Kind::Data && e.message() == format!("it fails to {at}"), "{e}");
        }
    }
    assert_eq!(listing(dir.path()), ["t.csv"]);
}

#[test]
fn a_kernel_that_panics_on_one_rank_ends_all() {
    struct Panics {
        at: &'static str,
    }
    impl Kernel for Panics {
        type State = u64;

        fn needs(&self) -> Needs {
            Needs { rows: true, ..Needs::default() }
        }

        fn init(&self) -> u64 {
            0
        }

        fn update(&self, state: &mut u64, block: &Block<'_>) -> Result<()> {
            *state += block.rows as u64;
            Ok(())
        }

        fn merge(&self, state: &mut u64, other: u64) -> Result<()> {
            assert!(self.at != "merge", "as it is meant to");
            *state += other;
            Ok(())
        }

        fn finish(&self, state: u64) -> Result<Step> {
            assert!(self.at != "finish", "as it is meant to");
            Ok(Step::Done(Value::Int(state)))
        }
    }
    let dir = tempfile::tempdir().expect("dir");
    let path = write(dir.path(), "t.csv", table(2000));
    // States of threads, states of ranks, and what comes of them.
    for (rank, threads, at) in [(1, 2, "merge"), (2, 1, "merge"), (1, 1, "finish")] {
        let path = path.clone();
        let all = each_that_stays(4, move |f| {
            let at = if f.rank() == rank { at } else { "" };
            let own = vec![Own::new("odd", move |_| Ok(Panics { at }))];
            let ask = Request { own, chunk: 500, threads, ..request(&["rows"]) };
            stead::run_on(f, &open(&path), &ask, None)
        });
        for e in all.into_iter().map(|r| r.expect_err("a panic")) {
            assert!(e.kind() == Kind::Internal && e.message() == "a kernel panicked", "{e}");
        }
    }
}

#[test]
fn more_ranks_than_records_and_no_records_at_all() {
    let dir = tempfile::tempdir().expect("dir");
    let some = write(dir.path(), "some.csv", "x,y\n1,\"a\nb\"\n2,c\n");
    let none = write(dir.path(), "none.csv", "x,y\n");
    for path in [some, none] {
        for kernels in
            [&["rows", "lines", "entropy", "mean:x", "quantile:x"][..], &["grep:b,lines"]]
        {
            let ask = Request { chunk: 2, ..request(kernels) };
            let one = stead::run(&open(&path), &ask, None).expect("run").results;
            for report in each(9, |f| stead::run_on(f, &open(&path), &ask, None)) {
                assert_eq!(report.expect("run").results, one);
            }
        }
    }
}

#[test]
fn states_that_are_too_large_together_are_told() {
    let dir = tempfile::tempdir().expect("dir");
    let text: String = (0..60_000).map(|i| format!("k{i},{i}\n")).collect();
    let path = write(dir.path(), "g.csv", format!("key,x\n{text}"));
    let ask = |memory| Request {
        by: vec!["key".into()],
        chunk: 4096,
        threads: 1,
        memory,
        ..request(&["rows", "sum:x"])
    };
    let e = error(3, |f| stead::run_on(f, &open(&path), &ask(60 << 20), None));
    assert!(e.kind() == Kind::Limit && e.hint().is_some_and(|h| h.contains("--memory")), "{e}");
    let one = stead::run(&open(&path), &ask(400 << 20), None).expect("run").results;
    for report in each(3, |f| stead::run_on(f, &open(&path), &ask(900 << 20), None)) {
        assert!(report.expect("run").results == one);
    }
}
