//! What exactness costs: nanoseconds a value of the exact sum, alone and with the exact sum of squares, beside
//! a plain loop and plain loops with independent partial sums. The values lie in the second-level cache.
//!
//! `cargo run --release -p stead-kernel --example exact_sum`

#![allow(clippy::disallowed_methods, clippy::print_stdout)] // It measures, and prints what it measured.

use std::hint::black_box;
use std::time::Instant;
use stead_kernel::exact::powers::PowerSums;
use stead_kernel::exact::{ExactSum, add_with_squares};

/// The best of several runs, in ns a value.
fn ns(values: &[f64], mut f: impl FnMut(&[f64]) -> f64) -> f64 {
    let mut best = f64::INFINITY;
    for _ in 0..300 {
        let start = Instant::now();
        black_box(f(black_box(values)));
        best = best.min(start.elapsed().as_secs_f64());
    }
    best * 1e9 / values.len() as f64
}

fn main() {
    // A small generator: splitmix64.
    let mut seed = 1u64;
    let mut next = move || {
        seed = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = seed;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    const N: usize = 12 << 10;
    let unit: Vec<f64> = (0..N).map(|_| (next() >> 11) as f64 / (1u64 << 53) as f64).collect();
    let small: Vec<f64> = (0..N).map(|_| (next() % 2000) as f64 - 300.0).collect();
    let wide: Vec<f64> = unit.iter().map(|v| v * 2f64.powi((next() % 600) as i32 - 300)).collect();
    let holes: Vec<f64> =
        small.iter().map(|v| if next() % 40 == 0 { stead_core::MISSING } else { *v }).collect();
    println!(
        "{:<26} {:>6} {:>6} {:>8} {:>6} {:>8} {:>6} {:>8}",
        "ns a value", "plain", "lanes", "squares", "exact", "squares", "add", "powers"
    );
    for (name, values) in [
        ("uniform in [0, 1)", &unit),
        ("integers", &small),
        ("integers, 2.5 % missing", &holes),
        ("600 binades", &wide),
    ] {
        let plain = ns(values, |v| v.iter().sum());
        let lanes = ns(values, |v| {
            let mut sums = [0.0; 8];
            for c in v.chunks_exact(8) {
                for i in 0..8 {
                    sums[i] += c[i];
                }
            }
            sums.iter().sum()
        });
        let lanes2 = ns(values, |v| {
            let (mut sums, mut squares) = ([0.0; 8], [0.0; 8]);
            for c in v.chunks_exact(8) {
                for i in 0..8 {
                    sums[i] += c[i];
                    squares[i] += c[i] * c[i];
                }
            }
            sums.iter().chain(&squares).sum()
        });
        let exact = ns(values, |v| {
            let mut s = ExactSum::new();
            s.add_slice(v);
            s.to_f64()
        });
        let squares = ns(values, |v| {
            let (mut s, mut q) = (ExactSum::new(), ExactSum::new());
            add_with_squares(&mut s, &mut q, v);
            s.to_f64() + q.to_f64()
        });
        let add = ns(values, |v| {
            let mut s = ExactSum::new();
            v.iter().for_each(|x| s.add(*x));
            s.to_f64()
        });
        let powers = ns(values, |v| {
            let mut s = PowerSums::default();
            s.add_slice(v);
            s.moments()[3]
        });
        println!(
            "{name:<26} {plain:>6.2} {lanes:>6.2} {lanes2:>8.2} {exact:>6.2} {squares:>8.2} {add:>6.2} {powers:>8.2}"
        );
    }
}
