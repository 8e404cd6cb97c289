//! Groups against plain loops over their rows, through all splits.

use super::*;
use crate::groups::sortable;
use crate::{Kernel, laws};
use proptest::prelude::*;
use std::collections::BTreeMap;
use stead_core::{ColumnInfo, ColumnKind, Columns, Kind, MISSING, RecordKind, Span};

/// Sums small integers in one round, and in further rounds adds one for each row until `rounds`.
#[derive(Clone)]
struct Sum {
    rounds: u64,
    so_far: i64,
}

impl Kernel for Sum {
    type State = i64;
    fn needs(&self) -> Needs {
        Needs { numbers: vec![1], ..Needs::default() }
    }
    fn init(&self) -> i64 {
        0
    }
    fn update(&self, s: &mut i64, b: &Block<'_>) -> Result<()> {
        *s += b.numbers(1).iter().map(|x| *x as i64).sum::<i64>();
        Ok(())
    }
    fn merge(&self, s: &mut i64, o: i64) -> Result<()> {
        *s += o;
        Ok(())
    }
    fn finish(&self, s: i64) -> Result<Step> {
        let so_far = self.so_far + s;
        // Groups end in different rounds.
        if self.rounds == 0 || so_far > 40 {
            return Ok(Step::Done(Value::Float(so_far as f64)));
        }
        Ok(Step::Next(Arc::new(Sum { rounds: self.rounds - 1, so_far })))
    }
}

fn schema() -> Schema {
    let c = |n: &str, kind| ColumnInfo { name: n.into(), kind };
    Schema {
        records: RecordKind::Delimited,
        columns: vec![
            c("who", ColumnKind::Text),
            c("x", ColumnKind::Number),
            c("g", ColumnKind::Number),
        ],
        shape: None,
    }
}

struct Table {
    text: Vec<u8>,
    spans: Vec<Span>,
    numbers: Vec<f64>,
}

fn table(rows: &[(Option<&[u8]>, f64, f64)]) -> Table {
    let mut t = Table { text: vec![], spans: vec![], numbers: vec![] };
    for (name, ..) in rows {
        t.spans.push(name.map_or(Span::MISSING, |n| {
            let start = t.text.len() as u32;
            t.text.extend_from_slice(n);
            Span { start, len: n.len() as u32 }
        }));
    }
    t.numbers.extend(rows.iter().map(|r| r.1));
    t.numbers.extend(rows.iter().map(|r| r.2));
    t
}

fn block(t: &Table) -> Block<'_> {
    Block {
        rows: t.spans.len(),
        columns: Columns {
            number_ids: &[1, 2],
            numbers: &t.numbers,
            text_ids: &[0],
            spans: &t.spans,
            text_data: &t.text,
            stride: t.spans.len(),
        },
        ..Block::empty()
    }
}

fn grouped(rounds: u64, by: &[usize]) -> Arc<dyn AnyKernel> {
    Arc::new(Grouped::new(Arc::new(Sum { rounds, so_far: 0 }), by, &schema()).expect("grouped"))
}

fn entries(v: &Value) -> Vec<(String, f64)> {
    match v {
        Value::Map(m) => m.iter().map(|(k, v)| (k.clone(), v.as_f64().expect("number"))).collect(),
        _ => panic!("not a map"),
    }
}

#[test]
fn groups_are_values_and_missing_is_a_group() {
    let odd_nan = f64::from_bits(f64::NAN.to_bits() | 7);
    let rows: &[(Option<&[u8]>, f64, f64)] = &[
        (Some(b"b"), 1.0, 10.0),
        (None, 2.0, MISSING),
        (Some(b"NA"), 4.0, 9.0),
        (Some(b"a"), 8.0, -0.0),
        (Some(b"b"), 16.0, 0.0),
        (Some(b""), 32.0, f64::NAN),
        (Some(b"\xFF"), 64.0, odd_nan),
        (Some(b"a"), 128.0, f64::INFINITY),
        (Some(b"a"), 256.0, -1e300),
    ];
    let t = table(rows);
    let v = entries(&laws::check(grouped(0, &[0]), &[block(&t)]));
    let v: Vec<(&str, f64)> = v.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    assert_eq!(v, [("", 32.0), ("a", 392.0), ("b", 17.0), ("\\xFF", 64.0), ("NA", 6.0)]);
    let v = entries(&laws::check(grouped(0, &[2]), &[block(&t)]));
    let v: Vec<(&str, f64)> = v.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    assert_eq!(
        v,
        [
            ("-1e300", 256.0),
            ("0", 24.0),
            ("9", 4.0),
            ("10", 1.0),
            ("Infinity", 128.0),
            ("NaN", 96.0),
            ("NA", 2.0)
        ]
    );
}

#[test]
fn several_columns_are_joined_without_doubt() {
    let t = table(&[(Some(b"a,b"), 1.0, 2.0), (Some(b"a\""), 2.0, 2.5), (None, 4.0, MISSING)]);
    let v = entries(&laws::check(grouped(0, &[0, 2]), &[block(&t)]));
    let keys: Vec<&str> = v.iter().map(|(k, _)| k.as_str()).collect();
    assert_eq!(keys, ["\"a\"\"\",2.5", "\"a,b\",2", "NA,NA"]);
    let v = entries(&laws::check(grouped(0, &[2, 0]), &[block(&t)]));
    assert_eq!(v[0].0, "2,\"a,b\"");
}

#[test]
fn no_two_texts_have_one_name() {
    let names: [(&[u8], &str); 12] = [
        (b"\xFF", r"\xFF"),
        (br"\xFF", r"\x5CxFF"),
        (br"\xff", r"\x5Cxff"),
        (br"\x5CxFF", r"\x5Cx5CxFF"),
        (br"\\xFF", r"\\x5CxFF"),
        (b"\\\xFF", r"\\xFF"),
        (b"\\x\xFF", r"\x\xFF"),
        (b"\xFF41\xC3", r"\xFF41\xC3"),
        // These are no escapes, and stay as they are.
        (br"C:\data\x", r"C:\data\x"),
        (br"\x4", r"\x4"),
        (br"\xG1\X41\", r"\xG1\X41\"),
        ("\\x4é".as_bytes(), r"\x4é"),
    ];
    for (text, name) in names {
        assert_eq!(show_text(text), name, "{text:?}");
    }
    let rows: Vec<_> = names.iter().map(|(text, _)| (Some(*text), 1.0, 0.0)).collect();
    let answer = entries(&laws::check(grouped(0, &[0]), &[block(&table(&rows))]));
    let mut shown: Vec<&str> = answer.iter().map(|(name, _)| name.as_str()).collect();
    shown.sort_unstable();
    shown.dedup();
    assert_eq!(shown.len(), names.len());
}

#[test]
fn no_rows_no_groups() {
    assert_eq!(laws::check(grouped(0, &[0]), &[]), Value::Map(vec![]));
    assert_eq!(laws::check(grouped(3, &[0]), &[Block::empty()]), Value::Map(vec![]));
}

#[test]
fn needs_are_those_of_both() {
    let n = grouped(0, &[0, 2]).needs();
    assert_eq!((n.numbers, n.texts), (vec![1, 2], vec![0]));
}

#[test]
fn what_cannot_be_grouped_is_refused() {
    let sum = || Arc::new(Sum { rounds: 0, so_far: 0 });
    assert!(Grouped::new(sum(), &[], &schema()).is_err());
    assert!(Grouped::new(sum(), &[7], &schema()).is_err());
    let spec = crate::Spec::parse("grep:a,out=x").expect("spec");
    let context = crate::Context { schema: &schema(), path: None, grouped: false };
    let grep = crate::registry::build(&spec, &context).expect("grep").kernel;
    assert!(Grouped::new(grep, &[0], &schema()).is_err());
}

#[test]
fn too_many_groups_are_a_limit() {
    let rows: Vec<(Option<&[u8]>, f64, f64)> =
        (0..=limits::MAX_GROUPS).map(|i| (None, 1.0, i as f64)).collect();
    let t = table(&rows);
    let k = grouped(0, &[2]);
    let mut state = k.init();
    let e = k.update(&mut state, &block(&t)).expect_err("limit");
    assert_eq!(e.kind(), Kind::Limit);
}

#[test]
fn a_group_that_appears_in_a_later_round_is_a_changed_file() {
    let t = table(&[(Some(b"a"), 1.0, 0.0)]);
    let k = grouped(5, &[0]);
    let mut state = k.init();
    k.update(&mut state, &block(&t)).expect("update");
    let Ok(Step::Next(k)) = k.finish(state) else { panic!("one round only") };
    let t = table(&[(Some(b"b"), 1.0, 0.0)]);
    let e = k.update(&mut k.init(), &block(&t)).expect_err("changed");
    assert_eq!(e.kind(), Kind::Changed);
}

#[test]
fn equal_states_are_equal_bytes_in_later_rounds_too() {
    let names: Vec<String> = (0..40).map(|i| format!("group {i}")).collect();
    let rows: Vec<(Option<&[u8]>, f64, f64)> =
        names.iter().map(|n| (Some(n.as_bytes()), 1.0, 0.0)).collect();
    let t = table(&rows);
    let mut k = grouped(5, &[0]);
    for _ in 0..3 {
        let mut state = k.init();
        k.update(&mut state, &block(&t)).expect("update");
        let sent = k.encode(&state).expect("encode");
        let again = k.encode(&k.decode(&sent).expect("decode")).expect("encode");
        assert!(again == sent);
        let Ok(Step::Next(next)) = k.finish(state) else { panic!("few rounds") };
        k = next;
    }
}

#[test]
fn garbage_states_are_errors() {
    let k = grouped(0, &[0]);
    assert!(k.decode(&[9, 9, 9]).is_err());
    let empty = k.encode(&k.init()).expect("encode");
    assert!(k.decode(&empty).is_ok());
}

proptest! {
    #[test]
    fn names_of_texts_can_be_read_back(
        parts in proptest::collection::vec(
            prop_oneof![
                3 => Just(&b"\\"[..]), 3 => Just(&b"x"[..]), 2 => Just(&b"5"[..]), 2 => Just(&b"C"[..]),
                1 => Just(&b"\xFF"[..]), 1 => Just("é".as_bytes()), 1 => Just(&b"\\xFF"[..]),
            ],
            0..12,
        ),
    ) {
        let text = parts.concat();
        let name = show_text(&text);
        let (mut back, mut rest) = (Vec::new(), name.as_bytes());
        while let Some((first, after)) = rest.split_first() {
            let byte = match rest {
                [b'\\', b'x', high, low, ..] => {
                    let digits = [*high, *low];
                    let digits = std::str::from_utf8(&digits).ok();
                    digits.and_then(|d| u8::from_str_radix(d, 16).ok())
                }
                _ => None,
            };
            back.push(byte.unwrap_or(*first));
            rest = if byte.is_some() { &rest[4..] } else { after };
        }
        prop_assert_eq!(back, text, "{}", name);
    }

    #[test]
    fn sortable_bits_sort_as_numbers(a in any::<f64>(), b in any::<f64>()) {
        prop_assert_eq!(number(sortable(a)).to_bits(), (a + 0.0).to_bits());
        prop_assert_eq!(a < b, sortable(a) < sortable(b) && a != b);
    }

    #[test]
    fn every_split_gives_the_same_groups(
        rows in proptest::collection::vec((0usize..4, 0i32..9, 0i32..5), 0..60),
        cuts in proptest::collection::vec(0usize..60, 0..5),
        rounds in 0u64..4,
    ) {
        let names = [Some(&b"x"[..]), Some(&b"y"[..]), Some(&b"z,"[..]), None];
        let rows: Vec<(Option<&[u8]>, f64, f64)> =
            rows.iter().map(|(n, x, g)| (names[*n], f64::from(*x), f64::from(*g))).collect();
        let mut cuts: Vec<usize> = cuts.iter().map(|c| c % (rows.len() + 1)).collect();
        cuts.extend([0, rows.len()]);
        cuts.sort_unstable();
        let parts: Vec<Table> = cuts.windows(2).map(|w| table(&rows[w[0]..w[1]])).collect();
        let blocks: Vec<Block<'_>> = parts.iter().map(block).collect();
        let got = laws::check(grouped(rounds, &[0, 2]), &blocks);
        let mut want: BTreeMap<(usize, i64), f64> = BTreeMap::new();
        for (n, x, g) in &rows {
            let n = names.iter().position(|m| m == n).expect("name");
            *want.entry((n, *g as i64)).or_default() += x;
        }
        let want: Vec<f64> = want
            .values()
            .map(|s| {
                // The rounds of `Sum`, one after the other.
                (1..=rounds).map(|r| s * r as f64).find(|t| *t > 40.0)
                    .unwrap_or(s * (rounds + 1) as f64)
            })
            .collect();
        let got: Vec<f64> = entries(&got).into_iter().map(|e| e.1).collect();
        prop_assert_eq!(got, want);
    }
}

/// Statistics of many groups, which are added value by value in small cells, and of few, whose values are gathered.
#[test]
fn cells_of_groups_are_the_sums_of_their_rows() {
    let specs = ["count:x", "sum:x", "mean:x", "min:x", "max:x", "var:x", "std:x,ddof=0", "rows"];
    let schema = schema();
    let context = crate::Context { schema: &schema, path: None, grouped: true };
    for groups in [3, 700] {
        let odd = [0.0, -0.0, MISSING, f64::NAN, f64::INFINITY, 1e300, -1e-300, 0.1, 2.5e9];
        let rows: Vec<(Option<&[u8]>, f64, f64)> = (0..4000u32)
            .map(|i| {
                let x = match i % 13 {
                    0 => odd[(i / 13) as usize % odd.len()],
                    _ => f64::from(i.wrapping_mul(2_654_435_761) % 20_011) / 100.0 - 70.0,
                };
                (None, x, f64::from(i.wrapping_mul(7919) % groups))
            })
            .collect();
        let parts: Vec<Table> = rows.chunks(900).map(table).collect();
        let blocks: Vec<Block<'_>> = parts.iter().map(block).collect();
        for spec in specs {
            let spec = crate::Spec::parse(spec).expect("spec");
            let built = crate::registry::build(&spec, &context).expect("kernel");
            let kernel = crate::registry::fuse(vec![built]).remove(0).0;
            let all =
                laws::check(Grouped::wrap(kernel.clone(), vec![2], &schema).expect("by"), &blocks);
            let Value::Map(all) = all else { panic!("no map") };
            assert_eq!(all.len(), groups as usize);
            for (g, (name, got)) in all.into_iter().enumerate() {
                assert_eq!(name, g.to_string());
                let mine: Vec<_> = rows.iter().filter(|r| r.2 == g as f64).copied().collect();
                let alone = laws::check(kernel.clone(), &[block(&table(&mine))]);
                assert_eq!(format!("{got:?}"), format!("{alone:?}"), "{} of {name}", spec.text);
            }
        }
    }
}
