//! Groups on other nodes with a queue and a keep of their own.

use crate::common::Barrier;
use crate::common::bounds;
use crate::job::Job;
use crate::job::SHAPE;
use crate::job::array;
use crate::job::columns;
use crate::job::rows;
use crate::job::values;
use crate::job::write_all;
use std::sync::Mutex;
use stead_core::Kind;
use stead_stream::Behind;

#[test]
fn a_group_on_another_node_is_waited_for_by_its_own_queue_and_goes_back_to_what_it_keeps() {
    let job = Job::new();
    let ranks = [("sim", 0), ("sim", 1), ("ana", 2), ("ana", 1)];
    let all = Barrier::new(ranks.len());
    job.run(&ranks, |part, rank| {
        let me = rank.coupling.rank();
        if part == "sim" {
            let mut writer =
                rank.write("sim", |w| (w.readers, w.queue, w.keep) = (1, 1, 0)).unwrap();
            let variable = writer.define(array(&SHAPE)).unwrap();
            let mine = rows(SHAPE, me, 2);
            for step in 0..12 {
                writer.begin().unwrap();
                writer.put(variable, &mine, &values(step, &mine)).unwrap();
                writer.end().unwrap();
                if step == 5 {
                    // Readers begin only now: writers were not to wait before.
                    all.wait();
                }
            }
            return writer.close().unwrap();
        }
        let own = |r: &mut stead_stream::Read| (r.queue, r.keep) = (Some(6), Some(3));
        let mut reader = rank.read("sim", own).unwrap();
        all.wait();
        let mine = columns(SHAPE, me, 2);
        for n in 0..12 {
            let step = reader.next_step().unwrap().unwrap();
            assert_eq!((step.number(), step.dropped()), (n, 0));
            assert_eq!(step.get("T", &mine).unwrap().bytes(), values(n, &mine));
            let back = n.saturating_sub(3);
            let step = reader.at(back).unwrap();
            assert_eq!(step.get("T", &mine).unwrap().bytes(), values(back, &mine));
        }
        assert!(reader.next_step().unwrap().is_none());
        if me == 0 {
            let zero = rank.read("sim", |r| r.queue = Some(0)).unwrap_err();
            assert_eq!(zero.kind(), Kind::Usage);
        }
    });
}

#[test]
fn ranks_that_pass_over_steps_are_given_the_same_ones_of_all_nodes() {
    let job = Job::new();
    let had = Mutex::new(Vec::new());
    let ranks = [("sim", 0), ("sim", 1), ("ana", 2), ("ana", 0), ("one", 3)];
    job.run(&ranks, |part, rank| {
        if part == "sim" {
            return write_all(&rank, 60, |w| (w.readers, w.keep) = (2, 20));
        }
        let live = |r: &mut stead_stream::Read| {
            (r.group, r.behind, r.queue) = (part.to_owned(), Behind::Drop, Some(1));
        };
        let mut reader = rank.read("sim", live).unwrap();
        let (mut steps, mut dropped) = (Vec::new(), 0);
        while let Some(step) = reader.next_step().unwrap() {
            let whole = bounds(&[0, 0], &SHAPE);
            assert_eq!(step.get("T", &whole).unwrap().bytes(), values(step.number(), &whole));
            dropped += step.dropped();
            steps.push(step.number());
        }
        assert!(steps.is_sorted() && steps.last() == Some(&59), "{steps:?}");
        assert_eq!(steps.len() as u64 + dropped, 60);
        if part == "ana" {
            had.lock().unwrap().push(steps);
        }
    });
    let had = had.into_inner().unwrap();
    assert_eq!(had[0], had[1]);
}
