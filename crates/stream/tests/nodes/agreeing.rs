//! All ranks of a group read the same stream, also where there are several of the name.

use crate::common::{self, Barrier, bounds};
use crate::job::Job;
use std::sync::Mutex;
use stead_core::DType;
use stead_stream::{Definition, Home, Reader, Writer};

/// A program that was begun by itself writes a stream on a node: its one step tells which node that is.
fn write(job: &Job, name: &str, node: usize) -> Writer {
    let mut writer = Writer::open(name, &common::written(&job.spaces(node))).unwrap();
    let variable = writer.define(Definition::new("node", DType::U64, [1])).unwrap();
    writer.begin().unwrap();
    writer.put(variable, &bounds(&[0], &[1]), &(node as u64).to_le_bytes()).unwrap();
    writer.end().unwrap();
    writer
}

fn node(mut reader: Reader) -> u64 {
    let step = reader.next_step().unwrap().unwrap();
    let array = step.get("node", &bounds(&[0], &[1])).unwrap();
    u64::from_le_bytes(array.bytes().try_into().unwrap())
}

#[test]
fn a_stream_that_begins_while_ranks_search_is_not_read_by_some_of_them() {
    let job = Job::new();
    // Whichever of the ranks finds one first: the first one of all is asked by the others.
    for first in [0, 2] {
        let (found, had) = (Barrier::new(3), Barrier::new(3));
        let name = format!("sim{first}");
        let nodes = Mutex::new(Vec::new());
        job.run(&[("ana", 0), ("ana", 1), ("ana", 1)], |_, rank| {
            let mut writers = Vec::new();
            let read = || rank.read(&name, |_| {}).unwrap();
            let reader = if rank.coupling.rank() == first {
                writers.push(write(&job, &name, 0));
                let reader = read();
                // It is newer, and on the node of others.
                writers.push(write(&job, &name, 1));
                found.wait();
                reader
            } else {
                found.wait();
                read()
            };
            nodes.lock().unwrap().push(node(reader));
            had.wait();
        });
        assert_eq!(nodes.into_inner().unwrap(), [0, 0, 0]);
    }
}

#[test]
fn a_stream_that_has_gone_is_waited_for_by_nobody() {
    let job = Job::new();
    let (found, had) = (Barrier::new(2), Barrier::new(2));
    job.run(&[("ana", 0), ("ana", 1)], |_, rank| {
        let mut writers = Vec::new();
        if rank.coupling.rank() == 0 {
            writers.push(write(&job, "sim", 0));
            drop(rank.read("sim", |_| {}).unwrap());
            assert!(Home::open(&job.spaces(0)).unwrap().remove("sim", true).unwrap());
            writers.push(write(&job, "sim", 1));
            found.wait();
        } else {
            found.wait();
            assert_eq!(node(rank.read("sim", |_| {}).unwrap()), 1);
        }
        had.wait();
    });
}
