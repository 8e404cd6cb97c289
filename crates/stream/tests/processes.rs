//! Streams between processes, some of which are killed.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{dir, memory, says};
use std::path::Path;
use std::process::Child;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Bounds, DType, Kind};
use stead_stream::{Definition, Home, Presence, Progress, Read, Reader, Writer, Written};

fn spaces(dir: &Path) -> Spaces {
    memory(&dir.join("own"))
}

const ELEMENTS: u64 = 1 << 16;

fn definition() -> Definition {
    Definition {
        name: "T".into(),
        dtype: DType::U64,
        shape: vec![2 * ELEMENTS],
        dims: vec!["x".into()],
        attributes: Default::default(),
    }
}

fn part(rank: u64) -> Bounds {
    Bounds::new([rank * ELEMENTS], [ELEMENTS]).unwrap()
}

fn data(step: u64, rank: u64) -> Vec<u8> {
    (0..ELEMENTS).flat_map(|i| (step * 1_000_000_007 + rank * ELEMENTS + i).to_ne_bytes()).collect()
}

/// This program again, as a writer or a reader of a stream in a folder.
fn child(what: &str, dir: &Path, rank: u64, steps: u64) -> Child {
    common::child(&format!("{what} {rank} {steps} {}", dir.display()))
}

/// What [`child`] does.
#[test]
fn another_process() {
    let Some(said) = common::told() else { return };
    let words: Vec<&str> = said.splitn(4, ' ').collect();
    let (rank, steps): (u64, u64) = (words[1].parse().unwrap(), words[2].parse().unwrap());
    let spaces = spaces(Path::new(words[3]));
    match words[0] {
        "write" => {
            let options = Written { spaces, rank, writers: 2, readers: 1, ..Written::default() };
            let mut writer = Writer::open("sim", &options).unwrap();
            let t = writer.define(definition()).unwrap();
            for step in 0..steps {
                writer.begin().unwrap();
                writer.put(t, &part(rank), &data(step, rank)).unwrap();
                writer.end().unwrap();
                println!("step {step}");
            }
            writer.close().unwrap();
        }
        "read" => {
            let options = Read { spaces, rank, ranks: 2, ..Read::default() };
            let mut reader = Reader::open("sim", &options).unwrap();
            let mut kept = Vec::new();
            while let Some(step) = reader.next_step().unwrap() {
                let whole = Bounds::new([0], [2 * ELEMENTS]).unwrap();
                let expected = [data(step.number(), 0), data(step.number(), 1)].concat();
                assert!(step.get("T", &whole).unwrap().bytes() == expected);
                println!("step {}", step.number());
                // It still looks at the one before.
                kept = vec![step];
            }
            drop(kept);
        }
        other => panic!("{other}"),
    }
    println!("done");
}

#[test]
fn two_write_and_two_read() {
    let dir = dir();
    let mut all: Vec<Child> = [("write", 0), ("read", 0), ("read", 1), ("write", 1)]
        .iter()
        .map(|(what, rank)| child(what, dir.path(), *rank, 50))
        .collect();
    for child in &mut all {
        assert!(says(child, "done"));
        assert!(child.wait().unwrap().success());
    }
    let home = Home::open(&spaces(dir.path())).unwrap();
    assert_eq!(home.list().unwrap(), Vec::<String>::new());
}

#[test]
fn a_writer_that_is_killed_ends_the_stream_and_complete_steps_stay() {
    let dir = dir();
    let options = Read { spaces: spaces(dir.path()), ..Read::default() };
    let mut writers: Vec<Child> =
        (0..2).map(|rank| child("write", dir.path(), rank, 1 << 40)).collect();
    let mut reader = Reader::open("sim", &options).unwrap();
    let first = reader.next_step().unwrap().unwrap();
    writers[1].kill().unwrap();
    writers[1].wait().unwrap();
    let mut had = first.number();
    let error = loop {
        match reader.next_step() {
            Ok(Some(step)) => {
                assert_eq!(step.number(), had + 1);
                had = step.number();
                assert!(step.get("T", &part(1)).unwrap().bytes()[..80] == data(had, 1)[..80]);
            }
            Ok(None) => panic!("it did not end well"),
            Err(e) => break e,
        }
    };
    assert_eq!(error.kind(), Kind::Peer);
    assert!(
        error.message().contains("writer 1 of stream 'sim' has ended without closing it"),
        "{error}"
    );
    assert!(error.message().contains(&format!("after step {had}")), "{error}");
    // The other one is told, and so is who looks.
    assert!(!writers[0].wait().unwrap().success());
    let home = Home::open(&options.spaces).unwrap();
    let description = home.describe("sim").unwrap();
    assert_eq!(description.state, Progress::Failed { writer: 1 });
    assert_eq!(description.writers[1].presence, Presence::Died);
    assert_eq!(first.get("T", &part(0)).unwrap().bytes()[..80], data(0, 0)[..80]);
    drop((first, reader));
    assert_eq!(home.list().unwrap(), Vec::<String>::new());
}

#[test]
fn a_reader_that_is_killed_frees_what_it_holds() {
    let dir = dir();
    let mut readers: Vec<Child> = (0..2).map(|rank| child("read", dir.path(), rank, 0)).collect();
    let writers: Vec<Child> = (0..2).map(|rank| child("write", dir.path(), rank, 60)).collect();
    assert!(says(&mut readers[1], "step 3"));
    readers[1].kill().unwrap();
    readers[1].wait().unwrap();
    assert!(says(&mut readers[0], "done"));
    assert!(readers[0].wait().unwrap().success());
    for mut writer in writers {
        assert!(says(&mut writer, "done"));
        assert!(writer.wait().unwrap().success());
    }
    let home = Home::open(&spaces(dir.path())).unwrap();
    assert_eq!(home.list().unwrap(), Vec::<String>::new());
}

#[test]
fn all_of_them_are_killed_and_the_next_run_goes_well() {
    let dir = dir();
    for round in 0..3 {
        let mut writers: Vec<Child> =
            (0..2).map(|rank| child("write", dir.path(), rank, 1 << 40)).collect();
        let mut readers: Vec<Child> =
            (0..2).map(|rank| child("read", dir.path(), rank, 0)).collect();
        assert!(says(&mut readers[round % 2], "step 5"));
        for child in writers.iter_mut().chain(&mut readers) {
            child.kill().unwrap();
            child.wait().unwrap();
        }
    }
    // Readers that come first do not take what was left for what they wait for.
    let mut all: Vec<Child> = (0..2).map(|rank| child("read", dir.path(), rank, 0)).collect();
    std::thread::sleep(Duration::from_millis(300));
    all.extend((0..2).map(|rank| child("write", dir.path(), rank, 5)));
    for child in &mut all {
        assert!(says(child, "done"));
        assert!(child.wait().unwrap().success());
    }
}
