//! The laws every kernel keeps, as a check that tests of any crate can call.

use crate::{AnyKernel, AnyState, Step};
use std::sync::Arc;
use stead_core::{Block, Value};

/// How states come together.
#[derive(Clone, Copy)]
enum Way {
    /// As they are.
    Plain,
    /// As bytes.
    Bytes,
    /// As bytes, each cut in so many pieces if the kernel can cut them.
    Pieces(usize),
}

fn round(kernel: &Arc<dyn AnyKernel>, parts: &[Vec<&Block<'_>>], way: Way) -> Step {
    let pieces = match way {
        Way::Pieces(n) if kernel.cuts() => n,
        _ => 0,
    };
    let cut = |state: AnyState| match pieces {
        0 => vec![state],
        n => kernel.cut(state, n).expect("cut"),
    };
    let mut totals = cut(kernel.init());
    for part in parts {
        let mut state: AnyState = kernel.init();
        for block in part {
            kernel.update(&mut state, block).expect("update");
        }
        for (total, mut state) in totals.iter_mut().zip(cut(state)) {
            if !matches!(way, Way::Plain) {
                let bytes = kernel.encode(&state).expect("encode");
                state = kernel.decode(&bytes).expect("decode");
            }
            kernel.merge(total, state).expect("merge");
        }
    }
    let total = match pieces {
        0 => totals.remove(0),
        _ => {
            let closed = |piece: AnyState| {
                let bytes = kernel.encode(&kernel.close(piece).expect("close")).expect("encode");
                kernel.decode(&bytes).expect("decode")
            };
            kernel.assemble(totals.into_iter().map(closed).collect()).expect("assemble")
        }
    };
    kernel.finish(total).expect("finish")
}

/// Runs the kernel over `parts`, each part accumulated apart, to its final answer.
pub fn answer(kernel: Arc<dyn AnyKernel>, parts: &[Vec<&Block<'_>>], recode: bool) -> Value {
    answer_and_file(kernel, parts, recode).0
}

/// As [`answer`], with the bytes of the file that the kernel wants written, if it wants one.
pub fn answer_and_file(
    kernel: Arc<dyn AnyKernel>,
    parts: &[Vec<&Block<'_>>],
    recode: bool,
) -> (Value, Option<Vec<u8>>) {
    run(kernel, parts, if recode { Way::Bytes } else { Way::Plain })
}

fn run(
    kernel: Arc<dyn AnyKernel>,
    parts: &[Vec<&Block<'_>>],
    way: Way,
) -> (Value, Option<Vec<u8>>) {
    let mut kernel = kernel;
    loop {
        match round(&kernel, parts, way) {
            Step::Done(v) => return (v, None),
            Step::File { bytes, value, .. } => return (value, Some(bytes)),
            Step::Next(k) => {
                assert!(!kernel.is_last(), "another pass came after the last one");
                kernel = k;
            }
        }
    }
}

/// Checks that any distribution of `blocks` over parts, in any order, with states travelling as bytes or in pieces,
/// gives the same answer and the same file to the last bit, and returns the answer.
pub fn check(kernel: Arc<dyn AnyKernel>, blocks: &[Block<'_>]) -> Value {
    let (all, file) = answer_and_file(kernel.clone(), &[blocks.iter().collect()], false);
    let shown = format!("{all:?}");
    // A small generator of its own: the orders are the same in every run.
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = move |n: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed % n.max(1) as u64) as usize
    };
    for parts in [1, 2, 3, 7] {
        for way in [Way::Bytes, Way::Pieces(2), Way::Pieces(parts + 2)] {
            let mut split: Vec<Vec<&Block<'_>>> = vec![Vec::new(); parts];
            let mut order: Vec<&Block<'_>> = blocks.iter().collect();
            for i in (1..order.len()).rev() {
                order.swap(i, next(i + 1));
            }
            for b in order {
                split[next(parts)].push(b);
            }
            let (got, bytes) = run(kernel.clone(), &split, way);
            let got = format!("{got:?}");
            assert_eq!(got, shown, "another split gave another answer ({parts} parts)");
            assert!(bytes == file, "another split gave another file ({parts} parts)");
        }
    }
    all
}
