//! Steps that nodes have recorded.

use crate::common::Barrier;
use crate::common::LONG;
use crate::common::bounds;
use crate::common::wait_until;
use crate::job::Job;
use crate::job::SHAPE;
use crate::job::array;
use crate::job::columns;
use crate::job::rows;
use crate::job::values;
use stead_core::Kind;
use stead_stream::Behind;
use stead_stream::Home;
use stead_stream::Read;
use stead_stream::Reader;
use stead_stream::Start;
use stead_stream::Written;

#[test]
fn steps_that_have_gone_from_memory_come_from_the_files_of_their_nodes() {
    // Late, or when all is over; in a folder that all nodes have, or one of each.
    for (behind, before, shared) in
        [(Behind::Block, 20, true), (Behind::Spill, 20, false), (Behind::Block, 40, false)]
    {
        let job = Job::new();
        let ranks = [("sim", 0), ("sim", 0), ("sim", 1), ("ana", 1), ("ana", 2)];
        let all = Barrier::new(ranks.len());
        job.run(&ranks, |part, rank| match part {
            "sim" => {
                let me = rank.coupling.rank();
                let node = if shared { 9 } else { me / 2 };
                let at = job.dir.path().join(format!("disk{node}"));
                let persist = Some(at.to_str().unwrap().to_owned());
                let mut writer = rank.write("sim", |w| w.persist = persist).unwrap();
                let variable = writer.define(array(&SHAPE)).unwrap();
                let mine = rows(SHAPE, me, 3);
                for step in 0..40 {
                    if step == before {
                        all.wait();
                    }
                    writer.begin().unwrap();
                    writer.put(variable, &mine, &values(step, &mine)).unwrap();
                    writer.end().unwrap();
                }
                writer.close().unwrap();
                if before == 40 {
                    all.wait();
                }
            }
            _ => {
                all.wait();
                let mut reader =
                    rank.read("sim", |r| (r.start, r.behind) = (Start::First, behind)).unwrap();
                let mine = columns(SHAPE, rank.coupling.rank(), 2);
                let mut held = Vec::new();
                for n in 0..40 {
                    let step = reader.next_step().unwrap().unwrap();
                    assert_eq!((step.number(), step.dropped()), (n, 0));
                    assert!(step.get("T", &mine).unwrap().bytes() == values(n, &mine), "{n}");
                    assert_eq!(step.bytes(), SHAPE[0] * SHAPE[1] * 8);
                    if n % 9 == 0 {
                        held.push(step);
                    }
                }
                assert!(reader.next_step().unwrap().is_none());
                let one = bounds(&[19, 7], &[22, 600]);
                for step in &held {
                    assert!(step.get("T", &one).unwrap().bytes() == values(step.number(), &one));
                }
                let again = reader.at(5).unwrap();
                assert!(again.get("T", &one).unwrap().bytes() == values(5, &one));
                assert_eq!(reader.steps().unwrap(), (0..40).collect::<Vec<_>>());
            }
        });
        for (_, node) in ranks {
            assert_eq!(job.left(node), [""; 0]);
        }
    }
}

#[test]
fn who_is_behind_on_another_node_has_all_steps_and_nobody_waits_for_it() {
    let job = Job::new();
    let disk = job.dir.path().join("disk");
    let (all, over) = (Barrier::new(3), Barrier::new(3));
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| match part {
        "sim" => {
            let spill = Some(disk.to_str().unwrap().to_owned());
            let little = |w: &mut Written| {
                (w.spill, w.memory, w.readers) = (spill, 1 << 20, 1);
                w.timeout = LONG;
            };
            let mut writer = rank.write("sim", little).unwrap();
            all.wait();
            let variable = writer.define(array(&SHAPE)).unwrap();
            let mine = rows(SHAPE, rank.coupling.rank(), 2);
            for step in 0..60 {
                writer.begin().unwrap();
                writer.put(variable, &mine, &values(step, &mine)).unwrap();
                writer.end().unwrap();
            }
            writer.close().unwrap();
            over.wait();
        }
        _ => {
            all.wait();
            let error = rank.read("sim", |r| r.start = Start::First).unwrap_err();
            assert_eq!(error.kind(), Kind::Usage);
            assert!(error.message().contains("are not kept"), "{error}");
            let mut reader = rank.read("sim", |r| r.behind = Behind::Spill).unwrap();
            let first = reader.next_step().unwrap().unwrap();
            over.wait();
            let mine = columns(SHAPE, 1, 3);
            assert!(first.get("T", &mine).unwrap().bytes() == values(0, &mine));
            drop(first);
            for n in 1..60 {
                let step = reader.next_step().unwrap().unwrap();
                assert_eq!((step.number(), step.dropped()), (n, 0));
                assert!(step.get("T", &mine).unwrap().bytes() == values(n, &mine), "{n}");
            }
            assert!(reader.next_step().unwrap().is_none());
            assert!(disk.exists());
        }
    });
    for node in 0..3 {
        assert_eq!(job.left(node), [""; 0]);
    }
    // It goes with the stream, from the last of the nodes.
    wait_until(|| !disk.exists());
    assert!(!disk.exists());
}

#[test]
fn what_is_not_recorded_is_not_read_from_files_of_other_nodes() {
    let job = Job::new();
    let all = Barrier::new(2);
    job.run(&[("sim", 0), ("ana", 1)], |part, rank| match part {
        "sim" => {
            let writer = rank.write("sim", |_| {}).unwrap();
            all.wait();
            all.wait();
            writer.close().unwrap();
        }
        _ => {
            all.wait();
            for (start, behind) in [(Start::First, Behind::Block), (Start::Oldest, Behind::Spill)] {
                let error =
                    rank.read("sim", |r| (r.start, r.behind) = (start, behind)).unwrap_err();
                assert_eq!(error.kind(), Kind::Usage);
                assert!(error.message().contains("which is not recorded"), "{error}");
            }
            all.wait();
        }
    });
}

#[test]
fn a_rank_of_another_node_that_comes_late_finds_what_the_first_one_has_found() {
    for start in [Start::Oldest, Start::Next] {
        let job = Job::new();
        let (all, gone) = (Barrier::new(3), Barrier::new(3));
        job.run(&[("sim", 0), ("ana", 1), ("ana", 2)], |part, rank| {
            let of = |r: &mut Read| (r.start, r.timeout) = (start, LONG);
            let read = |mut reader: Reader| {
                let mine = columns(SHAPE, 1, 3);
                for n in 0..3 {
                    let step = reader.next_step().unwrap().unwrap();
                    assert_eq!(step.number(), n);
                    assert!(step.get("T", &mine).unwrap().bytes() == values(n, &mine));
                }
                assert!(reader.next_step().unwrap().is_none());
            };
            match (part, rank.coupling.rank()) {
                ("sim", _) => {
                    let mut writer = rank.write("sim", |w| (w.readers, w.queue) = (1, 3)).unwrap();
                    let variable = writer.define(array(&SHAPE)).unwrap();
                    let whole = bounds(&[0, 0], &SHAPE);
                    for step in 0..3 {
                        writer.begin().unwrap();
                        writer.put(variable, &whole, &values(step, &whole)).unwrap();
                        writer.end().unwrap();
                    }
                    writer.close().unwrap();
                    all.wait();
                    // The stream is over, and its first reader has gone.
                    let home = Home::open(&job.spaces(0)).unwrap();
                    wait_until(|| {
                        let readers = home.describe("sim").unwrap().readers;
                        readers.iter().all(|r| r.presence != stead_stream::Presence::Here)
                    });
                    gone.wait();
                }
                (_, 0) => {
                    read(rank.read("sim", of).unwrap());
                    all.wait();
                    gone.wait();
                }
                _ => {
                    all.wait();
                    gone.wait();
                    read(rank.read("sim", of).unwrap());
                }
            }
        });
        assert_eq!(job.left(0), [""; 0]);
    }
}
