//! Flows: any text is parsed, checked, described and drawn, or refused in one line; what a rank says of its states is used within bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use stead_core::{Error, Kind};
use stead_flow::{Graph, check, draw, fuzzing};

fn refused(e: &Error) {
    assert!(matches!(e.kind(), Kind::Usage | Kind::Limit), "{e:?}");
}

fuzz_target!(|bytes: &[u8]| {
    if let Some((0, said)) = bytes.split_first() {
        return fuzzing::said(said);
    }
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let graph = match Graph::parse(text) {
        Ok(graph) => graph,
        Err(e) => return refused(&e),
    };
    let again = graph.to_toml().expect("what was read can be written");
    let again = Graph::parse(&again).expect("what was written is read");
    let checked = match check(&graph) {
        Ok(checked) => checked,
        Err(e) => {
            // Also where a number is none, which is unlike itself.
            assert!(check(&again).is_err());
            return refused(&e);
        }
    };
    assert_eq!(again, graph);
    let told = checked.describe();
    assert_eq!(told.nodes.len(), graph.node.len());
    assert_eq!(told, check(&again).expect("the same makes sense").describe());
    let picture = draw::svg(&checked);
    assert!(picture.starts_with("<svg") && picture.trim_end().ends_with("</svg>"));
    if let Err(e) = draw::png(&checked) {
        refused(&e);
    }
});
