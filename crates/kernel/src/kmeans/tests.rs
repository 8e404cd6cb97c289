use super::points::tests::{Table, table};
use super::*;
use crate::{AnyKernel, AnyState, Step, laws};
use proptest::prelude::*;
use std::sync::Mutex;
use stead_core::block::{Note, Notes};
use stead_core::{Block, ColumnInfo, ColumnKind, MISSING, RecordKind, Schema, Value};

fn schema(d: usize) -> Schema {
    let column = |i| ColumnInfo { name: format!("x{i}"), kind: ColumnKind::Number };
    Schema { records: RecordKind::Delimited, columns: (0..d).map(column).collect(), shape: None }
}

fn make(spec: &str, d: usize) -> Result<Built> {
    let context = Context { schema: &schema(d), path: None, grouped: false };
    crate::registry::build(&Spec::parse(spec)?, &context)
}

/// Runs over one file, cut at `cuts`.
fn run(spec: &str, points: &[Vec<f64>], d: usize, cuts: &[usize]) -> Value {
    let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (points.len() + 1)).collect();
    cuts.extend([0, points.len()]);
    cuts.sort_unstable();
    let tables: Vec<Table> =
        cuts.windows(2).map(|w| table(&points[w[0]..w[1]], d, w[0] as u64)).collect();
    let blocks: Vec<Block<'_>> = tables.iter().map(|t| t.block(0)).collect();
    laws::check(make(spec, d).expect("build").kernel, &blocks)
}

fn list(v: &Value) -> &[Value] {
    match v {
        Value::List(l) => l,
        _ => panic!("not a list"),
    }
}

fn centroids(v: &Value) -> Vec<Vec<f64>> {
    list(v.get("centroids").expect("centroids"))
        .iter()
        .map(|c| list(c).iter().map(|x| x.as_f64().expect("float")).collect())
        .collect()
}

fn number(v: &Value, key: &str) -> f64 {
    v.get(key).and_then(Value::as_f64).expect("number")
}

fn sizes(v: &Value) -> Vec<f64> {
    list(v.get("sizes").expect("sizes")).iter().map(|x| x.as_f64().expect("int")).collect()
}

fn square(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0, |s, (x, y)| s + (x - y) * (x - y))
}

fn assign(points: &[Vec<f64>], centres: &[Vec<f64>]) -> Vec<usize> {
    let nearest = |p: &Vec<f64>| {
        let d: Vec<f64> = centres.iter().map(|c| square(p, c)).collect();
        (0..d.len()).fold(0, |best, c| if d[c] < d[best] { c } else { best })
    };
    points.iter().map(nearest).collect()
}

/// Lloyd as in the textbook. For integer coordinates plain sums are exact.
fn textbook(
    points: &[Vec<f64>],
    mut centres: Vec<Vec<f64>>,
    rounds: usize,
) -> (Vec<Vec<f64>>, usize) {
    for round in 1..=rounds {
        let of = assign(points, &centres);
        let mut next = centres.clone();
        for (c, centre) in next.iter_mut().enumerate() {
            let own: Vec<&Vec<f64>> =
                points.iter().zip(&of).filter(|(_, o)| **o == c).map(|(p, _)| p).collect();
            if own.is_empty() {
                continue;
            }
            for (j, x) in centre.iter_mut().enumerate() {
                *x = own.iter().map(|p| p[j]).sum::<f64>() / own.len() as f64;
            }
        }
        if next == centres {
            return (centres, round);
        }
        centres = next;
    }
    (centres, rounds)
}

fn first_distinct(points: &[Vec<f64>], k: usize) -> Vec<Vec<f64>> {
    let mut seen: Vec<Vec<f64>> = vec![];
    for p in points {
        if seen.len() < k && !seen.contains(p) {
            seen.push(p.clone());
        }
    }
    seen
}

fn cloud() -> impl Strategy<Value = (usize, Vec<Vec<f64>>)> {
    (1usize..4).prop_flat_map(|d| {
        let point = proptest::collection::vec((-20i32..20).prop_map(f64::from), d);
        (Just(d), proptest::collection::vec(point, 0..50))
    })
}

/// Notes without a bound, or none at all.
#[derive(Debug, Default)]
struct Pad {
    notes: Mutex<Vec<(u64, Note)>>,
    full: bool,
}

impl Notes for Pad {
    fn take(&self, owner: u64) -> Option<Note> {
        let mut notes = self.notes.lock().expect("notes");
        let at = notes.iter().position(|n| n.0 == owner)?;
        Some(notes.swap_remove(at).1)
    }

    fn room(&self, _: usize) -> bool {
        !self.full
    }

    fn put(&self, owner: u64, note: Note, _: usize) {
        self.notes.lock().expect("notes").push((owner, note));
    }
}

/// Many points, as what is remembered does not pay for few.
fn crowd() -> impl Strategy<Value = (usize, Vec<Vec<f64>>)> {
    let point = |d, odd: bool| {
        let whole = (-200i32..200).prop_map(|x| f64::from(x) / 8.0);
        let any = prop_oneof![
            40 => -25.0..25.0f64,
            // Ties, and what is rounded away beside others.
            20 => (-3i32..4).prop_map(f64::from),
            1 => Just(1e9),
            1 => Just(f64::NAN),
            1 => Just(-1e-12),
        ];
        let x = if odd { any.boxed() } else { whole.boxed() };
        proptest::collection::vec(x, d)
    };
    (1usize..6, any::<bool>()).prop_flat_map(move |(d, odd)| {
        (Just(d), proptest::collection::vec(point(d, odd), 200..2500))
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_is_remembered_changes_no_bit(
        (d, points) in crowd(),
        k in 1usize..7,
        rounds in 0usize..25,
        cut in any::<proptest::sample::Index>(),
        init in proptest::sample::select(&["kmeans++", "random", "first"][..]),
        full: bool,
    ) {
        let at = cut.index(points.len());
        let tables = [table(&points[..at], d, 0), table(&points[at..], d, at as u64)];
        let pads = [Pad::default(), Pad { full, ..Pad::default() }];
        let spec = format!("kmeans:k={k},tol=0,rounds={rounds},init={init},seed=5");
        let kernel = || make(&spec, d).expect("build").kernel;
        let plain: Vec<Block<'_>> = tables.iter().map(|t| t.block(0)).collect();
        let noted: Vec<Block<'_>> =
            plain.iter().zip(&pads).map(|(b, p)| Block { notes: Some(p), ..*b }).collect();
        let want = laws::answer(kernel(), &[plain.iter().collect()], false);
        let got = laws::answer(kernel(), &[noted.iter().collect()], false);
        prop_assert_eq!(format!("{got:?}"), format!("{want:?}"));
    }
}

#[test]
fn notes_are_made_and_used() {
    let point = |i: usize| vec![(i % 97) as f64 + 300.0 * (i % 3) as f64, (i % 89) as f64];
    let points: Vec<Vec<f64>> = (0..2000).map(point).collect();
    let (t, pad) = (table(&points, 2, 0), Pad::default());
    let block = Block { notes: Some(&pad), ..t.block(0) };
    let kernel = make("kmeans:k=4,tol=0,init=first", 2).expect("build").kernel;
    let Step::Next(first) = kernel.finish(one(&kernel, &block)).expect("seeded") else { panic!() };
    let Step::Next(second) = first.finish(one(&first, &block)).expect("a round") else { panic!() };
    assert_eq!(pad.notes.lock().expect("notes").len(), 1);
    one(&second, &block);
    assert_eq!(pad.notes.lock().expect("notes").len(), 1);
}

fn one(kernel: &Arc<dyn AnyKernel>, block: &Block<'_>) -> AnyState {
    let mut state = kernel.init();
    kernel.update(&mut state, block).expect("update");
    state
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]
    #[test]
    fn the_same_as_the_textbook(
        (d, points) in cloud(),
        k in 1usize..6,
        rounds in 0usize..12,
        cuts in proptest::collection::vec(any::<usize>(), 0..5),
    ) {
        let v = run(&format!("kmeans:k={k},tol=0,rounds={rounds},init=first"), &points, d, &cuts);
        let (want, done) = textbook(&points, first_distinct(&points, k), rounds);
        prop_assert_eq!(&centroids(&v), &want);
        if points.is_empty() {
            return Ok(());
        }
        prop_assert_eq!(number(&v, "rounds"), done as f64);
        let of = assign(&points, &want);
        let count = |c| of.iter().filter(|o| **o == c).count() as f64;
        prop_assert_eq!(sizes(&v), (0..want.len()).map(count).collect::<Vec<_>>());
        let inertia: f64 = points.iter().zip(&of).map(|(p, c)| square(p, &want[*c])).sum();
        prop_assert!((number(&v, "inertia") - inertia).abs() <= 1e-12 * inertia);
    }

    #[test]
    fn seeds_do_not_depend_on_the_split(
        (d, points) in cloud(),
        k in 1usize..6,
        seed in any::<u64>(),
        init in proptest::sample::select(&["kmeans++", "random", "first"][..]),
        cuts in proptest::collection::vec(any::<usize>(), 0..5),
    ) {
        let spec = format!("kmeans:k={k},rounds=0,seed={seed},init={init}");
        let whole = run(&spec, &points, d, &[]);
        prop_assert_eq!(&whole, &run(&spec, &points, d, &cuts));
        // Centres are distinct points of the data, as many as there can be.
        let c = centroids(&whole);
        prop_assert_eq!(c.len(), first_distinct(&points, k).len());
        prop_assert_eq!(first_distinct(&c, k), c.clone());
        prop_assert!(c.iter().all(|c| points.contains(c)));
    }

    #[test]
    fn rough_numbers_give_the_same_bits_for_any_split(
        points in proptest::collection::vec(proptest::collection::vec(-1e6f64..1e6, 2), 1..40),
        cuts in proptest::collection::vec(any::<usize>(), 0..5),
    ) {
        let spec = "kmeans:k=3,tol=1e-3,seed=5";
        prop_assert_eq!(run(spec, &points, 2, &[]), run(spec, &points, 2, &cuts));
    }
}

#[test]
fn clear_clusters_are_found() {
    let mut points = vec![];
    for i in 0..30 {
        let (a, b) = (f64::from(i % 5) * 0.1, f64::from(i % 3) * 0.1);
        points.extend([vec![a, b], vec![100.0 + a, b], vec![a, 100.0 + b]]);
    }
    let v = run("kmeans:x0,x1,k=3", &points, 2, &[17, 44]);
    assert_eq!(sizes(&v), [30.0; 3]);
    assert_eq!(v.get("converged"), Some(&Value::Bool(true)));
    assert!(number(&v, "inertia") < 4.0);
    assert_eq!(list(v.get("columns").expect("columns")).len(), 2);
}

#[test]
fn rounds_end_when_no_centre_moves_further_than_delta() {
    // The centres of two clusters of one cloud, moving ever less.
    let points: Vec<Vec<f64>> = (0..200).map(|i| vec![f64::from(i * i % 211)]).collect();
    let at = |rounds: usize| {
        centroids(&run(&format!("kmeans:k=2,tol=0,rounds={rounds},init=first"), &points, 1, &[]))
    };
    let moves: Vec<f64> = (0..30)
        .map(|r| (at(r), at(r + 1)))
        .map(|(a, b)| a.iter().zip(&b).map(|(a, b)| (a[0] - b[0]).abs()).fold(0.0, f64::max))
        .collect();
    assert!(moves[1] > moves[3] && moves[3] > 0.0, "{moves:?}");
    let v = run(&format!("kmeans:k=2,delta={},init=first", moves[3]), &points, 1, &[77]);
    let first = moves.iter().position(|m| *m <= moves[3]).expect("one");
    assert_eq!(number(&v, "rounds"), first as f64 + 1.0);
    assert_eq!(v.get("converged"), Some(&Value::Bool(true)));
    assert_eq!(centroids(&v), at(first + 1));
    // Without it, and with 0, until nothing moves; a tolerance that is given holds as well.
    let still = moves.iter().position(|m| *m == 0.0).expect("an end") as f64 + 1.0;
    assert_eq!(number(&run("kmeans:k=2,delta=0,init=first", &points, 1, &[]), "rounds"), still);
    let v = run("kmeans:k=2,delta=0,tol=1e9,init=first", &points, 1, &[]);
    assert_eq!(number(&v, "rounds"), 1.0);
}

#[test]
fn incomplete_points_are_dropped_and_counted() {
    let points = vec![vec![1.0], vec![MISSING], vec![3.0], vec![f64::NAN], vec![f64::NEG_INFINITY]];
    for init in ["kmeans++", "random", "first"] {
        let v = run(&format!("kmeans:k=1,init={init}"), &points, 1, &[2]);
        assert_eq!((centroids(&v), number(&v, "dropped")), (vec![vec![2.0]], 3.0));
        let v = run(&format!("kmeans:k=1,init={init}"), &points[3..], 1, &[]);
        assert_eq!((centroids(&v), number(&v, "dropped")), (vec![], 2.0));
        let v = run(&format!("kmeans:k=2,init={init}"), &[], 1, &[]);
        assert_eq!((centroids(&v).len(), number(&v, "inertia")), (0, 0.0));
    }
}

#[test]
fn means_of_huge_and_tiny_numbers_do_not_overflow_or_vanish() {
    let v = run("kmeans:k=1", &[vec![1.7e308], vec![1.5e308]], 1, &[1]);
    assert_eq!(centroids(&v), [[1.6e308]]);
    let v = run("kmeans:k=1,tol=0", &[vec![5e-324], vec![1.5e-323]], 1, &[]);
    assert_eq!(centroids(&v), [[1e-323]]);
}

#[test]
fn the_first_centre_of_plusplus_is_drawn_alike_and_the_second_by_squared_distance() {
    let points: Vec<Vec<f64>> = [0.0, 1.0, 3.0].map(|x| vec![x]).to_vec();
    let t = table(&points, 1, 0);
    let mut pairs = [[0u32; 4]; 4];
    let n = 6000;
    for seed in 0..n {
        let spec = format!("kmeans:k=2,rounds=0,seed={seed}");
        let v = laws::answer(make(&spec, 1).expect("build").kernel, &[vec![&t.block(0)]], false);
        let c = centroids(&v);
        pairs[c[0][0] as usize][c[1][0] as usize] += 1;
    }
    for (a, b, want) in [(0, 1, 1.0 / 10.0), (0, 3, 9.0 / 10.0), (1, 3, 0.8), (3, 0, 9.0 / 13.0)] {
        let share = f64::from(pairs[a][b]) / f64::from(n) * 3.0;
        assert!((share - want).abs() < 0.06, "{a},{b}: {share} is not {want}");
    }
}

#[test]
fn files_have_points_of_their_own() {
    // The same offsets in two files are two places.
    let t = table(&(0..40).map(|i| vec![f64::from(i)]).collect::<Vec<_>>(), 1, 0);
    let kernel = || make("kmeans:k=30,rounds=0,init=random,seed=3", 1).expect("build").kernel;
    let v = laws::check(kernel(), &[t.block(0), t.block(1)]);
    assert_eq!(centroids(&v).len(), 30);
    assert_ne!(v, laws::check(kernel(), &[t.block(0)]));
}

#[test]
fn wrong_specifications_are_refused() {
    for s in [
        "kmeans:k=0",
        "kmeans:k=70000",
        "kmeans:tol=-1",
        "kmeans:tol=NaN",
        "kmeans:delta=-1",
        "kmeans:delta=inf",
        "kmeans:rounds=100000",
        "kmeans:init=best",
        "kmeans:x0,x0",
        "kmeans:y",
        "kmeans:clusters=3",
        "kmeans:k=x",
    ] {
        assert!(make(s, 2).is_err(), "{s}");
    }
    assert!(make("kmeans", 0).is_err());
}
