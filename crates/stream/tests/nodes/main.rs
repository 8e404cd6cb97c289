//! Streams whose writers and readers are on several nodes: threads of one process, each node with a memory of its own.

#![allow(clippy::unwrap_used, clippy::panic)]

mod agreeing;
#[path = "../common/mod.rs"]
mod common;
mod failing;
mod files;
mod job;
mod own;
mod told;

use crate::common::Barrier;
use crate::common::LONG;
use crate::common::bounds;
use crate::job::Job;
use crate::job::Rank;
use crate::job::SHAPE;
use crate::job::array;
use crate::job::columns;
use crate::job::given_up;
use crate::job::read_all;
use crate::job::rows;
use crate::job::values;
use crate::job::write_all;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;
use stead_core::Bounds;
use stead_core::DType;
use stead_core::Kind;
use stead_fabric::Local;
use stead_fabric::testing::Between;
use stead_fabric::testing::Meddle;
use stead_stream::Behind;
use stead_stream::Coupling;
use stead_stream::Definition;
use stead_stream::Start;

#[test]
fn what_writers_of_some_nodes_put_readers_of_others_get() {
    let layouts: [&[(&str, usize)]; 5] = [
        &[("sim", 0), ("ana", 1)],
        &[("sim", 0), ("sim", 0), ("sim", 1), ("ana", 2), ("ana", 3)],
        // Some are on the nodes of writers.
        &[("sim", 0), ("ana", 0), ("sim", 1), ("ana", 1), ("ana", 2)],
        &[("sim", 2), ("sim", 1), ("sim", 0), ("ana", 0), ("ana", 0)],
        &[("ana", 0), ("sim", 0), ("sim", 0)],
    ];
    for ranks in layouts {
        let job = Job::new();
        job.run(ranks, |part, rank| match part {
            "sim" => write_all(&rank, 5, |w| w.readers = 1),
            _ => assert_eq!(read_all(&rank, |_| {}), [0, 1, 2, 3, 4]),
        });
        for (_, node) in ranks {
            assert_eq!(job.left(*node), [""; 0], "{ranks:?}");
        }
    }
}

#[test]
fn parts_larger_than_a_message_come_whole() {
    let shape = [3, 1 << 20];
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| w.readers = 1).unwrap();
            let variable = writer.define(array(&shape)).unwrap();
            let mine = columns(shape, rank.coupling.rank(), 2);
            writer.begin().unwrap();
            writer.put(variable, &mine, &values(0, &mine)).unwrap();
            writer.end().unwrap();
            writer.close().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            let step = reader.next_step().unwrap().unwrap();
            let parts = step.parts("T").unwrap();
            assert_eq!(parts.iter().map(|(rank, _)| *rank).collect::<Vec<_>>(), [0, 1]);
            for wanted in [bounds(&[0, 0], &shape), bounds(&[1, 5], &[2, 1_000_000])] {
                let got = step.get("T", &wanted).unwrap();
                assert!(!got.is_view());
                assert!(got.bytes() == values(0, &wanted));
            }
            assert!(step.view("T", &bounds(&[0, 0], &[1, 1])).unwrap().is_none());
        }
    });
}

#[test]
fn writers_wait_for_readers_of_other_nodes_or_do_not() {
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2), ("look", 3)], |part, rank| match part {
        "sim" => write_all(&rank, 40, |w| (w.readers, w.queue) = (2, 1)),
        "ana" => assert_eq!(read_all(&rank, |_| {}), (0..40).collect::<Vec<_>>()),
        _ => {
            let mut reader = rank
                .read("sim", |r| (r.group, r.behind) = ("look".to_owned(), Behind::Drop))
                .unwrap();
            let (mut sum, mut had) = (0, 0);
            while let Some(step) = reader.next_step().unwrap() {
                thread::sleep(Duration::from_millis(5));
                let whole = bounds(&[0, 0], &SHAPE);
                assert_eq!(step.get("T", &whole).unwrap().bytes(), values(step.number(), &whole));
                (sum, had) = (sum + step.dropped(), had + 1);
            }
            assert!(sum + had <= 40 && had > 0, "{sum} {had}");
        }
    });
}

#[test]
fn ranks_that_may_miss_steps_are_given_the_same_ones_of_all_nodes() {
    const STEPS: u64 = 120;
    // Three nodes have writers, of which each rank asks its own one first; and one has none.
    let ranks = [0, 1, 2].map(|node| ("sim", node));
    let ranks = [&ranks[..], &[("ana", 0), ("ana", 1), ("ana", 2), ("ana", 3)]].concat();
    for queue in [1, 2] {
        let (job, all) = (Job::new(), Mutex::new(Vec::new()));
        job.run(&ranks, |part, rank| {
            let me = rank.coupling.rank();
            let is_slow = |step: u64, of: u64| (step + me).is_multiple_of(of);
            if part == "sim" {
                let mut writer = rank.write("sim", |w| (w.readers, w.queue) = (1, queue)).unwrap();
                let variable = writer.define(array(&SHAPE)).unwrap();
                let mine = rows(SHAPE, me, 3);
                for step in 0..STEPS {
                    writer.begin().unwrap();
                    writer.put(variable, &mine, &values(step, &mine)).unwrap();
                    writer.end().unwrap();
                    if is_slow(step, 10) {
                        thread::sleep(Duration::from_millis(5));
                    }
                }
                return writer.close().unwrap();
            }
            let mut reader = rank.read("sim", |r| r.behind = Behind::Drop).unwrap();
            let (mut had, mine) = (Vec::new(), columns(SHAPE, me, 4));
            while let Some(step) = reader.next_step().unwrap() {
                assert_eq!(step.get("T", &mine).unwrap().bytes(), values(step.number(), &mine));
                had.push(step.number());
                if is_slow(had.len() as u64, 4) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            all.lock().unwrap().push(had);
        });
        let all = all.into_inner().unwrap();
        assert_eq!(all[0].last(), Some(&(STEPS - 1)));
        assert!(all.len() == 4 && all.iter().all(|had| *had == all[0]), "{all:?}");
    }
}

#[test]
fn what_one_node_has_not_yet_keeps_no_writer_of_another_one_waiting() {
    const ROUNDS: u64 = 16;
    let mine = |me: u64| rows(SHAPE, me, 2);
    let memory = 8 * 8 * mine(0).elements();
    let (job, ended, looked) = (Job::new(), Barrier::new(3), Barrier::new(3));
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| {
        let me = rank.coupling.rank();
        if part == "sim" {
            let mut writer = rank
                .write("sim", |w| {
                    (w.readers, w.keep, w.memory) = (1, 0, memory);
                    w.timeout = Duration::from_secs(30);
                })
                .unwrap();
            let variable = writer.define(array(&SHAPE)).unwrap();
            let mut write = |before: u64| -> stead_core::Result<()> {
                while writer.step() < before {
                    let step = writer.begin()?;
                    writer.put(variable, &mine(me), &values(step, &mine(me)))?;
                    writer.end()?;
                }
                Ok(())
            };
            // The others go on if it fails.
            let mut done = Ok(());
            for round in 0..ROUNDS {
                // The second node is a step ahead, and has only the newest one.
                done = done.and_then(|()| write(2 * round + 1 + me));
                ended.wait();
                looked.wait();
            }
            done.and_then(|()| write(2 * ROUNDS)).unwrap();
            return writer.close().unwrap();
        }
        let mut reader = rank.read("sim", |r| r.behind = Behind::Drop).unwrap();
        let whole = bounds(&[0, 0], &SHAPE);
        for round in 0..ROUNDS {
            ended.wait();
            // What was asked for before may have come meanwhile, as long as the second node has not yet heard that nobody waits for it.
            if let Some(step) = reader.next_step_within(Duration::from_millis(50)).unwrap() {
                assert_eq!(step.number() + 1, 2 * round);
                assert_eq!(step.get("T", &whole).unwrap().bytes(), values(step.number(), &whole));
            }
            looked.wait();
        }
        let last = std::iter::from_fn(|| reader.next_step().unwrap()).last();
        assert_eq!(last.map(|step| step.number()), Some(2 * ROUNDS - 1));
    });
}

#[test]
fn steps_that_stay_can_be_had_again_and_what_is_had_stays() {
    let job = Job::new();
    let over = Barrier::new(2);
    job.run(&[("sim", 0), ("ana", 1)], |part, rank| match part {
        "sim" => {
            write_all(&rank, 6, |w| (w.keep, w.readers) = (3, 1));
            over.wait();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            let first = reader.next_step().unwrap().unwrap();
            let again = reader.at(0).unwrap();
            drop(first);
            for n in 1..6 {
                assert_eq!(reader.next_step().unwrap().unwrap().number(), n);
            }
            assert!(reader.next_step().unwrap().is_none() && reader.is_over());
            // Held all the time; 3 to 5 are kept; 1 and 2 went.
            let mine = bounds(&[3, 3], &[2, 2]);
            assert_eq!(again.get("T", &mine).unwrap().bytes(), values(0, &mine));
            assert_eq!(reader.steps().unwrap(), [0, 3, 4, 5]);
            assert_eq!(reader.at(4).unwrap().get("T", &mine).unwrap().bytes(), values(4, &mine));
            let error = reader.at(2).unwrap_err();
            assert_eq!(error.kind(), Kind::NotFound);
            assert!(error.message().contains("from 0 to 5"), "{error}");
            over.wait();
        }
    });
}

#[test]
fn ranks_read_from_each_other_at_the_same_time() {
    let job = Job::new();
    let over = Barrier::new(2);
    job.run(&[("a", 0), ("b", 1)], |part, rank| {
        let other = if part == "a" { "b" } else { "a" };
        let part = bounds(&[0, 0], &SHAPE);
        let mut writer = rank.write(rank.coupling.part().unwrap().name.as_str(), |_| {}).unwrap();
        let variable = writer.define(array(&SHAPE)).unwrap();
        // Each time by other conversations, which both begin with the same numbers.
        for n in 0..10 {
            writer.begin().unwrap();
            writer.put(variable, &part, &values(n, &part)).unwrap();
            writer.end().unwrap();
            over.wait();
            let mut reader = rank.read(other, |_| {}).unwrap();
            let step = reader.next_step().unwrap().unwrap();
            assert_eq!(step.number(), n);
            assert!(step.get("T", &part).unwrap().bytes() == values(n, &part));
            drop((step, reader));
            over.wait();
        }
    });
}

/// Hears what is said in some conversations later: in those up to this tag, and there are those up to that one.
#[derive(Clone, Default)]
struct Late(Arc<AtomicU32>, Arc<AtomicU32>);

impl Meddle for Late {
    fn taken(&self, tag: u32, _: &[u8]) {
        // Others are those of knocks, and of answers.
        if (16..1 << 30).contains(&tag) {
            self.1.fetch_max(tag, Ordering::AcqRel);
            while tag <= self.0.load(Ordering::Acquire) {
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}

#[test]
fn who_comes_again_has_its_old_place_as_soon_as_its_farewell_is_heard() {
    let job = Job::new();
    let (late, over) = (Late::default(), Barrier::new(2));
    let fabrics = Local::over_nodes(&[0, 1], LONG);
    thread::scope(|scope| {
        for (node, inner) in fabrics.into_iter().enumerate() {
            let (late, over, spaces) = (late.clone(), &over, job.spaces(node));
            scope.spawn(move || {
                let fabric = Between::new(Arc::new(inner), late.clone());
                let part = if node == 0 { "sim" } else { "ana" };
                let coupling = Coupling::new(Arc::new(fabric), part, &spaces, LONG).unwrap();
                let rank = Rank { coupling };
                if node == 0 {
                    let mut writer = rank.write("sim", |_| {}).unwrap();
                    writer.begin().unwrap();
                    writer.end().unwrap();
                    over.wait();
                    return writer.close().unwrap();
                }
                // Also as one that is waited for no longer.
                for behind in [Behind::Block, Behind::Block, Behind::Drop] {
                    let mut reader = rank.read("sim", |r| r.behind = behind).unwrap();
                    assert_eq!(reader.next_step().unwrap().unwrap().number(), 0);
                    // A conversation has two tags.
                    late.0.store(late.1.load(Ordering::Acquire) | 1, Ordering::Release);
                    drop(reader);
                    let late = late.clone();
                    scope.spawn(move || {
                        thread::sleep(Duration::from_millis(300));
                        late.0.store(0, Ordering::Release);
                    });
                }
                over.wait();
            });
        }
    });
}

#[test]
fn waits_for_other_nodes_have_an_end() {
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| {
        match (part, rank.coupling.rank()) {
            ("sim", 0) => {
                let mut writer = rank.write("sim", |_| {}).unwrap();
                writer.begin().unwrap();
                writer.end().unwrap();
            }
            ("sim", _) => {}
            _ => {
                given_up(|time| rank.read("other", |r| r.timeout = time), "on any of 3 nodes");
            }
        }
    });
    // The writer is there before it is looked for, and until then.
    let (came, told) = (Barrier::new(2), Barrier::new(2));
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| {
        match (part, rank.coupling.rank()) {
            ("sim", 0) => {
                let _writer = rank.write("part", |_| {}).unwrap();
                came.wait();
                told.wait();
            }
            ("sim", _) => {}
            _ => {
                came.wait();
                let says = "1 of 2 writers of stream 'part' have come";
                given_up(|time| rank.read("part", |r| r.timeout = time), says);
                told.wait();
            }
        }
    });
}

#[test]
fn several_streams_and_runs_of_one_name() {
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| match part {
        "sim" => {
            for _ in 0..5 {
                write_all(&rank, 3, |w| w.readers = 1);
            }
        }
        _ => {
            for _ in 0..5 {
                assert_eq!(read_all(&rank, |r| r.start = Start::Oldest), [0, 1, 2]);
            }
        }
    });
}

#[test]
fn a_short_look_at_slow_nodes_gives_each_step_once() {
    // Answers of some nodes come later than the reader waits for them.
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("sim", 2), ("ana", 3)], |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| w.readers = 1).unwrap();
            let variable = writer.define(array(&SHAPE)).unwrap();
            let mine = rows(SHAPE, rank.coupling.rank(), 3);
            for step in 0..6 {
                thread::sleep(Duration::from_millis(15 * rank.coupling.rank()));
                writer.begin().unwrap();
                writer.put(variable, &mine, &values(step, &mine)).unwrap();
                writer.end().unwrap();
            }
            writer.close().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            let mut had = Vec::new();
            while !reader.is_over() {
                let Some(step) = reader.next_step_within(Duration::from_millis(4)).unwrap() else {
                    continue;
                };
                let mine = columns(SHAPE, 0, 2);
                assert_eq!(step.get("T", &mine).unwrap().bytes(), values(step.number(), &mine));
                had.push(step.number());
            }
            assert_eq!(had, [0, 1, 2, 3, 4, 5]);
        }
    });
    for node in 0..3 {
        assert_eq!(job.left(node), [""; 0]);
    }
}

#[test]
fn many_small_parts_come_whole_and_in_their_places() {
    // More from each node than are on their way at a time, of several sizes.
    let shape = [1300, 40];
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2)], |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| w.readers = 1).unwrap();
            let variable = writer.define(array(&shape)).unwrap();
            let (mine, mut row) = (rows(shape, rank.coupling.rank(), 2), 0);
            writer.begin().unwrap();
            while row < mine.count()[0] {
                let high = (1 + u64::from(row % 7 == 0)).min(mine.count()[0] - row);
                let block = bounds(&[mine.start()[0] + row, 0], &[high, shape[1]]);
                writer.put(variable, &block, &values(0, &block)).unwrap();
                row += high;
            }
            writer.end().unwrap();
            writer.close().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            let step = reader.next_step().unwrap().unwrap();
            assert!(step.parts("T").unwrap().len() > 1100);
            for wanted in [bounds(&[0, 0], &shape), bounds(&[7, 3], &[1280, 1])] {
                assert!(step.get("T", &wanted).unwrap().bytes() == values(0, &wanted));
            }
            assert_eq!(step.report().fetched, (1300 * 40 + 1280) * 8);
        }
    });
}

/// What is at these places of an array of one byte an element, in C order.
fn far_bytes(shape: &[u64], of: &Bounds) -> Vec<u8> {
    let columns = shape.get(1).copied().unwrap_or(1);
    let (width, left) = match of.ndim() {
        1 => (1, 0),
        _ => (of.count()[1], of.start()[1]),
    };
    let rows = of.start()[0]..of.end(0);
    let places = rows.flat_map(|y| (left..left + width).map(move |x| y * columns + x));
    places.map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

#[test]
fn boxes_beyond_32_bits_come_from_all_nodes() {
    const B32: u64 = 1 << 32;
    const B39: u64 = 1 << 39;
    let (line, plane) = ([1u64 << 40], [1u64 << 20, 1 << 20]);
    // Each of two writers has some of both: next to each other, and far away.
    let on_line = [
        [bounds(&[B32 - 1000], &[1500]), bounds(&[(1 << 40) - 7], &[7])],
        [bounds(&[B32 + 500], &[1000]), bounds(&[B39 + 1], &[5000])],
    ];
    let on_plane = [bounds(&[4095, 7], &[2, 300]), bounds(&[4097, 7], &[600_000, 1])];
    let wanted = [
        bounds(&[B32 - 3], &[6]),
        bounds(&[B32 - 1000], &[2500]),
        bounds(&[B32 + 499], &[2]),
        bounds(&[B39 + 4990], &[11]),
        bounds(&[(1 << 40) - 1], &[1]),
    ];
    let wanted_of_plane = [
        bounds(&[4095, 7], &[3, 1]),
        bounds(&[4096, 300], &[1, 7]),
        bounds(&[604_000, 7], &[97, 1]),
    ];
    let job = Job::new();
    job.run(&[("sim", 0), ("sim", 1), ("ana", 2), ("ana", 0)], |part, rank| match part {
        "sim" => {
            let mut writer = rank.write("sim", |w| w.readers = 1).unwrap();
            let far = writer.define(Definition::new("line", DType::U8, line)).unwrap();
            let wide = writer.define(Definition::new("plane", DType::U8, plane)).unwrap();
            let mine = rank.coupling.rank() as usize;
            writer.begin().unwrap();
            for block in &on_line[mine] {
                writer.put(far, block, &far_bytes(&line, block)).unwrap();
            }
            writer.put(wide, &on_plane[mine], &far_bytes(&plane, &on_plane[mine])).unwrap();
            writer.end().unwrap();
            writer.close().unwrap();
        }
        _ => {
            let mut reader = rank.read("sim", |_| {}).unwrap();
            let step = reader.next_step().unwrap().unwrap();
            for (name, shape, boxes) in
                [("line", &line[..], &wanted[..]), ("plane", &plane[..], &wanted_of_plane[..])]
            {
                assert_eq!(step.variable(name).unwrap().shape, shape);
                for wanted in boxes {
                    let got = step.get(name, wanted).unwrap();
                    // A part of one block has the strides of that.
                    let mut close = vec![0; got.bounds.elements() as usize];
                    assert_eq!(step.get_into(name, wanted, &mut close).unwrap(), close.len());
                    assert!(close == far_bytes(shape, wanted), "{name} {wanted}");
                    assert_eq!(got.bytes()[0], close[0], "{name} {wanted}");
                }
            }
            let none = step.get("line", &bounds(&[B39], &[2])).unwrap_err();
            assert_eq!(none.kind(), Kind::NotFound);
            assert!(none.message().contains(&format!("[{B39}:{}]", B39 + 1)), "{none}");
        }
    });
}
