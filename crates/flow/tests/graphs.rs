//! Graphs: what is refused before anything runs, and with which words.

#![allow(clippy::unwrap_used, clippy::panic)]

use proptest::prelude::*;
use stead_core::{Error, Kind};
use stead_flow::{Flow, Functions, Graph, check};

const GOOD: &str = r#"
name = "good"
[read.sim]
stream = "simulation"
[read.sim.variables]
T = { dtype = "f64", shape = [3, 4], dims = ["y", "x"] }
u = { dtype = "f32", shape = [3, 4], dims = ["y", "x"] }
[node.parts]
op = "split"
of = "sim.T"
along = "x"
parts = ["left", "right"]
[node.mean]
op = "reduce"
of = "parts.left"
how = "mean"
over = ["y"]
[node.last]
op = "window"
of = "mean"
steps = 4
[write.out]
variables = { mean = "mean" }
[write.windows]
variables = { last = "last" }
keep = 2
memory = "64MiB"
"#;

#[test]
fn a_good_graph_is_in_order_and_its_shapes_are_known() {
    let graph = Graph::parse(GOOD).unwrap();
    let checked = check(&graph).unwrap();
    let names: Vec<&str> = checked.nodes.iter().map(|n| n.name.as_str()).collect();
    assert_eq!(names, ["parts", "mean", "last"]);
    let known: Vec<(String, String, String)> = checked
        .slots
        .iter()
        .zip(&checked.forms)
        .map(|(s, f)| (s.name.clone(), f.as_ref().unwrap().describe(), s.rate.describe()))
        .collect();
    let own = |a: &str, b: &str, c: &str| (a.to_owned(), b.to_owned(), c.to_owned());
    assert_eq!(
        known,
        [
            own("sim.T", "f64 [3, 4] (y, x)", "each step"),
            own("parts.left", "f64 [3, 2] (y, x)", "each step"),
            own("parts.right", "f64 [3, 2] (y, x)", "each step"),
            own("mean", "f64 [2] (x)", "each step"),
            own("last", "f64 [4, 2] (window, x)", "each step from 3"),
        ]
    );
    assert_eq!(checked.writes[1].memory, Some(64 << 20));
    let again = Graph::parse(&graph.to_toml().unwrap()).unwrap();
    assert_eq!(again, graph);
}

fn refused(text: &str) -> Error {
    let graph = match Graph::parse(text) {
        Ok(graph) => graph,
        Err(e) => return e,
    };
    match check(&graph) {
        Ok(_) => panic!("this was not refused:\n{text}"),
        Err(e) => e,
    }
}

#[test]
fn what_is_wrong_is_named_before_anything_runs() {
    let with = |more: &str| format!("{GOOD}\n{more}");
    let node = |name: &str, lines: &str| with(&format!("[node.{name}]\n{lines}"));
    let cases = [
        (
            node(
                "a",
                "op = \"cast\"\nof = \"b\"\nto = \"f32\"\n[node.b]\nop = \"cast\"\nof = \"c\"\nto = \"f32\"\n[node.c]\nop = \"cast\"\nof = \"a\"\nto = \"f32\"",
            ),
            "nodes need each other: ",
        ),
        (node("a", "op = \"cast\"\nof = \"a\"\nto = \"f32\""), "nodes need each other: a -> a"),
        (
            node("a", "op = \"cast\"\nof = \"men\"\nto = \"f32\""),
            "node 'a' (cast f32): there is no node and no stream 'men' that is read",
        ),
        (node("a", "op = \"cast\"\nof = \"sim\"\nto = \"f32\""), "'sim' is a stream and no value"),
        (node("a", "op = \"cast\"\nof = \"parts\"\nto = \"f32\""), "'parts' makes several values"),
        (node("a", "op = \"cast\"\nof = \"parts.top\"\nto = \"f32\""), "'parts' has no part 'top'"),
        (
            node("a", "op = \"cast\"\nof = \"mean.x\"\nto = \"f32\""),
            "'mean' makes one value and has no part 'x'",
        ),
        (node("a", "op = \"cast\"\nof = \"sim.T\"\nto = \"f16\""), "f16"),
        (node("a", "op = \"cats\"\nof = \"sim.T\"\nto = \"f32\""), "unknown variant `cats`"),
        (node("a", "op = \"cast\"\nof = \"sim.T\"\nto = \"f32\"\ntoo = 1"), "too"),
        (node("a", "op = \"reduce\"\nof = \"sim.T\"\nhow = \"median\""), "median"),
        (
            node("a", "op = \"reduce\"\nof = \"sim.T\"\nhow = \"sum\"\nover = [\"z\"]"),
            "node 'a' (sum over z): there is no dimension 'z' in f64 [3, 4] (y, x)",
        ),
        (
            node("a", "op = \"reduce\"\nof = \"sim.T\"\nhow = \"sum\"\nover = [0, \"y\"]"),
            "a dimension is named twice",
        ),
        (
            node("a", "op = \"reduce\"\nof = \"sim.T\"\nhow = \"sum\"\nover = [2]"),
            "there is no dimension 2",
        ),
        (node("a", "op = \"select\"\nof = \"sim.T\"\nslice = [\"::0\"]"), "a step of 0"),
        (
            node("a", "op = \"select\"\nof = \"sim.T\"\nslice = [0, 0, 0]"),
            "a slice of 3 dimensions",
        ),
        (
            node("a", "op = \"select\"\nof = \"sim.T\"\nslice = { x = \"a:b\" }"),
            "'a:b' is no slice",
        ),
        (
            node("a", "op = \"magnitude\"\nof = [\"sim.T\", \"mean\"]"),
            "different shapes: f64 [3, 4] (y, x) and f64 [2] (x)",
        ),
        (node("a", "op = \"magnitude\"\nof = []"), "it needs one value at least"),
        (
            node("a", "op = \"merge\"\nof = [\"sim.T\", \"sim.u\"]\nalong = \"x\""),
            "different types: f64 [3, 4] (y, x) and f32",
        ),
        (
            node("a", "op = \"merge\"\nof = [\"sim.T\", \"parts.left\"]\nalong = \"y\""),
            "do not fit together",
        ),
        (node("a", "op = \"merge\"\nof = [\"sim.T\"]"), "one of 'along'"),
        (
            node("a", "op = \"merge\"\nof = [\"sim.T\"]\nnew = \"x\""),
            "a new dimension 'x' would be the second one",
        ),
        (
            node("a", "op = \"split\"\nof = \"sim.T\"\nalong = \"x\"\nparts = [\"a\", \"a\"]"),
            "two parts have the name 'a'",
        ),
        (
            node(
                "a",
                "op = \"split\"\nof = \"sim.T\"\nalong = \"x\"\nparts = [\"a\", \"b\"]\nat = [9]",
            ),
            "a cut at 9 of a dimension of length 4",
        ),
        (
            node(
                "a",
                "op = \"split\"\nof = \"sim.T\"\nalong = \"x\"\nparts = [\"a\", \"b\"]\nat = [1, 2]",
            ),
            "2 cuts make 3 parts",
        ),
        (node("a", "op = \"window\"\nof = \"sim.T\"\nsteps = 0"), "a window of 0 steps"),
        (node("a", "op = \"sample\"\nof = \"sim.T\""), "it needs 'every'"),
        (node("a", "op = \"sample\"\nof = \"sim.T\"\nelements = 0"), "a sample of 0 elements"),
        (node("a", "op = \"scale\"\nof = \"sim.T\"\nfactor = nan"), "finite numbers"),
        (node("a", "op = \"map\"\nof = \"sim.T\"\nfunction = \"\""), "the function has no name"),
        (
            node("a", "op = \"map\"\nof = \"sim.T\"\nfunction = \"f\"\nshape = [2]\ndims = []"),
            "0 names for 1 dimensions",
        ),
        (node("a", "op = \"kernel\"\nof = \"sim.T\"\nkernel = \"men:T\""), "no kernel 'men'"),
        (node("a", "op = \"kernel\"\nof = \"sim.T\"\nkernel = \"mean:u\""), "no column 'u'"),
        (
            node("a", "op = \"kernel\"\nof = [\"sim.T\", \"sim.u\"]\nkernel = \"lines\""),
            "kernel 'lines' works on the bytes of one value",
        ),
        (
            node("a", "op = \"kernel\"\nof = \"sim.T\"\nkernel = \"entropy\"\nrows = true"),
            "kernel 'entropy' works on the bytes of one value",
        ),
        (
            node("a", "op = \"kernel\"\nof = \"sim.T\"\nkernel = \"normalize:T,out=x.npy\""),
            "what it makes is an array of the flow, and has no 'out'",
        ),
        (
            node("a", "op = \"kernel\"\nof = \"sim.T\"\nkernel = \"normalize:T\"\nshape = [12]"),
            "what it makes has the shape of its value",
        ),
        (
            node("a", "op = \"kernel\"\nof = [\"sim.T\", \"sim.u\"]\nkernel = \"normalize:*\""),
            "it works on one value",
        ),
        (
            node("a", "op = \"map\"\nof = \"sim.T\"\nfunction = \"libheat.so:\""),
            "'libheat.so:' names no function of a file",
        ),
        (
            node("a", "op = \"magnitude\"\nof = [\"mean\", \"last\"]"),
            "its values come at different steps: 'mean' each step, 'last' each step from 3",
        ),
        (
            node("sim", "op = \"cast\"\nof = \"mean\"\nto = \"f32\""),
            "'sim' is both a stream that is read and a node",
        ),
        (
            with("[write.both]\nvariables = { a = \"mean\", b = \"last\" }"),
            "stream 'both' that is written: its values come at different steps",
        ),
        (with("[write.none]\nvariables = {}"), "stream 'none' that is written: it has no variable"),
        (
            with("[write.simulation]\nvariables = { a = \"mean\" }"),
            "read (as 'sim') and written by the same flow: that would be a cycle",
        ),
        (
            with("[write.x]\nvariables = { a = \"mean\" }\nmemory = \"lots\""),
            "stream 'x' that is written",
        ),
        (with("[read.again]\nstream = \"simulation\""), "stream 'simulation' is read twice"),
        (with("[read.again]\nqueue = 0"), "stream 'again' is read with a queue of 0 steps"),
        (
            with("[write.x]\nvariables = { a = \"mean\" }\npersist = \"a/b\"\nspill = \"c/d\""),
            "stream 'x' that is written: a stream that is recorded spills there, too",
        ),
        (
            with("[write.x]\nvariables = { a = \"mean\" }\nspill_limit = \"1GiB\""),
            "stream 'x' that is written: there is a limit for what spills",
        ),
        (
            with(
                "[write.x]\nvariables = { a = \"mean\" }\nspill = \"c/d\"\nspill_limit = \"much\"",
            ),
            "stream 'x' that is written",
        ),
        (
            with("[node.k]\nop = \"kernel\"\nof = \"sim.T\"\nkernel = \"grep:x\""),
            "kernel 'grep' looks for text in records, and arrays of a flow have none",
        ),
        (
            with("[node.k]\nop = \"kernel\"\nof = \"sim.T\"\nkernel = \"mean:T\"\nrows = true"),
            "node 'k' (mean:T): ",
        ),
        (
            with(
                "[node.k]\nop = \"kernel\"\nof = \"last\"\nkernel = \"gram:*\"\nrows = true\nmember = \"matrix\"\n[node.l]\nop = \"kernel\"\nof = \"mean\"\nkernel = \"gram:*\"\nrows = true",
            ),
            "node 'l' (gram:*): it is f64 [2] (x), and no 2-d array",
        ),
        (with("[read.'a b']"), "cannot have the name 'a b'"),
        ("[read.sim]".to_owned(), "the flow writes no stream"),
        ("name = 3".to_owned(), "this is no flow: line 1"),
        // Of a node the key is named, and its line is told.
        (
            "[read.sim]\n[node.m]\nop = \"reduce\"\nof = \"sim.T\"\n\nhow = \"median\"\n".to_owned(),
            "line 6: node 'm': how: unknown variant `median`",
        ),
        (
            "[node.a]\nop = \"scale\"\nof = \"sim.T\"\n[node.b]\nop = \"window\"\nsteps = \"4\"\nof = \"a\"\n".to_owned(),
            "line 6: node 'b': steps: invalid type: string \"4\", expected u64",
        ),
        (
            "[node.a]\nop = \"scale\"\nof = \"sim.T\"\nfaktor = 2.0\n".to_owned(),
            "line 4: node 'a': faktor: unknown field `faktor`",
        ),
        ("[node.a]\nof = \"sim.T\"\nop = \"scales\"".to_owned(), "line 3: node 'a': op: unknown variant `scales`"),
        ("\n[node.a]\nop = \"reduce\"\nhow = \"sum\"".to_owned(), "line 2: node 'a': missing field `of`"),
        (
            "node.a = { op = \"map\", function = \"f\", of = 3 }".to_owned(),
            "line 1: node 'a': of: a value is wanted, or a list of values",
        ),
        (
            "[read.sim]\n[write.o]\nvariables = { T = \"sim.T\" }\nkeep = \"x\"".to_owned(),
            "line 4: invalid type: string \"x\", expected u64",
        ),
        // What is read and written has to have a name that a stream can have.
        ("[read.sim]\n[write.\"a b\"]\nvariables = { T = \"sim.T\" }".to_owned(), "[write]: 'a b' is no name for a stream"),
        ("[read.sim]\n[write.\"a/b\"]\nvariables = { T = \"sim.T\" }".to_owned(), "[write]: 'a/b' is no name for a stream"),
        (
            "[read.sim]\nstream = \"a b\"\n[write.o]\nvariables = { T = \"sim.T\" }".to_owned(),
            "[read.sim]: 'a b' is no name for a stream",
        ),
        (
            "read = { sim = { variables = { T = { dtype = \"f64\", shape = [-1] } } } }".to_owned(),
            "this is no flow",
        ),
    ];
    for (text, message) in cases {
        let e = refused(&text);
        assert!(matches!(e.kind(), Kind::Usage), "{e}");
        assert!(e.message().contains(message), "'{e}' does not have '{message}'");
        assert!(!e.message().contains('\n'), "{e}");
    }
}

#[test]
fn a_file_that_is_no_text_is_told_as_that() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("f.toml");
    std::fs::write(&path, b"\x7fELF\xff\xfe").unwrap();
    let e = Graph::load(&path).unwrap_err();
    assert_eq!(e.kind(), Kind::Usage);
    assert_eq!(
        e.to_string(),
        format!("{}: this is no flow: it is not text in UTF-8", path.display())
    );
}

#[test]
fn a_function_that_nobody_gives_is_named() {
    let text = format!("{GOOD}\n[node.a]\nop = \"map\"\nof = \"sim.T\"\nfunction = \"mine\"\n");
    let graph = Graph::parse(&text).unwrap();
    check(&graph).unwrap();
    let e = Flow::new(&graph, Functions::new()).unwrap_err();
    assert!(
        e.message().contains("node 'a' (map mine): the program gives no function 'mine'"),
        "{e}"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn no_text_makes_it_panic(
        text in "\\PC{0,60}",
        places in prop::collection::vec((any::<prop::sample::Index>(), "[a-z0-9\\[\\]{}\"'=.,: \n-]{0,4}"), 0..4),
        numbers in prop::collection::vec(any::<i64>(), 3),
    ) {
        let _ = Graph::parse(&text).and_then(|graph| check(&graph));
        let mut odd = GOOD.to_owned();
        for (at, what) in places {
            let at = at.index(odd.len());
            if odd.is_char_boundary(at) && odd.is_char_boundary((at + what.len()).min(odd.len())) {
                odd.replace_range(at..(at + what.len()).min(odd.len()), &what);
            }
        }
        let [a, b, c] = numbers[..] else { unreachable!() };
        odd += &format!(
            "\n[node.z]\nop = \"select\"\nof = \"sim.T\"\nslice = [\"{a}:{b}:{c}\", {a}]\n\
             [node.y]\nop = \"window\"\nof = \"sim.T\"\nsteps = {}\nevery = {}\n\
             [node.q]\nop = \"sample\"\nof = \"y\"\nevery = {}\n\
             [node.w]\nop = \"reduce\"\nof = \"sim.T\"\nhow = \"sum\"\nover = [{c}]\n",
            a.unsigned_abs() >> 44, b.unsigned_abs() >> 1, c.unsigned_abs() >> 1,
        );
        if let Ok(graph) = Graph::parse(&odd) {
            let _ = check(&graph);
            let text = graph.to_toml().unwrap();
            prop_assert_eq!(Graph::parse(&text).unwrap(), graph, "{}", text);
        }
    }
}
