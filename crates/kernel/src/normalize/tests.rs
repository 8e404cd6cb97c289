use super::*;
use crate::{AnyKernel, laws};
use proptest::prelude::*;
use stead_core::{ColumnInfo, ColumnKind, Columns, DType, MISSING, Schema};

fn schema(d: usize) -> Schema {
    let column = |i| ColumnInfo { name: format!("x{i}"), kind: ColumnKind::Number };
    Schema { records: RecordKind::Delimited, columns: (0..d).map(column).collect(), shape: None }
}

fn make(spec: &str, schema: &Schema) -> Result<Arc<dyn AnyKernel>> {
    let path = Some(Path::new("/data/run 1.csv"));
    let context = Context { schema, path, grouped: false };
    crate::registry::build(&Spec::parse(spec)?, &context).map(|b| b.kernel)
}

const IDS: [usize; 3] = [0, 1, 2];

/// A column after the other.
fn blocks(columns: &[Vec<f64>], cuts: &[usize]) -> Vec<(Vec<f64>, usize)> {
    let n = columns[0].len();
    let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (n + 1)).collect();
    cuts.extend([0, n]);
    cuts.sort_unstable();
    let part =
        |w: &[usize]| (columns.iter().flat_map(|c| c[w[0]..w[1]].to_vec()).collect(), w[1] - w[0]);
    cuts.windows(2).map(part).collect()
}

fn block(b: &(Vec<f64>, usize), d: usize) -> Block<'_> {
    let columns =
        Columns { number_ids: &IDS[..d], numbers: &b.0, stride: b.1, ..Columns::default() };
    Block { rows: b.1, columns, ..Block::empty() }
}

/// The answer, the header and the bytes after it.
fn run(
    spec: &str,
    schema: &Schema,
    columns: &[Vec<f64>],
    cuts: &[usize],
) -> (Value, SinkHeader, Vec<u8>) {
    let parts = blocks(columns, cuts);
    let all: Vec<Block<'_>> = parts.iter().map(|p| block(p, columns.len())).collect();
    let fit = make(spec, schema).expect("build");
    assert!(fit.sink().is_none(), "the first pass writes nothing");
    let answer = laws::check(fit.clone(), &all);
    let mut state = fit.init();
    all.iter().for_each(|b| fit.update(&mut state, b).expect("update"));
    let Ok(Step::Next(apply)) = fit.finish(state) else { panic!("no second pass") };
    let mut out = vec![];
    all.iter().for_each(|b| apply.map(b, &mut out).expect("map"));
    (answer, apply.sink().expect("sink").header, out)
}

fn floats(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks::<8>().0.iter().map(|b| f64::from_le_bytes(*b)).collect()
}

fn one(spec: &str, x: &[f64]) -> Vec<f64> {
    floats(&run(spec, &schema(1), &[x.to_vec()], &[]).2)
}

#[test]
fn the_three_methods_do_what_they_say() {
    let x = [2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0];
    assert_eq!(one("normalize:x0", &x)[..3], [0.0, 2.0 / 7.0, 2.0 / 7.0]);
    // Mean 5, deviation 2.
    let z = [-1.5, -0.5, -0.5, -0.5, 0.0, 0.0, 1.0, 2.0];
    assert_eq!(one("normalize:x0,method=zscore", &x), z);
    assert_eq!(one("normalize:x0,method=l2", &[3.0, -4.0, 0.0]), [0.6, -0.8, 0.0]);
    let z = one("normalize:x0,method=zscore,ddof=1", &[1.0, 2.0, 3.0]);
    assert_eq!(z, [-1.0, 0.0, 1.0]);
    assert_eq!(one("normalize:x0,zscore,ddof=1", &[1.0, 2.0, 3.0]), z);
}

#[test]
fn constant_columns_become_zero() {
    for method in ["minmax", "zscore", "zscore,ddof=1"] {
        assert_eq!(one(&format!("normalize:x0,method={method}"), &[7.1; 3]), [0.0; 3]);
        assert_eq!(one(&format!("normalize:x0,method={method}"), &[7.1]), [0.0]);
    }
    assert_eq!(one("normalize:x0,method=l2", &[0.0, -0.0]), [0.0, 0.0]);
    assert!(one("normalize:x0", &[]).is_empty());
}

#[test]
fn what_is_not_a_number_stays_and_does_not_count() {
    let inf = f64::INFINITY;
    for method in ["minmax", "zscore", "l2"] {
        let x = [MISSING, -1.0, f64::NAN, 1.0, inf, -inf];
        let spec = format!("normalize:x0,method={method}");
        let (v, _, out) = run(&spec, &schema(1), &[x.to_vec()], &[3]);
        let y = floats(&out);
        assert!(is_missing(y[0]) && y[2].is_nan() && !is_missing(y[2]), "{method}");
        assert_eq!((y[4], y[5]), (inf, -inf));
        assert_eq!(y[1..4].iter().filter(|v| v.is_finite()).count(), 2);
        let p = v.get("parameters").and_then(|p| p.get("x0")).expect("parameters");
        assert_eq!(p.get("missing"), Some(&Value::Int(1)));
        assert_eq!(p.get("not_finite"), Some(&Value::Int(3)));
        let y = one(&spec, &[f64::NAN, MISSING]);
        assert!(y[0].is_nan() && is_missing(y[1]));
    }
}

#[test]
fn huge_values_do_not_overflow() {
    let m = f64::MAX;
    assert_eq!(one("normalize:x0", &[-m, 0.0, m]), [0.0, 0.5, 1.0]);
    assert_eq!(one("normalize:x0,method=zscore", &[-m, m]), [-1.0, 1.0]);
    assert_eq!(one("normalize:x0,method=l2", &[m, m, m, -m]), [0.5, 0.5, 0.5, -0.5]);
    let z = one("normalize:x0,method=zscore", &[m, m, m, -m]);
    assert!(z.iter().all(|v| v.is_finite()) && (z[3] + 3f64.sqrt()).abs() < 1e-15, "{z:?}");
}

#[test]
fn several_columns_make_rows() {
    let columns = [vec![0.0, 1.0, 2.0], vec![MISSING, 10.0, 20.0]];
    let (v, header, out) = run("normalize:x1,x0,out=o.npy", &schema(2), &columns, &[1]);
    assert_eq!(header, SinkHeader::Npy { row: vec![2] });
    let y = floats(&out);
    assert!(is_missing(y[0]));
    assert_eq!(y[1..], [0.0, 0.0, 0.5, 1.0, 1.0]);
    assert_eq!(v.get("rows"), Some(&Value::Int(3)));
    assert_eq!(v.get("out"), Some(&Value::Text("o.npy".into())));
}

#[test]
fn text_reads_back_to_the_same_bits() {
    let x = vec![1.0, 1e-300, 0.1, MISSING, f64::NAN];
    let (_, header, out) =
        run("normalize:x0,method=l2,out=o.csv", &schema(1), std::slice::from_ref(&x), &[]);
    assert_eq!(header, SinkHeader::Bytes(b"x0\n".to_vec()));
    let text = String::from_utf8(out).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[3..], ["\"\"", "NaN"]);
    for (line, y) in lines.iter().zip(one("normalize:x0,method=l2", &x)).take(3) {
        assert_eq!(line.parse::<f64>().expect("number").to_bits(), y.to_bits());
    }
    let columns = [vec![1.0, MISSING, 3.0], vec![MISSING, 1.0, 2.0]];
    let (_, _, out) = run("normalize:*,out=o.txt", &schema(2), &columns, &[]);
    assert_eq!(out, b"0,\n,0\n1,1\n");
}

#[test]
fn arrays_keep_their_shape_unless_rows_were_filtered() {
    let column = ColumnInfo { name: "value".into(), kind: ColumnKind::Binary(DType::F32) };
    let shape = Shape::new(vec![2, 3, 1]).map(|s| s.with_order(stead_core::Order::Fortran));
    let schema = Schema { records: RecordKind::Items, columns: vec![column], shape: shape.ok() };
    let x: Vec<f64> = (0..6).map(f64::from).collect();
    let (_, header, _) = run("normalize", &schema, std::slice::from_ref(&x), &[2]);
    assert_eq!(header, SinkHeader::NpyShape { shape: vec![2, 3, 1], fortran: true });
    let (_, header, _) = run("normalize", &schema, &[x[1..].to_vec()], &[]);
    assert_eq!(header, SinkHeader::Npy { row: vec![] });
}

#[test]
fn the_output_lies_beside_the_data() {
    let (v, ..) = run("normalize:x0,x1", &schema(2), &[vec![1.0], vec![2.0]], &[]);
    assert_eq!(v.get("out"), Some(&Value::Text("/data/run 1.x0-x1.minmax.npy".into())));
    let chosen = |n: Vec<String>| Chosen { ids: vec![0], names: n, single: true };
    let odd = beside(Path::new("a.csv.gz"), &chosen(vec!["m/s \"é\"".into()]), Method::L2);
    assert_eq!(odd, Path::new("a.csv.m_s__é_.l2.npy"));
    let many = beside(Path::new("a"), &chosen(vec!["long name".into(); 60]), Method::L2);
    assert_eq!(many, Path::new("a.60_columns.l2.npy"));
}

#[test]
fn wrong_specifications_are_refused() {
    for s in [
        "normalize",
        "normalize:y",
        "normalize:x0,method=max",
        "normalize:x0,ddof=1",
        "normalize:x0,method=zscore,ddof=2",
        "normalize:x0,out=",
        "normalize:x0,out=o.bin",
        "normalize:x0,mode=l2",
        "normalize:x0,l2,zscore",
        "normalize:x0,l2,method=l2",
        "normalize:l2",
    ] {
        assert!(make(s, &schema(2)).is_err(), "{s}");
    }
    let spec = Spec::parse("normalize:x0").expect("spec");
    let s = schema(1);
    let none = Context { schema: &s, path: None, grouped: false };
    assert!(build(&spec, &none).is_err());
    let path = Some(Path::new("d.csv"));
    assert!(build(&spec, &Context { schema: &s, path, grouped: true }).is_err());
    let same = Spec::parse("normalize:x0,out=d.csv").expect("spec");
    assert!(build(&same, &Context { schema: &s, path, grouped: false }).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_split_writes_the_same_bytes(
        x in proptest::collection::vec(
            prop_oneof![8 => -1e9f64..1e9, 1 => Just(MISSING), 1 => any::<f64>()], 0..60),
        cuts in proptest::collection::vec(any::<usize>(), 0..5),
        method in proptest::sample::select(&["minmax", "zscore", "l2"][..]),
    ) {
        let y: Vec<f64> = x.iter().rev().copied().collect();
        let spec = format!("normalize:x0,x1,method={method}");
        let columns = [x.clone(), y];
        let whole = run(&spec, &schema(2), &columns, &[]);
        let parts = run(&spec, &schema(2), &columns, &cuts);
        prop_assert_eq!(format!("{:?}", whole.0), format!("{:?}", parts.0));
        prop_assert_eq!(whole.2, parts.2);
    }

    #[test]
    fn minmax_lies_between_0_and_1(x in proptest::collection::vec(any::<f64>(), 1..40)) {
        for y in one("normalize:x0", &x).iter().filter(|y| y.is_finite()) {
            prop_assert!((0.0..=1.0).contains(y), "{}", y);
        }
    }

    #[test]
    fn zscores_have_mean_0_and_deviation_1(x in proptest::collection::vec(-1e3f64..1e3, 2..60)) {
        let z = one("normalize:x0,method=zscore", &x);
        let n = z.len() as f64;
        let mean = z.iter().sum::<f64>() / n;
        let var = z.iter().map(|v| v * v).sum::<f64>() / n;
        prop_assert!(mean.abs() < 1e-6 && (var - 1.0).abs() < 1e-6);
    }
}
