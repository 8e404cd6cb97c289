//! The kernels by name: what they are, and how to make one from a specification.

use crate::{
    AnyKernel, Spec, bytes, extremes, gram, grep, hist, kmeans, moments, normalize, quantile,
    render,
};
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use stead_core::{Error, Result, Schema, schema::distance};

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
}

impl Built {
    /// A kernel that nobody shares.
    pub fn alone(spec: &Spec, kernel: impl AnyKernel + 'static) -> Built {
        Built { key: spec.text.clone(), kernel: Arc::new(kernel), pick: None, level: 0 }
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

/// A kernel, and what it answers: the places of the specifications in the request, and for each the
/// member of the kernel's result that is its answer (all of it if `None`).
pub type Fused = (Arc<dyn AnyKernel>, Vec<(usize, Option<&'static str>)>);

/// Lets specifications with the same key share one kernel, the one with the greatest [`Built::level`]
/// among them, in the order in which the keys first come.
pub fn fuse(built: Vec<Built>) -> Vec<Fused> {
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut levels: Vec<u32> = Vec::new();
    let mut fused: Vec<Fused> = Vec::new();
    for (i, b) in built.into_iter().enumerate() {
        let place = *places.entry(b.key).or_insert(fused.len());
        if place == fused.len() {
            levels.push(b.level);
            fused.push((b.kernel, Vec::new()));
        } else if b.level > levels[place] {
            levels[place] = b.level;
            fused[place].0 = b.kernel;
        }
        fused[place].1.push((i, b.pick));
    }
    fused
}

/// Makes the kernel that `spec` asks for.
pub fn build(spec: &Spec, context: &Context<'_>) -> Result<Built> {
    find(&spec.name)?.1(spec, context)
}

#[cfg(test)]
mod tests {
    use super::*;
    use stead_core::RecordKind;

    #[test]
    fn one_kernel_for_one_key() {
        let schema = Schema { records: RecordKind::Lines, columns: vec![], shape: None };
        let context = Context { schema: &schema, path: None, grouped: false };
        let built = ["digits", "rows", "entropy"]
            .map(|s| Spec::parse(s).and_then(|s| build(&s, &context)).expect("built"));
        let answers: Vec<_> = fuse(built.into()).into_iter().map(|(_, a)| a).collect();
        assert_eq!(answers, [vec![(0, Some("digits")), (2, Some("entropy"))], vec![(1, None)]]);
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
