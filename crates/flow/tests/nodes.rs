//! Flows over nodes: threads of one process, each node with a memory of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Bounds, DType};
use stead_fabric::{Fabric, Local};
use stead_flow::{Flow, Functions, Graph, Options};
use stead_stream::{Coupling, Definition, Read, Reader, Writer, Written};

const TEXT: &str = r#"
[read.sim]
[node.total]
op = "reduce"
of = "sim.T"
how = "sum"
[node.rows]
op = "reduce"
of = "sim.T"
how = "mean"
over = [1]
[node.last]
op = "window"
of = "rows"
steps = 1
[node.few]
op = "select"
of = "sim.T"
slice = ["::7", "1::2"]
[write.out]
variables = { total = "total", rows = "rows", last = "last", few = "few" }
readers = 1
"#;

/// So large that all ranks of the flow add up a part each, and those of several nodes tell each other.
const SHAPE: [u64; 2] = [250, 288];
const STEPS: u64 = 6;

fn value(step: u64, y: u64, x: u64) -> f64 {
    step as f64 * 1e6 + y as f64 * 1e3 + x as f64 / 4.0
}

/// Each writer has a stretch of this dimension.
fn simulate(coupling: &Arc<Coupling>, along: usize) {
    let (rank, writers) = (coupling.rank(), coupling.ranks());
    let timeout = Duration::from_secs(60);
    let coupling = Some(coupling.clone());
    let options = Written { rank, writers, timeout, coupling, readers: 1, ..Written::default() };
    let mut writer = Writer::open("sim", &options).unwrap();
    let t = writer.define(Definition::new("T", DType::F64, SHAPE)).unwrap();
    let (from, to) = (SHAPE[along] * rank / writers, SHAPE[along] * (rank + 1) / writers);
    let mine = Bounds::new([0, 0], SHAPE).unwrap().slab(along, from..to).unwrap();
    for step in 0..STEPS {
        let [ys, xs] = [0, 1].map(|d| mine.sides().nth(d).unwrap());
        let rows = ys.flat_map(|y| xs.clone().map(move |x| value(step, y, x)));
        let bytes: Vec<u8> = rows.flat_map(f64::to_ne_bytes).collect();
        writer.begin().unwrap();
        writer.put(t, &mine, &bytes).unwrap();
        writer.end().unwrap();
    }
    writer.close().unwrap();
}

fn look(coupling: &Arc<Coupling>) {
    let timeout = Duration::from_secs(60);
    let options = Read { timeout, coupling: Some(coupling.clone()), ..Read::default() };
    let mut reader = Reader::open("out", &options).unwrap();
    let mut n = 0;
    while let Some(step) = reader.next_step().unwrap() {
        let get = |name: &str| -> Vec<f64> {
            let shape = step.variable(name).unwrap().shape.clone();
            let whole = Bounds::new(vec![0; shape.len()], &shape).unwrap();
            let mut bytes = vec![0; whole.elements() as usize * 8];
            step.get_into(name, &whole, &mut bytes).unwrap();
            bytes.chunks(8).map(|b| f64::from_ne_bytes(b.try_into().unwrap())).collect()
        };
        let row = |y: u64| (0..SHAPE[1]).map(move |x| value(n, y, x));
        let mean = |y: u64| row(y).sum::<f64>() / SHAPE[1] as f64;
        assert_eq!(get("rows"), (0..SHAPE[0]).map(mean).collect::<Vec<_>>());
        assert_eq!(get("last"), get("rows"));
        assert_eq!(get("total"), [(0..SHAPE[0]).flat_map(row).sum::<f64>()]);
        let few = (0..SHAPE[0]).step_by(7).flat_map(|y| row(y).skip(1).step_by(2));
        assert_eq!(get("few"), few.collect::<Vec<_>>());
        n += 1;
    }
    assert_eq!(n, STEPS);
}

/// Has each rank do its part, in a thread, with the memory of its node.
fn couple(parts: &[(&'static str, usize)], work: impl Fn(&'static str, Arc<Coupling>) + Sync) {
    let dir = tempfile::tempdir_in("/dev/shm").unwrap();
    let nodes: Vec<usize> = parts.iter().map(|(_, node)| *node).collect();
    let fabrics = Local::over_nodes(&nodes, Duration::from_secs(60));
    std::thread::scope(|scope| {
        for ((part, node), fabric) in parts.iter().zip(fabrics) {
            let mut spaces = Spaces::default();
            spaces.imply("memory", dir.path().join(format!("{node}")).to_str().unwrap());
            let work = &work;
            scope.spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                let timeout = Duration::from_secs(60);
                work(part, Coupling::new(fabric, part, &spaces, timeout).unwrap());
            });
        }
    });
}

/// Runs it with these ranks, each on a node; gives the bytes that the flow has had from other nodes.
fn run(parts: &[(&'static str, usize)], along: usize) -> u64 {
    let fetched = AtomicU64::new(0);
    couple(parts, |part, coupling| match part {
        "sim" => simulate(&coupling, along),
        "view" => look(&coupling),
        _ => {
            let (rank, ranks) = (coupling.rank(), coupling.ranks());
            let (timeout, coupling) = (Duration::from_secs(60), Some(coupling));
            let options = Options { rank, ranks, timeout, coupling, ..Options::default() };
            let flow = Flow::new(&Graph::parse(TEXT).unwrap(), Functions::new()).unwrap();
            let report = flow.run(&options).unwrap();
            assert_eq!(report.steps, STEPS);
            fetched.fetch_add(report.fetched, Ordering::Relaxed);
        }
    });
    fetched.into_inner()
}

#[test]
fn ranks_on_several_nodes_share_the_work() {
    let fetched = run(&[("sim", 0), ("sim", 1), ("flow", 1), ("flow", 2), ("view", 0)], 0);
    // Half of it is on a node where no rank of the flow is, and comes once, but for what two nodes need.
    let half = STEPS * SHAPE[0] * SHAPE[1] * 8 / 2;
    assert!((half..half * 5 / 4).contains(&fetched), "{fetched} of {half}");
}

/// The first row of a slice may lie on the other node, and with it those up to the next one.
const BETWEEN: u64 = STEPS * 7 * SHAPE[1] * 8;

#[test]
fn each_rank_works_on_what_lies_on_its_node() {
    for nodes in [[0, 1], [1, 0]] {
        for along in [0, 1] {
            let flow = nodes.map(|node| ("flow", node));
            let parts = [("sim", 0), ("sim", 1), flow[0], flow[1], ("view", 0)];
            let fetched = run(&parts, along);
            assert!(fetched <= BETWEEN, "{nodes:?}, dimension {along}: {fetched}");
        }
    }
    // Two on each, the other way round.
    let flow = [1, 1, 0, 0].map(|node| ("flow", node));
    let parts = [
        ("sim", 0),
        ("sim", 0),
        ("sim", 1),
        ("sim", 1),
        flow[0],
        flow[1],
        flow[2],
        flow[3],
        ("view", 1),
    ];
    for along in [0, 1] {
        let fetched = run(&parts, along);
        assert!(fetched <= BETWEEN, "dimension {along}: {fetched}");
    }
}

/// Four variables on one node, and a flow on another one that adds each of them up: what it has to copy, all together, counts.
#[test]
fn what_is_copied_from_other_nodes_counts_together() {
    const NAMES: [&str; 4] = ["a", "b", "c", "d"];
    let each = 100 * 100 * 8u64;
    let nodes: String = NAMES
        .map(|n| format!("[node.{n}]\nop = \"reduce\"\nof = \"sim.{n}\"\nhow = \"sum\"\n"))
        .concat();
    let variables = NAMES.map(|n| format!("{n} = \"{n}\"")).join(", ");
    let text = format!("[read.sim]\n{nodes}[write.out]\nvariables = {{ {variables} }}\n");
    for (memory, fits) in [(each * 3 + 4096, false), (each * 4 + 4096, true)] {
        couple(&[("sim", 0), ("flow", 1)], |part, coupling| {
            let (timeout, coupling) = (Duration::from_secs(60), Some(coupling));
            if part == "sim" {
                let options = Written { timeout, coupling, readers: 1, ..Written::default() };
                let mut writer = Writer::open("sim", &options).unwrap();
                let all = NAMES
                    .map(|n| writer.define(Definition::new(n, DType::F64, [100, 100])).unwrap());
                writer.begin().unwrap();
                for variable in all {
                    let whole = Bounds::new([0, 0], [100, 100]).unwrap();
                    writer.put(variable, &whole, &vec![0; each as usize]).unwrap();
                }
                writer.end().unwrap();
                writer.close().unwrap();
                return;
            }
            let options = Options { timeout, coupling, memory, ..Options::default() };
            let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
            match (flow.run(&options), fits) {
                (Ok(report), true) => assert_eq!(report.steps, 1),
                (Err(e), false) => {
                    assert_eq!(e.kind(), stead_core::Kind::Limit, "{e}");
                    assert!(e.message().contains("variable 'd'"), "{e}");
                }
                (other, _) => panic!("{memory}: {other:?}"),
            }
        });
    }
}

/// What is read has another shape at each step, and what a window has of it has not.
#[test]
fn windows_have_what_they_had_when_arrays_change_their_shapes() {
    const TEXT: &str = r#"
[read.sim]
[node.sum]
op = "reduce"
of = "sim.T"
how = "sum"
over = [0]
[node.last]
op = "window"
of = "sum"
steps = 3
how = "sum"
[write.out]
variables = { last = "last" }
readers = 1
"#;
    const SIDES: [u64; 2] = [16, 128];
    let value = |step: u64, z: u64, y: u64, x: u64| (step * 7 + z * 3 + y * 11 + x) as f64;
    let depth = |step: u64| 4 + step % 3;
    let timeout = Duration::from_secs(60);
    let parts = [("sim", 0), ("sim", 1), ("flow", 1), ("flow", 0), ("view", 0)];
    couple(&parts, |part, coupling| {
        let (rank, ranks) = (coupling.rank(), coupling.ranks());
        let coupling = Some(coupling);
        match part {
            "sim" => {
                let how = Written { readers: 1, timeout, coupling, ..Written::default() };
                let how = Written { rank, writers: ranks, ..how };
                let mut writer = Writer::open("sim", &how).unwrap();
                for step in 0..STEPS {
                    // Each has a part of the middle dimension.
                    let (from, half) = (rank * SIDES[0] / 2, SIDES[0] / 2);
                    let shape = [depth(step), SIDES[0], SIDES[1]];
                    let t = writer.define(Definition::new("T", DType::F64, shape)).unwrap();
                    let mine = [depth(step), half, SIDES[1]];
                    let mine = Bounds::new([0, from, 0], mine).unwrap();
                    let rows = (0..depth(step)).flat_map(|z| {
                        (from..from + half)
                            .flat_map(move |y| (0..SIDES[1]).map(move |x| value(step, z, y, x)))
                    });
                    let bytes: Vec<u8> = rows.flat_map(f64::to_ne_bytes).collect();
                    writer.begin().unwrap();
                    writer.put(t, &mine, &bytes).unwrap();
                    writer.end().unwrap();
                }
                writer.close().unwrap();
            }
            "view" => {
                let how = Read { timeout, coupling, ..Read::default() };
                let mut reader = Reader::open("out", &how).unwrap();
                for n in 0..STEPS - 2 {
                    let step = reader.next_step().unwrap().unwrap();
                    let whole = Bounds::new([0, 0], SIDES).unwrap();
                    let mut bytes = vec![0; whole.elements() as usize * 8];
                    step.get_into("last", &whole, &mut bytes).unwrap();
                    let all = (0..SIDES[0]).flat_map(|y| (0..SIDES[1]).map(move |x| (y, x)));
                    for ((y, x), had) in all.zip(bytes.chunks(8)) {
                        let steps =
                            (n..n + 3).flat_map(|s| (0..depth(s)).map(move |z| value(s, z, y, x)));
                        let had = f64::from_ne_bytes(had.try_into().unwrap());
                        assert_eq!(had, steps.sum::<f64>(), "step {n}, {y}, {x}");
                    }
                }
                assert!(reader.next_step().unwrap().is_none());
            }
            _ => {
                let how = Options { rank, ranks, timeout, coupling, ..Options::default() };
                let graph = Graph::parse(TEXT).unwrap();
                let flow = Flow::new(&graph, Functions::new()).unwrap();
                let report = flow.run(&how).unwrap();
                assert_eq!((report.steps, report.fetched), (STEPS, 0));
            }
        }
    });
}

/// Writers of unequal parts: the first one has so many rows, on its node.
fn simulate_unevenly(coupling: &Arc<Coupling>, first: u64) {
    let (rank, timeout) = (coupling.rank(), Duration::from_secs(60));
    let coupling = Some(coupling.clone());
    let options = Written { rank, writers: 2, timeout, coupling, readers: 1, ..Written::default() };
    let mut writer = Writer::open("sim", &options).unwrap();
    let t = writer.define(Definition::new("T", DType::F64, SHAPE)).unwrap();
    let rows = if rank == 0 { 0..first } else { first..SHAPE[0] };
    let mine = Bounds::new([rows.start, 0], [rows.end - rows.start, SHAPE[1]]).unwrap();
    for step in 0..STEPS {
        let each = rows.clone().flat_map(|y| (0..SHAPE[1]).map(move |x| value(step, y, x)));
        let bytes: Vec<u8> = each.flat_map(f64::to_ne_bytes).collect();
        writer.begin().unwrap();
        writer.put(t, &mine, &bytes).unwrap();
        writer.end().unwrap();
    }
    writer.close().unwrap();
}

/// Runs a flow with two ranks that makes one number `out.n` of such parts, on the nodes where they are; gives the numbers, and the bytes that
/// it has had from other nodes.
fn number_of(text: &str, functions: &Functions, first: u64) -> (Vec<f64>, u64) {
    let (fetched, had) = (AtomicU64::new(0), std::sync::Mutex::new(Vec::new()));
    let parts = [("sim", 0), ("sim", 1), ("flow", 0), ("flow", 1), ("view", 1)];
    couple(&parts, |part, coupling| {
        let timeout = Duration::from_secs(60);
        match part {
            "sim" => simulate_unevenly(&coupling, first),
            "view" => {
                let how = Read { timeout, coupling: Some(coupling), ..Read::default() };
                let mut reader = Reader::open("out", &how).unwrap();
                while let Some(step) = reader.next_step().unwrap() {
                    let array = step.get("n", &Bounds::new([], []).unwrap()).unwrap();
                    let bytes = array.bytes()[..8].try_into().unwrap();
                    had.lock().unwrap().push(f64::from_ne_bytes(bytes));
                }
            }
            _ => {
                let (rank, ranks) = (coupling.rank(), coupling.ranks());
                let coupling = Some(coupling);
                let how = Options { rank, ranks, timeout, coupling, ..Options::default() };
                let flow = Flow::new(&Graph::parse(text).unwrap(), functions.clone()).unwrap();
                fetched.fetch_add(flow.run(&how).unwrap().fetched, Ordering::Relaxed);
            }
        }
    });
    (had.into_inner().unwrap(), fetched.into_inner())
}

/// Each of two nodes in turn has most of an array, and each of two ranks in turn would be whose node it is by its number.
#[test]
fn what_one_rank_makes_it_makes_where_most_of_it_lies() {
    let mut functions = Functions::new();
    functions.insert(
        "last".into(),
        Arc::new(|given, _, to| {
            let bytes = given[0].bytes();
            to.copy_from_slice(&bytes[bytes.len() - 8..]);
            Ok(())
        }),
    );
    let map = |name: &str| {
        format!("[node.{name}]\nop = \"map\"\nof = \"sim.T\"\nfunction = \"last\"\nshape = []\n")
    };
    // The node that is written is the first or the second one.
    for (nodes, of) in [(map("a"), "a"), (map("a") + &map("b"), "b")] {
        let writes = "[write.out]\nreaders = 1\nvariables = { n = ";
        let text = format!("[read.sim]\n{nodes}{writes}\"{of}\" }}\n");
        for first in [SHAPE[0] / 5, SHAPE[0] * 4 / 5] {
            let (had, fetched) = number_of(&text, &functions, first);
            let last = |n| value(n, SHAPE[0] - 1, SHAPE[1] - 1);
            assert_eq!(had, (0..STEPS).map(last).collect::<Vec<_>>());
            // Only what lies on the other node comes.
            let fewer = first.min(SHAPE[0] - first);
            assert_eq!(fetched, STEPS * fewer * SHAPE[1] * 8, "{of}, {first}");
        }
    }
}

#[test]
fn ranks_look_at_what_lies_on_their_nodes_for_a_kernel_too() {
    const KERNEL: &str = r#"
[read.sim]
[node.n]
op = "kernel"
of = "sim.T"
kernel = "quantile:T,q=1,exact"
[write.out]
readers = 1
variables = { n = "n" }
"#;
    let (had, fetched) = number_of(KERNEL, &Functions::new(), SHAPE[0] / 2);
    let last = |n| value(n, SHAPE[0] - 1, SHAPE[1] - 1);
    assert_eq!(had, (0..STEPS).map(last).collect::<Vec<_>>());
    // Whatever the ranks tell each other, nothing of the array moves.
    assert_eq!(fetched, 0);
}
