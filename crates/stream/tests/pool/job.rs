//! Ranks of a job that read what others write: on nodes of the job, and on those of a pool.

use super::{Pool, SHAPE, from, given_up, spaces, values, write};
use crate::common::{self, LONG, bounds, written};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use stead_fabric::{Fabric, Local};
use stead_stream::{Coupling, Read, Reader, Writer, Written};

/// Runs the ranks of a job, each on a node of this name, to their ends.
fn job(dir: &Path, nodes: &[&str], part: &str, work: impl Fn(&str, Arc<Coupling>) + Send + Sync) {
    let numbers: Vec<usize> =
        nodes.iter().map(|node| nodes.iter().position(|other| other == node).unwrap()).collect();
    thread::scope(|scope| {
        let fabrics = Local::over_nodes(&numbers, LONG).into_iter();
        for (fabric, node) in fabrics.zip(nodes.iter().copied()) {
            let (work, spaces) = (&work, spaces(dir, node));
            scope.spawn(move || {
                let fabric: Arc<dyn Fabric> = Arc::new(fabric);
                work(node, Coupling::new(fabric, part, &spaces, LONG).unwrap());
            });
        }
    });
}

/// A rank of a group of all ranks of its job.
fn read(node: &str, coupling: Arc<Coupling>, pool: &Arc<Pool>) -> Read {
    let (rank, ranks) = (coupling.rank(), coupling.ranks());
    let (coupling, nodes) = (Some(coupling), Some(from(node, pool)));
    Read { rank, ranks, timeout: LONG, coupling, nodes, ..Read::default() }
}

fn read_all(node: &str, coupling: Arc<Coupling>, pool: &Arc<Pool>) {
    let mut reader = Reader::open("sim", &read(node, coupling, pool)).unwrap();
    let part = bounds(&[50, 10], &[200, 20]);
    // A view of it, on the node of its writer, would have the rows of the whole.
    let mut copy = vec![0; 200 * 20 * 8];
    for n in 0..3 {
        let step = reader.next_step().unwrap().unwrap();
        assert_eq!(step.number(), n);
        step.get_into("T", &part, &mut copy).unwrap();
        assert!(copy == values(n, &part), "{node}");
    }
    assert!(reader.next_step().unwrap().is_none());
}

#[test]
fn ranks_of_a_job_read_what_a_program_on_a_node_of_the_pool_writes() {
    // Where the writer is: on a node that has no rank, and on those that have some.
    for at in ["c", "a", "b"] {
        let dir = common::dir();
        let pool = Pool::new(dir.path(), &["a", "b", "c", "d"]);
        thread::scope(|scope| {
            scope.spawn(|| {
                let options = Written { readers: 1, ..written(&spaces(dir.path(), at)) };
                let mut writer = Writer::open("sim", &options).unwrap();
                (0..3).for_each(|_| write(&mut writer, &bounds(&[0, 0], &SHAPE)));
                writer.close().unwrap();
            });
            job(dir.path(), &["a", "b", "b"], "analysis", |node, coupling| {
                read_all(node, coupling, &pool);
            });
        });
    }
}

#[test]
fn ranks_of_two_jobs_on_nodes_of_a_pool_have_each_others_streams() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c"]);
    thread::scope(|scope| {
        scope.spawn(|| {
            job(dir.path(), &["a", "c"], "simulation", |_, coupling| {
                let (rank, writers) = (coupling.rank(), coupling.ranks());
                let coupling = Some(coupling);
                let usual = Written { timeout: LONG, ..Written::default() };
                let options = Written { rank, writers, readers: 1, coupling, ..usual };
                let mut writer = Writer::open("sim", &options).unwrap();
                let part = bounds(&[rank * 150, 0], &[150, SHAPE[1]]);
                (0..3).for_each(|_| write(&mut writer, &part));
                writer.close().unwrap();
            });
        });
        // To the rank on `b` one of these nodes is one of its job and of the pool: it has its writers once.
        job(dir.path(), &["a", "b"], "analysis", |node, coupling| {
            read_all(node, coupling, &pool);
        });
    });
}

#[test]
fn who_finds_no_stream_is_told_where_it_was_looked_for() {
    let dir = common::dir();
    let pool = Pool::new(dir.path(), &["a", "b", "c"]);
    job(dir.path(), &["a", "b"], "analysis", |node, coupling| {
        let options = read(node, coupling, &pool);
        let says = "nobody writes a stream 'sim' on this node, or on 1 more of the job, or on 2 of the pool";
        given_up("sim", &options, &[says]);
    });
    // Where there is no pool it is told, too.
    let pool = Pool::new(dir.path(), &["a"]);
    job(dir.path(), &["a"], "analysis", |node, coupling| {
        let options = read(node, coupling, &pool);
        given_up("sim", &options, &["on this node, and there is no pool of daemons here"]);
    });
}
