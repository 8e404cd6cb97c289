//! Ranks that add up an array together, and what windows and samples say of their steps.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Place, Step, numbers, sum, variable};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use stead_core::{Bounds, DType, Error, Kind};
use stead_flow::{Flow, Functions, Graph, Options};
use stead_stream::{Attribute, Definition, Reader, Writer, Written, covered};

/// Everything of which ranks add up parts: all of an array, few rows of it, what other ranks have made, and what is made of that.
const ALL: &str = r#"
[read.sim]
[node.seen]
op = "map"
of = "sim.T"
function = "seen"
elementwise = true
[node.total]
op = "reduce"
of = "seen"
how = "sum"
[node.mean]
op = "reduce"
of = "sim.T"
how = "mean"
over = [0]
[node.low]
op = "reduce"
of = "sim.T"
how = "min"
[node.moments]
op = "reduce"
of = "sim.f"
how = "moments"
[node.rows]
op = "reduce"
of = "sim.i"
how = "sum"
over = ["x"]
[node.means]
op = "reduce"
of = "sim.i"
how = "mean"
over = ["x"]
[node.high]
op = "reduce"
of = "sim.i"
how = "max"
over = ["y", "x"]
[node.wide]
op = "reduce"
of = "sim.i"
how = "moments"
over = ["x"]
[node.away]
op = "map"
of = ["sim.T", "mean"]
function = "away"
[node.spread]
op = "reduce"
of = "away"
how = "mean"
[node.length]
op = "magnitude"
of = ["total", "spread"]
[node.last]
op = "window"
of = "length"
steps = 2
[node.nobody]
op = "reduce"
of = "sim.f"
how = "sum"
[write.out]
variables = { total = "total", mean = "mean", low = "low", moments = "moments", rows = "rows", means = "means", high = "high", wide = "wide", spread = "spread", length = "length" }
[write.last]
variables = { last = "last" }
"#;

const N: usize = 70_001;
const ROWS: usize = 2;

/// Sums of these are wrong if they are rounded on the way.
fn values(step: u64) -> Vec<f64> {
    let mut state = step.wrapping_mul(77) + 1;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state
    };
    (0..N)
        .map(|_| {
            let (x, up) = ((next() >> 11) as f64 / 1e9, (next() >> 60) as i32 - 8);
            if next() >> 63 == 0 { x * 10f64.powi(up) } else { -x * 10f64.powi(up) }
        })
        .collect()
}

fn steps() -> Vec<Step> {
    let step = |n: u64| {
        let x = values(n);
        let i: Vec<f64> = (0..ROWS * N).map(|i| (i % 1013) as f64 * 4e6 - 1e9).collect();
        [
            variable("T", DType::F64, &[N as u64], &[], &x),
            variable("f", DType::F32, &[7, N as u64 / 7], &[], &x[..N / 7 * 7]),
            variable("i", DType::I32, &[ROWS as u64, N as u64], &["y", "x"], &i),
        ]
    };
    (0..3).map(|n| step(n).into()).collect()
}

fn functions(seen: &Arc<Mutex<Vec<Bounds>>>) -> Functions {
    let mut all = common::seen(seen);
    all.insert(
        "away".into(),
        Arc::new(|given, _, to| {
            let of = |bytes: &[u8]| f64::from_ne_bytes(bytes.try_into().unwrap());
            let mean = of(given[1].bytes());
            for (x, to) in given[0].bytes().chunks(8).zip(to.chunks_mut(8)) {
                to.copy_from_slice(&(of(x) - mean).abs().to_ne_bytes());
            }
            Ok(())
        }),
    );
    all
}

#[test]
fn any_number_of_ranks_makes_the_same_numbers_each_of_its_part() {
    let (place, steps) = (Place::new(), steps());
    let mut first = None;
    for (writers, ranks) in [(1, 1), (2, 2), (1, 3), (3, 5)] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (report, had) = place.run(ALL, &functions(&seen), &steps, (writers, ranks));
        assert_eq!(report.unwrap().steps, 3);
        // Each rank has looked at its part of each step, once, and no rank at more.
        let seen = Arc::into_inner(seen).unwrap().into_inner().unwrap();
        let most = (N as u64).div_ceil(ranks);
        assert_eq!(seen.len() as u64, 3 * ranks);
        assert!(seen.iter().all(|part| part.elements() <= most), "{seen:?}");
        assert_eq!(seen.iter().map(Bounds::elements).sum::<u64>(), 3 * N as u64);
        covered(&Bounds::new([0], [N as u64]).unwrap(), seen.iter()).unwrap();
        for (step, out) in steps.iter().zip(&had["out"]) {
            let (x, i) = (numbers(&step["T"]), numbers(&step["i"]));
            assert_eq!(numbers(&out["total"]), [sum(x.iter().copied())]);
            let low = x.iter().copied().fold(f64::INFINITY, f64::min);
            assert_eq!(numbers(&out["low"]), [low]);
            let rows: Vec<f64> = i.chunks(N).map(|row| sum(row.iter().copied())).collect();
            assert_eq!(numbers(&out["rows"]), rows);
            assert_eq!(numbers(&out["high"]), [i.iter().copied().fold(f64::MIN, f64::max)]);
            let mean = numbers(&out["mean"])[0];
            assert!((mean * N as f64 / sum(x.iter().copied()) - 1.0).abs() < 1e-15);
            let spread = sum(x.iter().map(|x| (x - mean).abs())) / N as f64;
            assert!((numbers(&out["spread"])[0] / spread - 1.0).abs() < 1e-15);
            assert_eq!(numbers(&out["wide"])[..ROWS], numbers(&out["means"]));
            assert_eq!(out["wide"].0.shape, [4, ROWS as u64]);
        }
        assert_eq!(had["last"].len(), 2);
        match &first {
            None => first = Some(had),
            Some(first) => assert!(*first == had, "{ranks} ranks have other bits"),
        }
    }
}

#[test]
fn ranks_with_several_threads_leave_nothing_out() {
    const TEXT: &str = r#"
[read.sim]
[node.line]
op = "reduce"
of = "sim.line"
how = "sum"
[node.rows]
op = "reduce"
of = "sim.rows"
how = "moments"
[write.out]
variables = { line = "line", rows = "rows" }
"#;
    // So many that each rank has work for two threads, and lengths that are no multiple of what each has.
    let place = Place::new();
    for n in [1_100_001u64, 1_100_003, 2_200_005] {
        let ones = vec![1.0; 3 * n as usize];
        let step = Step::from([
            variable("line", DType::U8, &[n], &[], &ones[..n as usize]),
            variable("rows", DType::U8, &[3, n], &[], &ones),
        ]);
        for ranks in [1, 2, 3] {
            let (report, had) =
                place.run(TEXT, &Functions::new(), std::slice::from_ref(&step), (1, ranks));
            report.unwrap();
            let out = &had["out"][0];
            assert_eq!(numbers(&out["line"]), [n as f64], "{ranks} ranks");
            assert_eq!(numbers(&out["rows"]), [1.0, 0.0, 0.0, 0.0], "{ranks} ranks");
        }
    }
}

/// A sum of what a function makes, of which each rank makes a part.
const MINE: &str = r#"
[read.sim]
[node.mine]
op = "map"
of = "sim.T"
function = "mine"
elementwise = true
[node.total]
op = "reduce"
of = "mine"
how = "sum"
[write.out]
variables = { total = "total" }
"#;

/// The function, which may fail for all parts but the first.
fn mine(fails: impl Fn() -> bool + Send + Sync + 'static) -> Functions {
    let mut functions = Functions::new();
    functions.insert(
        "mine".into(),
        Arc::new(move |given, wanted, to| {
            if wanted.bounds.start()[0] > 0 && fails() {
                return Err(Error::data("this part is not for me"));
            }
            to.copy_from_slice(given[0].bytes());
            Ok(())
        }),
    );
    functions
}

#[test]
fn a_sum_that_fits_no_number_and_a_rank_that_fails_are_told_to_all() {
    let place = Place::new();
    let step =
        Step::from([variable("T", DType::I64, &[N as u64], &[], &vec![(1u64 << 62) as f64; N])]);
    let steps = vec![step; 4];
    let with = |fails: bool| {
        let functions = mine(move || fails);
        let (report, had) = place.run(MINE, &functions, &steps, (1, 3));
        assert!(had.is_empty(), "readers were told of no failure");
        report.unwrap_err()
    };
    let e = with(false);
    assert_eq!(e.kind(), Kind::Data, "{e}");
    assert!(
        e.message().starts_with("node 'total' (sum): a sum is 322822632975935580667904 and does"),
        "{e}"
    );
    let e = with(true);
    assert_eq!(e.kind(), Kind::Data, "{e}");
    assert!(e.message().ends_with("this part is not for me"), "{e}");
}

#[test]
fn a_rank_that_comes_when_another_one_has_failed_is_told() {
    let place = Place::new();
    let (fails, failed) = std::sync::mpsc::channel();
    let functions = mine(move || fails.send(()).is_ok());
    let flow = Flow::new(&Graph::parse(MINE).unwrap(), functions).unwrap();
    let run = |rank| flow.run(&Options { rank, ranks: 2, ..place.options() }).unwrap_err();
    std::thread::scope(|scope| {
        // It waits for less than ranks of a group may be late.
        let writing = scope.spawn(|| {
            let timeout = Duration::from_secs(20);
            let mut writer = Writer::open("sim", &Written { timeout, ..place.written() }).unwrap();
            let t = writer.define(Definition::new("T", DType::F64, [N as u64])).unwrap();
            for _ in 0..20 {
                writer.begin()?;
                writer.put(t, &Bounds::new([0], [N as u64])?, &[0; N * 8])?;
                writer.end()?;
            }
            writer.close()
        });
        let first = scope.spawn(|| assert_eq!(run(1).kind(), Kind::Data));
        failed.recv_timeout(Duration::from_secs(60)).unwrap();
        std::thread::sleep(Duration::from_millis(300));
        let e = run(0);
        assert_eq!(e.kind(), Kind::Peer);
        assert!(e.message().contains("writer 1 of stream 'out"), "{e}");
        first.join().unwrap();
        writing.join().unwrap().unwrap();
    });
}

fn steps_of(step: &Step, variable: &str) -> Vec<i64> {
    match step[variable].0.attributes.get("sim.steps") {
        Some(Attribute::Ints(steps)) => steps.clone(),
        other => panic!("{variable}: {other:?}"),
    }
}

const WINDOWS: &str = r#"
[read.sim]
[node.last]
op = "window"
of = "sim.T"
steps = 3
how = "mean"
[node.twice]
op = "scale"
of = "last"
factor = 2.0
[node.pairs]
op = "window"
of = "sim.T"
steps = 2
every = 2
[node.seldom]
op = "sample"
of = "sim.T"
every = 2
[node.thirds]
op = "window"
of = "seldom"
steps = 3
how = "max"
[node.smooth]
op = "window"
of = "last"
steps = 2
how = "sum"
[node.few]
op = "sample"
of = "sim.T"
elements = 1
[write.each]
variables = { T = "sim.T", few = "few" }
[write.last]
variables = { last = "last", twice = "twice" }
[write.pairs]
variables = { pairs = "pairs" }
[write.seldom]
variables = { seldom = "seldom" }
[write.thirds]
variables = { thirds = "thirds" }
[write.smooth]
variables = { smooth = "smooth" }
"#;

#[test]
fn windows_and_samples_say_which_steps_they_are_made_of() {
    let place = Place::new();
    let one = |n: u64| {
        let mut all = Step::from([variable("T", DType::F64, &[2], &["x"], &[n as f64, 0.5])]);
        let said = &mut all.get_mut("T").unwrap().0.attributes;
        // What a flow before this one has said stays where it is true.
        said.insert("other.steps".into(), Attribute::Ints(vec![5, 9, 1]));
        said.insert("units".into(), Attribute::Text("K".into()));
        all
    };
    let steps: Vec<Step> = (0..7).map(one).collect();
    for ranks in [1, 2] {
        let (report, had) = place.run(WINDOWS, &Functions::new(), &steps, (1, ranks));
        report.unwrap();
        let told = |stream: &str, variable: &str| -> Vec<Vec<i64>> {
            had[stream].iter().map(|step| steps_of(step, variable)).collect()
        };
        let last: Vec<[i64; 3]> = (0..5).map(|n| [n, n + 2, 1]).collect();
        assert_eq!(told("last", "last"), last);
        assert_eq!(told("last", "twice"), last);
        assert_eq!(told("pairs", "pairs"), [[0, 1, 1], [2, 3, 1], [4, 5, 1]]);
        assert_eq!(told("seldom", "seldom"), [[0, 0, 1], [2, 2, 1], [4, 4, 1], [6, 6, 1]]);
        assert_eq!(told("thirds", "thirds"), [[0, 4, 2], [2, 6, 2]]);
        assert_eq!(told("smooth", "smooth"), (0..4).map(|n| [n, n + 3, 1]).collect::<Vec<_>>());
        // A step of these is a step of the source.
        for name in ["T", "few"] {
            let said = &had["each"][3][name].0.attributes;
            assert_eq!(said.keys().collect::<Vec<_>>(), ["other.steps", "units"]);
        }
        let kept = |stream: &str, name: &str| {
            had[stream][0][name].0.attributes.keys().cloned().collect::<Vec<_>>()
        };
        assert_eq!(kept("seldom", "seldom"), ["other.steps", "sim.steps", "units"]);
        assert_eq!(kept("last", "last"), ["sim.steps", "units"]);
    }
}

#[test]
fn steps_are_those_of_the_source_and_not_of_the_flow() {
    let place = Place::new();
    let text = "[read.sim]\n[node.w]\nop = \"window\"\nof = \"sim.T\"\nsteps = 2\n[write.out]\nvariables = { w = \"w\" }\nreaders = 1\n";
    let written = Written { readers: 0, keep: 3, ..place.written() };
    let mut writer = Writer::open("sim", &written).unwrap();
    let (_, (definition, bytes)) = variable("T", DType::F64, &[1], &[], &[1.0]);
    let t = writer.define(definition).unwrap();
    for _ in 0..7 {
        writer.begin().unwrap();
        writer.put(t, &Bounds::new([0], [1]).unwrap(), &bytes).unwrap();
        writer.end().unwrap();
    }
    // Three steps are there when the flow comes.
    writer.close().unwrap();
    let flow = Flow::new(&Graph::parse(text).unwrap(), Functions::new()).unwrap();
    let running = flow.run_in_background(&place.options()).unwrap();
    let mut out = Reader::open("out", &place.read()).unwrap();
    for n in 0..2 {
        let step = out.next_step().unwrap().unwrap();
        let said = step.variable("w").unwrap().attributes.get("sim.steps").cloned();
        assert_eq!(step.number(), n);
        assert_eq!(said, Some(Attribute::Ints(vec![4 + n as i64, 5 + n as i64, 1])));
    }
    assert!(out.next_step().unwrap().is_none());
    assert_eq!(running.join().unwrap().steps, 3);
}

#[test]
fn ranks_of_a_flow_that_may_miss_steps_miss_the_same() {
    const STEPS: u64 = 120;
    const TEXT: &str = r#"
[read.sim]
behind = "drop"
[node.slow]
op = "map"
of = "sim.T"
function = "slow"
elementwise = true
[node.total]
op = "reduce"
of = "slow"
how = "sum"
[node.pair]
op = "window"
of = "total"
steps = 2
[write.out]
variables = { T = "slow", total = "total" }
[write.pairs]
variables = { pair = "pair" }
"#;
    let place = Place::new();
    let step =
        |n: u64| Step::from([variable("T", DType::U8, &[N as u64], &[], &vec![n as f64; N])]);
    let steps: Vec<Step> = (0..STEPS).map(step).collect();
    let mut functions = Functions::new();
    functions.insert(
        "slow".into(),
        Arc::new(|given, wanted, to| {
            // Some ranks are slower than others, and all of them than the writers.
            let time = if wanted.bounds.start()[0] == 0 { 4 } else { 1 };
            std::thread::sleep(std::time::Duration::from_millis(time));
            to.copy_from_slice(given[0].bytes());
            Ok(())
        }),
    );
    for ranks in [2, 3] {
        let (report, had) = place.run(TEXT, &functions, &steps, (2, ranks));
        let report = report.unwrap();
        assert_eq!(report.steps + report.dropped, STEPS);
        let totals: Vec<f64> = had["out"].iter().map(|out| numbers(&out["total"])[0]).collect();
        for (out, total) in had["out"].iter().zip(&totals) {
            let all = numbers(&out["T"]);
            assert!(all.iter().all(|x| *x == all[0]), "parts of several steps are one");
            assert_eq!(*total, all[0] * N as f64);
        }
        assert!(totals.len() as u64 == report.steps && totals.is_sorted_by(|a, b| a < b));
        assert_eq!(totals.last(), Some(&((STEPS - 1) as f64 * N as f64)));
        let pairs: Vec<Vec<f64>> = had["pairs"].iter().map(|out| numbers(&out["pair"])).collect();
        assert_eq!(pairs, totals.windows(2).map(<[f64]>::to_vec).collect::<Vec<_>>());
    }
}
