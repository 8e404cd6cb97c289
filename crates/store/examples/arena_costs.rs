//! What memory for others costs: copies into fresh pages, into pages that were given back, and into memory of one's own; small pieces; looks.
//!
//! `cargo run --release -p stead-store --example arena_costs [FOLDER] [MIB]`
//!
//! Each line is the best of several runs, so that a busy machine disturbs it little.

#![allow(clippy::disallowed_methods, clippy::print_stdout, clippy::expect_used)] // It measures and prints.

use std::hint::black_box;
use std::path::Path;
use std::time::Instant;
use stead_core::Result;
use stead_store::arena::{Arena, Neighbours, Options, Piece};
use stead_store::{Folder, process};

const RUNS: usize = 5;

/// Seconds of the best of several runs. What each gives is dropped outside of them.
fn best<T>(mut run: impl FnMut() -> T) -> f64 {
    let one = || {
        let start = Instant::now();
        let kept = black_box(run());
        let seconds = start.elapsed().as_secs_f64();
        drop(kept);
        seconds
    };
    std::iter::repeat_with(one).take(RUNS).fold(f64::INFINITY, f64::min)
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let at = arguments.next().unwrap_or_else(|| "/dev/shm".to_owned());
    let mib: usize = arguments.next().and_then(|n| n.parse().ok()).unwrap_or(256);
    let own = format!("arena-costs-{}", std::process::id());
    let outside = Folder::open(Path::new(&at))?;
    let (folder, _) = outside.make(own.as_ref(), true)?;
    let done = measure(&folder, mib << 20);
    outside.remove_folder(own.as_ref())?;
    done
}

fn measure(folder: &Folder, bytes: usize) -> Result<()> {
    let speed = |what: &str, seconds: f64| {
        println!("{what:<44} {:>7.2} GB/s", bytes as f64 / seconds / 1e9);
    };
    let from = vec![1u8; bytes];
    let mut own = vec![2u8; bytes];
    speed("copy to memory of one's own", best(|| own.copy_from_slice(&from)));
    let arena = Arena::new(folder, "w", Options { keep_free: 0, ..Options::default() })?;
    let copy = |len: usize| -> Vec<Piece> {
        let copy = |part: &[u8]| {
            let mut piece = arena.take(part.len()).expect("memory");
            piece.as_mut_slice().copy_from_slice(part);
            piece
        };
        from.chunks(len).map(copy).collect()
    };
    for len in [bytes, 1 << 20, 64 << 10] {
        arena.set_keep_free(0);
        speed(&format!("to fresh pages, {} KiB each", len >> 10), best(|| copy(len)));
        arena.set_keep_free(u64::MAX);
        drop(copy(len));
        speed(&format!("to pages that were used, {} KiB each", len >> 10), best(|| copy(len)));
    }
    let pieces = copy(1 << 20);
    let places: Vec<_> = pieces.iter().map(Piece::place).collect();
    let look = |neighbours: &Neighbours, own: &mut [u8]| {
        for (place, part) in places.iter().zip(own.chunks_mut(1 << 20)) {
            part.copy_from_slice(&neighbours.look("w", place).expect("a view"));
        }
    };
    speed("from a neighbour, mapped anew", best(|| look(&Neighbours::new(folder), &mut own)));
    let neighbours = Neighbours::new(folder);
    look(&neighbours, &mut own);
    speed("from a neighbour, mapped before", best(|| look(&neighbours, &mut own)));
    drop(pieces);
    let each = |what: &str, seconds: f64, count: u32| {
        println!("{what:<44} {:>7.1} ns each", seconds / f64::from(count) * 1e9);
    };
    let small = |len: usize| -> Vec<Piece> {
        (0..100_000).map(|_| arena.take(len).expect("memory")).collect()
    };
    for len in [8, 800] {
        arena.set_keep_free(0);
        each(&format!("100,000 pieces of {len} bytes, fresh"), best(|| small(len)), 100_000);
        arena.set_keep_free(u64::MAX);
        drop(small(len));
        each(&format!("100,000 pieces of {len} bytes, used"), best(|| small(len)), 100_000);
    }
    let pieces = small(8);
    each(
        "look at each",
        best(|| pieces.iter().map(|p| neighbours.look("w", &p.place())).collect::<Vec<_>>()),
        100_000,
    );
    let start = Instant::now();
    drop(pieces);
    each("give each back", start.elapsed().as_secs_f64(), 100_000);
    let (number, start) = process::me()?;
    let alive = || (0..1000).filter(|_| process::is_alive(number.into(), start)).count();
    each("see that a process lives", best(alive), 1000);
    arena.remove()
}
