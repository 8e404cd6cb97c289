//! What is told of a stream: before, who will get what from whom, and after, what it was and what it has cost.

#![allow(clippy::unwrap_used, clippy::panic)]

mod common;

use common::{LONG, Place, bounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;
use stead_core::{Bounds, DType, Kind};
use stead_stream::{
    Attribute, Basis, Behind, Definition, Explanation, Pull, Read, Reader, Step, Stop, Writer,
    Written,
};

/// All writers of a stream.
fn write(place: &Place, writers: u64, more: impl Fn(&mut Written)) -> Vec<Writer> {
    let open = |rank| {
        let mut options = Written { rank, writers, queue: 3, ..place.written() };
        more(&mut options);
        Writer::open("sim", &options).unwrap()
    };
    (0..writers).map(open).collect()
}

fn read(place: &Place, group: &str, rank: u64, ranks: u64, behind: Behind) -> Reader {
    let group = group.to_owned();
    Reader::open("sim", &Read { group, rank, ranks, behind, ..place.read() }).unwrap()
}

/// Bytes that readers have copied, and looked at, so far.
fn counted(place: &Place) -> Vec<(String, u64, u64, u64)> {
    let readers = place.home().describe("sim").unwrap().readers;
    let mut counted: Vec<_> =
        readers.into_iter().map(|r| (r.group.unwrap(), r.rank, r.bytes, r.memory)).collect();
    counted.sort();
    counted
}

/// Blocks of variables, whatever is in them, of each writer.
fn put(writers: &mut [Writer], blocks: &[(usize, &str, &[u64], Bounds)]) {
    for writer in writers.iter_mut() {
        writer.begin().unwrap();
    }
    for (writer, name, shape, part) in blocks {
        let writer = &mut writers[*writer];
        let variable = writer.define(Definition::new(name, DType::F64, *shape)).unwrap();
        writer.put(variable, part, &vec![1; part.elements() as usize * 8]).unwrap();
    }
    writers.iter_mut().for_each(|w| w.end().unwrap());
}

const SHAPE: [u64; 2] = [12, 40];

/// Rows of three writers, a number of the first one, and a list of the second one.
fn by_rows() -> Vec<(usize, &'static str, &'static [u64], Bounds)> {
    let rows = |w: usize| (w, "T", &SHAPE[..], bounds(&[4 * w as u64, 0], &[4, 40]));
    let more = [(0, "n", &[][..], bounds(&[], &[])), (1, "U", &[5][..], bounds(&[0], &[5]))];
    (0..3).map(rows).chain(more).collect()
}

fn columns() -> Vec<(usize, &'static str, &'static [u64], Bounds)> {
    let of = |w: usize| {
        (w, "T", &SHAPE[..], bounds(&[0, 10 * w as u64], &[12, 10 + 10 * (w as u64 / 2)]))
    };
    (0..3).map(of).collect()
}

fn has(step: &Step, name: &str) -> bool {
    step.has(name)
}

/// What the readers of these tests get: columns of all writers, a part of one block, the same into memory of their own.
fn get(step: &Step, rank: u64) {
    if rank == 0 {
        step.get("T", &bounds(&[0, 0], &[12, 20])).unwrap();
        step.get("T", &bounds(&[5, 3], &[2, 7])).unwrap();
        step.get_into("T", &bounds(&[9, 1], &[1, 4]), &mut [0; 32]).unwrap();
        if has(step, "U") {
            step.get("U", &bounds(&[1], &[3])).unwrap();
        }
    } else {
        step.get("T", &bounds(&[4, 0], &[4, 40])).unwrap();
        if has(step, "n") {
            step.get("n", &bounds(&[], &[])).unwrap();
        }
    }
}

fn told(explanation: &Explanation) -> Vec<(String, u64, u64, u64)> {
    let all = explanation.readers.iter();
    all.map(|r| (r.group.clone(), r.rank, r.copied, r.looked)).collect()
}

/// What is counted from one time to the next.
fn more(
    after: Vec<(String, u64, u64, u64)>,
    before: &[(String, u64, u64, u64)],
) -> Vec<(String, u64, u64, u64)> {
    let pairs = after.into_iter().zip(before);
    pairs.map(|((group, rank, c, l), (.., cb, lb))| (group, rank, c - cb, l - lb)).collect()
}

#[test]
fn what_is_told_before_is_what_is_counted_then() {
    let place = Place::new();
    let mut writers = write(&place, 3, |_| {});
    let mut readers = [0, 1].map(|rank| read(&place, "ana", rank, 2, Behind::Block));
    put(&mut writers, &by_rows());
    for (rank, reader) in (0..).zip(&mut readers) {
        get(&reader.next_step().unwrap().unwrap(), rank);
    }
    let before = counted(&place);
    put(&mut writers, &by_rows());
    let said = place.home().explain("sim", 0).unwrap();
    assert_eq!((said.step, said.bytes, said.elsewhere), (Some(1), 12 * 40 * 8 + 8 + 40, 0));
    assert!(said.readers.iter().all(|r| r.basis == Basis::Step(0) && r.unknown == 0));
    assert_eq!(said.readers.iter().map(|r| r.boxes).collect::<Vec<_>>(), [4, 2]);
    let process = Some(std::process::id());
    assert!(said.readers.iter().all(|r| r.process == process && r.node.is_none()));
    // From whom, reckoned by hand.
    let pull = |rank, writer, copied, looked, runs| Pull {
        group: "ana".into(),
        rank,
        writer,
        copied,
        looked,
        runs,
        is_sent: false,
    };
    let pulls = [
        pull(0, 0, 4 * 20 * 8, 0, 4),
        pull(0, 1, 4 * 20 * 8, 2 * 7 * 8 + 3 * 8, 4),
        pull(0, 2, 4 * 20 * 8 + 4 * 8, 0, 5),
        pull(1, 0, 0, 8, 0),
        pull(1, 1, 0, 4 * 40 * 8, 0),
    ];
    assert_eq!(said.pulls, pulls);
    assert_eq!((said.copied, said.looked), (12 * 20 * 8 + 32, 112 + 24 + 8 + 1280));
    let given: Vec<_> = said.writers.iter().map(|w| (w.rank, w.blocks, w.bytes, w.given)).collect();
    assert_eq!(given, [(0, 2, 1288, 648), (1, 2, 1320, 2056), (2, 1, 1280, 672)]);
    for (rank, reader) in (0..).zip(&mut readers) {
        get(&reader.next_step().unwrap().unwrap(), rank);
    }
    let after = counted(&place);
    assert_eq!(told(&said), more(after.clone(), &before));
    // Writers put other blocks, and fewer variables: what readers get of these is told before they do.
    put(&mut writers, &columns());
    let said = place.home().explain("sim", 0).unwrap();
    assert_eq!(said.step, Some(2));
    for (rank, reader) in (0..).zip(&mut readers) {
        get(&reader.next_step().unwrap().unwrap(), rank);
    }
    assert_eq!(told(&said), more(counted(&place), &after));
    // What was a view is copied now, and the other way round.
    assert_eq!(told(&said)[1], ("ana".into(), 1, 4 * 40 * 8, 0));
}

#[test]
fn who_has_got_nothing_yet_is_taken_for_one_that_gets_rows() {
    let place = Place::new();
    let mut writers = write(&place, 3, |_| {});
    let empty = place.home().explain("sim", 2).unwrap();
    assert_eq!((empty.step, empty.bytes, empty.multiple, empty.copied), (None, 0, None, 0));
    put(&mut writers, &by_rows());
    let mut first = read(&place, "ana", 1, 5, Behind::Block);
    let said = place.home().explain("sim", 2).unwrap();
    // It, those of its group that have not come, and as many as were to be assumed.
    let of: Vec<_> =
        said.readers.iter().map(|r| (&*r.group, r.rank, r.process.is_some())).collect();
    let ana = (0..5).map(|rank| ("ana", rank, rank == 1));
    assert_eq!(of, ana.chain([("assumed", 0, false), ("assumed", 1, false)]).collect::<Vec<_>>());
    assert!(said.readers.iter().all(|r| r.basis == Basis::Rows));
    // Rows 2 and 3, the number, and one of the list.
    assert_eq!(told(&said)[1], ("ana".into(), 1, 0, 2 * 40 * 8 + 8 + 8));
    // Rows 4 to 6 of 7 to 9, which are those of two.
    assert_eq!(told(&said)[3], ("ana".into(), 3, 2 * 40 * 8, 8 + 8));
    let step = first.next_step().unwrap().unwrap();
    step.get("T", &bounds(&[2, 0], &[2, 40])).unwrap();
    step.get("n", &bounds(&[], &[])).unwrap();
    step.get("U", &bounds(&[1], &[1])).unwrap();
    drop(step);
    let counted = counted(&place);
    assert_eq!((counted[0].2, counted[0].3), (0, 656));
    // Who has had steps and got nothing of them gets nothing of the next one.
    let mut idle = read(&place, "idle", 0, 1, Behind::Drop);
    for _ in 0..2 {
        put(&mut writers, &by_rows());
        drop(idle.next_step().unwrap());
    }
    let said = place.home().explain("sim", 0).unwrap();
    let idle = said.readers.iter().find(|r| r.group == "idle").unwrap();
    assert_eq!((idle.basis, idle.copied, idle.looked), (Basis::Nothing, 0, 0));
    // Who has gone is not told of; those of its group may still come.
    drop(first);
    let said = place.home().explain("sim", 0).unwrap();
    let of = said.readers.iter().map(|r| (r.group.as_str(), r.rank, r.process.is_some()));
    let ana = [0, 2, 3, 4].map(|rank| ("ana", rank, false));
    assert_eq!(
        of.collect::<Vec<_>>(),
        ana.into_iter().chain([("idle", 0, true)]).collect::<Vec<_>>()
    );
    assert_eq!(place.home().explain("other", 0).unwrap_err().kind(), Kind::NotFound);
}

#[test]
fn gets_that_are_too_many_to_be_noted_are_told_as_such() {
    let place = Place::new();
    let mut writers = write(&place, 1, |_| {});
    let mut reader = read(&place, "ana", 0, 1, Behind::Block);
    put(&mut writers, &[(0, "T", &[1000, 3], bounds(&[0, 0], &[1000, 3]))]);
    let step = reader.next_step().unwrap().unwrap();
    for row in 0..1000 {
        step.get("T", &bounds(&[row, 0], &[1, 3])).unwrap();
    }
    let said = place.home().explain("sim", 0).unwrap();
    // What it has noted goes with it, and that of others who have ended without a word when somebody else notes something.
    let noted = || {
        let mut names = place.files("sim");
        names.retain(|name| name.starts_with("got-"));
        names
    };
    assert_eq!(noted(), ["got-0"]);
    let streams = std::fs::read_dir(place.dir.path().join("own")).unwrap().next().unwrap();
    std::fs::write(streams.unwrap().path().join("sim/got-7"), [0; 64]).unwrap();
    let mut other = read(&place, "other", 0, 1, Behind::Drop);
    other.next_step().unwrap().unwrap().get("T", &bounds(&[0, 0], &[1, 3])).unwrap();
    assert_eq!(noted(), ["got-0", "got-1"]);
    drop((step, reader));
    assert_eq!(noted(), ["got-1"]);
    let taker = &said.readers[0];
    assert!(taker.boxes > 100 && taker.boxes + taker.unknown == 1000, "{taker:?}");
    assert_eq!(taker.looked, taker.boxes * 24);
}

/// The kinds of warnings, and all that they say.
fn warned(said: &Explanation) -> (Vec<&'static str>, String) {
    let kinds = said.warnings.iter().map(|w| w.kind).collect();
    (kinds, said.warnings.iter().map(|w| format!("{}\n", w.message)).collect())
}

#[test]
fn what_may_be_slow_is_told() {
    let place = Place::new();
    let mut writers = write(&place, 4, |w| (w.memory, w.queue) = (1 << 20, 2));
    let shape = [8000u64, 3];
    let row = |w: usize, from, n| (w, "T", &[8000u64, 3][..], bounds(&[from, 0], &[n, 3]));
    // Most of it is of the second writer.
    let blocks = [row(0, 0, 100), row(1, 100, 7700), row(2, 7800, 100), row(3, 7900, 100)];
    put(&mut writers, &blocks);
    let calm = place.home().explain("sim", 0).unwrap();
    assert_eq!(warned(&calm).0, [""; 0]);
    let mut all = read(&place, "all", 0, 1, Behind::Block);
    let mut part = read(&place, "part", 0, 1, Behind::Drop);
    let mut slow = read(&place, "slow", 0, 1, Behind::Drop);
    all.next_step().unwrap().unwrap().get("T", &bounds(&[0, 0], &shape)).unwrap();
    part.next_step().unwrap().unwrap().get("T", &bounds(&[50, 1], &[7000, 1])).unwrap();
    let (kinds, said) = warned(&place.home().explain("sim", 0).unwrap());
    assert_eq!(kinds, ["hot writer", "gathering reader", "small pieces"], "{said}");
    for what in [
        "97 % of what 3 readers get is from writer 1 of 4",
        "rank 0 of the readers 'all' gets all of a step from 4 writers",
        "what rank 0 of the readers 'part' gets of 'T' is copied in 7000 pieces of 8 bytes",
    ] {
        assert!(said.contains(what), "{said}");
    }
    // Who looks at one block that has all of it gathers nothing, and who gets even rows is not warned of.
    drop((part, slow));
    slow = read(&place, "slow", 0, 1, Behind::Drop);
    slow.next_step().unwrap().unwrap().get("T", &bounds(&[100, 0], &[7700, 3])).unwrap();
    let (kinds, said) = warned(&place.home().explain("sim", 0).unwrap());
    assert_eq!(kinds, ["hot writer", "gathering reader"], "{said}");
    // The other group is to have gone on by itself, and this one is behind.
    all.next_step_within(Duration::ZERO).unwrap();
    for _ in 0..2 {
        put(&mut writers, &blocks);
    }
    let (kinds, said) = warned(&place.home().explain("sim", 0).unwrap());
    assert!(kinds.contains(&"behind"), "{said}");
    assert!(said.contains("rank 0 of the readers 'all' is 2 steps behind"), "{said}");
    drop(all);
    for _ in 0..4 {
        put(&mut writers, &blocks);
    }
    assert_eq!(slow.next_step().unwrap().unwrap().dropped(), 5);
    let (kinds, said) = warned(&place.home().explain("sim", 0).unwrap());
    assert!(kinds.contains(&"dropped") && !kinds.contains(&"behind"), "{said}");
    assert!(said.contains("5 steps went before rank 0 of the readers 'slow'"), "{said}");
}

#[test]
fn too_little_memory_is_told_before_anybody_waits() {
    let place = Place::new();
    let mut writers = write(&place, 1, |w| (w.memory, w.keep, w.queue) = (80_000, 1, 2));
    put(&mut writers, &[(0, "T", &[3000], bounds(&[0], &[3000]))]);
    assert_eq!(warned(&place.home().explain("sim", 0).unwrap()).0, [""; 0]);
    put(&mut writers, &[(0, "T", &[4000], bounds(&[0], &[4000]))]);
    let (kinds, said) = warned(&place.home().explain("sim", 0).unwrap());
    assert_eq!(kinds, ["memory"]);
    assert!(said.contains("hold 2 steps of") && said.contains("1 are kept and 2 queued"), "{said}");
    let said = place.home().explain("sim", 1).unwrap();
    assert_eq!((said.steps, said.multiple), (2, Some(2.0)));
}

#[test]
fn a_writer_reports_what_it_put_and_for_whom_it_waited() {
    let place = Place::new();
    // Who waits asks whether it is to stop.
    let asked = Arc::new(AtomicU64::new(0));
    let counted = asked.clone();
    let stop = Stop::when(move || {
        counted.fetch_add(1, Ordering::Relaxed);
        Ok(())
    });
    let mut writer = write(&place, 1, |w| (w.queue, w.stop) = (1, stop.clone())).remove(0);
    let none = writer.report();
    assert_eq!((none.steps, none.put, none.last, none.waits.len()), (0, 0, None, 0));
    let large = 4 << 20;
    let variable = writer.define(Definition::new("T", DType::F64, [large])).unwrap();
    let (whole, bytes) = (bounds(&[0], &[large]), vec![1; 8 * large as usize]);
    let mut reader = read(&place, "slow", 0, 1, Behind::Block);
    writer.begin().unwrap();
    writer.put(variable, &whole, &bytes).unwrap();
    writer.end().unwrap();
    let first = writer.report();
    let last = first.last.unwrap();
    assert_eq!((first.steps, first.put, first.copied), (1, 8 * large, 8 * large));
    assert_eq!((last.step, last.put, last.copied, last.waited_s), (0, 8 * large, 8 * large, 0.0));
    assert!(first.copy_cpu_s > 0.0 && last.copy_cpu_s == first.copy_cpu_s);
    let before = asked.load(Ordering::Relaxed);
    let waiting = thread::spawn(move || {
        // The reader has not had the first one.
        writer.begin().unwrap();
        let room = writer.empty(variable, &whole).unwrap();
        writer.put_room(room).unwrap();
        writer.end().unwrap();
        writer
    });
    while asked.load(Ordering::Relaxed) == before && !waiting.is_finished() {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(Duration::from_millis(60));
    drop(reader.next_step().unwrap());
    assert!(reader.next_step_within(LONG).unwrap().is_some());
    let writer = waiting.join().unwrap();
    let report = writer.report();
    let last = report.last.unwrap();
    assert_eq!((report.steps, report.put, report.copied), (2, 16 * large, 8 * large));
    assert_eq!((last.step, last.put, last.copied, last.copy_cpu_s), (1, 8 * large, 0, 0.0));
    assert!(last.waited_s >= 0.05 && report.waited_s == last.waited_s, "{report:?}");
    let [wait] = &report.waits[..] else { panic!("{report:?}") };
    assert_eq!((&*wait.who, wait.waited_s), ("rank 0 of the readers 'slow'", report.waited_s));
    // Two steps were there at a time.
    let memory = report.memory;
    assert_eq!((memory.step, memory.peak, memory.peak_steps), (8 * large, 16 * large, Some(2.0)));
    let seen = place.home().describe("sim").unwrap();
    assert_eq!((seen.peak, seen.writers[0].waited_s), (16 * large, report.waited_s));
    assert_eq!(seen.writers[0].copy_cpu_s, report.copy_cpu_s);
    assert!(seen.readers[0].waited_s > 0.0);
}

#[test]
fn variables_of_the_last_step_are_told() {
    let place = Place::new();
    let mut writers = write(&place, 2, |_| {});
    let told = || place.home().describe("sim").unwrap().variables;
    assert_eq!(told(), []);
    let rows = |w: usize| (w, "T", &SHAPE[..], bounds(&[6 * w as u64, 0], &[6, 40]));
    put(&mut writers, &[rows(0), rows(1), (1, "n", &[], bounds(&[], &[]))]);
    let of = |d: &Definition| (d.name.clone(), d.dtype, d.shape.clone(), d.dims.clone());
    let n = ("n".to_owned(), DType::F64, vec![], vec![]);
    let t = |dims: &[&str]| {
        let dims = dims.iter().map(|d| (*d).to_owned()).collect::<Vec<_>>();
        ("T".to_owned(), DType::F64, SHAPE.to_vec(), dims)
    };
    assert_eq!(told().iter().map(of).collect::<Vec<_>>(), [t(&[]), n.clone()]);
    // What is said of them later is told with the step that it holds for.
    for (rank, writer) in (0..).zip(&mut writers) {
        writer.begin().unwrap();
        let mut named = Definition::new("T", DType::F64, SHAPE);
        named.dims = vec!["y".into(), "x".into()];
        named.attributes.insert("units".into(), Attribute::Text("K".into()));
        let variable = writer.define(named).unwrap();
        writer.put(variable, &bounds(&[6 * rank, 0], &[6, 40]), &[1; 6 * 40 * 8]).unwrap();
    }
    assert_eq!(told().iter().map(of).collect::<Vec<_>>(), [t(&[]), n.clone()]);
    writers.iter_mut().for_each(|w| w.end().unwrap());
    let after = told();
    assert_eq!(after.iter().map(of).collect::<Vec<_>>(), [t(&["y", "x"]), n]);
    assert_eq!(after[0].attributes["units"], Attribute::Text("K".into()));
}

#[test]
fn steps_and_readers_report_what_was_got() {
    let place = Place::new();
    let mut writers = write(&place, 2, |_| {});
    let mut reader = read(&place, "ana", 0, 1, Behind::Drop);
    let shape: &'static [u64] = &[4, 1 << 20];
    let rows = |w: usize| (w, "T", shape, bounds(&[2 * w as u64, 0], &[2, 1 << 20]));
    put(&mut writers, &[rows(0), rows(1)]);
    let step = reader.next_step().unwrap().unwrap();
    let none = step.report();
    assert_eq!(
        (none.step, none.bytes, none.copied, none.looked, none.copy_cpu_s),
        (0, 32 << 20, 0, 0, 0.0)
    );
    assert_eq!((none.copies, none.peak_steps), (0, Some(1.0)));
    step.get("T", &bounds(&[0, 0], shape)).unwrap();
    step.get("T", &bounds(&[3, 5], &[1, 10])).unwrap();
    step.get_into("T", &bounds(&[3, 5], &[0, 10]), &mut []).unwrap();
    let report = step.report();
    assert_eq!((report.copies, report.copied, report.looked), (1, 32 << 20, 80));
    assert_eq!(report.fetched, 0);
    assert!(report.copy_cpu_s > 0.0);
    drop(step);
    // Steps go that it has not had.
    for _ in 0..3 {
        put(&mut writers, &[rows(0), rows(1)]);
    }
    let step = reader.next_step().unwrap().unwrap();
    step.get("T", &bounds(&[0, 0], &[1, 1 << 20])).unwrap();
    let second = step.report();
    assert_eq!((second.step, second.dropped, second.copied, second.looked), (3, 2, 0, 8 << 20));
    // Two steps were in memory at a time at least.
    assert!(second.copies == 0 && second.peak_steps >= Some(2.0), "{second:?}");
    let all = reader.report();
    assert_eq!(all.copies, 1);
    assert_eq!((all.steps, all.dropped, all.copied, all.looked), (2, 2, 32 << 20, (8 << 20) + 80));
    assert_eq!((all.fetched, all.copy_cpu_s), (0, report.copy_cpu_s));
    assert!(all.waited_s >= second.waited_s + report.waited_s - 1e-6);
    assert_eq!(all.memory.unwrap().step, 32 << 20);
}

#[test]
fn who_puts_nothing_of_a_variable_has_no_say_in_its_shape() {
    let place = Place::new();
    let mut writers = write(&place, 2, |_| {});
    let mut reader = read(&place, "ana", 0, 1, Behind::Block);
    let part = |w, n: &'static [u64]| (w, "T", n, bounds(&[w as u64 * 2], &[2]));
    put(&mut writers, &[part(0, &[4]), part(1, &[4])]);
    // It has become shorter, and only the first one has a part of it. Then both have, and then the second one alone.
    put(&mut writers, &[part(0, &[2])]);
    put(&mut writers, &[part(0, &[5]), part(1, &[5])]);
    let shapes = |reader: &mut Reader| {
        let step = reader.next_step().unwrap().unwrap();
        let parts = step.parts("T").unwrap().len();
        (step.variable("T").unwrap().shape[0], parts, step.get("T", &bounds(&[0], &[2])).is_ok())
    };
    assert_eq!([0; 3].map(|_| shapes(&mut reader)), [(4, 2, true), (2, 1, true), (5, 2, true)]);
    // The definitions are those of the step before, and what is put is not.
    for blocks in [vec![part(1, &[6])], vec![part(0, &[7])], vec![part(1, &[6])]] {
        put(&mut writers, &blocks);
        let said = place.home().explain("sim", 0).unwrap();
        assert_eq!(said.bytes, 16);
        let want = (blocks[0].2[0], 1, blocks[0].0 == 0);
        assert_eq!(shapes(&mut reader), want);
    }
    // Who puts blocks of it is to say the same.
    let one = writers[0].define(Definition::new("T", DType::F64, [8])).unwrap();
    let other = writers[1].define(Definition::new("T", DType::F64, [9])).unwrap();
    for (writer, variable) in writers.iter_mut().zip([one, other]) {
        writer.begin().unwrap();
        writer.put(variable, &bounds(&[0], &[1]), &[0; 8]).unwrap();
        writer.end().unwrap();
    }
    let error = reader.next_step().unwrap_err();
    assert!(error.message().contains("writers disagree about variable 'T'"), "{error}");
}

#[test]
fn memory_is_put_as_what_it_was_given_for() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let t = writer.define(Definition::new("T", DType::F64, [4, 6])).unwrap();
    let other = |dtype, shape: &[u64]| Definition {
        dtype,
        ..Definition::new("T", DType::F64, shape.to_vec())
    };
    for (dtype, shape) in [(DType::I64, [4, 6]), (DType::F64, [6, 8])] {
        let room = writer.empty(t, &bounds(&[0, 0], &[4, 6])).unwrap();
        writer.begin().unwrap();
        assert_eq!(writer.define(other(dtype, &shape)).unwrap(), t);
        let e = writer.put_room(room).unwrap_err();
        assert!(
            e.kind() == Kind::Usage && e.message().contains("'T' has another type or shape"),
            "{e}"
        );
        writer.define(Definition::new("T", DType::F64, [4, 6])).unwrap();
        let room = writer.empty(t, &bounds(&[0, 0], &[4, 6])).unwrap();
        writer.put_room(room).unwrap();
        writer.end().unwrap();
    }
}

#[test]
fn what_is_defined_and_not_put_is_not_found() {
    let place = Place::new();
    let mut writer = Writer::open("sim", &place.written()).unwrap();
    let t = writer.define(Definition::new("T", DType::F64, [2])).unwrap();
    writer.define(Definition::new("unput", DType::F64, [3])).unwrap();
    writer.begin().unwrap();
    writer.put(t, &bounds(&[0], &[2]), &[0; 16]).unwrap();
    writer.end().unwrap();
    let mut reader = Reader::open("sim", &place.read()).unwrap();
    let step = reader.next_step().unwrap().unwrap();
    let none = |e: stead_core::Error| {
        assert!(e.kind() == Kind::NotFound && e.message().contains("no variable 'unput'"), "{e}");
    };
    none(step.variable("unput").unwrap_err());
    none(step.get_into("unput", &bounds(&[0], &[3]), &mut [0; 3]).unwrap_err());
    none(reader.wait_for("unput", 0, Duration::ZERO).map(drop).unwrap_err());
    assert!(!step.has("unput") && step.has("T"));
}
