//! Many variables in a step, and many ends of streams, one after the other.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Place, bounds, memory, read, says, written};
use std::path::Path;
use stead_core::DType;
use stead_core::layout::Spaces;
use stead_stream::{Behind, Definition, Read, Reader, Start, Writer, Written};

#[test]
fn a_step_of_a_hundred_thousand_variables_has_all_of_them() {
    const MANY: u64 = 100_000;
    let place = Place::new();
    let mut writer = Writer::open("sim", &Written { keep: 2, ..place.written() }).unwrap();
    let name = |n: u64| format!("variable {n}");
    let values = |step: u64, n: u64| -> Vec<u8> {
        (0..3u64).flat_map(|i| (step * 1_000_000 + n * 3 + i).to_le_bytes()).collect()
    };
    let all: Vec<u32> = (0..MANY)
        .map(|n| writer.define(Definition::new(&name(n), DType::U64, [3])).unwrap())
        .collect();
    let whole = bounds(&[0], &[3]);
    for step in 0..2 {
        writer.begin().unwrap();
        for (n, variable) in (0..).zip(&all) {
            writer.put(*variable, &whole, &values(step, n)).unwrap();
        }
        writer.end().unwrap();
    }
    writer.close().unwrap();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    for number in 0..2 {
        let step = reader.next_step().unwrap().unwrap();
        assert_eq!((step.number(), step.bytes()), (number, MANY * 24));
        let names: Vec<&str> = step.variables().map(|v| v.name.as_str()).collect();
        assert_eq!(names.len() as u64, MANY);
        for (n, said) in (0..).zip(names) {
            assert_eq!(said, name(n));
            assert_eq!(step.get(said, &whole).unwrap().bytes(), values(number, n), "{said}");
        }
    }
    assert!(reader.next_step().unwrap().is_none());
    drop(reader);
    assert_eq!(place.left(), Vec::<String>::new());
}

const LEN: u64 = 100;

fn put(writer: &mut Writer, n: u64) {
    let variable = writer.define(Definition::new("T", DType::U8, [LEN])).unwrap();
    writer.begin().unwrap();
    writer.put(variable, &bounds(&[0], &[LEN]), &[n as u8; LEN as usize]).unwrap();
    writer.end().unwrap();
}

/// The next step of a reader, which is that of this number.
fn has(reader: &mut Reader, n: u64) {
    let step = reader.next_step().unwrap().unwrap();
    let got = step.get("T", &bounds(&[0], &[LEN])).unwrap();
    assert_eq!(got.bytes(), [n as u8; LEN as usize]);
}

/// A reader comes to a stream that goes on, has a step, and goes.
fn come_and_go(spaces: &Spaces, writer: &mut Writer, n: u64) {
    let (start, behind) = (Start::Next, Behind::Drop);
    let options = Read { group: format!("g{}", n % 3), start, behind, ..read(spaces) };
    let mut reader = Reader::open("long", &options).unwrap();
    put(writer, n);
    has(&mut reader, n);
}

/// A stream is begun, read and over.
fn begin_and_end(spaces: &Spaces, n: u64) {
    let mut writer = Writer::open("short", &written(spaces)).unwrap();
    let mut reader = Reader::open("short", &read(spaces)).unwrap();
    put(&mut writer, n);
    has(&mut reader, n);
    writer.close().unwrap();
    assert!(reader.next_step().unwrap().is_none());
}

/// Files and folders below a folder.
fn files(folder: &Path) -> usize {
    let all = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    all.map(|path| if path.is_dir() { 1 + files(&path) } else { 1 }).sum()
}

/// Descriptors, threads and mappings of this process, and objects in memory.
fn there(memory: &Path) -> [usize; 4] {
    let count = |folder: &str| std::fs::read_dir(folder).unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap().lines().count();
    [count("/proc/self/fd"), count("/proc/self/task"), maps, files(memory)]
}

/// So many readers, and a stream with each so many-th of them: a process that has no other threads which do something.
#[test]
fn another_process() {
    let Some(said) = common::told() else { return };
    let words: Vec<&str> = said.splitn(3, ' ').collect();
    let (cycles, each): (u64, u64) = (words[0].parse().unwrap(), words[1].parse().unwrap());
    let at = Path::new(words[2]).join("own");
    let spaces = memory(&at);
    let mut writer = Writer::open("long", &Written { keep: 2, ..written(&spaces) }).unwrap();
    let mut cycle = |n: u64| {
        come_and_go(&spaces, &mut writer, n);
        if n.is_multiple_of(each) {
            begin_and_end(&spaces, n);
        }
    };
    (0..50).for_each(&mut cycle);
    let before = there(&at);
    (0..cycles).for_each(&mut cycle);
    let after = there(&at);
    assert_eq!((before[0], before[1], before[3]), (after[0], after[1], after[3]));
    // The allocator may have some more.
    assert!(after[2] <= before[2] + 8, "{before:?} {after:?}");
    println!("done");
}

#[test]
fn ends_that_come_and_go_ten_thousand_times_leave_nothing() {
    let dir = common::dir();
    let each = if std::env::var_os("STEAD_CRASHES").is_some() { 1 } else { 4 };
    let mut child = common::child(&format!("10000 {each} {}", dir.path().display()));
    assert!(says(&mut child, "done"));
    assert!(child.wait().unwrap().success());
}
