//! Groups of readers with a queue and a keep of their own.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{LONG, Place, bounds, wait_until};
use std::thread;
use std::time::Duration;
use stead_core::{Bounds, DType, Kind};
use stead_stream::{Behind, Definition, Explanation, Group, Read, Reader, Step, Writer, Written};

const SOON: Duration = Duration::from_millis(50);

fn whole() -> Bounds {
    bounds(&[0], &[1024])
}

fn bytes(step: u64) -> Vec<u8> {
    (0..1024).flat_map(|n| (step * 5000 + n).to_ne_bytes()).collect()
}

fn put(writer: &mut Writer, steps: u64) {
    let t = writer.define(Definition::new("T", DType::U64, [1024])).unwrap();
    for _ in 0..steps {
        let step = writer.begin().unwrap();
        writer.put(t, &whole(), &bytes(step)).unwrap();
        writer.end().unwrap();
    }
}

fn checked(step: Step) -> u64 {
    assert_eq!(step.get("T", &whole()).unwrap().bytes(), bytes(step.number()));
    step.number()
}

fn next(reader: &mut Reader) -> u64 {
    checked(reader.next_step().unwrap().unwrap())
}

/// One that says these numbers of its group.
fn own(place: &Place, behind: Behind, queue: Option<u64>, keep: Option<u64>) -> Read {
    Read { group: "own".to_owned(), behind, queue, keep, ..place.read() }
}

#[test]
fn writers_wait_for_a_group_by_its_own_queue() {
    let place = Place::new();
    let written = Written { queue: 3, timeout: SOON, ..place.written() };
    let mut writer = Writer::open("sim", &written).unwrap();
    let mut few = Reader::open("sim", &own(&place, Behind::Block, Some(1), None)).unwrap();
    put(&mut writer, 1);
    let late = writer.begin().unwrap_err();
    let said = "rank 0 of the readers 'own' (process";
    assert!(late.kind() == Kind::Timeout && late.message().contains(said), "{late}");
    assert_eq!(next(&mut few), 0);
    drop(few);
    // More than the stream has queued.
    let many = Read { group: "many".to_owned(), ..own(&place, Behind::Block, Some(40), None) };
    let mut many = Reader::open("sim", &many).unwrap();
    put(&mut writer, 39);
    assert_eq!(writer.begin().unwrap_err().kind(), Kind::Timeout);
    (0..40).for_each(|step| assert_eq!(next(&mut many), step));
    drop(many);
    writer.close().unwrap();
}

#[test]
fn what_a_group_has_had_stays_for_it() {
    let place = Place::new();
    // Of a wide step there is room for four.
    let written = Written { keep: 0, memory: 4 << 13, timeout: SOON, ..place.written() };
    for behind in [Behind::Block, Behind::Drop] {
        let mut writer = Writer::open("sim", &written).unwrap();
        let mut reader = Reader::open("sim", &own(&place, behind, None, Some(2))).unwrap();
        for step in 0..4 {
            put(&mut writer, 1);
            assert_eq!(next(&mut reader), step);
            for kept in step.saturating_sub(1)..=step {
                assert_eq!(checked(reader.at(kept).unwrap()), kept);
            }
            assert!(step < 2 || reader.at(step - 2).is_err());
        }
        drop(reader);
        // All that there is room for, and one more.
        let mut reader = Reader::open("sim", &own(&place, behind, None, Some(4))).unwrap();
        let first = writer.step();
        for step in first..first + 4 {
            put(&mut writer, 1);
            assert_eq!(next(&mut reader), step);
        }
        assert!(reader.next_step_within(Duration::from_millis(1)).unwrap().is_none());
        let t = writer.define(Definition::new("T", DType::U64, [1024])).unwrap();
        writer.begin().unwrap();
        let put = writer.put(t, &whole(), &bytes(0));
        if behind == Behind::Block {
            let error = put.unwrap_err();
            let said =
                ["rank 0 of the readers 'own'", "keeps 4 steps", "32.0 KiB of memory are taken"];
            assert!(said.iter().all(|said| error.message().contains(said)), "{error}");
            assert_eq!(error.kind(), Kind::Timeout);
        } else {
            // Nobody waits for who may miss steps.
            put.unwrap();
            assert_eq!(reader.at(first).unwrap_err().kind(), Kind::NotFound);
        }
        drop(reader);
        writer.abandon().unwrap();
        assert_eq!(place.left(), Vec::<String>::new());
    }
}

#[test]
fn a_monitor_is_given_the_newest_step_though_memory_has_others() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &Written { keep: 20, ..place.written() }).unwrap();
    let of = own(&place, Behind::Drop, Some(1), None);
    let mut monitor = Reader::open("sim", &of).unwrap();
    let mut all = Reader::open("sim", &Read { behind: Behind::Drop, ..place.read() }).unwrap();
    put(&mut writer, 5);
    let step = monitor.next_step().unwrap().unwrap();
    assert_eq!((step.number(), step.dropped()), (4, 4));
    drop(step);
    put(&mut writer, 3);
    // This very step is there, and is not passed over.
    assert_eq!(checked(monitor.wait_for("T", 5, LONG).unwrap()), 5);
    assert_eq!(next(&mut monitor), 7);
    assert_eq!(next(&mut all), 0);
    assert_eq!(monitor.report().dropped, 5);
    writer.close().unwrap();
    assert!(monitor.next_step().unwrap().is_none());
    // Ranks of a group pass over the same ones.
    let mut writer = Writer::open("sim", &Written { keep: 20, ..place.written() }).unwrap();
    let rank = |rank| Read { rank, ranks: 2, ..of.clone() };
    let mut ranks = [0, 1].map(|n| Reader::open("sim", &rank(n)).unwrap());
    put(&mut writer, 4);
    assert_eq!(next(&mut ranks[0]), 3);
    put(&mut writer, 4);
    assert!(ranks[0].next_step_within(SOON).unwrap().is_none());
    assert_eq!([next(&mut ranks[1]), next(&mut ranks[1]), next(&mut ranks[0])], [3, 7, 7]);
}

#[test]
fn who_reads_from_files_has_few_steps_in_memory_and_goes_back() {
    let place = Place::new();
    let disk = tempfile::tempdir().unwrap();
    let spill = Some(disk.path().join("spill").to_str().unwrap().to_owned());
    let written = Written { spill, keep: 0, queue: 8, ..place.written() };
    let mut writer = Writer::open("sim", &written).unwrap();
    let of = own(&place, Behind::Spill, Some(2), Some(3));
    let mut reader = Reader::open("sim", &of).unwrap();
    put(&mut writer, 30);
    // There is room for all of them.
    let home = place.home();
    wait_until(|| home.describe("sim").unwrap().steps.len() <= 5);
    for step in 0..30 {
        assert_eq!(next(&mut reader), step);
        for kept in step.saturating_sub(2)..=step {
            assert_eq!(checked(reader.at(kept).unwrap()), kept);
        }
        if step > 3 {
            assert_eq!(reader.at(step - 3).unwrap_err().kind(), Kind::NotFound);
            assert!(reader.steps().unwrap().contains(&(step - 2)));
        }
    }
    writer.close().unwrap();
    assert!(reader.next_step().unwrap().is_none());
    // Who reads a folder has all of it.
    let place = Place::new();
    let persist = disk.path().join("all").to_str().unwrap().to_owned();
    let written = Written { persist: Some(persist.clone()), ..place.written() };
    let mut writer = Writer::open("sim", &written).unwrap();
    put(&mut writer, 6);
    writer.close().unwrap();
    let mut reader = Reader::open(&persist, &own(&place, Behind::Drop, Some(1), Some(9))).unwrap();
    (0..6).for_each(|step| assert_eq!(next(&mut reader), step));
    let zero = own(&place, Behind::Drop, Some(0), None);
    assert_eq!(Reader::open(&persist, &zero).unwrap_err().kind(), Kind::Usage);
}

#[test]
fn numbers_that_do_not_fit_or_are_others_are_refused_at_once() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let refused = |queue, keep, rank| {
        let of = own(&place, Behind::Block, queue, keep);
        let error = Reader::open("sim", &Read { rank, ranks: 2, ..of }).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        error.to_string()
    };
    assert!(refused(Some(0), None, 0).contains("queue of 0 steps"));
    let many = "says behind block, queue 40, keep 25, and the stream has places for 64 steps";
    assert!(refused(Some(40), Some(25), 0).contains(many));
    assert!(refused(None, Some(u64::MAX), 0).contains("places for 64"));
    assert!(refused(Some(u64::MAX), None, 0).contains("places for 64"));
    let of = Read { ranks: 2, ..own(&place, Behind::Block, Some(5), None) };
    let first = Reader::open("sim", &of).unwrap();
    let other = "others: behind block, queue of the stream, keep 0, and they say behind block, queue 5, keep 0";
    assert!(refused(None, None, 1).contains(other), "{}", refused(None, None, 1));
    assert!(refused(Some(5), Some(1), 1).contains("keep 1, and they say"));
    // Nothing and none are the same.
    let second = Reader::open("sim", &Read { rank: 1, keep: Some(0), ..of }).unwrap();
    let shown = place.home().describe("sim").unwrap();
    let (group, behind) = ("own".to_owned(), Behind::Block);
    assert_eq!(shown.groups, [Group { group, ranks: 2, behind, queue: Some(5), keep: 0 }]);
    drop((first, second));
    assert!(place.home().describe("sim").unwrap().groups.is_empty());
    put(&mut writer, 1);
}

#[test]
fn what_is_told_beforehand_goes_by_the_numbers_of_groups() {
    let place = Place::new();
    let written = Written { keep: 1, queue: 2, memory: 5 << 13, ..place.written() };
    let mut writer = Writer::open("sim", &written).unwrap();
    put(&mut writer, 1);
    let told = || place.home().explain("sim", 0).unwrap();
    let of = |told: &Explanation, kind: &str| {
        told.warnings
            .iter()
            .find(|warning| warning.kind == kind)
            .map(|warning| warning.message.clone())
    };
    assert_eq!((told().steps, of(&told(), "memory")), (2, None));
    let mut reader = Reader::open("sim", &own(&place, Behind::Block, Some(4), Some(3))).unwrap();
    assert_eq!(told().steps, 7);
    let said = of(&told(), "memory").unwrap();
    assert!(
        said.contains("hold 5 steps of 8.0 KiB, and 3 are kept and 4 queued for the readers 'own'"),
        "{said}"
    );
    // It is behind by as much as it may be, and not by as much as others may.
    put(&mut writer, 2);
    assert_eq!(of(&told(), "behind"), None);
    put(&mut writer, 1);
    assert!(
        of(&told(), "behind").unwrap().contains("rank 0 of the readers 'own' is 4 steps behind")
    );
    assert_eq!(next(&mut reader), 0);
    let waits = thread::spawn(move || put(&mut writer, 1));
    assert_eq!(next(&mut reader), 1);
    waits.join().unwrap();
}
