//! What is told of streams of all nodes of a pool, to who looks after them.

use super::{Pool, SHAPE, from, read, spaces, write};
use crate::common::{self, Barrier, LONG, bounds, wait_until, written};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use stead_core::{Bounds, Kind};
use stead_fabric::{Fabric, Local};
use stead_stream::{
    Basis, Coupling, Explanation, Listed, Progress, Reader, Survey, Warning, Writer, Written,
};

fn survey(dir: &Path, node: &str, pool: &Arc<Pool>) -> Survey {
    let (spaces, nodes) = (spaces(dir, node), Some(from(node, pool)));
    Survey { spaces, nodes, timeout: LONG, ..Survey::default() }
}

fn listed(survey: &Survey) -> Vec<(String, String)> {
    let named = |Listed { name, node }| (name, node.unwrap_or_default());
    survey.list().unwrap().found.into_iter().map(named).collect()
}

fn pairs(all: &[(&str, &str)]) -> Vec<(String, String)> {
    all.iter().map(|(name, node)| ((*name).to_owned(), (*node).to_owned())).collect()
}

#[test]
fn streams_of_all_nodes_are_listed_and_described() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c"]);
    let open = |name: &str, node: &str| {
        let mut writer = Writer::open(name, &written(&spaces(dir.path(), node))).unwrap();
        write(&mut writer, &bounds(&[0, 0], &SHAPE));
        writer
    };
    let _writers = [("sim", "a"), ("out", "b"), ("sim", "c")].map(|(name, node)| open(name, node));
    let from_b = survey(dir.path(), "b", &pool);
    assert_eq!(listed(&from_b), pairs(&[("out", "b"), ("sim", "a"), ("sim", "c")]));
    let all = from_b.describe_all().unwrap();
    assert!(all.missed.is_empty());
    assert_eq!(all.found.len(), 3);
    for (of, told) in &all.found {
        let told = told.as_ref().unwrap();
        assert_eq!((&told.name, &told.node), (&of.name, &of.node));
        assert_eq!((told.complete, told.all_writers, told.variables[0].shape.len()), (1, 1, 2));
    }
    // Each node tells of its own.
    let told = from_b.describe("sim").unwrap();
    assert_eq!((told.first.node.as_deref(), told.others.len()), (Some("a"), 1));
    assert_eq!(told.others[0].node.as_deref(), Some("c"));
    assert_eq!((told.first.state, told.missed.len()), (Progress::Live, 0));
    // What is here as a whole is not looked for elsewhere.
    let told = from_b.describe("out").unwrap();
    assert_eq!((told.first.node, told.others.len()), (None, 0));
    let none = from_b.describe("none").unwrap_err();
    assert_eq!(none.kind(), Kind::NotFound);
    assert!(none.message().contains("there is no stream 'none' on any of 3 nodes"), "{none}");
    for odd in ["", "..", ".hidden", "a b"] {
        assert_eq!(from_b.describe(odd).unwrap_err().kind(), Kind::Usage);
    }
    // Some nodes, which may be this one; and this one alone.
    for (only, want) in [("b", &[("out", "b")]), ("c", &[("sim", "c")])] {
        let some = Survey { only: vec![only.to_owned()], ..from_b.clone() };
        assert_eq!(listed(&some), pairs(want));
        let found = some.describe("out");
        assert_eq!(found.is_ok(), only == "b");
    }
    assert_eq!(listed(&Survey { nodes: None, ..from_b }), pairs(&[("out", "")]));
}

#[test]
fn a_node_that_does_not_answer_is_named_and_spoils_nothing() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c", "d"]);
    let mut writer = Writer::open("sim", &written(&spaces(dir.path(), "a"))).unwrap();
    write(&mut writer, &bounds(&[0, 0], &SHAPE));
    // One that cannot be looked at on its own node is told of, too.
    let homes = std::fs::read_dir(dir.path().join("a")).unwrap();
    let home = homes.map(|home| home.unwrap().path()).next().unwrap();
    std::fs::DirBuilder::new().mode(0o700).create(home.join("odd")).unwrap();
    std::fs::write(home.join("odd/board"), [0u8; 4096]).unwrap();
    pool.hung.lock().unwrap().push("b".to_owned());
    pool.gone.lock().unwrap().push("c".to_owned());
    let mut timeout = Duration::from_millis(200);
    let all = loop {
        let all = Survey { timeout, ..survey(dir.path(), "d", &pool) }.describe_all().unwrap();
        // The others have time enough.
        if all.missed.len() == 2 {
            break all;
        }
        assert!(timeout < Duration::from_secs(100), "{all:?}");
        timeout *= 2;
    };
    let missed: Vec<&str> = all.missed.iter().map(|m| m.node.as_deref().unwrap()).collect();
    assert_eq!(missed, ["b", "c"]);
    assert!(all.missed[1].to_string().contains("nothing of node c: "), "{:?}", all.missed);
    let [(odd, no), (sim, told)] = &all.found[..] else { panic!("{all:?}") };
    assert_eq!((odd.name.as_str(), sim.name.as_str()), ("odd", "sim"));
    assert!(no.as_ref().unwrap_err().message().contains("another version"), "{no:?}");
    assert_eq!(told.as_ref().unwrap().node.as_deref(), Some("a"));
    // Who waits for room among connections gets it.
    pool.hung.lock().unwrap().clear();
    pool.gone.lock().unwrap().clear();
    pool.most.store(1, std::sync::atomic::Ordering::Relaxed);
    let all = survey(dir.path(), "d", &pool).list().unwrap();
    assert!(all.missed.is_empty() && all.found.len() == 2, "{all:?}");
}

#[test]
fn a_stream_is_removed_on_the_nodes_that_are_named_and_each_of_them_is_told() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c"]);
    let open = |node: &str| {
        let mut writer = Writer::open("sim", &written(&spaces(dir.path(), node))).unwrap();
        write(&mut writer, &bounds(&[0, 0], &SHAPE));
        writer
    };
    let removed = |survey: &Survey, force: bool| {
        let told = survey.remove("sim", force).unwrap();
        let nodes = told.found.into_iter().map(|of| of.node.unwrap_or_default());
        let missed = told.missed.into_iter().map(|of| of.node.unwrap_or_default());
        (nodes.collect::<Vec<_>>(), missed.collect::<Vec<_>>())
    };
    let from_b = survey(dir.path(), "b", &pool);
    let named = |node: &str| Survey { only: vec![node.to_owned()], ..from_b.clone() };
    let [over, mut live, here] = ["a", "c", "b"].map(open);
    over.close().unwrap();
    here.close().unwrap();
    // One that is written stays, and is the error where nothing else goes.
    let e = named("c").remove("sim", false).unwrap_err();
    assert_eq!(e.kind(), Kind::Usage);
    assert!(e.message().ends_with("is being written or read on node c"), "{e}");
    // Only this one, although there are others.
    assert_eq!(removed(&Survey { nodes: None, ..from_b.clone() }, false).0, [""]);
    assert_eq!(listed(&from_b), pairs(&[("sim", "a"), ("sim", "c")]));
    assert_eq!(removed(&from_b, false), (vec!["a".to_owned()], vec!["c".to_owned()]));
    write(&mut live, &bounds(&[0, 0], &SHAPE));
    assert_eq!(listed(&from_b), pairs(&[("sim", "c")]));
    // A node that is gone keeps nobody from the others.
    pool.gone.lock().unwrap().push("a".to_owned());
    assert_eq!(removed(&from_b, true), (vec!["c".to_owned()], vec!["a".to_owned()]));
    assert!(live.begin().is_err());
    let e = from_b.remove("sim", true).unwrap_err();
    assert_eq!(e.kind(), Kind::NotFound);
    assert!(e.message().contains("not all were reached: the daemon of node 'a' is gone"), "{e}");
    pool.gone.lock().unwrap().clear();
    assert_eq!(removed(&from_b, true), (Vec::new(), Vec::new()));
    for odd in ["", "..", ".hidden", "a b"] {
        assert_eq!(from_b.remove(odd, true).unwrap_err().kind(), Kind::Usage);
    }
    // A folder is where it is.
    let e = from_b.remove("disk://run", true).unwrap_err();
    assert!(e.message().contains("no stream of other nodes"), "{e}");
}

/// What is told to a node that has a reader for each of these boxes, and no writer: these are two, on two other nodes, of which each has
/// half of the rows. And what is told of it when one of the nodes is gone.
fn explained(boxes: &[Bounds]) -> (Explanation, Explanation) {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c"]);
    let (wrote, told) = (Barrier::new(3), Barrier::new(3));
    let said = Mutex::new(None);
    thread::scope(|scope| {
        for (fabric, node) in Local::over_nodes(&[0, 1], LONG).into_iter().zip(["a", "c"]) {
            let (spaces, wrote, told) = (spaces(dir.path(), node), &wrote, &told);
            let readers = boxes.len() as u64;
            scope.spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                let coupling = Coupling::new(fabric, "simulation", &spaces, LONG).unwrap();
                let (rank, writers) = (coupling.rank(), coupling.ranks());
                let coupling = Some(coupling);
                let usual = written(&spaces);
                let options = Written { rank, writers, readers, coupling, ..usual };
                let mut writer = Writer::open("sim", &options).unwrap();
                let part = bounds(&[rank * 150, 0], &[150, SHAPE[1]]);
                (0..2).for_each(|_| write(&mut writer, &part));
                wrote.wait();
                told.wait();
                writer.close().unwrap();
            });
        }
        let open = |(number, _): (usize, &Bounds)| {
            let group = format!("g{number}");
            let options = stead_stream::Read { group, ..read(dir.path(), "b", &pool) };
            Reader::open("sim", &options).unwrap()
        };
        let mut readers: Vec<Reader> = boxes.iter().enumerate().map(open).collect();
        let mut peaks = Vec::new();
        wrote.wait();
        for (reader, wanted) in readers.iter_mut().zip(boxes) {
            let step = reader.next_step().unwrap().unwrap();
            step.get("T", wanted).unwrap();
            peaks.push(step.report().peak_steps);
            drop(step);
            // It is done with the one before.
            drop(reader.next_step().unwrap().unwrap());
        }
        let survey = survey(dir.path(), "b", &pool);
        let explain = || survey.explain("sim", 0).unwrap();
        // Errands come in their own time.
        let is_seen = |said: &Explanation| {
            said.readers.len() == boxes.len()
                && said.readers.iter().all(|reader| reader.basis == Basis::Step(0))
        };
        wait_until(|| is_seen(&explain()));
        let whole = explain();
        pool.gone.lock().unwrap().push("c".to_owned());
        let part = explain();
        pool.gone.lock().unwrap().clear();
        *said.lock().unwrap() = Some((whole, part));
        drop(readers);
        told.wait();
        // No writer was there: what their nodes have said is put together.
        assert!(peaks.iter().all(|peak| *peak >= Some(1.0)), "{peaks:?}");
    });
    said.into_inner().unwrap().unwrap()
}

#[test]
fn who_gets_what_from_whom_is_told_of_all_nodes_together() {
    let (whole, part) = explained(&[bounds(&[50, 10], &[200, 20])]);
    let [reader] = &whole.readers[..] else { panic!("{whole:?}") };
    assert_eq!((reader.basis, reader.copied, reader.looked), (Basis::Step(0), 200 * 20 * 8, 0));
    assert!(reader.is_elsewhere && reader.process == Some(std::process::id()));
    let nodes: Vec<_> =
        whole.writers.iter().map(|w| (w.rank, w.node.as_deref(), w.given)).collect();
    assert_eq!(nodes, [(0, Some("a"), 100 * 20 * 8), (1, Some("c"), 100 * 20 * 8)]);
    let pulls: Vec<_> = whole.pulls.iter().map(|p| (p.writer, p.copied, p.is_sent)).collect();
    assert_eq!(pulls, [(0, 100 * 20 * 8, true), (1, 100 * 20 * 8, true)]);
    assert_eq!((whole.elsewhere, whole.bytes), (0, SHAPE[0] * SHAPE[1] * 8));
    assert_eq!((whole.step, whole.copied, whole.missed.len()), (Some(1), 200 * 20 * 8, 0));
    // The memory of both.
    assert_eq!(whole.memory, 2 * part.memory);
    // Of a node that is gone it is told that it is, and nothing else.
    assert_eq!((part.elsewhere, part.copied), (1, 100 * 20 * 8));
    assert_eq!(part.missed.len(), 1);
    assert_eq!(part.missed[0].node.as_deref(), Some("c"));
}

#[test]
fn a_writer_that_all_get_most_from_is_warned_of_whatever_nodes_they_are_on() {
    let rows = bounds(&[10, 0], &[50, SHAPE[1]]);
    let (whole, part) = explained(&[rows.clone(), rows]);
    let hot = |said: &Explanation| -> Vec<String> {
        let hot = said.warnings.iter().filter(|warning| warning.kind == "hot writer");
        hot.map(|Warning { message, .. }| message.clone()).collect()
    };
    let [warning] = &hot(&whole)[..] else { panic!("{whole:?}") };
    assert_eq!(warning, "100 % of what 2 readers get is from writer 0 of 2");
    // To the one node it is alone, and sends nothing twice.
    assert_eq!(hot(&part), [""; 0]);
}
