//! Measures the parts of a stream that move and find blocks, without a stream around them.
//!
//!     cargo run --release -p stead-stream --example parts [gather] [find] [index]
#![allow(clippy::print_stdout, clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::hint::black_box;
use std::time::Instant;
use stead_core::{Bounds, DType, Result};
use stead_stream::gather::{Plan, parts};
use stead_stream::index::{BlockEntry, Definition, Definitions, Place};
use stead_stream::merge::merge;
use stead_stream::{Finder, covered};

/// The best of some runs, in seconds.
fn best(runs: usize, mut work: impl FnMut() -> Result<()>) -> Result<f64> {
    let mut best = f64::INFINITY;
    for _ in 0..runs {
        let start = Instant::now();
        work()?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}

fn gather() -> Result<()> {
    const N: u64 = 4096;
    let whole = Bounds::new([0, 0], [N, N])?;
    let source: Vec<u8> = (0..N * N * 8).map(|i| i as u8).collect();
    println!("copies out of {N} x {N} f64, GB/s; beside it plain copies of as many bytes");
    let wanted = [
        ("whole", [0, 0], [N, N]),
        ("rows, half", [N / 4, 0], [N / 2, N]),
        ("columns, half", [0, N / 4], [N, N / 2]),
        ("columns, 64", [0, 77], [N, 64]),
        ("columns, 8", [0, 77], [N, 8]),
        ("columns, 3", [0, 77], [N, 3]),
        ("column, 1", [0, 77], [N, 1]),
    ];
    for (name, start, count) in wanted {
        let bounds = Bounds::new(start, count)?;
        let len = bounds.elements() as usize * 8;
        let mut target = vec![1; len];
        let plan = Plan::new(&whole, &bounds, 8)?;
        let mine = best(9, || plan.copy(&source, &mut target).map(drop))?;
        let source = &source[..];
        let two = best(9, || {
            let pieces = plan.pieces(&mut target, 2)?;
            std::thread::scope(|s| {
                for (piece, part) in pieces {
                    s.spawn(move || piece.copy(source, part).map(drop));
                }
            });
            Ok(())
        })?;
        let plain = best(9, || {
            black_box(&mut target).copy_from_slice(&source[..len]);
            Ok(())
        })?;
        // Into the same place of an array of the whole size: what a writer's block is put into.
        let back = Plan::new(&bounds, &whole, 8)?;
        let mut all = vec![0; source.len()];
        let scatter = best(5, || back.copy(&target, &mut all).map(drop))?;
        let rate = |seconds: f64| len as f64 / seconds / 1e9;
        println!(
            "{name:>14}: {:6.2}, by two threads {:6.2}, plain {:6.2}, the other way {:6.2}  ({:.1} us)",
            rate(mine),
            rate(two),
            rate(plain),
            rate(scatter),
            mine * 1e6
        );
    }
    let mut target = vec![0; source.len()];
    let cuts = best(9, || parts(&mut target, &whole, 8, 16).map(drop))?;
    println!("16 parts of it: {:.2} us", cuts * 1e6);
    let (small, one) = (Bounds::new([3, 4], [8, 8])?, vec![7; 512]);
    let tiny = best(9, || {
        for _ in 0..1000 {
            Plan::new(black_box(&small), &whole, 8)?.copy(&one, &mut target)?;
        }
        Ok(())
    })?;
    println!("a block of 8 x 8 f64 into it: {:.0} ns", tiny * 1e6);
    Ok(())
}

fn find() -> Result<()> {
    println!("8192 blocks: building the finder, finding one element, covering everything");
    for n in [[8192, 1, 1], [1, 8192, 1], [64, 128, 1], [2, 4096, 1], [16, 16, 32]] {
        let mut blocks = Vec::new();
        for i in 0..8192 {
            let at = [i / (n[1] * n[2]), i / n[2] % n[1], i % n[2]];
            blocks.push(Bounds::new([at[0] * 10, at[1] * 1000, at[2] * 7], [10, 1000, 7])?);
        }
        let build = best(5, || {
            black_box(Finder::new(3, &blocks));
            Ok(())
        })?;
        let finder = Finder::new(3, &blocks);
        let one = best(5, || {
            for block in blocks.iter().step_by(8) {
                black_box(finder.find(&Bounds::new(block.start(), [1, 1, 1])?));
            }
            Ok(())
        })?;
        let whole = Bounds::new([0; 3], [n[0] * 10, n[1] * 1000, n[2] * 7])?;
        let all = best(5, || {
            black_box(finder.find(&whole));
            Ok(())
        })?;
        let cover = best(5, || {
            black_box(covered(&whole, &blocks).is_ok());
            Ok(())
        })?;
        println!(
            "{n:?}: build {:.0} us, find one {:.2} us, find all {:.0} us, covered {:.0} us",
            build * 1e6,
            one / 1024.0 * 1e6,
            all * 1e6,
            cover * 1e6
        );
    }
    Ok(())
}

fn index() -> Result<()> {
    const N: u32 = 100_000;
    let mut definitions = Definitions::new();
    let add = best(1, || {
        for i in 0..N {
            definitions.add(Definition {
                name: format!("group{}/variable{i}", i / 100),
                dtype: DType::F64,
                shape: vec![1000, 100],
                dims: vec!["y".into(), "x".into()],
                attributes: BTreeMap::new(),
            })?;
        }
        Ok(())
    })?;
    let block = |i: u32| {
        let bounds = Bounds::new([u64::from(i) % 900, 0], [100, 100])?;
        let place = Place { segment: 1, offset: u64::from(i) << 17, len: bounds.elements() * 8 };
        Ok(BlockEntry { variable: i, bounds, place })
    };
    let blocks: Vec<BlockEntry> = (0..N).map(block).collect::<Result<_>>()?;
    let said = definitions.encode()?;
    let bytes = definitions.encode_blocks(&blocks)?;
    let each = |seconds: f64| seconds / f64::from(N) * 1e9;
    let times = [
        ("definitions: made", add),
        ("written", best(5, || definitions.encode().map(drop))?),
        ("read", best(5, || Definitions::decode(&said).map(drop))?),
        (
            "hashed",
            best(5, || {
                black_box(Definitions::hash_of(&said));
                Ok(())
            })?,
        ),
        ("blocks: written", best(9, || definitions.encode_blocks(&blocks).map(drop))?),
        ("blocks: read", best(9, || definitions.decode_blocks(&bytes).map(drop))?),
    ];
    println!("{N} variables of one block each ({} and {} bytes), ns each", said.len(), bytes.len());
    for (what, seconds) in times {
        println!("  {what}: {:.1}", each(seconds));
    }
    let mut other = definitions.clone();
    if let Some(first) = definitions.get(0) {
        other.add(Definition { name: "one more".into(), ..first.clone() })?;
    }
    let all = [(0, definitions.into()), (1, other.into())];
    println!("  merge of two writers: {:.1}", each(best(5, || merge(&all).map(drop))?));
    println!(
        "  of two that say the same: {:.1}",
        each(best(5, || merge(&[all[0].clone(), all[0].clone()]).map(drop))?)
    );
    Ok(())
}

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).collect();
    let wanted = |name: &str| asked.is_empty() || asked.iter().any(|a| a == name);
    if wanted("gather") {
        gather()?;
    }
    if wanted("find") {
        find()?;
    }
    if wanted("index") {
        index()?;
    }
    Ok(())
}
