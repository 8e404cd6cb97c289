//! The kernels by name: what they are, and how to make one from a specification.

use crate::columns::Chosen;
use crate::{
    AnyKernel, Spec, bytes, extremes, gram, grep, hist, kmeans, moments, normalize, quantile,
    render,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use stead_core::{Error, Result, Schema, Value, schema::distance};

/// What `stead kernels NAME` shows.
#[derive(Debug, Clone, Copy)]
pub struct Info {
    /// Name in specifications.
    pub name: &'static str,
    /// One line.
    pub summary: &'static str,
    /// `mean:COLUMN`
    pub usage: &'static str,
    /// What is computed, exactly, with missing values, NaN and empty input; options and their defaults.
    pub definition: &'static str,
    /// How far from the true answer it can be.
    pub error: &'static str,
    /// Time and memory.
    pub cost: &'static str,
    /// Paper or standard.
    pub source: &'static str,
    /// Specifications that work.
    pub examples: &'static [&'static str],
}

/// What a kernel may know of the dataset when it is made.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Columns and record structure.
    pub schema: &'a Schema,
    /// Path of the dataset's first file, for kernels that write beside it.
    pub path: Option<&'a Path>,
    /// True if the result is wanted per group.
    pub grouped: bool,
}

/// A kernel made from a specification.
pub struct Built {
    /// Specifications with the same key share one kernel and one state (mean and variance of one column).
    pub key: String,
    /// The kernel.
    pub kernel: Arc<dyn AnyKernel>,
    /// Which member of the kernel's result is the answer; all of it if `None`.
    pub pick: Option<&'static str>,
    /// Among kernels of one key, the one with the greatest `level` answers for all: its result has every
    /// member that those below have (sum, mean and variance of one column). 0 where there is but one.
    pub level: u32,
    /// How it is done together with others over columns of one array, where that is worth it.
    pub rows: Option<Rows>,
}

/// A kernel over columns of a 2-d array whose rows lie in one piece. One kernel that reads rows as they lie costs less
/// than many that have their columns taken out of them.
pub struct Rows {
    /// The columns.
    pub columns: Chosen,
    /// Fewest columns, of all kernels that are done together, for which it pays.
    pub least: usize,
    /// Makes one kernel that does what several do, each with its columns. Its result is a list of theirs.
    pub make: fn(Vec<Chosen>, u32) -> Arc<dyn AnyKernel>,
}

impl Built {
    /// A kernel that nobody shares.
    pub fn alone(spec: &Spec, kernel: impl AnyKernel + 'static) -> Built {
        Built { key: spec.text.clone(), kernel: Arc::new(kernel), pick: None, level: 0, rows: None }
    }
}

type Build = fn(&Spec, &Context<'_>) -> Result<Built>;

/// Every kernel. One line each; the modules hold the rest.
const KERNELS: &[(&Info, Build)] = &[
    (&bytes::LINES, bytes::build_lines),
    (&bytes::ROWS, bytes::build_rows),
    (&bytes::DIGITS, bytes::build_digits),
    (&bytes::ENTROPY, bytes::build_entropy),
    (&grep::INFO, grep::build),
    (&render::INFO, render::build),
    (&kmeans::INFO, kmeans::build),
    (&normalize::INFO, normalize::build),
    (&moments::COUNT, moments::count),
    (&moments::SUM, moments::sum),
    (&moments::MEAN, moments::mean),
    (&moments::VAR, moments::var),
    (&moments::STD, moments::std),
    (&extremes::MIN, extremes::min),
    (&extremes::MAX, extremes::max),
    (&hist::INFO, hist::build),
    (&quantile::INFO, quantile::build),
    (&gram::INFO, gram::build),
];

/// What there is, in the order to list it.
pub fn list() -> impl Iterator<Item = &'static Info> {
    KERNELS.iter().map(|(i, _)| *i)
}

/// The kernel called `name`.
pub fn info(name: &str) -> Result<&'static Info> {
    find(name).map(|(i, _)| i)
}

fn find(name: &str) -> Result<(&'static Info, Build)> {
    if let Some((i, b)) = KERNELS.iter().find(|(i, _)| i.name == name) {
        return Ok((i, *b));
    }
    let close = list().map(|i| (distance(i.name, name), i.name)).min();
    let e = Error::usage(format!("no kernel '{name}'"));
    Err(match close {
        Some((d, n)) if d <= 2 => {
            e.with_hint(format!("did you mean '{n}'? 'stead kernels' lists all"))
        }
        _ => e.with_hint("'stead kernels' lists all"),
    })
}

/// Which part of a kernel's result is an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pick {
    /// The place in a list of results, where one kernel does what several did.
    pub part: Option<usize>,
    /// The member; all of it if `None`.
    pub member: Option<&'static str>,
}

impl Pick {
    /// True if all of the result is the answer.
    pub fn is_all(&self) -> bool {
        self.part.is_none() && self.member.is_none()
    }

    /// The answer in a result.
    pub fn of(&self, result: &Value) -> Value {
        let part = match (self.part, result) {
            (None, all) => Some(all),
            (Some(i), Value::List(parts)) => parts.get(i),
            _ => None,
        };
        match (part, self.member) {
            (Some(part), Some(member)) => part.get(member).cloned().unwrap_or(Value::Null),
            (part, _) => part.cloned().unwrap_or(Value::Null),
        }
    }
}

/// A kernel, and what it answers: the places of the specifications in the request, and for each the part of the
/// kernel's result that is its answer.
pub type Fused = (Arc<dyn AnyKernel>, Vec<(usize, Pick)>);

/// Lets specifications with the same key share one kernel, the one with the greatest [`Built::level`]
/// among them, in the order in which the keys first come. Those over rows of one array become one.
pub fn fuse(built: Vec<Built>) -> Vec<Fused> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut levels: Vec<u32> = Vec::new();
    let mut rows: Vec<Option<Rows>> = Vec::new();
    let mut fused: Vec<Fused> = Vec::new();
    for (i, b) in built.into_iter().enumerate() {
        let place = *places.entry(b.key).or_insert(fused.len());
        if place == fused.len() {
            levels.push(b.level);
            rows.push(b.rows);
            fused.push((b.kernel, Vec::new()));
        } else if b.level > levels[place] {
            levels[place] = b.level;
            fused[place].0 = b.kernel;
            // A count, which reads no rows, may have come first.
            rows[place] = b.rows;
        }
        fused[place].1.push((i, Pick { part: None, member: b.pick }));
    }
    together(fused, &levels, rows).into_iter().map(narrowed).collect()
}

/// Makes one kernel of those of one sort and level that read rows, where they have enough columns.
fn together(fused: Vec<Fused>, levels: &[u32], rows: Vec<Option<Rows>>) -> Vec<Fused> {
    type Sort = (fn(Vec<Chosen>, u32) -> Arc<dyn AnyKernel>, usize, u32);
    let mut sorts: Vec<(Sort, Vec<usize>, Vec<Chosen>)> = Vec::new();
    for (place, r) in rows.into_iter().enumerate() {
        let Some(Rows { columns, least, make }) = r else { continue };
        let same =
            |s: &Sort| std::ptr::fn_addr_eq(s.0, make) && (s.1, s.2) == (least, levels[place]);
        match sorts.iter_mut().find(|(s, ..)| same(s)) {
            Some((_, places, all)) => {
                places.push(place);
                all.push(columns);
            }
            None => sorts.push(((make, least, levels[place]), vec![place], vec![columns])),
        }
    }
    sorts
        .retain(|((_, least, _), _, all)| all.iter().map(|c| c.ids.len()).sum::<usize>() >= *least);
    let mut fused: Vec<Option<Fused>> = fused.into_iter().map(Some).collect();
    for ((make, _, level), places, all) in sorts {
        let mut answers = Vec::new();
        for (part, place) in places.iter().enumerate() {
            for (i, pick) in fused[*place].take().into_iter().flat_map(|f| f.1) {
                answers.push((i, Pick { part: Some(part), ..pick }));
            }
        }
        fused[places[0]] = Some((make(all, level), answers));
    }
    fused.into_iter().flatten().collect()
}

/// Lets a kernel compute no more members of its result than are asked for.
fn narrowed((kernel, mut answers): Fused) -> Fused {
    let mut members: Vec<&'static str> = answers.iter().filter_map(|a| a.1.member).collect();
    if members.len() < answers.len() {
        return (kernel, answers);
    }
    members.sort_unstable();
    members.dedup();
    let Some(only) = kernel.only(&members) else { return (kernel, answers) };
    if members.len() == 1 {
        answers.iter_mut().for_each(|a| a.1.member = None);
    }
    (only, answers)
}

/// Makes the kernel that `spec` asks for.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    find(&spec.name)?.1(spec, context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::{Block, ColumnInfo, ColumnKind, Columns, DType, RecordKind, Shape, Span};

    fn schema(columns: &[&str]) -> Schema {
        let number = |n: &&str| ColumnInfo { name: n.to_string(), kind: ColumnKind::Number };
        Schema {
            records: RecordKind::Delimited,
            columns: columns.iter().map(number).collect(),
            shape: None,
        }
    }

    fn kernel(text: &str, schema: &Schema) -> Arc<dyn AnyKernel> {
        let context = Context { schema, path: None, grouped: false };
        let spec = Spec::parse(text).expect("spec");
        build(&spec, &context).expect("built").kernel
    }

    #[test]
    fn states_of_another_plan_are_refused() {
        let schema = schema(&["x", "y"]);
        let text = b"1,2\n3,4\n";
        let block = Block {
            rows: 2,
            text,
            records: &[Span { start: 0, len: 4 }, Span { start: 4, len: 4 }],
            columns: Columns {
                number_ids: &[0, 1],
                numbers: &[1.0, 3.0, 2.0, 4.0],
                stride: 2,
                ..Columns::default()
            },
            ..Block::empty()
        };
        for (theirs, ours) in [
            ("count:x,y", "count:x"),
            ("std:x,y", "std:x"),
            ("max:x,y", "max:x"),
            ("hist:x,bins=5,min=0,max=9", "hist:x,bins=4,min=0,max=9"),
            ("gram:x,y", "gram:x"),
            ("quantile:x,error=1e-4", "quantile:x,error=0.5"),
            ("normalize:x,y,out=n.npy", "normalize:x,out=n.npy"),
            ("kmeans:x,y,k=2", "kmeans:x,k=2"),
            ("kmeans:x,y,k=2,init=first", "kmeans:x,k=2,init=first"),
            ("grep:'[0-9]',lines", "grep:1,lines,max=1"),
            ("std:x", "entropy"),
        ] {
            let (theirs, ours) = (kernel(theirs, &schema), kernel(ours, &schema));
            let mut state = theirs.init();
            theirs.update(&mut state, &block).expect("update");
            let bytes = theirs.encode(&state).expect("encode");
            assert!(theirs.decode(&bytes).is_ok());
            let e = ours.decode(&bytes).map(drop).expect_err("another plan's state");
            assert_eq!(e.kind(), stead_core::Kind::Format);
        }
    }

    #[test]
    fn counts_from_elsewhere_do_not_overflow() {
        let schema = schema(&["x"]);
        let most = postcard::to_stdvec(&u64::MAX).expect("encode");
        let all = postcard::to_stdvec(&vec![u64::MAX; 256]).expect("encode");
        for (spec, bytes) in [("rows", &most), ("lines", &most), ("entropy", &all)] {
            let k = kernel(spec, &schema);
            let mut state = k.decode(bytes).expect("a state");
            k.merge(&mut state, k.decode(bytes).expect("a state")).expect("merge");
            assert!(k.finish(state).is_ok(), "{spec}");
        }
    }

    #[test]
    fn pictures_from_elsewhere_lie_within_the_whole_one() {
        let shape = Shape::new(vec![4, 4, 4]).expect("shape");
        let schema = Schema {
            records: RecordKind::Items,
            columns: vec![ColumnInfo {
                name: "value".into(),
                kind: ColumnKind::Binary(DType::F32),
            }],
            shape: Some(shape),
        };
        let k = kernel("render:out=v.png,width=2,height=2,min=0,max=1", &schema);
        // Fortran order, and one node: level, number, and lines as bytes; and nothing that is shown in the end.
        let state = |y: usize, lines: usize, x: usize, pixels: usize| {
            let line = vec![[0.5f32; 4]; pixels];
            let lines = std::iter::repeat_n((x, line.as_slice()), lines);
            let bytes = crate::render::wire::put(y, lines, |p: [f32; 4]| p.map(f32::to_bits));
            let nodes = std::collections::BTreeMap::from([((0u32, 0u64), bytes)]);
            let whole = (Some(false), nodes, None::<Vec<u8>>);
            k.decode(&postcard::to_stdvec(&whole).expect("encode"))
        };
        for (y, lines, x, pixels) in [(0, 1, 0, 2), (1, 1, 1, 1), (0, 2, 0, 2)] {
            let good = state(y, lines, x, pixels).expect("fits");
            assert!(k.finish(good).is_ok(), "{y} {lines} {x} {pixels}");
        }
        for (y, lines, x, pixels) in [
            (0, 1, 1, 2),
            (0, 1, 0, 3),
            (0, 3, 0, 1),
            (1, 2, 0, 1),
            (0, 1, usize::MAX, 1),
            (usize::MAX, 1, 0, 1),
        ] {
            assert!(state(y, lines, x, pixels).is_err(), "{y} {lines} {x} {pixels}");
        }
    }

    #[test]
    fn one_kernel_for_one_key() {
        let schema = schema(&[]);
        let context = Context { schema: &schema, path: None, grouped: false };
        let built = ["digits", "rows", "entropy"]
            .map(|s| Spec::parse(s).and_then(|s| build(&s, &context)).expect("built"));
        let answers: Vec<_> = fuse(built.into()).into_iter().map(|(_, a)| a).collect();
        let pick = |member| Pick { part: None, member };
        let histogram = vec![(0, pick(Some("digits"))), (2, pick(Some("entropy")))];
        assert_eq!(answers, [histogram, vec![(1, pick(None))]]);
    }

    #[test]
    fn every_kernel_is_described_and_its_examples_can_be_read() {
        for i in list() {
            assert!(!i.examples.is_empty(), "{}", i.name);
            for text in [i.summary, i.definition, i.error, i.cost, i.source] {
                assert!(!text.is_empty(), "{}", i.name);
            }
            for e in i.examples {
                let spec = Spec::parse(e).expect("example");
                assert_eq!(spec.name, i.name);
            }
            assert_eq!(list().filter(|j| j.name == i.name).count(), 1, "{} stands twice", i.name);
        }
    }

    #[test]
    fn an_unknown_kernel_gets_a_suggestion() {
        let e = info("entrpy").map(|i| i.name).expect_err("unknown");
        assert!(e.hint().is_some_and(|h| h.contains("'entropy'")));
    }
}
