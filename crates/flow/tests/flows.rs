//! Flows between streams whose writers and readers are threads of one process.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Place, Step, numbers, variable};
use proptest::prelude::*;
use std::sync::Arc;
use stead_core::{DType, Kind};
use stead_flow::{Flow, Functions, Graph, Options};
use stead_stream::{Presence, Reader, Stop, Writer};

/// Every operator, over `sim.a` and `sim.b` of shape (y, x) and a number `sim.n`.
const ALL: &str = r#"
name = "all"
[read.sim]
[node.slice]
op = "select"
of = "sim.a"
slice = { x = "1::2", y = "-3:" }
[node.row]
op = "select"
of = "sim.a"
slice = [0, "..."]
[node.small]
op = "cast"
of = "slice"
to = "f32"
[node.warm]
op = "scale"
of = "sim.b"
factor = 1.5
offset = -2.0
units = "K"
[node.length]
op = "magnitude"
of = ["sim.a", "sim.b"]
[node.parts]
op = "split"
of = "sim.a"
along = "x"
parts = ["left", "right"]
[node.back]
op = "merge"
of = ["parts.right", "parts.left"]
along = "x"
[node.wide]
op = "cast"
of = "sim.a"
to = "f64"
[node.other]
op = "cast"
of = "sim.b"
to = "f64"
[node.both]
op = "merge"
of = ["wide", "other"]
new = "which"
[node.total]
op = "reduce"
of = "sim.a"
how = "sum"
[node.column]
op = "reduce"
of = "both"
how = "mean"
over = ["y", "which"]
[node.low]
op = "reduce"
of = "slice"
how = "min"
over = [1]
[node.high]
op = "reduce"
of = "sim.b"
how = "max"
over = [-1]
[node.moments]
op = "reduce"
of = "both"
how = "moments"
over = ["x"]
[node.some]
op = "sample"
of = "both"
elements = 7
seed = 3
[node.double]
op = "map"
of = "sim.a"
function = "double"
elementwise = true
[node.turned]
op = "map"
of = ["sim.a", "sim.n"]
function = "turned"
shape = [4]
dtype = "i64"
[node.median]
op = "kernel"
of = "sim.b"
kernel = "quantile:b,q=0.5"
[node.last]
op = "window"
of = "sim.a"
steps = 3
[node.smooth]
op = "window"
of = "both"
steps = 2
every = 2
how = "mean"
[node.seldom]
op = "sample"
of = "total"
every = 2
[write.each]
variables = { row = "row", small = "small", warm = "warm", length = "length", back = "back", both = "both", total = "total", column = "column", low = "low", high = "high", moments = "moments", some = "some", double = "double", turned = "turned", median = "median", n = "sim.n" }
[write.windows]
variables = { last = "last" }
[write.smooth]
variables = { smooth = "smooth" }
[write.seldom]
variables = { seldom = "seldom" }
"#;

fn functions() -> Functions {
    let mut all = Functions::new();
    all.insert(
        "double".into(),
        Arc::new(|given, _, to| {
            assert_eq!(given[0].bytes().len(), to.len());
            let size = given[0].dtype.size();
            for (from, to) in given[0].bytes().chunks(size).zip(to.chunks_mut(size)) {
                match given[0].dtype {
                    DType::F64 => {
                        let x = f64::from_ne_bytes(from.try_into().unwrap());
                        to.copy_from_slice(&(x * 2.0).to_ne_bytes());
                    }
                    _ => to.copy_from_slice(from),
                }
            }
            Ok(())
        }),
    );
    // Four numbers that depend on all of the array.
    all.insert(
        "turned".into(),
        Arc::new(|given, wanted, to| {
            assert_eq!((wanted.dtype, wanted.bounds.count()), (DType::I64, &[4][..]));
            let sum: i64 = given[0].bytes().iter().map(|b| i64::from(*b)).sum();
            for (i, to) in to.chunks_mut(8).enumerate() {
                to.copy_from_slice(&(sum * i as i64).to_ne_bytes());
            }
            assert!(given[1].shape.is_empty());
            Ok(())
        }),
    );
    all
}

fn step(shape: [u64; 2], types: (DType, DType), x: &[f64]) -> Step {
    let n = (shape[0] * shape[1]) as usize;
    [
        variable("a", types.0, &shape, &["y", "x"], &x[..n]),
        variable("b", types.1, &shape, &["y", "x"], &x[n..2 * n]),
        variable("n", DType::F64, &[], &[], &x[..1]),
    ]
    .into()
}

fn at(x: &[f64], shape: [u64; 2], y: u64, i: u64) -> f64 {
    x[(y * shape[1] + i) as usize]
}

/// What the variables of a step have, by loops.
fn check_step(step: &Step, out: &Step) {
    let (a, b) = (&step["a"], &step["b"]);
    let shape: [u64; 2] = a.0.shape.clone().try_into().unwrap();
    let (va, vb) = (numbers(a), numbers(b));
    let [h, w] = shape;
    let of = |name: &str| numbers(&out[name]);
    let f32s = |x: f64| f64::from(x as f32);
    let rows: Vec<u64> = (h.saturating_sub(3)..h).collect();
    let columns: Vec<u64> = (1..w).step_by(2).collect();
    let mut sliced = Vec::new();
    for y in &rows {
        sliced.extend(columns.iter().map(|x| at(&va, shape, *y, *x)));
    }
    assert_eq!(of("small"), sliced.iter().map(|x| f32s(*x)).collect::<Vec<_>>());
    assert_eq!(out["small"].0.shape, [rows.len() as u64, columns.len() as u64]);
    assert_eq!(
        (out["small"].0.dtype, &out["small"].0.dims[..]),
        (DType::F32, &["y".to_owned(), "x".into()][..])
    );
    assert_eq!(of("row"), va[..w as usize]);
    let narrow = b.0.dtype == DType::F32;
    let warm = vb.iter().map(|x| if narrow { f32s(x * 1.5 - 2.0) } else { x * 1.5 - 2.0 });
    assert_eq!(of("warm"), warm.collect::<Vec<_>>());
    let narrow = narrow && a.0.dtype == DType::F32;
    let length = va.iter().zip(&vb).map(|(a, b)| (a * a + b * b).sqrt());
    let length = length.map(|x| if narrow { f32s(x) } else { x });
    assert_eq!(of("length"), length.collect::<Vec<_>>());
    // The left half is the longer one.
    let half = w.div_ceil(2);
    let turned = |y: u64| (half..w).chain(0..half).map(move |x| (y, x));
    let back: Vec<f64> = (0..h).flat_map(turned).map(|(y, x)| at(&va, shape, y, x)).collect();
    assert_eq!(of("back"), back);
    let both: Vec<f64> = va.iter().chain(&vb).copied().collect();
    assert_eq!(of("both"), both);
    let exact = |x: &mut dyn Iterator<Item = f64>| {
        let mut sum = stead_kernel::exact::ExactSum::new();
        let mut n = 0.0;
        x.for_each(|x| {
            sum.add(x);
            n += 1.0;
        });
        (sum.to_f64(), n)
    };
    assert_eq!(of("total"), [exact(&mut va.iter().copied()).0]);
    let near = |a: f64, b: f64| (a - b).abs() <= 1e-12 * (a.abs() + b.abs() + 1.0);
    for x in 0..w {
        let mut column = (0..h).flat_map(|y| [at(&va, shape, y, x), at(&vb, shape, y, x)]);
        let (sum, n) = exact(&mut column);
        assert!(near(of("column")[x as usize], sum / n));
    }
    if !columns.is_empty() {
        for (i, y) in rows.iter().enumerate() {
            let low = columns.iter().map(|x| at(&va, shape, *y, *x)).fold(f64::INFINITY, f64::min);
            assert_eq!(of("low")[i], low);
        }
    }
    for y in 0..h {
        let high = (0..w).map(|x| at(&vb, shape, y, x)).fold(f64::NEG_INFINITY, f64::max);
        assert_eq!(of("high")[y as usize], high);
    }
    let moments = of("moments");
    assert_eq!(out["moments"].0.dims, ["moment", "which", "y"]);
    for (row, x) in both.chunks(w as usize).enumerate() {
        let mean = x.iter().sum::<f64>() / w as f64;
        let scale: f64 = x.iter().map(|x| (x - mean).abs()).fold(mean.abs(), f64::max);
        for k in 1..=4 {
            let central = x.iter().map(|x| (x - mean).powi(k)).sum::<f64>() / w as f64;
            let wanted = if k == 1 { mean } else { central };
            let got = moments[(k as usize - 1) * 2 * h as usize + row];
            assert!((got - wanted).abs() <= 1e-9 * scale.powi(k) + 1e-300, "{k}: {got} {wanted}");
        }
    }
    let some = of("some");
    assert_eq!(some.len(), 7.min(both.len()));
    assert!(some.iter().all(|x| both.contains(x)));
    let mut sorted = vb.clone();
    sorted.sort_by(f64::total_cmp);
    let median = of("median")[0];
    assert!(sorted[0] <= median && median <= sorted[sorted.len() - 1]);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 10, max_shrink_iters: 0, ..ProptestConfig::default() })]
    #[test]
    fn every_operator_is_what_loops_are_and_any_split_is_the_same(
        shape in [3u64..7, 2..9],
        a in prop::sample::select(vec![DType::F64, DType::F32, DType::I32]),
        b in prop::sample::select(vec![DType::F64, DType::F32, DType::U8]),
        seed in any::<u32>(),
        writers in 1u64..4,
        ranks in 2u64..5,
    ) {
        let n = 2 * (shape[0] * shape[1]) as usize;
        let mut state = u64::from(seed);
        let mut next = move || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            ((state >> 33) % 2000) as f64 / 8.0
        };
        let steps: Vec<Step> =
            (0..4).map(|_| step(shape, (a, b), &(0..n).map(|_| next()).collect::<Vec<_>>())).collect();
        let place = Place::new();
        let (report, one) = place.run(ALL, &functions(), &steps, (1, 1));
        let report = report.unwrap();
        prop_assert_eq!((report.steps, report.dropped), (4, 0));
        prop_assert_eq!(one["each"].len(), 4);
        for (step, out) in steps.iter().zip(&one["each"]) {
            check_step(step, out);
        }
        // Windows of three of four steps, and pairs of them.
        let all = |name: &str| -> Vec<f64> { steps.iter().flat_map(|s| numbers(&s[name])).collect() };
        let area = n / 2;
        prop_assert_eq!(one["windows"].len(), 2);
        prop_assert_eq!(numbers(&one["windows"][1]["last"]), &all("a")[area..]);
        prop_assert_eq!(&one["windows"][0]["last"].0.dims, &["window", "y", "x"]);
        prop_assert_eq!(one["smooth"].len(), 2);
        let smooth = numbers(&one["smooth"][1]["smooth"]);
        for i in 0..area {
            let (x, y) = (all("b")[2 * area + i], all("b")[3 * area + i]);
            prop_assert_eq!(smooth[area + i], (x + y) / 2.0);
        }
        let seldom: Vec<f64> = one["seldom"].iter().map(|s| numbers(&s["seldom"])[0]).collect();
        let totals: Vec<f64> = one["each"].iter().map(|s| numbers(&s["total"])[0]).collect();
        prop_assert_eq!(seldom, vec![totals[0], totals[2]]);
        let (several, split) = place.run(ALL, &functions(), &steps, (writers, ranks));
        several.unwrap();
        prop_assert!(one == split, "{} writers and {} ranks have other bits", writers, ranks);
    }
}

/// A flow that reads `sim` and writes `T` of what a node makes.
fn with_node(node: &str) -> String {
    format!("[read.sim]\n[node.n]\n{node}\n[write.out]\nvariables = {{ T = \"n\" }}\nreaders = 1\n")
}

#[test]
fn large_arrays_are_reduced_by_several_threads_to_the_same_bits() {
    let (h, w) = (600u64, 1001u64);
    let x: Vec<f64> = (0..h * w).map(|i| ((i * 7919) % 10_007) as f64 * 1.1e-3 - 5.0).collect();
    let steps = [Step::from([variable("T", DType::F64, &[h, w], &[], &x)])];
    let place = Place::new();
    for node in [
        "op = \"reduce\"\nhow = \"sum\"",
        "op = \"reduce\"\nhow = \"mean\"\nover = [0]",
        "op = \"reduce\"\nhow = \"moments\"",
        "op = \"scale\"\nfactor = 3.0",
    ] {
        let text = with_node(&format!("{node}\nof = \"sim.T\""));
        let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
        let mut seen = Vec::new();
        for (threads, writers) in [(1, 1), (4, 3)] {
            std::thread::scope(|scope| {
                scope.spawn(|| place.write("sim", &steps, writers));
                let out = scope.spawn(|| place.collect("out"));
                flow.run(&Options { threads, ..place.options() }).unwrap();
                seen.push(out.join().unwrap().unwrap());
            });
        }
        assert!(seen[0] == seen[1], "{node}");
        if node.contains("sum") {
            let mut sum = stead_kernel::exact::ExactSum::new();
            sum.add_slice(&x);
            assert_eq!(numbers(&seen[0][0]["T"]), [sum.to_f64()]);
        }
    }
}

#[test]
fn casts_go_to_the_nearest_and_sums_of_whole_numbers_are_whole() {
    let place = Place::new();
    let x = [-1.0, 300.0, 0.0, 7.9, f64::NAN, -300.7];
    let steps = [Step::from([
        variable("x", DType::F64, &[6], &["i"], &x),
        variable("k", DType::I64, &[3], &["i"], &[1.0, -5.0, 9e18]),
    ])];
    let text = r#"
        [read.sim]
        [node.bytes]
        op = "cast"
        of = "sim.x"
        to = "u8"
        [node.signed]
        op = "cast"
        of = "sim.k"
        to = "i8"
        [node.sum]
        op = "reduce"
        of = "sim.k"
        how = "sum"
        [write.out]
        variables = { bytes = "bytes", signed = "signed", sum = "sum" }
    "#;
    let (report, out) = place.run(text, &Functions::new(), &steps, (1, 1));
    report.unwrap();
    let out = &out["out"][0];
    assert_eq!(numbers(&out["bytes"]), [0.0, 255.0, 0.0, 7.0, 0.0, 0.0]);
    assert_eq!(numbers(&out["signed"]), [1.0, -5.0, 127.0]);
    assert_eq!(out["sum"].0.dtype, DType::I64);
    assert_eq!(out["sum"].1, (9_000_000_000_000_000_000i64 - 4).to_ne_bytes());
}

#[test]
fn what_a_first_step_shows_to_be_wrong_is_one_clear_error_for_all() {
    let place = Place::new();
    let steps = [Step::from([
        variable("T", DType::F64, &[3, 4], &["y", "x"], &[1.0; 12]),
        variable("u", DType::I32, &[2], &[], &[1.0; 2]),
        variable("none", DType::I32, &[0], &[], &[]),
        variable("big", DType::I64, &[2], &[], &[9e18, 9e18]),
    ])];
    let cases = [
        (
            "op = \"reduce\"\nof = \"sim.T\"\nhow = \"mean\"\nover = [\"z\"]",
            Kind::Usage,
            "node 'n' (mean over z): there is no dimension 'z' in f64 [3, 4] (y, x)",
        ),
        (
            "op = \"reduce\"\nof = \"sim.U\"\nhow = \"mean\"",
            Kind::NotFound,
            "stream 'sim': no variable 'U' is in step 0: there are T, big, none, u",
        ),
        (
            "op = \"select\"\nof = \"sim.T\"\nslice = [5]",
            Kind::Usage,
            "node 'n' (select [5]): dimension 'y' of length 3: there is no index 5",
        ),
        (
            "op = \"magnitude\"\nof = [\"sim.T\", \"sim.u\"]",
            Kind::Usage,
            "its values have different shapes: f64 [3, 4] (y, x) and i32 [2]",
        ),
        (
            "op = \"merge\"\nof = [\"sim.T\", \"sim.u\"]\nalong = 0",
            Kind::Usage,
            "its values have different types",
        ),
        (
            "op = \"reduce\"\nof = \"sim.none\"\nhow = \"min\"",
            Kind::Usage,
            "there is no min of no elements",
        ),
        (
            "op = \"reduce\"\nof = \"sim.big\"\nhow = \"sum\"",
            Kind::Data,
            "a sum is 18000000000000000000 and does not fit i64",
        ),
        (
            "op = \"kernel\"\nof = \"sim.T\"\nkernel = \"hist:T,bins=4,min=0,max=2\"",
            Kind::Usage,
            "its answer has members",
        ),
        (
            "op = \"kernel\"\nof = \"sim.T\"\nkernel = \"hist:T,bins=4,min=0,max=2\"\nmember = \"counts\"",
            Kind::Usage,
            "its answer is 4 numbers, and [] was said",
        ),
        ("op = \"window\"\nof = \"sim.T\"\nsteps = 1000000", Kind::Limit, "the flow would take"),
    ];
    for (node, kind, message) in cases {
        let text = with_node(node);
        let options = Options { memory: 1 << 20, ..place.options() };
        let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| place.write("sim", &steps, 1));
            let out = scope.spawn(|| place.collect("out"));
            let e = flow.run(&options).unwrap_err();
            assert_eq!(e.kind(), kind, "{e}");
            assert!(e.message().contains(message), "{e}");
            // Who reads what it writes is told, too.
            let told = out.join().unwrap().unwrap_err();
            assert!(matches!(told.kind(), Kind::Peer), "{told}");
        });
    }
}

#[test]
fn a_histogram_is_a_variable() {
    let place = Place::new();
    let x: Vec<f64> = (0..100_000).map(|i| f64::from(i % 4)).collect();
    // More than writers can be ahead: none ends before all ranks have come.
    let one = Step::from([variable("T", DType::F32, &[100, 1000], &[], &x)]);
    let steps = [one.clone(), one.clone(), one.clone(), one];
    let text = with_node(
        "op = \"kernel\"\nof = \"sim.T\"\nkernel = \"hist:T,bins=4,min=0,max=4\"\nmember = \"counts\"\nshape = [4]",
    );
    let (report, out) = place.run(&text, &Functions::new(), &steps, (3, 2));
    report.unwrap();
    assert_eq!(numbers(&out["out"][3]["T"]), [25_000.0; 4]);
}

#[test]
fn a_source_that_fails_ends_the_flow_and_what_it_writes() {
    let place = Place::new();
    let text = with_node("op = \"reduce\"\nof = \"sim.T\"\nhow = \"sum\"");
    let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let running = flow.run_in_background(&place.options()).unwrap();
    let mut out = Reader::open("out", &place.read()).unwrap();
    let (_, (definition, bytes)) = variable("T", DType::F64, &[2], &[], &[1.0, 2.0]);
    let t = writer.define(definition).unwrap();
    writer.begin().unwrap();
    writer.put(t, &stead_core::Bounds::new([0], [2]).unwrap(), &bytes).unwrap();
    writer.end().unwrap();
    writer.abandon().unwrap();
    // What was complete is there, then the error.
    assert!(out.next_step().unwrap().is_some());
    assert_eq!(out.next_step().unwrap_err().kind(), Kind::Peer);
    assert_eq!(running.join().unwrap_err().kind(), Kind::Peer);
}

#[test]
fn the_program_that_writes_runs_it_and_may_stop_it() {
    let place = Place::new();
    let text = with_node("op = \"reduce\"\nof = \"sim.T\"\nhow = \"max\"");
    let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let running = flow.run_in_background(&place.options()).unwrap();
    let mut out = Reader::open("out", &place.read()).unwrap();
    let (_, (definition, bytes)) = variable("T", DType::F64, &[2], &[], &[1.0, 2.0]);
    let t = writer.define(definition).unwrap();
    let whole = stead_core::Bounds::new([0], [2]).unwrap();
    for n in 0..3 {
        writer.begin().unwrap();
        writer.put(t, &whole, &bytes).unwrap();
        writer.end().unwrap();
        let step = out.next_step().unwrap().unwrap();
        assert_eq!(step.number(), n);
        let max = step.get("T", &stead_core::Bounds::new([], []).unwrap()).unwrap();
        assert_eq!(max.bytes()[..8], 2f64.to_ne_bytes());
    }
    assert!(!running.is_over());
    running.stop();
    assert_eq!(running.join().unwrap_err().kind(), Kind::Cancelled);
    assert_eq!(out.next_step().unwrap_err().kind(), Kind::Peer);
    // The writer goes on without it.
    for _ in 0..5 {
        writer.begin().unwrap();
        writer.end().unwrap();
    }
    let home = stead_stream::Home::open(&place.spaces).unwrap();
    let told = home.describe("sim").unwrap();
    assert!(told.readers.iter().all(|r| r.presence == Presence::Left), "{told:?}");
    writer.close().unwrap();
}

#[test]
fn a_flow_that_waits_ends_when_it_is_told_and_when_nobody_comes() {
    let place = Place::new();
    let text = with_node("op = \"cast\"\nof = \"sim.T\"\nto = \"f32\"");
    let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
    let soon = std::time::Duration::from_millis(50);
    let e = flow.run(&Options { timeout: soon, ..place.options() }).unwrap_err();
    assert_eq!(e.kind(), Kind::Timeout);
    assert!(e.message().contains("nobody writes a stream 'sim'"), "{e}");
    let stop = Stop::when(|| Err(stead_core::Error::cancelled()));
    let e = flow.run(&Options { stop, ..place.options() }).unwrap_err();
    assert_eq!(e.kind(), Kind::Cancelled);
    let e = flow.run(&Options { rank: 2, ranks: 2, ..place.options() }).unwrap_err();
    assert!(e.message().contains("rank 2 of 2"), "{e}");
    let text = text.replace("[read.sim]", "[read.sim]\nnodes = [\"far\"]");
    let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
    let e = flow.run(&place.options()).unwrap_err();
    assert!(e.message().contains("stream 'sim' is looked for on nodes of a pool"), "{e}");
}

#[test]
fn shapes_may_change_but_not_within_a_window() {
    let place = Place::new();
    let of = |n: u64| Step::from([variable("T", DType::F64, &[n], &[], &vec![1.5; n as usize])]);
    let text = with_node("op = \"reduce\"\nof = \"sim.T\"\nhow = \"sum\"");
    let (report, out) = place.run(&text, &Functions::new(), &[of(2), of(5), of(3)], (1, 1));
    assert_eq!(report.unwrap().steps, 3);
    let sums: Vec<f64> = out["out"].iter().map(|s| numbers(&s["T"])[0]).collect();
    assert_eq!(sums, [3.0, 7.5, 4.5]);
    let text = with_node("op = \"window\"\nof = \"sim.T\"\nsteps = 2");
    let (report, _) = place.run(&text, &Functions::new(), &[of(2), of(5)], (1, 1));
    let e = report.unwrap_err();
    assert!(e.message().contains("its value was f64 [2] and is f64 [5] in step 1"), "{e}");
}

#[test]
fn a_function_of_whole_arrays_is_always_asked_for_all_of_what_it_makes() {
    let place = Place::new();
    let x: Vec<f64> = (0..8).map(f64::from).collect();
    let step = Step::from([variable("x", DType::F64, &[8], &[], &x)]);
    let steps = [step.clone(), step.clone(), step.clone(), step];
    let mut all = Functions::new();
    // Each number twice: 16 of 8, and each half is as long as what is given.
    all.insert(
        "twice".into(),
        Arc::new(|given, wanted, to| {
            assert_eq!(given[0].bounds.count(), &[8][..]);
            assert_eq!((wanted.bounds.count(), to.len()), (&[16][..], 16 * 8));
            let each = given[0].bytes().chunks(8).flat_map(|b| [b, b]);
            to.chunks_mut(8).zip(each).for_each(|(to, b)| to.copy_from_slice(b));
            Ok(())
        }),
    );
    let map = "[node.m]\nop = \"map\"\nof = \"sim.x\"\nfunction = \"twice\"\nshape = [16]\n";
    let twice: Vec<f64> = x.iter().flat_map(|x| [*x, *x]).collect();
    let slice = format!("{map}[node.n]\nop = \"select\"\nof = \"m\"\nslice = [\":8\"]\n");
    for (nodes, of, ranks, wanted) in [(&slice[..], "n", 1, &twice[..8]), (map, "m", 2, &twice)] {
        let text = format!("[read.sim]\n{nodes}[write.out]\nvariables = {{ T = \"{of}\" }}\n");
        let (report, out) = place.run(&text, &all, &steps, (1, ranks));
        report.unwrap();
        assert_eq!(numbers(&out["out"][0]["T"]), wanted);
    }
}

/// Writes a number in each of so many steps from 0 on, of which none is kept longer than need be.
fn count(place: &Place, name: &str, steps: u64, readers: u64) -> Writer {
    let written = stead_stream::Written { readers, keep: 1, queue: 20, ..place.written() };
    let mut writer = Writer::open(name, &written).unwrap();
    let t = writer.define(stead_stream::Definition::new("T", DType::F64, [])).unwrap();
    let whole = stead_core::Bounds::new([], []).unwrap();
    for step in 0..steps {
        writer.begin().unwrap();
        writer.put(t, &whole, &(step as f64).to_ne_bytes()).unwrap();
        writer.end().unwrap();
    }
    writer
}

const PAIRS: &str = r#"
[read.a]
[read.b]
[node.both]
op = "merge"
of = ["a.T", "b.T"]
new = "which"
[write.out]
variables = { T = "both" }
readers = 1
"#;

#[test]
fn steps_of_several_streams_go_together_by_their_numbers() {
    let place = Place::new();
    let flow = Flow::new(&Graph::parse(PAIRS).unwrap(), Functions::new()).unwrap();
    // Of `a` only the last one of six steps is left when the flow comes; `b` has all of its ten.
    let a = count(&place, "a", 6, 0);
    std::thread::scope(|scope| {
        let out = scope.spawn(|| place.collect("out"));
        let ran = scope.spawn(|| flow.run(&place.options()));
        count(&place, "b", 10, 1).close().unwrap();
        a.close().unwrap();
        let report = ran.join().unwrap().unwrap();
        assert_eq!((report.steps, report.dropped), (1, 0));
        // Steps 0 to 4 of `b`, and the one that was there when `a` ended.
        assert!((5..=6).contains(&report.unpaired), "{report:?}");
        let out = out.join().unwrap().unwrap();
        assert_eq!(out.len(), 1);
        assert_eq!(numbers(&out[0]["T"]), [5.0, 5.0]);
    });
}

#[test]
fn streams_without_a_step_in_common_are_an_error() {
    let place = Place::new();
    let flow = Flow::new(&Graph::parse(PAIRS).unwrap(), Functions::new()).unwrap();
    let a = count(&place, "a", 6, 0);
    std::thread::scope(|scope| {
        let out = scope.spawn(|| place.collect("out"));
        let ran = scope.spawn(|| flow.run(&place.options()));
        count(&place, "b", 3, 1).close().unwrap();
        let e = ran.join().unwrap().unwrap_err();
        assert_eq!(e.kind(), Kind::Data);
        assert!(e.message().contains("streams a, b have no step of the same number"), "{e}");
        assert_eq!(out.join().unwrap().unwrap_err().kind(), Kind::Peer);
    });
    a.close().unwrap();
}

#[test]
fn a_flow_reads_what_was_recorded_and_records_what_it_writes() {
    let place = Place::new();
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let record = stead_stream::Written { persist: Some(at("sim")), readers: 0, ..place.written() };
    let mut writer = Writer::open("sim", &record).unwrap();
    let t = writer.define(stead_stream::Definition::new("T", DType::F64, [6])).unwrap();
    for step in 0..5 {
        let x: Vec<u8> = (0..6).flat_map(|i| f64::from(step * 10 + i).to_ne_bytes()).collect();
        writer.begin().unwrap();
        writer.put(t, &stead_core::Bounds::new([0], [6]).unwrap(), &x).unwrap();
        writer.end().unwrap();
    }
    writer.close().unwrap();
    let mut seen = Vec::new();
    for ranks in [1, 2] {
        let (from, to) = (at("sim"), at(&format!("out{ranks}")));
        let text = format!(
            "[read.sim]\nstream = {from:?}\n[node.n]\nop = \"reduce\"\nof = \"sim.T\"\nhow = \"sum\"\n\
             [node.w]\nop = \"scale\"\nof = \"sim.T\"\nfactor = 2.0\n\
             [write.out]\nvariables = {{ n = \"n\", w = \"w\" }}\npersist = {to:?}\n"
        );
        let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
        std::thread::scope(|scope| {
            for rank in 0..ranks {
                let (flow, options) = (&flow, Options { rank, ranks, ..place.options() });
                scope.spawn(move || assert_eq!(flow.run(&options).unwrap().steps, 5));
            }
        });
        let steps = place.collect(&to).unwrap();
        let sums: Vec<f64> = steps.iter().map(|s| numbers(&s["n"])[0]).collect();
        assert_eq!(sums, [15.0, 75.0, 135.0, 195.0, 255.0]);
        seen.push(steps);
    }
    assert!(seen[0] == seen[1]);
}

#[test]
fn what_a_flow_is_behind_by_it_reads_from_files() {
    let place = Place::new();
    let dir = tempfile::tempdir().unwrap();
    let text = r#"
        [read.sim]
        start = "first"
        behind = "spill"
        [node.n]
        op = "scale"
        of = "sim.T"
        factor = 2.0
        [write.out]
        variables = { n = "n" }
        readers = 1
    "#;
    let flow = Flow::new(&Graph::parse(text).unwrap(), Functions::new()).unwrap();
    let folder = dir.path().join("sim").to_str().unwrap().to_owned();
    let keep =
        stead_stream::Written { persist: Some(folder), readers: 0, keep: 1, ..place.written() };
    let mut writer = Writer::open("sim", &keep).unwrap();
    let t = writer.define(stead_stream::Definition::new("T", DType::F64, [])).unwrap();
    let mut put = |step: f64| {
        writer.begin().unwrap();
        let whole = stead_core::Bounds::new([], []).unwrap();
        writer.put(t, &whole, &step.to_ne_bytes()).unwrap();
        writer.end().unwrap();
    };
    // Those before it comes have gone from memory; for those that come then nobody waits, though nobody reads what it writes.
    (0..8).for_each(|step| put(f64::from(step)));
    let running = flow.run_in_background(&place.options()).unwrap();
    (8..20).for_each(|step| put(f64::from(step)));
    std::thread::scope(|scope| {
        let out = scope.spawn(|| place.collect("out"));
        writer.close().unwrap();
        let report = running.join().unwrap();
        assert_eq!((report.steps, report.dropped), (20, 0));
        let seen: Vec<f64> =
            out.join().unwrap().unwrap().iter().map(|s| numbers(&s["n"])[0]).collect();
        assert_eq!(seen, (0..20).map(|n| f64::from(n) * 2.0).collect::<Vec<_>>());
    });
}

#[test]
fn kernels_work_on_the_rows_of_an_array() {
    let place = Place::new();
    // Two clusters of rows.
    let rows: Vec<[f64; 3]> = (0..1000)
        .map(|i| {
            let x = f64::from(i % 2) * 100.0;
            [x, x + f64::from(i % 5), 1.0]
        })
        .collect();
    let x: Vec<f64> = rows.iter().flatten().copied().collect();
    let step = Step::from([variable("T", DType::F64, &[1000, 3], &[], &x)]);
    let steps = [step.clone(), step.clone(), step.clone(), step];
    let text = r#"
        [read.sim]
        [node.gram]
        op = "kernel"
        of = "sim.T"
        kernel = "gram:*"
        member = "matrix"
        shape = [3, 3]
        rows = true
        [node.middles]
        op = "kernel"
        of = "sim.T"
        kernel = "kmeans:0,1,k=2"
        member = "centroids"
        shape = [2, 2]
        rows = true
        [node.mean]
        op = "kernel"
        of = "sim.T"
        kernel = "mean:1"
        rows = true
        [write.out]
        variables = { gram = "gram", middles = "middles", mean = "mean" }
    "#;
    let (report, out) = place.run(text, &Functions::new(), &steps, (3, 2));
    report.unwrap();
    let out = &out["out"][3];
    let product = |i: usize, j: usize| rows.iter().map(|r| r[i] * r[j]).sum::<f64>();
    let gram: Vec<f64> = (0..3).flat_map(|i| (0..3).map(move |j| product(i, j))).collect();
    assert_eq!(numbers(&out["gram"]), gram);
    assert_eq!(numbers(&out["mean"]), [52.0]);
    let mut middles: Vec<Vec<f64>> =
        numbers(&out["middles"]).chunks(2).map(<[f64]>::to_vec).collect();
    middles.sort_by(|a, b| a[0].total_cmp(&b[0]));
    assert_eq!(middles, [[0.0, 2.0], [100.0, 102.0]]);
}
