//! Writers and readers that come late, or not at all.

#![allow(clippy::unwrap_used)]

mod common;

use common::{LONG, Place, bounds};
use std::time::Duration;
use stead_core::{DType, Kind};
use stead_stream::{Definition, Read, Reader, Start, Writer, Written};

/// Whole steps of one writer, each of elements that are its number.
fn put(writer: &mut Writer, steps: std::ops::Range<u64>) {
    let t = writer.define(Definition::new("T", DType::U64, [2, 2])).unwrap();
    for step in steps {
        assert_eq!(writer.begin().unwrap(), step);
        writer.put(t, &bounds(&[0, 0], &[2, 2]), &bytes(step)).unwrap();
        writer.end().unwrap();
    }
}

fn bytes(step: u64) -> Vec<u8> {
    step.to_ne_bytes().repeat(4)
}

#[test]
fn a_rank_that_comes_late_finds_what_the_first_one_has_found_also_when_all_is_over() {
    let whole = bounds(&[0, 0], &[2, 2]);
    for start in [Start::Oldest, Start::Next] {
        let place = Place::new();
        let mut writer = Writer::open("sim", &Written { queue: 3, ..place.written() }).unwrap();
        let of = |rank| Read { rank, ranks: 3, start, ..place.read() };
        let mut first = Reader::open("sim", &of(0)).unwrap();
        put(&mut writer, 0..3);
        writer.close().unwrap();
        while first.next_step().unwrap().is_some() {}
        drop(first);
        assert_eq!(place.left(), ["sim"]);
        for rank in [2, 1] {
            let mut late = Reader::open("sim", &of(rank)).unwrap();
            for n in 0..3 {
                let step = late.next_step().unwrap().unwrap();
                assert_eq!((step.number(), step.dropped()), (n, 0));
                assert_eq!(step.get("T", &whole).unwrap().bytes(), bytes(n));
            }
            assert!(late.next_step().unwrap().is_none());
            drop(late);
        }
        assert_eq!(place.left(), Vec::<String>::new());
    }
}

#[test]
fn what_waits_for_ranks_that_do_not_come_goes() {
    let place = Place::new();
    let write = || {
        let mut writer = Writer::open("sim", &place.written()).unwrap();
        put(&mut writer, 0..1);
        writer
    };
    // No longer than the first one has said.
    let writer = write();
    let soon = Read { ranks: 2, timeout: Duration::ZERO, ..place.read() };
    let first = Reader::open("sim", &soon).unwrap();
    writer.close().unwrap();
    drop(first);
    assert_eq!(place.left(), Vec::<String>::new());
    // Nor when somebody else has use for the name.
    for _ in 0..2 {
        let writer = write();
        drop(Reader::open("sim", &Read { ranks: 2, ..place.read() }).unwrap());
        writer.close().unwrap();
        assert_eq!(place.left(), ["sim"]);
    }
    let home = place.home();
    assert_eq!(home.remove("sim", false).unwrap_err().kind(), Kind::Usage);
    assert!(home.remove("sim", true).unwrap());
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn who_is_to_give_up_can_wait_for_those_who_would_not_be_told() {
    let place = Place::new();
    let open = |rank| Writer::open("sim", &Written { rank, writers: 3, ..place.written() });
    let (first, second) = (open(0).unwrap(), open(1).unwrap());
    assert!(!first.wait_for_writers(Duration::from_millis(20)).unwrap());
    std::thread::scope(|scope| {
        let waited = scope.spawn(move || {
            let all = first.wait_for_writers(LONG).unwrap();
            (all, first.abandon())
        });
        let mut third = open(2).unwrap();
        assert!(matches!(waited.join().unwrap(), (true, Ok(()))));
        assert_eq!(third.begin().unwrap_err().kind(), Kind::Peer);
        assert!(second.wait_for_writers(Duration::ZERO).unwrap());
    });
    // Nobody is waited for in a stream that is over.
    let (first, second) = (open(0).unwrap(), open(1).unwrap());
    first.abandon().unwrap();
    assert!(second.wait_for_writers(Duration::ZERO).unwrap());
}
