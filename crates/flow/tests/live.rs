//! Flows that are checked with what streams have now.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Place, variable};
use stead_core::{Bounds, DType, Error, Kind};
use stead_flow::{Checked, Flow, Functions, Graph, Options, check};
use stead_stream::{Home, Writer, Written};

/// A flow over `sim` with one node.
fn flow(node: &str) -> String {
    format!("[read.sim]\n[node.n]\n{node}\n[write.out]\nvariables = {{ n = \"n\" }}\n")
}

fn checked(text: &str) -> Checked {
    check(&Graph::parse(text).unwrap()).unwrap()
}

/// A stream of which one step is there, and goes on.
fn begun(place: &Place, written: &Written) -> Writer {
    let mut writer = Writer::open("sim", written).unwrap();
    let (_, (definition, bytes)) = variable("T", DType::F64, &[2, 3], &["y", "x"], &[1.5; 6]);
    let t = writer.define(definition).unwrap();
    writer.begin().unwrap();
    writer.put(t, &Bounds::new([0, 0], [2, 3]).unwrap(), &bytes).unwrap();
    writer.end().unwrap();
    assert_eq!(Home::open(&place.spaces).unwrap().describe("sim").unwrap().complete, 1);
    writer
}

/// Flows that the stream does not fit, and why.
fn wrong() -> [(String, Kind, &'static str); 4] {
    let declared = "[read.sim.variables]\nT = { dtype = \"f32\", shape = [2, 3] }\n[node.n]";
    let cast = "op = \"cast\"\nof = \"sim.T\"\nto = \"f32\"";
    [
        (
            flow("op = \"cast\"\nof = \"sim.U\"\nto = \"f32\""),
            Kind::NotFound,
            "stream 'sim' has no variable 'U', which node 'n' (cast f32) needs: there are T",
        ),
        (
            flow(cast).replace("[node.n]", declared),
            Kind::Usage,
            "variable 'T' of stream 'sim': it is f64 [2, 3] (y, x), and the flow says f32 [2, 3]",
        ),
        (
            flow("op = \"reduce\"\nof = \"sim.T\"\nhow = \"mean\"\nover = [\"z\"]"),
            Kind::Usage,
            "node 'n' (mean over z): there is no dimension 'z' in f64 [2, 3] (y, x); it comes of variable 'T' of stream 'sim'",
        ),
        (
            "[read.sim]\n[write.out]\nvariables = { n = \"sim.V\" }\n".to_owned(),
            Kind::NotFound,
            "stream 'sim' has no variable 'V', which stream 'out' needs: there are T",
        ),
    ]
}

#[test]
fn what_streams_have_is_held_against_a_flow() {
    let place = Place::new();
    let good = checked(&flow("op = \"reduce\"\nof = \"sim.T\"\nhow = \"mean\"\nover = [\"y\"]"));
    let live = |checked: &Checked| checked.live(&place.spaces);
    let e = live(&good).unwrap_err();
    assert_eq!(e.kind(), Kind::NotFound);
    assert!(e.message().contains("there is no stream 'sim'"), "{e}");
    let written = Written { readers: 0, ..place.written() };
    let early = Writer::open("sim", &written).unwrap();
    let e = live(&good).unwrap_err();
    assert_eq!(e.kind(), Kind::NotFound);
    assert!(e.message().contains("stream 'sim' has no step yet"), "{e}");
    early.close().unwrap();
    let writer = begun(&place, &written);
    let told = live(&good).unwrap().describe();
    assert_eq!(told.nodes[0].makes, [Some("f64 [3] (x)".to_owned())]);
    // What was declared is not known by itself.
    assert_eq!(good.describe().nodes[0].makes, [None]);
    for (text, kind, message) in wrong() {
        let e = live(&checked(&text)).unwrap_err();
        assert_eq!((e.kind(), e.message()), (kind, message));
    }
    writer.close().unwrap();
}

#[test]
fn a_flow_that_a_stream_does_not_fit_is_refused_before_it_reads() {
    let place = Place::new();
    let writer = begun(&place, &Written { readers: 0, ..place.written() });
    let home = Home::open(&place.spaces).unwrap();
    for (text, kind, message) in wrong() {
        let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
        let e = flow.run(&place.options()).unwrap_err();
        assert_eq!((e.kind(), e.message()), (kind, message));
        assert_eq!(home.describe("out").unwrap_err().kind(), Kind::NotFound);
        assert!(home.describe("sim").unwrap().readers.is_empty());
    }
    // Of several ranks all are told, and none waits for the others.
    for (text, _, message) in wrong() {
        let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
        std::thread::scope(|scope| {
            let run = |rank| {
                let options = Options { rank, ranks: 2, ..place.options() };
                let flow = &flow;
                scope.spawn(move || flow.run(&options).unwrap_err())
            };
            let both: Vec<Error> =
                [0, 1].map(run).into_iter().map(|thread| thread.join().unwrap()).collect();
            assert!(both.iter().any(|e| e.message() == message), "{both:?}");
        });
    }
    writer.close().unwrap();
}

#[test]
fn what_comes_may_have_what_is_not_there_yet() {
    let place = Place::new();
    let mut writer = begun(&place, &Written { readers: 0, ..place.written() });
    let text = "[read.sim]\nstart = \"next\"\n[write.out]\nvariables = { n = \"sim.U\" }\n";
    let flow = Flow::new(&Graph::parse(text).unwrap(), Functions::new()).unwrap();
    let running = flow.run_in_background(&place.options()).unwrap();
    let (_, (definition, bytes)) = variable("U", DType::I32, &[2], &[], &[1.0, 2.0]);
    let u = writer.define(definition).unwrap();
    // It comes when it has looked, and nobody waits for who has not come.
    let home = Home::open(&place.spaces).unwrap();
    while home.describe("sim").unwrap().readers.is_empty() {
        assert!(!running.is_over());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    writer.begin().unwrap();
    writer.put(u, &Bounds::new([0], [2]).unwrap(), &bytes).unwrap();
    writer.end().unwrap();
    writer.close().unwrap();
    assert_eq!(running.join().unwrap().steps, 1);
}

#[test]
fn recorded_steps_are_looked_at_as_well() {
    let place = Place::new();
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("sim").to_str().unwrap().to_owned();
    let persist = Some(folder.clone());
    begun(&place, &Written { persist, readers: 0, ..place.written() }).close().unwrap();
    let of =
        |node: &str| flow(node).replace("[read.sim]", &format!("[read.sim]\nstream = {folder:?}"));
    let good = checked(&of("op = \"cast\"\nof = \"sim.T\"\nto = \"f32\""));
    let told = good.live(&place.spaces).unwrap().describe();
    assert_eq!(told.nodes[0].makes, [Some("f32 [2, 3] (y, x)".to_owned())]);
    let text = of("op = \"cast\"\nof = \"sim.U\"\nto = \"f32\"");
    let message = format!("stream '{folder}' has no variable 'U'");
    let e = checked(&text).live(&place.spaces).unwrap_err();
    assert!(e.message().starts_with(&message), "{e}");
    let flow = Flow::new(&Graph::parse(&text).unwrap(), Functions::new()).unwrap();
    let e = flow.run(&place.options()).unwrap_err();
    assert!(e.message().starts_with(&message), "{e}");
}
