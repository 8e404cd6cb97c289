//! What is counted and told of readers on other nodes.

use crate::common::Barrier;
use crate::common::bounds;
use crate::job::Job;
use crate::job::SHAPE;
use crate::job::array;
use crate::job::rows;
use crate::job::values;
use std::time::Duration;
use stead_core::Kind;
use stead_stream::Basis;
use stead_stream::Behind;
use stead_stream::Explanation;
use stead_stream::Home;
use stead_stream::Presence;

#[test]
fn a_step_counts_when_it_is_given_and_not_when_it_is_looked_for() {
    let job = Job::new();
    let (looked, told) = (Barrier::new(2), Barrier::new(3));
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| w.readers = 1).unwrap();
            let variable = writer.define(array(&SHAPE)).unwrap();
            let mine = rows(SHAPE, rank.coupling.rank(), 2);
            writer.begin().unwrap();
            writer.put(variable, &mine, &values(0, &mine)).unwrap();
            if rank.coupling.rank() == 1 {
                looked.wait();
            }
            writer.end().unwrap();
            told.wait();
            writer.close().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            // One node has it, and the other one not yet.
            for _ in 0..5 {
                assert!(reader.next_step_within(Duration::from_millis(30)).unwrap().is_none());
            }
            looked.wait();
            let step = reader.next_step().unwrap().unwrap();
            // What is asked for comes after what is told.
            step.get("T", &bounds(&[0, 0], &SHAPE)).unwrap();
            for node in [0, 1] {
                let home = Home::open(&job.spaces(node)).unwrap();
                let reader = &home.describe("sim").unwrap().readers[0];
                assert_eq!((reader.had, reader.dropped), (1, 0), "node {node}");
            }
            told.wait();
        }
    });
}

#[test]
fn who_reads_on_another_node_is_told_of_and_what_it_will_get() {
    let job = Job::new();
    // All that the two sides do is done one after the other.
    let (go, went) = (Barrier::new(2), Barrier::new(2));
    job.run(&[("sim", 0), ("ana", 1)], |part, rank| match part {
        "sim" => {
            // It is waited for in vain once, and before that until it is done with a step.
            let soon = Duration::from_secs(5);
            let mut writer = rank.write("sim", |w| (w.readers, w.timeout) = (1, soon)).unwrap();
            // The reader has come.
            go.wait();
            let variable = writer.define(array(&SHAPE)).unwrap();
            let home = Home::open(&job.spaces(0)).unwrap();
            let whole = bounds(&[0, 0], &SHAPE);
            let mut before = 0;
            for step in 0..2 {
                writer.begin().unwrap();
                writer.put(variable, &whole, &values(step, &whole)).unwrap();
                writer.end().unwrap();
                let said = home.explain("sim", 0).unwrap();
                let taker = &said.readers[0];
                assert_eq!((taker.node, taker.process), (Some(1), Some(std::process::id())));
                if step == 0 {
                    assert_eq!((taker.basis, taker.copied), (Basis::Rows, 60 * 700 * 8));
                } else {
                    assert_eq!((taker.basis, taker.boxes), (Basis::Step(0), 2));
                }
                go.wait();
                went.wait();
                let seen = home.describe("sim").unwrap().readers.remove(0);
                assert_eq!((seen.node, seen.rank_of_job), (Some(1), Some(1)));
                let got = seen.bytes - before;
                before = seen.bytes;
                assert_eq!((got, seen.memory), ((60 * 300 + 7 * 9) * 8, 0));
                if step == 1 {
                    let [pull] = &said.pulls[..] else { panic!("{said:?}") };
                    assert_eq!((pull.copied, pull.looked, pull.is_sent), (got, 0, true));
                }
            }
            let told = writer.events().unwrap().remove(0).reader;
            assert_eq!((told.node, told.rank_of_job), (Some(1), Some(1)));
            // It is named when it is waited for, and not the agent. It has done with the two steps that there are.
            writer.begin().unwrap();
            writer.end().unwrap();
            let error =
                (0..3).find_map(|_| writer.begin().and_then(|_| writer.end()).err()).unwrap();
            let who = format!(
                "rank 0 of the readers 'readers' (process {} on node 1) is not",
                std::process::id()
            );
            assert!(error.kind() == Kind::Timeout && error.message().contains(&who), "{error}");
            go.wait();
            writer.close().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            go.wait();
            for _ in 0..2 {
                go.wait();
                let step = reader.next_step().unwrap().unwrap();
                step.get("T", &bounds(&[0, 100], &[60, 300])).unwrap();
                step.get("T", &bounds(&[3, 1], &[7, 9])).unwrap();
                let report = step.report();
                assert_eq!(report.fetched, (60 * 300 + 7 * 9) * 8);
                assert_eq!((report.copied, report.looked, report.copies), (0, 0, 2));
                // As it was told with the step: no writer is here.
                assert!(report.peak_steps >= Some(1.0), "{report:?}");
                drop(step);
                went.wait();
            }
            assert!(reader.report().memory.is_none());
            go.wait();
            while reader.next_step().unwrap().is_some() {}
        }
    });
}

/// What a step costs a writer that is alone on its node: `readers` ranks on other nodes get so many rows each, of all writers, which have one
/// node each.
fn warned(writers: u64, readers: u64, row: impl Fn(u64) -> (u64, u64) + Sync) -> Vec<String> {
    let job = Job::new();
    let barrier = Barrier::new((writers + readers) as usize);
    let told = std::sync::Mutex::new(None);
    let node = |n: u64| usize::try_from(n).unwrap();
    let sim = (0..writers).map(|w| ("sim", node(w)));
    let parts = sim.chain((0..readers).map(|r| ("ana", node(writers + r))));
    job.run(&parts.collect::<Vec<_>>(), |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| w.readers = 1).unwrap();
            let variable = writer.define(array(&SHAPE)).unwrap();
            let mine = rows(SHAPE, rank.coupling.rank(), writers);
            for step in 0..2 {
                writer.begin().unwrap();
                writer.put(variable, &mine, &values(step, &mine)).unwrap();
                writer.end().unwrap();
                barrier.wait();
            }
            if rank.coupling.rank() == 0 {
                // That a reader is done with a step comes in its own time.
                let home = Home::open(&job.spaces(0)).unwrap();
                let is_old =
                    |said: &Explanation| said.readers.iter().any(|r| r.basis == Basis::Rows);
                let mut said = home.explain("sim", 0).unwrap();
                for _ in 0..12_000 {
                    if !is_old(&said) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(10));
                    said = home.explain("sim", 0).unwrap();
                }
                *told.lock().unwrap() = Some(said);
            }
            barrier.wait();
            writer.close().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            barrier.wait();
            let step = reader.next_step().unwrap().unwrap();
            let (first, many) = row(rank.coupling.rank());
            step.get("T", &bounds(&[first, 0], &[many, SHAPE[1]])).unwrap();
            drop(step);
            drop(reader.next_step().unwrap());
            barrier.wait();
            barrier.wait();
            while reader.next_step().unwrap().is_some() {}
        }
    });
    let said = told.into_inner().unwrap().unwrap();
    assert!(said.readers.iter().all(|r| r.basis != Basis::Rows), "{said:?}");
    let hot = said.warnings.into_iter().filter(|w| w.kind == "hot writer");
    hot.map(|w| w.message).collect()
}

#[test]
fn a_writer_that_is_alone_and_feeds_other_nodes_is_told_of() {
    // One reader, or readers that share what several writers have put, are as it should be.
    assert_eq!(warned(1, 1, |_| (0, SHAPE[0])), [""; 0]);
    assert_eq!(warned(2, 2, |r| (r * SHAPE[0] / 2, SHAPE[0] / 2)), [""; 0]);
    let [all] = &warned(1, 3, |r| (r * SHAPE[0] / 3, SHAPE[0] / 3))[..] else { panic!() };
    assert!(
        all.starts_with("all that 3 readers on other nodes get is from writer 0 of 1"),
        "{all}"
    );
    let [again] = &warned(2, 3, |_| (0, SHAPE[0]))[..] else { panic!() };
    assert!(again.starts_with("3 readers on other nodes get"), "{again}");
}

#[test]
fn writers_are_told_which_steps_readers_of_other_nodes_have_had() {
    let job = Job::new();
    let barrier = Barrier::new(2);
    job.run(&[("sim", 0), ("ana", 1)], |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| (w.keep, w.readers) = (9, 1)).unwrap();
            for _ in 0..9 {
                writer.begin().unwrap();
                writer.end().unwrap();
            }
            barrier.wait();
            barrier.wait();
            let mut left = None;
            for _ in 0..12_000 {
                let events = writer.events().unwrap();
                left = events.into_iter().find(|event| event.reader.presence == Presence::Left);
                if left.is_some() {
                    break;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let reader = left.unwrap().reader;
            assert_eq!(reader.had_ranges, [(0, 1), (5, 5), (7, 7)]);
            assert_eq!((reader.had, reader.had_before, reader.is_elsewhere), (4, 0, true));
        }
        _ => {
            let mut reader = rank.read("sim", |r| r.behind = Behind::Drop).unwrap();
            barrier.wait();
            for n in 0..2 {
                assert_eq!(reader.next_step().unwrap().unwrap().number(), n);
            }
            // It goes on where it likes.
            for n in [5, 7] {
                let soon = Duration::from_secs(60);
                let error = reader.wait_for("none", n, soon).unwrap_err();
                assert_eq!(error.kind(), Kind::NotFound);
            }
            drop(reader);
            barrier.wait();
        }
    });
}
