//! Arrays that programs make before they have a writer.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Place, bounds, memory, says, written};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;
use stead_core::layout::Spaces;
use stead_core::{Bounds, DType, Kind};
use stead_stream::{Budget, Buffer, Definition, Home, Read, Reader, Writer, Written, remove};

const MIB: u64 = 1 << 20;

fn whole(bytes: u64) -> Bounds {
    bounds(&[0], &[bytes])
}

fn made(home: &Home, bytes: u64, byte: u8) -> Buffer {
    let mut buffer = home.empty(bytes).unwrap();
    buffer.bytes_mut().unwrap().fill(byte);
    buffer
}

fn define(writer: &mut Writer, name: &str, bytes: u64) -> u32 {
    writer.define(Definition::new(name, DType::U8, [bytes])).unwrap()
}

/// A step of one buffer.
fn put(writer: &mut Writer, buffer: &Buffer) -> stead_core::Result<()> {
    let len = buffer.len() as u64;
    let t = define(writer, "T", len);
    writer.begin()?;
    writer.put_buffer(t, &whole(len), buffer)?;
    writer.end()
}

/// What was put and what was copied so far.
fn copied(writer: &Writer) -> (u64, u64) {
    let report = writer.report();
    (report.put, report.copied)
}

/// The next step has one byte everywhere, where it lies.
fn looks(reader: &mut Reader, bytes: u64, byte: u8) -> bool {
    let step = reader.next_step().unwrap().unwrap();
    let t = step.get("T", &whole(bytes)).unwrap();
    t.is_view() && t.bytes().len() as u64 == bytes && t.bytes().iter().all(|b| *b == byte)
}

#[test]
fn what_was_made_before_its_writer_is_not_copied() {
    let place = Place::new();
    let home = place.home();
    let (mut first, second) = (made(&home, MIB, 1), made(&home, MIB, 2));
    assert!(first.len() as u64 == MIB && !first.is_empty() && place.left().is_empty());
    let mut writer = Writer::open("sim", &Written { keep: 0, ..place.written() }).unwrap();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    assert_eq!(writer.report().memory.used, 0, "it is of no stream before");
    put(&mut writer, &first).unwrap();
    assert_eq!((copied(&writer), writer.report().memory.used), ((MIB, 0), MIB));
    assert!(first.bytes_mut().is_none() && looks(&mut reader, MIB, 1));
    put(&mut writer, &second).unwrap();
    // A part of it, for another variable, beside what is copied, as a small part is.
    writer.begin().unwrap();
    let part = MIB - MIB / 16;
    let (u, v) = (define(&mut writer, "U", part), define(&mut writer, "T", MIB));
    let w = define(&mut writer, "W", 1000);
    writer.put_buffer(u, &whole(part), &second).unwrap();
    writer.put_buffer(w, &whole(1000), &second).unwrap();
    writer.put(v, &whole(MIB), &vec![9; MIB as usize]).unwrap();
    writer.end().unwrap();
    assert_eq!(copied(&writer), (3 * MIB + part + 1000, MIB + 1000));
    assert!(looks(&mut reader, MIB, 2));
    let step = reader.next_step().unwrap().unwrap();
    assert!(step.get("U", &whole(part)).unwrap().bytes().iter().all(|b| *b == 2));
    assert!(step.get("W", &whole(1000)).unwrap().bytes().iter().all(|b| *b == 2));
    assert!(step.get("T", &whole(MIB)).unwrap().bytes().iter().all(|b| *b == 9));
    drop(step);
    // The first one is the program's again, and may be put again.
    first.bytes_mut().unwrap().fill(3);
    put(&mut writer, &first).unwrap();
    assert!(looks(&mut reader, MIB, 3));
    assert_eq!(copied(&writer), (4 * MIB + part + 1000, MIB + 1000));
    // What is small is, and says so.
    put(&mut writer, &made(&home, 5000, 4)).unwrap();
    assert!(looks(&mut reader, 5000, 4));
    assert_eq!(copied(&writer), (4 * MIB + part + 6000, MIB + 6000));
    writer.close().unwrap();
    assert!(reader.next_step().unwrap().is_none());
    drop(reader);
    assert_eq!(place.left(), Vec::<String>::new());
    assert!(first.bytes().iter().all(|b| *b == 3));
}

#[test]
fn who_makes_one_for_each_step_has_the_same_memory_again() {
    let place = Place::new();
    let home = place.home();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    let mut files = 0;
    for step in 0..30 {
        put(&mut writer, &made(&home, MIB, step)).unwrap();
        assert!(looks(&mut reader, MIB, step));
        if step == 5 {
            files = place.files("sim").len();
        }
    }
    assert_eq!((place.files("sim").len(), copied(&writer)), (files, (30 * MIB, 0)));
    // What the program has still is not lent again, and no step that somebody has.
    let mine = made(&home, MIB, 100);
    put(&mut writer, &mine).unwrap();
    let held = reader.next_step().unwrap().unwrap();
    for step in 0..5 {
        put(&mut writer, &made(&home, MIB, step)).unwrap();
        assert!(looks(&mut reader, MIB, step));
    }
    let t = held.get("T", &whole(MIB)).unwrap();
    assert!(t.bytes().iter().chain(mine.bytes()).all(|b| *b == 100));
    writer.close().unwrap();
    drop((t, held, reader));
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn several_writers_put_the_same_memory() {
    let place = Place::new();
    let home = place.home();
    let open = |name: &str| Writer::open(name, &place.written()).unwrap();
    let read = |name: &str| Reader::open(name, &place.read()).unwrap();
    let (mut one, mut two) = (open("one"), open("two"));
    let (mut of_one, mut of_two) = (read("one"), read("two"));
    let mut mesh = made(&home, MIB, 5);
    for _ in 0..4 {
        put(&mut one, &mesh).unwrap();
        put(&mut two, &mesh).unwrap();
        assert!(looks(&mut of_one, MIB, 5) && looks(&mut of_two, MIB, 5));
    }
    assert_eq!((copied(&one), copied(&two)), ((4 * MIB, 0), (4 * MIB, 0)));
    // Each time counts: a step of each stays.
    assert_eq!(two.report().memory.used, MIB);
    one.close().unwrap();
    drop(of_one);
    assert!(mesh.bytes_mut().is_none());
    put(&mut two, &mesh).unwrap();
    assert!(looks(&mut of_two, MIB, 5));
    two.close().unwrap();
    drop(of_two);
    // All of its names are gone with these streams, so that a third one copies.
    assert_eq!(place.left(), Vec::<String>::new());
    let mut three = open("three");
    put(&mut three, &mesh).unwrap();
    assert_eq!(copied(&three), (MIB, MIB));
}

#[test]
fn a_step_stays_for_readers_when_its_writer_has_gone() {
    let place = Place::new();
    let home = place.home();
    let mut buffer = made(&home, MIB, 7);
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    put(&mut writer, &buffer).unwrap();
    writer.close().unwrap();
    assert!(buffer.bytes_mut().is_none());
    drop(buffer);
    // Nobody gets its memory meanwhile.
    let others: Vec<Buffer> = (0..3).map(|n| made(&home, MIB, n)).collect();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    assert!(looks(&mut reader, MIB, 7));
    assert!(others.iter().enumerate().all(|(n, b)| b.bytes()[0] as usize == n));
    drop(reader);
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn it_counts_for_the_memory_of_the_stream() {
    let place = Place::new();
    let home = place.home();
    let timeout = Duration::from_millis(50);
    let options = Written { memory: 3 * MIB, keep: 0, queue: 4, timeout, ..place.written() };
    let mut writer = Writer::open("sim", &options).unwrap();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    let all: Vec<Buffer> = (0..4).map(|n| made(&home, MIB, n)).collect();
    for buffer in &all[..3] {
        put(&mut writer, buffer).unwrap();
    }
    assert_eq!((writer.report().memory.used, writer.report().memory.peak), (3 * MIB, 3 * MIB));
    let e = put(&mut writer, &all[3]).unwrap_err();
    assert_eq!(e.kind(), Kind::Timeout);
    assert!(e.message().contains("step 0"), "{e}");
    assert!(looks(&mut reader, MIB, 0));
    // The step is open, and there is room when the one before is given back.
    let t = define(&mut writer, "T", MIB);
    writer.put_buffer(t, &whole(MIB), &all[3]).unwrap();
    writer.end().unwrap();
    (1..4).for_each(|n| assert!(looks(&mut reader, MIB, n)));
    assert_eq!(copied(&writer), (4 * MIB, 0));
    // What can never fit is told at once, as of what is copied.
    let large = home.empty(4 * MIB).unwrap();
    let e = put(&mut writer, &large).unwrap_err();
    assert_eq!(e.kind(), Kind::Limit);
    let t = define(&mut writer, "T", 4 * MIB);
    let as_put = writer.put(t, &whole(4 * MIB), large.bytes()).unwrap_err();
    assert_eq!(e.message(), as_put.message());
}

#[test]
fn it_counts_for_what_streams_of_a_user_have_together() {
    let dir = common::dir();
    let path = dir.path().join("own");
    std::fs::create_dir_all(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o700)).unwrap();
    let text = format!(
        "[dataspace.memory]\npath = \"{}\"\nmemory = true\nsize = \"4MiB\"\n",
        path.display()
    );
    let spaces = Spaces::parse(&text, &|_| None).unwrap();
    let home = Home::open(&spaces).unwrap();
    let used = || home.describe("a").unwrap().budget.unwrap();
    let all: Vec<Buffer> = (0..3).map(|n| made(&home, MIB, n)).collect();
    let mut a = Writer::open("a", &Written { keep: 3, ..written(&spaces) }).unwrap();
    assert_eq!(used(), Budget { most: 4 * MIB, used: 0 });
    for buffer in &all {
        put(&mut a, buffer).unwrap();
    }
    assert_eq!(used().used, 3 * MIB);
    let timeout = Duration::from_millis(50);
    let mut b = Writer::open("b", &Written { timeout, ..written(&spaces) }).unwrap();
    let two = made(&home, 2 * MIB, 9);
    let e = put(&mut b, &two).unwrap_err();
    assert_eq!(e.kind(), Kind::Timeout);
    assert!(e.message().contains("'a' 3.0 MiB"), "{e}");
    let e = {
        let t = define(&mut b, "T", 5 * MIB);
        b.put_buffer(t, &whole(5 * MIB), &home.empty(5 * MIB).unwrap()).unwrap_err()
    };
    assert!(e.kind() == Kind::Limit && e.message().contains("does not fit"), "{e}");
    a.close().unwrap();
    assert!(home.remove("a", false).unwrap());
    let t = define(&mut b, "T", 2 * MIB);
    b.put_buffer(t, &whole(2 * MIB), &two).unwrap();
    b.end().unwrap();
    assert_eq!(copied(&b), (2 * MIB, 0));
}

#[test]
fn what_is_recorded_is_what_was_put() {
    let place = Place::new();
    let home = place.home();
    let files = place.dir.path().join("files").to_str().unwrap().to_owned();
    let options = Written { persist: Some(files.clone()), ..place.written() };
    let mut writer = Writer::open("sim", &options).unwrap();
    for step in 0..5 {
        put(&mut writer, &made(&home, MIB, step)).unwrap();
    }
    assert_eq!(copied(&writer), (5 * MIB, 0));
    writer.close().unwrap();
    assert!(remove("sim", &place.spaces, true).unwrap());
    let mut reader = Reader::open(&files, &place.read()).unwrap();
    for step in 0..5 {
        let next = reader.next_step().unwrap().unwrap();
        assert!(next.get("T", &whole(MIB)).unwrap().bytes().iter().all(|b| *b == step));
    }
}

#[test]
fn what_cannot_be_put_is_told_and_what_cannot_be_found_is_copied() {
    let place = Place::new();
    let home = place.home();
    let buffer = made(&home, MIB, 1);
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let t = define(&mut writer, "T", 2 * MIB);
    let e = writer.put_buffer(t, &whole(MIB), &buffer).unwrap_err();
    assert!(e.kind() == Kind::Usage && e.message().contains("was not begun"), "{e}");
    writer.begin().unwrap();
    let e = writer.put_buffer(t, &whole(2 * MIB), &buffer).unwrap_err();
    assert_eq!(e.kind(), Kind::Usage);
    assert_eq!(
        e.message(),
        "block [0:2097152] of variable 'T' has 2097152 bytes, and the memory has 1048576"
    );
    let out = bounds(&[MIB + 1], &[MIB]);
    assert_eq!(writer.put_buffer(t, &out, &buffer).unwrap_err().kind(), Kind::Usage);
    assert_eq!(writer.put_buffer(7, &whole(MIB), &buffer).unwrap_err().kind(), Kind::Usage);
    writer.put_buffer(t, &whole(MIB), &buffer).unwrap();
    // None of it, and memory of another dataspace.
    writer.put_buffer(t, &bounds(&[MIB], &[0]), &buffer).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let other = Home::open(&memory(&elsewhere.path().join("own"))).unwrap();
    writer.put_buffer(t, &bounds(&[MIB], &[MIB]), &made(&other, MIB, 1)).unwrap();
    writer.end().unwrap();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    let step = reader.next_step().unwrap().unwrap();
    let all = step.get("T", &whole(2 * MIB)).unwrap();
    assert!(all.bytes().iter().all(|b| *b == 1));
    writer.close().unwrap();
    assert_eq!(home.empty(u64::MAX).unwrap_err().kind(), Kind::Limit);
    assert!(home.empty(0).unwrap().is_empty());
}

/// What a child does.
#[test]
fn another_process() {
    let Some(said) = common::told() else { return };
    let spaces = memory(&Path::new(&said).join("own"));
    let home = Home::open(&spaces).unwrap();
    let kept = made(&home, MIB, 200);
    let mut writer = Writer::open("sim", &Written { readers: 1, ..written(&spaces) }).unwrap();
    for step in 0..250 {
        put(&mut writer, &made(&home, MIB, step)).unwrap();
        println!("put {step}");
    }
    drop(kept);
}

#[test]
fn of_a_writer_that_is_killed_there_is_what_it_put() {
    let place = Place::new();
    let mut child = common::child(place.dir.path().to_str().unwrap());
    let mut reader =
        Reader::open("sim", &Read { start: stead_stream::Start::Oldest, ..place.read() }).unwrap();
    for step in 0..10 {
        assert!(looks(&mut reader, MIB, step));
    }
    assert!(says(&mut child, "put 9"));
    child.kill().unwrap();
    child.wait().unwrap();
    let mut had = 10;
    let e = loop {
        match reader.next_step() {
            Ok(step) => {
                let step = step.unwrap();
                let t = step.get("T", &whole(MIB)).unwrap();
                assert!(t.bytes().iter().all(|b| *b == had));
                had += 1;
            }
            Err(e) => break e,
        }
    };
    assert_eq!(e.kind(), Kind::Peer);
    drop(reader);
    assert_eq!(place.left(), Vec::<String>::new());
}
