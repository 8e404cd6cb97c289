//! Any kernel, once for every group of rows with the same values in the columns of `--by`.
//!
//! A block is cut into one block per group (rows keep their order), and each goes into the state of its
//! group. Groups are found by value: `1` and `1.0` in a numeric column are one group, all NaN are one
//! group, 0 and -0 are one group, and missing values are the group `NA` (with the text `NA` itself, if
//! that was not declared missing). Rounds go on until every group is done.
//!
//! Cost: one hash of the grouping columns a row and block, one look-up of each group of a block, one copy of the
//! asked columns, and a state for each group; at most [`limits::MAX_GROUPS`] groups.

use crate::groups::{
    Column, Groups, Key, Part, key_of, number, partition, parts, sort_by_id, write_key,
};
use crate::{AnyKernel, AnyState, Sink, Step};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use stead_core::block::Selection;
use stead_core::{Block, Error, Kind, Needs, Result, Schema, Value, limits};

/// A kernel that runs another one for each group.
///
/// The answer is a map from the group's text to the answer of the inner kernel, in the order of the
/// groups: numbers ascending, then NaN, texts bytewise, missing last. Of several columns, the texts are
/// joined with commas, a value that has a comma, a quote or a line end in it being quoted as in CSV. Bytes that are
/// not UTF-8 are written `\xNN`. No rows, no groups: an empty map.
pub struct Grouped {
    kernels: Kernels,
    by: Vec<Column>,
}

enum Kernels {
    /// First round: every group that turns up gets this one.
    Same(Arc<dyn AnyKernel>),
    /// Later rounds: the groups are known.
    Each(HashMap<Box<[u8]>, Stage>),
}

enum Stage {
    Running(Arc<dyn AnyKernel>),
    Done(Value),
}

impl Grouped {
    /// Runs `inner` for each group of the columns `by` (schema indices).
    ///
    /// Errors: of kind `Usage` if `by` is empty, or if `inner` writes a file or works on bricks.
    pub fn new(inner: Arc<dyn AnyKernel>, by: &[usize], schema: &Schema) -> Result<Grouped> {
        if inner.output().is_some() {
            return Err(Error::usage("a kernel that writes a file cannot run by groups")
                .with_hint("select the rows of one group with --where"));
        }
        if inner.needs().brick {
            return Err(Error::usage("a kernel that renders an array cannot run by groups"));
        }
        let by = by.iter().map(|i| match schema.columns.get(*i) {
            Some(c) if c.kind.is_number() => Ok(Column::Number(*i)),
            Some(_) => Ok(Column::Text(*i)),
            None => Err(Error::usage(format!("no column {i} to group by"))),
        });
        let by = by.collect::<Result<Vec<_>>>()?;
        if by.is_empty() {
            return Err(Error::usage("grouping needs at least one column"));
        }
        Ok(Grouped { kernels: Kernels::Same(inner), by })
    }

    /// As [`Grouped::new`], ready to run.
    pub fn wrap(
        inner: Arc<dyn AnyKernel>,
        by: Vec<usize>,
        schema: &Schema,
    ) -> Result<Arc<dyn AnyKernel>> {
        Ok(Arc::new(Grouped::new(inner, &by, schema)?))
    }

    fn kernel(&self, key: &[u8]) -> Result<Option<&Arc<dyn AnyKernel>>> {
        match &self.kernels {
            Kernels::Same(k) => Ok(Some(k)),
            Kernels::Each(m) => match m.get(key) {
                Some(Stage::Running(k)) => Ok(Some(k)),
                Some(Stage::Done(_)) => Ok(None),
                None => Err(Error::new(
                    Kind::Changed,
                    format!("group '{}' was not there in the round before", show(&parts(key)?)),
                )
                .with_hint("the file changed during the run; run again when nobody writes to it")),
            },
        }
    }

    /// The number of a group's state, which is made if the group is new; `None` if the group is done.
    fn state(&self, groups: &mut Groups, key: &[u8]) -> Result<Option<usize>> {
        if let Some(i) = groups.find(key) {
            return Ok(Some(i));
        }
        let Some(kernel) = self.kernel(key)? else { return Ok(None) };
        if groups.len() >= limits::MAX_GROUPS {
            return Err(Error::limit(format!("more than {} groups", limits::MAX_GROUPS))
                .with_hint(
                    "group by a column with fewer values, or keep fewer rows with --where",
                ));
        }
        let state = kernel.init();
        let bytes = kernel.state_bytes(&state);
        Ok(Some(groups.insert(key, state, bytes)))
    }
}

impl AnyKernel for Grouped {
    fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        match &self.kernels {
            Kernels::Same(k) => needs.add(&k.needs()),
            Kernels::Each(m) => m.values().for_each(|s| {
                if let Stage::Running(k) = s {
                    needs.add(&k.needs());
                }
            }),
        }
        // The bytes of a group are those of its records.
        needs.records |= needs.bytes;
        for c in &self.by {
            needs.add(&match *c {
                Column::Number(i) => Needs { numbers: vec![i], ..Needs::default() },
                Column::Text(i) => Needs { texts: vec![i], ..Needs::default() },
            });
        }
        needs
    }

    fn init(&self) -> AnyState {
        Box::new(Groups::default())
    }

    fn update(&self, state: &mut AnyState, block: &Block<'_>) -> Result<()> {
        let groups = own(state)?;
        if block.rows == 0 {
            return Ok(());
        }
        let (ids, firsts) = partition(&self.by, block)?;
        let (order, starts) = sort_by_id(&ids, firsts.len());
        let mut scratch = Selection::default();
        let mut key = Vec::new();
        for (i, first) in firsts.into_iter().enumerate() {
            key.clear();
            write_key(&self.by, block, first, &mut key)?;
            let Some(at) = self.state(groups, &key)? else { continue };
            let Some(kernel) = self.kernel(&key)? else { continue };
            let rows = &order[starts[i]..starts[i + 1]];
            let block = block.select(rows, &mut scratch);
            groups.change(at, kernel.as_ref(), |state| kernel.update(state, &block))?;
        }
        Ok(())
    }

    fn merge(&self, state: &mut AnyState, other: AnyState) -> Result<()> {
        let groups = own(state)?;
        let Ok(other) = other.downcast::<Groups>() else { return Err(wrong()) };
        if groups.len() == 0 {
            *groups = *other;
            return Ok(());
        }
        for (key, theirs) in other.into_entries() {
            let Some(at) = self.state(groups, &key)? else { continue };
            let Some(kernel) = self.kernel(&key)? else { continue };
            groups.change(at, kernel.as_ref(), |mine| kernel.merge(mine, theirs))?;
        }
        Ok(())
    }

    fn finish(&self, state: AnyState) -> Result<Step> {
        let Ok(state) = state.downcast::<Groups>() else { return Err(wrong()) };
        let mut stages: Vec<(Box<[u8]>, Stage)> = Vec::with_capacity(state.len());
        // Groups without rows in this round (of a file that changed) end on their empty state.
        if let Kernels::Each(m) = &self.kernels {
            for (key, stage) in m {
                match stage {
                    Stage::Done(v) => stages.push((key.clone(), Stage::Done(v.clone()))),
                    Stage::Running(k) if state.find(key).is_none() => {
                        stages.push((key.clone(), stage_of(k.finish(k.init())?)?));
                    }
                    Stage::Running(_) => {}
                }
            }
        }
        for (key, inner) in state.into_entries() {
            let Some(kernel) = self.kernel(&key)? else { continue };
            let stage = stage_of(kernel.finish(inner)?)?;
            stages.push((key, stage));
        }
        if stages.iter().any(|s| matches!(s.1, Stage::Running(_))) {
            let kernels = Kernels::Each(stages.into_iter().collect());
            return Ok(Step::Next(Arc::new(Grouped { kernels, by: self.by.clone() })));
        }
        stages.sort_unstable_by(|a, b| a.0.cmp(&b.0));
        let mut answer = Vec::with_capacity(stages.len());
        for (key, stage) in stages {
            if let Stage::Done(v) = stage {
                answer.push((show(&parts(&key)?), v));
            }
        }
        Ok(Step::Done(Value::Map(answer)))
    }

    fn more_passes(&self) -> bool {
        match &self.kernels {
            Kernels::Same(k) => k.more_passes(),
            Kernels::Each(_) => false,
        }
    }

    fn state_bytes(&self, state: &AnyState) -> usize {
        state.downcast_ref::<Groups>().map_or(0, Groups::bytes)
    }

    fn encode(&self, state: &AnyState) -> Result<Vec<u8>> {
        let Some(groups) = state.downcast_ref::<Groups>() else { return Err(wrong()) };
        let mut all = Vec::with_capacity(groups.len());
        for (key, inner) in groups.entries() {
            if let Some(kernel) = self.kernel(key)? {
                all.push((parts(key)?, kernel.encode(inner)?));
            }
        }
        postcard::to_stdvec(&all)
            .map_err(|e| Error::internal(format!("cannot encode the states of groups: {e}")))
    }

    fn decode(&self, bytes: &[u8]) -> Result<AnyState> {
        let all: Vec<(Key, Vec<u8>)> = postcard::from_bytes(bytes).map_err(|e| {
            Error::format(format!("the states of groups from another rank are malformed: {e}"))
        })?;
        if all.len() > limits::MAX_GROUPS || all.iter().any(|(k, _)| k.len() != self.by.len()) {
            return Err(Error::format("groups of other columns, or too many, from another rank"));
        }
        let mut groups = Groups::default();
        for (key, bytes) in all {
            let key = key_of(&key);
            if groups.find(&key).is_some() {
                return Err(Error::format("one group came twice from another rank"));
            }
            if let Some(kernel) = self.kernel(&key)? {
                let inner = kernel.decode(&bytes)?;
                let size = kernel.state_bytes(&inner);
                groups.insert(&key, inner, size);
            }
        }
        Ok(Box::new(groups))
    }

    fn output(&self) -> Option<PathBuf> {
        None
    }

    fn sink(&self) -> Option<Sink> {
        None
    }

    fn map(&self, _: &Block<'_>, _: &mut Vec<u8>) -> Result<()> {
        Ok(())
    }
}

fn own(state: &mut AnyState) -> Result<&mut Groups> {
    state.downcast_mut::<Groups>().ok_or_else(wrong)
}

fn wrong() -> Error {
    Error::internal("a state was given to a grouped kernel that is none of its own")
}

fn stage_of(step: Step) -> Result<Stage> {
    match step {
        Step::Done(v) => Ok(Stage::Done(v)),
        Step::Next(k) => Ok(Stage::Running(k)),
        // Every group would write the same file.
        Step::File { .. } => Err(Error::usage("a kernel that writes a file cannot run by groups")),
    }
}

/// The group's text.
fn show(key: &Key) -> String {
    let text = |p: &Part| match p {
        Part::Number(n) => show_number(number(*n)),
        Part::Text(t) => show_text(t),
        Part::Missing => "NA".into(),
    };
    if let [part] = key.as_slice() {
        return text(part);
    }
    let quote = |s: String| match s.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", s.replace('"', "\"\"")),
        false => s,
    };
    key.iter().map(|p| quote(text(p))).collect::<Vec<_>>().join(",")
}

/// The shortest text that reads back to the same double.
pub(crate) fn show_number(x: f64) -> String {
    match x {
        x if x.is_nan() => "NaN".into(),
        x if x.is_infinite() => if x > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        x if x == 0.0 || (1e-5..1e16).contains(&x.abs()) => x.to_string(),
        x => format!("{x:e}"),
    }
}

fn show_text(bytes: &[u8]) -> String {
    let mut s = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        s.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|b| s.push_str(&format!("\\x{b:02X}")));
    }
    s
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::groups::sortable;
    use crate::{Kernel, laws};
    use proptest::prelude::*;
    use std::collections::BTreeMap;
    use stead_core::{ColumnInfo, ColumnKind, Columns, MISSING, RecordKind, Span};

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
            Value::Map(m) => {
                m.iter().map(|(k, v)| (k.clone(), v.as_f64().expect("number"))).collect()
            }
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
    fn garbage_states_are_errors() {
        let k = grouped(0, &[0]);
        assert!(k.decode(&[9, 9, 9]).is_err());
        let empty = k.encode(&k.init()).expect("encode");
        assert!(k.decode(&empty).is_ok());
    }

    proptest! {
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
}
