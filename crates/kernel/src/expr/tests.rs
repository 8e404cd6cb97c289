//! Filters against a slow evaluator that walks the tree row by row.

use super::parse::{ColumnName, Compare, Constant, Node, NodeKind};
use super::*;
use proptest::prelude::*;
use stead_core::{ColumnInfo, ColumnKind, Columns, MISSING, RecordKind, Span, is_missing};

fn schema() -> Schema {
    let c = |n: &str, kind| ColumnInfo { name: n.into(), kind };
    Schema {
        records: RecordKind::Delimited,
        columns: vec![
            c("x", ColumnKind::Number),
            c("name", ColumnKind::Text),
            c("my col", ColumnKind::Number),
            c("tag", ColumnKind::Text),
        ],
        shape: None,
    }
}

type Row = (f64, Option<String>, f64, Option<String>);

/// The rows that the filter keeps.
fn kept(filter: &Filter, rows: &[Row]) -> Vec<u32> {
    let mut text = Vec::new();
    let mut spans = Vec::new();
    let mut numbers: Vec<f64> = rows.iter().map(|r| r.0).collect();
    numbers.extend(rows.iter().map(|r| r.2));
    for column in [|r: &Row| r.1.clone(), |r: &Row| r.3.clone()] {
        for row in rows {
            spans.push(match column(row) {
                None => Span::MISSING,
                Some(t) => {
                    let start = text.len() as u32;
                    text.extend_from_slice(t.as_bytes());
                    Span { start, len: t.len() as u32 }
                }
            });
        }
    }
    let block = Block {
        rows: rows.len(),
        columns: Columns {
            number_ids: &[0, 2],
            numbers: &numbers,
            text_ids: &[1, 3],
            spans: &spans,
            text_data: &text,
            stride: rows.len(),
        },
        ..Block::empty()
    };
    let mut keep = vec![99];
    filter.eval(&block, &mut Scratch::default(), &mut keep).expect("eval");
    keep
}

#[derive(Debug, Clone, PartialEq)]
enum Val {
    Number(Option<f64>),
    Text(Option<Vec<u8>>),
    Truth(Option<bool>),
}

/// What SQL and IEEE 754 say, one row, one node at a time.
fn slow(node: &Node, row: &Row) -> Val {
    let number = |n: &Node| match slow(n, row) {
        Val::Number(x) => x,
        v => panic!("{n} is {v:?}"),
    };
    let text = |n: &Node| match slow(n, row) {
        Val::Text(x) => x,
        v => panic!("{n} is {v:?}"),
    };
    let truth = |n: &Node| match slow(n, row) {
        Val::Truth(x) => x,
        v => panic!("{n} is {v:?}"),
    };
    let present = |x: f64| Val::Number((!is_missing(x)).then_some(x));
    let flip = |t: Option<bool>, not: bool| Val::Truth(t.map(|t| t != not));
    match &node.kind {
        NodeKind::Number(n) => Val::Number(Some(*n)),
        NodeKind::Text(t) => Val::Text(Some(t.clone().into_bytes())),
        NodeKind::Column(c) => {
            let i = match c {
                ColumnName::Position(i) => *i,
                ColumnName::Name(n) => schema().column(n).expect("column"),
            };
            match i {
                0 => present(row.0),
                1 => Val::Text(row.1.clone().map(String::into_bytes)),
                2 => present(row.2),
                _ => Val::Text(row.3.clone().map(String::into_bytes)),
            }
        }
        NodeKind::Negate(a) => Val::Number(number(a).map(|x| -x)),
        NodeKind::Chain { first, rest, .. } => {
            let mut a = number(first);
            for (s, b) in rest {
                a = a.zip(number(b)).map(|(a, b)| match *s {
                    "+" => a + b,
                    "-" => a - b,
                    "*" => a * b,
                    "/" => a / b,
                    _ => a % b,
                });
            }
            Val::Number(a)
        }
        NodeKind::Compare(c, a, b) => {
            let order = match (slow(a, row), slow(b, row)) {
                (Val::Number(a), Val::Number(b)) => a.zip(b).map(|(a, b)| a.partial_cmp(&b)),
                (Val::Text(a), Val::Text(b)) => a.zip(b).map(|(a, b)| Some(a.cmp(&b))),
                v => panic!("{v:?}"),
            };
            Val::Truth(order.map(|o| match c {
                Compare::Eq => o.is_some_and(|o| o.is_eq()),
                Compare::Ne => !o.is_some_and(|o| o.is_eq()),
                Compare::Lt => o.is_some_and(|o| o.is_lt()),
                Compare::Le => o.is_some_and(|o| o.is_le()),
                Compare::Gt => o.is_some_and(|o| o.is_gt()),
                Compare::Ge => o.is_some_and(|o| o.is_ge()),
            }))
        }
        NodeKind::In { value, list, not } => {
            let found = match slow(value, row) {
                Val::Number(x) => {
                    x.map(|x| list.iter().any(|(c, _)| matches!(c, Constant::Number(n) if *n == x)))
                }
                Val::Text(t) => t.map(|t| {
                    list.iter().any(|(c, _)| matches!(c, Constant::Text(s) if s.as_bytes() == t))
                }),
                v => panic!("{v:?}"),
            };
            flip(found, *not)
        }
        NodeKind::Missing { value, not } => {
            let missing = matches!(slow(value, row), Val::Number(None) | Val::Text(None));
            Val::Truth(Some(missing != *not))
        }
        NodeKind::Match { value, pattern, not, .. } => {
            let r = regex::bytes::Regex::new(pattern).expect("regex");
            flip(text(value).map(|t| r.is_match(&t)), *not)
        }
        NodeKind::Not(a) => flip(truth(a), true),
        NodeKind::And(v) => {
            let v: Vec<_> = v.iter().map(truth).collect();
            Val::Truth(if v.contains(&Some(false)) {
                Some(false)
            } else {
                (!v.contains(&None)).then_some(true)
            })
        }
        NodeKind::Or(v) => {
            let v: Vec<_> = v.iter().map(truth).collect();
            Val::Truth(if v.contains(&Some(true)) {
                Some(true)
            } else {
                (!v.contains(&None)).then_some(false)
            })
        }
        NodeKind::Call(name, a) => match name.as_str() {
            "abs" => Val::Number(number(&a[0]).map(f64::abs)),
            "sqrt" => Val::Number(number(&a[0]).map(f64::sqrt)),
            "floor" => Val::Number(number(&a[0]).map(f64::floor)),
            "ceil" => Val::Number(number(&a[0]).map(f64::ceil)),
            "log" => Val::Number(number(&a[0]).map(libm::log)),
            "exp" => Val::Number(number(&a[0]).map(libm::exp)),
            "min" | "max" => Val::Number(number(&a[0]).zip(number(&a[1])).map(|(a, b)| {
                if a.is_nan() || b.is_nan() {
                    f64::NAN
                } else if if name == "min" { b < a } else { b > a } {
                    b
                } else {
                    // Of 0 and -0 the left one.
                    a
                }
            })),
            "len" => {
                Val::Number(text(&a[0]).map(|t| String::from_utf8_lossy(&t).chars().count() as f64))
            }
            "lower" => Val::Text(
                text(&a[0]).map(|t| String::from_utf8_lossy(&t).to_lowercase().into_bytes()),
            ),
            _ => {
                let both = text(&a[0]).zip(text(&a[1]));
                Val::Truth(both.map(|(t, p)| {
                    let n = p.len();
                    match name.as_str() {
                        "starts_with" => t.len() >= n && t[..n] == p,
                        "ends_with" => t.len() >= n && t[t.len() - n..] == p,
                        _ => n == 0 || t.windows(n).any(|w| w == p),
                    }
                }))
            }
        },
    }
}

fn number() -> impl Strategy<Value = f64> {
    prop_oneof![
        4 => (-3i32..4).prop_map(f64::from),
        2 => Just(MISSING),
        1 => Just(f64::NAN),
        1 => prop_oneof![Just(f64::INFINITY), Just(-0.0), Just(5e-324), Just(1e300), Just(-1e300)],
        2 => any::<f64>(),
    ]
}

fn word() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        1 => Just(None),
        4 => "[aAbÄ']{0,3}".prop_map(Some),
    ]
}

fn rows() -> impl Strategy<Value = Vec<Row>> {
    prop::collection::vec((number(), word(), number(), word()), 0..40)
}

fn quoted(s: &str) -> String {
    format!("'{}'", s.replace('\'', "''"))
}

fn number_expr() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("x".to_string()),
        Just("`my col`".to_string()),
        Just("$2".to_string()),
        (0u32..5).prop_map(|n| n.to_string()),
        Just("1.5e300".to_string()),
        Just("len(name)".to_string()),
        Just("len(lower(tag))".to_string()),
    ];
    leaf.prop_recursive(4, 24, 3, |e| {
        prop_oneof![
            (e.clone(), "[-+*/%]", e.clone()).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
            (e.clone(), "[-+*/%]", e.clone()).prop_map(|(a, o, b)| format!("({a}) {o} ({b})")),
            e.clone().prop_map(|a| format!("-({a})")),
            ("abs|sqrt|floor|ceil|log|exp", e.clone()).prop_map(|(f, a)| format!("{f}({a})")),
            ("min|max", e.clone(), e).prop_map(|(f, a, b)| format!("{f}({a}, {b})")),
        ]
    })
}

fn text_expr() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("name".to_string()),
        Just("$3".to_string()),
        Just("lower(name)".to_string()),
        Just("lower(lower(tag))".to_string()),
        "[aAbÄ']{0,2}".prop_map(|s| quoted(&s)),
    ]
}

fn condition() -> impl Strategy<Value = String> {
    let compare = "==|=|!=|<>|<|<=|>|>=";
    let leaf = prop_oneof![
        4 => (number_expr(), compare, number_expr()).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
        3 => (text_expr(), compare, text_expr()).prop_map(|(a, o, b)| format!("{a} {o} {b}")),
        1 => (number_expr(), "|not ", prop::collection::vec(-3i32..4, 1..12)).prop_map(|(a, n, l)| {
            let l: Vec<String> = l.iter().map(i32::to_string).collect();
            format!("{a} {n}in ({})", l.join(", "))
        }),
        1 => (text_expr(), "|not ", prop::collection::vec("[aA']{0,2}", 1..4)).prop_map(|(a, n, l)| {
            let l: Vec<String> = l.iter().map(|s| quoted(s)).collect();
            format!("{a} {n}in ({})", l.join(", "))
        }),
        1 => (number_expr(), "|not ").prop_map(|(a, n)| format!("{a} is {n}missing")),
        1 => (text_expr(), "|not ").prop_map(|(a, n)| format!("{a} is {n}missing")),
        1 => (text_expr(), "~|!~", "a|\\^A|\\[ab\\]\\+|Ä\\$").prop_map(|(a, o, p)| format!("{a} {o} '{p}'")),
        1 => ("starts_with|ends_with|contains", text_expr(), text_expr())
            .prop_map(|(f, a, b)| format!("{f}({a}, {b})")),
    ];
    leaf.prop_recursive(4, 24, 4, |e| {
        prop_oneof![
            prop::collection::vec(e.clone(), 2..4).prop_map(|v| v.join(" and ")),
            prop::collection::vec(e.clone(), 2..4).prop_map(|v| v.join(" || ")),
            e.clone().prop_map(|a| format!("not {a}")),
            e.prop_map(|a| format!("({a})")),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn filters_agree_with_the_slow_evaluator(text in condition(), rows in rows()) {
        let filter = Filter::parse(&text, &schema()).expect(&text);
        let node = parse::parse(&text).expect("parsed before");
        let want: Vec<u32> = (0u32..)
            .zip(&rows)
            .filter(|(_, r)| slow(&node, r) == Val::Truth(Some(true)))
            .map(|(i, _)| i)
            .collect();
        prop_assert_eq!(kept(&filter, &rows), want.clone(), "{}", text);
        // The shown form means the same and is its own shown form.
        let shown = filter.to_string();
        let again = Filter::parse(&shown, &schema()).expect(&shown);
        prop_assert_eq!(again.to_string(), shown);
        prop_assert_eq!(kept(&again, &rows), want);
    }

    #[test]
    fn any_text_is_read_or_refused(text in "\\PC*") {
        let _ = Filter::parse(&text, &schema());
    }

    #[test]
    fn any_jumble_of_tokens_is_read_or_refused(
        words in prop::collection::vec(
            "and|or|not|in|is|missing|x|name|`my col`|\\$1|\\(|\\)|,|==|<|~|!|\\+|-|\\*|1|\\.5|'a'|\"|'|abs\\(|len\\(|\\p{L}",
            0..30,
        ),
        glue in "| ",
    ) {
        let text = words.join(&glue);
        if let Ok(f) = Filter::parse(&text, &schema()) {
            let shown = f.to_string();
            prop_assert!(Filter::parse(&shown, &schema()).is_ok(), "{} shown as {}", text, shown);
        }
    }
}

fn row(x: f64, name: Option<&str>) -> Row {
    (x, name.map(str::to_string), 0.0, None)
}

#[test]
fn missing_is_unknown_and_nan_is_a_value() {
    let rows =
        [row(1.0, Some("a")), row(MISSING, None), row(f64::NAN, Some("")), row(-0.0, Some("b"))];
    for (text, want) in [
        ("x > 0", &[0][..]),
        ("not x > 0", &[2, 3]),
        ("x > 0 or x <= 0", &[0, 3]),
        ("x == x", &[0, 3]),
        ("x != x", &[2]),
        ("x is missing", &[1]),
        ("x + 1 is not missing", &[0, 2, 3]),
        ("x in (0, 7)", &[3]),
        ("x not in (0, 7)", &[0, 2]),
        ("x is missing or x > 0", &[0, 1]),
        ("x > 0 and x is missing", &[]),
        ("name != 'a'", &[2, 3]),
        ("not name == 'a'", &[2, 3]),
        ("name is missing", &[1]),
        ("len(name) = 0", &[2]),
        ("tag is missing", &[0, 1, 2, 3]),
        ("not tag ~ 'x'", &[]),
        ("1 < 2", &[0, 1, 2, 3]),
        ("'a' == 'b'", &[]),
    ] {
        let f = Filter::parse(text, &schema()).expect(text);
        assert_eq!(kept(&f, &rows), want, "{text}");
    }
}

#[test]
fn rows_beyond_one_batch_keep_their_numbers() {
    let rows: Vec<Row> = (0..5000).map(|i| row(f64::from(i), Some("a"))).collect();
    let f = Filter::parse("x % 1000 == 999 and lower(name) == 'a'", &schema()).expect("filter");
    assert_eq!(kept(&f, &rows), [999, 1999, 2999, 3999, 4999]);
    assert!(kept(&f, &[]).is_empty());
    let n = f.needs();
    assert_eq!((n.numbers.as_slice(), n.texts.as_slice()), (&[0][..], &[1][..]));
    assert!(!n.bytes && !n.records);
}

#[test]
fn types_are_checked_before_data_are_read() {
    for (text, message, hint) in [
        ("name > 3", "text cannot be compared with a number", "--column-type name=number"),
        ("x == 'a'", "a number cannot be compared with text", "without quotes"),
        ("x", "expected a condition", "compare it"),
        ("name + 1 > 0", "'+' needs a number", "--column-type name=number"),
        ("abs(name) > 0", "abs() needs a number", ""),
        ("x ~ 'a'", "'~' needs text", "--column-type x=text"),
        ("x in ('a')", "a number cannot be compared with text", ""),
        ("name in (1)", "text cannot be compared with a number", "quotes"),
        ("(x > 1) == (x > 2)", "a condition cannot be compared", "join"),
        ("(x > 1) is missing", "needs a value", ""),
        ("nam == 'a'", "no column 'nam'", "did you mean 'name'"),
        ("x == NA", "no column 'NA'", "is missing"),
        ("$4 > 1", "no column $4", "describe"),
        ("sqr(x) > 1", "no function 'sqr'", "'sqrt'"),
        ("min(x) > 1", "takes 2 arguments", ""),
        ("name ~ '('", "bad regular expression", ""),
    ] {
        let e = Filter::parse(text, &schema()).expect_err(text);
        assert_eq!(e.kind(), stead_core::Kind::Usage);
        assert!(e.message().contains(message), "{text}: {e}");
        assert!(e.hint().unwrap_or("").contains(hint), "{text}: {:?}", e.hint());
        assert!(e.message().lines().nth(2).is_some_and(|l| l.trim() == "^"), "{e}");
    }
}

#[test]
fn a_block_without_the_columns_is_refused() {
    let f = Filter::parse("x > 1", &schema()).expect("filter");
    let block = Block { rows: 3, ..Block::empty() };
    assert!(f.eval(&block, &mut Scratch::default(), &mut Vec::new()).is_err());
}
