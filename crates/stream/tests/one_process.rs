//! Streams whose writers and readers are threads of one process.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Barrier, LONG, Place, bounds};
use std::time::Duration;
use stead_core::{Bounds, Cancel, DType, Kind};
use stead_stream::{
    Behind, Definition, Presence, Read, Reader, Start, Stop, Subscription, Writer, Written,
};

fn array(name: &str, shape: &[u64]) -> Definition {
    Definition {
        name: name.to_owned(),
        dtype: DType::F64,
        shape: shape.to_vec(),
        dims: Vec::new(),
        attributes: Default::default(),
    }
}

/// The element at a place of a step.
fn value(step: u64, at: &[u64]) -> f64 {
    at.iter().fold(step as f64, |sum, n| sum * 1000.0 + *n as f64)
}

fn bytes(step: u64, bounds: &Bounds) -> Vec<u8> {
    let mut out = Vec::new();
    let ends: Vec<_> = bounds.sides().collect();
    for i in ends[0].clone() {
        for j in ends[1].clone() {
            out.extend(value(step, &[i, j]).to_ne_bytes());
        }
    }
    out
}

fn put(writer: &mut Writer, variable: u32, step: u64, part: &Bounds) {
    assert_eq!(writer.begin().unwrap(), step);
    writer.put(variable, part, &bytes(step, part)).unwrap();
    writer.end().unwrap();
}

#[test]
fn rows_are_written_and_columns_are_read() {
    let place = Place::new();
    let steps = 20;
    std::thread::scope(|scope| {
        for rank in 0..3u64 {
            let place = &place;
            scope.spawn(move || {
                let options = Written { rank, writers: 3, readers: 1, ..place.written() };
                let mut writer = Writer::open("sim", &options).unwrap();
                let t = writer.define(array("T", &[9, 8])).unwrap();
                for step in 0..steps {
                    put(&mut writer, t, step, &bounds(&[3 * rank, 0], &[3, 8]));
                }
                writer.close().unwrap();
            });
        }
        for rank in 0..2u64 {
            let place = &place;
            scope.spawn(move || {
                let options = Read { rank, ranks: 2, ..place.read() };
                let mut reader = Reader::open("sim", &options).unwrap();
                let mine = bounds(&[0, 4 * rank], &[9, 4]);
                let mut had = 0;
                while let Some(step) = reader.next_step().unwrap() {
                    assert_eq!((step.number(), step.dropped()), (had, 0));
                    let t = step.get("T", &mine).unwrap();
                    assert!(!t.is_view() && t.is_contiguous());
                    assert_eq!(t.bytes(), bytes(had, &mine));
                    // What lies in one block is where it was put.
                    let row = bounds(&[4, 2], &[1, 5]);
                    let view = step.get("T", &row).unwrap();
                    assert!(view.is_view());
                    assert_eq!(&view.bytes()[..40], bytes(had, &row));
                    let few = step.get("T", &bounds(&[3, 2], &[3, 2])).unwrap();
                    assert_eq!(
                        (few.is_view(), few.is_contiguous(), &few.strides[..]),
                        (true, false, &[64, 8][..])
                    );
                    had += 1;
                }
                assert_eq!(had, steps);
                assert!(reader.is_over());
            });
        }
    });
    // All have had all of it.
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn who_comes_late_finds_what_was_kept() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &Written { keep: 3, ..place.written() }).unwrap();
    let t = writer.define(array("T", &[2, 2])).unwrap();
    let whole = bounds(&[0, 0], &[2, 2]);
    (0..5).for_each(|step| put(&mut writer, t, step, &whole));
    let next = Read { start: Start::Next, group: "next".into(), ..place.read() };
    let mut late = Reader::open("sim", &place.read()).unwrap();
    let mut next = Reader::open("sim", &next).unwrap();
    assert_eq!(late.steps().unwrap(), [2, 3, 4]);
    let step = late.next_step().unwrap().unwrap();
    assert_eq!(step.number(), 2);
    // Any that is there, in any order.
    let last = late.at(4).unwrap();
    assert_eq!(last.get("T", &whole).unwrap().bytes(), bytes(4, &whole));
    let gone = late.at(1).unwrap_err();
    assert_eq!(gone.kind(), Kind::NotFound);
    assert!(gone.message().contains("those from 2 to 4 are"), "{gone}");
    for n in [3, 4] {
        assert_eq!(late.next_step().unwrap().unwrap().number(), n);
    }
    put(&mut writer, t, 5, &whole);
    writer.close().unwrap();
    assert_eq!(next.next_step().unwrap().unwrap().number(), 5);
    assert!(next.next_step().unwrap().is_none());
    assert_eq!(late.next_step().unwrap().unwrap().number(), 5);
    assert!(late.next_step().unwrap().is_none());
    // An array is longer there than its step and its reader.
    let array = step.get("T", &whole).unwrap();
    drop((late, next, last, step));
    assert_eq!(array.bytes(), bytes(2, &whole));
    assert_eq!(place.left(), ["sim"]);
    drop(array);
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn a_slow_reader_that_may_be_left_behind_is() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let t = writer.define(array("T", &[2, 2])).unwrap();
    let whole = bounds(&[0, 0], &[2, 2]);
    let options = Read { behind: Behind::Drop, ..place.read() };
    let mut reader = Reader::open("sim", &options).unwrap();
    put(&mut writer, t, 0, &whole);
    let first = reader.next_step().unwrap().unwrap();
    (1..10).for_each(|step| put(&mut writer, t, step, &whole));
    let then = reader.next_step().unwrap().unwrap();
    assert_eq!((then.number(), then.dropped()), (9, 8));
    assert_eq!(first.get("T", &whole).unwrap().bytes(), bytes(0, &whole));
}

#[test]
fn ranks_of_a_group_that_may_be_left_behind_are_given_the_same_steps() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let t = writer.define(array("T", &[2, 2])).unwrap();
    let (whole, soon) = (bounds(&[0, 0], &[2, 2]), Duration::from_millis(20));
    let of = |rank| Read { rank, ranks: 2, behind: Behind::Drop, ..place.read() };
    let next = |reader: &mut Reader| {
        let step = reader.next_step().unwrap().unwrap();
        assert_eq!(step.get("T", &whole).unwrap().bytes(), bytes(step.number(), &whole));
        (step.number(), step.dropped())
    };
    let mut more = |steps: u64| {
        for _ in 0..steps {
            let step = writer.step();
            put(&mut writer, t, step, &whole);
        }
    };
    let mut first = Reader::open("sim", &of(0)).unwrap();
    more(5);
    assert_eq!(next(&mut first), (4, 4));
    more(5);
    assert_eq!(next(&mut first), (9, 4));
    more(5);
    // It is as far ahead of the other one as it may be.
    assert!(first.next_step_within(soon).unwrap().is_none());
    let late = "step 10 of stream 'sim' has not come: rank 1 of the readers 'readers' has not come";
    assert_eq!(first.late().message(), late);
    let mut second = Reader::open("sim", &of(1)).unwrap();
    assert_eq!((next(&mut second), next(&mut second)), ((4, 4), (9, 4)));
    assert_eq!(next(&mut first), (14, 4));
    // Who has gone is waited for no longer, and goes on with what comes when it is there again.
    drop(second);
    more(5);
    assert_eq!(next(&mut first), (19, 4));
    let mut second = Reader::open("sim", &of(1)).unwrap();
    assert!(second.next_step_within(soon).unwrap().is_none());
    more(3);
    assert_eq!((next(&mut second), next(&mut first)), ((22, 2), (22, 2)));
    writer.close().unwrap();
    assert!(first.next_step().unwrap().is_none() && second.next_step().unwrap().is_none());
    drop((first, second));
    assert_eq!(place.left(), Vec::<String>::new());
}

#[test]
fn nothing_waits_for_ever_and_it_is_said_for_whom() {
    let place = Place::new();
    let soon = Duration::from_millis(50);
    let error = Reader::open("sim", &Read { timeout: soon, ..place.read() }).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.message().contains("nobody writes a stream 'sim'"), "{error}");
    let options = Written { timeout: soon, writers: 2, queue: 1, readers: 1, ..place.written() };
    let mut writer = Writer::open("sim", &options).unwrap();
    let error = writer.begin().unwrap_err();
    assert!(
        error.message().contains("0 groups of readers have come, and it waits for 1"),
        "{error}"
    );
    let mut reader =
        Reader::open("sim", &Read { timeout: soon, ranks: 2, ..place.read() }).unwrap();
    let t = writer.define(array("T", &[2, 2])).unwrap();
    let whole = bounds(&[0, 0], &[2, 2]);
    put(&mut writer, t, 0, &whole);
    let error = reader.next_step().unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(
        error.message().contains("step 0 of stream 'sim' has not come: writer 1 has not come"),
        "{error}"
    );
    assert!(reader.next_step_within(soon).unwrap().is_none() && !reader.is_over());
    let error = writer.begin().unwrap_err();
    assert!(error.message().contains("rank 1 of the readers 'readers' has not come"), "{error}");
    let other = Reader::open("sim", &Read { timeout: soon, rank: 1, ranks: 3, ..place.read() });
    assert!(other.unwrap_err().message().contains("others say 2"));
}

#[test]
fn memory_has_a_bound_and_a_step_that_never_fits_is_told_at_once() {
    let place = Place::new();
    let memory = 3 << 20;
    let options = Written { memory, timeout: Duration::from_millis(100), ..place.written() };
    let mut writer = Writer::open("sim", &options).unwrap();
    let t = writer.define(array("T", &[1 << 17])).unwrap();
    let whole = bounds(&[0], &[1 << 17]);
    let data = vec![0; 1 << 20];
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    for _ in 0..2 {
        writer.begin().unwrap();
        writer.put(t, &whole, &data).unwrap();
        writer.end().unwrap();
    }
    let step = reader.next_step().unwrap().unwrap();
    drop(reader.next_step().unwrap().unwrap());
    // One is kept, one is looked at, and one is written.
    writer.begin().unwrap();
    writer.put(t, &whole, &data).unwrap();
    let error = writer.put(t, &whole, &data).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.message().contains("still looks at step 0"), "{error}");
    drop(step);
    writer.put(t, &whole, &data).unwrap();
    let error = writer.put(t, &whole, &data).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
}

#[test]
fn memory_that_another_writer_has_not_given_back_is_waited_for() {
    const BLOCK: u64 = 1 << 17;
    let place = Place::new();
    let memory = 4 << 20;
    let timeout = Duration::from_millis(100);
    let options = Written { memory, timeout, writers: 2, ..place.written() };
    let mut writer = Writer::open("sim", &options).unwrap();
    let mut other = Writer::open("sim", &Written { rank: 1, ..options }).unwrap();
    let data = vec![0; 1 << 20];
    let t = writer.define(array("T", &[2 * BLOCK])).unwrap();
    assert_eq!(other.define(array("T", &[2 * BLOCK])).unwrap(), t);
    let (mine, its) = (bounds(&[0], &[BLOCK]), bounds(&[BLOCK], &[BLOCK]));
    for _ in 0..2 {
        other.begin().unwrap();
        other.put(t, &its, &data).unwrap();
        other.end().unwrap();
        writer.begin().unwrap();
        writer.put(t, &mine, &data).unwrap();
        writer.end().unwrap();
    }
    // The first step has gone, and the other writer, which has done nothing since, has its part of it.
    writer.begin().unwrap();
    writer.put(t, &mine, &data).unwrap();
    let error = writer.put(t, &mine, &data).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    let pid = std::process::id();
    let says = format!(
        "has no room in step 2: what others have of steps that have gone is given back with what they do next; writer 1 (process {pid}) has 2.0 MiB"
    );
    assert!(error.message().contains(&says), "{error}");
    // What can never fit is told at once, and what the other one gives back is had.
    let huge = bounds(&[0], &[2 * BLOCK]);
    let error = writer.put(t, &huge, &vec![0; 2 << 20]).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
    other.begin().unwrap();
    writer.put(t, &mine, &data).unwrap();
    // What somebody has in the step that is open he may not put; when he has, no room is left in it.
    let error = other.put(t, &its, &data).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout, "{error}");
    writer.end().unwrap();
    let error = other.put(t, &its, &data).unwrap_err();
    assert_eq!(error.kind(), Kind::Limit, "{error}");
}

#[test]
fn writers_that_wait_for_memory_of_each_other_in_a_step_are_told_that_it_does_not_fit() {
    let place = Place::new();
    let options = Written { memory: 4 << 20, writers: 2, keep: 0, ..place.written() };
    let data = vec![0; 1 << 20];
    let errors: Vec<Kind> = std::thread::scope(|scope| {
        let both = std::sync::Arc::new(Barrier::new(2));
        let write = |rank| {
            let (options, data) = (Written { rank, ..options.clone() }, &data);
            let both = both.clone();
            scope.spawn(move || {
                let mut writer = Writer::open("sim", &options).unwrap();
                let t = writer.define(array("T", &[1 << 17])).unwrap();
                let whole = bounds(&[0], &[1 << 17]);
                writer.begin().unwrap();
                (0..2).for_each(|_| writer.put(t, &whole, data).unwrap());
                both.wait();
                let error = writer.put(t, &whole, data).err().map(|e| e.kind());
                writer.abandon().unwrap();
                error
            })
        };
        let all = [write(0), write(1)];
        all.into_iter().filter_map(|thread| thread.join().unwrap()).collect()
    });
    // The first that sees it is told so, and the other one perhaps that the first one has given up.
    assert!(errors.contains(&Kind::Limit), "{errors:?}");
    assert!(errors.iter().all(|kind| matches!(kind, Kind::Limit | Kind::Peer)), "{errors:?}");
}

#[test]
fn a_writer_that_is_ahead_leaves_memory_to_the_others() {
    let place = Place::new();
    let memory = 4 << 20;
    let timeout = Duration::from_millis(200);
    let options = Written { memory, timeout, writers: 2, readers: 1, ..place.written() };
    let mut ahead = Writer::open("sim", &options).unwrap();
    let mut behind = Writer::open("sim", &Written { rank: 1, ..options }).unwrap();
    let _reader = Reader::open("sim", &Read { behind: Behind::Drop, ..place.read() }).unwrap();
    let data = vec![0; 1 << 19];
    let write = |writer: &mut Writer, rank: u64| {
        let t = writer.define(array("T", &[1 << 17])).unwrap();
        writer.begin()?;
        writer.put(t, &bounds(&[rank << 16], &[1 << 16]), &data)?;
        writer.end()
    };
    let error = (0..20).find_map(|_| write(&mut ahead, 0).err()).unwrap();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(
        error.message().contains("step 0 is not ended: writer 1") && ahead.step() == 2,
        "{error}"
    );
    write(&mut behind, 1).unwrap();
    write(&mut ahead, 0).unwrap();
}

#[test]
fn who_writes_on_is_told_who_has_ended_also_when_the_stream_has_gone() {
    let place = Place::new();
    let options = Written { writers: 2, ..place.written() };
    let mut writer = Writer::open("sim", &options).unwrap();
    let other = Writer::open("sim", &Written { rank: 1, ..options }).unwrap();
    let t = writer.define(array("T", &[2, 2])).unwrap();
    let reader = Reader::open("sim", &place.read()).unwrap();
    writer.begin().unwrap();
    other.abandon().unwrap();
    drop(reader);
    assert_eq!(place.left(), Vec::<String>::new());
    let whole = bounds(&[0, 0], &[2, 2]);
    let error = writer.put(t, &whole, &bytes(0, &whole)).unwrap_err();
    assert_eq!(error.kind(), Kind::Peer, "{error}");
    assert!(error.message().contains("writer 1 of stream 'sim' has closed it"), "{error}");
}

#[test]
fn what_makes_no_sense_is_told() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let t = writer.define(array("T", &[4, 4])).unwrap();
    let part = bounds(&[0, 0], &[2, 4]);
    assert!(
        writer.put(t, &part, &bytes(0, &part)).unwrap_err().message().contains("was not begun")
    );
    writer.begin().unwrap();
    assert!(
        writer
            .put(t, &part, &[0; 8])
            .unwrap_err()
            .message()
            .contains("has 64 bytes, and 8 were given")
    );
    let out = bounds(&[3, 0], &[2, 4]);
    assert_eq!(writer.put(t, &out, &[0; 64]).unwrap_err().kind(), Kind::Usage);
    writer.put(t, &part, &bytes(0, &part)).unwrap();
    // The same is the same, and another one is none within a step.
    assert_eq!(writer.define(array("T", &[4, 4])).unwrap(), t);
    assert!(writer.define(array("T", &[4, 5])).is_err());
    writer.end().unwrap();
    assert_eq!(writer.define(array("T", &[4, 5])).unwrap(), t);
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    let step = reader.next_step().unwrap().unwrap();
    assert_eq!(step.variable("T").unwrap().shape, [4, 4]);
    let error = step.get("T", &bounds(&[1, 1], &[3, 2])).unwrap_err();
    assert!(
        error.message().contains("nobody has put [2:4, 1:3] of variable 'T' in step 0"),
        "{error}"
    );
    let mut to = vec![9; 48];
    assert_eq!(step.get_what_there_is("T", &bounds(&[1, 1], &[3, 2]), &mut to).unwrap(), 16);
    assert_eq!(to[16..], [9; 32]);
    assert!(step.get("U", &part).unwrap_err().message().contains("there are T"));
    assert_eq!(step.get("T", &bounds(&[0], &[1])).unwrap_err().kind(), Kind::Usage);
    let again = Writer::open("sim", &place.written()).unwrap_err();
    assert!(again.message().contains("already"), "{again}");
    let other =
        Writer::open("sim", &Written { writers: 2, rank: 1, ..place.written() }).unwrap_err();
    assert!(other.message().contains("writers 1"), "{other}");
    for name in ["", ".", "a/b", "../x", "a b"] {
        assert_eq!(Writer::open(name, &place.written()).unwrap_err().kind(), Kind::Usage, "{name}");
    }
    // Within a step, to be closed is to fail.
    writer.begin().unwrap();
    assert!(writer.close().is_err());
    let error = reader.next_step().unwrap_err();
    assert_eq!(error.kind(), Kind::Peer);
    assert!(error.message().contains("within a step, after step 0"), "{error}");
}

#[test]
fn the_next_run_has_the_name() {
    let place = Place::new();
    let whole = bounds(&[0, 0], &[2, 2]);
    for run in 0..3 {
        let mut writer = Writer::open("sim", &place.written()).unwrap();
        let t = writer.define(array("T", &[2, 2])).unwrap();
        (0..=run).for_each(|step| put(&mut writer, t, step, &whole));
        writer.close().unwrap();
        // Nobody has read it.
        assert_eq!(place.left(), ["sim"]);
    }
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    assert_eq!(reader.next_step().unwrap().unwrap().number(), 2);
    // One that is being read goes under another name, until it is not.
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    assert_eq!(place.left().len(), 2);
    assert!(reader.next_step().unwrap().is_none());
    drop(reader);
    assert_eq!(place.left(), ["sim"]);
    writer.begin().unwrap();
    writer.end().unwrap();
}

#[test]
fn memory_of_one_writer_is_not_put_by_another() {
    let place = Place::new();
    let options = Written { writers: 2, ..place.written() };
    let mut one = Writer::open("sim", &options).unwrap();
    let mut other = Writer::open("sim", &Written { rank: 1, ..options }).unwrap();
    let whole = bounds(&[0, 0], &[2, 2]);
    let t = one.define(array("T", &[2, 2])).unwrap();
    assert_eq!(other.define(array("T", &[2, 2])).unwrap(), t);
    assert_eq!(one.definition(t).unwrap().shape, [2, 2]);
    assert_eq!(one.definition(9).unwrap_err().kind(), Kind::Usage);
    let room = one.empty(t, &whole).unwrap();
    other.begin().unwrap();
    let e = other.put_room(room).unwrap_err();
    assert_eq!(e.kind(), Kind::Usage);
    assert!(e.message().contains("another writer"), "{e}");
}

#[test]
fn a_wait_ends_when_it_is_stopped() {
    let place = Place::new();
    let stopped = |wait: &(dyn Fn(Stop) -> Kind + Sync)| {
        let cancel = Cancel::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| wait(cancel.clone().into()));
            std::thread::sleep(Duration::from_millis(100));
            assert!(!waiting.is_finished());
            cancel.cancel();
            assert_eq!(waiting.join().unwrap(), Kind::Cancelled);
        });
    };
    stopped(&|stop| Reader::open("none", &Read { stop, ..place.read() }).unwrap_err().kind());
    stopped(&|stop| {
        let options = Written { stop, readers: 1, ..place.written() };
        Writer::open("sim", &options).unwrap().begin().unwrap_err().kind()
    });
    let writer = Writer::open("other", &place.written()).unwrap();
    stopped(&|stop| {
        let mut reader = Reader::open("other", &Read { stop, ..place.read() }).unwrap();
        reader.next_step().unwrap_err().kind()
    });
    writer.close().unwrap();
    // With an error of its own, as soon as it is asked.
    let stop = Stop::when(|| Err(stead_core::Error::data("enough")));
    let mut writer =
        Writer::open("last", &Written { stop, readers: 1, ..place.written() }).unwrap();
    assert_eq!(writer.begin().unwrap_err().message(), "enough");
}

#[test]
fn threads_that_share_a_reader_are_given_each_step_once() {
    let place = Place::new();
    let steps = 200;
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let reader = Reader::open("sim", &place.read()).unwrap();
    let read = || {
        let mut had = Vec::new();
        while !reader.is_over() {
            let step = reader.next_within(Duration::from_millis(20)).unwrap();
            had.extend(step.map(|step| step.number()));
        }
        had
    };
    let mut had = std::thread::scope(|scope| {
        let reading: Vec<_> = (0..3).map(|_| scope.spawn(read)).collect();
        let t = writer.define(array("T", &[2, 2])).unwrap();
        (0..steps).for_each(|step| put(&mut writer, t, step, &bounds(&[0, 0], &[2, 2])));
        writer.close().unwrap();
        reading.into_iter().flat_map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    had.sort_unstable();
    assert_eq!(had, (0..steps).collect::<Vec<_>>());
}

#[test]
fn memory_that_is_kept_is_not_used_for_another_block() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &Written { keep: 0, ..place.written() }).unwrap();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    let t = writer.define(array("T", &[4096])).unwrap();
    let whole = bounds(&[0], &[4096]);
    let mut kept = None;
    let mut at = Vec::new();
    for step in 0..6 {
        writer.begin().unwrap();
        let mut room = writer.empty(t, &whole).unwrap();
        assert_eq!((room.variable(), room.bounds()), (t, &whole));
        at.push(room.bytes().as_ptr());
        room.bytes_mut().fill(step);
        if step == 0 {
            kept = Some(room.keep());
            assert!(room.bytes_mut().is_empty());
        }
        writer.put_room(room).unwrap();
        writer.end().unwrap();
        let got = reader.next_step().unwrap().unwrap().view("T", &whole).unwrap().unwrap();
        assert!(got.bytes().iter().all(|b| *b == step));
    }
    assert!(at[1..].iter().all(|other| *other != at[0]), "{at:?}");
    // That of the others is.
    assert!(at[1..5].contains(&at[5]), "{at:?}");
    drop(kept);
}

#[test]
fn what_lies_in_several_blocks_is_no_view() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let t = writer.define(array("T", &[4, 2])).unwrap();
    assert_eq!(writer.find("T").map(|(n, d)| (n, d.shape.clone())), Some((t, vec![4, 2])));
    assert!(writer.find("V").is_none());
    writer.begin().unwrap();
    for rows in [0, 2] {
        let part = bounds(&[rows, 0], &[2, 2]);
        writer.put(t, &part, &bytes(0, &part)).unwrap();
    }
    writer.end().unwrap();
    writer.close().unwrap();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    let step = reader.next_step().unwrap().unwrap();
    let one = bounds(&[2, 0], &[2, 1]);
    let view = step.view("T", &one).unwrap().unwrap();
    assert_eq!(&view.bytes()[..8], value(0, &[2, 0]).to_ne_bytes());
    assert!(step.view("T", &bounds(&[1, 0], &[2, 1])).unwrap().is_none());
    assert!(step.view("T", &bounds(&[1, 0], &[0, 1])).unwrap().is_none());
    assert_eq!(step.view("V", &one).unwrap_err().kind(), Kind::NotFound);
}

/// Several threads copy it, where there are several processors.
#[test]
fn large_blocks_are_put_and_read_whole() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let rows = (33 << 20) / 8 / 1000;
    let t = writer.define(array("T", &[2 * rows, 1000])).unwrap();
    let line = |n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_ne_bytes();
    let all: Vec<u8> = (0..2 * rows * 1000).flat_map(line).collect();
    let (first, second) = all.split_at(all.len() / 2);
    writer.begin().unwrap();
    writer.put(t, &bounds(&[0, 0], &[rows, 1000]), first).unwrap();
    writer.put(t, &bounds(&[rows, 0], &[rows, 1000]), second).unwrap();
    writer.end().unwrap();
    writer.close().unwrap();
    let mut reader = Reader::open("sim", &Read { threads: 3, ..place.read() }).unwrap();
    let step = reader.next_step().unwrap().unwrap();
    let array = step.get("T", &bounds(&[0, 0], &[2 * rows, 1000])).unwrap();
    assert!(!array.is_view() && array.bytes() == all);
}

/// Steps with a number each, of a variable that is called by it.
fn counted(place: &Place, steps: u64, keep: u64) -> Writer {
    let mut writer = Writer::open("s", &Written { keep, ..place.written() }).unwrap();
    for n in 0..steps {
        let variable = writer.define(array(&format!("v{n}"), &[1])).unwrap();
        writer.begin().unwrap();
        writer.put(variable, &bounds(&[0], &[1]), &(n as f64).to_ne_bytes()).unwrap();
        writer.end().unwrap();
    }
    writer
}

#[test]
fn a_very_step_can_be_waited_for() {
    let place = Place::new();
    let writer = counted(&place, 3, 8);
    let reader = Reader::open("s", &place.read()).unwrap();
    let soon = Duration::from_millis(20);
    assert_eq!(reader.wait_for("v1", 1, soon).unwrap().number(), 1);
    // Those before are done with, and can be had as long as they stay.
    assert_eq!(reader.wait_for("v0", 0, soon).unwrap().number(), 0);
    let error = reader.wait_for("other", 2, soon).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.message().contains("no variable 'other' is in step 2"), "{error}");
    let error = reader.wait_for("v3", 3, soon).unwrap_err();
    assert_eq!(error.kind(), Kind::Timeout);
    assert!(error.message().contains("step 3 of stream 's' has not come: writer 0"), "{error}");
    let waits = std::thread::spawn(move || {
        let found = reader.wait_for("v5", 5, LONG).unwrap().number();
        (found, reader)
    });
    let mut writer = writer;
    for n in 3..7 {
        let variable = writer.define(array(&format!("v{n}"), &[1])).unwrap();
        writer.begin().unwrap();
        writer.put(variable, &bounds(&[0], &[1]), &[0; 8]).unwrap();
        writer.end().unwrap();
    }
    let (found, mut reader) = waits.join().unwrap();
    assert_eq!(found, 5);
    assert_eq!(reader.next_step().unwrap().unwrap().number(), 6);
    writer.close().unwrap();
    let error = reader.wait_for("v9", 9, soon).unwrap_err();
    assert_eq!(error.kind(), Kind::NotFound);
    assert!(error.message().contains("has ended before step 9"), "{error}");
}

#[test]
fn steps_come_to_a_function() {
    let place = Place::new();
    let writer = counted(&place, 4, 8);
    let (had, told) = std::sync::mpsc::channel();
    let reader = Reader::open("s", &place.read()).unwrap();
    let all = Subscription::new(reader, move |step| {
        had.send(step.unwrap().map(|step| step.number())).unwrap();
    })
    .unwrap();
    let next = || told.recv_timeout(LONG).unwrap();
    assert_eq!([next(), next(), next(), next()], [Some(0), Some(1), Some(2), Some(3)]);
    assert!(!all.is_over());
    writer.close().unwrap();
    assert_eq!(next(), None);
    all.join();
    // One that is dropped is called no more, and its reader has gone.
    let writer = counted(&place, 1, 8);
    let (had, told) = std::sync::mpsc::channel();
    let reader = Reader::open("s", &place.read()).unwrap();
    let some = Subscription::new(reader, move |step| {
        had.send(step.unwrap().map(|step| step.number())).unwrap();
    })
    .unwrap();
    assert_eq!(told.recv_timeout(LONG).unwrap(), Some(0));
    drop(some);
    assert!(told.recv().is_err());
    drop(writer);
}

#[test]
fn writers_are_told_what_becomes_of_readers() {
    let place = Place::new();
    let mut writer = counted(&place, 3, 8);
    assert_eq!(writer.events().unwrap(), []);
    let named = |group: &str| Read { group: group.to_owned(), ..place.read() };
    let mut some = Reader::open("s", &named("some")).unwrap();
    let more = Reader::open("s", &named("more")).unwrap();
    let said = |writer: &mut Writer| -> Vec<(String, Presence, u64, u64)> {
        let events = writer.events().unwrap().into_iter().map(|event| event.reader);
        events.map(|r| (r.group.unwrap(), r.presence, r.had, r.step)).collect()
    };
    let here = |group: &str| (group.to_owned(), Presence::Here, 0, 0);
    assert_eq!(said(&mut writer), [here("some"), here("more")]);
    assert_eq!(said(&mut writer), []);
    drop(some.next_step().unwrap());
    drop(some.next_step().unwrap());
    drop(some);
    assert_eq!(said(&mut writer), [("some".to_owned(), Presence::Left, 2, 3)]);
    drop(more);
    // Come and gone since.
    drop(Reader::open("s", &named("short")).unwrap());
    let gone = |group: &str| (group.to_owned(), Presence::Left, 0, 3);
    let came = ("short".to_owned(), Presence::Here, 0, 3);
    assert_eq!(said(&mut writer), [gone("more"), came, gone("short")]);
    // There are places for 64 groups: who has gone is forgotten when they are needed.
    for n in 0..70 {
        drop(Reader::open("s", &named(&format!("g{n}"))).unwrap());
    }
    let last = said(&mut writer).pop().unwrap();
    assert_eq!((last.0.as_str(), last.1), ("g69", Presence::Left));
}

/// Each of them removes what it takes for left, such as the folder that another one has just made.
#[test]
fn a_stream_is_founded_while_others_clear_up() {
    let place = Place::new();
    let home = place.home();
    let is_done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let soon = Read { timeout: Duration::ZERO, ..place.read() };
                while !is_done.load(std::sync::atomic::Ordering::Relaxed) {
                    assert_eq!(Reader::open("none", &soon).unwrap_err().kind(), Kind::Timeout);
                }
            });
        }
        for n in 0..4000 {
            let name = format!("s{n}");
            let opened = Writer::open(&name, &place.written());
            if opened.is_err() {
                is_done.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            opened.unwrap().close().unwrap();
            assert!(home.remove(&name, true).unwrap());
        }
        is_done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}
