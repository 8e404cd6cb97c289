use super::*;
use crate::{Spec, laws, registry};
use stead_core::{ColumnInfo, ColumnKind, Columns, MISSING, RecordKind, Schema};

pub fn schema(names: &[&str]) -> Schema {
    let column = |n: &&str| ColumnInfo { name: n.to_string(), kind: ColumnKind::Number };
    let columns = names.iter().map(column).collect();
    Schema { records: RecordKind::Delimited, columns, shape: None }
}

pub fn block(values: &[f64]) -> Block<'_> {
    let columns =
        Columns { number_ids: &[0], numbers: values, stride: values.len(), ..Columns::default() };
    Block { rows: values.len(), columns, ..Block::empty() }
}

/// The answer to a specification, by any split.
pub fn ask_of(schema: &Schema, spec: &str, blocks: &[Block<'_>]) -> Value {
    let context = Context { schema, path: None, grouped: false };
    let b = registry::build(&Spec::parse(spec).unwrap(), &context).unwrap();
    let answer = laws::check(b.kernel, blocks);
    b.pick.map_or(answer.clone(), |p| answer.get(p).unwrap().clone())
}

/// As [`ask_of`], of the one column `x`.
pub fn ask(spec: &str, blocks: &[Block<'_>]) -> Value {
    ask_of(&schema(&["x"]), spec, blocks)
}

/// True if a specification about the one column `x` is an error.
pub fn refuses(spec: &str) -> bool {
    let schema = schema(&["x"]);
    let context = Context { schema: &schema, path: None, grouped: false };
    Spec::parse(spec).and_then(|s| registry::build(&s, &context)).is_err()
}

#[test]
fn small_samples() {
    let data = [1.0, 2.0, 4.0, MISSING, 9.0];
    let blocks: Vec<Block<'_>> = data.chunks(2).map(block).collect();
    assert_eq!(ask("count:x", &blocks), Value::Int(4));
    assert_eq!(ask("sum:x", &blocks), Value::Float(16.0));
    assert_eq!(ask("mean:x", &blocks), Value::Float(4.0));
    assert_eq!(ask("var:x", &blocks), Value::Float(38.0 / 3.0));
    assert_eq!(ask("var:x,ddof=0", &blocks), Value::Float(9.5));
    assert_eq!(ask("std:x,ddof=0", &blocks), Value::Float(9.5f64.sqrt()));
    for empty in [&[][..], &[MISSING]] {
        let blocks = [block(empty)];
        assert_eq!(ask("count:x", &blocks), Value::Int(0));
        assert_eq!(ask("sum:x", &blocks), Value::Float(0.0));
        for spec in ["mean:x", "var:x", "std:x", "var:x,ddof=0"] {
            assert_eq!(ask(spec, &blocks), Value::Null, "{spec}");
        }
    }
    assert_eq!(ask("var:x", &[block(&[3.0])]), Value::Null);
    assert_eq!(ask("var:x,ddof=0", &[block(&[3.0])]), Value::Float(0.0));
}

#[test]
fn far_from_zero_and_out_of_range() {
    // Textbook formulas lose all digits here.
    let data: Vec<f64> = (0..5000).map(|i| 1e9 + f64::from(i % 3)).collect();
    let blocks: Vec<Block<'_>> = data.chunks(777).map(block).collect();
    let n = 5000.0;
    // Residues 0, 1, 2 occur 1667, 1667, 1666 times.
    let (s, q) = (1667.0 + 2.0 * 1666.0, 1667.0 + 4.0 * 1666.0);
    assert_eq!(ask("var:x,ddof=0", &blocks), Value::Float((n * q - s * s) / (n * n)));
    let huge = [block(&[f64::MAX, f64::MAX])];
    assert_eq!(ask("mean:x", &huge), Value::Float(f64::MAX));
    assert_eq!(ask("sum:x", &huge), Value::Float(f64::INFINITY));
    assert_eq!(ask("std:x", &huge), Value::Float(0.0));
    let wide = [block(&[f64::MAX]), block(&[-f64::MAX])];
    assert_eq!(ask("std:x,ddof=0", &wide), Value::Float(f64::MAX));
    assert_eq!(ask("var:x", &wide), Value::Float(f64::INFINITY));
    let tiny = [block(&[5e-324, -5e-324])];
    assert_eq!(ask("std:x,ddof=0", &tiny), Value::Float(5e-324));
    assert_eq!(ask("var:x,ddof=0", &tiny), Value::Float(0.0));
    let infinite = [block(&[1.0, f64::INFINITY])];
    assert_eq!(ask("mean:x", &infinite), Value::Float(f64::INFINITY));
    assert!(ask("var:x", &infinite).as_f64().unwrap().is_nan());
    assert!(ask("mean:x", &[block(&[1.0, f64::NAN])]).as_f64().unwrap().is_nan());
}

#[test]
fn requests_of_one_column_share_a_kernel() {
    let schema = schema(&["x", "y"]);
    let context = Context { schema: &schema, path: None, grouped: false };
    let built = ["mean:x", "sum:y", "var:x", "count:x", "mean:x,y", "std:x,ddof=0"]
        .map(|s| registry::build(&Spec::parse(s).unwrap(), &context).unwrap());
    let shared = registry::fuse(built.into());
    let picks: Vec<_> = shared.iter().map(|(_, r)| r.clone()).collect();
    let members =
        |r: &Vec<(usize, registry::Pick)>| r.iter().map(|(i, p)| (*i, p.member)).collect();
    let members: Vec<Vec<_>> = picks.iter().map(members).collect();
    assert_eq!(
        members,
        [
            vec![(0, Some("mean")), (2, Some("var")), (3, Some("count")), (5, Some("std0"))],
            vec![(1, None)],
            vec![(4, None)],
        ]
    );
    let answer = laws::check(shared[0].0.clone(), &[block(&[1.0, 3.0])]);
    assert!(picks[0].iter().all(|(_, p)| answer.get(p.member.unwrap()).is_some()));
    // No more than was asked for, and no map of one.
    assert!(matches!(&answer, Value::Map(m) if m.len() == 4));
    assert_eq!(laws::check(shared[1].0.clone(), &[Block::empty()]), Value::Float(0.0));
}

#[test]
fn several_columns_give_a_map() {
    let schema = schema(&["x", "y"]);
    let context = Context { schema: &schema, path: None, grouped: false };
    for spec in ["mean:x,y", "mean:*"] {
        let b = registry::build(&Spec::parse(spec).unwrap(), &context).unwrap();
        let columns = Columns {
            number_ids: &[0, 1],
            numbers: &[1.0, 2.0, 5.0, 6.0],
            stride: 2,
            ..Columns::default()
        };
        let answer = laws::check(b.kernel, &[Block { rows: 2, columns, ..Block::empty() }]);
        let want = Value::map([("x", Value::Float(1.5)), ("y", Value::Float(5.5))]);
        assert_eq!(answer.get("mean"), Some(&want));
    }
    for bad in ["mean", "mean:x,x", "mean:z", "var:x,ddof=2", "mean:x,ddof=1"] {
        assert!(registry::build(&Spec::parse(bad).unwrap(), &context).is_err(), "{bad}");
    }
}
