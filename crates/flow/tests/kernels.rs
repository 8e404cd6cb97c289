//! Kernels over arrays that are large enough for several ranks: each looks at its part, and the bits are those of one rank alone.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Place, Step, numbers, sum, variable};
use std::sync::{Arc, Mutex};
use stead_core::{Bounds, DType};
use stead_flow::{Flow, Functions, Graph};
use stead_stream::covered;

/// Of one pass and of several, of elements, rows and bytes, and arrays that come out.
const ALL: &str = r#"
[read.sim]
[node.seen]
op = "map"
of = "sim.T"
function = "seen"
elementwise = true
[node.mean]
op = "kernel"
of = "seen"
kernel = "mean:seen"
[node.spread]
op = "kernel"
of = "seen"
kernel = "std:seen,ddof=0"
[node.high]
op = "kernel"
of = "seen"
kernel = "max:seen"
[node.median]
op = "kernel"
of = "seen"
kernel = "quantile:seen,q=0.5"
[node.exactly]
op = "kernel"
of = "seen"
kernel = "quantile:seen,q=0.9,exact"
[node.counts]
op = "kernel"
of = "seen"
kernel = "hist:seen,bins=7"
member = "counts"
shape = [7]
[node.rows]
op = "kernel"
of = "seen"
kernel = "rows"
[node.entropy]
op = "kernel"
of = "seen"
kernel = "entropy"
[node.threes]
op = "kernel"
of = "seen"
kernel = "digits"
member = "3"
[node.lines]
op = "kernel"
of = "sim.text"
kernel = "lines"
[node.products]
op = "kernel"
of = ["seen", "sim.u"]
kernel = "gram:*"
member = "matrix"
shape = [2, 2]
[node.middles]
op = "kernel"
of = "seen"
kernel = "kmeans:seen,k=3,seed=5,rounds=4"
member = "centroids"
shape = [3, 1]
[node.wide]
op = "kernel"
of = "sim.i"
kernel = "kmeans:i,k=4,init=random,seed=2,rounds=4"
member = "sizes"
shape = [4]
[node.matrix]
op = "kernel"
of = "sim.X"
kernel = "gram:*"
member = "matrix"
shape = [9, 9]
rows = true
[node.scaled]
op = "kernel"
of = "seen"
kernel = "normalize:seen,zscore"
[node.unit]
op = "kernel"
of = "sim.X"
kernel = "normalize:2,5,l2"
rows = true
[node.total]
op = "reduce"
of = "scaled"
how = "sum"
[node.apart]
op = "map"
of = ["mean", "high"]
function = "apart"
[write.out]
variables = { mean = "mean", spread = "spread", high = "high", median = "median", exactly = "exactly", counts = "counts", rows = "rows", entropy = "entropy", threes = "threes", lines = "lines", products = "products", middles = "middles", wide = "wide", matrix = "matrix", scaled = "scaled", unit = "unit", total = "total", apart = "apart" }
"#;

const N: usize = 70_001;
/// Rows of `X`, which are two stretches.
const ROWS: usize = 9000;

fn steps() -> Vec<Step> {
    let values = |seed: u64, n: usize| -> Vec<f64> {
        let mut state = seed;
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 11) as f64 / (1u64 << 53) as f64
        };
        (0..n).map(|i| next() * 10f64.powi((i % 9) as i32 - 4) + (i % 3) as f64 * 50.0).collect()
    };
    let step = |n: u64| {
        // Lines of a few letters each, the last one without an end.
        let text: Vec<f64> = (0..N).map(|i| if i % 71 == 3 { 10.0 } else { 97.0 }).collect();
        let x = values(n + 3, 9 * ROWS);
        Step::from([
            variable("T", DType::F64, &[N as u64], &["x"], &values(n, N)),
            variable("u", DType::F32, &[N as u64], &["x"], &values(n + 1, N)),
            variable("i", DType::I32, &[2, N as u64], &["y", "x"], &values(n + 2, 2 * N)),
            variable("X", DType::F64, &[ROWS as u64, 9], &[], &x),
            variable("text", DType::U8, &[N as u64], &[], &text),
        ])
    };
    (0..2).map(step).collect()
}

fn functions(seen: &Arc<Mutex<Vec<Bounds>>>) -> Functions {
    let mut all = common::seen(seen);
    all.insert(
        "apart".into(),
        Arc::new(|given, _, to| {
            let of = |i: usize| f64::from_ne_bytes(given[i].bytes().try_into().unwrap());
            to.copy_from_slice(&(of(1) - of(0)).to_ne_bytes());
            Ok(())
        }),
    );
    all
}

#[test]
fn any_number_of_ranks_has_the_answers_of_one_and_looks_at_parts() {
    let (place, steps) = (Place::new(), steps());
    let mut first = None;
    for (writers, ranks) in [(1, 1), (2, 2), (1, 3), (3, 5)] {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (report, had) = place.run(ALL, &functions(&seen), &steps, (writers, ranks));
        assert_eq!(report.unwrap().steps, 2);
        // Each rank has looked at its part of each step, once, though kernels go over it several times.
        let seen = Arc::into_inner(seen).unwrap().into_inner().unwrap();
        let most = (N as u64).div_ceil(ranks);
        assert_eq!(seen.len() as u64, 2 * ranks);
        assert!(seen.iter().all(|part| part.elements() <= most), "{seen:?}");
        assert_eq!(seen.iter().map(Bounds::elements).sum::<u64>(), 2 * N as u64);
        covered(&Bounds::new([0], [N as u64]).unwrap(), seen.iter()).unwrap();
        for (step, out) in steps.iter().zip(&had["out"]) {
            let x = numbers(&step["T"]);
            let one = |name: &str| numbers(&out[name])[0];
            let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * (a.abs() + b.abs());
            let mean = sum(x.iter().copied()) / N as f64;
            let spread = (sum(x.iter().map(|x| (x - mean) * (x - mean))) / N as f64).sqrt();
            let high = x.iter().copied().fold(f64::MIN, f64::max);
            let mut sorted = x.clone();
            sorted.sort_by(f64::total_cmp);
            assert!(near(one("mean"), mean) && near(one("spread"), spread));
            assert_eq!((one("high"), one("rows")), (high, N as f64));
            assert_eq!(one("apart"), one("high") - one("mean"));
            assert_eq!(one("exactly"), sorted[(0.9 * N as f64).ceil() as usize - 1]);
            assert!((one("median") / sorted[N / 2] - 1.0).abs() < 1e-3);
            assert_eq!(numbers(&out["counts"]).iter().sum::<f64>(), N as f64);
            let bytes = &step["T"].1;
            assert_eq!(one("threes"), bytes.iter().filter(|b| **b == b'3').count() as f64);
            assert!((4.0..8.0).contains(&one("entropy")));
            // As many ends, and the letters after the last one.
            assert_eq!(one("lines"), (N - 3).div_ceil(71) as f64 + 1.0);
            let scaled = numbers(&out["scaled"]);
            let off = |(s, x): (&f64, &f64)| (s * spread + mean - x).abs();
            assert!(scaled.iter().zip(&x).map(off).all(|off| off < 1e-9 * (spread + mean)));
            assert_eq!(out["scaled"].0.dims, ["x"]);
            assert!(one("total").abs() < 1e-6);
            let columns = numbers(&step["X"]);
            let unit = numbers(&out["unit"]);
            assert_eq!(out["unit"].0.shape, [ROWS as u64, 2]);
            for (place, column) in [2, 5].into_iter().enumerate() {
                let of = || columns.iter().skip(column).step_by(9).copied();
                let norm = sum(of().map(|x| x * x)).sqrt();
                let made = unit.iter().skip(place).step_by(2);
                assert!(made.zip(of()).all(|(made, x)| near(*made, x / norm)));
            }
            let product = sum(columns
                .iter()
                .skip(2)
                .step_by(9)
                .zip(columns.iter().skip(7).step_by(9))
                .map(|(a, b)| a * b));
            assert!(near(numbers(&out["matrix"])[2 * 9 + 7], product));
            assert_eq!(numbers(&out["wide"]).iter().sum::<f64>(), 2.0 * N as f64);
        }
        match &first {
            None => first = Some(had),
            Some(first) => assert!(*first == had, "{ranks} ranks have other bits"),
        }
    }
}

#[test]
fn small_arrays_and_those_of_other_shapes_are_the_work_of_one_rank() {
    let text = r#"
[read.sim]
[node.seen]
op = "map"
of = "sim.a"
function = "seen"
elementwise = true
[node.both]
op = "kernel"
of = ["seen", "sim.b"]
kernel = "gram:*"
member = "matrix"
shape = [2, 2]
[write.out]
variables = { both = "both" }
"#;
    let place = Place::new();
    for (shapes, n) in
        [([vec![40, 50], vec![40, 50]], 2000), ([vec![2, N as u64], vec![N as u64, 2]], 2 * N)]
    {
        let x: Vec<f64> = (0..n).map(|i| (i % 17) as f64).collect();
        let step = Step::from([
            variable("a", DType::F64, &shapes[0], &[], &x),
            variable("b", DType::F64, &shapes[1], &[], &x),
        ]);
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (report, had) = place.run(text, &functions(&seen), &[step], (1, 3));
        report.unwrap();
        let seen = seen.lock().unwrap();
        assert_eq!(seen.iter().map(Bounds::elements).collect::<Vec<_>>(), [n as u64]);
        let square = x.iter().map(|x| x * x).sum::<f64>();
        assert_eq!(numbers(&had["out"][0]["both"]), [square; 4]);
    }
}

#[test]
fn an_answer_that_was_not_said_is_an_error_of_all_ranks() {
    let text = r#"
[read.sim]
[node.counts]
op = "kernel"
of = "sim.T"
kernel = "hist:T,bins=7"
member = "counts"
shape = [6]
[write.out]
variables = { counts = "counts" }
"#;
    let place = Place::new();
    for ranks in [1, 3] {
        let (report, _) = place.run(text, &Functions::new(), &steps()[..1], (1, ranks));
        let e = report.unwrap_err();
        assert!(e.message().contains("node 'counts'"), "{e}");
        assert!(e.message().contains("its answer is 7 numbers, and [6] was said"), "{e}");
    }
}

#[test]
fn functions_of_files_are_refused_with_what_to_do() {
    for (function, hint) in [("a.so:f", "--load"), ("a.py:f", "run the flow from Python")] {
        let text = format!(
            "[read.sim]\n[node.m]\nop = \"map\"\nof = \"sim.T\"\nfunction = \"{function}\"\n[write.out]\nvariables = {{ m = \"m\" }}\n"
        );
        let e = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap_err();
        assert!(e.message().contains(&format!("node 'm' (map {function})")), "{e}");
        assert!(e.hint().unwrap().contains(hint), "{e}");
    }
}
